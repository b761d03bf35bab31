"""A pool of workers shares a topic. A worker that takes up a batch and loses its partition meanwhile goes on with it,
beside the one that has it now: the second finishes first, and an account ends with an old balance."""

import asyncio
import itertools
import random

from aiokafka import ConsumerRebalanceListener
from kit import consumer, finds, fresh, stop, until, write

from kwire import virtual

ACCOUNTS = 4
CHANGES = 12


class Bank:
    """A database in which the last writer wins."""

    def __init__(self) -> None:
        self.balance: dict[int, int] = {}
        self.writes: list[tuple[int, int]] = []

    async def store(self, account: int, balance: int) -> None:
        await asyncio.sleep(random.uniform(0.05, 0.4))
        self.balance[account] = balance
        self.writes.append((account, balance))


class Finish(ConsumerRebalanceListener):
    """The repair: a partition is given away when the batch at work is done and committed."""

    def __init__(self, busy: asyncio.Lock) -> None:
        self._busy = busy

    async def on_partitions_revoked(self, revoked) -> None:
        async with self._busy:
            pass

    async def on_partitions_assigned(self, assigned) -> None:
        pass


async def worker(bootstrap: str, group: str, bank: Bank, waits: bool) -> None:
    busy = asyncio.Lock()
    changes = consumer(bootstrap, group=group, heartbeat_interval_ms=500)
    changes.subscribe(["changes"], listener=Finish(busy) if waits else None)
    async with changes:
        while True:
            batch = await changes.getmany(timeout_ms=500, max_records=8)
            async with busy:
                for partition, records in batch.items():
                    if partition not in changes.assignment():
                        continue
                    for record in records:
                        await bank.store(partition.partition, int(record.value))
                    if partition in changes.assignment():
                        await changes.commit({partition: records[-1].offset + 1})


async def scenario(world, waits: bool) -> None:
    async with world.cluster(topics={"changes": ACCOUNTS}) as cluster:
        bootstrap, group, bank = cluster.bootstrap_servers, fresh("bank"), Bank()
        tasks = []
        for name in ("w1", "w2", "w3"):  # the pool grows while it works
            with world.host(name):
                tasks.append(asyncio.create_task(worker(bootstrap, group, bank, waits)))
            for balance in range(CHANGES // 3):
                for account in range(ACCOUNTS):
                    number = len(tasks) * 100 + balance
                    await write(bootstrap, "changes", [str(number)], partition=account)
            await asyncio.sleep(random.uniform(0, 1))
        last = 300 + CHANGES // 3 - 1
        await until(lambda: all(bank.balance.get(each) == last for each in range(ACCOUNTS)), 120)
        await asyncio.sleep(5)
        assert bank.balance == dict.fromkeys(range(ACCOUNTS), last)
        backwards = [
            (account, one, two)
            for account in range(ACCOUNTS)
            for one, two in pairs([b for a, b in bank.writes if a == account])
            if two < one
        ]
        assert not backwards, f"an account went back: {backwards}"
        await stop(*tasks)


def pairs(values: list[int]) -> list[tuple[int, int]]:
    return list(itertools.pairwise(values))


@virtual.test(seeds=100, real=True)
async def test_accounts_never_go_back(world):
    await scenario(world, waits=True)


def test_a_worker_that_does_not_finish_first():
    finds(0, scenario, False)
