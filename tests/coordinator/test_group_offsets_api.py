"""OffsetCommit, OffsetFetch and OffsetDelete through the whole broker, and their log records."""

from __future__ import annotations

from typing import Any

import pytest
from group_kit import GroupBroker

from kwire.coordinator.group_records import decode_record
from kwire.protocol.errors import ErrorCode
from kwire.protocol.records import iter_batches, iter_records
from kwire.protocol.schemas.groups import FindCoordinatorRequest, JoinGroupRequest
from kwire.protocol.schemas.groups import JoinGroupRequestProtocol as Protocol
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

NONE = ErrorCode.NONE
UNKNOWN_TOPIC = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


class Offsets(GroupBroker):
    """A broker with topics t (two partitions) and u, and short words for offset requests."""

    def __init__(self, settings: dict[str, str] | None = None) -> None:
        super().__init__(settings)
        self.ids = {"t": self.create_topic("t", 2), "u": self.create_topic("u")}
        self.ask(0, FindCoordinatorRequest(key="g"))

    def topic_id(self, name: str) -> bytes:
        return self.ids.get(name, b"\x01" * 16)

    def commit(
        self, version: int, topic: str = "t", partition: int = 0, offset: int = 5, **fields: Any
    ) -> ErrorCode:
        values = {
            "partition_index": partition,
            "committed_offset": offset,
            "committed_metadata": "meta",
        }
        for name in ("committed_leader_epoch", "commit_timestamp", "committed_metadata"):
            if name in fields:
                values[name] = fields.pop(name)
        request = OffsetCommitRequest(
            **({"group_id": "g"} | fields),
            topics=[
                OffsetCommitRequestTopic(
                    name="" if version >= 10 else topic,
                    topic_id=self.topic_id(topic) if version >= 10 else bytes(16),
                    partitions=[OffsetCommitRequestPartition(**values)],
                )
            ],
        )
        answer = self.ask(version, request)
        [answered] = answer.topics
        assert answered.topic_id == (self.topic_id(topic) if version >= 10 else bytes(16))
        assert answered.name == ("" if version >= 10 else topic)
        assert answered.partitions[0].partition_index == partition
        return ErrorCode(answered.partitions[0].error_code)

    def fetch(self, version: int, topic: str = "t", partition: int = 0, group: str = "g") -> Any:
        """The one partition's answer."""
        if version >= 8:
            wanted = OffsetFetchRequestTopics(
                name="" if version >= 10 else topic,
                topic_id=self.topic_id(topic) if version >= 10 else bytes(16),
                partition_indexes=[partition],
            )
            groups = [OffsetFetchRequestGroup(group_id=group, topics=[wanted])]
            [answer] = self.ask(version, OffsetFetchRequest(groups=groups)).groups
            assert answer.group_id == group
        else:
            topics = [OffsetFetchRequestTopic(name=topic, partition_indexes=[partition])]
            answer = self.ask(version, OffsetFetchRequest(group_id=group, topics=topics))
        assert answer.error_code == 0
        assert answer.topics[0].name == ("" if version >= 10 else topic)
        return answer.topics[0].partitions[0]


@pytest.fixture
def broker() -> Offsets:
    return Offsets()


@pytest.mark.parametrize("fetch_version", range(11))
@pytest.mark.parametrize("commit_version", [0, 1, 2, 5, 6, 8, 10])
def test_an_offset_is_fetched_in_every_version(
    broker: Offsets, commit_version: int, fetch_version: int
) -> None:
    epoch = {"committed_leader_epoch": 3} if commit_version >= 6 else {}
    assert broker.commit(commit_version, **epoch) is NONE
    found = broker.fetch(fetch_version)
    assert (found.committed_offset, found.metadata, found.error_code) == (5, "meta", 0)
    assert found.committed_leader_epoch == (3 if epoch and fetch_version >= 5 else -1)
    missing = broker.fetch(fetch_version, partition=1)
    assert (missing.committed_offset, missing.metadata) == (-1, "")
    assert missing.error_code == (UNKNOWN_TOPIC if fetch_version == 0 else NONE)


@pytest.mark.parametrize("version", range(11))
def test_commits_to_unknown_partitions_are_refused(broker: Offsets, version: int) -> None:
    unknown = ErrorCode.UNKNOWN_TOPIC_ID if version >= 10 else UNKNOWN_TOPIC
    assert broker.commit(version, topic="none") is unknown
    assert broker.commit(version, partition=2) is UNKNOWN_TOPIC
    assert broker.commit(version, partition=-1) is UNKNOWN_TOPIC


