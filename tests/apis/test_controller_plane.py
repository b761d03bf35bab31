"""A controller node without sockets: requests of brokers, as frames, and its orders."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from event_recorder import Recorder

from kwire.controller_node import ControllerNode
from kwire.protocol import api
from kwire.protocol.errors import ErrorCode
from kwire.protocol.schemas.api_versions import ApiVersionsRequest
from kwire.protocol.schemas.cluster import DescribeClusterRequest
from kwire.protocol.schemas.control_plane import (
    AllocateProducerIdsRequest,
    ControlledShutdownRequest,
    EnvelopeRequest,
)
from kwire.protocol.schemas.metadata import MetadataRequest
from kwire.protocol.schemas.nodes import (
    BrokerHeartbeatRequest,
    BrokerRegistrationRequest,
    Listener,
    UnregisterBrokerRequest,
)
from kwire.protocol.schemas.quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasRequestEntryData,
    EntityData,
    OpData,
)
from kwire.protocol.schemas.topics import CreatableTopic, CreateTopicsRequest
from kwire.replication.config.broker_config import BrokerConfig
from kwire.replication.core.clock import Clock
from kwire.replication.core.memory_log_store import MemoryLogStore
from kwire.replication.core.metadata import Endpoint
from kwire.replication.core.outbox import Close, Log, Outbox, Reply, Send
from kwire.replication.core.principals import principal_bytes


class Rig:
    """The controller; a connection for each broker; the orders it has sent."""

    def __init__(
        self,
        store: MemoryLogStore | None = None,
        node_id: int = 1000,
        clock: Clock | None = None,
        **options: Any,
    ) -> None:
        self.clock = clock or Clock(now_ms=1000, wall_ms=1_700_000_000_000)
        self.outbox = Outbox(self.clock)
        self._logged = Recorder()
        self.store = store or MemoryLogStore()
        self.node = ControllerNode(
            BrokerConfig({"node.id": str(node_id)}, brokers=2),
            self.store,
            self.clock,
            self.outbox,
            Random(1),
            cluster_id="cluster",
            **options,
        )
        self.node.start([Endpoint("PLAINTEXT", "here", 9090)])
        self.connections = 0
        self.orders: list[Send] = []
        self.replies: dict[int, bytes] = {}
        self.closed: list[str] = []
        self.epochs: dict[int, int] = {}

    def open(self) -> int:
        self.connections += 1
        self.node.connection_opened(self.connections, "PLAINTEXT", "10.0.0.1")
        return self.connections

    def drain(self) -> None:
        for effect in self.outbox.drain():
            if isinstance(effect, Send):
                self.orders.append(effect)
            elif isinstance(effect, Reply):
                self.replies[effect.connection] = b"".join(bytes(p) for p in effect.parts)[4:]
            elif isinstance(effect, Close):
                self.closed.append(effect.reason)
            elif isinstance(effect, Log):
                self._logged.add(effect)

    @property
    def logged(self) -> Recorder:
        self.drain()
        return self._logged

    def ask(self, request: Any, version: int, connection: int | None = None) -> Any:
        """The answer; None when it is held back."""
        connection = connection or self.open()
        key = api.key_of(request)
        parts = api.encode_request(key, version, 7, "broker", request)
        self.node.receive_frame(connection, b"".join(bytes(p) for p in parts)[4:])
        return self.reply(connection, key, version)

    def reply(self, connection: int, key: int, version: int) -> Any:
        self.drain()
        frame = self.replies.pop(connection, None)
        return None if frame is None else api.parse_response(key, version, frame)[1]

    def acknowledge(self) -> list[str]:
        """Answers all orders, and those that follow; their names."""
        names = []
        self.drain()
        while self.orders:
            order = self.orders.pop(0)
            header = api.parse_request_header(b"".join(bytes(p) for p in order.parts)[4:])
            names.append(f"{api.ApiKey(header.api_key).api_name} to {order.node}")
            response = api.response_class(header.api_key)()
            parts = api.encode_response(
                header.api_key, header.api_version, order.correlation, response
            )
            self.node.respond(order.correlation, b"".join(bytes(p) for p in parts)[4:])
            self.drain()
        return names

    def register(self, broker_id: int, connection: int | None = None, **fields: Any) -> Any:
        request = BrokerRegistrationRequest(
            broker_id=broker_id,
            cluster_id="cluster",
            incarnation_id=bytes([broker_id]) * 16,
            listeners=[Listener(name="PLAINTEXT", host=f"h{broker_id}", port=9000 + broker_id)],
        )
        for name, value in fields.items():
            setattr(request, name, value)
        response = self.ask(request, 4, connection)
        if response is not None:
            self.epochs[broker_id] = response.broker_epoch
        return response

    def pass_time(self, milliseconds: int) -> None:
        self.clock.now_ms += milliseconds
        self.node.tick()
        self.drain()


@pytest.fixture
def rig() -> Rig:
    rig = Rig()
    rig.register(1)
    rig.register(2)
    rig.acknowledge()
    return rig


def envelope(request: Any, version: int) -> EnvelopeRequest:
    parts = api.encode_request(api.key_of(request), version, 3, "client", request)
    return EnvelopeRequest(
        request_data=b"".join(bytes(p) for p in parts)[4:],
        request_principal=None,
        client_host_address=b"",
    )


CREATE = CreateTopicsRequest(
    topics=[CreatableTopic(name="t", num_partitions=1, replication_factor=2)], timeout_ms=5000
)


def test_a_forwarded_request_counts_for_the_quota_of_its_sender(rig: Rig) -> None:
    entry = AlterClientQuotasRequestEntryData(
        entity=[EntityData(entity_type="user", entity_name="alice")],
        ops=[OpData(key="controller_mutation_rate", value=1.0)],
    )
    rig.ask(AlterClientQuotasRequest(entries=[entry]), 1)
    rig.acknowledge()
    codes = []
    for number, sender in enumerate(("User:alice", "User:alice", "User:bob", "")):
        topic = CreatableTopic(name=f"t{number}", num_partitions=12, replication_factor=1)
        request = envelope(CreateTopicsRequest(topics=[topic], timeout_ms=0), 7)
        request.request_principal = principal_bytes(sender)
        connection = rig.open()
        answer = rig.ask(request, 0, connection)
        if answer is None:  # the brokers get a topic first
            rig.acknowledge()
            answer = rig.reply(connection, api.ApiKey.ENVELOPE, 0)
        _, response = api.parse_response(api.ApiKey.CREATE_TOPICS, 7, answer.response_data)
        codes.append((response.topics[0].error_code, response.throttle_time_ms))
    exceeded = ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert codes == [(0, 0), (exceeded, 1000), (0, 0), (0, 0)]
    broken = envelope(CREATE, 7)
    broken.request_principal = b"?"
    assert rig.ask(broken, 0).error_code == ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE


def test_a_registered_broker_gets_update_metadata_at_its_listener() -> None:
    rig = Rig()
    connection = rig.open()
    response = rig.register(1, connection)
    assert response.error_code == 0 and response.broker_epoch > 0
    assert "UpdateMetadata to 1" in rig.acknowledge()
    assert rig.node.address_of(1) == ("h1", 9001) and rig.node.address_of(9) is None
    again = rig.register(2)
    assert again.broker_epoch > response.broker_epoch
    assert {"UpdateMetadata to 1", "UpdateMetadata to 2"} <= set(rig.acknowledge())
    beat = BrokerHeartbeatRequest(broker_id=1, broker_epoch=response.broker_epoch)
    assert rig.ask(beat, 1, connection).error_code == 0
    stale = BrokerHeartbeatRequest(broker_id=1, broker_epoch=response.broker_epoch - 1)
    assert rig.ask(stale, 1).error_code == ErrorCode.STALE_BROKER_EPOCH


def test_a_broker_of_another_cluster_is_refused(rig: Rig) -> None:
    response = rig.register(3, cluster_id="other")
    assert response.error_code == ErrorCode.INCONSISTENT_CLUSTER_ID


def test_a_broker_is_fenced_some_time_after_its_connection_ends_unless_it_returns() -> None:
    rig = Rig()
    connection = rig.open()
    epoch = rig.register(1, connection).broker_epoch
    rig.node.connection_closed(connection)
    rig.pass_time(29)
    beat = BrokerHeartbeatRequest(broker_id=1, broker_epoch=epoch)
    assert rig.ask(beat, 1).error_code == 0
    rig.pass_time(1000)
    assert 1 in rig.node.controller.brokers
    rig.node.connection_closed(rig.connections)
    rig.pass_time(30)
    assert rig.node.controller.brokers == {}
    assert rig.ask(beat, 1).error_code != 0


def test_a_stranger_that_took_a_brokers_id_keeps_it_no_longer_than_its_connection(rig: Rig) -> None:
    """At a controller's own port anybody may register a free id, as in Kafka; then the true broker comes."""
    connection = rig.open()
    strange = rig.register(7, connection, incarnation_id=b"s" * 16, previous_broker_epoch=2**63 - 1)
    assert strange.error_code == 0
    rig.acknowledge()
    beat = BrokerHeartbeatRequest(broker_id=7, broker_epoch=2**63 - 1)
    assert rig.ask(beat, 1, connection).error_code == ErrorCode.STALE_BROKER_EPOCH
    assert rig.register(7).error_code == ErrorCode.DUPLICATE_BROKER_REGISTRATION
    rig.node.connection_closed(connection)
    true = rig.register(7)
    assert true.error_code == 0 and true.broker_epoch > strange.broker_epoch
    beat = BrokerHeartbeatRequest(broker_id=7, broker_epoch=strange.broker_epoch)
    assert rig.ask(beat, 1).error_code == ErrorCode.STALE_BROKER_EPOCH
    beat = BrokerHeartbeatRequest(broker_id=7, broker_epoch=true.broker_epoch)
    assert rig.ask(beat, 1).error_code == 0
    assert "UpdateMetadata to 7" in rig.acknowledge()


