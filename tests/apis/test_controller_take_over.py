"""Controllers that share a store: the active one, standbys, and take-over."""

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
from kwire.replication.core.memory_log_store import MemoryLogStore
from tests.apis.test_controller_plane import Rig

LEASE_TIMEOUT_MS = 2000  # controller.quorum.fetch.timeout.ms
CHECK_MS = 400


class Pair:
    """Controller 1000, active, and 1001, a standby; one clock for both."""

    def __init__(self) -> None:
        self.clock = Clock(now_ms=1000, wall_ms=1_700_000_000_000)
        self.store = MemoryLogStore()
        self.first = self.start(1000)
        self.second = self.start(1001)

    def start(self, node_id: int) -> Rig:
        return Rig(self.store, node_id, self.clock, shared=True, alone=False)

    def pass_time(self, milliseconds: int, *running: Rig) -> None:
        """Let time pass in small steps; only the `running` nodes get ticks."""
        end = self.clock.now_ms + milliseconds
        while self.clock.now_ms < end:
            self.clock.now_ms = min(self.clock.now_ms + 50, end)
            for rig in running:
                rig.node.tick()


def create(rig: Rig, name: str) -> Any:
    """Send a client's CreateTopics, forwarded by a broker."""
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


def test_a_controller_is_active_as_long_as_it_renews_its_lease(pair: Pair) -> None:
    assert active(pair.first, pair.second) == [True, False]
    pair.pass_time(20 * LEASE_TIMEOUT_MS, pair.first, pair.second)
    assert active(pair.first, pair.second) == [True, False]
    assert pair.second.logged.events == [Event.CONTROLLER_STANDBY]
    assert pair.second.logged.texts == ["controller 1001 stands by"]


def test_a_standby_redirects_brokers_to_the_active_controller(pair: Pair) -> None:
    assert pair.second.register(1).error_code == ErrorCode.NOT_CONTROLLER
    heartbeat = BrokerHeartbeatRequest(broker_id=1, broker_epoch=1)
    assert pair.second.ask(heartbeat, 1).error_code == ErrorCode.NOT_CONTROLLER
    alter = AlterPartitionRequest(broker_id=1, broker_epoch=1)
    assert pair.second.ask(alter, 3).error_code == ErrorCode.NOT_CONTROLLER
    assert create(pair.second, "t").error_code == ErrorCode.NOT_CONTROLLER
    pair.pass_time(CHECK_MS, pair.second)
    assert pair.second.ask(DescribeClusterRequest(), 0).controller_id == 1000


def test_a_standby_takes_over_when_the_lease_expires_and_has_all_topics(pair: Pair) -> None:
    first, second = pair.first, pair.second
    epoch = first.register(1).broker_epoch
    first.acknowledge()
    assert create(first, "t") is None  # it waits for the broker
    pair.pass_time(LEASE_TIMEOUT_MS - CHECK_MS, second)
    assert active(first, second) == [True, False]
    pair.pass_time(2 * CHECK_MS, second)
    assert second.node.controller.active and second.node.controller.epoch == 2
    assert list(second.node.controller.state.topics) == ["t"]
    told = {"Envelope to 1", "UpdateMetadata to 1", "LeaderAndIsr to 1"}
    assert set(second.acknowledge()) == told
    heartbeat = BrokerHeartbeatRequest(broker_id=1, broker_epoch=epoch)
    assert second.ask(heartbeat, 1).error_code == 0
    assert second.ask(DescribeClusterRequest(), 0).controller_id == 1001


def test_a_resumed_controller_is_fenced_by_the_store_and_becomes_a_standby(pair: Pair) -> None:
    first, second = pair.first, pair.second
    first.register(1)
    first.acknowledge()
    pair.pass_time(LEASE_TIMEOUT_MS + CHECK_MS, second)
    assert active(first, second) == [True, True]  # the first still believes it is active
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
    pair.pass_time(20 * LEASE_TIMEOUT_MS, first, second)
    assert active(first, second) == [False, True]
    pair.pass_time(LEASE_TIMEOUT_MS + CHECK_MS, first)
    assert first.node.controller.active and first.node.controller.epoch == 3
    assert list(first.node.controller.state.topics) == []


