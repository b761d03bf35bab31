"""One fetcher: what this broker follows of one leader, fetched by one request at a time.

Answers to kafka.server.{AbstractFetcherThread,ReplicaFetcherThread,RemoteLeaderEndPoint} of Kafka 3.9. Leaves out
throttling, future logs and tiered storage (OFFSET_MOVED_TO_TIERED_STORAGE fails the partition). Kafka's loop
"truncate, fetch, wait for the answer" is turned inside out: an answer is processed and the next request sent in the
same step; with nothing to ask for nothing is sent; no timer runs but for delays and for answers that never come.

Invariants: one request at most is under way; a partition is appended to only at its log end and only from the answer to
what was asked for it last; a partition's trouble never stops another's; a failed one is asked for no more until the
controller names a leader again (`ReplicaFetcherManager.add_follower`).

Deliberate differences, all for the sake of time:
- A leader that does not know yet that it leads (75, 6, 3, 100) is asked again after 5, 10, 20 … ms, up to
  replica.fetch.backoff.ms (Kafka: at once that): brokers hear of a new topic within milliseconds of each other.
- A fetch that the leader holds back when partitions are added is given up after 5 ms, together with its connection
  (Kafka: the new partitions wait until it is answered, up to replica.fetch.wait.max.ms).
- A fetch is not held back longer than until the next delayed partition is due.
"""

from __future__ import annotations

from typing import Final

from kwire.protocol.api import ApiKey
from kwire.protocol.errors import ErrorCode, KafkaError, error_name
from kwire.replication.core.events import Event
from kwire.replication.core.types import TopicPartition
from kwire.replication.fetcher.link import LeaderLink
from kwire.replication.fetcher.session import FetchSessionAsking
from kwire.replication.fetcher.state import (
    FETCHING,
    OUT_OF_RANGE,
    TRUNCATING,
    Meter,
    PartitionFetchState,
    Phase,
)
from kwire.replication.log.truncation import truncation_point
from kwire.replication.replica.fetch_session import NO_SESSION

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

    from kwire.protocol.language.schema import Message
    from kwire.protocol.schemas.fetch import FetchPartition, FetchResponse, PartitionData
    from kwire.replication.core.events import EventType
    from kwire.replication.fetcher.lookups import Lookup
    from kwire.replication.fetcher.manager import ReplicaFetcherManager
    from kwire.replication.replica.partition import Partition


DIVERGING_EPOCH_VERSION: Final = 12
"""From this version of Fetch on the leader says in its answer where the follower's log left its own."""

FIRST_RETRY_MS: Final = 5
ABANDON_MS: Final = 5

_LEADER_IS_BEHIND: Final = (
    ErrorCode.UNKNOWN_LEADER_EPOCH,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.UNKNOWN_TOPIC_ID,
)
_CORRUPT: Final = (ErrorCode.CORRUPT_MESSAGE, ErrorCode.INVALID_RECORD)

_FETCH: Final = int(ApiKey.FETCH)


