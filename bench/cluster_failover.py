"""From the death of a leader to the first write that the next one acknowledges, as a client sees it."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from kwire.client.streams import ask
from kwire.launch.supervisor import THREAD, Supervisor
from kwire.protocol.schemas.metadata import MetadataRequest, MetadataRequestTopic
from kwire.server.node import new_event_loop

TIMES = 7
TOPIC = "failover"


def confluent(bootstrap: str) -> Callable[[], None]:
    """Writes one record and waits for its acknowledgement; the client's own defaults."""
    from confluent_kafka import Producer

    settings = {"bootstrap.servers": bootstrap, "acks": "all", "linger.ms": 0, "log_level": 0}
    producer = Producer(settings)
    failed: list[Any] = []

    def write() -> None:
        producer.produce(
            TOPIC, b"x", partition=0, on_delivery=lambda error, _: error and failed.append(error)
        )
        assert producer.flush(20) == 0 and not failed, failed

    return write


def kafka_python(bootstrap: str) -> Callable[[], None]:
    from kafka import KafkaProducer

    producer = KafkaProducer(bootstrap_servers=bootstrap.split(","), acks="all")
    return lambda: producer.send(TOPIC, b"x", partition=0).get(20)


CLIENTS = {"kafka-python": kafka_python, "librdkafka": confluent}
JUDGED = ("kafka-python",)
"""Others take their own time: librdkafka, when it is connected to the dead leader only, tries again once a second."""


class _Cluster:
    """Three brokers on an event loop in a thread."""

    def __init__(self, folder: Path) -> None:
        self.loop = new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever)
        self.thread.start()
        values = {"listeners": "PLAINTEXT://127.0.0.1:0"}
        self.supervisor = Supervisor(values, str(folder), brokers=3, isolation=THREAD)

    def run(self, work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(30)

    def partition(self) -> Any:
        request = MetadataRequest(topics=[MetadataRequestTopic(name=TOPIC)])
        node = next(handle for handle in self.supervisor.brokers.values() if handle.running)
        return self.run(ask(node.address, request, version=12)).topics[0].partitions[0]

    def close(self) -> None:
        self.run(self.supervisor.stop())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join(10)
        self.loop.close()


def failover_times(folder: Path, clients: Iterable[str] = tuple(CLIENTS)) -> dict[str, list[float]]:
    """Milliseconds by client: at each kill the write begins at once."""
    found: dict[str, list[float]] = {}
    for name in clients:
        connect = CLIENTS[name]
        cluster = _Cluster(folder / f"failover-{name.split()[0]}")
        try:
            cluster.run(cluster.supervisor.start())
            cluster.run(cluster.supervisor.create_topics([(TOPIC, 1, 3)]))
            write = connect(cluster.supervisor.bootstrap_servers)
            write()
            found[name] = [_one(cluster, write) for _ in range(TIMES)]
        finally:
            cluster.close()
    return found


def _one(cluster: _Cluster, write: Callable[[], None]) -> float:
    leader = cluster.supervisor.brokers[cluster.partition().leader_id]
    begin = time.perf_counter()
    cluster.run(leader.kill())
    write()
    took = (time.perf_counter() - begin) * 1000
    cluster.run(leader.start())
    while len(cluster.partition().isr_nodes) < 3:
        time.sleep(0.01)
    return took