def test_good_and_bad_partitions_of_a_commit_are_answered_in_order(broker: Offsets) -> None:
    def topic(name: str, *partitions: tuple[int, str]) -> OffsetCommitRequestTopic:
        return OffsetCommitRequestTopic(
            name=name,
            partitions=[
                OffsetCommitRequestPartition(
                    partition_index=index, committed_offset=index, committed_metadata=metadata
                )
                for index, metadata in partitions
            ],
        )

    request = OffsetCommitRequest(
        group_id="g",
        topics=[topic("none", (0, "")), topic("t", (7, ""), (1, "x" * 5000), (0, "ok"))],
    )
    answer = broker.ask(8, request)
    assert [
        (each.name, [(p.partition_index, p.error_code) for p in each.partitions])
        for each in answer.topics
    ] == [
        ("none", [(0, UNKNOWN_TOPIC)]),
        ("t", [(7, UNKNOWN_TOPIC), (1, ErrorCode.OFFSET_METADATA_TOO_LARGE), (0, NONE)]),
    ]
    assert broker.fetch(5).metadata == "ok"


def test_the_limit_on_metadata_is_configurable() -> None:
    broker = Offsets({"offset.metadata.max.bytes": "3"})
    assert broker.commit(8) is ErrorCode.OFFSET_METADATA_TOO_LARGE
    assert broker.commit(8, committed_metadata="abc") is NONE
    assert broker.commit(8, committed_metadata=None) is NONE
    assert broker.fetch(8).metadata == ""


@pytest.mark.parametrize("version", [1, 2, 5, 8, 9, 10])
def test_an_error_of_the_request_is_in_every_partition(broker: Offsets, version: int) -> None:
    error = broker.commit(version, generation_id_or_member_epoch=4, member_id="m")
    missing = ErrorCode.GROUP_ID_NOT_FOUND if version >= 9 else ErrorCode.ILLEGAL_GENERATION
    assert error is missing


def test_version_1_sets_its_own_timestamp_and_versions_2_to_4_their_retention() -> None:
    broker = Offsets()
    wall_ms = broker.clock.wall_ms
    broker.commit(1, commit_timestamp=wall_ms - 6 * 24 * 3600 * 1000)
    broker.commit(3, partition=1, retention_time_ms=1_000_000)
    broker.advance(600_000)
    assert broker.fetch(5, partition=1).committed_offset == 5
    broker.advance(600_000)
    assert broker.fetch(5, partition=1).committed_offset == -1
    assert broker.fetch(5).committed_offset == 5
    broker.advance(24 * 3600 * 1000)
    assert broker.fetch(5).committed_offset == -1, "seven days after its own timestamp"


def test_all_offsets_of_a_group_are_fetched_by_null(broker: Offsets) -> None:
    broker.commit(8)
    broker.commit(8, topic="u")
    for version in (2, 7):
        answer = broker.ask(version, OffsetFetchRequest(group_id="g", topics=None))
        assert sorted(topic.name for topic in answer.topics) == ["t", "u"]
    groups = [OffsetFetchRequestGroup(group_id=name, topics=None) for name in ("g", "none")]
    for version in (8, 9):
        known, unknown = broker.ask(version, OffsetFetchRequest(groups=groups)).groups
        assert sorted(topic.name for topic in known.topics) == ["t", "u"]
        assert (unknown.group_id, unknown.error_code, unknown.topics) == ("none", 0, [])
    [known, _] = broker.ask(10, OffsetFetchRequest(groups=groups)).groups
    assert {topic.topic_id for topic in known.topics} == set(broker.ids.values())
    assert broker.ask(8, OffsetFetchRequest()).groups == []


def test_an_unknown_topic_id_is_named_as_such(broker: Offsets) -> None:
    found = broker.fetch(10, topic="none")
    assert found.error_code == ErrorCode.UNKNOWN_TOPIC_ID and found.committed_offset == -1


@pytest.mark.parametrize("version", range(11))
def test_a_fetch_from_the_wrong_broker_says_so_where_the_version_has_room(version: int) -> None:
    broker = GroupBroker()
    error = ErrorCode.NOT_COORDINATOR
    if version >= 8:
        groups = [OffsetFetchRequestGroup(group_id="g", topics=None)]
        assert broker.ask(version, OffsetFetchRequest(groups=groups)).groups[0].error_code == error
        return
    topics = [OffsetFetchRequestTopic(name="t", partition_indexes=[0, 1])]
    answer = broker.ask(version, OffsetFetchRequest(group_id="g", topics=topics))
    if version >= 2:
        assert answer.error_code == error and answer.topics == []
    else:
        assert [each.error_code for each in answer.topics[0].partitions] == [error, error]


