"""Log lines about the connections of clients: opened, closed, closed by the node.

A client that speaks TLS or HTTP to a Kafka listener gets a line that says so: to Kafka its first bytes
are the length of a huge request, and nobody recognizes 369295617. Such clients try again each second;
each address has one line a minute.
"""

from __future__ import annotations

import logging

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
_MAX_REMEMBERED = 1000

TLS, HTTP = "TLS", "HTTP"
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
    """Decides whether something that keeps happening is logged again: once in QUIET_MS for each key."""

    def __init__(self) -> None:
        self._last: dict[tuple[str, str], tuple[int, int]] = {}
        """When it was logged last (ms), and how often it was not since."""

    def count(self, key: tuple[str, str], now_ms: int) -> int | None:
        """How often it has happened unlogged, when it is to be logged now; else None."""
        logged_ms, more = self._last.get(key, (now_ms - QUIET_MS, 0))
        if now_ms - logged_ms < QUIET_MS:
            self._last[key] = logged_ms, more + 1
            return None
        if len(self._last) >= _MAX_REMEMBERED:
            self._last.clear()
        self._last[key] = now_ms, 0
        return more


class ConnectionLog:
    """Logs the connections of one node."""

    def __init__(self, node_id: int, name: str) -> None:
        """`name`: of the node, "broker 1" for example."""
        self._node_id = node_id
        self._name = name
        self.control_url: str | None = None
        """The address of the control API, for those who look for it here."""
        self._foreign = Repetitions()

    def opened(self, connection: Connection) -> None:
        """Log that a client has connected."""
        if _log.isEnabledFor(logging.DEBUG):
            self._write(NodeEvent.CONNECTION_OPENED, connection)

    def closed(self, connection: Connection, error: Exception | None) -> None:
        """Log the end of a connection: by the node as a warning, otherwise at level DEBUG."""
        reason = connection.close_reason
        kind = NodeEvent.CONNECTION_ABORTED
        if reason in (None, NODE_STOPS) or reason.startswith("idle "):
            kind = NodeEvent.CONNECTION_CLOSED
        elif reason.startswith("malformed request"):
            protocol = foreign_protocol(connection.reader.head())
            if protocol is not None:
                self._log_foreign(protocol, connection)
                return
        if _log.isEnabledFor(kind.level):
            self._write(kind, connection, detail=reason or str(error or "by the client"))

    def _log_foreign(self, protocol: str, connection: Connection) -> None:
        """Log the protocol of a client that has the wrong one, once a minute for each address."""
        more = self._foreign.count((connection.peer_host, protocol), connection.last_active_ms)
        if more is None:
            self._write(NodeEvent.CONNECTION_CLOSED, connection, detail=f"{protocol} again")
            return
        detail = "this port speaks Kafka's protocol"
        if protocol == TLS:
            detail = "this listener is plaintext; set security.protocol=PLAINTEXT in the client"
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
            **fields,
        )
