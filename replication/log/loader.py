"""Create a partition's log, or load it from its directory.

Answers to kafka.log.LogLoader of Kafka 3.9. After a clean shutdown the files are trusted: a few small
reads a partition. After an unclean one, or where indexes are missing, recovery.py checks them.

Invariants: as log.py; no `.deleted`, `.cleaned`, `.swap` file; no index without a segment.
"""

from __future__ import annotations

from collections.abc import Callable

from kwire.protocol.language.primitives import ZERO_UUID
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

TYPE_CHECKING = False
if TYPE_CHECKING:
    from kwire.replication.core.clock import Clock, Timers
    from kwire.replication.core.events import EventType, LogEvent
    from kwire.replication.core.log_store import LogStore
    from kwire.replication.log.recovery import LogRecovery

_INDEX_SUFFIXES = (".index", ".timeindex", ".txnindex")


class LogContext:
    """The clock, store and settings shared by all logs of a directory."""

    __slots__ = (
        "clock",
        "log_event",
        "on_failure",
        "producer_id_expiration_ms",
        "store",
        "timers",
    )

    def __init__(
        self,
        store: LogStore,
        clock: Clock,
        timers: Timers,
        *,
        producer_id_expiration_ms: int = 24 * 3600 * 1000,
        log_event: LogEvent = ignore,
        on_failure: Callable[[str], None] | None = None,
    ) -> None:
        """`on_failure` is called with every store error of a log after it was opened."""
        self.on_failure = on_failure
        self.store = store
        self.clock = clock
        self.timers = timers
        self.producer_id_expiration_ms = producer_id_expiration_ms
        self.log_event = log_event

    def producers(self, directory: str) -> ProducerStateManager:
        return ProducerStateManager(
            self.store,
            directory,
            self.clock,
            producer_id_expiration_ms=self.producer_id_expiration_ms,
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
    return LogLoader(
        context, directory, topic, partition, config, clean, recovery_point, log_start_offset
    ).load()


class LogLoader:
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
        self.epochs = LeaderEpochCache(context.store, directory)
        self.is_of_unknown_topic = False  # its partition.metadata was damaged
        self._recovery: LogRecovery | None = None

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
            self.recovery().recover_unflushed()
        log_end_offset = self.end_offset()
        if not self.clean:
            self.recovery().restore_epochs()
            self.epochs.is_flushed = not self.epochs.entries  # the process may have been killed
        start_offset = max(self.log_start_offset, self.segments[0].base_offset)
        # In this order: it removes all old epochs of an empty log that a power cut brought back.
        self.epochs.truncate_from_start(start_offset)
        self.epochs.truncate_from_end(log_end_offset)
        return self.make_log(topic_id, start_offset, log_end_offset)

    def make_log(self, topic_id: bytes, start_offset: int, log_end_offset: int) -> Log:
        """The log of the opened segments, with the state of its producers."""
        producers = self.context.producers(self.directory)
        producers.remove_stray_snapshots(segment.base_offset for segment in self.segments)
        from kwire.replication.log.producer_replay import rebuild_producer_state

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

    def recovery(self) -> LogRecovery:
        """What most starts do not need."""
        if self._recovery is None:
            from kwire.replication.log.recovery import LogRecovery

            self._recovery = LogRecovery(self)
        return self._recovery

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
                    self.recovery().rebuild_indexes(segment)

    def is_unflushed(self, segment: LogSegment) -> bool:
        return not self.clean and segment.base_offset >= self.recovery_point

    def indexes_are_sane(self, segment: LogSegment) -> bool:
        return (
            segment.offset_index.is_sane()
            and segment.time_index.is_sane()
            and segment.txn_index.is_sane(segment.base_offset)
        )

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
