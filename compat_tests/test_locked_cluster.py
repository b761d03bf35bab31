"""Nodes of examples/compose/three-brokers-tls.yml as processes: SASL_SSL everywhere, certificates that they share."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from compat_tests import brokers, stock
from compat_tests.cluster import until

pytestmark = [pytest.mark.kwire_only, pytest.mark.timeout(180)]
FILE = Path(__file__).resolve().parents[1] / "examples/compose/three-brokers-tls.yml"


class Nodes:
    """The services of the file, on this machine; `config`: of a client of librdkafka's."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._environments: dict[str, dict[str, str]] = {}
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        controller, servers, tls = brokers.free_port(), [], folder / "tls"
        tls.mkdir()
        for name, service in yaml.safe_load(FILE.read_text())["services"].items():
            found = {key: str(value) for key, value in service["environment"].items()}
            found["KAFKA_CONTROLLER_QUORUM_VOTERS"] = f"4@localhost:{controller}"
            found["KAFKA_KWIRE_TLS_DIRECTORY"] = str(tls)
            found["KAFKA_LOG_DIRS"] = str(folder / name)
            (folder / name).mkdir()
            if name == "controller":
                found["KAFKA_LISTENERS"] = f"CONTROLLER://127.0.0.1:{controller}"
            else:
                outside, inside = brokers.free_port(), brokers.free_port()
                servers.append(f"localhost:{outside}")
                for key, host in (
                    ("LISTENERS", "127.0.0.1"),
                    ("ADVERTISED_LISTENERS", "localhost"),
                ):
                    found[f"KAFKA_{key}"] = f"HOST://{host}:{outside},INSIDE://{host}:{inside}"
            self._environments[name] = {**os.environ, **found}
        self.config: dict[str, Any] = {
            "bootstrap.servers": ",".join(servers),
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.username": "alice",
            "sasl.password": "secret",
            "ssl.ca.location": str(tls / "ca.pem"),
            "log_level": 0,
        }

    def start(self, *names: str) -> None:
        for name in names or self._environments:
            with (self._folder / f"{name}.log").open("ab") as log:
                self._running[name] = subprocess.Popen(
                    brokers.mortal([sys.executable, "-m", "kwire.docker", "run"]),
                    env=self._environments[name],
                    stdout=log,
                    stderr=log,
                )
        for name in names or self._environments:
            until(lambda name=name: "Kafka Server started" in self.said(name), 90, self.said(name))

    def kill9(self, name: str) -> None:
        process = self._running.pop(name)
        process.kill()
        process.wait()

    def stop(self) -> dict[str, int]:
        """The exit status of each."""
        for process in self._running.values():
            process.terminate()
        return {name: process.wait(30) for name, process in self._running.items()}

    def said(self, name: str) -> str:
        return (self._folder / f"{name}.log").read_text()


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[Nodes]:
    nodes = Nodes(tmp_path)
    nodes.start()
    yield nodes
    for name in list(nodes._running):
        nodes.kill9(name)


def test_three_brokers_with_sasl_ssl_between_them_lose_nothing_when_the_leader_is_killed(
    nodes: Nodes,
) -> None:
    admin = AdminClient(nodes.config)

    def partition() -> Any:
        found = admin.list_topics("orders", timeout=20).topics["orders"].partitions
        return found.get(0)

    until(
        lambda: partition() is not None and len(partition().isrs) == 3, 60, "orders has 3 replicas"
    )
    producer = Producer({**nodes.config, **stock.QUICK, "acks": "all", "enable.idempotence": True})
    acked: list[bytes] = []

    def delivered(error: Any, message: Any) -> None:
        assert error is None, error
        acked.append(message.value())

    def write(first: int, count: int) -> None:
        for number in range(first, first + count):
            producer.produce("orders", b"%d" % number, partition=0, on_delivery=delivered)
        assert producer.flush(60) == 0

    write(0, 50)
    leader = partition().leader
    nodes.kill9(f"kafka-{leader}")
    write(50, 50)
    assert partition().leader != leader
    nodes.start(f"kafka-{leader}")
    until(lambda: len(partition().isrs) == 3, 60, "the broker that was killed is back")

    consumer = Consumer({**nodes.config, "group.id": "g", "auto.offset.reset": "earliest"})
    consumer.assign([TopicPartition("orders", 0, 0)])
    read = [message.value() for message in consumer.consume(100, 30)]
    consumer.close()
    assert acked == read == [b"%d" % number for number in range(100)]
    assert nodes.stop() == dict.fromkeys(("controller", "kafka-1", "kafka-2", "kafka-3"), 0)
