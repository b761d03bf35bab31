"""Responses that refuse requests as a whole, of APIs that a broker answers: getErrorResponse of each request of Kafka.

Here are those without a top-level error, or with more than one; the controller's are in its own table."""

from __future__ import annotations

from kwire.protocol.api import ApiKey
from kwire.protocol.schemas.cluster import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)
from kwire.protocol.schemas.groups import JoinGroupRequest, JoinGroupResponse
from kwire.protocol.schemas.offsets import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from kwire.protocol.schemas.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from kwire.protocol.schemas.quotas import DescribeClientQuotasRequest, DescribeClientQuotasResponse
from kwire.protocol.schemas.transactions import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from kwire.protocol.language.schema import Message


def _produce(request: ProduceRequest, _: int, code: int, message: str) -> ProduceResponse:
    return ProduceResponse(
        responses=[
            produce_topic(topic, code, message if topic.partition_data else None)
            for topic in request.topic_data
        ]
    )


def produce_topic(topic: Any, code: int, message: str | None = None) -> TopicProduceResponse:
    """A topic of a Produce request, refused."""
    return TopicProduceResponse(
        name=topic.name,
        topic_id=topic.topic_id,
        partition_responses=[
            PartitionProduceResponse(
                index=data.index, error_code=code, base_offset=-1, error_message=message
            )
            for data in topic.partition_data
        ],
    )


def _join_group(_: JoinGroupRequest, version: int, code: int, __: str) -> JoinGroupResponse:
    return JoinGroupResponse(error_code=code, protocol_name=None if version >= 7 else "")


def _offset_commit(
    request: OffsetCommitRequest, _: int, code: int, __: str
) -> OffsetCommitResponse:
    return OffsetCommitResponse(topics=[commit_topic(topic, code) for topic in request.topics])


def commit_topic(topic: Any, code: int) -> OffsetCommitResponseTopic:
    """A topic of an OffsetCommit request, refused."""
    return OffsetCommitResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        partitions=[
            OffsetCommitResponsePartition(partition_index=each.partition_index, error_code=code)
            for each in topic.partitions
        ],
    )


def _txn_offset_commit(
    request: TxnOffsetCommitRequest, _: int, code: int, __: str
) -> TxnOffsetCommitResponse:
    topics = [txn_commit_topic(topic, code) for topic in request.topics]
    return TxnOffsetCommitResponse(topics=topics)


def txn_commit_topic(topic: Any, code: int) -> TxnOffsetCommitResponseTopic:
    """A topic of a TxnOffsetCommit request, refused."""
    return TxnOffsetCommitResponseTopic(
        name=topic.name,
        partitions=[
            TxnOffsetCommitResponsePartition(partition_index=each.partition_index, error_code=code)
            for each in topic.partitions
        ],
    )


def _add_partitions(
    request: AddPartitionsToTxnRequest, version: int, code: int, _: str
) -> AddPartitionsToTxnResponse:
    if version >= 4:
        return AddPartitionsToTxnResponse(error_code=code)
    return AddPartitionsToTxnResponse(
        results_by_topic_v3_and_below=[
            AddPartitionsToTxnTopicResult(
                name=topic.name,
                results_by_partition=[
                    AddPartitionsToTxnPartitionResult(partition_index=i, partition_error_code=code)
                    for i in topic.partitions
                ],
            )
            for topic in request.v3_and_below_topics
        ]
    )


def _write_markers(
    request: WriteTxnMarkersRequest, _: int, code: int, __: str
) -> WriteTxnMarkersResponse:
    return WriteTxnMarkersResponse(
        markers=[
            WritableTxnMarkerResult(
                producer_id=marker.producer_id,
                topics=[
                    WritableTxnMarkerTopicResult(
                        name=topic.name,
                        partitions=[
                            WritableTxnMarkerPartitionResult(partition_index=i, error_code=code)
                            for i in topic.partition_indexes
                        ],
                    )
                    for topic in marker.topics
                ],
            )
            for marker in request.markers
        ]
    )


def _alter_log_dirs(
    request: AlterReplicaLogDirsRequest, _: int, code: int, __: str
) -> AlterReplicaLogDirsResponse:
    return AlterReplicaLogDirsResponse(
        results=[
            AlterReplicaLogDirTopicResult(
                topic_name=topic.name,
                partitions=[
                    AlterReplicaLogDirPartitionResult(partition_index=i, error_code=code)
                    for i in topic.partitions
                ],
            )
            for directory in request.dirs
            for topic in directory.topics
        ]
    )


def _describe_quotas(
    _: DescribeClientQuotasRequest, __: int, code: int, message: str
) -> DescribeClientQuotasResponse:
    return DescribeClientQuotasResponse(error_code=code, error_message=message, entries=None)


REFUSALS: dict[ApiKey, Callable[[Any, int, int, str], Message]] = {
    ApiKey.PRODUCE: _produce,
    ApiKey.OFFSET_COMMIT: _offset_commit,
    ApiKey.JOIN_GROUP: _join_group,
    ApiKey.ADD_PARTITIONS_TO_TXN: _add_partitions,
    ApiKey.WRITE_TXN_MARKERS: _write_markers,
    ApiKey.TXN_OFFSET_COMMIT: _txn_offset_commit,
    ApiKey.ALTER_REPLICA_LOG_DIRS: _alter_log_dirs,
    ApiKey.DESCRIBE_CLIENT_QUOTAS: _describe_quotas,
}
