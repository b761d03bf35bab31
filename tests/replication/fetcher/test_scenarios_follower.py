"""The follower's scenarios of the replication design, by their numbers: truncation, fetching, troubles (S19 to S39).

Broker 1 leads and broker 2 follows unless a test says otherwise. `ends()` is (log start, high watermark, log end);
`talk` is what the follower asked and got.
"""

from __future__ import annotations

import pytest
from follower_rig import Rig, same_logs
from log_harness import stamped

from kwire.protocol.errors import ErrorCode, KafkaError
from kwire.replication.core.events import Event
from kwire.replication.fetcher.state import FETCHING, TRUNCATING


def test_S19_two_round_high_watermark():
    rig = Rig()
    rig.lead(1, 0)
    rig.run()
    rig[1].produce(2)
    rig.run()
    # Then: the follower has the records, the leader's high watermark has followed, the follower's has not.
    assert rig[1].ends() == (0, 2, 2)
    assert rig[2].ends() == (0, 0, 2)
    rig.wait(500)
    assert rig[2].ends() == (0, 2, 2)


def test_S22_interleaved_epochs():
    rig = Rig()
    rig[2].write((0, 1), (2, 1), (4, 1), hw=2)
    rig[1].write((1, 1), (3, 1), (5, 1), hw=2)
    rig.lead(1, 5)
    rig.run()
    assert rig.talk[:4] == [
        "fetch(3,4) div(3,2)",
        "fetch(2,2) div(1,1)",
        "fetch(1,0) div(0,0)",
        "fetch(0,-1) 3 records, hw 2",
    ]
    assert [(e.from_offset, e.to_offset) for e in rig[2].fetchers.truncations] == [
        (3, 2),
        (2, 1),
        (1, 0),
    ]
    assert rig[2].epochs() == [(1, 0), (3, 1), (5, 2)]
    assert rig[2].ends() == (0, 2, 3)
    assert same_logs(rig) == 3


def test_S23_diverge_without_data():
    rig = Rig()
    rig.history([1, 2], (0, 2), (2, 1))
    rig[2].write((4, 3), hw=1)
    rig[1].write((5, 2), hw=4)
    rig.lead(1, 6)
    rig.answer_one()
    assert rig.talk == ["fetch(6,4) div(2,3)"]
    assert rig[2].ends() == (0, 1, 3)  # the answer's high watermark 4 was not taken
    rig.answer_one()
    assert rig[2].ends() == (0, 4, 5)
    assert rig[2].epochs() == [(0, 0), (2, 2), (5, 3)]


def test_S24_keep_acked_tail():
    # Given: two records on both brokers; 1 does not know yet that the second is committed.
    rig = Rig()
    rig.lead(2, 0)
    rig[2].produce(2)
    rig.run()
    assert (rig[2].ends(), rig[1].ends()) == ((0, 2, 2), (0, 0, 2))
    # When: 1 restarts and is elected.
    rig.restart(1)
    rig.lead(1, 1)
    rig.talk.clear()
    rig.run()
    # Then: nothing is cut to the high watermark.
    assert rig[1].epochs() == [(0, 0), (1, 2)]
    assert rig[1].ends()[2] == rig[2].ends()[2] == 2
    rig.wait(500)
    assert rig.talk == ["fetch(2,0) 0 records, hw 2"]
    assert rig[1].ends() == rig[2].ends() == (0, 2, 2)
    assert not rig[2].fetchers.truncations


def test_S25_no_silent_divergence():
    # Given: m1 on both, m2 on 2 only; 1 is elected and writes m3 at m2's offset.
    rig = Rig()
    rig.lead(2, 0)
    rig[2].produce(1)
    rig.run()
    rig.cut_off(1)
    rig[2].produce(1)
    rig.lead(1, 1, to=[1])
    rig[1].produce(1)
    # When: 2 hears of it.
    rig.heal()
    rig.talk.clear()
    rig.lead(1, 2)
    rig.run()
    assert rig.talk[0] == "fetch(2,0) div(0,1)"
    assert rig[2].epochs() == [(0, 0), (1, 1)]
    assert same_logs(rig) == 2


