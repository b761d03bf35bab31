"""Throttles of reassignments, set and removed by Kafka's own tools (3.9.1); REAL=1 at Apache Kafka 3.9.1."""

import json
import os
import re
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from compat_tests import tooling
from compat_tests.cluster import running, until
from compat_tests.kafka_nodes import KafkaNodes
from kwire.client import maintenance
from kwire.client.blocking import Client
from kwire.client.connection import parse_address

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]

MEGABYTE = 1_000_000
FILL_BYTES = 9 * MEGABYTE
KEYS = {
    "default.replication.factor": "1",
    "offsets.topic.replication.factor": "1",
    # What one answer has more than the throttle allows.
    "replica.fetch.max.bytes": "100000",
}
THROTTLES = (
    "leader.replication.throttled.rate",
    "follower.replication.throttled.rate",
    "leader.replication.throttled.replicas",
    "follower.replication.throttled.replicas",
)


@pytest.fixture
def bootstrap(tmp_path: Path) -> Iterator[str]:
    """Of brokers 1 and 2."""
    if os.environ.get("REAL") == "1":
        nodes = KafkaNodes(tmp_path / "nodes", 2, KEYS)
        try:
            nodes.start()
            yield nodes.bootstrap_servers
        finally:
            nodes.kill9()
    else:
        with running(
            tmp_path / "nodes", 2, **{k.replace(".", "_"): v for k, v in KEYS.items()}
        ) as found:
            yield found.bootstrap


def tool(bootstrap: str, name: str, *arguments: str) -> str:
    argv = tooling.java_argv("3.9.1", name, "--bootstrap-server", bootstrap, *arguments)
    done = subprocess.run(argv, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout


def configs(bootstrap: str) -> list[str]:
    """Throttles that kafka-configs shows, of the brokers and of the topic."""
    said = "".join(
        tool(
            bootstrap,
            "kafka.admin.ConfigCommand",
            "--describe",
            "--entity-type",
            kind,
            "--entity-name",
            name,
        )
        for kind, name in (("brokers", "1"), ("brokers", "2"), ("topics", "moved"))
    )
    return sorted(
        f"{key}={value}"
        for key, value in re.findall(r"^  (\S+?)=(\S*)", said, re.M)
        if key in THROTTLES
    )


def fill(bootstrap: str) -> None:
    producer = Producer(
        {"bootstrap.servers": bootstrap, "acks": "all", "linger.ms": 5, "batch.size": 20_000}
    )
    for _ in range(FILL_BYTES // 10_000):
        producer.produce("moved", bytes(9_900))
    assert producer.flush(60) == 0


def size_of(client: Client, broker: int) -> int:
    """Bytes of moved-0 in the log directories of a broker."""
    found = client.run(maintenance.log_dirs(client, [broker]))
    return sum(
        partition.partition_size
        for directory in found[broker]
        for topic in directory.topics
        if topic.name == "moved"
        for partition in topic.partitions
    )


class Neighbour:
    """Writes of another topic, which the same follower fetches from the same leader."""

    def __init__(self, bootstrap: str) -> None:
        self._producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "linger.ms": 0})
        self.write()  # connections are made

    def write(self) -> float:
        """How long an acknowledgement takes, in seconds."""
        begin = time.monotonic()
        self._producer.produce("near", b"x")
        assert self._producer.flush(30) == 0
        return time.monotonic() - begin

    def slow_ones(self, again: Callable[[], bool]) -> float:
        """The 95th percentile of writes as long as `again` is true."""
        found = []
        while again():
            found.append(self.write())
            time.sleep(0.01)
        return sorted(found)[len(found) * 95 // 100]


def test_a_throttled_reassignment_takes_its_time(bootstrap: str, tmp_path: Path) -> None:
    client = Client(lambda: [parse_address(each) for each in bootstrap.split(",")], 10.0, "measure")
    for name, replicas in (("moved", [1]), ("near", [1, 2])):
        client.run(client.create_topic(name, -1, -1, {}, [replicas], 10.0))
    fill(bootstrap)
    total = size_of(client, 1)
    neighbour = Neighbour(bootstrap)
    ends = time.monotonic() + 2
    before = neighbour.slow_ones(lambda: time.monotonic() < ends)
    plan = tmp_path / "plan.json"
    moved: dict[str, Any] = {"topic": "moved", "partition": 0, "replicas": [2]}
    plan.write_text(json.dumps({"version": 1, "partitions": [moved]}))
    command = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"
    options = ("--reassignment-json-file", str(plan))
    said = tool(bootstrap, command, *options, "--execute", "--throttle", str(MEGABYTE))
    assert "The inter-broker throttle limit was set to 1000000 B/s" in said
    samples: list[tuple[float, int]] = []

    def moves() -> bool:
        samples.append((time.monotonic(), size_of(client, 2)))
        return samples[-1][1] < total

    during = neighbour.slow_ones(moves)
    early = next(sample for sample in samples if sample[1])
    late = samples[-2]
    assert late[1] - early[1] > 3 * MEGABYTE, samples
    rate = (late[1] - early[1]) / (late[0] - early[0])
    print(
        f"{rate:.0f} bytes/s, a neighbour's write {before * 1000:.1f} ms, then {during * 1000:.1f} ms"
    )
    assert rate == pytest.approx(MEGABYTE, rel=0.2)
    assert during < before + 0.05
    until(lambda: not client.run(maintenance.reassignments(client)))
    assert configs(bootstrap) == [
        "follower.replication.throttled.rate=1000000",
        "follower.replication.throttled.rate=1000000",
        "follower.replication.throttled.replicas=0:2",
        "leader.replication.throttled.rate=1000000",
        "leader.replication.throttled.rate=1000000",
        "leader.replication.throttled.replicas=0:1",
    ]
    said = tool(bootstrap, command, *options, "--verify")
    assert "Reassignment of partition moved-0 is completed." in said
    assert "Clearing broker-level throttles on brokers 1,2" in said
    assert "Clearing topic-level throttles on topic moved" in said
    assert configs(bootstrap) == []
    client.close()
