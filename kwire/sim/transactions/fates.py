"""What has become of transactions, by the ghost's logs: I22, I41 to I44.

I41: once faults have stopped and time-outs have passed, a transaction has one outcome in all its partitions,
the one that its producer was told. I42: the last stable offset never passes an undecided transaction, and
in the end it is the log end. I43: a read_committed reader sees each committed record, and no other
(`check_visible`). I44: after the answer to an InitProducerId nothing of an earlier epoch of that
transactional id is committed, and of each epoch that only one transaction has (version 2) one marker ends it.

Excepted is what a permitted loss of records, of a partition or of `__transaction_state`, may leave undone,
and topics that are deleted.
"""

from __future__ import annotations

from kwire.protocol.records import (
    CONTROL_COMMIT,
    check_crc,
    iter_batches,
    iter_records,
    parse_control_record,
)
from kwire.replication.core.metadata import (
    GROUP_METADATA_TOPIC,
    INTERNAL_TOPICS,
    TRANSACTION_STATE_TOPIC,
)
from kwire.sim.transactions.offsets import verify_stretches
from kwire.sim.transactions.unfenced import Unfenced

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from kwire.replication.log.log import Log
    from kwire.sim.answers.checker import Answer, Answers
    from kwire.sim.ghost import Entry, GhostKey, GhostLog, GhostPartition
    from kwire.sim.invariants import Invariants
    from kwire.sim.seen import Seen
    from kwire.sim.simulation import Simulation

Transaction = tuple[bytes, int]
"""The producer's name, and which of its transactions."""
_VALUE = b"txn#"
_PAST_ALL_EPOCHS = 1 << 15


def value_of(name: str, transaction: int, record: int) -> bytes:
    """The value of a record, which names its transaction."""
    return b"%s%s#%d#%d" % (_VALUE, name.encode(), transaction, record)


def _transaction_of(entry: Entry) -> Transaction | None:
    """The transaction that a batch's first record names."""
    if not entry.is_transactional or entry.is_control:
        return None
    _, found, value = entry.body.partition(_VALUE)
    if not found:
        return None
    name, number, _ = value.split(b"#", 2)
    return name, int(number)


class Fates:
    """The transactions of one partition's committed log. `outcomes`: of batches, by epoch and offset;
    `committed`: batches in the order of their markers."""

    __slots__ = ("committed", "markers", "open", "outcomes")

    def __init__(self) -> None:
        self.open: dict[int, list[Entry]] = {}
        self.outcomes: dict[tuple[int, int], bool] = {}
        self.markers: list[tuple[int, int]] = []  # those that ended something
        self.committed: list[Entry] = []

    def add(self, entry: Entry) -> list[Entry]:
        """Add the next batch; of a marker, return the batches that it decides."""
        if not entry.is_control:
            self.open.setdefault(entry.producer[0], []).append(entry)
            return []
        batches = self.open.pop(entry.producer[0], [])
        if batches:
            self.markers.append(entry.producer)
        for decided in batches:
            self.outcomes[decided.epoch, decided.base] = entry.commits
        if entry.commits:
            self.committed += batches
        return batches


