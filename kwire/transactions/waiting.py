"""Requests that wait for a change of their transactional id.

Kafka's coordinator answers CONCURRENT_TRANSACTIONS at once while a change is being written, or the
markers of the last transaction; clients then sleep for 20 to 100 ms, where the change takes a few. kwire
holds such a request back, and looks again when the change is through. It waits no longer than a client
would have slept, and gets the same answer then: what another broker or a producer can see differs in
time only.
"""

from __future__ import annotations

from kwire.shards.result import Result, nothing

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from kwire.replication.core.clock import Clock
    from kwire.shards.result import CoordinatorTimer


class Waiting:
    """The requests of one shard that wait, by transactional id, in the order of their arrival."""

    __slots__ = ("_clock", "_timer", "requests")

    def __init__(self, clock: Clock, timer: CoordinatorTimer) -> None:
        self._clock = clock
        self._timer = timer
        self.requests: dict[str, list[Callable[[], None]]] = {}

    def put(self, transactional_id: str, again: Callable[[], None], deadline_ms: int) -> None:
        """Call `again` after the next change of this id, or at `deadline_ms` of the clock."""
        requests = self.requests.get(transactional_id)
        if requests is not None:
            requests.append(
                again
            )  # looked at with the first one's deadline, and put again if need be
            return
        self.requests[transactional_id] = [again]

        def is_due() -> Result[None]:
            self._look_again(transactional_id)
            return nothing()

        delay_ms = deadline_ms - self._clock.now_ms
        self._timer.schedule(("waiting", transactional_id), delay_ms, is_due)

    def changed(self, transactional_id: str) -> None:
        """The id has no pending change any more, and no markers to write."""
        if transactional_id in self.requests:
            self._timer.cancel(("waiting", transactional_id))
            self._look_again(transactional_id)

    def unload(self) -> None:
        """The shard is unloaded: another broker may be the coordinator now."""
        for transactional_id in list(self.requests):
            self.changed(transactional_id)

    def _look_again(self, transactional_id: str) -> None:
        for again in self.requests.pop(transactional_id, ()):
            again()
