"""The leader's arithmetic: caught-up rule, ISR, high watermark. Scenarios by their number in the design."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from kwire.protocol.errors import ErrorCode, KafkaError
from kwire.protocol.record_builder import build_batch
from kwire.protocol.records import Record
from kwire.replication.core.clock import Clock, Timers
from kwire.replication.core.log_config import LogConfig
from kwire.replication.core.memory_log_store import MemoryLogStore
from kwire.replication.log.loader import LogContext, create_log
from kwire.replication.log.log import AppendOrigin
from kwire.replication.replica.fetch_data import FetchParams, FetchPartition
from kwire.replication.replica.isr import CommittedIsr, PendingExpandIsr, PendingShrinkIsr
from kwire.replication.replica.partition import Partition


class Leader:
    """Broker 1, leader of a partition with followers; `config` is the log's."""

    node_id = 1
    hw_ignores_min_isr = False
    replica_lag_time_max_ms = 30_000

    def __init__(self, replicas=(1, 2), isr=(1, 2), epoch=1, **config):
        self.clock = Clock(0, 0)
        self.dead = set()
        self.proposals = []
        self.config = LogConfig(**config)
        log = self.open_log("t", 0, b"i" * 16, False)
        self.partition = Partition("t", 0, b"i" * 16, self, log)
        self.lead(replicas, isr, epoch)

    def open_log(self, topic, index, topic_id, is_new):
        context = LogContext(MemoryLogStore(), self.clock, Timers())
        return create_log(context, topic, index, topic_id, self.config)

    def is_alive(self, broker_id):
        return broker_id not in self.dead

    def propose_isr(self, partition):
        self.proposals.append(partition.isr_state)

    def lead(self, replicas, isr, epoch, partition_epoch=1):
        state = SimpleNamespace(
            controller_epoch=0,
            leader=1,
            leader_epoch=epoch,
            isr=list(isr),
            partition_epoch=partition_epoch,
            replicas=list(replicas),
            adding_replicas=[],
            removing_replicas=[],
            is_new=False,
        )
        return self.partition.make_leader(state, b"i" * 16)

    def follow(self, leader, epoch, partition_epoch):
        state = SimpleNamespace(
            controller_epoch=0,
            leader=leader,
            leader_epoch=epoch,
            isr=[leader],
            partition_epoch=partition_epoch,
            replicas=[1, 2],
            adding_replicas=[],
            removing_replicas=[],
            is_new=False,
        )
        return self.partition.make_follower(state, b"i" * 16)

    def append(self, count, acks=1):
        batch = build_batch([Record(-1, 0, None, b"v")] * count)
        self.partition.append_records_to_leader(batch, acks, AppendOrigin.CLIENT)

    def fetch(self, follower, offset, at=None, **params):
        if at is not None:
            self.clock.now_ms = at
        return self.partition.update_follower_fetch_state(
            FetchPartition(offset, 1000, log_start_offset=0),
            FetchParams(replica_id=follower, **params),
        )

    @property
    def high_watermark(self):
        return self.partition.log.high_watermark


def test_S46_caught_up_rule():
    leader = Leader()
    leader.append(10)
    leader.fetch(2, 5, at=5000)
    leader.append(5)
    leader.fetch(2, 10, at=10_001)
    follower = leader.partition.remote_replicas[2]
    assert (follower.last_caught_up_time_ms, follower.log_end_offset) == (5000, 10)
    leader.clock.now_ms = 35_000
    assert not leader.partition.maybe_shrink_isr()
    leader.clock.now_ms = 35_001
    assert leader.partition.maybe_shrink_isr()


def test_S46_a_new_leader_gives_isr_members_the_whole_lag_time():
    """The first fetch of a follower that is behind says nothing about the time before it."""
    leader = Leader()
    leader.append(10)
    leader.fetch(2, 5, at=10)
    assert leader.partition.remote_replicas[2].last_caught_up_time_ms == 0
    leader.clock.now_ms = 30_000
    assert not leader.partition.maybe_shrink_isr()
    leader.clock.now_ms = 30_001
    assert leader.partition.maybe_shrink_isr()


