"""`kwire node`: one node of a cluster in a process of its own.

Prints "ready id=… roles=… listeners=… bootstrap=…" when it is. SIGTERM and SIGINT stop it with a
controlled shutdown. Under a supervisor (`--supervised`) what goes wrong at the start is a line on
stdout, "failed STATUS TEXT", for the supervisor to tell, and the end of stdin is a clean stop
without controlled shutdown: the cluster stops as a whole, or its supervisor has died. Lines on
stdin are requests of the control API (`kwire.control.lines`). SIGUSR1: how the node is, in its log
(`status.py`).
"""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import sys

from kwire.launch.configuration import node_spec, warn_unknown_keys
from kwire.launch.node_runner import NodeRunner
from kwire.launch.process import stop_on_signals, write_ready_line
from kwire.server import logs
from kwire.server.errors import NodeError, SettingsError
from kwire.server.node import new_event_loop, settle_garbage_collector

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from kwire.launch.spec import NodeSpec


async def _run(spec: NodeSpec, supervised: bool) -> int:
    loop = asyncio.get_running_loop()
    stopping = stop_on_signals()
    controlled = True
    typed = bytearray()

    def on_input() -> None:
        nonlocal controlled
        from kwire.control.lines import answer_line

        data = os.read(0, 4096)
        typed.extend(data)
        while (end := typed.find(b"\n")) >= 0:
            line = typed[:end].decode(errors="replace")
            sys.stdout.write(answer_line(runner.control, line) + "\n")
            sys.stdout.flush()
            del typed[: end + 1]
        if not data:
            loop.remove_reader(0)
            if not stopping.done():
                controlled = False
                stopping.set_result(None)

    runner = NodeRunner(spec)
    loop.add_signal_handler(signal.SIGUSR1, runner.tell_status)
    if not supervised:
        warn_unknown_keys(runner.config)
    else:
        loop.add_reader(0, on_input)
    starting = loop.create_task(runner.start())
    either: set[asyncio.Future[Any]] = {starting, stopping}
    await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
    if not starting.done():  # a signal while the controller is waited for
        starting.cancel()
        await asyncio.wait({starting})
        return 0
    starting.result()

    def on_halted(why: str) -> None:
        if not stopping.done():
            stopping.set_result(why)

    runner.on_halted = on_halted
    try:
        write_ready_line(
            f"ready id={spec.node_id} roles={spec.role} listeners={runner.listeners}"
            f" bootstrap={runner.advertised}"
        )
    except NodeError as error:
        await runner.stop()
        return _say(1, str(error), False)
    settle_garbage_collector()
    halted = await stopping
    if halted is not None:
        return _say(1, halted, False)
    await runner.stop(controlled=controlled)
    await asyncio.sleep(0)  # connections that were being made are given up
    return 0


def run_node(options: dict[str, Any], *, supervised: bool) -> int:
    """Runs until a signal; returns the exit status and has said why when that is not 0.

    `options`: those of `configuration.node_spec`."""
    gc.disable()  # until the start is over: nothing it makes is garbage
    logs.configure(options["log_level"], options["log_json"])
    loop = new_event_loop()
    try:
        return loop.run_until_complete(_run(node_spec(**options), supervised))
    except SettingsError as error:
        return _say(2, str(error), supervised)
    except NodeError as error:
        return _say(1, str(error), supervised)
    finally:
        loop.close()


def _say(status: int, line: str, supervised: bool) -> int:
    line = line.replace("\n", " ")
    if supervised:
        sys.stdout.write(f"failed {status} {line}\n")
        sys.stdout.flush()
    else:
        sys.stderr.write(f"kwire node: {line}\n")
    return status
