"""Scenes of partitions and groups: what is produced, read, marked and committed, and what administrators see."""

from __future__ import annotations

from typing import Any

from txn_scene import CLIENT_ID, FETCH, OFFSETS, PRODUCE, Producer, Scene

from kwire.protocol.record_builder import build_batch
from kwire.protocol.records import Record
from kwire.protocol.schemas.api_versions import ApiVersionsRequest
from kwire.protocol.schemas.groups import (
    DeleteGroupsRequest,
    FindCoordinatorRequest,
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
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
)
from kwire.protocol.schemas.topics import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from kwire.protocol.schemas.transactions import (
    DescribeTransactionsRequest,
    ListTransactionsRequest,
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)

# --- partitions


def produce_without_adding(s: Scene) -> None:
    topic = s.topic()
    who = s.init(s.tid())
    for version in range(max(3, s.talker.ranges[0][0]), s.versions[PRODUCE] + 1):
        s.produce(who, topic, label=f"produce without adding, version {version}", version=version)
    s.settle(who)
    s.produce(who.but(tid=s.tid("nobody")), topic, 1, label="of an unknown transactional id")
    s.produce(who, topic, 1, label="of no transactional id", tid=None)
    s.produce(who, topic, 1, label="of the transactional id that is a blank", tid=" ")
    s.produce(who.but(id=who.id + 1_000_000), topic, 1, label="of another producer id")
    s.produce(who.but(epoch=who.epoch + 1), topic, 1, label="of a later epoch")
    s.settle(who)
    s.fetch(topic, committed=False)


def produce_in_a_transaction(s: Scene) -> None:
    topic = s.topic()
    who = s.init(s.tid())
    s.begin(who, (topic, 0))
    s.produce(who, topic, label="the next", records=3)
    s.produce(who, topic, label="the last again", sequence=1, records=3)
    s.produce(who, topic, label="the first again", sequence=0)
    s.produce(who, topic, label="a gap", sequence=9)
    s.produce(who, topic, label="not transactional", is_transactional=False)
    s.produce(who, topic, label="acks 1", acks=1)
    s.produce(who, topic, 1, label="a partition that is not added", sequence=0)
    s.produce(who, topic, 1, label="first of a partition with sequence 5", sequence=5)
    s.plain_produce(topic)
    s.describe_producers(topic, 0, 1)
    s.end(who, True)
    s.settle(who)
    s.describe_producers(topic, 0, 1)
    s.produce(who, topic, label="after the end")
    s.produce(who, topic, label="not transactional, after the end", is_transactional=False)
    s.settle(who)
    s.fetch(topic, committed=False)


def produce_of_a_later_epoch(s: Scene) -> None:
    """Kafka 3.9 verifies nothing once the partition has an open transaction, and its markers are refused then."""
    topic = s.topic()
    who = s.init(s.tid())
    s.begin(who, (topic, 0))
    later = who.but(epoch=who.epoch + 1)
    s.produce(later, topic, label="a later epoch, a gap", sequence=1)
    s.produce(later, topic, label="a later epoch", sequence=0)
    s.describe_producers(topic, 0)
    s.produce(who, topic, label="the epoch before")
    s.fetch(topic, committed=False)


def produce_odd_batches(s: Scene) -> None:
    topic = s.topic()
    who = s.init(s.tid())
    s.begin(who, (topic, 0))
    fields: dict[str, Any] = {
        "producer_id": who.id,
        "producer_epoch": who.epoch,
        "base_sequence": 1,
    }
    record = [Record(-1, 1_700_000_000_000, b"k", b"v")]
    marker = [Record(-1, 1_700_000_000_000, b"\0\0\0\1", b"\0\0\0\0\0\0")]
    for label, data in {
        "a control batch": build_batch(marker, is_control=True, is_transactional=True, **fields),
        "transactional, no producer id": build_batch(record, is_transactional=True),
        "two batches": build_batch(record, is_transactional=True, **fields) * 2,
        "transactional, no sequence": build_batch(
            record, is_transactional=True, producer_id=who.id, producer_epoch=who.epoch
        ),
    }.items():
        s.produce(who, topic, label=label, batch=data, sequence=1)
    s.end(who, False)
    s.settle(who)
    s.fetch(topic, committed=False)


