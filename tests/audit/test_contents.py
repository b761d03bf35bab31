"""A log in a few rows: whose records values are, and what their numbers and order come to."""

from __future__ import annotations

import random
import re
from itertools import pairwise
from zlib import crc32

import numpy as np
import pyarrow as pa
import pytest

from kwire.audit.evidence.contents import CONTENTS, RANGE_BITS, Rows, hashes
from kwire.audit.evidence.stamps import stamps
from kwire.pipeline.ledger import value_prefix

RUN = "0a1b2c3d"
STRANGE = [
    *(None, b"", b" ", b"0a1b2c3d", b"0a1b2c3d ", b"0a1b2c3d p-1", b"0a1b2c3d p-1 ", b"0a1b2c3d  7 "),
    *(b"0a1b2c3d p-1 7", b"0a1b2c3d p-1 7 ", b"0a1b2c3d p-1 07 x", b"0a1b2c3d p-1 -7 ", b"0a1b2c3d p-1 +7 "),
    *(b"0a1b2c3d p-1 7x ", b"0a1b2c3d p-1 \t7 ", b"0a1b2c3d p-1 7.0 ", b"0a1b2c3d p-1 1_0 "),
    *(b"0a1b2c3d p-1 " + b"9" * 18, b"0a1b2c3d p-1 9223372036854775807 ", b"0a1b2c3d p-1 9223372036854775808 "),
    *(b"0a1b2c3d " + b"p" * 30 + b" 5 x", b"0a1b2c3d " + b"p" * 80 + b" 1234567 x", b"0a1b2c3d " + b"p" * 90),
    *("0a1b2c3d é 3 ".encode(), b"0a1b2c3d \xff 3 ", b"0a1b2c3e p-1 7 ", b"xa1b2c3d p-1 7 ", b"0a1b2c3dx p-1 7 "),
    b"0a1b2c3d p-12345678901234567 123 " + b"x" * 200,
]  # fmt: skip


def said(value: bytes | None) -> tuple[str, int] | None:
    """Producer and number of a value, by its words."""
    words = (value or b"")[:96].decode(errors="replace").split(" ", 3)
    if len(words) < 3 or words[0] != RUN:
        return None
    number = words[2].strip()
    if not re.fullmatch("[+-]?[0-9]+", number) or not -(2**63) <= int(number) < 2**63:
        return None
    return words[1], int(number)


def found(values: pa.Array) -> list[tuple[str, int] | None]:
    read = stamps(values, RUN)
    return [
        None if code < 0 else (read.producers[code], number)
        for code, number in zip(read.producer.tolist(), read.number.tolist(), strict=True)
    ]


@pytest.mark.parametrize("value", STRANGE)
def test_a_value_of_any_form_is_read_as_its_words(value: bytes | None) -> None:
    assert found(pa.array([value], pa.binary())) == [said(value)]


def test_values_are_read_together_as_each_alone() -> None:
    chance = random.Random(7)
    values = [
        chance.choice(STRANGE)
        if chance.random() < 0.2
        else value_prefix(RUN, f"p-{chance.randrange(20)}")
        + b"%d " % chance.randrange(10 ** chance.randrange(1, 15))
        for _ in range(3000)
    ]
    array = pa.array([b"before", *values], pa.binary()).slice(1)
    assert found(array) == [said(value) for value in values]


def test_hashes_are_those_of_spark() -> None:
    """By `select xxhash64(…)` of PySpark 4.0.0 (spark_it/test_audit_jobs.py asks it)."""
    columns = [np.array(each, np.int64) for each in ([0, 1, -5], [7, 1 << 62, 3], [1, 2, -1])]
    assert hashes(*columns).tolist() == SPARKS


SPARKS = [3528787897979365047, 5809991385168790178, 2120863953475714414]


def rows(records: list[tuple[int, str | None, int]], *cuts: int, end: int = 1 << 60) -> list[dict]:
    """The rows of records (offset, producer, number), added in parts that are cut at these places."""
    collected = Rows("orders", 3)
    edges = [0, *cuts, len(records)]
    for first, last in pairwise(edges):
        part = records[first:last]
        values = [
            b"strange" if name is None else value_prefix(RUN, name) + b"%d " % number
            for _, name, number in part
        ]
        times = [1000 * offset for offset, _, _ in part]
        table = pa.RecordBatch.from_arrays(
            [
                pa.array([offset for offset, _, _ in part], pa.int64()),
                pa.array(times, pa.timestamp("us", tz="UTC")),
                pa.array(values, pa.binary()),
            ],
            names=["offset", "timestamp", "value"],
        )
        collected.add(table, RUN, 0, end)
    tables = list(collected.take())
    assert all(table.schema.names == list(CONTENTS) for table in tables)
    assert list(collected.take()) == []
    return [row for table in tables for row in table.to_pylist()]


def test_a_row_has_one_producer_and_range() -> None:
    other = 1 << RANGE_BITS
    found = rows([(0, "a", 0), (1, "b", 0), (2, "a", 1), (3, None, 0), (other, "a", 2)])
    brief = {
        (row["range"], row["producer"]): (row["rows"], row["first"], row["last"], row["is_ordered"])
        for row in found
    }
    assert brief == {
        (0, "a"): (2, 0, 2, True),
        (0, "b"): (1, 1, 1, True),
        (0, None): (1, 3, 3, True),
        (1, "a"): (1, other, other, True),
    }
    assert {(row["topic"], row["partition"], row["control"]) for row in found} == {
        ("orders", 3, False)
    }
    of_a = next(row for row in found if (row["range"], row["producer"]) == (0, "a"))
    assert (of_a["low"], of_a["high"]) == (0, 1)
    assert of_a["oldest"].timestamp() == 0
    contents = [
        int(hashes(*(np.array([each], np.int64) for each in (offset, number, 2 * crc + 1)))[0])
        for offset, number in ((0, 0), (2, 1))
        for crc in [crc32(value_prefix(RUN, "a") + b"%d " % number)]
    ]
    assert of_a["content"] == contents[0] ^ contents[1]
    assert of_a["content_sum"] == sum(content >> 20 for content in contents)


@pytest.mark.parametrize(
    ("numbers", "is_ordered"), [((0, 1, 5), True), ((0, 5, 1), False), ((2, 2, 3), True)]
)
def test_order_is_that_of_numbers(numbers: tuple[int, ...], is_ordered: bool) -> None:
    between = [(offset, "b", -offset) for offset in range(1, 6, 2)]
    records = sorted([(2 * i, "a", number) for i, number in enumerate(numbers)] + between)
    assert [row["is_ordered"] for row in rows(records) if row["producer"] == "a"] == [is_ordered]


def test_offsets_that_go_back_are_no_order() -> None:
    assert [row["is_ordered"] for row in rows([(4, "a", 0), (4, "a", 1)])] == [False]


def test_records_beyond_the_end_do_not_count() -> None:
    found = rows([(i, "a", i) for i in range(10)], 5, end=7)
    assert sum(row["rows"] for row in found) == 7
    assert max(row["last"] for row in found) == 6


def test_parts_come_to_the_whole() -> None:
    records = [(i, f"p-{i % 3}", i) for i in range(100)]
    whole = {row["producer"]: row for row in rows(records)}
    for name, row in whole.items():
        parts = [each for each in rows(records, 17, 60) if each["producer"] == name]
        assert len(parts) == 3
        assert sum(each["content_sum"] for each in parts) == row["content_sum"]
        assert parts[0]["content"] ^ parts[1]["content"] ^ parts[2]["content"] == row["content"]
