"""Registration, leases, held answers, configurations and ids: what the controller owes brokers beside partitions."""

from __future__ import annotations

from typing import Any

import pytest
from controller_harness import ListJournal, Simulated

from kwire.protocol.errors import ErrorCode, KafkaError
from kwire.protocol.schemas.configs import (
    AlterableConfig,
    AlterConfigsRequest,
    AlterConfigsResource,
)
from kwire.protocol.schemas.control_plane import (
    AllocateProducerIdsRequest,
    AlterPartitionRequest,
    LeaderAndIsrRequest,
    StopReplicaRequest,
    UpdateMetadataRequest,
)
from kwire.protocol.schemas.nodes import (
    BrokerHeartbeatRequest,
    BrokerRegistrationRequest,
    Listener,
    UnregisterBrokerRequest,
)
from kwire.protocol.schemas.topics import (
    AlterPartitionReassignmentsRequest,
    CreatableTopic,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    DeleteTopicState,
    ElectLeadersRequest,
    ListPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
    TopicPartitions,
)
from kwire.replication.controller import election
from kwire.replication.controller.journal import JOURNAL_FILE, StoreJournal
from kwire.replication.controller.state import (
    PARTITION_MOVES,
    ControllerState,
    DeposedError,
)
from kwire.replication.controller.table import refusal
from kwire.replication.core.events import WARNING, Event, EventType
from kwire.replication.core.memory_log_store import MemoryLogStore


def registration(broker: int, incarnation: int, **fields: Any) -> BrokerRegistrationRequest:
    return BrokerRegistrationRequest(
        broker_id=broker,
        incarnation_id=incarnation.to_bytes(16, "big"),
        listeners=[Listener(name="L", host="h", port=broker)],
        **fields,
    )


# Registration


def test_each_registration_has_a_larger_broker_epoch() -> None:
    cluster = Simulated(1, 2)
    seen = [cluster.epochs[1], cluster.epochs[2]]
    for broker in (1, 2, 1):
        cluster.kill(broker)
        cluster.start(broker)
        seen.append(cluster.epochs[broker])
    assert seen == sorted(set(seen))
    # not even unregistering the last one, and a new controller, bring an old epoch back
    assert cluster.ask(UnregisterBrokerRequest(broker_id=1), 0).error_code == 0
    new = Simulated(9, journal=ListJournal(cluster.journal.records))
    assert new.epochs[9] > seen[-1]
    state = ControllerState()
    for record in new.controller.state.records():
        state.replay(record)
    assert state.last_broker_epoch == new.epochs[9]


def test_another_process_may_not_take_the_id_of_one_that_lives() -> None:
    cluster = Simulated(1)
    taken = ErrorCode.DUPLICATE_BROKER_REGISTRATION
    assert cluster.ask(registration(1, 77), 4).error_code == taken
    cluster.controller.connection_lost(
        1, cluster.epochs[1]
    )  # may be dead: the newcomer is believed
    assert cluster.ask(registration(1, 77), 4).error_code == 0
    cluster.advance(8999)
    assert cluster.ask(registration(1, 78), 4).error_code == taken
    cluster.advance(1)
    assert cluster.ask(registration(1, 78), 4).error_code == 0


def test_the_same_process_gets_its_epoch_again_when_it_asks_again() -> None:
    cluster = Simulated()
    first = cluster.ask(registration(1, 77), 4)
    cluster.brokers.take()
    again = cluster.ask(registration(1, 77), 4)
    assert (again.error_code, again.broker_epoch) == (0, first.broker_epoch)
    assert cluster.brokers.take() == []


def test_who_may_not_register() -> None:
    cluster = Simulated()
    cluster.controller.context.cluster_id = "c"
    other = cluster.ask(registration(1, 1, cluster_id="d"), 4)
    assert other.error_code == ErrorCode.INCONSISTENT_CLUSTER_ID
    for broker in (-1, 100):  # 100 is the controller
        assert cluster.ask(registration(broker, 1, cluster_id="c"), 4).error_code == 42
    assert cluster.controller.brokers == {}


