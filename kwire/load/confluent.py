"""Load by confluent-kafka (librdkafka), with its defaults but for time-outs and bounded buffers."""

from __future__ import annotations

from functools import partial
from time import monotonic, time_ns

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from kwire.load.clients import PRODUCER_BYTES, READER_BYTES, ClientError, TransactionEnd
from kwire.pipeline.ledger import ABORTED, COMMITTED, UNKNOWN

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from kwire.load.clients import Place
    from kwire.load.ledger import Reader, Record
    from kwire.load.plan import Plan

NOT_WRITTEN = frozenset(
    {
        KafkaError._PURGE_QUEUE,
        KafkaError._UNKNOWN_PARTITION,
        KafkaError._UNKNOWN_TOPIC,
        KafkaError.MSG_SIZE_TOO_LARGE,
        KafkaError.RECORD_LIST_TOO_LARGE,
        KafkaError.INVALID_RECORD,
        KafkaError.TOPIC_EXCEPTION,
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError.UNSUPPORTED_FOR_MESSAGE_FORMAT,
        KafkaError.POLICY_VIOLATION,
    }
)
"""Errors with which a record was never sent, or refused for what it is. After all others it may be in the topic."""
_SERVE_EVERY = 100
_BATCH = 1000
_QUIET = {"log_level": 0}


def sender(plan: Plan, place: Place, name: str) -> ConfluentSender:
    """A producer that is ready to send. ClientError."""
    return ConfluentSender(plan, place, name)


def receiver(plan: Plan, place: Place, partitions: Mapping[int, int]) -> ConfluentReceiver:
    """A consumer, which begins at an offset of each partition."""
    return ConfluentReceiver(plan, place, partitions)


class ConfluentSender:
    def __init__(self, plan: Plan, place: Place, name: str) -> None:
        self._timeout = plan.timeout
        self._counts = 0
        self._answer = _unanswered if plan.wanted_acks == "0" else _answered
        timeout_ms = int(plan.timeout * 1000)
        self._config: dict[str, Any] = {
            **_QUIET,
            "bootstrap.servers": place.bootstrap,
            "client.id": name,
            "acks": plan.wanted_acks,
            "message.timeout.ms": timeout_ms,
            "message.max.bytes": max(1_000_000, plan.size + 10_000),
            "queue.buffering.max.kbytes": max(1024, PRODUCER_BYTES // 1024 // plan.producers),
            "enable.idempotence": plan.is_idempotent or plan.is_transactional,
        }
        if plan.is_transactional:
            self._config["transactional.id"] = f"kwire-load-{place.run}-{name}"
            self._config["transaction.timeout.ms"] = max(timeout_ms, 60_000)
        self._producer = self._started()

    def _started(self) -> Any:
        try:
            producer = Producer(self._config)
            if "transactional.id" in self._config:
                self._retried(producer.init_transactions)
        except KafkaException as error:
            raise ClientError(f"init of a producer: {_text(error)}") from None
        return producer

    def send(self, record: Record) -> None:
        produce = self._producer.produce
        while True:
            try:
                produce(
                    record.topic,
                    record.value,
                    record.key,
                    on_delivery=partial(self._answer, record),
                )
                break
            except BufferError:  # the queue is full
                self._producer.poll(0.05)
            except KafkaException as error:
                record.failed(error.args[0].name())
                if error.args[0].fatal():
                    self._renew()
                break
        self._counts += 1
        if self._counts % _SERVE_EVERY == 0:
            self._producer.poll(0)

    def serve(self, seconds: float) -> None:
        self._producer.poll(seconds)

    def begin(self) -> None:
        try:
            self._producer.begin_transaction()
        except KafkaException:  # the last one has left the producer unusable
            self._renew()
            self._producer.begin_transaction()

    def end(self, *, commit: bool) -> TransactionEnd:
        self._producer.flush(self._timeout)
        try:
            if not commit:
                self._retried(self._producer.abort_transaction)
                return TransactionEnd(ABORTED)
            self._retried(self._producer.commit_transaction)
            return TransactionEnd(COMMITTED)
        except KafkaException as error:
            code = error.args[0]
        if code.txn_requires_abort():
            try:
                self._retried(self._producer.abort_transaction)
                self._producer.poll(0)
                return TransactionEnd(ABORTED, code.name())
            except KafkaException as error:
                code = error.args[0]
        self._renew()
        return TransactionEnd(UNKNOWN, code.name())

    def _retried(self, call: Any) -> None:
        """Call until it succeeds, or for the time-out: librdkafka says which errors may go away."""
        deadline = monotonic() + self._timeout
        while True:
            try:
                call(max(0.1, deadline - monotonic()))
                return
            except KafkaException as error:
                if not error.args[0].retriable() or monotonic() > deadline:
                    raise
                self._pause()

    def _pause(self) -> None:
        from time import sleep

        sleep(0.1)

    def _renew(self) -> None:
        """A producer in place of one that cannot go on; what that one has not sent is answered."""
        self._producer.purge()
        self._producer.flush(1)
        self._producer = self._started()

    def close(self, seconds: float) -> None:
        if self._producer.flush(seconds):
            self._producer.purge()
            self._producer.flush(5)


def _answered(record: Record, error: Any, message: Any) -> None:
    if error is None:
        at = record.sent + int(message.latency() * 1_000_000)
        record.acknowledged(message.partition(), message.offset(), at=at)
    elif error.code() in NOT_WRITTEN:
        record.failed(error.name())
    else:
        record.unknown(error.name())


def _unanswered(record: Record, error: Any, message: Any) -> None:
    record.unknown("acks=0" if error is None else error.name())


class ConfluentReceiver:
    def __init__(self, plan: Plan, place: Place, partitions: Mapping[int, int]) -> None:
        self._topic = plan.topic
        self._timeout = plan.timeout
        self._ends: dict[int, int] | None = None
        self._reached = dict(partitions)
        self._consumer = Consumer(
            {
                **_QUIET,
                "bootstrap.servers": place.bootstrap,
                "group.id": f"kwire-load-{place.run}",  # needed, and not used
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "auto.offset.reset": "earliest",
                "isolation.level": plan.wanted_isolation,
                "queued.max.messages.kbytes": READER_BYTES // 1024,
            }
        )
        self._consumer.assign(
            [TopicPartition(plan.topic, index, offset) for index, offset in partitions.items()]
        )

    def receive(self, reader: Reader) -> int:
        count = 0
        messages: list[Any] = self._consumer.consume(_BATCH, 0.1)
        at = time_ns() // 1000
        topic, seen, reached = self._topic, reader.seen, self._reached
        for message in messages:
            error = message.error()
            if error is None:
                partition, offset = message.partition(), message.offset()
                seen(topic, partition, offset, message.key(), message.value(), at)
                reached[partition] = offset + 1
                count += 1
            elif error.code() == KafkaError._PARTITION_EOF:  # behind markers, too
                reached[message.partition()] = message.offset()
        return count

    def aim(self) -> None:
        ends = {}
        for partition in self._reached:
            place = TopicPartition(self._topic, partition)
            try:
                _, ends[partition] = self._consumer.get_watermark_offsets(place, self._timeout)
            except KafkaException:  # without a leader: nothing more comes
                continue
        self._ends = ends

    def is_done(self) -> bool:
        ends = self._ends
        return ends is not None and all(self._reached[each] >= end for each, end in ends.items())

    def close(self) -> None:
        self._consumer.close()


def _text(error: KafkaException) -> str:
    return f"{error.args[0].str()} ({error.args[0].name()})"
