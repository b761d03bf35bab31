"""Log lines about the connections of clients: opened, closed, closed by the node."""

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


class ConnectionLog:
    """Logs the connections of one node."""

    def __init__(self, node_id: int, name: str) -> None:
        """`name`: of the node, "broker 1" for example."""
        self._node_id = node_id
        self._name = name

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
        if _log.isEnabledFor(kind.level):
            self._write(kind, connection, detail=reason or str(error or "by the client"))

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
