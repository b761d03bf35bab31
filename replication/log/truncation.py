"""Where a follower's log leaves its leader's, and how it is cut there; appending what a leader sent.

Answers to getOffsetTruncationState of kafka.server.AbstractFetcherThread (KIP-101, KIP-279, KIP-595) and to
Partition.appendRecordsToFollowerOrFutureReplica. Functions of a log; who calls them tells waiting readers.

Invariant: a log is cut by epochs. The high watermark is where to cut only when there are no epochs at all: it may lag
behind what has been acknowledged.
"""

from __future__ import annotations

from typing import NamedTuple

from kwire.replication.log.types import UnexpectedAppendOffset

TYPE_CHECKING = False
if TYPE_CHECKING:
    from kwire.replication.core.outbox import Buffer
    from kwire.replication.log.log import Log, LogAppendInfo


class TruncationPoint(NamedTuple):
    """Cut to `offset`; unless `completed` the leader has to be asked again, with what is then the last epoch."""

    offset: int
    completed: bool
    why: str


class TruncationEvent(NamedTuple):
    """A follower's log was cut. `at_ms`: Clock.now_ms."""

    at_ms: int
    topic: str
    partition: int
    from_offset: int
    to_offset: int
    high_watermark: int
    """Before the cut: a `to_offset` below it is legal, but worth a look (unclean elections)."""
    why: str


def truncation_point(log: Log, epoch: int, end_offset: int, initial_offset: int) -> TruncationPoint:
    """Where to cut when the leader says: the largest epoch up to your last one is `epoch`, it ends at `end_offset`.

    `initial_offset`: where fetching was to begin, the high watermark when the log has no epochs.
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
    """Appends what the leader of `leader_epoch` sent; see Log.append_as_follower for the errors.

    An empty log whose start lies within the first batch (the leader deleted records up to there) begins again where
    that batch does. Any other batch from before the log end is refused.
    """
    try:
        return log.append_as_follower(records, leader_epoch)
    except UnexpectedAppendOffset as error:
        log_end = log.log_end_offset
        if log_end != log.log_start_offset or not error.first_offset < log_end <= error.last_offset:
            raise
        log.truncate_fully_and_start_at(error.first_offset)
        return log.append_as_follower(records, leader_epoch)


def take_over_offsets(log: Log, high_watermark: int, log_start_offset: int) -> bool:
    """The leader's high watermark, as far as this log reaches, also when it is lower; its log start, when it is higher.

    True if the high watermark changed. Segments before the log start go with the next retention run, as in Kafka.
    """
    before = log.high_watermark
    log_start_offset = min(log_start_offset, log.log_end_offset)
    target = min(max(high_watermark, log_start_offset, log.log_start_offset), log.log_end_offset)
    if target != before:
        log.update_high_watermark(target)
    if log_start_offset > log.log_start_offset:
        log.maybe_increment_log_start_offset(log_start_offset)
    return target != before
