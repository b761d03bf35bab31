"""Reads the tables of an audit with PyArrow: counts of all rows, and as many rows as a page can show.

A table that is not there is None, a column that is not there is null; times become microseconds since 1970 in UTC.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from kwire.audit.tables import KINDS, TABLES
from kwire.errors import KwireError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    Row = dict[str, Any]

MAX_FINDINGS: Final = 500
"""Rows of the page's table; all others are only counted."""
MAX_GROUPED: Final = 1_000_000
"""Findings of which times and causes are looked at."""
MAX_ROWS: Final = 100_000
"""Rows that are read of any other table."""
_TYPES: Final = {
    "string": pa.string(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "double": pa.float64(),
    "binary": pa.binary(),
    "timestamp": pa.timestamp("us"),
    "array<int>": pa.list_(pa.int32()),
}


class Group(NamedTuple):
    """Findings of one kind in one partition that one event explains."""

    kind: str
    topic: str
    partition: int | None
    event: int | None
    cause: str | None
    amount: int
    first: int | None
    last: int | None
    """Times, as far as known."""
    low: int | None
    high: int | None
    """Offsets."""


class Stored:
    """The tables in a directory."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._datasets = {name: _dataset(folder / name) for name in TABLES}

    @property
    def names(self) -> list[str]:
        """The tables that are there."""
        return [name for name, found in self._datasets.items() if found is not None]

    def rows(self, name: str, limit: int = MAX_ROWS) -> tuple[list[Row], int] | None:
        """The first rows of a table, and how many it has."""
        dataset = self._datasets[name]
        if dataset is None:
            return None
        table = _head(dataset, name, list(TABLES[name]), limit)
        count = table.num_rows if table.num_rows < limit else dataset.count_rows()
        return table.to_pylist(), count

    def counts(self) -> dict[str, int]:
        """How many findings there are of each kind."""
        dataset = self._datasets["findings"]
        if dataset is None:
            return {}
        found: dict[str, int] = {}
        for batch in dataset.to_batches(columns=["kind"]):
            for each in batch.column(0).value_counts().to_pylist():
                kind = str(each["values"])
                found[kind] = found.get(kind, 0) + each["counts"]
        return dict(sorted(found.items(), key=lambda each: kind_order(each[0])))

    def findings(self, limit: int = MAX_FINDINGS) -> list[Row]:
        """The first findings: kinds that fail first, then in the order of time."""
        dataset = self._datasets["findings"]
        found: list[Row] = []
        for kind in [] if dataset is None else self.counts():
            if room := limit - len(found):
                wanted = ds.field("kind").cast(pa.string()) == kind
                table = _head(dataset, "findings", list(TABLES["findings"]), MAX_GROUPED, wanted)
                order = [("time", "ascending"), ("topic", "ascending"), ("offset", "ascending")]
                found += table.take(pc.sort_indices(table, order)[:room]).to_pylist()
        return found

    def groups(self) -> list[Group]:
        """Findings by kind, partition and event, the gravest first."""
        dataset = self._datasets["findings"]
        if dataset is None:
            return []
        by = ["kind", "topic", "partition", "event"]
        table = _head(dataset, "findings", [*by, "cause", "time", "offset"], MAX_GROUPED)
        ways = [("cause", "min"), ([], "count_all"), ("time", "min"), ("time", "max")]
        ways += [("offset", "min"), ("offset", "max")]
        found = table.group_by(by).aggregate(ways)
        names = [*by, "cause_min", "count_all", "time_min", "time_max", "offset_min", "offset_max"]
        groups = [Group(*row.values()) for row in found.select(names).to_pylist()]
        return sorted(
            groups, key=lambda each: (kind_order(each.kind), -each.amount, each.first or 0)
        )

    def marks(self, bucket: int) -> dict[tuple[str, int | None], list[tuple[int, str, int]]]:
        """Findings within `bucket` microseconds as one: first time, kind and number, by topic and partition."""
        dataset = self._datasets["findings"]
        if dataset is None:
            return {}
        table = _head(dataset, "findings", ["topic", "partition", "time", "kind"], MAX_GROUPED)
        table = table.filter(pc.is_valid(table["time"]))
        table = table.append_column("bucket", pc.divide(table["time"], bucket))
        by = ["topic", "partition", "bucket", "kind"]
        found: dict[tuple[str, int | None], list[tuple[int, str, int]]] = {}
        ways = [("kind", "count"), ("time", "min")]
        for row in table.group_by(by).aggregate(ways).to_pylist():
            at = found.setdefault((row["topic"], row["partition"]), [])
            at.append((row["time_min"], row["kind"], row["kind_count"]))
        return {name: sorted(each) for name, each in found.items()}


def kind_order(kind: str) -> int:
    """Where people read of a kind: in the order of `tables.KINDS`, unknown ones last."""
    return list(KINDS).index(kind) if kind in KINDS else len(KINDS)


def _dataset(folder: Path) -> ds.Dataset | None:
    if not folder.is_dir():
        return None
    hive = ds.partitioning(flavor="hive")
    form = ds.ParquetFileFormat(read_options={"coerce_int96_timestamp_unit": "us"})
    try:
        found = ds.dataset(folder, format=form, partitioning=hive, exclude_invalid_files=False)
    except (pa.ArrowException, OSError) as error:
        raise KwireError(f"{folder}: not a table that can be read: {_line(error)}") from error
    return found if found.files else None


def _head(
    dataset: ds.Dataset | None, name: str, columns: list[str], limit: int, wanted: Any = None
) -> pa.Table:
    """The first rows with these columns, in the types of `tables`, times as numbers."""
    assert dataset is not None
    there = [each for each in columns if each in dataset.schema.names]
    try:
        table = dataset.scanner(columns=there, filter=wanted).head(limit)
        types = {each: _TYPES[TABLES[name][each]] for each in columns}
        arrays = [
            _cast(table[each], types[each]) if each in there else pa.nulls(table.num_rows, kind)
            for each, kind in types.items()
        ]
    except (pa.ArrowException, OSError) as error:
        raise KwireError(f"{dataset.files[0]}: cannot be read: {_line(error)}") from error
    arrays = [
        each.cast(pa.int64()) if pa.types.is_timestamp(each.type) else each for each in arrays
    ]
    return pa.table(dict(zip(columns, arrays, strict=True)))


def _cast(column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    if pa.types.is_timestamp(column.type):
        return column.cast(pa.timestamp("us", column.type.tz), safe=False).cast(pa.int64())
    return column.cast(kind)


def _line(error: BaseException) -> str:
    return str(error).partition("\n")[0]
