"""Nodes of a cluster among themselves: TLS, log-ins, what happens when they do not let each other in."""

from __future__ import annotations

import logging
import time
from asyncio import Runner
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Producer

from kwire import Cluster
from kwire.launch.node_runner import NodeRunner
from kwire.launch.spec import ClusterSpec, NodeSpec
from kwire.launch.supervisor import Supervisor
from kwire.server.errors import NodeError

STORES = Path(__file__).resolve().parents[1] / "data" / "tls"
CA = str(STORES / "ca.pem")
MODULES = "org.apache.kafka.common.security"
PLAIN_LINE = (
    f"{MODULES}.plain.PlainLoginModule required"
    ' username="broker" password="between-us" user_broker="between-us" user_alice="secret";'
)
SCRAM_LINE = f'{MODULES}.scram.ScramLoginModule required username="broker" password="between-us";'
OF_TLS = {
    "ssl.keystore.type": "PEM",
    "ssl.keystore.location": str(STORES / "broker.pem"),
    "ssl.truststore.type": "PEM",
    "ssl.truststore.location": CA,
}
pytestmark = pytest.mark.timeout(120)
quiet = logging.getLogger("librdkafka of this test")
quiet.disabled = True


def keys_of(protocol: str, mechanism: str | None = None) -> dict[str, str]:
    """The keys of brokers whose only listener has this protocol."""
    name = protocol.lower()
    found = {
        "listeners": f"{protocol}://localhost:0",
        "security.inter.broker.protocol": protocol,
    }
    if protocol.endswith("SSL"):
        found |= OF_TLS
    if mechanism is not None:
        line = PLAIN_LINE if mechanism == "PLAIN" else SCRAM_LINE
        found["sasl.enabled.mechanisms"] = mechanism
        found["sasl.mechanism.inter.broker.protocol"] = mechanism
        found[f"listener.name.{name}.{mechanism.lower()}.sasl.jaas.config"] = line
    return found


def producer_of(cluster: Cluster, protocol: str, mechanism: str | None = None) -> Producer:
    config = {
        "bootstrap.servers": cluster.bootstrap_servers,
        "security.protocol": protocol,
        "acks": "all",
        "logger": quiet,
    }
    if protocol.endswith("SSL"):
        config["ssl.ca.location"] = CA
    if mechanism is not None:
        config |= {
            "sasl.mechanism": mechanism,
            "sasl.username": "broker",
            "sasl.password": "between-us",
        }
    return Producer(config)


@pytest.mark.parametrize(
    ("protocol", "mechanism"),
    [
        pytest.param("SSL", None, marks=pytest.mark.slow),
        pytest.param("SASL_PLAINTEXT", "PLAIN", marks=pytest.mark.slow),
        pytest.param("SASL_PLAINTEXT", "SCRAM-SHA-256", marks=pytest.mark.slow),
        ("SASL_SSL", "SCRAM-SHA-512"),
    ],
)
def test_three_brokers_go_on_without_a_leader(protocol: str, mechanism: str | None) -> None:
    with Cluster(3, config=keys_of(protocol, mechanism), topics=["orders:3:3"]) as cluster:
        producer = producer_of(cluster, protocol, mechanism)
        for partition in range(3):
            producer.produce("orders", b"x", partition=partition)
        assert producer.flush(20) == 0
        cluster.broker(cluster.partition("orders", 0).leader).kill()
        for partition in range(3):
            producer.produce("orders", b"y", partition=partition)
        assert producer.flush(30) == 0
        assert [len(cluster.records("orders", partition)) for partition in range(3)] == [2, 2, 2]


def test_brokers_in_processes_of_their_own() -> None:
    config = keys_of("SASL_SSL", "SCRAM-SHA-256") | {"ssl.client.auth": "required"}
    config["listener.name.sasl_ssl.ssl.client.auth"] = "required"
    with Cluster(3, config=config, isolation="process", topics=["orders:1:3"]) as cluster:
        assert cluster.partition("orders", 0).isr == {1, 2, 3}


