"""Scenarios of the replication design that a controller decides, on real processes: take-overs, disks, switches."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from compat_tests.cluster import Start, until
from compat_tests.locked import scenarios
from kwire.protocol.errors import ErrorCode
from kwire.protocol.schemas.control_plane import UpdateMetadataRequest
from kwire.protocol.schemas.metadata import DescribeTopicPartitionsRequest, TopicRequest
from kwire.protocol.schemas.topics import CreatableTopic, CreateTopicsRequest

pytestmark = [pytest.mark.kwire_only, pytest.mark.timeout(60)]
LOCKED_SOON = ("test_S84_the_controller_is_killed",)
"""What is shown with locks in `make test`, too; the others in `make test-all`."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    scenarios(metafunc, LOCKED_SOON)


QUICK_TAKE_OVER = {"controllers": 2, "controller_quorum_fetch_timeout_ms": "1000"}


def test_S84_the_controller_is_killed_and_another_takes_over(start: Start) -> None:
    """Writers notice nothing of it, and what the dead one would have done, the other does."""
    cluster = start(**QUICK_TAKE_OVER)
    cluster.create("t", [[1, 2, 3]])
    writer = cluster.writer()
    sent: list[str] = []

    def write_until(condition: Callable[[], Any]) -> None:
        def step() -> bool:
            sent.append(f"{len(sent)}")
            writer.send("t", sent[-1])
            return bool(condition())

        until(step)

    for round_, (old, new) in enumerate([(1000, 1001), (1001, 1000)]):
        active = f"controller {new} is active with epoch {round_ + 2}; 3 brokers"
        cluster.kill9(old)
        write_until(lambda line=active, node=new: line in cluster.said(node))
        cluster.start(old)
        until(lambda node=old: f"controller {node} stands by" in cluster.said(node))
    cluster.kill9(1)
    write_until(lambda: cluster.leader("t", by=2) == 2)
    assert "t-0: leader 1 -> 2, ISR 1,2,3 -> 2,3, leader epoch 1" in cluster.said(1000)
    cluster.start(1)
    cluster.await_isr("t", 1, 2, 3, by=2)
    cluster.stop(1000)  # in order: it lets go at once
    cluster.await_active(1001, 4)
    cluster.create("u", [[3, 2]])
    writer.send("t", "end")
    assert writer.errors == [] and list(writer.acked) == [*sent, "end"]
    assert cluster.read("t") == [*sent, "end"]
    cluster.await_equal_logs("t", 1, 2, 3)


