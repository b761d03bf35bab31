"""One client connection: splits a socket's bytes into frames, and writes the broker's responses.

Corresponds to org.apache.kafka.common.network.KafkaChannel and NetworkReceive. An
asyncio.BufferedProtocol: the kernel writes straight into the FrameReader's buffer, and a request's
records stay a view of it.

Bounded memory: a connection holds at most one partial request, READ_AHEAD bytes after it, one
response and the transport's high-water mark. It stops reading while a request is unanswered and
READ_AHEAD is full, and runs no further request while the client does not read its responses.
"""

from __future__ import annotations

import asyncio

from kwire.protocol.api import ApiKey
from kwire.protocol.frame import FrameReader

TYPE_CHECKING = False
if TYPE_CHECKING:
    from kwire.replication.core.outbox import Buffer
    from kwire.server.listeners import Listener
    from kwire.server.node import Node
    from kwire.session import Session

READ_AHEAD = 64 * 1024


class Connection(asyncio.BufferedProtocol):
    """The protocol of one accepted socket; `Node` drives it."""

    __slots__ = (
        "close_reason",
        "ended",
        "held",
        "id",
        "last_active_ms",
        "listener",
        "node",
        "parts",
        "parts_bytes",
        "peer_host",
        "peer_port",
        "reader",
        "reading_paused",
        "session",
        "transport",
        "writing_paused",
    )

    session: Session
    transport: asyncio.Transport

    def __init__(self, node: Node, listener: Listener, connection_id: int) -> None:
        self.node = node
        self.listener = listener
        self.id = connection_id
        self.reader = FrameReader(listener.login_bytes or node.max_frame_bytes)
        self.parts: list[Buffer] = []  # replies of this step, not yet given to the transport
        self.parts_bytes = 0
        self.writing_paused = False
        self.reading_paused = False
        self.held = False
        self.ended = False  # the client has sent its last byte, and requests of it are still to run
        self.last_active_ms = 0
        self.peer_host = "unknown"
        self.peer_port = 0
        self.close_reason: str | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport  # type: ignore[assignment]  # uvloop's do not derive from asyncio's
        peer = transport.get_extra_info("peername")
        if peer:
            self.peer_host, self.peer_port = peer[0].removeprefix("::ffff:"), peer[1]
        self.node.connection_made(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self.node.connection_lost(self, exc)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self.reader.get_buffer()

    def buffer_updated(self, nbytes: int) -> None:
        self.reader.advance(nbytes)
        self.node.step(self)

    def eof_received(self) -> bool:
        """Let the transport close after it has written its buffer: no further request will run.

        Keep a held connection open: `release` runs the requests that the client has sent. Keep it, too,
        while a Produce is at work: a client with acks=0 sends, closes, and has no other promise than that
        what has arrived is appended (Selector.maybeReadFromClosingChannel)."""
        request = self.session.in_flight
        self.ended = self.held or (request is not None and request.api_key == ApiKey.PRODUCE)
        return self.ended

    def pause_writing(self) -> None:
        self.writing_paused = True

    def resume_writing(self) -> None:
        self.writing_paused = False
        # uvloop may call this from within a write, that is, within a step.
        self.node.loop.call_soon(self.node.step, self)

    def hold(self) -> None:
        """Run no request until `release`: the node was paused when the client connected.

        `transport.pause_reading` has no effect here: uvloop starts to read after `connection_made`.
        `writing_paused` holds the requests back, as those of a client that reads no replies."""
        self.held = self.writing_paused = True

    def release(self) -> None:
        """Undo `hold`: run the requests that the client has sent meanwhile."""
        self.held = self.writing_paused = False
        self.node.step(self)

    def finish(self) -> None:
        """Close the connection of a client that has sent its last byte, and whose requests have run."""
        if not self.held:
            if self.parts:
                self.flush()
            self.transport.close()

    def flush(self) -> None:
        """Write the replies of this step to the transport, in one write."""
        parts, self.parts = self.parts, []
        self.parts_bytes = 0
        if not self.transport.is_closing():
            self.transport.writelines(parts)

    @property
    def has_more(self) -> bool:
        """Whether something is to be done once the request is answered: more requests, or the end."""
        return self.reader.buffered_bytes > 0 or self.ended

    def resume_after_pause(self) -> None:
        """Read on, after the node has paused every connection."""
        if not (self.held or self.reading_paused or self.transport.is_closing()):
            self.transport.resume_reading()

    def throttle_reading(self) -> None:
        """Pause or resume reading, after a step."""
        ahead = self.session.in_flight is not None or self.writing_paused
        pause = ahead and self.reader.buffered_bytes >= READ_AHEAD
        if pause != self.reading_paused and not self.transport.is_closing():
            self.reading_paused = pause
            if pause:
                self.transport.pause_reading()
            else:
                self.transport.resume_reading()

    def close(self, reason: str, *, abort: bool = False) -> None:
        """Close the connection after its buffer is written, or with `abort` immediately."""
        if self.close_reason is None:
            self.close_reason = reason
        if abort:
            self.transport.abort()
        else:
            self.transport.close()
