"""Rules on leaders that no answer and no other replica shows in time (I48).

The high watermark stands still under min.insync.replicas (KIP-966); it is not below what all replicas
have, after any step; one ISR change is pending at most. A changed min.insync.replicas counts with the next
ISR check, half of replica.lag.time.max.ms later.
"""

from __future__ import annotations

from kwire.replication.core.types import TopicPartition
from kwire.sim.schedule import MS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from kwire.broker import Broker
    from kwire.replication.replica.partition import Partition
    from kwire.sim.invariants import Invariants
    from kwire.sim.seen import Seen


def check_change(checker: Invariants, partition: Partition, old: Seen, new: Seen) -> None:
    """Compare two states of a leader of one epoch. I48."""
    if not (old.is_leader and new.is_leader and old.leader_epoch == new.leader_epoch):
        return
    needed = 0 if partition._host.hw_ignores_min_isr else partition.effective_min_isr()
    if new.high_watermark > old.high_watermark and (
        max(len(old.isr_state.isr), len(new.isr_state.isr)) < needed
    ):
        checker.violated(
            "I48",
            f"{partition}: the high watermark went from {old.high_watermark} to {new.high_watermark}, in sync is"
            f" {new.isr_state}, needed are {needed}",
        )
    before, after = old.isr_state, new.isr_state
    both = before is not after and before.in_flight and after.in_flight
    if both and old.partition_epoch == new.partition_epoch:
        checker.violated("I48", f"{partition} proposes {after}, {before} is pending")


Late = dict[tuple[int, TopicPartition], tuple[object, int]]
"""Of a leader: who counts for its high watermark, and since when that is late; -1: it is not."""


def check_progress(checker: Invariants, late: Late, node_id: int, broker: Broker) -> None:
    """Look at the high watermark of each leader after a step. I48."""
    due_ms = broker.timers.next_deadline_ms()
    if due_ms is not None and due_ms < broker.clock.now_ms:
        return  # the node was paused: its ISR check has yet to run
    for key, partition in broker.services.replica_manager.by_key.items():
        log = partition.log
        if not partition.is_leader:
            continue
        place = node_id, key
        needed = partition.effective_min_isr()
        if len(partition.isr_state.isr) < needed:
            late.pop(place, None)
            continue
        # Who is not in sync, but alive, counts while it is behind for a short time only.
        is_alive, members = broker.services.metadata.is_alive, partition.isr_state.maximal_isr
        ends = {
            replica.broker_id: replica.log_end_offset
            for replica in partition.remote_replicas.values()
            if replica.broker_id in members or is_alive(replica.broker_id)
        }
        who = needed, frozenset(ends)
        lowest = min(ends.values(), default=log.log_end_offset)
        if min(lowest, log.log_end_offset) <= log.high_watermark:
            late[place] = who, -1
            continue
        before, since_us = late.get(place, (None, -1))
        now_us = checker.schedule.now_us
        if since_us < 0 and before != who:
            since_us = now_us  # not by an append or a fetch
            late[place] = who, since_us
        patience_ms = broker.config.replica_lag_time_max_ms // 2 + 20
        if since_us < 0 or now_us > since_us + patience_ms * MS:
            checker.violated(
                "I48",
                f"{partition} at {node_id} has the high watermark {log.high_watermark}, {sorted(ends)} have {lowest}",
            )
