from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import Any

import pytest
from controller_harness import Brokers, ListJournal

from kwire.protocol.errors import ErrorCode
from kwire.protocol.records import iter_batches
from kwire.protocol.schemas.control_plane import (
    AllocateProducerIdsRequest,
    LeaderAndIsrRequest,
    StopReplicaRequest,
    UpdateMetadataRequest,
)
from kwire.protocol.schemas.topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    DeleteTopicState,
)
from kwire.replication.config.broker_config import BrokerConfig
from kwire.replication.controller.controller import Controller
from kwire.replication.controller.journal import JOURNAL_FILE, StoreJournal
from kwire.replication.controller.state import ControllerState, JournalError, PartitionState
from kwire.replication.core.memory_log_store import MemoryLogStore
from kwire.replication.core.metadata import Endpoint


class Recorder(Brokers):
    """What brokers were told; configurations as (type, name, overrides)."""

    def config_changed(self, resource_type: int, name: str, overrides: Mapping[str, str]) -> None:
        self.said.append((resource_type, name, dict(overrides)))  # type: ignore[arg-type]

    def take(self) -> list[Any]:
        return super().take()


class Cluster:
    def __init__(self, journal: Any = None, brokers: tuple[int, ...] = (1, 2, 3), **settings: str):
        self.journal = journal or ListJournal()
        self.recorder = Recorder()
        config = BrokerConfig({k.replace("_", "."): v for k, v in settings.items()})
        self.controller = Controller(100, config, self.journal, self.recorder, Random(1))
        self.controller.start()
        for broker in brokers:
            self.register(broker)
        self.recorder.take()

    def register(self, broker: int) -> int:
        return self.controller.register_broker(broker, None, [Endpoint("L", f"h{broker}", broker)])

    def fail(self, broker: int) -> None:
        controller = self.controller
        controller.step(lambda: controller.registry.fence(broker, "unregistered"))

    def create(self, name: str, *replicas: list[int], **configs: str) -> Any:
        topic = CreatableTopic(
            name=name,
            num_partitions=-1,
            replication_factor=-1,
            assignments=[
                CreatableReplicaAssignment(partition_index=i, broker_ids=r)
                for i, r in enumerate(replicas)
            ],
            configs=[
                CreatableTopicConfig(name=k.replace("_", "."), value=v) for k, v in configs.items()
            ],
        )
        response: Any = self.controller.handle(CreateTopicsRequest(topics=[topic]), 7)
        return response.topics[0]

    def delete(self, name: str) -> Any:
        request = DeleteTopicsRequest(topics=[DeleteTopicState(name=name)])
        response: Any = self.controller.handle(request, 6)
        return response.responses[0]

    def state(self, topic: str, index: int = 0) -> tuple[int, list[int], int, int]:
        p = self.controller.state.topics[topic].partitions[index]
        return p.leader, p.isr, p.leader_epoch, p.partition_epoch


def test_a_new_topic_is_announced_to_its_replicas_and_its_news_to_all() -> None:
    cluster = Cluster()
    cluster.create("t", [2, 3], retention_ms="5")
    said = cluster.recorder.take()
    assert said[0] == (2, "t", {"retention.ms": "5"})  # resource type 2 is a topic: before its logs
    kinds = [(broker, type(request)) for broker, request in said[1:]]
    assert kinds == [
        (2, LeaderAndIsrRequest),
        (3, LeaderAndIsrRequest),
        (1, UpdateMetadataRequest),
        (2, UpdateMetadataRequest),
        (3, UpdateMetadataRequest),
    ]
    state = said[1][1].topic_states[0].partition_states[0]
    assert (state.leader, state.isr, state.leader_epoch, state.is_new) == (2, [2, 3], 0, True)
    assert said[1][1].broker_epoch != said[2][1].broker_epoch


