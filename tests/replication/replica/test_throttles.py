"""Throttles of replication between brokers (KIP-73): whose records they hold back, for how long, and whose never."""

from __future__ import annotations

from typing import Any

import pytest
from follower_rig import Node, Rig
from leader_rig import Leader

from kwire.protocol.errors import KafkaError
from kwire.protocol.record_builder import build_batch
from kwire.protocol.records import Record
from kwire.replication.config.broker_config import BrokerConfig
from kwire.replication.config.run_time import check_at_run_time
from kwire.replication.core.metadata import BROKER_RESOURCE, TOPIC_RESOURCE
from kwire.replication.core.types import (
    FOLLOWER_THROTTLE_KEY,
    FOLLOWER_THROTTLED_KEY,
    LEADER_THROTTLE_KEY,
    LEADER_THROTTLED_KEY,
    MOVES_THROTTLE_KEY,
)
from kwire.replication.replica.fetch_data import FetchParams, FetchPartition
from kwire.replication.replica.isr import CommittedIsr
from kwire.replication.replica.local_listener import LocalListener
from kwire.replication.replica.throttles import ReplicationThrottles, throttle_of

CHUNK = 1000
"""About so many bytes has a batch of these tests."""


def configure(node: Node, kind: int, name: str, overrides: dict[str, str]) -> None:
    """A configuration as it comes from the controller."""
    listener = LocalListener(node.id, node.manager, node.metadata, node.config)
    listener.config_changed(kind, name, overrides)


def throttle(
    node: Node,
    *,
    leader: int | None = None,
    follower: int | None = None,
    leaders: str | None = None,
    followers: str | None = None,
    topic: str = "t",
) -> None:
    """All throttles of a broker, and the lists of a topic; None: there is none."""
    lists = {LEADER_THROTTLED_KEY: leaders, FOLLOWER_THROTTLED_KEY: followers}
    rates = {LEADER_THROTTLE_KEY: leader, FOLLOWER_THROTTLE_KEY: follower}
    configure(node, TOPIC_RESOURCE, topic, {k: v for k, v in lists.items() if v is not None})
    overrides = {key: str(rate) for key, rate in rates.items() if rate is not None}
    configure(node, BROKER_RESOURCE, str(node.id), overrides)


def fill(node: Node, chunks: int, *, topic: str = "t", index: int = 0) -> None:
    """Batches of CHUNK bytes."""
    values = [Record(-1, 1, None, b"x" * (CHUNK - 70))]
    for _ in range(chunks):
        node.manager.append_to_leader(topic, index, build_batch(values), 1)
        node.manager.complete_waiting((topic, index))


def made(node: Node) -> ReplicationThrottles:
    assert node.manager.throttles is not None
    return node.manager.throttles


# --- the lists


@pytest.mark.parametrize(
    ("text", "replicas"),
    [
        ("*", [0, 1, 2]),
        ("", []),
        ("none", []),
        ("0:1", [0]),
        ("0:1,1:2,2:1", [0, 2]),
        (" 0:1 , 1:1 ", [0, 1]),
        ("0:11,1:2", []),
    ],
)
def test_a_list_names_partitions_and_brokers(text: str, replicas: list[int]) -> None:
    node = Rig()[1]
    throttle(node, leaders=text, followers="1:1")
    throttles = made(node)
    assert [index for index in range(3) if throttles.leader.includes(("t", index))] == replicas
    assert [index for index in range(3) if throttles.follower.includes(("t", index))] == [1]
    assert not throttles.leader.includes(("other", 0))


def test_throttles_are_made_with_the_first_list_and_end_with_the_lists() -> None:
    rig = Rig()
    rig.lead(1, 0)
    node = rig[1]
    configure(node, TOPIC_RESOURCE, "t", {"retention.ms": "1"})
    configure(node, BROKER_RESOURCE, "1", {LEADER_THROTTLE_KEY: "1"})
    assert node.manager.throttles is None and not node.metadata.throttled_topics
    throttle(node, leaders="0:1")
    assert made(node).leader.includes(("t", 0)) and node.metadata.throttled_topics == {"t"}
    throttle(node, leaders="0:2")  # another list of the same topic
    assert not made(node).leader.includes(("t", 0))
    throttle(node, leaders="*")
    assert made(node).leader.includes(("t", 0))
    throttle(node)
    assert not made(node).leader.includes(("t", 0)) and not node.metadata.throttled_topics
    # and with their topic: the next one of its name is not throttled
    throttle(node, leaders="*")
    rig.metadata(-2, 0, "t")
    assert not node.metadata.throttled_topics and not made(node).leader.includes(("t", 0))