def test_S84_a_paused_controller_finds_another_in_its_place(start: Start) -> None:
    """1000 stands still when half of the brokers have its orders: 1001 brings them all to the same leader epoch. What
    1000 is asked when it goes on it cannot write any more, and brokers refuse its orders."""
    # The late order at the end comes from this test, which does not know the brokers' epochs.
    cluster = start(**QUICK_TAKE_OVER, kwire_any_connection_may_control="true")
    cluster.create("t", [[1, 2, 3]])
    writer = cluster.writer()
    writer.send("t", "a")
    cluster.delay(1000, 2, 1500)
    cluster.kill9(3)
    cluster.await_isr("t", 1, 2, by=1)
    cluster.pause(1000)
    assert sorted(cluster.partition("t", by=2).isr_nodes) == [1, 2, 3]
    cluster.await_active(1001, 2)
    assert cluster.await_isr("t", 1, 2, by=2).leader_epoch == 1
    assert cluster.partition("t", by=1).leader_epoch == 1
    writer.send("t", "b")
    cluster.start(3)  # it asks 1000 first
    cluster.await_isr("t", 1, 2, 3, by=2)
    create = CreateTopicsRequest(
        topics=[CreatableTopic(name="u", num_partitions=1, replication_factor=1)], timeout_ms=5000
    )
    asked = cluster.begin_ask(1000, 7, create)
    cluster.resume(1000)
    assert asked.result(10).topics[0].error_code == ErrorCode.NOT_CONTROLLER
    until(lambda: "controller 1000 stands by" in cluster.said(1000))
    assert "the controller of epoch 1 has resigned: Another controller has taken over." in (
        cluster.said(1000)
    )
    late = UpdateMetadataRequest(controller_id=1000, controller_epoch=1, broker_epoch=-1)
    for node in (1, 2):
        assert cluster.ask(node, 8, late).error_code == ErrorCode.STALE_CONTROLLER_EPOCH
        refusal = "refused an order of the controller of epoch 1: there is one of epoch 2"
        assert refusal in cluster.said(node)
    store = Path(cluster.supervisor.data_dir) / "controller"
    assert [path.name for path in store.glob("*.journal")] == [
        "kwire-controller-0000000002.journal"
    ]
    cluster.kill9(1)
    cluster.await_leader("t", 2, by=2)
    writer.send("t", "c")
    assert writer.errors == [] and writer.acked == {"a": 0, "b": 1, "c": 2}
    assert "t-0: leader 1 -> 2, ISR 1,2,3 -> 2,3, leader epoch 2" in cluster.said(1001)
    assert "t-0: leader 1 -> 2" not in cluster.said(1000)
    cluster.start(1)
    cluster.await_isr("t", 1, 2, 3, by=2)
    cluster.await_equal_logs("t", 1, 2, 3)
    assert cluster.read("t") == ["a", "b", "c"]


def test_S84_a_controller_that_is_cut_off_from_all_brokers_lets_another_take_over(
    start: Start,
) -> None:
    cluster = start(**QUICK_TAKE_OVER)
    cluster.create("t", [[1, 2, 3]])
    writer = cluster.writer()
    writer.send("t", "a")
    cluster.cut(1000, 1, 2, 3)
    for node in (1, 2, 3):
        cluster.cut(node, 1000)
    cluster.await_active(1001, 2)
    said = cluster.said(1000)
    assert "the controller of epoch 1 has resigned: it receives no heartbeats any more" in said
    writer.send("t", "b")
    for node in (1, 2, 3):
        cluster.await_isr("t", 1, 2, 3, by=node)
    leader = cluster.leader("t")
    cluster.kill9(leader)
    survivors = [node for node in (1, 2, 3) if node != leader]
    until(lambda: cluster.leader("t", by=survivors[0]) in survivors)
    writer.send("t", "c")
    assert writer.errors == [] and list(writer.acked) == ["a", "b", "c"]
    for node in survivors:
        cluster.heal(node, 1000)
    cluster.heal(1000, 1, 2, 3)
    assert "controller 1000 is active with epoch 3" not in cluster.said(1000)
    assert cluster.read("t") == ["a", "b", "c"]


def test_S72_follower_dies_without_a_new_leader_epoch(start: Start) -> None:
    """KRaft's way since 3.6: the leader takes the smaller ISR in the epoch that it has."""
    cluster = start(kwire_leader_epoch_bump_on_isr_shrink="false")
    cluster.create("t", [[1, 2, 3]])
    writer = cluster.writer()
    writer.send("t", "a")
    cluster.kill9(3)
    assert cluster.await_isr("t", 1, 2, by=1).leader_epoch == 0
    writer.send("t", "b")
    cluster.stop(2)
    assert cluster.await_isr("t", 1, by=1).leader_epoch == 0
    writer.send("t", "c")
    assert writer.errors == [] and writer.acked == {"a": 0, "b": 1, "c": 2}
    for node in (2, 3):
        cluster.start(node)
    cluster.await_isr("t", 1, 2, 3, by=1)
    cluster.kill9(1)
    assert cluster.await_leader("t", 2, by=2).leader_epoch == 1
    writer.send("t", "d")
    assert cluster.epochs(2, "t") == [(0, 0), (1, 3)]
    assert cluster.read("t") == ["a", "b", "c", "d"]


