"""Temporary data directories: creates and removes them, and sweeps up those of killed processes.

A directory is `kwire-<pid>-<random>` below TMPDIR. Its owner holds a lock (flock) on a file in it as
long as it lives. The kernel releases the lock however the process ends, so reused pids and pids of
other containers do not matter. The first removal in a process also deletes the directories whose lock
is free; at the start a sweep would delay what users wait for.

Invariants: the lock is held before its file gets its name, so a sweep never sees a living owner's
directory unlocked; a directory in which a node still runs (it may outlive its supervisor briefly) is
kept; directories of other users are not touched.
"""

from __future__ import annotations

import os
from contextlib import suppress

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

_PREFIX = "kwire-"
_RANDOM_CHARACTERS = 8
_LOCK = ".kwire-temporary"
_NODE_LOCK = ".lock"  # FileLogStore's
_SWEPT_AT_MOST = 200

_has_swept = False


def new_temporary_path() -> str:
    """Choose a path for `TemporaryDirectory`; nothing is created yet."""
    return os.path.join(_root(), f"{_PREFIX}{os.getpid()}-{os.urandom(4).hex()}")


class TemporaryDirectory:
    """A directory that is removed by its process, or, if that was killed, by a later one."""

    def __init__(self, path: str | None = None) -> None:
        """Create and lock the directory. OSError."""
        self.path = new_temporary_path() if path is None else path
        os.makedirs(os.path.dirname(self.path), exist_ok=True)
        os.mkdir(self.path, 0o700)
        name = os.path.join(self.path, _LOCK)
        self._fd = os.open(name + ".new", os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        _try_lock(self._fd)
        os.rename(name + ".new", name)

    def remove(self) -> None:
        """Delete the directory and its content. The first call in a process also sweeps."""
        for _ in self.removal():
            pass

    def removal(self) -> Iterator[None]:
        """Like `remove`, with pauses for an event loop: yields after each subdirectory."""
        global _has_swept
        if self._fd < 0:
            return
        yield from _deletion(self.path)
        if self._fd >= 0:  # not removed meanwhile
            os.close(self._fd)
            self._fd = -1
        if not _has_swept:
            _has_swept = True
            sweep(os.path.dirname(self.path))


def is_held(path: str) -> bool:
    """Whether the owner of a temporary directory is alive."""
    try:
        fd = os.open(os.path.join(path, _LOCK), os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return False
    try:
        return not _try_lock(fd)
    finally:
        os.close(fd)


def sweep(root: str) -> list[str]:
    """Delete the directories of dead processes; return their paths."""
    swept: list[str] = []
    for path in _candidates(root):
        try:
            fd = os.open(os.path.join(path, _LOCK), os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
        except OSError:
            continue  # not a kwire directory, or deleted by another sweep
        try:
            if _try_lock(fd) and not _a_node_runs(path):
                for _ in _deletion(path):
                    pass
                swept.append(path)
        finally:
            os.close(fd)
        if len(swept) == _SWEPT_AT_MOST:
            break
    return swept


def _deletion(path: str) -> Iterator[None]:
    """Delete what can be deleted; yields after each directory. (shutil takes 6 ms to import.)"""
    with suppress(OSError):
        with os.scandir(path) as scan:
            entries = list(scan)  # before any is deleted: not every system allows that meanwhile
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                yield from _deletion(entry.path)
            else:
                with suppress(OSError):
                    os.unlink(entry.path)
        os.rmdir(path)
        yield


def _root() -> str:
    return os.environ.get("TMPDIR") or "/tmp"


def _candidates(root: str) -> Iterator[str]:
    """This user's directories with a matching name."""
    with suppress(OSError), os.scandir(root) as entries:
        for entry in entries:
            if not entry.name.startswith(_PREFIX):
                continue
            pid, _, random = entry.name[len(_PREFIX) :].partition("-")
            if not pid.isdigit() or len(random) != _RANDOM_CHARACTERS:
                continue
            with suppress(OSError):
                if (
                    entry.is_dir(follow_symlinks=False)
                    and entry.stat(follow_symlinks=False).st_uid == os.getuid()
                ):
                    yield entry.path


def _a_node_runs(path: str) -> bool:
    try:
        names = os.listdir(path)
    except OSError:
        return True  # in doubt keep the directory
    for name in names:
        lock = os.path.join(path, name, _NODE_LOCK)
        try:
            fd = os.open(lock, os.O_RDWR | os.O_CLOEXEC)
        except OSError:
            continue
        try:
            if not _try_lock(fd):
                return True
        finally:
            os.close(fd)
    return False


def _try_lock(fd: int) -> bool:
    import fcntl

    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
