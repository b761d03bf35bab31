"""The disks of one simulated machine: a MemoryLogStore per log directory, with their faults."""

from __future__ import annotations

from kwire.replication.core.memory_log_store import MemoryLogStore
from kwire.replication.log_dirs.directory import LogDirStore

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

    from kwire.replication.log_dirs.manager import LogManager


class Disks:
    """All disks of a machine. `stores`: one per log directory.

    `not_kept`: id and incarnation of brokers whose shutdown a failed disk may have kept from the journal."""

    def __init__(self, count: int, wall_ms: Callable[[], int]) -> None:
        self.stores = [MemoryLogStore(wall_ms) for _ in range(count)]
        self.not_kept: set[tuple[int, int]] = set()
        self._left_over: dict[str, MemoryLogStore] = {}

    @property
    def first(self) -> MemoryLogStore:
        return self.stores[0]

    def as_directories(self) -> MemoryLogStore | list[LogDirStore]:
        """The `store` argument of a Broker."""
        if len(self.stores) == 1:
            return self.first
        return [LogDirStore(f"/disk-{n}", store) for n, store in enumerate(self.stores)]

    def crash(self, keep: Callable[[int], int] | None = None) -> None:
        """Lose the unflushed tails on all disks, as in a power cut."""
        for store in self.stores:
            store.crash(keep)

    def mend(self) -> None:
        """Repair failed disks; their content stays, but for a log that was moved away while its
        disk failed: a broker with both refuses to start, and its operator deletes the old one."""
        for store in self.stores:
            store.mend()
        for name, store in self._left_over.items():
            if all(each.exists(name) for each in self.stores):
                store.delete_dir(name)
        self._left_over.clear()

    def watch_moves(self, log_manager: LogManager) -> None:
        """Note which log is out of use, if a move that met a failed disk has left two of a name."""
        if len(self.stores) < 2 or not self.has_failed:
            return
        for log in log_manager.logs():
            for store in self.stores:
                if store is not log.store and store.exists(log.directory):
                    self._left_over.setdefault(log.directory, store)

    def cancel_faults(self) -> None:
        """Cancel faults that have not happened yet."""
        for store in self.stores:
            store.cancel_faults()

    @property
    def has_failed(self) -> bool:
        return any(store.has_failed for store in self.stores)

    @property
    def faults_taken(self) -> int:
        return sum(store.faults_taken for store in self.stores)

    @property
    def failed(self) -> set[str]:
        """The broken partition directories that an operation has hit."""
        return {name for store in self.stores for name in store.failed}

    def break_dir(self, directory: str, code: int, text: str) -> None:
        """Fail all operations in a directory until `mend`."""
        for store in self.stores:
            if store.exists(directory):
                store.break_dir(directory, code, text)

    def fail_next(self, operation: str, error: OSError, random: Random) -> None:
        """Fail the next `operation` on a random disk."""
        random.choice(self.stores).fail_next(operation, error)
