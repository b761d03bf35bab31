"""`GET /v1/events` of a cluster: the events that are kept, as JSON, or with those to come as a stream.

The stream is of server-sent events (the HTML standard, 9.2): `id` is the number of an event, `data` its JSON object,
and `event` says "message", so that a browser's `onmessage` gets all of them, or "missed": the reader was too slow, or
asks for events that are not kept any more, and `data` has how many. A comment is sent when nothing else was for
`HEARTBEAT_SECONDS`.
"""

from __future__ import annotations

import asyncio
import json

from kwire.control.errors import ControlError
from kwire.control.live.answers import EVENT_STREAM, LAST_EVENT_ID, Stream

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import AsyncGenerator
    from typing import Any

    from kwire.aio import Cluster
    from kwire.control.live.answers import Headers

HEARTBEAT_SECONDS = 15.0
MAX_READERS = 100
_MAX_ID_DIGITS = 18
_RETRY = b"retry: 1000\n\n"  # milliseconds until a browser connects again
_HEARTBEAT = b": nothing new\n\n"


async def events(
    cluster: Cluster, since: int | None, name: str | None, topic: str | None, broker: int | None
) -> dict[str, Any]:
    """The newest events of the cluster, those with numbers above `since`."""
    from kwire.server.event_history import matching

    history = cluster.inside.events
    await history.collect()
    found = list(matching(history.objects(since or 0), name, topic, broker))
    return {"events": found, "dropped": history.dropped}


async def stream(
    cluster: Cluster,
    headers: Headers,
    since: int | None,
    name: str | None,
    topic: str | None,
    broker: int | None,
) -> Stream:
    """The events above `since`, or above the last one that the client says it has had, and those to come."""
    if cluster.inside.events.feed.readers >= MAX_READERS:
        raise ControlError(503, f"{MAX_READERS} readers have this stream, no more are let in")
    given = headers.get(LAST_EVENT_ID, "").strip()
    if given:
        if not (given.isascii() and given.isdigit() and len(given) <= _MAX_ID_DIGITS):
            raise ControlError(400, f"Last-Event-ID: expected a number, not {given[:20]!r}")
        since = int(given)
    return Stream(EVENT_STREAM, _parts(cluster, since or 0, (name, topic, broker)))


async def _parts(
    cluster: Cluster, since: int, which: tuple[str | None, str | None, int | None]
) -> AsyncGenerator[bytes]:
    from kwire.server.event_history import matching

    time = asyncio.get_running_loop().time
    yield _RETRY
    with cluster.inside.events.feed.reader(since) as reader:
        due = time() + HEARTBEAT_SECONDS
        while True:
            missed, found = await reader.next(max(0.0, due - time()))
            parts = [_missed(missed, found[0]["number"])] if missed else []
            parts += [_message(each) for each in matching(found, *which)]
            if parts or time() >= due:
                due = time() + HEARTBEAT_SECONDS
                yield b"".join(parts) or _HEARTBEAT


def _message(event: dict[str, Any]) -> bytes:
    return f"id: {event['number']}\nevent: message\ndata: {json.dumps(event)}\n\n".encode()


def _missed(count: int, before: int) -> bytes:
    data = json.dumps({"missed": count})
    return f"id: {before - 1}\nevent: missed\ndata: {data}\n\n".encode()
