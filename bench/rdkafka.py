"""Transactions of librdkafka's producer, with its own defaults but linger: how long each takes, and its commit."""

from __future__ import annotations

import statistics
import time
from typing import Any

PARTITIONS = 3
WARM_UP = 20


def transactions(
    bootstrap: str, topic: str, count: int = 200, replicas: int = 1
) -> dict[str, float]:
    """One record to each partition, committed, the next when the commit has returned; milliseconds, p50."""
    from confluent_kafka import Producer
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": bootstrap})
    for made in admin.create_topics([NewTopic(topic, PARTITIONS, replicas)]).values():
        made.result(30)
    settings = {
        "bootstrap.servers": bootstrap,
        "transactional.id": topic,
        "linger.ms": 0,
        "log_level": 0,
        "enable.metrics.push": False,
    }
    producer = Producer(settings)
    producer.init_transactions(60)
    failed: list[Any] = []
    commits, wholes = [], []
    for _ in range(count + WARM_UP):
        begin = time.perf_counter()
        producer.begin_transaction()
        for partition in range(PARTITIONS):
            producer.produce(
                topic,
                bytes(100),
                partition=partition,
                on_delivery=lambda error, _: error and failed.append(error),
            )
        assert producer.flush(30) == 0 and not failed, failed
        commit = time.perf_counter()
        producer.commit_transaction(30)
        end = time.perf_counter()
        commits.append((end - commit) * 1000)
        wholes.append((end - begin) * 1000)
    return {
        "txn_rdkafka_commit_p50_ms": statistics.median(commits[WARM_UP:]),
        "txn_rdkafka_p50_ms": statistics.median(wholes[WARM_UP:]),
    }
