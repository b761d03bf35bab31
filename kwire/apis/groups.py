"""Consumer group handlers: FindCoordinator, JoinGroup, SyncGroup, Heartbeat, LeaveGroup, admin
APIs.

Answers to the group part of kafka.server.KafkaApis. This module handles the differences between
versions; the rules are in kwire.coordinator. Offsets are in `group_offsets`.
"""

from __future__ import annotations

from typing import Final

from kwire.coordinator.config import OFFSETS_TOPIC
from kwire.coordinator.member_context import MemberContext
from kwire.protocol.errors import ErrorCode, KafkaError
from kwire.protocol.schemas.groups import (
    Coordinator,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    ListGroupsRequest,
    ListGroupsResponse,
    MemberIdentity,
    SyncGroupRequest,
    SyncGroupResponse,
)
from kwire.replication.config.broker_config import CREATION_WAITS_KEY
from kwire.replication.core.metadata import TRANSACTION_STATE_TOPIC

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from kwire.apis.context import RequestContext
    from kwire.protocol.schemas.groups import ListedGroup
    from kwire.replication.core.metadata import Endpoint
    from kwire.replication.core.work import Steps

GROUP_KEY: Final = 0
TRANSACTION_KEY: Final = 1
SHARE_KEY: Final = 2
SHARE_KEY_VERSION: Final = 6
_TOPICS: Final = {GROUP_KEY: OFFSETS_TOPIC, TRANSACTION_KEY: TRANSACTION_STATE_TOPIC}

_MESSAGES: Final = {
    ErrorCode.NONE: "NONE",  # as Kafka writes it
    ErrorCode.COORDINATOR_NOT_AVAILABLE: "The coordinator is not available.",
}

GROUP_OPERATIONS: Final = 1 << 3 | 1 << 6 | 1 << 8
"""READ, DELETE and DESCRIBE: all operations on a group, as a broker without an authorizer reports
them."""


# --- FindCoordinator


def handle_find_coordinator(ctx: RequestContext, request: FindCoordinatorRequest) -> None:
    """Find coordinators: one key before version 4, several from then on.

    Creates the coordinators' topic when it is first needed; if the controller is another node, the
    request is parked meanwhile."""
    services = ctx.services
    topic = _TOPICS.get(request.key_type)
    if services.member is not None and topic is not None and not services.metadata.contains(topic):
        if services.config.own_flag(CREATION_WAITS_KEY):
            services.member.topic_creation.create(
                [topic], lambda: ctx.reply(_find_coordinator(ctx, request))
            )
        else:
            ctx.reply(_find_coordinator(ctx, request))
            services.member.topic_creation.create([topic], _nothing)
    else:
        ctx.reply(_find_coordinator(ctx, request))


def _nothing() -> None:
    """Nothing waits for the topic."""


def _find_coordinator(
    ctx: RequestContext, request: FindCoordinatorRequest
) -> FindCoordinatorResponse:
    if ctx.api_version >= 4:
        return FindCoordinatorResponse(
            coordinators=[
                _coordinator(ctx, request.key_type, key) for key in request.coordinator_keys
            ]
        )
    found = _coordinator(ctx, request.key_type, request.key)
    return FindCoordinatorResponse(
        error_code=found.error_code,
        error_message=found.error_message or _MESSAGES[ErrorCode(found.error_code)],
        node_id=found.node_id,
        host=found.host,
        port=found.port,
    )


def _coordinator(ctx: RequestContext, key_type: int, key: str) -> Coordinator:
    try:
        if key_type == GROUP_KEY:
            groups = ctx.services.group_coordinator
            node_id, endpoint = _leader(ctx, OFFSETS_TOPIC, groups.partition_for, key)
        elif key_type == TRANSACTION_KEY:
            transactions = ctx.services.transactions
            node_id, endpoint = _leader(
                ctx, TRANSACTION_STATE_TOPIC, transactions.partition_for, key
            )
        elif key_type == SHARE_KEY and ctx.api_version >= SHARE_KEY_VERSION:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)  # as Kafka without share groups
        else:
            message = "Coordinators of this type are not known, or not in this version."
            raise KafkaError(ErrorCode.INVALID_REQUEST, message)
        if endpoint is None:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    except KafkaError as error:
        return Coordinator(
            key=key,
            node_id=-1,
            port=-1,
            error_code=int(error.code),
            error_message=error.message or "",
        )
    return Coordinator(key=key, node_id=node_id, host=endpoint.host, port=endpoint.port)


