"""Kafka's rules for a transactional id, written down from its TransactionCoordinator and TransactionMetadata
(4.x, and 3.9 where `cluster` is TV_0): what the coordinator under test is compared with in every state.

One function for each request: the answer, and the id afterwards with the markers still to be written.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

from kwire.protocol.errors import ErrorCode
from kwire.transactions.metadata import TV_0, TV_2, TransactionState, TransactionValues

Answer = Any
"""An error, or an error with a producer id and epoch; of a verification an error for each partition."""
S = TransactionState
MAX = 32767
NOBODY = (ErrorCode.NONE, -1, -1)


class Id(NamedTuple):
    """A transactional id: its values, and the state that it is about to reach."""

    values: TransactionValues
    pending: TransactionState | None


class Rules:
    """The rules in a cluster. `new_id`: the next producer id; `now_ms`: the wall clock."""

    def __init__(self, cluster: int, new_id: int, now_ms: int) -> None:
        self.cluster = cluster
        self.new_id = new_id
        self.now_ms = now_ms

    def _to(self, values: TransactionValues, state: TransactionState, **changes: Any) -> Any:
        """prepareTransitionTo and completeTransitionTo; 3.9 notes the previous id with a new one only."""
        if self.cluster >= TV_2 or state is S.Empty:
            changes["previous_producer_id"] = values.producer_id
        new = replace(values, state=state, **changes)
        if self.cluster < TV_2 and state is S.Empty:
            new = replace(new, start_ms=values.start_ms)  # until the log is read again
        return new

    # --- InitProducerId

    def init(self, it: Id, expected: tuple[int, int] | None, timeout_ms: int) -> tuple[Answer, Any]:
        values = it.values
        if it.pending is not None:
            return ErrorCode.CONCURRENT_TRANSACTIONS, values
        if expected is not None and not (
            values.producer_epoch == -1
            or expected[0] == values.producer_id
            or (expected[0] == values.previous_producer_id and expected[1] >= MAX - 1)
        ):
            return ErrorCode.PRODUCER_FENCED, values
        match values.state:
            case S.PrepareAbort | S.PrepareCommit:
                return ErrorCode.CONCURRENT_TRANSACTIONS, values
            case S.Ongoing:
                return (ErrorCode.CONCURRENT_TRANSACTIONS, -1, -1), self.fence(values)
        epoch, last = values.producer_epoch, values.last_producer_epoch
        fresh = {
            "timeout_ms": timeout_ms,
            "partitions": {},
            "start_ms": -1,
            "last_update_ms": self.now_ms,
        }
        if epoch >= MAX - 1:
            if expected is not None and expected[1] != epoch:
                return ErrorCode.UNKNOWN_SERVER_ERROR, values
            new_last = -1 if expected is None else epoch
            new = self._to(
                values,
                S.Empty,
                producer_id=self.new_id,
                producer_epoch=0,
                last_producer_epoch=new_last,
                **fresh,
            )
        else:
            if expected is None:
                epoch, last = epoch + 1, -1
            elif epoch in (-1, expected[1]):
                epoch, last = epoch + 1, epoch
            elif expected[1] != last:
                return ErrorCode.PRODUCER_FENCED, values
            new = self._to(values, S.Empty, producer_epoch=epoch, last_producer_epoch=last, **fresh)
        return (ErrorCode.NONE, new.producer_id, new.producer_epoch), new

    def fence(self, values: TransactionValues) -> Any:
        """PrepareEpochFence, and the abort with the server's version of transactions."""
        if self.cluster < TV_2:
            values = replace(
                values, producer_epoch=values.producer_epoch + 1, last_producer_epoch=-1
            )
        return self._decide(values, S.PrepareAbort, self.cluster, is_empty=False)[1]

    # --- AddPartitionsToTxn

    def add(
        self, it: Id, producer: tuple[int, int], partitions: Any, version: int
    ) -> tuple[Answer, Any]:
        values = it.values
        if it.pending is not None and self.cluster >= TV_2:
            return ErrorCode.CONCURRENT_TRANSACTIONS, values
        if (error := _of_another(values, producer)) is not None:
            return error, values
        if it.pending is not None or values.state in (S.PrepareCommit, S.PrepareAbort):
            return ErrorCode.CONCURRENT_TRANSACTIONS, values
        if values.state is S.Ongoing and set(partitions) <= set(values.partitions):
            return None, values
        start_ms = values.start_ms if values.state is S.Ongoing else self.now_ms
        return None, self._to(
            values,
            S.Ongoing,
            partitions=values.partitions | dict.fromkeys(partitions),
            start_ms=start_ms,
            last_update_ms=self.now_ms,
            client_version=version,
        )

    def verify(self, it: Id, producer: tuple[int, int], partitions: Any) -> tuple[Answer, Any]:
        values = it.values
        if (error := _of_another(values, producer)) is not None:
            return error, values
        if values.state in (S.PrepareCommit, S.PrepareAbort):
            return ErrorCode.CONCURRENT_TRANSACTIONS, values
        missing = ErrorCode.TRANSACTION_ABORTABLE
        return {
            p: ErrorCode.NONE if p in values.partitions else missing for p in partitions
        }, values

    # --- EndTxn

    def end(
        self, it: Id, producer: tuple[int, int], commit: bool, version: int
    ) -> tuple[Answer, Any]:
        if version >= TV_2:
            return self._end_2(it, producer, commit)
        values = it.values
        if (error := _of_another(values, producer)) is not None:
            return error, values
        if it.pending is not None:
            return ErrorCode.CONCURRENT_TRANSACTIONS, values
        decided = S.PrepareCommit if commit else S.PrepareAbort
        match values.state:
            case S.Ongoing:
                return self._decide(values, decided, TV_0, is_empty=False)
            case S.CompleteCommit | S.CompleteAbort:
                if (values.state is S.CompleteCommit) == commit:
                    return NOBODY, values
            case S.PrepareCommit | S.PrepareAbort:
                if values.state is decided:
                    return ErrorCode.CONCURRENT_TRANSACTIONS, values
        return ErrorCode.INVALID_TXN_STATE, values

    def _end_2(self, it: Id, producer: tuple[int, int], commit: bool) -> tuple[Answer, Any]:
        values, epoch = it.values, producer[1]
        if it.pending is not None:  # since KAFKA-18660 first
            return ErrorCode.CONCURRENT_TRANSACTIONS, values
        current = values.producer_epoch
        on_overflow = (
            values.previous_producer_id == producer[0] and epoch == MAX - 1 and current == 0
        )
        on_bump = current == epoch + 1
        valid = {
            S.PrepareCommit: on_bump,
            S.PrepareAbort: on_bump,
            S.CompleteCommit: on_bump or on_overflow or epoch == current,
            S.CompleteAbort: on_bump or on_overflow or epoch == current,
        }.get(values.state, epoch == current)
        if values.producer_id != producer[0] and not on_overflow:
            return ErrorCode.INVALID_PRODUCER_ID_MAPPING, values
        if not valid:
            return ErrorCode.PRODUCER_FENCED, values
        is_retry = on_bump or on_overflow
        told = ErrorCode.NONE, values.producer_id, current
        refused = ErrorCode.INVALID_TXN_STATE, values
        match values.state, commit:
            case S.Ongoing, _:
                decided = S.PrepareCommit if commit else S.PrepareAbort
                return self._decide(values, decided, TV_2, is_empty=False)
            case S.CompleteCommit, True:
                return (told, values) if is_retry else refused
            case S.CompleteAbort, False:
                if is_retry:
                    return told, values
                return self._decide(values, S.PrepareAbort, TV_2, is_empty=True)
            case S.CompleteCommit, False:
                if is_retry:
                    return refused
                return self._decide(values, S.PrepareAbort, TV_2, is_empty=True)
            case (S.PrepareCommit, True) | (S.PrepareAbort, False):
                return ErrorCode.CONCURRENT_TRANSACTIONS, values
            case S.Empty, False:
                return self._decide(values, S.PrepareAbort, TV_2, is_empty=True)
        return refused

    def _decide(
        self, values: TransactionValues, state: TransactionState, version: int, *, is_empty: bool
    ) -> tuple[Answer, Any]:
        """prepareAbortOrCommit, with the next producer id if the epochs are used up."""
        changes: dict[str, Any] = {"last_update_ms": self.now_ms, "client_version": version}
        answer: Answer = NOBODY
        epoch = values.producer_epoch
        if version >= TV_2:
            changes |= {
                "producer_epoch": min(epoch + 1, MAX),
                "last_producer_epoch": epoch,
                "next_producer_id": self.new_id if epoch >= MAX - 1 else -1,
                "start_ms": self.now_ms if is_empty else values.start_ms,
            }
            answer = ErrorCode.NONE, values.producer_id, min(epoch + 1, MAX)
            if epoch >= MAX - 1:
                answer = ErrorCode.NONE, self.new_id, 0
        else:
            changes["next_producer_id"] = -1
        return answer, self._to(values, state, **changes)

    # --- without a request

    def complete(self, values: TransactionValues) -> Any:
        """After the markers."""
        producer = values.producer_id, values.producer_epoch
        if values.client_version >= TV_2 and values.next_producer_id != -1:
            producer = values.next_producer_id, 0
        return self._to(
            values,
            S.CompleteCommit if values.state is S.PrepareCommit else S.CompleteAbort,
            producer_id=producer[0],
            producer_epoch=producer[1],
            next_producer_id=-1,
            partitions={},
            last_update_ms=self.now_ms,
        )


def _of_another(values: TransactionValues, producer: tuple[int, int]) -> ErrorCode | None:
    if values.producer_id != producer[0]:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    return None if values.producer_epoch == producer[1] else ErrorCode.PRODUCER_FENCED
