"""Answers to members of groups that a reset has removed: each is alone in its group, and can leave it.

Kafka has no counterpart; see `kwire.leftovers`. A client that is refused by its coordinator looks for
another one, and if it is closed meanwhile it waits for as long as its session time-out (librdkafka), a
minute (kafka-python) or for ever. So these members have a coordinator as long as their connection lives.
It does not know who they were (UNKNOWN_MEMBER_ID, after which they join again), and lets each join a group
of its own, without topics to assign. There is nothing that it has to remember: whoever has joined here
names its generation.
"""

from __future__ import annotations

from typing import Final

from kwire.coordinator.classic_answers import join_error, new_member_id
from kwire.protocol.errors import ErrorCode
from kwire.protocol.schemas.groups import (
    HeartbeatResponse,
    JoinGroupResponse,
    JoinGroupResponseMember,
    LeaveGroupResponse,
    MemberResponse,
    SyncGroupResponse,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from random import Random

    from kwire.coordinator.member_context import MemberContext
    from kwire.coordinator.offsets import FetchedTopic
    from kwire.protocol.schemas.groups import (
        HeartbeatRequest,
        JoinGroupRequest,
        LeaveGroupRequest,
        SyncGroupRequest,
    )

GENERATION: Final = 1 << 30
"""Of all groups here: none that a broker has counted up to."""


class RemovedGroups:
    """In place of the `GroupCoordinator` of a broker without topics, as far as it is used."""

    __slots__ = ("_random",)

    def __init__(self, random: Random) -> None:
        self._random = random

    def partition_for(self, _group_id: str) -> int:
        """A partition that nobody leads: clients are not led to open a connection to a coordinator."""
        return 0

    def join_group(
        self,
        context: MemberContext,
        request: JoinGroupRequest,
        reply: Callable[[JoinGroupResponse], None],
    ) -> None:
        """Join as the leader and only member, with the first protocol."""
        if not request.protocols:
            reply(join_error(request.member_id, ErrorCode.INCONSISTENT_GROUP_PROTOCOL))
            return
        chosen = request.protocols[0]
        prefix = request.group_instance_id or context.client_id
        member_id = request.member_id or new_member_id(prefix, self._random)
        itself = JoinGroupResponseMember(
            member_id=member_id,
            group_instance_id=request.group_instance_id,
            metadata=chosen.metadata,
        )
        reply(
            JoinGroupResponse(
                generation_id=GENERATION,
                protocol_type=request.protocol_type,
                protocol_name=chosen.name,
                leader=member_id,
                member_id=member_id,
                members=[itself],
            )
        )

    def sync_group(
        self, request: SyncGroupRequest, reply: Callable[[SyncGroupResponse], None]
    ) -> None:
        """Return the assignment that the member has made for itself."""
        own = [each for each in request.assignments if each.member_id == request.member_id]
        reply(
            SyncGroupResponse(
                error_code=_error_of(request.generation_id),
                protocol_type=request.protocol_type,
                protocol_name=request.protocol_name,
                assignment=own[0].assignment if own else b"",
            )
        )

    def heartbeat(
        self, request: HeartbeatRequest, reply: Callable[[HeartbeatResponse], None]
    ) -> None:
        reply(HeartbeatResponse(error_code=_error_of(request.generation_id)))

    def leave_group(
        self, request: LeaveGroupRequest, reply: Callable[[LeaveGroupResponse], None]
    ) -> None:
        """Let all go, also those from before the reset."""
        gone = [
            MemberResponse(member_id=each.member_id, group_instance_id=each.group_instance_id)
            for each in request.members
        ]
        reply(LeaveGroupResponse(members=gone))

    def fetch_offsets(
        self,
        _group_id: str,
        topics: Iterable[tuple[str, Iterable[int]]] | None,
        _require_stable: bool,
        reply: Callable[[list[FetchedTopic]], None],
        _fail: Callable[[ErrorCode], None],
    ) -> None:
        """Nothing is committed."""
        reply(
            [(name, [(each, ErrorCode.NONE, None) for each in ids]) for name, ids in topics or ()]
        )


def _error_of(generation_id: int) -> int:
    return int(ErrorCode.NONE if generation_id == GENERATION else ErrorCode.UNKNOWN_MEMBER_ID)
