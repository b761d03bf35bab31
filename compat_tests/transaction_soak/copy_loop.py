"""librdkafka in a consume–transform–produce loop until stdin ends; workers.py says what its words mean."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from compat_tests.transaction_soak.librdkafka import Transactions, say, serve, settings

A_TRANSACTION = 40
STUCK_S = 15.0


@contextmanager
def watched() -> Iterator[None]:
    """End the process if this takes too long.

    send_offsets_to_transaction sleeps for good when the group's coordinator has died and left the metadata
    (https://github.com/confluentinc/librdkafka/issues/5511)."""

    def give_up() -> None:
        say("stuck in send_offsets_to_transaction")
        os._exit(1)

    timer = threading.Timer(STUCK_S, give_up)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


class Dead(KafkaException):
    """The consumer will get nothing more."""


class CopyLoop:
    def __init__(self, argv: list[str]) -> None:
        bootstrap, self.id, self.incarnation, group, instance, source, self.target, count = argv
        self.partitions = int(count)
        self.number = 0
        self.batch: list[Message] = []
        config: dict[str, Any] = {
            **settings(bootstrap),
            "group.id": group,
            "isolation.level": "read_committed",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "session.timeout.ms": 4000,
            "heartbeat.interval.ms": 500,
            "fetch.wait.max.ms": 200,
        }
        if instance != "-":
            config["group.instance.id"] = instance
        self.transactions = Transactions(bootstrap, self.id)
        self.producer = self.transactions.producer
        self.consumer = Consumer(config)
        self.consumer.subscribe([source], on_revoke=self._lose, on_lost=self._lose)

    def _lose(self, _consumer: Consumer, _partitions: list[TopicPartition]) -> None:
        """What was read and not yet copied belongs to the next owner."""
        self.batch.clear()

    def run(self, stop: threading.Event) -> None:
        say("ready")
        while not stop.is_set():
            try:
                self.copy()
            except Dead:
                raise
            except KafkaException as error:
                if error.args[0].fatal():
                    raise
                say("error", error.args[0])
                if self.transactions.is_open:
                    self.abort()
                self.rewind()
        self.consumer.close()

    def read(self) -> None:
        """Fill the batch: as many records as there are in 50 ms after the first, at most 40."""
        deadline = time.monotonic() + 0.2
        while len(self.batch) < A_TRANSACTION and time.monotonic() < deadline:
            message = self.consumer.poll(0.05)
            if message is None:
                if self.batch:
                    return
                continue
            if (error := message.error()) is None:
                self.batch.append(message)
            elif error.fatal() or error.code() == KafkaError._FATAL:
                raise Dead(error)
            else:
                say("error", error)

    def copy(self) -> None:
        self.read()
        messages, self.batch = self.batch, []
        if not messages:
            return
        self.number += 1
        self.transactions.begin()
        following: dict[int, TopicPartition] = {}
        for message in messages:
            partition, offset = message.partition(), message.offset()
            assert partition is not None and offset is not None
            words = (partition, offset, self.id, self.incarnation, self.number, len(messages))
            value = " ".join(map(str, words)).encode()
            self.producer.produce(self.target, value, partition=offset % self.partitions)
            following[partition] = TopicPartition(message.topic() or "", partition, offset + 1)
        self.producer.flush(60)
        say("middle", self.number)
        time.sleep(0.02)
        if self.number % 5 == 0:
            self.abort()
            self.rewind()
            return
        with watched():
            self.producer.send_offsets_to_transaction(
                list(following.values()), self.consumer.consumer_group_metadata(), 60
            )
        self.transactions.commit()
        say("committed", self.number)

    def abort(self) -> None:
        self.transactions.abort()
        say("aborted", self.number)

    def rewind(self) -> None:
        """Back to the committed offsets, which are as far as the outputs."""
        self.batch.clear()
        while assigned := self.consumer.assignment():
            try:
                for place in self.consumer.committed(assigned, 10):
                    self.consumer.seek(
                        TopicPartition(place.topic, place.partition, max(place.offset, 0))
                    )
                return
            except KafkaException as error:
                if error.args[0].fatal():
                    raise
                say("error", "rewind:", error.args[0])
                self.consumer.poll(0)  # a rebalance that took the partitions away is served here


if __name__ == "__main__":
    serve(lambda stop: CopyLoop(sys.argv[1:]).run(stop))
