"""A controller whose journal is flushed in the background: nothing leaves that is not on the disk."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest

from kwire.controller_node import ControllerNode
from kwire.protocol import api
from kwire.protocol.language.schema import Message
from kwire.protocol.schemas.api_versions import ApiVersionsRequest
from kwire.protocol.schemas.nodes import BrokerRegistrationRequest, Listener
from kwire.protocol.schemas.topics import CreatableTopic, CreateTopicsRequest
from kwire.replication.config.broker_config import BrokerConfig
from kwire.replication.core.clock import Clock
from kwire.replication.core.events import Event
from kwire.replication.core.memory_log_store import MemoryLogStore, _MemoryFile
from kwire.replication.core.metadata import Endpoint
from kwire.replication.core.outbox import Close, HoldingOutbox, Log, Outbox, Reply, Send

BROKER, CLIENT, OTHER = 1, 2, 3


class Disk:
    """Flushes of a MemoryLogStore that end when `end` is called."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.begun: list[Callable[[], None]] = []
        self.is_slow = False
        real = _MemoryFile.start_flush

        def start_flush(file: _MemoryFile, on_flushed: Callable[[], None] | None = None) -> None:
            if self.is_slow:
                self.begun.append(lambda: real(file, on_flushed))
            else:
                real(file, on_flushed)

        monkeypatch.setattr(_MemoryFile, "start_flush", start_flush)

    def end(self) -> None:
        self.begun.pop(0)()


class Rig:
    """A controller node with one registered broker."""

    def __init__(self, disk: Disk, outbox: Outbox) -> None:
        self.disk = disk
        self.outbox = outbox
        self.store = MemoryLogStore()
        self.clock = Clock(now_ms=1_000, wall_ms=1_700_000_000_000)
        config = BrokerConfig({"node.id": "100"})
        self.node = ControllerNode(config, self.store, self.clock, outbox, Random(5))
        self.node.start([Endpoint("CONTROLLER", "localhost", 9090)])
        for connection in (BROKER, CLIENT, OTHER):
            self.node.connection_opened(connection, "CONTROLLER", "127.0.0.1")
        self.register(1)
        self.left()

    def register(self, broker_id: int) -> None:
        registration = BrokerRegistrationRequest(
            broker_id=broker_id,
            cluster_id=self.node.services.cluster_id,
            incarnation_id=bytes([broker_id] * 16),
            listeners=[Listener(name="PLAINTEXT", host="localhost", port=9092)],
        )
        self.send(BROKER, 0, registration)

    def send(self, connection: int, version: int, request: Message) -> None:
        parts = api.encode_request(api.key_of(request), version, 7, "client", request)
        self.node.receive_frame(connection, b"".join(bytes(part) for part in parts)[4:])

    def create(self, name: str, connection: int = CLIENT) -> None:
        topic = CreatableTopic(name=name, num_partitions=1, replication_factor=1)
        self.send(connection, 4, CreateTopicsRequest(topics=[topic], timeout_ms=0))
        self.clock.now_ms += 1
        self.node.tick()

    def left(self) -> list[object]:
        """What has left since the last call: connections answered, nodes that got orders, events."""
        found: list[object] = []
        for effect in self.outbox.drain():
            if isinstance(effect, Reply | Close):
                found.append((type(effect).__name__, effect.connection))
            elif isinstance(effect, Send):
                found.append(("Send", effect.node))
            elif isinstance(effect, Log):
                found.append(effect.event)
        return found


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    return Disk(monkeypatch)


@pytest.fixture
def rig(disk: Disk) -> Rig:
    return Rig(disk, HoldingOutbox(Clock()))


def test_nothing_of_a_decision_leaves_before_it_is_on_the_disk(rig: Rig, disk: Disk) -> None:
    disk.is_slow = True
    rig.create("a")
    assert rig.left() == []
    disk.end()
    left = rig.left()
    assert Event.TOPIC_CREATED in left and ("Reply", CLIENT) in left


def test_no_order_of_a_decision_leaves_before_it_is_on_the_disk(rig: Rig, disk: Disk) -> None:
    disk.is_slow = True
    rig.register(2)
    assert rig.left() == []
    disk.end()
    left = rig.left()
    assert ("Send", 2) in left and ("Reply", BROKER) in left


