"""Sessions older than a reset: each API that clients use is answered, and nothing comes of it."""

from __future__ import annotations

import struct
from random import Random
from typing import Any

import pytest

from kwire.broker import Broker
from kwire.control.clients_api import set_clients_aside
from kwire.leftovers import Leftovers
from kwire.protocol import api
from kwire.protocol.api import ApiKey
from kwire.protocol.errors import ErrorCode
from kwire.protocol.record_builder import build_batch
from kwire.protocol.records import Record
from kwire.protocol.schemas.api_versions import ApiVersionsRequest
from kwire.protocol.schemas.fetch import FetchPartition, FetchRequest, FetchTopic
from kwire.protocol.schemas.groups import (
    FindCoordinatorRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    LeaveGroupRequest,
    MemberIdentity,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
)
from kwire.protocol.schemas.metadata import MetadataRequest, MetadataRequestTopic
from kwire.protocol.schemas.offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetFetchRequest,
    OffsetFetchRequestTopic,
)
from kwire.protocol.schemas.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from kwire.protocol.schemas.topics import CreatableTopic, CreateTopicsRequest
from kwire.protocol.schemas.transactions import InitProducerIdRequest
from kwire.replication.config.broker_config import BrokerConfig
from kwire.replication.core.clock import Clock
from kwire.replication.core.memory_log_store import MemoryLogStore
from kwire.replication.core.metadata import BrokerMetadata, Endpoint
from kwire.replication.core.outbox import Close, Outbox, Reply


class Started:
    """A standalone broker with one client, which has made a topic."""

    def __init__(self) -> None:
        self.outbox = Outbox()
        self.broker = Broker(
            BrokerConfig({}), MemoryLogStore(), Clock(now_ms=1000), self.outbox, Random(5)
        )
        self.broker.start([Endpoint("PLAINTEXT", "localhost", 9092)])
        self.outbox.drain()
        self.connect(1)
        self.ask(1, ApiKey.METADATA, 4, asking("orders"))

    def connect(self, connection: int) -> None:
        self.broker.connection_opened(connection, "PLAINTEXT", "127.0.0.1")

    def ask(
        self, connection: int, key: ApiKey, version: int, request: Any, client_id: str = "me"
    ) -> Any:
        """The response, or the reason for which the connection is closed; None: neither."""
        frame = b"".join(map(bytes, api.encode_request(key, version, 7, client_id, request)))[4:]
        return self.send(connection, frame, key, version)

    def send(self, connection: int, frame: bytes, key: ApiKey, version: int) -> Any:
        self.broker.receive_frame(connection, frame)
        for effect in self.outbox.drain():
            if isinstance(effect, Close) and effect.connection == connection:
                return effect.reason
            if isinstance(effect, Reply) and effect.connection == connection:
                answer = b"".join(map(bytes, effect.parts))[4:]
                return api.parse_response(key, version, answer)[1]
        return None

    @property
    def left(self) -> Leftovers:
        assert self.broker.sessions.leftovers is not None
        return self.broker.sessions.leftovers

    @property
    def topics(self) -> list[str]:
        return sorted(self.broker.services.metadata.topics)


def asking(*topics: str) -> MetadataRequest:
    return MetadataRequest(
        topics=[MetadataRequestTopic(name=name) for name in topics], allow_auto_topic_creation=True
    )


@pytest.fixture
def started() -> Started:
    return Started()


BATCH = build_batch([Record(-1, 1000, None, b"x")])
PRODUCE = ProduceRequest(
    acks=1,
    timeout_ms=1000,
    topic_data=[
        TopicProduceData(
            name="orders", partition_data=[PartitionProduceData(index=0, records=BATCH)]
        )
    ],
)
FETCH = FetchRequest(
    max_wait_ms=500,
    min_bytes=1,
    topics=[FetchTopic(topic="orders", partitions=[FetchPartition(partition=0)])],
)
OFFSETS = ListOffsetsRequest(
    topics=[ListOffsetsTopic(name="orders", partitions=[ListOffsetsPartition(partition_index=0)])]
)
JOIN = JoinGroupRequest(
    group_id="shop",
    session_timeout_ms=10_000,
    rebalance_timeout_ms=10_000,
    member_id="m",
    protocol_type="consumer",
)
COMMIT = OffsetCommitRequest(
    group_id="shop",
    topics=[
        OffsetCommitRequestTopic(
            name="orders", partitions=[OffsetCommitRequestPartition(partition_index=0)]
        )
    ],
)


