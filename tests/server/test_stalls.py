"""No request keeps other clients waiting. As a script, prints a table, or writes it into docs/stalls.md.

    python tests/server/test_stalls.py [--write] [WORD…]    # cases whose names have one of the words

Exact limits are counted in units by the tests of the parts; the limits here only catch what is out
of all proportion.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

import pytest
import stall_cases
import stall_times
from stall_rig import ROOT, Case, Stall, measure

CASES = [*stall_cases.CASES, *stall_times.CASES]
SLACK = float(os.environ.get("KWIRE_SPEED_SLACK", "1"))
PAGE = ROOT / "docs" / "stalls.md"
BEGIN, END = "<!-- stalls: begin -->\n", "<!-- stalls: end -->\n"


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_nobody_else_waits(case: Case, tmp_path: Path) -> None:
    stall = measure(case, tmp_path)
    print(f"{case.name}: {stall}")
    longest_ms = stall.wall_ms if case.on_disk else stall.cpu_ms
    assert longest_ms < 3 * case.limit_ms * SLACK


def line(case: Case, stall: Stall) -> str:
    return (
        f"| {case.name} | {stall.cpu_ms:.0f} | {stall.wall_ms:.0f} | {stall.case_ms / 1000:.2f} |\n"
    )


HEAD = "| | processor, ms | clock, ms | done after, s |\n|---|---|---|---|\n"


def main(arguments: list[str]) -> None:
    words = [word.lower() for word in arguments if not word.startswith("-")]
    before, _, rest = PAGE.read_text().partition(BEGIN)
    table, _, after = rest.partition(END)
    rows = {row.split("|")[1].strip(): row for row in table.splitlines(keepends=True)}
    print(HEAD, end="")
    for case in CASES:
        if not words or any(word in case.name.lower() for word in words):
            with tempfile.TemporaryDirectory() as folder:
                rows[case.name] = line(case, measure(case, Path(folder)))
            print(rows[case.name], end="", flush=True)
    if "--write" in arguments:
        known = [rows[case.name] for case in CASES if case.name in rows]
        PAGE.write_text(before + BEGIN + HEAD + "".join(known) + END + after)


if __name__ == "__main__":
    main(sys.argv[1:])
