"""kafka-consumer-groups of the image: list, describe, reset-offsets, delete, and a group's offsets for the console.

Answers to kafka.admin.ConsumerGroupCommand, in its columns. Left out: delete-offsets, CSV plans, resets by date.
"""

from __future__ import annotations

import sys

from kwire.client.admin import EARLIEST, LATEST
from kwire.docker.client import Client, ToolError, check
from kwire.protocol.errors import ErrorCode

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from kwire.docker.options import Options
    from kwire.protocol.schemas.groups import DescribedGroup, DescribedGroupMember

_Partition = tuple[str, int]
_UNKNOWN = -1
_STARTS = ("to-earliest", "to-latest", "to-current", "to-offset", "shift-by")


def consumer_groups(options: Options) -> None:
    """kafka-consumer-groups --list | --describe | --reset-offsets | --delete, with --group, --all-groups"""
    client = options.client()
    if "list" in options:
        for group, state in sorted(_groups(client).items()):
            sys.stdout.write(f"{group} {state}\n" if "state" in options else f"{group}\n")
        return
    wanted = sorted(_groups(client)) if "all-groups" in options else options.all("group")
    if not wanted and "all-groups" not in options:
        raise ToolError("exactly one of --list, --describe, --delete, --reset-offsets is expected")
    for group in wanted:
        if "describe" in options:
            _describe(client, group, options)
        elif "reset-offsets" in options:
            _reset(client, group, options)
        elif "delete" in options:
            _delete(client, group)
        else:
            raise ToolError("--list, --describe, --delete or --reset-offsets is expected")


def _groups(client: Client) -> dict[str, str]:
    """The groups of all coordinators, with their states."""
    from kwire.protocol.schemas.groups import ListGroupsRequest

    found: dict[str, str] = {}
    for broker in client.brokers():
        answer = client.ask(ListGroupsRequest(), broker)
        check(answer.error_code)
        found.update({group.group_id: group.group_state for group in answer.groups})
    return found


def committed_offsets(client: Client, group: str) -> dict[_Partition, int]:
    """The committed offsets of a group; empty for an unknown group."""
    from kwire.protocol.schemas.offsets import OffsetFetchRequest

    request = OffsetFetchRequest(group_id=group, topics=None)
    answer = client.ask(request, client.coordinator(group))
    check(answer.error_code)
    return {
        (topic.name, partition.partition_index): partition.committed_offset
        for topic in answer.topics
        for partition in topic.partitions
        if partition.committed_offset >= 0
    }


def commit_offsets(client: Client, group: str, offsets: Mapping[_Partition, int]) -> None:
    """Commit offsets for a group without members. ToolError when it has members."""
    from kwire.protocol.schemas.offsets import (
        OffsetCommitRequest,
        OffsetCommitRequestPartition,
        OffsetCommitRequestTopic,
    )

    topics = [
        OffsetCommitRequestTopic(
            name=name,
            partitions=[
                OffsetCommitRequestPartition(
                    partition_index=index, committed_offset=offset, committed_metadata=""
                )
                for (topic, index), offset in sorted(offsets.items())
                if topic == name
            ],
        )
        for name in sorted({topic for topic, _ in offsets})
    ]
    request = OffsetCommitRequest(group_id=group, topics=topics)
    answer = client.ask(request, client.coordinator(group))
    for committed in answer.topics:
        for partition in committed.partitions:
            check(partition.error_code, f"group {group} has members that are reading")


def _described(client: Client, group: str) -> DescribedGroup:
    from kwire.protocol.schemas.groups import DescribeGroupsRequest

    request = DescribeGroupsRequest(groups=[group])
    found: DescribedGroup = client.ask(request, client.coordinator(group)).groups[0]
    check(found.error_code, found.error_message)
    return found


def _assigned(member: DescribedGroupMember) -> list[_Partition]:
    """The partitions in a member's assignment."""
    from kwire.protocol.errors import MalformedMessage
    from kwire.protocol.schemas.consumer_protocol import ConsumerProtocolAssignment

    data = bytes(member.member_assignment)
    try:
        version = int.from_bytes(data[:2], "big")
        assignment = ConsumerProtocolAssignment.decode(data[2:], min(version, 3))
    except (MalformedMessage, ValueError):
        return []
    return [(t.topic, index) for t in assignment.assigned_partitions for index in t.partitions]


