"""Scenarios of the replication design on three broker processes over TCP: stock clients, kill -9, cut links.

What the pure core shows step by step is shown here once with everything real. The numbers are the design's; brokers
are 1, 2 and 3, and leader epochs differ from the design's where a process has to die to get a log into its state.
"""

from collections.abc import Callable

import pytest

from compat_tests.cluster import Cluster, Start, until
from compat_tests.locked import scenarios
from kwire.protocol.errors import ErrorCode
from kwire.protocol.record_builder import build_batch
from kwire.protocol.records import Record
from kwire.protocol.schemas.fetch import FetchPartition, FetchRequest, FetchTopic
from kwire.protocol.schemas.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)

pytestmark = [pytest.mark.kwire_only, pytest.mark.timeout(60)]
LOCKED_SOON = ("test_S25_", "test_S57_", "test_S70_", "test_S77_", "test_S81_")
"""What is shown with locks in `make test`, too; the others in `make test-all`."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    scenarios(metafunc, LOCKED_SOON)


UNCLEAN = {"unclean.leader.election.enable": "true"}


def produce_at(cluster: Cluster, node: int, acks: int, value: str, timeout_ms: int = 300) -> int:
    """Writes to the partition t-0 at this broker, whoever leads: the error code."""
    batch = build_batch([Record(0, 0, None, value.encode())])
    data = PartitionProduceData(index=0, records=batch)
    topic = TopicProduceData(name="t", partition_data=[data])
    request = ProduceRequest(acks=acks, timeout_ms=timeout_ms, topic_data=[topic])
    return int(cluster.ask(node, 9, request).responses[0].partition_responses[0].error_code)


def high_watermark_at(cluster: Cluster, node: int) -> int:
    """What a consumer that reads t-0 at this broker is told."""
    partition = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    request = FetchRequest(
        max_wait_ms=0, max_bytes=1 << 20, topics=[FetchTopic(topic="t", partitions=[partition])]
    )
    return int(cluster.ask(node, 11, request).responses[0].partitions[0].high_watermark)


def values(cluster: Cluster, node: int, topic: str = "t") -> list[str]:
    """The records in a broker's copy of partition 0, from its files."""
    from kwire.protocol.records import iter_batches, iter_records

    log = cluster.log(node, topic)
    return [
        bytes(record.value or b"").decode()
        for batch in iter_batches(log)
        for record in iter_records(log, batch)
    ]


def alternate(cluster: Cluster, node: int, other: int, *written: str) -> None:
    """`other` dies, `node` starts alone and leads, even uncleanly, and gets records of its own."""
    cluster.kill9(other)
    cluster.start(node)
    cluster.await_leader("t", node, by=node)
    writer = cluster.writer([node])
    writer.send("t", *written)
    assert len(writer.acked) == len(written), writer.errors


def test_S22_interleaved_epochs(start: Start) -> None:
    """Two brokers led in turn, each alone: no record of one's is the other's. The last leader's log is what remains."""
    cluster = start()
    cluster.create("t", [[1, 2]], UNCLEAN)
    cluster.kill9(2)
    cluster.await_isr("t", 1, by=1)
    cluster.writer([1]).send("t", "a0")
    alternate(cluster, 2, 1, "b0")
    alternate(cluster, 1, 2, "a1")
    alternate(cluster, 2, 1, "b1")
    alternate(cluster, 1, 2, "a2")
    alternate(cluster, 2, 1, "b2")
    assert values(cluster, 1) == ["a0", "a1", "a2"] and values(cluster, 2) == ["b0", "b1", "b2"]
    mine, theirs = cluster.epochs(1, "t"), cluster.epochs(2, "t")
    assert not {epoch for epoch, _ in mine} & {epoch for epoch, _ in theirs}
    cluster.start(1)
    cluster.await_isr("t", 1, 2, by=2)
    cluster.await_equal_logs("t", 1, 2)
    assert cluster.epochs(1, "t") == theirs
    assert "t-0 cut from 3 to " in cluster.said(1) and " to 0" in cluster.said(1)
    assert cluster.read("t") == ["b0", "b1", "b2"]


