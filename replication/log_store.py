"""The port through which logs reach a disk: a directory tree of append-only files and small whole files.

`kwire.server.file_log_store.FileLogStore` is a real disk; `MemoryLogStore` (here) is for unit tests and the simulator and
can lose what was not flushed. Everything above (segments, indexes, checkpoints, snapshots, recovery) is pure code
over this port, so the formats are the same on both. Paths are relative, "/"-separated: "orders-0/00000000000000000000.log".
Errors: OSError and nothing else; the caller turns it into KAFKA_STORAGE_ERROR.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from kwire.replication.outbox import Buffer


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

    def overwrite(self, position: int, data: Buffer) -> None:
        """Replaces bytes in place (indexes only; never beyond `size`)."""
        ...

    def truncate(self, size: int) -> None: ...

    def flush(self) -> None:
        """Returns when everything appended so far survives a power cut (fsync)."""
        ...

    def close(self) -> None: ...


class LogStore(Protocol):
    """A directory tree. One store is one log directory (an entry of `log.dirs`)."""

    def list_dir(self, path: str = "") -> list[str]:
        """Names in a directory, sorted; empty when it does not exist."""
        ...

    def make_dir(self, path: str) -> None:
        """Makes the directory and its parents; no error when it is there."""
        ...

    def open(self, path: str, *, create: bool = False) -> LogFile:
        """FileNotFoundError when absent and not `create`."""
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

    def rename(self, old: str, new: str) -> None:
        """A file or a directory; replaces an existing file."""
        ...

    def delete(self, path: str) -> None:
        """A file; no error when it is gone already."""
        ...

    def delete_dir(self, path: str) -> None:
        """A directory with all in it; no error when it is gone already."""
        ...
