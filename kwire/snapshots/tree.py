"""Copy a node's directory by hard links where that is safe.

What a log directory consists of, and what may share its blocks with a snapshot:
- segments, their indexes, producer snapshots: linked. A store opens a file with another link for reading only and
  copies it before its first change (`kwire.server.log_file`); most never change, and are deleted by their name.
- checkpoints, meta.properties, partition.metadata and the like: linked. A store replaces them as a whole, by a
  rename, and never writes into one; to make a file costs a hundred times as much as a link where disks are busy.
- the rest is copied: the controller's journals, which several stores may have open at a time, and append to.

Where the file system has no links, or no more of a file, it is copied, too.
"""

from __future__ import annotations

import os
from contextlib import suppress

from kwire.replication.log.checkpoints import CLEAN_SHUTDOWN, META_PROPERTIES
from kwire.server.log_file import copy_bytes

_LINKED = (
    *(".log", ".index", ".timeindex", ".txnindex", ".snapshot"),
    *("-checkpoint", META_PROPERTIES, "partition.metadata", CLEAN_SHUTDOWN, "-incarnation"),
)
_LEFT_OUT = (".deleted", ".tmp", "-delete")
"""What is about to be deleted, and what was being written when a node was killed."""
FOLDER = ".kwire-snapshots"
"""Below the data directory of a cluster: its snapshots."""
RESTORE = ".kwire-restore"
"""What a restore that is under way calls its directories begins so (`restoring.py`)."""
_OF_THE_PLACE = {".lock", ".kwire-temporary", FOLDER, "tls"}
"""What is no data in a directory: locks, snapshots, the certificates that kwire has made."""


def is_data(name: str) -> bool:
    """Whether an entry of a node's directory is data, and not of the place."""
    return name not in _OF_THE_PLACE and not name.startswith(RESTORE)


def is_kept(name: str) -> bool:
    """Whether an entry is not about to be deleted, and was not being written."""
    return not name.endswith(_LEFT_OUT)


def has_restore(directory: str) -> bool:
    """Whether a restore has left something there."""
    with suppress(OSError):
        return any(name.startswith(RESTORE) for name in os.listdir(directory))
    return False


def copy_tree(source: str, target: str, *, share: bool, nested: bool = True) -> int:
    """Copy a directory to a new one; else as `copy_into`."""
    os.mkdir(target, 0o700)
    return copy_into(source, target, share=share, nested=nested)


def copy_into(source: str, target: str, *, share: bool, nested: bool = True) -> int:
    """Copy what is in a node's directory; return the bytes of its files. `share`: by links where that is safe: nobody
    has the files open for writing. OSError. Files that are deleted meanwhile are left out."""
    size = 0
    with os.scandir(source) as scan:
        entries = list(scan)
    for entry in entries:
        if not (is_kept(entry.name) and is_data(entry.name)):
            continue
        to = os.path.join(target, entry.name)
        with suppress(FileNotFoundError):
            if entry.is_dir(follow_symlinks=False):
                if nested:
                    size += copy_tree(entry.path, to, share=share, nested=False)
            elif entry.is_file(follow_symlinks=False):
                if share and entry.name.endswith(_LINKED):
                    _link(entry.path, to)
                else:
                    _copy(entry.path, to)
                size += entry.stat(follow_symlinks=False).st_size
    return size


def size_of(directory: str) -> int:
    """The bytes of all files below a directory. OSError."""
    return sum(
        os.lstat(os.path.join(path, name)).st_size
        for path, _, names in os.walk(directory)
        for name in names
    )


def _link(source: str, target: str) -> None:
    try:
        os.link(source, target, follow_symlinks=False)
    except FileNotFoundError:
        raise
    except OSError:  # another file system, one without links, or too many of them
        _copy(source, target)


def _copy(source: str, target: str) -> None:
    """Copy a file with its times: log retention goes by them for records without a time."""
    read = os.open(source, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        stat = os.fstat(read)
        write = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
        try:
            copy_bytes(read, write, stat.st_size)
            os.utime(write, ns=(stat.st_atime_ns, stat.st_mtime_ns))
        finally:
            os.close(write)
    finally:
        os.close(read)


def delete_tree(path: str) -> None:
    """Delete a directory with all in it, as far as that can be done; no error when it is gone."""
    with suppress(OSError):
        with os.scandir(path) as scan:
            entries = list(scan)
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                delete_tree(entry.path)
            else:
                with suppress(OSError):
                    os.unlink(entry.path)
        os.rmdir(path)
