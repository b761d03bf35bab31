"""The HTTP control API: of a cluster under its supervisor, of `kwire up` with `kwire ctl`, and of a container."""

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from cluster_harness import RunningCluster, running_cluster, until
from confluent_kafka import Consumer
from server_harness import kwire_up

from kwire.aio import Cluster
from kwire.control import ctl as control_ctl
from kwire.control import node_api
from kwire.control.errors import ControlError
from kwire.control.http import MAX_BODY_BYTES
from kwire.control.node_api import NodeControl, kept_rules
from kwire.control.routes import ask_cluster, ask_nodes, cluster_handler
from kwire.control.socket import ControlSocket
from kwire.server.errors import NodeError
from kwire.server.link_rules import LinkRule

pytestmark = pytest.mark.timeout(60)

SIZE = MAX_BODY_BYTES + 1
TOO_LARGE = b"Content-Length: %d\r\n\r\n" % SIZE + bytes(SIZE)


class Api:
    def __init__(self, url: str) -> None:
        self.url = url
        host, _, port = url.rpartition("/")[2].rpartition(":")
        self.address = host, int(port)

    def __call__(self, method: str, path: str, body: Any = None, **headers: str) -> Any:
        """The status and the answer."""
        connection = http.client.HTTPConnection(*self.address, timeout=20)
        text = body if isinstance(body, str | None) else json.dumps(body)
        connection.request(method, path, text, headers)
        response = connection.getresponse()
        found = response.status, json.loads(response.read())
        connection.close()
        return found

    def raw(self, data: bytes) -> bytes:
        """All that comes for these bytes until the connection ends."""
        with socket.create_connection(self.address, 5) as connection:
            connection.sendall(data)
            connection.shutdown(socket.SHUT_WR)
            found = b""
            while more := connection.recv(65536):
                found += more
            return found


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningCluster]:
    with running_cluster(tmp_path_factory.mktemp("data")) as running:
        yield running


@pytest.fixture(scope="module")
def api(cluster: RunningCluster) -> Iterator[Api]:
    control = ControlSocket(lambda: cluster_handler(Cluster.of(cluster.supervisor)))
    cluster.run(control.open("127.0.0.1", 0))
    yield Api(control.url)
    cluster.run(control.close())


@pytest.fixture(autouse=True)
def as_new(request: pytest.FixtureRequest) -> None:
    if "api" in request.fixturenames:
        assert request.getfixturevalue("api")("POST", "/v1/reset") == (200, {})


def test_nodes_are_listed_killed_and_started(api: Api, cluster: RunningCluster) -> None:
    status, found = api("GET", "/v1/cluster")
    assert status == 200 and found["bootstrap"] == cluster.bootstrap
    (controller,) = found["controllers"]
    assert controller["active"] and controller["id"] == 1000
    assert [each["id"] for each in found["brokers"]] == [1, 2, 3]
    status, state = api("POST", "/v1/brokers/2/kill")
    assert (status, state["id"], state["running"]) == (200, 2, False)
    assert api("GET", "/v1/cluster")[1]["brokers"][1] == state
    assert api("POST", "/v1/brokers/2/start")[1]["running"] is True
    assert api("POST", "/v1/brokers/3/pause")[1]["paused"] is True
    assert api("POST", "/v1/brokers/3/resume")[1]["paused"] is False
    assert api("POST", "/v1/brokers/3/stop")[1]["running"] is False
    assert api("POST", "/v1/brokers/3/start")[0] == 200
    assert api("POST", "/v1/controllers/1000/kill")[1]["running"] is False
    assert api("GET", "/v1/cluster")[1]["controllers"][0]["active"] is False
    assert api("GET", "/v1/topics")[0] == 503
    assert api("POST", "/v1/controllers/1000/start")[1]["running"] is True
    assert api("GET", "/v1/topics") == (200, {"topics": {}})


def test_a_verb_whose_state_is_there_already_is_done(api: Api, cluster: RunningCluster) -> None:
    """One rule: twice is as good as once. Refused: what the state of the node rules out."""
    for kind, node in (("broker", 2), ("controller", 1000)):
        path = f"/v1/{kind}s/{node}"
        for verb in ("start", "resume", "pause", "pause"):
            status, found = api("POST", f"{path}/{verb}")
            assert (status, found["running"], found["paused"]) == (200, True, verb == "pause")
        refusal = {"error": None, "message": f"{kind} {node} is paused: resume it"}
        assert api("POST", f"{path}/start") == (409, refusal)
        count = len(cluster_events(api))
        for verb in ("kill", "kill", "stop", "resume"):
            status, found = api("POST", f"{path}/{verb}")
            assert (status, found["running"], found["paused"]) == (200, False, False), verb
        assert cluster_events(api)[count:] == ["KILL_REQUESTED"]
        refusal = {"error": None, "message": f"{kind} {node} does not run: start it"}
        assert api("POST", f"{path}/pause") == (409, refusal)
        assert api("POST", f"{path}/start")[0] == 200
    assert ctl("--control", api.url, "broker", "start", "2")[0] == 0


