"""Groups of the classic protocol, and coordinators."""

from __future__ import annotations

from kwire.protocol.language.schema import (
    BOOLEAN,
    BYTES,
    INT8,
    INT16,
    INT32,
    STRING,
    Message,
    Struct,
    array,
    field,
)


class FindCoordinatorRequest(Message, versions="0-6", flexible="3+"):
    """Asks for the coordinator of a group or a transaction; from version 4 of several keys (KIP-699)."""

    key: str = field(STRING, "0-3")
    key_type: int = field(INT8, "1+")
    coordinator_keys: list[str] = field(array(STRING), "4+")


class Coordinator(Struct):
    key: str = field(STRING)
    node_id: int = field(INT32)
    host: str = field(STRING)
    port: int = field(INT32)
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, nullable="0+")


class FindCoordinatorResponse(Message, versions="0-6", flexible="3+"):
    """The coordinator of each key."""

    throttle_time_ms: int = field(INT32, "1+", ignorable=True)
    error_code: int = field(INT16, "0-3")
    error_message: str | None = field(STRING, "1-3", nullable="0+", ignorable=True)
    node_id: int = field(INT32, "0-3")
    host: str = field(STRING, "0-3")
    port: int = field(INT32, "0-3")
    coordinators: list[Coordinator] = field(array(Coordinator), "4+")


class JoinGroupRequestProtocol(Struct):
    name: str = field(STRING)
    metadata: bytes = field(BYTES)


class JoinGroupRequest(Message, versions="0-9", flexible="6+"):
    """Joins a group of the classic protocol, or rejoins for a rebalance."""

    group_id: str = field(STRING)
    session_timeout_ms: int = field(INT32)
    rebalance_timeout_ms: int = field(INT32, "1+", default=-1, ignorable=True)
    member_id: str = field(STRING)
    group_instance_id: str | None = field(STRING, "5+", nullable="0+", default=None)
    protocol_type: str = field(STRING)
    protocols: list[JoinGroupRequestProtocol] = field(array(JoinGroupRequestProtocol))
    reason: str | None = field(STRING, "8+", nullable="0+", default=None, ignorable=True)


class JoinGroupResponseMember(Struct):
    member_id: str = field(STRING)
    group_instance_id: str | None = field(STRING, "5+", nullable="0+", default=None, ignorable=True)
    metadata: bytes = field(BYTES)


class JoinGroupResponse(Message, versions="0-9", flexible="6+"):
    """The generation, the member's id and, for the leader, all members."""

    throttle_time_ms: int = field(INT32, "2+", ignorable=True)
    error_code: int = field(INT16)
    generation_id: int = field(INT32, default=-1)
    protocol_type: str | None = field(STRING, "7+", nullable="0+", default=None, ignorable=True)
    protocol_name: str | None = field(STRING, nullable="7+")
    leader: str = field(STRING)
    skip_assignment: bool = field(BOOLEAN, "9+")
    member_id: str = field(STRING)
    members: list[JoinGroupResponseMember] = field(array(JoinGroupResponseMember))


class HeartbeatRequest(Message, versions="0-4", flexible="4+"):
    """Tells the coordinator that a member lives."""

    group_id: str = field(STRING)
    generation_id: int = field(INT32)
    member_id: str = field(STRING)
    group_instance_id: str | None = field(STRING, "3+", nullable="0+", default=None)


class HeartbeatResponse(Message, versions="0-4", flexible="4+"):
    """Whether the member has to rejoin."""

    throttle_time_ms: int = field(INT32, "1+", ignorable=True)
    error_code: int = field(INT16)


class MemberIdentity(Struct):
    member_id: str = field(STRING)
    group_instance_id: str | None = field(STRING, nullable="0+", default=None)
    reason: str | None = field(STRING, "5+", nullable="0+", default=None, ignorable=True)


class LeaveGroupRequest(Message, versions="0-5", flexible="4+"):
    """Takes members out of a group; several at once from version 3 (KIP-345)."""

    group_id: str = field(STRING)
    member_id: str = field(STRING, "0-2")
    members: list[MemberIdentity] = field(array(MemberIdentity), "3+")


