"""Listeners of a container from its variables, as people and test frameworks write them. No sockets.

Accepted: empty hosts, a trailing comma, two addresses from `hostname -i`, any order. Where only the
advertised addresses are given, their ports are bound, as in apache/kafka; so is 9092, the port that
the image exposes, because `-p 19192:9092` is what most people publish beside an advertised 19192.
"""

from __future__ import annotations

from kwire.replication.config.table import BROKER_KEYS
from kwire.replication.core.types import INTERNAL_LISTENER
from kwire.server.errors import SettingsError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

DEFAULT_LISTENERS = "PLAINTEXT://0.0.0.0:9092"
EXPOSED_PORT = 9092
EXPOSED_NAME = "KWIRE_EXPOSED"
"""The listener at the exposed port when another port is advertised."""
_MAP = "listener.security.protocol.map"
_LOOPBACK = ("localhost", "127.0.0.1", "[::1]")


def controller_names(values: Mapping[str, str]) -> list[str]:
    """The names of controller listeners, in capitals."""
    given = values.get("controller.listener.names", "CONTROLLER")
    return [name.strip().upper() for name in given.split(",")]


def tidy_listeners(text: str) -> str:
    """Normalize listeners: no empty items, one address per listener.

    Of several addresses (`hostname -i` in a container on several networks) the first IPv4 one is used.
    """
    items = []
    for item in text.split(","):
        name, separator, address = item.strip().partition("://")
        if not name and not separator:
            continue
        host, colon, port = address.rpartition(":")
        words = host.split()
        if len(words) > 1:
            host = next((word for word in words if ":" not in word), words[0])
            if ":" in host and not host.startswith("["):
                host = f"[{host}]"
        else:
            host = host.strip()
        items.append(f"{name.strip()}{separator}{host}{colon}{port.strip()}")
    return ",".join(items)


def set_listeners(values: dict[str, str]) -> bool:
    """Normalize both keys; derive missing `listeners` from the advertised ones, as apache/kafka
    does, or use the default. Return whether they were derived."""
    controllers = controller_names(values)
    given = values.pop("advertised.listeners", "")
    advertised = tidy_listeners(given)
    _check("KAFKA_ADVERTISED_LISTENERS", given, advertised)
    # Controller listeners must not be advertised, but some set-ups do so.
    kept = [item for item in advertised.split(",") if item and _name(item) not in controllers]
    if kept:
        values["advertised.listeners"] = ",".join(kept)
    written = values.get("listeners", "")
    listeners = tidy_listeners(written)
    _check("KAFKA_LISTENERS", written, listeners)
    for variable, text, items in (
        ("KAFKA_ADVERTISED_LISTENERS", given, kept),
        ("KAFKA_LISTENERS", written, listeners.split(",") if listeners else []),
    ):
        _check_together(variable, text, items, values, controllers)
    derived = not listeners and bool(kept)
    if not listeners:
        bound = [f"{item.partition('://')[0]}://0.0.0.0:{item.rpartition(':')[2]}" for item in kept]
        listeners = ",".join(bound) or DEFAULT_LISTENERS
    values["listeners"] = listeners
    if _MAP in values:
        items = values[_MAP].split(",")
        values[_MAP] = ",".join(item.strip() for item in items if item.strip())
    return derived


def add_exposed_port(values: dict[str, str], brokers: int, is_free: Callable[[int], bool]) -> None:
    """Bind 9092 too (the next broker: 9093, …), for what is advertised for clients on the host: the
    first listener with a loopback address, else the first. Not when a port of them is in use."""
    items = values["advertised.listeners"].split(",")
    item = next((each for each in items if _host(each) in _LOOPBACK), items[0])
    protocols = values.get(_MAP) or str(BROKER_KEYS[_MAP][1])
    wanted = range(EXPOSED_PORT, EXPOSED_PORT + brokers)
    if protocols_of(values).get(_name(item)) != "PLAINTEXT" or set(wanted) & set(
        _ports(values, brokers)
    ):
        return
    if not all(map(is_free, wanted)):
        return
    values[_MAP] = f"{protocols},{EXPOSED_NAME}:PLAINTEXT"
    values["listeners"] += f",{EXPOSED_NAME}://0.0.0.0:{EXPOSED_PORT}"
    values["advertised.listeners"] += f",{EXPOSED_NAME}://{item.partition('://')[2]}"


def check_ports(values: Mapping[str, str], brokers: int, control_port: int | None) -> None:
    """SettingsError when a port would be bound twice: the ports of several brokers count up."""
    ports = _ports(values, brokers)
    given = f"KAFKA_LISTENERS={values['listeners']}"
    if brokers > 1:
        given = f"KWIRE_BROKERS={brokers}, {given}: the ports of each broker are one higher, and"
        twice = next((port for port in ports if ports.count(port) > 1), None)
        if twice is not None:
            advice = f"leave {brokers} ports for each listener"
            raise SettingsError(f"{given} {twice} would be bound twice; {advice}")
        if max(ports, default=0) > 65535:
            raise SettingsError(f"{given} the last one's would be {max(ports)}")
    if control_port in ports:
        raise SettingsError(f"KWIRE_CONTROL_PORT={control_port}: a broker listens on this port")


