"""Validate and rewrite batches beyond their header: the slow path of Log.append_as_leader.

Answers to org.apache.kafka.storage.internals.log.LogValidator and to
UnifiedLog.analyzeAndValidateRecords. Imported at the first batch that needs it: malformed, of a
compacted topic, with timestamps out of bounds, with LogAppendTime, or to be recompressed. Kafka
reads every record of every batch; here a batch with a valid header is trusted, because its CRC is
right and consumers validate records at least as strictly as Kafka.
"""

from __future__ import annotations

from kwire.protocol.errors import ErrorCode, KafkaError
from kwire.protocol.record_validation import validate_header, validate_records
from kwire.protocol.records import (
    CREATE_TIME,
    HEADER_SIZE,
    LOG_APPEND_TIME,
    LOG_OVERHEAD,
    MAGIC_POSITION,
    OFFSET_AND_LENGTH,
    BatchHeader,
    build_batch,
    check_crc,
    iter_batches,
    iter_records,
    parse_header,
    recompress,
    restamp,
)
from kwire.protocol.varint import INT64_MAX
from kwire.replication.core.log_config import LogConfig
from kwire.replication.log.types import AppendOrigin, UnexpectedAppendOffset

_MESSAGE_SET_MIN_BYTES = 14
"""The smallest length field of any magic (LegacyRecord.RECORD_OVERHEAD_V0)."""


def single_batch(view: memoryview) -> memoryview:
    """The only batch of a produce request; drops a partial batch after it.

    KafkaError(INVALID_RECORD): no batch, several batches, a message set. CORRUPT_MESSAGE: an
    impossible size or magic. Source: ProduceRequest.validateRecords, ByteBufferLogInputStream.
    """
    size = _whole_batch(view, 0)
    if size == 0:
        raise KafkaError(
            ErrorCode.INVALID_RECORD,
            "Produce requests must have at least one record batch per partition",
        )
    if view[MAGIC_POSITION] != 2:
        raise KafkaError(
            ErrorCode.INVALID_RECORD,
            "Produce requests are only allowed to contain record batches with magic version 2",
        )
    if _whole_batch(view, size):
        raise KafkaError(
            ErrorCode.INVALID_RECORD,
            "Produce requests are only allowed to contain exactly one record batch per partition",
        )
    if size < HEADER_SIZE:
        raise KafkaError(
            ErrorCode.CORRUPT_MESSAGE,
            f"Record batch is corrupt (the size {size} is smaller than the minimum allowed overhead"
            f" {HEADER_SIZE})",
        )
    return view[:size]


def _whole_batch(view: memoryview, position: int) -> int:
    """The size of the batch at `position`; 0 if it is not whole."""
    remaining = len(view) - position
    if remaining <= MAGIC_POSITION:
        return 0
    length = OFFSET_AND_LENGTH.unpack_from(view, position)[1]
    if length < _MESSAGE_SET_MIN_BYTES:
        raise KafkaError(
            ErrorCode.CORRUPT_MESSAGE,
            f"Record size {length} is less than the minimum record overhead ({_MESSAGE_SET_MIN_BYTES})",
        )
    magic = view[position + MAGIC_POSITION]
    if length + LOG_OVERHEAD > remaining:
        return 0
    if magic > 2:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"Invalid magic found in record: {magic}")
    return int(length) + LOG_OVERHEAD


def validate(
    view: memoryview, config: LogConfig, wall_ms: int, origin: AppendOrigin, name: str
) -> tuple[memoryview, int]:
    """Check a batch by the topic's configuration; return it, rewritten if needed, and append time.

    The append time is -1 with CreateTime. KafkaError(INVALID_RECORD), InvalidRecordsError with
    `record_errors` (INVALID_RECORD for missing keys, INVALID_TIMESTAMP),
    UNSUPPORTED_COMPRESSION_TYPE, CORRUPT_MESSAGE if records cannot be decompressed.
    """
    header = parse_header(view)
    source = header.compression
    if origin is AppendOrigin.CLIENT:
        _validate_header(header, name)
    target = _target_codec(config, source, header)
    is_append_time = config.message_timestamp_type == LOG_APPEND_TIME
    max_timestamp: int | None = None
    rewritten: bytearray | None = None
    if origin is AppendOrigin.CLIENT and _must_read_records(header, target, config, wall_ms):
        max_timestamp, is_numbered = _check_records(view, header, config, wall_ms)
        if not is_numbered and "none" not in (source, target):
            rewritten = _renumber(view, header, target, config)
    if rewritten is None and target != source:
        level = _level(config, target)
        rewritten = bytearray(recompress(view, header, target, level=level))
    if is_append_time:
        return _restamp(rewritten or view, wall_ms, LOG_APPEND_TIME), wall_ms
    if max_timestamp is not None and (
        header.max_timestamp != max_timestamp or header.timestamp_type != CREATE_TIME
    ):
        return _restamp(rewritten or view, max_timestamp, CREATE_TIME), -1
    return memoryview(rewritten or view), -1


