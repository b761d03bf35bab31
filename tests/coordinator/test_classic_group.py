"""Scenarios of the classic rebalance protocol as shard calls under a virtual clock."""

from __future__ import annotations

from typing import Any

import pytest
from shard_kit import Box, ShardKit, subscription

from kwire.coordinator.classic_group import (
    VALID_PREVIOUS_STATES,
    ClassicGroup,
    ClassicGroupMember,
)
from kwire.coordinator.config import NEW_MEMBER_JOIN_TIMEOUT_MS
from kwire.coordinator.group_records import GROUP_METADATA
from kwire.protocol.errors import ErrorCode, KafkaError
from kwire.replication.core.clock import Clock
from kwire.shards.result import Deferred

NONE = ErrorCode.NONE
UNKNOWN_MEMBER_ID = ErrorCode.UNKNOWN_MEMBER_ID
ILLEGAL_GENERATION = ErrorCode.ILLEGAL_GENERATION
REBALANCE_IN_PROGRESS = ErrorCode.REBALANCE_IN_PROGRESS
FENCED_INSTANCE_ID = ErrorCode.FENCED_INSTANCE_ID


# ---- the state machine


@pytest.mark.parametrize("target", VALID_PREVIOUS_STATES)
@pytest.mark.parametrize("start", VALID_PREVIOUS_STATES)
def test_only_legal_moves_are_made(start: str, target: str) -> None:
    group = ClassicGroup("g", Clock(), state=start)
    if start in VALID_PREVIOUS_STATES[target]:
        group.transition_to(target)
        assert (group.state, group.previous_state) == (target, start)
    else:
        with pytest.raises(AssertionError):
            group.transition_to(target)


# ---- joining


def test_a_first_member_of_an_old_client_joins_in_one_step_and_leads() -> None:
    kit = ShardKit()
    answer = kit.join(version=3).value
    assert answer.error_code == 0
    assert answer.generation_id == 1
    assert answer.leader == answer.member_id
    assert answer.member_id.startswith("c-") and len(answer.member_id) == 2 + 36
    assert [member.member_id for member in answer.members] == [answer.member_id]
    assert answer.members[0].metadata == subscription("t")
    assert answer.protocol_name == "range" and answer.protocol_type == "consumer"
    assert kit.state() == "CompletingRebalance"


def test_from_version_4_on_a_member_gets_its_id_first() -> None:
    kit = ShardKit()
    first = kit.join(version=4)
    assert first.error is ErrorCode.MEMBER_ID_REQUIRED
    assert kit.state() == "Empty"
    second = kit.join(first.value.member_id, version=4)
    assert second.error is NONE
    assert second.value.member_id == first.value.member_id


def test_a_new_group_is_written_at_its_first_join() -> None:
    kit = ShardKit()
    kit.join()
    [record] = kit.log
    assert record.value.generation == 0 and record.value.members == []
    assert kit.restart().state() == "Empty"


def test_a_group_whose_first_record_cannot_be_written_is_dropped() -> None:
    kit = ShardKit()
    kit.fail_with = ErrorCode.NOT_COORDINATOR
    box = kit.join(version=3)
    # The join phase was over before the write failed, as in Kafka; what counts is that the group is gone.
    assert len(box.values) == 1
    assert kit.state() == "Dead"


def test_an_unknown_id_is_refused_whether_the_group_exists_or_not() -> None:
    kit = ShardKit()
    assert kit.join("nobody").error is UNKNOWN_MEMBER_ID
    assert kit.state() == "Dead"
    kit.stable_group(1)
    answer = kit.join("nobody")
    assert answer.error is UNKNOWN_MEMBER_ID
    assert answer.value.member_id == "nobody"


@pytest.mark.parametrize(
    ("protocol_type", "protocols"),
    [("consumer", {}), ("", {"range": b""})],
)
def test_a_member_without_protocols_cannot_found_a_group(
    protocol_type: str, protocols: dict[str, bytes]
) -> None:
    kit = ShardKit()
    box = kit.join(protocol_type=protocol_type, protocols=protocols)
    assert box.error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL


@pytest.mark.parametrize(
    ("protocol_type", "protocols"),
    [("consumer", {"other": b""}), ("connect", {"range": b""})],
)
def test_a_member_that_shares_no_protocol_is_refused(
    protocol_type: str, protocols: dict[str, bytes]
) -> None:
    kit = ShardKit()
    kit.stable_group(1)
    box = kit.join(protocol_type=protocol_type, protocols=protocols)
    assert box.error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert kit.state() == "Stable"