def test_requests_for_brokers_can_be_written_in_every_version() -> None:
    cluster = Cluster()
    cluster.create("t", [1, 2])
    cluster.delete("t")
    for _, request in cluster.recorder.take():
        decoded = type(request).decode(
            request.encode(type(request).versions[1] - 1), type(request).versions[1] - 1
        )
        assert decoded.controller_id == 100


def test_a_new_broker_hears_of_the_brokers_before_it_gets_roles() -> None:
    cluster = Cluster(brokers=(1,))
    cluster.create("t", [1])
    cluster.recorder.take()
    cluster.register(1)
    said = [request for broker, request in cluster.recorder.take() if broker == 1]
    assert [type(request) for request in said] == [UpdateMetadataRequest, LeaderAndIsrRequest]
    assert said[1].type == 2  # all that belongs to it


def test_deletion_is_told_and_done_in_two_steps() -> None:
    cluster = Cluster(brokers=(1,))
    cluster.create("t", [1])
    cluster.recorder.take()
    cluster.delete("t")
    said = [request for _, request in cluster.recorder.take()]
    assert [type(r) for r in said] == [
        UpdateMetadataRequest,
        StopReplicaRequest,
        StopReplicaRequest,
    ]
    assert said[0].topic_states[0].partition_states[0].leader == -2
    stops = [r.topic_states[0].partition_states[0] for r in said[1:]]
    assert [(s.leader_epoch, s.delete_partition) for s in stops] == [(-2, False), (-2, True)]


def test_s70_another_in_sync_replica_takes_over_in_assignment_order() -> None:
    cluster = Cluster()
    cluster.create("t", [1, 2, 3])
    cluster.fail(1)
    assert cluster.state("t") == (2, [2, 3], 1, 1)
    cluster.register(1)
    assert cluster.state("t") == (2, [2, 3], 1, 1)


def test_s72_the_death_of_an_in_sync_follower_costs_an_epoch() -> None:
    cluster = Cluster()
    cluster.create("t", [1, 2, 3])
    cluster.fail(3)
    assert cluster.state("t") == (1, [1, 2], 1, 1)
    cluster.fail(3)
    assert cluster.state("t") == (1, [1, 2], 1, 1)


def test_s73_the_last_in_sync_replica_stays_listed_and_leads_again() -> None:
    cluster = Cluster(brokers=(1,))
    cluster.create("t", [1])
    cluster.fail(1)
    assert cluster.state("t") == (-1, [1], 1, 1)
    cluster.register(1)
    assert cluster.state("t") == (1, [1], 2, 2)


@pytest.mark.parametrize(
    ("unclean", "expected"), [("true", (2, [2], 3, 3)), ("false", (-1, [1], 2, 2))]
)
def test_s74_s75_a_replica_that_is_behind_leads_only_where_that_is_allowed(
    unclean: str, expected: Any
) -> None:
    cluster = Cluster()
    cluster.create("t", [1, 2], unclean_leader_election_enable=unclean)
    cluster.fail(2)
    cluster.fail(1)
    cluster.register(2)
    assert cluster.state("t") == expected
    partition = cluster.controller.state.topics["t"].partitions[0]
    assert partition.recovering is (unclean == "true")


def test_s75_allowing_it_later_elects_at_once() -> None:
    cluster = Cluster()
    cluster.create("t", [1, 2])
    for broker in (2, 1):
        cluster.fail(broker)
    cluster.register(2)
    assert cluster.state("t")[0] == -1
    from kwire.protocol.schemas.configs import (
        AlterableConfig,
        AlterConfigsRequest,
        AlterConfigsResource,
    )

    configs = [AlterableConfig(name="unclean.leader.election.enable", value="true")]
    resource = AlterConfigsResource(resource_type=2, resource_name="t", configs=configs)
    cluster.controller.handle(AlterConfigsRequest(resources=[resource]), 2)
    assert cluster.state("t")[:2] == (2, [2])


