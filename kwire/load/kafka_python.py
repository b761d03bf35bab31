"""Load by kafka-python, with its defaults but for time-outs and bounded buffers."""

from __future__ import annotations

import logging
from functools import partial
from time import sleep, time_ns

from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.errors import (
    ClusterAuthorizationFailedError,
    InvalidRecordError,
    InvalidTopicError,
    KafkaError,
    MessageSizeTooLargeError,
    PolicyViolationError,
    RecordListTooLargeError,
    TopicAuthorizationFailedError,
    UnsupportedForMessageFormatError,
)

from kwire.load.clients import READER_BYTES, ClientError, TransactionEnd
from kwire.pipeline.ledger import ABORTED, COMMITTED, UNKNOWN

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from kwire.load.clients import Place
    from kwire.load.ledger import Reader, Record
    from kwire.load.plan import Plan

NOT_WRITTEN = (
    *(MessageSizeTooLargeError, RecordListTooLargeError, InvalidRecordError, InvalidTopicError),
    *(TopicAuthorizationFailedError, ClusterAuthorizationFailedError, PolicyViolationError),
    UnsupportedForMessageFormatError,
)
"""Errors with which a record is refused for what it is. After all others it may be in the topic."""
_ACKS = {"0": 0, "1": 1, "all": "all"}
_CLOSE_SECONDS = 5


def sender(plan: Plan, place: Place, name: str) -> KafkaPythonSender:
    """A producer that is ready to send. ClientError."""
    _silence()
    return KafkaPythonSender(plan, place, name)


def receiver(plan: Plan, place: Place, partitions: Mapping[int, int]) -> KafkaPythonReceiver:
    """A consumer, which begins at an offset of each partition."""
    _silence()
    return KafkaPythonReceiver(plan, place, partitions)


class KafkaPythonSender:
    def __init__(self, plan: Plan, place: Place, name: str) -> None:
        self._timeout = plan.timeout
        self._answer = _unanswered if plan.wanted_acks == "0" else _answered
        timeout_ms = max(1000, int(plan.timeout * 1000))
        self._config: dict[str, Any] = {
            "bootstrap_servers": place.bootstrap.split(","),
            "client_id": name,
            "acks": _ACKS[plan.wanted_acks],
            "delivery_timeout_ms": timeout_ms,
            "request_timeout_ms": max(500, timeout_ms // 2),
            "max_block_ms": timeout_ms,
            "max_request_size": max(1_048_576, plan.size + 10_000),
            "enable_idempotence": plan.is_idempotent or plan.is_transactional,
        }
        if plan.is_transactional:
            self._config["transactional_id"] = f"kwire-load-{place.run}-{name}"
            self._config["transaction_timeout_ms"] = max(timeout_ms, 60_000)
        self._producer = self._started()

    def _started(self) -> Any:
        try:
            producer = KafkaProducer(**self._config)
            if "transactional_id" in self._config:
                producer.init_transactions()
        except KafkaError as error:
            raise ClientError(f"init of a producer: {_text(error)}") from None
        return producer

    def send(self, record: Record) -> None:
        try:
            future = self._producer.send(record.topic, record.value, record.key)
        except KafkaError as error:
            _failed(record, error)
            return
        future.add_callback(partial(self._answer, record))
        future.add_errback(partial(_failed, record))

    def serve(self, seconds: float) -> None:
        sleep(seconds)  # answers come on the client's own thread

    def begin(self) -> None:
        try:
            self._producer.begin_transaction()
        except KafkaError:  # the last one has left the producer unusable
            self._renew()
            self._producer.begin_transaction()

    def end(self, *, commit: bool) -> TransactionEnd:
        producer = self._producer
        try:
            producer.flush(self._timeout)
            if commit:
                producer.commit_transaction()
                return TransactionEnd(COMMITTED)
            producer.abort_transaction()
            return TransactionEnd(ABORTED)
        except KafkaError as error:
            name = type(error).__name__
        self._renew()
        return TransactionEnd(UNKNOWN, name)

    def _renew(self) -> None:
        """A producer in place of one that cannot go on."""
        self._producer.close(timeout=0)
        self._producer = self._started()

    def close(self, seconds: float) -> None:
        try:
            self._producer.flush(seconds)
        except KafkaError:
            self._producer.close(timeout=0)
        else:
            self._producer.close(timeout=_CLOSE_SECONDS)


def _answered(record: Record, metadata: Any) -> None:
    record.acknowledged(metadata.partition, metadata.offset)


def _unanswered(record: Record, _metadata: Any) -> None:
    record.unknown("acks=0")


def _failed(record: Record, error: BaseException) -> None:
    name = type(error).__name__
    if isinstance(error, NOT_WRITTEN):
        record.failed(name)
    else:
        record.unknown(name)


class KafkaPythonReceiver:
    def __init__(self, plan: Plan, place: Place, partitions: Mapping[int, int]) -> None:
        self._ends: dict[Any, int] | None = None
        self._places = {TopicPartition(plan.topic, index): at for index, at in partitions.items()}
        try:
            self._consumer = KafkaConsumer(
                bootstrap_servers=place.bootstrap.split(","),
                enable_auto_commit=False,
                auto_offset_reset="earliest",
                isolation_level=plan.wanted_isolation,
                fetch_max_bytes=READER_BYTES,
            )
        except KafkaError as error:
            raise ClientError(f"start of a reader: {_text(error)}") from None
        self._consumer.assign(list(self._places))
        for each, offset in self._places.items():
            self._consumer.seek(each, offset)

    def receive(self, reader: Reader) -> int:
        count = 0
        found = self._consumer.poll(timeout_ms=100)
        at = time_ns() // 1000
        for place, records in found.items():
            topic, partition = place
            for each in records:
                reader.seen(topic, partition, each.offset, each.key, each.value, at)
            count += len(records)
        return count

    def aim(self) -> None:
        try:
            self._ends = self._consumer.end_offsets(list(self._places))
        except KafkaError:  # without a leader: nothing more comes
            self._ends = {}

    def is_done(self) -> bool:
        ends = self._ends
        if ends is None:
            return False
        return all((self._consumer.position(each) or 0) >= end for each, end in ends.items())

    def close(self) -> None:
        self._consumer.close()


def _silence() -> None:
    """Its warnings would stand in the line of progress; errors are in the ledger."""
    logging.getLogger("kafka").setLevel(logging.CRITICAL)


def _text(error: BaseException) -> str:
    return (
        f"{error}"
        if str(error).startswith(type(error).__name__)
        else f"{type(error).__name__}: {error}"
    )
