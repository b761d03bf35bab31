"""Between controller and brokers: leadership, in-sync replicas, forwarding.

LeaderAndIsr, StopReplica, UpdateMetadata and ControlledShutdown are those of Kafka 3.9,
the last release that has them."""

from __future__ import annotations

from kwire.protocol.language.schema import (
    BOOLEAN,
    BYTES,
    INT8,
    INT16,
    INT32,
    INT64,
    STRING,
    UUID,
    Message,
    Struct,
    array,
    field,
)


class LeaderAndIsrPartitionState(Struct):
    topic_name: str = field(STRING, "0-1", ignorable=True)
    partition_index: int = field(INT32)
    controller_epoch: int = field(INT32)
    leader: int = field(INT32)
    leader_epoch: int = field(INT32)
    isr: list[int] = field(array(INT32))
    partition_epoch: int = field(INT32)
    replicas: list[int] = field(array(INT32))
    adding_replicas: list[int] = field(array(INT32), "3+", ignorable=True)
    removing_replicas: list[int] = field(array(INT32), "3+", ignorable=True)
    is_new: bool = field(BOOLEAN, "1+", ignorable=True)
    leader_recovery_state: int = field(INT8, "6+")


class LeaderAndIsrTopicState(Struct):
    topic_name: str = field(STRING)
    topic_id: bytes = field(UUID, "5+", ignorable=True)
    partition_states: list[LeaderAndIsrPartitionState] = field(array(LeaderAndIsrPartitionState))


class LeaderAndIsrLiveLeader(Struct):
    broker_id: int = field(INT32)
    host_name: str = field(STRING)
    port: int = field(INT32)


class LeaderAndIsrRequest(Message, versions="0-7", flexible="4+"):
    """The ZooKeeper-mode controller tells a broker which partitions it leads or follows."""

    controller_id: int = field(INT32)
    is_kraft_controller: bool = field(BOOLEAN, "7+")
    controller_epoch: int = field(INT32)
    broker_epoch: int = field(INT64, "2+", default=-1, ignorable=True)
    type: int = field(INT8, "5+")
    ungrouped_partition_states: list[LeaderAndIsrPartitionState] = field(
        array(LeaderAndIsrPartitionState), "0-1"
    )
    topic_states: list[LeaderAndIsrTopicState] = field(array(LeaderAndIsrTopicState), "2+")
    live_leaders: list[LeaderAndIsrLiveLeader] = field(array(LeaderAndIsrLiveLeader))


class LeaderAndIsrPartitionError(Struct):
    topic_name: str = field(STRING, "0-4", ignorable=True)
    partition_index: int = field(INT32)
    error_code: int = field(INT16)


class LeaderAndIsrTopicError(Struct):
    topic_id: bytes = field(UUID)
    partition_errors: list[LeaderAndIsrPartitionError] = field(array(LeaderAndIsrPartitionError))


class LeaderAndIsrResponse(Message, versions="0-7", flexible="4+"):
    """The outcome per partition."""

    error_code: int = field(INT16)
    partition_errors: list[LeaderAndIsrPartitionError] = field(
        array(LeaderAndIsrPartitionError), "0-4"
    )
    topics: list[LeaderAndIsrTopicError] = field(array(LeaderAndIsrTopicError), "5+")


class StopReplicaPartitionV0(Struct):
    topic_name: str = field(STRING)
    partition_index: int = field(INT32)


class StopReplicaTopicV1(Struct):
    name: str = field(STRING)
    partition_indexes: list[int] = field(array(INT32))


class StopReplicaPartitionState(Struct):
    partition_index: int = field(INT32)
    leader_epoch: int = field(INT32, default=-1)
    delete_partition: bool = field(BOOLEAN)


class StopReplicaTopicState(Struct):
    topic_name: str = field(STRING)
    partition_states: list[StopReplicaPartitionState] = field(array(StopReplicaPartitionState))


class StopReplicaRequest(Message, versions="0-4", flexible="2+"):
    """The ZooKeeper-mode controller has a broker stop, and maybe delete, replicas."""

    controller_id: int = field(INT32)
    is_kraft_controller: bool = field(BOOLEAN, "4+")
    controller_epoch: int = field(INT32)
    broker_epoch: int = field(INT64, "1+", default=-1, ignorable=True)
    delete_partitions: bool = field(BOOLEAN, "0-2")
    ungrouped_partitions: list[StopReplicaPartitionV0] = field(array(StopReplicaPartitionV0), "0")
    topics: list[StopReplicaTopicV1] = field(array(StopReplicaTopicV1), "1-2")
    topic_states: list[StopReplicaTopicState] = field(array(StopReplicaTopicState), "3+")


class StopReplicaPartitionError(Struct):
    topic_name: str = field(STRING)
    partition_index: int = field(INT32)
    error_code: int = field(INT16)


class StopReplicaResponse(Message, versions="0-4", flexible="2+"):
    """The outcome per partition."""

    error_code: int = field(INT16)
    partition_errors: list[StopReplicaPartitionError] = field(array(StopReplicaPartitionError))


class UpdateMetadataPartitionState(Struct):
    topic_name: str = field(STRING, "0-4", ignorable=True)
    partition_index: int = field(INT32)
    controller_epoch: int = field(INT32)
    leader: int = field(INT32)
    leader_epoch: int = field(INT32)
    isr: list[int] = field(array(INT32))
    zk_version: int = field(INT32)
    replicas: list[int] = field(array(INT32))
    offline_replicas: list[int] = field(array(INT32), "4+", ignorable=True)