# --- the rate


def test_the_own_rate_goes_before_that_of_all_brokers_and_static_ones_are_none() -> None:
    config = BrokerConfig({LEADER_THROTTLE_KEY: "9"})
    assert throttle_of(config, LEADER_THROTTLE_KEY) is None
    config.set_dynamic({LEADER_THROTTLE_KEY: "7"}, {})
    assert throttle_of(config, LEADER_THROTTLE_KEY) == 7
    config.set_dynamic({LEADER_THROTTLE_KEY: "7"}, {LEADER_THROTTLE_KEY: "5"})
    assert throttle_of(config, LEADER_THROTTLE_KEY) == 5


@pytest.mark.parametrize("key", [LEADER_THROTTLE_KEY, FOLLOWER_THROTTLE_KEY, MOVES_THROTTLE_KEY])
def test_a_rate_is_a_number_of_bytes(key: str) -> None:
    for wrong in ("fast", "", "-1", "1.5", str(1 << 63)):
        with pytest.raises(KafkaError, match=f"for configuration {key}"):
            check_at_run_time(BrokerConfig({}), {key: wrong}, per_broker=True, replaces=False)
    for per_broker in (True, False):
        values: dict[str, str | None] = {key: "0"}
        check_at_run_time(BrokerConfig({}), values, per_broker=per_broker, replaces=False)
        check_at_run_time(BrokerConfig({}), {key: None}, per_broker=per_broker, replaces=False)


@pytest.mark.parametrize(
    ("rate", "sent", "waits"),
    [
        (None, 5000, 0),
        (1000, 0, 0),
        (1000, 1000, 0),  # not above it
        (1000, 1001, 500),  # nor before the first window is over
        (1000, 9000, 500),  # replica.fetch.wait.max.ms: it may be changed meanwhile
        (0, 1, 500),
        (0, 0, 0),
    ],
)
def test_how_long_a_throttle_holds_back(rate: int | None, sent: int, waits: int) -> None:
    node = Rig()[1]
    throttle(node, leader=rate, leaders="0:1")
    leader = made(node).leader
    leader.record(("t", 0), sent)
    leader.record(("t", 1), 5000)  # not in the list
    assert leader.wait_ms() == waits


def test_the_windows_are_those_of_the_configuration() -> None:
    node = Rig(
        settings={
            "replication.quota.window.num": "2",
            "replication.quota.window.size.seconds": "10",
        }
    )[1]
    throttle(node, leader=100, leaders="*")
    leader = made(node).leader
    leader.record(("t", 0), 1100)
    assert leader.wait_ms() == 500  # 1100 in ten seconds
    node.rig._set_time(node.rig.clock.now_ms + 11_000)
    assert leader.wait_ms() == 0
    leader.record(("t", 0), 1100)
    assert leader.wait_ms() == 500
    node.rig._set_time(node.rig.clock.now_ms + 30_000)
    assert leader.wait_ms() == 0


# --- the leader


def test_the_wait_ends_when_the_rate_is_down() -> None:
    node = Rig()[1]
    throttle(node, leader=1000, leaders="0:1")
    leader, begin_ms = made(node).leader, node.rig.clock.now_ms
    leader.record(("t", 0), 3400)
    waits = []
    while wait_ms := leader.wait_ms():
        waits.append(wait_ms)
        node.rig._set_time(node.rig.clock.now_ms + wait_ms)
    assert node.rig.clock.now_ms - begin_ms == 3400 and waits == [500] * 6 + [400]


@pytest.fixture
def leader() -> Leader:
    """1 leads with 1 and 3 in sync; 2 is not, and above the throttle."""
    found = Leader()
    found.lead(isr=[1, 3])
    fill(found.node, 3)
    throttle(found.node, leader=CHUNK, leaders="0:1")
    made(found.node).leader.record(("t", 0), 3 * CHUNK)
    return found


def size(data: Any) -> int | None:
    return None if data is None else len(data.records)


def test_a_follower_out_of_sync_gets_nothing_above_the_throttle(leader: Leader) -> None:
    assert size(leader.fetch(2, 0)) == 0
    leader.wait(3000)
    assert size(leader.fetch(2, 0)) == 3 * CHUNK
    # and what it got is counted
    assert size(leader.fetch(2, 2)) == 0
    # and without the throttle it gets everything
    throttle(leader.node)
    assert size(leader.fetch(2, 0)) == 3 * CHUNK


