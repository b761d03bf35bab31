"""`kwire up --brokers N`: a cluster in the foreground, from options to exit status."""

from __future__ import annotations

import asyncio
import signal
from contextlib import suppress

from kwire.replication.config import BrokerConfig, ConfigError
from kwire.server.node import new_event_loop, settle_garbage_collector
from kwire.server.parts import warn_unknown_keys
from kwire.server.settings import NodeError, UpSettings, config_values, data_dir_of
from kwire.server.supervisor import Supervisor
from kwire.server.up import announce, made_temporary, on_signal, remove


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
    starting = loop.create_task(_start(settings, supervisor))
    stopping = loop.create_task(stop.wait())
    await asyncio.wait({starting, stopping}, return_when=asyncio.FIRST_COMPLETED)
    if not starting.done() or starting.exception() is not None:
        for task in (starting, stopping):
            task.cancel()
        await asyncio.wait({starting, stopping})
        if not starting.cancelled():
            starting.result()
        return
    settle_garbage_collector()
    supervisor.on_none_left = stop.set
    if not supervisor.any_runs:  # since before that line
        stop.set()
    await stopping
    none_left = not supervisor.any_runs
    await supervisor.stop()
    if none_left:
        raise NodeError("no node is left")


async def _start(settings: UpSettings, supervisor: Supervisor) -> None:
    await supervisor.start()
    try:
        if settings.topics:
            await supervisor.create_topics(settings.topics, settings.topic_configs)
        announce(settings, supervisor.bootstrap_servers)
    except BaseException:
        await supervisor.stop()
        raise
