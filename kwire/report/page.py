"""The page of a report: one HTML file with its data, styles and script, no network and no other files.

The template is page.html; its style sheet begins with common.css, as that of an audit's page. Its script draws the
model (`model.py`), which stands in the page as JSON.
Whatever comes from a cluster or a test (names of topics, client ids, errors) is text there: in JSON no
`<`, `>` or `&` is left that HTML could read, and the script makes text nodes of it, never markup.
"""

from __future__ import annotations

import html
import json
import re
from pathlib import Path

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_LINES_WITHOUT_SCRIPT = 300
_PLACEHOLDER = re.compile("@(STYLE|TITLE|TEXT|DATA)@")
_ESCAPES = {
    ord("<"): "\\u003c",
    ord(">"): "\\u003e",
    ord("&"): "\\u0026",
    0x2028: "\\u2028",
    0x2029: "\\u2029",
}


def render(report: dict[str, Any]) -> str:
    """The page of a report (`model.report`)."""
    here = Path(__file__).parent
    template = (here / "page.html").read_text(encoding="utf-8")
    test = report["test"]
    values = {
        "STYLE": common_style(),
        "TITLE": html.escape(f"{test['outcome']}: {test['id']}" if test else "kwire report"),
        "TEXT": html.escape("\n".join(_lines(report))),
        "DATA": _json(report),
    }
    text = _PLACEHOLDER.sub(lambda found: values[found[1]], template)
    return text.encode("utf-8", "backslashreplace").decode()  # halves of surrogate pairs: escaped


def common_style() -> str:
    """The part of the style sheet that the pages of kwire share."""
    return (Path(__file__).parent / "common.css").read_text(encoding="utf-8").rstrip()


def _json(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).translate(_ESCAPES)


def _lines(report: dict[str, Any]) -> list[str]:
    """The newest events as text, for a browser without scripts."""
    lines = []
    test = report["test"]
    if test and test["message"]:
        lines += [test["message"], ""]
    for cluster in report["clusters"]:
        zero = test["start_ms"] if test else cluster["from_ms"]
        lines += [
            f"{(each['t'] - zero) / 1000:9.3f} s  {each['where']}: {each['text']}"
            for each in cluster["events"][-_LINES_WITHOUT_SCRIPT:]
        ]
    return lines
