"""Faults on requests as stock clients of two libraries see them, in each way to run a cluster, at each door."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer as LibrdConsumer
from confluent_kafka import Producer as LibrdProducer
from kafka import KafkaConsumer, KafkaProducer, TopicPartition

from compat_tests.docker_engine import skip_without_engine
from kwire import Cluster, errors

pytestmark = pytest.mark.timeout(120)
TOPIC = "orders"


@pytest.fixture(
    scope="module",
    params=["thread", "process", pytest.param("docker", marks=pytest.mark.slow)],
)
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    if request.param == "docker":
        skip_without_engine()
    config = {"group.initial.rebalance.delay.ms": 0}
    with Cluster(2, config, isolation=request.param, topics=[f"{TOPIC}:2:2"]) as cluster:
        yield cluster


@pytest.fixture(autouse=True)
def no_faults(cluster: Cluster) -> Iterator[None]:
    yield
    cluster.faults.clear()


def kafka_python(cluster: Cluster, **more: Any) -> KafkaProducer:
    given = {"retry_backoff_ms": 20, "request_timeout_ms": 1500, "delivery_timeout_ms": 20_000}
    return KafkaProducer(
        bootstrap_servers=cluster.bootstrap_servers, linger_ms=0, **{**given, **more}
    )


def librdkafka(cluster: Cluster, **more: Any) -> LibrdProducer:
    given = {
        "bootstrap.servers": cluster.bootstrap_servers,
        "retry.backoff.ms": 20,
        "retry.backoff.max.ms": 50,
        "socket.timeout.ms": 1500,
        "linger.ms": 0,
        "log_level": 0,
    }
    return LibrdProducer({**given, **more})


def send(producer: Any, value: bytes, partition: int = 0) -> str | None:
    """Send a record and wait; the name of the error, None: it is there."""
    if isinstance(producer, KafkaProducer):
        try:
            producer.send(TOPIC, value, partition=partition).get(timeout=25)
        except Exception as error:
            return type(error).__name__
        return None
    found: list[str | None] = []
    producer.produce(
        TOPIC,
        value,
        partition=partition,
        on_delivery=lambda error, _: found.append(None if error is None else error.name()),
    )
    producer.flush(25)
    return found[0]


def values(cluster: Cluster, value: bytes) -> int:
    return sum(record.value == value for record in cluster.records(TOPIC))


PRODUCERS = [kafka_python, librdkafka]


@pytest.mark.parametrize("make", PRODUCERS)
def test_an_error_that_can_be_retried_is(cluster: Cluster, make: Any) -> None:
    value = f"retried {make.__name__}".encode()
    given = {"error": "NOT_ENOUGH_REPLICAS", "topic": TOPIC, "partition": 0}
    with cluster.faults.inject("Produce", **given, times=2) as fault:
        assert send(make(cluster), value) is None
        assert fault.hits == 2
    assert [each.outcome for each in fault.requests] == ["NOT_ENOUGH_REPLICAS"] * 2
    assert {each.api for each in fault.requests} == {"Produce"}
    assert values(cluster, value) == 1


@pytest.mark.parametrize("make", PRODUCERS)
def test_an_error_that_cannot_be_retried_reaches_the_application(
    cluster: Cluster, make: Any
) -> None:
    value = f"refused {make.__name__}".encode()
    with cluster.faults.inject("Produce", error="MESSAGE_TOO_LARGE", topic=TOPIC, partition=1):
        refused = send(make(cluster), value, 1)
        assert refused in ("MessageSizeTooLargeError", "MSG_SIZE_TOO_LARGE")
        assert send(make(cluster), value, 0) is None  # for kafka-python's producer it was fatal
    assert values(cluster, value) == 1


@pytest.mark.parametrize(("idempotent", "copies"), [(True, 1), (False, 2)])
@pytest.mark.parametrize("make", PRODUCERS)
def test_an_answer_that_never_comes_is_a_duplicate_unless_idempotent(
    cluster: Cluster, make: Any, idempotent: bool, copies: int
) -> None:
    value = f"once {make.__name__} {idempotent}".encode()
    name = "enable_idempotence" if make is kafka_python else "enable.idempotence"
    with cluster.faults.inject("Produce", drop="after", times=1, topic=TOPIC) as fault:
        assert send(make(cluster, **{name: idempotent}), value) is None
        assert fault.hits == 1
    assert values(cluster, value) == copies


@pytest.mark.parametrize("make", PRODUCERS)
@pytest.mark.parametrize("given", [{"drop": "before"}, {"close": True}, {"delay": 300}])
def test_a_request_that_is_lost_or_late_is_there_once(
    cluster: Cluster, make: Any, given: dict[str, Any]
) -> None:
    value = f"{make.__name__} {given}".encode()
    with cluster.faults.inject("Produce", **given, times=1, topic=TOPIC) as fault:
        began = time.monotonic()
        assert send(make(cluster), value) is None
        took = time.monotonic() - began
        assert fault.hits == 1
    assert values(cluster, value) == 1
    assert took > 0.3 or "delay" not in given


@pytest.mark.parametrize("make", PRODUCERS)
def test_a_throttled_producer_waits(cluster: Cluster, make: Any) -> None:
    value = f"throttled {make.__name__}".encode()
    with cluster.faults.inject("Produce", throttle=400, times=1) as fault:
        producer = make(cluster)
        began = time.monotonic()
        assert send(producer, value) is None
        assert send(producer, value) is None
        assert fault.hits == 1
        assert time.monotonic() - began > 0.4


def read_with_kafka_python(cluster: Cluster, **more: Any) -> int:
    consumer = KafkaConsumer(
        bootstrap_servers=cluster.bootstrap_servers, auto_offset_reset="earliest", **more
    )
    try:
        partition = TopicPartition(TOPIC, 0)
        consumer.assign([partition])
        consumer.seek_to_beginning(partition)
        found = 0
        deadline = time.monotonic() + 20
        while not found and time.monotonic() < deadline:
            found = sum(map(len, consumer.poll(500).values()))
        return found
    finally:
        consumer.close()


def test_a_consumer_finds_corrupt_records(cluster: Cluster) -> None:
    cluster.produce(TOPIC, "corrupt", partition=0)
    with cluster.faults.inject("Fetch", corrupt=True, topic=TOPIC) as fault:
        with pytest.raises(Exception, match=r"(?i)crc|corrupt"):
            read_with_kafka_python(cluster)
        assert fault.hits
        consumer = LibrdConsumer(
            {
                "bootstrap.servers": cluster.bootstrap_servers,
                "group.id": "g",
                "check.crcs": True,
                "auto.offset.reset": "earliest",
                "log_level": 0,
            }
        )
        from confluent_kafka import TopicPartition as Assigned

        consumer.assign([Assigned(TOPIC, 0, 0)])
        message = consumer.poll(20)
        consumer.close()
        assert message is not None and message.error() is not None
        assert message.error().name() == "_BAD_MSG"
    assert read_with_kafka_python(cluster)


def test_an_offset_out_of_range_resets_a_consumer(cluster: Cluster) -> None:
    cluster.produce(TOPIC, "range", partition=0)
    given = {"error": "OFFSET_OUT_OF_RANGE", "topic": TOPIC, "partition": 0}
    with cluster.faults.inject("Fetch", **given, times=1) as fault:
        assert read_with_kafka_python(cluster)
        assert fault.hits == 1


def test_what_nodes_send_to_each_other(cluster: Cluster) -> None:
    """A follower that cannot fetch leaves the ISR, unless AlterPartition is refused; orders may be late."""
    if "docker" in repr(cluster):
        pytest.skip("the controller's container has the same API")
    leader = cluster.partition(TOPIC, 0).leader
    follower = 3 - leader
    with cluster.faults.inject(
        "Fetch", error="OFFSET_OUT_OF_RANGE", client_id=f"broker-{follower}", topic=TOPIC, times=1
    ) as fault:
        cluster.produce(TOPIC, "follow", partition=0)
        cluster.wait_for(lambda _: fault.hits)
    cluster.wait_in_sync(TOPIC)
    with cluster.faults.inject("LeaderAndIsr", delay=200) as late:
        began = time.monotonic()
        cluster.elect(TOPIC, 0, follower)
        assert time.monotonic() - began > 0.2
        assert late.hits
    cluster.wait_in_sync(TOPIC)


def test_a_node_that_comes_back_is_told(cluster: Cluster) -> None:
    with cluster.faults.inject("Metadata", error="LEADER_NOT_AVAILABLE", topic="none") as fault:
        cluster.broker(2).kill()
        cluster.broker(2).start()
        assert [each.id for each in cluster.faults.list()] == [fault.id]
        from confluent_kafka.admin import AdminClient

        address = cluster.broker(2).address
        AdminClient({"bootstrap.servers": address, "log_level": 0}).list_topics("none", timeout=10)
        assert any(each.broker == 2 for each in fault.requests)
    cluster.wait_in_sync()


def test_a_reset_removes_all_faults_and_a_text_names_them(cluster: Cluster) -> None:
    cluster.faults.inject("Produce", delay=10, topic="x")
    assert "fault: Produce topic=x: delayed by 10 ms; no requests hit" in cluster.describe()
    cluster.faults.clear()
    assert cluster.faults.list() == [] and "fault:" not in cluster.describe()


def test_what_would_never_hit_is_refused(cluster: Cluster) -> None:
    with pytest.raises(errors.ConfigurationError, match="did you mean Produce"):
        cluster.faults.inject("Produc", close=True)
    with pytest.raises(errors.ClusterStateError, match="there is no broker 7"):
        cluster.faults.inject("Produce", close=True, broker=7)
    assert cluster.faults.list() == []