def read_what_is_committed(s: Scene) -> None:
    topic = s.topic()
    a, b = s.init(s.tid("a")), s.init(s.tid("b"))
    s.plain_produce(topic)
    s.begin(a, (topic, 0))
    s.begin(b, (topic, 0))
    s.plain_produce(topic, records=2)
    s.fetch(topic)
    s.fetch(topic, committed=False)
    s.list_offsets(topic)
    s.describe_producers(topic, 0)
    s.end(a, False, "a aborts")
    s.settle(a)
    s.fetch(topic)
    s.begin(a, (topic, 0))
    s.end(b, True, "b commits")
    s.settle(b)
    s.list_offsets(topic)
    for offset in (0, 1, 3, 6, 7, 9):
        s.fetch(topic, offset=offset)
    s.end(a, False, "a aborts again")
    s.settle(a)
    for version in range(max(4, s.talker.ranges[1][0]), s.versions[FETCH] + 1):
        s.fetch(topic, version=version)
    for offset in (0, 1, 2, 3, 5, 6, 8, 9):
        s.fetch(topic, offset=offset)
    s.fetch(topic, committed=False)
    s.list_offsets(topic)


def delete_records_of_an_open_transaction(s: Scene) -> None:
    topic = s.topic()
    who = s.init(s.tid())
    s.plain_produce(topic)
    s.begin(who, (topic, 0))
    s.plain_produce(topic, records=2)

    def delete(offset: int) -> None:
        partition = DeleteRecordsPartition(partition_index=0, offset=offset)
        topics = [DeleteRecordsTopic(name=topic, partitions=[partition])]
        request = DeleteRecordsRequest(topics=topics, timeout_ms=10_000)
        s.ask(f"delete records before {offset}", 2, request)

    delete(1)
    s.list_offsets(topic)
    delete(3)
    s.list_offsets(topic)
    s.fetch(topic, offset=3)
    s.describe_producers(topic, 0)
    delete(-1)
    s.list_offsets(topic)
    s.produce(who, topic, label="produce on")
    s.end(who, False)
    s.settle(who)
    s.list_offsets(topic)
    s.fetch(topic, offset=4)


def markers_of_an_administrator(s: Scene) -> None:
    """WriteTxnMarkers, with which `kafka-transactions abort` ends what hangs."""
    topic = s.topic()
    newest = s.talker.ranges[27]
    for version in range(newest[0], newest[1] + 1):
        who = s.init(s.tid(f"v{version}"))
        s.begin(who, (topic, 0), (topic, 1))
        s.describe_producers(topic, 0)
        write(s, version, (who, False, 0, topic, [0]), label="abort one of two partitions")
        s.describe_producers(topic, 0, 1)
        s.produce(who, topic, label="produce afterwards")
        s.fetch(topic)
        s.end(who, True)
        s.settle(who)
        s.fetch(topic)
    s.fetch(topic, committed=False)
    s.fetch(topic, 1, committed=False)


def odd_markers(s: Scene) -> None:
    topic = s.topic()
    version = s.talker.ranges[27][1]
    s.init(s.tid("a"))
    a, b = s.init(s.tid("a")), s.init(s.tid("b"))
    s.begin(a, (topic, 0))
    s.begin(b, (topic, 0), (topic, 1))
    write(s, version, (a.but(epoch=a.epoch - 1), False, 5, topic, [0]), label="of an earlier epoch")
    write(s, version, (a.but(epoch=-1), False, 5, topic, [0]), label="of epoch -1")
    write(s, version, (a, False, -1, topic, [0]), label="of a coordinator of epoch -1")
    write(s, version, (a, True, 5, "none", [0]), label="an unknown topic")
    write(s, version, (a, True, 5, topic, [0, 9]), label="an unknown partition, too")
    write(s, version, (b, True, 5, topic, [0]), (b, False, 5, topic, [1]), label="two markers")
    write(s, version, (a, True, 3, topic, [0]), label="of an older coordinator")
    write(s, version, (a, True, 5, topic, [0]), label="where no transaction is open")
    write(s, version, (a.but(epoch=a.epoch + 1), False, 5, topic, [0]), label="of a later epoch")
    stranger = Producer(None, a.id + 500_000, 0)
    write(s, version, (stranger, True, 0, topic, [1]), label="of an unknown producer")
    write(s, version, label="no markers")
    s.describe_producers(topic, 0, 1)
    s.produce(a, topic, label="produce of the earlier epoch")
    s.fetch(topic, committed=False)
    s.fetch(topic, 1, committed=False)


