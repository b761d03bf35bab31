"""Record batches (magic 2): parse headers in place, iterate over records, build batches.

Answers to DefaultRecordBatch, DefaultRecord, EndTransactionMarker and ControlRecordType of Kafka
3.9 (KIP-98, KIP-360 for the delete horizon). Message sets of magic 0 and 1 are in message_set.py.

    position  0 base offset i64      12 leader epoch i32   17 crc u32          23 last offset delta i32
              8 length i32           16 magic i8           21 attributes i16   27 base timestamp i64
             35 max timestamp i64    43 producer id i64    51 producer epoch i16
             53 base sequence i32    57 record count i32   61 records, compressed as a whole

* The CRC-32C covers byte 21 to the end of the batch: base offset and leader epoch can be stamped without touching it.
* With LogAppendTime every record has the batch's max timestamp; with the delete horizon bit the base timestamp field is
  the horizon (and still what the deltas count from).
* A `BatchHeader` guarantees magic 2 and a size of at least a header. Counts and deltas are
  unchecked, and the batch may be longer than the buffer.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from struct import Struct
from struct import error as _StructError
from typing import NamedTuple

from fastcrc.crc32 import iscsi as _crc32c

from kwire.protocol import compression as _compression
from kwire.protocol.compression import DECOMPRESSED_BYTES_MAX
from kwire.protocol.errors import ErrorCode, KafkaError
from kwire.protocol.varint import (
    INT32_MAX,
    INT64_MAX,
    read_varint,
    read_varlong,
)

Buffer = bytes | bytearray | memoryview

NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1
NO_SEQUENCE = -1
NO_PARTITION_LEADER_EPOCH = -1
NO_TIMESTAMP = -1

CREATE_TIME = "CreateTime"
LOG_APPEND_TIME = "LogAppendTime"

LOG_OVERHEAD = 12
"""Base offset and length, which the length field does not count."""
HEADER_SIZE = 61
MAGIC_POSITION = 16
ATTRIBUTES_POSITION = 21
"""Also the start of the part that the CRC covers."""

HEADER = Struct(">qiibIhiqqqhii")
"""The layout above. Most readers want `parse_header`; the fast path of a log unpacks a header
itself and uses these indexes, because a BatchHeader costs 0.3 µs more a batch."""
(
    BASE_OFFSET,
    LENGTH,
    PARTITION_LEADER_EPOCH,
    MAGIC,
    CRC,
    ATTRIBUTES,
    LAST_OFFSET_DELTA,
    BASE_TIMESTAMP,
    MAX_TIMESTAMP,
    PRODUCER_ID,
    PRODUCER_EPOCH,
    BASE_SEQUENCE,
    COUNT,
) = range(13)
OFFSET_AND_LENGTH = Struct(">qi")
"""The fields needed to step from batch to batch."""

# The bits of a batch's attributes.
COMPRESSION_MASK = 0x07
LOG_APPEND_TIME_FLAG = 0x08
TRANSACTIONAL_FLAG = 0x10
CONTROL_FLAG = 0x20
DELETE_HORIZON_FLAG = 0x40
_USED_ATTRIBUTES = 0x7F

CONTROL_ABORT = 0
CONTROL_COMMIT = 1

_unpack_header = HEADER.unpack_from
_CRC = Struct(">I")
_INT64 = Struct(">q")
_INT32 = Struct(">i")
_INT16 = Struct(">h")
CONTROL_KEY = Struct(">hh")
END_TXN_VALUE = Struct(">hi")
INT64_MIN = -INT64_MAX - 1


class BatchHeader(NamedTuple):
    """The header of a batch at `position` of a buffer. A tuple: one allocation on the fast path."""

    position: int
    base_offset: int
    size: int
    """Of the whole batch: 12 more than its length field."""
    partition_leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    count: int  # type: ignore[assignment]  # tuple.count is of no use here

    @property
    def end(self) -> int:
        """Position after the batch."""
        return self.position + self.size

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1

    @property
    def compression(self) -> str:
        """Codec name; KafkaError(UNSUPPORTED_COMPRESSION_TYPE) for an unknown id."""
        return _compression.codec_name(self.attributes & COMPRESSION_MASK)

    @property
    def timestamp_type(self) -> str:
        return LOG_APPEND_TIME if self.attributes & LOG_APPEND_TIME_FLAG else CREATE_TIME

    @property
    def is_transactional(self) -> bool:
        return self.attributes & TRANSACTIONAL_FLAG != 0

    @property
    def is_control(self) -> bool:
        return self.attributes & CONTROL_FLAG != 0

    @property
    def has_delete_horizon(self) -> bool:
        return self.attributes & DELETE_HORIZON_FLAG != 0

    @property
    def delete_horizon_ms(self) -> int | None:
        return self.base_timestamp if self.attributes & DELETE_HORIZON_FLAG else None

    @property
    def has_producer_id(self) -> bool:
        return self.producer_id > NO_PRODUCER_ID

    @property
    def last_sequence(self) -> int:
        if self.base_sequence == NO_SEQUENCE:
            return NO_SEQUENCE
        return increment_sequence(self.base_sequence, self.last_offset_delta)


class Record(NamedTuple):
    """One record. In a builder an offset below 0 means "the one after the record before"."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]] = ()
    """Keys are UTF-8; other bytes become surrogate escapes and are written back unchanged."""


