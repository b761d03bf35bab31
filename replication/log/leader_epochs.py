"""The start offset of each leader epoch in a log; followers truncate by it.

Answers to LeaderEpochFileCache and LeaderEpochCheckpointFile of Kafka 3.9 (KIP-101, KIP-279,
KIP-320), without tiered storage. Entries are (epoch, start offset), both strictly increasing. The
file `leader-epoch-checkpoint` holds a line "0" (version), a line with the number of entries, then a
line "epoch start" for each.

An entry is in the file before the first record of its epoch. Kafka waits for its flush; here it
only begins, as everything else of the broker would wait: a record whose epoch may not be on the disk
is above the recovery point (`is_flushed`), and recovery takes the epochs from the records. The entry
of an epoch without records (the leader has not written yet) may stay in memory until the first
record: loading a log removes such entries anyway, and a broker that starts with thousands of
partitions then writes nothing. After a truncation no flush begins: if an entry reappears after a
crash, loading removes it again.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right

from kwire.replication.log.checkpoints import CorruptCheckpoint

TYPE_CHECKING = False
if TYPE_CHECKING:
    from kwire.replication.core.log_store import LogStore

UNDEFINED_EPOCH = -1
UNDEFINED_EPOCH_OFFSET = -1
FILE_NAME = "leader-epoch-checkpoint"

EpochEntry = tuple[int, int]
"""(epoch, start offset)"""


class LeaderEpochCache:
    """The leader epochs of one log. Methods that change it raise OSError if the write fails."""

    __slots__ = ("_path", "_store", "_unwritten", "entries", "is_flushed", "latest_epoch")

    def __init__(self, store: LogStore, directory: str) -> None:
        self._store = store
        self._path = f"{directory}/{FILE_NAME}"
        self.is_flushed = True
        """Whether the file is on the disk with all entries that recovery cannot find in records."""
        self._unwritten = False  # the last entry, without records yet, is not in the file
        self.entries: list[EpochEntry] = []
        self.latest_epoch = UNDEFINED_EPOCH
        """UNDEFINED_EPOCH without entries."""

    def load(self) -> None:
        """Read the file if it exists. OSError if it is malformed."""
        self.entries.clear()
        if self._store.exists(self._path):
            data = self._store.read_file(self._path)
            try:
                entries = parse_checkpoint(data)
            except OSError as error:
                raise CorruptCheckpoint(self._path, str(error)) from None
            for entry in entries:
                self._insert(*entry)
        self._update_latest()

    def assign(self, epoch: int, start_offset: int, *, has_records: bool = True) -> bool:
        """Start `epoch` at `start_offset`, unless it is the latest and began earlier.

        Returns whether the cache changed. Removes contradicting entries (a later or the same epoch,
        or a start offset that is not lower). `has_records` False: the log ends at `start_offset`,
        and the caller assigns the epoch again before it grows.
        """
        assert epoch >= 0 and start_offset >= 0, (epoch, start_offset)
        is_known = epoch == self.latest_epoch and start_offset >= self.entries[-1][1]
        if not is_known:
            self._insert(epoch, start_offset)
            self._update_latest()
            self._unwritten = True
        if has_records and self._unwritten:
            self._write()
            self._unwritten = False
            # No flush for an empty log: it has nothing to lose, and creating topics stays fast.
            if self.entries[-1][1] > 0:
                self.start_flush()
        return not is_known

    def write(self) -> None:
        """Write the file without a flush; detects a failed disk. OSError."""
        self._write()

    def start_flush(self) -> None:
        """Start to flush the file. OSError."""
        self.is_flushed = False
        self._store.start_flush_file(self._path, self._flushed)

    def _flushed(self) -> None:
        self.is_flushed = True

    def flush(self) -> None:
        """Flush the file. OSError."""
        self._store.flush_file(self._path)
        self.is_flushed = True

    def _insert(self, epoch: int, start_offset: int) -> None:
        entries = self.entries
        if entries and entries[-1][0] == epoch and start_offset >= entries[-1][1]:
            return
        while entries and (entries[-1][0] >= epoch or entries[-1][1] >= start_offset):
            entries.pop()
        entries.append((epoch, start_offset))

    def end_offset_for(self, epoch: int, log_end_offset: int) -> EpochEntry:
        """(largest epoch not above `epoch`, start offset of the next one); (-1, -1) if undefined.

        The latest epoch ends at `log_end_offset`. For an epoch before the first: the epoch itself
        and the first's start offset, as its records are gone and the follower continues from there.
        """
        if epoch == UNDEFINED_EPOCH:
            return UNDEFINED_EPOCH, UNDEFINED_EPOCH_OFFSET
        if epoch == self.latest_epoch:
            return epoch, log_end_offset
        entries = self.entries
        higher = bisect_right(entries, epoch, key=_epoch)
        if higher == len(entries):
            return UNDEFINED_EPOCH, UNDEFINED_EPOCH_OFFSET
        floor = epoch if higher == 0 else entries[higher - 1][0]
        return floor, entries[higher][1]

    def epoch_for_offset(self, offset: int) -> int:
        """The epoch of the record at `offset`; -1 before the first entry."""
        index = bisect_right(self.entries, offset, key=_start)
        return self.entries[index - 1][0] if index else UNDEFINED_EPOCH

    def truncate_from_end(self, end_offset: int) -> None:
        """Remove epochs that begin at or after `end_offset`; a negative offset does nothing."""
        entries = self.entries
        if end_offset < 0 or not entries or entries[-1][1] < end_offset:
            return
        del entries[bisect_left(entries, end_offset, key=_start) :]
        self._update_latest()
        self._write()

    def truncate_from_start(self, start_offset: int) -> None:
        """Move the epoch in force at `start_offset` there, remove older ones."""
        entries = self.entries
        index = bisect_right(entries, start_offset, key=_start)
        if index == 0 or (index == 1 and entries[0][1] == start_offset):
            return
        entries[:index] = [(entries[index - 1][0], start_offset)]
        self._write()

    def clear(self) -> None:
        """Remove all epochs, for a log that restarts empty."""
        if self.entries:
            self.entries.clear()
            self._update_latest()
            self._write()

    def _update_latest(self) -> None:
        self.latest_epoch = self.entries[-1][0] if self.entries else UNDEFINED_EPOCH

    def _write(self) -> None:
        self._store.write_file(self._path, format_checkpoint(self.entries), flush=False)


def _epoch(entry: EpochEntry) -> int:
    return entry[0]


def _start(entry: EpochEntry) -> int:
    return entry[1]


def format_checkpoint(entries: list[EpochEntry]) -> bytes:
    """The bytes of `leader-epoch-checkpoint`."""
    lines = ["0", str(len(entries)), *(f"{epoch} {start}" for epoch, start in entries)]
    return ("\n".join(lines) + "\n").encode()


def parse_checkpoint(data: bytes) -> list[EpochEntry]:
    """The entries of a `leader-epoch-checkpoint`; none in an empty file. OSError if malformed."""
    lines = data.decode("ascii", "replace").splitlines()
    if not lines:
        return []
    try:
        if int(lines[0]) != 0:
            raise OSError(f"Unrecognized version of {FILE_NAME}: {lines[0]}")
        entries = [(int(epoch), int(start)) for epoch, start in map(str.split, lines[2:])]
        if len(entries) != int(lines[1]):
            raise OSError(f"Expected {lines[1]} entries in {FILE_NAME}, found {len(entries)}")
    except (ValueError, IndexError):
        raise OSError(f"Malformed line in {FILE_NAME}") from None
    if any(epoch < 0 or start < 0 for epoch, start in entries):
        raise OSError(f"A negative number in {FILE_NAME}")
    return entries