def test_S24_keep_acked_tail(start: Start) -> None:
    """A restarted replica whose checkpoint of the high watermark is behind leads with its whole log."""
    cluster = start()
    cluster.create("t", [[1, 2]])
    writer = cluster.writer()
    writer.send("t", "m1", "m2")
    assert len(writer.acked) == 2
    cluster.kill9(1)
    cluster.await_leader("t", 2, by=2)
    cluster.kill9(2)
    cluster.start(2)  # its high watermark was never checkpointed
    cluster.await_leader("t", 2, by=2)
    assert cluster.read("t") == ["m1", "m2"]
    cluster.start(1)
    cluster.await_isr("t", 1, 2, by=2)
    assert cluster.read("t") == ["m1", "m2"] == values(cluster, 1) == values(cluster, 2)
    assert "cut from" not in cluster.said(1) + cluster.said(2)


def test_S25_no_silent_divergence(start: Start) -> None:
    """What only the dead leader had gives way, at the same offset, to what the next one wrote."""
    cluster = start()
    cluster.create("t", [[1, 2]])
    cluster.writer().send("t", "m1")
    cluster.cut(2, 1)
    assert produce_at(cluster, 1, 1, "m2") == 0
    cluster.kill9(1)
    cluster.await_leader("t", 2, by=2)
    writer = cluster.writer()
    writer.send("t", "m3")
    assert writer.acked == {"m3": 1}
    cluster.start(1)
    cluster.await_isr("t", 1, 2, by=2)
    cluster.await_equal_logs("t", 1, 2)
    assert values(cluster, 1) == ["m1", "m3"] == cluster.read("t")
    assert cluster.epochs(1, "t") == [(0, 0), (1, 1)]
    assert "t-0 cut from 2 to 1: the leader's epoch 0 ends at 1" in cluster.said(1)


def test_S26_unclean_short_leader(start: Start) -> None:
    cluster = start()
    cluster.create("t", [[1, 2]], UNCLEAN)
    cluster.writer().send("t", "r0")
    cluster.kill9(2)
    cluster.await_isr("t", 1, by=1)
    cluster.writer().send("t", "r1", "r2")
    alternate(cluster, 2, 1)
    cluster.start(1)
    cluster.await_isr("t", 1, 2, by=2)
    assert values(cluster, 1) == ["r0"]
    assert "t-0 cut from 3 to 1" in cluster.said(1)
    cluster.writer().send("t", "s1", "s2")
    cluster.await_equal_logs("t", 1, 2)
    assert values(cluster, 1) == ["r0", "s1", "s2"] == cluster.read("t")


def test_S29_a_leader_that_has_grown_beyond(start: Start) -> None:
    """The follower's log end lies within the leader's log, which has other records there."""
    cluster = start()
    cluster.create("t", [[1, 2]], UNCLEAN)
    cluster.writer().send("t", *map(str, range(5)))
    cluster.kill9(2)
    cluster.await_isr("t", 1, by=1)
    cluster.writer().send("t", *map(str, range(5, 10)))
    new = [f"new {number}" for number in range(9)]
    alternate(cluster, 2, 1, *new)
    cluster.start(1)
    cluster.await_isr("t", 1, 2, by=2)
    cluster.await_equal_logs("t", 1, 2)
    assert "t-0 cut from 10 to 5" in cluster.said(1)
    assert values(cluster, 1) == [*map(str, range(5)), *new] == cluster.read("t")


