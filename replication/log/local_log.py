"""The segments of one log: which there are, the active one, rolling, cutting, deleting, flushing.

Answers to kafka.log.LocalLog. Knows nothing of epochs, producers or high watermarks: that is log.py.

Invariants: `segments` is never empty, in order of base offset; the last is the active one; `recovery_point` is an
offset below which everything has been flushed; a deleted segment's files live on as `.deleted` for
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
"""In more than this the end of the last whole batch is looked up in the index instead of walked to."""


class LocalLog:
    """The files of a log. OSError from what touches the store; `storage_error` makes Kafka's error of it."""

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
        """`on_failure` is told of every error of the store: its whole directory fails with it."""
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
        self._topic_id_unflushed = not any(segment.size for segment in segments)
        self._log_event = log_event
        self.closed = False
        self._config = config
        self._bases = [segment.base_offset for segment in segments]
        self._unflushed_messages = 0
        self._last_flush_ms = clock.now_ms
        self._positions: dict[int, tuple[LogSegment, int]] = {}

    @property
    def size_bytes(self) -> int:
        """Of all `.log` files, as DescribeLogDirs reports it."""
        return sum(segment.size for segment in self.segments)

    def log_event(self, event: EventType, **fields: object) -> None:
        """An event of this log, with the fields that name it."""
        log, topic, partition = self.directory, self.topic, self.partition
        self._log_event(event, log=log, topic=topic, partition=partition, **fields)

    def storage_error(self, action: str, error: OSError) -> KafkaError:
        """KAFKA_STORAGE_ERROR for an error of the store, and the directory hears of it (LogDirFailureChannel)."""
        why = f"Failed to {action} partition {self.directory}: {error}"
        if self._on_failure is not None and not isinstance(error, PartitionFault):
            self._on_failure(why)
        return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, why)

    def segment_number(self, offset: int) -> int:
        """Index of the segment whose range holds `offset`; 0 when it is below all of them."""
        return max(bisect_right(self._bases, offset) - 1, 0)

    def position_of(self, segment: LogSegment, offset: int) -> int:
        """Where the first batch that ends at or after `offset` begins; the segment's size when there is none.

        A few answers are remembered: where readers stopped and where the high watermark is.
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
        """How many bytes of batches lie between two offsets: what a waiting fetch counts (DelayedFetch)."""
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
        """Whether a segment begins after `offset` and at or before `end_offset`: no single read gets that far."""
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
            return FetchedData(b"", offset, offset)  # what is left is a gap up to the log end
        last = number + 1 == len(self.segments)
        next_offset = self.log_end_offset if last else self._bases[number + 1]
        available = segment.size - position
        if end_offset < next_offset:  # else all that the segment has
            available, next_offset = self.position_of(segment, end_offset) - position, end_offset
        if available <= 0:
            return FetchedData(b"", offset, offset)
        data = segment.file.read(position, min(max(max_bytes, LOG_OVERHEAD), available))
        first_offset, length = OFFSET_AND_LENGTH.unpack_from(data)
        size = len(data)
        if length + LOG_OVERHEAD > max_bytes:  # KIP-74: a reader gets on, whatever its limit
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
        """A new active segment. One of the same base (empty, or with a full index) makes room for it."""
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
        """Takes segments out of the log; their files are renamed now and deleted after `file.delete.delay.ms`."""
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
                for segment in doomed:
                    segment.delete_files()
            except OSError as error:
                failure = self.storage_error("delete segments of", error)
                self.log_event(Event.SEGMENT_DELETION_FAILED, detail=str(failure))

        self.timers.schedule(key, deadline, delete_files)

    def _cut_segments(self, offset: int) -> list[LogSegment]:
        """Removes what is at or after `offset`; returns the segments that went as a whole (LocalLog.truncateTo)."""
        keep = bisect_right(self._bases, offset)
        doomed = self.segments[keep:]
        self._remove(doomed)
        self.active = self.segments[-1]
        self.active.truncate_to(offset)
        self._positions.clear()
        self.log_end_offset = offset
        self.recovery_point = min(self.recovery_point, offset)
        self._unflushed_messages += 1  # a cut has to reach the disk too
        return doomed

    def _restart_segments(self, offset: int) -> list[LogSegment]:
        """Removes everything and begins again, empty, at `offset`."""
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
        """Puts a cleaned segment (its files end in `.cleaned`) in the place of `old`, safe against a crash at any
        point.

        Kafka's protocol: `.cleaned` → `.swap` makes the replacement final; then the old ones go, then `.swap` → "".
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

    def flush_topic_id(self) -> None:
        """Before the first data: whatever a power cut leaves of it can be told from another topic's of that name
        (UnifiedLog.maybeFlushMetadataFile). OSError."""
        self.store.flush_file(f"{self.directory}/partition.metadata")
        self._topic_id_unflushed = False

    def flush_files(self) -> None:
        """Everything up to the log end reaches the disk; the recovery point follows."""
        if self._unflushed_messages or self.recovery_point < self.log_end_offset:
            for number in range(self.segment_number(self.recovery_point), len(self.segments)):
                self.segments[number].flush()
        self.recovery_point = self.log_end_offset
        self._unflushed_messages = 0
        self._last_flush_ms = self.clock.now_ms

    def abandon(self) -> None:
        """Gives back the descriptors; nothing is written any more, as when the log is being deleted."""
        self.closed = True
        for segment in self.segments:
            segment.release()

    def advance_recovery_point(self) -> int:
        """Moves the recovery point over the segments whose flush, begun when they were rolled, has ended."""
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
    """Where the last whole batch of `data` (read at a batch's position) ends, and the offset after it."""
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
