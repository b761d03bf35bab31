"""Every scenario of the replication design has a test, and docs/scenarios.md says which."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

TOOL = Path(__file__).parents[1] / "tools" / "scenarios.py"


def tool() -> dict[str, Any]:
    return runpy.run_path(str(TOOL))


def test_every_scenario_has_a_test() -> None:
    scenarios = tool()
    found, count = scenarios["tests_by_scenario"](), len(scenarios["NAMES"])
    assert [number for number in range(1, count + 1) if number not in found] == []
    assert max(found) <= count, f"no name for scenario {max(found)}: add it to NAMES of {TOOL.name}"


def test_the_page_names_tests_that_exist() -> None:
    scenarios = tool()
    text = scenarios["PAGE"].read_text()
    known = {
        test.partition("::")[2]
        for tests in scenarios["tests_by_scenario"]().values()
        for test in tests
    }
    named = {
        word.strip("|,") for word in text.replace("<br>", " ").split() if word.startswith("test_")
    }
    gone = sorted(named - known)
    assert not gone, f"not there any more: {gone}; run .venv/bin/python tools/scenarios.py"
    assert text == scenarios["page"](), "run .venv/bin/python tools/scenarios.py"


def test_a_name_may_stand_for_several_scenarios() -> None:
    numbers = tool()["scenario_numbers"]
    assert numbers("test_S46_S50_the_timer") == [46, 50]
    assert numbers("test_s7_truncation") == [7] and numbers("test_some_other") == []
