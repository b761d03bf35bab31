"""Names in requests to the control API: of hosts, of events and APIs, of requests of the other kind of API."""

import asyncio
import json
import threading
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import Consumer

from kwire import Cluster, aio, errors
from kwire.control.errors import ControlError
from kwire.control.hosts import ALLOWED, Hosts, host_name
from kwire.control.node_api import NodeControl
from kwire.control.routes import cluster_handler, node_handler
from kwire.control.socket import ControlSocket
from kwire.server.link_rules import LinkRule

pytestmark = pytest.mark.timeout(60)


# --- hosts


@pytest.mark.parametrize(
    ("host", "name"),
    [
        ("127.0.0.1:9099", "127.0.0.1"),
        ("[::1]:9099", "::1"),
        ("LocalHost", "localhost"),
        ("kafka:9099", "kafka"),
        ("evil.example.com:80", "evil.example.com"),
        ("", ""),
    ],
)
def test_the_name_in_a_host_header(host: str, name: str) -> None:
    assert host_name(host) == name


def test_names_that_somebody_could_have_registered_are_not_this_hosts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    hosts = Hosts(lambda: "broker.example.com:9092,127.0.0.1:9093")
    ours = "127.0.0.1 10.0.0.3 ::1 localhost a.localhost kafka kwire-1 host.docker.internal"
    for (
        name
    ) in f"{ours} kwire.default.svc kwire.default.svc.cluster.local broker.example.com".split():
        assert hosts.has(name), name
    for name in ("evil.com", "127.0.0.1.nip.io", "localhost.evil.com", "example.com", "a.b.org."):
        assert not hosts.has(name), name
    monkeypatch.setenv(ALLOWED, "kwire.corp.net, Other.org")
    assert hosts.has("kwire.corp.net") and hosts.has("other.org") and not hosts.has("evil.com")
    monkeypatch.setenv(ALLOWED, "*")
    assert hosts.has("evil.com")


