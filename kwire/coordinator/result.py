"""What a shard's handler gives back, and the two things it asks of its runtime.

Answers to org.apache.kafka.coordinator.group.runtime.CoordinatorResult and CoordinatorTimer, and to the futures that
Kafka's classic groups park their members on.
"""

from __future__ import annotations

from typing import Generic, Protocol, TypeVar

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kwire.coordinator.group_records import CoordinatorRecord
    from kwire.protocol.errors import ErrorCode

T = TypeVar("T")


class Result(Generic[T]):
    """Records to append and the response to give once they are committed.

    `on_append` is called with the outcome of the append (NONE: committed), before the response is given. `replay`
    False: the handler has changed the group already, as classic groups do, whose members are soft state. `atomic`
    False: the records may be appended as several batches.
    """

    __slots__ = ("atomic", "on_append", "records", "replay", "response")

    def __init__(
        self,
        records: Sequence[CoordinatorRecord],
        response: T,
        *,
        on_append: Callable[[ErrorCode], None] | None = None,
        replay: bool = True,
        atomic: bool = True,
    ) -> None:
        self.records = records
        self.response = response
        self.on_append = on_append
        self.replay = replay
        self.atomic = atomic


def nothing() -> Result[None]:
    """No records, no response."""
    return Result((), None)


class Deferred(Generic[T]):
    """An answer owed to somebody: given once, a second one is ignored."""

    __slots__ = ("_deliver",)

    def __init__(self, deliver: Callable[[T], None]) -> None:
        self._deliver: Callable[[T], None] | None = deliver

    @property
    def done(self) -> bool:
        return self._deliver is None

    def complete(self, value: T) -> bool:
        """Gives the answer; False when it was given before."""
        deliver, self._deliver = self._deliver, None
        if deliver is None:
            return False
        deliver(value)
        return True


class CoordinatorTimer(Protocol):
    """Timers by key; the operation runs on the shard and its records are appended like a request's."""

    def schedule(
        self, key: tuple[str, ...], delay_ms: int, operation: Callable[[], Result[None]]
    ) -> None: ...

    def cancel(self, key: tuple[str, ...]) -> None: ...


class MemberContext:
    """What a shard wants to know of who asks. `client_host` as Kafka shows it: "/127.0.0.1"."""

    __slots__ = ("api_version", "client_host", "client_id")

    def __init__(self, api_version: int, client_id: str, client_host: str) -> None:
        self.api_version = api_version
        self.client_id = client_id
        self.client_host = client_host
