"""The clock and the timers of the core: time is set from outside and stands still within a step.

The driver sets `now_ms` and `wall_ms` before each step (`Broker.receive`, `respond`, `tick`); nothing below the
purity line reads a clock. Timers are not effects: the driver asks for `next_deadline_ms` and calls `Broker.tick`
when it has come.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Hashable


class Clock:
    """`now_ms`: monotonic milliseconds, for time-outs. `wall_ms`: Unix milliseconds, for timestamps.

    `nanoseconds`: goes on within a step, where a driver gives it; how long a request takes is measured with it."""

    __slots__ = ("nanoseconds", "now_ms", "wall_ms")

    def __init__(
        self, now_ms: int = 0, wall_ms: int = 0, nanoseconds: Callable[[], int] | None = None
    ) -> None:
        self.now_ms = now_ms
        self.wall_ms = wall_ms
        self.nanoseconds = nanoseconds or self._stands_still

    def _stands_still(self) -> int:
        return self.now_ms * 1_000_000


class Timers:
    """One-shot timers by key. Scheduling a key again moves it; a callback may schedule and cancel."""

    __slots__ = ("_by_key", "_heap", "_sequence")

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Hashable]] = []
        self._by_key: dict[Hashable, tuple[int, int, Callable[[], None]]] = {}
        self._sequence = 0  # ties fire in the order they were scheduled: same seed, same run

    def schedule(self, key: Hashable, deadline_ms: int, callback: Callable[[], None]) -> None:
        """Calls `callback` in the first step at or after `deadline_ms` (on Clock.now_ms's scale)."""
        self._sequence += 1
        self._by_key[key] = (deadline_ms, self._sequence, callback)
        heapq.heappush(self._heap, (deadline_ms, self._sequence, key))
        if len(self._heap) > 64 and len(self._heap) > 4 * len(self._by_key):
            # Moved and cancelled timers leave husks behind: sweep them before they are most of the heap.
            self._heap = [(d, s, k) for k, (d, s, _) in self._by_key.items()]
            heapq.heapify(self._heap)

    def cancel(self, key: Hashable) -> None:
        self._by_key.pop(key, None)

    def __contains__(self, key: Hashable) -> bool:
        return key in self._by_key

    def __len__(self) -> int:
        return len(self._by_key)

    def next_deadline_ms(self) -> int | None:
        """When the earliest timer is due, or None."""
        heap, by_key = self._heap, self._by_key
        while heap:
            deadline, sequence, key = heap[0]
            entry = by_key.get(key)
            if entry is not None and entry[1] == sequence:
                return deadline
            heapq.heappop(heap)
        return None

    def fire(self, now_ms: int) -> None:
        """Runs every timer due at `now_ms`, earliest first, those scheduled meanwhile for `now_ms` included."""
        while (deadline := self.next_deadline_ms()) is not None and deadline <= now_ms:
            _, _, key = heapq.heappop(self._heap)
            _, _, callback = self._by_key.pop(key)
            callback()
