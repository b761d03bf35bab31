"""What an audit found, in words: the verdict, what happened when, numbers and times as people read them. No I/O."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Final, NamedTuple

from kwire.audit.lanes import fails, order
from kwire.audit.tables import AT_ONCE, KINDS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from typing import Any

    from kwire.audit.lanes import Lane, Lanes, Name
    from kwire.audit.stored import Group

MAX_INCIDENTS: Final = 6
MAX_LINES: Final = 12
_MANY: Final = {
    "lost": ("record was lost", "records were lost"),
    "doubled": ("record is there more than once", "records are there more than once"),
    "reordered": ("record is out of order", "records are out of order"),
    "vanished": ("record was seen, and is gone", "records were seen, and are gone"),
    "partly_visible": (
        "record of a torn transaction is missing",
        "records of torn transactions are missing",
    ),
    "aborted_visible": (
        "record of an aborted transaction is visible",
        "records of aborted transactions are visible",
    ),
    "replica_differs": ("replica differs", "replicas differ"),
    "damaged": ("place of a log is damaged", "places of logs are damaged"),
}


class Verdict(NamedTuple):
    """`state`: good, bad, or unknown where nothing was checked."""

    state: str
    badge: str
    sentence: str
    more: list[str]


class Line(NamedTuple):
    """Something that happened: `state` bad (findings), grave, or plain."""

    time: int
    state: str
    text: str


class Incident(NamedTuple):
    """Changes and findings that lie close together."""

    begin: int
    end: int
    failures: int
    lines: list[Line]
    lanes: list[Lane]


# --- numbers, times, names


def number(value: int) -> str:
    """Digits in groups of three, by thin spaces as in the report."""
    return f"{value:,}".replace(",", "\u202f")


def plural(count: int, word: str, many: str = "") -> str:
    return f"{number(count)} {word if count == 1 else many or word + 's'}"


def clock(time: int, digits: int = 3, day: bool = False) -> str:
    """A time of day in UTC, with so many digits behind the second."""
    try:
        at = datetime.fromtimestamp(0, UTC) + timedelta(microseconds=time)
    except OverflowError:
        return f"{time} µs"
    text = at.strftime("%Y-%m-%d %H:%M:%S" if day else "%H:%M:%S")
    return text + (f".{at.microsecond:06d}"[: digits + 1] if digits else "")


def length(micros: int) -> str:
    """A duration: "12 ms", "1.50 s", "3 min 20 s"."""
    if micros < 10_000:
        return f"{micros / 1000:.1f} ms".replace(".0 ", " ")
    if micros < 1_000_000:
        return f"{micros // 1000} ms"
    if micros < 60_000_000:
        return f"{micros / 1_000_000:.2f} s"
    minutes, seconds = divmod(micros // 1_000_000, 60)
    if minutes < 60:
        return f"{minutes} min {seconds} s"
    return f"{minutes // 60} h {minutes % 60} min"


def records_counted(
    counts: Mapping[str, int], topics: Sequence[Mapping[str, Any]]
) -> dict[str, int]:
    """Findings by kind; of those that are one a partition, the records that they are about."""
    found = dict(counts)
    for kind in AT_ONCE:
        if kind in found:
            found[kind] = sum(each[kind] or 0 for each in topics) or found[kind]
    return found


def partition_name(name: Name) -> str:
    topic, partition = name
    return f"{topic or '?'}" if partition is None else f"{topic}-{partition}"


def some(names: Sequence[Name], shown: int = 1) -> str:
    """ "orders-0", or "orders-0 and 96 more partitions"."""
    first = ", ".join(partition_name(each) for each in names[:shown])
    rest = len(names) - shown
    return first if rest <= 0 else f"{first} and {plural(rest, 'more partition')}"


def found_words(kind: str, count: int) -> str:
    """ "3 records were lost"."""
    one, many = _MANY.get(kind, (f"finding: {kind}", f"findings: {kind}"))
    return plural(count, one, many)


# --- the verdict


def verdict(
    counts: Mapping[str, int],
    groups: Sequence[Group],
    topics: Sequence[Mapping[str, Any]] | None,
    replicas: Sequence[Mapping[str, Any]] | None,
    known: bool,
) -> Verdict:
    """The result in one sentence. `known`: whether there is a table of findings."""
    bad = {kind: count for kind, count in counts.items() if fails(kind) and count}
    if not known:
        return Verdict("unknown", "unknown", "Nothing is known: there is no table of findings.", [])
    if bad:
        return _bad(bad, [each for each in groups if fails(each.kind)])
    said = _records_fine(topics or [], counts)
    if replicas:
        said.append(
            f"All {number(len(replicas))} replicas are equal below the high watermark."
            if len(replicas) > 1
            else "The replica can be read, and there is no other to compare it with."
        )
    if not said:
        sentence = "Nothing was found, but neither records nor replicas were compared."
        return Verdict("unknown", "not checked", sentence, [])
    return Verdict("good", "nothing lost" if topics else "nothing found", said[0], said[1:])


def _records_fine(topics: Sequence[Mapping[str, Any]], counts: Mapping[str, int]) -> list[str]:
    if not topics:
        return []
    acknowledged = sum(each["acknowledged"] or 0 for each in topics)
    expired = counts.get("expired", 0)
    if not acknowledged:
        return ["No record was acknowledged, so none could be lost."]
    if expired:
        return [
            f"None of {plural(acknowledged, 'acknowledged record')} is lost, doubled or out of order:"
            f" {plural(expired, 'is', 'are')} gone by retention, the others are there."
        ]
    if acknowledged == 1:
        return ["The acknowledged record is there, once."]
    return [f"All {number(acknowledged)} acknowledged records are there, once and in order."]


def _bad(bad: Mapping[str, int], groups: Sequence[Group]) -> Verdict:
    parts = [found_words(kind, count) for kind, count in bad.items()]
    what = parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"
    names = sorted({(each.topic or "", each.partition) for each in groups}, key=order)
    if len(names) < 3:
        where = f" in {' and '.join(map(partition_name, names))}"
    else:
        where = f" in {plural(len(names), 'partition')}"
    causes: dict[str, int] = {}
    for each in groups:
        if each.cause:
            text = reason(each.cause) + ("" if each.event is None else f" (event {each.event})")
            causes[text] = causes.get(text, 0) + each.amount
    said = sorted(causes, key=lambda each: -causes[each])
    why = because(said[0]) if len(said) == 1 and len(said[0]) < 300 else ""
    more = [] if why else [f"{number(causes[each])} of them{because(each)}." for each in said[:5]]
    if len(said) > 5 and not why:
        more.append(f"{plural(len(said) - 5, 'further cause')} stand in the table of findings.")
    unexplained = sum(each.amount for each in groups if not each.cause)
    if unexplained:
        more.append(f"No event explains {number(unexplained)} of them.")
    badge = " · ".join(
        f"{number(count)} {KINDS[kind].words if kind in KINDS else kind}"
        for kind, count in bad.items()
    )
    return Verdict("bad", badge, f"{what}{where}{_when(groups)}{why}.", more)


def reason(cause: str) -> str:
    """A cause (`causes.explain`) without what it says of its own record: what explains others, too."""
    record, _, rest = cause.partition(": ")
    if not rest or "offset" not in record:
        return cause
    told, _, why = rest.partition("; ")
    return why if why and told.startswith(("acknowledged ", "read ")) else rest


def because(cause: str) -> str:
    """A cause as the end of a sentence."""
    text = cause.rstrip(".")
    return f", because {text}" if text[:1].islower() else f": {text}"


def _when(groups: Sequence[Group]) -> str:
    first = min((each.first for each in groups if each.first is not None), default=None)
    last = max((each.last for each in groups if each.last is not None), default=None)
    if first is None or last is None:
        return ""
    if last - first < 1000:
        return f" at {clock(first)} UTC"
    if last - first < 1_000_000:
        return f" at {clock(first)} UTC, within {length(last - first)}"
    return f" between {clock(first)} and {clock(last)} UTC"


# --- what happened


def incidents(lanes: Lanes) -> list[Incident]:
    """Elections, times without a leader, truncations and findings, those that lie close together as one; by time."""
    every = [*lanes.drawn, *lanes.left_out]
    near = max(1_500_000, (lanes.end - lanes.begin) // 50)
    moments = sorted(
        ((begin, end, lane) for lane in every for begin, end in _moments(lane, lanes.end)),
        key=lambda each: each[:2],
    )
    found: list[tuple[int, int]] = []
    for begin, end, _ in moments:
        if found and begin - found[-1][1] <= near:
            found[-1] = (found[-1][0], max(found[-1][1], end))
        else:
            found.append((begin, end))
    middles = [(a[1] + b[0]) // 2 for a, b in pairwise(found)]
    return [
        _incident(every, at, (max(at[0] - near, first), min(at[1] + near, last)), lanes.end)
        for at, first, last in zip(
            found, [lanes.begin, *middles], [*middles, lanes.end], strict=False
        )
    ]


def gravest(found: Sequence[Incident], most: int = MAX_INCIDENTS) -> list[Incident]:
    """Those with the most findings, in the order of time."""
    grave = sorted(found, key=lambda each: (-each.failures, each.begin - each.end))
    return sorted(grave[:most], key=lambda each: each.begin)


def _moments(lane: Lane, end: int) -> Iterable[tuple[int, int]]:
    for mark in lane.marks:
        if fails(mark.kind) or mark.kind in ("truncated", "unclean"):
            yield mark.time, mark.time
    for before, span in zip([None, *lane.leaders], lane.leaders, strict=False):
        if span.kind == "leaderless":
            yield span.begin, span.until(end)
        elif before is not None and before.broker != span.broker:
            yield span.begin, span.begin


def _incident(
    every: Sequence[Lane], at: tuple[int, int], around: tuple[int, int], last: int
) -> Incident:
    """`around`: what is said beside it."""
    begin, end = at
    lines: dict[tuple[str, object], list[tuple[int, list[Name], str, int]]] = {}
    involved = []
    for lane in every:
        events = [each for each in _events(lane, last) if around[0] <= each[1] <= around[1]]
        if any(begin <= each[1] <= end for each in events):
            involved.append(lane)
            for key, time, text, amount in events:
                lines.setdefault(key, []).append((time, lane.names, text, amount))
    said = sorted(line for key, each in lines.items() for line in _say(key, each))
    failures = sum(
        mark.amount
        for lane in involved
        for mark in lane.marks
        if fails(mark.kind) and begin <= mark.time <= end
    )
    return Incident(begin, end, failures, said, involved)


def _events(lane: Lane, last: int) -> Iterable[tuple[tuple[str, object], int, str, int]]:
    """What happened to a lane: how it is put together with others', when, in words, how much."""
    for before, span in zip([None, *lane.isrs], lane.isrs, strict=False):
        if before is not None and set(before.isr) != set(span.isr):
            texts = [",".join(map(str, sorted(each.isr))) or "none" for each in (before, span)]
            way = "shrank" if len(span.isr) < len(before.isr) else "changed"
            way = "grew" if len(span.isr) > len(before.isr) else way
            yield ("isr", (way, *texts)), span.begin, f"{way}: {texts[0]} → {texts[1]}", 0
    for before, span in zip([None, *lane.leaders], lane.leaders, strict=False):
        if span.kind == "leaderless":
            open_end = " and still has none" if span.end is None else ""
            gap = span.until(last) - span.begin
            yield ("leaderless", 0), span.begin, open_end, gap
        elif before is not None and before.broker != span.broker:
            epoch = "" if span.epoch is None else f", leader epoch {span.epoch}"
            yield ("leader", span.broker), span.begin, epoch, 0
    for mark in lane.marks:
        if mark.kind in KINDS and not fails(mark.kind):
            continue
        yield (mark.kind, mark.broker), mark.time, mark.detail, mark.amount


