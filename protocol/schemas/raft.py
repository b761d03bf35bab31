"""The quorum of controllers (KIP-595, KIP-630, KIP-853)."""

from __future__ import annotations

from kwire.protocol.language.schema import (
    BOOLEAN,
    INT16,
    INT32,
    INT64,
    RECORDS,
    STRING,
    UINT16,
    UUID,
    Buffer,
    Message,
    Struct,
    array,
    field,
)


class PartitionData(Struct):
    partition_index: int = field(INT32)
    replica_epoch: int = field(INT32, former="candidate_epoch")
    replica_id: int = field(INT32, former="candidate_id")
    replica_directory_id: bytes = field(UUID, "1+", ignorable=True, former="candidate_directory_id")
    voter_directory_id: bytes = field(UUID, "1+", ignorable=True)
    last_offset_epoch: int = field(INT32)
    last_offset: int = field(INT64)
    pre_vote: bool = field(BOOLEAN, "2+")


class TopicData(Struct):
    topic_name: str = field(STRING)
    partitions: list[PartitionData] = field(array(PartitionData))


class VoteRequest(Message, versions="0-2", flexible="0+"):
    """A candidate asks a voter for its vote (KIP-595, KIP-996)."""

    cluster_id: str | None = field(STRING, nullable="0+", default=None)
    voter_id: int = field(INT32, "1+", default=-1, ignorable=True)
    topics: list[TopicData] = field(array(TopicData))


class VoteResponsePartitionData(Struct, kafka_name="PartitionData"):
    partition_index: int = field(INT32)
    error_code: int = field(INT16)
    leader_id: int = field(INT32)
    leader_epoch: int = field(INT32)
    vote_granted: bool = field(BOOLEAN)


class VoteResponseTopicData(Struct, kafka_name="TopicData"):
    topic_name: str = field(STRING)
    partitions: list[VoteResponsePartitionData] = field(array(VoteResponsePartitionData))


class NodeEndpoint(Struct):
    node_id: int = field(INT32)
    host: str = field(STRING)
    port: int = field(UINT16)


class VoteResponse(Message, versions="0-2", flexible="0+"):
    """Whether the vote is granted."""

    error_code: int = field(INT16)
    topics: list[VoteResponseTopicData] = field(array(VoteResponseTopicData))
    node_endpoints: list[NodeEndpoint] = field(array(NodeEndpoint), "1+", tag=0)


class BeginQuorumEpochRequestPartitionData(Struct, kafka_name="PartitionData"):
    partition_index: int = field(INT32)
    voter_directory_id: bytes = field(UUID, "1+", ignorable=True)
    leader_id: int = field(INT32)
    leader_epoch: int = field(INT32)


class BeginQuorumEpochRequestTopicData(Struct, kafka_name="TopicData"):
    topic_name: str = field(STRING)
    partitions: list[BeginQuorumEpochRequestPartitionData] = field(
        array(BeginQuorumEpochRequestPartitionData)
    )


class LeaderEndpoint(Struct):
    name: str = field(STRING)
    host: str = field(STRING)
    port: int = field(UINT16)


class BeginQuorumEpochRequest(Message, versions="0-1", flexible="1+"):
    """A new leader of the quorum announces itself (KIP-595)."""

    cluster_id: str | None = field(STRING, nullable="0+", default=None)
    voter_id: int = field(INT32, "1+", default=-1, ignorable=True)
    topics: list[BeginQuorumEpochRequestTopicData] = field(array(BeginQuorumEpochRequestTopicData))
    leader_endpoints: list[LeaderEndpoint] = field(array(LeaderEndpoint), "1+", ignorable=True)


class BeginQuorumEpochResponsePartitionData(Struct, kafka_name="PartitionData"):
    partition_index: int = field(INT32)
    error_code: int = field(INT16)
    leader_id: int = field(INT32)
    leader_epoch: int = field(INT32)


class BeginQuorumEpochResponseTopicData(Struct, kafka_name="TopicData"):
    topic_name: str = field(STRING)
    partitions: list[BeginQuorumEpochResponsePartitionData] = field(
        array(BeginQuorumEpochResponsePartitionData)
    )


class BeginQuorumEpochResponse(Message, versions="0-1", flexible="1+"):
    """The outcome."""

    error_code: int = field(INT16)
    topics: list[BeginQuorumEpochResponseTopicData] = field(
        array(BeginQuorumEpochResponseTopicData)
    )
    node_endpoints: list[NodeEndpoint] = field(array(NodeEndpoint), "1+", tag=0)


