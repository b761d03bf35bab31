"""The events of groups: rebalances with their reasons, members that have failed."""

from __future__ import annotations

import pytest
from shard_kit import ShardKit

from kwire.coordinator.events import GroupEvent

STARTED, STABLE = GroupEvent.GROUP_REBALANCE_STARTED, GroupEvent.GROUP_STABLE
FAILED, EMPTY = GroupEvent.GROUP_MEMBER_FAILED, GroupEvent.GROUP_EMPTY


def reasons(kit: ShardKit) -> list[object]:
    return [fields["reason"] for fields in kit.recorder.of(STARTED)]


def test_members_that_join_and_leave_are_told_until_the_group_is_empty() -> None:
    kit = ShardKit()
    first, second = kit.stable_group(2)
    assert reasons(kit) == ["member_joined", "member_joined"]
    assert kit.recorder.last.event is STABLE
    assert kit.recorder.last.fields["members"] == 2
    kit.recorder.clear()
    kit.leave((second, None))
    kit.leave((first, None))
    assert reasons(kit) == ["member_left"]
    assert second in str(kit.recorder.of(STARTED)[0]["detail"])
    assert kit.recorder.events == [STARTED, EMPTY]


def test_a_member_whose_session_expires_has_failed() -> None:
    kit = ShardKit()
    first, second = kit.stable_group(2, session_ms=10_000)
    kit.recorder.clear()
    kit.advance(9_000)
    kit.heartbeat(first, kit.generation())
    kit.advance(2_000)
    [failed] = kit.recorder.of(FAILED)
    assert (failed["member_id"], failed["client_id"]) == (second, "c")
    assert (failed["reason"], failed["detail"]) == ("session_timeout", "no heartbeat for 10000 ms")
    assert reasons(kit) == ["member_failed"]


@pytest.mark.parametrize(("reason", "joins"), [("join_timeout", False), ("sync_timeout", True)])
def test_a_member_that_does_not_take_part_in_a_rebalance_has_failed(
    reason: str, joins: bool
) -> None:
    kit = ShardKit()
    (first,) = kit.stable_group(1, session_ms=100_000, rebalance_ms=5_000)
    options = {"session_ms": 100_000, "rebalance_ms": 5_000}
    second, _ = kit.enter(**options)
    if joins:
        kit.join(first, **options)
        kit.sync(first, kit.generation(), {})
    kit.recorder.clear()
    kit.advance(6_000)
    assert [fields["reason"] for fields in kit.recorder.of(FAILED)] == [reason]
    assert kit.recorder.of(FAILED)[0]["member_id"] == (second if joins else first)
