"""Handlers for committed offsets: OffsetCommit (8), OffsetFetch (9), OffsetDelete (47).

Answers to the handlers of the same names in kafka.server.KafkaApis. Topics are named by id from
version 10 on (KIP-848); the coordinator sees names. Version 0 of OffsetCommit and OffsetFetch is
for offsets in ZooKeeper: Kafka in KRaft mode refuses it, kwire stores such offsets with the others,
in a group without members.
"""

from __future__ import annotations

from typing import Final

from kwire.protocol.errors import ErrorCode
from kwire.protocol.schemas.offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

    from kwire.apis.context import RequestContext
    from kwire.coordinator.offset_store import OffsetAndMetadata
    from kwire.coordinator.offsets import FetchedTopic
    from kwire.protocol.schemas.offsets import OffsetDeleteRequestTopic
    from kwire.replication.core.metadata import MetadataCache

TOPIC_ID_VERSION: Final = 10
BATCHED_GROUPS_VERSION: Final = 8
TOP_LEVEL_ERROR_VERSION: Final = 2

PartitionErrors = dict[tuple[str, int], int]


# --- OffsetCommit


def handle_offset_commit(ctx: RequestContext, request: OffsetCommitRequest) -> None:
    """Commit offsets of existing partitions together; the others get an error each."""
    ctx.session.group_id = request.group_id
    topics = request.topics
    errors: PartitionErrors = {}
    request.topics = _existing_partitions(ctx, topics, errors)
    if not request.topics:
        ctx.reply(commit_response(topics, errors))
        return

    def committed(response: OffsetCommitResponse) -> None:
        for topic in response.topics:
            for partition in topic.partitions:
                errors[topic.name, partition.partition_index] = partition.error_code
        ctx.reply(commit_response(topics, errors))

    def failed(error: ErrorCode) -> None:
        for topic in request.topics:
            for partition in topic.partitions:
                errors[topic.name, partition.partition_index] = int(error)
        ctx.reply(commit_response(topics, errors))

    ctx.services.group_coordinator.commit_offsets(request, ctx.api_version, committed, failed)


def _existing_partitions(
    ctx: RequestContext, topics: Iterable[OffsetCommitRequestTopic], errors: PartitionErrors
) -> list[OffsetCommitRequestTopic]:
    """The existing partitions of `topics`; sets topic names, and `errors` of all partitions."""
    metadata = ctx.services.metadata
    existing = []
    for topic in topics:
        error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if ctx.api_version >= TOPIC_ID_VERSION:
            name = metadata.topic_name(topic.topic_id)
            if name is None:
                # A name that no topic can have tells unknown ids apart.
                topic.name = f"\0{topic.topic_id.hex()}"
                error = ErrorCode.UNKNOWN_TOPIC_ID
            else:
                topic.name = name
        known = [
            partition
            for partition in topic.partitions
            if metadata.partition(topic.name, partition.partition_index) is not None
        ]
        for partition in topic.partitions:
            errors.setdefault((topic.name, partition.partition_index), int(error))
        if known:
            existing.append(OffsetCommitRequestTopic(name=topic.name, partitions=known))
    return existing


