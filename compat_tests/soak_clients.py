"""Who writes to and reads from the cluster that `soak.py` attacks: numbered records, by clients of two libraries.

confluent-1 has one request in flight, so librdkafka can never repeat a batch under another producer epoch; confluent-2
has librdkafka's default of five: see `sent_anew` in `soak_checks.py`.
"""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from kwire.load import ledger

TOPIC = "soak"
PARTITIONS = 6
RECORDS_PER_SECOND = 200
LONG_SILENCE_S = 4.0
DELIVERY_TIMEOUT_MS = 600_000


@dataclass
class Writer:
    """One producer's records: what it sent, what was acknowledged, how long it had to wait."""

    name: str
    sent: int = 0
    acked: dict[int, tuple[int, int]] = field(default_factory=dict)  # number: partition, offset
    errors: list[str] = field(default_factory=list)
    sent_anew: int = 0  # records of which the client itself has written a second copy
    longest_silence_s: float = 0.0
    last_ack: float = field(default_factory=time.monotonic)
    silences: list[tuple[float, float]] = field(default_factory=list)  # end and length of long ones
    noted: ledger.Producer | None = None  # where a second judge reads it
    _open: dict[int, ledger.Record] = field(default_factory=dict)

    @property
    def may_send_anew(self) -> bool:
        return self.name == "confluent-2"

    def next(self) -> tuple[int, bytes]:
        """The partition and the value of the next record."""
        number, self.sent = self.sent, self.sent + 1
        value = f"{self.name}:{number}:{'x' * (number % 97)}".encode()
        if self.noted is not None:
            record = self._open[number] = self.noted.record(TOPIC, value)
            value = record.value
        # A few in a row to one partition, so that batches hold more than one record.
        return number // 5 % PARTITIONS, value

    def delivered(self, number: int, partition: int, offset: int) -> None:
        now = time.monotonic()
        silence_s = now - self.last_ack
        self.longest_silence_s = max(self.longest_silence_s, silence_s)
        if silence_s > LONG_SILENCE_S:
            self.silences.append((now, silence_s))
        self.last_ack = now
        self.acked[number] = partition, offset
        if record := self._open.pop(number, None):
            record.acknowledged(partition, offset if offset >= 0 else None)


def number_of(value: bytes) -> tuple[str, int]:
    name, number, _ = value.decode().rpartition(" ")[2].split(":")  # behind the ledger's words
    return name, int(number)


def write_confluent(
    writer: Writer,
    bootstrap: str,
    stop: threading.Event,
    *,
    in_flight: int = 5,
    per_second: float = RECORDS_PER_SECOND,
) -> None:
    from confluent_kafka import Producer

    def on_error(error: Any) -> None:
        if error.fatal():
            writer.errors.append(f"fatal: {error.str()}")

    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "acks": "all",
            "enable.idempotence": True,
            "max.in.flight.requests.per.connection": in_flight,
            "linger.ms": 5,
            "message.timeout.ms": DELIVERY_TIMEOUT_MS,
            "request.timeout.ms": 5000,
            "reconnect.backoff.ms": 20,
            "reconnect.backoff.max.ms": 200,
            "retry.backoff.ms": 20,
            "log_level": 0,
            "error_cb": on_error,
        }
    )

    def on_delivery(error: Any, message: Any) -> None:
        if error is None:
            number = number_of(message.value())[1]
            offset = message.offset()  # None: a duplicate of a batch that is not remembered
            writer.delivered(number, message.partition(), -1 if offset is None else offset)
        else:
            writer.errors.append(str(error))

    while not stop.wait(1 / per_second):
        partition, value = writer.next()
        producer.produce(TOPIC, value, partition=partition, on_delivery=on_delivery)
        producer.poll(0)
    left = producer.flush(60)
    if left:
        writer.errors.append(f"{left} records are still not delivered")


def write_kafka_python(writer: Writer, bootstrap: str, stop: threading.Event) -> None:
    from kafka import KafkaProducer

    producer = KafkaProducer(
        bootstrap_servers=bootstrap.split(","),
        acks="all",
        enable_idempotence=True,
        linger_ms=5,
        delivery_timeout_ms=DELIVERY_TIMEOUT_MS,
        request_timeout_ms=5000,
        reconnect_backoff_ms=20,
        reconnect_backoff_max_ms=200,
        retry_backoff_ms=20,
        max_block_ms=DELIVERY_TIMEOUT_MS,
        metadata_max_age_ms=5000,
    )
    while not stop.wait(1 / RECORDS_PER_SECOND):
        number = writer.sent
        partition, value = writer.next()
        future = producer.send(TOPIC, value, partition=partition)
        future.add_callback(
            lambda done, number=number: writer.delivered(number, done.partition, done.offset)
        )
        future.add_errback(lambda error: writer.errors.append(repr(error)))
    try:
        producer.flush(60)
    except Exception as error:
        writer.errors.append(f"flush: {error!r}")
    producer.close(10)


def write(writer: Writer, bootstrap: str, stop: threading.Event) -> None:
    """The thread of a writer: an exception of its client is one of its errors."""
    try:
        WRITERS[writer.name](writer, bootstrap, stop)
    except Exception as error:
        writer.errors.append(f"gave up: {error!r}")


WRITERS: dict[str, Callable[[Writer, str, threading.Event], None]] = {
    "confluent-1": partial(write_confluent, in_flight=1),
    "confluent-2": write_confluent,
    "kafka-python-1": write_kafka_python,
    "kafka-python-2": write_kafka_python,
}


@dataclass
class Reader:
    """What a consumer sees while the cluster is attacked: values by partition and offset."""

    seen: dict[tuple[int, int], bytes] = field(default_factory=dict)
    errors: list[str] = field(default_factory=list)
    noted: ledger.Reader | None = None

    def read(self, bootstrap: str, stop: threading.Event) -> None:
        from confluent_kafka import Consumer, KafkaException, TopicPartition

        settings = {"bootstrap.servers": bootstrap, "group.id": "meanwhile", "log_level": 0}
        quick = {"reconnect.backoff.ms": 20, "reconnect.backoff.max.ms": 200}
        consumer = Consumer(
            {**settings, **quick, "enable.auto.commit": False, "auto.offset.reset": "error"}
        )
        consumer.assign([TopicPartition(TOPIC, index, 0) for index in range(PARTITIONS)])
        next_offsets = dict.fromkeys(range(PARTITIONS), 0)
        while not stop.is_set():
            try:
                message = consumer.poll(0.1)
            except KafkaException as error:
                self.errors.append(str(error))
                continue
            if message is None:
                continue
            if message.error() is not None:
                if not message.error().retriable() and message.error().code() >= 0:
                    self.errors.append(str(message.error()))
                continue
            place: Any = message.partition(), message.offset()
            if place[1] != next_offsets[place[0]]:
                self.errors.append(f"read {place} instead of offset {next_offsets[place[0]]}")
            next_offsets[place[0]] = place[1] + 1
            self.seen[place] = value = message.value() or b""
            if self.noted is not None:
                self.noted.seen(TOPIC, *place, None, value)
        consumer.close()

    def faults(self, found: dict[int, list[tuple[int, bytes]]]) -> list[str]:
        """What is wrong with what was seen, in one line each."""
        final = {(index, offset): value for index in found for offset, value in found[index]}
        return [f"a consumer: {error}" for error in self.errors] + [
            f"DIRTY READ: {TOPIC}-{place[0]} at {place[1]} was {value[:40]!r}"
            for place, value in self.seen.items()
            if final.get(place) != value
        ]
