"""Log compaction: keep the latest record of every key; runs in small steps between requests.

Answers to kafka.log.{LogCleaner,LogCleanerManager} and MemoryRecords.filterTo of Kafka 3.9 (KIP-58:
compaction lag, KIP-354: its upper bound, KIP-534: delete horizon). No throttle, and the file times
of old segments are not kept: they only matter for records without timestamps. cleaning.py is the
work on one log, cleaner_filter.py decides which records a batch keeps.

* A log is due when its dirty part (from the first offset never cleaned to the first uncleanable
  one) exceeds min.cleanable.dirty.ratio of the whole, or is older than max.compaction.lag.ms.
  Uncleanable: the active segment, unstable offsets, records younger than min.compaction.lag.ms.
* On request (compaction.py) a whole log is cleaned, due or not.
* The cleaner also runs retention of compacted logs ("compact,delete", or a log start that has
  moved): in every round, of all but the log in work, and of none if log.cleaner.enable is false.

A log that is moving to another directory is not cleaned: the part already copied would count as
clean there although it is not, and a deleted key's old value would outlive its tombstone.

Kafka cleans in its own threads. Here a cleaning is a generator that a timer advances by one piece
at a time; a large batch is compressed and decompressed on a thread, if the node has any.
"""

from __future__ import annotations

from kwire.protocol.errors import KafkaError
from kwire.replication.core.events import Event
from kwire.replication.log.checkpoints import CLEANER_OFFSETS, format_offsets, read_offsets
from kwire.replication.log_dirs.cleanable import LogToClean, find_cleanable, roll_active
from kwire.replication.log_dirs.cleaning import MAP_ENTRY_BYTES, clean
from kwire.replication.log_dirs.compaction import CompactionRequests

TYPE_CHECKING = False
if TYPE_CHECKING:
    from kwire.replication.core.events import EventType
    from kwire.replication.core.types import TopicPartition
    from kwire.replication.core.work import Steps
    from kwire.replication.log.log import Log
    from kwire.replication.log_dirs.cleaning import Cleaning
    from kwire.replication.log_dirs.manager import LogManager

_STEP_INTERVAL_MS = 1
_REQUEST_INTERVAL_MS = 2