def test_a_stranger_cannot_take_the_id_of_a_live_broker(rig: Rig) -> None:
    epochs = {broker.id: broker.epoch for broker in rig.node.controller.brokers.values()}
    beat = BrokerHeartbeatRequest(broker_id=1, broker_epoch=epochs[1])
    assert rig.ask(beat, 1).error_code == 0
    refused = rig.register(1, incarnation_id=b"s" * 16)
    assert refused.error_code == ErrorCode.DUPLICATE_BROKER_REGISTRATION
    assert refused.broker_epoch == -1
    assert {broker.id: broker.epoch for broker in rig.node.controller.brokers.values()} == epochs


def test_a_forwarded_request_is_answered_when_every_live_broker_knows(rig: Rig) -> None:
    connection = rig.open()
    assert rig.ask(envelope(CREATE, 7), 0, connection) is None
    names = rig.acknowledge()
    assert "LeaderAndIsr to 1" in names and "UpdateMetadata to 2" in names
    response = rig.reply(connection, api.ApiKey.ENVELOPE, 0)
    assert response.error_code == 0
    correlation_id, inner = api.parse_response(19, 7, response.response_data)
    assert correlation_id == 3 and inner.topics[0].error_code == 0  # type: ignore[attr-defined]


def test_a_broker_that_does_not_answer_holds_a_request_back_no_longer_than_its_time(
    rig: Rig,
) -> None:
    connection = rig.open()
    assert rig.ask(envelope(CREATE, 7), 0, connection) is None
    rig.pass_time(4999)
    assert rig.reply(connection, api.ApiKey.ENVELOPE, 0) is None
    rig.pass_time(1)
    assert rig.reply(connection, api.ApiKey.ENVELOPE, 0).error_code == 0


