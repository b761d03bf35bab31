"""The weather of a world: what goes wrong by itself, drawn from the seed.

The kinds are those of the simulator, as far as an application can meet them. Each has a number in the order of the
draw ("weather 3"), begins and ends by itself, and draws the same numbers whether the others happen or not: so a
failure can be looked for with some of them left out (`--kwire-shrink`).
"""

from __future__ import annotations

import asyncio
import random
from contextlib import suppress
from dataclasses import dataclass, field

from kwire.errors import ConfigurationError, KwireError
from kwire.virtual.hosts import context_of
from kwire.virtual.weather.kinds import KINDS, Draw

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from kwire.virtual.world import World

HOST = "weather"


@dataclass(frozen=True, slots=True)
class Weather:
    """How often something goes wrong, and what. `Weather(every=30, kinds=["freeze", "kill"])`."""

    every: float = 15.0
    """Seconds between two beginnings, on average."""
    kinds: tuple[str, ...] = field(default=tuple(KINDS))
    """latency, cut, reset, freeze, kill, slow disk, rebalance."""
    longest: float = 60.0
    """Seconds that the longest one lasts."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "kinds", tuple(self.kinds))
        unknown = [each for each in self.kinds if each not in KINDS]
        if unknown or not self.kinds:
            raise ConfigurationError(
                f"weather: expected kinds of {', '.join(KINDS)}, not {unknown}"
            )
        for name in ("every", "longest"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | float) or value <= 0:
                raise ConfigurationError(
                    f"weather: {name}: expected seconds above 0, not {value!r}"
                )

    @classmethod
    def of(cls, given: Weather | bool | str | None) -> Weather | None:
        """What `weather=` means: True is the default, a text one kind or several ("freeze, kill")."""
        if given is None or given is False:
            return None
        if given is True:
            return cls()
        if isinstance(given, str):
            return cls(kinds=tuple(each.strip() for each in given.split(",")))
        if not isinstance(given, Weather):
            raise ConfigurationError(f"weather: expected True, kinds, or a Weather, not {given!r}")
        return given


class Weathering:
    """The weather as it goes on in one world."""

    def __init__(self, world: World, weather: Weather | None) -> None:
        self.world, self._weather = world, weather
        self._random = random.Random(f"{world.seed} weather")
        self._tasks: dict[asyncio.Task[Any], None] = {}
        self._undo: dict[str, Callable[[], None]] = {}
        self.killed: dict[tuple[Any, int], None] = {}
        self.slow: dict[str, float] = {}
        """The hosts whose disk is slow, and how many seconds each write takes."""
        self.happened: list[str] = []
        """The names of what has happened so far."""
        self._stopped = weather is None

    def start(self) -> None:
        """Begin, unless it has begun."""
        if self._weather is not None and not self._tasks and not self._stopped:
            self._start(self._go_on(self._weather))

    def _start(self, coroutine: Any) -> None:
        task = self.world.loop.create_task(coroutine, context=context_of(HOST), name=HOST)
        self._tasks[task] = None
        task.add_done_callback(lambda done: self._tasks.pop(done, None))

    async def _go_on(self, weather: Weather) -> None:
        number = 0
        while True:
            number += 1
            draw = Draw.of(self._random, weather.longest)
            pause, kind = self._random.expovariate(1 / weather.every), draw.choose(weather.kinds)
            await asyncio.sleep(pause)
            name = f"weather {number}"
            if name not in self.world.without:
                self._start(self._happen(name, kind, draw))

    async def _happen(self, name: str, kind: str, draw: Draw) -> None:
        with suppress(KwireError):  # a cluster that stops, a broker that somebody else has killed
            begun = await KINDS[kind](self, draw)
            if begun is None:
                return  # there is nothing it could happen to
            what, undo, repair = begun
            self.happened.append(name)
            self.world.story.add(f"{name}: {what}, for {draw.seconds:.1f} s")
            if undo is not None:
                self._undo[name] = undo
            await asyncio.sleep(draw.seconds)
            if undo is not None and self._undo.pop(name, None) is not None:
                undo()
            if repair is not None:
                await repair()
            self.world.story.add(f"{name}: over")

    def written(self, path: str) -> None:
        """A node has written to its disk: with a slow one it stands still."""
        host = path.strip("/").replace("/", "-").removeprefix("kwire-")
        if (
            self.slow
            and (seconds := self.slow.get(host))
            and host not in self.world.loop.frozen_hosts
        ):
            loop = self.world.loop
            loop.freeze(host)
            loop.call_later(seconds, loop.thaw, host, context=context_of(HOST))

    def stop(self) -> None:
        """End all that goes on, but for brokers that are down."""
        self._stopped = True
        for task in list(self._tasks):
            task.cancel()
        undo, self._undo = self._undo, {}
        for each in undo.values():
            each()

    async def let_go(self) -> None:
        """Wait until nothing more is done to a cluster."""
        if self._stopped:
            await asyncio.gather(*list(self._tasks), return_exceptions=True)

    async def repair(self) -> None:
        """Start the brokers that the weather has killed."""
        await self.let_go()
        while self.killed:
            cluster, broker_id = next(iter(self.killed))
            del self.killed[cluster, broker_id]
            if cluster.started:
                await cluster.broker(broker_id).start()
