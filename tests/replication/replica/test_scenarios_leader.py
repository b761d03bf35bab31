"""Scenarios S13 to S62 of the replication catalogue that take a whole leader: given, when, then.

Others are where their arithmetic is (test_partition.py, tests/apis/); docs/scenarios.md has the table.
"""

from __future__ import annotations

import pytest
from follower_rig import Rig
from leader_rig import Leader

from kwire.protocol.errors import ErrorCode
from kwire.protocol.record_builder import build_batch, end_transaction_marker
from kwire.protocol.records import CONTROL_ABORT, CONTROL_COMMIT, Record
from kwire.replication.core.events import Event
from kwire.replication.core.types import RACK_AWARE
from kwire.replication.core.work import at_once
from kwire.replication.log.log import AppendOrigin
from kwire.replication.replica.fetch_data import READ_COMMITTED, FetchParams, FetchPartition
from kwire.replication.replica.isr import CommittedIsr
from kwire.replication.replica.lookup import (
    EARLIEST_TIMESTAMP,
    LATEST_TIMESTAMP,
    offset_for_timestamp,
    segment_offsets,
)
from kwire.replication.replica.status import describe


@pytest.fixture
def leader():
    return Leader()


# B. Fetches of followers and consumers


def test_S13_divergence_after_the_log_start_has_moved(leader):
    # given @0×2 @3×6 @4×5 @7×1 @9×3, LE 10, LEO 17, LS 5
    log = leader.node.write((0, 2), (3, 6), (4, 5), (7, 1), (9, 3))
    leader.lead(10)
    log.maybe_increment_log_start_offset(5)
    assert leader.node.epochs() == [(3, 5), (4, 8), (7, 13), (9, 14), (10, 17)]

    def fetch(offset, epoch):
        data = leader.fetch(2, offset, last_fetched_epoch=epoch)
        return data.error or data.diverging_epoch

    assert fetch(8, 2) == (2, 5)
    assert fetch(5, 0) is None and fetch(5, 3) is None
    assert fetch(0, 0) == ErrorCode.OFFSET_OUT_OF_RANGE
    # when LS is 10
    log.maybe_increment_log_start_offset(10)
    assert leader.node.epochs()[0] == (4, 10)
    assert fetch(6, 5) == fetch(6, 3) == ErrorCode.OFFSET_OUT_OF_RANGE


@pytest.mark.parametrize("fetch", [{"offset": 3, "last_fetched_epoch": 0}, {"offset": 99}])
def test_S14_a_fetch_that_failed_leaves_what_is_known_of_the_follower(leader, fetch):
    leader.node.write((0, 2), (3, 4), hw=0)
    leader.lead(5, isr=[1])
    leader.fetch(2, 1, log_start_offset=1)
    leader.wait(100)
    before = describe(leader.manager).partitions[0].followers[0]
    data = leader.fetch(2, log_start_offset=2, **fetch)
    assert data.error or data.diverging_epoch == (0, 2)
    assert describe(leader.manager).partitions[0].followers[0] == before
    assert leader.peers.asked == []


def test_S16_a_follower_that_is_added_is_known_from_the_order_on(leader):
    leader.lead(1, replicas=[1, 2])
    assert leader.fetch(3, 0, current_leader_epoch=1).error == ErrorCode.UNKNOWN_LEADER_EPOCH
    assert leader.fetch(3, 0).error == ErrorCode.NOT_LEADER_OR_FOLLOWER
    leader.lead(2, replicas=[1, 2, 3], isr=[1, 2])
    assert leader.fetch(3, 0, current_leader_epoch=2).error == 0


def test_S16_an_incarnation_in_the_isr_of_one_partition_fences_the_earlier_one_in_all(leader):
    leader.lead(1, partitions=[0, 1], isr=[1])
    assert leader.fetch(2, 0, replica_epoch=7).error == 0
    leader.agree()
    assert leader.partition().isr == {1, 2}
    assert leader.fetch(2, 0, index=1, replica_epoch=6).error == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert leader.partition(1).remote_replicas[2].log_end_offset == -1
    assert leader.fetch(2, 0, index=1, replica_epoch=-1).error == 0


