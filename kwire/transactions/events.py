"""The events of transactions, reported by their coordinator.

kwire/replication/core/events.py explains the notation.
"""

from __future__ import annotations

from kwire.replication.core.events import INFO, WARNING, EventType


class TransactionEvent:
    """The events of transactions. Names are never reused for something else."""

    # --- Transactions

    TRANSACTION_TIMED_OUT = EventType(
        WARNING,
        "transaction of {transactional_id} is aborted: it is older than its time-out of {timeout_ms} ms",
        "producer_id",
        "producer_epoch",
    )
    """The producer has neither committed nor aborted within its `transaction.timeout.ms`; it is fenced.
    To do: nothing where the test has ended the client; else see what keeps it from the end."""
    PRODUCER_FENCED = EventType(
        INFO,
        "transaction of {transactional_id} is aborted: another producer begins with this id",
        "producer_id",
        "producer_epoch",
    )
    """InitProducerId while a transaction is open. `producer_epoch`: of the producer that may write no more."""
    TRANSACTION_GIVEN_UP = EventType(
        WARNING,
        "the markers of {transactional_id} are not written: {detail}",
        "producer_id",
        "producer_epoch",
    )
    """A partition knows a newer producer or coordinator. `detail`: the error's name."""
    TRANSACTIONS_UNREADABLE = EventType(
        WARNING,
        "{topic}-{partition}: the batch at offset {offset} cannot be read, its transactions are lost: {detail}",
    )
    """Transactional ids are in damaged records. Logged for the first such batch of a partition."""
