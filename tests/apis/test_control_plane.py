"""Controller orders over the wire: recorded ones of Kafka 3.9 to broker 2, and every version."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from typing import Any

import pytest

from kwire.apis.context import transaction_version
from kwire.broker import Broker
from kwire.protocol import api
from kwire.protocol.errors import ErrorCode
from kwire.protocol.schemas.api_versions import ApiVersionsRequest
from kwire.protocol.schemas.configs import (
    AlterableConfig,
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResponse,
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
)
from kwire.protocol.schemas.control_plane import (
    EnvelopeRequest,
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrTopicState,
    StopReplicaPartitionState,
    StopReplicaPartitionV0,
    StopReplicaRequest,
    StopReplicaTopicState,
    StopReplicaTopicV1,
    UpdateMetadataBroker,
    UpdateMetadataEndpoint,
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataTopicState,
)
from kwire.protocol.schemas.groups import FindCoordinatorRequest
from kwire.protocol.schemas.metadata import MetadataRequest, MetadataRequestTopic
from kwire.protocol.schemas.topics import CreatableTopic, CreateTopicsRequest
from kwire.replication.config.broker_config import ANY_CONTROLLER_KEY, BrokerConfig
from kwire.replication.controller.channels import controller_principal
from kwire.replication.core.broker_epochs import next_broker_epoch
from kwire.replication.core.clock import Clock
from kwire.replication.core.memory_log_store import MemoryLogStore
from kwire.replication.core.metadata import BROKER_RESOURCE, TOPIC_RESOURCE, Endpoint
from kwire.replication.core.outbox import Close, Outbox, Reply
from kwire.replication.member.cluster_member import ClusterSettings

RECORDED = Path(__file__).parent.parent / "data" / "control-plane-3.9.jsonl"
BROKER_EPOCH = 33
TOPIC_ID = b"i" * 16


class Driven:
    """Broker 2 of a cluster with a Kafka controller: orders as frames, responses as messages.

    With `open_to_all` any connection may give orders, with any epoch."""

    def __init__(
        self, *, open_to_all: bool = False, broker_epoch: int | None = BROKER_EPOCH
    ) -> None:
        self.outbox = Outbox()
        self.ready = False
        cluster = ClusterSettings(
            1,
            ("127.0.0.1", 22092),
            "PLAINTEXT",
            broker_epoch=broker_epoch,
            on_ready=lambda: setattr(self, "ready", True),
        )
        self.broker = Broker(
            BrokerConfig({"node.id": "2", ANY_CONTROLLER_KEY: str(open_to_all).lower()}),
            MemoryLogStore(),
            Clock(now_ms=1000, wall_ms=1_700_000_000_000),
            self.outbox,
            Random(1),
            cluster_id="test",
            cluster=cluster,
        )
        self.broker.start([Endpoint("PLAINTEXT", "127.0.0.1", 22093)])
        self.connections = 0
        self.open()

    def open(self, listener: str = "PLAINTEXT") -> int:
        self.connections += 1
        self.broker.connection_opened(self.connections, listener, "127.0.0.1")
        return self.connections

    def frame(self, frame: bytes, connection: int | None = None) -> Any:
        """The response to a frame; None while parked; the reason if the connection was closed."""
        connection = connection or self.connections
        self.broker.receive_frame(connection, frame)
        replies = [
            effect
            for effect in self.outbox.drain()
            if isinstance(effect, Reply | Close) and effect.connection == connection
        ]
        if not replies:
            return None
        (reply,) = replies
        if isinstance(reply, Close):
            return reply.reason
        header = api.parse_request_header(frame)
        data = b"".join(bytes(part) for part in reply.parts)
        correlation_id, message = api.parse_response(header.api_key, header.api_version, data[4:])
        assert correlation_id == header.correlation_id
        return message

    def ask(self, request: Any, version: int) -> Any:
        key = api.key_of(request)
        parts = api.encode_request(key, version, 7, "test", request)
        return self.frame(b"".join(bytes(part) for part in parts)[4:])

    @property
    def manager(self) -> Any:
        return self.broker.services.replica_manager

    @property
    def metadata(self) -> Any:
        return self.broker.services.metadata


@pytest.fixture
def driven() -> Driven:
    return Driven(open_to_all=True)


@pytest.fixture
def closed() -> Driven:
    """As a user starts it: orders from the controller only."""
    return Driven()


def recorded() -> list[tuple[int, str, bytes]]:
    lines = [json.loads(line) for line in RECORDED.read_text().splitlines()]
    return [(d["connection"], d["api"], bytes.fromhex(d["request_frame_hex"])) for d in lines]


def test_recorded_orders_of_a_kafka_controller_get_the_responses_of_a_kafka_broker(
    closed: Driven,
) -> None:
    driven = closed
    connections: dict[int, int] = {}
    orders = []
    for number, name, frame in recorded():
        if number not in connections:
            connections[number] = driven.open()
        response = driven.frame(frame, connections[number])
        if name in ("LeaderAndIsr", "StopReplica", "UpdateMetadata"):
            assert response.error_code == 0
            orders.append(name)
        if name == "LeaderAndIsr":
            (topic,) = response.topics
            errors = [(e.partition_index, e.error_code) for e in topic.partition_errors]
            assert errors == [(1, 0), (0, 0)]
            leads, follows = driven.manager.by_key["a", 1], driven.manager.by_key["a", 0]
            assert leads.is_leader and leads.leader_epoch == 0
            assert not follows.is_leader and follows.leader_id == 1
        if name == "StopReplica":
            assert [e.error_code for e in response.partition_errors] == [0]
        if name == "Metadata" and len(orders) == 3:
            assert [t.name for t in response.topics] == ["a"]
            leaders = {p.partition_index: p.leader_id for p in response.topics[0].partitions}
            assert leaders == {0: 1, 1: 2}
    assert orders.count("StopReplica") == 4 and orders.count("UpdateMetadata") == 7
    assert driven.manager.by_key == {} and driven.metadata.topics == {}
    assert driven.broker.failed == []


def test_recorded_fetches_of_a_kafka_follower_are_served(driven: Driven) -> None:
    frames = recorded()
    for _, _, frame in frames[:3]:
        driven.frame(frame)
    fetch = driven.open()
    assert driven.frame(frames[3][2], fetch) is None  # no records yet: parked
    driven.broker.clock.now_ms += 500
    driven.broker.tick()
    (reply,) = [e for e in driven.outbox.drain() if isinstance(e, Reply)]
    data = b"".join(bytes(part) for part in reply.parts)
    _, response = api.parse_response(api.ApiKey.FETCH, 17, data[4:])
    (partition,) = response.responses[0].partitions  # type: ignore[attr-defined]
    assert (partition.partition_index, partition.error_code) == (1, 0)


def test_a_foreign_controller_need_not_wait_for_a_registration(driven: Driven) -> None:
    assert driven.ready and driven.manager.broker_epoch == BROKER_EPOCH
    assert driven.broker.address_of(1) == ("127.0.0.1", 22092)
    assert driven.broker.outbox.drain() == []


def metadata_answers(driven: Driven) -> list[Any]:
    """The responses to Metadata v12 since the last call."""
    replies = [effect for effect in driven.outbox.drain() if isinstance(effect, Reply)]
    datas = [b"".join(bytes(part) for part in reply.parts)[4:] for reply in replies]
    return [api.parse_response(api.ApiKey.METADATA, 12, data)[1] for data in datas]


def update_metadata(version: int) -> bytes:
    """The frame of the controller's first UpdateMetadata."""
    parts = api.encode_request(
        api.ApiKey.UPDATE_METADATA, version, 7, "test", metadata_request(version)
    )
    return b"".join(bytes(part) for part in parts)[4:]


