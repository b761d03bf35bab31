"""An owner who moves money between accounts in transactions until stdin ends; see bank.py.

The first argument names client libraries: each process of an owner uses the next of them. It takes over from the one
before by init_transactions, reads the accounts read_committed up to the last stable offsets, says whether they are
right, and goes on from there.
"""

from __future__ import annotations

import random
import sys
import threading
import time

from confluent_kafka import KafkaException

from compat_tests.transaction_soak.bank import (
    ACCOUNTS,
    LIBRDKAFKA,
    OPENING,
    OWNERS,
    PARTITIONS,
    TOPIC,
    Bank,
    Half,
    partition_of,
)
from compat_tests.transaction_soak.driven import Driven
from compat_tests.transaction_soak.librdkafka import Transactions, say, serve
from compat_tests.transaction_soak.reading import SnapshotReader


class Owner:
    def __init__(self, argv: list[str]) -> None:
        libraries, bootstrap, self.name, incarnation = argv
        self.incarnation = int(incarnation)
        self.random = random.Random(f"{self.name} {incarnation}")
        self.transactions = self._transactions(libraries.split(","), bootstrap)
        self._restore(bootstrap)

    def _transactions(self, libraries: list[str], bootstrap: str) -> Transactions | Driven:
        library = libraries[(self.incarnation + OWNERS.index(self.name)) % len(libraries)]
        if library == LIBRDKAFKA:
            return Transactions(bootstrap, self.name)
        return Driven(library, bootstrap, self.name)

    def _restore(self, bootstrap: str) -> None:
        bank = Bank()
        reader = SnapshotReader(bootstrap, TOPIC, PARTITIONS)
        for partition, _, value in reader.read_to(reader.stable_offsets()):
            bank.read(partition, value)
        reader.close()
        for line in bank.restored(self.name):
            say("wrong", line)
        self.number = bank.newest[self.name]
        self.balances = {
            account: bank.balances.get((self.name, account), OPENING) for account in range(ACCOUNTS)
        }
        say("ready", self.number)

    def run(self, stop: threading.Event) -> None:
        turn = 0
        while not stop.wait(0.02):
            turn += 1
            try:
                self.transfer(is_committed=turn % 5 != 0)
            except KafkaException as error:
                if error.args[0].fatal() or not self.transactions.is_open:
                    raise
                say("error", error.args[0])
                self.abort()

    def transfer(self, *, is_committed: bool) -> None:
        giver, taker = self.random.sample(range(ACCOUNTS), 2)
        amount = self.random.randint(1, 10)
        after = {giver: self.balances[giver] - amount, taker: self.balances[taker] + amount}
        self.transactions.begin()
        for account, balance in after.items():
            moved = balance - self.balances[account]
            half = Half(self.name, self.incarnation, self.number + 1, account, moved, balance)
            partition = partition_of(self.name, account)
            self.transactions.write(TOPIC, partition, half.encode())
        say("middle", self.number + 1)
        time.sleep(0.02)
        if not is_committed:
            self.abort()
            return
        self.transactions.commit()
        self.number += 1
        self.balances |= after
        say("committed", self.number)

    def abort(self) -> None:
        self.transactions.abort()
        say("aborted", self.number + 1)


if __name__ == "__main__":
    serve(lambda stop: Owner(sys.argv[1:]).run(stop))
