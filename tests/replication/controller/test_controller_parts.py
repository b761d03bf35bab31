"""Parts of the controller by themselves: each is made of what its constructor names."""

from __future__ import annotations

from typing import Any

import pytest
from controller_harness import ListJournal

from kwire.protocol.errors import KafkaError
from kwire.protocol.schemas.control_plane import LeaderAndIsrRequest, StopReplicaRequest
from kwire.protocol.schemas.topics import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from kwire.replication.config.broker_config import BrokerConfig
from kwire.replication.controller import election
from kwire.replication.controller.batch import Orders
from kwire.replication.controller.changes import ChangeLog
from kwire.replication.controller.context import ControllerContext, LiveBroker
from kwire.replication.controller.reassignment import Reassignments
from kwire.replication.controller.state import DeposedError, PartitionState, topic_record
from kwire.replication.core.clock import Clock, Timers
from kwire.replication.core.metadata import BROKER_RESOURCE

KEY = "unclean.leader.election.enable"


class Listener:
    """A ControllerListener that keeps what it is given."""

    on_response: Any = None

    def __init__(self) -> None:
        self.sent: list[tuple[int, Any]] = []
        self.configs: list[tuple[int, str, Any]] = []

    def send(self, broker_id: int, request: Any) -> None:
        self.sent.append((broker_id, request))

    def config_changed(self, resource_type: int, name: str, overrides: Any) -> None:
        self.configs.append((resource_type, name, overrides))


class Parts:
    """What all parts share, with brokers 1 to 3 alive and partition t-0 on 1 and 2."""

    def __init__(self, *, is_standalone: bool = False) -> None:
        timers = None if is_standalone else Timers()
        self.context = ControllerContext(
            100, BrokerConfig({}), Clock(now_ms=7), cluster_id="", timers=timers
        )
        for broker_id in (1, 2, 3):
            self.context.brokers[broker_id] = LiveBroker(broker_id, 10 + broker_id, None, [])
        self.context.brokers_changed()
        self.journal = ListJournal()
        self.refusals: list[KafkaError] = []
        self.logged: list[Any] = []
        self.changelog = ChangeLog(
            self.context,
            self.journal,
            log_event=lambda event, /, **fields: self.logged.append(event),
            on_refused=self.refusals.append,
        )
        self.listener: Any = Listener()
        self.orders = Orders(self.context, self.listener)
        self.changelog.load()
        self.changelog.commit(
            [topic_record("t", bytes(15) + b"t", [PartitionState([1, 2], [1, 2], 1)])]
        )

    @property
    def partition(self) -> PartitionState:
        return self.context.state.topics["t"].partitions[0]


@pytest.fixture
def parts() -> Parts:
    return Parts()


def test_a_broker_is_alive_for_a_partition_whose_log_it_can_read(parts: Parts) -> None:
    context = parts.context
    assert set(context.alive("t", 0)) == {1, 2, 3}
    context.brokers[1].offline = {("t", 0)}
    context.brokers[2].shutting_down = True
    context.brokers_changed()
    assert set(context.alive("t", 0)) == {3}
    assert set(context.alive("t", 1)) == {1, 3}
    assert not context.is_online(2, "t", 0)
    assert context.is_online(2, "t", 0, shutting_down=True)
    context.clear_offline_replicas("t")
    assert set(context.alive("t", 0)) == {1, 3}


def test_a_deposed_controller_gives_no_orders(parts: Parts) -> None:
    parts.orders.send(1, StopReplicaRequest())
    assert (parts.orders.sent_count, len(parts.listener.sent)) == (1, 1)
    parts.context.active = False
    parts.orders.send(1, StopReplicaRequest())
    assert (parts.orders.sent_count, len(parts.listener.sent)) == (1, 1)


@pytest.mark.parametrize("is_standalone", [False, True])
def test_the_clusters_own_overrides_hold_for_a_controller_without_a_broker(
    is_standalone: bool,
) -> None:
    parts = Parts(is_standalone=is_standalone)
    parts.orders.config_changed(BROKER_RESOURCE, "", {KEY: "true"})
    assert parts.listener.configs == [(BROKER_RESOURCE, "", {KEY: "true"})]
    # A standalone broker and its controller have one BrokerConfig: the broker changes it.
    assert parts.context.config.text(KEY) == ("false" if is_standalone else "true")
    assert parts.orders.sent_count == 1


def test_changes_are_journaled_together_and_then_counted_and_logged(parts: Parts) -> None:
    topic = parts.context.state.topics["t"]
    changes = parts.changelog.begin()
    assert not changes and not changes.elect(topic, 0, None, election.OFFLINE)
    assert not changes
    assert changes.elect(topic, 0, (2, [2], False), election.OFFLINE)
    assert changes.current(topic, 0).leader == 2 and parts.partition.leader == 1
    changes.commit()
    assert (parts.partition.leader, parts.partition.isr) == (2, [2])
    assert parts.partition.leader_epoch == parts.partition.partition_epoch == 1
    assert parts.changelog.counts == {"elections.offline": 1, "isr.shrinks": 1}
    (event,) = parts.changelog.events
    assert (event.topic, event.now_ms, [event.event]) == ("t", 7, parts.logged)


def test_a_journal_that_another_controller_writes_takes_nothing(parts: Parts) -> None:
    parts.journal.records.append(("cluster", {"controller_epoch": 9}))
    topic = parts.context.state.topics["t"]
    changes = parts.changelog.begin()
    changes.elect(topic, 0, (2, [2], False), election.OFFLINE)
    with pytest.raises(DeposedError):
        changes.commit()
    assert [type(error) for error in parts.refusals] == [DeposedError]
    assert parts.partition.leader == 1
    assert parts.logged == [] and parts.changelog.counts == {}
    parts.context.active = False
    before = len(parts.journal.records)
    with pytest.raises(DeposedError):
        parts.changelog.commit([("producer_ids", {"next": 1})])
    assert len(parts.refusals) == 1 and len(parts.journal.records) == before


def test_reassignments_need_no_controller(parts: Parts) -> None:
    reassignments = Reassignments(parts.context, parts.changelog, parts.orders)
    partition = ReassignablePartition(partition_index=0, replicas=[1, 3])
    request = AlterPartitionReassignmentsRequest(
        topics=[ReassignableTopic(name="t", partitions=[partition])]
    )
    response = reassignments.alter(request, 1)
    assert response.responses[0].partitions[0].error_code == 0
    assert (parts.partition.adding, parts.partition.removing) == ([3], [2])
    ordered = {b for b, request in parts.listener.sent if isinstance(request, LeaderAndIsrRequest)}
    assert ordered == {1, 2, 3}
