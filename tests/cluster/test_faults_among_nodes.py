"""Faults on what brokers and controllers ask each other; and an error for one partition of a client's request."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from kwire import Cluster

pytestmark = pytest.mark.timeout(120)


@pytest.fixture(scope="module", params=["thread", "process"])
def shared(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    with Cluster(2, {"replica.lag.time.max.ms": 500}, isolation=request.param) as cluster:
        yield cluster


@pytest.fixture
def cluster(shared: Cluster) -> Cluster:
    """ "orders" is led by broker 1."""
    shared.reset()
    shared.create_topic("orders", assignment=[[1, 2]] * 2)
    shared.wait_in_sync()
    return shared


def test_a_late_leader_and_isr(cluster: Cluster) -> None:
    with cluster.faults.inject("LeaderAndIsr", delay=300, broker=2) as fault:
        began = time.monotonic()
        cluster.elect("orders", 0, leader=2)
        assert time.monotonic() - began >= 0.3
    assert fault.hits >= 1 and {each.broker for each in fault.requests} == {2}
    cluster.produce("orders", "tea", partition=0)


def test_an_alter_partition_that_is_refused_is_sent_again(cluster: Cluster) -> None:
    """The follower cannot fetch, but stays in the ISR until the controller takes the proposal: acks=all waits."""
    refused = {"error": "NOT_CONTROLLER", "times": 3}
    with cluster.faults.inject("AlterPartition", **refused) as fault:
        with cluster.network.cut(2, 1, one_way=True):
            cluster.produce("orders", "tea", partition=0)
            assert fault.hits == 3
            assert cluster.partition("orders", 0).isr == {1}
        assert {each.client_id for each in fault.requests} == {"broker-1"}
    cluster.wait_in_sync(timeout=20)


def test_a_partition_of_an_alter_partition_is_refused(cluster: Cluster) -> None:
    given = {"error": "INELIGIBLE_REPLICA", "topic": "orders", "partition": 0, "times": 2}
    cluster.broker(2).stop()
    cluster.produce("orders", "tea", partition=0)
    with cluster.faults.inject("AlterPartition", **given) as fault:
        cluster.broker(2).start()
        cluster.wait_in_sync(
            timeout=30
        )  # it proposes broker 2 again, after an update or when that lags no more
    assert fault.hits == 2


def test_a_follower_gets_offset_out_of_range(cluster: Cluster) -> None:
    """It starts anew where the leader's log begins, as Kafka's, and has everything in the end."""
    for value in ("a", "b"):
        cluster.produce("orders", value, partition=0)
    given = {"error": "OFFSET_OUT_OF_RANGE", "client_id": "broker-2", "topic": "orders"}
    with cluster.faults.inject("Fetch", **given, partition=0, times=1) as fault:
        cluster.produce("orders", "c", partition=0)
        cluster.wait_for(lambda _: fault.hits == 1)
    cluster.wait_in_sync(timeout=20)
    cluster.wait_for(lambda c: c.partition("orders", 0).replica(2).log_end_offset == 3)
    cluster.elect("orders", 0, leader=2)
    assert [each.value for each in cluster.records("orders", partition=0)] == [b"a", b"b", b"c"]


def test_an_error_for_one_partition_of_a_produce(cluster: Cluster) -> None:
    """In one request: the other partition is written."""
    from kafka import KafkaProducer

    given = {"error": "MESSAGE_TOO_LARGE", "topic": "orders", "partition": 1}
    with cluster.faults.inject("Produce", **given) as fault:
        producer = KafkaProducer(
            bootstrap_servers=cluster.bootstrap_servers, linger_ms=300, enable_idempotence=False
        )
        sent = [producer.send("orders", b"tea", partition=index) for index in (0, 1)]
        assert sent[0].get(timeout=20).offset == 0
        with pytest.raises(Exception, match="MessageSizeTooLarge"):
            sent[1].get(timeout=20)
        producer.close()
        assert fault.hits == 1 and fault.requests[0].outcome == "MESSAGE_TOO_LARGE"
    assert len(cluster.records("orders")) == 1


def test_the_event_log_names_faults_and_their_first_hit(cluster: Cluster) -> None:
    last = max(each.number for each in cluster.events())
    given = {"topic": "orders", "partition": 0, "client_id": "app"}
    with cluster.faults.inject("Produce", delay=1, **given) as fault:
        from confluent_kafka import Producer

        servers = cluster.bootstrap_servers
        producer = Producer({"bootstrap.servers": servers, "client.id": "app"})
        for _ in range(3):
            producer.produce("orders", b"tea", partition=0)
            assert producer.flush(20) == 0
        assert fault.hits == 3
    names = ("FAULT_SET", "FAULT_HIT", "FAULT_REMOVED")
    found = [each for each in cluster.events(since=last) if each.name in names]
    assert [each.name for each in found] == list(names)
    shown = f"control: fault {fault.id} on requests: Produce"
    assert found[0].text.startswith(shown) and found[0].text.endswith("delayed by 1 ms")
    assert found[1].text == f"fault {fault.id} hits Produce of app: delayed by 1 ms"
    assert found[2].fields == {"fault": fault.id, "hits": 3}
