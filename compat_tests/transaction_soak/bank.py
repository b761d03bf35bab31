"""A bank of accounts in partitions: its records, and what is true of them at every snapshot.

Each owner has some accounts, each in a partition of its own, and moves money between two of them in one transaction:
two records, each with the amount and the balance that follows. Owners number their committed transfers from 1 on.
No other producer writes there, so that nobody else's open transaction holds back what a snapshot shows.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

TOPIC = "bank"
OWNERS = ("owner-0", "owner-1")
LIBRDKAFKA = "librdkafka"
"""The library that owners use by default; others go by their drivers."""
ACCOUNTS = 4
"""Of each owner."""
PARTITIONS = len(OWNERS) * ACCOUNTS + 1
"""The last one is for abandoned transactions."""
OPENING = 100
ABANDONED = b"abandoned"
"""In transactions that nobody ever ends but the coordinator, when their time is up."""


def partition_of(owner: str, account: int) -> int:
    return OWNERS.index(owner) * ACCOUNTS + account


@dataclass(frozen=True)
class Half:
    """One of the two records of a transfer. `incarnation`: of the owner's process."""

    owner: str
    incarnation: int
    number: int
    account: int
    amount: int
    balance: int

    def encode(self) -> bytes:
        words = (self.owner, self.incarnation, self.number, self.account, self.amount, self.balance)
        return " ".join(map(str, words)).encode()

    @classmethod
    def decode(cls, value: bytes) -> Half:
        owner, *numbers = value.decode().split()
        return cls(owner, *map(int, numbers))


class Bank:
    """What a read_committed reader knows of the accounts. `wrong`: a line for each thing that cannot be."""

    def __init__(self) -> None:
        self.balances: dict[tuple[str, int], int] = {}
        self.numbers: dict[tuple[str, int], int] = {}  # account: its newest transfer
        self.open: dict[tuple[str, int], Half] = {}  # transfers of which one half has been seen
        self.newest: Counter[str] = Counter()  # by owner
        self.whole: Counter[str] = Counter()  # transfers of which both halves have been seen
        self.settled: Counter[str] = Counter()  # the newest at the last snapshot
        self.late: dict[tuple[str, int], dict[int, int]] = {}  # open, and should be whole: epochs
        self.arrived: list[tuple[Half, int, dict[int, int]]] = []  # were late: partition, epochs
        self.snapshots = 0
        self.wrong: list[str] = []

    def read(self, partition: int, value: bytes) -> None:
        """The next record of a partition."""
        if value.startswith(ABANDONED):
            self.wrong.append(f"{value.decode()} is visible, which nobody has committed")
            return
        half = Half.decode(value)
        account = (half.owner, half.account)
        if partition != partition_of(*account) or half.number <= self.numbers.get(account, 0):
            self.wrong.append(f"{half} in partition {partition} after {self.numbers.get(account)}")
        expected = self.balances.get(account, OPENING) + half.amount
        if half.balance != expected:
            self.wrong.append(f"{half}: the balance should be {expected}")
        self.balances[account] = half.balance
        self.numbers[account] = half.number
        self.newest[half.owner] = max(self.newest[half.owner], half.number)
        transfer = (half.owner, half.number)
        other = self.open.pop(transfer, None)
        if other is None:
            self.open[transfer] = half
            return
        if transfer in self.late:
            self.arrived.append((half, partition, self.late.pop(transfer)))
        self.whole[half.owner] += 1
        if other.amount + half.amount or other.incarnation != half.incarnation:
            self.wrong.append(f"{other} and {half} are no transfer")

    def snapshot(self, epochs: dict[int, int]) -> None:
        """All partitions have been read up to last stable offsets that were asked for after the last snapshot.

        `epochs`: of the leaders that answered, by partition. An owner begins a transfer when the one before is
        committed in all partitions. So of those before the newest that the last snapshot showed, this one shows all,
        with both halves; and all money is there. But a leader that has been deposed and does not know it yet answers
        as of before, here as in Kafka: who was behind is known when the half is there, from a later epoch or not."""
        self.snapshots += 1
        opening = OPENING * len(self.balances)
        moving = sum(half.amount for half in self.open.values())
        if sum(self.balances.values()) - moving != opening:
            self.wrong.append(
                f"snapshot {self.snapshots}: the accounts have {sum(self.balances.values())}, "
                f"{moving} more is on its way, together it should be {opening}"
            )
        for owner, number in self.open:
            if number < self.settled[owner]:
                self.late[owner, number] = dict(epochs)
        for half, partition, at in self.arrived:
            if epochs[partition] <= at[partition]:
                self.wrong.append(
                    f"snapshot {self.snapshots}: {half} was missing although a later one was seen, "
                    f"and its leader is still that of epoch {at[partition]}"
                )
        self.arrived.clear()
        self.settled = self.newest.copy()

    def restored(self, owner: str) -> list[str]:
        """What is wrong with an owner's accounts at a snapshot after its predecessor was fenced: they are at rest."""
        balances = [balance for (name, _), balance in self.balances.items() if name == owner]
        wrong = [str(half) for (name, _), half in self.open.items() if name == owner]
        if wrong:
            return [
                f"{owner} was fenced, and yet there is half a transfer: {half}" for half in wrong
            ]
        if sum(balances) != OPENING * len(balances):
            return [f"{owner} has {sum(balances)} in {len(balances)} accounts"]
        if self.whole[owner] != self.newest[owner]:
            return [f"{owner}: {self.whole[owner]} transfers, the newest is {self.newest[owner]}"]
        return []

    def end(self, committed: dict[str, int]) -> list[str]:
        """All that is wrong when everything is at rest. `committed`: by owner, the newest acknowledged transfer."""
        found = list(self.wrong)
        for owner, number in committed.items():
            found += self.restored(owner)
            if self.newest[owner] < number:
                found.append(
                    f"LOST: {owner} committed transfer {number}, {self.newest[owner]} is the newest"
                )
        return found
