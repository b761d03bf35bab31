"""One simulation run: a cluster built from a plan, its clients, faults and checkers.

A run has three parts: the cluster starts and creates its topics; clients work while faults happen,
for a number of steps; then faults cease, all nodes are started, and the cluster must converge. A
run fails with an InvariantViolation or with the exception that a core raised.
"""

from __future__ import annotations

from random import Random
from typing import Any, Final

from kwire.apis.releases import release_ranges
from kwire.broker import Broker
from kwire.controller_node import ControllerNode
from kwire.protocol import api
from kwire.protocol.api import ApiKey
from kwire.protocol.schemas.topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from kwire.replication.config.broker_config import BrokerConfig
from kwire.replication.core.metadata import Endpoint
from kwire.replication.core.types import CONTROLLER_ID
from kwire.replication.member.cluster_member import ClusterSettings
from kwire.sim.answers.checker import Answers
from kwire.sim.clients.administrator import Administrator
from kwire.sim.clients.base import Client, Setting
from kwire.sim.clients.kinds import KINDS
from kwire.sim.convergence import unconverged, unconverged_with_broken_disks, verify_end
from kwire.sim.decisions import Decisions
from kwire.sim.disks import Disks
from kwire.sim.faults.nemesis import Nemesis
from kwire.sim.invariants import Invariants
from kwire.sim.network import Network
from kwire.sim.node import EPOCH_WALL_MS, LISTENER, Node
from kwire.sim.plan import Plan
from kwire.sim.schedule import MS, Schedule
from kwire.sim.state.deciding import check_kept
from kwire.sim.state.pieces import are_small, count_waiting, cut_changes, cut_work
from kwire.sim.waiting import check_waiting

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from kwire.replication.controller.controller import Controller
    from kwire.replication.controller.state import Record
    from kwire.replication.core.clock import Clock
    from kwire.replication.core.outbox import Log, Outbox
    from kwire.sim.network import Connection
    from kwire.sim.plan import TopicPlan

_FIRST_CLIENT: Final = 2001
_PORT: Final = 9092
_CLUSTER_ID: Final = "SimulatedClusterAAAAAA"
_CONTROL: Final = (ApiKey.LEADER_AND_ISR, ApiKey.STOP_REPLICA, ApiKey.UPDATE_METADATA)
_STALE_CONTROLLER_EPOCH: Final = b"\0\x0b"
_CREATE_TOPICS: Final = ApiKey.CREATE_TOPICS
_START_BOUND_MS: Final = 20_000