class MemberResponse(Struct):
    member_id: str = field(STRING)
    group_instance_id: str | None = field(STRING, nullable="0+")
    error_code: int = field(INT16)


class LeaveGroupResponse(Message, versions="0-5", flexible="4+"):
    """The outcome per member."""

    throttle_time_ms: int = field(INT32, "1+", ignorable=True)
    error_code: int = field(INT16)
    members: list[MemberResponse] = field(array(MemberResponse), "3+")


class SyncGroupRequestAssignment(Struct):
    member_id: str = field(STRING)
    assignment: bytes = field(BYTES)


class SyncGroupRequest(Message, versions="0-5", flexible="4+"):
    """Brings the leader's assignment and waits for one's own."""

    group_id: str = field(STRING)
    generation_id: int = field(INT32)
    member_id: str = field(STRING)
    group_instance_id: str | None = field(STRING, "3+", nullable="0+", default=None)
    protocol_type: str | None = field(STRING, "5+", nullable="0+", default=None, ignorable=True)
    protocol_name: str | None = field(STRING, "5+", nullable="0+", default=None, ignorable=True)
    assignments: list[SyncGroupRequestAssignment] = field(array(SyncGroupRequestAssignment))


class SyncGroupResponse(Message, versions="0-5", flexible="4+"):
    """The member's assignment."""

    throttle_time_ms: int = field(INT32, "1+", ignorable=True)
    error_code: int = field(INT16)
    protocol_type: str | None = field(STRING, "5+", nullable="0+", default=None, ignorable=True)
    protocol_name: str | None = field(STRING, "5+", nullable="0+", default=None, ignorable=True)
    assignment: bytes = field(BYTES)


class DescribeGroupsRequest(Message, versions="0-6", flexible="5+"):
    """Asks for groups of the classic protocol."""

    groups: list[str] = field(array(STRING))
    include_authorized_operations: bool = field(BOOLEAN, "3+")


class DescribedGroupMember(Struct):
    member_id: str = field(STRING)
    group_instance_id: str | None = field(STRING, "4+", nullable="0+", default=None, ignorable=True)
    client_id: str = field(STRING)
    client_host: str = field(STRING)
    member_metadata: bytes = field(BYTES)
    member_assignment: bytes = field(BYTES)


class DescribedGroup(Struct):
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, "6+", nullable="0+", default=None)
    group_id: str = field(STRING)
    group_state: str = field(STRING)
    protocol_type: str = field(STRING)
    protocol_data: str = field(STRING)
    members: list[DescribedGroupMember] = field(array(DescribedGroupMember))
    authorized_operations: int = field(INT32, "3+", default=-2147483648)


class DescribeGroupsResponse(Message, versions="0-6", flexible="5+"):
    """State, protocol and members of each group."""

    throttle_time_ms: int = field(INT32, "1+", ignorable=True)
    groups: list[DescribedGroup] = field(array(DescribedGroup))


class ListGroupsRequest(Message, versions="0-5", flexible="3+"):
    """Asks for the groups that a broker coordinates, by state (KIP-518) and type (KIP-848)."""

    states_filter: list[str] = field(array(STRING), "4+")
    types_filter: list[str] = field(array(STRING), "5+")


class ListedGroup(Struct):
    group_id: str = field(STRING)
    protocol_type: str = field(STRING)
    group_state: str = field(STRING, "4+", ignorable=True)
    group_type: str = field(STRING, "5+", ignorable=True)


class ListGroupsResponse(Message, versions="0-5", flexible="3+"):
    """The groups."""

    throttle_time_ms: int = field(INT32, "1+", ignorable=True)
    error_code: int = field(INT16)
    groups: list[ListedGroup] = field(array(ListedGroup))


class DeleteGroupsRequest(Message, versions="0-3", flexible="2+"):
    """Deletes empty groups (KIP-229)."""

    groups_names: list[str] = field(array(STRING))


class DeletableGroupResult(Struct):
    group_id: str = field(STRING)
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, "3+", nullable="0+", default=None, ignorable=True)


class DeleteGroupsResponse(Message, versions="0-3", flexible="2+"):
    """The outcome per group."""

    throttle_time_ms: int = field(INT32)
    results: list[DeletableGroupResult] = field(array(DeletableGroupResult))
