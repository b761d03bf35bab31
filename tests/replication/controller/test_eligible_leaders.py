"""Eligible leader replicas (KIP-966): who is remembered, who is elected, what is forgotten."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from controller_harness import ListJournal, Simulated

from kwire.protocol.schemas.configs import (
    AlterableConfig,
    AlterConfigsRequest,
    AlterConfigsResource,
)
from kwire.protocol.schemas.metadata import DescribeTopicPartitionsRequest, TopicRequest
from kwire.replication.controller.eligible_leaders import update_eligible
from kwire.replication.controller.state import PartitionState
from kwire.replication.core.events import Event

ON = {"eligible_leader_replicas_enable": "true"}


def with_three(**settings: str) -> Simulated:
    """t-0 on 1, 2, 3, all in sync; two of them are enough."""
    cluster = Simulated(1, 2, 3, **{**ON, **settings})
    cluster.create("t", [1, 2, 3], min_insync_replicas="2")
    return cluster


def lists(cluster: Simulated) -> tuple[list[int], list[int]]:
    """Eligible leaders and last known ones, as DescribeTopicPartitions has them."""
    request = DescribeTopicPartitionsRequest(topics=[TopicRequest(name="t")])
    topics = cluster.ask(request, 0).topics
    if not topics:
        return [], []
    (partition,) = topics[0].partitions
    return partition.eligible_leader_replicas, partition.last_known_elr


def test_S88_last_standing_with_eligible_leaders_kept() -> None:
    # given min.isr 2, ISR 3; when 3 and then 2 leave, then who left under min.isr is remembered
    cluster = with_three()
    cluster.alter(1, [1, 2])
    assert lists(cluster) == ([], [])
    cluster.alter(1, [1])
    assert lists(cluster) == ([2], [])
    # when the last one dies, then 2, alive, has all that is committed and leads
    cluster.kill(1)
    assert cluster.state() == "leader 2 ISR [2] LE 1 PE 3"
    assert lists(cluster) == ([1], [])
    # when the ISR is large enough again, then nobody need be remembered
    cluster.alter(2, [2, 3])
    assert lists(cluster) == ([], [])
    assert "eligible leaders 1 -> none" in cluster.logged.last.text
    assert (cluster.logged.last.fields["previous_elr"], cluster.logged.last.fields["elr"]) == (
        [1],
        [],
    )


def test_S88_without_it_the_partition_waits_for_the_last_of_its_isr() -> None:
    cluster = with_three(eligible_leader_replicas_enable="false")
    cluster.alter(1, [1, 2])
    cluster.alter(1, [1])
    cluster.kill(1)
    assert cluster.state() == "leader -1 ISR [1] LE 1 PE 3"
    assert lists(cluster) == ([], [])


def test_S88_the_isr_becomes_empty_and_who_stopped_in_order_leads_again() -> None:
    cluster = with_three()
    for broker in (3, 2, 1):
        cluster.kill(broker)
    assert cluster.state() == "leader -1 ISR [] LE 3 PE 3"
    assert lists(cluster) == ([1, 2], [1])
    cluster.start(3, clean=True)  # was in sync when there were enough without it
    assert cluster.state() == "leader -1 ISR [] LE 3 PE 3"
    cluster.start(2, clean=True)
    assert cluster.state() == "leader 2 ISR [2] LE 4 PE 4"
    assert lists(cluster) == ([1], [])


def test_S88_who_stopped_uncleanly_is_not_eligible_any_more() -> None:
    cluster = with_three()
    for broker in (3, 2, 1):
        cluster.kill(broker)
    cluster.start(2)
    assert cluster.state() == "leader -1 ISR [] LE 3 PE 3"
    assert lists(cluster) == ([1], [1])


def test_S88_the_last_leader_leads_again_when_nobody_is_eligible_and_has_to_recover() -> None:
    cluster = with_three()
    for broker in (3, 2, 1):
        cluster.kill(broker)
    cluster.start(2)
    cluster.start(3)
    cluster.start(1)
    assert cluster.state() == "leader 1 ISR [1] LE 4 PE 4 recovering"
    assert lists(cluster) == ([], [])
    (elected,) = cluster.logged.of(Event.UNCLEAN_LEADER_ELECTED)
    assert (elected["leader"], elected["reason"]) == (1, "last_known_leader")
    assert any("(last known leader)" in text for text in cluster.logged.texts[-2:])


def test_an_unclean_election_may_still_be_asked_for() -> None:
    cluster = with_three(unclean_leader_election_enable="true")
    for broker in (3, 2, 1):
        cluster.kill(broker)
    cluster.start(3)
    assert cluster.state() == "leader 3 ISR [3] LE 4 PE 4 recovering"
    assert lists(cluster) == ([1, 2], [])


def test_the_next_controller_remembers_them_too() -> None:
    cluster = with_three()
    for broker in (3, 2, 1):
        cluster.kill(broker)
    new = Simulated(journal=ListJournal(cluster.journal.records), **ON)
    new.epochs = dict(cluster.epochs)
    assert lists(new) == ([1, 2], [1])
    new.start(2, clean=True)
    assert new.state() == "leader 2 ISR [2] LE 4 PE 4"


def test_an_unclean_stop_is_known_by_the_epoch_that_a_broker_has_from_its_last_run() -> None:
    cluster = with_three()
    cluster.alter(1, [1, 3])
    cluster.alter(1, [1])
    cluster.kill(3)
    cluster.start(3)
    assert lists(cluster) == ([], [])
    cluster.alter(1, [1, 3], member_epochs={3: cluster.epochs[3]})
    cluster.alter(1, [1])
    assert lists(cluster) == ([3], [])
    cluster.kill(3)
    cluster.start(3, clean=True)
    assert lists(cluster) == ([3], [])


def test_fewer_that_have_to_be_in_sync_let_the_high_watermark_go_on_without_the_others() -> None:
    cluster = with_three()
    cluster.alter(1, [1, 2])
    cluster.alter(1, [1])
    assert lists(cluster) == ([2], [])
    config = AlterableConfig(name="min.insync.replicas", value="1")
    resource = AlterConfigsResource(resource_type=2, resource_name="t", configs=[config])
    cluster.ask(AlterConfigsRequest(resources=[resource]), 2)
    assert lists(cluster) == ([], [])
    assert (
        cluster.alter(1, [1, 2]).error_code == 0
    )  # the leader's partition epoch is still the last one


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        # isr, elr, last known, leader -> isr, leader: elr, last known
        (([1, 2], [], [], 1), ([1], 1), ([2], [])),
        (([1, 2, 3], [], [], 1), ([1, 2], 1), ([], [])),
        (([1], [2, 3], [], 1), ([1, 2], 1), ([], [])),
        (([1], [2], [], 1), ([], -1), ([1, 2], [1])),
        (([1], [], [], -1), ([], -1), ([1], [1])),  # its disk was broken; Kafka names -1
        (([], [1, 2], [1], -1), ([2], 2), ([1], [])),
        (([], [], [1], -1), ([], -1), ([], [1])),
    ],
)
def test_what_follows_from_a_change(before: Any, after: Any, expected: Any) -> None:
    isr, elr, last_known, leader = before
    old = PartitionState([1, 2, 3], isr, leader, 5, 7, False, [], [], elr, last_known)
    new = old.with_leader_and_isr(leader=after[1], isr=after[0], leader_epoch=6)
    state = update_eligible(old, new, 2)
    assert (state.elr, state.last_known_elr) == expected
    assert (state.leader_epoch, state.partition_epoch) == (6, 8)
    assert PartitionState(*state.to_json()).to_json() == state.to_json()


def test_kafkas_own_controller_comes_to_the_same() -> None:
    recorded = Path(__file__).parents[2] / "data" / "eligible-leaders-4.3.1.txt.gz"
    cluster, past = Simulated(), [""]
    for line in gzip.decompress(recorded.read_bytes()).decode().splitlines():
        if line.startswith("new "):
            _, count, min_isr = line.split()
            ids = [*range(1, int(count) + 1)]
            cluster, past = Simulated(*ids, **ON), [line]
            cluster.create("t", ids, min_insync_replicas=min_isr)
            continue
        past.append(line)
        event, *expected = line.split(" | ")
        kind, _, argument = event.partition(" ")
        before = cluster.controller.state.topics["t"].partitions[0]
        if kind == "fail":
            cluster.kill(int(argument))
        elif kind == "alter":
            members = [int(member) for member in argument.split(",")]
            assert cluster.alter(before.leader, members).error_code == 0, past
        else:
            cluster.start(int(argument), clean=kind == "clean")
        state = cluster.controller.state.topics["t"].partitions[0]
        assert [
            str(state.leader),
            str(sorted(state.isr)),
            str(sorted(state.elr)),
            str(state.last_known_elr),
            "RECOVERING" if state.recovering else "RECOVERED",
        ] == [expected[0], *(str(sorted(json.loads(e))) for e in expected[1:4]), expected[4]], past


def test_replicas_that_are_taken_away_are_not_eligible() -> None:
    old = PartitionState([1, 2, 3, 4], [1], 1, 5, 7, False, [4], [2], [2, 3])
    done = update_eligible(old, old.with_assignment([1, 3, 4], [], []), 2)
    assert done.elr == [3]
