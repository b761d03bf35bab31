"""The registry of running clusters: a small JSON file for each `kwire up` in a directory of its user.

`kwire up` makes its entry at its start, fills it when it is ready and removes it at its end;
`running.py` reads them. The
directory is $KWIRE_RUNTIME_DIR, else $XDG_RUNTIME_DIR/kwire, else /tmp/kwire-<uid>, of mode 0700.

Invariants: an entry is locked (flock) from before it gets its name until its process ends, however
that ends, so an entry that can be locked is stale; a directory that others may write to, or that
another user owns, is neither read nor written.
"""

from __future__ import annotations

import os
from stat import S_ISDIR

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

DIRECTORY_VARIABLE = "KWIRE_RUNTIME_DIR"
SUFFIX, STARTING = ".json", ".starting"
"""Of the entry of a cluster that is ready, and of one that is on its way."""
_WRITABLE_BY_OTHERS = 0o022
_START_TIME_FIELD = 19  # of /proc/PID/stat, counted from after the name in parentheses


class RegistryError(Exception):
    """No directory for the registry can be used; the text says why."""


class Registration:
    """The entry of this process."""

    def __init__(self, path: str, descriptor: int, identity: str) -> None:
        self.path = path
        self._descriptor = descriptor  # its lock is released by the end of the process
        self._identity = identity

    def fill(self, entry: dict[str, str | int | bool | None]) -> None:
        """The cluster is ready: write the entry under its name. RegistryError."""
        text = ", ".join([self._identity, *(f'"{k}": {_json(v)}' for k, v in entry.items())])
        path = self.path.removesuffix(STARTING) + SUFFIX
        try:
            os.ftruncate(self._descriptor, 0)
            os.pwrite(self._descriptor, f"{{{text}}}\n".encode(), 0)
            os.rename(self.path, path)
        except OSError as error:
            raise RegistryError(f"{path}: {error.strerror}") from None
        self.path = path

    def remove(self) -> None:
        """Remove the entry. The lock stays until the process ends, for those that wait for that."""
        try:
            os.unlink(self.path)
        except OSError:
            return


def register(entry: dict[str, str | int | bool | None]) -> Registration:
    """Write the entry of this process: `entry`, and pid and start time. RegistryError."""
    registration = begin()
    registration.fill(entry)
    return registration


def begin() -> Registration:
    """Make the entry of this process, which starts a cluster. RegistryError.

    Runs in every start, within 0.2 ms: without the modules json and tempfile."""
    import fcntl

    pid = os.getpid()
    directory = runtime_directory()
    started = start_time("self")
    path = os.path.join(directory, f"{pid}-{started or 0}{STARTING}")  # no other process's
    new = f"{path}.new"
    identity = f'"pid": {pid}, "started": {_json(started)}'
    try:
        descriptor = os.open(new, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.write(descriptor, f"{{{identity}}}\n".encode())
        os.rename(new, path)
    except OSError as error:
        raise RegistryError(f"{path}: {error.strerror}") from None
    return Registration(path, descriptor, identity)


def directories() -> list[str]:
    """Where entries may be, the place for a new one first."""
    given = os.environ.get(DIRECTORY_VARIABLE)
    if given:
        return [given]
    of_session = os.environ.get("XDG_RUNTIME_DIR")
    found = [] if not of_session else [os.path.join(of_session, "kwire")]
    return [*found, f"/tmp/kwire-{os.getuid()}"]


def runtime_directory() -> str:
    """The first usable directory, made if necessary. RegistryError."""
    reasons = []
    for path in directories():
        try:
            os.mkdir(path, 0o700)
        except FileExistsError:
            pass
        except OSError as error:
            reasons.append(f"{path}: {error.strerror}")
            continue
        reason = why_unusable(path)
        if not reason and os.access(path, os.W_OK | os.X_OK):
            return path
        reasons.append(f"{path} {reason or 'is not writable'}")
    raise RegistryError("; ".join(reasons))


def why_unusable(path: str) -> str:
    """Why a directory cannot be trusted; "": it can."""
    try:
        found = os.lstat(path)
    except OSError as error:
        return f"cannot be used ({error.strerror})"
    if not S_ISDIR(found.st_mode):
        return "is no directory"
    if found.st_uid != os.getuid():
        return "belongs to another user"
    if found.st_mode & _WRITABLE_BY_OTHERS:
        return "is writable for other users"
    return ""


def start_time(pid: int | str) -> int | None:
    """When a process of this machine started, in ticks since the boot; None: unknown.

    With the pid it names one process: pids are used again, and containers have their own."""
    try:
        descriptor = os.open(f"/proc/{pid}/stat", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        fields = os.read(descriptor, 4096).rpartition(b")")[2].split()
        return int(fields[_START_TIME_FIELD])
    except (OSError, ValueError, IndexError):
        return None
    finally:
        os.close(descriptor)


def _json(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, int):
        return str(value)
    if value.isascii() and value.isprintable() and '"' not in value and "\\" not in value:
        return f'"{value}"'
    import json

    return json.dumps(value)
