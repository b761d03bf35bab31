"""Controllers that share a store: who is active, who stands by, and how one follows the other."""

from __future__ import annotations

from typing import Any

import pytest

from kwire.protocol import api
from kwire.protocol.errors import ErrorCode
from kwire.protocol.schemas.cluster import DescribeClusterRequest
from kwire.protocol.schemas.control_plane import AlterPartitionRequest, EnvelopeRequest
from kwire.protocol.schemas.nodes import BrokerHeartbeatRequest
from kwire.protocol.schemas.topics import CreatableTopic, CreateTopicsRequest
from kwire.replication.controller.claim import generation_file
from kwire.replication.core.clock import Clock
from kwire.replication.core.events import Event
from kwire.replication.core.log_store import MemoryLogStore
from tests.apis.test_controller_plane import Rig

PATIENCE_MS = 2000  # controller.quorum.fetch.timeout.ms
LOOK_MS = 400


class Pair:
    """1000, active, and 1001, which stands by; one clock for both."""

    def __init__(self) -> None:
        self.clock = Clock(now_ms=1000, wall_ms=1_700_000_000_000)
        self.store = MemoryLogStore()
        self.first = self.start(1000)
        self.second = self.start(1001)

    def start(self, node_id: int) -> Rig:
        return Rig(self.store, node_id, self.clock, shared=True, alone=False)

    def pass_time(self, milliseconds: int, *running: Rig) -> None:
        """Time passes in small steps, which only these notice."""
        end = self.clock.now_ms + milliseconds
        while self.clock.now_ms < end:
            self.clock.now_ms = min(self.clock.now_ms + 50, end)
            for rig in running:
                rig.node.tick()


def create(rig: Rig, name: str) -> Any:
    """A client's CreateTopics as a broker forwards it."""
    topic = CreatableTopic(name=name, num_partitions=1, replication_factor=1)
    parts = api.encode_request(19, 7, 1, None, CreateTopicsRequest(topics=[topic], timeout_ms=100))
    data = b"".join(bytes(p) for p in parts)[4:]
    request = EnvelopeRequest(request_data=data, request_principal=None, client_host_address=b"")
    return rig.ask(request, 0)


@pytest.fixture
def pair() -> Pair:
    return Pair()


def active(*rigs: Rig) -> list[bool]:
    return [rig.node.controller.active for rig in rigs]


def test_one_is_active_as_long_as_it_renews_its_lease(pair: Pair) -> None:
    assert active(pair.first, pair.second) == [True, False]
    pair.pass_time(20 * PATIENCE_MS, pair.first, pair.second)
    assert active(pair.first, pair.second) == [True, False]
    assert pair.second.logged.events == [Event.CONTROLLER_STANDBY]
    assert pair.second.logged.texts == ["controller 1001 stands by"]


def test_one_that_stands_by_sends_brokers_elsewhere(pair: Pair) -> None:
    assert pair.second.register(1).error_code == ErrorCode.NOT_CONTROLLER
    heartbeat = BrokerHeartbeatRequest(broker_id=1, broker_epoch=1)
    assert pair.second.ask(heartbeat, 1).error_code == ErrorCode.NOT_CONTROLLER
    alter = AlterPartitionRequest(broker_id=1, broker_epoch=1)
    assert pair.second.ask(alter, 3).error_code == ErrorCode.NOT_CONTROLLER
    assert create(pair.second, "t").error_code == ErrorCode.NOT_CONTROLLER
    pair.pass_time(LOOK_MS, pair.second)
    assert pair.second.ask(DescribeClusterRequest(), 0).controller_id == 1000


def test_it_takes_over_from_one_that_is_silent_and_knows_what_that_knew(pair: Pair) -> None:
    first, second = pair.first, pair.second
    epoch = first.register(1).broker_epoch
    first.acknowledge()
    assert create(first, "t") is None  # it waits for the broker
    pair.pass_time(PATIENCE_MS - LOOK_MS, second)
    assert active(first, second) == [True, False]
    pair.pass_time(2 * LOOK_MS, second)
    assert second.node.controller.active and second.node.controller.epoch == 2
    assert list(second.node.controller.state.topics) == ["t"]
    told = {"Envelope to 1", "UpdateMetadata to 1", "LeaderAndIsr to 1"}
    assert set(second.acknowledge()) == told
    heartbeat = BrokerHeartbeatRequest(broker_id=1, broker_epoch=epoch)
    assert second.ask(heartbeat, 1).error_code == 0
    assert second.ask(DescribeClusterRequest(), 0).controller_id == 1001


