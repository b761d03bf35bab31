"""What a clean stop of a kept directory flushes: everything, but nothing twice and much of it at the same time."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kwire.broker import Broker
from kwire.launch.initial_topics import check_created, create_request
from kwire.launch.node_runner import NodeRunner
from kwire.launch.spec import ClusterSpec, NodeSpec
from kwire.launch.supervisor import Supervisor
from kwire.protocol.record_builder import build_batch
from kwire.protocol.records import Record
from kwire.server.file_log_store import FileLogStore
from kwire.server.flushes import UnflushedFiles, in_threads

PARTITIONS = 40


class Flushed(list[str]):
    """The paths that were flushed, in order, relative to a folder."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__()
        fsync = os.fsync

        def recorded(fd: int) -> None:
            path = os.path.relpath(os.readlink(f"/proc/self/fd/{fd}"), folder)
            if path in self.failing:
                raise OSError(5, "Input/output error")
            fsync(fd)
            self.append(path)

        self.failing: set[str] = set()
        monkeypatch.setattr(os, "fsync", recorded)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture
def flushed(data: Path, monkeypatch: pytest.MonkeyPatch) -> Flushed:
    return Flushed(data, monkeypatch)


async def started(data: Path, topics: int = 0) -> NodeRunner:
    values = {"listeners": "PLAINTEXT://127.0.0.1:0"}
    runner = NodeRunner(NodeSpec(node_id=1, values=values, data_dir=str(data)))
    if topics:
        runner.on_loaded = create_topics
    await runner.start()
    return runner


def create_topics(core: Any) -> None:
    request = create_request([("orders", PARTITIONS, 1)], {})
    check_created(core.services.controller.handle(request, 7))


def write(runner: NodeRunner, index: int) -> None:
    core: Any = runner.core
    batch = build_batch(
        [Record(-1, 1, None, b"x")], producer_id=7, producer_epoch=0, base_sequence=0
    )
    log = core.services.log_manager.get("orders", index)
    log.append_as_leader(bytearray(batch), leader_epoch=0)


def store_of(runner: NodeRunner) -> FileLogStore:
    core: Any = runner.core
    store = core.services.log_manager.store
    assert isinstance(store, FileLogStore)
    return store


@pytest.mark.asyncio
async def test_all_that_is_there_is_flushed_before_the_marker(data: Path, flushed: Flushed) -> None:
    runner = await started(data, topics=1)
    for index in range(10):
        write(runner, index)
    store_of(runner).wait()
    flushed.clear()
    await runner.stop()
    before = flushed[: flushed.index(".kafka_cleanshutdown.tmp")]
    inside = [path for path in before if "/" in path]
    assert len(inside) == len({*inside}), "something is flushed twice"
    written = {
        str(path.relative_to(data))
        for path in data.rglob("*")
        if path.is_file() and path.stat().st_size and path.parent != data
    }
    already = {f"orders-{index}/partition.metadata" for index in range(10)}  # with the first record
    assert written - already == {path for path in before if path in written}
    assert {f"orders-{index}" for index in range(PARTITIONS)} <= {*before}


@pytest.mark.asyncio
async def test_partitions_that_nobody_touched_cost_no_flush(data: Path, flushed: Flushed) -> None:
    await (await started(data, topics=1)).stop()
    runner = await started(data)
    write(runner, 3)
    flushed.clear()
    await runner.stop()
    assert {path.split("/")[0] for path in flushed if path.startswith("orders")} == {"orders-3"}
    flushed.clear()
    await (await started(data)).stop()
    assert not [path for path in flushed if path.startswith("orders")]


@pytest.mark.asyncio
async def test_after_a_kill_nothing_counts_as_flushed(data: Path, flushed: Flushed) -> None:
    runner = await started(data, topics=1)
    write(runner, 3)
    runner.kill()
    runner = await started(data)
    flushed.clear()
    await runner.stop()
    assert {"orders-3/partition.metadata", "orders-3/leader-epoch-checkpoint"} <= {*flushed}


