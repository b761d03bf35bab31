"""Load with acks=all on a topic while its leaders move, and the proof that nothing of it was lost.

A stock client, confluent-kafka (librdkafka), produces idempotently: then every record that was acknowledged stands in
the log at the offset that was acknowledged, once under a producer epoch, and a partition's records stand in the order
in which they were sent. A broker that has just started may call the topic unknown (Kafka's does in ZooKeeper mode,
until the controller has spoken): librdkafka then gives up what it has not sent yet, with one of two errors as the
moment has it (rd_kafka_topic_assign_uas, RD_KAFKA_OP_PARTITION_LEAVE), and that is not acknowledged.
"""

import threading
import time
from collections.abc import Callable
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from kwire.load import ledger
from kwire.protocol.records import iter_batches

_PAUSE_S = 0.002
_READ_TIMEOUT_S = 60.0
_CALLED_UNKNOWN = (KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION)


class Load:
    """Produces numbered records to all partitions of a topic from `start` to `finish`."""

    def __init__(
        self,
        bootstrap_servers: str,
        topic: str,
        partitions: int,
        noted: ledger.Producer | None = None,
    ) -> None:
        """`noted`: where a second judge reads what was sent and acknowledged."""
        self.topic = topic
        self.sent_twice = False
        """Whether the client has written a record again under a later producer epoch; `check` knows."""
        self._noted = noted
        self._open: dict[tuple[int, int], ledger.Record] = {}
        self.partitions = partitions
        self.sent = [0] * partitions
        self.acknowledged: list[dict[int, int]] = [{} for _ in range(partitions)]  # number: offset
        self.given_up: list[set[int]] = [set() for _ in range(partitions)]
        self.failures: list[str] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap_servers,
                "enable.idempotence": True,
                "acks": "all",
                "linger.ms": 2,
                "batch.size": 20_000,  # a batch must fit a segment, however long it had to wait
                "message.timeout.ms": 120_000,
                "retry.backoff.ms": 50,
                "retry.backoff.max.ms": 200,
                "reconnect.backoff.ms": 20,
                "reconnect.backoff.max.ms": 200,
                "topic.metadata.refresh.interval.ms": 5000,
                "socket.timeout.ms": 5000,
                "log_level": 0,
            }
        )

    def start(self) -> None:
        self._thread.start()

    def _run(self) -> None:
        try:
            self._produce()
        except Exception as error:
            self.failures.append(f"the load has ended: {error!r}")
            raise

    def _produce(self) -> None:
        number = 0
        while not self._stop.is_set():
            partition = number % self.partitions
            ordinal = self.sent[partition]
            value = b"%d:%d " % (partition, ordinal) + b"v" * (ordinal * 7 % 200)
            record = None
            if self._noted is not None:
                record = self._open[partition, ordinal] = self._noted.record(self.topic, value)
                value = record.value
            try:
                self._producer.produce(
                    self.topic, value, partition=partition, on_delivery=self._delivered
                )
                self.sent[partition] += 1
                number += 1
            except BufferError as full:
                if record is not None:
                    record.failed(str(full))
            except KafkaException as refused:
                if refused.args[0].code() not in _CALLED_UNKNOWN:
                    raise
                if record is not None:
                    record.failed(str(refused))
            self._producer.poll(0)
            time.sleep(_PAUSE_S)

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        partition = message.partition()
        ordinal = _ordinal(message)
        assert partition is not None
        record = self._open.pop((partition, ordinal), None)
        if error is not None:
            if record is not None:
                record.unknown(str(error))
            if error.code() in _CALLED_UNKNOWN:
                self.given_up[partition].add(ordinal)
            else:
                self.failures.append(f"{partition}:{ordinal} {error}")
            return
        # Told to be a duplicate of what it has lost sight of, librdkafka knows that it is written, not where.
        offset = message.offset()
        self.acknowledged[partition][ordinal] = -1 if offset is None else offset
        if record is not None:
            record.acknowledged(partition, offset)

    @property
    def count(self) -> int:
        """Records acknowledged so far."""
        return sum(map(len, self.acknowledged))

    def finish(self) -> None:
        """Sends no more and waits until all that was sent is acknowledged."""
        self._stop.set()
        self._thread.join()
        self._producer.flush(120)

    def check(self, bootstrap_servers: str, log_of: Callable[[int], bytes]) -> None:
        """Reads the topic back, through a broker and from a replica's log: all that was acknowledged, once, in order.

        After a change of leaders librdkafka may answer OUT_OF_ORDER_SEQUENCE_NUMBER with a new producer epoch, and send
        again under it what may stand there from the old one. No broker can tell that such a record is there twice.
        """
        assert self.failures == [], self.failures[:5]
        for partition in range(self.partitions):
            name = f"{self.topic}-{partition}"
            acknowledged = self.acknowledged[partition]
            given_up = self.given_up[partition]
            answered = len(acknowledged) + len(given_up)
            assert answered == self.sent[partition], f"{name}: not all was answered"
            epochs = _producer_epochs(name, log_of(partition))
            found: dict[int, list[int]] = {}
            for ordinal, offset in read_all(bootstrap_servers, self.topic, partition):
                found.setdefault(ordinal, []).append(offset)
            firsts = [ordinal for ordinal in found if ordinal not in given_up]
            expected = sorted(acknowledged)
            assert firsts == expected, f"{name}: {_difference(firsts, expected)}"
            wrong = [o for o, offset in acknowledged.items() if offset not in (-1, *found[o])]
            assert wrong == [], f"{name}: not where they were acknowledged: {wrong[:20]}"
            for ordinal, offsets in found.items():
                writers = [epochs[offset] for offset in offsets]
                assert len(set(writers)) == len(writers), f"{name}: {ordinal} at {offsets}"
                self.sent_twice |= len(writers) > 1