def test_metadata_is_parked_before_the_first_update_metadata(driven: Driven) -> None:
    client = driven.open()
    question = MetadataRequest(
        topics=[MetadataRequestTopic(name="t")], allow_auto_topic_creation=False
    )
    parts = api.encode_request(api.ApiKey.METADATA, 12, 7, "test", question)
    frame = b"".join(bytes(part) for part in parts)[4:]
    assert driven.frame(frame, client) is None
    driven.broker.clock.now_ms += 1000
    driven.broker.tick()
    assert metadata_answers(driven) == []
    driven.broker.receive_frame(driven.open(), update_metadata(8))
    replies = [effect for effect in driven.outbox.drain() if isinstance(effect, Reply)]
    (reply,) = [reply for reply in replies if reply.connection == client]
    data = b"".join(bytes(part) for part in reply.parts)[4:]
    answer: Any = api.parse_response(api.ApiKey.METADATA, 12, data)[1]
    assert [(topic.name, topic.error_code) for topic in answer.topics] == [("t", 0)]
    assert driven.frame(frame, client).topics[0].error_code == 0


def test_metadata_is_answered_eventually_without_update_metadata(
    driven: Driven,
) -> None:
    request = MetadataRequest(topics=None, allow_auto_topic_creation=False)
    assert driven.ask(request, 12) is None
    driven.broker.clock.now_ms += driven.broker.config.request_timeout_ms
    driven.broker.tick()
    (answer,) = metadata_answers(driven)
    assert (answer.brokers, answer.topics) == ([], [])
    assert driven.broker.next_deadline_ms() != driven.broker.clock.now_ms


