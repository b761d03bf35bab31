"""Bad input that only Spark finds: `kwire audit` has one line for it and status 2, or a finding.

What is known before Spark starts: tests/audit/test_bad_input.py."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from kwire import Cluster
from kwire.cli.audit import audit
from kwire.protocol.record_builder import build_batch
from kwire.protocol.records import Record
from spark_it import audit_kit
from spark_it.support import few_tasks

pytestmark = [pytest.mark.kwire_only, pytest.mark.timeout(300)]

RECORDS = 6


@pytest.fixture(autouse=True)
def _only_pyspark_4(spark: Any) -> None:
    if spark.version.startswith("3."):
        pytest.skip("the audit needs PySpark 4")


@pytest.fixture
def rows(tmp_path: Path) -> list[dict[str, Any]]:
    """A ledger's, of records that lie on two brokers, each in a batch of its own, below `logs`."""
    values = [audit_kit.value_of("p-1", number) for number in range(RECORDS)]
    batches = [
        build_batch([Record(n, n, b"k", value)], base_offset=n) for n, value in enumerate(values)
    ]
    for broker in (1, 2):
        log_dir = tmp_path / "logs" / f"broker-{broker}"
        (log_dir / "orders-0").mkdir(parents=True)
        (log_dir / "meta.properties").write_text(f"version=1\nnode.id={broker}\n")
        (log_dir / "replication-offset-checkpoint").write_text(f"0\n1\norders 0 {RECORDS}\n")
        (log_dir / "orders-0" / f"{0:020}.log").write_bytes(b"".join(batches))
        (log_dir / "orders-0" / "leader-epoch-checkpoint").write_text("0\n1\n0 0\n")
    return [audit_kit.sent("orders", "p-1", n, 0, n, value) for n, value in enumerate(values)]


def audited(spark: Any, tmp_path: Path, rows: list[dict[str, Any]], run: str) -> Result:
    """What the command says of a ledger and the logs, in this process's session."""
    ledger = audit_kit.write(tmp_path / "ledger", "127.0.0.1:1", ["orders"], rows, run)
    logs, out = str(tmp_path / "logs"), str(tmp_path / "out")
    with few_tasks(spark):
        return CliRunner().invoke(audit, [str(ledger), "--logs", logs, "--out", out])


def test_a_ledger_of_another_run_is_one_line(
    spark: Any, tmp_path: Path, rows: list[dict[str, Any]]
) -> None:
    done = audited(spark, tmp_path, rows, "0badf00d")
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr == (
        f"kwire audit: the topics have {RECORDS} records, and none of run 0badf00d: is the ledger"
        " another's?\n"
    )


def test_a_damaged_segment_is_a_finding(
    spark: Any, tmp_path: Path, rows: list[dict[str, Any]]
) -> None:
    path = tmp_path / "logs" / "broker-1" / "orders-0" / f"{0:020}.log"
    data = bytearray(path.read_bytes())
    data[len(data) // RECORDS * 3 - 3] ^= 1  # the end of the third batch
    path.write_bytes(data)
    done = audited(spark, tmp_path, rows, audit_kit.RUN)
    assert (done.exit_code, done.stderr) == (1, "")
    _, differs, place, record, summary = done.stdout.splitlines()
    assert differs.startswith("replica_differs  orders-0 offset 2  ")
    assert place.startswith("damaged ") and ".log at 208, 104 bytes: wrong CRC: " in place
    assert record.startswith("damaged ") and "p-1 2   the value is not the one that was" in record
    assert summary.startswith("6 acknowledged, 6 present: 1 different replicas, 2 damaged places;")


@pytest.mark.slow
def test_a_jar_that_cannot_be_resolved_is_one_line(brokers: Cluster, tmp_path: Path) -> None:
    settings = tmp_path / "ivy.xml"  # a repository that is empty, and no other
    settings.write_text(
        '<ivysettings><settings defaultResolver="none"/><resolvers><filesystem name="none">'
        f'<artifact pattern="{tmp_path}/[artifact].[ext]"/></filesystem></resolvers></ivysettings>'
    )
    connector = "org.apache.spark:spark-sql-kafka-0-10_2.13:0.0.0"
    brokers.create_topic("unresolved", partitions=1, replication_factor=1)
    ledger = audit_kit.write(tmp_path / "ledger", brokers.bootstrap_servers, ["unresolved"], [])
    conf = [
        word
        for pair in (
            f"spark.jars.packages={connector}",
            f"spark.jars.ivySettings={settings}",
            f"spark.jars.ivy={tmp_path}/ivy",
        )
        for word in ("--conf", pair)
    ]
    done = audit_kit.command(ledger, tmp_path / "out", *conf)
    assert (done.returncode, done.stdout) == (2, ""), done
    (line,) = done.stderr.splitlines()
    assert line.startswith(
        f"kwire audit: Spark did not start: {connector} is in none of the repositories"
    )