def test_the_protocol_with_most_votes_among_those_all_support_wins() -> None:
    kit = ShardKit(group_initial_rebalance_delay_ms=100)
    kit.join(version=3, protocols={"a": b"", "b": b"", "x": b""})
    kit.join(version=3, protocols={"b": b"", "a": b""})
    box = kit.join(version=3, protocols={"b": b"", "a": b"", "y": b""})
    kit.advance(300)
    assert box.value.protocol_name == "b"


def test_a_second_member_makes_the_first_join_again_and_both_get_one_generation() -> None:
    kit = ShardKit()
    [first] = kit.stable_group(1)
    second, joining = kit.enter()
    assert joining.waits
    assert kit.state() == "PreparingRebalance"
    assert kit.heartbeat(first, 1) is REBALANCE_IN_PROGRESS
    rejoined = kit.join(first)
    assert rejoined.value.generation_id == joining.value.generation_id == 2
    assert [m.member_id for m in rejoined.value.members] == [first, second]
    assert joining.value.members == []
    assert joining.value.leader == first


def test_members_that_join_during_a_rebalance_never_get_unknown_member_id() -> None:
    kit = ShardKit()
    [first] = kit.stable_group(1)
    joining = [kit.enter() for _ in range(5)]
    rejoined = kit.join(first)
    assert rejoined.error is NONE
    assert all(box.error is NONE for _, box in joining)
    assert {box.value.generation_id for _, box in joining} == {2}
    # One more comes in the middle of the sync phase, one retries its join.
    late, late_box = kit.enter()
    assert late_box.waits
    assert kit.sync(first, 2).error is REBALANCE_IN_PROGRESS
    answers = [kit.join(member) for member, _ in joining]
    answers.append(kit.join(first))
    assert all(box.error is NONE for box in answers)
    assert late_box.value.generation_id == 3 and late_box.value.member_id == late


def test_a_pending_member_holds_up_the_rebalance_until_its_session_is_over() -> None:
    kit = ShardKit()
    [first] = kit.stable_group(1)
    pending = kit.join(session_ms=6_000).value.member_id
    kit.join(first)  # the leader asks for a rebalance
    assert kit.state() == "PreparingRebalance"
    kit.advance(6_000)
    assert kit.state() == "CompletingRebalance"
    assert kit.join(pending).error is UNKNOWN_MEMBER_ID


def test_a_follower_that_repeats_its_join_gets_the_generation_again() -> None:
    kit = ShardKit()
    leader, follower = kit.stable_group(2)
    box = kit.join(follower)
    assert box.value.generation_id == kit.generation()
    assert box.value.members == [] and box.value.leader == leader
    assert kit.state() == "Stable"


def test_a_follower_with_a_new_subscription_makes_a_rebalance() -> None:
    kit = ShardKit()
    leader, follower = kit.stable_group(2)
    box = kit.join(follower, protocols={"range": subscription("t", "u")})
    assert box.waits and kit.state() == "PreparingRebalance"
    members = kit.join(leader).value.members
    assert {m.member_id: m.metadata for m in members}[follower] == subscription("t", "u")


def test_a_leader_that_joins_again_makes_a_rebalance() -> None:
    kit = ShardKit()
    leader, follower = kit.stable_group(2)
    box = kit.join(leader)
    assert box.waits
    kit.join(follower)
    assert box.value.leader == leader


def test_a_join_repeated_in_the_sync_phase_gets_the_same_answer() -> None:
    kit = ShardKit()
    member, box = kit.enter()
    again = kit.join(member)
    assert again.value == box.value
    changed = kit.join(member, protocols={"range": b"new"})
    assert changed.value.generation_id == 2


def test_a_full_group_refuses_members_but_keeps_those_it_has() -> None:
    kit = ShardKit(group_max_size=2)
    leader, follower = kit.stable_group(2)
    refused = kit.join()
    assert refused.error is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert refused.value.member_id == ""
    box = kit.join(leader)
    assert kit.join(follower).error is NONE and box.error is NONE


