"""DescribeTopicPartitions (75): topics and their partitions, in pages (KIP-966).

Answers to DescribeTopicPartitionsRequestHandler. Version 0, without ELR unless the feature is on.
"""

from __future__ import annotations

from kwire.apis.metadata import TOPIC_OPERATIONS, partition_answer
from kwire.protocol.errors import ErrorCode
from kwire.protocol.schemas.metadata import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)
from kwire.replication.core.metadata import INTERNAL_TOPICS
from kwire.replication.core.topic_names import topic_name_problem

TYPE_CHECKING = False
if TYPE_CHECKING:
    from kwire.apis.context import RequestContext
    from kwire.replication.core.metadata import TopicMetadata


def handle_describe_topic_partitions(
    ctx: RequestContext, request: DescribeTopicPartitionsRequest
) -> None:
    """DescribeTopicPartitions v0: topics by name, in pages of `response_partition_limit`
    partitions.

    Eligible leader replicas (KIP-966) are fetched from the controller if the feature is on."""
    response = _page(ctx, request)
    if not ctx.services.config.eligible_leader_replicas_enable:
        ctx.reply(response)
        return
    from kwire.apis.forwarding import ask_controller

    def finish(answer: DescribeTopicPartitionsResponse) -> DescribeTopicPartitionsResponse:
        decided = {(t.name, p.partition_index): p for t in answer.topics for p in t.partitions}
        for topic in response.topics:
            for partition in topic.partitions:
                found = decided.get((topic.name, partition.partition_index))
                if found is not None:
                    partition.eligible_leader_replicas = found.eligible_leader_replicas
                    partition.last_known_elr = found.last_known_elr
        return response

    ask_controller(ctx, request, finish)


def _page(
    ctx: RequestContext, request: DescribeTopicPartitionsRequest
) -> DescribeTopicPartitionsResponse:
    services = ctx.services
    metadata = services.metadata
    names = sorted({topic.name for topic in request.topics} or metadata.topics)
    cursor = request.cursor
    first = 0
    if cursor is not None:
        if (request.topics and cursor.topic_name not in names) or cursor.partition_index < 0:
            return _refused_page(request)
        names = [name for name in names if name >= cursor.topic_name]
        if names and names[0] == cursor.topic_name:
            first = cursor.partition_index
    limit = services.config.max_request_partition_size_limit
    left = max(1, min(limit, request.response_partition_limit))
    response = DescribeTopicPartitionsResponse()
    for name in names:
        if left == 0:
            response.next_cursor = Cursor(topic_name=name, partition_index=0)
            break
        topic = metadata.topics.get(name)
        if topic is None:
            response.topics.append(_unknown_topic(name))
            first = 0  # the cursor's topic was deleted: its index means nothing for the next
            continue
        indexes = [index for index in topic.partitions if index >= first]
        page = indexes[:left]
        response.topics.append(_describe(ctx, topic, page))
        if len(page) < len(indexes):
            response.next_cursor = Cursor(topic_name=name, partition_index=indexes[len(page)])
            break
        left -= len(page)
        first = 0
    return response


def _refused_page(request: DescribeTopicPartitionsRequest) -> DescribeTopicPartitionsResponse:
    """The response to a cursor with a topic that was not requested, or a negative partition."""
    code = int(ErrorCode.INVALID_REQUEST)
    return DescribeTopicPartitionsResponse(
        topics=[
            DescribeTopicPartitionsResponseTopic(error_code=code, name=topic.name)
            for topic in request.topics
        ]
    )


def _unknown_topic(name: str) -> DescribeTopicPartitionsResponseTopic:
    bad_name = topic_name_problem(name) is not None
    code = ErrorCode.INVALID_TOPIC_EXCEPTION if bad_name else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return DescribeTopicPartitionsResponseTopic(
        error_code=int(code),
        name=name,
        is_internal=name in INTERNAL_TOPICS,
        topic_authorized_operations=TOPIC_OPERATIONS,
    )


def _describe(
    ctx: RequestContext, topic: TopicMetadata, indexes: list[int]
) -> DescribeTopicPartitionsResponseTopic:
    metadata = ctx.services.metadata
    listener = ctx.session.listener_name
    partitions = []
    for index in indexes:
        plain = partition_answer(metadata, listener, 2, index, topic.partitions[index])
        partitions.append(
            DescribeTopicPartitionsResponsePartition(  # no error without a leader, unlike Metadata
                partition_index=index,
                leader_id=plain.leader_id,
                leader_epoch=plain.leader_epoch,
                replica_nodes=plain.replica_nodes,
                isr_nodes=plain.isr_nodes,
                eligible_leader_replicas=[],
                last_known_elr=[],
                offline_replicas=plain.offline_replicas,
            )
        )
    return DescribeTopicPartitionsResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.is_internal,
        partitions=partitions,
        topic_authorized_operations=TOPIC_OPERATIONS,
    )
