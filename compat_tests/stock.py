"""Small hands on stock clients, for tests of clusters: write and say what came of it, read everything."""

from collections.abc import Mapping
from typing import Any

Servers = str | Mapping[str, Any]
"""Addresses, or the configuration of a client that has to log in there."""

QUICK = {
    "log_level": 0,
    "linger.ms": 0,
    "reconnect.backoff.ms": 5,
    "reconnect.backoff.max.ms": 20,
    "retry.backoff.ms": 5,
    "retry.backoff.max.ms": 20,
    "topic.metadata.refresh.fast.interval.ms": 20,
}


class Writer:
    """confluent-kafka's producer; idempotent with acks=all unless told otherwise.

    `acked` maps values to offsets, `errors` has the names of what failed."""

    def __init__(self, bootstrap: Servers, **settings: Any) -> None:
        from confluent_kafka import Producer

        at = {"bootstrap.servers": bootstrap} if isinstance(bootstrap, str) else bootstrap
        told = {name.replace("_", "."): value for name, value in settings.items()}
        safe = {"acks": "all", "enable.idempotence": "enable.idempotence" not in told}
        self._producer = Producer({**at, **QUICK, **safe, **told})
        self.acked: dict[str, int] = {}
        self.errors: list[str] = []

    def begin(self, topic: str, *values: str, partition: int = 0) -> None:
        for value in values:
            self._producer.produce(
                topic, value.encode(), partition=partition, on_delivery=self._delivered
            )
        self._producer.poll(0)

    def flush(self, seconds: float = 12.0) -> None:
        left = self._producer.flush(seconds)
        assert left == 0, f"{left} records are not delivered"

    def poll(self) -> None:
        self._producer.poll(0)

    def send(self, topic: str, *values: str, partition: int = 0) -> None:
        """Returns when all are acknowledged or have failed."""
        self.begin(topic, *values, partition=partition)
        self.flush()

    def _delivered(self, error: Any, message: Any) -> None:
        if error is None:
            self.acked[message.value().decode()] = message.offset()
        else:
            self.errors.append(error.name())


def read(bootstrap: Servers, topic: str, partition: int = 0) -> list[str]:
    """All values of a partition, in order, as kafka-python's consumer sees them."""
    from kafka import KafkaConsumer, TopicPartition

    place = TopicPartition(topic, partition)
    at = {"bootstrap_servers": bootstrap} if isinstance(bootstrap, str) else dict(bootstrap)
    at["bootstrap_servers"] = at["bootstrap_servers"].split(",")
    consumer = KafkaConsumer(
        **at,
        auto_offset_reset="earliest",
        consumer_timeout_ms=10_000,
        reconnect_backoff_ms=5,
        reconnect_backoff_max_ms=20,
        retry_backoff_ms=5,
    )
    try:
        consumer.assign([place])
        end = consumer.end_offsets([place])[place]
        found: list[str] = []
        while consumer.position(place) < end:
            for record in consumer.poll(1000).get(place, []):
                found.append(record.value.decode())
        return found
    finally:
        consumer.close()
