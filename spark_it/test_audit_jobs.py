"""The jobs of the topic audit on tiny tables: a truth table of cases, all judged by one run of the jobs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from kwire.pipeline.ledger import value_prefix
from spark_it.audit_cases import RUN, Case, at, frames
from spark_it.support import few_tasks

pytestmark = [pytest.mark.kwire_only, pytest.mark.timeout(400)]

XX_OF_A, XX_OF_B = b"a", b"b"

CASES = [
    Case("all-is-well").both(0, 1, 2).seen(1, 1),
    Case("lost-at-the-end").both(0, 1).sent(2, 2).finds(("lost", 2)),
    Case("lost-and-another-there").both(0).sent(1, 1).lies(2, 1).sent(2, 1).finds(("lost", 1)),
    # Ledger and topic are compared by ranges of 16,384 offsets first.
    Case("lost-in-one-range").both(0).sent(1, 1).both(20_000, 40_000)
    .finds(("lost", 1), ("gap", 1), ("gap", 20_001)),
    Case("moved-to-another-range").both(0, 20_000).sent(1, 1).lies(1, 40_000)
    .finds(("gap", 1), ("gap", 20_001), ("reordered", 40_000)),
    Case("other-numbers-in-two-ranges").sent(0, 0).lies(20_000, 0).sent(20_000, 20_000).lies(0, 20_000)
    .finds(("gap", 1), ("reordered", 20_000)),
    Case("lost-before-others").both(0).sent(1, 1).both(2).finds(("lost", 1), ("gap", 1)),
    Case("moved-is-not-lost").both(0).sent(1, 1).lies(1, 2).sent(2, 2).lies(2, 1).finds(
        ("reordered", 2)
    ),
    Case("doubled").both(0, 1).lies(1, 2).finds(("doubled", 2)),
    Case("doubled-before-the-acknowledged").both(0).lies(1, 1).sent(1, 2).lies(1, 2).finds(
        ("doubled", 1)
    ),
    Case("doubled-in-another-partition").both(0, 1).lies(1, 0, partition=1).finds(("doubled", 0)),
    Case("sent-without-offset").sent(0, None, partition=None).lies(0, 0),
    Case("doubled-without-offset").sent(0, None).lies(0, 0).lies(0, 1).finds(("doubled", 1)),
    Case("unknown-and-there").both(0).sent(1, None, "unknown").lies(1, 1).finds(
        ("unacknowledged", 1)
    ),
    Case("unknown-and-not-there").both(0).sent(1, None, "unknown", partition=None),
    Case("failed-and-there").sent(0, None, "failed").lies(0, 0).finds(("unacknowledged", 0)),
    Case("unknown-and-twice-there").sent(0, None, "unknown").lies(0, 0).lies(0, 1).finds(
        ("unacknowledged", 0), ("doubled", 1)
    ),
    Case("not-in-the-ledger").both(0).lies(1, 1).finds(("unacknowledged", 1)),
    Case("reordered").sent(0, 0).lies(0, 0).sent(1, 2).lies(1, 2).sent(2, 1).lies(2, 1).finds(
        ("reordered", 2)
    ),
    Case("in-order-across-partitions").both(0, 2).sent(1, 0, partition=1).lies(1, 0, partition=1)
    .finds(("gap", 1)),
    Case("other-value").both(0).sent(1, 1).lies(1, 1, damaged=True).finds(("damaged", 1)),
    Case("removed-by-retention", start=2).sent(0, 0).sent(1, 1).both(2, 3).finds(("expired", 0)),
    Case("all-removed", start=2, end=2).sent(0, 0).sent(1, None).finds(("expired", 0)),
    Case("seen-then-removed", start=1).sent(0, 0).both(1).seen(0, 0).finds(("expired", 0)),
    Case("removed-while-read", start_as_read=2, end=4).sent(0, 0).sent(1, 1).seen(0, 0).both(2, 3)
    .finds(("expired", 0)),
    Case("removed-in-part-while-read", start_as_read=2, end=5).sent(1, 1).sent(2, 2).both(4)
    .finds(("expired", 1), ("lost", 2), ("gap", 2)),
    Case("seen-then-gone").both(0).sent(1, 1).seen(1, 1).seen(1, 1, reader="reader-2").finds(
        ("lost", 1), ("vanished", 1)
    ),
    Case("seen-then-replaced").both(0).lies(2, 1).sent(2, 1).sent(1, None, "unknown").seen(1, 1)
    .finds(("vanished", 1)),
    Case("foreign").both(0).lies(None, 1).lies(None, 2).finds(("foreign", 1)),
    Case("gap-at-the-start").lies(None, 3).finds(("gap", 0), ("foreign", 3)),
    Case("gap-at-the-end", end=5).both(0).finds(("gap", 1)),
    Case("committed").sent(0, 0, "committed", transaction=0).lies(0, 0).lies(
        None, 1, visible=False, control=True
    ),
    Case("aborted").sent(0, 0, "aborted", transaction=0).lies(0, 0, visible=False).lies(
        None, 1, visible=False, control=True
    ),
    Case("aborted-and-visible").sent(0, 0, "aborted", transaction=0).lies(0, 0).finds(
        ("aborted_visible", 0)
    ),
    Case("aborted-and-read").sent(0, 0, "aborted", transaction=0).lies(0, 0, visible=False)
    .seen(0, 0, isolation="read_committed").finds(("aborted_visible", 0)),
    Case("aborted-and-read-uncommitted").sent(0, 0, "aborted", transaction=0)
    .lies(0, 0, visible=False).seen(0, 0),
    Case("torn").sent(0, 0, "committed", transaction=0).lies(0, 0)
    .sent(1, 0, "committed", transaction=0, partition=1).lies(1, 0, partition=1, visible=False)
    .finds(("partly_visible", 0)),
    Case("torn-and-gone").sent(0, 0, "committed", transaction=0).lies(0, 0)
    .sent(1, 0, "committed", transaction=0, partition=1).finds(("lost", 0)),
    Case("committed-and-invisible").sent(0, 0, "committed", transaction=0)
    .lies(0, 0, visible=False).finds(("lost", 0)),
    Case("unknown-end-whole").sent(0, 0, "unknown", transaction=0).lies(0, 0)
    .sent(1, 1, "unknown", transaction=0).lies(1, 1)
    .finds(("unacknowledged", 0), ("unacknowledged", 1)),
    Case("unknown-end-torn").sent(0, 0, "unknown", transaction=0).lies(0, 0)
    .sent(1, 0, "unknown", transaction=0, partition=1).lies(1, 0, partition=1, visible=False)
    .finds(("unacknowledged", 0), ("partly_visible", 0)),
    Case("unknown-end-none").sent(0, 0, "unknown", transaction=0).lies(0, 0, visible=False),
]  # fmt: skip


@pytest.fixture(scope="module")
def judged(spark: Any) -> Iterator[dict[str, Any]]:
    """The jobs' tables of all cases."""
    if spark.version.startswith("3."):
        pytest.skip("the audit needs PySpark 4")
    from kwire.audit.jobs import topics

    with few_tasks(spark):
        xxhash = {
            bytes(row.key): row.hash
            for row in spark.sql(
                "select key, xxhash64(key) as hash from values (cast('a' as binary)), (cast('b' as binary)) t(key)"
            ).collect()
        }
        a, b = xxhash[XX_OF_A], xxhash[XX_OF_B]
        cases = [
            *CASES,
            Case("compacted", compacted=True)
            .sent(0, 0, key=XX_OF_A)
            .sent(1, 1, key=XX_OF_A)
            .lies(1, 1, key_hash=a)
            .seen(0, 0, key=XX_OF_A),
            Case("compacted-newest-lost", compacted=True)
            .sent(0, 0, key=XX_OF_A)
            .sent(1, 1, key=XX_OF_B)
            .sent(2, 2, key=XX_OF_A)
            .lies(1, 1, key_hash=b)
            .finds(("lost", 2)),
        ]
        tables = frames(spark, cases)
        bounds = tables.pop("bounds_as_read")
        parts = {
            name: table.cache() for name, table in topics.of_partitions(**tables, run=RUN).items()
        }
        sent, seen = tables["sent"], tables["seen"]
        whole = topics.of_all(sent, seen, bounds, parts, lambda _, table: table.localCheckpoint())
        yield {
            "cases": cases,
            "findings": whole["findings"].collect(),
            "topics": whole["topics"].collect(),
        }


