"""Records of `__consumer_offsets`: group state as a log.

Before the key stands its record type, before the value its version, each an int16. Keys have one version only: what
Kafka 3.9 calls the version of a key is the record type."""

from __future__ import annotations

from kwire.protocol.language.schema import (
    BYTES,
    INT8,
    INT16,
    INT32,
    INT64,
    STRING,
    UINT16,
    UUID,
    Message,
    Struct,
    array,
    field,
)


class LegacyOffsetCommitKey(Message, versions="0", record_type=0):
    """The oldest key of a committed offset; read, not written."""

    group: str = field(STRING)
    topic: str = field(STRING)
    partition: int = field(INT32)


class LegacyOffsetCommitValue(Message, versions="0", record_type=0):
    """The value under the oldest key."""

    offset: int = field(INT64)
    metadata: str = field(STRING)
    commit_timestamp: int = field(INT64)


class OffsetCommitKey(Message, versions="0", record_type=1):
    """Key of a committed offset."""

    group: str = field(STRING)
    topic: str = field(STRING)
    partition: int = field(INT32)


class OffsetCommitValue(Message, versions="0-4", flexible="4+", record_type=1):
    """A committed offset."""

    offset: int = field(INT64)
    leader_epoch: int = field(INT32, "3+", default=-1, ignorable=True)
    metadata: str = field(STRING)
    commit_timestamp: int = field(INT64)
    expire_timestamp: int = field(INT64, "1", default=-1, ignorable=True)
    topic_id: bytes = field(UUID, "4+", tag=0, ignorable=True)


class GroupMetadataKey(Message, versions="0", record_type=2):
    """Key of a group of the classic protocol."""

    group: str = field(STRING)


class MemberMetadata(Struct):
    member_id: str = field(STRING)
    group_instance_id: str | None = field(STRING, "3+", nullable="0+", default=None, ignorable=True)
    client_id: str = field(STRING)
    client_host: str = field(STRING)
    rebalance_timeout: int = field(INT32, "1+", default=-1, ignorable=True)
    session_timeout: int = field(INT32)
    subscription: bytes = field(BYTES)
    assignment: bytes = field(BYTES)


class GroupMetadataValue(Message, versions="0-4", flexible="4+", record_type=2):
    """A group of the classic protocol after a rebalance, with its members."""

    protocol_type: str = field(STRING)
    generation: int = field(INT32)
    protocol: str | None = field(STRING, nullable="0+")
    leader: str | None = field(STRING, nullable="0+")
    current_state_timestamp: int = field(INT64, "2+", default=-1, ignorable=True)
    members: list[MemberMetadata] = field(array(MemberMetadata))


class ConsumerGroupMetadataKey(Message, versions="0", record_type=3):
    """Key of a consumer group's epoch (KIP-848)."""

    group_id: str = field(STRING)


class ConsumerGroupMetadataValue(Message, versions="0", flexible="0+", record_type=3):
    """A consumer group's epoch."""

    epoch: int = field(INT32)
    metadata_hash: int = field(INT64, tag=0)


class ConsumerGroupPartitionMetadataKey(Message, versions="0", record_type=4):
    """Key of the partitions that a consumer group last saw."""

    group_id: str = field(STRING)


class PartitionMetadata(Struct):
    partition: int = field(INT32)
    racks: list[str] = field(array(STRING))


class TopicMetadata(Struct):
    topic_id: bytes = field(UUID)
    topic_name: str = field(STRING)
    num_partitions: int = field(INT32)
    partition_metadata: list[PartitionMetadata] = field(array(PartitionMetadata))


class ConsumerGroupPartitionMetadataValue(Message, versions="0", flexible="0+", record_type=4):
    """Topics that a consumer group subscribes to, as last seen."""

    topics: list[TopicMetadata] = field(array(TopicMetadata))


class ConsumerGroupMemberMetadataKey(Message, versions="0", record_type=5):
    """Key of a consumer group's member."""

    group_id: str = field(STRING)
    member_id: str = field(STRING)


class ClassicProtocol(Struct):
    name: str = field(STRING)
    metadata: bytes = field(BYTES)


class ClassicMemberMetadata(Struct):
    session_timeout_ms: int = field(INT32)
    supported_protocols: list[ClassicProtocol] = field(array(ClassicProtocol))


