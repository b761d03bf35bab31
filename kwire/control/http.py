"""Serves the control API (`routes.py`) as JSON over HTTP/1.1: h11 over asyncio's streams.

An answer may also be a text of another type, or a stream (`live/answers.py`). Kafka has no counterpart. Loaded
with the first connection; until then the control API is a bound socket.

Invariants: request heads are limited to `MAX_HEAD_BYTES`, bodies to `MAX_BODY_BYTES`, reading a request to
`READ_SECONDS`, reading on after a refusal to `LINGER_SECONDS`; of the connections that wait for a request, or for the
rest of one, the oldest is closed when they are more than `MAX_WAITING`; every exception of a handler becomes an answer,
an error is one line of JSON; requests from web pages of other sites (with another Origin than this host) are refused,
those to a name that may be anybody's (`hosts.py`), and those without the token if there is one (`token.py`), except for
the page, which is the same everywhere; a stream whose client does not
read has one part in memory, and ends at once with the API.
"""

from __future__ import annotations

import asyncio
import json
import logging
from contextlib import aclosing, suppress
from http import HTTPStatus
from urllib.parse import SplitResult, urlsplit

import h11

from kwire.control import TOKEN
from kwire.control.errors import ControlError
from kwire.control.hosts import ALLOWED, host_name
from kwire.control.live.answers import HTML, Stream, Text, accepts
from kwire.control.token import shows
from kwire.server.connection_log import TLS, Repetitions, foreign_protocol
from kwire.server.events import NodeEvent
from kwire.server.listeners import format_address
from kwire.server.logs import event

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from kwire.control.live.answers import Headers
    from kwire.control.routes import Handler

_log = logging.getLogger(__name__)
_refused = Repetitions()

MAX_HEAD_BYTES = 16 << 10
MAX_BODY_BYTES = 64 << 10
READ_SECONDS = 30.0
LINGER_SECONDS = 2.0
LINGER_BYTES = 16 << 20
MAX_WAITING = 250
_READ_BYTES = 16 << 10


class Waiting:
    """The connections of a control API that wait for a request, or for the rest of one: the oldest gives way."""

    def __init__(self) -> None:
        self._writers: dict[asyncio.StreamWriter, None] = {}

    def add(self, writer: asyncio.StreamWriter) -> None:
        self._writers[writer] = None
        if len(self._writers) > MAX_WAITING:
            oldest = next(iter(self._writers))
            del self._writers[oldest]
            oldest.transport.abort()

    def remove(self, writer: asyncio.StreamWriter) -> None:
        self._writers.pop(writer, None)


async def serve_connection(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    handler: Handler,
    is_own_name: Callable[[str], bool],
    token: str | None,
    waiting: Waiting,
) -> None:
    """Answer the requests of one connection until it ends. `is_own_name`: `hosts.Hosts.has`."""
    connection = _Connection(reader, writer, is_own_name, token, waiting)
    try:
        while await connection.answer_one(handler):
            await asyncio.sleep(0)  # requests that have arrived together keep no broker waiting
    except (OSError, TimeoutError):
        return
    except asyncio.CancelledError:  # the API is closed
        _close_now(writer)
        raise
    finally:
        with suppress(OSError, TimeoutError):
            await asyncio.wait_for(_discard_rest(reader, writer), LINGER_SECONDS)
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()


def _close_now(writer: asyncio.StreamWriter) -> None:
    """Close a connection without waiting for its client to read what is left."""
    transport = writer.transport
    if transport.get_write_buffer_size():
        transport.abort()
    writer.close()


