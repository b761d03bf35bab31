"""Columns that headers know: of large batches nothing else is read, and the rows are the same."""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import Any

import pytest

from kwire.pipeline import batches
from kwire.protocol.record_builder import build_batch
from kwire.protocol.records import Record

from .log_kit import rows, write_index, write_segment

NAMES = ("offset", "batch_base", "batch_position", "sequence", "codec", "magic")


def any_batch(rng: random.Random, base: int) -> tuple[bytes, int]:
    """A batch of 100 bytes to 30 KB, now and then with gaps in its offsets, and the offset behind it."""
    size = rng.choice([10, 10, 5000, 5000, 30_000])
    count = rng.choice([1, 3, 20])
    gap = rng.random() < 0.1
    records = [
        Record(base + i * (2 if gap else 1), 5, None, rng.randbytes(size // count))
        for i in range(count)
    ]
    codec = rng.choice(["none", "none", "none", "gzip"])
    return build_batch(records, base_offset=base, compression=codec), records[-1].offset + 1


@pytest.mark.parametrize("seed", range(20))
def test_the_rows_are_those_of_whole_reads(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = random.Random(seed)
    parts, offset, position, entries = [], 0, 0, []
    for _ in range(300):
        part, after = any_batch(rng, offset)
        if rng.random() < 0.2 and parts:
            entries.append((after - 1, position))
        parts.append(part)
        offset, position = after, position + len(part)
    data = bytearray(b"".join(parts))
    for _ in range(seed % 4):  # damage of any kind, also of none that matters
        at = rng.randrange(len(data))
        data[at : at + 4] = rng.randbytes(4)
    if seed % 5 == 0:
        del data[-rng.randrange(1, 200) :]
    path = write_segment(tmp_path, [bytes(data)])
    write_index(path, entries)
    monkeypatch.setattr(batches, "_HEADERS", 7)
    monkeypatch.setattr(batches, "PIECE_BYTES", 20_000)
    sparse: Any = rows(tmp_path, *NAMES)
    split: Any = rows(tmp_path, *NAMES, splitBytes=50_000)
    monkeypatch.setattr(batches, "headers", batches.pieces)
    assert sparse == rows(tmp_path, *NAMES)
    assert split == rows(tmp_path, *NAMES, splitBytes=50_000)


def test_values_are_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parts = [build_batch([Record(i, 1, None, bytes(1 << 20))], base_offset=i) for i in range(9)]
    write_segment(tmp_path, parts)
    read = 0
    pread = os.pread

    def counted(file: int, length: int, offset: int) -> bytes:
        nonlocal read
        read += length
        return pread(file, length, offset)

    def refused(*_: object) -> int:
        raise AssertionError("values were read")

    monkeypatch.setattr(os, "pread", counted)
    monkeypatch.setattr(os, "preadv", refused)
    assert [row["offset"] for row in rows(tmp_path, "partition", "offset")] == list(range(9))
    assert read < 10_000