def unreachable_listeners(values: Mapping[str, str]) -> list[str]:
    """The listeners bound to a loopback address: a published port does not lead to them."""
    controllers = controller_names(values)
    items = values["listeners"].split(",")
    inside = (*controllers, INTERNAL_LISTENER)
    return [item for item in items if _host(item) in _LOOPBACK and _name(item) not in inside]


def advertised_addresses(values: Mapping[str, str], brokers: int = 1) -> list[str]:
    """The addresses that clients are given, each once: those of the first broker and the last."""
    given = values.get("advertised.listeners") or ",".join(
        f"{_name(item)}://{_advertised_host(item)}:{item.rpartition(':')[2]}"
        for item in values["listeners"].split(",")
    )
    controllers = controller_names(values)
    found = []
    for item in given.split(","):
        if _name(item) not in (*controllers, EXPOSED_NAME, INTERNAL_LISTENER):
            host, _, port = item.partition("://")[2].rpartition(":")
            last = f"-{int(port) + brokers - 1}" if brokers > 1 and port.isdigit() else ""
            found.append(f"{host or 'localhost'}:{port}{last}")
    return list(dict.fromkeys(found))


def health_address(values: Mapping[str, str]) -> tuple[str, bool]:
    """HOST:PORT of the first client listener that does not ask for TLS, else of the first one, as seen from inside the
    container, and whether it asks for TLS."""
    controllers = controller_names(values)
    protocols = protocols_of(values)
    items = values["listeners"].split(",")
    kept = [item for item in items if _name(item) not in controllers] or items
    tls = [item for item in kept if protocols.get(_name(item), "").endswith("SSL")]
    first = next((item for item in kept if item not in tls), kept[0])
    host, port = _host(first), first.rpartition(":")[2]
    address = f"{'127.0.0.1' if host in ('', '0.0.0.0', '::', '[::]') else host}:{port}"
    return address, first in tls


def _check(variable: str, written: str, listeners: str) -> None:
    """SettingsError when a listener lacks its name or its port, with what was written: common slips."""
    for item in listeners.split(",") if listeners else ():
        name, separator, address = item.partition("://")
        host, colon, port = address.rpartition(":")
        if not separator:
            missing = "has no name"
        elif not name:
            missing = "has no name before ://"
        elif not colon or host.startswith("[") > host.endswith("]"):
            missing = "has no port"
        elif not (port.isascii() and port.isdigit() and len(port) < 6 and int(port) < 65536):
            missing = f"has no port from 0 to 65535, but {port!r}"
        elif ":" in host and not host.startswith("["):
            missing = "has an IPv6 address, which stands in brackets: [::1]:9092"
        else:
            continue
        raise SettingsError(
            f"{variable}={written.strip()}: {item!r} {missing}; listeners are NAME://HOST:PORT,"
            " as in PLAINTEXT://localhost:9092"
        )


def _check_together(
    variable: str,
    written: str,
    items: list[str],
    values: Mapping[str, str],
    controllers: list[str],
) -> None:
    """SettingsError when a name comes twice, has no protocol, or an address cannot be advertised."""
    names = [_name(item) for item in items]
    given = f"{variable}={written.strip()}"
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise SettingsError(f"{given}: {twice} comes twice; each listener needs a name of its own")
    protocols = values.get(_MAP) or str(BROKER_KEYS[_MAP][1])
    mapped = {pair.strip().upper().partition(":")[0] for pair in protocols.split(",")}
    for item in items:
        if _name(item) not in (*mapped, *controllers):
            raise SettingsError(
                f"{given}: listener {_name(item)} has no protocol; name it PLAINTEXT, or add"
                f" {_name(item)}:PLAINTEXT to KAFKA_LISTENER_SECURITY_PROTOCOL_MAP"
            )
        if variable == "KAFKA_ADVERTISED_LISTENERS" and _host(item) in ("0.0.0.0", "[::]"):
            raise SettingsError(
                f"{given}: clients cannot connect to {_host(item)}; advertise a name or an address"
                " by which they reach this container"
            )


def protocols_of(values: Mapping[str, str]) -> dict[str, str]:
    """The security protocol of each listener's name."""
    text = values.get(_MAP) or str(BROKER_KEYS[_MAP][1])
    return dict(pair.strip().upper().split(":", 1) for pair in text.split(",") if ":" in pair)


def _name(item: str) -> str:
    return item.partition("://")[0].strip().upper()


def _host(item: str) -> str:
    return item.partition("://")[2].rpartition(":")[0]


def _advertised_host(item: str) -> str:
    host = _host(item)
    return "localhost" if host in ("", "0.0.0.0", "::", "[::]") else host


def _ports(values: Mapping[str, str], brokers: int) -> list[int]:
    """All ports that the brokers bind; what is no port is refused elsewhere."""
    controllers = controller_names(values)
    items = values["listeners"].split(",")
    texts = [item.rpartition(":")[2] for item in items if _name(item) not in controllers]
    first = [int(text) for text in texts if text.isascii() and text.isdigit() and int(text)]
    return [port + number for number in range(brokers) for port in first]
