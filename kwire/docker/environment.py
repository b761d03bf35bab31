"""Translates a container's environment to kwire's settings. No sockets, no files, no clock.

Corresponds to kafka.docker.KafkaDockerWrapper (apache/kafka) and to the configure scripts of
confluentinc/cp-kafka: each `KAFKA_…` variable is a configuration key. Deliberate differences: setting
one variable keeps the defaults of the others, `KAFKA_CLUSTER_ID` is an alias of `CLUSTER_ID`, and
`KAFKA_CREATE_TOPICS` creates topics. With `KWIRE_BROKERS` the container is a whole cluster.

A quorum of controllers (KRaft) becomes one controller, the first of `controller.quorum.voters`; with
`KWIRE_CONTROLLERS` the first several, which share a directory. ZooKeeper's variables are ignored.
"""

from __future__ import annotations

from kwire.docker.listeners import (
    add_exposed_port,
    check_ports,
    controller_names,
    set_listeners,
)
from kwire.docker.locks import set_acls, set_tls, tls_option
from kwire.docker.variables import (
    configuration,
    number,
    option_value,
    own_values,
    unknown_variables,
    written_as,
)
from kwire.launch.configuration import node_id_of
from kwire.launch.options import parse_voter
from kwire.launch.spec import CONTROL_PORT, ClusterSpec, NodeSpec, rack_overrides
from kwire.replication.core.types import (
    CONTROLLER_IDS_FROM,
    INTERNAL_LISTENER,
    TLS_DIRECTORY_KEY,
    TLS_KEY,
)
from kwire.server.errors import SettingsError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from kwire.launch.options import Voter

DATA_DIR = "/var/lib/kafka/data"
MAX_PARTITIONS = 10_000

