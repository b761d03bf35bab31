"""Results of shard handlers, deferred responses, and the timers of a shard.

Answers to org.apache.kafka.coordinator.common.runtime.CoordinatorResult and CoordinatorTimer, and to
the futures with which Kafka parks requests of classic groups.
"""

from __future__ import annotations

from typing import Generic, Protocol, TypeVar

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kwire.protocol.errors import ErrorCode
    from kwire.replication.log.verification import VerificationGuard
    from kwire.shards.kind import ShardRecord

T = TypeVar("T")


class Result(Generic[T]):
    """Records to append, and the response once they are committed.

    `on_append` is called with the outcome of the append (NONE: committed), before the response.
    `replay` False: the handler has changed the state already, as classic groups do, whose members
    are soft state, or `on_append` will, as with transactions. `atomic` False: the records may be
    appended as several batches. `producer`: id and epoch of a transaction that the records belong to;
    `guard`: its verification in this partition. `timeout_ms`: how long the append may wait for the in-sync
    replicas; None: as long as this kind of coordinator waits.
    """

    __slots__ = (
        "atomic",
        "guard",
        "on_append",
        "producer",
        "records",
        "replay",
        "response",
        "timeout_ms",
    )

    def __init__(
        self,
        records: Sequence[ShardRecord],
        response: T,
        *,
        on_append: Callable[[ErrorCode], None] | None = None,
        replay: bool = True,
        atomic: bool = True,
        producer: tuple[int, int] | None = None,
        guard: VerificationGuard | None = None,
        timeout_ms: int | None = None,
    ) -> None:
        self.records = records
        self.response = response
        self.on_append = on_append
        self.replay = replay
        self.atomic = atomic
        self.producer = producer
        self.guard = guard
        self.timeout_ms = timeout_ms


def nothing() -> Result[None]:
    """A result without records and response."""
    return Result((), None)


class Deferred(Generic[T]):
    """The response to a parked request: delivered once, a second one is ignored."""

    __slots__ = ("_deliver",)

    def __init__(self, deliver: Callable[[T], None]) -> None:
        self._deliver: Callable[[T], None] | None = deliver

    @property
    def done(self) -> bool:
        return self._deliver is None

    def complete(self, value: T) -> bool:
        """Deliver the response; False if it was delivered before."""
        deliver, self._deliver = self._deliver, None
        if deliver is None:
            return False
        deliver(value)
        return True


class CoordinatorTimer(Protocol):
    """Timers by key; the records of a timer's operation are appended like those of a request."""

    def schedule(
        self, key: tuple[str, ...], delay_ms: int, operation: Callable[[], Result[None]]
    ) -> None: ...

    def cancel(self, key: tuple[str, ...]) -> None: ...
