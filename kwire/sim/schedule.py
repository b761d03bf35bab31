"""Virtual time: a heap of events in microseconds, in order of time, then of scheduling.

Draws nothing at random; callers do. Invariant: time never goes back, and two runs that schedule the
same events run the same.
"""

from __future__ import annotations

import heapq
from typing import Any

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

MS = 1000
"""Microseconds in a millisecond."""


class Schedule:
    """The event queue. `now_us`: the current event's time. `events`: how many have run."""

    __slots__ = ("_heap", "_sequence", "events", "now_us")

    def __init__(self) -> None:
        self.now_us = 0
        self.events = 0
        self._heap: list[tuple[int, int, Callable[..., None], tuple[Any, ...]]] = []
        self._sequence = 0

    def at(self, time_us: int, action: Callable[..., None], *args: Any) -> None:
        """Schedule `action` at `time_us`, or now if that is past."""
        self._sequence = sequence = self._sequence + 1
        if time_us < self.now_us:
            time_us = self.now_us
        heapq.heappush(self._heap, (time_us, sequence, action, args))

    def after(self, delay_us: int, action: Callable[..., None], *args: Any) -> None:
        """Schedule `action` in `delay_us` from now."""
        self.at(self.now_us + delay_us, action, *args)

    def next_us(self) -> int | None:
        """The time of the next event, or None."""
        return self._heap[0][0] if self._heap else None

    def run_next(self) -> bool:
        """Run one event; False without any."""
        if not self._heap:
            return False
        self.now_us, _, action, args = heapq.heappop(self._heap)
        self.events += 1
        action(*args)
        return True
