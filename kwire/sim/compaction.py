"""Check compacted topics by the last committed value of each key, as batches change there.

Replaces the batch by batch mirror of `ghost.py` for topics whose name begins with
"compacted", and for those of coordinators: when
a leader's high watermark passes a record, it becomes the committed value of its key. The last value
of each key must be in the log of every leader elected later (I19), and in the end all replicas must
have exactly the last committed values. A record of a transaction counts once its marker is committed.

After an election that may lose data (`GhostPartition.reset_epoch`) only later commits count: a
replica may have removed a value in favour of a later one that is truncated now, in Kafka as here.
"""

from __future__ import annotations

from typing import Final

from kwire.protocol.records import (
    CONTROL_COMMIT,
    iter_batches,
    iter_records,
    parse_control_record,
)
from kwire.replication.core.memory_log_store import MemoryLogStore
from kwire.replication.core.metadata import INTERNAL_TOPICS
from kwire.sim.transactions.coordinators import check_replay, check_stable_end

TYPE_CHECKING = False
if TYPE_CHECKING:
    from kwire.replication.controller.state import PartitionState
    from kwire.replication.log.log import Log
    from kwire.sim.ghost import GhostPartition
    from kwire.sim.invariants import Invariants
    from kwire.sim.seen import Seen
    from kwire.sim.simulation import Simulation

PREFIX = "compacted"
_SHORT_MS: Final = 60_000
"""Of delete.retention.ms, as far as it passes in a run: then tombstones may be gone."""


def is_compacted(topic: str) -> bool:
    """Whether a topic is compacted: by its name, or because coordinators write it."""
    return topic.startswith(PREFIX) or topic in INTERNAL_TOPICS


Values = dict[bytes, tuple[int, bytes | None]]
"""Key: offset and value of its last record."""


def values_in(log: Log, start: int, end: int, undecided: dict[int, Values]) -> Values:
    """The last record of each key in [start, end), of transactions those that are committed there.

    `undecided`: the records of open transactions, by producer id: those before `start`, afterwards
    those before `end`."""
    values: Values = {}
    offset = max(start, log.log_start_offset)
    while offset < end:
        records = bytes(log.read(offset, 1 << 22, end).records)
        if not records:
            break
        for header in iter_batches(records):
            found = values
            if header.is_transactional and not header.is_control:
                found = undecided.setdefault(header.producer_id, {})
            for record in iter_records(records, header):
                if not start <= record.offset < end or record.key is None:
                    continue
                if header.is_control:
                    ended = undecided.pop(header.producer_id, {})
                    if parse_control_record(record).type == CONTROL_COMMIT:
                        merge(values, ended)
                else:
                    value = None if record.value is None else bytes(record.value)
                    found[bytes(record.key)] = record.offset, value
            offset = header.next_offset
    return values


def merge(values: Values, more: Values) -> None:
    """Add values; of each key the one with the higher offset counts."""
    for key, last in more.items():
        if key not in values or values[key][0] < last[0]:
            values[key] = last


def is_broken(log: Log) -> bool:
    """Whether the directory of a log fails."""
    store = log.store
    return isinstance(store, MemoryLogStore) and store.is_broken(log.directory)


def _end_on_disk(log: Log) -> int:
    """The log end after a restart of a truncated log; lower if compaction has emptied its tail."""
    if is_broken(log):
        return 0
    active = log.active
    return max((header.next_offset for header in active.batches(0)), default=active.base_offset)


class Compacted:
    """The committed values of one compacted partition."""

    def __init__(self) -> None:
        self.values: Values = {}
        self.undecided: dict[int, Values] = {}  # of open transactions, by producer id
        self.committed_end = 0
        self.since = 0  # what was committed below it may be gone, in part
        self.ends: dict[
            int, tuple[int, int]
        ] = {}  # broker: the end of its log, and after a restart
        self.forgotten_until = -1
        self.unknown = False  # something was committed on a disk that cannot be read
        self.has_missed = False  # that was so once: transactions may be unknown, too

    def changed(
        self, checker: Invariants, node_id: int, ghost: GhostPartition, old: Seen | None, new: Seen
    ) -> None:
        """Check and record a replica's change after a step."""
        before = self.ends.get(node_id, (0, 0))[0]
        end = new.log_end_offset
        if end != before:
            self.ends[node_id] = end, end if end > before else _end_on_disk(new.partition.log)
        if not new.is_leader or new.leader_epoch < ghost.reset_epoch:
            return
        log = new.partition.log
        if is_broken(log):
            self.unknown |= new.high_watermark > self.committed_end
            self.has_missed |= self.unknown
            return
        if old is None or not old.is_leader or old.leader_epoch != new.leader_epoch:
            if new.leader_epoch >= ghost.reset_epoch > self.forgotten_until or self.unknown:
                self.forgotten_until = max(ghost.reset_epoch, self.forgotten_until)
                self.unknown = False
                self.committed_end = min(self.committed_end, new.log_end_offset)
                self.values.clear()
                self.undecided.clear()
                ghost.sequences.clear()
                self.since = self.committed_end
            elif ghost.truth is not None and ghost.truth.leader_epoch == new.leader_epoch:
                self.check(checker, f"{ghost.name} on {node_id}, elected", log)
        if new.high_watermark > self.committed_end:
            start, self.committed_end = self.committed_end, new.high_watermark
            merge(self.values, values_in(log, start, self.committed_end, self.undecided))
            checker.transactions.follow(ghost, log, start, self.committed_end)
            check_replay(checker, node_id, ghost)
            check_stable_end(checker, node_id, ghost, log)
            checker.counts["compacted commits"] += 1

    def went_offline(self, node_id: int, end: int) -> None:
        """Its disk has failed, maybe in a step that had truncated it: what is left is unknown then."""
        if end < self.ends.get(node_id, (0, 0))[0]:
            self.ends[node_id] = end, 0

    def check(self, checker: Invariants, where: str, log: Log) -> None:
        """I19: the log below the committed end has exactly the last committed values."""
        start = max(self.since, log.log_start_offset)
        found = values_in(log, start, self.committed_end, {})
        wanted = {key: last for key, last in self.values.items() if last[0] >= start}
        if log.config.delete_retention_ms < _SHORT_MS:
            wanted = {k: last for k, last in wanted.items() if last[1] is not None or k in found}
        if found != wanted:
            wrong = {
                key: (wanted.get(key), found.get(key))
                for key in wanted.keys() | found.keys()
                if wanted.get(key) != found.get(key)
            }
            checker.violated("I19", f"{where}: of keys (committed, found) {wrong}")

    def restarted(self, node_id: int, end: int) -> bool:
        """Record the log end of a restarted broker; return whether it has lost its tail."""
        lost = end < self.ends.get(node_id, (0, 0))[1]
        self.ends[node_id] = end, end
        return lost


def verify_compacted(
    simulation: Simulation, topic: str, index: int, ghost: GhostPartition, truth: PartitionState
) -> None:
    """Check at the end of a run that every replica has the last committed values."""
    compacted = ghost.compacted
    assert compacted is not None
    if compacted.unknown:
        return
    for broker_id in truth.replicas:
        log = simulation.broker(broker_id).services.replica_manager.by_key[topic, index].log
        compacted.check(simulation.invariants, f"{ghost.name} on {broker_id}, in the end", log)
        # Batches that were emptied or thinned out leave offsets without records.
        start, end = log.log_start_offset, log.log_end_offset
        if start < end:
            held = sum(
                header.count for header in iter_batches(log.read(start, 1 << 24, end).records)
            )
            simulation.invariants.counts["records compacted away"] += max(end - start - held, 0)
