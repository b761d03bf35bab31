"""Jumps of wall clocks. Nothing but the age of records may depend on them."""

from __future__ import annotations

from typing import Final

TYPE_CHECKING = False
if TYPE_CHECKING:
    from kwire.sim.faults.nemesis import Nemesis
    from kwire.sim.node import Node

_SECOND_MS: Final = 1000
_JUMPS_MS: Final = (5 * _SECOND_MS, 600 * _SECOND_MS, 3 * 3600 * _SECOND_MS, 20 * 3600 * _SECOND_MS)
"""Less than producer.id.expiration.ms, after which sequences of a producer are forgotten."""


def clock_jump(nemesis: Nemesis) -> None:
    """Move the wall clock of a broker, a controller or a client, forward or backward, and back later."""
    simulation, random = nemesis.simulation, nemesis.random
    nodes = list(simulation.nodes.values())
    node = nodes[random.randrange(len(nodes))]
    jump_ms = int(random.choice(_JUMPS_MS) * random.random()) * random.choice((1, -1))
    simulation.report_fault(f"the clock of {node} is {jump_ms} ms off")
    node.wall_offset_ms = jump_ms
    simulation.invariants.transactions.unfenced.clocks_jump = True
    simulation.schedule.after(2 * nemesis.outage_us(), _set_right, nemesis, node, jump_ms)


def _set_right(nemesis: Nemesis, node: Node, jump_ms: int) -> None:
    if node.wall_offset_ms == jump_ms != 0:
        nemesis.simulation.report_fault(f"the clock of {node} is right again")
        node.wall_offset_ms = 0
