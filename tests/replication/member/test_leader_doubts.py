"""Metadata does not name a leader in doubt before the controller's word or DOUBT_MS."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from kwire.apis.metadata import handle_metadata
from kwire.protocol.schemas.metadata import MetadataRequest
from kwire.replication.config.broker_config import BrokerConfig
from kwire.replication.core.clock import Clock, Timers
from kwire.replication.member.leader_doubts import DOUBT_MS, LeaderDoubts


class Rig:
    def __init__(self) -> None:
        self.clock = Clock()
        self.timers = Timers()
        self.alive = {1, 2, 3}
        metadata: Any = SimpleNamespace(is_alive=self.alive.__contains__)
        self.config = BrokerConfig({"node.id": "1"}, brokers=3)
        self.doubts = LeaderDoubts(self.clock, self.timers, self.config, metadata)
        self.called: list[str] = []

    def wait(self, name: str) -> None:
        self.doubts.when_settled(lambda: self.called.append(name))

    def advance(self, milliseconds: int) -> None:
        self.clock.now_ms += milliseconds
        self.timers.fire(self.clock.now_ms)

    def update_metadata(self, *alive: int) -> None:
        self.alive.clear()
        self.alive.update(alive)
        self.doubts.metadata_updated()


def test_waiting_calls_run_when_the_controller_fences_the_leader() -> None:
    rig = Rig()
    assert not rig.doubts
    rig.doubts.connection_lost(2)
    assert rig.doubts
    rig.wait("a")
    rig.update_metadata(1, 2, 3)  # nobody is fenced
    assert rig.called == []
    rig.update_metadata(1, 3)
    assert rig.called == ["a"] and not rig.doubts
    rig.advance(10 * DOUBT_MS)
    assert rig.called == ["a"]


def test_a_leader_that_stays_alive_is_in_doubt_once_per_session_timeout() -> None:
    rig = Rig()
    rig.doubts.connection_lost(2)
    rig.wait("a")
    rig.advance(DOUBT_MS - 1)
    assert rig.called == []
    rig.advance(1)
    assert rig.called == ["a"] and not rig.doubts
    rig.doubts.connection_lost(2)
    assert not rig.doubts
    rig.advance(rig.config.broker_session_timeout_ms)
    rig.doubts.connection_lost(2)
    assert rig.doubts


def test_a_broker_that_came_back_may_be_in_doubt_again() -> None:
    rig = Rig()
    rig.doubts.connection_lost(2)
    rig.update_metadata(1, 3)
    rig.update_metadata(1, 2, 3)
    rig.doubts.connection_lost(2)
    assert rig.doubts


def test_calls_wait_for_two_leaders() -> None:
    rig = Rig()
    rig.doubts.connection_lost(2)
    rig.advance(50)
    rig.doubts.connection_lost(3)
    rig.wait("a")
    rig.update_metadata(1, 3)
    assert rig.called == []
    rig.advance(DOUBT_MS)
    assert rig.called == ["a"]


def test_a_node_that_is_no_live_broker_is_never_in_doubt() -> None:
    rig = Rig()
    rig.doubts.connection_lost(1000)
    assert not rig.doubts and len(rig.timers) == 0


def test_metadata_waits_while_a_leader_is_in_doubt() -> None:
    rig = Rig()
    rig.doubts.connection_lost(2)
    member = SimpleNamespace(has_metadata=True, leader_doubts=rig.doubts)
    replies: list[Any] = []
    services, session = SimpleNamespace(member=member), SimpleNamespace(client_id=None)
    ctx: Any = SimpleNamespace(
        services=services, session=session, client_id=None, reply=replies.append
    )
    handle_metadata(ctx, MetadataRequest(topics=[]))
    assert replies == []
