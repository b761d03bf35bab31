"""Processes that are forked from a template, and what is left when any of those involved is killed."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from kwire import Cluster
from kwire.forks import forked
from kwire.forks.forked import ForkedProcess
from kwire.launch.handles import template_command

pytestmark = pytest.mark.timeout(120)


@pytest.fixture
def kept() -> Iterator[None]:
    forked.keep()
    yield
    forked.end()


def template() -> int:
    """The pid of the template of this process."""
    assert forked._template is not None
    return forked._template._process.pid


def descriptors(pid: int) -> list[str]:
    """What a process has open; of pipes and sockets the kind."""
    found = []
    for name in os.listdir(f"/proc/{pid}/fd"):
        with suppress(FileNotFoundError):  # that of the listing itself
            found.append(os.readlink(f"/proc/{pid}/fd/{name}").partition(":[")[0])
    return sorted(found)


def memory(pid: int) -> int:
    """KiB of a process that are in memory."""
    (line,) = (
        line
        for line in Path(f"/proc/{pid}/status").read_text().splitlines()
        if line.startswith("VmRSS")
    )
    return int(line.split()[1])


def runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def await_end(*pids: int) -> None:
    deadline = time.monotonic() + 30
    while any(map(runs, pids)):
        assert time.monotonic() < deadline, [pid for pid in pids if runs(pid)]
        time.sleep(0.01)


def with_process(work: Callable[[ForkedProcess], Awaitable[None]], *arguments: str) -> None:
    async def main() -> None:
        process = await forked.start(template_command(), list(arguments), None, 1 << 16)
        await work(process)

    asyncio.run(main())


CONTROLLER = ("--id", "1", "--roles", "controller", "--temporary", "--data-dir")


def test_a_process_ends_with_its_stdin(kept: None, tmp_path: Path) -> None:
    async def work(process: ForkedProcess) -> None:
        assert (await process.stdout.readline()).startswith(b"ready id=1 ")
        assert runs(process.pid) and not process.has_died()
        assert os.getsid(process.pid) == process.pid, "or Ctrl-C would reach it"
        process.stdin.close()
        assert await process.wait() == 0 and process.has_died()
        assert not runs(process.pid)
        with pytest.raises(ProcessLookupError):
            process.kill()

    with_process(work, *CONTROLLER, str(tmp_path / "data"))


def test_a_process_that_is_killed_has_died(kept: None, tmp_path: Path) -> None:
    async def work(process: ForkedProcess) -> None:
        await process.stdout.readline()
        process.kill()
        await_end(process.pid)
        assert process.returncode is None and process.has_died(), "before this loop has turned"
        assert await process.wait() == -signal.SIGKILL

    with_process(work, *CONTROLLER, str(tmp_path / "data"))


def test_a_process_that_fails_says_why(kept: None, tmp_path: Path) -> None:
    async def work(process: ForkedProcess) -> None:
        assert (await process.stdout.readline()).startswith(b"failed 2 ")
        assert await process.wait() == 2

    with_process(work, *CONTROLLER, str(tmp_path / "data"), "-c", "num.partitions=many")


def test_a_hundred_clusters_from_one_template_are_like_the_first(
    kept: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing piles up, in the template, in its forks or here, whatever happens to the forks."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    own, found = [], []
    for number in range(100):
        with Cluster(isolation="process", fast=number % 2 == 0) as cluster:
            if number < 10 or number >= 90:
                found.append(_look(cluster))
            if number % 4 == 1:
                cluster.create_topic("t")
            elif number % 4 == 2:
                cluster.broker(1).pause()
            elif number % 4 == 3:
                cluster.broker(1).kill()
                cluster.broker(1).start()
        if number in (9, 99):
            own.append([len(descriptors(pid)) for pid in (os.getpid(), template())])
    assert all(last <= first + 2 for first, last in zip(*own, strict=True)), own
    assert list(tmp_path.iterdir()) == []
    first, last = found[:10], found[10:]
    kinds = [{tuple(kinds) for kinds, _, _ in each} for each in (first, last)]
    assert kinds[0] == kinds[1] and len(kinds[0]) == 1
    # Connections between nodes are being opened; what is left behind would be one for each cluster.
    assert max(count for _, count, _ in last) <= max(count for _, count, _ in first) + 2
    assert max(kib for _, _, kib in last) < max(kib for _, _, kib in first) + 2048


def _look(cluster: Cluster) -> tuple[list[str], int, int]:
    """The open files of a new broker, how many sockets it has, and its memory with the template's."""
    pid = cluster._inner.node(1).pid
    assert len(list(Path(f"/proc/{pid}/task").iterdir())) == 1, "threads"
    opened = [each.replace(cluster.broker(1).log_dir, "DIR") for each in descriptors(pid)]
    files = sorted(each for each in opened if each != "socket")
    return files, len(opened) - len(files), memory(pid) + memory(template())


