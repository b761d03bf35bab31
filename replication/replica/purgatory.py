"""Delayed operations: requests that wait for the log to move or for their time to run out.

Answers to org.apache.kafka.server.purgatory.DelayedOperationPurgatory; what waits is in delayed.py. There is one
thread here, so Kafka's locks and its sampling of watch lists fall away: a completed operation leaves every list at
once, and its timer is cancelled.

Invariants: an operation completes exactly once, by `try_complete`, by time-out, by `force_complete` or by `cancel`;
when it has, the purgatory holds nothing of it. The order of completion is the order of watching.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable

    from kwire.replication.core.clock import Clock, Timers


class DelayedOperation:
    """What waits. Subclasses say when it is done and what then happens."""

    __slots__ = ("completed", "deadline_ms", "keys", "purgatory")

    def __init__(self) -> None:
        self.completed = False
        self.deadline_ms = 0
        self.keys: tuple[Hashable, ...] = ()
        self.purgatory: Purgatory | None = None

    def is_satisfied(self) -> bool:
        """Whether there is nothing left to wait for; may be asked any number of times."""
        raise NotImplementedError

    def is_satisfied_after(self, key: Hashable) -> bool:
        """As `is_satisfied`, when nothing but `key` has changed since it was last asked."""
        return self.is_satisfied()

    def on_complete(self) -> None:
        """Answers. Called exactly once, whether satisfied or expired."""
        raise NotImplementedError

    def on_expiration(self) -> None:
        """Called before `on_complete` when time ran out; most operations need nothing here."""

    def try_complete(self) -> bool:
        """Completes the operation if it is satisfied; False if it still waits or had been completed before."""
        if self.completed or not self.is_satisfied():
            return False
        return self.force_complete()

    def force_complete(self) -> bool:
        """Completes the operation as it stands; False if it had been completed before."""
        if self.completed:
            return False
        self._leave()
        self.on_complete()
        return True

    def cancel(self) -> None:
        """Drops the operation without an answer: nobody is there to hear it."""
        if not self.completed:
            self._leave()

    def _leave(self) -> None:
        self.completed = True
        if self.purgatory is not None:
            self.purgatory._forget(self)
            self.purgatory = None


class Purgatory:
    """The waiting operations of one kind, by what they watch (partitions, groups …).

    `watchers` is for reading: most often nothing watches a key, and `key in watchers` spares the call.
    """

    __slots__ = ("_clock", "_timers", "_waiting", "watchers")

    def __init__(self, clock: Clock, timers: Timers) -> None:
        self._clock = clock
        self._timers = timers
        self.watchers: dict[Hashable, dict[DelayedOperation, None]] = {}
        self._waiting = 0

    def __len__(self) -> int:
        """How many operations wait."""
        return self._waiting

    def try_complete_else_watch(
        self, operation: DelayedOperation, keys: Iterable[Hashable], timeout_ms: int
    ) -> bool:
        """Completes the operation now if it can; else it waits under `keys`, for at most `timeout_ms`.

        A time-out of zero or less expires in the next tick, never on this stack. True if it was completed.
        """
        if operation.try_complete():
            return True
        self.watch(operation, keys, timeout_ms)
        return False

    def watch(self, operation: DelayedOperation, keys: Iterable[Hashable], timeout_ms: int) -> None:
        """Lets the operation wait without asking it first."""
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
        """Something happened to `key`: completes what is satisfied now. How many were."""
        watchers = self.watchers.get(key)
        if watchers is None:
            return 0
        done = 0
        for operation in tuple(watchers):
            if not operation.completed and operation.is_satisfied_after(key):
                operation._leave()
                operation.on_complete()
                done += 1
        return done

    def expire_within(self, operation: DelayedOperation, delay_ms: int) -> None:
        """An operation that waits here need not wait longer than that."""
        deadline_ms = min(operation.deadline_ms, self._clock.now_ms + delay_ms)
        operation.deadline_ms = deadline_ms
        self._timers.schedule(operation, deadline_ms, lambda: _expire(operation))

    def cancel_all(self) -> int:
        """Drops everything without an answer (a broker that stops); how many there were."""
        waiting = dict.fromkeys(o for watchers in self.watchers.values() for o in watchers)
        for operation in waiting:
            operation.cancel()
        return len(waiting)

    def _forget(self, operation: DelayedOperation) -> None:
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
        operation._leave()
        operation.on_expiration()
        operation.on_complete()