def test_replicas_in_sync_and_consumers_are_never_throttled(leader: Leader) -> None:
    assert size(leader.fetch(3, 0)) == 3 * CHUNK
    leader.node.log().update_high_watermark(3)
    assert size(leader.fetch(-1, 0)) == 3 * CHUNK
    # the same follower, when it is in sync
    assert size(leader.fetch(2, 0)) == 0
    leader.partition().isr_state = CommittedIsr(frozenset({1, 2, 3}))
    assert size(leader.fetch(2, 0)) == 3 * CHUNK


def test_records_of_replicas_in_sync_count_too(leader: Leader) -> None:
    leader.wait(60_000)
    assert size(leader.fetch(3, 0)) == 3 * CHUNK
    assert size(leader.fetch(2, 0)) == 0


def test_consumers_do_not_count(leader: Leader) -> None:
    leader.wait(60_000)
    leader.node.log().update_high_watermark(3)
    assert size(leader.fetch(-1, 0)) == 3 * CHUNK
    assert size(leader.fetch(2, 0)) == 3 * CHUNK


def test_other_partitions_are_not_throttled(leader: Leader) -> None:
    leader.lead(2, partitions=(1,), isr=[1, 3])
    fill(leader.node, 2, index=1)
    assert size(leader.fetch(2, 0, index=1)) == 2 * CHUNK
    assert made(leader.node).leader.wait_ms() == 500  # and nothing was added


@pytest.mark.parametrize("min_bytes", [1, 2, 2 * CHUNK])
def test_a_throttled_fetch_waits_its_time_whatever_is_appended(
    leader: Leader, min_bytes: int
) -> None:
    leader.node.log().roll()
    params = FetchParams(replica_id=2, max_wait_ms=500, min_bytes=min_bytes, fetch_only_leader=True)
    answers: list[int] = []
    leader.manager.fetch_records(
        params,
        [(("t", 0), FetchPartition(0, 1 << 20, log_start_offset=0))],
        lambda results: answers.append(len(results[0].records)),
    )
    for _ in range(3):
        leader.wait(100)
        fill(leader.node, 1)
    leader.node.log().roll()
    fill(leader.node, 1)
    assert answers == []
    leader.wait(200)
    assert answers == [0]


def test_a_throttled_fetch_ends_when_it_may_have_what_is_appended(leader: Leader) -> None:
    answers: list[int] = []
    params = FetchParams(replica_id=2, max_wait_ms=9000, min_bytes=1, fetch_only_leader=True)
    leader.manager.fetch_records(
        params,
        [(("t", 0), FetchPartition(0, 1 << 20, log_start_offset=0))],
        lambda results: answers.append(len(results[0].records)),
    )
    fill(leader.node, 1)
    leader.wait(3000)
    assert answers == []
    fill(leader.node, 1)
    assert answers == [5 * CHUNK]


def test_a_throttled_partition_leaves_the_room_of_a_fetch_to_others(leader: Leader) -> None:
    leader.lead(2, partitions=(1,), isr=[1, 3])
    fill(leader.node, 2, index=1)
    params = FetchParams(replica_id=2, max_bytes=CHUNK, fetch_only_leader=True)
    asked = [(("t", index), FetchPartition(0, 1 << 20, log_start_offset=0)) for index in range(2)]
    sizes = [len(data.records) for data in leader.manager.read_from_log(params, asked)]
    assert sizes == [0, CHUNK]
    params = FetchParams(replica_id=2, max_bytes=1, fetch_only_leader=True)
    sizes = [len(data.records) for data in leader.manager.read_from_log(params, asked)]
    assert sizes == [0, CHUNK], "the first batch of all may exceed the limit"


# --- the follower


def moving(chunks: int = 10, **settings: str) -> Rig:
    """1 leads; 2 is to become a replica and gets a chunk with each fetch."""
    rig = Rig(settings={"replica.fetch.max.bytes": str(CHUNK), **settings})
    rig.lead(1, 0, isr=[1], to=[1])
    fill(rig[1], chunks)
    return rig


def follow(rig: Rig) -> None:
    rig.lead(1, 0, isr=[1], to=[2])


def seconds_of_move(rig: Rig, chunks: int) -> float:
    begin_ms = rig.clock.now_ms
    rig.run()
    while rig[2].ends()[2] < chunks and rig.clock.now_ms < begin_ms + 60_000:
        rig.wait(50)
    assert rig[2].content() == rig[1].content()
    return (rig.clock.now_ms - begin_ms) / 1000


