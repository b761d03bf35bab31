"""kafka-consumer-groups of the image: list, describe, reset-offsets, delete, and a group's offsets for the console.

Answers to kafka.admin.ConsumerGroupCommand, in its columns. Left out: delete-offsets, CSV plans, resets by date.
"""

from __future__ import annotations

import sys

from kwire.client.admin import EARLIEST, LATEST
from kwire.client.groups import describe_group, list_groups
from kwire.client.views import NO_SUCH_GROUP
from kwire.docker.client import Client, ToolError, check
from kwire.protocol.errors import ErrorCode

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from kwire.client.views import Group, Member
    from kwire.docker.options import Options

_Partition = tuple[str, int]
_STARTS = ("to-earliest", "to-latest", "to-current", "to-offset", "shift-by")


def consumer_groups(options: Options) -> None:
    """List, describe, reset or delete groups."""
    client = options.client()
    if "list" in options:
        for group, state in client.run(list_groups).items():
            sys.stdout.write(f"{group} {state}\n" if "state" in options else f"{group}\n")
        return
    wanted = list(client.run(list_groups)) if "all-groups" in options else options.all("group")
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


def _described(client: Client, group: str) -> Group:
    return client.run(lambda admin: describe_group(admin, group))


def committed_offsets(client: Client, group: str) -> dict[_Partition, int]:
    """The committed offsets of a group; empty for an unknown group."""
    return _committed(_described(client, group))


def _committed(group: Group) -> dict[_Partition, int]:
    return {(o.topic, o.partition): o.committed for o in group.offsets if o.committed is not None}


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


def _describe(client: Client, group_id: str, options: Options) -> None:
    group = _described(client, group_id)
    if group.state == NO_SUCH_GROUP and not group.offsets:
        raise ToolError(f"Consumer group '{group_id}' does not exist.")
    if not group.members and "state" not in options:
        sys.stderr.write(f"\nConsumer group '{group_id}' has no active members.\n")
    if "state" in options:
        columns: list[object] = ["GROUP", "ASSIGNMENT-STRATEGY", "STATE", "#MEMBERS"]
        _table([columns, [group_id, group.assignor, group.state, len(group.members)]])
        return
    if "members" in options:
        rows: list[list[object]] = [["GROUP", "CONSUMER-ID", "HOST", "CLIENT-ID", "#PARTITIONS"]]
        rows += [[group_id, *_who(each), len(each.partitions)] for each in group.members]
        _table(rows)
        return
    owners = {member.id: member for member in group.members}
    columns = ["GROUP", "TOPIC", "PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG"]
    rows = [[*columns, "CONSUMER-ID", "HOST", "CLIENT-ID"]]
    for each in group.offsets:
        lag = None if each.committed is None else each.lag
        numbers = ["-" if n is None else n for n in (each.committed, each.end, lag)]
        who = ["-"] * 3 if each.member_id is None else _who(owners[each.member_id])
        rows.append([group_id, each.topic, each.partition, *numbers, *who])
    _table(rows)


def _who(member: Member) -> list[str]:
    return [member.id, f"/{member.host}", member.client_id]


def _table(rows: list[list[object]]) -> None:
    texts = [[str(cell) for cell in row] for row in rows]
    widths = [max(len(row[i]) for row in texts) for i in range(len(texts[0]))]
    sys.stdout.write("\n")
    for row in texts:
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=True)]
        sys.stdout.write(" ".join(cells).rstrip() + "\n")


def _reset(client: Client, group: str, options: Options) -> None:
    found = _described(client, group)
    if found.members:
        raise ToolError(f"Assignments can only be reset if the group '{group}' is inactive")
    ways = [name for name in _STARTS if name in options]
    if len(ways) != 1:
        raise ToolError(f"exactly one of --{', --'.join(_STARTS)} is expected")
    current = _committed(found)
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
