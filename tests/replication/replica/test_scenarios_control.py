"""Scenarios of control requests with fetchers attached, and of a failing disk (S21, S65 to S67, S87).

The fields and errors of each request are tested in tests/apis/test_replica_control.py.
"""

from __future__ import annotations

import pytest
from follower_rig import Rig
from leader_rig import Leader

from kwire.protocol.errors import ErrorCode
from kwire.replication.core.events import Event
from kwire.replication.core.log_store import PartitionFault
from kwire.replication.log_dirs import periodic
from kwire.replication.replica.fetch_data import FetchParams, FetchPartition
from kwire.replication.replica.status import describe


def fetcher_keys(node):
    return {key for fetcher in node.fetchers.fetchers.values() for key in fetcher.states}


def test_S21_stop_replica_answers_who_waits_and_leaves_nothing_behind():
    # given ISR {1,2,3}, a record that 3 has not fetched, long polls of 2 and of a consumer
    leader = Leader()
    leader.lead(1)
    done = leader.produce()
    assert leader.fetch(2, 1, wait_ms=500) is None
    assert leader.fetch(-1, 0, wait_ms=500) is None
    # when the partition is stopped and deleted
    assert leader.node.stop() == 0
    assert [r.error for r in done] == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
    assert [d.error for d in leader.answers] == [ErrorCode.NOT_LEADER_OR_FOLLOWER] * 2
    status = describe(leader.manager)
    assert (status.waiting_fetches, status.waiting_produces, status.partition_count) == (0, 0, 0)


def test_S65_an_unknown_leader_is_followed_once_it_is_known():
    # given a leader 9 that no UpdateMetadata has named
    rig = Rig(2)
    rig.lead(1, 3, to=[1, 2])
    rig.nodes[9] = rig.nodes.pop(1)
    before = rig[2].partition()
    state = (before.leader_id, before.leader_epoch, before.partition_epoch)
    # when LE 4 names it, then 0, and nothing has changed, not even the fetcher of leader 1
    from kwire.protocol.schemas.control_plane import (
        LeaderAndIsrPartitionState,
        LeaderAndIsrRequest,
        LeaderAndIsrTopicState,
    )

    def order(epoch, leader):
        partition = LeaderAndIsrPartitionState(
            partition_index=0, leader=leader, leader_epoch=epoch, partition_epoch=epoch,
            replicas=[9, 2], isr=[9],
        )  # fmt: skip
        named = LeaderAndIsrTopicState(
            topic_name="t", topic_id=before.topic_id, partition_states=[partition]
        )
        response = rig[2].manager.become_leader_or_follower(
            LeaderAndIsrRequest(topic_states=[named])
        )
        return response.topics[0].partition_errors[0].error_code

    for leader in (9, -1):
        assert order(4, leader) == 0
        now = rig[2].partition()
        assert (now.leader_id, now.leader_epoch, now.partition_epoch) == state
        assert rig[2].state().current_leader_epoch == 3
    # when 9 is known, LE 5 is obeyed
    rig.metadata()
    assert order(5, 9) == 0
    assert (rig[2].partition().leader_id, rig[2].partition().leader_epoch) == (9, 5)
    assert rig[2].state().current_leader_epoch == 5
    assert {leader for leader, _ in rig[2].fetchers.fetchers} == {9}


def test_S66_a_leader_elected_again_keeps_its_followers_and_who_waits():
    # given LE 1, ISR {1,2}, 2 at 3 of 4
    leader = Leader()
    leader.lead(1, replicas=[1, 2])
    for _ in range(3):
        leader.append(1)
    done = leader.produce()
    leader.fetch(2, 3)
    # when LE 2 names it again
    leader.lead(2, replicas=[1, 2])
    # then what 2 has is known still, the epoch begins at 4, the produce waits on
    assert leader.partition().remote_replicas[2].log_end_offset == 3
    assert leader.partition().leader_epoch_start_offset == 4
    assert leader.node.epochs() == [(1, 0), (2, 4)]
    assert done == [] and leader.ends() == (3, 4)
    leader.fetch(2, 4)
    assert [r.error for r in done] == [0]


def test_roles_and_fetchers_agree_after_every_order():
    rig = Rig(2)
    rig.lead(1, 0, partitions=[0, 1])
    assert fetcher_keys(rig[1]) == set() and fetcher_keys(rig[2]) == {("t", 0), ("t", 1)}
    rig.lead(2, 1, partitions=[0])
    assert fetcher_keys(rig[1]) == {("t", 0)} and fetcher_keys(rig[2]) == {("t", 1)}
    rig.lead(2, 2, partitions=[1])
    assert fetcher_keys(rig[1]) == {("t", 0), ("t", 1)} and rig[2].fetchers.fetchers == {}
    # StopReplica ends the following, whether the log is kept or not
    assert rig[1].manager.fetchers is rig[1].fetchers
    rig[1].stop(delete=False)
    assert fetcher_keys(rig[1]) == {("t", 1)}
    rig[1].stop(index=1)
    assert rig[1].fetchers.fetchers == {}


def test_a_broker_that_shuts_down_follows_nothing_and_answers_nobody():
    leader = Leader()
    leader.manager.start()
    leader.lead(1)
    done = leader.produce()
    leader.fetch(2, 0)
    assert leader.fetch(2, 1, wait_ms=500) is None
    leader.manager.shut_down()
    leader.wait(120_000)
    assert done == [] and leader.answers == [] and leader.peers.asked == []
    status = describe(leader.manager)
    assert (status.waiting_fetches, status.waiting_produces) == (0, 0)


