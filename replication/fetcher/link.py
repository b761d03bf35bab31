"""A fetcher's connection to its leader: one request at a time, and none that is waited for without end.

Answers to kafka.server.BrokerBlockingSender of Kafka 3.9, which blocks its thread meanwhile; here the asker goes on
with the answer.

Invariant: after `hang_up` no answer to what was asked before arrives.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from kwire.protocol.language.schema import Message
    from kwire.replication.core.peers import OnResponse
    from kwire.replication.fetcher.manager import ReplicaFetcherManager


class LeaderLink:
    """See the module. `busy`: a request is under way; who gets its answer says so (`answered`)."""

    __slots__ = ("_manager", "_on_silence", "_sent_ms", "_watching", "busy", "channel", "leader_id")

    def __init__(
        self,
        manager: ReplicaFetcherManager,
        leader_id: int,
        channel: str,
        on_silence: Callable[[], None],
    ) -> None:
        """`on_silence`: nothing was heard for replica.socket.timeout.ms; the connection has been given up."""
        self.leader_id = leader_id
        self.channel = channel
        self.busy = False
        self._manager = manager
        self._on_silence = on_silence
        self._sent_ms = 0
        self._watching = False

    def send(self, key: int, version: int, request: Message, on_response: OnResponse) -> None:
        """Asks; `on_response` gets the answer, or None when the connection is lost."""
        manager = self._manager
        self._sent_ms = manager.clock.now_ms
        if not self._watching:
            self._watch_until(self._sent_ms + manager.config.replica_socket_timeout_ms)
        self.busy = True
        manager.peers.send(self.leader_id, self.channel, key, version, request, on_response)

    def answered(self) -> None:
        """The next request may be sent."""
        self.busy = False

    def hang_up(self) -> None:
        """Gives up the connection, and what is under way."""
        self.busy = False
        self._manager.peers.hang_up(self.leader_id, self.channel)

    def close(self) -> None:
        """The end."""
        self._manager.timers.cancel((self, "timeout"))
        self.hang_up()

    def _watch_until(self, deadline_ms: int) -> None:
        """One timer looks after all requests, so that a request costs none."""
        self._watching = True
        self._manager.timers.schedule((self, "timeout"), deadline_ms, self._look)

    def _look(self) -> None:
        self._watching = False
        if not self.busy:
            return
        manager = self._manager
        deadline_ms = self._sent_ms + manager.config.replica_socket_timeout_ms
        if manager.clock.now_ms < deadline_ms:
            self._watch_until(deadline_ms)
            return
        self.hang_up()
        self._on_silence()
