"""New events of a cluster as they come, for any number of readers at once.

While there is a reader the nodes are asked for their new events every `POLL_SECONDS`. A reader is a position in the
cluster's history and no queue of its own: one that is slow costs nothing, and learns how many events it has missed
when the history does not keep them any more.
"""

from __future__ import annotations

import asyncio
from contextlib import contextmanager, suppress

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from kwire.backends.history import EventHistory, News

POLL_SECONDS = 0.1
PATIENCE_SECONDS = 0.05
"""How long those that have answered wait for a node that has not, so that events are in the order of time."""
BATCH = 100


class Feed:
    """The readers of one history; they are on its event loop."""

    def __init__(self, history: EventHistory) -> None:
        self.history = history
        self.news = asyncio.Event()
        """Set when there are new events; the next ones set another."""
        self.readers = 0
        self._polling: asyncio.Task[None] | None = None
        self._asked: dict[
            int, asyncio.Task[News | None]
        ] = {}  # by node: a slow one holds up no other

    @contextmanager
    def reader(self, since: int = 0) -> Iterator[Reader]:
        """A reader of the events with numbers above `since`; all that are kept, if there is no such number yet: it
        is of another run."""
        self.readers += 1
        if self._polling is None:
            self._polling = asyncio.get_running_loop().create_task(self._poll())
        try:
            yield Reader(self, since)
        finally:
            self.readers -= 1
            if not self.readers:
                self._end()

    def _end(self) -> None:
        polling, self._polling = self._polling, None
        asked, self._asked = self._asked, {}
        for task in (polling, *asked.values()):
            if task is not None:
                task.cancel()

    async def _poll(self) -> None:
        last = self.history.number
        while True:
            await self._ask_nodes()
            if self.history.number != last:
                last = self.history.number
                self.news.set()
                self.news = asyncio.Event()
            await asyncio.sleep(POLL_SECONDS)

    async def _ask_nodes(self) -> None:
        loop = asyncio.get_running_loop()
        for handle in self.history.handles():
            if handle.node_id not in self._asked:
                question = self.history.news_of(handle)
                self._asked[handle.node_id] = loop.create_task(question)
        if self._asked:
            await asyncio.wait(self._asked.values(), timeout=PATIENCE_SECONDS)
        answered = {node: task for node, task in self._asked.items() if task.done()}
        for node in answered:
            del self._asked[node]
        self.history.add_news([news for task in answered.values() if (news := _result(task))])


def _result(task: asyncio.Task[News | None]) -> News | None:
    """What a node has answered; an exception is a bug, of which readers must not get stuck."""
    if task.cancelled():
        return None
    if (error := task.exception()) is not None:
        asyncio.get_running_loop().call_exception_handler(
            {"message": "the events of a node were not understood", "exception": error}
        )
        return None
    return task.result()


class Reader:
    """A position in the history of a cluster."""

    def __init__(self, feed: Feed, since: int) -> None:
        self._feed = feed
        self._number = since if since <= feed.history.number else 0

    async def next(self, seconds: float) -> tuple[int, list[dict[str, Any]]]:
        """The events that have come since, at most `BATCH`, and how many were missed before them or between; none
        when none has come within so many seconds."""
        news = self._feed.news
        found = self._feed.history.numbered(self._number)
        if not found:
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await news.wait()
            found = self._feed.history.numbered(self._number)
        if not found:
            return 0, []
        del found[BATCH:]
        missed = found[-1]["number"] - self._number - len(found)
        self._number = found[-1]["number"]
        return missed, found
