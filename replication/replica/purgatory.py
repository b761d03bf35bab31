"""Delayed operations: requests that wait for the log to move or for their time to run out.

Answers to org.apache.kafka.server.purgatory.DelayedOperationPurgatory. There is one thread here, so Kafka's locks and
its sampling of watch lists fall away: a completed operation leaves every list at once, and its timer is cancelled.

Invariants: an operation completes exactly once, by `try_complete`, by time-out, by `force_complete` or by `cancel`;
when it has, the purgatory holds nothing of it. The order of completion is the order of watching.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kwire.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable

    from kwire.replication.core.clock import Clock, Timers
    from kwire.replication.replica.fetch_data import FetchParams, FetchPartition, FetchPartitionData
    from kwire.replication.replica.manager import (
        DeleteRecordsResult,
        PartitionAppendResult,
        ReplicaManager,
        TopicPartition,
    )


HIGH_WATERMARK_NEWS_MS: Final = 5
"""How long a follower's fetch waits for records to come along when it has nothing but a new high watermark to tell."""


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
    """The waiting operations of one kind, by what they watch (partitions, groups …)."""

    __slots__ = ("_clock", "_timers", "_waiting", "_watchers")

    def __init__(self, clock: Clock, timers: Timers) -> None:
        self._clock = clock
        self._timers = timers
        self._watchers: dict[Hashable, dict[DelayedOperation, None]] = {}
        self._waiting = 0

    def __len__(self) -> int:
        """How many operations wait."""
        return self._waiting

    def watched_keys(self) -> int:
        return len(self._watchers)

    def watched(self, key: Hashable) -> bool:
        """Whether anything waits for `key`: cheaper than check_and_complete where most often nobody does."""
        return key in self._watchers

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
            watchers = self._watchers.get(key)
            if watchers is None:
                self._watchers[key] = {operation: None}
            else:
                watchers[operation] = None
        operation.deadline_ms = deadline_ms = self._clock.now_ms + max(timeout_ms, 0)
        self._timers.schedule(operation, deadline_ms, lambda: _expire(operation))

    def check_and_complete(self, key: Hashable) -> int:
        """Something happened to `key`: completes what is satisfied now. How many were."""
        watchers = self._watchers.get(key)
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
        waiting = dict.fromkeys(o for watchers in self._watchers.values() for o in watchers)
        for operation in waiting:
            operation.cancel()
        return len(waiting)

    def _forget(self, operation: DelayedOperation) -> None:
        self._waiting -= 1
        self._timers.cancel(operation)
        for key in operation.keys:
            watchers = self._watchers.get(key)
            if watchers is not None:
                watchers.pop(operation, None)
                if not watchers:
                    del self._watchers[key]


def _expire(operation: DelayedOperation) -> None:
    if not operation.completed:
        operation._leave()
        operation.on_expiration()
        operation.on_complete()


class DelayedProduce(DelayedOperation):
    """Appends with acks=all that wait until their followers have them (kafka.server.DelayedProduce).

    Each pending result ends with NONE, NOT_ENOUGH_REPLICAS_AFTER_APPEND (it is in the log), what the loss of the role
    says, or, at last, REQUEST_TIMED_OUT (it may still be committed).
    """

    __slots__ = ("_answer", "_manager", "_pending")

    def __init__(
        self,
        manager: ReplicaManager,
        pending: list[tuple[TopicPartition, PartitionAppendResult]],
        answer: Callable[[], None],
    ) -> None:
        """`pending`: results whose `required_offset` is to be passed by the high watermark; `answer` is called last."""
        super().__init__()
        self._manager = manager
        self._pending = pending
        self._answer = answer
        for _, result in pending:
            result.error = (
                ErrorCode.REQUEST_TIMED_OUT
            )  # however this ends: not committed until it is seen to be

    def is_satisfied(self) -> bool:
        waiting: list[tuple[TopicPartition, PartitionAppendResult]] = []
        for key, result in self._pending:
            outcome = self._manager.replication_outcome(key, result.required_offset)
            if outcome is None:
                waiting.append((key, result))
            else:
                result.error = outcome
        self._pending = waiting
        return not waiting

    def on_complete(self) -> None:
        self._answer()