def write(
    s: Scene, version: int, *rows: tuple[Producer, bool, int, str, list[int]], label: str
) -> None:
    markers = [
        WritableTxnMarker(
            producer_id=who.id,
            producer_epoch=who.epoch,
            transaction_result=commit,
            topics=[WritableTxnMarkerTopic(name=topic, partition_indexes=indexes)],
            coordinator_epoch=epoch,
        )
        for who, commit, epoch, topic, indexes in rows
    ]
    s.ask(f"write markers: {label}", version, WriteTxnMarkersRequest(markers=markers))


# --- groups


def offsets_of_a_transaction(s: Scene) -> None:
    topic, group = s.topic(), s.prefix
    s.find_group(group)
    who = s.init(s.tid())
    for commit, offset in ((True, 5), (False, 9), (True, 7)):
        s.add_offsets(who, group)
        s.commit_offsets(who, group, (topic, 0, offset))
        s.commit_offsets(who, group, (topic, 0, offset + 1), label="commit further offsets")
        for stable in (True, False):
            s.offsets(group, topic, 0, 1, stable=stable)
        s.settle(who, "describe")
        s.end(who, commit)
        s.settle(who)
        for stable in (True, False):
            s.offsets(group, topic, 0, 1, stable=stable)
    s.logs(who, group)


def offsets_of_two_producers(s: Scene) -> None:
    topic, group = s.topic(), s.prefix
    s.find_group(group)
    a, b = s.init(s.tid("a")), s.init(s.tid("b"))
    for who, offset in ((a, 5), (b, 9)):
        s.add_offsets(who, group)
        s.commit_offsets(who, group, (topic, 0, offset), (topic, offset % 2, offset))
    plain_commit(s, group, topic, 1, 3)
    s.offsets(group, topic, 0, 1)
    fetch_all(s, group)
    s.end(b, True, "b commits")
    s.settle(b)
    s.offsets(group, topic, 0, 1)
    plain_commit(s, group, topic, 0, 4)
    s.offsets(group, topic, 0, 1, stable=False)
    s.end(a, True, "a commits")
    s.settle(a)
    s.offsets(group, topic, 0, 1)
    fetch_all(s, group)
    s.logs(a, group)


def plain_commit(s: Scene, group: str, topic: str, index: int, offset: int) -> None:
    partition = OffsetCommitRequestPartition(
        partition_index=index, committed_offset=offset, committed_metadata=""
    )
    topics = [OffsetCommitRequestTopic(name=topic, partitions=[partition])]
    s.ask("commit without a transaction", 7, OffsetCommitRequest(group_id=group, topics=topics))


def fetch_all(s: Scene, group: str) -> None:
    for stable in (True, False):
        request = OffsetFetchRequest(
            groups=[OffsetFetchRequestGroup(group_id=group, topics=None)], require_stable=stable
        )
        s.ask(f"fetch all offsets, {'stable' if stable else 'unstable'}", 8, request)


def odd_commits_of_offsets(s: Scene) -> None:
    topic, group = s.topic(), s.prefix
    s.find_group(group)
    who = s.init(s.tid())
    rows = ((topic, 0, 5),)
    newest = s.talker.ranges[28]
    for version in range(newest[0], min(s.versions[OFFSETS], newest[1]) + 1):
        s.commit_offsets(
            who, group, *rows, version=version, label=f"without adding, version {version}"
        )
    s.settle(who, "describe")
    s.add_offsets(who, "", "add offsets of the empty group")
    s.add_offsets(who.but(epoch=who.epoch + 1), group, "add offsets with a later epoch")
    s.add_offsets(who.but(epoch=-1), group, "add offsets with epoch -1")
    s.add_offsets(who.but(id=who.id + 1_000_000), group, "add offsets with another id")
    s.add_offsets(who.but(tid=s.tid("nobody")), group, "add offsets of nobody")
    s.add_offsets(who.but(tid=""), group, "add offsets of the empty id")
    s.add_offsets(who, group)
    for version in range(newest[0], min(s.versions[OFFSETS], newest[1]) + 1):
        s.commit_offsets(who, group, *rows, version=version, label=f"commit, version {version}")
    s.commit_offsets(who, "", *rows, label="to the empty group")
    s.commit_offsets(who, group, label="nothing")
    s.commit_offsets(who, group, ("none", 0, 5), label="an unknown topic")
    s.commit_offsets(who, group, (topic, 9, 5), (topic, 1, 6), label="an unknown partition, too")
    s.commit_offsets(who, group, *rows, metadata="x" * 5_000, label="too much metadata")
    s.commit_offsets(who, group, *rows, metadata=None, label="no metadata")
    s.commit_offsets(who, group, (topic, 0, -1), label="offset -1")
    if s.versions[OFFSETS] >= 3:
        s.commit_offsets(who, group, *rows, label="of a stranger", member_id="stranger")
        for generation in (0, 1):
            s.commit_offsets(
                who,
                group,
                *rows,
                label=f"generation {generation}",
                member_id="stranger",
                generation_id_or_member_epoch=generation,
            )
    s.end(who, True)
    s.settle(who)
    s.offsets(group, topic, 0, 1)
    s.logs(who, group)