def test_after_a_restart_of_all_a_new_process_need_not_wait_for_the_old_ones_lease() -> None:
    journal = ListJournal()
    Simulated(1, 2, journal=journal)
    new = Simulated(journal=ListJournal(journal.records))
    assert new.ask(registration(1, 77), 4).error_code == 0


def from_snapshot(*brokers: int) -> Simulated:
    """A controller with the journal of a snapshot: the brokers 1, 2 and 3 of "t" live, but have no addresses."""
    old = Simulated()
    for broker in (1, 2, 3):
        old.epochs[broker] = old.ask(registration(broker, 70 + broker), 4).broker_epoch
    old.create("t", [1, 2, 3])
    old.create("u", [1, 2])  # nothing changes in it when 3 is fenced
    records = [
        (key, {**value, "endpoints": []} if key.startswith("broker/") else value)
        for key, value in old.journal.records
    ]
    new = Simulated(journal=ListJournal(records), clock=old.clock)
    new.epochs = old.epochs
    new.brokers.take()
    for broker in brokers:
        answer = new.ask(registration(broker, 70 + broker), 4)
        assert answer.broker_epoch == old.epochs[broker]
    return new


def told(cluster: Simulated) -> set[int]:
    """The brokers that have got roles since the last call."""
    return {
        broker
        for broker, request in cluster.brokers.take()
        if isinstance(request, LeaderAndIsrRequest)
    }


def test_brokers_that_go_on_from_a_snapshot_keep_epochs_and_roles() -> None:
    new = from_snapshot(1, 2, 3)
    assert new.state("t") == "leader 1 ISR [1, 2, 3] LE 0 PE 0"
    assert told(new) == {1, 2, 3}
    assert [str(each.endpoints) for each in new.controller.brokers.values()] == [
        f"[L://h:{broker}]" for broker in (1, 2, 3)
    ]
    again = Simulated(journal=ListJournal(new.journal.records), clock=new.clock)
    assert all(each.endpoints for each in again.controller.brokers.values())


def test_they_get_their_roles_when_all_can_be_reached() -> None:
    new = from_snapshot(3, 1)
    assert told(new) == set()
    new.ask(registration(3, 73), 4)  # again: the first response was lost
    assert told(new) == set()
    new.ask(registration(2, 72), 4)
    assert told(new) == {1, 2, 3}


def test_they_do_not_wait_for_one_that_has_gone() -> None:
    new = from_snapshot(1, 2)
    assert told(new) == set()
    new.ask(registration(3, 99), 4)  # it has lost its files, and is another one
    full = {
        broker
        for broker, request in new.brokers.take()
        if isinstance(request, LeaderAndIsrRequest)
        and {state.topic_name for state in request.topic_states} >= {"t", "u"}
    }
    assert full >= {1, 2}
    assert new.state("t") == "leader 1 ISR [1, 2] LE 1 PE 1"


def test_a_broker_of_a_snapshot_that_is_not_up_yet_is_not_unreachable() -> None:
    new = from_snapshot(1, 2)
    new.controller.unreachable(3)
    new.advance(100)
    assert new.state("t") == "leader 1 ISR [1, 2, 3] LE 0 PE 0"


def warnings_of(cluster: Simulated) -> list[EventType]:
    return [event for event in cluster.logged.events if event.level >= WARNING]


