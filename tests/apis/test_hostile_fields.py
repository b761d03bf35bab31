"""Well-formed requests with senseless values: every answer is an error code, never a traceback or a stopped broker."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from test_against_kafka import DirectClient

from kwire.protocol import api
from kwire.protocol.record_builder import build_batch
from kwire.protocol.records import Record
from kwire.protocol.schemas.topics import CreatableTopic, CreateTopicsRequest

PRODUCE, FETCH, LIST_OFFSETS, DELETE_RECORDS = 0, 1, 2, 21
INIT_PRODUCER_ID, OFFSET_FOR_LEADER_EPOCH, DESCRIBE_PRODUCERS = 22, 23, 61
CREATE_TOPICS, API_VERSIONS = 19, 18

NUMBERS = (0, 1, -1, -2, 5, 127, -128, 32767, -32768, 2**31 - 1, -(2**31), 2**63 - 1, -(2**63))
BATCH = build_batch([Record(-1, 1000, b"k", b"v" * 50)])


def number(random: Random, bits: int = 64) -> int:
    limit = 1 << (bits - 1)
    return max(-limit, min(random.choice(NUMBERS), limit - 1))


def some(random: Random, make: Any) -> list[Any]:
    return [make() for _ in range(random.choice((0, 1, 1, 2, 3)))]


def topic(random: Random) -> str:
    return random.choice(("t", "t", "t", "compact", "nope", "", "bad name", "__consumer_offsets"))


def index(random: Random) -> int:
    return random.choice((0, 0, 0, 1, -1, 7, 2**31 - 1, -(2**31)))


def records(random: Random) -> bytes | None:
    kind = random.randrange(6)
    if kind == 0:
        return None
    if kind == 1:
        return random.randbytes(random.choice((0, 1, 11, 12, 16, 17, 22, 23, 60, 61, 200)))
    data = bytearray(BATCH)
    if kind == 2:
        data[random.randrange(len(data))] ^= 1 << random.randrange(8)
    elif kind == 3:
        del data[random.randrange(len(data)) :]
    elif kind == 4:
        data += data[: random.randrange(len(data))]
    return bytes(data)


def produce(version: int, random: Random) -> Any:
    from kwire.protocol.schemas.produce import PartitionProduceData as Data
    from kwire.protocol.schemas.produce import ProduceRequest, TopicProduceData

    def data() -> Data:
        return Data(index=index(random), records=records(random))

    def named() -> TopicProduceData:
        if version >= 13:
            return TopicProduceData(
                topic_id=random.choice((bytes(16), random.randbytes(16))),
                partition_data=some(random, data),
            )
        return TopicProduceData(name=topic(random), partition_data=some(random, data))

    return ProduceRequest(
        acks=random.choice((-1, 1, 1, 2, -2, 32767, -32768)),
        timeout_ms=number(random, 32),
        topic_data=some(random, named),
    )


def fetch(version: int, random: Random) -> Any:
    from kwire.protocol.schemas.fetch import (
        FetchPartition,
        FetchRequest,
        FetchTopic,
        ForgottenTopic,
        ReplicaState,
    )

    def partition() -> FetchPartition:
        asked = FetchPartition(
            partition=index(random),
            fetch_offset=number(random),
            partition_max_bytes=number(random, 32),
            current_leader_epoch=random.choice((-1, -1, 0, number(random, 32))),
            log_start_offset=number(random),
        )
        if version >= 12:
            asked.last_fetched_epoch = random.choice((-1, -1, 0, number(random, 32)))
        return asked

    def named() -> FetchTopic:
        if version >= 13:
            return FetchTopic(topic_id=random.randbytes(16), partitions=some(random, partition))
        return FetchTopic(topic=topic(random), partitions=some(random, partition))

    request = FetchRequest(
        max_wait_ms=number(random, 32),
        min_bytes=number(random, 32),
        max_bytes=number(random, 32),
        isolation_level=number(random, 8),
        topics=some(random, named),
        rack_id=random.choice(("", "r")),
    )
    replica_id = random.choice((-1, -1, -2, 1, 7, number(random, 32)))
    if version >= 15:
        request.replica_state = ReplicaState(replica_id=replica_id, replica_epoch=number(random))
    else:
        request.replica_id = replica_id
    if version >= 7:
        request.session_id = random.choice((0, 0, 1, number(random, 32)))
        request.session_epoch = random.choice((-1, 0, 0, 1, 2, number(random, 32)))
        if random.random() < 0.3:
            request.forgotten_topics_data = [
                ForgottenTopic(topic="t", partitions=[0, -1])
                if version < 13
                else ForgottenTopic(topic_id=bytes(16), partitions=[0])
            ]
    return request


def list_offsets(version: int, random: Random) -> Any:
    from kwire.protocol.schemas.offsets import (
        ListOffsetsPartition,
        ListOffsetsRequest,
        ListOffsetsTopic,
    )

    def partition() -> ListOffsetsPartition:
        asked = ListOffsetsPartition(
            partition_index=index(random),
            current_leader_epoch=random.choice((-1, number(random, 32))),
            timestamp=random.choice((-1, -2, -3, number(random))),
        )
        if version == 0:
            asked.max_num_offsets = number(random, 32)
        return asked

    def named() -> ListOffsetsTopic:
        return ListOffsetsTopic(name=topic(random), partitions=some(random, partition))

    request = ListOffsetsRequest(
        replica_id=random.choice((-1, -2, number(random, 32))), topics=some(random, named)
    )
    if version >= 2:
        request.isolation_level = number(random, 8)
    return request


def delete_records(version: int, random: Random) -> Any:
    from kwire.protocol.schemas.topics import (
        DeleteRecordsPartition,
        DeleteRecordsRequest,
        DeleteRecordsTopic,
    )

    def partition() -> DeleteRecordsPartition:
        return DeleteRecordsPartition(partition_index=index(random), offset=number(random))

    def named() -> DeleteRecordsTopic:
        return DeleteRecordsTopic(name=topic(random), partitions=some(random, partition))

    return DeleteRecordsRequest(timeout_ms=number(random, 32), topics=some(random, named))


def init_producer_id(version: int, random: Random) -> Any:
    from kwire.protocol.schemas.transactions import InitProducerIdRequest

    request = InitProducerIdRequest(
        transactional_id=random.choice((None, "", "x" * 1000)),
        transaction_timeout_ms=number(random, 32),
    )
    if version >= 3:
        request.producer_id, request.producer_epoch = number(random), number(random, 16)
    return request


def offset_for_leader_epoch(version: int, random: Random) -> Any:
    from kwire.protocol.schemas.offsets import (
        OffsetForLeaderEpochRequest,
        OffsetForLeaderPartition,
        OffsetForLeaderTopic,
    )

    def partition() -> OffsetForLeaderPartition:
        return OffsetForLeaderPartition(
            partition=index(random),
            current_leader_epoch=number(random, 32),
            leader_epoch=number(random, 32),
        )

    def named() -> OffsetForLeaderTopic:
        return OffsetForLeaderTopic(topic=topic(random), partitions=some(random, partition))

    return OffsetForLeaderEpochRequest(replica_id=-1, topics=some(random, named))


def describe_producers(version: int, random: Random) -> Any:
    from kwire.protocol.schemas.transactions import DescribeProducersRequest, TopicRequest

    def named() -> TopicRequest:
        return TopicRequest(name=topic(random), partition_indexes=some(random, lambda: 0))

    return DescribeProducersRequest(topics=some(random, named))


BUILDERS = {
    PRODUCE: (produce, 13),
    FETCH: (fetch, 18),
    LIST_OFFSETS: (list_offsets, 11),
    DELETE_RECORDS: (delete_records, 2),
    INIT_PRODUCER_ID: (init_producer_id, 5),
    OFFSET_FOR_LEADER_EPOCH: (offset_for_leader_epoch, 4),
    DESCRIBE_PRODUCERS: (describe_producers, 0),
}


@pytest.mark.parametrize("key", BUILDERS)
def test_senseless_values_get_an_answer(key):
    random = Random(key)
    client = DirectClient()
    topics = [
        CreatableTopic(name=name, num_partitions=2, replication_factor=1)
        for name in ("t", "compact")
    ]
    client.ask(CREATE_TOPICS, 5, CreateTopicsRequest(timeout_ms=1, topics=topics))
    make, highest = BUILDERS[key]
    for _ in range(400):
        version = random.randint(0, highest)
        answer = client.ask(key, version, make(version, random))
        assert answer not in ("closed", "no answer")
    assert client.broker.failed == []
    manager = client.broker.services.replica_manager
    assert len(manager.fetch_purgatory) == len(manager.produce_purgatory) == 0
    assert client.ask(API_VERSIONS, 0, api.request_class(API_VERSIONS)()).error_code == 0
