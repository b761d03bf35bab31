"""The bytes of records in `__consumer_offsets`, and the partition of a group."""

from __future__ import annotations

import struct

import pytest
from shard_kit import ShardKit

from kwire.coordinator.classic_answers import random_uuid
from kwire.coordinator.group_coordinator import java_hash_code, partition_for
from kwire.coordinator.group_records import (
    decode_record,
    group_metadata_tombstone,
    offset_commit_record,
    offset_commit_tombstone,
)
from kwire.coordinator.offset_store import OffsetAndMetadata
from kwire.protocol.errors import MalformedMessage


def test_an_offset_is_written_as_kafka_3_9_writes_it() -> None:
    offset = OffsetAndMetadata(5, leader_epoch=2, metadata="m", commit_timestamp_ms=1000)
    key, value = offset_commit_record("g", "t", 3, offset).encode()
    assert key == b"\x00\x01\x00\x01g\x00\x01t\x00\x00\x00\x03"
    assert value == b"\x00\x03" + struct.pack(">qi", 5, 2) + b"\x00\x01m" + struct.pack(">q", 1000)


def test_an_offset_with_its_own_retention_is_written_in_version_1() -> None:
    offset = OffsetAndMetadata(
        5, leader_epoch=2, metadata="m", commit_timestamp_ms=1000, expire_timestamp_ms=2000
    )
    _, value = offset_commit_record("g", "t", 3, offset).encode()
    assert value == b"\x00\x01" + struct.pack(">q", 5) + b"\x00\x01m" + struct.pack(
        ">qq", 1000, 2000
    )


def test_tombstones_have_only_keys() -> None:
    assert offset_commit_tombstone("g", "t", 0).encode()[1] is None
    assert group_metadata_tombstone("g").encode() == (b"\x00\x02\x00\x01g", None)


def test_a_group_is_written_as_kafka_3_9_writes_it() -> None:
    kit = ShardKit()
    box = kit.join(
        instance="i",
        client="c",
        protocols={"range": b"sub"},
        session_ms=10_000,
        rebalance_ms=60_000,
    )
    member = box.value.member_id.encode()
    kit.sync(box.value.member_id, 1, {box.value.member_id: b"assigned"}, instance="i")
    key, value = kit.log[-1].encode()
    assert key == b"\x00\x02\x00\x01g"

    def text(data: bytes) -> bytes:
        return struct.pack(">h", len(data)) + data

    def blob(data: bytes) -> bytes:
        return struct.pack(">i", len(data)) + data

    assert value == (
        b"\x00\x03"
        + text(b"consumer")
        + struct.pack(">i", 1)
        + text(b"range")
        + text(member)
        + struct.pack(">q", kit.clock.wall_ms)
        + struct.pack(">i", 1)
        + text(member)
        + text(b"i")
        + text(b"c")
        + text(b"/127.0.0.1")
        + struct.pack(">ii", 60_000, 10_000)
        + blob(b"sub")
        + blob(b"assigned")
    )


@pytest.mark.parametrize("record_type", [3, 8, 16, 23])
def test_records_of_other_protocols_are_passed_over(record_type: int) -> None:
    assert decode_record(struct.pack(">h", record_type) + b"whatever", b"\x00\x00") is None


def test_the_oldest_offset_records_are_read() -> None:
    key = b"\x00\x00\x00\x01g\x00\x01t\x00\x00\x00\x03"
    value = b"\x00\x00" + struct.pack(">q", 5) + b"\x00\x01m" + struct.pack(">q", 1000)
    record = decode_record(key, value)
    assert record is not None
    kit = ShardKit()
    kit.shard.advance(1)
    kit.shard.replay(0, -1, record)
    assert kit.offset(partition=3) == 5


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (b"", b""),
        (b"\x00", b""),
        (b"\x00\x01\x00\x05g", b"\x00\x03"),
        (b"\x00\x02\x00\x01g", b"\x00"),
        (b"\x00\x02\x00\x01g", b"\x00\x09"),
        (b"\x00\x02\x00\x01g", b"\xff\xff"),
        (b"\x00\x02\x00\x01g", b"\x00\x03\x00\x05"),
    ],
)
def test_broken_records_are_malformed_messages(key: bytes, value: bytes) -> None:
    with pytest.raises(MalformedMessage):
        decode_record(key, value)


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("", 0),
        ("a", 97),
        ("group", 98629247),
        ("console-consumer-92476", 165844729),
        ("polygenelubricants", -2147483648),
        ("é\U0001f600", 233 * 31 * 31 + 0xD83D * 31 + 0xDE00),
    ],
)
def test_group_ids_are_hashed_as_java_strings(text: str, code: int) -> None:
    wrapped = (code + 2**31) % 2**32 - 2**31
    assert java_hash_code(text) == wrapped


def test_the_smallest_hash_goes_to_partition_0() -> None:
    assert partition_for("polygenelubricants", 50) == 0
    assert partition_for("group", 50) == 98629247 % 50


def test_member_ids_are_version_4_uuids_that_a_seed_repeats() -> None:
    from random import Random
    from uuid import UUID

    first = random_uuid(Random(1))
    assert UUID(first).version == 4 and str(UUID(first)) == first
    assert first == random_uuid(Random(1)) != random_uuid(Random(2))