def test_s78_a_topic_is_created_on_the_replicas_that_live() -> None:
    cluster = Cluster(brokers=(1, 2, 3))
    cluster.fail(3)
    cluster.create("t", [3, 1])
    cluster.create("alone", [3])
    assert cluster.state("t") == (1, [1], 0, 0)
    assert cluster.state("alone") == (-1, [], 0, 0)
    cluster.register(3)
    assert cluster.state("t") == (1, [1], 0, 0)
    assert cluster.state("alone") == (3, [3], 0, 1)


def test_a_failed_journal_write_leaves_nothing_behind() -> None:
    cluster = Cluster()
    cluster.journal.fail = True
    result = cluster.create("t", [1])
    assert result.error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert "t" not in cluster.controller.state.topics
    assert cluster.recorder.take() == []
    cluster.journal.fail = False
    assert cluster.create("t", [1]).error_code == 0


def test_the_journal_leads_to_the_same_state() -> None:
    cluster = Cluster()
    cluster.create("t", [1, 2], retention_ms="5")
    cluster.create("gone", [1])
    cluster.delete("gone")
    cluster.fail(1)
    replayed, shortest = ControllerState(), ControllerState()
    broker = cluster.controller.brokers[2]
    request = AllocateProducerIdsRequest(broker_id=2, broker_epoch=broker.epoch)
    assert cluster.controller.handle(request, 0).error_code == 0
    for record in cluster.journal.records:
        replayed.replay(record)
    for record in replayed.records():
        shortest.replay(record)
    assert replayed.registrations.keys() == {1, 2, 3} and replayed.next_producer_id == 1000
    for state in (replayed, shortest):
        assert state.records() == cluster.controller.state.records()
        assert state.registrations == cluster.controller.state.registrations
        assert state.next_producer_id == cluster.controller.state.next_producer_id
        assert state.names_by_id == cluster.controller.state.names_by_id


def test_controller_and_broker_epochs_rise_over_restarts() -> None:
    journal = ListJournal()
    first = Cluster(journal, brokers=(1,))
    first_epoch = first.controller.brokers[1].epoch
    second = Cluster(journal, brokers=(1,))
    assert second.controller.state.controller_epoch == first.controller.state.controller_epoch + 1
    assert second.controller.brokers[1].epoch > first_epoch


def test_a_recreated_topic_does_not_inherit_old_partition_records() -> None:
    cluster = Cluster(brokers=(1,))
    cluster.create("t", [1])
    cluster.register(1)  # leaves a record of the partition's own
    assert cluster.state("t")[2] == 2
    cluster.delete("t")
    cluster.create("t", [1])
    state = ControllerState()
    for record in cluster.journal.records:
        state.replay(record)
    assert state.topics["t"].partitions[0].leader_epoch == 0
    # not even one that comes late, and the journal has dropped them all
    state.replay(("partition/t/0", {"id": bytes(16).hex(), "state": [[1], [1], 1, 7, 7]}))
    assert state.topics["t"].partitions[0].leader_epoch == 0
    assert ("partition/t/0", None) in cluster.journal.records


def test_the_same_seed_makes_the_same_cluster() -> None:
    states = []
    for _ in range(2):
        cluster = Cluster(num_partitions="6", default_replication_factor="2")
        cluster.create("t")
        states.append(cluster.controller.state.records())
    assert states[0] == states[1]


@pytest.mark.parametrize(
    "record",
    [
        ("nonsense", {}),
        ("topic/t", {"id": "zz", "partitions": []}),
        ("topic/t", {}),
        ("broker/x", {"epoch": 1}),
        ("partition/t", {"id": "", "state": []}),
        ("config/topic/t", {}),
        ("cluster", None),
    ],
)
def test_a_record_that_is_none_of_ours_is_a_clear_error(record: Any) -> None:
    with pytest.raises(JournalError) as caught:
        ControllerState().replay(record)
    assert repr(record[0]) in str(caught.value)


