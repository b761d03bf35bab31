"""A broker of a cluster: when it is ready, whom it asks, what it does when a controller or a connection goes."""

from __future__ import annotations

from collections.abc import Iterable
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

from kwire.protocol import api
from kwire.protocol.schemas.control_plane import (
    AllocateProducerIdsResponse,
    UpdateMetadataBroker,
    UpdateMetadataEndpoint,
    UpdateMetadataRequest,
)
from kwire.protocol.schemas.nodes import BrokerRegistrationResponse
from kwire.replication.config.broker_config import BrokerConfig
from kwire.replication.core.broker_epochs import next_broker_epoch
from kwire.replication.core.clock import Clock, Timers
from kwire.replication.core.metadata import Endpoint, MetadataCache
from kwire.replication.core.outbox import HangUp, Outbox, Send
from kwire.replication.member.cluster_member import ClusterMember, ClusterSettings

FIRST, SECOND, THIRD = 1000, 1001, 1002


class Rig:
    """Broker 1 of a cluster with three controllers, or with others."""

    def __init__(
        self,
        controllers: tuple[int, ...] = (FIRST, SECOND, THIRD),
        foreign_epoch: int | None = None,
    ) -> None:
        self.clock = Clock(now_ms=1000)
        self.timers = Timers()
        self.outbox = Outbox()
        self.metadata = MetadataCache()
        self.ready = 0
        self.logs: Any = SimpleNamespace(
            failure_listeners=[], online=list, previous_broker_epoch=-1
        )
        self.host: Any = SimpleNamespace(log_manager=self.logs, broker_epoch=-1, node_id=1)
        settings = ClusterSettings(
            controllers[0],
            ("c", controllers[0]),
            "INTERNAL",
            more_controllers=[(node, "c", node) for node in controllers[1:]],
            broker_epoch=foreign_epoch,
            on_ready=self.on_ready,
        )
        self.config = BrokerConfig({"node.id": "1"}, brokers=3)
        self.member = ClusterMember(
            settings,
            self.config,
            self.clock,
            self.timers,
            self.outbox,
            Random(1),
            self.metadata,
            self.host,
        )
        self.sent: list[Send] = []
        self.hung_up: list[tuple[int, str]] = []

    def on_ready(self) -> None:
        self.ready += 1

    def news(self) -> list[tuple[int, Any]]:
        """(node, request) sent since the last look."""
        found = []
        for effect in self.outbox.drain():
            if isinstance(effect, HangUp):
                self.hung_up.append((effect.node, effect.channel))
            elif isinstance(effect, Send):
                frame = b"".join(map(bytes, effect.parts))[4:]
                header = api.parse_request_header(frame)
                kind = api.request_class(header.api_key)
                request, _ = kind.decode_from(frame, header.body_position, header.api_version)
                self.sent.append(effect)
                found.append((effect.node, request))
        return found

    def names(self) -> list[tuple[int, str]]:
        return [
            (node, type(request).__name__.removesuffix("Request")) for node, request in self.news()
        ]

    def answer(self, response: Any) -> None:
        """Answers the oldest request; None: its connection was lost."""
        send = self.sent.pop(0)
        frame = None
        if response is not None:
            asked = api.parse_request_header(b"".join(map(bytes, send.parts))[4:])
            parts = api.encode_response(
                asked.api_key, asked.api_version, send.correlation, response
            )
            frame = b"".join(map(bytes, parts))[4:]
        self.member.respond(send.correlation, frame)

    def start(self) -> None:
        self.member.start([Endpoint("CLIENTS", "h", 1), Endpoint("INTERNAL", "h", 2)], "c")

    def register(self) -> int:
        """Register and get producer ids; returns the broker epoch."""
        self.start()
        self.news()
        epoch = next_broker_epoch(0, self.member.link.incarnation_id)
        self.answer(BrokerRegistrationResponse(broker_epoch=epoch))
        self.news()
        self.answer(AllocateProducerIdsResponse(producer_id_start=0, producer_id_len=1000))
        return epoch

    def update(self, controller: int = FIRST, alive: Iterable[int] = (1, 2)) -> None:
        """The controller's UpdateMetadata."""
        brokers = [
            UpdateMetadataBroker(
                id=broker,
                endpoints=[
                    UpdateMetadataEndpoint(host=f"b{broker}", port=port, listener=listener)
                    for listener, port in (("CLIENTS", 91), ("INTERNAL", 92))
                ],
            )
            for broker in alive
        ]
        self.metadata.apply(UpdateMetadataRequest(controller_id=controller, live_brokers=brokers))
        self.member.metadata_updated()

    def pass_time(self, ms: int) -> None:
        self.clock.now_ms += ms
        self.timers.fire(self.clock.now_ms)


