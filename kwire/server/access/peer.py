"""A connection to another node's listener that asks for TLS, a log-in, or both.

Corresponds to org.apache.kafka.common.network.{SslTransportLayer,KafkaChannel} on the client's side. The log-in is a
state machine of frames (kwire/security/peer_login.py), TLS one of bytes (kwire/security/tls_stream.py). Requests
wait until both are done. A session with an end (KIP-368) is renewed as in Kafka: before the first request that comes
when 85 to 95 % of its time are over; requests that are in flight meanwhile are answered as ever.

Whoever is refused, or does not trust the other node, says so in one line a minute (`PEER_REFUSED`), and tries again
after Kafka's back-off: 50 ms, doubled with each failure up to 1 s.
"""

from __future__ import annotations

from random import random

from kwire.replication.config.broker_config import ConfigError
from kwire.security.client import Access
from kwire.security.peer_login import PeerLogin, PeerLoginError
from kwire.server.connection_log import Repetitions
from kwire.server.events import NodeEvent
from kwire.server.peers import CONNECT_TIMEOUT_SECONDS, PeerConnection

TYPE_CHECKING = False
if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Sequence

    from kwire.replication.core.events import EventType
    from kwire.replication.core.outbox import Buffer
    from kwire.security.tls_stream import TlsStream
    from kwire.server.peers import PeerConnections

_BACKOFF_SECONDS, _BACKOFF_MAX_SECONDS = 0.05, 1.0
"""reconnect.backoff.ms and reconnect.backoff.max.ms of Kafka's clients."""
_JITTER = 0.2
_RENEW_FROM, _RENEW_SPREAD = 0.85, 0.1
"""SaslClientAuthenticator.ReauthInfo: pctWindowFactorToTakeNetworkLatencyAndClockDriftIntoAccount and its jitter."""


class Backoff:
    """The pause before the next connection to each node that has failed to let this one in."""

    __slots__ = ("_failures",)

    def __init__(self) -> None:
        self._failures: dict[int, tuple[int, float]] = {}  # how many, and when the pause is over

    def failed(self, node: int, now: float) -> None:
        count = self._failures.get(node, (0, 0.0))[0]
        pause = min(_BACKOFF_SECONDS * 2 ** min(count, 10), _BACKOFF_MAX_SECONDS)
        pause *= 1 + _JITTER * (2 * random() - 1)
        self._failures[node] = count + 1, now + pause

    def succeeded(self, node: int) -> None:
        self._failures.pop(node, None)

    def left(self, node: int, now: float) -> float:
        """Seconds until a connection may be made."""
        return max(0.0, self._failures.get(node, (0, 0.0))[1] - now)


class PeerGuard:
    """How a node gets in at the others: which of them ask for TLS or a log-in, and who has refused."""

    def __init__(self, access_of: Callable[[int], Access | None]) -> None:
        """`access_of`: to the listener of a node, None: it asks for nothing. ConfigError."""
        self._access_of = access_of
        self.backoff = Backoff()
        self.refusals = Repetitions()

    def connection(self, peers: PeerConnections, node: int, channel: str) -> PeerConnection:
        """A new connection."""
        try:
            access = self._access_of(node)
        except ConfigError as error:
            return SecuredPeer(peers, node, channel, str(error), self)
        if access is None:
            return PeerConnection(peers, node, channel)
        return SecuredPeer(peers, node, channel, access, self)


