"""Recovery of a log after an unclean shutdown, and of segments whose indexes are missing or damaged.

Answers to LogLoader.recoverLog and LogSegment.recover of Kafka 3.9. Reads every batch from the recovery
point on (CRC, offsets), rebuilds indexes and producer state, truncates at the first bad batch, deletes
later segments, and reports that as events.
"""

from __future__ import annotations

from collections.abc import Iterator

from fastcrc.crc32 import iscsi as crc32c

from kwire.protocol.records import (
    ATTRIBUTES_POSITION,
    HEADER,
    HEADER_SIZE,
    BatchHeader,
    header_of,
)
from kwire.protocol.varint import INT32_MAX, INT64_MAX
from kwire.replication.core.events import Event
from kwire.replication.log.producer_replay import rebuild_producer_state, update_producer_state

TYPE_CHECKING = False
if TYPE_CHECKING:
    from kwire.replication.log.loader import LogLoader
    from kwire.replication.log.segment import LogSegment

_CHUNK_BYTES = 1 << 20


class LogRecovery:
    """Recovers one log. `segments` and `epochs` are the loader's, and change with it."""

    __slots__ = (
        "config",
        "context",
        "directory",
        "epochs",
        "flushed_until",
        "log_event",
        "log_start_offset",
        "recovery_point",
        "segments",
        "truncated",
    )

    def __init__(self, loader: LogLoader) -> None:
        self.context = loader.context
        self.directory = loader.directory
        self.config = loader.config
        self.segments = loader.segments
        self.epochs = loader.epochs
        self.recovery_point = loader.recovery_point
        self.flushed_until = INT64_MAX if loader.clean else loader.recovery_point
        self.log_start_offset = loader.log_start_offset
        self.log_event = loader.log_event
        self.truncated: set[LogSegment] = set()  # when their indexes were rebuilt

    def rebuild_indexes(self, segment: LogSegment) -> None:
        """Rebuild the indexes of the segment that was opened last.

        Indexes are not flushed with their segment, its records are. So a batch whose checksum is wrong stays
        for the readers to find, as beside a good index: nothing is lost but that batch. (Kafka, which
        flushes both, cuts the segment there, and keeps those behind it.)"""
        if self.recover_segment(segment, self.segments[:-1], trusted_until=self.flushed_until):
            self.truncated.add(segment)

    def recover_unflushed(self) -> None:
        """Recover the segments that may not be flushed, from the one with the recovery point on."""
        segments = self.segments
        first = 0
        for number, segment in enumerate(segments):
            if segment.base_offset <= self.recovery_point:
                first = number
        for number in range(first, len(segments)):
            segment = segments[number]
            is_active = number + 1 == len(segments)
            is_truncated = (
                self.recover_segment(segment, segments[:number], is_active=is_active)
                or segment in self.truncated
            )
            if is_truncated and number + 1 < len(segments):
                doomed = segments[number + 1 :]
                del segments[number + 1 :]
                self.log_event(
                    Event.RECOVERY_DELETED_SEGMENTS,
                    segments=len(doomed),
                    offset=doomed[0].base_offset,
                    segment=segment.base_offset,
                )
                for late in doomed:
                    late.delete_files()
                return

    def recover_segment(
        self,
        segment: LogSegment,
        before: list[LogSegment],
        *,
        is_active: bool = False,
        trusted_until: int = 0,
    ) -> int:
        """Check batches, rebuild indexes, truncate at the first bad batch; return bytes removed.

        Below `trusted_until` checksums are not checked. The active segment's indexes are written when it is
        rolled, flushed or closed."""
        producers = self.context.producers(self.directory)
        rebuild_producer_state(
            producers,
            [*before, segment],
            self.log_start_offset,
            segment.base_offset,
            wall_ms=self.context.clock.wall_ms,
            snapshot=False,
        )
        segment.reset_indexes()
        end, reason, last_offset = 0, "", segment.base_offset - 1
        for header, data, reason in scan_batches(segment, trusted_until):
            if reason:
                break
            if header.last_offset <= last_offset or header.base_offset <= last_offset:
                reason = f"offset {header.base_offset} is not above {last_offset}"
                break
            last_offset = header.last_offset
            end = header.position + header.size
            segment.index_recovered(header, self.config.index_interval_bytes)
            epoch = header.partition_leader_epoch
            if epoch > self.epochs.latest_epoch:
                self.epochs.assign(epoch, header.base_offset)
            update_producer_state(producers, header, data, segment)
            producers.map_end_offset = header.next_offset
        producers.take_snapshot(flush=False)
        removed = segment.size - end
        if removed:
            self._cut(segment, end, last_offset + 1, reason or "the last batch is not whole")
        if is_active:
            segment.index_largest_timestamp()
        else:
            segment.seal()
        return removed

    def _cut(self, segment: LogSegment, end: int, log_end_offset: int, why: str) -> None:
        """Truncate a segment's file to `end` bytes."""
        self.log_event(
            Event.RECOVERY_TRUNCATED,
            size_bytes=segment.size - end,
            segment=segment.base_offset,
            position=end,
            log_end_offset=log_end_offset,
            detail=why,
        )
        segment.truncate_file(end)

    def restore_epochs(self) -> None:
        """Rebuild the epoch cache from the batches, or remove the entries that they contradict.

        The first epoch of an empty log and truncations are not flushed. After a power cut the first
        epoch may be missing or one from before a full truncation, and a removed epoch may be back
        at an offset where an earlier epoch's batches are now. (A batch of a later epoch contradicts
        nothing: compaction may have removed the epoch's own batches.)
        """
        first = next((batch for segment in self.segments for batch in segment.batches(0)), None)
        if first is None:
            return
        if self.epochs.epoch_for_offset(
            max(first.base_offset, self.log_start_offset)
        ) == self.epoch_at_or_after(self.log_start_offset, first):
            for epoch, start_offset in self.epochs.entries:
                if self.epoch_at_or_after(start_offset, first) < epoch:
                    self.epochs.truncate_from_end(start_offset)
                    break
            return
        self.epochs.clear()
        for segment in self.segments:
            for batch in segment.batches(0):
                if batch.partition_leader_epoch > self.epochs.latest_epoch:
                    self.epochs.assign(batch.partition_leader_epoch, batch.base_offset)

    def epoch_at_or_after(self, offset: int, first: BatchHeader) -> int:
        """The epoch of the batch at or after an offset."""
        if offset <= first.last_offset:
            return first.partition_leader_epoch
        for segment in reversed(self.segments):
            if segment.base_offset <= offset and (batch := segment.find_batch(offset)) is not None:
                return batch.partition_leader_epoch
        return self.epochs.epoch_for_offset(offset)


