"""Messages of formats 0 and 1 as the same columns: record by record, for segments of old brokers."""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa

from kwire.pipeline import batches
from kwire.pipeline.batches import PADDING, Damage, Piece
from kwire.pipeline.columns import Wanted, Where, microseconds
from kwire.pipeline.records import BATCH_BYTES_MAX
from kwire.pipeline.schema import COLUMNS, CRC, RECORDS
from kwire.protocol.errors import KafkaError
from kwire.protocol.message_set import Message, check_message_crc, message_records, parse_message
from kwire.protocol.records import LOG_APPEND_TIME_FLAG

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kwire.protocol.records import Record

    _Row = tuple[Message, Record, bool | None]


def tables(
    piece: Piece, where: Where, wanted: Wanted, damage: list[Damage]
) -> Iterator[pa.RecordBatch]:
    """The wanted rows of a piece of formats 0 and 1; damaged messages are left out and added to `damage`."""
    rows: list[_Row] = []
    end = len(piece.data) - PADDING
    for at, size, base in piece.heads[:, (batches.POSITION, batches.SIZE, batches.BASE)].tolist():
        try:
            message = parse_message(piece.data, at, end)
            records = message_records(piece.data, message, limit=BATCH_BYTES_MAX)
        except KafkaError as error:
            damage.append(Damage(piece.position + at, size, base, RECORDS, str(error)))
            continue
        crc_ok = None
        if wanted.verify:
            crc_ok = check_message_crc(piece.data, message)
            if not crc_ok:
                detail = f"{message.crc:08x} is stored, another follows from the bytes"
                damage.append(Damage(piece.position + at, size, base, CRC, detail))
        rows += (
            (message, record, crc_ok)
            for record in records
            if wanted.first_offset <= record.offset < wanted.end_offset
        )
    if rows:
        yield _table(piece, where, wanted, rows)


_ABSENT: Final = {
    "leader_epoch": -1,
    "headers": None,
    "producer_id": -1,
    "producer_epoch": -1,
    "sequence": -1,
    "is_transactional": False,
    "is_control": False,
    "control_type": None,
}
"""What these formats do not have."""


def _table(piece: Piece, where: Where, wanted: Wanted, rows: list[_Row]) -> pa.RecordBatch:
    same = {**_ABSENT, **where._asdict()}
    if where.segment is None:
        same["batch_position"] = None

    def column(name: str) -> pa.Array:
        kind = COLUMNS[name][0]
        if name in same:
            return pa.array([same[name]] * len(rows), kind)
        if name == "timestamp":
            return microseconds(np.array([record.timestamp for _, record, _ in rows], np.int64))
        return pa.array([_VALUES[name](piece, *row) for row in rows], kind)

    names = list(wanted.columns)
    return pa.RecordBatch.from_arrays([column(name) for name in names], names=names)


def _timestamp_type(_: Piece, message: Message, record: Record, crc_ok: bool | None) -> int:
    return -1 if message.magic == 0 else int(bool(message.attributes & LOG_APPEND_TIME_FLAG))


_VALUES: Final[dict[str, Callable[[Piece, Message, Record, bool | None], object]]] = {
    "offset": lambda piece, message, record, crc_ok: record.offset,
    "key": lambda piece, message, record, crc_ok: record.key,
    "value": lambda piece, message, record, crc_ok: record.value,
    "timestamp_type": _timestamp_type,
    "batch_base": lambda piece, message, record, crc_ok: message.offset,
    "batch_position": lambda piece, message, record, crc_ok: piece.position + message.position,
    "codec": lambda piece, message, record, crc_ok: message.compression,
    "magic": lambda piece, message, record, crc_ok: message.magic,
    "crc_ok": lambda piece, message, record, crc_ok: crc_ok,
}
