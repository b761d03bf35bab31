"""The classic rebalance protocol: join, sync, heartbeat, leave, and what happens when their time is up.

Answers to the classic half of org.apache.kafka.coordinator.group.GroupMetadataManager of Kafka 3.9. Members' join and
sync requests are parked on the member (`Deferred`) and answered when the phase is over, assignments when the leader's
record of them is committed. Members are soft state: changed here, not by replay (`Result.replay` False).

Timers, by key: ("heartbeat", group, member) the session, or the join of a new member; ("join", group) the end of the
join phase; ("sync", group) the end of the sync phase.
"""

from __future__ import annotations

from kwire.coordinator import classic_group as states
from kwire.coordinator.classic_answers import generation, join_error, new_member_id, refuse_join
from kwire.coordinator.classic_group import ClassicGroup, ClassicGroupMember
from kwire.coordinator.config import NEW_MEMBER_JOIN_TIMEOUT_MS
from kwire.coordinator.group_records import empty_group_metadata_record, group_metadata_record
from kwire.coordinator.result import Deferred, Result, nothing
from kwire.protocol.errors import ErrorCode, KafkaError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from random import Random

    from kwire.coordinator.config import GroupConfig
    from kwire.coordinator.result import CoordinatorTimer, MemberContext
    from kwire.protocol.schemas.groups import (
        HeartbeatRequest,
        HeartbeatResponse,
        JoinGroupRequest,
        JoinGroupResponse,
        LeaveGroupRequest,
        LeaveGroupResponse,
        MemberIdentity,
        SyncGroupRequest,
        SyncGroupResponse,
    )
    from kwire.replication.clock import Clock

JOIN_REQUIRES_MEMBER_ID_VERSION = 4
JOIN_SKIPS_ASSIGNMENT_VERSION = 9
PUT_OFF_MS = 100
"""How soon at the earliest a rebalance that nobody joined is tried again: members may ask for a timeout of 0."""


