"""Every leader is killed with kill -9 and replaced while Spark's queries run: three brokers, a process each.

Nothing acknowledged may be lost, and nothing may come twice in a sink that keeps one result a batch id. The cluster
is that of compat_tests: the supervisor of `kwire up --isolation process`, with a hand on its processes.
"""

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from compat_tests.cluster import Cluster, running
from spark_it.support import StockClient, until

pytestmark = pytest.mark.timeout(400)

PARTITIONS = 3


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with running(tmp_path / "cluster", min_insync_replicas="2") as started:
        yield started


class Writer:
    """Produces numbers with an idempotent stock client until told to stop; knows which were acknowledged."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        from confluent_kafka import Producer

        self.topic = topic
        self.acknowledged: set[str] = set()
        self.failed: list[str] = []
        self._next = 0
        self._stopping = threading.Event()
        config = {"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 5}
        self._producer = Producer({**config, "delivery.timeout.ms": 120_000})
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _on_delivery(self, error: Any, message: Any) -> None:
        if error is not None:
            self.failed.append(str(error))
        else:
            self.acknowledged.add(message.value().decode())

    def _run(self) -> None:
        while not self._stopping.wait(0.05):
            for _ in range(5):
                value = str(self._next)
                self._producer.produce(
                    self.topic,
                    value,
                    partition=self._next % PARTITIONS,
                    on_delivery=self._on_delivery,
                )
                self._next += 1
            self._producer.poll(0)

    def stop(self) -> list[str]:
        """Ends, waits for the acknowledgements; all values in order."""
        self._stopping.set()
        self._thread.join(30)
        assert self._producer.flush(120) == 0
        assert not self.failed, self.failed[:3]
        assert len(self.acknowledged) == self._next
        return [str(number) for number in range(self._next)]


def leaders(cluster: Cluster, topic: str) -> dict[int, int]:
    return {index: cluster.leader(topic, index) for index in range(PARTITIONS)}


def replace_every_leader(
    cluster: Cluster, topics: list[str], advance: Callable[[str], None]
) -> dict[tuple[str, int], set[int]]:
    """Kills and replaces each broker in turn; the leaders each partition lost. `advance(what)` waits for work done."""
    lost: dict[tuple[str, int], set[int]] = {
        (t, p): set() for t in topics for p in range(PARTITIONS)
    }
    for node in cluster.ids:
        led = [
            (t, p) for t in topics for p, leader in leaders(cluster, t).items() if leader == node
        ]
        cluster.kill9(node)
        for topic, index in led:
            until(
                lambda gone=(node, -1), t=topic, i=index: cluster.leader(t, i) not in gone,
                20,
                f"a new leader of {topic}-{index}",
            )
            lost[topic, index].add(node)
        advance(f"work goes on without broker {node}")
        cluster.start(node)
        for topic in topics:
            for index in range(PARTITIONS):
                cluster.await_isr(topic, *cluster.ids, index=index)
        advance(f"work goes on with broker {node} again")
    return lost


def test_every_leader_is_replaced_under_a_query_and_each_record_comes_once(
    cluster: Cluster, spark: Any, sink: Any, tmp_path: Path
) -> None:
    client = StockClient(cluster.bootstrap)
    topic = client.create("numbers", PARTITIONS)
    writer = Writer(cluster.bootstrap, topic)
    source = {"kafka.bootstrap.servers": cluster.bootstrap, "subscribe": topic}
    frame = spark.readStream.format("kafka").options(**source, startingOffsets="earliest").load()
    output = frame.writeStream.foreachBatch(sink).option("checkpointLocation", str(tmp_path / "c"))
    query = output.trigger(processingTime="100 milliseconds").start()

    def advance(what: str) -> None:
        goal = len(sink.rows) + 50
        until(lambda: query.exception() or len(sink.rows) >= goal, 90, what)
        assert query.exception() is None, query.exception()

    advance("first records")
    lost = replace_every_leader(cluster, [topic], advance)
    assert all(lost.values()), f"a partition never lost its leader: {lost}"
    expected = writer.stop()
    query.processAllAvailable()
    query.stop()
    assert sorted(sink.values, key=int) == expected
    places = [(row.partition, row.offset) for row in sink.rows]
    assert len(places) == len(set(places))
    for index in range(PARTITIONS):  # in order, without a gap
        offsets = [offset for partition, offset in sorted(places) if partition == index]
        assert offsets == list(range(len(offsets)))


def test_every_leader_is_replaced_under_a_query_from_kwire_to_kwire(
    cluster: Cluster, spark: Any, tmp_path: Path
) -> None:
    """The Kafka sink promises at least once; its idempotent producer and a query that never fails make it once."""
    client = StockClient(cluster.bootstrap)
    source, target = client.create("source", PARTITIONS), client.create("target", PARTITIONS)
    writer = Writer(cluster.bootstrap, source)
    servers = {"kafka.bootstrap.servers": cluster.bootstrap}
    reader = spark.readStream.format("kafka").options(**servers, subscribe=source)
    frame = reader.option("startingOffsets", "earliest").load().select("value")
    output = frame.writeStream.format("kafka").options(**servers, topic=target)
    output = output.option("checkpointLocation", str(tmp_path / "c"))
    query = output.trigger(processingTime="100 milliseconds").start()

    def batches() -> int:
        progress = query.lastProgress
        return progress["batchId"] if progress else -1

    def advance(what: str) -> None:
        goal = batches() + 2  # a stream without state runs no empty batches
        until(lambda: query.exception() or batches() >= goal, 90, what)
        assert query.exception() is None, query.exception()

    advance("first records")
    lost = replace_every_leader(cluster, [source, target], advance)
    assert all(lost.values()), f"a partition never lost its leader: {lost}"
    expected = writer.stop()
    query.processAllAvailable()
    query.stop()
    assert sorted(client.values(target), key=int) == expected
