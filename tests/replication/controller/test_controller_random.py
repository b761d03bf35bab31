"""The controller under random orders and accidents: its records obey the invariants, and it always comes to rest."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from controller_harness import ListJournal, Simulated

from kwire.protocol.schemas.topics import (
    AlterPartitionReassignmentsRequest,
    ElectLeadersRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from kwire.replication.controller.state import ControllerState, PartitionState

BROKERS = (1, 2, 3, 4, 5)
TOPICS = ("a", "b", "c")


class Chaos:
    """Random steps of a cluster; each request must be answered exactly once."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.cluster = Simulated(*BROKERS[:3], unclean_leader_election_enable="false")
        self.asked = 0
        self.answered = 0

    def submit(self, request: Any, version: int) -> None:
        self.asked += 1
        answers: list[Any] = []

        def answer(response: Any) -> None:
            assert not answers, "answered twice"
            answers.append(response)
            self.answered += 1

        self.cluster.controller.submit(request, version, answer)

    def step(self) -> None:
        random, cluster = self.random, self.cluster
        alive = list(cluster.controller.brokers)
        topics = list(cluster.controller.state.topics)
        choice = random.randrange(14)
        if choice == 0 and len(alive) > 1:
            cluster.kill(random.choice(alive))
        elif choice == 1:
            broker = random.choice(BROKERS)
            if broker in cluster.controller.brokers:
                cluster.controller.connection_lost(broker, cluster.epochs[broker])
            cluster.start(broker)
        elif choice == 2:
            replicas = random.sample(BROKERS, random.randint(1, 3))
            cluster.create(random.choice(TOPICS), replicas)
        elif choice == 3 and topics and random.random() < 0.5:
            cluster.delete(random.choice(topics))
        elif choice == 4 and alive:
            cluster.stop(random.choice(alive))
        elif choice == 5 and alive:
            cluster.brokers.silent.add(random.choice(alive))
        elif choice == 6:
            for broker in list(cluster.brokers.silent):
                cluster.brokers.answer(broker)
        elif choice in (7, 8) and topics:
            target = random.choice([None, random.sample(BROKERS, random.randint(1, 3))])
            partition = ReassignablePartition(partition_index=0, replicas=target)
            topic = ReassignableTopic(name=random.choice(topics), partitions=[partition])
            self.submit(AlterPartitionReassignmentsRequest(topics=[topic]), 0)
        elif choice == 9:
            kind = int(random.random() < 0.2)
            self.submit(ElectLeadersRequest(election_type=kind, topic_partitions=None), 2)
        elif choice == 10:
            cluster.controller.step_or_resign(cluster.controller.partitions.balance)
        elif choice == 11 and random.random() < 0.3:
            self.fail_over()
        elif topics:
            self.change_isr(random.choice(topics))

    def check_now(self) -> None:
        """Who leads is alive; of the dead only the last of an ISR is listed."""
        controller = self.cluster.controller
        for topic, index, p in controller.context.partitions():
            dead = [b for b in p.isr if b not in controller.brokers]
            assert not dead or p.isr == dead, self.cluster.state(topic.name, index)
            assert p.leader == -1 or p.leader in controller.brokers

    def change_isr(self, topic: str) -> None:
        """What a leader would ask: one more member or one less."""
        p, random = self.cluster.partition(topic), self.random
        if p.leader < 0:
            return
        outside = [b for b in p.replicas if b not in p.isr]
        if outside and random.random() < 0.7:
            isr = [*p.isr, random.choice(outside)]
        else:
            isr = [b for b in p.isr if b == p.leader or random.random() < 0.7]
        self.cluster.alter(p.leader, isr, topic)

    def fail_over(self) -> None:
        """Another controller on the same journal; the brokers stay who they were."""
        old = self.cluster
        new = Simulated(journal=ListJournal(old.journal.records), clock=old.clock)
        new.epochs = old.epochs
        new._incarnation = old._incarnation
        assert sorted(new.controller.brokers) == sorted(old.controller.brokers)
        assert new.controller.state.configs == old.controller.state.configs
        old.controller.resign("deposed", "replaced")
        self.cluster = new

    def come_to_rest(self) -> None:
        cluster = self.cluster
        for broker in list(cluster.brokers.silent):
            cluster.brokers.answer(broker)
        for broker in BROKERS:
            if broker in cluster.controller.brokers:
                cluster.kill(broker)
            cluster.start(broker)
        for _ in range(8):
            for topic in list(cluster.controller.state.topics):
                for broker in cluster.partition(topic).replicas:
                    p = cluster.partition(topic)
                    if p.leader >= 0 and broker in p.replicas and broker not in p.isr:
                        cluster.alter(p.leader, [*p.isr, broker], topic)
            self.submit(ElectLeadersRequest(election_type=1, topic_partitions=None), 2)


