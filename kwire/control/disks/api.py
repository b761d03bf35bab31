"""Handlers of the control API about faults of disks: of a cluster, and of the nodes in one process.

A fault is a JSON object: its id, the `node` whose disk it is of, its `rule`
(`kwire.server.disks.rules.FIELDS`), `hits`.
"""

from __future__ import annotations

from contextlib import suppress
from functools import partial

from kwire import errors
from kwire.control.errors import ControlError
from kwire.control.node_api import step

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from kwire.aio import Cluster
    from kwire.backends.faults.disks import DiskFault
    from kwire.broker import Broker
    from kwire.control.node_api import ControlledNode, NodeControl
    from kwire.controller_node import ControllerNode
    from kwire.faults.rules import Rule
    from kwire.server.disks.rules import DiskRule
    from kwire.server.file_log_store import FileLogStore

    Core = Broker | ControllerNode

FIELDS = (
    *("operation:text?", "topic:text?", "partition:int?", "directory:text?"),
    *("times:int?", "error:text?", "milliseconds:number?"),
)
"""Of a route, in the order of `kwire.server.disks.rules.FIELDS`, without `act`."""


# --- of a cluster


async def add(cluster: Cluster, node_id: int, act: str, *values: Any) -> dict[str, Any]:
    """Let operations on a node's disk fail, or let it be full or slow; return the fault with its id."""
    from kwire.server.disks.rules import FIELDS as NAMES

    given = dict(zip(NAMES, (act, *values), strict=True))
    _check_node(cluster, node_id)
    found = await cluster.faults.disks.add(node_id, given)
    return await _to_json(found)


async def listed(cluster: Cluster) -> dict[str, Any]:
    """The faults of all disks that are set."""
    return {"faults": [await _to_json(each) for each in cluster.faults.disks.list()]}


async def remove(cluster: Cluster, fault_id: str) -> dict[str, Any]:
    """Remove one fault of a disk; return it with what it has hit."""
    try:
        fault = cluster.faults.disks.find(fault_id)
    except errors.ClusterStateError as error:
        raise ControlError(404, str(error)) from None
    await fault.remove()
    return await _to_json(fault)


async def heal(cluster: Cluster, node_id: int) -> dict[str, Any]:
    """Remove all faults of a node's disk; return them with what they have hit."""
    _check_node(cluster, node_id)
    return await _healed(cluster, node_id)


async def heal_all(cluster: Cluster) -> dict[str, Any]:
    """Remove all faults of all disks; return them with what they have hit."""
    return await _healed(cluster, None)


async def _healed(cluster: Cluster, node_id: int | None) -> dict[str, Any]:
    faults = cluster.faults.disks.list(node_id)
    await cluster.faults.disks.heal(node_id)
    return {"faults": [await _to_json(each) for each in faults]}


def _check_node(cluster: Cluster, node_id: int) -> None:
    try:
        cluster.node(node_id)
    except errors.ClusterStateError as error:
        raise ControlError(404, str(error)) from None


async def _to_json(fault: DiskFault) -> dict[str, Any]:
    hits = await fault.hits()
    return {"id": fault.id, "node": fault.node_id, "rule": fault.given, "hits": hits}


# --- of nodes


def set_at_nodes(control: NodeControl, faults: dict[str, Any]) -> dict[str, Any]:
    """Replace the faults of these nodes' disks, given by id; those that stay go on counting."""
    from kwire.server.disks.rules import DiskRule

    for node in control.nodes():
        before = {rule.id: rule for rule in _rules_of(node)}
        if not all(isinstance(given, dict) for given in faults.values()):
            raise ControlError(400, "faults: expected the rule of each id as an object")
        try:
            rules = [DiskRule(name, given) for name, given in faults.items()]
        except ValueError as error:
            raise ControlError(400, str(error)) from None
        for rule in rules:
            if rule.id in before:
                rule.hits = before[rule.id].hits
            _check(node, rule)
        step(node, partial(_apply, node, rules))
    return {}


