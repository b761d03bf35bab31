"""Purgatories: delayed operations that wait for an event or their timeout.

Answers to org.apache.kafka.server.purgatory.DelayedOperationPurgatory; the operations are in
delayed.py. With a single thread Kafka's locks and its purge interval are not needed: a completed
operation is removed from every watch list immediately, and its timer is cancelled.

Invariants: an operation completes exactly once, by `try_complete`, time-out, `force_complete` or
`cancel`; a completed one is in no list of the purgatory. Operations on one key complete in the
order in which they were watched.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable

    from kwire.replication.core.clock import Clock, Timers


class DelayedOperation:
    """An operation that waits. Subclasses define its condition and its completion."""

    __slots__ = ("completed", "deadline_ms", "keys", "purgatory")

    def __init__(self) -> None:
        self.completed = False
        self.deadline_ms = 0
        self.keys: tuple[Hashable, ...] = ()
        self.purgatory: Purgatory | None = None

    def is_satisfied(self) -> bool:
        """Whether it need not wait any longer; may be called any number of times."""
        raise NotImplementedError

    def is_satisfied_after(self, key: Hashable) -> bool:
        """As `is_satisfied`, if only `key` has changed since the last call."""
        return self.is_satisfied()

    def on_complete(self) -> None:
        """Answer the request. Called exactly once, whether satisfied or expired."""
        raise NotImplementedError

    def on_expiration(self) -> None:
        """Prepare for `on_complete` after a time-out; most operations need nothing here."""

    def try_complete(self) -> bool:
        """Complete the operation if satisfied; False if it still waits or was completed before."""
        if self.completed or not self.is_satisfied():
            return False
        return self.force_complete()

    def force_complete(self) -> bool:
        """Complete the operation, satisfied or not; False if it was completed before."""
        if self.completed:
            return False
        self._mark_completed()
        self.on_complete()
        return True

    def cancel(self) -> None:
        """Drop the operation without an answer: its client is gone."""
        if not self.completed:
            self._mark_completed()

    def _mark_completed(self) -> None:
        self.completed = True
        if self.purgatory is not None:
            self.purgatory._remove(self)
            self.purgatory = None


class Purgatory:
    """The waiting operations of one kind, by their keys (partitions, groups …).

    `watchers` may be read: most keys have none, and `key in watchers` saves the call.
    """

    __slots__ = ("_clock", "_timers", "_waiting", "watchers")

    def __init__(self, clock: Clock, timers: Timers) -> None:
        self._clock = clock
        self._timers = timers
        self.watchers: dict[Hashable, dict[DelayedOperation, None]] = {}
        self._waiting = 0

    def __len__(self) -> int:
        """The number of waiting operations."""
        return self._waiting

    def try_complete_else_watch(
        self, operation: DelayedOperation, keys: Iterable[Hashable], timeout_ms: int
    ) -> bool:
        """Complete the operation now, or park it under `keys` for at most `timeout_ms`.

        A timeout of zero or less expires in the next tick, never on this stack. True if completed.
        """
        if operation.try_complete():
            return True
        self.watch(operation, keys, timeout_ms)
        return False

    def watch(self, operation: DelayedOperation, keys: Iterable[Hashable], timeout_ms: int) -> None:
        """Park the operation without a check of its condition."""
        assert operation.purgatory is None and not operation.completed
        operation.keys = tuple(dict.fromkeys(keys))
        operation.purgatory = self
        self._waiting += 1
        for key in operation.keys:
            watchers = self.watchers.get(key)
            if watchers is None:
                self.watchers[key] = {operation: None}
            else:
                watchers[operation] = None
        operation.deadline_ms = deadline_ms = self._clock.now_ms + max(timeout_ms, 0)
        self._timers.schedule(operation, deadline_ms, lambda: _expire(operation))

    def check_and_complete(self, key: Hashable) -> int:
        """Complete the operations on `key` that are satisfied now; return their number."""
        watchers = self.watchers.get(key)
        if watchers is None:
            return 0
        done = 0
        for operation in tuple(watchers):
            if not operation.completed and operation.is_satisfied_after(key):
                operation._mark_completed()
                operation.on_complete()
                done += 1
        return done

    def expire_within(self, operation: DelayedOperation, delay_ms: int) -> None:
        """Shorten the timeout of a parked operation; never extends it."""
        deadline_ms = min(operation.deadline_ms, self._clock.now_ms + delay_ms)
        operation.deadline_ms = deadline_ms
        self._timers.schedule(operation, deadline_ms, lambda: _expire(operation))

    def cancel_all(self) -> int:
        """Drop all operations without an answer (the broker stops); return their number."""
        waiting = dict.fromkeys(o for watchers in self.watchers.values() for o in watchers)
        for operation in waiting:
            operation.cancel()
        return len(waiting)

    def _remove(self, operation: DelayedOperation) -> None:
        self._waiting -= 1
        self._timers.cancel(operation)
        for key in operation.keys:
            watchers = self.watchers.get(key)
            if watchers is not None:
                watchers.pop(operation, None)
                if not watchers:
                    del self.watchers[key]


def _expire(operation: DelayedOperation) -> None:
    if not operation.completed:
        operation._mark_completed()
        operation.on_expiration()
        operation.on_complete()
