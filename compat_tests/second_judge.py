"""`kwire audit --follow` beside a long run: a second judge, on Spark, that shares nothing with the run's own checks.

It knows what the clients noted in a ledger, reads the topics by Java's consumer while the run goes on (its page shows
how it stands), and audits them as a whole when the ledger is closed. Where Spark is not installed there is none.
"""

import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from kwire.audit.tables import KINDS
from kwire.load.ledger import Ledger

ROOT = Path(__file__).resolve().parent.parent
SPARK_VERSION = "4.0.0"
BUILD = ROOT / "spark_it" / ".build"
END_S = 300.0
"""The time for the audit of the whole."""


def missing() -> str | None:
    """Why there is no second judge; None: there is one."""
    if not (BUILD / f"venv-{SPARK_VERSION}" / "bin" / "python").exists():
        return "Spark is not installed (make spark brings it)"
    if not any((BUILD / f"jars-{SPARK_VERSION}").glob("*.jar")):
        return "Spark's Kafka connector is not there (make spark brings it)"
    if not os.environ.get("JAVA_HOME") and shutil.which("java") is None:
        return "there is no Java"
    return None


class SecondJudge:
    """The ledger of a run, and the process that follows it."""

    def __init__(self, folder: Path, bootstrap: str, topics: Iterable[str]) -> None:
        """Topics must be there. Everything goes below `folder`, which is made."""
        self.folder = folder
        self.page = folder / "audit" / "page.html"
        self.ledger = Ledger(
            folder / "ledger", bootstrap=bootstrap, topics=topics, mode="idempotent"
        )
        self._said = folder / "said.txt"
        jars = str(BUILD / f"jars-{SPARK_VERSION}")
        # The cluster comes first: its leases are short.
        command = ["nice", "-n", "10", str(BUILD / f"venv-{SPARK_VERSION}" / "bin" / "python")]
        command += ["-m", "kwire", "audit", str(self.ledger.folder), "--follow"]
        command += ["--out", str(self.page.parent), "--master", "local[1]"]
        with self._said.open("wb") as said:
            self._process = subprocess.Popen(
                command,
                env={**os.environ, "PYTHONPATH": str(ROOT), "KWIRE_SPARK_JARS": jars},
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=said,
                start_new_session=True,
            )

    def verdict(self, may_be: Callable[[dict[str, Any]], bool] = lambda _: False) -> list[str]:
        """Close the ledger, wait for the audit of the whole. What is wrong, a line each: findings that fail, but for
        those that `may_be`, and an audit that did not come to its end."""
        self.ledger.close()
        try:
            status = self._process.wait(END_S)
        except subprocess.TimeoutExpired:
            return [f"the second judge is not done after {END_S:.0f} s: {self.summary}"]
        if status not in (0, 1):
            return [f"the second judge has ended with {status}: {self.summary}"]
        return [
            f"second judge: {found['kind']} {found['topic']}-{found['partition']} offset {found['offset']}"
            f" ({found['producer']} {found['number']}): {found['detail']}"
            for found in self._findings()
            if KINDS[found["kind"]].fails and not may_be(found)
        ]

    def _findings(self) -> list[dict[str, Any]]:
        import pyarrow.parquet as pq

        found: list[dict[str, Any]] = pq.read_table(self.page.parent / "findings").to_pylist()
        return found

    @property
    def summary(self) -> str:
        """The last line that it has said."""
        lines = self._said.read_text(errors="replace").splitlines()
        return lines[-1] if lines else "nothing"

    def end(self) -> None:
        """Whatever it does."""
        self.ledger.close()
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait(10)
