"""Proposals for the ISR on their way: batches, repetitions, and what each answer does."""

from __future__ import annotations

import pytest
from leader_rig import CONTROLLER, AlterPartitionResponse, Leader

from kwire.replication.core.events import Event
from kwire.replication.replica.isr import CommittedIsr, PendingExpandIsr


@pytest.fixture
def leader():
    return Leader()


def test_a_proposal_names_members_with_the_incarnation_that_fetched(leader):
    leader.lead(isr=[1, 2])
    leader.append(3)
    leader.fetch(2, 3, replica_epoch=72)
    leader.fetch(3, 3, replica_epoch=73)
    ((node, version, request),) = leader.peers.asked
    assert (node, version) == (CONTROLLER, 3)
    own = leader.manager.broker_epoch
    assert (request.broker_id, request.broker_epoch) == (1, own)
    assert leader.asked() == {("t", 0): (1, 1, {1: own, 2: 72, 3: 73})}


def test_S53_a_repetition_names_the_incarnation_that_was_in_sync(leader):
    leader.lead(isr=[1])
    leader.append(3)
    leader.fetch(2, 3, replica_epoch=72)
    first = leader.asked()
    leader.peers.answer(None)
    leader.fetch(2, 1, replica_epoch=75)  # it has restarted, without what it had not flushed
    leader.wait(50)
    assert len(leader.peers.asked) == 2 and leader.asked() == first
    assert first["t", 0][2][2] == 72


def test_what_is_proposed_while_a_request_is_under_way_goes_together_with_the_next(leader):
    leader.lead(partitions=[0, 1, 2], isr=[1])
    for index in range(3):
        leader.fetch(2, 0, index=index)
    assert leader.peers.in_flight == 1 and list(leader.asked()) == [("t", 0)]
    leader.agree()
    assert list(leader.asked()) == [("t", 1), ("t", 2)]
    leader.agree()
    assert leader.peers.in_flight == 0 and len(leader.proposals) == 0
    assert [leader.partition(i).isr for i in range(3)] == [{1, 2}] * 3


def test_a_newer_state_takes_the_place_of_what_is_queued(leader):
    leader.lead(partitions=[0, 1], isr=[1])
    leader.fetch(2, 0, index=0)
    leader.fetch(2, 0, index=1)
    leader.lead(2, partitions=[1], isr=[1])
    leader.fetch(3, 0, index=1)
    leader.agree()
    assert {k: (epoch, set(isr)) for k, (epoch, _, isr) in leader.asked().items()} == {
        ("t", 1): (2, {1, 3})
    }


@pytest.mark.parametrize("error", [None, 77, 41, 31, -1])
def test_S53_an_answer_for_nobody_is_asked_for_again_after_50_ms(leader, error):
    leader.lead(isr=[1])
    leader.fetch(2, 0)
    first = leader.asked()
    leader.peers.answer(None if error is None else AlterPartitionResponse(error_code=error))
    leader.wait(49)
    assert len(leader.peers.asked) == 1
    leader.wait(1)
    assert len(leader.peers.asked) == 2 and leader.asked() == first
    leader.agree()
    assert leader.partition().isr == {1, 2} and len(leader.node.timers) <= 1


def test_only_a_node_that_is_no_controller_is_reported_as_unavailable(leader):
    leader.lead(isr=[1])
    leader.fetch(2, 0)
    for error in (None, 41, 77):
        leader.peers.answer(None if error is None else AlterPartitionResponse(error_code=error))
        leader.wait(50)
    assert leader.unavailable == [CONTROLLER, CONTROLLER]


def test_what_is_proposed_before_a_repetition_goes_with_it(leader):
    leader.lead(partitions=[0, 1], isr=[1])
    leader.fetch(2, 0, index=0)
    leader.peers.answer(None)
    leader.fetch(2, 0, index=1)
    assert len(leader.peers.asked) == 1
    leader.wait(50)
    assert len(leader.peers.asked) == 2 and set(leader.asked()) == {("t", 0), ("t", 1)}


def test_a_newer_state_is_sent_instead_of_one_that_the_answer_leaves_out(leader):
    leader.lead(1, isr=[1])
    leader.fetch(2, 0)
    leader.lead(2, isr=[1])
    leader.fetch(3, 0)
    leader.peers.answer(AlterPartitionResponse())
    leader.wait(50)
    assert leader.asked()["t", 0][0] == 2 and set(leader.asked()["t", 0][2]) == {1, 3}


def test_an_error_that_stays_is_told_once(leader):
    leader.lead(isr=[1])
    leader.fetch(2, 0)
    for _ in range(5):
        leader.peers.answer(AlterPartitionResponse(error_code=77))
        leader.wait(50)
    assert leader.logged.of(Event.ALTER_PARTITION_REFUSED) == [{"error": "STALE_BROKER_EPOCH"}]


def test_a_partition_that_the_answer_leaves_out_is_asked_for_again(leader):
    leader.lead(isr=[1])
    leader.fetch(2, 0)
    leader.peers.answer(AlterPartitionResponse())
    assert isinstance(leader.partition().isr_state, PendingExpandIsr)
    leader.wait(50)
    leader.agree()
    assert leader.partition().isr == {1, 2}


