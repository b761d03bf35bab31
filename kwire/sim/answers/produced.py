"""Check answers to Produce: what was written is what was sent (I31), acks=all only when committed (I23)."""

from __future__ import annotations

from typing import Any

from kwire.protocol.records import iter_batches
from kwire.sim.ghost import Acked

TYPE_CHECKING = False
if TYPE_CHECKING:
    from kwire.replication.replica.partition import Partition
    from kwire.sim.answers.checker import Answer, Answers
    from kwire.sim.ghost import Entry, GhostPartition
    from kwire.sim.invariants import Invariants


def check(answers: Answers, answer: Answer) -> None:
    """Check the answer for each partition; the acknowledged batches must be found in the end (I24)."""
    sent = {
        (topic.name, data.index): data.records
        for topic in answer.request.topic_data
        for data in topic.partition_data
    }
    for topic in answer.response.responses:
        for data in topic.partition_responses:
            answers.reach("PRODUCE", data.error_code)
            records = sent.pop((topic.name, data.index))
            if not data.error_code and records in answers.broken_batches:
                answers.invariants.violated(
                    "I38", f"{answer.node_id} took a broken batch for {topic.name}-{data.index}"
                )
            partition = answer.broker.services.replica_manager.hosted((topic.name, data.index))
            if data.error_code or data.base_offset < 0:
                if partition is not None and answer.request.transactional_id is not None:
                    ghost = answers.invariants.ghost_of(partition)
                    unfenced = answers.invariants.transactions.unfenced
                    unfenced.refused_batch(answer, ghost, data.error_code, records)
                continue
            if partition is not None:
                _check_partition(answers, answer, partition, data.base_offset, records)
    if sent:
        answers.invariants.violated("I23", f"{answer.node_id} says nothing about {list(sent)}")


def _check_partition(
    answers: Answers, answer: Answer, partition: Partition, base_offset: int, records: Any
) -> None:
    invariants, node_id = answers.invariants, answer.node_id
    all_replicas = answer.request.acks == -1
    high_watermark = partition.log.high_watermark
    ghost = answers.invariants.ghost_of(partition)
    if ghost.leaving:
        return
    if ghost.compacted is not None:
        end = base_offset + sum(header.count for header in iter_batches(records))
        if all_replicas and high_watermark < end:
            invariants.violated(
                "I23", f"{ghost.name}: {node_id} acknowledges up to {end} too early"
            )
        return
    log, was_deleted = ghost.logs[node_id], partition.topic in invariants.gone_names
    entry = log.covering(base_offset)
    if entry is None:
        if base_offset >= log.start and not was_deleted:
            invariants.violated(
                "I31",
                f"{ghost.name}: {node_id} says that it wrote {base_offset}, its log ends at {log.end}",
            )
        return
    if _is_other(invariants, ghost, entry, base_offset, records):
        invariants.violated(
            "I31", f"{ghost.name}: {node_id} says {base_offset} is what was sent; it is {entry}"
        )
    if not all_replicas:
        return
    if high_watermark < entry.next:
        invariants.violated(
            "I23",
            f"{ghost.name}: {node_id} acknowledges {entry} to acks=all, its high watermark is "
            f"{high_watermark}",
        )
    if partition.leader_epoch >= ghost.reset_epoch:
        answers.acked += 1
        ghost.acked.append(Acked(entry, partition.effective_min_isr(), invariants.schedule.now_us))


def _is_other(
    checker: Invariants, ghost: GhostPartition, entry: Entry, base_offset: int, records: Any
) -> bool:
    """Whether a batch is not what was sent. An epoch that was lost with its record may be given out again."""
    if entry.is_transactional and checker.transactions.excepts(ghost):
        return False
    return entry.base != base_offset or entry.body != bytes(records[21:])