def test_illegal_moves_are_refused() -> None:
    state = PartitionState([1, 2], [1], 1)
    for wrong in (
        {"leader": 2, "isr": [1], "leader_epoch": 1},
        {"leader": 1, "isr": [1, 9], "leader_epoch": 1},
        {"leader": 1, "isr": [1], "leader_epoch": -1},
    ):
        with pytest.raises(AssertionError):
            state.with_leader_and_isr(**wrong)  # type: ignore[arg-type]


# The journal's file


def records(count: int, start: int = 0) -> list[Any]:
    return [(f"config/2/t{i}", {"k": str(i)}) for i in range(start, start + count)]


def test_the_file_gives_back_what_was_appended() -> None:
    store = MemoryLogStore()
    journal = StoreJournal(store)
    assert list(journal.replay()) == []
    journal.append(records(2))
    journal.append([("topic/ä", None)])
    again = StoreJournal(store)
    assert list(again.replay()) == [*records(2), ("topic/ä", None)]
    again.append(records(1, 5))
    assert list(StoreJournal(store).replay())[3:] == records(1, 5)


def test_offsets_in_the_file_go_on_after_a_restart() -> None:
    store = MemoryLogStore()
    StoreJournal(store).append(records(2))
    again = StoreJournal(store)
    list(again.replay())
    again.append(records(1, 2))
    data = store.read_file(JOURNAL_FILE)
    assert [header.base_offset for header in iter_batches(data)] == [0, 2]


def test_a_file_that_was_closed_survives_a_power_cut() -> None:
    store = MemoryLogStore()
    journal = StoreJournal(store)
    journal.append(records(2))
    journal.close()
    store.crash()
    assert list(StoreJournal(store).replay()) == records(2)


@pytest.mark.parametrize("cut", range(1, 90, 7))
def test_a_torn_tail_is_cut_off(cut: int) -> None:
    store = MemoryLogStore()
    journal = StoreJournal(store)
    journal.append(records(2))
    whole = store.size(JOURNAL_FILE)
    journal.append(records(1, 2))
    file = store.open(JOURNAL_FILE)
    assert whole + cut < file.size
    file.truncate(whole + cut)
    torn = StoreJournal(store)
    assert list(torn.replay()) == records(2)
    assert torn.truncated_bytes == cut
    torn.append(records(1, 3))
    assert list(StoreJournal(store).replay()) == [*records(2), *records(1, 3)]


@pytest.mark.parametrize("garbage", [b"\x00" * 200, b"\xff" * 200, b"GIF89a" * 30])
def test_garbage_at_the_end_is_cut_off(garbage: bytes) -> None:
    store = MemoryLogStore()
    StoreJournal(store).append(records(2))
    store.open(JOURNAL_FILE).append([garbage])
    journal = StoreJournal(store)
    assert list(journal.replay()) == records(2)
    assert journal.truncated_bytes == len(garbage)


def test_a_flipped_bit_ends_the_journal_there() -> None:
    store = MemoryLogStore()
    journal = StoreJournal(store)
    journal.append(records(1))
    position = store.size(JOURNAL_FILE) + 70
    journal.append(records(1, 1))
    journal.append(records(1, 2))
    file = store.open(JOURNAL_FILE)
    file.data[position] ^= 1
    assert list(StoreJournal(store).replay()) == records(1)


def test_a_long_history_is_shortened_at_the_start() -> None:
    store = MemoryLogStore()
    journal = StoreJournal(store)
    for i in range(1500):
        journal.append([("config/2/t", {"k": str(i)})])
    before = store.size(JOURNAL_FILE)
    cluster = Cluster(StoreJournal(store), brokers=(1,))
    assert cluster.controller.state.configs == {(2, "t"): {"k": "1499"}}
    assert store.size(JOURNAL_FILE) < before / 100
    again = Cluster(StoreJournal(store), brokers=(1,))
    assert again.controller.state.configs == {(2, "t"): {"k": "1499"}}
