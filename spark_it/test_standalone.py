"""The word count and the audit by spark-submit on a standalone Spark cluster: a master and two workers, on loopback."""

import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from spark_it import audit_kit, support
from spark_it.test_wordcount import SCRIPT, result_of

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

START_S = 120.0
WORKERS = 2


class Standalone:
    """A master and its workers, each a process, ended by `stop`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._processes: list[subprocess.Popen[bytes]] = []
        try:
            self.url = self._start("master", r"Starting Spark master at (spark://\S+)")
            for number in range(WORKERS):
                work = ["--work-dir", str(self.work_dir(number)), "--cores", "1", "--memory", "1g"]
                self._start("worker", r"(Successfully registered with master)", *work, self.url)
        except BaseException:
            self.stop()
            raise

    @property
    def pids(self) -> list[int]:
        return [process.pid for process in self._processes]

    def work_dir(self, number: int) -> Path:
        return self.folder / f"work-{number}"

    def _start(self, kind: str, line: str, *arguments: str) -> str:
        """Starts one and waits for what it says when it is there."""
        import pyspark

        name = f"org.apache.spark.deploy.{kind}.{kind.capitalize()}"
        command = [str(Path(pyspark.__file__).parent / "bin" / "spark-class"), name]
        command += ["--host", "127.0.0.1", "--port", "0", "--webui-port", "0"]
        path = self.folder / f"{kind}-{len(self._processes)}.log"
        environment = {
            **support.spark_environment(),
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": support.JAVA_OPTIONS,
        }
        with path.open("wb") as log:
            process = subprocess.Popen(
                [*command, *arguments],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.folder,
            )
        self._processes.append(process)

        def said() -> re.Match[str] | None:
            assert process.poll() is None, path.read_text()[-4000:]
            return re.search(line, path.read_text())

        found: re.Match[str] = support.until(said, START_S, f"{kind} says {line}")
        return found[1]

    def stop(self) -> None:
        for process in reversed(self._processes):  # workers before their master
            process.terminate()
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(30)


@pytest.fixture
def standalone(tmp_path: Path) -> Iterator[Standalone]:
    cluster = Standalone(tmp_path)
    try:
        yield cluster
    finally:
        cluster.stop()
    for pid in cluster.pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def test_the_word_count_runs_on_a_master_and_two_workers(
    brokers: Any, standalone: Standalone
) -> None:
    executors = ["--conf", "spark.executor.memory=512m", "--conf", "spark.executor.cores=1"]
    arguments = ["--bootstrap", brokers.bootstrap_servers, "--lines", "500"]
    where = ["--master", standalone.url, *executors]
    said = result_of(support.submit_command(SCRIPT, arguments, *where), standalone.folder)
    assert any(f"by spark-submit, {standalone.url}" in line for line in said), said
    assert said[-1].endswith("the same as counted without Kafka")
    for number in range(WORKERS):
        (log,) = standalone.work_dir(number).glob("app-*/*/stderr")
        assert re.search(r"Finished task \d", log.read_text()), f"worker {number} had no task"


def submitted_audit(
    brokers: Any, story: audit_kit.Story, standalone: Standalone, tmp_path: Path
) -> "subprocess.CompletedProcess[str]":
    """`kwire audit` of the brokers' log directories, by spark-submit."""
    script = tmp_path / "audit.py"
    script.write_text("from kwire.cli.main import main\n\nmain()\n")
    arguments = ["audit", str(story.ledger), "--out", str(tmp_path / "out")]
    for directory in (path for each in brokers.brokers for path in each.log_dirs):
        arguments += ["--logs", directory]
    executors = ["--conf", "spark.executor.memory=512m", "--conf", "spark.executor.cores=1"]
    command = support.submit_command(script, arguments, "--master", standalone.url, *executors)
    root = str(Path(__file__).resolve().parents[1])
    return subprocess.run(
        command,
        env={**support.spark_environment(), "PYTHONPATH": root},
        capture_output=True,
        text=True,
        timeout=400,
    )


def test_the_audit_runs_on_a_master_and_two_workers(
    brokers: Any, standalone: Standalone, tmp_path: Path
) -> None:
    import pyspark

    if pyspark.__version__.startswith("3."):
        pytest.skip("the audit needs PySpark 4")
    brokers.create_topic("audited-by-workers", partitions=2, replication_factor=3)
    story = audit_kit.story(brokers, "audited-by-workers", tmp_path / "ledger")
    done = submitted_audit(brokers, story, standalone, tmp_path)
    assert done.returncode == 1, done.stdout + done.stderr[-4000:]
    assert "1 lost, 1 doubled, 1 present, never acknowledged" in done.stdout
    for number in range(WORKERS):
        (log,) = standalone.work_dir(number).glob("app-*/*/stderr")
        assert re.search(r"Finished task \d", log.read_text()), f"worker {number} had no task"
