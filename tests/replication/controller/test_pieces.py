"""A long change of the controller goes on in pieces: what brokers are told, and what comes between two pieces.

Each piece is one partition here, and each turn of the work does one.
"""

from __future__ import annotations

from typing import Any

import pytest
from controller_harness import ListJournal, Simulated, in_words

from kwire.protocol.errors import ErrorCode, KafkaError
from kwire.protocol.schemas.control_plane import LeaderAndIsrRequest, UpdateMetadataRequest
from kwire.protocol.schemas.nodes import BrokerHeartbeatRequest
from kwire.protocol.schemas.topics import (
    CreatableTopic,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    CreateTopicsRequest,
)
from kwire.replication.controller.line import Line
from kwire.replication.core.work import WorkQueue


class Cut(Simulated):
    """A cluster whose controller does as little as it can in one turn."""

    def __init__(self, *brokers: int, journal: ListJournal | None = None, **settings: str) -> None:
        super().__init__(*brokers, journal=journal, **settings)
        self.work = WorkQueue(self.clock)
        self.cut()

    def cut(self) -> None:
        self.work.first_units = self.work.turn_units = 1
        self.controller.context.piece = 1
        self.controller.line._work = self.work

    def turn(self, times: int = 1) -> None:
        for _ in range(times):
            self.work.turn()

    def finish(self) -> None:
        while self.work.jobs:
            self.work.turn()

    def later(self, request: Any, version: int) -> list[Any]:
        """The answers to a request, as they come."""
        answers: list[Any] = []
        self.controller.submit(request, version, answers.append)
        return answers

    def leaders(self, topic: str = "t") -> list[int]:
        return [p.leader for p in self.controller.state.topics[topic].partitions]

    def is_live_in_journal(self, broker: int) -> bool:
        return bool(self.controller.state.registrations[broker]["live"])


@pytest.fixture
def cluster() -> Cut:
    """Brokers 1, 2 and 3; 1 leads three partitions that 2 follows."""
    cluster = Cut(1, 2, 3)
    cluster.create("t", [1, 2], [1, 2], [1, 2])
    cluster.finish()
    cluster.brokers.take()
    return cluster


def test_a_failure_goes_on_in_pieces_each_journaled_and_sent(cluster: Cut) -> None:
    cluster.kill(1)
    assert cluster.leaders() == [2, 1, 1]
    assert cluster.controller.line.is_changing
    assert 1 not in cluster.controller.brokers and cluster.is_live_in_journal(1)
    assert cluster.brokers.words(2) == [
        "leads t-0 LE 1 PE 1 ISR [2] of [1, 2]",
        "metadata t-0 leader 2",
    ]
    assert cluster.journal.flushed == len(cluster.journal.records)
    assert 1 not in cluster.brokers.connected
    cluster.turn()
    assert cluster.leaders() == [2, 2, 1] and cluster.is_live_in_journal(1)
    cluster.finish()
    assert cluster.leaders() == [2, 2, 2] and not cluster.is_live_in_journal(1)
    assert cluster.brokers.words(3) == ["metadata t-1 leader 2", "metadata t-2 leader 2"]
    assert not cluster.controller.line.is_changing


def test_the_first_piece_says_who_is_alive(cluster: Cut) -> None:
    cluster.kill(1)
    updates = [r for _, r in cluster.brokers.take() if isinstance(r, UpdateMetadataRequest)]
    assert [[b.id for b in update.live_brokers] for update in updates] == [[2, 3], [2, 3]]


def test_a_topic_waits_and_is_placed_without_the_dead(cluster: Cut) -> None:
    cluster.kill(1)
    answer = cluster.create("u", [2, 3])
    assert answer is None and "u" not in cluster.controller.state.topics
    cluster.finish()
    assert cluster.leaders() == [2, 2, 2] and cluster.leaders("u") == [2]


