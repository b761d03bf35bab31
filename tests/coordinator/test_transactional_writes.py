"""Transactional Produce and TxnOffsetCommit at one whole broker, with its own coordinator."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from test_transaction_apis import ID, TransactionalBroker

from kwire.apis.txn_participants import make_verifier
from kwire.protocol.errors import ErrorCode
from kwire.protocol.record_builder import build_batch
from kwire.protocol.records import Record
from kwire.protocol.schemas import transactions as messages
from kwire.protocol.schemas.fetch import FetchPartition, FetchRequest, FetchTopic
from kwire.protocol.schemas.groups import FindCoordinatorRequest
from kwire.protocol.schemas.offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from kwire.protocol.schemas.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kwire.protocol.schemas.topics import (
    CreatableTopic,
    CreateTopicsRequest,
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)

NONE = ErrorCode.NONE


class Writer:
    """One transactional producer; it keeps the sequences of the partitions of `t`."""

    def __init__(self, broker: TransactionalBroker) -> None:
        self.broker = broker
        self.init()

    def init(self) -> None:
        """A new epoch. As in Kafka the client asks again while its open transaction is aborted."""
        while True:
            self.producer = self.broker.init()
            if self.producer.error_code != ErrorCode.CONCURRENT_TRANSACTIONS:
                break
        assert self.producer.error_code == 0
        self.sequences: dict[int, int] = {}

    def batch(self, index: int = 0, *, transactional: bool = True, **fields: Any) -> bytes:
        sequence = self.sequences.get(index, 0)
        options = {
            "producer_id": self.producer.producer_id,
            "producer_epoch": self.producer.producer_epoch,
            "base_sequence": sequence,
        }
        now_ms = self.broker.clock.wall_ms
        return build_batch(
            [Record(-1, now_ms, None, b"v%d" % sequence)],
            is_transactional=transactional,
            **options | fields,
        )

    def send(
        self,
        index: int = 0,
        *,
        version: int = 11,
        transactional_id: str | None = ID,
        records: bytes | None = None,
        acks: int = -1,
    ) -> Any:
        """The partition's response; the sequence goes on after a success."""
        data = PartitionProduceData(
            index=index, records=self.batch(index) if records is None else records
        )
        request = ProduceRequest(
            transactional_id=transactional_id,
            acks=acks,
            timeout_ms=1000,
            topic_data=[TopicProduceData(name="t", partition_data=[data])],
        )
        [topic] = self.broker.ask(version, request).responses
        [answer] = topic.partition_responses
        if not answer.error_code:
            self.sequences[index] = self.sequences.get(index, 0) + 1
        return answer

    def add(self, *partitions: int) -> None:
        keys = [("t", index) for index in partitions or (0,)]
        assert set(self.broker.add(self.producer, *keys).values()) == {NONE}

    def end(self, commit: bool = True) -> None:
        assert self.broker.end(self.producer, commit=commit).error_code == 0

    def commit_offsets(
        self, offset: int, *, version: int = 3, topic: str = "t", group: str = "g", **fields: Any
    ) -> ErrorCode:
        named = messages.TxnOffsetCommitRequestTopic(
            name=topic,
            partitions=[
                messages.TxnOffsetCommitRequestPartition(
                    partition_index=0,
                    committed_offset=offset,
                    committed_metadata=fields.pop("metadata", ""),
                )
            ],
        )
        fields = {
            "transactional_id": ID,
            "producer_id": self.producer.producer_id,
            "producer_epoch": self.producer.producer_epoch,
        } | fields
        request = messages.TxnOffsetCommitRequest(group_id=group, topics=[named], **fields)
        [answer] = self.broker.ask(version, request).topics
        assert answer.name == topic
        return ErrorCode(answer.partitions[0].error_code)

    def add_offsets(self, group: str = "g") -> None:
        request = messages.AddOffsetsToTxnRequest(
            transactional_id=ID,
            producer_id=self.producer.producer_id,
            producer_epoch=self.producer.producer_epoch,
            group_id=group,
        )
        assert self.broker.ask(3, request).error_code == 0


