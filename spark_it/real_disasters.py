"""Disasters staged on three brokers of Apache Kafka 3.9.1, and what Kafka's own tools say is left afterwards.

    unclean    5 records that both replicas have, 3 that broker 1 alone has when it is killed; broker 2 is elected
    calm       an idempotent producer with acks=all and min.insync.replicas=2 goes on through all that
    aborted    a transaction of 5 records is aborted between two that are committed
    expired    retention removes 10 records and keeps 4

What is lost is not what was staged to be, but what Kafka's console consumer does not read; kafka-dump-log says that it
has read everything.
"""

from __future__ import annotations

import re
import subprocess
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from compat_tests import tooling
from compat_tests.kafka_nodes import KafkaNodes
from kwire.pipeline import ledger
from spark_it import disasters
from spark_it.support import until

CONFIG = {
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "broker.heartbeat.interval.ms": "500",
    "replica.high.watermark.checkpoint.interval.ms": "500",
    "log.retention.check.interval.ms": "1000",
    "log.initial.task.delay.ms": "500",
}
REPLICAS: dict[str, list[list[int]]] = {
    "unclean": [[1, 2]],
    "calm": [[2, 3, 1], [3, 1, 2]],
    "aborted": [[3, 1, 2]],
    "expired": [[2, 3]],
}
TOPICS: dict[str, dict[str, str]] = {
    "unclean": disasters.LOSSY,
    "calm": {"min.insync.replicas": "2"},
    "aborted": {},
    "expired": disasters.TOPICS["expired"][1],
}
SHARED, ALONE = 5, 3
"""Records of `unclean` that both replicas have, and that the leader that dies has alone."""
SILENCE_MS = 15_000
"""After so long without a record the console consumer ends: it has to join its group in this time."""
_PRINTED = re.compile(rb"Partition:(\d+)\tOffset:(\d+)\t[0-9a-f]{8} (\S+) (\d+) ")
_DUMPED = re.compile(r"^\| offset: (\d+) .* payload: [0-9a-f]{8} (\S+) (\d+) ", re.MULTILINE)

Place = tuple[str, int, int]
"""Topic, partition, offset."""
Identity = tuple[str, int]
"""Producer and number."""
Found = tuple[str, str, int, int | None, str | None, int | None]
"""A finding: kind, topic, partition, offset, producer, number."""


class Staged(NamedTuple):
    kafka: KafkaNodes
    book: disasters.Book
    ledger: Path

    @property
    def logs(self) -> tuple[str, ...]:
        return tuple(str(node.data) for node in self.kafka.brokers.values())


class _Cluster:
    """What is asked of the brokers, whichever of them run."""

    def __init__(self, bootstrap: str) -> None:
        from confluent_kafka.admin import AdminClient

        self._admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})

    def create(self, topic: str) -> None:
        from confluent_kafka.admin import NewTopic

        assignment = REPLICAS[topic]
        new = NewTopic(topic, len(assignment), replica_assignment=assignment, config=TOPICS[topic])
        self._admin.create_topics([new])[topic].result(30)
        until(lambda: self.leader(topic) > 0 and self.in_sync([topic]), what=f"{topic} is led")

    def _partitions(self, topic: str) -> list[Any]:
        return list(self._admin.list_topics(topic, timeout=10).topics[topic].partitions.values())

    def leader(self, topic: str) -> int:
        """Of partition 0; -1: none."""
        return next((each.leader for each in self._partitions(topic) if each.id == 0), -1)

    def isr(self, topic: str) -> set[int]:
        """Of partition 0."""
        return next((set(each.isrs) for each in self._partitions(topic) if each.id == 0), set())

    def in_sync(self, topics: Iterable[str]) -> bool:
        return all(
            len(each.isrs) == len(each.replicas)
            for topic in topics
            for each in self._partitions(topic)
        )

    def first_offset(self, topic: str, partition: int = 0) -> int:
        """-1 while no leader says it."""
        from confluent_kafka import KafkaException, TopicPartition
        from confluent_kafka.admin import OffsetSpec

        place = TopicPartition(topic, partition)
        asked = self._admin.list_offsets({place: OffsetSpec.earliest()})
        try:
            return int(asked[place].result(20).offset)
        except KafkaException:
            return -1


@contextmanager
def staged(folder: Path) -> Iterator[Staged]:
    """The brokers after it all, running and in sync; killed at the end."""
    kafka, book = KafkaNodes(folder, 3, CONFIG), disasters.Book()
    try:
        kafka.start()
        _stage(kafka, book)
        yield Staged(kafka, book, book.write(folder / "ledger", kafka.bootstrap_servers))
    finally:
        kafka.kill9()


