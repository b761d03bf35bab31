"""Committed offsets as shard calls: validation, fetches, expiry and visibility of reads."""

from __future__ import annotations

import pytest
from shard_kit import ShardKit, subscription

from kwire.coordinator.group_records import offset_commit_record
from kwire.coordinator.offset_store import OffsetAndMetadata
from kwire.protocol.errors import ErrorCode, KafkaError
from kwire.protocol.schemas.offsets import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)

NONE = ErrorCode.NONE
DAY_MS = 24 * 60 * 60 * 1000


def delete(kit: ShardKit, *topics: str, group: str = "g") -> list[ErrorCode]:
    request = OffsetDeleteRequest(
        group_id=group,
        topics=[
            OffsetDeleteRequestTopic(name=topic, partitions=[OffsetDeleteRequestPartition()])
            for topic in topics
        ],
    )
    response = kit.append(kit.shard.delete_offsets(request))
    return [ErrorCode(topic.partitions[0].error_code) for topic in response.topics]


# ---- who may commit


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({}, NONE),
        ({"generation": 1}, ErrorCode.ILLEGAL_GENERATION),
        ({"generation": 3}, ErrorCode.ILLEGAL_GENERATION),
        ({"member_id": "stranger"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"member_id": "", "generation": -1}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"instance": "i"}, ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
def test_only_members_of_the_generation_commit_to_a_stable_group(
    arguments: dict[str, object], error: ErrorCode
) -> None:
    kit = ShardKit()
    _, member = kit.stable_group(2)
    call: dict[str, object] = {"member_id": member, "generation": 2} | arguments
    assert kit.commit_offset(5, **call) is error  # type: ignore[arg-type]
    assert kit.offset() == (5 if error is NONE else -1)


def test_a_member_commits_during_the_join_phase_but_not_during_the_sync_phase() -> None:
    kit = ShardKit()
    leader, follower = kit.stable_group(2)
    kit.join(leader)
    assert kit.commit_offset(5, member_id=follower, generation=2) is NONE
    kit.join(follower)
    error = kit.commit_offset(6, member_id=follower, generation=3)
    assert error is ErrorCode.REBALANCE_IN_PROGRESS
    assert kit.offset() == 5


def test_anybody_commits_to_a_group_without_members() -> None:
    kit = ShardKit()
    assert kit.commit_offset(5) is NONE
    assert kit.state() == "Empty"
    assert kit.commit_offset(6, member_id="m", generation=3) is ErrorCode.UNKNOWN_MEMBER_ID
    assert kit.commit_offset(7, member_id="m") is NONE, "generation -1 is nobody's"
    assert kit.offset() == 7


@pytest.mark.parametrize(
    ("version", "error"),
    [(8, ErrorCode.ILLEGAL_GENERATION), (9, ErrorCode.GROUP_ID_NOT_FOUND)],
)
def test_a_generation_of_an_unknown_group_is_refused(version: int, error: ErrorCode) -> None:
    assert ShardKit().commit_offset(1, generation=1, member_id="m", version=version) is error


def test_a_fenced_static_member_does_not_commit() -> None:
    kit = ShardKit()
    old = kit.join(instance="i").value.member_id
    kit.sync(old, 1, {}, instance="i")
    kit.join(instance="i")
    error = kit.commit_offset(1, member_id=old, generation=1, instance="i")
    assert error is ErrorCode.FENCED_INSTANCE_ID


# ---- what comes back


@pytest.mark.parametrize("metadata", ["", "x", "ünïcode \U0001f600", "a" * 4096, None])
def test_an_offset_is_fetched_as_committed(metadata: str | None) -> None:
    kit = ShardKit()
    assert kit.commit_offset(2**62, metadata=metadata, leader_epoch=7) is NONE
    for shard in (kit.shard, kit.restart().shard):
        [(topic, [(index, error, value)])] = shard.fetch_offsets("g", None, False)
        assert value is not None
        assert (topic, index, error) == ("t", 0, NONE)
        assert value.committed_offset == 2**62
        assert value.leader_epoch == 7
        assert value.metadata == (metadata or "")


@pytest.mark.parametrize("metadata", ["a" * 4097, "\U0001f600" * 2049])
def test_metadata_that_is_too_long_is_refused_for_its_partition(metadata: str) -> None:
    kit = ShardKit()
    assert kit.commit_offset(1, metadata=metadata) is ErrorCode.OFFSET_METADATA_TOO_LARGE
    assert kit.log == []


def test_the_limit_counts_utf16_units_as_java_does() -> None:
    assert ShardKit().commit_offset(1, metadata="\U0001f600" * 2048) is NONE


