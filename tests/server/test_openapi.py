"""The OpenAPI document: valid, of every route, and what each route of a real cluster answers is as it says."""

from __future__ import annotations

import asyncio
import http.client
import json
import subprocess
import sys
from collections.abc import Awaitable, Callable
from typing import Any

import confluent_kafka
import pytest
from openapi_checks import Checker
from openapi_spec_validator import validate

from kwire import aio, errors
from kwire.control.live.answers import Coming
from kwire.control.openapi.answers import ANSWERS, TEXTS
from kwire.control.openapi.document import operation_name
from kwire.control.openapi.schemas import SCHEMAS
from kwire.control.route import find_route
from kwire.control.routes import OF_CLUSTER, OF_NODES, cluster_handler, document_of_nodes
from kwire.control.socket import ControlSocket

pytestmark = pytest.mark.timeout(120)

Ask = Callable[..., Awaitable[tuple[int, Any]]]


def of_cluster() -> dict[str, Any]:
    (route,) = (each for each in OF_CLUSTER if each.path == "/v1/openapi.json")
    assert route.cluster is not None
    found: dict[str, Any] = asyncio.run(route.cluster(None))
    return found


def of_nodes() -> dict[str, Any]:
    return document_of_nodes(None)  # type: ignore[arg-type]  # it says the same of any


@pytest.mark.parametrize("document", [of_cluster, of_nodes])
def test_the_document_is_valid(document: Callable[[], dict[str, Any]]) -> None:
    found = document()
    validate(found)
    assert found["openapi"] == "3.1.0" and found == json.loads(json.dumps(found))


def test_every_route_is_in_it_with_an_answer_and_a_name_of_its_own() -> None:
    for routes, document in ((OF_CLUSTER, of_cluster()), (OF_NODES, of_nodes())):
        operations = [each for path in document["paths"].values() for each in path.values()]
        assert len(operations) == len(routes)
        assert len({each["operationId"] for each in operations}) == len(routes)
        for each in operations:
            assert each["summary"] and "Error" not in each["summary"], each
    functions = [
        function
        for route in (*OF_CLUSTER, *OF_NODES)
        for function in (route.cluster, route.nodes, route.broker, route.controller)
    ]
    assert {each for each in functions if each is not None} == {*ANSWERS, *TEXTS}
    used = {*of_cluster()["components"]["schemas"], *of_nodes()["components"]["schemas"]}
    assert used == set(SCHEMAS)


def test_names_of_operations() -> None:
    names = {f"{route.method} {route.path}": operation_name(route) for route in OF_CLUSTER}
    assert names["GET /v1/topics/{topic}/partitions/{n:int}"] == "getTopicPartition"
    assert (
        names["POST /v1/brokers/{id:int}/{verb:kill|stop|start|pause|resume}"] == "postBrokerVerb"
    )
    assert names["GET /v1"] == "getIndex"