class ConsumerGroupMemberMetadataValue(Message, versions="0", flexible="0+", record_type=5):
    """A member's subscription."""

    instance_id: str | None = field(STRING, nullable="0+")
    rack_id: str | None = field(STRING, nullable="0+")
    client_id: str = field(STRING)
    client_host: str = field(STRING)
    subscribed_topic_names: list[str] = field(array(STRING))
    subscribed_topic_regex: str | None = field(STRING, nullable="0+")
    rebalance_timeout_ms: int = field(INT32, default=-1)
    server_assignor: str | None = field(STRING, nullable="0+")
    classic_member_metadata: ClassicMemberMetadata | None = field(
        ClassicMemberMetadata, nullable="0+", tag=0
    )


class ConsumerGroupTargetAssignmentMetadataKey(Message, versions="0", record_type=6):
    """Key of a target assignment's epoch."""

    group_id: str = field(STRING)


class ConsumerGroupTargetAssignmentMetadataValue(
    Message, versions="0", flexible="0+", record_type=6
):
    """The epoch of a target assignment."""

    assignment_epoch: int = field(INT32)
    assignment_timestamp: int = field(INT64, tag=0)


class ConsumerGroupTargetAssignmentMemberKey(Message, versions="0", record_type=7):
    """Key of a member's target assignment."""

    group_id: str = field(STRING)
    member_id: str = field(STRING)


class TopicPartition(Struct):
    topic_id: bytes = field(UUID)
    partitions: list[int] = field(array(INT32))


class ConsumerGroupTargetAssignmentMemberValue(Message, versions="0", flexible="0+", record_type=7):
    """A member's target assignment."""

    topic_partitions: list[TopicPartition] = field(array(TopicPartition))


class ConsumerGroupCurrentMemberAssignmentKey(Message, versions="0", record_type=8):
    """Key of a member's current assignment."""

    group_id: str = field(STRING)
    member_id: str = field(STRING)


class TopicPartitions(Struct):
    topic_id: bytes = field(UUID)
    partitions: list[int] = field(array(INT32))
    assignment_epochs: list[int] | None = field(array(INT32), nullable="0+", tag=0)


class ConsumerGroupCurrentMemberAssignmentValue(
    Message, versions="0", flexible="0+", record_type=8
):
    """What a member owns and has to give up."""

    member_epoch: int = field(INT32)
    previous_member_epoch: int = field(INT32)
    state: int = field(INT8)
    assigned_partitions: list[TopicPartitions] = field(array(TopicPartitions))
    partitions_pending_revocation: list[TopicPartitions] = field(array(TopicPartitions))


class ShareGroupPartitionMetadataKey(Message, versions="0", record_type=9):
    """Key of the partitions that a share group last saw; in Kafka 3.9 only."""

    group_id: str = field(STRING)


class TopicPartitionsInfo(Struct):
    topic_id: bytes = field(UUID)
    topic_name: str = field(STRING)
    partitions: list[int] = field(array(INT32))


class TopicInfo(Struct):
    topic_id: bytes = field(UUID)
    topic_name: str = field(STRING)


class ShareGroupPartitionMetadataValue(Message, versions="0", flexible="0+", record_type=9):
    """Partitions that a share group last saw; in Kafka 3.9 only."""

    initialized_topics: list[TopicPartitionsInfo] = field(array(TopicPartitionsInfo))
    deleting_topics: list[TopicInfo] = field(array(TopicInfo))


class ShareGroupMemberMetadataKey(Message, versions="0", record_type=10):
    """Key of a share group's member."""

    group_id: str = field(STRING)
    member_id: str = field(STRING)


class ShareGroupMemberMetadataValue(Message, versions="0", flexible="0+", record_type=10):
    """A member's subscription."""

    rack_id: str | None = field(STRING, nullable="0+")
    client_id: str = field(STRING)
    client_host: str = field(STRING)
    subscribed_topic_names: list[str] = field(array(STRING))


class ShareGroupMetadataKey(Message, versions="0", record_type=11):
    """Key of a share group's epoch."""

    group_id: str = field(STRING)


class UnstableShareGroupMetadataValue(Message, versions="0", flexible="0+", record_type=11):
    """Version 0 as the unstable share groups of Kafka 3.9 had it; 4.x has another layout."""

    epoch: int = field(INT32)


class ShareGroupMetadataValue(Message, versions="0", flexible="0+", record_type=11):
    """A share group's epoch."""

    epoch: int = field(INT32)
    metadata_hash: int = field(INT64)


class ShareGroupTargetAssignmentMetadataKey(Message, versions="0", record_type=12):
    """Key of a target assignment's epoch."""

    group_id: str = field(STRING)


