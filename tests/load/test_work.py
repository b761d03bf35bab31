"""A load's producers and readers, with clients that only remember; options; what is printed."""

from __future__ import annotations

import errno
import time
from collections.abc import Iterator
from pathlib import Path
from threading import Event, Timer
from typing import Any

import pyarrow.parquet as pq
import pytest

from kwire.errors import ConfigurationError
from kwire.load import command
from kwire.load.clients import ClientError, TransactionEnd, load_client
from kwire.load.command import report
from kwire.load.generator import Summary
from kwire.load.ledger import Ledger, Reader, Record
from kwire.load.plan import Plan
from kwire.load.work import ProducerWork, ReaderWork
from kwire.pipeline.ledger import ABORTED, COMMITTED, UNKNOWN, files


class FakeSender:
    """Acknowledges every record at once, all but some."""

    def __init__(self) -> None:
        self.records: list[Record] = []
        self.steps: list[object] = []
        self.refused: set[int] = set()
        self.answers = True
        self.end_with: TransactionEnd | None = None

    def send(self, record: Record) -> None:
        self.records.append(record)
        if record.number in self.refused:
            record.failed("MSG_SIZE_TOO_LARGE")
        elif self.answers:
            record.acknowledged(0, record.number)

    def serve(self, seconds: float) -> None:
        time.sleep(seconds)

    def begin(self) -> None:
        self.steps.append(len(self.records))

    def end(self, *, commit: bool) -> TransactionEnd:
        self.steps.append(commit)
        return self.end_with or TransactionEnd(COMMITTED if commit else ABORTED)

    def close(self, seconds: float) -> None:
        self.steps.append("close")


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    with Ledger(tmp_path / "ledger") as ledger:
        yield ledger


def work(ledger: Ledger, plan: Plan, sender: FakeSender, number: int = 0) -> ProducerWork:
    return ProducerWork(plan, number, ledger.producer(f"p{number}"), sender, Event())


def rows(ledger: Ledger) -> list[dict[str, Any]]:
    ledger.close()
    return [row for path in files(ledger.folder, "sent") for row in pq.read_table(path).to_pylist()]


def test_producers_share_the_records(ledger: Ledger) -> None:
    plan = Plan("t", records=11, producers=3, keys=2, size=100)
    senders = [FakeSender() for _ in range(3)]
    for number, sender in enumerate(senders):
        work(ledger, plan, sender, number).run()
    assert [len(sender.records) for sender in senders] == [4, 4, 3]
    assert [record.key for record in senders[0].records] == [b"key-0", b"key-1"] * 2
    assert {len(record.value) for record in senders[0].records} == {100}
    assert len(rows(ledger)) == 11


def test_a_rate_is_kept_and_the_time_is_a_bound(ledger: Ledger) -> None:
    sender = FakeSender()
    begin = time.monotonic()
    work(ledger, Plan("t", seconds=0.5, rate=200), sender).run()
    assert time.monotonic() - begin < 5
    assert 50 <= len(sender.records) <= 102


def test_it_stops_when_it_shall_and_what_is_not_answered_is_unknown(ledger: Ledger) -> None:
    sender = FakeSender()
    sender.answers = False
    one = work(ledger, Plan("t", seconds=60, rate=1000), sender)
    Timer(0.1, one._stop.set).start()
    one.run()
    assert sender.steps == ["close"]
    found = rows(ledger)
    assert len(found) == len(sender.records) > 0
    assert {row["outcome"] for row in found} == {UNKNOWN}


def test_every_so_manieth_transaction_is_aborted(ledger: Ledger) -> None:
    sender = FakeSender()
    plan = Plan("t", mode="transactional", records=10, transaction_records=2, abort_every=2)
    one = work(ledger, plan, sender)
    one.run()
    assert sender.steps == [0, True, 2, False, 4, True, 6, False, 8, True, "close"]
    assert one.transactions == {COMMITTED: 3, ABORTED: 2}
    outcomes = [(row["transaction"], row["outcome"]) for row in rows(ledger)]
    expected = [(n, ABORTED if n in (1, 3) else COMMITTED) for n in range(5) for _ in (0, 1)]
    assert sorted(outcomes) == expected


