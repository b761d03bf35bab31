"""The client quotas of a broker: its values as the controller tells them, and what clients have used.

Answers to kafka.server.QuotaFactory.QuotaManagers and ClientQuotaMetadataManager.
"""

from __future__ import annotations

from kwire.replication.core.quotas import (
    CONNECTION_CREATION_RATE,
    CONSUMER_BYTE_RATE,
    IP,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
    Limits,
    Quota,
    entity_of,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from kwire.replication.config.broker_config import BrokerConfig

_PERCENT_A_NANOSECOND = 100 / 1e9


class ClientQuotas:
    """One `Quota` for bytes of Produce, for bytes of Fetch and for the time of requests, in percent of a thread."""

    def __init__(self, config: BrokerConfig) -> None:
        samples, window_ms = config.quota_window_num, config.quota_window_size_seconds * 1000
        self.produce = Quota(samples, window_ms)
        self.fetch = Quota(samples, window_ms)
        self.request = Quota(samples, window_ms, most_ms=window_ms)
        self._limits: dict[str, Limits] = {
            PRODUCER_BYTE_RATE: self.produce.limits,
            CONSUMER_BYTE_RATE: self.fetch.limits,
            REQUEST_PERCENTAGE: self.request.limits,
        }
        self.ips: dict[str | None, int] = {}
        """connection_creation_rate by address; None: of those without one of their own."""
        self._known: dict[str, Mapping[str, str]] = {}

    def changed(self, name: str, values: Mapping[str, str]) -> None:
        """Apply all values of the entity with this text."""
        entity = entity_of(name)
        before = self._known.pop(name, {})
        if values:
            self._known[name] = values
        if IP in entity:
            self.ips.pop(entity[IP], None)
            if CONNECTION_CREATION_RATE in values:
                self.ips[entity[IP]] = int(float(values[CONNECTION_CREATION_RATE]))
            return
        for key in before.keys() | values.keys():
            if key in self._limits and before.get(key) != values.get(key):
                self._limits[key].set(entity, float(values[key]) if key in values else None)

    def request_ms(self, user: str, client_id: str, nanoseconds: int, now_ms: int) -> int:
        """Record the time of a request, and return the throttle time, in milliseconds."""
        if not self.request.limits.were_set:
            return 0
        return self.request.record(user, client_id, nanoseconds * _PERCENT_A_NANOSECOND, now_ms)

    def produce_ms(self, user: str, client_id: str, size_bytes: int, now_ms: int) -> int:
        """Record a Produce request, and return the throttle time."""
        if not self.produce.limits.were_set:
            return 0
        return self.produce.record(user, client_id, size_bytes, now_ms)

    def fetch_ms(self, user: str, client_id: str, size_bytes: int, now_ms: int) -> int:
        """Record the response to a Fetch, and return the throttle time."""
        if not self.fetch.limits.were_set:
            return 0
        return self.fetch.record(user, client_id, size_bytes, now_ms)

    def take_back_fetch(self, user: str, client_id: str, size_bytes: int, now_ms: int) -> None:
        """Take back what was recorded for a response that is sent empty."""
        if self.fetch.limits.were_set:
            self.fetch.add(user, client_id, -size_bytes, now_ms)