def cluster_events(api: Api) -> list[str]:
    """What was asked of the cluster, by the events' names."""
    events = api("GET", "/v1/events")[1]["events"]
    return [each["event"] for each in events if each["node"] is None]


def test_a_paused_broker_is_not_elected(api: Api) -> None:
    """At once and in one line, not after 20 s of waiting for it."""
    api("POST", "/v1/topics", {"name": "t", "assignment": [[1, 2]]})
    election = {"topic": "t", "partition": 0, "leader": 2}
    assert api("POST", "/v1/brokers/2/pause")[0] == 200
    expected = {"error": "BROKER_NOT_AVAILABLE", "message": "broker 2 is paused: resume it"}
    assert api("POST", "/v1/elections", election) == (503, expected)
    assert api("GET", "/v1/topics/t/partitions/0")[1]["leader"] == 1
    api("POST", "/v1/brokers/2/resume")
    assert api("POST", "/v1/elections", election)[1]["leader"] == 2
    api("POST", "/v1/brokers/1/pause")
    expected["message"] = "broker 1 is paused: resume it"
    assert api("POST", "/v1/elections", {"topic": "t", "partition": 0}) == (503, expected)


def test_the_requests_are_listed_for_who_has_no_pages(api: Api) -> None:
    status, found = api("GET", "/v1")
    assert status == 200 and "POST /v1/reset" in found["requests"]
    assert found["requests"]["POST /v1/retention"] == {"topic": "text (optional)"}
    status, found = api("GET", "/v1/nope")
    assert (status, found["message"]) == (
        404,
        "there is no GET /v1/nope: GET /v1 lists the requests",
    )


def test_compaction_and_retention(api: Api, cluster: RunningCluster) -> None:
    cluster.run(cluster.supervisor.create_topics([("t", 1, 3)]))
    assert api("POST", "/v1/retention") == (200, {})
    assert api("POST", "/v1/retention", {"topic": "t"}) == (200, {})
    assert api("POST", "/v1/retention", {"topic": 1})[0] == 400
    status, found = api("POST", "/v1/retention", {"topic": "nope"})
    assert (status, found["error"]) == (404, "UNKNOWN_TOPIC_OR_PARTITION")
    assert api("POST", "/v1/topics/nope/compact")[0] == 404
    status, found = api("POST", "/v1/topics/t/compact")
    assert (status, found["error"]) == (409, "INVALID_CONFIG")
    assert "its cleanup.policy is delete" in found["message"]


