"""Scenarios S70–S88 of the replication fact sheet, as far as the controller alone can show them.

Given a cluster, when something happens to a broker or somebody asks for something, then partitions stand like this
("leader 2 ISR [2, 3] LE 1 PE 1") and brokers were told that.
"""

from __future__ import annotations

from typing import Any

import pytest
from controller_harness import ListJournal, Simulated

from kwire.protocol.errors import ErrorCode
from kwire.protocol.schemas.configs import (
    AlterableConfig,
    AlterConfigsRequest,
    AlterConfigsResource,
)
from kwire.protocol.schemas.control_plane import (
    LeaderAndIsrRequest,
    UpdateMetadataRequest,
    UpdateMetadataResponse,
)
from kwire.protocol.schemas.topics import (
    AlterPartitionReassignmentsRequest,
    CreatableTopic,
    CreateTopicsRequest,
    ElectLeadersRequest,
    ListPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
    TopicPartitions,
)
from kwire.replication.controller.batch import FULL
from kwire.replication.core.events import Event

PREFERRED, UNCLEAN = 0, 1


def reassign(
    cluster: Simulated, replicas: list[int] | None, topic: str = "t", index: int = 0
) -> int:
    """The error code for the one partition."""
    partition = ReassignablePartition(partition_index=index, replicas=replicas)
    request = AlterPartitionReassignmentsRequest(
        topics=[ReassignableTopic(name=topic, partitions=[partition])]
    )
    response = cluster.ask(request, 0)
    return int(response.responses[0].partitions[0].error_code)


def elect(cluster: Simulated, kind: int, topic: str = "t", index: int = 0) -> int:
    request = ElectLeadersRequest(
        election_type=kind, topic_partitions=[TopicPartitions(topic=topic, partitions=[index])]
    )
    response = cluster.ask(request, 2)
    return int(response.replica_election_results[0].partition_result[0].error_code)


def set_config(cluster: Simulated, kind: int, name: str, key: str, value: str) -> Any:
    configs = [AlterableConfig(name=key, value=value)]
    resource = AlterConfigsResource(resource_type=kind, resource_name=name, configs=configs)
    return cluster.ask(AlterConfigsRequest(resources=[resource]), 2)


# Failover


def test_S70_clean_failover() -> None:
    # given AR = ISR [1,2,3]
    cluster = Simulated(1, 2, 3)
    cluster.create("t", [1, 2, 3])
    cluster.brokers.take()
    # when 1 dies
    cluster.kill(1)
    # then 2 leads, and everybody hears of it; nothing is sent to the dead
    assert cluster.state() == "leader 2 ISR [2, 3] LE 1 PE 1"
    assert cluster.brokers.words() == [
        "2 leads t-0 LE 1 PE 1 ISR [2, 3] of [1, 2, 3]",
        "3 follows 2 t-0 LE 1 PE 1 ISR [2, 3] of [1, 2, 3]",
        "2 metadata t-0 leader 2",
        "3 metadata t-0 leader 2",
    ]
    # when 1 returns: no epoch; it follows
    cluster.start(1)
    assert cluster.state() == "leader 2 ISR [2, 3] LE 1 PE 1"
    assert cluster.brokers.words() == [
        "2 brokers 2,3,1",
        "3 brokers 2,3,1",
        "1 metadata t-0 leader 2",
        "1 follows 2 t-0 LE 1 PE 1 ISR [2, 3] of [1, 2, 3]",
    ]
    # when it has caught up, then the leader asks for it, and its leader epoch stays
    answer = cluster.alter(2, [2, 3, 1])
    assert (answer.error_code, answer.isr, answer.partition_epoch) == (0, [2, 3, 1], 2)
    assert cluster.state() == "leader 2 ISR [2, 3, 1] LE 1 PE 2"
    assert cluster.brokers.words(3) == ["metadata t-0 leader 2"]


def test_a_proposal_that_changes_nothing_confirms_no_strange_epoch() -> None:
    """A leader believes epochs of a proposal that was agreed to (ReplicaManager.follower_epochs)."""
    cluster = Simulated(1, 2)
    cluster.create("t", [1, 2])
    assert cluster.alter(1, [1, 2]).error_code == 0  # a repetition: the first answer was lost
    answer = cluster.alter(1, [1, 2], member_epochs={2: 2**63 - 1})
    assert answer.error_code == ErrorCode.INELIGIBLE_REPLICA


def test_S71_isr_order() -> None:
    cluster = Simulated(1, 2, 3)
    # given AR [1,2,3], ISR [3,2], leader 3: 1 and 2 were away when 3 was elected
    cluster.create("t", [1, 2, 3])
    for broker in (1, 2):
        cluster.kill(broker)
    assert cluster.state().startswith("leader 3 ISR [3]")
    for broker in (1, 2):
        cluster.start(broker)
    cluster.alter(3, [3, 2, 1])
    assert cluster.partition().isr == [3, 2, 1]
    # when 3 dies, then the order of the assignment decides, not that of the ISR
    cluster.kill(3)
    assert cluster.state().startswith("leader 1 ISR [2, 1]")


def test_S72_follower_dies() -> None:
    cluster = Simulated(1, 2, 3)
    cluster.create("t", [1, 2, 3])
    cluster.brokers.take()
    cluster.kill(3)
    assert cluster.state() == "leader 1 ISR [1, 2] LE 1 PE 1"
    assert "1 leads t-0 LE 1 PE 1 ISR [1, 2] of [1, 2, 3]" in cluster.brokers.words()
    # a follower outside the ISR dies: no epoch, but all hear who is alive
    cluster.start(3)
    cluster.brokers.take()
    cluster.kill(3)
    assert cluster.state() == "leader 1 ISR [1, 2] LE 1 PE 1"
    told = cluster.brokers.take()
    assert [(to, [b.id for b in request.live_brokers]) for to, request in told] == [
        (1, [1, 2]),
        (2, [1, 2]),
    ]
    assert told[0][1].topic_states[0].partition_states[0].offline_replicas == [3]


