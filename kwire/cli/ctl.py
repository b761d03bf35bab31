"""`kwire ctl`: looks into a running cluster, changes its nodes and its network, by the control API."""

from __future__ import annotations

import math

import click

from kwire.cli.common import Commands, example, json_option, known
from kwire.cli.common import node_id as _id
from kwire.cli.control import ask_control, control_options
from kwire.cli.verbs.clock import clock
from kwire.cli.verbs.disk import disk
from kwire.cli.verbs.snapshot import snapshot

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

_VERBS = ("start", "stop", "kill", "pause", "resume")


def _parse_ids(
    _context: click.Context, _parameter: click.Parameter, text: str | None
) -> list[int] | None:
    """A node id, or several with commas between."""
    numbers = [] if text is None else text.split(",")
    if not all(number.isascii() and number.isdigit() for number in numbers):
        raise click.BadParameter(f"expected node ids, 2 or 2,3, not {text!r}")
    return None if text is None else [int(number) for number in numbers]


def _ask(
    method: str,
    path: str,
    body: dict[str, Any] | None = None,
    to_text: Callable[[Any], str] | None = None,
) -> None:
    from kwire.control.ctl import ask

    ask_control("ctl", lambda url: ask(url, method, path, body, to_text))


def _do(method: str, path: str, body: dict[str, Any], done: str) -> None:
    """A request whose answer is empty."""
    _ask(method, path, {k: v for k, v in body.items() if v is not None}, lambda _: done)


def _path(*items: str) -> str:
    from urllib.parse import quote

    return "/".join(["/v1", *(quote(item, safe="") for item in items)])


@click.group(
    cls=Commands,
    epilog="\b\nExamples:\n  kwire ctl kill 2\n  kwire ctl cut 1 2,3\n"
    "  kwire ctl elect orders 0 2\n  kwire ctl --control http://127.0.0.1:41234 status",
)
@control_options
def ctl() -> None:
    """Look into a running `kwire up`, change its nodes and its network.

    Controllers are nodes, too: ids from 1000 on."""


# --- nodes


@ctl.command(epilog=example("kwire ctl status 1"))
@click.argument("node_id", metavar="[ID]", type=_id, required=False)
@json_option
@control_options
def status(node_id: int | None, as_json: bool) -> None:
    """Show each node with its address and state; of one node its partitions, lags and fetchers."""
    if node_id is None:
        from kwire.control.ctl import status_text

        _ask("GET", "/v1/cluster", None, None if as_json else status_text)
        return
    from kwire.control.status import lines

    to_text = None if as_json else lambda found: "\n".join(lines(found))
    _ask("GET", _path("nodes", str(node_id), "status"), None, to_text)


def _add_node_command(kind: str) -> None:
    @ctl.command(kind, epilog=example(f"kwire ctl {kind} kill {1000 if kind != 'broker' else 2}"))
    @click.argument("verb", type=click.Choice(_VERBS))
    @click.argument("node_id", metavar="ID", type=_id)
    @control_options
    def change(verb: str, node_id: int) -> None:
        from kwire.control import ctl as work

        ask_control("ctl", lambda url: work.change_node(url, kind, node_id, verb))

    change.help = f"Start, stop, kill, pause or resume a {kind}."


def _add_verb(verb: str, help: str) -> None:
    @ctl.command(verb, help=help, epilog=example(f"kwire ctl {verb} 2"))
    @click.argument("ids", metavar="ID…", nargs=-1, required=True, type=_id)
    @control_options
    def change(ids: tuple[int, ...]) -> None:
        from kwire.control import ctl as work

        def each(url: str) -> str:
            return "\n".join(work.change_node(url, "", node_id, verb) for node_id in ids)

        ask_control("ctl", each)


_add_verb("kill", "Kill nodes as `kill -9` does.")
_add_verb("stop", "Stop nodes cleanly; leaderships move away first.")
_add_verb("start", "Start nodes that were killed or stopped, also from outside.")
_add_verb("pause", "Freeze nodes with their sockets open, as SIGSTOP does.")
_add_verb("resume", "Undo a pause.")
_add_node_command("broker")
_add_node_command("controller")


# --- network

_one_way = click.option("--one-way", is_flag=True, help="Only what A asks of B.")


@ctl.command(epilog=example("kwire ctl cut 1 2,3"))
@click.argument("a", callback=_parse_ids)
@click.argument("b", callback=_parse_ids)
@_one_way
@control_options
def cut(a: list[int], b: list[int], one_way: bool) -> None:
    """Cut nodes A off from nodes B; clients still reach all of them."""
    body = {"a": a, "b": b, "one_way": one_way or None}
    _do("POST", "/v1/network/cuts", body, f"cut {_ids(a)} {_ids(b)}{' --one-way' * one_way}")