# log4j's levels, of KAFKA_LOG4J_ROOT_LOGLEVEL
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
    any. `cluster`: the fields of a ClusterSpec that are given; `unknown`: variables without a
    meaning, each with the one that may have been meant; `written`: the variable of each key."""

    __slots__ = (
        "cluster",
        "control_port",
        "controller_dir",
        "controller_listener",
        "node",
        "runs_broker",
        "runs_controller",
        "topics",
        "unknown",
        "written",
    )

    def __init__(self, node: NodeSpec) -> None:
        self.node = node
        self.topics: list[Topic] = []
        self.controller_dir: str | None = None
        self.controller_listener: str | None = None
        self.control_port: int | None = None
        self.runs_broker = True
        self.runs_controller = False
        self.cluster: dict[str, Any] = {}
        self.unknown: dict[str, str | None] = {}
        self.written: dict[str, str] = {}

    @property
    def brokers(self) -> int:
        """How many brokers are in this container."""
        return int(self.cluster.get("brokers", 1))

    @property
    def controllers(self) -> int:
        """How many controllers the cluster has: in this container, or among the voters."""
        return int(self.cluster.get("controllers", 1))

    def serves_whole_api(self) -> bool:
        """Whether the control API is that of a cluster, also of one broker: KWIRE_BROKERS is set."""
        return "brokers" in self.cluster and not self.node.controllers

    def in_cluster_of_its_own(self) -> bool:
        """Whether a controller and brokers, as separate nodes, are in this container."""
        return not self.node.controllers and (self.brokers > 1 or self.controllers > 1)


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
        for word in numbers:
            count = int(word) if word.isascii() and word.isdigit() and len(word) < 6 else 0
            if not 1 <= count <= MAX_PARTITIONS:
                reason = f"{allowed} with numbers of 1 to {MAX_PARTITIONS}, not {item!r}"
                raise SettingsError(f"KAFKA_CREATE_TOPICS: {reason}")
            counts.append(count)
        partitions, replication = [*counts, -1, -1][:2]
        configs = {"cleanup.policy": policy[0]} if policy and policy[0] else {}
        topics.append((name, partitions, replication, configs))
    return topics


def container_settings(
    environ: Mapping[str, str],
    file_values: Mapping[str, str] | None = None,
    is_free: Callable[[int], bool] = lambda _port: False,
) -> ContainerSettings:
    """The settings from the environment, then the mounted file, then the defaults. `is_free`:
    whether a port that nobody has named may be bound, too.

    SettingsError, in one line, when they are refused."""
    unknown = unknown_variables(environ)
    known = {name: text for name, text in environ.items() if name not in unknown}
    values = {**(file_values or {}), **configuration(known)}
    _set_node_id(values)
    are_derived = _set_listeners(values, environ)
    data_dir = values.pop("log.dirs", None) or values.pop("log.dir", None) or DATA_DIR
    values.pop("log.dir", None)
    node = NodeSpec(
        node_id=node_id_of(values),
        values=values,
        data_dir=data_dir.strip(", "),
        cluster_id=_cluster_id(environ),
        log_level=_log_level(environ),
        **own_values(NodeSpec, environ),
    )
    settings = ContainerSettings(node)
    settings.unknown, settings.written = unknown, written_as(known)
    if TLS_KEY in values:
        settings.written[TLS_KEY] = tls_option(environ) or TLS_KEY
    settings.topics = parse_topics(
        environ.get("KAFKA_CREATE_TOPICS", ""), environ.get("KAFKA_CREATE_TOPICS_SEPARATOR")
    )
    settings.controller_dir = environ.get("KWIRE_CONTROLLER_DIR") or None
    settings.cluster = own_values(ClusterSpec, environ)
    _set_nodes(settings, values, environ)
    settings.control_port = _control_port(environ, settings)
    if are_derived:
        add_exposed_port(values, settings.brokers, is_free)
    _check_control_port(settings)
    return settings


def _set_nodes(
    settings: ContainerSettings, values: dict[str, str], environ: Mapping[str, str]
) -> None:
    """Set what the nodes of this container are. SettingsError."""
    if settings.brokers > 1 or ("brokers" in settings.cluster and settings.controllers > 1):
        _set_cluster(settings, values, environ)
    else:
        _set_node(settings, values, environ)
    set_acls(settings, values, environ)


def _set_listeners(values: dict[str, str], environ: Mapping[str, str]) -> bool:
    """Set the keys of listeners; return whether they were derived. SettingsError."""
    are_derived = set_listeners(values)
    set_tls(values, environ)
    return are_derived


def _check_control_port(settings: ContainerSettings) -> None:
    check_ports(settings.node.values, settings.brokers, settings.control_port)
    if settings.node.recent_requests and settings.control_port is None:
        reason = "nobody can ask for them without a control API, KWIRE_CONTROL_PORT"
        raise SettingsError(f"KWIRE_RECENT_REQUESTS=true: {reason}")


def _control_port(environ: Mapping[str, str], settings: ContainerSettings) -> int | None:
    given = environ.get("KWIRE_CONTROL_PORT", "").strip()
    if given:
        return number("KWIRE_CONTROL_PORT", given, 1, 65535)
    return CONTROL_PORT if settings.serves_whole_api() else None


def _log_level(environ: Mapping[str, str]) -> str:
    """The level in kwire's variable, else in Kafka's, else info. SettingsError."""
    own = environ.get("KWIRE_LOG_LEVEL", "").strip()
    if own:
        return str(option_value(NodeSpec.fields["log_level"], "KWIRE_LOG_LEVEL", own))
    given = environ.get("KAFKA_LOG4J_ROOT_LOGLEVEL") or "INFO"
    level = _LEVELS.get(given.strip().upper())
    if level is None:
        expected = ", ".join(_LEVELS)
        raise SettingsError(f"KAFKA_LOG4J_ROOT_LOGLEVEL={given}: expected one of {expected}")
    return level


def _set_node_id(values: dict[str, str]) -> None:
    if values.get("broker.id", "").strip() == "-1":  # "generate one", in old images
        del values["broker.id"]
    if "node.id" not in values:
        values["node.id"] = values.get("broker.id", "1")
    if values["node.id"].strip().startswith("-"):
        raise SettingsError(f"KAFKA_NODE_ID={values['node.id']}: expected 0 or more")


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


def _set_cluster(
    settings: ContainerSettings, values: dict[str, str], environ: Mapping[str, str]
) -> None:
    """All nodes are in this container. SettingsError when it is to be a node of another cluster."""
    roles = {role.strip() for role in values.pop("process.roles", "").split(",")} - {""}
    voters = parse_voters(values.pop("controller.quorum.voters", ""))
    if len(voters) > 1 or roles not in (set(), {"broker", "controller"}):
        raise SettingsError(
            f"KWIRE_BROKERS={settings.brokers}: this container is a cluster of its own; leave out"
            " KAFKA_PROCESS_ROLES and KAFKA_CONTROLLER_QUORUM_VOTERS, or KWIRE_BROKERS"
        )
    names = controller_names(values)
    items = values["listeners"].split(",")
    kept = [item for item in items if item.partition("://")[0].upper() not in names]
    values["listeners"] = ",".join(kept) or values["listeners"]
    for key in ("inter.broker.listener.name", "security.inter.broker.protocol"):
        if values.get(key) != INTERNAL_LISTENER:  # of KWIRE_TLS
            values.pop(key, None)  # the brokers reach each other inside the container
    settings.cluster["overrides"] = _racks(environ, settings, settings.brokers)


def _racks(
    environ: Mapping[str, str], settings: ContainerSettings, brokers: int
) -> dict[int, dict[str, str]]:
    """The racks of the brokers in this container, by id. SettingsError."""
    text = environ.get("KWIRE_RACKS", "").strip()
    if not text:
        return {}
    if "broker.rack" in settings.node.values:
        raise SettingsError(f"KWIRE_RACKS={text} and KAFKA_BROKER_RACK: give one of them")
    try:
        racks = [rack.strip() for rack in text.split(",")]
        return rack_overrides(racks, settings.node.node_id, brokers)
    except ValueError as error:
        raise SettingsError(f"KWIRE_RACKS={text}: {error}") from None


def _set_node(
    settings: ContainerSettings, values: dict[str, str], environ: Mapping[str, str]
) -> None:
    """One node is in this container. SettingsError."""
    _set_roles(settings, settings.controllers)
    if settings.node.controllers and TLS_KEY in values:
        _check_shared_tls(values)
    own = _racks(environ, settings, 1 if settings.runs_broker else 0)
    values.update(own.get(settings.node.node_id, {}))


def _check_shared_tls(values: Mapping[str, str]) -> None:
    """SettingsError unless containers of one cluster share an authority, and name the listeners that ask for TLS."""
    if not values.get(TLS_DIRECTORY_KEY):
        raise SettingsError(
            "KWIRE_TLS=true: nodes in several containers need certificates of one authority; give each its"
            " KAFKA_SSL_KEYSTORE_LOCATION instead, or KAFKA_KWIRE_TLS_DIRECTORY, a volume that they share"
        )
    if f"{INTERNAL_LISTENER}://" in values["listeners"]:
        raise SettingsError(
            "KWIRE_TLS=true: in a cluster of several containers name the listeners that ask for TLS, as in"
            " KAFKA_LISTENER_SECURITY_PROTOCOL_MAP=CONTROLLER:PLAINTEXT,HOST:SSL,INSIDE:SSL"
        )


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
        names = controller_names(values)
        items = values["listeners"].split(",")
        found = [item for item in items if item.partition("://")[0].upper() in names]
        if not found:
            raise SettingsError(
                f"KAFKA_LISTENERS={values['listeners']}: the controller's listener ({names[0]}) is missing"
            )
        settings.controller_listener = found[0]
