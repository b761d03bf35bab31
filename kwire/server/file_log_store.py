"""A log directory on a real disk: the LogStore whose bytes are files.

Corresponds to Kafka's use of FileChannel, Utils.atomicMoveWithFallback and FileLock. At most
`max_open_files` descriptors are open at a time: a LogFile opens on first use and may be closed at any
time (second-chance order), so that thousands of partitions stay below the process's limit.
`fsync=False`, for temporary directories, makes every flush a no-op.

Creating files and directories is the most expensive operation of a file system, and many topics are
created but never written to. So a new directory and its files are kept in memory (`_newborn`) until
one of them is written to, listed or queried. A clean stop creates them, except in a temporary store;
a killed process leaves none of them, which is equivalent to empty ones. The directories of a topic
are created together, so that one flush of the root makes all their names durable. With several log
directories each is created immediately (`lazy_dirs`): if that fails, another directory gets the log.

A new name is durable only after its directory is flushed, even if the file's content has been. The
first flush of a file with a new name, or in a directory with one, flushes both (`new_names.py`), as
LocalLog.flush does for new segments. Later flushes of the file do not flush the directory, however
many files are created beside it.

Invariants: all paths stay below the root; a failed or short append leaves the file unchanged;
write_file is atomic for readers; one process at a time holds `.lock`, or several share it.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext, suppress
from errno import ENOTEMPTY
from itertools import chain

from kwire.replication.core.log_store import check_path
from kwire.replication.log.checkpoints import CLEAN_SHUTDOWN
from kwire.server.descriptors import default_max_open_files, is_shortage, limit_of_files
from kwire.server.directory_lock import lock_directory
from kwire.server.flushes import (
    Background,
    DelayedFlushes,
    UnflushedFiles,
    delete_files,
    delete_tree,
    flush,
    flush_file,
    write_durably,
)
from kwire.server.log_file import FileLogFile, open_file, write_all
from kwire.server.new_names import NewNames, make_directories

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable


class FileLogStore:
    """One log directory, locked until `close`. OSError, with its path, when the lock is held."""

    def __init__(
        self,
        root: str,
        *,
        fsync: bool = True,
        max_open_files: int | None = None,
        shared: bool = False,
        lazy_dirs: bool = True,
    ) -> None:
        """`shared`: other processes may open it too, if also as shared. `is_alone`: none has."""
        self.root = os.path.abspath(root)
        self.fsync = fsync
        self._max_open_files = max_open_files or default_max_open_files()
        self._highest = limit_of_files()
        self._open: dict[FileLogFile, None] = {}
        self._files: dict[str, dict[str, FileLogFile]] = {}  # directory → name → file
        self._newborn: dict[str, dict[str, bytes]] = {}  # directory → name → whole file
        self._lazy_dirs = lazy_dirs
        self._unmade: dict[str, set[str]] = {}  # topic → newborn directories not created yet
        self._background: Background | None = None
        self.wake: Callable[[], None] | None = None
        """Called on a thread: `deliver` has something to do. None: the node does not serve yet."""
        self.on_failure: Callable[[OSError], None] | None = None
        self.failed: OSError | None = None
        """The first error of a flush. What a later flush of the same data says is not to be believed."""
        self.delayed: DelayedFlushes | None = None
        make_directories(self.root, flush=fsync)
        is_new = fsync and not os.listdir(self.root)
        self._lock_fd, self.is_alone = lock_directory(self.root, shared=shared)
        self.ignores_case = os.path.exists(self.full_path(".LOCK"))  # the lock is `.lock`
        self._names: NewNames | None = None
        clean = fsync and os.path.exists(self.full_path(CLEAN_SHUTDOWN))
        self._unflushed = UnflushedFiles(all_known=clean or is_new)
        if fsync:
            self._names = NewNames(self.root, after_clean_stop=clean)

    def close(self) -> None:
        """Close every file and release the lock; drop the flushes and deletions that wait (after a
        clean stop none does)."""
        if self._background is not None:
            self._background.close()
            self._background = None
        try:
            if self.fsync:
                for directory in list(self._newborn):
                    self.make_files(directory)
        finally:
            self.release_files()
            self._files.clear()
            if self._lock_fd >= 0:
                os.close(self._lock_fd)
                self._lock_fd = -1

    def full_path(self, path: str) -> str:
        return f"{self.root}/{path}"

    def make_files(self, directory: str) -> None:
        """Create a directory, or files of one, that exist only in memory so far."""
        waiting = self._newborn.get(directory)
        if waiting is None:
            return
        if self._is_unmade(directory):
            self._make_dirs_of(_topic(directory))
        for name, data in waiting.items():
            self._write(f"{directory}/{name}", data, flush=False)
        for file in self._files.get(directory, {}).values():
            if not file.is_made:
                os.close(self.open_descriptor(file.path, os.O_RDWR | os.O_CREAT))
                file.is_made = True
                self.add_name(file.path)
        del self._newborn[directory]

    def _make_dirs_of(self, topic: str) -> None:
        for directory in sorted(self._unmade[topic]):
            with suppress(FileExistsError):
                os.mkdir(self.full_path(directory))
            self.add_name(directory)
            self._forget_unmade(directory)

    def _forget_unmade(self, path: str) -> None:
        unmade = self._unmade.get(_topic(path))
        if unmade is not None:
            unmade.discard(path)
            if not unmade:
                del self._unmade[_topic(path)]

    def _is_unmade(self, path: str) -> bool:
        return path in self._unmade.get(_topic(path), ())

    def flush_names(self, path: str) -> None:
        """Make the name of a file durable, and those of the directories above it, where new."""
        if self._names is not None:
            self._names.flush(path)

    def flush_all_names(self, paths: Iterable[str]) -> None:
        if self._names is not None:
            self._names.flush_all(paths)

    def flush_together(self) -> AbstractContextManager[None]:
        return DelayedFlushes(self) if self.fsync else nullcontext()

    def add_name(self, path: str) -> None:
        if self._names is not None:
            self._names.add(path)

    def list_dir(self, path: str = "") -> list[str]:
        self.make_files(path)
        try:
            if path:
                return sorted(os.listdir(self._checked(path)))
            return sorted({*os.listdir(self.root), *chain(*self._unmade.values())})
        except (FileNotFoundError, NotADirectoryError):
            return []

    def make_dir(self, path: str) -> None:
        full = self._checked(path)
        if path in self._newborn:
            return
        parent = path.rpartition("/")[0]
        if parent:
            self.make_dir(parent)
            self.make_files(parent)
        elif self._lazy_dirs:
            if not os.path.exists(full):
                self._newborn[path] = {}
                self._unmade.setdefault(_topic(path), set()).add(path)
            return
        try:
            os.mkdir(full)
        except FileExistsError:
            return
        self._newborn[path] = {}
        self.add_name(path)

    def open(self, path: str, *, create: bool = False) -> FileLogFile:
        directory, _, name = path.rpartition("/")
        in_directory = self._files.setdefault(directory, {})
        file = in_directory.get(name)
        if file is None and create and name not in self._newborn.get(directory, (name,)):
            check_path(path)
            file = in_directory[name] = FileLogFile(self, path, -1, 0)
            file.is_made = False
        elif file is None:
            self.make_files(directory)
            check_path(path)
            fd, size = open_file(self, path, os.O_RDWR | (os.O_CREAT if create else 0))
            file = FileLogFile(self, path, fd, size)
            if not file.size:
                self.add_name(path)  # possibly new
            in_directory[name] = file
            self.remember(file, fd)
        return file

    def claim_file(self, path: str) -> bool:
        self.make_files(path.rpartition("/")[0])
        check_path(path)
        try:
            os.close(self.open_descriptor(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return False
        self.add_name(path)
        self._unflushed.add(path)
        return True

    def exists(self, path: str) -> bool:
        directory, _, name = path.rpartition("/")
        if directory in self._newborn and (
            name in self._newborn[directory] or name in self._files.get(directory, ())
        ):
            return True
        if self._is_unmade(path):
            return True
        return os.path.exists(self._checked(path))

    def size(self, path: str) -> int:
        self.make_files(path.rpartition("/")[0])
        return os.stat(self._checked(path)).st_size

    def modified_ms(self, path: str) -> int:
        self.make_files(path.rpartition("/")[0])
        return os.stat(self._checked(path)).st_mtime_ns // 1_000_000

    def read_file(self, path: str) -> bytes:
        self.make_files(path.rpartition("/")[0])
        check_path(path)
        fd = self.open_descriptor(path, os.O_RDONLY)
        try:
            chunks = []
            while chunk := os.read(fd, 1 << 20):
                chunks.append(chunk)
            return b"".join(chunks)
        except OSError as error:
            raise OSError(error.errno, error.strerror, self.full_path(path)) from None
        finally:
            os.close(fd)

    def write_file(self, path: str, data: bytes, *, flush: bool = True) -> None:
        directory, _, name = path.rpartition("/")
        if directory in self._newborn:
            if not (flush and self.fsync):
                check_path(path)
                self._drop(path)
                self._newborn[directory][name] = bytes(data)
                return
            self.make_files(directory)
        self._write(path, data, flush=flush)

    def _write(self, path: str, data: bytes, *, flush: bool) -> None:
        full = self._checked(path)
        temporary = f"{full}.tmp"
        fd = self.open_descriptor(f"{path}.tmp", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        try:
            write_all(fd, data, 0)
            if flush and self.fsync:
                self.sync(fd, path)
        except OSError:
            os.close(fd)
            os.unlink(temporary)
            raise
        os.close(fd)
        os.rename(temporary, full)
        self._drop(path)
        self.add_name(path)
        if flush and self.fsync:
            self.flush_names(path)
            self._unflushed.discard(path)
        elif self.fsync:
            self._unflushed.add(path)

    def start_write_file(self, path: str, data: bytes, on_written: Callable[[], None]) -> None:
        if not self.fsync:
            self.write_file(path, data)
            on_written()
            return
        self.make_files(path.rpartition("/")[0])
        full = self._checked(path)

        def done(_: None) -> None:
            self._drop(path)
            on_written()

        self.background.submit(lambda: write_durably(full, data), done, self._fail, urgent=True)

    def flush_file(self, path: str) -> None:
        if not self.fsync:
            return
        self.make_files(path.rpartition("/")[0])
        check_path(path)
        if not self._unflushed.holds(path):
            return
        if self.delayed is None:
            self._flush_path(path)
        else:
            self.delayed.add(path)
        self._unflushed.discard(path)

    def _flush_path(self, path: str) -> None:
        self.check()
        try:
            flush(self.full_path(path))
        except FileNotFoundError:
            return
        except OSError as error:
            self.failed = error
            raise
        self.flush_names(path)

    def start_flush_file(self, path: str, on_flushed: Callable[[], None]) -> None:
        self.make_files(path.rpartition("/")[0])
        if not self.fsync or not self._unflushed.holds(path):
            on_flushed()
            return
        written = self._unflushed.mark(path)

        def done(is_flushed: bool) -> None:
            self._unflushed.discard(path, written)
            on_flushed()

        self.flush_in_background(lambda: path, done)

    def rename(self, old: str, new: str) -> None:
        source, target = self._checked(old), self._checked(new)
        if new in self._newborn or os.path.isdir(target):
            raise OSError(ENOTEMPTY, "the target is a directory", new)
        if self._is_unmade(old) and "/" not in new:
            self._forget_unmade(old)
            self._unmade.setdefault(_topic(new), set()).add(new)
            self._newborn[new] = self._newborn.pop(old)
        else:
            for path in (old, old.rpartition("/")[0], new.rpartition("/")[0]):
                self.make_files(path)
            os.rename(source, target)
            self._unflushed.rename(old, new)
            if self._names is not None:
                self._names.add_renamed(old, new)
        self._drop(new)
        directory, _, name = old.rpartition("/")
        file = self._files.get(directory, {}).pop(name, None)
        if file is not None:
            file.path = new
            target_directory, _, target_name = new.rpartition("/")
            self._files.setdefault(target_directory, {})[target_name] = file
        elif old in self._files:
            moved = self._files.pop(old)
            for inner, file in moved.items():
                file.path = f"{new}/{inner}"
            self._files[new] = moved

    def delete(self, path: str) -> None:
        self._forget_file(path)
        with suppress(FileNotFoundError):
            os.unlink(self._checked(path))

    def _forget_file(self, path: str) -> None:
        self._drop(path)
        directory, _, name = path.rpartition("/")
        self._newborn.get(directory, {}).pop(name, None)
        self._unflushed.discard(path)
        if self._names is not None:
            self._names.forget(path)

    def delete_dir(self, path: str) -> None:
        self._forget_dir(path)
        delete_tree(self._checked(path))

    def _forget_dir(self, path: str) -> None:
        for directory in [d for d in self._newborn if d == path or d.startswith(f"{path}/")]:
            del self._newborn[directory]
            self._forget_unmade(directory)
        for directory in [d for d in self._files if d == path or d.startswith(f"{path}/")]:
            for file in self._files.pop(directory).values():
                file.close()
        self._unflushed.discard(path)
        if self._names is not None:
            self._names.forget(path)

    def start_delete(self, paths: list[str]) -> None:
        full = [self._checked(path) for path in paths]
        for path in paths:
            self._forget_file(path)
        self.background.submit(lambda: delete_files(full), _ignore, self._fail)

    def start_delete_dir(self, path: str) -> None:
        full = self._checked(path)
        self._forget_dir(path)
        self.background.submit(lambda: delete_tree(full), _ignore, self._fail)

    # --- threads

    @property
    def background(self) -> Background:
        """The threads for what the loop does not wait for."""
        if self._background is None:
            self._background = Background(self._wake)
        return self._background

    def _wake(self) -> None:
        if self.wake is not None:
            self.wake()

    def flush_in_background(
        self, path: Callable[[], str], done: Callable[[bool], None], *, urgent: bool = False
    ) -> None:
        """Flush a file and its name on a thread. `path()`: where it is now; `done(is it there)`."""
        self.background.submit(
            lambda: flush_file(self.root, path, self.flush_names), done, self._fail, urgent=urgent
        )

    def deliver(self) -> None:
        """Let what threads have ended take effect, in a step of the node."""
        if self._background is not None:
            self._background.deliver()

    def wait(self) -> None:
        """Wait for what runs on threads. OSError if any flush since the start has failed."""
        if self._background is not None:
            self._background.wait()
        self.check()

    def check(self) -> None:
        """OSError if a flush has failed before: the system reports it once, then forgets it."""
        if self.failed is not None:
            raise OSError(self.failed.errno, self.failed.strerror, self.failed.filename)

    def sync(self, fd: int, path: str) -> None:
        """Fsync a file. OSError with its path, also if any flush before has failed."""
        self.check()
        try:
            os.fsync(fd)
        except OSError as error:
            self.failed = OSError(error.errno, error.strerror, self.full_path(path))
            raise self.failed from None

    def _fail(self, error: OSError) -> None:
        self.failed = self.failed or error
        if self.on_failure is not None:
            self.on_failure(error)

    # Called by FileLogFile.

    def open_descriptor(self, path: str, flags: int) -> int:
        """Open a file below the root; if no descriptor is left, close those of other files."""
        full = f"{self.root}/{path}"
        try:
            return os.open(full, flags | os.O_CLOEXEC, 0o644)
        except OSError as error:
            if not (self._open and is_shortage(error)):
                raise
        self.release_files()
        return os.open(full, flags | os.O_CLOEXEC, 0o644)

    def release_files(self) -> None:
        for file in self._open:
            with suppress(OSError):  # the disk may have failed
                file.release()
        self._open.clear()

    def remember(self, file: FileLogFile, fd: int) -> None:
        """Track an open descriptor; close the least recently used ones if there are too many."""
        opened = self._open
        opened[file] = None
        most = self._max_open_files if fd < self._highest else max(len(opened) // 2, 1)
        while len(opened) > most:
            oldest = next(iter(opened))
            del opened[oldest]
            if oldest.used and oldest is not file:
                oldest.used = False
                opened[oldest] = None
            elif oldest is file:
                opened[file] = None
            else:
                oldest.release()

    def forget(self, file: FileLogFile) -> None:
        self._open.pop(file, None)

    def _checked(self, path: str) -> str:
        check_path(path)
        return f"{self.root}/{path}"

    def _drop(self, path: str) -> None:
        directory, _, name = path.rpartition("/")
        file = self._files.get(directory, {}).pop(name, None)
        if file is not None:
            file.close()


def _topic(directory: str) -> str:
    """The topic in "orders-0"; a unique value for any other name."""
    return directory.rpartition("-")[0]


def _ignore(_: object) -> None:
    pass
