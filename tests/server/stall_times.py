"""Times in the life of a broker that are expensive: timers, retention, deletions, slow disks, stops.

As in `stall_cases.py`: a function from `Broker` to what is measured, and a `Case` at the end of CASES.
"""

from __future__ import annotations

import time
import urllib.request
from collections.abc import Callable

from stall_cases import Run, create, create_request, produce_request, with_partitions
from stall_rig import Broker, Case, frame_of

from kwire.protocol.api import parse_response
from kwire.protocol.record_builder import build_batch
from kwire.protocol.records import Record
from kwire.protocol.schemas import topics as admin
from kwire.protocol.schemas.configs import (
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
)
from kwire.protocol.schemas.offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)

NOW_MS = time.time_ns() // 1_000_000
BATCH = build_batch([Record(0, NOW_MS, None, b"x")])
EVERY_SECOND = {
    "log.initial.task.delay.ms": "1000",
    "log.retention.check.interval.ms": "1000",
    "log.flush.offset.checkpoint.interval.ms": "1000",
    "log.flush.start.offset.checkpoint.interval.ms": "1000",
    "log.flush.scheduler.interval.ms": "1000",
    "log.cleaner.backoff.ms": "1000",
    "replica.high.watermark.checkpoint.interval.ms": "1000",
    "producer.id.expiration.check.interval.ms": "1000",
    "offsets.retention.check.interval.ms": "1000",
}