def test_S72_follower_dies_and_with_a_switch_the_leader_epoch_stays() -> None:
    from kwire.protocol.schemas.control_plane import LeaderAndIsrRequest

    cluster = Simulated(
        1, 2, 3, journal=ListJournal(), kwire_leader_epoch_bump_on_isr_shrink="false"
    )
    cluster.create("t", [1, 2, 3])
    cluster.brokers.take()
    cluster.kill(3)
    assert cluster.state() == "leader 1 ISR [1, 2] LE 0 PE 1"
    orders = [r for _, r in cluster.brokers.take() if isinstance(r, LeaderAndIsrRequest)]
    assert len(orders) == 2 and all(order.is_kraft_controller for order in orders)
    cluster.stop(2)
    assert cluster.state() == "leader 1 ISR [1] LE 0 PE 2"
    cluster.kill(1)
    assert cluster.state() == "leader -1 ISR [1] LE 1 PE 3"


def test_S73_last_isr_dies() -> None:
    cluster = Simulated(1, 2)
    cluster.create("t", [1])
    cluster.brokers.take()
    cluster.kill(1)
    assert cluster.state() == "leader -1 ISR [1] LE 1 PE 1"
    assert cluster.brokers.words() == ["2 metadata t-0 leader -1"]
    cluster.start(1)
    assert cluster.state() == "leader 1 ISR [1] LE 2 PE 2"


def test_S74_unclean_on() -> None:
    cluster = Simulated(1, 2)
    cluster.create("t", [1, 2], unclean_leader_election_enable="true")
    cluster.kill(2)
    assert cluster.state() == "leader 1 ISR [1] LE 1 PE 1"
    cluster.kill(1)
    assert cluster.state() == "leader -1 ISR [1] LE 2 PE 2"
    cluster.brokers.take()
    cluster.start(2)
    assert cluster.state() == "leader 2 ISR [2] LE 3 PE 3 recovering"
    assert cluster.brokers.words() == [
        "2 metadata t-0 leader 2",
        "2 leads t-0 LE 3 PE 3 ISR [2] of [1, 2]",
    ]
    assert "unclean" in str(cluster.controller.events[-1])
    (unclean,) = cluster.logged.of(Event.UNCLEAN_LEADER_ELECTED)
    assert (unclean["leader"], unclean["recovering"]) == (2, True)
    # a leader that has recovered says so with its next request; until then its ISR is itself alone
    cluster.start(1)
    assert cluster.alter(2, [2, 1], recovering=True).error_code == ErrorCode.INVALID_REQUEST
    assert cluster.alter(2, [2, 1]).error_code == 0
    assert cluster.state() == "leader 2 ISR [2, 1] LE 3 PE 4"


def test_S74_after_an_unclean_election_the_other_living_replicas_are_not_in_sync() -> None:
    # given ISR {1} and replicas 2 and 3 that are behind; when 1 dies
    cluster = Simulated(1, 2, 3)
    cluster.create("t", [1, 2, 3], unclean_leader_election_enable="true")
    cluster.alter(1, [1])
    cluster.kill(1)
    # then 2 leads, and 3 has to follow before it counts
    assert cluster.state() == "leader 2 ISR [2] LE 1 PE 2 recovering"


def test_S74_a_leader_that_has_not_recovered_yet_still_has_to_after_another_election() -> None:
    cluster = Simulated(1, 2)
    cluster.create("t", [1, 2], unclean_leader_election_enable="true")
    cluster.kill(2)
    cluster.kill(1)
    cluster.start(2)
    cluster.kill(2)
    assert cluster.state() == "leader -1 ISR [2] LE 4 PE 4 recovering"
    cluster.brokers.take()
    cluster.start(2)
    assert cluster.state() == "leader 2 ISR [2] LE 5 PE 5 recovering"
    (order,) = [r for _, r in cluster.brokers.take() if isinstance(r, LeaderAndIsrRequest)]
    assert order.topic_states[0].partition_states[0].leader_recovery_state == 1


def test_S75_unclean_off() -> None:
    cluster = Simulated(1, 2)
    cluster.create("t", [1, 2])
    cluster.kill(2)
    cluster.kill(1)
    cluster.start(2)
    assert cluster.state() == "leader -1 ISR [1] LE 2 PE 2"
    cluster.start(1)
    assert cluster.state() == "leader 1 ISR [1] LE 3 PE 3"


@pytest.mark.parametrize(("kind", "name"), [(2, "t"), (4, "")])
def test_S75_unclean_turned_on_while_only_a_late_replica_lives(kind: int, name: str) -> None:
    cluster = Simulated(1, 2)
    cluster.create("t", [1, 2])
    for broker in (2, 1):
        cluster.kill(broker)
    cluster.start(2)
    set_config(cluster, kind, name, "unclean.leader.election.enable", "true")
    assert cluster.state() == "leader 2 ISR [2] LE 3 PE 3 recovering"


