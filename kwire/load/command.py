"""`kwire load`: the line of progress, Ctrl-C, and what is printed at the end."""

from __future__ import annotations

import errno
import gc
import os
import signal
import sys
from contextlib import contextmanager
from pathlib import Path

from kwire.load.generator import Load
from kwire.load.ledger import new_run

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from kwire.load.generator import Summary
    from kwire.load.plan import Plan

_MOST_LINES = 10
"""Of errors and notes."""


def run_load(plan: Plan, bootstrap: str, folder: Path | None) -> int:
    """Run a load in the foreground; 0 if everything is acknowledged, 1 if not, 128 + the signal that ended it.

    ConfigurationError when it cannot begin."""
    # Rows wait by the hundred thousand, none in a cycle: Python's own pace of searching them takes a third of the time.
    gc.set_threshold(100_000, 50, 100)
    folder = folder or Path(f"ledger-{new_run()}")
    line = ProgressLine()
    with _named(folder):
        load = Load(plan, bootstrap, folder)
        with _stopped_by_signals(load) as signals:
            summary = load.run(line.show if sys.stderr.isatty() else None)
    line.clear()
    sys.stdout.write("".join(f"{text}\n" for text in report(plan, summary)))
    if signals:
        return 128 + signals[0]
    return 0 if summary.is_complete else 1


@contextmanager
def _named(folder: Path) -> Iterator[None]:
    """An OSError that names no file is one of the ledger's: a full disk, as PyArrow and write() say it."""
    try:
        yield
    except OSError as error:
        if error.filename is not None:
            raise
        reason = os.strerror(error.errno) if error.errno else str(error)
        raise OSError(error.errno or errno.EIO, reason, str(folder)) from error


@contextmanager
def _stopped_by_signals(load: Load) -> Iterator[list[int]]:
    """The first signal lets the load end, the second ends the process; those that came."""
    came: list[int] = []

    def stop(number: int, _frame: Any) -> None:
        if came:
            os._exit(128 + number)
        came.append(number)
        load.stop.set()

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield came
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class ProgressLine:
    """One line on the terminal that is written over, once a second."""

    def __init__(self) -> None:
        self._width = 0
        self._last = (0.0, 0)

    def show(self, summary: Summary) -> None:
        """Write the line."""
        seconds, records = self._last
        self._last = summary.seconds, summary.records
        rate = (summary.records - records) / max(0.001, summary.seconds - seconds)
        words = [
            f"{summary.seconds:.0f} s",
            f"{summary.records:,} records",
            f"{summary.acknowledged:,} acknowledged",
            f"{summary.failed + summary.unknown:,} errors",
            f"{rate:,.0f}/s",
        ]
        if summary.lag is not None:
            words.append(f"lag {summary.lag:,}")
        text = "  ".join(words)
        sys.stderr.write(f"\r{text:{self._width}}")
        sys.stderr.flush()
        self._width = len(text)

    def clear(self) -> None:
        """Remove the line."""
        if self._width:
            sys.stderr.write(f"\r{'':{self._width}}\r")
            sys.stderr.flush()


def report(plan: Plan, summary: Summary) -> list[str]:
    """What is printed at the end, line by line."""
    rate = summary.records / max(0.001, summary.seconds)
    outcomes = [f"{summary.acknowledged:,} acknowledged"]
    if summary.failed:
        outcomes.append(f"{summary.failed:,} failed")
    if summary.unknown:
        outcomes.append(f"{summary.unknown:,} unknown")
    lines = [
        f"run {summary.run}: {summary.records:,} records to {plan.topic} in {summary.seconds:.1f} s"
        f" ({rate:,.0f}/s): {', '.join(outcomes)}"
    ]
    if plan.is_transactional:
        lines.append(f"{summary.committed:,} transactions committed, {summary.aborted:,} aborted")
    if summary.seen:
        lines.append(f"seen by readers: {', '.join(f'{count:,}' for count in summary.seen)}")
    errors = sorted(summary.errors.items(), key=lambda each: -each[1])
    details = [f"{count:,} × {error}" for error, count in errors] + list(summary.notes)
    lines += details[:_MOST_LINES]
    if len(details) > _MOST_LINES:
        lines.append(f"… and {len(details) - _MOST_LINES} more")
    lines.append(f"ledger: {summary.ledger}")
    return lines
