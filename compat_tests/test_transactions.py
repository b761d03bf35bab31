"""Transactions of stock clients on one broker: committed, aborted, and fenced by a successor."""

from collections.abc import Callable

import pytest
from confluent_kafka import KafkaException, Producer
from kafka import KafkaConsumer, KafkaProducer
from kafka.errors import KafkaError

from compat_tests.brokers import Broker

pytestmark = [pytest.mark.timeout(90)]
Fresh = Callable[[str], str]


def committed(broker: Broker, topic: str) -> list[bytes]:
    """All records that a read_committed consumer gets."""
    consumer = KafkaConsumer(
        topic,
        bootstrap_servers=broker.bootstrap_servers,
        isolation_level="read_committed",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        consumer_timeout_ms=3000,
    )
    found = [message.value for message in consumer]
    consumer.close()
    return found


def librdkafka(broker: Broker, transactional_id: str) -> Producer:
    settings = {"bootstrap.servers": broker.bootstrap_servers, "log_level": 0}
    producer = Producer({**settings, "transactional.id": transactional_id})
    producer.init_transactions(30)
    return producer


def test_librdkafka_commits_and_aborts(broker: Broker, fresh: Fresh) -> None:
    topic = fresh("transactions")
    producer = librdkafka(broker, fresh("id"))
    for number in range(4):
        producer.begin_transaction()
        producer.produce(topic, b"%d" % number)
        if number % 2:
            producer.flush(30)
            producer.abort_transaction(30)
        else:
            producer.commit_transaction(30)
    assert committed(broker, topic) == [b"0", b"2"]


def test_a_successor_fences_librdkafka_and_aborts_what_it_left_open(
    broker: Broker, fresh: Fresh
) -> None:
    topic, transactional_id = fresh("transactions"), fresh("id")
    old = librdkafka(broker, transactional_id)
    old.begin_transaction()
    old.produce(topic, b"left open")
    old.flush(30)
    new = librdkafka(broker, transactional_id)
    with pytest.raises(KafkaException) as fenced:
        old.commit_transaction(30)
    assert fenced.value.args[0].fatal()
    new.begin_transaction()
    new.produce(topic, b"new")
    new.commit_transaction(30)
    assert committed(broker, topic) == [b"new"]


def test_kafka_python_commits_aborts_and_is_fenced(broker: Broker, fresh: Fresh) -> None:
    topic, transactional_id = fresh("transactions"), fresh("id")

    def start() -> KafkaProducer:
        producer = KafkaProducer(
            bootstrap_servers=broker.bootstrap_servers, transactional_id=transactional_id
        )
        producer.init_transactions()
        return producer

    producer = start()
    for number in range(4):
        producer.begin_transaction()
        producer.send(topic, b"%d" % number)
        producer.flush()
        if number % 2:
            producer.abort_transaction()
        else:
            producer.commit_transaction()
    successor = start()
    with pytest.raises(KafkaError):
        producer.begin_transaction()
        producer.send(topic, b"fenced").get(10)
        producer.commit_transaction()
    for each in (producer, successor):
        each.close(1)
    assert committed(broker, topic) == [b"0", b"2"]
