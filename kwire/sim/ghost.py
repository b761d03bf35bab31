"""The checker's ghost state: every batch ever written, its author, and what was committed.

See design §6. Ghosts are keyed by topic id, so a topic created again under an old name has another
one. A `GhostLog` mirrors one replica's log batch by batch, read from the real log as it grows and
shrinks; it outlives the broker's process, as the disk does.
"""

from __future__ import annotations

from bisect import bisect_right

from kwire.protocol.records import CONTROL_FLAG, TRANSACTIONAL_FLAG, iter_batches
from kwire.sim.compaction import Compacted, is_compacted
from kwire.sim.transactions.fates import Fates

TYPE_CHECKING = False
if TYPE_CHECKING:
    from kwire.replication.controller.state import PartitionState
    from kwire.replication.log.log import Log

GhostKey = tuple[bytes, int]
_MARKER_TYPE = 40 + 5 + 3  # behind the header, the record's own, and a version of two bytes


class Entry:
    """One batch. `body`: its bytes from the attributes on, as the producer sent them."""

    __slots__ = ("base", "body", "epoch", "first_sequence", "last_sequence", "next", "producer")

    def __init__(
        self,
        base: int,
        next_offset: int,
        epoch: int,
        body: bytes,
        producer: tuple[int, int],
        first_sequence: int,
        last_sequence: int,
    ) -> None:
        self.base = base
        self.next = next_offset
        self.epoch = epoch
        self.body = body
        self.producer = producer
        self.first_sequence = first_sequence
        self.last_sequence = last_sequence

    def __repr__(self) -> str:
        return f"[{self.base}..{self.next - 1}]@{self.epoch}"

    @property
    def is_transactional(self) -> bool:
        return bool(self.body[1] & TRANSACTIONAL_FLAG)

    @property
    def is_control(self) -> bool:
        return bool(self.body[1] & CONTROL_FLAG)

    @property
    def commits(self) -> bool:
        """Of a marker: whether it commits. Its only record's key ends with the type."""
        return self.body[_MARKER_TYPE] == 1

    def same(self, other: Entry) -> bool:
        """Whether both are the same batch, written once by one leader."""
        return self is other or (
            self.base == other.base and self.epoch == other.epoch and self.body == other.body
        )


def read_entries(log: Log, offset: int, end: int) -> list[Entry]:
    """The batches of a real log from the one that holds `offset` up to `end`."""
    entries = []
    while offset < end:
        data = log.read(offset, 1 << 22, end)
        records = bytes(data.records)
        if not records:
            break
        for header in iter_batches(records):
            body = records[header.position + 21 : header.position + header.size]
            entries.append(
                Entry(
                    header.base_offset,
                    header.next_offset,
                    header.partition_leader_epoch,
                    body,
                    (header.producer_id, header.producer_epoch),
                    header.base_sequence,
                    header.last_sequence,
                )
            )
            offset = header.next_offset
    return entries


class GhostLog:
    """One replica's log: batches from `start` (which may lie within the first) to `end`."""

    __slots__ = ("_decided", "_ended", "_open", "end", "entries", "producers", "real", "start")

    def __init__(self, start: int = 0) -> None:
        self.real: Log | None = None  # the one that is mirrored
        self.start = start
        self.end = start
        self.entries: list[Entry] = []
        self.producers: dict[int, list[Entry]] = {}
        self._open: dict[int, int] = {}  # producer id: where its transaction begins
        self._decided = 0  # the highest high watermark
        self._ended: list[tuple[int, int]] = []  # a marker, and where its transaction begins

    def covering(self, offset: int) -> Entry | None:
        """The batch that holds `offset`."""
        entries = self.entries
        at = bisect_right(entries, offset, key=_base) - 1
        if at >= 0 and entries[at].next > offset:
            return entries[at]
        return None

    def holds(self, entry: Entry) -> bool:
        """Whether that batch is in this log."""
        own = self.covering(entry.base)
        return own is not None and own.same(entry)

    def between(self, start: int, end: int) -> list[Entry]:
        """Batches that begin in [start, end)."""
        entries = self.entries
        return entries[
            bisect_right(entries, start - 1, key=_base) : bisect_right(entries, end - 1, key=_base)
        ]

    def append(self, entry: Entry) -> None:
        self.entries.append(entry)
        self.end = entry.next
        if entry.producer[0] >= 0:
            self.producers.setdefault(entry.producer[0], []).append(entry)
            if entry.is_transactional:
                self._follow_transaction(entry)

    def _follow_transaction(self, entry: Entry) -> None:
        if not entry.is_control:
            self._open.setdefault(entry.producer[0], entry.base)
        elif entry.producer[0] in self._open:
            self._ended.append((entry.base, self._open.pop(entry.producer[0])))

    @property
    def first_open(self) -> int:
        """Where the first transaction without a marker begins; or the end."""
        return min(self._open.values(), default=self.end)

    def first_undecided(self, high_watermark: int) -> int:
        """Where the first transaction begins that no marker below the high watermark ends; or that.

        A marker that was below it once decides for good: a new leader's high watermark may be lower."""
        self._decided = max(min(self._decided, self.end), high_watermark)
        first = min(self._open.values(), default=high_watermark)
        for marker, begin in reversed(self._ended):
            if marker < self._decided:
                break
            first = min(first, begin)
        return min(first, high_watermark)

    def truncate(self, end: int) -> list[Entry]:
        """Remove and return all batches that end after `end`."""
        removed = []
        while self.entries and self.entries[-1].next > end:
            entry = self.entries.pop()
            removed.append(entry)
            if entry.producer[0] >= 0:
                self.producers[entry.producer[0]].pop()
        self.end = min(self.end, end)
        self.start = min(self.start, self.end)
        removed.reverse()
        self.reload(self.end)
        return removed

    def reload(self, end: int) -> None:
        """Forget what a reloaded log may not know, in Kafka, too: deleted batches of a transaction, and
        that one has ended whose marker is not stable (snapshots have only open ones)."""
        self._open.clear()
        for entry in self.entries:
            if entry.is_transactional:
                self._follow_transaction(entry)
        self._ended.clear()
        self.end = end

    def fate(self, entry: Entry) -> bool | None:
        """Whether a marker in this log commits a batch of it; None without one."""
        for later in self.producers.get(entry.producer[0], ()):
            if later.base > entry.base and later.is_control:
                return later.commits
        return None

    def advance_start(self, start: int) -> None:
        """Delete the batches that end at or before `start`."""
        gone = 0
        for entry in self.entries:
            if entry.next > start:
                break
            gone += 1
            if entry.producer[0] >= 0:
                self.producers[entry.producer[0]].pop(0)
        del self.entries[:gone]
        if not self.entries:
            self.reload(self.end)  # it may have been set back to its leader's start
        self.start = start
        if self.end < start:
            self.end = start


