"""Rules on logs on their disks (I49): what a start trusts is true.

Recovery points are not above the log end, and everything below them is flushed. The indexes and
timestamps of segments are those of their batches. Snapshots of producers are not above the log end. A kill
changes nothing of a log: its producers, its leader epochs and its transactions are the same after the restart.
"""

from __future__ import annotations

from itertools import pairwise

from kwire.replication.core.memory_log_store import MemoryLogStore

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from kwire.replication.log.log import Log
    from kwire.replication.log.producer_state import ProducerStateEntry
    from kwire.replication.log.segment import LogSegment
    from kwire.sim.invariants import Invariants


def check_recovery_points(
    checker: Invariants, known: dict[Log, int], node_id: int, logs: Iterable[Log]
) -> None:
    """I49, after every step: the recovery point of each log; `known`: those seen before."""
    for log in logs:
        point = log.recovery_point
        if point > log.log_end_offset:
            checker.violated(
                "I49",
                f"{log.name} on {node_id}: recovery point {point}, log end {log.log_end_offset}",
            )
        before = known.get(log)
        if before == point:
            continue
        known[log] = point
        if before is None:
            continue
        if point > before:
            _check_flushed(checker, node_id, log, before)


def _check_flushed(checker: Invariants, node_id: int, log: Log, before: int) -> None:
    store = log.store
    assert isinstance(store, MemoryLogStore)
    for number, segment in enumerate(log.segments):
        end = (
            log.segments[number + 1].base_offset
            if number + 1 < len(log.segments)
            else log.log_end_offset
        )
        if before < end <= log.recovery_point and store.flushed_size(segment.path) < segment.size:
            checker.violated(
                "I49",
                f"{log.name} on {node_id}: recovery point {log.recovery_point}, of the {segment.size} bytes of"
                f" {segment.path} are flushed {store.flushed_size(segment.path)}",
            )


def check_files(checker: Invariants, node_id: int, log: Log) -> None:
    """I49: indexes, timestamps and snapshots of one log."""
    where = f"{log.name} on {node_id}"
    for segment in log.segments:
        wrong = _wrong_segment(segment)
        if wrong is not None:
            checker.violated("I49", f"{where}: segment {segment.base_offset}: {wrong}")
    snapshots = log.producer_state._snapshots()
    if snapshots and snapshots[-1] > log.log_end_offset:
        checker.violated("I49", f"{where}: snapshots {snapshots}, log end {log.log_end_offset}")


def check_snapshots(checker: Invariants, node_id: int, log: Log) -> None:
    """I49, after a start: each snapshot is that of a segment, but the last one of a clean stop."""
    bases = [segment.base_offset for segment in log.segments]
    stray = [offset for offset in log.producer_state._snapshots()[:-1] if offset not in bases]
    if stray:
        where = f"{log.name} on {node_id}"
        checker.violated("I49", f"{where}: snapshots {stray} are of no segment, {bases}")


def _wrong_segment(segment: LogSegment) -> str | None:
    batches = list(segment.batches(0))
    largest, holder = -1, segment.base_offset
    for batch in batches:
        if batch.max_timestamp > largest:
            largest, holder = batch.max_timestamp, batch.last_offset
    found = segment.max_timestamp, segment.offset_of_max_timestamp
    # Of a segment that was cut or loaded it is that of the last index entry, in Kafka, too.
    indexed = segment.time_index.last() or (-1, 0)
    if not indexed[0] <= found[0] <= largest or (found[0] == largest >= 0 and found[1] != holder):
        return f"largest timestamp and its offset {found}, by the batches {(largest, holder)}"
    first = batches[0].max_timestamp if batches else None
    if segment.first_timestamp != first:
        return f"first timestamp {segment.first_timestamp}, by the batches {first}"
    places = {batch.position: batch.last_offset - segment.base_offset for batch in batches}
    index = segment.offset_index
    for number in range(index.count):
        offset, position = index.entry(number)
        if places.get(position) != offset:
            return f"index entry {number} is offset {offset} at {position}: {places.get(position)}"
    for batch in batches:
        found_batch = segment.find_batch(batch.base_offset)
        if found_batch is None or found_batch.position != batch.position:
            return (
                f"offset {batch.base_offset} is found at {found_batch}, it is at {batch.position}"
            )
    times = [segment.time_index.entry(number) for number in range(segment.time_index.count)]
    if any(one[0] >= other[0] for one, other in pairwise(times)):
        return f"times in the index do not increase: {times}"
    return None


def check_reloaded(checker: Invariants, node_id: int, old: Log, new: Log) -> None:
    """I49: what a killed broker knew of a log, and what it knows after the restart."""
    if old.log_end_offset != new.log_end_offset:
        return  # I25
    where = f"{new.name} on {node_id}"
    start, end = max(old.log_start_offset, new.log_start_offset), new.log_end_offset
    epochs = [
        [(e, o) for e, o in log.leader_epochs.entries if start < o < end] for log in (old, new)
    ]
    if epochs[0] != epochs[1]:
        checker.violated("I49", f"{where} had the epochs {epochs[0]}, and after a kill {epochs[1]}")
    if old.config.compact or new.config.compact:  # the configuration may come after the start
        return  # compaction may have removed what is rebuilt
    known = old.producer_state.producers
    for producer_id, entry in new.producer_state.producers.items():
        before = known.get(producer_id)
        if before is None and entry.last_data_offset < start:
            continue  # a recovery reads the first segment whole, also below the log start, as Kafka's does
        both = [each for each in (before, entry) if each is not None]
        # Where its first batches are gone, the transaction begins for a recovery with those that are left.
        opened = [each.current_txn_first_offset for each in both]
        begins = all(offset is None or offset >= start for offset in opened)
        was, now = (each and _shown(each, start, begins=begins) for each in (before, entry))
        if was != now:
            checker.violated(
                "I49", f"{where}: producer {producer_id} was {was}, and is {now} after a kill"
            )
    for producer_id, entry in known.items():
        is_lost = entry.last_data_offset >= start and not _is_expired(new, entry)
        if is_lost and producer_id not in new.producer_state.producers:
            checker.violated("I49", f"{where}: producer {producer_id} is unknown after a kill")


def _is_expired(log: Log, entry: ProducerStateEntry) -> bool:
    """Whether a snapshot's entry is not loaded: the broker's clock and the client's that wrote the batch may
    differ by more than producer.id.expiration.ms (ProducerStateManager.loadFromSnapshot)."""
    age_ms = log.clock.wall_ms - entry.last_timestamp
    is_old = age_ms >= log.producer_state.producer_id_expiration_ms
    return is_old and entry.current_txn_first_offset is None


def _shown(entry: ProducerStateEntry, start: int, *, begins: bool) -> tuple[int | None, ...]:
    """What a producer's entry shows by records from `start` on, and if `begins` where its transaction does."""
    last = entry.last_data_offset
    if last < start:
        return (entry.producer_epoch,)
    begin = entry.current_txn_first_offset if begins else None
    return entry.producer_epoch, entry.last_sequence, last, entry.last_timestamp, begin