class Transactions:
    """What is known of all transactions. `fences`: the first epoch that counts, by producer id."""

    def __init__(self, invariants: Invariants) -> None:
        self.invariants = invariants
        self.unfenced = Unfenced(invariants)
        self.fences: dict[int, int] = {}
        self.ids: dict[str, set[int]] = {}  # the producer ids of a transactional id
        self.told: dict[Transaction, bool] = {}
        self.bumping: set[str] = set()  # transactional ids with an epoch for each transaction
        self.decided: dict[tuple[GhostKey, Transaction], bool] = {}  # by partition
        self.owed: dict[GhostKey, set[Transaction]] = {}  # whose offsets were acknowledged
        self.ahead: set[str] = (
            set()
        )  # partitions of transactions whose time-out is far in the future

    def initialized(self, transactional_id: str, producer_id: int, epoch: int) -> None:
        """Record an answer to InitProducerId: it fences all epochs before."""
        ids = self.ids.setdefault(transactional_id, set())
        for earlier in ids - {producer_id}:
            self.fences[earlier] = _PAST_ALL_EPOCHS
        ids.add(producer_id)
        self.fences[producer_id] = max(epoch, self.fences.get(producer_id, 0))

    def committed(self, ghost: GhostPartition, entry: Entry) -> None:
        """I44 of a batch that is committed now."""
        producer_id, epoch = entry.producer
        is_late = epoch < self.fences.get(producer_id, 0)
        if is_late and not entry.is_control and not self.excepts(ghost):
            self.invariants.violated(
                "I44",
                f"{ghost.name}: {entry} of producer {entry.producer} is committed, the fence is "
                f"{self.fences[producer_id]}",
            )
        for batch in ghost.fates.add(entry):
            transaction = _transaction_of(batch)
            if transaction is not None:
                self.decided[ghost.key, transaction] = entry.commits
        if not entry.is_control:
            return
        self.invariants.counts["markers committed"] += 1
        bumps = any(producer_id in self.ids.get(name, ()) for name in self.bumping)
        if bumps and ghost.fates.markers.count(entry.producer) > 1 and not self.excepts(ghost):
            self.invariants.violated(
                "I44", f"{ghost.name}: {entry} is another marker that ends {entry.producer}"
            )

    def follow(self, ghost: GhostPartition, log: Log, start: int, end: int) -> None:
        """Add what is committed now of a compacted partition, in which nothing else is mirrored."""
        from kwire.sim.ghost import read_entries

        for entry in read_entries(log, start, end):
            if entry.base < start:
                continue
            self._check_committed_sequence(ghost, entry)
            if entry.is_transactional:
                ghost.transactional.append(entry)
                self.committed(ghost, entry)

    def _check_committed_sequence(self, ghost: GhostPartition, entry: Entry) -> None:
        """I22 of a compacted partition: what is committed now of a producer comes after the last one."""
        producer_id, epoch = entry.producer
        if producer_id < 0 or entry.first_sequence < 0:
            return
        last = ghost.sequences.get(producer_id)
        # Coordinators write each batch of a transaction with the same sequence.
        is_own = ghost.name.rpartition("-")[0] in INTERNAL_TOPICS
        if last is not None and (epoch, entry.first_sequence) <= last and not is_own:
            self.invariants.violated(
                "I22",
                f"{ghost.name}: {entry} of producer {entry.producer} has sequence {entry.first_sequence} after "
                f"(epoch, sequence) {last}",
            )
        ghost.sequences[producer_id] = epoch, entry.last_sequence

    def excepts(self, ghost: GhostPartition) -> bool:
        """Whether a permitted loss or a deletion may leave a partition's transactions undone."""
        return (
            ghost.reset_epoch >= 0
            or ghost.leaving
            or ghost.name in self.ahead
            or (ghost.compacted is not None and ghost.compacted.has_missed)
            or ghost.name.rpartition("-")[0] in self.invariants.gone_names
            or any(
                other.reset_epoch >= 0
                for other in self.invariants.partitions.values()
                if other.name.startswith(TRANSACTION_STATE_TOPIC)
            )
        )


def check_stable(
    checker: Invariants, node_id: int, ghost: GhostPartition, log: GhostLog, new: Seen
) -> None:
    """I42: the last stable offset is not above an undecided transaction."""
    limit = max(log.first_undecided(new.high_watermark), new.log_start_offset)
    stable = new.partition.log.last_stable_offset
    if stable > limit:
        checker.violated(
            "I42",
            f"{ghost.name} on {node_id}: the last stable offset is {stable}, a transaction is undecided "
            f"from {limit} on",
        )