def _must_read_records(header: BatchHeader, target: str, config: LogConfig, wall_ms: int) -> bool:
    """Whether the header alone cannot show that the batch is valid; Kafka reads all records."""
    if config.compact or target != header.compression or header.timestamp_type == LOG_APPEND_TIME:
        return True
    return config.message_timestamp_type != LOG_APPEND_TIME and (
        header.max_timestamp - wall_ms > config.message_timestamp_after_max_ms
        or config.message_timestamp_before_max_ms != INT64_MAX
    )


def _check_records(
    view: memoryview, header: BatchHeader, config: LogConfig, wall_ms: int
) -> tuple[int, bool]:
    """Check all records. KafkaError as `validate`.

    Returns (largest timestamp, whether relative offsets are 0, 1, ...).
    """
    summary = validate_records(
        view,
        header,
        now_ms=wall_ms,
        timestamp_type=config.message_timestamp_type,
        timestamp_before_max_ms=config.message_timestamp_before_max_ms,
        timestamp_after_max_ms=config.message_timestamp_after_max_ms,
        keys_required=config.compact,
    )
    return summary.max_timestamp, summary.consecutive


def _restamp(batch: memoryview | bytearray, timestamp: int, timestamp_type: str) -> memoryview:
    """Set a batch's timestamp type and maximum; copies the client's bytes first."""
    rewritten = batch if isinstance(batch, bytearray) else bytearray(batch)
    restamp(rewritten, 0, timestamp, timestamp_type)
    return memoryview(rewritten)


def follower_batches(
    view: memoryview, leader_epoch: int | None, name: str, log_end_offset: int
) -> list[BatchHeader]:
    """The headers of the batches a follower may append; rules as Log.append_as_follower."""
    headers: list[BatchHeader] = []
    last_offset = -1
    for header in iter_batches(view):
        if leader_epoch is not None and header.partition_leader_epoch > leader_epoch:
            break
        if not check_crc(view, header):
            raise KafkaError(
                ErrorCode.CORRUPT_MESSAGE,
                f"Record is corrupt (stored crc = {header.crc}) in topic partition {name}.",
            )
        if header.base_offset <= last_offset or header.last_offset_delta < 0:
            raise KafkaError(
                ErrorCode.UNKNOWN_SERVER_ERROR, f"Out of order offsets found in append to {name}"
            )
        last_offset = header.last_offset
        headers.append(header)
    if headers and headers[0].base_offset < log_end_offset:
        raise UnexpectedAppendOffset(
            f"Unexpected offset in append to {name}. First offset {headers[0].base_offset} "
            f"is less than the next offset {log_end_offset}.",
            headers[0].base_offset,
            last_offset,
        )
    return headers


def _validate_header(header: BatchHeader, name: str) -> None:
    try:
        validate_header(header)
    except KafkaError as error:
        raise KafkaError(error.code, f"{error.message} in topic partition {name}") from None


def _target_codec(config: LogConfig, source: str, header: BatchHeader) -> str:
    """The codec by `compression.type`; control batches are never compressed (LogValidator)."""
    if config.compression_type == "producer" or (header.is_control and source == "none"):
        return source
    return "none" if config.compression_type == "uncompressed" else config.compression_type


def _level(config: LogConfig, codec: str) -> int | None:
    return {
        "gzip": config.compression_gzip_level,
        "lz4": config.compression_lz4_level,
        "zstd": config.compression_zstd_level,
    }.get(codec)


def _renumber(view: memoryview, header: BatchHeader, codec: str, config: LogConfig) -> bytearray:
    """Rebuild a compressed batch with correct relative offsets, as Kafka does for old clients."""
    return bytearray(
        build_batch(
            (record._replace(offset=-1) for record in iter_records(view, header)),
            compression=codec,
            level=_level(config, codec),
            producer_id=header.producer_id,
            producer_epoch=header.producer_epoch,
            base_sequence=header.base_sequence,
            is_transactional=header.is_transactional,
        )
    )
