"""The plots of an audit's page, by matplotlib: the timeline of partitions, and lines over time.

Each is drawn twice, for wide and for narrow windows: text keeps its size. Times are in microseconds since 1970.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from kwire.audit import words
from kwire.audit.canvas import (
    LEFT,
    NARROW_BELOW,
    TEXT,
    Canvas,
    broker_colour,
    clip_name,
    text_width,
)
from kwire.audit.lanes import fails
from kwire.audit.svg import COLOURS, printable
from kwire.audit.tables import KINDS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from typing import Any

    from kwire.audit.lanes import Lane, Lanes, Mark, Span

LOSS: Final = ("cross", "red")
MARKS: Final = {"unclean": ("diamond", "red"), "truncated": ("back", "purple")}


class Event(NamedTuple):
    """What is marked in a plot of lines: a leader's election, or a time without one (`end`)."""

    time: int
    end: int | None
    text: str


class Curve(NamedTuple):
    """A line; its name stands at its end, or at its highest point."""

    name: str
    colour: str
    dash: str
    points: list[tuple[int, float]]
    at_peak: bool = False


# --- the timeline


def timeline(found: Sequence[Lane], all_lanes: Lanes, name: str, width: int, label: str) -> str:
    """Lanes between two times: leaders as bars, in-sync replicas below, findings above."""
    return _timeline(found, all_lanes.begin, all_lanes.end, all_lanes.replicas, name, width, label)


def closer(
    found: Sequence[Lane], begin: int, end: int, replicas: int, name: str, width: int, label: str
) -> str:
    """The same between other times."""
    return _timeline(found, begin, end, replicas, name, width, label)


def _timeline(
    found: Sequence[Lane], begin: int, end: int, replicas: int, name: str, width: int, label: str
) -> str:
    narrow = width < NARROW_BELOW
    left = 10 if narrow else LEFT
    heights = [_lane_height(lane, narrow, begin, end) for lane in found]
    canvas = Canvas(width, 26 + sum(heights) + 4, left, begin, end)
    canvas.time_axis(24, canvas.height)
    top = 26.0
    for lane, height in zip(found, heights, strict=True):
        canvas.line([0, width], [top, top], "line")
        _Lane(canvas, lane, top, narrow, replicas).draw()
        top += height
    return canvas.render(name, label)


def _lane_height(lane: Lane, narrow: bool, begin: int, end: int) -> float:
    marks = any(begin <= each.time <= end and _shown(each) for each in lane.marks)
    return (18 if narrow else 0) + (20 if marks else 0) + 18 + (16 if lane.isrs else 0) + 14


def _shown(mark: Mark) -> bool:
    return mark.kind in MARKS or fails(mark.kind)


