"""Listener keys: what they mean, and one line for what they cannot mean."""

import select
import socket
from contextlib import ExitStack
from pathlib import Path

import pytest

from kwire.replication.config.broker_config import BrokerConfig, ConfigError
from kwire.server.listeners import Listener, bind, inter_broker_listener, parse_listeners


def listeners(**values: str) -> list[Listener]:
    return parse_listeners(BrokerConfig({key.replace("_", "."): v for key, v in values.items()}))


def test_names_hosts_and_ports_in_order() -> None:
    found = listeners(
        listeners="plaintext://127.0.0.1:9092, INTERNAL://[::1]:0",
        listener_security_protocol_map="PLAINTEXT:PLAINTEXT,INTERNAL:plaintext",
    )
    assert [(x.name, x.host, x.port, x.security_protocol) for x in found] == [
        ("PLAINTEXT", "127.0.0.1", 9092, "PLAINTEXT"),
        ("INTERNAL", "::1", 0, "PLAINTEXT"),
    ]
    assert repr(found[1]) == "INTERNAL://[::1]:0"


@pytest.mark.parametrize(
    ("host", "advertised"),
    [
        ("", "localhost"),
        ("0.0.0.0", "localhost"),
        ("[::]", "localhost"),
        ("127.0.0.1", "127.0.0.1"),
    ],
)
def test_a_listener_advertises_its_host_or_localhost(host: str, advertised: str) -> None:
    (listener,) = listeners(listeners=f"PLAINTEXT://{host}:9092")
    assert (listener.advertised_host, listener.advertised_port) == (advertised, 0)


def test_what_is_advertised_can_be_said_for_some_listeners() -> None:
    one, two = listeners(
        listeners="PLAINTEXT://:9092,INTERNAL://127.0.0.1:9094",
        advertised_listeners="PLAINTEXT://kafka.example:29092",
        listener_security_protocol_map="PLAINTEXT:PLAINTEXT,INTERNAL:PLAINTEXT",
    )
    assert (one.advertised_host, one.advertised_port) == ("kafka.example", 29092)
    assert (two.advertised_host, two.advertised_port) == ("127.0.0.1", 0)


def test_the_controllers_listener_of_a_kraft_configuration_is_left_out() -> None:
    (listener,) = listeners(
        listeners="PLAINTEXT://:9092,CONTROLLER://:9093",
        controller_listener_names="CONTROLLER",
        process_roles="broker,controller",
    )
    assert listener.name == "PLAINTEXT"


def test_brokers_come_over_the_listener_that_is_named_or_has_the_protocol() -> None:
    both = {
        "listeners": "A://:1,B://:2",
        "listener_security_protocol_map": "A:PLAINTEXT,B:PLAINTEXT",
    }
    for values, expected in ((both | {"inter_broker_listener_name": "b"}, "B"), (both, "A")):
        config = BrokerConfig({key.replace("_", "."): v for key, v in values.items()})
        assert inter_broker_listener(config, parse_listeners(config)).name == expected


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"listeners": ""}, "NAME://host:port"),
        ({"listeners": "PLAINTEXT://localhost"}, "port of 0 to 65535"),
        ({"listeners": "PLAINTEXT://localhost:65536"}, "port of 0 to 65535"),
        ({"listeners": "PLAINTEXT://::1:9092"}, "brackets"),
        ({"listeners": "PLAINTEXT://:1,PLAINTEXT://:2"}, "different name"),
        ({"listeners": "PLAINTEXT://:1,SSL://:1"}, "different port"),
        ({"listeners": "X://:1"}, "No security protocol defined for listener X"),
        ({"listener.security.protocol.map": "PLAINTEXT:TLS"}, "must be one of PLAINTEXT, SSL"),
        ({"advertised.listeners": "OTHER://h:1"}, "not one of the listeners"),
        ({"advertised.listeners": "PLAINTEXT://0.0.0.0:1"}, "nonroutable"),
        ({"inter.broker.listener.name": "OTHER"}, "defined in listeners"),
    ],
)
def test_what_cannot_be_is_refused_with_key_and_value(values: dict[str, str], words: str) -> None:
    with pytest.raises(ConfigError, match=words) as refused:
        parse_listeners(BrokerConfig(values))
    (value,) = values.values()
    assert refused.value.key == next(iter(values))
    assert refused.value.value == value


# ---- the queue of connections


def test_many_clients_may_connect_while_the_loop_is_busy() -> None:
    """Linux drops the SYN of a client that finds the queue full; the next one comes a second later."""
    config = BrokerConfig({"listeners": "PLAINTEXT://127.0.0.1:0"})
    (listener,) = parse_listeners(config)
    connected = select.poll()
    clients = min(int(Path("/proc/sys/net/core/somaxconn").read_text()), 800)
    with bind(listener, config) as bound, ExitStack() as stack:
        for _ in range(clients):
            client = stack.enter_context(socket.socket())
            client.setblocking(False)
            client.connect_ex(bound.getsockname())
            connected.register(client, select.POLLOUT)
        assert len(connected.poll(0)) == clients
    assert config.socket_listen_backlog_size == 50, "what DescribeConfigs shows"