def check_sequence(checker: Invariants, where: str, log: GhostLog, entry: Entry) -> None:
    """I22: a producer's epochs do not fall, nor sequences within an epoch; markers have none."""
    for earlier in reversed(log.producers.get(entry.producer[0], ())):
        if earlier.producer[1] > entry.producer[1] or (
            earlier.producer[1] == entry.producer[1]
            and earlier.last_sequence >= entry.first_sequence
            and not (entry.is_control or earlier.is_control)
        ):
            checker.violated(
                "I22",
                f"{where}: producer {entry.producer} sequence {entry.first_sequence} at {entry} "
                f"after {earlier.last_sequence} at {earlier}",
            )
        if not earlier.is_control:
            break


def check_visible(answers: Answers, answer: Answer, ghost: GhostPartition, data: Any) -> None:
    """I43: what a read_committed reader makes of an answer is what was committed."""
    if answer.request.isolation_level != 1:
        return
    aborted = sorted((t.first_offset, t.producer_id) for t in data.aborted_transactions or ())
    hidden: set[int] = set()
    for header in iter_batches(data.records):
        if ghost.rotten and not check_crc(data.records, header):
            return  # the reader fails here, and sees nothing behind it
        while aborted and aborted[0][0] <= header.last_offset:
            hidden.add(aborted.pop(0)[1])
        if header.is_control:
            for record in iter_records(data.records, header):  # one, or none once compacted
                if parse_control_record(record).type != CONTROL_COMMIT:
                    hidden.discard(header.producer_id)
            continue
        if not header.is_transactional:
            continue
        is_visible = header.producer_id not in hidden
        place = header.partition_leader_epoch, header.base_offset
        fate = ghost.fates.outcomes.get(place)
        if fate is None and answer.node_id in ghost.logs:  # its marker is not stable yet
            fate = ghost.logs[answer.node_id].fate(ghost.written[place][0])
        answers.invariants.counts["transactional batches read"] += 1
        if fate is not is_visible and not answers.invariants.transactions.excepts(ghost):
            names = {None: "undecided", True: "committed", False: "aborted"}
            answers.invariants.violated(
                "I43",
                f"{ghost.name}: {answer.node_id} {'shows' if is_visible else 'hides'} {place} of "
                f"producer {header.producer_id}, which is {names[fate]}",
            )


def verify_transactions(simulation: Simulation) -> None:
    """I41: at the end of a run every transaction has one outcome."""
    checker = simulation.invariants
    found: dict[Transaction, dict[str, bool | None]] = {}
    for ghost in checker.partitions.values():
        if checker.transactions.excepts(ghost):
            continue
        for transaction, place, fate in _decided_in(checker, ghost):
            found.setdefault(transaction, {})[place] = fate
        if ghost.name.startswith(GROUP_METADATA_TOPIC):
            verify_stretches(checker, ghost.fates.committed)
    for transaction, fates in found.items():
        outcomes = {*fates.values()}
        if transaction in checker.transactions.told:
            outcomes.add(checker.transactions.told[transaction])
        if len(outcomes) > 1 or None in outcomes:
            told = checker.transactions.told.get(transaction)
            checker.violated("I41", f"{transaction}: its producer was told {told}, it has {fates}")
        checker.counts[f"transactions {'committed' if outcomes.pop() else 'aborted'}"] += 1
        checker.counts["transactions of several partitions"] += len(fates) > 1


def _decided_in(
    checker: Invariants, ghost: GhostPartition
) -> Iterator[tuple[Transaction, str, bool | None]]:
    """Each batch of a transaction in a partition: where it is, and its outcome."""
    entries = ghost.committed.entries if ghost.compacted is None else ghost.transactional
    for entry in entries:
        transaction = _transaction_of(entry)
        if transaction is not None and entry.base >= ghost.deleted_until:
            yield (
                transaction,
                f"{ghost.name} {entry}",
                ghost.fates.outcomes.get((entry.epoch, entry.base)),
            )
    for transaction in checker.transactions.owed.get(ghost.key, ()):
        fate = checker.transactions.decided.get((ghost.key, transaction))
        yield transaction, f"offsets in {ghost.name}", fate
