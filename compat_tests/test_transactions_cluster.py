"""Transactions over three broker processes that are killed in turn: each input exactly once, aborts never seen."""

from __future__ import annotations

import time
from collections import Counter
from threading import Event, Thread
from typing import ClassVar

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from kafka import KafkaConsumer

from compat_tests.cluster import Cluster, Start

pytestmark = [pytest.mark.kwire_only, pytest.mark.timeout(150)]

A_TRANSACTION = 20
PARTITIONS = 3
Spread = [[1, 2, 3], [2, 3, 1], [3, 1, 2]]


class Copier:
    """Copies `source` to `target` in transactions; every third is aborted and done again."""

    source, target = "in", "out"
    settings: ClassVar[dict[str, int]] = {}
    """Further ones of the consumer and the producers."""

    def __init__(
        self, bootstrap: str, inputs: int, transactional_id: str = "copier", group: str = "copier"
    ) -> None:
        self.inputs = inputs
        self.transactional_id = transactional_id
        self.transactions = 0
        self.errors: list[str] = []
        quiet = {"bootstrap.servers": bootstrap, "log_level": 0, **self.settings}
        self.consumer = Consumer(
            {
                **quiet,
                "group.id": group,
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "isolation.level": "read_committed",
            }
        )
        self.assignment = [TopicPartition(self.source, index) for index in range(PARTITIONS)]
        self.quiet = quiet
        self.producer = self.new_producer()

    def new_producer(self) -> Producer:
        producer = Producer(
            {
                **self.quiet,
                "transactional.id": self.transactional_id,
                "transaction.timeout.ms": 10_000,
            }
        )
        producer.init_transactions(60)
        return producer

    def committed(self) -> list[TopicPartition]:
        while True:
            try:
                found = self.consumer.committed(self.assignment, 30)
            except KafkaException as error:
                self.errors.append(str(error))
                continue
            for partition in found:
                partition.offset = max(partition.offset, 0)
            return list(found)

    def rewind(self) -> None:
        """Read on from the committed offsets: they are as far as the outputs."""
        self.consumer.assign(self.committed())

    def copy(self) -> None:
        """Until all inputs are copied."""
        self.rewind()
        while sum(partition.offset for partition in self.committed()) < self.inputs:
            try:
                self.one_transaction()
            except KafkaException as error:
                self.errors.append(str(error))
                self.recover(error)
        self.consumer.close()

    def one_transaction(self) -> None:
        messages = [m for m in self.consumer.consume(A_TRANSACTION, 0.5) if not m.error()]
        if not messages:
            return
        self.transactions += 1
        is_aborted = self.transactions % 3 == 0
        self.producer.begin_transaction()
        for number, message in enumerate(messages):
            value = message.value() or b""
            prefix = b"aborted-" if is_aborted else b""
            self.producer.produce(self.target, prefix + value, partition=number % PARTITIONS)
        if is_aborted:
            self.producer.flush(30)
            self.producer.abort_transaction(30)
            self.rewind()
            return
        read = [each for each in self.consumer.position(self.assignment) if each.offset >= 0]
        self.producer.send_offsets_to_transaction(read, self.consumer.consumer_group_metadata(), 30)
        while True:
            try:
                self.producer.commit_transaction(30)
                return
            except KafkaException as error:
                if not error.args[0].retriable():
                    raise
                self.errors.append(str(error))

    def recover(self, error: KafkaException) -> None:
        """End the transaction as librdkafka says: abort it, or begin with a new producer."""
        if error.args[0].txn_requires_abort():
            try:
                self.producer.abort_transaction(30)
            except KafkaException as other:
                self.errors.append(str(other))
                self.producer = self.new_producer()
        else:
            self.producer = self.new_producer()
        self.rewind()


def outputs_of_librdkafka(
    bootstrap: str, isolation: str = "read_committed", topic: str = "out"
) -> Counter[bytes]:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": f"reader-{isolation}",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "isolation.level": isolation,
            "enable.partition.eof": True,
            "log_level": 0,
        }
    )
    consumer.assign([TopicPartition(topic, index, 0) for index in range(PARTITIONS)])
    found: Counter[bytes] = Counter()
    ended: set[int] = set()
    deadline = time.monotonic() + 30
    while len(ended) < PARTITIONS and time.monotonic() < deadline:
        message = consumer.poll(1)
        if message is None:
            continue
        if message.error() is None:
            found[message.value() or b""] += 1
        elif message.error().name() == "_PARTITION_EOF":
            ended.add(message.partition())
    consumer.close()
    assert len(ended) == PARTITIONS, "the reader does not reach the end: a transaction hangs"
    return found


def outputs_of_kafka_python(bootstrap: str, wanted: int) -> Counter[bytes]:
    consumer = KafkaConsumer(
        "out",
        bootstrap_servers=bootstrap.split(","),
        isolation_level="read_committed",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        consumer_timeout_ms=10_000,
    )
    found: Counter[bytes] = Counter()
    for message in consumer:
        found[message.value] += 1
        if found.total() == wanted:
            consumer.config["consumer_timeout_ms"] = 1_000  # nothing more may come
    consumer.close()
    return found


def killing(cluster: Cluster, stop: Event, killed: list[int]) -> None:
    """kill -9 of one broker after another, each for a second."""
    while not stop.wait(1.5):
        node = 1 + len(killed) % 3
        killed.append(node)
        cluster.kill9(node)
        stop.wait(1)
        cluster.start(node)


@pytest.mark.parametrize("kills, count", [(0, 300), (4, 1200)])
def test_each_input_is_copied_exactly_once(start: Start, kills: int, count: int) -> None:
    cluster = start()
    for topic in ("in", "out"):
        cluster.create(topic, Spread, {"min.insync.replicas": "2"})
    inputs = [b"value-%d" % number for number in range(count)]
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    for number, value in enumerate(inputs):
        producer.produce("in", value, partition=number % PARTITIONS)
    assert producer.flush(30) == 0

    stop = Event()
    killed: list[int] = []
    killer = Thread(target=killing, args=(cluster, stop, killed), daemon=True)
    if kills:
        killer.start()
    try:
        copier = Copier(cluster.bootstrap, count)
        copier.copy()
    finally:
        stop.set()
        if kills:
            killer.join(30)
    print(copier.transactions, "transactions;", killed, Counter(copier.errors))
    assert len(killed) >= kills
    wanted = Counter(inputs)
    assert outputs_of_librdkafka(cluster.bootstrap) == wanted
    assert outputs_of_kafka_python(cluster.bootstrap, count) == wanted
    everything = outputs_of_librdkafka(cluster.bootstrap, "read_uncommitted")
    assert any(value.startswith(b"aborted-") for value in everything)
