"""Convert message sets of old clients to record batches and back, in parts.

Answers to LogValidator (up-conversion), RecordsUtil and LazyDownConversionRecords (down-conversion)
of Kafka 3.9. A megabyte can hold a million records, of which each costs microseconds: both
directions are generators of the cost of what they have done, in units (`replication.core.work`),
and return the result. Memory is bounded by the input, or by what one wrapper or batch decompresses
to (DECOMPRESSED_BYTES_MAX).
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator
from typing import Final

from kwire.protocol.compression import codec_id
from kwire.protocol.compression_parts import compress_in_parts, decompress_in_parts
from kwire.protocol.errors import ErrorCode, KafkaError
from kwire.protocol.message_set import (
    Message,
    SetBuilder,
    check_message_crc,
    check_wrapper,
    corrupt,
    inner_messages,
    invalid,
    iter_entries,
    message_records,
)
from kwire.protocol.record_builder import append_record, assemble
from kwire.protocol.record_streams import records_in_parts
from kwire.protocol.records import (
    COMPRESSION_MASK,
    HEADER_SIZE,
    LOG_APPEND_TIME,
    NO_PARTITION_LEADER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    BatchHeader,
    Buffer,
    Record,
    check_crc,
    iter_records,
)

_RECORDS_A_STEP: Final = 50
_UNITS_READ: Final = 4
"""Of a message that is checked."""
_UNITS_CONVERTED: Final = 10
"""Of a record or message that is read and written."""
_UNITS_A_KIB: Final = 1
_LEAST_RECORD_BYTES: Final = 7
"""Of a record with null key and value in a batch."""


def upconvert(
    message_set: Buffer, *, max_bytes: int | None = None, may_shrink: bool = False
) -> Generator[int, None, bytes]:
    """Convert a message set (Produce v0 to v2) to one batch of the same codec, offsets from 0.

    `max_bytes`: max.message.bytes. `may_shrink`: the topic compresses what comes without. Plain
    messages go into one batch together; a wrapper must be alone. MESSAGE_TOO_LARGE: a message or
    wrapper, or certainly the batch. CORRUPT_MESSAGE: a wrong checksum or size. INVALID_RECORD: no
    records, magic 2 or mixed magics, two wrappers. INVALID_TIMESTAMP: the producer claims
    LogAppendTime. KafkaError, all of them.
    """
    codec = yield from _check_messages(message_set, max_bytes, may_shrink)
    builder = _BatchBuilder()
    for count, message in enumerate(_messages(message_set), 1):
        if message.attributes & COMPRESSION_MASK:
            yield from _unwrap(message, builder)
        else:
            builder.add(message.timestamp, message.key, message.value)
            if not count % _RECORDS_A_STEP:
                yield _RECORDS_A_STEP * _UNITS_CONVERTED
    section: Buffer = builder.section
    if codec != "none":
        section = yield from compress_in_parts(codec, section)
    return builder.batch(section, codec_id(codec))


class _BatchBuilder:
    """Collects the records of a batch, uncompressed, in `section`."""

    def __init__(self) -> None:
        self.section = bytearray()
        self._count = 0
        self._base_timestamp = self._max_timestamp = NO_TIMESTAMP

    def add(self, timestamp: int, key: Buffer | None, value: Buffer | None) -> None:
        if not self._count:
            self._base_timestamp = timestamp
        self._max_timestamp = max(self._max_timestamp, timestamp)
        append_record(self.section, self._count, timestamp - self._base_timestamp, key, value)
        self._count += 1

    def batch(self, section: Buffer, attributes: int) -> bytes:
        """The batch with these records, which the caller may have compressed."""
        header = BatchHeader(
            position=0,
            base_offset=0,
            size=0,
            partition_leader_epoch=NO_PARTITION_LEADER_EPOCH,
            magic=2,
            crc=0,
            attributes=attributes,
            last_offset_delta=self._count - 1,
            base_timestamp=self._base_timestamp,
            max_timestamp=self._max_timestamp,
            producer_id=NO_PRODUCER_ID,
            producer_epoch=NO_PRODUCER_EPOCH,
            base_sequence=NO_SEQUENCE,
            count=self._count,
        )
        return assemble(header, section)


def _messages(message_set: Buffer) -> Iterator[Message]:
    for entry in iter_entries(message_set):
        assert isinstance(entry, Message)
        yield entry


def _check_messages(
    message_set: Buffer, max_bytes: int | None, may_shrink: bool
) -> Generator[int, None, str]:
    """Check all messages, those in a wrapper excepted; returns the codec's name.

    As in Kafka, which takes each message for a batch, the size of one comes before its checksum
    (UnifiedLog.analyzeAndValidateRecords)."""
    first: Message | None = None
    codec, bytes_least, count = "none", HEADER_SIZE, 0
    max_plain_bytes = None if may_shrink else max_bytes
    for count, entry in enumerate(iter_entries(message_set), 1):
        if not isinstance(entry, Message) or (first is not None and entry.magic != first.magic):
            raise invalid("Batch magic is not the same as the first batch's magic byte")
        first = first or entry
        if max_bytes is not None and entry.size > max_bytes:
            raise _too_large(entry.size, max_bytes)
        if entry.attributes & COMPRESSION_MASK:
            codec = entry.compression
        if codec != "none" and count > 1:
            raise invalid("Compressed outer record has more than one batch")
        if not check_message_crc(message_set, entry):
            raise corrupt("Record is corrupt: stored and computed crc differ")
        if entry.timestamp_type == LOG_APPEND_TIME:
            raise KafkaError(
                ErrorCode.INVALID_TIMESTAMP,
                "Producer should not set timestamp type to LogAppendTime.",
            )
        bytes_least += _LEAST_RECORD_BYTES + len(entry.key or b"") + len(entry.value or b"")
        if max_plain_bytes is not None and codec == "none" and bytes_least > max_plain_bytes:
            # Do not convert a million messages to find out that their batch is too large.
            raise _too_large(bytes_least, max_plain_bytes)
        if not count % _RECORDS_A_STEP:
            yield _RECORDS_A_STEP * _UNITS_READ
    if not count:
        raise invalid("Record batch has no batches at all")
    yield (count % _RECORDS_A_STEP) * _UNITS_READ + (len(message_set) * _UNITS_A_KIB >> 10)
    return codec


def _too_large(size: int, max_bytes: int) -> KafkaError:
    return KafkaError(
        ErrorCode.MESSAGE_TOO_LARGE,
        f"The record batch size is {size} bytes or more, which exceeds the maximum configured"
        f" value of {max_bytes}.",
    )


def _unwrap(message: Message, builder: _BatchBuilder) -> Generator[int, None, None]:
    """Add the messages in a wrapper. KafkaError as `message_records`."""
    check_wrapper(message)
    data = yield from decompress_in_parts(
        message.compression, message.value or b"", magic=message.magic
    )
    last_offset, count = -1, 0
    for count, inner in enumerate(inner_messages(data, message.magic), 1):
        builder.add(inner.timestamp, inner.key, inner.value)
        last_offset = inner.offset
        if not count % _RECORDS_A_STEP:
            yield _RECORDS_A_STEP * _UNITS_CONVERTED
    if not count:
        raise invalid("Found invalid compressed record set with no inner records")
    if message.magic == 1 and 0 != message.offset < last_offset:
        raise invalid("the wrapper's offset is less than the last inner message's")


def downconvert(
    batches: Buffer, to_magic: int, first_offset: int
) -> Generator[int, None, bytes | bytearray]:
    """Convert batches for Fetch v0 and v1 (`to_magic` 0), v2 and v3 (1) to a message set.

    As in Kafka it ends with the batch whose messages make it as long as `batches`: the client asks
    for the rest. Records before `first_offset` are left out of uncompressed batches, as some
    librdkafka versions need. A partial batch at the end is left out.
    KafkaError(UNSUPPORTED_COMPRESSION_TYPE) when a batch is zstd's.
    """
    assert to_magic in (0, 1)
    out = bytearray()
    for entry in iter_entries(batches):
        if len(out) >= len(batches):
            break
        if isinstance(entry, Message):
            if entry.magic <= to_magic:
                out += memoryview(batches)[entry.position : entry.position + entry.size]
                continue
            append_time, records = entry.timestamp, iter(message_records(batches, entry))
        else:
            if entry.is_control:
                continue
            if not check_crc(batches, entry):
                raise corrupt("Record is corrupt: stored and computed crc differ")
            append_time, records = entry.max_timestamp, (yield from _records(batches, entry))
        codec = entry.compression
        if codec == "none":
            records = (record for record in records if record.offset >= first_offset)
        builder = SetBuilder(to_magic, codec, entry.timestamp_type, append_time)
        out += yield from _build(builder, records, codec, to_magic)
        yield 10 + (entry.size * _UNITS_A_KIB >> 10)
    return out


def _records(batches: Buffer, header: BatchHeader) -> Generator[int, None, Iterator[Record]]:
    """The records of a batch, which is decompressed in parts."""
    if header.compression == "zstd":
        return iter_records(batches, header)  # refused before the first record
    return (yield from records_in_parts(batches, header))


def _build(
    builder: SetBuilder, records: Iterable[Record], codec: str, magic: int
) -> Generator[int, None, bytes | bytearray]:
    for count, record in enumerate(records, 1):
        builder.add(record)
        if not count % _RECORDS_A_STEP:
            yield _RECORDS_A_STEP * _UNITS_CONVERTED
    if codec == "none" or not builder.out:
        return builder.out
    return builder.wrap((yield from compress_in_parts(codec, builder.out, magic=magic)))
