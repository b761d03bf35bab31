"""Writes docs/doors.md: what can be done at each door of kwire, verb by verb.

    python tools/doors.py

The names come from the code: the public names of `kwire.aio.Cluster` and its network, the commands of
`kwire`, the routes of a cluster's control API, the fixtures and options of the pytest plugin, the
variables of the image. `ROWS` says what belongs together; `problems` finds names that no row has,
names that nothing has, and holes without a reason (tests/test_doors.py).
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from pathlib import Path

import click

from kwire import aio
from kwire.backends.clock.clock import Clock
from kwire.backends.faults.faults import Faults
from kwire.backends.network import Network
from kwire.cli.main import cli
from kwire.control.routes import OF_CLUSTER
from kwire.pytest_plugin import _MARKER

ROOT = Path(__file__).resolve().parents[1]
DOORS = ("Python", "pytest", "CLI", "HTTP", "container")
SAME = {
    "pytest": "the fixture is a `Cluster`",
    "container": "its control API, its `kwire`",
}
LEFT_OUT = {
    "Python": "started external inside node of network.apply network.lift network.undo network.rules_of"
    " faults.disks faults.reset faults.add faults.remove faults.counts"
    " faults.keep_failures faults.tell faults.forget faults.in_words"
    " clock.advance_by clock.moved_ms clock.to_json clock.tell clock.restore clock.forget"
    " clock.in_words",
    "pytest": "kwire_spark kwire_spark_session kwire_spark_config",
    "CLI": "node config dump-log audit sim completion load",
    "HTTP": "GET /,GET /v1,GET /v1/openapi.json,GET /v1/live,GET /healthz",
    "container": "KWIRE_LOG_LEVEL KWIRE_LOG_JSON KWIRE_AS_VERSION KWIRE_HEALTH_FILE KWIRE_CONTROL"
    " KWIRE_CONTROL_HOSTS KWIRE_CONTROL_TOKEN"
    " KWIRE_CONTROLLER_DIR KWIRE_RUNTIME_DIR KWIRE_BOOTSTRAP KWIRE_CA KWIRE_CERT KWIRE_CERT_KEY",
}
"""Names that are no verbs for a running cluster: kwire's own, Spark's, of files and of single nodes."""


class Row:
    """A verb, with its names at each door (commas between), or why it has none there."""

    def __init__(
        self,
        verb: str,
        python: str = "",
        cli: str = "",
        http: str = "",
        *,
        pytest: str = "",
        container: str = "",
        holes: dict[str, str] | None = None,
    ) -> None:
        self.verb = verb
        texts = dict(zip(DOORS, (python, pytest, cli, http, container), strict=True))
        self.names = {door: re.findall(r"[^,]+", text) for door, text in texts.items()}
        self.holes = holes or {}

    def cell(self, door: str) -> str:
        """The cell of a door in the table; "" for a hole without a reason."""
        if self.names[door]:
            cells = [f"`{name.strip()}`" for name in self.names[door]]
            return ", ".join(cells).replace("|", "\\|")
        if door in self.holes:
            return f"– {self.holes[door]}"
        if (door == "pytest" and self.names["Python"]) or (
            door == "container" and (self.names["CLI"] or self.names["HTTP"])
        ):
            return SAME[door]
        return ""


_VERBS = "{verb:kill|stop|start|pause|resume}"
_TOPIC = "/v1/topics/{topic}"
_CTL_NODES = "ctl kill,ctl stop,ctl start,ctl pause,ctl resume"
_LOOP = {
    "HTTP": "the client asks `GET /v1/topics/{topic}` until `isr` has all `replicas`: it knows how long to wait",
    "CLI": "`kwire partitions orders` in a loop, until no line says under-replicated or offline",
}
_TESTS = dict.fromkeys(
    ("CLI", "HTTP"),
    "for a fixture that resets and says what it cleared; `reset` refuses them anyway",
)

ROWS = (
    Row(
        "start and stop",
        "start,stop",
        "up,down,wait",
        pytest="kwire,kwire_cluster,kwire_factory,kwire_session_factory",
        container="docker run,docker stop",
        holes={"HTTP": "a cluster that does not run has no API"},
    ),
    Row(
        "size and settings",
        "Cluster(…)",
        "up",
        pytest="--kwire-brokers,--kwire-controllers,--kwire-fast,--kwire-mode,kwire_config,"
        "@kwire(brokers),@kwire(config),@kwire(controllers),@kwire(fast),@kwire(mode),@kwire(racks),"
        "@kwire(sasl),@kwire(users),@kwire(tls),@kwire(mtls),@kwire(acl),@kwire(super_users),@kwire(topics)",
        container="KWIRE_BROKERS,KWIRE_CONTROLLERS,KWIRE_RACKS,KWIRE_FAST,KWIRE_ISOLATION,"
        "KWIRE_RECENT_REQUESTS,KWIRE_CONTROL_PORT,KWIRE_TLS,KWIRE_MTLS,"
        "KWIRE_ACL,KWIRE_SUPER_USERS",
        holes={"HTTP": "chosen at the start"},
    ),
    Row(
        "use a cluster that runs elsewhere",
        "connect",
        "topics,groups,partitions,produce,consume",
        pytest="--kwire-bootstrap,--kwire-external-reset",
        holes={"HTTP": "the API is that of one cluster"},
    ),
    Row(
        "virtual time, by seed",
        pytest="world,--kwire-seed,--kwire-seeds,--kwire-shrink,--kwire-without,--kwire-check-determinism,--kwire-time",
        holes={
            "Python": "[`kwire.virtual`](virtual.md)",
            **dict.fromkeys(("CLI", "HTTP", "container"), "the application is in the same process"),
        },
    ),
    Row(
        "nodes and addresses",
        "client_config,bootstrap_servers,brokers,broker,controllers,controller,controller_id,active_controller",
        "status,ctl status",
        "GET /v1/cluster",
    ),
    Row(
        "kill, stop, start, pause brokers and controllers",
        "broker,controller",
        f"{_CTL_NODES},ctl broker,ctl controller",
        f"POST /v1/brokers/{{id:int}}/{_VERBS},POST /v1/controllers/{{id:int}}/{_VERBS}",
    ),
    Row(
        "cut and delay links",
        "network.cut,network.delay,network.heal",
        "ctl cut,ctl delay,ctl heal",
        "POST /v1/network/cuts,POST /v1/network/delays,DELETE /v1/network/cuts,"
        "DELETE /v1/network/delays",
    ),
    Row(
        "faults on requests",
        "faults.inject,faults.clear",
        "ctl fault add,ctl fault rm",
        "POST /v1/faults,DELETE /v1/faults,DELETE /v1/faults/{id}",
    ),
    Row(
        "disks that fail, are full or slow",
        "broker,controller",
        "ctl disk fail,ctl disk full,ctl disk slow,ctl disk rm,ctl disk heal",
        "POST /v1/nodes/{id:int}/disk/{act:fail|full|slow},DELETE /v1/nodes/{id:int}/disk,"
        "DELETE /v1/disks,DELETE /v1/disks/{id}",
    ),
    Row("faults of disks that are set", "broker,controller", "ctl disk list", "GET /v1/disks"),
    Row(
        "faults that are set, what they have hit",
        "faults.list,faults.find",
        "ctl fault list",
        "GET /v1/faults,GET /v1/faults/{id}",
    ),
    Row(
        "save, restore, delete a snapshot",
        "snapshot,restore,delete_snapshot",
        "ctl snapshot save,ctl snapshot restore,ctl snapshot rm",
        "POST /v1/snapshots,POST /v1/snapshots/{name}/restore,DELETE /v1/snapshots/{name}",
    ),
    Row(
        "snapshots that are kept",
        "snapshots",
        "ctl snapshot list",
        "GET /v1/snapshots,GET /v1/snapshots/{name}",
    ),
    Row(
        "a second cluster from a snapshot",
        "fork,from_snapshot",
        "ctl snapshot save,up",
        pytest="kwire_from",
        holes={
            "HTTP": "it would belong to nobody",
            "container": "it has one cluster",
        },
    ),
    Row("time passes at all nodes", "clock.advance", "ctl clock advance", "POST /v1/clock"),
    Row(
        "time stands still",
        "clock.freeze,clock.resume",
        "ctl clock freeze,ctl clock resume",
        "POST /v1/clock/freeze,POST /v1/clock/resume",
    ),
    Row("what time it is", "clock.now", "ctl clock now", "GET /v1/clock"),
    Row("links that are cut", "network.cuts,network.delays", "ctl network", "GET /v1/network"),
    Row(
        "create and delete topics",
        "create_topic,delete_topic",
        "topics create,topics delete",
        f"POST /v1/topics,DELETE {_TOPIC}",
    ),
    Row("list topics", "topics", "topics,topics list,ctl topics", "GET /v1/topics"),
    Row(
        "state of partitions",
        "partition",
        "partitions,ctl partition",
        f"GET {_TOPIC},GET {_TOPIC}/partitions,GET {_TOPIC}/partitions/{{n:int}}",
    ),
    Row("elect a leader", "elect", "ctl elect", "POST /v1/elections"),
    Row("wait for replicas", "wait_in_sync", holes={**_LOOP, "container": _LOOP["HTTP"]}),
    Row(
        "wait for a condition",
        "wait_for",
        holes={
            "CLI": "a shell loops",
            "HTTP": "the client loops",
            "container": "the client loops",
        },
    ),
    Row("read records", "records", "consume", f"GET {_TOPIC}/records"),
    Row("write records", "produce", "produce", f"POST {_TOPIC}/records"),
    Row("groups, members, lag", "groups,group", "groups", "GET /v1/groups,GET /v1/groups/{group}"),
    Row(
        "transactions, what they hold",
        "transactions,transaction",
        "transactions,transactions list,transactions describe",
        "GET /v1/transactions,GET /v1/transactions/{transaction}",
    ),
    Row(
        "fence a transactional producer",
        "fence_producer",
        "transactions fence",
        "POST /v1/transactions/{transaction}/fence",
    ),
    Row(
        "transactions that no coordinator knows",
        cli="transactions find-hanging,transactions abort",
        holes={
            **dict.fromkeys(("Python", "pytest"), "Kafka's admin clients; leaders let none begin"),
            "HTTP": "a repair by hand",
        },
    ),
    Row("connections of clients", "clients", "ctl clients", "GET /v1/clients"),
    Row(
        "what clients asked",
        "requests",
        "requests,ctl requests,top",
        "GET /v1/requests,DELETE /v1/requests",
    ),
    Row(
        "state of a node: lags, fetchers",
        "status",
        "ctl status",
        "GET /v1/nodes/{id:int}/status",
    ),
    Row("events", "events", "ctl events", "GET /v1/events"),
    Row("compact a topic", "compact", "ctl compact", f"POST {_TOPIC}/compact"),
    Row("apply retention", "apply_retention", "ctl retention", "POST /v1/retention"),
    Row("reset", "reset", "ctl reset", "POST /v1/reset"),
    Row(
        "what earlier tests left",
        "leftovers",
        holes={**_TESTS, "container": _TESTS["HTTP"]},
    ),
    Row("kwire's own errors", "failures", "ctl failures", "GET /v1/failures"),
    Row(
        "all of it as a page with a timeline",
        cli="report",
        http="GET /v1/report",
        pytest="--kwire-report",
        holes={"Python": "written by pytest and the CLI"},
    ),
    Row(
        "metrics for Prometheus",
        http="GET /metrics",
        holes={
            "Python": "in a test `status(1)` has the numbers",
            "pytest": "as Python",
            "CLI": "`curl`, and Prometheus, read the URL that the ready line shows",
        },
    ),
    Row(
        "all of it as text",
        "describe",
        "top",
        holes={"HTTP": "JSON in the other rows"},
    ),
)


def python_names() -> set[str]:
    """The public names of `Cluster`, of its network, its faults and its clock."""
    found = {name for name in dir(aio.Cluster) if name[0] != "_"}
    found |= {f"clock.{name}" for name in dir(Clock) if name[0] != "_"}
    found |= {f"faults.{name}" for name in dir(Faults) if name[0] != "_"}
    return found | {f"network.{name}" for name in dir(Network) if name[0] != "_"} | {"Cluster(…)"}


def pytest_names() -> set[str]:
    """The fixtures, options and ini keys of the plugin, and the arguments of its marker."""
    source = (ROOT / "kwire" / "pytest_plugin.py").read_text()
    fixtures = re.findall(r"@pytest\.fixture.*\n(?:@.*\n)*def (\w+)", source)
    options = re.findall(r'"(--kwire-[\w-]+)"', source)
    keys = re.findall(r'addini\(\s*"(\w+)"', source)
    as_option = {option[2:].replace("-", "_") for option in options}
    arguments = [f"@kwire({name})" for name in re.findall(r"(\w+)=", _MARKER.partition(":")[0])]
    names = (*fixtures, *options, *keys, *arguments)
    return {name for name in names if name[0] != "_"} - as_option


def commands(group: click.Group = cli, prefix: str = "") -> Iterator[str]:
    """The commands of `kwire`; a group that can also be called without a subcommand is one."""
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if isinstance(command, click.Group):
            if command.invoke_without_command:
                yield prefix + name
            yield from commands(command, f"{prefix}{name} ")
        else:
            yield prefix + name


def variables() -> set[str]:
    """The image's own variables: those of specs, and those that its code reads."""
    from kwire.launch.spec import ClusterSpec, NodeSpec

    found = set(re.findall(r'"(KWIRE_[A-Z_]+)"', inspect.getsource(ClusterSpec)))
    found |= set(re.findall(r'"(KWIRE_[A-Z_]+)"', inspect.getsource(NodeSpec)))
    source = (ROOT / "kwire" / "docker" / "variables.py").read_text()
    return found | set(re.findall(r'"(KWIRE_[A-Z_]+)"(?!:)', source))  # keys: wrong names