class UpdateMetadataTopicState(Struct):
    topic_name: str = field(STRING)
    topic_id: bytes = field(UUID, "7+", ignorable=True)
    partition_states: list[UpdateMetadataPartitionState] = field(
        array(UpdateMetadataPartitionState)
    )


class UpdateMetadataEndpoint(Struct):
    port: int = field(INT32)
    host: str = field(STRING)
    listener: str = field(STRING, "3+", ignorable=True)
    security_protocol: int = field(INT16)


class UpdateMetadataBroker(Struct):
    id: int = field(INT32)
    v0_host: str = field(STRING, "0", ignorable=True)
    v0_port: int = field(INT32, "0", ignorable=True)
    endpoints: list[UpdateMetadataEndpoint] = field(
        array(UpdateMetadataEndpoint), "1+", ignorable=True
    )
    rack: str | None = field(STRING, "2+", nullable="0+", ignorable=True)


class UpdateMetadataRequest(Message, versions="0-8", flexible="6+"):
    """The ZooKeeper-mode controller pushes what brokers answer Metadata requests from."""

    controller_id: int = field(INT32)
    is_kraft_controller: bool = field(BOOLEAN, "8+")
    type: int = field(INT8, "8+", tag=0)
    controller_epoch: int = field(INT32)
    broker_epoch: int = field(INT64, "5+", default=-1, ignorable=True)
    ungrouped_partition_states: list[UpdateMetadataPartitionState] = field(
        array(UpdateMetadataPartitionState), "0-4"
    )
    topic_states: list[UpdateMetadataTopicState] = field(array(UpdateMetadataTopicState), "5+")
    live_brokers: list[UpdateMetadataBroker] = field(array(UpdateMetadataBroker))


class UpdateMetadataResponse(Message, versions="0-8", flexible="6+"):
    """The outcome."""

    error_code: int = field(INT16)


class ControlledShutdownRequest(Message, versions="0-3", flexible="3+"):
    """A broker asks the controller to move its leaderships away. Version 0 has a request header of its own."""

    broker_id: int = field(INT32)
    broker_epoch: int = field(INT64, "2+", default=-1, ignorable=True)


class RemainingPartition(Struct):
    topic_name: str = field(STRING)
    partition_index: int = field(INT32)


class ControlledShutdownResponse(Message, versions="0-3", flexible="3+"):
    """Partitions that it still leads."""

    error_code: int = field(INT16)
    remaining_partitions: list[RemainingPartition] = field(array(RemainingPartition))


class BrokerState(Struct):
    broker_id: int = field(INT32)
    broker_epoch: int = field(INT64, default=-1)


class PartitionData(Struct):
    partition_index: int = field(INT32)
    leader_epoch: int = field(INT32)
    new_isr: list[int] = field(array(INT32), "0-2")
    new_isr_with_epochs: list[BrokerState] = field(array(BrokerState), "3+")
    leader_recovery_state: int = field(INT8, "1+")
    partition_epoch: int = field(INT32)


class TopicData(Struct):
    topic_name: str = field(STRING, "0-1", ignorable=True)
    topic_id: bytes = field(UUID, "2+", ignorable=True)
    partitions: list[PartitionData] = field(array(PartitionData))


class AlterPartitionRequest(Message, versions="0-3", flexible="0+"):
    """A leader asks the controller to change the in-sync replicas (KIP-497)."""

    broker_id: int = field(INT32)
    broker_epoch: int = field(INT64, default=-1)
    topics: list[TopicData] = field(array(TopicData))


class AlterPartitionResponsePartitionData(Struct, kafka_name="PartitionData"):
    partition_index: int = field(INT32)
    error_code: int = field(INT16)
    leader_id: int = field(INT32)
    leader_epoch: int = field(INT32)
    isr: list[int] = field(array(INT32))
    leader_recovery_state: int = field(INT8, "1+", ignorable=True)
    partition_epoch: int = field(INT32)


class AlterPartitionResponseTopicData(Struct, kafka_name="TopicData"):
    topic_name: str = field(STRING, "0-1", ignorable=True)
    topic_id: bytes = field(UUID, "2+", ignorable=True)
    partitions: list[AlterPartitionResponsePartitionData] = field(
        array(AlterPartitionResponsePartitionData)
    )


class AlterPartitionResponse(Message, versions="0-3", flexible="0+"):
    """The partition's state as it is now."""

    throttle_time_ms: int = field(INT32)
    error_code: int = field(INT16)
    topics: list[AlterPartitionResponseTopicData] = field(array(AlterPartitionResponseTopicData))


class AllocateProducerIdsRequest(Message, versions="0", flexible="0+"):
    """A broker asks the controller for a block of producer ids (KIP-730)."""

    broker_id: int = field(INT32)
    broker_epoch: int = field(INT64, default=-1)


class AllocateProducerIdsResponse(Message, versions="0", flexible="0+"):
    """The block."""

    throttle_time_ms: int = field(INT32)
    error_code: int = field(INT16)
    producer_id_start: int = field(INT64)
    producer_id_len: int = field(INT32)


class EnvelopeRequest(Message, versions="0", flexible="0+"):
    """A broker forwards a client's request to the controller (KIP-590)."""

    request_data: bytes = field(BYTES)
    request_principal: bytes | None = field(BYTES, nullable="0+")
    client_host_address: bytes = field(BYTES)


class EnvelopeResponse(Message, versions="0", flexible="0+"):
    """The response inside."""

    response_data: bytes | None = field(BYTES, nullable="0+", default=None)
    error_code: int = field(INT16)
