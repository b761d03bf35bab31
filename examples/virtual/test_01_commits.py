"""A consumer writes orders to a database, and crashes. Auto-commit loses the order that it was at work on."""

import asyncio
import random

from kit import consumer, finds, fresh, stop, write

from kwire import virtual

COUNT = 30


async def auto_commit(bootstrap: str, group: str, database: list[str]) -> None:
    """The bug: the client commits what it has handed out, every two seconds, whether it is in the database or not."""
    orders = consumer(
        bootstrap, "orders", group=group, enable_auto_commit=True, auto_commit_interval_ms=2000
    )
    async with orders:
        async for order in orders:
            await asyncio.sleep(0.3)  # the database takes its time
            database.append(order.value.decode())


async def commit_when_done(bootstrap: str, group: str, database: list[str]) -> None:
    """The repair: what is committed is in the database. An order may come twice: its id is a key there."""
    orders = consumer(bootstrap, "orders", group=group)
    async with orders:
        async for order in orders:
            await asyncio.sleep(0.3)
            database.append(order.value.decode())
            await orders.commit()


async def scenario(world, app) -> None:
    async with world.cluster(topics=["orders"]) as cluster:
        bootstrap, group, database = cluster.bootstrap_servers, fresh("billing"), []
        wanted = [f"order {number}" for number in range(COUNT)]
        await write(bootstrap, "orders", wanted)
        with world.host("w1"):
            first = asyncio.create_task(app(bootstrap, group, database))
        if world.virtual:
            await asyncio.sleep(random.uniform(2, 10))
            world.crash("w1")
            with world.host("w2"):
                second = asyncio.create_task(app(bootstrap, group, database))
        else:
            second = first
        try:
            async with asyncio.timeout(60):
                while len(set(database)) < COUNT:
                    await asyncio.sleep(0.1)
        except TimeoutError:
            missing = sorted(set(wanted) - set(database))
            raise AssertionError(f"never billed: {missing}") from None
        await stop(first, second)


@virtual.test(seeds=100, real=True)
async def test_every_order_is_billed(world):
    await scenario(world, commit_when_done)


def test_auto_commit_loses_one():
    finds(1, scenario, auto_commit)
