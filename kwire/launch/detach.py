"""`kwire up --detach`: the cluster goes on in a process of its own, which this one waits for.

A fork before anything heavy is imported: a second interpreter would cost as much as the start. The
child is in a session of its own, so that it survives its terminal; until it is ready its failure, its
warnings and its ready line still come out here. Its log goes to a file in the registry's directory.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
from contextlib import suppress

from kwire.launch.registry import RegistryError, runtime_directory

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TextIO

_LOGS_KEPT = 5
_MAX_DESCRIPTOR = 65536


class Detached:
    """The child's ties to the process that waits for it."""

    def __init__(self, waiting: int, terminal: TextIO, log: TextIO, log_path: str) -> None:
        self._waiting = waiting
        self.terminal = terminal
        """What was stderr."""
        self.log = log
        self.log_path = log_path
        self._handler: logging.Handler | None = None

    def show_warnings(self) -> None:
        """Let warnings of the start come out at the terminal, too, as in the foreground."""
        from kwire.server.logs import JsonFormatter, handler_for

        logger = logging.getLogger("kwire")
        as_json = isinstance(logger.handlers[0].formatter, JsonFormatter)
        self._handler = handler_for(self.terminal, as_json)
        self._handler.setLevel(logging.WARNING)
        logger.addHandler(self._handler)

    def announce(self, ready_line: str) -> None:
        """Say that the cluster is ready; from now on nothing goes to the terminal.

        NodeError when the waiting process has gone (Ctrl-C): nobody knows of the cluster."""
        try:
            os.write(self._waiting, ready_line.encode())
        except OSError:
            from kwire.server.errors import NodeError

            raise NodeError("interrupted before it was ready") from None
        os.close(self._waiting)
        sys.stderr = self.log
        if self._handler is not None:
            logging.getLogger("kwire").removeHandler(self._handler)
        self.terminal.close()


def run_detached(run: Callable[[Detached], int]) -> int:
    """Call `run` in a detached child process; return 0 when it has called `announce`, else the status
    that `run` returns. A failure has printed its line by then."""
    if sys.stdout is None:
        return _fail("nobody reads the ready line: stdout is closed")
    open_standard_descriptors()
    try:
        directory = runtime_directory()
    except RegistryError as error:
        return _fail(f"--detach: {error}; set KWIRE_RUNTIME_DIR to a directory of your own")
    _remove_old_logs(directory)
    readable, writable = os.pipe()
    child = os.fork()
    if child == 0:
        # As `sys.exit` in the foreground: nothing is left that the kernel does not clean up faster.
        os._exit(_run_child(run, directory, writable))
    os.close(writable)
    return _wait(child, readable, log_path(directory, child))


def log_path(directory: str, pid: int) -> str:
    """The log of a detached process."""
    return os.path.join(directory, f"up-{pid}.log")


def _run_child(run: Callable[[Detached], int], directory: str, waiting: int) -> int:
    os.setsid()
    # What else the caller has open is not this cluster's: a lock of a script, say.
    os.closerange(3, waiting)
    os.closerange(waiting + 1, _MAX_DESCRIPTOR)
    path = log_path(directory, os.getpid())
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_CLOEXEC
    try:
        log = os.open(path, flags, 0o600)
    except OSError as error:
        return _fail(f"--detach: {path}: {error.strerror}")
    terminal = os.dup(2)
    nothing = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    for target, source in enumerate((nothing, log, log)):
        os.dup2(source, target)
    sys.stderr = os.fdopen(terminal, "w", buffering=1, errors="backslashreplace")
    log_file = os.fdopen(log, "w", buffering=1, errors="backslashreplace")
    try:
        return run(Detached(waiting, sys.stderr, log_file, path))
    except BaseException:
        sys.excepthook(*sys.exc_info())
        return 1


def _wait(child: int, readable: int, log: str) -> int:
    """Wait for the child's ready line, or for its end."""
    received = b""
    while data := os.read(readable, 4096):
        received += data
    if not received:
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        if status < 0:
            return _fail(f"ended by {signal.Signals(-status).name} before it was ready; log: {log}")
        return status
    try:
        sys.stdout.write(received.decode() + "\n")
        sys.stdout.flush()
    except OSError as error:
        os.kill(child, signal.SIGTERM)
        os.waitpid(child, 0)
        return _fail(f"cannot write the ready line to stdout: {error.strerror}")
    sys.stderr.write(f"kwire up: pid {child}, log {log}; stop it with: {_stop_command(child)}\n")
    return 0


def _stop_command(child: int) -> str:
    from kwire.launch.running import all_running

    return "kwire down" if len(all_running()) == 1 else f"kwire down {child}"


def open_standard_descriptors() -> None:
    """Make sure that 0, 1 and 2 are open: what is opened later must not get their numbers.

    What a closed stderr would get goes nowhere."""
    with suppress(OSError):
        while (opened := os.open(os.devnull, os.O_RDWR)) < 3:
            os.set_inheritable(opened, True)
        os.close(opened)
    if sys.stderr is None:  # closed before Python started
        sys.stderr = os.fdopen(2, "w", closefd=False)


def _remove_old_logs(directory: str) -> None:
    """Remove the logs of processes that have ended, but for the last ones."""
    from kwire.launch.registry import start_time

    with suppress(OSError):
        names = [name for name in os.listdir(directory) if name.startswith("up-")]
        ended = [
            os.path.join(directory, name)
            for name in names
            if start_time(name.removeprefix("up-").removesuffix(".log")) is None
        ]
        for path in sorted(ended, key=os.path.getmtime)[:-_LOGS_KEPT]:
            os.unlink(path)


def _fail(text: str) -> int:
    sys.stderr.write(f"kwire up: {text}\n")
    return 1
