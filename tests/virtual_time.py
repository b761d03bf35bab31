"""Time that tests advance by hand: the clock of a core, and its timers."""

from __future__ import annotations

from kwire.replication.core.clock import Clock, Timers


def advance(clock: Clock, timers: Timers, delay_ms: int) -> None:
    """Advance the clock, firing each due timer in order, at its time. The wall clock goes with it."""
    end = clock.now_ms + delay_ms
    while (deadline := timers.next_deadline_ms()) is not None and deadline <= end:
        _move_to(clock, max(deadline, clock.now_ms))
        timers.fire(clock.now_ms)
    _move_to(clock, end)


def _move_to(clock: Clock, now_ms: int) -> None:
    clock.wall_ms += now_ms - clock.now_ms
    clock.now_ms = now_ms
