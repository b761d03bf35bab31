"""Signals, the ready line and the ready file of a process that runs nodes."""

from __future__ import annotations

import asyncio
import os
import signal
import sys

from kwire.server.errors import NodeError

LAST_STOP = "last"
"""A line to a supervised node before the end of its stdin: it is not started again."""


def stop_on_signals() -> asyncio.Future[str | None]:
    """A future that SIGINT and SIGTERM resolve to None, for a clean stop.

    Callers resolve it to a text when the nodes have ended by themselves: the reason. A second signal
    ends the process immediately."""
    loop = asyncio.get_running_loop()
    stopping: asyncio.Future[str | None] = loop.create_future()

    def on_signal() -> None:
        if stopping.done():
            os._exit(1)  # a second signal: the user does not want to wait for the first
        stopping.set_result(None)

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, on_signal)
    return stopping


def write_ready_line(line: str) -> None:
    """Write a line to stdout. NodeError when stdout is closed."""
    try:
        if sys.stdout is None:  # closed before Python started
            raise BrokenPipeError
        sys.stdout.write(line + "\n")
        sys.stdout.flush()
    except BrokenPipeError:
        raise NodeError("nobody reads the ready line: stdout is closed") from None
    except OSError as error:
        raise NodeError(f"cannot write the ready line to stdout: {error.strerror}") from None


def write_ready_file(path: str, bootstrap: str, control: str | None, tls: str | None) -> None:
    """Write the ready file atomically: readers see the whole file or none. `tls`: the folder of certificates.

    Where the URL of the control API has a token, nobody else may read it."""
    import json

    found = {"bootstrap": bootstrap, "control": control, "pid": os.getpid()}
    text = json.dumps(found if tls is None else {**found, "tls": tls})
    temporary = f"{path}.{os.getpid()}.tmp"
    try:
        with open(temporary, "w", encoding="utf-8") as file:
            if control is not None and "@" in control:
                os.fchmod(file.fileno(), 0o600)
            file.write(text + "\n")
        os.replace(temporary, path)
    except OSError as error:
        remove(temporary)
        raise NodeError(f"cannot write the ready file {path}: {error.strerror}") from None


def remove(path: str) -> None:
    """Delete a file if it exists."""
    try:
        os.unlink(path)
    except OSError:
        return
