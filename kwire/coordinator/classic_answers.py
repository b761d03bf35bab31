"""JoinGroup responses and member ids of the classic rebalance protocol."""

from __future__ import annotations

from kwire.protocol.errors import ErrorCode

STRING_BYTES_MAX = 32767  # of a string on the wire

TYPE_CHECKING = False
if TYPE_CHECKING:
    from random import Random

    from kwire.coordinator.classic_group import ClassicGroup
    from kwire.protocol.schemas.groups import JoinGroupResponse, JoinGroupResponseMember
    from kwire.shards.result import Deferred


def generation(
    group: ClassicGroup,
    member_id: str,
    *,
    with_members: bool = True,
    leader: str | None = None,
    error: ErrorCode = ErrorCode.NONE,
) -> JoinGroupResponse:
    """A JoinGroup response with the current generation; for the leader it lists all members.

    `with_members` False: the leader gets no members either."""
    from kwire.protocol.schemas.groups import JoinGroupResponse, JoinGroupResponseMember

    members: list[JoinGroupResponseMember] = []
    if with_members and group.leader_id == member_id:
        members = [
            JoinGroupResponseMember(
                member_id=member.member_id,
                group_instance_id=member.group_instance_id,
                metadata=member.metadata(group.protocol_name),
            )
            for member in group.members.values()
        ]
    return JoinGroupResponse(
        error_code=int(error),
        generation_id=group.generation_id,
        protocol_type=group.protocol_type,
        protocol_name=group.protocol_name,
        leader=(group.leader_id if leader is None else leader) or "",
        member_id=member_id,
        members=members,
    )


def join_error(member_id: str, error: ErrorCode) -> JoinGroupResponse:
    """A JoinGroup error response. `member_id` empty: the client starts over as a new member."""
    from kwire.protocol.schemas.groups import JoinGroupResponse

    return JoinGroupResponse(error_code=int(error), member_id=member_id, protocol_name=None)


def refuse_join(answer: Deferred[JoinGroupResponse], member_id: str, error: ErrorCode) -> None:
    """Answer a join with an error, unless it is answered already."""
    answer.complete(join_error(member_id, error))


def new_member_id(prefix: str, random: Random) -> str:
    """`prefix` (client id or instance id), shortened if necessary to fit a string, and a UUID."""
    member_id = f"{prefix}-{random_uuid(random)}"
    excess = len(member_id.encode("utf-8", "surrogatepass")) - STRING_BYTES_MAX
    if excess > 0:
        kept = prefix.encode("utf-8", "surrogatepass")[:-excess].decode("utf-8", "ignore")
        member_id = kept + member_id[len(prefix) :]
    return member_id


def random_uuid(random: Random) -> str:
    """A version 4 UUID from `random`, so that a seed reproduces it."""
    bits = random.getrandbits(128)
    bits = bits & ~(0xF << 76) | 4 << 76
    bits = bits & ~(0x3 << 62) | 2 << 62
    digits = f"{bits:032x}"
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"
