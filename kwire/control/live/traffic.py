"""Requests a second by client and API, and the last ones, while somebody watches the page.

It takes the place of `Sessions.recent`, keeps requests as that does and counts them; when nobody has asked for
`IDLE_MS`, the next request puts back what was there before.
"""

from __future__ import annotations

from kwire.recent import RecentRequests, api_text, is_internal
from kwire.report.state import errors_in

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

    from kwire.apis.context import RequestContext
    from kwire.broker import Broker
    from kwire.protocol.language.schema import Message
    from kwire.session import Session, Sessions

IDLE_MS = 10_000
MAX_RATES = 40
MAX_REQUESTS = 40
MAX_ERRORS = 20
MAX_COUNTED = 1000
"""Pairs of client and API; further ones are not counted."""
_NEWEST = 0.4
"""The share of the newest interval in a rate."""


class Traffic(RecentRequests):
    """The requests at one broker."""

    __slots__ = (
        "_asked_ms",
        "_before",
        "_broker",
        "_counts",
        "_rates",
        "_told",
        "_told_at",
        "kept",
    )

    def __init__(self, broker: Broker, kept: RecentRequests) -> None:
        self._broker = broker
        self.kept = kept
        self._before = broker.sessions.recent
        self._counts: dict[tuple[str, int], int] = {}  # since it was last asked
        self._rates: dict[tuple[str, int], float] = {}
        self._asked_ms = broker.clock.real_ms
        self._told: list[list[Any]] = []
        self._told_at = -1

    @classmethod
    def begin(cls, broker: Broker) -> Traffic:
        """Count the requests of a broker from now on."""
        kept = broker.sessions.recent
        if isinstance(kept, Traffic):
            kept.end()
            kept = broker.sessions.recent
        traffic = cls(broker, kept or RecentRequests(broker.clock, broker.services.metadata))
        broker.sessions.recent = traffic
        return traffic

    def end(self) -> None:
        """Put back what was there before."""
        sessions: Sessions = self._broker.sessions
        if sessions.recent is self:
            sessions.recent = self._before

    def record(self, context: RequestContext, response: Message | None) -> None:
        """Count an answered request, and keep it."""
        self.kept.record(context, response)
        key = context.client_id or "", context.api_key
        counts = self._counts
        if key in counts:
            counts[key] += 1
        elif len(counts) < MAX_COUNTED and not is_internal(key[0]):
            counts[key] = 1
        if self._broker.clock.real_ms - self._asked_ms > IDLE_MS:
            self.end()

    def record_close(self, session: Session, reason: str) -> None:
        """Keep that the broker has closed a connection."""
        self.kept.record_close(session, reason)

    def clear(self) -> None:
        """Drop what is kept."""
        self.kept.clear()

    def list_requests(self, sessions: Iterable[Session]) -> list[list[Any]]:
        """As of those that are kept."""
        return self.kept.list_requests(sessions)

    @property
    def number(self) -> int:
        """As of those that are kept."""
        return self.kept.number

    def told(self) -> dict[str, Any]:
        """`rates`: [client id, API, requests a second]; `requests`: [Unix ms, client id, API, outcome, count] of the
        last ones, newest first, and of older ones that had errors. A step sets the clock."""
        clock = self._broker.clock
        passed_ms, self._asked_ms = clock.real_ms - self._asked_ms, clock.real_ms
        if passed_ms > 0:
            self._count(passed_ms / 1000)
        rates = sorted(self._rates.items(), key=lambda each: (-each[1], each[0]))[:MAX_RATES]
        if self._told_at != self.number:
            self._told_at = self.number
            wall_ms = clock.wall_ms
            found = self.list_requests(())[::-1]
            older = [each for each in found[MAX_REQUESTS:] if errors_in(each[3])]
            found = found[:MAX_REQUESTS] + older[:MAX_ERRORS]
            self._told = [[wall_ms - ago_ms, *what] for ago_ms, *what in found]
        return {
            "rates": [
                [client_id, api_text(key, 0).rpartition(" v")[0], round(rate, 1)]
                for (client_id, key), rate in rates
            ],
            "requests": self._told,
        }

    def _count(self, seconds: float) -> None:
        rates = self._rates
        for key in self._counts.keys() | rates.keys():
            rate = self._counts.get(key, 0) / seconds
            rates[key] = rates.get(key, rate) * (1 - _NEWEST) + rate * _NEWEST
            if rates[key] < 0.05:
                del rates[key]
        self._counts.clear()
