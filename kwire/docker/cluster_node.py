"""Runs a container that is one node of a cluster: a broker, a controller, or both in one process.

Corresponds to a KRaft quorum in Kafka's images. kwire has one controller, on the first node of
`controller.quorum.voters`. Controllers on other voters do nothing, except that the first
KWIRE_CONTROLLERS of them are standbys that take over; these share a directory. A broker and a
controller in one container are two nodes on one event loop that talk over TCP, as between containers.

Topics of KAFKA_CREATE_TOPICS are created as soon as the cluster has enough brokers, after the
container is ready: other containers may wait for its readiness. A stop does not wait long for a
controller that may have stopped first.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import sys
from functools import partial

from kwire.launch.node_runner import NodeRunner
from kwire.launch.process import stop_on_signals
from kwire.launch.shape import check_node
from kwire.launch.spec import BROKER, CONTROLLER
from kwire.replication.core.types import CONTROLLER_IDS_FROM, TLS_KEY
from kwire.server import logs
from kwire.server.descriptors import raise_limit
from kwire.server.errors import NodeError, SettingsError
from kwire.server.events import NodeEvent
from kwire.server.listeners import controller_keys
from kwire.server.log_dirs import split_dirs
from kwire.server.node import new_event_loop, settle_garbage_collector
from kwire.snapshots import tree

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from kwire.docker.environment import ContainerSettings
    from kwire.launch.spec import NodeSpec
    from kwire.server.link_rules import LinkRule

_log = logging.getLogger(__name__)

CONTROLLER_DIR = "kwire-controller"
"""Below the broker's directory: the controller's directory when both are in one container."""
_REGISTRATION_TIMEOUT = "initial.broker.registration.timeout.ms"
_TOPICS_PAUSE_SECONDS = 0.2
_TOPICS_SECONDS = 30.0
_CONTROLLER_PROBE_SECONDS = 0.3
# One question to the controller, and a second to answer it.
_STOP_DEFAULTS = {
    "controlled.shutdown.max.retries": "0",
    "controlled.shutdown.retry.backoff.ms": "100",
}


def broker_spec(settings: ContainerSettings) -> NodeSpec:
    """The spec of this container's broker."""
    values = {**_STOP_DEFAULTS, **settings.node.values}
    if settings.controller_listener is not None:
        items = values["listeners"].split(",")
        values["listeners"] = ",".join(i for i in items if i != settings.controller_listener)
        if not values["listeners"]:
            reason = "a broker needs a listener of its own"
            raise SettingsError(f"KAFKA_LISTENERS={settings.node.values['listeners']}: {reason}")
    return settings.node.replace(role=BROKER, values=values)


def with_certificates(node: NodeSpec, option: str | None = None) -> NodeSpec:
    """The spec with the keys of certificates that are made for the node, if it asks for any (`option`: KWIRE_TLS=true).
    SettingsError, NodeError."""
    if TLS_KEY not in node.values:
        return node
    from kwire.server.tls.made import keys_of_certificates

    ids = range(node.node_id, node.node_id + 1)
    own_id = node.node_id + CONTROLLER_IDS_FROM
    # A controller is reached by its name among the voters, which is in no key of its listeners.
    items = [node.values.get("advertised.listeners", "")]
    items += [
        f"CONTROLLER://{host}:{port}" for voter, host, port in node.controllers if voter == own_id
    ]
    names = {node.node_id: {"advertised.listeners": ",".join(filter(None, items))}}
    values, _ = keys_of_certificates(node.values, names, ids, node.data_dir, option)
    return node.replace(values=values)


def controller_spec(settings: ContainerSettings) -> NodeSpec:
    """The spec of this container's controller."""
    node = settings.node
    assert settings.controller_listener is not None
    own_id = node.node_id + CONTROLLER_IDS_FROM
    _, host, port = next(voter for voter in node.controllers if voter[0] == own_id)
    _, _, bound = settings.controller_listener.partition("://")
    about_listeners = ("listener", "advertised.listeners", "inter.broker.", "controller.listener.")
    values = {
        key: value
        for key, value in node.values.items()
        if not key.startswith(about_listeners) and key not in ("broker.id", "broker.rack")
    }
    values["listeners"] = f"PLAINTEXT://{bound}"
    values["advertised.listeners"] = f"PLAINTEXT://{f'[{host}]' if ':' in host else host}:{port}"
    values = controller_keys(values, node.values)
    directory = split_dirs(node.data_dir)[0]
    if settings.controller_dir is not None:
        directory = settings.controller_dir
    elif settings.runs_broker:
        directory = os.path.join(directory, CONTROLLER_DIR)
    return node.replace(
        role=CONTROLLER,
        node_id=own_id,
        values=values,
        data_dir=directory,
        controllers=(),
        standby=len(node.controllers) > 1,
    )


def run_cluster_node(settings: ContainerSettings, announce: Callable[[str], None]) -> int:
    """Run until a signal; return the exit status. A failure has printed its line by then.

    `announce`: takes the URL of the control API, "" if there is none."""
    gc.disable()  # until the start is over: start-up objects live on, a collection frees nothing
    raise_limit()
    loop = new_event_loop()
    try:
        settings.node = with_certificates(settings.node, settings.written.get(TLS_KEY))
        loop.run_until_complete(_main(settings, announce))
    except SettingsError as error:
        return _say(2, str(error))
    except NodeError as error:
        return _say(1, str(error))
    finally:
        loop.close()
    return 0


