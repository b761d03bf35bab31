"""One segment of a log: a `.log` file of record batches and its index files.

Answers to org.apache.kafka.storage.internals.log.LogSegment and FileRecords. Works on the headers
of batches (v2 only), not on records. Files are opened on first use.

Invariants: `size` is the size of the `.log` file; batches are contiguous in the file and their
offsets increase; every index entry points at the start of a batch.
"""

from __future__ import annotations

from collections.abc import Iterator

from fastcrc.crc32 import iscsi as crc32c

from kwire.protocol.records import (
    HEADER,
    HEADER_SIZE,
    LENGTH,
    LOG_OVERHEAD,
    MAGIC,
    NO_TIMESTAMP,
    BatchHeader,
    header_of,
)
from kwire.replication.core.log_store import LogFile, LogStore
from kwire.replication.core.outbox import Buffer
from kwire.replication.log.indexes import AbortedTxn, OffsetIndex, TimeIndex, TransactionIndex

TYPE_CHECKING = False
if TYPE_CHECKING:
    from kwire.replication.core.log_config import LogConfig
    from kwire.replication.log.producer_state import CompletedTxn, ProducerStateManager

_READ_AHEAD_BYTES = 8192


def file_name(base_offset: int, suffix: str) -> str:
    """Kafka's file name: twenty digits and the suffix (".log", ".index" …)."""
    return f"{base_offset:020d}{suffix}"


def base_offset_of(name: str) -> int | None:
    """The base offset in a file name, or None if it has none."""
    digits = name.partition(".")[0]
    return int(digits) if len(digits) == 20 and digits.isascii() and digits.isdigit() else None


