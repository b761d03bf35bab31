"""The driver, Python and JVM, is killed with kill -9 in the middle of a batch; the next goes on from the checkpoint."""

import json
import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from spark_it import support

pytestmark = pytest.mark.timeout(600)

PARTITIONS = 3
START_S = 180.0


def processes_of(group: int) -> list[int]:
    """The live processes of a process group."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            state, _, process_group, *_ = stat.read_text().rpartition(")")[2].split()
            if int(process_group) == group and state != "Z":
                found.append(int(stat.parent.name))
    return found


class Job:
    """A run of killed_job.py in a process group of its own."""

    def __init__(self, servers: str, topic: str, folder: Path, *options: str) -> None:
        self.folder = folder
        self.log = folder / "log"
        script = str(support.HERE / "killed_job.py")
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, script, servers, topic, str(folder), *options],
                env=support.spark_environment(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=folder,
                start_new_session=True,
            )

    def kill9_where_it_stands(self) -> None:
        """Waits until it stands still in its batch, then kill -9 for Python and JVM; back when both are gone."""
        standing = self.folder / "standing"
        support.until(
            lambda: standing.exists() or self.process.poll() is not None, START_S, "its batch"
        )
        assert standing.exists(), self.log.read_text()[-4000:]
        assert len(processes_of(self.process.pid)) >= 2, "Python and its JVM"
        self.kill9()
        standing.unlink()

    def kill9(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(30)
        support.until(lambda: not processes_of(self.process.pid), 30, "the driver's processes end")

    def run_to_its_end(self) -> None:
        assert self.process.wait(START_S) == 0, self.log.read_text()[-4000:]


def test_a_driver_killed_in_a_batch_goes_on_with_exactly_the_rest(
    brokers: Any, client: support.StockClient, fresh: Any, tmp_path: Path
) -> None:
    topic, sent = client.create(fresh("killed"), PARTITIONS), 0

    def produce(count: int) -> None:
        nonlocal sent
        client.produce(topic, [str(number) for number in range(sent, sent + count)])
        sent += count

    def batches_done() -> list[int]:
        return [int(line) for line in (tmp_path / "done").read_text().split()]

    def planned(batch: int) -> Any:
        """The offsets up to which a batch goes, as the checkpoint has it."""
        return json.loads(
            (tmp_path / "checkpoint/offsets" / str(batch)).read_text().splitlines()[2]
        )

    produce(200)
    first = Job(brokers.bootstrap_servers, topic, tmp_path, "--die-in", "2", "--when", "half")
    try:
        first.kill9_where_it_stands()
    finally:
        first.kill9()
    assert batches_done() == [0, 1]
    half, plan = len((tmp_path / "batches/2").read_text().splitlines()), planned(2)
    produce(50)  # they must not change what batch 2 is

    second = Job(brokers.bootstrap_servers, topic, tmp_path, "--die-in", "4", "--when", "written")
    try:
        second.kill9_where_it_stands()
    finally:
        second.kill9()
    assert batches_done() == [0, 1, 2, 3], "it begins with the batch that was not finished"
    assert planned(2) == plan
    assert len((tmp_path / "batches/2").read_text().splitlines()) > half
    written = (tmp_path / "batches/4").read_text()
    produce(50)

    third = Job(brokers.bootstrap_servers, topic, tmp_path)
    try:
        third.run_to_its_end()
    finally:
        third.kill9()
    assert batches_done() == [*range(len(batches_done()))]
    assert sorted((tmp_path / "batches/4").read_text().split("\n")) == sorted(written.split("\n"))
    rows = [
        json.loads(line)
        for path in (tmp_path / "batches").iterdir()
        for line in path.read_text().splitlines()
    ]
    assert sorted(int(value) for _, _, value in rows) == [*range(300)]
    for index in range(PARTITIONS):  # without a gap
        offsets = sorted(offset for partition, offset, _ in rows if partition == index)
        assert offsets == [*range(len(offsets))]
