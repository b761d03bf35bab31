"""`kwire node`: runs one node of a cluster in its own process.

Prints "ready id=… roles=… listeners=… bootstrap=…" when the node is ready. SIGTERM and SIGINT stop
it with a controlled shutdown. SIGUSR1 writes the node's status to its log (`status.py`).

Under a supervisor (`--supervised`) a start failure is the line "failed STATUS TEXT" on stdout, which
the supervisor reports. Lines on stdin are requests of the control API (`kwire.control.lines`). End
of file on stdin is a clean stop without controlled shutdown: the whole cluster stops, or the
supervisor has died. The line "last" before it says that the node is not started again.
"""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import sys
from contextlib import suppress

from kwire.launch.configuration import node_spec, warn_about_keys
from kwire.launch.node_runner import NodeRunner
from kwire.launch.process import LAST_STOP, stop_on_signals, write_ready_line
from kwire.server import logs
from kwire.server.descriptors import raise_limit
from kwire.server.errors import NodeError, SettingsError
from kwire.server.listeners import format_address
from kwire.server.node import new_event_loop, settle_garbage_collector

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from kwire.launch.spec import NodeSpec

_SCHEMAS = (
    *(
        "api_versions",
        "configs",
        "consumer_protocol",
        "control_plane",
        "fetch",
        "groups",
        "metadata",
    ),
    *("nodes", "offsets", "produce", "records_group", "topics", "transactions"),
)
_REPLICATION = ("controller", "core", "config", "fetcher", "log", "log_dirs", "member", "replica")
_ROOMS = (
    *("kwire.apis", "kwire.coordinator", "kwire.server"),
    *(f"kwire.replication.{name}" for name in _REPLICATION),
)
_LATE = (
    *("kwire.broker", "kwire.controller_node", "kwire.leftovers", "kwire.recent"),
    *("kwire.launch.joining", "kwire.launch.shape"),
    *("kwire.control.known", "kwire.control.lines", "kwire.control.routes", "kwire.control.status"),
    *(f"kwire.protocol.language.{name}" for name in ("compiler", "first_tags", "interpreter")),
    *("kwire.protocol.message_set", "kwire.protocol.records", "kwire.protocol.record_validation"),
    *(f"kwire.protocol.schemas.{name}" for name in _SCHEMAS),
    *("concurrent.futures.thread", "difflib", "fastcrc", "random", "resource", "uvloop"),
)


async def _run(spec: NodeSpec, supervised: bool) -> int:
    loop = asyncio.get_running_loop()
    stopping = stop_on_signals()
    controlled, last = True, False
    typed = bytearray()

    def on_input() -> None:
        nonlocal controlled, last
        data = os.read(0, 4096)
        if not data:  # the supervisor has ended
            loop.remove_reader(0)
            if not stopping.done():
                controlled = False
                logs.set_quiet(True)  # the whole cluster stops
                stopping.set_result(None)
            return
        from kwire.control.lines import answer_line

        typed.extend(data)
        while (end := typed.find(b"\n")) >= 0:
            line = typed[:end].decode(errors="replace")
            del typed[: end + 1]
            last = last or line == LAST_STOP
            if not last:
                sys.stdout.write(answer_line(runner.control, line) + "\n")
                sys.stdout.flush()

    runner = NodeRunner(spec)
    loop.add_signal_handler(signal.SIGUSR1, runner.log_status)
    if not supervised:
        warn_about_keys(runner.config)
    else:
        loop.add_reader(0, on_input)
    starting = loop.create_task(runner.start())
    either: set[asyncio.Future[Any]] = {starting, stopping}
    await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
    if not starting.done():  # a signal while the broker waits for its controller
        starting.cancel()
        await asyncio.wait({starting})
        return 0
    starting.result()

    def on_halted(why: str) -> None:
        if not stopping.done():
            stopping.set_result(why)

    runner.on_halted = on_halted
    try:
        write_ready_line(_ready_line(runner))
    except NodeError as error:
        await runner.stop()
        return _print_failure(1, str(error), False)
    logs.set_quiet(False)
    settle_garbage_collector()
    halted = await stopping
    if halted is not None:
        return _print_failure(1, halted, False)
    await runner.stop(controlled=controlled, last=last)
    await asyncio.sleep(0)  # lets cancelled connection attempts finish
    return 0


def _ready_line(runner: NodeRunner) -> str:
    spec = runner.spec
    listeners = f"listeners={runner.listeners} bootstrap={runner.advertised}"
    first = runner.node.listeners[0]
    if not first.is_plaintext:  # kwire itself comes to another one
        listeners += f" own={format_address(*runner.address)}"
    return f"ready id={spec.node_id} roles={spec.role} {listeners}"


def _is_stdin_closed() -> bool:
    """Whether the other end of stdin is closed, though there may be something to read before that."""
    import select

    poll = select.poll()
    poll.register(0, select.POLLIN)
    return any(events & select.POLLHUP for _, events in poll.poll(0))


def run_node(options: dict[str, Any], *, supervised: bool) -> int:
    """Run a node until a signal; return the exit status. A failure has printed its line by then.

    `options`: the arguments of `configuration.node_spec`."""
    gc.disable()  # until the start is over: start-up objects live on, a collection frees nothing
    level, as_json = options["log_level"], options["log_json"]
    logs.configure(level, as_json, in_cluster=True, is_quiet=True)
    if options["recent_requests"] and not supervised:
        reason = "a node that is started alone has no control API"
        return _print_failure(2, f"--recent-requests: {reason}", supervised)
    terminal = logs.terminal()
    if supervised and terminal is not None:
        terminal.is_ending = _is_stdin_closed
    raise_limit()
    loop = new_event_loop()
    try:
        return loop.run_until_complete(_run(node_spec(**options), supervised))
    except SettingsError as error:
        return _print_failure(2, str(error), supervised)
    except NodeError as error:
        return _print_failure(1, str(error), supervised)
    finally:
        loop.close()


def import_all() -> None:
    """Import what a node imports sooner or later, for a process that is forked into nodes.

    Whole rooms with the rooms inside them, of which a node leaves out very little; and what they import late."""
    from importlib import import_module
    from pkgutil import walk_packages

    for room in _ROOMS:
        package = import_module(room)
        for module in walk_packages(package.__path__, f"{room}."):
            import_module(module.name)
    for name in _LATE:
        with suppress(ImportError):  # an extra that is not installed
            import_module(name)


def _print_failure(status: int, line: str, supervised: bool) -> int:
    line = line.replace("\n", " ")
    if supervised:
        sys.stdout.write(f"failed {status} {line}\n")
        sys.stdout.flush()
    else:
        sys.stderr.write(f"kwire node: {line}\n")
    return status
