"""An outbox relay sends the rows of a table. An acknowledgement that is lost makes it send a row again: without
idempotence the topic has it twice."""

import asyncio
import random

from kit import finds, producer, stop, until

from kwire import virtual

ROWS = 60


async def relay(bootstrap: str, rows: list[int], idempotent: bool) -> None:
    """Send each row, and take it off the table when it is acknowledged."""
    async with producer(
        bootstrap, enable_idempotence=idempotent, request_timeout_ms=5000
    ) as sender:
        while rows:
            await sender.send_and_wait("events", str(rows[0]).encode())
            rows.pop(0)
            await asyncio.sleep(0.1)


async def scenario(world, idempotent: bool) -> None:
    async with world.cluster(topics=["events"]) as cluster:
        rows = list(range(ROWS))
        with world.host("relay"):
            task = asyncio.create_task(relay(cluster.bootstrap_servers, rows, idempotent))
        if world.virtual:
            await until(lambda: len(rows) < ROWS)
            line = asyncio.create_task(bad_line(world))
        async with asyncio.timeout(120):
            await task
        if world.virtual:
            await stop(line)
        found = [int(record.value) for record in await cluster.records("events")]
        assert found == list(range(ROWS)), (
            f"twice: {sorted({x for x in found if found.count(x) > 1})}"
        )


async def bad_line(world) -> None:
    """The relay is far away, and now and then its connections are reset."""
    world.network.delay("relay", ms=100)
    while True:
        await asyncio.sleep(random.expovariate(0.3))
        world.network.reset("relay")


@virtual.test(seeds=100, real=True)
async def test_each_row_is_sent_once(world):
    await scenario(world, idempotent=True)


def test_without_idempotence_a_row_is_there_twice():
    finds(0, scenario, False)
