"""The group coordinator: maps a group to its partition and passes requests to the shard.

Answers to org.apache.kafka.coordinator.group.GroupCoordinatorService. Requests of the classic
protocol refuse an empty group id; commits and fetches of offsets, describe and delete accept it, as
Kafka does for old clients' sake. Each `reply` callback is called once, in the same step or a later
one.
"""

from __future__ import annotations

from typing import TypeVar

from kwire.coordinator.config import OFFSETS_TOPIC, GroupConfig
from kwire.protocol.errors import ErrorCode, KafkaError
from kwire.replication.core.events import Event, ignore
from kwire.shards.runtime import CoordinatorRuntime

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from random import Random

    from kwire.coordinator.group_records import CoordinatorRecord
    from kwire.coordinator.group_shard import GroupShard
    from kwire.coordinator.member_context import MemberContext
    from kwire.coordinator.offsets import FetchedTopic
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
    from kwire.replication.config.broker_config import BrokerConfig
    from kwire.replication.core.clock import Clock, Timers
    from kwire.replication.core.events import LogEvent
    from kwire.replication.core.metadata import MetadataCache
    from kwire.replication.core.work import WorkQueue
    from kwire.replication.replica.manager import ReplicaManager
    from kwire.replication.replica.partition import Partition
    from kwire.shards.result import CoordinatorTimer, Deferred, Result

T = TypeVar("T")


def java_hash_code(text: str) -> int:
    """String.hashCode of Java, over UTF-16 units, as a signed 32-bit number."""
    value = 0
    if text.isascii():
        for unit in text.encode():
            value = (value * 31 + unit) & 0xFFFFFFFF
    else:
        data = text.encode("utf-16-be", "surrogatepass")
        for position in range(0, len(data), 2):
            unit = data[position] << 8 | data[position + 1]
            value = (value * 31 + unit) & 0xFFFFFFFF
    return value - 0x100000000 if value & 0x80000000 else value


def partition_for(group_id: str, partition_count: int) -> int:
    """The partition of `__consumer_offsets` that keeps the group (Utils.abs: the smallest int
    counts as 0)."""
    code = java_hash_code(group_id)
    return (0 if code == -0x80000000 else abs(code)) % partition_count


class GroupShards:
    """The kind of shard that keeps groups: a ShardKind."""

    __slots__ = ("_clock", "_log_event", "_random", "config", "unreadable")

    timer_prefix = "group-coordinator"

    def __init__(
        self, config: GroupConfig, clock: Clock, random: Random, log_event: LogEvent = ignore
    ) -> None:
        self.config = config
        self._clock = clock
        self._random = random
        self._log_event = log_event
        self.unreadable = Event.GROUPS_UNREADABLE

    @property
    def compression(self) -> str:
        return self.config.offsets_topic_compression

    @property
    def append_timeout_ms(self) -> int:
        return self.config.offsets_commit_timeout_ms

    def make(self, timer: CoordinatorTimer, partition: Partition) -> GroupShard:
        from kwire.coordinator.group_shard import GroupShard

        return GroupShard(self.config, self._clock, timer, self._random, self._log_event)

    def decode(
        self, key: bytes | memoryview, value: bytes | memoryview | None
    ) -> CoordinatorRecord | None:
        from kwire.coordinator.group_records import decode_record

        return decode_record(key, value)


