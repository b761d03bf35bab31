"""Groups of any Kafka: which there are, their members, committed offsets and lag.

Answers to listConsumerGroups, describeConsumerGroups and listConsumerGroupOffsets of
KafkaAdminClient. Each function is a generator of requests (`admin.py`). Nothing in the cluster
changes: `__consumer_offsets` is not created for a question. Left out: groups of KIP-848, of which
Kafka answers the committed offsets only.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

from kwire.client.admin import EARLIEST, GROUP_COORDINATOR, LATEST
from kwire.client.connection import check
from kwire.client.offsets import leaders, offsets
from kwire.client.retries import RETRY_SECONDS, repeat
from kwire.client.views import NO_SUCH_GROUP, Group, GroupOffset, Member
from kwire.coordinator.config import OFFSETS_TOPIC
from kwire.errors import BrokerNotAvailableError
from kwire.names import nearest
from kwire.protocol.errors import ErrorCode, KafkaError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection
    from typing import Any

    from kwire.client.admin import Admin, Steps
    from kwire.client.connection import Address
    from kwire.client.offsets import Key

_NEWEST_ASSIGNMENT = 3


def list_groups(
    admin: Admin, seconds: float = RETRY_SECONDS, paused: Collection[int] = ()
) -> Steps[dict[str, str]]:
    """The state of each group of all coordinators, by id. `seconds`: as `repeat`. `paused`: brokers that would
    be waited for in vain; BrokerNotAvailableError as long as nobody has taken over their groups.

    "" for the state where the broker is older than ListGroups 4."""
    return (yield from repeat(lambda: _list(admin, paused), seconds))


def _list(admin: Admin, paused: Collection[int]) -> Steps[dict[str, str]]:
    from kwire.protocol.schemas.groups import ListGroupsRequest

    found: dict[str, str] = {}
    brokers = admin.brokers_in((yield from admin.metadata()))
    missing = sorted(brokers.keys() & paused)
    for broker_id in missing:
        del brokers[broker_id]
    for address in brokers.values():
        response = yield from admin.ask_at(address, ListGroupsRequest())
        check(response.error_code, "the groups")
        found.update({group.group_id: group.group_state for group in response.groups})
    if missing:
        who = f"broker {', '.join(map(str, missing))} is paused and not yet fenced: its groups are unknown"
        raise BrokerNotAvailableError(
            f"{who}; the others have {', '.join(sorted(found)) or 'none'}"
        )
    return dict(sorted(found.items()))


def describe_group(admin: Admin, group_id: str, seconds: float = RETRY_SECONDS) -> Steps[Group]:
    """A group; one that does not exist is Dead, without members and offsets."""
    return (yield from repeat(lambda: _describe(admin, group_id), seconds))


def find_group(admin: Admin, group_id: str, paused: Collection[int] = ()) -> Steps[Group]:
    """As `describe_group`; of one that does not exist also the group that may have been meant."""
    found = yield from describe_group(admin, group_id)
    if found.state == NO_SUCH_GROUP and not found.offsets:
        with suppress(BrokerNotAvailableError):
            known = yield from list_groups(admin, paused=paused)
            found = replace(found, similar=nearest(group_id, known, 0.7))
    return found


def _describe(admin: Admin, group_id: str) -> Steps[Group]:
    from kwire.protocol.schemas.groups import DescribeGroupsRequest, FindCoordinatorRequest

    metadata = yield from admin.metadata([OFFSETS_TOPIC])
    if metadata.topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        return Group(group_id, NO_SUCH_GROUP, "", "", -1, [], [])  # FindCoordinator would create it
    found = yield from admin.ask_any(
        FindCoordinatorRequest(key_type=GROUP_COORDINATOR, key=group_id)
    )
    check(found.error_code, found.error_message or f"group {group_id}")
    at = admin.brokers_in(metadata).get(found.node_id)
    if at is None:
        raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"group {group_id}")
    (state,) = (yield from admin.ask_at(at, DescribeGroupsRequest(groups=[group_id]))).groups
    check(state.error_code, state.error_message or f"group {group_id}")
    members = [_member(each) for each in state.members]
    committed = yield from committed_offsets(admin, at, group_id)
    return Group(
        group_id,
        state.group_state,
        state.protocol_type,
        state.protocol_data,
        found.node_id,
        members,
        (yield from _positions(admin, members, committed)),
    )


def committed_offsets(
    admin: Admin, coordinator: Address, group_id: str
) -> Steps[dict[Key, tuple[int, str]]]:
    """The committed offsets of a group with their metadata; {} for an unknown group."""
    from kwire.protocol.schemas.offsets import OffsetFetchRequest

    request = OffsetFetchRequest(group_id=group_id, topics=None)
    response = yield from admin.ask_at(coordinator, request)
    check(response.error_code, f"the offsets of group {group_id}")
    return {
        (topic.name, each.partition_index): (each.committed_offset, each.metadata or "")
        for topic in response.topics
        for each in topic.partitions
        if each.committed_offset >= 0
    }


def _positions(
    admin: Admin, members: list[Member], committed: dict[Key, tuple[int, str]]
) -> Steps[list[GroupOffset]]:
    owners = {key: member.id for member in members for key in member.partitions}
    keys = sorted({*owners, *committed})
    if not keys:
        return []
    led = yield from leaders(admin, sorted({topic for topic, _ in keys}))
    at = {key: address for key in keys if (address := led.get(key)) is not None}
    ends = yield from offsets(admin, at, LATEST)
    uncommitted = {key: address for key, address in at.items() if key not in committed}
    starts = (yield from offsets(admin, uncommitted, EARLIEST)) if uncommitted else {}
    found = []
    for key in keys:
        offset, metadata = committed.get(key, (None, ""))
        end = ends.get(key)
        begin = starts.get(key) if offset is None else offset
        lag = None if end is None or begin is None else max(0, end - begin)
        found.append(GroupOffset(*key, offset, end, lag, owners.get(key), metadata))
    return found


def _member(found: Any) -> Member:
    host = found.client_host.removeprefix("/")
    partitions = assigned_partitions(bytes(found.member_assignment))
    return Member(found.member_id, found.client_id, host, found.group_instance_id, partitions)


def assigned_partitions(assignment: bytes) -> list[Key]:
    """The partitions in a consumer's assignment; [] for what is none (Kafka Connect's, say)."""
    from kwire.protocol.errors import MalformedMessage
    from kwire.protocol.schemas.consumer_protocol import ConsumerProtocolAssignment

    version = int.from_bytes(assignment[:2], "big")
    try:
        found = ConsumerProtocolAssignment.decode(assignment[2:], min(version, _NEWEST_ASSIGNMENT))
    except (MalformedMessage, ValueError):
        return []
    return sorted((t.topic, index) for t in found.assigned_partitions for index in t.partitions)
