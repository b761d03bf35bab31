"""`kwire dump-log` for files other than segments: indexes, aborted transactions, producers, checkpoints.

Formats as in kwire.replication.log.indexes and producer_state. Offsets are absolute, not relative to
the segment's base offset, which is the file's name.
"""

from __future__ import annotations

import os
from struct import Struct

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_PIECE_ENTRIES = 4096
_OFFSET_ENTRY = Struct(">ii")
_TIME_ENTRY = Struct(">qi")
_ABORTED_ENTRY = Struct(">hqqqq")
_TEXT_FILES = ("partition.metadata", "meta.properties")


def dumper(name: str) -> Callable[[str], int] | None:
    """The function that prints a file of this name and returns 1 if it is damaged; None for files
    that do not belong to a log."""
    if name.endswith("-checkpoint") or name in _TEXT_FILES:
        return _dump_text
    stem, _, kind = name.rpartition(".")
    if not (len(stem) == 20 and stem.isascii() and stem.isdigit()):
        return None
    base = int(stem)
    if kind == "index":
        return lambda path: _dump_offsets(path, base)
    if kind == "timeindex":
        return lambda path: _dump_times(path, base)
    return {"txnindex": _dump_aborted, "snapshot": _dump_producers}.get(kind)


def _entries(path: str, entry: Struct) -> Iterator[tuple[int, ...]]:
    """The entries of a file, read in pieces. An empty tuple at the end: the last entry is truncated."""
    with open(path, "rb") as file:
        while data := file.read(entry.size * _PIECE_ENTRIES):
            whole = len(data) - len(data) % entry.size
            yield from entry.iter_unpack(data[:whole])
            if whole < len(data):
                yield ()  # truncated


def _dump_offsets(path: str, base: int) -> int:
    last = (-1, -1)
    for number, fields in enumerate(_entries(path, _OFFSET_ENTRY)):
        if not fields:
            return _damaged(number, "cut off")
        relative, position = fields
        if not any(fields):
            print(f"{number}: zeros from here on (preallocated)")  # noqa: T201
            return 0
        if relative <= last[0] or position <= last[1]:
            return _damaged(number, f"{base + relative} → {position} is not after the one before")
        print(f"{base + relative} → {position}")  # noqa: T201
        last = (relative, position)
    return 0


def _dump_times(path: str, base: int) -> int:
    last = (-1, -1)
    for number, fields in enumerate(_entries(path, _TIME_ENTRY)):
        if not fields:
            return _damaged(number, "cut off")
        timestamp, relative = fields
        if not any(fields) and os.path.getsize(path) > _TIME_ENTRY.size:
            print(f"{number}: zeros from here on (preallocated)")  # noqa: T201
            return 0
        if timestamp <= last[0] or relative < last[1] or relative < 0:
            return _damaged(number, f"{timestamp} → {base + relative} is not after the one before")
        print(f"{timestamp} → {base + relative}")  # noqa: T201
        last = (timestamp, relative)
    return 0


def _dump_aborted(path: str) -> int:
    for number, fields in enumerate(_entries(path, _ABORTED_ENTRY)):
        if not fields:
            return _damaged(number, "cut off")
        _, producer_id, first, last, stable = fields
        print(f"producer={producer_id} offsets {first}-{last} last-stable={stable}")  # noqa: T201
    return 0


def _dump_producers(path: str) -> int:
    from kwire.replication.log.producer_state import parse_snapshot

    with open(path, "rb") as file:
        producers = parse_snapshot(file.read())
    if producers is None:
        return _damaged(0, "not a snapshot of version 1, or its CRC is wrong")
    for each in producers:
        first = each.current_txn_first_offset
        print(  # noqa: T201
            f"producer={each.producer_id}/{each.producer_epoch} last-sequence={each.last_sequence}"
            f" last-offset={each.last_data_offset} at={each.last_timestamp}"
            + ("" if first is None else f" transaction-from={first}")
        )
    return 0


def _dump_text(path: str) -> int:
    with open(path, encoding="utf-8", errors="backslashreplace") as file:
        for line in file:
            print(line.rstrip("\n"))  # noqa: T201
    return 0


def _damaged(number: int, reason: str) -> int:
    print(f"entry {number}: DAMAGED: {reason}")  # noqa: T201
    return 1
