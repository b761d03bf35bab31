"""Look-ups of offsets by timestamp or special value, for ListOffsets.

Answers to Partition.fetchOffsetForTimestamp and legacyFetchOffsetsForTimestamp of Kafka 3.9. The
functions do not change the partition. Leaves out tiered storage: its offsets are answered as -1.
"""

from __future__ import annotations

from typing import Final

from kwire.protocol.errors import ErrorCode, KafkaError
from kwire.replication.replica.fetch_data import READ_COMMITTED

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Generator

    from kwire.replication.replica.partition import Partition

LATEST_TIMESTAMP: Final = -1
EARLIEST_TIMESTAMP: Final = -2
MAX_TIMESTAMP: Final = -3
EARLIEST_LOCAL_TIMESTAMP: Final = -4
LATEST_TIERED_TIMESTAMP: Final = -5
EARLIEST_PENDING_UPLOAD_TIMESTAMP: Final = -6


def offset_for_timestamp(
    partition: Partition,
    timestamp: int,
    isolation_level: int | None,
    current_leader_epoch: int,
    require_leader: bool,
) -> Generator[int, None, tuple[int, int, int] | None]:
    """Steps that return (offset, timestamp, leader epoch) for a time in Unix ms or a special value, or None.

    A special value but for MAX_TIMESTAMP is found without a step.
    `isolation_level` None: for a replica, which may read to the log end. OFFSET_NOT_AVAILABLE: a
    new leader's high watermark has not reached the start of its epoch, so the latest offset is
    unknown (KIP-207).
    """
    partition.check_leader_epoch(current_leader_epoch, require_leader)
    log = partition.log
    if isolation_level is None:
        bound = log.log_end_offset
    elif isolation_level == READ_COMMITTED:
        bound = log.last_stable_offset
    else:
        bound = log.high_watermark
    lagging = (
        isolation_level is not None and partition.leader_epoch_start_offset > log.high_watermark
    )
    if timestamp == LATEST_TIMESTAMP:
        if lagging:
            raise KafkaError(ErrorCode.OFFSET_NOT_AVAILABLE)
        return bound, -1, partition.leader_epoch
    if timestamp in (EARLIEST_TIMESTAMP, EARLIEST_LOCAL_TIMESTAMP):
        start_offset = log.log_start_offset
        return start_offset, -1, log.leader_epochs.epoch_for_offset(start_offset)
    if timestamp in (LATEST_TIERED_TIMESTAMP, EARLIEST_PENDING_UPLOAD_TIMESTAMP):
        return -1, -1, -1
    found = yield from (
        log.max_timestamp_offset(bound)
        if timestamp == MAX_TIMESTAMP
        else log.offset_by_timestamp(timestamp, bound)
    )
    if found is not None and found.offset < bound:
        return found.offset, found.timestamp, found.leader_epoch
    if lagging:
        raise KafkaError(ErrorCode.OFFSET_NOT_AVAILABLE)
    return None


def segment_offsets(
    partition: Partition, timestamp: int, count: int, for_consumer: bool, wall_ms: int
) -> list[int]:
    """Return up to `count` base offsets of segments and the end, latest first (ListOffsets v0).

    `timestamp`: only segments up to that Unix ms; -1: all; -2: the first. Kafka compares with the
    modification time of a segment's file, this with its largest timestamp. `wall_ms`: now.
    """
    log = partition.log
    limit = log.high_watermark if for_consumer else log.log_end_offset
    marks = [
        (
            max(segment.base_offset, log.log_start_offset),
            segment.largest_timestamp() if segment.size else segment.created_ms,
        )
        for segment in log.segments
    ]
    if log.segments[-1].size:
        marks.append((log.log_end_offset, wall_ms))
    if timestamp == EARLIEST_TIMESTAMP:
        marks = marks[:1]
    elif timestamp != LATEST_TIMESTAMP:
        marks = [mark for mark in marks if mark[1] <= timestamp]
    offsets = [mark[0] for mark in reversed(marks)]
    if any(offset > limit for offset in offsets):
        offsets = [limit, *(offset for offset in offsets if offset <= limit)]
    return list(dict.fromkeys(offsets))[: max(count, 0)]
