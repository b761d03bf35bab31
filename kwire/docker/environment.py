"""Translates a container's environment to kwire's settings. No sockets, no files, no clock.

Corresponds to kafka.docker.KafkaDockerWrapper (apache/kafka) and to the configure scripts of
confluentinc/cp-kafka: each `KAFKA_…` variable is a configuration key. Deliberate differences: setting
one variable keeps the defaults of the others, `KAFKA_CLUSTER_ID` is an alias of `CLUSTER_ID`, and
`KAFKA_CREATE_TOPICS` creates topics. Listeners are accepted as test frameworks for these images write
them: empty hosts, a trailing comma, two addresses from `hostname -i`, in any order.

A quorum of controllers (KRaft) becomes one controller, the first of `controller.quorum.voters`; with
`KWIRE_CONTROLLERS` the first several, which share a directory. ZooKeeper's variables are ignored.
"""

from __future__ import annotations

from kwire.launch.configuration import node_id_of
from kwire.launch.options import FLAG, parse_voter
from kwire.launch.spec import MAX_CONTROLLERS, NodeSpec
from kwire.replication.config.broker_config import ConfigError, broker_key, parse_value
from kwire.replication.core.types import CONTROLLER_IDS_FROM
from kwire.server.errors import SettingsError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from kwire.launch.options import Voter

PREFIX = "KAFKA_"
DATA_DIR = "/var/lib/kafka/data"
DEFAULT_LISTENERS = "PLAINTEXT://0.0.0.0:9092"
"""Added to a voter's id: kwire's controller is a separate node, whose id must differ from brokers'."""
MAX_PARTITIONS = 10_000

# Variables of the scripts around the broker, in both images; and kwire's own.
_EXCLUDED = frozenset(
    (
        "KAFKA_VERSION",
        "KAFKA_HEAP_OPTS",
        "KAFKA_LOG4J_OPTS",
        "KAFKA_OPTS",
        "KAFKA_JMX_OPTS",
        "KAFKA_JVM_PERFORMANCE_OPTS",
        "KAFKA_GC_LOG_OPTS",
        "KAFKA_LOG4J_ROOT_LOGLEVEL",
        "KAFKA_LOG4J_LOGGERS",
        "KAFKA_TOOLS_LOG4J_LOGLEVEL",
        "KAFKA_JMX_HOSTNAME",
        "KAFKA_JMX_PORT",
        "KAFKA_HOME",
        "KAFKA_CREATE_TOPICS",
        "KAFKA_CREATE_TOPICS_SEPARATOR",
        "KAFKA_CLUSTER_ID",
    )
)
_LEVELS = {
    "TRACE": "debug",
    "DEBUG": "debug",
    "INFO": "info",
    "WARN": "warning",
    "WARNING": "warning",
    "ERROR": "error",
    "FATAL": "error",
    "OFF": "error",
}

Topic = tuple[str, int, int, dict[str, str]]


class ContainerSettings:
    """The settings of a container.

    `node`: the broker. Its `controllers` are the cluster's, none for a standalone broker;
    `listeners` is always among its values; a `cluster_id` of None is the data directory's, or a
    default. `topics`: name, partitions, replication (-1: default), configuration. `runs_broker`,
    `runs_controller`: what this node of a cluster is. `controller_dir`: shared by controllers that
    take over from each other (None: the data directory). `control_port`: of the control API, if
    any."""

    __slots__ = (
        "control_port",
        "controller_dir",
        "controller_listener",
        "node",
        "runs_broker",
        "runs_controller",
        "topics",
    )

    def __init__(self, node: NodeSpec) -> None:
        self.node = node
        self.topics: list[Topic] = []
        self.controller_dir: str | None = None
        self.controller_listener: str | None = None
        self.control_port: int | None = None
        self.runs_broker = True
        self.runs_controller = False


def property_name(variable: str) -> str | None:
    """The configuration key of an environment variable; None if it has none.

    Kafka's rule: without KAFKA_, in lower case, `_` a dot, `__` an underscore, `___` a dash."""
    if not variable.startswith(PREFIX) or variable in _EXCLUDED:
        return None
    if variable.startswith("KAFKA_CONFLUENT_SUPPORT_"):
        return None
    name = variable.replace(PREFIX, "").lower()
    return name.replace("_", ".").replace("...", "-").replace("..", "_") or None


def configuration(environ: Mapping[str, str]) -> dict[str, str]:
    """Configuration keys and values from the environment.

    SettingsError, naming the variable, for an invalid value."""
    values: dict[str, str] = {}
    for variable in sorted(environ):
        key = property_name(variable)
        if key is None:
            continue
        value = environ[variable]
        row = broker_key(key)
        if row is not None:
            try:
                parse_value(key, row, value)
            except ConfigError as error:
                raise SettingsError(f"{variable}: {error}") from None
        values[key] = value
    return values


