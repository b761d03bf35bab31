"""Look up offsets by timestamp: time index, then batch headers, then the records of one batch.

Answers to UnifiedLog.fetchOffsetByTimestamp and LogSegment.findOffsetByTimestamp (KIP-33, KIP-79, KIP-734).
"""

from __future__ import annotations

from kwire.protocol.records import BatchHeader, iter_records, parse_header
from kwire.replication.log.types import TimestampAndOffset

TYPE_CHECKING = False
if TYPE_CHECKING:
    from kwire.replication.log.log import Log
    from kwire.replication.log.segment import LogSegment


def offset_by_timestamp(log: Log, timestamp: int, end_offset: int) -> TimestampAndOffset | None:
    """The first record in [log start, `end_offset`) with at least this timestamp."""
    first = log.segment_number(log.log_start_offset)
    for segment in log.segments[first:]:
        if segment.base_offset >= end_offset:
            return None
        if segment.max_timestamp < timestamp:
            continue
        for batch in segment.batches(_start_position(segment, timestamp)):
            if batch.max_timestamp >= timestamp and batch.last_offset >= log.log_start_offset:
                found = _in_batch(segment, batch, timestamp, log.log_start_offset)
                if found is not None:
                    return found if found.offset < end_offset else None
    return None


def max_timestamp_offset(log: Log, end_offset: int) -> TimestampAndOffset | None:
    """The first record with the log's largest timestamp; None at or above `end_offset`.

    As in Kafka it may be below the log start: deleted, and still in its segment."""
    segment = max(log.segments, key=lambda segment: segment.max_timestamp)
    largest = segment.max_timestamp
    if largest < 0:
        return None
    start = segment.offset_index.position_for_offset(
        segment.offset_of_max_timestamp - segment.base_offset
    )
    for batch in segment.batches(start):
        if batch.max_timestamp == largest:
            found = _in_batch(segment, batch, largest, segment.base_offset)
            if found is not None:
                return found if found.offset < end_offset else None
    return None


def _start_position(segment: LogSegment, timestamp: int) -> int:
    """The position of the first batch that can have a record with the timestamp or a later one."""
    entry = segment.time_index.floor(timestamp)
    return segment.offset_index.position_for_offset(entry[1]) if entry is not None else 0


def _in_batch(
    segment: LogSegment, batch: BatchHeader, timestamp: int, start_offset: int
) -> TimestampAndOffset | None:
    data = segment.read_batch(batch)
    for record in iter_records(data, parse_header(data)):
        if record.timestamp >= timestamp and record.offset >= start_offset:
            return TimestampAndOffset(record.timestamp, record.offset, batch.partition_leader_epoch)
    return None
