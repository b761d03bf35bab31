"""The disks of one simulated machine: a MemoryLogStore for each log directory, and what becomes of all of them."""

from __future__ import annotations

from kwire.replication.core.log_store import MemoryLogStore
from kwire.replication.log_dirs.directory import LogDirStore

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random


class Disks:
    """`stores`: by log directory; the first is the one a node without several has."""

    def __init__(self, count: int, wall_ms: Callable[[], int]) -> None:
        self.stores = [MemoryLogStore(wall_ms) for _ in range(count)]

    @property
    def first(self) -> MemoryLogStore:
        return self.stores[0]

    def as_directories(self) -> MemoryLogStore | list[LogDirStore]:
        """What a Broker is given."""
        if len(self.stores) == 1:
            return self.first
        return [LogDirStore(f"/disk-{n}", store) for n, store in enumerate(self.stores)]

    def crash(self, keep: Callable[[int], int] | None = None) -> None:
        """A power cut takes the unflushed tails on all of them."""
        for store in self.stores:
            store.crash(keep)

    def mend(self) -> None:
        """What has failed is replaced; what was on it is there."""
        for store in self.stores:
            store.mend()

    def cancel_faults(self) -> None:
        """Faults that nobody has met yet do not happen."""
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
        """Partitions' directories that somebody has tried to use and that are broken."""
        return {name for store in self.stores for name in store.failed}

    def break_dir(self, directory: str, code: int, text: str) -> None:
        """From now on its files fail, until `mend`."""
        for store in self.stores:
            if store.exists(directory):
                store.break_dir(directory, code, text)

    def fail_next(self, operation: str, error: OSError, random: Random) -> None:
        """On one of them the next operation fails."""
        random.choice(self.stores).fail_next(operation, error)
