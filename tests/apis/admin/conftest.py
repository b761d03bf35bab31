"""A whole broker without sockets, for requests that end at the controller or in the metadata cache."""

from __future__ import annotations

from random import Random
from types import SimpleNamespace
from typing import Any

import pytest
from recorded import PARKED, RecordedContext

from kwire.apis import BY_KEY
from kwire.broker import Broker
from kwire.protocol import api
from kwire.protocol.schemas.topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from kwire.replication.config.broker_config import BrokerConfig
from kwire.replication.config.release import Release
from kwire.replication.core.clock import Clock
from kwire.replication.core.memory_log_store import MemoryLogStore
from kwire.replication.core.metadata import Endpoint
from kwire.replication.core.outbox import Outbox

ENDPOINTS = [Endpoint("PLAINTEXT", "inside", 9092), Endpoint("OUTSIDE", "outside", 19092)]


class Admin:
    """Broker 1, and a client's requests as objects: what comes back went through the wire's bytes."""

    def __init__(
        self, settings: dict[str, str] | None = None, release: Release | None = None
    ) -> None:
        self.release = release
        self.settings = {"node.id": "1", **(settings or {})}
        self.store = MemoryLogStore()
        self.listener = "PLAINTEXT"
        self.start()

    def start(self) -> None:
        """Starts a broker on the store: again, after whatever became of the one before."""
        clock = Clock(now_ms=1000, wall_ms=1_700_000_000_000)
        config = BrokerConfig(self.settings, release=self.release)
        self.broker = Broker(config, self.store, clock, Outbox(), Random(7))
        self.broker.start(ENDPOINTS)
        self.services = self.broker.services

    def call(self, request: Any, version: int) -> Any:
        entry = BY_KEY[api.key_of(request)]
        assert entry.min_version <= version <= entry.max_version
        request = type(request).decode(request.encode(version), version)
        session: Any = SimpleNamespace(listener_name=self.listener, principal="User:ANONYMOUS")
        context = RecordedContext(version, session, self.services, key=entry.key, client_id="test")
        response = context.handled_by(entry.handler, request)
        assert response is not PARKED, "these requests are answered at once"
        return api.response_class(entry.key).decode(response.encode(version), version)

    def create(self, name: str, partitions: int = -1, version: int = 7, **configs: str) -> Any:
        """Creates a topic, underscores in keys for dots; the topic's result."""
        topic = CreatableTopic(
            name=name,
            num_partitions=partitions,
            replication_factor=-1,
            configs=[
                CreatableTopicConfig(name=key.replace("_", "."), value=value)
                for key, value in configs.items()
            ],
        )
        return self.call(CreateTopicsRequest(topics=[topic]), version).topics[0]


@pytest.fixture
def admin() -> Admin:
    return Admin()


@pytest.fixture
def new_admin() -> type[Admin]:
    return Admin
