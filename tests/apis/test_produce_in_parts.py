"""Records that take long to read: other connections go on, the order of a connection and of a log stays."""

from __future__ import annotations

from typing import Any

import pytest
from odd_batches import BASE_MS, raw, record
from test_against_kafka import DirectClient

from kwire.broker import Broker
from kwire.protocol import api
from kwire.protocol.record_builder import build_batch
from kwire.protocol.records import Record
from kwire.protocol.schemas.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kwire.protocol.schemas.topics import (
    CreatableTopic,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    DeleteTopicState,
)
from kwire.replication.core.outbox import Close, Outbox, Reply

MANY = 60_000


class Connections:
    """A standalone broker with a topic of two partitions, and as many connections as needed."""

    def __init__(self) -> None:
        client = DirectClient()
        self.broker: Broker = client.broker
        self.outbox: Outbox = client.outbox
        self.clock = client.clock
        self.clock.wall_ms = BASE_MS + 1000
        self.answers: list[tuple[int, Any]] = []
        topic = CreatableTopic(name="t", num_partitions=2, replication_factor=1)
        client.ask(19, 5, CreateTopicsRequest(topics=[topic], timeout_ms=1000))
        for connection in (11, 12):
            self.broker.connection_opened(connection, "PLAINTEXT", "127.0.0.1")

    def send(self, connection: int, key: int, version: int, request: Any) -> None:
        parts = api.encode_request(key, version, 1, "test", request)
        self.broker.receive_frame(connection, b"".join(bytes(part) for part in parts)[4:])
        self._note(key, version)

    def produce(self, connection: int, *batches: bytes) -> None:
        data = [PartitionProduceData(index=i, records=batch) for i, batch in enumerate(batches)]
        topic = TopicProduceData(name="t", partition_data=data)
        self.send(connection, 0, 9, ProduceRequest(acks=1, timeout_ms=1000, topic_data=[topic]))

    def tick(self) -> None:
        self.clock.now_ms += 1
        self.broker.tick()
        self._note(0, 9)

    def _note(self, key: int, version: int) -> None:
        for effect in self.outbox.drain():
            assert not isinstance(effect, Close), effect
            if isinstance(effect, Reply):
                data = b"".join(bytes(part) for part in effect.parts)[4:]
                response = api.parse_response(key, version, data)[1]
                if key == 0:
                    answers = response.responses[0].partition_responses
                    found = [(int(p.error_code), p.base_offset) for p in answers]
                    self.answers.append((effect.connection, found))
        assert not self.broker.failed

    def finish(self) -> int:
        ticks = 0
        while self.broker.work.jobs:
            self.tick()
            ticks += 1
        return ticks


@pytest.fixture
def connections() -> Connections:
    return Connections()


def many(count: int = MANY, **changes: int) -> bytes:
    return raw(record() * count, count, max_timestamp=BASE_MS, **changes)


def small(**options: int) -> bytes:
    return build_batch([Record(-1, BASE_MS, None, b"v")], **options)


def test_another_connections_batch_goes_first(connections: Connections) -> None:
    connections.produce(11, many())
    assert connections.answers == [] and connections.broker.work.jobs
    connections.produce(12, small())
    assert connections.answers == [(12, [(0, 0)])]
    assert connections.finish() >= 5
    assert connections.answers[1:] == [(11, [(0, 1)])]


def test_the_next_batch_of_the_same_connection_waits(connections: Connections) -> None:
    connections.produce(11, many())
    connections.produce(11, small())
    assert connections.answers == []
    connections.finish()
    assert connections.answers == [(11, [(0, 0)]), (11, [(0, MANY)])]


def test_partitions_share_the_work_and_are_answered_together(connections: Connections) -> None:
    bad = raw(record() * MANY + b"junk", MANY, max_timestamp=BASE_MS)
    connections.produce(11, many(), bad)
    assert connections.finish() >= 10
    assert connections.answers == [(11, [(0, 0), (87, -1)])]


def test_a_retry_beside_the_first_try_is_a_duplicate(connections: Connections) -> None:
    batch = many(producer_id=5, producer_epoch=0, sequence=0)
    connections.produce(11, batch)
    connections.produce(12, batch)
    connections.finish()
    assert sorted(connections.answers) == [(11, [(0, 0)]), (12, [(0, 0)])]
    connections.produce(12, small())
    assert connections.answers[-1] == (12, [(0, MANY)])


def test_a_topic_that_is_deleted_meanwhile_is_unknown(connections: Connections) -> None:
    connections.produce(11, many())
    request = DeleteTopicsRequest(topics=[DeleteTopicState(name="t")], timeout_ms=1000)
    connections.send(12, 20, 6, request)
    connections.finish()
    assert connections.answers == [(11, [(3, -1)])]


def test_what_has_arrived_is_appended_though_its_connection_ends(connections: Connections) -> None:
    connections.produce(11, many())
    connections.broker.connection_closed(11)
    assert connections.broker.work.jobs
    connections.finish()
    connections.produce(12, small())
    ((connection, [(error, base_offset)]),) = connections.answers
    assert connection == 12 and error == 0 and base_offset > 1000


def test_of_those_who_are_gone_a_limited_number_is_at_work(connections: Connections) -> None:
    waiting = connections.broker.work
    connections.produce(11, many())
    while waiting.unfinished <= 500:
        waiting.start(iter(range(9)))  # type: ignore[arg-type]
    connections.produce(12, many())
    before = waiting.unfinished
    for connection in (11, 12):
        connections.broker.connection_closed(connection)
    connections.finish()
    connections.broker.connection_opened(13, "PLAINTEXT", "127.0.0.1")
    connections.produce(13, small())
    assert before == 502 and connections.answers[-1][1][0][1] == len(range(MANY))


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_few_bytes_that_become_many_are_read_in_parts(connections: Connections, codec: str) -> None:
    records = [Record(-1, BASE_MS, None, b"x" * 1000)] * 20_000
    connections.produce(11, build_batch(records, compression=codec))
    assert connections.finish() >= 1
    assert connections.answers == [(11, [(0, 0)])]
