"""What an audit says on the terminal: a table of its findings, and what goes on meanwhile."""

from __future__ import annotations

import sys
import threading
from contextlib import contextmanager
from typing import NamedTuple

from kwire.audit.tables import AT_ONCE, KINDS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from datetime import datetime
    from typing import Any

    from pyspark.sql import DataFrame, SparkSession

MOST_LINES = 20
TOTALS = ("acknowledged", "present", *AT_ONCE)
"""Columns of `tables.TOPICS` that `summary` takes, summed."""
_TICK_SECONDS = 0.5


class Finding(NamedTuple):
    """A row of `tables.FINDINGS`."""

    kind: str
    topic: str | None
    partition: int | None
    offset: int | None
    producer: str | None
    number: int | None
    key: bytes | None
    time: datetime | None
    broker: int | None
    event: int | None
    cause: str | None
    detail: str | None

    @classmethod
    def of(cls, row: Any) -> Finding:
        """Of a row of the DataFrame."""
        values = row.asDict()
        if values["key"] is not None:
            values["key"] = bytes(values["key"])
        return cls(**values)

    @property
    def place(self) -> str:
        """For people: "orders-0 offset 17", as far as known."""
        name = self.topic or "-"
        if self.partition is not None:
            name += f"-{self.partition}"
        return name if self.offset is None else f"{name} offset {self.offset}"


def counted(findings: DataFrame) -> dict[str, int]:
    """How many of each kind there are, in the order of `tables.KINDS`."""
    rows = {row.kind: row["count"] for row in findings.groupBy("kind").count().collect()}
    return {kind: rows[kind] for kind in KINDS if kind in rows}


def first(findings: DataFrame, most: int) -> list[Finding]:
    """The first findings, those that fail before those that inform, by kind, place and offset."""
    order = {name: position for position, name in enumerate(KINDS)}
    rows = findings.replace(
        {name: str(position) for name, position in order.items()}, subset="kind"
    )
    names = list(order)
    chosen = rows.orderBy(
        rows.kind.cast("int"), "topic", "partition", "offset", "producer", "number"
    ).limit(most)
    return [Finding.of(row)._replace(kind=names[int(row.kind)]) for row in chosen.collect()]


def failed(counts: Mapping[str, int]) -> bool:
    """Whether the exit status is 1."""
    return any(KINDS[kind].fails for kind in counts)


def totals(topics: DataFrame) -> dict[str, int]:
    """How many records were acknowledged, how many are there, and how many are of the kinds AT_ONCE."""
    row = topics.selectExpr(*(f"sum({name}) as {name}" for name in TOTALS)).first()
    assert row is not None
    return {name: value or 0 for name, value in row.asDict().items()}


def summary(counts: Mapping[str, int], totals: Mapping[str, int] | None) -> str:
    """One line: what was audited, and what was found. `totals`: of `tables.TOPICS`, how many records are acknowledged
    and present, and of the kinds AT_ONCE; None without a ledger."""
    records = {**counts, **{kind: totals[kind] for kind in AT_ONCE if totals and kind in counts}}
    found = ", ".join(f"{count} {KINDS[kind].words}" for kind, count in records.items())
    told = "replicas"
    if totals is not None:
        told = f"{totals['acknowledged']:,} acknowledged, {totals['present']:,} present"
    return f"{told}: {found or 'nothing found'}"


def table(rows: list[Finding], counts: Mapping[str, int]) -> str:
    """At most MOST_LINES lines, one a finding, and how many more there are."""
    cells = [("KIND", "WHERE", "RECORD", "WHAT AND WHY")]
    for row in rows[:MOST_LINES]:
        record = "-" if row.producer is None else f"{row.producer} {row.number}"
        words = "; ".join(text for text in (row.detail, row.cause) if text)
        if row.event is not None:
            words += f" (event {row.event})"
        cells.append((row.kind, row.place, record, words))
    widths = [max(len(row[column]) for row in cells) for column in range(3)]
    lines = [
        "  ".join([*(f"{cell:{width}}" for cell, width in zip(row, widths, strict=False)), row[3]])
        for row in cells
    ]
    more = sum(counts.values()) - len(rows[:MOST_LINES])
    if more > 0:
        lines.append(f"and {more} more: they are in the table findings")
    return "\n".join(lines) + "\n"


@contextmanager
def progress(session: SparkSession) -> Iterator[Callable[[str], None]]:
    """A line on stderr, where that is a terminal, of what goes on: the step, and Spark's tasks done and in all.

    The value is called with the words of each step."""
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    step = [""]
    ends = threading.Event()

    def tick() -> None:
        tracker = session.sparkContext.statusTracker()
        while not ends.wait(_TICK_SECONDS):
            stages = [tracker.getStageInfo(number) for number in tracker.getActiveStageIds()]
            done = sum(stage.numCompletedTasks for stage in stages if stage)
            total = sum(stage.numTasks for stage in stages if stage)
            tasks = f": task {done} of {total}" if total else ""
            sys.stderr.write(f"\r\x1b[Kkwire audit: {step[0]}{tasks}")
            sys.stderr.flush()

    def say(words: str) -> None:
        step[0] = words

    thread = threading.Thread(target=tick, daemon=True)
    thread.start()
    try:
        yield say
    finally:
        ends.set()
        thread.join()
        sys.stderr.write("\r\x1b[K")
