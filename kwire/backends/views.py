"""Snapshots of partitions (`Cluster.partition`), and the state of nodes that is known without a request.

Leader, epochs, ISR and replicas come from the controller (from outside: from a broker's metadata), log
offsets from each replica. The cluster may change between those queries: tests that wait query again.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from kwire.errors import BrokerNotAvailableError, ClusterStateError, NotSupportedError
from kwire.replication.core.types import NO_LEADER

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Self

    from kwire.backends.base import NodeHandle


@dataclass(frozen=True, slots=True)
class Replica:
    """One broker's replica of a partition, as the broker itself reports it."""

    broker: int
    log_start_offset: int
    log_end_offset: int
    high_watermark: int = -1
    """The replica's own high watermark; -1 from outside, where only the leader's can be queried."""
    known_epochs: tuple[tuple[int, int], ...] | None = None

    @classmethod
    def from_json(cls, broker: int, found: dict[str, Any]) -> Self:
        """The replica of a broker from its answer to `GET …/replica`."""
        return cls(
            broker,
            found["log_start_offset"],
            found["log_end_offset"],
            found["high_watermark"],
            tuple((epoch, start) for epoch, start in found["epochs"]),
        )

    @property
    def epochs(self) -> list[tuple[int, int]]:
        """The leader epochs in its log: (epoch, first offset), oldest first.

        NotSupportedError from outside."""
        if self.known_epochs is None:
            raise NotSupportedError("the epochs of a replica cannot be asked for from outside")
        return list(self.known_epochs)

    def __str__(self) -> str:
        epochs = ""
        if self.known_epochs:
            epochs = ", epochs " + " ".join(f"{e}@{start}" for e, start in self.known_epochs)
        return f"offsets {self.log_start_offset}..{self.log_end_offset}{epochs}"


@dataclass(frozen=True, slots=True)
class Partition:
    """A snapshot of a partition, from the controller and its replicas."""

    topic: str
    partition: int
    leader: int
    """A broker's id; -1: no leader."""
    leader_epoch: int
    isr: frozenset[int]
    replicas: tuple[int, ...]
    """Brokers in the order of the assignment; the first is the preferred leader."""
    known_high_watermark: int | None = None
    found: dict[int, Replica] = field(default_factory=dict)
    missing: dict[int, str] = field(default_factory=dict)
    """Replicas that could not be queried: broker id to reason."""

    @property
    def high_watermark(self) -> int:
        """The leader's high watermark.

        BrokerNotAvailableError without a leader, or when it cannot be queried."""
        if self.known_high_watermark is not None:
            return self.known_high_watermark
        if self.leader == NO_LEADER:
            raise BrokerNotAvailableError(
                f"{self.topic}-{self.partition} has no leader, so no high watermark",
                "LEADER_NOT_AVAILABLE",
            )
        return self.replica(self.leader).high_watermark

    def replica(self, broker: int) -> Replica:
        """The replica of a broker. ClusterStateError when it has none, BrokerNotAvailableError when it
        could not be queried."""
        if broker in self.found:
            return self.found[broker]
        name = f"{self.topic}-{self.partition}"
        if broker in self.missing:
            raise BrokerNotAvailableError(
                f"the replica of {name} on broker {broker}: {self.missing[broker]}"
            )
        raise ClusterStateError(
            f"broker {broker} has no replica of {name}; brokers {list(self.replicas)} have",
            "REPLICA_NOT_AVAILABLE",
        )

    def __str__(self) -> str:
        leader = "no leader" if self.leader == NO_LEADER else f"leader {self.leader}"
        try:
            high_watermark = str(self.high_watermark)
        except BrokerNotAvailableError:
            high_watermark = "unknown"
        lines = [
            f"{self.topic}-{self.partition}: {leader}, leader epoch {self.leader_epoch},"
            f" ISR {sorted(self.isr)}, high watermark {high_watermark}"
        ]
        for broker in self.replicas:
            what = self.found.get(broker) or self.missing.get(broker, "not asked")
            lines.append(f"  replica {broker}: {what}")
        return "\n".join(lines)


class NodeState:
    """The state of a node that was started here, known without a request to it."""

    _kind = "node"

    def __init__(self, handle: NodeHandle) -> None:
        self._handle = handle

    @property
    def id(self) -> int:
        """The node id."""
        return self._handle.node_id

    @property
    def running(self) -> bool:
        """Started and neither stopped nor killed; a paused node runs."""
        return self._handle.running

    @property
    def paused(self) -> bool:
        """Between `pause` and `resume`."""
        return self._handle.paused

    @property
    def address(self) -> str:
        """host:port, the same for all its runs."""
        return self._handle.advertised

    @property
    def rack(self) -> str | None:
        """A broker's rack (`broker.rack`); None without one."""
        return self._handle.rack

    def __repr__(self) -> str:
        state = "paused" if self.paused else "running" if self.running else "down"
        return f"<{self._kind} {self.id} {self.address} {state}>"


def require_answering(handle: NodeHandle, kind: str = "broker") -> None:
    """BrokerNotAvailableError when a node does not run or is paused."""
    if not handle.running or handle.paused:
        state = "is paused" if handle.running else "does not run"
        raise BrokerNotAvailableError(f"{kind} {handle.node_id} {state}")


def is_down(handle: NodeHandle, kind: str) -> bool:
    """Whether a node is to be started. ClusterStateError when it is paused."""
    if handle.paused:
        raise ClusterStateError(f"{kind} {handle.node_id} is paused: resume it")
    return not handle.running


def may_be_paused(handle: NodeHandle, kind: str) -> bool:
    """Whether a node is to be paused: it is not yet. ClusterStateError when it does not run."""
    if not handle.running:
        raise ClusterStateError(f"{kind} {handle.node_id} does not run: start it")
    return not handle.paused


class ControllerState(NodeState):
    """The state of a controller that was started here, known without a request to it."""

    _kind = "controller"


class BrokerState(NodeState):
    """The state of a broker that was started here, known without a request to it."""

    _kind = "broker"

    @property
    def log_dir(self) -> str:
        """The directory of its logs, in Kafka's format."""
        return self.log_dirs[0]

    @property
    def log_dirs(self) -> list[str]:
        """All its log directories (`log.dirs`)."""
        return self._handle.log_dir.split(",")
