"""The clock and the timers of the core: time is set from outside and stands still within a step.

The driver sets `now_ms` and `wall_ms` before each step (`Broker.receive`, `respond`, `tick`); nothing below the
purity line reads a clock. Timers are not effects: the driver asks for `next_deadline_ms` and calls `Broker.tick`
when it has come.

A test may advance the clock (`kwire.advance`). What waits for another node or for a socket must not take that for
silence: its timers are set by `schedule_real`, its times are `real_ms`. A timer that is set by `schedule_lively` fires
by an advance only if it was not set again after the advance began: whose lease it is has shown no life.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Container, Hashable, Iterable


class Clock:
    """`now_ms`: monotonic milliseconds, for time-outs. `wall_ms`: Unix milliseconds, for timestamps.

    `nanoseconds`: goes on within a step, where a driver gives it; how long a request takes is measured with it.
    `offset_ms`: how far both times have been advanced by tests."""

    __slots__ = ("nanoseconds", "now_ms", "offset_ms", "wall_ms")

    def __init__(
        self, now_ms: int = 0, wall_ms: int = 0, nanoseconds: Callable[[], int] | None = None
    ) -> None:
        self.now_ms = now_ms
        self.wall_ms = wall_ms
        self.offset_ms = 0
        self.nanoseconds = nanoseconds or self._stands_still

    @property
    def real_ms(self) -> int:
        """Monotonic milliseconds that no test has advanced."""
        return self.now_ms - self.offset_ms

    def advance(self, delay_ms: int) -> None:
        """Let time pass at once; negative: go back. The timers are `Timers.shift`'s."""
        self.now_ms += delay_ms
        self.wall_ms += delay_ms
        self.offset_ms += delay_ms

    def _stands_still(self) -> int:
        return self.now_ms * 1_000_000


Entry = tuple[int, int, "Callable[[], None]"]
"""Of a timer: its deadline, its number, its callback."""


class _Real(tuple[int, int, "Callable[[], None]"]):
    """The entry of a timer that an advance of the clock defers by as much."""

    __slots__ = ()


class _Lively(_Real):
    """The same, if it was set after the advance began."""

    __slots__ = ()


class Timers:
    """One-shot timers by key. Scheduling a key again moves it; a callback may schedule and cancel."""

    __slots__ = ("_by_key", "_heap", "_sequence")

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Hashable]] = []
        self._by_key: dict[Hashable, Entry] = {}
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

    def schedule_real(self, key: Hashable, deadline_ms: int, callback: Callable[[], None]) -> None:
        """`schedule` for real time: an advance of the clock defers the deadline by as much."""
        self.schedule(key, deadline_ms, callback)
        self._by_key[key] = _Real(self._by_key[key])

    def schedule_lively(
        self, key: Hashable, deadline_ms: int, callback: Callable[[], None]
    ) -> None:
        """`schedule` for a lease: an advance that began before defers the deadline by as much."""
        self.schedule(key, deadline_ms, callback)
        self._by_key[key] = _Lively(self._by_key[key])

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

    # --- advances of the clock

    @property
    def last_number(self) -> int:
        """The number of the timer that was set last; those of later ones are higher."""
        return self._sequence

    def set_since(self, key: Hashable, number: int) -> bool:
        """Whether this timer was set after that number."""
        entry = self._by_key.get(key)
        return entry is not None and entry[1] > number

    def deferred(self, began: int, lively: Container[Hashable]) -> set[Hashable]:
        """The timers that an advance, begun at that number, defers. `lively`: further keys as those of
        `schedule_lively`."""
        return {
            key
            for key, entry in self._by_key.items()
            if (entry[1] > began if key in lively else _is_deferred(entry, began))
        }

    def deadlines(self) -> list[tuple[int, int, Hashable]]:
        """Deadline, number and key of each timer, in no order."""
        return [(entry[0], entry[1], key) for key, entry in self._by_key.items()]

    def real(self, others: Container[Hashable]) -> set[Hashable]:
        """The timers of `schedule_real` and `schedule_lively`, and `others`."""
        return {
            key for key, entry in self._by_key.items() if isinstance(entry, _Real) or key in others
        }

    def shift(self, keys: Iterable[Hashable], delay_ms: int) -> None:
        """Move the deadlines of these timers: the clock moves by as much, and what was left stays."""
        self._move(keys, delay_ms)

    def shift_all(self, delay_ms: int) -> None:
        """Move all deadlines."""
        self._move(self._by_key, delay_ms)

    def deadline_ms(self, key: Hashable) -> int | None:
        """When this timer is due; None: it is not set."""
        entry = self._by_key.get(key)
        return None if entry is None else entry[0]

    def put_off(self, key: Hashable, deadline_ms: int) -> None:
        """Move one deadline; the timer keeps its place among those of the same time."""
        self._move((key,), deadline_ms - self._by_key[key][0])

    def _move(self, keys: Iterable[Hashable], delay_ms: int) -> None:
        for key in keys:
            entry = self._by_key[key]
            moved: Entry = (entry[0] + delay_ms, entry[1], entry[2])
            if isinstance(entry, _Real):
                moved = type(entry)(moved)
            self._by_key[key] = moved
        self._heap = [(d, s, k) for k, (d, s, _) in self._by_key.items()]
        heapq.heapify(self._heap)


def _is_deferred(entry: Entry, began: int) -> bool:
    if isinstance(entry, _Lively):
        return entry[1] > began
    return isinstance(entry, _Real)
