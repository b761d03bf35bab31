"""A disk whose flushes take long, or fail: who waits, who does not, and what is said."""

from __future__ import annotations

import asyncio
import errno
import functools
import os
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from cluster_harness import until
from server_harness import Client, request_bytes

from kwire.launch.node_runner import NodeRunner
from kwire.launch.spec import NodeSpec
from kwire.protocol import api
from kwire.protocol.record_builder import build_batch
from kwire.protocol.records import Record
from kwire.protocol.schemas.api_versions import ApiVersionsRequest
from kwire.protocol.schemas.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kwire.protocol.schemas.topics import CreatableTopic, CreateTopicsRequest
from kwire.protocol.schemas.transactions import InitProducerIdRequest

PRODUCE, API_VERSIONS, CREATE_TOPICS, INIT_PRODUCER_ID = 0, 18, 19, 22

pytestmark = pytest.mark.asyncio


class Disk:
    """Stands for os.fsync: waits while `open` is not set, then fails if `error` is set."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.open = threading.Event()
        self.open.set()
        self.error: int | None = None
        self.failing = ""  # a part of the paths that fail
        self.slow = ""  # a part of the paths that wait
        self.flushed: list[str] = []
        self._fsync = os.fsync
        monkeypatch.setattr(os, "fsync", self)

    def __call__(self, fd: int) -> None:
        path = os.readlink(f"/proc/self/fd/{fd}")
        assert self.slow not in path or self.open.wait(20)
        if self.error is not None and self.failing in path:
            error, self.error = self.error, None  # the system reports it once
            raise OSError(error, os.strerror(error))
        self._fsync(fd)
        self.flushed.append(path)


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    return Disk(monkeypatch)


@asynccontextmanager
async def broker(data: Path, disk: Disk, **values: str) -> AsyncIterator[NodeRunner]:
    given = {key.replace("_", "."): value for key, value in values.items()}
    spec = NodeSpec(
        node_id=1, values={"listeners": "PLAINTEXT://127.0.0.1:0", **given}, data_dir=str(data)
    )
    runner = NodeRunner(spec)
    await runner.start()
    try:
        yield runner
    finally:
        disk.open.set()
        runner.kill()


def port_of(runner: NodeRunner) -> int:
    return runner.address[1]


def creation(name: str) -> CreateTopicsRequest:
    topic = CreatableTopic(name=name, num_partitions=1, replication_factor=1)
    return CreateTopicsRequest(topics=[topic], timeout_ms=1000)


def create(client: Client, name: str) -> int:
    code: int = client.ask(CREATE_TOPICS, 5, creation(name)).topics[0].error_code
    return code


def produce(
    client: Client, topic: str, value: bytes = b"x", key: bytes | None = None
) -> tuple[int, int]:
    data = PartitionProduceData(index=0, records=build_batch([Record(-1, 1, key, value)]))
    request = ProduceRequest(
        acks=-1, timeout_ms=1000, topic_data=[TopicProduceData(name=topic, partition_data=[data])]
    )
    partition = client.ask(PRODUCE, 8, request).responses[0].partition_responses[0]
    return partition.error_code, partition.base_offset


def is_answered(client: Client) -> bool:
    """Whether a node whose loop runs has answered: it answers others meanwhile."""
    client.socket.setblocking(False)
    try:
        return bool(client.socket.recv(1, 2))  # MSG_PEEK
    except BlockingIOError:
        return False
    finally:
        client.socket.settimeout(10)


async def test_a_first_record_does_not_wait_for_the_disk_nor_does_anybody_else(
    tmp_path: Path, disk: Disk
) -> None:
    def use(port: int) -> None:
        with Client(port) as client, Client(port) as other:
            assert create(client, "a") == 0
            disk.open.clear()
            assert produce(client, "a") == (0, 0)
            assert other.ask(API_VERSIONS, 2, ApiVersionsRequest()).error_code == 0
            assert not any("a-0" in path for path in disk.flushed)
            disk.open.set()

    async with broker(tmp_path, disk) as runner:
        await asyncio.to_thread(use, port_of(runner))
        core: Any = runner.core
        core.services.log_manager.store.wait()
        assert f"{tmp_path}/a-0/partition.metadata" in disk.flushed
        assert f"{tmp_path}/a-0" in disk.flushed and str(tmp_path) in disk.flushed


async def test_a_topic_is_reported_as_created_when_that_is_on_the_disk(
    tmp_path: Path, disk: Disk
) -> None:
    def use(port: int) -> None:
        with Client(port) as client, Client(port) as other:
            disk.open.clear()
            client.send(request_bytes(CREATE_TOPICS, 5, creation("a")))
            for _ in range(3):
                other.ask(API_VERSIONS, 2, ApiVersionsRequest())
            assert not is_answered(client)
            other.send(request_bytes(CREATE_TOPICS, 5, creation("b")))  # behind that flush
            disk.open.set()
            for each in (client, other):
                _, response = api.parse_response(CREATE_TOPICS, 5, each.frame())
                assert response.topics[0].error_code == 0

    async with broker(tmp_path, disk) as runner:
        await asyncio.to_thread(use, port_of(runner))


async def test_a_new_topic_does_not_wait_for_the_flushes_of_others(
    tmp_path: Path, disk: Disk
) -> None:
    """The journal's flush has a thread of its own: before it there may be any number of rolled segments."""

    def use(port: int) -> None:
        with Client(port) as client:
            assert create(client, "a") == 0
            disk.slow = ".log"
            disk.open.clear()
            for _ in range(8):
                assert produce(client, "a", b"x" * 900)[0] == 0
            assert create(client, "b") == 0
            assert not any(path.endswith(".log") for path in disk.flushed)

    async with broker(tmp_path, disk, log_segment_bytes="1024") as runner:
        await asyncio.to_thread(use, port_of(runner))


