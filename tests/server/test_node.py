"""Sockets, order, limits and back-pressure, with nothing behind the sessions."""

from __future__ import annotations

import asyncio
import logging
import socket
import struct
import time
from typing import Any

import pytest
import server_harness
from server_harness import Client, StubBroker, framed, handler_for, request_bytes, running_node

from kwire.apis.context import RequestContext
from kwire.protocol import api
from kwire.protocol.schemas.api_versions import ApiVersionsRequest
from kwire.protocol.schemas.metadata import MetadataRequest, MetadataResponse
from kwire.server.connection import READ_AHEAD
from kwire.server.errors import NodeError
from kwire.server.node import PAUSED, SERVING, STARTING, STOPPED, STOPPING, Node

API_VERSIONS, METADATA, PRODUCE = 18, 3, 0


@pytest.fixture(autouse=True, params=["uvloop", "asyncio"])
def loop_kind(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every test on both loops: where uvloop is missing asyncio's does the work."""
    if request.param == "asyncio":
        monkeypatch.setattr(server_harness, "new_event_loop", asyncio.new_event_loop)


def api_versions(client: Client, version: int = 3, **fields: Any) -> Any:
    fields = {"client_software_name": "test", "client_software_version": "1.0"} | fields
    return client.ask(API_VERSIONS, version, ApiVersionsRequest(**fields))


def parking(contexts: list[RequestContext]) -> Any:
    def handler(context: RequestContext, request: Any) -> None:
        contexts.append(context)

    return handler


def until(condition: Any) -> None:
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline, "waited for 10 seconds"
        time.sleep(0.002)


# ---- ApiVersions


@pytest.mark.parametrize("version", range(6))
def test_api_versions_lists_what_is_served(version: int) -> None:
    with running_node() as running, Client(running.port) as client:
        response = api_versions(client, version)
        assert response.error_code == 0
        ranges = {e.api_key: (e.min_version, e.max_version) for e in response.api_keys}
        assert ranges == running.broker.services.api_ranges
        assert ranges[PRODUCE] == (0, 13)


def test_an_unknown_version_of_api_versions_is_answered_as_version_0() -> None:
    with running_node() as running, Client(running.port) as client:
        client.send(framed(struct.pack(">hhih", API_VERSIONS, 99, 5, -1) + b"\0 whatever"))
        correlation_id, response = api.parse_response(API_VERSIONS, 0, client.frame())
        assert (correlation_id, response.error_code) == (5, 35)
        assert [(e.api_key, e.min_version, e.max_version) for e in response.api_keys] == [
            (18, 0, 5)
        ]
        assert api_versions(client).error_code == 0  # and the connection goes on


@pytest.mark.parametrize("name", ["", "-x", "a b", "ü", "x."])
def test_a_client_name_that_breaks_the_rule_is_refused(name: str) -> None:
    with running_node() as running, Client(running.port) as client:
        assert api_versions(client, client_software_name=name).error_code == 42


def test_the_client_software_is_remembered() -> None:
    with running_node() as running, Client(running.port) as client:
        api_versions(
            client, client_software_name="apache-kafka-java", client_software_version="3.9.1"
        )
        (session,) = running.broker.sessions.by_connection.values()
        assert session.client_software_name == "apache-kafka-java"
        assert session.client_software_version == "3.9.1"


def test_a_client_that_means_another_broker_is_told_so() -> None:
    with running_node() as running, Client(running.port) as client:
        assert api_versions(client, 5, cluster_id="another").error_code == 129
        assert api_versions(client, 5, node_id=3).error_code == 129
        assert api_versions(client, 5, cluster_id="test-cluster", node_id=1).error_code == 0


def test_as_version_caps_ranges_and_what_is_accepted() -> None:
    from kwire.apis.releases import release_ranges

    caps = release_ranges("2.0")
    with running_node(make_broker=lambda node: StubBroker(node, caps)) as running:
        with Client(running.port) as client:
            ranges = {e.api_key: e.max_version for e in api_versions(client, 0).api_keys}
            assert ranges[PRODUCE] == 6
            assert 60 not in ranges
        with Client(running.port) as client:
            client.send(request_bytes(METADATA, 9, MetadataRequest()))
            assert client.is_closed()


def test_produce_is_advertised_from_0_as_kafka_4_does() -> None:
    from kwire.apis import served_ranges
    from kwire.apis.releases import release_ranges

    assert served_ranges(release_ranges("4.0"))[PRODUCE] == (0, 12)


# ---- order


def test_pipelined_requests_are_answered_in_order() -> None:
    with running_node() as running, Client(running.port) as client:
        ask = ApiVersionsRequest(client_software_name="a", client_software_version="1")
        client.send(b"".join(request_bytes(API_VERSIONS, 3, ask, number) for number in range(500)))
        order = [int.from_bytes(client.frame()[:4], "big") for _ in range(500)]
        assert order == list(range(500))


def test_requests_wait_for_a_parked_one_before_them() -> None:
    contexts: list[RequestContext] = []
    ask = ApiVersionsRequest()
    with (
        handler_for(METADATA, parking(contexts)),
        running_node() as running,
        Client(running.port) as client,
    ):
        client.send(
            request_bytes(METADATA, 1, MetadataRequest(), 1)
            + request_bytes(API_VERSIONS, 0, ask, 2)
            + request_bytes(METADATA, 1, MetadataRequest(), 3)
            + request_bytes(API_VERSIONS, 0, ask, 4)
        )
        until(lambda: len(contexts) == 1)
        for expected in ([1, 2], [3, 4]):
            context = contexts.pop(0)

            def answer(context: RequestContext = context) -> None:
                context.reply(MetadataResponse())
                running.node.tick()

            running.call(answer)
            assert [int.from_bytes(client.frame()[:4], "big") for _ in range(2)] == expected
            until(lambda last=expected: contexts or last == [3, 4])


def test_a_request_without_an_answer_does_not_hold_the_next_one_up() -> None:
    with (
        handler_for(METADATA, lambda context, request: context.end_without_response()),
        running_node() as running,
        Client(running.port) as client,
    ):
        client.send(request_bytes(METADATA, 1, MetadataRequest(), 1))
        assert api_versions(client).error_code == 0


def test_a_parked_request_hears_of_the_end_of_its_connection() -> None:
    contexts: list[RequestContext] = []
    with handler_for(METADATA, parking(contexts)), running_node() as running:
        client = Client(running.port)
        client.send(request_bytes(METADATA, 1, MetadataRequest()))
        until(lambda: contexts)
        gone: list[bool] = []
        contexts[0].on_disconnect = lambda: gone.append(True)
        client.socket.close()
        until(lambda: gone)
        running.call(lambda: contexts[0].reply(MetadataResponse()))  # too late; nobody minds


def test_two_parked_requests_of_one_step_are_both_answered_and_go_on() -> None:
    contexts: list[RequestContext] = []
    with (
        handler_for(METADATA, parking(contexts)),
        running_node() as running,
        Client(running.port) as one,
        Client(running.port) as two,
    ):
        for client in (one, two):
            client.send(
                request_bytes(METADATA, 1, MetadataRequest(), 1)
                + request_bytes(API_VERSIONS, 0, ApiVersionsRequest(), 2)
            )
        until(lambda: len(contexts) == 2)

        def answer() -> None:
            for context in contexts:
                context.reply(MetadataResponse())
            running.node.tick()

        running.call(answer)
        for client in (one, two):
            assert [int.from_bytes(client.frame()[:4], "big") for _ in range(2)] == [1, 2]


# ---- what is refused


@pytest.mark.parametrize(
    "data",
    [
        framed(b""),
        framed(b"\0"),
        framed(struct.pack(">hhi", 0x7FFF, 0, 1) + b"\xff\xff"),
        framed(struct.pack(">hhih", METADATA, 99, 1, -1)),
        framed(struct.pack(">hhih", METADATA, 1, 1, 500)),
        framed(struct.pack(">hhih", METADATA, 1, 1, -2)),
        framed(struct.pack(">hhihi", METADATA, 1, 1, -1, 2_000_000_000)),
        b"\xff\xff\xff\xff",
        b"\x7f\xff\xff\xff",
        b"GET / HTTP/1.1\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",  # a TLS client
    ],
)
def test_what_is_no_request_ends_its_connection_with_a_log_line(
    data: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    with (
        caplog.at_level(logging.WARNING, "kwire"),
        running_node() as running,
        Client(running.port) as good,
        Client(running.port) as bad,
    ):
        bad.send(data)
        assert bad.is_closed()
        assert api_versions(good).error_code == 0
        until(lambda: any("connection closed" in record.message for record in caplog.records))
    fields = next(r.fields for r in caplog.records if "connection closed" in r.message)  # type: ignore[attr-defined]
    assert fields["peer"].startswith("127.0.0.1:")
    assert fields["detail"]


def test_a_frame_above_the_limit_ends_its_connection() -> None:
    with running_node({"socket.request.max.bytes": "1000"}) as running:
        with Client(running.port) as client:
            client.send((1001).to_bytes(4, "big"))
            assert client.is_closed()
        with Client(running.port) as client:
            assert api_versions(client).error_code == 0


def test_a_bug_in_a_handler_is_kept_and_ends_that_connection_only(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def broken(context: RequestContext, request: Any) -> Any:
        raise ZeroDivisionError("a bug")

    with handler_for(METADATA, broken), running_node() as running:
        with Client(running.port) as good, Client(running.port) as bad:
            bad.send(request_bytes(METADATA, 1, MetadataRequest()))
            assert bad.is_closed()
            assert api_versions(good).error_code == 0
        (failure,) = running.broker.failed
        assert isinstance(failure, ZeroDivisionError)
        running.broker.failed.clear()
    assert any(record.exc_info for record in caplog.records)


# ---- limits


def test_an_idle_connection_is_closed_and_a_waiting_one_is_not() -> None:
    contexts: list[RequestContext] = []
    with (
        handler_for(METADATA, parking(contexts)),
        running_node({"connections.max.idle.ms": "101"}) as running,
        Client(running.port) as idle,
        Client(running.port) as waiting,
    ):
        waiting.send(request_bytes(METADATA, 1, MetadataRequest(), 9))
        assert idle.is_closed()
        running.call(lambda: (contexts[0].reply(MetadataResponse()), running.node.tick()))
        assert int.from_bytes(waiting.frame()[:4], "big") == 9


def test_connections_of_one_host_above_the_limit_are_closed() -> None:
    limits = {"max.connections.per.ip": "100", "max.connections.per.ip.overrides": "127.0.0.1:1"}
    with running_node(limits) as running, Client(running.port) as one:
        api_versions(one)
        with Client(running.port) as two:
            assert two.is_closed()


def test_a_half_closed_client_still_gets_its_answer() -> None:
    with running_node() as running, Client(running.port) as client:
        client.send(request_bytes(API_VERSIONS, 0, ApiVersionsRequest(), 3))
        client.socket.shutdown(socket.SHUT_WR)
        assert int.from_bytes(client.frame()[:4], "big") == 3
        assert client.is_closed()


def test_a_slow_reader_does_not_make_the_node_collect_answers() -> None:
    big = MetadataResponse(cluster_id="x" * 30_000)
    with (
        handler_for(METADATA, lambda context, request: context.reply(big)),
        running_node() as running,
        Client(running.port) as slow,
        Client(running.port) as good,
    ):
        count = 3000  # 90 MB of answers
        request = request_bytes(METADATA, 2, MetadataRequest())
        slow.socket.setblocking(False)
        pending = memoryview(request * count)
        deadline = time.monotonic() + 1
        while pending and time.monotonic() < deadline:
            try:
                pending = pending[slow.socket.send(pending) :]
            except BlockingIOError:
                break
        slow.socket.setblocking(True)
        slow.socket.settimeout(10)
        assert api_versions(good).error_code == 0

        def held_bytes() -> int:
            return sum(
                c.transport.get_write_buffer_size() + c.parts_bytes + c.reader.buffered_bytes
                for c in running.node.connections.values()
            )

        assert running.call(held_bytes) < 2_000_000
        sent = (count * len(request) - len(pending)) // len(request)
        for _ in range(sent):  # and all that was asked is answered once it reads
            slow.frame()


def test_a_node_reads_no_further_while_a_request_is_unanswered() -> None:
    contexts: list[RequestContext] = []
    with (
        handler_for(METADATA, parking(contexts)),
        running_node() as running,
        Client(running.port, timeout=0.3) as client,
    ):
        client.send(request_bytes(METADATA, 1, MetadataRequest()))
        data = request_bytes(API_VERSIONS, 0, ApiVersionsRequest())
        with pytest.raises(TimeoutError):
            while True:
                client.send(data * 10_000)
        (connection,) = running.node.connections.values()
        assert connection.reader.buffered_bytes <= 4 * READ_AHEAD
        assert connection.session.waiting_bytes == 0
        client.socket.settimeout(10)
        running.call(lambda: (contexts[0].reply(MetadataResponse()), running.node.tick()))
        client.frame()
        assert api.parse_response(API_VERSIONS, 0, client.frame())[1].error_code == 0


# ---- start and stop


def test_a_port_in_use_is_one_clear_line() -> None:
    with running_node() as running:
        node = Node(
            running.node.config.__class__({"listeners": f"PLAINTEXT://127.0.0.1:{running.port}"})
        )
        with pytest.raises(NodeError, match=r"127\.0\.0\.1:\d+ .*taken"):
            node.bind()


def test_a_stop_closes_connections_and_the_broker() -> None:
    with running_node() as running, Client(running.port) as client:
        assert api_versions(client).error_code == 0
        running.stop()
        assert client.is_closed()
        assert isinstance(running.broker, StubBroker)
        assert running.broker.closed_cleanly
        with pytest.raises(ConnectionRefusedError):
            Client(running.port)


# ---- life cycle


def test_a_node_is_paused_and_resumed_only_while_it_serves() -> None:
    with running_node() as running:
        node = running.node
        assert node.state is SERVING
        running.call(node.resume)
        assert node.state is SERVING
        for _ in range(2):
            running.call(node.pause)
            assert node.state is PAUSED and node.accepts_connections
        running.call(node.resume)
        with Client(running.port) as client:
            assert api_versions(client).error_code == 0
        running.stop()
        assert node.state is STOPPED and not node.accepts_connections
        running.call(node.pause)
        running.call(node.resume)
        running.call(node.kill)
        assert node.state is STOPPED


def test_a_paused_node_accepts_a_connection_and_serves_it_when_it_resumes() -> None:
    """Also requests of a client that has said all it will say, and of one that has gone."""
    with running_node() as running:
        running.call(running.node.pause)
        with Client(running.port) as client, Client(running.port) as gone:
            gone.send(request_bytes(API_VERSIONS, 0, ApiVersionsRequest()))
            gone.socket.close()
            for correlation_id in (1, 2):
                client.send(request_bytes(API_VERSIONS, 0, ApiVersionsRequest(), correlation_id))
            client.socket.shutdown(socket.SHUT_WR)
            client.socket.settimeout(0.3)
            with pytest.raises(TimeoutError):
                client.receive(1)
            client.socket.settimeout(10)
            running.call(running.node.resume)
            answered = [api.parse_response(API_VERSIONS, 0, client.frame())[0] for _ in range(2)]
            assert answered == [1, 2]
            assert client.is_closed()
        until(lambda: not running.node.connections)


def test_a_paused_node_that_is_killed_resets_the_connections_that_it_holds() -> None:
    with running_node() as running:
        running.call(running.node.pause)
        with Client(running.port) as client:
            client.send(request_bytes(API_VERSIONS, 0, ApiVersionsRequest()))
            until(lambda: running.node.connections)
            running.call(running.node.kill)
            with pytest.raises((EOFError, ConnectionResetError)):
                client.receive(1)
        assert not running.node.connections


def test_a_node_that_is_killed_does_not_come_back() -> None:
    with running_node() as running:
        node = running.node
        running.call(node.kill)
        assert node.state is STOPPED
        for state in (STARTING, SERVING, PAUSED, STOPPING):
            with pytest.raises(AssertionError, match=f"stopped -> {state.value}"):
                node._move(state)
