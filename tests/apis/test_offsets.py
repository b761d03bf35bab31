from __future__ import annotations

import pytest
from recorded import PARKED

from kwire.apis.offsets import (
    handle_delete_records,
    handle_describe_producers,
    handle_list_offsets,
    handle_offset_for_leader_epoch,
)
from kwire.protocol.errors import ErrorCode
from kwire.protocol.record_builder import build_batch
from kwire.protocol.records import Record
from kwire.protocol.schemas.offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from kwire.protocol.schemas.topics import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from kwire.protocol.schemas.transactions import DescribeProducersRequest, TopicRequest

LATEST, EARLIEST, MAX, EARLIEST_LOCAL, LATEST_TIERED, PENDING_UPLOAD = -1, -2, -3, -4, -5, -6


@pytest.fixture
def list_offset(node):
    def list_offset(timestamp, version=11, *, topic="t", replica=-1, epoch=-1, isolation=0):
        asked = ListOffsetsPartition(
            partition_index=0, timestamp=timestamp, current_leader_epoch=epoch
        )
        fields = {"isolation_level": isolation} if version >= 2 else {}
        request = ListOffsetsRequest(
            replica_id=replica, topics=[ListOffsetsTopic(name=topic, partitions=[asked])], **fields
        )
        return node.call(handle_list_offsets, request, version).topics[0].partitions[0]

    return list_offset


def fill(node, *timestamps):
    for timestamp in timestamps:
        record = build_batch([Record(-1, timestamp, None, b"v")])
        assert node.produce(record, acks=1).error_code == 0


def test_a_look_up_that_meets_a_broken_disk_takes_the_partition_offline(node, list_offset):
    node.create()
    fill(node, 100)
    (directory,) = node.services.log_manager.directories
    directory.store.break_dir("t-0", 5, "Input/output error")
    assert list_offset(0).error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert node.services.replica_manager.offline == {("t", 0)}


@pytest.mark.parametrize("version", range(1, 12))
def test_latest_earliest_and_by_time(node, list_offset, version):
    node.create(leader_epoch=3)
    fill(node, 100, 300, 200)
    epoch = 3 if version >= 4 else -1

    def found(timestamp):
        answer = list_offset(timestamp, version)
        return answer.error_code, answer.offset, answer.timestamp, answer.leader_epoch

    assert found(LATEST) == (0, 3, -1, epoch)
    assert found(EARLIEST) == (0, 0, -1, epoch)
    assert found(0) == (0, 0, 100, epoch)
    assert found(101) == (0, 1, 300, epoch)
    assert found(301) == (0, -1, -1, -1)


def test_S60_special_timestamps_of_later_versions(node, list_offset):
    node.create()
    fill(node, 100, 300, 200)
    node.log().maybe_increment_log_start_offset(1)
    answer = list_offset(MAX)
    assert (answer.offset, answer.timestamp) == (1, 300)
    assert list_offset(EARLIEST_LOCAL).offset == 1
    assert list_offset(LATEST_TIERED).offset == -1
    assert list_offset(PENDING_UPLOAD).offset == -1
    for timestamp, version in ((MAX, 6), (EARLIEST_LOCAL, 7), (LATEST_TIERED, 8), (-6, 10)):
        answer = list_offset(timestamp, version)
        assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert list_offset(-7).error_code == ErrorCode.UNSUPPORTED_VERSION


def test_S60_the_same_partition_twice_is_an_invalid_request(node):
    node.create()
    asked = [ListOffsetsPartition(partition_index=0, timestamp=t) for t in (LATEST, EARLIEST)]
    request = ListOffsetsRequest(
        replica_id=-1, topics=[ListOffsetsTopic(name="t", partitions=asked)]
    )
    (topic,) = node.call(handle_list_offsets, request, 5).topics
    assert [p.error_code for p in topic.partitions] == [ErrorCode.INVALID_REQUEST] * 2


def test_an_empty_log_has_no_largest_timestamp(node, list_offset):
    node.create()
    answer = list_offset(MAX)
    assert (answer.error_code, answer.offset, answer.timestamp) == (0, -1, -1)


