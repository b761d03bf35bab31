"""Compactions on request (`Cluster.compact`, `POST /v1/topics/{topic}/compact`), beside those that are due.

Kafka never compacts the active segment, an undecided record or one above the high watermark. So a
request rolls the active segment, waits until the last stable offset has passed the log end of that
moment, and has the whole log cleaned up to there, whatever min.cleanable.dirty.ratio says: then
the latest record of every key is left, and tombstones whose delete horizon has passed are gone.
Segments with records younger than min.compaction.lag.ms stay as they are, as in Kafka.

`LogCleaner` runs the cleanings. A request ends early when its log is closed or deleted, or is not
compacted any more.
"""

from __future__ import annotations

from kwire.replication.log_dirs.cleanable import find_cleanable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from kwire.replication.core.types import TopicPartition
    from kwire.replication.log.log import Log
    from kwire.replication.log_dirs.cleanable import LogToClean
    from kwire.replication.log_dirs.manager import LogManager


class _Request:
    """One log to clean up to `end`. `work`: its current or last cleaning, None before the first."""

    __slots__ = ("end", "log", "work")

    def __init__(self, log: Log) -> None:
        self.log = log
        self.end = log.log_end_offset
        self.work: LogToClean | None = None

    @property
    def is_committed(self) -> bool:
        """Whether all of it may be cleaned. A truncation may have lowered the log end."""
        return self.log.last_stable_offset >= min(self.end, self.log.log_end_offset)


class CompactionRequests:
    """The requests of a broker that are not finished, and the logs whose cleaning has failed."""

    __slots__ = ("_by_key", "_failures")

    def __init__(self) -> None:
        self._by_key: dict[TopicPartition, _Request] = {}
        self._failures: dict[TopicPartition, str] = {}

    @property
    def is_empty(self) -> bool:
        return not self._by_key

    def add(self, log: Log) -> None:
        """Roll the log and request its cleaning up to here. KafkaError(KAFKA_STORAGE_ERROR)."""
        log.roll()
        key = (log.topic, log.partition)
        self._failures.pop(key, None)
        self._by_key[key] = _Request(log)

    def next_work(
        self, manager: LogManager, checkpoint: Mapping[TopicPartition, int]
    ) -> LogToClean | None:
        """What to clean next; None while every request waits for its records to be committed."""
        for key, request in list(self._by_key.items()):
            log = request.log
            if log.closed or not log.config.compact or manager.get(*key) is not log:
                del self._by_key[key]
            elif request.is_committed and manager.future(*key) is None:
                # The first time the whole log; then what the offset map had no room for.
                start = None if request.work is None else checkpoint.get(key)
                request.work = find_cleanable(log, start, manager.clock.wall_ms)
                return request.work
        return None

    def finish(self, work: LogToClean, end_offset: int) -> None:
        """Note a cleaning that has ended at `end_offset`; -1: it was dropped and starts again."""
        key = (work.log.topic, work.log.partition)
        request = self._by_key.get(key)
        if request is None or request.work is not work:
            return
        if end_offset < 0:
            request.work = None
        elif end_offset >= work.first_uncleanable_offset:
            del self._by_key[key]
        elif end_offset <= work.first_dirty_offset:
            self.fail(work.log, "log.cleaner.dedupe.buffer.size has no room for a batch's keys")

    def fail(self, log: Log, detail: str) -> None:
        """End a request, if there is one, whose log cannot be cleaned."""
        key = (log.topic, log.partition)
        if self._by_key.pop(key, None) is not None:
            self._failures[key] = detail

    def cleaning(self, topic: str) -> list[int]:
        """The partitions that are being cleaned, or are next."""
        return [
            key[1] for key, each in self._by_key.items() if key[0] == topic and each.is_committed
        ]

    def waiting(self, topic: str) -> dict[int, str]:
        """The partitions whose records are not committed yet, and what is missing."""
        return {
            key[1]: f"the last stable offset is {each.log.last_stable_offset} of {each.end}"
            for key, each in self._by_key.items()
            if key[0] == topic and not each.is_committed
        }

    def failed(self, topic: str) -> dict[int, str]:
        """The partitions whose last request has failed, and why."""
        return {key[1]: detail for key, detail in self._failures.items() if key[0] == topic}
