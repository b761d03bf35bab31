"""The template process: it has imported everything, and forks itself into each node that is wanted.

Kafka has no counterpart. To start Python and to import kwire costs a node a quarter of a second, a fork
of a process that has done both a few milliseconds; and unlike a process that is used a second time, a
fork has nothing of an earlier node: no state, descriptors, threads or settings. The other side is
`forked.py`.

The template has no event loop and no threads, and reads orders from its stdin, a stream socket: the
length of the arguments (4 bytes), the arguments as JSON, and with them four descriptors: stdin, stdout
and stderr of the new process, and a stream for its life: "pid N" or "failed WHY", in the end "status N", each
in a line. The process has that open, too, as long as it lives: end of file there is its end, even if
somebody has killed the template.

End of file on stdin: whoever wanted the processes has ended. They end by themselves, by end of file on
their own stdin; those that are suspended are resumed for that, and what takes too long is killed.
"""

from __future__ import annotations

import gc
import json
import os
import select
import signal
import socket
import sys
import time
from contextlib import suppress

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

LENGTH_BYTES = 4
DESCRIPTORS = 4
_END_SECONDS = 15.0  # as long as a supervisor waits for a node that stops
_CHECK_SECONDS = 0.05


def serve(run: Callable[[list[str]], int]) -> int:
    """Fork a process for each order, and in it return the exit status of `run(arguments)` to the system.

    Returns when stdin has ended and all processes have."""
    gc.freeze()  # a collection would write to pages that the processes share
    template = _Template(socket.socket(fileno=os.dup(0)), run)
    try:
        template.run()
    finally:
        template.end()
    return 0


class _Template:
    def __init__(self, orders: socket.socket, run: Callable[[list[str]], int]) -> None:
        self._orders = orders
        self._run = run
        self._lives: dict[int, int] = {}  # by pid: the descriptor that its life is written to
        self._woken, self._waker = os.pipe()
        for descriptor in (self._woken, self._waker):
            os.set_blocking(descriptor, False)
        signal.set_wakeup_fd(self._waker)
        signal.signal(signal.SIGCHLD, lambda *_: None)

    def run(self) -> None:
        """Carry out orders until there will be no more."""
        poll = select.poll()
        for descriptor in (self._orders.fileno(), self._woken):
            poll.register(descriptor, select.POLLIN)
        while True:
            ready = {descriptor for descriptor, _ in poll.poll()}
            if self._woken in ready:
                with suppress(BlockingIOError):
                    os.read(self._woken, 4096)
                self._reap()
            if self._orders.fileno() in ready:
                order = self._next_order()
                if order is None:
                    return
                self._fork(*order)

    def _next_order(self) -> tuple[list[str], list[int]] | None:
        """Arguments and descriptors; None at the end."""
        try:
            head, descriptors, _, _ = socket.recv_fds(self._orders, LENGTH_BYTES, DESCRIPTORS)
            if not head:
                return None
            text = self._receive(
                int.from_bytes(head + self._receive(LENGTH_BYTES - len(head)), "big")
            )
        except (ConnectionError, EOFError):
            return None
        return json.loads(text), descriptors

    def _receive(self, count: int) -> bytes:
        found = b""
        while len(found) < count:
            part = self._orders.recv(count - len(found))
            if not part:
                raise EOFError
            found += part
        return found

    def _fork(self, arguments: list[str], descriptors: list[int]) -> None:
        life = descriptors[-1]
        try:
            pid = os.fork()
        except OSError as error:
            self._write(life, f"failed {error.strerror}")
            os.close(life)
        else:
            if pid == 0:
                self._become(arguments, descriptors)
            self._lives[pid] = life
            self._write(life, f"pid {pid}")
        for descriptor in descriptors[:-1]:
            os.close(descriptor)

    def _become(self, arguments: list[str], descriptors: list[int]) -> None:
        """In the new process: be what was ordered, and end with it."""
        status = 1
        try:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            os.setsid()  # signals of the terminal reach the supervisor only
            for number, descriptor in enumerate(descriptors[:-1]):
                os.dup2(descriptor, number)
            others = (self._woken, self._waker, *self._lives.values())
            for descriptor in (*descriptors[:-1], *others):
                os.close(descriptor)
            self._orders.close()
            status = self._run(arguments)
            self._write(descriptors[-1], f"status {status}")
        except BaseException:
            sys.excepthook(*sys.exc_info())
        finally:
            for stream in (sys.stdout, sys.stderr):
                with suppress(OSError, ValueError):
                    stream.flush()
            os._exit(status)  # the interpreter's own end would take longer than all the rest

    def _reap(self) -> None:
        """Report the processes that have ended."""
        while self._lives:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return
            life = self._lives.pop(pid)
            self._write(life, f"status {os.waitstatus_to_exitcode(status)}")
            os.close(life)

    @staticmethod
    def _write(life: int, line: str) -> None:
        with suppress(BrokenPipeError):  # nobody waits for it any more
            os.write(life, line.encode() + b"\n")

    def end(self) -> None:
        """Return when all processes have ended."""
        self._signal(signal.SIGCONT)
        deadline = time.monotonic() + _END_SECONDS
        while self._lives and time.monotonic() < deadline:
            select.select([self._woken], [], [], _CHECK_SECONDS)
            self._reap()
        self._signal(signal.SIGKILL)

    def _signal(self, number: int) -> None:
        for pid in self._lives:
            with suppress(ProcessLookupError):
                os.kill(pid, number)
