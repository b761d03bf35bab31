"""What only a node itself can tell or do, for tests and people: questions, each answered at once, in a step of its own.

A question is a JSON list, its first item the name: over stdin of a supervised process as a line, in this process as
text, so that both launchers behave alike. The answer is JSON, too: `{"ok": …}`, or `{"error": NAME, "message": …}` with
Kafka's name of the error.
"""

from __future__ import annotations

import json
import traceback
from typing import TYPE_CHECKING

from kwire.control.status import snapshot_of_broker, snapshot_of_controller
from kwire.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from kwire.broker import Broker
    from kwire.controller_node import ControllerNode
    from kwire.server.node import Node

_FAILURE_CHARACTERS = 6000
_FAILURES_TOLD = 5
_ABSENT = "it is not started in this run"


def answer(node: Node, core: Broker | ControllerNode, question: str) -> str:
    """The answer to a question, as one line."""
    from kwire.controller_node import ControllerNode

    name, *arguments = json.loads(question)
    table = _OF_CONTROLLER if isinstance(core, ControllerNode) else _OF_BROKER
    try:
        handler = table[name]
        found = node.perform(lambda: handler(core, *arguments))
    except KafkaError as error:
        return json.dumps({"error": error.code.name, "message": error.message or error.code.name})
    except Exception as error:  # who asks over stdin would wait for an answer for ever
        text = f"{name}{tuple(arguments)}: {type(error).__name__}: {error}"
        return json.dumps({"error": ErrorCode.UNKNOWN_SERVER_ERROR.name, "message": text})
    return json.dumps({"ok": found})


# -- of any node -------------------------------------------------------------------------------------------------------


def _failures(core: Any) -> list[str]:
    """The tracebacks of what the node's core raised and must not raise."""
    return [
        "".join(traceback.format_exception(error))[-_FAILURE_CHARACTERS:]
        for error in core.failed[:_FAILURES_TOLD]
    ]


def _fail(core: Any, text: str) -> None:
    """An internal error, so that tests of what then happens need not look for a real one."""
    try:
        raise RuntimeError(text)
    except RuntimeError as error:
        core.step_failed(None, error)


# -- of a broker -------------------------------------------------------------------------------------------------------


def _requests(broker: Any, forget: bool = False) -> list[list[Any]]:
    """The last requests of clients (`RecentRequests.listed`); none where they are not kept."""
    sessions = broker.sessions
    if sessions.recent is None:
        return []
    found: list[list[Any]] = sessions.recent.listed(sessions.by_connection.values())
    if forget:
        sessions.recent.forget()
    return found


def _replica(broker: Any, topic: str, index: int) -> dict[str, Any]:
    """One replica as the broker that hosts it has it."""
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


# -- of the controller -------------------------------------------------------------------------------------------------


def _topics(core: Any) -> dict[str, int]:
    """Every topic and how many partitions it has."""
    state = core.controller.state
    return {name: len(topic.partitions) for name, topic in state.topics.items()}


def _partition(core: Any, name: str, index: int) -> dict[str, Any]:
    """A partition as the controller has it."""
    state = core.controller.state
    topic = state.topics.get(name)
    if topic is None or not 0 <= index < len(topic.partitions):
        raise KafkaError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no partition {name}-{index}"
        )
    partition = topic.partitions[index]
    return {
        "leader": partition.leader,
        "leader_epoch": partition.leader_epoch,
        "partition_epoch": partition.partition_epoch,
        "isr": partition.isr,
        "replicas": partition.replicas,
    }


def _appoint(core: Any, name: str, index: int, leader: int, unclean: bool) -> dict[str, Any]:
    """An election whose winner is given."""
    controller = core.controller
    controller.step(lambda: controller.partitions.appoint(name, index, leader, unclean))
    return _partition(core, name, index)


def _overridden(core: Any) -> list[list[Any]]:
    """Brokers (type 4) that have dynamic configurations; "" is all of them."""
    return [
        list(key) for key, value in core.controller.state.configs.items() if key[0] == 4 and value
    ]


def _brokers(core: Any) -> list[int]:
    """The brokers that the controller counts among the living."""
    return sorted(core.controller.brokers)


def _reign(core: Any) -> list[Any]:
    """Whether this controller is the active one, as far as it knows, and its epoch."""
    return [core.controller.active, core.controller.epoch]


def _absent(core: Any, broker_ids: list[int]) -> None:
    """These brokers are known not to run: their leases, of a former life of the cluster, are not waited for."""
    controller = core.controller
    for broker_id in broker_ids:
        broker = controller.brokers.get(broker_id)
        if broker is not None and not broker.heard:
            controller.step_alone(lambda id_=broker_id: controller.registry.fail(id_, _ABSENT))


_OF_BROKER: dict[str, Callable[..., Any]] = {
    "fail": _fail,
    "failures": _failures,
    "replica": _replica,
    "requests": _requests,
    "status": snapshot_of_broker,
}
_OF_CONTROLLER: dict[str, Callable[..., Any]] = {
    "failures": _failures,
    "topics": _topics,
    "partition": _partition,
    "appoint": _appoint,
    "overridden": _overridden,
    "brokers": _brokers,
    "reign": _reign,
    "absent": _absent,
    "status": snapshot_of_controller,
}
