"""Tracks names in a log directory that may not be durable: files and directories created or renamed
since their directory was last flushed.

Corresponds to Utils.flushDir and its callers in Kafka 3.9. Flushing (fsync) a directory makes all new
names in it durable. Older entries may have been left by a killed process, so the first flush of a
file in each directory also flushes the directory, once per process; not after a clean stop, which has
flushed everything.

Invariant: after `flush(path)` the path's own name and those of the directories above it, up to the
root, survive a power failure. Only flushes may run in another thread. Apart from the root, a
directory that holds files holds no directories.
"""

from __future__ import annotations

import os
from _thread import allocate_lock

from kwire.server.flushes import in_threads

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable


class NewNames:
    """The new names below `root`. Paths are a LogStore's."""

    __slots__ = ("_after_clean_stop", "_known", "_lock", "_new", "_root")

    def __init__(self, root: str, *, after_clean_stop: bool = False) -> None:
        self._root = root
        self._after_clean_stop = after_clean_stop
        self._lock = allocate_lock()
        self._new: dict[str, dict[str, object]] = {}
        """Directory → name → an object that distinguishes this creation from a later one."""
        self._known: set[str] = set()
        """Directories in which every name that is not in `_new` is known to be durable."""

    def add(self, path: str) -> None:
        """Record a new name of a file or directory."""
        directory, _, name = path.rpartition("/")
        with self._lock:
            self._new.setdefault(directory, {})[name] = object()

    def add_renamed(self, old: str, new: str) -> None:
        """Record that a file, or a directory with its content, was renamed."""
        with self._lock:
            inside = self._new.get(old)
            known = old in self._known
            self._forget(old)
            if inside is not None:
                self._new[new] = inside
            if known:
                self._known.add(new)
        self.add(new)

    def forget(self, path: str) -> None:
        """Record that a file, or a directory with its content, was deleted."""
        with self._lock:
            self._forget(path)

    def _forget(self, path: str) -> None:
        directory, _, name = path.rpartition("/")
        names = self._new.get(directory)
        if names is not None:
            names.pop(name, None)
        self._new.pop(path, None)
        self._known.discard(path)

    def flush(self, path: str) -> None:
        """Make the name and those of the directories above it durable. OSError: they remain new."""
        while path:
            directory, _, name = path.rpartition("/")
            is_known = self._after_clean_stop or directory in self._known
            if name in self._new.get(directory, ()) or not is_known:
                self._flush_directory(directory)
            path = directory

    def flush_all(self, paths: Iterable[str]) -> None:
        """Like `flush` for each path; each directory is flushed once, many at the same time. OSError."""
        directories: set[str] = set()
        for path in paths:
            while path:
                directory, _, name = path.rpartition("/")
                is_known = self._after_clean_stop or directory in self._known
                if name in self._new.get(directory, ()) or not is_known:
                    directories.add(directory)
                path = directory
        in_threads(self._flush_directory, directories)

    def _flush_directory(self, directory: str) -> None:
        with self._lock:  # later names belong to the next flush
            flushed = dict(self._new.get(directory, ()))
        try:
            flush_directory(f"{self._root}/{directory}")
        except FileNotFoundError:
            return  # renamed or deleted meanwhile
        with self._lock:
            self._known.add(directory)
            names = self._new.get(directory)
            if names is not None:
                for name, made in flushed.items():
                    if names.get(name) is made:
                        del names[name]


def flush_directory(path: str) -> None:
    """Fsync a directory: the names in it survive a power failure."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def make_directories(path: str, *, flush: bool) -> None:
    """Create missing directories of a path; `flush`: make the new names durable."""
    parents = []
    parent = path
    while flush and not os.path.isdir(parent):
        parent = os.path.dirname(parent)
        parents.append(parent)
    os.makedirs(path, exist_ok=True)
    for parent in parents:
        flush_directory(parent)