def test_S47_a_follower_at_the_end_is_never_late_however_silent():
    leader = Leader()
    leader.append(3)
    leader.fetch(2, 3, at=10)
    leader.clock.now_ms = 10_000_000
    assert not leader.partition.maybe_shrink_isr()
    leader.append(1)
    assert leader.partition.maybe_shrink_isr()


def test_S48_expand():
    leader = Leader(isr=(1,))
    leader.dead.add(2)
    leader.append(10)
    assert leader.high_watermark == 10
    leader.dead.clear()
    leader.fetch(2, 3)
    assert leader.proposals == []
    leader.fetch(2, 10)
    (proposal,) = leader.proposals
    assert proposal == PendingExpandIsr(frozenset({1}), 2)
    assert proposal.proposed == proposal.maximal_isr == {1, 2}
    assert leader.partition.isr == {1}
    leader.partition.commit_isr(proposal, 1, 2, [1, 2])
    assert leader.partition.isr_state == CommittedIsr(frozenset({1, 2}))
    assert leader.partition.partition_epoch == 2


def test_S49_a_joiner_must_have_reached_the_leaders_first_offset():
    leader = Leader(isr=(1, 2), epoch=8)
    leader.append(5)
    leader.lead((1, 2), (1,), 10, partition_epoch=2)
    leader.partition.log.update_high_watermark(0)
    leader.append(2)
    leader.partition.log.update_high_watermark(0)
    assert leader.partition.leader_epoch_start_offset == 5
    for offset in (0, 1, 4):
        leader.fetch(2, offset)
        leader.partition.log.update_high_watermark(0)
    assert leader.proposals == []
    leader.fetch(2, 5)
    assert len(leader.proposals) == 1


def test_S50_shrink_counts_the_late_until_the_controller_agrees():
    leader = Leader((1, 2, 3), (1, 2, 3))
    leader.append(10)
    leader.fetch(2, 10)
    leader.clock.now_ms = 30_001
    leader.fetch(2, 10)
    assert leader.partition.maybe_shrink_isr()
    (proposal,) = leader.proposals
    assert proposal == PendingShrinkIsr(frozenset({1, 2, 3}), frozenset({3}))
    assert proposal.maximal_isr == {1, 2, 3} and proposal.proposed == {1, 2}
    assert leader.high_watermark == 0
    assert leader.partition.commit_isr(proposal, 1, 2, [1, 2])
    assert leader.high_watermark == 10


def test_S50_a_member_that_is_no_replica_any_more_is_late():
    leader = Leader(replicas=(1, 2), isr=(1, 2, 3))
    leader.append(2)
    leader.fetch(2, 2)
    assert leader.partition.maybe_shrink_isr()
    assert leader.proposals == [PendingShrinkIsr(frozenset({1, 2, 3}), frozenset({3}))]


def test_S50_nobody_is_taken_out_while_another_change_is_pending():
    leader = Leader((1, 2, 3), (1, 3))
    leader.fetch(2, 0, at=30_001)
    (proposal,) = leader.proposals
    leader.append(1)
    leader.clock.now_ms = 100_000
    assert not leader.partition.maybe_shrink_isr()
    assert leader.partition.isr_state is proposal


def test_S51_the_high_watermark_stands_still_under_min_isr():
    leader = Leader((1, 2, 3), (1, 2), min_insync_replicas=3)
    leader.append(10)
    leader.fetch(2, 10)
    leader.fetch(3, 10)
    assert leader.high_watermark == 0
    (proposal,) = leader.proposals
    assert leader.partition.commit_isr(proposal, 1, 2, [1, 2, 3])
    assert leader.high_watermark == 10


