from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from kwire.protocol.errors import ErrorCode, KafkaError
from kwire.protocol.schemas.metadata import MetadataRequest
from kwire.protocol.schemas.nodes import UnregisterBrokerRequest
from kwire.protocol.schemas.topics import (
    AlterPartitionReassignmentsRequest,
    ElectLeadersRequest,
    ListPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
    TopicPartitions,
)


@pytest.mark.parametrize("version", [0, 1, 2])
def test_a_single_broker_already_leads_its_partitions(admin: Any, version: int) -> None:
    admin.create("t", 2)
    named = [TopicPartitions(topic="t", partitions=[0, 7])]
    response = admin.call(ElectLeadersRequest(topic_partitions=named), version)
    results = response.replica_election_results[0].partition_result
    assert [(r.partition_id, r.error_code) for r in results] == [
        (0, ErrorCode.ELECTION_NOT_NEEDED),
        (7, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ]
    everything = admin.call(ElectLeadersRequest(topic_partitions=None), version)
    assert everything.replica_election_results == []


def test_an_election_type_that_does_not_exist(admin: Any) -> None:
    named = [TopicPartitions(topic="t", partitions=[0])]
    response = admin.call(ElectLeadersRequest(election_type=9, topic_partitions=named), 2)
    assert response.error_code == ErrorCode.INVALID_REQUEST
    (result,) = response.replica_election_results[0].partition_result
    assert (result.partition_id, result.error_code) == (0, ErrorCode.INVALID_REQUEST)


def test_a_journal_that_cannot_be_written_is_answered(admin: Any) -> None:
    def refuse(*_: Any) -> None:
        raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "no space")

    admin.create("t")
    admin.services.controller.changelog._journal = SimpleNamespace(
        append=refuse, flush=lambda: None, when_flushed=lambda callback: callback()
    )
    partition = ReassignablePartition(partition_index=0, replicas=[1])
    topic = ReassignableTopic(name="t", partitions=[partition])
    response = admin.call(AlterPartitionReassignmentsRequest(topics=[topic]), 0)
    (result,) = response.responses[0].partitions
    assert (response.error_code, result.error_code) == (ErrorCode.KAFKA_STORAGE_ERROR,) * 2


def test_reassignment_to_the_only_broker_and_to_others(admin: Any) -> None:
    admin.create("t", 1)

    def move(replicas: list[int] | None, version: int = 0, **fields: Any) -> int:
        partition = ReassignablePartition(partition_index=0, replicas=replicas)
        request = AlterPartitionReassignmentsRequest(
            topics=[ReassignableTopic(name="t", partitions=[partition])], **fields
        )
        return int(admin.call(request, version).responses[0].partitions[0].error_code)

    before = admin.services.replica_manager.partition("t", 0).leader_epoch
    assert move([1]) == 0
    assert admin.services.replica_manager.partition("t", 0).leader_epoch == before + 1
    assert move([2]) == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert move([]) == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert move(None) == ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
    assert move([1], 1, allow_replication_factor_change=False) == 0
    response = admin.call(ListPartitionReassignmentsRequest(topics=None), 0)
    assert (response.error_code, response.topics) == (0, [])


def test_the_only_broker_registers_again_when_it_is_unregistered(admin: Any) -> None:
    admin.create("t", 1)
    unknown = admin.call(UnregisterBrokerRequest(broker_id=5), 0)
    assert unknown.error_code == ErrorCode.BROKER_ID_NOT_REGISTERED
    assert admin.call(UnregisterBrokerRequest(broker_id=1), 0).error_code == 0
    topics = admin.call(MetadataRequest(topics=None), 12).topics
    assert [(t.name, t.partitions[0].leader_id) for t in topics] == [("t", 1)]
    assert admin.create("u", 1).error_code == 0
    admin.start()  # a restart finds the journal in order
    assert admin.create("v", 1).error_code == 0