def check_records(records: list[Any]) -> None:
    """I12, I13: every state of a partition, and what a record may change of it."""
    state = ControllerState()
    epochs = [0, 0]
    for record in records:
        before = {
            (name, topic.topic_id): topic.partitions[0] for name, topic in state.topics.items()
        }
        state.replay(record)
        assert state.controller_epoch >= epochs[0]
        assert state.last_broker_epoch >= epochs[1]
        epochs = [state.controller_epoch, state.last_broker_epoch]
        for name, topic in state.topics.items():
            after = topic.partitions[0]
            check_state(after)
            known = before.get((name, topic.topic_id))
            if known is not None and known is not after:
                check_change(known, after)


def check_state(p: PartitionState) -> None:
    assert set(p.isr) <= set(p.replicas)
    assert len(set(p.isr)) == len(p.isr)
    assert p.leader == -1 or p.leader in p.isr
    assert p.isr or p.phase == "NewPartition"
    assert not p.recovering or p.isr == [p.leader] or p.leader == -1
    assert set(p.adding) <= set(p.replicas)
    assert set(p.removing) <= set(p.replicas)


def check_change(before: PartitionState, after: PartitionState) -> None:
    moved = (before.leader, before.isr, before.recovering) != (
        after.leader,
        after.isr,
        after.recovering,
    )
    if moved or after.leader_epoch != before.leader_epoch:
        assert after.partition_epoch == before.partition_epoch + 1
    else:
        assert after.partition_epoch == before.partition_epoch
    assert after.leader_epoch - before.leader_epoch in (0, 1)
    if before.leader != after.leader and before.isr:
        assert after.leader_epoch == before.leader_epoch + 1
    if before.reassigning and not after.reassigning and set(after.replicas) != set(before.original):
        assert set(after.replicas) <= set(before.isr), "moved before all had joined (I28)"
    if not after.recovering and before.isr:
        assert set(after.isr) & set(before.isr), "nobody who was in sync is left"


def run(seeds: range) -> None:
    for seed in seeds:
        chaos = Chaos(seed)
        for _ in range(100):
            chaos.step()
            chaos.check_now()
        check_records(chaos.cluster.journal.records)
        chaos.come_to_rest()
        cluster = chaos.cluster
        state = cluster.controller.state
        for name, topic in state.topics.items():
            p = topic.partitions[0]
            assert p.leader in BROKERS, (seed, name, cluster.state(name))
            assert sorted(p.isr) == sorted(p.replicas), (seed, name, cluster.state(name))
            assert not p.reassigning, (seed, name)
        again = ControllerState()
        for record in cluster.journal.records:
            again.replay(record)
        assert again.records() == state.records(), seed
        assert chaos.asked == chaos.answered, seed


@pytest.mark.parametrize("seeds", [range(start, start + 50) for start in range(0, 200, 50)])
def test_invariants_hold_and_the_cluster_comes_to_rest(seeds: range) -> None:
    run(seeds)


def elect_anybody(replicas: Any, isr: Any, alive: Any, recovering: bool = False) -> Any:
    return next(((b, [b], False) for b in replicas if b in alive), None)


def keep_the_dead(self: Any, topic: Any, index: int, broker: int, changes: Any) -> None:
    pass


def ready_at_once(self: Any, topic: Any, index: int, state: Any) -> bool:
    alive = self._context.alive(topic.name, index)
    return any(b in alive and b in state.isr for b in state.target)


def never_end(self: Any, topic: Any, index: int) -> None:
    pass


@pytest.mark.parametrize(
    ("where", "wrong"),
    [
        ("kwire.replication.controller.election.offline", elect_anybody),
        ("kwire.replication.controller.partitions.PartitionControl.remove_from_isr", keep_the_dead),
        ("kwire.replication.controller.reassignment.Reassignments._is_ready", ready_at_once),
        ("kwire.replication.controller.reassignment.Reassignments.complete_if_ready", never_end),
    ],
    ids=lambda each: each.rpartition(".")[2] if isinstance(each, str) else "",
)
def test_a_controller_with_a_rule_switched_off_is_found_out(
    where: str, wrong: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(where, wrong)
    with pytest.raises(AssertionError):
        run(range(100))
