"""kafka-console-producer and kafka-console-consumer of the image: lines to records and back.

Corresponds to kafka.tools.ConsoleProducer and LineMessageReader, ConsoleConsumer and
DefaultMessageFormatter, with their properties; keyed records are partitioned as by Kafka (murmur2).
A group's offsets are read and committed, but partitions are not shared among consumers of a group:
each reads all of them.
"""

from __future__ import annotations

import os
import sys
import time

from kwire.client.lines import line_chunks
from kwire.client.partitioner import partition_of
from kwire.docker.client import TIMEOUT_MS, Client, ToolError, check
from kwire.protocol.record_builder import build_batch
from kwire.protocol.records import Record, iter_batches, iter_records

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from typing import BinaryIO

    from kwire.client.connection import Address
    from kwire.protocol.schemas.fetch import PartitionData

_POLL_MS = 250


def _on(properties: Mapping[str, str], key: str, default: str = "false") -> bool:
    return properties.get(key, default).strip().lower() == "true"


# --- the producer


class LineReader:
    """Parses a line into key, value and headers, according to LineMessageReader's properties."""

    def __init__(self, properties: Mapping[str, str]) -> None:
        self._parse_key = _on(properties, "parse.key")
        self._parse_headers = _on(properties, "parse.headers")
        self._key_separator = properties.get("key.separator", "\t").encode()
        self._headers_delimiter = properties.get("headers.delimiter", "\t").encode()
        self._headers_separator = properties.get("headers.separator", ",").encode()
        self._header_separator = properties.get("headers.key.separator", ":").encode()
        self._ignore_error = _on(properties, "ignore.error")
        marker = properties.get("null.marker")
        self._null = None if marker is None else marker.encode()

    def record(self, line: bytes, number: int, timestamp_ms: int) -> Record:
        """Parse a line. ToolError, with the line's number, when a separator is missing."""
        headers: list[tuple[str, bytes | None]] = []
        rest, key = line, None
        if self._parse_headers:
            text, rest = self._split(rest, self._headers_delimiter, "headers delimiter", number)
            if text is not None and text != self._null:
                headers = [self._header(item) for item in text.split(self._headers_separator)]
        if self._parse_key:
            key, rest = self._split(rest, self._key_separator, "key separator", number)
        return Record(-1, timestamp_ms, self._or_null(key), self._or_null(rest), headers)

    def _split(
        self, line: bytes, separator: bytes, what: str, number: int
    ) -> tuple[bytes | None, bytes]:
        first, found, rest = line.partition(separator)
        if found:
            return first, rest
        if self._ignore_error:
            return None, line
        raise ToolError(
            f"No {what} found on line number {number}: '{line.decode('utf-8', 'replace')}'"
        )

    def _header(self, item: bytes) -> tuple[str, bytes | None]:
        name, _, value = item.partition(self._header_separator)
        return name.decode("utf-8", "surrogateescape"), self._or_null(value)

    def _or_null(self, value: bytes | None) -> bytes | None:
        return None if value == self._null else value


def produce_lines(client: Client, topic: str, properties: Mapping[str, str], source: int) -> None:
    """Produce each line of a file descriptor as a record; send when no more input is available."""
    leaders = sorted(client.leaders(topic, create=True).items())
    reader = LineReader(properties)
    number = 0
    prompt = _show_prompt if os.isatty(source) else None
    for turn, lines in enumerate(line_chunks(source, prompt)):
        pending: dict[int, list[Record]] = {}
        now_ms = time.time_ns() // 1_000_000
        try:
            for line in lines:
                number += 1
                record = reader.record(line, number, now_ms)
                place = turn if record.key is None else partition_of(record.key, len(leaders))
                pending.setdefault(place % len(leaders), []).append(record)
        finally:
            send_records(client, topic, leaders, pending)


def _show_prompt() -> None:
    sys.stdout.write(">")
    sys.stdout.flush()


def send_records(
    client: Client,
    topic: str,
    leaders: list[tuple[int, Address]],
    pending: dict[int, list[Record]],
) -> None:
    """Produce records, one request per partition. `pending`: by place in `leaders`. ToolError."""
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
            timeout_ms=TIMEOUT_MS,
            topic_data=[TopicProduceData(name=topic, partition_data=[data])],
        )
        answer = client.ask(request, leader).responses[0].partition_responses[0]
        check(answer.error_code, answer.error_message)


# --- the consumer


