"""Transactions of any Kafka: the transactional ids, and the partitions that open transactions hold.

Answers to listTransactions, describeTransactions and describeProducers of KafkaAdminClient (KIP-664).
Each function is a generator of requests (`admin.py`). A look changes nothing in the cluster:
`__transaction_state` is not created for a question, and a cluster without it is asked no more than
whether it is there. `fence_producer` is fenceProducers, `abort_transaction` abortTransaction.
"""

from __future__ import annotations

from dataclasses import replace

from kwire.client.admin import LATEST, TRANSACTION_COORDINATOR
from kwire.client.connection import check
from kwire.client.offsets import leaders, offsets, partitions
from kwire.client.retries import repeat
from kwire.client.views import NO_SUCH_TRANSACTION, Transaction, TransactionPartition
from kwire.errors import BrokerNotAvailableError
from kwire.names import nearest
from kwire.protocol.errors import ErrorCode, KafkaError
from kwire.replication.core.metadata import TRANSACTION_STATE_TOPIC

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Iterable
    from typing import Any

    from kwire.client.admin import Admin, Steps
    from kwire.client.connection import Address
    from kwire.client.offsets import Key
    from kwire.protocol.schemas.transactions import ProducerState

    Start = tuple[str, int, int]
    """Topic, partition, producer id."""


def list_transactions(
    admin: Admin, transactional_ids: Iterable[str] | None = None, paused: Collection[int] = ()
) -> Steps[list[Transaction]]:
    """The transactional ids of all coordinators, by name, or those of these that there are. `paused`: brokers
    that would be waited for in vain.

    BrokerNotAvailableError as long as one of those may have more of them."""
    wanted = None if transactional_ids is None else set(transactional_ids)
    found = yield from repeat(lambda: _list(admin, wanted, paused))
    if any(each.partitions for each in found):
        return (yield from repeat(lambda: _with_positions(admin, found, paused)))
    return found


def find_transaction(
    admin: Admin, transactional_id: str, paused: Collection[int] = ()
) -> Steps[Transaction]:
    """A transactional id; one that does not exist is Dead, with the one that may have been meant."""
    found = yield from list_transactions(admin, [transactional_id], paused)
    if found:
        return found[0]
    names = [each.id for each in (yield from repeat(lambda: _list(admin, None, paused)))]
    similar = nearest(transactional_id, names, 0.7)
    return Transaction(transactional_id, NO_SUCH_TRANSACTION, -1, -1, -1, None, 0, [], similar)


def fence_producer(
    admin: Admin, transactional_id: str, paused: Collection[int] = ()
) -> Steps[Transaction]:
    """Fence the producer that has a transactional id; its open transaction is aborted first. Returns when
    that is done. KafkaError(TRANSACTIONAL_ID_NOT_FOUND): unlike Kafka's, it creates none."""
    found = yield from find_transaction(admin, transactional_id, paused)
    if found.coordinator < 0:
        meant = "" if found.similar is None else f"; did you mean {found.similar}?"
        text = f"there is no transactional id {transactional_id[:100]}{meant}"
        raise KafkaError(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, text)
    yield from repeat(lambda: init_producer_id(admin, transactional_id, found.timeout_ms))
    return (yield from find_transaction(admin, transactional_id, paused))


def init_producer_id(admin: Admin, transactional_id: str, timeout_ms: int) -> Steps[None]:
    """Become the producer of a transactional id. KafkaError(CONCURRENT_TRANSACTIONS): not as long as the
    transaction that was open is being aborted."""
    from kwire.protocol.schemas.groups import FindCoordinatorRequest
    from kwire.protocol.schemas.transactions import InitProducerIdRequest

    at = yield from admin.ask_any(
        FindCoordinatorRequest(key_type=TRANSACTION_COORDINATOR, key=transactional_id)
    )
    what = f"transactional id {transactional_id[:100]}"
    check(at.error_code, at.error_message or what)
    address = admin.brokers_in((yield from admin.metadata())).get(at.node_id)
    if address is None:
        raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, what)
    request = InitProducerIdRequest(
        transactional_id=transactional_id, transaction_timeout_ms=timeout_ms
    )
    check((yield from admin.ask_at(address, request)).error_code, what)


def _list(
    admin: Admin, wanted: set[str] | None, paused: Collection[int]
) -> Steps[list[Transaction]]:
    from kwire.protocol.schemas.transactions import ListTransactionsRequest

    metadata = yield from admin.metadata([TRANSACTION_STATE_TOPIC])
    if metadata.topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        return []  # no producer has had a transactional id yet
    found: list[Transaction] = []
    brokers = admin.brokers_in(metadata)
    missing = sorted(brokers.keys() & paused)
    for broker, address in brokers.items():
        if broker in missing:
            continue
        response = yield from admin.ask_at(address, ListTransactionsRequest())
        check(response.error_code, "the transactions")
        names = [each.transactional_id for each in response.transaction_states]
        some = names if wanted is None else [name for name in names if name in wanted]
        if some:
            found += yield from _describe(admin, broker, address, some)
    if missing and (wanted is None or len(found) < len(wanted)):
        who = f"broker {', '.join(map(str, missing))} is paused and not yet fenced"
        others = ", ".join(sorted(each.id for each in found)) or "none"
        raise BrokerNotAvailableError(
            f"{who}: its transactions are unknown; the others have {others}"
        )
    return sorted(found, key=lambda each: each.id)


