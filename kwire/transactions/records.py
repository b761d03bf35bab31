"""Build, encode and decode the records of `__transaction_state`.

Answers to org.apache.kafka.coordinator.transaction.TransactionLog. Values are written in version 0 as
by Kafka 3.9, or in version 1 as by 4.x with `transaction.version` 2, and read in both.
"""

from __future__ import annotations

from kwire.protocol.errors import MalformedMessage
from kwire.protocol.schemas.records_transaction import (
    PartitionsSchema,
    TransactionLogKey,
    TransactionLogValue,
)
from kwire.transactions.metadata import EMPTY, TV_2, TransactionState, TransactionValues

TRANSACTION_LOG = 0
"""The only type of record."""
_LAYOUT = 0  # of keys: what stands before them is their type


class TransactionRecord:
    """One change of a transactional id. `value` None is a tombstone."""

    __slots__ = ("key", "value", "value_version")

    def __init__(
        self,
        key: TransactionLogKey,
        value: TransactionLogValue | None = None,
        value_version: int = -1,
    ) -> None:
        self.key = key
        self.value = value
        self.value_version = value_version

    @property
    def transactional_id(self) -> str:
        return self.key.transactional_id

    def encode(self) -> tuple[bytes, bytes | None]:
        """Key and value bytes for the log."""
        key = TRANSACTION_LOG.to_bytes(2, "big") + self.key.encode(_LAYOUT)
        if self.value is None:
            return key, None
        return key, self.value_version.to_bytes(2, "big") + self.value.encode(self.value_version)


def transaction_record(
    transactional_id: str, values: TransactionValues, transaction_version: int
) -> TransactionRecord:
    """The record of a change; `transaction_version` is that of the cluster."""
    partitions = None
    if values.state is not EMPTY:
        by_topic: dict[str, list[int]] = {}
        for topic, index in values.partitions:
            by_topic.setdefault(topic, []).append(index)
        partitions = [
            PartitionsSchema(topic=topic, partition_ids=ids) for topic, ids in by_topic.items()
        ]
    value = TransactionLogValue(
        producer_id=values.producer_id,
        producer_epoch=values.producer_epoch,
        transaction_timeout_ms=values.timeout_ms,
        transaction_status=values.state.value,
        transaction_partitions=partitions,
        transaction_last_update_timestamp_ms=values.last_update_ms,
        transaction_start_timestamp_ms=values.start_ms,
    )
    version = 0
    if transaction_version >= TV_2:
        version = 1
        value.previous_producer_id = values.previous_producer_id
        value.next_producer_id = values.next_producer_id
        value.next_producer_epoch = values.next_producer_epoch
        value.client_transaction_version = values.client_version
    return TransactionRecord(TransactionLogKey(transactional_id=transactional_id), value, version)


def tombstone(transactional_id: str) -> TransactionRecord:
    """The record that removes a transactional id."""
    return TransactionRecord(TransactionLogKey(transactional_id=transactional_id))


def decode_record(
    key: bytes | memoryview, value: bytes | memoryview | None
) -> TransactionRecord | None:
    """Decode a record; None for keys and values of versions to come. MalformedMessage if invalid."""
    if len(key) < 2:
        raise MalformedMessage("a transaction record's key is shorter than its version")
    if int.from_bytes(key[:2], "big", signed=True) != TRANSACTION_LOG:
        return None
    key_message = TransactionLogKey.decode(key[2:], _LAYOUT)
    if value is None:
        return TransactionRecord(key_message)
    if len(value) < 2:
        raise MalformedMessage("a transaction record's value is shorter than its version")
    version = int.from_bytes(value[:2], "big", signed=True)
    minimum, maximum = TransactionLogValue.versions
    if not minimum <= version <= maximum:
        return None
    return TransactionRecord(key_message, TransactionLogValue.decode(value[2:], version), version)


def values_of(value: TransactionLogValue) -> TransactionValues:
    """What a record says. MalformedMessage for a state that does not exist."""
    try:
        state = TransactionState(value.transaction_status)
    except ValueError:
        raise MalformedMessage(
            f"there is no transaction state {value.transaction_status}"
        ) from None
    return TransactionValues(
        producer_id=value.producer_id,
        producer_epoch=value.producer_epoch,
        timeout_ms=value.transaction_timeout_ms,
        state=state,
        last_update_ms=value.transaction_last_update_timestamp_ms,
        start_ms=value.transaction_start_timestamp_ms,
        partitions={
            (each.topic, index): None
            for each in value.transaction_partitions or ()
            for index in each.partition_ids
        },
        previous_producer_id=value.previous_producer_id,
        next_producer_id=value.next_producer_id,
        next_producer_epoch=value.next_producer_epoch,
        client_version=value.client_transaction_version,
    )
