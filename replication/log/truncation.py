"""Follower side of a log: truncation point by leader epoch, replicated appends, leader's offsets.

Answers to getOffsetTruncationState of kafka.server.AbstractFetcherThread (KIP-101, KIP-279,
KIP-595) and to Partition.appendRecordsToFollowerOrFutureReplica. Callers complete waiting fetches.

Invariant: truncation goes by epochs. Only a log without any epoch is truncated to the high
watermark, which may lag behind acknowledged records.
"""

from __future__ import annotations

from typing import NamedTuple

from kwire.replication.log.types import UnexpectedAppendOffset

TYPE_CHECKING = False
if TYPE_CHECKING:
    from kwire.replication.core.outbox import Buffer
    from kwire.replication.log.log import Log, LogAppendInfo


class TruncationPoint(NamedTuple):
    """Truncate to `offset`; unless `completed`, ask the leader again with the then latest epoch."""

    offset: int
    completed: bool
    why: str


class TruncationEvent(NamedTuple):
    """A truncation of a follower's log. `at_ms`: Clock.now_ms."""

    at_ms: int
    topic: str
    partition: int
    from_offset: int
    to_offset: int
    high_watermark: int
    """Before the truncation. A lower `to_offset` is legal but suspicious (unclean elections)."""
    why: str


def truncation_point(log: Log, epoch: int, end_offset: int, initial_offset: int) -> TruncationPoint:
    """The truncation point for a leader's OffsetsForLeaderEpoch answer (`epoch`, `end_offset`).

    `initial_offset`: the first offset to fetch; the high watermark for a log without epochs.
    """
    log_end = log.log_end_offset
    answer = f"the leader's epoch {epoch} ends at {end_offset}"
    if end_offset < 0:
        return TruncationPoint(initial_offset, True, "the leader knows none of our epochs")
    if epoch < 0:
        return TruncationPoint(min(end_offset, log_end), True, f"the leader ends at {end_offset}")
    local_epoch, local_end = log.end_offset_for_epoch(epoch)
    if local_end < 0:
        return TruncationPoint(min(end_offset, log_end), True, answer)
    if local_epoch != epoch:
        why = f"{answer}, which we do not know; our epoch {local_epoch} ends at {local_end}"
        return TruncationPoint(min(local_end, log_end), False, why)
    return TruncationPoint(min(local_end, end_offset, log_end), True, answer)


def append_replicated(log: Log, records: Buffer, leader_epoch: int) -> LogAppendInfo:
    """Append records fetched from the leader of `leader_epoch`; errors as Log.append_as_follower.

    An empty log whose start lies within the first batch (the leader deleted records up to there)
    restarts at that batch's base offset. Any other batch below the log end is refused.
    """
    try:
        return log.append_as_follower(records, leader_epoch)
    except UnexpectedAppendOffset as error:
        log_end = log.log_end_offset
        if log_end != log.log_start_offset or not error.first_offset < log_end <= error.last_offset:
            raise
        log.truncate_fully_and_start_at(error.first_offset)
        return log.append_as_follower(records, leader_epoch)


def apply_leader_offsets(log: Log, high_watermark: int, log_start_offset: int) -> bool:
    """Apply the leader's high watermark (even a lower one) and log start (only a higher one).

    Both are limited by this log's end. Returns whether the high watermark changed. The next
    retention run deletes segments below the log start, as in Kafka.
    """
    before = log.high_watermark
    log_start_offset = min(log_start_offset, log.log_end_offset)
    target = min(max(high_watermark, log_start_offset, log.log_start_offset), log.log_end_offset)
    if target != before:
        log.update_high_watermark(target)
    if log_start_offset > log.log_start_offset:
        log.maybe_increment_log_start_offset(log_start_offset)
    return target != before
