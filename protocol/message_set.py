"""Message sets of magic 0 and 1, for clients before 0.11; conversion.py converts from and to batches.

Answers to LegacyRecord and AbstractLegacyRecordBatch of Kafka 3.9 (KIP-31: relative offsets,
KIP-32: timestamps).

    offset i64 | size i32 | crc u32 | magic i8 | attributes i8 | timestamp i64 (magic 1) | key bytes | value bytes

* A compressed message ("wrapper") has a message set as its value. In magic 0 the inner messages carry their offsets,
  in magic 1 offsets relative to the first one, and the wrapper's offset is the last one's. An outer offset of 0, which
  some librdkafka versions produce, means that the inner offsets are absolute.
* The CRC is zlib's, from the magic to the end of the message.
* zstd is not supported: INVALID_RECORD when read, UNSUPPORTED_COMPRESSION_TYPE in a conversion.
* Control batches and headers have no counterpart and are dropped by down-conversion.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from struct import Struct
from struct import error as _StructError
from typing import NamedTuple
from zlib import crc32

from kwire.protocol import compression as _compression
from kwire.protocol.compression import DECOMPRESSED_BYTES_MAX
from kwire.protocol.errors import ErrorCode, KafkaError
from kwire.protocol.records import (
    COMPRESSION_MASK,
    CREATE_TIME,
    LOG_APPEND_TIME,
    LOG_APPEND_TIME_FLAG,
    LOG_OVERHEAD,
    MAGIC_POSITION,
    NO_TIMESTAMP,
    BatchHeader,
    Buffer,
    Record,
    parse_header,
)

NO_TIMESTAMP_TYPE = "NoTimestampType"

_MIN_SIZE = (14, 22)
"""Bytes of a message with null key and value after its offset and size, by magic."""

_PREFIX = Struct(">qiIbb")
_INT64 = Struct(">q")
_INT32 = Struct(">i")
_UINT32 = Struct(">I")


class Message(NamedTuple):
    """A message of a set, in place: plain, or a wrapper with a set inside."""

    position: int
    size: int
    """With offset and size field: 12 more than the latter."""
    offset: int
    crc: int
    magic: int
    attributes: int
    timestamp: int
    """-1 in magic 0."""
    key: memoryview | None
    value: memoryview | None

    @property
    def compression(self) -> str:
        return _compression.codec_name(self.attributes & COMPRESSION_MASK)

    @property
    def timestamp_type(self) -> str:
        if self.magic == 0:
            return NO_TIMESTAMP_TYPE
        return LOG_APPEND_TIME if self.attributes & LOG_APPEND_TIME_FLAG else CREATE_TIME

    @property
    def last_offset(self) -> int:
        return self.offset


# --- reading


def iter_entries(buffer: Buffer) -> Iterator[BatchHeader | Message]:
    """Iterate over batches and messages of any magic. Stops at a partial one at the end.

    KafkaError(CORRUPT_MESSAGE) at an invalid size or magic.
    """
    position, end = 0, len(buffer)
    while end - position >= LOG_OVERHEAD:
        size = _INT32.unpack_from(buffer, position + 8)[0]
        if size < _MIN_SIZE[0]:
            raise corrupt(f"Record size {size} is less than the minimum record overhead (14)")
        if end - position <= MAGIC_POSITION:
            return
        magic = _signed(memoryview(buffer)[position + MAGIC_POSITION])
        if not 0 <= magic <= 2:
            raise corrupt(f"Invalid magic found in record: {magic}")
        if position + LOG_OVERHEAD + size > end:
            return
        yield (
            parse_header(buffer, position) if magic == 2 else parse_message(buffer, position, end)
        )
        position += LOG_OVERHEAD + size


def valid_bytes(buffer: Buffer) -> int:
    """Number of bytes of whole batches and messages, without a partial one at the end."""
    length = 0
    for entry in iter_entries(buffer):
        length = entry.position + entry.size
    return length


def parse_message(buffer: Buffer, position: int, end: int) -> Message:
    """Parse the message at `position`; KafkaError(CORRUPT_MESSAGE) if fields and size disagree."""
    try:
        offset, size, crc, magic, attributes = _PREFIX.unpack_from(buffer, position)
        if magic not in (0, 1):
            raise corrupt(f"a message of magic {magic}")
        stop = position + LOG_OVERHEAD + size
        if size < _MIN_SIZE[magic] or stop > end:
            raise corrupt(f"Record size {size} cannot be")
        timestamp = NO_TIMESTAMP if magic == 0 else _INT64.unpack_from(buffer, position + 18)[0]
        view = memoryview(buffer)
        key, after = _read_bytes(view, position + (18 if magic == 0 else 26), stop)
        value, after = _read_bytes(view, after, stop)
    except _StructError:
        raise corrupt("the buffer ends within a message") from None
    return Message(
        position, LOG_OVERHEAD + size, offset, crc, magic, attributes, timestamp, key, value
    )


def _read_bytes(view: memoryview, position: int, end: int) -> tuple[memoryview | None, int]:
    length = _INT32.unpack_from(view, position)[0]
    position += 4
    if length < 0:
        return None, position
    if length > end - position:
        raise corrupt("a key or value is longer than its message")
    return view[position : position + length], position + length


def check_message_crc(buffer: Buffer, message: Message) -> bool:
    """Whether the stored checksum is that of the bytes."""
    body = memoryview(buffer)[message.position + MAGIC_POSITION : message.position + message.size]
    return crc32(body) == message.crc


def message_records(
    buffer: Buffer, message: Message, *, limit: int = DECOMPRESSED_BYTES_MAX
) -> list[Record]:
    """The record of a plain message or the records in a wrapper, with absolute offsets.

    Checks the CRCs of inner messages, not of the message itself. KafkaError(INVALID_RECORD) as in
    Kafka: no inner records, nested compression, zstd, inner offsets beyond the wrapper's; else
    CORRUPT_MESSAGE.
    """
    if not message.attributes & COMPRESSION_MASK:
        return [as_record(message, message.offset, message.timestamp)]
    check_wrapper(message)
    data = _compression.decompressed(
        message.compression, message.value or b"", limit=limit, magic=message.magic
    )
    inner = list(inner_messages(data, message.magic))
    if not inner:
        raise invalid("Found invalid compressed record set with no inner records")
    base = 0
    if message.magic == 1 and message.offset != 0:
        base = message.offset - inner[-1].offset
        if base < 0:
            raise invalid("the wrapper's offset is less than the last inner message's")
    append_time = message.timestamp if message.attributes & LOG_APPEND_TIME_FLAG else None
    return [
        as_record(
            entry,
            base + entry.offset,
            entry.timestamp if append_time is None or message.magic == 0 else append_time,
        )
        for entry in inner
    ]


def check_wrapper(message: Message) -> None:
    """Check what shows before decompression. KafkaError(INVALID_RECORD)."""
    if message.compression == "zstd":
        raise invalid(f"zstd in a message set of magic {message.magic}")
    if message.value is None:
        raise invalid("Found invalid compressed record set with null value")


def inner_messages(data: Buffer, magic: int) -> Iterator[Message]:
    """Iterate over the messages in a wrapper, as they stand there. KafkaError as message_records."""
    position = 0
    while len(data) - position >= LOG_OVERHEAD:
        size = _INT32.unpack_from(data, position + 8)[0]
        if size < _MIN_SIZE[0]:
            raise corrupt("Record size is less than the minimum record overhead (14)")
        if position + LOG_OVERHEAD + size > len(data):
            return  # as in Kafka a torn last message counts as the end
        message = parse_message(data, position, len(data))
        if message.magic != magic:
            raise invalid(f"a message of magic {message.magic} in a wrapper of magic {magic}")
        if message.attributes & COMPRESSION_MASK:
            raise invalid("Inner messages must not be compressed")
        if not check_message_crc(data, message):
            raise corrupt("the checksum of an inner message is wrong")
        yield message
        position += message.size


def as_record(message: Message, offset: int, timestamp: int) -> Record:
    """A message as a record, with copies of its key and value."""
    key, value = message.key, message.value
    return Record(
        offset,
        timestamp,
        None if key is None else bytes(key),
        None if value is None else bytes(value),
    )


# --- writing


def build_message_set(
    records: Iterable[Record],
    magic: int,
    *,
    compression: str = "none",
    timestamp_type: str = CREATE_TIME,
    log_append_time_ms: int = NO_TIMESTAMP,
) -> bytes:
    """Build messages of magic 0 or 1, with a codec in one wrapper. Keeps offsets, drops headers.

    KafkaError(UNSUPPORTED_COMPRESSION_TYPE) for zstd. Without records b"".
    """
    if compression == "zstd":
        raise KafkaError(
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
            "Down-conversion of zstandard-compressed batches is not supported",
        )
    builder = SetBuilder(magic, compression, timestamp_type, log_append_time_ms)
    for record in records:
        builder.add(record)
    if compression == "none" or not builder.out:
        return bytes(builder.out)
    return builder.wrap(_compression.compress(compression, builder.out, magic=magic))


class SetBuilder:
    """Collects messages in `out`. With a codec, that is to be compressed and then wrapped.

    KafkaError(UNSUPPORTED_COMPRESSION_TYPE) for zstd."""

    def __init__(
        self, magic: int, compression: str, timestamp_type: str, log_append_time_ms: int
    ) -> None:
        if compression == "zstd":
            raise KafkaError(
                ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
                "Down-conversion of zstandard-compressed batches is not supported",
            )
        self.out = bytearray()
        self._magic = magic
        self._compression = compression
        self._append_time_ms = (
            log_append_time_ms if magic == 1 and timestamp_type == LOG_APPEND_TIME else None
        )
        self._attributes = 0 if self._append_time_ms is None else LOG_APPEND_TIME_FLAG
        self._is_relative = magic == 1 and compression != "none"
        self._first_offset = self._last_offset = -1
        self._max_timestamp = NO_TIMESTAMP

    def add(self, record: Record) -> None:
        """Add a message. Drops headers."""
        offset, timestamp, key, value, _headers = record
        if not self.out:
            self._first_offset = offset
        self._last_offset = offset
        self._max_timestamp = max(self._max_timestamp, timestamp)
        if self._append_time_ms is not None and self._compression == "none":
            timestamp = self._append_time_ms
        if self._is_relative:
            offset -= self._first_offset
        _append_message(self.out, offset, self._magic, self._attributes, timestamp, key, value)

    def wrap(self, compressed: bytes) -> bytes:
        """The wrapper of the messages, which the caller has compressed."""
        wrapper = bytearray()
        _append_message(
            wrapper,
            self._last_offset,
            self._magic,
            self._attributes | _compression.codec_id(self._compression),
            self._max_timestamp if self._append_time_ms is None else self._append_time_ms,
            None,
            compressed,
        )
        return bytes(wrapper)


def _append_message(
    out: bytearray,
    offset: int,
    magic: int,
    attributes: int,
    timestamp: int,
    key: Buffer | None,
    value: Buffer | None,
) -> None:
    start = len(out)
    size = _MIN_SIZE[magic] + (len(key) if key else 0) + (len(value) if value else 0)
    out += _PREFIX.pack(offset, size, 0, magic, attributes)
    if magic == 1:
        out += _INT64.pack(timestamp)
    for field in (key, value):
        out += _INT32.pack(-1 if field is None else len(field))
        out += field or b""
    _UINT32.pack_into(out, start + 12, crc32(memoryview(out)[start + 16 :]))


def corrupt(message: str) -> KafkaError:
    """The error of damaged bytes."""
    return KafkaError(ErrorCode.CORRUPT_MESSAGE, message)


def invalid(message: str) -> KafkaError:
    """The error of messages that break a rule."""
    return KafkaError(ErrorCode.INVALID_RECORD, message)


def _signed(byte: int) -> int:
    return byte - 256 if byte > 127 else byte
