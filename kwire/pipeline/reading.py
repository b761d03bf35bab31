"""Reads planned ranges as Arrow tables: of records, or of what is damaged."""

from __future__ import annotations

import logging
import os
from typing import cast

import numpy as np
import pyarrow as pa

from kwire.pipeline import batches, columns, heads, old_formats
from kwire.pipeline.columns import Wanted
from kwire.pipeline.schema import BATCHES, COLUMNS, CRC, DAMAGE, OF_RECORDS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from kwire.pipeline.batches import Damage, Piece
    from kwire.pipeline.columns import Where
    from kwire.pipeline.options import Options
    from kwire.pipeline.planning import Range
    from kwire.pipeline.remote import Reach


def columns_of(options: Options) -> dict[str, tuple[pa.DataType, str]]:
    """The columns that rows have, by the mode of the options."""
    return {"records": COLUMNS, "batches": BATCHES, "damage": DAMAGE}[options.mode]


def read(part: Range | Reach, names: tuple[str, ...], options: Options) -> Iterator[pa.RecordBatch]:
    """The rows of a range: records, batches or damaged places, as the options want them."""
    if options.mode == "damage":
        return damage(part, names)
    if options.mode == "batches":
        return of_batches(part, names, verify=options.verify, rows=options.rows_per_batch)
    return records(part, names, verify=options.verify, rows=options.rows_per_batch)


def records(
    part: Range | Reach, names: tuple[str, ...], *, verify: bool = False, rows: int = 50_000
) -> Iterator[pa.RecordBatch]:
    """The wanted records of a range, `rows` at most in a table, the columns in the order of `names`.

    What cannot be read is left out, and one line on stderr says how much; `damage` says what."""
    wrong: list[Damage] = []
    for table in _tables(part, names, verify, wrong):
        for i in range(0, table.num_rows, rows):
            yield table.slice(i, rows)
    left_out = [each for each in wrong if each.kind != CRC]
    if left_out:
        # Without a handler, as in Spark's workers, this is a line on stderr.
        logging.getLogger(__name__).warning(
            "kwire-log: %s: %d places cannot be read, the first at %s (%s); mode=damage lists them",
            _name(part),
            len(left_out),
            f"offset {left_out[0].offset}"
            if part.where.segment is None
            else f"position {left_out[0].position}",
            left_out[0].kind,
        )


def of_batches(
    part: Range | Reach, names: tuple[str, ...], *, verify: bool = False, rows: int = 50_000
) -> Iterator[pa.RecordBatch]:
    """The batches of a range that have a wanted offset, and behind them the places that are none."""
    wrong: list[Damage] = []
    wanted = Wanted(names, part.first_offset, part.end_offset, verify)
    for piece in _pieces(part, wrong):
        for table in heads.tables(piece, part.where, wanted, wrong):
            for i in range(0, table.num_rows, rows):
                yield table.slice(i, rows)
    yield from heads.damaged(part.where, wanted, wrong)


def _name(part: Range | Reach) -> str:
    if part.where.segment is None:
        return f"{part.where.topic}-{part.where.partition} of broker {part.where.broker}"
    return cast("Range", part).path


def damage(part: Range | Reach, names: tuple[str, ...]) -> Iterator[pa.RecordBatch]:
    """What is damaged in a range, checksums included, in the order of the file."""
    wrong: list[Damage] = []
    for _ in _tables(part, ("key", "value", "headers", "timestamp"), True, wrong):
        pass
    if not wrong:
        return
    wrong.sort(key=lambda each: each.position)
    where = part.where
    values = {
        "broker": [where.broker] * len(wrong),
        "topic": [where.topic] * len(wrong),
        "partition": [where.partition] * len(wrong),
        "segment": [where.segment] * len(wrong),
        **{
            name: [getattr(each, name) for each in wrong]
            for name in ("position", "bytes", "offset", "kind", "detail")
        },
    }
    if where.segment is None:
        values["position"] = [None] * len(wrong)
    yield pa.RecordBatch.from_arrays(
        [pa.array(values[name], DAMAGE[name][0]) for name in names], names=list(names)
    )


def _tables(
    part: Range | Reach, names: tuple[str, ...], verify: bool, wrong: list[Damage]
) -> Iterator[pa.RecordBatch]:
    wanted = Wanted(names, part.first_offset, part.end_offset, verify)
    is_file = part.where.segment is not None
    waits_for = cast("Range", part).first_timestamp if is_file else None
    needs_records = verify or waits_for is not None or not OF_RECORDS.isdisjoint(names)
    for piece in _pieces(part, wrong, needs_records=needs_records):
        if waits_for is not None:
            first = _first_young(piece, part.where, wanted, waits_for)
            if first is None:
                continue
            wanted, waits_for = wanted._replace(first_offset=first), None
        yield from _of_piece(piece, part.where, wanted, wrong)


def _pieces(
    part: Range | Reach, wrong: list[Damage], *, needs_records: bool = True
) -> Iterator[Piece]:
    """Pieces of a range. A file that is gone has none: its segment was deleted since the range was planned."""
    if part.where.segment is None:
        from kwire.pipeline import fetching

        yield from fetching.pieces(cast("Reach", part), wrong)
        return
    part = cast("Range", part)
    try:
        file = os.open(part.path, os.O_RDONLY)
    except FileNotFoundError:
        return
    try:
        index = batches.Index(part.index_path, part.base_offset)
        read = batches.pieces if needs_records else batches.headers
        yield from read(file, part.start, part.end, index, wrong)
    finally:
        os.close(file)


def _of_piece(
    piece: Piece, where: Where, wanted: Wanted, wrong: list[Damage]
) -> Iterator[pa.RecordBatch]:
    make = columns.tables if piece.heads[0, batches.MAGIC_BYTE] == 2 else old_formats.tables
    yield from make(piece, where, wanted, wrong)


def _first_young(piece: Piece, where: Where, wanted: Wanted, timestamp: int) -> int | None:
    for table in _of_piece(
        piece, where, wanted._replace(columns=("offset", "timestamp"), verify=False), []
    ):
        young = np.flatnonzero(
            table.column("timestamp").cast(pa.int64()).to_numpy(zero_copy_only=False)
            >= timestamp * 1000
        )
        if len(young):
            return int(table.column("offset")[int(young[0])].as_py())
    return None