def controllers_apart(protocol: str, mechanism: str) -> dict[str, str]:
    """Brokers as above; the controllers have a listener of their own, with the same log-in."""
    found = keys_of(protocol, mechanism)
    line = found[f"listener.name.{protocol.lower()}.{mechanism.lower()}.sasl.jaas.config"]
    return found | {
        "listeners": f"{protocol}://localhost:0,CONTROLLER://localhost:0",
        "controller.listener.names": "CONTROLLER",
        "listener.security.protocol.map": f"{protocol}:{protocol},CONTROLLER:SASL_SSL",
        "sasl.mechanism.controller.protocol": mechanism,
        f"listener.name.controller.{mechanism.lower()}.sasl.jaas.config": line,
        **OF_TLS,
    }


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
def test_controllers_have_a_listener_of_their_own(mechanism: str) -> None:
    config = controllers_apart("SASL_PLAINTEXT", mechanism)
    with Cluster(2, controllers=2, config=config, topics=["orders:1:2"]) as cluster:
        cluster.active_controller().kill()
        cluster.create_topic("others")
        assert cluster.topics() == {"orders": 1, "others": 1}


# --- who is not let in


@contextmanager
def two_brokers(folder: Path, config: dict[str, str]) -> Iterator[tuple[Supervisor, Runner]]:
    node = NodeSpec(node_id=1, values=config, data_dir=str(folder / "data"))
    with Runner() as runner:
        supervisor = Supervisor(ClusterSpec(brokers=2, node=node))
        runner.run(supervisor.start())
        try:
            yield supervisor, runner
        finally:
            runner.run(supervisor.stop())


JAAS = "listener.name.sasl_ssl.scram-sha-256.sasl.jaas.config"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({JAAS: SCRAM_LINE.replace("between-us", "hush-hush")}, "log-in failed: it refuses user"),
        ({"ssl.truststore.location": str(STORES / "foreign-ca.pem")}, "certificate verify failed"),
        ({"ssl.keystore.location": str(STORES / "foreign-client.pem")}, "unknown ca"),
        (
            {"sasl.enabled.mechanisms": "PLAIN", "sasl.mechanism.inter.broker.protocol": "PLAIN"}
            | {"listener.name.sasl_ssl.plain.sasl.jaas.config": PLAIN_LINE},
            "it has no mechanism PLAIN, but SCRAM-SHA-256",
        ),
    ],
)
def test_a_broker_that_is_not_let_in_says_so_once_and_tries_again(
    change: dict[str, str], said: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config = keys_of("SASL_SSL", "SCRAM-SHA-256")
    config["listener.name.sasl_ssl.ssl.client.auth"] = "required"
    with two_brokers(tmp_path, config) as (supervisor, runner):
        spec = supervisor.brokers[2].spec
        values = {**spec.values, "listeners": "SASL_SSL://localhost:0", **change}
        folder = str(tmp_path / "third")
        third = NodeRunner(spec.replace(node_id=3, values=values, data_dir=folder, again=False))
        with (
            caplog.at_level(logging.DEBUG, "kwire.server.peers"),
            pytest.raises(NodeError, match="did not take up the broker in time"),
        ):
            runner.run(third.start(wait_seconds=1.5))
    ends = [r for r in caplog.records if said in r.getMessage()]
    warnings = [r for r in ends if r.levelno == logging.WARNING]
    assert len(warnings) == 1 and "peer connection ended" in warnings[0].getMessage()
    assert 3 <= len(ends) <= 14  # 50 ms, 100, 200, … between the tries
    everything = "\n".join(record.getMessage() for record in caplog.records)
    assert "hush-hush" not in everything and "between-us" not in everything


def test_a_session_between_brokers_is_renewed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Before its end, without a lost request (KIP-368)."""
    config = keys_of("SASL_PLAINTEXT", "SCRAM-SHA-256") | {"connections.max.reauth.ms": "1200"}
    config["replica.fetch.wait.max.ms"] = "200"
    with Cluster(2, config=config, topics=["orders:1:2"]) as cluster:
        producer = producer_of(cluster, "SASL_PLAINTEXT", "SCRAM-SHA-256")
        deadline = time.monotonic() + 3.5
        sent = 0
        with caplog.at_level(logging.DEBUG, "kwire"):
            while time.monotonic() < deadline:
                producer.produce("orders", b"x")
                assert producer.flush(10) == 0
                sent += 1
        assert cluster.partition("orders", 0).isr == {1, 2}
        assert cluster.partition("orders", 0).high_watermark == sent
    ended = [r.getMessage() for r in caplog.records if "peer connection ended" in r.getMessage()]
    assert [each for each in ended if "the node stops" not in each] == []
    assert not [r for r in caplog.records if "no log-in again" in r.getMessage()]
