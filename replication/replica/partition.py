"""One partition on this broker: its role, its log and, on the leader, its followers and ISR.

Answers to kafka.cluster.Partition. Leaves out tiered storage and share fetches; future replicas are
in moves.py, look-ups by time in lookup.py, rack-aware reads (KIP-392) in selector.py. Errors are
raised as KafkaError. Parked requests are the ReplicaManager's: it completes them when a method
returns that the high watermark moved.

Invariants: a leader's epoch is in the epoch cache before any append in it; at most one ISR change
is pending; a leader's high watermark never goes back and never passes the log end of a member of
the maximal ISR; without followers an append is committed immediately.
"""

from __future__ import annotations

from typing import Final, Protocol

from kwire.protocol.errors import ErrorCode, KafkaError
from kwire.protocol.language.primitives import ZERO_UUID
from kwire.replication.core.types import NO_LEADER
from kwire.replication.replica.append_result import Traffic
from kwire.replication.replica.fetch_data import READ_COMMITTED, FetchPartitionData
from kwire.replication.replica.isr import (
    CommittedIsr,
    IsrState,
    PendingExpandIsr,
    PendingShrinkIsr,
    RemoteReplica,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from kwire.replication.core.clock import Clock
    from kwire.replication.core.outbox import Buffer
    from kwire.replication.log.log import AppendOrigin, CheckedBatch, Log, LogAppendInfo
    from kwire.replication.replica.fetch_data import FetchParams, FetchPartition

_NOT_APPLIED: Final = (ErrorCode.OPERATION_NOT_ATTEMPTED, ErrorCode.INELIGIBLE_REPLICA)
_OUT_OF_DATE: Final = (
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.INVALID_UPDATE_VERSION,
    ErrorCode.INVALID_REQUEST,
    ErrorCode.NEW_LEADER_ELECTED,
)


class PartitionState(Protocol):
    """The fields of LeaderAndIsrPartitionState that a partition uses."""

    controller_epoch: int
    leader: int
    leader_epoch: int
    isr: list[int]
    partition_epoch: int
    replicas: list[int]
    adding_replicas: list[int]
    removing_replicas: list[int]
    is_new: bool


class PartitionHost(Protocol):
    """A partition's interface to its broker: the ReplicaManager, or a stub in tests."""

    node_id: int
    clock: Clock
    hw_ignores_min_isr: bool
    """Whether the high watermark moves under min.insync.replicas, too, as before Kafka 3.7."""

    @property
    def replica_lag_time_max_ms(self) -> int: ...

    def open_log(self, topic: str, index: int, topic_id: bytes, is_new: bool) -> Log:
        """Open or create the log, its high watermark restored; KafkaError(KAFKA_STORAGE_ERROR)."""
        ...

    def is_alive(self, broker_id: int) -> bool:
        """Whether a broker is in the live-broker list of the last UpdateMetadata."""
        ...

    def propose_isr(self, partition: Partition) -> None:
        """Submit the partition's pending ISR state to the controller (AlterPartition)."""
        ...


class Partition:
    """See the module. `key` is (topic, index), created once, for the look-ups in purgatories."""

    __slots__ = (
        *("_host", "adding_replicas", "controller_epoch", "index", "is_leader", "isr_state", "key"),
        *("leader_epoch", "leader_epoch_start_offset", "leader_id", "log", "partition_epoch"),
        *("remote_replicas", "removing_replicas", "replicas", "topic", "topic_id", "traffic"),
    )

    def __init__(
        self, topic: str, index: int, topic_id: bytes, host: PartitionHost, log: Log
    ) -> None:
        """`log`: from `host.open_log`. The partition has no role and is not in the host's map."""
        self.topic = topic
        self.index = index
        self.key = (topic, index)
        self.topic_id = log.topic_id if topic_id == ZERO_UUID else topic_id
        self.log = log
        self._host = host
        self.traffic = Traffic()  # of its topic, which the ReplicaManager sets
        self.is_leader = False
        self.leader_id = NO_LEADER
        self.leader_epoch = -1
        self.partition_epoch = 0
        self.controller_epoch = 0
        self.leader_epoch_start_offset = -1
        self.replicas: list[int] = []
        self.adding_replicas: list[int] = []
        self.removing_replicas: list[int] = []
        self.isr_state: IsrState = CommittedIsr(frozenset())
        self.remote_replicas: dict[int, RemoteReplica] = {}

    def __repr__(self) -> str:
        role = "leader" if self.is_leader else f"follower of {self.leader_id}"
        return f"Partition({self.topic}-{self.index}, {role}, epoch {self.leader_epoch})"

    @property
    def isr(self) -> frozenset[int]:
        """The committed in-sync replicas; empty on a follower."""
        return self.isr_state.isr

    def effective_min_isr(self) -> int:
        """Return min.insync.replicas, capped at the number of replicas."""
        return min(self.log.config.min_insync_replicas, len(self.remote_replicas) + 1)

    # --- roles

    def assign_topic_id(self, topic_id: bytes, is_new: bool) -> None:
        """Set an unknown topic id and store it with the log, which is reopened for that."""
        if self.topic_id == ZERO_UUID:
            self.topic_id = topic_id
        if self.log.topic_id == ZERO_UUID != self.topic_id:
            self.log = self._host.open_log(self.topic, self.index, self.topic_id, is_new)

    def make_leader(self, state: PartitionState, topic_id: bytes) -> bool:
        """Lead in `state.leader_epoch`. True if this broker did not lead before.

        A request with an older partition epoch changes nothing.
        """
        if state.partition_epoch < self.partition_epoch:
            return False
        self.assign_topic_id(topic_id, state.is_new)
        is_new_leader = not self.is_leader
        self._install_assignment(state)
        self.isr_state = CommittedIsr(frozenset(state.isr))
        self._update_remote_replicas(state.replicas)
        if state.leader_epoch > self.leader_epoch:
            self._begin_epoch(state.leader_epoch, is_new_leader)
        self.leader_id = self._host.node_id
        self.is_leader = True
        self.maybe_increment_high_watermark()
        return is_new_leader

    def make_follower(self, state: PartitionState, topic_id: bytes) -> bool:
        """Follow `state.leader`. True if the leader epoch rose, which ends parked requests.

        If the leader is -1, or not alive in the metadata cache, only the topic id is assigned.
        """
        if state.partition_epoch < self.partition_epoch:
            return False
        self.assign_topic_id(topic_id, state.is_new)
        if not self._host.is_alive(state.leader):
            return False
        is_new_epoch = state.leader_epoch > self.leader_epoch
        self._install_assignment(state)
        self.isr_state = CommittedIsr(frozenset())
        self.remote_replicas.clear()
        self.leader_epoch_start_offset = -1
        self.leader_id = state.leader
        self.leader_epoch = state.leader_epoch
        self.is_leader = False
        return is_new_epoch

    def _install_assignment(self, state: PartitionState) -> None:
        self.controller_epoch = state.controller_epoch
        self.partition_epoch = state.partition_epoch
        self.replicas = list(state.replicas)
        self.adding_replicas = list(state.adding_replicas)
        self.removing_replicas = list(state.removing_replicas)

    def _update_remote_replicas(self, replicas: Sequence[int]) -> None:
        node_id = self._host.node_id
        self.remote_replicas = {
            broker_id: self.remote_replicas.get(broker_id) or RemoteReplica(broker_id)
            for broker_id in replicas
            if broker_id != node_id
        }

    def _begin_epoch(self, leader_epoch: int, is_new_leader: bool) -> None:
        end_offset = self.log.log_end_offset
        self.leader_epoch_start_offset = end_offset
        # Before any append: a follower may request this epoch's end offset before its first record.
        is_new = self.log.leader_epochs.assign(leader_epoch, end_offset, has_records=False)
        try:
            if is_new and self.leader_epoch >= 0:  # not when a broker starts, with many partitions
                self.log.leader_epochs.write()
        except OSError as error:
            raise self.log.storage_error(f"begin epoch {leader_epoch} of", error) from error
        self.leader_epoch = leader_epoch
        now_ms, isr = self._host.clock.now_ms, self.isr_state.isr
        for replica in self.remote_replicas.values():
            replica.reset(
                now_ms=now_ms,
                leader_end_offset=end_offset,
                is_new_leader=is_new_leader,
                in_isr=replica.broker_id in isr,
            )

    # --- append

    def append_records_to_leader(
        self, records: Buffer | CheckedBatch, required_acks: int, origin: AppendOrigin
    ) -> LogAppendInfo:
        """Append one batch and advance the high watermark as far as possible.

        NOT_LEADER_OR_FOLLOWER; NOT_ENOUGH_REPLICAS; errors of Log.append_as_leader.
        """
        if not self.is_leader:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        log = self.log
        if not self.remote_replicas:
            info = log.append_as_leader(records, self.leader_epoch, origin=origin)
            log.maybe_increment_high_watermark(log.log_end_offset)
            return info
        if required_acks == -1:
            in_sync, required = len(self.isr_state.isr), self.effective_min_isr()
            if in_sync < required:
                raise KafkaError(
                    ErrorCode.NOT_ENOUGH_REPLICAS,
                    f"The size of the current ISR {sorted(self.isr_state.isr)} is insufficient to satisfy the "
                    f"min.isr requirement of {required} for partition {self.topic}-{self.index}",
                )
        info = log.append_as_leader(records, self.leader_epoch, origin=origin)
        self.maybe_increment_high_watermark()
        return info

    def replication_outcome(self, required_offset: int) -> ErrorCode | None:
        """Return the outcome of an acks=all append up to `required_offset`; None: not yet."""
        if not self.is_leader:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        if self.log.high_watermark < required_offset:
            return None
        if len(self.isr_state.maximal_isr) >= self.effective_min_isr():
            return ErrorCode.NONE
        return ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND

    # --- follow

    def append_records_to_follower(self, records: Buffer, leader_epoch: int) -> LogAppendInfo:
        """Append the leader's batches unchanged, except those of a later epoch than `leader_epoch`.

        NOT_LEADER_OR_FOLLOWER when this broker leads; CORRUPT_MESSAGE, UNKNOWN_SERVER_ERROR (not at
        the log end), KAFKA_STORAGE_ERROR as Log.append_as_follower.
        """
        from kwire.replication.log.truncation import append_replicated

        if self.is_leader:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return append_replicated(self.log, records, leader_epoch)

    def update_follower_offsets(self, high_watermark: int, log_start_offset: int) -> bool:
        """Adopt the leader's log start and high watermark, even a lower one; True if that moved."""
        from kwire.replication.log.truncation import apply_leader_offsets

        return apply_leader_offsets(self.log, high_watermark, log_start_offset)

    # --- read

    def check_leader_epoch(self, current_leader_epoch: int, require_leader: bool) -> None:
        """Check as KIP-320: FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH, NOT_LEADER_OR_FOLLOWER."""
        if current_leader_epoch >= 0 and current_leader_epoch != self.leader_epoch:
            if current_leader_epoch < self.leader_epoch:
                raise KafkaError(ErrorCode.FENCED_LEADER_EPOCH)
            raise KafkaError(ErrorCode.UNKNOWN_LEADER_EPOCH)
        if require_leader and not self.is_leader:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def follower(self, replica_id: int, current_leader_epoch: int) -> RemoteReplica:
        """Return a follower by id. If unassigned: 75 (its assignment may be newer), else 6."""
        replica = self.remote_replicas.get(replica_id)
        if replica is not None:
            return replica
        if current_leader_epoch >= 0:
            raise KafkaError(ErrorCode.UNKNOWN_LEADER_EPOCH)
        raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def read_bound(self, params: FetchParams) -> int:
        """Return the reader's limit (exclusive): log end, last stable offset or high watermark."""
        if not params.is_consumer:
            return self.log.log_end_offset
        if params.isolation_level == READ_COMMITTED:
            return self.log.last_stable_offset
        return self.log.high_watermark

    def read(
        self, request: FetchPartition, params: FetchParams, max_bytes: int, min_one_batch: bool
    ) -> FetchPartitionData:
        """Read for one partition of a fetch; KafkaError where Kafka's fetchRecords throws.

        A follower's state does not change here (see update_follower_fetch_state). A fetch offset
        inside a batch returns the whole batch.
        """
        self.check_leader_epoch(request.current_leader_epoch, params.fetch_only_leader)
        if params.replica_id >= 0:
            self.follower(params.replica_id, request.current_leader_epoch)
        log = self.log
        offset = request.fetch_offset
        start_offset = log.log_start_offset
        bound = self.read_bound(params)
        data = FetchPartitionData(
            0, log.high_watermark, log.last_stable_offset, start_offset, b"", bound
        )
        if request.last_fetched_epoch >= 0:
            data.diverging_epoch = self._diverging_epoch(request)
            if data.diverging_epoch is not None:
                return data
        next_offset = offset
        if start_offset <= offset < bound:
            if max_bytes > 0 or min_one_batch:
                fetched = log.read(offset, max_bytes, bound, min_one_batch)
                data.records = fetched.records
                next_offset = fetched.next_offset
        elif offset < start_offset or offset > log.log_end_offset:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"Received request for offset {offset} for partition {self.topic}-{self.index}, but we only have "
                f"log segments from offset {start_offset} up to {log.log_end_offset}.",
            )
        if params.isolation_level == READ_COMMITTED and params.is_consumer:
            data.aborted_transactions = (
                log.aborted_transactions(offset, next_offset) if next_offset > offset else []
            )
        return data

    def redirect(self, replica_id: int) -> FetchPartitionData:
        """Return a result without records that sends the consumer to `replica_id` (KIP-392)."""
        log = self.log
        data = FetchPartitionData(
            0,
            log.high_watermark,
            log.last_stable_offset,
            log.log_start_offset,
            b"",
            log.high_watermark,
        )
        data.preferred_read_replica = replica_id
        return data

    def _diverging_epoch(self, request: FetchPartition) -> tuple[int, int] | None:
        """Return where the follower's log diverges (KIP-595); None: it is a prefix of this log."""
        epoch, end_offset = self.log.end_offset_for_epoch(request.last_fetched_epoch)
        if epoch < 0 or end_offset < 0:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"Could not determine the end offset of the last fetched epoch {request.last_fetched_epoch}",
            )
        if request.fetch_offset < self.log.log_start_offset:
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)
        if epoch < request.last_fetched_epoch or end_offset < request.fetch_offset:
            return epoch, end_offset
        return None

    def diverges(self, request: FetchPartition) -> bool:
        """Whether the reader's log is no prefix of this log any more, or that is unknown."""
        try:
            return self._diverging_epoch(request) is not None
        except KafkaError:
            return True

    def end_offset_for_epoch(
        self, current_leader_epoch: int, leader_epoch: int, require_leader: bool = True
    ) -> tuple[int, int]:
        """Return (epoch, end offset) of the largest epoch up to `leader_epoch`, or (-1, -1)."""
        self.check_leader_epoch(current_leader_epoch, require_leader)
        return self.log.end_offset_for_epoch(leader_epoch)

    # --- DeleteRecords

    def delete_records(self, offset: int) -> tuple[int, int]:
        """Move the log start to `offset` (-1: the high watermark). Return it and the low watermark.

        NOT_LEADER_OR_FOLLOWER, POLICY_VIOLATION when cleanup.policy has no "delete",
        OFFSET_OUT_OF_RANGE.
        """
        if not self.is_leader:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        log = self.log
        if not log.config.delete:
            raise KafkaError(
                ErrorCode.POLICY_VIOLATION,
                f"Records of partition {self.topic}-{self.index} can not be deleted due to its cleanup policy",
            )
        target = log.high_watermark if offset == -1 else offset
        if target < 0 or target > log.high_watermark:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"The offset {target} for partition {self.topic}-{self.index} is not valid",
            )
        log.maybe_increment_log_start_offset(target)
        return target, self.low_watermark()

    def low_watermark(self) -> int:
        """Return the smallest log start offset of the live replicas."""
        lowest = self.log.log_start_offset
        for replica in self.remote_replicas.values():
            if replica.log_start_offset < lowest and self._host.is_alive(replica.broker_id):
                lowest = replica.log_start_offset
        return lowest

    # --- followers, ISR, high watermark

    def update_follower_fetch_state(self, request: FetchPartition, params: FetchParams) -> bool:
        """Record a follower's served fetch. True if the high watermark moved.

        The ReplicaManager has refused fetches by earlier incarnations of the follower (KIP-903).
        """
        replica = self.follower(params.replica_id, request.current_leader_epoch)
        end_before = replica.log_end_offset
        replica.update_fetch_state(
            fetch_offset=request.fetch_offset,
            log_start_offset=request.log_start_offset,
            leader_end_offset=self.log.log_end_offset,
            now_ms=self._host.clock.now_ms,
            broker_epoch=params.replica_epoch,
        )
        self.maybe_expand_isr(replica)
        if replica.log_end_offset == end_before:
            return False
        return self.maybe_increment_high_watermark()

    def maybe_expand_isr(self, replica: RemoteReplica) -> bool:
        """Propose a follower that has reached the high watermark and this epoch's start offset."""
        state = self.isr_state
        if (
            state.in_flight
            or replica.broker_id in state.isr
            or replica.log_end_offset < self.log.high_watermark
            or replica.log_end_offset < self.leader_epoch_start_offset
            or not self._host.is_alive(replica.broker_id)
        ):
            return False
        self.isr_state = PendingExpandIsr(state.isr, replica.broker_id)
        self._host.propose_isr(self)
        return True

    def maybe_shrink_isr(self) -> bool:
        """Propose the removal of every member that is not in sync; called by a timer."""
        state = self.isr_state
        if not self.is_leader or state.in_flight:
            return False
        now_ms, end_offset = self._host.clock.now_ms, self.log.log_end_offset
        lag_time_max_ms = self._host.replica_lag_time_max_ms
        # A reassignment may leave a member that is no replica any more: it never fetches again.
        late = frozenset(
            broker_id
            for broker_id in state.isr
            if broker_id != self._host.node_id
            and (
                (replica := self.remote_replicas.get(broker_id)) is None
                or not replica.is_in_sync(end_offset, now_ms, lag_time_max_ms)
            )
        )
        if not late:
            return False
        self.isr_state = PendingShrinkIsr(state.isr, late)
        self._host.propose_isr(self)
        return True

    def commit_isr(
        self, proposed: IsrState, leader_epoch: int, partition_epoch: int, isr: Sequence[int]
    ) -> bool:
        """Commit `proposed` as the controller answered. True if the high watermark moved.

        Nothing changes if the proposal is no longer pending, or the answer is of another epoch.
        """
        if (
            self.isr_state is not proposed
            or leader_epoch != self.leader_epoch
            or partition_epoch < self.partition_epoch
        ):
            return False
        self.isr_state = CommittedIsr(frozenset(isr))
        self.partition_epoch = partition_epoch
        return self.maybe_increment_high_watermark()

    def reject_isr(self, proposed: IsrState, error: int) -> bool:
        """Handle the controller's refusal of `proposed`. True if it must be submitted again.

        If it was certainly not applied the committed ISR is restored. If this broker's state is out
        of date the proposal stays pending until the next LeaderAndIsr: it may have been applied, so
        the high watermark must respect both ISRs.
        """
        if self.isr_state is not proposed:
            return False
        if error in _NOT_APPLIED:
            self.isr_state = CommittedIsr(proposed.isr)
            return False
        return error not in _OUT_OF_DATE

    def maybe_increment_high_watermark(self) -> bool:
        """Advance to the lowest end of the maximal ISR and joiners; not under min ISR (KIP-966)."""
        log = self.log
        candidate = log.log_end_offset
        if self.remote_replicas:
            state = self.isr_state
            if len(state.isr) < self.effective_min_isr() and not self._host.hw_ignores_min_isr:
                return False
            members, now_ms = state.maximal_isr, self._host.clock.now_ms
            end_offset, lag_time_max_ms = candidate, self._host.replica_lag_time_max_ms
            for replica in self.remote_replicas.values():
                if replica.log_end_offset < candidate and (
                    replica.broker_id in members
                    or (
                        replica.is_in_sync(end_offset, now_ms, lag_time_max_ms)
                        and self._host.is_alive(replica.broker_id)
                    )
                ):
                    candidate = replica.log_end_offset
        if candidate <= log.high_watermark:
            return False
        return log.maybe_increment_high_watermark(candidate)

    def settled_offset(self) -> int:
        """The offset up to which coordinators read: the high watermark, or what all of the ISR have from before this
        leadership, as whoever joins the ISR will: where min ISR (KIP-966) stops a high watermark that a power cut has
        set back, no committed offset may be hidden (GroupMetadataManager of Kafka 3.9 reads all of its log)."""
        members, before = self.isr_state.maximal_isr, self.leader_epoch_start_offset
        ends = [x.log_end_offset for x in self.remote_replicas.values() if x.broker_id in members]
        return max(self.log.high_watermark, min([before, *ends]))
