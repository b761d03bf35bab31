"""The fixture `kwire_spark` where PySpark is not: one line, and no cost. What it does with Spark: spark_it/."""

import sys
from pathlib import Path

import pytest
from plugin_run import run_pytest

import kwire.spark as loaded
from kwire.spark_session import SparkError, first_line, jar_files, launch_problem

pytestmark = pytest.mark.timeout(90)

WITHOUT = 'import sys\nsys.modules["pyspark"] = None\n'


def test_without_pyspark_it_says_how_to_install_it(tmp_path: Path) -> None:
    run = run_pytest(tmp_path, WITHOUT + "def test_it(kwire_spark):\n    pass\n")
    assert run.counts == {"error": 1}, run.text
    line = "PySpark is not installed: pip install 'kwire[spark]' (and a Java 17)"
    assert f"\n{line}\n" in run.text
    assert "Traceback" not in run.text and "spark.py" not in run.text


def test_a_wrong_configuration_is_told(tmp_path: Path) -> None:
    ini = "kwire_spark_config =\n    spark.driver.memory\n"
    run = run_pytest(tmp_path, "def test_it(kwire_spark):\n    pass\n", ini=ini)
    assert run.counts == {"error": 1}, run.text
    assert "kwire_spark_config: expected KEY=VALUE, not 'spark.driver.memory'" in run.text


def test_importing_it_does_not_import_pyspark() -> None:
    assert loaded.__name__ in sys.modules
    assert "pyspark" not in sys.modules


def test_jars_are_files_and_folders_and_the_connector_is_among_them(tmp_path: Path) -> None:
    connector = tmp_path / "spark-sql-kafka-0-10_2.13-4.0.0.jar"
    other = tmp_path / "more" / "kafka-clients.jar"
    other.parent.mkdir()
    with pytest.raises(
        SparkError, match=r"expected jars or folders with jars, but '.*/more' is not"
    ):
        jar_files(f"{tmp_path}/more")
    other.touch()
    with pytest.raises(SparkError, match="no spark-sql-kafka-0-10_"):
        jar_files(str(other))
    connector.touch()
    assert jar_files(f"{connector}:{tmp_path}/more") == [str(connector), str(other)]
    assert jar_files(f"{tmp_path}/more, {connector}") == [str(other), str(connector)]
    with pytest.raises(SparkError, match=r"but '/nowhere\.jar' is not"):
        jar_files(f"{connector},/nowhere.jar")


def test_a_launcher_that_ends_says_why() -> None:
    refused = 'WARNING: x\nException in thread "main" java.net.ConnectException: Connection refused\n\tat y\n'
    url = "http://127.0.0.1:1/x.jar"
    assert launch_problem(refused, {"spark.jars": url}, "4.0.0") == (
        f"it could not fetch {url} (ConnectException: Connection refused)"
    )
    heap = (
        "Invalid maximum heap size: -Xmxlots\nError: Could not create the Java Virtual Machine.\n"
    )
    config = {"spark.driver.memory": "lots", "spark.jars": "/a.jar,file:///b.jar"}
    assert launch_problem(heap, config, "4.0.0") == "Invalid maximum heap size: -Xmxlots"
    assert launch_problem("Error: Failed to load class none.\n", {}, "4.0.0") == (
        "its Java process has ended"
    )
    absent = launch_problem(
        "\t\tmodule not found: a#b;1\n", {"spark.jars.packages": "a:b:1"}, "4.1.0"
    )
    assert absent.startswith(
        "a:b:1 is in none of the repositories that Spark has asked (PySpark is 4.1.0;"
    )


def test_an_exception_of_java_is_told_without_the_call_that_met_it() -> None:
    error = RuntimeError(
        "An error occurred while calling None.org.apache.spark.api.java.JavaSparkContext.\n"
        ": org.apache.spark.SparkException: Asked to run locally with 0 threads\n\tat z"
    )
    assert first_line(error) == (
        "org.apache.spark.SparkException: Asked to run locally with 0 threads"
    )
    assert first_line(RuntimeError("\none\ntwo")) == "one"
