"""The health file of a container: where its brokers listen, for the image's health check and tools.

One line per broker, "HOST PORT", and "tls" at its end if the listener asks for TLS; the first line has the id
of the process that wrote it after the port. The file exists while the nodes are ready. docker/bin/kwire-health
reads it. The image sets KWIRE_HEALTH_FILE,
so that `kwire up` in a container writes it, too."""

from __future__ import annotations

import os
import sys

from kwire.launch.process import remove

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

SEEN = ".seen"
"""Appended to the file's name: the health check has seen the nodes ready (docker/bin/kwire-health)."""


def write_health_file(path: str, addresses: str, *, is_tls: bool = False) -> None:
    """Write the file. `addresses`: HOST:PORT of each broker, with commas between; `is_tls`: these ask for TLS.
    A read-only container works without the file, with a line on stderr."""
    if _is_anothers(path):
        return
    split = [address.rpartition(":") for address in addresses.split(",")]
    lines = [f"{host.strip('[]')} {port}" for host, _, port in split]
    lines[0] += f" {os.getpid()}"
    if is_tls:
        lines = [f"{line} tls" for line in lines]
    remove(path + SEEN)  # of an earlier run in this container
    try:
        with open(path + ".new", "w", encoding="ascii") as file:
            file.write("\n".join([*lines, ""]))
        os.replace(path + ".new", path)
    except OSError as error:
        sys.stderr.write(f"kwire: no health check: {path}: {error.strerror}\n")


def asks_tls(values: Mapping[str, str]) -> bool:
    """Whether a broker with these keys asks kwire itself, at the address of the health file, for TLS."""
    from kwire.launch.spec import may_ask_for_security

    if not may_ask_for_security(values) and "SSL" not in values.get("listeners", "").upper():
        return False
    from kwire.replication.config.broker_config import BrokerConfig
    from kwire.server.listeners import own_listener, parse_listeners

    config = BrokerConfig(values)
    return own_listener(config, parse_listeners(config)).security_protocol.endswith("SSL")


def remove_health_file(path: str) -> None:
    """Remove the file unless it belongs to another live process of this container."""
    if not _is_anothers(path):
        remove(path)


def read_health_file(path: str) -> list[str]:
    """HOST:PORT of each broker; none if nothing is ready."""
    try:
        with open(path, encoding="ascii") as file:
            words = [line.split() for line in file]
    except (OSError, UnicodeDecodeError):
        return []
    return [f"[{w[0]}]:{w[1]}" if ":" in w[0] else f"{w[0]}:{w[1]}" for w in words if len(w) > 1]


def _is_anothers(path: str) -> bool:
    try:
        with open(path, encoding="ascii") as file:
            pid = int(file.readline().split()[2])
    except (OSError, ValueError, IndexError):
        return False
    return pid != os.getpid() and os.path.exists(f"/proc/{pid}")
