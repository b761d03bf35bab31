"""FaultyStore and FaultyFile: a FileLogStore and its files while tests have set faults of the disk.

A store becomes one by a change of its class, and its open files with it: so neither a store without faults nor a file
of one looks whether there are any. Errors are raised, or reported by `on_failure`, as a real disk's are; what is late
waits on a thread of the store, never on the node's loop.
"""

from __future__ import annotations

import time

from kwire.server.disks.rules import APPEND, CREATE, DELETE, FSYNC, READ, SLOW, TRUNCATE, WRITE
from kwire.server.file_log_store import FileLogStore
from kwire.server.log_file import FileLogFile

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from kwire.replication.core.outbox import Buffer
    from kwire.server.disks.rules import DiskRule

    Noted = Callable[[DiskRule, str, str], None]


class FaultyFile(FileLogFile):
    """A file of a FaultyStore."""

    __slots__ = ()

    @property
    def _disk(self) -> FaultyStore:
        store = self._store
        assert isinstance(store, FaultyStore)
        return store

    def append(self, parts: Iterable[Buffer]) -> None:
        self._disk.meet(APPEND, self.path)
        super().append(parts)

    def read(self, position: int, length: int) -> bytes:
        self._disk.meet(READ, self.path)
        return super().read(position, length)

    def truncate(self, size: int) -> None:
        if size < self.size:
            self._disk.meet(TRUNCATE, self.path)
        super().truncate(size)

    def flush(self) -> None:
        if self.flushed_size < self.size:
            self._disk.meet_flush(self.path)
        super().flush()

    def start_flush(self, on_flushed: Callable[[], None] | None = None) -> None:
        start = super().start_flush
        if self.flushed_size >= self.size:
            start(on_flushed)
        else:
            self._disk.meet_later(self.path, lambda: start(on_flushed))


class FaultyStore(FileLogStore):
    """A log directory on a disk that fails, is full or is slow. `install` makes one of a FileLogStore."""

    disk_rules: list[DiskRule]
    noted: Noted
    """Called with each hit: the rule, the operation, the path."""

    # --- faults

    def meet(self, operation: str, path: str) -> None:
        """OSError if an operation is to fail."""
        for rule in self.disk_rules:
            if rule.act != SLOW and rule.is_about(self.root, operation, path) and rule.happens():
                self.noted(rule, operation, self.full_path(path))
                raise rule.error(self.full_path(path))

    def meet_flush(self, path: str) -> None:
        """OSError if a flush is to fail; what a later one says is not to be believed."""
        try:
            self.meet(FSYNC, path)
        except OSError as error:
            self.failed = self.failed or error
            raise

    def meet_later(self, path: str, start: Callable[[], None]) -> None:
        """Start a flush, on a slow disk later; report one that is to fail as a thread would."""
        try:
            self.meet(FSYNC, path)
        except OSError as error:
            reason = error

            def fail() -> None:
                raise reason

            self.background.submit(fail, _ignore, self._fail)
            return
        seconds = 0.0
        for rule in self.disk_rules:
            if rule.act == SLOW and rule.is_about(self.root, FSYNC, path) and rule.happens():
                seconds += rule.milliseconds / 1000
        if seconds:
            self.background.submit(lambda: time.sleep(seconds), lambda _: start(), self._fail)
        else:
            start()

    # --- the operations

    def open(self, path: str, *, create: bool = False) -> FileLogFile:
        if create and not self.exists(path):
            self.meet(CREATE, path)
        file = super().open(path, create=create)
        file.__class__ = FaultyFile
        return file

    def make_dir(self, path: str) -> None:
        if not self.exists(path):
            self.meet(CREATE, path)
        super().make_dir(path)

    def make_files(self, directory: str) -> None:
        if directory in self._newborn:
            self.meet(CREATE, directory)
        super().make_files(directory)

    def claim_file(self, path: str) -> bool:
        self.meet(CREATE, path)
        return super().claim_file(path)

    def read_file(self, path: str) -> bytes:
        self.meet(READ, path)
        return super().read_file(path)

    def write_file(self, path: str, data: bytes, *, flush: bool = True) -> None:
        self.meet(WRITE, path)
        if flush:
            self.meet_flush(path)
        super().write_file(path, data, flush=flush)

    def start_write_file(self, path: str, data: bytes, on_written: Callable[[], None]) -> None:
        self.meet(WRITE, path)
        start = super().start_write_file
        self.meet_later(path, lambda: start(path, data, on_written))

    def flush_file(self, path: str) -> None:
        self.meet_flush(path)
        super().flush_file(path)

    def start_flush_file(self, path: str, on_flushed: Callable[[], None]) -> None:
        start = super().start_flush_file
        self.meet_later(path, lambda: start(path, on_flushed))

    def rename(self, old: str, new: str) -> None:
        self.meet(WRITE, old)
        super().rename(old, new)

    def delete(self, path: str) -> None:
        self.meet(DELETE, path)
        super().delete(path)

    def delete_dir(self, path: str) -> None:
        self.meet(DELETE, path)
        super().delete_dir(path)

    def start_delete(self, paths: list[str]) -> None:
        for path in paths:
            self.meet(DELETE, path)
        super().start_delete(paths)

    def start_delete_dir(self, path: str) -> None:
        self.meet(DELETE, path)
        super().start_delete_dir(path)


def install(store: FileLogStore, rules: list[DiskRule], noted: Noted) -> None:
    """Set the faults of a store, instead of those that it has; none makes a plain store of it again."""
    store.__class__ = FaultyStore if rules else FileLogStore
    if isinstance(store, FaultyStore):
        store.disk_rules, store.noted = rules, noted
    else:
        for name in ("disk_rules", "noted"):
            store.__dict__.pop(name, None)
    kind = FaultyFile if rules else FileLogFile
    for files in store._files.values():
        for file in files.values():
            file.__class__ = kind


def _ignore(_: None) -> None:
    pass
