"""What waits for the disk: flushes (fsync) on threads, of many files at once, or left out; deletions.

The loop never waits for them while it serves (`Background`): Kafka has the tasks "flush-log",
"delete-file" and "kafka-delete-logs" of its scheduler. A thread makes system calls and nothing else;
what follows from them is done by `deliver`, in a step of the node. Tasks that answers wait for have
a thread of their own: there may be many others before them. A task names its file by a function, as
the file may be renamed before its turn, and opens it by itself: each descriptor held in the queue
would be one that the broker lacks.

A clean stop flushes many files (`DelayedFlushes`): one after the other, thousands of partitions took
longer than a container is given. Flushes that run at the same time share the journal's commits. Kafka
closes logs on `num.recovery.threads.per.data.dir` threads (LogManager.shutdown).
"""

from __future__ import annotations

import os
import time
from collections import deque
from contextlib import suppress
from errno import ENOENT
from typing import TypeVar

from kwire.server.descriptors import is_shortage

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from concurrent.futures import Future, ThreadPoolExecutor
    from types import TracebackType

    from kwire.server.file_log_store import FileLogStore

_THREADS = 32
"""As many flushes wait for the same commit of the journal: with 8 thousands of files took twice as long."""
_FOR_A_THREAD = 16  # flushes; fewer are not worth another
_POOL_THREADS = 2
_SHORTAGE_PAUSE_SECONDS = 0.05

_Done = TypeVar("_Done")


class Background:
    """The threads of one store, or those of a node for work that is no I/O."""

    def __init__(self, wake: Callable[[], None], name: str = "kwire-disk") -> None:
        """`wake` is called, on a thread, after each task: `deliver` has something to do."""
        self._name = name
        self._wake = wake
        self._pools: dict[bool, ThreadPoolExecutor] = {}  # urgent → threads
        self._pending: set[Future[None]] = set()
        self._ended: deque[tuple[Callable[[], None], BaseException | None]] = deque()
        self._closed = False

    def submit(
        self,
        task: Callable[[], _Done],
        done: Callable[[_Done], None],
        failed: Callable[[OSError], None],
        *,
        urgent: bool = False,
    ) -> None:
        """Run `task` on a thread; `deliver` calls `done` with its result, or `failed`."""

        def run() -> None:
            try:
                result = self._run(task)
            except OSError as error:
                reason = error
                self._ended.append((lambda: failed(reason), None))
            except BaseException as error:  # a bug: raised where somebody sees it
                self._ended.append((_nothing, error))
            else:
                self._ended.append((lambda: done(result), None))
            self._wake()

        future = self._pool(urgent).submit(run)
        self._pending.add(future)
        future.add_done_callback(self._pending.discard)

    def _pool(self, urgent: bool) -> ThreadPoolExecutor:
        pool = self._pools.get(urgent)
        if pool is None:
            from concurrent.futures import ThreadPoolExecutor

            threads = 1 if urgent else _POOL_THREADS  # one: writes of a file keep their order
            pool = self._pools[urgent] = ThreadPoolExecutor(threads, self._name)
        return pool

    def _run(self, task: Callable[[], _Done]) -> _Done:
        while True:
            try:
                return task()
            except OSError as error:
                if not is_shortage(error) or self._closed:
                    raise
            time.sleep(_SHORTAGE_PAUSE_SECONDS)  # other descriptors are closed meanwhile

    def deliver(self) -> None:
        """Let what has ended take effect. Call it on the node's thread."""
        while self._ended:
            take_effect, bug = self._ended.popleft()
            if bug is not None:
                raise bug
            take_effect()

    def wait(self) -> None:
        """Wait for the end of all tasks and deliver them."""
        from concurrent.futures import wait

        while self._pending or self._ended:
            wait(list(self._pending))
            self.deliver()

    def close(self) -> None:
        """End without the tasks whose turn has not come; those that run end by themselves."""
        self._closed = True
        for pool in self._pools.values():
            pool.shutdown(wait=False, cancel_futures=True)


def flush_file(root: str, path: Callable[[], str], flush_names: Callable[[str], None]) -> bool:
    """Flush a file and its name; False if it is gone. `path()`: its present path below `root`."""
    while True:
        current = path()
        try:
            flush(f"{root}/{current}")
        except FileNotFoundError:
            if path() == current:
                return False
            continue
        if path() == current:
            flush_names(current)
            return True


def write_durably(path: str, data: bytes) -> None:
    """Replace a whole file in a directory whose own name is durable, with all flushes. OSError."""
    temporary = f"{path}.new.tmp"
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
    try:
        os.write(fd, data)
        os.fsync(fd)
    finally:
        os.close(fd)
    os.rename(temporary, path)
    flush(os.path.dirname(path))


def delete_files(paths: list[str]) -> None:
    """Delete files that may be gone already."""
    for path in paths:
        with suppress(FileNotFoundError):
            os.unlink(path)


def delete_tree(path: str) -> None:
    """Delete a directory with all in it, which may be gone already."""
    try:
        with os.scandir(path) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    delete_tree(entry.path)
                else:
                    os.unlink(entry.path)
        os.rmdir(path)
    except OSError as error:
        if error.errno != ENOENT:
            raise


def _nothing() -> None:
    pass


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
            self._store.wait()

    def _flush(self, path: str) -> None:
        with suppress(FileNotFoundError):  # gone since, or never there
            flush(self._store.full_path(path))


class UnflushedFiles:
    """The whole files that were written without a flush, by directory. Paths are a LogStore's."""

    __slots__ = ("_all_known", "_names")

    def __init__(self, *, all_known: bool) -> None:
        """`all_known`: what the store found at its start has been flushed, or nothing was there."""
        self._all_known = all_known
        self._names: dict[str, dict[str, object]] = {}
        """Directory → name → an object that distinguishes this content from a later one."""

    def add(self, path: str) -> None:
        directory, _, name = path.rpartition("/")
        self._names.setdefault(directory, {})[name] = object()

    def mark(self, path: str) -> object:
        """What distinguishes the present content of a file, for `discard`."""
        directory, _, name = path.rpartition("/")
        return self._names.get(directory, {}).get(name)

    def holds(self, path: str) -> bool:
        """Whether a file may have content that is not on the disk."""
        directory, _, name = path.rpartition("/")
        return not self._all_known or name in self._names.get(directory, ())

    def discard(self, path: str, mark: object = None) -> None:
        """Record that a file was flushed or deleted, or a directory with its content deleted.

        `mark`: that content of the file was flushed; a later one was not."""
        self._names.pop(path, None)
        directory, _, name = path.rpartition("/")
        names = self._names.get(directory)
        if names is not None and mark in (None, names.get(name)):
            names.pop(name, None)
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
