"""Nothing that a cluster has started outlives it."""

import asyncio
import gc
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from kwire import Cluster, aio, errors
from kwire.backends import loop_thread

CLUSTERS = 200


def descriptors() -> dict[str, str]:
    """The open file descriptors of this process and what they are."""
    found = {}
    for name in os.listdir("/proc/self/fd"):
        try:
            found[name] = os.readlink(f"/proc/self/fd/{name}")
        except OSError:
            continue  # that of the listing itself
    return found


def sockets() -> int:
    return sum(target.startswith("socket:") for target in descriptors().values())


@pytest.fixture
def own_temporary_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    return tmp_path


def warm_up() -> None:
    """What is made once in a process (modules, the event loop library's own descriptors) is not counted."""
    with Cluster(topics=["t"]):
        pass


@pytest.mark.timeout(120)
def test_200_clusters_leave_nothing_behind(own_temporary_folder: Path) -> None:
    warm_up()
    gc.collect()
    # The process may have a socket of its own: a plugin of pytest (rerunfailures) opens one.
    threads, before, its_own = threading.active_count(), len(descriptors()), sockets()
    for number in range(CLUSTERS):
        with Cluster(brokers=3 if number % 20 == 0 else 1) as cluster:
            if number % 10 == 0:
                cluster.create_topic("t")
            if number % 20 == 0:
                cluster.broker(2).kill()
    assert threading.active_count() == threads
    assert len(descriptors()) == before and sockets() == its_own, descriptors()
    assert list(own_temporary_folder.iterdir()) == []
    assert loop_thread._current is None
    assert [t for t in gc.get_objects() if isinstance(t, asyncio.Task) and not t.done()] == []


def test_processes_leave_nothing_behind(own_temporary_folder: Path) -> None:
    with Cluster(2, isolation="process") as cluster:
        handles = [cluster._inner.node(node_id) for node_id in (1, 2, 1000)]
        pids = [handle.pid for handle in handles]
        cluster.broker(2).pause()
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
    assert list(own_temporary_folder.iterdir()) == []


def test_a_start_that_fails_leaves_nothing_behind(own_temporary_folder: Path) -> None:
    warm_up()
    threads, before = threading.active_count(), len(descriptors())
    cluster = Cluster(2, {"listeners": "PLAINTEXT://192.0.2.1:0"})  # an address no machine has
    with pytest.raises(errors.StartError):
        cluster.start()
    assert (threading.active_count(), len(descriptors())) == (threads, before)
    assert list(own_temporary_folder.iterdir()) == []


def test_no_task_is_left_on_the_callers_loop() -> None:
    async def main() -> set[asyncio.Task[object]]:
        async with aio.Cluster(3, topics=["t:2:3"]) as cluster:
            await cluster.broker(2).kill()
            await cluster.partition("t", 1)
        return asyncio.all_tasks() - {asyncio.current_task()}  # type: ignore[arg-type]

    for _ in range(
        10
    ):  # sockets that nobody closes are a warning when they are collected, and that an error
        assert asyncio.run(main()) == set()
        gc.collect()


@pytest.mark.parametrize("isolation", ["thread", "process"])
def test_a_program_that_forgets_its_cluster_leaves_nothing_behind(
    isolation: str, tmp_path: Path
) -> None:
    code = f"""
from kwire import Cluster
cluster = Cluster(isolation="{isolation}")
cluster.start()
print(cluster._inner.node(1).pid)
"""
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=40
    )
    assert (done.returncode, done.stderr) == (0, "")
    with pytest.raises(ProcessLookupError):
        os.kill(int(done.stdout), 0)
    assert list(tmp_path.iterdir()) == []


FAULTS = """
from kwire import Cluster
with Cluster(3, topics=["orders:1:3"], isolation=ISOLATION) as cluster:
    old = cluster.partition("orders", 0).leader
    cluster.broker(old).kill()
    cluster.wait_for(lambda c: c.partition("orders", 0).leader not in (-1, old))
    cluster.broker(old).start()
    cluster.wait_for(lambda c: c.partition("orders", 0).isr == {1, 2, 3}, timeout=10)
"""


@pytest.mark.parametrize("isolation", ["thread", "process"])
@pytest.mark.parametrize("logging_is_set_up", [False, True])
def test_faults_that_a_script_asked_for_are_printed_only_by_its_logging(
    logging_is_set_up: bool, isolation: str
) -> None:
    before = f"ISOLATION = {isolation!r}\n"
    before += "import logging; logging.basicConfig()\n" if logging_is_set_up else ""
    done = subprocess.run(
        [sys.executable, "-c", before + FAULTS], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    assert ("has failed" in done.stderr) == logging_is_set_up
    assert logging_is_set_up or done.stderr == ""