def _describe(client: Client, group: str, options: Options) -> None:
    found = _described(client, group)
    offsets = committed_offsets(client, group)
    if found.group_state == "Dead" and not offsets:
        raise ToolError(f"Consumer group '{group}' does not exist.")
    if not found.members and "state" not in options:
        sys.stderr.write(f"\nConsumer group '{group}' has no active members.\n")
    if "state" in options:
        columns: list[object] = ["GROUP", "ASSIGNMENT-STRATEGY", "STATE", "#MEMBERS"]
        _table([columns, [group, found.protocol_data, found.group_state, len(found.members)]])
        return
    if "members" in options:
        rows: list[list[object]] = [["GROUP", "CONSUMER-ID", "HOST", "CLIENT-ID", "#PARTITIONS"]]
        for member in found.members:
            row = [group, member.member_id, member.client_host, member.client_id]
            rows.append([*row, len(_assigned(member))])
        _table(rows)
        return
    owners = {partition: member for member in found.members for partition in _assigned(member)}
    columns = ["GROUP", "TOPIC", "PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG"]
    rows = [[*columns, "CONSUMER-ID", "HOST", "CLIENT-ID"]]
    for topic, index in sorted({*offsets, *owners}):
        end = client.offset(topic, index, LATEST, client.leaders(topic)[index])
        current = offsets.get((topic, index), _UNKNOWN)
        numbers = [current, end, end - current] if current >= 0 else ["-", end, "-"]
        owner = owners.get((topic, index))
        who = [owner.member_id, owner.client_host, owner.client_id] if owner else ["-"] * 3
        rows.append([group, topic, index, *numbers, *who])
    _table(rows)


def _table(rows: list[list[object]]) -> None:
    texts = [[str(cell) for cell in row] for row in rows]
    widths = [max(len(row[i]) for row in texts) for i in range(len(texts[0]))]
    sys.stdout.write("\n")
    for row in texts:
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=True)]
        sys.stdout.write(" ".join(cells).rstrip() + "\n")


def _reset(client: Client, group: str, options: Options) -> None:
    if _described(client, group).members:
        raise ToolError(f"Assignments can only be reset if the group '{group}' is inactive")
    ways = [name for name in _STARTS if name in options]
    if len(ways) != 1:
        raise ToolError(f"exactly one of --{', --'.join(_STARTS)} is expected")
    current = committed_offsets(client, group)
    if "all-topics" in options:
        wanted = sorted(current)
    else:
        wanted = [each for text in options.all("topic") for each in _partitions(client, text)]
        if not wanted:
            raise ToolError("One of the reset scopes should be defined: --all-topics, --topic.")
    goals: dict[_Partition, int] = {}
    for topic, index in wanted:
        leader = client.leaders(topic)[index]
        first, end = (client.offset(topic, index, when, leader) for when in (EARLIEST, LATEST))
        now = current.get((topic, index), end)
        goal = {
            "to-earliest": first,
            "to-latest": end,
            "to-current": now,
            "to-offset": options.number("to-offset", 0),
            "shift-by": now + options.number("shift-by", 0),
        }[ways[0]]
        goals[topic, index] = min(max(goal, first), end)
    if "execute" in options:
        commit_offsets(client, group, goals)
    else:
        sys.stderr.write("WARN: No action will be performed as the --execute option is missing.\n")
    rows: list[list[object]] = [["GROUP", "TOPIC", "PARTITION", "NEW-OFFSET"]]
    rows += [[group, topic, index, offset] for (topic, index), offset in sorted(goals.items())]
    _table(rows)


def _partitions(client: Client, text: str) -> list[_Partition]:
    """TOPIC or TOPIC:0,1"""
    topic, _, numbers = text.partition(":")
    known = client.leaders(topic)
    wanted = [word for word in numbers.split(",") if word]
    chosen = [int(word) for word in wanted if word.isascii() and word.isdigit()]
    if len(chosen) < len(wanted) or not known.keys() >= set(chosen):
        raise ToolError(f"--topic {text}: no such partition")
    return [(topic, index) for index in chosen or sorted(known)]


def _delete(client: Client, group: str) -> None:
    from kwire.protocol.schemas.groups import DeleteGroupsRequest

    request = DeleteGroupsRequest(groups_names=[group])
    (result,) = client.ask(request, client.coordinator(group)).results
    if result.error_code == ErrorCode.NON_EMPTY_GROUP:
        raise ToolError(f"group '{group}' could not be deleted: it is not empty")
    check(result.error_code, f"group '{group}' could not be deleted")
    sys.stdout.write(f"Deletion of requested consumer groups ('{group}') was successful.\n")
