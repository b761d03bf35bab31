"""docs/doors.md is made from the code, and has a row for everything that can be done."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import pytest

from kwire import aio

TOOL = Path(__file__).parents[1] / "tools" / "doors.py"


@pytest.fixture(scope="module")
def tool() -> dict[str, Any]:
    return runpy.run_path(str(TOOL))


def test_every_name_has_a_row_and_every_hole_a_reason(tool: dict[str, Any]) -> None:
    found = tool["problems"]()
    assert not found, "\n".join(found)


def test_the_page_is_current(tool: dict[str, Any]) -> None:
    page = (TOOL.parents[1] / "docs" / "doors.md").read_text()
    assert page == tool["text"](), "run .venv/bin/python tools/doors.py"


def test_a_new_method_needs_a_row(tool: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(aio.Cluster, "dance", lambda self: None, raising=False)
    assert tool["problems"]() == ["Python: dance has no row"]


def test_a_name_that_is_gone_and_a_hole_are_found(tool: dict[str, Any]) -> None:
    row = tool["Row"]("dance", "dance", http="GET /v1/dance")
    found = tool["problems"]((*tool["ROWS"], row))
    assert found == [
        "Python: there is no dance",
        "HTTP: there is no GET /v1/dance",
        "dance: nothing for CLI, and no reason",
    ]
