"""The audit of Apache Kafka 3.9.1: its topics and its log directories tell the same, and what Kafka's consumer tells.

Nothing writes events there: what was lost is explained by the leader epochs in the logs."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

from spark_it import real_disasters
from spark_it.real_disasters import ALONE, SHARED, Found, Identity, Place

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


class Audited(NamedTuple):
    staged: real_disasters.Staged
    seen: dict[Identity, list[Place]]
    """By Kafka's console consumer."""
    expected: list[Found]
    tables: dict[str, dict[str, list[Any]]]
    """Of the audits: of the "topics" of running brokers, of the "logs" of killed ones."""


@pytest.fixture(scope="module")
def audited(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Audited]:
    if spark.version.startswith("3."):
        pytest.skip("the audit needs PySpark 4")
    from kwire.audit import runs

    tables = {}
    with real_disasters.staged(tmp_path_factory.mktemp("real")) as staged:
        seen = real_disasters.consumed(staged)
        expected = real_disasters.expected(staged, seen)
        for transport in ("topics", "logs"):
            if transport == "logs":
                staged.kafka.kill9()
            logs = staged.logs if transport == "logs" else ()
            request = runs.Request(str(staged.ledger), logs, None, ())
            out = tmp_path_factory.mktemp(transport)
            made = runs.run(spark, runs.planned(request, out), out)
            tables[transport] = {name: frame.collect() for name, frame in made.items()}
        yield Audited(staged, seen, expected, tables)


def test_the_consumer_has_read_what_lies_in_the_logs(audited: Audited) -> None:
    """So that it can be the judge; and what was staged has happened."""
    aborted = {
        (row["producer"], row["number"])
        for row in audited.staged.book.rows
        if row["outcome"] == "aborted"
    }
    lying = real_disasters.dumped(audited.staged)
    assert len(aborted) == 5 and aborted <= set(lying)
    assert {each: places for each, places in lying.items() if each not in aborted} == audited.seen
    lost = range(SHARED, SHARED + ALONE)
    assert audited.expected == [
        ("expired", "expired", 0, 0, None, None),
        *(("lost", "unclean", 0, offset, "unclean-1", offset) for offset in lost),
    ]


@pytest.mark.parametrize("transport", ["topics", "logs"])
def test_the_audit_tells_what_the_consumer_tells(audited: Audited, transport: str) -> None:
    tables = audited.tables[transport]
    found = [
        (row.kind, row.topic, row.partition, row.offset, row.producer, row.number)
        for row in tables["findings"]
    ]
    assert sorted(found, key=str) == audited.expected
    counts = {
        (row.topic, row.partition): (row.sent, row.acknowledged, row.present)
        for row in tables["topics"]
    }
    assert counts == real_disasters.counted(audited.staged, audited.seen)


def test_replicas_are_equal_and_their_epochs_explain_the_loss(audited: Audited) -> None:
    replicas = audited.tables["logs"]["replicas"]
    assert {(row.topic, row.partition, row.broker) for row in replicas} == {
        (topic, partition, broker)
        for topic, assignment in real_disasters.REPLICAS.items()
        for partition, brokers in enumerate(assignment)
        for broker in brokers
    }
    assert [row for row in replicas if row.first_difference is not None] == []
    assert all(row.high_watermark is not None for row in replicas)
    (epochs,) = {row.epochs for row in replicas if row.topic == "unclean"}
    assert epochs.startswith("0@0 ") and epochs.endswith(f"@{SHARED}")
    lost = [row for row in audited.tables["logs"]["findings"] if row.kind == "lost"]
    for row in lost:
        assert row.cause.startswith(f"unclean-0 offset {row.offset}: epoch ")
        assert f" begins at offset {SHARED}, with a record of " in row.cause