class _Lane:
    """Draws one lane from `top` on."""

    def __init__(self, canvas: Canvas, lane: Lane, top: float, narrow: bool, most: int) -> None:
        self.canvas, self.lane, self.narrow, self.most = canvas, lane, narrow, most
        self.y = top + 7

    def draw(self) -> None:
        self._label()
        marks = [
            each
            for each in self.lane.marks
            if _shown(each) and self.canvas.begin <= each.time <= self.canvas.end
        ]
        if marks:
            self._marks(marks)
            self.y += 20
        for span in self.lane.leaders:
            self._leader(span)
        if not self.lane.leaders:
            self._text(self.canvas.left, self.y + 13, "no events of its leaders", "dim")
        self.y += 20
        for span in self.lane.isrs:
            self._isr(span)

    def _text(self, x: float, y: float, text: str, colour: str, **more: Any) -> None:
        self.canvas.text(x, y, text, colour, **more)

    def _label(self) -> None:
        name = printable(words.partition_name(self.lane.names[0]), 1000)
        more = len(self.lane.names) - 1
        also = f"and {words.number(more)} alike" if more else ""
        listed = ", ".join(words.partition_name(each) for each in self.lane.names[:100])
        tip = self.canvas.tip(listed + (" …" if more >= 100 else ""))
        room = self.canvas.width - 120 if self.narrow else self.canvas.left - 14
        clipped = clip_name(name, room, 12.5, bold=True)
        self._text(4, self.y + 11, clipped, "ink", fontsize=12.5, fontweight="bold", gid=tip)
        if self.narrow:
            if also:
                x = 10 + text_width(clipped, 12.5, bold=True)
                self._text(x, self.y + 11, also, "dim")
            self.y += 18
        elif also:
            self._text(4, self.y + 26, also, "dim")

    def _leader(self, span: Span) -> None:
        canvas = self.canvas
        if span.begin > canvas.end or span.until(canvas.end) < canvas.begin:
            return
        x, right = canvas.x(span.begin), canvas.x(span.until(canvas.end))
        took = words.length(span.until(canvas.end) - span.begin)
        since = f"{words.clock(span.begin)} UTC, " + (
            f"for {took}" if span.end is not None else "to the end"
        )
        if span.kind == "leaderless":
            width = max(right - x, 3)
            tip = canvas.tip(f"nobody leads\n{since}\n{span.detail}".strip())
            hatch = {"hatch": "////", "edgecolor": COLOURS["red"], "linewidth": 1}
            canvas.box(x, self.y, width, 18, "bg", gid=tip, **hatch)
            text = next((t for t in (f"no leader {took}", took) if text_width(t) + 10 < width), "")
            if text:
                half = text_width(text) / 2 + 3
                middle = x + width / 2
                canvas.box(middle - half, self.y + 2, 2 * half, 14, "bg")
                self._text(middle, self.y + 13, text, "red", ha="center", fontweight="bold")
            return
        colour = broker_colour(span.broker)
        epoch = "" if span.epoch is None else f"leader epoch {span.epoch}"
        tip = canvas.tip(f"broker {span.broker} leads, {epoch}\n{since}\n{span.detail}".strip())
        canvas.box(x, self.y, max(right - x - 1, 1), 18, colour, gid=tip)
        options = (f"broker {span.broker} · {epoch}", f"broker {span.broker}", f"{span.broker}")
        text = next((t for t in options if text_width(t) + 12 < right - x), "")
        on = "ink" if colour == "line" else f"t{colour[1:]}"
        self._text(x + 6, self.y + 13, text, on)

    def _isr(self, span: Span) -> None:
        canvas = self.canvas
        if span.begin > canvas.end or span.until(canvas.end) < canvas.begin:
            return
        x, right = canvas.x(span.begin), canvas.x(span.until(canvas.end))
        size, whole = len(span.isr), len(span.isr) >= self.most
        members = ",".join(map(str, sorted(span.isr))) or "nobody"
        tip = canvas.tip(
            f"in sync: {members} ({size} of {self.most})\nfrom {words.clock(span.begin)} UTC"
            f"\n{span.detail}".strip()
        )
        width, thick = max(right - x - 1, 1), 4 if size <= 1 else 2
        canvas.box(x, self.y, width, 13, "up" if whole else "band", gid=tip)
        if not whole:
            canvas.box(x, self.y + 14 - thick, width, thick, "amber")
        options = (f"in sync: {members}", f"ISR {members}", f"{size} of {self.most}", f"{size}")
        text = next((t for t in options if text_width(t) + 10 < right - x), "")
        if text:
            self._text(x + 6, self.y + 10, text, "ink", fontsize=10)

    def _marks(self, marks: Sequence[Mark]) -> None:
        """Above the bar; those that stand close together as one, with words beside it where there is room."""
        canvas, bundles = self.canvas, list[list["Mark"]]()
        for mark in marks:
            near = 20 if mark.kind in MARKS or not bundles or bundles[-1][-1].kind in MARKS else 40
            if bundles and canvas.x(mark.time) - canvas.x(bundles[-1][-1].time) < near:
                bundles[-1].append(mark)
            else:
                bundles.append([mark])
        places = [canvas.x(each[0].time) for each in bundles]
        edge = 0.0 if self.narrow else canvas.left - 4
        y = self.y + 10
        for number, (bundle, x) in enumerate(zip(bundles, places, strict=True)):
            lead = min(bundle, key=_rank)
            kind, colour = MARKS.get(lead.kind, LOSS)
            following = places[number + 1] if number + 1 < len(places) else canvas.right + 12
            tip = canvas.tip(f"{words.clock(bundle[0].time)} UTC\n{_bundle_details(bundle)}")
            first, x = x, canvas.x(bundle[-1].time)
            if x - first > 6:
                canvas.line([first, x], [y, y], colour, 2.4)
                canvas.line([x, x], [y - 4, y + 4], colour, 2.4)
            canvas.shape(kind, first, y, colour, tip)
            style = {"fontsize": TEXT, "fontweight": "bold", "gid": tip}
            free = x + 8
            for text in dict.fromkeys((_bundle_words(bundle), _bundle_words([lead]))):
                width = text_width(text, TEXT, bold=True)
                if x + width + 12 < following - 8:
                    self._text(x + 9, y + 4, text, colour, **style)
                    free = x + 9 + width
                    break
                if first - width - 12 > edge:
                    self._text(first - 9, y + 4, text, colour, ha="right", **style)
                    break
            edge = free


def _rank(mark: Mark) -> int:
    return (1 if mark.kind == "unclean" else 2) if mark.kind in MARKS else 0