async def test_a_producer_id_is_given_away_when_its_block_is_on_the_disk(
    tmp_path: Path, disk: Disk
) -> None:
    def use(port: int) -> None:
        with Client(port) as client, Client(port) as other:
            disk.open.clear()
            request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000)
            client.send(request_bytes(INIT_PRODUCER_ID, 1, request))
            for _ in range(3):
                other.ask(API_VERSIONS, 2, ApiVersionsRequest())
            assert not is_answered(client)
            disk.open.set()
            _, response = api.parse_response(INIT_PRODUCER_ID, 1, client.frame())
            assert (response.error_code, response.producer_id) == (0, 0)
            assert (tmp_path / "producer-id-block").read_bytes() == b"0\n1000\n"
            disk.open.clear()  # the rest of the block is on the disk already
            assert client.ask(INIT_PRODUCER_ID, 1, request).producer_id == 1

    async with broker(tmp_path, disk) as runner:
        await asyncio.to_thread(use, port_of(runner))


async def test_compaction_waits_for_the_disk_beside_the_clients(tmp_path: Path, disk: Disk) -> None:
    async with broker(tmp_path, disk, log_segment_bytes="1024", log_cleanup_policy="compact") as (
        runner
    ):
        core: Any = runner.core

        def use(port: int) -> None:
            with Client(port) as client:
                assert create(client, "a") == 0
                for _ in range(5):
                    assert produce(client, "a", b"x" * 900, key=b"k")[0] == 0
                disk.open.clear()
                log = core.services.log_manager.get("a", 0)
                request = functools.partial(
                    core.compaction.cleaner.request, core.services.log_manager, log
                )
                loop.call_soon_threadsafe(runner.node.perform, request)
                until(lambda: list(tmp_path.glob("a-0/*.log.cleaned")))
                for _ in range(5):
                    assert client.ask(API_VERSIONS, 2, ApiVersionsRequest()).error_code == 0
                assert list(tmp_path.glob("a-0/*.log.cleaned"))
                disk.open.set()
                until(lambda: log.size_bytes < 2000)

        loop = asyncio.get_running_loop()
        await asyncio.to_thread(use, port_of(runner))


async def test_rolled_segments_hold_no_descriptor_while_they_wait_for_their_flush(
    tmp_path: Path, disk: Disk
) -> None:
    def use(port: int) -> None:
        with Client(port) as client:
            assert create(client, "a") == 0
            produce(client, "a")
            disk.open.clear()
            before = len(os.listdir("/proc/self/fd"))
            for _ in range(60):
                assert produce(client, "a", b"x" * 900)[0] == 0
            segments = len(list(tmp_path.glob("a-0/*.log")))
            assert segments > 50
            # Open: a log and two indexes for each segment, which are counted and closed in turn.
            assert len(os.listdir("/proc/self/fd")) - before < 3 * segments + 10
            disk.open.set()

    async with broker(tmp_path, disk, log_segment_bytes="1024") as runner:
        await asyncio.to_thread(use, port_of(runner))


async def test_a_flush_that_fails_in_the_background_ends_the_broker_at_once(
    tmp_path: Path, disk: Disk
) -> None:
    def use(port: int) -> None:
        with Client(port) as client, suppress(ConnectionError, EOFError):
            assert create(client, "a") == 0
            for _ in range(20):
                produce(client, "a", b"x" * 900)

    async with broker(tmp_path, disk, log_segment_bytes="1024") as runner:
        halted = asyncio.get_running_loop().create_future()
        runner.on_halted = halted.set_result
        disk.error, disk.failing = errno.EIO, ".log"
        await asyncio.to_thread(use, port_of(runner))
        why = await asyncio.wait_for(halted, 10)
        assert f"Input/output error: '{tmp_path}/a-0/" in why and "only log directory" in why
    assert not (tmp_path / ".kafka_cleanshutdown").exists()


async def test_a_clean_stop_does_not_cover_a_flush_that_has_failed(
    tmp_path: Path, disk: Disk
) -> None:
    """What the system says of the same data later is not to be believed: it reports an error once."""
    from kwire.server.errors import NodeError

    def use(port: int) -> None:
        with Client(port) as client:
            assert create(client, "a") == 0
            disk.open.clear()
            for _ in range(3):
                produce(client, "a", b"x" * 900)

    async with broker(tmp_path, disk, log_segment_bytes="1024") as runner:
        await asyncio.to_thread(use, port_of(runner))
        disk.error, disk.failing = errno.EIO, ".log"
        runner.node.background_done = lambda: None  # type: ignore[method-assign]  # it comes too late
        threading.Timer(0.1, disk.open.set).start()
        with pytest.raises(NodeError, match="Input/output error"):
            await runner.stop()
    assert not (tmp_path / ".kafka_cleanshutdown").exists()
