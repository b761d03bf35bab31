"""A connection in memory: two transports, each the other's peer, with what TCP promises.

Bytes arrive in order and once, after the latency of the link. A sender that is too far ahead of the reader is paused.
Segments on a cut link wait until it is healed, as TCP's retransmissions do. The other side learns of a close by EOF,
of an abort by a reset; both travel as segments do.
"""

from __future__ import annotations

import asyncio
from collections import deque

TYPE_CHECKING = False
if TYPE_CHECKING:
    import contextvars
    from collections.abc import Iterable
    from typing import Any

    from kwire.virtual.network.network import VirtualNetwork
    from kwire.virtual.network.requests import Tap

_HIGH_BYTES = 64 * 1024
_APART_SECONDS = (
    1e-9  # two segments of a direction never arrive at the same time: they keep their order
)


class _End:
    def __init__(self, name: str) -> None:
        self.name = name

    def __len__(self) -> int:
        return 0


EOF, RESET = _End("EOF"), _End("RESET")


class _Socket:
    """What `get_extra_info("socket")` gives: options of it have no effect."""

    family, type, proto = 2, 1, 6

    def __init__(self, own: tuple[str, int], peer: tuple[str, int]) -> None:
        self._own, self._peer = own, peer

    def setsockopt(self, *_: object) -> None:
        """No-op."""

    def getsockopt(self, *_: object) -> int:
        return 0

    def getsockname(self) -> tuple[str, int]:
        return self._own

    def getpeername(self) -> tuple[str, int]:
        return self._peer

    def fileno(self) -> int:
        return -1


class MemoryTransport(asyncio.Transport):
    """One end of a connection, on one host."""

    other: MemoryTransport
    protocol: Any

    def __init__(
        self,
        network: VirtualNetwork,
        host: str,
        context: contextvars.Context,
        own: tuple[str, int],
        peer: tuple[str, int],
    ) -> None:
        super().__init__({"sockname": own, "peername": peer, "socket": _Socket(own, peer)})
        self.network, self.host, self.context = network, host, context
        self._loop = network.loop
        self.tap: Tap | None = None
        """Looks at what arrives; None: nothing does."""
        self._closing = self._lost = self._eof_sent = False
        self._is_read = True
        self._inbox: deque[Any] = deque()
        self._last_at = 0.0
        self._flying = 0  # bytes on their way to the other side, or not yet read there
        self._high, self._low = _HIGH_BYTES, _HIGH_BYTES // 4
        self._writing_paused = False

    def __repr__(self) -> str:
        return f"<{self.host} to {self.other.host}>"

    # --- towards the other side

    def write(self, data: Any) -> None:
        if self._closing or not data:
            return
        data = bytes(data)
        self._flying += len(data)
        self.other.send(data)
        if self._flying > self._high and not self._writing_paused:
            self._writing_paused = True
            self.protocol.pause_writing()

    def writelines(self, parts: Iterable[Any]) -> None:
        self.write(b"".join(parts))

    def write_eof(self) -> None:
        if not self._eof_sent and not self._closing:
            self._eof_sent = True
            self.other.send(EOF)

    def can_write_eof(self) -> bool:
        return True

    def _was_read(self, count: int) -> None:
        self._flying -= count
        if self._writing_paused and self._flying <= self._low and not self._lost:
            self._writing_paused = False
            self._loop.call_soon(self.protocol.resume_writing, context=self.context)

    # --- from the other side

    def send(self, data: Any) -> None:
        """Send a segment to this end: it arrives after the latency of the link."""
        at = self._loop.now + self.network.latency(self.other.host, self.host)
        at = self._last_at = max(self._last_at + _APART_SECONDS, at)
        self._loop.call_at(at, self._arrive, data, context=self.context)

    def _arrive(self, data: Any) -> None:
        if self.network.holds(self, data):
            return
        if self.tap is not None and data:
            self.tap.feed(data)
        self._inbox.append(data)
        if self._is_read:
            self._read()

    def _read(self) -> None:
        while self._inbox and self._is_read and not self._lost:
            data = self._inbox.popleft()
            if data is RESET:
                self._end(ConnectionResetError(104, "Connection reset by peer"))
            elif data is EOF:
                if not self._closing and not self.protocol.eof_received():
                    self.close()
            elif not self._closing:
                self.other._was_read(len(data))
                self._deliver(data)

    def _deliver(self, data: bytes) -> None:
        protocol = self.protocol
        if not isinstance(protocol, asyncio.BufferedProtocol):
            protocol.data_received(data)
            return
        view = memoryview(data)
        while len(view) and not self._closing:
            buffer = memoryview(protocol.get_buffer(len(view)))
            count = min(len(buffer), len(view))
            buffer[:count] = view[:count]
            view = view[count:]
            protocol.buffer_updated(count)

    # --- the end

    def _end(self, error: Exception | None) -> None:
        if not self._lost:
            self._closing = self._lost = True
            self.network.forget(self)
            self._loop.call_soon(self.protocol.connection_lost, error, context=self.context)

    def close(self) -> None:
        if not self._closing:
            self._closing = True
            if not self._eof_sent:
                self.other.send(EOF)
            self._end(None)

    def abort(self) -> None:
        if not self._lost:
            if not self._closing:
                self.other.send(RESET)
            self._end(None)

    def reset(self) -> None:
        """End this side as a reset by the network does."""
        self._end(ConnectionResetError(104, "Connection reset by peer"))

    # --- the rest of a transport

    def is_closing(self) -> bool:
        return self._closing

    def pause_reading(self) -> None:
        self._is_read = False

    def resume_reading(self) -> None:
        if not self._is_read:
            self._is_read = True
            if self._inbox:
                self._loop.call_soon(self._read, context=self.context)

    def is_reading(self) -> bool:
        return self._is_read and not self._closing

    def get_write_buffer_size(self) -> int:
        return self._flying

    def get_write_buffer_limits(self) -> tuple[int, int]:
        return self._low, self._high

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        if high is None:
            high = _HIGH_BYTES if low is None else 4 * low
        self._high, self._low = high, high // 4 if low is None else low

    def get_protocol(self) -> Any:
        return self.protocol

    def set_protocol(self, protocol: Any) -> None:
        self.protocol = protocol
