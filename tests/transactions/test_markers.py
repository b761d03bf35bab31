"""The markers of decided transactions on their way to the leaders of the partitions."""

from __future__ import annotations

from collections.abc import Callable
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
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from kwire.replication.core.clock import Clock, Timers
from kwire.replication.core.metadata import MetadataCache
from kwire.transactions.markers import CHANNEL, MarkerSender

Written = tuple[int, int, int, bool, list[tuple[str, int]]]


def contents(request: WriteTxnMarkersRequest) -> list[Written]:
    """(producer id, epoch, coordinator epoch, commit, partitions) of each marker."""
    return [
        (
            marker.producer_id,
            marker.producer_epoch,
            marker.coordinator_epoch,
            marker.transaction_result,
            [(topic.name, index) for topic in marker.topics for index in topic.partition_indexes],
        )
        for marker in request.markers
    ]


class Asked:
    """One request to another broker, or to this one, that is not answered yet."""

    def __init__(self, node: int, version: int, request: Any, respond: Callable[..., None]) -> None:
        body = request.encode(version)
        self.node = node
        self.version = version
        self.request = type(request).decode(body, version)
        self._respond = respond

    def answer(self, **errors: ErrorCode) -> None:
        """`errors` by "topic_index"; others succeed."""
        response = WriteTxnMarkersResponse(
            markers=[
                WritableTxnMarkerResult(
                    producer_id=marker.producer_id,
                    topics=[
                        WritableTxnMarkerTopicResult(
                            name=topic.name,
                            partitions=[
                                WritableTxnMarkerPartitionResult(
                                    partition_index=index,
                                    error_code=errors.get(f"{topic.name}_{index}", 0),
                                )
                                for index in topic.partition_indexes
                            ],
                        )
                        for topic in marker.topics
                    ],
                )
                for marker in self.request.markers
            ]
        )
        encoded = response.encode(self.version)
        self._respond(WriteTxnMarkersResponse.decode(encoded, self.version))

    def lose(self) -> None:
        self._respond(None)


class Coordinator:
    """Broker 1 and its markers; brokers 2 and 3 are played by the test."""

    def __init__(self) -> None:
        self.clock = Clock(now_ms=1000)
        self.timers = Timers()
        self.metadata = MetadataCache()
        self.asked: list[Asked] = []
        self.outcomes: list[tuple[int, ErrorCode]] = []
        self.sender = MarkerSender(
            1,
            self.metadata,
            self.clock,
            self.timers,
            self,  # type: ignore[arg-type]
            lambda request, respond: self.asked.append(Asked(1, 2, request, respond)),
        )
        self.leaders: dict[tuple[str, int], int] = {("t", 0): 2, ("t", 1): 3, ("t", 2): 1}
        self.update()

    def update(self, alive: tuple[int, ...] = (1, 2, 3), deleted: tuple[str, ...] = ()) -> None:
        """The controller's UpdateMetadata."""
        topics: dict[str, list[UpdateMetadataPartitionState]] = {}
        for (topic, index), leader in self.leaders.items():
            leader = -2 if topic in deleted else leader
            state = UpdateMetadataPartitionState(partition_index=index, leader=leader)
            topics.setdefault(topic, []).append(state)
        self.metadata.apply(
            UpdateMetadataRequest(
                live_brokers=[UpdateMetadataBroker(id=node) for node in alive],
                topic_states=[
                    UpdateMetadataTopicState(topic_name=name, partition_states=states)
                    for name, states in topics.items()
                ],
            )
        )

    # Peers

    def send(
        self, node: int, channel: str, key: int, version: int, request: Any, respond: Any
    ) -> int:
        assert (channel, key) == (CHANNEL, ApiKey.WRITE_TXN_MARKERS)
        self.asked.append(Asked(node, version, request, respond))
        return 1

    def give_up(self, node: int, channel: str) -> None:
        assert channel == CHANNEL
        [waiting] = [each for each in self.asked if each.node == node]
        self.asked.remove(waiting)
        waiting.lose()

    # the test's side

    def end(
        self, producer_id: int, *partitions: tuple[str, int], commit: bool = True, shard: int = 7
    ) -> None:
        self.sender.send(
            shard,
            5,
            producer_id,
            0,
            commit,
            partitions,
            lambda error: self.outcomes.append((producer_id, error)),
        )

    def take(self, node: int) -> Asked:
        """The only request in flight to a broker."""
        [asked] = [each for each in self.asked if each.node == node]
        self.asked.remove(asked)
        return asked

    def wait(self, ms: int) -> None:
        advance(self.clock, self.timers, ms)