def test_partitions_elections_and_cuts(api: Api, cluster: RunningCluster) -> None:
    cluster.run(cluster.supervisor.create_topics([("t", 1, 3)]))
    status, found = api("GET", "/v1/topics/t/partitions/0")
    assert status == 200 and found["isr"] == [1, 2, 3] and found["high_watermark"] == 0
    assert {each["broker"] for each in found["replicas"]} == {1, 2, 3}
    other = found["leader"] % 3 + 1
    status, found = api("POST", "/v1/elections", {"topic": "t", "partition": 0, "leader": other})
    assert (status, found["leader"], found["leader_epoch"]) == (200, other, 1)
    assert api("POST", "/v1/network/cuts", {"a": 1000, "b": [other]}) == (200, {})
    until(lambda: api("GET", "/v1/topics/t/partitions/0")[1]["leader"] != other)
    cut = {"a": other, "b": 1000}
    healed = {"cuts": [cut], "delays": []}
    assert api("DELETE", "/v1/network/cuts", {"a": 1000, "b": other}) == (200, healed)
    until(lambda: api("GET", "/v1/topics/t/partitions/0")[1]["isr"] == [1, 2, 3])
    assert api("POST", "/v1/network/delays", {"a": 1, "b": 2, "milliseconds": 5}) == (200, {})
    healed = {"cuts": [], "delays": [{"a": 1, "b": 2, "milliseconds": 5}]}
    assert api("DELETE", "/v1/network/delays") == (200, healed)
    status, found = api("GET", "/v1/requests")
    assert status == 409 and "requests are not kept" in found["message"]
    assert api("DELETE", "/v1/requests") == (200, {})


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "said"),
    [
        ("GET", "/nothing", None, 404, "there is no GET /nothing"),
        ("POST", "/v1/brokers/9/kill", None, 404, "there is no broker 9"),
        ("POST", "/v1/controllers/9/kill", None, 404, "there is no controller 9"),
        ("POST", "/v1/brokers/x/kill", None, 400, "expected a number, not 'x'"),
        ("POST", "/v1/brokers/1/dance", None, 404, "there is no POST /v1/brokers/1/dance"),
        ("POST", "/v1/brokers/%31/kil%6c/x", None, 404, "there is no POST /v1/brokers/1/kill/x"),
        ("PUT", "/v1/reset", None, 405, "there is no PUT /v1/reset, but POST"),
        (
            "PATCH",
            "/v1/network/cuts",
            {},
            405,
            "there is no PATCH /v1/network/cuts, but DELETE, POST",
        ),
        ("GET", "/v1/brokers/x/kill", None, 405, "there is no GET /v1/brokers/x/kill, but POST"),
        ("PUT", "/v1/network", {"rules": []}, 405, "there is no PUT /v1/network, but GET"),
        ("GET", "/v1/status", None, 404, "there is no GET /v1/status:"),
        ("POST", "/v1/brokers/1/kill", {"now": 1}, 400, "expected no keys, not 'now'"),
        ("POST", "/v1/brokers/1/kill", "[]", 400, "expected a JSON object"),
        ("POST", "/v1/brokers/1/kill", "[" * 60_000, 400, "the body is no JSON"),
        ("POST", "/v1/elections", '{"topic": ', 400, "the body is no JSON"),
        ("POST", "/v1/elections", b"\xff\xfe".decode("latin-1"), 400, "the body is no JSON"),
        ("GET", "/v1/topics/no/partitions/0", None, 404, "there is no partition no-0"),
        ("POST", "/v1/elections", {"topic": "t"}, 400, "partition: missing"),
        ("POST", "/v1/elections", {"topic": 1, "partition": 0}, 400, "topic: expected a text"),
        (
            "POST",
            "/v1/elections",
            {"topic": "t", "partition": 0, "unclean": 1},
            400,
            "unclean: expected true or false",
        ),
        ("POST", "/v1/elections", {"topic": "t", "partition": "0"}, 400, "expected a whole number"),
        ("POST", "/v1/network/delays", {"a": 1, "b": 2}, 400, "milliseconds: missing"),
        *(
            ("POST", "/v1/network/delays", {"a": 1, "b": 2, "milliseconds": wrong}, 400, said)
            for wrong, said in (
                (-1, "milliseconds: expected a number from 0 to a day's, not -1"),
                (86_400_000, "milliseconds: expected a number from 0 to a day's"),
                ("5", "milliseconds: expected a number, not '5'"),
                (True, "milliseconds: expected a number, not True"),
            )
        ),
        ("POST", "/v1/network/cuts", {"a": 1, "b": 1}, 400, "two different sets of nodes"),
        ("POST", "/v1/network/cuts", {"a": 1, "b": 9}, 404, "there is no broker 9"),
        ("DELETE", "/v1/network/cuts", {"b": 9}, 404, "there is no broker 9"),
        ("DELETE", "/v1/network/cuts?a=x", None, 400, "a: expected ids of nodes, not 'x'"),
        ("GET", "/v1/topics?internal=1", None, 400, "internal: expected true or false, not '1'"),
        ("GET", "/v1/topics?internal=true&internal=true", None, 400, "internal: given twice"),
        ("GET", "/v1/topics?what=x", None, 400, "expected internal, not 'what'"),
        ("GET", "/v1/topics/no", None, 404, "there is no topic no"),
        ("DELETE", "/v1/topics/no", None, 404, "topic no"),
        ("POST", "/v1/topics", {}, 400, "name: missing"),
        (
            "POST",
            "/v1/topics",
            {"name": "n", "partitions": "3"},
            400,
            "partitions: expected a whole",
        ),
        (
            "POST",
            "/v1/topics",
            {"name": "n", "config": []},
            400,
            "config: expected keys and values",
        ),
        ("POST", "/v1/topics", {"name": "a b"}, 409, "topic a b"),
        ("POST", "/v1/topics", {"name": "n", "replication_factor": 9}, 409, "topic n"),
        ("GET", "/v1/topics/no/records", None, 404, "there is no topic no"),
        ("GET", "/v1/topics/no/records?start=-1", None, 400, "start: expected a number from 0"),
        ("GET", "/v1/topics/no/records?limit=x", None, 400, "limit: expected a whole number"),
        ("GET", "/v1/topics/no/records?encoding=hex", None, 400, "expected text or base64"),
        ("POST", "/v1/topics/no/records", {"value": 5}, 400, 'value: expected a text or {"base64"'),
        ("POST", "/v1/topics/n/records", {"value": {"hex": ""}}, 400, "value: expected a text"),
        ("POST", "/v1/topics/n/records", {"value": {"base64": "?"}}, 400, "expected base64"),
        ("POST", "/v1/topics/n/records", {"headers": ["h"]}, 400, 'headers: expected {"name"'),
        ("POST", "/v1/topics/a b/records".replace(" ", "%20"), {}, 409, "topic a b"),
        ("POST", "/v1/network/cuts", {"a": 1, "b": "2"}, 400, "expected ids of nodes"),
        ("POST", "/v1/network/cuts", {"a": 1, "b": [[2]]}, 400, "expected ids of nodes"),
    ],
)
def test_what_is_refused(
    api: Api, method: str, path: str, body: Any, status: int, said: str
) -> None:
    found = api(method, path, body)
    assert found[0] == status and said in found[1]["message"], found