@pytest.fixture
def broker() -> TransactionalBroker:
    broker = TransactionalBroker()
    broker.find()
    broker.ask(4, FindCoordinatorRequest(key_type=0, coordinator_keys=["g"]))
    return broker


@pytest.fixture
def writer(broker: TransactionalBroker) -> Writer:
    return Writer(broker)


def log_of(broker: TransactionalBroker, index: int = 0) -> Any:
    partition = broker.services.replica_manager.hosted(("t", index))
    assert partition is not None
    return partition.log


def fetch(broker: TransactionalBroker, offset: int = 0, *, committed: bool = True) -> Any:
    request = FetchRequest(
        isolation_level=int(committed),
        max_wait_ms=0,
        min_bytes=0,
        max_bytes=1 << 20,
        topics=[
            FetchTopic(
                topic="t",
                partitions=[
                    FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
                ],
            )
        ],
    )
    [topic] = broker.ask(11, request).responses
    return topic.partitions[0]


def latest(broker: TransactionalBroker, *, committed: bool) -> int:
    asked = ListOffsetsPartition(partition_index=0, timestamp=-1)
    request = ListOffsetsRequest(
        replica_id=-1,
        isolation_level=int(committed),
        topics=[ListOffsetsTopic(name="t", partitions=[asked])],
    )
    [topic] = broker.ask(6, request).topics
    return int(topic.partitions[0].offset)


def committed_offset(broker: TransactionalBroker, *, stable: bool = False) -> int | ErrorCode:
    topic = OffsetFetchRequestTopics(name="t", partition_indexes=[0])
    request = OffsetFetchRequest(
        groups=[OffsetFetchRequestGroup(group_id="g", topics=[topic])], require_stable=stable
    )
    [group] = broker.ask(8, request).groups
    [found] = group.topics[0].partitions
    return ErrorCode(found.error_code) if found.error_code else int(found.committed_offset)


# --- Produce


@pytest.mark.parametrize("version", [3, 8, 9, 10, 11])
def test_records_of_an_added_partition_are_written(writer: Writer, version: int) -> None:
    writer.add(0)
    assert writer.send(version=version).error_code == 0
    assert writer.send(version=version).base_offset == 1
    writer.end()
    assert log_of(writer.broker).last_stable_offset == 3


@pytest.mark.parametrize("version, error", [(10, "INVALID_TXN_STATE"), (11, None)])
def test_records_of_a_partition_that_was_not_added_are_refused(
    writer: Writer, version: int, error: str | None
) -> None:
    writer.add(1)
    answer = writer.send(0, version=version)
    assert ErrorCode(answer.error_code) is (
        ErrorCode[error] if error else ErrorCode.TRANSACTION_ABORTABLE
    )
    assert answer.log_start_offset == -1 and log_of(writer.broker).log_end_offset == 0
    assert writer.send(1, version=version).error_code == 0


def test_records_after_the_end_of_the_transaction_are_refused(writer: Writer) -> None:
    """They came late: a request that the network has held back (KIP-890)."""
    writer.add(0)
    assert writer.send().error_code == 0
    writer.end()
    assert writer.send(version=10).error_code == ErrorCode.INVALID_TXN_STATE
    assert log_of(writer.broker).last_stable_offset == 2


def test_a_repeated_batch_is_a_duplicate_also_after_the_end(writer: Writer) -> None:
    writer.add(0)
    first = writer.batch()
    assert writer.send(records=first).base_offset == 0
    again = writer.send(records=first)
    assert (again.error_code, again.base_offset) == (0, 0)
    assert log_of(writer.broker).log_end_offset == 1


def test_a_fenced_producer_writes_nothing(broker: TransactionalBroker) -> None:
    old = Writer(broker)
    old.add(0)
    new = Writer(broker)
    assert old.send().error_code == ErrorCode.INVALID_PRODUCER_EPOCH
    new.add(0)
    assert new.send().error_code == 0
    old.sequences.clear()
    assert old.send().error_code == ErrorCode.INVALID_PRODUCER_EPOCH
    assert log_of(broker).log_end_offset == 2  # the abort, and its successor's record