class ClassicProtocol:
    """The groups of one shard and the protocol that moves them."""

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
        group = self.groups.get(group_id)
        if group is None:
            group = self.groups[group_id] = ClassicGroup(group_id, self._clock)
        return group

    # ---- JoinGroup

    def join(
        self,
        context: MemberContext,
        request: JoinGroupRequest,
        answer: Deferred[JoinGroupResponse],
    ) -> Result[None]:
        """Answers at once or parks the member; the group is made for a member that has no id yet."""
        group_id, member_id = request.group_id, request.member_id
        is_new_group = group_id not in self.groups
        if is_new_group and member_id:
            refuse_join(answer, member_id, ErrorCode.UNKNOWN_MEMBER_ID)
            return nothing()
        group = self.find_or_create_group(group_id)
        if not self._accepts(group, member_id):
            group.remove(member_id)
            refuse_join(answer, "", ErrorCode.GROUP_MAX_SIZE_REACHED)
            result = nothing()
        elif group.state == states.DEAD:
            refuse_join(answer, member_id, ErrorCode.COORDINATOR_NOT_AVAILABLE)
            result = nothing()
        elif not group.supports_protocols(
            request.protocol_type, [protocol.name for protocol in request.protocols]
        ):
            refuse_join(answer, member_id, ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
            result = nothing()
        elif not member_id:
            result = self._join_new_member(context, request, group, answer)
        else:
            result = self._join_existing_member(context, request, group, answer)
        if is_new_group and not result.records:
            return self._write_new_group(group, answer)
        return result

    def _write_new_group(
        self, group: ClassicGroup, answer: Deferred[JoinGroupResponse]
    ) -> Result[None]:
        """A group exists in the log from its first request on; when that fails it was never there."""

        def appended(error: ErrorCode) -> None:
            if error is not ErrorCode.NONE:
                self.groups.pop(group.group_id, None)
                for member in group.members.values():
                    group.complete_join(member, join_error(member.member_id, error))
                refuse_join(answer, "", error)

        record = empty_group_metadata_record(group)
        return Result([record], None, on_append=appended, replay=False)

    def _accepts(self, group: ClassicGroup, member_id: str) -> bool:
        """Is there room under group.max.size? Members that are in already are not turned away."""
        if group.state in (states.EMPTY, states.DEAD):
            return True
        member = group.members.get(member_id)
        if group.state == states.PREPARING_REBALANCE:
            # Those that wait count, not those that were in: so a group above a lowered limit shrinks.
            if member is not None and member.awaiting_join is not None:
                return True
            return group.awaiting_join_count < self._config.group_max_size
        return member is not None or len(group.members) < self._config.group_max_size

    def _join_new_member(
        self,
        context: MemberContext,
        request: JoinGroupRequest,
        group: ClassicGroup,
        answer: Deferred[JoinGroupResponse],
    ) -> Result[None]:
        instance_id = request.group_instance_id
        prefix = context.client_id if instance_id is None else instance_id
        member_id = new_member_id(prefix, self._random)
        if instance_id is not None:
            old_member_id = group.static_members.get(instance_id)
            if old_member_id is None:
                return self._add_member(context, request, group, member_id, answer)
            return self._replace_static_member(
                context, request, group, old_member_id, member_id, answer
            )
        if context.api_version < JOIN_REQUIRES_MEMBER_ID_VERSION:
            return self._add_member(context, request, group, member_id, answer)
        # KIP-394: it gets an id first, so that a join that is lost and retried does not become two members.
        group.pending_join_members[member_id] = None
        self._schedule_heartbeat(group, member_id, request.session_timeout_ms)
        refuse_join(answer, member_id, ErrorCode.MEMBER_ID_REQUIRED)
        return nothing()

    def _join_existing_member(
        self,
        context: MemberContext,
        request: JoinGroupRequest,
        group: ClassicGroup,
        answer: Deferred[JoinGroupResponse],
    ) -> Result[None]:
        member_id = request.member_id
        if member_id in group.pending_join_members and request.group_instance_id is None:
            return self._add_member(context, request, group, member_id, answer)
        try:
            group.validate_member(member_id, request.group_instance_id)
        except KafkaError as error:
            refuse_join(answer, member_id, error.code)
            return nothing()
        member = group.members[member_id]
        unchanged = member.protocols == [(each.name, each.metadata) for each in request.protocols]
        if group.state == states.COMPLETING_REBALANCE and unchanged:
            # It may have missed the answer to its join: the same answer again.
            answer.complete(generation(group, member_id))
            return nothing()
        if group.state == states.STABLE and unchanged and group.leader_id != member_id:
            # Nothing new from a follower; a leader's join asks for a rebalance (its view of topics changed, say).
            answer.complete(generation(group, member_id, with_members=False))
            return nothing()
        if group.state == states.EMPTY:
            refuse_join(answer, member_id, ErrorCode.UNKNOWN_MEMBER_ID)
            return nothing()
        group.update_member(
            member,
            [(each.name, each.metadata) for each in request.protocols],
            request.rebalance_timeout_ms,
            request.session_timeout_ms,
            answer,
        )
        return self._prepare_or_complete(group)

    def _add_member(
        self,
        context: MemberContext,
        request: JoinGroupRequest,
        group: ClassicGroup,
        member_id: str,
        answer: Deferred[JoinGroupResponse],
    ) -> Result[None]:
        member = ClassicGroupMember(
            member_id,
            group_instance_id=request.group_instance_id,
            client_id=context.client_id,
            client_host=context.client_host,
            rebalance_timeout_ms=request.rebalance_timeout_ms,
            session_timeout_ms=request.session_timeout_ms,
            protocol_type=request.protocol_type,
            protocols=[(each.name, each.metadata) for each in request.protocols],
        )
        member.is_new = True
        if group.state == states.PREPARING_REBALANCE and group.previous_state == states.EMPTY:
            group.new_member_added = True  # the initial rebalance waits a little longer
        group.add(member, answer)
        # A member that waits for its first answer sends no heartbeats; should it be gone, its retries would pile up.
        self._schedule_heartbeat(group, member_id, NEW_MEMBER_JOIN_TIMEOUT_MS)
        return self._prepare_or_complete(group)

    def _replace_static_member(
        self,
        context: MemberContext,
        request: JoinGroupRequest,
        group: ClassicGroup,
        old_member_id: str,
        member_id: str,
        answer: Deferred[JoinGroupResponse],
    ) -> Result[None]:
        """A static member restarted. In a stable group that changes nothing else, it simply goes on (KIP-345)."""
        instance_id = request.group_instance_id
        assert instance_id is not None
        old_leader = group.leader_id
        member = group.replace_static_member(instance_id, old_member_id, member_id)
        # The old id's heartbeat timer finds nobody when it fires.
        self._schedule_heartbeat(group, member_id, member.session_timeout_ms)
        before = (member.protocols, member.rebalance_timeout_ms, member.session_timeout_ms)
        protocols = [(each.name, each.metadata) for each in request.protocols]
        group.update_member(
            member, protocols, request.rebalance_timeout_ms, request.session_timeout_ms, answer
        )
        if group.state == states.COMPLETING_REBALANCE:
            # The leader may be assigning to the old id right now.
            return self.prepare_rebalance(group)
        if group.state != states.STABLE:
            return self._complete_if_all_joined(group)
        if group.select_protocol() != group.protocol_name:
            return self._prepare_or_complete(group)

        def appended(error: ErrorCode) -> None:
            if error is not ErrorCode.NONE:
                group.update_member(member, *before, None)
                back = group.replace_static_member(instance_id, member_id, old_member_id)
                self._schedule_heartbeat(group, old_member_id, back.session_timeout_ms)
                answer.complete(
                    generation(group, "", with_members=False, leader=old_leader, error=error)
                )
            elif context.api_version >= JOIN_SKIPS_ASSIGNMENT_VERSION:
                # KIP-814: a returning leader gets the members, but need not assign anew.
                response = generation(group, member_id)
                response.skip_assignment = group.leader_id == member_id
                group.complete_join(member, response)
            else:
                # Older clients must not take themselves for the leader: they would assign without members.
                response = generation(group, member_id, with_members=False, leader=old_leader)
                group.complete_join(member, response)

        assignment = {each.member_id: each.assignment for each in group.members.values()}
        record = group_metadata_record(group, assignment)
        return Result([record], None, on_append=appended, replay=False)

    # ---- phases

    def _prepare_or_complete(self, group: ClassicGroup) -> Result[None]:
        if group.can_rebalance:
            return self.prepare_rebalance(group)
        return self._complete_if_all_joined(group)

    def _complete_if_all_joined(self, group: ClassicGroup) -> Result[None]:
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
            self._propagate_assignment(group, ErrorCode.REBALANCE_IN_PROGRESS)
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
            self._schedule_heartbeat(group, member.member_id, member.session_timeout_ms)
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

    # ---- SyncGroup

    def sync(self, request: SyncGroupRequest, answer: Deferred[SyncGroupResponse]) -> Result[None]:
        """Parks the member until the leader's assignment is committed; in a stable group answers at once."""
        from kwire.protocol.schemas.groups import SyncGroupResponse

        group = self.groups.get(request.group_id)
        try:
            if group is None or group.state == states.EMPTY:
                raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
            self._validate_sync(group, request)
        except KafkaError as error:
            answer.complete(SyncGroupResponse(error_code=int(error.code)))
            return nothing()
        member = group.members[request.member_id]
        group.pending_sync_members.pop(member.member_id, None)
        if not group.pending_sync_members:
            self._timer.cancel(("sync", group.group_id))
        if group.state == states.STABLE:
            answer.complete(
                SyncGroupResponse(
                    protocol_type=group.protocol_type,
                    protocol_name=group.protocol_name,
                    assignment=member.assignment,
                )
            )
            return nothing()
        assert group.state == states.COMPLETING_REBALANCE
        member.awaiting_sync = answer
        if group.leader_id != member.member_id or group.writing_generation == group.generation_id:
            # A follower; or the leader repeats itself. (Kafka would write twice and might load the later assignment.)
            return nothing()
        given = {each.member_id: each.assignment for each in request.assignments}
        assignment = {member_id: given.get(member_id, b"") for member_id in group.members}
        return self._write_assignment(group, assignment)

    def _validate_sync(self, group: ClassicGroup, request: SyncGroupRequest) -> None:
        if group.state == states.DEAD:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        group.validate_member(request.member_id, request.group_instance_id)
        if request.generation_id != group.generation_id:
            raise KafkaError(ErrorCode.ILLEGAL_GENERATION)
        for said, known in (
            (request.protocol_type, group.protocol_type),
            (request.protocol_name, group.protocol_name),
        ):
            if said is not None and known is not None and said != known:
                raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        if group.state == states.PREPARING_REBALANCE:
            raise KafkaError(ErrorCode.REBALANCE_IN_PROGRESS)

    def _write_assignment(
        self, group: ClassicGroup, assignment: Mapping[str, bytes]
    ) -> Result[None]:
        generation_id = group.writing_generation = group.generation_id

        def appended(error: ErrorCode) -> None:
            if group.writing_generation == generation_id:
                group.writing_generation = -1
            # While the record was on its way the group may have gone on.
            if group.state != states.COMPLETING_REBALANCE or group.generation_id != generation_id:
                return
            if error is not ErrorCode.NONE:
                for member in group.members.values():
                    member.assignment = b""
                self._propagate_assignment(group, error)
                self._prepare_or_complete(group)
                return
            for member in group.members.values():
                member.assignment = assignment.get(member.member_id, b"")
            group.transition_to(states.STABLE)
            self._propagate_assignment(group, ErrorCode.NONE)

        record = group_metadata_record(group, assignment)
        return Result([record], None, on_append=appended, replay=False)

    def _propagate_assignment(self, group: ClassicGroup, error: ErrorCode) -> None:
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
                self._schedule_heartbeat(group, member.member_id, member.session_timeout_ms)

    # ---- Heartbeat

    def heartbeat(self, request: HeartbeatRequest) -> Result[HeartbeatResponse]:
        """Keeps the session; tells of a rebalance. Raises the error of the whole request."""
        from kwire.protocol.schemas.groups import HeartbeatResponse

        group = self.groups.get(request.group_id)
        if group is None:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
        if group.state == states.DEAD:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        group.validate_member(request.member_id, request.group_instance_id)
        if request.generation_id != group.generation_id:
            raise KafkaError(ErrorCode.ILLEGAL_GENERATION)
        assert group.state != states.EMPTY, "an empty group has no member"
        self.keep_session(group, request.member_id)
        rebalancing = group.state == states.PREPARING_REBALANCE
        error = ErrorCode.REBALANCE_IN_PROGRESS if rebalancing else ErrorCode.NONE
        return Result((), HeartbeatResponse(error_code=int(error)))

    def keep_session(self, group: ClassicGroup, member_id: str) -> None:
        """The member has shown that it lives."""
        member = group.members[member_id]
        self._schedule_heartbeat(group, member_id, member.session_timeout_ms)

    def _schedule_heartbeat(self, group: ClassicGroup, member_id: str, timeout_ms: int) -> None:
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
            self._fail_parked_join(group, member)
            group.remove(member_id)
            if group.state in (states.STABLE, states.COMPLETING_REBALANCE):
                return self._prepare_or_complete(group)
        if group.state == states.PREPARING_REBALANCE and group.has_all_members_joined:
            return self.complete_join(group)
        return nothing()

    def _fail_parked_join(self, group: ClassicGroup, member: ClassicGroupMember) -> None:
        # UNKNOWN_MEMBER_ID makes a consumer that is still there join anew.
        group.complete_join(member, join_error("", ErrorCode.UNKNOWN_MEMBER_ID))

    # ---- LeaveGroup

    def leave(self, request: LeaveGroupRequest) -> Result[LeaveGroupResponse]:
        """Takes members out, each with its own error, then rebalances once (KIP-345 batches). `members` is filled."""
        from kwire.protocol.schemas.groups import LeaveGroupResponse, MemberResponse

        group = self.groups.get(request.group_id)
        if group is None:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
        if group.state == states.DEAD:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        responses = []
        anyone = False
        for identity in request.members:
            error = ErrorCode.NONE
            try:
                self._leave_one(group, identity)
                anyone = True
            except KafkaError as refusal:
                error = refusal.code
            responses.append(
                MemberResponse(
                    member_id=identity.member_id,
                    group_instance_id=identity.group_instance_id,
                    error_code=int(error),
                )
            )
        result = nothing()
        if anyone and group.state in (states.STABLE, states.COMPLETING_REBALANCE):
            result = self._prepare_or_complete(group)
        elif anyone and group.state == states.PREPARING_REBALANCE:
            result = self._complete_if_all_joined(group)
        return Result(
            result.records,
            LeaveGroupResponse(members=responses),
            on_append=result.on_append,
            replay=result.replay,
        )

    def _leave_one(self, group: ClassicGroup, identity: MemberIdentity) -> None:
        member_id, instance_id = identity.member_id, identity.group_instance_id
        if not member_id:
            # An administrator removes a static member by its instance id alone.
            holder = None if instance_id is None else group.static_members.get(instance_id)
            if holder is None:
                raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
            member_id = holder
        elif member_id not in group.pending_join_members:
            group.validate_member(member_id, instance_id)
        self._timer.cancel(("heartbeat", group.group_id, member_id))
        member = group.members.get(member_id)
        if member is not None:
            self._fail_parked_join(group, member)
        group.remove(member_id)

    # ---- the shard's life

    def on_loaded(self) -> list[Result[None]]:
        """The log is replayed: sessions start to run, groups above the size limit rebalance."""
        results = []
        for group in list(self.groups.values()):
            for member in group.members.values():
                self._schedule_heartbeat(group, member.member_id, member.session_timeout_ms)
            if len(group.members) > self._config.group_max_size:
                results.append(self.prepare_rebalance(group))
        return results

    def on_unloaded(self) -> None:
        """Another broker coordinates these groups now: whoever waits is sent there."""
        from kwire.protocol.schemas.groups import SyncGroupResponse

        error = ErrorCode.NOT_COORDINATOR
        for group in self.groups.values():
            group.transition_to(states.DEAD)
            for member in list(group.members.values()):
                group.complete_join(member, join_error(member.member_id, error))
                group.complete_sync(member, SyncGroupResponse(error_code=int(error)))