def test_topics_are_created_shown_and_deleted(api: Api) -> None:
    wanted = {"name": "o", "partitions": 2, "replication_factor": 3, "config": {"retention.ms": 5}}
    status, found = api("POST", "/v1/topics", wanted)
    assert (status, found["topic"], len(found["partitions"])) == (200, "o", 2)
    assert api("GET", "/v1/topics/o") == (200, found)
    assert api("GET", "/v1/topics/o/partitions")[1]["partitions"] == found["partitions"]
    assert api("GET", "/v1/topics/o/partitions/1")[1] == found["partitions"][1]
    status, found = api("POST", "/v1/topics", {"name": "p", "assignment": [[3, 1]]})
    assert [each["broker"] for each in found["partitions"][0]["replicas"]] == [3, 1]
    assert api("POST", "/v1/topics", wanted)[1]["error"] == "TOPIC_ALREADY_EXISTS"
    assert api("DELETE", "/v1/topics/o") == (200, {})
    assert api("GET", "/v1/topics") == (200, {"topics": {"p": 1}})


def test_records_are_written_and_read_as_text_or_base64(api: Api) -> None:
    api("POST", "/v1/topics", {"name": "r", "partitions": 2})
    path = "/v1/topics/r/records"
    records = [
        {"value": "t\0ée", "key": "k", "headers": [{"name": "h", "value": None}], "timestamp": 5},
        {"value": {"base64": "AP8="}, "partition": 1},
        {"value": "AP8=", "partition": 1, "encoding": "base64"},
        {"key": "gone", "partition": 0},
    ]
    written = [api("POST", path, each) for each in records]
    assert [status for status, _ in written] == [200] * 4
    first = written[0][1]
    assert (first["value"], first["key"], first["timestamp"]) == ("t\0ée", "k", 5)
    assert first["headers"] == [{"name": "h", "value": None}] and first["offset"] == 0
    assert [each["value"] for _, each in written[1:]] == [{"base64": "AP8="}, "AP8=", None]
    status, found = api("GET", f"{path}?partition=1&limit=2")
    assert status == 200 and all(each["partition"] == 1 for each in found["records"])
    every = api("GET", path)[1]["records"]
    assert len(every) == 4 and {"base64": "AP8="} in [each["value"] for each in every]
    plain = api("GET", f"{path}?encoding=base64")[1]["records"]
    assert {each["value"] for each in plain} == {"AP8=", "dADDqWU=", None}
    assert api("GET", f"{path}?start=99") == (200, {"records": []})


def test_groups_and_clients_are_listed(api: Api, cluster: RunningCluster) -> None:
    assert api("GET", "/v1/groups") == (200, {"groups": []})
    assert api("GET", "/v1/groups/shop")[1]["state"] == "Dead"
    api("POST", "/v1/topics/g/records", {"value": "v"})
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": "shop",
            "client.id": "till",
            "auto.offset.reset": "earliest",
        }
    )
    consumer.subscribe(["g"])
    try:
        until(lambda: consumer.poll(0.1) is not None)
        found = api("GET", "/v1/clients")[1]["clients"]
        assert {each["client_id"] for each in found} == {"till"}
        consumer.commit(asynchronous=False)
        status, group = api("GET", "/v1/groups/shop")
        assert (status, group["state"], group["lag"]) == (200, "Stable", 0)
        (member,) = group["members"]
        assert member["client_id"] == "till"
        assert member["partitions"] == [{"topic": "g", "partition": 0}]
        (offset,) = group["offsets"]
        assert (offset["committed"], offset["end"], offset["lag"]) == (1, 1, 0)
        assert api("GET", "/v1/groups") == (200, {"groups": ["shop"]})
    finally:
        consumer.close()
    assert api("GET", "/v1/topics") == (200, {"topics": {"g": 1}})
    assert "__consumer_offsets" in api("GET", "/v1/topics?internal=true")[1]["topics"]
    assert api("GET", "/v1/failures") == (200, {"failures": []})