class ControlMarker(NamedTuple):
    """The end of a transaction, read from a control batch."""

    type: int
    """CONTROL_ABORT, CONTROL_COMMIT or another number, whose readers ignore it."""
    coordinator_epoch: int


def increment_sequence(sequence: int, increment: int) -> int:
    """Add to a sequence number, which wraps from 2^31-1 to 0."""
    return (sequence + increment) & INT32_MAX


_new_header = tuple.__new__  # BatchHeader's own __new__ takes twice as long


# --- reading


def parse_header(buffer: Buffer, position: int = 0) -> BatchHeader:
    """Parse the header at `position`. The batch may be longer than the buffer: check `header.end`.

    KafkaError(CORRUPT_MESSAGE): fewer than 61 bytes, an impossible length, an unknown magic.
    KafkaError(INVALID_RECORD): magic 0 or 1, a message set.
    """
    try:
        fields = _unpack_header(buffer, position)
    except _StructError:
        raise _header_error(buffer, position) from None
    length = fields[LENGTH]
    if length < HEADER_SIZE - LOG_OVERHEAD or fields[MAGIC] != 2:
        raise _header_error(buffer, position)
    # As header_of, without the call: followers and restarts do this for every batch.
    return _new_header(
        BatchHeader, (position, fields[BASE_OFFSET], length + LOG_OVERHEAD, *fields[2:])
    )


def header_of(
    fields: tuple[int, ...], position: int = 0, base_offset: int | None = None
) -> BatchHeader:
    """Make a header of fields unpacked by `HEADER`, unchecked. `base_offset`: replaces theirs."""
    if base_offset is None:
        base_offset = fields[BASE_OFFSET]
    return _new_header(
        BatchHeader, (position, base_offset, fields[LENGTH] + LOG_OVERHEAD, *fields[2:])
    )


def _header_error(buffer: Buffer, position: int) -> KafkaError:
    available = len(buffer) - position
    if available > MAGIC_POSITION:
        magic = memoryview(buffer)[position + MAGIC_POSITION]
        if magic in (0, 1):
            return KafkaError(
                ErrorCode.INVALID_RECORD, f"a message set of magic {magic} instead of a batch"
            )
        if magic != 2:
            return KafkaError(ErrorCode.CORRUPT_MESSAGE, f"Invalid magic found in record: {magic}")
    if available >= LOG_OVERHEAD:
        length = _INT32.unpack_from(buffer, position + 8)[0]
        if length < HEADER_SIZE - LOG_OVERHEAD:
            return KafkaError(
                ErrorCode.CORRUPT_MESSAGE, f"Record batch size {length} is less than a header"
            )
    return KafkaError(ErrorCode.CORRUPT_MESSAGE, "the buffer ends within a batch header")


