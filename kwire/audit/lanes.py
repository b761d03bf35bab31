"""Partitions as lanes of a timeline: who led them, how many were in sync, and what was found where.

Partitions to which the same happened share a lane, so that hundreds of them fit on a page. Times are in microseconds
since 1970. No I/O.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, NamedTuple

from kwire.audit.tables import KINDS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from typing import Any

    Name = tuple[str, int | None]
    Found = Mapping[Name, Sequence[tuple[int, str, int]]]

MAX_LANES: Final = 40
MAX_SPANS: Final = 800
"""Leaders of all lanes together, and as many ISRs; of more the shortest are left out."""
LEAST_SPANS: Final = 16
"""… but for so many of each lane."""
_ALIKE: Final = 0.01
"""The part of the whole time by which two partitions' changes may differ for one lane."""


class Span(NamedTuple):
    """An interval of a partition; `end` None while it goes on."""

    kind: str
    begin: int
    end: int | None
    broker: int | None
    epoch: int | None
    isr: tuple[int, ...]
    detail: str
    event: int | None

    def until(self, end: int) -> int:
        """Its end, or that of the drawing."""
        return end if self.end is None else self.end


class Mark(NamedTuple):
    """Something at a moment: a kind of finding, `truncated` or `unclean`."""

    time: int
    kind: str
    amount: int
    broker: int | None = None
    detail: str = ""


@dataclass
class Lane:
    """One partition, or several to which the same happened."""

    names: list[Name]
    leaders: list[Span] = field(default_factory=list)
    """Kinds leader and leaderless, in the order of time."""
    isrs: list[Span] = field(default_factory=list)
    marks: list[Mark] = field(default_factory=list)

    @property
    def failures(self) -> int:
        """Findings that make the audit fail."""
        return sum(each.amount for each in self.marks if fails(each.kind))

    @property
    def unclean(self) -> bool:
        return any(each.kind == "unclean" for each in self.marks)

    def leaderless(self, end: int) -> int:
        """How long in all nobody led."""
        gaps = (each for each in self.leaders if each.kind == "leaderless")
        return sum(max(each.until(end) - each.begin, 0) for each in gaps)


class Lanes(NamedTuple):
    """The lanes of a timeline, the most eventful first."""

    drawn: list[Lane]
    left_out: list[Lane]
    begin: int
    end: int
    replicas: int
    """The largest ISR."""

    @property
    def partitions(self) -> int:
        return sum(len(each.names) for each in (*self.drawn, *self.left_out))


def fails(kind: str) -> bool:
    """Whether a finding of this kind makes the audit fail; one of an unknown kind does."""
    return kind not in ("truncated", "unclean") and (kind not in KINDS or KINDS[kind].fails)


def order(name: Name) -> tuple[object, ...]:
    """Where a partition stands among others: by topic and number, those of internal topics last."""
    topic, partition = name
    return (topic.startswith("__"), topic, -1 if partition is None else partition)


