"""Check offsets that are committed in transactions (I45).

An offset of a transaction is answered once its commit is committed, and never before, nor after an abort.
Who asks for stable offsets (KIP-447) gets UNSTABLE_OFFSET_COMMIT while a transaction that has written one
is open, nobody else does; so after a transaction with an acknowledged offset has ended, its reader gets that
one or a later one. Answered offsets do not go back.

Excepted, as for I39: a coordinator that does not know yet that it is deposed, what a permitted loss takes with
it, and topics that were deleted.
"""

from __future__ import annotations

from kwire.protocol.errors import ErrorCode
from kwire.protocol.records import iter_batches
from kwire.sim.transactions.offsets import named_by

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from kwire.replication.log.log import Log
    from kwire.sim.answers.checker import Answer, Answers
    from kwire.sim.ghost import GhostPartition
    from kwire.sim.transactions.fates import Transaction
    from kwire.sim.transactions.offsets import Place


class Written:
    """What is known of one committed offset. Numbers are those of `Answers.events`."""

    __slots__ = ("acked", "told")

    def __init__(self) -> None:
        self.acked: dict[Transaction, tuple[int, int]] = {}  # when, and the offset
        self.told: list[tuple[int, int]] = []  # when an offset was answered, and it


class Offsets:
    """The offsets of transactions. `groups`: which commit none otherwise."""

    def __init__(self) -> None:
        self.groups: set[str] = set()
        self.places: dict[Place, Written] = {}

    def of(self, place: Place) -> Written:
        return self.places.setdefault(place, Written())

    def forget(self) -> None:
        """After a permitted loss nothing is known any more."""
        self.places.clear()


def check_written(answers: Answers, answer: Answer, ghost: GhostPartition | None) -> None:
    """Remember what a TxnOffsetCommit has written."""
    for topic, answered in zip(answer.request.topics, answer.response.topics, strict=True):
        for p, outcome in zip(topic.partitions, answered.partitions, strict=True):
            answers.reach("TXN_OFFSET_COMMIT", outcome.error_code)
            named = named_by(p.committed_metadata.encode())
            if outcome.error_code or ghost is None or named is None:
                continue
            transaction, place, _, until = named
            answers.invariants.counts["offsets written in transactions"] += 1
            answers.offsets.of(place).acked.setdefault(transaction, (answers.events, until))
            answers.invariants.transactions.owed.setdefault(ghost.key, set()).add(transaction)


def check_read(
    answers: Answers, answer: Answer, ghost: GhostPartition, place: Place, data: Any
) -> None:
    """I45 of an OffsetFetch answer for one partition."""
    checker, transactions = answers.invariants, answers.invariants.transactions
    answers.reach("OFFSET_FETCH", data.error_code)
    if transactions.excepts(ghost):
        return
    where = f"{answer.node_id} answers {answer.client.name} for {place}"
    is_stable = answer.request.require_stable
    written = answers.offsets.of(place)
    if data.error_code == ErrorCode.UNSTABLE_OFFSET_COMMIT:
        checker.counts["unstable offsets"] += 1
        log = answer.broker.services.replica_manager.by_key[_key(ghost)].log
        if not is_stable or place not in _open_in(log):
            checker.violated("I45", f"{where}: unstable, though nothing of it is open")
    if data.error_code:
        return
    offset = data.committed_offset
    named = named_by(data.metadata.encode()) if offset >= 0 else None
    if named is not None and not transactions.decided.get((ghost.key, named[0])):
        checker.violated("I45", f"{where}: {data.metadata!r}, which is not committed")
    least = max((known for told, known in written.told if told < answer.event), default=-1)
    if is_stable:
        checker.counts["stable offsets"] += 1
        for transaction, (acked, until) in written.acked.items():
            if acked >= answer.event:
                continue
            fate = transactions.decided.get((ghost.key, transaction))
            if fate is None:
                checker.violated("I45", f"{where}: {offset}, while {transaction} is open")
            elif fate:
                least = max(least, until)
    if offset < least:
        checker.violated("I45", f"{where}: {offset}, {least} was committed before")
    written.told.append((answers.events, offset))


def _key(ghost: GhostPartition) -> tuple[str, int]:
    topic, _, index = ghost.name.rpartition("-")
    return topic, int(index)


def _open_in(log: Log) -> set[Place]:
    """The places for which a transaction has an offset and, up to the high watermark, no end: what reads see."""
    found: dict[int, set[Place]] = {}
    offset = log.log_start_offset
    while offset < log.high_watermark:
        records = bytes(log.read(offset, 1 << 22, log.high_watermark).records)
        if not records:
            break
        for header in iter_batches(records):
            offset = header.next_offset
            if header.is_control:
                found.pop(header.producer_id, None)
                continue
            named = named_by(records[header.position : header.position + header.size])
            if header.is_transactional and named is not None:
                found.setdefault(header.producer_id, set()).add(named[1])
    return {place for places in found.values() for place in places}
