"""Handlers of the control API of the nodes in one process, one per route (`routes.py`).

Each returns a JSON object without waiting. A handler takes a NodeControl when it concerns all nodes
of the process, or the core of the broker or controller when it runs as a step of that node.
`kwire.backends.containers` reaches a container over HTTP (KWIRE_CONTROL_PORT). A supervisor reaches
its nodes in process or over stdin (`kwire.launch.handles`), never over the network between nodes, so
that tests can inspect a broker that is cut off.
"""

from __future__ import annotations

import logging
import traceback
from contextlib import suppress
from functools import partial

from kwire.control.errors import ControlError
from kwire.control.status import snapshot_of_broker, snapshot_of_controller
from kwire.protocol.errors import ErrorCode, KafkaError
from kwire.server.events import NodeEvent
from kwire.server.logs import event

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any, Protocol

    from kwire.broker import Broker
    from kwire.control.live.node_view import NodeView
    from kwire.controller_node import ControllerNode
    from kwire.server.link_rules import LinkRule
    from kwire.server.node import Node

    Ids = int | list[int]

    class ControlledNode(Protocol):
        """The part of a NodeRunner that the control API uses."""

        @property
        def node_id(self) -> int: ...

        @property
        def is_controller(self) -> bool: ...

        @property
        def advertised(self) -> str: ...

        @property
        def node(self) -> Node: ...

        @property
        def core(self) -> Broker | ControllerNode: ...

        def set_link_rules(self, rules: list[LinkRule]) -> None: ...


_log = logging.getLogger(__name__)

NETWORK_FILE = "/tmp/kwire-network"
"""The file in which a container keeps its link rules, so that they survive a restart."""
_FAILURE_CHARACTERS, _MAX_FAILURES = 6000, 5


class NodeControl:
    """The nodes of this process, and their link rules (as senders)."""

    def __init__(
        self,
        nodes: Callable[[], Sequence[ControlledNode]],
        rules: list[LinkRule] | None,
        rules_file: str | None = None,
    ) -> None:
        """`nodes()`: the loaded nodes. `rules`: the current link rules, kept up to date in this list
        and in `rules_file`; None for a standalone broker, which has no links."""
        self.nodes = nodes
        self.rules = rules
        self._rules_file = rules_file
        self.views: dict[int, NodeView] = {}  # of nodes on the page (`live/node_view.py`)

    def perform(self, is_controller: bool, action: Callable[[Any], Any]) -> Any:
        """Run `action(core)` as a step of the broker, or of the controller.

        ControlError when this process has no such node."""
        for node in self.nodes():
            if node.is_controller == is_controller:
                return step(node, action)
        what, name = "broker", ErrorCode.BROKER_NOT_AVAILABLE.name
        if is_controller:
            what, name = "controller", ErrorCode.NOT_CONTROLLER.name
        text = f"no {what} runs in this process; ask that of a {what}"
        raise ControlError(503, text, name)

    @property
    def is_standalone(self) -> bool:
        """Whether it is that of a standalone broker, which is its own controller."""
        return self.rules is None

    def known_rules(self) -> list[LinkRule]:
        """The current link rules. ControlError for a standalone broker."""
        if self.rules is None:
            raise ControlError(409, "a standalone broker has no links to other nodes")
        return self.rules

    def set_rules(self, rules: list[LinkRule]) -> None:
        """Replace all link rules and save them. ControlError."""
        self.known_rules()[:] = rules
        for node in self.nodes():
            node.set_link_rules(rules)
        if self._rules_file is not None:
            import json

            with suppress(OSError), open(self._rules_file, "w") as file:
                json.dump([rule.to_json() for rule in rules], file)


def kept_rules() -> list[LinkRule]:
    """The link rules that the container had when it last ended."""
    with suppress(OSError, ValueError), open(NETWORK_FILE) as file:
        import json

        from kwire.server.link_rules import rules_from_json

        return rules_from_json(json.load(file))
    return []


def step(node: ControlledNode, action: Callable[[Any], Any]) -> Any:
    """Run `action(core)` as a step of its own."""
    return node.node.perform(lambda: action(node.core))


# --- of all nodes


def health(_: NodeControl) -> dict[str, Any]:
    """Whether the control API answers."""
    return {"status": "ok"}


def describe(control: NodeControl) -> dict[str, Any]:
    """The nodes; for a controller also its epoch, and whether it believes to be active."""
    found: dict[str, Any] = {"brokers": [], "controllers": []}
    for node in control.nodes():
        state = {"id": node.node_id, "address": node.advertised, "running": True, "paused": False}
        state["rack"] = None if node.is_controller else node.core.config.broker_rack
        if node.is_controller:
            controller = node.core.controller  # type: ignore[union-attr]  # a ControllerNode
            state |= {"active": controller.active, "epoch": controller.epoch}
        found["controllers" if node.is_controller else "brokers"].append(state)
    return found


