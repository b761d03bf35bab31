"""State of share groups as brokers keep it (KIP-932)."""

from __future__ import annotations

from kwire.protocol.language.schema import (
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


class PartitionData(Struct):
    partition: int = field(INT32)
    state_epoch: int = field(INT32)
    start_offset: int = field(INT64)


class InitializeStateData(Struct):
    topic_id: bytes = field(UUID)
    partitions: list[PartitionData] = field(array(PartitionData))


class InitializeShareGroupStateRequest(Message, versions="0", flexible="0+"):
    """Creates the persisted state of shared partitions (KIP-932)."""

    group_id: str = field(STRING)
    topics: list[InitializeStateData] = field(array(InitializeStateData))


class PartitionResult(Struct):
    partition: int = field(INT32)
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, nullable="0+", default=None)


class InitializeStateResult(Struct):
    topic_id: bytes = field(UUID)
    partitions: list[PartitionResult] = field(array(PartitionResult))


class InitializeShareGroupStateResponse(Message, versions="0", flexible="0+"):
    """The outcome per partition."""

    results: list[InitializeStateResult] = field(array(InitializeStateResult))


class ReadShareGroupStateRequestPartitionData(Struct, kafka_name="PartitionData"):
    partition: int = field(INT32)
    leader_epoch: int = field(INT32)


class ReadStateData(Struct):
    topic_id: bytes = field(UUID)
    partitions: list[ReadShareGroupStateRequestPartitionData] = field(
        array(ReadShareGroupStateRequestPartitionData)
    )


class ReadShareGroupStateRequest(Message, versions="0", flexible="0+"):
    """Reads the persisted state of shared partitions (KIP-932)."""

    group_id: str = field(STRING)
    topics: list[ReadStateData] = field(array(ReadStateData))


class StateBatch(Struct):
    first_offset: int = field(INT64)
    last_offset: int = field(INT64)
    delivery_state: int = field(INT8)
    delivery_count: int = field(INT16)


class ReadShareGroupStateResponsePartitionResult(Struct, kafka_name="PartitionResult"):
    partition: int = field(INT32)
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, nullable="0+", default=None)
    state_epoch: int = field(INT32)
    start_offset: int = field(INT64)
    state_batches: list[StateBatch] = field(array(StateBatch))


class ReadStateResult(Struct):
    topic_id: bytes = field(UUID)
    partitions: list[ReadShareGroupStateResponsePartitionResult] = field(
        array(ReadShareGroupStateResponsePartitionResult)
    )


class ReadShareGroupStateResponse(Message, versions="0", flexible="0+"):
    """State epochs, start offsets and delivery states."""

    results: list[ReadStateResult] = field(array(ReadStateResult))


class WriteShareGroupStateRequestPartitionData(Struct, kafka_name="PartitionData"):
    partition: int = field(INT32)
    state_epoch: int = field(INT32)
    leader_epoch: int = field(INT32)
    start_offset: int = field(INT64)
    delivery_complete_count: int = field(INT32, "1+", default=-1, ignorable=True)
    state_batches: list[StateBatch] = field(array(StateBatch))


class WriteStateData(Struct):
    topic_id: bytes = field(UUID)
    partitions: list[WriteShareGroupStateRequestPartitionData] = field(
        array(WriteShareGroupStateRequestPartitionData)
    )


class WriteShareGroupStateRequest(Message, versions="0-1", flexible="0+"):
    """Writes the persisted state of shared partitions (KIP-932)."""

    group_id: str = field(STRING)
    topics: list[WriteStateData] = field(array(WriteStateData))


class WriteStateResult(Struct):
    topic_id: bytes = field(UUID)
    partitions: list[PartitionResult] = field(array(PartitionResult))


class WriteShareGroupStateResponse(Message, versions="0-1", flexible="0+"):
    """The outcome per partition."""

    results: list[WriteStateResult] = field(array(WriteStateResult))


class DeleteShareGroupStateRequestPartitionData(Struct, kafka_name="PartitionData"):
    partition: int = field(INT32)


class DeleteStateData(Struct):
    topic_id: bytes = field(UUID)
    partitions: list[DeleteShareGroupStateRequestPartitionData] = field(
        array(DeleteShareGroupStateRequestPartitionData)
    )


class DeleteShareGroupStateRequest(Message, versions="0", flexible="0+"):
    """Deletes the persisted state of shared partitions (KIP-932)."""

    group_id: str = field(STRING)
    topics: list[DeleteStateData] = field(array(DeleteStateData))


class DeleteStateResult(Struct):
    topic_id: bytes = field(UUID)
    partitions: list[PartitionResult] = field(array(PartitionResult))


class DeleteShareGroupStateResponse(Message, versions="0", flexible="0+"):
    """The outcome per partition."""

    results: list[DeleteStateResult] = field(array(DeleteStateResult))


class ReadShareGroupStateSummaryRequestPartitionData(Struct, kafka_name="PartitionData"):
    partition: int = field(INT32)
    leader_epoch: int = field(INT32)


class ReadStateSummaryData(Struct):
    topic_id: bytes = field(UUID)
    partitions: list[ReadShareGroupStateSummaryRequestPartitionData] = field(
        array(ReadShareGroupStateSummaryRequestPartitionData)
    )


class ReadShareGroupStateSummaryRequest(Message, versions="0-1", flexible="0+"):
    """Reads start offsets and epochs only (KIP-932)."""

    group_id: str = field(STRING)
    topics: list[ReadStateSummaryData] = field(array(ReadStateSummaryData))


class ReadShareGroupStateSummaryResponsePartitionResult(Struct, kafka_name="PartitionResult"):
    partition: int = field(INT32)
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, nullable="0+", default=None)
    state_epoch: int = field(INT32)
    leader_epoch: int = field(INT32)
    start_offset: int = field(INT64)
    delivery_complete_count: int = field(INT32, "1+", default=-1, ignorable=True)


class ReadStateSummaryResult(Struct):
    topic_id: bytes = field(UUID)
    partitions: list[ReadShareGroupStateSummaryResponsePartitionResult] = field(
        array(ReadShareGroupStateSummaryResponsePartitionResult)
    )


class ReadShareGroupStateSummaryResponse(Message, versions="0-1", flexible="0+"):
    """The summary per partition; version 0 as Kafka 4.x has it."""

    results: list[ReadStateSummaryResult] = field(array(ReadStateSummaryResult))


class UnstableReadStateSummaryPartitionResult(Struct, kafka_name="PartitionResult"):
    partition: int = field(INT32)
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, nullable="0+", default=None)
    state_epoch: int = field(INT32)
    start_offset: int = field(INT64)


class UnstableReadStateSummaryResult(Struct, kafka_name="ReadStateSummaryResult"):
    topic_id: bytes = field(UUID)
    partitions: list[UnstableReadStateSummaryPartitionResult] = field(
        array(UnstableReadStateSummaryPartitionResult)
    )


class UnstableReadShareGroupStateSummaryResponse(Message, versions="0", flexible="0+"):
    """Version 0 as the unstable API of Kafka 3.9 had it, without leader epochs; 4.x has another layout."""

    results: list[UnstableReadStateSummaryResult] = field(array(UnstableReadStateSummaryResult))
