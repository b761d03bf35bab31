"""A position tracker sends where a ship is, and sends again what has failed. On a bad day the old position arrives
after the new one."""

import asyncio

from aiokafka.errors import KafkaError
from kit import finds, producer

from kwire import virtual

POSITIONS = 60


async def send_again(bootstrap: str) -> None:
    """The bug: each position has a task that tries until it succeeds; the next one does not wait for it."""
    sender = producer(bootstrap, request_timeout_ms=3000, enable_idempotence=True)
    async with sender, asyncio.TaskGroup() as group:
        for position in range(POSITIONS):
            group.create_task(_until_sent(sender, position))
            await asyncio.sleep(0.25)


async def _until_sent(sender, position: int) -> None:
    while True:
        try:
            async with asyncio.timeout(4):
                await sender.send_and_wait("ships", str(position).encode(), key=b"ship")
            return
        except (KafkaError, TimeoutError):
            await asyncio.sleep(1)


async def one_after_the_other(bootstrap: str) -> None:
    """The repair: a queue for each ship; the newest position that waits is the one that counts."""
    queue: asyncio.Queue[int] = asyncio.Queue()

    async def send() -> None:
        while True:
            position = await queue.get()
            while not queue.empty():
                position = queue.get_nowait()
            await _until_sent(sender, position)
            if position == POSITIONS - 1:
                return

    async with producer(bootstrap, request_timeout_ms=3000, enable_idempotence=True) as sender:
        sending = asyncio.create_task(send())
        for position in range(POSITIONS):
            queue.put_nowait(position)
            await asyncio.sleep(0.25)
        await sending


async def scenario(world, app) -> None:
    async with world.cluster(brokers=3, topics=["ships:1:3"]) as cluster:
        with world.host("tracker"):
            task = asyncio.create_task(app(cluster.bootstrap_servers))
        async with asyncio.timeout(900):
            await task
        await world.calm()
        found = [int(record.value) for record in await cluster.records("ships")]
        assert found[-1] == POSITIONS - 1, f"the ship is back at position {found[-1]}"
        assert found == sorted(found), f"the ship went back: {found}"


WEATHER = virtual.Weather(every=4, kinds=("latency", "cut", "freeze", "reset", "kill"), longest=30)


@virtual.test(seeds=100, weather=WEATHER, real=True)
async def test_a_ship_never_goes_back(world):
    await scenario(world, one_after_the_other)


def test_each_position_for_itself():
    finds(4, scenario, send_again, weather=WEATHER)