def test_the_template_is_killed(kept: None) -> None:
    """Its forks go on and can be stopped; the next is forked from another one."""
    with Cluster(2, isolation="process") as cluster:
        first = template()
        os.kill(first, signal.SIGKILL)
        cluster.create_topic("t")
        cluster.broker(1).kill()
        assert cluster.broker(2).running and not cluster.broker(1).running
        cluster.broker(1).start()
        assert template() != first
        cluster.broker(2).stop()
        cluster.broker(2).start()
    assert not runs(first)


LEAVES = """
import os, signal, sys
from kwire import Cluster
from kwire.forks import forked

forked.keep()
cluster = Cluster(2, isolation="process")
cluster.start()
cluster.broker(2).pause()
pids = [cluster._inner.node(each).pid for each in (1, 2, 1000)]
print(*pids, forked._template._process.pid, flush=True)
signal.pause()
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_nothing_outlives_a_process_that_is_killed(number: int) -> None:
    """Not even a node that is suspended, which cannot see that its stdin has ended."""
    with subprocess.Popen(
        [sys.executable, "-c", LEAVES], stdout=subprocess.PIPE, text=True
    ) as ours:
        assert ours.stdout is not None
        pids = [int(word) for word in ours.stdout.readline().split()]
        assert len(pids) == 4 and all(map(runs, pids))
        ours.send_signal(number)
    await_end(*pids)


ALL_IMPORTED = """
import sys
from kwire.launch.node_command import import_all

import_all()
before = set(sys.modules)
from kwire import Cluster
with Cluster(3, topics=["t:2:3"], recent_requests=True) as cluster:
    cluster.produce("t", "x")
    cluster.records("t"), cluster.describe(), cluster.clients(), cluster.events()
    from confluent_kafka import Consumer, TopicPartition
    assigned = []
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap_servers, "group.id": "g"})
    consumer.subscribe(["t"], on_assign=lambda *_: assigned.append(1))
    while not assigned:
        consumer.poll(0.1)
    consumer.commit(offsets=[TopicPartition("t", 0, 1)], asynchronous=False)
    consumer.close()
    cluster.broker(1).kill(); cluster.broker(1).start()
rooms = ("kwire.apis", "kwire.coordinator", "kwire.replication", "kwire.server", "kwire.control", "kwire.protocol")
print(sorted(name for name in set(sys.modules) - before if name.startswith(rooms)))
"""


def test_the_template_has_imported_what_nodes_use() -> None:
    done = subprocess.run(
        [sys.executable, "-c", ALL_IMPORTED], capture_output=True, text=True, timeout=60
    )
    assert done.stdout == "[]\n", done.stdout + done.stderr


def test_the_template_imports_nothing_that_only_developers_have() -> None:
    code = "import sys; from kwire.launch.node_command import import_all; import_all(); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert not {"construct", "kafka", "confluent_kafka", "h11"} & set(done.stdout.split())
