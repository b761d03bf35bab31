"""TLS of kwire's own clients over blocking sockets: whom they trust, and who they are. Imported with its first use."""

from __future__ import annotations

import ssl

from kwire.client.connection import NoResponseError

TYPE_CHECKING = False
if TYPE_CHECKING:
    import socket


class Trust:
    """The files in PEM: those who sign brokers' certificates, the client's own certificate and its key (None: none)."""

    __slots__ = ("_context",)

    def __init__(self, ca: str, certificate: str | None = None, key: str | None = None) -> None:
        """ValueError, in one line, when a file cannot be read."""
        at = ca
        try:
            self._context = ssl.create_default_context(cafile=ca)
            if certificate is not None:
                at = certificate
                self._context.load_cert_chain(certificate, key, password="")
        except ssl.SSLError:
            what = "certificate" if at == ca else "certificate with its key"
            raise ValueError(f"{at}: there is no {what} in PEM") from None
        except OSError as error:
            raise ValueError(f"{at}: {error.strerror}") from None

    @classmethod
    def of(cls, context: ssl.SSLContext) -> Trust:
        """The trust, and the certificate, of a context that is there."""
        made = cls.__new__(cls)
        made._context = context
        return made

    def wrapped(self, connected: socket.socket, host: str, port: int) -> ssl.SSLSocket:
        """The socket after its handshake. NoResponseError."""
        try:
            return self._context.wrap_socket(connected, server_hostname=host)
        except OSError as error:
            connected.close()
            reason = getattr(error, "verify_message", None) or getattr(error, "reason", None)
            text = str(reason or error).replace("_", " ")
            raise NoResponseError(f"no TLS with {host}:{port}: {text}") from None
