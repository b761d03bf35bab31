"""Log compaction: keep the latest record of every key; runs in small steps between requests.

Answers to kafka.log.{LogCleaner,LogCleanerManager} and MemoryRecords.filterTo of Kafka 3.9 (KIP-58:
compaction lag, KIP-354: its upper bound, KIP-534: delete horizon). No throttle, and the file times
of old segments are not kept: they only matter for records without timestamps. cleaner_filter.py
decides which records a batch keeps.

* A log is due when its dirty part (from the first offset never cleaned to the first uncleanable
  one) exceeds min.cleanable.dirty.ratio of the whole, or is older than max.compaction.lag.ms.
  Uncleanable: the active segment, unstable offsets, records younger than min.compaction.lag.ms.
* The cleaner first maps every key in the dirty part to its latest offset, as far as memory allows;
  then it copies all segments up to there, group by group, into `.cleaned` segments, which replace
  the old ones once they are flushed.
* On request (compaction.py) a whole log is cleaned, due or not.
* Offsets never change; batches that lose records keep base and last offset, so there are gaps.
* The cleaner also runs retention of compacted logs ("compact,delete", or a log start that has
  moved): in every round, of all but the log in work, and of none if log.cleaner.enable is false.

A log that is moving to another directory is not cleaned: the part already copied would count as
clean there although it is not, and a deleted key's old value would outlive its tombstone.

Kafka cleans in its own threads. Here a cleaning is a generator that a timer advances by one piece
at a time. If the log is truncated, deleted or loses segments between two steps, the cleaning is
dropped and starts again later.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from hashlib import sha256

from kwire.protocol.errors import ErrorCode, KafkaError
from kwire.protocol.records import BatchHeader, check_crc, iter_batches, iter_records
from kwire.protocol.varint import INT32_MAX
from kwire.replication.core.events import Event
from kwire.replication.log.checkpoints import CLEANER_OFFSETS, format_offsets, read_offsets
from kwire.replication.log.segment import LogSegment
from kwire.replication.log_dirs.cleanable import (
    LogToClean,
    find_cleanable,
    roll_active,
    segments_between,
)
from kwire.replication.log_dirs.cleaner_filter import BatchFilter, CleanedTransactions
from kwire.replication.log_dirs.compaction import CompactionRequests

TYPE_CHECKING = False
if TYPE_CHECKING:
    from kwire.replication.core.events import EventType
    from kwire.replication.core.types import TopicPartition
    from kwire.replication.core.work import Steps
    from kwire.replication.log.log import Log
    from kwire.replication.log_dirs.manager import LogManager

STEP_BYTES = 128 << 10
"""How much of a log one step reads."""
_RECORD_BYTES = 100
"""A record counts as so many bytes at least: its key and its place take as long to look at."""
_STEP_INTERVAL_MS = 1
_REQUEST_INTERVAL_MS = 2
_CHUNK_BYTES = 256 << 10
_KEY_BYTES_MAX = 32
_MAP_ENTRY_BYTES = 150
"""Memory of a key and its offset in a dict: makes log.cleaner.dedupe.buffer.size a memory limit."""


class OffsetMap:
    """The latest offset of each key, up to `latest_offset`. Long keys are stored as a hash."""

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
        """The latest offset of the key; -1 for an unknown one."""
        return self._offsets.get(_map_key(key), -1)


def _map_key(key: bytes) -> bytes:
    # One byte longer than any key stored as it is, so a hash never equals a key.
    return key if len(key) <= _KEY_BYTES_MAX else b"#" + sha256(key).digest()


class LogCleaner:
    """The cleaner of a log directory. `clean_logs` is what LogManager calls every log.cleaner.backoff.ms."""

    def __init__(self, dedupe_buffer_bytes: int = 128 << 20, *, rolls_active: bool = False) -> None:
        """`rolls_active`: roll the active segments of compacted topics before each round."""
        self.requests = CompactionRequests()
        self._rolls_active = rolls_active
        self._entries_max = max(dedupe_buffer_bytes // _MAP_ENTRY_BYTES, 1)
        self._offsets: dict[TopicPartition, int] | None = None  # None: not read yet
        self._work: Generator[None, None, int] | None = None
        self._cleaning: LogToClean | None = None
        self._uncleanable: set[TopicPartition] = set()
        self._written: dict[str, bytes] = {}  # path of a directory → its checkpoint

    def clean_logs(self, manager: LogManager) -> Steps:
        """Start to clean the dirtiest log that is due; apply retention to the other compacted ones."""
        if self._rolls_active:
            roll_active(manager)
        if manager.removed:
            self._write_checkpoint(manager)
        if self._work is None:
            self._begin(manager)
        yield sum(len(directory.logs) for directory in manager.online())
        yield from self._delete_old_segments(manager)

    def request(self, manager: LogManager, log: Log) -> None:
        """Clean a log up to its present end as soon as that is committed; `requests` tells how far
        it is. KafkaError(KAFKA_STORAGE_ERROR)."""
        self.requests.add(log)
        if (log.topic, log.partition) in self._uncleanable:
            self.requests.fail(log, "an earlier compaction has failed: see the broker's log")
        self._check_requests(manager)

    def _check_requests(self, manager: LogManager) -> None:
        """Begin what has been requested, as soon as the cleaner is free and the log committed."""
        if self.requests.is_empty:
            return
        if self._work is None:
            self._begin_next(manager, only_requested=True)
        manager.timers.schedule(
            ("log-cleaner-requests", id(self)),
            manager.clock.now_ms + _REQUEST_INTERVAL_MS,
            lambda: self._check_requests(manager),
        )

    def first_dirty_offset(self, manager: LogManager, log: Log) -> int | None:
        """The offset up to which the log is clean; None if it was never cleaned."""
        return self._checkpoint(manager).get((log.topic, log.partition))

    def log_truncated(self, manager: LogManager, log: Log, offset: int) -> None:
        """Lower the checkpoint of a log truncated to `offset` (maybeTruncateCheckpoint)."""
        offsets = self._checkpoint(manager)
        key = (log.topic, log.partition)
        if offsets.get(key, 0) > offset:
            offsets[key] = offset
            self._write_checkpoint(manager)

    def _delete_old_segments(self, manager: LogManager) -> Steps:
        for log in [each for each in manager.logs() if each.config.compact]:
            key = (log.topic, log.partition)
            being_cleaned = None if self._cleaning is None else self._cleaning.log
            if log is being_cleaned or key in self._uncleanable or log.closed or log.is_offline:
                continue
            try:
                log.delete_old_segments(50)  # more in the next round
                yield 5
            except KafkaError as error:  # already reported to its directory
                _log_failure(manager, Event.RETENTION_FAILED, log, error)

    def _begin(self, manager: LogManager, *, only_requested: bool = False) -> None:
        work = self.requests.next_work(manager, self._checkpoint(manager))
        if work is None and not only_requested:
            found = [self._find_due(manager, log) for log in manager.logs() if log.config.compact]
            work = max((each for each in found if each is not None), key=_ratio, default=None)
        if work is None:
            return
        self._cleaning = work
        self._work = clean(work, manager.clock.wall_ms, self._entries_max)
        self._schedule(manager)

    def _find_due(self, manager: LogManager, log: Log) -> LogToClean | None:
        key = (log.topic, log.partition)
        if log.closed or log.is_offline or key in self._uncleanable:
            return None
        if manager.future(*key) is not None:
            return None
        checkpoint = self._checkpoint(manager).get(key)
        work = find_cleanable(log, checkpoint, manager.clock.wall_ms)
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
                self.requests.finish(cleaning, -1)
                work.close()
                return
            next(work)
        except StopIteration as done:
            self._work = self._cleaning = None
            self.requests.finish(cleaning, done.value)
            self._finish(manager, log, done.value)
        except (OSError, KafkaError) as error:
            # As in Kafka: skip this log until the broker restarts, continue with the others.
            self._work = self._cleaning = None
            self._uncleanable.add((log.topic, log.partition))
            self.requests.fail(log, str(error))
            if isinstance(error, OSError):
                log.storage_error("clean", error)
            _log_failure(manager, Event.CLEANING_FAILED, log, error)
            self._begin_next(manager)
        else:
            self._schedule(manager)

    def _finish(self, manager: LogManager, log: Log, end_offset: int) -> None:
        if end_offset < 0:
            return  # dropped because the log changed; the next round checks it again
        offsets = self._checkpoint(manager)
        key = (log.topic, log.partition)
        before = offsets.get(key)
        offsets[key] = end_offset
        try:
            self._write_checkpoint(manager)
        except OSError as error:  # a restart only cleans the same part again
            _log_failure(manager, Event.CLEANER_CHECKPOINT_FAILED, log, error)
        if before != end_offset:  # without progress wait for the next round
            self._begin_next(manager)

    def _begin_next(self, manager: LogManager, *, only_requested: bool = False) -> None:
        try:
            self._begin(manager, only_requested=only_requested)
        except OSError as error:
            manager.log_event(Event.CLEANER_FAILED, detail=str(error))

    def _checkpoint(self, manager: LogManager) -> dict[TopicPartition, int]:
        if self._offsets is None:
            offsets: dict[TopicPartition, int] = {}
            for directory in manager.online():
                found = read_offsets(directory.store, CLEANER_OFFSETS)
                if found:
                    self._written[directory.path] = b""  # to be replaced, also by an empty one
                # The checkpoint may still list a replica that has moved to another directory.
                offsets |= {key: found[key] for key in found if key in directory.logs}
            self._offsets = offsets
        while manager.removed:  # a new log of that name is dirty from its start
            key = manager.removed.pop()
            self._uncleanable.discard(key)
            self._offsets.pop(key, None)
        return self._offsets

    def _write_checkpoint(self, manager: LogManager) -> None:
        offsets = self._checkpoint(manager)
        for directory in manager.online():
            inside = [(key, offset) for key, offset in offsets.items() if key in directory.logs]
            data = format_offsets(inside)
            before = self._written.get(directory.path)
            if data != before and (inside or before is not None):
                directory.store.start_write_file(CLEANER_OFFSETS, data, lambda: None)
                self._written[directory.path] = data


def _log_failure(manager: LogManager, event: EventType, log: Log, error: Exception) -> None:
    manager.log_event(event, topic=log.topic, partition=log.partition, detail=str(error))


def _ratio(work: LogToClean) -> float:
    return work.ratio


# --- cleaning


def clean(work: LogToClean, now_ms: int, entries_max: int) -> Generator[None, None, int]:
    """Clean a log; yield every STEP_BYTES. Returns the first offset not cleaned, -1 if dropped.

    OSError; KafkaError(CORRUPT_MESSAGE) at a damaged batch. Whatever ends it, the log is unchanged
    or cleaned in part. The watch begins with this call, not with the first step: the log may be
    deleted or truncated before that, too.
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
                    _discard(cleaned)
                    return -1
            log.replace_segments(group, cleaned)
            watch.forget(len(group))
        except (OSError, KafkaError, GeneratorExit):
            _discard(cleaned)
            raise
        for segment in group[1:]:  # no segment begins at these offsets any more
            log.producer_state.delete_snapshot(segment.base_offset)
    return end


