"""Whether a transaction may end as requested: the rules of EndTxn for both versions of transactions.

Answers to endTransactionWithTV1 and endTransaction of Kafka's TransactionCoordinator. With TV_0 the
producer keeps its epoch, so a retry is known by the state alone; with TV_2 each end bumps the epoch,
and a request with the epoch before the bump is a retry (KIP-890).
"""

from __future__ import annotations

from kwire.protocol.errors import ErrorCode, KafkaError
from kwire.transactions.metadata import (
    COMPLETE_ABORT,
    COMPLETE_COMMIT,
    IDLE,
    MAX_EPOCH,
    ONGOING,
    PREPARE_ABORT,
    PREPARE_COMMIT,
    PREPARED,
    TV_2,
    TransactionMetadata,
)


def must_write(
    metadata: TransactionMetadata,
    producer_id: int,
    producer_epoch: int,
    *,
    commit: bool,
    client_version: int,
) -> bool:
    """Whether the end is to be written (True), or is the retry of one that has come about (False).

    KafkaError: what the producer gets instead."""
    if client_version >= TV_2:
        return _must_write_bumping(metadata, producer_id, producer_epoch, commit)
    values = metadata.values
    if values.producer_id != producer_id:
        raise KafkaError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    if producer_epoch != values.producer_epoch:
        raise KafkaError(ErrorCode.PRODUCER_FENCED)
    _refuse_pending(metadata)
    if values.state is ONGOING:
        return True
    if values.state is (COMPLETE_COMMIT if commit else COMPLETE_ABORT):
        return False
    raise _refusal(metadata, commit)


def _must_write_bumping(
    metadata: TransactionMetadata, producer_id: int, producer_epoch: int, commit: bool
) -> bool:
    # First: what is pending has an epoch and an id of its own (KAFKA-18660).
    _refuse_pending(metadata)
    values = metadata.values
    state, current = values.state, values.producer_epoch
    # The end was the last that the epochs allowed: the next producer id has taken over.
    is_retry_of_last = (
        values.previous_producer_id == producer_id
        and producer_epoch == MAX_EPOCH - 1
        and current == 0
    )
    is_retry_of_bump = current == producer_epoch + 1
    if values.producer_id != producer_id and not is_retry_of_last:
        raise KafkaError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    if state in PREPARED:
        is_valid = is_retry_of_bump
    elif state in (COMPLETE_COMMIT, COMPLETE_ABORT):
        is_valid = is_retry_of_bump or is_retry_of_last or producer_epoch == current
    else:
        is_valid = producer_epoch == current
    if not is_valid:
        raise KafkaError(ErrorCode.PRODUCER_FENCED)
    if state is ONGOING:
        return True
    if is_retry_of_bump or is_retry_of_last:
        if state is (COMPLETE_COMMIT if commit else COMPLETE_ABORT):
            return False
    elif state in IDLE and not commit:
        return True  # a client that does not know whether its transaction has begun
    raise _refusal(metadata, commit)


def _refuse_pending(metadata: TransactionMetadata) -> None:
    if metadata.is_pending:
        raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS)


def _refusal(metadata: TransactionMetadata, commit: bool) -> KafkaError:
    """The transaction is about to end so, or it has not begun or ended otherwise."""
    if metadata.state is (PREPARE_COMMIT if commit else PREPARE_ABORT):
        return KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS)
    return KafkaError(ErrorCode.INVALID_TXN_STATE)
