"""The partitions that a fetcher follows: what each needs next, errors and backoffs, truncation.

Answers to the partition states and to the truncations of kafka.server.AbstractFetcherThread and
ReplicaFetcherThread of Kafka 3.9. Sends nothing: fetcher.py does, and hands on what the leader has answered.

Invariants: an error of one partition never stops another; a failed partition is not fetched until the
next LeaderAndIsr (`ReplicaFetcherManager.add_follower`).
"""

from __future__ import annotations

from typing import Final

from kwire.protocol.errors import ErrorCode, KafkaError, error_name
from kwire.replication.core.events import Event
from kwire.replication.core.types import TopicPartition
from kwire.replication.fetcher.session import FetchSessionHandler
from kwire.replication.fetcher.state import FETCHING, FetcherStats, PartitionFetchState, Phase
from kwire.replication.log.truncation import truncation_point

TYPE_CHECKING = False
if TYPE_CHECKING:
    from kwire.replication.core.events import EventType
    from kwire.replication.fetcher.manager import ReplicaFetcherManager

FIRST_RETRY_MS: Final = 5

LEADER_IS_BEHIND: Final = (
    ErrorCode.UNKNOWN_LEADER_EPOCH,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.UNKNOWN_TOPIC_ID,
)


class FollowedPartitions:
    """See the module. `states` changes by `_put` and `remove` only."""

    def __init__(self, manager: ReplicaFetcherManager, leader_id: int, session_id: int) -> None:
        """`session_id`: of an earlier fetcher's session, which the first request ends."""
        self.leader_id = leader_id
        self.states: dict[TopicPartition, PartitionFetchState] = {}
        self.session = FetchSessionHandler(session_id)
        self.stats = FetcherStats(manager.clock.real_ms)
        self._manager = manager
        self._logged_error = ""  # the fetcher's last error, so that it is logged once
        # Partitions to update in the next fetch; with a backoff; that need a look-up first.
        self._changed: dict[TopicPartition, None] = {}
        self._delayed: dict[TopicPartition, None] = {}
        self._lookups_due: dict[TopicPartition, None] = {}

    def remove(self, key: TopicPartition) -> PartitionFetchState | None:
        """Stop following a partition; a response in flight is ignored. Return its state, if any."""
        state = self.states.pop(key, None)
        if state is not None:
            self._changed[key] = None
            self._delayed.pop(key, None)
            self._lookups_due.pop(key, None)
        return state

    # --- out of range: the leader's log end, then maybe its log start (§3.5 of the design)

    def _on_leader_end(self, state: PartitionFetchState, _: int, leader_end: int) -> None:
        log_end = state.partition.log.log_end_offset
        if leader_end >= log_end:
            state.leader_end_offset = leader_end
            return
        # The leader lost a part of its log, or its election was unclean.
        if self._truncate(state, leader_end, f"out of range: the leader ends at {leader_end}"):
            self._start_fetching(state, state.partition.log.log_end_offset, lag=0)

    def _on_leader_start(self, state: PartitionFetchState, _: int, leader_start: int) -> None:
        log = state.partition.log
        log_end, leader_end = log.log_end_offset, state.leader_end_offset
        if leader_start > log_end:
            why = f"out of range: the leader begins at {leader_start}"
            if not self._truncate(state, leader_start, why, fully=True):
                return
        elif state.fetch_offset == log_end:
            # Nothing has changed, and the next response may be the same: back off.
            self._retry(state)
        self._start_fetching(state, log.log_end_offset, lag=max(0, leader_end - log.log_end_offset))

    def _start_fetching(
        self, state: PartitionFetchState, offset: int, lag: int | None = None
    ) -> None:
        """Enter FETCHING at `offset`, after truncation."""
        state.move(FETCHING)
        state.fetch_offset = offset
        state.leader_end_offset = -1
        if self._manager.truncates_on_fetch:
            state.last_fetched_epoch = state.partition.log.leader_epochs.latest_epoch
        if lag is not None:
            state.set_lag(lag, self._manager.clock.now_ms)
        self._put(state)

    # --- truncation by epochs (§3.6)

    def _truncate_by_epoch(
        self, state: PartitionFetchState, epoch: int, end_offset: int, log_start_offset: int = 0
    ) -> None:
        before = state.fetch_offset, state.last_fetched_epoch
        point = truncation_point(state.partition.log, epoch, end_offset, state.fetch_offset)
        if not self._truncate(state, point.offset, point.why, log_start_offset=log_start_offset):
            return
        state.fetch_offset = min(point.offset, state.partition.log.log_end_offset)
        if not self._manager.truncates_on_fetch and not point.completed:
            self._put(state)
            return
        was_fetching = state.phase is FETCHING
        self._start_fetching(state, state.fetch_offset)
        if was_fetching and before == (state.fetch_offset, state.last_fetched_epoch):
            self._retry(state)  # nothing was truncated: the next response would be the same
        # The leader's session takes this response's high watermark as known here: it was not used.
        self.session.reset()

    def _truncate(
        self,
        state: PartitionFetchState,
        offset: int,
        why: str,
        fully: bool = False,
        log_start_offset: int = 0,
    ) -> bool:
        """Truncate the log to `offset`, or (`fully`) empty it to start there. False: failed.

        `log_start_offset`: the leader's. What it has deleted no epochs compare; it may be other records
        here, which must not be there when this broker is elected. (Kafka: with the next answer, which may
        come after the election.)"""
        partition = state.partition
        log = partition.log
        before, high_watermark = log.log_end_offset, log.high_watermark
        recovery_point = log.recovery_point
        try:
            if fully:
                log.truncate_fully_and_start_at(offset)
            else:
                log.truncate_to(offset)
                partition.update_follower_offsets(log.high_watermark, log_start_offset)
        except KafkaError as error:
            self._fail(state, str(error), error.code)
            return False
        if fully or offset < before:
            truncates_flushed = log.recovery_point < recovery_point
            self._manager.report_truncation(
                partition, before, offset, high_watermark, why, truncates_flushed
            )
        return True

    # --- errors and backoffs

    def _lookup_state(
        self, key: TopicPartition, epoch: int, phase: Phase | None
    ) -> PartitionFetchState | None:
        """Return the state if it still needs the look-up sent in `epoch` and `phase`, else None."""
        state = self._live_state(key)
        if state is None or state.current_leader_epoch != epoch or state.phase is not phase:
            return None
        return state if state.delay_until_ms is None else None

    def _live_state(self, key: TopicPartition) -> PartitionFetchState | None:
        """Return the state; None if the log's directory has failed in this tick: nothing may be
        written to it any more (UnifiedLog.maybeHandleIOException)."""
        state = self.states.get(key)
        if state is not None and self._manager.host.by_key.get(key) is not state.partition:
            self._delay(state, None)
            return None
        return state

    def _on_lookup_error(self, state: PartitionFetchState, error: int, asked_epoch: int) -> None:
        if error == ErrorCode.FENCED_LEADER_EPOCH:
            self._on_fenced(state, asked_epoch)
        elif error in LEADER_IS_BEHIND:
            self._retry(state)
        else:
            self._delay(state, "the leader answered", error)

    def _on_fenced(self, state: PartitionFetchState, asked_epoch: int) -> None:
        """Fail a partition whose leader is in a later epoch; retry if this broker is, too."""
        if asked_epoch == state.current_leader_epoch:
            self._fail(
                state,
                f"the leader is in a later epoch than {asked_epoch}; awaiting LeaderAndIsr",
                event=Event.FOLLOWER_FENCED,
            )
        else:
            self._retry(state)

    def _retry(self, state: PartitionFetchState) -> None:
        """Back off exponentially from FIRST_RETRY_MS: the leader is usually milliseconds behind."""
        backoff_ms = self._manager.config.replica_fetch_backoff_ms
        self._delay(state, None, delay_ms=min(backoff_ms, FIRST_RETRY_MS << min(state.retries, 20)))
        state.retries += 1

    def _delay(
        self,
        state: PartitionFetchState,
        why: str | None,
        error: int = 0,
        delay_ms: int | None = None,
    ) -> None:
        """Delay a partition by `delay_ms` (replica.fetch.backoff.ms), unless it is delayed already.

        `why` and the leader's `error` are logged."""
        if state.delay_until_ms is None:
            if delay_ms is None:
                delay_ms = self._manager.config.replica_fetch_backoff_ms
            state.delay_until_ms = self._manager.clock.now_ms + delay_ms
            self._manager.fetch_errors += 1
            self._put(state)
        if why is not None:
            self._manager.host.log_event(
                Event.PARTITION_FETCH_FAILED,
                topic=state.partition.topic,
                partition=state.partition.index,
                leader=self.leader_id,
                leader_epoch=state.current_leader_epoch,
                error=error_name(error) if error else None,
                detail=why,
            )

    def _delay_all(self, why: str, error: int = 0) -> None:
        for state in list(self.states.values()):
            self._delay(state, None)
        trouble = f"{why} {error}"
        if self.states and trouble != self._logged_error:
            self._logged_error = trouble
            self._manager.host.log_event(
                Event.LEADER_UNREACHABLE,
                leader=self.leader_id,
                partitions=len(self.states),
                error=error_name(error) if error else None,
                detail=why,
            )

    def _log_recovery(self) -> None:
        """Log that the leader is reachable again, after an error of the whole fetcher."""
        if self._logged_error:
            self._logged_error = ""
            self._manager.host.log_event(Event.LEADER_REACHABLE, leader=self.leader_id)

    def _on_disconnect(self) -> None:
        self.stats.failures += 1
        self.session.reset()
        self._delay_all("the connection was lost, or not made")

    def _fail(
        self,
        state: PartitionFetchState,
        why: str,
        error: ErrorCode = ErrorCode.NONE,
        event: EventType = Event.FOLLOWER_FETCHER_FAILED,
    ) -> None:
        """Stop following a partition after an error; a storage error takes it offline, too."""
        key = state.partition.key
        self.remove(key)
        self._manager.mark_failed(key)
        self._manager.host.log_event(
            event,
            topic=key[0],
            partition=key[1],
            leader=self.leader_id,
            leader_epoch=state.current_leader_epoch,
            error=error.name if error else None,
            detail=why,
        )
        if error is ErrorCode.KAFKA_STORAGE_ERROR:
            self._manager.host.mark_offline(key, why)

    def _pause_throttled(self) -> None:
        """Leave throttled partitions out of the next fetch; those in sync are never throttled."""
        if (throttles := self._manager.host.throttles) is None:
            return
        for key, state in list(self.states.items()):
            pause_ms = throttles.pause_ms(key, state.lag) if state.is_ready else 0
            if pause_ms:
                state.delay_until_ms = self._manager.clock.now_ms + pause_ms
                self._put(state)

    def _end_delays(self) -> None:
        now_ms = self._manager.clock.now_ms
        for key in list(self._delayed):
            state = self.states[key]
            if state.delay_until_ms is not None and state.delay_until_ms <= now_ms:
                state.delay_until_ms = None
                self._put(state)

    def _next_delay_ms(self) -> int:
        return min(self.states[key].delay_until_ms or 0 for key in self._delayed)

    def _put(self, state: PartitionFetchState) -> None:
        """Index a state that is new or whose phase or delay changed."""
        key = state.partition.key
        self.states[key] = state
        self._changed[key] = None
        if state.delay_until_ms is None:
            self._delayed.pop(key, None)
        else:
            self._delayed[key] = None
        if state.phase is FETCHING:
            self._lookups_due.pop(key, None)
        else:
            self._lookups_due[key] = None
