"""Rebuild a log's producer state from what is stored: the latest snapshot, then later batches.

Answers to UnifiedLog.rebuildProducerState and LogSegment.updateProducerState of Kafka 3.9.
"""

from __future__ import annotations

from kwire.protocol.records import (
    BatchHeader,
    ControlMarker,
    iter_records,
    parse_control_record,
)
from kwire.replication.log.types import AppendOrigin

TYPE_CHECKING = False
if TYPE_CHECKING:
    from kwire.replication.log.producer_state import ProducerStateManager
    from kwire.replication.log.segment import LogSegment


def marker_of(buffer: memoryview, header: BatchHeader) -> ControlMarker | None:
    """The marker in the control batch at the buffer's start; None if compaction has emptied it."""
    for record in iter_records(buffer, header._replace(position=0)):
        return parse_control_record(record)
    return None


def update_producer_state(
    producers: ProducerStateManager,
    header: BatchHeader,
    data: memoryview,
    segment: LogSegment | None,
) -> None:
    """Apply a stored batch (LogSegment.updateProducerState); rebuild `segment`'s txn index."""
    if header.producer_id < 0:
        return
    marker = marker_of(data, header) if header.is_control else None
    completed = producers.append(header, header.base_offset, AppendOrigin.REPLICATION, marker)
    if completed is None:
        return
    if segment is not None:
        segment.update_txn_index(completed, producers)
    else:
        producers.complete_txn(completed)


def rebuild_producer_state(
    producers: ProducerStateManager,
    segments: list[LogSegment],
    log_start_offset: int,
    log_end_offset: int,
    *,
    wall_ms: int,
    clean: bool = False,
    snapshot: bool = True,
) -> None:
    """Rebuild producer state up to `log_end_offset`: latest snapshot, then later batch headers.

    No snapshot after a clean shutdown means no producers: write an empty one, without a scan.
    """
    if clean and producers.latest_snapshot_offset() is None:
        if log_end_offset > 0:
            producers.map_end_offset = log_end_offset
            producers.take_snapshot(flush=False)
        return
    was_empty = (
        not producers.producers
        and producers.first_unstable_offset
        is None  # an expired producer may have an open transaction
        and producers.map_end_offset >= log_end_offset > 0
    )
    producers.truncate_and_reload(log_start_offset, log_end_offset, wall_ms)
    if producers.map_end_offset < log_end_offset and not was_empty:
        for number, segment in enumerate(segments):
            if number + 1 < len(segments) and (
                segments[number + 1].base_offset <= producers.map_end_offset
            ):
                continue
            if segment.base_offset >= log_end_offset:
                break
            _replay_segment(producers, segment, log_end_offset)
    producers.map_end_offset = log_end_offset
    if snapshot:
        producers.take_snapshot(flush=False)


def _replay_segment(
    producers: ProducerStateManager, segment: LogSegment, log_end_offset: int
) -> None:
    start = segment.offset_index.position_for_offset(
        max(producers.map_end_offset - segment.base_offset, 0)
    )
    for header in segment.batches(start):
        if header.base_offset >= log_end_offset:
            break
        if header.base_offset < producers.map_end_offset:
            continue
        if header.producer_id >= 0:
            data = memoryview(segment.read_batch(header)) if header.is_control else memoryview(b"")
            update_producer_state(producers, header, data, None)
