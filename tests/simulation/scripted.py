"""Scenarios on the simulator: what chance finds too seldom, by hand."""

from __future__ import annotations

from collections.abc import Callable
from errno import EIO

from kwire.protocol.api import ApiKey
from kwire.protocol.schemas.cluster import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from kwire.protocol.schemas.topics import ElectLeadersRequest
from kwire.replication.controller.state import PartitionState
from kwire.replication.core.log_store import PartitionFault
from kwire.replication.core.types import CONTROLLER_ID
from kwire.replication.replica.isr import PendingExpandIsr
from kwire.replication.replica.partition import Partition
from kwire.sim.network import Weather
from kwire.sim.plan import ClientPlan, Plan, TopicPlan
from kwire.sim.schedule import MS
from kwire.sim.simulation import Simulation


class Scripted:
    """A quiet cluster with one partition; `story` is told, then the cluster must converge."""

    def __init__(
        self,
        story: Callable[[Scripted], None],
        *,
        brokers: int = 2,
        controllers: int = 1,
        log_dirs: int = 1,
    ) -> None:
        plan = Plan(1, without=frozenset(Plan(1).weights))
        plan.brokers = brokers
        plan.controllers = controllers
        plan.log_dirs = log_dirs
        plan.unclean = False
        plan.topics = [TopicPlan("orders", 1, brokers, {"min.insync.replicas": "1"})]
        plan.weather = Weather()
        plan.clients = [ClientPlan("producer", acks=1), ClientPlan("consumer", isolation_level=1)]
        plan.work_pause_ms = 5
        plan.skew_ms = 0
        plan.config.update(
            {
                "replica.lag.time.max.ms": "300",
                "broker.session.timeout.ms": "2000",
                "controller.quorum.fetch.timeout.ms": "500",
                "broker.heartbeat.interval.ms": "500",
                "log.flush.interval.messages": str(1 << 40),
                "log.segment.bytes": str(1 << 20),
                "replica.socket.timeout.ms": "4000",
            }
        )
        self.simulation = Simulation(1, plan=plan)
        self._story = story

    def run(self) -> None:
        self.simulation.start()
        self._story(self)
        self.simulation.converge()

    @property
    def leader_id(self) -> int:
        return self.state().leader

    @property
    def replicas(self) -> list[int]:
        """The leader first, the next to lead second."""
        return self.state().replicas

    def state(self) -> PartitionState:
        controller = self.simulation.controller
        assert controller is not None
        return controller.controller.state.topics["orders"].partitions[0]

    @property
    def epoch(self) -> int:
        """Of the controller in office; -1 while there is none."""
        controller = self.simulation.controller
        return -1 if controller is None else controller.controller.epoch

    def partition(self, broker_id: int) -> Partition:
        return self.simulation.broker(broker_id).services.replica_manager.by_key["orders", 0]

    def until(self, condition: Callable[[], bool], what: str) -> None:
        """Runs step by step."""
        limit_us = self.simulation.schedule.now_us + 10_000 * MS
        while not condition():
            assert self.simulation.schedule.run_next()
            assert self.simulation.schedule.now_us < limit_us, f"never: {what}"

    def wait(self, milliseconds: int) -> None:
        end_us = self.simulation.schedule.now_us + milliseconds * MS
        while (next_us := self.simulation.schedule.next_us()) is not None and next_us <= end_us:
            self.simulation.schedule.run_next()

    def cut(self, one: int, other: int) -> None:
        self.simulation.network.cut(one, other)
        self.simulation.network.cut(other, one)

    def heal(self, one: int, other: int) -> None:
        self.simulation.network.heal(one, other)
        self.simulation.network.heal(other, one)

    def power_cut(self, broker_id: int) -> None:
        """All that was not flushed is gone."""
        self.simulation.nodes[broker_id].stop()
        self.simulation.stores[broker_id].crash()
        self.simulation.power_cut.add(broker_id)


def restarted_while_its_proposal_travels() -> Scripted:
    """S55: a follower is proposed for the ISR, loses its log and restarts before the controller hears the proposal."""

    def story(cluster: Scripted) -> None:
        simulation = cluster.simulation
        leader = cluster.leader_id
        follower = 3 - leader
        cluster.cut(leader, follower)
        cluster.until(lambda: cluster.partition(leader).isr == {leader}, "the ISR shrinks")
        simulation.network.slow_down(leader, CONTROLLER_ID, 400 * MS)
        cluster.heal(leader, follower)
        cluster.until(
            lambda: isinstance(cluster.partition(leader).isr_state, PendingExpandIsr),
            "the follower is proposed",
        )
        cluster.power_cut(follower)
        cluster.cut(leader, follower)
        simulation.nodes[follower].start()
        cluster.wait(1000)

    return Scripted(story)