class GroupCoordinator:
    """The group coordinator of one broker; the ReplicaManager reports the partitions it leads."""

    __slots__ = ("_metadata", "config", "runtime")

    def __init__(
        self,
        config: BrokerConfig,
        clock: Clock,
        timers: Timers,
        random: Random,
        metadata: MetadataCache,
        replica_manager: ReplicaManager,
        work: WorkQueue,
    ) -> None:
        self.config = GroupConfig.from_broker(config)
        self._metadata = metadata
        kind = GroupShards(self.config, clock, random, replica_manager.log_event)
        self.runtime: CoordinatorRuntime[GroupShard] = CoordinatorRuntime(
            kind, clock, timers, replica_manager, work, replica_manager.log_event
        )
        replica_manager.role_listeners.append(self.role_changed)
        replica_manager.deletion_listeners.append(self.on_partitions_deleted)

    def role_changed(self, partition: Partition, leads: bool) -> None:
        """A ReplicaManager.role_listeners callback."""
        if partition.topic == OFFSETS_TOPIC:
            self.runtime.role_changed(partition, leads)

    def partition_for(self, group_id: str) -> int:
        """The partition of `__consumer_offsets` that keeps the group."""
        count = self._metadata.partition_count(OFFSETS_TOPIC)
        return partition_for(group_id, count or self.config.offsets_topic_num_partitions)

    # --- membership

    def join_group(
        self,
        context: MemberContext,
        request: JoinGroupRequest,
        reply: Callable[[JoinGroupResponse], None],
    ) -> None:
        from kwire.coordinator.classic_answers import join_error

        error = ErrorCode.NONE
        if not request.group_id:
            error = ErrorCode.INVALID_GROUP_ID
        elif not (
            self.config.group_min_session_timeout_ms
            <= request.session_timeout_ms
            <= self.config.group_max_session_timeout_ms
        ):
            error = ErrorCode.INVALID_SESSION_TIMEOUT
        if error is not ErrorCode.NONE:
            reply(join_error(request.member_id, error))
            return
        answer = self.runtime.deferred(reply)
        self.runtime.write(
            self.partition_for(request.group_id),
            lambda shard: shard.join_group(context, request, answer),
            _ignore,
            lambda error: _complete(answer, join_error("", error)),
        )

    def sync_group(
        self, request: SyncGroupRequest, reply: Callable[[SyncGroupResponse], None]
    ) -> None:
        from kwire.protocol.schemas.groups import SyncGroupResponse

        if not request.group_id:
            reply(SyncGroupResponse(error_code=int(ErrorCode.INVALID_GROUP_ID)))
            return
        answer = self.runtime.deferred(reply)
        self.runtime.write(
            self.partition_for(request.group_id),
            lambda shard: shard.sync_group(request, answer),
            _ignore,
            lambda error: _complete(answer, SyncGroupResponse(error_code=int(error))),
        )

    def heartbeat(
        self, request: HeartbeatRequest, reply: Callable[[HeartbeatResponse], None]
    ) -> None:
        from kwire.protocol.schemas.groups import HeartbeatResponse

        self._write(
            request.group_id,
            lambda shard: shard.heartbeat(request),
            reply,
            lambda error: HeartbeatResponse(error_code=int(error)),
        )

    def leave_group(
        self, request: LeaveGroupRequest, reply: Callable[[LeaveGroupResponse], None]
    ) -> None:
        """Remove `request.members`, filled in as from version 3 on."""
        from kwire.protocol.schemas.groups import LeaveGroupResponse, MemberResponse

        def failed(error: ErrorCode) -> LeaveGroupResponse:
            if error is not ErrorCode.UNKNOWN_MEMBER_ID:
                return LeaveGroupResponse(error_code=int(error))
            # As in Kafka: in an unknown group every member is unknown.
            return LeaveGroupResponse(
                members=[
                    MemberResponse(
                        member_id=member.member_id,
                        group_instance_id=member.group_instance_id,
                        error_code=int(error),
                    )
                    for member in request.members
                ]
            )

        self._write(request.group_id, lambda shard: shard.leave_group(request), reply, failed)

    # --- offsets

    def commit_offsets(
        self,
        request: OffsetCommitRequest,
        api_version: int,
        reply: Callable[[OffsetCommitResponse], None],
        fail: Callable[[ErrorCode], None],
    ) -> None:
        """Commit offsets of existing topics, by name. `fail` gets the error of all partitions."""
        self.runtime.write(
            self.partition_for(request.group_id),
            lambda shard: shard.commit_offsets(request, api_version),
            reply,
            fail,
        )

    def fetch_offsets(
        self,
        group_id: str,
        topics: Iterable[tuple[str, Iterable[int]]] | None,
        require_stable: bool,
        reply: Callable[[list[FetchedTopic]], None],
        fail: Callable[[ErrorCode], None],
    ) -> None:
        """Read committed offsets; `topics` None: all of the group's.

        `require_stable`: the newest ones, once they are committed; an error for offsets in an open
        transaction (KIP-447)."""
        index = self.partition_for(group_id)

        def read(shard: GroupShard) -> list[FetchedTopic]:
            return shard.fetch_offsets(group_id, topics, require_stable)

        if require_stable:
            from kwire.shards.result import Result

            # Read now, answered later: by then a marker may be written that is not committed yet.
            self.runtime.write(index, lambda shard: Result((), read(shard)), reply, fail)
            return
        try:
            answer = self.runtime.read(index, read)
        except KafkaError as error:
            fail(error.code)
        else:
            reply(answer)

    def delete_offsets(
        self, request: OffsetDeleteRequest, reply: Callable[[OffsetDeleteResponse], None]
    ) -> None:
        from kwire.protocol.schemas.offsets import OffsetDeleteResponse

        self._write(
            request.group_id,
            lambda shard: shard.delete_offsets(request),
            reply,
            lambda error: OffsetDeleteResponse(error_code=int(error)),
        )

    # --- groups

    def list_groups(
        self, states_filter: Iterable[str], types_filter: Iterable[str]
    ) -> Iterator[list[ListedGroup]]:
        """List the groups that this broker coordinates, by partition; filters ignore case.

        KafkaError(COORDINATOR_LOAD_IN_PROGRESS)."""
        states = {name.strip().lower() for name in states_filter}
        types = {name.strip().lower() for name in types_filter}
        for index in sorted(self.runtime.contexts):
            if index in self.runtime.contexts:
                yield self.runtime.read(index, lambda shard: shard.list_groups(states, types))

    def describe_group(self, group_id: str, api_version: int) -> DescribedGroup:
        """Describe a group; with an error code if this broker is not its coordinator."""
        from kwire.protocol.schemas.groups import DescribedGroup

        try:
            return self.runtime.read(
                self.partition_for(group_id),
                lambda shard: shard.describe_group(group_id, api_version),
            )
        except KafkaError as error:
            return DescribedGroup(group_id=group_id, error_code=int(error.code))

    def delete_groups(
        self, group_ids: Iterable[str], reply: Callable[[list[DeletableGroupResult]], None]
    ) -> None:
        """Delete groups, those of one partition in one write; one result per group."""
        from kwire.protocol.schemas.groups import DeletableGroupResult

        by_partition: dict[int, list[str]] = {}
        for group_id in dict.fromkeys(group_ids):
            by_partition.setdefault(self.partition_for(group_id), []).append(group_id)
        if not by_partition:
            reply([])
            return
        results: list[DeletableGroupResult] = []
        waiting = len(by_partition)

        def add_results(more: list[DeletableGroupResult]) -> None:
            nonlocal waiting
            results.extend(more)
            waiting -= 1
            if not waiting:
                reply(results)

        def delete(index: int, ids: list[str]) -> None:
            self.runtime.write(
                index,
                lambda shard: shard.delete_groups(ids),
                add_results,
                lambda error: add_results(
                    [DeletableGroupResult(group_id=each, error_code=int(error)) for each in ids]
                ),
            )

        for index, ids in by_partition.items():
            delete(index, ids)

    def on_partitions_deleted(self, deleted: Iterable[tuple[str, int]]) -> None:
        """Delete the committed offsets of deleted topics."""
        gone = list(deleted)
        if gone and self.runtime.contexts:
            self.runtime.write_all(lambda shard: shard.on_partitions_deleted(gone))

    def _write(
        self,
        group_id: str,
        operation: Callable[[GroupShard], Result[T]],
        reply: Callable[[T], None],
        failed: Callable[[ErrorCode], T],
    ) -> None:
        if not group_id:
            reply(failed(ErrorCode.INVALID_GROUP_ID))
            return
        self.runtime.write(
            self.partition_for(group_id), operation, reply, lambda error: reply(failed(error))
        )


def _ignore(_: None) -> None:
    """Ignore the result: the member's Deferred carries the response."""


def _complete(answer: Deferred[T], response: T) -> None:
    answer.complete(response)
