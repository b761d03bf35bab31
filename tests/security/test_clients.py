"""Clusters whose clients have to log in: stock clients, kwire's own commands, several brokers, processes."""

from __future__ import annotations

import asyncio
import logging

import pytest
from click.testing import CliRunner
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer

from kwire import Cluster
from kwire.cli.main import cli
from kwire.errors import ConfigurationError

USERS = {"alice": "Gibraltar7", "bob": "b:o,b="}
pytestmark = pytest.mark.timeout(60)


@pytest.fixture(scope="module", params=["plain", "scram-sha-256", "scram-sha-512"])
def cluster(request: pytest.FixtureRequest) -> object:
    with Cluster(
        sasl=request.param, users=USERS, topics=["orders"], recent_requests=True
    ) as cluster:
        yield cluster


def test_kafka_python_writes_and_reads(cluster: Cluster) -> None:
    producer = KafkaProducer(**cluster.client_config("kafka-python"))
    offset = producer.send("orders", b"one").get(20).offset
    producer.close()
    consumer = KafkaConsumer(
        "orders",
        auto_offset_reset="earliest",
        group_id="g",
        **cluster.client_config("kafka-python", "bob"),
    )
    assert next(consumer).value == b"one"
    consumer.close()
    admin = KafkaAdminClient(**cluster.client_config("kafka-python", "bob"))
    assert "orders" in admin.list_topics()
    admin.close()
    assert offset >= 0 and cluster.topics()["orders"] == 1


def test_aiokafka_writes(cluster: Cluster) -> None:
    from aiokafka import AIOKafkaProducer

    async def write() -> int:
        producer = AIOKafkaProducer(**cluster.client_config("aiokafka", "bob"))
        await producer.start()
        try:
            return int((await producer.send_and_wait("orders", b"two")).offset)
        finally:
            await producer.stop()

    assert asyncio.run(write()) >= 0


def test_aiokafka_with_a_wrong_secret(cluster: Cluster) -> None:
    from aiokafka import AIOKafkaProducer

    async def write() -> None:
        config = {**cluster.client_config("aiokafka"), "sasl_plain_password": "no"}
        producer = AIOKafkaProducer(**config)
        try:
            await producer.start()
        finally:
            await producer.stop()

    with pytest.raises(
        Exception, match=r"Unable to bootstrap|SaslAuthenticationFailed|AuthenticationFailed"
    ):
        asyncio.run(write())


def failed_logins(caplog: pytest.LogCaptureFixture) -> list[str]:
    lines = [record.getMessage() for record in caplog.records]
    return [line for line in lines if "authentication failed" in line]


def test_librdkafka_writes_and_is_told_of_a_wrong_secret(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    logged = logging.getLogger("librdkafka of this test")
    logged.disabled = True
    producer = Producer({**cluster.client_config("librdkafka"), "logger": logged})
    done: list[object] = []
    producer.produce("orders", b"three", on_delivery=lambda error, _: done.append(error))
    assert producer.flush(20) == 0 and done == [None]
    failed: list[str] = []
    config = {
        **cluster.client_config("librdkafka"),
        "sasl.password": "no",
        "error_cb": lambda error: failed.append(f"{error.name()} {error.str()}"),
        "logger": logged,
    }
    admin = AdminClient(config)
    with caplog.at_level(logging.WARNING, "kwire"):
        with pytest.raises(KafkaException):
            admin.list_topics(timeout=0.1)
        # It tries again and again; a line for each kind of failure is logged once a second.
        while not (failed and (lines := failed_logins(caplog))):
            admin.poll(0.1)
    assert "_AUTHENTICATION" in failed[0] and "Authentication failed" in failed[0]
    assert "user 'alice'" in lines[0]
    assert "Gibraltar7" not in caplog.text
    requests = cluster.requests(client_id="rdkafka")
    assert any("SASL_AUTHENTICATION_FAILED" in str(each) for each in requests)
    assert "Gibraltar7" not in str(requests)


def test_kwires_own_commands_log_in(cluster: Cluster) -> None:
    mechanism = cluster.client_config("librdkafka")["sasl.mechanism"].lower()
    words = ["topics", "--bootstrap", cluster.bootstrap_servers, "--sasl", mechanism]
    run = CliRunner().invoke(cli, [*words, "--user", "bob:b:o,b="], prog_name="kwire")
    assert run.exit_code == 0 and "orders" in run.stdout, run.stderr
    run = CliRunner().invoke(cli, [*words, "--user", "bob:x"], prog_name="kwire")
    assert run.exit_code == 1 and "SASL_AUTHENTICATION_FAILED" in run.stderr
    run = CliRunner().invoke(cli, words, prog_name="kwire")
    assert run.exit_code == 1 and "--user" in run.stderr


@pytest.mark.parametrize("isolation", ["thread", "process"])
def test_several_brokers(isolation: str) -> None:
    with Cluster(
        3, sasl="scram-sha-256", users=USERS, topics=["orders:3:3"], isolation=isolation
    ) as cluster:
        config = cluster.client_config("kafka-python")
        producer = KafkaProducer(acks="all", **config)
        for partition in range(3):
            producer.send("orders", b"x", partition=partition).get(20)
        cluster.broker(1).kill()
        cluster.broker(1).start()
        cluster.wait_for(lambda c: len(c.partition("orders", 0).isr) == 3, timeout=20)
        producer.send("orders", b"y", partition=0).get(20)
        producer.close()
        cluster.reset()
        assert cluster.topics() == {}


def test_options_of_clusters_that_are_refused() -> None:
    for options in (
        {"sasl": "plain"},
        {"users": {"a": "b"}},
        {"sasl": "gssapi", "users": {"a": "b"}},
        {"sasl": "plain", "users": ["a:b"]},
        {"sasl": 7, "users": {"a": "b"}},
    ):
        with pytest.raises(ConfigurationError) as caught:
            Cluster(**options)  # type: ignore[arg-type]
        assert "\n" not in str(caught.value)


def test_client_config_without_a_log_in() -> None:
    with Cluster() as cluster:
        assert cluster.client_config("java") == {"bootstrap.servers": cluster.bootstrap_servers}
        for kind, user in (("ruby", None), ("java", "alice")):
            with pytest.raises(ConfigurationError):
                cluster.client_config(kind, user)
