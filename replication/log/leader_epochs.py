"""Where each leader's epoch begins in a partition's log: what tells a follower how far its log is the leader's.

Answers to LeaderEpochFileCache and LeaderEpochCheckpointFile of Kafka 3.9 (KIP-101, KIP-279, KIP-320), without tiered
storage. Entries are (epoch, start offset), both strictly increasing. The file `leader-epoch-checkpoint` holds a line
"0" (version), the number of entries, then "epoch start" a line.

An entry is on the disk before the first record of its epoch: the file never lacks one that counts. An epoch without
records (a leader's that has not written yet) may wait for them in memory, as it is cut off when a log is loaded: a
broker that starts with thousands of partitions writes nothing. A truncation writes without waiting for the disk: an
entry that comes back after a crash is cut again when the log is loaded.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right

TYPE_CHECKING = False
if TYPE_CHECKING:
    from kwire.replication.core.log_store import LogStore

UNDEFINED_EPOCH = -1
UNDEFINED_EPOCH_OFFSET = -1
FILE_NAME = "leader-epoch-checkpoint"

EpochEntry = tuple[int, int]
"""(epoch, start offset)"""


class LeaderEpochCache:
    """The epochs of one log. Methods that change it raise OSError when the file cannot be written."""

    __slots__ = ("_path", "_store", "_unwritten", "entries", "latest_epoch")

    def __init__(self, store: LogStore, directory: str) -> None:
        self._store = store
        self._path = f"{directory}/{FILE_NAME}"
        self._unwritten = False  # an entry that no record has followed is not in the file
        self.entries: list[EpochEntry] = []
        self.latest_epoch = UNDEFINED_EPOCH
        """-1 without entries."""

    def load(self) -> None:
        """Reads the file, if there is one. OSError when it is damaged."""
        self.entries.clear()
        if self._store.exists(self._path):
            for entry in parse_checkpoint(self._store.read_file(self._path)):
                self._insert(*entry)
        self._update_latest()

    def assign(self, epoch: int, start_offset: int, *, has_records: bool = True) -> bool:
        """`epoch` begins at `start_offset`, unless it is the latest and began earlier. True when that was news.

        Entries that contradict it (a later or the same epoch, a start not before its) go. `has_records` False: the log
        ends at `start_offset`, and this is called again before it grows.
        """
        assert epoch >= 0 and start_offset >= 0, (epoch, start_offset)
        is_known = epoch == self.latest_epoch and start_offset >= self.entries[-1][1]
        if not is_known:
            self._insert(epoch, start_offset)
            self._update_latest()
            self._unwritten = True
        if has_records and self._unwritten:
            # Flushed, unless nothing stands before it: an empty log loses nothing with it, and new topics are many.
            self._write(flush=self.entries[-1][1] > 0)
            self._unwritten = False
        return not is_known

    def write(self) -> None:
        """Without waiting for the disk: a disk that takes nothing any more is noticed."""
        self._write(flush=False)

    def _insert(self, epoch: int, start_offset: int) -> None:
        entries = self.entries
        if entries and entries[-1][0] == epoch and start_offset >= entries[-1][1]:
            return
        while entries and (entries[-1][0] >= epoch or entries[-1][1] >= start_offset):
            entries.pop()
        entries.append((epoch, start_offset))

    def end_offset_for(self, epoch: int, log_end_offset: int) -> EpochEntry:
        """(largest epoch not above `epoch`, the offset where the next one begins); (-1, -1) when undefined.

        The latest epoch ends at `log_end_offset`. An epoch before the first is answered with itself and the first's
        start: its records are gone, and the follower goes on from there.
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
        """The epoch in which the record at `offset` was written; -1 when it is before the first entry."""
        index = bisect_right(self.entries, offset, key=_start)
        return self.entries[index - 1][0] if index else UNDEFINED_EPOCH

    def truncate_from_end(self, end_offset: int) -> None:
        """The log ends at `end_offset` now: epochs that begin there or later go. A negative offset does nothing."""
        entries = self.entries
        if end_offset < 0 or not entries or entries[-1][1] < end_offset:
            return
        del entries[bisect_left(entries, end_offset, key=_start) :]
        self._update_latest()
        self._write(flush=False)

    def truncate_from_start(self, start_offset: int) -> None:
        """The log begins at `start_offset` now: the epoch in force there begins there, older ones go."""
        entries = self.entries
        index = bisect_right(entries, start_offset, key=_start)
        if index == 0 or (index == 1 and entries[0][1] == start_offset):
            return
        entries[:index] = [(entries[index - 1][0], start_offset)]
        self._write(flush=False)

    def clear(self) -> None:
        """No epochs: the log starts anew."""
        if self.entries:
            self.entries.clear()
            self._update_latest()
            self._write(flush=False)

    def _update_latest(self) -> None:
        self.latest_epoch = self.entries[-1][0] if self.entries else UNDEFINED_EPOCH

    def _write(self, *, flush: bool) -> None:
        self._store.write_file(self._path, format_checkpoint(self.entries), flush=flush)


def _epoch(entry: EpochEntry) -> int:
    return entry[0]


def _start(entry: EpochEntry) -> int:
    return entry[1]


def format_checkpoint(entries: list[EpochEntry]) -> bytes:
    """The bytes of `leader-epoch-checkpoint`."""
    lines = ["0", str(len(entries)), *(f"{epoch} {start}" for epoch, start in entries)]
    return ("\n".join(lines) + "\n").encode()


def parse_checkpoint(data: bytes) -> list[EpochEntry]:
    """The entries in a `leader-epoch-checkpoint`; none in an empty file. OSError when it is not what it should be."""
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
