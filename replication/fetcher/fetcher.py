"""One fetcher: replicates partitions from one leader with one request in flight at most.

Answers to kafka.server.{AbstractFetcherThread,ReplicaFetcherThread,RemoteLeaderEndPoint} of Kafka
3.9. Leaves out future logs and tiered storage (OFFSET_MOVED_TO_TIERED_STORAGE fails the
partition). Kafka's loop "truncate, fetch, wait" becomes one step, which processes a response and
sends the next request. A fetcher without partitions to fetch is idle; its only timers are backoffs
and request timeouts.

Invariant: records are appended only at the log end and only from the response to the partition's last
request. `FollowedPartitions` has what happens to a partition after an error or a look-up.

Deliberate differences, all for the sake of time:
- A leader that does not know its role yet (75, 6, 3, 100) gets requests after 5, 10, 20 … ms, up to
  replica.fetch.backoff.ms (Kafka: always that): brokers learn of a new topic almost together.
- A fetch parked at the leader is given up, with its connection, 5 ms after partitions were added
  (Kafka: the added partitions wait for its response, up to replica.fetch.wait.max.ms).
- max_wait_ms of a fetch ends no later than the backoff of the next delayed partition.
"""

from __future__ import annotations

from typing import Final

from kwire.protocol.api import ApiKey
from kwire.protocol.errors import ErrorCode, KafkaError
from kwire.protocol.schemas.fetch import ReplicaState
from kwire.replication.core.types import FETCHER_CHANNEL
from kwire.replication.fetcher.followed import LEADER_IS_BEHIND, FollowedPartitions
from kwire.replication.fetcher.link import LeaderLink
from kwire.replication.fetcher.state import (
    FETCHING,
    OUT_OF_RANGE,
    TRUNCATING,
    PartitionFetchState,
)
from kwire.replication.replica.fetch_session import NO_SESSION

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

    from kwire.protocol.language.schema import Message
    from kwire.protocol.schemas.fetch import FetchPartition, FetchResponse, PartitionData
    from kwire.replication.fetcher.lookups import Lookup
    from kwire.replication.fetcher.manager import ReplicaFetcherManager
    from kwire.replication.replica.partition import Partition


DIVERGING_EPOCH_VERSION: Final = 12
"""First version of Fetch whose response has the leader's diverging epoch (KIP-595)."""

ABANDON_MS: Final = 5

_CORRUPT: Final = (ErrorCode.CORRUPT_MESSAGE, ErrorCode.INVALID_RECORD)

_FETCH: Final = int(ApiKey.FETCH)