def test_a_restart_of_the_whole_cluster_is_no_warning() -> None:
    old = Simulated(1, 2, 3)
    old.create("t", [1, 2])
    old.create("u", [3])
    new = Simulated(journal=ListJournal(old.journal.records), clock=old.clock)
    new.brokers.silent = {2, 3}
    new.ask(registration(1, 71), 4)
    new.controller.unreachable(2)
    new.controller.unreachable(3)
    new.advance(30)
    assert new.state("t") == "leader -1 ISR [2] LE 2 PE 2"
    assert new.state("u") == "leader -1 ISR [3] LE 1 PE 1"
    new.ask(registration(2, 72), 4)
    new.epochs[3] = new.ask(registration(3, 73), 4).broker_epoch
    assert (new.state("t"), new.state("u")) == (
        "leader 2 ISR [2] LE 3 PE 3",
        "leader 3 ISR [3] LE 2 PE 2",
    )
    assert warnings_of(new) == []
    ended = [(e["broker_id"], e["reason"]) for e in new.logged.of(Event.BROKER_RUN_ENDED)]
    assert ended == [(1, "registered_again"), (2, "unreachable"), (3, "unreachable")]
    waiting = [(e["topic"], e["reason"]) for e in new.logged.of(Event.PARTITION_WAITING)]
    assert waiting == [("t", "leader_not_started"), ("u", "leader_not_started")]
    new.kill(3)  # from now on it is a failure
    assert warnings_of(new) == [Event.BROKER_FENCED, Event.PARTITION_OFFLINE]


@pytest.mark.parametrize("reason", ["registered_again", "unreachable"])
def test_a_broker_that_dies_with_the_controller_has_failed(reason: str) -> None:
    old = Simulated(1, 2)
    old.create("t", [1])
    new = Simulated(journal=ListJournal(old.journal.records), clock=old.clock)
    new.epochs = old.epochs
    new.heartbeat(2)  # of the run before: only the controller is new
    if reason == "registered_again":
        new.ask(registration(1, 77), 4)
    else:
        new.controller.unreachable(1)
        new.advance(30)
    assert warnings_of(new) == [Event.BROKER_FENCED, Event.PARTITION_OFFLINE]
    (fenced,) = new.logged.of(Event.BROKER_FENCED)
    assert (fenced["broker_id"], fenced["reason"]) == (1, reason)


def test_a_broker_that_does_not_return_within_its_lease_has_failed() -> None:
    old = Simulated(1, 2)
    new = Simulated(journal=ListJournal(old.journal.records), clock=old.clock)
    new.advance(9000)
    reasons = [each["reason"] for each in new.logged.of(Event.BROKER_FENCED)]
    assert reasons == ["session_timeout", "session_timeout"]


# Leases


def test_heartbeats_keep_a_broker_alive_and_their_end_ends_it() -> None:
    cluster = Simulated(1)
    for _ in range(10):
        cluster.advance(8999)
        answer = cluster.heartbeat(1)
        assert (answer.error_code, answer.is_fenced, answer.is_caught_up) == (0, False, True)
    cluster.advance(8999)
    assert 1 in cluster.controller.brokers
    cluster.advance(1)
    assert cluster.controller.brokers == {}
    assert cluster.brokers.connected == set()
    assert cluster.heartbeat(1).error_code == ErrorCode.STALE_BROKER_EPOCH


def test_a_lost_connection_is_the_end_unless_the_broker_is_heard_of_within_30_ms() -> None:
    cluster = Simulated(1, 2)
    cluster.controller.connection_lost(1, cluster.epochs[1])
    cluster.advance(29)
    cluster.heartbeat(1)
    cluster.advance(100)
    assert sorted(cluster.controller.brokers) == [1, 2]
    cluster.controller.connection_lost(1, cluster.epochs[1] - 1)  # of an earlier life
    cluster.controller.connection_lost(7, 1)
    cluster.advance(100)
    assert sorted(cluster.controller.brokers) == [1, 2]
    cluster.controller.connection_lost(1, cluster.epochs[1])
    cluster.advance(30)
    assert sorted(cluster.controller.brokers) == [2]


def test_a_heartbeat_can_ask_for_the_shutdown() -> None:
    cluster = Simulated(1, 2)
    cluster.create("t", [1, 2])
    cluster.create("u", [1, 2])
    assert cluster.heartbeat(1, want_shut_down=True).should_shut_down
    assert cluster.partition("u").leader == 2


