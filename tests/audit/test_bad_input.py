"""What `kwire audit` cannot do is one line and status 2, before Spark starts where that can be known.

The command runs as a user runs it, with a PySpark that is only a stand-in: all of it that the command needs until the
session is made, which says that it was asked to start. What only Spark finds: spark_it/test_audit_bad_input.py.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from kwire import Cluster
from kwire.load.ledger import Ledger
from kwire.protocol.record_builder import build_batch
from kwire.protocol.records import Record

pytestmark = pytest.mark.timeout(120)

PYSPARK = {
    "pyspark/__init__.py": """
        __version__ = "4.0.0"
        class SparkContext:
            _active_spark_context = None
    """,
    "pyspark/errors.py": "class PySparkException(Exception): pass",
    "pyspark/sql/__init__.py": """
        class Builder:
            def config(self, key, value):
                return self
            def getOrCreate(self):
                raise RuntimeError("the stand-in was to start")
        class SparkSession:
            builder = Builder()
    """,
    "pyspark/sql/datasource.py": """
        class DataSource: pass
        class DataSourceReader: pass
        class DataSourceStreamReader: pass
        class InputPartition: pass
    """,
}
STARTED = "Spark did not start: the stand-in was to start"
CLUSTER = "AAAAAAAAAAAAAAAAAAAAAA"


class Given:
    """A ledger and a log directory that belong together, and what Spark needs: everything is as it should be."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ledger, self.logs = folder / "ledger", folder / "logs"
        with Ledger(self.ledger, bootstrap="127.0.0.1:1", topics=["orders"]) as ledger:
            record = ledger.producer("p-1").record("orders", b"tea")
            record.acknowledged(0, 0)
        self.partition = self.logs / "orders-0"
        self.partition.mkdir(parents=True)
        (self.logs / "meta.properties").write_text(
            f"version=1\nnode.id=1\ncluster.id={CLUSTER}\ndirectory.id={CLUSTER}\n"
        )
        self.segment = self.partition / f"{0:020}.log"
        self.segment.write_bytes(build_batch([Record(0, 0, None, record.value)], base_offset=0))
        (self.partition / "leader-epoch-checkpoint").write_text("0\n1\n0 0\n")
        for name, text in PYSPARK.items():
            path = folder / "python" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(textwrap.dedent(text))
        jars = folder / "jars"
        jars.mkdir()
        (jars / "spark-sql-kafka-0-10_2.13-4.0.0.jar").touch()
        self.environment = {
            "PYTHONPATH": os.pathsep.join((str(folder / "python"), *sys.path[1:])),
            "JAVA_HOME": str(self.java("17.0.17")),
            "KWIRE_SPARK_JARS": str(jars),
        }

    def java(self, version: str) -> Path:
        """A JAVA_HOME with a Java that says its version, and can no more."""
        home = self.folder / f"java-{version}"
        (home / "bin").mkdir(parents=True)
        program = home / "bin" / "java"
        program.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
        program.chmod(0o755)
        return home

    def python(self, name: str, text: str) -> None:
        """Another stand-in for a module."""
        (self.folder / "python" / name).write_text(text)

    def run_json(self, **changes: object) -> None:
        path = self.ledger / "run.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))

    def told(self, *arguments: str, **environment: str) -> str:
        """What `kwire audit LEDGER --out …` says, with these arguments more: one line, and status 2."""
        out = ["--out", str(self.folder / "out")]
        done = subprocess.run(
            [sys.executable, "-m", "kwire", "audit", str(self.ledger), *out, *arguments],
            env={**os.environ, **self.environment, **environment},
            capture_output=True,
            text=True,
            timeout=60,
            stdin=subprocess.DEVNULL,
        )
        assert (done.returncode, done.stdout) == (2, ""), done
        (line,) = done.stderr.splitlines()
        assert line.startswith("kwire audit: "), line
        return line.removeprefix("kwire audit: ")

    def told_of_logs(self, *arguments: str, **environment: str) -> str:
        return self.told("--logs", str(self.logs), *arguments, **environment)


@pytest.fixture
def given(tmp_path: Path) -> Given:
    return Given(tmp_path)


def test_with_all_that_is_needed_spark_starts(given: Given) -> None:
    """So that the lines of the other tests come before that. Log directories need no connector."""
    assert given.told_of_logs(KWIRE_SPARK_JARS="/nowhere.jar") == STARTED