def _parse_delay(_context: click.Context, _parameter: click.Parameter, text: str) -> float:
    """Milliseconds of 0 or more."""
    try:
        milliseconds = float(text)
    except ValueError:
        milliseconds = -1
    if not 0 <= milliseconds < math.inf:
        raise click.BadParameter(f"expected milliseconds of 0 or more, not {text}")
    return milliseconds


# -5 is to be seen as a number, not as an option that does not exist.
@ctl.command(
    epilog=example("kwire ctl delay 1 2 50"), context_settings={"ignore_unknown_options": True}
)
@click.argument("a", callback=_parse_ids)
@click.argument("b", callback=_parse_ids)
@click.argument("milliseconds", callback=_parse_delay)
@_one_way
@control_options
def delay(a: list[int], b: list[int], milliseconds: float, one_way: bool) -> None:
    """Delay what nodes A and B send to each other."""
    body = {"a": a, "b": b, "milliseconds": milliseconds, "one_way": one_way or None}
    done = f"delay {_ids(a)} {_ids(b)} {milliseconds:g}{' --one-way' * one_way}"
    _do("POST", "/v1/network/delays", body, done)


@ctl.command(epilog=example("kwire ctl heal"))
@click.argument("a", required=False, callback=_parse_ids)
@click.argument("b", required=False, callback=_parse_ids)
@control_options
def heal(a: list[int] | None, b: list[int] | None) -> None:
    """Remove cuts and delays: all, those of A, or those between A and B."""
    from kwire.control.ctl import healed_text

    body = {name: ids for name, ids in (("a", a), ("b", b)) if ids is not None}
    _ask("DELETE", "/v1/network/cuts", body, healed_text)


@ctl.command()
@json_option
@control_options
def network(as_json: bool) -> None:
    """Show the cuts and delays in force."""
    from kwire.control.ctl import network_text

    _ask("GET", "/v1/network", None, None if as_json else network_text)


def _ids(ids: list[int]) -> str:
    return ",".join(map(str, ids))


ctl.add_command(clock)
ctl.add_command(disk)
ctl.add_command(snapshot)


# --- faults


@ctl.group(cls=Commands, epilog=example("kwire ctl fault add Produce --error NOT_ENOUGH_REPLICAS"))
@control_options
def fault() -> None:
    """Set faults on requests: errors, delays, lost answers, corrupt records."""


@fault.command(
    "add", epilog=example("kwire ctl fault add Produce --topic orders --drop after --times 1")
)
@click.argument("api", required=False)
@click.option("--error", metavar="NAME", help="Answer with this error of Kafka's, or its number.")
@click.option("--delay", metavar="MS", type=float, help="Handle the request so much later.")
@click.option("--drop", metavar="before|after", help="Never answer; after: once it is handled.")
@click.option("--throttle", metavar="MS", type=float, help="Answer that the client is throttled.")
@click.option("--corrupt", is_flag=True, help="Answer a Fetch with wrong checksums.")
@click.option("--close", is_flag=True, help="Close the connection.")
@click.option("--version", type=int, help="Requests of this version only.")
@click.option("--broker", metavar="ID", type=_id, help="At this node only.")
@click.option("--client-id", metavar="NAME", help="Of this client only; of a node: broker-2.")
@click.option("--topic", metavar="NAME", help="This topic only.")
@click.option("--partition", type=_id, help="This partition only.")
@click.option("--group", metavar="NAME", help="This group only.")
@click.option("--transactional-id", metavar="NAME", help="This transactional id only.")
@click.option("--listener", metavar="NAME", help="At this listener only.")
@click.option("--user", metavar="NAME", help="Of this user only.")
@click.option("--times", type=int, help="The first ones at each node only.")
@click.option("--probability", type=float, help="Some of them: 0.1 is one of ten.")
@click.option("--seed", type=int, help="The same ones each time.")
@click.option("--force", is_flag=True, help="Also an error that Kafka would not give.")
@control_options
def add(**given: Any) -> None:
    """Set a fault on the requests of an API, or of all; print its id.

    One of --error, --delay, --drop, --throttle, --corrupt, --close."""
    body = {name: value for name, value in given.items() if value not in (None, False)}
    _ask("POST", "/v1/faults", body, lambda found: str(found["id"]))


@fault.command("list")
@json_option
@control_options
def show(as_json: bool) -> None:
    """List the faults that are set, with how many requests each has hit."""
    from kwire.control.ctl import faults_text

    _ask("GET", "/v1/faults", None, None if as_json else faults_text)