def test_S26_unclean_short_leader():
    rig = Rig()
    rig.history([1, 2], (0, 1))
    rig[2].write((2, 1), (4, 1))
    assert rig[2].ends() == (0, 3, 3)
    rig.lead(1, 6, isr=[1])
    rig.run()
    assert rig.talk[0] == "fetch(3,4) div(0,1)"
    assert rig[2].ends() == (0, 1, 1)
    assert rig[2].epochs() == [(0, 0)]
    (cut,) = rig[2].logged.of(Event.LOG_TRUNCATED_BELOW_HIGH_WATERMARK)
    assert (cut["high_watermark"], cut["log_end_offset"], cut["leader_epoch"]) == (3, 1, 6)
    rig[1].produce(2)
    rig.run()
    assert rig[2].epochs() == [(0, 0), (6, 1)]
    assert same_logs(rig) == 3


def test_S27_out_of_range_low():
    rig = Rig()
    rig.history([1, 2], (0, 1))
    rig[1].write((0, 1), (4, 1)).maybe_increment_log_start_offset(2)
    rig.lead(1, 5)
    for _ in range(3):
        rig.answer_one()
    assert rig.talk == ["fetch(1,0) error 1", "offset(-1) 3", "offset(-2) 2"]
    assert rig[2].ends() == (2, 2, 2) and rig[2].epochs() == []
    rig.run()
    assert rig[2].ends()[::2] == (2, 3) and rig[2].epochs() == [(4, 2)]
    assert rig[2].cut_logs == [("t-0", 2)]


def test_S28_out_of_range_high():
    rig = Rig()
    rig[2].write((0, 3)).leader_epochs.clear()
    rig.lead(1, 1)
    rig.run()
    assert rig.talk[:2] == ["fetch(3,-1) error 1", "offset(-1) 0"]
    assert rig[2].ends() == (0, 0, 0)


def test_S28_the_leader_is_asked_in_the_followers_epoch_and_must_know_its_end():
    rig = Rig()
    rig[2].write((0, 3)).leader_epochs.clear()

    def no_offset(header, response):
        if header.api_key == 2:
            rig.tamper = None
            response.topics[0].partitions[0].offset = -1

    rig.tamper = no_offset
    rig.lead(1, 4)
    rig.run()
    assert rig.talk == ["fetch(3,-1) error 1", "offset(-1) -1"]
    assert rig[2].ends()[2] == 3 and rig[2].state().delay_until_ms is not None
    (request,) = rig.requests(2)
    assert request.topics[0].partitions[0].current_leader_epoch == 4
    rig.wait(2000)
    assert rig[2].ends() == (0, 0, 0)


def test_S29_list_offsets_race():
    rig = Rig()
    rig.history([1, 2], (0, 5))
    rig[2].write((0, 5))
    # Given: the leader's log is shorter when the fetch fails, and longer when it is asked for its end.

    def out_of_range_once(header, response):
        if header.api_key == 1:
            rig.tamper = None
            data = response.responses[0].partitions[0]
            data.error_code, data.diverging_epoch, data.records = (
                1,
                type(data.diverging_epoch)(),
                b"",
            )
            rig[1].produce(9)

    rig.tamper = out_of_range_once
    rig.lead(1, 2)
    rig.wait(1000)
    assert rig.talk[:4] == [
        "fetch(10,0) error 1",
        "offset(-1) 14",
        "offset(-2) 0",
        "fetch(10,0) div(0,5)",
    ]
    assert rig[2].ends() == (0, 14, 14)
    assert rig[2].epochs() == [(0, 0), (2, 5)]
    same_logs(rig)


