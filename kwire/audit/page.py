"""The page of an audit: one HTML file that shows what its tables say, made from them alone.

Whatever there is to see stands in the page as text and SVG: it needs no JavaScript, no network and no other file.
"""

from __future__ import annotations

import os
import re
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Final

from kwire import __version__
from kwire.audit import canvas, plots, sections, series, words
from kwire.audit.lanes import Lane, lanes
from kwire.audit.sections import text
from kwire.audit.stored import Stored
from kwire.audit.svg import COLOURS
from kwire.audit.tables import TABLES
from kwire.errors import KwireError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from kwire.audit.lanes import Lanes
    from kwire.audit.plots import Curve
    from kwire.audit.words import Incident

    Scale = Callable[[float], str]

NAME: Final = "page.html"
REFRESH_SECONDS: Final = 10
_DARK: Final = {
    "b0": "#5bb4ee",
    "b1": "#efb93f",
    "b2": "#3fc89b",
    "b3": "#dd93c8",
    "b4": "#979df0",
    "b5": "#c9e9fa",
    "b6": "#cc9668",
    "b7": "#8b96a3",
    **{f"t{number}": "#10151a" for number in range(8)},
}
_PLACEHOLDER: Final = re.compile("@(STYLE|LIGHT|DARK|CLASSES|REFRESH|TITLE|BODY)@")
_WITHOUT: Final = {
    "timeline": "No timeline: the audit had no events (--events).",
    "latencies": "No latencies: the audit had no ledger.",
    "replicas": "No replicas: the audit had no log directories (--logs).",
    "topics": "No counts: the audit had no ledger.",
    "findings": "There is no table of findings.",
}


def write(out_dir: Path | str, running: bool = False) -> Path:
    """Write page.html beside the tables of an audit, and return its path.

    `running`: the audit goes on; the page says so and loads itself again. A page that is there is replaced whole.
    Raises KwireError if there are no tables, or one cannot be read.
    """
    folder = Path(out_dir)
    stored = Stored(folder)
    if not stored.names and not running:
        raise KwireError(f"{folder}: no tables of an audit ({', '.join(TABLES)})")
    content = render(stored, running).encode("utf-8", "backslashreplace")
    path, new = folder / NAME, folder / f".{NAME}.{os.getpid()}"
    try:
        new.write_bytes(content)
        new.replace(path)
    except OSError as error:
        new.unlink(missing_ok=True)
        raise KwireError(f"{path}: cannot be written: {error.strerror}") from error
    return path


def render(stored: Stored, running: bool) -> str:
    """The page of an audit's tables."""
    made = _Page(stored, running)
    here = Path(__file__).parent
    common = here.parent / "report" / "common.css"
    names = [name for name in COLOURS if name[0] in "bt" and name[1:].isdigit()]
    values = {
        "STYLE": common.read_text(encoding="utf-8").rstrip(),
        "LIGHT": " ".join(f"--{name}: {COLOURS[name]};" for name in names),
        "DARK": " ".join(f"--{name}: {_DARK[name]};" for name in names),
        "CLASSES": "\n".join(
            f".f-{name} {{ fill: var(--{name}); }} .s-{name} {{ stroke: var(--{name}); }}"
            for name in COLOURS
        ),
        "REFRESH": f'<meta http-equiv="refresh" content="{REFRESH_SECONDS}">\n' if running else "",
        "TITLE": text(f"{made.verdict.badge}: audit"),
        "BODY": made.body(),
    }
    template = (here / "page.html").read_text(encoding="utf-8")
    return _PLACEHOLDER.sub(lambda found: values[found[1]], template)