def test_S50_shrink(start: Start) -> None:
    """A follower that has stopped is waited for as long as replica.lag.time.max.ms, no longer."""
    cluster = start(replica_lag_time_max_ms="400", replica_fetch_wait_max_ms="200")
    cluster.create("t", [[1, 2, 3]])
    writer = cluster.writer()
    writer.send("t", "a")
    cluster.pause(3)
    writer.begin("t", "b")
    assert sorted(cluster.partition("t", by=1).isr_nodes) == [1, 2, 3] and "b" not in writer.acked
    writer.flush()
    assert writer.acked == {"a": 0, "b": 1}
    cluster.await_isr("t", 1, 2, by=1)
    assert cluster.partition("t", by=1).leader_epoch == 0
    cluster.resume(3)
    cluster.await_isr("t", 1, 2, 3, by=1)
    cluster.await_equal_logs("t", 1, 2, 3)
    assert "t-0: shrinking ISR from 1,2,3 to 1,2" in cluster.said(1)


def test_S56_acks_all_under_min_insync_replicas(start: Start) -> None:
    cluster = start(replica_lag_time_max_ms="400", replica_fetch_wait_max_ms="200")
    cluster.create("t", [[1, 2]], {"min.insync.replicas": "2"})
    plain = {"enable_idempotence": False, "retries": 0}
    writer = cluster.writer(request_timeout_ms=1500, **plain)
    writer.send("t", "both")
    cluster.pause(2)
    writer.send("t", "waits in vain")  # the ISR shrinks meanwhile, the high watermark stands still
    assert writer.errors == ["REQUEST_TIMED_OUT"]
    cluster.await_isr("t", 1, by=1)
    writer.send("t", "too few")
    assert writer.errors == ["REQUEST_TIMED_OUT", "NOT_ENOUGH_REPLICAS"]
    assert produce_at(cluster, 1, 1, "acks=1") == 0
    assert high_watermark_at(cluster, 1) == 1
    cluster.resume(2)
    cluster.await_isr("t", 1, 2, by=1)

    def is_acknowledged() -> bool:
        # The leader's ISR changes with the response to AlterPartition, which UpdateMetadata may overtake.
        writer.send("t", "both again")
        return "both again" in writer.acked

    until(is_acknowledged, what="the leader has both in its ISR")
    assert set(writer.errors[2:]) <= {"NOT_ENOUGH_REPLICAS"}
    assert writer.acked == {"both": 0, "both again": 3}
    assert cluster.read("t") == ["both", "waits in vain", "acks=1", "both again"]
    assert produce_at(cluster, 1, 2, "no such acks") == ErrorCode.INVALID_REQUIRED_ACKS


def test_S57_idempotent_retry_over_failover(start: Start) -> None:
    """The leader dies when its follower has the records and the client no answer: the retry adds nothing."""
    cluster = start()
    cluster.create("t", [[1, 2]])
    writer = cluster.writer(linger_ms=50)  # one batch
    writer.send("t", "before")
    cluster.delay(2, 1, 400)
    writer.begin("t", "a", "b", "c")
    until(lambda: len(values(cluster, 2)) == 4, what="the follower has the records")
    writer.poll()
    assert writer.acked == {"before": 0}
    cluster.kill9(1)
    writer.flush()
    assert writer.acked == {"before": 0, "a": 1, "b": 2, "c": 3} and writer.errors == []
    writer.send("t", "after")
    assert cluster.read("t") == ["before", "a", "b", "c", "after"]


def test_S70_clean_failover(start: Start) -> None:
    cluster = start()
    cluster.create("t", [[1, 2, 3]])
    writer = cluster.writer()
    writer.send("t", "a")
    cluster.kill9(1)
    after = cluster.await_leader("t", 2, by=2)
    assert (after.leader_epoch, sorted(after.isr_nodes)) == (1, [2, 3])
    writer.send("t", "b")
    cluster.start(1)
    back = cluster.await_isr("t", 1, 2, 3, by=2)
    assert (back.leader_id, back.leader_epoch) == (2, 1)
    writer.send("t", "c")
    assert writer.errors == [] and writer.acked == {"a": 0, "b": 1, "c": 2}
    cluster.await_equal_logs("t", 1, 2, 3)
    assert cluster.read("t") == ["a", "b", "c"]
    told = cluster.said(cluster.controller_id)
    assert "broker 1 (epoch " in told and " has failed: its connection has ended" in told
    assert "t-0: leader 1 -> 2, ISR 1,2,3 -> 2,3, leader epoch 1" in told


