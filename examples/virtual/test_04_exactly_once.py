"""A transformer reads, computes and writes, in transactions, and crashes. Offsets that are committed beside the
transaction, not in it, let the next one do the last step again."""

import asyncio
import random

from kit import consumer, finds, fresh, producer, stop, write

from kwire import virtual

COUNT = 25


async def transform(bootstrap: str, names: tuple[str, str], *, together: bool) -> None:
    group, transactional_id = names
    source = consumer(bootstrap, "prices", group=group, isolation_level="read_committed")
    sink = producer(bootstrap, transactional_id=transactional_id)
    async with source, sink:
        async for price in source:
            async with sink.transaction():
                await sink.send("totals", str(int(price.value) * 2).encode())
                if together:
                    tp = next(iter(source.assignment()))
                    await sink.send_offsets_to_transaction({tp: price.offset + 1}, group)
            if not together:
                await asyncio.sleep(0.05)
                await source.commit()


async def scenario(world, together: bool) -> None:
    async with world.cluster(brokers=1, topics=["prices", "totals"]) as cluster:
        bootstrap, names = cluster.bootstrap_servers, (fresh("totals"), fresh("transformer"))
        await write(bootstrap, "prices", [str(number) for number in range(COUNT)])
        tasks = []
        for number in range(3 if world.virtual else 1):
            with world.host(f"t{number}"):
                tasks.append(asyncio.create_task(transform(bootstrap, names, together=together)))
            if number < 2 and world.virtual:
                await asyncio.sleep(random.uniform(0.5, 3.5))
                world.crash(f"t{number}")
        found = await totals(bootstrap)
        assert found == [2 * number for number in range(COUNT)], f"totals: {found}"
        await stop(*tasks)


async def totals(bootstrap: str) -> list[int]:
    """What a reader of committed records sees, until nothing more comes for some seconds."""
    found: list[int] = []
    async with consumer(bootstrap, "totals", isolation_level="read_committed") as reader:
        for _ in range(600):
            batch = await reader.getmany(timeout_ms=500)
            found += [int(record.value) for records in batch.values() for record in records]
            if len(found) >= COUNT and not batch:
                break
    return found


@virtual.test(seeds=100, real=True)
async def test_each_price_counts_once(world):
    await scenario(world, together=True)


def test_offsets_beside_the_transaction():
    finds(2, scenario, False)