def test_unregistering() -> None:
    cluster = Simulated(1, 2)
    cluster.create("t", [1, 2])
    unknown = cluster.ask(UnregisterBrokerRequest(broker_id=7), 0)
    assert unknown.error_code == ErrorCode.BROKER_ID_NOT_REGISTERED
    assert cluster.ask(UnregisterBrokerRequest(broker_id=1), 0).error_code == 0
    assert cluster.state() == "leader 2 ISR [2] LE 1 PE 1"
    assert cluster.create("u", [1]).error_code == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert cluster.heartbeat(1).error_code == ErrorCode.STALE_BROKER_EPOCH


def test_a_replica_that_is_offline_already_is_logged_once() -> None:
    cluster = Simulated(1, 2)
    cluster.brokers.bad_disks.add((2, "t"))
    cluster.create("t", [1, 2])
    assert len(cluster.logged.of(Event.BROKER_REPLICA_OFFLINE)) == 1
    cluster.brokers.take()
    # when it reports a failed directory, and its roles are sent again to learn what was in it
    cluster.heartbeat(2, offline_log_dirs=[bytes(15) + b"d"])
    assert len(cluster.logged.of(Event.BROKER_REPLICA_OFFLINE)) == 1
    assert "1 metadata t-0 leader 1" not in cluster.brokers.words()


@pytest.mark.parametrize("factor", [1, 2])
def test_a_broker_that_stops_gets_no_new_replicas_but_those_nobody_else_can_take(
    factor: int,
) -> None:
    cluster = Simulated(1, 2)
    assert cluster.stop(1) == []
    topic = CreatableTopic(name="t", num_partitions=4, replication_factor=factor)
    cluster.ask(CreateTopicsRequest(topics=[topic]), 7)
    placed = [cluster.partition("t", index).replicas for index in range(4)]
    assert placed == [[2] if factor == 1 else [2, 1]] * 4


# What is sent, and when clients are answered


def test_the_order_to_a_broker_is_roles_metadata_stops() -> None:
    cluster = Simulated(1, 2, 3)
    cluster.create("t", [1, 2, 3])
    cluster.create("u", [1, 3])
    cluster.brokers.take()
    cluster.stop(3)
    kinds = [type(request) for broker, request in cluster.brokers.take() if broker == 3]
    assert kinds == [UpdateMetadataRequest, StopReplicaRequest]
    cluster.stop(1)
    told = cluster.brokers.take()
    order = [LeaderAndIsrRequest, UpdateMetadataRequest, StopReplicaRequest]
    for broker in (1, 2, 3):
        kinds = [order.index(type(request)) for to, request in told if to == broker]
        assert kinds == sorted(kinds)
    assert told[0][0] == 2  # the new leader hears before its followers


def test_a_request_carries_the_epochs_of_controller_and_broker() -> None:
    cluster = Simulated(1, 2)
    cluster.create("t", [1, 2])
    for broker, request in cluster.brokers.take():
        assert request.controller_id == 100
        assert request.controller_epoch == cluster.controller.epoch
        assert request.broker_epoch == cluster.epochs[broker]


def test_creation_is_answered_when_every_broker_knows() -> None:
    cluster = Simulated(1, 2, 3)
    cluster.brokers.silent |= {2, 3}
    answers: list[Any] = []
    request = CreateTopicsRequest(
        topics=[CreatableTopic(name="t", num_partitions=1, replication_factor=1)]
    )
    cluster.controller.submit(request, 7, answers.append)
    cluster.brokers.answer(2)
    assert answers == []
    # what fails or changes nothing does not wait
    assert cluster.create("t", [1]).error_code == ErrorCode.TOPIC_ALREADY_EXISTS
    # nor do brokers' requests
    assert cluster.heartbeat(3).error_code == 0
    # a broker that dies owes nothing any more
    cluster.kill(3)
    assert [answer.topics[0].error_code for answer in answers] == [0]


def test_deletion_waits_no_longer_for_brokers_than_its_time_out() -> None:
    cluster = Simulated(1, 2)
    cluster.create("t", [1, 2])
    cluster.brokers.silent.add(2)
    answers: list[Any] = []
    request = DeleteTopicsRequest(topics=[DeleteTopicState(name="t")], timeout_ms=500)
    cluster.controller.submit(request, 6, answers.append)
    assert (answers, cluster.brokers.timeouts_ms[-1]) == ([], 500)
    cluster.brokers.answer(2)
    assert [answer.responses[0].error_code for answer in answers] == [0]


