"""A cache is rebuilt from a compacted topic before it answers. One that takes an empty poll for the end answers too
early, on a day when the network is slow."""

import asyncio
import random

from aiokafka import TopicPartition
from kit import consumer, finds, producer, started

from kwire import virtual

KEYS = 200


class Cache:
    def __init__(self) -> None:
        self.values: dict[bytes, bytes] = {}

    def take(self, batch) -> None:
        for records in batch.values():
            self.values.update((record.key, record.value) for record in records)


async def until_empty(reader, cache: Cache) -> None:
    """The bug: nothing came for a moment, so that was all."""
    while batch := await reader.getmany(timeout_ms=1000):
        cache.take(batch)


async def until_end(reader, cache: Cache) -> None:
    """The repair: up to the end offset at the start."""
    ends = await reader.end_offsets(reader.assignment())
    while any([await reader.position(tp) < end for tp, end in ends.items()]):
        cache.take(await reader.getmany(timeout_ms=1000))


async def scenario(world, load) -> None:
    compact = {"log.cleanup.policy": "compact"}
    async with world.cluster(topics={"settings": 4}, config=compact) as cluster:
        async with producer(cluster.bootstrap_servers) as sender:
            for number in range(2 * KEYS):
                await sender.send("settings", str(number).encode(), str(number % KEYS).encode())
        for _ in range(5 if world.virtual else 1):  # the service is restarted now and then
            await asyncio.sleep(random.uniform(0, 4))
            cache = Cache()
            with world.host("cache"):
                await asyncio.create_task(warm(cluster.bootstrap_servers, cache, load))
            assert len(cache.values) == KEYS, f"the cache has {len(cache.values)} of {KEYS} keys"
            assert all(int(value) >= KEYS for value in cache.values.values()), "an old value"


async def warm(bootstrap: str, cache: Cache, load) -> None:
    reader = await started(lambda: consumer(bootstrap, max_partition_fetch_bytes=2000))
    try:
        reader.assign([TopicPartition("settings", number) for number in range(4)])
        await load(reader, cache)
    finally:
        await reader.stop()


WEATHER = virtual.Weather(every=1, kinds=("latency", "freeze", "cut"), longest=20)


@virtual.test(seeds=100, weather=WEATHER, real=True)
async def test_a_warm_cache_has_all_keys(world):
    await scenario(world, until_end)


def test_an_empty_poll_is_not_the_end():
    finds(6, scenario, until_empty, weather=WEATHER)