def test_a_member_that_rejoins_a_full_group_too_late_is_removed() -> None:
    kit = ShardKit(group_max_size=2)
    leader, follower = kit.stable_group(2)
    box = kit.join(leader)
    newcomer = kit.join(version=3)
    assert kit.join(follower).error is ErrorCode.GROUP_MAX_SIZE_REACHED
    kit.advance(60_000)  # as in Kafka, the refusal itself does not end the join phase
    assert box.value.generation_id == newcomer.value.generation_id


def test_the_initial_delay_gathers_members_and_grows_with_each() -> None:
    kit = ShardKit(group_initial_rebalance_delay_ms=3_000)
    boxes = [kit.join(version=3)]
    kit.advance(2_000)
    boxes.append(kit.join(version=3))
    kit.advance(1_000)
    assert boxes[0].waits
    kit.advance(3_000)
    assert [box.value.generation_id for box in boxes] == [1, 1]


def test_the_initial_delay_never_exceeds_the_rebalance_timeout() -> None:
    kit = ShardKit(group_initial_rebalance_delay_ms=3_000)
    boxes = [kit.join(version=3, rebalance_ms=7_000)]
    for _ in range(6):
        kit.advance(1_500)
        boxes.append(kit.join(version=3, rebalance_ms=7_000))
    assert boxes[0].error is NONE


# ---- time


def test_a_member_that_does_not_rejoin_within_the_rebalance_timeout_is_out() -> None:
    kit = ShardKit()
    leader, follower = kit.stable_group(2, session_ms=30_000, rebalance_ms=20_000)
    box = kit.join(follower, protocols={"range": b"new"}, session_ms=30_000, rebalance_ms=20_000)
    kit.advance(19_999)
    assert box.waits
    kit.advance(1)
    assert box.value.leader == follower, "a member that joined is elected"
    assert [m.member_id for m in box.value.members] == [follower]
    assert kit.heartbeat(leader, 3) is UNKNOWN_MEMBER_ID


def test_a_rebalance_waits_as_long_as_its_slowest_member_may_take() -> None:
    kit = ShardKit()
    slow, _ = kit.enter(session_ms=60_000, rebalance_ms=40_000)
    quick, _ = kit.enter(session_ms=60_000, rebalance_ms=20_000)
    kit.join(slow, session_ms=60_000, rebalance_ms=40_000)
    kit.sync(slow, 2)
    kit.sync(quick, 2)
    box = kit.join(slow, session_ms=60_000, rebalance_ms=40_000)
    kit.advance(39_999)
    assert box.waits
    kit.advance(1)
    assert [member.member_id for member in box.value.members] == [slow]


def test_a_session_that_expires_takes_the_member_out_and_rebalances() -> None:
    kit = ShardKit()
    leader, follower = kit.stable_group(2)
    generation = kit.generation()
    for _ in range(3):
        kit.advance(4_000)
        assert kit.heartbeat(leader, generation) in (NONE, REBALANCE_IN_PROGRESS)
    assert kit.state() == "PreparingRebalance"
    assert kit.heartbeat(follower, generation) is UNKNOWN_MEMBER_ID
    box = kit.join(leader)
    assert [m.member_id for m in box.value.members] == [leader]


def test_an_expired_session_completes_a_rebalance_that_waited_for_it() -> None:
    kit = ShardKit()
    leader, follower = kit.stable_group(2)
    box = kit.join(leader)
    assert box.waits
    kit.advance(10_000)
    assert box.value.generation_id == 3
    assert kit.heartbeat(follower, 3) is UNKNOWN_MEMBER_ID


def test_commits_keep_a_session_alive() -> None:
    kit = ShardKit()
    [member] = kit.stable_group(1)
    for _ in range(5):
        kit.advance(9_000)
        assert kit.commit_offset(1, member_id=member, generation=1) is NONE
    assert kit.state() == "Stable"


def test_members_with_a_parked_join_or_sync_need_no_heartbeat() -> None:
    kit = ShardKit()
    leader, follower = kit.stable_group(2, rebalance_ms=300_000)
    box = kit.join(follower, protocols={"range": b"n"}, rebalance_ms=300_000)
    for _ in range(6):
        kit.advance(5_000)
        assert kit.heartbeat(leader, 2) is REBALANCE_IN_PROGRESS
    assert box.waits
    kit.join(leader, rebalance_ms=300_000)
    assert box.value.generation_id == 3
    sync = kit.sync(follower, 3)
    for _ in range(6):
        kit.advance(5_000)
        kit.heartbeat(leader, 3)
    assert sync.waits
    assert kit.sync(leader, 3, {follower: b"f"}).error is NONE
    assert sync.value.assignment == b"f"
    kit.advance(9_999)
    assert kit.heartbeat(follower, 3) is NONE, "its session runs from the assignment on"