def test_transactional_records_need_a_transactional_id(writer: Writer) -> None:
    writer.add(0)
    answer = writer.send(transactional_id=None)
    assert answer.error_code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert log_of(writer.broker).log_end_offset == 0


def test_another_transactional_id_does_not_own_the_producer(writer: Writer) -> None:
    writer.add(0)
    answer = writer.send(transactional_id="other")
    assert answer.error_code == ErrorCode.INVALID_PRODUCER_ID_MAPPING


def test_two_producers_in_a_request_are_refused(writer: Writer) -> None:
    writer.add(0, 1)
    datas = [
        PartitionProduceData(index=0, records=writer.batch(0)),
        PartitionProduceData(index=1, records=writer.batch(1, producer_id=77)),
    ]
    request = ProduceRequest(
        transactional_id=ID,
        acks=-1,
        timeout_ms=1000,
        topic_data=[TopicProduceData(name="t", partition_data=datas)],
    )
    [topic] = writer.broker.ask(11, request).responses
    errors = {each.error_code for each in topic.partition_responses}
    assert errors == {ErrorCode.INVALID_PRODUCER_ID_MAPPING}


def test_partitions_of_a_request_have_errors_of_their_own(writer: Writer) -> None:
    writer.add(0)
    datas = [PartitionProduceData(index=index, records=writer.batch(index)) for index in (0, 1, 9)]
    request = ProduceRequest(
        transactional_id=ID,
        acks=-1,
        timeout_ms=1000,
        topic_data=[TopicProduceData(name="t", partition_data=datas)],
    )
    [topic] = writer.broker.ask(10, request).responses
    found = [(each.index, ErrorCode(each.error_code)) for each in topic.partition_responses]
    assert found == [
        (0, NONE),
        (1, ErrorCode.INVALID_TXN_STATE),
        (9, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ]
    assert (
        topic.partition_responses[1].error_message == "Partition was not added to the transaction"
    )


def test_a_wide_request_is_verified_at_once_and_appended_in_parts(writer: Writer) -> None:
    broker, count = writer.broker, 300

    def ask(version: int, request: Any) -> Any:
        connection = broker.connect()
        broker.send(connection, version, request)
        while not broker.answers[connection]:
            broker.advance(1)
        return broker.answers[connection][0]

    topic = CreatableTopic(name="wide", num_partitions=count, replication_factor=1)
    assert ask(7, CreateTopicsRequest(topics=[topic], timeout_ms=1000)).topics[0].error_code == 0
    named = messages.AddPartitionsToTxnTopic(name="wide", partitions=list(range(count - 1)))
    ask(
        3,
        messages.AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=ID,
            v3_and_below_producer_id=writer.producer.producer_id,
            v3_and_below_producer_epoch=writer.producer.producer_epoch,
            v3_and_below_topics=[named],
        ),
    )
    datas = [PartitionProduceData(index=i, records=writer.batch()) for i in range(count)]
    request = ProduceRequest(
        transactional_id=ID,
        acks=-1,
        timeout_ms=1000,
        topic_data=[TopicProduceData(name="wide", partition_data=datas)],
    )
    [answered] = ask(10, request).responses
    errors = [each.error_code for each in answered.partition_responses]
    assert errors == [0] * (count - 1) + [ErrorCode.INVALID_TXN_STATE]


class SlowVerifier:
    """Verifies everything, when the test says so."""

    def __init__(self) -> None:
        self.asked: list[Any] = []

    def verify(
        self,
        transactional_id: str,
        producer_id: int,
        epoch: int,
        start: Callable[[], list[tuple[str, int]]],
        add: bool,
        done: Any,
        *,
        knows_abortable: bool,
    ) -> None:
        if partitions := start():
            self.asked.append((partitions, done))
        else:
            done({})

    def refuse(self, error: ErrorCode) -> None:
        partitions, done = self.asked.pop()
        done(dict.fromkeys(partitions, error))

    def answer(self) -> None:
        _, done = self.asked.pop()
        done({})


