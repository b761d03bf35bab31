"""Changes of partitions on their way into the journal, and what is told of them to people.

All changes of one step are one batch of the journal: either all of them happen or none. A partition may move several
times within a step (a reassignment's end); each move costs its epochs and stands in the journal.
"""

from __future__ import annotations

from collections import deque

from kwire.protocol.errors import KafkaError
from kwire.replication.controller.election import UNCLEAN
from kwire.replication.controller.state import DeposedError, partition_record
from kwire.replication.core.events import Event

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Container, Mapping

    from kwire.replication.controller.batch import RequestBatch
    from kwire.replication.controller.context import ControllerContext
    from kwire.replication.controller.election import Elected
    from kwire.replication.controller.state import Journal, PartitionState, Record, TopicState
    from kwire.replication.core.events import EventType, LogEvent

_REWRITE_ABOVE = 1000  # records
_EVENTS_KEPT = 1000

REASSIGNMENT_BEGUN, REASSIGNMENT_CANCELLED = "reassignment begun", "reassignment given up"
_LAST_KNOWN_LEADER = "last known leader"  # as in eligible_leaders.py
_UNCLEAN = (UNCLEAN, _LAST_KNOWN_LEADER)
_NOBODY: Mapping[tuple[str, int], int] = {}


class PartitionEvent:
    """A partition got another leader or another ISR. `why`: the kind of election, or what else it was."""

    __slots__ = ("after", "before", "now_ms", "partition", "topic", "why")

    def __init__(
        self,
        topic: str,
        partition: int,
        before: PartitionState,
        after: PartitionState,
        why: str,
        now_ms: int,
    ) -> None:
        self.topic = topic
        self.partition = partition
        self.before = before
        self.after = after
        self.why = why
        self.now_ms = now_ms

    @property
    def is_election(self) -> bool:
        return self.before.leader != self.after.leader

    @property
    def event(self) -> EventType:
        """Which event it is: of several that apply, the one that tells most."""
        before, after = self.before, self.after
        if _assignment(before) != _assignment(after):
            if self.why == REASSIGNMENT_CANCELLED:
                return Event.REASSIGNMENT_CANCELLED
            is_going_on = after.reassigning
            return Event.REASSIGNMENT_STARTED if is_going_on else Event.REASSIGNMENT_COMPLETED
        if before.leader != after.leader:
            if after.leader < 0:
                return Event.PARTITION_OFFLINE
            is_unclean = self.why in _UNCLEAN
            return Event.UNCLEAN_LEADER_ELECTED if is_unclean else Event.LEADER_ELECTED
        if len(before.isr) != len(after.isr):
            is_larger = len(before.isr) < len(after.isr)
            return Event.ISR_EXPANDED if is_larger else Event.ISR_SHRUNK
        return Event.PARTITION_CHANGED

    def fields(self) -> dict[str, object]:
        """The fields of `event`, without the controller epoch."""
        before, after = self.before, self.after
        return {
            "topic": self.topic,
            "partition": self.partition,
            "previous_leader": _leader(before.leader),
            "leader": _leader(after.leader),
            "previous_isr": before.isr,
            "isr": after.isr,
            "previous_elr": before.elr,
            "elr": after.elr,
            "previous_replicas": before.replicas,
            "replicas": after.replicas,
            "recovering": after.recovering,
            "leader_epoch": after.leader_epoch,
            "partition_epoch": after.partition_epoch,
            "reason": self.why.replace(" ", "_"),
        }

    def __str__(self) -> str:
        return self.event.text(self.fields())


def _assignment(state: PartitionState) -> tuple[list[int], list[int], list[int]]:
    return state.replicas, state.adding, state.removing


def _leader(broker: int) -> int | None:
    return None if broker < 0 else broker