def _producer_epochs(name: str, log: bytes) -> dict[int, tuple[int, int]]:
    """The producer's id and epoch by offset. Within one producer epoch no sequence number is left out or repeated."""
    epochs: dict[int, tuple[int, int]] = {}
    expected: dict[tuple[int, int], int] = {}
    for batch in iter_batches(log):
        writer = batch.producer_id, batch.producer_epoch
        assert batch.base_sequence == expected.get(writer, 0), f"{name} at {batch.base_offset}"
        expected[writer] = batch.base_sequence + batch.count
        for offset in range(batch.base_offset, batch.last_offset + 1):
            epochs[offset] = writer
    return epochs


def _difference(found: list[int], expected: list[int]) -> str:
    missing = sorted(set(expected) - set(found))
    turned = next((n for n, (a, b) in enumerate(zip(found, expected, strict=False)) if a != b), -1)
    return (
        f"{len(expected)} sent, {len(missing)} missing: {missing[:20]}, out of order from {turned}"
    )


def _ordinal(message: Message) -> int:
    value = message.value()
    assert value is not None
    # Behind a ledger's words, if there are any.
    return int(next(word for word in bytes(value).split(b" ") if b":" in word).split(b":")[1])


def read_all(bootstrap_servers: str, topic: str, partition: int) -> list[tuple[int, int]]:
    """(ordinal, offset) of all records of a partition up to its high watermark, in the log's order."""
    return [
        (_ordinal(message), message.offset() or 0)
        for message in read_messages(bootstrap_servers, topic, partition)
    ]


def read_messages(bootstrap_servers: str, topic: str, partition: int) -> list[Any]:
    """All records of a partition up to its high watermark."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": "reads-without-a-group",
            "enable.auto.commit": False,
            "log_level": 0,
        }
    )
    try:
        where = TopicPartition(topic, partition)
        _, end = consumer.get_watermark_offsets(where, timeout=_READ_TIMEOUT_S)
        consumer.assign([TopicPartition(topic, partition, 0)])
        found: list[Any] = []
        deadline = time.monotonic() + _READ_TIMEOUT_S
        while not found or found[-1].offset() < end - 1:
            if end == 0:
                break
            for message in consumer.consume(500, timeout=0.5):
                assert message.error() is None, message.error()
                found.append(message)
            assert time.monotonic() < deadline, f"{topic}-{partition}: {len(found)} of {end} read"
        return found
    finally:
        consumer.close()


def produce_all(bootstrap_servers: str, topic: str, partition: int, values: list[bytes]) -> None:
    """Sends a few records with acks=all and returns when they are acknowledged."""
    producer = Producer(
        {
            "bootstrap.servers": bootstrap_servers,
            "acks": "all",
            "linger.ms": 1,
            "log_level": 0,
            "message.timeout.ms": 60_000,
            "retry.backoff.ms": 50,
        }
    )
    failures: list[str] = []

    def delivered(error: KafkaError | None, message: Message) -> None:
        if error is not None:
            failures.append(str(error))

    for value in values:
        producer.produce(topic, value, partition=partition, on_delivery=delivered)
    assert producer.flush(60) == 0 and failures == [], failures
