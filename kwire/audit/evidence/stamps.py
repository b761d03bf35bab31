"""Whose records values are, by their first words (`ledger.value_prefix`), for many values at once.

What `jobs.records` has in SQL, for workers that read a log themselves: there a record costs a tenth of it.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from numpy.typing import NDArray

    Ints = NDArray[np.int64]
    Bytes = NDArray[np.uint8]

HEAD_BYTES: Final = 96
"""Of a value: run, producer and number fit in."""
_FIRST_BYTES = 32
"""So many are looked at first; the words of nearly all values end in them."""
_BLANK, _ZERO, _DELETE = b" 0\x7f"
_TRIMMED = "".join(map(chr, range(33))) + "\x7f"
"""What Spark leaves out around a number."""
_MOST_DIGITS = 18
"""More might not be a bigint."""
_NUMBER = re.compile(r"[+-]?[0-9]+", re.ASCII)
_LEAST, _MOST = -(1 << 63), (1 << 63) - 1


class Stamps(NamedTuple):
    """Whose the values are, an element each."""

    producer: Ints
    """An index of `producers`; -1: of none of the run."""
    number: Ints
    """0 where there is no producer."""
    producers: list[str]


def stamps(values: pa.Array, run: str) -> Stamps:
    """Producers and numbers of binary values, null for a record without value, that are of the run."""
    start, end, data = spans(values)
    reader = _Reader(data, run, len(values))
    reader.read(np.arange(len(values)), start, np.minimum(end - start, HEAD_BYTES), _FIRST_BYTES)
    return Stamps(reader.producer, reader.number, list(reader.producers))


def spans(values: pa.Array) -> tuple[Ints, Ints, Bytes]:
    """Where each of binary values begins and ends in the bytes, those of a null being none."""
    _, edges, data = values.buffers()
    found = np.frombuffer(edges, np.int32, len(values) + 1, values.offset * 4).astype(np.int64)
    start, end = found[:-1], found[1:]
    if values.null_count:
        end = np.where(values.is_null().to_numpy(zero_copy_only=False), start, end)
    return start, end, np.frombuffer(data or b"", np.uint8)


class _Reader:
    def __init__(self, data: Bytes, run: str, count: int) -> None:
        data = np.concatenate((data, np.zeros(HEAD_BYTES, np.uint8)))
        self._windows = {
            width: np.lib.stride_tricks.sliding_window_view(data, width)
            for width in (_FIRST_BYTES, HEAD_BYTES)
        }
        self._run = np.frombuffer(f"{run} ".encode(), np.uint8)
        self.producers: dict[str, int] = {}
        self.producer = np.full(count, -1, np.int64)
        self.number = np.zeros(count, np.int64)

    def read(self, rows: Ints, start: Ints, length: Ints, width: int) -> None:
        """Read the values `rows`, of which `length` bytes from `start` on count, `width` at most."""
        length = length.astype(np.int8, copy=False)
        rows, start, length = _chosen(length >= len(self._run), rows, start, length)
        if not len(rows):
            return
        text = self._windows[width][start]
        is_ours = (text[:, : len(self._run)] == self._run).all(axis=1)
        text, rows, start, length = _chosen(is_ours, text, rows, start, length)
        if not len(rows):
            return
        column = np.arange(width, dtype=np.int8)
        is_blank = (text == _BLANK) & (column < length[:, None]) & (column >= len(self._run))
        second = _first(is_blank, width)
        third = np.minimum(_first(is_blank & (column > second[:, None]), width), length)
        if width < HEAD_BYTES and not (third < width).all():
            late = third >= width
            self.read(rows[late], start[late], length[late], HEAD_BYTES)
            text, rows, start, length, second, third = _chosen(
                ~late, text, rows, start, length, second, third
            )
        in_name = (column >= len(self._run)) & (column < second[:, None])
        in_number = (column > second[:, None]) & (column < third[:, None])
        digits = text - np.uint8(_ZERO)  # what is none becomes large
        is_plain = ((digits <= 9) | ~in_number).all(axis=1)
        is_plain &= (((text > _BLANK) & (text < _DELETE)) | ~in_name).all(axis=1)
        size = third - second - 1
        is_plain &= (size > 0) & (size <= _MOST_DIGITS) & (second > len(self._run))
        for i in np.flatnonzero(~is_plain).tolist():
            self._read_one(int(rows[i]), text[i, : int(length[i])].tobytes())
        rows, second, third, in_name, in_number, digits, text = _chosen(
            is_plain, rows, second, third, in_name, in_number, digits, text
        )
        if not len(rows):
            return
        number = np.zeros(len(rows), np.int64)
        for i in range(int(second.min()) + 1, int(third.max())):
            number = np.where(in_number[:, i], number * 10 + digits[:, i], number)
        self.number[rows] = number
        self.producer[rows] = self._named(np.where(in_name, text, 0))

    def _read_one(self, row: int, head: bytes) -> None:
        """A value that begins with the run and does not go on as `ledger.value_prefix` writes it."""
        words = head.decode(errors="replace").split(" ", 3)
        text = words[2].strip(_TRIMMED) if len(words) > 2 else ""
        if _NUMBER.fullmatch(text) and _LEAST <= int(text) <= _MOST:
            self.producer[row], self.number[row] = self._index(words[1]), int(text)

    def _named(self, names: Bytes) -> Ints:
        """Indexes of producers, by names with zeros around them: neighbours often are of one."""
        changes = np.concatenate(([True], (names[1:] != names[:-1]).any(axis=1)))
        firsts = np.flatnonzero(changes)
        codes = [self._index(name.tobytes().strip(b"\0").decode("ascii")) for name in names[firsts]]
        return np.repeat(np.array(codes, np.int64), np.diff(np.append(firsts, len(names))))

    def _index(self, name: str) -> int:
        return self.producers.setdefault(name, len(self.producers))


def _chosen(chosen: NDArray[np.bool_], *arrays: Any) -> tuple[Any, ...]:
    return arrays if chosen.all() else tuple(array[chosen] for array in arrays)


def _first(found: NDArray[np.bool_], none: int) -> Ints:
    """Of each row the first column that is true, or `none`."""
    at = found.argmax(axis=1)
    return np.where(found[np.arange(len(at)), at], at, none).astype(np.int8)
