"""`kwire_spark.produce` and `kwire_spark.load` without Spark: rows become records, a load goes on beside a test."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from kwire import Cluster
from kwire.errors import ConfigurationError, RequestError
from kwire.load.ledger import Ledger
from kwire.load.rows import load, produce
from kwire.pipeline.ledger import files, read_run

TEN = 1_795_341_600_000
"""2026-11-22T10:00:00Z"""


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster() as cluster:
        yield cluster


def test_rows_of_every_kind(cluster: Cluster) -> None:
    cluster.create_topic("rows", 2)
    moment = datetime(2026, 11, 22, 10, tzinfo=UTC)
    written = produce(
        cluster.bootstrap_servers,
        "rows",
        [
            {"value": "tea", "key": b"k", "timestamp": moment, "partition": 1},
            {"value": None, "timestamp": TEN, "headers": {"a": "1", "b": None}, "partition": 1},
            {"value": {"cups": 3}, "timestamp": "2026-11-22T10:00:00Z", "partition": 0},
            {"value": b"x", "timestamp": "2026-11-22T10:00", "headers": [("a", b"1"), ("a", b"2")]},
            {"value": "y", "timestamp": moment.astimezone(timezone(timedelta(hours=9)))},
            "alone",
        ],
    )
    assert [(each.partition, each.offset) for each in written[:3]] == [(1, 0), (1, 1), (0, 0)]
    found = {(each.partition, each.offset): each for each in cluster.records("rows")}
    stored = [found[each.partition, each.offset] for each in written]
    assert [each.value for each in stored] == [b"tea", None, b'{"cups": 3}', b"x", b"y", b"alone"]
    assert [each.timestamp for each in stored[:5]] == [TEN] * 5
    assert abs(stored[5].timestamp / 1000 - datetime.now(UTC).timestamp()) < 60
    assert stored[0].key == b"k"
    assert stored[1].headers == [("a", b"1"), ("b", None)]
    assert stored[3].headers == [("a", b"1"), ("a", b"2")]


def test_many_rows_keep_their_order(cluster: Cluster) -> None:
    cluster.create_topic("many", 1)
    written = produce(cluster.bootstrap_servers, "many", (str(n) for n in range(1201)))
    assert [each.offset for each in written] == list(range(1201))
    assert [each.value for each in cluster.records("many")] == [b"%d" % n for n in range(1201)]


def test_rows_are_noted_in_a_ledger(cluster: Cluster, tmp_path: Path) -> None:
    with Ledger(tmp_path / "ledger", run="0badcafe") as ledger:
        produce(cluster.bootstrap_servers, "noted", ["tea", "milk"], ledger)
        with pytest.raises(RequestError):
            produce(cluster.bootstrap_servers, "no/good", ["tea"], ledger)
    values = sorted(each.value or b"" for each in cluster.records("noted"))
    assert values == [b"0badcafe rows 0 tea", b"0badcafe rows 1 milk"]
    (path,) = files(tmp_path / "ledger", "sent")
    rows = pq.read_table(path).to_pylist()
    assert [row["outcome"] for row in rows] == ["acknowledged", "acknowledged", "unknown"]
    assert rows[1]["partition"] is not None and rows[1]["offset"] is not None


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"key": "k"}, "row 1 has no value; a row may have value, key, timestamp, headers"),
        ({"value": "", "time": 1}, "row 1 has 'time'; a row may have value, key, timestamp"),
        ({"value": "", "timestamp": "noon"}, "row 1 timestamp 'noon': expected a datetime, mill"),
        ({"value": "", "timestamp": 1.5}, "row 1 timestamp 1.5: expected a datetime"),
        ({"value": "", "partition": "0"}, "row 1 partition '0': expected a whole number"),
        ({"value": object}, "row 1 value <class 'object'>: expected text, bytes, or what JSON"),
    ],
)
def test_rows_that_are_none_are_refused_before_anything_is_written(
    cluster: Cluster, row: object, message: str
) -> None:
    with pytest.raises(ConfigurationError, match=f"^kwire_spark.produce: {message}"):
        produce(cluster.bootstrap_servers, "none", ["good", row])
    assert "none" not in cluster.topics()


def test_a_load_goes_on_until_its_with_block_ends(cluster: Cluster, tmp_path: Path) -> None:
    options = {"seconds": 60, "rate": 200, "readers": 1, "mode": "idempotent"}
    with load(cluster.bootstrap_servers, "loaded", tmp_path / "one", options) as going:
        cluster.wait_for(lambda it: len(it.records("loaded")) > 50)
    summary = going.wait()
    assert summary.is_complete and summary.records == summary.acknowledged == summary.seen[0]
    assert read_run(going.ledger).records == len(cluster.records("loaded")) == summary.records
    assert (
        load(cluster.bootstrap_servers, "short", tmp_path / "two", {"records": 10})
        .wait()
        .acknowledged
        == 10
    )


def test_an_option_that_a_load_does_not_have(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="there is no option 'speed'; there are client, "):
        load("localhost:1", "t", tmp_path, {"speed": 3})
