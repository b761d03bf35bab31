"""Faults of disks: an operation, a partition's directory or a whole log directory fails."""

from __future__ import annotations

from errno import EIO

from kwire.replication.core.log_store import PartitionFault

TYPE_CHECKING = False
if TYPE_CHECKING:
    from kwire.sim.faults.nemesis import Nemesis
    from kwire.sim.node import Node


def disk(nemesis: Nemesis) -> None:
    """Fail one operation of a broker, for a partition or its whole log directory, or break a
    partition's directory until the broker restarts."""
    node = nemesis.pick()
    if node is None:
        return
    simulation, random = nemesis.simulation, nemesis.random
    store = simulation.stores[node.node_id]
    hosted = list(simulation.broker(node.node_id).services.replica_manager.by_key)
    if hosted and random.random() < 0.5:
        topic, index = random.choice(hosted)
        simulation.report_fault(f"{node}: the directory of {topic}-{index} fails")
        store.break_dir(f"{topic}-{index}", EIO, "Input/output error")
    else:
        _fail_next(nemesis, node, whole_disk=random.random() < 0.5)
    if random.random() < 0.7:
        simulation.schedule.after(4 * nemesis.outage_us(), _repair, nemesis, node, node.incarnation)


def _fail_next(nemesis: Nemesis, node: Node, *, whole_disk: bool = False) -> None:
    operation = nemesis.random.choice(("append", "append", "flush", "write_file"))
    nemesis.simulation.report_fault(f"{node}: the next {operation} fails{' for good' * whole_disk}")
    kind = OSError if whole_disk else PartitionFault
    error = kind(EIO, "Input/output error")
    nemesis.simulation.stores[node.node_id].fail_next(operation, error, nemesis.random)


def controller_disk(nemesis: Nemesis) -> None:
    """Fail a disk operation of a controller, which then resigns; mostly restart it later."""
    node = nemesis.some_controller()
    if node is not None:
        _fail_next(nemesis, node)
        if nemesis.random.random() < 0.7:
            delay_us = 4 * nemesis.outage_us()
            nemesis.simulation.schedule.after(delay_us, _repair, nemesis, node, node.incarnation)


def _repair(nemesis: Nemesis, node: Node, incarnation: int) -> None:
    if nemesis.active and node.up and node.incarnation == incarnation:
        nemesis.down(node, "is killed, its disk to be repaired")
