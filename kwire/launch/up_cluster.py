"""`kwire up --brokers N`: runs a cluster in the foreground until a signal."""

from __future__ import annotations

import asyncio
import signal
from contextlib import suppress

from kwire.control.socket import ControlSocket
from kwire.launch.configuration import asks_who, warn_about_keys
from kwire.launch.process import stop_on_signals
from kwire.launch.supervisor import Supervisor
from kwire.launch.up import LOOPBACK, announce, make_temporary, prepare_tls
from kwire.replication.config.broker_config import BrokerConfig, ConfigError
from kwire.replication.core.types import TLS_KEY
from kwire.server.errors import NodeError
from kwire.server.listeners import format_address
from kwire.server.logs import set_quiet
from kwire.server.node import settle_garbage_collector

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from kwire.launch.spec import ClusterSpec
    from kwire.launch.up import Surroundings


async def run_cluster(spec: ClusterSpec, surroundings: Surroundings) -> None:
    """Run a cluster until a signal. SettingsError, NodeError."""
    stopping = stop_on_signals()
    folder = None
    if TLS_KEY in spec.node.values:
        folder, spec = prepare_tls(spec, surroundings.written)
    node = spec.node
    if folder is None and node.temporary:
        folder = make_temporary(node.data_dir)
    try:
        if spec.snapshot is not None:
            from kwire.snapshots.restoring import fill_new

            fill_new(node.data_dir, spec.snapshot)
        await _run_nodes(spec, surroundings, stopping)
    finally:
        if folder is not None:
            folder.remove()


async def _run_nodes(
    spec: ClusterSpec, surroundings: Surroundings, stopping: asyncio.Future[str | None]
) -> None:
    node = spec.node
    supervisor = Supervisor(spec)
    with suppress(ConfigError):  # the node's start will report it
        keys = {key: value for own in spec.overrides.values() for key, value in own.items()}
        config = BrokerConfig({**node.configuration(), **keys}, brokers=spec.brokers)
        warn_about_keys(config, surroundings.written)
    await _run(supervisor, surroundings, stopping)


async def _run(
    supervisor: Supervisor, surroundings: Surroundings, stopping: asyncio.Future[str | None]
) -> None:
    loop = asyncio.get_running_loop()
    log_tasks: set[asyncio.Task[None]] = set()

    def on_status_signal() -> None:
        task = loop.create_task(supervisor.log_status())
        log_tasks.add(task)
        task.add_done_callback(log_tasks.discard)

    loop.add_signal_handler(signal.SIGUSR1, on_status_signal)
    control = _control_socket(surroundings, supervisor)
    starting = loop.create_task(_start(supervisor, surroundings, control))
    either: set[asyncio.Future[Any]] = {starting, stopping}
    await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
    if not starting.done() or starting.exception() is not None:
        starting.cancel()
        await asyncio.wait({starting})
        await _close(control)
        if not starting.cancelled():
            starting.result()
        return
    settle_garbage_collector()

    def on_none_left() -> None:
        if not stopping.done():
            stopping.set_result("no node is left")

    supervisor.on_none_left = on_none_left
    if not supervisor.any_runs:  # died before `on_none_left` was set
        on_none_left()
    failure = await stopping
    set_quiet(True)
    await _close(control)
    await supervisor.stop(last=True)
    if failure is not None:
        raise NodeError(failure)


def _control_socket(surroundings: Surroundings, supervisor: Supervisor) -> ControlSocket | None:
    make_control = surroundings.make_control
    if make_control is None:
        return None
    return ControlSocket(
        lambda: make_control(supervisor), lambda: supervisor.bootstrap_servers, ("kwire.aio",)
    )


async def _close(control: ControlSocket | None) -> None:
    if control is not None:
        await control.close()


async def _start(
    supervisor: Supervisor, surroundings: Surroundings, control: ControlSocket | None
) -> None:
    if control is not None:
        host = surroundings.control_host or LOOPBACK
        is_locked = asks_who(supervisor.spec.node.values)
        await control.open(host, surroundings.control_port or 0, is_locked=is_locked)
        supervisor.control_url = control.place
    await supervisor.start()
    try:
        if surroundings.topics:
            await supervisor.create_topics(surroundings.topics, surroundings.topic_configs)
        url = None if control is None else control.url
        at = ",".join(format_address(*each.address) for each in supervisor.brokers.values())
        broker = next(iter(supervisor.brokers.values())).spec
        announce(surroundings, supervisor.spec.node, supervisor.bootstrap_servers, at, url, broker)
    except BaseException:
        await supervisor.stop(last=True)
        raise