def test_configurations_go_out_before_the_roles_of_the_topic_and_back_after_its_end() -> None:
    cluster = Simulated(1)
    cluster.create("t", [1], retention_ms="5")
    said: list[Any] = cluster.brokers.take()
    assert said[0] == (2, ("t", {"retention.ms": "5"}))
    assert isinstance(said[1][1], LeaderAndIsrRequest)
    cluster.delete("t")
    assert cluster.brokers.take()[-1] == (2, ("t", {}))


def test_cluster_wide_configuration_holds_for_the_controller_after_a_failover_too() -> None:
    cluster = Simulated(1)
    configs = [AlterableConfig(name="unclean.leader.election.enable", value="true")]
    resource = AlterConfigsResource(resource_type=4, resource_name="", configs=configs)
    cluster.ask(AlterConfigsRequest(resources=[resource]), 2)
    assert cluster.controller.config.log_config().unclean_leader_election_enable
    new = Simulated(journal=ListJournal(cluster.journal.records))
    assert new.controller.config.log_config().unclean_leader_election_enable


# Producer ids


def test_no_producer_id_is_given_out_twice() -> None:
    cluster = Simulated(1, 2)
    starts = []
    for broker in (1, 2, 1):
        request = AllocateProducerIdsRequest(broker_id=broker, broker_epoch=cluster.epochs[broker])
        answer = cluster.ask(request, 0)
        assert (answer.error_code, answer.producer_id_len) == (0, 1000)
        starts.append(answer.producer_id_start)
    new = Simulated(1, journal=ListJournal(cluster.journal.records))
    request = AllocateProducerIdsRequest(broker_id=1, broker_epoch=new.epochs[1])
    starts.append(new.ask(request, 0).producer_id_start)
    assert starts == [0, 1000, 2000, 3000]
    request = AllocateProducerIdsRequest(broker_id=1, broker_epoch=99)
    assert new.ask(request, 0).error_code == ErrorCode.STALE_BROKER_EPOCH


# More partitions


@pytest.mark.parametrize(
    ("away", "leaders"), [(None, [2, 3, 4, 1, 2]), (2, [4, 1, 3, 4, 1]), (4, [3, 1, 2, 3, 1])]
)
def test_added_partitions_go_on_from_the_first_broker_of_the_topic_or_the_next_that_lives(
    away: int | None, leaders: list[int]
) -> None:
    cluster = Simulated(1, 2, 3, 4)
    cluster.create("t", [2], [3], [4], [1])
    if away is not None:
        cluster.kill(away)
    more = CreatePartitionsTopic(name="t", count=9, assignments=None)
    cluster.ask(CreatePartitionsRequest(topics=[more]), 3)
    placed = [cluster.partition("t", index).replicas for index in range(4, 9)]
    assert [broker for (broker,) in placed] == leaders


# Preferred leaders


def balanced_later(cluster: Simulated) -> None:
    """Ten partitions that broker 1 should lead, all led by 2."""
    cluster.create("t", *[[1, 2]] * 10)
    cluster.kill(1)
    cluster.start(1)
    for index in range(10):
        state = cluster.partition("t", index)
        state.isr = [2, 1]  # as after as many AlterPartitions
    cluster.brokers.take()


def beat(cluster: Simulated, seconds: int) -> None:
    for _ in range(seconds):
        cluster.advance(1000)
        for broker in list(cluster.controller.brokers):
            cluster.heartbeat(broker)


def test_leaders_go_back_to_where_they_belong_by_themselves() -> None:
    cluster = Simulated(1, 2)
    balanced_later(cluster)
    beat(cluster, 4)
    assert cluster.controller.metrics()["PreferredReplicaImbalanceCount"] == 10
    beat(cluster, 1)
    assert cluster.controller.metrics()["PreferredReplicaImbalanceCount"] == 0
    assert cluster.controller.metrics()["elections.preferred"] == 10


