"""The index files of a segment: `.index`, `.timeindex`, `.txnindex`.

Answers to org.apache.kafka.storage.internals.log.{OffsetIndex,TimeIndex,TransactionIndex}. Look-ups
read the file (binary search over one page at a time). Each index keeps at most one page and a few
dozen unwritten entries in memory, so memory does not grow with the stored data. Kafka preallocates
the active segment's indexes and trims them later; here files always have their exact size, like
Kafka's after the trim.

Invariants: entries strictly increase in offset (.index) and timestamp (.timeindex); look-ups find
unwritten entries too, as those stay in memory until written; the `.log` file alone is enough to
rebuild the indexes.
"""

from __future__ import annotations

from contextlib import suppress
from struct import Struct

from kwire.replication.core.log_store import LogFile, LogStore

OFFSET_INDEX_ENTRY_BYTES = 8
TIME_INDEX_ENTRY_BYTES = 12
_PAGE_ENTRIES = 512
_PENDING_BYTES_MAX = 512
"""Entries are written in batches of this size: one write per 200 KiB of records, not two per 4."""


class _Index:
    """Fixed-size entries, sorted by every field. `count` includes unwritten entries."""

    _entry: Struct

    def __init__(self, store: LogStore, path: str) -> None:
        self._store = store
        self.path = path
        self._file: LogFile | None = None
        self._pending = bytearray()
        self._stored = -1  # entries in the file; -1: not counted yet
        self._page_first = -1
        self._page = b""

    @property
    def count(self) -> int:
        stored = self._stored
        if stored < 0:
            stored = self._count_stored()
        return stored + len(self._pending) // self._entry.size

    def last(self) -> tuple[int, int] | None:
        count = self.count
        return self.entry(count - 1) if count else None

    def entry(self, number: int) -> tuple[int, int]:
        """The fields of an entry, counted from 0."""
        size = self._entry.size
        if number >= self._stored:
            return self._entry.unpack_from(self._pending, (number - self._stored) * size)
        return self._entry.unpack(self._open_file().read(number * size, size))

    def floor(self, target: int, field: int = 0) -> tuple[int, int] | None:
        """The last entry whose `field` is at most `target`, or None."""
        entry, size = self._entry, self._entry.size
        if not self.count:
            return None
        pending = self._pending
        if pending and entry.unpack_from(pending)[field] <= target:
            return self._floor_within(pending, target, field)
        if not self._stored:
            return None
        page = self._page
        if page:
            first = entry.unpack_from(page)[field]
            last = entry.unpack_from(page, len(page) - size)[field]
            is_last_page = self._page_first + len(page) // size == self._stored
            if first <= target and (target < last or is_last_page):
                return self._floor_within(page, target, field)
        low, high = 0, (self._stored - 1) // _PAGE_ENTRIES
        while low < high:  # the last page that begins at or before the target
            middle = (low + high + 1) // 2
            if self.entry(middle * _PAGE_ENTRIES)[field] <= target:
                low = middle
            else:
                high = middle - 1
        self._page_first = low * _PAGE_ENTRIES
        self._page = self._open_file().read(self._page_first * size, _PAGE_ENTRIES * size)
        return self._floor_within(self._page, target, field)

    def _floor_within(
        self, page: bytes | bytearray, target: int, field: int
    ) -> tuple[int, int] | None:
        unpack_from, size = self._entry.unpack_from, self._entry.size
        low, high = 0, len(page) // size
        while low < high:
            middle = (low + high) // 2
            if unpack_from(page, middle * size)[field] <= target:
                low = middle + 1
            else:
                high = middle
        return unpack_from(page, (low - 1) * size) if low else None

    def _append(self, entry: bytes) -> None:
        if self._stored < 0:
            self._count_stored()
        self._pending += entry
        if len(self._pending) >= _PENDING_BYTES_MAX:
            with suppress(OSError):  # entries stay in memory; the next flush or close raises
                self.write_out()

    def write_out(self) -> None:
        """Write all entries to the file, creating it if needed. OSError."""
        if self._stored < 0:
            self._count_stored()
        file = self._file
        if file is None:
            file = self._file = self._store.open(self.path, create=True)
        if self._pending:
            file.append([bytes(self._pending)])
            self._stored += len(self._pending) // self._entry.size
            self._pending.clear()
            self._page = b""

    def truncate_entries(self, count: int) -> None:
        """Keep the first `count` entries."""
        if count >= self.count:
            return
        size = self._entry.size
        if count >= self._stored:
            del self._pending[(count - self._stored) * size :]
            return
        self._pending.clear()
        self._page = b""
        self._open_file().truncate(count * size)
        self._stored = count

    def truncate_to(self, relative_offset: int, field: int) -> None:
        """Drops the entries whose `field` is at least `relative_offset`."""
        low, high = 0, self.count
        while low < high:
            middle = (low + high) // 2
            if self.entry(middle)[field] < relative_offset:
                low = middle + 1
            else:
                high = middle
        self.truncate_entries(low)

    def reset(self) -> None:
        """Empty the index before a rebuild; the file may hold anything."""
        self._pending.clear()
        self._page = b""
        if self._store.exists(self.path):
            self._open_file().truncate(0)
        self._stored = 0

    def is_sane(self) -> bool:
        """Whether the file has whole entries and its last belongs to this segment (sanityCheck)."""
        if not self._store.exists(self.path):
            return False
        if self._store.size(self.path) % self._entry.size:
            return False
        last = self.last()
        return last is None or self._last_is_sane(last)

    def _last_is_sane(self, last: tuple[int, int]) -> bool:
        raise NotImplementedError

    def flush(self) -> None:
        self.write_out()
        self._open_file().flush()

    def close(self) -> None:
        if self._file is not None:
            self._file.close()

    def set_path(self, path: str) -> None:
        """Follow a rename of the file by the caller (the store keeps open files valid)."""
        self.path = path

    def _open_file(self) -> LogFile:
        if self._file is None:
            self._file = self._store.open(self.path)
        return self._file

    def _count_stored(self) -> int:
        if self._file is not None:
            self._stored = self._file.size // self._entry.size
        elif self._store.exists(self.path):
            self._stored = self._store.size(self.path) // self._entry.size
        else:
            self._stored = 0
        return self._stored


