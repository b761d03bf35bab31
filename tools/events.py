"""Writes the tables of events into docs/observing.md, between its markers.

The events are those of replication/core/, replication/replica/, kwire/coordinator/, kwire/transactions/
and kwire/server/ (events.py), read from their source:
comments `# --- …` head the groups, the string below an event says when it is logged, and after "To do:"
what to do then. Run from the project's root; tests/test_events.py fails when the page is out of date.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from kwire.coordinator.events import GroupEvent
from kwire.replication.core.events import Event, EventType
from kwire.replication.replica.events import ReplicaEvent
from kwire.server.events import NodeEvent
from kwire.transactions.events import TransactionEvent

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "observing.md"
BEGIN, END = "<!-- events: written by tools/events.py -->\n", "<!-- end of events -->\n"
LEVELS = {10: "DEBUG", 20: "INFO", 30: "WARNING", 40: "ERROR"}
_SOURCES: tuple[tuple[Path, type], ...] = (
    (ROOT / "replication" / "core" / "events.py", Event),
    (ROOT / "replication" / "replica" / "events.py", ReplicaEvent),
    (ROOT / "kwire" / "coordinator" / "events.py", GroupEvent),
    (ROOT / "kwire" / "transactions" / "events.py", TransactionEvent),
    (ROOT / "kwire" / "server" / "events.py", NodeEvent),
)


class Entry(NamedTuple):
    """An event with what its source says of it."""

    group: str
    event: EventType
    when: str
    to_do: str


def entries() -> Iterator[Entry]:
    """All events in the order of their sources."""
    for path, registry in _SOURCES:
        source = path.read_text(encoding="utf-8")
        heads = [
            (number, line.strip().removeprefix("# --- "))
            for number, line in enumerate(source.splitlines(), 1)
            if line.startswith("    # --- ")
        ]
        body = next(
            node.body
            for node in ast.parse(source).body
            if isinstance(node, ast.ClassDef) and node.name == registry.__name__
        )
        for number, node in enumerate(body):
            if not isinstance(node, ast.Assign):
                continue
            name = ast.unparse(node.targets[0])
            text = body[number + 1] if number + 1 < len(body) else None
            problem = f"{path}: {name}: no string below it says when it is logged"
            assert isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant), problem
            words = " ".join(str(text.value.value).split())
            when, _, to_do = words.partition(" To do: ")
            group = [head for line, head in heads if line < node.lineno][-1]
            yield Entry(group, getattr(registry, name), when, to_do)


def tables() -> Iterator[str]:
    """The lines between the markers."""
    group = ""
    for entry in entries():
        if entry.group != group:
            group = entry.group
            yield ""
            yield f"### {group}"
            yield ""
            yield "| event | level | line, and its other fields | when, and what to do |"
            yield "|---|---|---|---|"
        event = entry.event
        line = f"`{sentence(event)}`"
        if event.more_fields:
            line += " " + ", ".join(f"`{name}`" for name in event.more_fields)
        when = entry.when + (f" **To do:** {entry.to_do}" if entry.to_do else "")
        cells = f"`{event.name}`", LEVELS[event.level], line, when
        yield "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
    yield ""


def sentence(event: EventType) -> str:
    """Its sentence with the names of fields in capitals, as Kafka's tools show them in their usages."""
    return re.sub(r"\{(\w+)\}", lambda found: found[1].upper(), event.sentence)


def page(text: str) -> str:
    """The page with the tables between its markers."""
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return before + BEGIN + "\n".join(tables()) + "\n" + END + after


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
