"""kwire.Cluster.connect and the plugin's external mode, against kwire or (REAL=1) a real Apache Kafka."""

from collections.abc import Callable

import pytest
from confluent_kafka import Producer

from compat_tests.brokers import Broker
from kwire import Cluster, errors

pytestmark = pytest.mark.timeout(90)


@pytest.fixture
def outside(broker: Broker) -> Cluster:
    return Cluster.connect(broker.bootstrap_servers)


def test_topics_and_offsets_are_seen_from_outside(
    outside: Cluster, fresh: Callable[[str], str]
) -> None:
    name = fresh("connected")
    outside.create_topic(name, 2, 1, config={"retention.ms": 1_000_000})
    producer = Producer({"bootstrap.servers": outside.bootstrap_servers, "acks": "all"})
    for _ in range(3):
        producer.produce(name, b"x", partition=1)
    assert producer.flush(20) == 0
    outside.wait_for(lambda c: c.partition(name, 1).high_watermark == 3, 10)
    p = outside.partition(name, 1)
    assert p.isr == {p.leader} == set(p.replicas) and p.leader_epoch == 0
    copy = p.replica(p.leader)
    assert (copy.log_start_offset, copy.log_end_offset) == (0, 3)
    assert outside.topics()[name] == 2
    outside.elect(name, 1)
    outside.elect(name, 1, leader=p.leader)
    outside.delete_topic(name)
    with pytest.raises(errors.UnknownTopicOrPartitionError):
        outside.partition(name, 0)
    outside.stop()


def test_refusals_have_kafkas_names_from_outside(
    outside: Cluster, fresh: Callable[[str], str]
) -> None:
    name = fresh("connected")
    outside.create_topic(name)
    for call, kafka_error in [
        (lambda: outside.create_topic(name), "TOPIC_ALREADY_EXISTS"),
        (lambda: outside.create_topic(f"{name}-b", 1, 9), "INVALID_REPLICATION_FACTOR"),
        (lambda: outside.create_topic("a b"), "INVALID_TOPIC_EXCEPTION"),
        (lambda: outside.delete_topic(f"{name}-c"), "UNKNOWN_TOPIC_OR_PARTITION"),
        (lambda: outside.elect(name, 0, leader=77), "ELIGIBLE_LEADERS_NOT_AVAILABLE"),
    ]:
        with pytest.raises(errors.RequestError) as found:
            call()
        assert found.value.kafka_error == kafka_error
    outside.delete_topic(name)
    outside.stop()


def test_the_inside_cannot_be_had_from_outside(outside: Cluster) -> None:
    for call in (
        lambda: outside.broker(1),
        lambda: outside.brokers,
        lambda: outside.controller_id,
        lambda: outside.network.cut(1, 2),
        lambda: outside.network.delay(1, 2, 5),
    ):
        with pytest.raises(errors.NotSupportedError, match="somebody else has started"):
            call()
    outside.stop()


def test_an_outside_cluster_is_emptied(own_broker: Broker) -> None:
    with Cluster.connect(own_broker.bootstrap_servers) as outside:
        outside.create_topic("a", 2)
        outside.create_topic("b")
        outside.reset()
        assert outside.topics() == {}
        outside.create_topic("a")
        assert outside.topics() == {"a": 1}
