"""TLS of a connection that this side has opened: bytes in, bytes out, by ssl's objects. No socket.

The event loop's own TLS is not used: a loop that was imported without ssl has none (kwire/cli/placeholders.py), and
the blocking client shares this. Imported with the first such connection.
"""

from __future__ import annotations

from ssl import MemoryBIO, SSLError, SSLWantReadError, SSLZeroReturnError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from ssl import SSLContext

    from kwire.replication.core.outbox import Buffer

ROOM_BYTES = 1 << 16
"""For what has arrived, on its way into the stream or out of it."""
_RECORDS = (b"\x14", b"\x15", b"\x16", b"\x17")


class TlsError(Exception):
    """TLS has failed. The text is for people."""


class TlsStream:
    """The client's side of one connection. `is_open`: the handshake is complete; `is_ended`: the other side has said
    that nothing follows."""

    __slots__ = ("_head", "_incoming", "_outgoing", "_tls", "is_ended", "is_open")

    def __init__(self, context: SSLContext, host: str) -> None:
        """`host`: whose certificate it has to be, if the context asks for that."""
        self._incoming, self._outgoing = MemoryBIO(), MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_hostname=host)
        self._head = b""
        self.is_open = self.is_ended = False

    def take(self, data: Buffer) -> None:
        """Take what has arrived, b"" for its end."""
        if not self._head:
            self._head = bytes(data[:1])
        if data:
            self._incoming.write(data)
        else:
            self._incoming.write_eof()

    def shake(self) -> None:
        """Begin with the handshake, or go on with it after `take`. TlsError."""
        if self.is_open:
            return
        try:
            self._tls.do_handshake()
            self.is_open = True
        except SSLWantReadError:
            pass
        except (SSLError, ValueError) as error:
            raise TlsError(self._problem(error)) from None

    def read_into(self, room: memoryview) -> int:
        """Decipher what has arrived into `room`. 0: there is nothing more now. TlsError."""
        if not self.is_open:
            return 0
        try:
            count: int = self._tls.read(len(room), room)  # type: ignore[assignment]  # into it: then how many
        except SSLWantReadError:
            return 0
        except SSLZeroReturnError:
            count = 0
        except SSLError as error:
            raise TlsError(self._problem(error)) from None
        self.is_ended = not count
        return count

    def write(self, parts: Iterable[Buffer]) -> None:
        """Encipher into `outgoing`. TlsError."""
        try:
            for part in parts:
                view = memoryview(part)
                while view:
                    view = view[self._tls.write(view) :]  # a record at a time
        except SSLError as error:
            raise TlsError(self._problem(error)) from None

    def outgoing(self) -> bytes:
        """What is to be sent."""
        return self._outgoing.read() if self._outgoing.pending else b""

    def _problem(self, error: Exception) -> str:
        if self._head and self._head not in _RECORDS:
            return "TLS handshake failed: the other side does not speak TLS"
        word = "TLS" if self.is_open else "TLS handshake"
        return f"{word} failed: {reason_of(error)}"


def reason_of(error: Exception) -> str:
    """OpenSSL's reason, in words."""
    words = (getattr(error, "reason", None) or str(error)).replace("_", " ").lower()
    verified = getattr(error, "verify_message", None)
    return f"{words}: {verified}" if verified else words
