"""The nemesis: faults and administration at times and places drawn from the seed.

Every fault ends by itself after about the plan's `outage_ms`; `end` ends them all. The kinds are
functions of the modules beside this one; `kinds.py` has their table.
"""

from __future__ import annotations

from random import Random

from kwire.sim.faults.kinds import KINDS
from kwire.sim.faults.rot import Rot, heal
from kwire.sim.faults.throttles import lift
from kwire.sim.schedule import MS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from kwire.sim.node import Node
    from kwire.sim.simulation import Simulation


class Nemesis:
    """Injects faults from `begin` on. `random`, which nothing else may use, says when and which;
    a source of each fault's own where and how long, so that a plan may skip some (shrink.py)."""

    def __init__(self, simulation: Simulation, random: Random) -> None:
        self.simulation = simulation
        self._draws = self.random = random
        self.active = False
        self.extra_topics = 0  # topics made by `create_topic`, whose names are used in turn
        self.is_throttling = False  # there may be throttles of replication
        self.rots: list[Rot] = []
        self.drawn: list[str] = []  # the kinds of all faults, skipped ones, too
        weights = simulation.plan.weights
        self._kinds = [kind for kind, weight in weights.items() if weight]
        self._weights = [weights[kind] for kind in self._kinds]

    def begin(self) -> None:
        """Start to inject faults."""
        self.active = True
        self._later()

    def end(self) -> None:
        """Stop injecting faults and repair everything but disks (see `replace_disks`)."""
        self.active = False
        simulation = self.simulation
        for store in simulation.stores.values():
            store.cancel_faults()
        for rot in list(self.rots):
            heal(self, rot)
        for node in simulation.nodes.values():
            node.wall_offset_ms = 0
        simulation.network.heal_all()
        weather = simulation.network.weather
        weather.slow_chance = weather.reset_chance = 0.0
        if self.is_throttling:
            lift(self)
        for node_id in [*simulation.controller_ids, *simulation.broker_ids]:
            node = simulation.nodes[node_id]
            if not node.up:
                self.start(node)

    def replace_disks(self) -> None:
        """Restart the nodes with failed disks on good ones."""
        simulation = self.simulation
        for node in self.damaged():
            simulation.report_fault(f"{node} starts again with a new disk")
            node.stop(0)
            self.start(node)

    def damaged(self) -> list[Node]:
        """Nodes with failed disks: brokers, and an only controller, which has resigned then."""
        simulation = self.simulation
        nodes = [simulation.nodes[b] for b in simulation.broker_ids]
        if len(simulation.controller_ids) == 1:
            nodes.append(simulation.nodes[simulation.controller_ids[0]])
        return [n for n in nodes if simulation.stores[n.node_id].has_failed]

    def _later(self) -> None:
        pause_us = int(self.simulation.plan.fault_pause_ms * MS * 2 * self._draws.random())
        self.simulation.schedule.after(max(pause_us, MS), self._act)

    def _act(self) -> None:
        if not self.active:
            return
        self._later()
        if self._kinds:
            plan, number = self.simulation.plan, len(self.drawn)
            self.drawn += self._draws.choices(self._kinds, self._weights)
            self.random = Random(f"{plan.seed}/fault/{number}")
            if number not in plan.skipped_faults:
                KINDS[self.drawn[-1]](self)

    def outage_us(self) -> int:
        return int(self.simulation.plan.outage_ms * MS * 2 * self.random.random()) + MS

    def pick(self) -> Node | None:
        """A random broker that is up."""
        nodes = self.simulation.nodes
        up = [nodes[b] for b in self.simulation.broker_ids if nodes[b].up]
        return self.random.choice(up) if up else None

    def start(self, node: Node) -> None:
        if not node.up:
            self.simulation.report_fault(f"{node} starts")
            store = self.simulation.stores[node.node_id]
            if store.has_failed:
                self.simulation.invariants.state.mended.add(node.node_id)
            store.mend()
            node.start()

    def down(self, node: Node, how: str) -> None:
        self.simulation.report_fault(f"{node} {how}")
        notice_us = 0 if self.random.random() < 0.7 else self.outage_us()
        node.stop(notice_us)
        self.simulation.schedule.after(self.outage_us(), self.start, node)

    def lose_tails(self, node: Node) -> None:
        keep = self.random.random()
        self.simulation.stores[node.node_id].crash(
            lambda size: size if self.random.random() < keep else int(size * self.random.random())
        )

    def some_controller(self) -> Node | None:
        """A controller that is up, in most cases the active one."""
        simulation = self.simulation
        core = simulation.controller
        if core is not None and self.random.random() < 0.7:
            return simulation.nodes[core.config.node_id]
        nodes = simulation.nodes
        up = [nodes[c] for c in simulation.controller_ids if nodes[c].up]
        return self.random.choice(up) if up else None

    def halt(self, node: Node) -> None:
        """Stop a broker after the step in which its last log directory has failed."""
        self.simulation.invariants.counts["halts"] += 1
        self.simulation.schedule.after(0, self._finish_halt, node, node.incarnation)

    def _finish_halt(self, node: Node, incarnation: int) -> None:
        if node.up and node.incarnation == incarnation:
            self.down(node, "has halted")

    def some_topic(self) -> tuple[str, int, list[int]] | None:
        """A random topic, one of its partitions, and that partition's replicas."""
        controller = self.simulation.controller
        if controller is None or not controller.controller.state.topics:
            return None
        topics = controller.controller.state.topics
        topic = topics[self.random.choice(list(topics))]
        index = self.random.randrange(len(topic.partitions))
        return topic.name, index, topic.partitions[index].target