def test_stable_fetches_are_answered(broker: Offsets) -> None:
    broker.commit(8)
    groups = [OffsetFetchRequestGroup(group_id="g", topics=None)]
    answer = broker.ask(9, OffsetFetchRequest(groups=groups, require_stable=True))
    assert answer.groups[0].topics[0].partitions[0].committed_offset == 5


def test_offsets_survive_a_kill_and_their_topic_does_not(broker: Offsets) -> None:
    broker.commit(8)
    broker.commit(8, topic="u", offset=9)
    broker.restart()
    assert broker.fetch(8).committed_offset == 5
    broker.delete_topic("t")
    broker.restart()
    broker.ids["t"] = broker.create_topic("t")
    assert broker.fetch(8).committed_offset == -1
    assert broker.fetch(8, topic="u").committed_offset == 9


def delete(broker: Offsets, *partitions: tuple[str, int], group: str = "g") -> Any:
    return broker.ask(
        0,
        OffsetDeleteRequest(
            group_id=group,
            topics=[
                OffsetDeleteRequestTopic(
                    name=name, partitions=[OffsetDeleteRequestPartition(partition_index=index)]
                )
                for name, index in partitions
            ],
        ),
    )


def test_offsets_are_deleted_one_by_one(broker: Offsets) -> None:
    broker.commit(8)
    answer = delete(broker, ("t", 0), ("t", 1), ("none", 0), ("t", 9))
    codes = [topic.partitions[0].error_code for topic in answer.topics]
    assert (answer.error_code, codes) == (0, [NONE, NONE, UNKNOWN_TOPIC, UNKNOWN_TOPIC])
    assert broker.fetch(8).committed_offset == -1
    missing = delete(broker, ("t", 0), group="none")
    assert missing.error_code == ErrorCode.GROUP_ID_NOT_FOUND and missing.topics == []
    assert delete(broker, ("t", 0), group="").error_code == ErrorCode.INVALID_GROUP_ID


def test_the_empty_group_id_keeps_offsets(broker: Offsets) -> None:
    assert broker.commit(8, group_id="") is NONE
    assert broker.fetch(8, group="").committed_offset == 5


def test_a_static_member_commits_under_its_instance(broker: Offsets) -> None:
    request = JoinGroupRequest(
        group_id="g",
        group_instance_id="i",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        protocol_type="consumer",
        protocols=[Protocol(name="range", metadata=b"")],
    )
    member = broker.ask(5, request).member_id
    fields = {"member_id": member, "generation_id_or_member_epoch": 1}
    assert broker.commit(7, **fields, group_instance_id="i") is ErrorCode.REBALANCE_IN_PROGRESS
    assert broker.commit(7, **fields, group_instance_id="j") is ErrorCode.UNKNOWN_MEMBER_ID
    fields["member_id"] = "other"
    assert broker.commit(7, **fields, group_instance_id="i") is ErrorCode.FENCED_INSTANCE_ID


def test_the_log_holds_kafkas_records(broker: Offsets) -> None:
    broker.commit(8)
    index = broker.services.group_coordinator.partition_for("g")
    log = broker.services.replica_manager.partition("__consumer_offsets", index).log
    data = log.read(0, 1 << 20, log.log_end_offset).records
    [header] = list(iter_batches(data))
    [record] = list(iter_records(data, header))
    assert record.timestamp == broker.clock.wall_ms
    assert header.producer_id == -1 and header.compression == "none"
    assert record.key == b"\x00\x01" + b"\x00\x01g" + b"\x00\x01t" + bytes(4)
    assert record.value is not None and record.value[:2] == b"\x00\x03"
    decoded: Any = decode_record(record.key, record.value)
    assert decoded.value.offset == 5


def test_compression_of_the_offsets_topic_is_obeyed() -> None:
    broker = Offsets({"offsets.topic.compression.codec": "1"})
    broker.commit(8)
    index = broker.services.group_coordinator.partition_for("g")
    log = broker.services.replica_manager.partition("__consumer_offsets", index).log
    [header] = list(iter_batches(log.read(0, 1 << 20, log.log_end_offset).records))
    assert header.compression == "gzip"
    broker.restart()
    assert broker.fetch(8).committed_offset == 5
