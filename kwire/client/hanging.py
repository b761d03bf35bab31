"""Transactions that hang: open in a partition, and known to no coordinator. Find them, and end them.

Answers to find-hanging and abort of org.apache.kafka.tools.TransactionsCommand (KIP-664). Each function is
a generator of requests (`admin.py`).
"""

from __future__ import annotations

from kwire.client.offsets import partitions
from kwire.client.transactions import abort_transaction, list_transactions, producers
from kwire.protocol.errors import ErrorCode, KafkaError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from kwire.client.admin import Admin, Steps
    from kwire.client.offsets import Key
    from kwire.protocol.schemas.transactions import ProducerState

LONGEST_MINUTES = 15
"""transaction.max.timeout.ms of brokers: an older transaction has been aborted, if it is known."""
MINUTE_MS = 60_000


def find_hanging(
    admin: Admin,
    topic: str | None,
    partition: int | None,
    broker: int | None,
    older_than_ms: int,
    now_ms: int,
) -> Steps[list[tuple[Key, ProducerState]]]:
    """The producers whose transaction is open in a partition, where the last record is older than
    `older_than_ms`, and no coordinator has it there.

    None: all topics, or partitions; with `broker` those of which it has a replica, as it knows them."""
    if topic is not None and partition is not None:
        keys = [(topic, partition)]
    else:
        metadata = yield from admin.metadata(None if topic is None else [topic])
        if broker is not None and broker not in admin.brokers_in(metadata):
            raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, f"there is no broker {broker}")
        keys = [
            (str(each.name), part.partition_index)
            for each in metadata.topics
            for part in each.partitions
            if broker is None or broker in part.replica_nodes
        ]
        if topic is not None and not keys and broker is None:
            yield from partitions(admin, topic)  # raises: there is no such topic
    found = (yield from producers(admin, keys, broker)) if keys else {}
    old = [
        (key, each)
        for key, some in sorted(found.items())
        for each in some
        if each.current_txn_start_offset >= 0 and now_ms - each.last_timestamp > older_than_ms
    ]
    known = (yield from list_transactions(admin)) if old else []
    expected = {(t.producer_id, (at.topic, at.partition)) for t in known for at in t.partitions}
    return [(key, each) for key, each in old if (each.producer_id, key) not in expected]


def abort_at(admin: Admin, key: Key, start_offset: int) -> Steps[ProducerState]:
    """Abort the transaction that is open in a partition since `start_offset`; the result is whose it was.

    KafkaError(UNKNOWN_PRODUCER_ID): none is open."""
    for each in (yield from producers(admin, [key]))[key]:
        if each.current_txn_start_offset == start_offset >= 0:
            producer = (each.producer_id, each.producer_epoch)
            yield from abort(admin, key, producer, each.coordinator_epoch)
            return each
    where = f"offset {start_offset} on partition {key[0]}-{key[1]}"
    text = f"Could not find any open transactions starting at {where}"
    raise KafkaError(ErrorCode.UNKNOWN_PRODUCER_ID, text)


def abort(admin: Admin, key: Key, producer: tuple[int, int], coordinator_epoch: int) -> Steps[None]:
    """Abort the transaction of a producer (id and epoch) in a partition.

    `coordinator_epoch`: of the last marker, -1: no coordinator has written there for this producer. As
    Kafka's tool does, 0 stands for that, which is below or at every coordinator's."""
    yield from abort_transaction(admin, key, producer, max(0, coordinator_epoch))