def commit_response(
    topics: Iterable[OffsetCommitRequestTopic], errors: PartitionErrors
) -> OffsetCommitResponse:
    """The response for the partitions of a request, each with its error."""
    return OffsetCommitResponse(
        topics=[
            OffsetCommitResponseTopic(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=[
                    OffsetCommitResponsePartition(
                        partition_index=partition.partition_index,
                        error_code=errors[topic.name, partition.partition_index],
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in topics
        ]
    )


# --- OffsetFetch


def handle_offset_fetch(ctx: RequestContext, request: OffsetFetchRequest) -> None:
    """Fetch offsets of one group before version 8, of several, in request order, since."""
    if ctx.api_version >= BATCHED_GROUPS_VERSION:
        groups = request.groups
    else:
        groups = [_as_group(request)]
    answers: dict[int, OffsetFetchResponseGroup] = {}

    def complete_group(index: int, answer: OffsetFetchResponseGroup) -> None:
        answers[index] = answer
        if len(answers) == len(groups):
            ctx.reply(_fetch_response(ctx, [answers[each] for each in range(len(groups))]))

    if not groups:
        ctx.reply(OffsetFetchResponse())
    for index, group in enumerate(groups):
        _fetch_group(ctx, request.require_stable, group, index, complete_group)


def _as_group(request: OffsetFetchRequest) -> OffsetFetchRequestGroup:
    topics = None
    if request.topics is not None:
        topics = [
            OffsetFetchRequestTopics(name=topic.name, partition_indexes=topic.partition_indexes)
            for topic in request.topics
        ]
    return OffsetFetchRequestGroup(group_id=request.group_id, topics=topics)


def _fetch_group(
    ctx: RequestContext,
    require_stable: bool,
    group: OffsetFetchRequestGroup,
    index: int,
    done: Callable[[int, OffsetFetchResponseGroup], None],
) -> None:
    metadata = ctx.services.metadata
    by_id = ctx.api_version >= TOPIC_ID_VERSION
    unknown: list[OffsetFetchResponseTopics] = []
    wanted: list[tuple[str, list[int]]] | None = None
    if group.topics is not None:
        wanted = []
        for topic in group.topics:
            name = metadata.topic_name(topic.topic_id) if by_id else topic.name
            if name is None:
                unknown.append(_failed_topic(topic, ErrorCode.UNKNOWN_TOPIC_ID))
            else:
                wanted.append((name, topic.partition_indexes))

    def fetched(topics: list[FetchedTopic]) -> None:
        found = [_fetched_topic(metadata, by_id, topic) for topic in topics]
        # A deleted topic has no id, and v10 has no names.
        known = [topic for topic in found if topic is not None]
        done(index, OffsetFetchResponseGroup(group_id=group.group_id, topics=known + unknown))

    def failed(error: ErrorCode) -> None:
        answer = OffsetFetchResponseGroup(group_id=group.group_id, error_code=int(error))
        if ctx.api_version < TOP_LEVEL_ERROR_VERSION:
            answer.topics = [_failed_topic(topic, error) for topic in group.topics or ()]
        done(index, answer)

    ctx.services.group_coordinator.fetch_offsets(
        group.group_id, wanted, require_stable, fetched, failed
    )


def _failed_topic(topic: OffsetFetchRequestTopics, error: ErrorCode) -> OffsetFetchResponseTopics:
    return OffsetFetchResponseTopics(
        name=topic.name,
        topic_id=topic.topic_id,
        partitions=[_partition(index, error, None) for index in topic.partition_indexes],
    )


def _fetched_topic(
    metadata: MetadataCache, by_id: bool, fetched: FetchedTopic
) -> OffsetFetchResponseTopics | None:
    name, partitions = fetched
    if by_id and not metadata.contains(name):
        return None
    return OffsetFetchResponseTopics(
        name=name,
        topic_id=metadata.topic_id(name),
        partitions=[_partition(*partition) for partition in partitions],
    )


def _partition(
    index: int, error: ErrorCode, offset: OffsetAndMetadata | None
) -> OffsetFetchResponsePartitions:
    if offset is None:
        return OffsetFetchResponsePartitions(
            partition_index=index,
            committed_offset=-1,
            committed_leader_epoch=-1,
            metadata="",
            error_code=int(error),
        )
    return OffsetFetchResponsePartitions(
        partition_index=index,
        committed_offset=offset.committed_offset,
        committed_leader_epoch=offset.leader_epoch,
        metadata=offset.metadata,
        error_code=int(error),
    )


def _fetch_response(
    ctx: RequestContext, groups: list[OffsetFetchResponseGroup]
) -> OffsetFetchResponse:
    """The response with all groups, or before version 8 with the topics of the only group."""
    if ctx.api_version >= BATCHED_GROUPS_VERSION:
        return OffsetFetchResponse(groups=groups)
    group = groups[0]
    return OffsetFetchResponse(
        error_code=group.error_code,
        topics=[
            OffsetFetchResponseTopic(
                name=topic.name,
                partitions=[_old_partition(ctx, partition) for partition in topic.partitions],
            )
            for topic in group.topics
        ],
    )


def _old_partition(
    ctx: RequestContext, partition: OffsetFetchResponsePartitions
) -> OffsetFetchResponsePartition:
    error = partition.error_code
    if ctx.api_version == 0 and not error and partition.committed_offset == -1:
        # As in Kafka: for v0 a missing offset was a missing ZooKeeper node.
        error = int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    return OffsetFetchResponsePartition(
        partition_index=partition.partition_index,
        committed_offset=partition.committed_offset,
        committed_leader_epoch=partition.committed_leader_epoch,
        metadata=partition.metadata,
        error_code=error,
    )


# --- OffsetDelete


def handle_offset_delete(ctx: RequestContext, request: OffsetDeleteRequest) -> None:
    """Delete committed offsets (KIP-496); each unknown partition gets an error."""
    metadata = ctx.services.metadata
    topics = request.topics
    existing: list[OffsetDeleteRequestTopic] = []
    errors: PartitionErrors = {}
    for topic in topics:
        known = []
        for partition in topic.partitions:
            if metadata.partition(topic.name, partition.partition_index) is None:
                error = int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
                errors[topic.name, partition.partition_index] = error
            else:
                known.append(partition)
        if known:
            existing.append(type(topic)(name=topic.name, partitions=known))
    # Also without partitions: the coordinator checks the group.
    checked = OffsetDeleteRequest(group_id=request.group_id, topics=existing)

    def deleted(response: OffsetDeleteResponse) -> None:
        if not response.error_code:
            for topic in response.topics:
                for partition in topic.partitions:
                    errors[topic.name, partition.partition_index] = partition.error_code
            response = _delete_response(topics, errors)
        ctx.reply(response)

    ctx.services.group_coordinator.delete_offsets(checked, deleted)


def _delete_response(
    topics: Iterable[OffsetDeleteRequestTopic], errors: PartitionErrors
) -> OffsetDeleteResponse:
    return OffsetDeleteResponse(
        topics=with_errors(topics, errors, OffsetDeleteResponseTopic, OffsetDeleteResponsePartition)
    )


def with_errors(
    topics: Iterable[Any], errors: PartitionErrors, topic_kind: Any, partition_kind: Any
) -> list[Any]:
    """A response's topics: the partitions of a request's, each with its error."""
    return [
        topic_kind(
            name=topic.name,
            partitions=[
                partition_kind(
                    partition_index=partition.partition_index,
                    error_code=errors[topic.name, partition.partition_index],
                )
                for partition in topic.partitions
            ],
        )
        for topic in topics
    ]