async def _discard_rest(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Read on after the last answer: bytes that nobody has read turn a close into a reset, which
    would overtake the answer (RFC 9112 §9.6)."""
    if reader.at_eof() or writer.is_closing():
        return
    writer.write_eof()
    left = LINGER_BYTES
    while left > 0 and (data := await reader.read(_READ_BYTES)):
        left -= len(data)


def _peer(writer: asyncio.StreamWriter) -> tuple[str, int]:
    """Where the client is."""
    try:
        host, port = writer.get_extra_info("peername")[:2]
    except (AttributeError, OSError, RuntimeError, TypeError):
        return "unknown", 0  # it has gone: each is a way of uvloop or asyncio to say so
    return host, port


class _Connection:
    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        is_own_name: Callable[[str], bool],
        token: str | None,
        waiting: Waiting,
    ) -> None:
        self._reader, self._writer = reader, writer
        self._waiting = waiting
        self._is_own_name = is_own_name
        self._token = token
        self._peer = _peer(writer)
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=MAX_HEAD_BYTES)
        self._head = b""  # the first bytes of the connection
        self._is_head = False  # the request is a HEAD, whose answer has no body

    async def answer_one(self, handler: Handler) -> bool:
        """Read one request and answer it; False after the last one.

        OSError, TimeoutError: the connection ends."""
        self._waiting.add(self._writer)
        try:
            found = await asyncio.wait_for(self._read(), READ_SECONDS)
        except h11.RemoteProtocolError as error:
            return await self._refuse(self._no_http(error))
        except ControlError as error:
            return await self._refuse(error)
        finally:
            self._waiting.remove(self._writer)
        if found is None:
            return False
        try:
            self._check_host(found[0])
            is_open = _is_for_the_page(found[0])
            if not is_open:
                self._check_token(found[0])
            answer = await handler(*_parse_request(*found))
            if is_open and not isinstance(answer, Text):  # there is no page here
                self._check_token(found[0])
            if isinstance(answer, Stream):
                return await self._stream(answer)
            return await self._write(200, answer)
        except ControlError as error:
            return await self._refuse(error)

    def _check_host(self, request: h11.Request) -> None:
        """Refuse a name that is not this host's: a page whose name was made to lead here sends its own.

        ControlError (403)."""
        host = next((value for name, value in request.headers if name == b"host"), b"")
        name = host_name(host.decode("latin-1"))
        if not request.target.startswith(b"/"):
            name = (
                _split(request).hostname or name
            )  # of an absolute target it counts (RFC 9112 §3.2.2)
        if name and not self._is_own_name(name):
            text = f"the control API does not go by the name {name[:100]}; {ALLOWED} lets it"
            raise ControlError(403, text)

    def _check_token(self, request: h11.Request) -> None:
        """ControlError (401)."""
        if self._token is None:
            return
        shown = [value for name, value in request.headers if name == b"authorization"]
        if len(shown) != 1 or not shows(shown[0], self._token):
            which = "a wrong token" if shown else "no token"
            text = f"{which}: the control API is for those that show it, by {TOKEN} or its URL"
            raise ControlError(401, text)

    async def _read(self) -> tuple[h11.Request, bytes] | None:
        """The next request and its body; None at the end of the connection."""
        request = await self._next_event()
        if not isinstance(request, h11.Request):
            return None
        self._is_head = request.method == b"HEAD"
        lengths = [value for name, value in request.headers if name == b"content-length"]
        if lengths and int(lengths[0]) > MAX_BODY_BYTES:
            raise _too_large()
        body = bytearray()
        while isinstance(event := await self._next_event(), h11.Data):
            body += event.data
            if len(body) > MAX_BODY_BYTES:
                raise _too_large()
        return request, bytes(body)

    async def _next_event(self) -> object:
        http = self._http
        while (event := http.next_event()) is h11.NEED_DATA:
            if http.they_are_waiting_for_100_continue:
                proceed = h11.InformationalResponse(status_code=100, headers=[])
                self._writer.write(http.send(proceed) or b"")
            data = await self._reader.read(_READ_BYTES)
            self._head = self._head or data[:8]
            http.receive_data(data)
        return event

    def _no_http(self, error: h11.RemoteProtocolError) -> ControlError:
        """What is wrong with a client that does not speak HTTP; log what it speaks, if that is known."""
        protocol = TLS if foreign_protocol(self._head) == TLS else None
        detail = "the control API has no TLS, its addresses begin with http://"
        if self._head.startswith(b"\0"):  # the length of a request of less than 16 MiB
            protocol, detail = "Kafka's protocol", "this is the control API, not a broker"
        if protocol is None:
            return ControlError(error.error_status_hint, f"no HTTP: {error}")
        host, port = self._peer
        more = _refused.count((host, protocol), int(asyncio.get_running_loop().time() * 1000))
        if more is not None:
            peer, fields = format_address(host, port), {"repeated": more or None, "detail": detail}
            event(_log, NodeEvent.CONTROL_CLIENT_REFUSED, peer=peer, protocol=protocol, **fields)
        return ControlError(400, f"{protocol}: {detail}")

    async def _refuse(self, error: ControlError) -> bool:
        return await self._write(error.status, error.to_json(), error.allow)

    async def _write(self, status: int, found: Any, allow: tuple[str, ...] = ()) -> bool:
        """Write an answer; True if the connection can take another request."""
        http = self._http
        if http.our_state not in (h11.IDLE, h11.SEND_RESPONSE) or self._writer.is_closing():
            return False
        media_type, body = "application/json", b""
        if isinstance(found, Text):
            media_type, body = found.media_type, found.body
        else:
            indent = 1 if status == HTTPStatus.OK else None
            body = json.dumps(found, indent=indent).encode() + b"\n"
        headers = [("Content-Type", media_type), ("Content-Length", str(len(body)))]
        if isinstance(found, Text):
            headers += found.headers
        if allow:
            headers.append(("Allow", ", ".join(allow)))
        if status == HTTPStatus.UNAUTHORIZED:
            headers.append(("WWW-Authenticate", 'Basic realm="kwire", charset="UTF-8"'))
        if http.their_state is not h11.DONE:
            headers.append(("Connection", "close"))  # the rest of the request is not read
        reason = HTTPStatus(status).phrase.encode()
        events: list[h11.Event] = [
            h11.Response(status_code=status, headers=headers, reason=reason),
            h11.EndOfMessage(),
        ]
        if not self._is_head:
            events.insert(1, h11.Data(data=body))
        self._writer.write(b"".join(http.send(event) or b"" for event in events))
        await self._writer.drain()
        if not http.our_state is http.their_state is h11.DONE:
            return False
        http.start_next_cycle()
        return True

    async def _stream(self, stream: Stream) -> bool:
        """Write a stream until its client ends the connection; False, as it is the last answer of it."""
        headers = [("Content-Type", stream.media_type), ("Cache-Control", "no-store")]
        headers.append(("Connection", "close"))
        head = h11.Response(status_code=200, headers=headers, reason=b"OK")
        self._writer.write(self._http.send(head) or b"")
        loop = asyncio.get_running_loop()
        both = loop.create_task(self._write_parts(stream)), loop.create_task(self._until_gone())
        try:
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in both:
                task.cancel()
            await asyncio.gather(*both, return_exceptions=True)
            if not self._writer.is_closing() and not self._writer.transport.get_write_buffer_size():
                self._writer.write(self._http.send(h11.EndOfMessage()) or b"")
            _close_now(self._writer)
        return False

    async def _write_parts(self, stream: Stream) -> None:
        async with aclosing(stream.parts) as parts:
            async for part in parts:
                self._writer.write(self._http.send(h11.Data(data=part)) or b"")
                await self._writer.drain()
                await asyncio.sleep(0)  # the nodes' turn, however much there is to write

    async def _until_gone(self) -> None:
        """Read until the client ends the connection; it has nothing to say any more."""
        while await self._reader.read(_READ_BYTES):
            pass


def _parse_request(request: h11.Request, body: bytes) -> tuple[str, str, dict[str, Any], Headers]:
    """Method, path with query, the JSON object of the body, and the headers. ControlError."""
    if not _is_from_here(request):
        raise ControlError(403, "web pages of other sites cannot use the control API")
    target = _split(request)
    path = f"{target.path}?{target.query}" if target.query else target.path
    return request.method.decode(), path, _parse_body(body), _headers(request)


def _is_from_here(request: h11.Request) -> bool:
    """Whether no web page asks, or the one that the control API itself serves: at the host that the request names."""
    origins = [value for name, value in request.headers if name == b"origin"]
    hosts = [value for name, value in request.headers if name == b"host"]
    return not origins or (len(hosts) == 1 and origins == [b"http://" + hosts[0]])


def _headers(request: h11.Request) -> Headers:
    headers: dict[str, str] = {}
    for raw_name, value in request.headers:
        key, text = raw_name.decode("latin-1"), value.decode("latin-1")
        headers[key] = f"{headers[key]}, {text}" if key in headers else text
    return headers


def _is_for_the_page(request: h11.Request) -> bool:
    """Whether a browser asks for the page, which has no secrets: it asks for the token then."""
    is_root = (request.method, request.target) == (b"GET", b"/")
    return is_root and accepts(_headers(request), HTML)


def _split(request: h11.Request) -> SplitResult:
    """The parts of a request's target. ControlError."""
    text = request.target.decode("latin-1")
    try:
        found = urlsplit(f"http://kwire{text}" if text.startswith("/") else text)
        _ = found.port  # ValueError for one that is no number
    except ValueError as error:  # http://[x
        raise ControlError(400, f"no HTTP: {error}") from None
    return found


def _parse_body(body: bytes) -> dict[str, Any]:
    if not body.strip():
        return {}
    try:
        found = json.loads(body, parse_constant=_no_number)
    except (ValueError, RecursionError):
        raise ControlError(400, "the body is no JSON") from None
    if not isinstance(found, dict):
        raise ControlError(400, "expected a JSON object as body")
    return found


def _too_large() -> ControlError:
    return ControlError(413, f"a body of more than {MAX_BODY_BYTES} bytes")


def _no_number(text: str) -> float:
    """Refuse NaN and the infinities, which Python would read (RFC 8259 §6)."""
    raise ValueError(text)