def _describe(
    admin: Admin, broker: int, address: Address, names: list[str]
) -> Steps[list[Transaction]]:
    from kwire.protocol.schemas.transactions import DescribeTransactionsRequest

    response = yield from admin.ask_at(
        address, DescribeTransactionsRequest(transactional_ids=names)
    )
    found = []
    for each in response.transaction_states:
        if each.error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
            continue  # it has expired since it was listed
        check(each.error_code, f"transaction {each.transactional_id}")
        partitions = sorted((topic.topic, i) for topic in each.topics for i in topic.partitions)
        found.append(
            Transaction(
                each.transactional_id,
                each.transaction_state,
                each.producer_id,
                each.producer_epoch,
                broker,
                each.transaction_start_time_ms if each.transaction_start_time_ms >= 0 else None,
                each.transaction_timeout_ms,
                [TransactionPartition(*key, None, None, None) for key in partitions],
            )
        )
    return found


def _with_positions(
    admin: Admin, found: list[Transaction], paused: Collection[int]
) -> Steps[list[Transaction]]:
    """The transactions with the offsets of their partitions, as leaders know them."""
    topics = sorted({at.topic for each in found for at in each.partitions})
    led = yield from leaders(admin, topics)
    keys = {(at.topic, at.partition) for each in found for at in each.partitions}
    silent: set[Address] = set()
    if paused:
        brokers = admin.brokers_in((yield from admin.metadata()))
        silent = {address for broker, address in brokers.items() if broker in paused}
    at = {
        key: address
        for key in sorted(keys)
        if (address := led.get(key)) is not None and address not in silent
    }
    starts = yield from _starts(admin, at)
    stable = yield from offsets(admin, at, LATEST, read_committed=True)
    ends = yield from offsets(admin, at, LATEST)

    def position(producer_id: int, topic: str, index: int) -> TransactionPartition:
        key = (topic, index)
        start = starts.get((topic, index, producer_id))
        return TransactionPartition(topic, index, start, stable.get(key), ends.get(key))

    return [
        replace(
            each,
            partitions=[position(each.producer_id, p.topic, p.partition) for p in each.partitions],
        )
        for each in found
    ]


def _starts(admin: Admin, leaders_of: dict[Key, Address]) -> Steps[dict[Start, int]]:
    """The first offset of each open transaction, by partition and producer id."""
    found = yield from _producers(admin, leaders_of)
    return {
        (*key, each.producer_id): each.current_txn_start_offset
        for key, some in found.items()
        for each in some
        if each.current_txn_start_offset >= 0
    }


def producers(
    admin: Admin, keys: Iterable[Key], broker: int | None = None
) -> Steps[dict[Key, list[ProducerState]]]:
    """The producers that write to each partition, as its leader knows them, or a broker that has it."""
    wanted = list(keys)
    led = yield from leaders(admin, sorted({topic for topic, _ in wanted}))
    if broker is not None:
        brokers = admin.brokers_in((yield from admin.metadata()))
        led = dict.fromkeys(wanted, brokers.get(broker))
    at = {}
    for key in wanted:
        address = led.get(key)
        if address is None:
            raise (yield from _not_there(admin, key, broker))
        at[key] = address
    return (yield from _producers(admin, at))


def _not_there(admin: Admin, key: Key, broker: int | None) -> Steps[KafkaError]:
    if broker is not None:
        return KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, f"there is no broker {broker}")
    try:
        yield from partitions(admin, *key)
    except KafkaError as error:
        return error
    return KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, f"{key[0]}-{key[1]} has no leader")


def _producers(
    admin: Admin, addresses: dict[Key, Address]
) -> Steps[dict[Key, list[ProducerState]]]:
    found: dict[Key, list[ProducerState]] = {}
    for address in dict.fromkeys(addresses.values()):
        keys = [key for key, at in addresses.items() if at == address]
        for topic in (yield from admin.ask_at(address, _producers_of(keys))).topics:
            for each in topic.partitions:
                check(each.error_code, f"the producers of {topic.name}-{each.partition_index}")
                found[topic.name, each.partition_index] = each.active_producers
    return found


def abort_transaction(
    admin: Admin, key: Key, producer: tuple[int, int], coordinator_epoch: int
) -> Steps[None]:
    """Abort a transaction that hangs in a partition: its leader appends the marker, no coordinator is asked.

    `producer`: its id and epoch. As abortTransaction of KafkaAdminClient."""
    from kwire.protocol.schemas.transactions import (
        WritableTxnMarker,
        WritableTxnMarkerTopic,
        WriteTxnMarkersRequest,
    )

    marker = WritableTxnMarker(
        producer_id=producer[0],
        producer_epoch=producer[1],
        transaction_result=False,
        topics=[WritableTxnMarkerTopic(name=key[0], partition_indexes=[key[1]])],
        coordinator_epoch=coordinator_epoch,
    )
    (address,) = (yield from partitions(admin, *key)).values()
    response = yield from admin.ask_at(address, WriteTxnMarkersRequest(markers=[marker]))
    for result in response.markers:
        for topic in result.topics:
            for each in topic.partitions:
                check(each.error_code, f"the marker in {topic.name}-{each.partition_index}")


def _producers_of(keys: list[Key]) -> Any:
    from kwire.protocol.schemas.transactions import DescribeProducersRequest, TopicRequest

    of_topic: dict[str, list[int]] = {}
    for topic, index in keys:
        of_topic.setdefault(topic, []).append(index)
    return DescribeProducersRequest(
        topics=[TopicRequest(name=name, partition_indexes=some) for name, some in of_topic.items()]
    )
