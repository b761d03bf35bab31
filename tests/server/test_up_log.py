"""What `kwire up` logs at which level."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def up(folder: Path, *options: str) -> str:
    """A run of a broker alone, until it is ready; its log."""
    command = [sys.executable, "-m", "kwire", "up", "--port", "0", "--topic", "t", *options]
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


def test_isolation_of_a_single_broker_is_mentioned(tmp_path: Path) -> None:
    (line,) = [
        line
        for line in up(tmp_path, "--isolation", "process").splitlines()
        if "isolation process" in line
    ]
    assert " WARNING " in line and "isolation process has no effect with a single broker" in line
    assert "isolation process" not in up(tmp_path)