class DelayedFetch(DelayedOperation):
    """A fetch that waits for min_bytes (kafka.server.DelayedFetch).

    Done when a partition is gone, no longer led or fenced, was truncated below what had been readable, when enough
    bytes are there or a new segment has begun (a read is of one); then, or when time is out, everything is read again.
    Who asks beyond what it may read yet waits, too: Kafka answers such a reader at once, again and again. A follower
    also hears of a high watermark that moved, a moment later: most often records come meanwhile, and the news with
    them (Kafka lets it wait for as long as the fetch may; KIP-392 had it answered at once, which KAFKA-9731 ended).
    """

    __slots__ = (
        "_answer",
        "_available_bytes",
        "_bounds",
        "_first_read",
        "_hurried",
        "_known",
        "_manager",
        "_numbers",
        "_params",
        "_partitions",
        "_total_bytes",
        "is_behind",
    )

    def __init__(
        self,
        manager: ReplicaManager,
        params: FetchParams,
        partitions: list[tuple[TopicPartition, FetchPartition]],
        first_read: list[FetchPartitionData],
        answer: Callable[[list[FetchPartitionData]], None],
    ) -> None:
        super().__init__()
        self._manager = manager
        self._params = params
        self._partitions = partitions
        self._first_read = first_read
        self._answer = answer
        self._numbers: dict[Hashable, int] = {}
        if len(partitions) == 1:
            self._bounds = [first_read[0].bound]
            self._total_bytes = available = len(first_read[0].records)
            self._available_bytes = [available]
        else:
            for number, (key, _) in enumerate(partitions):
                self._numbers[key] = number
            self._bounds = [data.bound for data in first_read]
            self._available_bytes = [len(data.records) for data in first_read]
            self._total_bytes = sum(self._available_bytes)
        self._hurried = False
        # The high watermarks that a follower has been told of; `is_behind`: another one is news already.
        self._known: list[int] | None = None
        self.is_behind = False
        if params.replica_id >= 0:
            self._known = known = []
            for (_, request), data in zip(partitions, first_read, strict=True):
                answered = request.answered_high_watermark
                known.append(data.high_watermark if answered < 0 else answered)
                if 0 <= answered != data.high_watermark:
                    self.is_behind = True

    def is_satisfied(self) -> bool:
        done = [self._is_done(number) for number in range(len(self._partitions))]
        return True in done or self._total_bytes >= self._params.min_bytes

    def is_satisfied_after(self, key: Hashable) -> bool:
        number = self._numbers[key] if self._numbers else 0
        return self._is_done(number) or self._total_bytes >= self._params.min_bytes

    def _is_done(self, number: int) -> bool:
        """Whether one partition ends the waiting; counts what it has for the reader."""
        key, request = self._partitions[number]
        partition, params = self._manager.hosted(key), self._params
        if partition is None:
            return True
        epoch = request.current_leader_epoch
        if epoch >= 0 and epoch != partition.leader_epoch:
            return True
        if params.fetch_only_leader and not partition.is_leader:
            return True
        if request.last_fetched_epoch >= 0 and partition.diverges(request):
            return True
        if (
            self._known is not None
            and not self._hurried
            and partition.log.high_watermark != self._known[number]
            and self.purgatory is not None
        ):
            self._hurried = True
            self.purgatory.expire_within(self, HIGH_WATERMARK_NEWS_MS)
        bound, before = partition.read_bound(params), self._bounds[number]
        if bound == before:
            return False
        if bound < before:
            return True
        if bound > request.fetch_offset:
            if params.min_bytes <= 1 or partition.log.rolls_between(request.fetch_offset, bound):
                return True
            more = partition.log.bytes_between(max(before, request.fetch_offset), bound)
            had = self._available_bytes[number]
            self._available_bytes[number] = now = min(had + more, request.max_bytes)
            self._total_bytes += now - had
        self._bounds[number] = bound
        return False

    def on_complete(self) -> None:
        manager, params, partitions = self._manager, self._params, self._partitions
        if len(partitions) == 1:
            self._answer(manager.read_from_log(params, partitions))
            return
        # Most of a follower's partitions are as they were: reading them again would say the same.
        results = self._first_read
        numbers = [number for number in range(len(partitions)) if self._has_changed(number)]
        again = manager.read_from_log(params, [partitions[number] for number in numbers])
        for number, data in zip(numbers, again, strict=True):
            results[number] = data
        self._answer(results)

    def _has_changed(self, number: int) -> bool:
        """Whether a partition may be read otherwise than the first time (an epoch, too, only changes with a role)."""
        data = self._first_read[number]
        key, request = self._partitions[number]
        partition = self._manager.hosted(key)
        if partition is None or request.fetch_offset < data.bound:
            return True
        log, epoch = partition.log, request.current_leader_epoch
        return (
            log.high_watermark != data.high_watermark
            or log.log_start_offset != data.log_start_offset
            or partition.read_bound(self._params) != data.bound
            or (epoch >= 0 and epoch != partition.leader_epoch)
            or (self._params.fetch_only_leader and not partition.is_leader)
        )


def waits_in_vain(
    manager: ReplicaManager,
    partitions: list[tuple[TopicPartition, FetchPartition]],
    first_read: list[FetchPartitionData],
) -> bool:
    """Whether there is more for a reader in a later segment than it has read from: waiting brings it nothing of it.

    One that has read nothing is at the end of what there is, maybe before a gap that compaction has left.
    """
    for (key, request), data in zip(partitions, first_read, strict=True):
        partition = manager.hosted(key) if len(data.records) else None
        if partition is not None and partition.log.rolls_between(request.fetch_offset, data.bound):
            return True
    return False


class DelayedDeleteRecords(DelayedOperation):
    """DeleteRecords that waits until the live followers have moved their log start too (DelayedDeleteRecords)."""

    __slots__ = ("_answer", "_manager", "_pending")

    def __init__(
        self,
        manager: ReplicaManager,
        pending: list[tuple[TopicPartition, DeleteRecordsResult]],
        answer: Callable[[], None],
    ) -> None:
        super().__init__()
        self._manager = manager
        self._pending = pending
        self._answer = answer

    def is_satisfied(self) -> bool:
        waiting: list[tuple[TopicPartition, DeleteRecordsResult]] = []
        for key, result in self._pending:
            error, low_watermark = self._manager.low_watermark(key)
            if error is ErrorCode.NONE and low_watermark < result.requested_offset:
                waiting.append((key, result))
            else:
                result.error, result.low_watermark = error, low_watermark
        self._pending = waiting
        return not waiting

    def on_expiration(self) -> None:
        for _, result in self._pending:
            # The low watermark stays that of when the wait began, as Kafka's does.
            result.error = ErrorCode.REQUEST_TIMED_OUT

    def on_complete(self) -> None:
        self._answer()