class ReplicaInfo(Struct):
    candidate_id: int = field(INT32)
    candidate_directory_id: bytes = field(UUID)


class EndQuorumEpochRequestPartitionData(Struct, kafka_name="PartitionData"):
    partition_index: int = field(INT32)
    leader_id: int = field(INT32)
    leader_epoch: int = field(INT32)
    preferred_successors: list[int] = field(array(INT32), "0", ignorable=True)
    preferred_candidates: list[ReplicaInfo] = field(array(ReplicaInfo), "1+", ignorable=True)


class EndQuorumEpochRequestTopicData(Struct, kafka_name="TopicData"):
    topic_name: str = field(STRING)
    partitions: list[EndQuorumEpochRequestPartitionData] = field(
        array(EndQuorumEpochRequestPartitionData)
    )


class EndQuorumEpochRequest(Message, versions="0-1", flexible="1+"):
    """A leader of the quorum steps down (KIP-595)."""

    cluster_id: str | None = field(STRING, nullable="0+", default=None)
    topics: list[EndQuorumEpochRequestTopicData] = field(array(EndQuorumEpochRequestTopicData))
    leader_endpoints: list[LeaderEndpoint] = field(array(LeaderEndpoint), "1+", ignorable=True)


class EndQuorumEpochResponsePartitionData(Struct, kafka_name="PartitionData"):
    partition_index: int = field(INT32)
    error_code: int = field(INT16)
    leader_id: int = field(INT32)
    leader_epoch: int = field(INT32)


class EndQuorumEpochResponseTopicData(Struct, kafka_name="TopicData"):
    topic_name: str = field(STRING)
    partitions: list[EndQuorumEpochResponsePartitionData] = field(
        array(EndQuorumEpochResponsePartitionData)
    )


class EndQuorumEpochResponse(Message, versions="0-1", flexible="1+"):
    """The outcome."""

    error_code: int = field(INT16)
    topics: list[EndQuorumEpochResponseTopicData] = field(array(EndQuorumEpochResponseTopicData))
    node_endpoints: list[NodeEndpoint] = field(array(NodeEndpoint), "1+", tag=0)


class DescribeQuorumRequestPartitionData(Struct, kafka_name="PartitionData"):
    partition_index: int = field(INT32)


class DescribeQuorumRequestTopicData(Struct, kafka_name="TopicData"):
    topic_name: str = field(STRING)
    partitions: list[DescribeQuorumRequestPartitionData] = field(
        array(DescribeQuorumRequestPartitionData)
    )


class DescribeQuorumRequest(Message, versions="0-2", flexible="0+"):
    """Asks for the state of the quorum (KIP-836)."""

    topics: list[DescribeQuorumRequestTopicData] = field(array(DescribeQuorumRequestTopicData))


class ReplicaState(Struct):
    replica_id: int = field(INT32)
    replica_directory_id: bytes = field(UUID, "2+")
    log_end_offset: int = field(INT64)
    last_fetch_timestamp: int = field(INT64, "1+", default=-1, ignorable=True)
    last_caught_up_timestamp: int = field(INT64, "1+", default=-1, ignorable=True)


class DescribeQuorumResponsePartitionData(Struct, kafka_name="PartitionData"):
    partition_index: int = field(INT32)
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, "2+", nullable="0+", ignorable=True)
    leader_id: int = field(INT32)
    leader_epoch: int = field(INT32)
    high_watermark: int = field(INT64)
    current_voters: list[ReplicaState] = field(array(ReplicaState))
    observers: list[ReplicaState] = field(array(ReplicaState))


class DescribeQuorumResponseTopicData(Struct, kafka_name="TopicData"):
    topic_name: str = field(STRING)
    partitions: list[DescribeQuorumResponsePartitionData] = field(
        array(DescribeQuorumResponsePartitionData)
    )


class Listener(Struct):
    name: str = field(STRING)
    host: str = field(STRING)
    port: int = field(UINT16)


class Node(Struct):
    node_id: int = field(INT32)
    listeners: list[Listener] = field(array(Listener))


class DescribeQuorumResponse(Message, versions="0-2", flexible="0+"):
    """Leader, voters and observers with their offsets."""

    error_code: int = field(INT16)
    error_message: str | None = field(STRING, "2+", nullable="0+", ignorable=True)
    topics: list[DescribeQuorumResponseTopicData] = field(array(DescribeQuorumResponseTopicData))
    nodes: list[Node] = field(array(Node), "2+")


