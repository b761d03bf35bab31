"""What the page costs: 300 partitions with three replicas each, all of which move ten times a second."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import aclosing
from typing import Any

import pytest
from confluent_kafka import Producer

from kwire import aio
from kwire.control.live.hub import INTERVAL_SECONDS, hub_of
from kwire.launch.handles import ThreadHandle

pytestmark = pytest.mark.timeout(90)

PARTITIONS, BROKERS = 300, 3
SHARE = 0.05
WINDOW_SECONDS = 2.0


def logs(cluster: aio.Cluster) -> list[Any]:
    found = []
    for handle in cluster.inside.handles.values():
        assert isinstance(handle, ThreadHandle) and handle.runner is not None
        manager = handle.runner.core.services.replica_manager  # type: ignore[union-attr]  # a broker's
        found += [each.log for each in manager.by_key.values()]
    return found


def fill(bootstrap: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    for index in range(PARTITIONS):
        producer.produce("t", b"v", partition=index)
    assert producer.flush(30) == 0


async def move(all_logs: list[Any]) -> None:
    """Every high watermark is another one each time: the page has to be told of all."""
    while True:
        for log in all_logs:
            log.high_watermark ^= 1
        await asyncio.sleep(INTERVAL_SECONDS)


async def seconds_of_cpu(during: float) -> float:
    """Of this process, which has all nodes, a second."""
    begun, at = time.process_time(), time.monotonic()
    await asyncio.sleep(during)
    return (time.process_time() - begun) / (time.monotonic() - at)


async def read(cluster: aio.Cluster, take: Callable[[bytes], None]) -> None:
    async with aclosing(hub_of(cluster).parts()) as parts:
        async for part in parts:
            take(part)


def test_a_page_takes_less_than_a_twentieth_of_a_core() -> None:
    async def main() -> None:
        async with aio.Cluster(BROKERS) as cluster:
            await cluster.create_topic("t", PARTITIONS, BROKERS)
            await asyncio.to_thread(fill, cluster.bootstrap_servers)
            all_logs = logs(cluster)
            assert len(all_logs) == PARTITIONS * BROKERS
            moving = asyncio.create_task(move(all_logs))
            sizes: list[int] = []
            costs = []
            for _ in range(3):
                without = await seconds_of_cpu(WINDOW_SECONDS)
                reading = asyncio.create_task(read(cluster, lambda part: sizes.append(len(part))))
                await asyncio.sleep(0.5)
                sizes.clear()
                costs.append(await seconds_of_cpu(WINDOW_SECONDS) - without)
                reading.cancel()
                await asyncio.wait({reading})
                assert hub_of(cluster).pages == 0
                moved = [size for size in sizes if size > PARTITIONS * BROKERS * 4]
                assert len(moved) > WINDOW_SECONDS / INTERVAL_SECONDS / 3, (
                    "it is told of all that moves"
                )
            moving.cancel()
            assert min(costs) < SHARE, costs

    asyncio.run(main())
