"""Verification of transactions with their coordinator: on this broker, on others, while brokers fail."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest
from virtual_time import advance

from kwire.protocol.api import ApiKey
from kwire.protocol.errors import ErrorCode
from kwire.protocol.schemas.control_plane import (
    UpdateMetadataBroker,
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataTopicState,
)
from kwire.protocol.schemas.transactions import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
)
from kwire.replication.core.clock import Clock, Timers
from kwire.replication.core.metadata import MetadataCache
from kwire.transactions.verification import CHANNEL, Verifier

Partition = tuple[str, int]
Errors = dict[Partition, ErrorCode]
T0, T1 = ("t", 0), ("t", 1)


class Asked:
    """One request to another broker that is not answered yet."""

    def __init__(self, node: int, version: int, request: Any, respond: Callable[..., None]) -> None:
        self.node = node
        self.version = version
        self.request = AddPartitionsToTxnRequest.decode(request.encode(version), version)
        self._respond = respond

    @property
    def questions(self) -> list[tuple[str, int, int, bool, list[Partition]]]:
        return [
            (
                each.transactional_id,
                each.producer_id,
                each.producer_epoch,
                each.verify_only,
                [(topic.name, index) for topic in each.topics for index in topic.partitions],
            )
            for each in self.request.transactions
        ]

    def answer(self, top: ErrorCode = ErrorCode.NONE, **errors: ErrorCode) -> None:
        """`errors` by "id_topic_index"; `top`: of the whole request."""
        response = AddPartitionsToTxnResponse(error_code=top)
        for each in self.request.transactions if top is ErrorCode.NONE else ():
            name = each.transactional_id
            topics = [
                AddPartitionsToTxnTopicResult(
                    name=topic.name,
                    results_by_partition=[
                        AddPartitionsToTxnPartitionResult(
                            partition_index=index,
                            partition_error_code=errors.get(f"{name}_{topic.name}_{index}", 0),
                        )
                        for index in topic.partitions
                    ],
                )
                for topic in each.topics
            ]
            response.results_by_transaction.append(
                AddPartitionsToTxnResult(transactional_id=name, topic_results=topics)
            )
        encoded = response.encode(self.version)
        self._respond(AddPartitionsToTxnResponse.decode(encoded, self.version))

    def lose(self) -> None:
        self._respond(None)


class Leader:
    """Broker 1, which leads the producers' partitions; it coordinates id "own", broker 2 the rest."""

    def __init__(self) -> None:
        self.clock = Clock(now_ms=1000)
        self.timers = Timers()
        self.metadata = MetadataCache()
        self.asked: list[Asked] = []
        self.called: list[Any] = []
        self.own_errors: Errors = {}
        self.verifier = Verifier(
            1,
            self.metadata,
            self.clock,
            self.timers,
            self,  # type: ignore[arg-type]
            self,
        )
        self.update()

    def update(self, alive: Iterable[int] = (1, 2, 3), leader: int = 2) -> None:
        states = [
            UpdateMetadataPartitionState(partition_index=index, leader=node)
            for index, node in enumerate((1, leader))
        ]
        topic = UpdateMetadataTopicState(topic_name="__transaction_state", partition_states=states)
        self.metadata.apply(
            UpdateMetadataRequest(
                live_brokers=[UpdateMetadataBroker(id=node) for node in alive],
                topic_states=[topic],
            )
        )

    # the coordinator of this broker

    def partition_for(self, transactional_id: str) -> int:
        return 0 if transactional_id == "own" else 1

    def verify_partitions(
        self, transactional_id: str, producer_id: int, epoch: int, partitions: Iterable[Partition]
    ) -> Errors:
        self.called.append(("verify", transactional_id, producer_id, epoch, list(partitions)))
        return {key: self.own_errors.get(key, ErrorCode.NONE) for key in partitions}

    def add_partitions(
        self,
        transactional_id: str,
        producer_id: int,
        epoch: int,
        partitions: Iterable[Partition],
        version: int,
        done: Callable[[ErrorCode], None],
    ) -> None:
        assert version == 2
        self.called.append(("add", transactional_id, producer_id, epoch, list(partitions)))
        done(self.own_errors.get(T0, ErrorCode.NONE))

    # Peers

    def send(
        self, node: int, channel: str, key: int, version: int, request: Any, respond: Any
    ) -> int:
        assert (channel, key) == (CHANNEL, ApiKey.ADD_PARTITIONS_TO_TXN)
        self.asked.append(Asked(node, version, request, respond))
        return 1

    def give_up(self, node: int, channel: str) -> None:
        assert channel == CHANNEL
        self.take(node).lose()

    # the test's side

    def verify(
        self,
        transactional_id: str = "id",
        *,
        epoch: int = 0,
        partitions: tuple[Partition, ...] = (T0,),
        add: bool = False,
        **options: bool,
    ) -> list[Errors]:
        """The list gets the errors when they are known."""
        found: list[Errors] = []
        self.verifier.verify(
            transactional_id, 900, epoch, lambda: list(partitions), add, found.append, **options
        )
        return found

    def take(self, node: int = 2) -> Asked:
        [asked] = [each for each in self.asked if each.node == node]
        self.asked.remove(asked)
        return asked

    def wait(self, ms: int) -> None:
        advance(self.clock, self.timers, ms)


