"""Disasters with a known truth, on three brokers: the audit names exactly these, with the event, and nothing else.

`disasters.py` stages them, one topic each, on one cluster; one audit of the log directories, the ledger and the events
has to tell them apart. What two brokers have acknowledged while leaders died (`calm`) must come out clean."""

from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from kwire import Cluster
from spark_it import disasters
from spark_it.support import few_tasks

pytestmark = [pytest.mark.kwire_only, pytest.mark.timeout(400)]


class Audited(NamedTuple):
    tables: dict[str, list[Any]]
    rows: list[dict[str, Any]]
    """Of the ledger."""
    events: dict[int, str]
    """Names by number."""

    def findings(self, kind: str) -> list[Any]:
        return [row for row in self.tables["findings"] if row.kind == kind]

    def intervals(self, topic: str, kind: str) -> list[Any]:
        rows = [row for row in self.tables["timeline"] if (row.topic, row.kind) == (topic, kind)]
        return sorted(rows, key=lambda row: row.begin)


@pytest.fixture(scope="module")
def audited(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Audited:
    """All disasters."""
    return audited_in(spark, tmp_path_factory.mktemp("disasters"), tuple(disasters.TOPICS))


def audited_in(spark: Any, folder: Path, topics: tuple[str, ...]) -> Audited:
    """Stage the disasters of these topics, and audit what lies in the log directories."""
    if spark.version.startswith("3."):
        pytest.skip("the audit needs PySpark 4")
    from kwire.audit import runs

    with Cluster(3, disasters.CONFIG, recent_requests=True) as cluster:
        ledger, events, book = disasters.staged(
            cluster, folder, lambda cluster, book: disasters.stage(cluster, book, topics)
        )
        logs = tuple(path for each in cluster.brokers for path in each.log_dirs)
        request = runs.Request(str(ledger), logs, None, (), (), (str(events),))
        tables = runs.run(spark, runs.planned(request, folder / "out"), folder / "out")
        found = {name: frame.collect() for name, frame in tables.items()}
    return Audited(found, book.rows, numbered(events))


def test_a_loss_and_a_retry_are_named(spark: Any, tmp_path: Path) -> None:
    """The short form of all that follows."""
    with few_tasks(spark):
        audited = audited_in(spark, tmp_path, disasters.SMALL)
    counts = Counter((row.kind, row.topic) for row in audited.tables["findings"])
    assert counts == {("lost", "unclean"): 5, ("doubled", "doubled"): 1}
    check_lost_and_doubled(audited)


def numbered(events: Path) -> dict[int, str]:
    import json

    lines = events.read_text().splitlines()
    return {number: json.loads(line)["event"] for number, line in enumerate(lines, 1)}


def check_lost_and_doubled(audited: Audited) -> None:
    """Which they are, each with its event, in words."""
    lost = {(row.producer, row.number, row.offset) for row in audited.findings("lost")}
    assert lost == {("unclean-1", n, n) for n in (5, 6, 7)} | {
        ("unclean-2", n, 8 + n) for n in (0, 1)
    }
    (doubled,) = audited.findings("doubled")
    assert (doubled.producer, doubled.number) == ("doubled-1", 4) and doubled.offset in (4, 5)
    for row in audited.findings("lost"):
        assert audited.events[row.event] == "UNCLEAN_LEADER_ELECTED"
        isr = "1,2" if row.producer == "unclean-1" else "1"
        assert (
            f"unclean-0 offset {row.offset}: acknowledged by broker 1 (epoch 0, ISR {isr})"
            in row.cause
        )
        assert "; broker 2 was elected uncleanly in epoch 1 at " in row.cause
        assert row.cause.endswith(" with log end 5; broker 1 truncated to 5")
    (doubled,) = audited.findings("doubled")
    assert audited.events[doubled.event] == "CUT_REQUESTED"
    assert "its producer sent it again: the links 3 | 1,2 were cut from " in doubled.cause


@pytest.mark.slow
def test_exactly_what_happened_is_named(audited: Audited) -> None:
    counts = Counter((row.kind, row.topic) for row in audited.tables["findings"])
    assert counts == {("lost", "unclean"): 5, ("doubled", "doubled"): 1, ("expired", "expired"): 1}
    check_lost_and_doubled(audited)
    (expired,) = audited.findings("expired")
    assert expired.offset == 0 and expired.detail.startswith("10 records, offsets 0 to 9")


@pytest.mark.slow
def test_retention_is_named_with_its_event(audited: Audited) -> None:
    (expired,) = audited.findings("expired")
    assert audited.events[expired.event] == "SEGMENTS_DELETED"
    assert "deleted segments before offset 10 at " in expired.cause


@pytest.mark.slow
def test_what_went_on_without_a_loss_is_clean(audited: Audited) -> None:
    rows = [row for row in audited.rows if row["topic"] == "calm"]
    assert len(rows) > 50 and {row["outcome"] for row in rows} == {"acknowledged"}
    topics = [row for row in audited.tables["topics"] if row.topic == "calm"]
    assert (
        sum(row.present for row in topics) == sum(row.acknowledged for row in topics) == len(rows)
    )
    assert audited.intervals("calm", "leaderless") and not audited.intervals("calm", "unclean")


@pytest.mark.slow
def test_the_timeline_has_what_replicas_did(audited: Audited) -> None:
    (cut,) = audited.intervals("truncated", "truncated")
    assert (cut.broker, cut.detail.partition(":")[0]) == (3, "from 7 to 5")
    (unclean,) = audited.intervals("unclean", "unclean")
    assert (unclean.broker, unclean.epoch, list(unclean.isr)) == (2, 1, [2])
    (nobody, *_) = audited.intervals("unclean", "leaderless")
    assert nobody.detail == "broker 1 was killed" and nobody.end > nobody.begin
    replicas = audited.tables["replicas"]
    assert {row.topic for row in replicas} == set(disasters.TOPICS)
    assert [row for row in replicas if row.first_difference is not None] == []
    assert {row.epochs for row in replicas if row.topic == "unclean"} == {"0@0 1@5"}
