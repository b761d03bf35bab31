"""All that a test author does with a cluster, one call after the other, in one piece: brokers that die, elections,
cuts, faults on requests and disks, the clock, snapshots, requests for asserts."""

from __future__ import annotations

import time
from datetime import timedelta

import pytest

from kwire import Cluster, errors

pytestmark = pytest.mark.timeout(180)


@pytest.mark.parametrize("isolation", ["thread", "process"])
def test_the_whole_example(isolation: str) -> None:
    with Cluster(brokers=3, isolation=isolation, recent_requests=True) as cluster:
        addresses = cluster.bootstrap_servers.split(",")
        assert len(addresses) == 3 and all(each.startswith("127.0.0.1:") for each in addresses)

        config = {"min.insync.replicas": "2"}
        cluster.create_topic("orders", partitions=3, replication_factor=3, config=config)
        p = cluster.partition("orders", 0)
        assert p.leader in p.isr == {1, 2, 3}
        assert (p.leader_epoch, p.high_watermark) == (0, 0)
        cluster.produce("orders", "tea", partition=0)
        replica = cluster.partition("orders", 0).replica(p.leader)
        assert (replica.log_start_offset, replica.log_end_offset) == (0, 1)
        assert replica.epochs == [(0, 0)]

        cluster.broker(1).kill()
        assert not cluster.broker(1).running
        cluster.wait_for(lambda c: c.partition("orders", 0).leader not in (1, -1))
        cluster.broker(1).start()
        cluster.wait_for(lambda c: c.partition("orders", 0).isr == {1, 2, 3}, timeout=20)
        cluster.broker(3).stop()  # controlled: its leaderships have moved
        assert cluster.partition("orders", 0).leader != 3
        cluster.broker(3).start()
        cluster.broker(2).pause()
        assert cluster.broker(2).paused
        cluster.broker(2).resume()
        cluster.wait_in_sync(timeout=30)

        cluster.elect("orders", 0, leader=2)
        assert cluster.partition("orders", 0).leader == 2
        cluster.wait_in_sync(timeout=20)

        with cluster.network.cut({1}, {2, 3}):
            assert cluster.network.cuts() == [(1, 2), (1, 3)]
            assert len(cluster.records("orders")) == 1  # clients still reach all brokers
        assert cluster.network.cuts() == []
        cluster.network.delay(1, 2, milliseconds=50)
        assert cluster.network.delays() == [(1, 2, 50)]
        cluster.network.heal()

        refused = {"error": "NOT_ENOUGH_REPLICAS", "topic": "orders", "broker": 2, "times": 3}
        with cluster.faults.inject(api="Produce", **refused, client_id="spark") as fault:
            written(cluster)
            assert fault.hits == 3
        with cluster.broker(2).disk.slow(1, "append"):
            cluster.produce("orders", "late", partition=0)

        before = cluster.clock.now()
        cluster.clock.advance(days=8)
        assert cluster.clock.now() - before >= timedelta(days=8)
        cluster.wait_for(lambda c: not c.records("orders"))

        cluster.produce("orders", "kept", partition=1)
        snapshot = cluster.snapshot()
        cluster.delete_topic("orders")
        cluster.restore(snapshot)
        assert [record.value for record in cluster.records("orders")][-1:] == [b"kept"]

        read(cluster)
        fetches = cluster.requests(api="Fetch", client_id="spark")
        assert fetches and {each.client_id for each in fetches} == {"spark"}
        assert all(each.api == "Fetch" for each in fetches)

        assert cluster.wait_for(lambda c: c.partition("orders", 0).isr == {1, 2, 3}, timeout=20)
        with pytest.raises(errors.WaitTimeoutError, match="leader 7"):
            began = time.monotonic()
            cluster.wait_for(
                lambda c: f"leader {c.partition('orders', 0).leader}" == "leader 7", 0.2
            )
        assert time.monotonic() - began < 5


def written(cluster: Cluster) -> None:
    """A stock producer named "spark" writes a record, and tries again until it is there."""
    from kafka import KafkaProducer

    servers = cluster.bootstrap_servers
    producer = KafkaProducer(bootstrap_servers=servers, client_id="spark", retry_backoff_ms=20)
    producer.send("orders", b"coffee", partition=0).get(timeout=20)
    producer.close()


def read(cluster: Cluster) -> None:
    """A stock consumer of that name reads it."""
    from kafka import KafkaConsumer, TopicPartition

    consumer = KafkaConsumer(
        bootstrap_servers=cluster.bootstrap_servers,
        client_id="spark",
        auto_offset_reset="earliest",
    )
    consumer.assign([TopicPartition("orders", 1)])
    assert cluster.wait_for(lambda _: consumer.poll(200), timeout=20)
    consumer.close()
