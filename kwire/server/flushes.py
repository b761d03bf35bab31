"""Flushes (fsync) of many files at once, and those of whole files that can be left out.

Each flush waits for the disk, so a clean stop of thousands of partitions took longer than a container
is given. Flushes that run at the same time share the journal's commits. Kafka closes logs on
`num.recovery.threads.per.data.dir` threads (LogManager.shutdown).
"""

from __future__ import annotations

import os
from collections import deque

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from types import TracebackType

    from kwire.server.file_log_store import FileLogStore

_THREADS = 8
_FOR_A_THREAD = 8  # flushes; fewer are not worth another


class DelayedFlushes:
    """A context: flushes of a store's files wait for its end, then run together."""

    __slots__ = ("_paths", "_store")

    def __init__(self, store: FileLogStore) -> None:
        self._store = store
        self._paths: dict[str, None] = {}

    def add(self, path: str) -> None:
        self._paths[path] = None

    def __enter__(self) -> None:
        self._store.delayed = self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        self._store.delayed = None
        if error is None:
            in_threads(self._flush, self._paths)
            self._store.flush_all_names(self._paths)

    def _flush(self, path: str) -> None:
        flush(self._store.full_path(path))


class UnflushedFiles:
    """The whole files that were written without a flush, by directory. Paths are a LogStore's."""

    __slots__ = ("_all_known", "_names")

    def __init__(self, *, all_known: bool) -> None:
        """`all_known`: what the store found at its start has been flushed, or nothing was there."""
        self._all_known = all_known
        self._names: dict[str, set[str]] = {}

    def add(self, path: str) -> None:
        directory, _, name = path.rpartition("/")
        self._names.setdefault(directory, set()).add(name)

    def holds(self, path: str) -> bool:
        """Whether a file may have content that is not on the disk."""
        directory, _, name = path.rpartition("/")
        return not self._all_known or name in self._names.get(directory, ())

    def discard(self, path: str) -> None:
        """Record that a file was flushed or deleted, or a directory with its content deleted."""
        self._names.pop(path, None)
        directory, _, name = path.rpartition("/")
        names = self._names.get(directory)
        if names is not None:
            names.discard(name)
            if not names:
                del self._names[directory]

    def rename(self, old: str, new: str) -> None:
        """Record that a file, or a directory with its content, was renamed."""
        if old in self._names:
            self._names[new] = self._names.pop(old)
        directory, _, name = old.rpartition("/")
        if name in self._names.get(directory, ()):
            self.discard(old)
            self.add(new)


def flush(path: str) -> None:
    """Fsync a file. OSError with its path."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    except OSError as error:
        raise OSError(error.errno, error.strerror, path) from None
    finally:
        os.close(fd)


def in_threads(task: Callable[[str], None], paths: Iterable[str]) -> None:
    """Run a task for each path, in several threads if there are many; raise its first error."""
    waiting = deque(paths)
    errors: list[BaseException] = []

    def work() -> None:
        try:
            while waiting and not errors:
                task(waiting.popleft())
        except IndexError:  # another thread has taken the last one
            return
        except BaseException as error:
            errors.append(error)

    more = min(_THREADS, len(waiting) // _FOR_A_THREAD) - 1
    threads = []
    if more > 0:
        from threading import Thread

        threads = [Thread(target=work, name="kwire-flush", daemon=True) for _ in range(more)]
    for thread in threads:
        thread.start()
    work()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
