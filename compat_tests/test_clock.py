"""Stock clients of two libraries at a cluster whose clock a test advances, in each way to run it."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from confluent_kafka import Consumer as LibrdConsumer
from confluent_kafka import KafkaException
from confluent_kafka import Producer as LibrdProducer
from kafka import KafkaConsumer, KafkaProducer

from compat_tests.docker_engine import skip_without_engine
from kwire import Cluster

pytestmark = pytest.mark.timeout(120)
DAY_MS = 24 * 3600 * 1000


@pytest.fixture(params=["thread", "process", pytest.param("docker", marks=pytest.mark.slow)])
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    if request.param == "docker":
        skip_without_engine()
    config = {
        "group.initial.rebalance.delay.ms": 0,
        "transaction.state.log.num.partitions": 4,
        "offsets.topic.num.partitions": 4,
    }
    with Cluster(3, config, isolation=request.param) as cluster:
        yield cluster


@contextmanager
def polled(consumer: Any) -> Iterator[list[bytes]]:
    """Polls a consumer on a thread; the values that it has got."""
    found: list[bytes] = []
    ended = threading.Event()

    def poll() -> None:
        while not ended.is_set():
            if isinstance(consumer, KafkaConsumer):
                for records in consumer.poll(timeout_ms=50).values():
                    found.extend(each.value for each in records)
            elif (message := consumer.poll(0.05)) is not None and not message.error():
                found.append(message.value())

    thread = threading.Thread(target=poll)
    thread.start()
    try:
        yield found
    finally:
        ended.set()
        thread.join(20)
        consumer.close()


def addresses(cluster: Cluster) -> dict[str, set[str]]:
    """The clients' connections, by client id."""
    found: dict[str, set[str]] = {}
    for each in cluster.clients():
        found.setdefault(each.client_id, set()).add(each.address)
    return found


def test_retention_a_session_and_a_transaction_end_in_order(cluster: Cluster) -> None:
    cluster.create_topic("old", 1, 3, config={"retention.ms": DAY_MS})
    cluster.create_topic("open", 1, 3)
    cluster.produce("old", "a day old soon")
    producer = LibrdProducer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "transactional.id": "till",
            "transaction.timeout.ms": 60_000,
            "log_level": 0,
        }
    )
    producer.init_transactions(20)
    producer.begin_transaction()
    producer.produce("open", b"never committed")
    producer.flush(20)
    consumer = LibrdConsumer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "group.id": "shop",
            "session.timeout.ms": 45_000,
            "auto.offset.reset": "earliest",
            "log_level": 0,
        }
    )
    consumer.subscribe(["old"])
    with polled(consumer) as seen:
        cluster.wait_for(lambda c: seen and c.group("shop").members, timeout=30)
        before = cluster.clock.now()
        cluster.clock.advance(days=1, hours=1)
        events = [
            each
            for each in cluster.events()
            if each.name in ("GROUP_MEMBER_FAILED", "TRANSACTION_TIMED_OUT", "SEGMENTS_DELETED")
        ]
        after_ms = {}
        for each in events:
            after_ms.setdefault(each.name, each.time_ms - before.timestamp() * 1000)
        assert list(after_ms) == [
            "GROUP_MEMBER_FAILED",
            "TRANSACTION_TIMED_OUT",
            "SEGMENTS_DELETED",
        ]
        assert 38_000 <= after_ms["GROUP_MEMBER_FAILED"] <= 46_000
        assert 55_000 <= after_ms["TRANSACTION_TIMED_OUT"] <= 75_000
        assert DAY_MS - 60_000 <= after_ms["SEGMENTS_DELETED"] <= DAY_MS + 400_000
        assert cluster.records("old") == []
        assert cluster.transaction("till").state == "CompleteAbort"
        # The member, whose session has ended, joins again and goes on; the producer is fenced.
        cluster.produce("old", "new")
        cluster.wait_for(lambda c: seen[-1] == b"new" and c.group("shop").members, timeout=30)
    with pytest.raises(KafkaException):
        producer.commit_transaction(20)