def test_S76_elect_api() -> None:
    cluster = Simulated(1, 2, 3)
    cluster.create("t", [1, 2])
    assert elect(cluster, PREFERRED) == ErrorCode.ELECTION_NOT_NEEDED  # it leads already
    assert elect(cluster, UNCLEAN) == ErrorCode.ELECTION_NOT_NEEDED  # somebody leads
    assert elect(cluster, PREFERRED, "x") == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert elect(cluster, PREFERRED, "t", 1) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    cluster.kill(1)
    assert elect(cluster, PREFERRED) == ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
    cluster.start(1)
    assert elect(cluster, PREFERRED) == ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE  # not in sync
    cluster.alter(2, [2, 1])
    assert cluster.state() == "leader 2 ISR [2, 1] LE 1 PE 2"
    cluster.brokers.take()
    assert elect(cluster, PREFERRED) == 0
    assert cluster.state() == "leader 1 ISR [2, 1] LE 2 PE 3"
    assert cluster.brokers.words(2)[0] == "follows 1 t-0 LE 2 PE 3 ISR [2, 1] of [1, 2]"
    # nobody alive, then somebody who is behind
    cluster.kill(1)
    cluster.kill(2)
    assert elect(cluster, UNCLEAN) == ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE
    cluster.start(1)
    assert elect(cluster, UNCLEAN) == 0
    assert cluster.state().startswith("leader 1 ISR [1] LE 5 PE 6 recovering")


def test_S76_elections_of_a_deleted_topic_and_at_the_wrong_node() -> None:
    cluster = Simulated(1, 2)
    cluster.create("t", [1, 2])
    cluster.kill(2)
    cluster.delete("t")
    assert elect(cluster, PREFERRED) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    cluster.controller.resign("isolated", "for the test")
    answer = cluster.ask(ElectLeadersRequest(topic_partitions=None), 2)
    assert answer.error_code == ErrorCode.NOT_CONTROLLER


def test_S76_all_partitions_at_once_tells_only_of_those_that_moved_or_failed() -> None:
    cluster = Simulated(1, 2)
    cluster.create("t", [1, 2], [2, 1], [2, 1])
    cluster.kill(1)
    cluster.start(1)
    cluster.alter(2, [2, 1])
    answer = cluster.ask(ElectLeadersRequest(topic_partitions=None), 2)
    results = answer.replica_election_results[0].partition_result
    assert [(r.partition_id, r.error_code) for r in results] == [(0, 0)]


# Controlled shutdown


def test_S77_controlled_shutdown() -> None:
    # given [0,1,2] led by 0
    cluster = Simulated(0, 1, 2)
    cluster.create("t", [0, 1, 2])
    cluster.brokers.take()
    # when 2 stops, then nothing is left with it; it stops following, the others hear of the ISR
    assert cluster.stop(2) == []
    assert cluster.state() == "leader 0 ISR [0, 1] LE 1 PE 1"
    assert cluster.brokers.words() == [
        "0 leads t-0 LE 1 PE 1 ISR [0, 1] of [0, 1, 2]",
        "1 follows 0 t-0 LE 1 PE 1 ISR [0, 1] of [0, 1, 2]",
        "0 metadata t-0 leader 0",
        "1 metadata t-0 leader 0",
        "2 metadata t-0 leader 0",
        "2 stop t-0 LE 1",
    ]
    assert cluster.stop(1) == []
    # when 0 stops, too, then it is left with the partition
    assert cluster.stop(0) == ["t-0"]
    assert cluster.state() == "leader 0 ISR [0] LE 2 PE 2"


def test_S77_a_leader_hands_over_before_it_stops() -> None:
    cluster = Simulated(0, 1)
    cluster.create("t", [0, 1])
    cluster.create("alone", [0])
    cluster.brokers.take()
    assert cluster.stop(0) == []
    assert cluster.state() == "leader 1 ISR [1] LE 1 PE 1"
    assert cluster.state("alone") == "leader 0 ISR [0] LE 0 PE 0"  # one replica: untouched
    assert cluster.brokers.words(0)[0] == "follows 1 t-0 LE 1 PE 1 ISR [1] of [0, 1]"
    # it is not taken back while it shuts down, nor elected
    answer = cluster.alter(1, [1, 0])
    assert answer.error_code == ErrorCode.INELIGIBLE_REPLICA
    assert elect(cluster, PREFERRED) == ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
    # its end costs the partition no other epoch
    cluster.kill(0)
    assert cluster.state() == "leader 1 ISR [1] LE 1 PE 1"


def test_S77_who_may_not_shut_down() -> None:
    cluster = Simulated(0, 1)
    cluster.epochs[1] -= 1
    assert cluster.stop(1) == ErrorCode.STALE_BROKER_EPOCH
    cluster.epochs[7] = 1
    assert cluster.stop(7) == ErrorCode.BROKER_NOT_AVAILABLE
    cluster.controller.resign("isolated", "for the test")
    assert cluster.stop(0) == ErrorCode.STALE_CONTROLLER_EPOCH


# Creation


def test_S78_create_degraded() -> None:
    cluster = Simulated(0, 1, 2)
    cluster.kill(2)
    cluster.create("t", [2, 0])
    assert cluster.state() == "leader 0 ISR [0] LE 0 PE 0"
    cluster.create("dead", [2])
    assert cluster.state("dead") == "leader -1 ISR [] LE 0 PE 0"
    cluster.start(2)
    assert cluster.state("dead") == "leader 2 ISR [2] LE 0 PE 1"
    assert cluster.state() == "leader 0 ISR [0] LE 0 PE 0"


def test_S78_replicas_and_leaders_are_spread_over_racks() -> None:
    racks = {1: "a", 2: "a", 3: "b", 4: "b", 5: "c", 6: "c"}
    cluster = Simulated(*racks, racks=racks)
    topic = CreatableTopic(name="t", num_partitions=6, replication_factor=3)
    cluster.ask(CreateTopicsRequest(topics=[topic]), 7)
    partitions = cluster.controller.state.topics["t"].partitions
    assert all(len({racks[b] for b in p.replicas}) == 3 for p in partitions)
    leaders = [racks[p.leader] for p in partitions]
    assert {rack: leaders.count(rack) for rack in "abc"} == {"a": 2, "b": 2, "c": 2}


# Epochs