def test_every_case_has_its_findings_and_no_other(judged: dict[str, Any]) -> None:
    found: dict[str, list[tuple[str, int | None]]] = {case.name: [] for case in judged["cases"]}
    for row in judged["findings"]:
        found[row.topic].append((row.kind, row.offset))
    expected = {case.name: case.expected for case in judged["cases"]}
    assert {name: sorted(rows, key=str) for name, rows in found.items()} == expected


def test_findings_say_which_record_and_how(judged: dict[str, Any]) -> None:
    by_topic = {(row.topic, row.kind): row for row in judged["findings"]}
    lost = by_topic["lost-at-the-end", "lost"]
    assert (lost.partition, lost.producer, lost.number) == (0, "lost-at-the-end", 2)
    assert lost.time.timestamp() == at(2.5).timestamp()
    doubled = by_topic["doubled", "doubled"]
    assert doubled.detail == "once more at doubled-0 offset 2; acknowledged at offset 1"
    removed = by_topic["removed-by-retention", "expired"]
    assert removed.detail == "2 records, offsets 0 to 1"
    gone = by_topic["seen-then-gone", "vanished"]
    assert gone.detail == "seen by reader-1 and 1 more; nothing is there now"
    assert by_topic["unknown-and-there", "unacknowledged"].detail.endswith("timed out")


