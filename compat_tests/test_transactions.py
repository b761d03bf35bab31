"""There are no transactions yet: what stock clients make of it is an error at once, not a search without end."""

import time
from collections.abc import Callable

import pytest
from confluent_kafka import KafkaException, Producer
from kafka import KafkaProducer
from kafka.errors import TransactionalIdAuthorizationFailedError

from compat_tests.brokers import Broker

pytestmark = [pytest.mark.kwire_only, pytest.mark.timeout(60)]
MOST_SECONDS = 10.0
Fresh = Callable[[str], str]


def test_librdkafka_gives_up_at_once_and_says_why(broker: Broker, fresh: Fresh) -> None:
    settings = {"bootstrap.servers": broker.bootstrap_servers, "log_level": 0}
    producer = Producer({**settings, "transactional.id": fresh("transactional")})
    start = time.monotonic()
    with pytest.raises(KafkaException, match="kwire has no transactions yet") as refusal:
        producer.init_transactions(30)
    assert refusal.value.args[0].fatal()
    assert time.monotonic() - start < MOST_SECONDS


def test_kafka_python_gives_up_at_once(broker: Broker, fresh: Fresh) -> None:
    producer = KafkaProducer(
        bootstrap_servers=broker.bootstrap_servers, transactional_id=fresh("transactional")
    )
    start = time.monotonic()
    try:
        with pytest.raises(TransactionalIdAuthorizationFailedError):
            producer.init_transactions()
    finally:
        producer.close(1)
    assert time.monotonic() - start < MOST_SECONDS
    assert "kwire has no transactions yet" in broker.log_tail()
