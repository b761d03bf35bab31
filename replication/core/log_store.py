"""The storage port of logs: a directory tree of append-only files and small whole files.

`kwire.server.file_log_store.FileLogStore` is a real disk; `MemoryLogStore` (memory_log_store.py) is for unit tests and
the simulator and can lose what was not flushed. Everything above (segments, indexes, checkpoints, snapshots, recovery)
is pure code over this port, so the formats are the same on both. Paths are relative, "/"-separated:
"orders-0/00000000000000000000.log". Errors: OSError and nothing else; the caller turns it into KAFKA_STORAGE_ERROR.

What waits for the disk (fsync) has two forms: `flush…` returns when it is done; `start_…` is what a broker calls while
it serves. An error of the latter is reported by `on_failure`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from errno import EINVAL
from typing import Protocol

from kwire.replication.core.outbox import Buffer


class LogFile(Protocol):
    """An open file. `size` counts what was appended, flushed or not."""

    @property
    def size(self) -> int: ...

    def append(self, parts: Iterable[Buffer]) -> None:
        """Writes the parts at the end, one after the other. All or nothing: on OSError the file is cut back."""
        ...

    def read(self, position: int, length: int) -> bytes:
        """Up to `length` bytes from `position`; fewer only at the end of the file."""
        ...

    def truncate(self, size: int) -> None: ...

    def flush(self) -> None:
        """Returns when everything appended so far survives a power cut (fsync)."""
        ...

    def start_flush(self, on_flushed: Callable[[], None] | None = None) -> None:
        """Begins what `flush` does and returns at once; `flushed_size` tells how far it has come.

        `on_flushed` is called once all that is in the file now is flushed, in a later step or before this returns."""
        ...

    @property
    def flushed_size(self) -> int:
        """How many bytes from the start survive a power cut, as far as is known."""
        ...

    def close(self) -> None:
        """Gives back the system's handle; a later use opens the file again."""
        ...


class LogStore(Protocol):
    """A directory tree. One store is one log directory (an entry of `log.dirs`)."""

    ignores_case: bool
    """Names that differ in upper and lower case only are the same file (macOS's default)."""
    on_failure: Callable[[OSError], None] | None
    """Called, in a step of its own, when something that was only started has failed."""

    def list_dir(self, path: str = "") -> list[str]:
        """Names in a directory, sorted; empty when it does not exist."""
        ...

    def make_dir(self, path: str) -> None:
        """Makes the directory and its parents; no error when it is there."""
        ...

    def open(self, path: str, *, create: bool = False) -> LogFile:
        """FileNotFoundError when absent and not `create`. One path opened twice is one LogFile."""
        ...

    def claim_file(self, path: str) -> bool:
        """Makes an empty file; False when it exists: of several who try, in whatever process, one succeeds."""
        ...

    def exists(self, path: str) -> bool: ...

    def size(self, path: str) -> int: ...

    def modified_ms(self, path: str) -> int:
        """Unix milliseconds of the last write."""
        ...

    def read_file(self, path: str) -> bytes: ...

    def write_file(self, path: str, data: bytes, *, flush: bool = True) -> None:
        """Replaces a whole file atomically: temporary file, fsync when `flush`, rename."""
        ...

    def start_write_file(self, path: str, data: bytes, on_written: Callable[[], None]) -> None:
        """Begins what `write_file` does, for a file of the root. Calls back when it is done and flushed, in a later
        step or before this returns."""
        ...

    def flush_file(self, path: str) -> None:
        """Returns when a file written without a flush, and its name, survive a power cut; no error when it is gone."""
        ...

    def start_flush_file(self, path: str, on_flushed: Callable[[], None]) -> None:
        """Begins what `flush_file` does. Calls back when it is done, in a later step or before this returns."""
        ...

    def release_files(self) -> None:
        """Closes the system's handles of all files. A file that has another link when it is used the next time is
        copied before it is changed (`kwire.snapshots`)."""
        ...

    def flush_together(self) -> AbstractContextManager[None]:
        """A context for a clean stop: flushes in it may be delayed until its end, which raises their
        OSError. What is written with a flush in it is not delayed."""
        ...

    def rename(self, old: str, new: str) -> None:
        """A file or a directory; replaces an existing file."""
        ...

    def delete(self, path: str) -> None:
        """A file; no error when it is gone already."""
        ...

    def delete_dir(self, path: str) -> None:
        """A directory with all in it; no error when it is gone already."""
        ...

    def start_delete(self, paths: list[str]) -> None:
        """Begins to delete files. Nothing may be created under their names before a restart, nor be in use."""
        ...

    def start_delete_dir(self, path: str) -> None:
        """Begins to delete a directory with all in it, as `start_delete`."""
        ...


class PartitionFault(OSError):
    """An error that a test asked for in one log: it takes that partition offline, and not its whole directory."""


def error_text(error: Exception) -> str:
    """An error of a store in words, with its file if that is known."""
    if not isinstance(error, OSError):
        return str(error)
    text, file = error.strerror or str(error), error.filename
    return text if file is None or str(file) in text else f"{text}: {file}"


def check_path(path: str) -> None:
    """OSError unless `path` stays inside the store: relative, no empty, "." or ".." component, no NUL."""
    parts = path.split("/")
    if "" in parts or "." in parts or ".." in parts or "\0" in path:
        raise OSError(EINVAL, "not a path of a log store", path)
