"""Streams groups (KIP-1071)."""

from __future__ import annotations

from kwire.protocol.language.schema import (
    BOOLEAN,
    INT8,
    INT16,
    INT32,
    INT64,
    STRING,
    UINT16,
    Message,
    Struct,
    array,
    field,
)


class KeyValue(Struct):
    key: str = field(STRING)
    value: str = field(STRING)


class TopicInfo(Struct):
    name: str = field(STRING)
    partitions: int = field(INT32)
    replication_factor: int = field(INT16)
    topic_configs: list[KeyValue] = field(array(KeyValue))


class CopartitionGroup(Struct):
    source_topics: list[int] = field(array(INT16))
    source_topic_regex: list[int] = field(array(INT16))
    repartition_source_topics: list[int] = field(array(INT16))


class Subtopology(Struct):
    subtopology_id: str = field(STRING)
    source_topics: list[str] = field(array(STRING))
    source_topic_regex: list[str] = field(array(STRING))
    state_changelog_topics: list[TopicInfo] = field(array(TopicInfo))
    repartition_sink_topics: list[str] = field(array(STRING))
    repartition_source_topics: list[TopicInfo] = field(array(TopicInfo))
    copartition_groups: list[CopartitionGroup] = field(array(CopartitionGroup))


class Topology(Struct):
    epoch: int = field(INT32)
    subtopologies: list[Subtopology] = field(array(Subtopology))


class TaskIds(Struct):
    subtopology_id: str = field(STRING)
    partitions: list[int] = field(array(INT32))


class Endpoint(Struct):
    host: str = field(STRING)
    port: int = field(UINT16)


class TaskOffset(Struct):
    subtopology_id: str = field(STRING)
    partition: int = field(INT32)
    offset: int = field(INT64)


class StreamsGroupHeartbeatRequest(Message, versions="0-1", flexible="0+"):
    """Joins, keeps up or leaves a streams group (KIP-1071)."""

    group_id: str = field(STRING)
    member_id: str = field(STRING)
    member_epoch: int = field(INT32)
    endpoint_information_epoch: int = field(INT32)
    instance_id: str | None = field(STRING, nullable="0+", default=None)
    rack_id: str | None = field(STRING, nullable="0+", default=None)
    rebalance_timeout_ms: int = field(INT32, default=-1)
    topology: Topology | None = field(Topology, nullable="0+", default=None)
    active_tasks: list[TaskIds] | None = field(array(TaskIds), nullable="0+", default=None)
    standby_tasks: list[TaskIds] | None = field(array(TaskIds), nullable="0+", default=None)
    warmup_tasks: list[TaskIds] | None = field(array(TaskIds), nullable="0+", default=None)
    process_id: str | None = field(STRING, nullable="0+", default=None)
    user_endpoint: Endpoint | None = field(Endpoint, nullable="0+", default=None)
    client_tags: list[KeyValue] | None = field(array(KeyValue), nullable="0+", default=None)
    task_offsets: list[TaskOffset] | None = field(array(TaskOffset), nullable="0+", default=None)
    task_end_offsets: list[TaskOffset] | None = field(
        array(TaskOffset), nullable="0+", default=None
    )
    shutdown_application: bool = field(BOOLEAN)


class Status(Struct):
    status_code: int = field(INT8)
    status_detail: str = field(STRING)


class TopicPartition(Struct):
    topic: str = field(STRING)
    partitions: list[int] = field(array(INT32))


class EndpointToPartitions(Struct):
    user_endpoint: Endpoint = field(Endpoint)
    active_partitions: list[TopicPartition] = field(array(TopicPartition))
    standby_partitions: list[TopicPartition] = field(array(TopicPartition))


class StreamsGroupHeartbeatResponse(Message, versions="0-1", flexible="0+"):
    """The member's epoch, tasks and endpoints."""

    throttle_time_ms: int = field(INT32)
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, nullable="0+", default=None)
    member_id: str = field(STRING)
    member_epoch: int = field(INT32)
    heartbeat_interval_ms: int = field(INT32)
    acceptable_recovery_lag_legacy: int = field(INT32, "0")
    task_offset_interval_ms: int = field(INT32)
    acceptable_recovery_lag: int = field(INT64, "1+", default=-1, ignorable=True)
    status: list[Status] | None = field(array(Status), nullable="0+")
    active_tasks: list[TaskIds] | None = field(array(TaskIds), nullable="0+", default=None)
    standby_tasks: list[TaskIds] | None = field(array(TaskIds), nullable="0+", default=None)
    warmup_tasks: list[TaskIds] | None = field(array(TaskIds), nullable="0+", default=None)
    topology_description_required: bool = field(BOOLEAN, "1+")
    endpoint_information_epoch: int = field(INT32)
    partitions_by_user_endpoint: list[EndpointToPartitions] | None = field(
        array(EndpointToPartitions), nullable="0+", default=None
    )