def test_S16_an_epoch_that_only_a_fetch_claims_fences_nobody(leader):
    """A client that poses as broker 2 may name any epoch: the true one goes on, known to the controller or not."""
    last = 2**63 - 1
    leader.lead(1, isr=[1])
    leader.fetch(2, 0, replica_epoch=last)
    assert leader.asked()["t", 0][2][2] == last
    leader.refuse(ErrorCode.INELIGIBLE_REPLICA)
    assert leader.partition().isr == {1}
    assert leader.fetch(2, 0, replica_epoch=7).error == 0
    leader.agree()
    assert leader.partition().isr == {1, 2}
    leader.fetch(2, 0, replica_epoch=last)
    leader.append(3)
    assert leader.fetch(2, 3, replica_epoch=7).error == 0
    assert leader.ends() == (3, 3)


def test_S17_a_consumer_at_a_follower_reads_to_its_high_watermark():
    # given leader 1, follower 2, two records that both have
    rig = Rig(2)
    rig.lead(1, 0)
    rig.run()
    rig[1].produce(2)
    rig.run()
    assert rig[1].ends() == (0, 2, 2) and rig[2].ends() == (0, 0, 2)

    def read(offset, wait_ms=0):
        found = []
        params = FetchParams(max_wait_ms=wait_ms, min_bytes=1)
        asked = [(("t", 0), FetchPartition(offset, 1 << 20))]
        rig[2].manager.fetch_records(params, asked, found.extend)
        return found

    # then nothing is visible at the follower, and what is past its end is out of range
    assert [(d.error, len(d.records)) for d in read(0)] == [(0, 0)]
    assert [(d.error, len(d.records)) for d in read(1)] == [(0, 0)]
    assert read(3)[0].error == ErrorCode.OFFSET_OUT_OF_RANGE
    # when it hears of the high watermark, who waits there is answered
    waiting = read(0, wait_ms=60_000)
    assert waiting == []
    rig.wait(5)
    assert rig[2].ends() == (0, 2, 2)
    assert [(d.error, d.high_watermark, len(d.records) > 0) for d in waiting] == [(0, 2, True)]


def test_S15_a_follower_fences_consumers_as_a_leader_does(leader):
    leader.lead(5, leader=2)

    def error(epoch):
        return leader.fetch(-1, 0, current_leader_epoch=epoch).error

    assert (error(-1), error(5), error(4), error(6)) == (0, 0, 74, 75)


def test_S19_a_follower_that_idles_hears_of_the_high_watermark_within_5_ms():
    # given LEO 2, HW 0, ISR {1,2}; when 2 has fetched both records and asks for more
    rig = Rig(2)
    rig.lead(1, 0)
    rig.run()
    rig.wait(1000)
    rig[1].produce(2)
    rig.run()
    # then the leader's HW is 2, the follower's 0, and a long poll is waiting
    assert (rig[1].ends()[1], rig[2].ends()[1]) == (2, 0)
    assert len(rig[1].manager.fetch_purgatory) == 1
    fetches = len(rig.requests())
    rig.wait(4)
    assert rig[2].ends()[1] == 0
    rig.wait(1)
    assert rig[2].ends()[1] == 2 and len(rig.requests()) == fetches + 1
    # and then it is quiet: one fetch in 500 ms
    rig.wait(5000)
    assert len(rig.requests()) <= fetches + 1 + 10


def test_S19_records_that_come_meanwhile_take_the_news_along():
    rig = Rig(2)
    rig.lead(1, 0)
    rig.run()
    rig[1].produce(2)
    rig.run()
    fetches = len(rig.requests())
    rig[1].produce(1)
    rig.run()
    assert (rig[2].ends()[1], rig[2].ends()[2]) == (2, 3)
    assert len(rig.requests()) == fetches + 1


def test_S19_a_new_leader_tells_followers_without_a_session_too(leader):
    leader.node.write((0, 2), hw=0)
    leader.lead(1, isr=[1, 2])
    assert leader.fetch(2, 2, wait_ms=500) is None  # this very fetch moves it
    assert leader.ends() == (2, 2)
    leader.wait(5)
    assert [data.high_watermark for data in leader.answers] == [2]
    assert leader.fetch(2, 2, wait_ms=500) is None
    leader.wait(499)
    assert len(leader.answers) == 1