@pytest.mark.parametrize(
    ("key", "version", "request_", "code"),
    [
        (ApiKey.PRODUCE, 9, PRODUCE, "UNKNOWN_TOPIC_OR_PARTITION"),
        (ApiKey.FETCH, 4, FETCH, "UNKNOWN_TOPIC_OR_PARTITION"),
        (ApiKey.FETCH, 12, FETCH, "UNKNOWN_TOPIC_OR_PARTITION"),
        (ApiKey.LIST_OFFSETS, 7, OFFSETS, "UNKNOWN_TOPIC_OR_PARTITION"),
        (ApiKey.METADATA, 4, asking("orders", "new"), "UNKNOWN_TOPIC_OR_PARTITION"),
        (
            ApiKey.FIND_COORDINATOR,
            3,
            FindCoordinatorRequest(key="shop"),
            "COORDINATOR_NOT_AVAILABLE",
        ),
        (
            ApiKey.FIND_COORDINATOR,
            4,
            FindCoordinatorRequest(coordinator_keys=["shop"]),
            "COORDINATOR_NOT_AVAILABLE",
        ),
    ],
    ids=lambda value: value.name if isinstance(value, ApiKey) else None,
)
def test_requests_are_refused_with_an_error_after_which_clients_retry(
    started: Started, key: ApiKey, version: int, request_: Any, code: str
) -> None:
    set_clients_aside(started.broker)
    answer = started.ask(1, key, version, request_)
    number = int(ErrorCode[code])
    assert number in error_codes(answer) and error_codes(answer) <= {0, number}
    assert ErrorCode(number).retriable
    assert started.topics == ["orders"]
    log = started.broker.services.replica_manager.partition("orders", 0).log
    assert log.log_end_offset == 0
    if key is ApiKey.FIND_COORDINATOR:
        assert started.left.clients() == [(1, "me", "shop")]
    else:
        assert started.left.clients() == [(1, "me", "")]


HEARTBEAT = HeartbeatRequest(group_id="shop", generation_id=1, member_id="m")
SYNC = SyncGroupRequest(group_id="shop", generation_id=1, member_id="m")


@pytest.mark.parametrize(
    ("key", "version", "request_"),
    [
        (ApiKey.HEARTBEAT, 3, HEARTBEAT),
        (ApiKey.SYNC_GROUP, 3, SYNC),
        (ApiKey.OFFSET_COMMIT, 7, COMMIT),
    ],
    ids=["heartbeat", "sync", "commit"],
)
def test_a_member_is_not_known_any_more(
    started: Started, key: ApiKey, version: int, request_: Any
) -> None:
    """So that it joins again. It is not sent to another coordinator, to which it would connect."""
    set_clients_aside(started.broker)
    answer = started.ask(1, key, version, request_)
    assert error_codes(answer) - {0} == {ErrorCode.UNKNOWN_MEMBER_ID}
    assert started.left.clients() == [(1, "me", "shop")]