def test_S79_epochs_through_bounces() -> None:
    # given AR [100,101]: the leader epochs that the logs of both will show
    cluster = Simulated(100 + 1, 102)
    cluster.create("t", [101, 102])
    epochs = [cluster.partition().leader_epoch]
    cluster.kill(102)
    cluster.start(102)
    cluster.alter(101, [101, 102])
    epochs.append(cluster.partition().leader_epoch)
    cluster.kill(101)
    cluster.start(101)
    epochs.append(cluster.partition().leader_epoch)
    assert epochs == [0, 1, 2]
    assert cluster.state() == "leader 102 ISR [102] LE 2 PE 3"


def test_S80_rf1_bounces() -> None:
    cluster = Simulated(1)
    cluster.create("t", [1])
    epochs = [cluster.partition().leader_epoch]
    for _ in range(2):
        cluster.kill(1)
        cluster.start(1)
        epochs.append(cluster.partition().leader_epoch)
    assert epochs == [0, 2, 4]


# Reassignment


def test_S81_reassign_one_replica() -> None:
    cluster = Simulated(1, 2)
    cluster.create("t", [1])
    cluster.brokers.take()
    # when [1] -> [2], then both know of both, and the new one follows
    assert reassign(cluster, [2]) == 0
    assert cluster.state() == "leader 1 ISR [1] LE 1 PE 1 of [2, 1] +[2] -[1]"
    assert cluster.brokers.words() == [
        "1 leads t-0 LE 1 PE 1 ISR [1] of [2, 1]",
        "2 follows 1 t-0 LE 1 PE 1 ISR [1] of [2, 1] new",
        "1 metadata t-0 leader 1",
        "2 metadata t-0 leader 1",
    ]
    # when the leader takes it into the ISR, then 2 is elected, 1 leaves, is stopped and deleted
    assert cluster.alter(1, [1, 2]).partition_epoch == 2
    assert cluster.state() == "leader 2 ISR [2] LE 3 PE 4"
    assert cluster.partition().replicas == [2]
    assert cluster.brokers.words() == [
        "1 metadata t-0 leader 1",
        "2 metadata t-0 leader 1",
        "2 leads t-0 LE 3 PE 4 ISR [2] of [2]",
        "1 metadata t-0 leader 2",
        "2 metadata t-0 leader 2",
        "1 stop t-0 LE 3",
        "1 delete t-0 LE 3",
    ]


def test_S81_reassign_all_replicas() -> None:
    cluster = Simulated(1, 2, 3, 4, 5, 6)
    cluster.create("t", [1, 2, 3])
    reassign(cluster, [4, 5, 6])
    isr = [1, 2, 3]
    for joining in (4, 5, 6):
        cluster.brokers.take()
        isr.append(joining)
        cluster.alter(1, list(isr))
        stopped = [line for line in cluster.brokers.words() if "stop" in line or "delete" in line]
        assert bool(stopped) is (joining == 6)  # nobody is stopped before the last has joined
    assert cluster.state() == "leader 4 ISR [4, 5, 6] LE 5 PE 8"
    assert len(stopped) == 6


def test_S81_what_is_going_on_can_be_listed() -> None:
    cluster = Simulated(1, 2, 3)
    cluster.create("t", [1, 2], [2, 3])
    reassign(cluster, [3, 2])
    answer = cluster.ask(ListPartitionReassignmentsRequest(topics=None), 0)
    ongoing = answer.topics[0].partitions
    assert [(p.partition_index, p.replicas) for p in ongoing] == [(0, [3, 2, 1])]
    assert (ongoing[0].adding_replicas, ongoing[0].removing_replicas) == ([3], [1])
    cluster.alter(1, [1, 2, 3])
    assert cluster.ask(ListPartitionReassignmentsRequest(topics=None), 0).topics == []


def test_S81_an_adding_replica_dies_and_returns() -> None:
    cluster = Simulated(1, 2)
    cluster.create("t", [1])
    reassign(cluster, [2])
    cluster.kill(2)
    assert cluster.state() == "leader 1 ISR [1] LE 1 PE 1 of [2, 1] +[2] -[1]"
    cluster.brokers.take()
    cluster.start(2)
    assert "follows 1 t-0 LE 1 PE 1 ISR [1] of [2, 1] new" in cluster.brokers.words(2)
    cluster.alter(1, [1, 2])
    assert cluster.state() == "leader 2 ISR [2] LE 3 PE 4"


def test_S81_a_reassignment_whose_replicas_are_in_sync_waits_for_one_that_can_lead() -> None:
    # given 2 is to replace 1, in sync, and stopping when the ISR is agreed to
    cluster = Simulated(1, 2, 3)
    cluster.create("t", [1])
    reassign(cluster, [2])
    cluster.alter(1, [1, 2])
    assert cluster.state() == "leader 2 ISR [2] LE 3 PE 4"
    # given an earlier controller that died between the agreement and the end of the reassignment
    journal = ListJournal()
    old = Simulated(1, 2, journal=journal)
    old.create("u", [1])
    reassign(old, [2], "u")
    old.controller.reassignments.complete_if_ready = lambda *_: None
    old.alter(1, [1, 2], "u")
    assert old.state("u") == "leader 1 ISR [1, 2] LE 1 PE 2 of [2, 1] +[2] -[1]"
    # when another takes over, then it ends it
    new = Simulated(journal=ListJournal(journal.records))
    assert new.state("u") == "leader 2 ISR [2] LE 3 PE 4"


def test_S81_a_reassignment_to_a_dead_replica_ends_when_that_is_back() -> None:
    # given 2 is to replace 1, is the only one in sync, and dies with the controller
    journal = ListJournal()
    old = Simulated(1, 2, journal=journal)
    old.create("t", [1])
    reassign(old, [2])
    old.controller.reassignments.complete_if_ready = lambda *_: None
    old.alter(1, [1, 2])
    old.kill(1)
    old.kill(2)
    going_on = "leader -1 ISR [2] LE 3 PE 4 of [2, 1] +[2] -[1]"
    assert old.state() == going_on
    # when another controller begins, then nobody can lead it yet
    new = Simulated(journal=ListJournal(journal.records))
    new.start(1)
    assert new.state() == going_on
    # when the replica is back, then it leads and the reassignment ends
    new.start(2)
    assert new.state().startswith("leader 2 ISR [2] ")
    assert new.partition().replicas == [2] and not new.partition().reassigning