def test_S19_news_from_before_the_fetch_is_news_too(leader):
    # given a follower that was told of HW 0, and HW 2 since; when it asks with nothing new, then it hears at once
    leader.lead(1, replicas=[1, 2])
    leader.append(2)
    leader.fetch(2, 2)
    assert leader.ends() == (2, 2)
    assert leader.fetch(2, 2, wait_ms=500, answered_high_watermark=0) is None
    leader.wait(5)
    assert [data.high_watermark for data in leader.answers] == [2]
    leader.answers.clear()
    assert leader.fetch(2, 2, wait_ms=500, answered_high_watermark=2) is None
    leader.wait(499)
    assert leader.answers == []


def test_S20_a_long_poll_of_a_follower_ends_with_the_leader_epoch(leader):
    leader.lead(1)
    assert leader.fetch(2, 0, wait_ms=500) is None
    assert leader.fetch(3, 0, wait_ms=500, current_leader_epoch=1) is None
    done = leader.produce()
    leader.answers.clear()  # both got the record
    assert leader.fetch(2, 1, wait_ms=500) is None
    assert leader.fetch(3, 0, wait_ms=500, current_leader_epoch=1) is not None
    assert leader.fetch(3, 1, wait_ms=500, current_leader_epoch=1) is None
    # S20: 3's fetch committed the record, so this one is new
    assert [r.error for r in done] == [0]
    late = leader.produce()
    leader.answers.clear()
    assert leader.fetch(3, 2, wait_ms=500, current_leader_epoch=1) is None
    leader.lead(2, leader=2)
    assert [r.error for r in late] == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
    assert [d.error for d in leader.answers] == [ErrorCode.FENCED_LEADER_EPOCH]
    assert len(leader.manager.fetch_purgatory) == len(leader.manager.produce_purgatory) == 0


# Fetches of several partitions


def fetch_two(leader, replica_id=2, offset=0, max_bytes=1 << 20, **params):
    """A fetch of t-0 and t-1 that may wait; its answer will be in the list."""
    answer = []
    params = FetchParams(replica_id=replica_id, max_wait_ms=500, **params)
    asked = [(("t", i), FetchPartition(offset, max_bytes, log_start_offset=0)) for i in (0, 1)]
    leader.manager.fetch_records(params, asked, answer.extend)
    return answer


def test_S19_the_high_watermark_of_each_partition_is_that_of_the_answer(leader):
    leader.lead(1, partitions=[0, 1])
    for index in (0, 1):
        leader.append(1, index=index)
        leader.fetch(2, 1, index=index)
    answer = fetch_two(leader, offset=1, min_bytes=1)
    leader.fetch(3, 1, index=1)
    leader.wait(5)
    assert [data.high_watermark for data in answer] == [0, 1]


def test_a_log_start_that_moves_during_a_long_poll_is_in_its_answer(leader):
    leader.lead(1, partitions=[0, 1], replicas=[1, 2])
    for index in (0, 1):
        leader.append(2, index=index)
        leader.fetch(2, 2, index=index)
    answer = fetch_two(leader, replica_id=-1, offset=2, min_bytes=1)
    leader.manager.delete_records(timeout_ms=0, offsets={("t", 1): 1}, on_complete=lambda _: None)
    leader.wait(500)
    assert [data.log_start_offset for data in answer] == [0, 1]


def test_min_bytes_counts_no_more_of_a_partition_than_it_may_give(leader):
    leader.lead(1, partitions=[0, 1], replicas=[1])
    answer = fetch_two(leader, replica_id=-1, min_bytes=300, max_bytes=100)
    leader.append(100)
    leader.wait(499)
    assert answer == []
    leader.wait(1)
    assert len(answer) == 2


def test_min_bytes_counts_the_part_of_a_batch_that_does_not_fit_any_more(leader):
    """Kafka would send that part; a reader whose minimum is its limit must not wait for the time-out."""
    leader.lead(1, replicas=[1])
    leader.append(1)
    size = leader.partition().log.size_bytes
    leader.append(1)
    answer = []
    params = FetchParams(max_wait_ms=500, min_bytes=size + 1)
    asked = [(("t", 0), FetchPartition(0, size + 1))]
    leader.manager.fetch_records(params, asked, answer.extend)
    assert [len(data.records) for data in answer] == [size]


