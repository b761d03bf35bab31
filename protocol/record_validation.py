"""Validation of a producer's record batch before the append.

Answers to LogValidator of Kafka 3.9 for magic 2. Sizes, sequences and offsets are checked by
kwire.replication. Nothing is allocated per record.
"""

from __future__ import annotations

from typing import NamedTuple

from kwire.protocol.compression import DECOMPRESSED_BYTES_MAX
from kwire.protocol.errors import ErrorCode, InvalidRecordsError
from kwire.protocol.records import (
    LOG_APPEND_TIME,
    NO_TIMESTAMP,
    BatchHeader,
    Buffer,
    _invalid,
    _records_section,
    _wrap_int64,
)
from kwire.protocol.varint import INT64_MAX, read_varint, read_varlong

RECORD_ERRORS_MAX = 1000
"""Kafka reports every bad record; a batch can have millions."""


class RecordsSummary(NamedTuple):
    max_timestamp: int
    """The largest record timestamp, -1 without records; the batch's with LogAppendTime."""
    consecutive: bool
    """Record i has offset delta i. Kafka renumbers a compressed batch where this is false."""


def validate_header(header: BatchHeader) -> None:
    """Check the rules about the header of a client's batch: KafkaError(INVALID_RECORD)."""
    if header.last_offset_delta < 0:
        raise _invalid(
            f"Batch has an invalid offset range: [{header.base_offset}, {header.last_offset}]"
        )
    if header.count <= 0:
        raise _invalid(f"Invalid reported count for record batch: {header.count}")
    if header.last_offset_delta + 1 != header.count:
        raise _invalid(
            f"Inconsistent batch offset range [{header.base_offset}, {header.last_offset}]"
            f" and count of records {header.count}"
        )
    if header.is_control:
        raise _invalid("Clients are not allowed to write control records")
    if header.producer_id > -1 and header.base_sequence < 0:
        raise _invalid(
            f"Invalid sequence number {header.base_sequence} in record batch"
            f" with producerId {header.producer_id}"
        )


def validate_records(
    buffer: Buffer,
    header: BatchHeader,
    *,
    now_ms: int,
    timestamp_type: str,
    timestamp_before_max_ms: int = INT64_MAX,
    timestamp_after_max_ms: int = INT64_MAX,
    keys_required: bool = False,
    limit: int = DECOMPRESSED_BYTES_MAX,
) -> RecordsSummary:
    """Check all records of a client's batch. `timestamp_type`: the topic's; `now_ms`: Unix time.

    InvalidRecordsError with INVALID_RECORD (no key in a compacted topic) or INVALID_TIMESTAMP
    (outside [now - before, now + after], or the client claims LogAppendTime);
    KafkaError(INVALID_RECORD) for malformed records; CORRUPT_MESSAGE if they cannot be
    decompressed.
    """
    data, position, end = _records_section(buffer, header, limit)
    errors: list[tuple[int, str]] = []
    bad_timestamps = 0
    max_timestamp = NO_TIMESTAMP
    consecutive = True
    base_timestamp = header.base_timestamp
    claims_append_time = header.timestamp_type == LOG_APPEND_TIME
    topic_append_time = timestamp_type == LOG_APPEND_TIME
    earliest, latest = now_ms - timestamp_before_max_ms, now_ms + timestamp_after_max_ms
    try:
        for index in range(header.count):
            size, position = read_varint(data, position)
            body_end = position + size
            if size < 0 or body_end > end:
                raise _invalid("Incorrect declared batch size, premature EOF reached")
            timestamp, position = read_varlong(data, position + 1)
            timestamp += base_timestamp
            if claims_append_time:
                timestamp = header.max_timestamp
            elif not -INT64_MAX <= timestamp <= INT64_MAX:
                timestamp = _wrap_int64(timestamp)
            if timestamp > max_timestamp:
                max_timestamp = timestamp
            offset_delta, position = read_varint(data, position)
            if offset_delta != index:
                consecutive = False
            key_length, position = read_varint(data, position)
            _skip_value_and_headers(data, position + max(key_length, 0), body_end)
            position = body_end
            if keys_required and key_length < 0:
                errors.append((index, "Compacted topic cannot accept message without key"))
            elif not topic_append_time and timestamp != NO_TIMESTAMP:
                if not earliest <= timestamp <= latest:
                    bad_timestamps += 1
                    errors.append((index, _out_of_range(timestamp, earliest, latest)))
            elif claims_append_time:
                bad_timestamps += 1
                errors.append((index, "Producer should not set timestamp type to LogAppendTime."))
            if len(errors) >= RECORD_ERRORS_MAX:
                break
    except (IndexError, ValueError):
        raise _invalid("Found invalid record structure") from None
    if errors:
        raise _errors(errors, bad_timestamps)
    if position != end:
        raise _invalid("Incorrect declared batch size, records still remaining in file")
    return RecordsSummary(max_timestamp, consecutive)


def _skip_value_and_headers(data: bytes, position: int, end: int) -> None:
    value_length, position = read_varint(data, position)
    if value_length > 0:
        position += value_length
    count, position = read_varint(data, position)
    if count < 0 or count > end - position:
        raise _invalid(f"Found invalid number of record headers {count}")
    for _ in range(count):
        length, position = read_varint(data, position)
        if length < 0:
            raise _invalid(f"Invalid negative header key size {length}")
        length, position = read_varint(data, position + length)
        if length > 0:
            position += length
    if position != end:
        raise _invalid("Invalid record size: a record's fields and its size differ")


def _out_of_range(timestamp: int, earliest: int, latest: int) -> str:
    return (
        f"Timestamp {timestamp} of message is out of range."
        f" The timestamp should be within [{earliest}, {latest}]"
    )


def _errors(errors: list[tuple[int, str]], bad_timestamps: int) -> InvalidRecordsError:
    if bad_timestamps:
        return InvalidRecordsError(
            ErrorCode.INVALID_TIMESTAMP,
            "One or more records have been rejected due to invalid timestamp",
            errors,
        )
    return InvalidRecordsError(
        ErrorCode.INVALID_RECORD,
        f"One or more records have been rejected due to {len(errors)} record errors in total,"
        f" the first: {errors[0][1]}",
        errors,
    )
