"""How changes of transactional ids are written: the record, its effect, and the end of a transaction.

Answers to TransactionStateManager.appendTransactionToLog and to the second half of Kafka's
TransactionCoordinator.endTransaction. A change takes effect when its record is committed, as in Kafka.
After a decision (PrepareCommit, PrepareAbort) is committed the markers are sent, and after them the end
of the transaction is written.
"""

from __future__ import annotations

from typing import TypeVar

from kwire.protocol.errors import ErrorCode
from kwire.protocol.records import NO_PRODUCER_EPOCH, NO_PRODUCER_ID
from kwire.shards.result import Result, nothing
from kwire.transactions.events import TransactionEvent
from kwire.transactions.metadata import (
    ONGOING,
    PREPARE_ABORT,
    PREPARE_COMMIT,
    PREPARED,
    TV_2,
    TransactionMetadata,
    TransactionValues,
)
from kwire.transactions.records import transaction_record
from kwire.transactions.waiting import Waiting

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection
    from typing import Protocol

    from kwire.replication.core.clock import Clock
    from kwire.replication.core.events import EventType, LogEvent
    from kwire.replication.core.types import TopicPartition
    from kwire.shards.result import CoordinatorTimer
    from kwire.transactions.records import TransactionRecord

    class Surroundings(Protocol):
        """What a shard needs beside its log."""

        @property
        def transaction_version(self) -> int:
            """TV_0 or TV_2: of the cluster."""
            ...

        @property
        def abort_interval_ms(self) -> int: ...
        @property
        def expire_interval_ms(self) -> int: ...
        @property
        def expiration_ms(self) -> int: ...

        def new_producer_id(self) -> int:
            """KafkaError: no id can be had for now."""
            ...

        def append(self, index: int, result: Result[None]) -> None:
            """Append records of the shard that no request waits for."""
            ...

        def is_replicated(self, index: int) -> bool:
            """Whether an append to the shard's partition waits for other brokers."""
            ...

        def send_markers(
            self, index: int, metadata: TransactionMetadata, done: Callable[[ErrorCode], None]
        ) -> Collection[TopicPartition]:
            """The result has the partitions that lack their marker, now and later."""
            ...

        def cancel_markers(self, index: int) -> None: ...


T = TypeVar("T")

Answer = tuple[ErrorCode, int, int]
"""Error, producer id and epoch."""
RETRY_MS = 100
"""After the end of a transaction could not be written."""


def error_answer(error: ErrorCode) -> Answer:
    """The answer of a request that has failed."""
    return error, NO_PRODUCER_ID, NO_PRODUCER_EPOCH


