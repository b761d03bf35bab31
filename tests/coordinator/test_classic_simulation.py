"""Random members, by seed: group invariants hold and no request stays parked forever."""

from __future__ import annotations

from contextlib import suppress
from random import Random

import pytest
from shard_kit import Box, ShardKit

from kwire.coordinator.classic_group import DEAD, EMPTY, ClassicGroup
from kwire.protocol.errors import ErrorCode, KafkaError

TIMEOUTS_MS = (-1, 0, 1, 500, 20_000)
LONGEST_WAIT_MS = 400_000  # beyond every timeout: sessions, rebalances, the join of a new member
GROUPS = ("g", "h")


class Member:
    def __init__(self, random: Random) -> None:
        self.group = random.choice(GROUPS)
        self.version = random.choice((0, 3, 4, 5, 8, 9))
        self.instance = random.choice((None, None, "i1", "i2")) if self.version >= 5 else None
        self.protocols = {
            name: bytes([random.randrange(2)])
            for name in random.sample(("a", "b", "c"), random.randint(1, 3))
        }
        self.rebalance_ms = random.choice(TIMEOUTS_MS)
        self.id = ""
        self.generation = -1


class Simulation:
    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.kit = ShardKit(
            group_max_size=self.random.choice((2, 4, 100)),
            group_initial_rebalance_delay_ms=self.random.choice((0, 0, 300)),
        )
        self.members = [Member(self.random) for _ in range(self.random.randint(1, 6))]
        self.waiting: list[tuple[Member, Box]] = []

    def step(self) -> None:
        random, kit = self.random, self.kit
        member = random.choice(self.members)
        action = random.choice(
            (
                "join",
                "join",
                "join",
                "sync",
                "sync",
                "beat",
                "leave",
                "commit",
                "time",
                "new",
                "hold",
            )
        )
        if action == "join":
            box = kit.join(
                member.id,
                group=member.group,
                version=member.version,
                instance=member.instance,
                protocols=member.protocols,
                session_ms=random.choice((6_000, 30_000)),
                rebalance_ms=member.rebalance_ms,
            )
            self.waiting.append((member, box))
        elif action == "sync":
            given = {each.id: b"x" for each in self.members if random.random() < 0.8}
            box = kit.sync(
                member.id, member.generation, given, group=member.group, instance=member.instance
            )
            self.waiting.append((member, box))
        elif action == "beat":
            kit.heartbeat(
                member.id, member.generation, group=member.group, instance=member.instance
            )
        elif action == "leave" and member.group in kit.shard.classic.groups:
            with suppress(KafkaError):
                kit.leave((random.choice((member.id, "")), member.instance), group=member.group)
        elif action == "commit":
            kit.commit_offset(
                1, group=member.group, member_id=member.id, generation=member.generation
            )
        elif action == "time":
            kit.advance(random.choice((0, 1, 100, 5_000, 40_000)))
        elif action == "new":
            self.members[self.members.index(member)] = Member(random)
        elif action == "hold":
            kit.commit()
            kit.hold = random.random() < 0.3
            kit.fail_with = ErrorCode.COORDINATOR_NOT_AVAILABLE if random.random() < 0.1 else None
        self.read_answers()

    def read_answers(self) -> None:
        for member, box in self.waiting:
            if not box.waits and hasattr(box.value, "generation_id"):
                if box.error in (ErrorCode.NONE, ErrorCode.MEMBER_ID_REQUIRED):
                    member.id = box.value.member_id
                    member.generation = box.value.generation_id
                elif box.error is ErrorCode.UNKNOWN_MEMBER_ID:
                    member.id = ""
        self.waiting = [(member, box) for member, box in self.waiting if box.waits]


def check(group: ClassicGroup) -> None:
    members = group.members.values()
    assert group.awaiting_join_count == sum(m.awaiting_join is not None for m in members)
    statics = {m.group_instance_id: m.member_id for m in members if m.group_instance_id is not None}
    assert group.static_members == statics
    names = {name for m in members for name, _ in m.protocols}
    counted = {name: group._supported.get(name, 0) for name in names}
    assert counted == {name: sum(name in dict(m.protocols) for m in members) for name in names}
    assert set(group._supported) == names
    if members:
        assert group.leader_id in group.members
        assert any(count == len(members) for count in counted.values()), "a common protocol"
    assert set(group.pending_sync_members) <= set(group.members)
    assert not set(group.pending_join_members) & set(group.members)
    assert (group.state not in (EMPTY, DEAD)) or not members
    for member in members:
        assert member.awaiting_join is None or group.state == "PreparingRebalance"
        assert member.awaiting_sync is None or group.state == "CompletingRebalance"


@pytest.mark.parametrize("first_seed", range(0, 400, 50))
def test_the_books_are_right_and_everybody_is_answered_in_the_end(first_seed: int) -> None:
    for seed in range(first_seed, first_seed + 50):
        simulation = Simulation(seed)
        kit = simulation.kit
        groups = kit.shard.classic.groups
        for _ in range(80):
            simulation.step()
            for group in groups.values():
                check(group)
        kit.commit()
        kit.fail_with = None
        for _ in range(3):
            kit.advance(LONGEST_WAIT_MS)
        assert {group.state for group in groups.values()} <= {EMPTY, DEAD}, f"seed {seed}"
        simulation.read_answers()
        # A join or sync that its own member repeated is never answered, as in Kafka; all others are.
        parked = [
            m.awaiting_join or m.awaiting_sync for g in groups.values() for m in g.members.values()
        ]
        assert not any(parked), f"seed {seed}"


@pytest.mark.parametrize("seed", range(100))
def test_a_restart_in_the_middle_finds_the_last_generation(seed: int) -> None:
    simulation = Simulation(seed)
    for _ in range(60):
        simulation.step()
    simulation.kit.commit()
    again = simulation.kit.restart()
    for group_id, group in again.shard.classic.groups.items():
        check(group)
        before = simulation.kit.shard.classic.groups[group_id]
        assert group.generation_id <= before.generation_id
        if before.state == "Stable":
            assert group.generation_id == before.generation_id
            assert list(group.members) == list(before.members)
            assert [m.assignment for m in group.members.values()] == [
                m.assignment for m in before.members.values()
            ]


def test_a_rebalance_without_joins_does_not_spin() -> None:
    kit = ShardKit()
    first = kit.join(instance="i1", rebalance_ms=0).value.member_id
    kit.sync(first, 1, {}, instance="i1")
    dynamic, _ = kit.enter(rebalance_ms=0)
    kit.leave((dynamic, None))
    kit.advance(1_000)
    assert kit.state() == "PreparingRebalance"
    kit.advance(10_000)
    assert kit.state() == "Empty"
