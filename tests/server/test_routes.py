"""The table of the control API: its rows, the documentation, and requests that fit none."""

from __future__ import annotations

import asyncio
import inspect
import json
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kwire import aio, errors
from kwire.client.retries import repeat
from kwire.client.transactions import init_producer_id
from kwire.control.errors import ControlError, error_of
from kwire.control.lines import answer_line, answer_of, request_line
from kwire.control.node_api import NodeControl
from kwire.control.openapi.answers import TEXTS
from kwire.control.route import Route, find_route, partition_path
from kwire.control.routes import OF_CLUSTER, OF_NODES, ROUTES, ask_cluster
from kwire.protocol.errors import ErrorCode, KafkaError

DOCS = Path(__file__).parent.parent.parent / "docs" / "control.md"
IDS = [f"{route.method} {route.path}" for route in ROUTES]


# --- the rows


def test_a_request_has_one_row() -> None:
    assert len(set(IDS)) == len(IDS)
    assert set(ROUTES) == {*OF_CLUSTER, *OF_NODES}


@pytest.mark.parametrize("route", ROUTES, ids=IDS)
def test_functions_take_what_their_row_gives(route: Route) -> None:
    values = route.path.count("{") + len(route.fields)
    functions = [route.cluster, route.nodes, route.broker, route.controller]
    given = [function for function in functions if function is not None]
    assert given and [route.nodes, route.broker, route.controller].count(None) >= 2
    for function in given:
        parameters = inspect.signature(function).parameters.values()
        if not any(each.kind is each.VAR_POSITIONAL for each in parameters):
            assert len(parameters) == values + 1, function
        assert inspect.iscoroutinefunction(function) == (function is route.cluster), function


def documented() -> dict[str, dict[tuple[str, str], list[str]]]:
    """The names of the fields in the body, by heading, method and path."""
    found: dict[str, dict[tuple[str, str], list[str]]] = {}
    heading = ""
    for line in DOCS.read_text().splitlines():
        if line.startswith("## "):
            heading = line.removeprefix("## ")
        if not line.startswith("| `"):
            continue
        requests, body, _ = re.split(r"(?<!\\)\|", line)[1:4]
        method = path = ""
        for text in re.findall(r"`([^`]*)`", requests.replace("\\|", "|")):
            if text.startswith("/"):
                path = text
            else:
                method, _, other = text.partition(" ")
                path = other or path
            found.setdefault(heading, {})[method, path] = re.findall(r"`(\w+)`", body)
    return found


def rows(routes: tuple[Route, ...]) -> dict[tuple[str, str], list[str]]:
    found = {}
    for route in routes:
        path = re.sub(r"{\w+:(\w+\|[\w|]+)}", r"{\1}", route.path).replace(":int}", "}")
        found[route.method, path] = [name for name, _, _ in route.fields]
    return found


def test_the_documentation_lists_every_route() -> None:
    found = documented()
    assert found["Paths"] == rows(OF_CLUSTER)
    assert found["In a container"] == rows(OF_NODES)


# --- finding a route, checking its values

TABLE = (
    Route("GET", "/v1/t/{topic}/p/{n:int}"),
    Route("POST", "/v1/{verb:kill|stop}", "x:text", "ids:ids?", "f:bool?", "m:number?", "l:list?"),
    Route("DELETE", "/v1/{verb:kill|stop}"),
)


@pytest.mark.parametrize("topic", ["orders", "", "a/b", "a%2Fb", "ü", ".", "..", "a b", "|", "?"])
@pytest.mark.parametrize("index", [0, -1, 10**30])
def test_whatever_a_topic_is_called_it_is_one_item_of_a_path(topic: str, index: int) -> None:
    path = partition_path(topic, index)
    route, items = find_route(OF_NODES, "GET", path)
    assert route.values(items, {}) == [topic, index]
    route, items = find_route(OF_NODES, "GET", f"{path}/replica")
    assert route.broker is not None and route.values(items, {}) == [topic, index]


