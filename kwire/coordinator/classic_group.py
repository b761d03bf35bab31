"""A group of the classic rebalance protocol: state machine, members and checks.

Answers to org.apache.kafka.coordinator.group.classic.ClassicGroup, ClassicGroupMember and
ClassicGroupState (KIP-62, KIP-345 static members, KIP-394 pending members).

    state                requests of members                               next
    Empty                join: accepted; others: UNKNOWN_MEMBER_ID         Preparing.., Dead
    PreparingRebalance   join: parked; sync, heartbeat:                    Completing.., Empty, Dead
                         REBALANCE_IN_PROGRESS
    CompletingRebalance  sync: parked for the leader's; heartbeat: NONE    Stable, Preparing.., Dead
    Stable               sync: the assignment; commits are accepted        Preparing.., Dead
    Dead                 removed: COORDINATOR_NOT_AVAILABLE                Dead

Invariants: `awaiting_join_count` counts the members with a parked join; `_supported[name]` is the
number of members that support protocol `name`; members are stored, elected and listed in the order
in which they joined, so that runs are reproducible.
"""

from __future__ import annotations

from kwire.protocol.errors import ErrorCode, KafkaError, MalformedMessage

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from kwire.coordinator.offset_store import OffsetAndMetadata
    from kwire.protocol.schemas.groups import JoinGroupResponse, SyncGroupResponse
    from kwire.replication.core.clock import Clock
    from kwire.shards.result import Deferred

    Protocols = Sequence[tuple[str, bytes]]

EMPTY = "Empty"
PREPARING_REBALANCE = "PreparingRebalance"
COMPLETING_REBALANCE = "CompletingRebalance"
STABLE = "Stable"
DEAD = "Dead"

VALID_PREVIOUS_STATES: dict[str, tuple[str, ...]] = {
    EMPTY: (PREPARING_REBALANCE,),
    PREPARING_REBALANCE: (STABLE, COMPLETING_REBALANCE, EMPTY),
    COMPLETING_REBALANCE: (PREPARING_REBALANCE,),
    STABLE: (COMPLETING_REBALANCE,),
    DEAD: (STABLE, PREPARING_REBALANCE, COMPLETING_REBALANCE, EMPTY, DEAD),
}

CONSUMER_PROTOCOL_TYPE = "consumer"


class ClassicGroupMember:
    """One member. `protocols`: (name, metadata) in the member's order of preference."""

    __slots__ = (
        "assignment",
        "awaiting_join",
        "awaiting_sync",
        "client_host",
        "client_id",
        "group_instance_id",
        "is_new",
        "member_id",
        "protocol_type",
        "protocols",
        "rebalance_timeout_ms",
        "session_timeout_ms",
    )

    def __init__(
        self,
        member_id: str,
        *,
        group_instance_id: str | None = None,
        client_id: str = "",
        client_host: str = "",
        rebalance_timeout_ms: int,
        session_timeout_ms: int,
        protocol_type: str,
        protocols: Protocols,
        assignment: bytes = b"",
    ) -> None:
        self.member_id = member_id
        self.group_instance_id = group_instance_id
        self.client_id = client_id
        self.client_host = client_host
        self.rebalance_timeout_ms = rebalance_timeout_ms
        self.session_timeout_ms = session_timeout_ms
        self.protocol_type = protocol_type
        self.protocols: list[tuple[str, bytes]] = list(protocols)
        self.assignment = assignment
        self.awaiting_join: Deferred[JoinGroupResponse] | None = None
        self.awaiting_sync: Deferred[SyncGroupResponse] | None = None
        self.is_new = False

    def metadata(self, protocol_name: str | None) -> bytes:
        """The member's metadata for `protocol_name`, which it must support."""
        for name, metadata in self.protocols:
            if name == protocol_name:
                return metadata
        raise AssertionError(f"member {self.member_id} does not support protocol {protocol_name}")

    def vote(self, candidates: set[str]) -> str:
        """The candidate that this member prefers."""
        for name, _ in self.protocols:
            if name in candidates:
                return name
        raise AssertionError(f"member {self.member_id} supports none of the candidates")

    @property
    def has_satisfied_heartbeat(self) -> bool:
        """Whether a parked join or sync keeps the session; as in Kafka not for new members."""
        if self.is_new:
            return False
        return self.awaiting_join is not None or self.awaiting_sync is not None


