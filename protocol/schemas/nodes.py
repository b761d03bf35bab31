"""Brokers and controllers registering with the active controller (KIP-631)."""

from __future__ import annotations

from kwire.protocol.language.schema import (
    BOOLEAN,
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


class Listener(Struct):
    name: str = field(STRING)
    host: str = field(STRING)
    port: int = field(UINT16)
    security_protocol: int = field(INT16)


class Feature(Struct):
    name: str = field(STRING)
    min_supported_version: int = field(INT16)
    max_supported_version: int = field(INT16)


class BrokerRegistrationRequest(Message, versions="0-4", flexible="0+"):
    """A broker registers with the controller (KIP-631)."""

    broker_id: int = field(INT32)
    cluster_id: str = field(STRING)
    incarnation_id: bytes = field(UUID)
    listeners: list[Listener] = field(array(Listener))
    features: list[Feature] = field(array(Feature))
    rack: str | None = field(STRING, nullable="0+")
    is_migrating_zk_broker: bool = field(BOOLEAN, "1+")
    log_dirs: list[bytes] = field(array(UUID), "2+", ignorable=True)
    previous_broker_epoch: int = field(INT64, "3+", default=-1, ignorable=True)


class BrokerRegistrationResponse(Message, versions="0-4", flexible="0+"):
    """The broker's epoch."""

    throttle_time_ms: int = field(INT32)
    error_code: int = field(INT16)
    broker_epoch: int = field(INT64, default=-1)


class BrokerHeartbeatRequest(Message, versions="0-2", flexible="0+"):
    """A broker tells the controller that it lives (KIP-631)."""

    broker_id: int = field(INT32)
    broker_epoch: int = field(INT64, default=-1)
    current_metadata_offset: int = field(INT64)
    want_fence: bool = field(BOOLEAN)
    want_shut_down: bool = field(BOOLEAN)
    offline_log_dirs: list[bytes] = field(array(UUID), "1+", tag=0)
    cordoned_log_dirs: list[bytes] | None = field(
        array(UUID), "2+", nullable="0+", default=None, tag=1
    )


class BrokerHeartbeatResponse(Message, versions="0-2", flexible="0+"):
    """Whether it is fenced and may stop."""

    throttle_time_ms: int = field(INT32)
    error_code: int = field(INT16)
    is_caught_up: bool = field(BOOLEAN)
    is_fenced: bool = field(BOOLEAN, default=True)
    should_shut_down: bool = field(BOOLEAN)


class UnregisterBrokerRequest(Message, versions="0", flexible="0+"):
    """Removes a broker's registration."""

    broker_id: int = field(INT32)


class UnregisterBrokerResponse(Message, versions="0", flexible="0+"):
    """The outcome."""

    throttle_time_ms: int = field(INT32)
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, nullable="0+")


class ControllerRegistrationRequest(Message, versions="0", flexible="0+"):
    """A controller registers with the active one (KIP-919)."""

    controller_id: int = field(INT32)
    incarnation_id: bytes = field(UUID)
    zk_migration_ready: bool = field(BOOLEAN)
    listeners: list[Listener] = field(array(Listener))
    features: list[Feature] = field(array(Feature))


class ControllerRegistrationResponse(Message, versions="0", flexible="0+"):
    """The outcome."""

    throttle_time_ms: int = field(INT32)
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, nullable="0+")


class UnregisterControllerRequest(Message, versions="0", flexible="0+"):
    """Removes a controller's registration."""

    controller_id: int = field(INT32)


class UnregisterControllerResponse(Message, versions="0", flexible="0+"):
    """The outcome."""

    throttle_time_ms: int = field(INT32)
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, nullable="0+")


class PartitionData(Struct):
    partition_index: int = field(INT32)


class TopicData(Struct):
    topic_id: bytes = field(UUID)
    partitions: list[PartitionData] = field(array(PartitionData))


class DirectoryData(Struct):
    id: bytes = field(UUID)
    topics: list[TopicData] = field(array(TopicData))


class AssignReplicasToDirsRequest(Message, versions="0", flexible="0+"):
    """A broker tells the controller which directory holds which replica (KIP-858)."""

    broker_id: int = field(INT32)
    broker_epoch: int = field(INT64, default=-1)
    directories: list[DirectoryData] = field(array(DirectoryData))


class AssignReplicasToDirsResponsePartitionData(Struct, kafka_name="PartitionData"):
    partition_index: int = field(INT32)
    error_code: int = field(INT16)


class AssignReplicasToDirsResponseTopicData(Struct, kafka_name="TopicData"):
    topic_id: bytes = field(UUID)
    partitions: list[AssignReplicasToDirsResponsePartitionData] = field(
        array(AssignReplicasToDirsResponsePartitionData)
    )


class AssignReplicasToDirsResponseDirectoryData(Struct, kafka_name="DirectoryData"):
    id: bytes = field(UUID)
    topics: list[AssignReplicasToDirsResponseTopicData] = field(
        array(AssignReplicasToDirsResponseTopicData)
    )


class AssignReplicasToDirsResponse(Message, versions="0", flexible="0+"):
    """The outcome per partition."""

    throttle_time_ms: int = field(INT32)
    error_code: int = field(INT16)
    directories: list[AssignReplicasToDirsResponseDirectoryData] = field(
        array(AssignReplicasToDirsResponseDirectoryData)
    )
