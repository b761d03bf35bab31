"""The same seed gives the same run: twice in a process, and in processes with other hash seeds."""

import asyncio
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from kwire.virtual import World, running

EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "virtual"
SCENARIOS = (
    ("test_01_commits", "auto_commit"),
    ("test_02_pool", "True"),
    ("test_03_outbox", "False"),
    ("test_04_exactly_once", "True"),
    ("test_06_cache", "until_end"),
    ("test_07_slow_handler", "on_the_loop"),
    ("test_08_replies", "True"),
    ("test_09_once", "60.0"),
    ("test_10_scheduler", "True"),
    ("test_11_shutdown", "True"),
    ("test_12_order", "send_again"),
)
PRINT_DIGESTS = """
import importlib, logging, sys
sys.path.insert(0, {folder!r})
logging.disable(logging.CRITICAL)
import kit
from kwire.virtual import running
for name, app in {scenarios!r}:
    module = importlib.import_module(name)
    main = kit.lambda_of(module.scenario, eval(app, vars(module)))
    settings = {{"weather": getattr(module, "WEATHER", None)}}
    for seed in range({seeds}):
        found = running.attempt(main, seed, **settings)
        print(name, seed, found.digest, type(found.error).__name__, flush=True)
"""


def digests(processes: int, seeds: int, scenarios: Any = SCENARIOS) -> list[str]:
    """What each of some processes at once has printed; each has a hash seed of its own."""
    program = PRINT_DIGESTS.format(folder=str(EXAMPLES), scenarios=scenarios, seeds=seeds)
    command = [sys.executable, "-W", "ignore", "-c", program]
    running_ = [
        subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONHASHSEED": str(17 * number)},
        )
        for number in range(processes)
    ]
    printed = [process.communicate(timeout=3000)[0] for process in running_]
    assert all(process.returncode == 0 for process in running_)
    return printed


def test_two_processes_with_other_hash_seeds_see_the_same() -> None:
    one, other = digests(2, 1)
    assert len(one.splitlines()) == len(SCENARIOS)
    assert one == other


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_a_thousand_seeds_in_eight_processes() -> None:
    first, *others = digests(8, 1000 // len(SCENARIOS) + 1)
    assert len(first.splitlines()) >= 1000
    assert all(each == first for each in others)


async def with_the_clock_of_the_machine(world: World) -> None:
    async with world.cluster(topics=["t"]) as cluster:
        await cluster.produce("t", "x")
        if os.times().user > with_the_clock_of_the_machine.last:  # type: ignore[attr-defined]
            await cluster.produce("t", "y")
        with_the_clock_of_the_machine.last = 1e9  # type: ignore[attr-defined]
        await asyncio.sleep(1)


def test_the_first_line_that_differs_is_shown() -> None:
    with_the_clock_of_the_machine.last = 0.0  # type: ignore[attr-defined]
    first = running.attempt(with_the_clock_of_the_machine, 3)
    second = running.attempt(with_the_clock_of_the_machine, 3)
    error = running.checked_again(first, second).error
    assert isinstance(error, running.NondeterminismError)
    lines = str(error).splitlines()
    assert lines[0].startswith("seed 3: two runs are not the same; the first difference is request")
    assert lines[1].startswith("  first run:  ") and "app → broker-1  Metadata v" in lines[1]
    assert lines[2] == "  second run: (it has ended)"


def test_seeds_are_different_days() -> None:
    async def main(world: World) -> None:
        async with world.cluster(brokers=3, topics=["t:1:3"]) as cluster:
            await cluster.produce("t", "x")

    found = [running.attempt(main, seed) for seed in range(10)]
    assert [each.error for each in found] == [None] * 10
    assert len({each.digest for each in found}) == 10
