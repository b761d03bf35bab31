"""The records of a piece of a log as Arrow columns. Keys and values are copied once, by Arrow."""

from __future__ import annotations

from typing import NamedTuple

import fastcrc
import numpy as np
import pyarrow as pa

from kwire.pipeline import batches
from kwire.pipeline.batches import MAX_OFFSET, PADDING, Damage, Piece
from kwire.pipeline.records import LEAST_RECORD, Records, damaged, decoded, varint
from kwire.pipeline.schema import COLUMNS, CRC, OF_RECORDS, RECORDS
from kwire.protocol.records import (
    COMPRESSION_MASK,
    CONTROL_FLAG,
    HEADER,
    LOG_APPEND_TIME_FLAG,
    TRANSACTIONAL_FLAG,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    Ints = NDArray[np.int64]
    Bits = NDArray[np.bool_]

CODECS = pa.array(["none", "gzip", "snappy", "lz4", "zstd", "5", "6", "7"])


class Where(NamedTuple):
    """Where a piece comes from: what is the same in all its rows."""

    broker: int
    topic: str
    partition: int
    segment: str | None
    """None where it is not known: of what was fetched from a broker."""


class Wanted(NamedTuple):
    """What of a piece is wanted."""

    columns: tuple[str, ...]
    first_offset: int = 0
    end_offset: int = MAX_OFFSET
    """Exclusive."""
    verify: bool = False


def tables(
    piece: Piece, where: Where, wanted: Wanted, damage: list[Damage]
) -> Iterator[pa.RecordBatch]:
    """The wanted rows of a piece of format 2, in the order of the file; damaged batches are left out and added."""
    heads = piece.heads[are_possible(piece, piece.heads, damage)]
    last = heads[:, batches.BASE] + heads[:, batches.LAST_DELTA]
    heads = heads[(last >= wanted.first_offset) & (heads[:, batches.BASE] < wanted.end_offset)]
    crc_ok = check_checksums(piece, heads, damage) if wanted.verify else None
    # Offsets are base + 0, 1, 2 … if there are as many records as the header spans: deltas rise from 0 at least to
    # LAST_DELTA at most.
    count = heads[:, batches.COUNT]
    is_full = (count == heads[:, batches.LAST_DELTA] + 1) & (count <= batches.MANY_RECORDS)
    if not OF_RECORDS.isdisjoint(wanted.columns) or not is_full.all():
        for part, records in decoded(piece, heads, damage):
            table = _Table(
                where, wanted, piece, heads[part], None if crc_ok is None else crc_ok[part], records
            )
            yield from table.rows()
    elif len(heads):
        yield from _Table(where, wanted, piece, heads, crc_ok, None).rows()


def are_possible(piece: Piece, heads: Ints, damage: list[Damage]) -> Bits:
    """Whether the headers' numbers can be: a record takes some bytes at least, unless it is compressed."""
    count, delta = heads[:, batches.COUNT], heads[:, batches.LAST_DELTA]
    room = heads[:, batches.SIZE] - HEADER.size
    plain = heads[:, batches.ATTRIBUTES] & COMPRESSION_MASK == 0
    possible: Bits = (
        (heads[:, batches.BASE] >= 0)
        & (count >= 0)
        & (delta >= 0)
        & (count <= delta + 1)
        & (~plain | (count * LEAST_RECORD <= room))
    )
    for i in np.flatnonzero(~possible):
        base = heads[i, batches.BASE]
        detail = f"{count[i]} records from offset {base} on, last offset delta {delta[i]}, in {room[i]} bytes"
        damage.append(damaged(piece, heads[i], RECORDS, detail))
    return possible


def check_checksums(piece: Piece, heads: Ints, damage: list[Damage]) -> Bits:
    """Whether the stored checksums are those of the bytes; the others are added to `damage`."""
    view = memoryview(piece.data)
    crc32c = fastcrc.crc32.iscsi
    right = np.ones(len(heads), bool)
    for i, (at, size, stored) in enumerate(
        heads[:, (batches.POSITION, batches.SIZE, batches.CRC)].tolist()
    ):
        found = crc32c(view[at + 21 : at + size])
        if found != stored:
            right[i] = False
            damage.append(
                damaged(
                    piece,
                    heads[i],
                    CRC,
                    f"{stored:08x} is stored, {found:08x} follows from the bytes",
                )
            )
    return right


class _Table:
    """Makes the columns of some batches. Arrays are per record unless they are named after heads."""

    def __init__(
        self,
        where: Where,
        wanted: Wanted,
        piece: Piece,
        heads: Ints,
        crc_ok: Bits | None,
        records: Records | None,
    ) -> None:
        self._where = where
        self._wanted = wanted
        self._piece = piece
        self._heads = heads
        self._crc_ok = crc_ok
        self._records = records
        counts = heads[:, batches.COUNT]
        self._head = np.repeat(np.arange(len(heads)), counts)
        if records is None:
            first = np.cumsum(counts) - counts
            self._delta = np.arange(len(self._head), dtype=np.int64) - np.repeat(first, counts)
        else:
            self._delta = records.offset_delta

    def rows(self) -> Iterator[pa.RecordBatch]:
        """The table, if it has rows."""
        offset = self._of(batches.BASE) + self._delta
        keep = (offset >= self._wanted.first_offset) & (offset < self._wanted.end_offset)
        if not keep.all():
            self._select(np.flatnonzero(keep))
        if len(self._head):
            columns = self._wanted.columns
            yield pa.RecordBatch.from_arrays(
                [getattr(self, name)() for name in columns], names=list(columns)
            )

    def _select(self, chosen: Ints) -> None:
        self._head, self._delta = self._head[chosen], self._delta[chosen]
        if self._records is not None:
            data, *arrays = self._records
            self._records = Records(data, *(array[chosen] for array in arrays))  # type: ignore[arg-type]

    def _of(self, column: int) -> Ints:
        """A field of headers, per record."""
        field: Ints = self._heads[:, column][self._head]
        return field

    def _flag(self, flag: int) -> pa.Array:
        return pa.array((self._heads[:, batches.ATTRIBUTES] & flag != 0)[self._head])

    def _same(self, value: object, name: str) -> pa.Array:
        return pa.repeat(pa.scalar(value, COLUMNS[name][0]), len(self._head))

    def _integers(self, values: NDArray[np.generic], name: str) -> pa.Array:
        return pa.array(values.astype(COLUMNS[name][0].to_pandas_dtype(), copy=False))

    @property
    def _found(self) -> Records:
        assert self._records is not None, "a column of records without records"
        return self._records

    def broker(self) -> pa.Array:
        return self._same(self._where.broker, "broker")

    def topic(self) -> pa.Array:
        return self._same(self._where.topic, "topic")

    def partition(self) -> pa.Array:
        return self._same(self._where.partition, "partition")

    def segment(self) -> pa.Array:
        return self._same(self._where.segment, "segment")

    def magic(self) -> pa.Array:
        return self._same(2, "magic")

    def offset(self) -> pa.Array:
        return pa.array(self._of(batches.BASE) + self._delta)

    def leader_epoch(self) -> pa.Array:
        return self._integers(self._of(batches.EPOCH), "leader_epoch")

    def timestamp(self) -> pa.Array:
        appended = self._of(batches.ATTRIBUTES) & LOG_APPEND_TIME_FLAG != 0
        created = self._of(batches.BASE_TIMESTAMP) + self._found.timestamp_delta
        return microseconds(np.where(appended, self._of(batches.MAX_TIMESTAMP), created))

    def timestamp_type(self) -> pa.Array:
        appended = self._of(batches.ATTRIBUTES) & LOG_APPEND_TIME_FLAG != 0
        return self._integers(appended, "timestamp_type")

    def key(self) -> pa.Array:
        return slices(self._found.data, self._found.key_at, self._found.key_length)

    def value(self) -> pa.Array:
        return slices(self._found.data, self._found.value_at, self._found.value_length)

    def headers(self) -> pa.Array:
        return _headers(self._found)

    def producer_id(self) -> pa.Array:
        return pa.array(self._of(batches.PRODUCER_ID))

    def producer_epoch(self) -> pa.Array:
        return self._integers(self._of(batches.PRODUCER_EPOCH), "producer_epoch")

    def sequence(self) -> pa.Array:
        base = self._of(batches.SEQUENCE)
        # 0 follows 2^31-1 (DefaultRecordBatch.incrementSequence).
        return self._integers(np.where(base < 0, -1, (base + self._delta) & 0x7FFFFFFF), "sequence")

    def is_transactional(self) -> pa.Array:
        return self._flag(TRANSACTIONAL_FLAG)

    def is_control(self) -> pa.Array:
        return self._flag(CONTROL_FLAG)

    def control_type(self) -> pa.Array:
        is_control = self._of(batches.ATTRIBUTES) & CONTROL_FLAG != 0
        names: list[str | None] = [None] * len(is_control)
        found = self._found
        for i in np.flatnonzero(is_control).tolist():
            at = int(found.key_at[i])
            names[i] = control_name(bytes(found.data[at : at + max(0, int(found.key_length[i]))]))
        return pa.array(names, pa.string())

    def batch_base(self) -> pa.Array:
        return pa.array(self._of(batches.BASE))

    def batch_position(self) -> pa.Array:
        if self._where.segment is None:
            return pa.nulls(len(self._head), pa.int64())
        return pa.array(self._piece.position + self._of(batches.POSITION))

    def codec(self) -> pa.Array:
        return CODECS.take(pa.array(self._of(batches.ATTRIBUTES) & COMPRESSION_MASK))

    def crc_ok(self) -> pa.Array:
        if self._crc_ok is None:
            return pa.nulls(len(self._head), pa.bool_())
        return pa.array(self._crc_ok[self._head])


def microseconds(milliseconds: Ints) -> pa.Array:
    """Timestamps of records, in ms, as Spark's timestamps; null outside of the years 1 to 9999, which Spark ends at."""
    outside = (milliseconds < _FIRST_MS) | (milliseconds > _LAST_MS)
    array = pa.array(milliseconds * 1000, pa.int64(), mask=outside if outside.any() else None)
    return array.cast(COLUMNS["timestamp"][0])


_FIRST_MS, _LAST_MS = -62_135_596_800_000, 253_402_300_799_999


def slices(data: bytearray | bytes, at: Ints, length: Ints) -> pa.Array:
    """Parts of `data`, in rising order, as binaries; a negative length is null. The bytes are copied."""
    count = len(at)
    edges = np.empty(2 * count, np.int32)
    edges[0::2] = at
    edges[1::2] = at + np.maximum(length, 0)
    # Every second slot of an array whose other slots are the bytes between.
    every = pa.Array.from_buffers(
        pa.binary(), 2 * count - 1, [None, pa.py_buffer(edges), pa.py_buffer(data)]
    )
    is_null = length < 0
    slots = np.arange(0, 2 * count - 1, 2, dtype=np.int32)
    return every.take(pa.array(slots, mask=is_null if is_null.any() else None))


def _headers(records: Records) -> pa.Array:
    """The headers of records; those of a record are read up to the first that leads beyond its end."""
    buffer = np.frombuffer(records.data, np.uint8)
    limit = len(buffer) - PADDING
    count = records.header_count
    edges = np.concatenate((np.zeros(1, np.int64), np.cumsum(count)))
    total = int(edges[-1])
    fields = np.zeros((4, total), np.int64)
    at = records.headers_at.copy()
    for i in range(int(count.max(initial=0))):  # the i-th header of every record that has one
        rows = np.flatnonzero(count > i)
        slot = edges[rows] + i
        end = records.end[rows]
        key_length, key_at = varint(buffer, at[rows])
        after = np.minimum(key_at + np.clip(key_length, 0, limit), end)
        value_length, value_at = varint(buffer, after)
        after = np.minimum(value_at + np.clip(value_length, 0, limit), end)
        fields[:, slot] = (
            np.minimum(key_at, end),
            np.minimum(key_length, end - np.minimum(key_at, end)),
            np.minimum(value_at, end),
            np.minimum(value_length, end - np.minimum(value_at, end)),
        )
        at[rows] = after
    kind = COLUMNS["headers"][0]
    if total:
        keys = _texts(slices(records.data, fields[0], fields[1]))
        values = slices(records.data, fields[2], fields[3])
    else:
        keys, values = pa.nulls(0, pa.string()), pa.nulls(0, pa.binary())
    entries = pa.StructArray.from_arrays([keys, values], fields=list(kind.value_type))
    mask = pa.array(count == 0)  # null without any, as of Spark's Kafka source
    return pa.ListArray.from_arrays(pa.array(edges, pa.int32()), entries, type=kind, mask=mask)


def _texts(keys: pa.Array) -> pa.Array:
    try:
        return keys.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array(
            [key and key.decode(errors="replace") for key in keys.to_pylist()], pa.string()
        )


def control_name(key: bytes) -> str | None:
    """What a control record does, by its key: "abort", "commit", or the number of another kind."""
    if len(key) < 4:
        return None
    kind = int.from_bytes(key[2:4], "big", signed=True)
    return {0: "abort", 1: "commit"}.get(kind, str(kind))