class SnapshotId(Struct):
    end_offset: int = field(INT64)
    epoch: int = field(INT32)


class PartitionSnapshot(Struct):
    partition: int = field(INT32)
    current_leader_epoch: int = field(INT32)
    snapshot_id: SnapshotId = field(SnapshotId)
    position: int = field(INT64)
    replica_directory_id: bytes = field(UUID, "1+", tag=0, ignorable=True)


class TopicSnapshot(Struct):
    name: str = field(STRING)
    partitions: list[PartitionSnapshot] = field(array(PartitionSnapshot))


class FetchSnapshotRequest(Message, versions="0-1", flexible="0+"):
    """Reads a piece of a snapshot (KIP-630)."""

    cluster_id: str | None = field(STRING, nullable="0+", default=None, tag=0)
    replica_id: int = field(INT32, default=-1)
    max_bytes: int = field(INT32, default=2147483647)
    topics: list[TopicSnapshot] = field(array(TopicSnapshot))


class LeaderIdAndEpoch(Struct):
    leader_id: int = field(INT32)
    leader_epoch: int = field(INT32)


class FetchSnapshotResponsePartitionSnapshot(Struct, kafka_name="PartitionSnapshot"):
    index: int = field(INT32)
    error_code: int = field(INT16)
    snapshot_id: SnapshotId = field(SnapshotId)
    current_leader: LeaderIdAndEpoch = field(LeaderIdAndEpoch, tag=0)
    size: int = field(INT64)
    position: int = field(INT64)
    unaligned_records: Buffer | None = field(RECORDS, default=None)


class FetchSnapshotResponseTopicSnapshot(Struct, kafka_name="TopicSnapshot"):
    name: str = field(STRING)
    partitions: list[FetchSnapshotResponsePartitionSnapshot] = field(
        array(FetchSnapshotResponsePartitionSnapshot)
    )


class FetchSnapshotResponse(Message, versions="0-1", flexible="0+"):
    """The piece."""

    throttle_time_ms: int = field(INT32)
    error_code: int = field(INT16)
    topics: list[FetchSnapshotResponseTopicSnapshot] = field(
        array(FetchSnapshotResponseTopicSnapshot)
    )
    node_endpoints: list[NodeEndpoint] = field(array(NodeEndpoint), "1+", tag=0)


class AddRaftVoterRequest(Message, versions="0-1", flexible="0+"):
    """Adds a voter to the quorum (KIP-853)."""

    cluster_id: str | None = field(STRING, nullable="0+")
    timeout_ms: int = field(INT32)
    voter_id: int = field(INT32)
    voter_directory_id: bytes = field(UUID)
    listeners: list[Listener] = field(array(Listener))
    ack_when_committed: bool = field(BOOLEAN, "1+", default=True)


class AddRaftVoterResponse(Message, versions="0-1", flexible="0+"):
    """The outcome."""

    throttle_time_ms: int = field(INT32)
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, nullable="0+")


class RemoveRaftVoterRequest(Message, versions="0", flexible="0+"):
    """Removes a voter from the quorum (KIP-853)."""

    cluster_id: str | None = field(STRING, nullable="0+")
    voter_id: int = field(INT32)
    voter_directory_id: bytes = field(UUID)


class RemoveRaftVoterResponse(Message, versions="0", flexible="0+"):
    """The outcome."""

    throttle_time_ms: int = field(INT32)
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, nullable="0+")


class KRaftVersionFeature(Struct):
    min_supported_version: int = field(INT16)
    max_supported_version: int = field(INT16)


class UpdateRaftVoterRequest(Message, versions="0", flexible="0+"):
    """A voter tells its endpoints and versions (KIP-853)."""

    cluster_id: str | None = field(STRING, nullable="0+")
    current_leader_epoch: int = field(INT32)
    voter_id: int = field(INT32)
    voter_directory_id: bytes = field(UUID)
    listeners: list[Listener] = field(array(Listener))
    kraft_version_feature: KRaftVersionFeature = field(KRaftVersionFeature)


class CurrentLeader(Struct):
    leader_id: int = field(INT32, default=-1)
    leader_epoch: int = field(INT32, default=-1)
    host: str = field(STRING)
    port: int = field(INT32)


class UpdateRaftVoterResponse(Message, versions="0", flexible="0+"):
    """The outcome, and the leader."""

    throttle_time_ms: int = field(INT32)
    error_code: int = field(INT16)
    current_leader: CurrentLeader = field(CurrentLeader, tag=0)