def test_orders_for_another_incarnation_or_of_an_old_controller_are_refused(
    driven: Driven,
) -> None:
    update = UpdateMetadataRequest(controller_epoch=5, broker_epoch=BROKER_EPOCH)
    assert driven.ask(update, 8).error_code == 0
    for version in range(5, 9):
        stale = UpdateMetadataRequest(controller_epoch=5, broker_epoch=BROKER_EPOCH - 1)
        assert driven.ask(stale, version).error_code == ErrorCode.STALE_BROKER_EPOCH
    for version in range(9):
        old = UpdateMetadataRequest(controller_epoch=4)
        assert driven.ask(old, version).error_code == ErrorCode.STALE_CONTROLLER_EPOCH
    for version in range(5):
        stop = StopReplicaRequest(controller_epoch=4)
        assert driven.ask(stop, version).error_code == ErrorCode.STALE_CONTROLLER_EPOCH
    for version in range(8):
        order = LeaderAndIsrRequest(controller_epoch=4)
        assert driven.ask(order, version).error_code == ErrorCode.STALE_CONTROLLER_EPOCH


def metadata_request(version: int) -> UpdateMetadataRequest:
    state = UpdateMetadataPartitionState(
        topic_name="t", controller_epoch=1, leader=2, isr=[2, 3], replicas=[2, 3]
    )
    request = UpdateMetadataRequest(controller_epoch=1, controller_id=3)
    for broker_id in (2, 3):
        broker = UpdateMetadataBroker(id=broker_id, rack=None)
        if version == 0:
            broker.v0_host, broker.v0_port = f"host{broker_id}", 9000 + broker_id
        else:
            broker.endpoints = [
                UpdateMetadataEndpoint(
                    port=9000 + broker_id,
                    host=f"host{broker_id}",
                    listener="PLAINTEXT" if version >= 3 else "",
                )
            ]
        request.live_brokers.append(broker)
    if version < 5:
        request.ungrouped_partition_states = [state]
    else:
        state.topic_name = ""
        request.topic_states = [
            UpdateMetadataTopicState(topic_name="t", topic_id=TOPIC_ID, partition_states=[state])
        ]
    return request


@pytest.mark.parametrize("version", range(9))
def test_every_version_of_update_metadata_fills_the_cache(driven: Driven, version: int) -> None:
    assert driven.ask(metadata_request(version), version).error_code == 0
    endpoint = driven.metadata.endpoint(3, "PLAINTEXT")
    assert (endpoint.host, endpoint.port) == ("host3", 9003)
    assert driven.metadata.partition("t", 0).isr == [2, 3]
    assert driven.metadata.topic_id("t") == (TOPIC_ID if version >= 7 else bytes(16))


@pytest.mark.parametrize("version", range(8))
def test_every_version_of_leader_and_isr_makes_a_leader(driven: Driven, version: int) -> None:
    driven.ask(metadata_request(8), 8)
    state = LeaderAndIsrPartitionState(
        topic_name="t" if version < 2 else "",
        controller_epoch=1,
        leader=2,
        isr=[2, 3],
        replicas=[2, 3],
        is_new=version >= 1,
    )
    request = LeaderAndIsrRequest(controller_id=3, controller_epoch=1)
    if version < 2:
        request.ungrouped_partition_states = [state]
    else:
        topic_id = TOPIC_ID if version >= 5 else bytes(16)
        request.topic_states = [
            LeaderAndIsrTopicState(topic_name="t", topic_id=topic_id, partition_states=[state])
        ]
    response = driven.ask(request, version)
    errors = response.topics[0].partition_errors if version >= 5 else response.partition_errors
    assert [e.error_code for e in errors] == [0]
    assert driven.manager.by_key["t", 0].is_leader


