"""A log store in memory, for unit tests and the simulator: it can lose what was not flushed, and fail by order."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from errno import EBADF, ENOENT, ENOTEMPTY

from kwire.replication.core.log_store import LogFile, PartitionFault, check_path
from kwire.replication.core.outbox import Buffer


class _MemoryFile:
    """What a MemoryLogStore knows of one path, and the LogFile it hands out for it.

    `flushed_size` bytes from the start survive a crash. `before` is what a whole file held before it was replaced
    without a flush: a crash brings it back.
    """

    __slots__ = (
        "_store",
        "before",
        "closed",
        "data",
        "error",
        "flushed_size",
        "modified_ms",
        "whole",
    )

    def __init__(self, store: MemoryLogStore) -> None:
        self._store = store
        self.data = bytearray()
        self.flushed_size = 0
        self.before: bytes | None = None
        self.whole = False  # written by write_file
        self.closed = False
        self.error: OSError | None = None  # what every use of it raises
        self.modified_ms = store.wall_ms()

    @property
    def size(self) -> int:
        return len(self.data)

    def append(self, parts: Iterable[Buffer]) -> None:
        self._check()
        data = b"".join(parts)
        self._store.take_fault("append")
        self.data += data
        self.modified_ms = self._store.wall_ms()

    def read(self, position: int, length: int) -> bytes:
        self._check()
        return bytes(self.data[position : position + length])

    def truncate(self, size: int) -> None:
        self._check()
        if size < len(self.data):
            del self.data[size:]
            self.flushed_size = min(self.flushed_size, size)
        self.modified_ms = self._store.wall_ms()

    def flush(self) -> None:
        self._check()
        self._store.take_fault("flush")
        self.flushed_size = len(self.data)
        self.before = None

    def start_flush(self, on_flushed: Callable[[], None] | None = None) -> None:
        self.flush()
        if on_flushed is not None:
            on_flushed()

    def close(self) -> None:
        return None

    def _check(self) -> None:
        if self.closed:
            raise OSError(EBADF, "this file belongs to a process that has crashed, or was deleted")
        if self.error is not None:
            self._store.failed.add(self.error.filename)
            raise self.error


class MemoryLogStore:
    """A LogStore in memory that can lose what was not flushed (`crash`). Renames, creations and deletions are durable.

    A flush of a whole file that was started takes until a file of the root is written, a checkpoint.

    `wall_ms` gives the time of a write (`modified_ms`). `fail_next` makes the next call of an operation raise OSError,
    `break_dir` every use of a directory. `faults_taken` counts the former, `failed` has the broken directories that
    somebody has tried to use.
    """

    def __init__(self, wall_ms: Callable[[], int] = lambda: 0) -> None:
        self.wall_ms = wall_ms
        self.ignores_case = False
        self.on_failure: Callable[[OSError], None] | None = None
        self._started: list[tuple[_MemoryFile, Callable[[], None]]] = []
        self._files: dict[str, _MemoryFile] = {}
        self._dirs: set[str] = {""}
        self._faults: dict[str, OSError] = {}
        self._broken: dict[str, OSError] = {}
        self.failed: set[str] = set()
        self.faults_taken = 0

    def crash(self, keep: Callable[[int], int] | None = None) -> None:
        """A power cut: every file falls back to what was flushed; files opened before are dead.

        `keep(n)` says how many of a file's n unflushed bytes made it to the disk all the same (none by default).
        """
        self._started.clear()
        for path in sorted(self._files):
            old = self._files[path]
            old.closed = True
            new = self._files[path] = _MemoryFile(self)
            if old.before is not None:
                new.data = bytearray(old.before)
            else:
                unflushed = len(old.data) - old.flushed_size
                kept = keep(unflushed) if keep is not None and unflushed else 0
                if old.whole and kept < unflushed:
                    kept = 0  # a small file is on the disk or is empty
                new.data = old.data[: old.flushed_size + kept]
            new.flushed_size = len(new.data)
            new.modified_ms = old.modified_ms

    def content(self, path: str) -> bytes:
        """What is in a file, for tests: no fault is taken."""
        return bytes(self._file(path).data)

    def flushed_size(self, path: str) -> int:
        """How many bytes of a file survive a crash."""
        return self._file(path).flushed_size

    def flip(self, path: str, position: int) -> None:
        """Change a byte of a file behind everybody's back, as bit rot does; twice: back again."""
        self._file(path).data[position] ^= 0x10

    def fail_next(self, operation: str, error: OSError) -> None:
        """The next "append", "flush" or "write_file" raises `error` and changes nothing."""
        self._faults[operation] = error

    def break_dir(self, directory: str, code: int, text: str) -> None:
        """From now on its files raise OSError, until `mend`; what is in them stays."""
        error = self._broken[directory] = PartitionFault(code, text, directory)
        for path, file in self._files.items():
            if path.startswith(f"{directory}/"):
                file.error = error

    def cancel_faults(self) -> None:
        """What `fail_next` has ordered and nobody has met yet does not happen."""
        self._faults.clear()

    def is_broken(self, directory: str) -> bool:
        """After `break_dir`."""
        return directory in self._broken

    @property
    def has_failed(self) -> bool:
        """Whether anything has raised OSError by order, or would, since `mend`."""
        return bool(self.faults_taken or self._broken)

    def mend(self) -> None:
        """Nothing fails any more."""
        self._faults.clear()
        self._broken.clear()
        self.failed.clear()
        self.faults_taken = 0
        for file in self._files.values():
            file.error = None

    def _check_disk(self, path: str) -> None:
        if self._broken and (error := self._broken.get(path.partition("/")[0])) is not None:
            self.failed.add(error.filename)
            raise error

    def take_fault(self, operation: str) -> None:
        if self._faults and (error := self._faults.pop(operation, None)) is not None:
            self.faults_taken += 1
            raise error

    def list_dir(self, path: str = "") -> list[str]:
        prefix = f"{path}/" if path else ""
        names = {
            p[len(prefix) :].split("/", 1)[0]
            for entries in (self._files, self._dirs)
            for p in entries
            if p != path and p.startswith(prefix)
        }
        return sorted(names)

    def make_dir(self, path: str) -> None:
        check_path(path)
        parts = path.split("/")
        for end in range(1, len(parts) + 1):
            self._dirs.add("/".join(parts[:end]))

    def open(self, path: str, *, create: bool = False) -> LogFile:
        check_path(path)
        self._check_disk(path)
        file = self._files.get(path)
        if file is None:
            self._check_parent(path)
            if not create:
                raise FileNotFoundError(ENOENT, "no such file", path)
            file = self._files[path] = _MemoryFile(self)
        return file

    def claim_file(self, path: str) -> bool:
        check_path(path)
        self._check_parent(path)
        if path in self._files:
            return False
        self._files[path] = _MemoryFile(self)
        return True

    def exists(self, path: str) -> bool:
        return path in self._files or path in self._dirs

    def size(self, path: str) -> int:
        return self._file(path).size

    def modified_ms(self, path: str) -> int:
        return self._file(path).modified_ms

    def read_file(self, path: str) -> bytes:
        self._check_disk(path)
        return bytes(self._file(path).data)

    def write_file(self, path: str, data: bytes, *, flush: bool = True) -> None:
        check_path(path)
        self._check_parent(path)
        self._check_disk(path)
        self.take_fault("write_file")
        if "/" not in path:
            self.end_flushes()
        file = _MemoryFile(self)
        file.data = bytearray(data)
        file.whole = True
        old = self._files.get(path)
        if old is not None:
            old.closed = True
        if flush:
            file.flushed_size = len(data)
        elif old is not None:
            file.before = old.before if old.before is not None else bytes(old.data)
        self._files[path] = file

    def start_write_file(self, path: str, data: bytes, on_written: Callable[[], None]) -> None:
        self.write_file(path, data)
        on_written()

    def flush_file(self, path: str) -> None:
        file = self._files.get(path)
        if file is not None:
            file.flush()

    def start_flush_file(self, path: str, on_flushed: Callable[[], None]) -> None:
        file = self._files.get(path)
        if file is None or (file.flushed_size == len(file.data) and file.before is None):
            on_flushed()
        else:
            self._started.append((file, on_flushed))

    def end_flushes(self) -> None:
        """Flush what `start_flush_file` was called for."""
        started, self._started = self._started, []
        for file, on_flushed in started:
            try:
                if not file.closed:  # otherwise it was replaced or deleted, or all has crashed
                    file.flush()
            except OSError as error:
                if self.on_failure is not None:
                    self.on_failure(error)
            else:
                on_flushed()

    def release_files(self) -> None:
        pass

    def flush_together(self) -> AbstractContextManager[None]:
        return nullcontext()

    def rename(self, old: str, new: str) -> None:
        check_path(old)
        check_path(new)
        self._check_parent(new)
        self._check_disk(old)
        if old in self._files:
            replaced = self._files.get(new)
            if replaced is not None:
                replaced.closed = True
            self._files[new] = self._files.pop(old)
            return
        if old not in self._dirs:
            raise FileNotFoundError(ENOENT, "no such file or directory", old)
        if any(p.startswith(f"{new}/") for p in self._files):
            raise OSError(ENOTEMPTY, "directory not empty", new)
        for path in [p for p in self._files if p.startswith(f"{old}/")]:
            self._files[new + path[len(old) :]] = self._files.pop(path)
        moved = {p for p in self._dirs if p == old or p.startswith(f"{old}/")}
        self._dirs -= moved
        self._dirs |= {new + p[len(old) :] for p in moved}

    def delete(self, path: str) -> None:
        check_path(path)
        self._check_disk(path)
        file = self._files.pop(path, None)
        if file is not None:
            file.closed = True

    def delete_dir(self, path: str) -> None:
        check_path(path)
        self._check_disk(path)
        for p in [p for p in self._files if p.startswith(f"{path}/")]:
            self._files.pop(p).closed = True
        self._dirs -= {p for p in self._dirs if p == path or p.startswith(f"{path}/")}

    def start_delete(self, paths: list[str]) -> None:
        known = set(self.failed)
        try:
            for path in paths:
                self.delete(path)
        finally:  # what is out of use says nothing of what is not
            self.failed = known

    def start_delete_dir(self, path: str) -> None:
        self.delete_dir(path)

    def _file(self, path: str) -> _MemoryFile:
        file = self._files.get(path)
        if file is None:
            raise FileNotFoundError(ENOENT, "no such file", path)
        return file

    def _check_parent(self, path: str) -> None:
        parent = path.rpartition("/")[0]
        if parent not in self._dirs:
            raise FileNotFoundError(ENOENT, "no such directory", parent)
