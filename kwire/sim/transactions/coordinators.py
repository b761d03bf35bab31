"""The state of coordinators: that of transactions is what their log says (I47), and in the end nothing is open.

The live state is compared with the last committed record of each transactional id, after every step that commits
one, and so after a coordinator has moved, too. Excepted are changes whose append has failed after it was written,
by a time-out or min.insync.replicas: they are given up, in Kafka as here, and count after a replay.
"""

from __future__ import annotations

from dataclasses import replace

from kwire.protocol.records import NO_PRODUCER_EPOCH
from kwire.replication.core.metadata import TRANSACTION_STATE_TOPIC
from kwire.shards.context import ShardState
from kwire.transactions.metadata import EMPTY, IDLE
from kwire.transactions.records import decode_record, values_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from kwire.broker import Broker
    from kwire.replication.log.log import Log
    from kwire.sim.answers.offsets import Offsets
    from kwire.sim.ghost import GhostPartition
    from kwire.sim.invariants import Invariants
    from kwire.transactions.metadata import TransactionMetadata, TransactionValues


def check_replay(checker: Invariants, node_id: int, ghost: GhostPartition) -> None:
    """I47 at the leader of a partition."""
    topic, _, number = ghost.name.rpartition("-")
    services, index = checker.brokers[node_id].services, int(number)
    coordinator = services.transactions_if_used
    if topic != TRANSACTION_STATE_TOPIC or coordinator is None or ghost.compacted is None:
        return
    context = coordinator.runtime.contexts.get(index)
    log = services.replica_manager.by_key[topic, index].log
    if context is None or context.state is not ShardState.ACTIVE:
        return
    ghost.fails_late |= log.config.min_insync_replicas > 1
    if ghost.fails_late or checker.transactions.excepts(ghost):
        return
    live = dict(context.shard.transactions)
    for key, (_, value) in ghost.compacted.values.items():
        record = decode_record(key, value)
        assert record is not None
        metadata = live.pop(record.transactional_id, None)
        if record.value is None:
            if metadata is not None and metadata.values.producer_epoch != NO_PRODUCER_EPOCH:
                _differ(checker, node_id, ghost, metadata, "nothing")
            continue
        wanted = values_of(record.value)
        if metadata is None:
            checker.violated("I47", f"{ghost.name} on {node_id} does not have {wanted}")
        if metadata.is_pending or not _is_of(metadata.values, wanted):
            continue
        found = replace(metadata.values, last_producer_epoch=wanted.last_producer_epoch)
        if not record.value_version:  # of Kafka 3.9: without the producer ids before and after
            found = replace(found, previous_producer_id=-1, next_producer_id=-1)
            if found.state is EMPTY:  # it knows longer than its log when the last transaction began
                found = replace(found, start_ms=wanted.start_ms)
        if metadata.has_failed_epoch_fence:
            # A fence counts before its record is committed (fence_epoch).
            found = replace(found, producer_epoch=wanted.producer_epoch)
        if found != wanted:
            _differ(checker, node_id, ghost, metadata, str(wanted))
        checker.counts["transactional ids compared"] += 1


def _is_of(values: TransactionValues, record: TransactionValues) -> bool:
    """Whether the state is that of the record: not if its append had timed out before it was committed."""
    known = values.producer_epoch != NO_PRODUCER_EPOCH
    same = (values.state, values.last_update_ms) == (record.state, record.last_update_ms)
    return known and same


def _differ(
    checker: Invariants,
    node_id: int,
    ghost: GhostPartition,
    metadata: TransactionMetadata,
    wanted: str,
) -> None:
    checker.violated("I47", f"{ghost.name} on {node_id} has {metadata}, in the log is {wanted}")


def check_stable_end(checker: Invariants, node_id: int, ghost: GhostPartition, log: Log) -> None:
    """I42 at the leader of a compacted partition, of which `check_stable` has no mirror."""
    firsts = [batches[0] for batches in ghost.fates.open.values()]
    # What a power cut has taken from all replicas is open in no log.
    begins = [each.base for each in firsts if each.base < log.end_offset_for_epoch(each.epoch)[1]]
    if begins and log.last_stable_offset > max(min(begins), log.log_start_offset):
        checker.violated(
            "I42",
            f"{ghost.name} on {node_id}: the last stable offset is {log.last_stable_offset}, a transaction "
            f"is open from {min(begins)} on",
        )


def unfinished(checker: Invariants, broker: Broker, offsets: Offsets) -> str | None:
    """A transaction that a coordinator of the broker has not ended, or None."""
    excepts = checker.transactions.excepts
    coordinator = broker.services.transactions_if_used
    for context in () if coordinator is None else coordinator.runtime.contexts.values():
        if excepts(checker.ghost_of(context.partition)):
            continue  # the newer epoch of a partition may keep its markers from being written
        for metadata in context.shard.transactions.values():
            if (
                metadata.values.start_ms > broker.clock.wall_ms
            ):  # by a clock that has been set back since
                checker.transactions.ahead.update(f"{t}-{p}" for t, p in metadata.values.partitions)
            elif metadata.state not in IDLE:
                return f"has {metadata}"
    for groups in broker.services.group_coordinator.runtime.contexts.values():
        for group in offsets.groups:
            in_transaction = groups.shard.offsets.in_transaction(group)
            if in_transaction and not excepts(checker.ghost_of(groups.partition)):
                return f"has pending offsets of {group}"
    return None
