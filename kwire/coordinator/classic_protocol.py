"""Requests of the classic rebalance protocol: join, sync, heartbeat, leave.

Answers to the classic half of org.apache.kafka.coordinator.group.GroupMetadataManager of Kafka 3.9.
Join and sync requests are parked on the member (`Deferred`): joins until the join phase ends
(`classic_phases`), syncs until the record of the leader's assignment is committed. Members are soft
state: changed here, not by replay (`Result.replay` False).
"""

from __future__ import annotations

from kwire.coordinator import classic_group as states
from kwire.coordinator.classic_answers import generation, join_error, new_member_id, refuse_join
from kwire.coordinator.classic_group import ClassicGroup, ClassicGroupMember
from kwire.coordinator.classic_phases import ClassicPhases
from kwire.coordinator.config import NEW_MEMBER_JOIN_TIMEOUT_MS
from kwire.coordinator.group_events import describe_leaving
from kwire.coordinator.group_records import empty_group_metadata_record, group_metadata_record
from kwire.protocol.errors import ErrorCode, KafkaError
from kwire.shards.result import Deferred, Result, nothing

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from kwire.coordinator.member_context import MemberContext
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

JOIN_REQUIRES_MEMBER_ID_VERSION = 4
JOIN_SKIPS_ASSIGNMENT_VERSION = 9


