"""Validation of a producer's record batch before the append.

Answers to LogValidator, DefaultRecordBatch and DefaultRecord of Kafka 3.9 for magic 2. CRC, sizes,
sequences and offsets are checked by kwire.replication. Nothing is allocated per record.

Two passes: record_walk vouches for batches without any oddity; the rest goes through `_exact`,
which does what Kafka does in Kafka's order. Kafka reads records in three ways, and each lets pass
what another refuses (`Reading`).
"""

from __future__ import annotations

from collections.abc import Generator
from enum import Enum
from typing import NamedTuple

from kwire.protocol.compression import DECOMPRESSED_BYTES_MAX
from kwire.protocol.errors import ErrorCode, InvalidRecordsError, KafkaError
from kwire.protocol.record_streams import Stream, stream
from kwire.protocol.record_walk import COPIED_RECORD_BYTES, KEYLESS, NO_DELTA, UNORDERED, walk
from kwire.protocol.records import (
    HEADER_SIZE,
    LOG_APPEND_TIME,
    NO_TIMESTAMP,
    BatchHeader,
    Buffer,
    invalid_record,
    wrap_int64,
)
from kwire.protocol.varint import INT64_MAX, read_varint, read_varlong

RECORD_ERRORS_MAX = 1000
"""Kafka reports every bad record; a batch can have millions."""
STEP_RECORDS = 512
_COPIED_BYTES_MAX = 16 << 20  # 10 ms
_EXACT_UNITS = 3  # what a record costs in the exact pass


class Reading(Enum):
    """How Kafka reads the records of a batch."""

    BUFFER = "uncompressed: each record lies in what is left of the batch"
    SKIPPED = "compressed and kept: fields one after the other, sizes of records have no meaning"
    COPIED = "compressed and to be written differently: each record is read in full"


class RecordRules(NamedTuple):
    """What the topic asks of records. Times in ms since 1970."""

    now_ms: int
    timestamp_type: str = "CreateTime"
    timestamp_before_max_ms: int = INT64_MAX
    timestamp_after_max_ms: int = INT64_MAX
    keys_required: bool = False
    is_kept: bool = True
    """The batch keeps its codec."""


class RecordsSummary(NamedTuple):
    max_timestamp: int
    """The largest record timestamp, -1 without records; the batch's with LogAppendTime."""
    is_plain: bool
    """Record i has offset delta i, and there is no oddity. False: to be rebuilt if it is rewritten."""
    section: Buffer
    """The records, decompressed."""


def validate_header(header: BatchHeader) -> None:
    """Check the rules about the header of a client's batch: KafkaError(INVALID_RECORD)."""
    if header.last_offset_delta < 0:
        raise invalid_record(
            f"Batch has an invalid offset range: [{header.base_offset}, {header.last_offset}]"
        )
    if header.count <= 0:
        raise invalid_record(f"Invalid reported count for record batch: {header.count}")
    if header.last_offset_delta + 1 != header.count:
        raise invalid_record(
            f"Inconsistent batch offset range [{header.base_offset}, {header.last_offset}]"
            f" and count of records {header.count}"
        )
    if header.is_control:
        raise invalid_record("Clients are not allowed to write control records")
    if header.producer_id > -1 and header.base_sequence < 0:
        raise invalid_record(
            f"Invalid sequence number {header.base_sequence} in record batch"
            f" with producerId {header.producer_id}"
        )


def check_records(
    batch: memoryview,
    header: BatchHeader,
    rules: RecordRules,
    limit: int = DECOMPRESSED_BYTES_MAX,
) -> Generator[int, None, RecordsSummary]:
    """Check all records of a client's batch in steps (their costs in units: core/work.py).

    InvalidRecordsError with INVALID_RECORD (no key in a compacted topic) or INVALID_TIMESTAMP
    (outside [now - before, now + after], or the client claims LogAppendTime). KafkaError:
    INVALID_RECORD for malformed records; UNKNOWN_SERVER_ERROR, as Kafka has it, if they cannot be
    decompressed, a size is no varint, or compressed records are numbered wrongly;
    MESSAGE_TOO_LARGE above `limit` bytes.
    """
    section = batch[header.position + HEADER_SIZE : header.position + header.size]
    data: Buffer
    if header.compression == "none":
        reading, ends = Reading.BUFFER, True
        copied_max = min(header.count * COPIED_RECORD_BYTES, _COPIED_BYTES_MAX)
        data = bytes(section) if len(section) <= copied_max else section
    else:
        reading = Reading.SKIPPED if rules.is_kept else Reading.COPIED
        data, ends = yield from stream(header.compression, section, limit)
    if ends and header.timestamp_type != LOG_APPEND_TIME:
        summary = yield from _quick(data, header, rules)
        if summary is not None:
            return summary
    return (yield from _exact((data, ends), header, rules, reading))


def _quick(
    data: Buffer, header: BatchHeader, rules: RecordRules
) -> Generator[int, None, RecordsSummary | None]:
    """The summary of a batch whose records are plainly valid, else None."""
    position = index = flags = 0
    delta = NO_DELTA
    count, base_timestamp = header.count, header.base_timestamp
    while index < count:
        stop = min(count, index + STEP_RECORDS)
        position, delta, found = walk(data, position, index, stop, delta, base_timestamp)
        if position < 0:
            return None
        yield stop - index
        index = stop
        flags |= found
    max_timestamp = base_timestamp + (delta >> 1)
    if (
        position != len(data)
        or delta == NO_DELTA
        or max_timestamp - rules.now_ms > rules.timestamp_after_max_ms
        or (rules.timestamp_before_max_ms != INT64_MAX and rules.timestamp_type != LOG_APPEND_TIME)
        or (flags & KEYLESS and rules.keys_required)
        or (flags & UNORDERED and rules.is_kept and header.compression != "none")
    ):
        return None
    return RecordsSummary(max_timestamp, not flags & UNORDERED, data)