@pytest.fixture
def rig() -> Rig:
    return Rig()


# ---- registration


def test_the_listener_for_brokers_is_registered_first(rig: Rig) -> None:
    rig.start()
    ((node, request),) = rig.news()
    assert node == FIRST
    assert [listener.name for listener in request.listeners] == ["INTERNAL", "CLIENTS"]


def test_orders_are_held_until_the_registration_and_then_carried_out_in_their_sequence(
    rig: Rig,
) -> None:
    done: list[int] = []
    rig.start()
    rig.news()
    assert not rig.member.is_registered
    for number in range(3):
        rig.member.hold(lambda number=number: done.append(number))  # type: ignore[misc]
    assert done == []
    rig.answer(BrokerRegistrationResponse(broker_epoch=5))
    assert done == [0, 1, 2] and rig.member.is_registered
    assert rig.host.broker_epoch == 5


@pytest.mark.parametrize("metadata_first", [False, True])
def test_a_broker_is_ready_once_it_is_registered_and_in_the_metadata(
    rig: Rig, metadata_first: bool
) -> None:
    if metadata_first:
        rig.update(alive=(1, 2))
        assert rig.ready == 0
        rig.register()
    else:
        rig.register()
        assert rig.ready == 0
        rig.update(alive=(2,))
        assert rig.ready == 0
        rig.update(alive=(1, 2))
    assert rig.ready == 1
    rig.update(alive=(1, 2, 3))
    assert rig.ready == 1


def test_only_a_controller_that_has_registered_the_broker_knows_its_epoch(rig: Rig) -> None:
    epoch = rig.register()
    assert rig.member.is_own_epoch(epoch)
    later = next_broker_epoch(epoch, rig.member.link.incarnation_id)
    assert rig.member.is_own_epoch(later)
    assert not rig.member.is_own_epoch(epoch + 1) and not rig.member.is_own_epoch(1)
    foreign = Rig((FIRST,), foreign_epoch=7)
    assert foreign.member.is_own_epoch(7) and not foreign.member.is_own_epoch(8)


def test_a_directory_that_fails_is_reported_if_it_has_an_id(rig: Rig) -> None:
    rig.register()
    (listener,) = rig.logs.failure_listeners
    listener(SimpleNamespace(directory_id=None))
    assert rig.news() == []
    listener(SimpleNamespace(directory_id=bytes(15) + b"d"))
    ((_, request),) = rig.news()
    assert request.offline_log_dirs == [bytes(15) + b"d"]


def test_peers_speak_on_the_listener_for_brokers(rig: Rig) -> None:
    assert rig.member.is_from_peer("INTERNAL") and not rig.member.is_from_peer("CLIENTS")
    assert rig.member.address_of(2) is None
    rig.update()
    assert rig.member.address_of(2) == ("b2", 92)
    assert rig.member.address_of(SECOND) == ("c", SECOND)


# ---- waiting for the first metadata


def test_who_waits_for_metadata_is_called_by_the_first_update(rig: Rig) -> None:
    called: list[str] = []
    rig.member.when_metadata_known(lambda: called.append("a"))
    rig.pass_time(10)
    rig.member.when_metadata_known(lambda: called.append("b"))
    assert not rig.member.has_metadata and called == []
    rig.update()
    assert rig.member.has_metadata and called == ["a", "b"]
    rig.pass_time(100_000)
    assert called == ["a", "b"]