@pytest.fixture
def coordinator() -> Coordinator:
    return Coordinator()


def test_each_leader_gets_the_markers_of_its_partitions(coordinator: Coordinator) -> None:
    coordinator.leaders["u", 4] = 2
    coordinator.update()
    coordinator.end(900, ("t", 0), ("u", 4), ("t", 1), ("t", 2), commit=False)
    to_two, to_three, to_itself = (coordinator.take(node) for node in (2, 3, 1))
    assert contents(to_two.request) == [(900, 0, 5, False, [("t", 0), ("u", 4)])]
    assert contents(to_three.request) == [(900, 0, 5, False, [("t", 1)])]
    assert contents(to_itself.request) == [(900, 0, 5, False, [("t", 2)])]
    for asked in (to_two, to_three):
        asked.answer()
        assert not coordinator.outcomes  # not before the last partition has its marker
    to_itself.answer()
    assert coordinator.outcomes == [(900, ErrorCode.NONE)]
    assert not len(coordinator.timers)


def test_markers_that_wait_for_a_broker_share_its_next_request(coordinator: Coordinator) -> None:
    for producer_id in (900, 901, 902):
        coordinator.end(producer_id, ("t", 0))
    first = coordinator.take(2)
    assert [each[0] for each in contents(first.request)] == [900]
    first.answer()
    second = coordinator.take(2)
    assert [each[0] for each in contents(second.request)] == [901, 902]
    second.answer()
    assert [each for each, _ in coordinator.outcomes] == [900, 901, 902]


def test_markers_of_this_broker_do_not_wait_for_each_other(coordinator: Coordinator) -> None:
    coordinator.end(900, ("t", 2))
    coordinator.end(901, ("t", 2))
    assert [each.node for each in coordinator.asked] == [1, 1]


def test_a_transaction_without_partitions_is_done_at_once(coordinator: Coordinator) -> None:
    coordinator.end(900)
    assert coordinator.outcomes == [(900, ErrorCode.NONE)]


@pytest.mark.parametrize(
    "error",
    [
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.UNKNOWN_SERVER_ERROR,
    ],
)
def test_a_refused_partition_is_tried_again_at_its_new_leader(
    coordinator: Coordinator, error: ErrorCode
) -> None:
    coordinator.leaders["t", 3] = 2
    coordinator.update()
    coordinator.end(900, ("t", 0), ("t", 3))
    coordinator.take(2).answer(t_3=error)
    assert not coordinator.asked and not coordinator.outcomes
    coordinator.leaders["t", 3] = 3
    coordinator.update()
    coordinator.wait(20)
    again = coordinator.take(3)
    assert contents(again.request) == [(900, 0, 5, True, [("t", 3)])]
    again.answer()
    assert coordinator.outcomes == [(900, ErrorCode.NONE)]


def test_retries_become_rarer_but_do_not_end(coordinator: Coordinator) -> None:
    coordinator.end(900, ("t", 0))
    times = []
    for _ in range(9):
        coordinator.take(2).answer(t_0=ErrorCode.NOT_LEADER_OR_FOLLOWER)
        began = coordinator.clock.now_ms
        while not coordinator.asked:
            coordinator.wait(10)
        times.append(coordinator.clock.now_ms - began)
    assert times == [20, 40, 80, 160, 320, 640, 640, 640, 640]


@pytest.mark.parametrize(
    "error", [ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.TRANSACTION_COORDINATOR_FENCED]
)
def test_a_fenced_transaction_is_given_up_once(coordinator: Coordinator, error: ErrorCode) -> None:
    coordinator.leaders["t", 3] = 2
    coordinator.update()
    coordinator.end(900, ("t", 0), ("t", 1), ("t", 3))
    coordinator.take(2).answer(t_0=error, t_3=error)
    assert coordinator.outcomes == [(900, error)]
    coordinator.take(3).answer(t_1=ErrorCode.NOT_LEADER_OR_FOLLOWER)
    coordinator.wait(60_000)
    assert coordinator.outcomes == [(900, error)] and not coordinator.asked


