"""Leaders whose connection has just ended, and who waits until it is known whether they are gone.

Answers to no class of Kafka's: its brokers name a dead leader until the controller says otherwise, up to the session
timeout (9 s), and clients that ask in that time wait for their next turn (librdkafka a second) or for good (Java's
admin client, default.api.timeout.ms). kwire's controller takes some 30 ms, so an answer that would name a leader of
which this broker has just lost sight waits for the controller's word that long.

Invariants: nobody waits longer than DOUBT_MS after the last loss; nothing is answered that the controller has not said;
a broker that cannot be reached although the controller says that it lives is doubted once a session timeout.
"""

from __future__ import annotations

from typing import Final

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from kwire.replication.config.broker_config import BrokerConfig
    from kwire.replication.core.clock import Clock, Timers
    from kwire.replication.core.metadata import MetadataCache

DOUBT_MS: Final = 150
"""Three times what a controller needs as a rule, so that a busy machine does not undo it."""


class LeaderDoubts:
    """Made and told by ClusterMember; asked by the handlers of questions whose answer names leaders."""

    __slots__ = ("_clock", "_config", "_doubted", "_lost_ms", "_metadata", "_timers", "_waiting")

    def __init__(
        self, clock: Clock, timers: Timers, config: BrokerConfig, metadata: MetadataCache
    ) -> None:
        self._clock = clock
        self._timers = timers
        self._config = config
        self._metadata = metadata
        self._doubted: set[int] = set()
        self._lost_ms: dict[int, int] = {}  # when a broker was doubted last, until it is gone
        self._waiting: list[Callable[[], None]] = []

    def __bool__(self) -> bool:
        """Whether there is somebody of whom the controller's word is awaited."""
        return bool(self._doubted)

    def connection_lost(self, node: int) -> None:
        """A connection to a node has ended, or none could be made."""
        if not self._metadata.is_alive(node):
            return
        now_ms = self._clock.now_ms
        last_ms = self._lost_ms.get(node)
        if last_ms is not None and now_ms - last_ms < self._config.broker_session_timeout_ms:
            return
        self._lost_ms[node] = now_ms
        self._doubted.add(node)
        self._timers.schedule((self, node), now_ms + DOUBT_MS, lambda: self._settled({node}))

    def when_settled(self, call: Callable[[], None]) -> None:
        """Calls back once, when nobody is in doubt any more: at most DOUBT_MS after the last one was lost."""
        self._waiting.append(call)

    def controller_told(self) -> None:
        """The controller has said who is alive; who is not is in doubt no more."""
        gone = {node for node in self._lost_ms if not self._metadata.is_alive(node)}
        for node in gone:
            del self._lost_ms[node]
            self._timers.cancel((self, node))
        if gone:
            self._settled(gone)

    def _settled(self, nodes: set[int]) -> None:
        self._doubted -= nodes
        if not self._doubted:
            waiting, self._waiting = self._waiting, []
            for call in waiting:
                call()