class Simulation:
    """A simulation; `run` it once. `nodes`: by id; `plan`: the meaning of the seed; `story`: lines
    about faults and administration."""

    def __init__(
        self,
        seed: int,
        *,
        steps: int = 4000,
        plan: Plan | None = None,
        trace: Callable[[str], None] | None = None,
    ) -> None:
        """`steps`: how many core steps the part with faults has. `trace` gets readable lines."""
        self.seed = seed
        self.plan = plan = plan or Plan(seed)
        self.steps_wanted = steps
        self.steps = self.digest = 0
        self.story: list[str] = []
        self.events, self.failed_tasks = set[str](), set[str]()
        self.tracing = trace is not None
        self._trace = trace
        self.schedule = Schedule()
        self.network = Network(self.schedule, Random(f"{seed}/network"), plan.weather)
        self.invariants = Invariants(self.schedule)
        if trace is not None:
            self.invariants.trace_lines = []
        self.answers = Answers(self.invariants, plan)
        self.where = "the start"  # the current step, for error messages
        self.nodes: dict[int, Node] = {}
        self.stores: dict[int, Disks] = {}
        self.decisions = Decisions(self.invariants, self.stores)
        self.broker_ids = list(range(1, plan.brokers + 1))
        self.clients: list[Node] = []
        self.control_frames: dict[int, list[bytes]] = {}
        self.controller_ids = [CONTROLLER_ID + number for number in range(plan.controllers)]
        self.power_cut: set[int] = set()
        self._missed_us = 0
        self._requests: dict[tuple[int, int], bytes] = {}  # API keys and versions, for a trace
        self._random = Random(f"{seed}/clients")
        self.invariants.transactions.unfenced.skew_ms = plan.skew_ms
        skews = Random(f"{seed}/skew")
        for node_id in [*self.controller_ids, *self.broker_ids]:
            self._add_node(node_id, skews.randint(0, plan.skew_ms) if plan.skew_ms else 0)
        self.nemesis = Nemesis(self, Random(f"{seed}/faults"))

    # --- composition

    def _add_node(self, node_id: int, skew_ms: int) -> None:
        is_controller = node_id in self.controller_ids
        if node_id > CONTROLLER_ID and is_controller:
            self.stores[node_id] = self.stores[CONTROLLER_ID]  # controllers share a disk
        else:
            directories = 1 if is_controller else self.plan.log_dirs
            self.stores[node_id] = Disks(
                directories, lambda: EPOCH_WALL_MS + self.schedule.now_us // MS
            )
        name = f"controller-{node_id}" if is_controller else f"broker-{node_id}"
        make_node = self._make_controller if is_controller else self._make_broker

        def make(clock: Clock, outbox: Outbox) -> Any:
            return make_node(node_id, clock, outbox)

        timeout_us = int(self.plan.config["replica.socket.timeout.ms"]) * MS
        self.nodes[node_id] = Node(
            self, node_id, name, make, skew_ms=skew_ms, answer_timeout_us=timeout_us
        )

    def _make_broker(self, node_id: int, clock: Clock, outbox: Outbox) -> Broker:
        incarnation = self.nodes[node_id].incarnation
        values = {**self.plan.config, "node.id": str(node_id)}
        if self.plan.racks:
            values["broker.rack"] = self.plan.rack_of(node_id)
        broker = Broker(
            BrokerConfig(values, brokers=self.plan.brokers),
            self.stores[node_id].as_directories(),
            clock,
            outbox,
            Random(f"{self.seed}/{node_id}/{incarnation}"),
            cluster_id=_CLUSTER_ID,
            api_caps=release_ranges(self.plan.as_version) if self.plan.as_version else None,
            cluster=ClusterSettings(
                CONTROLLER_ID,
                (f"controller-{CONTROLLER_ID}", _PORT),
                LISTENER,
                more_controllers=[(c, f"controller-{c}", _PORT) for c in self.controller_ids[1:]],
            ),
        )
        broker.start([Endpoint(LISTENER, f"broker-{node_id}", _PORT)])
        self.invariants.check_restart(
            node_id, broker, power_cut=node_id in self.power_cut or self.invariants.has_rot(node_id)
        )
        self.power_cut.discard(node_id)
        return broker

    def _make_controller(self, node_id: int, clock: Clock, outbox: Outbox) -> ControllerNode:
        incarnation = self.nodes[node_id].incarnation
        values = {**self.plan.config, "node.id": str(node_id)}
        node = ControllerNode(
            BrokerConfig(values, brokers=self.plan.brokers),
            self.stores[node_id].first,
            clock,
            outbox,
            Random(f"{self.seed}/controller/{node_id}/{incarnation}"),
            cluster_id=_CLUSTER_ID,
            shared=len(self.controller_ids) > 1,
            alone=not any(self.nodes[c].up for c in self.controller_ids if c != node_id),
            on_new_controller=self._observe,
        )
        if are_small(self.seed):
            cut_work(node)
        node.start([Endpoint(LISTENER, f"controller-{node_id}", _PORT)])
        return node

    def _observe(self, controller: Controller) -> None:
        """Check every commit, as the last one of a step would not show all its changes."""
        checker, commit = self.decisions, controller.changelog.commit
        if are_small(self.seed):
            cut_changes(controller)

        def observed_commit(records: list[Record]) -> None:
            lacks, before = checker.missing_decisions(controller), self.controller
            commit(records)
            if not checker.is_active_controller(controller):
                checker.check_takeover(controller, lacks, deposes=before is not None)
            checker.check_commit(controller, records)

        controller.changelog.commit = observed_commit  # type: ignore[method-assign]

    def broker(self, node_id: int) -> Broker:
        """The core of a broker that is up."""
        core = self.nodes[node_id].core
        assert isinstance(core, Broker)
        return core

    @property
    def controller(self) -> ControllerNode | None:
        """The active controller, or None."""
        for node_id in self.controller_ids:
            core = self.nodes[node_id].core
            assert core is None or isinstance(core, ControllerNode)
            if core is not None and self.decisions.is_active_controller(core.controller):
                return core
        return None

    def add_client(
        self, name: str, make: Callable[..., Client], options: Mapping[str, Any]
    ) -> Node:
        """Add and start a client of the cluster: `make(setting, **options)`."""
        node_id = _FIRST_CLIENT + len(self.clients)
        random = Random(f"{self.seed}/{name}")
        plan, brokers, answers = self.plan, self.broker_ids, self.answers

        def core(clock: Clock, outbox: Outbox) -> Client:
            return make(Setting(name, clock, outbox, random, brokers, plan, answers), **options)

        node = Node(self, node_id, name, core)
        self.nodes[node_id] = node
        self.clients.append(node)
        node.start()
        return node

    # --- callbacks of nodes

    def node_at(self, host: str, port: int) -> Node | None:
        """The node with an advertised host name, or None."""
        return self.nodes.get(int(host.rpartition("-")[2]))

    def after_step(self, node: Node) -> None:
        """Count, digest and check a step of a core."""
        node_id = node.node_id
        self.steps += 1
        self.digest = (self.digest * 1000003 ^ self.schedule.now_us ^ node_id) & 0xFFFFFFFFFFFFFFFF
        if node_id < CONTROLLER_ID:
            broker = node.core
            assert isinstance(broker, Broker)
            self.invariants.check_broker(node_id, broker)
            check_waiting(self.invariants, node_id, broker)
            self.invariants.state.check_broker(node_id, broker)
            self.stores[node_id].watch_moves(broker.services.log_manager)
            if broker.halted is not None:
                self.nemesis.halt(node)
        elif node_id < _FIRST_CLIENT:
            core: ControllerNode = node.core  # type: ignore[assignment]
            self.decisions.check_controller(core.controller)
            if self.decisions.is_active_controller(core.controller):
                check_kept(self.invariants, core.controller, self.stores[node_id])
                count_waiting(self.invariants, core.controller)
        if self.tracing and self.invariants.trace_lines:
            lines, self.invariants.trace_lines = self.invariants.trace_lines, []
            for line in lines:
                self.trace(f"    {line}")

    def on_event(self, effect: Log) -> None:
        self.events.add(effect.event.name)
        if effect.event.name in ("STORAGE_TASK_FAILED", "STORAGE_FAULT"):
            self.failed_tasks.add(effect.text)
        self.invariants.transactions.unfenced.on_event(effect)

    def on_request(self, node: Node, connection: Connection, frame: bytes) -> None:
        self.where = f"{node} at {connection}"
        self.digest = (self.digest * 31 + hash_of(frame)) & 0xFFFFFFFFFFFFFFFF
        if connection.asker.node_id >= _FIRST_CLIENT:
            self.answers.on_request(connection.id, frame, self.broker(node.node_id))
        elif node.node_id < CONTROLLER_ID and frame[1] in _CONTROL:
            frames = self.control_frames.setdefault(node.node_id, [])
            frames.append(frame)
            if len(frames) > 30:
                del frames[0]
        if self.tracing:
            from kwire.sim.describe import request_line

            self._requests[connection.id, int.from_bytes(frame[4:8], "big")] = frame[0:4]
            self.trace(f"{connection.asker} -> {node} {request_line(frame)} ({connection.channel})")

    def on_response(self, node: Node, connection: Connection, frame: bytes) -> None:
        self.digest = (self.digest * 37 + hash_of(frame)) & 0xFFFFFFFFFFFFFFFF
        asker = connection.asker
        if connection.channel == "control" and frame[5:7] == _STALE_CONTROLLER_EPOCH:
            self.invariants.counts["stale orders refused"] += 1
        if asker.node_id >= _FIRST_CLIENT and node.node_id < CONTROLLER_ID:
            client = self.nodes[asker.node_id].core
            assert isinstance(client, Client)
            self.answers.on_response(
                node.node_id,
                self.broker(node.node_id),
                connection.id,
                client,
                frame,
                node.paused_until_us,
            )
        if self.tracing:
            from kwire.sim.describe import response_line

            head = self._requests.pop((connection.id, int.from_bytes(frame[:4], "big")))
            key, version = int.from_bytes(head[:2], "big"), int.from_bytes(head[2:], "big")
            self.trace(
                f"{asker} <- {node} {api.ApiKey(key).name} {response_line(key, version, frame)}"
            )

    def trace(self, line: str) -> None:
        if self._trace is not None:
            self._trace(f"{self.schedule.now_us / 1e6:10.6f} {line}")

    def report_fault(self, line: str) -> None:
        self.trace(line)
        self.story.append(f"{self.schedule.now_us / 1e6:10.6f} {line}")

    # --- the run

    def run(self) -> None:
        """Start, inject faults, converge."""
        self.start()
        self.inject_faults()
        self.converge()

    def start(self) -> None:
        """Start all nodes, create all topics, add the clients."""
        for node_id in [*self.controller_ids, *self.broker_ids]:
            self.nodes[node_id].start()
        self.run_until(self._all_registered, _START_BOUND_MS, "brokers do not register")
        for topic in self.plan.topics:
            self.create_topic(topic)
        self._missed_us = self.schedule.now_us
        self.run_until(self._topics_made, _START_BOUND_MS, "topics are not made")
        self._add_clients()

    def _all_registered(self) -> bool:
        controller = self.controller
        return controller is not None and all(
            b in controller.controller.brokers and self.broker(b).services.metadata.is_alive(b)
            for b in self.broker_ids
        )

    def _topics_made(self) -> bool:
        """Whether all topics exist; sends lost requests again after a while."""
        if (controller := self.controller) is None:
            return False  # it has resigned, and the other one has not taken over yet
        missing = [t for t in self.plan.topics if t.name not in controller.controller.state.topics]
        if missing and self.schedule.now_us > self._missed_us + 2000 * MS:
            self._missed_us = self.schedule.now_us
            for topic in missing:
                self.create_topic(topic)
        return not missing and unconverged(self) is None

    def create_topic(self, topic: TopicPlan, broker: int | None = None) -> None:
        """Send a CreateTopics request; it may get lost."""
        random = self._random
        request = CreateTopicsRequest(
            topics=[
                CreatableTopic(
                    name=topic.name,
                    num_partitions=-1,
                    replication_factor=-1,
                    assignments=[
                        CreatableReplicaAssignment(
                            partition_index=index,
                            broker_ids=random.sample(self.broker_ids, topic.replication_factor),
                        )
                        for index in range(topic.partitions)
                    ],
                    configs=[
                        CreatableTopicConfig(name=k, value=v) for k, v in topic.configs.items()
                    ],
                )
            ],
            timeout_ms=5000,
        )
        self.administrate(_CREATE_TOPICS, 7, request, broker)

    def administrate(self, key: int, version: int, request: Any, broker: int | None = None) -> None:
        """Send one administrator request and ignore the response."""
        if not self.clients:
            self.add_client("admin", Administrator, {})
        node = self.clients[0]
        core = node.core
        assert isinstance(core, Administrator)
        node.step(core.request, key, version, request, lambda response: None, broker)

    def _add_clients(self) -> None:
        for number, client in enumerate(self.plan.clients):
            make = KINDS[client.kind]
            self.add_client(f"{client.kind}-{number}", make, client.options)

    def inject_faults(self) -> None:
        """Run the part with the plan's faults."""
        self.nemesis.begin()
        until = self.steps + self.steps_wanted
        while self.steps < until and self.schedule.run_next():
            pass

    def converge(self) -> None:
        """End faults and clients, start all nodes; the cluster must converge in the plan's bound."""
        self.report_fault("faults cease")
        self.nemesis.end()
        for node in self.clients:
            assert isinstance(node.core, Client)
            node.core.stopping = True
        bound_ms = self.plan.bound_ms()
        if self.nemesis.damaged():
            reason = f"{bound_ms} ms after the last fault, with broken disks: "
            self.run_until(
                lambda: unconverged_with_broken_disks(self) is None,
                bound_ms,
                reason,
                unconverged_with_broken_disks,
            )
            self.nemesis.replace_disks()
        reason = f"not well {bound_ms} ms after the last fault: "
        self.run_until(lambda: unconverged(self) is None, self.plan.bound_ms(), reason)
        verify_end(self)

    def run_until(
        self,
        condition: Callable[[], bool],
        bound_ms: int,
        reason: str,
        explain: Callable[[Simulation], str | None] = unconverged,
    ) -> None:
        """Run until the condition holds, checked every 20 ms; I30 if it takes too long."""
        limit_us = self.schedule.now_us + bound_ms * MS
        next_us = self.schedule.now_us
        while True:
            upcoming = self.schedule.next_us()
            if upcoming is None or upcoming >= next_us:
                if condition():
                    return
                next_us += 20 * MS
                if next_us > limit_us or upcoming is None:
                    self.invariants.violated("I30", f"{reason}{explain(self) or ''}")
                continue
            self.schedule.run_next()


def hash_of(frame: bytes) -> int:
    """A number that is the same for the same bytes in every run: `hash` is not."""
    return int.from_bytes(frame[-8:], "big") ^ len(frame) ^ int.from_bytes(frame[:8], "big")