def test_S29_a_follower_that_does_not_know_where_to_begin_asks():
    rig = Rig()
    rig.history([1, 2], (0, 2))
    rig[1].write((0, 3))
    rig.lead(1, 2)
    rig.run()
    rig[2].fetchers.remove([("t", 0)])
    rig.talk.clear()
    fetcher = rig[2].fetchers._fetcher(1, ("t", 0))
    fetcher.add(rig[2].partition(), -1)
    rig.wait(1000)
    assert rig.talk[:2] == ["offset(-1) 5", "offset(-2) 0"]
    assert same_logs(rig) == 5


def test_S30_repeated_unclean_elections():
    rig = Rig()
    rig.history([1, 2], (0, 1))
    rig[1].write((3, 3), (7, 2))
    rig[2].write((1, 1), (5, 1))
    rig.lead(1, 8)
    rig.run()
    assert rig.talk[:3] == [
        "fetch(3,5) div(3,4)",
        "fetch(2,1) div(0,1)",
        "fetch(1,0) 5 records, hw 6",
    ]
    assert same_logs(rig) == 6


@pytest.mark.parametrize(
    ("shared", "follower", "leader", "talk", "cut_to"),
    [
        ([(0, 100), (5, 56)], [(5, 44)], [], ["epoch(5) (5,156)"], 156),
        (
            [(0, 60), (3, 41)],
            [(3, 19), (5, 80)],
            [(4, 54)],
            ["epoch(5) (4,155)", "epoch(3) (3,101)"],
            101,
        ),
        ([(0, 100), (4, 56)], [(4, 44)], [], ["epoch(4) (4,156)"], 156),
        ([(0, 100), (4, 100)], [], [(4, 2)], ["epoch(4) (4,202)"], 200),
    ],
)
def test_S31_epoch_request_path(shared, follower, leader, talk, cut_to):
    rig = Rig(fetch_version=11)  # leaders that do not say where a follower's log leaves theirs
    rig.history([1, 2], *shared)
    rig[2].write(*follower)
    rig[1].write(*leader)
    assert rig[2].ends()[2] == 200
    rig.lead(1, 6)
    for _ in talk:
        rig.answer_one()
    assert rig.talk == talk
    assert rig[2].ends()[2] == cut_to == rig[2].state().fetch_offset
    assert rig[2].state().phase == FETCHING
    rig.run()
    same_logs(rig)


@pytest.mark.parametrize(
    ("epoch", "end_offset", "cut_to"), [(-1, -1, 100), (-1, 90, 90), (-1, 999, 110)]
)
def test_S32_fall_back_to_the_high_watermark(epoch, end_offset, cut_to):
    rig = Rig(fetch_version=11)
    rig.history([1, 2], *[(0, 10)] * 11)
    rig[2].log().update_high_watermark(100)

    def answer(header, response):
        if header.api_key == 23:
            data = response.topics[0].partitions[0]
            data.leader_epoch, data.end_offset = epoch, end_offset

    rig.tamper = answer
    rig.lead(1, 6)
    rig.answer_one()
    assert rig[2].ends()[2] == cut_to


def test_S32_without_epochs_the_log_is_cut_to_the_high_watermark_unasked():
    rig = Rig()
    rig[2].write((0, 1), (0, 1), (0, 1), hw=2).leader_epochs.clear()
    rig.lead(1, 1)
    assert rig[2].ends() == (0, 2, 2)
    assert not rig.talk and rig[2].state().phase == FETCHING
    rig.run()
    assert rig.talk[0] == "fetch(2,-1) error 1"


def test_S33_truncate_before_taking_the_high_watermark():
    rig = Rig()
    rig.history([1, 2], (4, 140))
    rig[2].write((5, 10), hw=130)
    rig[1].write((6, 20))
    rig.lead(1, 7)
    answers = []
    rig.tamper = lambda header, response: answers.append(response.responses[0].partitions[0])
    rig.answer_one()
    assert answers[0].high_watermark == 160 and rig.talk == ["fetch(150,5) div(4,140)"]
    assert rig[2].ends() == (0, 130, 140)
    rig.run()
    assert rig[2].ends() == (0, 160, 160)


