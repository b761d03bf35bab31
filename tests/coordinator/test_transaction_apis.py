"""The transactional APIs of one whole broker, over frames: versions, errors, restarts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from group_kit import GroupBroker

from kwire.protocol.errors import ErrorCode
from kwire.protocol.records import iter_batches, iter_records, parse_control_record
from kwire.protocol.schemas import transactions as messages
from kwire.protocol.schemas.api_versions import ApiVersionsRequest
from kwire.protocol.schemas.groups import FindCoordinatorRequest
from kwire.transactions.records import decode_record, values_of

ID = "id"
BUSY = ErrorCode.CONCURRENT_TRANSACTIONS
SOFTWARE = {"client_software_name": "test", "client_software_version": "1"}


class TransactionalBroker(GroupBroker):
    """A broker with a topic `t` of three partitions, and requests of one producer."""

    def __init__(
        self, settings: dict[str, str] | None = None, *, release: str | None = None
    ) -> None:
        super().__init__(settings, release=release)
        self.create_topic("t", 3)

    def find(self, key: str = ID) -> Any:
        return self.ask(4, FindCoordinatorRequest(key_type=1, coordinator_keys=[key]))

    def init(self, version: int = 5, transactional_id: str | None = ID, **fields: Any) -> Any:
        fields = {"transaction_timeout_ms": 60_000} | fields
        return self.ask(
            version, messages.InitProducerIdRequest(transactional_id=transactional_id, **fields)
        )

    def add(
        self,
        producer: Any,
        *partitions: tuple[str, int],
        version: int = 3,
        transactional_id: str = ID,
        epoch: int | None = None,
        verify_only: bool = False,
    ) -> dict[tuple[str, int], ErrorCode]:
        topics: dict[str, list[int]] = {}
        for topic, index in partitions or (("t", 0),):
            topics.setdefault(topic, []).append(index)
        named = [
            messages.AddPartitionsToTxnTopic(name=name, partitions=ids)
            for name, ids in topics.items()
        ]
        epoch = producer.producer_epoch if epoch is None else epoch
        if version >= 4:
            one = messages.AddPartitionsToTxnTransaction(
                transactional_id=transactional_id,
                producer_id=producer.producer_id,
                producer_epoch=epoch,
                verify_only=verify_only,
                topics=named,
            )
            answer = self.ask(version, messages.AddPartitionsToTxnRequest(transactions=[one]))
            [result] = answer.results_by_transaction
            assert result.transactional_id == transactional_id
            results = result.topic_results
        else:
            answer = self.ask(
                version,
                messages.AddPartitionsToTxnRequest(
                    v3_and_below_transactional_id=transactional_id,
                    v3_and_below_producer_id=producer.producer_id,
                    v3_and_below_producer_epoch=epoch,
                    v3_and_below_topics=named,
                ),
            )
            results = answer.results_by_topic_v3_and_below
        return {
            (topic.name, each.partition_index): ErrorCode(each.partition_error_code)
            for topic in results
            for each in topic.results_by_partition
        }

    def end(self, producer: Any, *, commit: bool = True, version: int = 4, **fields: Any) -> Any:
        fields = {"producer_epoch": producer.producer_epoch} | fields
        return self.ask(
            version,
            messages.EndTxnRequest(
                transactional_id=ID, producer_id=producer.producer_id, committed=commit, **fields
            ),
        )

    def describe(self, transactional_id: str = ID) -> Any:
        request = messages.DescribeTransactionsRequest(transactional_ids=[transactional_id])
        [state] = self.ask(0, request).transaction_states
        return state

    def list(self, version: int = 2, **filters: Any) -> Any:
        return self.ask(version, messages.ListTransactionsRequest(**filters))

    def log(self, topic: str, index: int) -> Any:
        partition = self.services.replica_manager.hosted((topic, index))
        assert partition is not None
        log = partition.log
        return bytes(log.read(log.log_start_offset, 1 << 20, log.log_end_offset).records)

    def states(self) -> list[str]:
        """The states in the log of the transactional id."""
        data = self.log("__transaction_state", self.services.transactions.partition_for(ID))
        found = []
        for header in iter_batches(data):
            assert not header.is_transactional and header.compression == "none"
            for record in iter_records(data, header):
                decoded = decode_record(record.key, record.value)
                assert decoded is not None and decoded.value is not None
                found.append(values_of(decoded.value).state.name)
        return found

    def markers(self, index: int = 0) -> list[tuple[int, int, int]]:
        """Producer id, epoch and type of each marker in a partition of `t`."""
        data = self.log("t", index)
        return [
            (header.producer_id, header.producer_epoch, parse_control_record(record).type)
            for header in iter_batches(data)
            for record in iter_records(data, header)
            if header.is_control
        ]


@pytest.fixture
def broker() -> TransactionalBroker:
    broker = TransactionalBroker()
    broker.find()
    return broker


def test_the_first_producer_creates_the_topic_of_transactions() -> None:
    broker = TransactionalBroker()
    assert broker.init().error_code == ErrorCode.NOT_COORDINATOR
    [found] = broker.find().coordinators
    assert (found.error_code, found.node_id) == (0, broker.services.node_id)
    metadata = broker.services.metadata
    assert metadata.partition_count("__transaction_state") == 4
    config = metadata.topic_config("__transaction_state")
    assert config["cleanup.policy"] == "compact"
    assert config["unclean.leader.election.enable"] == "false"
    assert (broker.init().producer_id, broker.init().producer_epoch) == (0, 1)


@pytest.mark.parametrize("commit", [True, False])
def test_a_transaction_ends_with_a_marker_in_each_of_its_partitions(
    broker: TransactionalBroker, commit: bool
) -> None:
    producer = broker.init()
    assert broker.add(producer, ("t", 0), ("t", 2)) == {("t", 0): 0, ("t", 2): 0}
    assert broker.end(producer, commit=commit).error_code == 0
    marker = (producer.producer_id, 0, 1 if commit else 0)
    assert broker.markers(0) == broker.markers(2) == [marker] and broker.markers(1) == []
    done = ["PrepareCommit", "CompleteCommit"] if commit else ["PrepareAbort", "CompleteAbort"]
    assert broker.states() == ["Empty", "Ongoing", *done]
    # The next transaction can begin at once.
    assert broker.add(producer) == {("t", 0): 0}


@pytest.mark.parametrize("version", range(6))
def test_idempotent_producers_get_ids_that_never_repeat(version: int) -> None:
    broker = TransactionalBroker()
    ids = [broker.init(version, None, transaction_timeout_ms=-1).producer_id for _ in range(3)]
    assert ids == [0, 1, 2]


def test_a_producer_that_had_an_id_gets_a_new_one() -> None:
    broker = TransactionalBroker()
    old = broker.init(transactional_id=None)
    new = broker.init(transactional_id=None, producer_id=old.producer_id, producer_epoch=0)
    assert new.producer_id != old.producer_id and new.producer_epoch == 0


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"transactional_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"transactional_id": None, "producer_id": 4}, ErrorCode.INVALID_REQUEST),
        ({"transactional_id": None, "producer_epoch": 4}, ErrorCode.INVALID_REQUEST),
        ({"transactional_id": ID, "producer_epoch": 4}, ErrorCode.INVALID_REQUEST),
        ({"transaction_timeout_ms": 900_001}, ErrorCode.INVALID_TRANSACTION_TIMEOUT),
        ({"transaction_timeout_ms": 0}, ErrorCode.INVALID_TRANSACTION_TIMEOUT),
        ({"transaction_timeout_ms": 900_000}, ErrorCode.NONE),
    ],
)
def test_init_producer_id_refuses_invalid_requests(
    broker: TransactionalBroker, fields: dict[str, Any], error: ErrorCode
) -> None:
    answer = broker.init(**fields)
    assert (answer.error_code, answer.producer_id == -1) == (error, bool(error))


def test_old_clients_know_a_fenced_producer_by_another_error(broker: TransactionalBroker) -> None:
    old = broker.init()
    new = broker.init()
    broker.add(new)
    fenced, before = ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH
    for version in range(5):
        assert broker.end(old, version=version).error_code == (fenced if version >= 2 else before)
        add = messages.AddOffsetsToTxnRequest(
            transactional_id=ID, producer_id=old.producer_id, producer_epoch=0, group_id="g"
        )
        assert broker.ask(version, add).error_code == (fenced if version >= 2 else before)
    for version in range(6):
        error = fenced if version >= 2 else before
        assert broker.add(old, version=version) == {("t", 0): error}
    for version in (3, 4, 5):
        answer = broker.init(version, producer_id=old.producer_id + 1, producer_epoch=0)
        assert answer.error_code == (fenced if version >= 4 else before)


@pytest.mark.parametrize("version", range(6))
def test_a_partition_that_does_not_exist_keeps_the_others_out(
    broker: TransactionalBroker, version: int
) -> None:
    producer = broker.init()
    assert broker.add(producer, ("t", 0), ("t", 3), version=version) == {
        ("t", 0): ErrorCode.OPERATION_NOT_ATTEMPTED,
        ("t", 3): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    assert broker.describe().transaction_state == "Empty"


def test_a_client_may_not_add_internal_topics_but_a_broker_may(broker: TransactionalBroker) -> None:
    producer, partition = broker.init(), ("__transaction_state", 0)
    refused = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert broker.add(producer, partition, version=3) == {partition: refused}
    assert broker.add(producer, partition, version=4) == {partition: 0}


@pytest.mark.parametrize("version", [4, 5])
def test_brokers_verify_partitions_in_batches(broker: TransactionalBroker, version: int) -> None:
    producer = broker.init()
    broker.add(producer)
    asked = {"producer_id": producer.producer_id, "producer_epoch": 0, "verify_only": True}
    topics = [messages.AddPartitionsToTxnTopic(name="t", partitions=[0, 1])]
    transactions = [
        messages.AddPartitionsToTxnTransaction(transactional_id=name, topics=topics, **asked)
        for name in (ID, "unknown", "")
    ]
    request = messages.AddPartitionsToTxnRequest(transactions=transactions)
    answer = broker.ask(version, request)
    errors = {
        each.transactional_id: [
            p.partition_error_code for p in each.topic_results[0].results_by_partition
        ]
        for each in answer.results_by_transaction
    }
    assert errors == {
        ID: [0, ErrorCode.TRANSACTION_ABORTABLE],
        "unknown": [ErrorCode.INVALID_PRODUCER_ID_MAPPING] * 2,
        "": [ErrorCode.INVALID_REQUEST] * 2,
    }
    assert broker.describe().topics[0].partitions == [0]
    assert broker.ask(version, messages.AddPartitionsToTxnRequest()).results_by_transaction == []


@pytest.mark.parametrize(("version", "client_version"), [(3, 0), (4, 2), (5, 2)])
def test_what_a_leader_adds_is_of_a_client_of_version_2(
    broker: TransactionalBroker, version: int, client_version: int
) -> None:
    broker.add(broker.init(), version=version)
    assert broker.services.transactions.describe(ID).values.client_version == client_version


def test_a_producer_id_is_answered_once_it_is_durable(
    broker: TransactionalBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    held: list[Callable[[], None]] = []
    producers = type(broker.services.producer_ids)
    monkeypatch.setattr(producers, "when_durable", lambda _, callback: held.append(callback))
    connection = broker.connect()
    answers = broker.answers[connection]
    request = messages.InitProducerIdRequest(transactional_id=ID, transaction_timeout_ms=60_000)
    broker.send(connection, 5, request)
    assert (answers, len(held)) == ([], 1)
    held.pop()()
    broker.advance(1)
    [producer] = answers
    broker.add(producer, version=4)
    end = messages.EndTxnRequest(
        transactional_id=ID, producer_id=producer.producer_id, producer_epoch=0, committed=True
    )
    broker.send(connection, 5, end)
    assert (len(answers), len(held)) == (1, 1)
    held.pop()()
    broker.advance(1)
    assert answers[1].producer_epoch == 1


def test_offsets_are_added_by_the_partition_of_their_group(broker: TransactionalBroker) -> None:
    producer = broker.init()
    add = messages.AddOffsetsToTxnRequest(
        transactional_id=ID, producer_id=producer.producer_id, producer_epoch=0, group_id="g"
    )
    assert broker.ask(3, add).error_code == 0
    [topic] = broker.describe().topics
    index = broker.services.group_coordinator.partition_for("g")
    assert (topic.topic, topic.partitions) == ("__consumer_offsets", [index])


@pytest.mark.parametrize("version", range(5))
def test_requests_without_a_transactional_id_are_invalid(
    broker: TransactionalBroker, version: int
) -> None:
    invalid = ErrorCode.INVALID_REQUEST
    assert broker.ask(version, messages.EndTxnRequest(transactional_id="")).error_code == invalid
    request = messages.AddOffsetsToTxnRequest(transactional_id="", group_id="g")
    assert broker.ask(version, request).error_code == invalid
    assert broker.describe("").error_code == invalid


def test_a_transaction_is_described(broker: TransactionalBroker) -> None:
    assert broker.describe().error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    producer = broker.init(transaction_timeout_ms=123)
    broker.clock.wall_ms += 5
    broker.add(producer, ("t", 2), ("t", 0))
    state = broker.describe()
    assert (state.transaction_state, state.transaction_timeout_ms) == ("Ongoing", 123)
    assert (state.producer_id, state.producer_epoch) == (producer.producer_id, 0)
    assert state.transaction_start_time_ms == broker.clock.wall_ms
    assert [(topic.topic, topic.partitions) for topic in state.topics] == [("t", [2, 0])]
    broker.end(producer)
    assert (broker.describe().transaction_state, broker.describe().topics) == ("CompleteCommit", [])


def test_transactions_are_listed_with_filters(broker: TransactionalBroker) -> None:
    ids = [broker.init(transactional_id=name).producer_id for name in ("a1", "a2", "b")]
    producer = broker.init()
    broker.add(producer)
    broker.clock.wall_ms += 1_000

    def names(**filters: Any) -> set[str]:
        answer = broker.list(**filters)
        assert answer.error_code == 0
        return {each.transactional_id for each in answer.transaction_states}

    everything = {"a1", "a2", "b", ID}
    assert names() == everything
    assert names(state_filters=["Ongoing"]) == {ID}
    assert names(state_filters=["Ongoing", "Empty"]) == everything
    assert names(producer_id_filters=ids[:2]) == {"a1", "a2"}
    assert names(transactional_id_pattern="a.*") == {"a1", "a2"}
    assert (
        names(transactional_id_pattern="a") == set()
        and names(transactional_id_pattern="") == everything
    )
    assert names(duration_filter=999, state_filters=["Ongoing"]) == {ID}
    assert names(duration_filter=1_000, state_filters=["Ongoing"]) == set()
    unknown = broker.list(state_filters=["Lost"])
    assert (unknown.unknown_state_filters, unknown.transaction_states) == (["Lost"], [])
    invalid = broker.list(transactional_id_pattern="(")
    assert invalid.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION


def test_a_client_since_4_0_gets_its_next_epoch_from_each_end(broker: TransactionalBroker) -> None:
    producer = broker.init()
    for epoch in range(3):
        assert broker.add(producer, version=4, epoch=epoch) == {("t", 0): 0}
        end = broker.end(producer, version=5, producer_epoch=epoch)
        again = broker.end(producer, version=5, producer_epoch=epoch)
        for answer in (end, again):
            assert (answer.error_code, answer.producer_id) == (0, producer.producer_id)
            assert answer.producer_epoch == epoch + 1
    assert broker.markers() == [(producer.producer_id, epoch + 1, 1) for epoch in range(3)]


@pytest.mark.parametrize(
    ("release", "level"), [(None, 2), ("4.4", 2), ("4.0", 2), ("3.9", 0), ("3.4", 0)]
)
def test_the_release_decides_on_the_version_of_transactions(
    release: str | None, level: int
) -> None:
    broker = TransactionalBroker(release=release)
    for version in (3, 4) if level else (3,):
        answer = broker.ask(version, ApiVersionsRequest(**SOFTWARE))
        finalized = {each.name: each.max_version_level for each in answer.finalized_features}
        assert finalized == ({"transaction.version": level} if level else {})
        supported = {each.name: each.max_version for each in answer.supported_features}
        assert supported == ({"transaction.version": 2} if level and version >= 4 else {})
        assert answer.finalized_features_epoch == (0 if level else -1)
    broker.find()
    producer = broker.init(version=4)
    broker.add(producer)
    assert broker.init(version=4).error_code == BUSY
    data = broker.log("__transaction_state", broker.services.transactions.partition_for(ID))
    values = [
        bytes(record.value or b"")
        for header in iter_batches(data)
        for record in iter_records(data, header)
    ]
    assert {value[:2] for value in values} == {b"\0\1" if level else b"\0\0"}
    assert broker.markers() == [(producer.producer_id, 1, 0)]


def test_transactions_survive_a_restart(broker: TransactionalBroker) -> None:
    producer = broker.init()
    broker.add(producer, ("t", 1))
    broker.restart()
    assert broker.describe().transaction_state == "Ongoing"
    assert broker.end(producer).error_code == 0
    assert broker.markers(1) == [(producer.producer_id, 0, 1)]
    broker.restart()
    assert broker.end(producer).error_code == 0  # a retry
    assert broker.init().producer_epoch == 1


def test_a_transaction_that_its_producer_has_left_is_aborted(broker: TransactionalBroker) -> None:
    producer = broker.init(transaction_timeout_ms=1_000)
    broker.add(producer)
    broker.advance(9_000)
    assert broker.describe().transaction_state == "Ongoing"
    broker.advance(2_000)
    assert broker.describe().transaction_state == "CompleteAbort"
    assert broker.markers() == [(producer.producer_id, 1, 0)]
    assert broker.end(producer).error_code == ErrorCode.PRODUCER_FENCED


def test_a_successor_aborts_the_transaction_of_its_predecessor(broker: TransactionalBroker) -> None:
    old = broker.init()
    broker.add(old)
    assert broker.init().error_code == BUSY
    assert broker.markers() == [(old.producer_id, 1, 0)]
    new = broker.init()
    assert (new.producer_id, new.producer_epoch) == (old.producer_id, 2)
    assert broker.end(old).error_code == ErrorCode.PRODUCER_FENCED