def test_partitions_are_counted(judged: dict[str, Any]) -> None:
    rows = {(row.topic, row.partition): row.asDict() for row in judged["topics"]}
    removed = rows["removed-by-retention", 0]
    assert {name: value for name, value in removed.items() if value} == {
        "topic": "removed-by-retention",
        "log_start": 2,
        "log_end": 4,
        "sent": 4,
        "acknowledged": 4,
        "present": 2,
        "expired": 2,
    }
    assert rows["lost-at-the-end", 0]["lost"] == 1
    assert rows["foreign", 0]["foreign"] == 2


def test_rows_of_a_log_become_records_with_their_visibility(spark: Any) -> None:
    from kwire.audit.jobs.records import RECORDS, of_log

    value = bytearray(value_prefix(RUN, "p-1") + b"7 " + b"x" * 200)
    rows = [
        ("t", 0, 0, at(0), None, value, -1, False, False, None),
        ("t", 0, 1, at(1), bytearray(b"a"), value, 9, True, False, None),
        ("t", 0, 2, at(2), None, None, 9, True, True, "commit"),
        ("t", 0, 3, at(3), None, bytearray(b"ha llo \xff"), 9, True, False, None),
        ("t", 0, 4, at(4), None, None, 9, True, True, "abort"),
        ("t", 0, 5, at(5), None, None, 9, True, False, None),
    ]
    schema = (
        "topic string, partition int, offset bigint, timestamp timestamp, key binary, value binary,"
        " producer_id bigint, is_transactional boolean, is_control boolean, control_type string"
    )
    found = of_log(spark.createDataFrame(rows, schema))
    assert tuple(found.columns) == RECORDS
    seen = {
        row.offset: (row.run, row.producer, row.number, row.visible, row.control)
        for row in found.collect()
    }
    assert seen == {
        0: (RUN, "p-1", 7, True, False),
        1: (RUN, "p-1", 7, True, False),
        2: (None, None, None, False, True),
        3: (None, None, None, False, False),
        4: (None, None, None, False, True),
        5: (None, None, None, False, False),
    }


