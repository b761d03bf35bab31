"""Batches as rows, for comparisons of whole logs: their headers and checksums; no record is decoded."""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa

from kwire.pipeline import batches
from kwire.pipeline.batches import Damage, Piece
from kwire.pipeline.columns import (
    CODECS,
    Wanted,
    Where,
    are_possible,
    check_checksums,
    microseconds,
)
from kwire.pipeline.schema import BATCHES, CRC
from kwire.protocol.errors import KafkaError
from kwire.protocol.message_set import check_message_crc, parse_message
from kwire.protocol.records import COMPRESSION_MASK, CONTROL_FLAG, TRANSACTIONAL_FLAG

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import Any

    from numpy.typing import NDArray

_PADDING = batches.PADDING


def tables(
    piece: Piece, where: Where, wanted: Wanted, damage: list[Damage]
) -> Iterator[pa.RecordBatch]:
    """A piece's batches that have a wanted offset. Those whose headers cannot be are added to `damage`; a wrong
    checksum stands in the row of its batch and nowhere else."""
    if piece.heads[0, batches.MAGIC_BYTE] != 2:
        yield from _of_messages(piece, where, wanted)
        return
    heads = piece.heads[are_possible(piece, piece.heads, damage)]
    last = heads[:, batches.BASE] + heads[:, batches.LAST_DELTA]
    heads = heads[(last >= wanted.first_offset) & (heads[:, batches.BASE] < wanted.end_offset)]
    if not len(heads):
        return
    yield _table(where, wanted, _fields(piece, heads, wanted))


def _fields(piece: Piece, heads: NDArray[np.int64], wanted: Wanted) -> dict[str, Any]:
    attributes = heads[:, batches.ATTRIBUTES]
    position = piece.position + heads[:, batches.POSITION]
    crc_ok = pa.nulls(len(heads), pa.bool_())
    wrong: list[Damage] = []
    if wanted.verify:
        crc_ok = pa.array(check_checksums(piece, heads, wrong))
    details = {each.position: each.detail for each in wrong}
    return {
        **{name: heads[:, column] for name, column in _PLAIN.items()},
        "position": position,
        "last_offset": heads[:, batches.BASE] + heads[:, batches.LAST_DELTA],
        "timestamp": microseconds(heads[:, batches.BASE_TIMESTAMP]),
        "max_timestamp": microseconds(heads[:, batches.MAX_TIMESTAMP]),
        "is_transactional": attributes & TRANSACTIONAL_FLAG != 0,
        "is_control": attributes & CONTROL_FLAG != 0,
        "codec": CODECS.take(pa.array(attributes & COMPRESSION_MASK)),
        "crc_ok": crc_ok,
        "damage": [CRC if at in details else None for at in position.tolist()],
        "detail": [details.get(at) for at in position.tolist()],
    }


_PLAIN: Final = {
    "bytes": batches.SIZE,
    "base_offset": batches.BASE,
    "leader_epoch": batches.EPOCH,
    "records": batches.COUNT,
    "producer_id": batches.PRODUCER_ID,
    "producer_epoch": batches.PRODUCER_EPOCH,
    "sequence": batches.SEQUENCE,
    "magic": batches.MAGIC_BYTE,
    "crc": batches.CRC,
}
"""What stands in a header as it is."""


def damaged(where: Where, wanted: Wanted, damage: list[Damage]) -> Iterator[pa.RecordBatch]:
    """Places that are no batch, as rows: null but for where they are and what is wrong with them."""
    if damage:
        found = {
            "position": [each.position for each in damage],
            "bytes": [each.bytes for each in damage],
            "base_offset": [each.offset for each in damage],
            "damage": [each.kind for each in damage],
            "detail": [each.detail for each in damage],
        }
        yield _table(where, wanted, found)


def _of_messages(piece: Piece, where: Where, wanted: Wanted) -> Iterator[pa.RecordBatch]:
    """Messages of formats 0 and 1, each a batch: one that wraps others has the offset of the last of them, and its
    first one is not known without decoding them."""
    end = len(piece.data) - _PADDING
    found: dict[str, list[object]] = {name: [] for name in BATCHES if name not in Where._fields}
    for at, size, offset in piece.heads[:, (batches.POSITION, batches.SIZE, batches.BASE)].tolist():
        if not wanted.first_offset <= offset < wanted.end_offset:
            continue
        row: dict[str, object] = dict.fromkeys(found)
        row |= {"position": piece.position + at, "bytes": size, "leader_epoch": -1}
        row |= {"base_offset": offset, "last_offset": offset, "magic": piece.data[at + 16]}
        row |= _NONE_OF_MESSAGES
        try:
            message = parse_message(piece.data, at, end)
        except KafkaError as error:
            row |= {"damage": "wrong records", "detail": str(error)}
        else:
            row |= {"codec": message.compression, "crc": message.crc}
            if wanted.verify:
                row["crc_ok"] = check_message_crc(piece.data, message)
                if not row["crc_ok"]:
                    detail = f"{message.crc:08x} is stored, another follows from the bytes"
                    row |= {"damage": CRC, "detail": detail}
        for name, value in row.items():
            found[name].append(value)
    if found["position"]:
        yield _table(where, wanted, found)


_NONE_OF_MESSAGES: Final = {
    "producer_id": -1,
    "producer_epoch": -1,
    "sequence": -1,
    "is_transactional": False,
    "is_control": False,
}


def _table(
    where: Where, wanted: Wanted, found: Mapping[str, list[object] | NDArray[np.generic] | pa.Array]
) -> pa.RecordBatch:
    count = len(found["position"])
    same = where._asdict()

    def column(name: str) -> pa.Array:
        kind = BATCHES[name][0]
        if name == "position" and where.segment is None:
            return pa.nulls(count, kind)
        if name in same:
            return pa.repeat(pa.scalar(same[name], kind), count)
        values = found.get(name)
        if values is None:
            return pa.nulls(count, kind)
        if isinstance(values, np.ndarray) and values.dtype != np.bool_:
            values = values.astype(kind.to_pandas_dtype(), copy=False)
        return values if isinstance(values, pa.Array) else pa.array(values, kind)

    names = list(wanted.columns)
    return pa.RecordBatch.from_arrays([column(name) for name in names], names=names)
