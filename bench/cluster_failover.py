"""From the death of a leader to the first write that the next one acknowledges, as a client sees it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from kwire import Cluster

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


def failover_times(folder: Path, clients: Iterable[str] = tuple(CLIENTS)) -> dict[str, list[float]]:
    """Milliseconds by client: at each kill the write begins at once."""
    found: dict[str, list[float]] = {}
    for name in clients:
        connect = CLIENTS[name]
        data_dir = folder / f"failover-{name.split()[0]}"
        with Cluster(brokers=3, data_dir=data_dir, topics=[f"{TOPIC}:1:3"]) as cluster:
            write = connect(cluster.bootstrap_servers)
            write()
            found[name] = [_one(cluster, write) for _ in range(TIMES)]
    return found


def _one(cluster: Cluster, write: Callable[[], None]) -> float:
    leader = cluster.broker(cluster.partition(TOPIC, 0).leader)
    begin = time.perf_counter()
    leader.kill()
    write()
    took = (time.perf_counter() - begin) * 1000
    leader.start()
    cluster.wait_for(lambda c: len(c.partition(TOPIC, 0).isr) == 3, timeout=60)
    return took
