"""A leader's proposals to change the in-sync replicas, on their way to the controller and back (KIP-497).

Answers to kafka.server.DefaultAlterPartitionManager and to Partition.submitAlterPartition / handleAlterPartitionError.
Speaks AlterPartition v3 (members with their broker epochs, KIP-903), v1 as long as a topic without an id is among the
proposals.

Invariants: one request is in flight; all that was submitted meanwhile goes with the next one; a partition has one
proposal here at most; a proposal stays until a definite answer has come or its partition has left that state, however
often it has to be sent.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kwire.replication.isr import PendingExpandIsr, PendingShrinkIsr

if TYPE_CHECKING:
    from collections.abc import Callable

    from kwire.replication.clock import Clock, Timers
    from kwire.replication.partition import Partition
    from kwire.replication.peers import Peers
    from kwire.replication.replica_manager import ReplicaManager, TopicPartition

CHANNEL: Final = "controller"
RETRY_MS: Final = 50
_VERSION: Final = 3
_VERSION_WITH_NAMES: Final = 1
_RECOVERED: Final = 0


class _Proposal:
    """What a partition wanted when it submitted; it may want something else by now (`is_pending`)."""

    __slots__ = ("leader_epoch", "partition", "partition_epoch", "state")

    def __init__(self, partition: Partition, state: PendingExpandIsr | PendingShrinkIsr) -> None:
        self.partition = partition
        self.state = state
        self.leader_epoch = partition.leader_epoch
        self.partition_epoch = partition.partition_epoch

    @property
    def is_pending(self) -> bool:
        return self.partition.isr_state is self.state


class AlterPartitionManager:
    """See the module. `submit` is the ReplicaManager's `isr_proposer`."""

    __slots__ = (
        "_clock",
        "_controller_node",
        "_host",
        "_in_flight",
        "_peers",
        "_queued",
        "_timers",
    )

    def __init__(
        self,
        host: ReplicaManager,
        peers: Peers,
        controller_node: Callable[[], int | None],
        clock: Clock,
        timers: Timers,
    ) -> None:
        """`controller_node`: the node to ask, None while there is none (asked again in 50 ms)."""
        self._host = host
        self._peers = peers
        self._controller_node = controller_node
        self._clock = clock
        self._timers = timers
        self._queued: dict[TopicPartition, _Proposal] = {}  # the ones in flight included
        self._in_flight = False

    def submit(self, partition: Partition) -> None:
        """Proposes the partition's pending ISR. One that is still under way for an older state is in its way: the
        partition then is as before, and may propose again (OPERATION_NOT_ATTEMPTED)."""
        raise NotImplementedError