class ClassicGroup:
    """One group. Methods change only the group; callers set timers and write records."""

    __slots__ = (
        "_clock",
        "_supported",
        "awaiting_join_count",
        "current_state_timestamp_ms",
        "generation_id",
        "group_id",
        "leader_id",
        "members",
        "new_member_added",
        "pending_join_members",
        "pending_sync_members",
        "previous_state",
        "protocol_name",
        "protocol_type",
        "state",
        "static_members",
        "subscribed_topics",
        "writing_generation",
    )

    def __init__(
        self,
        group_id: str,
        clock: Clock,
        *,
        state: str = EMPTY,
        generation_id: int = 0,
        protocol_type: str | None = None,
        protocol_name: str | None = None,
        leader_id: str | None = None,
    ) -> None:
        self._clock = clock
        self.group_id = group_id
        self.state = state
        self.previous_state = DEAD
        self.current_state_timestamp_ms: int | None = clock.wall_ms
        self.generation_id = generation_id
        self.protocol_type = protocol_type
        self.protocol_name = protocol_name
        self.leader_id = leader_id
        self.members: dict[str, ClassicGroupMember] = {}
        self.static_members: dict[str, str] = {}  # group.instance.id → member id
        # Member ids given out with MEMBER_ID_REQUIRED, not joined yet. Dicts keep the order.
        self.pending_join_members: dict[str, None] = {}
        self.pending_sync_members: dict[str, None] = {}
        self.awaiting_join_count = 0
        self.new_member_added = False
        self.subscribed_topics: set[str] | None = None
        self.writing_generation = -1  # with an assignment not committed yet; -1: none
        self._supported: dict[str, int] = {}

    # --- state

    def transition_to(self, state: str) -> None:
        assert self.state in VALID_PREVIOUS_STATES[state], f"{self.state} -> {state}"
        self.previous_state = self.state
        self.state = state
        self.current_state_timestamp_ms = self._clock.wall_ms

    @property
    def can_rebalance(self) -> bool:
        return self.state in VALID_PREVIOUS_STATES[PREPARING_REBALANCE]

    @property
    def uses_consumer_group_protocol(self) -> bool:
        return self.protocol_type == CONSUMER_PROTOCOL_TYPE

    def init_next_generation(self) -> None:
        """Move to CompletingRebalance, or to Empty if the group has no members."""
        self.generation_id += 1
        self.protocol_name = self.select_protocol() if self.members else None
        self.subscribed_topics = self.compute_subscribed_topics()
        self.transition_to(COMPLETING_REBALANCE if self.members else EMPTY)
        self.pending_sync_members.clear()

    # --- members

    def add(
        self, member: ClassicGroupMember, awaiting_join: Deferred[JoinGroupResponse] | None = None
    ) -> None:
        """Add a member; the first one sets the group's protocol type and becomes the leader."""
        instance_id = member.group_instance_id
        if instance_id is not None:
            assert instance_id not in self.static_members
            self.static_members[instance_id] = member.member_id
        if not self.members:
            self.protocol_type = member.protocol_type
        assert self.protocol_type == member.protocol_type
        if self.leader_id is None:
            self.leader_id = member.member_id
        self.members[member.member_id] = member
        self._count_protocols(member, 1)
        member.awaiting_join = awaiting_join
        if awaiting_join is not None:
            self.awaiting_join_count += 1
        self.pending_join_members.pop(member.member_id, None)

    def remove(self, member_id: str) -> None:
        """Remove a member or pending member; if it led, the next in order becomes the leader."""
        member = self.members.pop(member_id, None)
        if member is not None:
            self._count_protocols(member, -1)
            if member.awaiting_join is not None:
                self.awaiting_join_count -= 1
            if member.group_instance_id is not None:
                self.static_members.pop(member.group_instance_id, None)
        if self.leader_id == member_id:
            self.leader_id = next(iter(self.members), None)
        self.pending_join_members.pop(member_id, None)
        self.pending_sync_members.pop(member_id, None)

    def maybe_elect_new_joined_leader(self) -> bool:
        """Ensure that the leader has joined this rebalance; False if no member has."""
        if self.leader_id is None:
            return False
        if self.members[self.leader_id].awaiting_join is not None:
            return True
        for member in self.members.values():
            if member.awaiting_join is not None:
                self.leader_id = member.member_id
                return True
        return False

    def replace_static_member(
        self, group_instance_id: str, old_member_id: str, new_member_id: str
    ) -> ClassicGroupMember:
        """Give a rejoined static member its new id; fence parked requests of the old id."""
        from kwire.protocol.schemas.groups import JoinGroupResponse, SyncGroupResponse

        old = self.members.pop(old_member_id)
        fenced = int(ErrorCode.FENCED_INSTANCE_ID)
        self.complete_join(old, JoinGroupResponse(member_id=old_member_id, error_code=fenced))
        self.complete_sync(old, SyncGroupResponse(error_code=fenced))
        new = ClassicGroupMember(
            new_member_id,
            group_instance_id=old.group_instance_id,
            client_id=old.client_id,
            client_host=old.client_host,
            rebalance_timeout_ms=old.rebalance_timeout_ms,
            session_timeout_ms=old.session_timeout_ms,
            protocol_type=old.protocol_type,
            protocols=old.protocols,
            assignment=old.assignment,
        )
        self.members[new_member_id] = new
        if self.leader_id == old_member_id:
            self.leader_id = new_member_id
        self.static_members[group_instance_id] = new_member_id
        if self.pending_sync_members.pop(old_member_id, 0) is None:
            self.pending_sync_members[new_member_id] = None  # Kafka has a rebalance instead
        return new

    def update_member(
        self,
        member: ClassicGroupMember,
        protocols: Protocols,
        rebalance_timeout_ms: int,
        session_timeout_ms: int,
        awaiting_join: Deferred[JoinGroupResponse] | None,
    ) -> None:
        """Update a member that rejoins. As in Kafka, an earlier parked join is never answered."""
        self._count_protocols(member, -1)
        member.protocols = list(protocols)
        self._count_protocols(member, 1)
        member.rebalance_timeout_ms = rebalance_timeout_ms
        member.session_timeout_ms = session_timeout_ms
        self.awaiting_join_count += (awaiting_join is not None) - (member.awaiting_join is not None)
        member.awaiting_join = awaiting_join

    @property
    def has_all_members_joined(self) -> bool:
        return len(self.members) == self.awaiting_join_count and not self.pending_join_members

    @property
    def rebalance_timeout_ms(self) -> int:
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    # --- parked requests

    def complete_join(self, member: ClassicGroupMember, response: JoinGroupResponse) -> bool:
        """Answer the member's parked JoinGroup; False if it has none."""
        waiting = member.awaiting_join
        if waiting is None:
            return False
        member.awaiting_join = None
        self.awaiting_join_count -= 1
        waiting.complete(response)
        return True

    def complete_sync(self, member: ClassicGroupMember, response: SyncGroupResponse) -> bool:
        """Answer the member's parked SyncGroup; False if it has none."""
        waiting = member.awaiting_sync
        if waiting is None:
            return False
        member.awaiting_sync = None
        waiting.complete(response)
        return True

    # --- protocols

    def supports_protocols(self, protocol_type: str, names: Iterable[str]) -> bool:
        """Whether the type matches and all members support at least one of the protocols."""
        if self.state == EMPTY:
            return bool(protocol_type) and any(True for _ in names)
        if self.protocol_type != protocol_type:
            return False
        count = len(self.members)
        return any(self._supported.get(name, 0) == count for name in names)

    def select_protocol(self) -> str:
        """The protocol with most votes among those that all support; on a tie the first voted."""
        candidates = {name for name, count in self._supported.items() if count == len(self.members)}
        votes: dict[str, int] = {}
        for member in self.members.values():
            name = member.vote(candidates)
            votes[name] = votes.get(name, 0) + 1
        return max(votes, key=votes.__getitem__)

    def _count_protocols(self, member: ClassicGroupMember, step: int) -> None:
        for name in dict.fromkeys(name for name, _ in member.protocols):
            count = self._supported.get(name, 0) + step
            if count:
                self._supported[name] = count
            else:
                del self._supported[name]

    def is_subscribed_to_topic(self, topic: str) -> bool:
        """Whether a member subscribes to `topic`; yes if the subscriptions cannot be parsed."""
        if self.subscribed_topics is None:
            return self.uses_consumer_group_protocol
        return topic in self.subscribed_topics

    def compute_subscribed_topics(self) -> set[str] | None:
        """The topics of all members' subscriptions; None if they cannot be parsed."""
        if not self.uses_consumer_group_protocol:
            return None
        if not self.members:
            return set()
        if self.protocol_name is None:
            return None
        from kwire.protocol.schemas.consumer_protocol import ConsumerProtocolSubscription

        topics: set[str] = set()
        try:
            for member in self.members.values():
                blob = member.metadata(self.protocol_name)
                if len(blob) < 2 or int.from_bytes(blob[:2], "big", signed=True) < 0:
                    return None
                # Every version starts with the fields of version 0: later ones only append.
                topics.update(ConsumerProtocolSubscription.decode(blob[2:], 0).topics)
        except MalformedMessage:
            return None
        return topics

    # --- checks

    def validate_member(self, member_id: str, group_instance_id: str | None) -> None:
        """Raise UNKNOWN_MEMBER_ID, or FENCED_INSTANCE_ID if the instance has another member id."""
        if group_instance_id is not None:
            holder = self.static_members.get(group_instance_id)
            if holder is None:
                raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
            if holder != member_id:
                raise KafkaError(ErrorCode.FENCED_INSTANCE_ID)
        if member_id not in self.members:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)

    def validate_offset_commit(
        self,
        member_id: str,
        group_instance_id: str | None,
        generation_id: int,
        is_transactional: bool = False,
    ) -> None:
        """Check that a commit is of a member and generation, or that the group is empty."""
        if self.state == DEAD:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        if generation_id < 0 and self.state == EMPTY:
            return  # a simple consumer or an admin client
        if generation_id >= 0 or member_id or group_instance_id is not None:
            self.validate_member(member_id, group_instance_id)
            if generation_id != self.generation_id:
                raise KafkaError(ErrorCode.ILLEGAL_GENERATION)
        elif not is_transactional and self.state != EMPTY:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
        if not is_transactional and self.state == COMPLETING_REBALANCE:
            # As in Kafka: the partitions are about to be reassigned.
            raise KafkaError(ErrorCode.REBALANCE_IN_PROGRESS)

    def validate_offset_delete(self) -> None:
        """Check that the group is inactive, or a consumer group, whose subscriptions are known."""
        if self.state == DEAD:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND)
        if self.state != EMPTY and not self.uses_consumer_group_protocol:
            raise KafkaError(ErrorCode.NON_EMPTY_GROUP)

    def validate_delete_group(self) -> None:
        """Check that the group has no members."""
        if self.state == DEAD:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, "The group is dead.")
        if self.state != EMPTY:
            raise KafkaError(ErrorCode.NON_EMPTY_GROUP, "The group is not empty.")

    # --- expiry of offsets

    def expiry_base_timestamp_ms(self, offset: OffsetAndMetadata) -> int | None:
        """Start of the retention of `offset` in Unix ms (KIP-211); None: it does not expire now."""
        if self.protocol_type is None:
            return offset.commit_timestamp_ms  # a simple consumer
        if self.state == EMPTY:
            timestamp = self.current_state_timestamp_ms
            return offset.commit_timestamp_ms if timestamp is None else timestamp
        if (
            self.state == STABLE
            and self.uses_consumer_group_protocol
            and self.subscribed_topics is not None
        ):
            return offset.commit_timestamp_ms
        return None