def _flush(cleaned: LogSegment) -> Iterator[None]:
    """Flush a segment in the background; yield until that is done."""
    cleaned.seal()
    store = cleaned.store
    files = [store.open(path) for path in cleaned.paths if store.exists(path)]
    while any(file.flushed_size < file.size for file in files):
        for file in files:
            file.start_flush()
        yield


def _discard(cleaned: LogSegment) -> None:
    if cleaned.path.endswith(".cleaned"):  # a `.swap` is final: loading the log completes it
        cleaned.release()
        cleaned.delete_files()


class _Watch:
    """Detects changes of the segments that are being cleaned."""

    __slots__ = ("_log", "_sizes")

    def __init__(self, log: Log, segments: list[LogSegment]) -> None:
        self._log = log
        self._sizes = [(segment, segment.size) for segment in segments]

    def forget(self, count: int) -> None:
        """Stop watching the first `count` segments, which have been replaced."""
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
    """Map each key in the dirty part to its latest offset; end early if the map is full."""
    log, start = work.log, work.first_dirty_offset
    transactions = CleanedTransactions()
    transactions.add(log.aborted_transactions(start, work.first_uncleanable_offset))
    step_bytes_left = STEP_BYTES
    for number, segment in enumerate(dirty):
        relative = max(start - segment.base_offset, 0)
        position = segment.offset_index.position_for_offset(relative)
        for header, buffer in _batches(segment, position):
            if not _map_batch(header, buffer, start, transactions, offset_map):
                return
            step_bytes_left -= max(header.size, header.count * _RECORD_BYTES)
            if step_bytes_left <= 0:
                step_bytes_left = STEP_BYTES
                yield
        following = dirty[number + 1 :]
        next_base = following[0].base_offset if following else work.first_uncleanable_offset
        offset_map.latest_offset = max(offset_map.latest_offset, next_base - 1)