@pytest.mark.parametrize(
    ("request_data", "error"),
    [
        (b"", ErrorCode.INVALID_REQUEST),
        (b"\x00\x13\x00\x07\x00\x00\x00\x00\xff\xff\x00\x7f", ErrorCode.INVALID_REQUEST),
        (b"\x00\x13\x00\x63\x00\x00\x00\x00\xff\xff\x00", ErrorCode.UNSUPPORTED_VERSION),
        (b"\x00\x03\x00\x0c\x00\x00\x00\x00\xff\xff\x00", ErrorCode.INVALID_REQUEST),
        (b"\x00\x3a\x00\x00\x00\x00\x00\x00\xff\xff\x00", ErrorCode.INVALID_REQUEST),
    ],
    ids=["nothing", "cut off", "version 99", "Metadata", "an envelope"],
)
def test_an_envelope_with_anything_else_is_refused(
    rig: Rig, request_data: bytes, error: ErrorCode
) -> None:
    request = EnvelopeRequest(
        request_data=request_data, request_principal=None, client_host_address=b""
    )
    assert rig.ask(request, 0).error_code == error
    assert rig.closed == []


def test_blocks_of_producer_ids_do_not_overlap_even_after_a_restart(rig: Rig) -> None:
    epochs = {b.id: b.epoch for b in rig.node.controller.brokers.values()}
    blocks = []
    for broker_id in (1, 2, 1):
        request = AllocateProducerIdsRequest(broker_id=broker_id, broker_epoch=epochs[broker_id])
        response = rig.ask(request, 0)
        assert (response.error_code, response.producer_id_len) == (0, 1000)
        blocks.append(response.producer_id_start)
    rig.node.close()
    later = Rig(rig.store)
    epoch = later.register(1).broker_epoch
    request = AllocateProducerIdsRequest(broker_id=1, broker_epoch=epoch)
    blocks.append(later.ask(request, 0).producer_id_start)
    assert len(set(blocks)) == 4
    assert all(abs(a - b) >= 1000 for a in blocks for b in blocks if a != b)
    stale = AllocateProducerIdsRequest(broker_id=1, broker_epoch=epoch - 1)
    assert later.ask(stale, 0).error_code == ErrorCode.STALE_BROKER_EPOCH


