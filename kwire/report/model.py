"""The JSON model of a report: what happened in a cluster and how it stands, for the page and for others.

`report` puts a test and its clusters together; `describe` looks at one cluster. The page draws the
model as it is: which mark an event is, and in which lane, is decided here (`marks.py`, `spans.py`).

A cluster has: title, bootstrap, notes (what is not known, and why), failures, from_ms, to_ms, lanes,
spans, links, events, dropped, brokers, partitions, groups, requests. null: unknown.
"""

from __future__ import annotations

from contextlib import suppress

from kwire import __version__, errors
from kwire.report import state
from kwire.report.marks import NETWORK, TEST, kind_of, mark
from kwire.report.spans import Spans

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from kwire.aio import Cluster

    Json = dict[str, Any]

FORMAT = 1
MAX_EVENTS = 2000
MAX_CLIENT_LANES = 6
MAX_GROUP_LANES = 8
_OUTSIDE = (
    "This cluster was started elsewhere: its events cannot be seen from outside, only its partitions and groups"
    " as of the end."
)


def report(clusters: list[Json], test: Json | None = None) -> Json:
    """The model of a page. `test`: id, outcome, message, start_ms, end_ms, wait (seconds, text) or None."""
    return {
        "format": FORMAT,
        "kwire": __version__,
        "made_ms": state.now_ms(),
        "test": test,
        "clusters": clusters,
    }


async def describe(cluster: Cluster, since_ms: int = 0, test: Json | None = None) -> Json:
    """The model of one cluster: its events since `since_ms`, and how it stands."""
    return finish(await gather(cluster), since_ms, test)


def finish(gathered: Json, since_ms: int = 0, test: Json | None = None) -> Json:
    """The model of a cluster that `gather` has looked at."""
    found = dict(gathered)
    objects, nodes = found.pop("objects"), found.pop("nodes")
    requests = found["requests"] or []
    return found | draw(objects, nodes, requests, since_ms, state.now_ms(), test)


async def gather(cluster: Cluster) -> Json:
    """What a cluster says of itself now, for `finish`."""
    history = None if cluster.external else cluster.inside.events
    if history is not None:
        await history.collect()
    nodes = [] if cluster.external or not cluster.started else state.nodes(cluster)
    found: Json = {
        "title": _title(cluster, nodes),
        "bootstrap": cluster.bootstrap_servers if cluster.started else "",
        "notes": [_OUTSIDE] if cluster.external else [],
        "failures": [],
        "brokers": [each for each in nodes if each["kind"] == "broker"],
        "requests": await state.requests(cluster),
        "dropped": 0 if history is None else history.dropped,
    }
    with suppress(errors.KwireError):
        found["failures"] = await cluster.failures()
    if not cluster.started:
        found["notes"].append("The cluster is stopped: replicas and groups are not known any more.")
    found |= await state.partitions(cluster)
    found["groups"] = await state.groups(cluster)
    found["transactions"] = await state.transactions(cluster)
    if cluster.external:
        found["brokers"] = state.brokers_outside(found["partitions"])
    found["objects"] = [] if history is None else history.objects()
    found["nodes"] = nodes
    return found


# --- the timeline


def draw(
    objects: list[Json],
    nodes: list[Json],
    requests: list[Json],
    since_ms: int,
    now_ms: int,
    test: Json | None,
) -> Json:
    """Lanes, spans, links and events of a timeline. `objects`: all events, in the order of time."""
    names = {each["id"]: f"{each['kind']} {each['id']}" for each in nodes}
    objects = _until_last_reset(objects, since_ms)
    shown = [each for each in objects if each["time_ms"] >= since_ms]
    count = len(shown)
    if count > MAX_EVENTS:
        shown = [each for each in shown if kind_of(each) != "detail"][-MAX_EVENTS:]
    left_out = count - len(shown)
    marks = [mark(each, names.get(each["node"], "cluster")) for each in shown]
    marks += _client_errors(requests, since_ms)
    marks.sort(key=lambda each: each["t"])
    times = [each["t"] for each in marks]
    if test is not None:
        times += [test["start_ms"], test["end_ms"]]
    from_ms, to_ms = (min(times), max(times)) if times else (now_ms, now_ms)
    spans, links = _spans(objects, nodes, from_ms)
    if test is not None:
        spans += _of_test(test)
    lanes = _lanes(nodes, marks, spans, test)
    known = {each["id"] for each in lanes}
    for each in marks:
        each["lanes"] = [lane if lane in known else _else(lane, known) for lane in each["lanes"]]
    return {
        "from_ms": from_ms,
        "to_ms": to_ms,
        "lanes": lanes,
        "spans": [each for each in spans if each["lane"] in known],
        "links": links,
        "events": marks,
        "left_out": left_out,
    }


