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
    from kwire.client.views import Event
    from kwire.replication.core.events import EventType

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
        self._number = 0
        self.clock_ms = 0
        """How far the clock of the nodes is ahead of the real one."""
        self._seen: dict[int, int] = {}  # the last number of each node
        self.dropped = 0
        """How many older events are not kept any more."""

    def log(self, kind: EventType, /, **fields: object) -> None:
        """Log an event of the whole cluster, and keep it."""
        from kwire.server.event_history import event_object

        if is_wanted(_log, kind.level):
            sentence = kind.text(fields)
            emit(_log, kind, sentence, None, kind.more_fields, fields, where=_asked_at())
        at_ms = time.time_ns() // 1_000_000 + self.clock_ms
        self._add(event_object(Log(kind, fields, at_ms), None, 0))

    def _add(self, found: dict[str, Any]) -> None:
        self._number += 1
        self.dropped += len(self._entries) == KEPT
        self._entries.append({**found, "number": self._number})

    async def keep(self, handle: NodeHandle) -> None:
        """Fetch the new events of a node, if it answers."""
        if not handle.running or handle.paused:
            return
        node_id = handle.node_id
        after = self._seen.get(node_id, 0)
        with suppress(KwireError), kwire_errors():
            answer = await handle.ask("GET", "/v1/events", {"after": after})
            self.dropped += answer["dropped"]
            for each in answer["events"]:
                self._seen[node_id] = max(self._seen.get(node_id, 0), each["number"])
                self._add({**each, "node": node_id})

    async def collect(self) -> None:
        """Fetch the new events of all nodes that answer."""
        for handle in self._handles():
            await self.keep(handle)

    def objects(self, after: int = 0) -> list[dict[str, Any]]:
        """The kept events as JSON objects, in the order of time; those with numbers above `after`."""
        found = [each for each in self._entries if each["number"] > after]
        found.sort(key=lambda each: each["time_ms"])  # stable: what was asked for comes first
        return found


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
    )