@pytest.mark.parametrize("version", range(5))
def test_every_version_of_stop_replica_deletes(driven: Driven, version: int) -> None:
    test_every_version_of_leader_and_isr_makes_a_leader(driven, 7)
    request = StopReplicaRequest(controller_epoch=1, delete_partitions=version < 3)
    if version == 0:
        request.ungrouped_partitions = [StopReplicaPartitionV0(topic_name="t")]
    elif version < 3:
        request.topics = [StopReplicaTopicV1(name="t", partition_indexes=[0])]
    else:
        state = StopReplicaPartitionState(leader_epoch=0, delete_partition=True)
        request.topic_states = [StopReplicaTopicState(topic_name="t", partition_states=[state])]
    response = driven.ask(request, version)
    (answer,) = response.partition_errors
    assert (answer.topic_name, answer.partition_index, answer.error_code) == ("t", 0, 0)
    assert driven.manager.by_key == {}


def envelope(principal: bytes | None, *resources: AlterConfigsResource) -> EnvelopeRequest:
    inner = AlterConfigsRequest(resources=list(resources))
    parts = api.encode_request(api.ApiKey.ALTER_CONFIGS, 2, 9, None, inner)
    return EnvelopeRequest(
        request_data=b"".join(parts)[4:], request_principal=principal, client_host_address=b""
    )


def overrides(kind: int, name: str, **configs: str) -> AlterConfigsResource:
    pairs = [AlterableConfig(name=k.replace("_", "."), value=v) for k, v in configs.items()]
    return AlterConfigsResource(resource_type=kind, resource_name=name, configs=pairs)


def test_configurations_of_the_controller_replace_earlier_ones(driven: Driven) -> None:
    test_every_version_of_leader_and_isr_makes_a_leader(driven, 7)
    principal = controller_principal(1000, 1, BROKER_EPOCH)
    request = envelope(
        principal,
        overrides(TOPIC_RESOURCE, "t", retention_ms="5000", segment_bytes="1000000"),
        overrides(BROKER_RESOURCE, "", log_retention_ms="7000"),
        overrides(BROKER_RESOURCE, "2", log_retention_ms="zero"),
    )
    response = driven.ask(request, 0)
    assert response.error_code == 0
    _, inner = api.parse_response(api.ApiKey.ALTER_CONFIGS, 2, response.response_data)
    assert isinstance(inner, AlterConfigsResponse)
    codes = [answer.error_code for answer in inner.responses]
    assert codes == [0, 0, ErrorCode.INVALID_CONFIG]
    log = driven.manager.by_key["t", 0].log
    assert (log.config.retention_ms, log.config.segment_bytes) == (5000, 1000000)
    driven.ask(envelope(principal, overrides(TOPIC_RESOURCE, "t")), 0)
    assert log.config.retention_ms != 5000 and log.config.segment_bytes != 1000000


def test_a_list_of_all_configurations_clears_those_not_named(driven: Driven) -> None:
    test_every_version_of_leader_and_isr_makes_a_leader(driven, 7)
    resources = [
        overrides(TOPIC_RESOURCE, "t", retention_ms="5000"),
        overrides(TOPIC_RESOURCE, "u", retention_ms="5000"),
        overrides(BROKER_RESOURCE, "", log_retention_ms="7000"),
    ]
    driven.ask(envelope(controller_principal(1000, 1, BROKER_EPOCH), *resources), 0)
    everything = controller_principal(1000, 1, BROKER_EPOCH, is_full=True)
    driven.ask(envelope(everything, resources[1]), 0)
    assert driven.metadata.configured() == [(TOPIC_RESOURCE, "u")]
    log = driven.manager.by_key["t", 0].log
    assert log.config.retention_ms not in (5000, 7000)


