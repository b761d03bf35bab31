"""Fetchers: when they send requests, the requests' contents, and the callbacks."""

from __future__ import annotations

from random import Random

import pytest
from follower_rig import Rig
from log_harness import check_invariants

from kwire.protocol.schemas.fetch import EpochEndOffset
from kwire.replication.core.events import Event
from kwire.replication.fetcher.fetcher import ABANDON_MS
from kwire.replication.fetcher.manager import fetcher_id_of
from kwire.replication.fetcher.state import Meter, PartitionFetchState, Phase
from kwire.replication.log.checkpoints import read_offsets
from kwire.replication.log.truncation import apply_leader_offsets
from kwire.replication.replica.fetch_data import FetchParams, FetchPartition
from kwire.replication.replica.fetch_session import FetchSessionCache

T = ("t", 0)
MOVES = {
    (Phase.TRUNCATING, Phase.FETCHING),
    (Phase.OUT_OF_RANGE, Phase.FETCHING),
    (Phase.FETCHING, Phase.FETCHING),
    (Phase.FETCHING, Phase.OUT_OF_RANGE),
}


@pytest.mark.parametrize("before", Phase)
@pytest.mark.parametrize("after", Phase)
def test_a_followed_partition_changes_its_phase_as_the_table_says(before, after):
    rig = Rig()
    rig.lead(1, 0)
    state = PartitionFetchState(rig[2].partition(), before, 5, -1)
    if (before, after) in MOVES:
        state.move(after)
        assert state.phase is after and after.value in repr(state)
    else:
        with pytest.raises(AssertionError, match=f"{before.value} -> {after.value}"):
            state.move(after)
        assert state.phase is before


def test_the_next_fetch_leaves_in_the_step_that_processes_an_answer():
    rig = Rig()
    rig.lead(1, 0)
    rig.run()
    for number in range(5):
        rig[1].produce(1)
        rig.answer_one()
        assert rig[2].ends()[2] == number + 1
        (effect,) = rig[2].outbox.effects
        assert effect.channel == "fetcher-0"


def test_the_fields_of_a_fetch():
    rig = Rig(
        settings={"replica.fetch.max.bytes": "1000", "replica.fetch.response.max.bytes": "5000"}
    )
    rig.history([1, 2], (3, 2))
    rig.lead(1, 4)
    rig.run()
    _, header, request = rig.sent[0]
    assert (header.api_key, header.api_version, header.client_id) == (1, 17, "broker-2")
    assert request.replica_state.replica_id == 2
    assert request.replica_state.replica_epoch == rig[2].manager.broker_epoch > 0
    assert (request.max_wait_ms, request.min_bytes, request.max_bytes) == (500, 1, 5000)
    (partition,) = request.topics[0].partitions
    assert (partition.current_leader_epoch, partition.last_fetched_epoch) == (4, 3)
    assert (partition.fetch_offset, partition.log_start_offset) == (2, 0)
    assert partition.partition_max_bytes == 1000
    assert rig[1].partition().remote_replicas[2].broker_epoch == request.replica_state.replica_epoch


def test_without_topic_ids_fetches_go_by_name():
    rig = Rig()
    rig.lead(1, 0, id_=bytes(16))
    rig[1].produce(1)
    rig.run()
    _, header, request = rig.sent[0]
    assert header.api_version == 12 and request.replica_id == 2
    assert rig[2].content() == rig[1].content() != []


def test_a_fetcher_without_partitions_sends_nothing():
    rig = Rig()
    rig.lead(1, 0)
    rig.wait(600)
    rig[2].fetchers.remove([T])
    rig.wait(600)  # the fetch under way ends
    sent = len(rig.sent)
    rig.wait(60_000)
    assert len(rig.sent) == sent
    assert (1, 0) in rig[2].fetchers.fetchers
    rig[2].fetchers.close_idle()
    assert not rig[2].fetchers.fetchers
    rig.run()
    assert not rig.wires


def test_partitions_added_by_one_order_share_a_request():
    rig = Rig()
    rig.lead(1, 0, partitions=range(20))
    rig.run()
    assert len(rig.requests()) == 1 and len(rig.requests()[0].topics[0].partitions) == 20