def test_cuts_in_force_are_shown_and_healed_by_either_side(api: Api) -> None:
    nothing = (200, {"cuts": [], "delays": []})
    assert api("GET", "/v1/network") == nothing
    api("POST", "/v1/network/cuts", {"a": 1, "b": 2})
    api("POST", "/v1/network/delays?a=2&b=3&milliseconds=5")
    cut, delay = {"a": 1, "b": 2}, {"a": 2, "b": 3, "milliseconds": 5}
    assert api("GET", "/v1/network") == (200, {"cuts": [cut], "delays": [delay]})
    healed = {"cuts": [], "delays": [delay]}
    assert api("DELETE", "/v1/network/cuts", {"b": 3}) == (200, healed)
    assert api("GET", "/v1/network") == (200, {"cuts": [cut], "delays": []})
    assert api("DELETE", "/v1/network/cuts?b=1,3") == (200, {"cuts": [cut], "delays": []})
    assert api("GET", "/v1/network") == nothing
    both = {"cuts": [cut], "delays": [{**cut, "milliseconds": 5}]}
    api("POST", "/v1/network/delays?a=1&b=2&milliseconds=5")
    api("POST", "/v1/network/cuts", cut)
    assert api("GET", "/v1/network") == (200, both)
    assert api("DELETE", "/v1/network/delays", cut) == (200, both)
    assert api("DELETE", "/v1/network/delays", cut) == nothing
    delayed = {"a": 3, "b": 1, "milliseconds": 5, "one_way": True}
    assert api("POST", "/v1/network/cuts", {**cut, "one_way": True}) == (200, {})
    assert api("POST", "/v1/network/delays", delayed) == (200, {})
    both = {"cuts": [{**cut, "one_way": True}], "delays": [delayed]}
    assert api("GET", "/v1/network") == (200, both)
    assert api("DELETE", "/v1/network/cuts") == (200, both)


def test_disks_that_fail(api: Api) -> None:
    fault = {"operation": "append", "milliseconds": 5}
    rule = {"act": "slow", **fault}
    shown = {"id": "disk-1", "node": 2, "rule": rule, "hits": 0}
    assert api("POST", "/v1/nodes/2/disk/slow", fault) == (200, shown)
    assert api("GET", "/v1/disks") == (200, {"faults": [shown]})
    assert api("DELETE", "/v1/nodes/1/disk") == (200, {"faults": []})
    assert api("DELETE", "/v1/nodes/2/disk") == (200, {"faults": [shown]})
    assert api("DELETE", "/v1/disks/disk-1")[0] == 404
    for path, body, expected in (
        ("/v1/nodes/7/disk/full", {}, 404),
        ("/v1/nodes/1/disk/fail", {"operation": "apend"}, 400),
        ("/v1/nodes/1/disk/full", {"directory": "nowhere"}, 400),
        ("/v1/nodes/1000/disk/slow", {"milliseconds": 3}, 400),
    ):
        status, found = api("POST", path, body)
        assert status == expected and "\n" not in found["message"]
    assert api("GET", "/v1/disks") == (200, {"faults": []})


def test_a_page_of_another_site_gets_nothing_done(api: Api) -> None:
    status, found = api("POST", "/v1/brokers/1/kill", Origin="http://example.org")
    assert (status, found["message"]) == (
        403,
        "web pages of other sites cannot use the control API",
    )
    assert api("GET", "/v1/cluster")[1]["brokers"][0]["running"] is True


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"\x00\x00\x00\x0a\x00\x12\x00\x00", 400),
        (b"GET / HTTP/2\r\n\r\n", 400),
        (b"GET http://[x HTTP/1.1\r\nHost: x\r\n\r\n", 400),
        (b"GET http://[x/healthz HTTP/1.1\r\nHost: x\r\n\r\n", 400),
        (b"GET /healthz HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nHost: x\r\n" + TOO_LARGE, 413),
        (b"GET / HTTP/1.1\r\nX: " + b"x" * 70_000 + b"\r\n\r\n", 431),
    ],
)
def test_bytes_that_are_no_request_end_the_connection(api: Api, data: bytes, status: int) -> None:
    assert api.raw(data).startswith(b"HTTP/1.1 %d " % status)
    assert api("GET", "/healthz") == (200, {"status": "ok"})


def test_a_refusal_arrives_though_most_of_the_request_is_still_on_its_way(api: Api) -> None:
    head = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % (8 << 20)
    assert api.raw(head + bytes(8 << 20)).startswith(b"HTTP/1.1 413 ")


def test_several_requests_on_one_connection_and_one_that_never_ends(api: Api) -> None:
    asking = b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"
    assert api.raw(asking * 3).count(b"HTTP/1.1 200 OK") == 3
    assert api.raw(asking + b"rubbish\r\n\r\n").count(b"HTTP/1.1 400 ") == 1
    ends_early = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nabc"
    assert api.raw(ends_early).startswith(b"HTTP/1.1 400 ")
    assert api.raw(b"") == b""


