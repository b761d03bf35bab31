"""docs/recipes.md does what it says: each block as it stands, without warnings."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from plugin_run import run_pytest
from test_docs import blocks, title

pytestmark = pytest.mark.timeout(120)
BLOCKS = blocks("docs/recipes.md")
TESTS = [block for block in BLOCKS if "def test_" in block]


def test_the_recipes(tmp_path: Path) -> None:
    for block in TESTS[1:]:
        name = title(block).lower().replace(" ", "_").replace("-", "_")
        (tmp_path / f"test_{name}.py").write_text(block)
    run = run_pytest(tmp_path, TESTS[0], "-W", "error", "-p", "no:asyncio")
    assert run.counts == {"passed": len(TESTS)}, run.text


def test_the_recipe_without_pytest() -> None:
    (block,) = [block for block in BLOCKS if block not in TESTS]
    command = [sys.executable, "-W", "error", "-c", block]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
