"""`kwire audit` on a cluster: a ledger beside topics, by Kafka's source and by log directories."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kwire import Cluster
from kwire.errors import ConfigurationError
from kwire.spark import Spark
from spark_it import audit_kit

pytestmark = pytest.mark.timeout(500)


@pytest.fixture(autouse=True)
def _only_pyspark_4(spark: Any) -> None:
    if spark.version.startswith("3."):
        pytest.skip("the audit needs PySpark 4")


@pytest.fixture
def story(brokers: Cluster, fresh: Callable[[str], str], tmp_path: Path) -> audit_kit.Story:
    """A topic of two partitions and its ledger: 40 records, of which one is lost, one doubled, one unknown."""
    topic = fresh("audited")
    brokers.create_topic(topic, partitions=2, replication_factor=3)
    return audit_kit.story(brokers, topic, tmp_path / "ledger")


EXPECTED = {("lost", 0, 20), ("doubled", 1, 20), ("unacknowledged", 1, 21)}


@pytest.mark.parametrize("transport", [pytest.param("topics", marks=pytest.mark.slow), "logs"])
def test_it_names_exactly_what_happened(
    spark: Any, brokers: Cluster, story: audit_kit.Story, tmp_path: Path, transport: str
) -> None:
    from kwire.audit import runs

    logs = tuple(path for each in brokers.brokers for path in each.log_dirs)
    request = runs.Request(
        str(story.ledger),
        logs if transport == "logs" else (),
        None if transport == "logs" else brokers.bootstrap_servers,
        (story.topic,),
    )
    out = tmp_path / "out"
    plan = runs.planned(request, out, records_of_a_part=25)
    assert len(plan.parts) == 2
    # A driver that was killed after the first part: what is done is not done again.
    steps: list[str] = []

    def say(words: str) -> None:
        steps.append(words)
        if words == "part 2 of 2" and steps.count(words) == 1:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        runs.run(spark, plan, out, say)
    again = runs.planned(request, out, records_of_a_part=25)
    assert again == plan
    tables = runs.run(spark, again, out, say)
    assert steps.count("part 1 of 2") == 1
    assert not (out / "work").exists()
    found = {(row.kind, row.partition, row.offset) for row in tables["findings"].collect()}
    assert found == EXPECTED
    rows = {row.partition: row for row in tables["topics"].collect()}
    assert [(rows[n].sent, rows[n].acknowledged, rows[n].present) for n in (0, 1)] == [
        (21, 21, 20),
        (20, 20, 22),
    ]
    latencies = tables["latencies"].collect()
    assert sum(row["count"] for row in latencies) == 41
    assert all(row.p50_ms == pytest.approx(2.0) for row in latencies)


@pytest.mark.slow
def test_the_command_tells_what_it_found(
    brokers: Cluster, story: audit_kit.Story, tmp_path: Path
) -> None:
    logs = [word for each in brokers.brokers for path in each.log_dirs for word in ("--logs", path)]
    done = audit_kit.command(story.ledger, tmp_path / "out", *logs)
    assert done.returncode == 1, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    assert lines[0].split()[:3] == ["KIND", "WHERE", "RECORD"]
    assert [line.split()[0] for line in lines[1:4]] == ["lost", "doubled", "unacknowledged"]
    assert "41 acknowledged, 42 present: 1 lost, 1 doubled, 1 present, never" in lines[-1]


@pytest.mark.slow
def test_a_tests_own_audit_has_lists_of_findings(
    spark: Any, brokers: Cluster, story: audit_kit.Story, tmp_path: Path
) -> None:
    kwire_spark = Spark(spark, brokers, tmp_path)
    audit = kwire_spark.audit(story.ledger, logs=True)
    assert [(row.partition, row.offset, row.number) for row in audit.lost] == [(0, 20, 40)]
    assert [row.place for row in audit.doubled] == [f"{story.topic}-1 offset 20"]
    assert audit.reordered == audit.vanished == []
    assert "lost" in repr(audit)
    audit.page(tmp_path / "page.html")
    assert "p-1" in (tmp_path / "page.html").read_text()
    with pytest.raises(AttributeError, match="no kind 'loss'"):
        _ = audit.loss
    with pytest.raises(ConfigurationError, match="no ledger is given"):
        kwire_spark.audit()
