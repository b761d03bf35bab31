"""Specs of a node and of a cluster: every start option is defined here, once.

The fields of `NodeSpec` define the options of `kwire node` and those that `kwire up` shares with it
(kwire.cli), the arguments of a child process (`argv`) and the variables of a container (`variables`;
kwire.docker.environment reads them). `kwire up` and `kwire.Cluster` pass a `ClusterSpec` to the
supervisor. To add an option, add a field here and read it from the spec where it takes effect.
tests/test_spec.py sends every field through all of these.
"""

from __future__ import annotations

from kwire.launch.options import FLAG, NUMBER, PAIRS, RULES, VOTERS, Spec, option
from kwire.replication.core.types import CONTROLLER_ID, INTERNAL_LISTENER

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kwire.launch.options import Voter
    from kwire.server.link_rules import LinkRule
    from kwire.server.node import Node
    from kwire.snapshots.saved import Snapshot

BROKER, CONTROLLER = "broker", "controller"
STANDALONE = "standalone"
"""The role of a broker that has the controller in it."""
THREAD, PROCESS, DOCKER = "thread", "process", "docker"
MAX_CONTROLLERS = 9
CONTROL_PORT = 9099
"""Of the control API in a container."""
_MAX_NODE_ID = 2**31 - 1
_LEVELS = ("debug", "info", "warning", "error")
# What the keys of kwire.replication.config.given that are refused begin with.
_SECURITY = (
    "allow.",
    "alter.config.policy.",
    "authorizer.",
    "create.topic.policy.",
    "listener.name.",
    "principal.",
    "sasl.",
    "security.",
    "ssl.",
    "super.",
)
_CLUSTER_KEYS = ("node.id", "broker.id", "log.dir", "log.dirs")  # given for all brokers
_INTER_BROKER_KEYS = {"inter.broker.listener.name", "security.inter.broker.protocol"}
_CONTROLLER_KEY = "controller.listener.names"
_LISTENER_KEYS = ("listener", "advertised.", "inter.broker.", "controller.listener")


class NodeSpec(Spec):
    """One node: a broker or a controller of a cluster, or a standalone broker.

    `values`: configuration keys and texts; `node_id` and `data_dir` override theirs. `data_dir`:
    absolute paths, comma-separated; "": not chosen yet. `again`: a restart, on the ports in `values`.
    `clock_ms`: how far tests have advanced the clock. `network`: link rules of the node, as sender.
    `temporary`: nothing need survive a power failure: no fsync. `control_url`: for the log."""

    node_id: int = option(
        "--id",
        NUMBER,
        help="Node id; the controller's is no broker's.",
        metavar="ID",
        least=0,
        most=_MAX_NODE_ID,
        required=True,
    )
    role: str = option(
        "--roles",
        default=STANDALONE,
        help="What it is.",
        choices=(BROKER, CONTROLLER),
        required=True,
    )
    controllers: tuple[Voter, ...] = option(
        "--controller",
        VOTERS,
        default=(),
        help="The controller, needed for a broker; repeatable: those that may take over from it.",
        metavar="ID@HOST:PORT",
    )
    standby: bool = option(
        "--standby",
        FLAG,
        default=False,
        help="For a controller: others have the same --data-dir,"
        " one is active, this one if none is.",
    )
    broker_epoch: int | None = option(
        "--broker-epoch",
        NUMBER,
        default=None,
        help="Under a foreign controller, where somebody else has registered the broker.",
        metavar="EPOCH",
        least=0,
    )
    data_dir: str = option(
        "--data-dir",
        default="",
        help="Where its logs live; DIR,DIR for several.  [default: log.dirs]",
        metavar="DIR",
    )
    cluster_id: str | None = option(
        "--cluster-id",
        default=None,
        help="The cluster's id; else the controller's word.",
        metavar="ID",
    )
    brokers: int = option(
        "--brokers",
        NUMBER,
        default=1,
        help="The cluster's size, which some defaults depend on.",
        metavar="N",
        least=1,
    )
    values: Mapping[str, str] = option(
        "-c",
        PAIRS,
        default={},
        help="One configuration key of Kafka's; repeatable.",
        metavar="KEY=VALUE",
    )
    as_version: str | None = option(
        "--as-version",
        default=None,
        help="Serve what this release of Kafka serves.",
        metavar="RELEASE",
        up_help="Serve what this release of Kafka serves: 3.9, 2.8, …",
        variable="KWIRE_AS_VERSION",
    )
    temporary: bool = option(
        "--temporary",
        FLAG,
        default=False,
        help="The data need not survive a power cut: no fsync.",
    )
    again: bool = option("--again", FLAG, default=False)
    network: tuple[LinkRule, ...] = option("--network", RULES, default=())
    clock_ms: int = option("--clock-ms", NUMBER, default=0)
    control_url: str | None = option("--control-url", default=None)
    recent_requests: bool = option(
        "--recent-requests",
        FLAG,
        default=False,
        up_help="Each of several brokers keeps the last 20 requests of each client, for the control API.",
        variable="KWIRE_RECENT_REQUESTS",
    )
    fast: bool = option(
        "--fast",
        FLAG,
        default=False,
        help="Timers for tests: retention, compaction and sessions within fractions of a second.",
        up_help="Timers for tests: retention, compaction and session time-outs within fractions of"
        " a second.",
        variable="KWIRE_FAST",
    )
    log_level: str = option(
        "--log-level",
        default="info",
        help="What goes to stderr.",
        choices=_LEVELS,
        ignores_case=True,
        shows_default=True,
        up_help="What goes to stderr.",
    )
    log_json: bool = option(
        "--log-json",
        FLAG,
        default=False,
        help="Log lines as JSON.",
        up_help="Log lines as JSON.",
        variable="KWIRE_LOG_JSON",
    )

    @property
    def name(self) -> str:
        """The node as it is called in logs: "broker 1", "controller 1000"."""
        return f"{'controller' if self.role == CONTROLLER else 'broker'} {self.node_id}"

    def argv(self) -> list[str]:
        """The options of `kwire node` that yield this spec."""
        fields = self.fields
        return [word for name, it in self.changed().items() for word in fields[name].words(it)]

    def variables(self) -> dict[str, str]:
        """The environment variables of a container, for the fields that have one."""
        fields = self.fields
        return {
            fields[name].variable: "true" if value is True else str(value)
            for name, value in self.changed().items()
            if fields[name].variable
        }

    def with_clock(self, node: Node) -> Node:
        """A node that is not loaded yet, with the cluster's clock."""
        if self.clock_ms:
            from kwire.server.clock.advanced import start_advanced

            start_advanced(node, self.clock_ms)
        return node

    def configuration(self) -> dict[str, str]:
        """Keys and texts of the node's configuration, including its id and its directories."""
        values = {**self.values, "node.id": str(self.node_id), "log.dirs": self.data_dir}
        if self.fast:
            from kwire.replication.config.fast import FAST

            values = {**FAST, **values}
        values.pop("log.dir", None)
        return values


