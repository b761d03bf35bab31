"""Append record batches to a partition's log, as leader or as follower.

Answers to the append side of kafka.log.UnifiedLog (append, analyzeAndValidateRecords, maybeRoll);
log.py has the rest. The append path reads only the 61 bytes of a batch's header, unless the topic's
configuration requires more (validation.py); the record bytes go from the request's frame to the
file without a copy.

Invariants: a batch's epoch is in the leader-epoch cache before the batch is in the file; a batch
that is refused or cannot be written changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from struct import error as StructError

from fastcrc.crc32 import iscsi as crc32c

from kwire.protocol.compression import LAST_CODEC_ID
from kwire.protocol.errors import ErrorCode, KafkaError
from kwire.protocol.records import (
    ATTRIBUTES,
    ATTRIBUTES_POSITION,
    BASE_OFFSET,
    BASE_SEQUENCE,
    COMPRESSION_MASK,
    CONTROL_FLAG,
    COUNT,
    CRC,
    HEADER,
    HEADER_SIZE,
    LAST_OFFSET_DELTA,
    LENGTH,
    LOG_APPEND_TIME_FLAG,
    LOG_OVERHEAD,
    MAGIC,
    MAGIC_POSITION,
    MAX_TIMESTAMP,
    PRODUCER_ID,
    header_of,
)
from kwire.protocol.varint import INT32_MAX, INT64_MAX
from kwire.replication.core.events import ignore
from kwire.replication.core.log_config import FULL, LogConfig
from kwire.replication.log.indexes import OFFSET_INDEX_ENTRY_BYTES, TIME_INDEX_ENTRY_BYTES
from kwire.replication.log.leader_epochs import LeaderEpochCache
from kwire.replication.log.local_log import LocalLog
from kwire.replication.log.producer_state import ProducerStateManager
from kwire.replication.log.segment import LogSegment
from kwire.replication.log.types import AppendOrigin, CheckedBatch, LogAppendInfo, too_large

TYPE_CHECKING = False
if TYPE_CHECKING:
    from kwire.protocol.records import BatchHeader, ControlMarker
    from kwire.replication.core.clock import Clock, Timers
    from kwire.replication.core.events import LogEvent
    from kwire.replication.core.log_store import LogStore
    from kwire.replication.core.outbox import Buffer
    from kwire.replication.log.verification import VerificationGuard

_STAMP = Struct(">qii")
"""Base offset, length, leader epoch: the fields before the magic, not covered by the CRC."""


def _single_batch(records: Buffer) -> tuple[memoryview, tuple[int, ...]]:
    """The request's only batch and its header fields. KafkaError as validation.single_batch."""
    view = records if type(records) is memoryview else memoryview(records)
    try:
        fields = HEADER.unpack_from(view)
    except StructError:
        fields = None
    if (
        fields is None
        or fields[LENGTH] + LOG_OVERHEAD != len(view)
        or fields[MAGIC] != 2
        or fields[LENGTH] < HEADER_SIZE - LOG_OVERHEAD
    ):
        from kwire.replication.log.validation import single_batch

        view = single_batch(view)
        fields = HEADER.unpack_from(view)
    return view, fields


