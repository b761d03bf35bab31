"""`mode=batches`: a row a batch, as its header has it."""

from __future__ import annotations

from pathlib import Path

import pytest

from kwire.errors import ConfigurationError
from kwire.pipeline.schema import BATCHES
from kwire.protocol.message_set import build_message_set
from kwire.protocol.record_builder import build_batch
from kwire.protocol.records import Record, iter_batches

from .log_kit import rows, write_segment


def batch(base: int, count: int = 3, **more: int | str | bool) -> bytes:
    records = [Record(base + i, 1000 + i, b"k", b"value %d" % i, ()) for i in range(count)]
    return build_batch(records, base_offset=base, **more)  # type: ignore[arg-type]


def test_a_batch_is_a_row(tmp_path: Path) -> None:
    first = batch(0, partition_leader_epoch=4)
    second = batch(
        3,
        2,
        producer_id=7,
        producer_epoch=1,
        base_sequence=20,
        compression="gzip",
        partition_leader_epoch=5,
    )
    write_segment(tmp_path, [first, second])
    found = rows(tmp_path, mode="batches", verify="crc")
    assert [tuple(row) for row in found] == [tuple(BATCHES)] * 2
    head = next(iter(iter_batches(second)))
    row = found[1]
    assert (row["position"], row["bytes"]) == (len(first), len(second))
    assert (row["base_offset"], row["last_offset"], row["records"]) == (3, 4, 2)
    assert (row["leader_epoch"], row["codec"], row["magic"]) == (5, "gzip", 2)
    assert (row["producer_id"], row["producer_epoch"], row["sequence"]) == (7, 1, 20)
    assert (row["crc"], row["crc_ok"], row["damage"]) == (head.crc, True, None)
    assert row["timestamp"].timestamp() == 1.0 and row["max_timestamp"].timestamp() == 1.001
    assert (row["topic"], row["partition"], row["broker"]) == ("orders", 0, -1)


def test_batches_with_a_wanted_offset_are_rows(tmp_path: Path) -> None:
    write_segment(tmp_path, [batch(base) for base in range(0, 30, 3)])
    found = rows(tmp_path, "base_offset", mode="batches", startingOffset=5, endingOffset=13)
    assert [row["base_offset"] for row in found] == [3, 6, 9, 12]


def test_damage_stands_beside_whole_batches(tmp_path: Path) -> None:
    wrong = bytearray(batch(3))
    wrong[-2] ^= 1
    write_segment(tmp_path, [batch(0), bytes(wrong), batch(6), batch(9)[:-5]])
    names = ("base_offset", "last_offset", "crc_ok", "damage")
    found = [tuple(row.values()) for row in rows(tmp_path, *names, mode="batches", verify="crc")]
    assert found == [
        (0, 2, True, None),
        (3, 5, False, "wrong CRC"),
        (6, 8, True, None),
        (9, None, None, "torn tail"),
    ]
    of_damage = rows(tmp_path, "offset", "kind", mode="damage")
    assert [tuple(row.values()) for row in of_damage] == [(3, "wrong CRC"), (9, "torn tail")]


def message(magic: int, offset: int) -> bytes:
    return bytes(build_message_set([Record(offset, 5, b"k", b"v", ())], magic))


@pytest.mark.parametrize("magic", [0, 1])
def test_messages_of_old_formats_are_rows(magic: int, tmp_path: Path) -> None:
    whole = message(magic, 7)
    wrong = bytearray(message(magic, 8))
    wrong[-1] ^= 1
    write_segment(tmp_path, [whole, bytes(wrong)])
    names = ("base_offset", "last_offset", "leader_epoch", "magic", "crc_ok", "damage")
    found = [tuple(row.values()) for row in rows(tmp_path, *names, mode="batches", verify="crc")]
    assert found == [(7, 7, -1, magic, True, None), (8, 8, -1, magic, False, "wrong CRC")]


def test_a_begin_by_time_is_for_records(tmp_path: Path) -> None:
    write_segment(tmp_path, [batch(0)])
    with pytest.raises(ConfigurationError, match="startingTimestamp is for records"):
        rows(tmp_path, mode="batches", startingTimestamp=0)
