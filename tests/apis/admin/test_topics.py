from __future__ import annotations

from typing import Any

import pytest

from kwire.protocol.errors import ErrorCode
from kwire.protocol.schemas.topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    DeleteTopicState,
)

ZERO_UUID = bytes(16)


def create(
    admin: Any,
    name: str = "t",
    partitions: int = -1,
    factor: int = -1,
    assignments: dict[int, list[int]] | list[tuple[int, list[int]]] | None = None,
    **fields: Any,
) -> Any:
    pairs = assignments.items() if isinstance(assignments, dict) else assignments or []
    topic = CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=factor,
        assignments=[CreatableReplicaAssignment(partition_index=i, broker_ids=b) for i, b in pairs],
    )
    return admin.call(CreateTopicsRequest(topics=[topic], **fields), 7).topics[0]


def test_a_created_topic_has_an_id_a_leader_and_a_log(admin: Any) -> None:
    result = create(admin, "orders", 3, 1)
    assert (result.error_code, result.error_message) == (0, None)
    assert (result.num_partitions, result.replication_factor) == (3, 1)
    services = admin.services
    assert result.topic_id == services.metadata.topic_id("orders") != ZERO_UUID
    for index in range(3):
        assert services.replica_manager.partition("orders", index).leader_epoch == 0
        assert services.log_manager.get("orders", index).topic_id == result.topic_id


def test_the_resulting_configuration_comes_back_from_version_5_on(admin: Any) -> None:
    configs = {c.name: c for c in admin.create("a", retention_ms="1000").configs}
    assert len(configs) == 36
    assert (configs["retention.ms"].value, configs["retention.ms"].config_source) == ("1000", 1)
    assert (configs["segment.bytes"].value, configs["segment.bytes"].config_source) == (
        "1073741824",
        5,
    )
    assert admin.create("b", version=4).configs == []


def test_values_inherited_from_the_broker_have_it_as_their_source(new_admin: Any) -> None:
    result = new_admin({"log.retention.hours": "1"}).create("a")
    retention = next(c for c in result.configs if c.name == "retention.ms")
    assert (retention.value, retention.config_source) == ("3600000", 4)


def test_validation_alone_creates_nothing(admin: Any) -> None:
    result = create(admin, "a", 3, validate_only=True)
    assert (result.error_code, result.num_partitions) == (0, 3)
    assert not admin.services.metadata.contains("a")
    create(admin, "a")
    again = create(admin, "a", validate_only=True)
    assert again.error_code == ErrorCode.TOPIC_ALREADY_EXISTS


@pytest.mark.parametrize(
    ("partitions", "factor", "error"),
    [
        (0, -1, ErrorCode.INVALID_PARTITIONS),
        (-5, -1, ErrorCode.INVALID_PARTITIONS),
        (-1, 0, ErrorCode.INVALID_REPLICATION_FACTOR),
        (-1, -3, ErrorCode.INVALID_REPLICATION_FACTOR),
        (-1, 3, ErrorCode.INVALID_REPLICATION_FACTOR),
        (0, 0, ErrorCode.INVALID_REPLICATION_FACTOR),
        (1_000_000, 1, ErrorCode.POLICY_VIOLATION),
    ],
)
def test_impossible_numbers_are_refused(
    admin: Any, partitions: int, factor: int, error: ErrorCode
) -> None:
    result = create(admin, "a", partitions, factor)
    assert result.error_code == error
    assert result.error_message
    assert not admin.services.metadata.contains("a")


def test_more_replicas_than_brokers_is_said_in_kafkas_words(admin: Any) -> None:
    assert create(admin, "a", 1, 3).error_message == (
        "Unable to replicate the partition 3 time(s): The target replication factor of 3 cannot "
        "be reached because only 1 broker(s) are registered."
    )


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("", "Topic name is invalid: the empty string is not allowed"),
        (".", "Topic name is invalid: '.' is not allowed"),
        ("..", "Topic name is invalid: '..' is not allowed"),
        (
            "x" * 250,
            f"Topic name is invalid: the length of '{'x' * 250}' is longer than the max allowed length 249",
        ),
        (
            "a b",
            "Topic name is invalid: 'a b' contains one or more characters other than "
            "ASCII alphanumerics, '.', '_' and '-'",
        ),
    ],
)
def test_bad_names_are_refused(admin: Any, name: str, message: str) -> None:
    result = create(admin, name)
    assert result.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert result.error_message == message


def test_the_log_of_krafts_controllers_is_no_topic(admin: Any) -> None:
    result = admin.create("__cluster_metadata")
    assert (result.error_code, result.error_message) == (
        ErrorCode.INVALID_REQUEST,
        "Creation of internal topic __cluster_metadata is prohibited.",
    )


def test_the_longest_name_is_allowed(admin: Any) -> None:
    assert create(admin, "x" * 249).error_code == 0


