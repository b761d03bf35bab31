"""Temporary data directories: made, removed, and swept up where a process was killed before it could.

A directory is `kwire-<pid>-<random>` below TMPDIR. Its owner holds a lock (flock) on a file in it for as long as it
lives; the kernel lets go of it however the process ends, so neither a pid that somebody else has by now nor one of
another container counts for anything. The first directory of a process that is removed takes those along whose lock
nobody holds: at a start it would cost the start, and a start is what users wait for.

Invariants: the lock is held before its file has its name, so a sweep never finds a living owner's without; a directory
in which a node still runs (it outlives its supervisor for a moment) is let be; other users' are not touched.
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
    """A name for `TemporaryDirectory`; nothing is made yet."""
    return os.path.join(_root(), f"{_PREFIX}{os.getpid()}-{os.urandom(4).hex()}")


class TemporaryDirectory:
    """A directory that goes with its process, at the latest with a later one's."""

    def __init__(self, path: str | None = None) -> None:
        """Makes it. OSError."""
        self.path = new_temporary_path() if path is None else path
        os.makedirs(os.path.dirname(self.path), exist_ok=True)
        os.mkdir(self.path, 0o700)
        name = os.path.join(self.path, _LOCK)
        self._fd = os.open(name + ".new", os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        _try_lock(self._fd)
        os.rename(name + ".new", name)

    def remove(self) -> None:
        """Deletes it with all that is in it. The first time in a process those of dead ones go, too."""
        import shutil

        global _has_swept
        if self._fd < 0:
            return
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self._fd)
        self._fd = -1
        if not _has_swept:
            _has_swept = True
            sweep(os.path.dirname(self.path))


def is_held(path: str) -> bool:
    """Whether the owner of a temporary directory lives."""
    try:
        fd = os.open(os.path.join(path, _LOCK), os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return False
    try:
        return not _try_lock(fd)
    finally:
        os.close(fd)


def sweep(root: str) -> list[str]:
    """Deletes the directories of processes that are dead; returns their paths."""
    import shutil

    swept: list[str] = []
    for path in _candidates(root):
        try:
            fd = os.open(os.path.join(path, _LOCK), os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
        except OSError:
            continue  # not one of these, or another sweep was faster
        try:
            if _try_lock(fd) and not _a_node_runs(path):
                shutil.rmtree(path, ignore_errors=True)
                swept.append(path)
        finally:
            os.close(fd)
        if len(swept) == _SWEPT_AT_MOST:
            break
    return swept


def _root() -> str:
    return os.environ.get("TMPDIR") or "/tmp"


def _candidates(root: str) -> Iterator[str]:
    """Directories of this user's that are named like ours."""
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
        return True  # whatever it is
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