class OffsetIndex(_Index):
    """(last offset of a batch relative to the segment's base, position of that batch), 8 bytes an entry."""

    _entry = Struct(">ii")

    def append(self, relative_offset: int, position: int) -> None:
        self._append(self._entry.pack(relative_offset, position))

    def position_for_offset(self, relative_offset: int) -> int:
        """The position to scan from for an offset: that of a batch at or before it."""
        entry = self.floor(relative_offset)
        return entry[1] if entry is not None else 0

    def position_before(self, position: int) -> int:
        """The largest indexed batch position that is at most `position`; 0 without one."""
        entry = self.floor(position, 1)
        return entry[1] if entry is not None else 0

    def _last_is_sane(self, last: tuple[int, int]) -> bool:
        # A batch at position 0 is never indexed by Kafka, so an all-zero entry is preallocated space.
        return last[0] > 0 or last[1] > 0


class TimeIndex(_Index):
    """(largest timestamp so far, last offset of its batch relative to the base), 12 bytes an entry."""

    _entry = Struct(">qi")

    def maybe_append(self, timestamp: int, relative_offset: int) -> None:
        """Append the entry if its timestamp exceeds the last one's (TimeIndex.maybeAppend)."""
        last = self.last()
        if timestamp > (last[0] if last is not None else -1):
            self._append(self._entry.pack(timestamp, relative_offset))

    def _last_is_sane(self, last: tuple[int, int]) -> bool:
        first = self.entry(0)
        return last[1] >= 0 and (self.count == 1 or last[0] > first[0])


class AbortedTxn:
    """An aborted transaction: first offset, last offset (the marker), LSO at the marker's write."""

    __slots__ = ("first_offset", "last_offset", "last_stable_offset", "producer_id")

    def __init__(
        self, producer_id: int, first_offset: int, last_offset: int, last_stable_offset: int
    ) -> None:
        self.producer_id = producer_id
        self.first_offset = first_offset
        self.last_offset = last_offset
        self.last_stable_offset = last_stable_offset

    def _values(self) -> tuple[int, int, int, int]:
        return (self.producer_id, self.first_offset, self.last_offset, self.last_stable_offset)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, AbortedTxn) and self._values() == other._values()

    def __hash__(self) -> int:
        return hash(self._values())

    def __repr__(self) -> str:
        return f"AbortedTxn{self._values()}"


class TransactionIndex:
    """The aborted transactions whose markers are in a segment, 34 bytes each.

    The first entry creates the file.
    """

    _entry = Struct(">hqqqq")

    def __init__(self, store: LogStore, path: str) -> None:
        self._store = store
        self.path = path
        self._exists: bool | None = None
        self._file: LogFile | None = None

    @property
    def exists(self) -> bool:
        if self._exists is None:
            self._exists = self._store.exists(self.path)
        return self._exists

    def append(self, txn: AbortedTxn) -> None:
        if self._file is None:
            self._file = self._store.open(self.path, create=True)
        self._file.append([self._entry.pack(0, *txn._values())])
        self._exists = True

    def entries(self) -> list[AbortedTxn]:
        """All entries, oldest marker first; ignores a torn last one."""
        if not self.exists:
            return []
        data = self._open_file()
        raw = data.read(0, data.size)
        whole = len(raw) - len(raw) % self._entry.size
        return [AbortedTxn(*fields[1:]) for fields in self._entry.iter_unpack(raw[:whole])]

    def collect(self, start_offset: int, end_offset: int) -> tuple[list[AbortedTxn], bool]:
        """The entries that overlap [start, end), and whether no later segment can have more.

        Source: TransactionIndex.collectAbortedTxns.
        """
        found = []
        for txn in self.entries():
            if txn.last_offset >= start_offset and txn.first_offset < end_offset:
                found.append(txn)
            if txn.last_stable_offset >= end_offset:
                return found, True
        return found, False

    def truncate_to(self, offset: int) -> None:
        """Drop transactions whose marker is at or after `offset`."""
        if self.exists:
            keep = sum(1 for txn in self.entries() if txn.last_offset < offset)
            self._open_file().truncate(keep * self._entry.size)

    def reset(self) -> None:
        if self.exists:
            self._open_file().truncate(0)

    def is_sane(self, base_offset: int) -> bool:
        """Whether the file has only whole entries, all of this segment."""
        if not self.exists:
            return True
        return self._store.size(self.path) % self._entry.size == 0 and all(
            txn.last_offset >= base_offset for txn in self.entries()
        )

    def flush(self) -> None:
        if self.exists:
            self._open_file().flush()

    def close(self) -> None:
        if self._file is not None:
            self._file.close()

    def set_path(self, path: str) -> None:
        self.path = path

    def _open_file(self) -> LogFile:
        if self._file is None:
            self._file = self._store.open(self.path)
        return self._file