def test_S87_dir_failure(start: Start) -> None:
    """One of two disks of 1 is gone: what was on it is led by 2, the other disk serves on, and the next controller
    knows of it."""
    cluster = start(dirs=2, log_segment_bytes="16384", **QUICK_TAKE_OVER)
    cluster.create("t", [[1, 2], [1, 2]])
    writer = cluster.writer()
    for index in (0, 1):
        writer.send("t", f"first of {index}", partition=index)
    folders = [cluster.directory(1, "t", index).parent for index in (0, 1)]
    assert folders[0] != folders[1]
    folders[0].rename(folders[0].with_suffix(".gone"))
    for number in range(30):  # a new segment is due
        writer.send("t", f"{number:05}" * 200)
    found = cluster.await_leader("t", 2, by=2)
    assert (found.isr_nodes, found.offline_replicas) == ([2], [1])
    writer.send("t", "second of 0")
    writer.send("t", "second of 1", partition=1)
    other = cluster.partition("t", 1, by=2)
    assert (other.leader_id, other.leader_epoch, sorted(other.isr_nodes)) == (1, 0, [1, 2])
    assert "t-0: broker 1 cannot read its log" in cluster.said(1000)
    cluster.kill9(1000)
    cluster.await_active(1001, 2)
    until(lambda: "t-0: broker 1 cannot read its log" in cluster.said(1001))
    assert cluster.partition("t", by=2).offline_replicas == [1]
    assert writer.errors == []
    assert cluster.read("t")[-1] == "second of 0"
    cluster.kill9(1)
    folders[0].with_suffix(".gone").rename(folders[0])  # the disk is back
    cluster.start(1)
    cluster.await_isr("t", 1, 2, by=2)
    cluster.await_isr("t", 1, 2, index=1, by=2)
    cluster.await_equal_logs("t", 1, 2)
    assert cluster.partition("t", by=2).offline_replicas == []


def test_S88_last_standing_with_eligible_leaders_kept(start: Start) -> None:
    """All three stop one after the other. Who had all that was acknowledged, and stopped in order, leads again."""
    cluster = start(
        eligible_leader_replicas_enable="true", controlled_shutdown_retry_backoff_ms="50"
    )
    cluster.create("t", [[1, 2, 3]], {"min.insync.replicas": "2"})
    writer = cluster.writer()
    writer.send("t", "all three")
    cluster.kill9(3)
    cluster.await_isr("t", 1, 2, by=1)
    writer.send("t", "two of three")
    cluster.stop(2)
    cluster.await_isr("t", 1, by=1)

    def eligible(by: int) -> tuple[list[int], list[int]]:
        request = DescribeTopicPartitionsRequest(topics=[TopicRequest(name="t")])
        (found,) = cluster.ask(by, 0, request).topics[0].partitions
        return sorted(found.eligible_leader_replicas), found.last_known_elr

    assert eligible(by=1) == ([2], [])
    lonely = cluster.writer(retries=0, enable_idempotence=False)
    lonely.send("t", "not enough")
    assert lonely.errors == ["NOT_ENOUGH_REPLICAS"]
    cluster.stop(1)
    cluster.start(3)
    assert cluster.leader("t", by=3) == -1 and eligible(by=3) == ([1, 2], [1])
    cluster.start(2)
    cluster.await_leader("t", 2, by=2)
    assert cluster.read("t") == ["all three", "two of three"]
    cluster.await_isr("t", 2, 3, by=2)
    assert eligible(by=2) == ([], [])
    writer.send("t", "two again")
    cluster.start(1)
    cluster.await_isr("t", 1, 2, 3, by=2)
    cluster.await_equal_logs("t", 1, 2, 3)
    assert cluster.read("t") == ["all three", "two of three", "two again"]
    assert "(eligible leader replica)" in cluster.said(cluster.controller_id)