def _until_last_reset(objects: list[Json], since_ms: int) -> list[Json]:
    """The events that matter from `since_ms` on: states of nodes may be older, but not than a reset."""
    resets = [
        number
        for number, each in enumerate(objects)
        if each["event"] == "RESET_REQUESTED" and each["time_ms"] <= since_ms
    ]
    return objects[resets[-1] :] if resets else objects


def _spans(objects: list[Json], nodes: list[Json], from_ms: int) -> tuple[list[Json], list[Json]]:
    first = min([from_ms, *(each["time_ms"] for each in objects[:1])])
    spans = Spans({str(each["id"]): each["kind"] for each in nodes}, first)
    for each in objects:
        spans.read(each)
    return tuple(  # type: ignore[return-value]  # two lists
        [
            {**each, "from": max(each["from"], from_ms)}
            for each in found
            if each["to"] is None or each["to"] > max(each["from"], from_ms)
        ]
        for found in (spans.spans, spans.links)
    )


def _of_test(test: Json) -> list[Json]:
    start_ms, end_ms = test["start_ms"], test["end_ms"]
    name = str(test["id"]).rpartition("::")[2]
    spans = [
        {
            "lane": TEST,
            "kind": "test",
            "from": start_ms,
            "to": end_ms,
            "label": name,
            "text": f"{test['id']}: {test['outcome']}",
        }
    ]
    wait = test.get("wait")
    if wait is not None:
        spans.append(
            {
                "lane": TEST,
                "kind": "wait",
                "from": max(start_ms, end_ms - round(wait["seconds"] * 1000)),
                "to": end_ms,
                "label": f"wait_for: {wait['text']}",
                "text": f"timed out after {wait['seconds']:g} s: {wait['text']}",
            }
        )
    return spans


def _node_lane(node: Json) -> Json:
    return {
        "id": str(node["id"]),
        "kind": node["kind"],
        "label": f"{node['kind']} {node['id']}",
        "sub": node["address"],
    }


def _lanes(
    nodes: list[Json], marks: list[Json], spans: list[Json], test: Json | None
) -> list[Json]:
    used = dict.fromkeys(lane for each in marks for lane in each["lanes"])
    used |= dict.fromkeys(each["lane"] for each in spans)
    lanes = [{"id": TEST, "kind": "test", "label": "test" if test else "cluster", "sub": ""}]
    lanes += [_node_lane(each) for each in nodes if each["kind"] == "controller"]
    if NETWORK in used:
        lanes.append({"id": NETWORK, "kind": "network", "label": "network", "sub": ""})
    lanes += [_node_lane(each) for each in nodes if each["kind"] == "broker"]
    for kind, most in (("group", MAX_GROUP_LANES), ("client", MAX_CLIENT_LANES)):
        own = [lane for lane in used if lane.startswith(f"{kind}:")]
        for lane in own[:most]:
            name = lane.removeprefix(f"{kind}:")
            lanes.append({"id": lane, "kind": kind, "label": f"{kind} {name}", "sub": ""})
        if len(own) > most:
            label = f"{len(own) - most} more {kind}s"
            lanes.append({"id": f"{kind}:", "kind": kind, "label": label, "sub": ""})
    return lanes


def _else(lane: str, known: set[str]) -> str:
    """The lane for what has none of its own."""
    rest = lane.partition(":")[0] + ":"
    return rest if rest in known else TEST


# --- what clients saw


def _client_errors(requests: list[Json], since_ms: int) -> list[Json]:
    """The first error of each client, API and kind."""
    seen: set[tuple[str, str, str]] = set()
    marks: list[Json] = []
    for each in requests:
        if each["t"] is None or each["t"] < since_ms or not each["error"]:
            continue
        client, api = each["client_id"], each["api"].partition(" v")[0]
        for name in state.errors_in(each["outcome"]) or ["closed"]:
            if (client, api, name) not in seen:
                seen.add((client, api, name))
                marks.append(
                    {
                        "n": -len(marks) - 1,
                        "t": each["t"],
                        "where": f"broker {each['broker']}",
                        "name": "first error",
                        "level": "warning",
                        "text": f"client {client or '?'}: {each['api']}: {each['outcome']}",
                        "kind": "client",
                        "lanes": [f"client:{client}"],
                        "label": f"{api} {name}",
                    }
                )
    return marks


def _title(cluster: Cluster, nodes: list[Json]) -> str:
    if cluster.external:
        return "a cluster that was started elsewhere"
    texts = []
    for kind in ("broker", "controller"):
        count = sum(each["kind"] == kind for each in nodes)
        if count:
            texts.append(f"{count} {kind}{'s' * (count != 1)}")
    return ", ".join(texts) or "a stopped cluster"
