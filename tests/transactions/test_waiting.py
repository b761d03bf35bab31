"""Requests that wait for a change of their transactional id, in one shard."""

from __future__ import annotations

import pytest
from txn_kit import ID, TxnKit

from kwire.protocol.errors import ErrorCode

NONE = ErrorCode.NONE


def waiting(kit: TxnKit, wait_ms: int = 100) -> list[int]:
    """When the request that waits was looked at again: the clock's milliseconds."""
    looked: list[int] = []
    deadline_ms = kit.clock.now_ms + wait_ms
    kit.shard.waiting.put(ID, lambda: looked.append(kit.clock.now_ms), deadline_ms)
    return looked


@pytest.mark.parametrize("error", [NONE, ErrorCode.COORDINATOR_NOT_AVAILABLE])
def test_a_change_ends_the_wait_also_when_it_fails(error: ErrorCode) -> None:
    kit = TxnKit()
    kit.put("Empty")
    kit.hold = True
    kit.add()
    looked, begin_ms = waiting(kit), kit.clock.now_ms
    kit.commit(error)
    assert looked == [begin_ms]
    kit.advance(1_000)
    assert looked == [begin_ms]


def test_the_end_of_a_transaction_ends_the_wait_not_its_decision() -> None:
    kit = TxnKit()
    kit.put("Ongoing")
    kit.hold = kit.markers_wait = True
    kit.end()
    looked = waiting(kit)
    kit.commit()
    assert kit.written == ["PrepareCommit"] and not looked
    kit.hold = True
    kit.write_markers()
    assert kit.written == ["PrepareCommit", "CompleteCommit"] and not looked
    kit.commit()
    assert len(looked) == 1


def test_those_that_wait_have_their_turns_in_order() -> None:
    kit = TxnKit()
    kit.put("Ongoing")
    kit.markers_wait = True
    kit.end()
    order: list[str] = []
    for name in "abc":
        kit.shard.waiting.put(ID, lambda name=name: order.append(name), 10_000)  # type: ignore[misc]
    kit.write_markers()
    assert order == ["a", "b", "c"]


def test_the_wait_has_an_end() -> None:
    kit = TxnKit()
    looked, begin_ms = waiting(kit), kit.clock.now_ms
    kit.advance(99)
    assert not looked
    kit.advance(1)
    assert looked == [begin_ms + 100]


def test_a_shard_that_is_unloaded_lets_nobody_wait() -> None:
    kit = TxnKit()
    looked = waiting(kit)
    kit.shard.on_unloaded()
    assert len(looked) == 1


def test_the_removal_of_an_id_ends_the_wait() -> None:
    kit = TxnKit()
    kit.put("Empty", last_update_ms=0)
    kit.hold = True
    kit.run(kit.shard.expire())
    looked = waiting(kit)
    kit.commit()
    assert len(looked) == 1