class ShareGroupTargetAssignmentMetadataValue(Message, versions="0", flexible="0+", record_type=12):
    """The epoch of a target assignment."""

    assignment_epoch: int = field(INT32)
    assignment_timestamp: int = field(INT64, tag=0)


class ShareGroupTargetAssignmentMemberKey(Message, versions="0", record_type=13):
    """Key of a member's target assignment."""

    group_id: str = field(STRING)
    member_id: str = field(STRING)


class ShareGroupTargetAssignmentMemberValue(Message, versions="0", flexible="0+", record_type=13):
    """A member's target assignment."""

    topic_partitions: list[TopicPartition] = field(array(TopicPartition))


class ShareGroupCurrentMemberAssignmentKey(Message, versions="0", record_type=14):
    """Key of a member's current assignment."""

    group_id: str = field(STRING)
    member_id: str = field(STRING)


class ShareGroupCurrentMemberAssignmentValueTopicPartitions(Struct, kafka_name="TopicPartitions"):
    topic_id: bytes = field(UUID)
    partitions: list[int] = field(array(INT32))


class ShareGroupCurrentMemberAssignmentValue(Message, versions="0", flexible="0+", record_type=14):
    """What a member reads now."""

    member_epoch: int = field(INT32)
    previous_member_epoch: int = field(INT32)
    state: int = field(INT8)
    assigned_partitions: list[ShareGroupCurrentMemberAssignmentValueTopicPartitions] = field(
        array(ShareGroupCurrentMemberAssignmentValueTopicPartitions)
    )


class ShareGroupStatePartitionMetadataKey(Message, versions="0", record_type=15):
    """Key of the shared partitions whose state exists."""

    group_id: str = field(STRING)


class ShareGroupStatePartitionMetadataValue(Message, versions="0", flexible="0+", record_type=15):
    """Shared partitions being initialized, initialized and being deleted."""

    initializing_topics: list[TopicPartitionsInfo] = field(array(TopicPartitionsInfo))
    initialized_topics: list[TopicPartitionsInfo] = field(array(TopicPartitionsInfo))
    deleting_topics: list[TopicInfo] = field(array(TopicInfo))


class ConsumerGroupRegularExpressionKey(Message, versions="0", record_type=16):
    """Key of a resolved regular expression."""

    group_id: str = field(STRING)
    regular_expression: str = field(STRING)


class ConsumerGroupRegularExpressionValue(Message, versions="0", flexible="0+", record_type=16):
    """The topics that a regular expression matched."""

    topics: list[str] = field(array(STRING))
    version: int = field(INT64)
    timestamp: int = field(INT64)


class StreamsGroupMetadataKey(Message, versions="0", record_type=17):
    """Key of a streams group's epoch."""

    group_id: str = field(STRING)


class LastAssignmentConfig(Struct):
    key: str = field(STRING)
    value: str = field(STRING)


class StreamsGroupMetadataValue(Message, versions="0", flexible="0+", record_type=17):
    """A streams group's epoch."""

    epoch: int = field(INT32)
    metadata_hash: int = field(INT64)
    validated_topology_epoch: int = field(INT32, default=-1, tag=0)
    last_assignment_configs: list[LastAssignmentConfig] | None = field(
        array(LastAssignmentConfig), nullable="0+", tag=1
    )
    stored_description_topology_epoch: int = field(INT32, default=-1, tag=2)
    failed_description_topology_epoch: int = field(INT32, default=-1, tag=3)


class StreamsGroupMemberMetadataKey(Message, versions="0", record_type=19):
    """Key of a streams group's member."""

    group_id: str = field(STRING)
    member_id: str = field(STRING)


class Endpoint(Struct):
    host: str = field(STRING)
    port: int = field(UINT16)


class KeyValue(Struct):
    key: str = field(STRING)
    value: str = field(STRING)


class StreamsGroupMemberMetadataValue(Message, versions="0", flexible="0+", record_type=19):
    """A member's process and endpoint."""

    instance_id: str | None = field(STRING, nullable="0+")
    rack_id: str | None = field(STRING, nullable="0+")
    client_id: str = field(STRING)
    client_host: str = field(STRING)
    rebalance_timeout_ms: int = field(INT32, default=-1)
    topology_epoch: int = field(INT32)
    process_id: str = field(STRING)
    user_endpoint: Endpoint | None = field(Endpoint, nullable="0+", default=None)
    client_tags: list[KeyValue] = field(array(KeyValue))


class StreamsGroupTargetAssignmentMetadataKey(Message, versions="0", record_type=20):
    """Key of a target assignment's epoch."""

    group_id: str = field(STRING)