def _leader(
    ctx: RequestContext, topic: str, partition_for: Callable[[str], int], key: str
) -> tuple[int, Endpoint | None]:
    services = ctx.services
    metadata = services.metadata
    if services.controller is not None and not metadata.contains(topic):
        try:
            services.controller.create_auto(topic)
        except KafkaError as error:
            # Too few brokers for its replication factor, say; clients retry on this error.
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, error.message) from None
        if not services.config.own_flag(CREATION_WAITS_KEY):
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    state = metadata.partition(topic, partition_for(key))
    if state is None:
        raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    return state.leader, metadata.endpoint(state.leader, ctx.session.listener_name)


# --- membership


def handle_join_group(ctx: RequestContext, request: JoinGroupRequest) -> None:
    """Join a group; parked until the join phase ends."""
    if ctx.api_version == 0:
        request.rebalance_timeout_ms = request.session_timeout_ms
    ctx.session.client_id, ctx.session.group_id = ctx.client_id, request.group_id
    member = MemberContext(ctx.api_version, ctx.client_id or "", "/" + ctx.session.peer_host)
    old_protocol_name = ctx.api_version < 7

    def joined(response: JoinGroupResponse) -> None:
        if old_protocol_name and response.protocol_name is None:
            response.protocol_name = ""
        ctx.reply(response)

    ctx.services.group_coordinator.join_group(member, request, joined)


def handle_sync_group(ctx: RequestContext, request: SyncGroupRequest) -> None:
    """Get the member's assignment; parked until the leader's assignment is committed."""
    if ctx.api_version >= 5 and (request.protocol_type is None or request.protocol_name is None):
        error = int(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        ctx.reply(SyncGroupResponse(error_code=error))
    else:
        ctx.services.group_coordinator.sync_group(request, ctx.reply)


def handle_heartbeat(ctx: RequestContext, request: HeartbeatRequest) -> None:
    ctx.services.group_coordinator.heartbeat(request, ctx.reply)


def handle_leave_group(ctx: RequestContext, request: LeaveGroupRequest) -> None:
    """Remove members. Before version 3 there is one, whose error is the response's."""
    coordinator = ctx.services.group_coordinator
    if ctx.api_version >= 3:
        coordinator.leave_group(request, ctx.reply)
        return
    request.members = [MemberIdentity(member_id=request.member_id)]

    def left(response: LeaveGroupResponse) -> None:
        if not response.error_code and response.members:
            response.error_code = response.members[0].error_code
        response.members = []
        ctx.reply(response)

    coordinator.leave_group(request, left)


# --- groups


def handle_describe_groups(ctx: RequestContext, request: DescribeGroupsRequest) -> None:
    groups = []
    for group_id in request.groups:
        group = ctx.services.group_coordinator.describe_group(group_id, ctx.api_version)
        if request.include_authorized_operations and not group.error_code:
            group.authorized_operations = GROUP_OPERATIONS
        groups.append(group)
    ctx.reply(DescribeGroupsResponse(groups=groups))


def handle_list_groups(ctx: RequestContext, request: ListGroupsRequest) -> None:
    """List the groups that this broker coordinates: clients query every broker."""
    ctx.run_in_parts(_list_groups(ctx, request))


def _list_groups(ctx: RequestContext, request: ListGroupsRequest) -> Steps:
    groups: list[ListedGroup] = []
    coordinator = ctx.services.group_coordinator
    try:
        for some in coordinator.list_groups(request.states_filter, request.types_filter):
            groups += some
            yield 5 + 3 * len(some)
    except KafkaError as error:
        ctx.reply(ListGroupsResponse(error_code=int(error.code)))
    else:
        ctx.reply_in_parts(ListGroupsResponse(groups=groups), groups)


def handle_delete_groups(ctx: RequestContext, request: DeleteGroupsRequest) -> None:
    ctx.services.group_coordinator.delete_groups(
        request.groups_names, lambda results: ctx.reply(DeleteGroupsResponse(results=results))
    )