def test_an_added_partition_does_not_wait_for_a_parked_fetch():
    rig = Rig()
    rig.lead(1, 0, topic="a")
    rig.wait(600)
    rig.lead(1, 0, topic="b")
    rig[1].produce(1, topic="b")
    rig.run()
    assert rig[2].ends("b") == (0, 0, 0)
    rig.wait(ABANDON_MS)
    assert rig[2].ends("b")[2] == 1
    assert rig.connections == 2
    assert len(rig[1].services.fetch_sessions) == 1  # the old one was ended
    # The high watermark of "a" is not lost with the answer that nobody waited for.
    rig[1].produce(1, topic="a")
    rig.wait(1000)
    assert rig[2].ends("a") == rig[1].ends("a") == (0, 1, 1)


def test_an_added_partition_takes_the_next_fetch_when_one_is_answered_in_time():
    rig = Rig()
    rig.lead(1, 0, topic="a")
    rig.wait(600)
    rig.lead(1, 0, topic="b")
    rig[1].produce(1, topic="b")
    rig[1].produce(1, topic="a")
    rig.wait(100)
    assert rig[2].ends("b")[2] == rig[2].ends("a")[2] == 1
    assert rig.connections == 1


def test_without_close_idle_an_added_partition_is_fetched_in_the_next_tick():
    rig = Rig()
    rig.lead(1, 0, to=[1])
    rig.lead(1, 0, to=[2])
    rig.wait(600)
    rig[2].fetchers.remove([T])
    rig.wait(600)
    rig[1].produce(1)
    rig[2].fetchers.add_follower(rig[2].partition())
    rig.run()
    assert rig[2].ends()[2] == 0
    rig.wait(0)
    assert rig[2].ends()[2] == 1


def test_a_delayed_partition_is_not_held_up_by_the_others():
    rig = Rig()
    rig.lead(1, 0, topic="a")
    rig.wait(600)
    rig.lead(1, 1, topic="b", to=[2])  # the leader does not know yet
    rig.wait(6)
    assert rig[2].state("b").delay_until_ms is not None
    rig.lead(1, 1, topic="b", to=[1])
    rig[1].produce(1, topic="b")
    rig.wait(50)
    assert rig[2].ends("b")[2] == 1


def test_a_topic_unknown_to_the_leader_does_not_delay_the_others():
    rig = Rig()
    rig.lead(1, 0, topic="a")
    rig.wait(600)
    before = rig[1].metadata
    rig[1].services.metadata = rig[1].manager.metadata = type(before)()  # of before the topic
    rig.lead(1, 0, topic="b", to=[2])
    rig.wait(20)
    assert "fetch(0,-1) error 100" in rig.talk
    rig[1].services.metadata = rig[1].manager.metadata = before
    rig.lead(1, 0, topic="b", to=[1])
    rig[1].produce(1, topic="b")
    rig.wait(50)
    assert rig[2].ends("b")[2] == 1


def test_a_request_without_a_response_times_out():
    rig = Rig()
    rig.lead(1, 0)
    rig.run()
    rig.hold = True  # answers are on their way for ever
    rig.wait(29_000)
    assert rig.connections == 1 and rig[2].state().is_ready
    rig.wait(2000)
    assert rig[2].state().delay_until_ms is not None or rig.connections == 2
    rig.hold = False
    rig[1].produce(1)
    rig.wait(2000)
    assert rig[2].ends()[2] == 1 and rig.connections == 2


def test_a_busy_link_does_not_time_out_as_long_as_it_answers():
    rig = Rig()
    rig.lead(1, 0)
    rig.wait(65_000)
    assert rig.connections == 1
    assert rig[2].logged.of(Event.LEADER_UNREACHABLE) == []


def test_a_link_without_a_request_does_not_time_out():
    rig = Rig(settings={"replica.fetch.backoff.ms": "100000"})

    def refuse(header, response):
        rig.tamper = None
        response.responses[0].partitions[0].error_code = 2

    rig.tamper = refuse
    rig.lead(1, 0)
    rig.wait(90_000)
    assert len(rig.requests()) == 1 and rig.connections == 1
    assert rig[2].logged.of(Event.LEADER_UNREACHABLE) == []


def test_an_answer_without_a_whole_batch_is_asked_for_again_after_a_backoff():
    rig = Rig()
    rig.lead(1, 0)

    def cut_short(header, response):
        for topic in response.responses:
            for data in topic.partitions:
                data.records = bytes(data.records or b"")[:30]

    rig.tamper = cut_short
    rig[1].produce(1)
    rig.run()
    assert rig[2].ends()[2] == 0 and rig[2].state().delay_until_ms is not None
    rig.tamper = None
    rig.wait(2000)
    assert rig[2].ends()[2] == 1


