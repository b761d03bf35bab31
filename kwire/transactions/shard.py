"""The transactional ids of one partition of `__transaction_state`: requests, ends, time-outs, replay.

Answers to the rules of Kafka's TransactionCoordinator and to TransactionStateManager. A request
prepares a change (metadata.py) and returns its record (changes.py).
"""

from __future__ import annotations

from kwire.protocol.errors import ErrorCode, KafkaError
from kwire.protocol.records import NO_PRODUCER_EPOCH
from kwire.shards.result import Result, nothing
from kwire.transactions.changes import TransactionChanges, error_answer
from kwire.transactions.endings import must_write
from kwire.transactions.events import TransactionEvent
from kwire.transactions.metadata import (
    DEAD,
    EMPTY,
    ONGOING,
    PREPARED,
    TV_2,
    TransactionMetadata,
    TransactionValues,
    is_exhausted,
)
from kwire.transactions.records import tombstone, values_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from kwire.replication.core.types import TopicPartition
    from kwire.transactions.changes import Answer
    from kwire.transactions.records import TransactionRecord

_ABORTS_AT_ONCE = 100
_TOMBSTONES_BYTES = 256 * 1024


class TransactionShard(TransactionChanges):
    """All transactional ids of one partition. Handlers raise KafkaError for an error to be answered."""

    __slots__ = ()

    # --- requests

    def init_producer_id(
        self, transactional_id: str, timeout_ms: int, expected: tuple[int, int] | None
    ) -> Result[Answer]:
        """Give the producer an epoch that fences all before it; an open transaction is aborted first.

        `expected`: id and epoch of a producer that recovers (KIP-360)."""
        metadata = self.transactions.get(transactional_id)
        if metadata is None:
            metadata = self._new(transactional_id, timeout_ms)
        if metadata.is_pending:
            raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS)
        if expected is not None and not _may_recover(metadata.values, *expected):
            raise KafkaError(ErrorCode.PRODUCER_FENCED)
        if metadata.state in PREPARED:
            raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS)
        if metadata.state is ONGOING:
            # The client tries again, and then gets the epoch after the one of the abort.
            self._report(TransactionEvent.PRODUCER_FENCED, metadata)
            return self._fence(metadata, error_answer(ErrorCode.CONCURRENT_TRANSACTIONS))
        expected_epoch = None if expected is None else expected[1]
        now_ms = self._clock.wall_ms
        if metadata.is_exhausted and expected_epoch in (None, metadata.values.producer_epoch):
            values = metadata.prepare_producer_id_rotation(
                self._around.new_producer_id(),
                timeout_ms,
                now_ms,
                keep_last_epoch=expected is not None,
            )
        else:
            values = metadata.prepare_increment_producer_epoch(timeout_ms, expected_epoch, now_ms)
        return self._change(
            metadata, values, (ErrorCode.NONE, values.producer_id, values.producer_epoch)
        )

    def _new(self, transactional_id: str, timeout_ms: int) -> TransactionMetadata:
        """As in Kafka it is there from now on, even if its first record cannot be written."""
        values = TransactionValues(
            self._around.new_producer_id(),
            NO_PRODUCER_EPOCH,
            timeout_ms,
            EMPTY,
            self._clock.wall_ms,
        )
        return self._put(transactional_id, values)

    def add_partitions(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Iterable[TopicPartition],
        client_version: int,
    ) -> Result[None]:
        """Add partitions to the open transaction, or begin one."""
        metadata = self._find(transactional_id)
        values, added = metadata.values, dict.fromkeys(partitions)
        if metadata.is_pending and self._around.transaction_version >= TV_2:
            # First: the producer may have the id and epoch that are still pending (KAFKA-18660).
            raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS)
        _check_producer(values, producer_id, producer_epoch)
        if metadata.is_pending or values.state in PREPARED:
            raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS)
        if values.state is ONGOING and added.keys() <= values.partitions.keys():
            return nothing()
        new = metadata.prepare_add_partitions(added, self._clock.wall_ms, client_version)
        return self._change(metadata, new, None)

    def verify_partitions(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Iterable[TopicPartition],
    ) -> dict[TopicPartition, ErrorCode]:
        """Whether each partition belongs to the producer's open transaction (KIP-890)."""
        values = self._find(transactional_id).values
        _check_producer(values, producer_id, producer_epoch)
        if values.state in PREPARED:
            raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS)
        missing = ErrorCode.TRANSACTION_ABORTABLE
        return {
            each: ErrorCode.NONE if each in values.partitions else missing for each in partitions
        }

    def end_transaction(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        commit: bool,
        client_version: int,
    ) -> Result[Answer]:
        """Commit or abort; answered when the decision is committed, the markers follow.

        TV_2: the answer has the id and epoch of the producer's next transaction."""
        metadata = self._find(transactional_id)
        if must_write(
            metadata, producer_id, producer_epoch, commit=commit, client_version=client_version
        ):
            return self._end(metadata, commit, client_version)
        values = metadata.values
        if client_version >= TV_2:
            return Result((), (ErrorCode.NONE, values.producer_id, values.producer_epoch))
        return Result((), error_answer(ErrorCode.NONE))

    def _find(self, transactional_id: str) -> TransactionMetadata:
        metadata = self.transactions.get(transactional_id)
        if metadata is None:
            raise KafkaError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
        return metadata

    # --- time-outs

    def abort_timed_out(self) -> Result[None]:
        """Abort the open transactions that are older than their time-out; schedule the next look."""
        now_ms = self._clock.wall_ms
        timed_out = [each for each in self.open.values() if each.has_timed_out(now_ms)]
        for metadata in timed_out[:_ABORTS_AT_ONCE]:
            self._report(
                TransactionEvent.TRANSACTION_TIMED_OUT,
                metadata,
                timeout_ms=metadata.values.timeout_ms,
            )
            try:
                result = self._fence(metadata, error_answer(ErrorCode.NONE))
            except KafkaError:
                continue  # no producer id for the next one: the next look tries again
            self._around.append(
                self._index,
                Result(
                    result.records,
                    None,
                    on_append=result.on_append,
                    replay=False,
                    timeout_ms=result.timeout_ms,
                ),
            )
        self._is_abort_scheduled = False
        self._schedule_abort(1 if len(timed_out) > _ABORTS_AT_ONCE else None)
        return nothing()

    # --- expiration

    def expire(self) -> Result[None]:
        """Remove the ids that have been idle for too long; schedule the next look."""
        now_ms, expiration_ms = self._clock.wall_ms, self._around.expiration_ms
        some: list[TransactionMetadata] = []
        size = 0
        for metadata in list(self.transactions.values()):
            if metadata.has_expired(now_ms, expiration_ms):
                metadata.prepare_dead()
                some.append(metadata)
                size += len(metadata.transactional_id)
                if size > _TOMBSTONES_BYTES:
                    self._around.append(self._index, self._remove(some))
                    some, size = [], 0
        self._schedule_expire()
        return self._remove(some) if some else nothing()

    def _schedule_expire(self) -> None:
        self._timer.schedule(("expire",), self._around.expire_interval_ms, self.expire)

    def _remove(self, expired: list[TransactionMetadata]) -> Result[None]:
        def appended(error: ErrorCode) -> None:
            for metadata in expired:
                if metadata.pending_state is DEAD:
                    metadata.give_up()
                    if error is ErrorCode.NONE:
                        self.transactions.pop(metadata.transactional_id, None)
                    self.waiting.changed(metadata.transactional_id)

        records = [tombstone(metadata.transactional_id) for metadata in expired]
        return Result(records, None, on_append=appended, replay=False)

    # --- hard state

    def replay(self, offset: int, producer_id: int, record: TransactionRecord) -> None:
        """Apply a record of the log while it is loaded."""
        transactional_id = record.transactional_id
        if record.value is None:
            self.transactions.pop(transactional_id, None)
            self.open.pop(transactional_id, None)
        else:
            self._note_open(self._put(transactional_id, values_of(record.value)))

    def replay_end_transaction(self, offset: int, producer_id: int, committed: bool) -> None:
        """There are no transactions in this topic."""

    def advance(self, high_watermark: int) -> None:
        """Changes are made when their records are committed: there is nothing to keep apart."""

    def on_loaded(self) -> list[Result[None]]:
        """Start timers, and write the markers of the transactions that are decided."""
        self._schedule_expire()
        self._schedule_abort()
        for metadata in list(self.transactions.values()):
            if metadata.state in PREPARED:
                self._send_markers(metadata, answer_first=False)
        return []

    def on_unloaded(self) -> None:
        """Write no markers any more: the next coordinator will."""
        self._around.cancel_markers(self._index)
        self.transactions, self.open = {}, {}
        self.waiting.unload()


def _may_recover(values: TransactionValues, producer_id: int, producer_epoch: int) -> bool:
    """Whether the producer may go on (KIP-360): the id is new here, or it is its own, or was before its
    epochs were used up, when the response may have been lost. The epoch is checked later."""
    return (
        values.producer_epoch == NO_PRODUCER_EPOCH
        or producer_id == values.producer_id
        or (producer_id == values.previous_producer_id and is_exhausted(producer_epoch))
    )


def _check_producer(values: TransactionValues, producer_id: int, producer_epoch: int) -> None:
    if values.producer_id != producer_id:
        raise KafkaError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    if values.producer_epoch != producer_epoch:
        raise KafkaError(ErrorCode.PRODUCER_FENCED)