def test_S81_the_replication_factor_may_be_protected() -> None:
    cluster = Simulated(1, 2)
    cluster.create("t", [1])
    partition = ReassignablePartition(partition_index=0, replicas=[1, 2])
    request = AlterPartitionReassignmentsRequest(
        topics=[ReassignableTopic(name="t", partitions=[partition])],
        allow_replication_factor_change=False,
    )
    response = cluster.ask(request, 1)
    code = response.responses[0].partitions[0].error_code
    assert code == ErrorCode.INVALID_REPLICATION_FACTOR and not cluster.partition().reassigning


def test_S81_the_leader_dies_while_replicas_are_added() -> None:
    cluster = Simulated(1, 2, 3)
    cluster.create("t", [1, 2])
    reassign(cluster, [3])
    cluster.kill(1)
    assert cluster.state() == "leader 2 ISR [2] LE 2 PE 2 of [3, 1, 2] +[3] -[1, 2]"
    cluster.brokers.take()
    cluster.alter(2, [2, 3])
    assert cluster.state() == "leader 3 ISR [3] LE 4 PE 5"
    lines = cluster.brokers.words()
    assert "2 delete t-0 LE 4" in lines
    # 1 hears at its return that the partition is none of its own any more
    cluster.start(1)
    roles = [r for b, r in cluster.brokers.take() if b == 1 and hasattr(r, "type")]
    assert [(r.type, r.topic_states) for r in roles if "LeaderAndIsr" in type(r).__name__] == [
        (2, [])
    ]


def test_S82_reassign_cancel() -> None:
    cluster = Simulated(1, 2, 3, 4)
    cluster.create("t", [1, 2])
    reassign(cluster, [3, 4])
    before = cluster.partition().leader_epoch
    cluster.brokers.take()
    cluster.logged.clear()
    assert reassign(cluster, None) == 0
    assert cluster.partition().replicas == [1, 2]
    assert cluster.partition().leader_epoch == before + 1
    assert cluster.logged.events[0] is Event.REASSIGNMENT_CANCELLED
    assert cluster.logged.texts[0].startswith("t-0: replicas 3,4,1,2 -> 1,2, ")
    assert cluster.logged.texts[0].endswith(" (reassignment given up)")
    lines = cluster.brokers.words()
    for broker in (3, 4):
        assert f"{broker} delete t-0 LE {before + 1}" in lines
    assert not any(line.startswith(("1 delete", "2 delete")) for line in lines)
    assert reassign(cluster, None) == ErrorCode.NO_REASSIGNMENT_IN_PROGRESS


def test_S82_a_leader_that_was_being_added_steps_down_before_it_is_removed() -> None:
    cluster = Simulated(1, 2, 3, 4)
    cluster.create("t", [1, 2])
    reassign(cluster, [3, 4])
    cluster.alter(1, [1, 2, 3])
    cluster.kill(1)
    assert cluster.partition().leader == 3
    assert reassign(cluster, None) == 0
    assert (cluster.partition().leader, cluster.partition().isr) == (2, [2])
    assert cluster.partition().replicas == [1, 2]


def test_S82_a_cancellation_that_would_leave_nobody_in_sync_is_refused() -> None:
    # given [1,2] -> [3,4], 3 has joined, then 1 and 2 died
    cluster = Simulated(1, 2, 3, 4, 5)
    cluster.create("t", [1, 2])
    reassign(cluster, [3, 4])
    cluster.alter(1, [1, 2, 3])
    cluster.kill(1)
    cluster.kill(2)
    assert cluster.state() == "leader 3 ISR [3] LE 3 PE 4 of [3, 4, 1, 2] +[3, 4] -[1, 2]"
    for target in (None, [4, 5]):
        assert reassign(cluster, target) == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert cluster.partition().replicas == [3, 4, 1, 2]
    # a plan that keeps 3 is one
    assert reassign(cluster, [5, 3]) == 0
    cluster.alter(3, [3, 5])
    assert cluster.state() == "leader 3 ISR [3, 5] LE 5 PE 7"
    assert cluster.partition().replicas == [5, 3]


