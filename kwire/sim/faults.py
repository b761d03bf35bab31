"""The nemesis: faults and administration at times and places drawn from the seed.

Every fault ends by itself after about the plan's `outage_ms`; `end` ends them all. "replay" sends a
broker an old request of its controller again, which must change nothing (I15).
"""

from __future__ import annotations

from errno import EIO
from random import Random
from typing import Any

from kwire.protocol import api
from kwire.protocol.api import ApiKey
from kwire.protocol.errors import KafkaError
from kwire.replication.core.log_store import PartitionFault
from kwire.sim.compaction import PREFIX
from kwire.sim.plan import LEADER_CHANGES
from kwire.sim.schedule import MS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from kwire.broker import Broker
    from kwire.sim.node import Node
    from kwire.sim.simulation import Simulation


class Nemesis:
    """Injects faults from `begin` on. `random`, which nothing else may use, says when and which;
    a source of each fault's own where and how long, so that a plan may skip some (shrink.py)."""

    def __init__(self, simulation: Simulation, random: Random) -> None:
        self._simulation = simulation
        self._draws = self._random = random
        self._active = False
        self._topics = 0
        self.drawn: list[str] = []  # the kinds of all faults, skipped ones, too
        weights = simulation.plan.weights
        self._kinds = [kind for kind, weight in weights.items() if weight]
        self._weights = [weights[kind] for kind in self._kinds]

    def begin(self) -> None:
        """Start to inject faults."""
        self._active = True
        self._later()

    def end(self) -> None:
        """Stop injecting faults and repair everything but disks (see `replace_disks`)."""
        self._active = False
        simulation = self._simulation
        for store in simulation.stores.values():
            store.cancel_faults()
        simulation.network.heal_all()
        weather = simulation.network.weather
        weather.slow_chance = weather.reset_chance = 0.0
        for node_id in [*simulation.controller_ids, *simulation.broker_ids]:
            node = simulation.nodes[node_id]
            if not node.up:
                self._start(node)

    def replace_disks(self) -> None:
        """Restart the nodes with failed disks on good ones."""
        simulation = self._simulation
        for node in self.damaged():
            simulation.report_fault(f"{node} starts again with a new disk")
            node.stop(0)
            self._start(node)

    def damaged(self) -> list[Node]:
        """Nodes with failed disks: brokers, and an only controller, which has resigned then."""
        simulation = self._simulation
        nodes = [simulation.nodes[b] for b in simulation.broker_ids]
        if len(simulation.controller_ids) == 1:
            nodes.append(simulation.nodes[simulation.controller_ids[0]])
        return [n for n in nodes if simulation.stores[n.node_id].has_failed]

    def _later(self) -> None:
        pause_us = int(self._simulation.plan.fault_pause_ms * MS * 2 * self._draws.random())
        self._simulation.schedule.after(max(pause_us, MS), self._act)

    def _act(self) -> None:
        if not self._active:
            return
        self._later()
        if self._kinds:
            plan, number = self._simulation.plan, len(self.drawn)
            self.drawn += self._draws.choices(self._kinds, self._weights)
            self._random = Random(f"{plan.seed}/fault/{number}")
            if number not in plan.skipped_faults:
                KINDS[self.drawn[-1]](self)

    def _outage_us(self) -> int:
        return int(self._simulation.plan.outage_ms * MS * 2 * self._random.random()) + MS

    def _pick(self) -> Node | None:
        """A random broker that is up."""
        nodes = self._simulation.nodes
        up = [nodes[b] for b in self._simulation.broker_ids if nodes[b].up]
        return self._random.choice(up) if up else None

    def _start(self, node: Node) -> None:
        if not node.up:
            self._simulation.report_fault(f"{node} starts")
            self._simulation.stores[node.node_id].mend()
            node.start()

    # --- nodes

    def _down(self, node: Node, how: str) -> None:
        self._simulation.report_fault(f"{node} {how}")
        notice_us = 0 if self._random.random() < 0.7 else self._outage_us()
        node.stop(notice_us)
        self._simulation.schedule.after(self._outage_us(), self._start, node)

    def _kill(self) -> None:
        node = self._pick()
        if node is not None:
            self._down(node, "is killed")

    def _power_cut(self) -> None:
        node = self._pick()
        if node is not None:
            self._down(node, "loses power")
            self._lose_tails(node)
            self._simulation.power_cut.add(node.node_id)

    def _lose_tails(self, node: Node) -> None:
        keep = self._random.random()
        self._simulation.stores[node.node_id].crash(
            lambda size: size if self._random.random() < keep else int(size * self._random.random())
        )

    def _clean_stop(self) -> None:
        node = self._pick()
        if node is None:
            return
        core, incarnation = node.core, node.incarnation
        assert core is not None
        self._simulation.report_fault(f"{node} is asked to stop")

        def ready() -> None:
            self._simulation.schedule.after(0, self._finish_stop, node, core, incarnation)

        node.step(core.prepare_stop, ready)

    def _finish_stop(self, node: Node, core: Any, incarnation: int) -> None:
        if node.up and node.incarnation == incarnation:
            try:
                core.close()
            except (OSError, KafkaError) as error:
                self._simulation.report_fault(f"{node}: {error}")
            self._down(node, "has stopped")

    def _pause(self) -> None:
        node = self._pick() if self._random.random() < 0.7 else self._some_controller()
        if node is not None:
            self._simulation.report_fault(f"{node} pauses")
            node.pause(self._simulation.schedule.now_us + self._outage_us())

    # --- controllers

    def _some_controller(self) -> Node | None:
        """A controller that is up, in most cases the active one."""
        simulation = self._simulation
        core = simulation.controller
        if core is not None and self._random.random() < 0.7:
            return simulation.nodes[core.config.node_id]
        nodes = simulation.nodes
        up = [nodes[c] for c in simulation.controller_ids if nodes[c].up]
        return self._random.choice(up) if up else None

    def _controller(self) -> None:
        node = self._some_controller()
        if node is None:
            return
        core = node.core
        assert core is not None
        if self._random.random() < 0.3:
            node.step(core.prepare_stop, _nothing)
            self._down(node, "is stopped")
        else:
            self._down(node, "is killed")

    def _controller_pause(self) -> None:
        """Pause the active controller so long that another may take over."""
        simulation = self._simulation
        core = simulation.controller
        if core is not None and len(simulation.controller_ids) > 1:
            node = simulation.nodes[core.config.node_id]
            patience_ms = int(simulation.plan.config["controller.quorum.fetch.timeout.ms"])
            simulation.report_fault(f"{node} pauses")
            pause_us = int(patience_ms * MS * (0.8 + 2 * self._random.random()))
            node.pause(simulation.schedule.now_us + pause_us)

    def _controller_power_cut(self) -> None:
        """Cut the power of the machine that all controllers share."""
        simulation = self._simulation
        nodes = [simulation.nodes[c] for c in simulation.controller_ids]
        if simulation.controller is None:
            return  # its last flush may have failed, which leaves the disk's state unknown
        for node in nodes:
            if node.up:
                self._down(node, "loses power")
        self._lose_tails(nodes[0])

    # --- disks

    def _disk(self) -> None:
        """Fail one operation of a broker, for a partition or its whole log directory, or break a
        partition's directory until the broker restarts."""
        node = self._pick()
        if node is None:
            return
        simulation, random = self._simulation, self._random
        store = simulation.stores[node.node_id]
        hosted = list(simulation.broker(node.node_id).services.replica_manager.by_key)
        if hosted and random.random() < 0.5:
            topic, index = random.choice(hosted)
            simulation.report_fault(f"{node}: the directory of {topic}-{index} fails")
            store.break_dir(f"{topic}-{index}", EIO, "Input/output error")
        else:
            self._fail_next(node, whole_disk=random.random() < 0.5)
        if random.random() < 0.7:
            simulation.schedule.after(4 * self._outage_us(), self._repair, node, node.incarnation)

    def _fail_next(self, node: Node, *, whole_disk: bool = False) -> None:
        operation = self._random.choice(("append", "append", "flush", "write_file"))
        self._simulation.report_fault(
            f"{node}: the next {operation} fails{' for good' * whole_disk}"
        )
        kind = OSError if whole_disk else PartitionFault
        error = kind(EIO, "Input/output error")
        self._simulation.stores[node.node_id].fail_next(operation, error, self._random)

    def halt(self, node: Node) -> None:
        """Stop a broker after the step in which its last log directory has failed."""
        self._simulation.invariants.counts["halts"] += 1
        self._simulation.schedule.after(0, self._finish_halt, node, node.incarnation)

    def _finish_halt(self, node: Node, incarnation: int) -> None:
        if node.up and node.incarnation == incarnation:
            self._down(node, "has halted")

    def _controller_disk(self) -> None:
        """Fail a disk operation of a controller, which then resigns; mostly restart it later."""
        node = self._some_controller()
        if node is not None:
            self._fail_next(node)
            if self._random.random() < 0.7:
                delay_us = 4 * self._outage_us()
                self._simulation.schedule.after(delay_us, self._repair, node, node.incarnation)

    def _repair(self, node: Node, incarnation: int) -> None:
        if self._active and node.up and node.incarnation == incarnation:
            self._down(node, "is killed, its disk to be repaired")

    # --- links

    def _two(self) -> tuple[int, int]:
        simulation = self._simulation
        clients = [client.node_id for client in simulation.clients]
        ids = [*simulation.controller_ids, *simulation.broker_ids, *clients]
        one = self._random.choice(simulation.broker_ids)
        return one, self._random.choice([i for i in ids if i != one])

    def _cut_links(self, links: list[tuple[int, int]]) -> None:
        network = self._simulation.network
        self._simulation.report_fault(f"cut {links}")
        for link in links:
            network.cut(*link)
        self._simulation.schedule.after(self._outage_us(), self._heal, links)

    def _heal(self, links: list[tuple[int, int]]) -> None:
        self._simulation.report_fault(f"healed {links}")
        for link in links:
            self._simulation.network.heal(*link)

    def _cut(self) -> None:
        one, other = self._two()
        self._cut_links([(one, other), (other, one)])

    def _one_way(self) -> None:
        one, other = self._two()
        self._cut_links([(one, other) if self._random.random() < 0.5 else (other, one)])

    def _isolate(self) -> None:
        one = self._random.choice(self._simulation.broker_ids)
        ids = [*self._simulation.controller_ids, *self._simulation.broker_ids]
        others = [i for i in ids if i != one]
        self._cut_links([link for other in others for link in ((one, other), (other, one))])

    def _slow(self) -> None:
        one, other = self._two()
        network = self._simulation.network
        delay_us = int(300 * MS * self._random.random())
        self._simulation.report_fault(f"{one} -> {other} is slow")
        network.slow_down(one, other, delay_us)
        self._simulation.schedule.after(self._outage_us(), self._heal, [(one, other)])

    def _reset(self) -> None:
        connections = self._simulation.network.open
        if connections:
            number = self._random.choice(list(connections))
            self._simulation.report_fault(f"reset {connections[number]}")
            self._simulation.network.reset(connections[number])

    # --- old control requests

    def _replay(self) -> None:
        """Send a broker an old control request again, over another connection."""
        simulation, node = self._simulation, self._pick()
        if node is None or node.paused_until_us > simulation.schedule.now_us:
            return
        frames = simulation.control_frames.get(node.node_id)
        if not frames:
            return
        frame = self._random.choice(frames)
        broker = simulation.broker(node.node_id)
        if not _is_harmless(broker, frame):
            return
        simulation.invariants.counts["replays"] += 1
        before = _state(broker)
        simulation.report_fault(f"{node} hears an old order again")
        number = -1 - simulation.schedule.events
        node.step(broker.connection_opened, number, "PLAINTEXT", "10.0.0.9")
        node.step(broker.receive_frame, number, frame)
        node.step(broker.connection_closed, number)
        after = _state(broker)
        if after != before:
            simulation.invariants.violated(
                "I15", f"{node} obeyed an old order: {before} became {after}"
            )

    # --- administration

    def _some_topic(self) -> tuple[str, int, list[int]] | None:
        """A random topic, one of its partitions, and that partition's replicas."""
        controller = self._simulation.controller
        if controller is None or not controller.controller.state.topics:
            return None
        topics = controller.controller.state.topics
        topic = topics[self._random.choice(list(topics))]
        index = self._random.randrange(len(topic.partitions))
        return topic.name, index, topic.partitions[index].target

    def _reassign(self) -> None:
        from kwire.protocol.schemas.topics import (
            AlterPartitionReassignmentsRequest,
            ReassignablePartition,
            ReassignableTopic,
        )

        found = self._some_topic()
        if found is None:
            return
        name, index, replicas = found
        target: list[int] | None = self._random.sample(self._simulation.broker_ids, len(replicas))
        if self._random.random() < 0.2:
            target = None  # cancels an ongoing reassignment
        request = AlterPartitionReassignmentsRequest(
            timeout_ms=2000,
            topics=[
                ReassignableTopic(
                    name=name,
                    partitions=[ReassignablePartition(partition_index=index, replicas=target)],
                )
            ],
        )
        self._simulation.report_fault(f"reassign {name}-{index} to {target}")
        self._simulation.administrate(ApiKey.ALTER_PARTITION_REASSIGNMENTS, 0, request)

    def _elect(self) -> None:
        from kwire.protocol.schemas.topics import ElectLeadersRequest

        kind = 1 if self._simulation.plan.unclean and self._random.random() < 0.3 else 0
        request = ElectLeadersRequest(election_type=kind, topic_partitions=None, timeout_ms=2000)
        self._simulation.report_fault(f"elect leaders ({'unclean' if kind else 'preferred'})")
        self._simulation.administrate(ApiKey.ELECT_LEADERS, 2, request)

    def _delete_records(self) -> None:
        from kwire.protocol.schemas.topics import (
            DeleteRecordsPartition,
            DeleteRecordsRequest,
            DeleteRecordsTopic,
        )

        found = self._some_topic()
        controller = self._simulation.controller
        if found is None or controller is None:
            return
        name, index, _ = found
        if name.startswith(PREFIX):
            return  # Kafka refuses it
        leader = controller.controller.state.topics[name].partitions[index].leader
        if leader < 0 or not self._simulation.nodes[leader].up:
            return
        partition = self._simulation.broker(leader).services.replica_manager.by_key.get(
            (name, index)
        )
        if partition is None:
            return
        offset = self._random.randint(0, partition.log.high_watermark)
        plan = self._simulation.plan
        if plan.unclean or any(plan.weights[kind] for kind in LEADER_CHANGES):
            # With a log start within a batch, a diverged follower may be truncated within a batch,
            # too, and never catch up again, because the leader's batch begins below the follower's
            # end (§3.5, S34), in Kafka as here (compat_tests/divergence.py). So round to a batch.
            offset = self._boundary(name, index, offset)
        request = DeleteRecordsRequest(
            topics=[
                DeleteRecordsTopic(
                    name=name,
                    partitions=[DeleteRecordsPartition(partition_index=index, offset=offset)],
                )
            ],
            timeout_ms=500,
        )
        self._simulation.report_fault(f"delete records of {name}-{index} up to {offset}")
        self._simulation.administrate(ApiKey.DELETE_RECORDS, 2, request, leader)

    def _boundary(self, name: str, index: int, offset: int) -> int:
        """The first offset of the committed batch that holds `offset`."""
        controller = self._simulation.controller
        assert controller is not None
        topic_id = controller.controller.state.topics[name].topic_id
        entry = self._simulation.invariants.ghost(name, topic_id, index).committed.covering(offset)
        return offset if entry is None else entry.base

    def _create_topic(self) -> None:
        simulation = self._simulation
        self._topics = (self._topics + 1) % 3
        topic = simulation.plan.topic(self._random, f"extra-{self._topics}")
        simulation.report_fault(f"create {topic.name}")
        simulation.create_topic(topic)

    def _delete_topic(self) -> None:
        from kwire.protocol.schemas.topics import DeleteTopicsRequest, DeleteTopicState

        found = self._some_topic()
        if found is None:
            return
        request = DeleteTopicsRequest(topics=[DeleteTopicState(name=found[0])], timeout_ms=2000)
        if self._random.random() < 0.4:
            # The broker comes back with a replica of a topic that was deleted meanwhile.
            node = self._simulation.nodes[self._random.choice(found[2])]
            if node.up:
                self._down(node, "is killed")
        self._simulation.report_fault(f"delete {found[0]}")
        self._simulation.administrate(ApiKey.DELETE_TOPICS, 6, request)
        if not found[0].startswith("extra"):
            again = self._simulation.plan.topic(self._random, found[0])
            self._simulation.schedule.after(self._outage_us(), self._simulation.create_topic, again)

    def _configure(self) -> None:
        from kwire.protocol.schemas.configs import (
            IncrementalAlterableConfig,
            IncrementalAlterConfigsRequest,
            IncrementalAlterConfigsResource,
        )

        found = self._some_topic()
        if found is None:
            return
        value = str(self._random.randint(1, 2))
        request = IncrementalAlterConfigsRequest(
            resources=[
                IncrementalAlterConfigsResource(
                    resource_type=2,
                    resource_name=found[0],
                    configs=[
                        IncrementalAlterableConfig(
                            name="min.insync.replicas", config_operation=0, value=value
                        )
                    ],
                )
            ]
        )
        self._simulation.report_fault(f"{found[0]}: min.insync.replicas={value}")
        self._simulation.administrate(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, request)