def test_a_dead_leader_is_tried_once_a_backoff():
    rig = Rig()
    rig.lead(1, 0)
    rig.cut_off(1)
    rig.wait(10_500)
    assert 10 <= rig[2].fetchers.fetchers[1, 0].stats.requests.total <= 12
    rig[2].config.set_dynamic({}, {})
    rig.heal()
    rig[1].produce(1)
    rig.wait(1000)
    assert rig[2].ends()[2] == 1


def test_a_dead_leader_is_logged_once_until_it_responds():
    rig = Rig()
    rig.lead(1, 0)
    rig.run()
    rig[2].logged.clear()
    for _ in range(2):
        rig.cut_off(1)
        rig.wait(10_500)
        rig.heal()
        rig[1].produce(1)
        rig.wait(2000)
    logged = [each for each in rig[2].logged.logged if each.fields.get("leader") == 1]
    assert [each.event for each in logged] == [Event.LEADER_UNREACHABLE, Event.LEADER_REACHABLE] * 2
    lost = "broker 1 cannot be fetched from, tried again: the connection was lost, or not made (1 partition)"
    again = "broker 1 is fetched from again"
    assert [each.text for each in logged] == [lost, again, lost, again]


def test_consumers_that_wait_at_a_follower_are_woken():
    rig = Rig()
    rig.lead(1, 0)
    rig.run()
    got = []
    params = FetchParams(max_wait_ms=5000, min_bytes=1)
    rig[2].manager.fetch_records(params, [(T, FetchPartition(0, 1000))], got.append)
    rig[1].produce(2)
    rig.run()
    assert not got  # there, but not committed as far as the follower knows
    rig.wait(500)
    ((data,),) = got
    assert data.high_watermark == 2 and len(data.records) > 0


def test_readers_of_a_truncated_log_are_woken():
    rig = Rig()
    rig.history([1, 2], (0, 2))
    rig[2].write((1, 3))
    rig.lead(2, 2, to=[2], replicas=[1, 2], isr=[2])
    got = []
    params = FetchParams(replica_id=-3, max_wait_ms=60_000, min_bytes=1)
    rig.lead(1, 3, isr=[1])
    rig[2].manager.fetch_records(params, [(T, FetchPartition(5, 1000))], got.append)
    rig.run()
    assert rig[2].ends()[2] == 2 and len(got) == 1


def test_a_batch_larger_than_the_limits_gets_through():
    rig = Rig(settings={"replica.fetch.max.bytes": "10", "replica.fetch.response.max.bytes": "20"})
    rig[1].write((0, 500), (0, 3), (0, 400))
    rig.lead(1, 0)
    rig.run()
    assert rig[2].ends()[2] == 903
    assert rig[2].content() == rig[1].content()


@pytest.mark.parametrize("sessions", [0, 100])
def test_many_partitions_share_the_answers_fairly(sessions):
    rig = Rig(
        settings={"replica.fetch.max.bytes": "1000", "replica.fetch.response.max.bytes": "2100"}
    )
    rig[1].services.fetch_sessions = FetchSessionCache(rig.clock, Random(1), sessions)
    for index in range(8):
        rig[1].write(*[(0, 20)] * 10, index=index)
    rig.lead(1, 0, partitions=range(8))
    for _ in range(5):
        rig.answer_one()
    ends = [rig[2].ends(index=index)[2] for index in range(8)]
    assert min(ends) > 0 and max(ends) < 200
    rig.run()
    assert [rig[2].ends(index=index)[2] for index in range(8)] == [200] * 8


def test_a_high_watermark_that_came_with_a_divergence_is_not_lost():
    rig = Rig()
    rig.history([1, 2], (0, 5))
    rig[2].write((1, 2), hw=3)
    rig.lead(1, 2, isr=[1])
    rig.wait(2000)
    assert rig.talk[0] == "fetch(7,1) div(0,5)"
    assert rig[2].ends() == rig[1].ends() == (0, 5, 5)


def test_what_the_leader_has_deleted_is_gone_with_a_divergence():
    """Other records are here in its place, which nobody may read if this follower leads next."""
    rig = Rig()
    rig.history([1, 2], (0, 5))
    rig[2].write((0, 4))
    log = rig[1].write((3, 2), hw=7)
    log.maybe_increment_log_start_offset(7)
    rig.lead(1, 4, isr=[1])
    rig.answer_one()
    assert rig.talk == ["fetch(9,0) div(0,7)"]
    assert rig[2].ends() == (7, 7, 7)
    rig.run()
    assert rig[2].ends() == rig[1].ends() == (7, 7, 7)


