"""Runs a coroutine function in worlds: one seed (`run`), or a test many (`test`)."""

from __future__ import annotations

import functools
import inspect
import os
import unittest
from dataclasses import dataclass

from kwire.errors import ConfigurationError
from kwire.virtual import options
from kwire.virtual.errors import VirtualTimeError
from kwire.virtual.world import DAY_SECONDS, World

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable
    from types import TracebackType
    from typing import Any, TypeVar

    from kwire.virtual.network.requests import Line
    from kwire.virtual.weather.weather import Weather

    T = TypeVar("T")
    Main = Callable[..., Coroutine[Any, Any, T]]

_WORLD = "world"
_KEPT = 3


class NondeterminismError(VirtualTimeError):
    """Two runs of a seed were not the same."""


@dataclass(slots=True)
class Outcome:
    """How the run of one seed has ended."""

    seed: int
    value: Any
    error: BaseException | None
    now: float
    """Virtual seconds."""
    lines: list[Line]
    digest: str
    story: list[str]
    weather: list[str]
    """What has happened, by name."""
    hosts: list[str]
    """The application's own."""
    without: tuple[str, ...]


failed: list[Outcome] = []
"""Of the tests that have failed and were not reported yet: for the pytest plugin."""


def attempt(main: Main[Any], seed: int, without: Iterable[str] = (), **settings: Any) -> Outcome:
    """Run one seed; what it raises is in the outcome. `settings`: as of World."""
    world = World(seed, without=without, **settings)
    value, error = None, None
    try:
        value = world.run(main)
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as raised:  # pytest.fail is no Exception
        error = raised.with_traceback(_from_application(raised.__traceback__))
    return outcome_of(world, value, error)


def _from_application(entry: TracebackType | None) -> TracebackType | None:
    """A traceback from the first frame that is neither kwire's nor asyncio's; None if there is none."""
    while entry is not None:
        module = str(entry.tb_frame.f_globals.get("__name__"))
        if not module.startswith(("kwire.", "asyncio.")):
            return entry
        entry = entry.tb_next
    return None


def outcome_of(world: World, value: Any = None, error: BaseException | None = None) -> Outcome:
    """The outcome of a world that has ended."""
    return Outcome(
        world.seed,
        value,
        error,
        world.now,
        world.trace,
        world.digest,
        world.story.lines(),
        list(world.weather.happened),
        [host for host, is_node in world.hosts.items() if not is_node and host != "app"],
        tuple(sorted(world.without)),
    )


def run(
    main: Main[T],
    seed: int = 0,
    *,
    weather: Weather | bool | str | None = None,
    limit: float = DAY_SECONDS,
) -> T:
    """Run `main(world)` in virtual time and return its result. `limit`: of virtual seconds (TimeLimitError).

    What it raises has a note that tells the seed and what happened. DeadlockError, SpinError, RefusedError."""
    if not inspect.iscoroutinefunction(main):
        raise ConfigurationError(f"virtual.run: expected a coroutine function, not {main!r}")
    outcome = _run_seed(main, _checked_seed(seed), {"weather": weather, "limit": limit})
    found: T = outcome.value
    return found


def test(
    function: Main[None] | None = None,
    *,
    seeds: int = 20,
    weather: Weather | bool | str | None = None,
    limit: float = DAY_SECONDS,
    real: bool = False,
) -> Any:
    """Make a test of a coroutine function with a parameter `world`: it runs once for each seed, from 0.

    `real`: it is short enough for real time, too (`--kwire-time=real`, and the modes of the `kwire` fixture). The
    test's other parameters stay pytest's fixtures, but not coroutine ones. ConfigurationError."""
    if function is None:
        return functools.partial(test, seeds=seeds, weather=weather, limit=limit, real=real)
    if not inspect.iscoroutinefunction(function):
        raise ConfigurationError(f"virtual.test: expected a coroutine function, not {function!r}")
    signature = _checked_signature(function, seeds)
    settings = {"weather": weather, "limit": limit}
    main: Main[None] = function

    @functools.wraps(main)
    def run_seeds(*arguments: Any, **fixtures: Any) -> None:
        __tracebackhide__ = True

        def of_world(world: Any) -> Coroutine[Any, Any, None]:
            return main(*arguments, **{**fixtures, _WORLD: world})

        if options.given.is_real:
            _run_real(of_world, is_short=real)
            return
        for seed in options.given.seeds_of(seeds):
            _run_seed(of_world, seed, settings)

    kept = [each for name, each in signature.parameters.items() if name != _WORLD]
    run_seeds.__signature__ = signature.replace(parameters=kept)  # type: ignore[attr-defined]
    del run_seeds.__wrapped__  # or pytest would see a coroutine function, and a fixture `world`
    return run_seeds


