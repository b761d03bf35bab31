"""Validate and rewrite batches beyond their header: the slow path of Log.append_as_leader.

Answers to org.apache.kafka.storage.internals.log.LogValidator and to
UnifiedLog.analyzeAndValidateRecords. Imported at the first batch that needs it: compressed, large,
not plainly valid, of a compacted topic, with LogAppendTime, or to be recompressed. As in Kafka
every record of a producer's batch is read; with kwire.record.validation=header only where the
topic's configuration needs that.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import NamedTuple

from kwire.protocol.compression import LAST_CODEC_ID, codec_id, compress
from kwire.protocol.compression_parts import Elsewhere, units_to_compress
from kwire.protocol.errors import ErrorCode, KafkaError
from kwire.protocol.record_builder import assembled, build_batch, recompress
from kwire.protocol.record_validation import (
    RecordRules,
    RecordsSummary,
    check_records,
    validate_header,
)
from kwire.protocol.records import (
    COMPRESSION_MASK,
    CREATE_TIME,
    HEADER,
    HEADER_SIZE,
    LOG_APPEND_TIME,
    LOG_OVERHEAD,
    MAGIC_POSITION,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    OFFSET_AND_LENGTH,
    TRANSACTIONAL_FLAG,
    BatchHeader,
    check_crc,
    iter_batches,
    iter_records,
    parse_header,
    restamp,
)
from kwire.protocol.varint import INT64_MAX
from kwire.replication.core.log_config import FULL, LogConfig
from kwire.replication.core.work import at_once
from kwire.replication.log.types import (
    AppendOrigin,
    CheckedBatch,
    UnexpectedAppendOffset,
    too_large,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from kwire.replication.core.outbox import Buffer
    from kwire.replication.log.append import AppendableLog

_KEPT_ATTRIBUTES = COMPRESSION_MASK | TRANSACTIONAL_FLAG
_MESSAGE_SET_MIN_BYTES = 14
"""The smallest length field of any magic (LegacyRecord.RECORD_OVERHEAD_V0)."""


class Validated(NamedTuple):
    """A batch that may be appended."""

    view: memoryview
    """Rewritten if it must be."""
    append_time_ms: int
    """-1 with CreateTime."""


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
    """The size of the batch at `position`; 0 if it is not whole. Checks in Kafka's order."""
    remaining = len(view) - position
    if remaining < LOG_OVERHEAD:
        return 0
    length = OFFSET_AND_LENGTH.unpack_from(view, position)[1]
    if length < _MESSAGE_SET_MIN_BYTES:
        raise KafkaError(
            ErrorCode.CORRUPT_MESSAGE,
            f"Record size {length} is less than the minimum record overhead ({_MESSAGE_SET_MIN_BYTES})",
        )
    if remaining <= MAGIC_POSITION:
        return 0
    magic = view[position + MAGIC_POSITION]
    if magic > 2:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"Invalid magic found in record: {magic}")
    return int(length) + LOG_OVERHEAD if length + LOG_OVERHEAD <= remaining else 0


def check_in_steps(log: AppendableLog, records: Buffer) -> Generator[int, None, CheckedBatch]:
    """Check a producer's batch for an append to come; steps yield costs (core/work.py)."""
    try:
        view = single_batch(memoryview(records))
        fields = HEADER.unpack_from(view)
        log.check_header(view, fields, AppendOrigin.CLIENT)
        yield 5 + len(view) // 2048  # for the CRC
        if log.reads_records or log.needs_validation(view, fields, AppendOrigin.CLIENT):
            return CheckedBatch(*(yield from validation(log, view, AppendOrigin.CLIENT)))
        return CheckedBatch(view)
    except KafkaError as error:
        return CheckedBatch(memoryview(b""), error=error)


def validated(log: AppendableLog, view: memoryview, origin: AppendOrigin) -> Validated:
    """Take all steps of `validation` now."""
    return at_once(validation(log, view, origin))


def validation(
    log: AppendableLog, view: memoryview, origin: AppendOrigin
) -> Generator[int, None, Validated]:
    """Check a batch by the topic's configuration, in steps (their costs in units: core/work.py).

    KafkaError as record_validation.check_records, INVALID_RECORD for its header, and
    MESSAGE_TOO_LARGE if it grows too large. The CRC is right.
    """
    config = log.config
    rewritten, append_time_ms = yield from _validated(log, config, view, origin)
    if len(rewritten) > config.max_message_bytes:
        raise too_large(log.name, config.max_message_bytes, len(rewritten))
    return Validated(rewritten, append_time_ms)