def test_a_fetch_returns_the_requested_partitions_and_a_fetch_of_all_the_committed_ones() -> None:
    kit = ShardKit()
    kit.commit_offset(1, topic="a", partition=3)
    answer = kit.shard.fetch_offsets("g", [("a", [3, 4]), ("b", [0])], False)
    assert [
        (topic, [(i, None if v is None else v.committed_offset) for i, _, v in parts])
        for topic, parts in answer
    ] == [("a", [(3, 1), (4, None)]), ("b", [(0, None)])]
    assert [topic for topic, _ in kit.shard.fetch_offsets("g", None, False)] == ["a"]
    assert kit.shard.fetch_offsets("unknown", None, False) == []
    assert kit.offset("unknown") == -1


# ---- the high watermark


def test_a_read_sees_only_records_below_the_high_watermark() -> None:
    kit = ShardKit()
    kit.commit_offset(1)
    kit.hold = True
    kit.commit_offset(2)
    kit.commit_offset(3)
    assert kit.offset() == 1
    kit.shard.advance(2)
    assert kit.offset() == 2
    kit.commit()
    assert kit.offset() == 3


def test_a_deletion_too_is_seen_when_it_is_committed() -> None:
    kit = ShardKit()
    kit.commit_offset(1)
    kit.commit_offset(1, topic="kept")  # a group without offsets would end
    kit.hold = True
    assert delete(kit, "t") == [NONE]
    assert kit.offset() == 1
    kit.commit_offset(9, topic="u")
    kit.commit()
    assert kit.offset() == -1
    assert kit.offset(topic="u") == 9
    assert "t" not in kit.shard.offsets.store.groups["g"]


def test_an_offset_committed_again_after_its_deletion_stays() -> None:
    kit = ShardKit()
    kit.commit_offset(1)
    kit.hold = True
    delete(kit, "t")
    kit.commit_offset(2)
    kit.commit()
    assert kit.offset() == 2 and kit.restart().offset() == 2


# ---- transactions


def pending(kit: ShardKit, offset: int, producer_id: int) -> None:
    record = offset_commit_record("g", "t", 0, OffsetAndMetadata(offset))
    kit.shard.replay(len(kit.log), producer_id, record)
    kit.log.append(record)
    kit.shard.advance(len(kit.log))


def end(kit: ShardKit, producer_id: int, committed: bool) -> None:
    """A marker, below the high watermark."""
    offset = len(kit.log)
    kit.shard.advance(offset + 1)
    kit.shard.replay_end_transaction(offset, producer_id, committed)


def stable_error(kit: ShardKit) -> ErrorCode:
    [(_, [(_, error, _)])] = kit.shard.fetch_offsets("g", [("t", [0])], True)
    return error


def test_offsets_of_a_transaction_count_from_its_marker_on() -> None:
    kit = ShardKit()
    kit.commit_offset(1)
    pending(kit, 5, producer_id=9)
    assert kit.offset() == 1
    assert stable_error(kit) is ErrorCode.UNSTABLE_OFFSET_COMMIT
    end(kit, 9, committed=True)
    assert kit.offset() == 5
    assert stable_error(kit) is NONE


def test_offsets_of_a_transaction_are_not_read_before_its_marker_is_committed() -> None:
    kit = ShardKit()
    kit.commit_offset(1)
    pending(kit, 5, producer_id=9)
    kit.shard.replay_end_transaction(2, 9, True)
    assert kit.offset() == 1
    kit.shard.advance(3)
    assert kit.offset() == 5


def test_offsets_of_an_aborted_transaction_never_were() -> None:
    kit = ShardKit()
    pending(kit, 5, producer_id=9)
    end(kit, 9, committed=False)
    assert kit.offset() == -1 and stable_error(kit) is NONE


def test_a_plain_commit_after_a_transactional_one_wins_over_the_later_marker() -> None:
    kit = ShardKit()
    pending(kit, 5, producer_id=9)
    kit.commit_offset(7)
    end(kit, 9, committed=True)
    assert kit.offset() == 7


def test_a_deleted_group_loses_the_offsets_of_its_open_transactions_too() -> None:
    kit = ShardKit()
    kit.commit_offset(1)
    pending(kit, 5, producer_id=9)
    kit.append(kit.shard.delete_groups(["g"]))
    assert [record.value for record in kit.log[-2:]] == [None, None]
    end(kit, 9, committed=True)
    assert kit.offset() == -1 and kit.state() == "Dead"


