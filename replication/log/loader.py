"""Create a partition's log, or load it from its directory, with recovery after an unclean shutdown.

Answers to kafka.log.LogLoader, LogSegment.recover and UnifiedLog.rebuildProducerState of Kafka 3.9.
After a clean shutdown the files are trusted: a few small reads a partition. After an unclean one
recovery reads every batch from the recovery point on (CRC, offsets), rebuilds indexes and producer
state, truncates at the first bad batch, deletes later segments, and reports that as events.

Invariants: as log.py; no `.deleted`, `.cleaned`, `.swap` file; no index without a segment.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from fastcrc.crc32 import iscsi as crc32c

from kwire.protocol.language.primitives import ZERO_UUID
from kwire.protocol.records import (
    ATTRIBUTES_POSITION,
    HEADER,
    HEADER_SIZE,
    BatchHeader,
    ControlMarker,
    header_of,
    iter_records,
    parse_control_record,
)
from kwire.protocol.varint import INT32_MAX
from kwire.replication.core.events import Event, ignore
from kwire.replication.core.log_config import LogConfig
from kwire.replication.log.checkpoints import (
    PARTITION_METADATA,
    CorruptCheckpoint,
    format_partition_metadata,
    read_topic_id,
)
from kwire.replication.log.leader_epochs import LeaderEpochCache
from kwire.replication.log.log import Log
from kwire.replication.log.producer_state import ProducerStateManager
from kwire.replication.log.segment import LogSegment, base_offset_of
from kwire.replication.log.types import AppendOrigin

TYPE_CHECKING = False
if TYPE_CHECKING:
    from kwire.replication.core.clock import Clock, Timers
    from kwire.replication.core.events import EventType, LogEvent
    from kwire.replication.core.log_store import LogStore

_INDEX_SUFFIXES = (".index", ".timeindex", ".txnindex")
_CHUNK_BYTES = 1 << 20


class LogContext:
    """The clock, store and settings shared by all logs of a directory."""

    __slots__ = (
        "clock",
        "log_event",
        "on_failure",
        "producer_id_expiration_ms",
        "store",
        "timers",
        "transaction_verification_enabled",
    )

    def __init__(
        self,
        store: LogStore,
        clock: Clock,
        timers: Timers,
        *,
        producer_id_expiration_ms: int = 24 * 3600 * 1000,
        transaction_verification_enabled: bool = False,
        log_event: LogEvent = ignore,
        on_failure: Callable[[str], None] | None = None,
    ) -> None:
        """`on_failure` is called with every store error of a log after it was opened."""
        self.on_failure = on_failure
        self.store = store
        self.clock = clock
        self.timers = timers
        self.producer_id_expiration_ms = producer_id_expiration_ms
        self.transaction_verification_enabled = transaction_verification_enabled
        self.log_event = log_event

    def producers(self, directory: str) -> ProducerStateManager:
        return ProducerStateManager(
            self.store,
            directory,
            self.clock,
            producer_id_expiration_ms=self.producer_id_expiration_ms,
            transaction_verification_enabled=self.transaction_verification_enabled,
        )


def create_log(
    context: LogContext,
    topic: str,
    partition: int,
    topic_id: bytes,
    config: LogConfig,
    *,
    directory: str | None = None,
) -> Log:
    """Create an empty log at offset 0. A power cut before its first append may lose it."""
    store, directory = context.store, directory or f"{topic}-{partition}"
    store.make_dir(directory)
    if topic_id != ZERO_UUID:
        write_topic_id(store, directory, topic_id)
    segment = LogSegment.create(store, directory, 0, context.clock.wall_ms)
    return Log(
        store,
        directory,
        topic,
        partition,
        topic_id,
        config,
        context.clock,
        context.timers,
        [segment],
        LeaderEpochCache(store, directory),
        context.producers(directory),
        log_start_offset=0,
        log_end_offset=0,
        recovery_point=0,
        log_event=context.log_event,
        on_failure=context.on_failure,
    )


def write_topic_id(store: LogStore, directory: str, topic_id: bytes) -> None:
    """Write `partition.metadata`; `Log` flushes it later (PartitionMetadataFile.maybeFlush)."""
    path = f"{directory}/{PARTITION_METADATA}"
    store.write_file(path, format_partition_metadata(topic_id), flush=False)


def load_log(
    context: LogContext,
    directory: str,
    topic: str,
    partition: int,
    config: LogConfig,
    *,
    clean: bool,
    recovery_point: int = 0,
    log_start_offset: int = 0,
) -> Log:
    """Load the log in a partition's directory.

    `recovery_point` and `log_start_offset` come from the checkpoints (0: none). OSError if files
    cannot be read or no crash can explain them (a malformed leader-epoch-checkpoint).
    """
    return _Loader(
        context, directory, topic, partition, config, clean, recovery_point, log_start_offset
    ).load()


class _Loader:
    def __init__(
        self,
        context: LogContext,
        directory: str,
        topic: str,
        partition: int,
        config: LogConfig,
        clean: bool,
        recovery_point: int,
        log_start_offset: int,
    ) -> None:
        self.context = context
        self.store = context.store
        self.directory = directory
        self.topic = topic
        self.partition = partition
        self.config = config
        self.clean = clean
        self.recovery_point = recovery_point
        self.log_start_offset = log_start_offset
        self.segments: list[LogSegment] = []
        self.truncated: set[LogSegment] = set()  # when their indexes were rebuilt
        self.epochs = LeaderEpochCache(context.store, directory)
        self.is_of_unknown_topic = False  # its partition.metadata was damaged

    def log_event(self, event: EventType, **fields: object) -> None:
        """An event of this log, with the fields that name it."""
        log, topic, partition = self.directory, self.topic, self.partition
        self.context.log_event(event, log=log, topic=topic, partition=partition, **fields)

    def load(self) -> Log:
        names = self.list_files()
        present = set(names)
        if "leader-epoch-checkpoint" in present:
            self.epochs.load()
        topic_id = self.topic_id() if PARTITION_METADATA in present else ZERO_UUID
        self.open_segments(names, present)
        if self.is_of_unknown_topic:
            self.remove_unflushed()
        if not self.clean:
            self.recover_unflushed()
        log_end_offset = self.end_offset()
        if not self.clean:
            self.restore_epochs()
            self.epochs.is_flushed = not self.epochs.entries  # the process may have been killed
        start_offset = max(self.log_start_offset, self.segments[0].base_offset)
        # In this order: it removes all old epochs of an empty log that a power cut brought back.
        self.epochs.truncate_from_start(start_offset)
        self.epochs.truncate_from_end(log_end_offset)
        producers = self.context.producers(self.directory)
        producers.remove_stray_snapshots(segment.base_offset for segment in self.segments)
        rebuild_producer_state(
            producers,
            self.segments,
            start_offset,
            log_end_offset,
            wall_ms=self.context.clock.wall_ms,
            clean=self.clean,
        )
        return Log(
            self.store,
            self.directory,
            self.topic,
            self.partition,
            topic_id,
            self.config,
            self.context.clock,
            self.context.timers,
            self.segments,
            self.epochs,
            producers,
            log_start_offset=start_offset,
            log_end_offset=log_end_offset,
            recovery_point=log_end_offset
            if self.clean
            else min(self.recovery_point, log_end_offset),
            log_event=self.context.log_event,
            on_failure=self.context.on_failure,
        )

    def list_files(self) -> list[str]:
        """The names of the partition's files, without what an interrupted change has left."""
        from kwire.replication.log.leftovers import remove_leftovers

        names, replaced = remove_leftovers(self.store, self.directory)
        for file in replaced:
            self.log_event(Event.SEGMENT_REPLACED, file=file)
        return names

    def topic_id(self) -> bytes:
        try:
            return read_topic_id(self.store, self.directory) or ZERO_UUID
        except CorruptCheckpoint as error:
            # Written without a flush at creation: a power cut may leave it empty.
            self.log_event(Event.TOPIC_ID_IGNORED, detail=str(error.strerror))
            self.is_of_unknown_topic = True
            self.store.delete(f"{self.directory}/{PARTITION_METADATA}")
            return ZERO_UUID

    def remove_unflushed(self) -> None:
        """Empty a log whose topic id a power cut has taken before any flush of the log.

        Its records may be those of another topic of that name, and no flush was promised for them
        (LocalLog.start_topic_id_flush)."""
        if self.clean or self.recovery_point or not any(each.size for each in self.segments):
            return
        self.log_event(
            Event.RECOVERY_TRUNCATED,
            size_bytes=sum(segment.size for segment in self.segments),
            segment=self.segments[0].base_offset,
            position=0,
            log_end_offset=self.log_start_offset,
            detail="never flushed, and partition.metadata, which says whose records they are, is damaged",
        )
        self.remove_all()

    def remove_all(self) -> None:
        """Delete all segments, epochs and producers."""
        for segment in self.segments:
            segment.delete_files()
        self.segments.clear()
        self.epochs.clear()
        self.context.producers(self.directory).truncate_fully_and_start_at(self.log_start_offset)

    def open_segments(self, names: list[str], present: set[str]) -> None:
        """Open all segments in order, rebuild bad indexes (LogLoader.loadSegmentFiles)."""
        now_ms = self.context.clock.wall_ms
        for name in names:
            base_offset = base_offset_of(name)
            if base_offset is None:
                continue
            stem = name[:20]
            if name.endswith(_INDEX_SUFFIXES) and f"{stem}.log" not in present:
                self.log_event(Event.INDEX_DELETED, file=name)
                self.store.delete(f"{self.directory}/{name}")
            elif name == f"{stem}.log":
                segment = LogSegment.open(self.store, self.directory, base_offset, now_ms)
                self.segments.append(segment)
                if self.is_unflushed(segment):
                    continue  # recovery rebuilds its indexes anyway
                missing = f"{stem}.index" not in present or f"{stem}.timeindex" not in present
                if missing or not self.indexes_are_sane(segment):
                    reason = "missing" if missing else "damaged"
                    self.log_event(Event.INDEXES_REBUILT, file=name, reason=reason)
                    if self.recover_segment(segment, self.segments[:-1]):
                        self.truncated.add(segment)

    def is_unflushed(self, segment: LogSegment) -> bool:
        return not self.clean and segment.base_offset >= self.recovery_point

    def indexes_are_sane(self, segment: LogSegment) -> bool:
        return (
            segment.offset_index.is_sane()
            and segment.time_index.is_sane()
            and segment.txn_index.is_sane(segment.base_offset)
        )

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
        self, segment: LogSegment, before: list[LogSegment], *, is_active: bool = False
    ) -> int:
        """Check batches, rebuild indexes, truncate at the first bad batch; return bytes removed.

        The active segment's indexes are written when it is rolled, flushed or closed."""
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
        for header, data, reason in scan_batches(segment):
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
            self.log_event(
                Event.RECOVERY_TRUNCATED,
                size_bytes=removed,
                segment=segment.base_offset,
                position=end,
                log_end_offset=last_offset + 1,
                detail=reason or "the last batch is not whole",
            )
            segment.truncate_file(end)
        if is_active:
            segment.index_largest_timestamp()
        else:
            segment.seal()
        return removed

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

    def end_offset(self) -> int:
        """The log end; a log that ends below its start has lost its tail and restarts empty."""
        segments = self.segments
        if segments:
            last = segments[-1].load_tail()
            log_end_offset = last.next_offset if last is not None else segments[-1].base_offset
            if log_end_offset >= self.log_start_offset:
                return log_end_offset
            self.log_event(
                Event.RECOVERY_EMPTIED_LOG,
                log_end_offset=log_end_offset,
                log_start_offset=self.log_start_offset,
            )
            self.remove_all()
        segments.append(
            LogSegment.create(
                self.store, self.directory, self.log_start_offset, self.context.clock.wall_ms
            )
        )
        return self.log_start_offset


def scan_batches(segment: LogSegment) -> Iterator[tuple[BatchHeader, memoryview, str]]:
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
        reason = _batch_error(segment, header, data)
        yield header, data, reason
        if reason:
            return
        position += header.size


_NO_HEADER = BatchHeader(0, -1, 0, -1, -1, 0, 0, 0, -1, -1, -1, -1, -1, 0)


def _batch_error(segment: LogSegment, header: BatchHeader, data: memoryview) -> str:
    if header.size < HEADER_SIZE:
        return f"a batch of {header.size} bytes is smaller than its header"
    if len(data) < header.size:
        return f"the file ends within a batch of {header.size} bytes"
    if header.magic != 2:
        return f"magic {header.magic} instead of 2"
    if crc32c(data[ATTRIBUTES_POSITION:]) != header.crc:
        return f"the checksum of the batch at offset {header.base_offset} is wrong"
    relative = header.base_offset - segment.base_offset
    if relative < 0 or header.last_offset_delta < 0:
        return f"offsets {header.base_offset} to {header.last_offset} are out of order"
    if relative + header.last_offset_delta > INT32_MAX:
        return f"offset {header.last_offset} is too far from the segment's base"
    return ""


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
