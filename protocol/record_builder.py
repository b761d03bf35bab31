"""Build record batches (magic 2), or write one with other records, codec or offsets.

Answers to MemoryRecordsBuilder, DefaultRecord.writeTo and EndTransactionMarker of Kafka 3.9; the layout is
that of records.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kwire.protocol import compression as _compression
from kwire.protocol.compression import DECOMPRESSED_BYTES_MAX
from kwire.protocol.records import (
    COMPRESSION_MASK,
    CONTROL_FLAG,
    CONTROL_KEY,
    CREATE_TIME,
    DELETE_HORIZON_FLAG,
    END_TXN_VALUE,
    HEADER,
    HEADER_SIZE,
    INT64_MIN,
    LOG_APPEND_TIME,
    LOG_APPEND_TIME_FLAG,
    LOG_OVERHEAD,
    NO_PARTITION_LEADER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    TRANSACTIONAL_FLAG,
    BatchHeader,
    Buffer,
    Record,
    records_section,
    wrap_int64,
    write_crc,
)
from kwire.protocol.varint import INT64_MAX, append_varint


def build_batch(
    records: Iterable[Record],
    *,
    base_offset: int = 0,
    compression: str = "none",
    level: int | None = None,
    timestamp_type: str = CREATE_TIME,
    log_append_time_ms: int = NO_TIMESTAMP,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
    partition_leader_epoch: int = NO_PARTITION_LEADER_EPOCH,
    is_transactional: bool = False,
    is_control: bool = False,
    delete_horizon_ms: int | None = None,
    last_offset: int | None = None,
) -> bytes:
    """Build a batch as MemoryRecordsBuilder does.

    Offsets must not be below `base_offset`; records with negative offsets are numbered on.

    `last_offset`: of the batch, if it is not the last record's (after compaction). With
    LogAppendTime all records get `log_append_time_ms`.
    """
    section, count, last_offset_delta, base_timestamp, max_timestamp = encode_records(
        records, base_offset, delete_horizon_ms
    )
    if last_offset is not None:
        last_offset_delta = last_offset - base_offset
    is_append_time = timestamp_type == LOG_APPEND_TIME
    has_horizon = delete_horizon_ms is not None
    header = BatchHeader(
        position=0,
        base_offset=base_offset,
        size=0,
        partition_leader_epoch=partition_leader_epoch,
        magic=2,
        crc=0,
        attributes=_compression.codec_id(compression)
        | _flags(is_append_time, is_transactional, is_control, has_horizon),
        last_offset_delta=last_offset_delta,
        base_timestamp=base_timestamp,
        max_timestamp=log_append_time_ms if is_append_time else max_timestamp,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        count=count,
    )
    return assemble(header, _compressed(section, compression, level))


def _flags(
    is_append_time: bool, is_transactional: bool, is_control: bool, has_horizon: bool
) -> int:
    return (
        (LOG_APPEND_TIME_FLAG if is_append_time else 0)
        | (TRANSACTIONAL_FLAG if is_transactional else 0)
        | (CONTROL_FLAG if is_control else 0)
        | (DELETE_HORIZON_FLAG if has_horizon else 0)
    )


def encode_records(
    records: Iterable[Record], base_offset: int, base_timestamp: int | None
) -> tuple[bytearray, int, int, int, int]:
    """(uncompressed records in wire form; count; last offset delta; base and max timestamp).

    `base_timestamp` None: the first record's.
    """
    section = bytearray()
    count = 0
    offset_delta = -1
    max_timestamp = NO_TIMESTAMP
    for offset, timestamp, key, value, headers in records:
        if base_timestamp is None:
            base_timestamp = timestamp
        offset_delta = offset_delta + 1 if offset < 0 else offset - base_offset
        if timestamp > max_timestamp:
            max_timestamp = timestamp
        append_record(section, offset_delta, timestamp - base_timestamp, key, value, headers)
        count += 1
    if base_timestamp is None:
        base_timestamp = NO_TIMESTAMP
    return section, count, offset_delta, base_timestamp, max_timestamp


def append_record(
    out: bytearray,
    offset_delta: int,
    timestamp_delta: int,
    key: Buffer | None,
    value: Buffer | None,
    headers: Sequence[tuple[str, bytes | None]] = (),
) -> None:
    """Append one record in wire form to `out`."""
    if not INT64_MIN <= timestamp_delta <= INT64_MAX:
        timestamp_delta = wrap_int64(timestamp_delta)
    head = bytearray(1)  # attributes: unused
    append_varint(head, timestamp_delta)
    append_varint(head, offset_delta)
    if key is None:
        head.append(1)
    else:
        append_varint(head, len(key))
        head += key
    append_varint(head, -1 if value is None else len(value))
    tail = bytearray()
    append_varint(tail, len(headers))
    for name, header_value in headers:
        encoded = name.encode("utf-8", "surrogateescape")
        append_varint(tail, len(encoded))
        tail += encoded
        append_varint(tail, -1 if header_value is None else len(header_value))
        tail += header_value or b""
    append_varint(out, len(head) + (len(value) if value is not None else 0) + len(tail))
    out += head
    out += value or b""
    out += tail


def empty_batch(header: BatchHeader) -> bytes:
    """The batch without records; compaction keeps it for a live producer's last sequences."""
    attributes = header.attributes & (LOG_APPEND_TIME_FLAG | TRANSACTIONAL_FLAG | CONTROL_FLAG)
    return assemble(
        header._replace(attributes=attributes, base_timestamp=NO_TIMESTAMP, count=0), b""
    )


