"""The groups and offsets of one partition of `__consumer_offsets`: requests and record replay.

Answers to org.apache.kafka.coordinator.group.GroupCoordinatorShard of Kafka 3.9. Handlers read
state and return `Result(records, response)`; only `replay` changes offsets and the existence of
groups. The members of classic groups are soft state and live in `classic_protocol`. Left out:
ConsumerGroupHeartbeat (KIP-848) would be a second protocol beside `classic`, with groups in the
same shard; TxnOffsetCommit a method beside `commit_offsets`. And Kafka's snapshots of groups: list
and describe show the current group, not its state below the high watermark (offsets do, see
`offsets`).
"""

from __future__ import annotations

from kwire.coordinator import classic_group as states
from kwire.coordinator.classic_group import ClassicGroup, ClassicGroupMember
from kwire.coordinator.classic_protocol import ClassicProtocol
from kwire.coordinator.group_records import (
    GROUP_METADATA,
    CoordinatorRecord,
    group_metadata_tombstone,
)
from kwire.coordinator.offsets import FetchedTopic, OffsetManager, not_found, require_group
from kwire.protocol.errors import ErrorCode, KafkaError
from kwire.replication.core.events import ignore
from kwire.shards.result import Result

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from random import Random
    from typing import Any

    from kwire.coordinator.config import GroupConfig
    from kwire.coordinator.member_context import MemberContext
    from kwire.protocol.schemas.groups import (
        DeletableGroupResult,
        DescribedGroup,
        HeartbeatRequest,
        HeartbeatResponse,
        JoinGroupRequest,
        JoinGroupResponse,
        LeaveGroupRequest,
        LeaveGroupResponse,
        ListedGroup,
        SyncGroupRequest,
        SyncGroupResponse,
    )
    from kwire.protocol.schemas.offsets import (
        OffsetCommitRequest,
        OffsetCommitResponse,
        OffsetDeleteRequest,
        OffsetDeleteResponse,
    )
    from kwire.replication.core.clock import Clock
    from kwire.replication.core.events import LogEvent
    from kwire.shards.kind import ShardRecord
    from kwire.shards.result import CoordinatorTimer, Deferred

CLASSIC_GROUP_TYPE = "classic"
OFFSET_COMMIT_NAMES_MISSING_GROUP_VERSION = 9