def test_S52_who_is_about_to_join_is_waited_for():
    leader = Leader(isr=(1,))
    leader.append(10)
    leader.fetch(2, 10)
    leader.append(2)
    assert leader.high_watermark == 10
    leader.dead.add(2)
    leader.partition.reject_isr(leader.proposals[0], ErrorCode.INELIGIBLE_REPLICA)
    assert leader.partition.maybe_increment_high_watermark()
    assert leader.high_watermark == 12


@pytest.mark.parametrize(
    ("error", "still_pending", "again"),
    [
        *((code, True, False) for code in (95, 74, 3, 100, 42, 108)),
        *((code, False, False) for code in (107, 55)),
        *((code, True, True) for code in (-1, 13)),
    ],
)
def test_S53_a_refused_proposal(error, still_pending, again):
    leader = Leader(isr=(1,))
    leader.fetch(2, 0)
    (proposal,) = leader.proposals
    assert leader.partition.reject_isr(proposal, ErrorCode(error)) is again
    assert (leader.partition.isr_state is proposal) is still_pending
    leader.fetch(2, 0)
    assert len(leader.proposals) == (1 if still_pending else 2)


def test_S53_an_answer_to_a_proposal_that_was_taken_back_changes_nothing():
    leader = Leader(isr=(1,))
    leader.fetch(2, 0)
    (proposal,) = leader.proposals
    leader.partition.reject_isr(proposal, ErrorCode.INELIGIBLE_REPLICA)
    assert not leader.partition.commit_isr(proposal, 1, 2, [1, 2])
    assert leader.partition.isr == {1} and leader.partition.partition_epoch == 1


def test_S54_leader_and_isr_ends_a_pending_proposal():
    leader = Leader(isr=(1,))
    leader.fetch(2, 0)
    (proposal,) = leader.proposals
    leader.fetch(2, 0)
    assert len(leader.proposals) == 1
    leader.lead((1, 2), (1,), 2, partition_epoch=2)
    assert leader.partition.isr_state == CommittedIsr(frozenset({1}))
    leader.partition.commit_isr(proposal, 1, 3, [1, 2])
    assert leader.partition.isr == {1}
    assert not leader.partition.reject_isr(proposal, ErrorCode.UNKNOWN_SERVER_ERROR)


def test_S16_the_incarnation_that_fetched_last_is_known_if_it_said_so():
    leader = Leader()
    for epoch in (
        7,
        -1,
        8,
    ):  # -1: of a broker that was downgraded, say; proposals then leave it open
        leader.fetch(2, 0, replica_epoch=epoch)
        assert leader.partition.remote_replicas[2].broker_epoch == epoch


def test_a_replica_that_never_fetched_is_late_even_when_the_clock_begins_at_zero():
    leader = Leader(isr=(1,))
    leader.append(4)
    assert leader.high_watermark == 4


def test_S56_a_committed_append_reports_a_shrunken_isr():
    leader = Leader(min_insync_replicas=2)
    leader.append(1)
    partition = leader.partition
    assert partition.replication_outcome(1) is None
    leader.fetch(2, 1)
    assert partition.replication_outcome(1) is ErrorCode.NONE
    partition.isr_state = CommittedIsr(frozenset({1}))
    assert partition.replication_outcome(1) is ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
    partition.is_leader = False
    assert partition.replication_outcome(1) is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_S56_a_member_that_is_only_proposed_does_not_count_for_min_isr():
    leader = Leader(isr=(1,), min_insync_replicas=2)
    leader.fetch(2, 0)
    assert leader.partition.isr_state.maximal_isr == {1, 2}
    with pytest.raises(KafkaError) as raised:
        leader.append(1, acks=-1)
    assert raised.value.code is ErrorCode.NOT_ENOUGH_REPLICAS
    assert leader.partition.log.log_end_offset == 0


def test_S63_a_partition_follows_orders_by_their_partition_epoch():
    leader = Leader(epoch=3)
    assert leader.follow(2, 4, 4)
    assert not leader.follow(3, 5, 3)
    assert (leader.partition.leader_id, leader.partition.leader_epoch) == (2, 4)
    assert not leader.follow(2, 4, 5)  # the epoch is known: nobody has to be told
    assert leader.partition.partition_epoch == 5


