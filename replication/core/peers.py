"""Requests to other nodes, matched with their responses by correlation id.

Answers to Kafka's NodeToNodeChannelManager, BrokerBlockingSender and ControllerChannelManager as far as they
send. The caller's callback is called exactly once, never within the call that sends. A lost connection is a response,
too (`None`): whether the request was carried out is then unknown, and retrying or giving up is the caller's decision.
The caller chooses the version: nodes of a cluster do not negotiate, as Kafka's brokers do not.

Invariants: a response is matched by its correlation id alone; a response to a forgotten request is dropped.
"""

from __future__ import annotations

from kwire.protocol import api
from kwire.protocol.errors import MalformedMessage

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from kwire.protocol.language.schema import Message
    from kwire.replication.core.outbox import Buffer, Outbox

    OnResponse = Callable[[Any], None]


class _Asked:
    __slots__ = ("channel", "key", "node", "on_response", "version")

    def __init__(
        self, node: int, channel: str, key: int, version: int, on_response: OnResponse
    ) -> None:
        self.node = node
        self.channel = channel
        self.key = key
        self.version = version
        self.on_response = on_response


class Peers:
    """The asking side of one node. `client_id` is what the asked see ("broker-1-fetcher-0" is Kafka's way)."""

    __slots__ = ("_asked", "_correlation", "_outbox", "client_id")

    def __init__(self, outbox: Outbox, client_id: str) -> None:
        self._outbox = outbox
        self._asked: dict[int, _Asked] = {}
        self._correlation = 0
        self.client_id = client_id

    def send(
        self,
        node: int,
        channel: str,
        key: int,
        version: int,
        request: Message,
        on_response: OnResponse,
    ) -> int:
        """Sends a request; `on_response` gets the response message, or None when the connection was lost (or none
        could be made) before it came, or its bytes made no sense. Returns the correlation id, for `forget`."""
        self._correlation = correlation = (self._correlation + 1) & 0x7FFFFFFF
        self._asked[correlation] = _Asked(node, channel, key, version, on_response)
        parts = api.encode_request(key, version, correlation, self.client_id, request)
        self._outbox.send(node, channel, correlation, parts)
        return correlation

    def node_asked(self, correlation: int) -> int | None:
        """Whom a request was sent to; None when nobody waits for its answer any more."""
        asked = self._asked.get(correlation)
        return None if asked is None else asked.node

    def forget(self, correlation: int) -> None:
        """Whatever comes of this request is of no interest any more."""
        self._asked.pop(correlation, None)

    def hang_up(self, node: int, channel: str) -> None:
        """Ends a channel: its requests are forgotten, those of this step are not sent, its connection is closed."""
        for correlation, asked in list(self._asked.items()):
            if asked.node == node and asked.channel == channel:
                del self._asked[correlation]
        self._outbox.unsend(node, channel)
        self._outbox.hang_up(node, channel)

    def give_up(self, node: int, channel: str) -> None:
        """End a channel whose responses would come too late: pending requests count as lost."""
        waiting = [
            correlation
            for correlation, asked in self._asked.items()
            if asked.node == node and asked.channel == channel
        ]
        lost = [self._asked.pop(correlation) for correlation in waiting]
        self.hang_up(node, channel)
        for asked in lost:
            asked.on_response(None)

    def respond(self, correlation: int, frame: Buffer | None) -> str | None:
        """The driver's word on a request: the response frame (without its length), or None for a lost connection.

        Returns a reason when the bytes were malformed: the driver then drops the connection.
        """
        asked = self._asked.pop(correlation, None)
        if asked is None:
            return None
        if frame is None:
            asked.on_response(None)
            return None
        try:
            _, response = api.parse_response(asked.key, asked.version, frame)
        except MalformedMessage as error:
            asked.on_response(None)
            return f"malformed response to {api.ApiKey(asked.key).name}: {error}"
        asked.on_response(response)
        return None
