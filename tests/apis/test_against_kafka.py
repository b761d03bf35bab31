"""kwire's answers to seven hundred raw requests, beside those of Apache Kafka 3.9.1 (see kafka_dialogue.py)."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

from kafka_dialogue import speak

from kwire.broker import Broker
from kwire.protocol import api
from kwire.replication.config.broker_config import BrokerConfig
from kwire.replication.core.clock import Clock
from kwire.replication.core.memory_log_store import MemoryLogStore
from kwire.replication.core.metadata import Endpoint
from kwire.replication.core.outbox import Close, Outbox, Reply

ANSWERS = Path(__file__).parent.parent / "data" / "kafka-3.9-dialogue.json.gz"

KNOWN_DIFFERENCES = {
    # Kafka checks the number of batches above the partition, kwire's log below it.
    "produce two batches .responses[0].partition_responses[0].log_start_offset",
    "produce truncated .responses[0].partition_responses[0].log_start_offset",
}


class DirectClient:
    """A whole broker without sockets: bytes in, bytes out, and a clock that jumps to the next deadline."""

    def __init__(self) -> None:
        self.clock = Clock(1_000_000, 1_700_000_000_000)
        self.outbox = Outbox()
        config = BrokerConfig({"node.id": "1", "auto.create.topics.enable": "false"})
        self.broker = Broker(config, MemoryLogStore(), self.clock, self.outbox, Random(1))
        self.broker.start([Endpoint("PLAINTEXT", "localhost", 9092)])
        self.connection = 0
        self.connect()

    def connect(self) -> None:
        self.connection += 1
        self.broker.connection_opened(self.connection, "PLAINTEXT", "127.0.0.1")

    def effects(self, key: int, version: int, request: Any) -> list[Any]:
        parts = api.encode_request(key, version, 1, "dialogue", request)
        frame = b"".join(bytes(part) for part in parts)[4:]
        self.broker.receive_frame(self.connection, frame)
        return self.outbox.drain()

    def ask(self, key: int, version: int, request: Any) -> Any:
        effects = self.effects(key, version, request)
        for _ in range(1000):
            for effect in effects:
                if isinstance(effect, Reply):
                    data = b"".join(bytes(part) for part in effect.parts)
                    return api.parse_response(key, version, data[4:])[1]
                if isinstance(effect, Close):
                    self.connect()
                    return "closed"
            deadline_ms = self.broker.next_deadline_ms()
            assert deadline_ms is not None, "no answer, and nothing to wait for"
            self.clock.wall_ms += max(deadline_ms - self.clock.now_ms, 0)
            self.clock.now_ms = max(deadline_ms, self.clock.now_ms)
            self.broker.tick()
            effects = self.outbox.drain()
        return "no answer"

    def says_nothing(self, key: int, version: int, request: Any) -> str:
        if any(isinstance(effect, Close) for effect in self.effects(key, version, request)):
            self.connect()
            return "closed"
        return "open"

    def now_ms(self) -> int:
        return self.clock.wall_ms

    def settle(self) -> None:
        pass


def differences(ours: Any, theirs: Any, path: str) -> Iterator[str]:
    if isinstance(ours, dict) and isinstance(theirs, dict):
        for name in {**ours, **theirs}:
            yield from differences(ours.get(name), theirs.get(name), f"{path}.{name}")
    elif isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs):
        for number, (our, their) in enumerate(zip(ours, theirs, strict=True)):
            yield from differences(our, their, f"{path}[{number}]")
    elif ours != theirs and path not in KNOWN_DIFFERENCES:
        yield f"{path}: kwire {ours!r}, Kafka {theirs!r}"


def test_kwire_answers_as_kafka_does():
    client = DirectClient()
    heard = json.loads(json.dumps(speak(client)))
    recorded = [json.loads(line) for line in gzip.decompress(ANSWERS.read_bytes()).splitlines()]
    assert len(recorded) > 650
    assert [label for label, _ in heard] == [label for label, _ in recorded]
    found = [
        difference
        for (label, ours), (_, theirs) in zip(heard, recorded, strict=True)
        for difference in differences(ours, theirs, f"{label} ")
    ]
    assert found == []
    assert client.broker.failed == []
