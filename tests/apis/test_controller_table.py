"""The controller's API table: each row, in each version, wherever it is served."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any

import pytest

from kwire import apis
from kwire.apis import controller_plane
from kwire.broker import Broker
from kwire.protocol import api
from kwire.protocol.errors import ErrorCode
from kwire.protocol.language.schema import (
    ArrayKind,
    Field,
    Message,
    StructType,
    parse_versions,
)
from kwire.protocol.schemas.control_plane import EnvelopeRequest
from kwire.replication.config.broker_config import BrokerConfig
from kwire.replication.controller.table import BY_KEY, TABLE, AskedBy, ControllerApi, refusal
from kwire.replication.core.clock import Clock
from kwire.replication.core.memory_log_store import MemoryLogStore
from kwire.replication.core.metadata import Endpoint
from kwire.replication.core.outbox import Close, Outbox, Reply
from tests.apis.test_controller_plane import Rig

ROWS_AND_VERSIONS = [
    pytest.param(row, version, id=f"{row.key.api_name}-{version}")
    for row in TABLE
    for version in range(row.min_version, row.max_version + 1)
]


def fields_of(cls: StructType, version: int) -> Iterator[tuple[str, Field]]:
    for name, field in cls.fields.items():
        first, last = parse_versions(field.versions or "0+")
        if first <= version <= last:
            yield name, field


def filled(cls: StructType, version: int) -> Any:
    """The structure with one element in each list that the version has."""
    struct: Any = cls()
    for name, field in fields_of(cls, version):
        if isinstance(field.kind, ArrayKind):
            element: Any = field.kind.element
            of_struct = isinstance(element, StructType)
            setattr(struct, name, [filled(element, version) if of_struct else element.default])
    return struct


def error_codes(struct: Any, version: int) -> Iterator[int]:
    """Every error code in a response, at any depth."""
    for name, _ in fields_of(type(struct), version):
        value = getattr(struct, name)
        if name == "error_code":
            yield value
        elif isinstance(value, list):
            for each in value:
                if isinstance(type(each), StructType):
                    yield from error_codes(each, version)


def request_of(row: ControllerApi, version: int) -> Message:
    request: Message = filled(api.request_class(row.key), version)
    return request


def frame_of(row: ControllerApi, version: int) -> bytes:
    parts = api.encode_request(row.key, version, 7, "client", request_of(row, version))
    return b"".join(bytes(part) for part in parts)[4:]


def parsed(row: ControllerApi, version: int, frame: bytes) -> Message:
    correlation_id, response = api.parse_response(row.key, version, frame)
    assert correlation_id == 7
    return response


@pytest.fixture
def rig() -> Rig:
    """A controller node with one broker, which has eaten up its orders."""
    rig = Rig()
    rig.register(1)
    rig.acknowledge()
    return rig


@pytest.mark.parametrize(("row", "version"), ROWS_AND_VERSIONS)
def test_every_row_has_a_refusal_in_every_version(row: ControllerApi, version: int) -> None:
    request = request_of(row, version)
    code = ErrorCode.REQUEST_TIMED_OUT
    response = refusal(request, version, code, "too late")
    cls = api.response_class(row.key)
    assert type(response) is cls
    codes = set(error_codes(cls.decode(response.encode(version), version), version))
    # A broker's own answer to DescribeTopicPartitions only lacks what the controller could add.
    assert codes == (set() if row.asked_by is AskedBy.BROKERS_FOR_CLIENTS else {code})


def test_the_table_is_in_order_and_serves_versions_that_exist() -> None:
    assert [row.key for row in TABLE] == list(BY_KEY) == sorted(BY_KEY)
    for row in TABLE:
        first, last = api.request_class(row.key).versions
        assert first <= row.min_version <= row.max_version <= last, row


def test_brokers_and_controller_nodes_serve_the_same_versions() -> None:
    both = apis.BY_KEY.keys() & controller_plane.BY_KEY.keys()
    assert {row.key for row in TABLE if row.asked_by is AskedBy.CLIENTS} < both
    for key in both:
        of_broker, of_controller = apis.BY_KEY[key], controller_plane.BY_KEY[key]
        assert of_broker.min_version == of_controller.min_version
        assert of_broker.max_version == of_controller.max_version


@pytest.mark.parametrize(("row", "version"), ROWS_AND_VERSIONS)
def test_a_controller_node_answers_each_row(rig: Rig, row: ControllerApi, version: int) -> None:
    connection = rig.open()
    rig.node.receive_frame(connection, frame_of(row, version))
    rig.drain()
    if row.asked_by is AskedBy.BROKERS_FOR_CLIENTS:
        assert rig.closed and not rig.replies
        return
    rig.acknowledge()
    assert type(parsed(row, version, rig.replies[connection])) is api.response_class(row.key)
    assert rig.node.failed == rig.closed == []


@pytest.mark.parametrize(("row", "version"), ROWS_AND_VERSIONS)
def test_every_client_request_fits_an_envelope(rig: Rig, row: ControllerApi, version: int) -> None:
    envelope = EnvelopeRequest(
        request_data=frame_of(row, version), request_principal=None, client_host_address=b""
    )
    connection = rig.open()
    response = rig.ask(envelope, 0, connection)
    if response is None:
        rig.acknowledge()
        response = rig.reply(connection, api.ApiKey.ENVELOPE, 0)
    if row.asked_by is AskedBy.BROKERS:
        assert response.error_code == ErrorCode.INVALID_REQUEST
    else:
        assert response.error_code == 0
        inner = parsed(row, version, response.response_data)
        assert type(inner) is api.response_class(row.key)


@pytest.mark.parametrize(("row", "version"), ROWS_AND_VERSIONS)
def test_a_broker_answers_every_client_request(row: ControllerApi, version: int) -> None:
    outbox = Outbox()
    clock = Clock(now_ms=1000, wall_ms=1_700_000_000_000)
    broker = Broker(
        BrokerConfig({"node.id": "1", "eligible.leader.replicas.enable": "true"}),
        MemoryLogStore(),
        clock,
        outbox,
        Random(1),
    )
    broker.start([Endpoint("PLAINTEXT", "here", 9092)])
    broker.connection_opened(1, "PLAINTEXT", "10.0.0.1")
    broker.receive_frame(1, frame_of(row, version))
    (effect,) = outbox.drain()
    if row.asked_by is AskedBy.BROKERS:
        assert isinstance(effect, Close)
    else:
        assert isinstance(effect, Reply)
        frame = b"".join(bytes(part) for part in effect.parts)[4:]
        assert type(parsed(row, version, frame)) is api.response_class(row.key)