class LogSegment:
    """A segment. `max_timestamp` and `first_timestamp` of an existing file are read on first use.

    `index_entries`: the number of offset index entries of an active segment, as an attribute
    because every append reads it.
    """

    __slots__ = (
        "_file",
        "_first_timestamp",
        "_max_timestamp",
        "_offset_of_max_timestamp",
        "base_offset",
        "bytes_since_index",
        "created_ms",
        "directory",
        "index_entries",
        "offset_index",
        "path",
        "size",
        "store",
        "time_index",
        "txn_index",
    )

    def __init__(
        self, store: LogStore, directory: str, base_offset: int, created_ms: int, suffix: str = ""
    ) -> None:
        name = f"{directory}/{base_offset:020d}"
        self.store = store
        self.directory = directory
        self.base_offset = base_offset
        self.created_ms = created_ms
        self.path = f"{name}.log{suffix}"
        self.offset_index = OffsetIndex(store, f"{name}.index{suffix}")
        self.time_index = TimeIndex(store, f"{name}.timeindex{suffix}")
        self.txn_index = TransactionIndex(store, f"{name}.txnindex{suffix}")
        self.size = 0
        self.bytes_since_index = 0
        self.index_entries = 0
        self._file: LogFile | None = None
        self._first_timestamp: int | None = None
        self._max_timestamp: int | None = None
        self._offset_of_max_timestamp = base_offset

    @classmethod
    def create(
        cls, store: LogStore, directory: str, base_offset: int, created_ms: int, suffix: str = ""
    ) -> LogSegment:
        """Create an empty segment; the first entries, a flush or a close create the index files."""
        segment = cls(store, directory, base_offset, created_ms, suffix)
        file = segment._file = store.open(segment.path, create=True)
        if file.size:
            file.truncate(0)
        segment._max_timestamp = NO_TIMESTAMP
        return segment

    @classmethod
    def open(
        cls, store: LogStore, directory: str, base_offset: int, created_ms: int, suffix: str = ""
    ) -> LogSegment:
        """Open an existing segment; reads nothing but its size."""
        segment = cls(store, directory, base_offset, created_ms, suffix)
        segment.size = store.size(segment.path)
        return segment

    @property
    def file(self) -> LogFile:
        if self._file is None:
            self._file = self.store.open(self.path)
        return self._file

    # --- appending

    def append(
        self,
        parts: list[Buffer],
        size: int,
        last_offset: int,
        max_timestamp: int,
        index_interval_bytes: int,
    ) -> None:
        """Write one batch at the end. OSError: nothing has changed."""
        position = self.size
        file = self._file
        if file is None:
            file = self.file
        file.append(parts)
        self.size = position + size
        largest = self._max_timestamp
        if largest is None:
            largest = self.max_timestamp
        if max_timestamp > largest:
            self._max_timestamp = largest = max_timestamp
            self._offset_of_max_timestamp = last_offset
        if position == 0:
            self._first_timestamp = max_timestamp
        if self.bytes_since_index > index_interval_bytes:
            self._index(last_offset, position, largest)
        self.bytes_since_index += size

    def _index(self, last_offset: int, position: int, max_timestamp: int) -> None:
        self.offset_index.append(last_offset - self.base_offset, position)
        self.time_index.maybe_append(
            max_timestamp, self._offset_of_max_timestamp - self.base_offset
        )
        self.index_entries += 1
        self.bytes_since_index = 0

    def update_txn_index(self, completed: CompletedTxn, producers: ProducerStateManager) -> None:
        """Complete the transaction of a marker in this segment; add an aborted one to the index."""
        if completed.is_aborted:
            self.txn_index.append(
                AbortedTxn(
                    completed.producer_id,
                    completed.first_offset,
                    completed.last_offset,
                    producers.last_stable_offset(completed),
                )
            )
        producers.complete_txn(completed)

    # --- timestamps

    @property
    def max_timestamp(self) -> int:
        """The largest timestamp in the segment (-1: none); at first the time index's last entry."""
        if self._max_timestamp is None:
            last = self.time_index.last()
            if last is None:
                self._max_timestamp = NO_TIMESTAMP
            else:
                self._max_timestamp = last[0]
                self._offset_of_max_timestamp = self.base_offset + last[1]
        return self._max_timestamp

    @property
    def offset_of_max_timestamp(self) -> int:
        """The last offset of the batch that holds the largest timestamp."""
        _ = self.max_timestamp
        return self._offset_of_max_timestamp

    @property
    def first_timestamp(self) -> int | None:
        """The largest timestamp of the first batch; None in an empty segment.

        Source: LogSegment.getFirstBatchTimestamp.
        """
        if self._first_timestamp is None and self.size:
            for batch in self.batches(0):
                self._first_timestamp = batch.max_timestamp
                break
        return self._first_timestamp

    def largest_timestamp(self) -> int:
        """The age basis of time retention: `max_timestamp`, or the file's time without one."""
        largest = self.max_timestamp
        return largest if largest >= 0 else self.store.modified_ms(self.path)

    def jitter_ms(self, config: LogConfig, log_name: str) -> int:
        """The `segment.jitter.ms` of this segment: a hash, the same in every run (Kafka: random)."""
        jitter = min(config.segment_jitter_ms, config.segment_ms)
        return crc32c(f"{log_name}/{self.base_offset}".encode()) % jitter if jitter else 0

    def waited_for_roll_ms(self, max_timestamp: int, wall_ms: int) -> int:
        """The segment's age for `segment.ms`: by record time, or since creation without one."""
        first = self.first_timestamp
        return (
            max_timestamp - first if first is not None and first >= 0 else wall_ms - self.created_ms
        )

    # --- reading

    def batches(self, position: int, end: int | None = None) -> Iterator[BatchHeader]:
        """Yield batch headers from a batch's position on, up to `end` or the first torn batch."""
        limit = self.size if end is None else end
        file, chunk, chunk_start = self.file, b"", position
        while position + HEADER_SIZE <= limit:
            at = position - chunk_start
            if at + HEADER_SIZE > len(chunk):
                chunk_start, at = position, 0
                chunk = file.read(position, min(_READ_AHEAD_BYTES, limit - position))
                if len(chunk) < HEADER_SIZE:
                    return
            fields = HEADER.unpack_from(chunk, at)
            size = fields[LENGTH] + LOG_OVERHEAD
            if size < HEADER_SIZE or position + size > limit or fields[MAGIC] != 2:
                return
            yield header_of(fields, position)
            position += size

    def find_batch(self, offset: int, end: int | None = None) -> BatchHeader | None:
        """The first batch whose last offset is at least `offset` (LogSegment.translateOffset)."""
        start = self.offset_index.position_for_offset(offset - self.base_offset)
        for batch in self.batches(start, end):
            if batch.last_offset >= offset:
                return batch
        return None

    def last_batch(self) -> BatchHeader | None:
        """The last whole batch, scanning from the last index entry."""
        last = self.offset_index.last()
        batch = None
        for batch in self.batches(last[1] if last is not None else 0):  # noqa: B007
            pass
        return batch

    def read_batch(self, batch: BatchHeader) -> bytes:
        return self.file.read(batch.position, batch.size)

    # --- recovery

    def reset_indexes(self) -> None:
        """Empty the indexes before recovery rebuilds them."""
        self.offset_index.reset()
        self.time_index.reset()
        self.txn_index.reset()
        self._max_timestamp = NO_TIMESTAMP
        self._offset_of_max_timestamp = self.base_offset
        self._first_timestamp = None
        self.index_entries = 0
        self.bytes_since_index = 0

    def index_recovered(self, batch: BatchHeader, index_interval_bytes: int) -> None:
        """Index a batch that is already in the file, as its append would."""
        largest = self.max_timestamp
        if batch.max_timestamp > largest:
            self._max_timestamp = largest = batch.max_timestamp
            self._offset_of_max_timestamp = batch.last_offset
        if self.bytes_since_index > index_interval_bytes:
            self._index(batch.last_offset, batch.position, largest)
        self.bytes_since_index += batch.size

    # --- truncating, flushing, renaming

    def truncate_to(self, offset: int) -> int:
        """Drop the batch that holds `offset` and all later ones; return the bytes removed.

        Source: LogSegment.truncateTo.
        """
        batch = self.find_batch(offset)
        relative = offset - self.base_offset
        self.offset_index.truncate_to(relative, 0)
        self.time_index.truncate_to(relative, 1)
        self.txn_index.truncate_to(offset)
        self.index_entries = self.offset_index.count
        if batch is None:
            return 0
        return self.truncate_file(batch.position)

    def truncate_file(self, position: int) -> int:
        """Truncate the `.log` file at a batch's position; the caller has truncated the indexes."""
        removed = self.size - position
        self.file.truncate(position)
        self.size = position
        self._max_timestamp = None
        if position == 0:
            self._first_timestamp = None
        self.bytes_since_index = 0
        self.load_tail()
        return removed

    def load_tail(self) -> BatchHeader | None:
        """Prepare an existing segment for appends: timestamps, index interval. Returns the last batch."""
        entry = self.offset_index.last()
        position = entry[1] if entry is not None else 0
        largest, batch = self.max_timestamp, None
        for batch in self.batches(position):
            if batch.max_timestamp > largest:
                largest = batch.max_timestamp
                self._offset_of_max_timestamp = batch.last_offset
        self._max_timestamp = largest
        self.index_entries = self.offset_index.count
        self.bytes_since_index = self.size - position
        return batch

    def index_largest_timestamp(self) -> None:
        """Append the largest timestamp to the time index."""
        if self.max_timestamp >= 0:
            self.time_index.maybe_append(
                self.max_timestamp, self._offset_of_max_timestamp - self.base_offset
            )

    def seal(self) -> None:
        """Complete and write the indexes of a segment that becomes inactive.

        Source: LogSegment.onBecomeInactiveSegment.
        """
        self.index_largest_timestamp()
        self.offset_index.write_out()
        self.time_index.write_out()

    def flush(self) -> None:
        """Flush the log and its indexes to the disk."""
        self.file.flush()
        self.offset_index.flush()
        self.time_index.flush()
        self.txn_index.flush()

    def start_flush(self) -> None:
        """Start a flush without waiting for the disk."""
        self.offset_index.write_out()
        self.time_index.write_out()
        self.file.start_flush()

    @property
    def is_flushed(self) -> bool:
        """Whether the `.log` file is known to be on the disk."""
        return self.file.flushed_size >= self.size

    def close(self) -> None:
        """Seal the segment and close its files; a read opens them again."""
        self.seal()
        self.release()

    def release(self) -> None:
        if self._file is not None:
            self._file.close()
        self.offset_index.close()
        self.time_index.close()
        self.txn_index.close()

    def change_suffix(self, old: str, new: str) -> None:
        """Rename the existing files: "" → ".deleted", ".cleaned" → ".swap", ".swap" → "" ."""
        if old == "":
            self.offset_index.write_out()
            self.time_index.write_out()
        path = self._rename(self.path, old, new)
        self.offset_index.set_path(self._rename(self.offset_index.path, old, new))
        self.time_index.set_path(self._rename(self.time_index.path, old, new))
        self.txn_index.set_path(self._rename(self.txn_index.path, old, new))
        self.path = path

    def _rename(self, path: str, old: str, new: str) -> str:
        target = path[: len(path) - len(old)] + new
        if self.store.exists(path):
            self.store.rename(path, target)
        return target

    @property
    def paths(self) -> list[str]:
        """The paths of all files that the segment may have."""
        indexes = self.offset_index, self.time_index, self.txn_index
        return [self.path, *(index.path for index in indexes)]

    def delete_files(self) -> None:
        for path in self.paths:
            self.store.delete(path)
