"""Virtual time in pytest: the decorator, the fixture, the options; with pytest-asyncio and without it."""

import re
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "cluster"))
from plugin_run import run_pytest

DECORATED = """
    import asyncio, time
    from kwire import virtual

    @virtual.test(seeds=5, weather="freeze, reset")
    async def test_it(world, tmp_path):
        assert tmp_path.exists()
        async with world.cluster(brokers=3, topics=["t"]) as cluster:
            began = time.time()
            await asyncio.sleep(100)
            assert time.time() - began >= 100
            assert world.seed != 3, "the day of seed three"
"""
FIXTURE = """
    import asyncio, time
    import pytest

    @pytest.mark.kwire_virtual(seeds=3, weather=True)
    async def test_it(world):
        async with world.cluster(brokers=3) as cluster:
            await asyncio.sleep(100)
        assert world.seed != 2

    def test_plain(world):
        async def main(world):
            return time.time()
        assert world.run(main) < 1767225601
"""
ASYNCIO = """
    import asyncio, time
    import pytest, pytest_asyncio

    @pytest_asyncio.fixture
    async def cluster(world):
        async with world.cluster(brokers=3, topics=["t"]) as cluster:
            yield cluster

    @pytest.mark.asyncio
    @pytest.mark.kwire_virtual(seeds=3)
    async def test_hour(world, cluster):
        began = time.time()
        await cluster.broker(1).kill()
        await asyncio.sleep(3600)
        assert time.time() - began >= 3600
        assert world.seed != 2, "the hour of seed two"

    @pytest.mark.asyncio
    async def test_frozen_at_the_end(world, cluster):
        with world.host("w1"):
            asyncio.create_task(asyncio.sleep(1e6))
        world.crash("w1")
        world.freeze("broker-1")

    @pytest.mark.asyncio
    async def test_real():
        began = time.time()
        await asyncio.sleep(0.01)
        assert time.time() > 1.7e9 and time.time() - began < 5
"""
HIDES_TIME_MACHINE = """
import importlib.util

old = importlib.util.find_spec
importlib.util.find_spec = lambda name, *more: None if name == "time_machine" else old(name, *more)
"""
REPLAY = "--kwire-seed=3 replays it"


def test_the_seed_that_fails_is_told_with_its_story(tmp_path: Path) -> None:
    run = run_pytest(tmp_path, DECORATED)
    assert run.counts == {"failed": 1}
    assert "the day of seed three" in run.text and REPLAY in run.text
    assert re.search(r"kwire: seed 3, 100[.][0-9]+ virtual seconds", run.text)
    assert "broker 3 is up" in run.text and "weather 1: " in run.text
    assert "kwire/virtual/world.py" not in run.text  # no frames of kwire's


def test_options_choose_and_leave_out(tmp_path: Path) -> None:
    assert run_pytest(tmp_path, DECORATED, "--kwire-seed=2").counts == {"passed": 1}
    assert run_pytest(tmp_path, DECORATED, "--kwire-seeds=3").counts == {"passed": 1}
    run = run_pytest(tmp_path, DECORATED, "--kwire-seed=3", "--kwire-without=weather 1,weather 2")
    assert "weather 1: " not in run.text and "weather 3: " in run.text
    run = run_pytest(tmp_path, DECORATED, "--kwire-shrink", "--kwire-seed=3")
    assert "(no weather)" in run.text and '--kwire-without="weather ' in run.text
    assert run_pytest(
        tmp_path, DECORATED, "--kwire-seeds=2", "--kwire-check-determinism"
    ).counts == {"passed": 1}
    run = run_pytest(tmp_path, DECORATED, "--kwire-seeds=0")
    assert run.status and "--kwire-seeds: expected a number from 1, not 0" in run.text


@pytest.mark.parametrize("options", [("-p", "no:asyncio"), ()])
def test_the_fixture_runs_a_test_of_each_seed(tmp_path: Path, options: tuple[str, ...]) -> None:
    run = run_pytest(tmp_path, FIXTURE, *options)
    assert run.counts == {"passed": 3, "failed": 1}
    assert "test_it[seed2]" in run.text and "--kwire-seed=2 replays it" in run.text


def test_with_pytest_asyncio_async_fixtures_are_in_virtual_time_too(tmp_path: Path) -> None:
    run = run_pytest(tmp_path, ASYNCIO)
    assert run.counts == {"passed": 4, "failed": 1}
    assert "the hour of seed two" in run.text and "kill broker 1" in run.text
    assert run_pytest(tmp_path, ASYNCIO, "--asyncio-mode=auto", "--kwire-seed=1").counts == {
        "passed": 3
    }


def test_an_option_that_pytest_asyncio_leaves_no_room_for_is_a_warning(tmp_path: Path) -> None:
    run = run_pytest(
        tmp_path, ASYNCIO, "-k", "seed0", "--kwire-shrink", "--kwire-check-determinism"
    )
    for option in ("--kwire-shrink", "--kwire-check-determinism"):
        assert f"{option} has no effect here: pytest-asyncio runs this test" in run.text


def test_bad_marker_and_option(tmp_path: Path) -> None:
    source = FIXTURE.replace("seeds=3, weather=True", "seed=3")
    run = run_pytest(tmp_path, source)
    assert "marker kwire_virtual: expected seeds, weather, limit, real, not 'seed'" in run.text
    source = FIXTURE.replace("weather=True", "weather='hail'")
    run = run_pytest(tmp_path, source)
    assert "weather: expected kinds of latency, cut" in run.text


def test_a_deadlock_is_told_without_frames_of_kwire(tmp_path: Path) -> None:
    source = """
        import asyncio
        from kwire import virtual

        @virtual.test
        async def test_it(world):
            await asyncio.Event().wait()
    """
    run = run_pytest(tmp_path, source)
    assert "DeadlockError: deadlock: nothing is ready" in run.text
    assert "test_it.py:7" not in run.text and "loop.py" not in run.text
    assert "Task-1 (test_it) waits" in run.text


def test_without_time_machine_one_line_says_what_to_install(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(HIDES_TIME_MACHINE)
    run = run_pytest(tmp_path, FIXTURE)
    assert "pip install 'kwire[virtual]'" in run.text


def test_short_ones_run_in_real_time(tmp_path: Path) -> None:
    source = """
        import time
        from kwire import virtual

        @virtual.test(seeds=5, real=True)
        async def test_short(world):
            with world.host("w1"):
                async with world.cluster(topics=["t"]) as cluster:
                    await cluster.produce("t", "x")
                    assert time.time() > 1.77e9 and not world.virtual

        @virtual.test
        async def test_long(world): ...

        @virtual.test(real=True)
        async def test_frozen(world):
            world.freeze("w1")
    """
    run = run_pytest(tmp_path, source, "--kwire-time=real", "-rs")
    assert run.counts == {"passed": 1, "skipped": 2}
    assert (
        "takes too long in real time" in run.text and "world.freeze needs virtual time" in run.text
    )
