"""ListOffsets (2), DeleteRecords (21), OffsetForLeaderEpoch (23), DescribeProducers (61).

ListOffsets: v0 a list of segment offsets · v1 one offset and its timestamp (KIP-79) · v2 isolation
level · v4 leader epoch (KIP-320) · v5 OFFSET_NOT_AVAILABLE (KIP-207) · v6 flexible · v7 largest
timestamp (KIP-734) · v8, v9, v11 special values of tiered storage (KIP-405, 1005, 1023), not
supported · v10 timeout, not used. OffsetForLeaderEpoch: v1 the epoch found (KIP-279) · v2 current
leader epoch · v3 replica id · v4 flexible.

Answers to the handlers of the same names in KafkaApis and to ReplicaManager.fetchOffset.
"""

from __future__ import annotations

from kwire.protocol.errors import ErrorCode, KafkaError
from kwire.replication.core.work import at_once
from kwire.replication.replica.fetch_data import CONSUMER_REPLICA_ID, DEBUGGING_REPLICA_ID
from kwire.replication.replica.lookup import (
    EARLIEST_LOCAL_TIMESTAMP,
    EARLIEST_PENDING_UPLOAD_TIMESTAMP,
    EARLIEST_TIMESTAMP,
    LATEST_TIERED_TIMESTAMP,
    LATEST_TIMESTAMP,
    MAX_TIMESTAMP,
    offset_for_timestamp,
    segment_offsets,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Generator

    from kwire.apis.context import RequestContext
    from kwire.protocol.schemas.offsets import (
        EpochEndOffset,
        ListOffsetsPartition,
        ListOffsetsPartitionResponse,
        ListOffsetsRequest,
        OffsetForLeaderEpochRequest,
        OffsetForLeaderPartition,
    )
    from kwire.protocol.schemas.topics import DeleteRecordsRequest
    from kwire.protocol.schemas.transactions import (
        DescribeProducersRequest,
        PartitionResponse,
    )
    from kwire.replication.core.types import TopicPartition
    from kwire.replication.core.work import Steps
    from kwire.replication.replica.manager import DeleteRecordsResult

_FIRST_VERSION_OF = {
    EARLIEST_TIMESTAMP: 0,
    LATEST_TIMESTAMP: 0,
    MAX_TIMESTAMP: 7,
    EARLIEST_LOCAL_TIMESTAMP: 8,
    LATEST_TIERED_TIMESTAMP: 9,
    EARLIEST_PENDING_UPLOAD_TIMESTAMP: 11,
}


def handle_list_offsets(ctx: RequestContext, request: ListOffsetsRequest) -> None:
    """Find the offset of each timestamp; INVALID_REQUEST for duplicate partitions (not in v0)."""
    from kwire.protocol.schemas.offsets import ListOffsetsResponse, ListOffsetsTopicResponse

    seen: set[TopicPartition] = set()
    twice: set[TopicPartition] = set()
    for topic in request.topics:
        for asked in topic.partitions:
            key = (topic.name, asked.partition_index)
            (twice if key in seen and ctx.api_version else seen).add(key)
    searches = any(
        _is_search(each.timestamp) for topic in request.topics for each in topic.partitions
    )

    def answer() -> Steps:
        response = ListOffsetsResponse()
        for topic in request.topics:
            answers = []
            for asked in topic.partitions:
                if (topic.name, asked.partition_index) in twice:
                    answers.append(_no_offset(asked.partition_index, ErrorCode.INVALID_REQUEST))
                else:
                    answers.append((yield from _list_offset(ctx, request, topic.name, asked)))
            response.topics.append(ListOffsetsTopicResponse(name=topic.name, partitions=answers))
        ctx.reply(response)

    if searches:
        ctx.run_in_parts(answer())
    else:
        at_once(answer())


def _is_search(timestamp: int) -> bool:
    """Whether records are looked at, which may be many."""
    return timestamp >= 0 or timestamp == MAX_TIMESTAMP


def _no_offset(index: int, error: ErrorCode) -> ListOffsetsPartitionResponse:
    from kwire.protocol.schemas.offsets import ListOffsetsPartitionResponse

    return ListOffsetsPartitionResponse(partition_index=index, error_code=error)


def _list_offset(
    ctx: RequestContext, request: ListOffsetsRequest, topic: str, asked: ListOffsetsPartition
) -> Generator[int, None, ListOffsetsPartitionResponse]:
    version, timestamp = ctx.api_version, asked.timestamp
    answer = _no_offset(asked.partition_index, ErrorCode.NONE)
    if timestamp < 0 and version < _FIRST_VERSION_OF.get(timestamp, version + 1):
        answer.error_code = ErrorCode.UNSUPPORTED_VERSION
        return answer
    isolation_level = request.isolation_level if request.replica_id == CONSUMER_REPLICA_ID else None
    try:
        partition = ctx.services.replica_manager.partition(topic, asked.partition_index)
        require_leader = request.replica_id != DEBUGGING_REPLICA_ID
        if version == 0:
            partition.check_leader_epoch(-1, require_leader)
            answer.old_style_offsets = segment_offsets(
                partition,
                timestamp,
                asked.max_num_offsets,
                isolation_level is not None,
                ctx.services.clock.wall_ms,
            )
            return answer
        found = yield from offset_for_timestamp(
            partition, timestamp, isolation_level, asked.current_leader_epoch, require_leader
        )
    except KafkaError as error:
        answer.error_code = error.code
        if error.code is ErrorCode.OFFSET_NOT_AVAILABLE and version < 5:
            answer.error_code = ErrorCode.LEADER_NOT_AVAILABLE
        elif error.code is ErrorCode.KAFKA_STORAGE_ERROR:
            reason = error.message or "its log cannot be read"
            ctx.services.replica_manager.mark_offline((topic, asked.partition_index), reason)
        return answer
    if found is not None:
        answer.offset, answer.timestamp, epoch = found
        if version >= 4:
            answer.leader_epoch = epoch
    return answer


def handle_offset_for_leader_epoch(
    ctx: RequestContext, request: OffsetForLeaderEpochRequest
) -> None:
    """Find the end offset of each leader epoch; epoch and offset -1 if unknown."""
    from kwire.protocol.schemas.offsets import (
        OffsetForLeaderEpochResponse,
        OffsetForLeaderTopicResult,
    )

    topics = [
        OffsetForLeaderTopicResult(
            topic=topic.topic,
            partitions=[_end_offset(ctx, topic.topic, asked) for asked in topic.partitions],
        )
        for topic in request.topics
    ]
    ctx.reply(OffsetForLeaderEpochResponse(topics=topics))


def _end_offset(ctx: RequestContext, topic: str, asked: OffsetForLeaderPartition) -> EpochEndOffset:
    from kwire.protocol.schemas.offsets import EpochEndOffset

    answer = EpochEndOffset(partition=asked.partition)
    try:
        partition = ctx.services.replica_manager.partition(topic, asked.partition)
        answer.leader_epoch, answer.end_offset = partition.end_offset_for_epoch(
            asked.current_leader_epoch, asked.leader_epoch
        )
    except KafkaError as error:
        answer.error_code = error.code
    return answer


def handle_delete_records(ctx: RequestContext, request: DeleteRecordsRequest) -> None:
    """Delete records before an offset (-1: the high watermark); reply once all replicas have."""
    from kwire.protocol.schemas.topics import (
        DeleteRecordsPartitionResult,
        DeleteRecordsResponse,
        DeleteRecordsTopicResult,
    )

    def complete(results: dict[TopicPartition, DeleteRecordsResult]) -> None:
        by_topic: dict[str, list[DeleteRecordsPartitionResult]] = {}
        for (topic, index), result in results.items():
            by_topic.setdefault(topic, []).append(
                DeleteRecordsPartitionResult(
                    partition_index=index,
                    low_watermark=result.low_watermark,
                    error_code=result.error,
                )
            )
        topics = [
            DeleteRecordsTopicResult(name=name, partitions=partitions)
            for name, partitions in by_topic.items()
        ]
        ctx.reply(DeleteRecordsResponse(topics=topics))

    offsets = {
        (topic.name, asked.partition_index): asked.offset
        for topic in request.topics
        for asked in topic.partitions
    }
    ctx.services.replica_manager.delete_records(
        timeout_ms=request.timeout_ms, offsets=offsets, on_complete=complete
    )


def handle_describe_producers(ctx: RequestContext, request: DescribeProducersRequest) -> None:
    """Describe the producer state of partitions, on leaders and followers alike (KIP-664)."""
    from kwire.protocol.schemas.transactions import DescribeProducersResponse, TopicResponse

    topics = [
        TopicResponse(
            name=topic.name,
            partitions=[_producers(ctx, topic.name, i) for i in topic.partition_indexes],
        )
        for topic in request.topics
    ]
    ctx.reply(DescribeProducersResponse(topics=topics))


def _producers(ctx: RequestContext, topic: str, index: int) -> PartitionResponse:
    from kwire.protocol.schemas.transactions import PartitionResponse, ProducerState
    from kwire.replication.core.topic_names import topic_name_problem

    answer = PartitionResponse(partition_index=index)
    try:
        # As in Kafka these have a message, and a partition that the topic does not have has none.
        problem = topic_name_problem(topic)
        if problem is not None:
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, problem)
        if not ctx.services.metadata.contains(topic):
            unknown = "This server does not host this topic-partition."
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, unknown)
        partition = ctx.services.replica_manager.partition(topic, index)
    except KafkaError as error:
        answer.error_code, answer.error_message = error.code, error.message
        return answer
    for entry in partition.log.producer_state.producers.values():
        first_offset = entry.current_txn_first_offset
        answer.active_producers.append(
            ProducerState(
                producer_id=entry.producer_id,
                producer_epoch=entry.producer_epoch,
                last_sequence=entry.last_sequence,
                last_timestamp=entry.last_timestamp,
                coordinator_epoch=entry.coordinator_epoch,
                current_txn_start_offset=-1 if first_offset is None else first_offset,
            )
        )
    return answer