class GroupShard:
    """All groups of one partition. Handlers raise KafkaError for an error of the whole request."""

    __slots__ = ("_clock", "_config", "_timer", "classic", "offsets")

    def __init__(
        self,
        config: GroupConfig,
        clock: Clock,
        timer: CoordinatorTimer,
        random: Random,
        log_event: LogEvent = ignore,
    ) -> None:
        self._config = config
        self._clock = clock
        self._timer = timer
        self.classic = ClassicProtocol(config, clock, timer, random, log_event)
        self.offsets = OffsetManager(config, clock, self.classic.find_group)

    # --- membership

    def join_group(
        self,
        context: MemberContext,
        request: JoinGroupRequest,
        answer: Deferred[JoinGroupResponse],
    ) -> Result[None]:
        return self.classic.join(context, request, answer)

    def sync_group(
        self, request: SyncGroupRequest, answer: Deferred[SyncGroupResponse]
    ) -> Result[None]:
        return self.classic.sync(request, answer)

    def heartbeat(self, request: HeartbeatRequest) -> Result[HeartbeatResponse]:
        return self.classic.heartbeat(request)

    def leave_group(self, request: LeaveGroupRequest) -> Result[LeaveGroupResponse]:
        return self.classic.leave(request)

    # --- offsets

    def commit_offsets(
        self, request: OffsetCommitRequest, api_version: int
    ) -> Result[OffsetCommitResponse]:
        """Commit offsets of a member, or with generation -1 in a group without members."""
        generation_id = request.generation_id_or_member_epoch
        group = self.classic.find_group(request.group_id)
        if group is None:
            if generation_id >= 0:
                # KIP-848 gave a missing group its own error; older clients know only the other.
                missing = api_version >= OFFSET_COMMIT_NAMES_MISSING_GROUP_VERSION
                raise KafkaError(
                    ErrorCode.GROUP_ID_NOT_FOUND if missing else ErrorCode.ILLEGAL_GENERATION
                )
        else:
            group.validate_offset_commit(
                request.member_id, request.group_instance_id, generation_id
            )
            if group.state in (states.STABLE, states.PREPARING_REBALANCE):
                self.classic.renew_session(group, request.member_id)
        return self.offsets.commit(request)

    def fetch_offsets(
        self,
        group_id: str,
        topics: Iterable[tuple[str, Iterable[int]]] | None,
        require_stable: bool,
    ) -> list[FetchedTopic]:
        """Read offsets; `topics` None: all. Unknown groups and partitions have none."""
        return self.offsets.fetch(group_id, topics, require_stable)

    def delete_offsets(self, request: OffsetDeleteRequest) -> Result[OffsetDeleteResponse]:
        group = require_group(self.classic.find_group(request.group_id), request.group_id)
        group.validate_offset_delete()
        result = self.offsets.delete(group, request)
        records = [*result.records, *self._tombstones_of_ended([group], result.records)]
        return Result(records, result.response)

    # --- groups

    def delete_groups(self, group_ids: Iterable[str]) -> Result[list[DeletableGroupResult]]:
        """Delete empty groups with all their offsets."""
        from kwire.protocol.schemas.groups import DeletableGroupResult

        records: list[CoordinatorRecord] = []
        results = []
        for group_id in group_ids:
            result = DeletableGroupResult(group_id=group_id)
            try:
                require_group(self.classic.find_group(group_id), group_id).validate_delete_group()
            except KafkaError as error:
                result.error_code = int(error.code)
                result.error_message = error.message
            else:
                records += self.offsets.delete_all(group_id)
                records.append(group_metadata_tombstone(group_id))
            results.append(result)
        return Result(records, results)

    def list_groups(self, states_filter: set[str], types_filter: set[str]) -> list[ListedGroup]:
        """List groups; filters are lower case, an empty one matches everything."""
        from kwire.protocol.schemas.groups import ListedGroup

        if types_filter and CLASSIC_GROUP_TYPE not in types_filter:
            return []
        return [
            ListedGroup(
                group_id=group.group_id,
                protocol_type=group.protocol_type or "",
                group_state=group.state,
                group_type=CLASSIC_GROUP_TYPE,
            )
            for group in self.classic.groups.values()
            if not states_filter or group.state.lower() in states_filter
        ]

    def describe_group(self, group_id: str, api_version: int) -> DescribedGroup:
        """Describe a group; subscriptions only in Stable. Unknown: Dead (from v6 an error)."""
        from kwire.protocol.schemas.groups import DescribedGroup, DescribedGroupMember

        group = self.classic.find_group(group_id)
        if group is None:
            described = DescribedGroup(group_id=group_id, group_state=states.DEAD)
            if api_version >= 6:
                described.error_code = int(ErrorCode.GROUP_ID_NOT_FOUND)
                described.error_message = not_found(group_id)
            return described
        stable = group.state == states.STABLE
        return DescribedGroup(
            group_id=group_id,
            group_state=group.state,
            protocol_type=group.protocol_type or "",
            protocol_data=(group.protocol_name or "") if stable else "",
            members=[
                DescribedGroupMember(
                    member_id=member.member_id,
                    group_instance_id=member.group_instance_id,
                    client_id=member.client_id,
                    client_host=member.client_host,
                    member_metadata=member.metadata(group.protocol_name) if stable else b"",
                    member_assignment=member.assignment,
                )
                for member in group.members.values()
            ],
        )

    # --- housekeeping

    def on_partitions_deleted(self, deleted: Iterable[tuple[str, int]]) -> Result[None]:
        """Delete the committed offsets of deleted partitions, and groups that have none left."""
        records = self.offsets.on_partitions_deleted(deleted)
        records += self._tombstones_of_ended(self.classic.groups.values(), records)
        return Result(records, None, atomic=False)

    def _tombstones_of_ended(
        self, groups: Iterable[ClassicGroup], deletions: Iterable[ShardRecord]
    ) -> list[CoordinatorRecord]:
        """Tombstones of the empty groups that have no offsets after these deletions.

        Kafka's default coordinator ends them at once (GroupMetadataManager.cleanupGroupMetadata),
        those that never had an offset, too; its new one with its next cleanup."""
        keys: list[Any] = [record.key for record in deletions]
        deleted = {(key.group, key.topic, key.partition) for key in keys}
        offsets = self.offsets
        return [
            group_metadata_tombstone(group_id)
            for group_id, group in ((group.group_id, group) for group in groups)
            if group.state == states.EMPTY
            and not group.pending_join_members
            and not offsets.in_transaction(group_id)
            and all((group_id, t, i) in deleted for t, i, _ in offsets.store.iterate(group_id))
        ]

    def cleanup(self) -> Result[None]:
        """Delete expired offsets, and groups without offsets and members; schedule the next."""
        records: list[CoordinatorRecord] = []
        for group in self.classic.groups.values():
            all_expired = self.offsets.cleanup_expired(group, records)
            # Unlike in Kafka a pending member keeps the group, so that its join finds it.
            if all_expired and group.state == states.EMPTY and not group.pending_join_members:
                records.append(group_metadata_tombstone(group.group_id))
        self._schedule_cleanup()
        return Result(records, None, atomic=False)

    def _schedule_cleanup(self) -> None:
        interval_ms = self._config.offsets_retention_check_interval_ms
        self._timer.schedule(("expire-group-metadata",), interval_ms, self.cleanup)

    # --- hard state

    def replay(self, offset: int, producer_id: int, record: CoordinatorRecord) -> None:
        """Apply a record at `offset` of the log, loaded or just appended."""
        key: Any = record.key
        value: Any = record.value
        if record.record_type == GROUP_METADATA:
            self._replay_group(key.group, value)
            return
        if value is not None:
            # An offset of an unknown group creates it: a simple consumer's.
            self.classic.find_or_create_group(key.group)
        self.offsets.replay(offset, producer_id, key, value)

    def _replay_group(self, group_id: str, value: Any) -> None:
        if value is None:
            self.classic.groups.pop(group_id, None)
            return
        protocol_type = value.protocol_type or None
        group = ClassicGroup(
            group_id,
            self._clock,
            state=states.STABLE if value.members else states.EMPTY,
            generation_id=value.generation,
            protocol_type=protocol_type,
            protocol_name=value.protocol,
            leader_id=value.leader,
        )
        timestamp_ms = value.current_state_timestamp
        group.current_state_timestamp_ms = None if timestamp_ms == -1 else timestamp_ms
        for each in value.members:
            # Version 0 has no rebalance timeout: the session timeout was both.
            rebalance_ms = each.rebalance_timeout
            group.add(
                ClassicGroupMember(
                    each.member_id,
                    group_instance_id=each.group_instance_id,
                    client_id=each.client_id,
                    client_host=each.client_host,
                    rebalance_timeout_ms=each.session_timeout
                    if rebalance_ms == -1
                    else rebalance_ms,
                    session_timeout_ms=each.session_timeout,
                    protocol_type=value.protocol_type,
                    protocols=[(value.protocol or "", each.subscription)],
                    assignment=each.assignment,
                )
            )
        group.subscribed_topics = group.compute_subscribed_topics()
        self.classic.groups[group_id] = group

    def replay_end_transaction(self, offset: int, producer_id: int, committed: bool) -> None:
        """Apply a transaction marker at `offset` of the log, loaded or just appended."""
        self.offsets.replay_end_transaction(offset, producer_id, committed)

    def advance(self, high_watermark: int) -> None:
        """Mark records below `high_watermark` as committed."""
        self.offsets.store.advance(high_watermark)

    def on_loaded(self) -> list[Result[None]]:
        """Start timers after the log is loaded."""
        self._schedule_cleanup()
        return self.classic.on_loaded()

    def on_unloaded(self) -> None:
        """Answer parked requests: this broker lost the leadership. The runtime cancels timers."""
        self.classic.on_unloaded()
