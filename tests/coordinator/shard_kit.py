"""A shard without a log for tests: a timer driven by hand, a runtime that appends to a list."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

from event_recorder import Recorder
from virtual_time import advance

from kwire.coordinator.config import GroupConfig
from kwire.coordinator.group_records import CoordinatorRecord, decode_record
from kwire.coordinator.group_shard import GroupShard
from kwire.coordinator.member_context import MemberContext
from kwire.protocol.errors import ErrorCode, KafkaError
from kwire.protocol.schemas.consumer_protocol import ConsumerProtocolSubscription
from kwire.protocol.schemas.groups import (
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
    LeaveGroupRequest,
    MemberIdentity,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)
from kwire.protocol.schemas.offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kwire.replication.core.clock import Clock, Timers
from kwire.shards.result import Deferred, Result


def subscription(*topics: str) -> bytes:
    """A consumer's subscription blob, version 1."""
    return b"\x00\x01" + ConsumerProtocolSubscription(topics=list(topics)).encode(1)


class Box:
    """Keeps one response."""

    def __init__(self) -> None:
        self.values: list[Any] = []

    @property
    def value(self) -> Any:
        assert len(self.values) == 1, f"answered {len(self.values)} times"
        return self.values[0]

    @property
    def waits(self) -> bool:
        return not self.values

    @property
    def error(self) -> ErrorCode:
        return ErrorCode(self.value.error_code)


