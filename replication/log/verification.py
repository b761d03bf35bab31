"""Verification of transactional appends: the guard between the coordinator's word and the append.

Answers to VerificationGuard, VerificationStateEntry and the parts of UnifiedLog and ProducerAppendInfo
that use them (KIP-890). Before the first batch of a transaction the leader asks the transaction
coordinator whether the partition belongs to it. Meanwhile the transaction may end: its marker makes
the guard invalid, and the late batch, which no marker would ever follow, is refused.
"""

from __future__ import annotations

from kwire.protocol.errors import ErrorCode, KafkaError
from kwire.protocol.records import CONTROL_FLAG
from kwire.replication.log.types import AppendOrigin

TYPE_CHECKING = False
if TYPE_CHECKING:
    from kwire.protocol.records import BatchHeader
    from kwire.replication.log.producer_state import ProducerStateEntry, ProducerStateManager


class VerificationGuard:
    """One verification of a producer in a partition, valid as long as the partition keeps it."""

    __slots__ = ("lowest_sequence", "producer_epoch", "started_ms", "supports_epoch_bump")

    def __init__(
        self,
        producer_epoch: int = -1,
        lowest_sequence: int = -1,
        started_ms: int = 0,
        supports_epoch_bump: bool = False,
    ) -> None:
        """`lowest_sequence`: of the batches that wait for the verification; the first to append.

        `started_ms`: Unix time. `supports_epoch_bump`: the producer's epoch grows with each
        transaction (version 2), so that its sequences begin at 0."""
        self.producer_epoch = producer_epoch
        self.lowest_sequence = lowest_sequence
        self.started_ms = started_ms
        self.supports_epoch_bump = supports_epoch_bump

    def is_ended_by(self, batch: BatchHeader) -> bool:
        """Whether this transactional batch of the producer, once appended, ends the verification.

        With version 2 a marker has the epoch of the producer's next transaction, whose first batch may
        come before it: the producer goes on once the end is decided (UnifiedLog.updateProducers)."""
        is_of_next = self.supports_epoch_bump and batch.producer_epoch == self.producer_epoch
        return not (is_of_next and batch.attributes & CONTROL_FLAG)


NOT_VERIFIED = VerificationGuard()
"""The guard of an append without verification: valid only in a transaction that is open here."""


def has_open_transaction(entry: ProducerStateEntry | None, producer_epoch: int) -> bool:
    """Whether the producer has written in this epoch, and no marker followed."""
    return (
        entry is not None
        and entry.current_txn_first_offset is not None
        and entry.producer_epoch == producer_epoch
    )


def start_verification(
    state: ProducerStateManager,
    producer_id: int,
    producer_epoch: int,
    base_sequence: int,
    now_ms: int,
    supports_epoch_bump: bool,
) -> VerificationGuard | None:
    """The guard for a batch that is about to be verified; None: the transaction is open here.

    KafkaError(INVALID_PRODUCER_EPOCH): the producer is fenced here, whatever its coordinator knows."""
    entry = state.producers.get(producer_id)
    if entry is not None and producer_epoch < entry.producer_epoch:
        raise KafkaError(
            ErrorCode.INVALID_PRODUCER_EPOCH,
            f"Epoch of producer {producer_id} is {producer_epoch}, which is smaller than the last seen epoch"
            f" {entry.producer_epoch}",
        )
    if has_open_transaction(entry, producer_epoch):
        return None
    guard = state.verifications.get(producer_id)
    if guard is None:
        guard = VerificationGuard(producer_epoch, base_sequence, now_ms, supports_epoch_bump)
        state.verifications[producer_id] = guard
    elif guard.producer_epoch < producer_epoch or (
        guard.producer_epoch == producer_epoch and base_sequence < guard.lowest_sequence
    ):
        guard.producer_epoch, guard.lowest_sequence = producer_epoch, base_sequence
    return guard


def check_verified(
    state: ProducerStateManager,
    header: BatchHeader,
    guard: VerificationGuard,
    origin: AppendOrigin,
) -> None:
    """Check a transactional batch: it is verified, or in an open transaction.

    KafkaError: INVALID_TXN_STATE; INVALID_PRODUCER_EPOCH is left to the caller;
    OUT_OF_ORDER_SEQUENCE_NUMBER, which keeps a later batch of several from becoming the first."""
    entry = state.producers.get(header.producer_id)
    kept = state.verifications.get(header.producer_id)
    if kept is not guard and not has_open_transaction(entry, header.producer_epoch):
        raise KafkaError(
            ErrorCode.INVALID_TXN_STATE, "Record was not part of an ongoing transaction"
        )
    if kept is None or origin is not AppendOrigin.CLIENT:
        return
    if entry is not None and header.producer_epoch < entry.producer_epoch:
        return
    first = header.base_sequence
    if kept.supports_epoch_bump and first != 0 and (entry is None or not entry.batches):
        raise KafkaError(
            ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
            f"Invalid sequence number for producer {header.producer_id} without state:"
            f" {first} (incoming seq. number), expected 0",
        )
    if first > kept.lowest_sequence:
        raise KafkaError(
            ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
            f"Out of order sequence number for producer {header.producer_id}:"
            f" {first} (incoming seq. number), {kept.lowest_sequence} (earliest seen sequence)",
        )