def test_who_waits_for_metadata_too_long_is_called_after_request_timeout_ms(rig: Rig) -> None:
    called: list[str] = []
    rig.member.when_metadata_known(lambda: called.append("a"))
    rig.pass_time(20_000)
    rig.member.when_metadata_known(lambda: called.append("b"))
    rig.pass_time(9_999)
    assert called == []
    rig.pass_time(1)
    assert called == ["a"]
    rig.pass_time(19_999)
    assert called == ["a"]
    rig.pass_time(1)
    assert called == ["a", "b"]


# ---- which controller


def test_a_controller_that_does_not_answer_is_left_for_the_next(rig: Rig) -> None:
    rig.start()
    for node in (FIRST, SECOND, THIRD, FIRST):
        assert rig.names() == [(node, "BrokerRegistration")]
        rig.answer(None)
        rig.pass_time(1000)


def test_who_was_asked_before_is_not_left_again(rig: Rig) -> None:
    for node in (FIRST, SECOND):
        rig.member._on_controller_unavailable(node)
    rig.member._on_controller_unavailable(FIRST)  # a second request to it, lost as well
    assert rig.member.controller_node() == THIRD


def test_the_sender_of_an_update_is_asked_from_now_on_and_the_others_are_given_up(
    rig: Rig,
) -> None:
    rig.register()
    rig.update(controller=FIRST)
    rig.news()
    rig.hung_up.clear()
    rig.update(controller=THIRD)
    # then it gets a heartbeat at once, and requests to the others are lost
    assert rig.names() == [(THIRD, "BrokerHeartbeat")]
    assert rig.member.controller_node() == THIRD
    assert {node for node, _ in rig.hung_up} == {FIRST, SECOND}
    # and another update of the same one changes nothing
    rig.hung_up.clear()
    rig.update(controller=THIRD, alive=(1, 2, 3))
    assert rig.names() == [] and rig.hung_up == []


def test_a_foreign_controller_is_the_broker_that_the_metadata_names() -> None:
    rig = Rig((FIRST,), foreign_epoch=7)
    rig.start()
    assert rig.ready == 1 and rig.host.broker_epoch == 7
    assert rig.member.controller_node() == FIRST
    rig.update(controller=2, alive=(1, 2))
    assert rig.member.controller_node() == 2


def test_under_a_foreign_controller_the_coordinators_topics_are_compacted() -> None:
    """It tells brokers no configurations: with the defaults retention would delete offsets and transactions."""
    rig = Rig((FIRST,), foreign_epoch=7)
    rig.start()
    for topic in ("__consumer_offsets", "__transaction_state"):
        assert rig.metadata.topic_config(topic)["cleanup.policy"] == "compact"
    assert rig.metadata.topic_config("__transaction_state")["min.insync.replicas"] == "2"
    assert rig.metadata.topic_config("orders") == {}


def test_under_kwires_controller_the_coordinators_topics_are_what_it_says(rig: Rig) -> None:
    rig.start()
    assert rig.metadata.configured() == []


# ---- connections that end


def test_the_end_of_the_connection_to_the_controller_is_followed_by_a_heartbeat(rig: Rig) -> None:
    rig.register()
    rig.member.channel_lost(2, "controller")
    assert rig.names() == []
    rig.member.channel_lost(FIRST, "controller")
    assert rig.names() == [(FIRST, "BrokerHeartbeat")]


@pytest.mark.parametrize("asked", [False, True])
def test_a_leader_whose_connection_ends_is_in_doubt(rig: Rig, asked: bool) -> None:
    rig.update(alive=(1, 2))
    if asked:
        rig.member.peers.send(
            2, "fetcher", api.ApiKey.API_VERSIONS, 0, _api_versions(), lambda response: None
        )
        rig.news()
        rig.answer(None)
    else:
        rig.member.channel_lost(2, "fetcher")
    assert rig.member.leader_doubts


def _api_versions() -> Any:
    from kwire.protocol.schemas.api_versions import ApiVersionsRequest

    return ApiVersionsRequest()