def offsets_of_another_producer(s: Scene) -> None:
    """Not ended: the markers of a transaction are refused where a later epoch has written."""
    topic, group = s.topic(), s.prefix
    s.find_group(group)
    who = s.init(s.tid())
    rows = ((topic, 0, 5),)
    s.add_offsets(who, group)
    for word in ("before", "after"):
        s.commit_offsets(who.but(epoch=-1), group, *rows, label=f"{word}: with epoch -1")
        s.commit_offsets(who.but(epoch=who.epoch + 1), group, *rows, label=f"{word}: a later epoch")
        s.commit_offsets(who.but(id=who.id + 1_000_000), group, *rows, label=f"{word}: another id")
        s.commit_offsets(who.but(tid=s.tid("nobody")), group, *rows, label=f"{word}: of nobody")
        s.commit_offsets(who, group, *rows)
    s.offsets(group, topic, 0)


def offsets_of_a_member(s: Scene) -> None:
    if s.versions[OFFSETS] < 3:
        return
    topic, group = s.topic(), s.prefix
    s.find_group(group)
    member = joined(s, group, "i1")
    who = s.init(s.tid())
    s.add_offsets(who, group)
    rows = ((topic, 0, 5),)
    for label, generation, name, instance in (
        ("of nobody", -1, "", None),
        ("of the member without generation", -1, member, None),
        ("of the member", 1, member, None),
        ("of the member with its instance", 1, member, "i1"),
        ("of generation 0", 0, member, None),
        ("of generation 2", 2, member, None),
        ("of a stranger", 1, "stranger", None),
        ("of another member with the instance", 1, "stranger", "i1"),
        ("of another instance", 1, member, "i2"),
        ("of a generation alone", 1, "", None),
    ):
        s.commit_offsets(
            who,
            group,
            *rows,
            label=label,
            generation_id_or_member_epoch=generation,
            member_id=name,
            group_instance_id=instance,
        )
    s.offsets(group, topic, 0)
    s.end(who, True)
    s.settle(who)
    s.offsets(group, topic, 0)
    request = LeaveGroupRequest(
        group_id=group, members=[MemberIdentity(member_id=member, group_instance_id="i1")]
    )
    s.ask("leave", 5, request)
    s.add_offsets(who, group)
    s.commit_offsets(
        who, group, *rows, label="after leaving", generation_id_or_member_epoch=1, member_id=member
    )
    s.commit_offsets(who, group, (topic, 0, 8), label="of nobody after leaving")
    s.end(who, True)
    s.settle(who)


def joined(s: Scene, group: str, instance: str) -> str:
    request = JoinGroupRequest(
        group_id=group,
        session_timeout_ms=45_000,
        rebalance_timeout_ms=45_000,
        group_instance_id=instance,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
    )
    member = s.talker.ask(7, request).member_id
    request = SyncGroupRequest(
        group_id=group,
        generation_id=1,
        member_id=member,
        group_instance_id=instance,
        assignments=[SyncGroupRequestAssignment(member_id=member, assignment=b"")],
    )
    s.ask("sync", 3, request)
    return str(member)


