"""The table of mutations (tests/mutants) fits the source, and its runner sees what kills and what does not."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def tool() -> ModuleType:
    spec = importlib.util.spec_from_file_location("mutants", ROOT / "tools" / "mutants.py")
    assert spec is not None and spec.loader is not None
    module = sys.modules["mutants"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_mutation_fits_the_source(tool: ModuleType) -> None:
    """A text of the table that changed in the source must change in the table, too."""
    table = tool.read_table(ROOT)
    assert tool.unfit(table, ROOT) == []
    tests = tool.TestMap(ROOT)
    for mutant in table:
        near = tests.near(mutant)
        assert near, f"{mutant.id}: no tests for {mutant.file} in tests/mutants/tests.toml"
        gone = [name for name in near if not (ROOT / name.partition("::")[0]).exists()]
        assert not gone, f"{mutant.id}: {gone}"


def test_an_entry_that_fits_no_longer_is_named(tool: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("x = 1\ny = 1\nz = 2\n")

    def problems(old: str, new: str, file: str = "a.py") -> list[str]:
        return tool.unfit([tool.Mutant("A01", "a rule", file, old, new)], tmp_path)

    assert problems("z = 2", "z = 3") == []
    assert "occurs 2 times" in problems("= 1", "= 2")[0]
    assert "occurs 0 times" in problems("w = 1", "w = 2")[0]
    assert "changes nothing" in problems("z = 2", "z = 2")[0]
    assert (
        "SyntaxError" in problems("z = 2", "z = (")[0]
        or "was never" in problems("z = 2", "z = (")[0]
    )
    assert "no such file" in problems("z", "y", "b.py")[0]
    twice = [tool.Mutant("A01", "a rule", "a.py", "z = 2", "z = 3")] * 2
    assert "the id is taken" in tool.unfit(twice, tmp_path)[0]


MODULE = """\
def clamp(value, low, high):
    while value > high:
        value -= 1
    return max(value, low)
"""

TESTS = """\
from small import clamp

def test_high():
    assert clamp(9, 0, 5) == 5

def test_inside():
    assert clamp(3, 0, 5) == 3
"""


def test_the_runner_tells_killed_from_survived_and_ends_hangs(
    tool: ModuleType, tmp_path: Path
) -> None:
    tree = tmp_path / "tree"
    tree.mkdir()
    (tree / "small.py").write_text(MODULE)
    (tree / "test_small.py").write_text(TESTS)
    (tree / "pyproject.toml").write_text("[tool.pytest.ini_options]\n")
    before = {path: path.read_bytes() for path in tree.iterdir()}
    tests = ["test_small.py"]
    mutants = [
        tool.Mutant("killed", "", "small.py", "value > high", "value > high + 1"),
        tool.Mutant("survives", "", "small.py", "max(value, low)", "value"),
        tool.Mutant("hangs", "", "small.py", "value -= 1", "value -= 0"),
        tool.Mutant("breaks", "", "small.py", "def clamp", "def clam"),
    ]
    run = tool.Run(tree, tmp_path / "copies", 1)
    try:
        run.measure(tests)
        run.start()
        outcomes = run.each(
            mutants, lambda mutant: [run.tests_task(mutant, tests, cpu_s=1)], lambda outcome: None
        )
    finally:
        run.close()
    killed_by = {outcome.mutant.id: outcome.killed_by for outcome in outcomes}
    assert killed_by["killed"] == "test_small.py::test_high"
    assert killed_by["survives"] is None
    assert killed_by["hangs"] == "time-out"
    assert "test_small.py" in killed_by["breaks"]
    assert {path: path.read_bytes() for path in tree.iterdir()} == before

    lines, percent = tool.summary(outcomes)
    assert percent == 75.0
    assert lines[-1].split() == ["all", "4", "3", "0", "1"]
