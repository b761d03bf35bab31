from __future__ import annotations

from typing import Any

import pytest

from kwire.protocol.errors import ErrorCode
from kwire.protocol.schemas.groups import FindCoordinatorRequest
from kwire.protocol.schemas.metadata import (
    Cursor,
    DescribeTopicPartitionsRequest,
    MetadataRequest,
    MetadataRequestTopic,
    TopicRequest,
)
from kwire.replication.core.metadata import BrokerMetadata, Endpoint

INT_MIN = -(2**31)


def ask(admin: Any, *names: str | bytes | None, version: int = 12, **fields: Any) -> Any:
    topics = [
        MetadataRequestTopic(name=None, topic_id=name)
        if isinstance(name, bytes)
        else MetadataRequestTopic(name=name)
        for name in names
    ]
    return admin.call(MetadataRequest(topics=topics, **fields), version)


def ask_all(admin: Any, version: int = 12) -> Any:
    return admin.call(MetadataRequest(topics=None), version)


def test_null_asks_for_all_topics_and_an_empty_list_for_none(admin: Any) -> None:
    admin.create("a")
    admin.create("b")
    assert [topic.name for topic in ask_all(admin).topics] == ["a", "b"]
    assert ask(admin).topics == []


def test_in_version_0_an_empty_list_asks_for_all(admin: Any) -> None:
    admin.create("a")
    assert [topic.name for topic in ask(admin, version=0).topics] == ["a"]


def test_brokers_cluster_and_controller_are_named(admin: Any) -> None:
    response = ask(admin)
    assert [(b.node_id, b.host, b.port, b.rack) for b in response.brokers] == [
        (1, "inside", 9092, None)
    ]
    assert response.cluster_id == admin.services.cluster_id
    assert response.controller_id == 1
    assert response.cluster_authorized_operations == INT_MIN


def test_the_listener_that_the_client_came_by_decides_the_address(admin: Any) -> None:
    admin.listener = "OUTSIDE"
    assert [(b.host, b.port) for b in ask(admin).brokers] == [("outside", 19092)]


@pytest.mark.parametrize(
    ("version", "error"),
    [(5, ErrorCode.LEADER_NOT_AVAILABLE), (6, ErrorCode.LISTENER_NOT_FOUND)],
)
def test_a_leader_without_the_clients_listener_cannot_be_reached(
    admin: Any, version: int, error: ErrorCode
) -> None:
    admin.create("a")
    admin.listener = "ELSEWHERE"
    response = ask(admin, "a", version=version)
    partition = response.topics[0].partitions[0]
    assert response.brokers == []
    assert (partition.error_code, partition.leader_id) == (error, -1)
    assert partition.offline_replicas == [1]


def test_an_unknown_topic_is_created_with_the_brokers_defaults(new_admin: Any) -> None:
    admin = new_admin({"num.partitions": "3"})
    topic = ask(admin, "new").topics[0]
    assert topic.error_code == 0
    assert [(p.partition_index, p.leader_id, p.leader_epoch) for p in topic.partitions] == [
        (0, 1, 0),
        (1, 1, 0),
        (2, 1, 0),
    ]
    assert topic.topic_id == admin.services.metadata.topic_id("new") != bytes(16)


def test_nothing_is_created_when_the_client_or_the_broker_forbids_it(new_admin: Any) -> None:
    admin = new_admin()
    topic = ask(admin, "new", allow_auto_topic_creation=False).topics[0]
    assert topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert ask(new_admin({"auto.create.topics.enable": "false"}), "new").topics[0].error_code == 3
    assert not admin.services.metadata.contains("new")


@pytest.mark.parametrize("name", ["", ".", "..", "a b", "x" * 250, "ä"])
def test_an_impossible_name_is_refused(admin: Any, name: str) -> None:
    assert ask(admin, name).topics[0].error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


def test_a_name_that_collides_is_not_created(admin: Any) -> None:
    admin.create("a.b")
    topic = ask(admin, "a_b").topics[0]
    assert (topic.error_code, topic.partitions) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, [])


def test_topics_are_found_by_id(admin: Any) -> None:
    topic_id = admin.create("a").topic_id
    assert ask(admin, topic_id).topics[0].name == "a"
    unknown = ask(admin, b"x" * 16).topics[0]
    assert (unknown.error_code, unknown.name) == (ErrorCode.UNKNOWN_TOPIC_ID, None)
    assert unknown.topic_id == b"x" * 16


def test_ids_in_requests_need_version_12(admin: Any) -> None:
    topic_id = admin.create("a").topic_id
    topics = [MetadataRequestTopic(name="a", topic_id=topic_id)]
    response = admin.call(MetadataRequest(topics=topics), 10)
    assert [topic.error_code for topic in response.topics] == [ErrorCode.INVALID_REQUEST]
    assert response.brokers == []


