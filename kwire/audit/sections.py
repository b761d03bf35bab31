"""The parts of an audit's page that are text: verdict, numbers, what happened, and the tables. HTML, no I/O.

Every text that comes from a cluster goes through `text`: it is escaped, and characters that cannot be seen are shown.
"""

from __future__ import annotations

import html
from typing import Final

from kwire.audit import words
from kwire.audit.lanes import fails
from kwire.audit.svg import printable
from kwire.audit.tables import KINDS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from typing import Any

    from kwire.audit.words import Incident, Verdict

    Row = Mapping[str, Any]

MAX_TABLE: Final = 400
"""Rows of the tables of replicas and topics."""
_COLUMNS: Final = (
    *("kind", "partition", "offset", "producer", "number", "key", "broker"),
    *("time (UTC)", "why"),
)
_OPTIONAL: Final = ("offset", "producer", "number", "key", "broker")
_SIGNS: Final = {
    "good": '<circle cx="22" cy="22" r="20" fill="#00795a" class="f-green"/>'
    '<path d="M12.5 22.5l7 7 12.5-14" fill="none" stroke="#ffffff" class="s-bg" stroke-width="4"/>',
    "bad": '<path d="M22 2.5L42.5 40h-41z" fill="#c23b00" class="f-red"/>'
    '<path d="M22 15v13M22 33v3" fill="none" stroke="#ffffff" class="s-bg" stroke-width="4"/>',
    "unknown": '<circle cx="22" cy="22" r="19" fill="none" stroke="#566372" class="s-dim" stroke-width="3"/>'
    '<path d="M13 22h18" fill="none" stroke="#566372" class="s-dim" stroke-width="4"/>',
}


def text(value: object, limit: int = 300) -> str:
    """A value as text of a page; "" for null."""
    return "" if value is None else html.escape(printable(value, limit))


def verdict(found: Verdict, facts: Sequence[str], running: bool) -> str:
    more = "".join(f"<p>{text(each, 1000)}</p>" for each in found.more)
    so_far = "So far: " if running else ""
    said = "".join(f"<span>{text(each)}</span>" for each in facts)
    return (
        f'<header><div class="verdict {found.state}">'
        f'<svg viewBox="0 0 44 44" aria-hidden="true">{_SIGNS[found.state]}</svg>'
        f'<div><h1>{so_far}{text(found.sentence, 1500)}</h1>{more}<p class="facts">{said}</p></div></div></header>'
    )


def numbers(topics: Sequence[Row] | None, counts: Mapping[str, int]) -> str:
    """What was counted, as tiles: the ledger's and the topic's records, and findings by kind."""
    tiles = []
    for name, label in (
        ("sent", "sent"),
        ("acknowledged", "acknowledged"),
        ("present", "in the topic"),
        ("seen", "seen by readers"),
    ):
        if topics:
            count = sum(each[name] or 0 for each in topics)
            if count or name != "seen":
                tiles.append(("", count, label))
    checked = {"lost": 0, "doubled": 0, "reordered": 0} if topics else {}
    for kind, count in {**checked, **counts}.items():
        label = KINDS[kind].words if kind in KINDS else kind
        if count or kind in checked:
            state = "" if not fails(kind) else "bad" if count else "good"
            tiles.append((state, count, label))
    if not tiles:
        return ""
    items = "".join(
        f'<li class="{state}"><b>{words.number(count)}</b>{text(label)}</li>'
        for state, count, label in tiles
    )
    return f'<ul class="numbers">{items}</ul>'


def incident(found: Incident, picture: str) -> str:
    shown = found.lines[: words.MAX_LINES]
    bad = [each for each in found.lines[words.MAX_LINES :] if each.state == "bad"]
    lines = "".join(
        f'<li class="{each.state}"><time>{words.clock(each.time)}</time><span>{text(each.text, 500)}</span></li>'
        for each in sorted([*shown, *bad[: words.MAX_LINES]])
    )
    rest = len(found.lines) - len(shown) - len(bad[: words.MAX_LINES])
    more = f'<p class="left-out">and {rest} more lines, in timeline/</p>' if rest > 0 else ""
    return f'<div class="incident"><ol>{lines}</ol>{more}{picture}</div>'


def table(heads: Sequence[str], numeric: set[str], rows: Iterable[str]) -> str:
    """A table that scrolls within itself, and can be scrolled by keys."""
    head = "".join(
        f'<th scope="col"{" class=num" if each in numeric else ""}>{each}</th>' for each in heads
    )
    return (
        f'<div class="scroll" tabindex="0"><table><thead><tr>{head}</tr></thead>'
        f"<tbody>{''.join(rows)}</tbody></table></div>"
    )


def findings(rows: Sequence[Row], total: int, folder: str) -> str:
    if not rows:
        return '<p class="empty">None.</p>'
    # Columns of which no row has anything would take the room of the words.
    without = {name for name in _OPTIONAL if all(row[name] is None for row in rows)}
    heads = [name for name in _COLUMNS if name not in without]
    found = table(heads, {"offset", "number", "broker"}, _finding_rows(rows, heads))
    if total <= len(rows):
        return found
    more = words.number(total - len(rows))
    return (
        f'{found}<p class="left-out">These are the first {len(rows)}; {more} more are in {text(folder)}: '
        f'<code>pyarrow.parquet.read_table("findings").to_pandas()</code>, or in Spark '
        f'<code>spark.read.parquet("findings").where("kind = \'lost\'")</code></p>'
    )