def test_a_new_member_that_waits_for_ever_is_given_up() -> None:
    kit = ShardKit()
    [member] = kit.stable_group(1, session_ms=600_000, rebalance_ms=1_200_000)
    box = kit.join(version=3, rebalance_ms=1_200_000)
    kit.advance(NEW_MEMBER_JOIN_TIMEOUT_MS)
    assert box.error is UNKNOWN_MEMBER_ID
    assert kit.heartbeat(member, 1) is REBALANCE_IN_PROGRESS


def test_members_that_never_sync_are_taken_out_after_the_rebalance_timeout() -> None:
    kit = ShardKit()
    leader, follower = kit.stable_group(2, session_ms=30_000, rebalance_ms=20_000)
    box = kit.join(leader, session_ms=30_000, rebalance_ms=20_000)
    kit.join(follower, session_ms=30_000, rebalance_ms=20_000)
    assert kit.sync(leader, box.value.generation_id).error is NONE
    kit.advance(20_000)
    assert kit.state() == "PreparingRebalance"
    assert kit.heartbeat(follower, 3) is UNKNOWN_MEMBER_ID
    assert kit.heartbeat(leader, 3) is REBALANCE_IN_PROGRESS


# ---- sync


def test_followers_wait_for_the_leaders_assignment() -> None:
    kit = ShardKit()
    leader, follower = kit.stable_group(2)
    kit.join(leader)
    kit.join(follower)
    waiting = kit.sync(follower, 3, protocol_type="consumer", protocol_name="range")
    assert waiting.waits
    own = kit.sync(leader, 3, {leader: b"l", follower: b"f", "stranger": b"s"})
    assert own.value.assignment == b"l"
    assert waiting.value.assignment == b"f"
    assert waiting.value.protocol_type == "consumer" and waiting.value.protocol_name == "range"
    assert kit.sync(follower, 3).value.assignment == b"f", "and once more"


def test_a_member_that_the_leader_left_out_gets_an_empty_assignment() -> None:
    kit = ShardKit()
    leader, follower = kit.stable_group(2)
    kit.join(leader)
    kit.join(follower)
    kit.sync(leader, 3, {})
    assert kit.sync(follower, 3).value.assignment == b""


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"generation": 1}, ILLEGAL_GENERATION),
        ({"generation": 3}, ILLEGAL_GENERATION),
        ({"member_id": "stranger"}, UNKNOWN_MEMBER_ID),
        ({"protocol_type": "connect"}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocol_name": "sticky"}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"instance": "i"}, UNKNOWN_MEMBER_ID),
        ({"group": "other"}, UNKNOWN_MEMBER_ID),
    ],
)
def test_sync_validates_the_member(arguments: dict[str, object], error: ErrorCode) -> None:
    kit = ShardKit()
    leader, _ = kit.stable_group(2)
    call: dict[str, object] = {"member_id": leader, "generation": 2} | arguments
    assert kit.sync(**call).error is error  # type: ignore[arg-type]


def test_an_assignment_is_given_only_when_it_is_committed() -> None:
    kit = ShardKit()
    leader, box = kit.enter()
    kit.hold = True
    sync = kit.sync(leader, box.value.generation_id, {leader: b"l"})
    assert sync.waits and kit.state() == "CompletingRebalance"
    kit.commit()
    assert sync.value.assignment == b"l" and kit.state() == "Stable"


def test_an_assignment_overtaken_by_a_rebalance_is_dropped() -> None:
    kit = ShardKit()
    leader, box = kit.enter()
    kit.hold = True
    sync = kit.sync(leader, box.value.generation_id, {leader: b"l"})
    kit.enter()
    assert sync.error is REBALANCE_IN_PROGRESS
    kit.commit()
    assert kit.state() == "PreparingRebalance"


def test_a_sync_that_a_rebalance_ends_gets_no_assignment_of_an_earlier_generation() -> None:
    kit = ShardKit()
    leader, follower = kit.stable_group(2)
    kit.join(leader)
    kit.join(follower)
    sync = kit.sync(follower, 3)
    kit.enter()
    assert sync.error is REBALANCE_IN_PROGRESS
    assert sync.value.assignment == b""