def test_a_topic_asked_for_twice_is_answered_once(admin: Any) -> None:
    admin.create("a")
    assert [topic.name for topic in ask(admin, "a", "a").topics] == ["a"]


def test_authorized_operations_are_returned_only_when_requested(admin: Any) -> None:
    admin.create("a")
    assert ask(admin, "a").topics[0].topic_authorized_operations == INT_MIN
    asked = ask(admin, "a", include_topic_authorized_operations=True)
    assert asked.topics[0].topic_authorized_operations == 3576
    assert ask(admin, "a").topics[0].topic_authorized_operations == INT_MIN
    cluster = ask(admin, version=9, include_cluster_authorized_operations=True)
    assert cluster.cluster_authorized_operations == 8096


def test_internal_topics_say_so_and_get_their_own_settings(admin: Any) -> None:
    topic = ask(admin, "__consumer_offsets").topics[0]
    assert topic.is_internal
    assert len(topic.partitions) == 4
    config = admin.services.metadata.topic_config("__consumer_offsets")
    assert config["cleanup.policy"] == "compact"


def test_answers_follow_changes(admin: Any) -> None:
    from kwire.protocol.schemas.topics import CreatePartitionsRequest, CreatePartitionsTopic

    admin.create("a")
    assert len(ask(admin, "a").topics[0].partitions) == 1
    more = CreatePartitionsTopic(name="a", count=3, assignments=None)
    admin.call(CreatePartitionsRequest(topics=[more]), 3)
    assert len(ask(admin, "a").topics[0].partitions) == 3


@pytest.mark.parametrize("version", [0, 3])
def test_clients_that_know_no_flag_allow_creation(admin: Any, version: int) -> None:
    request = MetadataRequest(topics=[MetadataRequestTopic(name="new")])
    assert admin.call(request, version).topics[0].error_code == 0


def test_cluster_operations_are_told_in_versions_8_to_10_to_who_asks(admin: Any) -> None:
    for version in (8, 10):
        told = ask(admin, version=version, include_cluster_authorized_operations=True)
        assert told.cluster_authorized_operations == 8096
        untold = ask(admin, version=version)
        assert untold.cluster_authorized_operations == INT_MIN


@pytest.mark.parametrize("version", [10, 12])
def test_a_topic_without_a_name_and_an_id_is_refused_with_the_request(
    admin: Any, version: int
) -> None:
    admin.create("a")
    response = ask(admin, "a", None, version=version)
    assert [topic.error_code for topic in response.topics] == [ErrorCode.INVALID_REQUEST] * 2


def dead_replica(admin: Any) -> None:
    """Topic "a" has a replica on broker 2 as well, which is in sync and not alive."""
    admin.create("a")
    topic = admin.services.metadata.topics["a"]
    topic.partitions[0].replicas, topic.partitions[0].isr = [1, 2], [1, 2]
    topic.answers.clear()


def test_version_0_shows_no_dead_replicas_but_says_that_one_is_missing(admin: Any) -> None:
    dead_replica(admin)
    (old,) = ask(admin, "a", version=0).topics[0].partitions
    assert (old.replica_nodes, old.isr_nodes) == ([1], [1])
    assert old.error_code == ErrorCode.REPLICA_NOT_AVAILABLE
    (new,) = ask(admin, "a").topics[0].partitions
    assert (new.replica_nodes, new.isr_nodes, new.offline_replicas) == ([1, 2], [1, 2], [2])
    assert new.error_code == 0


def test_a_broker_that_comes_is_seen_in_topics_that_were_answered_before(admin: Any) -> None:
    dead_replica(admin)
    assert ask(admin, "a").topics[0].partitions[0].offline_replicas == [2]
    metadata = admin.services.metadata
    endpoint = Endpoint("PLAINTEXT", "inside", 9093)
    metadata.brokers = {**metadata.brokers, 2: BrokerMetadata(2, None, [endpoint])}
    metadata.brokers_version += 1
    assert ask(admin, "a").topics[0].partitions[0].offline_replicas == []


def test_a_replica_on_a_failed_disk_of_a_live_broker_is_offline(admin: Any) -> None:
    admin.create("a")
    topic = admin.services.metadata.topics["a"]
    topic.partitions[0].offline_replicas = [1]
    topic.answers.clear()
    assert ask(admin, "a").topics[0].partitions[0].offline_replicas == [1]


def test_a_controller_that_is_no_broker_is_not_named(admin: Any) -> None:
    admin.services.metadata.controller_id = 1000
    assert ask(admin).controller_id == 1
    admin.services.metadata.brokers = {}
    assert ask(admin).controller_id == -1


# DescribeTopicPartitions


def describe(
    admin: Any, *names: str, limit: int = 2000, cursor: tuple[str, int] | None = None
) -> Any:
    request = DescribeTopicPartitionsRequest(
        topics=[TopicRequest(name=name) for name in names],
        response_partition_limit=limit,
        cursor=Cursor(topic_name=cursor[0], partition_index=cursor[1]) if cursor else None,
    )
    return admin.call(request, 0)


