"""Handlers of the control API about the clients that were connected before a reset (`kwire.leftovers`).

As in `node_api.py`: each returns a JSON object without waiting.
"""

from __future__ import annotations

from kwire.server.listeners import format_address

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from kwire.broker import Broker
    from kwire.control.node_api import NodeControl


def leftovers(control: NodeControl) -> dict[str, Any]:
    """The clients that were connected before the last reset and still are (`kwire.leftovers`)."""
    found = []
    for node in control.nodes():
        left = None if node.is_controller else node.core.sessions.leftovers
        for connection, client_id, group in () if left is None else left.clients():
            peer = node.node.connections[connection]
            address = format_address(peer.peer_host, peer.peer_port)
            client = {"client_id": client_id, "address": address, "group": group or None}
            found.append({"broker": node.node_id, **client})
    return {"clients": found}


def set_clients_aside(broker: Broker) -> dict[str, Any]:
    """Keep the clients that are connected now from what the broker holds (`kwire.leftovers`)."""
    from kwire.leftovers import Leftovers

    sessions = broker.sessions
    left = sessions.leftovers
    if left is None:
        left = sessions.leftovers = Leftovers(sessions, broker.services)
    left.take_all()
    return {}
