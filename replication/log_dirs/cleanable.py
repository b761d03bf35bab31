"""The part of a compacted log that the cleaner may clean, and when a log is due.

Answers to kafka.log.LogCleanerManager.cleanableOffsets and LogToClean of Kafka 3.9 (KIP-58:
compaction lag, KIP-354: its upper bound).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import NamedTuple

from kwire.replication.core.metadata import INTERNAL_TOPICS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from kwire.replication.log.log import Log
    from kwire.replication.log.segment import LogSegment
    from kwire.replication.log_dirs.manager import LogManager


class LogToClean(NamedTuple):
    """The clean, dirty and uncleanable part of a log."""

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


def find_cleanable(log: Log, checkpoint: int | None, now_ms: int) -> LogToClean:
    """The cleanable part of a log that is clean below `checkpoint` (cleanableOffsets)."""
    first_dirty = log.log_start_offset if checkpoint is None else checkpoint
    if not log.log_start_offset <= first_dirty <= log.log_end_offset:
        first_dirty = log.log_start_offset  # truncated, or a new log start: all is dirty
    config = log.config
    uncleanable = min(log.last_stable_offset, log.active.base_offset)
    dirty = segments_between(log, first_dirty, log.active.base_offset)
    if config.min_compaction_lag_ms > 0:
        for segment in dirty:
            if segment.largest_timestamp() > now_ms - config.min_compaction_lag_ms:
                uncleanable = min(uncleanable, segment.base_offset)
                break
    uncleanable = max(uncleanable, first_dirty)
    # Whole segments only, without the one that holds the bound.
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


def roll_active(manager: LogManager) -> None:
    """Roll the active segments whose records could be cleaned but for being in them.

    Kafka leaves them until an append rolls them (segment.ms, segment.bytes)."""
    for log in manager.logs():
        if not log.config.compact or not log.active.size or log.topic in INTERNAL_TOPICS:
            continue
        lag_ms = log.config.min_compaction_lag_ms
        if not lag_ms or log.active.largest_timestamp() <= manager.clock.wall_ms - lag_ms:
            log.roll()
