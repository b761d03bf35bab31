"""What must be true of the copies that consume–transform–produce loops have made."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

Transaction = tuple[str, int, int]
"""Transactional id, number of its process, number of the transaction in that process."""
Log = Mapping[int, Iterable[tuple[int, bytes]]]
"""By partition: offset, value."""


@dataclass(frozen=True)
class Copy:
    """A record of the output: which record of the input it is, and of which transaction with how many records."""

    partition: int
    offset: int
    transaction: Transaction
    size: int

    @classmethod
    def decode(cls, value: bytes) -> Copy:
        partition, offset, worker, incarnation, number, size = value.decode().split()
        transaction = (worker, int(incarnation), int(number))
        return cls(int(partition), int(offset), transaction, int(size))


def copies_of(log: Log) -> list[Copy]:
    return [Copy.decode(value) for records in log.values() for _, value in records]


def not_exactly_once(inputs: Iterable[tuple[int, int]], copies: Iterable[Copy]) -> list[str]:
    """Inputs (partition, offset) that were copied more or less often than once."""
    found: dict[tuple[int, int], list[Transaction]] = defaultdict(list)
    for copy in copies:
        found[copy.partition, copy.offset].append(copy.transaction)
    wanted = set(inputs)
    wrong = [f"NOT COPIED: input {place}" for place in sorted(wanted - found.keys())]
    wrong += [f"copied input {place} is none" for place in sorted(found.keys() - wanted)]
    return wrong + [
        f"TWICE: input {place} by {transactions}"
        for place, transactions in sorted(found.items())
        if len(transactions) > 1
    ]


def torn(copies: Iterable[Copy]) -> list[str]:
    """Transactions that are visible in part."""
    sizes: dict[Transaction, int] = {}
    visible: Counter[Transaction] = Counter()
    for copy in copies:
        sizes[copy.transaction] = copy.size
        visible[copy.transaction] += 1
    return [
        f"TORN: of transaction {transaction} {count} of {sizes[transaction]} records are visible"
        for transaction, count in visible.items()
        if count != sizes[transaction]
    ]


def contradicted(
    copies: Iterable[Copy], committed: Iterable[Transaction], aborted: Iterable[Transaction]
) -> list[str]:
    """Transactions that ended otherwise than their clients were answered."""
    visible = {copy.transaction for copy in copies}
    return [
        f"LOST: {each}, whose commit was acknowledged" for each in committed if each not in visible
    ] + [f"ABORTED, and yet visible: {each}" for each in aborted if each in visible]


def written_late(topic: str, log: Log) -> list[str]:
    """Records that a process wrote into a partition after one of its successor, which had fenced it.

    `log`: also what was never committed. Values begin with what `Copy` or a bank's `Half` begins with."""
    wrong = []
    for index, records in log.items():
        newest: dict[str, int] = {}
        for offset, value in records:
            words = value.decode().split()
            worker, number = (words[0], words[1]) if "-" in words[0] else (words[2], words[3])
            incarnation = int(number)
            if incarnation < newest.get(worker, 0):
                wrong.append(
                    f"LATE: {topic}-{index} at {offset}: process {incarnation} of {worker} "
                    f"wrote after process {newest[worker]}"
                )
            newest[worker] = max(newest.get(worker, 0), incarnation)
    return wrong