def lanes(
    timeline: Iterable[Mapping[str, Any]], found: Found, window: tuple[int, int] | None = None
) -> Lanes:
    """Lanes of the timeline's rows and the findings' times. `window`: when the load ran, if that is known."""
    every = _every(timeline, found)
    begin, end = _window(every.values(), window)
    for lane in every.values():
        lane.leaders = _within(lane.leaders, begin, end)
        lane.isrs = _within(lane.isrs, begin, end)
        lane.marks = [each for each in lane.marks if begin <= each.time <= end]
        lane.marks.sort(key=lambda each: (each.time, each.kind))
    merged = _merge(every.values(), begin, end)
    merged.sort(key=lambda each: _weight(each, end))
    most = max(MAX_SPANS // max(min(len(merged), MAX_LANES), 1), LEAST_SPANS)
    for lane in merged[:MAX_LANES]:
        lane.leaders, lane.isrs = _longest(lane.leaders, most, end), _longest(lane.isrs, most, end)
    replicas = max((len(span.isr) for lane in merged for span in lane.isrs), default=0)
    return Lanes(merged[:MAX_LANES], merged[MAX_LANES:], begin, end, replicas)


def _every(timeline: Iterable[Mapping[str, Any]], found: Found) -> dict[Name, Lane]:
    every: dict[Name, Lane] = {}
    for row in timeline:
        if row["begin"] is None:
            continue
        name = (str(row["topic"]), row["partition"])
        lane = every.setdefault(name, Lane([name]))
        detail, isr = row["detail"] or "", tuple(row["isr"] or ())
        if row["kind"] in ("truncated", "unclean"):
            lane.marks.append(Mark(row["begin"], row["kind"], 1, row["broker"], detail))
            continue
        span = Span(
            row["kind"],
            row["begin"],
            row["end"],
            row["broker"],
            row["epoch"],
            isr,
            detail,
            row["event"],
        )
        (lane.isrs if row["kind"] == "isr" else lane.leaders).append(span)
    for (topic, partition), marks in found.items():
        name = (str(topic), partition)
        lane = every.setdefault(name, Lane([name]))
        lane.marks += [Mark(*each) for each in marks]
    for lane in every.values():
        lane.leaders.sort(key=lambda each: each.begin)
        lane.isrs.sort(key=lambda each: each.begin)
    return every


def _window(every: Iterable[Lane], window: tuple[int, int] | None) -> tuple[int, int]:
    """From when to when is drawn: the load, what was found, and what happened soon before and after."""
    times, changes = list(window or ()), []
    for lane in every:
        times += [each.time for each in lane.marks if each.kind not in ("truncated", "unclean")]
        changes += [each.time for each in lane.marks]
        for span in (*lane.leaders, *lane.isrs):
            changes += [span.begin] if span.end is None else [span.begin, span.end]
    if not times:
        times = changes
    if not times:
        return 0, 1
    begin, end = min(times), max(times)
    before, after = begin - (end - begin) // 10, end + (end - begin) * 2
    near = [each for each in changes if before <= each <= after]
    begin, end = min([begin, *near]), max([end, *near])
    pad = max((end - begin) // 50, 1000)
    return begin - pad, end + pad


def _within(spans: list[Span], begin: int, end: int) -> list[Span]:
    return [each for each in spans if each.begin < end and each.until(end) > begin]


def _longest(spans: list[Span], most: int, end: int) -> list[Span]:
    """The longest spans, and those without a leader first."""
    if len(spans) <= most:
        return spans
    length = sorted(spans, key=lambda s: (s.kind != "leaderless", s.begin - s.until(end)))
    return sorted(length[:most], key=lambda each: each.begin)


def _merge(every: Iterable[Lane], begin: int, end: int) -> list[Lane]:
    """One lane for partitions to which the same happened at about the same time."""
    near = (end - begin) * _ALIKE
    by_story: dict[object, list[tuple[list[int], Lane]]] = {}
    merged = []
    for lane in sorted(every, key=lambda each: -each.leaderless(end)):
        if any(fails(each.kind) for each in lane.marks):
            merged.append(lane)
            continue
        spans = [*lane.leaders, *lane.isrs]
        story = tuple((s.kind, s.broker, s.end is None, frozenset(s.isr)) for s in spans)
        times = [max(s.begin, begin) for s in spans] + [s.until(end) for s in spans]
        times += [each.time for each in lane.marks]
        kinds = tuple((each.kind, each.broker) for each in lane.marks)
        alike = by_story.setdefault((story, kinds), [])
        for other, first in alike:
            if all(abs(a - b) <= near for a, b in zip(times, other, strict=True)):
                first.names += lane.names
                break
        else:
            alike.append((times, lane))
            merged.append(lane)
    for lane in merged:
        lane.names.sort(key=order)
    return merged


def _weight(lane: Lane, end: int) -> tuple[object, ...]:
    changes = len(lane.leaders) + len(lane.isrs) + len(lane.marks)
    internal, *place = order(lane.names[0])
    return (-lane.failures, internal, not lane.unclean, -lane.leaderless(end), changes < 3, *place)
