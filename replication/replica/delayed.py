"""The delayed operations: acks=all appends, fetches with min_bytes, DeleteRecords.

Answers to kafka.server.{DelayedProduce,DelayedFetch,DelayedDeleteRecords}. Each checks its
condition with the ReplicaManager; wake-ups and time-outs are the purgatory's (purgatory.py).
"""

from __future__ import annotations

from typing import Final

from kwire.protocol.errors import ErrorCode
from kwire.replication.replica.purgatory import DelayedOperation

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from kwire.replication.core.types import TopicPartition
    from kwire.replication.log.log import LogAppendInfo
    from kwire.replication.replica.append_result import DeleteRecordsResult
    from kwire.replication.replica.fetch_data import FetchParams, FetchPartition, FetchPartitionData
    from kwire.replication.replica.manager import ReplicaManager
    from kwire.replication.replica.partition import Partition

HIGH_WATERMARK_DELAY_MS: Final = 5
"""How long a follower's fetch is parked for records when only the high watermark has changed."""


class DelayedProduce(DelayedOperation):
    """Appends with acks=all, parked until they are committed (kafka.server.DelayedProduce).

    Each pending result ends with NONE, NOT_ENOUGH_REPLICAS_AFTER_APPEND (it is in the log), the
    error of a lost leadership, or REQUEST_TIMED_OUT (it may still be committed).
    """

    __slots__ = ("_answer", "_manager", "_pending")

    def __init__(
        self,
        manager: ReplicaManager,
        pending: list[tuple[TopicPartition, LogAppendInfo]],
        answer: Callable[[], None],
    ) -> None:
        """`pending`: results that wait until the high watermark reaches their `required_offset`."""
        super().__init__()
        self._manager = manager
        self._pending = pending
        self._answer = answer
        for _, result in pending:
            # The result of a time-out, unless `is_satisfied` replaces it.
            result.error = ErrorCode.REQUEST_TIMED_OUT

    def is_satisfied(self) -> bool:
        waiting: list[tuple[TopicPartition, LogAppendInfo]] = []
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

    Satisfied when a partition is deleted, fenced, no longer led or truncated below its read bound,
    when min_bytes are available, or when the log has rolled (a read is of one segment). Then, or at
    the time-out, changed partitions are read again. A reader ahead of its read bound is parked,
    too: Kafka answers it at once, again and again. A follower gets a changed high watermark after a
    short delay, usually together with records (Kafka: only with records or at max_wait_ms; KIP-392
    answered at once, which KAFKA-9731 reverted).
    """

    __slots__ = (
        "_answer",
        "_available_bytes",
        "_bounds",
        "_expires_soon",
        "_first_read",
        "_manager",
        "_numbers",
        "_params",
        "_partitions",
        "_sent_high_watermarks",
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
            self._available_bytes = [0]
        else:
            for number, (key, _) in enumerate(partitions):
                self._numbers[key] = number
            self._bounds = [data.bound for data in first_read]
            self._available_bytes = [0] * len(partitions)
        self._total_bytes = 0
        if params.min_bytes > 1:  # else nothing was read
            self._count_available()
        self._expires_soon = False
        # The high watermarks last sent to a follower; `is_behind`: one has changed since.
        self._sent_high_watermarks: list[int] | None = None
        self.is_behind = False
        if params.replica_id >= 0:
            self._sent_high_watermarks = sent = []
            for (_, request), data in zip(partitions, first_read, strict=True):
                answered = request.answered_high_watermark
                sent.append(data.high_watermark if answered < 0 else answered)
                if 0 <= answered != data.high_watermark:
                    self.is_behind = True

    def _count_available(self) -> None:
        """Count what is there, not what was read, for min_bytes; see `available_bytes`."""
        self._available_bytes = [
            available_bytes(self._manager, self._params, partition, data)
            for partition, data in zip(self._partitions, self._first_read, strict=True)
        ]
        self._total_bytes = sum(self._available_bytes)

    def is_satisfied(self) -> bool:
        done = [self._is_done(number) for number in range(len(self._partitions))]
        return True in done or self._total_bytes >= self._params.min_bytes

    def is_satisfied_after(self, key: Hashable) -> bool:
        number = self._numbers[key] if self._numbers else 0
        return self._is_done(number) or self._total_bytes >= self._params.min_bytes

    def _is_done(self, number: int) -> bool:
        """Whether one partition satisfies the fetch; else count its available bytes."""
        key, request = self._partitions[number]
        partition = self._manager.hosted(key)
        if partition is None or self._is_refused(partition, request):
            return True
        if (
            self._sent_high_watermarks is not None
            and partition.log.high_watermark != self._sent_high_watermarks[number]
        ):
            self._expire_soon()
        bound, before = partition.read_bound(self._params), self._bounds[number]
        if bound == before:
            return False
        if bound < before:  # truncated, or the role changed: read again
            return True
        if (
            bound > request.fetch_offset
            and (
                self._manager.throttles is None
                or not is_throttled(self._manager, self._params, partition)
            )
            and (self._params.min_bytes <= 1 or self._has_enough(number, partition, bound))
        ):
            return True
        self._bounds[number] = bound
        return False

    def _is_refused(self, partition: Partition, request: FetchPartition) -> bool:
        """Whether a read would be refused or get a diverging epoch (KIP-320, KIP-595)."""
        epoch = request.current_leader_epoch
        return (
            (epoch >= 0 and epoch != partition.leader_epoch)
            or (self._params.fetch_only_leader and not partition.is_leader)
            or (request.last_fetched_epoch >= 0 and partition.diverges(request))
        )

    def _expire_soon(self) -> None:
        """Shorten the wait, so that the follower gets the high watermark soon."""
        if not self._expires_soon and self.purgatory is not None:
            self._expires_soon = True
            self.purgatory.expire_within(self, HIGH_WATERMARK_DELAY_MS)

    def _has_enough(self, number: int, partition: Partition, bound: int) -> bool:
        """Whether the log has rolled since the fetch offset; else count new bytes for min_bytes."""
        _, request = self._partitions[number]
        log = partition.log
        if log.rolls_between(request.fetch_offset, bound):  # a read is of one segment
            return True
        had = self._available_bytes[number]
        now = min(log.bytes_between(request.fetch_offset, bound), request.max_bytes)
        self._available_bytes[number] = now
        self._total_bytes += now - had
        return False

    def on_complete(self) -> None:
        manager, params, partitions = self._manager, self._params, self._partitions
        if len(partitions) == 1:
            self._answer(manager.read_from_log(params, partitions))
            return
        # Most of a follower's partitions are unchanged: their first results still hold.
        results = self._first_read
        numbers = [number for number in range(len(partitions)) if self._has_changed(number)]
        again = manager.read_from_log(params, [partitions[number] for number in numbers])
        for number, data in zip(numbers, again, strict=True):
            results[number] = data
        self._answer(results)

    def _has_changed(self, number: int) -> bool:
        """Whether a second read of a partition may differ from the first."""
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


def is_throttled(manager: ReplicaManager, params: FetchParams, partition: Partition) -> bool:
    """Whether a follower would get no records of a partition now: they do not end its wait."""
    throttles, replica_id = manager.throttles, params.replica_id
    return throttles is not None and replica_id >= 0 and throttles.stops(partition, replica_id)


def available_bytes(
    manager: ReplicaManager,
    params: FetchParams,
    partition: tuple[TopicPartition, FetchPartition],
    data: FetchPartitionData,
) -> int:
    """How many bytes of a partition count towards min_bytes, as DelayedFetch of Kafka counts them.

    Those below the read bound, up to the partition's limit: more than were read where the limits of
    size cut a batch off, which is not sent. Waiting for more would be useless then. None of a partition
    that is throttled, or its follower would ask again and again.
    """
    key, request = partition
    hosted = manager.hosted(key)
    if hosted is None:
        return len(data.records)
    if manager.throttles is not None and is_throttled(manager, params, hosted):
        return len(data.records)
    return min(hosted.log.bytes_between(request.fetch_offset, data.bound), request.max_bytes)


def has_enough(
    manager: ReplicaManager,
    params: FetchParams,
    partitions: list[tuple[TopicPartition, FetchPartition]],
    first_read: list[FetchPartitionData],
) -> bool:
    """Whether it is useless to wait for min_bytes: enough bytes are there, or the log has rolled.

    A partition without records in its result may be before a compaction gap.
    """
    total_bytes = 0
    for partition, data in zip(partitions, first_read, strict=True):
        key, request = partition
        hosted = manager.hosted(key) if len(data.records) else None
        if hosted is not None and hosted.log.rolls_between(request.fetch_offset, data.bound):
            return True
        total_bytes += available_bytes(manager, params, partition, data)
    return total_bytes >= params.min_bytes


class DelayedDeleteRecords(DelayedOperation):
    """DeleteRecords, parked until the live followers have moved their log start, too."""

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
            # The low watermark stays as of the start of the wait, as in Kafka.
            result.error = ErrorCode.REQUEST_TIMED_OUT

    def on_complete(self) -> None:
        self._answer()