def test_min_bytes_counts_partitions_of_which_only_a_batch_too_large_is_there(leader):
    leader.lead(1, partitions=[0, 1], replicas=[1])
    for index in (0, 1):
        leader.append(1, index=index)
    answer = fetch_two(leader, replica_id=-1, min_bytes=20, max_bytes=10)
    assert [len(data.records) > 0 for data in answer] == [True, False]
    answer = fetch_two(leader, replica_id=-1, offset=1, min_bytes=20, max_bytes=10)
    leader.append(1)
    assert answer == []
    leader.append(1, index=1)
    assert len(answer) == 2


def test_a_long_poll_counts_bytes_that_were_there_but_not_read(leader):
    leader.lead(1, partitions=[0, 1], replicas=[1])
    leader.append(1)
    size = leader.partition().log.size_bytes
    leader.append(1)
    limit = size + size // 2
    answer = fetch_two(leader, replica_id=-1, min_bytes=limit + size, max_bytes=limit)
    assert answer == []
    leader.append(1, index=1)
    assert [len(data.records) for data in answer] == [size, size]


def test_a_long_poll_for_many_bytes_ends_when_the_log_has_rolled(leader):
    """A read is of one segment: more would not come however long it waits."""
    leader.lead(1, replicas=[1])
    leader.append(1)
    answer = []
    params = FetchParams(max_wait_ms=500, min_bytes=10_000)
    asked = [(("t", 0), FetchPartition(0, 1 << 20))]
    leader.manager.fetch_records(params, asked, answer.extend)
    leader.append(1)
    assert answer == []
    leader.node.log().roll()
    leader.append(1)
    assert len(answer) == 1


def test_an_append_to_several_partitions_answers_who_waits_for_them(leader):
    leader.lead(1, partitions=[0, 1], replicas=[1])
    answer = fetch_two(leader, replica_id=-1, min_bytes=1)
    results = []
    leader.manager.append_records(
        timeout_ms=1000,
        required_acks=1,
        entries={("t", 1): leader.rig.batch(1)},
        origin=AppendOrigin.CLIENT,
        on_complete=results.append,
    )
    assert len(results) == 1 and [len(data.records) > 0 for data in answer] == [False, True]


# D. ISR and high watermark


def test_S46_S50_the_timer_finds_who_is_late_between_once_and_one_and_a_half_times(leader):
    # given ISR {1,2,3}, LEO 10, HW 0; 2 keeps up, 3 never fetches
    leader.lead(1)
    leader.manager.start()
    done = leader.produce(10, timeout_ms=60_000)
    for _ in range(4):
        leader.fetch(2, 10)
        leader.wait(7500)
    # then at 30000 ms it is not late yet
    assert leader.peers.asked == [] and leader.ends() == (0, 10)
    # when the next scan comes, at 45000 ms, it is
    leader.fetch(2, 10)
    leader.wait(15_000)
    assert leader.asked()["t", 0][:2] == (1, 1) and set(leader.asked()["t", 0][2]) == {1, 2}
    assert leader.partition().isr_state.maximal_isr == {1, 2, 3} and leader.ends() == (0, 10)
    # and when the controller agrees, PE 2, ISR {1,2}, HW 10, the produce is answered
    leader.agree()
    assert leader.partition().isr_state == CommittedIsr(frozenset({1, 2}))
    assert leader.ends() == (10, 10) and [r.error for r in done] == [0]


def test_S50_a_member_that_is_no_replica_any_more_is_left_out_at_the_first_look(leader):
    leader.lead(1, replicas=[1, 2], isr=[1, 2, 3])
    leader.manager.start()
    leader.wait(15_000)
    assert set(leader.asked()["t", 0][2]) == {1, 2}
    (shrink,) = leader.logged.of(Event.ISR_SHRINK_PROPOSED)
    assert shrink["detail"] == "3 (not a replica any more)"


