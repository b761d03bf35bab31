"""`world.network`: what a test does to links between hosts."""

from __future__ import annotations

from collections.abc import Iterable

from kwire.virtual.errors import VirtualTimeError
from kwire.virtual.network.network import milliseconds

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import TypeAlias

    from kwire.virtual.cluster import VirtualCluster
    from kwire.virtual.network.network import Link
    from kwire.virtual.world import World

    Side: TypeAlias = str | VirtualCluster | Iterable[str]


class Links:
    """Links are between hosts; a side is a host's name, several, or a cluster (all its nodes)."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._cut: set[Link] = set()
        self._delayed: set[Link] = set()

    def cut(self, one: Side, other: Side | None = None) -> None:
        """Let nothing through between two sides, or between one and all others, until `heal`.

        What is sent meanwhile arrives then, as with TCP, unless the sender has given up."""
        for link in self._links(one, other) - self._cut:
            self._cut.add(link)
            self._world.links.cut(link)
        self._tell("cut off", one, other)

    def heal(self, one: Side | None = None, other: Side | None = None) -> None:
        """Undo cuts and delays: all, those of a side, or those between two sides."""
        links = None if one is None else self._links(one, other)
        for link in sorted(self._cut if links is None else self._cut & links, key=sorted):
            self._cut.remove(link)
            self._world.links.heal(link)
        for link in list(self._delayed if links is None else self._delayed & links):
            self._delayed.remove(link)
            self._world.links.delay(link, 0)
        self._tell("healed", one, other)

    def delay(self, one: Side, other: Side | None = None, *, ms: float) -> None:
        """Let each segment between two sides travel longer, by milliseconds, until `heal`."""
        seconds = milliseconds("delay", ms)
        for link in self._links(one, other):
            self._world.links.delay(link, 0)
            self._world.links.delay(link, seconds)
            self._delayed.add(link)
        self._tell(f"delayed by {ms:g} ms", one, other)

    def reset(self, one: Side, other: Side | None = None) -> int:
        """Reset all connections between two sides, or of one; return how many there were."""
        found = sum(self._world.links.reset(each) for each in self._links(one, other))
        self._tell(f"{found} connection(s) reset", one, other)
        return found

    def _links(self, one: Side, other: Side | None) -> set[Link]:
        hosts = self._hosts(one)
        others = list(self._world.hosts) if other is None else self._hosts(other)
        return {frozenset((a, b)) for a in hosts for b in others if a != b}

    def _hosts(self, side: Side) -> list[str]:
        if isinstance(side, str):
            found = [side]
        elif hasattr(side, "hosts"):
            found = side.hosts
        elif isinstance(side, Iterable):
            found = list(side)
        else:
            raise VirtualTimeError(f"expected a host, several, or a cluster, not {side!r}")
        for host in found:
            self._world.check_host(host)
        return found

    def _tell(self, what: str, one: Side | None, other: Side | None) -> None:
        if one is None:
            self._world.story.add(f"network: all {what}")
            return
        sides = ", ".join(self._hosts(one))
        more = "all others" if other is None else ", ".join(self._hosts(other))
        self._world.story.add(f"network: {sides} and {more}: {what}")
