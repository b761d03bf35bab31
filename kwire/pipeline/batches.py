"""Segments in pieces of whole batches: their headers as one table of numbers, and what cannot be read.

A file is read by pread, not mapped: a broker that cuts it off meanwhile makes a short read, not a SIGBUS. No length of
the file is trusted: a batch ends within its range or is damage.
"""

from __future__ import annotations

import os
from struct import Struct
from typing import NamedTuple

import numpy as np

from kwire.pipeline.schema import LENGTH, MAGIC, TORN
from kwire.protocol.records import COUNT as RECORD_COUNT
from kwire.protocol.records import HEADER, LAST_OFFSET_DELTA

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    Heads = NDArray[np.int64]

MAX_OFFSET = (1 << 63) - 1
PIECE_BYTES = 8 << 20
MANY_RECORDS = 1 << 20
"""A header that counts more records is not believed without a look at them."""
PADDING = 16
"""Zeros behind the bytes of a piece, so that a varint that lies reads them and not beyond the end."""

(
    POSITION,
    BASE,
    SIZE,
    EPOCH,
    MAGIC_BYTE,
    CRC,
    ATTRIBUTES,
    LAST_DELTA,
    BASE_TIMESTAMP,
    MAX_TIMESTAMP,
    PRODUCER_ID,
    PRODUCER_EPOCH,
    SEQUENCE,
    COUNT,
) = range(14)
"""Columns of `Piece.heads`. Of messages of formats 0 and 1 only the first five are filled."""

_PREFIX = Struct(">qiib")
_HEADER_BYTES = HEADER.size
_LEAST = {0: 14, 1: 22, 2: _HEADER_BYTES - 12}
"""What the length field is at least, by magic."""


class Piece(NamedTuple):
    """Whole batches of one magic kind (2, or older), in the order of the file."""

    data: bytearray
    """The file's bytes from `position` on, `PADDING` zeros behind them."""
    position: int
    heads: Heads
    """One row a batch; POSITION counts from the begin of `data`."""


class Damage(NamedTuple):
    position: int
    bytes: int
    offset: int | None
    kind: str
    detail: str


