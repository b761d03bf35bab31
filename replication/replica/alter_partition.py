"""Sends leaders' ISR proposals to the controller: AlterPartition (KIP-497).

Answers to kafka.server.DefaultAlterPartitionManager and to Partition.submitAlterPartition /
handleAlterPartitionError. Sends AlterPartition v3 (members with their broker epochs, KIP-903), or
v1 while a proposal's topic has no id.

Invariants: one request is in flight at most; proposals submitted meanwhile go with the next one,
one per partition; a proposal is sent again until it has a definite answer or its partition has left
the proposed state; an answer for a partition that has left that state changes nothing.
"""

from __future__ import annotations

from typing import Final

from kwire.protocol.api import ApiKey
from kwire.protocol.errors import ErrorCode, error_name
from kwire.protocol.language.primitives import ZERO_UUID
from kwire.protocol.schemas.control_plane import (
    AlterPartitionRequest,
    BrokerState,
    PartitionData,
    TopicData,
)
from kwire.replication.core.events import Event
from kwire.replication.replica.isr import CommittedIsr, PendingExpandIsr, format_ids

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from kwire.protocol.schemas.control_plane import (
        AlterPartitionResponse,
        AlterPartitionResponsePartitionData,
    )
    from kwire.replication.core.clock import Clock, Timers
    from kwire.replication.core.peers import Peers
    from kwire.replication.core.types import TopicPartition
    from kwire.replication.replica.isr import PendingIsr
    from kwire.replication.replica.manager import ReplicaManager
    from kwire.replication.replica.partition import Partition

CHANNEL: Final = "controller"
RETRY_MS: Final = 50
_VERSION: Final = 3
_VERSION_WITH_NAMES: Final = 1
_RECOVERED: Final = 0


class _Proposal:
    """A partition's ISR state and epochs at submission; it may have left them (`_is_pending`).

    `members`: with their broker epochs at submission, also when it is sent again: of a replica that has restarted
    meanwhile, what made it a member need not hold any more (KIP-903)."""

    __slots__ = ("leader_epoch", "members", "partition", "partition_epoch", "state")

    def __init__(self, partition: Partition, state: PendingIsr, members: list[BrokerState]) -> None:
        self.partition = partition
        self.state = state
        self.leader_epoch = partition.leader_epoch
        self.partition_epoch = partition.partition_epoch
        self.members = members


