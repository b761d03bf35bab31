from __future__ import annotations

import pytest
from recorded import PARKED

import kwire.apis.fetch
from kwire.apis.fetch import handle_fetch
from kwire.protocol.errors import ErrorCode
from kwire.protocol.message_set import iter_entries, message_records
from kwire.protocol.records import iter_batches, iter_records
from kwire.protocol.schemas.fetch import (
    FetchPartition,
    FetchRequest,
    FetchTopic,
    ForgottenTopic,
    ReplicaState,
)

ZERO = bytes(16)


@pytest.fixture
def fetch(node, id_of):
    """fetch({("t", 0): offset}) → the response, or PARKED."""

    def fetch(
        offsets,
        version=12,
        *,
        session=(0, -1),
        forget=(),
        partition_max_bytes=1 << 20,
        replica=-1,
        current_leader_epoch=-1,
        last_fetched_epoch=-1,
        log_start_offset=-1,
        on=None,
        **fields,
    ):
        by_id = version >= 13

        def named(cls, topic, **more):
            return cls(
                topic="" if by_id else topic, topic_id=id_of(topic) if by_id else ZERO, **more
            )

        topics = [
            named(
                FetchTopic,
                topic,
                partitions=[
                    FetchPartition(
                        partition=index,
                        fetch_offset=offset,
                        partition_max_bytes=partition_max_bytes,
                        current_leader_epoch=current_leader_epoch,
                        last_fetched_epoch=last_fetched_epoch,
                        log_start_offset=log_start_offset,
                    )
                ],
            )
            for (topic, index), offset in offsets.items()
        ]
        if version >= 15:
            fields["replica_state"] = ReplicaState(replica_id=replica)
        else:
            fields["replica_id"] = replica
        if version >= 7:
            fields["session_id"], fields["session_epoch"] = session
            fields["forgotten_topics_data"] = [
                named(ForgottenTopic, topic, partitions=[index]) for topic, index in forget
            ]
        return (on or node).call(handle_fetch, FetchRequest(topics=topics, **fields), version)

    return fetch


def partitions(response):
    """(topic or id, partition) → what was answered."""
    return {
        (t.topic or t.topic_id, p.partition_index): p
        for t in response.responses
        for p in t.partitions
    }


def one(response):
    (answer,) = partitions(response).values()
    return answer


def values(records):
    data = bytes(records)
    return [r.value for header in iter_batches(data) for r in iter_records(data, header)]


@pytest.mark.parametrize("version", range(4, 19))
def test_records_are_read_by_name_and_by_id(node, fetch, make_batch, version):
    node.create()
    node.produce(make_batch(b"a", b"b"))
    node.produce(make_batch(b"c"))
    response = fetch({("t", 0): 0}, version)
    answer = one(response)
    assert (response.error_code, answer.error_code, answer.high_watermark) == (0, 0, 3)
    assert values(answer.records) == [b"a", b"b", b"c"]
    assert answer.last_stable_offset == 3 and answer.aborted_transactions is None
    assert answer.log_start_offset == (0 if version >= 5 else -1)


@pytest.mark.parametrize(("version", "magic"), [(0, 0), (1, 0), (2, 1), (3, 1)])
def test_old_clients_get_message_sets(node, fetch, make_batch, version, magic):
    node.create()
    node.produce(make_batch(b"a", b"b"))
    data = bytes(one(fetch({("t", 0): 0}, version)).records)
    messages = list(iter_entries(data))
    assert {m.magic for m in messages} == {magic}
    assert [r.value for m in messages for r in message_records(data, m)] == [b"a", b"b"]


def test_zstd_batches_cannot_be_converted(node, fetch, make_batch):
    node.create()
    node.produce(make_batch(b"a" * 100, compression="zstd"))
    assert one(fetch({("t", 0): 0}, 3)).error_code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    assert one(fetch({("t", 0): 0}, 4)).error_code == 0


@pytest.mark.parametrize(("version", "error"), [(4, 76), (9, 76), (10, 0)])
def test_a_topic_of_zstd_is_not_for_readers_before_version_10(node, fetch, version, error):
    node.create(config={"compression.type": "zstd"})
    assert one(fetch({("t", 0): 0}, version)).error_code == error


