"""Partition changes: commit to the journal and the state, then counters and events.

All changes of one step are one batch of the journal: either all of them take effect or none. A
decision about very many partitions is several steps, each with a batch. A partition may change
several times within a step (the end of a reassignment); each change raises its epochs and has its
own record.
"""

from __future__ import annotations

from collections import deque

from kwire.protocol.errors import KafkaError
from kwire.replication.controller.election import UNCLEAN
from kwire.replication.controller.state import DeposedError, partition_record
from kwire.replication.core.events import Event
from kwire.replication.core.types import NO_LEADER

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
_LEADER_LOST = "leader lost"  # as in partitions.py
_LEADER_NOT_STARTED = "leader not started"
_LAST_KNOWN_LEADER = "last known leader"  # as in eligible_leaders.py
_UNCLEAN = (UNCLEAN, _LAST_KNOWN_LEADER)
_NO_EXCLUSIONS: Mapping[tuple[str, int], int] = {}


class PartitionEvent:
    """One change of a partition. `why`: the kind of election, or another cause."""

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
        """The type of event: of several that apply, the most significant."""
        before, after = self.before, self.after
        if _assignment(before) != _assignment(after):
            if self.why == REASSIGNMENT_CANCELLED:
                return Event.REASSIGNMENT_CANCELLED
            is_going_on = after.reassigning
            return Event.REASSIGNMENT_STARTED if is_going_on else Event.REASSIGNMENT_COMPLETED
        if before.leader != after.leader:
            if after.leader < 0:
                is_starting = self.why == _LEADER_NOT_STARTED
                return Event.PARTITION_WAITING if is_starting else Event.PARTITION_OFFLINE
            is_unclean = self.why in _UNCLEAN
            return Event.UNCLEAN_LEADER_ELECTED if is_unclean else Event.LEADER_ELECTED
        if len(before.isr) != len(after.isr):
            is_larger = len(before.isr) < len(after.isr)
            return Event.ISR_EXPANDED if is_larger else Event.ISR_SHRUNK
        return Event.PARTITION_CHANGED

    def fields(self) -> dict[str, object]:
        """Return the fields of `event`, without the controller epoch."""
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
    """Commits records to the journal, then to the state.

    `counts`: elections and ISR changes. `events`: the latest partition changes."""

    def __init__(
        self,
        context: ControllerContext,
        journal: Journal,
        *,
        log_event: LogEvent,
        on_refused: Callable[[KafkaError], None],
    ) -> None:
        """`on_refused`: called when the journal refuses records, before the error is raised."""
        self._context = context
        self._journal = journal
        self._log_event = log_event
        self._on_refused = on_refused
        self.counts: dict[str, int] = {}
        self.events: deque[PartitionEvent] = deque(maxlen=_EVENTS_KEPT)

    def load(self) -> None:
        """Replay the journal; rewrite it if most records are outdated.

        JournalError when it is unreadable."""
        count = 0
        state = self._context.state
        for record in self._journal.replay():
            state.replay(record)
            count += 1
        if count > _REWRITE_ABOVE:
            live = state.records()
            if count > 4 * len(live):  # mostly outdated: changed and deleted topics
                self._journal.rewrite(live)

    def begin(self, *, is_restart: bool = False) -> Changes:
        """Return an empty collection of changes for one step. `is_restart`: of the whole cluster."""
        return Changes(self._context, self, is_restart=is_restart)

    def commit(self, records: list[Record]) -> None:
        """Journal the records, then apply them to the state.

        DeposedError: another controller has taken over. KafkaError(KAFKA_STORAGE_ERROR)."""
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
        """Flush the journal before the step's effects leave; a controller that cannot flush
        resigns."""
        try:
            self._journal.flush()
        except KafkaError as error:
            self._on_refused(error)
            raise

    def resign(self, error: KafkaError) -> None:
        """Let the controller resign: the journal has refused the rest of a decision."""
        self._on_refused(error)

    def when_flushed(self, callback: Callable[[], None]) -> None:
        """Call back once the records so far are durable."""
        self._journal.when_flushed(callback)

    def log_event(self, event: EventType, **fields: object) -> None:
        """Log what belongs to no partition."""
        self._log_event(event, **fields)

    def metrics(self) -> dict[str, int]:
        """Return gauges by Kafka's names (KafkaController), and `counts`."""
        context = self._context
        offline = imbalanced = partitions = 0
        for _, _, partition in context.partitions():
            partitions += 1
            offline += partition.leader == NO_LEADER
            imbalanced += partition.leader != partition.replicas[0]
        return {
            "ActiveControllerCount": int(context.active),
            "ActiveBrokerCount": len(context.brokers),
            "GlobalTopicCount": len(context.state.topics),
            "GlobalPartitionCount": partitions,
            "OfflinePartitionsCount": offline,
            "PreferredReplicaImbalanceCount": imbalanced,
            **self.counts,
        }

    def record_event(self, event: PartitionEvent) -> None:
        """Count, keep and log a partition change."""
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
    """New partition states of one step, not committed yet.

    `records`: other records of the same step."""

    __slots__ = ("_context", "_events", "_is_restart", "_latest", "_log", "records")

    def __init__(self, context: ControllerContext, log: ChangeLog, *, is_restart: bool) -> None:
        self._is_restart = is_restart
        self._context = context
        self._log = log
        self._latest: dict[tuple[str, int], tuple[TopicState, PartitionState]] = {}
        self._events: list[PartitionEvent] = []
        self.records: list[Record] = []

    def __bool__(self) -> bool:
        return bool(self._latest)

    def current(self, topic: TopicState, index: int) -> PartitionState:
        """Return the partition's state with the changes so far."""
        latest = self._latest.get((topic.name, index))
        return topic.partitions[index] if latest is None else latest[1]

    def set_state(
        self,
        topic: TopicState,
        index: int,
        state: PartitionState,
        why: str,
        *,
        unclean: Container[int] = (),
    ) -> None:
        """Change a partition's state. `unclean`: brokers that may have lost records (KIP-966)."""
        if why == _LEADER_LOST and self._is_restart:
            why = _LEADER_NOT_STARTED
        before = self.current(topic, index)
        context = self._context
        if context.config.eligible_leader_replicas_enable:
            from kwire.replication.controller.eligible_leaders import update_eligible

            min_isr = context.topic_log_config(topic.name).min_insync_replicas
            state = update_eligible(before, state, min_isr, unclean)
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
        """Apply the result of an election: both epochs rise.

        False, and no change, if nobody was elected."""
        if elected is None:
            return False
        partition = self.current(topic, index)
        leader, isr, recovering = elected
        state = partition.with_leader_and_isr(
            leader=leader,
            isr=isr,
            leader_epoch=partition.leader_epoch + 1,
            recovering=recovering,
        )
        self.set_state(topic, index, state, why)
        return True

    def commit(self, *, is_rest: bool = False) -> None:
        """Journal all changes, then count and log them; again for those that have come since.

        KafkaError from the journal: nothing has changed. `is_rest`: the first part of the same
        decision was journaled before, so that a controller that cannot finish it resigns."""
        if self.records:
            try:
                self._log.commit(self.records)
            except KafkaError as error:
                if is_rest:
                    self._log.resign(error)
                raise
            self.records = []
        for event in self._events:
            self._log.record_event(event)
        self._events = []

    def add_to(
        self, batch: RequestBatch, *, exclude: Mapping[tuple[str, int], int] = _NO_EXCLUSIONS
    ) -> None:
        """Add the changed partitions to a batch, after `commit`.

        `exclude`: for a partition, a replica that gets no LeaderAndIsr."""
        for key, (topic, _) in self._latest.items():
            batch.add_partition(topic, key[1], exclude=exclude.get(key))
