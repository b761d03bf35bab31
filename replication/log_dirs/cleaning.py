"""The cleaning of one log, in steps: map the keys of its dirty part, then copy what is to stay.

Answers to Cleaner.doClean, buildOffsetMap and cleanSegments of Kafka 3.9 (kafka.log.LogCleaner).

* First every key in the dirty part is mapped to its latest offset, as far as memory allows; then
  all segments up to there are copied, group by group, into `.cleaned` segments, which replace the
  old ones once they are flushed.
* Offsets never change; batches that lose records keep base and last offset, so there are gaps.
* If the log is truncated, deleted or loses segments between two steps, the cleaning is dropped.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from hashlib import sha256
from typing import TypeVar

from kwire.protocol.errors import ErrorCode, KafkaError
from kwire.protocol.record_streams import records_in_parts
from kwire.protocol.records import BatchHeader, check_crc, iter_batches
from kwire.protocol.varint import INT32_MAX
from kwire.replication.core.work import ELSEWHERE_UNITS
from kwire.replication.log.segment import LogSegment
from kwire.replication.log_dirs.cleanable import segments_between
from kwire.replication.log_dirs.cleaner_filter import (
    RECORDS_A_STEP,
    UNITS_A_RECORD,
    BatchFilter,
    CleanedTransactions,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from kwire.replication.log.log import Log
    from kwire.replication.log_dirs.cleanable import LogToClean

_Kept = TypeVar("_Kept")

Cleaning = Generator[int | None, None, _Kept]
"""Steps: None, or the `Elsewhere` that may run on a thread before the next one."""

STEP_BYTES = 128 << 10
"""How much of a log one step reads."""
_RECORD_BYTES = 100
"""A record counts as so many bytes at least: its key and its place take as long to look at."""
_UNIT_BYTES = _RECORD_BYTES // UNITS_A_RECORD
_CHUNK_BYTES = 256 << 10
_KEY_BYTES_MAX = 32
MAP_ENTRY_BYTES = 150
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


class _Pace:
    """Ends a step after STEP_BYTES, or what takes as long."""

    __slots__ = ("_left_bytes",)

    def __init__(self) -> None:
        self._left_bytes = STEP_BYTES

    def has_spent(self, size: int) -> bool:
        """Count this; whether the step is to end."""
        self._left_bytes -= size
        if self._left_bytes > 0:
            return False
        self._left_bytes = STEP_BYTES
        return True

    def through(self, steps: Generator[int, None, _Kept]) -> Cleaning[_Kept]:
        """Take the steps of one batch, which may be millions of records; returns what they return."""
        while True:
            try:
                cost = next(steps)
            except StopIteration as done:
                outcome: _Kept = done.value
                return outcome
            if type(cost) is not int and cost > ELSEWHERE_UNITS:
                yield cost
            elif self.has_spent(cost * _UNIT_BYTES):
                yield None


def _cost(header: BatchHeader) -> int:
    """Of a batch but for what `_Pace.through` has counted."""
    return max(header.size, header.count % RECORDS_A_STEP * _RECORD_BYTES)


def clean(work: LogToClean, now_ms: int, entries_max: int) -> Cleaning[int]:
    """Clean a log, in steps of STEP_BYTES; returns the first offset not cleaned, -1 if dropped.

    OSError; KafkaError(CORRUPT_MESSAGE) at a damaged batch. Whatever ends it, the log is unchanged
    or cleaned in part. The watch begins with this call, not with the first step: the log may be
    deleted or truncated before that, too.
    """
    dirty = segments_between(work.log, work.first_dirty_offset, work.first_uncleanable_offset)
    return _clean(work, dirty, _Watch(work.log, dirty), now_ms, entries_max)


def _clean(
    work: LogToClean, dirty: list[LogSegment], watch: _Watch, now_ms: int, entries_max: int
) -> Cleaning[int]:
    log = work.log
    offset_map = OffsetMap(entries_max)
    if watch.has_changed:
        return -1
    for cost in _build_offset_map(work, dirty, offset_map):
        yield cost
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
            for cost in _clean_group(log, group, cleaned, offset_map, transactions, now_ms):
                yield cost
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


def _flush(cleaned: LogSegment) -> Cleaning[None]:
    """Flush a segment in the background; yield until that is done."""
    cleaned.seal()
    store = cleaned.store
    files = [store.open(path) for path in cleaned.paths if store.exists(path)]
    while any(file.flushed_size < file.size for file in files):
        for file in files:
            file.start_flush()
        yield None


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
) -> Cleaning[None]:
    """Map each key in the dirty part to its latest offset; end early if the map is full."""
    log, start = work.log, work.first_dirty_offset
    transactions = CleanedTransactions()
    transactions.add(log.aborted_transactions(start, work.first_uncleanable_offset))
    pace = _Pace()
    for number, segment in enumerate(dirty):
        relative = max(start - segment.base_offset, 0)
        position = segment.offset_index.position_for_offset(relative)
        for header, buffer in _batches(segment, position):
            mapped = _map_batch(header, buffer, start, transactions, offset_map)
            if not (yield from pace.through(mapped)):
                return
            if pace.has_spent(_cost(header)):
                yield None
        following = dirty[number + 1 :]
        next_base = following[0].base_offset if following else work.first_uncleanable_offset
        offset_map.latest_offset = max(offset_map.latest_offset, next_base - 1)


def _map_batch(
    header: BatchHeader,
    buffer: memoryview,
    start: int,
    transactions: CleanedTransactions,
    offset_map: OffsetMap,
) -> Generator[int, None, bool]:
    """Put a batch's keys into the map; returns False if it is full."""
    if header.is_control:
        transactions.on_control_batch(header, buffer)
    elif not transactions.on_batch(header):
        records = yield from records_in_parts(buffer, header)
        for number, (offset, _, key, _, _) in enumerate(records, 1):
            if key is not None and offset >= start:
                if offset_map.is_full:
                    return False
                offset_map.put(key, offset)
            if not number % RECORDS_A_STEP:
                yield RECORDS_A_STEP * UNITS_A_RECORD
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
) -> Cleaning[None]:
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
    pace = _Pace()
    for segment in group:
        end = log.segments.index(segment) + 1
        upper = log.segments[end].base_offset if end < len(log.segments) else log.log_end_offset
        transactions.add(log.aborted_transactions(segment.base_offset, upper))
        for header, buffer in _batches(segment, 0):
            kept = yield from pace.through(batch_filter.filter(header, buffer))
            if kept is not None:
                data, max_timestamp = kept
                cleaned.append(
                    [data],
                    len(data),
                    header.last_offset,
                    max_timestamp,
                    config.index_interval_bytes,
                )
            if pace.has_spent(_cost(header)):
                yield None
    yield from _flush(cleaned)
