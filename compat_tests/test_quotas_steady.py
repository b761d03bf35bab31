"""A consumer at a quota over half a minute, with Kafka's own windows; REAL=1 at Kafka 3.9.1."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from compat_tests import brokers
from compat_tests.test_quotas import MEGABYTE, RECORD, Statistics, alter, client
from compat_tests.test_security import Wire
from kwire.protocol.schemas.topics import CreatableTopic, CreateTopicsRequest

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]
BEGIN_S, SPAN_S = 14.0, 22.0
"""After the burst that eleven windows allow, and the wait that follows it."""


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[brokers.Broker]:
    broker = brokers.broker_class()(tmp_path, {})
    broker.start()
    yield broker
    broker.stop()


def test_a_consumer_at_one_megabyte_a_second(broker: brokers.Broker) -> None:
    wire = Wire(broker.port)
    topic = CreatableTopic(name="read", num_partitions=1, replication_factor=1)
    wire.ask(CreateTopicsRequest(topics=[topic], timeout_ms=10_000), 7)
    producer = Producer(client(broker, "filler"))
    for _ in range(6000):
        producer.produce("read", RECORD)
    assert producer.flush(40) == 0
    assert alter(wire, {"client-id": "reader"}, consumer_byte_rate=MEGABYTE) == (0, None)
    seen = Statistics()
    options = {"stats_cb": seen, "fetch.wait.max.ms": 10}
    consumer = Consumer(
        client(broker, "reader", group_id="g", fetch_message_max_bytes=100_000) | options
    )
    consumer.assign([TopicPartition("read", 0, 0)])
    times: list[float] = []
    while not times or times[-1] < times[0] + BEGIN_S + SPAN_S:
        message = consumer.poll(20)
        assert message is not None and message.error() is None
        times.append(time.monotonic())
    consumer.close()
    wire.close()
    begin = times[0] + BEGIN_S
    rate = sum(begin <= at < begin + SPAN_S for at in times) * len(RECORD) / SPAN_S
    assert rate == pytest.approx(MEGABYTE, rel=0.1)
    assert seen.longest_ms > 0