def test_leaders_go_back_at_every_interval() -> None:
    cluster = Simulated(1, 2, leader_imbalance_check_interval_seconds="20")
    beat(cluster, 6)
    balanced_later(cluster)
    beat(cluster, 18)
    assert cluster.controller.metrics()["PreferredReplicaImbalanceCount"] == 10
    beat(cluster, 1)
    assert cluster.controller.metrics()["PreferredReplicaImbalanceCount"] == 0


def test_a_partition_on_the_move_is_led_by_whom_it_belongs_to_as_well() -> None:
    cluster = Simulated(1, 2, 3)
    cluster.create("t", [1, 2])
    topic = ReassignableTopic(
        name="t", partitions=[ReassignablePartition(partition_index=0, replicas=[2, 3])]
    )
    cluster.ask(AlterPartitionReassignmentsRequest(topics=[topic]), 0)
    assert cluster.state() == "leader 1 ISR [1, 2] LE 1 PE 1 of [2, 3, 1] +[3] -[1]"
    beat(cluster, 6)
    assert cluster.state() == "leader 2 ISR [1, 2] LE 2 PE 2 of [2, 3, 1] +[3] -[1]"


def test_a_little_imbalance_is_let_be_and_so_is_all_of_it_when_switched_off() -> None:
    cluster = Simulated(1, 2)
    balanced_later(cluster)
    for index in range(9):
        p = cluster.partition("t", index)
        p.leader = 1
    beat(cluster, 6)
    assert cluster.partition("t", 9).leader == 2  # one of ten is not more than 10 %
    off = Simulated(1, 2, auto_leader_rebalance_enable="false")
    balanced_later(off)
    beat(off, 6)
    assert off.partition("t", 0).leader == 2


# What people see


def test_what_happened_is_counted_kept_and_said() -> None:
    cluster = Simulated(1, 2)
    cluster.create("t", [1, 2])
    cluster.kill(1)
    assert str(cluster.controller.events[-1]) == (
        "t-0: leader 1 -> 2, ISR 1,2 -> 2, leader epoch 1, partition epoch 1 (offline)"
    )
    assert cluster.logged.events[-2:] == [Event.BROKER_FENCED, Event.LEADER_ELECTED]
    (fenced,) = cluster.logged.of(Event.BROKER_FENCED)
    assert (fenced["broker_id"], fenced["reason"]) == (1, "connection_lost")
    elected = cluster.logged.last.fields
    assert (elected["previous_leader"], elected["leader"], elected["reason"]) == (1, 2, "offline")
    assert cluster.logged.texts[-2:] == [
        "broker 1 (epoch 1) has failed: its connection has ended",
        str(cluster.controller.events[-1]),
    ]
    metrics = cluster.controller.metrics()
    assert metrics["elections.offline"] == 1
    assert metrics["isr.shrinks"] == 1
    assert metrics["ActiveBrokerCount"] == 1
    cluster.kill(2)
    assert cluster.controller.metrics()["OfflinePartitionsCount"] == 1


def test_the_reason_of_an_election_says_why_that_replica_leads() -> None:
    cluster = Simulated(1, 2)
    cluster.create("t", [2, 1])
    partitions, step = cluster.controller.partitions, cluster.controller.step
    step(lambda: partitions.appoint("t", 0, 1, False))
    step(lambda: partitions.appoint("t", 0, 2, False))  # the preferred one, but named all the same
    cluster.kill(1)
    cluster.kill(2)
    cluster.start(2)
    reasons = [
        (each["previous_leader"], each["leader"], each["reason"])
        for each in cluster.logged.of(Event.LEADER_ELECTED)
    ]
    assert reasons == [(2, 1, "appointed"), (1, 2, "appointed"), (None, 2, "online_again")]
    counts = cluster.controller.metrics()
    assert (counts["elections.appointed"], counts["elections.online again"]) == (2, 1)