@pytest.mark.parametrize("member_id", ["", "m"])
def test_each_member_is_alone_in_its_group(started: Started, member_id: str) -> None:
    started.connect(2)
    set_clients_aside(started.broker)
    protocols = [
        JoinGroupRequestProtocol(name="range", metadata=b"orders"),
        JoinGroupRequestProtocol(name="sticky", metadata=b"more"),
    ]
    for connection in (1, 2):
        request = JoinGroupRequest(
            group_id="shop",
            member_id=member_id,
            group_instance_id="instance",
            protocol_type="consumer",
            protocols=protocols,
        )
        joined = started.ask(connection, ApiKey.JOIN_GROUP, 7, request)
        assert (joined.error_code, joined.protocol_type, joined.protocol_name) == (
            *(0, "consumer"),
            "range",
        )
        assert joined.leader == joined.member_id == (member_id or joined.leader) != ""
        (member,) = joined.members
        assert (member.member_id, member.metadata) == (joined.member_id, b"orders")
        of_member = {
            "group_id": "shop",
            "generation_id": joined.generation_id,
            "member_id": joined.member_id,
        }
        assignments = [
            SyncGroupRequestAssignment(member_id="stranger", assignment=b"other"),
            SyncGroupRequestAssignment(member_id=joined.member_id, assignment=b"own"),
        ]
        request = SyncGroupRequest(**of_member, assignments=assignments)
        synced = started.ask(connection, ApiKey.SYNC_GROUP, 3, request)
        assert (synced.error_code, synced.assignment) == (0, b"own")
        beat = started.ask(connection, ApiKey.HEARTBEAT, 3, HeartbeatRequest(**of_member))
        assert beat.error_code == 0
    assert started.topics == ["orders"]  # no group was kept: there is no __consumer_offsets


def test_a_join_without_protocols_is_refused(started: Started) -> None:
    set_clients_aside(started.broker)
    answer = started.ask(1, ApiKey.JOIN_GROUP, 5, JOIN)
    assert answer.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_members_can_leave_whoever_they_are(started: Started) -> None:
    set_clients_aside(started.broker)
    alone = LeaveGroupRequest(group_id="shop", member_id="m")
    assert started.ask(1, ApiKey.LEAVE_GROUP, 2, alone).error_code == 0
    two = [MemberIdentity(member_id="m"), MemberIdentity(member_id="", group_instance_id="i")]
    left = started.ask(1, ApiKey.LEAVE_GROUP, 3, LeaveGroupRequest(group_id="shop", members=two))
    assert error_codes(left) == {0} and len(left.members) == 2


def test_nothing_is_committed(started: Started) -> None:
    set_clients_aside(started.broker)
    topics = [OffsetFetchRequestTopic(name="orders", partition_indexes=[0, 1])]
    request = OffsetFetchRequest(group_id="shop", topics=topics)
    (topic,) = started.ask(1, ApiKey.OFFSET_FETCH, 5, request).topics
    assert [(each.committed_offset, each.error_code) for each in topic.partitions] == [(-1, 0)] * 2
    request = OffsetFetchRequest(group_id="shop", topics=None)
    assert started.ask(1, ApiKey.OFFSET_FETCH, 5, request).topics == []


def error_codes(message: Any) -> set[int]:
    """All error codes in a response, at any depth."""
    found = set()
    for name in dir(message):
        if name.startswith("_"):
            continue
        value = getattr(message, name)
        if name == "error_code":
            found.add(value)
        elif isinstance(value, list):
            for item in value:
                found |= error_codes(item)
    return found


def test_versions_and_producer_ids_are_given_as_ever(started: Started) -> None:
    set_clients_aside(started.broker)
    request = ApiVersionsRequest(client_software_name="c", client_software_version="1")
    found = started.ask(1, ApiKey.API_VERSIONS, 3, request)
    assert found.error_code == 0 and len(found.api_keys) == 14
    newer = struct.pack(">hhih2sb", ApiKey.API_VERSIONS, 99, 7, 2, b"me", 0)
    found = started.send(1, newer, ApiKey.API_VERSIONS, 0)
    assert found.error_code == ErrorCode.UNSUPPORTED_VERSION
    asked = InitProducerIdRequest(transactional_id=None, producer_id=-1, producer_epoch=-1)
    assert started.ask(1, ApiKey.INIT_PRODUCER_ID, 4, asked).error_code == 0


def test_what_only_administrators_send_ends_the_connection(started: Started) -> None:
    set_clients_aside(started.broker)
    request = CreateTopicsRequest(topics=[CreatableTopic(name="t", num_partitions=1)])
    reason = started.ask(1, ApiKey.CREATE_TOPICS, 5, request)
    assert reason == "it was connected before the cluster was reset"
    assert started.left.clients() == [] and started.topics == ["orders"]