@pytest.mark.asyncio
async def test_a_flush_that_fails_leaves_no_marker(data: Path, flushed: Flushed) -> None:
    runner = await started(data, topics=1)
    write(runner, 3)
    flushed.failing.add("orders-3/00000000000000000000.log")
    with pytest.raises(Exception, match=r"closed cleanly.*orders-3"):
        await runner.stop()
    assert not (data / ".kafka_cleanshutdown").exists()
    flushed.failing.clear()
    runner = await started(data)
    core: Any = runner.core
    assert core.services.log_manager.get("orders", 3).log_end_offset == 1
    await runner.stop()


@pytest.fixture
def store(data: Path, flushed: Flushed) -> Iterator[FileLogStore]:
    store = FileLogStore(str(data))
    yield store
    store.close()


def test_flushes_wait_for_the_end_of_the_context(store: FileLogStore, flushed: Flushed) -> None:
    store.make_dir("t-0")
    file = store.open("t-0/a.log", create=True)
    store.write_file("t-0/meta", b"m", flush=False)
    file.append([b"x"])
    flushed.clear()
    with store.flush_together():
        file.flush()
        store.flush_file("t-0/meta")
        store.flush_file("t-0/gone")
        file.close()
        assert flushed == []
    assert sorted(flushed) == [".", "t-0", "t-0/a.log", "t-0/meta"]
    flushed.clear()
    with store.flush_together():
        file.flush()
        store.flush_file("t-0/meta")
    assert flushed == []
    with pytest.raises(ZeroDivisionError), store.flush_together():
        file.append([b"y"])
        file.flush()
        _ = 1 / 0
    assert flushed == []
    store.write_file("t-0/meta", b"n", flush=False)
    store.flush_file("t-0/meta")
    assert flushed[0] == "t-0/meta"


def test_what_was_written_without_a_flush_is_known_wherever_it_goes() -> None:
    files = UnflushedFiles(all_known=True)
    for path in ("t-0/a", "t-0/b", "c"):
        assert not files.holds(path)
        files.add(path)
    files.rename("t-0/a", "t-0/d")
    files.rename("t-0", "t-1")
    files.rename("c", "e")
    held = [path for path in ("t-0/a", "t-0/b", "t-1/b", "t-1/d", "c", "e") if files.holds(path)]
    assert held == ["t-1/b", "t-1/d", "e"]
    files.discard("t-1/b")
    assert files.holds("t-1/d") and not files.holds("t-1/b")
    files.discard("t-1")
    assert not files.holds("t-1/d")
    assert UnflushedFiles(all_known=False).holds("x")


@pytest.mark.parametrize("count", [0, 3, 500])
def test_each_path_is_taken_once_and_the_first_error_is_raised(count: int) -> None:
    taken: list[str] = []
    paths = [str(number) for number in range(count)]
    in_threads(taken.append, paths)
    assert sorted(taken) == sorted(paths)

    def fail(path: str) -> None:
        raise OSError(5, "no", path)

    if count:
        with pytest.raises(OSError, match="no"):
            in_threads(fail, paths)


def test_many_files_wait_for_the_same_commits() -> None:
    """As many flushes run at once as have to for each of them to take a fraction of a commit."""
    together = threading.Barrier(32)

    def meet(path: str) -> None:
        together.wait(20)

    in_threads(meet, map(str, range(32 * 16)))


@pytest.mark.asyncio
async def test_a_temporary_broker_beside_others_closes_its_logs_on_a_thread(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed_on: list[threading.Thread] = []
    real = Broker.close

    def close(broker: Broker) -> None:
        closed_on.append(threading.current_thread())
        real(broker)

    monkeypatch.setattr(Broker, "close", close)
    spec = ClusterSpec(
        brokers=1,
        isolation="thread",
        node=NodeSpec(
            node_id=1,
            values={"listeners": "PLAINTEXT://127.0.0.1:0"},
            data_dir=str(data),
            temporary=True,
        ),
    )
    supervisor = Supervisor(spec)
    await supervisor.start()
    await supervisor.brokers[1].stop()
    assert closed_on and closed_on != [threading.current_thread()]
    await supervisor.kill()