async def asked(port: int, host: str) -> tuple[int, Any]:
    """Status and answer of `GET /v1/cluster` with this Host header."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    text = f"GET /v1/cluster HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"
    writer.write(text.encode())
    answer = await reader.read()
    writer.close()
    head, _, body = answer.partition(b"\r\n\r\n")
    return int(head.split()[1]), json.loads(body)


def test_a_page_whose_name_was_made_to_lead_here_reads_nothing() -> None:
    async def main() -> None:
        async with aio.Cluster() as cluster:
            control = ControlSocket(
                lambda: cluster_handler(cluster), lambda: "mine.example.com:9092"
            )
            await control.open("127.0.0.1", 0)
            port = int(control.url.rpartition(":")[2])
            for host in (f"127.0.0.1:{port}", f"localhost:{port}", "kafka", "mine.example.com:1"):
                assert (await asked(port, host))[0] == 200, host
            status, found = await asked(port, f"evil.com:{port}")
            assert status == 403 and "does not go by the name evil.com" in found["message"]
            assert "KWIRE_CONTROL_HOSTS" in found["message"]
            await control.close()

    asyncio.run(main())


# --- events and APIs


def test_an_unknown_event_or_api_is_refused_with_the_one_that_may_be_meant() -> None:
    async def main() -> None:
        async with aio.Cluster(recent_requests=True, topics=["t"]) as cluster:
            for handle in (cluster_handler(cluster), node_handler(_of_nodes())):
                await _check_names(handle)
            with pytest.raises(errors.ConfigurationError, match="mean LEADER_ELECTED"):
                await cluster.events("LEADER_ELECTE")
            with pytest.raises(errors.ConfigurationError, match=r"api: .* did you mean Fetch\?"):
                await cluster.requests(api="Fetsh")
            assert await cluster.events("topic_created")

    asyncio.run(main())


async def _check_names(handle: Callable[..., Awaitable[Any]]) -> None:
    for path, said in (
        ("/v1/events?name=LEADER_ELECTE", "name: there is no event LEADER_ELECTE; did you mean"),
        ("/v1/requests?api=Fetsh", "api: there is no API Fetsh; did you mean Fetch?"),
        ("/v1/requests?api=", "api: there is no API "),
    ):
        with pytest.raises(ControlError) as refused:
            await handle("GET", path, {}, {})
        assert refused.value.status == 400 and said in str(refused.value)
    for api in ("fetch", "Fetch v12", "connection%20closed"):
        assert await handle("GET", f"/v1/requests?api={api.replace(' ', '%20')}", {}, {})
    assert "events" in await handle("GET", "/v1/events?name=leader_elected", {}, {})


def _of_nodes(rules: list[LinkRule] | None = None) -> NodeControl:
    return NodeControl(list, rules)


# --- topics and groups


def test_a_group_that_may_be_meant_is_named() -> None:
    with Cluster(topics=["orders"]) as cluster:
        assert cluster.group("shopp").similar is None  # there is no group at all
        settings = {"bootstrap.servers": cluster.bootstrap_servers, "group.id": "shop"}
        consumer = Consumer(settings)
        consumer.subscribe(["orders"])
        cluster.wait_for(lambda c: consumer.poll(0.05) is not None or c.groups(), 20)
        assert str(cluster.group("shopp")).endswith("no such group; did you mean shop?")
        with pytest.raises(errors.WaitTimeoutError, match="did you mean shop"):
            cluster.wait_for(lambda c: c.group("shopp").lag == 0, 0)
        assert cluster.group("other").similar is None
        consumer.close()


# --- the API of a single node


def test_a_request_that_only_a_clusters_api_has_leads_to_it() -> None:
    async def main() -> None:
        alone, member = node_handler(_of_nodes()), node_handler(_of_nodes([]))
        whole = "KWIRE_BROKERS=1 (or 3) gives a container the API of a cluster"
        for method, path in (
            ("POST", "/v1/brokers/1/kill"),
            ("POST", "/v1/reset"),
            ("GET", "/v1/groups"),
            ("POST", "/v1/topics"),
            ("GET", "/v1/topics/t/records?limit=1"),
        ):
            for handle in (alone, member):
                with pytest.raises(ControlError) as refused:
                    await handle(method, path, {}, {})
                assert refused.value.status == 404 and str(refused.value).endswith(whole), path
        with pytest.raises(
            ControlError, match="no controller beside it to ask: KWIRE_BROKERS=1"
        ) as refused:
            await alone("GET", "/v1/topics", {}, {})
        assert refused.value.status == 404
        with pytest.raises(ControlError, match="ask that of a controller") as refused:
            await member("GET", "/v1/topics", {}, {})
        assert (refused.value.status, refused.value.kafka_error) == (503, "NOT_CONTROLLER")
        for path in ("/v1/nope", "/nope"):
            with pytest.raises(ControlError, match="GET /v1 lists the requests"):
                await alone("GET", path, {}, {})

    asyncio.run(main())


def test_the_root_is_an_index() -> None:
    async def main() -> None:
        cluster = SimpleNamespace()
        of_cluster = await cluster_handler(cluster)("GET", "/", {}, {})  # type: ignore[arg-type]
        assert of_cluster == await cluster_handler(cluster)("GET", "/v1", {}, {})  # type: ignore[arg-type]
        assert "POST /v1/reset" in of_cluster["requests"] and of_cluster["kwire"]
        of_nodes = await node_handler(_of_nodes())("GET", "/", {}, {})
        assert "PUT /v1/network" in of_nodes["requests"]

    asyncio.run(main())


def test_a_thread_imports_the_api_while_the_loop_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    threads: dict[str, int] = {}
    monkeypatch.setattr(
        "kwire.control.socket.import_module",
        lambda name: threads.setdefault(name, threading.get_ident()),
    )

    async def main() -> None:
        control = ControlSocket(lambda: node_handler(_of_nodes()), modules=("kwire.aio",))
        await control.open("127.0.0.1", 0)
        port = int(control.url.rpartition(":")[2])
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET /v1 HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert b" 200 " in await reader.readline()
        writer.close()
        await control.close()

    asyncio.run(main())
    assert {"kwire.aio", "kwire.control.routes"} <= set(threads)
    assert threading.get_ident() not in threads.values()