def an_order_for_the_incarnation_before() -> Scripted:
    """A follower has lost its log and restarted; before the controller knows, the leader dies and it is elected."""

    def story(cluster: Scripted) -> None:
        simulation = cluster.simulation
        leader, follower, _ = cluster.replicas
        cluster.until(lambda: cluster.partition(leader).log.high_watermark > 5, "records")
        simulation.nodes[follower].stop(100 * MS)
        simulation.stores[follower].crash()
        simulation.power_cut.add(follower)
        simulation.nodes[leader].stop(80 * MS)
        cluster.wait(
            102
        )  # the controller has noticed both ends; who is missed has 30 ms to come back
        simulation.network.slow_down(follower, CONTROLLER_ID, 400 * MS)
        simulation.nodes[follower].start()
        cluster.wait(1000)

    return Scripted(story, brokers=3)


def the_proposal_of_a_leader_whose_time_is_over() -> Scripted:
    """A leader proposes another for the ISR; before the controller hears of it, the preferred leader is elected."""

    def story(cluster: Scripted) -> None:
        simulation = cluster.simulation
        preferred, leader, third = cluster.replicas
        simulation.nodes[preferred].stop()
        cluster.until(lambda: cluster.leader_id == leader, "the second leads")
        simulation.nodes[preferred].start()
        cluster.until(lambda: len(cluster.state().isr) == 3, "the ISR is whole again")
        cluster.cut(leader, third)
        cluster.until(lambda: third not in cluster.partition(leader).isr, "the ISR shrinks")
        simulation.network.slow_down(leader, CONTROLLER_ID, 600 * MS)
        cluster.heal(leader, third)
        cluster.until(
            lambda: isinstance(cluster.partition(leader).isr_state, PendingExpandIsr),
            "the third is proposed",
        )
        cluster.cut(leader, third)
        cluster.cut(preferred, third)
        request = ElectLeadersRequest(election_type=0, topic_partitions=None, timeout_ms=2000)
        simulation.administrate(43, 2, request, preferred)
        cluster.until(lambda: cluster.leader_id == preferred, "the preferred one leads")
        cluster.wait(1000)

    return Scripted(story, brokers=3)


def an_order_of_a_deposed_controller() -> Scripted:
    """Another controller has taken over when orders of the one before arrive, and it thinks itself in office still."""

    def story(cluster: Scripted) -> None:
        simulation = cluster.simulation
        network, leader = simulation.network, cluster.leader_id
        follower = 3 - leader
        network.cut(CONTROLLER_ID, follower)
        cluster.cut(leader, follower)
        cluster.until(lambda: cluster.state().isr == [leader], "the ISR shrinks, orders are sent")
        simulation.nodes[CONTROLLER_ID].pause(simulation.schedule.now_us + 1500 * MS)
        cluster.until(lambda: cluster.epoch == 2, "the other controller takes over")
        cluster.heal(leader, follower)
        cluster.until(lambda: len(cluster.state().isr) == 2, "the ISR is whole again")
        network.heal(CONTROLLER_ID, follower)
        cluster.wait(2000)
        assert simulation.invariants.counts["stale orders refused"] > 0

    return Scripted(story, controllers=2)


def a_move_away_from_a_disk_that_fails() -> Scripted:
    """A log's directory fails at the end of its move to another disk, so that the old log stays. The broker
    refuses to start with both, as Kafka's does: the operator who repairs the disk deletes the old one."""

    def story(cluster: Scripted) -> None:
        simulation = cluster.simulation
        broker_id = cluster.leader_id
        disks = simulation.stores[broker_id]
        log = cluster.partition(broker_id).log
        cluster.until(lambda: log.high_watermark > 5, "records")
        source = next(n for n, store in enumerate(disks.stores) if store is log.store)
        topic = AlterReplicaLogDirTopic(name="orders", partitions=[0])
        move = AlterReplicaLogDir(path=f"/disk-{1 - source}", topics=[topic])
        request = AlterReplicaLogDirsRequest(dirs=[move])
        simulation.administrate(ApiKey.ALTER_REPLICA_LOG_DIRS, 2, request, broker_id)
        moves = simulation.broker(broker_id).services.log_manager
        cluster.until(lambda: moves.future("orders", 0) is not None, "the move begins")

        def fail(*_: str) -> None:
            del disks.stores[source].rename
            disks.stores[source].faults_taken += 1
            raise PartitionFault(EIO, "Input/output error")

        disks.stores[source].rename = fail  # type: ignore[method-assign]
        cluster.until(lambda: cluster.partition(broker_id).log is not log, "the move ends")
        assert all(store.exists("orders-0") for store in disks.stores)
        cluster.wait(50)
        node = simulation.nodes[broker_id]
        node.stop()
        disks.mend()
        node.start()
        assert [store.exists("orders-0") for store in disks.stores] == [source == 1, source == 0]
        cluster.wait(1000)

    return Scripted(story, log_dirs=2)