def produce_to(writer: Writer, *indexes: int) -> ProduceRequest:
    datas = [PartitionProduceData(index=i, records=writer.batch(i)) for i in indexes]
    return ProduceRequest(
        transactional_id=ID,
        acks=-1,
        timeout_ms=1000,
        topic_data=[TopicProduceData(name="t", partition_data=datas)],
    )


def test_only_the_first_batch_of_a_partition_is_verified(writer: Writer) -> None:
    verifier = SlowVerifier()
    writer.broker.services.verifier_if_used = verifier  # type: ignore[assignment]
    writer.add(0, 1)
    connection = writer.broker.connect()
    writer.broker.send(connection, 11, produce_to(writer, 0))
    verifier.answer()
    writer.sequences[0] = 1
    writer.broker.send(connection, 11, produce_to(writer, 0))
    assert not verifier.asked
    writer.sequences[0] = 2
    writer.broker.send(connection, 11, produce_to(writer, 0, 1))
    assert [partitions for partitions, _ in verifier.asked] == [[("t", 1)]]
    verifier.answer()
    writer.broker.deliver()
    errors = [
        each.error_code
        for answer in writer.broker.answers[connection]
        for each in answer.responses[0].partition_responses
    ]
    assert errors == [0, 0, 0, 0]


def test_a_transaction_that_ends_while_another_partition_is_verified_takes_no_more(
    writer: Writer,
) -> None:
    writer.add(0, 1)
    assert writer.send().error_code == 0
    verifier = SlowVerifier()
    writer.broker.services.verifier_if_used = verifier  # type: ignore[assignment]
    connection = writer.broker.connect()
    writer.broker.send(connection, 11, produce_to(writer, 0, 1))
    writer.end(commit=False)
    verifier.answer()
    writer.broker.deliver()
    [answer] = writer.broker.answers[connection]
    errors = {each.index: each.error_code for each in answer.responses[0].partition_responses}
    assert errors == {0: ErrorCode.INVALID_TXN_STATE, 1: ErrorCode.INVALID_TXN_STATE}
    assert log_of(writer.broker).last_stable_offset == 2
    assert log_of(writer.broker, 1).last_stable_offset == 1  # the marker alone


def test_damaged_records_have_their_usual_errors(writer: Writer) -> None:
    writer.add(0)
    good = writer.batch()
    torn = bytes([*good[:-1], good[-1] ^ 1])
    assert writer.send(records=torn).error_code == ErrorCode.CORRUPT_MESSAGE
    assert writer.send(records=good[:40]).error_code != 0
    assert writer.send(records=good).error_code == 0


def test_while_the_coordinator_is_away_the_producer_repeats_its_request(writer: Writer) -> None:
    writer.add(0)
    metadata = writer.broker.services.metadata
    index = writer.broker.services.transactions.partition_for(ID)
    state = metadata.partition("__transaction_state", index)
    assert state is not None
    state.leader = 99
    answer = writer.send()
    assert answer.error_code == ErrorCode.NOT_ENOUGH_REPLICAS
    assert "COORDINATOR_NOT_AVAILABLE" in answer.error_message
    state.leader = writer.broker.services.node_id
    assert writer.send().error_code == 0


@pytest.mark.parametrize(
    ("version", "error"),
    [(11, ErrorCode.NOT_ENOUGH_REPLICAS), (12, ErrorCode.CONCURRENT_TRANSACTIONS)],
)
def test_while_the_last_transaction_is_being_ended_the_producer_repeats_its_request(
    writer: Writer, version: int, error: ErrorCode
) -> None:
    """Producers of version 1 do not know CONCURRENT_TRANSACTIONS as an answer to Produce."""
    verifier = SlowVerifier()
    writer.broker.services.verifier_if_used = verifier  # type: ignore[assignment]
    connection = writer.broker.connect()
    request = produce_to(writer, 0)
    writer.broker.send(connection, version, request)
    verifier.refuse(ErrorCode.CONCURRENT_TRANSACTIONS)
    writer.broker.deliver()
    [answer] = writer.broker.answers[connection]
    assert answer.responses[0].partition_responses[0].error_code == error


