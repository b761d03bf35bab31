"""Segments that lie: rows of what is whole, a row of damage for what is not, and never an exception."""

from __future__ import annotations

import logging
import random
import struct
from pathlib import Path

import pytest

from kwire.protocol.record_builder import build_batch
from kwire.protocol.records import Record

from .log_kit import rows, write_index, write_segment


def batches(count: int = 6, size: int = 3, codec: str = "none") -> list[bytes]:
    return [
        build_batch(
            [
                Record(base + i, 1000 + i, b"k", b"value %d" % i, (("h", b"x"),))
                for i in range(size)
            ],
            base_offset=base,
            compression=codec,
        )
        for base in range(0, count * size, size)
    ]


def test_a_torn_tail_is_one_row_of_damage(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    parts = batches()
    write_segment(tmp_path, [*parts[:5], parts[5][:-1]])
    assert [row["offset"] for row in rows(tmp_path, "offset")] == list(range(15))
    assert "the first at position" in caplog.text and "torn tail" in caplog.text
    (damage,) = rows(tmp_path, mode="damage")
    position = sum(map(len, parts[:5]))
    assert (damage["kind"], damage["position"], damage["offset"]) == ("torn tail", position, 15)
    assert damage["bytes"] == len(parts[5]) - 1
    assert (damage["topic"], damage["segment"]) == ("orders", "00000000000000000000.log")


@pytest.mark.parametrize("left", [1, 11, 16, 17, 60])
def test_a_tail_that_is_not_even_a_header_is_torn(left: int, tmp_path: Path) -> None:
    parts = batches()
    write_segment(tmp_path, [*parts[:5], parts[5][:left]])
    assert len(rows(tmp_path, "value")) == 15
    (damage,) = rows(tmp_path, mode="damage")
    assert (damage["kind"], damage["bytes"]) == ("torn tail", left)


def test_zeros_behind_the_log_are_damage_and_no_rows(tmp_path: Path) -> None:
    write_segment(tmp_path, [*batches(), bytes(4096)])
    assert len(rows(tmp_path, "offset")) == 18
    (damage,) = rows(tmp_path, mode="damage")
    assert damage["bytes"] == 4096


def test_a_wrong_checksum_is_seen_only_when_it_is_looked_for(tmp_path: Path) -> None:
    parts = batches()
    broken = bytearray(parts[2])
    broken[-1] ^= 0
    broken[-3] ^= 1  # in a header's value
    write_segment(tmp_path, [*parts[:2], bytes(broken), *parts[3:]])
    assert {row["crc_ok"] for row in rows(tmp_path, "crc_ok")} == {None}
    assert [
        row["offset"]
        for row in rows(tmp_path, "offset", "crc_ok", verify="crc")
        if not row["crc_ok"]
    ] == [6, 7, 8]
    (damage,) = rows(tmp_path, mode="damage")
    assert (damage["kind"], damage["offset"], damage["bytes"]) == ("wrong CRC", 6, len(broken))


def test_behind_a_wrong_length_the_next_indexed_batch_is_read(tmp_path: Path) -> None:
    parts = batches()
    positions = [sum(map(len, parts[:i])) for i in range(6)]
    broken = bytearray(parts[2])
    struct.pack_into(">i", broken, 8, 1 << 30)
    path = write_segment(tmp_path, [*parts[:2], bytes(broken), *parts[3:]])
    write_index(path, [(3 * i + 2, positions[i]) for i in (1, 4)])
    assert [row["offset"] for row in rows(tmp_path, "offset")] == [
        0,
        1,
        2,
        3,
        4,
        5,
        12,
        13,
        14,
        15,
        16,
        17,
    ]
    (damage,) = rows(tmp_path, mode="damage")
    assert (damage["position"], damage["bytes"]) == (positions[2], positions[4] - positions[2])
    assert damage["kind"] == "wrong length"


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_what_cannot_be_decompressed_is_one_batch_less(codec: str, tmp_path: Path) -> None:
    parts = batches(codec=codec)
    broken = bytearray(parts[3])
    broken[64:] = bytes(len(broken) - 64)
    write_segment(tmp_path, [*parts[:3], bytes(broken), *parts[4:]])
    assert [row["offset"] for row in rows(tmp_path, "offset", "value")] == [
        *range(9),
        *range(12, 18),
    ]
    kinds = {row["kind"] for row in rows(tmp_path, mode="damage")}
    assert kinds == {"wrong CRC", "wrong records"}


def test_a_batch_that_decompresses_to_too_much_is_damage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kwire.pipeline.records.BATCH_BYTES_MAX", 1 << 20)
    write_segment(tmp_path, [build_batch([Record(0, 1, None, bytes(2 << 20))], compression="gzip")])
    assert rows(tmp_path, "value") == []
    (damage,) = rows(tmp_path, mode="damage")
    assert "more than 1048576 bytes" in damage["detail"]


def test_a_count_that_cannot_be_is_not_believed(tmp_path: Path) -> None:
    parts = batches(codec="gzip")
    broken = bytearray(parts[1])
    struct.pack_into(">i", broken, 57, (1 << 31) - 1)
    struct.pack_into(">i", broken, 23, (1 << 31) - 2)
    write_segment(tmp_path, [parts[0], bytes(broken), *parts[2:]])
    assert [row["offset"] for row in rows(tmp_path, "offset")] == [0, 1, 2, *range(6, 18)]


@pytest.mark.parametrize("codec", ["none", "lz4"])
def test_flipped_bits_never_cost_more_than_their_batch(codec: str, tmp_path: Path) -> None:
    parts = batches(count=60, codec=codec)
    whole = write_segment(tmp_path / "whole", parts)
    right = {row["offset"]: row for row in rows(tmp_path / "whole")}
    starts = [sum(map(len, parts[:i])) for i in range(len(parts) + 1)]
    rng = random.Random(20261123)
    logging.disable(logging.WARNING)
    try:
        for number in range(100):
            data = bytearray(whole.read_bytes())
            hit = rng.randrange(len(parts))
            for _ in range(rng.choice([1, 3])):
                position = rng.randrange(starts[hit], starts[hit + 1])
                data[position] ^= 1 << rng.randrange(8)
            path = write_segment(tmp_path / "hit", [bytes(data)])
            write_index(path, [(3 * i + 2, starts[i]) for i in range(1, len(parts))])
            found = rows(tmp_path / "hit")
            others = [row for row in found if row["batch_position"] != starts[hit]]
            assert others == [
                row for row in right.values() if row["batch_position"] != starts[hit]
            ], number
            damage = rows(tmp_path / "hit", mode="damage")
            touched = {row["position"] for row in damage}
            # Base offset and leader epoch are not under the checksum.
            changed = [
                i for i in range(starts[hit], starts[hit + 1]) if data[i] != whole.read_bytes()[i]
            ]
            if any(i - starts[hit] > 15 for i in changed):
                assert touched, number
            assert all(starts[hit] <= position < starts[hit + 1] for position in touched), number
    finally:
        logging.disable(logging.NOTSET)


def test_a_segment_that_is_gone_when_it_is_read_has_no_rows(tmp_path: Path) -> None:
    from kwire.pipeline import planning, reading
    from kwire.pipeline.options import parse

    path = write_segment(tmp_path, batches())
    (part,) = planning.plan(parse({"path": str(tmp_path)}))
    path.unlink()
    assert list(reading.records(part, ("offset",))) == []


def test_a_segment_cut_off_while_it_is_read_ends_there(tmp_path: Path) -> None:
    from kwire.pipeline import planning, reading
    from kwire.pipeline.options import parse

    parts = batches()
    path = write_segment(tmp_path, parts)
    (part,) = planning.plan(parse({"path": str(tmp_path)}))
    path.write_bytes(b"".join(parts[:2]))
    assert sum(table.num_rows for table in reading.records(part, ("offset",))) == 6
