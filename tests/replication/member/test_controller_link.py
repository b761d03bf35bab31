"""A broker and its remote controller: registration, heartbeats, forwarding, producer ids, shutdown."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from kwire.protocol import api
from kwire.protocol.errors import ErrorCode, KafkaError
from kwire.protocol.schemas.control_plane import (
    AllocateProducerIdsResponse,
    ControlledShutdownResponse,
    EnvelopeResponse,
    RemainingPartition,
)
from kwire.protocol.schemas.nodes import BrokerHeartbeatResponse, BrokerRegistrationResponse
from kwire.protocol.schemas.topics import (
    CreatableTopic,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from kwire.replication.config.broker_config import BrokerConfig
from kwire.replication.core.clock import Clock, Timers
from kwire.replication.core.metadata import Endpoint
from kwire.replication.core.outbox import Outbox, Send
from kwire.replication.core.peers import Peers
from kwire.replication.core.principals import principal_in
from kwire.replication.member.controller_link import ControllerLink
from kwire.replication.member.producer_ids import AllocatedProducerIds
from kwire.replication.member.topic_creation import TopicCreation

CONTROLLER = 1000


class Rig:
    def __init__(
        self, foreign_epoch: int | None = None, controllers: int = 1, **settings: str
    ) -> None:
        self.clock = Clock()
        self.timers = Timers()
        self.outbox = Outbox()
        self.peers = Peers(self.outbox, "broker-1")
        self.registered: list[int] = []
        self.refused: list[str] = []
        self.unavailable: list[int] = []
        self.config = BrokerConfig({"node.id": "1", "broker.rack": "r1", **settings}, brokers=3)
        self.link = ControllerLink(
            1,
            lambda: CONTROLLER,
            self.peers,
            self.clock,
            self.timers,
            self.config,
            Random(1),
            on_registered=self.registered.append,
            on_refused=self.refused.append,
            on_unavailable=self.unavailable.append,
            several_controllers=controllers > 1,
            foreign_epoch=foreign_epoch,
        )
        self.sent: list[tuple[Send, int, int]] = []

    def asked(self) -> Any:
        """The one request that was sent since the last look, None when there is none."""
        effects = self.outbox.drain()
        if not effects:
            return None
        (send,) = effects
        assert isinstance(send, Send) and send.node == CONTROLLER
        frame = b"".join(bytes(part) for part in send.parts)[4:]
        header = api.parse_request_header(frame)
        kind = api.request_class(header.api_key)
        request, _ = kind.decode_from(frame, header.body_position, header.api_version)
        self.sent.append((send, header.api_key, header.api_version))
        return request

    def answer(self, response: Any) -> None:
        """Answers the last request; None: the connection was lost."""
        send, key, version = self.sent.pop()
        frame = None
        if response is not None:
            parts = api.encode_response(key, version, send.correlation, response)
            frame = b"".join(bytes(part) for part in parts)[4:]
        self.peers.respond(send.correlation, frame)

    def pass_time(self, milliseconds: int) -> None:
        self.clock.now_ms += milliseconds
        self.timers.fire(self.clock.now_ms)

    def register(self, epoch: int = 5) -> None:
        self.link.start([Endpoint("PLAINTEXT", "h", 9)], "cluster")
        assert type(self.asked()).__name__ == "BrokerRegistrationRequest"
        self.answer(BrokerRegistrationResponse(broker_epoch=epoch))


@pytest.fixture
def rig() -> Rig:
    return Rig()


def test_a_broker_registers_and_then_sends_heartbeats(rig: Rig) -> None:
    rig.link.start([Endpoint("PLAINTEXT", "h", 9), Endpoint("OTHER", "i", 8)], "cluster")
    request = rig.asked()
    assert (request.broker_id, request.cluster_id, request.rack) == (1, "cluster", "r1")
    assert [(e.name, e.host, e.port) for e in request.listeners] == [
        ("PLAINTEXT", "h", 9),
        ("OTHER", "i", 8),
    ]
    rig.answer(BrokerRegistrationResponse(broker_epoch=5))
    assert rig.registered == [5] and rig.link.broker_epoch == 5
    rig.pass_time(1999)
    assert rig.asked() is None
    for _ in range(3):
        rig.pass_time(2000)
        heartbeat = rig.asked()
        assert (heartbeat.broker_id, heartbeat.broker_epoch) == (1, 5)
        rig.answer(BrokerHeartbeatResponse())


def test_registration_is_retried_until_the_controller_responds(rig: Rig) -> None:
    rig.link.start([], "cluster")
    for response in (
        None,
        BrokerRegistrationResponse(error_code=ErrorCode.NOT_CONTROLLER),
        BrokerRegistrationResponse(error_code=ErrorCode.DUPLICATE_BROKER_REGISTRATION),
    ):
        assert type(rig.asked()).__name__ == "BrokerRegistrationRequest"
        rig.answer(response)
        rig.pass_time(200)
    rig.asked()
    rig.answer(BrokerRegistrationResponse(broker_epoch=1))
    assert rig.registered == [1]


def test_another_clusters_controller_is_final(rig: Rig) -> None:
    rig.link.start([], "cluster")
    rig.asked()
    rig.answer(BrokerRegistrationResponse(error_code=ErrorCode.INCONSISTENT_CLUSTER_ID))
    assert rig.refused == ["the controller belongs to another cluster than cluster"]
    rig.pass_time(10_000)
    assert rig.asked() is None


def test_a_refused_heartbeat_leads_to_a_new_registration(rig: Rig) -> None:
    rig.register(5)
    rig.pass_time(2000)
    rig.asked()
    rig.answer(BrokerHeartbeatResponse(error_code=ErrorCode.STALE_BROKER_EPOCH))
    request = rig.asked()
    assert request.previous_broker_epoch == 5
    rig.answer(BrokerRegistrationResponse(broker_epoch=9))
    assert rig.registered == [5, 9]


def test_a_lost_connection_is_answered_with_a_heartbeat_at_once(rig: Rig) -> None:
    rig.register(5)
    rig.link.channel_lost("forward")
    assert rig.asked() is None
    rig.link.channel_lost("controller")
    assert rig.asked().broker_epoch == 5
    rig.link.channel_lost("controller")  # one is under way
    assert rig.asked() is None
    rig.answer(None)
    rig.pass_time(50)
    assert rig.asked().broker_epoch == 5


def test_a_disk_failure_is_reported_at_once_and_only_once_as_new(rig: Rig) -> None:
    rig.register()
    rig.link.report_disk_failure()
    assert rig.asked().offline_log_dirs == [b"\0" * 15 + b"\1"]
    rig.link.report_disk_failure()
    assert rig.asked() is None  # one heartbeat at a time
    rig.answer(BrokerHeartbeatResponse())
    assert rig.asked().offline_log_dirs == [b"\0" * 15 + b"\1", b"\0" * 15 + b"\2"]
    rig.answer(BrokerHeartbeatResponse())
    assert rig.asked() is None
    rig.pass_time(2000)
    assert len(rig.asked().offline_log_dirs) == 2


def test_a_closed_link_is_silent(rig: Rig) -> None:
    rig.register(5)
    rig.link.close()
    rig.link.channel_lost("controller")
    rig.pass_time(60_000)
    assert rig.asked() is None


REQUEST = CreateTopicsRequest(topics=[CreatableTopic(name="t")], timeout_ms=1000)


def forward(rig: Rig) -> list[Any]:
    answers: list[Any] = []
    rig.link.forward(19, 7, REQUEST, answers.append, client_id="me", client_host="10.1.2.3")
    return answers


@pytest.mark.parametrize(
    ("host", "address"),
    [("fe80::1%eth0", bytes([0xFE, 0x80, *[0] * 13, 1])), ("here", b""), ("::g", b"")],
)
def test_an_envelope_has_the_address_of_the_client(rig: Rig, host: str, address: bytes) -> None:
    rig.link.forward(19, 7, REQUEST, [].append, client_host=host)
    assert rig.asked().client_host_address == address


def test_that_a_broker_may_not_forward_is_no_error_of_the_client(rig: Rig) -> None:
    answers = forward(rig)
    rig.asked()
    rig.answer(EnvelopeResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED))
    assert answers == [ErrorCode.UNKNOWN_SERVER_ERROR]


def created(request: Any) -> EnvelopeResponse:
    header = api.parse_request_header(request.request_data)
    result = CreatableTopicResult(name="t", error_message=None, num_partitions=3)
    response = CreateTopicsResponse(topics=[result])
    parts = api.encode_response(header.api_key, header.api_version, header.correlation_id, response)
    return EnvelopeResponse(response_data=b"".join(parts)[4:])


def test_a_clients_request_goes_in_an_envelope_and_its_answer_comes_out_of_one(rig: Rig) -> None:
    answers = forward(rig)
    envelope = rig.asked()
    header = api.parse_request_header(envelope.request_data)
    assert (header.api_key, header.api_version, header.client_id) == (19, 7, "me")
    assert envelope.client_host_address == bytes([10, 1, 2, 3])
    rig.answer(created(envelope))
    assert answers[0].topics[0].num_partitions == 3
    rig.pass_time(60_000)
    assert len(answers) == 1 and rig.asked() is None


@pytest.mark.parametrize(
    ("principal", "data", "user"),
    [
        ("", b"\0\0\6Kwire\5node\0\0", ""),
        ("User:ANONYMOUS", None, "User:ANONYMOUS"),
        ("User:a:b", b"\0\0\5User\4a:b\0\0", "User:a:b"),
    ],
)
def test_an_envelope_says_whose_request_it_is(
    rig: Rig, principal: str, data: bytes | None, user: str
) -> None:
    rig.link.forward(19, 7, REQUEST, [].append, principal=principal)
    envelope = rig.asked()
    assert envelope.request_principal == data
    assert principal_in(envelope.request_principal) == user


@pytest.mark.parametrize("data", [b"", b"\0", b"\0\0\5Us"])
def test_a_principal_that_cannot_be_read_is_an_error(data: bytes) -> None:
    with pytest.raises(KafkaError) as refused:
        principal_in(data)
    assert refused.value.code == ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE


def test_a_forwarded_request_is_retried_until_its_timeout(rig: Rig) -> None:
    answers = forward(rig)
    for _ in range(5):
        assert rig.asked() is not None
        rig.answer(None)
        rig.pass_time(100)
    assert rig.asked() is not None and answers == []
    rig.pass_time(1000)
    assert answers == [ErrorCode.REQUEST_TIMED_OUT]
    rig.answer(EnvelopeResponse())
    rig.pass_time(1000)
    assert len(answers) == 1 and rig.asked() is None


@pytest.mark.parametrize(
    ("response", "error"),
    [
        (EnvelopeResponse(error_code=35), ErrorCode.UNSUPPORTED_VERSION),
        (EnvelopeResponse(response_data=b"\0"), ErrorCode.UNKNOWN_SERVER_ERROR),
        (EnvelopeResponse(response_data=None), ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
def test_an_envelope_that_holds_no_answer_is_an_error(
    rig: Rig, response: EnvelopeResponse, error: ErrorCode
) -> None:
    answers = forward(rig)
    rig.asked()
    rig.answer(response)
    assert answers == [error]


def test_a_foreign_controller_is_not_forwarded_to_and_not_registered_with() -> None:
    rig = Rig(foreign_epoch=33)
    rig.link.start([], "cluster")
    assert rig.link.broker_epoch == 33
    assert forward(rig) == [ErrorCode.NOT_CONTROLLER]
    rig.link.channel_lost("controller")
    rig.pass_time(60_000)
    assert rig.asked() is None


def test_the_next_block_of_producer_ids_is_requested_before_one_runs_out(rig: Rig) -> None:
    rig.register()
    ids = AllocatedProducerIds(rig.link)
    with pytest.raises(KafkaError) as refusal:
        ids.generate()
    assert refusal.value.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    rig.asked()
    rig.answer(AllocateProducerIdsResponse(producer_id_start=1000, producer_id_len=1000))
    given = []
    for number in range(2000):
        given.append(ids.generate())
        if rig.asked() is not None:
            assert number in (899, 1899)
            rig.answer(
                AllocateProducerIdsResponse(
                    producer_id_start=5000 + 1000 * number, producer_id_len=1000
                )
            )
    assert len(set(given)) == 2000 and given[:2] == [1000, 1001]


def test_one_block_of_producer_ids_is_requested_at_a_time_and_a_refusal_is_none(rig: Rig) -> None:
    rig.register()
    ids = AllocatedProducerIds(rig.link)
    for refusal in (
        AllocateProducerIdsResponse(error_code=41, producer_id_start=0, producer_id_len=1000),
        AllocateProducerIdsResponse(producer_id_start=0, producer_id_len=0),
        None,
    ):
        with pytest.raises(KafkaError):
            ids.generate()
        assert rig.asked() is not None
        with pytest.raises(KafkaError):
            ids.generate()
        assert rig.asked() is None
        rig.answer(refusal)
    with pytest.raises(KafkaError):
        ids.generate()
    rig.asked()
    rig.answer(AllocateProducerIdsResponse(producer_id_start=7, producer_id_len=1000))
    assert ids.generate() == 7


def test_controlled_shutdown_is_given_up_after_three_requests(rig: Rig) -> None:
    rig.register()
    done: list[bool] = []
    rig.link.shut_down(lambda: done.append(True))
    left = RemainingPartition(topic_name="t", partition_index=0)
    for response in (None, ControlledShutdownResponse(remaining_partitions=[left])):
        assert rig.asked().broker_epoch == 5
        rig.answer(response)
        assert done == []
        rig.clock.now_ms += 5000
        rig.timers.cancel("controller")  # heartbeats are not of interest here
        rig.timers.fire(rig.clock.now_ms)
    rig.asked()
    rig.answer(None)
    assert done == [True]


def test_controlled_shutdown_ends_with_the_first_good_answer(rig: Rig) -> None:
    done: list[bool] = []
    rig.link.shut_down(lambda: done.append(True))
    assert done == [True] and rig.asked() is None  # never registered: nothing to hand over
    rig.register()
    rig.link.shut_down(lambda: done.append(True))
    rig.asked()
    rig.answer(ControlledShutdownResponse())
    assert done == [True, True]


def test_a_silent_controller_is_given_up_if_there_are_others() -> None:
    rig = Rig(controllers=2)
    rig.link.start([], "cluster")
    assert type(rig.asked()).__name__ == "BrokerRegistrationRequest"
    rig.pass_time(1999)
    assert rig.unavailable == []
    rig.pass_time(1)
    assert rig.unavailable == [CONTROLLER]
    assert [type(effect).__name__ for effect in rig.outbox.drain()] == ["HangUp"]
    rig.pass_time(50)
    assert type(rig.asked()).__name__ == "BrokerRegistrationRequest"
    rig.answer(BrokerRegistrationResponse(broker_epoch=5))
    rig.pass_time(2000)
    assert type(rig.asked()).__name__ == "BrokerHeartbeatRequest"
    rig.pass_time(8999)  # with its end the broker's would come
    assert rig.unavailable == [CONTROLLER]
    rig.pass_time(1)
    assert rig.unavailable == [CONTROLLER, CONTROLLER]


def test_the_only_controller_is_never_given_up(rig: Rig) -> None:
    rig.link.start([], "cluster")
    rig.asked()
    rig.pass_time(29_000)
    assert rig.unavailable == [] and rig.outbox.drain() == []


def test_a_standby_is_not_the_active_controller(rig: Rig) -> None:
    rig.register()
    rig.pass_time(2000)
    rig.asked()
    rig.answer(BrokerHeartbeatResponse(error_code=ErrorCode.NOT_CONTROLLER))
    assert rig.unavailable == [CONTROLLER] and rig.asked() is None
    rig.pass_time(50)
    assert type(rig.asked()).__name__ == "BrokerHeartbeatRequest"


def test_a_new_controller_gets_a_heartbeat_at_once(rig: Rig) -> None:
    rig.register()
    rig.link.controller_changed()
    assert type(rig.asked()).__name__ == "BrokerHeartbeatRequest"
    rig.link.controller_changed()  # that is under way
    assert rig.asked() is None


def test_a_topic_creation_is_sent_once_however_many_requests_wait(rig: Rig) -> None:
    creation = TopicCreation(rig.link, rig.config)
    done: list[str] = []
    creation.create(["a", "__consumer_offsets"], lambda: done.append("both"))
    envelope = rig.asked()
    creation.create(["a"], lambda: done.append("a"))
    assert rig.asked() is None
    header = api.parse_request_header(envelope.request_data)
    inner, _ = CreateTopicsRequest.decode_from(
        envelope.request_data, header.body_position, header.api_version
    )
    assert inner.timeout_ms == 10_000  # and not request.timeout.ms
    offsets, plain = inner.topics
    assert (plain.num_partitions, plain.replication_factor) == (-1, -1)
    assert (offsets.num_partitions, offsets.replication_factor) == (4, 3)
    assert {c.name: c.value for c in offsets.configs}["cleanup.policy"] == "compact"
    rig.answer(created(envelope))
    assert sorted(done) == ["a", "both"]
    creation.create(["a"], lambda: done.append("again"))
    assert rig.asked() is not None


def test_controlled_shutdown_can_be_switched_off() -> None:
    rig = Rig(**{"controlled.shutdown.enable": "false"})
    rig.register()
    done: list[bool] = []
    rig.link.shut_down(lambda: done.append(True))
    assert done == [True] and rig.asked() is None


def test_a_failed_directory_is_not_registered_again(rig: Rig) -> None:
    good, bad = b"g" * 16, b"b" * 16
    rig.link.log_dirs = [good, bad]
    rig.register()
    rig.link.report_disk_failure(bad)
    assert rig.asked().offline_log_dirs == [bad]
    rig.answer(BrokerHeartbeatResponse(error_code=ErrorCode.STALE_BROKER_EPOCH))
    assert rig.asked().log_dirs == [good]


def test_a_forwarded_request_that_was_given_up_is_not_sent_again(rig: Rig) -> None:
    answers = forward(rig)
    for _ in range(1000):
        if answers:
            break
        if rig.asked() is not None:
            rig.answer(None)  # the next try is due later
        rig.pass_time(10)
    assert answers == [ErrorCode.REQUEST_TIMED_OUT]
    rig.pass_time(1000)
    assert rig.asked() is None
