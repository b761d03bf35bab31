"""The main process of a container: reads environment and files, runs a node, prints the ready lines.

Behaves like kafka.Kafka in the images apache/kafka and confluentinc/cp-kafka: the lines on stdout that
wait strategies look for, each once, after every listener accepts and the node leads its partitions;
SIGTERM is a clean stop at any time (before this module's handler is set, docker/bin/process-one
handles it); a refusal is one line. `HEALTH_FILE` contains host, port and process id for the health
check; it exists only while the node is ready.
"""

from __future__ import annotations

import os
import signal
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import FrameType

    from kwire.control.socket import ControlSocket
    from kwire.docker.environment import ContainerSettings
    from kwire.launch.node_runner import NodeRunner
    from kwire.launch.up import OpenControl

HEALTH_FILE = "/tmp/kwire-health"
FORMATTED_FILE = "/tmp/kwire-cluster-id"
"""The file in which the image's kafka-storage saves the given cluster id."""
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


def health_address(listeners: str, controller_names: str) -> str:
    """ "host port" of the first client listener, as seen from inside the container."""
    names = [name.strip().upper() for name in controller_names.split(",")]
    items = [item.partition("://") for item in listeners.split(",")]
    first = next((address for name, _, address in items if name.upper() not in names), items[0][2])
    host, _, port = first.rpartition(":")
    host = host.strip("[]")
    return f"{'127.0.0.1' if host in ('', '0.0.0.0', '::') else host} {port}"


def _end_before_start(number: int, _frame: FrameType | None) -> None:
    os._exit(0 if number == signal.SIGTERM else 130)


def _settings(arguments: list[str]) -> ContainerSettings:
    from kwire.docker.environment import container_settings
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
        environ = dict(os.environ)
    else:
        raise SettingsError(_USAGE)
    settings = container_settings(environ, values)
    node = settings.node
    if node.cluster_id is None and not node.controllers:
        settings.node = node.replace(cluster_id=_default_cluster_id(node.data_dir))
    return settings


def _read(path: str) -> dict[str, str]:
    from kwire.launch.properties import load_properties
    from kwire.server.errors import NodeError, SettingsError

    try:
        return load_properties(path)
    except OSError as error:
        raise NodeError(f"cannot read {path}: {error.strerror}") from None
    except ValueError as error:
        raise SettingsError(str(error)) from None


def _default_cluster_id(data_dir: str) -> str | None:
    """The cluster id for a new directory: that of kafka-storage format, else apache/kafka's."""
    from kwire.server.log_dirs import split_dirs

    if any(os.path.exists(os.path.join(d, "meta.properties")) for d in split_dirs(data_dir)):
        return None
    try:
        with open(FORMATTED_FILE, encoding="ascii") as file:
            return file.read().strip() or DEFAULT_CLUSTER_ID
    except (OSError, UnicodeDecodeError):
        return DEFAULT_CLUSTER_ID


def _run(settings: ContainerSettings) -> int:
    node = settings.node
    directory = node.data_dir
    if os.path.isdir(directory) and not os.access(directory, os.W_OK | os.X_OK):
        remedy = "let it own the volume, or run as the volume's owner (--user)"
        return _refuse(
            1, f"data directory {directory} is not writable for uid {os.getuid()}: {remedy}"
        )
    from kwire.server import logs

    logs.configure(node.log_level, node.log_json)
    if node.controllers:
        from kwire.docker.cluster_node import run_cluster_node

        return run_cluster_node(settings, lambda: announce(settings))
    from kwire.launch.configuration import absolute_dirs
    from kwire.launch.spec import ClusterSpec
    from kwire.launch.up import Surroundings, run_up

    return run_up(
        lambda: ClusterSpec(node=node.replace(data_dir=absolute_dirs(directory))),
        Surroundings(
            topics=[topic[:3] for topic in settings.topics],
            topic_configs={topic[0]: topic[3] for topic in settings.topics},
            announce=lambda _bootstrap: announce(settings),
            open_control=_control_opener(settings),
        ),
    )


def _control_opener(settings: ContainerSettings) -> OpenControl | None:
    port = settings.control_port
    if port is None:
        return None

    async def open_control(runner: NodeRunner) -> ControlSocket:
        from kwire.control.node_api import NodeControl
        from kwire.control.socket import serve_nodes

        return await serve_nodes(port, NodeControl(lambda: [runner], None))

    return open_control


def announce(settings: ContainerSettings) -> None:
    """Print the ready lines and write the health file."""
    values = settings.node.values
    address = health_address(values["listeners"], values.get("controller.listener.names", ""))
    try:
        with open(HEALTH_FILE + ".new", "w", encoding="ascii") as file:
            file.write(f"{address} {os.getpid()}\n")
        os.replace(HEALTH_FILE + ".new", HEALTH_FILE)
    except OSError as error:
        # A read-only container: everything works but the health check.
        sys.stderr.write(f"kwire: no health check: {HEALTH_FILE}: {error.strerror}\n")
    now = time.time()
    stamp = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(now)) + f",{int(now * 1000) % 1000:03d}"
    sys.stdout.write("\n".join([*ready_lines(str(settings.node.node_id), stamp), ""]))
    sys.stdout.flush()


def _remove_health_file() -> None:
    """Remove the health file unless it belongs to another live process of this container."""
    try:
        with open(HEALTH_FILE, encoding="ascii") as file:
            pid = int(file.read().split()[2])
        if pid == os.getpid() or not os.path.exists(f"/proc/{pid}"):
            os.unlink(HEALTH_FILE)
    except (OSError, ValueError, IndexError):
        return


def _refuse(status: int, line: str) -> int:
    sys.stderr.write("kwire: " + line.replace("\n", " ") + "\n")
    return status
