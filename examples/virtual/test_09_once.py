"""A shop sends "charge" again when it hears nothing, and the payments service forgets after a minute what it has done.
A frozen shop goes on after two minutes, and its customer pays twice."""

import asyncio
import random
import time

from kit import consumer, finds, producer, stop

from kwire import virtual

CHARGES = 5


async def shop(bootstrap: str, done: set[str]) -> None:
    """Ask for each charge until the receipt is there."""
    async with producer(bootstrap) as sender, consumer(bootstrap, "receipts") as receipts:
        for number in range(CHARGES):
            charge = f"charge {number}"
            while charge not in done:
                await sender.send_and_wait("charges", charge.encode())
                batch = await receipts.getmany(timeout_ms=3000)
                done.update(r.value.decode() for records in batch.values() for r in records)
            await asyncio.sleep(10)


async def payments(bootstrap: str, charged: list[str], remember_seconds: float) -> None:
    seen: dict[str, float] = {}
    async with producer(bootstrap) as sender, consumer(bootstrap, "charges") as charges:
        async for record in charges:
            charge, now = record.value.decode(), time.time()
            seen = {name: at for name, at in seen.items() if now - at < remember_seconds}
            if charge not in seen:
                charged.append(charge)
                seen[charge] = now
            await asyncio.sleep(random.uniform(0, 5))  # the bank
            await sender.send_and_wait("receipts", record.value)


async def scenario(world, remember_seconds: float) -> None:
    async with world.cluster(topics=["charges", "receipts"]) as cluster:
        charged: list[str] = []
        done: set[str] = set()
        with world.host("payments"):
            service = asyncio.create_task(
                payments(cluster.bootstrap_servers, charged, remember_seconds)
            )
        await asyncio.sleep(1)
        with world.host("shop"):
            buying = asyncio.create_task(shop(cluster.bootstrap_servers, done))
        if world.virtual:
            await asyncio.sleep(random.uniform(0, 60))
            world.freeze("shop")
            world.network.cut("shop")
            await asyncio.sleep(random.uniform(30, 200))
            world.network.heal()
            world.thaw("shop")
        async with asyncio.timeout(600):
            await buying
        await asyncio.sleep(60)
        assert len(charged) == len(set(charged)), f"charged: {charged}"
        await stop(service)


@virtual.test(seeds=100)
async def test_nobody_pays_twice(world):
    await scenario(world, remember_seconds=7 * 86_400)


def test_a_memory_of_a_minute():
    finds(3, scenario, 60.0)
