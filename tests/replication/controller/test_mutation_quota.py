"""controller_mutation_rate (KIP-599): who is charged for what, strictly or not, with Kafka's numbers."""

from __future__ import annotations

from typing import Any

import pytest
from controller_harness import ListJournal, Simulated

from kwire.protocol.errors import ErrorCode
from kwire.protocol.schemas.quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasRequestEntryData,
    EntityData,
    OpData,
)
from kwire.protocol.schemas.topics import (
    CreatableTopic,
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    CreateTopicsRequest,
    DeleteTopicsRequest,
)
from kwire.replication.core.rates import TokenBucket

EXCEEDED = ErrorCode.THROTTLING_QUOTA_EXCEEDED
ME = ("alice", "app")
# A burst of 11 windows of a second: 22 partitions at 2 a second.
RATE = 2.0


@pytest.fixture
def cluster() -> Simulated:
    cluster = Simulated(1, 2, broker_session_timeout_ms="1000000")
    limit(cluster, RATE)
    return cluster


def limit(cluster: Simulated, rate: float | None, **entity: str) -> None:
    entry = AlterClientQuotasRequestEntryData(
        entity=[
            EntityData(entity_type=kind.replace("_", "-"), entity_name=name)
            for kind, name in (entity or {"user": "alice"}).items()
        ],
        ops=[OpData(key="controller_mutation_rate", value=rate or 0.0, remove=rate is None)],
    )
    (answer,) = ask(cluster, AlterClientQuotasRequest(entries=[entry]), 1).entries
    assert answer.error_code == 0


def ask(cluster: Simulated, request: Any, version: int, client: tuple[str, str] = ME) -> Any:
    """The answer, once all brokers have what they are sent."""
    answers: list[Any] = []
    cluster.controller.submit(request, version, answers.append, client=client)
    cluster.advance(request.timeout_ms if hasattr(request, "timeout_ms") else 0)
    (answer,) = answers
    return answer


def create(
    cluster: Simulated, *topics: tuple[str, int], version: int = 7, **more: Any
) -> tuple[list[int], int]:
    """Error codes and throttle time."""
    client = more.pop("client", ME)
    request = CreateTopicsRequest(
        topics=[CreatableTopic(name=n, num_partitions=p, replication_factor=1) for n, p in topics],
        timeout_ms=0,
        **more,
    )
    answer = ask(cluster, request, version, client)
    return [topic.error_code for topic in answer.topics], answer.throttle_time_ms


def test_credits_grow_up_to_what_all_windows_allow() -> None:
    """TokenBucketTest's numbers: a burst of 100, then 5 a second."""
    bucket = TokenBucket(10, 2000)
    assert bucket.take(0, 5, 1000) == 100
    assert bucket.take(60, 5, 1000) == 40
    assert bucket.take(60, 5, 3000) == -10
    assert bucket.take(0, 5, 5000) == 0
    assert bucket.take(0, 5, 500_000) == 100
    assert bucket.take(-60, 5, 500_000) == 100
    assert bucket.take(60, 5, 1_000_000) == 40


def test_a_topic_of_any_size_may_be_made_with_credits_and_none_without(cluster: Simulated) -> None:
    assert create(cluster, ("large", 30)) == ([0], 0)
    assert create(cluster, ("none", 1)) == ([EXCEEDED], 4000)  # 8 too many, at 2 a second
    assert "none" not in cluster.controller.state.topics
    cluster.advance(3999)
    assert create(cluster, ("none", 1)) == ([EXCEEDED], 1)
    cluster.advance(1)
    assert create(cluster, ("some", 1)) == ([0], 0)


def test_topics_of_a_request_are_counted_one_by_one(cluster: Simulated) -> None:
    assert create(cluster, ("a", 20), ("b", 4), ("c", 1)) == ([0, 0, EXCEEDED], 1000)


@pytest.mark.parametrize("version", [4, 5])
def test_older_clients_get_all_and_wait(cluster: Simulated, version: int) -> None:
    assert create(cluster, ("a", 30), ("b", 2), version=version) == ([0, 0], 5000)


def test_what_is_refused_for_another_reason_is_not_counted(cluster: Simulated) -> None:
    create(cluster, ("t", 1))
    for _ in range(30):
        assert create(cluster, ("t", 5))[0] == [ErrorCode.TOPIC_ALREADY_EXISTS]
    assert create(cluster, ("rest", 21)) == ([0], 0)
    assert create(cluster, ("more", 1), ("yet more", 1))[0] == [
        0,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
    ]
    assert create(cluster, ("less", 1)) == ([EXCEEDED], 500)


def test_what_is_only_validated_is_counted_too(cluster: Simulated) -> None:
    assert create(cluster, ("a", 30), validate_only=True) == ([0], 0)
    assert create(cluster, ("a", 1), validate_only=True) == ([EXCEEDED], 4000)


