"""The log directories of a node: `log.dirs` as text, and their stores.

Corresponds to createAndValidateLogDirs and lockLogDirs of kafka.log.LogManager (3.9): a directory that
cannot be created or opened is offline, and the others are served. It is an error if another process
holds one of them, or if none works.
"""

from __future__ import annotations

import os
from contextlib import suppress
from errno import EAGAIN, EEXIST

from kwire.server.errors import NodeError, SettingsError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from kwire.replication.log_dirs.directory import LogDirStore
    from kwire.server.file_log_store import FileLogStore
    from kwire.server.flushes import Background
    from kwire.server.node import Node


def split_dirs(text: str) -> list[str]:
    """Split a text like "/a,/b" (log.dirs) into absolute paths.

    SettingsError when it is empty or has duplicates."""
    paths = [os.path.abspath(item.strip()) for item in text.split(",") if item.strip()]
    if not paths:
        raise SettingsError(
            f"Invalid value {text} for configuration log.dirs: at least one log directory must be defined"
        )
    if len(paths) > 1:
        real = [os.path.realpath(path) for path in paths]
        for number, path in enumerate(real):
            if path in real[:number]:
                raise SettingsError(f"Duplicate log directory found: {text}")
    return paths


def join_dirs(paths: list[str]) -> str:
    """Join paths to a text that `split_dirs` takes."""
    return ",".join(paths)


def below(dirs: str, name: str) -> str:
    """The subdirectory `name` of each of the directories, in the same format."""
    return join_dirs([os.path.join(path, name) for path in split_dirs(dirs)])


class LogDirs:
    """The log stores of one node; `opened` is for `Broker`. Call `close` after the node has ended."""

    def __init__(self, dirs: str, *, fsync: bool = True) -> None:
        """Open the directories. OSError when another process holds one, or none can be opened."""
        from kwire.replication.log_dirs.directory import LogDirStore
        from kwire.server.descriptors import default_max_open_files
        from kwire.server.file_log_store import FileLogStore

        self.paths = split_dirs(dirs)
        self._stores: list[FileLogStore] = []
        self._work: Background | None = None
        self._wake: Callable[[], None] = _nothing
        self.opened: list[LogDirStore] = []
        max_open_files = max(default_max_open_files() // len(self.paths), 32)
        first_error: OSError | None = None
        try:
            for path in self.paths:
                try:
                    store = FileLogStore(
                        path,
                        fsync=fsync,
                        max_open_files=max_open_files,
                        lazy_dirs=len(self.paths) == 1,
                    )
                    self._stores.append(store)
                    if len(self.paths) > 1:
                        store.list_dir()  # an unreadable directory is offline
                except OSError as error:
                    if error.errno == EAGAIN:
                        raise
                    first_error = first_error or error
                    self.opened.append(LogDirStore(path, None, error.strerror or str(error)))
                else:
                    self.opened.append(LogDirStore(path, store))
            if first_error is not None and all(each.store is None for each in self.opened):
                raise first_error
        except OSError:
            self.close()
            raise

    def deliver_to(self, node: Node) -> LogDirs:
        """Let what threads have ended take effect in steps of a node."""
        node.deliver = self._deliver
        self._wake = _waker(node)
        for store in self._stores:
            store.wake = self._wake
        return self

    def run_elsewhere(self, task: Callable[[], None], ended: Callable[[], None]) -> None:
        """Run a function of bytes on a thread, then `ended` in a step of the node: WorkQueue.elsewhere."""
        if self._work is None:
            from kwire.server.flushes import Background

            self._work = Background(self._wake, "kwire-work")
        try:
            self._work.submit(task, lambda _: ended(), _not_expected)
        except RuntimeError:  # the system gives no more threads
            task()
            ended()

    def _deliver(self) -> None:
        for store in self._stores:
            store.deliver()
        if self._work is not None:
            self._work.deliver()

    def close(self) -> None:
        """Close all files and release the locks."""
        if self._work is not None:
            self._work.close()
        for store in self._stores:
            try:
                store.close()
            except OSError:
                continue  # a failed disk: its write errors were reported already


def open_controllers(node: Node, path: str, *, fsync: bool, shared: bool) -> FileLogStore:
    """The log directory of a dedicated controller. If it alone uses it, flushes of its journal run
    on a thread, and its outbox holds what must wait for them. OSError."""
    from kwire.server.file_log_store import FileLogStore

    store = FileLogStore(path, fsync=fsync, shared=shared)
    if fsync and not shared:
        from kwire.replication.core.outbox import HoldingOutbox

        node.outbox = HoldingOutbox(node.clock)
        node.deliver = store.deliver
        store.wake = _waker(node)
    return store


def _waker(node: Node) -> Callable[[], None]:
    """For threads: let a node deliver what has ended, in a step of its own."""
    from kwire.server.node import STARTING

    def wake() -> None:
        if node.state is not STARTING:  # else it looks itself, when it begins to serve
            with suppress(RuntimeError):  # the loop is closed
                node.loop.call_soon_threadsafe(node.background_done)

    return wake


def disk_space(path: str) -> tuple[int, int]:
    """(total, usable) bytes of the file system that a directory is on. OSError."""
    stat = os.statvfs(path)
    return stat.f_blocks * stat.f_frsize, stat.f_bavail * stat.f_frsize


def load_error(dirs: str, error: OSError | Exception) -> NodeError:
    """Translate an error of opening or loading the directories to a one-line NodeError."""
    from kwire.replication.core.log_store import error_text

    reason = error_text(error)
    if isinstance(error, OSError) and error.filename in dirs.split(","):
        reason = error.strerror or reason  # the line names it anyway
    if isinstance(error, OSError) and error.errno == EEXIST:
        reason = "is not a directory" if "," in dirs else f"{dirs} is not a directory"
    if reason.startswith(tuple(dirs.split(","))):
        return NodeError(f"data directory {reason}")
    word = "directories" if "," in dirs else "directory"
    return NodeError(f"data {word} {dirs}: {reason}")


def _not_expected(error: OSError) -> None:
    raise error


def _nothing() -> None:
    pass