def _is_harmless(broker: Broker, frame: bytes) -> bool:
    """Whether a control request is stale or a repetition, and must change nothing."""
    manager = broker.services.replica_manager
    header = api.parse_request_header(frame)
    request: Any
    request, _ = api.request_class(header.api_key).decode_from(
        frame, header.body_position, header.api_version
    )
    if (
        request.controller_epoch < manager.controller_epoch
        or request.broker_epoch < manager.broker_epoch
    ):
        return True
    if header.api_key != ApiKey.LEADER_AND_ISR or request.type == 2:
        return False
    return all(
        (partition := manager.by_key.get((topic.topic_name, state.partition_index))) is not None
        and partition.leader_epoch >= state.leader_epoch
        for topic in request.topic_states
        for state in topic.partition_states
    )


def _state(broker: Broker) -> tuple[Any, ...]:
    manager = broker.services.replica_manager
    return (
        manager.controller_epoch,
        manager.broker_epoch,
        manager.metadata.brokers_version,
        [
            (
                key,
                p.is_leader,
                p.leader_id,
                p.leader_epoch,
                p.partition_epoch,
                p.isr_state,
                p.log.log_start_offset,
                p.log.high_watermark,
                p.log.log_end_offset,
                list(p.log.leader_epochs.entries),
            )
            for key, p in manager.by_key.items()
        ],
    )


def _nothing() -> None:
    pass


KINDS: dict[str, Callable[[Nemesis], None]] = {
    "kill": Nemesis._kill,
    "power_cut": Nemesis._power_cut,
    "clean_stop": Nemesis._clean_stop,
    "pause": Nemesis._pause,
    "cut": Nemesis._cut,
    "one_way": Nemesis._one_way,
    "isolate": Nemesis._isolate,
    "slow": Nemesis._slow,
    "reset": Nemesis._reset,
    "controller": Nemesis._controller,
    "controller_pause": Nemesis._controller_pause,
    "controller_power_cut": Nemesis._controller_power_cut,
    "disk": Nemesis._disk,
    "controller_disk": Nemesis._controller_disk,
    "replay": Nemesis._replay,
    "reassign": Nemesis._reassign,
    "elect": Nemesis._elect,
    "delete_records": Nemesis._delete_records,
    "create_topic": Nemesis._create_topic,
    "delete_topic": Nemesis._delete_topic,
    "configure": Nemesis._configure,
}
"""The function of each kind of fault in `plan.py`; a test compares both lists."""
