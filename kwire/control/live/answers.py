"""Answers of the control API that are no JSON object, and what a request's headers say of the answer.

A handler returns a `Text`, a `Coming` or a `Stream` in place of the JSON value; `http.py` writes it.
"""

from __future__ import annotations

from dataclasses import dataclass

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping

    Headers = Mapping[str, str]
    """Of a request; names in lower case, values of the same name with commas between."""

EVENT_STREAM = "text/event-stream"
HTML = "text/html"
LAST_EVENT_ID = "last-event-id"
NO_HEADERS: Headers = {}


@dataclass(frozen=True, slots=True)
class Text:
    """An answer of its own media type, with further headers."""

    media_type: str
    body: bytes
    headers: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Coming:
    """An answer of the nodes in a process that takes more than a step; of HTTP alone."""

    make: Callable[[], Awaitable[Text]]


@dataclass(frozen=True, slots=True)
class Stream:
    """An answer that goes on until its client ends it, or the API does."""

    media_type: str
    parts: AsyncGenerator[bytes]


def accepts(headers: Headers, media_type: str) -> bool:
    """Whether the Accept header names this media type, and not by a wildcard."""
    wanted = headers.get("accept", "").lower().split(",")
    return media_type in (each.partition(";")[0].strip() for each in wanted)
