"""The expensive requests: one function each, which prepares it and returns what is measured.

To add one: a function from `Broker` to a function without arguments, and a `Case` at the end of CASES.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Callable

from stall_rig import Broker, Case, frame_of, raw_frame

from kwire.protocol.errors import ErrorCode
from kwire.protocol.message_set import build_message_set
from kwire.protocol.record_builder import build_batch
from kwire.protocol.records import Record
from kwire.protocol.schemas import topics as admin
from kwire.protocol.schemas.configs import DescribeConfigsRequest, DescribeConfigsResource
from kwire.protocol.schemas.fetch import FetchPartition, FetchRequest, FetchTopic
from kwire.protocol.schemas.groups import FindCoordinatorRequest, ListGroupsRequest
from kwire.protocol.schemas.metadata import MetadataRequest
from kwire.protocol.schemas.offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from kwire.protocol.schemas.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)

Run = Callable[[], None]


def create(broker: Broker, *names: str, partitions: int = 1, **configs: str) -> None:
    """Create topics, a hundred in a request."""
    for start in range(0, len(names), 100):
        response = broker.ask(create_request(names[start : start + 100], partitions, configs), 4)
        assert {topic.error_code for topic in response.topics} == {0}


def create_request(
    names: tuple[str, ...] | list[str], partitions: int, configs: dict[str, str] | None = None
) -> admin.CreateTopicsRequest:
    return admin.CreateTopicsRequest(
        topics=[
            admin.CreatableTopic(
                name=name,
                num_partitions=partitions,
                replication_factor=1,
                configs=[
                    admin.CreatableTopicConfig(name=key.replace("_", "."), value=value)
                    for key, value in (configs or {}).items()
                ],
            )
            for name in names
        ],
        timeout_ms=60_000,
    )


def asking(broker: Broker, frame: bytes, check: Callable[[memoryview], None] | None = None) -> Run:
    """Send a frame on a connection of its own, wait for the answer and look at it."""
    connection = broker.connect()

    def run() -> None:
        connection.send(frame)
        answer = connection.receive()
        if check is not None:
            check(answer)
        connection.close()

    return run


def produce_request(topic: str, records: dict[int, bytes], acks: int = 1) -> ProduceRequest:
    return ProduceRequest(
        acks=acks,
        timeout_ms=60_000,
        topic_data=[
            TopicProduceData(
                name=topic,
                partition_data=[
                    PartitionProduceData(index=index, records=data)
                    for index, data in records.items()
                ],
            )
        ],
    )


def tiny(count: int) -> list[Record]:
    return [Record(i, 1, None, b"%d" % (i % 10)) for i in range(count)]


def old_produce(version: int, count: int, partitions: int, error: int) -> Callable[[Broker], Run]:
    def prepare(broker: Broker) -> Run:
        create(broker, "old", partitions=partitions)
        data = build_message_set(tiny(count), 1 if version == 2 else 0, compression="gzip")
        frame = frame_of(produce_request("old", dict.fromkeys(range(partitions), data)), version)

        def check(answer: memoryview) -> None:
            position = 4 + 4 + 2 + 3 + 4 + 4
            assert struct.unpack_from(">h", answer, position)[0] == error

        return asking(broker, frame, check)

    return prepare


def old_fetch(broker: Broker) -> Run:
    create(broker, "old", max_message_bytes="10000000")
    batch = build_batch(tiny(700_000), compression="gzip")
    connection = broker.connect()
    assert connection.ask(produce_request("old", {0: batch}), 3).responses
    request = FetchRequest(
        replica_id=-1,
        max_wait_ms=100,
        min_bytes=1,
        topics=[
            FetchTopic(
                topic="old",
                partitions=[FetchPartition(partition=0, partition_max_bytes=1 << 20)],
            )
        ],
    )
    return asking(broker, frame_of(request, 2), lambda answer: check_longer(answer, 500_000))


def check_longer(answer: memoryview, size: int) -> None:
    assert len(answer) > size


def unknown_topics(broker: Broker) -> Run:
    names = b"".join(struct.pack(">h6s", 6, b"%06d" % i) for i in range(1_000_000))
    frame = raw_frame(3, 4, struct.pack(">i", 1_000_000) + names + b"\0")
    return asking(broker, frame, lambda answer: check_longer(answer, 8_000_000))


def topics_by_metadata(broker: Broker) -> Run:
    names = b"".join(struct.pack(">h6s", 6, b"%06d" % i) for i in range(2000))
    return asking(broker, raw_frame(3, 4, struct.pack(">i", 2000) + names + b"\1"))


def create_topics(broker: Broker) -> Run:
    request = create_request([f"t{i}" for i in range(2000)], 1)
    return asking(broker, frame_of(request, 4))


def create_partitions(broker: Broker) -> Run:
    return asking(broker, frame_of(create_request(["wide"], 5000), 4))


def delete_topics(broker: Broker) -> Run:
    names = [f"t{i}" for i in range(2000)]
    create(broker, *names)
    request = admin.DeleteTopicsRequest(topic_names=names, timeout_ms=60_000)
    run = asking(broker, frame_of(request, 3))

    def run_and_wait() -> None:
        run()
        time.sleep(1)

    return run_and_wait


def offsets_request(group: str, topics: int, partitions: int) -> OffsetCommitRequest:
    return OffsetCommitRequest(
        group_id=group,
        topics=[
            OffsetCommitRequestTopic(
                name=f"t{topic}",
                partitions=[
                    OffsetCommitRequestPartition(partition_index=i, committed_offset=5)
                    for i in range(partitions)
                ],
            )
            for topic in range(topics)
        ],
    )


def find_coordinator(broker: Broker, group: str) -> None:
    for _ in range(100):
        response = broker.ask(FindCoordinatorRequest(key=group), 3)
        if response.error_code == ErrorCode.NONE:
            return
        time.sleep(0.05)
    raise AssertionError("no coordinator")


def with_partitions(broker: Broker) -> None:
    """100 topics of 100 partitions, and a coordinator."""
    create(broker, *(f"t{i}" for i in range(100)), partitions=100)
    find_coordinator(broker, "g")


def commit_offsets(broker: Broker) -> Run:
    with_partitions(broker)
    return asking(broker, frame_of(offsets_request("g", 1000, 100), 8))


def fetch_offsets(broker: Broker) -> Run:
    with_partitions(broker)
    for number in range(20):
        request = offsets_request("g", 100, 100)
        request.topics = request.topics[number * 5 : number * 5 + 5]
        broker.ask(request, 8)
    group = OffsetFetchRequestGroup(
        group_id="g",
        topics=[
            OffsetFetchRequestTopics(name=f"t{i}", partition_indexes=list(range(100)))
            for i in range(1000)
        ],
    )
    return asking(broker, frame_of(OffsetFetchRequest(groups=[group]), 8))


def fetch_all_offsets(broker: Broker) -> Run:
    fetch_offsets(broker)
    groups = [OffsetFetchRequestGroup(group_id="g", topics=None)]
    return asking(broker, frame_of(OffsetFetchRequest(groups=groups), 8))


def list_offsets(broker: Broker) -> Run:
    with_partitions(broker)
    topics = [
        ListOffsetsTopic(
            name=f"t{i}",
            partitions=[ListOffsetsPartition(partition_index=j, timestamp=-1) for j in range(100)],
        )
        for i in range(1000)
    ]
    return asking(broker, frame_of(ListOffsetsRequest(replica_id=-1, topics=topics), 6))


def describe_configs(broker: Broker) -> Run:
    names = [f"t{i}" for i in range(1000)]
    create(broker, *names)
    resources = [
        DescribeConfigsResource(resource_type=2, resource_name=n, configuration_keys=None)
        for n in names
    ]
    return asking(broker, frame_of(DescribeConfigsRequest(resources=resources), 4))


def fetch_partitions(broker: Broker) -> Run:
    with_partitions(broker)
    request = FetchRequest(
        replica_id=-1,
        max_wait_ms=100,
        min_bytes=1,
        max_bytes=1 << 20,
        session_epoch=-1,
        topics=[
            FetchTopic(
                topic=f"t{i}",
                partitions=[
                    FetchPartition(partition=j, partition_max_bytes=1000) for j in range(100)
                ],
            )
            for i in range(500)
        ],
    )
    return asking(broker, frame_of(request, 11))


def all_metadata(broker: Broker) -> Run:
    with_partitions(broker)
    return asking(broker, frame_of(MetadataRequest(topics=None), 9))


def list_groups(broker: Broker) -> Run:
    """50,000 groups that have committed an offset."""
    create(broker, "t0")
    find_coordinator(broker, "g0")
    connection = broker.connect()
    for start in range(0, 50_000, 500):
        for number in range(start, start + 500):
            connection.send(frame_of(offsets_request(f"g{number}", 1, 1), 8))
        for _ in range(500):
            connection.receive()
    return asking(broker, frame_of(ListGroupsRequest(), 4), lambda a: check_longer(a, 300_000))


def many_offsets(broker: Broker) -> Run:
    """100,000 committed offsets of 100 groups."""
    create(broker, "t0", partitions=1000)
    find_coordinator(broker, "g0")
    for number in range(100):
        broker.ask(offsets_request(f"g{number}", 1, 1000), 8)
    return lambda: None


def until_loaded(broker: Broker) -> None:
    groups = [OffsetFetchRequestGroup(group_id="g99", topics=None)]
    for _ in range(10_000):
        response = broker.ask(OffsetFetchRequest(groups=groups), 8)
        if response.groups[0].error_code == ErrorCode.NONE:
            assert len(response.groups[0].topics[0].partitions) == 1000
            return
        assert response.groups[0].error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        time.sleep(0.005)
    raise AssertionError("not loaded")


def validated_produce(broker: Broker) -> Run:
    records = [Record(i, 1, b"k", b"%d" % (i % 10)) for i in range(1_000_000)]
    batch = build_batch(records, compression="gzip")
    assert len(batch) < 10_000_000
    create(broker, "large", cleanup_policy="compact", max_message_bytes="10000000")
    return asking(broker, frame_of(produce_request("large", {0: batch}), 9))


def searched_batch(broker: Broker) -> Run:
    """ListOffsets for the time of the last of a million records."""
    records = [Record(i, 1 + i // 999_999, b"k", b"%d" % (i % 10)) for i in range(1_000_000)]
    create(broker, "large", max_message_bytes="10000000")
    batch = build_batch(records, compression="zstd")
    asking(broker, frame_of(produce_request("large", {0: batch}), 9))()
    topic = ListOffsetsTopic(
        name="large", partitions=[ListOffsetsPartition(partition_index=0, timestamp=2)]
    )
    return asking(broker, frame_of(ListOffsetsRequest(replica_id=-1, topics=[topic]), 7))


def wide_produce(broker: Broker) -> Run:
    """A record for each of 20,000 partitions, of which 10,000 exist."""
    with_partitions(broker)
    batch = build_batch(tiny(1))
    request = ProduceRequest(
        acks=1,
        timeout_ms=60_000,
        topic_data=[
            TopicProduceData(
                name=f"t{topic}",
                partition_data=[
                    PartitionProduceData(index=index, records=batch) for index in range(100)
                ],
            )
            for topic in range(200)
        ],
    )
    return asking(broker, frame_of(request, 9))


def large_produce(codec: str, **configs: str) -> Callable[[Broker], Run]:
    """A batch that is 95 MB before compression."""

    def prepare(broker: Broker) -> Run:
        create(broker, "large", max_message_bytes="50000000", **configs)
        value = bytes(range(256)) * 3700
        records = [Record(i, 1, None, value) for i in range(100)]
        batch = build_batch(records, compression=codec)
        return asking(broker, frame_of(produce_request("large", {0: batch}), 9))

    return prepare


CASES = [
    Case("Produce v2: a million gzipped messages, too large", old_produce(2, 1_000_000, 1, 10)),
    Case("Produce v2: 8 partitions of 100,000 gzipped messages", old_produce(2, 100_000, 8, 0)),
    Case("Fetch v2 of 700,000 gzipped records", old_fetch),
    Case("Fetch of 50,000 partitions, of which 10,000 exist", fetch_partitions),
    Case("Metadata of 1,000,000 unknown topics", unknown_topics),
    Case("Metadata that creates 2,000 topics", topics_by_metadata),
    Case("Metadata of all of 10,000 partitions", all_metadata),
    Case("CreateTopics: 2,000 topics", create_topics),
    Case("CreateTopics: 5,000 partitions", create_partitions, limit_ms=60),
    Case("DeleteTopics: 2,000 topics", delete_topics),
    Case("DescribeConfigs of 1,000 topics", describe_configs),
    Case("ListOffsets of 100,000 partitions, of which 10,000 exist", list_offsets),
    Case("OffsetCommit of 100,000 partitions, of which 10,000 exist", commit_offsets),
    Case("OffsetFetch of 100,000 partitions", fetch_offsets),
    Case("OffsetFetch of all of a group's 10,000 offsets", fetch_all_offsets),
    Case("ListGroups: 50,000 groups", list_groups),
    Case(
        "A start with 100,000 committed offsets",
        many_offsets,
        settings={"offsets.topic.num.partitions": "1"},
        restarts=True,
        after_restart=until_loaded,
    ),
    Case("Produce of a million gzipped records to a compacted topic", validated_produce),
    Case("ListOffsets by time in a batch of a million records", searched_batch),
    Case("Produce of 20,000 partitions, of which 10,000 exist", wide_produce),
    Case("Produce of 95 MB compressed with zstd", large_produce("zstd")),
    Case("Produce of 95 MB compressed with lz4", large_produce("lz4")),
    Case(
        "Produce of 95 MB of lz4 to a topic of zstd",
        large_produce("lz4", compression_type="zstd"),
    ),
    Case(
        "Produce of 95 MB of lz4 to a topic of gzip",
        large_produce("lz4", compression_type="gzip"),
    ),
]
