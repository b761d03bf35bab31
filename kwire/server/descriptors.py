"""File descriptors: the limit of the process, and what connections and log files may take of it; connections' limits.

The system gives out the lowest free number, so the number of a new descriptor tells how many are in
use. Connections get none of the last SPARE_FOR_FILES numbers, log files none of the last
SPARE_FOR_OTHERS: those are for the log directories' small files, flushes on threads, and modules that
are imported on first use. Without them a broker out of descriptors would fail, not wait.
"""

from __future__ import annotations

import resource
from errno import EMFILE, ENFILE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from kwire.server.access.admission import Admission
    from kwire.server.connection import Connection
    from kwire.server.node import Node

SPARE_FOR_FILES, SPARE_FOR_OTHERS = 32, 16
_FEW = 128
"""With a lower limit a half of the spare descriptors must do."""
_MOST_OPEN_FILES = 4096
_NO_LIMIT = 1 << 30
_NO_COUNT = 2**31 - 1
"""What max.connections and its like have without a limit."""
_LIMITS = (".max.connections", ".max.connection.creation.rate")
"""Of a listener, behind its prefix."""
_DARWIN_LIMIT = 10_240
"""OPEN_MAX, the most that macOS grants, whatever the hard limit."""


def raise_limit() -> None:
    """Raise this process's soft limit to the hard one, as the JVM does for Kafka (MaxFDLimit)."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    for limit in (hard, _DARWIN_LIMIT):
        if _number(limit) <= _number(soft):
            return
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
        except (ValueError, OSError):  # macOS refuses "unlimited"
            continue
        return


def limit() -> int:
    """How many descriptors this process may have open."""
    return _number(resource.getrlimit(resource.RLIMIT_NOFILE)[0])


def limit_of_connections() -> int:
    """No connection may have this descriptor or a higher one."""
    number = limit()
    return number - (SPARE_FOR_FILES if number >= _FEW else SPARE_FOR_FILES // 2)


def limit_of_files() -> int:
    """No file that stays open may have this descriptor or a higher one."""
    number = limit()
    return number - (SPARE_FOR_OTHERS if number >= _FEW else SPARE_FOR_OTHERS // 2)


def default_max_open_files() -> int:
    """Half of the process's limit; the other half is for connections."""
    return max(32, min(limit() // 2, _MOST_OPEN_FILES))


def is_shortage(error: OSError) -> bool:
    """Whether an error says that no descriptor is left, which is not the disk's fault."""
    return error.errno in (EMFILE, ENFILE)


def _number(limit: int) -> int:
    return _NO_LIMIT if limit == resource.RLIM_INFINITY else limit


class ConnectionLimits:
    """Counts a node's connections, and refuses those above a limit (kafka.network.ConnectionQuotas).

    Where max.connections or a rate of new connections is limited, they may have to wait (access/admission.py)."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._descriptors = limit_of_connections()
        self._by_host: dict[str, int] = {}
        self._admission: Admission | None = None
        self._is_limited = False
        self._overrides: dict[str, int] = {}
        self._load(set())
        node.config.listeners_of_change.append(self._load)

    def _load(self, keys: set[str]) -> None:
        """Apply the configuration, after a change of these keys."""
        config = self._node.config
        self._overrides = _limits_by_host(config.max_connections_per_ip_overrides)
        layers = config.static, config.dynamic_default, config.dynamic
        self._is_limited = min(
            config.max_connections, config.max_connection_creation_rate
        ) < _NO_COUNT or any(key.endswith(_LIMITS) for layer in layers for key in layer)
        if self._admission is not None:
            self._admission.most_of = self._overrides
            self._node.loop.call_soon(self._admission.go_on)
        elif self._is_limited and self._node.connections:
            self._node.loop.call_soon(self.admission.go_on)

    @property
    def admission(self) -> Admission:
        """Imported on first use: most nodes have no such limit."""
        if self._admission is None:
            from kwire.server.access.admission import Admission

            self._admission = Admission(self._node, self._overrides)
        return self._admission

    def refusal(self, connection: Connection) -> str | None:
        """Why a new connection is one too many; None if it is not."""
        if connection.transport.get_extra_info("socket").fileno() >= self._descriptors:
            return "no descriptors are left for connections (ulimit -n)"
        if self._admission is not None or self._has_limits():
            return None
        host = connection.peer_host
        limit = self._overrides.get(host, self._node.config.max_connections_per_ip)
        if self._by_host.get(host, 0) >= limit:
            return f"max.connections.per.ip={limit} reached"
        return None

    def _has_limits(self) -> bool:
        quotas = self._node.broker.sessions.quotas
        return self._is_limited or (quotas is not None and bool(quotas.quotas.ips))

    def opened(self, connection: Connection, refusal: str | None) -> None:
        """Count a connection, refused or not. Its requests may have to wait."""
        host = connection.peer_host
        self._by_host[host] = self._by_host.get(host, 0) + 1
        if refusal is None and (self._admission is not None or self._has_limits()):
            self.admission.arrived(connection)

    def closed(self, connection: Connection) -> None:
        """Count the end of a connection."""
        host = connection.peer_host
        self._by_host[host] -= 1
        if not self._by_host[host]:
            del self._by_host[host]
        if self._admission is not None:
            self._admission.left(connection)

    def have_paused(self, connection: Connection) -> bool:
        """Whether requests of the connection have to wait, for another reason than a pause of the node."""
        return self._admission is not None and self._admission.is_outside(connection)

    def node_resumed(self) -> None:
        """Accept what came while the node was paused."""
        if self._admission is not None:
            self._admission.go_on()


def _limits_by_host(text: str) -> dict[str, int]:
    """Parse max.connections.per.ip.overrides, "host:100,127.0.0.1:200": the limit of each host."""
    overrides = {}
    for item in filter(None, text.split(",")):
        host, _, limit = item.strip().rpartition(":")
        if host and limit.isdigit():
            overrides["127.0.0.1" if host == "localhost" else host.strip("[]")] = int(limit)
    return overrides