def test_names_that_differ_in_dots_and_underscores_only_collide(admin: Any) -> None:
    create(admin, "x.y")
    result = create(admin, "x_y")
    assert result.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert result.error_message == "Topic 'x_y' collides with existing topic: x.y"
    delete(admin, "x.y")
    assert create(admin, "x_y").error_code == 0


def test_a_topic_named_twice_is_refused_once_and_does_not_hinder_others(admin: Any) -> None:
    topics = [
        CreatableTopic(name=name, num_partitions=1, replication_factor=1)
        for name in ("d", "e", "d")
    ]
    results = admin.call(CreateTopicsRequest(topics=topics), 7).topics
    assert [(r.name, r.error_code) for r in results] == [("d", ErrorCode.INVALID_REQUEST), ("e", 0)]


def test_a_manual_assignment_is_kept(admin: Any) -> None:
    assert create(admin, "m", assignments={0: [1], 1: [1]}).num_partitions == 2


@pytest.mark.parametrize(
    ("assignments", "message"),
    [
        ([(0, [9])], "includes broker 9, but no such broker is registered."),
        ([(0, [1, 1])], "includes the broker 1 more than once."),
        ([(0, [])], "includes an empty replica list."),
        ([(1, [1])], "partitions should be a consecutive 0-based integer sequence"),
        ([(0, [1]), (2, [1])], "partitions should be a consecutive 0-based integer sequence"),
        ([(0, [1]), (0, [1])], "Found multiple manual partition assignments for partition 0"),
    ],
)
def test_a_wrong_manual_assignment_is_refused(admin: Any, assignments: Any, message: str) -> None:
    result = create(admin, "m", assignments=assignments)
    assert result.error_code == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert message in result.error_message


def test_a_manual_assignment_and_numbers_exclude_each_other(admin: Any) -> None:
    for numbers in ({"partitions": 1}, {"factor": 1}):
        result = create(admin, "m", assignments={0: [1]}, **numbers)
        assert result.error_code == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize(
    ("configs", "message"),
    [
        (
            {"retention_ms": "x"},
            "Invalid value x for configuration retention.ms: Not a number of type LONG",
        ),
        ({"nope": "x"}, "Unknown topic config name: nope"),
        (
            {"cleanup_policy": "zap"},
            "Invalid value zap for configuration cleanup.policy: String must be one of: compact, delete",
        ),
        ({"retention_ms": None}, "Null value not supported for topic configs: retention.ms"),
        (
            {"min_compaction_lag_ms": "10", "max_compaction_lag_ms": "5"},
            "conflict topic config setting min.compaction.lag.ms (10) > max.compaction.lag.ms (5)",
        ),
    ],
)
def test_wrong_configuration_is_refused(admin: Any, configs: Any, message: str) -> None:
    result = admin.create("c", **configs)
    assert (result.error_code, result.error_message) == (ErrorCode.INVALID_CONFIG, message)


def test_the_configuration_reaches_the_log(admin: Any) -> None:
    admin.create("a", retention_ms="1234", cleanup_policy="compact,delete")
    config = admin.services.log_manager.get("a", 0).config
    assert config.retention_ms == 1234
    assert config.cleanup_policy == {"compact", "delete"}


# DeleteTopics


def delete(admin: Any, *names: str, version: int = 6) -> list[tuple[Any, ...]]:
    if version < 6:
        request = DeleteTopicsRequest(topic_names=list(names))
    else:
        request = DeleteTopicsRequest(topics=[DeleteTopicState(name=name) for name in names])
    return [(r.name, r.error_code) for r in admin.call(request, version).responses]


def delete_states(admin: Any, *states: tuple[str | None, bytes]) -> list[tuple[Any, ...]]:
    request = DeleteTopicsRequest(
        topics=[DeleteTopicState(name=name, topic_id=topic_id) for name, topic_id in states]
    )
    responses = admin.call(request, 6).responses
    return [(r.name, r.topic_id, r.error_code, r.error_message) for r in responses]


@pytest.mark.parametrize("version", [0, 1, 5, 6])
def test_a_deleted_topic_is_gone_everywhere(admin: Any, version: int) -> None:
    admin.create("a", 2, retention_ms="5")
    assert delete(admin, "a", version=version) == [("a", 0)]
    services = admin.services
    assert not services.metadata.contains("a")
    assert services.metadata.topic_config("a") == {}
    assert services.log_manager.get("a", 0) is None
    assert delete(admin, "a", version=version) == [("a", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)]


def test_a_topic_is_deleted_by_id(admin: Any) -> None:
    topic_id = admin.create("a").topic_id
    assert delete_states(admin, (None, topic_id)) == [("a", topic_id, 0, None)]
    assert delete_states(admin, (None, topic_id))[0][2] == ErrorCode.UNKNOWN_TOPIC_ID