def test_a_transaction_that_fails_is_told(ledger: Ledger) -> None:
    sender = FakeSender()
    sender.end_with = TransactionEnd(UNKNOWN, "_FENCED")
    one = work(ledger, Plan("t", mode="transactional", records=1), sender)
    one.run()
    assert one.transaction_errors == ["_FENCED"]
    (row,) = rows(ledger)
    assert (row["outcome"], row["error"]) == (UNKNOWN, "_FENCED")


def test_a_client_that_cannot_go_on_ends_its_producer(ledger: Ledger) -> None:
    sender = FakeSender()

    def broken() -> None:
        raise ClientError("init of a producer: no")

    sender.begin = broken  # type: ignore[method-assign]
    one = work(ledger, Plan("t", mode="transactional", records=1), sender)
    one.run()
    assert one.failure == "init of a producer: no"


class FakeReceiver:
    def __init__(self, batches: list[int]) -> None:
        self._batches = batches
        self.is_aimed = False

    def receive(self, reader: Reader) -> int:
        count = self._batches.pop(0) if self._batches else 0
        for number in range(count):
            reader.seen("t", 0, number, None, b"0badcafe p0 7 ...")
        return count

    def aim(self) -> None:
        self.is_aimed = True

    def is_done(self) -> bool:
        return not self._batches

    def close(self) -> None:
        pass


def test_a_reader_goes_on_to_the_end(ledger: Ledger) -> None:
    sent = Event()
    sent.set()
    receiver = FakeReceiver([2, 0, 3])
    one = ReaderWork(ledger.reader("r0"), receiver, sent, Event())
    one.run()
    assert (one.seen, one.is_whole, one.is_running, receiver.is_aimed) == (5, True, False, True)
    ledger.close()
    (path,) = files(ledger.folder, "seen")
    table = pq.read_table(path).to_pylist()
    assert {(row["producer"], row["number"], row["reader"]) for row in table} == {("p0", 7, "r0")}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"client": "mine"}, "client 'mine': there are confluent-kafka, kafka-python"),
        ({"mode": "x"}, "mode 'x': there are plain, idempotent, transactional"),
        ({"acks": "2"}, "acks '2': there are 0, 1, all"),
        ({"isolation": "none"}, "isolation 'none': there are read_uncommitted, read_committed"),
        ({"mode": "idempotent", "acks": "1"}, "acks 1: mode idempotent needs acks all"),
        ({"abort_every": 2}, "abort_every is for mode transactional"),
        ({"records": 0}, "records 0: expected 1 or more"),
        ({"keys": 2_000_000}, "keys 2000000: expected 1000000 or less"),
    ],
)
def test_bad_options_are_one_line(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=f"^{message}$"):
        Plan("t", **options)


def test_a_client_that_is_not_installed_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "kwire.load.confluent", None)
    with pytest.raises(ConfigurationError, match=r"^confluent-kafka is not installed: pip install"):
        load_client(Plan("t"))


def test_what_is_printed() -> None:
    plan = Plan("orders", mode="transactional")
    summary = Summary(
        "0badcafe", Path("led"), 2.0, 1200, 1190, 4, 6, [1100], 90, 10, 2, {"_MSG_TIMED_OUT": 6}
    )
    assert report(plan, summary) == [
        "run 0badcafe: 1,200 records to orders in 2.0 s (600/s): 1,190 acknowledged, 4 failed, 6 unknown",
        "10 transactions committed, 2 aborted",
        "seen by readers: 1,100",
        "6 × _MSG_TIMED_OUT",
        "ledger: led",
    ]


@pytest.mark.parametrize(
    "words", ["write() failed", "Error writing bytes to file. Detail: [errno 28]"]
)
def test_a_full_disk_is_said_of_the_ledger(
    words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, words)

    monkeypatch.setattr(command, "Load", full)
    with pytest.raises(OSError, match="No space left on device") as raised:
        command.run_load(Plan(topic="t"), "h:1", tmp_path / "ledger")
    assert raised.value.filename == str(tmp_path / "ledger")
