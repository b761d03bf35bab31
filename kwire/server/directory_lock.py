"""The lock of a log directory: one process at a time holds `.lock` in it, or several share it (FileLock)."""

from __future__ import annotations

import os
from contextlib import suppress
from errno import EAGAIN


def lock_directory(root: str, *, shared: bool = False) -> tuple[int, bool]:
    """Lock a directory; return the lock's descriptor, and whether no other process shares it.

    OSError (EAGAIN) when another process holds it."""
    import fcntl

    fd = os.open(f"{root}/.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if shared:
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError as error:
        if shared:
            with suppress(OSError):
                fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
                return fd, False
        os.close(fd)
        text = f"{root} is in use: another process holds the .lock in it"
        raise OSError(EAGAIN, text) from error
    return fd, True