def test_only_a_live_replica_is_appointed_and_one_that_is_behind_only_uncleanly() -> None:
    cluster = Simulated(1, 2, 3)
    cluster.create("t", [1, 2, 3])
    cluster.alter(1, [1, 3])
    cluster.kill(3)
    partitions, step = cluster.controller.partitions, cluster.controller.step
    for broker, unclean in ((2, False), (3, False), (3, True)):
        with pytest.raises(KafkaError) as raised:
            step(lambda b=broker, u=unclean: partitions.appoint("t", 0, b, u))  # type: ignore[misc]
        assert raised.value.code is ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE
        assert cluster.partition().leader == 1
    step(lambda: partitions.appoint("t", 0, 2, True))
    assert (cluster.partition().leader, cluster.partition().isr) == (2, [2])


# Storage


def test_a_controller_that_cannot_journal_a_failure_resigns() -> None:
    cluster = Simulated(1, 2)
    cluster.create("t", [1, 2])
    cluster.journal.fail = True
    answer = cluster.create("u", [1])
    assert answer.error_code == ErrorCode.KAFKA_STORAGE_ERROR  # a client's request may fail
    assert cluster.controller.active
    cluster.kill(1)  # a broker's death cannot
    assert not cluster.controller.active
    assert cluster.heartbeat(2).error_code == ErrorCode.NOT_CONTROLLER
    cluster.advance(100_000)


def test_a_broker_whose_failure_could_not_be_journaled_fails_again() -> None:
    """Its next process registers, which the journal refuses, and never returns: another replica leads all the same."""
    cluster = Simulated(1, 2)
    cluster.create("t", [1, 2])
    cluster.controller.connection_lost(1, cluster.epochs[1])
    cluster.journal.fail = True
    answer = cluster.ask(registration(1, 77), 4)
    assert answer.error_code == ErrorCode.KAFKA_STORAGE_ERROR
    cluster.journal.fail = False
    assert cluster.partition().leader == 1 and 1 in cluster.controller.brokers
    cluster.advance(30)
    assert cluster.partition().leader == 2 and 1 not in cluster.controller.brokers
    assert not cluster.controller.state.registrations[1]["live"]


def test_a_step_flushes_once_what_it_has_journaled_before_anybody_hears_of_it() -> None:
    cluster = Simulated(1, 2)
    journal, said = cluster.journal, []
    flush = journal.flush

    def flushed() -> None:
        said.append((journal.flushed, len(journal.records)))
        flush()

    cluster.journal.flush = flushed  # type: ignore[method-assign]
    before = len(journal.records)
    cluster.create("t", [1, 2], [2, 1])
    assert said == [(before, len(journal.records))]
    cluster.kill(1)  # journals the death and two elections
    assert journal.flushed == len(journal.records)


@pytest.mark.parametrize("request_", ["client", "death"])
def test_a_controller_that_cannot_flush_its_journal_resigns(request_: str) -> None:
    cluster = Simulated(1, 2)
    cluster.create("t", [1, 2])
    cluster.journal.fail_flush = True
    if request_ == "client":
        assert cluster.create("u", [1]).error_code == ErrorCode.KAFKA_STORAGE_ERROR
    else:
        cluster.kill(1)
    assert not cluster.controller.active
    assert cluster.brokers.connected == set()
    assert cluster.heartbeat(2).error_code == ErrorCode.NOT_CONTROLLER