class ClassicProtocol(ClassicPhases):
    """The groups of one shard and their requests."""

    __slots__ = ()

    # --- JoinGroup

    def join(
        self,
        context: MemberContext,
        request: JoinGroupRequest,
        answer: Deferred[JoinGroupResponse],
    ) -> Result[None]:
        """Join a group: answer or park; a join without member id creates a missing group."""
        group_id, member_id = request.group_id, request.member_id
        is_new_group = group_id not in self.groups
        if is_new_group and member_id:
            refuse_join(answer, member_id, ErrorCode.UNKNOWN_MEMBER_ID)
            return nothing()
        group = self.find_or_create_group(group_id)
        if not self._has_room_for(group, member_id):
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
        """Write a new group's first record; if that fails the group is dropped."""

        def on_append(error: ErrorCode) -> None:
            if error is not ErrorCode.NONE:
                self.groups.pop(group.group_id, None)
                for member in group.members.values():
                    group.complete_join(member, join_error(member.member_id, error))
                refuse_join(answer, "", error)

        record = empty_group_metadata_record(group)
        return Result([record], None, on_append=on_append, replay=False)

    def _has_room_for(self, group: ClassicGroup, member_id: str) -> bool:
        """Whether group.max.size allows the member; current members are always allowed."""
        if group.state in (states.EMPTY, states.DEAD):
            return True
        member = group.members.get(member_id)
        if group.state == states.PREPARING_REBALANCE:
            # As in Kafka, members with a parked join count: a group above a lowered limit shrinks.
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
        # KIP-394: the client gets an id first, so that a retried join does not add a second member.
        group.pending_join_members[member_id] = None
        self.schedule_heartbeat(group, member_id, request.session_timeout_ms)
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
            # As in Kafka: it may have missed the response to its join, so it gets the same again.
            answer.complete(generation(group, member_id))
            return nothing()
        if group.state == states.STABLE and unchanged and group.leader_id != member_id:
            # Only the leader's rejoin starts a rebalance (topics changed, say).
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
        return self.prepare_or_complete(group, "member_rejoined", f"{member_id} joins again")

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
            group.new_member_added = True  # extends the initial rebalance delay
        group.add(member, answer)
        # As in Kafka: a parked first join sends no heartbeats, but a dead client must expire.
        self.schedule_heartbeat(group, member_id, NEW_MEMBER_JOIN_TIMEOUT_MS)
        return self.prepare_or_complete(group, "member_joined", f"{member_id} joins")

    def _replace_static_member(
        self,
        context: MemberContext,
        request: JoinGroupRequest,
        group: ClassicGroup,
        old_member_id: str,
        member_id: str,
        answer: Deferred[JoinGroupResponse],
    ) -> Result[None]:
        """Rejoin a restarted static member; a stable group need not rebalance for it (KIP-345)."""
        instance_id = request.group_instance_id
        assert instance_id is not None
        old_leader = group.leader_id
        member = group.replace_static_member(instance_id, old_member_id, member_id)
        # The old id's heartbeat timer finds no member when it fires.
        self.schedule_heartbeat(group, member_id, member.session_timeout_ms)
        before = (member.protocols, member.rebalance_timeout_ms, member.session_timeout_ms)
        protocols = [(each.name, each.metadata) for each in request.protocols]
        group.update_member(
            member, protocols, request.rebalance_timeout_ms, request.session_timeout_ms, answer
        )
        if group.state == states.COMPLETING_REBALANCE:
            # The leader may be assigning partitions to the old id.
            return self.prepare_rebalance(group, "static_member_replaced", instance_id)
        if group.state != states.STABLE:
            return self.complete_if_all_joined(group)
        if group.select_protocol() != group.protocol_name:
            return self.prepare_or_complete(group, "static_member_replaced", instance_id)

        def on_append(error: ErrorCode) -> None:
            if error is not ErrorCode.NONE:
                if group.members.get(member_id) is member:  # not left, or returned again, meanwhile
                    group.update_member(member, *before, None)
                    back = group.replace_static_member(instance_id, member_id, old_member_id)
                    self.schedule_heartbeat(group, old_member_id, back.session_timeout_ms)
                refusal = generation(group, "", with_members=False, leader=old_leader, error=error)
                answer.complete(refusal)
            elif context.api_version >= JOIN_SKIPS_ASSIGNMENT_VERSION:
                # KIP-814: a returning leader gets the members, but skips the assignment.
                response = generation(group, member_id)
                response.skip_assignment = group.leader_id == member_id
                self.answer_join(group, member, response)
            else:
                # Older clients must not become leader: they would assign without members.
                response = generation(group, member_id, with_members=False, leader=old_leader)
                self.answer_join(group, member, response)

        assignment = {each.member_id: each.assignment for each in group.members.values()}
        record = group_metadata_record(group, assignment)
        return Result([record], None, on_append=on_append, replay=False)

    # --- SyncGroup

    def sync(self, request: SyncGroupRequest, answer: Deferred[SyncGroupResponse]) -> Result[None]:
        """Park until the leader's assignment is committed; answer immediately in a stable group."""
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
            # A follower, or a retry of the leader. (Kafka writes twice and may load the later one.)
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

        def on_append(error: ErrorCode) -> None:
            if group.writing_generation == generation_id:
                group.writing_generation = -1
            # The group may have changed before the record was committed.
            if group.state != states.COMPLETING_REBALANCE or group.generation_id != generation_id:
                return
            if error is not ErrorCode.NONE:
                for member in group.members.values():
                    member.assignment = b""
                self.propagate_assignment(group, error)
                self.prepare_or_complete(group, "assignment_failed", f"not written: {error.name}")
                return
            for member in group.members.values():
                member.assignment = assignment.get(member.member_id, b"")
            self.complete_sync(group)

        record = group_metadata_record(group, assignment)
        return Result([record], None, on_append=on_append, replay=False)

    # --- Heartbeat

    def heartbeat(self, request: HeartbeatRequest) -> Result[HeartbeatResponse]:
        """Renew the session; REBALANCE_IN_PROGRESS in a join phase. Raises KafkaError."""
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
        self.renew_session(group, request.member_id)
        rebalancing = group.state == states.PREPARING_REBALANCE
        error = ErrorCode.REBALANCE_IN_PROGRESS if rebalancing else ErrorCode.NONE
        return Result((), HeartbeatResponse(error_code=int(error)))

    # --- LeaveGroup

    def leave(self, request: LeaveGroupRequest) -> Result[LeaveGroupResponse]:
        """Remove members, each with its own error, then rebalance once (KIP-345)."""
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
        result, left = nothing(), describe_leaving(request.members)
        if anyone and group.state in (states.STABLE, states.COMPLETING_REBALANCE):
            result = self.prepare_or_complete(group, "member_left", left)
        elif anyone and group.state == states.PREPARING_REBALANCE:
            result = self.complete_if_all_joined(group)
        return Result(
            result.records,
            LeaveGroupResponse(members=responses),
            on_append=result.on_append,
            replay=result.replay,
        )

    def _leave_one(self, group: ClassicGroup, identity: MemberIdentity) -> None:
        member_id, instance_id = identity.member_id, identity.group_instance_id
        if not member_id:
            # An admin client removes a static member by its instance id only.
            holder = None if instance_id is None else group.static_members.get(instance_id)
            if holder is None:
                raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
            member_id = holder
        elif member_id not in group.pending_join_members:
            group.validate_member(member_id, instance_id)
        self._timer.cancel(("heartbeat", group.group_id, member_id))
        member = group.members.get(member_id)
        if member is not None:
            self.fail_parked_join(group, member)
        group.remove(member_id)

    # --- the shard's life

    def on_loaded(self) -> list[Result[None]]:
        """Start sessions after the log is loaded; rebalance groups above the size limit."""
        results = []
        for group in list(self.groups.values()):
            for member in group.members.values():
                self.schedule_heartbeat(group, member.member_id, member.session_timeout_ms)
            if len(group.members) > self._config.group_max_size:
                results.append(self.prepare_rebalance(group, "group_max_size", "too many members"))
        return results

    def on_unloaded(self) -> None:
        """Answer parked requests with NOT_COORDINATOR: another broker coordinates now."""
        from kwire.protocol.schemas.groups import SyncGroupResponse

        error = ErrorCode.NOT_COORDINATOR
        for group in self.groups.values():
            group.transition_to(states.DEAD)
            for member in list(group.members.values()):
                group.complete_join(member, join_error(member.member_id, error))
                group.complete_sync(member, SyncGroupResponse(error_code=int(error)))