def show_at_nodes(control: NodeControl) -> dict[str, Any]:
    """The faults of these nodes' disks, and their log directories with why they are offline."""
    rules = [(node.node_id, rule) for node in control.nodes() for rule in _rules_of(node)]
    return {
        "faults": [
            {"id": rule.id, "node": node_id, "rule": rule.given, "hits": rule.hits}
            for node_id, rule in rules
        ],
        "directories": [
            {"path": path, "failure": failure}
            for node in control.nodes()
            for path, failure in _directories(node)
        ],
    }


def _check(node: ControlledNode, rule: DiskRule) -> None:
    """ControlError for a fault that could never hit at this node."""
    from kwire.server.disks.rules import SLOW

    roots = [store.root for store in _stores(node)]
    if not any(rule.is_in(root) for root in roots):
        raise ControlError(
            400, f"directory: node {node.node_id} has no log directory {rule.directory}: {roots}"
        )
    if node.is_controller and (rule.act == SLOW or rule.topic is not None):
        why = "delay its links (network.delay)" if rule.act == SLOW else "it has no topics"
        raise ControlError(400, f"node {node.node_id} is a controller: {why}")


def _stores(node: ControlledNode) -> list[FileLogStore]:
    """The log directories that could be opened."""
    from kwire.server.file_log_store import FileLogStore

    core: Any = node.core
    if node.is_controller:
        found = [core.store]
    else:
        found = []
        for each in core.services.log_manager.directories:
            with suppress(OSError):  # it could not be opened
                found.append(each.store)
    return [store for store in found if isinstance(store, FileLogStore)]


def _directories(node: ControlledNode) -> list[tuple[str, str | None]]:
    core: Any = node.core
    if node.is_controller:
        return [(store.root, None) for store in _stores(node)]
    return [(each.path, each.failure) for each in core.services.log_manager.directories]


def _rules_of(node: ControlledNode) -> list[DiskRule]:
    for store in _stores(node):
        rules: list[DiskRule] = getattr(store, "disk_rules", [])
        return rules
    return []


def _apply(node: ControlledNode, rules: list[DiskRule], core: Core) -> None:
    """Set the faults of a node's disk: in a step of it."""
    from kwire.server.disks.faulty import install
    from kwire.server.events import NodeEvent

    def noted(rule: DiskRule, operation: str, file: str) -> None:
        if rule.hits == 1:
            kind = NodeEvent.DISK_FAULT_HIT
            core.outbox.log(kind, operation=operation, file=file, fault=rule.id)

    for store in _stores(node):
        install(store, rules, noted)
    if not node.is_controller:
        _set_slow(node, core, rules)  # type: ignore[arg-type]  # a broker


def _set_slow(node: ControlledNode, core: Broker, rules: list[DiskRule]) -> None:
    """Let requests wait for a slow disk, and a follower fetch later."""
    from kwire.server.disks.rules import APPEND, SLOW

    rules = [rule for rule in rules if rule.act == SLOW]
    appends = [rule for rule in rules if APPEND in rule.operations]
    if appends or node.node.peers is not None:
        from kwire.server.disks.slow import set_fetch_delay

        delay_ms = sum(rule.milliseconds for rule in appends if rule.topic is None)
        set_fetch_delay(node.node.peer_connections(), delay_ms)
    if not rules and core.sessions.faults is None:
        return
    from kwire.control.faults_api import table_of
    from kwire.faults.slow_disk import READ, WRITE, slow_requests
    from kwire.server.disks.rules import READ as READING

    found: list[Rule] = []
    for rule in rules:
        apis = WRITE if rule in appends else ()
        if READING in rule.operations:
            apis = (*apis, *READ)

        def is_here(topic: str, partition: int, rule: DiskRule = rule) -> bool:
            return _is_here(core, rule, topic, partition)

        found += slow_requests(apis, rule.milliseconds, rule.topic, is_here, rule.happens)
    table_of(core).set_slow_disk(found)


def _is_here(core: Broker, rule: DiskRule, topic: str, partition: int) -> bool:
    if rule.topic not in (None, topic) or rule.partition not in (None, partition):
        return False
    if rule.directory is None:
        return True
    key = topic, partition
    directories = core.services.log_manager.directories
    return any(rule.is_in(each.path) and key in each.logs for each in directories)
