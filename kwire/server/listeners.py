"""Listeners: the addresses at which a node accepts connections, and those that it advertises.

Corresponds to KafkaConfig's listener keys and SocketServer.parse: `listeners`, `advertised.listeners`,
`listener.security.protocol.map`, `inter.broker.listener.name`, `security.inter.broker.protocol`,
`controller.listener.names` (those listeners are left out: kwire's controller needs no port).

One deviation: a listener on every interface (no host, 0.0.0.0, ::) is advertised as `localhost`, where
Kafka uses the machine's name or refuses. Clients of a test broker are usually on the same machine.
"""

from __future__ import annotations

import os
import socket
from errno import EADDRINUSE

from kwire.replication.config.broker_config import BrokerConfig, ConfigError
from kwire.replication.core.types import (
    AUTHORIZER_KEY,
    INTERNAL_LISTENER,
    SASL_PLAINTEXT,
    SECURITY_PROTOCOLS,
)
from kwire.server.descriptors import is_shortage
from kwire.server.errors import NodeError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from ssl import SSLContext
    from typing import Any

    from kwire.replication.core.metadata import Endpoint
    from kwire.server.access.logins import Logins
    from kwire.server.connection import Connection

PLAINTEXT, SSL, _, SASL_SSL = SECURITY_PROTOCOLS
_SECURED = ("listener.name.", "sasl.", "security.", "ssl.")
"""Keys of a controller whose brokers may ask for TLS or a log-in begin so."""
_EVERY_INTERFACE = ("", "0.0.0.0", "::")
_BACKLOG_MIN = 4096


class Listener:
    """The address to bind and the address to advertise. Port 0: an ephemeral port, known after `bind`.

    `advertised_port` 0 means: the bound port. `login_bytes`: of the largest request before a log-in; 0: nobody logs in.
    `tls`, `connection_type`: of a listener that asks for TLS.
    """

    __slots__ = (
        "advertised_host",
        "advertised_port",
        "connection_type",
        "host",
        "login_bytes",
        "name",
        "port",
        "security_protocol",
        "tls",
    )

    def __init__(
        self, name: str, security_protocol: str, host: str, port: int, advertised: tuple[str, int]
    ) -> None:
        self.name = name
        self.security_protocol = security_protocol
        self.host = host
        self.port = port
        self.advertised_host, self.advertised_port = advertised
        self.login_bytes = 0
        self.tls: SSLContext | None = None
        self.connection_type: type[Connection] | None = None

    @property
    def is_plaintext(self) -> bool:
        """Whether it asks for neither a log-in nor TLS."""
        return self.security_protocol == PLAINTEXT

    @property
    def asks_login(self) -> bool:
        """Whether its clients have to authenticate (SASL)."""
        return self.security_protocol in (SASL_PLAINTEXT, SASL_SSL)

    @property
    def asks_tls(self) -> bool:
        """Whether its clients have to speak TLS."""
        return self.security_protocol in (SSL, SASL_SSL)

    def __repr__(self) -> str:
        return f"{self.name}://{format_address(self.host, self.port)}"


def format_address(host: str, port: int) -> str:
    """Format host:port, with brackets around an IPv6 address."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def reachable(address: str) -> tuple[str, int]:
    """Host and port to connect to a bound address from this machine; wildcards become loopback."""
    host, _, port = address.rpartition(":")
    host = host.strip("[]")
    return {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host), int(port)


def parse_address(key: str, value: str, text: str) -> tuple[str, int]:
    """Parse "host:port", "[v6]:port" or ":port". ConfigError."""
    host, colon, port = text.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise ConfigError(key, value, f"an IPv6 address stands in brackets, [::1]:9092, not {text}")
    if not colon or not (port.isascii() and port.isdigit()) or int(port) > 65535:
        raise ConfigError(
            key, value, f"expected NAME://host:port with a port of 0 to 65535, not {text}"
        )
    return host, int(port)


def _parse_list(key: str, value: str) -> dict[str, tuple[str, int]]:
    """Parse NAME://host:port,… in order. ConfigError for a malformed item or a duplicate name."""
    found: dict[str, tuple[str, int]] = {}
    for item in value.split(","):
        name, separator, address = item.strip().partition("://")
        if not separator or not name:
            raise ConfigError(key, value, f"expected NAME://host:port, not {item.strip()!r}")
        name = name.upper()
        if name in found:
            raise ConfigError(
                key, value, f"Each listener must have a different name, {name} comes twice"
            )
        found[name] = parse_address(key, value, address)
    return found