def test_S47_who_is_at_the_end_is_never_late(leader):
    leader.lead(1)
    leader.manager.start()
    leader.append(3)
    leader.fetch(2, 3)
    leader.fetch(3, 3)
    leader.wait(300_000)
    assert leader.peers.asked == []
    leader.append(1)
    leader.wait(15_000)
    assert set(leader.asked()["t", 0][2]) == {1}


def test_S51_under_min_isr_the_high_watermark_waits_unless_as_before_3_7():
    for ignores, high_watermark in ((False, 0), (True, 10)):
        leader = Leader({"min.insync.replicas": "3"})
        leader.manager.hw_ignores_min_isr = ignores
        leader.lead(1, isr=[1, 2])
        leader.append(10)
        leader.fetch(2, 10)
        assert leader.ends() == (high_watermark, 10)
        # when 3 comes up to the end and has joined
        leader.fetch(3, 10)
        assert leader.ends() == (high_watermark, 10) and leader.partition().isr_state.in_flight
        leader.agree()
        assert leader.ends() == (10, 10)


def test_S52_a_joiner_that_has_fallen_silent_is_awaited_no_longer_than_the_lag_time(leader):
    # given ISR {1}, 2 caught up at 10, its proposal refused
    leader.lead(1, replicas=[1, 2], isr=[1])
    leader.manager.start()
    leader.append(10)
    leader.fetch(2, 10)
    leader.refuse(107)
    # when 2 more are appended, then HW stays 10: 2 is about to join
    leader.append(2)
    assert leader.ends() == (10, 12)
    # and when it has been silent for long, the scan lets it go
    leader.wait(45_000)
    assert leader.ends() == (12, 12)


def test_S55_who_is_not_alive_is_not_proposed(leader):
    leader.rig.nodes.pop(3)
    leader.lead(1, isr=[1])
    leader.fetch(3, 0)
    assert leader.peers.asked == []
    leader.fetch(2, 0, replica_epoch=3)
    assert leader.asked()["t", 0][2][2] == 3  # the controller compares: registered as 4 → 107
    leader.refuse(ErrorCode.INELIGIBLE_REPLICA)
    assert leader.partition().isr_state == CommittedIsr(frozenset({1}))
    assert leader.ends() == (0, 0)


def test_S56_an_isr_that_shrinks_after_the_append_ends_in_a_time_out_or_in_20():
    for ignores, error in (
        (False, ErrorCode.REQUEST_TIMED_OUT),
        (True, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND),
    ):
        leader = Leader({"min.insync.replicas": "2"})
        leader.manager.hw_ignores_min_isr = ignores
        leader.lead(1, replicas=[1, 2])
        done = leader.produce(timeout_ms=100_000)
        leader.wait(30_001)
        assert leader.partition().maybe_shrink_isr()
        leader.agree()
        leader.wait(100_000)
        assert [r.error for r in done] == [error]
        assert leader.ends()[1] == 1  # the record is in the log all the same
        assert leader.produce()[0].error == ErrorCode.NOT_ENOUGH_REPLICAS


def test_S57_a_retry_at_the_new_leader_gets_the_offset_of_the_first_attempt():
    def sequence(first, epoch=0):
        records = [Record(-1, 1, None, b"v")] * 5
        return build_batch(records, producer_id=9, producer_epoch=epoch, base_sequence=first)

    def append(node, batch):
        result = node.manager.append_to_leader("t", 0, batch, 1)
        node.manager.complete_waiting(("t", 0))
        return result.error, result.first_offset

    # given sequences 0 to 4, replicated, never answered; when 2 leads instead
    rig = Rig(2)
    rig.lead(1, 0)
    rig.run()
    assert append(rig[1], sequence(0)) == (0, 0)
    rig.run()
    rig.cut_off(1)
    rig.lead(2, 1, isr=[2], to=[2])
    # then the retry is known, the next follows, a gap and an older epoch are refused
    assert append(rig[2], sequence(0)) == (0, 0) and rig[2].ends()[2] == 5
    assert append(rig[2], sequence(12))[0] == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert append(rig[2], sequence(5)) == (0, 5)
    assert append(rig[2], sequence(0, epoch=1)) == (0, 10)
    assert append(rig[2], sequence(10))[0] == ErrorCode.INVALID_PRODUCER_EPOCH