def iter_batches(
    buffer: Buffer, position: int = 0, end: int | None = None
) -> Iterator[BatchHeader]:
    """Iterate over the headers of whole batches between `position` and `end`.

    Stops at a partial batch at the end (a Fetch response may have one). KafkaError as
    `parse_header` at an invalid batch, since the next one cannot be found.
    """
    stop = len(buffer) if end is None else end
    while stop - position >= HEADER_SIZE:
        header = parse_header(buffer, position)
        position += header.size
        if position > stop:
            return
        yield header
    if stop - position > MAGIC_POSITION:  # too short for a batch, long enough to be invalid
        error = _header_error(memoryview(buffer)[:stop], position)
        if error.message != "the buffer ends within a batch header":
            raise error


def check_crc(buffer: Buffer, header: BatchHeader) -> bool:
    """Whether the batch is whole and its CRC-32C right."""
    position = header.position
    body = memoryview(buffer)[position + ATTRIBUTES_POSITION : position + header.size]
    return len(body) == header.size - ATTRIBUTES_POSITION and _crc32c(body) == header.crc


def iter_records(
    buffer: Buffer, header: BatchHeader, *, limit: int = DECOMPRESSED_BYTES_MAX
) -> Iterator[Record]:
    """Iterate over the records of a batch. Decompresses at the first one, at most `limit` bytes.

    KafkaError(INVALID_RECORD) for malformed records, or if count or size differ from the header's;
    KafkaError(CORRUPT_MESSAGE) if they cannot be decompressed. The CRC is not checked.
    """
    count = header.count
    if count == 0:
        return
    data, position, end = records_section(buffer, header, limit)
    base_offset, base_timestamp = header.base_offset, header.base_timestamp
    append_time = header.max_timestamp if header.attributes & LOG_APPEND_TIME_FLAG else None
    try:
        while count > 0:
            count -= 1
            size = data[position]
            if size < 0x80:  # inlined: this loop dominates recovery and compaction
                size, position = size >> 1 ^ -(size & 1), position + 1
            else:
                size, position = read_varint(data, position)
            body_end = position + size
            if size < 0 or body_end > end:
                raise invalid_record(f"a record of {size} bytes is longer than its batch")
            timestamp, position = read_varlong(data, position + 1)
            timestamp += base_timestamp
            if not INT64_MIN <= timestamp <= INT64_MAX:
                timestamp = wrap_int64(timestamp)
            offset_delta = data[position]
            if offset_delta < 0x80:
                offset_delta, position = offset_delta >> 1 ^ -(offset_delta & 1), position + 1
            else:
                offset_delta, position = read_varint(data, position)
            key, position = _read_bytes(data, position)
            value, position = _read_bytes(data, position)
            header_count = data[position]
            if header_count < 0x80:
                header_count, position = header_count >> 1 ^ -(header_count & 1), position + 1
            else:
                header_count, position = read_varint(data, position)
            headers: Sequence[tuple[str, bytes | None]] = ()
            if header_count:
                headers, position = _read_headers(data, position, header_count, body_end)
            if position != body_end:
                raise invalid_record("a record's fields and its size differ")
            if not count and position != end:
                raise invalid_record("Incorrect declared batch size, records still remaining")
            yield Record(
                base_offset + offset_delta,
                timestamp if append_time is None else append_time,
                key,
                value,
                headers,
            )
    except (IndexError, ValueError):
        raise invalid_record("the batch ends within a record") from None


