"""What the controller tells people."""

from __future__ import annotations

from controller_harness import Simulated

from kwire.replication.core.events import Event


def test_a_new_topic_is_told_in_one_line() -> None:
    cluster = Simulated(1, 2, 3)
    cluster.create("t", [1, 2], [2, 3])
    assert cluster.logged.last.event is Event.TOPIC_CREATED
    assert cluster.logged.last.text == "t has been created: 2 partitions, replication factor 2"


def test_a_partition_without_leader_is_led_by_none() -> None:
    cluster = Simulated(1)
    cluster.create("t", [1])
    cluster.kill(1)
    assert cluster.logged.last.event is Event.PARTITION_OFFLINE
    assert cluster.logged.last.fields["leader"] is None
    assert cluster.logged.last.text.startswith("t-0: leader 1 -> none, ")
    cluster.start(1)
    assert cluster.logged.last.event is Event.LEADER_ELECTED
    assert cluster.logged.last.text.startswith("t-0: leader none -> 1, ")
