"""One partition's log: read, look up, high watermark, truncate, retention (append: append.py).

Answers to kafka.log.{UnifiedLog,LocalLog} of Kafka 3.9 without tiered storage and formats before
magic 2. A read is one `pread`; the log remembers where a sequential reader stopped, so its next
read needs no index look-up.

Invariants: log_start_offset <= last_stable_offset <= high_watermark <= log_end_offset; the last
segment is the active one; segments' base offsets increase and none is above the log end; every
stored batch's epoch is in the leader-epoch cache; retention and DeleteRecords never remove anything
at or above the high watermark.
"""

from __future__ import annotations

from kwire.protocol.errors import ErrorCode, KafkaError
from kwire.protocol.varint import INT64_MAX
from kwire.replication.core.events import Event
from kwire.replication.log.append import AppendableLog
from kwire.replication.log.indexes import AbortedTxn
from kwire.replication.log.segment import file_name
from kwire.replication.log.types import (
    AppendOrigin,
    CheckedBatch,
    FetchedData,
    LogAppendInfo,
    TimestampAndOffset,
    UnexpectedAppendOffset,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from kwire.replication.core.work import Steps
    from kwire.replication.log.lookup import Lookup

__all__ = [
    "AbortedTxn",
    "AppendOrigin",
    "CheckedBatch",
    "FetchedData",
    "Log",
    "LogAppendInfo",
    "TimestampAndOffset",
    "UnexpectedAppendOffset",
]


_SEGMENTS_A_STEP = 20
_UNITS_A_SEGMENT = 100
"""What it takes to rename the files of a segment."""


class Log(AppendableLog):
    """A partition's log, created by `loader.create_log` or `loader.load_log`.

    Every method may raise KafkaError(KAFKA_STORAGE_ERROR); a failed append changes nothing.
    """

    def assign_topic_id(self, topic_id: bytes) -> None:
        """Give a log from before topic ids its id (UnifiedLog.assignTopicId)."""
        from kwire.replication.log.loader import write_topic_id

        try:
            write_topic_id(self.store, self.directory, topic_id)
            self.topic_id = topic_id
            self.flush_topic_id()
        except OSError as error:
            raise self.storage_error("keep the topic id of", error) from error

    # --- reading

    def read(
        self, offset: int, max_bytes: int, end_offset: int, min_one_batch: bool = True
    ) -> FetchedData:
        """Read whole batches of one segment, from the one that holds `offset`, up to `max_bytes`.

        All batches are below `end_offset`; from there on the result is empty. `min_one_batch`:
        return the first batch whatever its size. KafkaError(OFFSET_OUT_OF_RANGE) below the log
        start or above the log end. Source: UnifiedLog.read, LogSegment.read.
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

    # --- look-ups

    def offset_by_timestamp(self, timestamp: int, end_offset: int) -> Lookup:
        """The first record below `end_offset` with at least this timestamp; in steps.

        Source: UnifiedLog.fetchOffsetByTimestamp.
        """
        from kwire.replication.log.lookup import offset_by_timestamp

        try:
            return (yield from offset_by_timestamp(self, timestamp, end_offset))
        except OSError as error:
            raise self.storage_error("read from", error) from error

    def max_timestamp_offset(self, end_offset: int) -> Lookup:
        """The first record with the log's largest timestamp (KIP-734), in steps; None at or above `end_offset`."""
        from kwire.replication.log.lookup import max_timestamp_offset

        try:
            return (yield from max_timestamp_offset(self, end_offset))
        except OSError as error:
            raise self.storage_error("read from", error) from error

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """(largest epoch not above `epoch`, its end offset); (-1, -1) if unknown.

        Source: LeaderEpochFileCache.endOffsetFor.
        """
        return self.leader_epochs.end_offset_for(epoch, self.log_end_offset)

    # --- high watermark and log start

    @property
    def last_stable_offset(self) -> int:
        """The end of what read_committed sees: the first undecided offset or the high watermark."""
        high_watermark, producers = self.high_watermark, self.producer_state
        if not (producers.ongoing or producers.unreplicated):
            return high_watermark
        unstable = producers.first_unstable_offset
        if unstable is None or unstable >= high_watermark:
            return high_watermark
        return max(unstable, self.log_start_offset)

    def update_high_watermark(self, offset: int) -> int:
        """Set the high watermark, clamped to [log start, log end]; return the result."""
        self.high_watermark = min(max(offset, self.log_start_offset), self.log_end_offset)
        self.producer_state.on_high_watermark_updated(self.high_watermark)
        return self.high_watermark

    def maybe_increment_high_watermark(self, offset: int) -> bool:
        """Advance the high watermark if `offset` is larger; `offset` is at most the log end."""
        assert offset <= self.log_end_offset, (offset, self.log_end_offset)
        if offset <= self.high_watermark:
            return False
        self.high_watermark = offset
        if self.producer_state.unreplicated:
            self.producer_state.on_high_watermark_updated(offset)
        return True

    def maybe_increment_log_start_offset(self, offset: int) -> bool:
        """Advance the log start (DeleteRecords, retention). OFFSET_OUT_OF_RANGE above the high
        watermark."""
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

    # --- segments: roll, truncate, retention

    def roll(self) -> None:
        """Roll a new segment at the log end; an empty active segment stays."""
        if self.active.size:
            try:
                self._roll(self.log_end_offset)
            except OSError as error:
                raise self.storage_error("roll", error) from error

    def truncate_to(self, offset: int) -> bool:
        """Remove everything from `offset` on; return whether the log was longer.

        The epoch cache is truncated in any case. Log start and high watermark are lowered to the
        new log end if they are above it. Source: UnifiedLog.truncateTo.
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
            for segment in self._truncate_segments(offset):
                self.producer_state.delete_snapshot(segment.base_offset)
            self.leader_epochs.truncate_from_end(offset)
            self.log_start_offset = min(self.log_start_offset, offset)
            from kwire.replication.log.producer_replay import rebuild_producer_state

            rebuild_producer_state(
                self.producer_state,
                self.segments,
                self.log_start_offset,
                offset,
                wall_ms=self.clock.wall_ms,
            )
        except OSError as error:
            raise self.storage_error("truncate", error) from error
        if self.high_watermark >= offset:  # if equal: transactions that were read again are stable
            self.update_high_watermark(offset)
        return True

    def truncate_fully_and_start_at(self, offset: int, log_start_offset: int | None = None) -> None:
        """Drop everything: `offset` becomes log end, high watermark and (unless given) log start.

        The epoch cache is cleared.
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

    def delete_old_segments(self, limit: int = INT64_MAX) -> int:
        """Delete at most `limit` segments below the log start or beyond retention; return how many.

        Deletes only segments wholly below the high watermark and advances the log start. Source:
        UnifiedLog.deleteOldSegments.
        """
        from kwire.replication.log.retention import delete_old_segments

        try:
            return delete_old_segments(self, limit)
        except OSError as error:
            raise self.storage_error("delete segments of", error) from error

    def apply_retention(self) -> Steps:
        """Delete all old segments, some at a time (core/work.py). KAFKA_STORAGE_ERROR."""
        deleted = _SEGMENTS_A_STEP
        while deleted >= _SEGMENTS_A_STEP and not self.closed:
            deleted = self.delete_old_segments(_SEGMENTS_A_STEP)
            yield 3 + deleted * _UNITS_A_SEGMENT

    def delete_oldest(self, count: int, reason: str, detail: str) -> None:
        """Delete the first `count` segments, all below the high watermark.

        Rolls first if that is all of them.
        """
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

    # --- flushing and closing

    def close(self) -> None:
        """Clean shutdown: take a producer snapshot, complete the indexes, flush and close files."""
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

    def small_files_are_flushed(self) -> bool:
        if not self.leader_epochs.is_flushed:
            self.leader_epochs.start_flush()
        return super().small_files_are_flushed() and self.leader_epochs.is_flushed

    def flush_small_files(self) -> None:
        super().flush_small_files()
        if not self.leader_epochs.is_flushed:
            self.leader_epochs.flush()

    def maybe_flush(self) -> bool:
        """Flush if the last flush is flush.ms ago and something was appended since; return whether."""
        due = self.clock.now_ms - self._last_flush_ms >= self._config.flush_ms
        if due and self._unflushed_messages:
            self.flush()
            return True
        return False
