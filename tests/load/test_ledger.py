"""Ledgers: written by a program of one's own, read by PyArrow, and refused in one line when they are none."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from zlib import crc32

import pyarrow.parquet as pq
import pytest

from kwire.errors import ConfigurationError
from kwire.load.ledger import Ledger, whose
from kwire.pipeline.ledger import COLUMNS, check_files, ddl, files, read_run, schema


def rows(folder: Path, table: str) -> list[dict[str, Any]]:
    return [row for path in files(folder, table) for row in pq.read_table(path).to_pylist()]


def test_what_was_sent_and_seen(tmp_path: Path) -> None:
    with Ledger(
        tmp_path, bootstrap="b:1", topics=["orders"], client="mine", run="0badcafe"
    ) as ledger:
        billing = ledger.producer("billing")
        first = billing.record("orders", b"3 teas", key=b"ann")
        second = billing.record("orders", size=40)
        third = billing.record("orders")
        assert first.value == b"0badcafe billing 0 3 teas"
        assert len(second.value) == 40
        first.acknowledged(2, 17, at=first.sent + 1500)
        first.failed("too late")  # the first answer counts
        second.failed("MSG_SIZE_TOO_LARGE")
        reader = ledger.reader("audit", "read_committed")
        reader.seen("orders", 2, 17, b"ann", first.value)
        reader.seen("orders", 2, 18, None, b"of somebody else")
    one, two, three = rows(tmp_path, "sent")
    assert one["run"] == "0badcafe"
    assert (one["producer"], one["number"], one["key"], one["outcome"]) == (
        *("billing", 0, b"ann", "acknowledged"),
    )
    assert (one["partition"], one["offset"], one["hash"]) == (2, 17, crc32(first.value))
    assert (one["acknowledged"] - one["sent"]).total_seconds() == 0.0015
    assert (two["outcome"], two["error"], two["offset"]) == ("failed", "MSG_SIZE_TOO_LARGE", None)
    assert (three["outcome"], three["number"]) == ("unknown", third.number)
    seen, foreign = rows(tmp_path, "seen")
    assert (seen["producer"], seen["number"], seen["isolation"]) == ("billing", 0, "read_committed")
    assert (foreign["run"], foreign["producer"], foreign["number"]) == (None, None, None)
    run = read_run(tmp_path)
    assert (run.run, run.topics, run.records, run.mode) == ("0badcafe", ("orders",), 3, "plain")
    assert run.ended is not None and run.ended >= run.started
    check_files(tmp_path, run)


def test_the_records_of_a_transaction_are_written_with_its_end(tmp_path: Path) -> None:
    with Ledger(tmp_path, mode="transactional") as ledger:
        producer = ledger.producer("p")
        for transaction in range(4):
            for _ in range(2):
                producer.record("t", transaction=transaction).acknowledged(0, 1)
        producer.record("t", transaction=0).failed("gone")
        producer.committed(0, epoch=5)
        producer.aborted(1)
        producer.ended_unknown(2, "_TIMED_OUT")
    found = sorted(
        (row["transaction"], row["outcome"], row["error"])
        for row in rows(tmp_path, "sent")
        if row["acknowledged"]
    )
    expected = [("committed", None), ("aborted", None), ("unknown", "_TIMED_OUT")]
    expected.append(("unknown", "no answer until the end of the run"))
    assert found == [(number, *expected[number]) for number in (0, 0, 1, 1, 2, 2, 3, 3)]
    assert [row["outcome"] for row in rows(tmp_path, "sent") if not row["acknowledged"]] == [
        "failed"
    ]
    assert {row["epoch"] for row in rows(tmp_path, "sent") if row["outcome"] == "committed"} == {5}


def test_files_are_closed_while_it_runs(tmp_path: Path) -> None:
    with Ledger(tmp_path, seconds=0.01) as ledger:
        producer = ledger.producer("p")
        record = producer.record("t")
        record.acknowledged(0, 0)
        with ledger.files.written:
            assert ledger.files.written.wait_for(lambda: files(tmp_path, "sent"), 10)
        run = read_run(tmp_path)
        assert run.ended is None  # as after kill -9
        check_files(tmp_path, run)
        assert len(rows(tmp_path, "sent")) == 1


def test_a_directory_that_holds_something_is_refused(tmp_path: Path) -> None:
    (tmp_path / "mine").touch()
    with pytest.raises(
        ConfigurationError, match=r"is not empty: a ledger needs a directory of its"
    ):
        Ledger(tmp_path)
    with pytest.raises(ConfigurationError, match="Not a directory"):
        Ledger(tmp_path / "mine")
    with pytest.raises(ConfigurationError, match="mode 'often': there are plain, idempotent"):
        Ledger(tmp_path / "new", mode="often")


def test_names_are_one_word(tmp_path: Path) -> None:
    with Ledger(tmp_path) as ledger:
        for name in ("", "two words", "größe"):
            with pytest.raises(ConfigurationError, match="expected one word in ASCII"):
                ledger.producer(name)


@pytest.mark.parametrize(
    ("stored", "message"),
    [
        ("[]", "expected an object"),
        ("{", "no JSON"),
        ("{}", "run is null, which kwire load does not write"),
        ('{"version": 2}', "the ledger is of version 2, this kwire reads up to 1"),
    ],
)
def test_a_directory_that_is_no_ledger_is_one_line(
    tmp_path: Path, stored: str, message: str
) -> None:
    with pytest.raises(ConfigurationError, match="there is no such directory"):
        read_run(tmp_path / "none")
    with pytest.raises(ConfigurationError, match="is not a ledger: it has no"):
        read_run(tmp_path)
    (tmp_path / "run.json").write_text(stored)
    with pytest.raises(ConfigurationError, match=message) as error:
        read_run(tmp_path)
    assert "\n" not in str(error.value)


def test_fields_of_the_wrong_kind_are_named(tmp_path: Path) -> None:
    Ledger(tmp_path, run="0badcafe").close()
    path = tmp_path / "run.json"
    stored = json.loads(path.read_text())
    path.write_text(json.dumps({**stored, "started": "yesterday"}))
    with pytest.raises(ConfigurationError, match='started is "yesterday"'):
        read_run(tmp_path)
    path.write_text(json.dumps({**stored, "mode": "often"}))
    with pytest.raises(ConfigurationError, match="mode is often"):
        read_run(tmp_path)


def test_files_of_another_run_and_damaged_ones_are_named(tmp_path: Path) -> None:
    for run in ("aaaaaaaa", "bbbbbbbb"):
        with Ledger(tmp_path / run, run=run) as ledger:
            ledger.producer("p").record("t").acknowledged(0, 0)
            ledger.reader("r").seen("t", 0, 0, None, None)
    one, other = tmp_path / "aaaaaaaa", tmp_path / "bbbbbbbb"
    (sent,) = files(other, "sent")
    sent.rename(one / "sent" / "stranger.parquet")
    with pytest.raises(
        ConfigurationError, match=r"stranger.parquet is of run bbbbbbbb, the ledger"
    ):
        check_files(one, read_run(one))
    (one / "sent" / "stranger.parquet").write_bytes(b"PAR1 no")
    with pytest.raises(ConfigurationError, match=r"stranger.parquet: no Parquet file"):
        check_files(one, read_run(one))
    (seen,) = files(other, "seen")
    seen.rename(one / "sent" / "stranger.parquet")
    with pytest.raises(ConfigurationError, match=r"other columns than a ledger's: acknowledged, "):
        check_files(one, read_run(one))


def test_columns_have_the_types_of_spark() -> None:
    assert ddl("seen").startswith("run string, reader string, isolation string, topic string")
    assert schema("sent").names == list(COLUMNS["sent"])


@pytest.mark.parametrize(
    "value",
    [
        None,
        b"",
        b"0badcafe",
        b"0badcafe p",
        b"0badcafe p x ",
        b"notahexa p 1 ",
        b"0badcafe \xff 1 ",
    ],
)
def test_values_that_no_run_has_written(value: bytes | None) -> None:
    assert whose(value) == (None, None, None)