@pytest.mark.parametrize(
    ("method", "path", "status", "allow"),
    [
        ("GET", "/v1/t/a/p", 404, ()),
        ("GET", "/v1/t/a/q/1", 404, ()),
        ("GET", "/", 404, ()),
        ("GET", "*", 404, ()),
        ("POST", "/v1/dance", 404, ()),
        ("POST", "/v1/kill%7Cstop", 404, ()),
        ("POST", "/v1/t/a/p/x", 405, ("GET",)),
        ("GET", "/v1/kill", 405, ("DELETE", "POST")),
        ("get", "/v1/t/a/p/1", 405, ("GET",)),
    ],
)
def test_a_request_without_a_row(
    method: str, path: str, status: int, allow: tuple[str, ...]
) -> None:
    with pytest.raises(ControlError, match=f"there is no {re.escape(method)} ") as refused:
        find_route(TABLE, method, path)
    assert (refused.value.status, refused.value.allow) == (status, allow)


@pytest.mark.parametrize("number", ["x", "", "1.0", "-", "--1", "٣", "1_0", " 1", "9" * 5000])
def test_numbers_in_a_path(number: str) -> None:
    with pytest.raises(ControlError, match="expected a number") as refused:
        TABLE[0].values(["v1", "t", "a", "p", number], {})
    assert refused.value.status == 400


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({}, "x: missing"),
        ({"x": None}, "x: expected a text, not None"),
        ({"x": 1}, "x: expected a text, not 1"),
        ({"x": "a", "y": 1}, "expected x, ids, f, m, l, not 'y'"),
        ({"x": "a", "ids": "1"}, "ids: expected ids of nodes, not '1'"),
        ({"x": "a", "ids": [1, -1]}, "ids: expected ids of nodes"),
        ({"x": "a", "ids": [True]}, "ids: expected ids of nodes"),
        ({"x": "a", "f": 0}, "f: expected true or false, not 0"),
        ({"x": "a", "m": True}, "m: expected a number, not True"),
        ({"x": "a", "l": {}}, "l: expected a list, not {}"),
    ],
)
def test_fields_of_a_wrong_kind(body: dict[str, Any], said: str) -> None:
    with pytest.raises(ControlError, match=re.escape(said)) as refused:
        TABLE[1].values(["v1", "kill"], body)
    assert refused.value.status == 400


def test_fields_come_in_the_order_of_the_row() -> None:
    body = {"l": [1], "ids": 3, "x": "a", "m": 0.5}
    assert TABLE[1].values(["v1", "stop"], body) == ["stop", "a", 3, None, 0.5, [1]]


# --- errors


@pytest.mark.parametrize(
    ("error", "status", "name"),
    [
        (errors.ConfigurationError("no"), 400, "INVALID_CONFIG"),
        (errors.refused("UNKNOWN_TOPIC_OR_PARTITION", "no"), 404, "UNKNOWN_TOPIC_OR_PARTITION"),
        (errors.refused("TOPIC_ALREADY_EXISTS", "no"), 409, "TOPIC_ALREADY_EXISTS"),
        (errors.ClusterStateError("no"), 409, None),
        (errors.NotSupportedError("no"), 409, None),
        (errors.BrokerNotAvailableError("no", "NOT_CONTROLLER"), 503, "NOT_CONTROLLER"),
        (errors.WaitTimeoutError("no"), 504, "REQUEST_TIMED_OUT"),
        (errors.StartError("no"), 500, None),
        (KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "no"), 404, "UNKNOWN_TOPIC_OR_PARTITION"),
        (KafkaError(ErrorCode.NOT_CONTROLLER), 409, "NOT_CONTROLLER"),
        (ControlError(405, "no", allow=("GET",)), 405, None),
    ],
)
def test_every_error_has_its_status_and_kafkas_name(
    error: Exception, status: int, name: str | None
) -> None:
    found = error_of(error, "GET /")
    assert (found.status, found.kafka_error) == (status, name)
    assert found.to_json() == {"error": name, "message": str(found)}
    back = ControlError.from_json(status, json.loads(json.dumps(found.to_json())))
    assert (back.status, back.kafka_error, str(back)) == (status, name, str(found))


