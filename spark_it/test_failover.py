"""Every leader is killed and replaced while Spark's queries run: three brokers, in threads and in processes.

Nothing acknowledged may be lost, and nothing may come twice in a sink that keeps one result a batch id. In processes a
broker's end is kill -9. Nothing here sleeps: each step waits for what it needs to have happened.
"""

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kwire import Cluster
from spark_it.support import StockClient, three_brokers, until

pytestmark = [pytest.mark.kwire_only, pytest.mark.timeout(600)]

PARTITIONS = 3
PATIENCE_S = 180.0
# Else Java's admin client, asking for offsets, may hold on to a dead leader for a minute (docs/spark.md).
TIMEOUTS = {"kafka.default.api.timeout.ms": "15000", "kafka.request.timeout.ms": "10000"}


@pytest.fixture(params=[pytest.param("thread", marks=pytest.mark.slow), "process"])
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    with three_brokers(request.param) as started:
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


def replace_every_leader(
    cluster: Cluster, topics: list[str], advance: Callable[[str], None]
) -> dict[tuple[str, int], set[int]]:
    """Kills and replaces each broker in turn; the leaders each partition lost. `advance(what)` waits for work done."""
    places = [(topic, index) for topic in topics for index in range(PARTITIONS)]
    lost: dict[tuple[str, int], set[int]] = {place: set() for place in places}
    everybody = {broker.id for broker in cluster.brokers}

    def all_led_without(node: int) -> Callable[[Cluster], bool]:
        return lambda c: all(c.partition(*place).leader not in (node, -1) for place in places)

    for broker in cluster.brokers:
        led = [place for place in places if cluster.partition(*place).leader == broker.id]
        broker.kill()
        cluster.wait_for(all_led_without(broker.id), PATIENCE_S)
        for place in led:
            lost[place].add(broker.id)
        advance(f"work goes on without broker {broker.id}")
        broker.start()
        cluster.wait_for(
            lambda c: all(c.partition(*place).isr == everybody for place in places), PATIENCE_S
        )
        advance(f"work goes on with broker {broker.id} again")
    return lost


def test_every_leader_is_replaced_under_a_query_and_each_record_comes_once(
    cluster: Cluster, spark: Any, sink: Any, tmp_path: Path
) -> None:
    client = StockClient(cluster.bootstrap_servers)
    topic = client.create("numbers", PARTITIONS)
    writer = Writer(cluster.bootstrap_servers, topic)
    source = {"kafka.bootstrap.servers": cluster.bootstrap_servers, "subscribe": topic, **TIMEOUTS}
    frame = spark.readStream.format("kafka").options(**source, startingOffsets="earliest").load()
    output = frame.writeStream.foreachBatch(sink).option("checkpointLocation", str(tmp_path / "c"))
    query = output.trigger(processingTime="100 milliseconds").start()

    def advance(what: str) -> None:
        goal = len(sink.rows) + 50
        until(lambda: query.exception() or len(sink.rows) >= goal, PATIENCE_S, what)
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
    client = StockClient(cluster.bootstrap_servers)
    source, target = client.create("source", PARTITIONS), client.create("target", PARTITIONS)
    writer = Writer(cluster.bootstrap_servers, source)
    servers = {"kafka.bootstrap.servers": cluster.bootstrap_servers}
    reader = spark.readStream.format("kafka").options(**servers, **TIMEOUTS, subscribe=source)
    frame = reader.option("startingOffsets", "earliest").load().select("value")
    output = frame.writeStream.format("kafka").options(**servers, topic=target)
    output = output.option("checkpointLocation", str(tmp_path / "c"))
    query = output.trigger(processingTime="100 milliseconds").start()

    def batches() -> int:
        progress = query.lastProgress
        return progress["batchId"] if progress else -1

    def advance(what: str) -> None:
        goal = batches() + 2  # a stream without state runs no empty batches
        until(lambda: query.exception() or batches() >= goal, PATIENCE_S, what)
        assert query.exception() is None, query.exception()

    advance("first records")
    lost = replace_every_leader(cluster, [source, target], advance)
    assert all(lost.values()), f"a partition never lost its leader: {lost}"
    expected = writer.stop()
    query.processAllAvailable()
    query.stop()
    assert sorted(client.values(target), key=int) == expected
