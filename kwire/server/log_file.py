"""A file of a log on a real disk. Its descriptor may be closed and reopened; the object stays."""

from __future__ import annotations

import os
from collections.abc import Iterable

from kwire.replication.core.outbox import Buffer

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from kwire.server.file_log_store import FileLogStore

_IOV_MAX = 1024
"""The maximal number of parts in one writev on Linux."""


class FileLogFile:
    """A file of a FileLogStore."""

    __slots__ = (
        "_cuts",
        "_fd",
        "_is_flushing",
        "_store",
        "_waiting",
        "flushed_size",
        "is_made",
        "path",
        "size",
        "used",
    )

    def __init__(self, store: FileLogStore, path: str, fd: int, size: int) -> None:
        self._store = store
        self.path = path
        self.size = size
        self.flushed_size = 0  # the content at process start may never have been flushed
        self.used = True
        self.is_made = True
        self._fd = fd
        self._cuts = 0
        self._is_flushing = False
        self._waiting: list[tuple[int, Callable[[], None]]] | None = None  # with the size they need

    def append(self, parts: Iterable[Buffer]) -> None:
        fd = self._fd
        if fd < 0:
            fd = self._reopen()
        self.used = True
        buffers = parts if isinstance(parts, list) else list(parts)
        expected = 0
        for buffer in buffers:
            expected += len(buffer)
        size = self.size
        try:
            written = os.pwritev(fd, buffers, size) if len(buffers) <= _IOV_MAX else 0
            if written != expected:
                write_all(fd, b"".join(buffers)[written:], size + written)
        except OSError:
            os.ftruncate(fd, size)
            raise
        self.size = size + expected

    def read(self, position: int, length: int) -> bytes:
        fd = self._fd
        if fd < 0:
            fd = self._reopen()
        self.used = True
        data = os.pread(fd, length, position)
        if len(data) == length or position + len(data) >= self.size:
            return data
        while len(data) < length and (
            more := os.pread(fd, length - len(data), position + len(data))
        ):
            data += more  # one read returns at most 2 GiB, less after a signal
        return data

    def truncate(self, size: int) -> None:
        if size < self.size:
            self._cuts += 1
            os.ftruncate(self._descriptor(), size)
            self.size = size
            self.flushed_size = min(self.flushed_size, size)

    def flush(self) -> None:
        if self.flushed_size < self.size:
            if self._store.delayed is not None:
                self._store.delayed.add(self.path)
            elif self._store.fsync:
                self._store.sync(self._descriptor(), self.path)
                self._store.flush_names(self.path)
            self.flushed_size = self.size

    def start_flush(self, on_flushed: Callable[[], None] | None = None) -> None:
        """Start an fsync on a thread, so that the loop never waits for the disk (Kafka's "flush-log"
        task)."""
        if not self._store.fsync:
            self.flushed_size = self.size
        if self.flushed_size >= self.size:
            if on_flushed is not None:
                on_flushed()
            return
        if on_flushed is not None:
            self._waiting = [*(self._waiting or ()), (self.size, on_flushed)]
        if not self._is_flushing:
            self._flush_in_background()

    def _flush_in_background(self) -> None:
        self._is_flushing = True
        size, cuts = self.size, self._cuts

        def done(is_there: bool) -> None:
            self._is_flushing = False
            if is_there and cuts == self._cuts:  # a truncation invalidates the flushed size
                self.flushed_size = max(self.flushed_size, size)
            if self._waiting is not None and is_there:
                self._call_back(self._waiting)

        urgent = self._waiting is not None
        self._store.flush_in_background(lambda: self.path, done, urgent=urgent)

    def _call_back(self, waiting: list[tuple[int, Callable[[], None]]]) -> None:
        """Call those whose data is flushed; flush again for the others, which came later."""
        left = [each for each in waiting if each[0] > self.flushed_size]
        self._waiting = left or None
        if left:
            self._flush_in_background()
        for size, on_flushed in waiting:
            if size <= self.flushed_size:
                on_flushed()

    def close(self) -> None:
        if self._fd >= 0:
            self._store.forget(self)
            self.release()

    def release(self) -> None:
        """Close the descriptor; the next use reopens it."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    def _descriptor(self) -> int:
        self.used = True
        return self._fd if self._fd >= 0 else self._reopen()

    def _reopen(self) -> int:
        if not self.is_made:
            self._store.make_files(self.path.rpartition("/")[0])
        self._fd = self._store.open_descriptor(self.path, os.O_RDWR)
        self._store.remember(self, self._fd)
        return self._fd


def write_all(fd: int, data: bytes, position: int) -> None:
    view = memoryview(data)
    while view:
        written = os.pwrite(fd, view, position)
        position += written
        view = view[written:]
