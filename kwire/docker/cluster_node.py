"""A container that is one node of a cluster: a broker, the controller, or both in one process.

Answers to what a KRaft quorum is in Kafka's images. kwire has one controller: it runs where the first of
`controller.quorum.voters` is; a controller that is another voter stands by and does nothing, unless KWIRE_CONTROLLERS
counts it among those that take over from each other: these share a directory. A broker and the controller in one
container are two nodes on one event loop that talk over TCP, as those of other containers do.

Topics of KAFKA_CREATE_TOPICS are made as soon as the cluster is large enough for them, after the container is ready:
other containers may wait for just that. A stop does not wait long for a controller that may have stopped first.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import sys

from kwire.docker.environment import CONTROLLER_IDS_FROM
from kwire.launch.node_runner import BROKER, CONTROLLER, NodeRunner, NodeSettings
from kwire.launch.shape import check_node
from kwire.server import logs
from kwire.server.errors import NodeError, SettingsError
from kwire.server.log_dirs import split_dirs
from kwire.server.node import new_event_loop, settle_garbage_collector

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from kwire.docker.environment import ContainerSettings
    from kwire.server.link_rules import LinkRule

_log = logging.getLogger(__name__)

CONTROLLER_DIR = "kwire-controller"
"""In the broker's directory, where the controller keeps its journal when both are in one container."""
_REGISTRATION_TIMEOUT = "initial.broker.registration.timeout.ms"
_TOPICS_PAUSE_SECONDS = 0.2
_TOPICS_SECONDS = 30.0
_CONTROLLER_PROBE_SECONDS = 0.3
# One question to the controller, and a second to answer it.
_STOP_DEFAULTS = {
    "controlled.shutdown.max.retries": "0",
    "controlled.shutdown.retry.backoff.ms": "100",
}


def broker_settings(settings: ContainerSettings) -> NodeSettings:
    """The broker of this container."""
    values = {**_STOP_DEFAULTS, **settings.values}
    if settings.controller_listener is not None:
        items = values["listeners"].split(",")
        values["listeners"] = ",".join(i for i in items if i != settings.controller_listener)
        if not values["listeners"]:
            reason = "a broker needs a listener of its own"
            raise SettingsError(f"KAFKA_LISTENERS={settings.values['listeners']}: {reason}")
    return NodeSettings(
        BROKER,
        values,
        settings.data_dir,
        controller=settings.controller,
        more_controllers=settings.more_controllers,
        recent_requests=settings.recent_requests,
        cluster_id=settings.cluster_id,
        brokers=settings.brokers,
        as_version=settings.as_version,
    )


def controller_settings(settings: ContainerSettings) -> NodeSettings:
    """The controller of this container."""
    assert settings.controller is not None and settings.controller_listener is not None
    own_id = str(int(settings.values["node.id"]) + CONTROLLER_IDS_FROM)
    voters = [settings.controller, *settings.more_controllers]
    node_id, host, port = next(voter for voter in voters if str(voter[0]) == own_id)
    _, _, bound = settings.controller_listener.partition("://")
    about_listeners = ("listener", "advertised.listeners", "inter.broker.", "controller.listener.")
    values = {
        key: value
        for key, value in settings.values.items()
        if not key.startswith(about_listeners) and key not in ("broker.id", "broker.rack")
    }
    values["node.id"] = str(node_id)
    values["listeners"] = f"PLAINTEXT://{bound}"
    values["advertised.listeners"] = f"PLAINTEXT://{f'[{host}]' if ':' in host else host}:{port}"
    directory = split_dirs(settings.data_dir)[0]
    if settings.controller_dir is not None:
        directory = settings.controller_dir
    elif settings.runs_broker:
        directory = os.path.join(directory, CONTROLLER_DIR)
    return NodeSettings(
        CONTROLLER,
        values,
        directory,
        standby=bool(settings.more_controllers),
        cluster_id=settings.cluster_id,
        brokers=settings.brokers,
    )


def run_cluster_node(settings: ContainerSettings, announce: Callable[[], None]) -> int:
    """Runs until a signal; returns the exit status and has said why when that is not 0."""
    gc.disable()  # until the start is over: nothing it makes is garbage
    logs.configure(settings.log_level, settings.log_json)
    loop = new_event_loop()
    try:
        loop.run_until_complete(_main(settings, announce))
    except SettingsError as error:
        return _say(2, str(error))
    except NodeError as error:
        return _say(1, str(error))
    finally:
        loop.close()
    return 0


