"""Writes a ledger: what producers have sent and readers have seen, for `kwire audit` and for any SQL.

    with Ledger("ledger", bootstrap="localhost:9092", topics=["orders"], client="billing 1.3") as ledger:
        billing = ledger.producer("billing")
        record = billing.record("orders", b"3 teas", key=b"ann")
        …send record.topic, record.key, record.value; when the client answers:
        record.acknowledged(partition, offset)

Producers, readers and records may be used by any thread. A thread of the ledger closes a file every few seconds;
what a killed process has not written are the rows of these seconds.
"""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path
from time import time_ns
from zlib import crc32

from kwire.errors import ConfigurationError
from kwire.load.files import ROWS_A_FILE, Files, same, taken
from kwire.pipeline.ledger import (
    ABORTED,
    ACKNOWLEDGED,
    COMMITTED,
    FAILED,
    MODES,
    SEEN,
    SENT,
    UNKNOWN,
    Run,
    value_prefix,
    write_run,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any, Self

    from kwire.load.files import Columns, Rows

SECONDS_A_FILE = 2.0
NOT_ANSWERED = "no answer until the end of the run"


class Ledger:
    """A directory that is made, and must be empty if it exists: else ConfigurationError, as for a bad option.

    OSError from any method, once a file could not be written."""

    def __init__(
        self,
        folder: str | Path,
        *,
        bootstrap: str = "",
        topics: Iterable[str] = (),
        client: str = "",
        mode: str = "plain",
        acks: str = "all",
        cluster_id: str | None = None,
        run: str | None = None,
        seconds: float = SECONDS_A_FILE,
    ) -> None:
        """`run`: 8 hexadecimal digits; made up if not given. `seconds`: how long a file stays open."""
        if mode not in MODES:
            raise ConfigurationError(f"mode {mode!r}: there are {', '.join(MODES)}")
        self.folder = require_empty(Path(folder))
        name = new_run() if run is None else run
        self.run = Run(name, bootstrap, tuple(topics), client, mode, acks, now_us() // 1000)
        self.run = replace(self.run, cluster_id=cluster_id)
        self._producers: dict[str, Producer] = {}
        self._readers: list[Reader] = []
        self._is_closed = False
        self.files = Files(self.folder, seconds, self._collect)
        write_run(self.folder, self.run)
        self.files.start()

    def producer(self, name: str) -> Producer:
        """A producer of this run. `name` is one word; records of one name are counted together."""
        if not name or not name.isascii() or any(letter.isspace() for letter in name):
            raise ConfigurationError(f"producer {name!r}: expected one word in ASCII")
        return self._producers.setdefault(name, Producer(self, name))

    def reader(self, name: str, isolation: str = "read_uncommitted") -> Reader:
        """A reader of this run; `isolation` is its isolation.level, in Kafka's words."""
        reader = Reader(self, name, isolation)
        self._readers.append(reader)
        return reader

    def close(self) -> None:
        """Write all that is left and the end of the run. Records that nothing is known of become unknown."""
        if self._is_closed:
            return
        self._is_closed = True
        for producer in self._producers.values():
            producer.give_up()
        self.files.close()
        write_run(self.folder, replace(self._counted(), ended=now_us() // 1000))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def make_room(self, rows: Rows) -> None:
        """Return when `rows` are not too many: they are written. OSError, once that has failed."""
        self.files.make_room(rows)

    def _collect(self) -> dict[str, list[Columns]]:
        sent = [each.columns(taken(each.rows)) for each in list(self._producers.values())]
        seen = [each.columns(taken(each.rows)) for each in list(self._readers)]
        if any(sent):
            write_run(self.folder, self._counted())
        return {SENT: list(filter(None, sent)), SEEN: list(filter(None, seen))}

    def _counted(self) -> Run:
        return replace(self.run, records=sum(each.count for each in self._producers.values()))


class Producer:
    """A producer of a run: counts its records from 0, and knows which of them are not answered yet."""

    __slots__ = (
        *("_ledger", "_lock", "_prefix", "_transactions", "acknowledged", "committed_records"),
        *("count", "errors", "name", "open", "rows"),
    )

    def __init__(self, ledger: Ledger, name: str) -> None:
        self._ledger = ledger
        self._lock = threading.Lock()
        self._prefix = value_prefix(ledger.run.run, name)
        self.name = name
        self.count = 0
        self.acknowledged = 0
        self.committed_records = 0
        """Those acknowledged which a reader with read_committed may see."""
        self.errors: dict[tuple[str, str], int] = {}
        """Records that are not acknowledged, by outcome and error."""
        self.open: dict[int, Record] = {}
        """Those without an answer."""
        self.rows: Rows = []
        self._transactions: dict[int, list[tuple[Record, int | None, int | None, int, int | None]]]
        self._transactions = {}

    def record(
        self,
        topic: str,
        payload: bytes = b"",
        *,
        key: bytes | None = None,
        size: int = 0,
        transaction: int | None = None,
    ) -> Record:
        """The next record, to be sent now; its `value`: RUN PRODUCER NUMBER and the payload, filled up to `size` bytes.

        `transaction`: the producer's own count; its records are written when `committed` or `aborted` is called."""
        if len(self.rows) >= ROWS_A_FILE:
            self._ledger.make_room(self.rows)
        with self._lock:
            number = self.count
            self.count += 1
        value = b"%s%d %s" % (self._prefix, number, payload)
        if len(value) < size:
            value = value.ljust(size, b".")
        record = Record(self, number, topic, key, value, transaction)
        self.open[number] = record
        return record

    def columns(self, rows: Rows) -> Columns:
        """The rows as columns of the table sent; none without rows."""
        if not rows:
            return []
        count = len(rows)
        return [
            same(self._ledger.run.run, count),
            same(self.name, count),
            *zip(*rows, strict=True),
        ]

    def committed(self, transaction: int, epoch: int | None = None) -> None:
        """The client has said that the transaction is committed."""
        self._end(transaction, COMMITTED, None, epoch)

    def aborted(self, transaction: int, epoch: int | None = None) -> None:
        """The client has said that the transaction is aborted."""
        self._end(transaction, ABORTED, None, epoch)

    def ended_unknown(self, transaction: int, error: str) -> None:
        """The client does not know how the transaction has ended."""
        self._end(transaction, UNKNOWN, error, None)

    def give_up(self) -> None:
        """Records and transactions that nothing is known of become unknown."""
        for record in list(self.open.values()):
            record.unknown(NOT_ANSWERED)
        for transaction in list(self._transactions):
            self.ended_unknown(transaction, NOT_ANSWERED)

    def settle(
        self,
        record: Record,
        outcome: str,
        partition: int | None,
        offset: int | None,
        at: int,
        epoch: int | None,
    ) -> None:
        """A record is acknowledged: written now, or with its transaction."""
        if self.open.pop(record.number, None) is None:
            return
        self.acknowledged += 1
        if record.transaction is None:
            self.committed_records += 1
            self.rows.append(record.row(outcome, partition, offset, at, epoch, None))
        else:
            row = (record, partition, offset, at, epoch)
            self._transactions.setdefault(record.transaction, []).append(row)

    def fail(self, record: Record, outcome: str, error: str) -> None:
        """A record is not acknowledged."""
        if self.open.pop(record.number, None) is not None:
            with self._lock:
                self.errors[outcome, error] = self.errors.get((outcome, error), 0) + 1
            self.rows.append(record.row(outcome, None, None, None, None, error))

    def _end(self, transaction: int, outcome: str, error: str | None, epoch: int | None) -> None:
        records = self._transactions.pop(transaction, [])
        if outcome == COMMITTED:
            self.committed_records += len(records)
        for record, partition, offset, at, own in records:
            told = epoch if own is None else own
            self.rows.append(record.row(outcome, partition, offset, at, told, error))


class Record:
    """A record that is given to a client. The first answer counts, later ones do not."""

    __slots__ = ("_producer", "key", "number", "sent", "topic", "transaction", "value")

    def __init__(
        self,
        producer: Producer,
        number: int,
        topic: str,
        key: bytes | None,
        value: bytes,
        transaction: int | None,
    ) -> None:
        self._producer = producer
        self.number = number
        self.topic = topic
        self.key = key
        self.value = value
        self.transaction = transaction
        self.sent = time_ns() // 1000
        """In us."""

    def acknowledged(
        self,
        partition: int | None,
        offset: int | None,
        *,
        at: int | None = None,
        epoch: int | None = None,
    ) -> None:
        """The client has said that it is written. `at`: when, in us; `epoch`: the producer's, if it is known."""
        at = now_us() if at is None else at
        self._producer.settle(self, ACKNOWLEDGED, partition, offset, at, epoch)

    def failed(self, error: str) -> None:
        """The client has said that it is not written."""
        self._producer.fail(self, FAILED, error)

    def unknown(self, error: str) -> None:
        """The client does not know whether it is written: a time-out, a connection that broke, acks=0."""
        self._producer.fail(self, UNKNOWN, error)

    def row(
        self,
        outcome: str,
        partition: int | None,
        offset: int | None,
        at: int | None,
        epoch: int | None,
        error: str | None,
    ) -> tuple[Any, ...]:
        """The row of the table sent, without run and producer."""
        # fmt: off
        return (
            self.number, self.topic, partition, offset, self.key, crc32(self.value),
            len(self.value), self.transaction, outcome, epoch, self.sent, at, error,
        )
        # fmt: on


class Reader:
    """A reader of a run."""

    __slots__ = ("_isolation", "_known", "_ledger", "_name", "rows")

    def __init__(self, ledger: Ledger, name: str, isolation: str) -> None:
        self._ledger = ledger
        self._name = name
        self._isolation = isolation
        self._known: dict[bytes, tuple[str | None, str | None]] = {}
        self.rows: Rows = []

    def seen(
        self,
        topic: str,
        partition: int,
        offset: int,
        key: bytes | None,
        value: bytes | None,
        at: int | None = None,
    ) -> None:
        """The reader was given a record. `at`: when, in us."""
        if len(self.rows) >= ROWS_A_FILE:
            self._ledger.make_room(self.rows)
        run = producer = number = digest = None
        if value is not None:
            digest = crc32(value)
            # As `whose`, of which one answer is kept for each producer: three times as fast.
            end = value.find(b" ", 9)
            known = self._known.get(value[:end])
            digits = value[end + 1 : value.find(b" ", end + 1)]
            if known is not None and digits.isdigit() and len(digits) < 19:
                run, producer = known
                number = int(digits)
            else:
                run, producer, number = whose(value)
                if run is not None:
                    self._known[value[:end]] = run, producer
        if at is None:
            at = now_us()
        self.rows.append((topic, partition, offset, key, digest, run, producer, number, at))

    def columns(self, rows: Rows) -> Columns:
        """The rows as columns of the table seen; none without rows."""
        if not rows:
            return []
        columns = list(zip(*rows, strict=True))
        run = columns.pop(5)
        count = len(rows)
        return [run, same(self._name, count), same(self._isolation, count), *columns]


def whose(value: bytes | None) -> tuple[str | None, str | None, int | None]:
    """Run, producer and number at the begin of a value; None for a record that no run has written."""
    if value is not None and value[8:9] == b" ":
        words = value[:300].split(b" ", 3)
        if len(words) == 4 and words[2].isdigit() and len(words[2]) < 19:
            try:
                int(words[0], 16)
                return words[0].decode(), words[1].decode("ascii"), int(words[2])
            except ValueError:
                pass
    return None, None, None


def require_empty(folder: Path) -> Path:
    """A directory for a ledger. ConfigurationError, in one line, if it holds anything or is none."""
    try:
        there = next(iter(folder.iterdir()), None)
    except FileNotFoundError:
        return folder
    except OSError as error:
        raise ConfigurationError(f"{folder}: {error.strerror}") from None
    if there is not None:
        raise ConfigurationError(f"{folder} is not empty: a ledger needs a directory of its own")
    return folder


def new_run() -> str:
    """A name for a run, made up."""
    from secrets import token_hex

    return token_hex(4)


def now_us() -> int:
    """The time, in us since 1970."""
    return time_ns() // 1000
