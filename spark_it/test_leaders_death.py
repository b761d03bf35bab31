"""A leader's death is staged with stock clients, audited, and drawn: the page of docs/audit.md.

KWIRE_WRITE=1 writes what the audit found to tests/audit/leaders_death.json, of which tests/audit/test_screenshot.py
makes the pictures."""

import json
import os
import re
from base64 import b64encode
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from kwire import Cluster
from spark_it import disasters, leaders_death

pytestmark = [pytest.mark.kwire_only, pytest.mark.slow, pytest.mark.timeout(400)]

STORED = Path(__file__).parents[1] / "tests" / "audit" / "leaders_death.json"


@pytest.fixture(autouse=True)
def _only_pyspark_4(spark: Any) -> None:
    if spark.version.startswith("3."):
        pytest.skip("the audit needs PySpark 4")


def audited(spark: Any, folder: Path, safe: bool) -> dict[str, list[Any]]:
    """The tables of an audit of the stopped brokers' files; they lie in `folder`/out, too."""
    from kwire.audit import runs

    with Cluster(3, leaders_death.CONFIG, data_dir=str(folder / "data")) as cluster:
        ledger, events, _ = disasters.staged(
            cluster, folder, lambda cluster, book: leaders_death.stage(cluster, book, safe)
        )
        logs = tuple(path for each in cluster.brokers for path in each.log_dirs)
    request = runs.Request(str(ledger), logs, None, (), (), (str(events),))
    tables = runs.run(spark, runs.planned(request, folder / "out"), folder / "out")
    return {name: frame.collect() for name, frame in tables.items()}


def leaderless(tables: dict[str, list[Any]]) -> list[Any]:
    return [row for row in tables["timeline"] if row.kind == "leaderless" and row.end is not None]


def test_three_records_are_lost_and_the_page_says_why(spark: Any, tmp_path: Path) -> None:
    from kwire.audit import page

    tables = audited(spark, tmp_path, safe=False)
    assert [(row.kind, row.topic, row.partition) for row in tables["findings"]] == [
        ("lost", "orders", 0)
    ] * leaders_death.LOST
    (nobody,) = (row for row in leaderless(tables) if row.partition == 0)
    took = (nobody.end - nobody.begin).total_seconds()
    assert leaders_death.LEADERLESS_SECONDS <= took < leaders_death.LEADERLESS_SECONDS + 1
    content = page.write(tmp_path / "out").read_text()
    sentence = re.search("<h1>(.*?)</h1>", content, re.S)[1]  # type: ignore[index]
    assert sentence.startswith("3 records were lost in orders-0 ")
    assert "because broker 3 was elected uncleanly in epoch " in sentence
    assert "Broker 3 became the leader of orders-0" in content
    if os.environ.get("KWIRE_WRITE"):
        STORED.write_text(json.dumps(stored(tables), separators=(",", ":")) + "\n")


def test_with_two_in_sync_and_clean_elections_nothing_is(spark: Any, tmp_path: Path) -> None:
    tables = audited(spark, tmp_path, safe=True)
    assert tables["findings"] == []
    assert leaderless(tables)
    assert sum(row.acknowledged for row in tables["topics"]) > 300


def stored(tables: dict[str, list[Any]]) -> dict[str, list[dict[str, Any]]]:
    """Rows of tests/audit/page_kit.py: times in microseconds, keys in base 64; what is null is left out."""

    def value(found: Any) -> Any:
        if isinstance(found, datetime):
            return round(found.astimezone(UTC).timestamp() * 1_000_000)
        if isinstance(found, bytes | bytearray):
            return b64encode(found).decode()
        return round(found, 3) if isinstance(found, float) else found

    return {
        name: [
            {key: value(each) for key, each in row.asDict().items() if each is not None}
            for row in rows
        ]
        for name, rows in tables.items()
    }
