"""What events and logs say of partitions and brokers, at hand for those who ask why. Small, pure, picklable."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from datetime import timedelta

from kwire.audit.evidence.happenings import (
    BROKER_BACK,
    BROKER_GONE,
    CHANGES,
    TRUNCATIONS,
    Happening,
)
from kwire.audit.evidence.intervals import Interval, intervals

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import datetime
    from typing import Any

    Place = tuple[str, int]

SLACK = timedelta(milliseconds=50)
"""Clocks of clients and brokers may differ by so much, where the order of two times decides."""


@dataclass
class Known:
    """What events and logs say of each partition and broker, in the order of time."""

    elections: dict[Place, list[Happening]] = field(default_factory=lambda: defaultdict(list))
    truncations: dict[Place, list[Happening]] = field(default_factory=lambda: defaultdict(list))
    others: dict[Place, list[Happening]] = field(default_factory=lambda: defaultdict(list))
    """Recoveries and deletions of segments."""
    deleted: dict[str, list[Happening]] = field(default_factory=lambda: defaultdict(list))
    gone: dict[int, list[Happening]] = field(default_factory=lambda: defaultdict(list))
    """When brokers were killed, paused, …"""
    back: dict[int, list[Happening]] = field(default_factory=lambda: defaultdict(list))
    links: list[Happening] = field(default_factory=list)
    transactions: list[Happening] = field(default_factory=list)
    spans: dict[Place, list[Interval]] = field(default_factory=lambda: defaultdict(list))
    """Of leaders and ISRs."""
    begins: dict[Place, dict[int, tuple[int, datetime | None]]] = field(
        default_factory=lambda: defaultdict(dict)
    )
    """Leader epochs in the logs: their first offset and first record's time."""

    @classmethod
    def of(cls, events: Sequence[Happening], epochs: Iterable[tuple[Any, ...]] = ()) -> Known:
        known = cls()
        for event in events:
            known._add(event)
        for interval in intervals(events):
            if interval.kind in ("leader", "isr"):
                known.spans[interval.topic, interval.partition].append(interval)
        for topic, partition, _, epoch, start, time in epochs:
            begins = known.begins[topic, partition]
            before = begins.get(epoch)
            begins[epoch] = (
                min(start, before[0]) if before else start,
                (before[1] if before and before[1] else time),
            )
        return known

    def _add(self, event: Happening) -> None:
        name, place = event.event, event.place
        if name in CHANGES and place is not None:
            if event.fields["previous_leader"] != event.fields["leader"] is not None:
                self.elections[place].append(event)
        elif name in TRUNCATIONS and place is not None:
            self.truncations[place].append(event)
        elif place is not None and name in (
            "SEGMENTS_DELETED",
            "RECOVERY_TRUNCATED",
            "RECOVERY_EMPTIED_LOG",
        ):
            self.others[place].append(event)
        elif name == "TOPIC_DELETED" and event.topic is not None:
            self.deleted[event.topic].append(event)
        elif name in BROKER_GONE and event.broker is not None:
            self.gone[event.broker].append(event)
        elif name in BROKER_BACK and event.broker is not None:
            self.back[event.broker].append(event)
        elif name in ("CUT_REQUESTED", "DELAY_REQUESTED", "HEAL_REQUESTED"):
            self.links.append(event)
        elif "transactional_id" in event.fields:
            self.transactions.append(event)

    def log_end_of(self, election: Happening) -> int | None:
        """Where the log of a new leader ended: its epoch begins there, and so followers were truncated to there."""
        place, epoch = election.place, election.fields["leader_epoch"]
        assert place is not None
        begin = self.begins[place].get(epoch)
        if begin is not None:
            return begin[0]
        ends = [
            each.fields["log_end_offset"]
            for each in self.truncations[place]
            if each.fields["leader_epoch"] == epoch and each.time >= election.time
        ]
        return max(ends, default=None)

    def span(self, place: Place, kind: str, time: datetime) -> Interval | None:
        found = None
        for each in self.spans[place]:
            if each.kind == kind and each.begin is not None and each.begin <= time:
                found = each
        return found

    def disturbance(
        self, place: Place, leader: int | None, begin: datetime, end: datetime
    ) -> tuple[int, str] | None:
        """What happened to a partition's leader between two times, the gravest first: number and words."""
        end += SLACK
        for each in self.gone.get(leader, ()) if leader is not None else ():
            came_back = [back.time for back in self.back[leader] if back.time > each.time]  # type: ignore[index]
            if each.time <= end and (not came_back or came_back[0] >= begin):
                words = (
                    f"broker {leader}, its leader, {BROKER_GONE[each.event]} at {clock(each.time)}"
                )
                return each.number, words
        for each in self.elections[place]:
            if begin <= each.time <= end:
                return each.number, elected(each, None)
        for each, until in self.cuts():
            if each.time <= end and (until is None or until >= begin):
                sides = (each.fields["nodes"], each.fields["others"])
                if leader is None or any(leader in side for side in sides):
                    verb = "were cut" if each.event == "CUT_REQUESTED" else "were slow"
                    links = " | ".join(ids(side) for side in sides)
                    words = f"the links {links} {verb} from {clock(each.time)} on"
                    return each.number, f"{words}, and broker {leader}, its leader, answered late"
        return None

    def cuts(self) -> Iterable[tuple[Happening, datetime | None]]:
        """Cuts and delays, and when the next heal ended them."""
        for i, each in enumerate(self.links):
            if each.event != "HEAL_REQUESTED":
                later = self.links[i + 1 :]
                yield each, next((x.time for x in later if x.event == "HEAL_REQUESTED"), None)

    def epoch_at(self, place: Place, offset: int) -> int | None:
        found = None
        for epoch, (start, _) in sorted(self.begins[place].items()):
            if start <= offset:
                found = epoch
        return found


def elected(election: Happening, log_end: int | None) -> str:
    fields = election.fields
    how = " uncleanly" if election.event == "UNCLEAN_LEADER_ELECTED" else ""
    end = f" with log end {log_end}" if log_end is not None else ""
    at = clock(election.time)
    return (
        f"broker {fields['leader']} was elected{how} in epoch {fields['leader_epoch']} at {at}{end}"
    )


def ids(brokers: Iterable[int] | None) -> str:
    return ",".join(map(str, brokers or ()))


def clock(time: datetime) -> str:
    return time.strftime("%H:%M:%S.%f")[:-3]