# S87 for a single partition, by a fault that a test asks for; directories are in test_scenarios_log_dirs.py.


class BrokenFile:
    """A file with a fault that a test has asked for."""

    def __init__(self, file):
        self._file = file

    def __getattr__(self, name):
        if name in ("append", "read", "read_into"):
            raise PartitionFault(5, "Input/output error")
        return getattr(self._file, name)


def break_disk(node, index=0):
    log = node.log(index=index)
    segment = log.active
    segment._file = BrokenFile(segment._file)
    return log


@pytest.mark.parametrize("touch", ["append", "read"])
def test_S87_a_partition_whose_log_fails_is_offline_and_the_others_go_on(touch):
    leader = Leader()
    lost = []
    leader.manager.on_partition_lost = lambda: lost.append(1)
    heard, gone = [], []
    leader.manager.offline_listeners.append(lambda key, reason: gone.append((key, reason)))
    leader.manager.role_listeners.append(lambda p, leads: heard.append((p.key, leads)))
    leader.lead(1, partitions=[0, 1])
    leader.append(1)
    waiting = leader.produce()
    leader.fetch(2, 2, wait_ms=500)
    broken = break_disk(leader.node)
    # when it is appended to, or read
    if touch == "append":
        result = leader.node.produce(1)
        assert result.error == ErrorCode.KAFKA_STORAGE_ERROR
    else:
        assert leader.fetch(3, 0).error == ErrorCode.KAFKA_STORAGE_ERROR
    # then it is 56 for everybody at once, and who waits hears in the next tick
    assert leader.fetch(-1, 0).error == ErrorCode.KAFKA_STORAGE_ERROR
    leader.wait(0)
    assert [r.error for r in waiting] == [ErrorCode.KAFKA_STORAGE_ERROR]
    assert heard == [(("t", 0), True), (("t", 1), True), (("t", 0), False)]
    assert [key for key, _ in gone] == [("t", 0)] and "Input/output error" in gone[0][1]
    (offline,) = leader.logged.of(Event.REPLICA_OFFLINE)
    assert (offline["topic"], offline["partition"]) == ("t", 0)
    assert describe(leader.manager).offline_replica_count == 1
    # LeaderAndIsr, old or new, does not make it anew
    with pytest.raises(AssertionError, match="56"):
        leader.lead(2)
    assert leader.node.log_manager.get("t", 0) is broken
    assert lost == [1]
    # and t-1 is as before
    assert leader.node.produce(1, index=1).error == 0
    assert leader.fetch(2, 0, index=1).error == 0


def test_S87_a_partition_that_goes_offline_while_a_fetch_is_served_is_answered_so():
    leader = Leader()
    leader.lead(1, partitions=[0, 1])
    leader.append(1)
    # given somebody who, when t-0's high watermark moves, finds that t-1 cannot be written
    leader.manager.await_replication(
        [(("t", 0), leader.manager.append_to_leader("t", 0, leader.rig.batch(1), -1))],
        1000,
        lambda: leader.manager.mark_offline(("t", 1), "it cannot be written"),
    )
    leader.fetch(3, 2)
    # when a follower fetches both
    answers = []
    params = FetchParams(replica_id=2, max_wait_ms=0, min_bytes=1, fetch_only_leader=True)
    asked = [(("t", index), FetchPartition(2 if index == 0 else 0, 1 << 20)) for index in (0, 1)]
    for _, each in asked:
        each.log_start_offset = 0
    leader.manager.fetch_records(params, asked, answers.extend)
    assert [each.error for each in answers] == [0, ErrorCode.KAFKA_STORAGE_ERROR]


def test_S87_retention_leaves_the_log_of_an_offline_replica_as_it_is():
    leader = Leader()
    leader.lead(1, partitions=[0, 1])
    asked = []
    for index in (0, 1):
        log = leader.node.log(index=index)
        log.apply_retention = lambda index=index: iter([asked.append(index)])
    leader.manager.mark_offline(("t", 0), "its log has a fault")
    for _ in periodic._delete_old_segments(leader.node.log_manager):
        pass
    assert asked == [1]


def test_S87_an_epoch_that_cannot_be_written_is_not_led():
    leader = Leader()
    leader.lead(1)

    def fail(*_, **__):
        raise OSError(5, "Input/output error")

    leader.node.store.write_file = fail
    with pytest.raises(AssertionError, match="56"):
        leader.lead(2)
    assert leader.fetch(-1, 0).error == ErrorCode.KAFKA_STORAGE_ERROR


def test_an_epoch_is_in_the_file_with_its_first_record_and_a_broker_that_starts_writes_none():
    leader = Leader()
    leader.lead(1)
    assert not leader.node.store.exists("t-0/leader-epoch-checkpoint")
    assert leader.node.produce(1).error == 0
    assert leader.node.store.read_file("t-0/leader-epoch-checkpoint") == b"0\n1\n1 0\n"
    leader.lead(2)
    assert leader.node.store.read_file("t-0/leader-epoch-checkpoint") == b"0\n2\n1 0\n2 1\n"


def test_an_order_that_is_older_by_its_partition_epoch_does_not_end_the_following():
    rig = Rig(2)
    rig.partition_epoch = 5
    rig.lead(1, 1)
    rig.partition_epoch = 2
    rig.lead(2, 2, to=[2])
    assert not rig[2].partition().is_leader and fetcher_keys(rig[2]) == {("t", 0)}
