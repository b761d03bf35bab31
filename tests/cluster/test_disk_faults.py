"""Disks that fail, are full or slow: what the cluster does then, and that a reset leaves nothing of it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from kwire import Cluster, aio, errors

pytestmark = pytest.mark.timeout(120)


@pytest.fixture(scope="module", params=["thread", "process"])
def shared(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """Three brokers with one log directory each."""
    with Cluster(brokers=3, isolation=request.param) as cluster:
        yield cluster


@pytest.fixture
def cluster(shared: Cluster) -> Cluster:
    shared.reset()
    shared.create_topic("orders", 1, 3)
    shared.wait_in_sync()
    return shared


@pytest.fixture(scope="module", params=["thread", "process"])
def two_disks(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Cluster]:
    """Two brokers with two log directories each, "a" and "b"."""
    path: Path = tmp_path_factory.mktemp("disks")
    config = {"log.dirs": f"{path}/a,{path}/b"}
    with Cluster(brokers=2, isolation=request.param, config=config) as cluster:
        yield cluster


def is_written(cluster: Cluster, index: int) -> bool:
    """Write a record and read it; False for the error of a failed disk, after which a client tries again."""
    try:
        cluster.produce("t", str(index), partition=index)
        return bool(cluster.records("t", partition=index))
    except errors.RequestError as error:
        assert error.kafka_error == "KAFKA_STORAGE_ERROR"
        return False


def events(cluster: Cluster, name: str) -> list[str]:
    return [each.text for each in cluster.events() if each.name == name]


def test_with_the_only_directory_the_broker_halts_and_others_lead(cluster: Cluster) -> None:
    leader = cluster.partition("orders", 0).leader
    broker = cluster.broker(leader)
    fault = broker.disk.fail("append", topic="orders", partition=0)
    with pytest.raises(errors.RequestError) as raised:
        cluster.produce("orders", "a")
    assert raised.value.kafka_error == "KAFKA_STORAGE_ERROR"
    cluster.wait_for(lambda c: c.partition("orders", 0).leader not in (leader, -1))
    cluster.wait_for(lambda c: not broker.running)
    assert fault.hits == 1
    assert str(cluster.produce("orders", "b")) == "orders-0@0 b"
    assert f"broker {leader}: append fails" in events(cluster, "DISK_FAULT_SET")[-1]
    assert any("has ended" in text for text in events(cluster, "NODE_DIED"))
    broker.disk.heal()
    broker.start()
    cluster.wait_for(lambda c: c.partition("orders", 0).isr == {1, 2, 3}, timeout=20)
    assert [record.value for record in cluster.records("orders")] == [b"b"]


def test_a_broker_that_halts_so_is_no_failure_of_the_test() -> None:
    with Cluster(brokers=2, isolation="process") as cluster:
        cluster.create_topic("orders", assignment=[[2, 1]])
        broker = cluster.broker(1)
        broker.disk.full()
        cluster.produce("orders", "a")
        cluster.wait_for(lambda c: not broker.running)
        assert cluster.failures() == []


@pytest.mark.parametrize("operation", ["append", "read", "fsync", "write"])
def test_one_directory_of_two_goes_offline(two_disks: Cluster, operation: str) -> None:
    cluster = two_disks
    cluster.reset()
    broker = cluster.broker(1)
    fault = broker.disk.fail(operation, directory="b")
    cluster.create_topic("t", assignment=[[1, 2]] * 4)
    for index in range(4):
        cluster.wait_for(lambda c, index=index: is_written(c, index), timeout=20)
    lost = cluster.wait_for(
        lambda c: {i for i in range(4) if c.partition("t", i).isr == {2}}, timeout=20
    )
    assert lost and all(cluster.partition("t", index).leader == 2 for index in lost)
    assert broker.running and fault.hits == 1
    (hit,) = events(cluster, "DISK_FAULT_HIT")[-1:]
    assert hit.startswith(f"a test has set that the disk fails: {operation} of ") and "/b/" in hit
    assert any("/b/" in text for text in events(cluster, "LOG_DIR_FAILED"))
    # One that was refused may be there, too, and then twice.
    assert {record.value for record in cluster.records("t")} == {b"0", b"1", b"2", b"3"}

    broker.disk.heal()  # Kafka's broker uses a directory again only when it starts again
    assert any(cluster.partition("t", index).isr == {2} for index in lost)
    broker.kill()
    broker.start()
    cluster.wait_in_sync("t", timeout=30)


def test_a_log_that_cannot_be_created_is_created_on_the_other_disk(two_disks: Cluster) -> None:
    cluster = two_disks
    cluster.reset()
    fault = cluster.broker(1).disk.fail("create", directory="b")
    cluster.create_topic("t", assignment=[[1, 2]] * 4)
    for index in range(4):
        assert is_written(cluster, index)
    assert fault.hits == 1 and any("/b/" in text for text in events(cluster, "LOG_DIR_FAILED"))
    assert {cluster.partition("t", index).leader for index in range(4)} == {1}


def test_a_full_disk_is_still_read(two_disks: Cluster) -> None:
    cluster = two_disks
    cluster.reset()
    cluster.create_topic("t", assignment=[[1]] * 2)
    for index in range(2):
        cluster.produce("t", "old", partition=index)
    with cluster.broker(1).disk.full(directory="a"):
        refused = 0
        assert len(cluster.records("t")) == 2
        for index in range(2):
            try:
                cluster.produce("t", "new", partition=index)
            except errors.RequestError as error:
                assert error.kafka_error == "KAFKA_STORAGE_ERROR"
                refused += 1
        assert refused == 1


def test_after_a_reset_all_disks_work(two_disks: Cluster) -> None:
    cluster = two_disks
    cluster.reset()
    cluster.create_topic("t", assignment=[[1]] * 2)
    fault = cluster.broker(1).disk.fail("append", directory="a")
    for index in range(2):
        try:
            cluster.produce("t", "x", partition=index)
        except errors.RequestError:
            assert fault.hits == 1
    assert "disk of broker 1: append fails with EIO, directory=a; 1 operation hit" in (
        cluster.describe().splitlines()
    )
    cluster.reset()
    assert cluster.broker(1).disk.faults() == [] and "disk of" not in cluster.describe()
    cluster.create_topic("t", assignment=[[1]] * 4)
    for index in range(4):
        cluster.produce("t", "x", partition=index)
    assert len(cluster.records("t")) == 4


def test_a_slow_leader_answers_late_and_others_do_not(cluster: Cluster) -> None:
    leader = cluster.partition("orders", 0).leader
    other = leader % 3 + 1
    cluster.create_topic("fast", assignment=[[other]])
    cluster.produce("orders", "a")
    cluster.produce("fast", "a")
    with cluster.broker(leader).disk.slow(300, "append") as fault:
        started = time.monotonic()
        cluster.produce("fast", "b")
        assert time.monotonic() - started < 0.29 and fault.hits == 0
        started = time.monotonic()
        cluster.produce("orders", "b")
        assert time.monotonic() - started >= 0.3 and fault.hits == 1
    started = time.monotonic()
    cluster.produce("orders", "c")
    assert time.monotonic() - started < 0.29


def test_a_slow_follower_delays_acks_all_and_stays_in_the_isr(cluster: Cluster) -> None:
    leader = cluster.partition("orders", 0).leader
    follower = leader % 3 + 1
    with cluster.broker(follower).disk.slow(150):
        cluster.produce("orders", "a")  # it may have asked before
        started = time.monotonic()
        cluster.produce("orders", "b")
        assert time.monotonic() - started >= 0.1
        assert cluster.partition("orders", 0).isr == {1, 2, 3}


def test_slow_reads_are_late_and_of_the_topic_only(cluster: Cluster) -> None:
    leader = cluster.partition("orders", 0).leader
    cluster.create_topic("others", assignment=[[leader]])
    cluster.produce("orders", "a")
    cluster.produce("others", "a")
    with cluster.broker(leader).disk.slow(300, "read", topic="orders"):
        started = time.monotonic()
        assert len(cluster.records("others")) == 1
        assert time.monotonic() - started < 0.29
        assert len(cluster.records("orders")) == 1
        assert time.monotonic() - started >= 0.3


def test_a_controller_whose_journal_cannot_be_written_refuses(cluster: Cluster) -> None:
    controller = cluster.controllers[0]
    with controller.disk.fail("append") as fault:
        with pytest.raises(errors.RequestError) as raised:
            cluster.create_topic("more")
        assert raised.value.kafka_error == "KAFKA_STORAGE_ERROR" and fault.hits >= 1
        cluster.produce("orders", "a")  # brokers go on with what they know

    def is_made(cluster: Cluster) -> bool:
        try:
            cluster.create_topic("more")
        except errors.KwireError:
            return False
        return True

    cluster.wait_for(is_made, timeout=20)


def test_a_node_that_is_back_is_told_again(cluster: Cluster) -> None:
    follower = cluster.partition("orders", 0).leader % 3 + 1
    broker = cluster.broker(follower)
    fault = broker.disk.slow(5, "append")
    broker.kill()
    broker.start()
    cluster.wait_in_sync("orders", timeout=20)
    assert broker.disk.faults()[0].id == fault.id
    cluster.elect("orders", 0, leader=follower)
    cluster.produce("orders", "a")
    assert fault.hits >= 1
    broker.pause()
    with pytest.raises(errors.BrokerNotAvailableError, match="is paused"):
        broker.disk.fail("read")
    fault.remove()  # it cannot be told now
    broker.resume()
    hits = fault.hits
    cluster.wait_for(lambda c: c.partition("orders", 0).leader != -1)
    cluster.produce("orders", "b")
    assert fault.hits == hits and broker.disk.faults() == []


def test_what_could_never_hit_is_refused(cluster: Cluster) -> None:
    disk = cluster.broker(1).disk
    for call, message in (
        (lambda: disk.fail("appendd"), "did you mean append"),
        (lambda: disk.fail("append", partition=0), "partition: of which topic"),
        (lambda: disk.fail("append", directory="nowhere"), "has no log directory nowhere"),
        (lambda: disk.slow(-1), "milliseconds"),
        (lambda: cluster.controllers[0].disk.slow(20), r"is a controller.*network\.delay"),
        (lambda: cluster.controllers[0].disk.fail("append", topic="t"), "it has no topics"),
    ):
        with pytest.raises(errors.ConfigurationError, match=message) as raised:
            call()
        assert "\n" not in str(raised.value)
    assert disk.faults() == [] and "no faults" in repr(disk)
    cluster.broker(2).kill()
    with pytest.raises(errors.BrokerNotAvailableError, match="broker 2 does not run"):
        cluster.broker(2).disk.full()


def test_on_an_event_loop() -> None:
    async def main() -> None:
        async with aio.Cluster(brokers=2, topics=["t:1:2"]) as cluster:
            leader = (await cluster.partition("t", 0)).leader
            disk = cluster.broker(leader).disk
            async with disk.slow(100, "append") as fault:
                await cluster.produce("t", "a")
                assert await fault.hits() == 1 and "late by 100 ms" in repr(disk)
            assert disk.faults() == []
            fault = await disk.fail("append", times=1)
            with pytest.raises(errors.RequestError):
                await cluster.produce("t", "b")
            await cluster.wait_for(lambda c: not c.broker(leader).running)
            assert await fault.hits() == 1
            await disk.heal()

    asyncio.run(main())


def test_a_standalone_broker_of_kwire_up_has_a_disk_too(tmp_path: Path) -> None:
    """`kwire up` with one broker: the control API is that of its one process."""
    from kwire.launch.node_runner import NodeRunner
    from kwire.launch.spec import NodeSpec

    async def main() -> None:
        runner = NodeRunner(NodeSpec(node_id=1, data_dir=str(tmp_path / "data")))
        await runner.start()
        cluster = aio.Cluster.of(runner)
        await cluster.create_topic("t")
        async with cluster.broker(1).disk.slow(50, "append") as fault:
            await cluster.produce("t", "a")
            assert await fault.hits() == 1
        await runner.stop()

    asyncio.run(main())
