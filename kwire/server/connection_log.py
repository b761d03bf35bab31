"""Log lines about the connections of clients: opened, closed, closed by the node.

A client that speaks TLS, HTTP or SASL to a Kafka listener gets a line that says so: to Kafka its first bytes
are the length of a huge request, and nobody recognizes 369295617. Such clients try again each second;
each address has one line a minute. Other connections that the node closes have one line a second for
each kind of reason, with the number of those in between: a client may open thousands.
"""

from __future__ import annotations

import logging
import time

from kwire.replication.core.types import ANONYMOUS
from kwire.server.events import NodeEvent
from kwire.server.listeners import format_address
from kwire.server.logs import event

TYPE_CHECKING = False
if TYPE_CHECKING:
    from kwire.replication.core.events import EventType
    from kwire.server.connection import Connection

_log = logging.getLogger(__name__)

NODE_STOPS = "the node stops"
QUIET_MS = 60_000
"""How long a client that speaks another protocol is not mentioned again."""
ABORTED_QUIET_MS = 1000
"""How long connections that are closed for the same kind of reason are only counted."""
_MAX_REMEMBERED = 1000

TLS, HTTP, SASL = "TLS", "HTTP", "SASL"
_METHODS = (
    b"GET ",
    b"POST",
    b"PUT ",
    b"HEAD",
    b"DELE",
    b"OPTI",
    b"PATC",
    b"CONN",
    b"TRAC",
    b"PRI ",
)


def foreign_protocol(head: bytes) -> str | None:
    """The protocol that the first bytes of a connection show: "TLS", "HTTP"; None: neither."""
    if head.startswith(b"\x16\x03"):  # a handshake record of SSL 3.0 to TLS 1.3
        return TLS
    return HTTP if head.startswith(_METHODS) else None


class Repetitions:
    """Decides whether something that keeps happening is logged again: once in a while for each key."""

    def __init__(self, quiet_ms: int = QUIET_MS) -> None:
        self._quiet_ms = quiet_ms
        self._last: dict[tuple[str, str], tuple[int, int]] = {}
        """When it was logged last (ms), and how often it was not since."""

    def count(self, key: tuple[str, str], now_ms: int) -> int | None:
        """How often it has happened unlogged, when it is to be logged now; else None."""
        logged_ms, more = self._last.get(key, (now_ms - self._quiet_ms, 0))
        if now_ms - logged_ms < self._quiet_ms:
            self._last[key] = logged_ms, more + 1
            return None
        if len(self._last) >= _MAX_REMEMBERED:
            self._last.clear()
        self._last[key] = now_ms, 0
        return more

    def take_counts(self, now_ms: int) -> list[tuple[tuple[str, str], int]]:
        """The keys that may be logged again, with how often each has happened unlogged; forget them."""
        due = [key for key, (ms, _) in self._last.items() if now_ms - ms >= self._quiet_ms]
        counts = ((key, self._last.pop(key)[1]) for key in due)
        return [(key, more) for key, more in counts if more]


class ConnectionLog:
    """Logs the connections of one node."""

    def __init__(self, node_id: int, name: str) -> None:
        """`name`: of the node, "broker 1" for example."""
        self._node_id = node_id
        self._name = name
        self.control_url: str | None = None
        """The address of the control API, for those who look for it here."""
        self._foreign = Repetitions()
        self._aborted = Repetitions(ABORTED_QUIET_MS)

    def opened(self, connection: Connection) -> None:
        """Log that a client has connected."""
        if _log.isEnabledFor(logging.DEBUG):
            self._write(NodeEvent.CONNECTION_OPENED, connection)

    def closed(self, connection: Connection, error: Exception | None) -> None:
        """Log the end of a connection: by the node as a warning, otherwise at level DEBUG."""
        reason = connection.close_reason
        kind = NodeEvent.CONNECTION_ABORTED
        if reason is not None and reason.startswith(SASL):
            self._log_foreign(SASL, connection)
            return
        if reason in (None, NODE_STOPS) or reason.startswith("idle "):
            kind = NodeEvent.CONNECTION_CLOSED
        elif reason.startswith("malformed request"):
            protocol = foreign_protocol(connection.reader.head())
            if protocol is not None:
                self._log_foreign(protocol, connection)
                return
        repeated = None
        if kind is NodeEvent.CONNECTION_ABORTED:
            key = connection.listener.name, (reason or "").partition(":")[0]
            repeated = self._aborted.count(key, _now_ms())
            if repeated is None:
                kind = NodeEvent.CONNECTION_CLOSED
        if _log.isEnabledFor(kind.level):
            detail = reason or str(error or "by the client")
            if kind is NodeEvent.CONNECTION_ABORTED:
                self._write(kind, connection, detail=detail, repeated=repeated or None)
            else:
                self._write(kind, connection, detail=detail)

    def write_counts(self) -> None:
        """Log how many connections were closed that have no line of their own."""
        for (listener, reason), count in self._aborted.take_counts(_now_ms()):
            event(
                _log,
                NodeEvent.CONNECTIONS_ABORTED,
                None,
                self._name,
                node_id=self._node_id,
                listener=listener,
                repeated=count,
                detail=reason,
            )

    def _log_foreign(self, protocol: str, connection: Connection) -> None:
        """Log the protocol of a client that has the wrong one, once a minute for each address."""
        more = self._foreign.count((connection.peer_host, protocol), connection.last_active_ms)
        if more is None:
            self._write(NodeEvent.CONNECTION_CLOSED, connection, detail=f"{protocol} again")
            return
        detail = "this port speaks Kafka's protocol"
        if protocol in (TLS, SASL):
            spoken = connection.listener.security_protocol
            name = "plaintext" if spoken == "PLAINTEXT" else "not encrypted"
            detail = f"this listener is {name}; set security.protocol={spoken} in the client"
        elif self.control_url is not None:
            detail += f"; the control API is at {self.control_url}"
        event(
            _log,
            NodeEvent.FOREIGN_PROTOCOL,
            None,
            self._name,
            node_id=self._node_id,
            peer=format_address(connection.peer_host, connection.peer_port),
            listener=connection.listener.name,
            protocol=protocol,
            repeated=more or None,
            detail=detail,
        )

    def _write(self, kind: EventType, connection: Connection, **fields: object) -> None:
        session = connection.session
        event(
            _log,
            kind,
            None,
            self._name,
            node_id=self._node_id,
            peer=format_address(connection.peer_host, connection.peer_port),
            listener=connection.listener.name,
            connection=connection.id,
            client=f"{session.client_software_name} {session.client_software_version}",
            principal=None if session.principal == ANONYMOUS else session.principal,
            **fields,
        )


def _now_ms() -> int:
    return time.monotonic_ns() // 1_000_000
