"""A broker's fetchers: the assignment of partitions to them, failed partitions, truncations.

Answers to kafka.server.{AbstractFetcherManager,ReplicaFetcherManager,FailedPartitions}. There is a
fetcher for each leader and fetcher id (a stable hash of the partition, modulo
num.replica.fetchers).

Invariants (I27): a followed partition has exactly one fetcher or is in `failed`; a led partition
has none, once the ReplicaManager has called `remove`; after `close_idle` no fetcher is without
partitions.
"""

from __future__ import annotations

from collections import deque

from kwire.replication.core.events import Event
from kwire.replication.core.types import TopicPartition
from kwire.replication.fetcher.fetcher import DIVERGING_EPOCH_VERSION, ReplicaFetcher
from kwire.replication.log.truncation import TruncationEvent
from kwire.replication.replica.events import ReplicaEvent, first_names

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from kwire.replication.config.broker_config import BrokerConfig
    from kwire.replication.core.clock import Clock, Timers
    from kwire.replication.core.peers import Peers
    from kwire.replication.fetcher.state import PartitionFetchState
    from kwire.replication.log.log import Log
    from kwire.replication.replica.manager import ReplicaManager
    from kwire.replication.replica.partition import Partition


FETCH_VERSION = 17
_EVENTS_KEPT = 64


class FetcherMetrics:
    """Kafka's names in snake_case. Lags in records; none before a partition's first response."""

    __slots__ = (
        "bytes_per_second",
        "consumer_lag",
        "dead_thread_count",
        "failed_partitions_count",
        "fetch_errors",
        "lag_ms",
        "max_lag",
        "min_fetch_rate",
        "requests_per_second",
        "truncations",
    )

    def __init__(self) -> None:
        self.max_lag = 0
        self.min_fetch_rate = 0.0
        """Requests per second of the slowest fetcher; 0.0 without fetchers."""
        self.dead_thread_count = 0
        """Fetchers with partitions that wait for nothing: neither a response nor a timer."""
        self.lag_ms: dict[TopicPartition, int] = {}
        """For how long each of `consumer_lag` has been behind; 0 if it is not."""
        self.failed_partitions_count = 0
        self.fetch_errors = 0
        self.consumer_lag: dict[TopicPartition, int] = {}
        self.requests_per_second: dict[tuple[int, int], float] = {}
        self.bytes_per_second: dict[tuple[int, int], float] = {}
        self.truncations: list[TruncationEvent] = []
        """The most recent truncations, the oldest first."""


