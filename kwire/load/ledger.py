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
from kwire.load.files import NULL, Files
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
    from typing import Self

    from kwire.load.files import Rows

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
        self._lock = threading.Lock()
        self._producers: dict[str, Producer] = {}
        self._is_closed = False
        self._noted = self.run
        self.files = Files(self.folder, seconds, self._note_count)
        write_run(self.folder, self.run)
        self.files.start()

    def producer(self, name: str) -> Producer:
        """A producer of this run. `name` is one word; records of one name are counted together."""
        if not name or not name.isascii() or any(letter.isspace() for letter in name):
            raise ConfigurationError(f"producer {name!r}: expected one word in ASCII")
        with self._lock:
            if name not in self._producers:
                self._producers[name] = Producer(self, name)
            return self._producers[name]

    def reader(self, name: str, isolation: str = "read_uncommitted") -> Reader:
        """A reader of this run; `isolation` is its isolation.level, in Kafka's words."""
        return Reader(self, name, isolation)

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

    def _note_count(self) -> None:
        counted = self._counted()
        if counted != self._noted:
            self._noted = counted
            write_run(self.folder, counted)

    def _counted(self) -> Run:
        return replace(self.run, records=sum(each.count for each in self._producers.values()))


class Producer:
    """A producer of a run: counts its records from 0, and knows which of them are not answered yet."""

    __slots__ = (
        *("_lock", "_prefix", "_transactions", "acknowledged", "committed_records"),
        *("count", "errors", "name", "open", "rows"),
    )

    def __init__(self, ledger: Ledger, name: str) -> None:
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
        self.rows = ledger.files.rows(SENT, run=ledger.run.run, producer=name)
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
        with self._lock:
            number = self.count
            self.count += 1
        value = b"%s%d %s" % (self._prefix, number, payload)
        if len(value) < size:
            value = value.ljust(size, b".")
        record = Record(self, number, topic, key, value, transaction)
        self.open[number] = record
        return record

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
            record.write(self.rows, outcome, partition, offset, at, epoch, None)
        else:
            row = (record, partition, offset, at, epoch)
            self._transactions.setdefault(record.transaction, []).append(row)

    def fail(self, record: Record, outcome: str, error: str) -> None:
        """A record is not acknowledged."""
        if self.open.pop(record.number, None) is not None:
            with self._lock:
                self.errors[outcome, error] = self.errors.get((outcome, error), 0) + 1
            record.write(self.rows, outcome, None, None, None, None, error)

    def _end(self, transaction: int, outcome: str, error: str | None, epoch: int | None) -> None:
        records = self._transactions.pop(transaction, [])
        if outcome == COMMITTED:
            self.committed_records += len(records)
        for record, partition, offset, at, own in records:
            told = epoch if own is None else own
            record.write(self.rows, outcome, partition, offset, at, told, error)


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

    def write(
        self,
        rows: Rows,
        outcome: str,
        partition: int | None,
        offset: int | None,
        at: int | None,
        epoch: int | None,
        error: str | None,
    ) -> None:
        """Add the row of the table sent."""
        rows.add(
            self.key,
            (self.topic, outcome, error),
            self.number,
            NULL if partition is None else partition,
            NULL if offset is None else offset,
            crc32(self.value),
            len(self.value),
            NULL if self.transaction is None else self.transaction,
            NULL if epoch is None else epoch,
            self.sent,
            NULL if at is None else at,
        )


class Reader:
    """A reader of a run."""

    __slots__ = ("_known", "_rows")

    def __init__(self, ledger: Ledger, name: str, isolation: str) -> None:
        self._known: dict[bytes, tuple[str | None, str | None]] = {}
        self._rows = ledger.files.rows(SEEN, reader=name, isolation=isolation)

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
        self._rows.add(
            key,
            (run, producer, topic),
            partition,
            offset,
            NULL if digest is None else digest,
            NULL if number is None else number,
            now_us() if at is None else at,
        )


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