def test_an_assignment_that_cannot_be_written_starts_a_rebalance() -> None:
    kit = ShardKit()
    leader, box = kit.enter()
    kit.fail_with = ErrorCode.COORDINATOR_NOT_AVAILABLE
    sync = kit.sync(leader, box.value.generation_id, {leader: b"l"})
    assert sync.error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert kit.state() == "PreparingRebalance"


# ---- heartbeat and leave


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({}, NONE),
        ({"generation": 1}, ILLEGAL_GENERATION),
        ({"member_id": "stranger"}, UNKNOWN_MEMBER_ID),
        ({"member_id": ""}, UNKNOWN_MEMBER_ID),
        ({"group": "other"}, UNKNOWN_MEMBER_ID),
        ({"instance": "i"}, UNKNOWN_MEMBER_ID),
    ],
)
def test_heartbeat_validates_the_member(arguments: dict[str, object], error: ErrorCode) -> None:
    kit = ShardKit()
    leader, _ = kit.stable_group(2)
    call: dict[str, object] = {"member_id": leader, "generation": 2} | arguments
    assert kit.heartbeat(**call) is error  # type: ignore[arg-type]


def test_heartbeats_succeed_in_the_sync_phase() -> None:
    kit = ShardKit()
    member, box = kit.enter()
    assert kit.heartbeat(member, box.value.generation_id) is NONE


def test_the_last_member_to_leave_leaves_an_empty_generation_behind() -> None:
    kit = ShardKit()
    [member] = kit.stable_group(1)
    assert kit.leave((member, None)) == [NONE]
    assert kit.state() == "Empty" and kit.generation() == 2
    again = kit.restart()
    assert again.state() == "Empty" and again.generation() == 2
    assert kit.leave((member, None)) == [UNKNOWN_MEMBER_ID]


def test_a_member_that_leaves_makes_the_others_rebalance_at_once() -> None:
    kit = ShardKit()
    leader, follower = kit.stable_group(2)
    assert kit.leave((leader, None)) == [NONE]
    assert kit.heartbeat(follower, 2) is REBALANCE_IN_PROGRESS
    box = kit.join(follower)
    assert box.value.leader == follower


def test_leave_answers_each_member_for_itself() -> None:
    kit = ShardKit()
    leader, _ = kit.stable_group(2)
    pending = kit.join().value.member_id
    codes = kit.leave(("stranger", None), (leader, None), (pending, None), ("", "nobody"))
    assert codes == [UNKNOWN_MEMBER_ID, NONE, NONE, UNKNOWN_MEMBER_ID]
    assert kit.join(pending).error is UNKNOWN_MEMBER_ID
    with pytest.raises(KafkaError) as refusal:
        kit.leave((leader, None), group="other")
    assert refusal.value.code is UNKNOWN_MEMBER_ID


def test_a_parked_join_of_a_member_that_leaves_is_answered() -> None:
    kit = ShardKit()
    kit.stable_group(1)
    member, box = kit.enter()
    kit.leave((member, None))
    assert box.error is UNKNOWN_MEMBER_ID


# ---- static members (KIP-345)


def static_group(kit: ShardKit, **options: object) -> tuple[str, str]:
    """A stable group of two static members i1 (leader) and i2."""
    first = kit.join(instance="i1", **options).value.member_id  # type: ignore[arg-type]
    box = kit.join(instance="i2", **options)  # type: ignore[arg-type]
    kit.join(first, instance="i1", **options)  # type: ignore[arg-type]
    second = box.value.member_id
    kit.sync(second, 2)
    kit.sync(first, 2, {first: b"1", second: b"2"})
    assert kit.state() == "Stable"
    return first, second


def test_static_members_need_no_id_first_and_are_named_by_their_instance() -> None:
    kit = ShardKit()
    first, second = static_group(kit)
    assert first.startswith("i1-") and second.startswith("i2-")


def test_a_static_follower_returns_without_a_rebalance_and_keeps_its_assignment() -> None:
    kit = ShardKit()
    first, second = static_group(kit)
    box = kit.join(instance="i2")
    again = box.value.member_id
    assert again != second and box.value.generation_id == 2 and box.value.leader == first
    assert kit.state() == "Stable"
    assert kit.sync(again, 2, instance="i2").value.assignment == b"2"
    assert kit.heartbeat(second, 2, instance="i2") is FENCED_INSTANCE_ID
    assert kit.heartbeat(second, 2) is UNKNOWN_MEMBER_ID
    assert kit.join(second, instance="i2").error is FENCED_INSTANCE_ID
    assert again in kit.restart().shard.classic.groups["g"].members


