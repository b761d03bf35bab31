"""`kwire node`: one node of a cluster in a process of its own.

Prints "ready id=… roles=… listeners=… bootstrap=…" when it is. SIGTERM and SIGINT stop it with a controlled shutdown.
Under a supervisor (`--supervised`) what goes wrong at the start is a line on stdout, "failed STATUS TEXT", for the
supervisor to tell, and the end of stdin is a clean stop without controlled shutdown: the cluster stops as a whole, or
its supervisor has died. Lines on stdin are requests of the control API (`kwire.control.lines`). SIGUSR1: how the
node is, in its log (`status.py`).
"""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import sys

from kwire.launch.node_runner import BROKER, NodeRunner, NodeSettings
from kwire.launch.parts import warn_unknown_keys
from kwire.launch.settings import DEFAULT_HOST, UpSettings, check_one_data_dir, config_values
from kwire.server import logs
from kwire.server.errors import NodeError, SettingsError
from kwire.server.log_dirs import join_dirs, split_dirs
from kwire.server.node import new_event_loop, settle_garbage_collector

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from kwire.server.link_rules import LinkRule


async def _run(settings: NodeSettings, supervised: bool) -> int:
    loop = asyncio.get_running_loop()
    # Whether with controlled shutdown; or why the node has ended itself.
    stopping: asyncio.Future[bool | str] = loop.create_future()

    def on_signal() -> None:
        if stopping.done():
            os._exit(1)  # a second signal: the user does not want to wait for the first
        stopping.set_result(True)

    typed = bytearray()

    def on_input() -> None:
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
                stopping.set_result(False)

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, on_signal)
    runner = NodeRunner(settings)
    loop.add_signal_handler(signal.SIGUSR1, runner.tell_status)
    if not supervised:
        warn_unknown_keys(runner.config)
    else:
        loop.add_reader(0, on_input)
    starting = loop.create_task(runner.start())
    either: set[asyncio.Future[Any]] = {starting, stopping}
    await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
    if not starting.done():  # told to stop while the controller is waited for
        starting.cancel()
        await asyncio.wait({starting})
        return 0
    starting.result()

    def on_halted(why: str) -> None:
        if not stopping.done():
            stopping.set_result(why)

    runner.on_halted = on_halted
    sys.stdout.write(
        f"ready id={runner.config.node_id} roles={settings.role} listeners={runner.listeners}"
        f" bootstrap={runner.advertised}\n"
    )
    sys.stdout.flush()
    settle_garbage_collector()
    end = await stopping
    if isinstance(end, str):
        return _say(1, end, False)
    await runner.stop(controlled=end)
    await asyncio.sleep(0)  # connections that were being made are given up
    return 0


def node_settings(
    *,
    node_id: int,
    role: str,
    listeners: tuple[str, ...],
    controllers: tuple[tuple[int, str, int], ...],
    standby: bool,
    broker_epoch: int | None,
    data_dir: str | None,
    cluster_id: str | None,
    brokers: int,
    config_path: str | None,
    overrides: dict[str, str],
    as_version: str | None,
    temporary: bool,
    again: bool,
    network: tuple[str, ...],
    recent_requests: bool,
) -> NodeSettings:
    """What the options of the command line make. SettingsError, NodeError."""
    if role == BROKER and not controllers:
        raise SettingsError("--roles broker: --controller ID@HOST:PORT is needed")
    if role == BROKER and standby:
        raise SettingsError("--standby is for --roles controller")
    values = dict(overrides)
    if listeners:
        values["listeners"] = ",".join(listeners)
    values = config_values(UpSettings(config_path=config_path, overrides=values, port=None))
    if not listeners and "listeners" not in overrides and config_path is None:
        values["listeners"] = f"PLAINTEXT://{DEFAULT_HOST}:0"
    check_one_data_dir(data_dir, overrides)
    data_dir = data_dir or values.get("log.dirs") or values.get("log.dir")
    if data_dir is None:
        raise SettingsError("--data-dir DIR, or -c log.dirs=DIR,…, is needed")
    values["node.id"] = str(node_id)
    values.pop("broker.id", None)
    return NodeSettings(
        role,
        values,
        join_dirs(split_dirs(data_dir)),
        controller=controllers[0] if controllers else None,
        more_controllers=list(controllers[1:]),
        standby=standby,
        broker_epoch=broker_epoch,
        cluster_id=cluster_id,
        brokers=brokers,
        as_version=as_version,
        temporary=temporary,
        again=again,
        network=_rules(network),
        recent_requests=recent_requests,
    )


def _rules(texts: tuple[str, ...]) -> list[LinkRule]:
    """SettingsError."""
    if not texts:
        return []
    from kwire.server.link_rules import LinkRule

    try:
        return [LinkRule.parse(text) for text in texts]
    except ValueError as error:
        raise SettingsError(f"--network: {error}") from None


def run_node(
    make_settings: Callable[[], NodeSettings], log_level: str, log_json: bool, supervised: bool
) -> int:
    """Runs until a signal; returns the exit status and has said why when that is not 0."""
    gc.disable()  # until the start is over: nothing it makes is garbage
    logs.configure(log_level, log_json)
    loop = new_event_loop()
    try:
        return loop.run_until_complete(_run(make_settings(), supervised))
    except SettingsError as error:
        return _say(2, str(error), supervised)
    except NodeError as error:
        return _say(1, str(error), supervised)
    except BrokenPipeError:
        return _say(1, "nobody reads the ready line: stdout is closed", False)
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