def test_without_verification_a_partition_need_not_be_added() -> None:
    broker = TransactionalBroker({"transaction.partition.verification.enable": "false"})
    broker.find()
    writer = Writer(broker)
    assert writer.send().error_code == 0
    answer = writer.send(transactional_id=None)
    assert answer.error_code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


def test_a_new_producer_of_a_restarted_broker_continues_the_transaction(writer: Writer) -> None:
    writer.add(0)
    assert writer.send().error_code == 0
    writer.broker.restart()
    assert writer.send().error_code == 0
    writer.end(commit=False)
    assert log_of(writer.broker).last_stable_offset == 3


@pytest.mark.parametrize("transactional", [True, False])
def test_a_plain_batch_within_an_open_transaction_is_refused(
    writer: Writer, transactional: bool
) -> None:
    writer.add(0)
    assert writer.send().error_code == 0
    answer = writer.send(records=writer.batch(transactional=transactional))
    assert answer.error_code == (0 if transactional else ErrorCode.INVALID_TXN_STATE)


@pytest.mark.parametrize("version", [12, 13])
def test_version_12_adds_the_partition_and_begins_the_transaction(
    writer: Writer, version: int
) -> None:
    name = "t" if version < 13 else ""
    topic_id = writer.broker.services.metadata.topic_id("t") if version >= 13 else bytes(16)
    data = PartitionProduceData(index=2, records=writer.batch(2))
    request = ProduceRequest(
        transactional_id=ID,
        acks=-1,
        timeout_ms=1000,
        topic_data=[TopicProduceData(name=name, topic_id=topic_id, partition_data=[data])],
    )
    [topic] = writer.broker.ask(version, request).responses
    assert topic.partition_responses[0].error_code == 0
    described = writer.broker.describe()
    assert described.transaction_state == "Ongoing"
    assert [(each.topic, each.partitions) for each in described.topics] == [("t", [2])]


class BusyOnce:
    """This broker's coordinator; the first time it still ends the producer's last transaction."""

    def __init__(self, writer: Writer) -> None:
        self.coordinator = writer.broker.services.transactions
        self.partition_for = self.coordinator.partition_for
        self.asked: list[list[tuple[str, int]]] = []

    def add_partitions(self, *args: Any) -> None:
        *_, partitions, _version, done = args
        self.asked.append(list(partitions))
        if len(self.asked) == 1:
            done(ErrorCode.CONCURRENT_TRANSACTIONS)
        else:
            self.coordinator.add_partitions(*args)


def make_busy(writer: Writer) -> BusyOnce:
    services = writer.broker.services
    verifier = make_verifier(services)
    verifier._coordinator = busy = BusyOnce(writer)
    services.verifier_if_used = verifier
    return busy


def test_a_batch_of_the_next_transaction_outlasts_the_marker_of_the_last_one(
    writer: Writer,
) -> None:
    assert writer.send(version=12).error_code == 0
    busy = make_busy(writer)
    writer.producer.producer_epoch += 1  # it has the response to its EndTxn; the marker comes
    writer.sequences.clear()
    connection = writer.broker.connect()
    writer.broker.send(connection, 12, produce_to(writer, 0))
    writer.broker.end(writer.producer, version=5, producer_epoch=writer.producer.producer_epoch - 1)
    writer.broker.deliver()
    assert not writer.broker.answers.get(connection)
    writer.broker.advance(20)
    [answer] = writer.broker.answers[connection]
    assert answer.responses[0].partition_responses[0].error_code == 0
    assert busy.asked == [[("t", 0)]] * 2


def test_a_partition_that_has_joined_the_transaction_meanwhile_is_not_added_again(
    writer: Writer,
) -> None:
    busy = make_busy(writer)
    connection, other = writer.broker.connect(), writer.broker.connect()
    writer.broker.send(connection, 12, produce_to(writer, 0))
    writer.broker.send(other, 12, produce_to(writer, 0))
    writer.broker.advance(20)
    for each in (connection, other):
        [answer] = writer.broker.answers[each]
        assert answer.responses[0].partition_responses[0].error_code == 0
    assert busy.asked == [[("t", 0)]] * 2
    assert log_of(writer.broker).log_end_offset == 1  # the second is the first once more