def test_S34_straddling_batch():
    rig = Rig()
    rig.lead(1, 0)
    log = rig[2].log()
    log.truncate_fully_and_start_at(5)
    partition = rig[2].partition()

    def append(first, count):
        partition.append_records_to_follower(stamped(rig.batch(count), first, 0), 0)

    with pytest.raises(KafkaError):
        append(3, 1)
    assert rig[2].ends() == (5, 5, 5)
    append(4, 3)
    assert rig[2].ends()[::2] == (4, 7)
    with pytest.raises(KafkaError):
        append(3, 2)
    with pytest.raises(KafkaError):
        append(6, 4)  # straddles the end, but the log is not empty
    assert rig[2].ends()[::2] == (4, 7)
    append(9, 1)  # a gap is legal: the leader's log is compacted
    assert rig[2].ends()[2] == 10


def test_S34_a_leaders_log_start_inside_a_batch():
    rig = Rig()
    rig[1].write((0, 10)).maybe_increment_log_start_offset(5)
    rig.lead(1, 1)
    rig.run()
    assert rig.talk[:3] == ["fetch(0,-1) error 1", "offset(-1) 10", "offset(-2) 5"]
    assert rig[2].ends() == (5, 10, 10)


def test_S35_fenced_until_the_controller_speaks():
    rig = Rig()
    rig[1].write((0, 2))
    rig.lead(1, 0)
    rig.run()
    assert rig[2].ends()[2] == 2
    rig.lead(1, 1, to=[1])
    rig.run()
    assert rig.talk[-1] == "fetch(2,0) error 74"
    assert rig[2].fetchers.failed == {("t", 0)} and rig[2].state() is None
    sent = len(rig.sent)
    rig.wait(60_000)
    assert len(rig.sent) == sent
    rig.lead(1, 1, to=[2])
    rig.run()
    assert not rig[2].fetchers.failed
    rig[1].produce(1)
    rig.run()
    assert same_logs(rig) == 3


def test_S35_fenced_at_the_start():
    rig = Rig()
    rig[1].write((0, 2))
    rig.lead(1, 1, to=[1])
    rig.lead(1, 0, to=[2])
    rig.run()
    assert rig[2].fetchers.failed == {("t", 0)}
    assert rig[2].ends() == (0, 0, 0)


def test_S35_a_fence_for_an_earlier_epoch_is_only_a_reason_to_ask_again():
    rig = Rig()
    rig[1].write((0, 2))
    rig.lead(1, 0)
    rig.run()
    rig.hold = True
    rig.lead(
        1, 1
    )  # the leader answers the fetch of epoch 0; the follower is in epoch 1 when it comes
    rig.run()
    rig.hold = False
    rig.run()
    assert "fetch(2,0) error 74" in rig.talk
    assert not rig[2].fetchers.failed
    rig[1].produce(1)
    rig.wait(1000)
    assert same_logs(rig) == 3


def test_S36_leader_behind():
    rig = Rig()
    rig[1].write((0, 1))
    rig.lead(1, 0, to=[1])
    rig.lead(1, 1, to=[2])
    rig.run()
    assert rig.talk == ["fetch(0,-1) error 75"]
    state = rig[2].state()
    # Sooner than Kafka at first, then less and less often, up to replica.fetch.backoff.ms.
    assert rig.clock.now_ms < state.delay_until_ms <= rig.clock.now_ms + 1000
    assert (state.current_leader_epoch, state.fetch_offset) == (1, 0)
    rig.wait(10_000)
    assert 15 < len(rig.talk) < 20
    assert state.delay_until_ms - rig.clock.now_ms <= 1000 and rig[2].ends() == (0, 0, 0)
    rig.lead(1, 1, to=[1])
    rig.wait(1000)
    assert rig[2].ends()[2] == 1 and state.retries == 0