def first_and_second(cluster: Cluster, unclean: bool) -> None:
    """S74, S75: 2 dies after "first", 1 writes "second" and dies, 2 starts."""
    cluster.create("t", [[1, 2]], UNCLEAN if unclean else {})
    cluster.writer().send("t", "first")
    cluster.kill9(2)
    cluster.await_isr("t", 1, by=1)
    cluster.writer().send("t", "second")
    cluster.kill9(1)
    cluster.start(2)


def test_S74_unclean_on(start: Start) -> None:
    cluster = start()
    first_and_second(cluster, unclean=True)
    found = cluster.await_leader("t", 2, by=2)
    assert list(found.isr_nodes) == [2]
    cluster.writer().send("t", "third")
    cluster.start(1)
    cluster.await_isr("t", 1, 2, by=2)
    cluster.await_equal_logs("t", 1, 2)
    assert values(cluster, 1) == ["first", "third"] == cluster.read("t")
    assert cluster.epochs(1, "t") == [(0, 0), (found.leader_epoch, 1)]
    assert "unclean" in cluster.said(cluster.controller_id)
    assert "t-0 cut from 2 to 1" in cluster.said(1)


def test_S75_unclean_off(start: Start) -> None:
    cluster = start()
    first_and_second(cluster, unclean=False)
    assert cluster.leader("t", by=2) == -1
    writer = cluster.writer(message_timeout_ms=500, enable_idempotence=False)
    writer.send("t", "nobody takes it")
    assert writer.errors == ["_MSG_TIMED_OUT"]
    cluster.start(1)
    cluster.await_leader("t", 1, by=2)
    cluster.await_isr("t", 1, 2, by=2)
    assert cluster.read("t") == ["first", "second"]
    cluster.await_equal_logs("t", 1, 2)


def test_S75_unclean_turned_on_while_only_the_short_replica_is_up(start: Start) -> None:
    from confluent_kafka.admin import (
        AdminClient,
        AlterConfigOpType,
        ConfigEntry,
        ConfigResource,
        ResourceType,
    )

    cluster = start()
    first_and_second(cluster, unclean=False)
    assert cluster.leader("t", by=2) == -1
    (name, value), *_ = UNCLEAN.items()
    entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
    admin = AdminClient(cluster.client("librdkafka", [2]))
    resource = ConfigResource(ResourceType.TOPIC, "t", incremental_configs=[entry])
    for done in admin.incremental_alter_configs([resource]).values():
        done.result(10)
    cluster.await_leader("t", 2, by=2)
    assert cluster.read("t") == ["first"]


def test_S77_controlled_shutdown(start: Start) -> None:
    """Brokers stop one after the other; the producer notices nothing until there is none left."""
    cluster = start(controlled_shutdown_retry_backoff_ms="50")
    cluster.create("t", [[1, 2, 3]])
    writer = cluster.writer()
    writer.send("t", "a")
    writer.begin("t", "b")
    cluster.stop(1)
    found = cluster.partition("t", by=2)
    assert (found.leader_id, sorted(found.isr_nodes), found.leader_epoch) == (2, [2, 3], 1)
    writer.send("t", "c")
    cluster.stop(3)
    writer.send("t", "d")
    assert writer.errors == [] and sorted(writer.acked) == ["a", "b", "c", "d"]
    cluster.stop(2)  # nobody to hand over to: it stops all the same
    for node in (1, 2, 3):
        cluster.start(node)
    cluster.await_isr("t", 1, 2, 3)
    assert cluster.read("t") == ["a", "b", "c", "d"]


