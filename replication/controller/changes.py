"""Changes of partitions on their way into the journal, and what is told of them to people.

All changes of one step are one batch of the journal: either all of them happen or none. A partition may move several
times within a step (a reassignment's end); each move costs its epochs and stands in the journal.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kwire.replication.controller.election import UNCLEAN
from kwire.replication.controller.state import partition_record
from kwire.replication.core.events import Event

if TYPE_CHECKING:
    from collections.abc import Container, Mapping

    from kwire.replication.controller.batch import RequestBatch
    from kwire.replication.controller.controller import Controller
    from kwire.replication.controller.state import PartitionState, Record, TopicState
    from kwire.replication.core.events import EventType

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


class Changes:
    """States that partitions are to take. `records`: others that belong to the same step."""

    __slots__ = ("_controller", "_events", "_latest", "records")

    def __init__(self, controller: Controller) -> None:
        self._controller = controller
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
        configs = self._controller.configs
        if self._controller.config.eligible_leader_replicas_enable:
            from kwire.replication.controller.eligible_leaders import followed

            min_isr = configs.topic_log_config(topic.name).min_insync_replicas
            state = followed(before, state, min_isr, unclean)
        self._latest[topic.name, index] = topic, state
        self.records.append(partition_record(topic, index, state))
        now_ms = self._controller.now_ms
        self._events.append(PartitionEvent(topic.name, index, before, state, why, now_ms))

    def commit(self) -> None:
        """Journals all, then tells of it. KafkaError when the journal refuses: nothing has changed then."""
        if self.records:
            self._controller.commit(self.records)
            self.records = []
        for event in self._events:
            self._controller.note(event)
        self._events = []

    def add_to(self, batch: RequestBatch, *, but: Mapping[tuple[str, int], int] = _NOBODY) -> None:
        """The changed partitions, as they are now, for their brokers (`but` one each). After `commit`."""
        for key, (topic, _) in self._latest.items():
            batch.partition(topic, key[1], but=but.get(key))
