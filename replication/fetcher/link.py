"""A fetcher's connection to its leader: one request in flight at most, each with a timeout.

Answers to kafka.server.BrokerBlockingSender of Kafka 3.9, which blocks its thread until the
response; here the response is passed to a callback.

Invariant: after `hang_up` no response to an earlier request arrives.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from kwire.protocol.language.schema import Message
    from kwire.replication.core.peers import OnResponse
    from kwire.replication.fetcher.manager import ReplicaFetcherManager


class LeaderLink:
    """See the module. `busy`: a request is in flight; the callback ends it by `end_request`.

    `sent_ms`: when the last request was sent, in real time."""

    __slots__ = ("_manager", "_on_timeout", "_watching", "busy", "channel", "leader_id", "sent_ms")

    def __init__(
        self,
        manager: ReplicaFetcherManager,
        leader_id: int,
        channel: str,
        on_timeout: Callable[[], None],
    ) -> None:
        """`on_timeout`: no response for replica.socket.timeout.ms; the connection is closed."""
        self.leader_id = leader_id
        self.channel = channel
        self.busy = False
        self._manager = manager
        self._on_timeout = on_timeout
        self.sent_ms = 0
        self._watching = False

    def send(self, key: int, version: int, request: Message, on_response: OnResponse) -> None:
        """Send a request; `on_response` gets the response, or None when the connection is lost."""
        manager = self._manager
        self.sent_ms = manager.clock.real_ms
        if not self._watching:
            self._watch(manager.config.replica_socket_timeout_ms)
        self.busy = True
        manager.peers.send(self.leader_id, self.channel, key, version, request, on_response)

    def end_request(self) -> None:
        """Mark the request as answered: the next one may be sent."""
        self.busy = False

    def hang_up(self) -> None:
        """Close the connection and drop the request in flight."""
        self.busy = False
        self._manager.peers.hang_up(self.leader_id, self.channel)

    def close(self) -> None:
        """Cancel the timeout and close the connection."""
        self._manager.timers.cancel((self, "timeout"))
        self.hang_up()

    def _watch(self, delay_ms: int) -> None:
        """Schedule the timeout. One timer serves all requests; most requests schedule none."""
        self._watching = True
        deadline_ms = self._manager.clock.now_ms + delay_ms
        self._manager.timers.schedule_real((self, "timeout"), deadline_ms, self._check_timeout)

    def _check_timeout(self) -> None:
        self._watching = False
        if not self.busy:
            return
        manager = self._manager
        silent_ms = manager.clock.real_ms - self.sent_ms
        left_ms = manager.config.replica_socket_timeout_ms - silent_ms
        if left_ms > 0:
            self._watch(left_ms)
            return
        self.hang_up()
        self._on_timeout()
