"""Delete old segments of a log by log start offset, retention.bytes and retention.ms.

Answers to UnifiedLog.deleteOldSegments and deletableSegments of Kafka 3.9. From the oldest on:
segments that end at or below the log start; then, if cleanup.policy has "delete", those beyond
retention.bytes, then those older than retention.ms. Each round stops at the first segment to keep:
a log has no holes.

Invariant: a segment is deleted only if the high watermark is at or above its end; the active one
only if it has records.
"""

from __future__ import annotations

from itertools import islice

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from kwire.replication.log.log import Log
    from kwire.replication.log.segment import LogSegment


def delete_old_segments(log: Log, limit: int) -> int:
    """Delete at most `limit` segments that retention does not keep; return how many. OSError."""
    config = log.config
    deleted = _delete_while(
        log,
        limit,
        lambda _, end: end <= log.log_start_offset,
        "log_start_offset",
        "they are below the log start offset",
        may_take_active=False,
    )
    if not config.delete:
        return deleted
    if config.retention_bytes >= 0:
        deleted += _delete_while(
            log,
            limit - deleted,
            _is_excess(log, config.retention_bytes),
            "retention_bytes",
            f"the log is larger than retention.bytes={config.retention_bytes}",
        )
    if config.retention_ms >= 0:
        oldest_ms = log.clock.wall_ms - config.retention_ms
        deleted += _delete_while(
            log,
            limit - deleted,
            lambda segment, _: segment.largest_timestamp() < oldest_ms,
            "retention_ms",
            f"they are older than retention.ms={config.retention_ms}",
        )
    return deleted


def _is_excess(log: Log, retention_bytes: int) -> Callable[[LogSegment, int], bool]:
    excess = log.size_bytes - retention_bytes

    def is_excess(segment: LogSegment, _: int) -> bool:
        nonlocal excess
        if excess < segment.size:
            return False
        excess -= segment.size
        return True

    return is_excess


def _delete_while(
    log: Log,
    limit: int,
    is_deletable: Callable[[LogSegment, int], bool],
    reason: str,
    detail: str,
    *,
    may_take_active: bool = True,
) -> int:
    """Delete from the oldest segment on while `is_deletable(segment, its end offset)`, up to `limit`."""
    segments, count = log.segments, 0
    for number, segment in enumerate(islice(segments, limit)):
        is_active = number + 1 == len(segments)
        end = log.log_end_offset if is_active else segments[number + 1].base_offset
        if is_active and (segment.size == 0 or not may_take_active):
            break
        if log.high_watermark < end or not is_deletable(segment, end):
            break
        count += 1
    if count:
        log.delete_oldest(count, reason, detail)
    return count