def test_a_resumed_idle_controller_resigns_at_its_next_lease_check(pair: Pair) -> None:
    pair.pass_time(LEASE_TIMEOUT_MS + CHECK_MS, pair.second)
    pair.first.node.tick()
    assert active(pair.first, pair.second) == [False, True]


def test_a_standby_that_was_paused_does_not_count_that_time(pair: Pair) -> None:
    pair.pass_time(CHECK_MS, pair.first, pair.second)
    pair.clock.now_ms += 10 * LEASE_TIMEOUT_MS  # both were paused
    pair.second.node.tick()
    assert active(pair.first, pair.second) == [True, False]
    pair.pass_time(LEASE_TIMEOUT_MS // 2, pair.first, pair.second)
    assert active(pair.first, pair.second) == [True, False]


def test_a_clean_stop_releases_the_lease_immediately(pair: Pair) -> None:
    ready: list[bool] = []
    pair.first.node.prepare_stop(lambda: ready.append(True))
    pair.first.node.close()
    assert ready == [True]
    pair.pass_time(CHECK_MS, pair.second)
    assert pair.second.node.controller.active


def test_a_controller_without_heartbeats_resigns_before_it_fences_all_brokers(
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
    assert "resigned: it receives no heartbeats any more" in first.logged.last.text
    assert first.logged.last.event is Event.CONTROLLER_RESIGNED
    assert first.logged.last.fields["reason"] == "isolated"
    pair.pass_time(CHECK_MS, first, second)
    assert active(first, second) == [False, True]
    for broker, epoch in zip((1, 2), epochs, strict=True):
        heartbeat = BrokerHeartbeatRequest(broker_id=broker, broker_epoch=epoch)
        assert second.ask(heartbeat, 1).error_code == 0


def test_without_another_controller_it_fences_the_silent_brokers(pair: Pair) -> None:
    first = pair.first
    connection = first.open()
    first.register(1, connection)
    first.node.connection_closed(connection)
    pair.pass_time(LEASE_TIMEOUT_MS + 2 * CHECK_MS, first)
    assert first.node.controller.active and first.node.controller.epoch == 2
    assert sorted(first.node.controller.brokers) == [1]
    pair.pass_time(9000, first)
    assert first.node.controller.active and not first.node.controller.brokers


def test_the_death_of_one_of_two_brokers_is_no_reason_to_resign(pair: Pair) -> None:
    first = pair.first
    connections = [first.open(), first.open()]
    for broker, connection in zip((1, 2), connections, strict=True):
        first.register(broker, connection)
    first.node.connection_closed(connections[0])
    pair.pass_time(50, first, pair.second)
    assert first.node.controller.active and sorted(first.node.controller.brokers) == [2]


def test_the_first_controller_of_a_new_run_does_not_wait_for_the_old_lease(pair: Pair) -> None:
    pair.first.node.close()
    pair.second.node.close()
    again = Rig(pair.store, 1001, pair.clock, shared=True, alone=True)
    assert again.node.controller.active and again.node.controller.epoch == 2


def test_a_single_controller_continues_with_a_shared_directory(pair: Pair) -> None:
    pair.first.register(1)
    pair.first.node.close()
    alone = Rig(pair.store, 1000, pair.clock)
    assert alone.node.controller.active and sorted(alone.node.controller.brokers) == [1]
    assert alone.node.next_deadline_ms() is not None
    assert "controller-lease" not in alone.node.timers


def test_a_take_over_that_fails_on_the_disk_is_retried(pair: Pair) -> None:
    pair.store.fail_next("write_file", OSError("no space"))
    pair.pass_time(LEASE_TIMEOUT_MS + CHECK_MS, pair.second)
    assert not pair.second.node.controller.active
    assert pair.second.logged.last.event is Event.CONTROLLER_TAKE_OVER_FAILED
    assert pair.second.logged.last.text == "controller 1001 cannot take over: no space"
    pair.pass_time(LEASE_TIMEOUT_MS + CHECK_MS, pair.second)
    assert pair.second.node.controller.active
