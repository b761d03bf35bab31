"""What has changed at the nodes of one process since it was last told: for the page, ten times a second.

Computed from the state of the nodes, without a request to a partition. What was told is kept beside each node, so that
an answer has what is new and no more; nothing is kept, and no request counted, until somebody asks. Whoever names
another number than that of the last answer is told everything.

Invariants: a replica is known by a number, which is told with its name once; `number` rises with each answer.
"""

from __future__ import annotations

from kwire.control.live.traffic import Traffic

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from kwire.broker import Broker
    from kwire.control.node_api import ControlledNode, NodeControl
    from kwire.replication.controller.controller import Controller
    from kwire.replication.replica.partition import Partition

    Json = dict[str, Any]
    Key = tuple[str, int]


def changes(
    control: NodeControl, since: int | None, events: int | None, more: bool | None
) -> dict[str, Any]:
    """What has changed at these nodes since an answer, for the page."""
    return {"nodes": [_changes_of(control, each, since, events, more) for each in control.nodes()]}


def _changes_of(
    control: NodeControl,
    node: ControlledNode,
    since: int | None,
    events: int | None,
    more: bool | None,
) -> Json:
    view = control.views.get(node.node_id)
    if view is None or view.core is not node.core:
        view = control.views[node.node_id] = NodeView(node)
    found = view.changes(since)
    if more:
        found |= node.node.perform(view.contents)
    new, dropped = node.node.events.since(events or 0)
    return {**found, "events": new, "dropped": dropped}


class NodeView:
    """What was last told of a node."""

    __slots__ = ("_ids", "_node", "_partitions", "_replicas", "_traffic", "core", "number")

    def __init__(self, node: ControlledNode) -> None:
        self._node = node
        self.core = node.core
        self.number = 0
        self._ids = 0
        self._replicas: dict[Key, list[Any]] = {}  # number of the replica, and what was told of it
        self._partitions: dict[str, list[Any]] = {}  # of a controller: its states, by topic
        self._traffic: Traffic | None = None

    def changes(self, since: int | None) -> Json:
        """Replicas of a broker, partitions of the active controller."""
        is_whole = since is None or since != self.number
        if is_whole:
            self._replicas.clear()
            self._partitions.clear()
        self.number += 1
        core: Any = self.core
        found: Json = {"id": self._node.node_id, "number": self.number, "whole": is_whole}
        if not self._node.is_controller:
            found["replicas"] = self._changed_replicas(core.services.replica_manager.by_key)
        controller = core.controller if self._node.is_controller else core.services.controller
        if controller is not None:
            found["controller"] = self._changed_partitions(controller)
        return found

    def _changed_replicas(self, by_key: dict[Key, Partition]) -> Json:
        seen = self._replicas
        names: list[list[Any]] = []
        offsets: list[int] = []
        for key, partition in by_key.items():
            log = partition.log
            state = (
                *(log.log_start_offset, log.high_watermark, log.log_end_offset),
                *(partition.leader_epoch, 1 if partition.is_leader else 0),
            )
            known = seen.get(key)
            if known is None:
                self._ids += 1
                known = seen[key] = [self._ids, None]
                names.append([self._ids, *key])
            if known[1] != state:
                known[1] = state
                offsets += (known[0], *state)
        gone = []
        if len(seen) > len(by_key):
            gone = [seen.pop(key)[0] for key in [*seen] if key not in by_key]
        return {"names": names, "offsets": offsets, "gone": gone}

    def _changed_partitions(self, controller: Controller) -> Json:
        found: Json = {"active": controller.active, "epoch": controller.epoch}
        changed: list[list[Any]] = []
        topics = controller.state.topics if controller.active else {}
        for name, topic in topics.items():
            seen = self._partitions.get(name)
            if seen is None or len(seen) > len(topic.partitions):
                seen = self._partitions[name] = []
            for index, state in enumerate(topic.partitions):
                if index == len(seen):
                    seen.append(None)
                if seen[index] is not state:  # a change makes a new one
                    seen[index] = state
                    now = [state.leader, state.leader_epoch]
                    changed.append([name, index, *now, list(state.replicas), list(state.isr)])
        gone = []
        if len(self._partitions) > len(topics):
            gone = [name for name in self._partitions if name not in topics]
            for name in gone:
                del self._partitions[name]
        return {**found, "partitions": changed, "gone": gone}

    def contents(self) -> Json:
        """What changes less often, all of it: groups and transactions that it coordinates, clients, requests."""
        if self._node.is_controller:
            return {}
        from kwire.control.live.coordinators import groups, transactions

        core: Any = self.core
        return {
            "groups": groups(core.services),
            "transactions": transactions(core.services),
            **self._requests(core),
            "offline": [list(key) for key in sorted(core.services.replica_manager.offline)],
        }

    def _requests(self, core: Broker) -> Json:
        traffic = self._traffic
        if traffic is None or core.sessions.recent is not traffic:
            traffic = self._traffic = Traffic.begin(core)
        return traffic.told()
