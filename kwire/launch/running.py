"""Finds and stops the running clusters of this user, by the registry (`registry.py`)."""

from __future__ import annotations

import fcntl
import json
import os
import re
import signal
import time

from kwire.launch.registry import STARTING, SUFFIX, directories, start_time, why_unusable
from kwire.server.errors import NodeError, SettingsError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

_POLL_SECONDS = 0.005
_TAKEN = re.compile(r"cannot listen on \S+:(\d+)\b.*\b(?:taken|in use)\b")


class Running:
    """A running `kwire up`, as its entry describes it."""

    def __init__(self, path: str, entry: dict[str, Any]) -> None:
        self.path = path
        self.entry = entry
        self.pid = int(entry["pid"])
        self.bootstrap = str(entry["bootstrap"])
        """The addresses that clients get."""
        self.addresses = str(entry["addresses"])
        """The brokers as this machine reaches them: HOST:PORT,…"""
        self.control: str | None = entry["control"]
        self.log: str | None = entry["log"]

    @property
    def ports(self) -> set[int]:
        """The ports of its brokers and of its control API."""
        texts = [*self.bootstrap.split(","), *self.addresses.split(","), self.control or ""]
        ports = [text.rpartition(":")[2] for text in texts]
        return {int(port) for port in ports if port.isdigit()}

    @property
    def age_seconds(self) -> float:
        """For how long it has been ready."""
        return max(0.0, time.time() - int(self.entry["ready_ms"]) / 1000)

    def __str__(self) -> str:
        return f"kwire up at {self.bootstrap} (pid {self.pid})"

    def stop(self, seconds: float) -> None:
        """Send SIGTERM and return when the process has ended. NodeError after `seconds`."""
        try:
            descriptor = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return  # it has just ended
        try:
            os.kill(self.pid, signal.SIGTERM)
            deadline = time.monotonic() + seconds
            while not _lock(descriptor):
                if time.monotonic() > deadline:
                    raise NodeError(
                        f"{self} has not ended within {seconds:g} s of SIGTERM; kill -9 {self.pid} ends it"
                    )
                time.sleep(_POLL_SECONDS)
        except ProcessLookupError:
            return
        finally:
            os.close(descriptor)


class Starting(Running):
    """A `kwire up` that is not ready yet: only its process is known."""

    def __init__(self, path: str, entry: dict[str, Any]) -> None:
        unknown = {"bootstrap": "", "addresses": "", "control": None, "log": None, "ready_ms": 0}
        super().__init__(path, {**unknown, **entry})

    def __str__(self) -> str:
        return f"kwire up that is starting (pid {self.pid})"


def all_running() -> list[Running]:
    """The running clusters, oldest first. Entries of processes that have ended are removed."""
    found = [running for path in _entry_paths(SUFFIX) if (running := _read(path)) is not None]
    return sorted(found, key=lambda each: each.age_seconds, reverse=True)


def all_starting() -> list[Running]:
    """The clusters that are starting."""
    paths = sorted(_entry_paths(STARTING))
    return [found for path in paths if (found := _read(path, Starting)) is not None]


def choose(
    number: int | None = None, what: str = "--port PORT", *, starting: bool = False
) -> Running | None:
    """The running cluster that a command means; None when none runs. `starting`: or one that starts.

    `number`: a port of it, or its pid. `what`: how the caller lets users name one. NodeError when no
    cluster has that number; SettingsError when several could be meant."""
    found = all_running() + (all_starting() if starting else [])
    if number is not None:
        by_pid = [each for each in found if each.pid == number]
        chosen = [each for each in found if number in each.ports] or by_pid
        if not chosen:
            others = f"; there is {_names(found)}" if found else ""
            raise NodeError(f"no kwire up with port or pid {number} is running{others}")
        return chosen[0]
    if len(found) > 1:
        raise several(found, what)
    return found[0] if found else None


def several(found: list[Running], what: str) -> SettingsError:
    """The refusal to guess which of the running clusters is meant. `what`: as for `choose`."""
    return SettingsError(f"{len(found)} are running: {_names(found)}; name one by {what}")


def holder_text(failure: str) -> str | None:
    """Which `kwire up` holds the port that a failed start wanted, as one line; None: none of this
    user."""
    wanted = _TAKEN.search(failure)
    if wanted is None:
        return None
    port = int(wanted[1])
    found = all_running()
    for each in found:
        if port in each.ports:
            word = f" {port}" if len(found) > 1 else ""
            return f"port {port} is in use by kwire up, pid {each.pid}; kwire down{word} stops it"
    return None


def _names(found: list[Running]) -> str:
    return ", ".join(f"{each.bootstrap or 'starting'} (pid {each.pid})" for each in found)


def _entry_paths(suffix: str) -> Iterator[str]:
    for directory in directories():
        if why_unusable(directory):
            continue
        try:
            names = os.listdir(directory)
        except OSError:
            continue
        for name in names:
            if name.endswith(suffix):
                yield os.path.join(directory, name)


def _read(path: str, kind: type[Running] = Running) -> Running | None:
    """The cluster of an entry; None when its process has ended, or is another container's."""
    try:
        if not _is_locked(path):
            os.unlink(path)
            return None
        with open(path, encoding="utf-8") as file:
            entry = json.load(file)
        running = kind(path, entry)
        if entry["started"] is not None and start_time(running.pid) != entry["started"]:
            return None
    except (OSError, ValueError, KeyError, TypeError):
        return None  # it has just ended, or another version of kwire wrote it
    return running


def _is_locked(path: str) -> bool:
    """Whether the process that wrote an entry lives. OSError: no entry."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        return not _lock(descriptor)
    finally:
        os.close(descriptor)


def _lock(descriptor: int) -> bool:
    """Try to take a shared lock, which does not look like an owner's to others that try."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
