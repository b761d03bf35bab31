"""Events of partitions as intervals: who led, when nobody did, in-sync sets; and lags, as far as events tell them."""

from __future__ import annotations

import re
from typing import NamedTuple

from kwire.audit.evidence.happenings import (
    BROKER_BACK,
    BROKER_GONE,
    CHANGES,
    TRUNCATIONS,
    Happening,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from datetime import datetime
    from typing import Any

    Place = tuple[str, int]

_LED = re.compile(r"(?P<topic>.+)-(?P<partition>\d+) \(epoch (?P<epoch>\d+)\)\Z")
_BEHIND = re.compile(r"(?P<broker>\d+) \(end offset (?P<end>\d+)")


class Interval(NamedTuple):
    """A row of `tables.TIMELINE`."""

    topic: str
    partition: int
    kind: str
    broker: int | None = None
    epoch: int | None = None
    isr: tuple[int, ...] | None = None
    begin: datetime | None = None
    end: datetime | None = None
    event: int | None = None
    detail: str | None = None


class Lag(NamedTuple):
    """A row of `tables.LAGS`."""

    topic: str
    partition: int
    broker: int
    time: datetime
    lag: int


def intervals(events: Iterable[Happening]) -> list[Interval]:
    """What lasts, and what happened at a moment (begin and end are the same), by the time of its begin."""
    reader = _Reader()
    for event in events:
        reader.read(event)
    found = reader.finished()
    found.sort(key=lambda each: (each.begin is not None, each.begin, each[:3]))
    return found


def of_epochs(rows: Iterable[tuple[Any, ...]]) -> list[Interval]:
    """Leader epochs as intervals, from rows of `replicas.EPOCHS`: from their first record on, leaders unknown."""
    first: dict[tuple[str, int, int], tuple[datetime, int]] = {}
    for row in rows:
        topic, partition, _, epoch, start, time = row
        key = (topic, partition, epoch)
        if time is not None and (key not in first or (time, start) < first[key]):
            first[key] = time, start
    found: list[Interval] = []
    for key in sorted(first):
        topic, partition, epoch = key
        time, start = first[key]
        if found and found[-1][:2] == (topic, partition):
            found[-1] = found[-1]._replace(end=time)
        detail = f"begins at offset {start}, at the latest with its first record"
        found.append(
            Interval(topic, partition, "leader", None, epoch, None, time, None, None, detail)
        )
    return found


def told_lags(events: Iterable[Happening]) -> Iterator[Lag]:
    """The lags that events tell, in records."""
    for event in events:
        fields = event.fields
        if event.event == "NODE_STATUS":
            status = fields.get("partition") or {}
            for follower in status.get("followers") or ():
                if follower.get("lag") is not None:
                    yield Lag(
                        status["topic"],
                        status["partition"],
                        follower["broker_id"],
                        event.time,
                        follower["lag"],
                    )
        elif event.place is not None and event.event == "ISR_EXPAND_PROPOSED":
            behind = fields["log_end_offset"] - fields["replica_end_offset"]
            yield Lag(*event.place, fields["broker_id"], event.time, max(0, behind))
        elif event.place is not None and event.event == "ISR_SHRINK_PROPOSED":
            for each in _BEHIND.finditer(fields["detail"]):
                behind = fields["log_end_offset"] - int(each["end"])
                yield Lag(*event.place, int(each["broker"]), event.time, max(0, behind))


class _Reader:
    """Reads events in the order of time."""

    def __init__(self) -> None:
        self._done: list[Interval] = []
        self._open: dict[Place, dict[str, Interval]] = {}
        """By partition and kind: leader, leaderless, isr."""
        self._gone: dict[int, tuple[datetime, int, str]] = {}
        """Brokers that do not serve: since when, by which event, and that in words."""
        self._begin: datetime | None = None
        self._created: dict[str, datetime] = {}

    def read(self, event: Happening) -> None:
        self._begin = self._begin or event.time
        name, place = event.event, event.place
        if name in CHANGES and place is not None:
            self._change(event, place)
        elif name in TRUNCATIONS and place is not None:
            cut = f"from {event.fields['previous_log_end_offset']} to {event.fields['log_end_offset']}"
            detail = f"{cut}: {event.fields['detail']}"
            epoch = event.fields["leader_epoch"]
            self._moment(event, place, "truncated", event.node, epoch, None, detail)
        elif name in BROKER_GONE and event.broker is not None:
            words = f"broker {event.broker} {BROKER_GONE[name]}"
            self._gone.setdefault(event.broker, (event.time, event.number, words))
            for led in self._led_by(event.broker):
                self._nobody_leads(led, *self._gone[event.broker])
        elif name in BROKER_BACK and event.broker is not None:
            self._gone.pop(event.broker, None)
            for led in self._led_by(event.broker):
                self._close(led, "leaderless", event.time)
        elif name in ("ROLES_CHANGED", "ROLES_ASSIGNED"):
            self._roles(event)
        elif name == "TOPIC_CREATED" and event.topic is not None:
            self._created[event.topic] = event.time
        elif name == "TOPIC_DELETED" or name == "RESET_REQUESTED":
            self._forget(event.topic, event.time)

    def finished(self) -> list[Interval]:
        return [*self._done, *(each for kinds in self._open.values() for each in kinds.values())]

    def _change(self, event: Happening, place: Place) -> None:
        fields = event.fields
        leader, epoch = fields["leader"], fields["leader_epoch"]
        isr = tuple(sorted(fields["isr"]))
        if place not in self._open:
            self._begin_with(event, place)
        opened = self._open[place]
        if event.event == "UNCLEAN_LEADER_ELECTED":
            detail = f"leader {fields['previous_leader'] or 'none'} -> {leader}"
            self._moment(event, place, "unclean", leader, epoch, isr, detail)
        led = opened.get("leader")
        if led is None or (led.broker, led.epoch) != (leader, epoch) or leader is None:
            self._close(place, "leader", event.time)
            if leader is None:
                words = f"no leader: {fields['reason'].replace('_', ' ')}"
                self._nobody_leads(place, event.time, event.number, words)
            else:
                self._close(place, "leaderless", event.time)
                reason = fields["reason"].replace("_", " ")
                self._enter(place, "leader", event, broker=leader, epoch=epoch, detail=reason)
        held = opened.get("isr")
        if held is None or held.isr != isr:
            self._close(place, "isr", event.time)
            reason = fields["reason"].replace("_", " ")
            self._enter(place, "isr", event, epoch=epoch, isr=isr, detail=reason)

    def _begin_with(self, event: Happening, place: Place) -> None:
        """Open what held before the first change of a partition."""
        fields = event.fields
        begin = self._created.get(place[0], self._begin)
        leader, isr = fields["previous_leader"], tuple(sorted(fields["previous_isr"]))
        epoch = fields["leader_epoch"] - (leader != fields["leader"])
        opened = self._open[place] = {}
        if leader is not None:
            opened["leader"] = Interval(*place, "leader", leader, epoch, None, begin)
            if leader in self._gone:
                self._nobody_leads(place, *self._gone[leader])
        if isr:
            opened["isr"] = Interval(*place, "isr", None, epoch, isr, begin)

    def _roles(self, event: Happening) -> None:
        """What a broker leads, where the controller has not said more."""
        for name in event.fields.get("led") or ():
            match = _LED.match(name)
            if match is None or event.node is None:
                continue
            place = match["topic"], int(match["partition"])
            if place not in self._open:
                self._open[place] = {}
                epoch = int(match["epoch"])
                self._enter(place, "leader", event, broker=event.node, epoch=epoch)

    def _led_by(self, broker: int) -> list[Place]:
        return [
            place
            for place, opened in self._open.items()
            if "leader" in opened and opened["leader"].broker == broker
        ]

    def _nobody_leads(self, place: Place, begin: datetime, event: int, words: str) -> None:
        self._open[place].setdefault(
            "leaderless", Interval(*place, "leaderless", begin=begin, event=event, detail=words)
        )

    def _enter(
        self,
        place: Place,
        kind: str,
        event: Happening,
        *,
        broker: int | None = None,
        epoch: int | None = None,
        isr: tuple[int, ...] | None = None,
        detail: str | None = None,
    ) -> None:
        interval = Interval(
            *place, kind, broker, epoch, isr, event.time, None, event.number, detail
        )
        self._open[place][kind] = interval

    def _close(self, place: Place, kind: str, at: datetime) -> None:
        interval = self._open[place].pop(kind, None)
        if interval is not None:
            self._done.append(interval._replace(end=at))

    def _moment(
        self,
        event: Happening,
        place: Place,
        kind: str,
        broker: int | None,
        epoch: int,
        isr: tuple[int, ...] | None,
        detail: str,
    ) -> None:
        self._done.append(
            Interval(*place, kind, broker, epoch, isr, event.time, event.time, event.number, detail)
        )

    def _forget(self, topic: str | None, at: datetime) -> None:
        """Close all partitions of a topic, or of all."""
        for place in [each for each in self._open if topic in (None, each[0])]:
            for kind in list(self._open[place]):
                self._close(place, kind, at)
            del self._open[place]
