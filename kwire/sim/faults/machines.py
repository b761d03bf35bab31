"""Faults of processes and machines: kills, power cuts, clean stops, pauses; also of controllers."""

from __future__ import annotations

from typing import Any

from kwire.protocol.errors import KafkaError
from kwire.sim.schedule import MS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from kwire.sim.faults.nemesis import Nemesis
    from kwire.sim.node import Node


def kill(nemesis: Nemesis) -> None:
    node = nemesis.pick()
    if node is not None:
        nemesis.down(node, "is killed")


def power_cut(nemesis: Nemesis) -> None:
    node = nemesis.pick()
    if node is not None:
        nemesis.down(node, "loses power")
        nemesis.lose_tails(node)
        nemesis.simulation.power_cut.add(node.node_id)


def clean_stop(nemesis: Nemesis) -> None:
    node = nemesis.pick()
    if node is None:
        return
    core, incarnation = node.core, node.incarnation
    assert core is not None
    nemesis.simulation.report_fault(f"{node} is asked to stop")

    def ready() -> None:
        nemesis.simulation.schedule.after(0, _finish_stop, nemesis, node, core, incarnation)

    node.step(core.prepare_stop, ready)


def _finish_stop(nemesis: Nemesis, node: Node, core: Any, incarnation: int) -> None:
    if node.up and node.incarnation == incarnation:
        try:
            core.close()
        except (OSError, KafkaError) as error:
            nemesis.simulation.report_fault(f"{node}: {error}")
        nemesis.down(node, "has stopped")


def pause(nemesis: Nemesis) -> None:
    node = nemesis.pick() if nemesis.random.random() < 0.7 else nemesis.some_controller()
    if node is not None:
        nemesis.simulation.report_fault(f"{node} pauses")
        node.pause(nemesis.simulation.schedule.now_us + nemesis.outage_us())


def controller(nemesis: Nemesis) -> None:
    node = nemesis.some_controller()
    if node is None:
        return
    core = node.core
    assert core is not None
    if nemesis.random.random() < 0.3:
        node.step(core.prepare_stop, _nothing)
        nemesis.down(node, "is stopped")
    else:
        nemesis.down(node, "is killed")


def controller_pause(nemesis: Nemesis) -> None:
    """Pause the active controller so long that another may take over."""
    simulation = nemesis.simulation
    core = simulation.controller
    if core is not None and len(simulation.controller_ids) > 1:
        node = simulation.nodes[core.config.node_id]
        patience_ms = int(simulation.plan.config["controller.quorum.fetch.timeout.ms"])
        simulation.report_fault(f"{node} pauses")
        pause_us = int(patience_ms * MS * (0.8 + 2 * nemesis.random.random()))
        node.pause(simulation.schedule.now_us + pause_us)


def controller_power_cut(nemesis: Nemesis) -> None:
    """Cut the power of the machine that all controllers share."""
    simulation = nemesis.simulation
    nodes = [simulation.nodes[c] for c in simulation.controller_ids]
    if simulation.controller is None:
        return  # its last flush may have failed, which leaves the disk's state unknown
    for node in nodes:
        if node.up:
            nemesis.down(node, "loses power")
    nemesis.lose_tails(nodes[0])


def _nothing() -> None:
    pass
