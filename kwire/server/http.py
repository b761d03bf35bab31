"""A small HTTP/1.1 server for JSON, for the control API (`kwire.control`, `kwire.docker.node_control`).

Answers to no class of Kafka's. It loads when the first byte of the first connection comes; until then the control API
is a bound socket. One request at a time on a connection, bodies by Content-Length only.

Invariants: nothing is read beyond `MAX_HEAD_BYTES` and `MAX_BODY_BYTES`, and nobody is waited for longer than
`READ_SECONDS`; whatever a handler raises becomes an answer; a page of a web browser that another site has sent gets
nothing done (it has an Origin).
"""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from typing import Any

    Handler = Callable[[str, list[str], dict[str, Any]], Awaitable[Any]]

MAX_HEAD_BYTES = 16 << 10
MAX_BODY_BYTES = 64 << 10
READ_SECONDS = 30.0
_REASONS = {
    200: "OK",
    400: "Bad Request",
    403: "Forbidden",
    404: "Not Found",
    405: "Method Not Allowed",
    408: "Request Timeout",
    409: "Conflict",
    413: "Content Too Large",
    500: "Internal Server Error",
    501: "Not Implemented",
    503: "Service Unavailable",
    504: "Gateway Timeout",
}


class HttpError(Exception):
    """A request that is refused: the status, Kafka's name of the error or None, and one line."""

    def __init__(self, status: int, message: str, kafka_error: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.kafka_error = kafka_error


class _Request:
    def __init__(self, method: str, path: list[str], keep: bool, body: dict[str, Any]) -> None:
        self.method, self.path, self.keep, self.body = method, path, keep, body


async def serve_connection(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    handler: Handler,
    status_of: Callable[[Exception], HttpError],
) -> None:
    """Answers the requests of one connection until its end.

    `handler(method, path items, body)` returns what goes out as JSON; `status_of` judges what it raises."""
    try:
        while True:
            try:
                request = await asyncio.wait_for(_read(reader), READ_SECONDS)
                if request is None:
                    return
            except TimeoutError:
                return
            except HttpError as error:
                await _write(writer, error.status, _told(error), keep=False)
                return
            try:
                found, status = await handler(request.method, request.path, request.body), 200
            except HttpError as error:
                found, status = _told(error), error.status
            except Exception as failure:
                judged = status_of(failure)
                found, status = _told(judged), judged.status
            await _write(writer, status, found, keep=request.keep)
            if not request.keep:
                return
    except (OSError, asyncio.IncompleteReadError):
        return
    finally:
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()


def _told(error: HttpError) -> dict[str, Any]:
    return {"error": error.kafka_error, "message": str(error)}


async def _read(reader: asyncio.StreamReader) -> _Request | None:
    """The next request; None at the connection's end. HttpError: nothing more can be made of the connection."""
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError as error:
        if error.partial:
            raise HttpError(400, "the request ends in its head") from None
        return None
    except asyncio.LimitOverrunError:
        raise HttpError(413, f"a head of more than {MAX_HEAD_BYTES} bytes") from None
    first, *lines = head.decode("latin-1").split("\r\n")
    words = first.split(" ")
    if len(words) != 3 or not words[2].startswith("HTTP/1."):
        raise HttpError(400, "expected a request line of HTTP/1.1")
    headers = {}
    for line in lines:
        name, colon, value = line.partition(":")
        if colon:
            headers[name.strip().lower()] = value.strip()
    if "transfer-encoding" in headers:
        raise HttpError(501, "expected a body with Content-Length")
    length = headers.get("content-length", "0")
    if not (length.isascii() and length.isdigit() and len(length) < 10):
        raise HttpError(400, f"Content-Length: expected a number, not {length[:20]!r}")
    if int(length) > MAX_BODY_BYTES:
        raise HttpError(413, f"a body of more than {MAX_BODY_BYTES} bytes")
    body = await reader.readexactly(int(length))
    if "origin" in headers:
        raise HttpError(403, "web pages cannot use the control API")
    keep = words[2] == "HTTP/1.1" and headers.get("connection", "").lower() != "close"
    path = [unquote(item) for item in urlsplit(words[1]).path.strip("/").split("/")]
    return _Request(words[0], path, keep, _parsed(body))


def _parsed(body: bytes) -> dict[str, Any]:
    if not body.strip():
        return {}
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        raise HttpError(400, "the body is no JSON") from None
    if not isinstance(found, dict):
        raise HttpError(400, "expected a JSON object as body")
    return found


async def _write(writer: asyncio.StreamWriter, status: int, found: Any, *, keep: bool) -> None:
    body = json.dumps(found, indent=1).encode() + b"\n"
    writer.write(
        f"HTTP/1.1 {status} {_REASONS[status]}\r\n"
        "Content-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\n"
        f"Connection: {'keep-alive' if keep else 'close'}\r\n\r\n".encode()
        + body
    )
    await writer.drain()


def checked_body(body: dict[str, Any], *names: str, optional: tuple[str, ...] = ()) -> list[Any]:
    """The values of these keys, in this order, then of the optional ones (None). HttpError: others, missing ones."""
    unknown = sorted(body.keys() - {*names, *optional})
    if unknown:
        known = ", ".join((*names, *optional)) or "no keys"
        raise HttpError(400, f"expected {known}, not {unknown[0]!r}")
    missing = [name for name in names if name not in body]
    if missing:
        raise HttpError(400, f"{missing[0]}: missing")
    return [body.get(name) for name in (*names, *optional)]


def requests_listed(kept: dict[int, list[list[Any]]]) -> dict[str, Any]:
    """Requests as `kwire.recent` keeps them, by broker. `milliseconds_ago` null: it is not answered yet."""
    return {
        "requests": [
            {
                "broker": broker_id,
                "milliseconds_ago": ago_ms if ago_ms >= 0 else None,
                "client_id": client_id,
                "api": api,
                "outcome": text,
            }
            for broker_id, entries in kept.items()
            for ago_ms, client_id, api, text in entries
        ]
    }