async def _main(settings: ContainerSettings, announce: Callable[[str], None]) -> None:
    loop = asyncio.get_running_loop()
    stopping = stop_on_signals()
    if any(map(tree.has_restore, split_dirs(settings.node.data_dir))):
        from kwire.snapshots import restoring

        restoring.begin_with(settings.node.data_dir, None)
    runners: list[NodeRunner] = []
    control = None
    network: list[LinkRule] = []
    if settings.control_port is not None:
        from kwire.control.node_api import NETWORK_FILE, NodeControl, kept_rules
        from kwire.control.socket import serve_nodes

        network += kept_rules()
        nodes = NodeControl(
            lambda: [each for each in runners if each.is_loaded], network, NETWORK_FILE
        )
        control = await serve_nodes(settings.control_port, nodes)
    loop.add_signal_handler(signal.SIGUSR1, _log_status, runners)
    url = "" if control is None else control.url
    work = loop.create_task(_start(settings, runners, lambda: announce(url), network))
    either: set[asyncio.Future[Any]] = {work, stopping}
    await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
    try:
        if work.done():
            work.result()
            for runner in runners:
                runner.on_halted = partial(_end, stopping)
            if (halted := await stopping) is not None:
                raise NodeError(halted)
    finally:
        work.cancel()
        await asyncio.wait({work})
        if control is not None:
            await control.close()
        for runner in reversed(runners):
            await runner.stop(controlled=await _controller_answers(runner))
        await asyncio.sleep(0)  # lets cancelled connection attempts finish


def _end(stopping: asyncio.Future[Any], why: str) -> None:
    """End the container, as Kafka's process ends, when the broker has halted: its disk has failed."""
    if not stopping.done():
        stopping.set_result(why)


def _log_status(runners: list[NodeRunner]) -> None:
    """Log the status of all nodes (SIGUSR1), as `kwire up` does."""
    for runner in runners:
        if runner.is_loaded:
            runner.log_status()


async def _controller_answers(runner: NodeRunner) -> bool:
    """Whether a broker's controller answers; otherwise a controlled shutdown would wait for it."""
    if runner.is_controller:
        return False
    for _, host, port in runner.spec.controllers:
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
    """Start the nodes. `network`: link rules that apply from their start on."""
    if settings.runs_broker:  # before the controller makes its directory in there
        check_node(split_dirs(settings.node.data_dir), is_controller=False)
    if settings.runs_controller:
        controller = _runner(controller_spec(settings), network)
        runners.append(controller)
        await controller.start()
    if settings.runs_broker:
        broker = _runner(broker_spec(settings), network)
        runners.append(broker)
        await _start_broker(broker)
    elif not settings.runs_controller:
        logs.event(
            _log,
            NodeEvent.QUORUM_STANDBY,
            voters=settings.node.values.get("controller.quorum.voters"),
        )
    announce()
    settle_garbage_collector()
    if settings.runs_broker and settings.topics:
        await _create_topics(settings, runners[-1])


def _runner(spec: NodeSpec, network: list[LinkRule]) -> NodeRunner:
    """Make a runner whose `network` rules are read when it is loaded; after that the control API
    changes the node's own."""
    runner = NodeRunner(spec)

    runner.on_loaded = lambda _core: runner.set_link_rules(network)
    return runner


async def _start_broker(broker: NodeRunner) -> None:
    """Start the broker. NodeError when it is not registered within Kafka's time limit."""
    wait_ms = int(broker.spec.values.get(_REGISTRATION_TIMEOUT, "60000"))
    try:
        async with asyncio.timeout(wait_ms / 1000):
            await broker.start()
    except TimeoutError:
        _, host, port = broker.spec.controllers[0]
        raise NodeError(
            f"the controller at {host}:{port} did not take up broker {broker.config.node_id} within {wait_ms} ms "
            f"({_REGISTRATION_TIMEOUT}): it does not answer, or there is another broker with this id"
        ) from None


async def _create_topics(settings: ContainerSettings, broker: NodeRunner) -> None:
    """Create the topics. Every broker does so; TOPIC_ALREADY_EXISTS is accepted."""
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
            access = None if broker.logins is None else broker.logins.own
            response = await ask(broker.address, request, seconds=_TOPICS_SECONDS, access=access)
        except NoResponseError as error:
            logs.event(_log, NodeEvent.TOPICS_DELAYED, detail=str(error))
        else:
            for result in response.topics:
                code = ErrorCode(result.error_code)
                if code == ErrorCode.INVALID_REPLICATION_FACTOR or code.retriable:
                    continue  # more brokers may come
                del left[result.name]
                if code not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
                    reason = f"{code.name}: {result.error_message}"
                    logs.event(_log, NodeEvent.TOPIC_REFUSED, topic=result.name, detail=reason)
        if left:
            await asyncio.sleep(_TOPICS_PAUSE_SECONDS)


def _say(status: int, line: str) -> int:
    sys.stderr.write("kwire: " + line.replace("\n", " ") + "\n")
    return status
