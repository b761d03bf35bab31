"""A handler computes for half a minute, on the event loop: no heartbeat is sent meanwhile, the session ends, and
another worker does the same work."""

import asyncio
import contextlib
import random
import time

from aiokafka.errors import CommitFailedError
from kit import consumer, finds, fresh, stop, until, write

from kwire import virtual

VIDEOS = 6


def encode(video: bytes) -> None:
    time.sleep(random.uniform(1, 15))  # a computation


async def on_the_loop(video: bytes) -> None:
    """The bug."""
    encode(video)


async def on_a_thread(video: bytes) -> None:
    """The repair: the loop stays free for heartbeats."""
    await asyncio.to_thread(encode, video)


async def worker(bootstrap: str, group: str, done: list[bytes], handle) -> None:
    videos = consumer(bootstrap, "videos", group=group, heartbeat_interval_ms=1000)
    async with videos:
        async for video in videos:
            await handle(video.value)
            done.append(video.value)
            with contextlib.suppress(CommitFailedError):  # somebody else has the partition now
                await videos.commit()


async def scenario(world, handle) -> None:
    async with world.cluster(topics={"videos": 2}) as cluster:
        bootstrap, group, done = cluster.bootstrap_servers, fresh("encoders"), []
        tasks = []
        for name in ("w1", "w2"):
            with world.host(name):
                tasks.append(asyncio.create_task(worker(bootstrap, group, done, handle)))
        await asyncio.sleep(10)  # the group has settled
        for number in range(VIDEOS):
            await write(bootstrap, "videos", [f"video {number}"], partition=number % 2)
        await until(lambda: len(set(done)) == VIDEOS)
        await asyncio.sleep(30)
        assert len(done) == VIDEOS, f"encoded twice: {len(done) - VIDEOS}"
        await stop(*tasks)


@virtual.test(seeds=100)
async def test_a_video_is_encoded_once(world):
    await scenario(world, on_a_thread)


def test_a_handler_that_starves_its_heartbeat():
    finds(0, scenario, on_the_loop)
