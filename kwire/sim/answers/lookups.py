"""Check answers to ListOffsets (I35): by the partition and its records, without indexes.

Earliest is the log start, latest the high watermark or the last stable offset; for a time, the first
record at or after it; of the largest timestamp, a record that has it. Nothing beyond what may be read.
"""

from __future__ import annotations

from typing import Any

from kwire.protocol.records import iter_batches, iter_records, parse_header
from kwire.replication.replica.lookup import (
    EARLIEST_TIMESTAMP,
    LATEST_TIMESTAMP,
    MAX_TIMESTAMP,
)
from kwire.sim.compaction import is_broken

TYPE_CHECKING = False
if TYPE_CHECKING:
    from kwire.broker import Broker
    from kwire.replication.core.types import TopicPartition
    from kwire.replication.replica.partition import Partition
    from kwire.sim.answers.checker import Answer, Answers

    Bounds = dict[TopicPartition, tuple[int, int]]
    """High watermark and last stable offset by partition."""


def check(answers: Answers, answer: Answer) -> None:
    """Compare each offset with the partition as it is in this step."""
    asked = {
        (topic.name, p.partition_index): (p.timestamp, p.current_leader_epoch)
        for topic in answer.request.topics
        for p in topic.partitions
    }
    for topic in answer.response.topics:
        for data in topic.partitions:
            answers.reach("LIST_OFFSETS", data.error_code)
            key = topic.name, data.partition_index
            partition = answer.broker.services.replica_manager.hosted(key)
            if data.error_code or partition is None:
                continue
            timestamp, epoch = asked[key]
            _check_known(answers, answer, partition, timestamp, epoch)
            if not _readable(answers, answer, partition):
                continue
            answers.invariants.counts["offsets looked up"] += 1
            wanted = _wanted(partition, timestamp, _level(answer))
            if timestamp >= 0 and wanted[0] >= answer.bounds.get(key, (0, 0))[_level(answer)]:
                wanted = [
                    wanted,
                    (-1, -1),
                ]  # a look-up in parts may have begun before that record came
            found = data.offset, data.timestamp
            right = found in wanted if isinstance(wanted, list) else found == wanted
            if not right and not _was_deleted(answers, answer, partition, data.offset):
                answers.invariants.violated(
                    "I35",
                    f"{partition} at {answer.node_id}: for timestamp {timestamp} the answer is {found}, "
                    f"it should be {wanted}",
                )


def bounds_of(broker: Broker) -> Bounds:
    """What can be read of each partition of a broker."""
    hosted = broker.services.replica_manager.partitions()
    return {p.key: (p.log.high_watermark, p.log.last_stable_offset) for p in hosted}


def _level(answer: Answer) -> int:
    return int(answer.request.isolation_level > 0)


def _check_known(
    answers: Answers, answer: Answer, partition: Partition, timestamp: int, epoch: int
) -> None:
    """The partition's leader answers, in the epoch that was named, and knows what is committed (KIP-207)."""
    if not partition.is_leader or epoch not in (-1, partition.leader_epoch):
        answers.invariants.violated(
            "I35", f"{partition} at {answer.node_id} answers a look-up in epoch {epoch}"
        )
    if timestamp == LATEST_TIMESTAMP and (
        partition.log.high_watermark < partition.leader_epoch_start_offset
    ):
        answers.invariants.violated(
            "I35", f"{partition} at {answer.node_id} cannot know yet what is committed"
        )


def _was_deleted(answers: Answers, answer: Answer, partition: Partition, offset: int) -> bool:
    """Whether the record was deleted in the step of the answer: a look-up in parts may end before that."""
    seen = answers.invariants.seen[answer.node_id].get((partition.topic, partition.index))
    if seen is None or seen.changed_us != answers.invariants.schedule.now_us:
        return False
    return seen.start_before <= offset < partition.log.log_start_offset


def _readable(answers: Answers, answer: Answer, partition: Partition) -> bool:
    """Whether the records of the partition can be compared: its disk is whole."""
    ghost = answers.invariants.ghost_of(partition)
    damaged = any(node_id == answer.node_id for node_id, _ in ghost.rotten)
    return not (ghost.leaving or damaged or is_broken(partition.log))


def _wanted(partition: Partition, timestamp: int, isolation_level: int) -> Any:
    """The right offset and timestamp, or a list of those that are right."""
    log = partition.log
    bound = log.last_stable_offset if isolation_level else log.high_watermark
    if timestamp == EARLIEST_TIMESTAMP:
        return log.log_start_offset, -1
    if timestamp == LATEST_TIMESTAMP:
        return bound, -1
    if timestamp == MAX_TIMESTAMP:
        # Of all that is stored, as in Kafka: of what is deleted, while its segment is there; and none while its
        # record may not be read yet, or if a batch with that time has been emptied by compaction.
        times = _stored_times(partition)
        largest = max((time for _, time in times), default=-1)
        last = [place for place in times if place[1] == largest]
        readable = [place for place in last if 0 <= place[0] < bound]
        return readable if last and len(readable) == len(last) else [*readable, (-1, -1)]
    times = _times(partition, bound)
    return next(((o, time) for o, time in times if time >= timestamp), (-1, -1))


def _stored_times(partition: Partition) -> list[tuple[int, int]]:
    """Offset and timestamp of each record in the log's segments; offset -1 for a batch without records."""
    times = []
    for segment in partition.log.segments:
        for batch in segment.batches(0):
            data = segment.read_batch(batch)
            records = iter_records(data, parse_header(data))
            times += [(record.offset, record.timestamp) for record in records]
            if not batch.count:
                times.append((-1, batch.max_timestamp))
    return times


def _times(partition: Partition, bound: int) -> list[tuple[int, int]]:
    """Offset and timestamp of each record that may be read."""
    log = partition.log
    times, offset = [], log.log_start_offset
    while offset < bound:
        records = bytes(log.read(offset, 1 << 22, bound).records)
        if not records:
            break
        for header in iter_batches(records):
            for record in iter_records(records, header):
                if log.log_start_offset <= record.offset < bound:
                    times.append((record.offset, record.timestamp))
            offset = header.next_offset
    return times
