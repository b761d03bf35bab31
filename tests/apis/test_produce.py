from __future__ import annotations

import pytest
from recorded import NO_RESPONSE, PARKED

from kwire.apis.produce import handle_produce
from kwire.protocol.errors import ErrorCode
from kwire.protocol.message_set import build_message_set
from kwire.protocol.records import Record, iter_batches, iter_records
from kwire.protocol.schemas.produce import PartitionProduceData, ProduceRequest, TopicProduceData


def values(node, topic="t", index=0):
    log = node.log(topic, index)
    data = bytes(log.read(log.log_start_offset, 1 << 20, log.log_end_offset).records)
    return [r.value for header in iter_batches(data) for r in iter_records(data, header)]


@pytest.mark.parametrize("version", range(3, 14))
@pytest.mark.parametrize("acks", [1, -1])
def test_records_are_appended_and_committed_at_once(node, make_batch, version, acks):
    node.create()
    answer = node.produce(make_batch(b"a", b"b"), acks=acks, version=version)
    assert (answer.error_code, answer.base_offset) == (0, 0)
    assert node.produce(make_batch(b"c"), acks=acks, version=version).base_offset == 2
    assert values(node) == [b"a", b"b", b"c"]
    assert node.log().high_watermark == 3


@pytest.mark.parametrize("version", [0, 1, 2])
@pytest.mark.parametrize("magic", [0, 1])
def test_a_message_set_of_an_old_client_is_stored_as_a_batch(node, version, magic):
    node.create()
    records = [Record(i, 1000, b"k", b"v%d" % i) for i in range(3)]
    assert node.produce(build_message_set(records, magic), version=version).error_code == 0
    assert values(node) == [b"v0", b"v1", b"v2"]


def test_an_empty_message_set_of_an_old_client_does_nothing(node):
    node.create()
    answer = node.produce(b"", version=2)
    assert (answer.error_code, answer.base_offset) == (0, -1)


@pytest.mark.parametrize("records", [None, b"", b"short", b"\0" * 11])
def test_records_that_are_none_are_invalid(node, records):
    node.create()
    assert node.produce(records).error_code == ErrorCode.INVALID_RECORD


def test_a_version_3_request_must_hold_exactly_one_batch_of_magic_2(node, make_batch):
    node.create()
    two = make_batch(b"a") + make_batch(b"b")
    assert node.produce(two).error_code == ErrorCode.INVALID_RECORD
    old = build_message_set([Record(0, 1, None, b"v")], 1)
    assert node.produce(old).error_code == ErrorCode.INVALID_RECORD
    assert node.log().log_end_offset == 0


def test_zstd_needs_version_7(node, make_batch):
    node.create()
    zstd = make_batch(b"a" * 100, compression="zstd")
    assert node.produce(zstd, version=6).error_code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    assert node.produce(zstd, version=7).error_code == 0


@pytest.mark.parametrize("records", [b"x" * 20, bytes(100), b"junk" * 10])
def test_bytes_that_are_no_batch_are_corrupt(node, records):
    node.create()
    assert node.produce(records).error_code == ErrorCode.CORRUPT_MESSAGE
    assert node.produce(records, index=9).error_code == ErrorCode.CORRUPT_MESSAGE


def test_a_transactional_batch_without_a_transactional_id_is_refused(node, make_batch):
    node.create()
    batch = make_batch(
        b"a", producer_id=5, producer_epoch=0, base_sequence=0, is_transactional=True
    )
    for version in (2, 3, 11):
        error = node.produce(batch, version=version).error_code
        assert error == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert node.log().last_stable_offset == node.log().log_end_offset == 0


def test_the_log_start_offset_is_returned_with_batch_errors_not_with_corrupt_bytes(
    node, make_batch
):
    node.create(config={"cleanup.policy": "compact,delete"})
    node.produce(make_batch(b"a"), acks=1)
    assert node.produce(make_batch(b"a")).log_start_offset == 0
    damaged = bytearray(make_batch(b"hello"))
    damaged[-2] ^= 1
    assert node.produce(bytes(damaged)).log_start_offset == -1
    assert node.produce(make_batch(b"a"), index=3).log_start_offset == -1


def test_flipped_bits_are_a_corrupt_message(node, make_batch):
    node.create()
    damaged = bytearray(make_batch(b"hello"))
    damaged[-2] ^= 1
    assert node.produce(bytes(damaged)).error_code == ErrorCode.CORRUPT_MESSAGE


def test_a_batch_above_max_message_bytes_is_too_large(node, make_batch):
    node.create(config={"max.message.bytes": "100"})
    assert node.produce(make_batch(b"x" * 200)).error_code == ErrorCode.MESSAGE_TOO_LARGE
    assert node.produce(make_batch(b"x")).error_code == 0


def test_a_record_without_key_on_a_compacted_topic_names_the_record(node, make_batch):
    node.create(config={"cleanup.policy": "compact"})
    answer = node.produce(make_batch(b"a", b"b"))
    assert answer.error_code == ErrorCode.INVALID_RECORD
    assert [e.batch_index for e in answer.record_errors] == [0, 1]
    assert len(node.produce(make_batch(b"a", b"b"), version=8).record_errors) == 2
    assert node.produce(make_batch(b"a"), version=7).error_code == ErrorCode.INVALID_RECORD


def test_log_append_time_is_returned(node, make_batch):
    node.create(config={"message.timestamp.type": "LogAppendTime"})
    assert node.produce(make_batch(b"a")).log_append_time_ms == node.clock.wall_ms