# --- the exact pass


def _exact(
    records: Stream, header: BatchHeader, rules: RecordRules, reading: Reading
) -> Generator[int, None, RecordsSummary]:
    data, ends = records
    claims_append_time = header.timestamp_type == LOG_APPEND_TIME
    errors: list[tuple[int, str]] = []
    bad_timestamps = position = 0
    max_timestamp = NO_TIMESTAMP
    in_order, is_negative = True, False
    for index in range(header.count):
        if index % STEP_RECORDS == STEP_RECORDS - 1:
            yield STEP_RECORDS * _EXACT_UNITS
        position, end, delta, offset, has_key = _record(data, position, ends, reading)
        position = yield from _headers(data, position, ends or reading is Reading.COPIED)
        if position != end and reading is not Reading.SKIPPED:
            raise invalid_record("Invalid record size: a record's fields and its size differ")
        timestamp = wrap_int64(header.base_timestamp + delta)
        if claims_append_time:
            timestamp = header.max_timestamp
        max_timestamp = max(max_timestamp, timestamp)
        is_negative = is_negative or timestamp < NO_TIMESTAMP
        in_order = in_order and offset == index
        if rules.keys_required and not has_key:
            error: str | None = "Compacted topic cannot accept message without key"
        else:
            error = _timestamp_error(timestamp, claims_append_time, rules)
            bad_timestamps += error is not None
        if error is not None and len(errors) < RECORD_ERRORS_MAX:
            errors.append((index, error))
    if position != len(data):
        raise invalid_record("Incorrect declared batch size, records still remaining in file")
    if not ends:
        raise _broken()
    if errors:
        raise _errors(errors, bad_timestamps)
    if reading is Reading.SKIPPED and not in_order:
        raise _unexpected("The offsets of the records in a compressed batch are not 0, 1, 2, …")
    if is_negative and not rules.is_kept:
        raise _unexpected("Invalid negative timestamp")
    return RecordsSummary(max_timestamp, False, data)


def _record(
    data: Buffer, position: int, ends: bool, reading: Reading
) -> tuple[int, int, int, int, bool]:
    """Read a record up to its headers: (position, its end, timestamp delta, offset delta, has a key)."""
    try:
        size, position = read_varint(data, position)
    except ValueError:
        if reading is Reading.BUFFER:
            raise _unexpected("The size of a record is no varint") from None
        raise invalid_record("Incorrect declared batch size, premature EOF reached") from None
    except IndexError:
        raise _cut_off(ends) from None
    end = position + size
    if reading is not Reading.SKIPPED and (size < 0 or end > len(data)):
        raise _cut_off(ends or size < 0)
    ends = ends or reading is Reading.COPIED  # all of it has been read
    try:
        delta, position = read_varlong(data, position + 1)
        offset, position = read_varint(data, position)
        key_length, position = read_varint(data, position)
        value_length, position = read_varint(data, position + max(key_length, 0))
    except ValueError:
        raise invalid_record("Found invalid record structure") from None
    except IndexError:
        raise _cut_off(ends) from None
    return position + max(value_length, 0), end, delta, offset, key_length >= 0


def _headers(data: Buffer, position: int, ends: bool) -> Generator[int, None, int]:
    """Read the headers of a record; returns the position after them."""
    try:
        count, position = read_varint(data, position)
        if count < 0:
            raise invalid_record(f"Found invalid number of record headers {count}")
        for index in range(count):
            if index % STEP_RECORDS == STEP_RECORDS - 1:
                yield STEP_RECORDS
            length, position = read_varint(data, position)
            if length < 0:
                raise invalid_record(f"Invalid negative header key size {length}")
            length, position = read_varint(data, position + length)
            position += max(length, 0)
    except ValueError:
        raise invalid_record("Found invalid record structure") from None
    except IndexError:
        raise _cut_off(ends) from None
    if position > len(data):
        raise _cut_off(ends)
    return position


def _timestamp_error(timestamp: int, claims_append_time: bool, rules: RecordRules) -> str | None:
    """Why a timestamp is refused. Differences wrap as Java's do (LogValidator.validateTimestamp)."""
    if rules.timestamp_type != LOG_APPEND_TIME and timestamp != NO_TIMESTAMP:
        before, after = rules.timestamp_before_max_ms, rules.timestamp_after_max_ms
        age_ms = wrap_int64(rules.now_ms - timestamp)
        if age_ms > before or wrap_int64(-age_ms) > after:
            return (
                f"Timestamp {timestamp} of message is out of range. The timestamp should be within"
                f" [{rules.now_ms - before}, {rules.now_ms + after}]"
            )
        return None
    return (
        "Producer should not set timestamp type to LogAppendTime." if claims_append_time else None
    )


def _cut_off(ends: bool) -> KafkaError:
    """The error where the data ends within a record: its end, or that of what can be decompressed."""
    return (
        invalid_record("Incorrect declared batch size, premature EOF reached")
        if ends
        else _broken()
    )


def _broken() -> KafkaError:
    return _unexpected("The records cannot be decompressed")


def _unexpected(message: str) -> KafkaError:
    """The error of what is in Kafka an exception that nobody expects.

    Compressed records in a wrong order, for one, would be renumbered, but for what was skipped.
    """
    return KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, message)


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
