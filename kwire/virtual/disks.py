"""The disks of a world's nodes: log directories in memory. They outlive a node that is killed, as files do."""

from __future__ import annotations

import time

from kwire.replication.core.memory_log_store import MemoryLogStore
from kwire.replication.log_dirs.directory import LogDirStore
from kwire.server.log_dirs import split_dirs

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from kwire.server.node import Node


def _wall_ms() -> int:
    return time.time_ns() // 1_000_000


class Disk(MemoryLogStore):
    """One log directory. `on_write` is called with each write of a whole file or a flush: it may cost time."""

    def __init__(self, on_write: Callable[[], None]) -> None:
        super().__init__(_wall_ms)
        self._on_write = on_write

    def is_alone(self, *_: object) -> bool:
        """Whether no other process uses it: none does."""
        return True

    def close(self) -> None:
        """No-op: what is in it stays."""

    def take_fault(self, operation: str) -> None:
        self._on_write()
        super().take_fault(operation)


class Disks:
    """The disks of one world, by path."""

    def __init__(self, on_write: Callable[[str], None]) -> None:
        """`on_write(path)` is called with each write."""
        self._disks: dict[str, Disk] = {}
        self._on_write = on_write

    def at(self, path: str) -> Disk:
        found = self._disks.get(path)
        if found is None:
            found = self._disks[path] = Disk(lambda: self._on_write(path))
        return found


class VirtualLogDirs:
    """What `LogDirs` is to a node on a real disk."""

    def __init__(self, disks: Disks, dirs: str) -> None:
        self.paths = split_dirs(dirs)
        self.opened = [LogDirStore(path, disks.at(path)) for path in self.paths]

    def deliver_to(self, node: Node) -> VirtualLogDirs:
        """As of LogDirs; no thread has anything to deliver."""
        return self

    def run_elsewhere(self, task: Callable[[], Any], ended: Callable[[], None]) -> None:
        """Run the function where it stands."""
        task()
        ended()

    def close(self) -> None:
        """No-op: what is in them stays."""
