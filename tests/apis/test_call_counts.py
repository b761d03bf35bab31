"""How many Python functions run for one Produce and one Fetch, from `Sessions.receive_frame` to the outbox.

The count stands for the price of the fast path where times would be noise: a call costs about 0.1 µs whatever else the
machine does. `python tests/apis/test_call_counts.py` prints the calls one by one, indented by depth.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from random import Random
from types import FrameType
from typing import Any

import pytest

from kwire.broker import Broker
from kwire.protocol import api
from kwire.protocol.api import ApiKey
from kwire.protocol.language import schema
from kwire.protocol.record_builder import build_batch
from kwire.protocol.records import Record
from kwire.protocol.schemas.fetch import FetchPartition, FetchRequest, FetchTopic
from kwire.protocol.schemas.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kwire.protocol.schemas.topics import CreatableTopic, CreateTopicsRequest
from kwire.replication.config.broker_config import BrokerConfig
from kwire.replication.core.clock import Clock
from kwire.replication.core.log_store import LogStore
from kwire.replication.core.memory_log_store import MemoryLogStore
from kwire.replication.core.metadata import Endpoint
from kwire.replication.core.outbox import Log, Outbox, Reply

CONNECTION = 1
# As measured with CPython 3.11, in which a comprehension is a call, too; later versions need fewer. Whoever makes a
# path shorter lowers its number; a higher one needs a reason.
PRODUCE_CALLS = 40  # five of them to read the records, as Kafka does
IDEMPOTENT_PRODUCE_CALLS = 55
FETCH_CALLS = 42


class FastPath:
    """A standalone broker with the topic "t", whose calls are counted."""

    def __init__(self, store: LogStore | None = None) -> None:
        self.outbox = Outbox()
        clock = Clock(now_ms=1_000, wall_ms=1_700_000_000_000)
        store = store or MemoryLogStore()
        self.broker = Broker(BrokerConfig({}), store, clock, self.outbox, Random(5))
        self.broker.start([Endpoint("PLAINTEXT", "127.0.0.1", 9092)])
        self.broker.connection_opened(CONNECTION, "PLAINTEXT", "127.0.0.1")
        topic = CreatableTopic(name="t", num_partitions=1, replication_factor=1)
        self.answer(ApiKey.CREATE_TOPICS, 7, CreateTopicsRequest(topics=[topic], timeout_ms=1000))

    def answer(
        self, key: ApiKey, version: int, request: Any, calls: list[tuple[int, str]] | None = None
    ) -> Any:
        """The response to a request, and (depth, function) of each Python call on the way into `calls`."""
        frame = b"".join(api.encode_request(key, version, 7, "client", request))[4:]
        if calls is None:
            self.broker.receive_frame(CONNECTION, frame)
        else:
            record_calls(calls, lambda: self.broker.receive_frame(CONNECTION, frame))
        (effect,) = [each for each in self.outbox.drain() if not isinstance(each, Log)]
        assert isinstance(effect, Reply) and not self.broker.failed
        return api.parse_response(key, version, b"".join(effect.parts)[4:])[1]

    def produce(self, calls: list[tuple[int, str]] | None = None, **producer: int) -> Any:
        records = build_batch([Record(-1, 1_700_000_000_000, None, b"x" * 100)], **producer)
        data = TopicProduceData(
            name="t", partition_data=[PartitionProduceData(index=0, records=records)]
        )
        request = ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[data])
        return self.answer(ApiKey.PRODUCE, 9, request, calls)

    def fetch(self, calls: list[tuple[int, str]] | None = None) -> Any:
        partition = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
        request = FetchRequest(
            max_wait_ms=500,
            min_bytes=1,
            max_bytes=1 << 20,
            topics=[FetchTopic(topic="t", partitions=[partition])],
        )
        return self.answer(ApiKey.FETCH, 11, request, calls)


def record_calls(calls: list[tuple[int, str]], function: Callable[[], None]) -> None:
    """Append (depth, qualified name) of each Python call that `function` makes, first to last."""
    depth = -1  # that of `function` itself, which does not count

    def profile(frame: FrameType, event: str, _: Any) -> None:
        nonlocal depth
        if event == "call":
            if depth >= 0:
                calls.append((depth, frame.f_code.co_qualname))
            depth += 1
        elif event == "return":
            depth -= 1

    sys.setprofile(profile)
    try:
        function()
    finally:
        sys.setprofile(None)


def opcodes(function: Callable[[], object]) -> int:
    """How many of the interpreter's instructions `function` takes, in all functions of kwire."""
    count = 0

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal count
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        count += event == "opcode"
        return trace

    sys.settrace(trace)
    try:
        function()
    finally:
        sys.settrace(None)
    return count