def test_a_recreated_topic_gets_a_new_id_and_an_empty_log(admin: Any) -> None:
    first = admin.create("a").topic_id
    delete(admin, "a")
    assert admin.create("a").topic_id != first
    assert admin.services.log_manager.get("a", 0).log_end_offset == 0


def test_a_duplicate_topic_is_refused_and_answered_once(admin: Any) -> None:
    topic_id = admin.create("a").topic_id
    invalid = ErrorCode.INVALID_REQUEST
    named = delete_states(admin, ("a", ZERO_UUID), ("a", ZERO_UUID))
    assert named == [("a", ZERO_UUID, invalid, "Duplicate topic name.")]
    by_id = delete_states(admin, (None, topic_id), (None, topic_id))
    assert by_id == [(None, topic_id, invalid, "Duplicate topic id.")]
    message = "The provided topic name maps to an ID that was already supplied."
    both = delete_states(admin, ("a", ZERO_UUID), (None, topic_id))
    assert both == [("a", topic_id, invalid, message)]
    assert admin.services.metadata.contains("a")


def test_a_topic_needs_a_name_or_an_id_and_not_both(admin: Any) -> None:
    topic_id = admin.create("a").topic_id
    assert delete_states(admin, ("a", topic_id))[0][2] == ErrorCode.INVALID_REQUEST
    assert delete_states(admin, (None, ZERO_UUID))[0][2] == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize(
    ("version", "error"), [(2, ErrorCode.INVALID_REQUEST), (3, ErrorCode.TOPIC_DELETION_DISABLED)]
)
def test_deletion_can_be_switched_off(new_admin: Any, version: int, error: ErrorCode) -> None:
    admin = new_admin({"delete.topic.enable": "false"})
    admin.create("a")
    assert delete(admin, "a", version=version) == [("a", error)]


# CreatePartitions


def add(
    admin: Any, name: str, count: int, *replicas: list[int], validate_only: bool = False
) -> tuple[int, str | None]:
    topic = CreatePartitionsTopic(
        name=name,
        count=count,
        assignments=[CreatePartitionsAssignment(broker_ids=r) for r in replicas] or None,
    )
    request = CreatePartitionsRequest(topics=[topic], validate_only=validate_only)
    result = admin.call(request, 3).results[0]
    return result.error_code, result.error_message


def test_partitions_are_added(admin: Any) -> None:
    admin.create("a", 1)
    assert add(admin, "a", 5, validate_only=True) == (0, None)
    assert admin.services.metadata.partition_count("a") == 1
    assert add(admin, "a", 3) == (0, None)
    assert add(admin, "a", 4, [1]) == (0, None)
    assert admin.services.metadata.partition_count("a") == 4
    assert admin.services.replica_manager.partition("a", 3).leader_epoch == 0


@pytest.mark.parametrize(
    ("count", "replicas", "error", "message"),
    [
        (3, [], 37, "Topic already has 3 partition(s)."),
        (2, [], 37, "The topic a currently has 3 partition(s); 2 would not be an increase."),
        (
            5,
            [[1]],
            39,
            "Attempted to add 2 additional partition(s), but only 1 assignment(s) were specified.",
        ),
        (
            4,
            [[9]],
            39,
            "The manual partition assignment includes broker 9, but no such broker is registered.",
        ),
        (4, [[]], 39, "The manual partition assignment includes an empty replica list."),
    ],
)
def test_a_partition_count_without_increase_or_wrong_replicas_are_refused(
    admin: Any, count: int, replicas: Any, error: int, message: str
) -> None:
    admin.create("a", 3)
    assert add(admin, "a", count, *replicas) == (error, message)


def test_partitions_of_an_unknown_topic_are_refused(admin: Any) -> None:
    assert add(admin, "nope", 3) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, None)


# Restarts


def test_topics_partitions_and_configuration_survive_a_restart(admin: Any) -> None:
    topic_id = admin.create("a", 2, retention_ms="77").topic_id
    add(admin, "a", 3)
    admin.create("gone")
    delete(admin, "gone")
    admin.start()
    services = admin.services
    assert list(services.metadata.topics) == ["a"]
    assert services.metadata.topic_id("a") == topic_id
    assert services.metadata.partition_count("a") == 3
    assert services.log_manager.get("a", 2).config.retention_ms == 77


def test_a_restart_costs_each_partition_two_leader_epochs(admin: Any) -> None:
    admin.create("a")
    for restarts in (1, 2):
        admin.start()
        state = admin.services.metadata.partition("a", 0)
        assert (state.leader, state.leader_epoch, state.isr) == (1, 2 * restarts, [1])
        assert admin.services.replica_manager.partition("a", 0).leader_epoch == 2 * restarts
