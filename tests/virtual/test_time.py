"""The clock of a world: what the application sees of it, and what stands still when."""

import asyncio
import itertools
import random
import time
import uuid
from datetime import UTC, date, datetime
from time import monotonic, perf_counter_ns
from time import sleep as fall_asleep

import pytest

from kwire import virtual
from kwire.errors import ConfigurationError
from kwire.virtual import World


def test_every_clock_of_an_application_is_virtual() -> None:
    async def main(world: World) -> tuple[float, ...]:
        began = time.time(), time.monotonic(), monotonic(), perf_counter_ns() / 1e9
        began += (datetime.now(UTC).timestamp(), asyncio.get_running_loop().time())
        assert datetime.now(UTC) == datetime.fromtimestamp(time.time(), UTC)
        assert (
            datetime(2026, 1, 1, tzinfo=UTC)
            <= datetime.now(UTC)
            < datetime(2026, 1, 1, 0, 1, tzinfo=UTC)
        )
        assert date.today().year in (2025, 2026)  # of the machine's time zone
        assert time.strftime("%Y", time.gmtime()) == "2026"
        await asyncio.sleep(7200)
        ended = time.time(), time.monotonic(), monotonic(), perf_counter_ns() / 1e9
        ended += (datetime.now(UTC).timestamp(), asyncio.get_running_loop().time())
        assert world.date.hour == 2
        return tuple(after - before for before, after in zip(began, ended, strict=True))

    real = time.monotonic()
    passed = virtual.run(main)
    assert all(7200 <= each < 7200.1 for each in passed)
    assert time.monotonic() - real < 10
    assert time.time() > 1.7e9 and datetime.now(UTC).timestamp() - time.time() < 1


def test_chance_is_of_the_seed_and_that_of_the_process_goes_on_afterwards() -> None:
    async def main(world: World) -> list[object]:
        return [random.random(), uuid.uuid4(), random.SystemRandom().random()]

    random.seed(5)
    before = random.random()
    random.seed(5)
    first, again, other = virtual.run(main, 1), virtual.run(main, 1), virtual.run(main, 2)
    assert first == again
    assert not set(map(str, first)) & set(map(str, other))
    assert random.random() == before


def test_a_blocking_call_stops_its_host_and_no_other() -> None:
    async def tick(ticks: list[float], world: World) -> None:
        while True:
            ticks.append(world.now)
            await asyncio.sleep(1)

    async def main(world: World) -> None:
        own: list[float] = []
        others: list[float] = []
        with world.host("w1"):
            tasks = [asyncio.create_task(tick(own, world)), asyncio.create_task(block())]
        with world.host("w2"):
            tasks.append(asyncio.create_task(tick(others, world)))
        await asyncio.sleep(30)
        assert max(b - a for a, b in itertools.pairwise(own)) > 19
        assert max(b - a for a, b in itertools.pairwise(others)) < 1.1
        for task in tasks:
            task.cancel()

    async def block() -> None:
        await asyncio.sleep(5)
        task = asyncio.current_task()
        fall_asleep(20)
        assert asyncio.current_task() is task

    virtual.run(main)


def test_a_run_may_end_while_a_host_blocks() -> None:
    ended: list[str] = []

    async def block() -> None:
        try:
            time.sleep(60)
            await asyncio.sleep(60)
        finally:
            ended.append("with its end")

    async def main(world: World) -> None:
        with world.host("w1"):
            world.task = asyncio.create_task(block())  # type: ignore[attr-defined]
        await asyncio.sleep(1)

    virtual.run(main)
    assert ended == ["with its end"]


def test_what_sleeps_on_a_thread_does_not_stop_the_loop() -> None:
    def compute() -> float:
        began = time.monotonic()
        time.sleep(20)
        return time.monotonic() - began

    async def main(world: World) -> None:
        computing = asyncio.create_task(asyncio.to_thread(compute))
        await asyncio.sleep(1)
        assert not computing.done()
        assert await computing == 20
        assert 20 <= world.now < 20.01
        with pytest.raises(ZeroDivisionError):
            await asyncio.to_thread(lambda: 1 / 0)

    virtual.run(main)


def test_a_frozen_host_stands_still_until_it_is_thawed_as_often() -> None:
    async def main(world: World) -> None:
        ticks: list[float] = []

        async def tick() -> None:
            while True:
                ticks.append(world.now)
                await asyncio.sleep(1)

        with world.host("w1"):
            task = asyncio.create_task(tick())
        await asyncio.sleep(2.5)
        world.freeze("w1")
        world.freeze("w1")
        await asyncio.sleep(60)
        world.thaw("w1")
        await asyncio.sleep(60)
        assert len(ticks) == 3
        world.thaw("w1")
        await asyncio.sleep(1.5)
        assert len(ticks) == 5
        with pytest.raises(
            virtual.VirtualTimeError, match="there is no host 'w2'; the hosts are app, w1"
        ):
            world.freeze("w2")
        task.cancel()

    virtual.run(main)


def test_a_deadlock_names_every_task_and_where_it_waits() -> None:
    async def worker() -> None:
        await asyncio.Queue().get()  # type: ignore[var-annotated]

    async def main(world: World) -> None:
        with world.host("w1"):
            await asyncio.create_task(worker(), name="the worker")

    with pytest.raises(virtual.DeadlockError) as raised:
        virtual.run(main)
    text = str(raised.value)
    assert "nothing is ready and no timer is set" in text
    assert "the worker" in text and "main" in text and "queues.py" in text
    assert "seed 0" in raised.value.__notes__[0]


def test_a_loop_that_spins_is_named() -> None:
    async def poll(world: World) -> None:
        while True:
            await asyncio.sleep(0)

    async def busy(world: World) -> None:
        while time.time() < 1e10:
            pass

    with pytest.raises(virtual.SpinError, match=r"the loop spins.*poll"):
        virtual.run(poll)
    with pytest.raises(virtual.SpinError, match="without an await"):
        virtual.run(busy)


def test_a_run_over_its_limit_ends() -> None:
    async def main(world: World) -> None:
        while True:
            await asyncio.sleep(10)

    with pytest.raises(virtual.TimeLimitError, match="100 virtual seconds are over"):
        virtual.run(main, limit=100)


def test_bad_arguments_are_refused_in_a_line() -> None:
    async def main(world: World) -> None: ...

    for call, text in (
        (lambda: virtual.run(1), "coroutine function"),  # type: ignore[arg-type]
        (lambda: virtual.run(main, "7"), "whole number"),  # type: ignore[arg-type]
        (lambda: virtual.test(lambda world: None), "coroutine function"),  # type: ignore[arg-type,return-value]
        (lambda: virtual.test(main, seeds=0), "a number from 1"),
        (lambda: virtual.run(main, weather="hail"), "weather: expected kinds of latency"),
        (lambda: virtual.Weather(every=0), "seconds above 0"),
    ):
        with pytest.raises(ConfigurationError, match=text):
            call()


def test_what_a_run_leaves_behind_is_ended() -> None:
    ended: list[str] = []

    async def forever() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("task")

    async def main(world: World) -> asyncio.AbstractEventLoop:
        world.left = asyncio.create_task(forever())  # type: ignore[attr-defined]
        await asyncio.sleep(0)
        cluster = world.cluster()
        await cluster.start()
        return asyncio.get_running_loop()

    loop = virtual.run(main)
    assert ended == ["task"] and loop.is_closed()