@pytest.mark.parametrize(
    "error", [ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT, ErrorCode.UNSUPPORTED_VERSION]
)
def test_a_partition_that_cannot_have_markers_needs_none(
    coordinator: Coordinator, error: ErrorCode
) -> None:
    coordinator.end(900, ("t", 0))
    coordinator.take(2).answer(t_0=error)
    assert coordinator.outcomes == [(900, ErrorCode.NONE)]


def test_a_lost_connection_is_tried_again(coordinator: Coordinator) -> None:
    coordinator.end(900, ("t", 0), ("t", 1))
    coordinator.take(2).lose()
    coordinator.take(3).answer()
    coordinator.wait(20)
    coordinator.take(2).answer()
    assert coordinator.outcomes == [(900, ErrorCode.NONE)]


def test_a_dead_leader_is_waited_for(coordinator: Coordinator) -> None:
    coordinator.update(alive=(1, 3))
    coordinator.end(900, ("t", 0))
    for _ in range(500):
        assert not coordinator.asked and not coordinator.outcomes
        coordinator.wait(10)
    coordinator.update()
    coordinator.wait(1_000)
    coordinator.take(2).answer()
    assert coordinator.outcomes == [(900, ErrorCode.NONE)]


def test_a_request_to_a_broker_that_dies_silently_is_given_up(coordinator: Coordinator) -> None:
    coordinator.end(900, ("t", 0))
    coordinator.leaders["t", 0] = 3
    coordinator.update(alive=(1, 3))
    coordinator.wait(600)
    coordinator.take(3).answer()
    assert coordinator.outcomes == [(900, ErrorCode.NONE)]


def test_a_broker_that_does_not_respond_is_asked_again_on_a_new_connection(
    coordinator: Coordinator,
) -> None:
    coordinator.end(900, ("t", 0))
    first = coordinator.asked[0]
    coordinator.wait(29_000)
    assert coordinator.asked == [first]
    coordinator.wait(2_000)
    assert coordinator.take(2) is not first


def test_partitions_of_a_deleted_topic_need_no_marker(coordinator: Coordinator) -> None:
    coordinator.end(900, ("t", 0), ("gone", 1))
    coordinator.take(2).answer(t_0=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    coordinator.update(deleted=("t",))
    coordinator.wait(20)
    assert coordinator.outcomes == [(900, ErrorCode.NONE)]


def test_without_metadata_nothing_counts_as_deleted(coordinator: Coordinator) -> None:
    coordinator.metadata.brokers = {}
    coordinator.metadata.topics = {}
    coordinator.end(900, ("t", 0))
    coordinator.wait(1_000)
    assert not coordinator.outcomes
    coordinator.update()
    coordinator.wait(1_000)
    coordinator.take(2).answer()
    assert coordinator.outcomes == [(900, ErrorCode.NONE)]


def test_an_unloaded_shard_forgets_its_transactions_and_no_others(coordinator: Coordinator) -> None:
    coordinator.end(900, ("t", 0), ("t", 1))
    coordinator.end(901, ("t", 0))
    coordinator.end(902, ("t", 0), shard=8)
    coordinator.take(3).lose()
    coordinator.sender.cancel(7)
    coordinator.take(2).answer()
    second = coordinator.take(2)
    assert [each[0] for each in contents(second.request)] == [902]
    second.answer()
    coordinator.wait(5_000)
    assert coordinator.outcomes == [(902, ErrorCode.NONE)] and not coordinator.asked


def test_a_shard_that_returns_sends_with_its_new_epoch(coordinator: Coordinator) -> None:
    coordinator.end(900, ("t", 0))
    coordinator.sender.cancel(7)
    coordinator.sender.send(7, 6, 900, 0, True, [("t", 0)], lambda _: None)
    coordinator.take(2).answer(t_0=ErrorCode.TRANSACTION_COORDINATOR_FENCED)
    assert contents(coordinator.take(2).request) == [(900, 0, 6, True, [("t", 0)])]