class ReplicaFetcherManager:
    """See the module. Attributes are read by fetchers; `fetchers` by (leader, fetcher id)."""

    def __init__(
        self,
        host: ReplicaManager,
        peers: Peers,
        clock: Clock,
        timers: Timers,
        config: BrokerConfig,
        *,
        log_truncated: Callable[[Log, int], None] | None = None,
        fetch_version: int = FETCH_VERSION,
    ) -> None:
        """`log_truncated(log, offset)`: called after a truncation (LogCleaner.log_truncated).

        `fetch_version` below 12: for leaders before KIP-595; truncates by OffsetForLeaderEpoch."""
        self.host = host
        self.peers = peers
        self.clock = clock
        self.timers = timers
        self.config = config
        self.log_truncated = log_truncated
        self.fetch_version = fetch_version
        self.truncates_on_fetch = fetch_version >= DIVERGING_EPOCH_VERSION
        self.failed: set[TopicPartition] = set()
        """Partitions without a fetcher after an error, until the next LeaderAndIsr."""
        self.fetch_errors = 0
        """Since the start: errors of partitions; a lost connection counts once per partition."""
        self.fetchers: dict[tuple[int, int], ReplicaFetcher] = {}
        self.truncations: deque[TruncationEvent] = deque(maxlen=_EVENTS_KEPT)
        self._by_partition: dict[TopicPartition, ReplicaFetcher] = {}
        # For the log: partitions added to and removed from fetchers since the last `close_idle`.
        self._added: dict[tuple[int, int], list[str]] = {}
        self._removed: dict[tuple[int, int], list[str]] = {}
        self._session_ids: dict[tuple[int, int], int] = {}
        self._closed = False
        config.listeners_of_change.append(self._on_config_change)

    # --- called by the ReplicaManager

    def add_follower(self, partition: Partition) -> None:
        """Follow `partition.leader_id` in `partition.leader_epoch`, if it does not already.

        Fetching starts at the log end if the log has epochs, by which the leader finds a
        divergence; else at the high watermark. The first request leaves by `close_idle`, which ends
        every LeaderAndIsr, or in the next tick.
        """
        if self._closed:
            return
        log = partition.log
        has_epochs = self.truncates_on_fetch and log.leader_epochs.latest_epoch >= 0
        self.failed.discard(partition.key)
        fetcher = self._fetcher(partition.leader_id, partition.key)
        self._remove_from_other(partition.key, fetcher)
        offset = log.log_end_offset if has_epochs else log.high_watermark
        if fetcher.add(partition, offset):
            where = fetcher.leader_id, fetcher.fetcher_id
            self._added.setdefault(where, []).append(f"{partition.topic}-{partition.index}")
            self.host.log_event(
                Event.FOLLOWER_FETCHER_STARTED,
                topic=partition.topic,
                partition=partition.index,
                leader=partition.leader_id,
                leader_epoch=partition.leader_epoch,
                offset=offset,
            )

    def remove(self, keys: Iterable[TopicPartition]) -> None:
        """Stop following partitions that are led here, stopped or deleted; others are ignored."""
        for key in keys:
            self.failed.discard(key)
            fetcher = self._by_partition.pop(key, None)
            if fetcher is not None:
                fetcher.remove(key)
                where = fetcher.leader_id, fetcher.fetcher_id
                self._removed.setdefault(where, []).append(f"{key[0]}-{key[1]}")

    def close_idle(self) -> None:
        """End a LeaderAndIsr or StopReplica: fetch added partitions, close fetchers without any."""
        self._log_changes()
        for where, fetcher in list(self.fetchers.items()):
            if fetcher.states:
                fetcher.flush()
            else:
                self._close(where, fetcher)

    def _log_changes(self) -> None:
        """Log what was added and removed, in one event for each fetcher."""
        for changes, kind in (
            (self._removed, ReplicaEvent.FETCHER_PARTITIONS_REMOVED),
            (self._added, ReplicaEvent.FETCHER_PARTITIONS_ADDED),
        ):
            for (leader, fetcher_id), names in changes.items():
                self.host.log_event(
                    kind,
                    leader=leader,
                    fetcher_id=fetcher_id,
                    partitions=first_names(names),
                    names=names,
                )
            changes.clear()

    def shut_down(self) -> None:
        """Close all fetchers; `add_follower` has no effect from now on."""
        self._closed = True
        for where, fetcher in list(self.fetchers.items()):
            self._close(where, fetcher)
        self._by_partition.clear()

    def state(self, key: TopicPartition) -> PartitionFetchState | None:
        """Return a partition's fetch state; None if it is not followed, or failed."""
        fetcher = self._by_partition.get(key)
        return None if fetcher is None else fetcher.states.get(key)

    def metrics(self) -> FetcherMetrics:
        """Return the metrics of Kafka's ReplicaFetcherManager and its fetchers."""
        metrics, now_ms = FetcherMetrics(), self.clock.now_ms
        for where, fetcher in self.fetchers.items():
            metrics.requests_per_second[where] = fetcher.stats.requests.per_second(now_ms)
            metrics.bytes_per_second[where] = fetcher.stats.bytes.per_second(now_ms)
            metrics.dead_thread_count += self.is_dead(fetcher)
            for key, state in fetcher.states.items():
                if state.lag >= 0:
                    metrics.consumer_lag[key] = state.lag
                    metrics.lag_ms[key] = self._lag_ms(fetcher, state)
        metrics.min_fetch_rate = min(metrics.requests_per_second.values(), default=0.0)
        metrics.max_lag = max(metrics.consumer_lag.values(), default=0)
        metrics.failed_partitions_count = len(self.failed)
        metrics.fetch_errors = self.fetch_errors
        metrics.truncations = list(self.truncations)
        return metrics

    def _lag_ms(self, fetcher: ReplicaFetcher, state: PartitionFetchState) -> int:
        """Return for how long a partition has been behind its leader, in milliseconds.

        0: caught up at the last answer. That is no older than replica.fetch.wait.max.ms, or the leader
        is silent: then the time beyond that counts."""
        if state.behind_since_ms is not None:
            return self.clock.now_ms - state.behind_since_ms
        silent_ms = self.clock.real_ms - fetcher.stats.answered_at_ms
        return max(0, silent_ms - self.config.replica_fetch_wait_max_ms)

    def is_dead(self, fetcher: ReplicaFetcher) -> bool:
        """Whether nothing will make a fetcher with partitions go on."""
        waits = any((fetcher, name) in self.timers for name in ("flush", "wake"))
        return bool(fetcher.states) and not fetcher.link.busy and not waits

    # --- called by fetchers

    def mark_failed(self, key: TopicPartition) -> None:
        """Add a partition that its fetcher has given up to `failed`."""
        self._by_partition.pop(key, None)
        self.failed.add(key)
        self.fetch_errors += 1

    def report_truncation(
        self,
        partition: Partition,
        from_offset: int,
        to_offset: int,
        high_watermark: int,
        why: str,
        truncates_flushed: bool,
    ) -> None:
        """Report a truncation. `truncates_flushed`: the recovery point went down."""
        event = TruncationEvent(
            self.clock.now_ms,
            partition.topic,
            partition.index,
            from_offset,
            to_offset,
            high_watermark,
            why,
        )
        self.truncations.append(event)
        is_below = to_offset < high_watermark
        self.host.log_event(
            Event.LOG_TRUNCATED_BELOW_HIGH_WATERMARK if is_below else Event.LOG_TRUNCATED,
            topic=partition.topic,
            partition=partition.index,
            leader=partition.leader_id,
            leader_epoch=partition.leader_epoch,
            previous_log_end_offset=from_offset,
            log_end_offset=to_offset,
            high_watermark=high_watermark,
            detail=why,
        )
        if self.log_truncated is not None:
            try:
                self.log_truncated(partition.log, to_offset)
            except OSError as error:
                self.host.log_event(
                    Event.CLEANER_CHECKPOINT_FAILED,
                    topic=partition.topic,
                    partition=partition.index,
                    detail=str(error),
                )
        if truncates_flushed:
            self.checkpoint_recovery_points()
        self.host.complete_waiting(partition.key)

    def checkpoint_recovery_points(self) -> None:
        """Write recovery points: one above the log end would hide later appends from a recovery."""
        self.host.log_manager.checkpoint_recovery_points(flush=True)

    # --- assignment to fetchers

    def _fetcher(self, leader_id: int, key: TopicPartition) -> ReplicaFetcher:
        fetcher_id = fetcher_id_of(key, max(self.config.num_replica_fetchers, 1))
        where = (leader_id, fetcher_id)
        fetcher = self.fetchers.get(where)
        if fetcher is None:
            session_id = self._session_ids.pop(where, 0)
            fetcher = ReplicaFetcher(self, leader_id, fetcher_id, session_id)
            self.fetchers[where] = fetcher
            self.host.log_event(
                ReplicaEvent.FETCHER_STARTED, leader=leader_id, fetcher_id=fetcher_id
            )
        return fetcher

    def _remove_from_other(
        self, key: TopicPartition, fetcher: ReplicaFetcher
    ) -> PartitionFetchState | None:
        """Assign a partition to `fetcher`; return its state if another fetcher had it."""
        other = self._by_partition.get(key)
        self._by_partition[key] = fetcher
        return None if other is None or other is fetcher else other.remove(key)

    def _close(self, where: tuple[int, int], fetcher: ReplicaFetcher) -> None:
        del self.fetchers[where]
        if fetcher.session.id:
            self._session_ids[where] = fetcher.session.id
        fetcher.close()
        leader, fetcher_id = where
        self.host.log_event(ReplicaEvent.FETCHER_STOPPED, leader=leader, fetcher_id=fetcher_id)

    def _on_config_change(self, keys: set[str]) -> None:
        """Reassign partitions after a change of num.replica.fetchers; they keep their states."""
        if "num.replica.fetchers" not in keys or self._closed:
            return
        for key, old in list(self._by_partition.items()):
            new = self._fetcher(old.leader_id, key)
            state = self._remove_from_other(key, new)
            if state is not None:
                new.take(state)
        self.close_idle()


def fetcher_id_of(key: TopicPartition, fetchers: int) -> int:
    """Return the fetcher id of a partition (AbstractFetcherManager.getFetcherId)."""
    topic_hash = 0
    for char in key[0]:
        topic_hash = 31 * topic_hash + ord(char) & 0xFFFFFFFF  # String.hashCode
    mixed = 31 * topic_hash + key[1] & 0xFFFFFFFF
    if mixed >= 0x80000000:
        mixed = 0x100000000 - mixed & 0x7FFFFFFF  # Utils.abs: 0 for Integer.MIN_VALUE
    return mixed % fetchers