class ChangeLog:
    """Where decisions become facts: in the journal, then in the state.

    `counts` are of elections and ISR changes; `events` are the last changes of partitions."""

    def __init__(
        self,
        context: ControllerContext,
        journal: Journal,
        *,
        log_event: LogEvent,
        on_refused: Callable[[KafkaError], None],
    ) -> None:
        """`on_refused`: the journal took no more; whoever calls gets the error after that."""
        self._context = context
        self._journal = journal
        self._log_event = log_event
        self._on_refused = on_refused
        self.counts: dict[str, int] = {}
        self.events: deque[PartitionEvent] = deque(maxlen=_EVENTS_KEPT)

    def load(self) -> None:
        """Replays the journal, and rewrites it if it is mostly history. JournalError when it cannot be read."""
        count = 0
        state = self._context.state
        for record in self._journal.replay():
            state.replay(record)
            count += 1
        if count > _REWRITE_ABOVE:
            live = state.records()
            if count > 4 * len(live):  # mostly history: changed and deleted topics
                self._journal.rewrite(live)

    def begin(self) -> Changes:
        """Changes of one step."""
        return Changes(self._context, self)

    def commit(self, records: list[Record]) -> None:
        """Journals the records, then makes them the state. DeposedError; KafkaError(KAFKA_STORAGE_ERROR)."""
        if not self._context.active:
            raise DeposedError
        try:
            self._journal.append(records)
        except DeposedError as error:
            self._on_refused(error)
            raise
        for record in records:
            self._context.state.replay(record)

    def flush(self) -> None:
        """What follows from records that may be lost must not leave: a controller that cannot flush resigns."""
        try:
            self._journal.flush()
        except KafkaError as error:
            self._on_refused(error)
            raise

    def note(self, event: PartitionEvent) -> None:
        """A partition has changed: counted, kept, logged."""
        if event.is_election:
            key = f"elections.{event.why}"
            self.counts[key] = self.counts.get(key, 0) + 1
        difference = len(event.after.isr) - len(event.before.isr)
        if difference:
            key = "isr.expands" if difference > 0 else "isr.shrinks"
            self.counts[key] = self.counts.get(key, 0) + 1
        self.events.append(event)
        self._log_event(event.event, **event.fields())


class Changes:
    """States that partitions are to take. `records`: others that belong to the same step."""

    __slots__ = ("_context", "_events", "_latest", "_log", "records")

    def __init__(self, context: ControllerContext, log: ChangeLog) -> None:
        self._context = context
        self._log = log
        self._latest: dict[tuple[str, int], tuple[TopicState, PartitionState]] = {}
        self._events: list[PartitionEvent] = []
        self.records: list[Record] = []

    def __bool__(self) -> bool:
        return bool(self._latest)

    def current(self, topic: TopicState, index: int) -> PartitionState:
        """The partition's state with the changes so far."""
        latest = self._latest.get((topic.name, index))
        return topic.partitions[index] if latest is None else latest[1]

    def move(
        self,
        topic: TopicState,
        index: int,
        state: PartitionState,
        why: str,
        *,
        unclean: Container[int] = (),
    ) -> None:
        """`unclean`: brokers that may have lost what they had (KIP-966)."""
        before = self.current(topic, index)
        context = self._context
        if context.config.eligible_leader_replicas_enable:
            from kwire.replication.controller.eligible_leaders import followed

            min_isr = context.topic_log_config(topic.name).min_insync_replicas
            state = followed(before, state, min_isr, unclean)
        self._latest[topic.name, index] = topic, state
        self.records.append(partition_record(topic, index, state))
        self._events.append(PartitionEvent(topic.name, index, before, state, why, context.now_ms))

    def elect(
        self,
        topic: TopicState,
        index: int,
        elected: Elected | None,
        why: str,
    ) -> bool:
        """What an election costs: both epochs. False without a winner: nothing changes."""
        if elected is None:
            return False
        partition = self.current(topic, index)
        leader, isr, recovering = elected
        state = partition.moved(
            leader=leader,
            isr=isr,
            leader_epoch=partition.leader_epoch + 1,
            recovering=recovering,
        )
        self.move(topic, index, state, why)
        return True

    def commit(self) -> None:
        """Journals all, then tells of it. KafkaError when the journal refuses: nothing has changed then."""
        if self.records:
            self._log.commit(self.records)
            self.records = []
        for event in self._events:
            self._log.note(event)
        self._events = []

    def add_to(self, batch: RequestBatch, *, but: Mapping[tuple[str, int], int] = _NOBODY) -> None:
        """The changed partitions, as they are now, for their brokers (`but` one each). After `commit`."""
        for key, (topic, _) in self._latest.items():
            batch.partition(topic, key[1], but=but.get(key))
