"""A partition that a broker does not host any more: its disk has failed, it was deleted, or set aside."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from kwire.broker import Broker
    from kwire.replication.core.types import TopicPartition
    from kwire.replication.replica.partition import Partition
    from kwire.sim.invariants import Invariants


def check_removed(
    checker: Invariants, node_id: int, broker: Broker, key: TopicPartition, gone: Partition
) -> None:
    """Forget its mirror, if it is deleted: which only a replica is that was taken out of the assignment. I28."""
    ghost = checker.ghost(key[0], gone.topic_id, key[1])
    services = broker.services
    if key in services.replica_manager.offline:
        if ghost.compacted is None:
            checker.check_offline(node_id, ghost, gone)
        else:
            ghost.compacted.went_offline(node_id, gone.log.log_end_offset)
        return
    if services.log_manager.get(*key) is not None:
        return
    assigned = ghost.truth is not None and node_id in ghost.truth.replicas
    if assigned and not ghost.leaving and node_id not in ghost.left:
        checker.violated("I28", f"{node_id} has deleted {ghost.name}, of which it is a replica")
    if ghost.compacted is None:
        ghost.logs.pop(node_id, None)
    else:
        ghost.compacted.ends.pop(node_id, None)
