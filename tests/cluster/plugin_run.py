"""pytest, run on a folder of its own, as a user has it."""

import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path

COUNT = re.compile(r"(\d+) (passed|failed|errors?|skipped|deselected)")


class Run:
    """What a run of pytest has said."""

    def __init__(self, done: "subprocess.CompletedProcess[str]") -> None:
        self.status = done.returncode
        self.text = done.stdout + done.stderr
        last = done.stdout.strip().rpartition("\n")[2]
        self.counts = {what.rstrip("s"): int(count) for count, what in COUNT.findall(last)}


def run_pytest(folder: Path, source: str, *options: str, ini: str = "", seconds: float = 60) -> Run:
    """Writes the tests and runs them."""
    (folder / "test_it.py").write_text(textwrap.dedent(source))
    (folder / "pytest.ini").write_text("[pytest]\n" + textwrap.dedent(ini))
    environment = {
        key: value
        for key, value in os.environ.items()
        if not key.startswith(("PYTEST", "COV", "COVERAGE"))
    }
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *options]
    return Run(
        subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, text=True, timeout=seconds
        )
    )