class StreamsGroupTargetAssignmentMetadataValue(
    Message, versions="0", flexible="0+", record_type=20
):
    """The epoch of a target assignment."""

    assignment_epoch: int = field(INT32)
    assignment_timestamp: int = field(INT64, tag=0)


class StreamsGroupTargetAssignmentMemberKey(Message, versions="0", record_type=21):
    """Key of a member's target tasks."""

    group_id: str = field(STRING)
    member_id: str = field(STRING)


class TaskIds(Struct):
    subtopology_id: str = field(STRING)
    partitions: list[int] = field(array(INT32))


class StreamsGroupTargetAssignmentMemberValue(Message, versions="0", flexible="0+", record_type=21):
    """A member's target tasks."""

    active_tasks: list[TaskIds] = field(array(TaskIds))
    standby_tasks: list[TaskIds] = field(array(TaskIds))
    warmup_tasks: list[TaskIds] = field(array(TaskIds))


class StreamsGroupCurrentMemberAssignmentKey(Message, versions="0", record_type=22):
    """Key of a member's current tasks."""

    group_id: str = field(STRING)
    member_id: str = field(STRING)


class StreamsGroupCurrentMemberAssignmentValueTaskIds(Struct, kafka_name="TaskIds"):
    subtopology_id: str = field(STRING)
    partitions: list[int] = field(array(INT32))
    assignment_epochs: list[int] | None = field(array(INT32), nullable="0+", tag=0)


class StreamsGroupCurrentMemberAssignmentValue(
    Message, versions="0", flexible="0+", record_type=22
):
    """The tasks that a member owns."""

    member_epoch: int = field(INT32)
    previous_member_epoch: int = field(INT32)
    state: int = field(INT8)
    active_tasks: list[StreamsGroupCurrentMemberAssignmentValueTaskIds] = field(
        array(StreamsGroupCurrentMemberAssignmentValueTaskIds)
    )
    standby_tasks: list[StreamsGroupCurrentMemberAssignmentValueTaskIds] = field(
        array(StreamsGroupCurrentMemberAssignmentValueTaskIds)
    )
    warmup_tasks: list[StreamsGroupCurrentMemberAssignmentValueTaskIds] = field(
        array(StreamsGroupCurrentMemberAssignmentValueTaskIds)
    )
    active_tasks_pending_revocation: list[StreamsGroupCurrentMemberAssignmentValueTaskIds] = field(
        array(StreamsGroupCurrentMemberAssignmentValueTaskIds)
    )
    standby_tasks_pending_revocation: list[StreamsGroupCurrentMemberAssignmentValueTaskIds] = field(
        array(StreamsGroupCurrentMemberAssignmentValueTaskIds)
    )
    warmup_tasks_pending_revocation: list[StreamsGroupCurrentMemberAssignmentValueTaskIds] = field(
        array(StreamsGroupCurrentMemberAssignmentValueTaskIds)
    )


class StreamsGroupTopologyKey(Message, versions="0", record_type=23):
    """Key of a streams group's topology."""

    group_id: str = field(STRING)


class TopicConfig(Struct):
    key: str = field(STRING)
    value: str = field(STRING)


class StreamsGroupTopologyValueTopicInfo(Struct, kafka_name="TopicInfo"):
    name: str = field(STRING)
    partitions: int = field(INT32)
    replication_factor: int = field(INT16)
    topic_configs: list[TopicConfig] = field(array(TopicConfig))


class CopartitionGroup(Struct):
    source_topics: list[int] = field(array(INT16))
    source_topic_regex: list[int] = field(array(INT16))
    repartition_source_topics: list[int] = field(array(INT16))


class Subtopology(Struct):
    subtopology_id: str = field(STRING)
    source_topics: list[str] = field(array(STRING))
    source_topic_regex: list[str] = field(array(STRING))
    state_changelog_topics: list[StreamsGroupTopologyValueTopicInfo] = field(
        array(StreamsGroupTopologyValueTopicInfo)
    )
    repartition_sink_topics: list[str] = field(array(STRING))
    repartition_source_topics: list[StreamsGroupTopologyValueTopicInfo] = field(
        array(StreamsGroupTopologyValueTopicInfo)
    )
    copartition_groups: list[CopartitionGroup] = field(array(CopartitionGroup))


class StreamsGroupTopologyValue(Message, versions="0", flexible="0+", record_type=23):
    """A streams group's topology."""

    epoch: int = field(INT32)
    subtopologies: list[Subtopology] = field(array(Subtopology))