class ReplicaFetcher:
    """See the module. Made and told what to follow by the manager; `channel` names its connection to the leader."""

    def __init__(
        self,
        manager: ReplicaFetcherManager,
        leader_id: int,
        fetcher_id: int,
        session_id: int = NO_SESSION,
    ) -> None:
        """`session_id`: of the session that an earlier fetcher left at this leader; the first request ends it."""
        self.leader_id = leader_id
        self.fetcher_id = fetcher_id
        self.channel = f"fetcher-{fetcher_id}"
        self.states: dict[TopicPartition, PartitionFetchState] = {}
        self.session = FetchSessionAsking(session_id)
        now_ms = manager.clock.now_ms
        self.requests = Meter(now_ms)
        self.bytes = Meter(now_ms)
        self._manager = manager
        self._link = LeaderLink(manager, leader_id, self.channel, self._on_silence)
        self._is_fetching = False  # what is under way is a Fetch, which the leader may hold back
        self._refused = 0  # answers of no use in a row
        self._trouble = ""  # what all partitions wait for, so that it is logged once
        self._added = False
        # Partitions whose part in the next fetch may differ, that are delayed, and that need other requests first.
        self._touched: dict[TopicPartition, None] = {}
        self._delayed: dict[TopicPartition, None] = {}
        self._asking: dict[TopicPartition, None] = {}

    def __repr__(self) -> str:
        return f"ReplicaFetcher(leader {self.leader_id}, id {self.fetcher_id}, {len(self.states)} partitions)"

    # --- what is followed

    def add(self, partition: Partition, initial_offset: int) -> bool:
        """Follows a partition from `initial_offset` on (-1: where the leader says). Takes effect with `flush`.

        False when it is followed in this epoch already: nothing changes."""
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
        """Follows a partition in the state that another fetcher left it in. Takes effect with `flush`."""
        self._put(state)
        if not self._added:
            self._added = True
            timers, clock = self._manager.timers, self._manager.clock
            timers.schedule((self, "flush"), clock.now_ms, self.flush)

    def remove(self, key: TopicPartition) -> PartitionFetchState | None:
        """Follows it no more; what is under way for it is ignored when it comes."""
        state = self.states.pop(key, None)
        if state is not None:
            self._touched[key] = None
            self._delayed.pop(key, None)
            self._asking.pop(key, None)
        return state

    def flush(self) -> None:
        """What was added is asked for: now, or when the leader answers, or when it takes long to."""
        if not self._added:
            return
        timers = self._manager.timers
        if not self._link.busy:
            self.advance()
            return
        self._added = False
        timers.cancel((self, "flush"))
        if self._is_fetching and (self, "abandon") not in timers:
            deadline = self._manager.clock.now_ms + ABANDON_MS
            timers.schedule((self, "abandon"), deadline, self._abandon)

    def close(self) -> None:
        """The end: its connection goes, and what is under way is forgotten."""
        manager = self._manager
        for name in ("flush", "abandon", "wake"):
            manager.timers.cancel((self, name))
        self.states.clear()
        self._link.close()

    # --- turning the wheel

    def advance(self) -> None:
        """Sends what is to be asked next, unless a request is under way."""
        if self._link.busy:
            return
        if self._added:
            self._added = False
            self._manager.timers.cancel((self, "flush"))
        if self._delayed:
            self._end_delays()
        if self._asking and self._ask_offsets():
            return
        manager, session = self._manager, self.session
        max_bytes = manager.config.replica_fetch_max_bytes
        for key in self._touched:
            state = self.states.get(key)
            if state is None or not state.is_ready:
                session.forget(key)
                continue
            partition = state.partition
            session.want(
                key,
                partition.topic_id,
                state.fetch_offset,
                partition.log.log_start_offset,
                max_bytes,
                state.current_leader_epoch,
                state.last_fetched_epoch,
            )
        self._touched.clear()
        if session.partitions:
            self._fetch()
        elif self._delayed:
            manager.timers.schedule((self, "wake"), self._next_delay_ms(), self.advance)

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
            from kwire.protocol.schemas.fetch import ReplicaState

            request.replica_state = ReplicaState(
                replica_id=manager.host.node_id, replica_epoch=manager.host.broker_epoch
            )
        else:
            request.replica_id = manager.host.node_id
        self.requests.mark(1, now_ms)
        self._link.send(
            _FETCH, version, request, lambda response: self._on_fetch(response, version)
        )
        self._is_fetching = True

    def _on_silence(self) -> None:
        self._link_lost()
        self.advance()

    def _abandon(self) -> None:
        """What was added has waited long enough for the leader to answer a fetch that knows nothing of it."""
        if self._link.busy and self._is_fetching:
            self._link.hang_up()
            self.session.begin_anew()
            self.advance()

    def _answered(self) -> None:
        self._link.answered()
        self._manager.timers.cancel((self, "abandon"))

    # --- fetch

    def _on_fetch(self, response: FetchResponse | None, version: int) -> None:
        self._answered()
        if response is None:
            self._link_lost()
            self.advance()
            return
        answered = self.session.accept(response, version)
        if answered is None:
            self._refuse(response)
            self.advance()
            return
        self._refused = 0
        self._heard()
        if not answered:
            # A quiet moment to notice what nobody tells: log starts moved by this broker's own retention, topic ids.
            self._touched.update(dict.fromkeys(self.states))
        diverging: list[tuple[PartitionFetchState, int, int]] = []
        for asked, data in answered:
            state = self._followed(asked.key)
            if state is None:
                continue
            if not state.is_answered_by(asked):
                self.session.begin_anew()  # else the leader counts this high watermark as told
                continue
            if data.error_code:
                self._on_error(state, data.error_code, asked.wire)
            elif data.diverging_epoch.epoch >= 0:
                diverging.append(
                    (state, data.diverging_epoch.epoch, data.diverging_epoch.end_offset)
                )
            else:
                self._append(state, data)
        for state, epoch, end_offset in diverging:
            self._truncate_by_epoch(state, epoch, end_offset)
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
        self._touched[key] = None
        state.retries = 0
        state.lag = max(0, data.high_watermark - next_offset)
        if next_offset != offset:
            state.fetch_offset = next_offset
            if manager.truncates_on_fetch:
                state.last_fetched_epoch = log.leader_epochs.latest_epoch
            self.bytes.mark(size_bytes, manager.clock.now_ms)
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
            self._fenced(state, asked.current_leader_epoch)
        elif error in _LEADER_IS_BEHIND:
            self._retry(state)
        elif error == ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE:
            self._fail(state, "the leader has it in tiered storage, which kwire has not")
        else:
            self._delay(state, "the leader answered", error)

    def _refuse(self, response: FetchResponse) -> None:
        """The whole answer is of no use. Once a new session is tried at once; Kafka always does, and so may spin."""
        self._refused += 1
        self._touched.update(dict.fromkeys(self.states))
        error = response.error_code
        if error == ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR or self._refused > 1:
            self._delay_all("it answers" if error else "unfit answer to a fetch", error)

    # Out of range: the leader's log end, then maybe its log start (§3.5 of the design)

    def _ask_offsets(self) -> bool:
        """Truncates what needs no answer and asks for what does; True if a request was sent."""
        by_epoch: list[PartitionFetchState] = []
        ends: list[PartitionFetchState] = []
        starts: list[PartitionFetchState] = []
        for key in list(self._asking):
            state = self.states[key]
            if state.delay_until_ms is not None:
                continue
            if state.phase is OUT_OF_RANGE:
                (ends if state.leader_end_offset < 0 else starts).append(state)
            elif state.partition.log.leader_epochs.latest_epoch >= 0:
                by_epoch.append(state)
            elif self._cut(state, state.fetch_offset, "no epochs: cut to the high watermark"):
                self._go_on(state, state.partition.log.log_end_offset)
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
        """Sends a request about `states`; `on_answer` gets each state that still waits for it, epoch and offset."""
        asked = {state.partition.key: (state.current_leader_epoch, state.phase) for state in states}

        def on_response(response: Message | None) -> None:
            self._answered()
            if response is None:
                self._link_lost()
                self.advance()
                return
            self._heard()
            for partition, error, epoch, offset in answers(response):
                asked_epoch, phase = asked.pop(partition, (-1, None))
                state = self._still_asking(partition, asked_epoch, phase)
                if state is None:
                    continue
                if error:
                    self._on_lookup_error(state, error, asked_epoch)
                else:
                    on_answer(state, epoch, offset)
            for partition, (asked_epoch, phase) in asked.items():
                state = self._still_asking(partition, asked_epoch, phase)
                if state is not None:
                    self._delay(state, "the leader left it out of its answer")
            self.advance()

        self._is_fetching = False
        self._link.send(key, version, request, on_response)

    def _on_leader_end(self, state: PartitionFetchState, _: int, leader_end: int) -> None:
        log_end = state.partition.log.log_end_offset
        if leader_end >= log_end:
            state.leader_end_offset = leader_end
            return
        # Its log was lost in part, or it was elected though it lacked what we have.
        if self._cut(state, leader_end, f"out of range: the leader ends at {leader_end}"):
            self._go_on(state, state.partition.log.log_end_offset, lag=0)

    def _on_leader_start(self, state: PartitionFetchState, _: int, leader_start: int) -> None:
        log = state.partition.log
        log_end, leader_end = log.log_end_offset, state.leader_end_offset
        if leader_start > log_end:
            why = f"out of range: the leader begins at {leader_start}"
            if not self._cut(state, leader_start, why, fully=True):
                return
        elif state.fetch_offset == log_end:
            # Nothing has changed, so that the next answer may be the same: not at once, then.
            self._retry(state)
        self._go_on(state, log.log_end_offset, lag=max(0, leader_end - log.log_end_offset))

    def _go_on(self, state: PartitionFetchState, offset: int, lag: int | None = None) -> None:
        """Fetches from here on: the log is what it should be."""
        state.move(FETCHING)
        state.fetch_offset = offset
        state.leader_end_offset = -1
        if self._manager.truncates_on_fetch:
            state.last_fetched_epoch = state.partition.log.leader_epochs.latest_epoch
        if lag is not None:
            state.lag = lag
        self._put(state)

    # Truncation by epochs (§3.6)

    def _truncate_by_epoch(self, state: PartitionFetchState, epoch: int, end_offset: int) -> None:
        before = state.fetch_offset, state.last_fetched_epoch
        point = truncation_point(state.partition.log, epoch, end_offset, state.fetch_offset)
        if not self._cut(state, point.offset, point.why):
            return
        state.fetch_offset = min(point.offset, state.partition.log.log_end_offset)
        if not self._manager.truncates_on_fetch and not point.completed:
            self._put(state)
            return
        was_fetching = state.phase is FETCHING
        self._go_on(state, state.fetch_offset)
        if was_fetching and before == (state.fetch_offset, state.last_fetched_epoch):
            self._retry(state)  # nothing to cut: the leader would say the same again
        # A session counts what came with this answer, the high watermark, as told: we did not take it.
        self.session.begin_anew()

    def _cut(self, state: PartitionFetchState, offset: int, why: str, fully: bool = False) -> bool:
        """Truncates the log, or replaces it with an empty one that begins at `offset`. False: the partition failed."""
        partition = state.partition
        log = partition.log
        before, high_watermark = log.log_end_offset, log.high_watermark
        recovery_point = log.recovery_point
        try:
            if fully:
                log.truncate_fully_and_start_at(offset)
            else:
                log.truncate_to(offset)
        except KafkaError as error:
            self._fail(state, str(error), error.code)
            return False
        if fully or offset < before:
            cut_flushed = log.recovery_point < recovery_point
            self._manager.truncated(partition, before, offset, high_watermark, why, cut_flushed)
        return True

    # --- troubles

    def _still_asking(
        self, key: TopicPartition, epoch: int, phase: Phase | None
    ) -> PartitionFetchState | None:
        """The state if what was asked for it in `epoch` is still of interest."""
        state = self._followed(key)
        if state is None or state.current_leader_epoch != epoch or state.phase is not phase:
            return None
        return state if state.delay_until_ms is None else None

    def _followed(self, key: TopicPartition) -> PartitionFetchState | None:
        """The state; not that of a log whose directory has failed, of which we hear in the next tick: nothing is
        written to it any more (UnifiedLog.maybeHandleIOException)."""
        state = self.states.get(key)
        if state is not None and self._manager.host.by_key.get(key) is not state.partition:
            self._delay(state, None)
            return None
        return state

    def _on_lookup_error(self, state: PartitionFetchState, error: int, asked_epoch: int) -> None:
        if error == ErrorCode.FENCED_LEADER_EPOCH:
            self._fenced(state, asked_epoch)
        elif error in _LEADER_IS_BEHIND:
            self._retry(state)
        else:
            self._delay(state, "the leader answered", error)

    def _fenced(self, state: PartitionFetchState, asked_epoch: int) -> None:
        """The leader is in a later epoch. We hear of it from the controller, or have heard meanwhile."""
        if asked_epoch == state.current_leader_epoch:
            self._fail(
                state,
                f"the leader is in a later epoch than {asked_epoch}, which the controller has yet to tell",
                event=Event.FOLLOWER_FENCED,
            )
        else:
            self._retry(state)

    def _retry(self, state: PartitionFetchState) -> None:
        """Again soon, then less and less soon: the leader is behind by milliseconds as a rule."""
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
        """Leaves the partition alone for replica.fetch.backoff.ms, unless it is already being left alone.

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
        if self.states and trouble != self._trouble:
            self._trouble = trouble
            self._manager.host.log_event(
                Event.LEADER_UNREACHABLE,
                leader=self.leader_id,
                partitions=len(self.states),
                error=error_name(error) if error else None,
                detail=why,
            )

    def _heard(self) -> None:
        """The leader has answered as it should."""
        if self._trouble:
            self._trouble = ""
            self._manager.host.log_event(Event.LEADER_REACHABLE, leader=self.leader_id)

    def _link_lost(self) -> None:
        self.session.begin_anew()
        self._delay_all("the connection was lost, or not made")

    def _fail(
        self,
        state: PartitionFetchState,
        why: str,
        error: ErrorCode = ErrorCode.NONE,
        event: EventType = Event.FOLLOWER_FETCHER_FAILED,
    ) -> None:
        """The partition is followed no more. When it is for its log's sake it is offline, too."""
        key = state.partition.key
        self.remove(key)
        self._manager.partition_failed(key)
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
        """Files a state that is new or whose phase or delay changed."""
        key = state.partition.key
        self.states[key] = state
        self._touched[key] = None
        if state.delay_until_ms is None:
            self._delayed.pop(key, None)
        else:
            self._delayed[key] = None
        if state.phase is FETCHING:
            self._asking.pop(key, None)
        else:
            self._asking[key] = None
