"""The membership of a simulated client in a consumer group (classic protocol): find, join, sync, heartbeat, leave.

Part of a client that sends through it. It has one request in flight at a time.
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
from kwire.replication.core.types import TopicPartition

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from kwire.sim.clients.base import Client

_NEW_MEMBER: Final = (
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.ILLEGAL_GENERATION,
    ErrorCode.FENCED_INSTANCE_ID,
)
_PROTOCOL: Final = "simulated"


class Membership:
    """A place in a group. `assigned`: its partitions; `is_member`: in a generation that goes on;
    `instance`: its group.instance.id; `rebalance_ms`: how long a rebalance waits for it."""

    def __init__(
        self, client: Client, group: str, session_ms: int, on_assigned: Callable[[], None]
    ) -> None:
        """`on_assigned`: called in each new generation, when `assigned` is known."""
        self.group = group
        self.coordinator = -1
        self.member_id = ""
        self.generation = -1
        self.assigned: list[TopicPartition] = []
        self.is_member = False
        self.busy = False
        self.instance: str | None = None
        self.rebalance_ms = session_ms
        self._silent_until_ms = 0
        self._client = client
        self._session_ms = session_ms
        self._on_assigned = on_assigned
        self._next = self._join  # what to do as soon as there is a coordinator
        self._assignments: list[SyncGroupRequestAssignment] = []
        self._heartbeat_ms = 0

    def step(self) -> bool:
        """Make the next step, if one is due; False: the client may send something of its own."""
        if self.busy or self._client.clock.now_ms < self._silent_until_ms:
            return True
        if self.coordinator < 0:
            self.find()
        elif not self.is_member:
            self._next()
        elif self._client.clock.now_ms >= self._heartbeat_ms:
            self._heartbeat()
        else:
            return False
        return True

    def send(
        self, key: int, version: int, request: Any, on_response: Callable[[Any], object]
    ) -> None:
        """Ask the coordinator; without an answer look for it again."""
        self.busy = True

        def answered(response: Any) -> None:
            self.busy = False
            if response is None:
                self.coordinator = -1
            else:
                on_response(response)

        self._client.ask(self.coordinator, "group", key, request, answered, version)

    def is_refused(self, error: int) -> bool:
        """Whether an answer is an error; if so, go back to where it can be mended."""
        if error in _NEW_MEMBER:
            self.member_id = ""
            self._leave_generation()
        elif error == ErrorCode.REBALANCE_IN_PROGRESS:
            self._leave_generation()
        elif error:
            self.coordinator = -1
        return error != 0

    def _leave_generation(self) -> None:
        self.is_member = False
        self._next = self._join

    def find(self) -> None:
        """Look for the group's coordinator."""
        request = FindCoordinatorRequest(key_type=0, coordinator_keys=[self.group])
        self.busy = True

        def answered(response: Any) -> None:
            self.busy = False
            if response is not None and not response.coordinators[0].error_code:
                self.coordinator = response.coordinators[0].node_id

        client = self._client
        node = client.random.choice(client.brokers)
        client.ask(node, "coordinator", ApiKey.FIND_COORDINATOR, request, answered, 4)

    def _join(self) -> None:
        request = JoinGroupRequest(
            group_id=self.group,
            session_timeout_ms=self._session_ms,
            rebalance_timeout_ms=self.rebalance_ms,
            member_id=self.member_id,
            group_instance_id=self.instance,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name=_PROTOCOL, metadata=b"")],
        )

        def joined(response: Any) -> None:
            if response.error_code == ErrorCode.MEMBER_ID_REQUIRED:
                self.member_id = response.member_id
            elif not self.is_refused(response.error_code):
                self.member_id = response.member_id
                self.generation = response.generation_id
                self._assignments = self._assign([m.member_id for m in response.members])
                self._next = self._sync

        self.send(ApiKey.JOIN_GROUP, 9, request, joined)

    def _assign(self, members: list[str]) -> list[SyncGroupRequestAssignment]:
        """The partitions of each member; only the leader is given the members."""
        shares: dict[str, list[str]] = {member: [] for member in members}
        for number, (topic, index) in enumerate(self._client.leaders if members else ()):
            shares[members[number % len(members)]].append(f"{topic}/{index}")
        return [
            SyncGroupRequestAssignment(member_id=member, assignment=" ".join(share).encode())
            for member, share in shares.items()
        ]

    def _sync(self) -> None:
        request = SyncGroupRequest(
            group_id=self.group,
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self.instance,
            protocol_type="consumer",
            protocol_name=_PROTOCOL,
            assignments=self._assignments,
        )

        def synced(response: Any) -> None:
            if not self.is_refused(response.error_code):
                parts = (p.rpartition("/") for p in bytes(response.assignment).decode().split())
                self.assigned = [(topic, int(index)) for topic, _, index in parts]
                self.is_member = True
                self._on_assigned()

        self.send(ApiKey.SYNC_GROUP, 5, request, synced)

    def _heartbeat(self) -> None:
        self._heartbeat_ms = self._client.clock.now_ms + self._session_ms // 4
        request = HeartbeatRequest(
            group_id=self.group,
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self.instance,
        )
        self.send(ApiKey.HEARTBEAT, 4, request, lambda r: self.is_refused(r.error_code))

    def leave(self) -> None:
        """Leave the group; the next step joins it again."""
        request = LeaveGroupRequest(
            group_id=self.group, members=[MemberIdentity(member_id=self.member_id)]
        )
        self.member_id = ""
        self._leave_generation()
        self.send(ApiKey.LEAVE_GROUP, 5, request, lambda r: None)

    def restart(self) -> None:
        """As a process that is killed: it says nothing, mostly for less than its session. The new one
        does not know its member id; a static member gets its old place again."""
        self.member_id = ""
        self._leave_generation()
        client = self._client
        pause_ms = int(self._session_ms * client.random.choice((0.0, 0.3, 2.0)))
        self._silent_until_ms = client.clock.now_ms + pause_ms
