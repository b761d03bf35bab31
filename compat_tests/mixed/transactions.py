"""Transactions in a mixed cluster: coordinators and leaders of either kind, moved while transactions are open.

Each partition has a replica on kwire and one on Kafka: of "money", of `__transaction_state` and of
`__consumer_offsets` one is led by kwire and one by Kafka at the start. A transactional id or a group is named so that
the wanted partition keeps it. The writers are Kafka's own clients in Java and librdkafka; what a reader sees that waits
for commits is read after each step, from the leader and from the other broker once that leads.
"""

from __future__ import annotations

import itertools
import time
from base64 import b64decode, b64encode
from typing import Any

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    KafkaException,
    TopicPartition,
)

from compat_tests import tooling
from compat_tests.clients import Client
from compat_tests.mixed.cluster import KWIRE, PEER, SEGMENT_BYTES, MixedCluster, Partition
from compat_tests.mixed.logs import (
    aborted,
    aborted_difference,
    difference,
    leader_epochs,
    log_bytes,
)
from kwire.coordinator.group_coordinator import partition_for
from kwire.protocol.schemas.topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)

MONEY: list[Partition] = [("money", 0), ("money", 1)]
STATE: list[Partition] = [("__transaction_state", 0), ("__transaction_state", 1)]
OFFSETS: list[Partition] = [("__consumer_offsets", 0), ("__consumer_offsets", 1)]
ALL = MONEY + STATE + OFFSETS
BOTH = (KWIRE, PEER)
FIRST_REPLICAS = [KWIRE, PEER], [PEER, KWIRE]  # partition 0 is led by kwire, 1 by Kafka
CONFIG = {
    "transaction.state.log.num.partitions": "2",
    "offsets.topic.num.partitions": "2",
    "log.cleaner.enable": "false",  # logs are compared
    # made by hand on Kafka's side, with the default: segments have to be equal (cluster.py)
    "transaction.state.log.segment.bytes": str(SEGMENT_BYTES),
    "offsets.topic.segment.bytes": str(SEGMENT_BYTES),
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
}

_DRIVER = tooling.HERE / "java" / "TransactionDriver.java"
_numbers = itertools.count()


def name_in(partition: int, word: str) -> str:
    """A transactional id or a group that nothing else uses, kept by that partition of two."""
    return next(
        name
        for name in (f"{word}-{number}" for number in _numbers)
        if partition_for(name, 2) == partition
    )


class Writer:
    """A transactional producer of Kafka's own, in a process of its own."""

    def __init__(self, bootstrap_servers: str, version: str) -> None:
        argv = tooling.java_program_argv(_DRIVER, version)
        self.client = Client(argv, {}, bootstrap_servers)

    def init(self, transactional_id: str, timeout_ms: int = 60_000) -> None:
        self.client.call("txn_init", id=transactional_id, timeout_ms=timeout_ms)

    def send(self, partition: Partition, *values: str) -> None:
        """Returns when the records are acknowledged; begins a transaction unless one is open."""
        said = [b64encode(value.encode()).decode() for value in values]
        topic, index = partition
        self.client.call("txn_send", topic=topic, partition=index, values=said)

    def end(self, commit: bool = True) -> None:
        self.client.call("txn_end", commit=commit)

    def transform(
        self, group: str, source: str, target: str, count: int, commit: bool
    ) -> list[str]:
        word = {"group": group, "source": source, "target": target}
        read = self.client.call("txn_transform", **word, count=count, commit=commit)
        return [b64decode(value).decode() for value in read]


