"""Faults of the network: cuts, one-way cuts, one broker cut off from all, delays, resets."""

from __future__ import annotations

from kwire.sim.schedule import MS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from kwire.sim.faults.nemesis import Nemesis


def _two(nemesis: Nemesis) -> tuple[int, int]:
    simulation = nemesis.simulation
    clients = [client.node_id for client in simulation.clients]
    ids = [*simulation.controller_ids, *simulation.broker_ids, *clients]
    one = nemesis.random.choice(simulation.broker_ids)
    return one, nemesis.random.choice([i for i in ids if i != one])


def _cut_links(nemesis: Nemesis, links: list[tuple[int, int]]) -> None:
    network = nemesis.simulation.network
    nemesis.simulation.report_fault(f"cut {links}")
    for link in links:
        network.cut(*link)
    nemesis.simulation.schedule.after(nemesis.outage_us(), _heal, nemesis, links)


def _heal(nemesis: Nemesis, links: list[tuple[int, int]]) -> None:
    nemesis.simulation.report_fault(f"healed {links}")
    for link in links:
        nemesis.simulation.network.heal(*link)


def cut(nemesis: Nemesis) -> None:
    one, other = _two(nemesis)
    _cut_links(nemesis, [(one, other), (other, one)])


def one_way(nemesis: Nemesis) -> None:
    one, other = _two(nemesis)
    _cut_links(nemesis, [(one, other) if nemesis.random.random() < 0.5 else (other, one)])


def isolate(nemesis: Nemesis) -> None:
    one = nemesis.random.choice(nemesis.simulation.broker_ids)
    ids = [*nemesis.simulation.controller_ids, *nemesis.simulation.broker_ids]
    others = [i for i in ids if i != one]
    _cut_links(nemesis, [link for other in others for link in ((one, other), (other, one))])


def slow(nemesis: Nemesis) -> None:
    one, other = _two(nemesis)
    network = nemesis.simulation.network
    delay_us = int(300 * MS * nemesis.random.random())
    nemesis.simulation.report_fault(f"{one} -> {other} is slow")
    network.slow_down(one, other, delay_us)
    nemesis.simulation.schedule.after(nemesis.outage_us(), _heal, nemesis, [(one, other)])


def reset(nemesis: Nemesis) -> None:
    connections = nemesis.simulation.network.open
    if connections:
        number = nemesis.random.choice(list(connections))
        nemesis.simulation.report_fault(f"reset {connections[number]}")
        nemesis.simulation.network.reset(connections[number])