def test_version_0_lists_where_segments_begin(node):
    node.create()
    fill(node, 100, 200)
    node.log().roll()
    fill(node, 300)

    def offsets(timestamp, count):
        asked = ListOffsetsPartition(partition_index=0, timestamp=timestamp, max_num_offsets=count)
        topics = [ListOffsetsTopic(name="t", partitions=[asked])]
        request = ListOffsetsRequest(replica_id=-1, topics=topics)
        answer = node.call(handle_list_offsets, request, 0).topics[0].partitions[0]
        assert answer.error_code == 0
        return answer.old_style_offsets

    assert offsets(LATEST, 1) == [3]
    assert offsets(LATEST, 10) == [3, 2, 0]
    assert offsets(EARLIEST, 1) == [0]
    assert offsets(250, 10) == [0]


def test_in_version_0_a_partition_may_be_asked_for_twice(node):
    node.create()
    fill(node, 100, 200)
    asked = [
        ListOffsetsPartition(partition_index=0, timestamp=t, max_num_offsets=1)
        for t in (LATEST, EARLIEST)
    ]
    request = ListOffsetsRequest(
        replica_id=-1, topics=[ListOffsetsTopic(name="t", partitions=asked)]
    )
    (topic,) = node.call(handle_list_offsets, request, 0).topics
    assert [(p.error_code, p.old_style_offsets) for p in topic.partitions] == [(0, [2]), (0, [0])]


def test_a_debugging_replica_reads_the_offsets_of_a_follower(node, list_offset):
    node.create(leader=7)
    assert list_offset(EARLIEST, replica=-1).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    answer = list_offset(EARLIEST, replica=-2)
    assert (answer.error_code, answer.offset) == (0, 0)


def test_S15_list_offsets_is_fenced(node, list_offset):
    node.create(leader_epoch=5)
    assert list_offset(LATEST, epoch=4).error_code == 74
    assert list_offset(LATEST, epoch=6).error_code == 75
    assert list_offset(LATEST, epoch=5).error_code == 0
    assert list_offset(LATEST, topic="absent").error_code == 3
    node.update_metadata("elsewhere", {0: 2})
    assert list_offset(LATEST, topic="elsewhere").error_code == 6


def test_S58_a_new_leader_with_an_old_high_watermark_does_not_guess(node, list_offset):
    node.create(replicas=(1, 2), leader_epoch=8)
    fill(node, *range(100, 105))
    node.log().update_high_watermark(2)
    assert node.order(leader_epoch=10, partition_epoch=1, replicas=(1, 2)) == 0
    assert list_offset(LATEST).error_code == ErrorCode.OFFSET_NOT_AVAILABLE
    assert list_offset(LATEST, 4).error_code == ErrorCode.LEADER_NOT_AVAILABLE
    assert list_offset(LATEST, replica=2).offset == 5
    assert list_offset(EARLIEST).offset == 0
    assert list_offset(101).offset == 1
    assert list_offset(103).error_code == ErrorCode.OFFSET_NOT_AVAILABLE


def test_S59_the_isolation_level_decides_the_latest_offset(node, list_offset):
    from kwire.replication.log.log import AppendOrigin

    node.create(replicas=(1, 2))
    batch = build_batch(
        [Record(-1, 1, None, b"v")] * 3,
        producer_id=4,
        producer_epoch=0,
        base_sequence=0,
        is_transactional=True,
    )
    node.log().append_as_leader(batch, 0, origin=AppendOrigin.COORDINATOR)
    node.log().maybe_increment_high_watermark(1)
    assert list_offset(LATEST, replica=2).offset == 3
    assert list_offset(LATEST, replica=-2).offset == 3
    assert list_offset(LATEST).offset == 1
    assert list_offset(LATEST, isolation=1).offset == 0


@pytest.mark.parametrize("version", range(5))
def test_where_a_leader_epoch_ended(node, version):
    node.create()
    fill(node, 1, 2)
    node.order(leader_epoch=4, partition_epoch=1)
    fill(node, 3)

    def end(epoch, current=-1, partition=0):
        asked = OffsetForLeaderPartition(
            partition=partition, leader_epoch=epoch, current_leader_epoch=current
        )
        request = OffsetForLeaderEpochRequest(
            topics=[OffsetForLeaderTopic(topic="t", partitions=[asked])]
        )
        answer = node.call(handle_offset_for_leader_epoch, request, version)
        p = answer.topics[0].partitions[0]
        return p.error_code, p.leader_epoch if version else None, p.end_offset

    def expected(epoch, offset):
        return 0, epoch if version else None, offset

    assert end(0) == expected(0, 2)
    assert end(3) == expected(0, 2)
    assert end(4) == expected(4, 3)
    assert end(5) == expected(-1, -1)
    assert end(0, partition=9)[0] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if version >= 2:
        assert end(0, current=3)[0] == 74
        assert end(0, current=5)[0] == 75
        assert end(0, current=4)[0] == 0