@pytest.fixture
def leader() -> Leader:
    return Leader()


def test_this_brokers_own_coordinator_is_called(leader: Leader) -> None:
    assert leader.verify("own", partitions=(T0, T1)) == [{}]
    assert leader.verify("own", add=True) == [{}]
    assert leader.called == [
        ("verify", "own", 900, 0, [T0, T1]),
        ("add", "own", 900, 0, [T0]),
    ]
    leader.own_errors = {T0: ErrorCode.INVALID_TXN_STATE}
    assert leader.verify("own", partitions=(T0, T1)) == [{T0: ErrorCode.INVALID_TXN_STATE}]
    assert not leader.asked


@pytest.mark.parametrize("add", [False, True])
def test_another_brokers_coordinator_gets_a_request(leader: Leader, add: bool) -> None:
    found = leader.verify(partitions=(T0, T1, ("u", 3)), epoch=4, add=add)
    asked = leader.take()
    assert asked.questions == [("id", 900, 4, not add, [T0, T1, ("u", 3)])]
    assert found == []
    asked.answer(id_t_1=ErrorCode.INVALID_TXN_STATE)
    assert found == [{T1: ErrorCode.INVALID_TXN_STATE}]
    assert not len(leader.timers)


def test_questions_that_wait_for_a_broker_share_its_next_request(leader: Leader) -> None:
    first, second, third = leader.verify("a"), leader.verify("b"), leader.verify("c")
    leader.take().answer()
    assert (first, second) == ([{}], [])
    asked = leader.take()
    assert [each[0] for each in asked.questions] == ["b", "c"]
    asked.answer(c_t_0=ErrorCode.INVALID_TXN_STATE)
    assert (second, third) == ([{}], [{T0: ErrorCode.INVALID_TXN_STATE}])


@pytest.mark.parametrize(
    "epoch, older", [(0, ErrorCode.NETWORK_EXCEPTION), (1, ErrorCode.INVALID_PRODUCER_EPOCH)]
)
def test_a_later_question_of_a_producer_replaces_the_one_that_waits(
    leader: Leader, epoch: int, older: ErrorCode
) -> None:
    leader.verify("other")
    waits = leader.verify("id")
    replaces = leader.verify("id", epoch=epoch)
    assert waits == [{T0: older}] and replaces == []
    leader.take().answer()
    asked = leader.take()
    assert [each[2] for each in asked.questions] == [epoch]
    asked.answer()
    assert replaces == [{}]


def test_a_fenced_producers_question_does_not_replace_a_newer_one(leader: Leader) -> None:
    leader.verify("other")
    newer = leader.verify("id", epoch=1)
    assert leader.verify("id", epoch=0) == [{T0: ErrorCode.INVALID_PRODUCER_EPOCH}]
    leader.take().answer()
    leader.take().answer()
    assert newer == [{}]


@pytest.mark.parametrize(
    "answered, knows_abortable, known",
    [
        ("PRODUCER_FENCED", True, "INVALID_PRODUCER_EPOCH"),
        ("TRANSACTION_ABORTABLE", True, "TRANSACTION_ABORTABLE"),
        ("TRANSACTION_ABORTABLE", False, "INVALID_TXN_STATE"),
        ("INVALID_TXN_STATE", True, "INVALID_TXN_STATE"),
        ("CONCURRENT_TRANSACTIONS", True, "CONCURRENT_TRANSACTIONS"),
        ("NOT_COORDINATOR", True, "NOT_COORDINATOR"),
        ("INVALID_PRODUCER_ID_MAPPING", False, "INVALID_PRODUCER_ID_MAPPING"),
    ],
)
@pytest.mark.parametrize("transactional_id", ["own", "id"])
def test_errors_are_those_that_producers_know(
    leader: Leader, answered: str, knows_abortable: bool, known: str, transactional_id: str
) -> None:
    leader.own_errors = {T0: ErrorCode[answered]}
    found = leader.verify(transactional_id, knows_abortable=knows_abortable)
    if transactional_id == "id":
        leader.take().answer(id_t_0=ErrorCode[answered])
    assert found == [{T0: ErrorCode[known]}]


