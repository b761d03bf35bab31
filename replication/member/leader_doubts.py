"""Leaders in doubt: their connection has just ended and the controller has not fenced them yet.

Answers to no class of Kafka's. Kafka's brokers keep returning a dead leader in Metadata until the
controller fences it, up to the session timeout (9 s). Clients that fetch metadata in that time wait
for their next refresh (librdkafka: a second) or until they time out (Java's admin client:
default.api.timeout.ms). kwire's controller fences within some 30 ms, so a Metadata response that
would name a leader in doubt is held until the controller's next UpdateMetadata.

Invariants: no response is held longer than DOUBT_MS after the last lost connection; every response
comes from the metadata cache as the controller filled it; a broker that cannot be reached but is
alive for the controller is in doubt at most once per session timeout.
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
"""Several times what a controller usually needs, to leave room for a busy machine."""


class LeaderDoubts:
    """The set of leaders in doubt. ClusterMember updates it; handlers of Metadata wait on it."""

    __slots__ = ("_clock", "_config", "_doubted", "_lost_ms", "_metadata", "_timers", "_waiting")

    def __init__(
        self, clock: Clock, timers: Timers, config: BrokerConfig, metadata: MetadataCache
    ) -> None:
        self._clock = clock
        self._timers = timers
        self._config = config
        self._metadata = metadata
        self._doubted: set[int] = set()
        self._lost_ms: dict[
            int, int
        ] = {}  # when a broker last came into doubt; dropped when fenced
        self._waiting: list[Callable[[], None]] = []

    def __bool__(self) -> bool:
        """Whether any leader is in doubt."""
        return bool(self._doubted)

    def connection_lost(self, node: int) -> None:
        """Put a node in doubt: its connection has ended, or could not be made."""
        if not self._metadata.is_alive(node):
            return
        now_ms = self._clock.now_ms
        last_ms = self._lost_ms.get(node)
        if last_ms is not None and now_ms - last_ms < self._config.broker_session_timeout_ms:
            return
        self._lost_ms[node] = now_ms
        self._doubted.add(node)
        self._timers.schedule_real((self, node), now_ms + DOUBT_MS, lambda: self._settle({node}))

    def when_settled(self, call: Callable[[], None]) -> None:
        """Call back once no leader is in doubt: at most DOUBT_MS after the last loss."""
        self._waiting.append(call)

    def metadata_updated(self) -> None:
        """Resolve the doubt about every broker that the metadata cache no longer lists as alive."""
        gone = {node for node in self._lost_ms if not self._metadata.is_alive(node)}
        for node in gone:
            del self._lost_ms[node]
            self._timers.cancel((self, node))
        if gone:
            self._settle(gone)

    def _settle(self, nodes: set[int]) -> None:
        self._doubted -= nodes
        if not self._doubted:
            waiting, self._waiting = self._waiting, []
            for call in waiting:
                call()