def _map_batch(
    header: BatchHeader,
    buffer: memoryview,
    start: int,
    transactions: CleanedTransactions,
    offset_map: OffsetMap,
) -> bool:
    """Put a batch's keys into the map; False if it is full."""
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
    """Yield (header, buffer) of a segment's batches; checks CRCs, as the originals get deleted."""
    while position < segment.size:
        buffer = memoryview(segment.file.read(position, _CHUNK_BYTES))
        end = 0
        for header in iter_batches(buffer):
            end = header.end
            yield _check(segment, buffer, header), buffer
        if end == 0:  # the batch is larger than the buffer
            large = next(segment.batches(position), None)
            if large is None:
                raise _corrupt_error(segment, position)
            buffer = memoryview(segment.read_batch(large))
            yield _check(segment, buffer, large._replace(position=0)), buffer
            end = large.size
        position += end


def _check(segment: LogSegment, buffer: memoryview, header: BatchHeader) -> BatchHeader:
    if not check_crc(buffer, header):
        raise _corrupt_error(segment, header.position)
    return header


def _corrupt_error(segment: LogSegment, position: int) -> KafkaError:
    return KafkaError(
        ErrorCode.CORRUPT_MESSAGE, f"{segment.path} is damaged near position {position}"
    )


def group_segments(
    log: Log, segments: list[LogSegment], first_uncleanable_offset: int
) -> list[list[LogSegment]]:
    """Group neighbours that fit into one segment by bytes, index entries and offsets.

    Source: Cleaner.groupSegmentsBySize.
    """
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
    leftover = LogSegment(first.store, first.directory, first.base_offset, created_ms, ".cleaned")
    leftover.delete_files()  # left by a crash or an error
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
        offset_map,
        transactions,
        log.producer_state.producers,
        now_ms,
        config.delete_retention_ms,
        # A reader below the log end needs a batch to get there: Kafka's active segment has one.
        -1 if log.active.size else log.log_end_offset - 1,
    )
    step_bytes_left = STEP_BYTES
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
            step_bytes_left -= max(header.size, header.count * _RECORD_BYTES)
            if step_bytes_left <= 0:
                step_bytes_left = STEP_BYTES
                yield
    yield from _flush(cleaned)