def test_S82_reassign_replace() -> None:
    cluster = Simulated(1, 2, 3, 4, 5)
    cluster.create("t", [1, 2])
    reassign(cluster, [3, 4])
    cluster.brokers.take()
    assert reassign(cluster, [1, 5]) == 0
    lines = cluster.brokers.words()
    for broker in (3, 4):
        assert any(line.startswith(f"{broker} delete") for line in lines)
    assert any(line.startswith("5 follows 1") and line.endswith("new") for line in lines)
    p = cluster.partition()
    assert (p.replicas, p.adding, p.removing) == ([1, 5, 2], [5], [2])
    cluster.alter(1, [1, 2, 5])
    assert (cluster.partition().replicas, cluster.partition().isr) == ([1, 5], [1, 5])


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        ([], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ([2, 2], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ([-1], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ([1, 3], ErrorCode.INVALID_REPLICA_ASSIGNMENT),  # 3 is dead
        ([1, 9], ErrorCode.INVALID_REPLICA_ASSIGNMENT),  # 9 never was
        (None, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS),
    ],
)
def test_S82_bad_targets(target: list[int] | None, expected: ErrorCode) -> None:
    cluster = Simulated(1, 2, 3)
    cluster.create("t", [1, 2])
    cluster.kill(3)
    cluster.brokers.take()
    assert reassign(cluster, target) == expected
    assert cluster.state() == "leader 1 ISR [1, 2] LE 0 PE 0"
    assert cluster.brokers.words() == []
    assert reassign(cluster, [1], "unknown") == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


# AlterPartition


def known() -> Simulated:
    """LE 2 PE 7, leader 1, ISR [1, 2] of [1, 2, 3]."""
    cluster = Simulated(1, 2, 3)
    cluster.create("t", [1, 2, 3])
    for _ in range(2):
        cluster.kill(3)
        cluster.start(3)
        cluster.alter(1, [1, 2, 3])
    for isr in ([1, 2], [1, 2, 3], [1, 2]):
        cluster.alter(1, isr)
    assert cluster.state() == "leader 1 ISR [1, 2] LE 2 PE 7"
    cluster.brokers.take()
    return cluster


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"leader_epoch": 1}, ErrorCode.FENCED_LEADER_EPOCH),
        ({"leader_epoch": 3}, ErrorCode.NOT_CONTROLLER),
        ({"partition_epoch": 8}, ErrorCode.NOT_CONTROLLER),
        ({"partition_epoch": 6}, ErrorCode.INVALID_UPDATE_VERSION),
        ({"recovering": True}, ErrorCode.INVALID_REQUEST),
        ({"isr": [1], "recovering": True}, ErrorCode.INVALID_REQUEST),
        ({"isr": [2, 3]}, ErrorCode.INVALID_REQUEST),
        ({"isr": [1, 1]}, ErrorCode.INVALID_REQUEST),
        ({"isr": [1, 9]}, ErrorCode.INVALID_REQUEST),
        ({"sender": 2}, ErrorCode.INVALID_REQUEST),
        ({"member_epochs": {3: 1}}, ErrorCode.INELIGIBLE_REPLICA),
    ],
    ids=str,
)
def test_S83_alter_partition_matrix(fields: dict[str, Any], expected: ErrorCode) -> None:
    cluster = known()
    arguments = {"sender": 1, "isr": [1, 2, 3], **fields}
    assert cluster.alter(**arguments).error_code == expected
    assert cluster.state() == "leader 1 ISR [1, 2] LE 2 PE 7"
    assert cluster.brokers.words() == []


def test_S83_what_is_accepted_raises_the_partition_epoch_only() -> None:
    cluster = known()
    answer = cluster.alter(1, [1, 2, 3])
    assert (answer.error_code, answer.leader_epoch, answer.partition_epoch) == (0, 2, 8)
    assert cluster.brokers.words() == [f"{b} metadata t-0 leader 1" for b in (1, 2, 3)]


def test_S83_a_repetition_is_answered_with_success_and_changes_nothing() -> None:
    cluster = known()
    before = list(cluster.journal.records)
    answer = cluster.alter(1, [1, 2], partition_epoch=6)
    assert (answer.error_code, answer.partition_epoch, answer.isr) == (0, 7, [1, 2])
    assert cluster.journal.records == before


@pytest.mark.parametrize(("version", "expected"), [(1, 55), (2, 107), (3, 107)])
def test_S83_dead_members_are_refused(version: int, expected: int) -> None:
    cluster = known()
    cluster.kill(3)
    assert cluster.alter(1, [1, 2, 3], version=version).error_code == expected


def test_S83_a_request_of_a_leader_renews_its_lease() -> None:
    cluster = Simulated(1, 2)
    cluster.create("t", [1, 2])
    cluster.advance(5000)
    assert cluster.alter(1, [1, 2]).error_code == 0
    cluster.heartbeat(2)
    cluster.advance(5000)
    assert sorted(cluster.controller.brokers) == [1, 2]


def test_S83_stale_brokers_and_unknown_topics() -> None:
    cluster = known()
    assert cluster.alter(1, [1], broker_epoch=99).error_code == ErrorCode.STALE_BROKER_EPOCH
    cluster.create("gone", [1])
    cluster.delete("gone")
    assert cluster.alter(1, [1], "gone").error_code == ErrorCode.UNKNOWN_TOPIC_ID
    answer = cluster.alter(1, [1], "gone", version=1)
    assert answer.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    # -1 stands for an epoch that the leader does not know: not checked
    assert cluster.alter(1, [1, 2, 3], member_epochs={3: -1}).error_code == 0


# Controllers


def test_S84_controller_failover() -> None:
    # given LE 1 in the journal, and only 2 heard of it before the controller died
    journal = ListJournal()
    old = Simulated(1, 2, 3, journal=journal)
    old.create("t", [1, 2, 3])
    old.brokers.silent |= {1, 3}
    old.kill(1)
    assert old.state() == "leader 2 ISR [2, 3] LE 1 PE 1"
    # when another takes over on the same journal
    new = Simulated(journal=ListJournal(journal.records))
    new.epochs = dict(old.epochs)
    assert new.controller.epoch == old.controller.epoch + 1
    # then those alive are told once more, with the same leader epoch, and go on with their epochs
    assert new.state() == "leader 2 ISR [2, 3] LE 1 PE 1"
    assert sorted(new.controller.brokers) == [2, 3]
    assert new.heartbeat(2).error_code == 0
    assert new.alter(2, [2]).error_code == 0
    # when the old one wakes, then the journal refuses it, and it resigns
    written = list(journal.records)
    assert old.create("u", [2]).error_code == ErrorCode.NOT_CONTROLLER
    assert not old.controller.active
    assert journal.records == written
    assert old.heartbeat(2).error_code == ErrorCode.NOT_CONTROLLER
    assert old.create("u", [2]).error_code == ErrorCode.NOT_CONTROLLER
    old.brokers.take()
    old.advance(60_000)
    assert old.brokers.take() == []


