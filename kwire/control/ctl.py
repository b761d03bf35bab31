"""`kwire ctl` and `kwire requests`: requests to a control API, and their answers as text."""

from __future__ import annotations

import json
import time

from kwire.control.client import call
from kwire.control.errors import ControlError
from kwire.server.errors import NodeError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, NoReturn

    ToText = Callable[[Any], str]

_FOLLOW_SECONDS = 0.2
_NO_RULES = "no cuts or delays"


def url_in(ready_file: str) -> str:
    """The URL of the control API in the file of `kwire up --ready-file`. NodeError."""
    try:
        with open(ready_file, encoding="utf-8") as file:
            url = json.load(file)["control"]
    except OSError as error:
        raise NodeError(f"{ready_file}: {error.strerror}") from None
    except (ValueError, KeyError, TypeError):
        raise NodeError(f"{ready_file} is no ready file of kwire up") from None
    if url is None:
        raise NodeError(
            f"{ready_file}: this kwire up has no control API: start it with --control-port"
        )
    return str(url)


def ask(
    url: str,
    method: str,
    path: str,
    body: dict[str, Any] | None = None,
    to_text: ToText | None = None,
) -> str:
    """Send a request; return the answer as text, JSON without `to_text`. NodeError."""
    try:
        found = call(url, method, path, body)
        return json.dumps(found, indent=1) if to_text is None else to_text(found)
    except ControlError as error:
        raise NodeError(str(error)) from None
    except (KeyError, TypeError, AttributeError):  # some other server's JSON
        raise NodeError(f"{url} is no control API of kwire") from None


def change_node(url: str, kind: str, node_id: int, verb: str) -> str:
    """Start, stop, kill, pause or resume (`verb`) a node; return a line about its new state.

    `kind`: "broker", "controller", or "" to look it up."""
    if not kind:
        kind = kind_of(url, node_id)
    path = f"/v1/{kind}s/{node_id}/{verb}"
    return ask(url, "POST", path, to_text=lambda found: _node_line(kind, found))


def kind_of(url: str, node_id: int) -> str:
    """Whether a node is a "broker" or a "controller"."""

    def kind(found: Any) -> str:
        ids = [each["id"] for each in found["controllers"]]
        return "controller" if node_id in ids else "broker"

    return ask(url, "GET", "/v1/cluster", to_text=kind)


def status_text(found: Any) -> str:
    """A line for each node: kind, id, address, state."""
    return "\n".join(node_lines(found))


def node_lines(found: Any) -> list[str]:
    """The lines of `status_text`, from the answer of /v1/cluster."""
    lines = [_node_line("controller", each) for each in found["controllers"]]
    return lines + [_node_line("broker", each) for each in found["brokers"]]


def _node_line(kind: str, node: dict[str, Any]) -> str:
    state = "paused" if node["paused"] else "running" if node["running"] else "down"
    more = " active" if node.get("active") else f" rack {node['rack']}" if node.get("rack") else ""
    return f"{kind} {node['id']} {node['address']} {state}{more}"


def partition_text(found: Any) -> str:
    """A partition in one line."""
    isr = ",".join(map(str, found["isr"]))
    leader = "none" if found["leader"] < 0 else found["leader"]
    name = f"{found['topic']}-{found['partition']}"
    return f"{name} leader {leader} epoch {found['leader_epoch']} isr {isr}"


def topics_text(found: Any) -> str:
    """A line for each topic: its name and its number of partitions."""
    return "\n".join(f"{name} {count}" for name, count in found["topics"].items()) or "no topics"


def network_text(found: Any) -> str:
    """A line for each cut and delay: the ids of both nodes; of a container only the other's."""
    if "rules" in found:
        rules = [(rule["to"], rule["delay_ms"]) for rule in found["rules"]]
        lines = [f"cut {to}" if ms is None else f"delay {to} {ms:g}" for to, ms in rules]
    else:
        lines = [f"cut {c['a']} {c['b']}{_way(c)}" for c in found["cuts"]]
        lines += [
            f"delay {d['a']} {d['b']} {d['milliseconds']:g}{_way(d)}" for d in found["delays"]
        ]
    return "\n".join(lines) or _NO_RULES


def _way(rule: dict[str, Any]) -> str:
    return " --one-way" if rule.get("one_way") else ""


def healed_text(found: Any) -> str:
    """A line for each cut and delay that was removed."""
    nothing = "nothing to heal"
    text = network_text(found)
    return nothing if text == _NO_RULES else "\n".join(f"healed {x}" for x in text.split("\n"))


def fault_text(found: Any) -> str:
    """A fault in one line: its id, what it does, how many requests it has hit."""
    from kwire.faults.rules import text_of

    hits = found["hits"]
    return f"{found['id']}  {text_of(found['rule'])}; {hits or 'no'} request{'s' * (hits != 1)} hit"


def faults_text(found: Any) -> str:
    """A line for each fault."""
    return "\n".join(map(fault_text, found["faults"])) or "no faults"


