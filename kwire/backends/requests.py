"""The last requests of clients at the brokers of a cluster, including brokers that have ended.

A running broker keeps them itself (`kwire.recent`). They are fetched from a broker that is about to
end; later their ages are increased by the time since.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress

from kwire.errors import KwireError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable
    from typing import Any

    from kwire.client.views import Request

    Requests = list[list[Any]]
    """Of one broker, oldest first, as `RecentRequests.list_requests` gives them."""


NOT_KEPT = (
    "requests are not kept: Cluster(recent_requests=True), `kwire up --recent-requests` and"
    " KWIRE_RECENT_REQUESTS=true let brokers keep them"
)


class RequestHistory:
    """The last requests at each broker of a cluster."""

    def __init__(
        self,
        is_kept: bool,
        brokers: Callable[[], Iterable[int]],
        ask: Callable[[int], Awaitable[Requests]],
        forget: Callable[[int], Awaitable[object]],
    ) -> None:
        """`ask`, `forget`: list or drop the requests at one broker. KwireError: no answer."""
        self.is_kept = is_kept
        self._brokers = brokers
        self._ask = ask
        self._forget = forget
        self._ended: dict[int, tuple[float, Requests]] = {}  # by broker: time of the end, requests

    def clear(self) -> None:
        """Drop the requests of brokers that have ended."""
        self._ended.clear()

    async def keep(self, node_id: int) -> None:
        """Fetch the requests of a broker that is about to end."""
        if self.is_kept and node_id in self._brokers():
            with suppress(KwireError):
                now = asyncio.get_running_loop().time()
                self._ended[node_id] = now, await self._ask(node_id)

    async def by_broker(self) -> dict[int, Requests]:
        """The last requests at each broker; {} if they are not kept."""
        if not self.is_kept:
            return {}
        from kwire.recent import add_age

        found: dict[int, Requests] = {}
        now = asyncio.get_running_loop().time()
        for broker_id in self._brokers():
            ended, kept = self._ended.get(broker_id, (now, []))
            found[broker_id] = add_age(kept, round((now - ended) * 1000))
            with suppress(KwireError):
                found[broker_id] += await self._ask(broker_id)
        return found

    async def forget(self) -> None:
        """Drop the requests so far, at all brokers that answer."""
        self.clear()
        for broker_id in self._brokers():
            with suppress(KwireError):
                await self._forget(broker_id)


def to_requests(of_brokers: dict[int, Requests]) -> list[Request]:
    """Entries by broker as objects: oldest first, unanswered ones last."""
    from kwire.client.views import Request

    found = []
    for broker_id, entries in of_brokers.items():
        for ago_ms, client_id, text, outcome, count in entries:
            api, _, version = text.rpartition(" v")
            known = bool(api) and version.isdecimal()
            found.append(
                Request(
                    broker_id,
                    client_id,
                    api if known else text,
                    int(version) if known else -1,
                    outcome,
                    count,
                    ago_ms if ago_ms >= 0 else None,
                )
            )
    found.sort(key=lambda each: 1 if each.milliseconds_ago is None else -each.milliseconds_ago)
    return found
