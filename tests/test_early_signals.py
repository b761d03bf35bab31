"""`kwire up` told to stop while it starts: it ends at once and leaves nothing, at whatever moment the signal comes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

DELAYS_MS = (0, 10, 50, 100, 200)


@pytest.mark.parametrize("brokers", [1, 3])
def test_a_sigterm_at_any_moment_of_the_start_is_a_clean_stop(brokers: int, tmp_path: Path) -> None:
    for delay_ms in DELAYS_MS:
        process = subprocess.Popen(
            [sys.executable, "-m", "kwire", "up", "--port", "0", "--brokers", str(brokers)],
            env={**os.environ, "TMPDIR": str(tmp_path)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        time.sleep(delay_ms / 1000)  # the moment is what is tested
        process.terminate()
        try:
            _, errors = process.communicate(timeout=20)
        finally:
            process.kill()
        # Before there is anything to stop, the signal itself ends the process: a shell calls that 143.
        assert process.returncode in (0, -signal.SIGTERM), errors
        assert "Traceback" not in errors
        assert os.listdir(tmp_path) == []


def test_ctrl_c_while_the_command_line_is_imported_ends_without_a_traceback() -> None:
    program = """
import os, signal, sys

class Probe:
    def find_spec(self, name, *_):
        if name == "kwire.cli":
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Probe())
from kwire.__main__ import main
main()
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, timeout=20)
    assert (done.returncode, done.stderr) == (-signal.SIGINT, b"")