class ClusterSpec(Spec):
    """Several nodes, or a standalone broker.

    `node`: the first broker, with the data directory that all share. Its listeners have its ports; each further
    broker's are one higher (0 stays 0). `overrides`: keys of single brokers, by id. `snapshot`: what it starts with."""

    brokers: int = option(
        "--brokers",
        NUMBER,
        default=1,
        metavar="N",
        least=1,
        shows_default=True,
        up_help="Brokers to start: node ids and ports count up from the first's.",
        variable="KWIRE_BROKERS",
    )
    controllers: int = option(
        "--controllers",
        NUMBER,
        default=1,
        metavar="N",
        least=1,
        most=MAX_CONTROLLERS,
        shows_default=True,
        up_help="Controllers of several brokers: one is active, the others take over from it.",
        variable="KWIRE_CONTROLLERS",
    )
    isolation: str = option(
        "--isolation",
        default=THREAD,
        choices=(THREAD, PROCESS),
        shows_default=True,
        up_help="Several brokers: all in one process, or each in a process of its own.",
        variable="KWIRE_ISOLATION",
    )
    node: NodeSpec = option()
    overrides: Mapping[int, Mapping[str, str]] = option(default={})
    snapshot: Snapshot | None = option(default=None)

    @property
    def is_standalone(self) -> bool:
        """Whether the cluster is a single broker with the controller in it."""
        found = self.snapshot
        return self.brokers == self.controllers == 1 and (found is None or found.is_standalone)

    @property
    def controller_id(self) -> int:
        """The first controller's node id: 1000, or the first id above the brokers' if theirs reach 1000."""
        first, last = self.node.node_id, self.node.node_id + self.brokers - 1
        if first < CONTROLLER_ID + self.controllers and last >= CONTROLLER_ID:
            return last + 1
        return CONTROLLER_ID

    def controller_specs(self) -> list[NodeSpec]:
        """The controllers' specs: the brokers' keys, but one listener on an ephemeral port, as secure as they say."""
        values = {
            key: value
            for key, value in self._values().items()
            if not key.startswith(_LISTENER_KEYS)
            and key not in ("security.inter.broker.protocol", "broker.rack")
        }
        from kwire.server.log_dirs import split_dirs

        first = self.node.values["listeners"].partition("://")[2].partition(",")[0]
        values["listeners"] = f"PLAINTEXT://{first.rpartition(':')[0] or '127.0.0.1'}:0"
        if may_ask_for_security(self.node.values) or _CONTROLLER_KEY in self.node.values:
            from kwire.server.listeners import controller_keys

            of_brokers = {**self._values(), **self.overrides.get(self.node.node_id, {})}
            _add_internal_listener(of_brokers)
            values = controller_keys(values, of_brokers)
        directory = f"{split_dirs(self.node.data_dir)[0]}/controller"
        return [
            self.node.replace(
                role=CONTROLLER,
                node_id=node_id,
                values=values,
                data_dir=directory,
                standby=self.controllers > 1,
                brokers=self.brokers,
            )
            for node_id in range(self.controller_id, self.controller_id + self.controllers)
        ]

    def broker_specs(self) -> list[NodeSpec]:
        """The brokers' specs, without controller addresses: those are known once the controllers have started."""
        from kwire.server.log_dirs import below

        specs = []
        common = self._values()
        for number in range(self.brokers):
            node_id = self.node.node_id + number
            values = {**common, **_shifted_ports(common, number), **self.overrides.get(node_id, {})}
            _add_internal_listener(values)
            specs.append(
                self.node.replace(
                    role=BROKER,
                    node_id=node_id,
                    values=values,
                    data_dir=below(self.node.data_dir, f"broker-{node_id}"),
                    brokers=self.brokers,
                )
            )
        return specs

    def with_certificates(self, option: str | None = None) -> ClusterSpec:
        """The spec with keys of certificates, which are made if it asks for TLS (kwire.server.tls.made). `option`: how
        it asks. SettingsError without the library that makes them, NodeError."""
        from kwire.server.tls.made import keys_of_certificates

        node = self.node
        ids = range(node.node_id, node.node_id + self.brokers)
        values, own = keys_of_certificates(node.values, self.overrides, ids, node.data_dir, option)
        return self.replace(node=node.replace(values=values), overrides=own)

    def _values(self) -> dict[str, str]:
        return {key: value for key, value in self.node.values.items() if key not in _CLUSTER_KEYS}