class StreamsGroupDescribeRequest(Message, versions="0-1", flexible="0+"):
    """Asks for streams groups (KIP-1071)."""

    group_ids: list[str] = field(array(STRING))
    include_authorized_operations: bool = field(BOOLEAN)
    include_topology_description: bool = field(BOOLEAN, "1+")


class StreamsGroupDescribeResponseSubtopology(Struct, kafka_name="Subtopology"):
    subtopology_id: str = field(STRING)
    source_topics: list[str] = field(array(STRING))
    repartition_sink_topics: list[str] = field(array(STRING))
    state_changelog_topics: list[TopicInfo] = field(array(TopicInfo))
    repartition_source_topics: list[TopicInfo] = field(array(TopicInfo))


class StreamsGroupDescribeResponseTopology(Struct, kafka_name="Topology"):
    epoch: int = field(INT32)
    subtopologies: list[StreamsGroupDescribeResponseSubtopology] | None = field(
        array(StreamsGroupDescribeResponseSubtopology), nullable="0+", default=None
    )


class Assignment(Struct):
    active_tasks: list[TaskIds] = field(array(TaskIds))
    standby_tasks: list[TaskIds] = field(array(TaskIds))
    warmup_tasks: list[TaskIds] = field(array(TaskIds))


class Member(Struct):
    member_id: str = field(STRING)
    member_epoch: int = field(INT32)
    instance_id: str | None = field(STRING, nullable="0+", default=None)
    rack_id: str | None = field(STRING, nullable="0+", default=None)
    client_id: str = field(STRING)
    client_host: str = field(STRING)
    topology_epoch: int = field(INT32)
    process_id: str = field(STRING)
    user_endpoint: Endpoint | None = field(Endpoint, nullable="0+", default=None)
    client_tags: list[KeyValue] = field(array(KeyValue))
    task_offsets: list[TaskOffset] = field(array(TaskOffset))
    task_end_offsets: list[TaskOffset] = field(array(TaskOffset))
    assignment: Assignment = field(Assignment)
    target_assignment: Assignment = field(Assignment)
    is_classic: bool = field(BOOLEAN)


class TopologyDescriptionNode(Struct):
    name: str = field(STRING)
    node_type: int = field(INT8)
    source_topics: list[str] = field(array(STRING))
    sink_topic: str | None = field(STRING, nullable="0+", default=None)
    stores: list[str] = field(array(STRING))
    successors: list[str] = field(array(STRING))


class TopologyDescriptionSubtopology(Struct):
    subtopology_id: str = field(STRING)
    nodes: list[TopologyDescriptionNode] = field(array(TopologyDescriptionNode))


class TopologyDescriptionGlobalStore(Struct):
    source: TopologyDescriptionNode = field(TopologyDescriptionNode)
    processor: TopologyDescriptionNode = field(TopologyDescriptionNode)


class TopologyDescription(Struct):
    subtopologies: list[TopologyDescriptionSubtopology] = field(
        array(TopologyDescriptionSubtopology)
    )
    global_stores: list[TopologyDescriptionGlobalStore] = field(
        array(TopologyDescriptionGlobalStore)
    )


class DescribedGroup(Struct):
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, nullable="0+", default=None)
    group_id: str = field(STRING)
    group_state: str = field(STRING)
    group_epoch: int = field(INT32)
    assignment_epoch: int = field(INT32)
    topology: StreamsGroupDescribeResponseTopology | None = field(
        StreamsGroupDescribeResponseTopology, nullable="0+", default=None
    )
    members: list[Member] = field(array(Member))
    authorized_operations: int = field(INT32, default=-2147483648)
    topology_description: TopologyDescription | None = field(
        TopologyDescription, "1+", nullable="0+", default=None
    )
    topology_description_status: int = field(INT8, "1+")
    assignor_name: str | None = field(STRING, "1+", nullable="0+", default=None, ignorable=True)


class StreamsGroupDescribeResponse(Message, versions="0-1", flexible="0+"):
    """Topology, members and tasks."""

    throttle_time_ms: int = field(INT32)
    groups: list[DescribedGroup] = field(array(DescribedGroup))


class StreamsGroupTopologyDescriptionUpdateRequest(Message, versions="0", flexible="0+"):
    """Stores the description of a streams group's topology."""

    group_id: str = field(STRING)
    member_id: str = field(STRING)
    topology_epoch: int = field(INT32)
    topology_description: TopologyDescription = field(TopologyDescription)


class StreamsGroupTopologyDescriptionUpdateResponse(Message, versions="0", flexible="0+"):
    """The outcome."""

    throttle_time_ms: int = field(INT32)
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, nullable="0+", default=None)
