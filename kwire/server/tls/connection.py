"""One client connection of a listener that asks for TLS: deciphers what arrives, enciphers what is written.

Corresponds to org.apache.kafka.common.network.SslTransportLayer. TLS is between the transport and the
connection, by ssl's objects of bytes in and out: the event loop knows nothing of it, and imports nothing for it.
"""

from __future__ import annotations

from contextlib import suppress
from ssl import MemoryBIO, SSLError, SSLWantReadError, SSLZeroReturnError

from kwire.security.principals import NoRuleError
from kwire.security.tls_stream import ROOM_BYTES
from kwire.server.connection import Connection
from kwire.server.connection_log import TLS, foreign_protocol
from kwire.server.tls.context import principal_of, reason_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from kwire.replication.core.outbox import Buffer
    from kwire.server.listeners import Listener
    from kwire.server.node import Node

_HEADER_BYTES = 5
_JOINED_BYTES = 1 << 18
"""Up to so many the parts of answers are copied together: a part would be a TLS record of its own, which costs both
sides more than the copy."""


class TlsConnection(Connection):
    """The protocol of one accepted socket."""

    __slots__ = ("_head", "_incoming", "_is_open", "_outgoing", "_room", "_tls")

    def __init__(self, node: Node, listener: Listener, connection_id: int) -> None:
        super().__init__(node, listener, connection_id)
        assert listener.tls is not None
        self._incoming, self._outgoing = MemoryBIO(), MemoryBIO()
        self._tls = listener.tls.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._room = memoryview(bytearray(ROOM_BYTES))
        self._head = b""
        self._is_open = False  # the handshake is complete

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._room

    def buffer_updated(self, nbytes: int) -> None:
        if not self._head:
            self._head = bytes(self._room[: min(nbytes, _HEADER_BYTES)])
        self._incoming.write(self._room[:nbytes])
        self._read()

    def _read(self) -> None:
        """Decipher what has arrived, as far as back-pressure allows, and run its requests."""
        if self.held or self.transport.is_closing():
            return
        try:
            if not self._is_open:
                self._tls.do_handshake()
                self._is_open = True
                self._name_client()
            while not (self.reading_paused or self.transport.is_closing()):
                room = self.reader.get_buffer()
                count: int = self._tls.read(len(room), room)  # type: ignore[assignment]  # into a buffer
                if not count:
                    raise SSLZeroReturnError
                self.reader.advance(count)
                self.node.step(self)
        except SSLWantReadError:
            pass
        except SSLZeroReturnError:
            if not self.eof_received():
                self.transport.close()
        except NoRuleError as error:
            self.close(f"no principal: {error}")
        except SSLError as error:
            self._send()  # the alert
            self.close(self._problem(error))
        self._send()

    def _name_client(self) -> None:
        """Give the session the principal of the client's certificate, if it has one. NoRuleError."""
        certificate = self._tls.getpeercert()
        if certificate:
            mapping = getattr(self._tls.context, "mapping", None)
            principal = principal_of(certificate, mapping)
            self.session.principal = principal or self.session.principal

    def _problem(self, error: SSLError) -> str:
        if self._is_open:
            return f"TLS failed: {reason_of(error)}"
        if not self._head.startswith(b"\x16"):
            protocol = foreign_protocol(self._head) or "plaintext"
            return f"no {TLS}: the client speaks {protocol}, listener {self.listener.name} asks for {TLS}"
        return f"TLS handshake failed: {reason_of(error)}"

    def _send(self) -> None:
        if self._outgoing.pending and not self.transport.is_closing():
            self.transport.write(self._outgoing.read())

    def release(self) -> None:
        super().release()
        self._read()

    def throttle_reading(self) -> None:
        was_paused = self.reading_paused
        super().throttle_reading()
        if was_paused and not self.reading_paused:
            self.node.loop.call_soon(self._read)

    def flush(self) -> None:
        parts, self.parts = self.parts, []
        size, self.parts_bytes = self.parts_bytes, 0
        if not self.transport.is_closing():
            if len(parts) > 1 and size <= _JOINED_BYTES:
                parts = [b"".join(parts)]
            for part in parts:
                self._write(part)
            self._send()

    def _write(self, part: Buffer) -> None:
        view = memoryview(part)
        while view:
            view = view[self._tls.write(view) :]  # a record at a time

    def close(self, reason: str, *, abort: bool = False) -> None:
        if self._is_open and not abort and not self.transport.is_closing():
            with suppress(SSLError, ValueError):
                self._tls.unwrap()  # says that this is the end
            self._send()
        super().close(reason, abort=abort)