def disks_text(found: Any) -> str:
    """A line for each fault of a disk: its id, whose disk, what it does, how many operations it has hit."""
    from kwire.server.disks.rules import text_of

    return (
        "\n".join(
            f"{each['id']}  node {each['node']}: {text_of(each['rule'])};"
            f" {each['hits'] or 'no'} operation{'s' * (each['hits'] != 1)} hit"
            for each in found["faults"]
        )
        or "no faults of disks"
    )


def clock_text(found: Any) -> str:
    """The time of the nodes, and how far it is off real time."""
    from datetime import UTC, datetime

    from kwire.advance.amounts import beside_real_time

    now = datetime.fromtimestamp(found["now_ms"] / 1000, UTC).isoformat(timespec="milliseconds")
    offset_ms = found["offset_ms"]
    off = f"  {beside_real_time(offset_ms)}" if offset_ms else ""
    return f"{now}{off}{'  frozen' if found['frozen'] else ''}"


def save_snapshot(url: str, name: str | None, target: str | None, *, as_json: bool) -> str:
    """Save a snapshot, and copy it to a directory; return a line about it, or JSON. NodeError."""
    body = {} if name is None else {"name": name}
    found = json.loads(ask(url, "POST", "/v1/snapshots", body, json.dumps))
    if target is not None:
        from kwire import errors
        from kwire.snapshots import saved

        try:
            found = saved.copy(saved.read(found["path"]), target).to_json()
        except OSError as error:
            raise NodeError(f"snapshot {found['name']}: {error}") from None
        except errors.ClusterStateError:
            text = f"snapshot {found['name']} is saved, but not on this machine: {found['path']}"
            raise NodeError(text) from None
    return json.dumps(found, indent=1) if as_json else _snapshot_line(found)


def snapshot_path(name: str, rest: str = "") -> str:
    """The path of a snapshot in the control API."""
    from urllib.parse import quote

    return f"/v1/snapshots/{quote(name, safe='')}{rest}"


def snapshots_text(found: Any) -> str:
    """A line for each snapshot."""
    return "\n".join(map(_snapshot_line, found["snapshots"])) or "no snapshots"


def _snapshot_line(found: dict[str, Any]) -> str:
    size = f"{found['size_bytes'] / 1e6:.1f} MB"
    return f"{found['name']}  {found['brokers']} broker(s), {size}, {found['path']}"


def clients_text(found: Any) -> str:
    """A line for each connection of a client."""
    from kwire.client.views import Client

    return "\n".join(str(Client(**each)) for each in found["clients"]) or "no clients"


def failures_text(found: Any) -> str:
    """The tracebacks of kwire's own errors."""
    return "\n".join(found["failures"]) or "no failures"


def event_lines(found: Any) -> list[str]:
    """Lines of the events in an answer of /v1/events: local time, node, sentence."""
    return [
        f"{_clock_text(each['time_ms'])}  {_node_text(each['node'])}  {each['message']}"
        for each in found["events"]
    ]


def follow_events(url: str, body: dict[str, Any], write: Callable[[str], object]) -> NoReturn:
    """Write the events that match, then those that come."""
    while True:
        found = ask(url, "GET", "/v1/events", body, to_text=json.dumps)
        events = json.loads(found)
        for line in event_lines(events):
            write(line)
        if events["events"]:
            last = max(each["number"] for each in events["events"])  # they are in the order of time
            body = {**body, "since": last}
        time.sleep(_FOLLOW_SECONDS)


def _clock_text(time_ms: int) -> str:
    return f"{time.strftime('%H:%M:%S', time.localtime(time_ms / 1000))}.{time_ms % 1000:03d}"


def _node_text(node: int | None) -> str:
    return "cluster" if node is None else f"node {node}"


def requests_text(
    *,
    api: str | None = None,
    client_id: str | None = None,
    broker: int | None = None,
    as_json: bool = False,
) -> ToText:
    """Makes a line for each request that matches: age, broker, client, API, outcome; or JSON."""

    def to_text(found: Any) -> str:
        some = [each for each in found["requests"] if _matches(each, api, client_id, broker)]
        if as_json:
            return json.dumps({"requests": some}, indent=1)
        return "\n".join(request_lines(some)) or "no requests"

    return to_text


def request_lines(requests: list[dict[str, Any]]) -> list[str]:
    """Lines of the requests in an answer of /v1/requests."""
    from kwire.recent import format_requests, from_objects

    of_brokers = {
        number: from_objects({"requests": [each for each in requests if each["broker"] == number]})
        for number in sorted({each["broker"] for each in requests})
    }
    return format_requests(of_brokers)


def _matches(request: Any, api: str | None, client_id: str | None, broker: int | None) -> bool:
    name = request["api"].rpartition(" v")[0] or request["api"]
    return (
        (api is None or name.lower() == api.lower())
        and (client_id is None or request["client_id"] == client_id)
        and (broker is None or request["broker"] == broker)
    )
