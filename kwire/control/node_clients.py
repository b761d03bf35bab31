"""Handlers of the control API of the nodes in one process: connections of clients, kept requests.

See `node_api.py`.
"""

from __future__ import annotations

from functools import partial

from kwire.control.errors import ControlError
from kwire.control.node_api import step

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from kwire.broker import Broker
    from kwire.control.node_api import ControlledNode, NodeControl


def requests(
    control: NodeControl, api: str | None, client_id: str | None, broker: int | None
) -> dict[str, Any]:
    """The last requests of clients (`RecentRequests.list_requests`): of this API, client, broker only,
    if given. ControlError: they are not kept."""
    from kwire.recent import select, to_objects

    def listed(broker: Broker) -> list[list[Any]]:
        sessions = broker.sessions
        if sessions.recent is None:
            raise ControlError(409, "requests are not kept: start with KWIRE_RECENT_REQUESTS=true")
        return sessions.recent.list_requests(sessions.by_connection.values())

    brokers = [node for node in control.nodes() if not node.is_controller]
    found = to_objects({node.node_id: step(node, listed) for node in brokers})
    return select(found, api, client_id, broker)


def clients(control: NodeControl) -> dict[str, Any]:
    """The open connections of clients; without those of other nodes, and, when requests are not
    kept, those that have not said who they are."""
    brokers = [node for node in control.nodes() if not node.is_controller]
    return {"clients": [each for node in brokers for each in step(node, partial(_clients, node))]}


def _clients(node: ControlledNode, _: Broker) -> list[dict[str, Any]]:
    from kwire.recent import api_text, is_internal
    from kwire.server.listeners import format_address
    from kwire.session import UNKNOWN_SOFTWARE

    found = []
    is_kept = node.core.sessions.recent is not None
    for connection in node.node.connections.values():
        session = connection.session
        request = session.in_flight
        client_id = session.client_id if request is None else request.client_id
        if (client_id is None and not is_kept) or is_internal(client_id or ""):
            continue
        api = session.last_api
        if request is not None:
            api = request.api_key, request.api_version
        software = (session.client_software_name, session.client_software_version)
        found.append(
            {
                "broker": node.node_id,
                "address": format_address(connection.peer_host, connection.peer_port),
                "client_id": client_id or "",
                "software": "" if software[0] == UNKNOWN_SOFTWARE else " ".join(software),
                "group": session.group_id,
                "api": "" if api is None else api_text(*api),
                "idle_ms": max(0, node.node.clock.real_ms - connection.last_active_ms),
            }
        )
    return found


def forget(control: NodeControl) -> dict[str, Any]:
    """Forget the requests that are kept."""
    for node in control.nodes():
        if not node.is_controller:
            recent = node.core.sessions.recent
            if recent is not None:
                recent.clear()
    return {}
