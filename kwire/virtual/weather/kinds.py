"""The kinds of weather: each begins something, and says what it was and how it ends."""

from __future__ import annotations

import math
from dataclasses import dataclass

TYPE_CHECKING = False
if TYPE_CHECKING:
    import random
    from collections.abc import Awaitable, Callable, Sequence
    from typing import Any, Self, TypeVar

    from kwire.virtual.weather.weather import Weathering

    T = TypeVar("T")
    Begun = tuple[str, Callable[[], None] | None, Callable[[], Awaitable[None]] | None]
    """What has begun, how it is undone at once, and what repairs it."""

_SHORTEST_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class Draw:
    """What is drawn for one event, always the same count of numbers: its kind, length, target and more."""

    kind: float
    seconds: float
    target: float
    other: float
    strength: float

    @classmethod
    def of(cls, source: random.Random, longest: float) -> Self:
        shares = [source.random() for _ in range(5)]
        low, high = math.log(_SHORTEST_SECONDS), math.log(max(longest, _SHORTEST_SECONDS * 2))
        seconds = math.exp(low + (high - low) * shares[1])  # most are short, a few are long
        return cls(shares[0], seconds, *shares[2:])

    def choose(self, kinds: Sequence[str]) -> str:
        return kinds[int(self.kind * len(kinds))]

    def one_of(self, found: Sequence[T], share: float | None = None) -> T:
        return found[int((self.target if share is None else share) * len(found))]


def _hosts(weather: Weathering, *, nodes: bool = True) -> list[str]:
    """The hosts that something may happen to: brokers, and the application's own."""
    hosts = weather.world.hosts
    return [each for each, is_node in hosts.items() if each != "app" and (nodes or not is_node)]


def _brokers(weather: Weathering) -> list[tuple[Any, int]]:
    clusters = [each for each in weather.world.clusters if each.started]
    return [(each, broker.id) for each in clusters for broker in each.brokers]


async def latency(weather: Weathering, draw: Draw) -> Begun | None:
    """A link gets slow: 5 ms to 5 s more a segment."""
    link = _link(weather, draw)
    if link is None:
        return None
    links, seconds = weather.world.links, math.exp(math.log(0.005) + math.log(1000) * draw.strength)
    links.delay(link, seconds)
    what = f"{_named(link)}: each segment takes {1000 * seconds:.0f} ms more"
    return what, lambda: links.undelay(link, seconds), None


async def cut(weather: Weathering, draw: Draw) -> Begun | None:
    """A link is cut."""
    link = _link(weather, draw)
    if link is None:
        return None
    links = weather.world.links
    links.cut(link)
    return f"{_named(link)}: cut off from each other", lambda: links.heal(link), None


async def reset(weather: Weathering, draw: Draw) -> Begun | None:
    """All connections of a host are reset."""
    hosts = _hosts(weather)
    if not hosts:
        return None
    host = draw.one_of(hosts)
    found = sum(
        weather.world.links.reset(frozenset((host, each)))
        for each in weather.world.hosts
        if each != host
    )
    return f"{host}: {found} connection(s) reset", None, None


async def freeze(weather: Weathering, draw: Draw) -> Begun | None:
    """A host stands still."""
    hosts = _hosts(weather)
    if not hosts:
        return None
    host, loop = draw.one_of(hosts), weather.world.loop
    loop.freeze(host)
    return f"{host} is frozen", lambda: loop.thaw(host), None


async def kill(weather: Weathering, draw: Draw) -> Begun | None:
    """A broker is killed, and started again; never two at once."""
    brokers = _brokers(weather)
    if not brokers or weather.killed:
        return None
    cluster, broker_id = draw.one_of(brokers)
    broker = cluster.broker(broker_id)
    if not broker.running or broker.paused:
        return None
    weather.killed[cluster, broker_id] = None

    async def start() -> None:
        if cluster.started:
            await broker.start()
        weather.killed.pop((cluster, broker_id), None)  # now: a start that is cancelled is repaired

    await broker.kill()
    return f"{cluster.host_of(broker_id)} is killed", None, start


async def slow_disk(weather: Weathering, draw: Draw) -> Begun | None:
    """A broker's disk is slow: it stands still for 1 to 200 ms with each write."""
    brokers = _brokers(weather)
    if not brokers:
        return None
    cluster, broker_id = draw.one_of(brokers)
    host, slow = cluster.host_of(broker_id), weather.slow
    seconds = slow[host] = math.exp(math.log(0.001) + math.log(200) * draw.strength)

    def mend() -> None:
        slow.pop(host, None)

    return f"{host}: each write takes {1000 * seconds:.0f} ms", mend, None


async def rebalance(weather: Weathering, draw: Draw) -> Begun | None:
    """The members of groups are asked to join again."""
    clusters = [each for each in weather.world.clusters if each.started]
    if not clusters:
        return None
    cluster = draw.one_of(clusters)
    fault = await cluster.faults.inject("Heartbeat", error="REBALANCE_IN_PROGRESS", times=2)

    async def remove() -> None:
        if cluster.started:
            await fault.remove()

    return "groups rebalance", None, remove


KINDS: dict[str, Callable[[Weathering, Draw], Awaitable[Begun | None]]] = {
    "latency": latency,
    "cut": cut,
    "reset": reset,
    "freeze": freeze,
    "kill": kill,
    "slow disk": slow_disk,
    "rebalance": rebalance,
}


def _link(weather: Weathering, draw: Draw) -> frozenset[str] | None:
    hosts = _hosts(weather)
    if len(hosts) < 2:
        return None
    one = draw.one_of(hosts)
    others = [each for each in hosts if each != one]
    return frozenset((one, draw.one_of(others, draw.other)))


def _named(link: frozenset[str]) -> str:
    return " and ".join(sorted(link))
