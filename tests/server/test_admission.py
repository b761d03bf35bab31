"""Connections that wait for max.connections and for rates of new connections, on sockets (ConnectionQuotas)."""

from __future__ import annotations

import select
import time
from collections.abc import Iterator
from typing import Any

import pytest
import server_harness
from server_harness import Client, RunningNode, request_bytes, running_node

from kwire.protocol.schemas.api_versions import ApiVersionsRequest
from kwire.server.node import PAUSED

API_VERSIONS = 18
ASK = ApiVersionsRequest(client_software_name="c", client_software_version="1")
TWO = {
    "listeners": "PLAINTEXT://127.0.0.1:0,INNER://127.0.0.1:0",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,INNER:PLAINTEXT",
    "inter.broker.listener.name": "INNER",
}
# Of two windows the one before the first connection counts as a whole one: one connection in each of two seconds.
SHORT = {"quota.window.num": "2", "quota.window.size.seconds": "1"}
ONE_A_SECOND = {**SHORT, "max.connection.creation.rate": "1"}


@pytest.fixture(autouse=True, params=["uvloop", "asyncio"])
def loop_kind(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "asyncio":
        import asyncio

        monkeypatch.setattr(server_harness, "new_event_loop", asyncio.new_event_loop)
    else:
        pytest.importorskip("uvloop")


def works(client: Client) -> bool:
    """Whether a client is answered; who was silent for longer than it is known to a millisecond, which passes."""
    response = client.ask(API_VERSIONS, 3, ASK)
    answered_ms = time.monotonic_ns() // 1_000_000
    while time.monotonic_ns() // 1_000_000 == answered_ms:
        pass
    return bool(response.error_code == 0)


def post(client: Client) -> None:
    client.send(request_bytes(API_VERSIONS, 3, ASK))


def waits(client: Client, beside: Client) -> bool:
    """Whether a request that was posted is not answered when later ones of another client are."""
    for _ in range(3):
        assert works(beside)
    return not select.select([client.socket], [], [], 0)[0]


def inner(running: RunningNode) -> Client:
    return Client(running.node.listeners[1].port)


def change(running: RunningNode, **keys: str) -> None:
    values = {key.replace("_", "."): value for key, value in keys.items()}
    running.call(lambda: running.node.config.set_dynamic(values, {}))


@pytest.fixture
def two() -> Iterator[RunningNode]:
    with running_node({"max.connections": "2"}) as running:
        yield running


def test_a_connection_waits_for_a_place(two: RunningNode) -> None:
    with Client(two.port) as one, Client(two.port) as other:
        assert works(one) and works(other)
        with Client(two.port) as third, Client(two.port) as fourth:
            post(third), post(fourth)
            assert waits(third, one)
            other.socket.close()
            assert third.frame()
            assert waits(fourth, third)
            third.socket.close()
            assert fourth.frame()


def test_who_goes_while_waiting_takes_no_place(two: RunningNode) -> None:
    with Client(two.port) as one, Client(two.port) as other:
        assert works(one) and works(other)
        with Client(two.port) as third, Client(two.port) as fourth:
            post(third), post(fourth)
            assert waits(third, one)
            third.socket.setsockopt(1, 13, b"\1\0\0\0\0\0\0\0")  # SO_LINGER: a reset
            third.socket.close()
            assert waits(fourth, one)
            other.socket.close()
            assert fourth.frame()


def test_limits_change_at_run_time(two: RunningNode) -> None:
    with Client(two.port) as one, Client(two.port) as other, Client(two.port) as third:
        assert works(other) and works(one)
        post(third)
        assert waits(third, one)
        change(two, max_connections="3")
        assert third.frame()
        assert works(one) and works(third)
        change(two, max_connections="2")
        assert other.is_closed()  # it was silent for the longest time
        assert works(one) and works(third)


def test_a_limit_that_comes_later_closes_what_is_too_much() -> None:
    with running_node() as running, Client(running.port) as one, Client(running.port) as other:
        assert works(one) and works(other)
        change(running, max_connections="1")
        assert one.is_closed()
        assert works(other)


def test_a_listener_has_a_limit_of_its_own() -> None:
    limits = {**TWO, "listener.name.plaintext.max.connections": "1"}
    with running_node(limits) as running, Client(running.port) as one, inner(running) as other:
        assert works(one) and works(other)
        with Client(running.port) as second, inner(running) as third:
            post(second)
            assert works(third)
            assert waits(second, third)
            one.socket.close()
            assert second.frame()


def test_brokers_come_in_and_the_silent_client_goes() -> None:
    limits = {**TWO, "max.connections": "2"}
    with (
        running_node(limits) as running,
        Client(running.port) as silent,
        Client(running.port) as busy,
    ):
        assert works(silent) and works(busy)
        with inner(running) as broker:
            assert works(broker)
            assert silent.is_closed()
            assert works(busy)
            with Client(running.port) as waiting:
                post(waiting)
                assert waits(waiting, busy)


def test_without_another_listener_nobody_is_protected() -> None:
    keys = {"max.connections": "1", "inter.broker.listener.name": "PLAINTEXT"}
    with running_node(keys) as running, Client(running.port) as one:
        assert works(one)
        with Client(running.port) as second:
            post(second)
            assert waits(second, one)


def test_connections_above_the_rate_are_accepted_later() -> None:
    with running_node(ONE_A_SECOND) as running:
        begin = time.monotonic()
        with Client(running.port) as one, Client(running.port) as second:
            post(second)
            assert works(one)
            assert second.frame()
            assert 0.95 < time.monotonic() - begin < 5


def test_a_listeners_rate_is_for_its_connections() -> None:
    keys = {**TWO, **SHORT, "listener.name.plaintext.max.connection.creation.rate": "1"}
    with running_node(keys) as running:
        begin = time.monotonic()
        with Client(running.port) as one, Client(running.port) as second:
            post(second)
            assert works(one)
            for _ in range(3):
                with inner(running) as broker:
                    assert works(broker)
            assert second.frame()
            assert time.monotonic() - begin > 0.95


def test_the_brokers_rate_is_not_for_brokers() -> None:
    keys = {**TWO, **ONE_A_SECOND, "listener.name.inner.max.connection.creation.rate": "1000"}
    with running_node(keys) as running:
        begin = time.monotonic()
        for _ in range(3):
            with inner(running) as broker:
                assert works(broker)
        assert not running.node._limits.admission._rates.get("")
        with Client(running.port) as one, Client(running.port) as second:
            assert works(one) and works(second)
        assert time.monotonic() - begin > 0.95


def set_ip_quota(running: RunningNode, entity: str, rate: str | None) -> None:
    values = {} if rate is None else {"connection_creation_rate": rate}
    services: Any = running.broker.sessions.services
    services.config, services.clock = running.node.config, running.node.clock
    services.timers = running.broker.timers
    running.call(lambda: running.broker.quotas_changed(entity, values))


@pytest.mark.parametrize("entity", ["ip=127.0.0.1", "ip=localhost", "ip"])
def test_an_ip_above_its_rate_is_closed_after_its_throttle_time(entity: str) -> None:
    with running_node(SHORT) as running:
        set_ip_quota(running, entity, "1.0")
        begin = time.monotonic()
        with Client(running.port) as one, Client(running.port) as second:
            post(second)
            assert works(one)
            with pytest.raises((EOFError, ConnectionResetError)):
                second.frame()
            assert 0.95 < time.monotonic() - begin < 5
            assert works(one)
        set_ip_quota(running, entity, None)
        with Client(running.port) as third:
            assert works(third)


def test_an_ip_of_its_own_goes_before_the_default() -> None:
    with running_node(SHORT) as running:
        set_ip_quota(running, "ip", "1.0")
        set_ip_quota(running, "ip=127.0.0.1", "1000.0")
        set_ip_quota(running, "ip=%3A%3A1", "1.0")
        for _ in range(3):
            with Client(running.port) as client:
                assert works(client)


def test_connections_of_an_ip_are_counted_once_they_are_accepted() -> None:
    limits = {"max.connections": "2", "max.connections.per.ip": "2"}
    with running_node(limits) as running, Client(running.port) as one, Client(running.port) as two:
        assert works(one) and works(two)
        with Client(running.port) as third:
            post(third)
            assert waits(third, two)
            one.socket.close()
            assert third.frame()
        change(running, max_connections="10")
        with Client(running.port) as more, Client(running.port) as last:
            assert works(more)
            assert last.is_closed()


def test_a_node_that_is_paused_accepts_nobody(two: RunningNode) -> None:
    with Client(two.port) as one:
        assert works(one)
        two.call(two.node.pause)
        assert two.node.state is PAUSED
        with Client(two.port) as second, Client(two.port) as third:
            post(second), post(third)
            two.call(lambda: None)
            two.call(two.node.resume)
            assert second.frame()
            assert waits(third, one)


def test_a_node_stops_while_connections_wait(two: RunningNode) -> None:
    with Client(two.port) as one, Client(two.port) as other, Client(two.port) as third:
        assert works(one) and works(other)
        post(third)
        assert waits(third, one)
        two.stop()
        assert third.is_closed()