class AppendableLog(LocalLog):
    """The append half of a log: segments, epochs, producers, configuration. Use `Log`."""

    def __init__(
        self,
        store: LogStore,
        directory: str,
        topic: str,
        partition: int,
        topic_id: bytes,
        config: LogConfig,
        clock: Clock,
        timers: Timers,
        segments: list[LogSegment],
        leader_epochs: LeaderEpochCache,
        producer_state: ProducerStateManager,
        *,
        log_start_offset: int,
        log_end_offset: int,
        recovery_point: int,
        log_event: LogEvent = ignore,
        on_failure: Callable[[str], None] | None = None,
    ) -> None:
        super().__init__(
            store,
            directory,
            topic,
            partition,
            config,
            clock,
            timers,
            segments,
            log_end_offset,
            recovery_point,
            log_event,
            on_failure,
        )
        self.topic_id = topic_id
        self.leader_epochs = leader_epochs
        self.producer_state = producer_state
        self.log_start_offset = log_start_offset
        self.high_watermark = log_start_offset
        self._appended_epoch = -1  # the last epoch that an append put into the cache
        self.config = config

    @property
    def name(self) -> str:
        """Topic and partition as Kafka writes them: "orders-0"."""
        return f"{self.topic}-{self.partition}"

    @property
    def config(self) -> LogConfig:
        """Replaced as a whole when a topic or broker key changes; applies from the next append."""
        return self._config

    @config.setter
    def config(self, config: LogConfig) -> None:
        self._config = config
        self.reads_records = config.record_validation == FULL
        # Whether the topic has rules of its own for records: decided here once, not for each batch.
        kept = (config.compression_type, config.message_timestamp_type)
        self._rewrites_records = kept != ("producer", "CreateTime")
        self._rewrites_plain = self._rewrites_records and kept != ("uncompressed", "CreateTime")
        are_old_refused = config.message_timestamp_before_max_ms != INT64_MAX
        self._validates_records = self._rewrites_records or config.compact or are_old_refused

    # --- appending as leader

    def append_as_leader(
        self,
        records: Buffer | CheckedBatch,
        leader_epoch: int,
        *,
        origin: AppendOrigin = AppendOrigin.CLIENT,
    ) -> LogAppendInfo:
        """Append one batch, stamped with the next offset and `leader_epoch`.

        KafkaError in Kafka's order: INVALID_RECORD (not exactly one batch of magic 2, base offset
        not 0), MESSAGE_TOO_LARGE, CORRUPT_MESSAGE, errors of validation.validation (INVALID_RECORD,
        INVALID_TIMESTAMP with `record_errors`, UNKNOWN_SERVER_ERROR), RECORD_LIST_TOO_LARGE,
        errors of ProducerStateManager.check. Source: UnifiedLog.append.
        """
        guard = None
        if isinstance(records, CheckedBatch):
            view, append_time_ms = records.result()
            fields, guard = HEADER.unpack_from(view), records.guard
        else:
            (view, fields), append_time_ms = _single_batch(records), -1
            self.check_header(view, fields, origin)
            if self.needs_validation(view, fields, origin):
                from kwire.replication.log.validation import validated

                view, append_time_ms = validated(self, view, origin)
                fields = HEADER.unpack_from(view)
        try:
            return self._append_stamped(view, fields, leader_epoch, origin, append_time_ms, guard)
        except OSError as error:
            raise self.storage_error("append to", error) from error

    def check_header(self, view: memoryview, fields: tuple[int, ...], origin: AppendOrigin) -> None:
        """Check base offset, size and CRC (UnifiedLog.analyzeAndValidateRecords)."""
        base_offset = fields[BASE_OFFSET]
        if base_offset != 0 and origin is AppendOrigin.CLIENT:
            raise KafkaError(
                ErrorCode.INVALID_RECORD,
                f"The baseOffset of the record batch in the append to {self.name} should be 0, but it is {base_offset}",
            )
        size = fields[LENGTH] + LOG_OVERHEAD
        if size > self._config.max_message_bytes:
            raise too_large(self.name, self._config.max_message_bytes, size)
        if crc32c(view[ATTRIBUTES_POSITION:]) != fields[CRC]:
            raise KafkaError(
                ErrorCode.CORRUPT_MESSAGE,
                f"Record is corrupt (stored crc = {fields[CRC]}) in topic partition {self.name}.",
            )

    def needs_validation(
        self, view: memoryview, fields: tuple[int, ...], origin: AppendOrigin
    ) -> bool:
        """Whether LogValidator might refuse or change the batch; Kafka runs it on every batch."""
        if origin is not AppendOrigin.CLIENT:  # the broker's own batches are always valid
            is_compressed = fields[ATTRIBUTES] & COMPRESSION_MASK
            return self._rewrites_records if is_compressed else self._rewrites_plain
        attributes, wall_ms = fields[ATTRIBUTES], self.clock.wall_ms
        if (
            self._validates_records
            or attributes & (LOG_APPEND_TIME_FLAG | CONTROL_FLAG)
            or fields[MAX_TIMESTAMP] - wall_ms > self._config.message_timestamp_after_max_ms
        ):
            return True
        if (
            fields[LAST_OFFSET_DELTA] < 0
            or fields[COUNT] != fields[LAST_OFFSET_DELTA] + 1
            or attributes & COMPRESSION_MASK > LAST_CODEC_ID
            or (fields[PRODUCER_ID] >= 0 and fields[BASE_SEQUENCE] < 0)
        ):
            return True
        if not self.reads_records:
            return False
        from kwire.protocol.record_walk import is_plain

        return not is_plain(view, fields)

    def _append_stamped(
        self,
        view: memoryview,
        fields: tuple[int, ...],
        leader_epoch: int,
        origin: AppendOrigin,
        append_time_ms: int,
        guard: VerificationGuard | None,
    ) -> LogAppendInfo:
        """Write a valid batch with its offset and epoch; the bytes of its records are not copied."""
        size, base_offset = fields[LENGTH] + LOG_OVERHEAD, self.log_end_offset
        if size > self._config.segment_bytes:
            raise KafkaError(
                ErrorCode.RECORD_LIST_TOO_LARGE,
                f"Message batch size is {size} bytes in append to partition {self.name}, "
                f"which exceeds the maximum configured segment size of {self._config.segment_bytes}.",
            )
        if leader_epoch != self._appended_epoch:
            self._enter_epoch(leader_epoch, base_offset)
        stamp = _STAMP.pack(base_offset, fields[LENGTH], leader_epoch)
        parts: list[Buffer] = [stamp, view[MAGIC_POSITION:]]
        if fields[PRODUCER_ID] >= 0:
            header = header_of(fields, 0, base_offset)
            return self._append_of_producer(parts, view, header, origin, append_time_ms, guard)
        last_offset = base_offset + fields[LAST_OFFSET_DELTA]
        self._write(parts, size, base_offset, last_offset, fields[MAX_TIMESTAMP])
        if self._unflushed_messages >= self._config.flush_messages:
            self.flush()
        return LogAppendInfo(
            base_offset, last_offset, append_time_ms, self.log_start_offset, False, size
        )

    # --- appending as follower

    def append_as_follower(self, records: Buffer, leader_epoch: int | None = None) -> LogAppendInfo:
        """Append the leader's batches unchanged.

        Skips batches of an epoch above `leader_epoch`, and a partial one at the end. KafkaError:
        CORRUPT_MESSAGE, UNKNOWN_SERVER_ERROR if offsets do not increase; UnexpectedAppendOffset if
        the first is below the log end. Writes nothing unless all batches are valid. Source:
        UnifiedLog.appendAsFollower, KAFKA-18723.
        """
        from kwire.replication.log.validation import follower_batches

        view = memoryview(records)
        headers = follower_batches(view, leader_epoch, self.name, self.log_end_offset)
        size = 0
        try:
            for header in headers:
                self._append_replicated(view, header)
                size += header.size
        except OSError as error:
            raise self.storage_error("append to", error) from error
        if self._unflushed_messages >= self._config.flush_messages:
            self.flush()
        first_offset, last_offset = (
            (headers[0].base_offset, headers[-1].last_offset) if headers else (-1, -1)
        )
        return LogAppendInfo(first_offset, last_offset, -1, self.log_start_offset, False, size)

    def _append_replicated(self, view: memoryview, header: BatchHeader) -> None:
        if header.partition_leader_epoch != self._appended_epoch:
            self._enter_epoch(header.partition_leader_epoch, header.base_offset)
        part = view[header.position : header.end]
        if header.producer_id >= 0:
            self._append_of_producer([part], part, header, AppendOrigin.REPLICATION, -1)
        else:
            last_offset = header.last_offset
            self._write([part], header.size, header.base_offset, last_offset, header.max_timestamp)

    # --- writing one batch

    def _enter_epoch(self, epoch: int, base_offset: int) -> None:
        """Put an epoch into the cache and its file before its first batch (KIP-101). OSError."""
        if not self.is_topic_id_flushed:
            self.start_topic_id_flush()
        if epoch >= 0:  # -1: a batch from before leader epochs existed
            self.leader_epochs.assign(epoch, base_offset)
        self._appended_epoch = epoch

    def _append_of_producer(
        self,
        parts: list[Buffer],
        view: memoryview,
        header: BatchHeader,
        origin: AppendOrigin,
        append_time_ms: int,
        guard: VerificationGuard | None = None,
    ) -> LogAppendInfo:
        """Append an idempotent or transactional batch, or a transaction marker.

        Checks sequences before the write, updates the transaction after it. `view` begins with the
        batch; `header` has its offset in this log.
        """
        base_offset, last_offset = header.base_offset, header.last_offset
        marker: ControlMarker | None = None
        if header.attributes & CONTROL_FLAG:
            from kwire.replication.log.producer_replay import marker_of

            marker = marker_of(view, header)
        producer_state = self.producer_state
        duplicate = producer_state.check(header, origin, marker, guard)
        if duplicate is not None:  # same answer as the first time; nothing is written
            first_offset, last_offset = duplicate.first_offset, duplicate.last_offset
            start_offset, appended_ms = self.log_start_offset, duplicate.timestamp
            return LogAppendInfo(first_offset, last_offset, appended_ms, start_offset, True, 0)
        size = header.size
        segment = self._write(parts, size, base_offset, last_offset, header.max_timestamp)
        completed = producer_state.append(header, base_offset, origin, marker)
        if completed is not None:
            segment.update_txn_index(completed, producer_state)
        is_due = self._unflushed_messages >= self._config.flush_messages
        if is_due and origin is not AppendOrigin.REPLICATION:  # a follower: after its last batch
            self.flush()
        return LogAppendInfo(
            base_offset, last_offset, append_time_ms, self.log_start_offset, False, size
        )

    def _write(
        self,
        parts: list[Buffer],
        size: int,
        base_offset: int,
        last_offset: int,
        max_timestamp: int,
    ) -> LogSegment:
        """Roll if due, write one batch, advance the log end offset. OSError: nothing was written."""
        config, segment = self._config, self.active
        first = segment._first_timestamp
        # Kafka calls shouldRoll before every append; here only if one of its conditions may hold.
        if (
            segment.size + size > config.segment_bytes
            or last_offset - segment.base_offset > INT32_MAX
            or first is None
            or max_timestamp - first > config.segment_ms
            or first < 0
            or config.segment_jitter_ms
            or segment.index_entries + 1 >= config.segment_index_bytes // TIME_INDEX_ENTRY_BYTES
        ) and self._should_roll(segment, size, last_offset, max_timestamp):
            segment = self._roll(base_offset)
        segment.append(parts, size, last_offset, max_timestamp, config.index_interval_bytes)
        self.log_end_offset = last_offset + 1
        self._unflushed_messages += last_offset - base_offset + 1
        return segment

    def _should_roll(
        self, segment: LogSegment, size: int, last_offset: int, max_timestamp: int
    ) -> bool:
        """Whether size, age, a full index or a relative offset above int32 requires a roll.

        Age is measured from the first batch's timestamp. Source: LogSegment.shouldRoll.
        """
        config = self._config
        if not segment.size:
            return last_offset - segment.base_offset > INT32_MAX
        roll_ms = config.segment_ms - segment.jitter_ms(config, self.name)
        index_entries_max = config.segment_index_bytes // OFFSET_INDEX_ENTRY_BYTES
        return (
            segment.size > config.segment_bytes - size
            or segment.waited_for_roll_ms(max_timestamp, self.clock.wall_ms) > roll_ms
            or segment.offset_index.count >= index_entries_max
            or segment.time_index.count >= config.segment_index_bytes // TIME_INDEX_ENTRY_BYTES - 1
            or last_offset - segment.base_offset > INT32_MAX
        )

    def _roll(self, base_offset: int) -> LogSegment:
        """Start a new active segment, take a producer snapshot, start to flush the old segment."""
        old = self.active
        segment = self._start_segment(max(base_offset, self.log_end_offset))
        self.producer_state.map_end_offset = segment.base_offset
        # Without a flush: after a power cut it is rebuilt from the log.
        self.producer_state.take_snapshot(flush=False)
        if old is not segment and old.base_offset != segment.base_offset:
            old.start_flush()
        return segment

    def flush(self) -> None:
        """Flush everything appended to the disk; the recovery point becomes the log end offset."""
        try:
            self.flush_files()
        except OSError as error:
            raise self.storage_error("flush", error) from error