def existing() -> dict[str, set[str]]:
    """The names that the code has at each door."""
    return {
        "Python": python_names(),
        "pytest": pytest_names(),
        "CLI": set(commands()),
        "HTTP": {f"{route.method} {route.path}" for route in OF_CLUSTER},
        "container": variables() | {"docker run", "docker stop"},
    }


def problems(rows: tuple[Row, ...] = ROWS) -> list[str]:
    """What is wrong with the rows, a line each."""
    found = []
    for door, there in existing().items():
        separator = "," if door == "HTTP" else " "
        left_out = set(LEFT_OUT[door].split(separator))
        named = {name.strip() for row in rows for name in row.names[door]}
        found += [f"{door}: {name} has no row" for name in sorted(there - named - left_out)]
        found += [f"{door}: there is no {name}" for name in sorted((named | left_out) - there)]
    found += [
        f"{row.verb}: nothing for {door}, and no reason"
        for row in rows
        for door in DOORS
        if not row.cell(door)
    ]
    return found


def text() -> str:
    """docs/doors.md."""
    lines = [
        "# The doors, verb by verb",
        "",
        "What can be done with a running cluster, and how at each door. Written by",
        "`python tools/doors.py`; do not edit. [Python and pytest](python.md), [CLI](cli.md),",
        "[HTTP](control.md), [the image](docker.md). `@kwire` is the marker `@pytest.mark.kwire`.",
        "",
        f"| | {' | '.join(DOORS)} |",
        f"|---|{'---|' * len(DOORS)}",
    ]
    lines += [
        f"| {row.verb} | {' | '.join(row.cell(door) for door in DOORS)} |".replace(":int}", "}")
        for row in ROWS
    ]
    return "\n".join(lines).replace("{verb:", "{") + "\n"


if __name__ == "__main__":
    (ROOT / "docs" / "doors.md").write_text(text())