class AlterPartitionManager:
    """See the module. `submit` is the ReplicaManager's `isr_proposer`."""

    __slots__ = (
        "_clock",
        "_controller_node",
        "_host",
        "_in_flight",
        "_last_error",
        "_on_unavailable",
        "_peers",
        "_queued",
        "_timers",
        "_waiting",
    )

    def __init__(
        self,
        host: ReplicaManager,
        peers: Peers,
        controller_node: Callable[[], int | None],
        clock: Clock,
        timers: Timers,
        *,
        on_unavailable: Callable[[int], None] = lambda node: None,
    ) -> None:
        """`controller_node`: returns the controller's id, None while unknown (retried in 50 ms).

        `on_unavailable(node)`: it did not respond, or is not the active controller."""
        self._on_unavailable = on_unavailable
        self._host = host
        self._peers = peers
        self._controller_node = controller_node
        self._clock = clock
        self._timers = timers
        self._queued: dict[TopicPartition, _Proposal] = {}
        self._in_flight: dict[TopicPartition, _Proposal] = {}
        self._last_error = 0  # of the last whole response, so that it is logged once
        self._waiting = False  # for the retry of the last request

    def __len__(self) -> int:
        """The number of proposals without a definite answer."""
        return len(self._queued.keys() | self._in_flight.keys())

    def submit(self, partition: Partition) -> None:
        """Submit the partition's pending ISR.

        It replaces a queued proposal from an earlier state (Kafka refuses the newer one with
        OPERATION_NOT_ATTEMPTED).
        """
        state = partition.isr_state
        assert not isinstance(state, CommittedIsr), state
        members = [
            BrokerState(broker_id=i, broker_epoch=self._epoch_of(i, partition))
            for i in sorted(state.proposed)
        ]
        self._queued[partition.key] = _Proposal(partition, state, members)
        if not self._in_flight and not self._waiting:
            self._send()

    def _is_pending(self, proposal: _Proposal) -> bool:
        partition = proposal.partition
        return (
            partition.isr_state is proposal.state and self._host.hosted(partition.key) is partition
        )

    def _send(self) -> None:
        self._waiting = False
        batch = {key: p for key, p in self._queued.items() if self._is_pending(p)}
        self._queued = batch
        if not batch:
            return
        node = self._controller_node()
        if node is None:
            self._send_later()
            return
        self._in_flight, self._queued = batch, {}
        with_ids = all(p.partition.topic_id != ZERO_UUID for p in batch.values())
        version = _VERSION if with_ids else _VERSION_WITH_NAMES
        request = self._request(batch, version)
        self._peers.send(
            node,
            CHANNEL,
            ApiKey.ALTER_PARTITION,
            version,
            request,
            lambda response: self._on_response(response, version, node),
        )

    def _send_later(self) -> None:
        self._waiting = True
        self._timers.schedule_real((self, "send"), self._clock.now_ms + RETRY_MS, self._send)

    def _request(
        self, batch: dict[TopicPartition, _Proposal], version: int
    ) -> AlterPartitionRequest:
        topics: dict[str, TopicData] = {}
        for (topic, index), proposal in batch.items():
            data = PartitionData(
                partition_index=index,
                leader_epoch=proposal.leader_epoch,
                leader_recovery_state=_RECOVERED,
                partition_epoch=proposal.partition_epoch,
            )
            if version >= 3:
                data.new_isr_with_epochs = proposal.members
            else:
                data.new_isr = sorted(proposal.state.proposed)
            named = topics.get(topic)
            if named is None:
                named = topics[topic] = TopicData()
                if version >= 2:
                    named.topic_id = proposal.partition.topic_id
                else:
                    named.topic_name = topic
            named.partitions.append(data)
        host = self._host
        return AlterPartitionRequest(
            broker_id=host.node_id, broker_epoch=host.broker_epoch, topics=list(topics.values())
        )

    def _epoch_of(self, broker_id: int, partition: Partition) -> int:
        """Return the broker epoch of the replica's last fetch; -1: unknown, not checked."""
        if broker_id == self._host.node_id:
            return self._host.broker_epoch
        replica = partition.remote_replicas.get(broker_id)
        return -1 if replica is None else replica.broker_epoch

    def _on_response(
        self, response: AlterPartitionResponse | None, version: int, node: int
    ) -> None:
        batch, self._in_flight = self._in_flight, {}
        if response is None or response.error_code:
            # Applied or not, the proposals are safe to send again.
            self._queued = batch | self._queued
            if response is None or response.error_code == ErrorCode.NOT_CONTROLLER:
                self._on_unavailable(node)
            if response is not None and response.error_code != self._last_error:
                self._last_error = response.error_code
                error = error_name(response.error_code)
                self._host.log_event(Event.ALTER_PARTITION_REFUSED, error=error)
            self._send_later()
            return
        self._last_error = 0
        answers = {
            ((t.topic_id if version >= 2 else t.topic_name), p.partition_index): p
            for t in response.topics
            for p in t.partitions
        }
        again: dict[TopicPartition, _Proposal] = {}
        for key, proposal in batch.items():
            name = proposal.partition.topic_id if version >= 2 else key[0]
            answer = answers.get((name, key[1]))
            if answer is None or self._handle(proposal, answer):
                again[key] = proposal
        self._queued = again | self._queued
        if again:
            self._send_later()
        else:
            self._send()

    def _confirm(self, members: list[BrokerState]) -> None:
        """Remember broker epochs that the controller has compared with its own (KIP-903)."""
        known = self._host.follower_epochs
        for each in members:
            if each.broker_epoch > known.get(each.broker_id, -1):
                known[each.broker_id] = each.broker_epoch

    def _handle(self, proposal: _Proposal, answer: AlterPartitionResponsePartitionData) -> bool:
        """Apply one answer to its partition. True if the proposal must be sent again."""
        if not self._is_pending(proposal):
            return False
        partition, host, error = proposal.partition, self._host, answer.error_code
        before = sorted(partition.isr)
        if error:
            host.isr_counters.failed_updates += 1
            again = partition.reject_isr(proposal.state, error)
            what = (
                "sent again"
                if again
                else "waiting for the controller's next LeaderAndIsr"
                if partition.isr_state is proposal.state
                else f"back to {format_ids(partition.isr)}"
            )
            host.log_event(
                Event.ISR_UPDATE_REFUSED,
                topic=partition.topic,
                partition=partition.index,
                isr=sorted(proposal.state.proposed),
                leader_epoch=proposal.leader_epoch,
                error=error_name(error),
                detail=what,
            )
            return again
        self._confirm(proposal.members)
        moved = partition.commit_isr(
            proposal.state, answer.leader_epoch, answer.partition_epoch, answer.isr
        )
        if partition.isr_state is proposal.state:
            host.isr_counters.failed_updates += 1
            return False
        if isinstance(proposal.state, PendingExpandIsr):
            host.isr_counters.expands += 1
        else:
            host.isr_counters.shrinks += 1
        host.log_event(
            Event.ISR_UPDATED,
            topic=partition.topic,
            partition=partition.index,
            previous_isr=before,
            isr=sorted(partition.isr),
            leader_epoch=partition.leader_epoch,
            partition_epoch=partition.partition_epoch,
        )
        if moved:
            host.complete_waiting(partition.key)
        return False