def _say(
    key: tuple[str, object], every: Sequence[tuple[int, list[Name], str, int]]
) -> Iterable[Line]:
    kind, who = key
    time = min(each[0] for each in every)
    names = sorted({name for each in every for name in each[1]}, key=order)
    where, text = some(names), every[0][2]
    if kind == "isr":
        yield Line(time, "plain", f"The in-sync replicas of {where} {text}.")
    elif kind == "leaderless":
        _, longest, text, gap = max(every, key=lambda each: each[3])
        if len(names) == 1:
            yield Line(time, "grave", f"{where} had no leader for {length(gap)}{text}.")
        else:
            slow = partition_name(longest[0])
            most = f"{slow} the longest: {length(gap)}{text}"
            yield Line(time, "grave", f"{number(len(names))} partitions had no leader, {most}.")
    elif kind == "leader":
        epoch = text if len(names) == 1 else ""
        yield Line(time, "plain", f"Broker {who} became the leader of {where}{epoch}.")
    elif kind == "unclean":
        broker = "a broker" if who is None else f"broker {who}"
        detail = f": {text}" if text else ""
        said = f"Unclean election: {broker} leads {where} without having been in sync{detail}."
        yield Line(time, "grave", said)
    elif kind == "truncated":
        broker = "A broker" if who is None else f"Broker {who}"
        detail = f": {text}" if text else ""
        yield Line(time, "grave", f"{broker} truncated its log of {where}{detail}.")
    else:
        yield Line(time, "bad", f"{found_words(kind, sum(each[3] for each in every))} in {where}.")