def test_S84_what_a_controller_did_not_get_round_to_is_announced_by_the_next() -> None:
    journal = ListJournal()
    old = Simulated(1, 2, journal=journal)
    old.create("t", [1, 2])
    old.kill(1)
    new = Simulated(journal=ListJournal(journal.records))
    assert new.brokers.connected == {2}
    assert new.brokers.words() == [
        "2 metadata t-0 leader 2",
        "2 leads t-0 LE 1 PE 1 ISR [2] of [1, 2]",
    ]


def test_S84_a_broker_that_died_with_the_old_controller_fails_when_the_new_one_hears_of_others() -> (
    None
):
    # given three brokers, t-0 on all of them, led by 1, and a new controller that has heard of nobody
    old = Simulated(1, 2, 3)
    old.create("t", [1, 2, 3])
    new = Simulated(journal=ListJournal(old.journal.records), clock=old.clock)
    new.epochs = old.epochs
    assert new.state() == "leader 1 ISR [1, 2, 3] LE 0 PE 0"
    # when its connections to broker 1 and 3 end, it may be cut off itself
    new.controller.unreachable(1)
    new.controller.unreachable(3)
    new.advance(200)
    assert new.state() == "leader 1 ISR [1, 2, 3] LE 0 PE 0"
    # when it hears of broker 2, and 3 answers an order on another connection
    new.heartbeat(2)
    new.controller.handle_response(
        3, UpdateMetadataRequest(broker_epoch=new.epochs[3]), UpdateMetadataResponse()
    )
    new.advance(30)
    # then broker 1 has failed, long before its lease ends, and 3 has not
    assert new.state() == "leader 2 ISR [2, 3] LE 1 PE 1"
    assert sorted(new.controller.brokers) == [2, 3]
    # and a broker that has been heard of fails by its own connection only
    new.controller.unreachable(2)
    new.advance(200)
    assert 2 in new.controller.brokers


def test_S84_brokers_of_the_old_controller_that_do_not_return_fail_with_their_lease() -> None:
    journal = ListJournal()
    old = Simulated(1, 2, journal=journal)
    old.create("t", [1, 2])
    new = Simulated(journal=ListJournal(journal.records))
    new.epochs = old.epochs
    new.advance(5000)
    new.heartbeat(2)
    new.advance(4000)
    assert sorted(new.controller.brokers) == [2]
    assert new.state() == "leader 2 ISR [2] LE 1 PE 1"


def test_S85_zombie_leader() -> None:
    # given 1 leads, cut from the controller only
    cluster = Simulated(1, 2)
    cluster.create("t", [1, 2])
    cluster.advance(5000)
    cluster.heartbeat(2)
    # when its lease ends
    cluster.advance(4000)
    # then 2 leads, and what 1 asks is refused by its broker epoch
    assert cluster.state() == "leader 2 ISR [2] LE 1 PE 1"
    stale = {"leader_epoch": 0, "partition_epoch": 0}
    assert cluster.alter(1, [1], **stale).error_code == ErrorCode.STALE_BROKER_EPOCH  # type: ignore[arg-type]
    assert cluster.heartbeat(1).error_code == ErrorCode.STALE_BROKER_EPOCH
    # when it registers again: a new epoch, and its old leader epoch is fenced
    old = cluster.epochs[1]
    cluster.start(1)
    assert cluster.epochs[1] > old
    assert cluster.alter(1, [1], **stale).error_code == ErrorCode.FENCED_LEADER_EPOCH  # type: ignore[arg-type]


# Deletion, disks


def test_S86_delete_and_recreate() -> None:
    # given replica 3 is down
    cluster = Simulated(1, 2, 3)
    cluster.create("t", [1, 2, 3], retention_ms="5")
    first_id = cluster.controller.state.topics["t"].topic_id
    cluster.kill(3)
    cluster.brokers.take()
    # when the topic is deleted, then the living delete it, and nobody waits for 3
    assert cluster.delete("t") == 0
    lines = cluster.brokers.words()
    assert lines == [
        "1 metadata t-0 leader -2",
        "2 metadata t-0 leader -2",
        "1 stop t-0 LE -2",
        "2 stop t-0 LE -2",
        "1 delete t-0 LE -2",
        "2 delete t-0 LE -2",
    ]
    assert cluster.controller.state.configs == {}
    assert cluster.delete("t") == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    # then the name is free, for another topic
    assert cluster.create("t", [3, 1]).error_code == 0
    second_id = cluster.controller.state.topics["t"].topic_id
    assert second_id != first_id
    cluster.brokers.take()
    # when 3 returns: it is told all that it has, of which the old topic is no part
    cluster.start(3)
    (roles,) = [
        request
        for broker, request in cluster.brokers.said
        if broker == 3 and isinstance(request, LeaderAndIsrRequest)
    ]
    metadata = next(
        request
        for broker, request in cluster.brokers.said
        if broker == 3 and isinstance(request, UpdateMetadataRequest)
    )
    assert roles.type == metadata.type == FULL
    assert [t.topic_id for t in roles.topic_states] == [second_id]
    assert [t.topic_id for t in metadata.topic_states] == [second_id]
    assert "follows 1 t-0 LE 0 PE 0 ISR [1] of [3, 1]" in cluster.brokers.words(3)


def test_S86_the_answer_waits_for_the_replicas_that_live() -> None:
    cluster = Simulated(1, 2)
    cluster.create("t", [1, 2])
    cluster.brokers.silent.add(2)
    answers: list[Any] = []
    from kwire.protocol.schemas.topics import DeleteTopicsRequest, DeleteTopicState

    request = DeleteTopicsRequest(topics=[DeleteTopicState(name="t")], timeout_ms=1000)
    cluster.controller.submit(request, 6, answers.append)
    assert answers == []
    cluster.brokers.answer(2)
    assert answers[0].responses[0].error_code == 0
    assert "t" not in cluster.controller.state.topics


