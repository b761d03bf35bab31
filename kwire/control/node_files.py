"""Handlers of the control API that hold the nodes of a process while their directories are copied, for snapshots.

A node that is held is suspended as a paused one: no request runs, no timer fires, its clients wait. All nodes of a
cluster are held before the first directory is copied. So the copies have no effect of a request without the
request, and are as good as the directories of nodes that were all killed in the same moment; those of brokers
are also as complete as after a clean stop (`kwire.replication.log_dirs.copying`).
"""

from __future__ import annotations

from kwire.control.errors import ControlError
from kwire.control.node_api import step
from kwire.protocol.errors import KafkaError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from kwire.broker import Broker
    from kwire.control.node_api import NodeControl


def hold(control: NodeControl) -> dict[str, Any]:
    """Suspend the nodes and complete the files of the broker; return its epoch and incarnation (a controller: None)."""
    epoch, incarnation = None, None
    try:
        for node in control.nodes():
            node.node.pause()
            if not node.is_controller:
                epoch, incarnation = step(node, _prepare)
    except (OSError, KafkaError) as error:
        release(control, resume=True)
        raise ControlError(500, f"the logs cannot be copied: {error}") from None
    return {"broker_epoch": epoch, "incarnation": incarnation}


def release(control: NodeControl, resume: bool) -> dict[str, Any]:
    """Let the nodes go on, those that were paused before with `resume` only."""
    from kwire.replication.log_dirs import copying

    for node in control.nodes():
        if not node.is_controller:
            step(node, lambda core: copying.release(core.services.log_manager))
        if resume:
            node.node.resume()
    return {}


def _prepare(core: Broker) -> tuple[int, str]:
    from kwire.replication.log_dirs import copying

    copying.prepare(core.services.log_manager)
    incarnation = b"" if core.member is None else core.member.link.incarnation_id
    return core.services.replica_manager.broker_epoch, incarnation.hex()