def records_section(buffer: Buffer, header: BatchHeader, limit: int) -> tuple[bytes, int, int]:
    """The uncompressed records as (data, position, end)."""
    if header.count < 0:
        raise invalid_record(f"Found invalid record count {header.count}")
    start = header.position + HEADER_SIZE
    end = header.position + header.size
    if end > len(buffer):
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, "the buffer ends within a batch")
    if not header.attributes & COMPRESSION_MASK:
        if not isinstance(buffer, bytearray | memoryview):  # bytes, or what `decompressed` gives
            return buffer, start, end
        # Copied: records are parsed byte by byte, for which bytes are twice as fast as a view.
        return bytes(memoryview(buffer)[start:end]), 0, end - start
    data = _compression.decompressed(header.compression, memoryview(buffer)[start:end], limit=limit)
    return data, 0, len(data)


def _read_bytes(data: bytes, position: int) -> tuple[bytes | None, int]:
    length, position = read_varint(data, position)
    if length < 0:
        return None, position
    end = position + length
    return data[position:end], end


def _read_headers(
    data: bytes, position: int, count: int, end: int
) -> tuple[list[tuple[str, bytes | None]], int]:
    if count < 0 or count > end - position:
        raise invalid_record(f"Found invalid number of record headers {count}")
    headers = []
    for _ in range(count):
        key, position = _read_bytes(data, position)
        if key is None:
            raise invalid_record("Invalid negative header key size")
        value, position = _read_bytes(data, position)
        if position > end:
            raise invalid_record("a record's headers are longer than the record")
        headers.append((key.decode("utf-8", "surrogateescape"), value))
    return headers, position


def invalid_record(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_RECORD, message)


def wrap_int64(value: int) -> int:
    return (value + (1 << 63)) % (1 << 64) - (1 << 63)


# --- changing in place


def write_crc(buffer: bytearray | memoryview, position: int, size: int) -> None:
    crc = _crc32c(memoryview(buffer)[position + ATTRIBUTES_POSITION : position + size])
    _CRC.pack_into(buffer, position + 17, crc)


def stamp(
    buffer: bytearray | memoryview, position: int, base_offset: int, leader_epoch: int
) -> None:
    """Set base offset and leader epoch in place. The CRC covers neither."""
    _INT64.pack_into(buffer, position, base_offset)
    _INT32.pack_into(buffer, position + 12, leader_epoch)


def restamp(
    buffer: bytearray | memoryview,
    position: int,
    max_timestamp: int,
    timestamp_type: str = LOG_APPEND_TIME,
) -> None:
    """Set timestamp type and max timestamp in place; recomputes the CRC if they change.

    With LogAppendTime (the broker's clock) this is the time of every record; with CreateTime it
    corrects a header whose maximum differs from that of its records.
    """
    header = parse_header(buffer, position)
    attributes = header.attributes & ~LOG_APPEND_TIME_FLAG
    if timestamp_type == LOG_APPEND_TIME:
        attributes |= LOG_APPEND_TIME_FLAG
    if attributes == header.attributes and max_timestamp == header.max_timestamp:
        return
    _INT16.pack_into(buffer, position + ATTRIBUTES_POSITION, attributes & _USED_ATTRIBUTES)
    _INT64.pack_into(buffer, position + 35, max_timestamp)
    write_crc(buffer, position, header.size)


# --- control records


def parse_control_record(record: Record) -> ControlMarker:
    """Parse a control record. `coordinator_epoch` -1: none. KafkaError(INVALID_RECORD)."""
    if record.key is None or len(record.key) < 4:
        raise invalid_record("Invalid key of a control record: fewer than 4 bytes")
    version, control_type = CONTROL_KEY.unpack_from(record.key)
    if version < 0:
        raise invalid_record(f"Invalid version found for control record: {version}")
    if control_type not in (CONTROL_ABORT, CONTROL_COMMIT):
        return ControlMarker(control_type, -1)
    if record.value is None or len(record.value) < 6:
        raise invalid_record("Invalid value of an end transaction marker: fewer than 6 bytes")
    version, coordinator_epoch = END_TXN_VALUE.unpack_from(record.value)
    if version < 0:
        raise invalid_record(f"Invalid version found for end transaction marker: {version}")
    return ControlMarker(control_type, coordinator_epoch)
