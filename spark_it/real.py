"""Three brokers of Apache Kafka 3.9.1, with the calls of `kwire.Cluster` that the Spark tests need (REAL=1)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from compat_tests.kafka_nodes import KafkaNode, KafkaNodes
from kwire import Cluster

CONFIG = {
    "min.insync.replicas": "2",
    "default.replication.factor": "3",
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "broker.heartbeat.interval.ms": "500",
    "replica.high.watermark.checkpoint.interval.ms": "500",
}


class RealBroker:
    def __init__(self, number: int, node: KafkaNode) -> None:
        self.id = number
        self._node = node

    @property
    def log_dirs(self) -> list[str]:
        return [str(self._node.data)]

    def kill(self) -> None:
        self._node.kill9()

    def start(self) -> None:
        self._node.start()


class RealCluster:
    """What it lacks of a `kwire.Cluster` is asked of a connected one."""

    def __init__(self, nodes: KafkaNodes) -> None:
        self._connected = Cluster.connect(nodes.bootstrap_servers)
        self.brokers = [RealBroker(*each) for each in nodes.brokers.items()]

    def broker(self, number: int) -> RealBroker:
        return self.brokers[number - 1]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connected, name)


@contextmanager
def three_brokers(folder: Path) -> Iterator[RealCluster]:
    nodes = KafkaNodes(folder, 3, CONFIG)
    try:
        nodes.start()
        cluster = RealCluster(nodes)
        try:
            yield cluster
        finally:
            cluster.stop()
    finally:
        nodes.kill9()
