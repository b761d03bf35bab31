"""The controller's view of the cluster: the journaled state and the live brokers.

Answers to kafka.controller.ControllerContext. The parts of a controller share one; code that
changes `brokers`, or a broker in it, calls `brokers_changed`. Only `ChangeLog.commit` changes
the state.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final, TypeVar

from kwire.protocol.errors import ErrorCode, KafkaError
from kwire.replication.config.broker_config import topic_log_config
from kwire.replication.controller.state import ControllerState, PartitionState
from kwire.replication.core.events import Event
from kwire.replication.core.types import NO_LEADER

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    from kwire.replication.config.broker_config import BrokerConfig
    from kwire.replication.controller.state import Record, TopicState
    from kwire.replication.core.clock import Clock, Timers
    from kwire.replication.core.events import EventType
    from kwire.replication.core.log_config import LogConfig
    from kwire.replication.core.metadata import Endpoint
    from kwire.replication.core.mutations import MutationQuota
    from kwire.replication.core.quotas import Client


_PIECE: Final = 50
UNITS_CHANGED: Final = 120
"""Of a partition that changes, its event and its requests included (core/work.py)."""
SCANNED: Final = 1000
"""Partitions that are looked at between two yields."""
UNITS_SCANNED: Final = 300
_Item = TypeVar("_Item", bound=Hashable)


class LiveBroker:
    """A registered broker that is not fenced."""

    __slots__ = (
        "endpoints",
        "epoch",
        "has_reported",
        "id",
        "incarnation",
        "last_contact_ms",
        "offline",
        "offline_log_dirs",
        "rack",
        "shutting_down",
    )

    def __init__(
        self,
        broker_id: int,
        epoch: int,
        rack: str | None,
        endpoints: list[Endpoint],
        incarnation: bytes = b"",
    ) -> None:
        self.id = broker_id
        self.epoch = epoch
        self.rack = rack
        self.endpoints = endpoints
        self.incarnation = incarnation
        self.shutting_down = False
        self.has_reported = True  # to this controller; False: known from the journal only
        self.last_contact_ms = 0  # time of its last request, or of the take-over
        self.offline: set[tuple[str, int]] = set()  # partitions on a failed disk
        self.offline_log_dirs: set[bytes] = set()

    @property
    def number(self) -> int:
        """The epoch as logs show it (broker_epochs.py)."""
        if not self.incarnation:
            return self.epoch
        from kwire.replication.core.broker_epochs import registration_number

        return registration_number(self.epoch)

    def end_event(self, reason: str, *, is_restart: bool) -> EventType:
        """The event that says why it is no live broker any more; `reason`: a key of the event's."""
        if self.shutting_down:
            return Event.BROKER_SHUT_DOWN
        if reason == "unregistered":
            return Event.BROKER_UNREGISTERED
        return Event.BROKER_RUN_ENDED if is_restart else Event.BROKER_FENCED

    def record(self, *, live: bool) -> Record:
        endpoints = [[e.listener, e.host, e.port, e.security_protocol] for e in self.endpoints]
        return f"broker/{self.id}", {
            "epoch": self.epoch,
            "rack": self.rack,
            "endpoints": endpoints,
            "incarnation": self.incarnation.hex(),
            "live": live,
        }


