"""Group APIs through the whole broker, as bytes, in every version that clients use."""

from __future__ import annotations

from typing import Any

import pytest
from group_kit import GroupBroker

from kwire.protocol.errors import ErrorCode
from kwire.protocol.schemas.groups import (
    DeleteGroupsRequest,
    DescribeGroupsRequest,
    FindCoordinatorRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    LeaveGroupRequest,
    ListGroupsRequest,
    MemberIdentity,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
)
from kwire.protocol.schemas.topics import CreatableTopic, CreateTopicsRequest

NONE = ErrorCode.NONE


@pytest.fixture
def broker() -> GroupBroker:
    broker = GroupBroker()
    broker.ask(0, FindCoordinatorRequest(key="g"))
    return broker


def join_request(member_id: str = "", **fields: Any) -> JoinGroupRequest:
    values: dict[str, Any] = {
        "group_id": "g",
        "member_id": member_id,
        "session_timeout_ms": 10_000,
        "protocol_type": "consumer",
        "protocols": [JoinGroupRequestProtocol(name="range", metadata=b"\x00\x00meta")],
    }
    return JoinGroupRequest(**(values | fields))


def join(broker: GroupBroker, version: int, **fields: Any) -> Any:
    """A lone member's join, both steps where the version has two."""
    if version >= 1:
        fields.setdefault("rebalance_timeout_ms", 60_000)
    answer = broker.ask(version, join_request(**fields))
    if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
        answer = broker.ask(version, join_request(**(fields | {"member_id": answer.member_id})))
    assert answer.error_code == 0
    return answer


def sync_request(answer: Any, version: int, assignment: bytes = b"mine") -> SyncGroupRequest:
    names = {"protocol_type": "consumer", "protocol_name": "range"} if version >= 5 else {}
    return SyncGroupRequest(
        group_id="g",
        generation_id=answer.generation_id,
        member_id=answer.member_id,
        assignments=[SyncGroupRequestAssignment(member_id=answer.member_id, assignment=assignment)],
        **names,
    )


# ---- FindCoordinator


@pytest.mark.parametrize("version", range(7))
def test_find_coordinator_makes_the_offsets_topic_and_names_this_broker(version: int) -> None:
    broker = GroupBroker()
    if version >= 4:
        request = FindCoordinatorRequest(coordinator_keys=["g", "h", ""])
        found = broker.ask(version, request).coordinators
        assert [each.key for each in found] == ["g", "h", ""]
    else:
        found = [broker.ask(version, FindCoordinatorRequest(key="g"))]
        assert version == 0 or found[0].error_message == "NONE"
    assert {(each.error_code, each.host, each.port) for each in found} == {(0, "127.0.0.1", 9092)}
    metadata = broker.services.metadata
    assert metadata.partition_count("__consumer_offsets") == 4
    config = metadata.topic_config("__consumer_offsets")
    assert config["cleanup.policy"] == "compact" and config["segment.bytes"] == "104857600"
    # A group can join in the very same moment.
    assert join(broker, 3).generation_id == 1