def test_S37_corrupt_once():
    rig = Rig()
    rig[1].write((0, 2))

    def flip_once(header, response):
        rig.tamper = None
        data = response.responses[0].partitions[0]
        records = bytearray(data.records)
        records[20] ^= 1
        data.records = bytes(records)

    rig.tamper = flip_once
    rig.lead(1, 0)
    rig.run()
    assert rig[2].ends() == (0, 0, 0)
    assert rig[2].state().delay_until_ms == rig.clock.now_ms + 1000
    rig.wait(999)
    assert rig[2].ends() == (0, 0, 0)
    rig.wait(1)
    assert same_logs(rig) == 2


@pytest.mark.parametrize("error", [ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.KAFKA_STORAGE_ERROR])
def test_S38_one_bad_partition(error):
    rig = Rig()
    for index in (0, 1):
        rig[1].write((0, 2), index=index)
    bad = rig[2].log(index=1)

    def fail(records, leader_epoch=None):
        raise KafkaError(error, "no space left on device")

    bad.append_as_follower = fail
    rig.lead(1, 0, partitions=[0, 1])
    rig.run()
    assert rig[2].fetchers.failed == {("t", 1)}
    assert rig[2].fetchers.metrics().failed_partitions_count == 1
    rig[1].produce(1)
    rig.wait(1000)
    assert same_logs(rig, index=0) == 3
    del bad.append_as_follower
    if error == ErrorCode.KAFKA_STORAGE_ERROR:
        # The log is not to be trusted any more: the partition is offline, which is not "failed".
        assert not rig[2].fetchers.failed and ("t", 1) in rig[2].manager.offline
        return
    rig[2].fetchers.remove([("t", 1)])
    assert not rig[2].fetchers.failed
    rig[2].fetchers.add_follower(rig[2].partition("t", 1))
    rig[2].fetchers.close_idle()
    rig.wait(10)
    assert same_logs(rig, index=1) == 2


@pytest.mark.parametrize("epoch", [0, 1])
def test_S39_stale_answer_to_a_fetch(epoch):
    rig = Rig()
    rig.history([1, 2], (0, 6), (0, 4))
    rig.lead(1, 0)
    rig.run()
    # Given: a fetch at 10 is answered with a record, and before it comes the log is cut to 6.
    rig.hold = True
    rig[1].produce(1)
    rig.run()
    rig[2].fetchers.remove([("t", 0)])
    rig[2].log().truncate_to(6)
    if epoch == 0:
        rig[2].fetchers.add_follower(rig[2].partition())
    else:
        rig.lead(1, epoch)
    rig.hold = False
    rig.answer_one()
    assert rig.talk[-1].endswith("1 records, hw 10")
    assert rig[2].ends()[2] == 6  # ignored
    rig.run()
    assert any(line.startswith("fetch(6,0)") for line in rig.talk)
    assert same_logs(rig) == 11


def test_S39_an_answer_to_a_fetch_of_the_epoch_before_is_stale_while_the_log_may_be_cut():
    rig = Rig(fetch_version=11)
    rig.history([1, 2], (0, 3))
    rig.lead(1, 0)
    rig.run()
    rig.hold = True
    rig[1].produce(1)
    rig.run()
    rig.lead(1, 1)
    assert rig[2].state().phase == TRUNCATING
    rig.hold = False
    rig.answer_one()
    assert rig[2].ends()[2] == 3  # ignored
    rig.run()
    assert same_logs(rig) == 4


def test_S31_an_epoch_that_the_leader_leaves_out_of_its_answer_is_asked_for_later():
    rig = Rig(fetch_version=11)
    rig.history([1, 2], (0, 3))
    asked = []

    def leave_out(header, response):
        if header.api_key == 23:
            asked.append(header.correlation_id)
            if len(asked) == 1:  # it answers about another partition
                response.topics[0].partitions[0].partition = 7

    rig.tamper = leave_out
    rig.lead(1, 1)
    rig.run()
    assert len(asked) == 1 and rig[2].state().delay_until_ms is not None
    rig.wait(2000)
    assert len(asked) == 2 and same_logs(rig) == 3


