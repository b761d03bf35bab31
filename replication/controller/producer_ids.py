"""Producer ids: a broker takes them in blocks, so that no id is ever given twice, across restarts and brokers.

Answers to RPCProducerIdManager (the taking side) and ProducerIdControlManager (the giving side; AllocateProducerIds).
The giver writes the end of a block to disk before it hands the block out; what a killed broker had left of one is lost.
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
    """Gives out blocks of ids; its only state is where the next block begins, in one small file of the log store."""

    __slots__ = ("_next_id", "_store")

    def __init__(self, store: LogStore) -> None:
        """The file is read with the first block: most runs need no producer id at start."""
        self._store = store
        self._next_id: int | None = None

    def __call__(self) -> tuple[int, int]:
        """(first id, count) of a new block. Raises KAFKA_STORAGE_ERROR, and UNKNOWN_SERVER_ERROR at the end of all."""
        first = self._read() if self._next_id is None else self._next_id
        if first > INT64_MAX - PRODUCER_ID_BLOCK:
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "all producer ids are used up")
        try:
            self._store.write_file(FILE_NAME, b"0\n%d\n" % (first + PRODUCER_ID_BLOCK))
        except OSError as error:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error
        self._next_id = first + PRODUCER_ID_BLOCK
        return first, PRODUCER_ID_BLOCK

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
            # To begin again at 0 would give ids twice.
            message = f"{FILE_NAME} is malformed"
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, message) from None


class ProducerIds:
    """The ids of one broker, taken from `next_block` as needed."""

    __slots__ = ("_end", "_next", "_next_block")

    def __init__(self, next_block: Callable[[], tuple[int, int]]) -> None:
        """`next_block`: → (first id, count); ProducerIdBlocks, or later the controller's answer."""
        self._next_block = next_block
        self._next = 0
        self._end = 0

    def generate(self) -> int:
        """An id that was never given before."""
        if self._next >= self._end:
            first, count = self._next_block()
            self._next, self._end = first, first + count
        producer_id = self._next
        self._next += 1
        return producer_id


class ProducerIdControl:
    """The giving side of a cluster's controller: where the next block begins is in its journal."""

    __slots__ = ("_changelog", "_context", "_heard")

    def __init__(
        self,
        context: ControllerContext,
        changelog: ChangeLog,
        *,
        heard: Callable[[LiveBroker], None],
    ) -> None:
        """`heard`: a broker has given a sign of life."""
        self._context = context
        self._changelog = changelog
        self._heard = heard

    def allocate(
        self, request: AllocateProducerIdsRequest, version: int
    ) -> AllocateProducerIdsResponse:
        """AllocateProducerIds v0: a block that no broker has had or will have."""
        from kwire.protocol.schemas.control_plane import AllocateProducerIdsResponse

        broker = self._context.brokers.get(request.broker_id)
        if broker is None or broker.epoch != request.broker_epoch:
            return AllocateProducerIdsResponse(error_code=int(ErrorCode.STALE_BROKER_EPOCH))
        self._heard(broker)
        start = self._context.state.next_producer_id
        self._changelog.commit([("producer_ids", {"next": start + PRODUCER_ID_BLOCK})])
        return AllocateProducerIdsResponse(
            producer_id_start=start, producer_id_len=PRODUCER_ID_BLOCK
        )
