"""WriteTxnMarkers: leaders append the ends of transactions, with an error per partition."""

from __future__ import annotations

from typing import Any

import pytest
from recorded import PARKED

from kwire.apis.txn_participants import handle_write_txn_markers
from kwire.protocol.errors import ErrorCode
from kwire.protocol.record_builder import build_batch
from kwire.protocol.records import Record, iter_batches, iter_records, parse_control_record
from kwire.protocol.schemas.transactions import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from kwire.replication.log.log import AppendOrigin


def marker(
    *partitions: tuple[str, int],
    producer_id: int = 900,
    epoch: int = 0,
    coordinator_epoch: int = 5,
    commit: bool = True,
    transaction_version: int = 0,
) -> WritableTxnMarker:
    topics: dict[str, list[int]] = {}
    for topic, index in partitions:
        topics.setdefault(topic, []).append(index)
    return WritableTxnMarker(
        producer_id=producer_id,
        producer_epoch=epoch,
        coordinator_epoch=coordinator_epoch,
        transaction_result=commit,
        transaction_version=transaction_version,
        topics=[
            WritableTxnMarkerTopic(name=name, partition_indexes=indexes)
            for name, indexes in topics.items()
        ],
    )


def errors_of(response: WriteTxnMarkersResponse) -> dict[int, dict[tuple[str, int], ErrorCode]]:
    return {
        each.producer_id: {
            (topic.name, partition.partition_index): ErrorCode(partition.error_code)
            for topic in each.topics
            for partition in topic.partitions
        }
        for each in response.markers
    }


def write(node: Any, *markers: WritableTxnMarker, version: int = 1) -> Any:
    request = WriteTxnMarkersRequest(markers=list(markers))
    response = node.call(handle_write_txn_markers, request, version)
    return response if response is PARKED else errors_of(response)


def begin(
    node: Any, index: int = 0, *, producer_id: int = 900, epoch: int = 0, sequence: int = 0
) -> None:
    """One transactional record, as after its verification."""
    records = build_batch(
        [Record(-1, 1000, None, b"v")],
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
        is_transactional=True,
    )
    node.manager.hosted(("t", index)).log.append_as_leader(
        records, 0, origin=AppendOrigin.COORDINATOR
    )


def log_of(node: Any, index: int = 0) -> Any:
    partition = node.manager.hosted(("t", index))
    assert partition is not None
    return partition.log


def markers_in(node: Any, index: int = 0) -> list[tuple[int, int, int, int]]:
    """(producer id, epoch, type, coordinator epoch) of the markers in a log."""
    log = log_of(node, index)
    found, offset = [], 0
    while offset < log.log_end_offset:
        data = log.read(offset, 1 << 20, log.log_end_offset).records
        for header in iter_batches(data):
            offset = header.next_offset
            if header.is_control:
                end = parse_control_record(next(iter(iter_records(data, header))))
                coordinator_epoch = end.coordinator_epoch
                found.append(
                    (header.producer_id, header.producer_epoch, end.type, coordinator_epoch)
                )
    return found


@pytest.fixture
def node(make_node: Any) -> Any:
    node = make_node()
    node.create(partitions=3)
    return node


@pytest.mark.parametrize("version", [0, 1, 2])
def test_a_commit_ends_the_transaction_in_each_of_its_partitions(node: Any, version: int) -> None:
    for index in (0, 1):
        begin(node, index)
        assert log_of(node, index).last_stable_offset == 0
    written = write(node, marker(("t", 0), ("t", 1)), version=version)
    assert written == {900: {("t", 0): ErrorCode.NONE, ("t", 1): ErrorCode.NONE}}
    for index in (0, 1):
        assert markers_in(node, index) == [(900, 0, 1, 5)]
        assert log_of(node, index).last_stable_offset == 2


def test_an_abort_is_in_the_index_of_aborted_transactions(node: Any) -> None:
    begin(node)
    write(node, marker(("t", 0), commit=False))
    assert markers_in(node) == [(900, 0, 0, 5)]
    assert [(t.producer_id, t.first_offset) for t in log_of(node).aborted_transactions(0, 9)] == [
        (900, 0)
    ]


def test_several_markers_have_answers_of_their_own(node: Any) -> None:
    begin(node, 0)
    begin(node, 0, producer_id=901)
    begin(node, 1, producer_id=902, epoch=3)
    written = write(
        node,
        marker(("t", 0)),
        marker(("t", 0), producer_id=901, commit=False),
        marker(("t", 1), ("t", 7), producer_id=902, epoch=2),
    )
    assert written == {
        900: {("t", 0): ErrorCode.NONE},
        901: {("t", 0): ErrorCode.NONE},
        902: {
            ("t", 7): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ("t", 1): ErrorCode.INVALID_PRODUCER_EPOCH,
        },
    }
    assert log_of(node, 0).last_stable_offset == 4 and log_of(node, 1).last_stable_offset == 0