class ReplicaFetcher(FollowedPartitions):
    """See the module. `channel` names the connection to the leader."""

    def __init__(
        self,
        manager: ReplicaFetcherManager,
        leader_id: int,
        fetcher_id: int,
        session_id: int = NO_SESSION,
    ) -> None:
        """`session_id`: of an earlier fetcher's session, which the first request ends."""
        super().__init__(manager, leader_id, session_id)
        self.fetcher_id = fetcher_id
        self.channel = f"{FETCHER_CHANNEL}{fetcher_id}"
        self.link = LeaderLink(manager, leader_id, self.channel, self._on_lost)
        self._is_fetching = False  # the request in flight is a Fetch, which the leader may park
        self._discarded = 0  # responses discarded in a row
        self._flush_due = False

    def __repr__(self) -> str:
        return f"ReplicaFetcher(leader {self.leader_id}, id {self.fetcher_id}, {len(self.states)} partitions)"

    # --- followed partitions

    def add(self, partition: Partition, initial_offset: int) -> bool:
        """Follow a partition from `initial_offset` on (-1: unknown), effective with `flush`.

        Return False, without a change, if it is followed in this epoch already."""
        state = self.states.get(partition.key)
        if state is not None and state.current_leader_epoch == partition.leader_epoch:
            return False
        phase, last_fetched_epoch = TRUNCATING, -1
        if initial_offset < 0:
            phase = OUT_OF_RANGE
        elif self._manager.truncates_on_fetch:
            last_fetched_epoch = partition.log.leader_epochs.latest_epoch
            if last_fetched_epoch >= 0:
                phase = FETCHING
        self.take(PartitionFetchState(partition, phase, initial_offset, last_fetched_epoch))
        return True

    def take(self, state: PartitionFetchState) -> None:
        """Follow a partition in the state that another fetcher left; effective with `flush`."""
        self._put(state)
        if not self._flush_due:
            self._flush_due = True
            timers, clock = self._manager.timers, self._manager.clock
            timers.schedule((self, "flush"), clock.now_ms, self.flush)

    def flush(self) -> None:
        """Fetch added partitions: now, after the response in flight, or after ABANDON_MS."""
        if not self._flush_due:
            return
        timers = self._manager.timers
        if not self.link.busy:
            self.advance()
            return
        self._flush_due = False
        timers.cancel((self, "flush"))
        if self._is_fetching and (self, "abandon") not in timers:
            deadline = self._manager.clock.now_ms + ABANDON_MS
            timers.schedule_real((self, "abandon"), deadline, self._abandon)

    def close(self) -> None:
        """Close the connection, drop the request in flight and all states."""
        manager = self._manager
        for name in ("flush", "abandon", "wake"):
            manager.timers.cancel((self, name))
        self.states.clear()
        self.link.close()

    # --- sending

    def advance(self) -> None:
        """Send the next request, unless one is in flight: look-ups come before fetches."""
        if self.link.busy:
            return
        if self._flush_due:
            self._flush_due = False
            self._manager.timers.cancel((self, "flush"))
        if self._delayed:
            self._end_delays()
        if self._lookups_due and self._send_lookup():
            return
        manager, session = self._manager, self.session
        if manager.host.throttles is not None:
            self._pause_throttled()
        max_bytes = manager.config.replica_fetch_max_bytes
        for key in self._changed:
            state = self.states.get(key)
            if state is None or not state.is_ready:
                session.forget(key)
                continue
            partition = state.partition
            session.include(
                key,
                partition.topic_id,
                state.fetch_offset,
                partition.log.log_start_offset,
                max_bytes,
                state.current_leader_epoch,
                state.last_fetched_epoch,
            )
        self._changed.clear()
        if session.partitions:
            self._fetch()
        elif self._delayed:
            manager.timers.schedule_real((self, "wake"), self._next_delay_ms(), self.advance)

    def _fetch(self) -> None:
        manager = self._manager
        config, now_ms = manager.config, manager.clock.now_ms
        request, version = self.session.next_request(manager.fetch_version)
        max_wait_ms = config.replica_fetch_wait_max_ms
        if self._delayed:
            max_wait_ms = max(1, min(max_wait_ms, self._next_delay_ms() - now_ms))
        request.max_wait_ms = max_wait_ms
        request.min_bytes = config.replica_fetch_min_bytes
        request.max_bytes = config.replica_fetch_response_max_bytes
        if version >= 15:
            request.replica_state = ReplicaState(
                replica_id=manager.host.node_id, replica_epoch=manager.host.broker_epoch
            )
        else:
            request.replica_id = manager.host.node_id
        self.stats.requests.mark(1, now_ms)
        self.link.send(_FETCH, version, request, lambda response: self._on_fetch(response, version))
        self._is_fetching = True

    def _on_lost(self) -> None:
        self._on_disconnect()
        self.advance()

    def _abandon(self) -> None:
        """Give up a parked fetch for the sake of partitions added since it was sent."""
        if self.link.busy and self._is_fetching:
            self.link.hang_up()
            self.session.reset()
            self.advance()

    def _on_answer(self) -> None:
        self.link.end_request()
        self._manager.timers.cancel((self, "abandon"))

    # --- fetch

    def _on_fetch(self, response: FetchResponse | None, version: int) -> None:
        self._on_answer()
        if response is None:
            self._on_lost()
            return
        answered = self.session.handle_response(response, version)
        if answered is None:
            self._discard_response(response)
            self.advance()
            return
        self._discarded = 0
        self.stats.mark_answer(self.link.sent_ms, self._manager.clock.real_ms)
        self._log_recovery()
        if not answered:
            # Idle: find changes without a call, as log starts moved by retention, topic ids.
            self._changed.update(dict.fromkeys(self.states))
        diverging: list[tuple[PartitionFetchState, PartitionData]] = []
        for asked, data in answered:
            state = self._live_state(asked.key)
            if state is None:
                continue
            if not state.matches(asked):
                self.session.reset()  # else the leader takes this high watermark as known here
                continue
            if data.error_code:
                self._on_error(state, data.error_code, asked.wire)
            elif data.diverging_epoch.epoch >= 0:
                diverging.append((state, data))
            else:
                self._append(state, data)
        for state, data in diverging:
            found = data.diverging_epoch
            self._truncate_by_epoch(state, found.epoch, found.end_offset, data.log_start_offset)
        self.advance()

    def _append(self, state: PartitionFetchState, data: PartitionData) -> None:
        partition, manager = state.partition, self._manager
        log, offset = partition.log, state.fetch_offset
        if offset != log.log_end_offset:
            self._fail(state, f"fetched at {offset}, but the log ends at {log.log_end_offset}")
            return
        records = data.records
        size_bytes = len(records) if records is not None else 0
        recovery_point = log.recovery_point
        try:
            if records is not None and size_bytes:
                partition.append_records_to_follower(records, state.current_leader_epoch)
            moved = partition.update_follower_offsets(data.high_watermark, data.log_start_offset)
        except KafkaError as error:
            if error.code in _CORRUPT:
                self._delay(state, f"the answer is corrupt: {error}")
            else:
                self._fail(state, str(error), error.code)
            return
        key = partition.key
        next_offset = log.log_end_offset
        self._changed[key] = None
        state.retries = 0
        state.set_lag(max(0, data.high_watermark - next_offset), manager.clock.now_ms)
        if next_offset != offset:
            state.fetch_offset = next_offset
            if manager.truncates_on_fetch:
                state.last_fetched_epoch = log.leader_epochs.latest_epoch
            self.stats.bytes.mark(size_bytes, manager.clock.now_ms)
            if manager.host.throttles is not None:
                manager.host.throttles.follower.record(key, size_bytes)
            if log.recovery_point < recovery_point:
                manager.checkpoint_recovery_points()
        elif size_bytes:
            self._delay(state, f"{size_bytes} bytes without one whole batch of this epoch")
        if moved:
            manager.host.complete_waiting(key)

    def _on_error(self, state: PartitionFetchState, error: int, asked: FetchPartition) -> None:
        if error == ErrorCode.OFFSET_OUT_OF_RANGE:
            state.move(OUT_OF_RANGE)
            state.leader_end_offset = -1
            self._put(state)
        elif error == ErrorCode.FENCED_LEADER_EPOCH:
            self._on_fenced(state, asked.current_leader_epoch)
        elif error in LEADER_IS_BEHIND:
            self._retry(state)
        elif error == ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE:
            self._fail(state, "the leader has the offset in tiered storage, which kwire lacks")
        else:
            self._delay(state, "the leader answered", error)

    def _discard_response(self, response: FetchResponse) -> None:
        """Discard a response: retry at once, then with a backoff. Kafka has none and may spin."""
        self._discarded += 1
        self.stats.failures += 1
        self._changed.update(dict.fromkeys(self.states))
        error = response.error_code
        if error == ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR or self._discarded > 1:
            self._delay_all("it answers" if error else "unfit answer to a fetch", error)

    # --- look-ups

    def _send_lookup(self) -> bool:
        """Truncate partitions that need no look-up; send one for others. True if one was sent."""
        by_epoch: list[PartitionFetchState] = []
        ends: list[PartitionFetchState] = []
        starts: list[PartitionFetchState] = []
        for key in list(self._lookups_due):
            state = self.states[key]
            if state.delay_until_ms is not None:
                continue
            if state.phase is OUT_OF_RANGE:
                (ends if state.leader_end_offset < 0 else starts).append(state)
            elif state.partition.log.leader_epochs.latest_epoch >= 0:
                by_epoch.append(state)
            elif self._truncate(state, state.fetch_offset, "no epochs: to the high watermark"):
                self._start_fetching(state, state.partition.log.log_end_offset)
        if not (by_epoch or ends or starts):
            return False
        from kwire.replication.fetcher import lookups

        node_id = self._manager.host.node_id
        if by_epoch:
            self._look_up(
                by_epoch,
                lookups.OFFSET_FOR_LEADER_EPOCH,
                lookups.OFFSET_FOR_LEADER_EPOCH_VERSION,
                lookups.epochs_request(node_id, by_epoch),
                lookups.epochs_answers,
                self._truncate_by_epoch,
            )
        else:
            self._look_up(
                ends or starts,
                lookups.LIST_OFFSETS,
                lookups.LIST_OFFSETS_VERSION,
                lookups.list_offsets_request(node_id, ends or starts, -1 if ends else -2),
                lookups.list_offsets_answers,
                self._on_leader_end if ends else self._on_leader_start,
            )
        return True

    def _look_up(
        self,
        states: list[PartitionFetchState],
        key: int,
        version: int,
        request: Message,
        answers: Callable[[Any], Iterable[Lookup]],
        on_answer: Callable[[PartitionFetchState, int, int], None],
    ) -> None:
        """Send a look-up; `on_answer(state, epoch, offset)` for each that still needs it."""
        asked = {state.partition.key: (state.current_leader_epoch, state.phase) for state in states}

        def on_response(response: Message | None) -> None:
            self._on_answer()
            if response is None:
                self._on_lost()
                return
            self._log_recovery()
            for partition, error, epoch, offset in answers(response):
                asked_epoch, phase = asked.pop(partition, (-1, None))
                state = self._lookup_state(partition, asked_epoch, phase)
                if state is None:
                    continue
                if error:
                    self._on_lookup_error(state, error, asked_epoch)
                else:
                    on_answer(state, epoch, offset)
            for partition, (asked_epoch, phase) in asked.items():
                state = self._lookup_state(partition, asked_epoch, phase)
                if state is not None:
                    self._delay(state, "the leader left it out of its answer")
            self.advance()

        self._is_fetching = False
        self.link.send(key, version, request, on_response)