class TransactionChanges:
    """The transactional ids of one partition, and the changes that are written of them."""

    __slots__ = (
        "_around",
        "_clock",
        "_index",
        "_is_abort_scheduled",
        "_log_event",
        "_timer",
        "open",
        "transactions",
        "waiting",
    )

    def __init__(
        self,
        index: int,
        around: Surroundings,
        clock: Clock,
        timer: CoordinatorTimer,
        log_event: LogEvent,
    ) -> None:
        self._index = index
        self._around = around
        self._clock = clock
        self._timer = timer
        self._log_event = log_event
        self._is_abort_scheduled = False
        self.transactions: dict[str, TransactionMetadata] = {}
        self.open: dict[str, TransactionMetadata] = {}
        """Those whose transaction is open (ONGOING)."""
        self.waiting = Waiting(clock, timer)

    def _put(self, transactional_id: str, values: TransactionValues) -> TransactionMetadata:
        keeps_previous = self._around.transaction_version >= TV_2
        metadata = TransactionMetadata(transactional_id, values, keeps_previous=keeps_previous)
        self.transactions[transactional_id] = metadata
        return metadata

    # --- one change

    def _record(
        self, metadata: TransactionMetadata, values: TransactionValues
    ) -> TransactionRecord:
        return transaction_record(
            metadata.transactional_id, values, self._around.transaction_version
        )

    def _change(
        self,
        metadata: TransactionMetadata,
        values: TransactionValues,
        answer: T,
        then: Callable[[ErrorCode], None] | None = None,
    ) -> Result[T]:
        """The record of a prepared change, which takes effect once that is committed."""

        def appended(error: ErrorCode) -> None:
            if error is ErrorCode.NONE:
                self._apply(metadata, values)
            else:
                metadata.give_up()
            if then is not None:
                then(error)
            if not metadata.is_pending and metadata.state not in PREPARED:
                self.waiting.changed(metadata.transactional_id)

        return self._result(self._record(metadata, values), values, answer, appended)

    @staticmethod
    def _result(
        record: TransactionRecord,
        values: TransactionValues,
        answer: T,
        appended: Callable[[ErrorCode], None],
    ) -> Result[T]:
        """As in Kafka the append may take as long as the transaction."""
        return Result(
            [record], answer, on_append=appended, replay=False, timeout_ms=values.timeout_ms
        )

    def _apply(self, metadata: TransactionMetadata, values: TransactionValues) -> None:
        metadata.complete(values)
        self._note_open(metadata)
        self._schedule_abort()

    def _note_open(self, metadata: TransactionMetadata) -> None:
        if metadata.state is ONGOING:
            self.open[metadata.transactional_id] = metadata
        else:
            self.open.pop(metadata.transactional_id, None)

    def _report(self, event: EventType, metadata: TransactionMetadata, **fields: object) -> None:
        self._log_event(
            event,
            transactional_id=metadata.transactional_id,
            producer_id=metadata.values.producer_id,
            producer_epoch=metadata.values.producer_epoch,
            **fields,
        )

    # --- ends of transactions

    def _fence(self, metadata: TransactionMetadata, answer: Answer) -> Result[Answer]:
        """Abort the open transaction so that its producer can write no more."""
        version = self._around.transaction_version
        fence = metadata.prepare_epoch_fence()
        metadata.give_up()
        if version < TV_2:
            metadata.fence_epoch(fence.producer_epoch)  # with TV_2 the abort bumps the epoch
        result = self._end(metadata, False, version, is_fence=True)
        return Result(
            result.records,
            answer,
            on_append=result.on_append,
            replay=False,
            timeout_ms=result.timeout_ms,
        )

    def _end(
        self,
        metadata: TransactionMetadata,
        commit: bool,
        client_version: int,
        *,
        is_fence: bool = False,
    ) -> Result[Answer]:
        next_id = NO_PRODUCER_ID
        if client_version >= TV_2 and metadata.is_exhausted:
            next_id = self._around.new_producer_id()
        values = metadata.prepare_end(
            PREPARE_COMMIT if commit else PREPARE_ABORT,
            self._clock.wall_ms,
            client_version,
            next_producer_id=next_id,
            is_empty=metadata.state is not ONGOING,
        )
        if client_version < TV_2:
            answer = error_answer(ErrorCode.NONE)
        elif next_id != NO_PRODUCER_ID:
            answer = (ErrorCode.NONE, next_id, 0)
        else:
            answer = (ErrorCode.NONE, values.producer_id, values.producer_epoch)

        def decided(error: ErrorCode) -> None:
            if error is ErrorCode.NONE:
                self._send_markers(metadata, answer_first=self._around.is_replicated(self._index))
            elif is_fence:
                metadata.has_failed_epoch_fence = True

        return self._change(metadata, values, answer, decided)

    def _send_markers(self, metadata: TransactionMetadata, *, answer_first: bool) -> None:
        """Have the markers of a decided transaction written, then write its end.

        `answer_first`: in a step of its own, so that the answer to EndTxn, which has waited for other brokers, does
        not wait for the work on markers, too."""
        values = metadata.prepare_complete(self._clock.wall_ms)
        metadata.unmarked = None

        def written(error: ErrorCode) -> None:
            if self.transactions.get(metadata.transactional_id) is not metadata:
                return
            if error is ErrorCode.NONE:
                self._around.append(self._index, self._complete(metadata, values))
            else:
                # As in Kafka it stays prepared until its partition is loaded again.
                self._report(TransactionEvent.TRANSACTION_GIVEN_UP, metadata, detail=error.name)

        def send() -> Result[None]:
            metadata.unmarked = self._around.send_markers(self._index, metadata, written)
            return nothing()

        if answer_first:
            self._timer.schedule(("markers", metadata.transactional_id), 0, send)
        else:
            send()

    def _complete(self, metadata: TransactionMetadata, values: TransactionValues) -> Result[None]:
        record = self._record(metadata, values)

        def appended(error: ErrorCode) -> None:
            if error is ErrorCode.NONE:
                self._apply(metadata, values)
                self.waiting.changed(metadata.transactional_id)
            elif error is not ErrorCode.NOT_COORDINATOR:
                # The markers are written: only this record is missing.
                self._timer.schedule(
                    ("complete", metadata.transactional_id),
                    RETRY_MS,
                    lambda: self._complete(metadata, values),
                )

        return self._result(record, values, None, appended)

    def _schedule_abort(self, delay_ms: int | None = None) -> None:
        if self.open and not self._is_abort_scheduled:
            self._is_abort_scheduled = True
            interval_ms = self._around.abort_interval_ms
            self._timer.schedule(
                ("abort-timed-out",),
                interval_ms if delay_ms is None else delay_ms,
                self.abort_timed_out,
            )

    def abort_timed_out(self) -> Result[None]:
        """Abort the open transactions that are older than their time-out; schedule the next look."""
        raise NotImplementedError
