"""The newest events of a cluster: those of its nodes, and what was asked of it (kill, cut, elect, …).

Each node keeps its own (`kwire.server.event_history`). They are fetched from a node that is about to
end or to be suspended, and from all others when somebody reads the history.
"""

from __future__ import annotations

import logging
import sys
import time
from collections import deque
from contextlib import suppress
from itertools import takewhile

from kwire.backends.loop_thread import waiting_thread
from kwire.backends.options import kwire_errors
from kwire.errors import KwireError
from kwire.replication.core.outbox import Log
from kwire.server.logs import emit, is_wanted

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from types import FrameType
    from typing import Any

    from kwire.backends.base import NodeHandle
    from kwire.backends.events.feed import Feed
    from kwire.client.views import Event
    from kwire.replication.core.events import EventType

    News = tuple[int, int, list[dict[str, Any]], int]
    """Node, the number after which it was asked, events, and how many between these it does not keep any more."""

_log = logging.getLogger("kwire.aio")

KEPT = 10_000
_PASSED_ON = {"kwire", "contextlib", "concurrent", "threading"}
_LOOPS = {"asyncio", "click"}


class EventHistory:
    """The newest events of one cluster, numbered as they arrive: the number is a cursor, not an order."""

    def __init__(self, handles: Callable[[], Iterable[NodeHandle]]) -> None:
        """`handles`: the nodes that may be asked; none for a cluster that was started elsewhere."""
        self._handles = handles
        self._entries: deque[dict[str, Any]] = deque(maxlen=KEPT)
        self.number = 0
        """The last one that was given; numbers that are left out are those of events that no node has kept."""
        self.clock_ms = 0
        """How far the clock of the nodes is ahead of the real one."""
        self._seen: dict[int, int] = {}  # the last number of each node
        self.dropped = 0
        """How many older events are not kept any more."""
        self._feed: Feed | None = None

    def log(self, kind: EventType, /, **fields: object) -> None:
        """Log an event of the whole cluster, and keep it."""
        from kwire.server.event_history import event_object

        if is_wanted(_log, kind.level):
            sentence = kind.text(fields)
            emit(_log, kind, sentence, None, kind.more_fields, fields, where=_asked_at())
        at_ms = time.time_ns() // 1_000_000 + self.clock_ms
        self._add(event_object(Log(kind, fields, at_ms), None, 0))

    def _add(self, found: dict[str, Any]) -> None:
        from kwire.report.words import words

        self.number += 1
        self.dropped += len(self._entries) == KEPT
        self._entries.append({**found, "number": self.number, "words": words(found)})

    async def keep(self, handle: NodeHandle) -> None:
        """Fetch the new events of a node, if it answers."""
        self.add_news([await self.news_of(handle)])

    async def collect(self) -> None:
        """Fetch the new events of all nodes that answer."""
        self.add_news([await self.news_of(handle) for handle in self._handles()])

    def handles(self) -> list[NodeHandle]:
        """The nodes that may be asked."""
        return list(self._handles())

    async def news_of(self, handle: NodeHandle) -> News | None:
        """What a node has reported since it was asked last; None if it does not answer."""
        if not handle.running or handle.paused:
            return None
        node_id = handle.node_id
        since = self.seen(node_id)
        with suppress(KwireError), kwire_errors():
            answer = await handle.ask("GET", "/v1/events", {"since": since})
            return node_id, since, answer["events"], answer["dropped"]
        return None

    def seen(self, node_id: int) -> int:
        """The number after which a node is to be asked for its events."""
        return self._seen.get(node_id, 0)

    def add_news(self, found: Iterable[News | None]) -> None:
        """Add what nodes have reported, in the order of time; what another question had brought by then, once."""
        new = []
        for node_id, since, events, dropped in filter(None, found):
            seen = self._seen.get(node_id, 0)
            if seen == since:
                self.dropped += dropped
                self.number += dropped
            new += [{**each, "node": node_id} for each in events if each["number"] > seen]
            self._seen[node_id] = max(seen, *(each["number"] for each in events), 0)
        new.sort(key=lambda each: each["time_ms"])
        for each in new:
            self._add(each)

    def objects(self, since: int = 0) -> list[dict[str, Any]]:
        """The kept events as JSON objects, in the order of time; those with numbers above `since`."""
        found = self.numbered(since)
        found.sort(key=lambda each: each["time_ms"])  # stable: what was asked for comes first
        return found

    def numbered(self, since: int = 0) -> list[dict[str, Any]]:
        """The kept events with numbers above `since`, in the order of these."""
        found = list(takewhile(lambda each: each["number"] > since, reversed(self._entries)))
        found.reverse()
        return found

    @property
    def feed(self) -> Feed:
        """New events as they come."""
        if self._feed is None:
            from kwire.backends.events.feed import Feed

            self._feed = Feed(self)
        return self._feed


def _asked_at() -> tuple[str, int, str] | None:
    """File, line and function that asked for something: the test's. None: nobody outside of kwire."""
    found = _outside(sys._getframe(1))
    thread = waiting_thread.get()
    if found is None and thread:  # a test without a loop, which waits in its own thread
        found = _outside(sys._current_frames().get(thread))
    return found


def _outside(frame: FrameType | None) -> tuple[str, int, str] | None:
    while frame is not None:
        room = str(frame.f_globals.get("__name__")).partition(".")[0]
        if room in _LOOPS:
            return None  # whatever runs the loop has not asked
        if room not in _PASSED_ON:
            return frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name
        frame = frame.f_back
    return None


def to_event(found: dict[str, Any]) -> Event:
    """An event's object for Python."""
    from kwire.client.views import Event

    return Event(
        found["number"],
        found["time_ms"],
        found["node"],
        found["event"],
        found["level"],
        found["message"],
        found["fields"],
        found["words"],
    )
