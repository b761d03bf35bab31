"""The ready line and the ready file: how a process that runs nodes says that they serve."""

from __future__ import annotations

import os
import sys

from kwire.server.errors import NodeError


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
