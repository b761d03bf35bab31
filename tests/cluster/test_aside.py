"""Brokers that share a loop: one loads or closes its logs, the others answer."""

from __future__ import annotations

import asyncio
import socket
import threading
from contextlib import suppress
from pathlib import Path

import pytest

from kwire import aio
from kwire.launch.aside import Aside
from kwire.replication.log_dirs.manager import LogManager

pytestmark = pytest.mark.asyncio


@pytest.mark.parametrize("method", ["load", "close"])
async def test_others_are_served_while_a_broker_loads_or_closes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    begun, go_on = threading.Event(), threading.Event()
    original = getattr(LogManager, method)

    def slow(self: LogManager, *arguments: int) -> None:
        if self.node_id == 2:
            begun.set()
            assert go_on.wait(20)
        original(self, *arguments)

    async with aio.Cluster(brokers=2, isolation="thread", data_dir=tmp_path, topics=["t"]) as c:
        port = int(c.bootstrap_servers.split(",")[0].rpartition(":")[2])
        broker = c.broker(2)
        if method == "load":
            await broker.stop()
        monkeypatch.setattr(LogManager, method, slow)
        work = asyncio.create_task(broker.start() if method == "load" else broker.stop())
        assert await asyncio.to_thread(begun.wait, 20)
        await asyncio.to_thread(ask, port)
        assert not work.done()
        go_on.set()
        await work
        assert broker.running == (method == "load")


def ask(port: int) -> None:
    """ApiVersions v0, in bytes."""
    with socket.create_connection(("127.0.0.1", port), 10) as client:
        client.sendall(bytes.fromhex("0000000a 0012 0000 00000007 ffff"))
        assert client.recv(8)[4:] == bytes([0, 0, 0, 7])


async def test_what_runs_aside_is_waited_for_by_those_who_release_its_files() -> None:
    """A broker that is killed while it loads: its directory is given to the next run after that."""
    aside, begun, go_on = Aside(), threading.Event(), threading.Event()
    ended = []

    def work() -> None:
        begun.set()
        assert go_on.wait(20)
        ended.append("work")

    for end in (lambda _: aside.wait(), asyncio.Task.cancel):
        begun.clear()
        go_on.clear()
        task = asyncio.create_task(aside.run(work))
        assert await asyncio.to_thread(begun.wait, 20)
        threading.Timer(0.05, go_on.set).start()
        end(task)
        with suppress(asyncio.CancelledError):
            await task
        assert ended.pop() == "work"


async def test_an_error_aside_is_raised_here() -> None:
    with pytest.raises(ZeroDivisionError):
        await Aside().run(lambda: 1 // 0)
