"""Log starts and log directories: what is deleted may be deleted (I36), what is moved is whole (I37).

A log start moves because of DeleteRecords, because another replica had it before, or by retention:
then the limits of the topic, the clock of the broker and the sizes of the batches must give it.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from kwire.replication.log.log import Log
    from kwire.replication.replica.partition import Partition
    from kwire.sim.ghost import Entry, GhostLog, GhostPartition
    from kwire.sim.invariants import Invariants
    from kwire.sim.seen import Seen

_BATCH_BYTES_BEFORE_BODY = 21


def check_deletion(
    checker: Invariants, where: str, ghost: GhostPartition, log: GhostLog, new: Seen
) -> None:
    """I36, before the mirror's start moves to that of `new`."""
    start = new.log_start_offset
    if log.first_open < min(start, log.end):
        checker.counts["deleted within an open transaction"] += 1
    if start <= max(ghost.deleted_until, ghost.asked_to_delete):
        return
    removed = [entry for entry in log.entries if entry.next <= start]
    if not removed:
        return
    real = new.partition.log
    config, wall_ms = real.config, real.clock.wall_ms
    old_bytes = 0  # of the batches at the end that are too old
    while (
        removed
        and config.retention_ms >= 0
        and _newest_ms(removed[-1]) < wall_ms - config.retention_ms
    ):
        old_bytes += _size(removed.pop())
    if old_bytes:
        checker.counts["deleted by age"] += 1
    if not removed:
        return
    if 0 <= config.retention_bytes <= real.size_bytes + old_bytes:
        checker.counts["deleted by size"] += 1
        return
    checker.violated(
        "I36",
        f"{where}: {removed[0]} to {removed[-1]} are gone, {real.size_bytes} bytes are left; "
        f"retention.bytes={config.retention_bytes} retention.ms={config.retention_ms}",
    )


def _size(entry: Entry) -> int:
    return len(entry.body) + _BATCH_BYTES_BEFORE_BODY


def _newest_ms(entry: Entry) -> int:
    return int.from_bytes(entry.body[14:22], "big", signed=True)  # the batch's max timestamp


def check_move(
    checker: Invariants, where: str, before: GhostLog, after: GhostLog, new: Seen
) -> None:
    """I37: the log that takes the place of another, in another directory, has all of it."""
    checker.counts["logs moved"] += 1
    lost = [
        entry for entry in before.entries if entry.next > after.start and not after.holds(entry)
    ]
    if lost or after.end < before.end or after.start > max(before.start, new.high_watermark):
        checker.violated(
            "I37",
            f"{where} was [{before.start}, {before.end}), after its move [{after.start}, {after.end}) "
            f"without {lost[:3]}",
        )


def too_large(log: Log) -> bool:
    """Whether retention by size should delete the oldest segment."""
    limit = log.config.retention_bytes
    oldest = log.segments[0].size
    return log.config.delete and limit >= 0 and 0 < oldest <= log.size_bytes - limit


def late_retention(partition: Partition) -> str | None:
    """Why retention of a replica that is well has not done its work, or None."""
    log = partition.log
    if too_large(log):
        return f"{log.size_bytes} bytes are left, retention.bytes={log.config.retention_bytes}"
    return None