@fault.command("rm", epilog=example("kwire ctl fault rm fault-1"))
@click.argument("ids", metavar="[ID…]", nargs=-1)
@click.option("--all", "is_all", is_flag=True, help="All of them.")
@control_options
def remove(ids: tuple[str, ...], is_all: bool) -> None:
    """Remove faults; print what each has hit."""
    if bool(ids) == is_all:
        raise click.UsageError("expected ids of faults, or --all")
    from kwire.control.ctl import fault_text, faults_text

    if is_all:
        _ask("DELETE", "/v1/faults", None, faults_text)
    for fault_id in ids:
        _ask("DELETE", _path("faults", fault_id), None, fault_text)


# --- topics


@ctl.command()
@json_option
@control_options
def topics(as_json: bool) -> None:
    """List the topics with their numbers of partitions."""
    from kwire.control.ctl import topics_text

    _ask("GET", "/v1/topics", None, None if as_json else topics_text)


@ctl.command(epilog=example("kwire ctl partition orders 0"))
@click.argument("topic")
@click.argument("partition", type=_id)
@control_options
def partition(topic: str, partition: int) -> None:
    """Show a partition at the controller and at each replica, as JSON."""
    _ask("GET", _path("topics", topic, "partitions", str(partition)))


@ctl.command(epilog=example("kwire ctl elect orders 0 2"))
@click.argument("topic")
@click.argument("partition", type=_id)
@click.argument("leader", required=False, type=_id)
@click.option("--unclean", is_flag=True, help="Also a replica that is not in the ISR.")
@control_options
def elect(topic: str, partition: int, leader: int | None, unclean: bool) -> None:
    """Elect the preferred leader of a partition, or this one; returns when it leads."""
    from kwire.control.ctl import partition_text

    body: dict[str, Any] = {"topic": topic, "partition": partition}
    if leader is not None:
        body["leader"] = leader
    if unclean:
        body["unclean"] = True
    _ask("POST", "/v1/elections", body, partition_text)


@ctl.command(epilog=example("kwire ctl compact orders"))
@click.argument("topic")
@control_options
def compact(topic: str) -> None:
    """Compact a topic now, on all replicas that run; returns when it is done."""
    _do("POST", _path("topics", topic, "compact"), {}, f"compacted {topic}")


@ctl.command(epilog=example("kwire ctl retention orders"))
@click.argument("topic", required=False)
@control_options
def retention(topic: str | None) -> None:
    """Apply retention now, to one topic or to all; returns when it is done."""
    _do("POST", "/v1/retention", {"topic": topic}, f"retention of {topic or 'all topics'}: done")


@ctl.command()
@click.option("--keep-clients", is_flag=True, help="Clients that are connected may go on.")
@control_options
def reset(keep_clients: bool) -> None:
    """Return to a new cluster: all nodes up, no cuts, no topics, no groups."""
    _do("POST", "/v1/reset", {"keep_clients": keep_clients or None}, "reset")


@ctl.command(epilog=example("kwire ctl events --topic orders"))
@click.option(
    "--name",
    metavar="EVENT",
    callback=known("event"),
    help="Of this name only, LEADER_ELECTED for example.",
)
@click.option("--topic", metavar="NAME", help="About this topic only.")
@click.option("--broker", type=_id, help="About this broker only.")
@click.option("-f", "--follow", is_flag=True, help="Go on with the events that come.")
@json_option
@control_options
def events(
    name: str | None, topic: str | None, broker: int | None, follow: bool, as_json: bool
) -> None:
    """List what the nodes have reported: elections, ISR changes, faults, groups."""
    from kwire.control import ctl as work

    given = {"name": name, "topic": topic, "broker": broker}
    body = {key: value for key, value in given.items() if value is not None}
    if follow:
        ask_control("ctl", lambda url: work.follow_events(url, body, click.echo))
    to_text = None if as_json else lambda found: "\n".join(work.event_lines(found)) or "no events"
    _ask("GET", "/v1/events", body, to_text)


# --- clients


@ctl.command()
@click.option("--clear", is_flag=True, help="Drop those kept so far.")
@json_option
@control_options
def requests(clear: bool, as_json: bool) -> None:
    """List the last requests of clients (`kwire requests` selects some)."""
    from kwire.control.ctl import requests_text

    if clear:
        _do("DELETE", "/v1/requests", {}, "cleared")
    else:
        _ask("GET", "/v1/requests", None, requests_text(as_json=as_json))


@ctl.command()
@json_option
@control_options
def clients(as_json: bool) -> None:
    """List the open connections of clients."""
    from kwire.control.ctl import clients_text

    _ask("GET", "/v1/clients", None, None if as_json else clients_text)


@ctl.command()
@json_option
@control_options
def failures(as_json: bool) -> None:
    """Print the tracebacks of kwire's own errors."""
    from kwire.control.ctl import failures_text

    _ask("GET", "/v1/failures", None, None if as_json else failures_text)
