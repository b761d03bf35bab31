"""Offsets that are committed within transactions: the part of the group coordinator for them.

Answers to commitTransactionalOffsets and completeTransaction of GroupCoordinatorService. Imported when
the first transaction touches a group.
"""

from __future__ import annotations

from kwire.coordinator.group_records import offset_commit_record
from kwire.coordinator.offsets import from_request
from kwire.protocol.errors import ErrorCode, KafkaError
from kwire.protocol.record_builder import end_transaction_marker
from kwire.protocol.records import CONTROL_ABORT, CONTROL_COMMIT, NO_SEQUENCE
from kwire.protocol.schemas.transactions import (
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from kwire.replication.core.metadata import GROUP_METADATA_TOPIC
from kwire.shards.context import response_error
from kwire.shards.result import Result

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from kwire.coordinator.group_coordinator import GroupCoordinator
    from kwire.coordinator.group_records import CoordinatorRecord
    from kwire.coordinator.group_shard import GroupShard
    from kwire.protocol.schemas.transactions import TxnOffsetCommitRequest
    from kwire.replication.core.types import TopicPartition
    from kwire.replication.log.verification import VerificationGuard

    Guarded = Callable[[dict[TopicPartition, VerificationGuard | ErrorCode]], None]
    GetGuards = Callable[[int, int, dict[TopicPartition, int], Guarded], None]
    """Verifies partitions of this broker: kwire.transactions.guards.Guards.get."""


class TransactionalOffsets:
    """The offsets of open transactions in the groups of one broker."""

    __slots__ = ("_groups",)

    def __init__(self, groups: GroupCoordinator) -> None:
        self._groups = groups

    def commit(
        self,
        request: TxnOffsetCommitRequest,
        get_guards: GetGuards | None,
        reply: Callable[[TxnOffsetCommitResponse], None],
        fail: Callable[[ErrorCode], None],
    ) -> None:
        """Commit offsets within a transaction: pending until its marker. `fail`: for all partitions.

        `get_guards` None: without verification."""
        if not request.group_id:
            fail(ErrorCode.INVALID_GROUP_ID)
            return
        groups = self._groups
        index = groups.partition_for(request.group_id)
        if get_guards is None:
            self._write(index, request, None, reply, fail)
            return
        key = (GROUP_METADATA_TOPIC, index)

        def guarded(found: dict[TopicPartition, VerificationGuard | ErrorCode]) -> None:
            guard = found[key]
            if isinstance(guard, ErrorCode):
                fail(_for_producers(guard))
            else:
                self._write(index, request, guard, reply, fail)

        get_guards(request.producer_id, request.producer_epoch, {key: NO_SEQUENCE}, guarded)

    def _write(
        self,
        index: int,
        request: TxnOffsetCommitRequest,
        guard: VerificationGuard | None,
        reply: Callable[[TxnOffsetCommitResponse], None],
        fail: Callable[[ErrorCode], None],
    ) -> None:
        runtime = self._groups.runtime
        now_ms = runtime.clock.wall_ms
        runtime.write(index, lambda shard: _commit(shard, request, guard, now_ms), reply, fail)

    def complete_transaction(
        self,
        index: int,
        producer_id: int,
        producer_epoch: int,
        coordinator_epoch: int,
        is_commit: bool,
        reply: Callable[[ErrorCode], None],
    ) -> None:
        """End a transaction with its marker in partition `index` of `__consumer_offsets`.

        Its offsets take effect or are dropped. NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS; errors
        of the append."""
        runtime = self._groups.runtime
        marker = end_transaction_marker(
            CONTROL_COMMIT if is_commit else CONTROL_ABORT,
            coordinator_epoch=coordinator_epoch,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            timestamp=runtime.clock.wall_ms,
        )
        runtime.complete_transaction(index, producer_id, is_commit, marker, reply)


def _for_producers(error: ErrorCode) -> ErrorCode:
    """The error for a client when the verification failed (handleOperationException)."""
    if error is ErrorCode.NETWORK_EXCEPTION:  # which older clients do not expect here
        return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    return response_error(error)


def _commit(
    shard: GroupShard,
    request: TxnOffsetCommitRequest,
    guard: VerificationGuard | None,
    now_ms: int,
) -> Result[TxnOffsetCommitResponse]:
    """Validate member and generation, if given, and commit one record per partition (KIP-447)."""
    generation_id = request.generation_id_or_member_epoch
    group = shard.classic.find_group(request.group_id)
    if group is not None:
        group.validate_offset_commit(
            request.member_id, request.group_instance_id, generation_id, is_transactional=True
        )
    elif generation_id >= 0:
        raise KafkaError(ErrorCode.ILLEGAL_GENERATION)
    offsets = shard.offsets
    records: list[CoordinatorRecord] = []
    topics = []
    for topic in request.topics:
        partitions = []
        for partition in topic.partitions:
            index, error = partition.partition_index, ErrorCode.NONE
            if offsets.is_too_large(partition.committed_metadata):
                error = ErrorCode.OFFSET_METADATA_TOO_LARGE
            else:
                value = from_request(partition, now_ms, None)
                records.append(offset_commit_record(request.group_id, topic.name, index, value))
            partitions.append(
                TxnOffsetCommitResponsePartition(partition_index=index, error_code=int(error))
            )
        topics.append(TxnOffsetCommitResponseTopic(name=topic.name, partitions=partitions))
    return Result(
        records,
        TxnOffsetCommitResponse(topics=topics),
        producer=(request.producer_id, request.producer_epoch),
        guard=guard,
    )