async def _main(settings: ContainerSettings, announce: Callable[[], None]) -> None:
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()

    def on_signal() -> None:
        if stop.is_set():
            os._exit(1)  # a second signal: the user does not want to wait for the first
        stop.set()

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, on_signal)
    runners: list[NodeRunner] = []
    control = None
    network: list[LinkRule] = []
    if settings.control_port is not None:
        from kwire.control.node_api import NETWORK_FILE, NodeControl, kept_rules
        from kwire.control.socket import serve_nodes

        network += kept_rules()
        nodes = NodeControl(
            lambda: [each for each in runners if each.loaded], network, NETWORK_FILE
        )
        control = await serve_nodes(settings.control_port, nodes)
    loop.add_signal_handler(signal.SIGUSR1, _tell_status, runners)
    work = loop.create_task(_start(settings, runners, announce, network))
    stopping = loop.create_task(stop.wait())
    await asyncio.wait({work, stopping}, return_when=asyncio.FIRST_COMPLETED)
    try:
        if work.done():
            work.result()
            await stopping
    finally:
        work.cancel()
        stopping.cancel()
        await asyncio.wait({work, stopping})
        if control is not None:
            await control.close()
        for runner in reversed(runners):
            await runner.stop(controlled=await _controller_answers(runner))
        await asyncio.sleep(0)  # connections that were being made are given up


def _tell_status(runners: list[NodeRunner]) -> None:
    """SIGUSR1, as to `kwire up`."""
    from kwire.control.status import snapshot_of_broker, snapshot_of_controller, tell

    for runner in (each for each in runners if each.loaded):
        snapshot = snapshot_of_broker if runner.settings.role == BROKER else snapshot_of_controller
        tell(runner.config.node_id, snapshot(runner.core))


async def _controller_answers(runner: NodeRunner) -> bool:
    """Whether a broker's controller is still there: one that is gone would be waited for."""
    if runner.settings.role != BROKER or runner.settings.controller is None:
        return False
    for _, host, port in (runner.settings.controller, *runner.settings.more_controllers):
        try:
            async with asyncio.timeout(_CONTROLLER_PROBE_SECONDS):
                _, writer = await asyncio.open_connection(host, port)
        except (OSError, TimeoutError):
            continue
        writer.close()
        return True
    return False


async def _start(
    settings: ContainerSettings,
    runners: list[NodeRunner],
    announce: Callable[[], None],
    network: list[LinkRule],
) -> None:
    """`network`: rules that hold when a node starts."""
    if settings.runs_broker:  # before the controller makes its directory in there
        check_node(split_dirs(settings.data_dir), is_controller=False)
    if settings.runs_controller:
        controller = NodeRunner(controller_settings(settings))
        controller.settings.network = network
        runners.append(controller)
        await controller.start()
    if settings.runs_broker:
        broker = NodeRunner(broker_settings(settings))
        broker.settings.network = network
        runners.append(broker)
        await _start_broker(broker)
    elif not settings.runs_controller:
        logs.event(
            _log,
            logging.INFO,
            "standing by: the first voter is the controller",
            voters=settings.values.get("controller.quorum.voters"),
        )
    announce()
    settle_garbage_collector()
    if settings.runs_broker and settings.topics:
        await _create_topics(settings, runners[-1].address)


async def _start_broker(broker: NodeRunner) -> None:
    """NodeError when the controller does not take it up in the time that Kafka gives it."""
    wait_ms = int(broker.settings.values.get(_REGISTRATION_TIMEOUT, "60000"))
    try:
        async with asyncio.timeout(wait_ms / 1000):
            await broker.start()
    except TimeoutError:
        assert broker.settings.controller is not None
        _, host, port = broker.settings.controller
        raise NodeError(
            f"the controller at {host}:{port} did not take up broker {broker.config.node_id} within {wait_ms} ms "
            f"({_REGISTRATION_TIMEOUT}): it does not answer, or there is another broker with this id"
        ) from None


async def _create_topics(settings: ContainerSettings, address: tuple[str, int]) -> None:
    """Every broker asks; whoever comes second is told that the topic exists."""
    from kwire.client.connection import NoResponseError
    from kwire.client.streams import ask
    from kwire.launch.initial_topics import create_request
    from kwire.protocol.errors import ErrorCode

    left = {topic[0]: topic for topic in settings.topics}
    while left:
        request = create_request(
            [topic[:3] for topic in left.values()],
            {name: configs for name, _, _, configs in left.values()},
        )
        try:
            response = await ask(address, request, seconds=_TOPICS_SECONDS)
        except NoResponseError as error:
            logs.event(_log, logging.WARNING, "topics not created yet", reason=error)
        else:
            for result in response.topics:
                code = ErrorCode(result.error_code)
                if code == ErrorCode.INVALID_REPLICATION_FACTOR or code.retriable:
                    continue  # more brokers may come
                del left[result.name]
                if code not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
                    reason = f"{code.name}: {result.error_message}"
                    logs.event(
                        _log, logging.ERROR, "topic refused", topic=result.name, reason=reason
                    )
        if left:
            await asyncio.sleep(_TOPICS_PAUSE_SECONDS)


def _say(status: int, line: str) -> int:
    sys.stderr.write("kwire: " + line.replace("\n", " ") + "\n")
    return status