def test_S81_reassign(start: Start) -> None:
    """[1] → [2], then [2] → [3, 1], under load: no record lost, and who is not a replica any more keeps nothing."""
    cluster = start()
    cluster.create("t", [[1]])
    writer = cluster.writer()
    sent: list[str] = []

    def write_until(condition: Callable[[], bool]) -> None:
        def step() -> bool:
            sent.append(f"{len(sent)}")
            writer.begin("t", sent[-1])
            return condition()

        until(step)

    def settled(leader: int, *replicas: int) -> bool:
        found = cluster.partition("t")
        return found.leader_id == leader and list(found.replica_nodes) == list(replicas)

    assert cluster.reassign("t", 0, [2]) == 0
    write_until(lambda: settled(2, 2))
    until(lambda: not cluster.directory(1, "t").exists())
    assert cluster.reassign("t", 0, [3, 1]) == 0
    write_until(lambda: settled(3, 3, 1))
    until(lambda: not cluster.directory(2, "t").exists())
    writer.flush()
    assert writer.errors == [] and list(writer.acked) == sent
    assert cluster.read("t") == sent
    cluster.await_equal_logs("t", 3, 1)
    assert cluster.reassign("t", 0, [9]) == ErrorCode.INVALID_REPLICA_ASSIGNMENT


def test_S85_zombie_leader(start: Start) -> None:
    """Leader 1 loses the controller only: 2 leads, and nothing that 1 still takes is ever acknowledged or seen."""
    cluster = start()
    cluster.create("t", [[1, 2, 3]])
    writer = cluster.writer()
    writer.send("t", "a")
    cluster.cut(cluster.controller_id, 1)
    cluster.cut(1, cluster.controller_id)
    cluster.await_leader("t", 2, by=2)
    assert cluster.leader("t", by=1) == 1
    assert produce_at(cluster, 1, 1, "for the bin") == 0
    assert produce_at(cluster, 1, -1, "never acknowledged") == ErrorCode.REQUEST_TIMED_OUT
    assert high_watermark_at(cluster, 1) == 1
    other = cluster.writer([2, 3])
    other.send("t", "b")
    assert other.acked == {"b": 1} and values(cluster, 1)[1:] == [
        "for the bin",
        "never acknowledged",
    ]
    cluster.heal(1, cluster.controller_id)
    cluster.heal(cluster.controller_id, 1)
    cluster.await_isr("t", 1, 2, 3, by=2)
    cluster.await_equal_logs("t", 1, 2, 3)
    assert cluster.read("t") == ["a", "b"] == values(cluster, 1)
    assert "t-0 cut from 3 to 1: the leader's epoch 0 ends at 1" in cluster.said(1)


def test_S86_delete_and_recreate(start: Start) -> None:
    """Nobody waits for a replica that is down when its topic is deleted and made again; it follows the new one."""
    cluster = start()
    cluster.create("t", [[1, 2, 3]])
    cluster.writer().send("t", "old", "older")
    cluster.kill9(3)
    cluster.delete("t")
    assert cluster.directory(3, "t").exists()
    assert not cluster.directory(1, "t").exists()
    cluster.create("t", [[3, 1, 2]])
    cluster.writer().send("t", "new")
    cluster.start(3)
    cluster.await_isr("t", 1, 2, 3)
    cluster.await_equal_logs("t", 1, 2, 3)
    assert values(cluster, 3) == ["new"] == cluster.read("t")
    directory = cluster.directory(3, "t")
    aside = [each for each in directory.parent.iterdir() if each.name.startswith("t-0.")]
    assert [each.name[-len("-stray") :] for each in aside] == ["-stray"]
    topic_ids = [(each / "partition.metadata").read_text() for each in (*aside, directory)]
    assert (
        topic_ids[0]
        != topic_ids[1]
        == (cluster.directory(1, "t") / "partition.metadata").read_text()
    )