@pytest.mark.parametrize(
    ("leader", "follower"),
    [(CHUNK, None), (None, CHUNK), (CHUNK, CHUNK), (CHUNK, 5 * CHUNK), (5 * CHUNK, CHUNK)],
)
def test_a_throttled_replica_is_made_at_its_rate(leader: int | None, follower: int | None) -> None:
    rig = moving(20)
    for node in rig.nodes.values():
        throttle(node, leader=leader, follower=follower, leaders="0:1", followers="0:2")
    follow(rig)
    # without the chunk that is there at once
    assert 18 <= seconds_of_move(rig, 20) <= 20


def test_without_a_throttle_it_takes_no_time() -> None:
    rig = moving(20)
    throttle(rig[2], follower=1, followers="1:2,0:1")
    follow(rig)
    assert seconds_of_move(rig, 20) == 0


def test_a_throttled_partition_is_not_asked_for_until_the_rate_is_down() -> None:
    rig = moving()
    throttle(rig[2], follower=CHUNK // 2, followers="*")
    follow(rig)
    rig.run()
    assert len(rig.requests()) == 1 and rig[2].ends()[2] == 1
    assert rig[2].state().delay_until_ms == rig.clock.now_ms + 500
    rig.wait(490)
    assert len(rig.requests()) == 1
    rig.wait(1510)  # it looks every half second, and after two seconds it may go on
    assert len(rig.requests()) == 2 and rig[2].ends()[2] == 2


def test_throttled_replicas_share_the_rate() -> None:
    rig = Rig(settings={"replica.fetch.max.bytes": str(CHUNK)})
    rig.lead(1, 0, partitions=(0, 1), isr=[1], to=[1])
    for index in (0, 1):
        fill(rig[1], 5, index=index)
    throttle(rig[2], follower=CHUNK, followers="*")
    rig.lead(1, 0, partitions=(0, 1), isr=[1], to=[2])
    rig.wait(7500)
    assert rig[2].ends(index=0)[2] + rig[2].ends(index=1)[2] in (8, 9)
    rig.wait(3000)
    assert rig[2].ends(index=0)[2] == rig[2].ends(index=1)[2] == 5


def test_a_neighbour_is_fetched_as_ever() -> None:
    rig = moving()
    throttle(rig[2], follower=1, followers="0:2")
    follow(rig)
    rig.lead(1, 0, partitions=(1,), isr=[1, 2])
    rig.run()
    assert rig[2].ends()[2] == 1
    for number in range(20):
        rig[1].produce(1, index=1)
        rig.run()
        assert rig[2].ends(index=1)[2] == number + 1
        rig.wait(37)
    assert rig[2].ends()[2] == 1


def test_a_replica_that_has_caught_up_is_not_throttled_any_more() -> None:
    rig = moving(1)
    throttle(rig[2], follower=1, followers="0:2")
    follow(rig)
    rig.run()
    assert rig[2].ends()[2] == 1 and rig[2].state().lag == 0
    for number in range(5):
        fill(rig[1], 1)
        rig.run()
        assert rig[2].ends()[2] == number + 2


def test_a_replica_in_the_isr_is_not_throttled_before_its_first_fetch() -> None:
    rig = moving(3)
    throttle(rig[2], follower=1, followers="0:2")
    made(rig[2]).follower.record(("t", 0), CHUNK)
    follow(rig)
    rig.run()
    assert rig[2].ends()[2] == 0  # its lag is not known
    known = rig[2].metadata.partition("t", 0)
    assert known is not None
    known.isr = [1, 2]
    rig.wait(500)
    assert rig[2].ends()[2] == 3


def test_a_throttle_can_be_changed_and_removed() -> None:
    rig = moving()
    throttle(rig[2], follower=0, followers="0:2")
    made(rig[2]).follower.record(("t", 0), 1)
    follow(rig)
    rig.wait(1000)
    assert rig[2].ends()[2] == 0
    throttle(rig[2], follower=CHUNK, followers="0:2")
    rig.wait(4200)
    assert rig[2].ends()[2] in (5, 6)
    throttle(rig[2])
    rig.wait(500)
    assert rig[2].ends()[2] == 10
    assert rig[2].state().delay_until_ms is None
    assert rig[2].fetchers.metrics().dead_thread_count == 0


def test_a_throttled_partition_is_no_failed_one() -> None:
    rig = moving()
    throttle(rig[2], follower=1, followers="0:2")
    follow(rig)
    rig.wait(2000)
    metrics = rig[2].fetchers.metrics()
    assert (metrics.fetch_errors, metrics.dead_thread_count) == (0, 0)
    assert metrics.consumer_lag["t", 0] == 9
