"""Partitions that are added while the last transaction is being ended: the request waits in the coordinator."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pytest
from test_transaction_apis import ID, TransactionalBroker
from virtual_time import advance

from kwire.protocol.errors import ErrorCode
from kwire.replication.core.types import TopicPartition
from kwire.transactions.metadata import TV_0, TV_2

NONE, BUSY = ErrorCode.NONE, ErrorCode.CONCURRENT_TRANSACTIONS


class HeldMarkers:
    """The markers of decided transactions are written when the test says so."""

    def __init__(self, broker: TransactionalBroker) -> None:
        self.done: list[Callable[[ErrorCode], None]] = []
        broker.services.transactions.runtime.kind._markers = self  # type: ignore[attr-defined]

    def send(
        self,
        shard_partition: int,
        coordinator_epoch: int,
        producer_id: int,
        producer_epoch: int,
        commit: bool,
        partitions: Iterable[TopicPartition],
        done: Callable[[ErrorCode], None],
        transaction_version: int = 1,
    ) -> None:
        self.done.append(done)

    def cancel(self, shard_partition: int) -> None:
        self.done.clear()

    def write(self) -> None:
        self.done.pop()(NONE)


class Ending:
    """A broker whose transaction is decided, and not yet ended."""

    def __init__(self) -> None:
        self.broker = TransactionalBroker()
        self.broker.find()
        self.producer = self.broker.init()
        self.markers = HeldMarkers(self.broker)
        self.broker.add(self.producer)
        self.broker.end(self.producer)
        self.answers: list[tuple[int, ErrorCode]] = []
        """Partition and error of each request."""

    def add(self, index: int = 0, version: int = TV_0, epoch: int = 0) -> None:
        self.broker.services.transactions.add_partitions(
            ID,
            self.producer.producer_id,
            epoch,
            [("t", index)],
            version,
            lambda error: self.answers.append((index, error)),
        )

    def pass_ms(self, delay_ms: int) -> None:
        advance(self.broker.clock, self.broker.broker.timers, delay_ms)


def test_partitions_are_added_when_the_last_transaction_has_ended() -> None:
    ending = Ending()
    ending.add(1)
    ending.add(2)
    assert not ending.answers
    ending.markers.write()
    assert ending.answers == [(1, NONE), (2, NONE)]
    assert ending.broker.states()[-4:] == ["PrepareCommit", "CompleteCommit", "Ongoing", "Ongoing"]
    ending.pass_ms(1_000)
    assert len(ending.answers) == 2


@pytest.mark.parametrize(("version", "wait_ms"), [(TV_0, 100), (TV_2, 20)])
def test_a_client_waits_as_long_as_it_would_sleep_a_broker_shorter(
    version: int, wait_ms: int
) -> None:
    """Other producers' partitions wait behind the request of a broker."""
    ending = Ending()
    ending.add(version=version)
    ending.pass_ms(wait_ms - 1)
    assert not ending.answers
    ending.pass_ms(1)
    assert ending.answers == [(0, BUSY)]
    ending.markers.write()
    assert ending.broker.states()[-1] == "CompleteCommit"


def test_a_later_request_waits_beyond_the_deadline_of_an_earlier_one() -> None:
    ending = Ending()
    ending.add(1)
    ending.pass_ms(60)
    ending.add(2)
    ending.pass_ms(40)
    assert ending.answers == [(1, BUSY)]
    ending.markers.write()
    assert ending.answers == [(1, BUSY), (2, NONE)]


def test_what_is_refused_for_another_reason_does_not_wait() -> None:
    ending = Ending()
    ending.add(epoch=7)
    assert not ending.answers  # Kafka looks at the epoch when nothing is pending
    ending.markers.write()
    ending.add(epoch=8)
    assert ending.answers == [(0, ErrorCode.PRODUCER_FENCED)] * 2


def test_who_waits_learns_that_the_coordinator_has_moved() -> None:
    ending = Ending()
    ending.add()
    transactions = ending.broker.services.transactions
    index = transactions.partition_for(ID)
    partition = ending.broker.services.replica_manager.hosted(("__transaction_state", index))
    assert partition is not None
    transactions.role_changed(partition, leads=False)
    assert ending.answers == [(0, ErrorCode.NOT_COORDINATOR)]
