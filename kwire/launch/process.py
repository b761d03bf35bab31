"""What a process that runs nodes has to do with the outside: signals, the ready line, the ready file."""

from __future__ import annotations

import asyncio
import os
import signal
import sys

from kwire.server.errors import NodeError


def stop_on_signals() -> asyncio.Future[str | None]:
    """A future of the running loop that SIGINT and SIGTERM set to None: a clean stop.

    Set to a text by somebody else, it says why the nodes have ended by themselves. The next signal
    ends the process."""
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
    """Writes a line to stdout. NodeError when nobody reads there."""
    try:
        if sys.stdout is None:  # Python's way to say that it was closed from the start
            raise BrokenPipeError
        sys.stdout.write(line + "\n")
        sys.stdout.flush()
    except BrokenPipeError:
        raise NodeError("nobody reads the ready line: stdout is closed") from None
    except OSError as error:
        raise NodeError(f"cannot write the ready line to stdout: {error.strerror}") from None


def write_ready_file(path: str, bootstrap: str, control: str | None) -> None:
    """Atomically: a reader sees the whole file or none."""
    import json

    text = json.dumps({"bootstrap": bootstrap, "control": control, "pid": os.getpid()})
    temporary = f"{path}.{os.getpid()}.tmp"
    try:
        with open(temporary, "w", encoding="utf-8") as file:
            file.write(text + "\n")
        os.replace(temporary, path)
    except OSError as error:
        remove(temporary)
        raise NodeError(f"cannot write the ready file {path}: {error.strerror}") from None


def remove(path: str) -> None:
    """Deletes a file, if it is there."""
    try:
        os.unlink(path)
    except OSError:
        return
