"""Requests of one kind to other brokers: one in flight to each, given up when its broker is dead or silent.

Answers to Kafka's InterBrokerSendThread.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from kwire.protocol.api import ApiKey
    from kwire.protocol.language.schema import Message
    from kwire.replication.core.clock import Clock, Timers
    from kwire.replication.core.metadata import MetadataCache
    from kwire.replication.core.peers import Peers

_WATCH_MS = 500
"""How often a request in flight is looked at: is its broker still alive?"""


class InFlight:
    """The requests on one channel. `peers` None: a standalone broker, which sends none."""

    __slots__ = (
        "_channel",
        "_clock",
        "_deadlines",
        "_key",
        "_metadata",
        "_peers",
        "_timeout_ms",
        "_timers",
        "_version",
    )

    def __init__(
        self,
        channel: str,
        key: ApiKey,
        version: int,
        metadata: MetadataCache,
        clock: Clock,
        timers: Timers,
        peers: Peers | None,
        timeout_ms: int,
    ) -> None:
        self._channel = channel
        self._key = key
        self._version = version
        self._metadata = metadata
        self._clock = clock
        self._timers = timers
        self._peers = peers
        self._timeout_ms = timeout_ms
        self._deadlines: dict[int, int] = {}  # broker → ms of Clock.real_ms

    def is_busy(self, node: int) -> bool:
        """Whether a request to this broker is in flight; there may be one."""
        return node in self._deadlines

    def send(self, node: int, request: Message, respond: Callable[[Any], None]) -> None:
        """Send a request; `respond` gets the response, or None: lost, or given up."""
        assert self._peers is not None, "a standalone broker asks itself"
        assert node not in self._deadlines, "one request at a time"

        def responded(response: Any) -> None:
            del self._deadlines[node]
            self._timers.cancel((self, node))
            respond(response)

        self._deadlines[node] = self._clock.real_ms + self._timeout_ms
        self._watch(node)
        self._peers.send(node, self._channel, self._key, self._version, request, responded)

    def _watch(self, node: int) -> None:
        def look() -> None:
            if self._metadata.is_alive(node) and self._clock.real_ms < self._deadlines[node]:
                self._watch(node)
            elif self._peers is not None:
                self._peers.give_up(node, self._channel)

        self._timers.schedule_real((self, node), self._clock.now_ms + _WATCH_MS, look)
