from __future__ import annotations

from collections import Counter
from random import Random

import pytest

from kwire.protocol.errors import ErrorCode, KafkaError
from kwire.replication.controller.placement import assign_replicas, check_manual_assignment

SIX = [(i, None) for i in range(6)]
THREE_RACKS = [(i, f"r{i % 3}") for i in range(6)]


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("brokers", [SIX, THREE_RACKS], ids=["no racks", "racks"])
def test_leaders_and_replicas_are_spread_evenly(brokers: list[tuple[int, str]], seed: int) -> None:
    replicas = assign_replicas(brokers, 12, 3, Random(seed))
    assert all(len(set(r)) == 3 for r in replicas)
    assert set(Counter(r[0] for r in replicas).values()) == {2}
    counts = Counter(broker for r in replicas for broker in r)
    assert set(counts.values()) == {6}


@pytest.mark.parametrize("seed", range(5))
def test_every_partition_is_on_every_rack_it_can_be_on(seed: int) -> None:
    """S78: 6 partitions, factor 3, 3 racks: every partition on 3 racks, leaders 2 on each."""
    rack_of = dict(THREE_RACKS)
    replicas = assign_replicas(THREE_RACKS, 6, 3, Random(seed))
    assert all(len({rack_of[broker] for broker in r}) == 3 for r in replicas)
    assert set(Counter(rack_of[r[0]] for r in replicas).values()) == {2}


def test_more_replicas_than_racks_fill_the_racks_before_they_repeat() -> None:
    rack_of = {0: "a", 1: "a", 2: "a", 3: "b"}
    for replicas in assign_replicas(list(rack_of.items()), 8, 3, Random(3)):
        assert len(set(replicas)) == 3
        assert {rack_of[broker] for broker in replicas} == {"a", "b"}


def test_racks_that_only_some_brokers_have_do_not_count() -> None:
    replicas = assign_replicas([(1, "a"), (2, None)], 2, 2, Random(1))
    assert sorted(map(sorted, replicas)) == [[1, 2], [1, 2]]


def test_a_fixed_start_gives_kafkas_known_pattern() -> None:
    """The table in the comment of Kafka's AdminUtils: ten partitions, factor 3, five brokers."""
    brokers = [(i, None) for i in range(5)]
    replicas = assign_replicas(brokers, 10, 3, Random(1), start_index=0)
    assert replicas == [
        [0, 1, 2],
        [1, 2, 3],
        [2, 3, 4],
        [3, 4, 0],
        [4, 0, 1],
        [0, 2, 3],
        [1, 3, 4],
        [2, 4, 0],
        [3, 0, 1],
        [4, 1, 2],
    ]


def test_added_partitions_go_on_where_the_topic_ended() -> None:
    brokers = [(i, None) for i in range(5)]
    added = assign_replicas(brokers, 1, 2, Random(1), first_partition=2, start_index=0)
    assert added == [[2, 3]]


def test_too_few_brokers_are_an_invalid_replication_factor() -> None:
    with pytest.raises(KafkaError) as caught:
        assign_replicas([(1, None)], 1, 2, Random(1))
    assert caught.value.code is ErrorCode.INVALID_REPLICATION_FACTOR


@pytest.mark.parametrize(
    ("replicas", "factor", "says"),
    [
        ([], None, "an empty replica list"),
        ([1, 2, 1], None, "the broker 1 more than once"),
        ([1, 9], None, "broker 9, but no such broker is registered"),
        ([1], 2, "1 replica(s), but this is not consistent with previous partitions, which have 2"),
    ],
)
def test_a_manual_assignment_names_registered_brokers_once_and_as_many_each(
    replicas: list[int], factor: int | None, says: str
) -> None:
    with pytest.raises(KafkaError) as caught:
        check_manual_assignment(replicas, [1, 2, 3], factor)
    assert caught.value.code is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert says in str(caught.value.message)
    check_manual_assignment([1, 2], [1, 2, 3], 2)


def test_brokers_that_are_down_get_what_the_living_cannot_take() -> None:
    replicas = assign_replicas([(1, None), (4, None)], 6, 4, Random(2), down=[2, 3, 5])
    assert all(set(r[:2]) == {1, 4} and len(set(r)) == 4 for r in replicas)
    assert Counter(r[0] for r in replicas) == {1: 3, 4: 3}
    assert Counter(broker for r in replicas for broker in r[2:]) == {2: 4, 3: 4, 5: 4}
    enough = assign_replicas([(1, None), (4, None)], 6, 2, Random(2), down=[2])
    assert all(set(r) == {1, 4} for r in enough)


@pytest.mark.parametrize(
    ("living", "down", "said"),
    [
        ([(1, None)], [2], "only 2 broker(s) are registered"),
        ([], [1, 2, 3], "All brokers are currently fenced"),
        ([], [1], "All brokers are currently fenced"),
    ],
)
def test_too_few_registered_or_none_alive(
    living: list[tuple[int, None]], down: list[int], said: str
) -> None:
    with pytest.raises(KafkaError) as found:
        assign_replicas(living, 1, 3, Random(1), down=down)
    assert found.value.code == ErrorCode.INVALID_REPLICATION_FACTOR
    assert said in str(found.value.message)