def _compressed(section: Buffer, codec: str, level: int | None) -> Buffer:
    return section if codec == "none" else _compression.compress(codec, section, level=level)


def assemble(header: BatchHeader, section: Buffer) -> bytes:
    """The header's fields (but position, size and CRC) before the records."""
    return bytes(assembled(header, section))


def assembled(header: BatchHeader, section: Buffer) -> bytearray:
    """As `assemble`, of which this spares a copy."""
    batch = bytearray(HEADER_SIZE)
    batch += section
    HEADER.pack_into(
        batch,
        0,
        header.base_offset,
        len(batch) - LOG_OVERHEAD,
        header.partition_leader_epoch,
        2,
        0,
        *header[6:],
    )
    write_crc(batch, 0, len(batch))
    return batch


def recompress(
    buffer: Buffer, header: BatchHeader, codec: str, *, level: int | None = None
) -> bytes:
    """Recompress the records of a batch with `codec` (compression.type other than "producer").

    Records are not checked. KafkaError(CORRUPT_MESSAGE) if they cannot be decompressed.
    """
    data, start, end = records_section(buffer, header, DECOMPRESSED_BYTES_MAX)
    section = _compressed(memoryview(data)[start:end], codec, level)
    attributes = header.attributes & ~COMPRESSION_MASK | _compression.codec_id(codec)
    return assemble(header._replace(attributes=attributes), section)


# --- control records


def control_record(
    control_type: int, coordinator_epoch: int, timestamp: int, offset: int = -1
) -> Record:
    """The one record of a transaction marker: CONTROL_COMMIT or CONTROL_ABORT."""
    key = CONTROL_KEY.pack(0, control_type)
    return Record(offset, timestamp, key, END_TXN_VALUE.pack(0, coordinator_epoch))


def end_transaction_marker(
    control_type: int,
    *,
    producer_id: int,
    producer_epoch: int,
    coordinator_epoch: int,
    timestamp: int,
    base_offset: int = 0,
    partition_leader_epoch: int = NO_PARTITION_LEADER_EPOCH,
) -> bytes:
    """The control batch that ends a producer's transaction in a partition."""
    return build_batch(
        [control_record(control_type, coordinator_epoch, timestamp)],
        base_offset=base_offset,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        partition_leader_epoch=partition_leader_epoch,
        is_transactional=True,
        is_control=True,
    )
