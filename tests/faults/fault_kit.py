"""A standalone broker without sockets, that faults are set at, and its clients. Time stands until a test moves it."""

from __future__ import annotations

import random
from typing import Any

from kwire.broker import Broker
from kwire.control.faults_api import table_of
from kwire.faults.rules import Rule
from kwire.protocol.api import ApiKey, encode_request, key_of, parse_response
from kwire.protocol.record_builder import build_batch
from kwire.protocol.records import Record
from kwire.protocol.schemas.fetch import FetchPartition, FetchRequest, FetchTopic
from kwire.protocol.schemas.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kwire.protocol.schemas.topics import CreatableTopic, CreateTopicsRequest
from kwire.replication.config.broker_config import BrokerConfig
from kwire.replication.core.clock import Clock
from kwire.replication.core.memory_log_store import MemoryLogStore
from kwire.replication.core.metadata import Endpoint
from kwire.replication.core.outbox import Close, Outbox, Reply

ONE_RECORD = build_batch([Record(-1, 1000, None, b"x")])
LATEST = {ApiKey.PRODUCE: 9, ApiKey.FETCH: 12, ApiKey.OFFSET_COMMIT: 8, ApiKey.METADATA: 9}
"""Versions in which topics have names."""


class FaultKit:
    """A broker with the topics "a" and "b" of two partitions each. `answers`: by connection, in order."""

    def __init__(self) -> None:
        self.clock = Clock(now_ms=1_000, wall_ms=1_700_000_000_000)
        self.outbox = Outbox()
        store = MemoryLogStore(lambda: 1)
        config = BrokerConfig({"node.id": "1"})
        self.broker = Broker(config, store, self.clock, self.outbox, random.Random(1))
        self.broker.start([Endpoint("PLAINTEXT", "127.0.0.1", 9092)])
        self.answers: dict[int, list[Any]] = {}
        self.closed: dict[int, str] = {}
        self._asked: dict[int, list[tuple[int, int]]] = {}
        for connection in (1, 2):
            self.open(connection)
        topics = [CreatableTopic(name=n, num_partitions=2, replication_factor=1) for n in "ab"]
        self.ask(CreateTopicsRequest(topics=topics, timeout_ms=1000))

    def open(self, connection: int) -> None:
        self.broker.connection_opened(connection, "PLAINTEXT", "127.0.0.1")
        self.answers[connection], self._asked[connection] = [], []

    def inject(self, api: str | None = None, **given: Any) -> Rule:
        return table_of(self.broker).add({"api": api, **given} if api else given)

    def send(
        self, request: Any, version: int | None = None, *, connection: int = 1, client: str = "x"
    ) -> None:
        key = key_of(request)
        version = (
            LATEST.get(key, self.broker.sessions.ranges[key][1]) if version is None else version
        )
        frame = b"".join(bytes(part) for part in encode_request(key, version, 7, client, request))
        self._asked[connection].append((key, version))
        self.broker.receive_frame(connection, frame[4:])
        self.collect()

    def ask(self, request: Any, version: int | None = None, **more: Any) -> Any:
        """The answer to a request; None: there is none yet."""
        answers = self.answers[more.get("connection", 1)]
        before = len(answers)
        self.send(request, version, **more)
        return answers[before] if len(answers) > before else None

    def advance(self, ms: int) -> None:
        self.clock.now_ms += ms
        self.broker.tick()
        self.collect()

    def collect(self) -> None:
        while self.broker.work.jobs:
            self.broker.tick()
        for effect in self.outbox.drain():
            if isinstance(effect, Reply):
                key, version = self._asked[effect.connection].pop(0)
                data = b"".join(bytes(part) for part in effect.parts)[4:]
                _, response = parse_response(ApiKey(key), version, data)
                self.answers[effect.connection].append(response)
            elif isinstance(effect, Close):
                self.closed[effect.connection] = effect.reason

    def end_offset(self, topic: str, index: int) -> int:
        return self.broker.services.replica_manager.partition(topic, index).log.log_end_offset


def produce(*partitions: tuple[str, int], acks: int = -1) -> ProduceRequest:
    """A record to each partition."""
    return ProduceRequest(
        acks=acks,
        timeout_ms=1000,
        topic_data=[
            TopicProduceData(
                name=topic,
                partition_data=[
                    PartitionProduceData(index=index, records=ONE_RECORD)
                    for name, index in partitions
                    if name == topic
                ],
            )
            for topic in dict.fromkeys(name for name, _ in partitions)
        ],
    )


def fetch(*partitions: tuple[str, int], session: tuple[int, int] = (0, -1), **more: Any) -> Any:
    """From the beginning."""
    return FetchRequest(
        max_wait_ms=more.pop("max_wait_ms", 0),
        min_bytes=1,
        session_id=session[0],
        session_epoch=session[1],
        topics=[
            FetchTopic(
                topic=topic,
                partitions=[
                    FetchPartition(partition=index, fetch_offset=0, partition_max_bytes=1 << 20)
                    for name, index in partitions
                    if name == topic
                ],
            )
            for topic in dict.fromkeys(name for name, _ in partitions)
        ],
        **more,
    )


def codes(response: Any) -> dict[tuple[str, int], int]:
    """Error codes by partition, of answers to Produce and Fetch."""
    return {
        (
            getattr(topic, "name", None) or topic.topic,
            getattr(p, "index", -1) if hasattr(p, "index") else p.partition_index,
        ): p.error_code
        for topic in response.responses
        for p in getattr(topic, "partition_responses", None) or topic.partitions
    }
