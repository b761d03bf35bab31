"""The state machine of one transactional id: its states, and how each change is prepared and completed.

Answers to org.apache.kafka.coordinator.transaction.TransactionState, TransactionMetadata and
TxnTransitMetadata of Kafka 4.x, and to TransactionMetadata.scala of 3.9 where they differ. A change is
prepared (`prepare_…`: the values to write into the log, and the pending state), then completed once
its record is committed, or given up when the append has failed. While one is pending no other begins:
clients get CONCURRENT_TRANSACTIONS. Versions of transactions (KIP-890): with TV_2 the end of each
transaction bumps the producer's epoch.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Final

from kwire.protocol.errors import ErrorCode, KafkaError
from kwire.protocol.records import NO_PRODUCER_EPOCH, NO_PRODUCER_ID
from kwire.protocol.varint import INT32_MAX

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Iterable
    from typing import Any

    from kwire.replication.core.types import TopicPartition

MAX_EPOCH: Final = 0x7FFF
"""Left for a fence: no client gets it."""
TV_0: Final = 0
"""Transactions as Kafka 3.9 has them, and for clients before 4.0: an epoch for many transactions."""
TV_2: Final = 2
"""KIP-890: an epoch for each transaction."""


class TransactionState(Enum):
    """State of a transactional id; the values are those of the log, and the names those of clients."""

    Empty = 0
    Ongoing = 1
    PrepareCommit = 2
    PrepareAbort = 3
    CompleteCommit = 4
    CompleteAbort = 5
    Dead = 6
    PrepareEpochFence = 7


EMPTY, ONGOING = TransactionState.Empty, TransactionState.Ongoing
PREPARE_COMMIT, PREPARE_ABORT = TransactionState.PrepareCommit, TransactionState.PrepareAbort
COMPLETE_COMMIT, COMPLETE_ABORT = TransactionState.CompleteCommit, TransactionState.CompleteAbort
DEAD, PREPARE_EPOCH_FENCE = TransactionState.Dead, TransactionState.PrepareEpochFence

PREPARED: Final = (PREPARE_COMMIT, PREPARE_ABORT)
IDLE: Final = (EMPTY, COMPLETE_COMMIT, COMPLETE_ABORT)
"""No transaction is open: the id may expire, or begin a transaction."""

VALID_PREVIOUS_STATES: dict[TransactionState, tuple[TransactionState, ...]] = {
    EMPTY: IDLE,
    ONGOING: (ONGOING, *IDLE),
    PREPARE_COMMIT: (ONGOING,),
    # From the idle ones with TV_2 only: a client aborts when it does not know whether it has begun.
    PREPARE_ABORT: (ONGOING, *IDLE),
    COMPLETE_COMMIT: (PREPARE_COMMIT,),
    COMPLETE_ABORT: (PREPARE_ABORT,),
    DEAD: IDLE,
    PREPARE_EPOCH_FENCE: (ONGOING,),
}


def is_exhausted(producer_epoch: int) -> bool:
    """Whether the epoch is the last that a client may have: the very last one is left for a fence."""
    return producer_epoch >= MAX_EPOCH - 1


@dataclass(frozen=True, slots=True)
class TransactionValues:
    """All that the log says of a transactional id. Times in ms since 1970; `start_ms` -1: none began.

    `partitions`: those of the transaction, in the order in which they were added; never changed in
    place. `next_producer_id`: takes the place of `producer_id` at the end of this transaction.
    `last_producer_epoch` is not in the log. `client_version`: TV_0 or TV_2."""

    producer_id: int
    producer_epoch: int
    timeout_ms: int
    state: TransactionState
    last_update_ms: int
    start_ms: int = -1
    partitions: dict[TopicPartition, None] = field(default_factory=dict)
    previous_producer_id: int = NO_PRODUCER_ID
    next_producer_id: int = NO_PRODUCER_ID
    last_producer_epoch: int = NO_PRODUCER_EPOCH
    next_producer_epoch: int = NO_PRODUCER_EPOCH
    client_version: int = TV_0


class TransactionMetadata:
    """A transactional id, its committed `values` and the state that it is about to reach.

    `keeps_previous`: whether each change notes the producer id before it, as in Kafka 4.x; in 3.9 only
    InitProducerId does."""

    __slots__ = (
        "has_failed_epoch_fence",
        "keeps_previous",
        "pending_state",
        "transactional_id",
        "unmarked",
        "values",
    )

    def __init__(
        self, transactional_id: str, values: TransactionValues, *, keeps_previous: bool = True
    ) -> None:
        self.transactional_id = transactional_id
        self.values = values
        self.keeps_previous = keeps_previous
        self.pending_state: TransactionState | None = None
        self.has_failed_epoch_fence = False
        """A fence could not be written: the next one uses the same epoch, which nobody has got."""
        self.unmarked: Collection[TopicPartition] | None = None
        """Of a decided transaction: the partitions that lack their marker, now and later."""

    @property
    def state(self) -> TransactionState:
        return self.values.state

    @property
    def is_pending(self) -> bool:
        return self.pending_state is not None

    @property
    def is_exhausted(self) -> bool:
        return is_exhausted(self.values.producer_epoch)

    @property
    def held_partitions(self) -> Collection[TopicPartition]:
        """The partitions that the transaction keeps from being stable."""
        if self.state in PREPARED and self.unmarked is not None:
            return self.unmarked
        return self.values.partitions

    def has_timed_out(self, wall_ms: int) -> bool:
        """Whether the open transaction should be aborted. The longest time-out never ends (KIP-939)."""
        values = self.values
        return (
            values.state is ONGOING
            and not self.is_pending
            and values.timeout_ms != INT32_MAX
            and values.start_ms + values.timeout_ms < wall_ms
        )

    def has_expired(self, wall_ms: int, expiration_ms: int) -> bool:
        """Whether the id has been idle for `expiration_ms`."""
        values = self.values
        return (
            values.state in IDLE
            and not self.is_pending
            and values.last_update_ms <= wall_ms - expiration_ms
        )

    # --- changes

    def prepare_epoch_fence(self) -> TransactionValues:
        """Begin to fence the producer of an open transaction; what follows is the abort, not a record."""
        epoch = self.values.producer_epoch
        if not self.has_failed_epoch_fence and epoch < MAX_EPOCH:
            epoch += 1
        return self._prepare(PREPARE_EPOCH_FENCE, producer_epoch=epoch)

    def prepare_increment_producer_epoch(
        self, timeout_ms: int, expected_epoch: int | None, now_ms: int
    ) -> TransactionValues:
        """Bump the epoch for a new producer (`expected_epoch` None) or one that recovers (KIP-360).

        KafkaError(PRODUCER_FENCED): another producer has the id by now."""
        if self.is_exhausted:  # and the producer has another epoch: a bug of the client
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR)
        epoch, last_epoch = self.values.producer_epoch, self.values.last_producer_epoch
        if expected_epoch is None:
            new_epoch, new_last = epoch + 1, NO_PRODUCER_EPOCH
        elif epoch in (NO_PRODUCER_EPOCH, expected_epoch):
            new_epoch, new_last = epoch + 1, epoch
        elif expected_epoch == last_epoch:
            # The retry of a request whose response was lost: no other producer has come since, as
            # that would have reset the last epoch.
            new_epoch, new_last = epoch, last_epoch
        else:
            raise KafkaError(ErrorCode.PRODUCER_FENCED)
        return self._prepare(
            EMPTY,
            producer_epoch=new_epoch,
            last_producer_epoch=new_last,
            timeout_ms=timeout_ms,
            partitions={},
            start_ms=-1,
            last_update_ms=now_ms,
        )

    def prepare_producer_id_rotation(
        self, producer_id: int, timeout_ms: int, now_ms: int, *, keep_last_epoch: bool
    ) -> TransactionValues:
        """Begin with a new producer id, as the epochs of the last one are used up."""
        assert self.state in IDLE
        last_epoch = self.values.producer_epoch if keep_last_epoch else NO_PRODUCER_EPOCH
        return self._prepare(
            EMPTY,
            producer_id=producer_id,
            producer_epoch=0,
            last_producer_epoch=last_epoch,
            timeout_ms=timeout_ms,
            partitions={},
            start_ms=-1,
            last_update_ms=now_ms,
        )

    def prepare_add_partitions(
        self, partitions: Iterable[TopicPartition], now_ms: int, client_version: int
    ) -> TransactionValues:
        """Add partitions; the first ones begin the transaction."""
        return self._prepare(
            ONGOING,
            partitions=self.values.partitions | dict.fromkeys(partitions),
            start_ms=now_ms if self.state in IDLE else self.values.start_ms,
            last_update_ms=now_ms,
            client_version=client_version,
        )

    def prepare_end(
        self,
        state: TransactionState,
        now_ms: int,
        client_version: int,
        *,
        next_producer_id: int = NO_PRODUCER_ID,
        is_empty: bool = False,
    ) -> TransactionValues:
        """Decide the transaction: `state` is one of PREPARED. `is_empty`: none has begun (TV_2)."""
        epoch, last_epoch = self.values.producer_epoch, self.values.last_producer_epoch
        if client_version >= TV_2:
            # The very last epoch cannot be bumped: the abort goes through without (KAFKA-19367).
            epoch, last_epoch = min(epoch + 1, MAX_EPOCH), epoch
        return self._prepare(
            state,
            producer_epoch=epoch,
            last_producer_epoch=last_epoch,
            next_producer_id=next_producer_id,
            start_ms=now_ms if is_empty else self.values.start_ms,
            last_update_ms=now_ms,
            client_version=client_version,
        )

    def prepare_complete(self, now_ms: int) -> TransactionValues:
        """End the decided transaction: its markers are written. A reserved producer id takes over."""
        self.has_failed_epoch_fence = False
        values = self.values
        producer_id, epoch = values.producer_id, values.producer_epoch
        if values.client_version >= TV_2 and values.next_producer_id != NO_PRODUCER_ID:
            producer_id, epoch = values.next_producer_id, 0
        return self._prepare(
            COMPLETE_COMMIT if self.state is PREPARE_COMMIT else COMPLETE_ABORT,
            producer_id=producer_id,
            producer_epoch=epoch,
            next_producer_id=NO_PRODUCER_ID,
            partitions={},
            last_update_ms=now_ms,
        )

    def prepare_dead(self) -> TransactionValues:
        """Remove the id; its record is a tombstone."""
        return self._prepare(DEAD, partitions={})

    def _prepare(self, state: TransactionState, **changes: Any) -> TransactionValues:
        assert self.pending_state is None, f"{self} is prepared for {state}"
        assert self.state in VALID_PREVIOUS_STATES[state], f"{self} cannot become {state}"
        values = self.values
        if self.keeps_previous or state is EMPTY:
            changes["previous_producer_id"] = values.producer_id
        self.pending_state = state
        return replace(values, state=state, **changes)

    def fence_epoch(self, producer_epoch: int) -> None:
        """Let nobody use the old epoch any more, before the abort with the new one is written (TV_0)."""
        self.values = replace(
            self.values, producer_epoch=producer_epoch, last_producer_epoch=NO_PRODUCER_EPOCH
        )

    def complete(self, values: TransactionValues) -> None:
        """The record of the pending change is committed."""
        assert self.pending_state is values.state, f"{self} completes {values.state}"
        assert values.state not in (DEAD, PREPARE_EPOCH_FENCE)
        if values.state is EMPTY and not self.keeps_previous:
            # Kafka 3.9 shows the start of the last transaction until its log is loaded again.
            values = replace(values, start_ms=self.values.start_ms)
        self.values = values
        self.pending_state = None

    def give_up(self) -> None:
        """The record of the pending change could not be written, or is not needed any more."""
        self.pending_state = None

    def __repr__(self) -> str:
        return f"TransactionMetadata({self.transactional_id!r}, {self.values}, pending {self.pending_state})"