def test_configurations_of_other_senders_are_refused(driven: Driven) -> None:
    driven.ask(metadata_request(8), 8)
    resource = overrides(TOPIC_RESOURCE, "t", retention_ms="5000")
    for principal, error in (
        (None, ErrorCode.CLUSTER_AUTHORIZATION_FAILED),
        (b"User:alice", ErrorCode.CLUSTER_AUTHORIZATION_FAILED),
        (controller_principal(1000, 0, BROKER_EPOCH), ErrorCode.STALE_CONTROLLER_EPOCH),
    ):
        assert driven.ask(envelope(principal, resource), 0).error_code == error
    good = controller_principal(1000, 1, BROKER_EPOCH)
    for data in (b"", b"\0\0\0", b"\0\x03\0\0\0\0\0\0\xff\xff"):
        request = EnvelopeRequest(
            request_data=data, request_principal=good, client_host_address=b""
        )
        assert driven.ask(request, 0).error_code == ErrorCode.INVALID_REQUEST
    assert driven.metadata.topic_config("t") == {}


def test_configurations_for_an_earlier_registration_are_stale(driven: Driven) -> None:
    driven.manager.broker_epoch = BROKER_EPOCH
    resource = overrides(TOPIC_RESOURCE, "t", retention_ms="5000")
    now = controller_principal(1000, 1, BROKER_EPOCH)
    assert driven.ask(envelope(now, resource), 0).error_code == 0
    late = controller_principal(1000, 1, BROKER_EPOCH - 1, is_full=True)  # it lists no topic
    assert driven.ask(envelope(late), 0).error_code == ErrorCode.STALE_BROKER_EPOCH
    assert driven.metadata.topic_config("t") == {"retention.ms": "5000"}


def test_a_kafka_cluster_sees_the_control_plane_and_admin_requests_are_refused(
    driven: Driven,
) -> None:
    versions = ApiVersionsRequest(client_software_name="x", client_software_version="1")
    keys = {entry.api_key for entry in driven.ask(versions, 3).api_keys}
    assert {4, 5, 6} <= keys and 58 not in keys
    request = CreateTopicsRequest(topics=[CreatableTopic(name="t", num_partitions=1)])
    (result,) = driven.ask(request, 7).topics
    assert (result.name, result.error_code) == ("t", ErrorCode.NOT_CONTROLLER)


STRANGERS = (
    (LeaderAndIsrRequest(controller_epoch=2**31 - 1), 7),
    (StopReplicaRequest(controller_epoch=2**31 - 1), 3),
    (UpdateMetadataRequest(controller_epoch=2**31 - 1), 8),
    (envelope(controller_principal(1000, 2**31 - 1, -1)), 0),
    (envelope(b"User:alice"), 0),
)


@pytest.mark.parametrize(("order", "version"), STRANGERS, ids=lambda each: type(each).__name__)
def test_orders_without_this_brokers_epoch_close_the_connection_and_plant_nothing(
    closed: Driven, order: Any, version: int
) -> None:
    assert str(closed.ask(order, version)).endswith(" is served to the controller only")
    assert closed.manager.controller_epoch < 1


@pytest.mark.parametrize(("order", "version"), STRANGERS[:3], ids=lambda each: type(each).__name__)
@pytest.mark.parametrize("broker_epoch", [BROKER_EPOCH - 1, BROKER_EPOCH + 1, 2**62])
def test_orders_with_another_epoch_are_stale(
    closed: Driven, order: Any, version: int, broker_epoch: int
) -> None:
    request = type(order)(controller_epoch=2**31 - 1, broker_epoch=broker_epoch)
    assert closed.ask(request, version).error_code == ErrorCode.STALE_BROKER_EPOCH
    stale = controller_principal(1000, 2**31 - 1, broker_epoch)
    assert closed.ask(envelope(stale), 0).error_code == ErrorCode.STALE_BROKER_EPOCH
    assert closed.manager.controller_epoch < 1


def test_orders_on_a_listener_of_clients_close_the_connection(closed: Driven) -> None:
    closed.open("EXTERNAL")
    order = UpdateMetadataRequest(controller_epoch=5, broker_epoch=BROKER_EPOCH)
    assert str(closed.ask(order, 8)).endswith(" is served to the controller only")
    closed.open()
    assert closed.ask(order, 8).error_code == 0