def test_it_is_imported_when_it_is_asked_for() -> None:
    code = """
import sys
import kwire.control.http, kwire.control.routes
print([name for name in sys.modules if "openapi" in name])
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=30, check=True
    )
    assert done.stdout == "[]\n"


# --- answers of a cluster


class Conversation:
    """Asks a cluster over HTTP, and checks each answer."""

    def __init__(self, url: str, checker: Checker) -> None:
        host, _, port = url.rpartition("/")[2].rpartition(":")
        self.address = host, int(port)
        self.checker = checker

    async def ask(self, request: str, body: Any = None, expected: int = 200) -> Any:
        method, _, path = request.partition(" ")
        route, _ = find_route(OF_CLUSTER, method, path.partition("?")[0])
        if body is not None and expected == 200:
            self.checker.check_body(method, route.path, body)
        status, answer = await asyncio.to_thread(self._ask, method, path, body)
        assert status == expected, (request, answer)
        self.checker.check_answer(method, route.path, status, answer)
        return answer

    def _ask(self, method: str, path: str, body: Any) -> tuple[int, Any]:
        connection = http.client.HTTPConnection(*self.address, timeout=30)
        connection.request(method, path, None if body is None else json.dumps(body))
        response = connection.getresponse()
        text = response.read().decode()
        is_json = response.getheader("Content-Type") == "application/json"
        found = response.status, json.loads(text) if is_json else text
        connection.close()
        return found


class Clients:
    """A member of a group, and a producer in the middle of a transaction."""

    def __init__(self, bootstrap: str) -> None:
        common = {"bootstrap.servers": bootstrap, "log_level": 0}
        self.producer = confluent_kafka.Producer(
            {**common, "transactional.id": "payments", "client.id": "payer"}
        )
        self.consumer = confluent_kafka.Consumer(
            {**common, "group.id": "shop", "client.id": "till", "group.instance.id": "till-1"}
            | {"auto.offset.reset": "earliest", "enable.auto.commit": False}
        )

    def begin(self) -> None:
        self.producer.init_transactions(20)
        self.producer.begin_transaction()
        self.producer.produce("t", b"paid", partition=0)
        self.producer.flush(20)

    def join(self) -> None:
        self.consumer.subscribe(["t"])
        message = None
        while message is None:
            message = self.consumer.poll(1)
        self.consumer.commit(message, asynchronous=False)

    def close(self) -> None:
        self.consumer.close()


async def ask_about_nodes(talk: Conversation) -> None:
    ask = talk.ask
    for path in ("/", "/v1", "/v1/openapi.json", "/metrics", "/healthz", "/v1/cluster"):
        await ask(f"GET {path}")
    await ask("POST /v1/network/cuts", {"a": 1, "b": [1000]})
    await ask("POST /v1/network/cuts", {"a": 2, "b": 3, "one_way": True})
    delay = {"a": [2], "b": 3, "milliseconds": 1.5, "one_way": True}
    await ask("POST /v1/network/delays", delay)
    await ask("GET /v1/network")
    await ask("GET /v1/live")
    await ask("DELETE /v1/network/delays?a=2&b=3")
    await ask("DELETE /v1/network/cuts?a=1,1000")
    await ask("POST /v1/controllers/1000/start")
    for node in (1, 2, 1000):
        await ask(f"GET /v1/nodes/{node}/status")


async def ask_about_topics(talk: Conversation) -> None:
    ask = talk.ask
    await ask(
        "POST /v1/topics",
        {"name": "t", "assignment": [[1, 2, 3]], "config": {"retention.ms": 10**9}},
    )
    compacted = {"cleanup.policy": "compact"}
    await ask(
        "POST /v1/topics",
        {"name": "u", "partitions": 2, "replication_factor": 1, "config": compacted},
    )
    record = {"key": "k", "value": {"base64": "AP8="}, "headers": [{"name": "h", "value": "v"}]}
    await ask("POST /v1/topics/t/records", record)
    await ask(
        "GET /v1/topics/t/records?partition=0&limit=10&max_bytes=99&start=0&end=9&encoding=text"
    )
    await ask("GET /v1/topics?internal=true")
    await ask("GET /v1/topics/t")
    await ask("GET /v1/topics/t/partitions")
    await ask("GET /v1/topics/t/partitions/0")
    await ask("POST /v1/topics/u/compact")
    await ask("POST /v1/retention", {"topic": "t"})
    await ask("POST /v1/elections", {"topic": "t", "partition": 0, "leader": 2, "unclean": False})
    await ask("POST /v1/brokers/3/kill")
    await ask("GET /v1/topics/t/partitions/0")
    await ask("GET /v1/report")
    await ask("POST /v1/brokers/3/start")
    await ask("DELETE /v1/topics/u")


async def ask_about_clients(talk: Conversation, clients: Clients) -> None:
    ask = talk.ask
    fault = {"api": "Produce", "client_id": "payer", "delay": 0.001, "probability": 1, "seed": 7}
    fault_id = (await ask("POST /v1/faults", fault))["id"]
    await asyncio.to_thread(clients.join)
    await asyncio.to_thread(clients.begin)
    await ask("GET /v1/faults")
    await ask("GET /v1/live")
    await ask(f"GET /v1/faults/{fault_id}")
    await ask(f"DELETE /v1/faults/{fault_id}")
    await ask("DELETE /v1/faults")
    disk = {"operation": "append", "topic": "t", "partition": 0, "milliseconds": 1.5}
    fault_id = (await ask("POST /v1/nodes/1/disk/slow", disk))["id"]
    await ask("GET /v1/disks")
    await ask("GET /v1/live")
    await ask(f"DELETE /v1/disks/{fault_id}")
    await ask("POST /v1/nodes/1/disk/fail", {"operation": "delete", "error": "EIO", "times": 1})
    await ask("DELETE /v1/nodes/1/disk")
    await ask("DELETE /v1/disks")
    await ask("GET /v1/groups")
    await ask("GET /v1/groups/shop")
    assert (await ask("GET /v1/groups/shap"))["similar"] == "shop"
    await ask("GET /v1/transactions")
    assert (await ask("GET /v1/transactions/payment"))["similar"] == "payments"
    await ask("GET /v1/clients")
    await ask("GET /v1/requests?api=Produce&client_id=payer")
    await ask("GET /v1/report")
    await ask("POST /v1/transactions/payments/fence")
    await ask("GET /v1/transactions/payments")
    await asyncio.to_thread(clients.close)
    await ask("DELETE /v1/requests")


async def ask_about_time(talk: Conversation) -> None:
    ask = talk.ask
    await ask("POST /v1/snapshots", {"name": "base"})
    await ask("GET /v1/snapshots")
    await ask("GET /v1/snapshots/base")
    await ask("POST /v1/snapshots/base/restore")
    await ask("DELETE /v1/snapshots/base")
    await ask("POST /v1/clock", {"minutes": 1, "milliseconds": 0.5})
    await ask("GET /v1/clock")
    await ask("POST /v1/clock/freeze")
    await ask("GET /v1/live")
    await ask("POST /v1/clock/resume")
    await ask("GET /v1/events?since=0")
    await ask("GET /v1/failures")
    await ask("POST /v1/reset", {"keep_clients": True})


REFUSED = (
    ("GET /v1/topics?x=1", None, 400),
    ("GET /v1/nodes/7/status", None, 404),
    ("POST /v1/brokers/9/kill", None, 404),
    ("GET /v1/topics/nope", None, 404),
    ("POST /v1/topics", {"name": "a/b"}, 409),
    ("POST /v1/topics", {"name": "a", "partitions": "1"}, 400),
    ("GET /v1/topics/nope/records", None, 404),
    ("POST /v1/topics/nope/compact", None, 404),
    ("POST /v1/elections", {"topic": "t", "partition": 9}, 404),
    ("POST /v1/transactions/nobodys/fence", None, 409),
    ("POST /v1/network/cuts", {"a": 1, "b": 99}, 404),
    ("POST /v1/faults", {"api": "Produce"}, 400),
    ("DELETE /v1/faults/none", None, 404),
    ("POST /v1/nodes/9/disk/full", {}, 404),
    ("POST /v1/nodes/1/disk/fail", {}, 400),
    ("DELETE /v1/disks/none", None, 404),
    ("GET /v1/snapshots/none", None, 404),
    ("GET /v1/snapshots/..%2F..", None, 400),
    ("POST /v1/clock", {}, 400),
    ("GET /v1/events?name=NO_SUCH", None, 400),
    ("POST /v1/topics", {"name": "x" * 70_000}, 413),
)

RARE = {
    "BrokerStatus.failed",
    "BrokerStatus.truncations",
    "Cluster.controllers[].rack",
    "Failures.failures",
    "HostedPartition.lag",
    "HostedPartition.lag_ms",
    "HostedPartition.pending_isr",
    "Live.gone",
    "Live.offline",
    "Report.test",
    "ReportedCluster.failures",
    "ReportedCluster.notes",
    "ReportedCluster.partitions_error",
    "ReportedTransaction.similar",
}
"""What a cluster that is well has seldom; 0 and false count as something."""


def test_each_answer_of_a_cluster_is_as_the_document_says() -> None:
    checker = Checker(of_cluster())

    async def main() -> None:
        async with aio.Cluster(3, racks=["a", "b", "c"], recent_requests=True) as cluster:
            control = ControlSocket(lambda: cluster_handler(cluster))
            await control.open("127.0.0.1", 0)
            talk = Conversation(control.url, checker)
            await ask_about_nodes(talk)
            await ask_about_topics(talk)
            await ask_about_nodes(talk)
            await ask_about_clients(talk, Clients(cluster.bootstrap_servers))
            for request, body, status in REFUSED:
                await talk.ask(request, body, status)
            await ask_about_time(talk)
            await control.close()

    asyncio.run(main())
    operations = [each for path in checker.document["paths"].values() for each in path.values()]
    assert checker.operations == {each["operationId"] for each in operations}
    assert checker.parts() - checker.shown <= RARE


# --- answers of nodes

AT_BROKER: tuple[tuple[str, Any], ...] = (
    ("GET /", None),
    ("GET /v1", None),
    ("GET /v1/openapi.json", None),
    ("GET /healthz", None),
    ("GET /metrics", None),
    ("GET /v1/counts", None),
    ("GET /v1/cluster", None),
    ("GET /v1/topics/t/partitions/0/replica", None),
    ("POST /v1/topics/t/compact", None),
    ("GET /v1/topics/t/compact", None),
    ("POST /v1/retention", {"topic": "t"}),
    ("PUT /v1/network", {"rules": [{"to": 2, "delay_ms": 1}]}),
    ("GET /v1/network", None),
    ("PUT /v1/network", {"commands": ["delay 2 1"]}),
    ("DELETE /v1/network/cuts", None),
    ("POST /v1/network/cuts", {"a": 1, "b": [2]}),
    ("POST /v1/network/delays", {"a": 1, "b": 2, "milliseconds": 1}),
    ("DELETE /v1/network/delays?a=1&b=2", None),
    ("PUT /v1/faults/mine", {"api": "Metadata", "close": True, "times": 1}),
    ("POST /v1/faults", {"api": "Produce", "error": 7, "topic": "t"}),
    ("GET /v1/faults", None),
    ("GET /v1/faults/mine", None),
    ("DELETE /v1/faults/mine", None),
    ("DELETE /v1/faults", None),
    ("PUT /v1/disks", {"faults": {"mine": {"act": "fail", "operation": "delete"}}}),
    ("GET /v1/disks", None),
    ("PUT /v1/disks", {"faults": {}}),
    ("POST /v1/clock", {"milliseconds": 1}),
    ("GET /v1/clock", None),
    ("PUT /v1/clock", {"verb": "look"}),
    ("POST /v1/files/hold", None),
    ("POST /v1/files/release", {"resume": True}),
    ("GET /v1/clients", None),
    ("GET /v1/requests", None),
    ("DELETE /v1/requests", None),
    ("POST /v1/leftovers", None),
    ("GET /v1/leftovers", None),
    ("GET /v1/events", None),
    ("GET /v1/changes?since=0&events=0&more=true", None),
    ("GET /v1/status", None),
    ("POST /v1/failures", {"text": "as asked for"}),
    ("GET /v1/failures", None),
)
AT_CONTROLLER: tuple[tuple[str, Any], ...] = (
    ("GET /v1/cluster", None),
    ("GET /v1/topics?internal=true", None),
    ("GET /v1/topics/t/partitions/0", None),
    ("POST /v1/elections", {"topic": "t", "partition": 0, "leader": 2}),
    ("GET /v1/changes", None),
    ("GET /v1/brokers", None),
    ("GET /v1/brokers/configured", None),
    ("POST /v1/brokers/fence", {"brokers": [7]}),
    ("GET /v1/status", None),
)


def test_each_answer_of_a_node_is_as_the_document_says() -> None:
    checker = Checker(of_nodes())
    ids = [
        each["operationId"] for path in checker.document["paths"].values() for each in path.values()
    ]

    async def main() -> None:
        async with aio.Cluster(2, recent_requests=True) as cluster:
            config = {"cleanup.policy": "compact"}
            await cluster.create_topic("t", replication_factor=2, config=config)
            for node, requests in ((1, AT_BROKER), (cluster.controller_id, AT_CONTROLLER)):
                handle: Any = cluster.node(node)
                for request, body in requests:
                    method, _, path = request.partition(" ")
                    route, _ = find_route(OF_NODES, method, path.partition("?")[0])
                    if body is not None:
                        checker.check_body(method, route.path, body)
                    answer = await handle.ask(method, path, body)
                    if isinstance(answer, Coming):
                        answer = (await answer.make()).body.decode()
                    checker.check_answer(method, route.path, 200, answer)

    with pytest.raises(errors.InternalError, match="as asked for"):  # at its end
        asyncio.run(main())
    assert checker.operations == set(ids)