@pytest.mark.parametrize(
    ("version", "key_type", "error"),
    [
        (1, 1, ErrorCode.NONE),
        (6, 1, ErrorCode.NONE),
        (6, 2, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (3, 2, ErrorCode.INVALID_REQUEST),
        (2, 9, ErrorCode.INVALID_REQUEST),
        (2, -1, ErrorCode.INVALID_REQUEST),
    ],
)
def test_find_coordinator_of_other_kinds(version: int, key_type: int, error: ErrorCode) -> None:
    broker = GroupBroker()
    keys = {"coordinator_keys": ["k"]} if version >= 4 else {"key": "k"}
    answer = broker.ask(version, FindCoordinatorRequest(key_type=key_type, **keys))
    found = answer.coordinators[0] if version >= 4 else answer
    assert found.error_code == error
    assert bool(found.error_message) is (
        (key_type == 1 and version < 4) or error is ErrorCode.INVALID_REQUEST
    )
    assert (found.node_id, found.port) == ((-1, -1) if error else (broker.services.node_id, 9092))


def test_a_group_request_before_any_coordinator_exists_is_sent_looking_for_one() -> None:
    broker = GroupBroker()
    answer = broker.ask(3, join_request(rebalance_timeout_ms=1000))
    assert answer.error_code == ErrorCode.NOT_COORDINATOR


# ---- membership


@pytest.mark.parametrize("version", range(10))
def test_a_member_joins_in_every_version(broker: GroupBroker, version: int) -> None:
    answer = join(broker, version)
    assert (answer.generation_id, answer.leader) == (1, answer.member_id)
    assert answer.protocol_name == "range"
    assert answer.protocol_type == ("consumer" if version >= 7 else None)
    assert [member.metadata for member in answer.members] == [b"\x00\x00meta"]
    assert answer.member_id.startswith("client-")
    member = broker.services.group_coordinator.runtime.read(
        broker.services.group_coordinator.partition_for("g"),
        lambda shard: shard.classic.groups["g"].members[answer.member_id],
    )
    assert member.rebalance_timeout_ms == (10_000 if version == 0 else 60_000)
    assert member.client_host == "/127.0.0.1"


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"group_id": ""}, ErrorCode.INVALID_GROUP_ID),
        ({"session_timeout_ms": 5_999}, ErrorCode.INVALID_SESSION_TIMEOUT),
        ({"session_timeout_ms": 1_800_001}, ErrorCode.INVALID_SESSION_TIMEOUT),
        ({"session_timeout_ms": -1}, ErrorCode.INVALID_SESSION_TIMEOUT),
        ({"member_id": "x"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"protocols": []}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
    ],
)
@pytest.mark.parametrize("version", [0, 4, 5, 9])
def test_join_refusals(
    broker: GroupBroker, version: int, fields: dict[str, Any], error: ErrorCode
) -> None:
    answer = broker.ask(version, join_request(**fields))
    assert answer.error_code == error
    assert answer.generation_id == -1 and answer.leader == ""
    assert answer.protocol_name == (None if version >= 7 else "")


@pytest.mark.parametrize("version", range(6))
def test_sync_heartbeat_and_leave_in_every_version(broker: GroupBroker, version: int) -> None:
    joined = join(broker, 5)
    synced = broker.ask(version, sync_request(joined, version))
    assert (synced.error_code, bytes(synced.assignment)) == (0, b"mine")
    assert synced.protocol_name == ("range" if version >= 5 else None)
    heartbeat = HeartbeatRequest(group_id="g", generation_id=1, member_id=joined.member_id)
    assert broker.ask(min(version, 4), heartbeat).error_code == 0
    heartbeat.generation_id = 2
    answer = broker.ask(min(version, 4), heartbeat)
    assert answer.error_code == ErrorCode.ILLEGAL_GENERATION
    for error in (NONE, ErrorCode.UNKNOWN_MEMBER_ID):
        if version >= 3:
            members = [MemberIdentity(member_id=joined.member_id)]
            left = broker.ask(version, LeaveGroupRequest(group_id="g", members=members))
            assert left.error_code == 0 and left.members[0].error_code == error
        else:
            left = broker.ask(version, LeaveGroupRequest(group_id="g", member_id=joined.member_id))
            assert left.error_code == error


@pytest.mark.parametrize("version", range(6))
def test_leaving_an_unknown_group_names_an_unknown_member(
    broker: GroupBroker, version: int
) -> None:
    if version >= 3:
        members = [MemberIdentity(member_id="m"), MemberIdentity(group_instance_id="i")]
        left = broker.ask(version, LeaveGroupRequest(group_id="none", members=members))
        assert left.error_code == 0
        assert {member.error_code for member in left.members} == {ErrorCode.UNKNOWN_MEMBER_ID}
    else:
        left = broker.ask(version, LeaveGroupRequest(group_id="none", member_id="m"))
        assert left.error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_empty_group_ids_are_refused(broker: GroupBroker) -> None:
    for version, request in [
        (5, SyncGroupRequest(protocol_type="consumer", protocol_name="range")),
        (4, HeartbeatRequest()),
        (5, LeaveGroupRequest()),
    ]:
        assert broker.ask(version, request).error_code == ErrorCode.INVALID_GROUP_ID