def test_head_chunks_and_expect_are_understood(api: Api) -> None:
    head, _, body = api.raw(b"HEAD /healthz HTTP/1.1\r\nHost: x\r\n\r\n").partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 405 ") and b"\r\nAllow: GET\r\n" in head + b"\r\n"
    assert body == b""
    start = b"POST /v1/reset HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
    chunked = start + b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n"
    assert api.raw(chunked).startswith(b"HTTP/1.1 200 OK\r\n")
    expecting = start + b"Expect: 100-continue\r\nContent-Length: 2\r\n\r\n"
    with socket.create_connection(api.address, 5) as connection:
        connection.sendall(expecting)
        assert connection.recv(100).startswith(b"HTTP/1.1 100 ")
        connection.sendall(b"{}")
        assert connection.recv(1000).startswith(b"HTTP/1.1 200 OK\r\n")


# ---- kwire up and kwire ctl


def ctl(*arguments: str, **environment: str) -> tuple[int, str]:
    """The status and all that it said."""
    done = subprocess.run(
        [sys.executable, "-m", "kwire", "ctl", *arguments],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
        env={**os.environ, **environment},
    )
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize("found", [[], {"status": "ok"}, {"controllers": [{}], "brokers": []}])
def test_the_json_of_another_server_is_refused_in_one_line(
    found: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(control_ctl, "call", lambda *_: found)
    with pytest.raises(NodeError, match=r"^http://x:1 is no control API of kwire$"):
        control_ctl.ask("http://x:1", "GET", "/v1/cluster", to_text=control_ctl.status_text)
    with pytest.raises(NodeError, match="no control API of kwire"):
        control_ctl.change_node("http://x:1", "broker", 1, "kill")


def test_a_process_that_somebody_has_killed_is_brought_back_by_one_line(tmp_path: Path) -> None:
    ready = tmp_path / "ready.json"
    arguments = ("--brokers", "2", "--isolation", "process", "--data-dir", str(tmp_path / "data"))
    with kwire_up(*arguments, "--ready-file", str(ready), "--log-level", "error") as (
        process,
        line,
    ):
        url = json.loads(ready.read_text())["control"]
        assert line.endswith(f" control={url}\n") and url.startswith("http://127.0.0.1:")
        by_id = {}
        for child in Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split():
            words = Path(f"/proc/{child}/cmdline").read_bytes().split(b"\0")
            by_id[int(words[words.index(b"--id") + 1])] = int(child)
        status, before = ctl("status", KWIRE_CONTROL=url)
        assert status == 0 and before.count(" running") == 3 and " running active\n" in before
        os.kill(by_id[2], signal.SIGKILL)
        status, text = ctl("--ready-file", str(ready), "broker", "start", "2")
        assert (status, text.startswith("broker 2 127.0.0.1:")) == (0, True), text
        assert ctl("--control", url, "status") == (0, before)
        os.kill(by_id[1000], signal.SIGKILL)
        status, text = ctl("--control", url, "controller", "start", "1000")
        assert status == 0 and " running" in text
        status, text = ctl("--control", url, "broker", "start", "2")
        assert status == 0 and text.startswith("broker 2 ") and text.endswith(" running\n")
        process.send_signal(signal.SIGTERM)
        assert process.wait(15) == 0
    status, text = ctl("--control", url, "status")
    assert status == 1 and "does not answer" in text and "Traceback" not in text


def test_a_broker_is_started_in_the_moment_after_its_death(tmp_path: Path) -> None:
    """The kernel's word has not come yet: that it runs is not taken for granted."""
    with running_cluster(tmp_path, "process", brokers=1) as cluster:
        handle = cluster.supervisor.brokers[1]

        async def kill_and_start() -> Any:
            control = Cluster.of(cluster.supervisor)
            os.kill(handle.pid, signal.SIGKILL)
            time.sleep(0.05)  # the loop hears of nothing meanwhile
            return await ask_cluster(control, "POST", "/v1/brokers/1/start", {})

        before = handle.pid
        assert cluster.run(kill_and_start())["running"] is True
        assert handle.pid not in (before, -1)


def test_the_control_api_listens_on_every_address_when_asked_to() -> None:
    with kwire_up("--brokers", "2", "--control-host", "0.0.0.0") as (_, line):
        url = line.split("control=")[1].strip()
        user, _, place = url.partition("@")
        assert place.startswith("127.0.0.1:")  # an address that leads somewhere
        api = Api("http://" + place.replace("127.0.0.1", "127.0.0.2"))
        assert api("GET", "/v1/cluster")[0] == 401
        token = {"Authorization": "Bearer " + user.rpartition(":")[2]}
        status, found = api("GET", "/v1/cluster", **token)
    assert (status, [each["id"] for each in found["brokers"]]) == (200, [1, 2])


@pytest.mark.parametrize("release", ["2.0.1", "2.4.1"])
def test_a_release_without_quotas_is_reset_too(release: str) -> None:
    with kwire_up("--brokers", "2", "--as-version", release, "--topic", "t") as (_, line):
        api = Api(line.split("control=")[1].strip())
        assert api("POST", "/v1/reset") == (200, {})
        assert api("GET", "/v1/topics")[1]["topics"] == {}


def layout(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


def test_one_broker_has_the_api_too_in_the_same_directory(tmp_path: Path) -> None:
    plain, other = str(tmp_path / "a"), str(tmp_path / "b")
    arguments = ["--topic", "t:2", "--recent-requests"]
    with kwire_up("--data-dir", plain, *arguments) as (process, line):
        api = Api(line.split("control=")[1].strip())
        found = api("GET", "/v1/cluster")[1]
        assert ([each["id"] for each in found["brokers"]], found["controllers"]) == ([1], [])
        for verb in ("kill", "stop", "pause"):
            status, found = api("POST", f"/v1/brokers/1/{verb}")
            assert status == 409 and "a standalone broker is its process" in found["message"]
        assert api("POST", "/v1/brokers/1/start")[0] == 200  # it runs
        assert api("POST", "/v1/network/cuts", {"a": 1, "b": 2})[0] == 404
        written = api("POST", "/v1/topics/t/records", {"value": "v", "key": "k"})[1]
        assert api("GET", "/v1/topics/t/records") == (200, {"records": [written]})
        state = api("GET", f"/v1/topics/t/partitions/{written['partition']}")[1]
        assert (state["leader"], state["high_watermark"]) == (1, 1)
        assert state["replicas"][0]["epochs"] == [[0, 0]]
        assert api("GET", "/v1/groups/g")[1]["state"] == "Dead"
        assert api("GET", "/v1/requests") == (200, {"requests": []})
        assert api("GET", "/v1/clients") == (200, {"clients": []})
        assert api("GET", "/v1/failures") == (200, {"failures": []})
        assert api("GET", "/v1/network") == (200, {"cuts": [], "delays": []})
        assert api("POST", "/v1/retention") == (200, {})
        election = {"topic": "t", "partition": 0, "leader": 1}
        assert api("POST", "/v1/elections", election)[1]["leader"] == 1
        process.terminate()
        assert process.wait(20) == 0
    with kwire_up("--data-dir", other, "--control-port", "0", "--topic", "t:2") as (process, _):
        process.terminate()
        assert process.wait(20) == 0
    assert {"meta.properties", "t-0", "t-1"} <= layout(Path(other)) <= layout(Path(plain))
    with kwire_up("--data-dir", plain, "--control-port", "0") as (_, line):
        api = Api(line.split("control=")[1].strip())
        assert api("GET", "/v1/topics/t/records") == (200, {"records": [written]})
        assert api("POST", "/v1/reset") == (200, {})
        assert api("GET", "/v1/topics") == (200, {"topics": {}})


def test_a_port_that_is_taken_ends_the_start_in_a_line() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        done = subprocess.run(
            [sys.executable, "-m", "kwire", "up", "--port", "0", "--control-port", port],
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )
    assert done.returncode == 1
    expected = f"kwire up: control API: cannot listen on 127.0.0.1:{port}: "
    assert done.stderr.splitlines()[-1].startswith(expected)


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        (["status"], 1, "no kwire up is running: start one, or name a control API by --control"),
        (["--control", "x", "status"], 1, "expected http://HOST:PORT of the control API, not x"),
        (["--control", "http://127.0.0.1:x", "status"], 1, "expected http://HOST:PORT"),
        (["--ready-file", "/no/such", "status"], 1, "/no/such: No such file or directory"),
        (["--control", "x", "broker", "start"], 2, "kwire ctl broker: Missing argument 'ID'"),
        (
            ["--control", "x", "broker", "begin", "1"],
            2,
            "'start', 'stop', 'kill', 'pause', 'resume'",
        ),
        (["--control", "x", "status", "1", "2"], 2, "kwire ctl status: Got unexpected extra"),
    ],
)
def test_ctl_says_what_is_wrong_in_a_line(arguments: list[str], status: int, said: str) -> None:
    found = ctl(*arguments, KWIRE_CONTROL="")
    assert found[0] == status and said in found[1] and found[1].count("\n") == 1, found


