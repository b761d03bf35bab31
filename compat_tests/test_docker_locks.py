"""kwire.Cluster(isolation="docker") with locks: clients log in over TLS, and need rights; brokers do not."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import AdminClient

from compat_tests.cluster import until
from compat_tests.test_cluster_docker import engine
from kwire import Cluster, errors

__all__ = ["engine"]  # a fixture of each test here

pytestmark = [pytest.mark.kwire_only, pytest.mark.timeout(240)]
quiet = logging.getLogger("librdkafka of this test")
quiet.disabled = True
USERS = {"admin": "s3cret", "alice": "hush"}


def written(config: dict[str, Any], *values: bytes) -> list[str | None]:
    """The error of each delivery, None: none."""
    outcomes: list[str | None] = []
    producer = Producer({**config, "acks": "all", "linger.ms": 0, "message.timeout.ms": 40_000})
    for value in values:
        producer.produce("orders", value, on_delivery=lambda e, _: outcomes.append(e and e.name()))
    assert producer.flush(60) == 0
    return outcomes


def test_one_container_with_tls() -> None:
    with Cluster(isolation="docker", tls=True, topics=["orders"]) as cluster:
        config = cluster.client_config("librdkafka") | {"logger": quiet}
        assert written(config, b"tea") == [None]
        assert [each.value for each in cluster.records("orders")] == [b"tea"]
        plain = AdminClient({"bootstrap.servers": cluster.bootstrap_servers, "logger": quiet})
        with pytest.raises(KafkaException):
            plain.list_topics(timeout=2)
    with pytest.raises(errors.KwireError):
        cluster.client_config("librdkafka")


def test_three_containers_with_certificates_log_ins_and_rules() -> None:
    locks: dict[str, Any] = {
        "sasl": "scram-sha-512",
        "users": USERS,
        "mtls": True,
        "acl": True,
        "super_users": ["admin"],
    }
    with Cluster(3, isolation="docker", **locks) as cluster:
        cluster.create_topic("orders", partitions=1, replication_factor=3)
        admin, alice = (
            cluster.client_config("librdkafka", user) | {"logger": quiet} for user in USERS
        )
        assert written(admin, b"1", b"2") == [None, None]
        assert written(alice, b"3") == ["TOPIC_AUTHORIZATION_FAILED"]
        wrong = AdminClient({**admin, "sasl.password": "wrong"})
        with pytest.raises(KafkaException):
            wrong.list_topics(timeout=3)

        leader = cluster.partition("orders", 0).leader
        cluster.broker(leader).kill()
        until(lambda: cluster.partition("orders", 0).leader not in (leader, -1), 60, "a leader")
        assert written(admin, b"4") == [None]
        cluster.broker(leader).start()
        until(lambda: len(cluster.partition("orders", 0).isr) == 3, 60, "in sync again")

        consumer = Consumer({**admin, "group.id": "g", "auto.offset.reset": "earliest"})
        consumer.subscribe(["orders"])
        assert [each.value() for each in consumer.consume(3, 60)] == [b"1", b"2", b"4"]
        consumer.commit(asynchronous=False)
        group = cluster.group("g")  # its coordinator is advertised for brokers only
        assert group.lag == 0
        consumer.close()