def test_while_there_is_no_controller_proposals_wait(leader):
    leader.controller = None
    leader.lead(isr=[1])
    leader.fetch(2, 0)
    leader.wait(120)
    assert leader.peers.asked == []
    leader.controller = CONTROLLER
    leader.wait(50)
    assert len(leader.peers.asked) == 1


def test_a_topic_without_an_id_is_named(leader):
    leader.lead(isr=[1], id_=bytes(16))
    leader.fetch(2, 0, replica_epoch=72)
    assert leader.peers.asked[0][1] == 1
    assert leader.asked() == {("t", 0): (1, 1, {1: -1, 2: -1})}
    leader.agree()
    assert leader.partition().isr == {1, 2}


def test_an_agreed_shrink_moves_the_high_watermark_and_answers_who_waits(leader):
    leader.lead(isr=[1, 2, 3])
    done = leader.produce(10, timeout_ms=60_000)
    leader.fetch(2, 10)
    leader.wait(30_001)
    leader.fetch(2, 10)
    leader.partition().maybe_shrink_isr()
    assert leader.ends() == (0, 10) and set(leader.asked()["t", 0][2]) == {1, 2}
    leader.agree()
    assert leader.ends() == (10, 10) and leader.partition().partition_epoch == 2
    assert [result.error for result in done] == [0]
    counters = leader.manager.isr_counters
    assert (counters.shrinks, counters.expands, counters.failed_updates) == (1, 0, 0)
    (shrink,) = leader.logged.of(Event.ISR_SHRINK_PROPOSED)
    assert (shrink["previous_isr"], shrink["isr"]) == ([1, 2, 3], [1, 2])
    assert any("shrinking ISR from 1,2,3 to 1,2" in line for line in leader.logged.texts)
    updated = leader.logged.last
    assert updated.event is Event.ISR_UPDATED and updated.fields["previous_isr"] == [1, 2, 3]
    assert updated.text == "t-0: ISR updated to 1,2, partition epoch 2"


@pytest.mark.parametrize("error", [95, 74, 3, 100, 42, 108])
def test_S53_out_of_date_stays_pending_and_is_not_sent_again(leader, error):
    leader.lead(isr=[1])
    leader.fetch(2, 0)
    pending = leader.partition().isr_state
    leader.refuse(error)
    leader.wait(1000)
    leader.fetch(2, 0)
    assert len(leader.peers.asked) == 1 and leader.partition().isr_state is pending
    assert leader.partition().isr == {1} and pending.maximal_isr == {1, 2}
    leader.append(5)
    assert leader.ends() == (0, 5)  # whether 2 has joined is not known: it counts
    assert leader.manager.isr_counters.failed_updates == 1
    leader.lead(2, isr=[1])
    assert leader.partition().isr_state == CommittedIsr(frozenset({1}))


@pytest.mark.parametrize("error", [107, 55])
def test_S53_S55_not_applied_is_as_before_and_may_be_proposed_again(leader, error):
    leader.lead(isr=[1])
    leader.fetch(2, 0)
    leader.refuse(error)
    assert leader.partition().isr_state == CommittedIsr(frozenset({1}))
    assert len(leader.peers.asked) == 1
    leader.fetch(2, 0)
    assert len(leader.peers.asked) == 2


@pytest.mark.parametrize("error", [-1, 13, 7777])
def test_S53_any_other_error_is_sent_again(leader, error):
    leader.lead(isr=[1])
    leader.fetch(2, 0)
    leader.refuse(error)
    leader.wait(50)
    assert len(leader.peers.asked) == 2
    leader.agree()
    assert leader.partition().isr == {1, 2}


def test_S54_an_answer_that_comes_after_a_new_leader_epoch_changes_nothing(leader):
    leader.lead(1, isr=[1])
    leader.fetch(2, 0)
    leader.lead(2, isr=[1])
    leader.agree()
    assert leader.partition().isr_state == CommittedIsr(frozenset({1}))
    assert (leader.partition().leader_epoch, leader.partition().partition_epoch) == (2, 2)
    leader.wait(1000)
    assert len(leader.peers.asked) == 1


def test_success_of_another_epoch_is_no_success(leader):
    leader.lead(isr=[1])
    leader.fetch(2, 0)
    leader.agree(leader_epoch=9)
    assert leader.partition().isr == {1} and leader.partition().isr_state.in_flight
    assert leader.manager.isr_counters.failed_updates == 1


@pytest.mark.parametrize("answer", ["agree", "lost"])
def test_a_partition_that_is_gone_is_asked_for_no_more(leader, answer):
    leader.lead(isr=[1])
    leader.fetch(2, 0)
    leader.node.stop()
    if answer == "agree":
        leader.agree()
    else:
        leader.peers.answer(None)
        leader.wait(1000)
    assert len(leader.peers.asked) == 1 and len(leader.proposals) == 0


def test_the_answer_decides_what_the_isr_is(leader):
    leader.lead(isr=[1])
    leader.fetch(2, 0)
    leader.agree(isr=[1, 2, 3], partition_epoch=7)
    assert leader.partition().isr == {1, 2, 3} and leader.partition().partition_epoch == 7
