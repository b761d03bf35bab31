"""Orders to brokers: in order, one at a time, again after a loss, never to another incarnation."""

from __future__ import annotations

from typing import Any

import pytest

from kwire.protocol import api
from kwire.protocol.schemas.configs import AlterConfigsRequest
from kwire.protocol.schemas.control_plane import (
    EnvelopeResponse,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    StopReplicaRequest,
    StopReplicaResponse,
    UpdateMetadataRequest,
    UpdateMetadataResponse,
)
from kwire.replication.controller.channels import (
    ControllerChannels,
    controller_principal,
    read_principal,
)
from kwire.replication.core.clock import Clock, Timers
from kwire.replication.core.metadata import BROKER_RESOURCE, TOPIC_RESOURCE
from kwire.replication.core.outbox import HangUp, Outbox, Send
from kwire.replication.core.peers import Peers

ANSWERS = {
    4: LeaderAndIsrResponse,
    5: StopReplicaResponse,
    6: UpdateMetadataResponse,
    58: EnvelopeResponse,
}


class Rig:
    def __init__(self) -> None:
        self.clock = Clock()
        self.timers = Timers()
        self.outbox = Outbox()
        self.peers = Peers(self.outbox, "controller")
        self.heard: list[tuple[int, Any, Any]] = []
        self.channels = ControllerChannels(
            1000,
            lambda: 3,
            self.peers,
            self.clock,
            self.timers,
            lambda broker, order, response: self.heard.append((broker, order, response)),
        )
        self.sent: list[Send] = []
        self.hung_up: list[int] = []

    def open(self, broker: int) -> None:
        """A broker registers, and has taken its configurations, of which there are none."""
        self.channels.open(broker, 40 + broker)
        ((_, envelope),) = self.news()
        assert configs(envelope, broker, is_full=True) == {}
        self.answer()
        self.heard.clear()

    def news(self) -> list[tuple[int, Any]]:
        """(broker, request) sent since the last look."""
        found = []
        for effect in self.outbox.drain():
            if isinstance(effect, HangUp):
                self.hung_up.append(effect.node)
                continue
            assert isinstance(effect, Send) and effect.channel == "control"
            self.sent.append(effect)
            frame = b"".join(bytes(part) for part in effect.parts)[4:]
            header = api.parse_request_header(frame)
            kind = api.request_class(header.api_key)
            request, _ = kind.decode_from(frame, header.body_position, header.api_version)
            found.append((effect.node, request))
        return found

    def answer(self, lost: bool = False) -> None:
        """Answers the oldest request that is not answered."""
        send = self.sent.pop(0)
        frame = None
        if not lost:
            data = b"".join(bytes(part) for part in send.parts)[4:]
            header = api.parse_request_header(data)
            parts = api.encode_response(
                header.api_key,
                header.api_version,
                send.correlation,
                ANSWERS[header.api_key](),
            )
            frame = b"".join(bytes(part) for part in parts)[4:]
        assert self.peers.respond(send.correlation, frame) is None

    def pass_time(self, milliseconds: int) -> None:
        self.clock.now_ms += milliseconds
        self.timers.fire(self.clock.now_ms)


@pytest.fixture
def rig() -> Rig:
    rig = Rig()
    rig.open(1)
    rig.open(2)
    return rig


def update(number: int) -> UpdateMetadataRequest:
    return UpdateMetadataRequest(controller_id=number)


def test_each_broker_gets_its_orders_in_order_one_at_a_time(rig: Rig) -> None:
    rig.channels.send(1, LeaderAndIsrRequest(controller_id=1))
    rig.channels.send(1, update(2))
    rig.channels.send(1, StopReplicaRequest(controller_id=3))
    rig.channels.send(2, update(4))
    assert [(b, r.controller_id) for b, r in rig.news()] == [(1, 1), (2, 4)]
    rig.answer()
    assert [(b, r.controller_id) for b, r in rig.news()] == [(1, 2)]
    rig.answer()  # broker 2's
    assert rig.news() == []
    rig.answer()
    assert [(b, type(r).__name__) for b, r in rig.news()] == [(1, "StopReplicaRequest")]
    assert [(b, order.controller_id) for b, order, _ in rig.heard] == [(1, 1), (2, 4), (1, 2)]


def test_a_lost_order_is_sent_again_after_100_ms_and_nothing_overtakes_it(rig: Rig) -> None:
    rig.channels.send(1, update(1))
    rig.channels.send(1, update(2))
    for _ in range(3):
        assert [r.controller_id for _, r in rig.news()] == [1]
        rig.answer(lost=True)
        rig.channels.send(1, update(3))
        rig.pass_time(99)
        assert rig.news() == []
        rig.pass_time(1)
    assert [r.controller_id for _, r in rig.news()] == [1]
    rig.answer()
    assert [r.controller_id for _, r in rig.news()] == [2]


