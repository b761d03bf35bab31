"""`faults` of `kwire.Cluster`: for code without a loop; `faults.py` does the work."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import TracebackType
    from typing import Any, Self

    from kwire.backends.faults import faults
    from kwire.client.views import Request
    from kwire.cluster import Cluster


class Fault:
    """A fault that was set: until it is removed, or as a context until the end of the block."""

    def __init__(self, cluster: Cluster, inner: faults.Fault) -> None:
        self._cluster = cluster
        self._inner = inner

    @property
    def id(self) -> str:
        """Its name in the control API."""
        return self._inner.id

    @property
    def given(self) -> dict[str, Any]:
        """What was given, as kwire writes it."""
        return self._inner.given

    @property
    def hits(self) -> int:
        """How many requests it has hit, at all nodes; also after its end."""
        return self._cluster._run(self._inner.hits())

    @property
    def requests(self) -> list[Request]:
        """Those requests, oldest first: the last 100 at each node."""
        return self._cluster._run(self._inner.requests())

    def remove(self) -> None:
        """End it; nothing happens if it has ended."""
        self._cluster._run(self._inner.remove())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.remove()

    def __repr__(self) -> str:
        return repr(self._inner)


class Faults:
    """Faults on requests: errors, delays, answers that never come, corrupt records, closed connections."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def inject(
        self,
        api: str | None = None,
        *,
        error: str | int | None = None,
        delay: float | None = None,
        drop: str | None = None,
        throttle: float | None = None,
        corrupt: bool | None = None,
        close: bool | None = None,
        version: int | None = None,
        broker: int | None = None,
        client_id: str | None = None,
        topic: str | None = None,
        partition: int | None = None,
        group: str | None = None,
        transactional_id: str | None = None,
        listener: str | None = None,
        user: str | None = None,
        times: int | None = None,
        probability: float | None = None,
        seed: int | None = None,
        force: bool = False,
    ) -> Fault:
        """Set a fault on the requests that fit all of `api` ("Produce"), `version`, `broker`, `client_id`, … , from now
        on, or as a context until the end of the block. One of these happens to them: `error`, by Kafka's name
        or number, for the topics, partitions or groups that are named, or for all; `delay`, milliseconds before
        they are handled; `drop`: "before", they are never handled, "after", they are, but never answered; `throttle`,
        milliseconds; `corrupt` records (of Fetch); `close` the connection.

        `times`: the first ones at each node only; `probability`: some of them, the same with the same `seed`. `force`:
        an error that Kafka would not answer with. ConfigurationError for what could never hit; NotSupportedError."""

        given = {name: value for name, value in locals().items() if name != "self"}

        async def add() -> faults.Fault:
            return await self._cluster._inner.faults.inject(**given)

        return Fault(self._cluster, self._cluster._run(add()))

    def list(self) -> list[Fault]:
        """The faults that are set."""
        return [Fault(self._cluster, each) for each in self._cluster._inner.faults.list()]

    def clear(self) -> None:
        """Remove all faults."""
        self._cluster._run(self._cluster._inner.faults.clear())

    def __repr__(self) -> str:
        return repr(self._cluster._inner.faults)