def groups_with_pending_offsets(s: Scene) -> None:
    topic, group = s.topic(), s.prefix
    s.find_group(group)
    who = s.init(s.tid())
    s.add_offsets(who, group)
    s.commit_offsets(who, group, (topic, 0, 5))
    partition = OffsetDeleteRequestPartition(partition_index=0)
    topics = [OffsetDeleteRequestTopic(name=topic, partitions=[partition])]
    s.ask("delete offsets", 0, OffsetDeleteRequest(group_id=group, topics=topics))
    s.offsets(group, topic, 0)
    s.ask("delete the group", 2, DeleteGroupsRequest(groups_names=[group]))
    s.offsets(group, topic, 0)
    s.end(who, True)
    s.settle(who)
    s.offsets(group, topic, 0)
    s.add_offsets(who, group)
    s.commit_offsets(who, group, (topic, 0, 6))
    s.ask("delete the group with a pending offset", 2, DeleteGroupsRequest(groups_names=[group]))
    s.end(who, True)
    s.settle(who)
    s.offsets(group, topic, 0)
    s.logs(who, group)


# --- administrators


def coordinators(s: Scene) -> None:
    for version in range(1, 7):
        keys: dict[str, Any] = {"key": s.tid()}
        if version >= 4:
            keys = {"coordinator_keys": [s.tid(), s.tid("y")]}
        s.ask(f"find, version {version}", version, FindCoordinatorRequest(key_type=1, **keys))
    s.ask("find the empty id", 2, FindCoordinatorRequest(key_type=1, key=""))
    s.ask(
        "find the empty id, version 4", 4, FindCoordinatorRequest(key_type=1, coordinator_keys=[""])
    )


def advertised(s: Scene) -> None:
    request = ApiVersionsRequest(client_software_name=CLIENT_ID, client_software_version="1")
    answer = s.talker.ask(3, request)
    wanted = {0, 1, 2, 9, 10, 22, 24, 25, 26, 27, 28, 61, 65, 66}
    rows = [key for key in answer.api_keys if key.api_key in wanted]
    s.note("versions", rows)
    features = [row for row in answer.finalized_features if row.name == "transaction.version"]
    s.note("finalised", features)


def list_transactions(s: Scene) -> None:
    topic = s.topic()
    empty, open_one, done = (s.init(s.tid(word)) for word in ("empty", "open", "done"))
    s.begin(open_one, (topic, 0))
    s.begin(done, (topic, 1))
    s.end(done, True)
    s.settle(done)

    def listed(label: str, version: int = 0, **filters: Any) -> None:
        answer = s.talker.ask(version, ListTransactionsRequest(**filters))
        rows = [
            row
            for row in answer.transaction_states
            if row.transactional_id.startswith(s.prefix + "-")
        ]
        s.note(label, [answer.error_code, answer.unknown_state_filters, rows])

    listed("all")
    for states in (
        ["Ongoing"],
        ["Empty", "CompleteCommit"],
        ["ongoing"],
        ["Odd", "Ongoing"],
        ["Odd"],
        ["Dead"],
    ):
        listed(f"in {states}", state_filters=states)
    listed("of a producer", producer_id_filters=[empty.id])
    listed("of two producers", producer_id_filters=[empty.id, done.id])
    listed(
        "of a producer that is not open", producer_id_filters=[empty.id], state_filters=["Ongoing"]
    )
    listed("of an unknown producer", producer_id_filters=[999_999_999])
    s.pass_ms(300)
    newest = s.talker.ranges[66][1]
    if newest >= 1:
        for duration in (-1, 0, 200, 100_000):
            listed(f"for {duration} ms", 1, duration_filter=duration)
    if newest >= 2:
        for pattern in ("", ".*-open", "open", f"{s.prefix}-(open|done)", "(", None):
            listed(f"like {pattern}", 2, transactional_id_pattern=pattern)
    request = DescribeTransactionsRequest(
        transactional_ids=[str(open_one.tid), s.tid("nobody"), "", str(done.tid), str(open_one.tid)]
    )
    s.ask("describe", 0, request)
    s.ask("describe nothing", 0, DescribeTransactionsRequest())
    s.describe_producers(topic, 0, 1, 9)
    s.describe_producers("none", 0)


SCENES = (
    produce_without_adding,
    produce_in_a_transaction,
    produce_of_a_later_epoch,
    produce_odd_batches,
    read_what_is_committed,
    delete_records_of_an_open_transaction,
    markers_of_an_administrator,
    odd_markers,
    offsets_of_a_transaction,
    offsets_of_two_producers,
    odd_commits_of_offsets,
    offsets_of_another_producer,
    offsets_of_a_member,
    groups_with_pending_offsets,
    coordinators,
    advertised,
    list_transactions,
)
