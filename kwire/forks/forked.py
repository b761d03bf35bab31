"""Processes that are forked from a template, and the template that this process keeps for them.

Compare `asyncio.subprocess`, whose Process a `ForkedProcess` resembles. The other side is `template.py`.
The template starts with the first process that is wanted between `keep` and `end`, and ends with this
process at the latest: its stdin ends then.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import threading
from contextlib import ExitStack, suppress

from kwire.forks.template import LENGTH_BYTES
from kwire.server.errors import NodeError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import BinaryIO

    _Stream = tuple[asyncio.StreamReader, asyncio.StreamWriter]

_END_SECONDS = 20.0  # longer than the template waits for its processes

_ordering = threading.Lock()
_kept = False
_template: _Template | None = None


class _Template:
    """The template process of this process."""

    def __init__(self, command: list[str]) -> None:
        """Start it. OSError."""
        self._owner = os.getpid()
        self._orders, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                command,
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                start_new_session=True,  # Ctrl-C ends this process, and that the template
            )

    def order(self, arguments: list[str], descriptors: list[int]) -> bool:
        """Order a process. False: the template has ended, as somebody has killed it."""
        text = json.dumps(arguments).encode()
        message = len(text).to_bytes(LENGTH_BYTES, "big") + text
        try:
            sent = socket.send_fds(self._orders, [message], descriptors)
            self._orders.sendall(message[sent:])
        except ConnectionError:
            self.end()
            return False
        return True

    @property
    def is_own(self) -> bool:
        """Whether it belongs to this process, not to the one that has forked this."""
        return self._owner == os.getpid()

    def end(self) -> None:
        """End it; return when it has ended."""
        self._orders.close()
        try:
            self._process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def keep() -> None:
    """From now on fork processes from a template, until `end`."""
    global _kept
    _kept = hasattr(os, "fork")


def is_kept() -> bool:
    """Whether processes are to be forked."""
    return _kept


def end() -> None:
    """End `keep`, and the template, whose processes have ended."""
    global _kept, _template
    with _ordering:
        template, _template, _kept = _template, None, False
        if template is not None and template.is_own:
            template.end()


def _order(command: list[str], arguments: list[str], descriptors: list[int]) -> None:
    """Order a process of the template; start that with `command` first, if need be. OSError."""
    global _template
    with _ordering:
        if _template is None or not _template.is_own or not _template.order(arguments, descriptors):
            _template = _Template(command)
            _template.order(arguments, descriptors)


class ForkedProcess:
    """A process that was forked from the template; `start` makes one."""

    def __init__(self, stdin: _Stream, stdout: _Stream, life: _Stream) -> None:
        """Its streams, the ends of this process."""
        self.stdin = stdin[1]
        self.stdout = stdout[0]
        self.pid = -1
        self.returncode: int | None = None
        self._life = life[0]
        self._writers = [writer for _, writer in (stdin, stdout, life)]
        self._following: asyncio.Task[None] | None = None

    async def confirm(self) -> None:
        """Return when it runs. NodeError when the template could not fork."""
        word, _, rest = (await self._life.readline()).decode().strip().partition(" ")
        if word != "pid":
            self._close()
            raise NodeError(f"no process: {rest or 'the process that forks them has ended'}")
        self.pid = int(rest)
        self._following = asyncio.get_running_loop().create_task(self._follow())

    async def _follow(self) -> None:
        """Note how it ends. Without a word, it was killed, and the template before it."""
        word, _, rest = (await self._life.read()).decode().partition("\n")[0].partition(" ")
        self.returncode = int(rest) if word == "status" else -signal.SIGKILL
        self._close()

    def _close(self) -> None:
        for writer in self._writers:
            writer.close()

    async def wait(self) -> int:
        """Wait for its end; return its status, negative for a signal."""
        assert self._following is not None
        await asyncio.shield(self._following)
        assert self.returncode is not None
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Send it a signal. ProcessLookupError when it has ended."""
        if self.returncode is not None:
            raise ProcessLookupError
        os.kill(self.pid, number)

    def kill(self) -> None:
        """Send it SIGKILL. ProcessLookupError."""
        self.send_signal(signal.SIGKILL)

    def has_died(self) -> bool:
        """Whether it has ended by now, though `returncode` may not say so yet; False if in doubt."""
        if self.returncode is not None:
            return True
        with suppress(OSError), open(f"/proc/{self.pid}/stat") as stat:
            return stat.read().rpartition(")")[2].split()[0] == "Z"
        try:
            os.kill(self.pid, 0)  # succeeds as long as the template has not noticed
        except ProcessLookupError:
            return True
        return False


async def start(
    command: list[str], arguments: list[str], stderr: BinaryIO | None, limit: int
) -> ForkedProcess:
    """Fork a process that runs these arguments; return when it runs.

    `command`: starts the template, unless it runs. `stderr`: None: that of this process. `limit`: of a
    line of its stdout, in bytes. NodeError."""
    with ExitStack() as ours, ExitStack() as theirs:
        # Sockets, not pipes: uvloop closes the descriptor of a pipe twice, and the second time it may
        # be that of another thread.
        pairs = [socket.socketpair() for _ in range(3)]
        for our_end, their_end in pairs:
            ours.enter_context(our_end)
            theirs.enter_context(their_end)
        stdin, stdout, life = (their_end.fileno() for _, their_end in pairs)
        log = _own_stderr(theirs) if stderr is None else stderr.fileno()
        try:
            _order(command, arguments, [stdin, stdout, log, life])
        except OSError as error:
            raise NodeError(f"the process that forks nodes: {error.strerror}") from None
        theirs.close()
        streams = [
            await asyncio.open_unix_connection(sock=our_end, limit=limit) for our_end, _ in pairs
        ]
        ours.pop_all()
    process = ForkedProcess(*streams)
    await process.confirm()
    return process


def _own_stderr(theirs: ExitStack) -> int:
    with suppress(OSError):
        os.fstat(2)
        return 2
    return theirs.enter_context(open(os.devnull, "wb")).fileno()