@pytest.fixture
def delete_records(node):
    def delete_records(offset, topic="t", version=2, index=0):
        asked = [DeleteRecordsPartition(partition_index=index, offset=offset)]
        request = DeleteRecordsRequest(
            topics=[DeleteRecordsTopic(name=topic, partitions=asked)], timeout_ms=1000
        )
        response = node.call(handle_delete_records, request, version)
        if response is PARKED:
            return PARKED
        p = response.topics[0].partitions[0]
        return p.error_code, p.low_watermark

    return delete_records


@pytest.mark.parametrize("version", range(3))
def test_S61_records_before_an_offset_are_deleted(node, delete_records, list_offset, version):
    node.create()
    fill(node, *range(10))
    assert delete_records(4, version=version) == (0, 4)
    assert list_offset(EARLIEST).offset == 4
    assert delete_records(2, version=version) == (0, 4)
    assert delete_records(-1, version=version) == (0, 10)
    assert delete_records(11, version=version) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)
    assert delete_records(-2, version=version) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)


def test_S61_delete_records_refuses_invalid_requests(node, delete_records):
    node.create("compacted", config={"cleanup.policy": "compact"})
    node.create("__consumer_offsets")
    node.update_metadata("elsewhere", {0: 2})
    assert delete_records(0, "compacted") == (ErrorCode.POLICY_VIOLATION, -1)
    assert delete_records(0, "__consumer_offsets") == (ErrorCode.INVALID_TOPIC_EXCEPTION, -1)
    assert delete_records(0, "elsewhere") == (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)
    node.create("nothing", config={"cleanup.policy": ""})
    assert delete_records(0, "nothing") == (ErrorCode.POLICY_VIOLATION, -1)
    node.update_metadata("__transaction_state", {0: 2})
    assert delete_records(0, "__transaction_state") == (ErrorCode.INVALID_TOPIC_EXCEPTION, -1)
    assert delete_records(0, "absent") == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)


def test_S61_live_followers_are_awaited_and_dead_ones_are_not(node, delete_records, make_node):
    node.create(replicas=(1, 2, 9))
    fill(node, *range(10))
    node.log().maybe_increment_high_watermark(6)
    assert delete_records(7) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)
    assert delete_records(-1) is PARKED
    replica = node.manager.by_key["t", 0].remote_replicas[2]
    replica.log_start_offset = 6
    node.manager.complete_waiting(("t", 0))
    (response,) = node.replies
    assert response.topics[0].partitions[0].low_watermark == 6
    replica.log_start_offset = 0
    assert delete_records(-1) is PARKED
    node.advance(1000)
    answer = node.replies[1].topics[0].partitions[0]
    assert (answer.error_code, answer.low_watermark) == (ErrorCode.REQUEST_TIMED_OUT, 0)
    assert node.waiting() == 0


def test_S61_a_request_parked_on_a_deleted_partition_gets_unknown_topic(node, delete_records):
    node.create(replicas=(1, 2))
    fill(node, 1, 2)
    node.log().maybe_increment_high_watermark(2)
    assert delete_records(-1) is PARKED
    assert node.stop(leader_epoch=-2) == 0
    answer = node.replies[0].topics[0].partitions[0]
    assert (answer.error_code, answer.low_watermark) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)


def test_producers_that_a_partition_remembers(node, make_batch):
    node.create()
    node.produce(make_batch(b"a", b"b", producer_id=7, producer_epoch=2, base_sequence=0))
    request = DescribeProducersRequest(topics=[TopicRequest(name="t", partition_indexes=[0, 3])])
    known, unknown = node.call(handle_describe_producers, request, 0).topics[0].partitions
    (producer,) = known.active_producers
    assert (producer.producer_id, producer.producer_epoch, producer.last_sequence) == (7, 2, 1)
    assert producer.current_txn_start_offset == -1
    assert unknown.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_follower_tells_of_the_producers_it_remembers_too(node, make_batch):
    node.create(replicas=(1, 2))
    node.produce(make_batch(b"a", producer_id=7, producer_epoch=2, base_sequence=0), acks=1)
    assert node.order(leader=2, leader_epoch=1, partition_epoch=1, replicas=(1, 2)) == 0
    request = DescribeProducersRequest(topics=[TopicRequest(name="t", partition_indexes=[0])])
    (answer,) = node.call(handle_describe_producers, request, 0).topics[0].partitions
    assert answer.error_code == 0 and [p.producer_id for p in answer.active_producers] == [7]