class ControllerContext:
    """State shared by the controller's parts; all of them may read it.

    `node_id`: the controller's own. `active`: true until it resigns. `is_standalone`: its only
    broker is in its own process. `cluster_id`: "" for any."""

    __slots__ = (
        "_some_offline",
        "active",
        "brokers",
        "client",
        "clock",
        "cluster_id",
        "config",
        "eligible",
        "has_survivors",
        "is_late",
        "is_standalone",
        "mutations",
        "node_id",
        "piece",
        "state",
        "timers",
    )

    def __init__(
        self,
        node_id: int,
        config: BrokerConfig,
        clock: Clock | None,
        *,
        cluster_id: str,
        timers: Timers | None,
    ) -> None:
        self.node_id = node_id
        self.config = config
        self.clock = clock
        self.cluster_id = cluster_id
        self.is_standalone = timers is None
        self.timers = timers
        """Of the node; a standalone broker sets its own."""
        self.active = True
        self.is_late = False
        """Whether the request that is handled has waited for others: its sender may be dead by now."""
        self.piece = _PIECE
        """Partitions of a large change that are journaled and sent together."""
        self.state = ControllerState()
        self.brokers: dict[int, LiveBroker] = {}
        self.eligible: set[int] = set()  # alive and not shutting down
        # Brokers of the journal have sent requests without registering: only the controller is new.
        self.has_survivors = False
        self._some_offline = False
        self.client: Client | None = None
        """Who has sent the request that is handled, if that is known."""
        self.mutations: MutationQuota | None = None  # controller_mutation_rate, if it is or was set

    def charge(self, partitions: int) -> None:
        """Count partitions that a client is about to create or delete, if it has a quota for that.

        KafkaError(THROTTLING_QUOTA_EXCEEDED): they are not to be changed."""
        if self.mutations is not None and self.mutations.current is not None:
            self.mutations.current.take(partitions)

    @property
    def epoch(self) -> int:
        """The controller epoch."""
        return self.state.controller_epoch

    @property
    def now_ms(self) -> int:
        return 0 if self.clock is None else self.clock.now_ms

    @property
    def real_ms(self) -> int:
        return 0 if self.clock is None else self.clock.real_ms

    # --- brokers

    def ended_with_previous_run(self, broker: LiveBroker, reason: str) -> bool:
        """Whether the broker is fenced because the whole cluster starts again, not for a failure.

        True as long as no broker of the journal has sent a request without registering."""
        is_of_starts = reason in ("registered_again", "unreachable")
        return is_of_starts and not broker.has_reported and not self.has_survivors

    def next_broker_epoch(self, incarnation: bytes) -> int:
        """The epoch of a broker that registers now; of one in this process the next number."""
        if not incarnation:
            return self.state.last_broker_epoch + 1
        from kwire.replication.core.broker_epochs import next_broker_epoch

        return next_broker_epoch(self.state.last_broker_epoch, incarnation)

    def brokers_changed(self) -> None:
        """Recompute `eligible` after a change of `brokers`, a controlled shutdown or an offline
        replica."""
        self.eligible = {b.id for b in self.brokers.values() if not b.shutting_down}
        self._some_offline = any(b.offline for b in self.brokers.values())

    def alive(self, topic: str, index: int) -> Collection[int]:
        """Return brokers that a partition may elect: live, not shutting down, replica not
        offline."""
        if not self._some_offline:
            return self.eligible
        key = topic, index
        return {broker for broker in self.eligible if key not in self.brokers[broker].offline}

    def is_online(
        self, broker_id: int, topic: str, index: int, *, shutting_down: bool = False
    ) -> bool:
        """Whether the broker is live and can read the partition's log.

        `shutting_down`: count brokers in controlled shutdown, too."""
        broker = self.brokers.get(broker_id)
        if broker is None or (broker.shutting_down and not shutting_down):
            return False
        return (topic, index) not in broker.offline

    def racks(self) -> list[tuple[int, str | None]]:
        """Return (id, rack) of the brokers that can take new replicas."""
        return [(b.id, b.rack) for b in self.brokers.values() if not b.shutting_down]

    def clear_offline_replicas(self, topic: str) -> None:
        """Forget offline replicas of a deleted topic: they say nothing about a new topic of its
        name."""
        for broker in self.brokers.values():
            broker.offline = {key for key in broker.offline if key[0] != topic}
        self.brokers_changed()

    # --- topics

    def partitions(self) -> Iterator[tuple[TopicState, int, PartitionState]]:
        """Iterate over all partitions: topic, index, state."""
        for topic in self.state.topics.values():
            for index, partition in enumerate(topic.partitions):
                yield topic, index, partition

    def topic(self, name: str) -> TopicState:
        """Return the topic. KafkaError(UNKNOWN_TOPIC_OR_PARTITION) when it does not exist."""
        topic = self.state.topics.get(name)
        if topic is None:
            raise KafkaError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                "This server does not host this topic-partition.",
            )
        return topic

    def topic_log_config(self, topic: str) -> LogConfig:
        """Return the log configuration of a topic."""
        return topic_log_config(self.state.topic_config(topic), self.config)

    def new_partition(self, replicas: list[int]) -> PartitionState:
        """Return the first state of a new partition: its live replicas are the ISR, the first
        leads."""
        alive = [broker for broker in replicas if broker in self.eligible]
        return PartitionState(replicas, alive, alive[0] if alive else NO_LEADER)


def duplicates(items: Iterable[_Item]) -> set[_Item]:
    """Return the items that occur more than once."""
    seen: set[_Item] = set()
    result: set[_Item] = set()
    for item in items:
        (result if item in seen else seen).add(item)
    return result