@pytest.mark.parametrize(("order", "version"), STRANGERS, ids=lambda each: type(each).__name__)
def test_a_standalone_broker_takes_orders_from_nobody_but_by_its_key(
    order: Any, version: int
) -> None:
    for key, closes in (("false", True), ("true", False)):
        outbox = Outbox()
        config = BrokerConfig({ANY_CONTROLLER_KEY: key})
        broker = Broker(config, MemoryLogStore(), Clock(1000, 1), outbox, Random(1))
        broker.start([Endpoint("PLAINTEXT", "127.0.0.1", 9092)])
        broker.connection_opened(1, "PLAINTEXT", "127.0.0.1")
        parts = api.encode_request(api.key_of(order), version, 7, "test", order)
        broker.receive_frame(1, b"".join(bytes(part) for part in parts)[4:])
        kinds = [type(effect) for effect in outbox.drain() if isinstance(effect, Close | Reply)]
        assert kinds == [Close if closes else Reply]


# ---- topics that a broker of a cluster has created


class Creations:
    """In place of `TopicCreation`: what is asked of the controller, and when it is done."""

    def __init__(self, driven: Driven) -> None:
        self.names: list[list[str]] = []
        self.done: list[Any] = []
        driven.broker.member.topic_creation = self  # type: ignore[union-attr,assignment]

    def create(self, names: Any, on_done: Any, *client: Any) -> None:
        assert client in ((), ("test", "127.0.0.1", "User:ANONYMOUS"))
        self.names.append(sorted(names))
        self.done.append(on_done)


def metadata_of(*names: str, **fields: Any) -> MetadataRequest:
    return MetadataRequest(topics=[MetadataRequestTopic(name=name) for name in names], **fields)


