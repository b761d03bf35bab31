"""`make demo` in small."""

import subprocess
import sys

import pytest

from compat_tests import tooling


@pytest.mark.timeout(100)
def test_the_demo_finds_nothing_lost_and_nothing_read_twice() -> None:
    argv = [sys.executable, "-m", "compat_tests.demo", "--lines", "4000"]
    done = subprocess.run(argv, cwd=tooling.HERE.parent, capture_output=True, text=True, timeout=90)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("  ok   ") == 6
    assert "FAIL" not in done.stdout
