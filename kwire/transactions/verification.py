"""Verify with the transaction coordinator that partitions belong to a producer's transaction.

Answers to AddPartitionsToTxnManager and to what ReplicaManager.handleProduceAppend makes of its results
(KIP-890). Producers of version 1 have added the partition themselves, which is verified; for those of
version 2 the leader adds it. This broker's own coordinator is called, another broker's gets an
AddPartitionsToTxn request: one in flight to each, those that wait share the next one.
"""

from __future__ import annotations

from kwire.protocol.api import ApiKey
from kwire.protocol.errors import ErrorCode
from kwire.protocol.schemas.transactions import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from kwire.replication.core.metadata import TRANSACTION_STATE_TOPIC
from kwire.transactions.in_flight import InFlight

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Protocol

    from kwire.protocol.schemas.transactions import AddPartitionsToTxnResponse
    from kwire.replication.core.clock import Clock, Timers
    from kwire.replication.core.metadata import MetadataCache
    from kwire.replication.core.peers import Peers
    from kwire.replication.core.types import TopicPartition

    Errors = dict[TopicPartition, ErrorCode]
    Done = Callable[[Errors], None]

    class Coordinator(Protocol):
        """The part of this broker's transaction coordinator that verifies."""

        def partition_for(self, transactional_id: str) -> int: ...

        def verify_partitions(
            self,
            transactional_id: str,
            producer_id: int,
            producer_epoch: int,
            partitions: Iterable[TopicPartition],
        ) -> Errors: ...

        def add_partitions(
            self,
            transactional_id: str,
            producer_id: int,
            producer_epoch: int,
            partitions: Iterable[TopicPartition],
            version: int,
            done: Callable[[ErrorCode], None],
        ) -> None: ...


CHANNEL = "txn-verification"
_VERSION = 5
_VERSION_OF_KAFKA_39 = 4
_ADDING_VERSION = 2


class Question:
    """Do the partitions belong to the producer's transaction? `is_added`: add them if not."""

    __slots__ = (
        "done",
        "is_abortable_known",
        "is_added",
        "partitions",
        "producer_epoch",
        "producer_id",
        "transactional_id",
    )

    def __init__(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: list[TopicPartition],
        is_added: bool,
        is_abortable_known: bool,
        done: Done,
    ) -> None:
        """`is_abortable_known`: the client understands TRANSACTION_ABORTABLE."""
        self.transactional_id = transactional_id
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.partitions = partitions
        self.is_added = is_added
        self.is_abortable_known = is_abortable_known
        self.done = done

    def answer(self, errors: Errors) -> None:
        """Pass the coordinator's errors on, as producers know them; partitions without are verified."""
        found: Errors = {}
        for key, error in errors.items():
            if error is ErrorCode.PRODUCER_FENCED:
                error = ErrorCode.INVALID_PRODUCER_EPOCH
            elif error is ErrorCode.TRANSACTION_ABORTABLE and not self.is_abortable_known:
                error = ErrorCode.INVALID_TXN_STATE
            if error is not ErrorCode.NONE:
                found[key] = error
        self.done(found)

    def fail(self, error: ErrorCode) -> None:
        self.answer(dict.fromkeys(self.partitions, error))

    @property
    def transaction(self) -> AddPartitionsToTxnTransaction:
        """The entry of an AddPartitionsToTxn request."""
        topics: dict[str, list[int]] = {}
        for topic, index in self.partitions:
            topics.setdefault(topic, []).append(index)
        return AddPartitionsToTxnTransaction(
            transactional_id=self.transactional_id,
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            verify_only=not self.is_added,
            topics=[
                AddPartitionsToTxnTopic(name=name, partitions=indexes)
                for name, indexes in topics.items()
            ],
        )