def test_clients_stay_connected_over_eight_days(cluster: Cluster) -> None:
    topic_config = {"message.timestamp.type": "LogAppendTime"}
    cluster.create_topic("orders", 3, 3, config=topic_config)
    servers = cluster.bootstrap_servers
    librd = LibrdProducer({"bootstrap.servers": servers, "client.id": "librd", "log_level": 0})
    python = KafkaProducer(bootstrap_servers=servers, client_id="python", acks="all")
    # No group: its members' sessions would end.
    consumer = KafkaConsumer(
        bootstrap_servers=servers, client_id="reader", auto_offset_reset="earliest", group_id=None
    )
    consumer.assign([_partition(index) for index in range(3)])
    sent = []

    def send(count: int) -> None:
        for _ in range(count):
            value = str(len(sent)).encode()
            if len(sent) % 2:
                librd.produce("orders", value, partition=len(sent) % 3)
                assert librd.flush(20) == 0
            else:
                python.send("orders", value, partition=len(sent) % 3).get(timeout=20)
            sent.append(value)

    with polled(consumer) as seen:
        send(12)
        cluster.wait_for(lambda _: len(seen) == 12, timeout=20)
        before = addresses(cluster)
        assert {"librd", "python", "reader"} <= before.keys()
        now = cluster.clock.advance(days=8)
        send(12)
        cluster.wait_for(lambda _: len(seen) == 24, timeout=20)
        assert sorted(seen) == sorted(sent)
        assert addresses(cluster) == before
        for each in cluster.records("orders"):  # retention has deleted the others
            assert each.timestamp >= now.timestamp() * 1000 - 1
            assert int(each.value or b"") >= 12
        assert all(cluster.partition("orders", n).isr == {1, 2, 3} for n in range(3))
    python.close()
    assert not cluster.events(name="BROKER_FENCED")
    assert cluster.failures() == []


def test_load_goes_on_while_time_passes(cluster: Cluster) -> None:
    """No append, ISR or lease suffers where all brokers are alive."""
    cluster.create_topic("orders", 3, 3, config={"min.insync.replicas": 3})
    producer = LibrdProducer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "acks": "all",
            "retries": 0,
            "linger.ms": 1,
            "log_level": 0,
        }
    )
    errors: list[Any] = []
    delivered = [0]

    def on_delivery(error: Any, _: Any) -> None:
        if error is not None:
            errors.append(error)
        delivered[0] += 1

    ended = threading.Event()

    def load() -> None:
        while not ended.is_set():
            producer.produce("orders", b"x" * 100, on_delivery=on_delivery)
            producer.poll(0.001)

    thread = threading.Thread(target=load)
    thread.start()
    try:
        cluster.wait_for(lambda _: delivered[0] > 100, timeout=20)
        for _ in range(10):
            cluster.clock.advance(minutes=2)
            count = delivered[0]
            cluster.wait_for(lambda _, count=count: delivered[0] > count + 20, timeout=20)
    finally:
        ended.set()
        thread.join(20)
        producer.flush(20)
    assert errors == []
    names = {each.name for each in cluster.events()}
    assert not names & {"BROKER_FENCED", "ISR_SHRUNK", "ISR_SHRINK_PROPOSED"}


def _partition(index: int) -> Any:
    from kafka import TopicPartition

    return TopicPartition("orders", index)


def test_a_fetch_that_waits_is_answered(cluster: Cluster) -> None:
    cluster.create_topic("quiet", 1, 1)
    consumer = KafkaConsumer(
        bootstrap_servers=cluster.bootstrap_servers,
        fetch_max_wait_ms=600_000,
        fetch_min_bytes=1_000_000,
        request_timeout_ms=700_000,
        connections_max_idle_ms=800_000,
        group_id=None,
        auto_offset_reset="earliest",
    )
    from kafka import TopicPartition

    consumer.assign([TopicPartition("quiet", 0)])
    cluster.produce("quiet", "small")
    with polled(consumer) as seen:
        cluster.wait_for(
            lambda c: any(each.api.startswith("Fetch") for each in c.clients()), timeout=20
        )
        time.sleep(0.2)
        assert seen == []
        cluster.clock.advance(minutes=10)
        cluster.wait_for(lambda _: seen == [b"small"], timeout=5)
        cluster.clock.advance(minutes=10)
