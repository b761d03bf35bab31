"""A log in a few rows: what `jobs.contents.of_records` has in SQL, made by the worker that reads the log.

Numbers, checksums and order of some ten thousand records become a row, so that of a log that is as the ledger says no
record ever goes to the JVM.
"""

from __future__ import annotations

from typing import Final
from zlib import crc32

import numpy as np
import pyarrow as pa

from kwire.audit.evidence.stamps import spans, stamps

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    Ints = NDArray[np.int64]

RANGE_BITS: Final = 14
"""A row covers so many offsets at most, as a power of two."""
NULL_HASH: Final = -1
"""Of a record without value."""
_TIME = pa.timestamp("us", tz="UTC")
CONTENTS: Final[dict[str, tuple[pa.DataType, str]]] = {
    "topic": (pa.string(), "string"),
    "partition": (pa.int32(), "int"),
    "range": (pa.int64(), "bigint"),
    "producer": (pa.string(), "string"),
    "control": (pa.bool_(), "boolean"),
    "rows": (pa.int64(), "bigint"),
    "first": (pa.int64(), "bigint"),
    "last": (pa.int64(), "bigint"),
    "oldest": (_TIME, "timestamp"),
    "content": (pa.int64(), "bigint"),
    "content_sum": (pa.int64(), "bigint"),
    "low": (pa.int64(), "bigint"),
    "high": (pa.int64(), "bigint"),
    "is_ordered": (pa.bool_(), "boolean"),
}
"""One row or more a producer and range of offsets. `producer`: null for records that are not of the run; `content`:
offsets, numbers, checksums and whether they are visible, xored, and `content_sum` a part of them, summed; `low` and
`high`: numbers; `is_ordered`: numbers rise with offsets in it, null where nobody has looked."""
RECORDS: Final = ("offset", "timestamp", "value")
"""What of `kwire-log` is needed."""
MANY: Final = 5_000
"""Rows of CONTENTS that make a table."""
SUM_SHIFT: Final = 20
"""Of `content` so many bits are left out of the sum, which would overflow."""
_NEVER = (1 << 63) - 1


class Rows:
    """Rows of CONTENTS of a partition, collected."""

    def __init__(self, topic: str, partition: int) -> None:
        self._topic, self._partition = topic, partition
        self._columns: dict[str, list[object]] = {name: [] for name in CONTENTS}

    def take(self, least: int = 1) -> Iterator[pa.RecordBatch]:
        """What is there, if it is as much."""
        count = len(self._columns["first"])
        if count >= least:
            same = {"topic": self._topic, "partition": self._partition, "control": False}
            columns = {**self._columns, **{name: [value] * count for name, value in same.items()}}
            yield pa.RecordBatch.from_arrays(
                [pa.array(columns[name], kind) for name, (kind, _) in CONTENTS.items()],
                names=list(CONTENTS),
            )
            for values in self._columns.values():
                values.clear()

    def add(self, table: pa.RecordBatch, run: str, begin: int, end: int) -> None:
        """Records of the partition, `RECORDS`; only those from `begin` to `end` count."""
        offset = table.column(0).to_numpy()
        inside = (offset >= begin) & (offset < end)
        if not inside.all():
            table = table.filter(pa.array(inside))
            offset = offset[inside]
        if not len(offset):
            return
        time = table.column(1).cast(pa.int64()).fill_null(_NEVER).to_numpy()
        found = stamps(table.column(2), run)
        content = hashes(offset, found.number, 2 * checksums(table.column(2)) + 1)
        width = len(found.producers) + 1
        span = (offset >> RANGE_BITS) - (int(offset.min()) >> RANGE_BITS)
        group = span * width + found.producer + 1
        order = np.argsort(group, kind="stable")
        group, offset, time = group[order], offset[order], time[order]
        number, content = found.number[order], content[order]
        begins = np.flatnonzero(np.concatenate(([True], group[1:] != group[:-1])))
        rises = np.ones(len(group), np.bool_)
        rises[1:] = (number[1:] >= number[:-1]) & (offset[1:] > offset[:-1])
        rises[begins] = True
        producer = (group[begins] % width - 1).tolist()
        oldest = np.minimum.reduceat(time, begins).tolist()
        columns = {
            "range": (offset[begins] >> RANGE_BITS).tolist(),
            "producer": [found.producers[i] if i >= 0 else None for i in producer],
            "rows": np.diff(np.append(begins, len(group))).tolist(),
            "first": np.minimum.reduceat(offset, begins).tolist(),
            "last": np.maximum.reduceat(offset, begins).tolist(),
            "oldest": [None if each == _NEVER else each for each in oldest],
            "content": np.bitwise_xor.reduceat(content, begins).tolist(),
            "content_sum": np.add.reduceat(content >> SUM_SHIFT, begins).tolist(),
            "low": np.minimum.reduceat(number, begins).tolist(),
            "high": np.maximum.reduceat(number, begins).tolist(),
            "is_ordered": np.logical_and.reduceat(rises, begins).tolist(),
        }
        for name, values in columns.items():
            self._columns[name] += values


def checksums(values: pa.Array) -> Ints:
    """The CRC-32 of binary values, NULL_HASH of a null."""
    start, end, data = spans(values)
    view = data.data
    edges = zip(start.tolist(), end.tolist(), strict=True)
    found = np.array([crc32(view[at:stop]) for at, stop in edges], np.int64)
    if values.null_count:
        found[values.is_null().to_numpy(zero_copy_only=False)] = NULL_HASH
    return found


_P1, _P2, _P3, _P4, _P5 = (
    np.uint64(prime)
    for prime in (
        *(0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9),
        *(0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5),
    )
)


def hashes(*columns: Ints) -> Ints:
    """Spark's xxhash64 of columns of bigint without nulls (XXH64.hashLong)."""
    found = np.full(len(columns[0]), 42, np.uint64)
    for column in columns:
        found += _P5 + np.uint64(8)
        found ^= _turned(column.view(np.uint64) * _P2, 31) * _P1
        found = _turned(found, 27) * _P1 + _P4
        found ^= found >> np.uint64(33)
        found *= _P2
        found ^= found >> np.uint64(29)
        found *= _P3
        found ^= found >> np.uint64(32)
    return found.view(np.int64)


def _turned(values: NDArray[np.uint64], bits: int) -> NDArray[np.uint64]:
    return (values << np.uint64(bits)) | (values >> np.uint64(64 - bits))
