"""SlowPeers: the connections of a node whose disk is slow: a follower fetches later, as its appends take longer.

As `faulty.py` a change of class, so that a node without faults does not look for them."""

from __future__ import annotations

from kwire.replication.core.types import FETCHER_CHANNEL
from kwire.server.peers import PeerConnections

TYPE_CHECKING = False
if TYPE_CHECKING:
    from kwire.replication.core.outbox import Buffer, Send


class SlowPeers(PeerConnections):
    """Connections to other nodes whose fetches leave later."""

    fetch_seconds: float

    def send(self, effect: Send) -> None:
        if not effect.channel.startswith(FETCHER_CHANNEL):
            super().send(effect)
            return
        parts: list[Buffer] = [b"".join(effect.parts)]
        seconds = self.fetch_seconds + self.delay_of(effect.node)
        self.host.loop.call_later(
            seconds, self._send, effect.node, effect.channel, effect.correlation, parts
        )


def set_fetch_delay(peers: PeerConnections, milliseconds: int) -> None:
    """Let the fetches of a follower leave so much later; 0: at once, as ever."""
    peers.__class__ = SlowPeers if milliseconds else PeerConnections
    if isinstance(peers, SlowPeers):
        peers.fetch_seconds = milliseconds / 1000
