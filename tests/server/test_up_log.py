"""What `kwire up` logs at which level."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def up(folder: Path) -> str:
    """A run of a broker alone, until it is ready; its log."""
    command = [sys.executable, "-m", "kwire", "up", "--port", "0", "--topic", "t"]
    process = subprocess.Popen(
        [*command, "--data-dir", str(folder)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    process.stdout.readline()
    process.terminate()
    return process.communicate(timeout=30)[1]


def test_what_a_broker_puts_right_by_itself_is_no_warning(tmp_path: Path) -> None:
    up(tmp_path)
    (tmp_path / "t-0" / "00000000000000000099.index").write_bytes(bytes(8))
    (line,) = [line for line in up(tmp_path).splitlines() if "99.index" in line]
    assert " INFO " in line