@pytest.mark.parametrize(("version", "skips"), [(8, False), (9, True)])
def test_a_static_leader_rejoins_without_a_new_assignment(version: int, skips: bool) -> None:
    kit = ShardKit()
    first, _ = static_group(kit)
    box = kit.join(instance="i1", version=version)
    assert box.value.skip_assignment is skips
    if skips:
        assert box.value.leader == box.value.member_id and len(box.value.members) == 2
    else:
        assert box.value.leader == first, "an old client must not take itself for the leader"
        assert box.value.members == []
    assert kit.state() == "Stable"


def test_a_static_member_that_returns_with_other_protocols_makes_a_rebalance() -> None:
    kit = ShardKit()
    both = {"range": subscription("t"), "sticky": subscription("t")}
    first, _ = static_group(kit, protocols=both)
    box = kit.join(instance="i2", protocols={"sticky": subscription("t")})
    assert box.waits and kit.state() == "PreparingRebalance"
    kit.join(first, instance="i1", protocols=both)
    assert box.value.protocol_name == "sticky"


def test_a_static_member_that_returns_in_the_sync_phase_makes_a_rebalance() -> None:
    kit = ShardKit()
    first = kit.join(instance="i1").value.member_id
    box = kit.join(instance="i2")
    kit.join(first, instance="i1")
    parked = kit.sync(box.value.member_id, 2)
    again = kit.join(instance="i2")
    assert parked.error is FENCED_INSTANCE_ID
    assert again.waits and kit.state() == "PreparingRebalance"


def test_a_parked_join_of_a_replaced_static_member_is_fenced() -> None:
    kit = ShardKit()
    static_group(kit)
    waiting = kit.join(instance="i3")
    assert waiting.waits
    kit.join(instance="i3")
    assert waiting.error is FENCED_INSTANCE_ID


def test_static_members_stay_through_a_rebalance_they_miss_but_not_beyond_their_session() -> None:
    kit = ShardKit()
    first, second = static_group(kit, session_ms=100_000, rebalance_ms=10_000)
    box = kit.join(first, instance="i1", session_ms=100_000, rebalance_ms=10_000)
    kit.advance(10_000)
    assert [m.member_id for m in box.value.members] == [first, second]
    kit.sync(first, box.value.generation_id)
    kit.advance(100_000)
    assert kit.heartbeat(second, 3) is UNKNOWN_MEMBER_ID


def test_a_rebalance_that_no_static_member_joins_is_put_off() -> None:
    kit = ShardKit()
    first, second = static_group(kit, session_ms=100_000, rebalance_ms=10_000)
    dynamic, _ = kit.enter(rebalance_ms=10_000)
    kit.leave((dynamic, None))
    kit.advance(10_000)
    assert kit.state() == "PreparingRebalance"
    assert {first, second} == set(kit.shard.classic.groups["g"].members)


def test_an_administrator_removes_static_members_by_instance() -> None:
    kit = ShardKit()
    _, second = static_group(kit)
    assert kit.leave(("", "i2"), ("wrong", "i1")) == [NONE, FENCED_INSTANCE_ID]
    assert kit.heartbeat(second, 2) is UNKNOWN_MEMBER_ID


def test_a_static_return_that_cannot_be_written_is_undone() -> None:
    kit = ShardKit()
    _, second = static_group(kit)
    kit.fail_with = ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert kit.join(instance="i2").error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    kit.fail_with = None
    assert kit.heartbeat(second, 2, instance="i2") is NONE


def test_a_static_return_that_is_written_for_longer_than_a_session_still_has_one() -> None:
    kit = ShardKit()
    first, _ = static_group(kit)
    kit.hold = True
    box = kit.join(instance="i2")
    for _ in range(4):
        kit.advance(5_000)
        assert kit.heartbeat(first, 2, instance="i1") is NONE
    kit.commit()
    again = box.value.member_id
    kit.advance(9_000)
    assert kit.heartbeat(first, 2, instance="i1") is NONE
    assert again in kit.shard.classic.groups["g"].members
    kit.advance(1_000)
    assert again not in kit.shard.classic.groups["g"].members, "nobody would ever remove it"