def test_offsets_in_an_open_transaction_do_not_expire_and_can_be_deleted() -> None:
    kit = ShardKit(offsets_retention_ms=DAY_MS)
    kit.shard.on_loaded()
    pending(kit, 5, producer_id=9)
    kit.advance(2 * DAY_MS)
    assert kit.state() == "Empty", "the group is kept as well"
    assert stable_error(kit) is ErrorCode.UNSTABLE_OFFSET_COMMIT
    assert delete(kit, "t") == [NONE]
    assert stable_error(kit) is NONE


def test_a_deleted_group_loses_what_only_its_open_transactions_have() -> None:
    kit = ShardKit()
    pending(kit, 5, producer_id=9)
    kit.append(kit.shard.delete_groups(["g"]))
    kit.commit_offset(1, topic="other")  # a group of that name, later
    end(kit, 9, committed=True)
    assert kit.offset() == -1


def test_a_committed_offset_does_not_expire_while_a_transaction_replaces_it() -> None:
    kit = ShardKit(offsets_retention_ms=DAY_MS)
    kit.shard.on_loaded()
    kit.commit_offset(1)
    pending(kit, 5, producer_id=9)
    kit.advance(2 * DAY_MS)
    assert kit.offset() == 1
    end(kit, 9, committed=False)
    kit.advance(DAY_MS)
    assert kit.offset() == -1


def test_a_coordinator_that_lost_the_partition_has_no_offsets() -> None:
    kit = ShardKit()
    kit.commit_offset(1)
    kit.shard.on_unloaded()
    assert kit.offset() == -1


def test_values_older_than_the_committed_one_are_not_kept() -> None:
    # given commits of which the newest one is always still on its way
    kit = ShardKit()
    kit.hold = True
    for offset in range(50):
        kit.commit_offset(offset)
        kit.shard.advance(len(kit.log) - 1)
    # then a read needs only what it may see and what comes after it
    value = kit.shard.offsets.store.newest("g", "t", 0)
    kept = 0
    while value is not None:
        value, kept = value.previous, kept + 1
    assert kept <= 3 and kit.offset() == 48


# ---- deleting


def test_a_loaded_group_still_reads_its_topics() -> None:
    kit = ShardKit()
    kit.stable_group(1)
    kit.commit_offset(1, member_id=next(iter(kit.shard.classic.groups["g"].members)), generation=1)
    again = kit.restart()
    assert delete(again, "t", "other") == [ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, NONE]


def test_offsets_of_topics_a_group_reads_are_not_deleted() -> None:
    kit = ShardKit()
    [member] = kit.stable_group(1, protocols={"range": subscription("t")})
    for topic in ("t", "u"):
        kit.commit_offset(1, member_id=member, generation=1, topic=topic)
    assert delete(kit, "t", "u", "none") == [ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, NONE, NONE]
    assert (kit.offset(topic="t"), kit.offset(topic="u")) == (1, -1)
    kit.leave((member, None))
    assert delete(kit, "t") == [NONE]


@pytest.mark.parametrize("blob", [b"", b"\x00", b"\xff\xff", b"\x00\x01\x00\x00\x00\x05"])
def test_a_subscription_that_cannot_be_read_protects_every_topic(blob: bytes) -> None:
    kit = ShardKit()
    kit.stable_group(1, protocols={"range": blob})
    assert delete(kit, "u") == [ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC]


def test_offset_deletion_needs_a_group_and_for_other_protocols_an_empty_one() -> None:
    kit = ShardKit()
    with pytest.raises(KafkaError) as refusal:
        delete(kit, "t")
    assert refusal.value.code is ErrorCode.GROUP_ID_NOT_FOUND
    kit.stable_group(1, protocol_type="connect")
    with pytest.raises(KafkaError) as refusal:
        delete(kit, "t")
    assert refusal.value.code is ErrorCode.NON_EMPTY_GROUP


def test_only_empty_groups_are_deleted_and_with_them_their_offsets() -> None:
    kit = ShardKit()
    [member] = kit.stable_group(1)
    kit.commit_offset(1, member_id=member, generation=1)
    kit.commit_offset(2, group="simple")
    results = kit.append(kit.shard.delete_groups(["g", "simple", "none"]))
    assert [result.error_code for result in results] == [
        ErrorCode.NON_EMPTY_GROUP,
        NONE,
        ErrorCode.GROUP_ID_NOT_FOUND,
    ]
    assert kit.state("simple") == "Dead" and kit.offset("simple") == -1
    kit.leave((member, None))
    kit.append(kit.shard.delete_groups(["g"]))
    again = kit.restart()
    assert again.state() == "Dead" and again.offset() == -1