def test_sync_must_name_its_protocol_from_version_5_on(broker: GroupBroker) -> None:
    request = SyncGroupRequest(group_id="g", protocol_type="consumer")
    assert broker.ask(5, request).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_two_members_rebalance_and_one_disconnects_without_leaving(broker: GroupBroker) -> None:
    first, second = broker.connect(), broker.connect()
    timeouts = {"rebalance_timeout_ms": 60_000}
    leader = broker.ask(3, join_request(**timeouts), first).member_id
    broker.ask(3, sync_request(broker.answers[first][0], 3), first)
    broker.send(second, 3, join_request(**timeouts))
    assert broker.answers[second] == []
    heartbeat = HeartbeatRequest(group_id="g", generation_id=1, member_id=leader)
    assert broker.ask(3, heartbeat, first).error_code == ErrorCode.REBALANCE_IN_PROGRESS
    broker.send(first, 3, join_request(leader, **timeouts))
    follower = broker.answers[second][0].member_id
    assert {member.member_id for member in broker.answers[first][-1].members} == {leader, follower}
    # The follower parks its sync and disconnects; its session ends, the leader is told.
    broker.send(second, 3, SyncGroupRequest(group_id="g", generation_id=2, member_id=follower))
    broker.broker.connection_closed(second)
    assert broker.ask(3, sync_request(broker.answers[first][-1], 3), first).error_code == 0
    heartbeat.generation_id = 2
    broker.advance(6_000)
    assert broker.ask(3, heartbeat, first).error_code == 0
    broker.advance(4_000)
    assert broker.ask(3, heartbeat, first).error_code == ErrorCode.REBALANCE_IN_PROGRESS
    alone = broker.ask(3, join_request(leader, **timeouts), first)
    assert [member.member_id for member in alone.members] == [leader]
    assert len(broker.answers[second]) == 1, "nothing is sent to a connection that is gone"


def test_a_join_whose_connection_closed_does_not_stop_the_group(broker: GroupBroker) -> None:
    member = join(broker, 4).member_id
    lost = broker.connect()
    given = broker.ask(4, join_request(rebalance_timeout_ms=60_000), lost).member_id
    broker.send(lost, 4, join_request(given, rebalance_timeout_ms=60_000))
    broker.broker.connection_closed(lost)
    again = broker.ask(4, join_request(member, rebalance_timeout_ms=60_000))
    assert {each.member_id for each in again.members} == {member, given}


# ---- describe, list, delete


@pytest.mark.parametrize("version", range(7))
def test_describe_shows_a_stable_group(broker: GroupBroker, version: int) -> None:
    joined = join(broker, 5)
    broker.ask(3, sync_request(joined, 3))
    wants = {"include_authorized_operations": True} if version >= 3 else {}
    answer = broker.ask(version, DescribeGroupsRequest(groups=["g", "none"], **wants))
    group, unknown = answer.groups
    assert (group.error_code, group.group_state) == (0, "Stable")
    assert (group.protocol_type, group.protocol_data) == ("consumer", "range")
    [member] = group.members
    assert (member.client_id, member.client_host) == ("client", "/127.0.0.1")
    assert bytes(member.member_metadata) == b"\x00\x00meta"
    assert bytes(member.member_assignment) == b"mine"
    assert group.authorized_operations == (328 if version >= 3 else -(2**31))
    assert unknown.group_state == "Dead"
    missing = ErrorCode.GROUP_ID_NOT_FOUND if version >= 6 else NONE
    assert unknown.error_code == missing
    assert unknown.error_message == ("Group none not found." if version >= 6 else None)


