"""Work of a request that runs on a thread: who is served meanwhile, and what becomes of it when its client is gone."""

from __future__ import annotations

import asyncio
import socket
import struct
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from server_harness import Client, request_bytes

from kwire.launch.node_runner import NodeRunner
from kwire.launch.spec import NodeSpec
from kwire.protocol import api, record_streams
from kwire.protocol.api import ApiKey
from kwire.protocol.record_builder import build_batch
from kwire.protocol.records import Record
from kwire.protocol.schemas.api_versions import ApiVersionsRequest
from kwire.protocol.schemas.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kwire.protocol.schemas.topics import CreatableTopic, CreateTopicsRequest

pytestmark = pytest.mark.asyncio

LARGE = build_batch([Record(i, 1, None, bytes(1 << 20)) for i in range(8)], compression="zstd")


class Decompressor:
    """Stands for zstd's: waits while `open` is not set."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.open = threading.Event()
        self.begun = threading.Event()
        self.threads: set[str] = set()
        self._real = record_streams._zstd
        monkeypatch.setattr(record_streams, "_zstd", self)

    def __call__(self, data: memoryview, limit: int) -> Any:
        self.threads.add(threading.current_thread().name)
        self.begun.set()
        assert self.open.wait(20)
        return self._real(data, limit)


@pytest.fixture
def zstd(monkeypatch: pytest.MonkeyPatch) -> Decompressor:
    return Decompressor(monkeypatch)


@asynccontextmanager
async def broker(data: Path, zstd: Decompressor) -> AsyncIterator[NodeRunner]:
    runner = NodeRunner(
        NodeSpec(
            node_id=1,
            values={"listeners": "PLAINTEXT://127.0.0.1:0"},
            data_dir=str(data),
            temporary=True,
        )
    )
    await runner.start()
    try:
        yield runner
    finally:
        zstd.open.set()
        runner.kill()


def create(client: Client) -> None:
    topic = CreatableTopic(name="t", num_partitions=1, replication_factor=1)
    request = CreateTopicsRequest(topics=[topic], timeout_ms=1000)
    assert client.ask(ApiKey.CREATE_TOPICS, 5, request).topics[0].error_code == 0


def produce(records: bytes = LARGE) -> bytes:
    data = PartitionProduceData(index=0, records=records)
    topic = TopicProduceData(name="t", partition_data=[data])
    request = ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[topic])
    return request_bytes(ApiKey.PRODUCE, 8, request)


def base_offset(client: Client) -> int:
    _, response = api.parse_response(ApiKey.PRODUCE, 8, client.frame())
    answer = response.responses[0].partition_responses[0]
    assert answer.error_code == 0
    offset: int = answer.base_offset
    return offset


def end_offset(runner: NodeRunner) -> int:
    core: Any = runner.core
    offset: int = core.services.replica_manager.hosted(("t", 0)).log.log_end_offset
    return offset


async def eventually(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not condition():
            await asyncio.sleep(0.005)


async def test_others_are_served_while_a_large_batch_is_decompressed(
    tmp_path: Path, zstd: Decompressor
) -> None:
    def use(port: int) -> None:
        with Client(port) as client, Client(port) as other:
            create(client)
            client.send(produce())
            assert zstd.begun.wait(20)
            other.ask(ApiKey.API_VERSIONS, 2, ApiVersionsRequest())
            small = build_batch([Record(0, 1, None, b"small")], compression="gzip")
            other.send(produce(small))
            assert base_offset(other) == 0
            zstd.open.set()
            assert base_offset(client) == 1
            assert all(name.startswith("kwire-work") for name in zstd.threads)

    async with broker(tmp_path, zstd) as runner:
        await asyncio.to_thread(use, runner.address[1])
        assert end_offset(runner) == 9
        assert not runner.core.failed


async def test_a_produce_that_has_arrived_is_appended_although_its_connection_is_reset(
    tmp_path: Path, zstd: Decompressor
) -> None:
    def use(port: int) -> None:
        with Client(port) as client:
            create(client)
            client.send(produce())
            assert zstd.begun.wait(20)
            client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    async with broker(tmp_path, zstd) as runner:
        await asyncio.to_thread(use, runner.address[1])
        await eventually(lambda: not runner.node.connections)
        assert end_offset(runner) == 0
        zstd.open.set()
        await eventually(lambda: end_offset(runner) == 8)
        assert not runner.core.failed


async def test_a_broker_ends_while_a_thread_is_at_work(tmp_path: Path, zstd: Decompressor) -> None:
    def use(port: int) -> None:
        with Client(port) as client:
            create(client)
            client.send(produce())
            assert zstd.begun.wait(20)

    async with broker(tmp_path, zstd) as runner:
        await asyncio.to_thread(use, runner.address[1])
        await runner.stop()
        zstd.open.set()


async def test_small_batches_are_decompressed_where_they_are(
    tmp_path: Path, zstd: Decompressor
) -> None:
    def use(port: int) -> None:
        with Client(port) as client:
            create(client)
            zstd.open.set()
            for size in (10, 1000, 1 << 20):
                client.send(
                    produce(build_batch([Record(0, 1, None, bytes(size))], compression="zstd"))
                )
                base_offset(client)

    async with broker(tmp_path, zstd) as runner:
        await asyncio.to_thread(use, runner.address[1])
        assert zstd.threads == {threading.current_thread().name}