class Formatter:
    """Formats a record as bytes, according to DefaultMessageFormatter's properties."""

    def __init__(self, properties: Mapping[str, str]) -> None:
        def text(key: str, default: str) -> bytes:
            return properties.get(key, default).encode()

        separator = text("key.separator", "\t")
        self._separator = separator
        self._end = text("line.separator", "\n")
        self._headers_separator = text("headers.separator", ",")
        self._null = text("null.literal", "null")
        parts: list[Callable[[int, Record, str], bytes]] = []
        if _on(properties, "print.timestamp"):
            parts.append(lambda _, record, kind: b"%s:%d" % (kind.encode(), record.timestamp))
        if _on(properties, "print.partition"):
            parts.append(lambda partition, _record, _kind: b"Partition:%d" % partition)
        if _on(properties, "print.offset"):
            parts.append(lambda _, record, _kind: b"Offset:%d" % record.offset)
        if _on(properties, "print.headers"):
            parts.append(lambda _, record, _kind: self._headers(record))
        if _on(properties, "print.key"):
            parts.append(lambda _, record, _kind: self._or_null(record.key))
        if _on(properties, "print.value", "true"):
            parts.append(lambda _, record, _kind: self._or_null(record.value))
        self._parts = parts

    def line(self, partition: int, record: Record, timestamp_kind: str) -> bytes:
        """Format a record, line separator included."""
        parts = [part(partition, record, timestamp_kind) for part in self._parts]
        return self._separator.join(parts) + self._end

    def _or_null(self, value: bytes | None) -> bytes:
        return self._null if value is None else bytes(value)

    def _headers(self, record: Record) -> bytes:
        if not record.headers:
            return b"NO_HEADERS"
        return self._headers_separator.join(
            name.encode("utf-8", "surrogateescape") + b":" + self._or_null(value)
            for name, value in record.headers
        )


class Reading:
    """The partitions to read and their positions, by (topic, partition)."""

    def __init__(self, client: Client, group: str | None) -> None:
        self._client = client
        self._group = group
        self._leaders: dict[tuple[str, int], Address] = {}
        self._positions: dict[tuple[str, int], int] = {}
        self._committed: dict[tuple[str, int], int] = {}

    def add(self, topic: str, partition: int | None, start: int) -> None:
        """Add all partitions of a topic, or one. `start`: an offset, -2 earliest, -1 latest; an offset
        committed by the group takes precedence."""
        leaders = self._client.leaders(topic, create=True)
        if partition is not None and partition not in leaders:
            raise ToolError(f"topic {topic} has no partition {partition}")
        known: Mapping[tuple[str, int], int] = {}
        if self._group is not None:
            from kwire.docker.groups import committed_offsets

            known = committed_offsets(self._client, self._group)
        for index, leader in sorted(leaders.items()):
            if partition in (None, index):
                key = topic, index
                self._leaders[key] = leader
                self._positions[key] = (
                    known[key]
                    if key in known
                    else start
                    if start >= 0
                    else self._client.offset(topic, index, start, leader)
                )

    def poll(self) -> Iterator[tuple[int, Record, str]]:
        """Fetch new records: partition, record, kind of timestamp."""
        for key, leader in self._leaders.items():
            topic, index = key
            wait_ms = _POLL_MS // len(self._leaders)
            start = self._positions[key]
            data = _fetch(self._client, leader, topic, index, start, wait_ms)
            records = data.records or b""
            for header in iter_batches(records):
                for record in () if header.is_control else iter_records(records, header):
                    if record.offset >= start:
                        self._positions[key] = record.offset + 1
                        yield index, record, header.timestamp_type
                self._positions[key] = header.next_offset

    def commit(self) -> None:
        """Commit the group's offsets, if there is a group and they have changed."""
        news = {
            key: position
            for key, position in self._positions.items()
            if self._committed.get(key) != position
        }
        if self._group is not None and news:
            from kwire.docker.groups import commit_offsets

            commit_offsets(self._client, self._group, news)
            self._committed.update(news)


def consume_lines(
    reading: Reading, formatter: Formatter, out: BinaryIO, *, max_messages: int, timeout_ms: int
) -> Iterator[int]:
    """Write a line per record, until `max_messages` (-1: no limit) or `timeout_ms` without a record
    (-1: never).

    Yields the number of records so far."""
    count = 0
    last = time.monotonic()
    while count != max_messages:
        for partition, record, kind in reading.poll():
            out.write(formatter.line(partition, record, kind))
            count += 1
            last = time.monotonic()
            if count == max_messages:
                break
        out.flush()
        reading.commit()
        yield count
        if timeout_ms >= 0 and (time.monotonic() - last) * 1000 > timeout_ms:
            return


def _fetch(
    client: Client, leader: Address, topic: str, index: int, offset: int, wait_ms: int
) -> PartitionData:
    from kwire.protocol.schemas.fetch import FetchPartition, FetchRequest, FetchTopic

    wanted = FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=1 << 20)
    request = FetchRequest(
        max_wait_ms=wait_ms, min_bytes=1, topics=[FetchTopic(topic=topic, partitions=[wanted])]
    )
    data: PartitionData = client.ask(request, leader).responses[0].partitions[0]
    check(data.error_code)
    return data