# --- what readers see


def test_a_committed_reader_stops_at_the_open_transaction(writer: Writer) -> None:
    writer.add(0)
    writer.send()
    broker = writer.broker
    assert (latest(broker, committed=True), latest(broker, committed=False)) == (0, 1)
    assert not fetch(broker).records and fetch(broker, committed=False).records
    assert fetch(broker).last_stable_offset == 0 and fetch(broker).high_watermark == 1
    writer.end()
    assert (latest(broker, committed=True), latest(broker, committed=False)) == (2, 2)
    assert fetch(broker).last_stable_offset == 2 and fetch(broker).records


def test_a_committed_reader_gets_the_aborted_transactions(writer: Writer) -> None:
    broker = writer.broker
    for commit in (True, False):
        writer.add(0)
        writer.send()
        writer.end(commit)
    aborted = fetch(broker).aborted_transactions
    assert [(each.producer_id, each.first_offset) for each in aborted] == [
        (writer.producer.producer_id, 2)
    ]
    assert not fetch(broker, committed=False).aborted_transactions
    assert not fetch(broker, offset=4).aborted_transactions


@pytest.mark.parametrize("commit", [True, False])
def test_a_committed_reader_that_waits_is_answered_by_the_end_of_the_transaction(
    writer: Writer, commit: bool
) -> None:
    broker = writer.broker
    writer.add(0)
    reader = broker.connect()
    part = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    request = FetchRequest(
        isolation_level=1,
        max_wait_ms=5000,
        min_bytes=1,
        max_bytes=1 << 20,
        topics=[FetchTopic(topic="t", partitions=[part])],
    )
    broker.send(reader, 11, request)
    writer.send()
    assert not broker.answers[reader]
    writer.end(commit)
    [answer] = broker.answers[reader]
    [found] = answer.responses[0].partitions
    assert found.last_stable_offset == 2 and found.records
    assert len(found.aborted_transactions or ()) == (not commit)


def delete_records(broker: TransactionalBroker, offset: int) -> tuple[int, int]:
    asked = DeleteRecordsPartition(partition_index=0, offset=offset)
    request = DeleteRecordsRequest(
        topics=[DeleteRecordsTopic(name="t", partitions=[asked])], timeout_ms=1000
    )
    [topic] = broker.ask(2, request).topics
    [found] = topic.partitions
    return found.error_code, found.low_watermark


def test_deleted_records_of_an_open_transaction_leave_it_open(writer: Writer) -> None:
    """As in Kafka: the last stable offset is not below the log start."""
    broker = writer.broker
    writer.add(0)
    writer.send()
    writer.send()
    assert delete_records(broker, 1) == (0, 1)
    assert latest(broker, committed=True) == 1
    assert writer.send().error_code == 0
    writer.end(commit=False)
    assert latest(broker, committed=True) == 4
    assert fetch(broker, offset=1).aborted_transactions
    broker.restart()
    assert latest(broker, committed=True) == 4


def test_producers_are_described_with_their_open_transactions(writer: Writer) -> None:
    writer.add(0)
    writer.send()
    request = messages.DescribeProducersRequest(
        topics=[messages.TopicRequest(name="t", partition_indexes=[0])]
    )

    def described() -> tuple[int, int, int]:
        [topic] = writer.broker.ask(0, request).topics
        [producer] = topic.partitions[0].active_producers
        assert producer.producer_id == writer.producer.producer_id
        return (
            producer.current_txn_start_offset,
            producer.last_sequence,
            producer.coordinator_epoch,
        )

    assert described() == (0, 0, -1)
    writer.end()
    assert described() == (-1, 0, 0)


# --- TxnOffsetCommit


