"""Connections to other nodes: sends the core's requests, and passes the responses to the core.

Corresponds to org.apache.kafka.clients.NetworkClient as Kafka's brokers use it among themselves. One
TCP connection per (node, channel), opened on demand at the address that the core knows at that time;
responses come in the order of the requests. Large responses stay views of the FrameReader's buffer,
as requests do in `connection.py`.

Invariant: each request completes in the core exactly once, in a step of its own, with a frame or with
None ("lost"): on a failed or ended connection, a time-out, or a malformed response.

For tests, `set_rules` cuts or delays links to other nodes.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections import deque

from kwire.protocol.errors import MalformedMessage
from kwire.protocol.frame import FrameReader
from kwire.replication.core.types import FETCHER_CHANNEL, HELD_CHANNELS
from kwire.server.events import NodeEvent
from kwire.server.logs import event

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Protocol

    from kwire.replication.core.events import EventType
    from kwire.replication.core.outbox import Buffer, Send
    from kwire.server.access.peer import PeerGuard
    from kwire.server.link_rules import LinkRule

    class PeerHost(Protocol):
        """The owner of the connections: a Node."""

        loop: asyncio.AbstractEventLoop

        def address_of(self, node: int) -> tuple[str, int] | None: ...

        def peer_answered(self, correlation: int, frame: Buffer | None) -> str | None:
            """Run one step of the core. Returns a reason if the frame is malformed: the connection is
            then dropped."""
            ...

        def channel_lost(self, node: int, channel: str) -> None:
            """Called when a connection without pending requests has ended."""
            ...


_log = logging.getLogger(__name__)

CONNECT_TIMEOUT_SECONDS = 10.0  # socket.connection.setup.timeout.ms
MAX_RESPONSE_BYTES = 1 << 30


class PeerConnection(asyncio.BufferedProtocol):
    """The connection of one channel to one node; after its end a new object replaces it."""

    def __init__(self, peers: PeerConnections, node: int, channel: str) -> None:
        self._peers = peers
        self.node = node
        self.channel = channel
        self._reader = FrameReader(MAX_RESPONSE_BYTES)
        self._transport: asyncio.Transport | None = None
        self._unsent: list[bytes] = []
        self._owed: deque[int] = deque()
        self._oldest_at = 0.0  # when the oldest pending request became the oldest
        self._timer: asyncio.TimerHandle | None = None
        self._connecting: asyncio.Task[None] | None = None
        self.closed = False

    # --- towards the other node

    def connect(self, address: tuple[str, int] | None) -> None:
        loop = self._peers.host.loop
        if address is None:
            loop.call_soon(self.close, "its address is not known")
        else:
            self._connecting = loop.create_task(self._connect(*address))

    async def _connect(self, host: str, port: int) -> None:
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_SECONDS):
                await self._peers.host.loop.create_connection(lambda: self, host, port)
        except Exception as error:
            # Also invalid names and ports: pending requests must complete in any case.
            self.close(str(error) or "no connection in time")

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]  # uvloop's do not derive from asyncio's
        self._connecting = None
        if self.closed:
            transport.abort()  # type: ignore[attr-defined]
            return
        size = self._peers.fetcher_buffer_bytes
        if size > 0 and self.channel.startswith(FETCHER_CHANNEL):
            # After the connect: the window's scale is the system's, a smaller buffer only uses less of it.
            own = transport.get_extra_info("socket")
            own.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, size)
        unsent, self._unsent = self._unsent, []
        if unsent:
            self._transport.writelines(unsent)  # type: ignore[union-attr]

    def send(self, correlation: int, parts: list[Buffer]) -> None:
        if not self._owed:
            self._oldest_at = self._peers.host.loop.time()
            self._watch()
        self._owed.append(correlation)
        if self._transport is None:
            self._unsent += [bytes(part) for part in parts]
        else:
            self._transport.writelines(parts)

    # --- what comes back

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._reader.get_buffer()

    def buffer_updated(self, nbytes: int) -> None:
        self._reader.advance(nbytes)
        reason = None
        try:
            while reason is None and (frame := self._reader.next_frame()) is not None:
                reason = self._answered(frame)
        except MalformedMessage as error:
            reason = str(error)
        if reason is not None:
            self.close(reason, NodeEvent.PEER_CONNECTION_ABORTED)

    def _answered(self, frame: memoryview) -> str | None:
        if self.closed:
            return "closed"
        if not self._owed or int.from_bytes(frame[:4], "big") != self._owed[0]:
            return "an answer to what was not asked"
        correlation = self._owed.popleft()
        if self._owed:
            self._oldest_at = self._peers.host.loop.time()
        delay = self._peers.delay_of(self.node)
        if delay:
            self._peers.answer_later(delay, correlation, bytes(frame))
            return None
        return self._peers.host.peer_answered(correlation, frame)

    def pause_reading(self, pause: bool) -> None:
        """Pause or resume reading."""
        if self._transport is not None and not self._transport.is_closing():
            if pause:
                self._transport.pause_reading()
            else:
                self._transport.resume_reading()

    def eof_received(self) -> None:
        """Close now, not in `connection_lost` a turn of the loop later: responses to clients in between
        must take the lost leader into account (leader_doubts.py)."""
        self.close("closed by the other side")

    def connection_lost(self, exc: Exception | None) -> None:
        self.close(str(exc) if exc else "closed by the other side")

    # --- time-outs and close

    def _watch(self) -> None:
        if self._timer is None and self.channel not in HELD_CHANNELS:
            seconds = self._peers.timeout_seconds
            left = self._oldest_at + seconds - self._peers.host.loop.time()
            self._timer = self._peers.host.loop.call_later(left, self._check_time)

    def _check_time(self) -> None:
        self._timer = None
        if not self._owed or self.closed:
            return
        if self._peers.host.loop.time() >= self._oldest_at + self._peers.timeout_seconds:
            self.close("no answer in time", NodeEvent.PEER_CONNECTION_ABORTED)
        else:
            self._watch()

    def close(
        self,
        reason: str,
        kind: EventType = NodeEvent.PEER_CONNECTION_ENDED,
        *,
        silently: bool = False,
    ) -> None:
        """Close the connection; pending requests complete as "lost", or with `silently` not at all."""
        if self.closed:
            return
        self.closed = True
        self._peers.forget(self)
        if self._timer is not None:
            self._timer.cancel()
        if self._transport is not None:
            self._transport.abort()
        elif self._connecting is not None and silently:
            self._connecting.cancel()
        own_id, name = self._peers.node_id, self._peers.name
        fields = {"node": self.node, "channel": self.channel, "detail": reason}
        event(_log, kind, None, name, node_id=own_id, **fields)
        if silently:
            return
        owed, self._owed = self._owed, deque()
        for correlation in owed:
            self._peers.host.peer_answered(correlation, None)
        if not owed:
            self._peers.host.channel_lost(self.node, self.channel)


class PeerConnections:
    """All connections from one node to others."""

    def __init__(
        self,
        host: PeerHost,
        timeout_seconds: float = 30.0,
        node_id: int | None = None,
        name: str | None = None,
        fetcher_buffer_bytes: int = -1,
    ) -> None:
        """`timeout_seconds`: the limit for a response (replica.socket.timeout.ms). `node_id`, `name`:
        of the node whose connections these are, for its log. `fetcher_buffer_bytes`: the receive
        buffer of fetchers' sockets (replica.socket.receive.buffer.bytes); -1: the system's."""
        self.host = host
        self.node_id = node_id
        self.name = name
        self.timeout_seconds = timeout_seconds
        self.fetcher_buffer_bytes = fetcher_buffer_bytes
        self.guard: PeerGuard | None = None
        """Of connections with TLS or a log-in; None: there are none."""
        self._open: dict[tuple[int, str], PeerConnection] = {}
        self._cut: set[int] = set()
        self._delays: dict[int, float] = {}
        self._closed = False

    def send(self, effect: Send) -> None:
        """Send a request, over a new connection if needed."""
        delay = self._delays.get(effect.node)
        if delay:
            parts: list[Buffer] = [b"".join(effect.parts)]
            self.host.loop.call_later(
                delay, self._send, effect.node, effect.channel, effect.correlation, parts
            )
        else:
            self._send(effect.node, effect.channel, effect.correlation, list(effect.parts))

    def _send(self, node: int, channel: str, correlation: int, parts: list[Buffer]) -> None:
        if self._closed:
            return
        key = node, channel
        connection = self._open.get(key)
        if connection is None:
            make = PeerConnection if self.guard is None else self.guard.connection
            connection = self._open[key] = make(self, node, channel)
            connection.connect(None if node in self._cut else self.host.address_of(node))
        connection.send(correlation, parts)

    def hang_up(self, node: int, channel: str) -> None:
        """Close a channel's connection, if any, without completing its pending requests."""
        connection = self._open.get((node, channel))
        if connection is not None:
            connection.close("hung up", silently=True)

    def forget(self, connection: PeerConnection) -> None:
        key = connection.node, connection.channel
        if self._open.get(key) is connection:
            del self._open[key]

    def pause(self) -> None:
        """Read no responses until `resume`."""
        for connection in self._open.values():
            connection.pause_reading(True)

    def resume(self) -> None:
        """Undo `pause`."""
        for connection in list(self._open.values()):
            connection.pause_reading(False)

    def close(self) -> None:
        """Close all connections without reports to the core."""
        self._closed = True
        for connection in list(self._open.values()):
            connection.close("the node stops", silently=True)

    # --- the network, for tests

    def set_rules(self, rules: Iterable[LinkRule]) -> None:
        """Replace all link rules of this node, the sender.

        A cut closes connections and makes new ones fail immediately. A delay applies to each request
        and to each response."""
        was_cut, self._cut, self._delays = self._cut, set(), {}
        for rule in rules:
            if rule.delay_ms is None:
                self._cut.add(rule.to)
            else:
                self._delays[rule.to] = rule.delay_ms / 1000
        new = self._cut - was_cut
        if new:
            self._end_all(lambda connection: connection.node in new, "cut")

    def delay_of(self, node: int) -> float:
        return self._delays.get(node, 0.0)

    def answer_later(self, delay: float, correlation: int, frame: bytes) -> None:
        self.host.loop.call_later(delay, self._answer, correlation, frame)

    def _answer(self, correlation: int, frame: bytes) -> None:
        if not self._closed:
            self.host.peer_answered(correlation, frame)

    def _end_all(self, which: Callable[[PeerConnection], bool], reason: str) -> None:
        for connection in [c for c in self._open.values() if which(c)]:
            connection.close(reason)
