"""An advance of a broker's clock, and the same time step by step, as the simulator lets it pass: the same
events, at the same times, and the same state afterwards."""

from __future__ import annotations

import pytest
from advance_rig import HOUR_MS, Rig

from kwire.advance.advance import set_offset
from kwire.replication.core.clock import Timers


@pytest.mark.parametrize("hours", [0.012, 0.02, 1, 12, 24])
def test_the_same_happens_as_step_by_step(hours: float) -> None:
    one, other = Rig().busy(), Rig().busy()
    delay_ms = round(hours * HOUR_MS)
    one.pass_step_by_step(delay_ms)
    rounds = other.advance(delay_ms)
    assert other.events == one.events
    assert other.state() == one.state()
    assert rounds < 100


def test_a_day_in_order() -> None:
    rig = Rig().busy()
    rig.advance(24 * HOUR_MS)
    names = [name for name, _ in rig.events]
    wanted = ["GROUP_MEMBER_FAILED", "TRANSACTION_TIMED_OUT", "SEGMENTS_DELETED"]
    assert [name for name in names if name in wanted] == wanted
    state = rig.state()
    assert state["groups"] == [[], []] and state["transactions"] == [[], []]
    assert all(not ids for topic, ids in state["producers"] if topic == "old")


def test_what_waits_in_real_time_is_deferred() -> None:
    timers, fired = Timers(), []
    timers.schedule("plain", 100, lambda: fired.append("plain"))
    timers.schedule_real("real", 100, lambda: fired.append("real"))
    timers.schedule_lively("dead", 100, lambda: fired.append("dead"))
    began = timers.last_number
    timers.schedule_lively("alive", 100, lambda: fired.append("alive"))
    timers.schedule("append", 100, lambda: fired.append("append"))
    deferred = timers.deferred(began, {"append"})
    assert deferred == {"real", "alive", "append"}
    timers.shift(deferred, 1000)
    timers.fire(1099)
    assert fired == ["plain", "dead"]
    timers.fire(1100)
    assert fired == ["plain", "dead", "real", "alive", "append"]


def test_an_offset_that_is_set_leaves_time_outs_alone() -> None:
    rig = Rig().busy()
    events = len(rig.events)
    left_ms = (rig.broker.next_deadline_ms() or 0) - rig.clock.now_ms
    real_ms = rig.clock.real_ms
    set_offset(rig.broker, 30 * 24 * HOUR_MS)
    assert (rig.broker.next_deadline_ms() or 0) - rig.clock.now_ms == left_ms
    rig.broker.tick()
    rig.drain()
    assert len(rig.events) == events
    assert rig.clock.real_ms == real_ms