@pytest.mark.parametrize("version", range(5))
@pytest.mark.parametrize("commit, after", [(True, 7), (False, 3)])
def test_offsets_take_effect_with_the_end_of_the_transaction(
    writer: Writer, version: int, commit: bool, after: int
) -> None:
    broker = writer.broker
    writer.add_offsets()
    assert writer.commit_offsets(3) is NONE
    writer.end()
    assert committed_offset(broker) == 3
    writer.add_offsets()
    assert writer.commit_offsets(7, version=version) is NONE
    assert committed_offset(broker) == 3
    assert committed_offset(broker, stable=True) is ErrorCode.UNSTABLE_OFFSET_COMMIT
    writer.end(commit)
    assert committed_offset(broker, stable=True) == committed_offset(broker) == after
    broker.restart()
    assert committed_offset(broker, stable=True) == after


def test_offsets_survive_a_restart_within_the_transaction(writer: Writer) -> None:
    writer.add_offsets()
    writer.commit_offsets(7)
    writer.broker.restart()
    assert committed_offset(writer.broker, stable=True) is ErrorCode.UNSTABLE_OFFSET_COMMIT
    writer.end()
    assert committed_offset(writer.broker, stable=True) == 7


@pytest.mark.parametrize("version, error", [(3, "INVALID_TXN_STATE"), (4, "TRANSACTION_ABORTABLE")])
def test_offsets_of_a_group_that_was_not_added_are_refused(
    writer: Writer, version: int, error: str
) -> None:
    writer.add(0)
    assert writer.commit_offsets(7, version=version) is ErrorCode[error]
    assert committed_offset(writer.broker, stable=True) == -1


def test_version_5_adds_the_group_and_begins_the_transaction(writer: Writer) -> None:
    assert writer.commit_offsets(7, version=5) is NONE
    [topic] = writer.broker.describe().topics
    assert topic.topic == "__consumer_offsets"
    writer.end()
    assert committed_offset(writer.broker) == 7


@pytest.mark.parametrize(
    "fields, error",
    [
        ({"generation_id_or_member_epoch": 5, "member_id": "m"}, "ILLEGAL_GENERATION"),
        ({"topic": "unknown"}, "UNKNOWN_TOPIC_OR_PARTITION"),
        ({"metadata": "m" * 5000}, "OFFSET_METADATA_TOO_LARGE"),
        ({"group": ""}, "INVALID_GROUP_ID"),
        ({"producer_epoch": 7}, "INVALID_PRODUCER_EPOCH"),
        ({"producer_id": 77}, "INVALID_PRODUCER_ID_MAPPING"),
        ({"transactional_id": "other"}, "INVALID_PRODUCER_ID_MAPPING"),
    ],
)
def test_offset_commits_have_kafkas_errors(
    writer: Writer, fields: dict[str, Any], error: str
) -> None:
    writer.add_offsets()
    assert writer.commit_offsets(7, **fields) is ErrorCode[error]
    assert writer.commit_offsets(7) is NONE


def test_a_fenced_producer_commits_no_offsets(broker: TransactionalBroker) -> None:
    old = Writer(broker)
    old.add_offsets()
    old.commit_offsets(7)
    Writer(broker)  # aborts the transaction
    assert old.commit_offsets(8) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert committed_offset(broker, stable=True) == -1


@pytest.mark.parametrize("version", [1, 2])
def test_a_loading_coordinator_has_another_error_for_the_oldest_clients(
    writer: Writer, version: int
) -> None:
    from kwire.shards.context import ShardState

    writer.add_offsets()
    writer.commit_offsets(5)
    groups = writer.broker.services.group_coordinator
    context = groups.runtime.contexts[groups.partition_for("g")]
    context.state = ShardState.LOADING
    error = writer.commit_offsets(7, version=version)
    assert error.name == (
        "COORDINATOR_NOT_AVAILABLE" if version < 2 else "COORDINATOR_LOAD_IN_PROGRESS"
    )


def test_without_verification_offsets_need_no_group_in_the_transaction() -> None:
    broker = TransactionalBroker({"transaction.partition.verification.enable": "false"})
    broker.find()
    broker.ask(4, FindCoordinatorRequest(key_type=0, coordinator_keys=["g"]))
    assert Writer(broker).commit_offsets(7) is NONE