def rack_overrides(racks: Sequence[str], first_id: int, brokers: int) -> dict[int, dict[str, str]]:
    """`ClusterSpec.overrides` that give the brokers these racks in turn, from the first again when
    there are fewer. ValueError for more racks than brokers, or an empty one."""
    if len(racks) > brokers:
        raise ValueError(f"{len(racks)} racks ({', '.join(racks)}) for {brokers} broker(s)")
    if not all(racks):
        raise ValueError("a rack has no name")
    numbers = range(brokers if racks else 0)
    return {first_id + number: {"broker.rack": racks[number % len(racks)]} for number in numbers}


def split_broker_keys(
    values: Mapping[str, str], first_id: int, brokers: int
) -> tuple[dict[str, str], dict[int, dict[str, str]]]:
    """Split keys of single brokers off: `{"2:log.retention.ms": "1"}` is for broker 2 only. Return
    the other keys, and those by broker id. ValueError for a broker or key that cannot be."""
    common: dict[str, str] = {}
    own: dict[int, dict[str, str]] = {}
    for key, value in values.items():
        number, colon, name = key.partition(":")
        if not (colon and number.isascii() and number.isdigit()):
            common[key] = value
            continue
        broker_id = int(number[:10])
        if not first_id <= broker_id < first_id + brokers:
            which = f"{first_id} to {first_id + brokers - 1}" if brokers > 1 else f"{first_id} only"
            raise ValueError(f"{key}: there is no broker {number[:10]}, but {which}")
        if not name or name in _CLUSTER_KEYS:
            raise ValueError(f"{key}: {name or 'no key'} cannot be given to a single broker")
        own.setdefault(broker_id, {})[name] = value
    return common, own


def _shifted_ports(values: Mapping[str, str], number: int) -> dict[str, str]:
    """The listeners of broker `number` (counted from 0): the first broker's ports plus `number`."""
    shifted = {}
    for key in ("listeners", "advertised.listeners"):
        if values.get(key):
            items = []
            for item in values[key].split(","):
                address, _, port = item.strip().rpartition(":")
                if port.isascii() and port.isdigit() and int(port) > 0:
                    port = str(int(port) + number)
                items.append(f"{address}:{port}")
            shifted[key] = ",".join(items)
    return shifted


def _add_internal_listener(values: dict[str, str]) -> None:
    """Add a listener for inter-broker traffic if the advertised address differs from the bound one:
    the nodes, all on this machine, may not be able to reach the advertised one."""
    if not values.get("advertised.listeners") or _INTER_BROKER_KEYS & values.keys():
        return
    from kwire.replication.config.table import BROKER_KEYS

    protocols = values.get("listener.security.protocol.map")
    if protocols is None:
        protocols = BROKER_KEYS["listener.security.protocol.map"][1]
    values["listener.security.protocol.map"] = f"{protocols},{INTERNAL_LISTENER}:PLAINTEXT"
    for key in ("listeners", "advertised.listeners"):
        values[key] += f",{INTERNAL_LISTENER}://127.0.0.1:0"
    values["inter.broker.listener.name"] = INTERNAL_LISTENER


def may_ask_for_security(values: Mapping[str, str]) -> bool:
    """Whether some key may be one that is refused: importing the rules costs a start some time."""
    return any(key.startswith(_SECURITY) for key in values)
