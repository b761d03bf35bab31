"""What a leader checks and changes in a batch beyond its header: the slow side of Log.append_as_leader.

Answers to org.apache.kafka.storage.internals.log.LogValidator and to UnifiedLog.analyzeAndValidateRecords. Loaded at
the first batch that needs it: not well-formed, of a compacted topic, with timestamps out of bounds, with
LogAppendTime, or to be compressed otherwise than the producer did. Kafka walks every record of every batch; here a
batch whose header breaks no rule is believed, because its CRC is right and no consumer decodes with less care than
Kafka.
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
"""No message of any magic has a smaller length field (LegacyRecord.RECORD_OVERHEAD_V0)."""


def single_batch(view: memoryview) -> memoryview:
    """The one batch of a produce request that does not look like exactly one; a partial one after it is dropped.

    KafkaError(INVALID_RECORD): none, more than one, a message set. CORRUPT_MESSAGE: no batch can be like this.
    Source: ProduceRequest.validateRecords, ByteBufferLogInputStream.
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
    """Size of the batch at `position`; 0 when what is there is not a whole one."""
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
    """Checks a batch by the topic's rules; returns it (rewritten where they ask) and the append time or -1.

    KafkaError(INVALID_RECORD), InvalidRecordsError with `record_errors` (INVALID_RECORD for missing keys,
    INVALID_TIMESTAMP), UNSUPPORTED_COMPRESSION_TYPE, CORRUPT_MESSAGE when records cannot be decompressed.
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
            rewritten = _renumbered(view, header, target, config)
    if rewritten is None and target != source:
        level = _level(config, target)
        rewritten = bytearray(recompress(view, header, target, level=level))
    if is_append_time:
        return _restamped(rewritten or view, wall_ms, LOG_APPEND_TIME), wall_ms
    if max_timestamp is not None and (
        header.max_timestamp != max_timestamp or header.timestamp_type != CREATE_TIME
    ):
        return _restamped(rewritten or view, max_timestamp, CREATE_TIME), -1
    return memoryview(rewritten or view), -1


def _must_read_records(header: BatchHeader, target: str, config: LogConfig, wall_ms: int) -> bool:
    """Whether the header does not answer all that the topic asks; Kafka reads every record of every batch."""
    if config.compact or target != header.compression or header.timestamp_type == LOG_APPEND_TIME:
        return True
    return config.message_timestamp_type != LOG_APPEND_TIME and (
        header.max_timestamp - wall_ms > config.message_timestamp_after_max_ms
        or config.message_timestamp_before_max_ms != INT64_MAX
    )


def _check_records(
    view: memoryview, header: BatchHeader, config: LogConfig, wall_ms: int
) -> tuple[int, bool]:
    """(the largest timestamp, whether the records are numbered 0, 1, ...). KafkaError as `validate`."""
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


def _restamped(batch: memoryview | bytearray, timestamp: int, timestamp_type: str) -> memoryview:
    """The batch with another timestamp type or maximum; a client's own bytes are copied first."""
    rewritten = batch if isinstance(batch, bytearray) else bytearray(batch)
    restamp(rewritten, 0, timestamp, timestamp_type)
    return memoryview(rewritten)


def follower_batches(
    view: memoryview, leader_epoch: int | None, name: str, log_end_offset: int
) -> list[BatchHeader]:
    """The batches that a follower may append; see Log.append_as_follower for what is refused and left out."""
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
    """`compression.type`; control batches are never compressed (LogValidator)."""
    if config.compression_type == "producer" or (header.is_control and source == "none"):
        return source
    return "none" if config.compression_type == "uncompressed" else config.compression_type


def _level(config: LogConfig, codec: str) -> int | None:
    return {
        "gzip": config.compression_gzip_level,
        "lz4": config.compression_lz4_level,
        "zstd": config.compression_zstd_level,
    }.get(codec)


def _renumbered(view: memoryview, header: BatchHeader, codec: str, config: LogConfig) -> bytearray:
    """Some old clients number the records of a compressed batch wrongly: Kafka writes those batches anew."""
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