def status(control: NodeControl) -> dict[str, Any]:
    """The status of each node (`status.py`)."""
    found = []
    for node in control.nodes():
        snapshot = snapshot_of_controller if node.is_controller else snapshot_of_broker
        found.append({"id": node.node_id, "status": step(node, snapshot)})
    return {"nodes": found}


def failures(control: NodeControl) -> dict[str, Any]:
    """Tracebacks of internal errors: exceptions that the nodes' cores must not raise."""
    return {
        "failures": [
            "".join(traceback.format_exception(error))[-_FAILURE_CHARACTERS:]
            for node in control.nodes()
            for error in node.core.failed[:_MAX_FAILURES]
        ]
    }


def events(
    control: NodeControl, since: int | None, name: str | None, topic: str | None, broker: int | None
) -> dict[str, Any]:
    """The newest events of each node, those with numbers above `since`."""
    from kwire.server.event_history import matching

    found: list[dict[str, Any]] = []
    dropped = 0
    for node in control.nodes():
        more, lost = node.node.events.since(since or 0)
        found += more
        dropped += lost
    return {"events": list(matching(found, name, topic, broker)), "dropped": dropped}


# --- the network between these nodes and others


def set_network(control: NodeControl, rules: list[Any] | None, texts: list[Any] | None) -> Any:
    """Replace all link rules of these nodes, given as JSON objects or texts (`LinkRule`)."""
    from kwire.server.link_rules import rules_from_json

    control.known_rules()
    if rules is texts is None:
        raise ControlError(400, "rules: missing")
    try:
        wanted = rules_from_json(texts if rules is None else rules)
    except ValueError as error:
        raise ControlError(400, str(error)) from None
    control.set_rules(wanted)
    return {}


def network(control: NodeControl) -> dict[str, Any]:
    """The link rules of these nodes, as `set_network` takes them."""
    return {"rules": [rule.to_json() for rule in control.known_rules()]}


def cut(control: NodeControl, a: Ids, b: Ids, one_way: bool | None) -> dict[str, Any]:
    """Cut the links from these nodes to those on the other side."""
    control.known_rules()
    sides = {"nodes": sorted(_as_set(a)), "others": sorted(_as_set(b)), "one_way": bool(one_way)}
    event(_log, NodeEvent.CUT_REQUESTED, **sides)
    return _add_rules(control, a, b, None, one_way=bool(one_way))


def delay(
    control: NodeControl, a: Ids, b: Ids, milliseconds: float, one_way: bool | None
) -> dict[str, Any]:
    """Delay the links from these nodes to those on the other side."""
    from kwire.server.link_rules import checked_delay_ms

    control.known_rules()
    try:
        delay_ms = checked_delay_ms(milliseconds)
    except ValueError as error:
        raise ControlError(400, str(error)) from None
    sides = {"nodes": sorted(_as_set(a)), "others": sorted(_as_set(b)), "one_way": bool(one_way)}
    event(_log, NodeEvent.DELAY_REQUESTED, delay_ms=delay_ms, **sides)
    return _add_rules(control, a, b, delay_ms, one_way=bool(one_way))


def heal(control: NodeControl, a: Ids | None, b: Ids | None) -> dict[str, Any]:
    """Remove the link rules between `a` and `b`; with one of them all from or to it, else all."""
    rules = control.known_rules()
    first, second = (None if ids is None else sorted(_as_set(ids)) for ids in (a, b))
    event(_log, NodeEvent.HEAL_REQUESTED, nodes=first, others=second, rules=None)
    if a is None:
        a, b = b, None
    if a is None:
        others = {rule.to for rule in rules}
    elif b is None:
        here = any(node.node_id in _as_set(a) for node in control.nodes())
        others = {rule.to for rule in rules} if here else _as_set(a)
    else:
        others = _others(control, a, b)
    healed = [rule.to_json() for rule in rules if rule.to in others]
    control.set_rules([rule for rule in rules if rule.to not in others])
    return {"rules": healed}


def _add_rules(
    control: NodeControl, a: Ids, b: Ids, delay_ms: int | None, *, one_way: bool
) -> dict[str, Any]:
    from kwire.server.link_rules import LinkRule

    rules = {rule.to: rule for rule in control.known_rules()}
    rules |= {to: LinkRule(to, delay_ms) for to in sorted(_others(control, a, b, one_way))}
    control.set_rules(list(rules.values()))
    return {}


def _others(control: NodeControl, a: Ids, b: Ids, one_way: bool = False) -> set[int]:
    """The nodes of `b` if one of `a` is in this process, and vice versa unless `one_way`."""
    first, second = _as_set(a), _as_set(b)
    here = {node.node_id for node in control.nodes()}
    return (second if here & first else set()) | (first if here & second and not one_way else set())


