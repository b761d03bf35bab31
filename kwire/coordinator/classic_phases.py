"""The phases of the classic rebalance protocol: who is waited for, how long, and what comes then.

Answers to the delayed operations of Kafka 3.9's org.apache.kafka.coordinator.group.GroupMetadataManager. A rebalance
has a join phase (PreparingRebalance) and a sync phase (CompletingRebalance); the requests that move it are in
`classic_protocol`.

Timers, by key: ("heartbeat", group, member) the session, or the join of a new member; ("join", group) the end of the
join phase; ("sync", group) the end of the sync phase. A timer that fires for a group that is no more does nothing.
"""

from __future__ import annotations

from kwire.coordinator import classic_group as states
from kwire.coordinator.classic_answers import generation, join_error
from kwire.coordinator.classic_group import ClassicGroup, ClassicGroupMember
from kwire.coordinator.group_records import group_metadata_record
from kwire.coordinator.result import Result, nothing
from kwire.protocol.errors import ErrorCode

TYPE_CHECKING = False
if TYPE_CHECKING:
    from random import Random

    from kwire.coordinator.config import GroupConfig
    from kwire.coordinator.result import CoordinatorTimer
    from kwire.replication.core.clock import Clock

PUT_OFF_MS = 100
"""How soon at the earliest a rebalance that nobody joined is tried again: members may ask for a timeout of 0."""