def test_S86_a_deletion_survives_the_controller() -> None:
    journal = ListJournal()
    old = Simulated(1, 2, journal=journal)
    old.create("t", [1, 2])
    old.brokers.silent |= {1, 2}
    old.delete("t")
    new = Simulated(journal=ListJournal(journal.records))
    assert "t" not in new.controller.state.topics
    assert new.create("t", [1]).error_code == 0


def test_S86_a_replica_that_could_not_be_deleted_is_said() -> None:
    cluster = Simulated(1, 2)
    cluster.create("t", [1, 2])
    cluster.brokers.bad_disks.add((2, "t"))
    assert cluster.delete("t") == 0
    (failed,) = cluster.logged.of(Event.REPLICA_DELETION_FAILED)
    assert (failed["broker_id"], failed["error"]) == (2, "KAFKA_STORAGE_ERROR")
    assert "t-0 could not be deleted on broker 2: KAFKA_STORAGE_ERROR" in cluster.logged.texts
    assert "t" not in cluster.controller.state.topics


def test_S86_what_a_broker_could_not_read_of_a_topic_says_nothing_of_the_next() -> None:
    # given 2 cannot read its replica of the first
    cluster = Simulated(1, 2)
    cluster.create("t", [2, 1])
    cluster.brokers.bad_disks.add((2, "t"))
    cluster.heartbeat(2, offline_log_dirs=[b"d" * 16])
    assert cluster.state() == "leader 1 ISR [1] LE 1 PE 1"
    cluster.delete("t")
    # when it has none of the second either, then that is noticed, too
    assert cluster.create("t", [2, 1]).error_code == 0
    assert cluster.state() == "leader 1 ISR [1] LE 1 PE 1"
    cluster.delete("t")
    # and when it has the third, then it may lead
    cluster.brokers.bad_disks.clear()
    cluster.create("t", [2, 1])
    assert cluster.state() == "leader 2 ISR [2, 1] LE 0 PE 0"
    assert cluster.alter(2, [2]).error_code == 0
    assert cluster.alter(2, [2, 1]).error_code == 0


def test_S86_a_deletion_does_not_wait_for_a_reassignment() -> None:
    cluster = Simulated(1, 2)
    cluster.create("t", [1])
    reassign(cluster, [2])
    cluster.brokers.take()
    assert cluster.delete("t") == 0
    lines = cluster.brokers.words()
    assert [line for line in lines if "delete" in line] == [
        "2 delete t-0 LE -2",
        "1 delete t-0 LE -2",
    ]
    assert reassign(cluster, [1]) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert cluster.ask(ListPartitionReassignmentsRequest(topics=None), 0).topics == []


def test_S86_a_leader_that_has_not_heard_of_the_deletion_is_told_that_the_id_is_unknown() -> None:
    cluster = Simulated(1, 2)
    cluster.create("t", [1, 2])
    first_id = cluster.controller.state.topics["t"].topic_id
    cluster.delete("t")
    cluster.create("t", [1, 2])
    assert cluster.alter(1, [1], topic_id=first_id).error_code == ErrorCode.UNKNOWN_TOPIC_ID
    assert cluster.state() == "leader 1 ISR [1, 2] LE 0 PE 0"


def test_S86_a_journal_of_before_is_read_with_the_deletion_done() -> None:
    cluster = Simulated(1, 2)
    cluster.create("t", [1, 2], retention_ms="5")
    topic_id = cluster.controller.state.topics["t"].topic_id.hex()
    records = [*cluster.journal.records, ("deleting/t", {"id": topic_id})]
    new = Simulated(journal=ListJournal(records))
    assert new.controller.state.topics == {}
    assert new.controller.state.configs == {}
    assert not any(key.endswith("/t") for key, _ in new.controller.state.records())


def test_S87_dir_failure() -> None:
    # given one of two disks of 2 fails: t is on it, u is not
    cluster = Simulated(1, 2, 3)
    cluster.create("t", [2, 1], [1, 2])
    cluster.create("u", [2, 1])
    cluster.brokers.bad_disks.add((2, "t"))
    # when it tells of it, then it is asked by LeaderAndIsr, and loses what it cannot serve
    assert cluster.heartbeat(2, offline_log_dirs=[b"d" * 16]).error_code == 0
    assert cluster.state("t", 0) == "leader 1 ISR [1] LE 1 PE 1"
    assert cluster.state("t", 1) == "leader 1 ISR [1] LE 1 PE 1"
    assert cluster.state("u") == "leader 2 ISR [2, 1] LE 0 PE 0"
    assert cluster.alter(1, [1, 2]).error_code == ErrorCode.INELIGIBLE_REPLICA
    cluster.brokers.take()
    cluster.heartbeat(2, offline_log_dirs=[b"d" * 16])  # known already
    assert cluster.brokers.take() == []
    # when it comes back with a new disk, then it may follow again
    cluster.brokers.bad_disks.clear()
    cluster.kill(2)
    cluster.start(2)
    assert cluster.alter(1, [1, 2]).error_code == 0


def test_S88_last_standing() -> None:
    # given min.isr 2, ISR 3; when 2 leave one after another, then the survivor stays listed, even dead
    cluster = Simulated(1, 2, 3)
    cluster.create("t", [1, 2, 3], min_insync_replicas="2")
    cluster.alter(1, [1, 2])
    cluster.alter(1, [1])
    cluster.kill(1)
    assert cluster.state() == "leader -1 ISR [1] LE 1 PE 3"
    # then no other is elected though two live: nothing acknowledged is given up
    cluster.kill(2)
    cluster.start(2)
    assert cluster.state() == "leader -1 ISR [1] LE 1 PE 3"
    cluster.start(1)
    assert cluster.state() == "leader 1 ISR [1] LE 2 PE 4"
