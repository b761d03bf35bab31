"""What the controller knows: the journaled state, and which brokers are alive.

Answers to kafka.controller.ControllerContext. The parts of a controller share one; whoever changes
`brokers`, or a broker in it, calls `brokers_changed`. The state changes by `ChangeLog.commit` alone.
"""

from __future__ import annotations

from kwire.protocol.errors import ErrorCode, KafkaError
from kwire.replication.config.broker_config import topic_log_config
from kwire.replication.controller.state import ControllerState, PartitionState
from kwire.replication.core.types import NO_LEADER

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from kwire.replication.config.broker_config import BrokerConfig
    from kwire.replication.controller.state import Record, TopicState
    from kwire.replication.core.clock import Clock
    from kwire.replication.core.log_config import LogConfig
    from kwire.replication.core.metadata import Endpoint


class LiveBroker:
    """A registered broker that is believed to be alive."""

    __slots__ = (
        "endpoints",
        "epoch",
        "heard",
        "heard_ms",
        "id",
        "incarnation",
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
        self.heard = True  # by this controller; not: known from its predecessor only
        self.heard_ms = 0  # when it was heard last, or became known
        self.offline: set[tuple[str, int]] = set()  # partitions whose disk failed
        self.offline_log_dirs: set[bytes] = set()

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
    """Read freely.

    `node_id`: the controller's own. `active`: until it is deposed. `is_standalone`: its only broker
    is in its own process. `cluster_id`: "" for any."""

    __slots__ = (
        "_some_offline",
        "active",
        "brokers",
        "clock",
        "cluster_id",
        "config",
        "eligible",
        "is_standalone",
        "node_id",
        "state",
    )

    def __init__(
        self,
        node_id: int,
        config: BrokerConfig,
        clock: Clock | None,
        *,
        cluster_id: str,
        is_standalone: bool,
    ) -> None:
        self.node_id = node_id
        self.config = config
        self.clock = clock
        self.cluster_id = cluster_id
        self.is_standalone = is_standalone
        self.active = True
        self.state = ControllerState()
        self.brokers: dict[int, LiveBroker] = {}
        self.eligible: set[int] = set()  # alive and not shutting down
        self._some_offline = False

    @property
    def epoch(self) -> int:
        """The controller epoch."""
        return self.state.controller_epoch

    @property
    def now_ms(self) -> int:
        return 0 if self.clock is None else self.clock.now_ms

    # --- brokers

    def brokers_changed(self) -> None:
        """Brokers have come or gone, begun to shut down or lost partitions."""
        self.eligible = {b.id for b in self.brokers.values() if not b.shutting_down}
        self._some_offline = any(b.offline for b in self.brokers.values())

    def alive(self, topic: str, index: int) -> Collection[int]:
        """The brokers that a partition may elect: alive, not shutting down, able to read its log."""
        if not self._some_offline:
            return self.eligible
        key = topic, index
        return {broker for broker in self.eligible if key not in self.brokers[broker].offline}

    def is_online(
        self, broker_id: int, topic: str, index: int, *, shutting_down: bool = False
    ) -> bool:
        """The broker lives and can read the partition's log. `shutting_down`: also one that is about to stop."""
        broker = self.brokers.get(broker_id)
        if broker is None or (broker.shutting_down and not shutting_down):
            return False
        return (topic, index) not in broker.offline

    def racks(self) -> list[tuple[int, str | None]]:
        """Brokers that can take new replicas, and their racks."""
        return [(b.id, b.rack) for b in self.brokers.values() if not b.shutting_down]

    def forget_disks_of(self, topic: str) -> None:
        """The topic is deleted: partitions of it that brokers could not read say nothing about another of its name."""
        for broker in self.brokers.values():
            broker.offline = {key for key in broker.offline if key[0] != topic}
        self.brokers_changed()

    # --- topics

    def partitions(self) -> Iterator[tuple[TopicState, int, PartitionState]]:
        """Every partition: topic, index, state."""
        for topic in self.state.topics.values():
            for index, partition in enumerate(topic.partitions):
                yield topic, index, partition

    def topic(self, name: str) -> TopicState:
        """KafkaError(UNKNOWN_TOPIC_OR_PARTITION) when it does not exist."""
        topic = self.state.topics.get(name)
        if topic is None:
            raise KafkaError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                "This server does not host this topic-partition.",
            )
        return topic

    def topic_log_config(self, topic: str) -> LogConfig:
        """The configuration of a topic's logs."""
        return topic_log_config(self.state.topic_config(topic), self.config)

    def new_partition(self, replicas: list[int]) -> PartitionState:
        """The first state of a partition: leader and ISR are its live replicas."""
        alive = [broker for broker in replicas if broker in self.eligible]
        return PartitionState(replicas, alive, alive[0] if alive else NO_LEADER)