def _bundle_counts(bundle: Iterable[Mark]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for each in sorted(bundle, key=_rank):
        counts[each.kind] = counts.get(each.kind, 0) + each.amount
    return counts


def _bundle_words(bundle: Sequence[Mark]) -> str:
    """ "3 lost, unclean election"."""
    parts = []
    for kind, count in _bundle_counts(bundle).items():
        if kind == "unclean":
            parts.append("unclean election")
        elif kind == "truncated":
            parts.append("truncated")
        else:
            parts.append(f"{words.number(count)} {KINDS[kind].words if kind in KINDS else kind}")
    return printable(", ".join(parts), 60)


def _bundle_details(bundle: Sequence[Mark]) -> str:
    details = [
        f"broker {each.broker}: {each.kind} {each.detail}".strip()
        for each in bundle
        if each.kind in MARKS
    ]
    found = [
        words.found_words(kind, count)
        for kind, count in _bundle_counts(bundle).items()
        if kind not in MARKS
    ]
    return "\n".join([*found, *details][:12])


# --- lines over time


def curves(
    found: Sequence[Curve],
    events: Sequence[Event],
    window: tuple[int, int],
    scale: Callable[[float], str],
    name: str,
    width: int,
    label: str,
    tips: Sequence[tuple[int, int, str]],
) -> str:
    """Lines over time, y by powers of ten, which `scale` labels. `tips`: what is said from a time to another."""
    canvas = Canvas(width, 236, 48 if width < NARROW_BELOW else LEFT, *window)
    canvas.right = min(canvas.right, width - 40)
    top, bottom = (60.0 if any(each.at_peak for each in found) else 46.0), 226.0
    low, high = _decades([value for curve in found for _, value in curve.points])
    canvas.time_axis(24, bottom)

    def y(value: float) -> float:
        share = (_log(value) - low) / (high - low)
        return bottom - min(max(share, 0.0), 1.0) * (bottom - top)

    for power in range(low, high + 1):
        canvas.line([canvas.left, canvas.right], [y(10.0**power)] * 2, "grid")
        canvas.text(canvas.left - 6, y(10.0**power) + 4, scale(10.0**power), "dim", ha="right")
    _events(canvas, events, bottom)
    ends: list[tuple[float, float]] = []
    for curve in found:
        _curve(canvas, curve, y, ends)
    for begin, end, text in tips:
        x = canvas.x(begin)
        given = {"alpha": 0.0, "gid": canvas.tip(text)}
        canvas.box(x, 26, max(canvas.x(end) - x, 1), bottom - 26, "bg", **given)
    return canvas.render(name, label)


def _curve(
    canvas: Canvas, curve: Curve, y: Callable[[float], float], ends: list[tuple[float, float]]
) -> None:
    """A line with its name; `ends`: where others' names stand."""
    xs, ys = [canvas.x(t) for t, _ in curve.points], [y(value) for _, value in curve.points]
    canvas.line(xs, ys, curve.colour, 1.8, linestyle=curve.dash, solid_capstyle="round")
    if len(xs) == 1:
        canvas.shape("dot", xs[0], ys[0], curve.colour, "")
    if curve.at_peak:
        peak = ys.index(min(ys))
        width = text_width(curve.name)
        beside = xs[peak] > canvas.left + width / 2
        x, at = xs[peak], ys[peak] - 6
        while any(abs(at - y) < 12 and abs(x - other) < width for other, y in ends):
            at -= 12
        ends.append((x, at))
        canvas.text(x, at, curve.name, ha="center" if beside else "left")
        return
    at = ys[-1]
    while any(abs(at - other) < 12 for _, other in ends):
        at -= 3 if at > 60 else -50
    ends.append((canvas.right, at))
    style = {"fontsize": TEXT, "fontweight": "bold"}
    canvas.text(canvas.right + 6, at + 4, curve.name, curve.colour, **style)


def _events(canvas: Canvas, events: Sequence[Event], bottom: float) -> None:
    free = canvas.left
    for each in events:
        x = canvas.x(each.time)
        tip = canvas.tip(f"{words.clock(each.time)} UTC\n{each.text}")
        if each.end is not None:
            width = max(canvas.x(each.end) - x, 2)
            canvas.box(x, 26, width, bottom - 26, "red", gid=tip, alpha=0.16)
            continue
        canvas.line([x, x], [26, bottom], "dim", 1.2, linestyle=(0, (3, 2)), gid=tip)
        if x >= free and x + text_width(each.text) + 8 < canvas.width:
            canvas.text(x + 4, 37, each.text, "dim", gid=tip)
            free = x + text_width(each.text) + 12


def _log(value: float) -> float:
    from math import log10

    return log10(max(value, 1e-6))


def _decades(values: Sequence[float]) -> tuple[int, int]:
    """The powers of ten around all values; at least two."""
    from math import ceil, floor

    known = [each for each in values if each > 0] or [1.0]
    low, high = floor(_log(min(known))), ceil(_log(max(known)))
    return (low, high) if high - low >= 2 else (low, low + 2)
