"""A broker alone, whose controller's journal is in the first of its log directories."""

from __future__ import annotations

from random import Random

import pytest

from kwire.broker import Broker
from kwire.protocol.schemas.topics import CreatableTopic, CreateTopicsRequest
from kwire.replication.config.broker_config import BrokerConfig
from kwire.replication.core.clock import Clock
from kwire.replication.core.memory_log_store import MemoryLogStore
from kwire.replication.core.metadata import Endpoint
from kwire.replication.core.outbox import Log, Outbox
from kwire.replication.log_dirs.manager import LogDirStore
from kwire.replication.replica.events import ReplicaEvent

ENDPOINT = Endpoint("PLAINTEXT", "localhost", 9092, 0)


class Alone:
    """A broker over stores by path; None for one that cannot be opened."""

    def __init__(self, **stores: MemoryLogStore | None) -> None:
        self.halted: list[str] = []
        self.clock = Clock(1000, 1_700_000_000_000)
        self.broker = Broker(
            BrokerConfig({"node.id": "1"}),
            [
                LogDirStore(f"/{path}", store, "" if store else "Input/output error")
                for path, store in stores.items()
            ],
            self.clock,
            Outbox(),
            Random(1),
            on_halt=self.halted.append,
        )
        self.broker.start([ENDPOINT])

    def create(self, partitions: int) -> None:
        controller = self.broker.services.controller
        assert controller is not None
        topic = CreatableTopic(name="t", num_partitions=partitions, replication_factor=1)
        controller.handle(CreateTopicsRequest(topics=[topic]), 7)

    def leaders(self) -> list[int]:
        found = self.broker.services.metadata.topic("t")
        assert found is not None
        return [found.partitions[index].leader for index in sorted(found.partitions)]

    def fail(self, number: int) -> None:
        manager = self.broker.services.log_manager
        manager.fail(manager.directories[number], "Input/output error")
        self.broker.tick()


def test_a_partition_whose_directory_fails_has_no_leader_any_more() -> None:
    alone = Alone(a=MemoryLogStore(), b=MemoryLogStore())
    alone.create(3)
    assert alone.leaders() == [1, 1, 1]
    alone.fail(1)
    assert alone.leaders() == [1, -1, 1]
    assert alone.halted == []


def test_with_the_directory_of_the_journal_the_broker_halts() -> None:
    alone = Alone(a=MemoryLogStore(), b=MemoryLogStore())
    alone.create(2)
    alone.fail(0)
    assert alone.halted == [
        "log directory /a, where the controller's journal is, has failed: Input/output error"
    ]
    alone.fail(1)
    assert len(alone.halted) == 1


def test_with_the_only_directory_the_broker_halts() -> None:
    alone = Alone(a=MemoryLogStore())
    alone.fail(0)
    assert alone.halted == ["the only log directory has failed: Input/output error"]


def test_a_directory_that_is_gone_at_the_start_costs_its_partitions_only() -> None:
    a, b = MemoryLogStore(), MemoryLogStore()
    first = Alone(a=a, b=b)
    first.create(2)
    first.broker.close()
    again = Alone(a=a, b=None)
    assert again.leaders() == [1, -1]
    again.broker.close()
    # and is there again when the directory is
    assert Alone(a=a, b=b).leaders() == [1, 1]


def test_the_directory_of_the_journal_cannot_be_gone() -> None:
    a, b = MemoryLogStore(), MemoryLogStore()
    Alone(a=a, b=b).broker.close()
    with pytest.raises(OSError, match="/a is offline: Input/output error"):
        Alone(a=None, b=b)


def test_the_directory_of_the_journal_comes_first() -> None:
    """Else a broker would set aside all topics as unknown."""
    a, b = MemoryLogStore(), MemoryLogStore()
    first = Alone(a=a, b=b)
    first.create(2)
    first.broker.close()
    with pytest.raises(OSError, match="journal is in /a: name it first"):
        Alone(b=b, a=a)
    assert Alone(a=a, b=b).leaders() == [1, 1]


def test_a_second_directory_is_added_to_one_with_data() -> None:
    a = MemoryLogStore()
    first = Alone(a=a)
    first.create(2)
    first.broker.close()
    again = Alone(a=a, b=MemoryLogStore())
    assert again.leaders() == [1, 1]
    (event,) = again.broker.outbox.drain()
    assert isinstance(event, Log) and event.event is ReplicaEvent.ROLES_CHANGED


def test_another_broker_s_directory_is_no_partition_whatever_its_name() -> None:
    a = MemoryLogStore()
    Alone(a=a).broker.close()
    a.make_dir("broker-1")
    a.write_file("broker-1/meta.properties", b"version=1\n")
    again = Alone(a=a)
    assert again.broker.services.log_manager.get("broker", 1) is None
    assert a.list_dir("broker-1") == ["meta.properties"]


def test_partitions_without_a_journal_are_not_taken_for_strays() -> None:
    a = MemoryLogStore()
    first = Alone(a=a)
    first.create(2)
    first.broker.close()
    a.delete("kwire-controller.journal")
    with pytest.raises(OSError, match="/a has partitions, but the controller's journal"):
        Alone(a=a)
    assert [name for name in a.list_dir() if name.startswith("t-")] == ["t-0", "t-1"]


def test_one_of_several_directories_is_not_enough() -> None:
    a, b = MemoryLogStore(), MemoryLogStore()
    Alone(a=a, b=b).broker.close()
    for name, store in (("a", a), ("b", b)):
        with pytest.raises(OSError, match=f"/{name} was one of 2 log directories \\(/a,/b\\)"):
            Alone(**{name: store})
    # a lost one may be replaced, and more may come
    Alone(a=a, c=MemoryLogStore()).broker.close()
    Alone(a=a, b=b, c=MemoryLogStore()).broker.close()
    with pytest.raises(OSError, match=r"/a was one of 3 log directories \(/a,/b,/c\)"):
        Alone(a=a, b=b)
