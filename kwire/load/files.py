"""The files of a ledger: a thread that writes rows every few seconds, and renames a file when it is whole."""

from __future__ import annotations

import threading
from array import array
from struct import Struct
from typing import Final

from kwire.pipeline.ledger import SEEN, SENT, schema

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from typing import Any

ROWS_A_FILE: Final = 100_000
"""A file is written when a producer or reader has so many rows; with twice as many, it waits for the file."""


NULL: Final = -1
"""Of a number in `Rows`."""
NUMBERS: Final = {
    SENT: [
        "number",
        "partition",
        "offset",
        "hash",
        "size",
        "transaction",
        "epoch",
        "sent",
        "acknowledged",
    ],
    SEEN: ["partition", "offset", "hash", "number", "seen"],
}
WORDS: Final = {SENT: ["topic", "outcome", "error"], SEEN: ["run", "producer", "topic"]}
"""Columns of a row as `Rows` takes them, beside its key."""


class Rows:
    """The rows of one producer or reader until a file takes them: packed numbers, keys and words by their codes.

    As tuples, rows took half of the time of a load."""

    __slots__ = (
        "_constants",
        "_data",
        "_files",
        "_keys",
        "_limit",
        "_lock",
        "_pack",
        "_table",
        "_words",
    )

    def __init__(self, files: Files, table: str, constants: dict[str, str]) -> None:
        """`constants`: columns that are the same in all rows."""
        self._files = files
        self._table = table
        self._constants = constants
        packing = Struct(f"={len(NUMBERS[table]) + 2}q")
        self._pack = packing.pack
        self._limit = ROWS_A_FILE * packing.size
        self._lock = threading.Lock()
        self._data, self._keys, self._words = _nothing()

    def add(self, key: bytes | None, words: tuple[str | None, ...], *numbers: int) -> None:
        """Add a row; wait while too many are not written. OSError when they cannot be."""
        with self._lock:
            key_code = self._keys.get(key)
            if key_code is None:
                key_code = self._keys[key] = len(self._keys)
            word_code = self._words.get(words)
            if word_code is None:
                word_code = self._words[words] = len(self._words)
            self._data += self._pack(*numbers, key_code, word_code)
        if len(self._data) >= self._limit:
            self._files.make_room(self)

    @property
    def is_full(self) -> bool:
        return len(self._data) >= 2 * self._limit

    def take(self, fields: Any) -> Any:
        """The rows so far, as an Arrow RecordBatch of these fields; None without rows. They are gone here."""
        with self._lock:
            data, keys, words = self._data, self._keys, self._words
            self._data, self._keys, self._words = _nothing()
        if not data:
            return None
        import pyarrow as pa
        from pyarrow import compute

        flat = array("q")
        flat.frombytes(data)
        names = NUMBERS[self._table]
        width = len(names) + 2
        numbers = [_numbers(pa, flat[index::width]) for index in range(width)]
        columns = {"key": pa.array(list(keys), pa.binary()).take(numbers[-2])}
        for index, name in enumerate(WORDS[self._table]):
            texts = pa.array([each[index] for each in words], pa.string())
            columns[name] = texts.take(numbers[-1])
        for name, values in zip(names, numbers, strict=False):
            known = compute.if_else(compute.greater(values, NULL), values, None)
            columns[name] = known.cast(fields.field(name).type)
        for name, text in self._constants.items():
            columns[name] = pa.repeat(pa.scalar(text, pa.string()), len(numbers[0]))
        return pa.RecordBatch.from_arrays([columns[name] for name in fields.names], schema=fields)


class Files:
    """Writes the rows of producers and readers, until it is closed."""

    def __init__(self, folder: Path, seconds: float, written: Callable[[], None]) -> None:
        """`seconds`: how long a file stays open. `written` is called after files."""
        self._folder = folder
        self._seconds = seconds
        self._tell = written
        self._rows: dict[str, list[Rows]] = {SENT: [], SEEN: []}
        self._schemas = {table: schema(table) for table in (SENT, SEEN)}
        self._count = 0
        self._failure: OSError | None = None
        self._is_closing = False
        self._due = threading.Event()
        self.written = threading.Condition()
        """Notified after each attempt."""
        for table in (SENT, SEEN):
            (folder / table).mkdir(parents=True, exist_ok=True)
        self._thread = threading.Thread(target=self._write_on, name="ledger", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def rows(self, table: str, **constants: str) -> Rows:
        """New rows of a table, which are written from now on."""
        rows = Rows(self, table, constants)
        self._rows[table].append(rows)
        return rows

    def close(self) -> None:
        """Write what is left. OSError when it could not be written."""
        self._is_closing = True
        self._due.set()
        self._thread.join()
        self._check()

    def make_room(self, rows: Rows) -> None:
        """Have a file written; return when `rows` are no longer too many. OSError, once that has failed."""
        self._due.set()
        with self.written:
            while rows.is_full and self._failure is None:
                self._due.set()
                self.written.wait(1)
        self._check()

    def _check(self) -> None:
        if self._failure is not None:
            raise self._failure

    def _write_on(self) -> None:
        is_last = False
        while not is_last:
            self._due.wait(self._seconds)
            self._due.clear()
            is_last = self._is_closing
            try:
                for table in (SENT, SEEN):
                    self._write(table)
                self._tell()
            except OSError as error:
                self._failure = error
                is_last = True
            with self.written:
                self.written.notify_all()

    def _write(self, table: str) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        fields = self._schemas[table]
        batches = [rows.take(fields) for rows in list(self._rows[table])]
        batches = [batch for batch in batches if batch is not None]
        if not batches:
            return
        self._count += 1
        path = self._folder / table / f"{self._count:06}.parquet"
        # Spark reads no file whose name begins with a dot.
        beside = path.with_name(f".{path.name}.tmp")
        # Dictionaries of numbers that never come twice would take most of the time.
        repeated = [field.name for field in fields if field.type in (pa.string(), pa.binary())]
        pq.write_table(
            pa.Table.from_batches(batches), beside, compression="zstd", use_dictionary=repeated
        )
        beside.replace(path)


def _nothing() -> tuple[bytearray, dict[bytes | None, int], dict[tuple[str | None, ...], int]]:
    return bytearray(), {}, {}


def _numbers(pa: Any, values: array[int]) -> Any:
    """An Arrow array of the same memory."""
    return pa.Array.from_buffers(pa.int64(), len(values), [None, pa.py_buffer(values)])