def test_one_that_wakes_up_is_refused_by_the_store_and_stands_by(pair: Pair) -> None:
    first, second = pair.first, pair.second
    first.register(1)
    first.acknowledge()
    pair.pass_time(PATIENCE_MS + LOOK_MS, second)
    assert active(first, second) == [True, True]  # and so the first believes
    assert create(first, "t").error_code == ErrorCode.NOT_CONTROLLER
    assert active(first, second) == [False, True]
    assert first.acknowledge() == []
    first.node.tick()
    assert first.logged.events[-2:] == [Event.CONTROLLER_RESIGNED, Event.CONTROLLER_STANDBY]
    (resigned,) = first.logged.of(Event.CONTROLLER_RESIGNED)
    assert (resigned["controller_epoch"], resigned["reason"]) == (1, "deposed")
    assert first.logged.texts[-2:] == [
        "the controller of epoch 1 has resigned: Another controller has taken over.",
        "controller 1000 stands by",
    ]
    assert [n for n in pair.store.list_dir() if n.endswith(".journal")] == [generation_file(2)]
    pair.pass_time(20 * PATIENCE_MS, first, second)
    assert active(first, second) == [False, True]
    pair.pass_time(PATIENCE_MS + LOOK_MS, first)
    assert first.node.controller.active and first.node.controller.epoch == 3
    assert list(first.node.controller.state.topics) == []


def test_one_that_wakes_up_and_is_asked_nothing_notices_at_its_next_look(pair: Pair) -> None:
    pair.pass_time(PATIENCE_MS + LOOK_MS, pair.second)
    pair.first.node.tick()
    assert active(pair.first, pair.second) == [False, True]


def test_one_that_stood_still_itself_does_not_count_the_silence(pair: Pair) -> None:
    pair.pass_time(LOOK_MS, pair.first, pair.second)
    pair.clock.now_ms += 10 * PATIENCE_MS  # both stood still
    pair.second.node.tick()
    assert active(pair.first, pair.second) == [True, False]
    pair.pass_time(PATIENCE_MS // 2, pair.first, pair.second)
    assert active(pair.first, pair.second) == [True, False]


def test_one_that_stops_in_order_lets_go_at_once(pair: Pair) -> None:
    ready: list[bool] = []
    pair.first.node.prepare_stop(lambda: ready.append(True))
    pair.first.node.close()
    assert ready == [True]
    pair.pass_time(LOOK_MS, pair.second)
    assert pair.second.node.controller.active


def test_one_that_hears_of_no_broker_lets_another_try_before_it_declares_all_dead(
    pair: Pair,
) -> None:
    first, second = pair.first, pair.second
    connections = [first.open(), first.open()]
    epochs = [
        first.register(broker, connection).broker_epoch
        for broker, connection in zip((1, 2), connections, strict=True)
    ]
    first.acknowledge()
    for connection in connections:
        first.node.connection_closed(connection)
    pair.pass_time(50, first, second)
    assert active(first, second) == [False, False]
    assert "resigned: it hears of no broker any more" in first.logged.last.text
    assert first.logged.last.event is Event.CONTROLLER_RESIGNED
    assert first.logged.last.fields["reason"] == "isolated"
    pair.pass_time(LOOK_MS, first, second)
    assert active(first, second) == [False, True]
    for broker, epoch in zip((1, 2), epochs, strict=True):
        heartbeat = BrokerHeartbeatRequest(broker_id=broker, broker_epoch=epoch)
        assert second.ask(heartbeat, 1).error_code == 0


def test_one_that_is_alone_with_the_silence_declares_them_dead_after_all(pair: Pair) -> None:
    first = pair.first
    connection = first.open()
    first.register(1, connection)
    first.node.connection_closed(connection)
    pair.pass_time(PATIENCE_MS + 2 * LOOK_MS, first)
    assert first.node.controller.active and first.node.controller.epoch == 2
    assert sorted(first.node.controller.brokers) == [1]
    pair.pass_time(9000, first)
    assert first.node.controller.active and not first.node.controller.brokers


def test_the_death_of_one_broker_of_two_is_no_reason_to_stand_aside(pair: Pair) -> None:
    first = pair.first
    connections = [first.open(), first.open()]
    for broker, connection in zip((1, 2), connections, strict=True):
        first.register(broker, connection)
    first.node.connection_closed(connections[0])
    pair.pass_time(50, first, pair.second)
    assert first.node.controller.active and sorted(first.node.controller.brokers) == [2]


def test_the_first_of_a_new_run_need_not_wait_for_the_lease_of_the_last(pair: Pair) -> None:
    pair.first.node.close()
    pair.second.node.close()
    again = Rig(pair.store, 1001, pair.clock, shared=True, alone=True)
    assert again.node.controller.active and again.node.controller.epoch == 2


def test_a_controller_without_others_goes_on_with_a_shared_directory(pair: Pair) -> None:
    pair.first.register(1)
    pair.first.node.close()
    alone = Rig(pair.store, 1000, pair.clock)
    assert alone.node.controller.active and sorted(alone.node.controller.brokers) == [1]
    assert alone.node.next_deadline_ms() is not None
    assert "controller-lease" not in alone.node.timers


def test_a_take_over_that_the_disk_refuses_is_tried_again(pair: Pair) -> None:
    pair.store.fail_next("write_file", OSError("no space"))
    pair.pass_time(PATIENCE_MS + LOOK_MS, pair.second)
    assert not pair.second.node.controller.active
    assert pair.second.logged.last.event is Event.CONTROLLER_TAKE_OVER_FAILED
    assert pair.second.logged.last.text == "controller 1001 cannot take over: no space"
    pair.pass_time(PATIENCE_MS + LOOK_MS, pair.second)
    assert pair.second.node.controller.active
