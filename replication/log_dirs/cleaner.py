"""Log compaction: of every key the latest record stays, piece by piece and beside the traffic.

Answers to kafka.log.{LogCleaner,LogCleanerManager} and MemoryRecords.filterTo of Kafka 3.9 (KIP-58: compaction lag,
KIP-354: its upper bound, KIP-534: delete horizon). Without a throttle, and without the old segments' file times, which
only matter for records without timestamps. Which records a batch keeps is decided in cleaner_filter.py.

* A log is cleaned when its dirty part (from the first offset not cleaned yet to the first that must not be) is more
  than min.cleanable.dirty.ratio of the whole, or older than max.compaction.lag.ms. What must not be cleaned: the active
  segment, what is not stable, what is younger than min.compaction.lag.ms.
* First the latest offset of every key in the dirty part is noted, as much of it as memory allows; then all segments up
  to there are copied, group by group, into `.cleaned` ones, which take their place when they are on the disk.
* Offsets never change; batches that lose records keep base and last offset, so there are holes.
* Retention of compacted logs ("compact,delete", or a log start that has moved) is the cleaner's too: in every round, of
  all but the one that is being cleaned, and of none when log.cleaner.enable is false.

A log that is moving to another directory is not cleaned: of what is copied already, nobody would know that it is not
clean, and a deleted key's old value would outlive its tombstone there.

Kafka cleans in threads of its own. Here a cleaning is a generator that reads a piece in each step, as a timer; between
two steps the log may be truncated, deleted or lose segments, and then the cleaning is dropped and begins anew later.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Generator, Iterator
from hashlib import sha256
from typing import NamedTuple

from kwire.protocol.errors import ErrorCode, KafkaError
from kwire.protocol.records import BatchHeader, check_crc, iter_batches, iter_records
from kwire.protocol.varint import INT32_MAX
from kwire.replication.core.events import Event
from kwire.replication.log.checkpoints import CLEANER_OFFSETS, format_offsets, read_offsets
from kwire.replication.log.segment import LogSegment
from kwire.replication.log_dirs.cleaner_filter import BatchFilter, CleanedTransactions

TYPE_CHECKING = False
if TYPE_CHECKING:
    from kwire.replication.core.events import EventType
    from kwire.replication.core.types import TopicPartition
    from kwire.replication.log.log import Log
    from kwire.replication.log_dirs.manager import LogManager

STEP_BYTES = 256 << 10
"""How much of a log is read before other work has its turn."""
_STEP_INTERVAL_MS = 1
_CHUNK_BYTES = 256 << 10
_KEY_BYTES_MAX = 32
_MAP_ENTRY_BYTES = 150
"""What a key and its offset take in a dict, so that log.cleaner.dedupe.buffer.size is a limit of memory here too."""


class OffsetMap:
    """The latest offset of each key, up to `latest_offset`. Long keys are represented by their hash."""

    __slots__ = ("_entries_max", "_offsets", "latest_offset")

    def __init__(self, entries_max: int) -> None:
        self._entries_max = entries_max
        self._offsets: dict[bytes, int] = {}
        self.latest_offset = -1

    def __len__(self) -> int:
        return len(self._offsets)

    @property
    def is_full(self) -> bool:
        return len(self._offsets) >= self._entries_max

    def put(self, key: bytes, offset: int) -> None:
        self._offsets[_map_key(key)] = offset

    def get(self, key: bytes) -> int:
        """-1 for a key that is not there."""
        return self._offsets.get(_map_key(key), -1)


def _map_key(key: bytes) -> bytes:
    # One byte longer than any key that stands for itself: the two kinds cannot meet.
    return key if len(key) <= _KEY_BYTES_MAX else b"#" + sha256(key).digest()


class LogToClean(NamedTuple):
    """What there is to clean in a log."""

    log: Log
    first_dirty_offset: int
    first_uncleanable_offset: int
    clean_bytes: int
    cleanable_bytes: int
    is_overdue: bool
    """Its oldest dirty record is older than max.compaction.lag.ms."""

    @property
    def ratio(self) -> float:
        total = self.clean_bytes + self.cleanable_bytes
        return self.cleanable_bytes / total if total else 0.0

    @property
    def is_due(self) -> bool:
        overdue = self.is_overdue and self.cleanable_bytes > 0
        return overdue or self.ratio > self.log.config.min_cleanable_dirty_ratio


class LogCleaner:
    """The cleaner of a log directory. `clean_logs` is what LogManager calls every log.cleaner.backoff.ms."""

    def __init__(self, dedupe_buffer_bytes: int = 128 << 20) -> None:
        self._entries_max = max(dedupe_buffer_bytes // _MAP_ENTRY_BYTES, 1)
        self._offsets: dict[TopicPartition, int] | None = None  # None: not read yet
        self._work: Generator[None, None, int] | None = None
        self._cleaning: LogToClean | None = None
        self._uncleanable: set[TopicPartition] = set()
        self._written: dict[str, bytes] = {}  # path of a directory → its checkpoint

    def clean_logs(self, manager: LogManager) -> None:
        """Begins with the dirtiest log, if one is due, and goes on with the others, step by step. OSError.

        What is too old, or too much, in the other compacted logs is deleted at once."""
        if self._work is None:
            self._begin(manager)
        self._delete_old_segments(manager)

    def first_dirty_offset(self, manager: LogManager, log: Log) -> int | None:
        """Up to where the log has been cleaned; None: never."""
        return self._checkpoint(manager).get((log.topic, log.partition))

    def log_truncated(self, manager: LogManager, log: Log, offset: int) -> None:
        """The log was cut to `offset`: what comes after it is dirty (maybeTruncateCheckpoint)."""
        offsets = self._checkpoint(manager)
        key = (log.topic, log.partition)
        if offsets.get(key, 0) > offset:
            offsets[key] = offset
            self._write_checkpoint(manager)

    def _delete_old_segments(self, manager: LogManager) -> None:
        being_cleaned = None if self._cleaning is None else self._cleaning.log
        for log in list(manager.logs()):
            key = (log.topic, log.partition)
            if not log.config.compact or log is being_cleaned or key in self._uncleanable:
                continue
            try:
                log.delete_old_segments()
            except KafkaError as error:  # its directory has been told
                _log_failure(manager, Event.RETENTION_FAILED, log, error)

    def _begin(self, manager: LogManager) -> None:
        due = [work for log in manager.logs() if (work := self._to_clean(manager, log)) is not None]
        if not due:
            return
        self._cleaning = max(due, key=_ratio)
        self._work = clean(self._cleaning, manager.clock.wall_ms, self._entries_max)
        self._schedule(manager)

    def _to_clean(self, manager: LogManager, log: Log) -> LogToClean | None:
        key = (log.topic, log.partition)
        if not log.config.compact or log.closed or key in self._uncleanable:
            return None
        if manager.future(*key) is not None:
            return None
        checkpoint = self._checkpoint(manager).get(key)
        work = find_work(log, checkpoint, manager.clock.wall_ms)
        return work if work.is_due else None

    def _schedule(self, manager: LogManager) -> None:
        deadline = manager.clock.now_ms + _STEP_INTERVAL_MS
        manager.timers.schedule(("log-cleaner", id(self)), deadline, lambda: self._step(manager))

    def _step(self, manager: LogManager) -> None:
        work, cleaning = self._work, self._cleaning
        if work is None or cleaning is None:
            return
        log = cleaning.log
        try:
            if manager.future(log.topic, log.partition) is not None:
                self._work = self._cleaning = None
                work.close()
                return
            next(work)
        except StopIteration as done:
            self._work = self._cleaning = None
            self._done(manager, log, done.value)
        except (OSError, KafkaError) as error:
            # As Kafka does: this log is left alone until the broker starts again, the others go on.
            self._work = self._cleaning = None
            self._uncleanable.add((log.topic, log.partition))
            if isinstance(error, OSError):
                log.storage_error("clean", error)
            _log_failure(manager, Event.CLEANING_FAILED, log, error)
            self._begin_next(manager)
        else:
            self._schedule(manager)

    def _done(self, manager: LogManager, log: Log, end_offset: int) -> None:
        if end_offset < 0:
            return  # dropped: its log changed under it; the next round looks again
        offsets = self._checkpoint(manager)
        key = (log.topic, log.partition)
        before = offsets.get(key)
        offsets[key] = end_offset
        try:
            self._write_checkpoint(manager)
        except (
            OSError
        ) as error:  # all that is lost is the work of finding out again after a restart
            _log_failure(manager, Event.CLEANER_CHECKPOINT_FAILED, log, error)
        if before != end_offset:  # no progress is no reason to begin at once again
            self._begin_next(manager)

    def _begin_next(self, manager: LogManager) -> None:
        try:
            self._begin(manager)
        except OSError as error:
            manager.log_event(Event.CLEANER_FAILED, detail=str(error))

    def _checkpoint(self, manager: LogManager) -> dict[TopicPartition, int]:
        if self._offsets is None:
            offsets: dict[TopicPartition, int] = {}
            for directory in manager.online():
                found = read_offsets(directory.store, CLEANER_OFFSETS)
                # One of a replica that has moved away may stand there still.
                offsets |= {key: found[key] for key in found if key in directory.logs}
            self._offsets = offsets
        return self._offsets

    def _write_checkpoint(self, manager: LogManager) -> None:
        offsets = self._checkpoint(manager)
        for topic, partition in list(offsets):
            if manager.get(topic, partition) is None:
                del offsets[topic, partition]
        for directory in manager.online():
            inside = [(key, offset) for key, offset in offsets.items() if key in directory.logs]
            data = format_offsets(inside)
            before = self._written.get(directory.path)
            if data != before and (inside or before is not None):
                directory.store.write_file(CLEANER_OFFSETS, data)
                self._written[directory.path] = data


def _log_failure(manager: LogManager, event: EventType, log: Log, error: Exception) -> None:
    manager.log_event(event, topic=log.topic, partition=log.partition, detail=str(error))


def _ratio(work: LogToClean) -> float:
    return work.ratio


# --- what is dirty


def find_work(log: Log, checkpoint: int | None, now_ms: int) -> LogToClean:
    """What may be cleaned of a log whose offsets below `checkpoint` are clean (cleanableOffsets)."""
    first_dirty = log.log_start_offset if checkpoint is None else checkpoint
    if not log.log_start_offset <= first_dirty <= log.log_end_offset:
        first_dirty = (
            log.log_start_offset
        )  # cut, or the start moved: all that is left counts as dirty
    config = log.config
    uncleanable = min(log.last_stable_offset, log.active.base_offset)
    dirty = segments_between(log, first_dirty, log.active.base_offset)
    if config.min_compaction_lag_ms > 0:
        for segment in dirty:
            if segment.largest_timestamp() > now_ms - config.min_compaction_lag_ms:
                uncleanable = min(uncleanable, segment.base_offset)
                break
    uncleanable = max(uncleanable, first_dirty)
    # Whole segments only: the one that holds the bound is out.
    holder = segments_between(log, uncleanable, log.active.base_offset)
    end = (holder[0] if holder else log.active).base_offset
    return LogToClean(
        log,
        first_dirty,
        end,
        sum(s.size for s in log.segments if s.base_offset < first_dirty),
        sum(s.size for s in segments_between(log, min(first_dirty, end), end)),
        _is_overdue(dirty, now_ms - config.max_compaction_lag_ms),
    )


def _is_overdue(dirty: list[LogSegment], oldest_allowed_ms: int) -> bool:
    if oldest_allowed_ms <= 0:
        return False
    timestamps = [t for s in dirty if (t := s.first_timestamp) is not None and t > 0]
    return bool(timestamps) and min(timestamps) < oldest_allowed_ms


def segments_between(log: Log, start: int, end: int) -> list[LogSegment]:
    """The segments from the one that holds `start` to the last that begins before `end` (LogSegments.values)."""
    if start >= end:
        return []
    bases = [segment.base_offset for segment in log.segments]
    return log.segments[max(bisect_right(bases, start) - 1, 0) : bisect_left(bases, end)]


# --- cleaning


def clean(work: LogToClean, now_ms: int, entries_max: int) -> Generator[None, None, int]:
    """Cleans a log; yields every STEP_BYTES. Returns the first offset not cleaned, -1 when dropped half-way.

    OSError; KafkaError(CORRUPT_MESSAGE) at a damaged batch. Whatever ends it, the log is as before or cleaned in part.
    What is watched is the log of now, not of the first step: it may be deleted or cut before that, too.
    """
    dirty = segments_between(work.log, work.first_dirty_offset, work.first_uncleanable_offset)
    return _clean(work, dirty, _Watch(work.log, dirty), now_ms, entries_max)


def _clean(
    work: LogToClean, dirty: list[LogSegment], watch: _Watch, now_ms: int, entries_max: int
) -> Generator[None, None, int]:
    log = work.log
    offset_map = OffsetMap(entries_max)
    if watch.has_changed:
        return -1
    for _ in _build_offset_map(work, dirty, offset_map):
        yield
        if watch.has_changed:
            return -1
    end = max(offset_map.latest_offset + 1, work.first_dirty_offset)
    if not len(offset_map) and offset_map.latest_offset < 0:
        return end
    transactions = CleanedTransactions()
    segments = segments_between(log, log.segments[0].base_offset, end)
    watch = _Watch(log, segments)
    for group in group_segments(log, segments, work.first_uncleanable_offset):
        cleaned = _new_segment(group)
        try:
            for _ in _clean_group(log, group, cleaned, offset_map, transactions, now_ms):
                yield
                if watch.has_changed:
                    _give_up(cleaned)
                    return -1
            log.replace_segments(group, cleaned)
            watch.forget(len(group))
        except (OSError, KafkaError, GeneratorExit):
            _give_up(cleaned)
            raise
        for segment in group[1:]:  # their offsets are inside a segment now
            log.producer_state.delete_snapshot(segment.base_offset)
    return end


def _give_up(cleaned: LogSegment) -> None:
    if cleaned.path.endswith(".cleaned"):  # a `.swap` is final: loading the log completes it
        cleaned.release()
        cleaned.delete_files()


class _Watch:
    """Notices that segments being cleaned are not what they were."""

    __slots__ = ("_log", "_sizes")

    def __init__(self, log: Log, segments: list[LogSegment]) -> None:
        self._log = log
        self._sizes = [(segment, segment.size) for segment in segments]

    def forget(self, count: int) -> None:
        """The first `count` of the segments have been replaced."""
        del self._sizes[:count]

    @property
    def has_changed(self) -> bool:
        log = self._log
        if log.closed or not log.config.compact:
            return True
        there = {id(segment) for segment in log.segments}
        return any(id(s) not in there or s.size != size for s, size in self._sizes)


def _build_offset_map(
    work: LogToClean, dirty: list[LogSegment], offset_map: OffsetMap
) -> Iterator[None]:
    """Notes the latest offset of each key in the dirty part; ends early when the map is full."""
    log, start = work.log, work.first_dirty_offset
    transactions = CleanedTransactions()
    transactions.add(log.aborted_transactions(start, work.first_uncleanable_offset))
    unseen = STEP_BYTES
    for number, segment in enumerate(dirty):
        relative = max(start - segment.base_offset, 0)
        position = segment.offset_index.position_for_offset(relative)
        for header, buffer in _batches(segment, position):
            if not _note_batch(header, buffer, start, transactions, offset_map):
                return
            unseen -= header.size
            if unseen <= 0:
                unseen = STEP_BYTES
                yield
        following = dirty[number + 1 :]
        next_base = following[0].base_offset if following else work.first_uncleanable_offset
        offset_map.latest_offset = max(offset_map.latest_offset, next_base - 1)


def _note_batch(
    header: BatchHeader,
    buffer: memoryview,
    start: int,
    transactions: CleanedTransactions,
    offset_map: OffsetMap,
) -> bool:
    """False: there is no more room."""
    if header.is_control:
        transactions.on_control_batch(header, buffer)
    elif not transactions.on_batch(header):
        for offset, _, key, _, _ in iter_records(buffer, header):
            if key is not None and offset >= start:
                if offset_map.is_full:
                    return False
                offset_map.put(key, offset)
    if header.last_offset >= start:
        offset_map.latest_offset = max(offset_map.latest_offset, header.last_offset)
    return True


def _batches(segment: LogSegment, position: int) -> Iterator[tuple[BatchHeader, memoryview]]:
    """The batches of a segment, each in a buffer of several; checked, because what is copied gets no second chance."""
    while position < segment.size:
        buffer = memoryview(segment.file.read(position, _CHUNK_BYTES))
        end = 0
        for header in iter_batches(buffer):
            end = header.end
            yield _checked(segment, buffer, header), buffer
        if end == 0:  # one batch is larger than that
            large = next(segment.batches(position), None)
            if large is None:
                raise _corrupt(segment, position)
            buffer = memoryview(segment.read_batch(large))
            yield _checked(segment, buffer, large._replace(position=0)), buffer
            end = large.size
        position += end


def _checked(segment: LogSegment, buffer: memoryview, header: BatchHeader) -> BatchHeader:
    if not check_crc(buffer, header):
        raise _corrupt(segment, header.position)
    return header


def _corrupt(segment: LogSegment, position: int) -> KafkaError:
    return KafkaError(
        ErrorCode.CORRUPT_MESSAGE, f"{segment.path} is damaged near position {position}"
    )


def group_segments(
    log: Log, segments: list[LogSegment], first_uncleanable_offset: int
) -> list[list[LogSegment]]:
    """Neighbours that fit into one segment together, by bytes, index entries and offsets (groupSegmentsBySize)."""
    config = log.config
    groups: list[list[LogSegment]] = []
    size = offsets = times = 0
    for number, segment in enumerate(segments):
        following = segments[number + 1 :]
        last_offset = (following[0].base_offset if following else first_uncleanable_offset) - 1
        size += segment.size
        offsets += segment.offset_index.count * 8
        times += segment.time_index.count * 12
        if (
            groups
            and size <= config.segment_bytes
            and offsets <= config.segment_index_bytes
            and times <= config.segment_index_bytes
            and (not segment.size or last_offset - groups[-1][0].base_offset <= INT32_MAX)
        ):
            groups[-1].append(segment)
        else:
            groups.append([segment])
            size = segment.size
            offsets = segment.offset_index.count * 8
            times = segment.time_index.count * 12
    return groups


def _new_segment(group: list[LogSegment]) -> LogSegment:
    first = group[0]
    created_ms = group[-1].created_ms
    left_over = LogSegment(first.store, first.directory, first.base_offset, created_ms, ".cleaned")
    left_over.delete_files()  # of a cleaning that a crash or an error ended
    return LogSegment.create(
        first.store, first.directory, first.base_offset, created_ms, ".cleaned"
    )


def _clean_group(
    log: Log,
    group: list[LogSegment],
    cleaned: LogSegment,
    offset_map: OffsetMap,
    transactions: CleanedTransactions,
    now_ms: int,
) -> Iterator[None]:
    config = log.config
    transactions.cleaned_index = cleaned.txn_index
    batch_filter = BatchFilter(
        offset_map, transactions, log.producer_state.producers, now_ms, config.delete_retention_ms
    )
    unseen = STEP_BYTES
    for segment in group:
        end = log.segments.index(segment) + 1
        upper = log.segments[end].base_offset if end < len(log.segments) else log.log_end_offset
        transactions.add(log.aborted_transactions(segment.base_offset, upper))
        for header, buffer in _batches(segment, 0):
            kept = batch_filter.filter(header, buffer)
            if kept is not None:
                data, max_timestamp = kept
                cleaned.append(
                    [data],
                    len(data),
                    header.last_offset,
                    max_timestamp,
                    config.index_interval_bytes,
                )
            unseen -= header.size
            if unseen <= 0:
                unseen = STEP_BYTES
                yield
