"""A whole broker without sockets: requests as frames, responses from the outbox."""

from __future__ import annotations

from random import Random
from typing import Any

from kwire.apis.releases import release_ranges
from kwire.broker import Broker
from kwire.protocol import api
from kwire.protocol.schemas.topics import CreatableTopic, CreateTopicsRequest, DeleteTopicsRequest
from kwire.replication.config.broker_config import BrokerConfig
from kwire.replication.core.clock import Clock
from kwire.replication.core.memory_log_store import MemoryLogStore
from kwire.replication.core.metadata import Endpoint
from kwire.replication.core.outbox import Log, Outbox, Reply


class GroupBroker:
    """One broker on a MemoryLogStore under a virtual clock; `restart` is a kill and a start."""

    def __init__(
        self, settings: dict[str, str] | None = None, *, release: str | None = None
    ) -> None:
        self.settings = settings or {}
        self.api_caps = None if release is None else release_ranges(release)
        self.client_id = "client"
        self.store = MemoryLogStore()
        self.clock = Clock(now_ms=1_000, wall_ms=1_700_000_000_000)
        self.start()

    def start(self) -> None:
        self.outbox = Outbox()
        config = BrokerConfig(self.settings)
        self.broker = Broker(
            config, self.store, self.clock, self.outbox, Random(5), api_caps=self.api_caps
        )
        self.broker.start([Endpoint("PLAINTEXT", "127.0.0.1", 9092)])
        self.services = self.broker.services
        self.answers: dict[int, list[Any]] = {}
        self.asked: dict[int, list[tuple[int, int]]] = {}
        self.connections = 0

    def restart(self) -> None:
        self.start()

    def connect(self) -> int:
        self.connections += 1
        self.broker.connection_opened(self.connections, "PLAINTEXT", "127.0.0.1")
        self.answers[self.connections] = []
        self.asked[self.connections] = []
        return self.connections

    def send(self, connection: int, version: int, request: Any) -> None:
        key = api.key_of(request)
        frame = b"".join(api.encode_request(key, version, 7, self.client_id, request))[4:]
        self.asked[connection].append((key, version))
        self.broker.receive_frame(connection, frame)
        self.deliver()

    def deliver(self) -> None:
        for effect in self.outbox.drain():
            if isinstance(effect, Log):
                continue
            assert isinstance(effect, Reply), effect
            answers = self.answers[effect.connection]
            key, version = self.asked[effect.connection][len(answers)]
            frame = b"".join(effect.parts)[4:]
            answers.append(api.parse_response(key, version, frame)[1])
        assert not self.broker.failed

    def ask(self, version: int, request: Any, connection: int | None = None) -> Any:
        """The response to a request that is not parked."""
        connection = self.connect() if connection is None else connection
        before = len(self.answers[connection])
        self.send(connection, version, request)
        [answer] = self.answers[connection][before:]
        return answer

    def create_topic(self, name: str, partitions: int = 1) -> bytes:
        topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=1)
        answer = self.ask(7, CreateTopicsRequest(topics=[topic], timeout_ms=1000))
        assert answer.topics[0].error_code == 0
        return bytes(answer.topics[0].topic_id)

    def delete_topic(self, name: str) -> None:
        answer = self.ask(5, DeleteTopicsRequest(topic_names=[name], timeout_ms=1000))
        assert answer.responses[0].error_code == 0

    def advance(self, delay_ms: int) -> None:
        end = self.clock.now_ms + delay_ms
        while (deadline := self.broker.next_deadline_ms()) is not None and deadline <= end:
            self._move_to(max(deadline, self.clock.now_ms))
            self.broker.tick()
        self._move_to(end)
        self.deliver()

    def _move_to(self, now_ms: int) -> None:
        self.clock.wall_ms += now_ms - self.clock.now_ms
        self.clock.now_ms = now_ms
