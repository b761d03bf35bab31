"""Saved snapshots: what is in one, names, list, deletion.

A snapshot is a directory with `kwire-snapshot.json` and the data that this file names, `data-<random>`: below it
`controller`, `broker-1`, … as in the data directory of a cluster, or `standalone`, the directory of a standalone
broker; the same of a second log directory is below `.dir-2`. Saving again under a name writes new data beside the old,
replaces the file in one step, then deletes the old: a process that is killed meanwhile leaves the old snapshot whole.
What it has left besides is deleted by the next save of that name.
"""

from __future__ import annotations

import json
import os
import re
import time
from contextlib import suppress

from kwire import errors
from kwire.snapshots.tree import delete_tree

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

_MANIFEST = "kwire-snapshot.json"
_DATA = re.compile(r"data-[0-9a-f]{8}")
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,99}")
_LAYOUT = 1


class Snapshot:
    """A saved snapshot: `name`, `path` (its directory), `created_ms` (Unix time), `cluster_id`, `brokers` (how many),
    `first_id` (the first one's id), `controllers` (0: of a standalone broker), `log_dirs` (how many), `of_containers`
    (whether it is of the Docker mode), `size_bytes` (of its files, shared or not)."""

    def __init__(self, path: str, found: dict[str, Any]) -> None:
        """`found`: the object in its file. KeyError, TypeError, ValueError for one that is not of this format."""
        if found["format"] != _LAYOUT or not _DATA.fullmatch(found["data"]):
            raise ValueError("another format")
        self.path = path
        self.name = os.path.basename(path)
        self.data = os.path.join(path, found["data"])
        self.created_ms = int(found["created_ms"])
        self.cluster_id = str(found["cluster_id"])
        self.first_id, self.brokers = int(found["first_id"]), int(found["brokers"])
        self.controllers = int(found["controllers"])
        self.log_dirs = int(found.get("log_dirs", 1))
        self.of_containers = bool(found.get("of_containers", False))
        self.size_bytes = int(found["size_bytes"])

    def __repr__(self) -> str:
        return f"<Snapshot {self.name}: {self.brokers} broker(s), {self.size_bytes} bytes, {self.path}>"

    @property
    def is_standalone(self) -> bool:
        """Whether it is of a standalone broker."""
        return not self.controllers

    def dirs_below(self, directory: str) -> str:
        """The log directories for it in a directory that has nothing else, with commas between."""
        if self.log_dirs == 1:
            return directory
        return ",".join(os.path.join(directory, f"dir-{n}") for n in range(1, self.log_dirs + 1))

    def to_json(self) -> dict[str, Any]:
        """The object that the control API shows."""
        names = ("name", "path", "created_ms", "cluster_id", "first_id", "brokers", "controllers")
        return {
            name: getattr(self, name)
            for name in (*names, "log_dirs", "of_containers", "size_bytes")
        }


def place(data: str, number: int, *, standalone: bool) -> str:
    """Where the data of a log directory is, the first one's number being 0."""
    parts = [f".dir-{number + 1}"] * bool(number) + ["standalone"] * standalone
    return os.path.join(data, *parts)


def checked_name(name: object) -> str:
    """A name that is one file name, whatever the system. ConfigurationError."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        shown = repr(name)[:100]
        raise errors.ConfigurationError(
            f"name of a snapshot: expected up to 100 of A-Z a-z 0-9 . _ - (first no . or -), not {shown}"
        )
    return name


def read(path: str) -> Snapshot:
    """The snapshot in a directory. ClusterStateError: no such snapshot."""
    path = os.path.abspath(path)
    try:
        with open(os.path.join(path, _MANIFEST), encoding="utf-8") as file:
            return Snapshot(path, json.load(file))
    except (FileNotFoundError, NotADirectoryError):
        raise errors.ClusterStateError(f"there is no snapshot {path}") from None
    except OSError as error:
        raise errors.ClusterStateError(f"snapshot {path}: {error.strerror}") from None
    except (ValueError, KeyError, TypeError, AttributeError):
        raise errors.ClusterStateError(
            f"snapshot {path}: {_MANIFEST} is damaged, or of another version of kwire"
        ) from None


def named(folder: str, name: object) -> Snapshot:
    """The snapshot of this name in a folder. ClusterStateError: no such snapshot; ConfigurationError: no name."""
    path = os.path.join(folder, checked_name(name))
    try:
        return read(path)
    except errors.ClusterStateError:
        if os.path.exists(os.path.join(path, _MANIFEST)):
            raise
    names = ", ".join(each.name for each in listed(folder))
    there = f"there are {names}" if names else "there are none"
    raise errors.ClusterStateError(f"there is no snapshot {name}; {there}")


def save(path: str, copy: Callable[[str], int], **about: Any) -> Snapshot:
    """Save a snapshot: `copy(directory)` writes the data into a new directory and returns its size. OSError: an earlier
    snapshot there is whole. `about`: what else is known (see Snapshot)."""
    path = os.path.abspath(path)
    os.makedirs(path, 0o700, exist_ok=True)
    _delete_unused(path)
    name = f"data-{os.urandom(4).hex()}"
    data = os.path.join(path, name)
    temporary = os.path.join(path, f"{_MANIFEST}.tmp")
    try:
        os.mkdir(data, 0o700)
        size_bytes = copy(data)
        created_ms = time.time_ns() // 1_000_000
        found = {"format": _LAYOUT, "data": name, "created_ms": created_ms, **about}
        found["size_bytes"] = size_bytes
        with open(temporary, "w", encoding="utf-8") as file:
            json.dump(found, file, indent=1)
        os.replace(temporary, os.path.join(path, _MANIFEST))
    except BaseException:
        delete_tree(data)
        with suppress(OSError):
            os.rmdir(path)  # unless an earlier one is in it
        raise
    _delete_unused(path)
    return Snapshot(path, found)


def copy(snapshot: Snapshot, path: str) -> Snapshot:
    """Save a snapshot under another path, by links where that is possible. OSError."""
    from kwire.snapshots.restoring import fill

    about = snapshot.to_json()
    for name in ("name", "path", "created_ms", "size_bytes"):
        del about[name]

    def write(directory: str) -> int:
        for number in range(snapshot.log_dirs):
            target = place(directory, number, standalone=snapshot.is_standalone)
            os.makedirs(target, 0o700, exist_ok=True)
            fill(target, snapshot, number)
        return snapshot.size_bytes

    return save(path, write, **about)


def _delete_unused(path: str) -> None:
    """Delete data that the file of a snapshot does not name."""
    used = ""
    if os.path.exists(os.path.join(path, _MANIFEST)):
        used = os.path.basename(read(path).data)
    for name in os.listdir(path):
        if _DATA.fullmatch(name) and name != used:
            delete_tree(os.path.join(path, name))


def remove(path: str) -> None:
    """Delete a snapshot, its file first. ClusterStateError: no such snapshot."""
    snapshot = read(path)
    os.unlink(os.path.join(snapshot.path, _MANIFEST))
    _delete_unused(snapshot.path)
    with suppress(OSError):
        os.rmdir(snapshot.path)


def listed(folder: str) -> list[Snapshot]:
    """The snapshots in a folder, by name; damaged ones are left out."""
    found: list[Snapshot] = []
    names: list[str] = []
    with suppress(OSError):
        names = sorted(os.listdir(folder))
    for name in names:
        with suppress(errors.ClusterStateError):
            found.append(read(os.path.join(folder, name)))
    return found