class SecuredPeer(PeerConnection):
    """The connection of one channel to one node."""

    def __init__(
        self,
        peers: PeerConnections,
        node: int,
        channel: str,
        access: Access | str,
        guard: PeerGuard,
    ) -> None:
        """`access`: a text says why it cannot be had."""
        super().__init__(peers, node, channel)
        self._problem = access if isinstance(access, str) else None
        self._access = Access(None, None) if isinstance(access, str) else access
        self._guard = guard
        self._host = ""
        self._tls: TlsStream | None = None
        self._login: PeerLogin | None = None
        self._is_ready = False
        self._held: list[bytes] = []  # requests until it is
        self._renew_at: float | None = None
        self._limit: asyncio.TimerHandle | None = None
        self._room = memoryview(b"")

    # --- until requests may be sent

    def connect(self, address: tuple[str, int] | None) -> None:
        loop = self._peers.host.loop
        if self._problem is not None:
            loop.call_soon(self._refused, self._problem)
            return
        wait = self._guard.backoff.left(self.node, loop.time())
        if wait and address is not None:
            self._limit = loop.call_later(wait, self._connect_now, address)
        else:
            self._connect_now(address)

    def _connect_now(self, address: tuple[str, int] | None) -> None:
        if address is not None:
            self._host = address[0]
            self._set_limit()
        super().connect(address)

    def _set_limit(self) -> None:
        loop = self._peers.host.loop
        self._limit = loop.call_later(CONNECT_TIMEOUT_SECONDS, self._refused, "no log-in in time")

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        if self.closed:
            return
        if self._access.context is None:
            self._log_in()
            return
        from kwire.security.tls_stream import ROOM_BYTES, TlsStream

        self._room = memoryview(bytearray(ROOM_BYTES))
        self._tls = TlsStream(self._access.context, self._host)
        self._decipher(None)

    def _log_in(self) -> None:
        if self._access.credentials is None:
            self._become_ready(0)
        else:
            client_id = self._peers.name or f"node {self._peers.node_id}"
            self._login = PeerLogin(self._access.credentials, client_id)
            self._write([self._login.first()])

    def _become_ready(self, lifetime_ms: int) -> None:
        self._is_ready = True
        if self._limit is not None:
            self._limit.cancel()
            self._limit = None
        self._guard.backoff.succeeded(self.node)
        if lifetime_ms:
            share = _RENEW_FROM + _RENEW_SPREAD * random()
            self._renew_at = self._peers.host.loop.time() + lifetime_ms * share / 1000
        held, self._held = self._held, []
        if held:
            self._write(held)

    def _refused(self, reason: str) -> None:
        """Close: this node is not let in, or does not trust the other one."""
        if self.closed:
            return
        now = self._peers.host.loop.time()
        more = self._guard.refusals.count((str(self.node), reason), int(now * 1000))
        self.close(
            reason, NodeEvent.PEER_CONNECTION_ENDED if more is None else NodeEvent.PEER_REFUSED
        )

    def close(
        self,
        reason: str,
        kind: EventType = NodeEvent.PEER_CONNECTION_ENDED,
        *,
        silently: bool = False,
    ) -> None:
        if self.closed:
            return
        if self._limit is not None:
            self._limit.cancel()
        if not (self._is_ready or silently):
            self._guard.backoff.failed(self.node, self._peers.host.loop.time())
        super().close(reason, kind, silently=silently)

    # --- requests and answers

    def send(self, correlation: int, parts: list[Buffer]) -> None:
        if not self._owed:
            self._oldest_at = self._peers.host.loop.time()
            self._watch()
        self._owed.append(correlation)
        if self._renew_at is not None and self._peers.host.loop.time() >= self._renew_at:
            self._is_ready, self._renew_at = False, None
            self._set_limit()
            self._log_in()
        if self._is_ready:
            self._write(parts)
        else:
            self._held += [bytes(part) for part in parts]

    def _write(self, parts: Sequence[Buffer]) -> None:
        if self._transport is None or self.closed:
            return
        if self._tls is None:
            self._transport.writelines(parts)
        else:
            self._tls.write(parts)
            self._send_ciphered(self._tls)

    def _send_ciphered(self, tls: TlsStream) -> None:
        data = tls.outgoing()
        if data and self._transport is not None and not self.closed:
            self._transport.write(data)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._reader.get_buffer() if self._tls is None else self._room

    def buffer_updated(self, nbytes: int) -> None:
        if self._tls is None:
            super().buffer_updated(nbytes)
        else:
            self._decipher(self._room[:nbytes])

    def _decipher(self, data: memoryview | None) -> None:
        """Take what has arrived; None: the connection is made."""
        from kwire.security.tls_stream import TlsError

        tls = self._tls
        assert tls is not None
        was_open = tls.is_open
        try:
            if data is not None:
                tls.take(data)
            tls.shake()
            self._send_ciphered(tls)
            if tls.is_open and not was_open:
                self._log_in()
            while not self.closed and (count := tls.read_into(self._reader.get_buffer())):
                super().buffer_updated(count)
        except TlsError as error:
            self._send_ciphered(tls)  # the alert
            self._refused(str(error))
            return
        if tls.is_ended:
            self.close("closed by the other side")

    def _answered(self, frame: memoryview) -> str | None:
        login = self._login
        if login is None or int.from_bytes(frame[:4], "big") != login.correlation:
            return super()._answered(frame)
        if self.closed:
            return "closed"
        try:
            request = login.take(frame)
        except PeerLoginError as error:
            self._refused(f"log-in failed: {error}")
            return None
        if request is not None:
            self._write([request])
        else:
            self._login = None
            self._become_ready(login.lifetime_ms)
        return None
