"""A leader's death, as docs/audit.md shows it: 500 ms without a leader, an unclean election, three records lost.

Broker 1 loses its followers. A record waits until it is alone in the ISR of orders-0; when it has acknowledged that one
and two more, it is killed, and half a second later somebody has broker 3 elected. orders-1 and orders-2 go on."""

from __future__ import annotations

import time
from typing import Any

from kwire import Cluster
from spark_it.disasters import Book, Steady, producer

CONFIG = {
    "replica.lag.time.max.ms": 1000,
    "replica.fetch.wait.max.ms": 100,
    "replica.high.watermark.checkpoint.interval.ms": 100,
}
TOPIC = "orders"
LEADERLESS_SECONDS = 0.5
LOST = 3


def stage(cluster: Cluster, book: Book, safe: bool = False) -> None:
    """In about 12 s. `safe`: with min.insync.replicas=2 broker 1 acknowledges nothing alone, and leads again when it is
    back: nothing is lost."""
    assignment = [[1, 2, 3], [2, 3, 1], [3, 1, 2]]
    config = {"min.insync.replicas": "2" if safe else "1"}
    cluster.create_topic(TOPIC, assignment=assignment, config=config)
    retries = {"retry.backoff.ms": 50, "retry.backoff.max.ms": 100, "enable.idempotence": safe}
    one = producer(cluster, **retries)
    second, third = (Steady(cluster, book, f"shop-{n}", TOPIC, (n,), **retries) for n in (1, 2))
    with second, third:
        send(one, book, seconds=3)
        with cluster.network.cut({1}, {2, 3}):
            for _ in range(LOST):
                book.send(one, "shop-0", TOPIC, 0)
                assert safe or one.flush(30) == 0
            cluster.wait_for(lambda c: c.partition(TOPIC, 0).isr == {1}, timeout=10)
            cluster.broker(1).kill()
            cluster.wait_for(lambda c: c.partition(TOPIC, 0).leader != 1, timeout=10)
            time.sleep(LEADERLESS_SECONDS)
            if not safe:
                cluster.elect(TOPIC, 0, 3, unclean=True)
        if safe:
            cluster.broker(1).start()
        send(one, book, seconds=3)
        if not safe:
            cluster.broker(1).start()
        cluster.wait_in_sync(timeout=30)
        send(one, book, seconds=2)


def send(one: Any, book: Book, seconds: float) -> None:
    """One record after the other to orders-0, each acknowledged before the next."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        book.send(one, "shop-0", TOPIC, 0)
        assert one.flush(30) == 0
        time.sleep(0.015)