def test_S58_a_new_leader_says_what_is_latest_once_its_followers_have_its_start(leader):
    leader.node.write((8, 5), hw=2)
    leader.lead(10, replicas=[1, 2])
    assert leader.partition().leader_epoch_start_offset == 5

    def latest():
        partition = leader.partition()
        return at_once(offset_for_timestamp(partition, LATEST_TIMESTAMP, 0, -1, True))

    with pytest.raises(Exception, match="OFFSET_NOT_AVAILABLE"):
        latest()
    leader.fetch(2, 5)
    assert leader.ends() == (5, 5) and latest() == (5, -1, 10)


def test_S58_the_earliest_offset_has_the_epoch_of_its_record(leader):
    leader.node.write((3, 2), (5, 2), hw=4)
    leader.lead(10, replicas=[1, 2])
    earliest = at_once(offset_for_timestamp(leader.partition(), EARLIEST_TIMESTAMP, 0, -1, True))
    assert earliest == (0, -1, 3)


def test_the_offsets_of_segments_end_at_the_high_watermark_for_consumers(leader):
    leader.lead(1, replicas=[1, 2])
    leader.append(4)
    leader.fetch(2, 2)

    def offsets(for_consumer):
        return segment_offsets(leader.partition(), LATEST_TIMESTAMP, 5, for_consumer, 10)

    assert offsets(True) == [2, 0] and offsets(False) == [4, 0]


def test_S59_markers_move_the_last_stable_offset_with_the_high_watermark(leader):
    leader.lead(0, replicas=[1, 2])
    log = leader.node.log()

    def transaction(producer_id):
        batch = build_batch(
            [Record(-1, 1, None, b"v")] * 3,
            producer_id=producer_id,
            producer_epoch=0,
            base_sequence=0,
            is_transactional=True,
        )
        log.append_as_leader(batch, 0, origin=AppendOrigin.COORDINATOR)

    def end(producer_id, how):
        marker = end_transaction_marker(
            how, producer_id=producer_id, producer_epoch=0, coordinator_epoch=0, timestamp=1
        )
        log.append_as_leader(marker, 0, origin=AppendOrigin.COORDINATOR)

    def read_committed(offset):
        params = FetchParams(isolation_level=READ_COMMITTED)
        asked = [(("t", 0), FetchPartition(offset, 1 << 20))]
        return leader.manager.read_from_log(params, asked)[0]

    # given 3 records of an open transaction; a commit marker at 3 is stable only below the HW
    transaction(7)
    end(7, CONTROL_COMMIT)
    leader.fetch(2, 3)
    assert (log.high_watermark, log.last_stable_offset) == (3, 0)
    assert len(read_committed(0).records) == 0
    leader.fetch(2, 4)
    assert (log.high_watermark, log.last_stable_offset) == (4, 4)
    # given an aborted one at 4 to 7: the reader is told of it
    transaction(8)
    end(8, CONTROL_ABORT)
    leader.fetch(2, 7)
    assert log.last_stable_offset == 4
    leader.fetch(2, 8)
    assert log.last_stable_offset == 8
    aborted = read_committed(4).aborted_transactions
    assert [(a.producer_id, a.first_offset) for a in aborted] == [(8, 4)]


def test_S61_deletion_is_answered_when_a_fetch_shows_the_followers_log_start(leader):
    leader.lead(1, replicas=[1, 2])
    leader.append(10)
    leader.fetch(2, 6)
    assert leader.ends() == (6, 10)
    done = []
    leader.manager.delete_records(timeout_ms=1000, offsets={("t", 0): -1}, on_complete=done.append)
    leader.fetch(2, 6, log_start_offset=0)
    assert done == []
    leader.fetch(2, 6, log_start_offset=6)
    assert [(r.error, r.low_watermark) for d in done for r in d.values()] == [(0, 6)]


def test_S61_deletion_does_not_wait_for_a_follower_that_has_died_meanwhile(leader):
    leader.lead(1, replicas=[1, 2])
    leader.append(10)
    leader.fetch(2, 6)
    done = []
    leader.manager.delete_records(timeout_ms=1000, offsets={("t", 0): -1}, on_complete=done.append)
    leader.rig.nodes.pop(2)
    leader.rig.metadata()
    assert [(r.error, r.low_watermark) for d in done for r in d.values()] == [(0, 6)]