def _finding_rows(rows: Sequence[Row], heads: Sequence[str]) -> Iterable[str]:
    before: tuple[str | None, int | None] = (None, None)
    for row in rows:
        why = (row["cause"] and words.reason(row["cause"]), row["event"])
        cells = _finding(row, row["cause"] is not None and why == before)
        state = " class=fails" if fails(str(row["kind"])) else ""
        yield f"<tr{state}>{''.join(cells[name] for name in heads)}</tr>"
        before = why


def _finding(row: Row, again: bool) -> dict[str, str]:
    """A row's cells; of a cause that the row above has, too, only that is said."""
    kind = str(row["kind"])
    label = KINDS[kind].words if kind in KINDS else kind
    name = words.partition_name((str(row["topic"] or ""), row["partition"]))
    event = "" if row["event"] is None else f" (event {row['event']})"
    cause = f"{str(row['cause']).rstrip('.')}{event}; " if row["cause"] else ""
    why = f"{'as above; ' if again else cause}{row['detail'] or ''}".rstrip("; ")
    time = "" if row["time"] is None else words.clock(row["time"], day=True)
    title = KINDS[kind].meaning if kind in KINDS else ""
    return {
        "kind": f'<td class="kind" title="{text(title)}">{text(label)}</td>',
        "partition": _name(name),
        "producer": f'<td class="wide">{text(row["producer"], 60)}</td>',
        "key": f'<td class="record">{key(row["key"])}</td>',
        "time (UTC)": f'<td class="nowrap">{time}</td>',
        "why": f'<td class="wide long">{text(why, 600)}</td>',
        **{
            each: f'<td class="num">{text(row[each])}</td>'
            for each in ("offset", "number", "broker")
        },
    }


def key(value: bytes | None) -> str:
    """A record's key: as text where it is one, else in hex; cut."""
    if value is None:
        return ""
    try:
        found = value[:64].decode()
    except UnicodeDecodeError:
        found = f"0x{value[:24].hex()}"
    return f"<code>{text(found, 48)}</code>"


def replicas(rows: Sequence[Row], total: int) -> str:
    heads = (
        *("partition", "broker", "log start", "log end", "high watermark", "records"),
        *("leader epochs", "first difference"),
    )
    ordered = sorted(rows, key=lambda row: (row["first_difference"] is None, *_place(row)))
    numeric = {*heads[1:6], "first difference"}
    return table(heads, numeric, (_replica(row) for row in ordered[:MAX_TABLE])) + _rest(
        total, "replicas"
    )


def _replica(row: Row) -> str:
    name = words.partition_name((str(row["topic"]), row["partition"]))
    differs = row["first_difference"]
    values = (row[each] for each in ("broker", "log_start", "log_end", "high_watermark", "records"))
    cells = "".join(f'<td class="num">{text(each)}</td>' for each in values)
    last = (
        '<td class="num zero">none</td>'
        if differs is None
        else f'<td class="num hit">{text(differs)}</td>'
    )
    epochs = f'<td class="wide">{text(row["epochs"])}</td>'
    return f"<tr>{_name(name)}{cells}{epochs}{last}</tr>"


def topics(rows: Sequence[Row], total: int) -> str:
    """Counts per partition; kinds of which there is nothing have no column."""
    kinds = [
        each
        for each in KINDS
        if each in ("lost", "doubled", "reordered") or any(row.get(each) for row in rows)
    ]
    columns = ["log_start", "log_end", "sent", "acknowledged", "present", "seen", *kinds]
    columns = [each for each in columns if any(row.get(each) is not None for row in rows)]
    if not any(row.get("seen") for row in rows):
        columns = [each for each in columns if each != "seen"]  # there were no readers
    names = {"log_start": "log start", "log_end": "log end", "present": "in the topic"}
    heads = [names.get(each, KINDS[each].words if each in KINDS else each) for each in columns]

    def line(row: Row) -> str:
        name = words.partition_name((str(row["topic"]), row["partition"]))
        cells = "".join(_count(each, row.get(each)) for each in columns)
        return f"<tr>{_name(name)}{cells}</tr>"

    worst: Callable[[Row], Any] = lambda row: (  # noqa: E731
        -sum(row.get(each) or 0 for each in kinds if fails(each)),
        *_place(row),
    )
    ordered = sorted(rows, key=worst)
    return table(["partition", *heads], set(heads), map(line, ordered[:MAX_TABLE])) + _rest(
        total, "topics"
    )


def _name(partition: str) -> str:
    """The cell with a partition's name: short ones are not broken."""
    return f'<td class="{"nowrap" if len(partition) < 30 else "wide"}">{text(partition)}</td>'


def _count(name: str, value: int | None) -> str:
    state = "" if name not in KINDS else " zero" if not value else " hit" if fails(name) else ""
    return f'<td class="num{state}">{"" if value is None else words.number(value)}</td>'


def _place(row: Row) -> tuple[str, int, int]:
    return (str(row["topic"]), row["partition"] or 0, row.get("broker") or 0)


def _rest(total: int, name: str) -> str:
    if total <= MAX_TABLE:
        return ""
    return f'<p class="left-out">{words.number(total - MAX_TABLE)} more rows are in {name}/</p>'