def _protocol_map(config: BrokerConfig) -> dict[str, str]:
    key, value = "listener.security.protocol.map", config.listener_security_protocol_map
    protocols: dict[str, str] = {}
    for item in filter(None, (part.strip() for part in value.split(","))):
        name, _, protocol = item.partition(":")
        if protocol.upper() not in SECURITY_PROTOCOLS:
            allowed = ", ".join(SECURITY_PROTOCOLS)
            raise ConfigError(key, value, f"{item!r}: the protocol must be one of {allowed}")
        protocols[name.upper()] = protocol.upper()
    return protocols


def parse_listeners(config: BrokerConfig) -> list[Listener]:
    """The client listeners of a configuration, in order.

    ConfigError names the key, the value and the allowed values."""
    value = config.listeners
    bound = _parse_list("listeners", value)
    of_controllers = controller_names(config)
    for name in of_controllers:
        if len(bound) > 1:
            bound.pop(name, None)
    ports = [port for _, port in bound.values() if port != 0]
    if len(set(ports)) < len(ports):
        raise ConfigError("listeners", value, "Each listener must have a different port")
    advertised = _advertised(config, bound)
    protocols = _protocol_map(config)
    listeners = []
    for name, (host, port) in bound.items():
        protocol = protocols.get(name)
        if protocol is None:
            reason = f"No security protocol defined for listener {name} in listener.security.protocol.map"
            raise ConfigError("listeners", value, reason)
        listeners.append(Listener(name, protocol, host, port, advertised[name]))
    if listeners[0].name not in of_controllers:  # of a controller's node, which is no broker
        _check_inter_broker(config, listeners)
    return listeners


def _advertised(
    config: BrokerConfig, bound: dict[str, tuple[str, int]]
) -> dict[str, tuple[str, int]]:
    """The advertised address of each listener; port 0 means the bound port."""
    advertised = {
        name: ("localhost" if host in _EVERY_INTERFACE else host, 0)
        for name, (host, _) in bound.items()
    }
    value = config.advertised_listeners
    if not value:
        return advertised
    given = _parse_list("advertised.listeners", value)
    for name, (host, port) in given.items():
        if name not in bound:
            known = ", ".join(bound)
            reason = f"{name} is not one of the listeners ({known})"
            raise ConfigError("advertised.listeners", value, reason)
        if host in ("0.0.0.0", "::"):
            reason = "advertised.listeners cannot use the nonroutable meta-address 0.0.0.0"
            raise ConfigError("advertised.listeners", value, reason)
        advertised[name] = (host or "localhost", port)
    return advertised


def _check_inter_broker(config: BrokerConfig, listeners: list[Listener]) -> None:
    name = config.inter_broker_listener_name
    known = ", ".join(listener.name for listener in listeners)
    if name is not None and name.upper() not in [listener.name for listener in listeners]:
        reason = f"must be a listener name defined in listeners ({known})"
        raise ConfigError("inter.broker.listener.name", name, reason)
    protocol = config.security_inter_broker_protocol
    if name is None and protocol not in [each.security_protocol for each in listeners]:
        reason = (
            f"no listener speaks it ({known}); give {SASL_PLAINTEXT}, or inter.broker.listener.name"
        )
        raise ConfigError("security.inter.broker.protocol", protocol, reason)


def inter_broker_listener(config: BrokerConfig, listeners: list[Listener]) -> Listener:
    """The listener for other brokers: by name, else by security.inter.broker.protocol, else the
    first."""
    wanted = config.inter_broker_listener_name
    for listener in listeners:
        if wanted is not None and listener.name == wanted.upper():
            return listener
    for listener in listeners:
        if listener.security_protocol == config.security_inter_broker_protocol:
            return listener
    return listeners[0]


def own_listener(config: BrokerConfig, listeners: list[Listener]) -> Listener:
    """The listener for kwire itself: not the first one if that asks for a log-in or for TLS, or clients need rights."""
    if listeners[0].is_plaintext and not config.static.get(AUTHORIZER_KEY):
        return listeners[0]
    internal = [each for each in listeners if each.name == INTERNAL_LISTENER]
    return internal[0] if internal else inter_broker_listener(config, listeners)


def own_address(config: BrokerConfig, listeners: list[Listener]) -> tuple[str, int]:
    """Host and port for kwire itself, on this machine."""
    own = own_listener(config, listeners)
    return reachable(format_address(own.host, own.port))


