"""The main process of a container: reads environment and files, runs a node, prints the ready lines.

Behaves like kafka.Kafka in the images apache/kafka and confluentinc/cp-kafka: the lines on stdout that
wait strategies look for, each once, after every listener accepts and the node leads its partitions;
SIGTERM is a clean stop at any time (before this module's handler is set, docker/bin/process-one
handles it); a refusal is one line. `HEALTH_FILE` tells the health check where to ask (launch/health.py).
"""

from __future__ import annotations

import os
import signal
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import FrameType

    from kwire.control.routes import Handler
    from kwire.control.socket import ControlSocket
    from kwire.docker.environment import ContainerSettings
    from kwire.launch.node_runner import NodeRunner
    from kwire.launch.supervisor import Supervisor
    from kwire.launch.up import OpenControl

HEALTH_FILE = "/tmp/kwire-health"
CONFIG_FILES = ("/mnt/shared/config/server.properties", "/etc/kafka/kafka.properties")
DEFAULT_CLUSTER_ID = "5L6g3nShT-eMCtK--X86sw"
_USAGE = "usage: python -m kwire.docker run | start FILE [--override KEY=VALUE]..."


def main(arguments: list[str]) -> int:
    """Run until a signal; return the exit status, as of `kwire up`."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _end_before_start)
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)  # no node to report on yet
    _remove_health_file()
    from kwire.server.errors import NodeError, SettingsError

    try:
        settings = _settings(arguments)
    except SettingsError as error:
        return _refuse(2, str(error))
    except NodeError as error:
        return _refuse(1, str(error))
    try:
        return _run(settings)
    finally:
        _remove_health_file()


def ready_lines(node_id: str, stamp: str) -> list[str]:
    """The ready lines of Kafka's versions and modes; `stamp`: the time in Kafka's log format."""
    return [
        f"[{stamp}] INFO [BrokerLifecycleManager id={node_id}] The broker has been unfenced. "
        "Transitioning from RECOVERY to RUNNING. (kafka.server.BrokerLifecycleManager)",
        f"[{stamp}] INFO [KafkaServer id={node_id}] started (kafka.server.KafkaServer)",
        f"[{stamp}] INFO [KafkaRaftServer nodeId={node_id}] Kafka Server started (kafka.server.KafkaRaftServer)",
    ]


def _end_before_start(number: int, _frame: FrameType | None) -> None:
    os._exit(0 if number == signal.SIGTERM else 130)


def _settings(arguments: list[str]) -> ContainerSettings:
    from kwire.docker import formatted
    from kwire.docker.environment import container_settings
    from kwire.launch.configuration import with_jaas_file
    from kwire.server.errors import SettingsError

    if arguments[:1] == ["start"] and len(arguments) >= 2:
        # kafka-server-start: only the file counts, and kwire's own variables.
        values = _read(arguments[1])
        rest = arguments[2:]
        if len(rest) % 2 or any(word != "--override" for word in rest[::2]):
            raise SettingsError(_USAGE)
        for item in rest[1::2]:
            key, separator, value = item.partition("=")
            if not separator:
                raise SettingsError(f"--override: expected KEY=VALUE, not {item!r}")
            values[key.strip()] = value
        own = ("KWIRE_", "CLUSTER_ID", "KAFKA_CREATE_TOPICS", "KAFKA_LOG4J_ROOT_LOGLEVEL")
        environ = {name: value for name, value in os.environ.items() if name.startswith(own)}
    elif arguments == ["run"]:
        values = {}
        for path in CONFIG_FILES:
            if os.path.exists(path):
                values.update(_read(path))
        from kwire.docker.stores import with_stores

        environ = with_stores(os.environ)
    else:
        raise SettingsError(_USAGE)
    settings = container_settings(environ, values, _is_free)
    settings.node = settings.node.replace(values=with_jaas_file(settings.node.values))
    node = settings.node
    if not formatted.is_made(node.data_dir):
        settings.node = node = node.replace(values=formatted.with_scram_users(node.values))
        if node.cluster_id is None and not node.controllers:
            settings.node = node.replace(cluster_id=formatted.cluster_id() or DEFAULT_CLUSTER_ID)
    return settings


def _is_free(port: int) -> bool:
    """Whether a port of this container can be bound. False in the host's network: it is others'."""
    import socket

    if os.path.exists("/sys/class/net/docker0"):
        return False
    try:
        socket.create_server(("0.0.0.0", port)).close()
    except OSError:
        return False
    return True


def _read(path: str) -> dict[str, str]:
    from kwire.launch.properties import load_properties
    from kwire.server.errors import NodeError, SettingsError

    try:
        return load_properties(path)
    except OSError as error:
        raise NodeError(f"cannot read {path}: {error.strerror}") from None
    except ValueError as error:
        raise SettingsError(str(error)) from None


def _run(settings: ContainerSettings) -> int:
    node = settings.node
    directory = node.data_dir
    if os.path.isdir(directory) and not os.access(directory, os.W_OK | os.X_OK):
        remedy = "let it own the volume, or run as the volume's owner (--user)"
        return _refuse(
            1, f"data directory {directory} is not writable for uid {os.getuid()}: {remedy}"
        )
    from kwire.server import logs

    in_cluster = settings.in_cluster_of_its_own()
    logs.configure(node.log_level, node.log_json, in_cluster=in_cluster)
    log_warnings(settings)
    if node.controllers:
        from kwire.docker.cluster_node import run_cluster_node

        return run_cluster_node(settings, lambda url: _announce_node(settings, url))
    from kwire.launch.configuration import absolute_dirs
    from kwire.launch.spec import ClusterSpec
    from kwire.launch.up import Surroundings, run_up

    whole_api = settings.serves_whole_api()
    return run_up(
        lambda: ClusterSpec(
            node=node.replace(data_dir=absolute_dirs(directory)), **settings.cluster
        ),
        Surroundings(
            topics=[topic[:3] for topic in settings.topics],
            topic_configs={topic[0]: topic[3] for topic in settings.topics},
            announce=lambda line: announce(settings, line),
            health_file=HEALTH_FILE,
            control_host="0.0.0.0" if whole_api else None,
            control_port=settings.control_port if whole_api else None,
            make_control=_make_control if whole_api else None,
            open_control=None if whole_api else _control_opener(settings),
            print_failure=_print_failure,
            written=settings.written,
        ),
    )


def _make_control(running: Supervisor | NodeRunner) -> Handler:
    """The handler of the control API of a cluster in this container."""
    from kwire.aio import Cluster
    from kwire.control.routes import cluster_handler

    return cluster_handler(Cluster.of(running))


def _control_opener(settings: ContainerSettings) -> OpenControl | None:
    port = settings.control_port
    if port is None:
        return None

    async def open_control(runner: NodeRunner) -> ControlSocket:
        from kwire.control.node_api import NodeControl
        from kwire.control.socket import serve_nodes

        return await serve_nodes(port, NodeControl(lambda: [runner], None))

    return open_control


def log_warnings(settings: ContainerSettings) -> None:
    """Log a line for each unknown variable, and for each listener that clients cannot reach."""
    import logging

    from kwire.launch.spec import PROCESS
    from kwire.server.events import NodeEvent
    from kwire.server.logs import event

    log = logging.getLogger(__name__)
    for variable, meant in settings.unknown.items():
        event(log, NodeEvent.UNKNOWN_VARIABLE, variable=variable, suggestion=meant)
    warn_of_loopback(settings.node.values)
    if settings.node.controllers:  # else the start of all nodes logs them
        if settings.cluster.get("isolation") == PROCESS:
            event(log, NodeEvent.ISOLATION_WITHOUT_EFFECT)
        from contextlib import suppress

        from kwire.launch.configuration import warn_about_keys
        from kwire.replication.config.broker_config import BrokerConfig, ConfigError

        with suppress(ConfigError):  # the node's start will report it
            warn_about_keys(BrokerConfig(settings.node.configuration()), settings.written)


def warn_of_loopback(values: Mapping[str, str]) -> None:
    """Log a line for each listener of a container that is bound to a loopback address."""
    import logging

    from kwire.docker.listeners import unreachable_listeners
    from kwire.server.events import NodeEvent
    from kwire.server.logs import event

    for listener in unreachable_listeners(values):
        event(logging.getLogger(__name__), NodeEvent.LISTENER_INSIDE_ONLY, listener=listener)


def _announce_node(settings: ContainerSettings, control: str) -> None:
    """Announce one node of a cluster of several containers."""
    from kwire.docker.listeners import health_address
    from kwire.launch.health import write_health_file

    address, is_tls = health_address(settings.node.values)
    write_health_file(HEALTH_FILE, address, is_tls=is_tls)
    announce(settings, f"control={control}")


def announce(settings: ContainerSettings, line: str) -> None:
    """Print Kafka's ready lines, and the URL of the control API, as in kwire's, if its token was made up."""
    control = line.partition("control=")[2].partition(" ")[0]
    if settings.runs_broker:
        _log_advertised(settings)
    now = time.time()
    stamp = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(now)) + f",{int(now * 1000) % 1000:03d}"
    if "@" in control:
        sys.stdout.write(f"control API: {control} (KWIRE_CONTROL_TOKEN sets another token)\n")
    sys.stdout.write("\n".join([*ready_lines(str(settings.node.node_id), stamp), ""]))
    sys.stdout.flush()


def _log_advertised(settings: ContainerSettings) -> None:
    import logging

    from kwire.docker.listeners import advertised_addresses
    from kwire.server.events import NodeEvent
    from kwire.server.logs import event

    values = settings.node.values
    addresses = ", ".join(advertised_addresses(values, settings.brokers))
    hint = None
    if "advertised.listeners" not in values:
        hint = "KAFKA_ADVERTISED_LISTENERS"
    log = logging.getLogger(__name__)
    event(log, NodeEvent.ADVERTISED, addresses=addresses, variable=hint)


def _remove_health_file() -> None:
    from kwire.launch.health import remove_health_file

    remove_health_file(HEALTH_FILE)


def _print_failure(status: int, line: str) -> int:
    from kwire.docker.variables import in_variables

    return _refuse(status, in_variables(line))


def _refuse(status: int, line: str) -> int:
    sys.stderr.write("kwire: " + line.replace("\n", " ") + "\n")
    return status
