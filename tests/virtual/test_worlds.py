"""Many worlds in one process: nothing leaks, each starts fast; what virtual time costs, printed."""

import asyncio
import gc
import os
import threading
import time
from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer

from kwire import virtual
from kwire.virtual import World

FAST = 10
SLOW = 1000
MS_FOR_A_START = 15
SECONDS_FOR_AN_HOUR = {"idle": 0.36, "client": 5.0}
"""Real seconds, three brokers: the prototype's for the idle hour, half of its 10 s with a consumer."""


def slack() -> float:
    return float(os.environ.get("KWIRE_SPEED_SLACK", "1"))


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


async def some_work(world: World) -> None:
    async with world.cluster(brokers=3, topics=["t:2:3"]) as cluster:
        await cluster.produce("t", "x")
        with world.host("c1"):
            consumer = AIOKafkaConsumer(
                "t", bootstrap_servers=cluster.bootstrap_servers, auto_offset_reset="earliest"
            )
            await asyncio.create_task(consumer.start())
        await consumer.getone()
        await consumer.stop()


def leftovers(count: int) -> tuple[int, int, int, int]:
    """What so many worlds have left: descriptors, threads, objects, worlds."""
    virtual.run(some_work)
    gc.collect()
    before = descriptors(), threading.active_count(), len(gc.get_objects())
    worlds = count_worlds()  # pytest keeps what it has captured of a log
    for seed in range(count):
        virtual.run(some_work, seed)
    gc.collect()
    after = descriptors(), threading.active_count(), len(gc.get_objects())
    return after[0] - before[0], after[1] - before[1], after[2] - before[2], count_worlds() - worlds


def count_worlds() -> int:
    return sum(isinstance(each, World) for each in gc.get_objects())


def test_worlds_leave_nothing_behind() -> None:
    files, threads, objects, worlds = leftovers(FAST)
    assert (files, threads) == (0, 0)
    assert worlds <= 1
    assert objects < 500 * FAST


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_a_thousand_worlds_leave_nothing_behind() -> None:
    files, threads, objects, worlds = leftovers(SLOW)
    assert (files, threads) == (0, 0)
    assert worlds <= 1
    assert objects < 20_000


def test_a_world_starts_in_milliseconds() -> None:
    async def main(world: World) -> None: ...

    async def cluster(world: World) -> None:
        async with world.cluster(brokers=3):
            pass

    virtual.run(cluster)
    empty, three = (min(seconds(each) for _ in range(10)) for each in (main, cluster))
    print(
        f"\na world: {1000 * empty:.2f} ms; with three brokers, started and stopped: {1000 * three:.1f} ms"
    )
    assert 1000 * three < MS_FOR_A_START * slack() * 2  # start and stop


def seconds(main: object, **settings: float) -> float:
    began = time.process_time()
    virtual.run(main, **settings)  # type: ignore[arg-type]
    return time.process_time() - began


@pytest.mark.parametrize("kind", SECONDS_FOR_AN_HOUR)
def test_an_hour(kind: str) -> None:
    async def main(world: World) -> None:
        async with world.cluster(brokers=3, topics=["t:3"]) as cluster:
            consumer = AIOKafkaConsumer(
                "t", bootstrap_servers=cluster.bootstrap_servers, group_id="g"
            )
            if kind == "client":
                with world.host("c1"):
                    await asyncio.create_task(consumer.start())
            await asyncio.sleep(600)
            if kind == "client":
                await consumer.stop()

    virtual.run(main)
    found = 6 * seconds(main)
    print(
        f"\na virtual hour with three brokers, {kind}: {found:.2f} s of CPU (×{3600 / found:.0f})"
    )
    assert found < SECONDS_FOR_AN_HOUR[kind] * slack() * 2


def test_nothing_of_it_is_loaded_before_it_is_asked_for() -> None:
    import subprocess
    import sys

    program = (
        "import sys, kwire.pytest_plugin, kwire.aio, kwire.launch.up; "
        "print([each for each in sys.modules if 'virtual' in each or each == 'time_machine'])"
    )
    root = Path(__file__).resolve().parents[2]
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=root)
    assert done.stdout == "[]\n", done.stderr
