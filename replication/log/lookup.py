"""Look up offsets by timestamp, in steps: time index, then batch headers, then the records of one batch.

Answers to UnifiedLog.fetchOffsetByTimestamp and LogSegment.findOffsetByTimestamp (KIP-33, KIP-79, KIP-734).

A batch can hold millions of records, and an index have no entry for a gigabyte of batches. So these are
generators of steps (replication/core/work.py), between which segments may be rolled, replaced or deleted:
the search goes on in what holds the next offset then. KafkaError(NOT_LEADER_OR_FOLLOWER) if the log is closed.
"""

from __future__ import annotations

from collections.abc import Generator
from itertools import islice
from typing import Final

from kwire.protocol.errors import ErrorCode, KafkaError
from kwire.protocol.record_streams import records_in_parts
from kwire.protocol.records import BatchHeader, parse_header
from kwire.replication.log.types import TimestampAndOffset

TYPE_CHECKING = False
if TYPE_CHECKING:
    from kwire.replication.core.work import Steps
    from kwire.replication.log.log import Log
    from kwire.replication.log.segment import LogSegment

Lookup = Generator[int, None, TimestampAndOffset | None]
"""Steps that return what is found."""

_A_STEP: Final = 200
"""Batches, or records, that a step looks at."""
_UNITS_A_SEGMENT: Final = 20


def offset_by_timestamp(log: Log, timestamp: int, end_offset: int) -> Lookup:
    """The first record in [log start, `end_offset`) with at least this timestamp."""
    offset = log.log_start_offset
    while True:
        number = log.segment_number(offset)
        segment = log.segments[number]
        if segment.base_offset >= end_offset:
            return None
        following = log.segments[number + 1 : number + 2]
        batch = None
        if segment.max_timestamp >= timestamp:
            start = _start_position(segment, timestamp)
            batch = yield from _first_batch(log, segment, start, timestamp, offset)
        if batch is not None:
            found = yield from _in_batch(segment, batch, timestamp, log.log_start_offset)
            if found is not None:
                return found if found.offset < end_offset else None
            offset = batch.next_offset
        elif following and segment in log.segments:
            offset = max(offset, following[0].base_offset)
        elif not following:
            return None
        yield from _pause(log, _UNITS_A_SEGMENT)


def max_timestamp_offset(log: Log, end_offset: int) -> Lookup:
    """The first record with the log's largest timestamp; None at or above `end_offset`.

    As in Kafka it may be below the log start: deleted, and still in its segment."""
    segment = max(log.segments, key=lambda segment: segment.max_timestamp)
    largest = segment.max_timestamp
    if largest < 0:
        return None
    start = segment.offset_index.position_for_offset(
        segment.offset_of_max_timestamp - segment.base_offset
    )
    batch = yield from _first_batch(log, segment, start, largest, segment.base_offset)
    found = None
    if batch is not None:
        found = yield from _in_batch(segment, batch, largest, segment.base_offset)
    return found if found is not None and found.offset < end_offset else None


def _start_position(segment: LogSegment, timestamp: int) -> int:
    """The position of the first batch that can have a record with the timestamp or a later one."""
    entry = segment.time_index.floor(timestamp)
    return segment.offset_index.position_for_offset(entry[1]) if entry is not None else 0


def _first_batch(
    log: Log, segment: LogSegment, position: int, timestamp: int, offset: int
) -> Generator[int, None, BatchHeader | None]:
    """The first batch from a position on that has the timestamp or a later one, and does not end
    below the offset. None: the segment has no such batch, or is no longer the log's."""
    while segment in log.segments:
        batch = None
        for batch in islice(segment.batches(position), _A_STEP):
            if batch.max_timestamp >= timestamp and batch.last_offset >= offset:
                return batch
        if batch is None:
            return None
        position = batch.end
        yield from _pause(log, _A_STEP)
    return None


def _in_batch(segment: LogSegment, batch: BatchHeader, timestamp: int, start_offset: int) -> Lookup:
    data = segment.read_batch(batch)
    records = yield from records_in_parts(data, parse_header(data))
    for number, record in enumerate(records, 1):
        if record.timestamp >= timestamp and record.offset >= start_offset:
            return TimestampAndOffset(record.timestamp, record.offset, batch.partition_leader_epoch)
        if not number % _A_STEP:
            yield _A_STEP
    return None


def _pause(log: Log, cost: int) -> Steps:
    yield cost
    if log.closed:
        raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "the log was closed during the search")