@pytest.mark.parametrize("version", range(6))
def test_list_shows_groups(broker: GroupBroker, version: int) -> None:
    join(broker, 5)
    [group] = broker.ask(version, ListGroupsRequest()).groups
    assert (group.group_id, group.protocol_type) == ("g", "consumer")
    assert group.group_state == ("CompletingRebalance" if version >= 4 else "")
    assert group.group_type == ("classic" if version >= 5 else "")


@pytest.mark.parametrize(
    ("states", "types", "count"),
    [
        (["completingrebalance"], [], 1),
        (["Stable", "CompletingRebalance"], ["Classic"], 1),
        (["Stable"], [], 0),
        ([], ["consumer"], 0),
        (["nonsense"], [], 0),
        ([], ["nonsense"], 0),
    ],
)
def test_list_filters_by_state_and_type(
    broker: GroupBroker, states: list[str], types: list[str], count: int
) -> None:
    join(broker, 5)
    request = ListGroupsRequest(states_filter=states, types_filter=types)
    assert len(broker.ask(5, request).groups) == count


@pytest.mark.parametrize("version", range(4))
def test_delete_groups(broker: GroupBroker, version: int) -> None:
    joined = join(broker, 5)
    request = DeleteGroupsRequest(groups_names=["g", "none", ""])
    results = {each.group_id: each for each in broker.ask(version, request).results}
    assert results["g"].error_code == ErrorCode.NON_EMPTY_GROUP
    assert results["none"].error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert results[""].error_code == ErrorCode.GROUP_ID_NOT_FOUND
    broker.ask(2, LeaveGroupRequest(group_id="g", member_id=joined.member_id))
    request = DeleteGroupsRequest(groups_names=["g"])
    assert [each.error_code for each in broker.ask(version, request).results] == [0]
    assert broker.ask(0, ListGroupsRequest()).groups == []
    assert broker.ask(version, DeleteGroupsRequest()).results == []


# ---- life of the coordinator


def test_a_group_survives_a_kill(broker: GroupBroker) -> None:
    joined = join(broker, 5)
    broker.ask(3, sync_request(joined, 3))
    broker.restart()
    heartbeat = HeartbeatRequest(group_id="g", generation_id=1, member_id=joined.member_id)
    assert broker.ask(3, heartbeat).error_code == 0
    group = broker.ask(5, DescribeGroupsRequest(groups=["g"])).groups[0]
    assert group.group_state == "Stable"
    assert bytes(group.members[0].member_assignment) == b"mine"
    broker.advance(10_000)
    assert broker.ask(3, heartbeat).error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_groups_answer_not_coordinator_once_their_topic_is_gone(broker: GroupBroker) -> None:
    joined = join(broker, 5)
    waiting = broker.connect()
    broker.send(waiting, 3, join_request(rebalance_timeout_ms=60_000))
    broker.delete_topic("__consumer_offsets")
    assert broker.answers[waiting][0].error_code == ErrorCode.NOT_COORDINATOR
    heartbeat = HeartbeatRequest(group_id="g", generation_id=1, member_id=joined.member_id)
    assert broker.ask(3, heartbeat).error_code == ErrorCode.NOT_COORDINATOR
    described = broker.ask(5, DescribeGroupsRequest(groups=["g"])).groups[0]
    assert described.error_code == ErrorCode.NOT_COORDINATOR
    broker.advance(700_000)  # no timer of the lost shards fires
    broker.ask(0, FindCoordinatorRequest(key="g"))
    assert broker.ask(3, heartbeat).error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_the_same_seed_gives_the_same_member_ids() -> None:
    ids = []
    for _ in range(2):
        broker = GroupBroker()
        broker.ask(0, FindCoordinatorRequest(key="g"))
        ids.append([join(broker, 0, group_id=name).member_id for name in "abc"])
    assert ids[0] == ids[1] and len(set(ids[0])) == 3


