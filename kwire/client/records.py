"""Records of any Kafka: all that a topic holds, and a record to write.

Reading answers to kafka.tools.ConsoleConsumer without a group and without waiting, writing to
KafkaProducer with acks=all and its default partitioner (murmur2 of the key, else round robin). Each
function is a generator of requests (`admin.py`).

Records are read from the leaders, between log start and high watermark, uncommitted ones included;
control records are left out. A record is written once: when a broker may have it and did not answer,
that is an error, not a second record.
"""

from __future__ import annotations

from functools import partial
from time import time_ns

from kwire.client.admin import CONSUMER, EARLIEST, LATEST, REQUEST_SECONDS
from kwire.client.connection import check
from kwire.client.offsets import offsets, partitions, unknown
from kwire.client.partitioner import partition_of
from kwire.client.retries import RETRY_SECONDS, repeat
from kwire.client.views import Record
from kwire.protocol import record_builder
from kwire.protocol import records as batches
from kwire.protocol.errors import ErrorCode, KafkaError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import Any

    from kwire.client.admin import Admin, Steps
    from kwire.client.connection import Address
    from kwire.client.offsets import Key

    _Leaders = dict[int, tuple[Address | None, int]]
    """By partition: the leader's address (None: no leader) and the leader epoch."""

_FETCH_BYTES = 16 << 20
_NO_EPOCH = -1


# --- reading


def read_records(
    admin: Admin,
    topic: str,
    partition: int | None = None,
    *,
    start: int | None = None,
    end: int | None = None,
    limit: int | None = None,
    seconds: float = RETRY_SECONDS,
) -> Steps[list[Record]]:
    """The records of a topic, or of one partition, by partition and offset.

    `start`, `end`: of each partition, from this offset to before that one. `limit`: how many at
    most, in all. `seconds`: as `repeat`."""
    return (yield from repeat(lambda: _read(admin, topic, partition, start, end, limit), seconds))


def _read(
    admin: Admin,
    topic: str,
    partition: int | None,
    start: int | None,
    end: int | None,
    limit: int | None,
) -> Steps[list[Record]]:
    led = yield from partitions(admin, topic, partition)
    firsts = yield from offsets(admin, led, EARLIEST)
    ends = yield from offsets(admin, led, LATEST)
    found: list[Record] = []
    for key, address in led.items():
        first = firsts[key] if start is None else max(start, firsts[key])
        stop = ends[key] if end is None else min(end, ends[key])
        while first < stop and (limit is None or len(found) < limit):
            data = yield from _fetch(admin, address, key, first)
            first = _collect(data, key, first, stop, found)
    return found if limit is None else found[:limit]


def _fetch(admin: Admin, address: Address, key: Key, offset: int) -> Steps[Any]:
    from kwire.protocol.schemas.fetch import FetchPartition, FetchRequest, FetchTopic

    topic, index = key
    wanted = FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=_FETCH_BYTES)
    request = FetchRequest(
        replica_id=CONSUMER,
        max_wait_ms=0,
        min_bytes=0,
        topics=[FetchTopic(topic=topic, partitions=[wanted])],
    )
    response = yield from admin.ask_at(address, request)
    check(response.error_code, f"fetch of {topic}-{index}")
    data = response.responses[0].partitions[0]
    check(data.error_code, f"fetch of {topic}-{index} at offset {offset}")
    return data


def _collect(data: Any, key: Key, first: int, stop: int, found: list[Record]) -> int:
    """Add the records of a Fetch response from `first` to before `stop`; the offset after them."""
    reached = first
    for epoch, next_offset, inner in read_batches(data.records or b""):
        for each in inner:
            if first <= each.offset < stop:
                headers = list(each.headers)
                found.append(
                    Record(*key, each.offset, each.timestamp, each.key, each.value, headers, epoch)
                )
        reached = max(reached, next_offset)
        if reached >= stop:
            break
    if reached == first:  # a leader that does not have the end yet which its predecessor told
        text = f"{key[0]}-{key[1]}: nothing at offset {first}"
        raise KafkaError(ErrorCode.OFFSET_NOT_AVAILABLE, text)
    return reached


def read_batches(data: Any) -> Iterator[tuple[int, int, Iterator[batches.Record]]]:
    """Of each batch or message of any magic: leader epoch, the offset after it, its records."""
    from kwire.protocol.message_set import Message, iter_entries, message_records

    for entry in iter_entries(data):
        if isinstance(entry, Message):
            yield _NO_EPOCH, entry.last_offset + 1, iter(message_records(data, entry))
        else:
            inner = iter(()) if entry.is_control else batches.iter_records(data, entry)
            yield entry.partition_leader_epoch, entry.next_offset, inner


# --- writing