def test_a_registration_waits_for_the_end_of_its_predecessor(cluster: Cut) -> None:
    cluster.kill(1)
    epoch = cluster.epochs[1]
    request = registration(cluster, 1)
    answers = cluster.later(request, 4)
    assert not answers
    cluster.finish()
    assert answers[0].broker_epoch > epoch
    assert cluster.is_live_in_journal(1) and cluster.leaders() == [2, 2, 2]
    words = cluster.brokers.words(1)
    assert words[:3] == [f"metadata t-{index} leader 2" for index in range(3)]
    assert words[3].startswith("follows 2 t-0 LE 1")


def registration(cluster: Cut, broker: int) -> Any:
    from kwire.protocol.schemas.nodes import BrokerRegistrationRequest, Listener

    return BrokerRegistrationRequest(
        broker_id=broker,
        incarnation_id=b"another".ljust(16),
        listeners=[Listener(name="L", host=f"h{broker}", port=broker)],
        previous_broker_epoch=-1,
    )


def test_a_second_failure_finds_the_first_one_done() -> None:
    cluster = Cut(1, 2, 3)
    cluster.create("t", [1, 2], [2, 1], [1, 3])
    cluster.finish()
    cluster.kill(1)
    cluster.kill(2)
    assert cluster.controller.line.waiting
    cluster.finish()
    # 2 was elected before it died, and is the last of the ISR: as if one had followed the other at once.
    assert cluster.state("t", 0) == "leader -1 ISR [2] LE 2 PE 2"
    assert cluster.state("t", 1) == "leader -1 ISR [2] LE 2 PE 2"
    assert cluster.state("t", 2) == "leader 3 ISR [3] LE 1 PE 1"
    assert not cluster.is_live_in_journal(1) and not cluster.is_live_in_journal(2)


def test_who_stops_takes_over_from_the_dead_first(cluster: Cut) -> None:
    """Else it would leave the ISR of a dead leader, and nobody could be elected."""
    cluster.kill(1)
    request = BrokerHeartbeatRequest(
        broker_id=2, broker_epoch=cluster.epochs[2], want_shut_down=True
    )
    answers = cluster.later(request, 1)
    assert not answers and not cluster.controller.brokers[2].shutting_down
    cluster.finish()
    assert cluster.leaders() == [2, 2, 2]
    assert not answers[0].should_shut_down


def test_a_stop_goes_on_in_pieces(cluster: Cut) -> None:
    request = BrokerHeartbeatRequest(
        broker_id=1, broker_epoch=cluster.epochs[1], want_shut_down=True
    )
    answers = cluster.later(request, 1)
    assert cluster.leaders() == [2, 1, 1] and not answers
    assert cluster.brokers.words(1) == [
        "follows 2 t-0 LE 1 PE 1 ISR [2] of [1, 2]",
        "metadata t-0 leader 2",
    ]
    cluster.finish()
    assert cluster.leaders() == [2, 2, 2] and answers[0].should_shut_down


def test_a_follower_that_stops_is_told_so_in_pieces(cluster: Cut) -> None:
    request = BrokerHeartbeatRequest(
        broker_id=2, broker_epoch=cluster.epochs[2], want_shut_down=True
    )
    answers = cluster.later(request, 1)
    assert [p.isr for p in cluster.controller.state.topics["t"].partitions] == [[1], [1, 2], [1, 2]]
    assert cluster.brokers.words(2) == ["metadata t-0 leader 1", "stop t-0 LE 1"]
    cluster.finish()
    assert answers[0].should_shut_down
    assert [p.isr for p in cluster.controller.state.topics["t"].partitions] == [[1], [1], [1]]


def test_a_controller_that_takes_over_between_pieces_finishes(cluster: Cut) -> None:
    cluster.kill(1)
    assert cluster.leaders() == [2, 1, 1]
    other = Simulated(journal=ListJournal(list(cluster.journal.records)), clock=cluster.clock)
    assert set(other.controller.brokers) == {1, 2, 3}
    other.epochs = cluster.epochs
    other.heartbeat(2)
    other.heartbeat(3)
    other.controller.unreachable(1)
    other.advance(30)
    assert [other.partition("t", index).leader for index in range(3)] == [2, 2, 2]
    assert not other.controller.state.registrations[1]["live"]