@pytest.mark.parametrize(
    "top, known",
    [
        ("CLUSTER_AUTHORIZATION_FAILED", "INVALID_TXN_STATE"),
        ("COORDINATOR_NOT_AVAILABLE", "COORDINATOR_NOT_AVAILABLE"),
    ],
)
def test_an_error_of_the_whole_request_is_everybodys(leader: Leader, top: str, known: str) -> None:
    found = leader.verify(partitions=(T0, T1))
    leader.take().answer(ErrorCode[top])
    assert found == [{T0: ErrorCode[known], T1: ErrorCode[known]}]


def test_a_lost_connection_is_a_retriable_error_at_once(leader: Leader) -> None:
    found = leader.verify()
    leader.take().lose()
    assert found == [{T0: ErrorCode.NETWORK_EXCEPTION}]


def test_a_coordinator_that_dies_silently_is_given_up(leader: Leader) -> None:
    found = leader.verify()
    leader.wait(10_000)
    assert found == []
    leader.update(alive=(1, 3), leader=3)
    leader.wait(500)
    assert found == [{T0: ErrorCode.NETWORK_EXCEPTION}]
    leader.verify()
    leader.take(3)


def test_a_coordinator_that_does_not_respond_is_given_up(leader: Leader) -> None:
    found = leader.verify()
    leader.wait(29_500)
    assert found == []
    leader.wait(1_000)
    assert found == [{T0: ErrorCode.NETWORK_EXCEPTION}]


@pytest.mark.parametrize("alive, leads", [((1, 3), 2), ((1, 2, 3), -1)])
def test_without_a_coordinator_the_producer_tries_again(
    leader: Leader, alive: tuple[int, ...], leads: int
) -> None:
    leader.update(alive=alive, leader=leads)
    assert leader.verify() == [{T0: ErrorCode.COORDINATOR_NOT_AVAILABLE}]
    leader.metadata.topics.clear()
    assert leader.verify("own") == [{T0: ErrorCode.COORDINATOR_NOT_AVAILABLE}]


@pytest.mark.parametrize("transactional_id", ["own", "id"])
def test_a_partition_is_added_again_while_the_last_transaction_ends(
    leader: Leader, transactional_id: str
) -> None:
    busy = ErrorCode.CONCURRENT_TRANSACTIONS
    leader.own_errors = {T0: busy}
    found = leader.verify(transactional_id, add=True)
    for _ in range(2):
        if transactional_id == "id":
            leader.take().answer(id_t_0=busy)
        assert found == []
        leader.wait(20)
    leader.own_errors = {}
    leader.wait(20)
    if transactional_id == "id":
        leader.take().answer()
    assert found == [{}]


def test_each_attempt_takes_guards_of_its_own_and_asks_about_the_partitions_that_need_one(
    leader: Leader,
) -> None:
    leader.own_errors = {T0: ErrorCode.CONCURRENT_TRANSACTIONS}
    rounds = [[T0, T1], [T1], []]
    found: list[Errors] = []
    leader.verifier.verify("own", 900, 0, lambda: rounds.pop(0), True, found.append)
    leader.wait(20)
    assert found == [] and [args[-1] for args in leader.called] == [[T0, T1], [T1]]
    leader.wait(20)
    assert found == [{}] and rounds == []
    assert len(leader.called) == 2


def test_the_last_error_is_the_producers_when_the_transaction_does_not_end_in_time(
    leader: Leader,
) -> None:
    leader.own_errors = {T0: ErrorCode.CONCURRENT_TRANSACTIONS}
    found = leader.verify("own", add=True)
    leader.wait(99)
    assert found == []
    leader.wait(1)
    assert found == [{T0: ErrorCode.CONCURRENT_TRANSACTIONS}]
    assert leader.verify("own") == found  # a verification is not repeated