def produce(
    admin: Admin,
    topic: str,
    value: bytes | None,
    key: bytes | None = None,
    *,
    partition: int | None = None,
    headers: Sequence[tuple[str, bytes | None]] = (),
    timestamp: int | None = None,
    seconds: float = REQUEST_SECONDS,
) -> Steps[Record]:
    """Write a record; return it once all replicas in the ISR have it.

    `partition`: None: by the key, as KafkaProducer; without a key the next one. `timestamp`:
    milliseconds; None: now. Creates the topic where the brokers do (auto.create.topics.enable)."""
    created = time_ns() // 1_000_000 if timestamp is None else timestamp
    record = batches.Record(-1, created, key, value, list(headers))
    some = yield from produce_all(admin, topic, [record], partition=partition, seconds=seconds)
    return some[0]


def produce_all(
    admin: Admin,
    topic: str,
    records: Sequence[batches.Record],
    *,
    partition: int | None = None,
    seconds: float = REQUEST_SECONDS,
) -> Steps[list[Record]]:
    """Write records, those of a partition in one batch; return them in their order, as `produce`.

    An error leaves those written that went to other partitions before."""
    led = yield from repeat(lambda: _partitions_to_write(admin, topic), RETRY_SECONDS)
    count = len(led)
    numbers: dict[int, list[int]] = {}
    for number, record in enumerate(records):
        chosen = _choose(admin, topic, record.key, count) if partition is None else partition
        numbers.setdefault(chosen, []).append(number)
    found: dict[int, Record] = {}
    for chosen, some in numbers.items():
        batch = [records[number] for number in some]
        written = yield from repeat(
            partial(_write, admin, topic, chosen, batch, seconds, led), seconds, changes=True
        )
        found.update(zip(some, written, strict=True))
    return [found[number] for number in range(len(records))]


def _partitions_to_write(admin: Admin, topic: str) -> Steps[_Leaders]:
    """The leader of each partition. Creates the topic where the brokers do."""
    metadata = yield from admin.metadata([topic], create=True)
    (found,) = metadata.topics
    if found.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and (
        yield from _creates_topics(admin)
    ):  # Kafka's answer while it creates the topic, too
        raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, f"topic {topic}")
    check(found.error_code, f"topic {topic}")
    return _leaders(admin, metadata)


def _leaders(admin: Admin, metadata: Any) -> _Leaders:
    brokers = admin.brokers_in(metadata)
    return {
        each.partition_index: (brokers.get(each.leader_id), each.leader_epoch)
        for each in metadata.topics[0].partitions
    }


def _creates_topics(admin: Admin) -> Steps[bool]:
    """auto.create.topics.enable of a broker."""
    from kwire.client.admin import BROKER_RESOURCE
    from kwire.protocol.schemas.configs import DescribeConfigsRequest, DescribeConfigsResource

    metadata = yield from admin.metadata()
    node_id, address = next(iter(admin.brokers_in(metadata).items()))
    key = "auto.create.topics.enable"
    resource = DescribeConfigsResource(
        resource_type=BROKER_RESOURCE, resource_name=str(node_id), configuration_keys=[key]
    )
    response = yield from admin.ask_at(address, DescribeConfigsRequest(resources=[resource]))
    return any(
        each.name == key and each.value == "true"
        for result in response.results
        for each in result.configs
    )


def _choose(admin: Admin, topic: str, key: bytes | None, count: int) -> int:
    if key is not None:
        return partition_of(key, count)
    turn = admin.turns.get(topic, 0)
    admin.turns[topic] = turn + 1
    return turn % count


def _take_leader(
    admin: Admin, topic: str, partition: int, led: _Leaders
) -> Steps[tuple[Address, int]]:
    """A partition's leader and leader epoch, taken out of `led`.

    So another attempt looks up all leaders again; one look-up for each of many partitions would take
    time that grows with their square."""
    name = f"{topic}-{partition}"
    if partition not in led:
        led.update(_leaders(admin, (yield from admin.metadata([topic]))))
    if partition not in led:
        raise (yield from unknown(admin, topic, partition))
    at, leader_epoch = led.pop(partition)
    if at is None:
        raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, f"{name} has no leader")
    return at, leader_epoch


def _write(
    admin: Admin,
    topic: str,
    partition: int,
    batch: list[batches.Record],
    seconds: float,
    led: _Leaders,
) -> Steps[list[Record]]:
    """Write the records of a partition. `led`: as `_take_leader`."""
    from kwire.protocol.schemas.produce import (
        PartitionProduceData,
        ProduceRequest,
        TopicProduceData,
    )

    at, leader_epoch = yield from _take_leader(admin, topic, partition, led)
    data = PartitionProduceData(index=partition, records=record_builder.build_batch(batch))
    request = ProduceRequest(
        acks=-1,
        timeout_ms=int(seconds * 1000),
        topic_data=[TopicProduceData(name=topic, partition_data=[data])],
    )
    response = yield from admin.ask_at(at, request, seconds)
    written = response.responses[0].partition_responses[0]
    check(written.error_code, written.error_message or f"produce to {topic}-{partition}")
    appended = written.log_append_time_ms
    return [
        Record(
            topic,
            partition,
            written.base_offset + number,
            record.timestamp if appended < 0 else appended,
            record.key,
            record.value,
            list(record.headers),
            leader_epoch,
        )
        for number, record in enumerate(batch)
    ]
