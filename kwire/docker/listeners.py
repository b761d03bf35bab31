"""Listeners of a container from its variables, as people and test frameworks write them. No sockets.

Accepted: empty hosts, a trailing comma, two addresses from `hostname -i`, any order. Where only the
advertised addresses are given, their ports are bound, as in apache/kafka; so is 9092, the port that
the image exposes, because `-p 19192:9092` is what most people publish beside an advertised 19192.
"""

from __future__ import annotations

from kwire.replication.config.table import BROKER_KEYS
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
    advertised = tidy_listeners(values.pop("advertised.listeners", ""))
    _check_names("KAFKA_ADVERTISED_LISTENERS", advertised)
    # Controller listeners must not be advertised, but some set-ups do so.
    kept = [item for item in advertised.split(",") if item and _name(item) not in controllers]
    if kept:
        values["advertised.listeners"] = ",".join(kept)
    listeners = tidy_listeners(values.get("listeners", ""))
    _check_names("KAFKA_LISTENERS", listeners)
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
    known = dict(pair.strip().upper().split(":", 1) for pair in protocols.split(",") if ":" in pair)
    wanted = range(EXPOSED_PORT, EXPOSED_PORT + brokers)
    if known.get(_name(item)) != "PLAINTEXT" or set(wanted) & set(_ports(values, brokers)):
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
    return [item for item in items if _host(item) in _LOOPBACK and _name(item) not in controllers]


def advertised_addresses(values: Mapping[str, str], brokers: int = 1) -> list[str]:
    """The addresses that clients are given, each once: those of the first broker and the last."""
    given = values.get("advertised.listeners") or ",".join(
        f"{_name(item)}://{_advertised_host(item)}:{item.rpartition(':')[2]}"
        for item in values["listeners"].split(",")
    )
    controllers = controller_names(values)
    found = []
    for item in given.split(","):
        if _name(item) not in (*controllers, EXPOSED_NAME):
            host, _, port = item.partition("://")[2].rpartition(":")
            last = f"-{int(port) + brokers - 1}" if brokers > 1 and port.isdigit() else ""
            found.append(f"{host}:{port}{last}")
    return list(dict.fromkeys(found))


def health_address(listeners: str, names: str) -> str:
    """HOST:PORT of the first client listener, as seen from inside the container. `names`: of
    the controller listeners."""
    controllers = [name.strip().upper() for name in names.split(",")]
    items = listeners.split(",")
    first = next((item for item in items if _name(item) not in controllers), items[0])
    host, port = _host(first), first.rpartition(":")[2]
    return f"{'127.0.0.1' if host in ('', '0.0.0.0', '::', '[::]') else host}:{port}"


def _check_names(variable: str, listeners: str) -> None:
    """SettingsError when a listener has no name: the most common slip."""
    for item in listeners.split(",") if listeners else ():
        if not item.partition("://")[1]:
            raise SettingsError(
                f"{variable}={listeners}: listeners are NAME://HOST:PORT,"
                f" as in PLAINTEXT://localhost:9092, not {item!r}"
            )


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
