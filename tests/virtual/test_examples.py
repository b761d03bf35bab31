"""The application tests of examples/virtual: each bug is found by its seed, and its repair passes."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "virtual"
TESTS = sorted(path.name for path in EXAMPLES.glob("test_*.py"))


def run(*options: str, seconds: float) -> str:
    """Run pytest on the examples, as a user does; what it says. It must pass."""
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith(("PYTEST", "COV"))
    }
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *options]
    done = subprocess.run(
        command, cwd=EXAMPLES, capture_output=True, text=True, timeout=seconds, env=environment
    )
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    return done.stdout


def test_there_are_twelve() -> None:
    assert len(TESTS) == 12


@pytest.mark.timeout(300)
def test_a_seed_of_each_and_every_bug() -> None:
    assert re.search(r"24 passed", run("--kwire-seeds=1", seconds=280))


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", TESTS)
def test_a_hundred_seeds(name: str) -> None:
    run(name, seconds=3500)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_short_ones_in_real_time_on_real_sockets() -> None:
    said = run("--kwire-time=real", seconds=500)
    assert int(re.search(r"(\d+) passed", said)[1]) >= 7  # type: ignore[index]
