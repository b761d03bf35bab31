"""Logs the events of groups: rebalances begun and completed, members that have failed.

Answers to the lines that Kafka's GroupMetadataManager logs ("Preparing to rebalance group …",
"Stabilized group …", "Member … has failed").
"""

from __future__ import annotations

from kwire.coordinator.events import GroupEvent

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from kwire.coordinator.classic_group import ClassicGroup, ClassicGroupMember
    from kwire.protocol.schemas.groups import MemberIdentity
    from kwire.replication.core.events import LogEvent


def describe_leaving(members: Iterable[MemberIdentity]) -> str:
    """The members of a LeaveGroup request, in words."""
    return ", ".join(each.member_id or str(each.group_instance_id) for each in members) + " leaves"


class GroupEvents:
    """Logs what happens to the groups of one shard."""

    __slots__ = ("_log_event",)

    def __init__(self, log_event: LogEvent) -> None:
        self._log_event = log_event

    def log_rebalance(self, group: ClassicGroup, reason: str, detail: str) -> None:
        """The join phase begins. `reason`: one of the words listed at the event."""
        self._log_event(
            GroupEvent.GROUP_REBALANCE_STARTED,
            group=group.group_id,
            generation=group.generation_id,
            members=len(group.members),
            reason=reason,
            detail=detail,
        )

    def log_stable(self, group: ClassicGroup) -> None:
        self._log_event(
            GroupEvent.GROUP_STABLE,
            group=group.group_id,
            generation=group.generation_id,
            members=len(group.members),
            assignor=group.protocol_name,
            leader_id=group.leader_id,
        )

    def log_empty(self, group: ClassicGroup) -> None:
        self._log_event(
            GroupEvent.GROUP_EMPTY, group=group.group_id, generation=group.generation_id
        )

    def log_failure(
        self, group: ClassicGroup, member: ClassicGroupMember, reason: str, detail: str
    ) -> None:
        """A member is about to be removed that has not left."""
        self._log_event(
            GroupEvent.GROUP_MEMBER_FAILED,
            group=group.group_id,
            member_id=member.member_id,
            client_id=member.client_id,
            reason=reason,
            detail=detail,
        )
