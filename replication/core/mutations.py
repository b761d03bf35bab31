"""The quota controller_mutation_rate (KIP-599): partitions that a client creates or deletes, a second.

Answers to kafka.server.ControllerMutationQuotaManager, on the active controller: credits are not journaled, so that
a new controller begins with full buckets, as Kafka's does. In versions whose clients know THROTTLING_QUOTA_EXCEEDED
the quota is strict: a topic is refused while the client's credits are below zero, and may otherwise be of any size.
In older versions all is done, and the answer's throttle time makes up for it.
"""

from __future__ import annotations

from math import floor
from types import GeneratorType

from kwire.protocol.api import ApiKey
from kwire.protocol.errors import ErrorCode, KafkaError
from kwire.replication.core.quotas import Limits, entity_of
from kwire.replication.core.rates import TokenBucket

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from kwire.protocol.language.schema import Message
    from kwire.replication.core.clock import Clock
    from kwire.replication.core.quotas import Client, Key
    from kwire.replication.core.work import Steps

    Method = Callable[[Any, int], Any]
    OnComplete = Callable[[Message], None]

_STRICT_SINCE = {ApiKey.CREATE_TOPICS: 6, ApiKey.DELETE_TOPICS: 5, ApiKey.CREATE_PARTITIONS: 3}
_BUCKETS_KEPT = 1000


class MutationQuota:
    """The quota's values, and the credits of clients. `ControllerContext.mutations` once there is a value.

    `current`: charged for what is changed now, if anybody is."""

    def __init__(self, clock: Clock, samples: int, window_ms: int) -> None:
        self.clock = clock
        self.current: Charge | None = None
        self._limits = Limits()
        self._set: set[str] = set()
        self._samples = samples
        self._window_ms = window_ms
        self._buckets: dict[Key, tuple[TokenBucket, list[int]]] = {}

    def changed(self, name: str, value: str | None) -> None:
        """Set or remove (None) the value of the entity with this text."""
        if value is not None:
            self._set.add(name)
            self._limits.set(entity_of(name), float(value))
        elif name in self._set:
            self._set.remove(name)
            self._limits.set(entity_of(name), None)

    def charged(
        self,
        key: ApiKey,
        method: Method,
        on_complete: OnComplete,
        client: Client,
        version: int,
    ) -> tuple[Method, OnComplete]:
        """Let a client's request be charged, if it is of such an API: what handles it, and what takes its response."""
        strict_since = _STRICT_SINCE.get(key)
        if strict_since is None:
            return method, on_complete
        charge = self.charge(client, is_strict=version >= strict_since)

        def handle(request: Message, version: int) -> Any:
            return charge.during(lambda: method(request, version))

        def answer(response: Any) -> None:
            response.throttle_time_ms = charge.throttle_ms()
            on_complete(response)

        return handle, answer

    def charge(self, client: Client, *, is_strict: bool) -> Charge:
        """What a request of the client is charged by. `is_strict`: nothing is done without credits."""
        return Charge(self, self._limits.key_of(*client), is_strict=is_strict)

    def take(self, key: Key, amount: int) -> tuple[float, float]:
        """Take credits of a client; return what is left, and the quota (infinity: none)."""
        bound = self._limits.bound(key)
        if bound is None:
            return 0.0, float("inf")
        now_ms = self.clock.now_ms
        found = self._buckets.get(key)
        if found is None:
            if len(self._buckets) >= _BUCKETS_KEPT:
                # Of these most are full again, as a new one is.
                old_ms = now_ms - 2 * self._samples * self._window_ms
                self._buckets = {k: b for k, b in self._buckets.items() if b[1][0] > old_ms}
            found = self._buckets[key] = TokenBucket(self._samples, self._window_ms), [now_ms]
        found[1][0] = now_ms
        return found[0].take(amount, bound, now_ms), bound


class Charge:
    """What one request of a client is charged."""

    __slots__ = ("_at_ms", "_is_strict", "_key", "_quota", "_throttle_ms")

    def __init__(self, quota: MutationQuota, key: Key, *, is_strict: bool) -> None:
        self._quota = quota
        self._key = key
        self._is_strict = is_strict
        self._at_ms = self._throttle_ms = 0

    def take(self, partitions: int) -> None:
        """Count partitions. KafkaError(THROTTLING_QUOTA_EXCEEDED): they are not to be changed."""
        left, bound = self._quota.take(self._key, 0 if self._is_strict else partitions)
        if left < 0:
            self._throttle_ms = floor(-left / bound * 1000 + 0.5)
            self._at_ms = self._quota.clock.now_ms
            if self._is_strict:
                raise KafkaError(
                    ErrorCode.THROTTLING_QUOTA_EXCEEDED
                )  # without a message, as in Kafka
        elif self._is_strict:
            self._quota.take(self._key, partitions)

    def throttle_ms(self) -> int:
        """How long the client is to wait from now on, for what it was charged last above its quota."""
        return max(0, self._throttle_ms - (self._quota.clock.now_ms - self._at_ms))

    def during(self, action: Callable[[], Any]) -> Any:
        """Return a generator that does an action, in parts if it is one, whose changes are charged.

        Nothing else changes the controller's state meanwhile (line.py)."""
        return self._charged(action)

    def _charged(self, action: Callable[[], Any]) -> Steps:
        quota = self._quota
        quota.current = self
        try:
            outcome = action()
            if isinstance(outcome, GeneratorType):
                outcome = yield from outcome
            return outcome
        finally:
            quota.current = None
