"""The image with TLS and log-ins: health, stores by file names, Testcontainers, compose with SASL_SSL throughout.

Skipped, with the reason, where no engine can run."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

os.environ.setdefault("TESTCONTAINERS_RYUK_DISABLED", "true")  # read at import

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from compat_tests import docker_engine, stock, tooling
from compat_tests.brokers import free_port
from compat_tests.cluster import until
from compat_tests.test_docker_compose import EXAMPLES, Project

pytestmark = [pytest.mark.kwire_only, pytest.mark.timeout(400)]

STORES = docker_engine.ROOT / "tests" / "data" / "tls"
CHECKS_SECONDS = 3.0
"""For some health checks: they come once a second."""


def wait_healthy(container: Any) -> None:
    """Until the engine says so; then a few checks more."""

    def is_healthy() -> bool:
        container.reload()
        return bool(container.attrs["State"]["Health"]["Status"] == "healthy")

    until(is_healthy, 40, "healthy")
    time.sleep(CHECKS_SECONDS)  # what is awaited is that nothing comes


def warnings_of(container: Any) -> list[str]:
    return [line for line in container.logs().decode().splitlines() if " WARN" in line]


def config_of(servers: str, ca: Path, protocol: str = "SSL", **more: Any) -> dict[str, Any]:
    found = {
        "bootstrap.servers": servers,
        "security.protocol": protocol,
        "ssl.ca.location": str(ca),
        "log_level": 0,
    }
    return found | {name.replace("_", "."): value for name, value in more.items()}


def written_and_read(config: dict[str, Any], topic: str, values: list[bytes]) -> None:
    """Writes to partition 0 of a new topic and reads it back."""
    errors: list[Any] = []
    producer = Producer({**config, **stock.QUICK})
    for value in values:
        producer.produce(topic, value, partition=0, on_delivery=lambda e, _: errors.append(e))
    assert producer.flush(30) == 0
    assert errors == [None] * len(values)
    consumer = Consumer({**config, "group.id": "g"})
    consumer.assign([TopicPartition(topic, 0, 0)])
    read = [message.value() for message in consumer.consume(len(values), 30)]
    consumer.close()
    assert read == values


def test_certificates_are_made_and_health_and_tools_come_in(tmp_path: Path) -> None:
    port = free_port()
    variables = {
        "KWIRE_TLS": "true",
        "KAFKA_LISTENERS": "PLAINTEXT://:9092",
        "KAFKA_ADVERTISED_LISTENERS": f"PLAINTEXT://127.0.0.1:{port}",
    }
    ports = {"9092/tcp": ("127.0.0.1", port)}
    with docker_engine.running(variables, ports=ports) as container:
        wait_healthy(container)
        ca = tmp_path / "ca.pem"
        ca.write_bytes(container.exec_run(["cat", "/var/lib/kafka/data/tls/ca.pem"])[1])
        status, said = container.exec_run(["kafka-topics", "--create", "--topic", "t"])
        assert (status, said) == (0, b"Created topic t.\n")
        written_and_read(config_of(f"127.0.0.1:{port}", ca), "t", [b"one", b"two"])
        assert warnings_of(container) == []


def test_stores_by_the_names_that_kafkas_images_have(tmp_path: Path) -> None:
    port = free_port()
    tmp_path.chmod(0o755)
    for name in ("broker.jks", "ca.jks"):
        (tmp_path / name).write_bytes((STORES / name).read_bytes())
    (tmp_path / "store").write_text("hush-hush\n")
    (tmp_path / "key").write_text("other-hush\n")
    for path in tmp_path.iterdir():
        path.chmod(0o644)
    variables = {
        "KAFKA_LISTENERS": "SSL://:9093",
        "KAFKA_ADVERTISED_LISTENERS": f"SSL://127.0.0.1:{port}",
        "KAFKA_SECURITY_INTER_BROKER_PROTOCOL": "SSL",
        "KAFKA_SSL_CLIENT_AUTH": "required",
        "KAFKA_SSL_KEYSTORE_FILENAME": "broker.jks",
        "KAFKA_SSL_KEYSTORE_CREDENTIALS": "store",
        "KAFKA_SSL_KEY_CREDENTIALS": "key",
        "KAFKA_SSL_TRUSTSTORE_FILENAME": "ca.jks",
        "KAFKA_SSL_TRUSTSTORE_CREDENTIALS": "store",
    }
    volumes = {str(tmp_path): {"bind": "/etc/kafka/secrets", "mode": "ro"}}
    ports = {"9093/tcp": ("127.0.0.1", port)}
    with docker_engine.running(variables, ports=ports, volumes=volumes) as container:
        wait_healthy(container)
        own = str(STORES / "client.pem")
        config = config_of(
            f"127.0.0.1:{port}",
            STORES / "ca.pem",
            ssl_certificate_location=own,
            ssl_key_location=own,
        )
        written_and_read(config, "t", [b"one"])
        assert warnings_of(container) == []
        assert "hush" not in container.logs().decode()


@pytest.fixture
def names() -> Iterator[None]:
    with docker_engine.tagged("confluentinc/cp-kafka", "7.4.0"):
        yield


@pytest.mark.usefixtures("names")
def test_pythons_kafka_container_with_sasl_ssl(tmp_path: Path) -> None:
    """Testcontainers for Python by KRaft, with environment variables, as its users give them."""
    from testcontainers.community.kafka import KafkaContainer

    module = "org.apache.kafka.common.security.plain.PlainLoginModule"
    container = KafkaContainer("confluentinc/cp-kafka:7.4.0").with_kraft()
    container.security_protocol_map = "BROKER:PLAINTEXT,PLAINTEXT:SASL_SSL"
    container.with_env("KWIRE_TLS", "true")
    container.with_env("KAFKA_LISTENER_NAME_PLAINTEXT_SASL_ENABLED_MECHANISMS", "PLAIN")
    container.with_env(
        "KAFKA_LISTENER_NAME_PLAINTEXT_PLAIN_SASL_JAAS_CONFIG",
        f'{module} required username="admin" password="admin" user_admin="admin" user_test="secret";',
    )
    with container:
        ca = tmp_path / "ca.pem"
        ca.write_bytes(container.exec(["cat", "/var/lib/kafka/data/tls/ca.pem"])[1])
        config = config_of(
            container.get_bootstrap_server(),
            ca,
            "SASL_SSL",
            sasl_mechanism="PLAIN",
            sasl_username="test",
            sasl_password="secret",
        )
        written_and_read(config, "words", [b"one", b"two"])


@pytest.mark.slow
def test_three_brokers_with_sasl_ssl_between_all_containers(tmp_path: Path) -> None:
    docker_engine.image()
    tooling.compose()
    brokers = ["kafka-1", "kafka-2", "kafka-3"]
    with Project(EXAMPLES / "three-brokers-tls.yml", tmp_path) as project:
        project("up", "-d")
        project.wait_healthy("controller", *brokers)
        ca = tmp_path / "ca.pem"
        ca.write_text(project("exec", "-T", "kafka-1", "cat", "/etc/kafka/secrets/ca.pem"))
        config = config_of(
            project.servers,
            ca,
            "SASL_SSL",
            sasl_mechanism="SCRAM-SHA-512",
            sasl_username="alice",
            sasl_password="secret",
        )
        admin = AdminClient(config)

        def partition() -> Any:
            found = admin.list_topics("orders", timeout=20).topics["orders"].partitions
            return found.get(0)

        until(lambda: partition() is not None and len(partition().isrs) == 3, 60, "in sync")
        listed = ["kafka-topics", "--list", "--bootstrap-server", "kafka-1:19092"]
        listed += ["--command-config", "/etc/kafka/secrets/client.properties"]
        assert project("exec", "-T", "kafka-1", *listed) == "orders\n"

        written_and_read({**config, "acks": "all"}, "orders", [b"1", b"2"])
        leader = partition().leader
        project("kill", f"kafka-{leader}")
        until(lambda: partition().leader not in (leader, -1), 60, "another leader")
        written_and_read({**config, "acks": "all"}, "orders", [b"1", b"2"])
        project("start", f"kafka-{leader}")
        until(lambda: len(partition().isrs) == 3, 60, "in sync again")
        for name in ("controller", *brokers):
            assert "plaintext" not in "".join(warnings_of(project.container(name))), name