def test_a_static_member_that_returns_before_it_has_synced_is_expected_by_its_new_id() -> None:
    """Kafka goes on to expect the old id, and begins a rebalance when that does not come."""
    kit = ShardKit()
    first = kit.join(instance="i1").value.member_id
    box = kit.join(instance="i2")
    kit.join(first, instance="i1")
    second = box.value.member_id
    kit.sync(first, 2, {first: b"1", second: b"2"})
    again = kit.join(instance="i2").value.member_id
    group = kit.shard.classic.groups["g"]
    assert list(group.pending_sync_members) == [again]
    assert kit.sync(again, 2, instance="i2").value.assignment == b"2"
    assert not group.pending_sync_members and kit.state() == "Stable"


def test_a_static_member_that_returns_twice_before_a_write_fails_is_back() -> None:
    kit = ShardKit()
    static_group(kit)
    kit.hold = True
    boxes = [kit.join(instance="i2"), kit.join(instance="i2")]
    assert boxes[0].error is FENCED_INSTANCE_ID and boxes[1].waits
    kit.fail(ErrorCode.NOT_COORDINATOR)
    assert boxes[1].error is ErrorCode.NOT_COORDINATOR
    kit.hold = False
    assert not kit.join(instance="i2").error
    assert len(kit.shard.classic.groups["g"].members) == 2


# ---- restart and loss of leadership


def test_a_stable_group_survives_a_restart_and_its_sessions_restart() -> None:
    kit = ShardKit()
    leader, follower = kit.stable_group(2)
    again = kit.restart()
    assert again.state() == "Stable" and again.generation() == 2
    assert again.heartbeat(follower, 2) is NONE
    assert again.sync(follower, 2).value.assignment == follower.encode()
    again.advance(10_000)
    assert again.heartbeat(leader, 2) is UNKNOWN_MEMBER_ID


@pytest.mark.parametrize("rebalance_ms", [-1, 40_000])
def test_a_group_written_before_rebalance_timeouts_has_the_session_timeout_for_both(
    rebalance_ms: int,
) -> None:
    kit = ShardKit()
    members = kit.stable_group(2, session_ms=30_000, rebalance_ms=40_000)
    value: Any = next(
        record.value for record in reversed(kit.log) if record.record_type == GROUP_METADATA
    )
    for member in value.members:
        member.rebalance_timeout = rebalance_ms  # -1: a record of version 0
    group = kit.restart().shard.classic.groups["g"]
    wanted = 30_000 if rebalance_ms == -1 else 40_000
    assert [group.members[name].rebalance_timeout_ms for name in members] == [wanted] * 2


def test_a_removed_member_is_not_waited_for() -> None:
    group = ClassicGroup("g", Clock())
    options: dict[str, Any] = {"rebalance_timeout_ms": 1, "session_timeout_ms": 1}
    for name in ("a", "b"):
        member = ClassicGroupMember(
            name, protocol_type="consumer", protocols=[("range", b"")], **options
        )
        group.add(member, Deferred(lambda response: None))
    assert group.has_all_members_joined
    group.remove("a")
    assert group.has_all_members_joined and group.awaiting_join_count == 1


def test_a_group_above_a_lowered_limit_rebalances_when_loaded() -> None:
    kit = ShardKit()
    kit.stable_group(3)
    kit.config.group_max_size = 2
    assert kit.restart().state() == "PreparingRebalance"


def test_requests_parked_on_a_lost_partition_get_not_coordinator() -> None:
    kit = ShardKit()
    kit.stable_group(1)
    _, joining = kit.enter()
    other, _ = kit.enter(group="h")
    kit.enter(group="h")
    syncing = Box()
    box = kit.join(other, group="h")
    follower = next(m for m in kit.shard.classic.groups["h"].members if m != other)
    syncing = kit.sync(follower, box.value.generation_id, group="h")
    assert joining.waits and syncing.waits
    kit.shard.on_unloaded()
    assert joining.error is ErrorCode.NOT_COORDINATOR
    assert syncing.error is ErrorCode.NOT_COORDINATOR


def test_an_answer_is_given_once() -> None:
    values: list[int] = []
    deferred: Deferred[int] = Deferred(values.append)
    assert deferred.complete(1) and not deferred.complete(2)
    assert values == [1] and deferred.done