def test_who_follows_appends_for_its_leader_only_and_who_leads_for_clients_only():
    leader = Leader()
    batch = build_batch([Record(-1, 0, None, b"v")])
    with pytest.raises(KafkaError) as raised:
        leader.partition.append_records_to_follower(batch, 1)
    assert raised.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
    leader.follow(2, 2, 2)
    with pytest.raises(KafkaError) as raised:
        leader.append(1)
    assert raised.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert leader.partition.log.log_end_offset == 0


def test_a_leader_whose_followers_are_taken_away_has_committed_everything():
    leader = Leader()
    leader.append(3)
    assert leader.high_watermark == 0
    leader.lead((1,), (1,), 2, partition_epoch=2)
    assert leader.high_watermark == 3


def test_without_followers_what_is_appended_is_committed():
    leader = Leader((1,), (1,), min_insync_replicas=5)
    leader.append(3)
    assert leader.high_watermark == 3


def test_min_isr_is_never_more_than_there_are_replicas():
    leader = Leader(min_insync_replicas=3)
    leader.append(1)
    leader.fetch(2, 1)
    assert leader.high_watermark == 1


def test_a_proposed_member_counts_even_when_it_falls_silent():
    leader = Leader(isr=(1,))
    leader.append(10)
    leader.fetch(2, 10, at=0)
    assert len(leader.proposals) == 1
    leader.clock.now_ms = 100_000
    leader.append(1)
    assert leader.high_watermark == 10


def test_S12_divergence_table():
    leader = Leader(epoch=0)
    for epoch, count in ((0, 2), (3, 6), (4, 5), (7, 1), (9, 3)):
        batch = build_batch([Record(-1, 0, None, b"v")] * count)
        leader.partition.log.append_as_leader(batch, epoch)
    leader.lead((1, 2), (1, 2), 10, partition_epoch=2)
    entries = [tuple(e) for e in leader.partition.log.leader_epochs.entries]
    assert entries == [(0, 0), (3, 2), (4, 8), (7, 13), (9, 14), (10, 17)]

    def fetch(offset, epoch):
        request = FetchPartition(offset, 1000, last_fetched_epoch=epoch)
        params = FetchParams(replica_id=2)
        return leader.partition.read(request, params, 1000, True).diverging_epoch

    assert fetch(5, 2) == (0, 2)
    assert fetch(4, 0) == (0, 2)
    assert fetch(6, 6) == (4, 13)
    assert fetch(9, 5) == (4, 13)
    assert fetch(18, 10) == (10, 17)
    for offset, epoch in ((2, 0), (14, 7), (17, 9), (17, 10)):
        assert fetch(offset, epoch) is None
    with pytest.raises(KafkaError) as raised:
        fetch(5, 11)
    assert raised.value.code is ErrorCode.OFFSET_OUT_OF_RANGE


def test_coordinators_read_what_the_in_sync_replicas_had_before_this_leadership():
    """Under min ISR the high watermark stands still; what was there before the epoch cannot be lost by an election."""
    leader = Leader(replicas=(1, 2, 3), isr=(1,), min_insync_replicas=2)
    leader.append(5)
    assert (leader.high_watermark, leader.partition.settled_offset()) == (0, 0)
    leader.lead((1, 2, 3), [1], epoch=2, partition_epoch=2)
    leader.append(2)
    assert (leader.high_watermark, leader.partition.settled_offset()) == (0, 5)
    leader.lead((1, 2, 3), [1, 2, 3], epoch=3, partition_epoch=3)
    leader.fetch(2, 6)
    leader.fetch(3, 3)
    assert (leader.high_watermark, leader.partition.settled_offset()) == (3, 3)
    leader.fetch(3, 7)
    assert (leader.high_watermark, leader.partition.settled_offset()) == (6, 6)