def _checked_signature(function: Main[None], seeds: object) -> inspect.Signature:
    if isinstance(seeds, bool) or not isinstance(seeds, int) or seeds < 1:
        raise ConfigurationError(f"virtual.test: seeds: expected a number from 1, not {seeds!r}")
    signature = inspect.signature(function)
    if _WORLD not in signature.parameters:
        raise ConfigurationError(
            f"virtual.test: {function.__qualname__} has no parameter `{_WORLD}`"
        )
    return signature


def _run_seed(main: Main[Any], seed: int, settings: dict[str, Any]) -> Outcome:
    __tracebackhide__ = True
    given = options.given
    outcome = attempt(main, seed, given.without, **settings)
    if given.check_determinism:
        outcome = checked_again(outcome, attempt(main, seed, given.without, **settings))
    if outcome.error is None:
        return outcome
    smallest = ""
    if given.shrink and not isinstance(outcome.error, NondeterminismError):
        from kwire.virtual.shrinking import shrink

        outcome, smallest = shrink(
            outcome, lambda without: attempt(main, seed, without, **settings)
        )
    assert outcome.error is not None
    tell(outcome, smallest)
    raise outcome.error


def checked_again(first: Outcome, second: Outcome) -> Outcome:
    """The first of two runs of a seed, failed when the second was another."""
    if first.digest == second.digest:
        return first
    pairs = zip(first.lines, second.lines, strict=False)
    number = next((n for n, (one, two) in enumerate(pairs) if one != two), None)
    if number is None:
        number = min(len(first.lines), len(second.lines))
    before, after = (_line(each.lines, number) for each in (first, second))
    first.error = NondeterminismError(
        f"seed {first.seed}: two runs are not the same; the first difference is request {number + 1}:\n"
        f"  first run:  {before}\n  second run: {after}\n"
        "Look for a set of objects without an order, an id(), a real clock or file, chance from elsewhere than"
        " random and os.urandom."
    )
    return first


def _line(lines: list[Line], number: int) -> str:
    return str(lines[number]).strip() if number < len(lines) else "(it has ended)"


def replay_options(outcome: Outcome) -> str:
    """The options of pytest that replay a run."""
    text = f"{options.REPLAY}={outcome.seed}"
    if outcome.without:
        text += f' {options.WITHOUT}="{",".join(outcome.without)}"'
    return text


def tell(outcome: Outcome, smallest: str = "") -> None:
    """Add to the error of a failed run how to replay it; its story goes to pytest's report, or there, too."""
    assert outcome.error is not None
    text = f"virtual time: seed {outcome.seed}, after {outcome.now:.3f} s; {replay_options(outcome)} replays it"
    outcome.error.add_note(f"{text}{smallest}")
    if "PYTEST_CURRENT_TEST" in os.environ:
        failed.append(outcome)
        del failed[:-_KEPT]
    elif outcome.story:
        outcome.error.add_note("\n".join(outcome.story))


def _run_real(main: Main[None], *, is_short: bool) -> None:
    if not is_short:
        raise unittest.SkipTest(
            "takes too long in real time (virtual.test(real=True) for one that does not)"
        )
    from kwire.virtual.real import run_real

    run_real(main, options.given)


def _checked_seed(seed: object) -> int:
    if isinstance(seed, bool) or not isinstance(seed, int):
        raise ConfigurationError(f"virtual.run: seed: expected a whole number, not {seed!r}")
    return seed