def test_a_journal_that_refuses_a_later_piece_ends_the_controller(cluster: Cut) -> None:
    cluster.kill(1)
    answers = cluster.later(registration(cluster, 1), 4)
    cluster.brokers.take()
    cluster.journal.fail = True
    cluster.turn()
    assert not cluster.controller.active
    cluster.finish()
    assert answers[0].error_code == ErrorCode.NOT_CONTROLLER
    assert cluster.leaders() == [2, 1, 1] and not cluster.brokers.take()


def test_a_registration_whose_rest_is_refused_ends_the_controller(cluster: Cut) -> None:
    """Else the broker would take its next attempt for a retry, and never get its roles."""
    cluster.kill(1)
    cluster.finish()
    cluster.create("u", [1], [1])
    cluster.finish()
    commit = cluster.controller.changelog.commit

    def commit_registration(records: list[Any]) -> None:
        commit(records)
        cluster.journal.fail = any(key.startswith("broker/") for key, _ in records)

    cluster.controller.changelog.commit = commit_registration  # type: ignore[method-assign]
    answers = cluster.later(registration(cluster, 1), 4)
    cluster.finish()
    assert answers[0].error_code and not cluster.controller.active


def test_what_is_asked_while_the_controller_resigns_is_refused(cluster: Cut) -> None:
    cluster.kill(1)
    undecided: list[bool] = []
    answers: list[Any] = []
    request = registration(cluster, 1)
    cluster.controller.submit(request, 4, answers.append, lambda: undecided.append(True))
    cluster.controller.resign("deposed", "another")
    said = len(cluster.brokers.said)
    before = len(cluster.journal.records)
    cluster.finish()
    assert undecided == [True] and not answers
    assert len(cluster.brokers.said) == said and len(cluster.journal.records) == before


def test_a_heartbeat_waits_for_nothing(cluster: Cut) -> None:
    cluster.kill(1)
    assert cluster.heartbeat(2).error_code == 0
    assert cluster.heartbeat(1).error_code == ErrorCode.STALE_BROKER_EPOCH
    assert cluster.controller.line.is_changing and not cluster.controller.line.waiting


def test_a_request_that_waits_renews_the_lease_when_it_comes() -> None:
    cluster = Cut(1, 2, 3, broker_session_timeout_ms="1000")
    cluster.create("t", [1, 2], [1, 2], [1, 2])
    cluster.finish()
    cluster.advance(900)
    cluster.kill(1)  # at 930
    cluster.later(alter(cluster, 2), 3)
    cluster.heartbeat(3)
    cluster.advance(500)
    cluster.finish()
    assert set(cluster.controller.brokers) == {2, 3}


def alter(cluster: Cut, sender: int) -> Any:
    from kwire.protocol.schemas.control_plane import AlterPartitionRequest

    return AlterPartitionRequest(broker_id=sender, broker_epoch=cluster.epochs[sender], topics=[])


def test_the_request_of_a_broker_that_died_since_does_not_keep_it_alive(cluster: Cut) -> None:
    cluster.kill(1)
    cluster.later(alter(cluster, 3), 3)
    cluster.controller.connection_lost(3, cluster.epochs[3])
    cluster.finish()
    cluster.advance(30)
    cluster.finish()
    assert set(cluster.controller.brokers) == {2}


def test_who_returns_while_its_failure_waits_is_not_fenced(cluster: Cut) -> None:
    cluster.kill(1)
    cluster.kill(3)
    cluster.advance(1)
    cluster.heartbeat(3)
    cluster.finish()
    assert set(cluster.controller.brokers) == {2, 3}


def test_a_failure_that_waits_is_not_that_of_the_next_incarnation(cluster: Cut) -> None:
    cluster.kill(1)
    cluster.controller.connection_lost(3, cluster.epochs[3])
    answers = cluster.later(registration(cluster, 3), 4)
    cluster.advance(30)
    # The failure of the old process waits behind the registration of the new one.
    assert len(cluster.controller.line.waiting) == 2
    cluster.finish()
    assert answers[0].error_code == 0 and set(cluster.controller.brokers) == {2, 3}