def test_a_topic_may_refuse_to_convert_for_old_readers(node, fetch, make_batch):
    node.create(config={"message.downconversion.enable": "false"}, replicas=(1, 2))
    node.produce(make_batch(b"a"), acks=1)
    assert one(fetch({("t", 0): 0}, 3)).error_code == ErrorCode.UNSUPPORTED_VERSION
    assert one(fetch({("t", 0): 0}, 3, replica=2)).error_code == 0
    assert one(fetch({("t", 0): 0}, 4)).error_code == 0


def test_an_offset_in_the_middle_of_a_batch_gets_the_whole_batch(node, fetch, make_batch):
    node.create()
    node.produce(make_batch(b"a", b"b", b"c"))
    assert values(one(fetch({("t", 0): 1})).records) == [b"a", b"b", b"c"]


def test_the_stored_bytes_are_returned_as_they_are(node, fetch, make_batch):
    node.create()
    sent = make_batch(b"a")
    node.produce(sent)
    got = bytes(one(fetch({("t", 0): 0})).records)
    assert got[16:] == sent[16:] and len(got) == len(sent)


def test_S18_bounds_of_consumers_and_followers(node, fetch, make_batch):
    node.create(replicas=(1, 2))
    for i in range(8):
        node.produce(make_batch(b"%d" % i), acks=1)
    log = node.log()
    log.update_high_watermark(5)
    log.maybe_increment_log_start_offset(2)
    for offset in (5, 7, 8):
        answer = one(fetch({("t", 0): offset}))
        assert (answer.error_code, bytes(answer.records)) == (0, b"")
    for offset in (1, 9):
        answer = one(fetch({("t", 0): offset}))
        assert answer.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
        assert answer.high_watermark == -1 and bytes(answer.records) == b""
    assert values(one(fetch({("t", 0): 3})).records) == [b"3", b"4"]
    assert values(one(fetch({("t", 0): 5}, replica=2)).records) == [b"5", b"6", b"7"]


def test_S18_a_tool_with_replica_id_minus_2_reads_like_a_consumer(node, fetch, make_batch):
    node.create(replicas=(1, 2))
    node.produce(make_batch(b"a"), acks=1)
    node.produce(make_batch(b"b"), acks=1)
    node.log().update_high_watermark(1)
    assert values(one(fetch({("t", 0): 0}, replica=-2)).records) == [b"a"]
    assert one(fetch({("t", 0): 0}, replica=-2, isolation_level=1)).aborted_transactions == []
    assert values(one(fetch({("t", 0): 0}, replica=-3)).records) == [b"a", b"b"]
    node.update_metadata("t", {0: 2})
    assert node.order(leader=2, leader_epoch=1, partition_epoch=1, replicas=(1, 2)) == 0
    errors = [one(fetch({("t", 0): 0}, 10, replica=r)).error_code for r in (-1, -2, -3)]
    assert errors == [6, 6, 0]


def test_the_first_batch_is_returned_whatever_its_size(node, fetch, make_batch):
    node.create(partitions=2)
    for index in (0, 1):
        node.produce(make_batch(b"x" * 1000), index=index)
    limits = {"partition_max_bytes": 10, "max_bytes": 100}
    answers = partitions(fetch({("t", 0): 0, ("t", 1): 0}, **limits))
    assert len(answers["t", 0].records) > 1000 and len(answers["t", 1].records) == 0
    assert answers["t", 1].high_watermark == 1