def test_workers_find_the_contents_that_sql_finds(spark: Any) -> None:
    """Of a log with records of two producers, another run's, strangers and null values, in three ranges."""
    import pyarrow as pa

    from kwire.audit.evidence.contents import CONTENTS, Rows
    from kwire.audit.jobs import contents
    from kwire.audit.jobs.records import of_log

    def value(offset: int) -> bytes | None:
        strange = (None, b"", b"0badf00d p-1 7 x", b"0a1b2c3d p-1 x", b"0a1b2c3d p-1 7.0 ")
        if offset % 9 < len(strange):
            return strange[offset % 9]
        name = "p-1" if offset % 2 else "a-producer-with-a-long-name-" + "x" * 40
        text = b"%d" % offset if offset % 7 else b"+%d\t" % offset
        return value_prefix(RUN, name) + text + b" " * (offset % 3) + b"\xff"

    offsets = [offset for start in (0, 16_350, 50_000) for offset in range(start, start + 60)]
    rows = [("t", 0, offset, at(-offset), None, value(offset)) for offset in offsets]
    schema = (
        "topic string, partition int, offset bigint, timestamp timestamp, key binary, value binary"
    )
    by_sql = contents.of_records(of_log(spark.createDataFrame(rows, schema)), RUN).collect()
    collected = Rows("t", 0)
    collected.add(
        pa.RecordBatch.from_arrays(
            [
                pa.array(offsets, pa.int64()),
                pa.array([at(-offset) for offset in offsets], pa.timestamp("us", tz="UTC")),
                pa.array([value(offset) for offset in offsets], pa.binary()),
            ],
            names=["offset", "timestamp", "value"],
        ),
        RUN,
        0,
        1 << 60,
    )
    by_worker = [row for table in collected.take() for row in table.to_pylist()]
    of_ours = ("content", "content_sum", "low", "high")

    def brief(row: dict[str, Any]) -> tuple[Any, ...]:
        ours = row["producer"] is not None
        return tuple(
            row[name].timestamp() if name == "oldest" else row[name]
            for name in CONTENTS
            if name != "is_ordered" and (ours or name not in of_ours)
        )

    assert len(by_worker) == 9
    assert sorted(map(brief, by_worker), key=str) == sorted(
        (brief(row.asDict()) for row in by_sql), key=str
    )
    hashed = spark.sql(
        "select xxhash64(a, b, c) as hash from values (0L, 7L, 1L), (1L, 4611686018427387904L, 2L),"
        " (-5L, 3L, -1L) t(a, b, c)"
    ).collect()
    numbers = [3528787897979365047, 5809991385168790178, 2120863953475714414]
    assert [row["hash"] for row in hashed] == numbers  # as in tests/audit/test_contents.py


def test_only_ranges_in_doubt_are_read_again(spark: Any) -> None:
    from kwire.audit.jobs.contents import Comparison, in_doubt
    from kwire.audit.places import Place

    agreeing = {0: (True, False, True, False, True), 1: (True, True), 2: (False,)}
    rows = [
        ("t", partition, number, agrees)
        for partition, ranges in agreeing.items()
        for number, agrees in enumerate(ranges)
    ]
    schema = "topic string, partition int, range bigint, agrees boolean"
    ranges = spark.createDataFrame(rows, schema)
    known = Comparison(ranges, False, ranges, None, False)
    places = [Place("t", partition, 100, 80_000, False) for partition in range(4)]
    assert [place[1:4] for place in in_doubt(places, known)] == [
        (0, 16_384, 65_536),
        (2, 100, 16_384),
    ]