def test_no_markers_are_answered_at_once(node: Any) -> None:
    assert write(node) == {}
    assert write(node, marker()) == {900: {}}


def test_a_marker_of_a_deposed_coordinator_is_fenced(node: Any) -> None:
    begin(node)
    write(node, marker(("t", 0), coordinator_epoch=5))
    begin(node, sequence=1)
    written = write(node, marker(("t", 0), coordinator_epoch=4))
    assert written == {900: {("t", 0): ErrorCode.TRANSACTION_COORDINATOR_FENCED}}
    assert log_of(node).last_stable_offset == 2


def test_a_follower_refuses(node: Any) -> None:
    node.update_metadata("t", {0: 2})
    node.order("t", 0, leader=2, leader_epoch=1, replicas=(1, 2))
    written = write(node, marker(("t", 0)))
    assert written == {900: {("t", 0): ErrorCode.NOT_LEADER_OR_FOLLOWER}}


def test_a_repeated_marker_is_written_again_without_harm(node: Any) -> None:
    """The response may have been lost: as in Kafka the coordinator cannot know."""
    begin(node)
    write(node, marker(("t", 0)))
    assert write(node, marker(("t", 0))) == {900: {("t", 0): ErrorCode.NONE}}
    assert log_of(node).last_stable_offset == 3


def test_the_answer_waits_for_the_followers(node: Any) -> None:
    node.create("r", replicas=(1, 2))
    assert write(node, marker(("t", 0), ("r", 0))) is PARKED
    node.advance(node.config.request_timeout_ms)
    [late] = node.replies
    assert errors_of(late) == {
        900: {("t", 0): ErrorCode.NONE, ("r", 0): ErrorCode.REQUEST_TIMED_OUT}
    }


def test_too_few_replicas_refuse(node: Any) -> None:
    node.create("r", config={"min.insync.replicas": "2"}, replicas=(1, 2), isr=(1,))
    written = write(node, marker(("r", 0)))
    assert written == {900: {("r", 0): ErrorCode.NOT_ENOUGH_REPLICAS}}


# Transaction version 2: the marker's epoch is larger than the transaction's (KIP-890)


@pytest.mark.parametrize("epoch, error", [(2, "INVALID_PRODUCER_EPOCH"), (3, "NONE")])
def test_a_marker_of_version_2_must_raise_the_epoch(node: Any, epoch: int, error: str) -> None:
    begin(node, epoch=2)
    written = write(node, marker(("t", 0), epoch=epoch, transaction_version=2), version=2)
    assert written == {900: {("t", 0): ErrorCode[error]}}


def test_a_repeated_marker_of_version_2_is_no_error(node: Any) -> None:
    begin(node, epoch=2)
    for _ in range(2):
        written = write(node, marker(("t", 0), epoch=3, transaction_version=2), version=2)
        assert written == {900: {("t", 0): ErrorCode.NONE}}


def test_a_late_marker_of_version_2_ends_no_later_transaction(node: Any) -> None:
    """The producer writes its next transaction with the epoch of the last marker."""
    begin(node, epoch=2)
    write(node, marker(("t", 0), epoch=3, transaction_version=2), version=2)
    begin(node, epoch=3)
    written = write(node, marker(("t", 0), epoch=3, transaction_version=2), version=2)
    assert written == {900: {("t", 0): ErrorCode.INVALID_PRODUCER_EPOCH}}
    assert log_of(node).last_stable_offset == 2


# __consumer_offsets belongs to the group coordinator


class Groups:
    """The group coordinator, and its runtime."""

    def __init__(self, outcome: ErrorCode, clock: Any) -> None:
        self.runtime = self
        self.outcome = outcome
        self.clock = clock
        self.ended: list[Any] = []

    def complete_transaction(
        self, index: int, producer_id: int, commit: bool, marker: bytes, done: Any
    ) -> None:
        [header] = iter_batches(marker)
        self.ended.append((index, producer_id, header.producer_epoch, commit))
        done(self.outcome)


@pytest.mark.parametrize(
    "outcome, error",
    [
        ("NONE", "NONE"),
        ("NOT_COORDINATOR", "NOT_LEADER_OR_FOLLOWER"),
        ("COORDINATOR_LOAD_IN_PROGRESS", "NOT_LEADER_OR_FOLLOWER"),
        ("COORDINATOR_NOT_AVAILABLE", "NOT_LEADER_OR_FOLLOWER"),
        ("INVALID_PRODUCER_EPOCH", "INVALID_PRODUCER_EPOCH"),
    ],
)
def test_the_group_coordinator_ends_a_transaction_of_offsets(
    node: Any, outcome: str, error: str
) -> None:
    groups = Groups(ErrorCode[outcome], node.clock)
    node.services.group_coordinator = groups
    node.create("__consumer_offsets", partitions=2)
    written = write(node, marker(("__consumer_offsets", 1), epoch=4, commit=False))
    assert written == {900: {("__consumer_offsets", 1): ErrorCode[error]}}
    assert groups.ended == [(1, 900, 4, False)]