def test_a_topic_that_is_not_there(given: Given) -> None:
    line = "topic order is in none of the log directories"
    assert given.told_of_logs("--topic", "order") == line
    with Cluster(1, topics=["tea"]) as cluster:
        bootstrap = ["--bootstrap", cluster.bootstrap_servers]
        assert given.told(*bootstrap) == "topic orders is not in the cluster"
        assert given.told(*bootstrap, "--topic", "tea") == STARTED
    assert given.told("--bootstrap", "127.0.0.1:1").startswith("--bootstrap 127.0.0.1:1: ")


def test_a_ledger_that_is_none_or_anothers(given: Given) -> None:
    given.run_json(cluster_id="another")
    assert given.told_of_logs() == (
        f"{given.ledger} is of cluster another, the topics are of {CLUSTER}"
    )
    given.run_json(cluster_id=CLUSTER, run="0badf00d")
    (path,) = (given.ledger / "sent").glob("*.parquet")
    line = given.told_of_logs()
    assert line.startswith(f"{path} is of run ") and line.endswith("the ledger of run 0badf00d")
    path.write_bytes(b"PAR1 no")
    assert given.told_of_logs().startswith(f"{path}: no Parquet file: ")
    (given.ledger / "run.json").unlink()
    assert given.told_of_logs() == (
        f"{given.ledger} is not a ledger: it has no run.json, which kwire load writes"
    )
    shutil.rmtree(given.ledger)
    assert given.told_of_logs() == f"{given.ledger}: there is no such directory"


def test_log_directories_that_are_none_or_damaged(given: Given) -> None:
    assert given.told("--logs", "/nowhere") == "kwire-log: nothing is at /nowhere"
    assert given.told("--logs", str(given.ledger)) == (
        f"kwire-log: no log directory (partitions in folders like orders-0) is at {given.ledger}"
    )
    (given.partition / "leader-epoch-checkpoint").write_text("0\nmany\n")
    line = given.told_of_logs()
    assert line.startswith(f"audit: {given.partition}: ") and "leader-epoch-checkpoint" in line
    (given.partition / "leader-epoch-checkpoint").unlink()
    # A damaged segment is no bad input but a finding: it is read.
    given.segment.write_bytes(b"\xff" * 100)
    assert given.told_of_logs() == STARTED


def test_no_java_or_an_old_one(given: Given) -> None:
    wanted = "Spark 4.0.0 needs a Java 17; "
    assert given.told_of_logs(JAVA_HOME="", PATH="/nowhere") == (
        f"{wanted}no java is on the path, and JAVA_HOME is not set"
    )
    line = given.told_of_logs(JAVA_HOME="/nowhere")
    assert line.startswith(f"{wanted}/nowhere/bin/java does not run: ")
    old = given.java("11.0.2")
    assert given.told_of_logs(JAVA_HOME=str(old)) == (
        f"{wanted}{old}/bin/java is a Java 11: set JAVA_HOME"
    )


def test_no_pyspark_or_one_without_data_sources_in_python(given: Given) -> None:
    given.python("pyspark/__init__.py", '__version__ = "3.5.7"\n')
    assert given.told_of_logs() == "the audit needs PySpark 4.0 or later, this is 3.5.7"
    given.python("pyspark/__init__.py", "raise ImportError\n")
    assert given.told_of_logs() == (
        "PySpark is not installed: pip install 'kwire[spark]' (and a Java 17)"
    )


def test_jars_that_are_not_there(given: Given) -> None:
    bootstrap = ["--bootstrap", "127.0.0.1:1"]
    assert given.told(*bootstrap, KWIRE_SPARK_JARS="/nowhere.jar") == (
        "KWIRE_SPARK_JARS: expected jars or folders with jars, but '/nowhere.jar' is not"
    )
    missing = ["--conf", "spark.jars=file:///nowhere.jar"]
    assert given.told(*bootstrap, *missing) == "spark.jars: nothing is at /nowhere.jar"
    given_ones = ["--conf", f"spark.jars={given.folder}/jars/*.jar,hdfs://any.jar"]
    line = given.told(*bootstrap, *given_ones, KWIRE_SPARK_JARS="/nowhere.jar")
    assert line.startswith("--bootstrap 127.0.0.1:1: ")
