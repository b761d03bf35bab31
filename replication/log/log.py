"""One partition's log: append, read, look up, truncate, delete.

Answers to kafka.log.{UnifiedLog,LocalLog} of Kafka 3.9 without tiered storage, future logs and formats before magic 2.
The append path touches the 61 bytes of a batch's header and nothing else, unless the topic's configuration asks
(validation.py); the record bytes go from the request's frame to the file without a copy. A read is one `pread`;
where a sequential reader goes on is remembered, so that it costs no look-up.

Invariants: log_start_offset <= last_stable_offset <= high_watermark <= log_end_offset; there is always an active
segment, the last one; segments' base offsets increase and none is above the log end; every stored batch's epoch is in
the leader-epoch cache; retention and a new log start never remove anything at or above the high watermark.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from struct import error as StructError
from typing import TYPE_CHECKING

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
from kwire.replication.core.events import Event, ignore
from kwire.replication.core.log_config import LogConfig
from kwire.replication.log.indexes import (
    OFFSET_INDEX_ENTRY_BYTES,
    TIME_INDEX_ENTRY_BYTES,
    AbortedTxn,
)
from kwire.replication.log.leader_epochs import LeaderEpochCache
from kwire.replication.log.local_log import LocalLog
from kwire.replication.log.producer_state import ProducerStateManager
from kwire.replication.log.segment import LogSegment, file_name
from kwire.replication.log.types import (
    AppendOrigin,
    FetchedData,
    LogAppendInfo,
    TimestampAndOffset,
    UnexpectedAppendOffset,
)

if TYPE_CHECKING:
    from kwire.protocol.records import BatchHeader, ControlMarker
    from kwire.replication.core.clock import Clock, Timers
    from kwire.replication.core.events import LogEvent
    from kwire.replication.core.log_store import LogStore
    from kwire.replication.core.outbox import Buffer

__all__ = [
    "AbortedTxn",
    "AppendOrigin",
    "FetchedData",
    "Log",
    "LogAppendInfo",
    "TimestampAndOffset",
    "UnexpectedAppendOffset",
]

_STAMP = Struct(">qii")
"""Base offset, length, leader epoch: what stands before the magic, outside the checksum."""
_INT32_MAX = 0x7FFFFFFF
_INT64_MAX = 0x7FFFFFFFFFFFFFFF


def _single_batch(records: Buffer) -> tuple[memoryview, tuple[int, ...]]:
    """The one batch of a request and the fields of its header. KafkaError as validation.single_batch."""
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


class Log(LocalLog):
    """A partition's log, made by `log_loader.create_log` or `log_loader.load_log`.

    Every method may raise KafkaError(KAFKA_STORAGE_ERROR) when the store fails; a failed append changed nothing.
    """

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
        self._appended_epoch = -1  # the last epoch known to be in the cache
        self.config = config

    @property
    def name(self) -> str:
        """Topic and partition as Kafka writes them: "orders-0"."""
        return f"{self.topic}-{self.partition}"

    @property
    def config(self) -> LogConfig:
        """Replaced as a whole when a topic's or broker's key changes; takes effect with the next append."""
        return self._config

    @config.setter
    def config(self, config: LogConfig) -> None:
        self._config = config
        # Whether an append must look at more than a batch's header: decided once here, not with every batch.
        self._validates_records = (
            config.compact
            or config.compression_type != "producer"
            or config.message_timestamp_type != "CreateTime"
            or config.message_timestamp_before_max_ms != _INT64_MAX
        )

    # ---- appending

    def append_as_leader(
        self, records: Buffer, leader_epoch: int, *, origin: AppendOrigin = AppendOrigin.CLIENT
    ) -> LogAppendInfo:
        """Appends one batch, stamped with the next offset and `leader_epoch`.

        KafkaError in Kafka's order: INVALID_RECORD (not exactly one batch of magic 2, base offset not 0),
        MESSAGE_TOO_LARGE, CORRUPT_MESSAGE, what log_validation refuses (INVALID_RECORD, INVALID_TIMESTAMP with
        `record_errors`, compression), RECORD_LIST_TOO_LARGE, what ProducerStateManager refuses. Source:
        UnifiedLog.append.
        """
        view, fields = _single_batch(records)
        self._check_header(view, fields, origin)
        append_time_ms = -1
        if self._needs_validation(fields, origin):
            view, append_time_ms = self._validated(view, origin)
            fields = HEADER.unpack_from(view)
        try:
            return self._append_stamped(view, fields, leader_epoch, origin, append_time_ms)
        except OSError as error:
            raise self.storage_error("append to", error) from error

    def _check_header(
        self, view: memoryview, fields: tuple[int, ...], origin: AppendOrigin
    ) -> None:
        """Refuse a batch that its header and its checksum condemn (UnifiedLog.analyzeAndValidateRecords)."""
        base_offset = fields[BASE_OFFSET]
        if base_offset != 0 and origin is AppendOrigin.CLIENT:
            raise KafkaError(
                ErrorCode.INVALID_RECORD,
                f"The baseOffset of the record batch in the append to {self.name} should be 0, but it is {base_offset}",
            )
        if fields[LENGTH] + LOG_OVERHEAD > self._config.max_message_bytes:
            raise self._too_large(fields[LENGTH] + LOG_OVERHEAD)
        if crc32c(view[ATTRIBUTES_POSITION:]) != fields[CRC]:
            raise KafkaError(
                ErrorCode.CORRUPT_MESSAGE,
                f"Record is corrupt (stored crc = {fields[CRC]}) in topic partition {self.name}.",
            )

    def _needs_validation(self, fields: tuple[int, ...], origin: AppendOrigin) -> bool:
        """Whether LogValidator may refuse or change the batch: Kafka lets it look at every one.

        A header that breaks no rule is believed where the topic asks for nothing of the records (validation.py).
        """
        attributes, wall_ms = fields[ATTRIBUTES], self.clock.wall_ms
        if (
            self._validates_records
            or attributes & (LOG_APPEND_TIME_FLAG | CONTROL_FLAG)
            or fields[MAX_TIMESTAMP] - wall_ms > self._config.message_timestamp_after_max_ms
        ):
            return True
        return origin is AppendOrigin.CLIENT and (  # brokers' own batches are as they must be
            fields[LAST_OFFSET_DELTA] < 0
            or fields[COUNT] != fields[LAST_OFFSET_DELTA] + 1
            or attributes & COMPRESSION_MASK > LAST_CODEC_ID
            or (fields[PRODUCER_ID] >= 0 and fields[BASE_SEQUENCE] < 0)
        )

    def _validated(self, view: memoryview, origin: AppendOrigin) -> tuple[memoryview, int]:
        """The batch as LogValidator leaves it, and the log append time or -1. KafkaError as validation.validate."""
        from kwire.replication.log.validation import validate

        view, append_time_ms = validate(view, self._config, self.clock.wall_ms, origin, self.name)
        if len(view) > self._config.max_message_bytes:  # recompressed, it may be larger
            raise self._too_large(len(view))
        return view, append_time_ms

    def _append_stamped(
        self,
        view: memoryview,
        fields: tuple[int, ...],
        leader_epoch: int,
        origin: AppendOrigin,
        append_time_ms: int,
    ) -> LogAppendInfo:
        """Give a batch that may be appended its offset and its epoch, and write it; its bytes are not copied."""
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
            return self._append_of_producer(parts, view, header, origin, append_time_ms)
        last_offset = base_offset + fields[LAST_OFFSET_DELTA]
        self._write(parts, size, base_offset, last_offset, fields[MAX_TIMESTAMP])
        if self._unflushed_messages >= self._config.flush_messages:
            self.flush()
        return LogAppendInfo(
            base_offset, last_offset, append_time_ms, self.log_start_offset, False, size
        )

    def append_as_follower(self, records: Buffer, leader_epoch: int | None = None) -> LogAppendInfo:
        """Appends batches as the leader has them; batches of an epoch above `leader_epoch` and a partial one are left
        out.

        KafkaError: CORRUPT_MESSAGE, UNKNOWN_SERVER_ERROR when offsets do not increase; UnexpectedAppendOffset when
        the first is below the log end. Nothing is written unless all of it is good. Source:
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
        self._flush_if_due()
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

    def _enter_epoch(self, epoch: int, base_offset: int) -> None:
        """Make durable what must be so before the first batch of an epoch (KIP-101). OSError."""
        if self._topic_id_unflushed:
            self.flush_topic_id()
        if epoch >= 0:  # -1: a batch that was written before there were epochs
            self.leader_epochs.assign(epoch, base_offset)
        self._appended_epoch = epoch

    def _write(
        self,
        parts: list[Buffer],
        size: int,
        base_offset: int,
        last_offset: int,
        max_timestamp: int,
    ) -> LogSegment:
        """Rolls when it is time, writes one batch, moves the log end. OSError: nothing was written."""
        config, segment = self._config, self.active
        first = segment._first_timestamp
        # Kafka asks shouldRoll before every append; here that is called when one of its reasons may hold.
        if (
            segment.size + size > config.segment_bytes
            or last_offset - segment.base_offset > _INT32_MAX
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

    def _append_of_producer(
        self,
        parts: list[Buffer],
        view: memoryview,
        header: BatchHeader,
        origin: AppendOrigin,
        append_time_ms: int,
    ) -> LogAppendInfo:
        """An idempotent or transactional batch, or a transaction marker: sequences first, the transaction after.

        `view` begins with the batch, `header` has its offset in this log.
        """
        base_offset, last_offset = header.base_offset, header.last_offset
        marker: ControlMarker | None = None
        if header.attributes & CONTROL_FLAG:
            from kwire.replication.log.loader import marker_of

            marker = marker_of(view, header)
        producer_state = self.producer_state
        duplicate = producer_state.check(header, origin, marker)
        if duplicate is not None:  # answered as it was the first time; nothing is written
            first_offset, last_offset = duplicate.first_offset, duplicate.last_offset
            start_offset, appended_ms = self.log_start_offset, duplicate.timestamp
            return LogAppendInfo(first_offset, last_offset, appended_ms, start_offset, True, 0)
        size = header.size
        segment = self._write(parts, size, base_offset, last_offset, header.max_timestamp)
        completed = producer_state.append(header, base_offset, origin, marker)
        if completed is not None:
            segment.note_completed(completed, producer_state)
        if self._unflushed_messages >= self._config.flush_messages and (
            origin
            is not AppendOrigin.REPLICATION  # append_as_follower flushes after its last batch
        ):
            self.flush()
        return LogAppendInfo(
            base_offset, last_offset, append_time_ms, self.log_start_offset, False, size
        )

    def _flush_if_due(self) -> None:
        if self._unflushed_messages >= self._config.flush_messages:
            self.flush()

    def _should_roll(
        self, segment: LogSegment, size: int, last_offset: int, max_timestamp: int
    ) -> bool:
        """LogSegment.shouldRoll: size, age by the first batch's timestamp, a full index, an offset that does not
        fit.
        """
        config = self._config
        if not segment.size:
            return last_offset - segment.base_offset > _INT32_MAX
        roll_ms = config.segment_ms - segment.jitter_ms(config, self.name)
        index_entries_max = config.segment_index_bytes // OFFSET_INDEX_ENTRY_BYTES
        return (
            segment.size > config.segment_bytes - size
            or segment.waited_for_roll_ms(max_timestamp, self.clock.wall_ms) > roll_ms
            or segment.offset_index.count >= index_entries_max
            or segment.time_index.count >= config.segment_index_bytes // TIME_INDEX_ENTRY_BYTES - 1
            or last_offset - segment.base_offset > _INT32_MAX
        )

    # ---- reading

    def read(
        self, offset: int, max_bytes: int, end_offset: int, min_one_batch: bool = True
    ) -> FetchedData:
        """Whole batches from the one that holds `offset`, all below `end_offset`, out of one segment, up to
        `max_bytes`.

        The first batch is returned whatever its size if `min_one_batch`. KafkaError(OFFSET_OUT_OF_RANGE) below the log
        start or above the log end; nothing at or above `end_offset`. Source: UnifiedLog.read, LogSegment.read.
        """
        log_end = self.log_end_offset
        if offset < self.log_start_offset or offset > log_end:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"Received request for offset {offset} for partition {self.name}, but we only have log segments "
                f"from offset {self.log_start_offset} up to {log_end}.",
            )
        if end_offset > log_end:
            end_offset = log_end
        if offset >= end_offset:
            return FetchedData(b"", offset, offset)
        try:
            return self._read(offset, max_bytes, end_offset, min_one_batch)
        except OSError as error:
            raise self.storage_error("read from", error) from error

    # ---- look-ups

    def offset_by_timestamp(self, timestamp: int, end_offset: int) -> TimestampAndOffset | None:
        """The first record below `end_offset` with at least this timestamp (UnifiedLog.fetchOffsetByTimestamp)."""
        from kwire.replication.log.lookup import offset_by_timestamp

        try:
            return offset_by_timestamp(self, timestamp, end_offset)
        except OSError as error:
            raise self.storage_error("read from", error) from error

    def max_timestamp_offset(self, end_offset: int) -> TimestampAndOffset | None:
        """The first record with the largest timestamp of the log; None when it is not below `end_offset` (KIP-734)."""
        from kwire.replication.log.lookup import max_timestamp_offset

        try:
            return max_timestamp_offset(self, end_offset)
        except OSError as error:
            raise self.storage_error("read from", error) from error

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """(largest epoch not above `epoch`, where it ends); (-1, -1) when unknown
        (LeaderEpochFileCache.endOffsetFor).
        """
        return self.leader_epochs.end_offset_for(epoch, self.log_end_offset)

    # ---- high watermark and log start

    @property
    def last_stable_offset(self) -> int:
        """Up to where read_committed sees: the first offset of an undecided transaction, at most the high watermark."""
        high_watermark, producers = self.high_watermark, self.producer_state
        if not (producers.ongoing or producers.unreplicated):
            return high_watermark
        unstable = producers.first_unstable_offset
        if unstable is None or unstable >= high_watermark:
            return high_watermark
        return max(unstable, self.log_start_offset)

    def update_high_watermark(self, offset: int) -> int:
        """Sets the high watermark, kept between log start and log end; returns what it became."""
        self.high_watermark = min(max(offset, self.log_start_offset), self.log_end_offset)
        self.producer_state.on_high_watermark_updated(self.high_watermark)
        return self.high_watermark

    def maybe_increment_high_watermark(self, offset: int) -> bool:
        """Raises it if `offset` is larger. Above the log end it would be a bug."""
        assert offset <= self.log_end_offset, (offset, self.log_end_offset)
        if offset <= self.high_watermark:
            return False
        self.high_watermark = offset
        if self.producer_state.unreplicated:
            self.producer_state.on_high_watermark_updated(offset)
        return True

    def maybe_increment_log_start_offset(self, offset: int) -> bool:
        """Moves the log start up (DeleteRecords, retention). OFFSET_OUT_OF_RANGE above the high watermark."""
        if offset > self.high_watermark:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"Cannot increment the log start offset to {offset} of partition {self.name} "
                f"since it is larger than the high watermark {self.high_watermark}",
            )
        if offset <= self.log_start_offset:
            return False
        self.log_start_offset = offset
        try:
            self.leader_epochs.truncate_from_start(offset)
        except OSError as error:
            raise self.storage_error("move the start of", error) from error
        self.producer_state.on_log_start_offset_incremented(offset)
        return True

    # ---- segments: roll, truncate, retention

    def roll(self) -> None:
        """Begins a new segment at the log end; an empty active segment stays."""
        if self.active.size:
            try:
                self._roll(self.log_end_offset)
            except OSError as error:
                raise self.storage_error("roll", error) from error

    def _roll(self, base_offset: int) -> LogSegment:
        """A new active segment, with the producers' snapshot beside it; the old one begins to be flushed."""
        old = self.active
        segment = self._start_segment(max(base_offset, self.log_end_offset))
        self.producer_state.map_end_offset = segment.base_offset
        self.producer_state.take_snapshot(
            flush=False
        )  # lost in a power cut, it is rebuilt from the log
        if old is not segment and old.base_offset != segment.base_offset:
            old.start_flush()
        return segment

    def truncate_to(self, offset: int) -> bool:
        """Removes everything at or after `offset`; False when there was nothing (the epoch cache is cut all the same).

        Log start and high watermark come down with the log end. Source: UnifiedLog.truncateTo.
        """
        assert offset >= 0, offset
        try:
            self._appended_epoch = -1
            if offset >= self.log_end_offset:
                self.leader_epochs.truncate_from_end(self.log_end_offset)
                return False
            if self.segments[0].base_offset > offset:
                self._truncate_fully(offset, offset)
                return True
            self.producer_state.map_end_offset = (
                self.log_end_offset
            )  # not kept up to date by appends
            for segment in self._cut_segments(offset):
                self.producer_state.delete_snapshot(segment.base_offset)
            self.leader_epochs.truncate_from_end(offset)
            self.log_start_offset = min(self.log_start_offset, offset)
            from kwire.replication.log.loader import rebuild_producer_state

            rebuild_producer_state(
                self.producer_state,
                self.segments,
                self.log_start_offset,
                offset,
                wall_ms=self.clock.wall_ms,
            )
        except OSError as error:
            raise self.storage_error("truncate", error) from error
        if self.high_watermark > offset:
            self.update_high_watermark(offset)
        return True

    def truncate_fully_and_start_at(self, offset: int, log_start_offset: int | None = None) -> None:
        """Drops everything: log start (unless given), high watermark and log end are `offset`, the epoch cache is
        empty.
        """
        try:
            self._truncate_fully(offset, offset if log_start_offset is None else log_start_offset)
        except OSError as error:
            raise self.storage_error("truncate", error) from error

    def _truncate_fully(self, offset: int, log_start_offset: int) -> None:
        self._appended_epoch = -1
        for segment in self._restart_segments(offset):
            self.producer_state.delete_snapshot(segment.base_offset)
        self.leader_epochs.clear()
        self.producer_state.truncate_fully_and_start_at(offset)
        self.log_start_offset = log_start_offset
        self.update_high_watermark(offset)

    def delete_old_segments(self) -> int:
        """Deletes from the oldest on what is below the log start, too much or too old; returns how many segments.

        Only segments wholly below the high watermark go; log start follows. Source: UnifiedLog.deleteOldSegments.
        """
        from kwire.replication.log.retention import delete_old_segments

        try:
            return delete_old_segments(self)
        except OSError as error:
            raise self.storage_error("delete segments of", error) from error

    def delete_oldest(self, count: int, reason: str, detail: str) -> None:
        """Deletes the first `count` segments, all below the high watermark; after the last one begins a new segment."""
        if count == len(self.segments):
            self._roll(self.log_end_offset)
        doomed = self.segments[:count]
        self.maybe_increment_log_start_offset(self._bases[count])
        self._remove(doomed)
        for segment in doomed:
            self.producer_state.delete_snapshot(segment.base_offset)
        self.log_event(
            Event.SEGMENTS_DELETED,
            segments=count,
            log_start_offset=self._bases[0],
            reason=reason,
            detail=detail,
        )

    # ---- flushing and closing

    def flush(self) -> None:
        """Returns when everything appended survives a power cut; the recovery point is then the log end."""
        try:
            self.flush_files()
        except OSError as error:
            raise self.storage_error("flush", error) from error

    def close(self) -> None:
        """Clean stop: producer snapshot, indexes complete, all of it on the disk, descriptors given back."""
        if self.closed:
            return
        self.closed = True
        try:
            self.producer_state.map_end_offset = self.log_end_offset
            self.producer_state.take_snapshot(flush=False)
            self.active.seal()
            self.flush_files()
            snapshot = self.producer_state.latest_snapshot_offset()
            names = ["partition.metadata", "leader-epoch-checkpoint"]
            if snapshot is not None:
                names.append(file_name(snapshot, ".snapshot"))
            for name in names:  # written without a flush while the log was in use
                self.store.flush_file(f"{self.directory}/{name}")
            self.abandon()
        except OSError as error:
            raise self.storage_error("close", error) from error

    def maybe_flush(self) -> None:
        """flush.ms: flushes when the last flush is that long ago and something was appended since."""
        due = self.clock.now_ms - self._last_flush_ms >= self._config.flush_ms
        if due and self._unflushed_messages:
            self.flush()

    def _too_large(self, size: int) -> KafkaError:
        return KafkaError(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"The record batch size in the append to {self.name} is {size} bytes "
            f"which exceeds the maximum configured value of {self.config.max_message_bytes}.",
        )