def controller_names(config: BrokerConfig) -> list[str]:
    """The names of the controllers' listeners, in capitals; none: not given."""
    names = (config.controller_listener_names or "").upper().split(",")
    return [each.strip() for each in names if each.strip()]


def protocol_of(config: BrokerConfig, name: str) -> str:
    """The security protocol of a listener that need not be this node's; of one that is not mapped: PLAINTEXT."""
    return _protocol_map(config).get(name.upper(), PLAINTEXT)


def logins_of(config: BrokerConfig, listeners: list[Listener], role: str) -> Logins | None:
    """The log-ins and TLS of a node; None: neither at its listeners nor at other nodes'. `role`: "broker",
    "controller" or "standalone". ConfigError."""
    if all(each.is_plaintext for each in listeners):
        if role == "broker":
            asks = config.controller_listener_names is not None
        else:
            asks = role == "controller" and any(key.startswith(_SECURED) for key in config.static)
        if not asks:
            return None
    from kwire.server.access.logins import Logins

    return Logins(config, listeners, is_controller=role == "controller", alone=role == "standalone")


def controller_keys(values: Mapping[str, str], of_brokers: Mapping[str, str]) -> dict[str, str]:
    """The keys of a controller with one plaintext listener, `values`, made as secure as its brokers' keys say."""
    from kwire.server.access.controllers import secured

    return secured(values, of_brokers)


class _ListeningSocket(socket.socket):
    """Accepts no connection while no descriptor is left, as if none had come: they wait.

    asyncio's own loop would write a traceback, as often as connections may wait, and try again after
    one second, more often each time; whoever does not read stderr stopped the broker. uvloop, which
    accepts by itself, closes such connections."""

    def accept(self) -> tuple[socket.socket, Any]:
        try:
            return super().accept()
        except OSError as error:
            if is_shortage(error):
                raise BlockingIOError from None
            raise


def bind(listener: Listener, config: BrokerConfig) -> socket.socket:
    """Bind a listening socket. Clients that connect before the node is ready wait in the backlog.

    Buffers have the configured sizes; by default the kernel's (growing), not Kafka's 100 KiB.
    """
    backlog = backlog_of(config)
    address = format_address(listener.host, listener.port)
    try:
        if not listener.host and socket.has_dualstack_ipv6():
            bound = socket.create_server(
                ("", listener.port),
                family=socket.AF_INET6,
                backlog=backlog,
                dualstack_ipv6=True,
            )
        else:
            host = listener.host or "0.0.0.0"
            found = socket.getaddrinfo(
                # bytes: a str would import the IDNA tables
                host.encode() if host.isascii() else host,
                listener.port,
                type=socket.SOCK_STREAM,
            )
            # localhost: the address that clients try first
            found.sort(key=lambda entry: entry[0] != socket.AF_INET)
            family, _, _, _, target = found[0]
            bound = socket.create_server(target[:2], family=family, backlog=backlog)
        for option, key, size in (
            (socket.SO_RCVBUF, "socket.receive.buffer.bytes", config.socket_receive_buffer_bytes),
            (socket.SO_SNDBUF, "socket.send.buffer.bytes", config.socket_send_buffer_bytes),
        ):
            if config.is_set(key) and size > 0:
                bound.setsockopt(socket.SOL_SOCKET, option, size)  # accepted sockets inherit it
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        return _ListeningSocket(fileno=bound.detach())
    except OSError as error:
        if error.errno == EADDRINUSE:
            reason = "the port is taken by another process"
        else:
            # getaddrinfo has its own negative error numbers and texts.
            number = error.errno or 0
            reason = (os.strerror(number) if number > 0 else error.strerror or str(error)).lower()
        raise NodeError(
            f"cannot listen on {address} (listener {listener.name}): {reason}"
        ) from None


def endpoints(listeners: list[Listener]) -> list[Endpoint]:
    """The advertised endpoints of bound listeners."""
    from kwire.replication.core.metadata import Endpoint

    return [
        Endpoint(
            listener.name,
            listener.advertised_host,
            listener.advertised_port,
            SECURITY_PROTOCOLS.index(listener.security_protocol),
        )
        for listener in listeners
    ]


def backlog_of(config: BrokerConfig) -> int:
    """How many connections may wait to be accepted, as far as the system allows (net.core.somaxconn).

    Kafka has a thread that does nothing but accept; here its default of 50 would be full whenever the
    loop is busy for a moment, and a client whose SYN is dropped tries again after a second."""
    return max(config.socket_listen_backlog_size, _BACKLOG_MIN)