def test_a_new_incarnation_gets_nothing_that_was_meant_for_the_old_one(rig: Rig) -> None:
    rig.channels.send(1, update(1))
    rig.channels.send(1, update(2))
    rig.news()
    old = rig.sent.pop()
    rig.open(1)
    rig.channels.send(1, update(3))
    assert [r.controller_id for _, r in rig.news()] == [3]
    assert 1 in rig.hung_up
    assert rig.peers.respond(old.correlation, b"late") is None
    assert rig.news() == [] and rig.heard == []


def test_a_broker_that_waits_for_its_repeat_is_forgotten_when_it_leaves(rig: Rig) -> None:
    rig.channels.send(1, update(1))
    rig.news()
    rig.answer(lost=True)
    rig.channels.close(1)
    rig.pass_time(1000)
    rig.channels.send(1, update(2))
    assert rig.news() == []


def test_who_waits_is_called_by_the_last_acknowledgement(rig: Rig) -> None:
    called: list[str] = []
    rig.channels.when_acknowledged(1000, lambda: called.append("at once"))
    assert called == ["at once"]
    rig.channels.send(1, update(1))
    rig.channels.send(2, update(1))
    rig.channels.when_acknowledged(1000, lambda: called.append("both"))
    rig.channels.send(1, update(2))  # later orders are not waited for
    rig.news()
    rig.answer()
    assert called == ["at once"]
    rig.answer()
    assert called == ["at once", "both"]
    rig.pass_time(5000)
    assert called == ["at once", "both"]


def test_who_waits_is_called_when_a_broker_has_acknowledged_all_that_was_queued(rig: Rig) -> None:
    called: list[str] = []
    rig.channels.send(1, update(1))
    rig.channels.send(1, update(2))
    rig.channels.when_acknowledged(1000, lambda: called.append("both"))
    rig.news()
    rig.answer()
    assert called == []
    rig.news()
    rig.answer()
    assert called == ["both"]


def test_who_waits_is_called_when_the_last_debtor_leaves_or_time_is_over(rig: Rig) -> None:
    called: list[str] = []
    rig.channels.send(1, update(1))
    rig.channels.send(2, update(1))
    rig.channels.when_acknowledged(1000, lambda: called.append("left"))
    rig.channels.when_acknowledged(50, lambda: called.append("late"))
    rig.news()
    rig.pass_time(50)
    assert called == ["late"]
    rig.answer()
    rig.channels.close(2)
    assert called == ["late", "left"]


def configs(
    envelope: Any, broker: int, is_full: bool = False
) -> dict[tuple[int, str], dict[str, str | None]]:
    assert read_principal(envelope.request_principal) == (3, 40 + broker, is_full)
    header = api.parse_request_header(envelope.request_data)
    inner, _ = AlterConfigsRequest.decode_from(
        envelope.request_data, header.body_position, header.api_version
    )
    return {
        (r.resource_type, r.resource_name): {c.name: c.value for c in r.configs}
        for r in inner.resources
    }


def test_configurations_reach_everybody_and_a_newcomer_before_anything_else(rig: Rig) -> None:
    rig.channels.config_changed(TOPIC_RESOURCE, "t", {"retention.ms": "5"})
    rig.channels.config_changed(BROKER_RESOURCE, "", {"log.retention.ms": "6"})
    first = rig.news()
    assert [broker for broker, _ in first] == [1, 2]
    assert configs(first[0][1], 1) == {(TOPIC_RESOURCE, "t"): {"retention.ms": "5"}}
    rig.channels.open(3, 43)
    rig.channels.send(3, update(1))
    ((broker, envelope),) = rig.news()
    assert broker == 3 and configs(envelope, 3, is_full=True) == {
        (TOPIC_RESOURCE, "t"): {"retention.ms": "5"},
        (BROKER_RESOURCE, ""): {"log.retention.ms": "6"},
    }
    rig.channels.config_changed(TOPIC_RESOURCE, "t", {})
    rig.channels.open(4, 44)
    ((_, envelope),) = [news for news in rig.news() if news[0] == 4]
    assert configs(envelope, 4, is_full=True) == {(BROKER_RESOURCE, ""): {"log.retention.ms": "6"}}


def test_a_clients_principal_is_not_taken_for_the_controllers() -> None:
    assert read_principal(controller_principal(1000, 7, 2)) == (7, 2, False)
    assert read_principal(controller_principal(1000, 7, 2, is_full=True)) == (7, 2, True)
    for other in (None, b"", b"User:alice", b"x" * 12):
        assert read_principal(other) is None


def test_what_a_step_was_to_send_to_a_broker_that_is_given_up_is_not_sent() -> None:
    rig = Rig()
    rig.open(1)
    rig.open(2)
    for broker in (1, 2):
        rig.channels.send(broker, LeaderAndIsrRequest())
    rig.channels.close(1)
    assert [broker for broker, _ in rig.news()] == [2]
    assert rig.hung_up == [1]
