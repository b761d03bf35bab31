"""`clock` of `kwire.Cluster`: for code without a loop; `clock.py` does the work."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from datetime import datetime, timedelta

    from kwire.cluster import Cluster


class Clock:
    """The clock of all brokers and controllers."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def now(self) -> datetime:
        """What time it is in the cluster, in UTC."""
        return self._cluster._inner.clock.now()

    def advance(
        self,
        delay: timedelta | None = None,
        *,
        days: float = 0,
        hours: float = 0,
        minutes: float = 0,
        seconds: float = 0,
        milliseconds: float = 0,
    ) -> datetime:
        """Let time pass at once, at all brokers and controllers, by a timedelta or the sum of the others; return what
        time it is then. What is due meanwhile happens in order: retention, compaction, ends of sessions, rebalances,
        transactions, offsets, ids of producers, followers that lag; a client that waits for it gets its answer.

        Connections stay, and so do leases of brokers that are alive. A member of a group sends heartbeats in real time:
        an advance by more than its session.timeout.ms ends its session, as a long pause of the broker does."""
        given = {
            "days": days,
            "hours": hours,
            "minutes": minutes,
            "seconds": seconds,
            "milliseconds": milliseconds,
        }
        return self._cluster._run(self._cluster._inner.clock.advance(delay, **given))

    def freeze(self) -> None:
        """Let the time of all brokers and controllers stand still, until `resume`; `advance` still moves it.

        What waits for another node or for a connection goes on: heartbeats, leases, waiting fetches."""
        self._cluster._run(self._cluster._inner.clock.freeze())

    def resume(self) -> None:
        """Let time go on after `freeze`, from where it stood; no-op if it is not frozen."""
        self._cluster._run(self._cluster._inner.clock.resume())

    def __repr__(self) -> str:
        return repr(self._cluster._inner.clock)
