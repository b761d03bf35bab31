"""A long series of group requests to any broker, with its responses in a comparable form.

`compat_tests/record_groups.py` recorded the responses of a real Apache Kafka 3.9.1 (new
coordinator) in tests/data/group-conversation-3.9.1.jsonl; test_conversation.py compares kwire's.
Left out of the comparison: the order of lists, random parts of member ids, ports, wording of error
messages.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any, Protocol

from kwire.protocol.language.schema import Struct
from kwire.protocol.schemas.consumer_protocol import ConsumerProtocolSubscription
from kwire.protocol.schemas.groups import (
    DeleteGroupsRequest,
    DescribeGroupsRequest,
    FindCoordinatorRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    LeaveGroupRequest,
    ListGroupsRequest,
    MemberIdentity,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
)
from kwire.protocol.schemas.offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)

SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "4",
    "group.max.size": "3",
    "group.min.session.timeout.ms": "1000",
}
TOPICS = {"t": 2, "u": 1}
CLIENT_ID = "cl"
UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")
SUBSCRIPTION = b"\x00\x01" + ConsumerProtocolSubscription(topics=["t"]).encode(1)
MANDATORY = {"protocol_type": "consumer", "protocol_name": "range"}


class Connection(Protocol):
    def send(self, version: int, request: Any) -> None: ...

    def receive(self) -> Any:
        """Wait for the next response."""
        ...

    def is_silent(self) -> bool:
        """Whether no response is there or about to arrive."""
        ...


class Conversation:
    """Sends requests and appends the responses to `lines`."""

    def __init__(self, connect: Callable[[], Connection]) -> None:
        self.connect = connect
        self.lines: list[str] = []

    def ask(
        self, label: str, version: int, request: Any, connection: Connection | None = None
    ) -> Any:
        connection = connection or self.connect()
        connection.send(version, request)
        return self.hear(f"{label}, version {version}", connection)

    def hear(self, label: str, connection: Connection) -> Any:
        answer = connection.receive()
        self.note(label, answer)
        return answer

    def note(self, label: str, answer: Any) -> None:
        line = json.dumps([label, plain(answer)])
        self.lines.append(UUID.sub("ID", line))

    def hold(self) -> list[str]:
        """The whole conversation."""
        self.find_coordinators()
        self.bad_joins()
        for version in range(10):
            OneMember(self, version).live()
        self.two_members()
        for version in (5, 9):
            self.static_members(version)
        return self.lines

    def find_coordinators(self) -> None:
        for version in range(7):
            keys = {"coordinator_keys": ["g", ""]} if version >= 4 else {"key": "g"}
            self.ask("find a coordinator", version, FindCoordinatorRequest(**keys))
        for version, kind in ((2, 9), (2, -1), (5, 9), (6, 2)):
            keys = {"coordinator_keys": ["g"]} if version >= 4 else {"key": "g"}
            request = FindCoordinatorRequest(key_type=kind, **keys)
            self.ask(f"find a coordinator of type {kind}", version, request)

    def bad_joins(self) -> None:
        for version in range(10):
            for fields in (
                {"group_id": ""},
                {"session_timeout_ms": 10},
                {"session_timeout_ms": 10**8},
                {"member_id": "x"},
                {"protocols": []},
                {"protocol_type": ""},
            ):
                values = {"group_id": f"bad{version}"} | fields
                self.ask(f"join with {[*fields]}", version, join(**values))
        # One by one: each is in a partition of its own, and Kafka reads what is committed in it.
        for version in range(10):
            self.ask("describe", 5, DescribeGroupsRequest(groups=[f"bad{version}"]))

    def two_members(self) -> None:
        one, two, three, four = (self.connect() for _ in range(4))
        values = {"group_id": "two", "rebalance_timeout_ms": 20_000}
        a = self.ask("a joins", 5, join(**values), one).member_id
        self.ask("a joins again", 5, join(a, **values), one)
        self.ask("a syncs", 3, sync("two", 1, a), one)
        b = self.ask("b joins", 5, join(**values), two).member_id
        two.send(5, join(b, **values))
        assert two.is_silent()
        self.ask("describe in between", 5, DescribeGroupsRequest(groups=["two"]))
        request = ListGroupsRequest(states_filter=["preparingrebalance"], types_filter=["classic"])
        self.ask("list what prepares", 5, request)
        self.ask("a's heartbeat", 3, heartbeat("two", 1, a), three)
        self.ask("a's sync", 3, sync("two", 1, a), three)
        self.ask("a's commit", 7, commit("two", [("t", 0, 5, "m")], 1, a), three)
        self.ask("a joins", 5, join(a, **values), one)
        self.hear("b has joined", two)
        two.send(3, sync("two", 2, b))
        assert two.is_silent()
        self.ask("a repeats its join", 5, join(a, **values), three)
        self.ask("a syncs", 3, sync("two", 2, a, {b: b"B", "stranger": b"S"}), one)
        self.hear("b has synced", two)
        self.ask("b repeats its join", 5, join(b, **values), two)
        other = [JoinGroupRequestProtocol(name="other", metadata=b"")]
        self.ask("other protocol", 5, join(**values, protocols=other), three)
        self.ask("other type", 5, join(**values, protocol_type="connect"), three)
        c = self.ask("c joins", 5, join(**values), three).member_id
        d = self.ask("d joins", 5, join(**values), four).member_id
        for member, connection in ((c, three), (d, four), (a, one)):
            connection.send(5, join(member, **values))
            assert connection.is_silent()
        self.ask("b comes when the group is full", 5, join(b, **values), two)

    def static_members(self, version: int) -> None:
        one, two, three = (self.connect() for _ in range(3))
        group = f"static{version}"
        i1 = {"group_instance_id": "i1"}
        i2 = {"group_instance_id": "i2"}
        values = {"group_id": group, "rebalance_timeout_ms": 20_000}
        first = self.ask("i1 joins", version, join(**values, **i1), one).member_id
        two.send(version, join(**values, **i2))
        assert two.is_silent()
        self.ask("i1 joins again", version, join(first, **values, **i1), one)
        second = self.hear("i2 has joined", two).member_id
        two.send(5, sync(group, 2, second, **i2, **MANDATORY))
        assert two.is_silent()
        given = {first: b"1", second: b"2"}
        self.ask("i1 syncs", 5, sync(group, 2, first, given, **i1, **MANDATORY), one)
        self.hear("i2 has synced", two)
        again = self.ask("i2 comes back", version, join(**values, **i2), three).member_id
        self.ask("old i2's heartbeat", 4, heartbeat(group, 2, second, **i2), two)
        self.ask("old i2's heartbeat, no instance", 4, heartbeat(group, 2, second), two)
        self.ask("old i2 joins", version, join(second, **values, **i2), two)
        request = commit(group, [("t", 0, 5, "m")], 2, second, **i2)
        self.ask("old i2's commit", 7, request, two)
        self.ask("i2 syncs", 5, sync(group, 2, again, **i2, **MANDATORY), three)
        leader = self.ask("i1 comes back", version, join(**values, **i1), one).member_id
        self.ask("describe", 5, DescribeGroupsRequest(groups=[group]))
        self.ask("leave", 5, leave(group, ("", "i2"), ("wrong", "i1"), ("", "i9")))
        self.ask("i1's heartbeat", 4, heartbeat(group, 2, leader, **i1), one)
        self.ask("i1 leaves", 5, leave(group, ("", "i1")))
        self.ask("describe", 5, DescribeGroupsRequest(groups=[group]))


class OneMember:
    """A group with one member, in one version of JoinGroup and matching ones of other APIs."""

    def __init__(self, talk: Conversation, version: int) -> None:
        self.connection = talk.connect()
        self.talk = talk
        self.version = version
        self.group = f"one{version}"
        self.member = ""
        self.timeouts = {"rebalance_timeout_ms": 20_000} if version else {}

    def ask(self, label: str, newest: int, request: Any) -> Any:
        return self.talk.ask(label, min(self.version, newest), request, self.connection)

    def live(self) -> None:
        self.joins()
        self.syncs()
        self.beats()
        self.commits()
        self.fetches()
        self.deletes_offsets()
        self.leaves()
        self.is_gone()

    def joins(self) -> None:
        request = join(group_id=self.group, **self.timeouts)
        self.member = self.ask("join", 9, request).member_id
        if self.version >= 4:
            request = join(self.member, group_id=self.group, **self.timeouts)
            self.ask("join with the id", 9, request)

    def syncs(self) -> None:
        group, member = self.group, self.member
        names = MANDATORY if self.version >= 5 else {}
        if names:
            self.ask("sync without names", 5, sync(group, 1, member))
            wrong = {"protocol_type": "consumer", "protocol_name": "other"}
            self.ask("sync of another protocol", 5, sync(group, 1, member, **wrong))
        self.ask("sync of generation 9", 5, sync(group, 9, member, **names))
        self.ask("sync of a stranger", 5, sync(group, 1, "stranger", **names))
        self.ask("heartbeat before sync", 4, heartbeat(group, 1, member))
        if self.version:
            request = commit(group, [("t", 0, 1, "")], 1, member)
            self.ask("commit before sync", 8, request)
        self.ask("describe before sync", 5, DescribeGroupsRequest(groups=[group]))
        self.ask("sync", 5, sync(group, 1, member, {member: b"mine"}, **names))
        self.ask("sync again", 5, sync(group, 1, member, **names))

    def beats(self) -> None:
        for label, request in (
            ("heartbeat", heartbeat(self.group, 1, self.member)),
            ("heartbeat of generation 2", heartbeat(self.group, 2, self.member)),
            ("heartbeat of a stranger", heartbeat(self.group, 1, "stranger")),
            ("heartbeat in no group", heartbeat("none", 1, "stranger")),
            ("heartbeat in the empty group", heartbeat("", 1, "stranger")),
        ):
            self.ask(label, 4, request)
        wants = {"include_authorized_operations": True} if self.version >= 3 else {}
        self.ask("describe", 5, DescribeGroupsRequest(groups=[self.group, "none", ""], **wants))

    def commits(self) -> None:
        group, member = self.group, self.member
        version = min(self.version + 1, 9)
        one = [("t", 0, 5, "m")]
        many = [("t", 0, 5, "m"), ("t", 7, 1, ""), ("t", 1, 3, "x" * 5000), ("none", 0, 1, "")]
        for label, request in (
            ("commit", commit(group, many, 1, member)),
            ("commit of generation 7", commit(group, one, 7, member)),
            ("commit of a stranger", commit(group, one, 1, "stranger")),
            ("commit of nobody", commit(group, one)),
            ("commit to no group", commit("none", one, 1, "stranger")),
            ("commit to the empty group", commit("", one)),
            ("commit of nothing", commit(group, [], 1, member)),
        ):
            self.talk.ask(label, version, request, self.connection)

    def fetches(self) -> None:
        version = min(self.version + 1, 9)
        wanted = {"t": [0, 1, 9], "none": [0]}
        requests: list[tuple[str, OffsetFetchRequest]]
        if version < 8:
            requests = [
                ("fetch", old_fetch(self.group, wanted)),
                ("fetch of no group", old_fetch("none", wanted)),
                ("fetch of the empty group", old_fetch("", wanted)),
            ]
            if version >= 2:
                requests.append(("fetch all", old_fetch(self.group, None)))
        else:
            names = (self.group, "none", "")
            requests = [
                ("fetch", new_fetch(*((name, wanted) for name in names))),
                ("fetch all", new_fetch(*((name, None) for name in names))),
                ("fetch stable", new_fetch((self.group, None), require_stable=True)),
            ]
        for label, request in requests:
            self.talk.ask(label, version, request, self.connection)

    def deletes_offsets(self) -> None:
        if self.version not in (3, 9):
            return
        for label, request in (
            ("delete offsets", delete_offsets(self.group, ("t", 0), ("u", 0), ("none", 0))),
            ("delete offsets of no group", delete_offsets("none", ("t", 0))),
            ("delete offsets of the empty group", delete_offsets("", ("t", 0))),
            ("delete no offsets", delete_offsets(self.group)),
        ):
            self.talk.ask(label, 0, request, self.connection)

    def leaves(self) -> None:
        names = [self.group, "none", ""]
        self.ask("delete a living group", 2, DeleteGroupsRequest(groups_names=names))
        for label, group, *members in (
            ("a stranger leaves", self.group, ("stranger", None), ("", "i")),
            ("leave no group", "none", ("stranger", None)),
            ("leave the empty group", "", ("stranger", None)),
            ("leave", self.group, (self.member, None)),
            ("leave again", self.group, (self.member, None)),
        ):
            if self.version >= 3:
                request = leave(group, *members)
            else:
                request = LeaveGroupRequest(group_id=group, member_id=members[0][0])
            self.ask(label, 5, request)

    def is_gone(self) -> None:
        group, member = self.group, self.member
        names = MANDATORY if self.version >= 5 else {}
        self.ask("describe an empty group", 5, DescribeGroupsRequest(groups=[group]))
        self.ask("sync in an empty group", 5, sync(group, 2, member, **names))
        self.ask("heartbeat in an empty group", 4, heartbeat(group, 2, member))
        self.ask("join an empty group", 9, join(member, group_id=group, **self.timeouts))
        version = min(self.version + 1, 9)
        for label, request in (
            ("commit of nobody", commit(group, [("t", 1, 6, None)])),
            ("commit of who has left", commit(group, [("t", 1, 7, "")], 1, member)),
            ("commit with an id alone", commit(group, [("t", 1, 8, "")], -1, member)),
        ):
            self.talk.ask(label, version, request, self.connection)
        fetch = old_fetch(group, {"t": [1]}) if version < 8 else new_fetch((group, {"t": [1]}))
        self.talk.ask("fetch from an empty group", version, fetch, self.connection)
        if self.version in (3, 9):
            request = delete_offsets(group, ("t", 0), ("u", 0))
            self.talk.ask("delete offsets of an empty group", 0, request, self.connection)
        self.ask("delete", 2, DeleteGroupsRequest(groups_names=[group]))
        self.ask("delete again", 2, DeleteGroupsRequest(groups_names=[group]))
        self.ask("describe what is deleted", 5, DescribeGroupsRequest(groups=[group]))


# ---- requests


def join(member_id: str = "", **fields: Any) -> JoinGroupRequest:
    values: dict[str, Any] = {
        "member_id": member_id,
        "session_timeout_ms": 10_000,
        "protocol_type": "consumer",
        "protocols": [JoinGroupRequestProtocol(name="range", metadata=SUBSCRIPTION)],
    }
    return JoinGroupRequest(**(values | fields))


def sync(
    group: str,
    generation: int,
    member: str,
    given: dict[str, bytes] | None = None,
    **fields: Any,
) -> SyncGroupRequest:
    assignments = [
        SyncGroupRequestAssignment(member_id=name, assignment=blob)
        for name, blob in (given or {}).items()
    ]
    return SyncGroupRequest(
        group_id=group,
        generation_id=generation,
        member_id=member,
        assignments=assignments,
        **fields,
    )


def heartbeat(group: str, generation: int, member: str, **fields: Any) -> HeartbeatRequest:
    return HeartbeatRequest(group_id=group, generation_id=generation, member_id=member, **fields)


def leave(group: str, *members: tuple[str, str | None]) -> LeaveGroupRequest:
    identities = [MemberIdentity(member_id=name, group_instance_id=i) for name, i in members]
    return LeaveGroupRequest(group_id=group, members=identities)


def commit(
    group: str,
    offsets: list[tuple[str, int, int, str | None]],
    generation: int = -1,
    member: str = "",
    **fields: Any,
) -> OffsetCommitRequest:
    topics: dict[str, OffsetCommitRequestTopic] = {}
    for topic, index, offset, metadata in offsets:
        partition = OffsetCommitRequestPartition(
            partition_index=index, committed_offset=offset, committed_metadata=metadata
        )
        topics.setdefault(topic, OffsetCommitRequestTopic(name=topic)).partitions.append(partition)
    return OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=generation,
        member_id=member,
        topics=list(topics.values()),
        **fields,
    )


def old_fetch(group: str, wanted: dict[str, list[int]] | None) -> OffsetFetchRequest:
    topics = None
    if wanted is not None:
        topics = [
            OffsetFetchRequestTopic(name=name, partition_indexes=indexes)
            for name, indexes in wanted.items()
        ]
    return OffsetFetchRequest(group_id=group, topics=topics)


def new_fetch(
    *groups: tuple[str, dict[str, list[int]] | None], require_stable: bool = False
) -> OffsetFetchRequest:
    return OffsetFetchRequest(
        require_stable=require_stable,
        groups=[
            OffsetFetchRequestGroup(
                group_id=group,
                topics=None
                if wanted is None
                else [
                    OffsetFetchRequestTopics(name=name, partition_indexes=indexes)
                    for name, indexes in wanted.items()
                ],
            )
            for group, wanted in groups
        ],
    )


def delete_offsets(group: str, *partitions: tuple[str, int]) -> OffsetDeleteRequest:
    return OffsetDeleteRequest(
        group_id=group,
        topics=[
            OffsetDeleteRequestTopic(
                name=name, partitions=[OffsetDeleteRequestPartition(partition_index=index)]
            )
            for name, index in partitions
        ],
    )


# ---- answers


def plain(value: Any) -> Any:
    """A message as JSON data: lists sorted, values that differ between runs masked."""
    if isinstance(value, Struct):
        fields = {
            name: plain(getattr(value, name))
            for name in type(value).__slots__
            if name not in ("throttle_time_ms", "unknown_tags")
        }
        if fields.get("port", -1) > 0:
            fields["port"] = fields["node_id"] = 1
        if fields.get("error_message") not in (None, "NONE", ""):
            fields["error_message"] = "some text"
        return fields
    if isinstance(value, list):
        items = [plain(item) for item in value]
        return sorted(items, key=lambda item: UUID.sub("", json.dumps(item)))
    if isinstance(value, bytes | memoryview):
        return bytes(value).hex()
    return value