def _stage(kafka: KafkaNodes, book: disasters.Book) -> None:
    cluster = _Cluster(kafka.bootstrap_servers)
    for topic in TOPICS:
        cluster.create(topic)
    disasters.abort(kafka, book)
    disasters.fill_expired(kafka, book)
    calm = disasters.producer(kafka, **{"enable.idempotence": True})

    def go_on() -> None:
        _deliver(book, calm, "calm-1", "calm", 100, lambda number: number % 2)

    go_on()
    # With acks=1 these would be acknowledged before broker 2 has them, and lost, too, when it is killed at once.
    _deliver(book, disasters.producer(kafka, acks="all"), "unclean-1", "unclean", SHARED)
    until(lambda: cluster.isr("unclean") == {1, 2}, 30, "both have them")
    kafka.brokers[2].kill9()
    until(lambda: cluster.isr("unclean") == {1}, 30, "broker 1 is alone")
    until(lambda: cluster.leader("calm") == 3, 30, "calm is led by broker 3")
    go_on()
    one = disasters.producer(kafka, acks=1)
    _deliver(book, one, "unclean-1", "unclean", ALONE)
    kafka.brokers[1].kill9()
    kafka.brokers[2].start()
    until(lambda: cluster.leader("unclean") == 2, 60, "unclean is led by broker 2")
    kafka.brokers[1].start()
    _deliver(book, one, "unclean-1", "unclean", 2)
    go_on()
    until(lambda: cluster.first_offset("expired") == 10, 60, "retention has removed 10 records")
    until(lambda: cluster.in_sync(TOPICS), 60, "all replicas are in sync")


def _deliver(
    book: disasters.Book,
    producer: Any,
    name: str,
    topic: str,
    count: int,
    partition: Callable[[int], int] = lambda _: 0,
) -> None:
    for number in range(count):
        book.send(producer, name, topic, partition(number))
    assert producer.flush(60) == 0


# --- what Kafka says is left


def consumed(staged: Staged) -> dict[Identity, list[Place]]:
    """Where Kafka's console consumer finds each record, read committed, from the beginning."""
    topic_of = {row["producer"]: row["topic"] for row in staged.book.rows}
    argv = tooling.java_argv(
        "3.9.1",
        "org.apache.kafka.tools.consumer.ConsoleConsumer",
        *("--bootstrap-server", staged.kafka.bootstrap_servers),
        *("--include", "|".join(TOPICS), "--from-beginning", "--timeout-ms", str(SILENCE_MS)),
        *("--isolation-level", "read_committed"),
        *("--property", "print.partition=true", "--property", "print.offset=true"),
    )
    done = subprocess.run(argv, capture_output=True, timeout=120)
    found: dict[Identity, list[Place]] = defaultdict(list)
    for line in done.stdout.splitlines():
        match = _PRINTED.match(line)
        assert match, line
        partition, offset, producer, number = match.groups()
        name = producer.decode()
        place = topic_of[name], int(partition), int(offset)
        found[name, int(number)].append(place)
    assert found, done.stderr.decode()[-2000:]
    return found


def dumped(staged: Staged) -> dict[Identity, list[Place]]:
    """Where kafka-dump-log finds each record in the files of each partition's first replica, aborted ones included."""
    found: dict[Identity, list[Place]] = defaultdict(list)
    for topic, assignment in REPLICAS.items():
        for partition, replicas in enumerate(assignment):
            folder = staged.kafka.brokers[replicas[0]].data / f"{topic}-{partition}"
            files = ",".join(str(path) for path in sorted(folder.glob("*.log")))
            argv = tooling.java_argv(
                *("3.9.1", "kafka.tools.DumpLogSegments"),
                *("--deep-iteration", "--print-data-log", "--files", files),
            )
            done = subprocess.run(argv, capture_output=True, text=True, timeout=60)
            assert done.returncode == 0, done.stderr
            for offset, producer, number in _DUMPED.findall(done.stdout):
                found[producer, int(number)].append((topic, partition, int(offset)))
    return found


def expected(staged: Staged, seen: dict[Identity, list[Place]]) -> list[Found]:
    """The findings that follow from the ledger and what a consumer has `seen`. The brokers run."""
    cluster = _Cluster(staged.kafka.bootstrap_servers)
    begins = {}
    for home in {(row["topic"], row["partition"]) for row in staged.book.rows}:
        until(lambda home=home: cluster.first_offset(*home) >= 0, 30, f"{home} is led")
        begins[home] = cluster.first_offset(*home)
    found: list[Found] = []
    removed: dict[tuple[str, int], int] = {}
    for row in staged.book.rows:
        identity: Identity = row["producer"], row["number"]
        places = sorted(seen.get(identity, ()))
        home, offset = (row["topic"], row["partition"]), row["offset"]
        is_acknowledged = row["outcome"] in (ledger.ACKNOWLEDGED, ledger.COMMITTED)
        assert not (places and row["outcome"] == ledger.ABORTED), row
        if is_acknowledged and not places and offset < begins[home]:
            removed[home] = min(offset, removed.get(home, offset))
        elif is_acknowledged and not places:
            found.append(("lost", *home, offset, *identity))
        elif places and not is_acknowledged:
            found.append(("unacknowledged", *places[0], *identity))
        found += [("doubled", *place, *identity) for place in places[1:]]
    found += [("expired", *home, first, None, None) for home, first in removed.items()]
    return sorted(found, key=str)


def counted(
    staged: Staged, seen: dict[Identity, list[Place]]
) -> dict[tuple[str, int], tuple[int, int, int]]:
    """By partition: records sent, acknowledged, present."""
    sent: Counter[tuple[str, int]] = Counter()
    acknowledged: Counter[tuple[str, int]] = Counter()
    for row in staged.book.rows:
        home = row["topic"], row["partition"]
        sent[home] += 1
        acknowledged[home] += row["outcome"] in (ledger.ACKNOWLEDGED, ledger.COMMITTED)
    present = Counter(place[:2] for places in seen.values() for place in places)
    return {home: (sent[home], acknowledged[home], present[home]) for home in sent}
