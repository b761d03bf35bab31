"""kafka-console-producer and kafka-console-consumer of the image: lines to records and back."""

from __future__ import annotations

import time

from kwire.docker.client import Client, ToolError, check
from kwire.protocol.records import Record, build_batch, iter_batches, iter_records

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import BinaryIO

    from kwire.docker.client import Connection
    from kwire.protocol.schemas.fetch import PartitionData

_PRODUCE_VERSION, _FETCH_VERSION, _LIST_OFFSETS_VERSION = 9, 12, 7
_LINES_A_BATCH = 1000
_POLL_MS = 250


def list_offset(leader: Connection, topic: str, partition: int, timestamp: int) -> int:
    """The offset at a timestamp; -2 earliest, -1 latest."""
    from kwire.protocol.schemas.offsets import (
        ListOffsetsPartition,
        ListOffsetsRequest,
        ListOffsetsTopic,
    )

    wanted = ListOffsetsPartition(partition_index=partition, timestamp=timestamp)
    request = ListOffsetsRequest(
        replica_id=-1, topics=[ListOffsetsTopic(name=topic, partitions=[wanted])]
    )
    found = leader.ask(_LIST_OFFSETS_VERSION, request).topics[0].partitions[0]
    check(found.error_code)
    return int(found.offset)


def _on(properties: dict[str, str], key: str) -> bool:
    return properties.get(key, "false").lower() == "true"


def produce_lines(client: Client, topic: str, properties: dict[str, str], lines: BinaryIO) -> None:
    """A record a line, in turns over the partitions, or by key (parse.key=true, key.separator)."""
    leaders = sorted(client.leaders(topic, create=True).items())
    parse_key = _on(properties, "parse.key")
    separator = properties.get("key.separator", "\t").encode()
    pending: dict[int, list[Record]] = {}
    turn = 0
    for count, line in enumerate(lines, 1):
        value = line.rstrip(b"\n")
        key = None
        place = turn
        if parse_key:
            key, found, value = value.partition(separator)
            if not found:
                raise ToolError(f"no key separator found in line {count}")
            place = sum(key)  # equal keys to one partition; which, no reader asks
        record = Record(-1, time.time_ns() // 1_000_000, key, value)
        pending.setdefault(place % len(leaders), []).append(record)
        if count % _LINES_A_BATCH == 0:
            _send(topic, leaders, pending)
            turn += 1
    _send(topic, leaders, pending)


def _send(
    topic: str, leaders: list[tuple[int, Connection]], pending: dict[int, list[Record]]
) -> None:
    from kwire.protocol.schemas.produce import (
        PartitionProduceData,
        ProduceRequest,
        TopicProduceData,
    )

    for place, records in pending.items():
        index, leader = leaders[place]
        data = PartitionProduceData(index=index, records=build_batch(records))
        request = ProduceRequest(
            acks=-1,
            timeout_ms=30_000,
            topic_data=[TopicProduceData(name=topic, partition_data=[data])],
        )
        answer = leader.ask(_PRODUCE_VERSION, request).responses[0].partition_responses[0]
        check(answer.error_code, answer.error_message)
    pending.clear()


def consume_lines(
    client: Client,
    topic: str,
    properties: dict[str, str],
    out: BinaryIO,
    *,
    start: int,
    max_messages: int,
    timeout_ms: int,
    partition: int | None,
) -> None:
    """A line a record, until `max_messages` (-1: no limit) or until `timeout_ms` without one (-1: for ever)."""
    leaders = {
        index: leader
        for index, leader in sorted(client.leaders(topic, create=True).items())
        if partition in (None, index)
    }
    if not leaders:
        raise ToolError(f"topic {topic} has no partition {partition}")
    positions = {
        index: list_offset(leader, topic, index, start) for index, leader in leaders.items()
    }
    print_key = _on(properties, "print.key")
    separator = properties.get("key.separator", "\t").encode()
    left = max_messages
    last = time.monotonic()
    while left != 0:
        for index, leader in leaders.items():
            data = _fetch(leader, topic, index, positions[index], _POLL_MS // len(leaders))
            for record in _records(data, positions[index]):
                positions[index] = record.offset + 1
                last = time.monotonic()
                if left == 0:
                    break
                key = record.key if record.key is not None else b"null"
                value = record.value if record.value is not None else b"null"
                out.write((key + separator if print_key else b"") + value + b"\n")
                left -= 1
        out.flush()
        if timeout_ms >= 0 and (time.monotonic() - last) * 1000 > timeout_ms:
            return


def _fetch(leader: Connection, topic: str, index: int, offset: int, wait_ms: int) -> PartitionData:
    from kwire.protocol.schemas.fetch import FetchPartition, FetchRequest, FetchTopic

    wanted = FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=1 << 20)
    request = FetchRequest(
        max_wait_ms=wait_ms, min_bytes=1, topics=[FetchTopic(topic=topic, partitions=[wanted])]
    )
    data: PartitionData = leader.ask(_FETCH_VERSION, request).responses[0].partitions[0]
    check(data.error_code)
    return data


def _records(data: PartitionData, position: int) -> list[Record]:
    if not data.records:
        return []
    return [
        record
        for header in iter_batches(data.records)
        if not header.is_control
        for record in iter_records(data.records, header)
        if record.offset >= position
    ]
