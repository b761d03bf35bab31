"""What happened in a world, in virtual time and in words: for the report of a seed that fails."""

from __future__ import annotations

import math
from contextlib import suppress

from kwire.errors import KwireError
from kwire.replication.core.metadata import INTERNAL_TOPICS
from kwire.virtual.surroundings import EPOCH_SECONDS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from kwire.virtual.cluster import VirtualCluster
    from kwire.virtual.world import World

_LINES = 80
_LEFT_OUT = {
    *("LISTENER_STARTED", "NODE_STOPPED", "CONNECTION_CLOSED", "CONNECTION_OPENED"),
    *("PARTITION_CHANGED", "ISR_UPDATED", "ISR_SHRINK_PROPOSED", "ISR_EXPAND_PROPOSED"),
    *("FOLLOWER_FETCHER_STARTED", "FOLLOWER_FENCED", "PARTITION_FETCH_FAILED", "ROLES_CHANGED"),
    *("LEADER_UNREACHABLE", "LEADER_REACHABLE", "PEER_CONNECTION_ENDED"),
}
"""What another line says, too."""


class Story:
    """Lines with the time at which they happened."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._own: list[tuple[float, str]] = []
        self._events: list[tuple[float, str]] = []
        self._seen: dict[int, int] = {}

    def add(self, text: str) -> None:
        """Add a line: something was done to the world."""
        self._own.append((math.floor(self._world.now * 1000) / 1000, text))  # as precise as events

    async def take(self, cluster: VirtualCluster) -> None:
        """Take over what the nodes of a cluster have reported."""
        with suppress(KwireError):
            for event in await cluster.events(since=self._seen.get(id(cluster), 0)):
                self._seen[id(cluster)] = max(self._seen.get(id(cluster), 0), event.number)
                if event.name not in _LEFT_OUT and event.fields.get("topic") not in INTERNAL_TOPICS:
                    self._events.append((event.time_ms / 1000 - EPOCH_SECONDS, event.words))

    def lines(self) -> list[str]:
        """The story in the order of time, "   12.345 s  broker-2 is killed"."""
        found = sorted([*self._own, *self._events], key=lambda line: line[0])
        told = [f"{at:12.3f} s  {text}" for at, text in found]
        if len(told) > _LINES:
            half = _LINES // 2
            left = f"{'':12}    … {len(told) - _LINES} more …"
            told = [*told[:half], left, *told[-half:]]
        return told