def test_repeated_divergence_is_answered_with_a_backoff():
    rig = Rig()
    rig.history([1, 2], (0, 5))
    rig[1].write((0, 5))  # so that the leader answers at once

    def diverging(header, response):
        for topic in response.responses:
            for data in topic.partitions:
                data.diverging_epoch = EpochEndOffset(epoch=0, end_offset=5)

    rig.tamper = diverging
    rig.lead(1, 1)
    rig.wait(10_000)
    assert 10 < len(rig.sent) < 30
    assert rig[2].ends()[2] == 5


def test_repeated_errors_of_the_whole_fetch_are_answered_with_a_backoff():
    rig = Rig()
    rig[1].write((0, 5))

    def refuse(header, response):
        response.error_code = 71
        response.responses = []

    rig.tamper = refuse
    rig.lead(1, 1)
    rig.wait(10_000)
    assert 10 < len(rig.sent) < 30
    rig.tamper = None
    rig.wait(1000)
    assert rig[2].ends()[2] == 5


def test_a_new_fetcher_ends_the_session_of_the_one_before():
    rig = Rig()
    for number in range(5):
        rig.lead(1, number)
        rig.wait(1100)
        rig[2].fetchers.remove([T])
        rig[2].fetchers.close_idle()
    assert len(rig[1].services.fetch_sessions) == 1


def test_a_log_start_beyond_the_followers_end_is_left_to_the_out_of_range_procedure():
    rig = Rig()
    log = rig[2].write((0, 5), hw=2)
    assert apply_leader_offsets(log, 9, 7)
    assert rig[2].ends() == (5, 5, 5)


def test_a_log_start_moved_by_the_followers_own_retention_is_told():
    rig = Rig()
    rig.history([1, 2], (0, 5))
    rig.lead(1, 1)
    rig.wait(1000)
    rig[2].log().maybe_increment_log_start_offset(3)
    rig.wait(1100)
    assert rig[1].partition().remote_replicas[2].log_start_offset == 3


def test_truncations_are_counted_told_and_noted_on_disk():
    rig = Rig()
    rig.history([1, 2], (0, 2))
    rig[2].write((1, 3))
    log = rig[2].log()
    log.flush()
    rig[2].log_manager.checkpoint_recovery_points(flush=True)
    rig.lead(1, 2)
    rig.run()
    (event,) = rig[2].fetchers.metrics().truncations
    assert (event.topic, event.from_offset, event.to_offset, event.high_watermark) == ("t", 5, 2, 5)
    assert "epoch 0 ends at 2" in event.why
    (cut,) = rig[2].logged.of(Event.LOG_TRUNCATED_BELOW_HIGH_WATERMARK)
    assert (cut["previous_log_end_offset"], cut["log_end_offset"], cut["high_watermark"]) == (
        5,
        2,
        5,
    )
    (text,) = [line for line in rig[2].logged.texts if "cut" in line]
    assert text.startswith("t-0 cut from 5 to 2, below its high watermark 5:")
    assert rig[2].cut_logs == [("t-0", 2)]
    assert read_offsets(rig[2].store, "recovery-point-offset-checkpoint") == {T: 2}


def test_a_truncation_to_the_high_watermark_is_an_ordinary_one():
    rig = Rig()
    rig.history([1, 2], (0, 2))
    rig[2].write((1, 3), hw=2)
    rig.lead(1, 2)
    rig.run()
    (cut,) = rig[2].logged.of(Event.LOG_TRUNCATED)
    assert (cut["log_end_offset"], cut["high_watermark"]) == (2, 2)
    assert rig[2].logged.of(Event.LOG_TRUNCATED_BELOW_HIGH_WATERMARK) == []


def test_a_log_that_restarts_before_its_end_tells_its_recovery_point():
    """The leader's log start is inside its first batch; a recovery must see all that is appended below."""
    rig = Rig()
    rig[1].write((0, 10)).maybe_increment_log_start_offset(5)
    rig[2].log().truncate_fully_and_start_at(5)
    rig[2].log().flush()
    rig[2].log_manager.checkpoint_recovery_points(flush=True)
    assert read_offsets(rig[2].store, "recovery-point-offset-checkpoint") == {T: 5}
    rig.lead(1, 1)
    rig.run()
    assert rig[2].ends() == (5, 10, 10)
    assert read_offsets(rig[2].store, "recovery-point-offset-checkpoint") == {T: 0}