def test_an_offsets_topic_with_other_partitions_than_configured_is_obeyed() -> None:
    broker = GroupBroker({"offsets.topic.num.partitions": "7"})
    topic = CreatableTopic(name="__consumer_offsets", num_partitions=2, replication_factor=1)
    broker.ask(5, CreateTopicsRequest(topics=[topic], timeout_ms=1000))
    for name in "abcdef":
        assert join(broker, 0, group_id=name).generation_id == 1


# ---- what only somebody hostile sends


LONG = "x" * 32767


def test_ids_that_are_as_long_as_a_string_can_be_are_served(broker: GroupBroker) -> None:
    broker.client_id = LONG
    answer = join(broker, 3, group_id=LONG)
    assert len(answer.member_id) == 32767 and answer.member_id.startswith("xxx")
    answer = join(broker, 5, group_id="i", group_instance_id="\u20ac" * 10_922)
    assert len(answer.member_id.encode()) <= 32767
    names = [LONG, LONG[1:]]
    groups = broker.ask(6, DescribeGroupsRequest(groups=names)).groups
    assert [group.error_code for group in groups] == [0, ErrorCode.GROUP_ID_NOT_FOUND]
    results = broker.ask(3, DeleteGroupsRequest(groups_names=names)).results
    assert {each.error_code for each in results} == {
        ErrorCode.NON_EMPTY_GROUP,
        ErrorCode.GROUP_ID_NOT_FOUND,
    }


def test_an_assignment_too_large_for_the_log_is_refused_and_the_group_lives_on(
    broker: GroupBroker,
) -> None:
    joined = join(broker, 5)
    synced = broker.ask(3, sync_request(joined, 3, b"x" * 2_000_000))
    assert synced.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    again = broker.ask(5, join_request(joined.member_id, rebalance_timeout_ms=60_000))
    assert again.generation_id == 2
    assert broker.ask(3, sync_request(again, 3)).error_code == 0


@pytest.mark.parametrize("rebalance_timeout_ms", [-(2**31), -1, 0, 2**31 - 1])
def test_any_rebalance_timeout_is_lived_with(
    broker: GroupBroker, rebalance_timeout_ms: int
) -> None:
    joined = join(broker, 3, rebalance_timeout_ms=rebalance_timeout_ms)
    broker.advance(20_000)
    heartbeat = HeartbeatRequest(group_id="g", generation_id=1, member_id=joined.member_id)
    assert broker.ask(3, heartbeat).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert join(broker, 3).generation_id > 1


def test_a_coordinator_that_the_client_cannot_reach_is_not_available() -> None:
    broker = GroupBroker()
    assert broker.ask(3, FindCoordinatorRequest(key="g")).error_code == 0
    for partition in broker.services.metadata.topics["__consumer_offsets"].partitions.values():
        partition.leader = 9
    answer = broker.ask(3, FindCoordinatorRequest(key="g"))
    assert answer.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert (answer.node_id, answer.port) == (-1, -1)


def test_a_topic_of_coordinators_that_cannot_be_created_is_no_coordinator() -> None:
    broker = GroupBroker({"offsets.topic.replication.factor": "3"})
    answer = broker.ask(3, FindCoordinatorRequest(key="g"))
    assert answer.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert "replication factor" in answer.error_message


def test_where_creation_does_not_wait_the_coordinator_is_found_at_the_second_time() -> None:
    broker = GroupBroker({"kwire.topic.creation.waits": "false"})
    found = [broker.ask(3, FindCoordinatorRequest(key="g")).error_code for _ in range(2)]
    assert found == [ErrorCode.COORDINATOR_NOT_AVAILABLE, NONE]


def test_groups_are_not_listed_while_a_partition_is_loaded(broker: GroupBroker) -> None:
    context = next(iter(broker.services.group_coordinator.runtime.contexts.values()))
    context.state = type(context.state).LOADING
    answer = broker.ask(4, ListGroupsRequest())
    assert (answer.error_code, answer.groups) == (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, [])
