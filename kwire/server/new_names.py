"""Which names in a log directory may not be on the disk yet: those of files and directories that this process has made
or renamed since their directory was last flushed.

Answers to Utils.flushDir and its callers in Kafka 3.9. A name becomes durable when the directory that it stands in is
flushed (fsync), and with it all the other new ones there. What stood in a directory before may be of a process that
was killed: the first flush of a file flushes its directory too, once in a process's life; not after a clean stop, which
has flushed everything.

Invariant: after `flush(path)` the path's own name and those of the directories above it, up to the root, survive a
power cut. Flushes may run in another thread than everything else. A directory that holds files holds no directories,
but for the root.
"""

from __future__ import annotations

import os
from _thread import allocate_lock


class NewNames:
    """The new names below `root`. Paths are a LogStore's."""

    __slots__ = ("_after_clean_stop", "_known", "_lock", "_new", "_root")

    def __init__(self, root: str, *, after_clean_stop: bool = False) -> None:
        self._root = root
        self._after_clean_stop = after_clean_stop
        self._lock = allocate_lock()
        self._new: dict[str, dict[str, object]] = {}
        """Directory → name → an object that tells this making of it from a later one."""
        self._known: set[str] = set()
        """The directories of which this process knows every name that is not in `_new` to be durable."""

    def note(self, path: str) -> None:
        """A file or directory has this name now."""
        directory, _, name = path.rpartition("/")
        with self._lock:
            self._new.setdefault(directory, {})[name] = object()

    def note_renamed(self, old: str, new: str) -> None:
        """A file, or a directory with what is in it, has another name."""
        with self._lock:
            inside = self._new.get(old)
            known = old in self._known
            self._forget(old)
            if inside is not None:
                self._new[new] = inside
            if known:
                self._known.add(new)
        self.note(new)

    def forget(self, path: str) -> None:
        """A file, or a directory with what is in it, is gone."""
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
        """Makes the name and those of the directories above it durable. OSError: they count as new still."""
        while path:
            directory, _, name = path.rpartition("/")
            is_known = self._after_clean_stop or directory in self._known
            if name in self._new.get(directory, ()) or not is_known:
                self._flush_directory(directory)
            path = directory

    def _flush_directory(self, directory: str) -> None:
        with self._lock:  # what is made from here on counts for the next flush
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
    """fsync of a directory: the names in it survive a power cut."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def make_directories(path: str, *, flush: bool) -> None:
    """os.makedirs without an error when it is there; `flush`: the names of those that are made survive a power cut."""
    parents = []
    parent = path
    while flush and not os.path.isdir(parent):
        parent = os.path.dirname(parent)
        parents.append(parent)
    os.makedirs(path, exist_ok=True)
    for parent in parents:
        flush_directory(parent)
