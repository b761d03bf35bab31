"""The fixture `kwire_spark`, seen from a user's tests: each case is a run of pytest on a folder of its own."""

import os
import re
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pyspark
import pytest

from spark_it import support

pytestmark = [pytest.mark.kwire_only, pytest.mark.timeout(600)]

ROOT = support.HERE.parent
LEFT_AS_FOUND = """
import pytest

@pytest.mark.parametrize("number", range(2))
def test_finds_nothing_of_another_test(kwire, kwire_spark, kwire_spark_session, number):
    session = kwire_spark.session
    assert session is kwire_spark_session
    assert kwire.topics() == {} and session.streams.active == []
    assert [table.name for table in session.catalog.listTables()] == []
    assert session.conf.get("spark.sql.shuffle.partitions") == "2"
    assert session.conf.get("some.own", "none") == "none"
    session.conf.set("spark.sql.shuffle.partitions", "3")
    session.conf.set("some.own", "here")
    session.range(3).selectExpr("string(id) as value").createTempView("three")
    kwire_spark.write(session.table("three"), "numbers")
    kwire_spark.write_stream(kwire_spark.read_stream("numbers"), "copy").start().processAllAvailable()
    assert kwire_spark.read("copy").count() == 3
    assert kwire_spark.read(subscribePattern="num.*|copy").count() == 6
    by_hand = session.read.format("kafka").options(**kwire_spark.options, subscribe="numbers")
    assert by_hand.load().count() == 3

@pytest.mark.kwire(brokers=2)
def test_the_cluster_is_the_tests_own(kwire, kwire_spark):
    assert kwire_spark.options == {"kafka.bootstrap.servers": kwire.bootstrap_servers}
    assert kwire.bootstrap_servers.count(",") == 1
    for broker in kwire.brokers:  # nobody of the test before asks for its topics here
        broker.stop(), broker.start()
    assert kwire.topics() == {}

def test_the_ini_file_configures_it(kwire_spark):
    assert kwire_spark.session.conf.get("spark.sql.session.timeZone") == "Pacific/Apia"
"""


def examples(page: str) -> list[str]:
    text = (ROOT / page).read_text()
    found = re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    return [block for block in found if "kwire_spark" in block]


def run(
    folder: Path, source: str, ini: str = "", **environment: str
) -> "subprocess.CompletedProcess[str]":
    """pytest on these tests, in an environment without this run's own."""
    (folder / "test_it.py").write_text(source)
    (folder / "pytest.ini").write_text("[pytest]\n" + textwrap.dedent(ini))
    kept = {key: value for key, value in os.environ.items() if not key.startswith("PYTEST")}
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-rE", str(folder)]
    return subprocess.run(
        command,
        cwd=folder,
        env={**kept, **environment},
        capture_output=True,
        text=True,
        timeout=500,
        stdin=subprocess.DEVNULL,
    )


def test_the_examples_of_the_docs_and_what_a_test_leaves(tmp_path: Path) -> None:
    """In one run, for Spark starts once in it."""
    (readme,) = examples("README.md")
    assert len(readme.strip().splitlines()) == 5
    docs = examples("docs/spark.md")
    assert len(docs) == 6
    if pyspark.__version__.startswith("3."):  # kwire-log is PySpark 4's
        docs = [block for block in docs if "kwire_spark.log" not in block]
    ini = "kwire_spark_config =\n    spark.sql.session.timeZone=Pacific/Apia\n"
    # The README's example is the first of the docs; it is the same, or it would be lost here.
    assert readme == docs[0]
    done = run(tmp_path, "\n".join([*docs, LEFT_AS_FOUND]), ini)
    left_as_found = 4
    assert f"= {len(docs) + left_as_found} passed" in done.stdout, done.stdout + done.stderr
    assert sorted(path.name for path in tmp_path.iterdir() if path.name != "__pycache__") == [
        "pytest.ini",
        "test_it.py",
    ]


def only_line(done: "subprocess.CompletedProcess[str]") -> str:
    """What the test ended with; that it is one line without a traceback."""
    assert done.returncode == 1 and "Traceback" not in done.stdout, done.stdout + done.stderr
    said = re.search(r"ERROR at setup of test_it _+\n(.*?)\n[-=]", done.stdout, re.DOTALL)
    assert said, done.stdout
    (line,) = said[1].splitlines()
    return line


TEST = "def test_it(kwire_spark):\n    pass\n"


def test_a_folder_without_the_connector_is_told(tmp_path: Path) -> None:
    line = only_line(run(tmp_path, TEST, KWIRE_SPARK_JARS=str(tmp_path)))
    assert line == f"KWIRE_SPARK_JARS: expected jars or folders with jars, but '{tmp_path}' is not"
    (tmp_path / "other.jar").touch()
    line = only_line(run(tmp_path, TEST, KWIRE_SPARK_JARS=str(tmp_path)))
    assert line == "KWIRE_SPARK_JARS: no spark-sql-kafka-0-10_*.jar is among its 1 jars"


def test_a_machine_without_java_is_told(tmp_path: Path) -> None:
    tools = tmp_path / "bin"
    tools.mkdir()
    (tools / "env").symlink_to(shutil.which("env") or "/usr/bin/env")
    line = only_line(run(tmp_path, TEST, PATH=str(tools), JAVA_HOME=""))
    assert re.fullmatch(r"Spark \S+ needs a Java 17; no java is on the path, and JAVA_H.*", line)
    line = only_line(run(tmp_path, TEST, JAVA_HOME="/nowhere"))
    assert "/nowhere/bin/java does not run: " in line


def test_a_jar_that_cannot_be_fetched_is_told_and_nothing_runs_on(tmp_path: Path) -> None:
    settings = tmp_path / "ivy.xml"  # a repository that is empty, and no other
    settings.write_text(
        '<ivysettings><settings defaultResolver="none"/><resolvers><filesystem name="none">'
        f'<artifact pattern="{tmp_path}/[artifact].[ext]"/></filesystem></resolvers></ivysettings>'
    )
    ini = f"""
    kwire_spark_config =
        spark.jars.packages=org.apache.spark:spark-sql-kafka-0-10_2.13:0.0.0
        spark.jars.ivySettings={settings}
        spark.jars.ivy={tmp_path}/ivy
        spark.driver.extraJavaOptions=-Dkwire.test={tmp_path}
    """
    line = only_line(run(tmp_path, TEST, ini))
    expected = "Spark did not start: org.apache.spark:spark-sql-kafka-0-10_2.13:0.0.0 is in none of the repo"
    assert line.startswith(expected)
    for command in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            assert f"-Dkwire.test={tmp_path}" not in command.read_text(errors="replace")
        except OSError:
            continue