class _Page:
    """What stands in a page, from what the tables have."""

    def __init__(self, stored: Stored, running: bool) -> None:
        self.stored, self.running = stored, running
        self.topics = stored.rows("topics")
        self.findings = stored.counts()
        self.counts = words.records_counted(self.findings, self.topics[0] if self.topics else [])
        self.replicas = stored.rows("replicas")
        self.latencies = stored.rows("latencies")
        self.timeline = stored.rows("timeline")
        window = series.load_window(self.latencies[0]) if self.latencies else None
        size = (window[1] - window[0]) if window else 0
        marks = stored.marks(max(size // 1000, 1000))
        self.lanes: Lanes = lanes(self.timeline[0] if self.timeline else [], marks, window)
        self.incidents = words.incidents(self.lanes)
        self.verdict = words.verdict(
            self.counts,
            stored.groups(),
            self.topics and self.topics[0],
            self.replicas and self.replicas[0],
            "findings" in stored.names,
        )

    def body(self) -> str:
        main = [
            self._running(),
            sections.numbers(self.topics and self.topics[0], self.counts),
            self._happened(),
            self._timeline(),
            self._latencies(),
            self._lags(),
            self._findings(),
            self._tables(),
        ]
        head = sections.verdict(self.verdict, self._facts(), self.running)
        return f"{head}<main>{''.join(main)}{self._footer()}</main>"

    def _facts(self) -> list[str]:
        facts = []
        if self.topics:
            partitions = words.plural(self.topics[1], "partition")
            names = sorted({str(row["topic"]) for row in self.topics[0]})
            facts.append(f"{', '.join(names[:4])}{' …' if len(names) > 4 else ''}: {partitions}")
        if self.lanes.end > 1:
            begin, end = self.lanes.begin, self.lanes.end
            facts.append(f"{words.clock(begin, 0, day=True)} to {words.clock(end, 0)} UTC")
        gaps = [each.leaderless(self.lanes.end) for each in self._all_lanes()]
        if self.timeline and self.timeline[0]:
            longest = max(gaps, default=0)
            elections = sum(len(each.names) * _elections(each) for each in self._all_lanes())
            facts.append(words.plural(elections, "change of leader", "changes of leader"))
            if longest:
                facts.append(f"without a leader for up to {words.length(longest)}")
        return facts

    def _all_lanes(self) -> list[Lane]:
        return [*self.lanes.drawn, *self.lanes.left_out]

    def _running(self) -> str:
        if not self.running:
            return ""
        now = datetime.now(UTC).strftime("%H:%M:%S")
        return (
            f'<p class="note running">The audit is running: this is how it stood at {now} UTC, not its end. '
            f"The page loads itself again every {REFRESH_SECONDS} seconds.</p>"
        )

    # --- plots

    def _happened(self) -> str:
        if not self.incidents:
            return ""
        shown = words.gravest(self.incidents)
        parts = [sections.incident(each, self._closer(each, n)) for n, each in enumerate(shown)]
        rest = len(self.incidents) - len(shown)
        if rest:
            parts.append(
                f'<p class="left-out">and {words.plural(rest, "lesser change")}, see below</p>'
            )
        return f"<h2>What happened <small>UTC</small></h2>{''.join(parts)}"

    def _closer(self, found: Incident, number: int) -> str:
        """The incident's own drawing, where that of the whole time shows it too small."""
        took = max(found.end - found.begin, 400_000)
        begin, end = found.begin - took // 2, found.end + took // 2
        moment = found.begin == found.end and not found.failures
        if moment or (end - begin) * 4 > self.lanes.end - self.lanes.begin or not self.timeline:
            return ""
        shown = sorted(found.lanes, key=lambda each: -each.failures)[:4]
        spans = [span for each in shown for span in (*each.leaders, *each.isrs)]
        if not any(begin < span.begin < end for span in spans):
            return ""  # nothing changes in it: the lines say all
        label = " ".join(each.text for each in found.lines[: words.MAX_LINES])
        most = self.lanes.replicas
        return _pair(
            lambda name, width: plots.closer(shown, begin, end, most, name, width, label),
            f"i{number}",
        )

    def _timeline(self) -> str:
        head = "<h2>Leaders and in-sync replicas <small>by partition</small></h2>"
        if not self.lanes.drawn:
            why = "None." if self.timeline else _WITHOUT["timeline"]
            return f'{head}<p class="empty">{why}</p>'
        found = self.lanes
        label = f"Timeline of {words.plural(found.partitions, 'partition')}."
        picture = _pair(
            lambda name, width: plots.timeline(found.drawn, found, name, width, label), "t"
        )
        if not self.timeline:
            head += f'<p class="empty">{_WITHOUT["timeline"]}</p>'
        return head + self._key() + picture + self._left_out()

    def _left_out(self) -> str:
        said = []
        if self.lanes.left_out:
            count = sum(len(each.names) for each in self.lanes.left_out)
            quiet = not any(each.failures for each in self.lanes.left_out)
            found = "; nothing was found in them" if quiet else ""
            said.append(f"{words.plural(count, 'partition')} are not drawn{found}")
        if self.timeline and self.timeline[1] > len(self.timeline[0]):
            said.append(f"only the first {words.number(len(self.timeline[0]))} intervals are drawn")
        text = "; ".join(said)
        return (
            f'<p class="left-out">{text[:1].upper()}{text[1:]}; see timeline/</p>' if said else ""
        )

    def _key(self) -> str:
        leaders = [span for lane in self.lanes.drawn for span in lane.leaders]
        brokers = sorted({each.broker for each in leaders if each.broker is not None})
        items = [
            f'<li><i style="background: var(--{canvas.broker_colour(each)})"></i>broker {each} leads</li>'
            for each in brokers[:12]
        ]
        if len(brokers) > 12:
            items.append(f"<li>and {len(brokers) - 12} more brokers</li>")
        if any(each.kind == "leaderless" for each in leaders):
            items.append('<li><i class="gap"></i>nobody leads</li>')
        if any(lane.isrs for lane in self.lanes.drawn):
            items.append('<li><i style="background: var(--up)"></i>all in sync</li>')
            items.append('<li><i class="some"></i>some are not</li>')
        signs = {
            "unclean": ("◆", "red", "unclean election"),
            "truncated": ("◀", "purple", "truncated"),
        }
        kinds = {mark.kind for lane in self.lanes.drawn for mark in lane.marks}
        if self.counts and any(each not in signs for each in kinds):
            items.append('<li><b style="color: var(--red)">✕</b>findings</li>')
        for kind, (sign, colour, words_) in signs.items():
            if kind in kinds:
                items.append(f'<li><b style="color: var(--{colour})">{sign}</b>{words_}</li>')
        return f'<ul class="key">{"".join(items)}</ul>'

    def _latencies(self) -> str:
        head = "<h2>From send to acknowledgement <small>by second, logarithmic</small></h2>"
        window = (self.lanes.begin, self.lanes.end)
        rows = self.latencies[0] if self.latencies else []
        lines, tips = series.latencies(rows, window)
        if not lines:
            why = "None." if self.latencies else _WITHOUT["latencies"]
            return f'{head}<p class="empty">{why}</p>'
        worst = max(value for _, value in lines[0].points)
        label = f"Latencies over time; at most {series.ms(worst)}."
        many = len({(row["topic"], row["partition"]) for row in rows}) > 1
        note = "p50 of the middle partition, p99 and max of the slowest one." if many else ""
        drawn = self._curves(lines, series.ms, "l", label, tips)
        return f'{head}{drawn}<p class="left-out">{note}</p>'

    def _lags(self) -> str:
        rows = self.stored.rows("lags")
        window = (self.lanes.begin, self.lanes.end)
        lines, rest = series.lags(rows[0], window) if rows else ([], 0)
        if not lines:
            return ""
        head = "<h2>How far replicas were behind <small>records, the slowest partition of each broker</small></h2>"
        more = f'<p class="left-out">and {words.plural(rest, "more broker")}</p>' if rest else ""
        return (
            head + self._curves(lines, series.records, "g", "Lag of replicas over time.", []) + more
        )

    def _curves(
        self,
        lines: list[Curve],
        scale: Scale,
        name: str,
        label: str,
        tips: list[tuple[int, int, str]],
    ) -> str:
        window, marked = (self.lanes.begin, self.lanes.end), series.events(self.lanes)
        return _pair(
            lambda name, width: plots.curves(
                lines, marked, window, scale, name, width, label, tips
            ),
            name,
        )

    # --- tables

    def _findings(self) -> str:
        total = sum(self.findings.values())
        head = f"<h2>Findings <small>{words.number(total)}</small></h2>"
        if "findings" not in self.stored.names:
            return f'{head}<p class="empty">{_WITHOUT["findings"]}</p>'
        rows = self.stored.findings()
        return head + sections.findings(rows, total, str(self.stored.folder / "findings"))

    def _tables(self) -> str:
        parts = []
        for name, title, found, draw in (
            ("topics", "Records by partition", self.topics, sections.topics),
            ("replicas", "Replicas", self.replicas, sections.replicas),
        ):
            why = "None." if found else _WITHOUT[name]
            shown = draw(*found) if found and found[0] else f'<p class="empty">{why}</p>'
            parts.append(f"<h2>{title}</h2>{shown}")
        return "".join(parts)

    def _footer(self) -> str:
        tables = ", ".join(self.stored.names) or "none"
        now = datetime.now(UTC).strftime("%Y-%m-%d %H:%M:%S")
        return (
            f"<footer>kwire {text(__version__)} audit, {now} UTC. All rows are in Parquet in "
            f"{text(self.stored.folder.absolute())}: {tables}.</footer>"
        )


def _elections(lane: Lane) -> int:
    """How often somebody else led."""
    brokers = [each.broker for each in lane.leaders if each.kind == "leader"]
    return sum(a != b for a, b in pairwise(brokers))


def _pair(draw: Callable[[str, int], str], name: str) -> str:
    """A drawing for wide and for narrow windows; without a style sheet the wide one is seen."""
    wide, narrow = draw(f"{name}w", canvas.WIDE), draw(f"{name}n", canvas.NARROW)
    return f'<div class="plot"><div class="wide">{wide}</div><div class="narrow" hidden>{narrow}</div></div>'