def fill(broker: Broker, topic: str, records: bytes, times: int) -> None:
    """Produce to partition 0, many requests at once."""
    connection = broker.connect()
    frame = frame_of(produce_request(topic, {0: records}), 9)
    window = max(1, min(50, (8 << 20) // len(frame)))
    for start in range(0, times, window):
        count = min(window, times - start)
        for _ in range(count):
            connection.send(frame)
        for _ in range(count):
            response = parse_response(0, 9, connection.receive())[1]
            assert response.responses[0].partition_responses[0].error_code == 0
    connection.close()


def earliest_offset(broker: Broker, topic: str) -> int:
    partition = ListOffsetsPartition(partition_index=0, timestamp=-2)
    topics = [ListOffsetsTopic(name=topic, partitions=[partition])]
    response = broker.ask(ListOffsetsRequest(replica_id=-1, topics=topics), 6)
    return int(response.topics[0].partitions[0].offset)


def write_everywhere(broker: Broker) -> None:
    """A record in each of 10,000 partitions."""
    with_partitions(broker)
    connection = broker.connect()
    for topic in range(100):
        request = produce_request(f"t{topic}", dict.fromkeys(range(100), BATCH))
        connection.ask(request, 9)
    connection.close()


def timers(broker: Broker) -> Run:
    write_everywhere(broker)
    connection = broker.connect()

    def run() -> None:
        for turn in range(30):
            for topic in range(turn * 3, turn * 3 + 3):
                connection.ask(produce_request(f"t{topic}", dict.fromkeys(range(100), BATCH)), 9)
            time.sleep(0.1)

    return run


def set_config(broker: Broker, topic: str, key: str, value: str) -> None:
    resource = IncrementalAlterConfigsResource(
        resource_type=2,
        resource_name=topic,
        configs=[IncrementalAlterableConfig(name=key, config_operation=0, value=value)],
    )
    response = broker.ask(IncrementalAlterConfigsRequest(resources=[resource]), 1)
    assert response.responses[0].error_code == 0


def segments(count: int) -> Callable[[Broker], None]:
    """A topic whose only partition has so many segments of one batch."""

    def prepare(broker: Broker) -> None:
        create(broker, "old", segment_bytes="1048576", file_delete_delay_ms="500")
        big = build_batch([Record(0, NOW_MS, None, bytes(600_000))])
        fill(broker, "old", big, count)

    return prepare


def retention(count: int) -> Callable[[Broker], Run]:
    """Retention of all but one of these segments, then the deletion of their files."""

    def prepare(broker: Broker) -> Run:
        segments(count)(broker)
        set_config(broker, "old", "retention.bytes", "1")
        return lambda: until_earliest(broker, count - 1)

    return prepare


def until_earliest(broker: Broker, offset: int) -> None:
    """Wait until the oldest segments are gone, and a little more, for their files."""
    deadline = time.monotonic() + 60
    while earliest_offset(broker, "old") < offset:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    time.sleep(2)


def many_segments(broker: Broker) -> None:
    """5,000 segments with a record each."""
    create(broker, "old", segment_bytes="100", file_delete_delay_ms="500")
    fill(broker, "old", BATCH, 5000)


def retention_of_many(broker: Broker) -> Run:
    many_segments(broker)
    set_config(broker, "old", "retention.bytes", "1")
    return lambda: until_earliest(broker, 4999)


def deletion_of_many(broker: Broker) -> Run:
    many_segments(broker)
    request = admin.DeleteTopicsRequest(topic_names=["old"], timeout_ms=60_000)

    def run() -> None:
        broker.ask(request, 3)
        time.sleep(2)

    return run


def delete_records(broker: Broker) -> Run:
    many_segments(broker)
    request = admin.DeleteRecordsRequest(
        timeout_ms=60_000,
        topics=[
            admin.DeleteRecordsTopic(
                name="old",
                partitions=[admin.DeleteRecordsPartition(partition_index=0, offset=4999)],
            )
        ],
    )

    def run() -> None:
        broker.ask(request, 1)
        until_earliest(broker, 4999)

    return run


def slow_disk(broker: Broker) -> Run:
    """New topics, first records, and records that roll a segment, with flushes of half a second."""

    def run() -> None:
        names = [f"s{number}" for number in range(3)]
        connection = broker.connect()
        for name in names:
            connection.send(frame_of(create_request([name], 2, {"segment_bytes": "100"}), 4))
        for _ in names:
            connection.receive()
        for _ in range(3):
            for name in names:
                connection.ask(produce_request(name, {0: BATCH, 1: BATCH}, acks=-1), 9)
        time.sleep(2)

    return run


def stop_neighbour(broker: Broker) -> Run:
    """A clean stop of the first broker of two in the process: the other one is asked."""
    with_partitions(broker)
    for topic in range(100):
        broker.ask(produce_request(f"t{topic}", dict.fromkeys(range(100), BATCH)), 9)

    def run() -> None:
        post(broker, "/v1/brokers/1/stop")

    return run


def compacted_batch(broker: Broker) -> Run:
    """A million records with ten keys in one batch, which the cleaner rewrites."""
    records = [Record(i, NOW_MS, b"%d" % (i % 10), b"v") for i in range(1_000_000)]
    create(broker, "large", cleanup_policy="compact", max_message_bytes="10000000")
    for content in (records, records[:10]):
        batch = build_batch(content, compression="zstd")
        broker.ask(produce_request("large", {0: batch}), 9)
    return lambda: post(broker, "/v1/topics/large/compact")


def post(broker: Broker, path: str) -> None:
    request = urllib.request.Request(f"{broker.control}{path}", method="POST", data=b"{}")
    with urllib.request.urlopen(request, timeout=120) as response:
        assert response.status == 200


CASES = [
    Case("Timers every second over 10,000 partitions", timers, settings=EVERY_SECOND),
    Case(
        "Timers every second over 10,000 partitions, kept on disk",
        timers,
        settings=EVERY_SECOND,
        on_disk=True,
    ),
    Case(
        "Retention of 1 GB in 1,700 segments",
        retention(1700),
        settings={**EVERY_SECOND, "kwire.record.validation": "header"},
        on_disk=True,
    ),
    Case("Retention of 5,000 segments", retention_of_many, settings=EVERY_SECOND),
    Case("Compaction of a batch of a million records", compacted_batch),
    Case("DeleteTopics: a topic of 5,000 segments", deletion_of_many),
    Case("DeleteRecords of 5,000 segments", delete_records, settings=EVERY_SECOND),
    Case("A disk whose flushes take 0.5 s", slow_disk, on_disk=True, fsync_seconds=0.5),
    Case(
        "The same of a controller beside two brokers",
        slow_disk,
        options=("--brokers", "2"),
        on_disk=True,
        fsync_seconds=0.5,
    ),
    Case(
        "A stop beside another broker: 10,000 partitions",
        stop_neighbour,
        options=("--brokers", "2"),
    ),
    Case(
        "A stop beside another broker: 10,000 partitions on disk",
        stop_neighbour,
        options=("--brokers", "2"),
        on_disk=True,
    ),
]