class ShardKit:
    """One shard under a virtual clock. Records are committed at once, or when `commit` is called if
    `hold` is set."""

    def __init__(self, **config: Any) -> None:
        self.config = GroupConfig(**config)
        self.clock = Clock(now_ms=1_000, wall_ms=1_700_000_000_000)
        self.timers = Timers()
        self.recorder = Recorder()
        self.shard = GroupShard(self.config, self.clock, self, Random(7), self.recorder)
        self.log: list[CoordinatorRecord] = []
        self.hold = False
        self.fail_with: ErrorCode | None = None
        self._held: list[Callable[[], None]] = []
        self._waiting: list[Callable[[ErrorCode], None]] = []

    # the shard's timer

    def schedule(
        self, key: tuple[str, ...], delay_ms: int, operation: Callable[[], Result[None]]
    ) -> None:
        self.timers.schedule(key, self.clock.now_ms + delay_ms, lambda: self.append(operation()))

    def cancel(self, key: tuple[str, ...]) -> None:
        self.timers.cancel(key)

    def advance(self, delay_ms: int) -> None:
        """Advance the clock, firing each due timer in order."""
        advance(self.clock, self.timers, delay_ms)

    # the log

    def append(self, result: Result[Any]) -> Any:
        base = len(self.log)
        if self.fail_with is not None and result.records:
            if result.on_append is not None:
                result.on_append(self.fail_with)
            return None
        self.log.extend(result.records)
        if not self.hold:
            self.shard.advance(len(self.log))
        if result.replay:
            for index, record in enumerate(result.records):
                self.shard.replay(base + index, -1, record)

        def committed() -> None:
            self.shard.advance(len(self.log))
            if result.records and result.on_append is not None:
                result.on_append(ErrorCode.NONE)

        if self.hold:
            self._held.append(committed)
            if result.records and result.on_append is not None:
                self._waiting.append(result.on_append)
        else:
            committed()
        return result.response

    def commit(self) -> None:
        """Commit all records: the high watermark reaches the log end."""
        self.hold = False
        held, self._held = self._held, []
        self._waiting.clear()
        for committed in held:
            committed()

    def fail(self, error: ErrorCode) -> None:
        """No record that is held is committed: leadership is lost, or time is up."""
        self._held.clear()
        waiting, self._waiting = self._waiting, []
        for on_append in waiting:
            on_append(error)

    def restart(self) -> ShardKit:
        """Replace the shard by a new one that has loaded the encoded log."""
        kit = ShardKit()
        kit.config, kit.clock = self.config, self.clock
        kit.shard = GroupShard(self.config, self.clock, kit, Random(8))
        kit.shard.advance(len(self.log))
        for offset, record in enumerate(self.log):
            decoded = decode_record(*record.encode())
            assert decoded is not None
            kit.shard.replay(offset, -1, decoded)
            kit.log.append(decoded)
        for result in kit.shard.on_loaded():
            kit.append(result)
        return kit

    # requests

    def join(
        self,
        member_id: str = "",
        *,
        group: str = "g",
        version: int = 9,
        client: str = "c",
        instance: str | None = None,
        protocols: dict[str, bytes] | None = None,
        protocol_type: str = "consumer",
        session_ms: int = 10_000,
        rebalance_ms: int = 60_000,
    ) -> Box:
        box = Box()
        blobs = {"range": subscription("t")} if protocols is None else protocols
        request = JoinGroupRequest(
            group_id=group,
            member_id=member_id,
            group_instance_id=instance,
            protocol_type=protocol_type,
            session_timeout_ms=session_ms,
            rebalance_timeout_ms=rebalance_ms,
            protocols=[
                JoinGroupRequestProtocol(name=name, metadata=blob) for name, blob in blobs.items()
            ],
        )
        context = MemberContext(version, client, "/127.0.0.1")
        answer: Deferred[JoinGroupResponse] = Deferred(box.values.append)
        self.append(self.shard.join_group(context, request, answer))
        return box

    def enter(self, **options: Any) -> tuple[str, Box]:
        """Join as a new dynamic member, in both steps: its id and the second response."""
        first = self.join(**options)
        assert first.error is ErrorCode.MEMBER_ID_REQUIRED
        member_id = first.value.member_id
        return member_id, self.join(member_id, **options)

    def sync(
        self,
        member_id: str,
        generation: int,
        assignments: dict[str, bytes] | None = None,
        *,
        group: str = "g",
        instance: str | None = None,
        protocol_type: str | None = None,
        protocol_name: str | None = None,
    ) -> Box:
        box = Box()
        request = SyncGroupRequest(
            group_id=group,
            member_id=member_id,
            generation_id=generation,
            group_instance_id=instance,
            protocol_type=protocol_type,
            protocol_name=protocol_name,
            assignments=[
                SyncGroupRequestAssignment(member_id=name, assignment=blob)
                for name, blob in (assignments or {}).items()
            ],
        )
        answer: Deferred[SyncGroupResponse] = Deferred(box.values.append)
        self.append(self.shard.sync_group(request, answer))
        return box

    def heartbeat(
        self, member_id: str, generation: int, *, group: str = "g", instance: str | None = None
    ) -> ErrorCode:
        request = HeartbeatRequest(
            group_id=group,
            member_id=member_id,
            generation_id=generation,
            group_instance_id=instance,
        )
        try:
            return ErrorCode(self.append(self.shard.heartbeat(request)).error_code)
        except KafkaError as error:
            return error.code

    def leave(self, *members: tuple[str, str | None], group: str = "g") -> list[ErrorCode]:
        request = LeaveGroupRequest(
            group_id=group,
            members=[
                MemberIdentity(member_id=name, group_instance_id=instance)
                for name, instance in members
            ],
        )
        response = self.append(self.shard.leave_group(request))
        if response is None:
            return []
        return [ErrorCode(member.error_code) for member in response.members]

    def commit_offset(
        self,
        offset: int,
        *,
        group: str = "g",
        member_id: str = "",
        generation: int = -1,
        topic: str = "t",
        partition: int = 0,
        metadata: str | None = "",
        leader_epoch: int = -1,
        retention_ms: int = -1,
        instance: str | None = None,
        version: int = 8,
    ) -> ErrorCode:
        request = OffsetCommitRequest(
            group_id=group,
            member_id=member_id,
            generation_id_or_member_epoch=generation,
            group_instance_id=instance,
            retention_time_ms=retention_ms,
            topics=[
                OffsetCommitRequestTopic(
                    name=topic,
                    partitions=[
                        OffsetCommitRequestPartition(
                            partition_index=partition,
                            committed_offset=offset,
                            committed_leader_epoch=leader_epoch,
                            committed_metadata=metadata,
                        )
                    ],
                )
            ],
        )
        try:
            response = self.append(self.shard.commit_offsets(request, version))
        except KafkaError as error:
            return error.code
        if response is None:
            assert self.fail_with is not None
            return self.fail_with
        return ErrorCode(response.topics[0].partitions[0].error_code)

    def offset(self, group: str = "g", topic: str = "t", partition: int = 0) -> int:
        """The committed offset as a client would fetch it; -1 none."""
        [(_, [(_, error, value)])] = self.shard.fetch_offsets(group, [(topic, [partition])], False)
        assert error is ErrorCode.NONE
        return -1 if value is None else value.committed_offset

    def stable_group(self, count: int = 2, **options: Any) -> list[str]:
        """A stable group of dynamic members; the first leads. Its generation is `generation()`."""
        members: list[str] = []
        for _ in range(count):
            member_id, last = self.enter(**options)
            others = [self.join(member, **options) for member in members]
            members.append(member_id)
            assert not last.waits and all(not box.waits for box in others)
        group = options.get("group", "g")
        generation = self.generation(group)
        assignments = {member: member.encode() for member in members}
        boxes = [self.sync(member, generation, group=group) for member in members[1:]]
        boxes.append(self.sync(members[0], generation, assignments, group=group))
        assert all(box.error is ErrorCode.NONE for box in boxes)
        return members

    def generation(self, group: str = "g") -> int:
        return self.shard.classic.groups[group].generation_id

    def state(self, group: str = "g") -> str:
        return self.shard.describe_group(group, 5).group_state
