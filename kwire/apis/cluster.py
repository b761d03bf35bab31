"""DescribeCluster (60), DescribeLogDirs (35), AlterReplicaLogDirs (34): brokers and log
directories.

Answers to KafkaApis.handleDescribeCluster, handleAlterReplicaLogDirsRequest and
ReplicaManager.describeLogDirs. DescribeCluster 0-2: v1 endpoint types (KIP-919), v2 fenced brokers
(kwire has none). DescribeLogDirs 0-5: v3 top-level error, v4 volume sizes (KIP-827).
AlterReplicaLogDirs 0-2: no differences.
"""

from __future__ import annotations

from kwire.apis.context import RequestContext
from kwire.apis.metadata import CLUSTER_OPERATIONS
from kwire.protocol.errors import ErrorCode
from kwire.protocol.schemas.cluster import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from kwire.apis.context import Services
    from kwire.replication.log_dirs.directory import LogDirectory

_BROKERS, _CONTROLLERS = 1, 2
_NO_LAG = -1


def handle_describe_cluster(ctx: RequestContext, request: DescribeClusterRequest) -> None:
    """DescribeCluster v0-2."""
    ctx.reply(_describe_cluster(ctx, request))


def _describe_cluster(
    ctx: RequestContext, request: DescribeClusterRequest
) -> DescribeClusterResponse:
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
        response.cluster_authorized_operations = CLUSTER_OPERATIONS
    return response


def handle_describe_log_dirs(ctx: RequestContext, request: DescribeLogDirsRequest) -> None:
    """DescribeLogDirs v0-5. Unknown partitions are left out, as in Kafka."""
    wanted = None
    if request.topics is not None:
        wanted = {(t.topic, index) for t in request.topics for index in t.partitions}
    directories = ctx.services.log_manager.directories
    results = [_directory(ctx.services, directory, wanted) for directory in directories]
    ctx.reply(DescribeLogDirsResponse(results=results))


def handle_alter_replica_log_dirs(ctx: RequestContext, request: AlterReplicaLogDirsRequest) -> None:
    """AlterReplicaLogDirs v0-2. Reply once the move has started; DescribeLogDirs shows progress."""
    manager = ctx.services.replica_manager
    results: dict[str, AlterReplicaLogDirTopicResult] = {}
    for directory in request.dirs:
        path = directory.path.rstrip("/") or directory.path
        if path == ctx.services.log_dir:
            path = manager.log_manager.directories[0].path or path
        for topic in directory.topics:
            result = results.get(topic.name)
            if result is None:
                result = results[topic.name] = AlterReplicaLogDirTopicResult(topic_name=topic.name)
            for index in topic.partitions:
                code = manager.moves.alter((topic.name, index), path)
                result.partitions.append(
                    AlterReplicaLogDirPartitionResult(partition_index=index, error_code=int(code))
                )
    ctx.reply(AlterReplicaLogDirsResponse(results=list(results.values())))


def _directory(
    services: Services, directory: LogDirectory, wanted: set[tuple[str, int]] | None
) -> DescribeLogDirsResult:
    path = directory.path or services.log_dir
    if not directory.is_online:
        return DescribeLogDirsResult(log_dir=path, error_code=int(ErrorCode.KAFKA_STORAGE_ERROR))
    topics: dict[str, DescribeLogDirsTopic] = {}
    for log in directory.all_logs():
        key = (log.topic, log.partition)
        if wanted is not None and key not in wanted:
            continue
        topic = topics.get(log.topic)
        if topic is None:
            topic = topics[log.topic] = DescribeLogDirsTopic(name=log.topic)
        if directory.logs.get(key) is log:
            # How far the high watermark is ahead of the log: 0 on a leader.
            lag = max(log.high_watermark - log.log_end_offset, 0)
        else:  # a future replica: its lag behind the current one
            current = services.log_manager.get(*key)
            lag = _NO_LAG if current is None else current.log_end_offset - log.log_end_offset
        topic.partitions.append(
            DescribeLogDirsPartition(
                partition_index=log.partition,
                partition_size=log.size_bytes,
                offset_lag=lag,
                is_future_key=directory.logs.get(key) is not log,
            )
        )
    result = DescribeLogDirsResult(log_dir=path, topics=list(topics.values()))
    if services.disk_space is not None:
        try:
            result.total_bytes, result.usable_bytes = services.disk_space(path)
        except OSError as error:
            directory.handle_error(error, "cannot tell the size of its file system")
            return DescribeLogDirsResult(
                log_dir=path, error_code=int(ErrorCode.KAFKA_STORAGE_ERROR)
            )
    return result