class Verifier:
    """The verifications of the partitions that this broker leads."""

    __slots__ = (
        "_clock",
        "_coordinator",
        "_in_flight",
        "_metadata",
        "_node_id",
        "_queues",
        "_retries",
        "_retry_ms",
        "_retry_timeout_ms",
        "_timers",
    )

    def __init__(
        self,
        node_id: int,
        metadata: MetadataCache,
        clock: Clock,
        timers: Timers,
        peers: Peers | None,
        coordinator: Coordinator,
        *,
        timeout_ms: int = 30_000,
        retry_ms: int = 20,
        retry_timeout_ms: int = 100,
        speaks_to_kafka_39: bool = False,
    ) -> None:
        """`peers` None: a standalone broker. `timeout_ms`: for the response of another broker.

        While the coordinator ends the producer's last transaction, partitions are added again every
        `retry_ms` for `retry_timeout_ms` (add.partitions.to.txn.retry.backoff.ms and .max.ms)."""
        self._node_id = node_id
        self._metadata = metadata
        self._clock = clock
        self._timers = timers
        self._coordinator = coordinator
        self._retry_ms = retry_ms
        self._retry_timeout_ms = min(retry_timeout_ms, timeout_ms)
        self._queues: dict[int, dict[str, Question]] = {}  # by broker and transactional id
        version = _VERSION_OF_KAFKA_39 if speaks_to_kafka_39 else _VERSION
        key = ApiKey.ADD_PARTITIONS_TO_TXN
        self._in_flight = InFlight(
            CHANNEL, key, version, metadata, clock, timers, peers, timeout_ms
        )
        self._retries = 0

    def verify(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        start: Callable[[], list[TopicPartition]],
        add: bool,
        done: Done,
        *,
        knows_abortable: bool = True,
    ) -> None:
        """Call `done` with the errors by partition, now or later; those without are verified.

        `start`: takes guards, and returns the partitions to verify. It is called before each
        attempt: the marker that a busy coordinator waits for removes the guards of the one before.
        `add`: add the partitions to the transaction, which begins it if need be. Errors of Kafka's
        coordinator, or COORDINATOR_NOT_AVAILABLE, NETWORK_EXCEPTION."""
        deadline_ms = self._clock.now_ms + self._retry_timeout_ms
        producer = (transactional_id, producer_id, producer_epoch)

        def ask() -> None:
            partitions = start()
            if not partitions:
                done({})
                return
            self._put(Question(*producer, partitions, add, knows_abortable, answered))

        def answered(errors: Errors) -> None:
            is_busy = ErrorCode.CONCURRENT_TRANSACTIONS in errors.values()
            if add and is_busy and self._clock.now_ms < deadline_ms:
                self._later(ask)
            else:
                done(errors)

        ask()

    def _later(self, call: Callable[[], None]) -> None:
        self._retries += 1
        key = (self, "retry", self._retries)
        self._timers.schedule_real(key, self._clock.now_ms + self._retry_ms, call)

    def _put(self, question: Question) -> None:
        """Find the coordinator, and put the question to it."""
        index = self._coordinator.partition_for(question.transactional_id)
        state = self._metadata.partition(TRANSACTION_STATE_TOPIC, index)
        if state is None or not self._metadata.is_alive(state.leader):
            question.fail(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        elif state.leader == self._node_id:
            self._ask_itself(question)
        else:
            self._enqueue(state.leader, question)

    def _ask_itself(self, question: Question) -> None:
        args = (question.transactional_id, question.producer_id, question.producer_epoch)
        if question.is_added:
            coordinator, partitions = self._coordinator, question.partitions
            coordinator.add_partitions(*args, partitions, _ADDING_VERSION, question.fail)
        else:
            question.answer(self._coordinator.verify_partitions(*args, question.partitions))

    # --- another broker's coordinator

    def _enqueue(self, node: int, question: Question) -> None:
        """Queue a question. There is one for each transactional id: a later one replaces it."""
        queue = self._queues.setdefault(node, {})
        earlier = queue.get(question.transactional_id)
        if earlier is not None and earlier.producer_epoch > question.producer_epoch:
            question.fail(ErrorCode.INVALID_PRODUCER_EPOCH)
            return
        queue[question.transactional_id] = question
        self._send_queued(node)
        if earlier is not None:
            # Of the same epoch: the producer has sent its records again, and takes any retriable error.
            is_same = earlier.producer_epoch == question.producer_epoch
            earlier.fail(
                ErrorCode.NETWORK_EXCEPTION if is_same else ErrorCode.INVALID_PRODUCER_EPOCH
            )

    def _send_queued(self, node: int) -> None:
        if self._in_flight.is_busy(node) or node not in self._queues:
            return
        questions = self._queues.pop(node)
        transactions = [question.transaction for question in questions.values()]
        self._in_flight.send(
            node,
            AddPartitionsToTxnRequest(transactions=transactions),
            lambda response: self._responded(node, questions, response),
        )

    def _responded(
        self,
        node: int,
        questions: dict[str, Question],
        response: AddPartitionsToTxnResponse | None,
    ) -> None:
        error = ErrorCode.NETWORK_EXCEPTION if response is None else ErrorCode(response.error_code)
        if error is ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
            error = ErrorCode.INVALID_TXN_STATE  # not the client's business
        results = {} if response is None else _errors_by_id(response)
        for transactional_id, question in questions.items():
            if error is not ErrorCode.NONE:
                question.fail(error)
            else:
                question.answer(results.get(transactional_id, {}))
        self._send_queued(node)


def _errors_by_id(response: AddPartitionsToTxnResponse) -> dict[str, Errors]:
    return {
        result.transactional_id: {
            (topic.name, partition.partition_index): ErrorCode(partition.partition_error_code)
            for topic in result.topic_results
            for partition in topic.results_by_partition
        }
        for result in response.results_by_transaction
    }