def test_S39_stale_answer_about_epochs():
    rig = Rig(fetch_version=11)
    rig.history([1, 2], (0, 10))
    rig[2].write((0, 5), hw=10)
    rig.lead(1, 1)
    rig.hold = True
    rig.run()
    rig.lead(1, 2)
    assert rig[2].state().phase == TRUNCATING
    rig.hold = False
    rig.answer_one()
    assert rig.talk == ["epoch(0) (0,10)"] and rig[2].ends()[2] == 15  # ignored
    rig.answer_one()
    assert rig.talk[1:] == ["epoch(0) (0,10)"] and rig[2].ends()[2] == 10


def test_S39_an_answer_about_what_was_not_asked_changes_nothing():
    rig = Rig()
    rig[1].write((0, 2))

    def another_partition(header, response):
        rig.tamper = None
        response.responses[0].partitions[0].partition_index = 7

    rig.tamper = another_partition
    rig.lead(1, 0)
    rig.answer_one()
    assert rig[2].ends() == (0, 0, 0)
    rig.run()
    assert same_logs(rig) == 2  # asked again, in a new session


def test_S39_records_of_a_deleted_topic_do_not_get_into_its_successor():
    rig = Rig()
    rig.lead(1, 0, topic="another")  # keeps the fetcher
    rig.lead(1, 0)
    rig.wait(600)
    rig.hold = True
    rig[1].produce(3)
    rig.run()
    # When: the answer is on its way the topic is deleted and made again; offset and epoch are the same.
    for node_id in (1, 2):
        assert rig[node_id].stop() == 0
    rig.lead(1, 0, id_=b"another topic id")
    rig.hold = False
    rig.answer_one()
    assert rig.talk[-1].endswith("3 records, hw 0")
    assert rig[2].ends() == (0, 0, 0)
    rig.wait(2000)
    assert rig[2].ends() == rig[1].ends() == (0, 0, 0)
    rig[1].produce(1)
    rig.run()
    assert same_logs(rig) == 1


def test_S79_epochs_through_bounces():
    rig = Rig()
    rig.lead(1, 0)
    rig[1].produce(1)
    rig.run()
    rig.restart(2)
    rig.lead(1, 1, isr=[1])
    rig.run()
    assert rig[1].epochs() == [(0, 0), (1, 1)] and rig[2].epochs() == [(0, 0)]
    rig[1].produce(1)
    rig.run()
    assert rig[2].epochs() == [(0, 0), (1, 1)]
    rig.restart(1)
    rig.lead(2, 2)
    assert rig[2].epochs() == [(0, 0), (1, 1), (2, 2)]
    rig[2].produce(1)
    rig.run()
    assert rig[1].epochs() == rig[2].epochs() == [(0, 0), (1, 1), (2, 2)]
    assert [epoch for _, epoch, _ in rig[1].content()] == [0, 1, 2]
    assert same_logs(rig) == 3


def test_S6_an_epoch_without_records_is_cut_though_no_record_is():
    rig = Rig()
    rig.history([1, 2], (0, 27), (19, 2))
    rig.lead(2, 20, to=[2])
    assert rig[2].epochs() == [(0, 0), (19, 27), (20, 29)]
    rig.lead(1, 21)
    rig.run()
    assert rig.talk[0] == "fetch(29,20) div(19,29)"
    assert rig[2].epochs() == [(0, 0), (19, 27)] and rig[2].ends()[2] == 29
    assert not rig[2].fetchers.truncations
    rig[1].produce(1)
    rig.run()
    assert rig[2].epochs() == [(0, 0), (19, 27), (21, 29)] and same_logs(rig) == 30
