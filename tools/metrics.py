"""Writes the table of metrics into docs/observing.md, between its markers, from kwire/control/metrics/table.py.

Run from the project's root; tests/server/test_metrics.py fails when the page is out of date.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from kwire.control.metrics import table

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "observing.md"
BEGIN, END = "<!-- metrics: written by tools/metrics.py -->\n", "<!-- end of metrics -->\n"
GROUPS = (
    ("Of a broker", table.BROKERS, True),
    ("Of a broker's topics, with and without `topic`", table.TOPICS, True),
    ("Of a broker's partitions", table.PARTITIONS, True),
    ("Of a controller, and of a standalone broker", table.CONTROLLERS, True),
    ("Of the cluster", table.OF_CLUSTER, False),
)


def tables() -> Iterator[str]:
    """The lines between the markers."""
    for title, metrics, has_broker in GROUPS:
        yield f"\n### {title}\n"
        yield "| metric | type | labels | |\n|---|---|---|---|"
        for each in metrics:
            labels = (table.BROKER, *each.labels) if has_broker else each.labels
            text = each.help.removesuffix(".")
            yield f"| `{each.name}` | {each.kind} | {' '.join(f'`{label}`' for label in labels)} | {text} |"
    yield ""


def page(text: str) -> str:
    """The page with the tables between its markers."""
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return before + BEGIN + "\n".join(tables()) + "\n" + END + after


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