def test_an_error_of_kwires_own_is_told_with_its_request() -> None:
    found = error_of(ZeroDivisionError("by zero"), "GET /v1/x")
    text = "internal error; please report it: GET /v1/x: ZeroDivisionError: by zero"
    assert (found.status, str(found)) == (500, text)


# --- lines on stdin


def broken() -> NodeControl:
    """Its node has no core: every question about that is an error of kwire's own."""
    node = SimpleNamespace(node_id=1, is_controller=False, node=SimpleNamespace())
    return NodeControl(lambda: [node], [])  # type: ignore[list-item]


@pytest.mark.parametrize(
    ("line", "status", "said"),
    [
        ("", 400, "the line is no JSON"),
        ("{", 400, "the line is no JSON"),
        ("[" * 100_000, 400, "the line is no JSON"),
        ("[]", 400, "expected "),
        ('{"method": "GET", "path": "/healthz"}', 400, "expected "),
        ('{"method": "GET", "path": 1, "body": {}}', 400, "expected "),
        (request_line("GET", "/v1/nothing", None), 404, "there is no GET /v1/nothing"),
        (request_line("PUT", "/healthz", None), 405, "there is no PUT /healthz, but GET"),
        (request_line("GET", "/v1/failures", None), 500, "GET /v1/failures: AttributeError: "),
        (request_line("PUT", "/v1/network", {"rules": [1]}), 400, "not understood: 1"),
    ],
)
def test_whatever_a_line_is_it_is_answered(line: str, status: int, said: str) -> None:
    answer = answer_line(broken(), line)
    assert "\n" not in answer
    with pytest.raises(ControlError, match=re.escape(said)) as refused:
        answer_of(answer)
    assert refused.value.status == status


def test_a_line_and_its_answer() -> None:
    answer = answer_line(broken(), request_line("GET", "/healthz", None))
    assert answer_of(answer) == {"status": "ok"}


# --- in process and over stdin


QUESTIONS = [
    (route.method, path)
    for route in OF_NODES
    for path in [route.path.replace("{topic}", "t").replace("{n:int}", "0")]
    if route.method == "GET" and route.nodes not in TEXTS
]


def shape(value: Any) -> Any:
    """The keys and types of an answer, without its values."""
    if isinstance(value, dict):
        return {key: shape(each) for key, each in value.items()}
    if isinstance(value, list):
        return [shape(each) for each in value[:1]]
    return type(value).__name__


@pytest.mark.timeout(60)
def test_a_node_answers_the_same_in_process_and_over_stdin() -> None:
    """What a function returns is JSON already: dicts with texts as keys, lists, no tuples."""

    async def answers(isolation: str) -> dict[str, Any]:
        found: dict[str, Any] = {}
        async with aio.Cluster(isolation=isolation, topics=["t"], recent_requests=True) as cluster:
            for node_id in (1, cluster.controller_id):
                for method, path in QUESTIONS:
                    handle: Any = cluster.node(node_id)
                    try:
                        answer = await handle.ask(method, path)
                    except KafkaError as error:
                        answer = {"error": error.code.name, "message": error.message}
                    assert answer == json.loads(json.dumps(answer))
                    found[f"{path} of {node_id}"] = shape(answer)
        return found

    in_process, over_stdin = asyncio.run(answers("thread")), asyncio.run(answers("process"))
    assert in_process == over_stdin
    assert in_process["/v1/brokers of 1"] == {"error": "str", "message": "str"}
    assert in_process["/v1/brokers of 1000"] == {"brokers": ["int"]}