def test_what_was_said_before_does_not_wait(rig: Rig, disk: Disk) -> None:
    disk.is_slow = True
    rig.send(OTHER, 0, ApiVersionsRequest())
    assert rig.left() == [("Reply", OTHER)]
    rig.send(OTHER, 0, ApiVersionsRequest())  # another step, which the driver has not drained yet
    rig.create("a")
    assert ("Reply", CLIENT) not in rig.left()


def test_later_answers_wait_as_they_may_tell_of_it(rig: Rig, disk: Disk) -> None:
    disk.is_slow = True
    rig.create("a")
    rig.send(OTHER, 0, ApiVersionsRequest())
    assert rig.left() == []
    disk.end()
    assert ("Reply", OTHER) in rig.left()


def test_each_decision_waits_for_its_own_flush(rig: Rig, disk: Disk) -> None:
    disk.is_slow = True
    rig.create("a")
    assert rig.left() == []
    rig.create("b", OTHER)
    assert rig.left() == []
    disk.end()
    left = rig.left()
    assert ("Reply", CLIENT) in left and ("Reply", OTHER) not in left
    disk.end()
    assert ("Reply", OTHER) in rig.left()


def test_a_flush_that_fails_ends_the_controller_and_nobody_learns_of_the_decision(
    rig: Rig, disk: Disk
) -> None:
    disk.is_slow = True
    rig.register(2)
    rig.create("a")
    assert rig.left() == []
    assert rig.store.on_failure is not None
    rig.store.on_failure(OSError(5, "Input/output error"))
    left = rig.left()
    assert not rig.node.controller.active
    assert Event.CONTROLLER_RESIGNED in left and ("Close", CLIENT) in left
    assert ("Reply", CLIENT) not in left and ("Send", 2) not in left


def test_a_clean_stop_flushes_and_lets_go(rig: Rig, disk: Disk) -> None:
    disk.is_slow = True
    rig.create("a")
    rig.node.close()
    assert Event.TOPIC_CREATED in rig.left()


def test_without_such_an_outbox_the_step_waits_for_the_disk(disk: Disk) -> None:
    rig = Rig(disk, Outbox())
    disk.is_slow = True
    rig.create("a")
    assert ("Reply", CLIENT) in rig.left() and not disk.begun


def test_what_is_taken_back_leaves_the_places_of_others() -> None:
    outbox = HoldingOutbox()
    first = outbox.hold()
    outbox.send(1, "control", 1, [b"a"])
    outbox.send(2, "control", 2, [b"b"])
    assert outbox.drain() == []
    outbox.unsend(1, "control")
    outbox.reply(9, [b"c"])
    second = outbox.hold()
    assert outbox.drain() == []
    outbox.release(first)
    assert [type(effect) for effect in outbox.drain()] == [Send]
    outbox.release(second)
    assert [type(effect) for effect in outbox.drain()] == [Reply]
    assert outbox.drain() == []


def thousands(outbox: HoldingOutbox) -> None:
    """Thirty steps of ten effects each, which one flush lets go."""
    holds = []
    for step in range(30):
        holds.append(outbox.hold())
        for effect in range(10):
            outbox.reply(step, [b"%d" % effect])
        assert outbox.drain() == [] and not outbox.has_more
    for hold in holds:
        outbox.release(hold)


def test_what_one_flush_has_held_leaves_in_parts() -> None:
    """Thousands of events at once would keep all others on the loop waiting, half a second."""
    thousands(outbox := HoldingOutbox())
    left: list[int] = []
    while outbox.has_more:
        part = outbox.drain()
        assert len(part) <= 100
        left += [reply.connection for reply in part if isinstance(reply, Reply)]
    assert left == sorted(left) and len(left) == 300


def test_a_node_is_due_while_effects_leave_in_parts(disk: Disk) -> None:
    rig = Rig(disk, outbox := HoldingOutbox())
    assert rig.node.next_deadline_ms() != rig.clock.now_ms
    thousands(outbox)
    while outbox.has_more:
        assert rig.node.next_deadline_ms() == rig.clock.now_ms
        outbox.drain()
    assert rig.node.next_deadline_ms() != rig.clock.now_ms
