"""Transactional producers: records of several partitions, and an end. Some stop in the middle, or sleep too long.

Two of them may have the same transactional id: each InitProducerId of one fences the other.
"""

from __future__ import annotations

from typing import Any, Final

from kwire.protocol.api import ApiKey
from kwire.protocol.errors import ErrorCode
from kwire.protocol.record_builder import build_batch
from kwire.protocol.records import Record
from kwire.protocol.schemas.groups import FindCoordinatorRequest
from kwire.protocol.schemas.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kwire.protocol.schemas.transactions import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    EndTxnRequest,
    InitProducerIdRequest,
)
from kwire.replication.core.types import TopicPartition
from kwire.sim.clients.base import Client, Setting
from kwire.sim.compaction import PREFIX
from kwire.sim.transactions.fates import value_of

_TRIES: Final = 30
_IMPATIENCE: Final = 0.2
"""How often a transaction is aborted when the answer to a batch takes long: it may come later than the marker."""
_AGAIN: Final = (
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.UNKNOWN_LEADER_EPOCH,
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.NETWORK_EXCEPTION,
)


class TransactionalProducer(Client):
    """One transaction at a time. `transaction`: its number; `ends`: that of each EndTxn in flight."""

    def __init__(
        self,
        setting: Setting,
        *,
        transactional_id: str = "transactions",
        timeout_ms: int = 1000,
        bumping: int = 0,
        compacted: int = 0,
    ) -> None:
        """`bumping`: an epoch for each transaction (transaction.version 2). `compacted`: whether it
        writes to compacted topics, too."""
        super().__init__(setting)
        self.transaction = 0
        self.ends: dict[int, int] = {}
        self._id = transactional_id
        self._timeout_ms = timeout_ms
        self._bumping = bool(bumping)
        self._compacted = bool(compacted)
        self._pause_ms = setting.plan.work_pause_ms
        self._coordinator = -1
        self._producer: tuple[int, int] = (-1, -1)
        self._next = self._init  # what to do as soon as there is a coordinator
        self._tries = 0
        self._busy = 0  # requests of the transaction in flight
        self._life = 0  # counts how often it has begun again
        self._unsent: list[tuple[TopicPartition, bytes]] = []
        self._records = 0
        self._is_unsure = False  # what has become of a batch of the transaction
        self._sequences: dict[TopicPartition, int] = {}
        self._requests: list[EndTxnRequest | InitProducerIdRequest] = []  # keeps their id()
        self._unfenced = setting.answers.invariants.transactions.unfenced
        if bumping:
            setting.answers.invariants.transactions.bumping.add(transactional_id)
        self.later("work", 5, self._work)

    def _work(self) -> None:
        if self.stopping:
            return
        self.later("work", 1 + int(self._pause_ms * 2 * self.random.random()), self._work)
        if not self.leaders or self.random.random() < 0.02:
            self.refresh()
        chance = self.random.random()
        if chance < 0.005:
            self._begin_again()  # it dies; its successor begins
        elif chance < 0.01:
            self.later("work", int(self._timeout_ms * (0.5 + self.random.random())), self._work)
        elif not self._busy and self.leaders:
            if self._coordinator < 0:
                self._find()
            else:
                self._next()

    def _begin_again(self, pause_ms: int = 0) -> None:
        """Forget everything, as a new process does."""
        self._life += 1
        self._busy = self._tries = 0
        self._producer = -1, -1
        self._unsent.clear()
        self._is_unsure = False
        self._next = self._init
        if pause_ms:
            self.later("work", pause_ms, self._work)

    def _send(
        self, node: int, channel: str, key: int, version: int, request: Any, on_response: Any
    ) -> None:
        """Send a request; its answer counts as long as this life goes on."""
        life = self._life
        self._busy += 1

        def answered(response: Any) -> None:
            if life == self._life:
                self._busy -= 1
                on_response(response)

        self.ask(node, channel, key, request, answered, version)

    def _to_coordinator(self, key: int, version: int, request: Any, error_of: Any) -> None:
        """Send to the coordinator. `error_of(response)`: its error, after effects of a good answer."""

        def answered(response: Any) -> None:
            if response is None:
                self._coordinator = -1
                self._retry()
            elif error := error_of(response):
                if error in (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE):
                    self._coordinator = -1
                self._fail(error)

        self._send(self._coordinator, "transactions", key, version, request, answered)

    def _retry(self) -> None:
        self._tries += 1
        if self._tries > _TRIES:
            self._begin_again()

    def _fail(self, error: int) -> None:
        """Try again, abort, or begin again: the epoch then fences what may be on its way."""
        if error in _AGAIN:
            self._retry()
        elif error in (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH):
            self._begin_again(int(3 * self._timeout_ms * self.random.random()))
        else:
            self._begin_again()

    # --- the coordinator, an epoch

    def _find(self) -> None:
        request = FindCoordinatorRequest(key_type=1, coordinator_keys=[self._id])

        def answered(response: Any) -> None:
            if response is not None and not response.coordinators[0].error_code:
                self._coordinator = response.coordinators[0].node_id

        node = self.random.choice(self.brokers)
        self._send(node, "coordinator", ApiKey.FIND_COORDINATOR, 4, request, answered)

    def _init(self) -> None:
        request = InitProducerIdRequest(
            transactional_id=self._id,
            transaction_timeout_ms=self._timeout_ms,
            producer_id=self._producer[0],
            producer_epoch=self._producer[1],
        )
        self._requests.append(request)
        self._unfenced.asked(self._id, request)

        def error_of(response: Any) -> int:
            if not response.error_code:
                self._has_epoch(response)
                self._tries = 0
                self._next = self._begin
            return int(response.error_code)

        self._to_coordinator(ApiKey.INIT_PRODUCER_ID, 4, request, error_of)

    def _has_epoch(self, response: Any) -> None:
        producer = response.producer_id, response.producer_epoch
        if producer != self._producer:
            self._producer = producer
            self._sequences.clear()

    # --- a transaction

    def _begin(self) -> None:
        """Choose partitions."""
        keys = [key for key in self.leaders if self._compacted or not key[0].startswith(PREFIX)]
        if keys:
            self._start(self.random.sample(keys, self.random.randint(1, min(len(keys), 3))))

    def _start(self, chosen: list[TopicPartition]) -> None:
        """Make the batches of the next transaction."""
        self.transaction += 1
        for key in chosen:
            for _ in range(self.random.choice((1, 1, 2))):
                self._unsent.append((key, self._batch(key)))
        if self._bumping or not chosen:
            self._next = self._produce
        else:
            self._add(chosen)

    def _batch(self, key: TopicPartition) -> bytes:
        records = []
        for _ in range(self.random.choice((1, 1, 2))):
            self._records += 1
            value = value_of(self.name, self.transaction, self._records)
            record_key = None
            if key[0].startswith(PREFIX):
                record_key = b"key-%d" % int(self.random.random() * 5)
            records.append(Record(-1, self.clock.wall_ms, record_key, value))
        sequence = self._sequences.get(key, 0)
        self._sequences[key] = sequence + len(records)
        return build_batch(
            records,
            producer_id=self._producer[0],
            producer_epoch=self._producer[1],
            base_sequence=sequence,
            is_transactional=True,
        )

    def _add(self, keys: list[TopicPartition]) -> None:
        topics: dict[str, AddPartitionsToTxnTopic] = {}
        for name, index in keys:
            if name not in topics:
                topics[name] = AddPartitionsToTxnTopic(name=name, partitions=[])
            topics[name].partitions.append(index)
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self._id,
            v3_and_below_producer_id=self._producer[0],
            v3_and_below_producer_epoch=self._producer[1],
            v3_and_below_topics=list(topics.values()),
        )

        def error_of(response: Any) -> int:
            errors = {
                p.partition_error_code
                for topic in response.results_by_topic_v3_and_below
                for p in topic.results_by_partition
            }
            if errors == {0}:
                self._tries = 0
                self._next = self._produce
            return int(max(errors))

        def add() -> None:
            self._to_coordinator(ApiKey.ADD_PARTITIONS_TO_TXN, 3, request, error_of)

        self._next = add
        add()

    def _produce(self) -> None:
        """Send the next batch of each partition; when none is left, end."""
        first = dict(reversed(self._unsent))
        for key, batch in first.items():
            leader = self.leaders.get(key, (-1, -1))[0]
            if leader < 0:
                self.refresh()
                self._retry()
            else:
                self._produce_to(leader, key, batch)
        if not first:
            self._tries = 0
            self._all_written()

    def _all_written(self) -> None:
        """Go on when all records are written: the transaction ends."""
        commit = self.random.random() < 0.7
        self._next = lambda: self._end(commit)

    def _abort(self) -> None:
        """End the transaction without the rest of its records."""
        self._unsent.clear()
        self._next = lambda: self._end(False)

    def _produce_to(self, leader: int, key: TopicPartition, batch: bytes) -> None:
        data = PartitionProduceData(index=key[1], records=batch)
        request = ProduceRequest(
            transactional_id=self._id,
            acks=-1,
            timeout_ms=400,
            topic_data=[TopicProduceData(name=key[0], partition_data=[data])],
        )

        state, life = {"waits": True}, self._life

        def answered(response: Any) -> None:
            if state.pop("waits", False):
                self._on_produced(key, batch, response)
            else:
                self._busy += 1  # it was counted as answered before

        def give_up() -> None:
            if life == self._life and state.pop("waits", False):
                self._busy -= 1
                self._is_unsure = True
                self._abort()

        if self.random.random() < _IMPATIENCE:
            self.later(("patience", key), int(100 * self.random.random()), give_up)
        version = 12 if self._bumping else 11
        channel = f"p{key[0]}-{key[1]}"
        self._send(leader, channel, ApiKey.PRODUCE, version, request, answered)

    def _on_produced(self, key: TopicPartition, batch: bytes, response: Any) -> None:
        if response is None:
            self.refresh()
            self._retry()
            return
        error = response.responses[0].partition_responses[0].error_code
        if error in (0, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
            if (key, batch) in self._unsent:  # not aborted meanwhile
                self._unsent.remove((key, batch))
        elif error == ErrorCode.TRANSACTION_ABORTABLE:
            self._abort()
        else:
            self.refresh()
            self._fail(error)

    def _end(self, commit: bool) -> None:
        request = EndTxnRequest(
            transactional_id=self._id,
            producer_id=self._producer[0],
            producer_epoch=self._producer[1],
            committed=commit,
        )
        self._requests.append(request)
        self.ends[id(request)] = self.transaction
        self._unfenced.ending(self._id)

        def error_of(response: Any) -> int:
            if not response.error_code:
                if self._bumping:
                    self._has_epoch(response)
                self._tries = 0
                # A batch that may be on its way still must not count in the next transaction (KIP-360).
                is_unsure, self._is_unsure = self._is_unsure and not self._bumping, False
                self._next = self._init if is_unsure else self._begin
                self._ended(commit)
            return int(response.error_code)

        self._to_coordinator(ApiKey.END_TXN, 5 if self._bumping else 3, request, error_of)

    def _ended(self, commit: bool) -> None:
        """Go on after the end of a transaction."""