def test_a_flushed_journal_survives_a_power_cut_and_an_unflushed_tail_is_cut_off() -> None:
    store = MemoryLogStore()
    journal = StoreJournal(store)
    journal.append([("config/2/a", {"k": "1"})])
    journal.append([("config/2/b", {"k": "2"})])
    journal.flush()
    journal.append([("config/2/c", {"k": "3"})])
    store.crash(lambda size: size // 2)
    again = StoreJournal(store)
    assert [key for key, _ in again.replay()] == ["config/2/a", "config/2/b"]
    assert again.truncated_bytes > 0


def test_the_file_refuses_the_writes_of_a_deposed_controller() -> None:
    store = MemoryLogStore()
    old = StoreJournal(store)
    list(old.replay())
    old.append([("config/2/a", {"k": "1"})])
    new = StoreJournal(store)
    list(new.replay())
    new.append([("config/2/b", {"k": "2"})])
    size = store.size(JOURNAL_FILE)
    with pytest.raises(DeposedError):
        old.append([("config/2/c", {"k": "3"})])
    assert store.size(JOURNAL_FILE) == size
    new.append([("config/2/d", {"k": "4"})])
    new.rewrite([("config/2/e", {"k": "5"})])  # happens to be as long as what the old one knew
    with pytest.raises(KafkaError):
        old.append([("config/2/c", {"k": "3"})])
    new.append([("config/2/f", {"k": "6"})])
    assert [key for key, _ in StoreJournal(store).replay()] == ["config/2/e", "config/2/f"]


# Refusals


TOPIC = CreatableTopic(name="t", num_partitions=1, replication_factor=1)


@pytest.mark.parametrize(
    "request_",
    [
        CreateTopicsRequest(topics=[TOPIC]),
        DeleteTopicsRequest(topics=[DeleteTopicState(name="t")]),
        CreatePartitionsRequest(topics=[CreatePartitionsTopic(name="t", count=2)]),
        AlterConfigsRequest(resources=[AlterConfigsResource(resource_type=2, resource_name="t")]),
        ElectLeadersRequest(topic_partitions=[TopicPartitions(topic="t", partitions=[0])]),
        AlterPartitionReassignmentsRequest(),
        ListPartitionReassignmentsRequest(),
        UnregisterBrokerRequest(broker_id=1),
        AlterPartitionRequest(broker_id=1),
        BrokerRegistrationRequest(broker_id=1),
        BrokerHeartbeatRequest(broker_id=1),
        AllocateProducerIdsRequest(broker_id=1),
    ],
    ids=lambda request: type(request).__name__,
)
def test_whoever_is_not_the_controller_says_so_in_every_version(request_: Any) -> None:
    cluster = Simulated()
    cluster.controller.resign("isolated", "for the test")
    lowest, highest = type(request_).versions
    for version in range(lowest, highest + 1):
        answers: list[Any] = []
        cluster.controller.submit(request_, version, answers.append)
        assert "41" in repr(answers[0]), answers
        assert answers[0].encode(version)
        if isinstance(request_, ElectLeadersRequest):
            (result,) = answers[0].replica_election_results[0].partition_result
            assert (result.partition_id, result.error_code) == (0, ErrorCode.NOT_CONTROLLER)
        assert refusal(request_, version, ErrorCode.REQUEST_TIMED_OUT, "late").encode(version)


# Elections as functions


def test_elections() -> None:
    replicas, isr = [1, 2, 3], [3, 2]
    assert election.offline(replicas, isr, {1, 2, 3}) == (2, [3, 2], False)
    assert election.offline(replicas, isr, {1, 3}) == (3, [3], False)
    assert election.offline(replicas, isr, {1}) is None
    assert election.unclean(replicas, {3}) == (3, [3], True)
    assert election.unclean(replicas, {4}) is None
    assert election.preferred(replicas, isr, {1, 2, 3}) is None
    assert election.preferred([3, 1], isr, {3}) == (3, [3, 2], False)
    assert election.preferred([3, 1], isr, {1}) is None
    assert election.reassignment([4, 3], isr, {3, 4}) == (3, [3, 2], False)
    assert election.reassignment([4], isr, {4}) is None
    assert election.controlled_shutdown([3, 2], isr, {2, 3}, {3}) == (2, [2], False)
    assert election.controlled_shutdown([3, 2], isr, {2, 3}, {2, 3}) is None


def test_the_table_of_moves_names_the_same_states_on_both_sides() -> None:
    sources = {source for allowed in PARTITION_MOVES.values() for source in allowed}
    assert sources <= set(PARTITION_MOVES)