def scan_batches(
    segment: LogSegment, trusted_until: int = 0
) -> Iterator[tuple[BatchHeader, memoryview, str]]:
    """Yield batches as (header, bytes, error), up to the first with an error ("" if valid)."""
    file, size, position = segment.file, segment.size, 0
    chunk, chunk_start = memoryview(b""), 0
    while position < size:
        at = position - chunk_start
        if at + HEADER_SIZE > len(chunk) and chunk_start + len(chunk) < size:
            chunk, chunk_start, at = memoryview(file.read(position, _CHUNK_BYTES)), position, 0
        if at + HEADER_SIZE > len(chunk):
            yield _NO_HEADER, chunk[at:], "it ends within a batch header"
            return
        header = header_of(HEADER.unpack_from(chunk, at), position)
        if header.size > len(chunk) - at and position + header.size <= size:
            chunk_start, at = position, 0
            chunk = memoryview(file.read(position, max(header.size, _CHUNK_BYTES)))
        data = chunk[at : at + header.size] if header.size > 0 else chunk[:0]
        reason = _batch_error(segment, header, data, header.base_offset >= trusted_until)
        yield header, data, reason
        if reason:
            return
        position += header.size


_NO_HEADER = BatchHeader(0, -1, 0, -1, -1, 0, 0, 0, -1, -1, -1, -1, -1, 0)


def _batch_error(
    segment: LogSegment, header: BatchHeader, data: memoryview, checks_crc: bool
) -> str:
    if header.size < HEADER_SIZE:
        return f"a batch of {header.size} bytes is smaller than its header"
    if len(data) < header.size:
        return f"the file ends within a batch of {header.size} bytes"
    if header.magic != 2:
        return f"magic {header.magic} instead of 2"
    if checks_crc and crc32c(data[ATTRIBUTES_POSITION:]) != header.crc:
        return f"the checksum of the batch at offset {header.base_offset} is wrong"
    relative = header.base_offset - segment.base_offset
    if relative < 0 or header.last_offset_delta < 0:
        return f"offsets {header.base_offset} to {header.last_offset} are out of order"
    if relative + header.last_offset_delta > INT32_MAX:
        return f"offset {header.last_offset} is too far from the segment's base"
    return ""