class ClassicPhases:
    """The groups of one shard, and the clockwork that takes them from phase to phase."""

    __slots__ = ("_clock", "_config", "_random", "_timer", "groups")

    def __init__(
        self, config: GroupConfig, clock: Clock, timer: CoordinatorTimer, random: Random
    ) -> None:
        self._config = config
        self._clock = clock
        self._timer = timer
        self._random = random
        self.groups: dict[str, ClassicGroup] = {}

    def find_group(self, group_id: str) -> ClassicGroup | None:
        return self.groups.get(group_id)

    def find_or_create_group(self, group_id: str) -> ClassicGroup:
        """The group; a new one is empty and known only here until a record says so."""
        group = self.groups.get(group_id)
        if group is None:
            group = self.groups[group_id] = ClassicGroup(group_id, self._clock)
        return group

    # --- phases

    def prepare_or_complete(self, group: ClassicGroup) -> Result[None]:
        """Starts a rebalance where the state allows one, else sees whether the running one can end."""
        if group.can_rebalance:
            return self.prepare_rebalance(group)
        return self.complete_if_all_joined(group)

    def complete_if_all_joined(self, group: ClassicGroup) -> Result[None]:
        """Ends the join phase if nobody is missing; an initial one goes on until its delay is over."""
        if (
            group.state == states.PREPARING_REBALANCE
            and group.has_all_members_joined
            and group.previous_state != states.EMPTY  # an initial rebalance waits out its delay
        ):
            return self.complete_join(group)
        return nothing()

    def prepare_rebalance(self, group: ClassicGroup) -> Result[None]:
        """Opens the join phase: all members are to come again within the rebalance timeout."""
        if group.state == states.COMPLETING_REBALANCE:
            for member in group.members.values():
                member.assignment = b""
            self.propagate_assignment(group, ErrorCode.REBALANCE_IN_PROGRESS)
        group.pending_sync_members.clear()
        self._timer.cancel(("sync", group.group_id))
        initial = group.state == states.EMPTY
        group.transition_to(states.PREPARING_REBALANCE)
        if initial:
            delay_ms = self._config.group_initial_rebalance_delay_ms
            remaining_ms = max(group.rebalance_timeout_ms - delay_ms, 0)
            return self._complete_initial_join(group, delay_ms, remaining_ms)
        if group.has_all_members_joined:
            return self.complete_join(group)
        self._schedule_join(group)
        return nothing()

    def _complete_initial_join(
        self, group: ClassicGroup, delay_ms: int, remaining_ms: int
    ) -> Result[None]:
        """A new group waits for more members; without a delay (kwire's default) it does so not for a moment."""
        if delay_ms == 0:
            return self.complete_join(group)

        def expired() -> Result[None]:
            if self.groups.get(group.group_id) is not group:
                return nothing()
            if group.new_member_added and remaining_ms:
                group.new_member_added = False
                next_ms = min(self._config.group_initial_rebalance_delay_ms, remaining_ms)
                return self._complete_initial_join(group, next_ms, max(remaining_ms - delay_ms, 0))
            return self.complete_join(group)

        self._timer.schedule(("join", group.group_id), delay_ms, expired)
        return nothing()

    def _schedule_join(self, group: ClassicGroup, at_least_ms: int = 0) -> None:
        def expired() -> Result[None]:
            if self.groups.get(group.group_id) is not group:
                return nothing()
            return self.complete_join(group)

        delay_ms = max(group.rebalance_timeout_ms, at_least_ms)
        self._timer.schedule(("join", group.group_id), delay_ms, expired)

    def complete_join(self, group: ClassicGroup) -> Result[None]:
        """Ends the join phase: who has not come is out (static members stay), the others get the new generation."""
        group_id = group.group_id
        self._timer.cancel(("join", group_id))
        for member in list(group.members.values()):
            if member.awaiting_join is None and member.group_instance_id is None:
                group.remove(member.member_id)
                self._timer.cancel(("heartbeat", group_id, member.member_id))
        if group.state == states.DEAD:
            return nothing()
        if not group.maybe_elect_new_joined_leader() and group.members:
            # Only static members are left and none of them came: wait until their sessions expire.
            self._schedule_join(group, at_least_ms=PUT_OFF_MS)
            return nothing()
        group.init_next_generation()
        if group.state == states.EMPTY:
            # Should the write fail, the generation before comes back after a restart, without harm.
            return Result([group_metadata_record(group, {})], None, replay=False)
        for member in group.members.values():
            self.schedule_heartbeat(group, member.member_id, member.session_timeout_ms)
            member.is_new = False
            group.pending_sync_members[member.member_id] = None
        self._schedule_sync(group)
        for member in list(group.members.values()):
            group.complete_join(member, generation(group, member.member_id))
        return nothing()

    def _schedule_sync(self, group: ClassicGroup) -> None:
        generation_id = group.generation_id

        def expired() -> Result[None]:
            if (
                self.groups.get(group.group_id) is not group
                or group.generation_id != generation_id
                or group.state not in (states.COMPLETING_REBALANCE, states.STABLE)
                or not group.pending_sync_members
            ):
                return nothing()
            for member_id in list(group.pending_sync_members):
                group.remove(member_id)
                self._timer.cancel(("heartbeat", group.group_id, member_id))
            return self.prepare_rebalance(group)

        self._timer.schedule(("sync", group.group_id), group.rebalance_timeout_ms, expired)

    def propagate_assignment(self, group: ClassicGroup, error: ErrorCode) -> None:
        """Answers every parked sync: its assignment, or the error."""
        from kwire.protocol.schemas.groups import SyncGroupResponse

        fine = error is ErrorCode.NONE
        for member in list(group.members.values()):
            response = SyncGroupResponse(
                error_code=int(error),
                protocol_type=group.protocol_type if fine else None,
                protocol_name=group.protocol_name if fine else None,
                assignment=member.assignment,
            )
            if group.complete_sync(member, response):
                # A session that expired while the sync was parked was let pass; it runs anew from here.
                self.schedule_heartbeat(group, member.member_id, member.session_timeout_ms)

    # --- sessions

    def keep_session(self, group: ClassicGroup, member_id: str) -> None:
        """The member has shown that it lives."""
        member = group.members[member_id]
        self.schedule_heartbeat(group, member_id, member.session_timeout_ms)

    def schedule_heartbeat(self, group: ClassicGroup, member_id: str, timeout_ms: int) -> None:
        """Gives the member (or the pending one) `timeout_ms` from now on."""
        self._timer.schedule(
            ("heartbeat", group.group_id, member_id),
            timeout_ms,
            lambda: self._expire_heartbeat(group, member_id),
        )

    def _expire_heartbeat(self, group: ClassicGroup, member_id: str) -> Result[None]:
        if self.groups.get(group.group_id) is not group or group.state == states.DEAD:
            return nothing()
        member = group.members.get(member_id)
        if member_id in group.pending_join_members:
            group.remove(member_id)
        elif member is None or member.has_satisfied_heartbeat:
            return nothing()
        else:
            self.fail_parked_join(group, member)
            group.remove(member_id)
            if group.state in (states.STABLE, states.COMPLETING_REBALANCE):
                return self.prepare_or_complete(group)
        if group.state == states.PREPARING_REBALANCE and group.has_all_members_joined:
            return self.complete_join(group)
        return nothing()

    def fail_parked_join(self, group: ClassicGroup, member: ClassicGroupMember) -> None:
        """Answers the parked join of a member that is taken out."""
        # UNKNOWN_MEMBER_ID makes a consumer that is still there join anew.
        group.complete_join(member, join_error("", ErrorCode.UNKNOWN_MEMBER_ID))
