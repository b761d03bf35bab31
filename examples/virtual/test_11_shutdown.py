"""A collector answers "taken", and writes to Kafka in batches. Stopped between the two, it loses what it has taken."""

import asyncio
import contextlib
import random

from kit import finds, producer

from kwire import virtual


class Collector:
    def __init__(self, bootstrap: str, drains: bool) -> None:
        self._bootstrap, self._drains = bootstrap, drains
        self._queue: asyncio.Queue[int] = asyncio.Queue()
        self.taken: list[int] = []

    def take(self, number: int) -> None:
        self._queue.put_nowait(number)
        self.taken.append(number)

    async def run(self) -> None:
        async with producer(self._bootstrap, linger_ms=200) as sender:
            try:
                while True:
                    await sender.send("measures", str(await self._queue.get()).encode())
                    await asyncio.sleep(0.02)
            finally:
                while self._drains and not self._queue.empty():  # the repair
                    await sender.send("measures", str(self._queue.get_nowait()).encode())


async def scenario(world, drains: bool) -> None:
    async with world.cluster(topics=["measures"]) as cluster:
        with world.host("collector"):
            collector = Collector(cluster.bootstrap_servers, drains)
            task = asyncio.create_task(collector.run())
        end = world.now + random.uniform(1, 3)
        while world.now < end:
            for _ in range(random.choice([0, 0, 0, 0, 5])):
                collector.take(len(collector.taken))
            await asyncio.sleep(0.05)
        task.cancel()  # SIGTERM
        with contextlib.suppress(asyncio.CancelledError):
            await task
        found = {int(record.value) for record in await cluster.records("measures")}
        assert found == set(collector.taken), f"lost: {sorted(set(collector.taken) - found)}"


@virtual.test(seeds=100, real=True)
async def test_what_was_taken_is_written(world):
    await scenario(world, drains=True)


def test_stopped_with_a_full_queue():
    finds(3, scenario, False)