def _as_set(ids: Ids) -> set[int]:
    return set(ids if isinstance(ids, list) else [ids])


# --- of a broker


def replica(broker: Broker, topic: str, index: int) -> dict[str, Any]:
    """The state of one replica at the broker that hosts it."""
    partition = broker.services.replica_manager.partition(topic, index)
    log = partition.log
    return {
        "leads": partition.is_leader,
        "leader_epoch": partition.leader_epoch,
        "high_watermark": log.high_watermark,
        "log_start_offset": log.log_start_offset,
        "log_end_offset": log.log_end_offset,
        "epochs": [list(entry) for entry in log.leader_epochs.entries],
    }


def compact(broker: Broker, topic: str) -> dict[str, Any]:
    """Request the compaction of a topic's replicas here; `compaction` tells how far it is."""
    services = broker.services
    logs = [log for log in services.log_manager.logs() if log.topic == topic]
    if not all(log.config.compact for log in logs):
        policy = ",".join(sorted(logs[0].config.cleanup_policy))
        message = f"topic {topic} is not compacted: its cleanup.policy is {policy}"
        raise KafkaError(ErrorCode.INVALID_CONFIG, message)
    for log in logs:
        broker.compaction.cleaner.request(services.log_manager, log)
    return compaction(broker, topic)


def compaction(broker: Broker, topic: str) -> dict[str, Any]:
    """How far the compaction that was requested is: the partitions that are not done."""
    requests = broker.compaction.cleaner.requests
    return {
        "cleaning": requests.cleaning(topic),
        "waiting": {str(index): why for index, why in requests.waiting(topic).items()},
        "failed": {str(index): why for index, why in requests.failed(topic).items()},
    }


def apply_retention(broker: Broker, topic: str | None) -> dict[str, Any]:
    """Delete what retention does not keep, of one topic or of all; returns how many segments."""
    logs = broker.services.log_manager.logs()
    wanted = [log for log in logs if topic in (None, log.topic) and not log.is_offline]
    return {"segments": sum(log.delete_old_segments() for log in wanted)}


def fail(broker: Broker, text: str) -> dict[str, Any]:
    """Provoke an internal error, for tests of its handling."""
    try:
        raise RuntimeError(text)
    except RuntimeError as error:
        broker.step_failed(None, error)
    return {}


# --- of a controller


def topics(core: ControllerNode, internal: bool | None) -> dict[str, Any]:
    """Every topic and how many partitions it has. `internal` False: without internal topics."""
    from kwire.replication.core.metadata import INTERNAL_TOPICS

    left_out = INTERNAL_TOPICS if internal is False else ()
    state = core.controller.state
    return {
        "topics": {
            name: len(topic.partitions)
            for name, topic in state.topics.items()
            if name not in left_out
        }
    }


def partition(core: ControllerNode, name: str, index: int) -> dict[str, Any]:
    """The state of a partition at the controller."""
    topic = core.controller.state.topics.get(name)
    if topic is None or not 0 <= index < len(topic.partitions):
        raise KafkaError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no partition {name}-{index}"
        )
    found = topic.partitions[index]
    return {
        "leader": found.leader,
        "leader_epoch": found.leader_epoch,
        "partition_epoch": found.partition_epoch,
        "isr": list(found.isr),
        "replicas": list(found.replicas),
    }


def elect(
    core: ControllerNode, name: str, index: int, leader: int | None, unclean: bool | None
) -> dict[str, Any]:
    """Elect the given leader; return the partition."""
    if leader is None:
        raise ControlError(400, "leader: missing")
    controller = core.controller
    controller.step(lambda: controller.partitions.appoint(name, index, leader, bool(unclean)))
    return partition(core, name, index)


def configured_brokers(core: ControllerNode) -> dict[str, Any]:
    """The names of brokers that have dynamic configurations; "" stands for all brokers."""
    from kwire.replication.core.metadata import BROKER_RESOURCE

    configs = core.controller.state.configs
    return {
        "brokers": [name for (kind, name), v in configs.items() if kind == BROKER_RESOURCE and v]
    }


def live_brokers(core: ControllerNode) -> dict[str, Any]:
    """The ids of the brokers that the controller considers alive."""
    return {"brokers": sorted(core.controller.brokers)}


def fence_brokers(core: ControllerNode, broker_ids: Ids) -> dict[str, Any]:
    """Fence brokers that this run does not start, before their leases of the last run expire."""
    controller = core.controller
    for broker_id in sorted(_as_set(broker_ids)):
        broker = controller.brokers.get(broker_id)
        if broker is not None and not broker.has_reported:
            controller.step_or_resign(partial(controller.registry.fence, broker_id, "absent"))
    return {}