class Transactions:
    """A cluster, its transactional topics, and what readers have to see in them."""

    def __init__(self, cluster: MixedCluster) -> None:
        self.cluster = cluster
        self.expected: dict[Partition, list[str]] = {}
        self.writers: list[Writer] = []

    def begin(self) -> None:
        for topic in ("money", "__transaction_state", "__consumer_offsets"):
            self.create(topic, *FIRST_REPLICAS)
        self.cluster.await_isr(BOTH, ALL)

    def create(self, topic: str, *assignment: list[int], **config: str) -> None:
        """A topic with the replicas of each partition."""
        partitions = [
            CreatableReplicaAssignment(partition_index=index, broker_ids=replicas)
            for index, replicas in enumerate(assignment)
        ]
        settings = [
            CreatableTopicConfig(name=key.replace("_", "."), value=value)
            for key, value in config.items()
        ]
        wanted = CreatableTopic(
            name=topic,
            num_partitions=-1,
            replication_factor=-1,
            assignments=partitions,
            configs=settings,
        )
        answer = self.cluster.ask(CreateTopicsRequest(topics=[wanted], timeout_ms=30_000))
        assert [each.error_code for each in answer.topics] == [0], answer
        for index, replicas in enumerate(assignment):
            self.cluster.await_leader(replicas[0], [(topic, index)])
            self.expected.setdefault((topic, index), [])

    def close(self) -> None:
        for writer in self.writers:
            writer.client.close()

    def writer(
        self, transactional_id: str, timeout_ms: int = 60_000, version: str = tooling.KAFKA_BROKER
    ) -> Writer:
        """`version`: of Kafka's clients."""
        writer = Writer(self.cluster.bootstrap_servers, version)
        self.writers.append(writer)
        writer.init(transactional_id, timeout_ms)
        return writer

    # -- what is seen --------------------------------------------------------------------------------------------

    def read(self, partition: Partition, isolation: str = "read_committed") -> list[str]:
        """The values up to the last stable offset, or to the high watermark."""
        config: dict[str, Any] = {
            "bootstrap.servers": self.cluster.bootstrap_servers,
            "group.id": "nobody",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": isolation,
            "log_level": 0,
        }
        consumer = Consumer(config)
        try:
            consumer.assign([TopicPartition(*partition, OFFSET_BEGINNING)])
            values = []
            while True:
                message = consumer.poll(20)
                assert message is not None, f"{partition}: neither a record nor the end"
                error = message.error()
                if error is None:
                    values.append((message.value() or b"").decode())
                elif error.code() == KafkaError._PARTITION_EOF:
                    return values
                else:
                    assert error.retriable(), error
        finally:
            consumer.close()

    def check(self, *partitions: Partition) -> None:
        """Soon a reader sees of each partition (none named: all) what was committed, and nothing else."""
        for partition in partitions or MONEY:
            self.await_read(partition, self.expected[partition])

    def await_read(self, partition: Partition, expected: list[str]) -> None:
        seen: list[str] = []

        def is_so() -> bool:
            seen[:] = self.read(partition)
            return seen == expected

        try:
            self.cluster.eventually(f"{partition}: committed", is_so, 20)
        except AssertionError as error:
            raise AssertionError(f"{partition}: {seen}, not {expected}\n{error}") from None

    def check_both(self, *partitions: Partition) -> None:
        """What is read from one broker is read from the other, and the replicas hold the same."""
        named = list(partitions or MONEY)
        self.check(*named)
        self.swap(named)
        self.check(*named)
        self.check_identical(named)

    def check_identical(self, partitions: list[Partition]) -> None:
        """The logs, the indexes of aborted transactions and the leader epochs of both replicas."""
        kwire, peer = self.cluster.kwire.data, self.cluster.peer.data
        for partition in partitions:

            def same(partition: Partition = partition) -> str:
                logs = difference(log_bytes(kwire, *partition), log_bytes(peer, *partition))
                ends = [aborted(data, *partition) for data in (kwire, peer)]
                return logs or aborted_difference(*ends)

            def same_epochs(partition: Partition = partition) -> bool:
                return leader_epochs(kwire, *partition) == leader_epochs(peer, *partition)

            try:
                self.cluster.eventually(f"{partition}: the same bytes", lambda: not same(), 10)
                self.cluster.eventually(f"{partition}: the same epochs", same_epochs, 10)
            except AssertionError as error:
                raise AssertionError(f"{partition}: {same()}\n{error}") from None

    def committed(self, group: str, partition: Partition) -> int:
        """The group's committed offset once no transaction may change it any more; -1001: none."""
        consumer = Consumer(
            {
                "bootstrap.servers": self.cluster.bootstrap_servers,
                "group.id": group,
                "isolation.level": "read_committed",
                "log_level": 0,
            }
        )
        try:
            for _ in range(100):
                try:
                    (found,) = consumer.committed([TopicPartition(*partition)], 30)
                    return int(found.offset)
                except KafkaException as error:
                    # librdkafka leaves the next attempt to the caller where the coordinator has just moved.
                    if error.args[0].code() != KafkaError.NOT_COORDINATOR:
                        raise
                    time.sleep(0.1)
            raise AssertionError(f"no coordinator of {group} in 10 s")
        finally:
            consumer.close()

    # -- what is done --------------------------------------------------------------------------------------------

    def transact(self, writer: Writer, word: str, commit: bool = True) -> None:
        """One transaction with a record in each partition of "money"."""
        for partition in MONEY:
            writer.send(partition, f"{word} {partition[1]}")
        self.end(writer, word, commit)

    def end(self, writer: Writer, word: str, commit: bool = True) -> None:
        """The end of a transaction that has written `word` into each partition of "money"."""
        writer.end(commit)
        if commit:
            for partition in MONEY:
                self.expected[partition].append(f"{word} {partition[1]}")

    def swap(self, partitions: list[Partition]) -> None:
        """Each partition is led by the other broker from now on."""
        state = self.cluster.registry.state
        of_kwire = [p for p in partitions if state(*p)["leader"] == KWIRE]
        of_peer = [p for p in partitions if p not in of_kwire]
        for leader, moved in ((PEER, of_kwire), (KWIRE, of_peer)):
            if moved:
                self.cluster.lead(leader, moved)
