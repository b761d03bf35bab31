"""Members of a consumer group (classic protocol): join, get partitions, commit offsets, read them again.

What they commit has nothing to do with records: each commit has a number of its own as its metadata,
so that `answers/commits.py` can tell which one a coordinator answers with.
"""

from __future__ import annotations

from typing import Any, Final

from kwire.protocol.api import ApiKey
from kwire.protocol.errors import ErrorCode
from kwire.protocol.schemas.groups import (
    FindCoordinatorRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    LeaveGroupRequest,
    MemberIdentity,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
)
from kwire.protocol.schemas.offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from kwire.replication.core.types import TopicPartition
from kwire.sim.clients.base import Client, Setting

_NEW_MEMBER: Final = (
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.ILLEGAL_GENERATION,
    ErrorCode.FENCED_INSTANCE_ID,
)
_PROTOCOL: Final = "simulated"
_LATE_COMMITS: Final = 0.03


class Member(Client):
    """One member. It has one request in flight at a time, as long as it is in the group."""

    def __init__(
        self, setting: Setting, *, group: str = "group", session_ms: int = 1000, stable: int = 0
    ) -> None:
        """`stable`: whether it reads offsets with require_stable (KIP-447)."""
        super().__init__(setting)
        self._group = group
        self._session_ms = session_ms
        self._stable = bool(stable)
        self._pause_ms = setting.plan.work_pause_ms
        self._coordinator = -1
        self._member_id = ""
        self._generation = -1
        self._next = self._join  # what to do as soon as there is a coordinator
        self._assigned: list[TopicPartition] = []
        self._assignments: list[SyncGroupRequestAssignment] = []
        self._heartbeat_ms = 0
        self._commits = 0
        self._busy = False
        self.later("work", 5, self._work)

    def _work(self) -> None:
        if self.stopping:
            return
        self.later("work", 1 + int(self._pause_ms * 2 * self.random.random()), self._work)
        if not self.leaders or self.random.random() < 0.02:
            self.refresh()
        if self._busy or not self.leaders:
            return
        if self._coordinator < 0:
            self._find()
        else:
            self._next()

    def _send(self, key: int, version: int, request: Any, on_response: Any) -> None:
        """Ask the coordinator; without an answer look for it again."""
        self._busy = True

        def answered(response: Any) -> None:
            self._busy = False
            if response is None:
                self._coordinator = -1
            else:
                on_response(response)

        self.ask(self._coordinator, "group", key, request, answered, version)

    def _is_refused(self, error: int) -> bool:
        """Whether an answer is an error; if so, go back to where it can be mended."""
        if error in _NEW_MEMBER:
            self._member_id = ""
            self._next = self._join
        elif error == ErrorCode.REBALANCE_IN_PROGRESS:
            self._next = self._join
        elif error:
            self._coordinator = -1
        return error != 0

    # --- into the group

    def _find(self) -> None:
        request = FindCoordinatorRequest(key_type=0, coordinator_keys=[self._group])
        self._busy = True

        def answered(response: Any) -> None:
            self._busy = False
            if response is not None and not response.coordinators[0].error_code:
                self._coordinator = response.coordinators[0].node_id

        node = self.random.choice(self.brokers)
        self.ask(node, "coordinator", ApiKey.FIND_COORDINATOR, request, answered, 4)

    def _join(self) -> None:
        request = JoinGroupRequest(
            group_id=self._group,
            session_timeout_ms=self._session_ms,
            rebalance_timeout_ms=self._session_ms,
            member_id=self._member_id,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name=_PROTOCOL, metadata=b"")],
        )

        def joined(response: Any) -> None:
            if response.error_code == ErrorCode.MEMBER_ID_REQUIRED:
                self._member_id = response.member_id
            elif not self._is_refused(response.error_code):
                self._member_id = response.member_id
                self._generation = response.generation_id
                self._assignments = self._assign([m.member_id for m in response.members])
                self._next = self._sync

        self._send(ApiKey.JOIN_GROUP, 9, request, joined)

    def _assign(self, members: list[str]) -> list[SyncGroupRequestAssignment]:
        """The partitions of each member; only the leader is given the members."""
        shares: dict[str, list[str]] = {member: [] for member in members}
        for number, (topic, index) in enumerate(self.leaders if members else ()):
            shares[members[number % len(members)]].append(f"{topic}/{index}")
        return [
            SyncGroupRequestAssignment(member_id=member, assignment=" ".join(share).encode())
            for member, share in shares.items()
        ]

    def _sync(self) -> None:
        request = SyncGroupRequest(
            group_id=self._group,
            generation_id=self._generation,
            member_id=self._member_id,
            protocol_type="consumer",
            protocol_name=_PROTOCOL,
            assignments=self._assignments,
        )

        def synced(response: Any) -> None:
            if not self._is_refused(response.error_code):
                parts = (p.rpartition("/") for p in bytes(response.assignment).decode().split())
                self._assigned = [(topic, int(index)) for topic, _, index in parts]
                self._next = self._fetch if self._assigned else self._stay

        self._send(ApiKey.SYNC_GROUP, 5, request, synced)

    # --- in the group

    def _stay(self) -> None:
        chance = self.random.random()
        if self.clock.now_ms >= self._heartbeat_ms:
            self._heartbeat()
        elif chance < 0.02:
            self._leave()
        elif self._assigned and chance < 0.15:
            self._fetch()
        elif self._assigned:
            self._commit()

    def _heartbeat(self) -> None:
        self._heartbeat_ms = self.clock.now_ms + self._session_ms // 4
        request = HeartbeatRequest(
            group_id=self._group, generation_id=self._generation, member_id=self._member_id
        )
        self._send(ApiKey.HEARTBEAT, 4, request, lambda r: self._is_refused(r.error_code))

    def _leave(self) -> None:
        request = LeaveGroupRequest(
            group_id=self._group, members=[MemberIdentity(member_id=self._member_id)]
        )
        self._member_id = ""
        self._next = self._join
        self._send(ApiKey.LEAVE_GROUP, 5, request, lambda r: None)

    def _commit(self) -> None:
        topics: dict[str, OffsetCommitRequestTopic] = {}
        for name, index in self.random.sample(self._assigned, min(len(self._assigned), 2)):
            self._commits += 1
            if name not in topics:
                topics[name] = OffsetCommitRequestTopic(name=name, partitions=[])
            topics[name].partitions.append(
                OffsetCommitRequestPartition(
                    partition_index=index,
                    committed_offset=self._commits,
                    committed_metadata=f"{self.name}/{self._commits}",
                )
            )
        late = self.random.random() < _LATE_COMMITS  # as by a thread that has slept since
        request = OffsetCommitRequest(
            group_id=self._group,
            generation_id_or_member_epoch=self._generation - (late and self._generation > 0),
            member_id=self._member_id,
            topics=list(topics.values()),
        )

        def committed(response: Any) -> None:
            errors = {p.error_code for topic in response.topics for p in topic.partitions}
            for error in sorted(errors - {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}):
                self._is_refused(error)

        self._send(ApiKey.OFFSET_COMMIT, 8, request, committed)

    def _fetch(self) -> None:
        topics: dict[str, OffsetFetchRequestTopics] = {}
        for name, index in self._assigned:
            if name not in topics:
                topics[name] = OffsetFetchRequestTopics(name=name, partition_indexes=[])
            topics[name].partition_indexes.append(index)
        request = OffsetFetchRequest(
            groups=[OffsetFetchRequestGroup(group_id=self._group, topics=list(topics.values()))],
            require_stable=self._stable,
        )

        def fetched(response: Any) -> None:
            if not self._is_refused(response.groups[0].error_code):
                self._next = self._stay

        self._send(ApiKey.OFFSET_FETCH, 8, request, fetched)