def test_a_response_reads_a_bounded_number_of_bytes(node, fetch, make_batch, monkeypatch):
    """55 MB, the default of consumers and of fetch.max.bytes, would take 90 to 140 ms of the loop."""
    node.create(partitions=2)
    batch = make_batch(b"x" * 100)
    for _ in range(4):
        for index in (0, 1):
            node.produce(batch, index=index)
    monkeypatch.setattr(kwire.apis.fetch, "READ_BYTES_MAX", 6 * len(batch))
    limits = {"max_bytes": 55 << 20, "min_bytes": 7 * len(batch)}
    answers = partitions(fetch({("t", 0): 0, ("t", 1): 0}, **limits))
    assert [len(a.records) // len(batch) for a in answers.values()] == [4, 2]


def test_max_bytes_and_partition_max_bytes_limit_an_answer(node, fetch, make_batch):
    node.create(partitions=2)
    batch = make_batch(b"x" * 100)
    for _ in range(4):
        for index in (0, 1):
            node.produce(batch, index=index)
    size = len(batch)
    both = {("t", 0): 0, ("t", 1): 0}
    answers = partitions(fetch(both, partition_max_bytes=2 * size))
    assert [len(a.records) // size for a in answers.values()] == [2, 2]
    answers = partitions(fetch(both, max_bytes=5 * size + 1))
    assert [len(a.records) // size for a in answers.values()] == [4, 1]


def test_unknown_topics_partitions_and_ids(node, fetch):
    node.create()
    assert one(fetch({("absent", 0): 0})).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert one(fetch({("t", 9): 0})).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert one(fetch({("absent", 0): 0}, 13)).error_code == ErrorCode.UNKNOWN_TOPIC_ID
    assert one(fetch({("absent", 0): 0}, 13)).aborted_transactions == []  # not null


def test_an_unknown_partition_keeps_consumers_waiting_and_no_follower(node, fetch):
    node.create(replicas=(1, 2))
    asked = {("t", 0): 0, ("t", 9): 0}
    assert fetch(asked, max_wait_ms=500, min_bytes=1) is PARKED
    answers = partitions(fetch(asked, max_wait_ms=500, min_bytes=1, replica=2))
    assert [a.error_code for a in answers.values()] == [0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]


def test_topics_without_ids_are_not_mixed_up(node, fetch):
    node.create("t")
    node.create("u")
    response = fetch({("t", 0): 0, ("u", 0): 0}, 12)
    assert [(t.topic, len(t.partitions)) for t in response.responses] == [("t", 1), ("u", 1)]


def test_fetch_max_bytes_limits_an_answer(make_node, make_batch, fetch):
    batch = make_batch(b"x" * 100)
    node = make_node({"fetch.max.bytes": "1024"})
    node.create(partitions=2)
    for _ in range(8):
        for index in (0, 1):
            node.produce(batch, index=index)
    answers = partitions(fetch({("t", 0): 0, ("t", 1): 0}, max_bytes=55 << 20, on=node))
    assert sum(len(a.records) for a in answers.values()) <= 1024


def test_another_topic_of_the_same_name_is_an_inconsistent_id(node, fetch, id_of):
    node.create()
    node.manager.by_key["t", 0].topic_id = b"x" * 16
    assert one(fetch({("t", 0): 0}, 13)).error_code == ErrorCode.INCONSISTENT_TOPIC_ID
    assert one(fetch({("t", 0): 0}, 12)).error_code == 0
    node.manager.by_key["t", 0].topic_id = ZERO  # of a topic from before ids: not known here yet
    assert one(fetch({("t", 0): 0}, 13)).error_code == 0


@pytest.mark.parametrize(("version", "error"), [(4, 6), (5, 6), (6, 56)])
def test_old_clients_get_not_leader_instead_of_storage_error(node, fetch, version, error):
    node.create()
    node.manager.mark_offline(("t", 0), "a test")
    assert one(fetch({("t", 0): 0}, version)).error_code == error


def test_S15_epoch_fencing(node, fetch, make_batch):
    node.create(leader_epoch=5)
    assert one(fetch({("t", 0): 0}, current_leader_epoch=4)).error_code == 74
    assert one(fetch({("t", 0): 0}, current_leader_epoch=6)).error_code == 75
    assert one(fetch({("t", 0): 0}, current_leader_epoch=5)).error_code == 0
    assert one(fetch({("t", 0): 0})).error_code == 0


def test_S15_S17_fencing_and_reading_at_a_follower(node, fetch):
    node.update_metadata("t", {0: 2})
    assert node.order(leader=2, leader_epoch=5, replicas=(1, 2)) == 0
    for version in (10, 9, 4):
        assert one(fetch({("t", 0): 0}, version)).error_code == 6
    assert one(fetch({("t", 0): 0}, 11)).error_code == 0
    assert one(fetch({("t", 0): 0}, 10, current_leader_epoch=5)).error_code == 6
    assert one(fetch({("t", 0): 0}, 10, current_leader_epoch=4)).error_code == 74
    assert one(fetch({("t", 0): 0}, 10, current_leader_epoch=6)).error_code == 75


def test_the_current_leader_is_returned_from_version_16_on(node, fetch):
    node.update_metadata("t", {0: 2})
    assert one(fetch({("t", 0): 0}, 15)).current_leader.leader_id == -1
    response = fetch({("t", 0): 0}, 16)
    assert one(response).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert one(response).current_leader.leader_id == 2
    assert [(n.node_id, n.host, n.port) for n in response.node_endpoints] == [(2, "host2", 9092)]
    node.update_metadata("u", {0: 2, 1: 2})
    response = fetch({("u", 0): 0, ("u", 1): 0}, 16)
    assert [n.node_id for n in response.node_endpoints] == [2]


def test_a_fenced_client_is_told_the_leader_and_its_epoch(node, fetch):
    node.create(leader_epoch=5)
    answer = one(fetch({("t", 0): 0}, 16, current_leader_epoch=4))
    assert answer.error_code == ErrorCode.FENCED_LEADER_EPOCH
    assert (answer.current_leader.leader_id, answer.current_leader.leader_epoch) == (1, 5)


def test_a_follower_does_not_read_from_a_follower(node, fetch):
    node.update_metadata("t", {0: 2})
    assert node.order(leader=2, leader_epoch=5, replicas=(1, 2, 3)) == 0
    assert one(fetch({("t", 0): 0}, replica=3)).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_S16_unknown_followers(node, fetch):
    node.create(replicas=(1, 2))
    assert one(fetch({("t", 0): 0}, replica=3, current_leader_epoch=0)).error_code == 75
    assert one(fetch({("t", 0): 0}, replica=3)).error_code == 6
    assert one(fetch({("t", 0): 0}, replica=2)).error_code == 0


def test_S12_S14_divergence_is_returned_and_does_not_change_follower_state(node, fetch, make_batch):
    node.create(replicas=(1, 2))
    node.produce(make_batch(b"a", b"b"), acks=1)
    assert node.order(leader_epoch=3, partition_epoch=1, replicas=(1, 2)) == 0
    node.produce(make_batch(b"c"), acks=1)
    before = node.manager.by_key["t", 0].remote_replicas[2].log_end_offset
    answer = one(fetch({("t", 0): 3}, replica=2, last_fetched_epoch=0))
    assert (answer.error_code, answer.diverging_epoch.epoch, answer.diverging_epoch.end_offset) == (
        0,
        0,
        2,
    )
    assert len(answer.records) == 0
    assert node.manager.by_key["t", 0].remote_replicas[2].log_end_offset == before
    unknown = one(fetch({("t", 0): 2}, replica=2, last_fetched_epoch=9))
    assert unknown.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert values(one(fetch({("t", 0): 2}, replica=2, last_fetched_epoch=0)).records) == [b"c"]


def test_S19_a_follower_learns_the_high_watermark_one_round_later(node, fetch, make_batch):
    node.create(replicas=(1, 2))
    assert node.produce(make_batch(b"a", b"b")) is PARKED
    assert one(fetch({("t", 0): 0}, replica=2)).high_watermark == 0
    assert node.replies == []
    assert one(fetch({("t", 0): 2}, replica=2)).high_watermark == 0
    (produced,) = node.replies
    assert produced.responses[0].partition_responses[0].error_code == 0
    assert one(fetch({("t", 0): 2}, replica=2)).high_watermark == 2


# Long polls


def test_a_long_poll_is_answered_by_the_append_in_the_same_step(node, fetch, make_batch):
    node.create()
    assert fetch({("t", 0): 0}, max_wait_ms=500, min_bytes=1) is PARKED
    node.produce(make_batch(b"a"))
    (response,) = node.replies
    assert values(one(response).records) == [b"a"]
    assert node.waiting() == 0 and len(node.timers) == 0


def test_a_long_poll_is_answered_empty_when_its_time_is_over(node, fetch):
    node.create()
    assert fetch({("t", 0): 0}, max_wait_ms=500, min_bytes=1) is PARKED
    node.advance(499)
    assert node.replies == []
    node.advance(1)
    (response,) = node.replies
    assert len(one(response).records) == 0
    assert node.waiting() == 0 and len(node.timers) == 0


def test_min_bytes_counts_appended_bytes(node, fetch, make_batch):
    node.create(partitions=2)
    batch = make_batch(b"x" * 100)
    node.produce(batch)
    both = {("t", 0): 0, ("t", 1): 0}
    assert fetch(both, max_wait_ms=500, min_bytes=3 * len(batch)) is PARKED
    node.produce(batch, index=1)
    assert node.replies == []
    node.produce(batch, index=1)
    (response,) = node.replies
    assert sum(len(a.records) for a in partitions(response).values()) == 3 * len(batch)


def test_a_fetch_from_an_earlier_segment_does_not_wait_for_later_appends(node, fetch, make_batch):
    batch = make_batch(b"x" * 100)
    node.create(partitions=2, config={"segment.bytes": str(2 * len(batch))})
    for _ in range(5):
        node.produce(batch)
    waits = {"max_wait_ms": 500, "min_bytes": 3 * len(batch)}
    assert len(one(fetch({("t", 0): 0}, **waits)).records) == 2 * len(batch)
    assert len(one(fetch({("t", 0): 3}, **waits)).records) == len(batch)
    # in the last one there may come more, until the next begins
    assert fetch({("t", 0): 4, ("t", 1): 0}, **waits) is PARKED
    node.produce(batch)
    assert node.replies == []
    node.produce(batch)
    (response,) = node.replies
    assert len(partitions(response)["t", 0].records) == 2 * len(batch)


def test_a_reader_before_a_gap_at_the_end_waits(node, fetch, make_batch):
    # given a log whose last records have been compacted away, and an empty segment after the gap
    node.create()
    node.produce(make_batch(b"a"))
    log = node.log()
    log.log_end_offset = 5
    log.update_high_watermark(5)
    log.roll()
    waits = {"max_wait_ms": 500, "min_bytes": 1000}
    assert fetch({("t", 0): 1}, **waits) is PARKED
    assert fetch({("t", 0): 0}, **waits) is not PARKED


@pytest.mark.parametrize("fields", [{"max_wait_ms": 0, "min_bytes": 1}, {"max_wait_ms": 500}])
def test_nothing_to_wait_for_is_answered_at_once(node, fetch, fields):
    node.create()
    assert fetch({("t", 0): 0}, **fields) is not PARKED


def test_an_error_is_answered_at_once(node, fetch):
    node.create()
    response = fetch({("t", 0): 99}, max_wait_ms=500, min_bytes=1)
    assert one(response).error_code == ErrorCode.OFFSET_OUT_OF_RANGE


def test_min_bytes_above_max_bytes_does_not_wait_for_ever(node, fetch, make_batch):
    node.create()
    node.produce(make_batch(b"x" * 200))
    response = fetch({("t", 0): 0}, max_wait_ms=10**9, min_bytes=10**9, max_bytes=100)
    assert len(one(response).records) > 200


def test_S20_a_long_poll_ends_when_the_leader_changes(node, fetch, make_batch):
    node.create(replicas=(1, 2), leader_epoch=1)
    waits = {"max_wait_ms": 500, "min_bytes": 1}
    assert fetch({("t", 0): 0}, replica=2, **waits) is PARKED
    assert fetch({("t", 0): 0}, current_leader_epoch=1, **waits) is PARKED
    assert node.produce(make_batch(b"a")) is PARKED
    assert [one(r).error_code for r in node.replies] == [0]  # the follower has its record
    node.replies.clear()
    assert fetch({("t", 0): 0}, 10, **waits) is PARKED
    assert node.order(leader=2, leader_epoch=2, partition_epoch=1, replicas=(1, 2)) == 0
    produced, *fetched = node.replies
    assert produced.responses[0].partition_responses[0].error_code == 6
    assert sorted(one(r).error_code for r in fetched) == [6, 74]
    assert node.waiting() == 0


def test_S21_a_long_poll_ends_when_the_replica_is_stopped(node, fetch, make_batch):
    node.create(replicas=(1, 2))
    assert node.produce(make_batch(b"a")) is PARKED
    assert fetch({("t", 0): 0}, max_wait_ms=500, min_bytes=1) is PARKED
    assert node.stop(leader_epoch=-2) == 0
    produced, fetched = node.replies
    assert produced.responses[0].partition_responses[0].error_code == 6
    assert one(fetched).error_code == 6
    assert node.waiting() == 0 and node.log_manager.get("t", 0) is None


def test_a_client_that_has_gone_is_not_waited_for(node):
    node.create()
    ctx = node.context(4)
    topics = [
        FetchTopic(topic="t", partitions=[FetchPartition(partition=0, partition_max_bytes=1)])
    ]
    request = FetchRequest(topics=topics, max_wait_ms=2**31 - 1, min_bytes=1)
    assert ctx.handled_by(handle_fetch, request) is PARKED
    ctx.disconnected()
    assert node.waiting() == 0 and len(node.timers) == 0


# Sessions (KIP-227)


def test_S41_a_session_lists_only_what_changed(node, fetch, make_batch):
    node.create(partitions=3)
    everything = {("t", i): 0 for i in range(3)}
    first = fetch(everything, session=(0, 0))
    assert first.session_id > 0 and len(partitions(first)) == 3
    id_ = first.session_id
    assert fetch({}, session=(id_, 1)).responses == []
    node.produce(make_batch(b"a"), index=2)
    changed = fetch({}, session=(id_, 2))
    assert list(partitions(changed)) == [("t", 2)] and changed.session_id == id_
    again = fetch({("t", 2): 1}, session=(id_, 3))
    assert again.responses == []
    fetch({}, session=(id_, 4), forget=[("t", 2)])
    node.produce(make_batch(b"b"), index=2)
    node.produce(make_batch(b"b"), index=0)
    assert list(partitions(fetch({}, session=(id_, 5)))) == [("t", 0)]


def test_a_partition_leaves_a_session_by_its_topics_id(node, fetch, make_batch):
    node.create(partitions=2)
    id_ = fetch({("t", 0): 0, ("t", 1): 0}, 13, session=(0, 0)).session_id
    fetch({}, 13, session=(id_, 1), forget=[("t", 1)])
    for index in (0, 1):
        node.produce(make_batch(b"a"), index=index)
    (topic,) = fetch({}, 13, session=(id_, 2)).responses
    assert [p.partition_index for p in topic.partitions] == [0]


def test_session_errors_are_for_the_whole_answer(node, fetch):
    node.create()
    assert fetch({}, session=(77, 1)).error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    id_ = fetch({("t", 0): 0}, session=(0, 0)).session_id
    wrong = fetch({}, session=(id_, 5))
    assert (wrong.error_code, wrong.session_id, wrong.responses) == (71, 0, [])
    by_id = fetch({}, 13, session=(id_, 1))
    assert by_id.error_code == ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
    assert fetch({}, session=(id_, 1)).error_code == 0


def test_a_full_request_and_an_end_replace_the_session(node, fetch):
    node.create()
    old = fetch({("t", 0): 0}, session=(0, 0)).session_id
    new = fetch({("t", 0): 0}, session=(old, 0)).session_id
    assert new not in (0, old)
    assert fetch({}, session=(old, 1)).error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert fetch({("t", 0): 0}, session=(new, -1)).session_id == 0
    assert fetch({}, session=(new, 1)).error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_a_session_without_partitions_ends(node, fetch):
    node.create()
    id_ = fetch({("t", 0): 0}, session=(0, 0)).session_id
    assert fetch({}, session=(id_, 1), forget=[("t", 0)]).session_id == 0
    assert len(node.services.fetch_sessions) == 0


def test_partitions_take_turns_when_the_answer_is_full(node, fetch, make_batch):
    node.create(partitions=3)
    for index in range(3):
        for _ in range(2):
            node.produce(make_batch(b"x" * 100), index=index)
    offsets = {("t", i): 0 for i in range(3)}
    id_ = fetch(offsets, session=(0, 0), max_bytes=0).session_id
    served = []
    for epoch in range(1, 7):
        response = fetch(offsets, session=(id_, epoch), max_bytes=10, partition_max_bytes=10)
        (key,) = [k for k, a in partitions(response).items() if len(a.records)]
        served.append(key[1])
        offsets = {key: offsets.get(key, 0) + 1}
    assert sorted(served[:3]) == [0, 1, 2] and sorted(served[3:]) == [0, 1, 2]


def test_an_error_stays_in_the_answers_until_it_is_gone(node, fetch, id_of):
    id_ = fetch({("t", 0): 0}, 13, session=(0, 0)).session_id
    assert one(fetch({}, 13, session=(id_, 1))).error_code == ErrorCode.UNKNOWN_TOPIC_ID
    node.create()
    assert one(fetch({}, 13, session=(id_, 2))).error_code == 0
    assert fetch({}, 13, session=(id_, 3)).responses == []


def test_a_long_poll_in_a_session_answers_only_the_partition_that_moved(node, fetch, make_batch):
    node.create(partitions=2)
    both = {("t", 0): 0, ("t", 1): 0}
    id_ = fetch(both, session=(0, 0)).session_id
    assert fetch({}, session=(id_, 1), max_wait_ms=500, min_bytes=1) is PARKED
    node.produce(make_batch(b"a"), index=1)
    (response,) = node.replies
    assert list(partitions(response)) == [("t", 1)] and response.session_id == id_


def test_read_committed_hides_open_transactions_and_names_aborted_ones(node, fetch, make_batch):
    from kwire.protocol.record_builder import end_transaction_marker
    from kwire.replication.log.log import AppendOrigin

    node.create()
    node.produce(make_batch(b"plain"))
    log = node.log()
    transactional = make_batch(
        b"t0", b"t1", producer_id=9, producer_epoch=0, base_sequence=0, is_transactional=True
    )
    log.append_as_leader(transactional, 0, origin=AppendOrigin.COORDINATOR)
    log.maybe_increment_high_watermark(3)
    assert values(one(fetch({("t", 0): 0}, isolation_level=1)).records) == [b"plain"]
    assert values(one(fetch({("t", 0): 0})).records) == [b"plain", b"t0", b"t1"]
    marker = end_transaction_marker(
        0, producer_id=9, producer_epoch=0, coordinator_epoch=0, timestamp=5
    )
    log.append_as_leader(marker, 0, origin=AppendOrigin.COORDINATOR)
    log.maybe_increment_high_watermark(4)
    answer = one(fetch({("t", 0): 0}, isolation_level=1))
    assert answer.last_stable_offset == 4
    assert [(a.producer_id, a.first_offset) for a in answer.aborted_transactions] == [(9, 1)]
    assert one(fetch({("t", 0): 0})).aborted_transactions is None


@pytest.fixture
def follower(node, make_batch):
    """A follower's log of two records of epoch 0, high watermark 2."""
    node.update_metadata("t", {0: 2})
    assert node.order(leader=2, replicas=(1, 2)) == 0
    append(node, make_batch(b"a"), 0, 0)
    append(node, make_batch(b"b"), 1, 0)
    node.log().update_high_watermark(2)
    return node


def append(node, batch, offset, epoch):
    from kwire.protocol.records import stamp

    stamped = bytearray(batch)
    stamp(stamped, 0, offset, epoch)
    node.log().append_as_follower(bytes(stamped))


def test_a_long_poll_ends_when_the_readable_records_are_truncated(follower, fetch):
    assert fetch({("t", 0): 2}, max_wait_ms=500, min_bytes=1) is PARKED
    follower.log().truncate_to(1)
    follower.manager.complete_waiting(("t", 0))
    (response,) = follower.replies
    assert one(response).error_code == ErrorCode.OFFSET_OUT_OF_RANGE


def test_a_long_poll_ends_when_the_log_has_become_another(follower, fetch, make_batch):
    waiting = fetch({("t", 0): 2}, last_fetched_epoch=0, max_wait_ms=500, min_bytes=1)
    assert waiting is PARKED
    follower.log().truncate_to(1)
    append(follower, make_batch(b"c"), 1, 1)
    follower.log().update_high_watermark(2)
    follower.manager.complete_waiting(("t", 0))
    (response,) = follower.replies
    diverging = one(response).diverging_epoch
    assert (diverging.epoch, diverging.end_offset) == (0, 1)
