"""docs/mutations.md: how many of the rules in tests/mutants each kind of test notices. See mutants.py."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import PurePath
from typing import Any, Protocol

_INTRODUCTION = """\
# Mutations

Each entry of `tests/mutants/*.toml` breaks one rule of the core: a text of the source, and what is put in its place.
`make mutants` makes these changes one at a time and runs the tests near the file, then all tests of the core; `make
mutants ARGS="--by sim --seeds 1-20"` runs seeds of the [simulator](simulation.md) instead. An entry that is *argued*
cannot be seen from outside, mostly because a second check does the same; its text says why, and it must survive.

This page is the output of `python tools/mutants.py --page`. Each entry keeps the result of its last run, in
`build/mutants.json`; the dates are those of these runs, which need not be of one commit.
"""


class Entry(Protocol):
    """A row of the table of mutations."""

    @property
    def id(self) -> str: ...

    @property
    def rule(self) -> str: ...

    @property
    def file(self) -> str: ...

    @property
    def argued(self) -> str: ...


Found = Mapping[str, Mapping[str, Mapping[str, Any]]]


def page(table: Sequence[Entry], found: Found) -> str:
    """The page. `found`: as in build/mutants.json."""
    tests = found.get("tests", {})
    sims = sorted(name for name in found if name.startswith("sim "))
    seeds = sims[-1] if sims else ""
    sim = found.get(seeds, {})
    lines = [_INTRODUCTION, *_dates(tests, sim, seeds), "", *_rows(table, tests, sim)]
    if left := [e for e in table if e.id in tests and tests[e.id]["by"] is None and not e.argued]:
        lines += ["", "Noticed by no test:", ""]
        lines += [f"- {entry.id}, `{entry.file}`: {entry.rule}" for entry in left]
    if argued := [entry for entry in table if entry.argued]:
        lines += ["", "Argued:", ""]
        lines += [f"- {e.id}, `{e.file}`: {e.rule}. {_sentence(e.argued)}" for e in argued]
    return "\n".join(lines) + "\n"


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:].rstrip(".") + "."


def _dates(tests: Mapping[str, Any], sim: Mapping[str, Any], seeds: str) -> list[str]:
    def when(results: Mapping[str, Any]) -> str:
        dates = sorted({str(result["on"]) for result in results.values()})
        return " to ".join(dict.fromkeys((dates[0], dates[-1]))) if dates else "never"

    lines = [f"Tests: {when(tests)}."]
    if sim:
        lines = [f"{lines[0]} Simulator, seeds {seeds[4:]}, some of the entries: {when(sim)}."]
    return lines


def _rows(table: Sequence[Entry], tests: Mapping[str, Any], sim: Mapping[str, Any]) -> list[str]:
    lines = [
        "| folder | rules | killed by tests | argued | survived | not run | run in the simulator | killed there |",
        "|---|---|---|---|---|---|---|---|",
    ]

    def row(name: str, some: Sequence[Entry]) -> None:
        ran = [entry for entry in some if entry.id in tests]
        killed = sum(tests[entry.id]["by"] is not None for entry in ran)
        argued = sum(tests[entry.id]["by"] is None and bool(entry.argued) for entry in ran)
        seen = [entry for entry in some if entry.id in sim]
        seen_killed = sum(sim[entry.id]["by"] is not None for entry in seen)
        survived = len(ran) - killed - argued
        counted = killed + survived
        share = f" ({100 * killed / counted:.1f} %)" if counted else ""
        sim_share = f" ({100 * seen_killed / len(seen):.0f} %)" if seen else ""
        cells = [
            name,
            len(some),
            f"{killed}{share}",
            argued,
            survived,
            len(some) - len(ran),
            len(seen),
            f"{seen_killed}{sim_share}",
        ]
        lines.append(f"| {' | '.join(map(str, cells))} |")

    folders = sorted({str(PurePath(entry.file).parent) for entry in table})
    for folder in folders:
        row(f"`{folder}`", [e for e in table if str(PurePath(e.file).parent) == folder])
    row("all", table)
    return lines