def test_unknown_topics_are_not_created(node, make_batch):
    assert node.produce(make_batch(b"a"), "absent").error_code == 3
    assert node.produce(make_batch(b"a"), "absent", version=13).error_code == 100
    node.create()
    assert node.produce(make_batch(b"a"), index=5).error_code == 3
    assert node.produce(b"", index=5).error_code == 3


def test_a_partition_led_elsewhere_names_its_leader_from_version_10(node, make_batch, id_of):
    node.update_metadata("t", {0: 2})
    answer = node.produce(make_batch(b"a"), version=9)
    assert answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert answer.current_leader.leader_id == -1
    assert node.produce(make_batch(b"a"), version=10).current_leader.leader_id == 2
    assert node.produce(make_batch(b"a"), version=10, acks=2).current_leader.leader_id == -1
    request = ProduceRequest(
        acks=1,
        topic_data=[
            TopicProduceData(
                topic_id=id_of("t"),
                partition_data=[PartitionProduceData(index=0, records=make_batch(b"a"))],
            )
        ],
    )
    response = node.call(handle_produce, request, 13)
    answer = response.responses[0].partition_responses[0]
    assert (answer.current_leader.leader_id, answer.current_leader.leader_epoch) == (2, 0)
    assert [(n.node_id, n.host, n.port) for n in response.node_endpoints] == [(2, "host2", 9092)]


def test_S56_required_acks_and_internal_topics(node, make_batch):
    node.create()
    assert node.produce(make_batch(b"a"), acks=2).error_code == ErrorCode.INVALID_REQUIRED_ACKS
    node.create("__consumer_offsets")
    refused = node.produce(make_batch(b"a"), "__consumer_offsets")
    assert refused.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    allowed = node.produce(make_batch(b"a"), "__consumer_offsets", client_id="__admin_client")
    assert allowed.error_code == 0


def test_acks_0_has_no_answer_and_an_error_closes_the_connection(node, make_batch):
    node.create()
    assert node.produce(make_batch(b"a"), acks=0) is NO_RESPONSE
    assert values(node) == [b"a"] and not node.closed
    assert node.produce(make_batch(b"a"), "absent", acks=0) is NO_RESPONSE
    assert len(node.closed) == 1 and "UNKNOWN_TOPIC_OR_PARTITION" in node.closed[0]


def test_each_partition_of_a_request_has_its_own_outcome(node, make_batch):
    node.create(partitions=2)
    parts = [
        PartitionProduceData(index=i, records=r)
        for i, r in [(0, make_batch(b"a")), (1, b"junk" * 10), (7, make_batch(b"c"))]
    ]
    topics = [TopicProduceData(name="t", partition_data=parts)]
    response = node.call(handle_produce, ProduceRequest(acks=-1, topic_data=topics), 9)
    codes = [p.error_code for p in response.responses[0].partition_responses]
    assert codes == [0, ErrorCode.CORRUPT_MESSAGE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]


def test_S57_a_retry_gets_the_same_offset_and_a_gap_is_out_of_order(node, make_batch):
    node.create()

    def batch_of(sequence, epoch=0):
        return make_batch(b"a", b"b", producer_id=5, producer_epoch=epoch, base_sequence=sequence)

    assert node.produce(batch_of(0)).base_offset == 0
    assert node.produce(batch_of(2)).base_offset == 2
    assert node.produce(batch_of(0)).base_offset == 0
    assert node.log().log_end_offset == 4
    assert node.produce(batch_of(7)).error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert node.produce(batch_of(0, epoch=1)).error_code == 0
    assert node.produce(batch_of(4, epoch=0)).error_code == ErrorCode.INVALID_PRODUCER_EPOCH


def test_S56_acks_all_waits_for_the_followers_and_times_out(node, make_batch):
    node.create(replicas=(1, 2))
    assert node.produce(make_batch(b"a"), acks=1).error_code == 0
    assert node.produce(make_batch(b"a")) is PARKED
    assert node.replies == [] and node.waiting() == 1
    node.advance(999)
    assert node.replies == []
    node.advance(1)
    (response,) = node.replies
    answer = response.responses[0].partition_responses[0]
    assert (answer.error_code, answer.base_offset) == (ErrorCode.REQUEST_TIMED_OUT, 1)
    assert node.waiting() == 0 and len(node.timers) == 0


def test_S56_too_few_in_sync_replicas_refuse_before_the_append(node, make_batch):
    node.create(replicas=(1, 2), isr=(1,), config={"min.insync.replicas": "2"})
    assert node.produce(make_batch(b"a")).error_code == ErrorCode.NOT_ENOUGH_REPLICAS
    assert node.log().log_end_offset == 0
    assert node.produce(make_batch(b"a"), acks=1).error_code == 0


def test_min_isr_is_never_more_than_the_replicas(node, make_batch):
    node.create(config={"min.insync.replicas": "3"})
    assert node.produce(make_batch(b"a")).error_code == 0


def test_a_parked_produce_is_cancelled_when_its_connection_ends(node, make_batch):
    node.create(replicas=(1, 2))
    ctx = node.context(9)
    parts = [PartitionProduceData(index=0, records=make_batch(b"a"))]
    topics = [TopicProduceData(name="t", partition_data=parts)]
    request = ProduceRequest(acks=-1, timeout_ms=1000, topic_data=topics)
    assert ctx.handled_by(handle_produce, request) is PARKED
    ctx.disconnected()
    node.advance(2000)
    assert node.waiting() == 0 and node.replies == [] and len(node.timers) == 0