def test_a_deleted_topic_takes_its_offsets_along() -> None:
    kit = ShardKit()
    kit.commit_offset(1, group="a")
    kit.commit_offset(2, group="b")
    kit.commit_offset(3, group="b", partition=1)
    kit.append(kit.shard.on_partitions_deleted([("t", 0)]))
    assert (kit.offset("a"), kit.offset("b"), kit.offset("b", partition=1)) == (-1, -1, 3)
    assert (kit.state("a"), kit.state("b")) == ("Dead", "Empty")


def test_an_empty_group_ends_with_its_last_offset() -> None:
    """As Kafka 3.9.1 does, asked with these steps: at once, not with the next cleanup."""
    kit = ShardKit()
    [member] = kit.stable_group(1)
    kit.commit_offset(1, group="simple")
    kit.commit_offset(1, group="two")
    kit.commit_offset(1, group="two", partition=1)
    delete(kit, "t", group="simple")
    delete(kit, "t", group="two")
    assert (kit.state("simple"), kit.state("two")) == ("Dead", "Empty")
    kit.append(kit.shard.on_partitions_deleted([("other", 0)]))
    assert kit.state() == "Stable"
    kit.leave((member, None))
    delete(kit, "u")  # nothing to delete is enough
    assert (kit.state(), kit.state("two")) == ("Dead", "Empty")
    assert kit.restart().state() == "Dead"


def test_an_empty_group_that_never_had_an_offset_ends_with_the_next_deleted_topic() -> None:
    kit = ShardKit()
    [member] = kit.stable_group(1)
    kit.leave((member, None))
    kit.commit_offset(1, group="kept")
    kit.append(kit.shard.on_partitions_deleted([("other", 0)]))
    assert (kit.state(), kit.state("kept")) == ("Dead", "Empty")


# ---- expiry (KIP-211)


def test_offsets_of_an_empty_group_expire_counted_from_when_it_became_empty() -> None:
    kit = ShardKit(offsets_retention_ms=7 * DAY_MS)
    kit.shard.on_loaded()
    [member] = kit.stable_group(1, session_ms=1_000_000_000)
    kit.commit_offset(1, member_id=member, generation=1)
    kit.advance(8 * DAY_MS)
    assert kit.offset() == 1, "an active group keeps what it reads"
    kit.leave((member, None))
    kit.advance(7 * DAY_MS - 1)
    assert kit.offset() == 1
    kit.advance(600_000)
    assert kit.offset() == -1 and kit.state() == "Dead"
    assert kit.restart().state() == "Dead"


def test_offsets_of_a_simple_consumer_expire_counted_from_the_commit() -> None:
    kit = ShardKit(offsets_retention_ms=7 * DAY_MS)
    kit.shard.on_loaded()
    kit.commit_offset(1, topic="t")
    kit.advance(4 * DAY_MS)
    kit.commit_offset(2, topic="u")
    kit.advance(4 * DAY_MS)
    assert (kit.offset(topic="t"), kit.offset(topic="u")) == (-1, 2)
    assert kit.state() == "Empty"


def test_a_stable_group_loses_offsets_of_topics_it_no_longer_reads() -> None:
    kit = ShardKit(offsets_retention_ms=7 * DAY_MS)
    kit.shard.on_loaded()
    [member] = kit.stable_group(1, session_ms=1_000_000_000, protocols={"range": subscription("t")})
    for topic in ("t", "old"):
        kit.commit_offset(1, member_id=member, generation=1, topic=topic)
    kit.advance(8 * DAY_MS)
    assert (kit.offset(topic="t"), kit.offset(topic="old")) == (1, -1)


def test_a_commit_that_names_its_own_retention_is_kept_so_long() -> None:
    kit = ShardKit()
    kit.shard.on_loaded()
    kit.commit_offset(1, retention_ms=DAY_MS, leader_epoch=3)
    assert kit.log[0].value_version == 1
    again = kit.restart()
    again.advance(DAY_MS - 1_000)
    assert again.offset() == 1
    again.advance(601_000)
    assert again.offset() == -1


@pytest.mark.parametrize("retention_ms", [2**63 - 1, -(2**63), 0])
def test_any_retention_is_lived_with(retention_ms: int) -> None:
    kit = ShardKit()
    kit.shard.on_loaded()
    assert kit.commit_offset(1, retention_ms=retention_ms) is NONE
    kit.advance(600_000)
    assert kit.offset() == (1 if retention_ms > 0 else -1)


def test_an_empty_group_without_offsets_is_deleted_but_not_with_a_pending_member() -> None:
    kit = ShardKit()
    kit.shard.on_loaded()
    kit.join(session_ms=1_500_000)
    kit.advance(600_000)
    assert kit.state() == "Empty"
    kit.advance(1_500_000)
    assert kit.state() == "Dead"
