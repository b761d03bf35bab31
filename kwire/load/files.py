"""The files of a ledger: a thread that writes rows every few seconds, and renames a file when it is whole."""

from __future__ import annotations

import threading
from typing import Final

from kwire.pipeline.ledger import SEEN, SENT, schema

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from typing import Any

    Rows = list[tuple[Any, ...]]
    Columns = list[Any]
    """The columns of a table, each a tuple of values."""

ROWS_A_FILE: Final = 100_000
"""A file is written when a producer or reader has so many rows; with twice as many, it waits for the file."""


class Files:
    """Writes what `collect` takes from producers and readers, by the name of the table, until it is closed."""

    def __init__(
        self, folder: Path, seconds: float, collect: Callable[[], dict[str, list[Columns]]]
    ) -> None:
        """`seconds`: how long a file stays open."""
        self._folder = folder
        self._seconds = seconds
        self._collect = collect
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
            while len(rows) >= 2 * ROWS_A_FILE and self._failure is None:
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
                for table, parts in self._collect().items():
                    if parts:
                        self._write(table, parts)
            except OSError as error:
                self._failure = error
                is_last = True
            with self.written:
                self.written.notify_all()

    def _write(self, table: str, parts: list[Columns]) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        self._count += 1
        fields = self._schemas[table]
        batches = [
            pa.RecordBatch.from_arrays(
                [
                    _array(pa, values, field.type)
                    for values, field in zip(part, fields, strict=True)
                ],
                schema=fields,
            )
            for part in parts
        ]
        path = self._folder / table / f"{self._count:06}.parquet"
        # Spark reads no file whose name begins with a dot.
        beside = path.with_name(f".{path.name}.tmp")
        # Dictionaries of numbers that never come twice would take most of the time.
        repeated = [field.name for field in fields if field.type in (pa.string(), pa.binary())]
        pq.write_table(
            pa.Table.from_batches(batches), beside, compression="zstd", use_dictionary=repeated
        )
        beside.replace(path)


def same(value: str, count: int) -> tuple[str, ...]:
    """A column of one value."""
    return (value,) * count


def taken(rows: Rows) -> Rows:
    """The rows so far, taken out of a list to which other threads append."""
    some = rows[:]
    del rows[: len(some)]
    return some


def _array(pa: Any, values: Any, kind: Any) -> Any:
    """An Arrow array; one of many equal texts, or nulls, costs next to nothing."""
    first = values[0]
    if (first is None or type(first) is str) and values.count(first) == len(values):
        return pa.repeat(pa.scalar(first, kind), len(values))
    return pa.array(values, kind)