def tidy_listeners(text: str) -> str:
    """Normalize listeners: no empty items, one address per listener.

    Of several addresses (`hostname -i` in a container on several networks) the first IPv4 one is used.
    """
    items = []
    for item in text.split(","):
        name, separator, address = item.strip().partition("://")
        if not name and not separator:
            continue
        host, colon, port = address.rpartition(":")
        words = host.split()
        if len(words) > 1:
            host = next((word for word in words if ":" not in word), words[0])
            if ":" in host and not host.startswith("["):
                host = f"[{host}]"
        else:
            host = host.strip()
        items.append(f"{name.strip()}{separator}{host}{colon}{port.strip()}")
    return ",".join(items)


def parse_topics(text: str, separator: str | None = None) -> list[Topic]:
    """Parse `name[:partitions[:replication[:cleanup.policy]]]`, comma- or newline-separated.

    SettingsError."""
    topics: list[Topic] = []
    parts = text.split(separator) if separator else text.replace("\n", ",").split(",")
    for item in (part.strip() for part in parts):
        if not item:
            continue
        name, *rest = item.split(":")
        numbers, policy = rest[:2], rest[2:]
        allowed = "expected NAME[:PARTITIONS[:REPLICATION[:CLEANUP_POLICY]]]"
        if not name or len(policy) > 1:
            raise SettingsError(f"KAFKA_CREATE_TOPICS: {allowed}, not {item!r}")
        counts = []
        for number in numbers:
            count = int(number) if number.isascii() and number.isdigit() and len(number) < 6 else 0
            if not 1 <= count <= MAX_PARTITIONS:
                reason = f"{allowed} with numbers of 1 to {MAX_PARTITIONS}, not {item!r}"
                raise SettingsError(f"KAFKA_CREATE_TOPICS: {reason}")
            counts.append(count)
        partitions, replication = [*counts, -1, -1][:2]
        configs = {"cleanup.policy": policy[0]} if policy and policy[0] else {}
        topics.append((name, partitions, replication, configs))
    return topics


def container_settings(
    environ: Mapping[str, str], file_values: Mapping[str, str] | None = None
) -> ContainerSettings:
    """The settings from the environment, then the mounted file, then the defaults.

    SettingsError, in one line, when they are refused."""
    values = {**(file_values or {}), **configuration(environ)}
    _set_node_id(values)
    _set_listeners(values)
    data_dir = values.pop("log.dirs", None) or values.pop("log.dir", None) or DATA_DIR
    values.pop("log.dir", None)
    level = environ.get("KWIRE_LOG_LEVEL") or environ.get("KAFKA_LOG4J_ROOT_LOGLEVEL") or "INFO"
    if level.upper() not in _LEVELS:
        raise SettingsError(f"KWIRE_LOG_LEVEL={level}: expected debug, info, warning or error")
    node = NodeSpec(
        node_id=node_id_of(values),
        values=values,
        data_dir=data_dir.strip(", "),
        cluster_id=_cluster_id(environ),
        log_level=_LEVELS[level.upper()],
        **_own_variables(environ),
    )
    settings = ContainerSettings(node)
    settings.topics = parse_topics(
        environ.get("KAFKA_CREATE_TOPICS", ""), environ.get("KAFKA_CREATE_TOPICS_SEPARATOR")
    )
    settings.control_port = _number(environ, "KWIRE_CONTROL_PORT", 1, 65535)
    settings.controller_dir = environ.get("KWIRE_CONTROLLER_DIR") or None
    _set_roles(settings, _number(environ, "KWIRE_CONTROLLERS", 1, MAX_CONTROLLERS) or 1)
    return settings


def _own_variables(environ: Mapping[str, str]) -> dict[str, Any]:
    """The fields of a NodeSpec that have a KWIRE_ variable: flags and texts."""
    found: dict[str, Any] = {}
    for name, field in NodeSpec.fields.items():
        text = environ.get(field.variable, "")
        if text and field.variable:
            if field.kind == FLAG:
                found[name] = text.lower() in ("1", "true", "yes")
            else:
                found[name] = text
    return found


def _number(environ: Mapping[str, str], variable: str, least: int, most: int) -> int | None:
    """The number in a KWIRE_ variable; None: not set. SettingsError."""
    text = environ.get(variable, "").strip()
    if not text:
        return None
    if not (text.isascii() and text.isdigit() and len(text) < 6 and least <= int(text) <= most):
        raise SettingsError(f"{variable}={text[:40]}: expected a number from {least} to {most}")
    return int(text)


def _set_node_id(values: dict[str, str]) -> None:
    if values.get("broker.id", "").strip() == "-1":  # "generate one", in old images
        del values["broker.id"]
    if "node.id" not in values:
        values["node.id"] = values.get("broker.id", "1")
    if values["node.id"].strip().startswith("-"):
        raise SettingsError(f"KAFKA_NODE_ID={values['node.id']}: expected 0 or more")