def test_unknown_topics_are_created_by_the_controller_before_the_answer(driven: Driven) -> None:
    driven.ask(metadata_request(8), 8)
    creations = Creations(driven)
    by_id = MetadataRequestTopic(name=None, topic_id=b"u" * 16)
    request = metadata_of("new", "t", "a b")
    both = MetadataRequestTopic(name="both", topic_id=b"v" * 16)
    request.topics += [by_id, both]
    assert driven.ask(request, 12) is None
    assert creations.names == [["new"]]
    creations.done.pop()()
    (answer,) = metadata_answers(driven)
    assert [(topic.name, topic.error_code) for topic in answer.topics] == [
        ("new", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("t", 0),
        ("a b", ErrorCode.INVALID_TOPIC_EXCEPTION),
        (None, ErrorCode.UNKNOWN_TOPIC_ID),
        (None, ErrorCode.UNKNOWN_TOPIC_ID),
    ]


def test_without_a_wait_the_answer_comes_first(driven: Driven) -> None:
    driven.ask(metadata_request(8), 8)
    creations = Creations(driven)
    driven.broker.config.static["kwire.topic.creation.waits"] = "false"
    (topic,) = driven.ask(metadata_of("new"), 12).topics
    assert topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert creations.names == [["new"]]
    creations.done.pop()()  # nobody waits for it


@pytest.mark.parametrize(("version", "creates"), [(3, True), (4, False), (12, False)])
def test_the_client_may_forbid_the_creation_from_version_4_on(
    driven: Driven, version: int, creates: bool
) -> None:
    driven.ask(metadata_request(8), 8)
    creations = Creations(driven)
    driven.ask(
        metadata_of("new", **({"allow_auto_topic_creation": False} if version > 3 else {})), version
    )
    assert creations.names == ([["new"]] if creates else [])


def test_the_topic_of_coordinators_is_created_by_the_controller(driven: Driven) -> None:
    driven.ask(metadata_request(8), 8)
    creations = Creations(driven)
    assert driven.ask(FindCoordinatorRequest(key="g"), 3) is None
    assert creations.names == [["__consumer_offsets"]]
    driven.open()
    driven.broker.config.static["kwire.topic.creation.waits"] = "false"
    answer = driven.ask(FindCoordinatorRequest(key="g"), 3)
    assert answer.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert creations.names == [["__consumer_offsets"]] * 2


def test_metadata_waits_while_a_leader_is_in_doubt(driven: Driven) -> None:
    driven.ask(metadata_request(8), 8)
    driven.broker.channel_lost(3, "fetcher")
    assert driven.ask(metadata_of("t"), 12) is None
    driven.broker.clock.now_ms += 150
    driven.broker.tick()
    (answer,) = metadata_answers(driven)
    assert answer.topics[0].error_code == 0


# ---- before the registration


@pytest.mark.parametrize("open_to_all", [False, True])
def test_orders_wait_for_the_registration(open_to_all: bool) -> None:
    driven = Driven(open_to_all=open_to_all, broker_epoch=None)
    member = driven.broker.member
    assert member is not None and not member.is_registered
    epoch = next_broker_epoch(0, member.link.incarnation_id)
    order = UpdateMetadataRequest(controller_epoch=5, broker_epoch=epoch)
    assert driven.ask(order, 8) is None
    assert driven.manager.controller_epoch < 5
    member._on_registered(epoch)
    assert driven.manager.controller_epoch == 5
    assert any(isinstance(effect, Reply) for effect in driven.outbox.drain())


def test_an_endpoint_of_an_unknown_protocol_has_no_listener_by_its_number(driven: Driven) -> None:
    request = metadata_request(2)
    request.live_brokers[0].endpoints[0].security_protocol = 9
    assert driven.ask(request, 2).error_code == 0
    assert driven.metadata.endpoint(3, "PLAINTEXT") is not None
    assert driven.metadata.endpoint(2, "PLAINTEXT") is None


def test_an_envelope_with_another_request_is_refused(driven: Driven) -> None:
    driven.ask(metadata_request(8), 8)
    # even one whose bytes would do
    other = IncrementalAlterConfigsRequest()
    parts = api.encode_request(api.ApiKey.INCREMENTAL_ALTER_CONFIGS, 0, 7, "controller", other)
    request = EnvelopeRequest(
        request_data=b"".join(bytes(part) for part in parts)[4:],
        request_principal=controller_principal(1000, 1, BROKER_EPOCH),
        client_host_address=b"",
    )
    assert driven.ask(request, 0).error_code == ErrorCode.INVALID_REQUEST


# ---- requests that are forwarded


def test_answers_of_the_controller_and_of_this_broker_are_in_the_order_of_the_request(
    driven: Driven,
) -> None:
    resources = [
        IncrementalAlterConfigsResource(
            resource_type=kind, resource_name="t", configs=[IncrementalAlterableConfig(name="k")]
        )
        for kind in (TOPIC_RESOURCE, 77)
    ]
    answers = driven.ask(IncrementalAlterConfigsRequest(resources=resources), 1).responses
    assert [(each.resource_type, each.error_code) for each in answers] == [
        (TOPIC_RESOURCE, ErrorCode.NOT_CONTROLLER),
        (77, ErrorCode.INVALID_REQUEST),
    ]


def test_the_controller_learns_who_the_client_is(driven: Driven) -> None:
    seen: list[dict[str, Any]] = []
    member = driven.broker.member
    assert member is not None
    member.link.forward = lambda *_, **client: seen.append(client)  # type: ignore[method-assign]
    driven.ask(CreateTopicsRequest(topics=[CreatableTopic(name="t")]), 7)
    assert seen == [
        {"client_id": "test", "client_host": "127.0.0.1", "principal": "User:ANONYMOUS"}
    ]


def test_an_answer_of_this_nodes_controller_waits_until_it_is_durable(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    outbox = Outbox()
    broker = Broker(BrokerConfig({}), MemoryLogStore(), Clock(1000, 1), outbox, Random(1))
    broker.start([Endpoint("PLAINTEXT", "127.0.0.1", 9092)])
    held: list[Any] = []
    controller = broker.services.controller
    monkeypatch.setattr(type(controller), "when_durable", lambda _, callback: held.append(callback))
    broker.connection_opened(1, "PLAINTEXT", "127.0.0.1")
    request = CreateTopicsRequest(topics=[CreatableTopic(name="t")])
    parts = api.encode_request(api.ApiKey.CREATE_TOPICS, 7, 7, "test", request)
    broker.receive_frame(1, b"".join(bytes(part) for part in parts)[4:])
    assert not any(isinstance(effect, Reply) for effect in outbox.drain())
    held.pop()()
    assert any(isinstance(effect, Reply) for effect in outbox.drain())


@pytest.mark.parametrize(("broker_epoch", "level"), [(BROKER_EPOCH, 0), (None, 2)])
def test_among_brokers_of_kafka_3_transactions_are_those_of_3_9(
    broker_epoch: int | None, level: int
) -> None:
    """A client of 4.x would otherwise leave AddPartitionsToTxn out at the others, too."""
    services = Driven(broker_epoch=broker_epoch).broker.services
    assert transaction_version(services.api_ranges) == level
    assert services.transactions.transaction_version == level
