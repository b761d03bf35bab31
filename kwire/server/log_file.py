"""A file of a log on a real disk. Its descriptor may be closed and reopened; the object stays.

A file with more than one link is shared with a snapshot (`kwire.snapshots`), which must not change. It is opened
for reading only, so that the system refuses a write: the first one makes a copy, under the same name, and goes
there. Files that nobody shares pay one fstat each time they are opened.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from errno import EBADF

from kwire.replication.core.outbox import Buffer

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from kwire.server.file_log_store import FileLogStore

_IOV_MAX = 1024
"""The maximal number of parts in one writev on Linux."""
_COPIED_BYTES = 1 << 20


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
        except OSError as error:
            if error.errno == EBADF:  # it was opened for reading only
                self._make_own(size)
                self.append(buffers)
                return
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
            if is_shared(self._descriptor()):
                self._make_own(size)
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

    def _make_own(self, size: int) -> None:
        """Replace a file that a snapshot shares by a copy of its first `size` bytes. OSError: nothing has changed."""
        full = self._store.full_path(self.path)
        target = self._store.open_descriptor(
            f"{self.path}.tmp", os.O_WRONLY | os.O_CREAT | os.O_TRUNC
        )
        try:
            copy_bytes(self._descriptor(), target, size)
        except OSError:
            os.unlink(f"{full}.tmp")
            raise
        finally:
            os.close(target)
        os.rename(f"{full}.tmp", full)
        self._store.add_name(self.path)
        self.close()
        self._cuts += 1  # a flush that has begun is of the other file
        self.flushed_size = 0
        self._reopen()

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
        self._fd, _ = open_file(self._store, self.path, os.O_RDWR)
        self._store.remember(self, self._fd)
        return self._fd


def open_file(store: FileLogStore, path: str, flags: int) -> tuple[int, int]:
    """Open a file; return its descriptor, for reading only if a snapshot shares it, and its size."""
    fd = store.open_descriptor(path, flags)
    stat = os.fstat(fd)
    if stat.st_nlink > 1:
        os.close(fd)
        fd = store.open_descriptor(path, os.O_RDONLY)
    return fd, stat.st_size


def is_shared(fd: int) -> bool:
    """Whether a snapshot shares an open file, or did when it was opened."""
    from fcntl import F_GETFL, fcntl

    return os.fstat(fd).st_nlink > 1 or fcntl(fd, F_GETFL) & os.O_ACCMODE == os.O_RDONLY


def copy_bytes(source: int, target: int, size: int) -> None:
    """Copy the first `size` bytes between two descriptors, sharing blocks where the file system can. OSError."""
    copy_range = getattr(os, "copy_file_range", None)  # macOS has none
    done = 0
    while done < size:
        try:
            copied = copy_range(source, target, size - done, done, done) if copy_range else 0
        except OSError:  # two kinds of file systems
            copied = 0
        if not copied:
            data = os.pread(source, min(size - done, _COPIED_BYTES), done)
            if not data:
                return
            write_all(target, data, done)
            copied = len(data)
        done += copied


def write_all(fd: int, data: bytes, position: int) -> None:
    view = memoryview(data)
    while view:
        written = os.pwrite(fd, view, position)
        position += written
        view = view[written:]
