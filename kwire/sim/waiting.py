"""Requests parked at a broker: none waits once its condition holds (I23).

`histories.py` checks that answers are right and come in time. A parked request whose wake-up was
forgotten is still answered in time, by its timer, and nothing would show. So after every step of a broker the
conditions of all parked requests are evaluated here, from the partitions and without the broker's
own code for it (`delayed.py`): a condition that holds while the request is still parked is a
violation. A follower may wait for a changed high watermark for HIGH_WATERMARK_DELAY_MS.
"""

from __future__ import annotations

from kwire.protocol.errors import ErrorCode
from kwire.replication.replica.delayed import (
    HIGH_WATERMARK_DELAY_MS,
    DelayedDeleteRecords,
    DelayedFetch,
    DelayedProduce,
)
from kwire.sim.transactions.waits import check_waiting_transactions

TYPE_CHECKING = False
if TYPE_CHECKING:
    from kwire.broker import Broker
    from kwire.replication.core.types import TopicPartition
    from kwire.replication.replica.fetch_data import FetchParams, FetchPartition
    from kwire.replication.replica.manager import ReplicaManager
    from kwire.replication.replica.partition import Partition
    from kwire.replication.replica.purgatory import DelayedOperation, Purgatory
    from kwire.sim.invariants import Invariants


def check_waiting(checker: Invariants, node_id: int, broker: Broker) -> None:
    """Look at all parked requests of a broker after a step. I23.

    What is left to the next tick at the same time (a failed disk) is looked at after that tick.
    """
    manager = broker.services.replica_manager
    deadline_ms = broker.next_deadline_ms()
    if deadline_ms is not None and deadline_ms <= broker.clock.now_ms:
        return
    for purgatory in (
        manager.produce_purgatory,
        manager.fetch_purgatory,
        manager.delete_records_purgatory,
    ):
        if purgatory.watchers:
            _check_purgatory(checker, node_id, manager, purgatory, broker.clock.now_ms)
    if broker.services.transactions_if_used is not None:
        check_waiting_transactions(checker, node_id, broker.services.transactions_if_used)


def _check_purgatory(
    checker: Invariants, node_id: int, manager: ReplicaManager, purgatory: Purgatory, now_ms: int
) -> None:
    for operation in dict.fromkeys(o for watchers in purgatory.watchers.values() for o in watchers):
        checker.counts["waits looked at"] += 1
        why = _why_not(manager, operation, now_ms)
        if why is not None:
            kind = type(operation).__name__
            checker.violated("I23", f"a {kind} still waits at {node_id} although {why}")


def _why_not(manager: ReplicaManager, operation: DelayedOperation, now_ms: int) -> str | None:
    """Why an operation should not wait any longer, or None."""
    if isinstance(operation, DelayedFetch):
        return _fetched(manager, operation, now_ms)
    if isinstance(operation, DelayedProduce):
        reasons = [_produced(manager, key, r.required_offset) for key, r in operation._pending]
    elif isinstance(operation, DelayedDeleteRecords):
        reasons = [_deleted(manager, key, r.requested_offset) for key, r in operation._pending]
    else:
        return None
    return None if None in reasons else f"{reasons}"


def _produced(manager: ReplicaManager, key: TopicPartition, required_offset: int) -> str | None:
    partition = manager.by_key.get(key)
    if partition is None:
        return f"{key} is not here"
    if not partition.is_leader:
        return f"{partition} does not lead"
    high_watermark = partition.log.high_watermark
    return f"{key} has {high_watermark}" if high_watermark >= required_offset else None


def _deleted(manager: ReplicaManager, key: TopicPartition, wanted: int) -> str | None:
    error, low_watermark = manager.low_watermark(key)
    if error is not ErrorCode.NONE:
        return f"{key}: {error.name}"
    return f"{key} starts at {low_watermark}" if low_watermark >= wanted else None


def _fetched(manager: ReplicaManager, operation: DelayedFetch, now_ms: int) -> str | None:
    params = operation._params
    readable = 0
    for number, (key, request) in enumerate(operation._partitions):
        partition = manager.by_key.get(key)
        if partition is None:
            return f"{key} is not here"
        epoch = request.current_leader_epoch
        if epoch >= 0 and epoch != partition.leader_epoch:
            return f"{partition} is not in epoch {epoch}"
        if params.fetch_only_leader and not partition.is_leader:
            return f"{partition} does not lead"
        is_there = request.fetch_offset >= partition.log.log_start_offset
        if is_there and request.last_fetched_epoch >= 0 and partition.diverges(request):
            return f"{partition} diverges from a reader at {request.fetch_offset}"
        found = _readable(partition, params, request)
        is_seen = partition.read_bound(params) == operation._bounds[number]
        if is_seen and partition.log.config.compact:
            # The cleaner writes batches again, which may be larger then; that is no news.
            found = min(found, operation._available_bytes[number])
        if is_seen and params.replica_id >= 0 and manager.throttles is not None:
            # As in Kafka a follower that was throttled waits its time, also when the throttle ends.
            found = min(found, operation._available_bytes[number])
        readable += found
        if params.min_bytes <= 1 and readable:
            return f"{partition} has bytes from {request.fetch_offset} on"
    if readable >= max(params.min_bytes, 1):
        return f"{readable} bytes are there, wanted are {params.min_bytes}"
    sent = operation._sent_high_watermarks
    if sent is not None and operation.deadline_ms > now_ms + HIGH_WATERMARK_DELAY_MS:
        for (key, _), before in zip(operation._partitions, sent, strict=True):
            high_watermark = manager.by_key[key].log.high_watermark
            if high_watermark != before:
                return f"the high watermark of {key} is {high_watermark}, sent was {before}"
    return None


def _readable(partition: Partition, params: FetchParams, request: FetchPartition) -> int:
    """The number of bytes that a read would return now, at least; a lower bound is enough."""
    log = partition.log
    if params.replica_id >= 0:
        bound = log.log_end_offset
    else:
        bound = log.last_stable_offset if params.isolation_level else log.high_watermark
    start = max(request.fetch_offset, log.log_start_offset)
    if start >= bound or request.fetch_offset < log.log_start_offset:
        return 0
    return min(log.bytes_between(start, bound), request.max_bytes)
