"""Handlers of the control API about faults on requests: of a cluster, and of the nodes in one process.

A fault is a JSON object: its id, its `rule` (`kwire.faults.rules.FIELDS`), `hits`, and the requests that were hit.
"""

from __future__ import annotations

from kwire import errors
from kwire.control.errors import ControlError
from kwire.control.node_api import step

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from kwire.aio import Cluster
    from kwire.backends.faults.faults import Fault
    from kwire.broker import Broker
    from kwire.control.node_api import NodeControl
    from kwire.controller_node import ControllerNode
    from kwire.faults.rules import Hit, Rule
    from kwire.faults.table import FaultTable

FIELDS = (
    *("api:text?", "version:int?", "broker:int?", "client_id:text?", "topic:text?"),
    *("partition:int?", "group:text?", "transactional_id:text?", "listener:text?", "user:text?"),
    *("error:error?", "delay:number?", "drop:text?", "throttle:number?", "corrupt:bool?"),
    *("close:bool?", "times:int?", "probability:number?", "seed:int?", "force:bool?"),
)
"""Of a route, in the order of `kwire.faults.rules.FIELDS`."""
_NAMES = tuple(field.partition(":")[0] for field in FIELDS)


def _given(values: tuple[Any, ...]) -> dict[str, Any]:
    found = dict(zip(_NAMES, values, strict=True))
    return {name: value for name, value in found.items() if value is not None}


# --- of a cluster


async def add(cluster: Cluster, *values: Any) -> dict[str, Any]:
    """Set a fault; return it with its id."""
    return await _to_json(await cluster.faults.add(_given(values)))


async def listed(cluster: Cluster) -> dict[str, Any]:
    """The faults that are set."""
    return {"faults": [await _to_json(each) for each in cluster.faults.list()]}


async def one(cluster: Cluster, fault_id: str) -> dict[str, Any]:
    """A fault that is set, with what it has hit."""
    return await _to_json(_find(cluster, fault_id))


async def remove(cluster: Cluster, fault_id: str) -> dict[str, Any]:
    """Remove a fault; return it with what it has hit."""
    fault = _find(cluster, fault_id)
    await fault.remove()
    return await _to_json(fault)


async def clear(cluster: Cluster) -> dict[str, Any]:
    """Remove all faults; return them with what they have hit."""
    faults = cluster.faults.list()
    await cluster.faults.clear()
    return {"faults": [await _to_json(each) for each in faults]}


def _find(cluster: Cluster, fault_id: str) -> Fault:
    try:
        return cluster.faults.find(fault_id)
    except errors.ClusterStateError as error:
        raise ControlError(404, str(error)) from None


async def _to_json(fault: Fault) -> dict[str, Any]:
    from dataclasses import asdict

    return {
        "id": fault.id,
        "rule": fault.given,
        "hits": await fault.hits(),
        "requests": [asdict(each) for each in await fault.requests()],
    }


# --- of nodes


def add_at_nodes(control: NodeControl, *values: Any) -> dict[str, Any]:
    """Set a fault at these nodes; return it with its id."""
    taken = {each["id"] for each in listed_at_nodes(control)["faults"]}
    number = next(n for n in range(1, len(taken) + 2) if f"fault-{n}" not in taken)
    put_at_nodes(control, f"fault-{number}", *values)
    return {"id": f"fault-{number}"}


def put_at_nodes(control: NodeControl, fault_id: str, *values: Any) -> dict[str, Any]:
    """Set a fault of this id at these nodes."""
    from kwire.faults.rules import checked

    try:
        given = checked(_given(values))
    except ValueError as error:
        raise ControlError(400, str(error)) from None
    for node in control.nodes():
        step(node, lambda core: table_of(core).add(given, fault_id))
    return {}


def listed_at_nodes(control: NodeControl) -> dict[str, Any]:
    """The faults at each of these nodes."""
    found: list[dict[str, Any]] = []
    for node in control.nodes():
        found += step(node, _listed)
    return {"faults": found}


def one_at_nodes(control: NodeControl, fault_id: str) -> dict[str, Any]:
    """A fault at each of these nodes; none where it is not set."""
    found = listed_at_nodes(control)["faults"]
    return {"faults": [each for each in found if each["id"] == fault_id]}


def remove_at_nodes(control: NodeControl, fault_id: str) -> dict[str, Any]:
    """Remove a fault at these nodes; return it as it was at each."""
    found = one_at_nodes(control, fault_id)
    for node in control.nodes():
        step(node, lambda core: table_of(core).remove(fault_id))
    return found


def clear_at_nodes(control: NodeControl) -> dict[str, Any]:
    """Remove all faults at these nodes; return them as they were."""
    found = listed_at_nodes(control)
    for node in control.nodes():
        step(node, lambda core: table_of(core).clear())
    return found


def table_of(core: Broker | ControllerNode) -> FaultTable:
    """The faults of a node, or an empty table."""
    from kwire.faults.table import FaultTable
    from kwire.recent import api_text
    from kwire.server.events import NodeEvent

    if core.sessions.faults is not None:
        return core.sessions.faults
    table = FaultTable(core.sessions, core.config.node_id)

    def on_hit(rule: Rule, hit: Hit) -> None:
        core.outbox.log(
            NodeEvent.FAULT_HIT,
            fault=rule.id,
            api=api_text(hit.key, hit.version).partition(" ")[0],
            version=hit.version,
            client_id=hit.client_id,
            outcome=hit.what,
            node_id=table.node_id,
        )

    table.on_hit = on_hit
    return table


def _listed(core: Broker | ControllerNode) -> list[dict[str, Any]]:
    if core.sessions.faults is None:
        return []
    from kwire.faults.table import to_json

    rules = core.sessions.faults.rules.values()
    return [to_json(rule, core.config.node_id, core.clock.now_ms) for rule in rules]
