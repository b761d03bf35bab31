"""The newest events of one node, kept in memory: `Cluster.events`, `GET /v1/events`, `kwire report`.

An event costs one append to a bounded deque, whatever the log level is; its sentence and its JSON
form are made when somebody reads them. Events below INFO are not kept.
"""

from __future__ import annotations

import time
from collections import deque

from kwire.replication.core.events import INFO
from kwire.server.logs import json_value, write

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import Any

    from kwire.replication.core.outbox import Log

KEPT = 2000
LEVELS = {10: "debug", 20: "info", 30: "warning", 40: "error"}


class NodeEvents:
    """The newest `kept` events of one run of a node, numbered one after the other.

    The first number of a run is the machine's uptime in microseconds when the run started, so that
    the numbers of a node go on rising across its restarts."""

    __slots__ = ("_entries", "_first", "_name", "_next", "_node_id")

    def __init__(self, node_id: int, name: str | None = None, kept: int = KEPT) -> None:
        """`name`: how logs call the node."""
        self._node_id = node_id
        self._name = name
        self._entries: deque[Log] = deque(maxlen=kept)
        self._first = self._next = time.monotonic_ns() // 1000

    def write(self, effect: Log) -> None:
        """Log an event of the core and keep it."""
        if effect.event.level >= INFO:
            self._entries.append(effect)
            self._next += 1
        write(effect, self._node_id, self._name)

    def since(self, number: int = 0) -> tuple[list[dict[str, Any]], int]:
        """The kept events with numbers above `number` as JSON objects, oldest first; and how many
        between it and the first of them are not kept any more."""
        if number >= self._next - 1:
            return [], 0
        first = self._next - len(self._entries)
        dropped = max(0, first - max(number + 1, self._first))
        found = [
            event_object(each, self._node_id, own)
            for own, each in enumerate(self._entries, first)
            if own > number
        ]
        return found, dropped


def event_object(log: Log, node: int | None, number: int) -> dict[str, Any]:
    """The JSON object of an event: number, time_ms, node, event, level, message, fields."""
    return {
        "number": number,
        "time_ms": log.time_ms,
        "node": node,
        "event": log.event.name,
        "level": LEVELS[log.event.level],
        "message": log.text,
        "fields": {name: _plain(value) for name, value in log.fields.items()},
    }


def matching(
    found: Iterable[dict[str, Any]],
    name: str | None = None,
    topic: str | None = None,
    broker: int | None = None,
) -> Iterator[dict[str, Any]]:
    """The events of this name, about this topic, reported by or about this broker."""
    for each in found:
        fields = each["fields"]
        about = (each["node"], fields.get("broker_id"), fields.get("node_id"), fields.get("leader"))
        if (
            name in (None, each["event"])
            and topic in (None, fields.get("topic"))
            and (broker is None or broker in about)
        ):
            yield each


def _plain(value: object) -> object:
    if value is None or isinstance(value, str | int | float | bool):
        return value
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(each) for each in value]
    return json_value(value)