# ---- a container's


class FakeNode:
    """A node with as much of a core as the routes look at."""

    def __init__(self, node_id: int, is_controller: bool = False) -> None:
        self.node_id, self.is_controller = node_id, is_controller
        self.advertised = f"kafka-{node_id}:9092"
        self.told: list[list[str]] = []
        self.node = self.recent = self
        self.core: Any = SimpleNamespace(
            config=SimpleNamespace(broker_rack="a"),
            controller=SimpleNamespace(active=True, epoch=4),
            sessions=SimpleNamespace(recent=self, by_connection={}),
        )
        self.kept = [[5, "me", "Fetch v1", "ok", 3], [-1, "", "", "w", 1]]

    def perform(self, action: Callable[[], Any]) -> Any:
        return action()

    def list_requests(self, _sessions: Any) -> list[Any]:
        return self.kept

    def clear(self) -> None:
        self.kept = []

    def set_link_rules(self, rules: list[LinkRule]) -> None:
        self.told.append(list(map(str, rules)))


def controlled(rules: list[LinkRule] | None, path: Path, *nodes: Any) -> NodeControl:
    return NodeControl(lambda: nodes, rules, str(path))


@pytest.fixture
def network_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "network"
    monkeypatch.setattr(node_api, "NETWORK_FILE", str(path))
    return path


