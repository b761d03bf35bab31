"""What `Cluster.partition` returns: values that stay as they are while the cluster goes on; what is known of a node.

The controller (from outside: a broker's metadata) tells leader, epochs, ISR and replicas; each replica is then asked
for its own log. Between the two the cluster may move: a test that waits asks again.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from kwire.errors import BrokerNotAvailableError, ClusterStateError, NotSupportedError
from kwire.replication.core.types import NO_LEADER

TYPE_CHECKING = False
if TYPE_CHECKING:
    from kwire.backends.base import NodeHandle


@dataclass(frozen=True, slots=True)
class Replica:
    """One broker's copy of a partition, as the broker itself has it."""

    broker: int
    log_start_offset: int
    log_end_offset: int
    high_watermark: int = -1
    """As far as this replica knows; -1 from outside, where only the leader's can be asked for."""
    known_epochs: tuple[tuple[int, int], ...] | None = None

    @property
    def epochs(self) -> list[tuple[int, int]]:
        """The leader epochs in its log: (epoch, first offset), oldest first. NotSupportedError from outside."""
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
    """A partition as the controller and its replicas had it when they were asked."""

    topic: str
    partition: int
    leader: int
    """A broker's id; -1 when nobody leads."""
    leader_epoch: int
    isr: frozenset[int]
    replicas: tuple[int, ...]
    """Brokers in the order of the assignment; the first is the preferred leader."""
    known_high_watermark: int | None = None
    found: dict[int, Replica] = field(default_factory=dict)
    missing: dict[int, str] = field(default_factory=dict)
    """Replicas that could not be asked, and why."""

    @property
    def high_watermark(self) -> int:
        """The leader's. BrokerNotAvailableError when there is no leader, or it cannot be asked."""
        if self.known_high_watermark is not None:
            return self.known_high_watermark
        if self.leader == NO_LEADER:
            raise BrokerNotAvailableError(
                f"{self.topic}-{self.partition} has no leader, so no high watermark",
                "LEADER_NOT_AVAILABLE",
            )
        return self.replica(self.leader).high_watermark

    def replica(self, broker: int) -> Replica:
        """A broker's copy. ClusterStateError when it has none, BrokerNotAvailableError when it cannot be asked."""
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
    """What is known of a node that was started here, without asking it."""

    _kind = "node"

    def __init__(self, handle: NodeHandle) -> None:
        self._handle = handle

    @property
    def id(self) -> int:
        """Its node id."""
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

    def __repr__(self) -> str:
        state = "paused" if self.paused else "running" if self.running else "down"
        return f"<{self._kind} {self.id} {self.address} {state}>"


def require_answering(handle: NodeHandle, kind: str = "broker") -> None:
    """BrokerNotAvailableError when a node does not run or is paused."""
    if not handle.running or handle.paused:
        state = "is paused" if handle.running else "does not run"
        raise BrokerNotAvailableError(f"{kind} {handle.node_id} {state}")


class ControllerState(NodeState):
    """What is known of a controller that was started here, without asking it."""

    _kind = "controller"


class BrokerState(NodeState):
    """What is known of a broker that was started here, without asking it."""

    _kind = "broker"

    @property
    def log_dir(self) -> str:
        """The directory of its logs, in Kafka's format."""
        return self.log_dirs[0]

    @property
    def log_dirs(self) -> list[str]:
        """All of them, where there are several (`log.dirs`)."""
        return self._handle.log_dir.split(",")
