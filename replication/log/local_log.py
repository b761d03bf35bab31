"""The segments of one log: read, roll, truncate, delete, replace, flush.

Answers to kafka.log.LocalLog. Epochs, producers and high watermarks are left to append.py and
log.py.

Invariants: `segments` is never empty and in order of base offset; the last is the active one;
everything below `recovery_point` is flushed; a deleted segment's files stay as `.deleted` for
`file.delete.delay.ms`.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable

from kwire.protocol.errors import ErrorCode, KafkaError
from kwire.protocol.records import (
    BASE_OFFSET,
    HEADER,
    HEADER_SIZE,
    LAST_OFFSET_DELTA,
    LENGTH,
    LOG_OVERHEAD,
    OFFSET_AND_LENGTH,
)
from kwire.replication.core.events import Event
from kwire.replication.core.log_config import LogConfig
from kwire.replication.core.log_store import PartitionFault
from kwire.replication.log.checkpoints import PARTITION_METADATA
from kwire.replication.log.segment import LogSegment
from kwire.replication.log.types import FetchedData

TYPE_CHECKING = False
if TYPE_CHECKING:
    from kwire.replication.core.clock import Clock, Timers
    from kwire.replication.core.events import EventType, LogEvent
    from kwire.replication.core.log_store import LogStore
    from kwire.replication.log.indexes import AbortedTxn

_REMEMBERED_POSITIONS = 32
_JUMP_BYTES = 1 << 16
"""In a larger read the index gives a batch near the end, instead of a walk over all batches."""


class LocalLog:
    """The files of a log. Methods raise the store's OSError; `storage_error` converts it."""

    def __init__(
        self,
        store: LogStore,
        directory: str,
        topic: str,
        partition: int,
        config: LogConfig,
        clock: Clock,
        timers: Timers,
        segments: list[LogSegment],
        log_end_offset: int,
        recovery_point: int,
        log_event: LogEvent,
        on_failure: Callable[[str], None] | None = None,
    ) -> None:
        """`on_failure` is called with every store error: the whole directory fails with it."""
        self._on_failure = on_failure
        self.store = store
        self.directory = directory
        self.topic = topic
        self.partition = partition
        self.clock = clock
        self.timers = timers
        self.segments = segments
        self.active = segments[-1]
        self.log_end_offset = log_end_offset
        self.recovery_point = recovery_point
        self.is_topic_id_flushed = recovery_point > 0  # it is before any flush of the data
        self._log_event = log_event
        self.closed = False
        self.is_offline = False  # its replica is, and what keeps logs small leaves it as it is
        self._config = config
        self._bases = [segment.base_offset for segment in segments]
        self._unflushed_messages = 0
        self._last_flush_ms = clock.now_ms
        self._positions: dict[int, tuple[LogSegment, int]] = {}

    @property
    def size_bytes(self) -> int:
        """The size of all `.log` files, as DescribeLogDirs reports it."""
        return sum(segment.size for segment in self.segments)

    def log_event(self, event: EventType, **fields: object) -> None:
        """An event of this log, with the fields that name it."""
        log, topic, partition = self.directory, self.topic, self.partition
        self._log_event(event, log=log, topic=topic, partition=partition, **fields)

    def storage_error(self, action: str, error: OSError) -> KafkaError:
        """Report a store error to the directory; return it as KAFKA_STORAGE_ERROR.

        Answers to LogDirFailureChannel.
        """
        why = f"Failed to {action} partition {self.directory}: {error}"
        if self._on_failure is not None and not isinstance(error, PartitionFault):
            self._on_failure(why)
        return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, why)

    def segment_number(self, offset: int) -> int:
        """The index of the segment whose range holds `offset`; 0 below the first."""
        return max(bisect_right(self._bases, offset) - 1, 0)

    def position_of(self, segment: LogSegment, offset: int) -> int:
        """The position of the first batch that ends at or after `offset`, else the segment's size.

        Remembers the last few results: the offsets where readers stopped, the high watermark.
        """
        if offset <= segment.base_offset:
            return 0
        remembered = self._positions.get(offset)
        if remembered is not None and remembered[0] is segment:
            return remembered[1]
        batch = segment.find_batch(offset)
        position = batch.position if batch is not None else segment.size
        self.remember_position(offset, segment, position)
        return position

    def remember_position(self, offset: int, segment: LogSegment, position: int) -> None:
        positions = self._positions
        positions[offset] = (segment, position)
        if len(positions) > _REMEMBERED_POSITIONS:
            del positions[next(iter(positions))]

    def bytes_between(self, offset: int, end_offset: int) -> int:
        """The bytes of batches between two offsets, as DelayedFetch counts them."""
        if offset >= end_offset:
            return 0
        first, last = self.segment_number(offset), self.segment_number(end_offset)
        total = -self.position_of(self.segments[first], offset)
        for number in range(first, last):
            total += self.segments[number].size
        if end_offset >= self.log_end_offset:
            return total + self.segments[last].size
        return total + self.position_of(self.segments[last], end_offset)

    # --- reading

    def rolls_between(self, offset: int, end_offset: int) -> bool:
        """Whether a segment begins in (`offset`, `end_offset`]: a single read stops before it."""
        if offset >= self.active.base_offset:
            return False
        return self.segment_number(offset) < self.segment_number(end_offset)

    def aborted_transactions(self, start: int, end: int) -> list[AbortedTxn]:
        """The aborted transactions that overlap offsets [start, end) (UnifiedLog.collectAbortedTransactions)."""
        found: list[AbortedTxn] = []
        try:
            for number in range(self.segment_number(start), len(self.segments)):
                some, complete = self.segments[number].txn_index.collect(start, end)
                found += some
                if complete:
                    break
        except OSError as error:
            raise self.storage_error("read from", error) from error
        return found

    def _read(
        self, offset: int, max_bytes: int, end_offset: int, min_one_batch: bool
    ) -> FetchedData:
        """As Log.read, for an offset within the log (LocalLog.read)."""
        number = len(self.segments) - 1
        if offset < self.active.base_offset:
            number = self.segment_number(offset)
        while number < len(self.segments):
            segment = self.segments[number]
            position = self.position_of(segment, offset)
            if position < segment.size:
                break
            number += 1
        else:
            return FetchedData(b"", offset, offset)  # only a gap is left up to the log end
        last = number + 1 == len(self.segments)
        next_offset = self.log_end_offset if last else self._bases[number + 1]
        available = segment.size - position
        if end_offset < next_offset:  # otherwise the rest of the segment
            available, next_offset = self.position_of(segment, end_offset) - position, end_offset
        if available <= 0:
            return FetchedData(b"", offset, offset)
        data = segment.file.read(position, min(max(max_bytes, LOG_OVERHEAD), available))
        first_offset, length = OFFSET_AND_LENGTH.unpack_from(data)
        size = len(data)
        if length + LOG_OVERHEAD > max_bytes:  # KIP-74: a reader makes progress whatever its limit
            if not min_one_batch:
                return FetchedData(b"", offset, offset, True)
            data = segment.file.read(position, length + LOG_OVERHEAD)
            size = len(data)
            next_offset = first_offset + HEADER.unpack_from(data)[LAST_OFFSET_DELTA] + 1
        elif size < available:
            size, next_offset = _last_whole_batch(data, segment, position)
        self.remember_position(next_offset, segment, position + size)
        records = data if size == len(data) else memoryview(data)[:size]
        return FetchedData(records, first_offset, next_offset)

    # --- changing the list of segments

    def _start_segment(self, base_offset: int) -> LogSegment:
        """Start a new active segment; replaces one of the same base (empty, or with a full index)."""
        if self.active.base_offset == base_offset:
            self._remove([self.active])
        else:
            self.active.seal()
        segment = LogSegment.create(self.store, self.directory, base_offset, self.clock.wall_ms)
        self.segments.append(segment)
        self._bases.append(base_offset)
        self.active = segment
        return segment

    def _remove(self, segments: Iterable[LogSegment]) -> None:
        """Remove segments: rename their files now, delete them after `file.delete.delay.ms`."""
        doomed = list(segments)
        if not doomed:
            return
        gone = {id(segment) for segment in doomed}
        self.segments[:] = [segment for segment in self.segments if id(segment) not in gone]
        self._bases[:] = [segment.base_offset for segment in self.segments]
        self._positions.clear()
        for segment in doomed:
            segment.change_suffix("", ".deleted")
            segment.release()
        deadline = self.clock.now_ms + self._config.file_delete_delay_ms
        key = ("delete-segments", self.directory, doomed[0].base_offset, id(doomed[0]))

        def delete_files() -> None:
            try:
                self.store.start_delete([path for segment in doomed for path in segment.paths])
            except OSError as error:
                failure = self.storage_error("delete segments of", error)
                self.log_event(Event.SEGMENT_DELETION_FAILED, detail=str(failure))

        self.timers.schedule(key, deadline, delete_files)

    def _truncate_segments(self, offset: int) -> list[LogSegment]:
        """Remove everything from `offset` on; return the segments removed as a whole.

        Source: LocalLog.truncateTo.
        """
        keep = bisect_right(self._bases, offset)
        doomed = self.segments[keep:]
        self._remove(doomed)
        self.active = self.segments[-1]
        self.active.truncate_to(offset)
        self._positions.clear()
        self.log_end_offset = offset
        self.recovery_point = min(self.recovery_point, offset)
        self._unflushed_messages += 1  # a truncation must be flushed, too
        return doomed

    def _restart_segments(self, offset: int) -> list[LogSegment]:
        """Remove all segments and restart, empty, at `offset`; return the removed ones."""
        doomed = list(self.segments)
        self._remove(doomed)
        segment = LogSegment.create(self.store, self.directory, offset, self.clock.wall_ms)
        self.segments.append(segment)
        self._bases.append(offset)
        self.active = segment
        self.log_end_offset = offset
        self.recovery_point = min(self.recovery_point, offset)
        self._unflushed_messages += 1
        return doomed

    def replace_segments(self, old: list[LogSegment], new: LogSegment) -> None:
        """Replace `old` by a cleaned segment (its files end in `.cleaned`); safe at any crash.

        As in Kafka: `.cleaned` → `.swap` makes the replacement final; then the old segments are
        removed, then `.swap` → "".
        """
        new.seal()
        new.flush()
        new.change_suffix(".cleaned", ".swap")
        first = bisect_left(self._bases, old[0].base_offset)
        self._remove(old)
        new.change_suffix(".swap", "")
        self.segments.insert(first, new)
        self._bases.insert(first, new.base_offset)

    # --- flushing

    def start_topic_id_flush(self) -> None:
        """Start to flush `partition.metadata` before the first data. OSError.

        Kafka waits for it, so that after a power cut the data is never taken for that of another
        topic of the same name (UnifiedLog.maybeFlushMetadataFile). Here loading removes data that
        was never flushed beside a file that was not (loader.py), and a flush of the data does wait:
        so the disk keeps as much as Kafka promises, and nobody else waits for it."""
        path = f"{self.directory}/{PARTITION_METADATA}"
        self.store.start_flush_file(path, self._topic_id_flushed)

    def _topic_id_flushed(self) -> None:
        self.is_topic_id_flushed = True

    def flush_topic_id(self) -> None:
        """Flush `partition.metadata`. OSError."""
        self.store.flush_file(f"{self.directory}/{PARTITION_METADATA}")
        self.is_topic_id_flushed = True

    def small_files_are_flushed(self) -> bool:
        """Whether what loading the log needs beside flushed records is flushed; else start that. OSError."""
        if not self.is_topic_id_flushed:
            self.start_topic_id_flush()
        return self.is_topic_id_flushed

    def flush_small_files(self) -> None:
        """Flush what loading the log needs beside flushed records. OSError."""
        if not self.is_topic_id_flushed:
            self.flush_topic_id()

    def flush_files(self) -> None:
        """Flush everything up to the log end offset; it becomes the recovery point."""
        if self._unflushed_messages or self.recovery_point < self.log_end_offset:
            self.flush_small_files()
            for number in range(self.segment_number(self.recovery_point), len(self.segments)):
                self.segments[number].flush()
        self.recovery_point = self.log_end_offset
        self._unflushed_messages = 0
        self._last_flush_ms = self.clock.now_ms

    def abandon(self) -> None:
        """Close the files without writing anything, as for a log that is deleted."""
        self.closed = True
        for segment in self.segments:
            segment.release()

    def advance_recovery_point(self) -> int:
        """Advance the recovery point over segments whose flush, started at the roll, has ended."""
        if self.log_end_offset > self.recovery_point and not self.small_files_are_flushed():
            return self.recovery_point
        number = self.segment_number(self.recovery_point)
        while number + 1 < len(self.segments):
            segment = self.segments[number]
            if not segment.is_flushed:
                segment.start_flush()
                break
            self.recovery_point = max(self.recovery_point, self._bases[number + 1])
            number += 1
        return self.recovery_point


def _last_whole_batch(data: bytes, segment: LogSegment, position: int) -> tuple[int, int]:
    """The end of the last whole batch in `data` (read at a batch's position), and its next offset."""
    size = len(data)
    at = 0
    if size > _JUMP_BYTES:
        at = max(segment.offset_index.position_before(position + size - HEADER_SIZE) - position, 0)
    last, unpack_from = at, OFFSET_AND_LENGTH.unpack_from
    while size - at >= HEADER_SIZE:
        end = at + LOG_OVERHEAD + unpack_from(data, at)[LENGTH]
        if end > size:
            return at, unpack_from(data, at)[BASE_OFFSET]
        last, at = at, end
    fields = HEADER.unpack_from(data, last)
    return at, fields[BASE_OFFSET] + fields[LAST_OFFSET_DELTA] + 1
