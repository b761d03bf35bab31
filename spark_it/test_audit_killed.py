"""An audit whose driver or worker is killed with kill -9 in the middle finds what one finds that was left alone."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from kwire import Cluster
from spark_it import audit_kit, support
from spark_it.test_driver_killed import processes_of
from spark_it.test_log_cluster import executors_below, killer
from spark_it.test_standalone import Standalone, standalone

__all__ = ["standalone"]  # a fixture
pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

STEPS = ("part 2 of 2", "topics")
TABLES = ("findings", "topics", "latencies", "replicas")


@pytest.fixture
def story(
    spark: Any, brokers: Cluster, fresh: Callable[[str], str], tmp_path: Path
) -> audit_kit.Story:
    if spark.version.startswith("3."):
        pytest.skip("the audit needs PySpark 4")
    topic = fresh("killed")
    brokers.create_topic(topic, partitions=2, replication_factor=3)
    return audit_kit.story(brokers, topic, tmp_path / "ledger")


def audited(folder: Path, arguments: list[str], die_at: str | None) -> str:
    """Run killed_audit.py; kill -9, Python and JVM, where it stands. What it has said."""
    log, standing = folder / "log", folder / "standing"
    log.unlink(missing_ok=True)
    command = [sys.executable, str(support.HERE / "killed_audit.py"), *arguments]
    with log.open("wb") as said:
        process = subprocess.Popen(
            command + (["--die-at", die_at] if die_at else []),
            env=support.spark_environment(),
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=said,
            cwd=folder,
            start_new_session=True,
        )
    try:
        support.until(lambda: standing.exists() or process.poll() is not None, 240, "its end")
        assert die_at is not None or process.returncode == 0, log.read_text()
        assert die_at is None or standing.exists(), log.read_text()
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(30)
    support.until(lambda: not processes_of(process.pid), 30, "the driver's processes end")
    standing.unlink(missing_ok=True)
    return log.read_text()


def rows(out: Path, table: str) -> list[tuple[Any, ...]]:
    import pyarrow.parquet as pq

    return sorted((tuple(row.values()) for row in pq.read_table(out / table).to_pylist()), key=str)


def test_a_driver_killed_at_each_step_changes_nothing(
    brokers: Cluster, story: audit_kit.Story, tmp_path: Path
) -> None:
    logs = [word for each in brokers.brokers for path in each.log_dirs for word in ("--logs", path)]
    killed, alone = tmp_path / "killed", tmp_path / "alone"
    for step in STEPS:
        audited(tmp_path, [str(story.ledger), str(killed), "25", *logs], step)
    said = audited(tmp_path, [str(story.ledger), str(killed), "25", *logs], None)
    assert "part 1" not in said and "part 2" not in said, "what is done is not done again"
    audited(tmp_path, [str(story.ledger), str(alone), "4000000", *logs], None)
    for table in TABLES:
        assert rows(killed, table) == rows(alone, table), table
    assert [row[0] for row in rows(alone, "findings")] == ["doubled", "lost", "unacknowledged"]


def test_a_killed_worker_changes_nothing(
    spark: Any, brokers: Cluster, story: audit_kit.Story, standalone: Standalone, tmp_path: Path
) -> None:
    """It is killed while its task reads the second part; the first one, and what it has shuffled, is done by then."""
    from kwire.audit import runs

    logs = [path for each in brokers.brokers for path in each.log_dirs]
    meet, killed, alone = (tmp_path / name for name in ("meet", "killed", "alone"))
    meet.mkdir()
    thread = threading.Thread(target=killer, args=(standalone, meet), daemon=True)
    thread.start()
    done = submitted(standalone, story.ledger, killed, logs, meet)
    thread.join(10)
    assert (meet / "go").exists(), "no worker was killed"
    said = done.stdout + done.stderr  # spark-submit puts its script's stderr to stdout
    assert done.returncode == 0, said[-4000:]
    assert "part 2 of 2" in said and "Lost executor" in said
    lost = next(
        n for n in (0, 1) if standalone.work_dir(n) in Path((meet / "standing").read_text()).parents
    )
    assert executors_below(standalone.work_dir(lost)) == []
    request = runs.Request(str(story.ledger), tuple(logs), None, ())
    runs.run(spark, runs.planned(request, alone), alone)
    for table in TABLES:
        assert rows(killed, table) == rows(alone, table), table
    assert [row[0] for row in rows(killed, "findings")] == ["doubled", "lost", "unacknowledged"]


def submitted(
    standalone: Standalone, ledger: Path, out: Path, logs: list[str], meet: Path
) -> subprocess.CompletedProcess[str]:
    """killed_audit.py by spark-submit; a task that reads partition 1 stands still until FOLDER/go is there."""
    root = str(support.HERE.parent)
    where = ["--master", standalone.url]
    for key, value in {
        "spark.executor.memory": "512m",
        "spark.executor.cores": "1",
        "spark.executorEnv.PYTHONPATH": root,
    }.items():
        where += ["--conf", f"{key}={value}"]
    arguments = [str(ledger), str(out), "25", "--meet", str(meet), "--at", "1"]
    for directory in logs:
        arguments += ["--logs", directory]
    script = support.HERE / "killed_audit.py"
    return subprocess.run(
        support.submit_command(script, arguments, *where),
        env={**support.spark_environment(), "PYTHONPATH": root},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=500,
        cwd=standalone.folder,
    )