def test_malformed_bytes_end_the_connection(started: Started) -> None:
    set_clients_aside(started.broker)
    assert "malformed request" in started.send(1, b"\0\3", ApiKey.METADATA, 4)
    started.connect(2)
    set_clients_aside(started.broker)
    started.broker.close_connection(2, "malformed request: a frame of -1 bytes")
    assert [type(effect) for effect in started.outbox.drain()] == [Close]
    assert started.left.by_connection == {}


def test_a_connection_that_comes_later_is_served(started: Started) -> None:
    set_clients_aside(started.broker)
    started.connect(2)
    assert started.ask(2, ApiKey.METADATA, 4, asking("new")).topics[0].error_code == 0
    assert started.topics == ["new", "orders"]
    set_clients_aside(started.broker)
    assert started.ask(2, ApiKey.METADATA, 4, asking("newer")).topics[0].error_code
    assert started.topics == ["new", "orders"]


@pytest.mark.parametrize("client_id", ["kwire-admin", "broker-2", "controller-1000"])
def test_connections_of_nodes_and_of_kwire_itself_are_returned(
    started: Started, client_id: str
) -> None:
    set_clients_aside(started.broker)
    assert started.left.clients() == []  # nothing was heard of it since
    answer = started.ask(1, ApiKey.METADATA, 4, asking("new"), client_id)
    assert answer.topics[0].error_code == 0 and started.topics == ["new", "orders"]
    assert started.left.clients() == [] and list(started.broker.sessions.by_connection) == [1]


def test_a_connection_that_is_returned_is_the_brokers_own(started: Started) -> None:
    set_clients_aside(started.broker)
    session = started.broker.sessions.find(1)
    assert session is not None and session.sessions is started.left
    started.ask(1, ApiKey.METADATA, 4, asking("orders"), "broker-2")
    assert started.broker.sessions.find(1) is session
    assert session.sessions is started.broker.sessions


@pytest.mark.parametrize(("client_id", "shown"), [("me", [(1, "me", "")]), ("broker-2", [])])
def test_who_waits_for_an_answer_at_the_reset_is_known_by_its_client_id(
    started: Started, client_id: str, shown: list[tuple[int, str, str]]
) -> None:
    assert started.ask(1, ApiKey.FETCH, 11, FETCH, client_id) is None
    set_clients_aside(started.broker)
    assert started.left.clients() == shown


def test_who_has_sent_nothing_since_is_known_by_its_software(started: Started) -> None:
    request = ApiVersionsRequest(client_software_name="sarama", client_software_version="1.2")
    assert started.ask(1, ApiKey.API_VERSIONS, 3, request).error_code == 0
    set_clients_aside(started.broker)
    assert started.left.clients() == [(1, "sarama", "")]


def test_no_other_broker_is_named(started: Started) -> None:
    brokers = started.broker.services.metadata.brokers
    (own,) = brokers
    brokers[own + 1] = BrokerMetadata(own + 1, None, [Endpoint("PLAINTEXT", "localhost", 9093)])
    assert len(started.ask(1, ApiKey.METADATA, 4, asking()).brokers) == 2
    set_clients_aside(started.broker)
    assert [b.node_id for b in started.ask(1, ApiKey.METADATA, 4, asking()).brokers] == [own]


def test_a_connection_can_be_closed_from_this_side(started: Started) -> None:
    set_clients_aside(started.broker)
    started.broker.close_connection(1, "enough")
    (effect,) = started.outbox.drain()
    assert isinstance(effect, Close) and (effect.connection, effect.reason) == (1, "enough")
    assert started.left.by_connection == {}


def test_a_connection_that_ends_is_forgotten(started: Started) -> None:
    set_clients_aside(started.broker)
    started.ask(1, ApiKey.HEARTBEAT, 3, HeartbeatRequest(group_id="shop", member_id="m"))
    assert started.left.clients() == [(1, "me", "shop")]
    started.broker.connection_closed(1)
    assert started.left.clients() == []
    assert (started.left.by_connection, started.left.client_ids, started.left.groups) == ({},) * 3