def _validated(
    log: AppendableLog, config: LogConfig, view: memoryview, origin: AppendOrigin
) -> Generator[int, None, tuple[memoryview, int]]:
    header, wall_ms = parse_header(view), log.clock.wall_ms
    if header.attributes & COMPRESSION_MASK > LAST_CODEC_ID:
        codec = header.attributes & COMPRESSION_MASK
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"Unknown compression type id: {codec}")
    source = header.compression
    if origin is AppendOrigin.CLIENT:
        _validate_header(header, log.name)
    target = _target_codec(config, source, header)
    is_append_time = config.message_timestamp_type == LOG_APPEND_TIME
    summary: RecordsSummary | None = None
    rewritten: bytearray | None = None
    if origin is AppendOrigin.CLIENT and _must_read_records(header, target, config, wall_ms):
        rules = RecordRules(
            now_ms=wall_ms,
            timestamp_type=config.message_timestamp_type,
            timestamp_before_max_ms=config.message_timestamp_before_max_ms,
            timestamp_after_max_ms=config.message_timestamp_after_max_ms,
            keys_required=config.compact,
            is_kept=target == source,
        )
        summary = yield from check_records(view, header, rules)
    if target != source:
        size = header.size if summary is None else len(summary.section)
        work = Elsewhere(
            units_to_compress(target, size),
            lambda: _compressed_anew(view, header, target, summary, config),
        )
        yield work
        rewritten = work.result()
    if is_append_time:
        wall_ms = log.clock.wall_ms  # the steps took their time
        return _restamp(rewritten or view, wall_ms, LOG_APPEND_TIME), wall_ms
    if summary is not None and (
        header.max_timestamp != summary.max_timestamp or header.timestamp_type != CREATE_TIME
    ):
        return _restamp(rewritten or view, summary.max_timestamp, CREATE_TIME), -1
    return memoryview(rewritten) if rewritten else view, -1


def _must_read_records(header: BatchHeader, target: str, config: LogConfig, wall_ms: int) -> bool:
    """Whether records are read: always, or where kwire.record.validation=header has to."""
    if config.record_validation == FULL or config.compact:
        return True
    if target != header.compression or header.timestamp_type == LOG_APPEND_TIME:
        return True
    return config.message_timestamp_type != LOG_APPEND_TIME and (
        header.max_timestamp - wall_ms > config.message_timestamp_after_max_ms
        or config.message_timestamp_before_max_ms != INT64_MAX
    )


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


def _compressed_anew(
    view: memoryview,
    header: BatchHeader,
    codec: str,
    summary: RecordsSummary | None,
    config: LogConfig,
) -> bytearray:
    """The batch with another codec. A batch with an oddity is built of its records, as by Kafka.

    UNKNOWN_SERVER_ERROR: a producer that no batch can be built for (MemoryRecordsBuilder).
    """
    level = _level(config, codec)
    if header.producer_id != NO_PRODUCER_ID and (
        header.producer_epoch == NO_PRODUCER_EPOCH or header.base_sequence < 0
    ):
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "Invalid negative producer epoch")
    if summary is None:
        return bytearray(recompress(view, header, codec, level=level))
    plain = header._replace(position=0, attributes=header.attributes & ~COMPRESSION_MASK)
    if summary.is_plain and not header.attributes & ~_KEPT_ATTRIBUTES:
        section = summary.section
        if codec != "none":
            section = compress(codec, section, level=level)
        return assembled(plain._replace(attributes=plain.attributes | codec_id(codec)), section)
    batch = b"".join((view[:HEADER_SIZE], summary.section))
    plain = plain._replace(size=len(batch))
    return bytearray(
        build_batch(
            (record._replace(offset=-1) for record in iter_records(batch, plain)),
            compression=codec,
            level=level,
            producer_id=header.producer_id,
            producer_epoch=header.producer_epoch,
            base_sequence=header.base_sequence,
            is_transactional=header.is_transactional,
        )
    )