@pytest.mark.parametrize(("version", "codes"), [(4, [0, 0]), (5, [0, EXCEEDED])])
def test_deletions_count_the_partitions_of_topics(
    cluster: Simulated, version: int, codes: list[int]
) -> None:
    create(cluster, ("a", 30), ("b", 3), client=("bob", ""))
    request = DeleteTopicsRequest(topic_names=["a", "b"], timeout_ms=0)
    answer = ask(cluster, request, version)
    assert [topic.error_code for topic in answer.responses] == codes
    assert answer.throttle_time_ms == (5500 if version == 4 else 4000)
    assert ("b" in cluster.controller.state.topics) == (version == 5)


@pytest.mark.parametrize(("version", "codes"), [(2, [0, 0]), (3, [0, EXCEEDED])])
def test_additions_count_the_new_partitions(
    cluster: Simulated, version: int, codes: list[int]
) -> None:
    create(cluster, ("a", 10), ("b", 10), client=("bob", ""))
    request = CreatePartitionsRequest(
        topics=[CreatePartitionsTopic(name=n, count=33, assignments=None) for n in ("a", "b")],
        timeout_ms=0,
    )
    answer = ask(cluster, request, version)
    assert [topic.error_code for topic in answer.results] == codes
    assert answer.throttle_time_ms == (12_000 if version == 2 else 500)


def test_additions_are_counted_before_their_brokers_are_looked_at(cluster: Simulated) -> None:
    create(cluster, ("a", 21))
    codes = []
    for broker, count in ((99, 24), (99, 23), (99, 22), (99, 24)):
        assigned = [CreatePartitionsAssignment(broker_ids=[broker])] * 3
        topic = CreatePartitionsTopic(name="a", count=count, assignments=assigned)
        answer = ask(cluster, CreatePartitionsRequest(topics=[topic], timeout_ms=0), 3)
        codes += [each.error_code for each in answer.results]
    invalid = ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert codes == [invalid, invalid, invalid, EXCEEDED]


def test_topics_that_are_made_by_themselves_count_for_the_client(cluster: Simulated) -> None:
    controller = cluster.controller
    create(cluster, ("a", 30))
    for name, client in (("refused", ME), ("internal", None), ("of bob", ("bob", "app"))):
        try:
            controller.create_auto(name.replace(" ", "-"), client)
        except Exception as error:
            assert name == "refused" and getattr(error, "code", None) == EXCEEDED
    assert sorted(controller.state.topics) == ["a", "internal", "of-bob"]
    assert controller.context.mutations.current is None


def test_clients_without_a_quota_are_not_counted(cluster: Simulated) -> None:
    assert create(cluster, ("a", 1000), client=("bob", "app")) == ([0], 0)
    assert create(cluster, ("b", 1000), client=("bob", "app")) == ([0], 0)
    create(cluster, ("c", 30))
    limit(cluster, None)
    assert create(cluster, ("d", 30)) == ([0], 0)
    limit(cluster, 4.0)
    assert create(cluster, ("e", 1)) == ([EXCEEDED], 2000)  # of the credits that were used before


def test_another_clients_request_is_not_charged_to_this_one(cluster: Simulated) -> None:
    create(cluster, ("a", 30))
    assert create(cluster, ("b", 1), client=("bob", "")) == ([0], 0)
    assert create(cluster, ("c", 1), client=("alice", "another app"))[0] == [EXCEEDED]
    request = CreateTopicsRequest(
        topics=[CreatableTopic(name="d", num_partitions=1, replication_factor=1)]
    )
    assert cluster.controller.handle(request, 7).topics[0].error_code == 0  # type: ignore[attr-defined]


def test_quotas_by_client_id(cluster: Simulated) -> None:
    limit(cluster, None)
    limit(cluster, RATE, client_id="app")
    assert create(cluster, ("a", 30), client=("carol", "app")) == ([0], 0)
    assert create(cluster, ("b", 1), client=("dave", "app")) == ([EXCEEDED], 4000)
    assert create(cluster, ("b", 1), client=("dave", "")) == ([0], 0)


def test_the_quota_holds_with_the_next_controller() -> None:
    journal = ListJournal()
    first = Simulated(1, journal=journal)
    limit(first, RATE)
    again = Simulated(journal=journal)
    again.start(1)
    again.advance(1000)
    assert create(again, ("a", 30)) == ([0], 0)
    assert create(again, ("b", 1)) == ([EXCEEDED], 4000)


def test_a_cluster_without_the_quota_counts_nothing() -> None:
    cluster = Simulated(1)
    create(cluster, ("a", 1))
    assert cluster.controller.context.mutations is None
