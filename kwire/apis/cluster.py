"""DescribeCluster (60) and DescribeLogDirs (35): the brokers, and what lies on this one's disk.

Answers to KafkaApis.handleDescribeCluster and ReplicaManager.describeLogDirs. DescribeCluster 0-2: v1 endpoint types
(KIP-919), v2 fenced brokers (kwire has none). DescribeLogDirs 0-5: v3 top-level error, v4 volume sizes (KIP-827).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kwire.apis.context import RequestContext
from kwire.protocol.errors import ErrorCode
from kwire.protocol.schemas.cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)

if TYPE_CHECKING:
    from kwire.replication.log import Log

_CLUSTER_OPERATIONS = 8096  # all bits of AclOperation that a cluster has
_BROKERS, _CONTROLLERS = 1, 2


def handle_describe_cluster(
    ctx: RequestContext, request: DescribeClusterRequest
) -> DescribeClusterResponse:
    """DescribeCluster v0-2."""
    if request.endpoint_type == _CONTROLLERS:
        return DescribeClusterResponse(
            error_code=int(ErrorCode.MISMATCHED_ENDPOINT_TYPE),
            error_message="The request was sent to an endpoint of type BROKER, but we wanted an "
            "endpoint of type CONTROLLER",
        )
    if request.endpoint_type != _BROKERS:
        return DescribeClusterResponse(
            error_code=int(ErrorCode.UNSUPPORTED_ENDPOINT_TYPE),
            error_message=f"Unsupported endpoint type {request.endpoint_type}",
        )
    metadata = ctx.services.metadata
    response = DescribeClusterResponse(cluster_id=ctx.services.cluster_id)
    response.controller_id = (
        metadata.controller_id
        if metadata.controller_id in metadata.brokers
        else next(iter(metadata.brokers), -1)
    )
    for broker in metadata.brokers.values():
        endpoint = broker.endpoints.get(ctx.session.listener_name)
        if endpoint is not None:
            response.brokers.append(
                DescribeClusterBroker(
                    broker_id=broker.id, host=endpoint.host, port=endpoint.port, rack=broker.rack
                )
            )
    if request.include_cluster_authorized_operations:
        response.cluster_authorized_operations = _CLUSTER_OPERATIONS
    return response


def handle_describe_log_dirs(
    ctx: RequestContext, request: DescribeLogDirsRequest
) -> DescribeLogDirsResponse:
    """DescribeLogDirs v0-5. One log directory; unknown partitions are left out, as in Kafka."""
    services = ctx.services
    wanted = None
    if request.topics is not None:
        wanted = {(t.topic, index) for t in request.topics for index in t.partitions}
    topics: dict[str, DescribeLogDirsTopic] = {}
    for log in services.log_manager.logs():
        if wanted is not None and (log.topic, log.partition) not in wanted:
            continue
        topic = topics.get(log.topic)
        if topic is None:
            topic = topics[log.topic] = DescribeLogDirsTopic(name=log.topic)
        topic.partitions.append(_partition(log))
    result = DescribeLogDirsResult(log_dir=services.log_dir, topics=list(topics.values()))
    if services.disk_space is not None:
        result.total_bytes, result.usable_bytes = services.disk_space()
    return DescribeLogDirsResponse(results=[result])


def _partition(log: Log) -> DescribeLogDirsPartition:
    return DescribeLogDirsPartition(
        partition_index=log.partition,
        partition_size=log.size_bytes,
        # How far the high watermark is ahead of the log: nothing on a leader.
        offset_lag=max(log.high_watermark - log.log_end_offset, 0),
    )
