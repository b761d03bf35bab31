"""The join and sync phases of the classic rebalance protocol, with their timers.

Answers to the delayed operations of Kafka 3.9's
org.apache.kafka.coordinator.group.GroupMetadataManager. A rebalance has a join phase
(PreparingRebalance) and a sync phase (CompletingRebalance); the requests are in `classic_protocol`.

Timers, by key: ("heartbeat", group, member) the session, or the join of a new member; ("join",
group) the end of the join phase; ("sync", group) the end of the sync phase. Timers of removed
groups do nothing.
"""

from __future__ import annotations

from kwire.coordinator import classic_group as states
from kwire.coordinator.classic_answers import generation, join_error
from kwire.coordinator.classic_group import ClassicGroup, ClassicGroupMember
from kwire.coordinator.group_events import GroupEvents
from kwire.coordinator.group_records import group_metadata_record
from kwire.protocol.errors import ErrorCode
from kwire.replication.core.events import ignore
from kwire.shards.result import Result, nothing

TYPE_CHECKING = False
if TYPE_CHECKING:
    from random import Random

    from kwire.coordinator.config import GroupConfig
    from kwire.protocol.schemas.groups import JoinGroupResponse
    from kwire.replication.core.clock import Clock
    from kwire.replication.core.events import LogEvent
    from kwire.shards.result import CoordinatorTimer

PUT_OFF_MS = 100
"""Shortest wait until a rebalance that no member joined is retried; members may set timeout 0."""


class ClassicPhases:
    """The groups of one shard, and their moves from phase to phase."""

    __slots__ = ("_clock", "_config", "_random", "_timer", "events", "groups")

    def __init__(
        self,
        config: GroupConfig,
        clock: Clock,
        timer: CoordinatorTimer,
        random: Random,
        log_event: LogEvent = ignore,
    ) -> None:
        self.events = GroupEvents(log_event)
        self._config = config
        self._clock = clock
        self._timer = timer
        self._random = random
        self.groups: dict[str, ClassicGroup] = {}

    def find_group(self, group_id: str) -> ClassicGroup | None:
        return self.groups.get(group_id)

    def find_or_create_group(self, group_id: str) -> ClassicGroup:
        """The group; a new one is empty, in memory only until its record is written."""
        group = self.groups.get(group_id)
        if group is None:
            group = self.groups[group_id] = ClassicGroup(group_id, self._clock)
        return group

    # --- phases

    def prepare_or_complete(self, group: ClassicGroup, reason: str, detail: str) -> Result[None]:
        """Start a rebalance if the state allows it, else complete the running one if possible.

        `reason`, `detail`: of GROUP_REBALANCE_STARTED."""
        if group.can_rebalance:
            return self.prepare_rebalance(group, reason, detail)
        return self.complete_if_all_joined(group)

    def complete_if_all_joined(self, group: ClassicGroup) -> Result[None]:
        """End the join phase if all members have joined; an initial one lasts for its delay."""
        if (
            group.state == states.PREPARING_REBALANCE
            and group.has_all_members_joined
            and group.previous_state
            != states.EMPTY  # an initial rebalance always lasts for its delay
        ):
            return self.complete_join(group)
        return nothing()

    def prepare_rebalance(self, group: ClassicGroup, reason: str, detail: str) -> Result[None]:
        """Start the join phase: all members must rejoin within the rebalance timeout."""
        self.events.log_rebalance(group, reason, detail)
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
        """Wait for more members of a new group; not at all with delay 0 (the default)."""
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
        """End the join phase: remove absent dynamic members, start the new generation."""
        group_id = group.group_id
        self._timer.cancel(("join", group_id))
        for member in list(group.members.values()):
            if member.awaiting_join is None and member.group_instance_id is None:
                detail = "it has not joined again in time"
                self.events.log_failure(group, member, "join_timeout", detail)
                group.remove(member.member_id)
                self._timer.cancel(("heartbeat", group_id, member.member_id))
        if group.state == states.DEAD:
            return nothing()
        if not group.maybe_elect_new_joined_leader() and group.members:
            # Only static members are left, none has joined: as in Kafka their sessions must expire.
            self._schedule_join(group, at_least_ms=PUT_OFF_MS)
            return nothing()
        group.init_next_generation()
        if group.state == states.EMPTY:
            self.events.log_empty(group)
            # If the write fails, a restart loads the previous generation, which is harmless.
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
            late = list(group.pending_sync_members)
            for member_id in late:
                member = group.members.get(member_id)  # None: of a static member replaced since
                if member is not None:
                    detail = "it has not taken its assignment"
                    self.events.log_failure(group, member, "sync_timeout", detail)
                group.remove(member_id)
                self._timer.cancel(("heartbeat", group.group_id, member_id))
            detail = f"{len(late)} member{'s have' if len(late) > 1 else ' has'} not taken the assignment"
            return self.prepare_rebalance(group, "member_failed", detail)

        self._timer.schedule(("sync", group.group_id), group.rebalance_timeout_ms, expired)

    def complete_sync(self, group: ClassicGroup) -> None:
        """End the sync phase: the assignment is committed, and the answer to every parked sync."""
        group.transition_to(states.STABLE)
        self.events.log_stable(group)
        self.propagate_assignment(group, ErrorCode.NONE)

    def propagate_assignment(self, group: ClassicGroup, error: ErrorCode) -> None:
        """Answer every parked sync with its assignment or the error."""
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
                # An expiry while the sync was parked was ignored: restart the session timeout.
                self.schedule_heartbeat(group, member.member_id, member.session_timeout_ms)

    # --- sessions

    def renew_session(self, group: ClassicGroup, member_id: str) -> None:
        """Restart the member's session timeout."""
        member = group.members[member_id]
        self.schedule_heartbeat(group, member_id, member.session_timeout_ms)

    def schedule_heartbeat(self, group: ClassicGroup, member_id: str, timeout_ms: int) -> None:
        """Expire the member or pending member in `timeout_ms`, unless renewed."""
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
            detail = f"no heartbeat for {member.session_timeout_ms} ms"
            self.events.log_failure(group, member, "session_timeout", detail)
            self.fail_parked_join(group, member)
            group.remove(member_id)
            if group.state in (states.STABLE, states.COMPLETING_REBALANCE):
                return self.prepare_or_complete(group, "member_failed", f"{member_id} has failed")
        if group.state == states.PREPARING_REBALANCE and group.has_all_members_joined:
            return self.complete_join(group)
        return nothing()

    def answer_join(
        self, group: ClassicGroup, member: ClassicGroupMember, response: JoinGroupResponse
    ) -> None:
        """Answer a parked join outside of a rebalance, and restart the session: an expiry meanwhile was
        ignored. Kafka does not restart it here: a client that dies after a long append stays."""
        if group.complete_join(member, response):
            self.schedule_heartbeat(group, member.member_id, member.session_timeout_ms)

    def fail_parked_join(self, group: ClassicGroup, member: ClassicGroupMember) -> None:
        """Answer the parked join of a removed member."""
        # UNKNOWN_MEMBER_ID makes a live consumer join as a new member.
        group.complete_join(member, join_error("", ErrorCode.UNKNOWN_MEMBER_ID))