def shape(response: Any) -> Any:
    following = response.next_cursor
    return (
        [(t.name, [p.partition_index for p in t.partitions]) for t in response.topics],
        following and (following.topic_name, following.partition_index),
    )


@pytest.fixture
def topics(admin: Any) -> Any:
    admin.create("ok")
    admin.create("p3", 3)
    return admin


def test_topics_come_sorted_by_name(topics: Any) -> None:
    assert shape(describe(topics, "p3", "ok")) == ([("ok", [0]), ("p3", [0, 1, 2])], None)
    assert shape(describe(topics)) == ([("ok", [0]), ("p3", [0, 1, 2])], None)


@pytest.mark.parametrize(
    ("limit", "cursor", "expected"),
    [
        (2, None, ([("ok", [0]), ("p3", [0])], ("p3", 1))),
        (4, None, ([("ok", [0]), ("p3", [0, 1, 2])], None)),
        (1, None, ([("ok", [0])], ("p3", 0))),
        (0, None, ([("ok", [0])], ("p3", 0))),
        (2, ("ok", 0), ([("ok", [0]), ("p3", [0])], ("p3", 1))),
        (2, ("p3", 1), ([("p3", [1, 2])], None)),
        (2, ("p3", 9), ([("p3", [])], None)),
    ],
)
def test_pages_end_with_a_cursor_to_go_on_from(
    topics: Any, limit: int, cursor: Any, expected: Any
) -> None:
    assert shape(describe(topics, "p3", "ok", limit=limit, cursor=cursor)) == expected


def test_a_cursor_outside_the_request_is_refused(topics: Any) -> None:
    response = describe(topics, "p3", cursor=("zz", 0))
    assert [t.error_code for t in response.topics] == [ErrorCode.INVALID_REQUEST]


def test_a_cursor_of_a_negative_partition_is_refused(topics: Any) -> None:
    response = describe(topics, "p3", cursor=("p3", -1))
    assert [t.error_code for t in response.topics] == [ErrorCode.INVALID_REQUEST]


def test_the_broker_limits_a_page(new_admin: Any) -> None:
    admin = new_admin({"max.request.partition.size.limit": "2"})
    admin.create("p3", 3)
    assert shape(describe(admin)) == ([("p3", [0, 1])], ("p3", 2))


def test_the_partition_of_a_cursor_is_not_applied_to_the_topics_after_it(topics: Any) -> None:
    topics.create("q3", 3)
    assert shape(describe(topics, cursor=("p3", 2))) == ([("p3", [2]), ("q3", [0, 1, 2])], None)


def test_eligible_leaders_are_those_of_the_controller(new_admin: Any) -> None:
    for enabled in (True, False):
        admin = new_admin({"eligible.leader.replicas.enable": str(enabled).lower()})
        admin.create("a")
        state = admin.services.controller.state.topics["a"].partitions[0]
        state.elr, state.last_known_elr = [7], [8]
        (partition,) = describe(admin, "a").topics[0].partitions
        found = partition.eligible_leader_replicas, partition.last_known_elr
        assert found == (([7], [8]) if enabled else ([], []))


def test_when_all_are_described_a_deleted_cursor_topic_is_skipped(topics: Any) -> None:
    assert shape(describe(topics, cursor=("p", 5))) == ([("p3", [0, 1, 2])], None)


def test_the_partition_of_a_deleted_cursor_topic_is_not_applied_to_the_next(topics: Any) -> None:
    response = describe(topics, "gone", "p3", cursor=("gone", 2))
    assert shape(response) == ([("gone", []), ("p3", [0, 1, 2])], None)


def test_a_partition_without_a_leader_is_described_without_an_error(topics: Any) -> None:
    topics.services.metadata.partition("ok", 0).leader = -1
    (partition,) = describe(topics, "ok").topics[0].partitions
    assert (partition.error_code, partition.leader_id) == (0, -1)
    assert partition.replica_nodes == [1]


def test_unknown_topics_are_described_as_such(topics: Any) -> None:
    response = describe(topics, "nope", "a b")
    assert [(t.name, t.error_code) for t in response.topics] == [
        ("a b", ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("nope", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ]


def test_a_created_topic_is_unknown_at_first_where_creation_does_not_wait(new_admin: Any) -> None:
    admin = new_admin({"kwire.topic.creation.waits": "false"})
    answers = [ask(admin, "new").topics[0] for _ in range(2)]
    assert [(answer.error_code, len(answer.partitions)) for answer in answers] == [(3, 0), (0, 1)]
    found = [admin.call(FindCoordinatorRequest(key="g"), 3).error_code for _ in range(2)]
    assert found == [ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NONE]
