"""Snapshots of a broker's replicas for humans and metrics: roles, ISR, offsets, lags.

Answers to the gauges and meters of kafka.cluster.Partition and kafka.server.ReplicaManager
(UnderReplicated, UnderMinIsr, IsrShrinksPerSec …) and to their log lines. Snapshots are plain
values that later changes do not touch. Nothing here is part of an append or a fetch.
"""

from __future__ import annotations

from dataclasses import dataclass

from kwire.replication.core.events import Event
from kwire.replication.replica.isr import NEVER_MS, PendingExpandIsr, PendingShrinkIsr

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from kwire.replication.core.events import LogEvent
    from kwire.replication.replica.manager import ReplicaManager
    from kwire.replication.replica.partition import Partition


@dataclass(slots=True, frozen=True)
class FollowerStatus:
    """A follower's state at its leader; -1: unknown (it has not fetched in this epoch)."""

    broker_id: int
    broker_epoch: int
    log_start_offset: int
    log_end_offset: int
    lag: int
    """In offsets, behind the leader's log end."""
    caught_up_ms_ago: int
    in_isr: bool


@dataclass(slots=True, frozen=True)
class PartitionStatus:
    """One hosted partition. On a follower `isr` and `followers` are empty, ISR flags False."""

    topic: str
    partition: int
    topic_id: bytes
    leads: bool
    leader_id: int
    leader_epoch: int
    partition_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    pending_isr: tuple[int, ...] | None
    """The ISR proposed to the controller; None: no proposal is pending."""
    log_start_offset: int
    last_stable_offset: int
    high_watermark: int
    log_end_offset: int
    size_bytes: int
    followers: tuple[FollowerStatus, ...]
    under_replicated: bool
    under_min_isr: bool
    at_min_isr: bool


@dataclass(slots=True, frozen=True)
class ReplicaManagerStatus:
    """All partitions of a broker. The counts are Kafka's gauges of the same names."""

    partition_count: int
    leader_count: int
    offline_replica_count: int
    offline_log_directory_count: int
    under_replicated_partitions: int
    under_min_isr_partition_count: int
    at_min_isr_partition_count: int
    isr_shrinks: int
    isr_expands: int
    failed_isr_updates: int
    waiting_produces: int
    waiting_fetches: int
    partitions: tuple[PartitionStatus, ...]


def describe_partition(partition: Partition, now_ms: int) -> PartitionStatus:
    """Take a snapshot of one partition; `now_ms` is Clock.now_ms."""
    log, state = partition.log, partition.isr_state
    leads = partition.is_leader
    in_sync, required = len(state.isr), partition.effective_min_isr() if leads else 0
    return PartitionStatus(
        topic=partition.topic,
        partition=partition.index,
        topic_id=partition.topic_id,
        leads=leads,
        leader_id=partition.leader_id,
        leader_epoch=partition.leader_epoch,
        partition_epoch=partition.partition_epoch,
        replicas=tuple(partition.replicas),
        isr=tuple(sorted(state.isr)),
        pending_isr=(
            tuple(sorted(state.proposed))
            if isinstance(state, PendingExpandIsr | PendingShrinkIsr)
            else None
        ),
        log_start_offset=log.log_start_offset,
        last_stable_offset=log.last_stable_offset,
        high_watermark=log.high_watermark,
        log_end_offset=log.log_end_offset,
        size_bytes=log.size_bytes,
        followers=tuple(_followers(partition, now_ms)),
        # Adding replicas do not count as missing (Partition.isUnderReplicated).
        under_replicated=leads
        and len(set(partition.replicas) - set(partition.adding_replicas)) > in_sync,
        under_min_isr=leads and in_sync < required,
        at_min_isr=leads and in_sync == required,
    )


def _followers(partition: Partition, now_ms: int) -> Iterable[FollowerStatus]:
    log_end, isr = partition.log.log_end_offset, partition.isr
    for replica in partition.remote_replicas.values():
        caught_up_ms = replica.last_caught_up_time_ms
        yield FollowerStatus(
            broker_id=replica.broker_id,
            broker_epoch=replica.broker_epoch,
            log_start_offset=replica.log_start_offset,
            log_end_offset=replica.log_end_offset,
            lag=log_end - replica.log_end_offset if replica.log_end_offset >= 0 else -1,
            caught_up_ms_ago=now_ms - caught_up_ms if caught_up_ms > NEVER_MS else -1,
            in_isr=replica.broker_id in isr,
        )


def describe(manager: ReplicaManager) -> ReplicaManagerStatus:
    """Take a snapshot of all partitions, sorted by topic and index."""
    now_ms = manager.clock.now_ms
    partitions = tuple(
        describe_partition(manager.by_key[key], now_ms) for key in sorted(manager.by_key)
    )
    counters = manager.isr_counters
    return ReplicaManagerStatus(
        partition_count=len(partitions),
        leader_count=sum(p.leads for p in partitions),
        offline_replica_count=len(manager.offline),
        offline_log_directory_count=sum(not d.is_online for d in manager.log_manager.directories),
        under_replicated_partitions=sum(p.under_replicated for p in partitions),
        under_min_isr_partition_count=sum(p.under_min_isr for p in partitions),
        at_min_isr_partition_count=sum(p.at_min_isr for p in partitions),
        isr_shrinks=counters.shrinks,
        isr_expands=counters.expands,
        failed_isr_updates=counters.failed_updates,
        waiting_produces=len(manager.produce_purgatory),
        waiting_fetches=len(manager.fetch_purgatory),
        partitions=partitions,
    )


def log_proposal(log_event: LogEvent, partition: Partition, now_ms: int) -> None:
    """Log the pending ISR change as an event: the old and new ISR, and the reason."""
    state, log = partition.isr_state, partition.log
    if isinstance(state, PendingExpandIsr):
        log_event(
            Event.ISR_EXPAND_PROPOSED,
            topic=partition.topic,
            partition=partition.index,
            previous_isr=sorted(state.isr),
            isr=sorted(state.proposed),
            broker_id=state.joining,
            replica_end_offset=partition.remote_replicas[state.joining].log_end_offset,
            log_end_offset=log.log_end_offset,
            high_watermark=log.high_watermark,
            leader_epoch=partition.leader_epoch,
        )
        return
    assert isinstance(state, PendingShrinkIsr), state
    late = []
    for broker_id in sorted(state.leaving):
        member = partition.remote_replicas.get(broker_id)
        if member is None:
            late.append(f"{broker_id} (not a replica any more)")
            continue
        caught_up_ms = member.last_caught_up_time_ms
        since = f"{now_ms - caught_up_ms} ms ago" if caught_up_ms > NEVER_MS else "never"
        late.append(f"{broker_id} (end offset {member.log_end_offset}, caught up {since})")
    log_event(
        Event.ISR_SHRINK_PROPOSED,
        topic=partition.topic,
        partition=partition.index,
        previous_isr=sorted(state.isr),
        isr=sorted(state.proposed),
        log_end_offset=log.log_end_offset,
        high_watermark=log.high_watermark,
        leader_epoch=partition.leader_epoch,
        detail=", ".join(late),
    )
