"""`kwire up --brokers N`: a cluster in the foreground, from options to exit status."""

from __future__ import annotations

import asyncio
import signal
from contextlib import suppress

from kwire.control.socket import ControlSocket
from kwire.launch.parts import warn_unknown_keys
from kwire.launch.settings import UpSettings, config_values, data_dir_of
from kwire.launch.supervisor import Supervisor
from kwire.launch.up import announce, made_temporary, on_signal, remove
from kwire.replication.config.broker_config import BrokerConfig, ConfigError
from kwire.server.errors import NodeError
from kwire.server.node import new_event_loop, settle_garbage_collector


def run_cluster(settings: UpSettings) -> None:
    """Runs until a signal. SettingsError, NodeError."""
    values = config_values(settings)
    first_id = int(values["node.id"])
    data_dir, temporary = data_dir_of(settings, values)
    log_options = ["--log-level", settings.log_level]
    if settings.log_json:
        log_options.append("--log-json")
    supervisor = Supervisor(
        values,
        data_dir,
        brokers=settings.brokers,
        controllers=settings.controllers,
        isolation=settings.isolation,
        first_id=first_id,
        temporary=temporary,
        as_version=settings.as_version,
        cluster_id=settings.cluster_id,
        log_options=log_options,
        recent_requests=settings.recent_requests,
    )
    with suppress(ConfigError):  # a node's start tells that
        warn_unknown_keys(BrokerConfig(values, brokers=settings.brokers))
    folder = made_temporary(data_dir) if temporary else None
    loop = new_event_loop()
    try:
        loop.run_until_complete(_main(settings, supervisor))
    finally:
        loop.close()
        if settings.ready_file is not None:
            remove(settings.ready_file)
        if folder is not None:
            folder.remove()


async def _main(settings: UpSettings, supervisor: Supervisor) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, on_signal, stop)
    telling: set[asyncio.Task[None]] = set()

    def on_status_signal() -> None:
        task = loop.create_task(supervisor.tell_status())
        telling.add(task)
        task.add_done_callback(telling.discard)

    loop.add_signal_handler(signal.SIGUSR1, on_status_signal)
    control = _control_socket(settings, supervisor)
    starting = loop.create_task(_start(settings, supervisor, control))
    stopping = loop.create_task(stop.wait())
    await asyncio.wait({starting, stopping}, return_when=asyncio.FIRST_COMPLETED)
    if not starting.done() or starting.exception() is not None:
        for task in (starting, stopping):
            task.cancel()
        await asyncio.wait({starting, stopping})
        await _close(control)
        if not starting.cancelled():
            starting.result()
        return
    settle_garbage_collector()
    none_left = False

    def on_none_left() -> None:
        nonlocal none_left
        none_left = True
        stop.set()

    supervisor.on_none_left = on_none_left
    if not supervisor.any_runs:  # since before that line
        on_none_left()
    await stopping
    await _close(control)
    await supervisor.stop()
    if none_left:
        raise NodeError("no node is left")


def _control_socket(settings: UpSettings, supervisor: Supervisor) -> ControlSocket | None:
    make_control = settings.make_control
    if make_control is None:
        return None
    return ControlSocket(lambda: make_control(supervisor))


async def _close(control: ControlSocket | None) -> None:
    if control is not None:
        await control.close()


async def _start(
    settings: UpSettings, supervisor: Supervisor, control: ControlSocket | None
) -> None:
    if control is not None:
        await control.open("127.0.0.1", settings.control_port or 0)
    await supervisor.start()
    try:
        if settings.topics:
            await supervisor.create_topics(settings.topics, settings.topic_configs)
        url = None if control is None else control.url
        announce(settings, supervisor.bootstrap_servers, url)
    except BaseException:
        await supervisor.stop()
        raise
