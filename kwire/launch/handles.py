"""Handles of the nodes of a cluster: start, stop, kill, pause and query a node.

`ThreadHandle` runs its node on this event loop, `ProcessHandle` in a child process. Kafka has no
counterpart. A node keeps its ports and its directory across restarts.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from contextlib import ExitStack, suppress

from kwire.launch.node_runner import NodeRunner
from kwire.launch.process import LAST_STOP
from kwire.server.errors import NodeError, SettingsError
from kwire.server.events import NodeEvent
from kwire.server.listeners import reachable
from kwire.server.logs import event

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, BinaryIO

    from kwire.control.errors import ControlError
    from kwire.forks.forked import ForkedProcess
    from kwire.launch.spec import NodeSpec
    from kwire.protocol.errors import KafkaError
    from kwire.server.link_rules import LinkRule

_log = logging.getLogger(__name__)

START_SECONDS = 30.0
STOP_SECONDS = 15.0
_MAX_ANSWER_BYTES = 16 << 20  # one line of a node process's stdout


def python_of_nodes() -> list[str]:
    """The interpreter and its options for a node's process.

    With -P, so that a folder kwire/ or a typing.py in the user's current directory is not run.
    Without it in the clone from which this process runs: there kwire may be found in no other way.
    """
    home = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    return [sys.executable] if os.path.samefile(home, ".") else [sys.executable, "-P"]


def template_command() -> list[str]:
    """The command of a process that forks itself into nodes (`kwire.forks.forked`)."""
    return [*python_of_nodes(), "-m", "kwire", "node", "--template"]


class NodeHandle:
    """The state of a node that is known without a request to it, and the operations on it."""

    def __init__(self, spec: NodeSpec) -> None:
        self.node_id = spec.node_id
        self.spec = spec
        self.address = ("", 0)  # to connect to from this machine
        self.advertised = ""
        self.paused = False
        self.may_halt = self.has_halted = False  # as its disk fails, which a test has set

    @property
    def running(self) -> bool:
        raise NotImplementedError

    @property
    def answers(self) -> bool:
        """Whether the node can answer requests: it runs and is not paused."""
        return self.running and not self.paused

    @property
    def rack(self) -> str | None:
        """The broker's rack, `broker.rack`; None without one."""
        return self.spec.values.get("broker.rack")

    @property
    def log_dir(self) -> str:
        """The node's log directories, comma-separated."""
        return self.spec.data_dir

    async def ask(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        """Send a request to the node's control API (`kwire.control.routes`); return the answer.

        KafkaError when the request is refused; NodeError when the node does not run."""
        raise NotImplementedError

    async def set_link_rules(self, rules: list[LinkRule]) -> None:
        """Replace all link rules of this node, the sender. NodeError when it does not run."""
        await self.ask("PUT", "/v1/network", {"rules": [rule.to_json() for rule in rules]})

    def set_start_rules(self, rules: list[LinkRule]) -> None:
        """Set the link rules that apply when this node starts the next time."""
        self.spec = self.spec.replace(network=tuple(rules))

    def set_start_clock(self, offset_ms: int) -> None:
        """Set how far the clock is ahead of real time when this node starts the next time."""
        if offset_ms != self.spec.clock_ms:
            self.spec = self.spec.replace(clock_ms=offset_ms)

    def _keep_ports(self, listeners: str) -> None:
        """Make the next start bind the same ports, and retry while they are still in use."""
        values = {**self.spec.values, "listeners": listeners}
        self.spec = self.spec.replace(values=values, again=True)


class ThreadHandle(NodeHandle):
    """A node on this event loop."""

    def __init__(self, spec: NodeSpec, on_death: Callable[[int, int, str], None]) -> None:
        """`on_death(node id, 1, reason)` is called when the broker has halted itself."""
        super().__init__(spec)
        self.runner: NodeRunner | None = None
        self.make_runner: Callable[[NodeSpec], NodeRunner] = NodeRunner
        self._on_death = on_death

    @property
    def running(self) -> bool:
        return self.runner is not None

    @property
    def pid(self) -> int:
        return os.getpid()

    async def start(self) -> None:
        runner = self.make_runner(self.spec)
        await runner.start(wait_seconds=START_SECONDS)
        self.runner = runner
        runner.on_halted = self._on_halted
        self.address, self.advertised = runner.address, runner.advertised
        self._keep_ports(runner.listeners)

    def _on_halted(self, why: str) -> None:
        self.paused = False
        self.runner = None
        self._on_death(self.node_id, 1, why)

    async def stop(self, *, controlled: bool = True, last: bool = False) -> None:
        """Stop it cleanly. `last`: it is not started again, see `NodeRunner.stop`."""
        self.resume()
        runner, self.runner = self.runner, None
        if runner is not None:
            await runner.stop(controlled=controlled, last=last)

    async def refresh_running(self) -> None:
        """No-op: a node on this event loop reports its end itself."""

    async def kill(self) -> None:
        self.paused = False
        runner, self.runner = self.runner, None
        if runner is not None:
            runner.kill()
            await asyncio.sleep(0)

    def pause(self) -> None:
        """Suspend the node until `resume`, as SIGSTOP does."""
        if self.runner is not None and not self.paused:
            self.paused = True
            self.runner.node.pause()

    def resume(self) -> None:
        """Undo `pause`."""
        if self.runner is not None and self.paused:
            self.paused = False
            self.runner.node.resume()

    async def ask(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        if self.runner is None:
            raise NodeError(f"node {self.node_id} does not run")
        from kwire.control.errors import ControlError
        from kwire.control.routes import ask_nodes

        try:
            return ask_nodes(self.runner.control, method, path, body or {})
        except ControlError as error:
            raise _kafka_error(error) from None


class ProcessHandle(NodeHandle):
    """A node in a process of its own: `python -m kwire node …`."""

    def __init__(self, spec: NodeSpec, on_death: Callable[[int, int], None]) -> None:
        """`on_death(node id, return code)` is called when the process has ended unexpectedly."""
        super().__init__(spec)
        self._on_death = on_death
        self._process: asyncio.subprocess.Process | ForkedProcess | None = None
        self._ending = False
        self._asking = asyncio.Lock()
        self._exchanges: set[asyncio.Task[str]] = set()
        self.log_path: str | None = None  # where its stderr goes; None: to this process's stderr
        self._watcher: asyncio.Task[None] | None = None

    @property
    def running(self) -> bool:
        return self._process is not None

    @property
    def pid(self) -> int:
        return -1 if self._process is None else self._process.pid

    async def start(self) -> None:
        self._ending = self.paused = False
        async with self._asking:  # its first line is no answer to who asks meanwhile
            process, line = await self._start_process()
        word, _, rest = line.partition(" ")
        if word != "ready":
            await process.wait()
            self._process = None
            if word == "failed":
                status, _, text = rest.partition(" ")
                raise (SettingsError if status == "2" else NodeError)(text)
            raise NodeError(f"its process ended with status {process.returncode}")
        found = dict(item.split("=", 1) for item in rest.split(" "))
        first = found["listeners"].split(",")[0].partition("://")[2]
        self.address = reachable(found.get("own", first))
        self.advertised = found["bootstrap"]
        self._keep_ports(found["listeners"])
        self._watcher = asyncio.get_running_loop().create_task(self._watch(process))

    async def _start_process(self) -> tuple[asyncio.subprocess.Process | ForkedProcess, str]:
        """Start the process; return it with its first line."""
        with ExitStack() as files:
            log = None
            if self.log_path is not None:
                log = files.enter_context(open(self.log_path, "ab"))
            self._process = process = await self._spawn(log)
        assert process.stdout is not None
        try:
            async with asyncio.timeout(START_SECONDS):
                return process, (await process.stdout.readline()).decode().strip()
        except BaseException as error:
            await self.kill()
            if isinstance(error, TimeoutError):
                raise NodeError("it was not ready in time") from None
            raise

    async def _spawn(self, log: BinaryIO | None) -> asyncio.subprocess.Process | ForkedProcess:
        forked = sys.modules.get("kwire.forks.forked")  # not loaded: nobody keeps a template
        if forked is not None and forked.is_kept():
            process: ForkedProcess = await forked.start(
                template_command(), self.spec.argv(), log, _MAX_ANSWER_BYTES
            )
            return process
        return await asyncio.create_subprocess_exec(
            *python_of_nodes(),
            "-m",
            "kwire",
            "node",
            "--supervised",
            *self.spec.argv(),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=log,
            limit=_MAX_ANSWER_BYTES,
            start_new_session=True,  # Ctrl-C reaches the supervisor only: it stops the nodes in order
        )

    async def _watch(self, process: asyncio.subprocess.Process | ForkedProcess) -> None:
        await process.wait()
        if self._process is process:
            self._process = None
        if not self._ending:
            self._on_death(self.node_id, process.returncode or 0)

    async def refresh_running(self) -> None:
        """Update `running` now if the process has just been killed.

        Otherwise the child watcher would do so some turns of the loop later."""
        process, watcher = self._process, self._watcher
        if process is None or watcher is None:
            return
        if _has_died(process):
            await asyncio.shield(watcher)

    async def stop(self, *, controlled: bool = True, last: bool = False) -> None:
        """As a ThreadHandle's; `last` goes with `controlled=False` only."""
        process = self._process
        if process is None:
            return
        self.resume()
        self._ending = True
        if controlled:
            process.send_signal(signal.SIGTERM)
        else:
            assert process.stdin is not None
            if last:
                process.stdin.write(LAST_STOP.encode() + b"\n")
            process.stdin.close()
        try:
            async with asyncio.timeout(STOP_SECONDS):
                await process.wait()
        except TimeoutError:
            event(_log, NodeEvent.NODE_KILLED, None, self.spec.name, node_id=self.node_id)
            await self.kill()
        self._process = None
        if process.returncode:
            raise NodeError(f"node {self.node_id} stopped with status {process.returncode}")

    async def kill(self) -> None:
        process = self._process
        if process is None:
            return
        self._ending, self.paused = True, False
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()
        self._process = None

    async def ask(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        from kwire.control.errors import ControlError
        from kwire.control.lines import answer_of, request_line

        answer = await self._ask(request_line(method, path, body))
        try:
            return answer_of(answer)
        except ControlError as error:
            raise _kafka_error(error) from None

    async def _ask(self, line: str) -> str:
        # Answers come in request order: a cancelled caller must not leave its answer to the next.
        exchange = asyncio.get_running_loop().create_task(self._exchange(line))
        self._exchanges.add(exchange)
        exchange.add_done_callback(self._exchanges.discard)
        answer = await asyncio.shield(exchange)
        if not answer:
            raise NodeError(f"node {self.node_id} does not run")
        return answer

    async def _exchange(self, line: str) -> str:
        """Write a line to the process and read its answer; "" when the process has ended."""
        async with self._asking:
            process = self._process
            if process is None:
                return ""
            assert process.stdin is not None and process.stdout is not None
            process.stdin.write(line.encode() + b"\n")
            return (await process.stdout.readline()).decode().strip()

    def pause(self) -> None:
        """Suspend the node until `resume`, as SIGSTOP does."""
        self.paused = self.running
        self.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Undo `pause`."""
        self.paused = False
        self.send_signal(signal.SIGCONT)

    def send_signal(self, number: int) -> None:
        """Send a signal to the process; no-op if it does not run."""
        if self._process is not None:
            self._process.send_signal(number)


Handle = ThreadHandle | ProcessHandle


def _has_died(process: asyncio.subprocess.Process | ForkedProcess) -> bool:
    """Whether a process has ended, though its `returncode` may not say so yet."""
    if not isinstance(process, asyncio.subprocess.Process):
        return process.has_died()
    try:
        ended = os.WEXITED | os.WNOHANG | os.WNOWAIT
        return os.waitid(os.P_PID, process.pid, ended) is not None
    except ChildProcessError:  # reaped already, the watcher will run
        return True


def _kafka_error(error: ControlError) -> KafkaError:
    from kwire.protocol.errors import ErrorCode, KafkaError

    invalid = "INVALID_REQUEST" if error.status == 400 else "UNKNOWN_SERVER_ERROR"
    return KafkaError(ErrorCode[error.kafka_error or invalid], str(error))
