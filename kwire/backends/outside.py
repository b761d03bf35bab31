"""A cluster known by its addresses only: operations over Kafka's protocol, with any Kafka from 2.8 on.

The offsets of a replica come from the replica itself, asked as a debugging consumer. Its leader
epochs, and the high watermark of a follower, cannot be queried over the protocol.
"""

from __future__ import annotations

from contextlib import suppress

from kwire import errors
from kwire.backends.history import EventHistory
from kwire.backends.options import kwire_errors
from kwire.backends.views import Partition, Replica
from kwire.client.admin import (
    CONSUMER,
    DEBUGGING_CONSUMER,
    EARLIEST,
    LATEST,
    PREFERRED,
    REQUEST_SECONDS,
    UNCLEAN,
    NoBrokerError,
)
from kwire.client.connection import parse_address
from kwire.client.streams import Client
from kwire.protocol.errors import KafkaError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from kwire.backends.base import NodeHandle
    from kwire.client.connection import Address


class SeenFromOutside:
    """Queries and elections over Kafka's protocol, given a cluster's addresses."""

    def __init__(self) -> None:
        self.admin = Client(self.addresses)
        self.controllers: dict[int, Any] = {}
        self.handles: dict[int, Any] = {}
        self.events = EventHistory(self.nodes)

    def nodes(self) -> list[NodeHandle]:
        """The nodes that were started here: controllers, brokers."""
        return [*self.controllers.values(), *self.handles.values()]

    def addresses(self) -> list[Address]:
        """Addresses of brokers to ask, best first."""
        raise NotImplementedError

    async def topics(self) -> dict[str, int]:
        """Every topic and its number of partitions."""
        with kwire_errors():
            metadata = await self.admin.run(self.admin.metadata(None))
        return {topic.name: len(topic.partitions) for topic in metadata.topics}

    async def partition(self, topic: str, index: int) -> Partition:
        """The state of a partition: a broker's metadata, and offsets from each replica."""
        admin = self.admin
        with kwire_errors(f"{topic}-{index}"):
            metadata = await admin.run(admin.metadata([topic]))
        addresses = admin.brokers_in(metadata)
        of_index = [p for p in metadata.topics[0].partitions if p.partition_index == index]
        if not of_index:
            raise errors.UnknownTopicOrPartitionError(f"there is no partition {topic}-{index}")
        (state,) = of_index
        found: dict[int, Replica] = {}
        missing: dict[int, str] = {}
        for broker_id in state.replica_nodes:
            if broker_id not in addresses:
                missing[broker_id] = "the broker does not run"
                continue
            at = addresses[broker_id]
            try:
                start, end = [
                    await admin.run(admin.offset(at, topic, index, when, DEBUGGING_CONSUMER))
                    for when in (EARLIEST, LATEST)
                ]
                found[broker_id] = Replica(broker_id, start, end)
            except (KafkaError, NoBrokerError) as error:
                missing[broker_id] = str(error)
        return Partition(
            topic,
            index,
            state.leader_id,
            state.leader_epoch,
            frozenset(state.isr_nodes),
            tuple(state.replica_nodes),
            await self._high_watermark(state, addresses.get(state.leader_id), topic),
            found,
            missing,
        )

    async def _high_watermark(self, state: Any, at: Address | None, topic: str) -> int | None:
        if at is not None:
            admin, index = self.admin, state.partition_index
            with suppress(KafkaError, NoBrokerError):
                return await admin.run(admin.offset(at, topic, index, LATEST, CONSUMER))
        return None

    async def appoint(self, topic: str, index: int, leader: int, unclean: bool) -> None:
        """Elect the given replica: make it the preferred one by a reassignment, then hold a preferred
        (or unclean) election. Kafka's protocol has no direct way."""
        now = await self.partition(topic, index)
        if now.leader == leader:
            return
        if leader not in now.replicas:
            raise errors.RequestError(
                f"broker {leader} cannot lead {topic}-{index}: the replicas are {now.replicas}",
                "ELIGIBLE_LEADERS_NOT_AVAILABLE",
            )
        others = [broker for broker in now.replicas if broker != leader]
        admin = self.admin
        await admin.run(admin.reassign(topic, index, [leader, *others], REQUEST_SECONDS))
        kind = UNCLEAN if unclean and leader not in now.isr else PREFERRED
        await admin.run(admin.elect(topic, index, kind, REQUEST_SECONDS))

    async def is_led(self, now: Partition) -> bool:
        """True: the protocol has no request to ask a leader whether it knows that it leads."""
        return True


class Outside(SeenFromOutside):
    """An external cluster: one that was not started by this `Cluster`."""

    def __init__(self, bootstrap_servers: str) -> None:
        """ConfigurationError for malformed addresses."""
        super().__init__()
        self.bootstrap_servers = bootstrap_servers
        self._addresses = _parsed(bootstrap_servers)

    def addresses(self) -> list[Address]:
        return self._addresses

    async def connect(self) -> None:
        """Check that a broker answers. BrokerNotAvailableError."""
        with kwire_errors():
            await self.admin.run(self.admin.metadata())


def _parsed(bootstrap_servers: str) -> list[Address]:
    try:
        return [parse_address(server) for server in str(bootstrap_servers).split(",")]
    except ValueError:
        raise errors.ConfigurationError(
            f"bootstrap servers: expected HOST:PORT[,HOST:PORT…], not {bootstrap_servers!r}"
        ) from None