def _base(entry: Entry) -> int:
    return entry.base


class Acked:
    """A batch acknowledged to an acks=all producer, and the effective min.insync.replicas then."""

    __slots__ = ("entry", "min_isr", "time_us")

    def __init__(self, entry: Entry, min_isr: int, time_us: int) -> None:
        self.entry = entry
        self.min_isr = min_isr
        self.time_us = time_us


class Loss:
    """An excusable loss of data: a disk's unflushed tail, an unclean election."""

    __slots__ = ("end", "kind", "node_id", "start", "text")

    def __init__(self, kind: str, node_id: int, start: int, end: int, text: str) -> None:
        self.kind = kind  # "tail": a power cut; "unclean"; "survivor": the last ISR member's tail
        self.node_id = node_id
        self.start = start
        self.end = end
        self.text = text


class GhostPartition:
    """The whole history of one partition."""

    def __init__(self, name: str, key: GhostKey) -> None:
        self.name = name
        self.key = key
        self.authors: dict[int, int] = {}  # leader epoch: who wrote in it
        self.named: dict[int, int] = {}  # leader epoch: whom the controller named
        self.written: dict[tuple[int, int], tuple[Entry, tuple[int, int] | None]] = {}
        self.logs: dict[int, GhostLog] = {}
        self.truth: PartitionState | None = None
        self.committed = GhostLog()
        self.acked: list[Acked] = []
        self.losses: list[Loss] = []
        self.given_up: set[tuple[int, int]] = (
            set()
        )  # (epoch, offset) of batches lost in such an election
        self.left: set[int] = set()  # have been taken out of the assignment at some time
        self.lossy: set[int] = set()  # lost data, and have not rejoined the ISR since
        self.lost_at: dict[int, int] = {}  # of these: the number of the start that found it
        self.reset_epoch = -1  # the last election that could lose data
        self.deleted_until = 0  # the highest log start; a power cut may bring back, at single replicas, what was below
        self.forgotten_until = -1  # commits of earlier epochs than this count no more
        self.committing_epoch = (
            -1
        )  # of the last leader that committed; who hears later of an earlier one is late
        self.compacted: Compacted | None = None
        if is_compacted(name.rpartition("-")[0]):
            self.compacted = Compacted()
        self.rotten: set[tuple[int, tuple[int, int]]] = (
            set()
        )  # broker; epoch, offset (faults/rot.py)
        self.asked_to_delete = 0  # the highest offset of a DeleteRecords
        self.fates = Fates()
        # Of a compacted partition: batches, and of each producer its last epoch and sequence.
        self.transactional: list[Entry] = []
        self.sequences: dict[int, tuple[int, int]] = {}
        self.fails_late = False  # appends may have failed after they were written
        self.leaving = False  # its topic is being deleted: nothing is promised any more

    def lacks(self, log: GhostLog, entry: Entry) -> bool:
        """Whether a replica lacks a committed batch that it should have.

        One whose end is the leader's may have others where the leader has deleted all, until it learns
        of the leader's log start: as in Kafka, its end gives no reason to cut it."""
        is_deleted = entry.next <= min(self.deleted_until, log.end)
        return entry.next > log.start and not is_deleted and not log.holds(entry)

    def lose(self, node_id: int, start: int) -> None:
        """A broker's start has found less than there was."""
        self.lossy.add(node_id)
        self.lost_at.setdefault(node_id, start)

    def find(self, node_id: int) -> None:
        """A broker is in the ISR again, with all data."""
        self.lossy.discard(node_id)
        self.lost_at.pop(node_id, None)

    def written_before(
        self, node_id: int, entry: Entry
    ) -> tuple[Entry, tuple[int, int] | None] | None:
        """What was written in a batch's place. A leader's write shows only on its disk, if that failed in
        the step in which it was elected: a marker, by a coordinator of its own."""
        place = entry.epoch, entry.base
        if place not in self.written and self.named.get(entry.epoch) == node_id:
            self.authors.setdefault(entry.epoch, node_id)
            self.written[place] = entry, None
        return self.written.get(place)

    def log(self, node_id: int) -> GhostLog:
        log = self.logs.get(node_id)
        if log is None:
            log = self.logs[node_id] = GhostLog()
        return log
