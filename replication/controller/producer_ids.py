"""Producer ids, allocated in blocks so that none is used twice, across restarts and brokers.

Answers to RPCProducerIdManager (the broker) and ProducerIdControlManager (the controller;
AllocateProducerIds). The end of a block is written to disk before the block is handed out; the
unused rest of a killed broker's block is lost.
"""

from __future__ import annotations

from typing import Final

from kwire.protocol.errors import ErrorCode, KafkaError
from kwire.protocol.varint import INT64_MAX
from kwire.replication.core.types import PRODUCER_ID_BLOCK

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from kwire.protocol.schemas.control_plane import (
        AllocateProducerIdsRequest,
        AllocateProducerIdsResponse,
    )
    from kwire.replication.controller.changes import ChangeLog
    from kwire.replication.controller.context import ControllerContext, LiveBroker
    from kwire.replication.core.log_store import LogStore

FILE_NAME: Final = "producer-id-block"


class ProducerIdBlocks:
    """Allocates blocks of ids for a standalone broker; a small file of the log store has the next
    id."""

    __slots__ = ("_next_id", "_store", "_waiting", "_writes")

    def __init__(self, store: LogStore) -> None:
        """The file is read for the first block: most runs need no producer id at start."""
        self._store = store
        self._writes = 0  # that have not ended
        self._waiting: list[Callable[[], None]] = []
        self._next_id: int | None = None

    def __call__(self) -> tuple[int, int]:
        """Allocate a block: (first id, count).

        KafkaError(KAFKA_STORAGE_ERROR), or UNKNOWN_SERVER_ERROR when all ids are used up."""
        first = self._read() if self._next_id is None else self._next_id
        if first > INT64_MAX - PRODUCER_ID_BLOCK:
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "all producer ids are used up")
        try:
            self._writes += 1
            content = b"0\n%d\n" % (first + PRODUCER_ID_BLOCK)
            self._store.start_write_file(FILE_NAME, content, self._written)
        except OSError as error:
            self._writes -= 1
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error
        self._next_id = first + PRODUCER_ID_BLOCK
        return first, PRODUCER_ID_BLOCK

    def _written(self) -> None:
        self._writes -= 1
        if not self._writes:
            waiting, self._waiting = self._waiting, []
            for callback in waiting:
                callback()

    def when_written(self, callback: Callable[[], None]) -> None:
        """Call back once no block that was allocated can be allocated again after a power cut."""
        if self._writes:
            self._waiting.append(callback)
        else:
            callback()

    def _read(self) -> int:
        try:
            if not self._store.exists(FILE_NAME):
                return 0
            version, next_id = self._store.read_file(FILE_NAME).split()
            if version != b"0" or int(next_id) < 0:
                raise ValueError
            return int(next_id)
        except OSError as error:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error
        except ValueError:
            # Starting at 0 again would use ids twice.
            message = f"{FILE_NAME} is malformed"
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, message) from None


class ProducerIds:
    """The producer ids of a standalone broker, allocated by `next_block` as needed."""

    __slots__ = ("_end", "_next", "_next_block")

    def __init__(self, next_block: ProducerIdBlocks) -> None:
        self._next_block = next_block
        self._next = 0
        self._end = 0

    def when_durable(self, callback: Callable[[], None]) -> None:
        """Call back once no id generated so far can be generated again after a power cut."""
        self._next_block.when_written(callback)

    def generate(self) -> int:
        """Return an unused producer id. Give it away in `when_durable`."""
        if self._next >= self._end:
            first, count = self._next_block()
            self._next, self._end = first, first + count
        producer_id = self._next
        self._next += 1
        return producer_id


class ProducerIdControl:
    """Handles AllocateProducerIds at the controller; its journal has the next id."""

    __slots__ = ("_changelog", "_context", "_renew_lease")

    def __init__(
        self,
        context: ControllerContext,
        changelog: ChangeLog,
        *,
        renew_lease: Callable[[LiveBroker], None],
    ) -> None:
        """`renew_lease`: of a broker that sends a request."""
        self._context = context
        self._changelog = changelog
        self._renew_lease = renew_lease

    def allocate(
        self, request: AllocateProducerIdsRequest, version: int
    ) -> AllocateProducerIdsResponse:
        """Handle AllocateProducerIds v0."""
        from kwire.protocol.schemas.control_plane import AllocateProducerIdsResponse

        broker = self._context.brokers.get(request.broker_id)
        if broker is None or broker.epoch != request.broker_epoch:
            return AllocateProducerIdsResponse(error_code=int(ErrorCode.STALE_BROKER_EPOCH))
        self._renew_lease(broker)
        start = self._context.state.next_producer_id
        self._changelog.commit([("producer_ids", {"next": start + PRODUCER_ID_BLOCK})])
        return AllocateProducerIdsResponse(
            producer_id_start=start, producer_id_len=PRODUCER_ID_BLOCK
        )