def test_an_answer_of_a_broker_waits_for_the_change(cluster: Cut) -> None:
    """KAFKA_STORAGE_ERROR for a partition, in the middle of a failure."""
    cluster.brokers.bad_disks.add((2, "t"))
    cluster.kill(1)
    cluster.turn()
    assert cluster.leaders() == [2, 2, 1]  # broker 2 has answered by then, that it cannot read them
    cluster.finish()
    assert cluster.leaders() == [-1, -1, -1]


def test_what_is_done_at_once_finishes_the_change_first(cluster: Cut) -> None:
    cluster.kill(1)
    cluster.controller.step(lambda: cluster.controller.partitions.appoint("t", 1, 2, False))
    assert cluster.leaders() == [2, 2, 2] and not cluster.is_live_in_journal(1)
    cluster.finish()


def test_a_change_that_fails_does_not_stop_the_line(cluster: Cut) -> None:
    done: list[str] = []

    def failing() -> Any:
        yield 1
        raise RuntimeError("a bug")

    def good() -> Any:
        yield 1
        done.append("good")

    line: Line = cluster.controller.line
    line.add(failing())
    line.add(good())
    with pytest.raises(RuntimeError):
        cluster.finish()
    cluster.finish()
    assert done == ["good"] and not line.is_changing


def test_many_without_a_leader_are_elected_in_pieces(cluster: Cut) -> None:
    cluster.create("u", [3, 1], [3, 1])
    cluster.finish()
    for broker in (1, 3):
        cluster.kill(broker)
        cluster.finish()
    assert cluster.leaders("u") == [-1, -1]
    cluster.brokers.take()
    answers = cluster.later(registration(cluster, 3), 4)
    while cluster.leaders("u") == [-1, -1]:
        cluster.turn()
    assert cluster.leaders("u") == [3, -1] and not answers
    cluster.finish()
    assert cluster.leaders("u") == [3, 3] and not answers[0].error_code
    roles = [r for to, r in cluster.brokers.take() if to == 3]
    kinds = [type(r) for r in roles if isinstance(r, LeaderAndIsrRequest | UpdateMetadataRequest)]
    assert kinds[:2] == [UpdateMetadataRequest, LeaderAndIsrRequest]
    assert [line[:9] for line in in_words(3, roles[1])] == ["leads u-0", "leads u-1"]


def test_the_error_of_a_journal_is_that_of_the_piece(cluster: Cut) -> None:
    changes = cluster.controller.changelog.begin()
    topic = cluster.controller.state.topics["t"]
    changes.set_state(topic, 0, topic.partitions[0], "test")
    cluster.journal.fail = True
    with pytest.raises(KafkaError):
        changes.commit()
    assert cluster.controller.active


def test_a_topic_of_many_partitions_is_announced_whole(cluster: Cut) -> None:
    """Clients count the partitions of a topic: its metadata is one request, made in parts."""
    topic = CreatableTopic(name="u", num_partitions=250, replication_factor=2)
    answers = cluster.later(CreateTopicsRequest(topics=[topic]), 7)
    cluster.turn(3)
    assert len(cluster.leaders("u")) == 250 and not answers and not cluster.brokers.take()
    cluster.controller.connection_lost(1, cluster.epochs[1])
    cluster.advance(30)
    cluster.finish()
    assert answers[0].topics[0].error_code == 0
    said = [r for _, r in cluster.brokers.take() if isinstance(r, UpdateMetadataRequest)]
    assert sum(len(t.partition_states) for t in said[0].topic_states) == 250
    assert 1 not in cluster.leaders("u")  # the failure came after all


def test_more_partitions_are_announced_in_one(cluster: Cut) -> None:
    more = CreatePartitionsTopic(name="t", count=303, assignments=None)
    answers = cluster.later(CreatePartitionsRequest(topics=[more]), 3)
    cluster.turn()
    assert not answers and not cluster.brokers.take()
    cluster.finish()
    assert answers[0].results[0].error_code == 0
    said = [r for to, r in cluster.brokers.take() if isinstance(r, UpdateMetadataRequest)]
    assert {len(r.topic_states[0].partition_states) for r in said} == {300}
