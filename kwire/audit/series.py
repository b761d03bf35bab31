"""Latencies and lags as lines: rows of many partitions made one line each, at most `MAX_POINTS` long. No I/O."""

from __future__ import annotations

from typing import Final

from kwire.audit import words
from kwire.audit.canvas import broker_colour
from kwire.audit.plots import Curve, Event

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from typing import Any

    from kwire.audit.lanes import Lane, Lanes

    Row = Mapping[str, Any]

MAX_POINTS: Final = 240
MAX_BROKERS: Final = 8
MAX_EVENTS: Final = 40
NO_LAG: Final = 0.1
"""Where nothing is drawn on an axis of powers of ten."""
_SECOND: Final = 1_000_000


def load_window(rows: Sequence[Row]) -> tuple[int, int] | None:
    """From the first to the last send, by the buckets of latencies."""
    times = [row["time"] for row in rows if row["time"] is not None and row["count"]]
    return (min(times), max(times) + _SECOND) if times else None


def latencies(
    rows: Sequence[Row], window: tuple[int, int]
) -> tuple[list[Curve], list[tuple[int, int, str]]]:
    """Lines p50, p99 and max, and what is said about each time.

    Of several partitions: the middle one's p50, the slowest one's p99.
    """
    bucket = max((window[1] - window[0]) // MAX_POINTS, _SECOND)
    by_time: dict[int, list[Row]] = {}
    for row in rows:
        if row["time"] is not None and row["count"] and row["p50_ms"] is not None:
            by_time.setdefault(row["time"] // bucket * bucket, []).append(row)
    half, slow, worst, tips = [], [], [], []
    for time, found in sorted(by_time.items()):
        p50, p99, most = _middle(found), _most(found, "p99_ms"), _most(found, "max_ms")
        at = min(time + bucket // 2, window[1])
        half.append((at, p50))
        slow.append((at, p99))
        worst.append((at, most))
        count = words.plural(sum(each["count"] for each in found), "record")
        said = f"{count} acknowledged\np50 {ms(p50)}, p99 {ms(p99)}, max {ms(most)}"
        tips.append((time, time + bucket, f"{words.clock(time, 0)} UTC\n{said}"))
    lines = [
        Curve("max", "red", "dotted", worst),
        Curve("p99", "amber", "dashed", slow),
        Curve("p50", "blue", "solid", half),
    ]
    return [each for each in lines if each.points], tips


def lags(rows: Sequence[Row], window: tuple[int, int]) -> tuple[list[Curve], int]:
    """A line a broker: records by which its replicas lacked most; and how many brokers are left out."""
    bucket = max((window[1] - window[0]) // MAX_POINTS, 1)
    found: dict[int, dict[int, float]] = {}
    for row in rows:
        if row["time"] is None or row["lag"] is None or not window[0] <= row["time"] <= window[1]:
            continue
        line = found.setdefault(row["broker"] or 0, {})
        time = row["time"] // bucket * bucket
        line[time] = max(line.get(time, NO_LAG), float(row["lag"]))
    lagging = sorted(found, key=lambda each: -max(found[each].values()))
    lagging = [each for each in lagging if max(found[each].values()) > NO_LAG]
    dashes = ("solid", "dashed", "dashdot", "dotted")
    lines = [
        Curve(
            f"broker {each}: {words.number(round(max(found[each].values())))}",
            broker_colour(each),
            dashes[(each - 1) % 4],
            sorted(found[each].items()),
            at_peak=True,
        )
        for each in sorted(lagging[:MAX_BROKERS])
    ]
    return lines, max(len(lagging) - MAX_BROKERS, 0)


def events(lanes: Lanes) -> list[Event]:
    """Elections and times without a leader, those at the same time as one: the first `MAX_EVENTS`."""
    near = max((lanes.end - lanes.begin) // 200, 1)
    gaps: list[Event] = []
    elections: dict[tuple[int, int | None], tuple[int, int]] = {}
    for lane in (*lanes.drawn, *lanes.left_out):
        for before, span in zip([None, *lane.leaders], lane.leaders, strict=False):
            if span.kind == "leaderless":
                gaps.append(Event(span.begin, span.until(lanes.end), _gap(lane)))
            elif before is not None and before.broker != span.broker:
                key = (span.begin // near, span.broker)
                time, count = elections.get(key, (span.begin, 0))
                elections[key] = (min(time, span.begin), count + len(lane.names))
    led = [
        Event(time, None, f"broker {who} leads" + (f" {count} more" if count > 1 else ""))
        for (_, who), (time, count) in elections.items()
    ]
    return sorted([*_joined(gaps, near)[:MAX_EVENTS], *sorted(led)[:MAX_EVENTS]], key=_begin)


def _begin(event: Event) -> int:
    return event.time


def _gap(lane: Lane) -> str:
    return f"{words.some(lane.names)} without a leader"


def _joined(gaps: Iterable[Event], near: int) -> list[Event]:
    """Gaps that overlap, as one."""
    found: list[Event] = []
    for gap in sorted(gaps, key=_begin):
        last = found[-1] if found else None
        if last is not None and gap.time <= (last.end or 0) + near:
            end = max(last.end or 0, gap.end or 0)
            found[-1] = Event(last.time, end, "partitions without a leader")
        else:
            found.append(gap)
    return found


def _middle(rows: Sequence[Row]) -> float:
    """The p50 of the partition that half of the records are slower than."""
    ordered = sorted((row["p50_ms"], row["count"]) for row in rows)
    half, count = sum(each for _, each in ordered) / 2, 0
    for value, each in ordered:
        count += each
        if count >= half:
            return float(value)
    return 0.0


def _most(rows: Sequence[Row], name: str) -> float:
    return max(float(row[name] or 0) for row in rows)


def records(value: float) -> str:
    """Labels of lags, in which a tenth stands for nothing."""
    return words.number(round(value)) if value >= 1 else "0" if value >= NO_LAG else ""


def ms(value: float) -> str:
    """Milliseconds with about three digits, or seconds."""
    if value >= 1000:
        return f"{value / 1000:.3g} s"
    return f"{value:.0f} ms" if value >= 100 else f"{value:.3g} ms"