# KIP-392


@pytest.fixture
def racks():
    """1 leads in r1; 2 in r2 with LEO 8, 3 in r2 with LEO 9; all in sync, LEO 10, HW 8."""
    leader = Leader({"replica.selector.class": RACK_AWARE})
    leader.lead(1)
    for broker, rack in ((1, "r1"), (2, "r2"), (3, "r2")):
        leader.node.metadata.brokers[broker].rack = rack
    for _ in range(10):
        leader.append(1)
    leader.fetch(2, 8)
    leader.fetch(3, 9)
    return leader


def test_S62_a_consumer_is_sent_to_the_replica_in_its_rack(racks):
    def fetch(offset, rack, **fields):
        data = racks.fetch(-1, offset, rack=rack, wait_ms=500, **fields)
        return None if data is None else (data.preferred_read_replica, len(data.records) > 0)

    assert fetch(5, "r2") == (3, False)
    assert fetch(9, "r2") == (3, False)
    racks.partition().isr_state = CommittedIsr(frozenset({1, 2}))
    assert fetch(5, "r2") == (2, False)
    for rack in ("r1", "r3", ""):
        assert fetch(5, rack) == (-1, True)
    assert (
        fetch(9, "r2") is None
    )  # nobody there has it: the leader serves, up to its high watermark
    assert racks.fetch(-1, 5, rack="r2", current_leader_epoch=0).error == 74
    assert racks.fetch(2, 9, rack="r2", wait_ms=500) is not None  # followers are not sent away


def test_S62_among_equals_who_was_caught_up_last_then_the_larger_id(racks):
    racks.fetch(2, 9)
    assert racks.fetch(-1, 5, rack="r2").preferred_read_replica == 3
    racks.wait(10)
    racks.fetch(3, 10)
    racks.fetch(2, 10)
    racks.partition().remote_replicas[2].last_caught_up_time_ms += 1
    assert racks.fetch(-1, 5, rack="r2").preferred_read_replica == 2
    racks.partition().remote_replicas[3].log_end_offset += 1
    assert racks.fetch(-1, 5, rack="r2").preferred_read_replica == 3
    racks.node.metadata.brokers.pop(3)
    assert racks.fetch(-1, 5, rack="r2").preferred_read_replica == 2


def test_S62_a_leader_in_the_readers_rack_is_never_replaced(racks):
    racks.node.metadata.brokers[2].rack = "r1"
    assert racks.fetch(-1, 5, rack="r1").preferred_read_replica == -1


def test_S62_without_the_selector_everybody_reads_from_the_leader(leader):
    leader.lead(1, isr=[1])
    leader.node.metadata.brokers[2].rack = "r2"
    leader.append(1)
    assert leader.fetch(-1, 0, rack="r2").preferred_read_replica == -1


# What a person sees


def test_a_snapshot_tells_leader_isr_offsets_and_lags(leader):
    leader.lead(4, partitions=[0, 1], isr=[1, 2])
    leader.append(10)
    leader.fetch(2, 7, replica_epoch=12)
    leader.wait(100)
    status = describe(leader.manager)
    first = status.partitions[0]
    assert (first.leader_id, first.leader_epoch, first.isr, first.pending_isr) == (
        1,
        4,
        (1, 2),
        None,
    )
    assert (first.log_end_offset, first.high_watermark) == (10, 7)
    two, three = first.followers
    assert (two.log_end_offset, two.lag, two.in_isr, two.broker_epoch) == (7, 3, True, 12)
    assert (three.log_end_offset, three.lag, three.in_isr, three.caught_up_ms_ago) == (
        -1,
        -1,
        False,
        -1,
    )
    assert (status.leader_count, status.under_replicated_partitions) == (2, 2)
    leader.lead(5, leader=2, partitions=[1])
    status = describe(leader.manager)
    assert (status.partition_count, status.leader_count) == (2, 1)
    assert status.partitions[1].followers == () and status.partitions[1].isr == ()