def listed(calls: list[tuple[int, str]]) -> str:
    return "\n".join(f"{'  ' * depth}{name}" for depth, name in calls)


@pytest.fixture
def path(monkeypatch: pytest.MonkeyPatch) -> FastPath:
    monkeypatch.setattr(schema, "INTERPRETED_USES", 0)  # as after many requests
    monkeypatch.setattr(schema, "INTERPRETED_INSTANCES", 0)
    fast_path = FastPath()
    for _ in range(2):  # the first request of an API imports its handler and makes its codec
        fast_path.produce()
        fast_path.fetch()
    return fast_path


def test_faults_that_are_not_set_take_no_instruction(path: FastPath, tmp_path: Path) -> None:
    """Neither before the first one nor after the last one, nor while there is one of another API."""
    from kwire.faults.table import FaultTable
    from kwire.server.disks.faulty import install
    from kwire.server.disks.rules import DiskRule
    from kwire.server.file_log_store import FileLogStore

    store = FileLogStore(str(tmp_path), fsync=False)
    path = FastPath(store)

    def costs() -> tuple[int, int]:
        """The least of several: now and then an index gets an entry."""
        produce = min(opcodes(path.produce) for _ in range(6))
        return produce, min(opcodes(path.fetch) for _ in range(6))

    costs()  # the first request of an API imports its handler and makes its codec
    before = costs()
    table = FaultTable(path.broker.sessions, 1)
    table.add({"api": "Metadata", "close": True})
    assert costs() == before
    table.add({"api": "Produce", "delay": 1, "topic": "another"})
    table.add({"api": "Fetch", "delay": 1, "topic": "another"})
    disk = DiskRule("disk-1", {"act": "fail", "operation": "append", "topic": "another"})
    install(store, [disk], lambda *_: None)
    assert all(now > then for now, then in zip(costs(), before, strict=True))
    table.clear()
    install(store, [], lambda *_: None)
    costs()
    assert costs() == before
    store.close()


def test_produce_of_one_batch_takes_no_more_calls_than_it_did(path: FastPath) -> None:
    calls: list[tuple[int, str]] = []
    response = path.produce(calls)
    assert response.responses[0].partition_responses[0].base_offset == 2
    assert calls[0] == (0, "Sessions.receive_frame")
    assert len(calls) <= PRODUCE_CALLS, listed(calls)


def test_an_idempotent_produce_takes_no_more_calls_than_it_did(path: FastPath) -> None:
    """What producers of Kafka 3.0 and later send unless told otherwise."""
    calls: list[tuple[int, str]] = []
    for sequence in range(3):
        calls.clear()
        path.produce(calls, producer_id=5, producer_epoch=0, base_sequence=sequence)
    assert "ProducerStateManager.check" in [name for _, name in calls]
    assert len(calls) <= IDEMPOTENT_PRODUCE_CALLS, listed(calls)


def test_fetch_of_one_partition_takes_no_more_calls_than_it_did(path: FastPath) -> None:
    calls: list[tuple[int, str]] = []
    response = path.fetch(calls)
    assert len(response.responses[0].partitions[0].records) > 0
    assert calls[0] == (0, "Sessions.receive_frame")
    assert len(calls) <= FETCH_CALLS, listed(calls)


if __name__ == "__main__":
    schema.INTERPRETED_USES = schema.INTERPRETED_INSTANCES = 0
    printed = FastPath()
    for name, request in (("Produce v9", printed.produce), ("Fetch v11", printed.fetch)):
        for _ in range(2):
            request()
        found: list[tuple[int, str]] = []
        request(found)
        print(f"{name}: {len(found)} calls\n{listed(found)}\n")
