"""Producer ids of a broker of a cluster, from blocks that the controller allocates.

Answers to RPCProducerIdManager.
"""

from __future__ import annotations

from kwire.protocol.errors import ErrorCode, KafkaError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from kwire.protocol.schemas.control_plane import AllocateProducerIdsResponse
    from kwire.replication.member.controller_link import ControllerLink


class AllocatedProducerIds:
    """Producer ids from the controller's blocks; the next one is requested in time."""

    def __init__(self, link: ControllerLink) -> None:
        self._link = link
        self._ids = range(0)
        self._next_ids = range(0)
        self._in_flight = False

    def generate(self) -> int:
        """Return an unused id; COORDINATOR_LOAD_IN_PROGRESS, as Kafka, while there is no block."""
        if not self._ids:
            self._ids, self._next_ids = self._next_ids, range(0)
        if not self._ids:
            self.request_block()
            raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        producer_id, self._ids = self._ids[0], self._ids[1:]
        if len(self._ids) <= 100 and not self._next_ids:
            self.request_block()
        return producer_id

    def when_durable(self, callback: Callable[[], None]) -> None:
        """Call back: the controller has journaled the block before it sent it."""
        callback()

    def request_block(self) -> None:
        """Request a block unless a request is in flight."""
        if not self._in_flight:
            self._in_flight = True
            self._link.allocate_producer_ids(self._on_block)

    def _on_block(self, response: AllocateProducerIdsResponse | None) -> None:
        self._in_flight = False
        if response is not None and not response.error_code and response.producer_id_len > 0:
            first = response.producer_id_start
            self._next_ids = range(first, first + response.producer_id_len)
