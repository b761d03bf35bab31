"""Reads of whole partitions up to a snapshot, with librdkafka: on and on, or all at once."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator
from typing import Any

from confluent_kafka import Consumer, IsolationLevel, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from compat_tests.transaction_soak.librdkafka import settings

COMMITTED, UNCOMMITTED = IsolationLevel.READ_COMMITTED, IsolationLevel.READ_UNCOMMITTED


class SnapshotReader:
    """Reads all partitions of a topic from their first record on, from one snapshot to the next."""

    def __init__(
        self,
        bootstrap: str,
        topic: str,
        partitions: int,
        isolation: IsolationLevel = COMMITTED,
    ) -> None:
        self.places = [TopicPartition(topic, index) for index in range(partitions)]
        self.isolation = isolation
        self._bootstrap = bootstrap
        self._admin = AdminClient(settings(bootstrap))
        self._consumer = Consumer(
            {
                **settings(bootstrap),
                "group.id": "reader",
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "enable.partition.eof": True,
                "fetch.wait.max.ms": 100,
                "isolation.level": "read_" + isolation.name.split("_")[1].lower(),
            }
        )
        self._consumer.assign([TopicPartition(topic, index, 0) for index in range(partitions)])
        self._ahead: dict[int, deque[Any]] = {index: deque() for index in range(partitions)}
        self._reached = dict.fromkeys(range(partitions), 0)
        self.epochs: dict[int, int] = {}

    def close(self) -> None:
        self._consumer.close()

    def stable_offsets(self, seconds: float = 60.0) -> dict[int, int]:
        """Where each partition ends now for this reader: its last stable offset, if read_committed.

        `epochs` has those of the leaders that said so."""
        deadline = time.monotonic() + seconds
        wanted = {place: OffsetSpec.latest() for place in self.places}
        while True:
            try:
                asked = self._admin.list_offsets(
                    wanted, isolation_level=self.isolation, request_timeout=5
                )
                found = {place.partition: each.result() for place, each in asked.items()}
                ends = {index: each.offset for index, each in found.items()}
                self.epochs = {index: each.leader_epoch for index, each in found.items()}
                if min(ends.values()) >= 0:  # else librdkafka has not asked a partition's leader
                    return ends
                problem: object = ends
            except KafkaException as error:
                problem = error
            if time.monotonic() > deadline:
                raise AssertionError(f"no end offsets in {seconds} s: {problem}")
            time.sleep(0.05)
            # The next request of the same client would have the same old leader epoch, for minutes.
            self._admin = AdminClient(settings(self._bootstrap))

    def read_to(
        self, ends: dict[int, int], seconds: float = 60.0
    ) -> Iterator[tuple[int, int, bytes]]:
        """Partition, offset and value of all records before these offsets, each once, in order by partition."""
        deadline = time.monotonic() + seconds
        while any(self._reached[index] < end for index, end in ends.items()):
            if time.monotonic() > deadline:
                raise AssertionError(f"read up to {self._reached} in {seconds} s, not to {ends}")
            message = self._consumer.poll(0.2)
            if message is None:
                continue
            error, index = message.error(), message.partition()
            if error is None:
                self._ahead[index].append(message)
                self._reached[index] = message.offset() + 1
            elif error.code() == KafkaError._PARTITION_EOF:
                self._reached[index] = max(self._reached[index], message.offset())
            elif not error.retriable() and error.code() >= 0:
                raise AssertionError(f"reading {self.places[index]}: {error}")
        for index, end in ends.items():
            ahead = self._ahead[index]
            while ahead and ahead[0].offset() < end:
                message = ahead.popleft()
                yield index, message.offset(), message.value() or b""


def read_all(
    bootstrap: str, topic: str, partitions: int, isolation: IsolationLevel
) -> dict[int, list[tuple[int, bytes]]]:
    """All records by partition: offset, value."""
    reader = SnapshotReader(bootstrap, topic, partitions, isolation)
    found: dict[int, list[tuple[int, bytes]]] = {index: [] for index in range(partitions)}
    try:
        for index, offset, value in reader.read_to(reader.stable_offsets()):
            found[index].append((offset, value))
    finally:
        reader.close()
    return found