def test_an_answer_that_meets_a_disk_that_has_just_failed_is_not_written():
    rig = Rig()
    rig.lead(1, 0)
    rig.wait(600)
    log = rig[2].partition().log
    rig[1].produce(1)
    manager = rig[2].manager.log_manager
    manager.fail(manager.directory_of(log), "a test")
    rig.answer_one()
    assert log.log_end_offset == 0
    rig.wait(1000)
    assert (
        not rig[2].fetchers.fetchers.get((1, 0)) or T not in rig[2].fetchers.fetchers[1, 0].states
    )


def test_metrics():
    rig = Rig()
    rig[1].write((0, 10), (0, 10), index=0)
    rig.lead(1, 0, partitions=[0, 1])
    rig.hold = True
    rig.run()
    assert rig[2].fetchers.metrics().consumer_lag == {}
    rig.hold = False
    rig.wait(500)
    metrics = rig[2].fetchers.metrics()
    assert metrics.consumer_lag == {("t", 0): 0, ("t", 1): 0} and metrics.max_lag == 0
    assert set(metrics.requests_per_second) == {(1, 0)}
    assert metrics.requests_per_second[1, 0] > 0 and metrics.bytes_per_second[1, 0] > 0
    rig[1].write((0, 10), index=1)  # committed at the leader before the follower has it
    rig[2].config.set_dynamic({}, {})
    rig.wait(2)
    assert rig[2].fetchers.state(("t", 1)).lag == 0


def test_lag_is_what_is_committed_and_not_here():
    rig = Rig(settings={"replica.fetch.max.bytes": "10"})
    rig[1].write(*[(0, 5)] * 4)
    rig.lead(1, 0)
    rig.answer_one()
    assert rig[2].state().lag == 15 and rig[2].fetchers.metrics().max_lag == 15


def test_rates_look_back_a_minute():
    meter = Meter(0)
    meter.mark(10, 1000)
    assert meter.per_second(2000) == 5
    meter.mark(50, 59_999)
    assert meter.per_second(60_000) == pytest.approx(1)
    assert meter.per_second(90_000) == pytest.approx(0.5)
    assert meter.per_second(200_000) == 0
    assert meter.total == 60


def test_nothing_happens_after_the_end():
    rig = Rig()
    rig.lead(1, 0)
    rig.run()
    rig[2].fetchers.shut_down()
    rig[2].fetchers.add_follower(rig[2].partition())
    rig.run()
    sent = len(rig.sent)
    rig[1].produce(1)
    rig.wait(60_000)
    assert len(rig.sent) == sent and not rig.wires and rig[2].ends()[2] == 0


def test_fetcher_ids_are_kafkas():
    # Utils.abs(31 * "orders".hashCode() + partition) % fetchers
    assert [fetcher_id_of(("orders", p), 4) for p in range(4)] == [
        abs(31 * -1008770331 % 2**32 - (2**32 if 31 * -1008770331 % 2**32 >= 2**31 else 0) + p) % 4
        for p in range(4)
    ]
    assert {fetcher_id_of(("a", p), 3) for p in range(3)} == {0, 1, 2}


@pytest.mark.parametrize("seed", range(25))
def test_whatever_happens_all_logs_become_the_leaders(seed):
    """Elections of anyone at any time, cuts, restarts; then quiet. Logs, epochs and high watermarks are equal."""
    random = Random(seed)
    rig = Rig(3, settings={"replica.fetch.max.bytes": str(random.choice([100, 1 << 20]))})
    epoch = 0
    leader = 1
    rig.lead(1, 0)
    for _ in range(random.randrange(5, 25)):
        event = random.random()
        if event < 0.4:
            if rig[leader].partition().is_leader:
                rig[leader].produce(random.randrange(1, 4))
        elif event < 0.6:
            rig.wait(random.choice([0, 3, 30, 600, 1500]))
        elif event < 0.8:
            epoch += 1
            leader = random.randrange(1, 4)
            told = [leader, *(i for i in rig.nodes if random.random() < 0.7)]
            rig.lead(leader, epoch, to=told)
        elif event < 0.9:
            rig.cut_off(random.randrange(1, 4))
        elif event < 0.95:
            rig.heal()
        else:
            epoch += 1
            rig.restart(random.randrange(1, 4))
            rig.lead(leader, epoch)
    rig.heal()
    rig.lead(leader, epoch + 1)
    rig[leader].produce(1)
    rig.wait(10_000)
    for node in rig.nodes.values():
        assert node.content() == rig[leader].content()
        assert node.epochs() == rig[leader].epochs()
        assert node.ends() == rig[leader].ends()
        assert node.ends()[1] == node.ends()[2]
        assert not node.fetchers.failed
        check_invariants(node.log())
