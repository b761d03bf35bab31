"""A producer and a consumer of librdkafka's, as tests of `kwire.Cluster` need them."""

import time
from typing import Any

from confluent_kafka import Consumer, KafkaException, Producer


def produce(servers: str, topic: str, values: list[str], partition: int = 0, **conf: Any) -> None:
    """Sends and waits; raises what the delivery report says."""
    failed: list[Any] = []
    producer = Producer({"bootstrap.servers": servers, "linger.ms": 0, **conf})
    for value in values:
        producer.produce(
            topic, value, partition=partition, callback=lambda e, m: failed.append(e) if e else None
        )
    left = producer.flush(15)
    if failed or left:
        raise KafkaException(failed[0] if failed else f"{left} left")


def consume(servers: str, topic: str, count: int, group: str = "g") -> list[str]:
    consumer = Consumer(
        {"bootstrap.servers": servers, "group.id": group, "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([topic])
    found: list[str] = []
    deadline = time.monotonic() + 20
    while len(found) < count and time.monotonic() < deadline:
        message = consumer.poll(0.2)
        if message is not None and message.error() is None:
            found.append(message.value().decode())
    consumer.close()
    return found