class Index:
    """A segment's offset index, for places to go on at behind damage; read when first needed."""

    def __init__(self, path: str, base_offset: int) -> None:
        self._path = path
        self._base = base_offset
        self._entries: NDArray[np.int64] | None = None

    @property
    def entries(self) -> NDArray[np.int64]:
        """Rows of last offset and position of batches, ascending; none if there is no index or it lies."""
        if self._entries is None:
            self._entries = self._read()
        return self._entries

    def _read(self) -> NDArray[np.int64]:
        try:
            with open(self._path, "rb") as file:
                stored = file.read()
        except OSError:
            stored = b""
        pairs = np.frombuffer(stored[: len(stored) // 8 * 8], ">i4").reshape(-1, 2).astype(np.int64)
        # A live broker's index is as long as it may become, zeros behind the entries.
        rising = (
            np.concatenate(([True], pairs[1:, 1] > pairs[:-1, 1]))
            if len(pairs)
            else np.zeros(0, bool)
        )
        valid = len(pairs) if rising.all() else int(np.argmin(rising))
        pairs = pairs[:valid]
        pairs[:, 0] += self._base
        return pairs

    def next_batch(self, file: int, position: int, end: int) -> int | None:
        """The first position behind `position` and before `end` at which an entry and a batch's header agree."""
        entries = self.entries
        for i in range(int(np.searchsorted(entries[:, 1], position, "right")), len(entries)):
            offset, at = (int(value) for value in entries[i])
            if at >= end:
                return None
            if is_batch(file, at, offset):
                return at
        return None

    def contradicts(self, file: int, position: int, heads: Heads) -> tuple[int, int]:
        """How many of the batches read at `position` do not reach over the begin of an indexed one, and where to go on.

        A length that is too large would hide the batches behind it."""
        begins = position + heads[:, POSITION]
        end = int(begins[-1] + heads[-1, SIZE])
        entries = self.entries
        first, last = np.searchsorted(entries[:, 1], (position, end), "left")
        inside = entries[first:last]
        for offset, at in inside[~np.isin(inside[:, 1], begins)].tolist():
            if is_batch(file, at, offset):
                return int(np.searchsorted(begins, at)) - 1, at
        return len(heads), end


def is_batch(file: int, position: int, last_offset: int) -> bool:
    """Whether the batch or message at a position of a file ends with an offset, by its header."""
    head = os.pread(file, _HEADER_BYTES, position)
    if len(head) < _PREFIX.size:
        return False
    base, length, _, magic = _PREFIX.unpack_from(head)
    if magic in (0, 1):
        return bool(base == last_offset and length >= _LEAST[magic])
    if magic != 2 or len(head) < _HEADER_BYTES:
        return False
    return bool(base + HEADER.unpack_from(head)[LAST_OFFSET_DELTA] == last_offset)


def next_offset(file: int, position: int, end: int, offset: int) -> tuple[int, int]:
    """Step over whole batches from `position` to `end`: where they end, and the offset behind the last one.

    `offset` is the answer if no batch is whole."""
    while position + _PREFIX.size <= end:
        head = os.pread(file, _HEADER_BYTES, position)
        if len(head) < _PREFIX.size:
            break
        base, length, _, magic = _PREFIX.unpack_from(head)
        if magic not in _LEAST or length < _LEAST[magic] or position + 12 + length > end:
            break
        offset = base + 1
        if magic == 2:
            if len(head) < _HEADER_BYTES:
                break
            offset += HEADER.unpack_from(head)[LAST_OFFSET_DELTA]
        position += 12 + length
    return position, offset


def pieces(file: int, start: int, end: int, index: Index, damage: list[Damage]) -> Iterator[Piece]:
    """Read `file` from `start` to `end`, both between batches; what cannot be read is added to `damage`.

    At most about PIECE_BYTES at a time, or one batch. A piece's data is good until the next piece is taken."""
    position, want = start, PIECE_BYTES
    data = bytearray()
    while position < end:
        size = min(want, end - position) + PADDING
        if len(data) != size:  # or in the last one's memory: new pages cost as much as the read
            data = bytearray(size)
        length = os.preadv(file, [memoryview(data)[:-PADDING]], position)
        if length < len(data) - PADDING:  # cut off since the range was planned
            end = position + length
            data = data[:length] + bytes(PADDING)
        rows, wrong, needed = walk(data, length)
        if rows:
            heads = np.array(rows, np.int64)
            whole, stop = index.contradicts(file, position, heads)
            if whole:
                yield from by_format(data, position, heads[:whole])
            if whole < len(heads):
                begin = position + int(heads[whole, POSITION])
                detail = f"a batch of {heads[whole, SIZE]} bytes, with another one in it"
                damage.append(Damage(begin, stop - begin, int(heads[whole, BASE]), LENGTH, detail))
            position, want = stop, PIECE_BYTES
            continue
        if wrong is None and needed <= end - position and needed > want:
            want = needed
            continue
        found = _unreadable(file, position, end, data[: _PREFIX.size], wrong, needed, index)
        damage.append(found)
        position, want = position + found.bytes, PIECE_BYTES


def _unreadable(
    file: int,
    position: int,
    end: int,
    begin: bytearray,
    wrong: tuple[str, str] | None,
    needed: int,
    index: Index,
) -> Damage:
    """What is damaged at `position`, up to the next batch that the index names. `begin`: the bytes there."""
    left = end - position
    kind, detail = wrong or (
        TORN,
        f"{left} bytes of a batch of {needed}" if needed else f"{left} bytes",
    )
    after = index.next_batch(file, position, end)
    stop = end if after is None else after
    if wrong is None and after is not None:
        kind, detail = LENGTH, f"a batch of {needed} bytes"
    offset = _PREFIX.unpack_from(begin)[0] if left >= _PREFIX.size else None
    return Damage(position, stop - position, offset, kind, detail)


def headers(file: int, start: int, end: int, index: Index, damage: list[Damage]) -> Iterator[Piece]:
    """As `pieces`, for columns that headers know: of large batches in a row nothing else is read.

    Such a piece has no data. All its batches are full (offsets without gaps) and of format 2."""
    position = start
    while position < end:
        rows, stop = _headers(file, position, end)
        heads = np.array(rows, np.int64).reshape(-1, COUNT + 1)
        whole, _ = index.contradicts(file, position, heads) if rows else (0, stop)
        if whole < len(rows):
            stop = position + int(heads[whole, POSITION])
        if whole:
            yield Piece(bytearray(PADDING), position, heads[:whole])
        position = stop
        if whole == _HEADERS:
            continue
        # Small batches, or something that only `pieces` can make sense of.
        stop = min(end, position + PIECE_BYTES)
        for piece in pieces(file, position, end, index, damage):
            yield piece
            last = piece.position + int(piece.heads[-1, POSITION] + piece.heads[-1, SIZE])
            if last >= stop:
                position = last
                break
        else:
            return


_HEADERS = 2000
"""How many headers are read one by one before they become a piece."""
_LARGE_BYTES = 4096
"""The size from which on batches are stepped over (measured: a pread with its step takes 3 us, 4 KB from the page cache
about 2 us, and from a disk much more)."""


def _headers(file: int, position: int, end: int) -> tuple[list[tuple[int, ...]], int]:
    """The headers of large full batches from `position` on, and where the first batch is that is none of them."""
    rows: list[tuple[int, ...]] = []
    at, read, unpack = position, os.pread, HEADER.unpack_from
    while len(rows) < _HEADERS and at + _LARGE_BYTES <= end:
        stored = read(file, _HEADER_BYTES, at)
        if len(stored) < _HEADER_BYTES:
            break
        head = unpack(stored)
        size = 12 + head[1]
        if head[3] != 2 or size < _LARGE_BYTES or at + size > end:
            break
        if head[LAST_OFFSET_DELTA] + 1 != head[RECORD_COUNT] or head[RECORD_COUNT] > MANY_RECORDS:
            break
        rows.append((at - position, head[0], size, *head[2:]))
        at += size
    return rows, at


def walk(data: bytearray, end: int) -> tuple[list[tuple[int, ...]], tuple[str, str] | None, int]:
    """The headers of whole batches; what is wrong behind them; how many bytes the first batch needs (0: unknown)."""
    rows: list[tuple[int, ...]] = []
    at, unpack, prefix = 0, HEADER.unpack_from, _PREFIX.unpack_from
    append = rows.append
    needed = 0
    while at + _PREFIX.size <= end:
        base, length, epoch, magic = prefix(data, at)
        least = _LEAST.get(magic)
        if least is None:
            return rows, (MAGIC, f"magic {magic}"), needed
        if length < least:
            return rows, (LENGTH, f"a length of {length} bytes"), needed
        size = 12 + length
        if at + size > end:
            if not rows:
                needed = size
            break
        if magic == 2:
            head = unpack(data, at)
            append((at, base, size, epoch, 2, *head[4:]))
        else:
            append((at, base, size, -1, magic, 0, 0, 0, 0, 0, 0, 0, 0, 0))
        at += size
    return rows, None, needed


def by_format(data: bytearray, position: int, heads: Heads) -> Iterator[Piece]:
    is_new = heads[:, MAGIC_BYTE] == 2
    if is_new.all() or not is_new.any():
        yield Piece(data, position, heads)
        return
    edges = np.flatnonzero(np.diff(is_new)) + 1
    for part in np.split(heads, edges):
        yield Piece(data, position, part)