class LogCleaner:
    """The cleaner of a log directory. `clean_logs` is what LogManager calls every log.cleaner.backoff.ms."""

    def __init__(self, dedupe_buffer_bytes: int = 128 << 20, *, rolls_active: bool = False) -> None:
        """`rolls_active`: roll the active segments of compacted topics before each round."""
        self.requests = CompactionRequests()
        self._rolls_active = rolls_active
        self._entries_max = max(dedupe_buffer_bytes // MAP_ENTRY_BYTES, 1)
        self._offsets: dict[TopicPartition, int] | None = None  # None: not read yet
        self._work: Cleaning[int] | None = None
        self._cleaning: LogToClean | None = None
        self._uncleanable: set[TopicPartition] = set()
        self._written: dict[str, bytes] = {}  # path of a directory → its checkpoint

    def clean_logs(self, manager: LogManager) -> Steps:
        """Start to clean the dirtiest log that is due; apply retention to the other compacted ones."""
        if self._rolls_active:
            roll_active(manager)
        if manager.removed:
            self._write_checkpoint(manager)
        if self._work is None:
            self._begin(manager)
        yield sum(len(directory.logs) for directory in manager.online())
        yield from self._delete_old_segments(manager)

    def request(self, manager: LogManager, log: Log) -> None:
        """Clean a log up to its present end as soon as that is committed; `requests` tells how far
        it is. KafkaError(KAFKA_STORAGE_ERROR)."""
        self.requests.add(log)
        if (log.topic, log.partition) in self._uncleanable:
            self.requests.fail(log, "an earlier compaction has failed: see the broker's log")
        self._check_requests(manager)

    def _check_requests(self, manager: LogManager) -> None:
        """Begin what has been requested, as soon as the cleaner is free and the log committed."""
        if self.requests.is_empty:
            return
        if self._work is None:
            self._begin_next(manager, only_requested=True)
        manager.timers.schedule_real(
            ("log-cleaner-requests", id(self)),
            manager.clock.now_ms + _REQUEST_INTERVAL_MS,
            lambda: self._check_requests(manager),
        )

    def first_dirty_offset(self, manager: LogManager, log: Log) -> int | None:
        """The offset up to which the log is clean; None if it was never cleaned."""
        return self._checkpoint(manager).get((log.topic, log.partition))

    def log_truncated(self, manager: LogManager, log: Log, offset: int) -> None:
        """Lower the checkpoint of a log truncated to `offset` (maybeTruncateCheckpoint)."""
        offsets = self._checkpoint(manager)
        key = (log.topic, log.partition)
        if offsets.get(key, 0) > offset:
            offsets[key] = offset
            self._write_checkpoint(manager)

    def _delete_old_segments(self, manager: LogManager) -> Steps:
        for log in [each for each in manager.logs() if each.config.compact]:
            key = (log.topic, log.partition)
            being_cleaned = None if self._cleaning is None else self._cleaning.log
            if log is being_cleaned or key in self._uncleanable or log.closed or log.is_offline:
                continue
            try:
                log.delete_old_segments(50)  # more in the next round
                yield 5
            except KafkaError as error:  # already reported to its directory
                _log_failure(manager, Event.RETENTION_FAILED, log, error)

    def _begin(self, manager: LogManager, *, only_requested: bool = False) -> None:
        work = self.requests.next_work(manager, self._checkpoint(manager))
        if work is None and not only_requested:
            found = [self._find_due(manager, log) for log in manager.logs() if log.config.compact]
            work = max((each for each in found if each is not None), key=_ratio, default=None)
        if work is None:
            return
        self._cleaning = work
        self._work = clean(work, manager.clock.wall_ms, self._entries_max)
        self._schedule(manager)

    def _find_due(self, manager: LogManager, log: Log) -> LogToClean | None:
        key = (log.topic, log.partition)
        if log.closed or log.is_offline or key in self._uncleanable:
            return None
        if manager.future(*key) is not None:
            return None
        checkpoint = self._checkpoint(manager).get(key)
        work = find_cleanable(log, checkpoint, manager.clock.wall_ms)
        return work if work.is_due else None

    def _schedule(self, manager: LogManager) -> None:
        deadline = manager.clock.now_ms + _STEP_INTERVAL_MS
        manager.timers.schedule(("log-cleaner", id(self)), deadline, lambda: self._step(manager))

    def _step(self, manager: LogManager) -> None:
        work, cleaning = self._work, self._cleaning
        if work is None or cleaning is None:
            return
        log = cleaning.log
        try:
            if manager.future(log.topic, log.partition) is not None:
                self._work = self._cleaning = None
                self.requests.finish(cleaning, -1)
                work.close()
                return
            cost = next(work)
        except StopIteration as done:
            self._work = self._cleaning = None
            self.requests.finish(cleaning, done.value)
            self._finish(manager, log, done.value)
        except (OSError, KafkaError) as error:
            # As in Kafka: skip this log until the broker restarts, continue with the others.
            self._work = self._cleaning = None
            self._uncleanable.add((log.topic, log.partition))
            self.requests.fail(log, str(error))
            if isinstance(error, OSError):
                log.storage_error("clean", error)
            _log_failure(manager, Event.CLEANING_FAILED, log, error)
            self._begin_next(manager)
        else:
            queue = manager.work
            if queue is None or not queue.send_away(cost, lambda: self._step(manager)):
                self._schedule(manager)

    def _finish(self, manager: LogManager, log: Log, end_offset: int) -> None:
        if end_offset < 0:
            return  # dropped because the log changed; the next round checks it again
        offsets = self._checkpoint(manager)
        key = (log.topic, log.partition)
        before = offsets.get(key)
        offsets[key] = end_offset
        try:
            self._write_checkpoint(manager)
        except OSError as error:  # a restart only cleans the same part again
            _log_failure(manager, Event.CLEANER_CHECKPOINT_FAILED, log, error)
        if before != end_offset:  # without progress wait for the next round
            self._begin_next(manager)

    def _begin_next(self, manager: LogManager, *, only_requested: bool = False) -> None:
        try:
            self._begin(manager, only_requested=only_requested)
        except OSError as error:
            manager.log_event(Event.CLEANER_FAILED, detail=str(error))

    def _checkpoint(self, manager: LogManager) -> dict[TopicPartition, int]:
        if self._offsets is None:
            offsets: dict[TopicPartition, int] = {}
            for directory in manager.online():
                found = read_offsets(directory.store, CLEANER_OFFSETS)
                if found:
                    self._written[directory.path] = b""  # to be replaced, also by an empty one
                # The checkpoint may still list a replica that has moved to another directory.
                offsets |= {key: found[key] for key in found if key in directory.logs}
            self._offsets = offsets
        while manager.removed:  # a new log of that name is dirty from its start
            key = manager.removed.pop()
            self._uncleanable.discard(key)
            self._offsets.pop(key, None)
        return self._offsets

    def _write_checkpoint(self, manager: LogManager) -> None:
        offsets = self._checkpoint(manager)
        for directory in manager.online():
            inside = [(key, offset) for key, offset in offsets.items() if key in directory.logs]
            data = format_offsets(inside)
            before = self._written.get(directory.path)
            if data != before and (inside or before is not None):
                directory.store.start_write_file(CLEANER_OFFSETS, data, lambda: None)
                self._written[directory.path] = data


def _log_failure(manager: LogManager, event: EventType, log: Log, error: Exception) -> None:
    manager.log_event(event, topic=log.topic, partition=log.partition, detail=str(error))


def _ratio(work: LogToClean) -> float:
    return work.ratio