def _controller_names(values: Mapping[str, str]) -> list[str]:
    given = values.get("controller.listener.names", "CONTROLLER")
    return [name.strip().upper() for name in given.split(",")]


def _names(listeners: str) -> list[str]:
    return [item.partition("://")[0].upper() for item in listeners.split(",")]


def _set_listeners(values: dict[str, str]) -> None:
    """Normalize both keys; derive missing `listeners` from the advertised ones, as apache/kafka does,
    or use the default."""
    controllers = _controller_names(values)
    advertised = tidy_listeners(values.pop("advertised.listeners", ""))
    # Controller listeners must not be advertised, but some set-ups do so.
    kept = [
        item
        for item in advertised.split(",")
        if item and item.partition("://")[0].upper() not in controllers
    ]
    if kept:
        values["advertised.listeners"] = ",".join(kept)
    listeners = tidy_listeners(values.get("listeners", ""))
    if not listeners:
        bound = [f"{item.partition('://')[0]}://0.0.0.0:{item.rpartition(':')[2]}" for item in kept]
        listeners = ",".join(bound) or DEFAULT_LISTENERS
    values["listeners"] = listeners
    if "listener.security.protocol.map" in values:
        items = values["listener.security.protocol.map"].split(",")
        values["listener.security.protocol.map"] = ",".join(
            item.strip() for item in items if item.strip()
        )


def _cluster_id(environ: Mapping[str, str]) -> str | None:
    given = environ.get("CLUSTER_ID") or environ.get("KAFKA_CLUSTER_ID")
    if given is None or not given.strip():
        return None
    given = given.strip()
    if not given.isprintable() or " " in given or len(given) > 64:
        raise SettingsError(f"CLUSTER_ID={given!r}: expected an id without spaces")
    return given


def parse_voters(text: str) -> list[Voter]:
    """Parse `ID@HOST:PORT,…` of controller.quorum.voters. SettingsError."""
    try:
        return [parse_voter(part.strip()) for part in text.split(",") if part.strip()]
    except ValueError as error:
        raise SettingsError(f"KAFKA_CONTROLLER_QUORUM_VOTERS={text}: {error}") from None


def _set_roles(settings: ContainerSettings, controllers: int) -> None:
    """Set the roles: standalone broker, or a node of a cluster with the first voters as controllers."""
    values = settings.node.values
    roles = [role.strip() for role in values.get("process.roles", "").split(",") if role.strip()]
    unknown = [role for role in roles if role not in ("broker", "controller")]
    if unknown:
        raise SettingsError(
            f"KAFKA_PROCESS_ROLES={','.join(roles)}: expected broker, controller, or both"
        )
    voters = parse_voters(values.get("controller.quorum.voters", "")) if roles else []
    if "broker" not in roles and roles and "advertised.listeners" in values:
        raise SettingsError(
            "KAFKA_ADVERTISED_LISTENERS: a controller has none; leave it out for KAFKA_PROCESS_ROLES=controller"
        )
    if controllers > max(len(voters), 1):
        raise SettingsError(
            f"KWIRE_CONTROLLERS={controllers}: KAFKA_CONTROLLER_QUORUM_VOTERS names {len(voters)}"
        )
    alone = not roles or (len(roles) == 2 and len(voters) <= 1)
    if alone:
        return
    if not voters:
        raise SettingsError(
            "KAFKA_CONTROLLER_QUORUM_VOTERS is needed: ID@HOST:PORT of the controllers"
        )
    settings.node = settings.node.replace(
        controllers=tuple(
            (voter_id + CONTROLLER_IDS_FROM, host, port)
            for voter_id, host, port in voters[:controllers]
        ),
        brokers=len(voters) if len(roles) == 2 else 3,
    )
    settings.runs_broker = "broker" in roles
    ids = [str(voter_id) for voter_id, _, _ in voters[:controllers]]
    settings.runs_controller = str(settings.node.node_id) in ids and "controller" in roles
    both_here = settings.runs_controller and settings.runs_broker
    if controllers > 1 and both_here and settings.controller_dir is None:
        raise SettingsError(
            f"KWIRE_CONTROLLERS={controllers}: KWIRE_CONTROLLER_DIR is needed where a broker is in the same"
            " container: the directory that all controllers share"
        )
    if "controller" in roles:
        names = _controller_names(values)
        items = values["listeners"].split(",")
        found = [item for item in items if item.partition("://")[0].upper() in names]
        if not found:
            raise SettingsError(
                f"KAFKA_LISTENERS={values['listeners']}: the controller's listener ({names[0]}) is missing"
            )
        settings.controller_listener = found[0]