def test_in_a_container_there_are_its_own_nodes_and_their_network(network_file: Path) -> None:
    nodes = [FakeNode(1), FakeNode(101000, is_controller=True)]
    network: list[LinkRule] = []
    control = controlled(network, network_file, *nodes)

    def ask(method: str, path: str, **body: Any) -> Any:
        return ask_nodes(control, method, path, body)

    found = ask("GET", "/v1/cluster")
    assert [(each["id"], each["rack"]) for each in found["brokers"]] == [(1, "a")]
    (controller,) = found["controllers"]
    assert controller["rack"] is None
    assert (controller["active"], controller["epoch"]) == (True, 4)
    first, second = ask("GET", "/v1/requests")["requests"]
    assert first == {
        "broker": 1,
        "milliseconds_ago": 5,
        "client_id": "me",
        "api": "Fetch v1",
        "outcome": "ok",
        "count": 3,
    }
    assert second["milliseconds_ago"] is None
    assert ask("DELETE", "/v1/requests") == {}
    assert ask("GET", "/v1/requests") == {"requests": []}

    ask("POST", "/v1/network/cuts", a=[1, 4], b=[2, 3])
    assert nodes[0].told == nodes[1].told == [["cut 2", "cut 3"]]
    assert network == kept_rules() == [LinkRule(2), LinkRule(3)]
    ask("POST", "/v1/network/delays", a=2, b=1, milliseconds=50)
    assert nodes[0].told[1:] == [["delay 2 50", "cut 3"]]
    ask("PUT", "/v1/network", commands=["cut 3", "cut 4"])
    assert nodes[0].told[2:] == [["cut 3", "cut 4"]]
    assert kept_rules() == [LinkRule(3), LinkRule(4)]
    ask("DELETE", "/v1/network/cuts", a=1, b=4)
    assert network == [LinkRule(3)] and nodes[0].told[-1] == ["cut 3"]
    ask("PUT", "/v1/network", rules=[{"to": 3, "delay_ms": 7}])
    assert network == [LinkRule(3, 7)]
    ask("DELETE", "/v1/network/cuts")
    assert network == kept_rules() == []
    for path, body, status in (
        ("/v1/network/cuts", {"a": 1, "b": "x"}, 400),
        ("/v1/network/delays", {"a": 1, "b": 2, "milliseconds": -1}, 400),
        ("/v1/brokers/1/kill", {}, 404),
        ("/v1/network", {}, 405),
        ("/v1/reset", {}, 404),
    ):
        with pytest.raises(ControlError) as refused:
            ask("POST", path, **body)
        assert refused.value.status == status
    with pytest.raises(ControlError, match="not understood: 'rm 1'"):
        ask("PUT", "/v1/network", commands=["rm 1"])


def test_a_broker_alone_has_no_network_and_a_torn_file_is_nothing(network_file: Path) -> None:
    control = controlled(None, network_file, FakeNode(1))
    for method, path, body in (
        ("POST", "/v1/network/cuts", {"a": 1, "b": 2}),
        ("DELETE", "/v1/network/delays", {}),
        ("PUT", "/v1/network", {"rules": []}),
    ):
        with pytest.raises(ControlError, match="has no links to other nodes") as refused:
            ask_nodes(control, method, path, body)
        assert refused.value.status == 409
    assert control.is_standalone
    with pytest.raises(ControlError, match="no controller runs in this process") as refused:
        ask_nodes(control, "GET", "/v1/topics", {})
    assert refused.value.status == 503
    for text in ('{"2": "cu', '{"2": "rm 3"}', '["cut 3', '["rm 3"]', "[]"):
        network_file.write_text(text)
        assert kept_rules() == []