def test_an_answer_is_not_the_nodes_own_state() -> None:
    """Who asks in process may keep and change what he got."""

    async def main() -> None:
        async with aio.Cluster(topics=["t"]) as cluster:
            handle: Any = cluster.node(cluster.controller_id)
            found = await handle.ask("GET", partition_path("t", 0))
            found["isr"].clear()
            found["replicas"].clear()
            assert (await handle.ask("GET", partition_path("t", 0)))["isr"] == [1]

    asyncio.run(main())


def test_a_cluster_in_process_loads_no_http_and_no_control_api_to_start() -> None:
    code = """
import asyncio, sys
from kwire import aio

def loaded():
    names = ("h11", "http.client", "kwire.control.http", "kwire.control.routes")
    return [name for name in names if name in sys.modules]

async def main():
    async with aio.Cluster(3) as cluster:
        print(loaded())
        await cluster.topics()
        print(loaded())

asyncio.run(main())
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=30, check=True
    )
    assert done.stdout == "[]\n['kwire.control.routes']\n"


def answers() -> dict[str, list[str]]:
    """The keys of the answer to each request, as docs/control.md lists them."""
    text = DOCS.read_text().partition("## Answers")[2].partition("## Errors")[0]
    found = {}
    for line in text.splitlines():
        if line.startswith("| `"):
            requests, keys, _ = re.split(r"(?<!\\)\|", line)[1:4]
            for request in re.findall(r"`([^`]*)`", requests):
                found[request] = sorted(re.findall(r"`(\w+)`", keys))
    return found


ASKED: dict[str, dict[str, Any]] = {
    "POST /v1/topics": {"name": "u"},
    "POST /v1/topics/{topic}/records": {"key": "k", "value": "v"},
    "POST /v1/elections": {"topic": "t", "partition": 0},
    "POST /v1/clock": {"seconds": 1},
    "POST /v1/faults": {"api": "Produce", "close": True},
    "POST /v1/nodes/{id}/disk/{act}": {"milliseconds": 1},
    "POST /v1/snapshots": {"name": "base"},
    "POST /v1/network/cuts": {"a": 1, "b": 1000},
    "POST /v1/network/delays": {"a": 1, "b": 1000, "milliseconds": 1},
}
VALUES = {
    "topic": "t",
    "n": "0",
    "group": "g",
    "transaction": "x",
    "verb": "start",
    "name": "base",
    "act": "slow",
}
AS = {"DELETE /v1/network/delays": "DELETE /v1/network/cuts"}


def test_the_documentation_has_the_keys_of_each_answer() -> None:
    """Every request of a cluster is asked; those whose answer is {} have no row."""

    async def main() -> None:
        listed, seen = answers(), set()
        compacted = {"cleanup.policy": "compact"}
        async with aio.Cluster(1, recent_requests=True) as cluster:
            await cluster.create_topic("t", config=compacted)
            admin = cluster.inside.admin
            for route in OF_CLUSTER:
                if route.cluster in TEXTS:
                    continue
                path = re.sub(r"{(\w+):[\w|]+}", r"{\1}", route.path)
                values = {**VALUES, "id": "1000" if "controllers" in path else "1"}
                if "faults" in path:
                    values["id"] = "fault-1"
                if "/disks/" in path:
                    values["id"] = "disk-1"
                row = f"{route.method} {path}".replace("/controllers/", "/brokers/")
                if row.endswith("/fence"):
                    await admin.run(repeat(lambda: init_producer_id(admin, "x", 60_000)))
                found = await ask_cluster(
                    cluster, route.method, path.format(**values), ASKED.get(row, {})
                )
                if row == "DELETE /v1/topics/{topic}":
                    await cluster.create_topic("t", config=compacted)
                assert sorted(found) == listed.get(AS.get(row, row), []), row
                seen.add(row)
        assert listed.keys() <= seen

    asyncio.run(main())