@pytest.mark.parametrize("version", range(4))
def test_controlled_shutdown_is_answered_in_every_version(rig: Rig, version: int) -> None:
    request = ControlledShutdownRequest(broker_id=1, broker_epoch=rig.epochs[1])
    own = rig.ask(request, version).error_code
    # Versions 0 and 1 have no epoch: anybody could shut a broker down with them.
    assert own == (ErrorCode.NONE if version >= 2 else ErrorCode.STALE_BROKER_EPOCH)
    for epoch in (-1, rig.epochs[1] + 1):
        other = ControlledShutdownRequest(broker_id=1, broker_epoch=epoch)
        assert rig.ask(other, version).error_code == ErrorCode.STALE_BROKER_EPOCH
    unknown = ControlledShutdownRequest(broker_id=7)
    assert rig.ask(unknown, version).error_code == ErrorCode.BROKER_NOT_AVAILABLE


def test_the_cluster_and_the_controller_are_described(rig: Rig) -> None:
    response = rig.ask(DescribeClusterRequest(), 0)
    assert (response.cluster_id, response.controller_id) == ("cluster", 1000)
    assert [b.broker_id for b in response.brokers] == [1, 2]
    response = rig.ask(DescribeClusterRequest(endpoint_type=2), 1)
    assert [(b.broker_id, b.host, b.port) for b in response.brokers] == [(1000, "here", 9090)]
    response = rig.ask(DescribeClusterRequest(endpoint_type=3), 1)
    assert response.error_code == ErrorCode.UNSUPPORTED_ENDPOINT_TYPE


def test_api_versions_lists_its_apis_and_broker_apis_close_the_connection(rig: Rig) -> None:
    request = ApiVersionsRequest(client_software_name="x", client_software_version="1")
    keys = {entry.api_key for entry in rig.ask(request, 3).api_keys}
    assert {7, 18, 19, 56, 58, 60, 62, 63, 64, 67} <= keys and not {0, 1, 3} & keys
    assert rig.ask(MetadataRequest(), 12) is None
    assert rig.closed == ["API (key 3) version 12 is not supported"]


def test_a_broker_that_never_was_cannot_be_unregistered(rig: Rig) -> None:
    response = rig.ask(UnregisterBrokerRequest(broker_id=9), 0)
    assert response.error_code == ErrorCode.BROKER_ID_NOT_REGISTERED
    assert rig.node.failed == []


def test_the_directory_of_another_node_or_cluster_is_refused(rig: Rig) -> None:
    rig.node.close()
    for node_id, cluster_id in (("1000", "other"), ("1001", "cluster")):
        node = ControllerNode(
            BrokerConfig({"node.id": node_id}),
            rig.store,
            rig.clock,
            Outbox(),
            Random(1),
            cluster_id=cluster_id,
        )
        with pytest.raises(OSError, match="it belongs to"):
            node.start([])


def test_a_refused_registration_or_heartbeat_binds_no_connection(rig: Rig) -> None:
    # given broker 1, and strangers that name its id
    stranger, other = rig.open(), rig.open()
    request = {"incarnation_id": b"x" * 16, "cluster_id": "other"}
    epoch = rig.epochs[1]
    assert rig.register(1, stranger, **request).error_code != 0
    rig.epochs[1] = epoch
    beat = BrokerHeartbeatRequest(broker_id=1, broker_epoch=epoch - 1)
    assert rig.ask(beat, 1, other).error_code == ErrorCode.STALE_BROKER_EPOCH
    # when they go, then the broker stays
    rig.node.connection_closed(stranger)
    rig.node.connection_closed(other)
    rig.pass_time(1000)
    assert sorted(rig.node.controller.brokers) == [1, 2]


def test_a_broker_that_speaks_over_another_connection_is_bound_to_that(rig: Rig) -> None:
    first, second = rig.open(), rig.open()
    beat = BrokerHeartbeatRequest(broker_id=1, broker_epoch=rig.epochs[1])
    for connection in (first, second):
        assert rig.ask(beat, 1, connection).error_code == 0
    rig.node.connection_closed(first)
    rig.pass_time(1000)
    assert sorted(rig.node.controller.brokers) == [1, 2]
    rig.node.connection_closed(second)
    rig.pass_time(30)
    assert sorted(rig.node.controller.brokers) == [2]


def test_a_standby_leaves_a_forwarded_request_to_the_active_controller(rig: Rig) -> None:
    rig.node.controller.active = False
    assert rig.ask(envelope(CREATE, 7), 0).error_code == ErrorCode.NOT_CONTROLLER


def test_what_was_decided_is_told_by_a_controller_that_was_deposed_since(rig: Rig) -> None:
    connection = rig.open()
    assert rig.ask(envelope(CREATE, 7), 0, connection) is None
    rig.node.controller.active = False
    rig.pass_time(5000)
    response = rig.reply(connection, api.ApiKey.ENVELOPE, 0)
    assert response.error_code == 0
    assert api.parse_response(19, 7, response.response_data)[1].topics[0].error_code == 0  # type: ignore[attr-defined]
