"""`kwire-log` by spark-submit on a standalone Spark cluster; a worker is killed in the middle of a task."""

import json
import os
import signal
import threading
import zlib
from pathlib import Path

import pytest

from kwire.protocol.record_builder import build_batch
from kwire.protocol.records import Record
from spark_it import support
from spark_it.test_standalone import Standalone, standalone
from spark_it.test_wordcount import result_of

__all__ = ["standalone"]  # a fixture
pytestmark = [pytest.mark.kwire_only, pytest.mark.slow, pytest.mark.timeout(900)]

ROOT = Path(__file__).resolve().parent.parent
SCRIPT = ROOT / "spark_it" / "log_job.py"
PARTITIONS, BATCHES, RECORDS = 4, 400, 10


def write_log(folder: Path) -> list[list[int]]:
    """Four partitions in about 20 tasks, and what the job has to find in them."""
    truth = []
    for partition in range(PARTITIONS):
        path = folder / f"orders-{partition}" / f"{0:020d}.log"
        path.parent.mkdir(parents=True)
        index, parts, position, total = b"", [], 0, 0
        for base in range(0, BATCHES * RECORDS, RECORDS):
            values = [b"%d of %d " % (base + i, partition) * 10 for i in range(RECORDS)]
            total += sum(map(zlib.crc32, values))
            records = [Record(base + i, 1, None, value) for i, value in enumerate(values)]
            parts.append(build_batch(records, base_offset=base))
            if base:
                index += (base + RECORDS - 1).to_bytes(4, "big") + position.to_bytes(4, "big")
            position += len(parts[-1])
        path.write_bytes(b"".join(parts))
        path.with_suffix(".index").write_bytes(index)
        count = BATCHES * RECORDS
        truth.append([partition, count, count * (count - 1) // 2, total])
    return truth


def killer(spark: Standalone, folder: Path) -> None:
    """Kill the worker whose executor has the task that stands still, executor and Python included."""
    standing = folder / "standing"
    where = support.until(
        lambda: standing.exists() and standing.read_text(), support.PATIENCE_S, "a task waits"
    )
    worker = next(n for n in (0, 1) if Path(where).is_relative_to(spark.work_dir(n)))
    os.kill(spark.pids[1 + worker], signal.SIGKILL)
    for pid in executors_below(spark.work_dir(worker)):
        os.kill(pid, signal.SIGKILL)
    (folder / "go").touch()


def executors_below(work_dir: Path) -> list[int]:
    """The JVMs of executors that run in folders below a worker's."""
    found = []
    for process in Path("/proc").iterdir():
        try:
            is_below = process.name.isdigit() and (process / "cwd").readlink().is_relative_to(
                work_dir
            )
            if is_below and b"CoarseGrainedExecutorBackend" in (process / "cmdline").read_bytes():
                found.append(int(process.name))
        except OSError:
            continue
    return found


def test_a_killed_worker_changes_no_row(standalone: Standalone, tmp_path: Path) -> None:

    truth = write_log(tmp_path / "data")
    meet = tmp_path / "meet"
    meet.mkdir()
    arguments = [str(tmp_path / "data"), "--split", "100000", "--meet", str(meet), "--at", "2"]
    where = ["--master", standalone.url]
    for key, value in {
        "spark.executor.memory": "512m",
        "spark.executor.cores": "1",
        "spark.executorEnv.PYTHONPATH": str(ROOT),
    }.items():
        where += ["--conf", f"{key}={value}"]
    thread = threading.Thread(target=killer, args=(standalone, meet), daemon=True)
    thread.start()
    said = result_of(support.submit_command(SCRIPT, arguments, *where), standalone.folder)
    thread.join(10)
    assert (meet / "go").exists(), "no worker was killed"
    assert json.loads(said[-1]) == truth
