"""The producer state of a partition: sequences, open transactions, snapshots.

Answers to ProducerStateManager, ProducerAppendInfo and ProducerStateEntry of Kafka 3.9 (KIP-98,
KIP-360, KIP-447; verification.py has what KIP-890 adds).

* Per producer id: epoch, the last five batches, the first offset of its open transaction, the last
  marker's coordinator epoch. A batch with the sequences of a remembered one is a duplicate; others
  must continue (2^31-1 wraps to 0). A new epoch begins at 0, an unknown producer, whose records may
  have been deleted, with any sequence.
* An offset is unstable until its transaction's marker is below the high watermark.
* A snapshot NNN.snapshot holds the state before offset NNN and belongs to the segment that begins
  there. It has only the last batch of each producer, as in Kafka: after a restart only a retry of
  the very last batch is recognised as a duplicate.

How a Log uses it: `check` before it writes a batch, `append` after; for the CompletedTxn of a
marker it gets `last_stable_offset`, writes the transaction index entry of an abort, then calls
`complete_txn`. The log moves `map_end_offset`. On loading it calls `truncate_and_reload` and
appends the batches from there to the log end again.
"""

from __future__ import annotations

from collections.abc import Iterable
from struct import Struct
from typing import NamedTuple

from fastcrc.crc32 import iscsi as _crc32c

from kwire.protocol.errors import ErrorCode, KafkaError
from kwire.protocol.records import (
    CONTROL_ABORT,
    CONTROL_FLAG,
    NO_PRODUCER_EPOCH,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    TRANSACTIONAL_FLAG,
    BatchHeader,
    ControlMarker,
    increment_sequence,
)
from kwire.protocol.varint import INT32_MAX
from kwire.replication.log.types import AppendOrigin

TYPE_CHECKING = False
if TYPE_CHECKING:
    from kwire.replication.core.clock import Clock
    from kwire.replication.core.log_store import LogStore
    from kwire.replication.log.verification import VerificationGuard

BATCHES_RETAINED = 5
PRODUCER_ID_EXPIRATION_MS = 24 * 3600 * 1000

_SNAPSHOT_VERSION = 1
_SNAPSHOT_HEADER = Struct(">hIi")
_SNAPSHOT_ENTRY = Struct(">qhiqiqiq")
_SNAPSHOT_CRC_END = 6


class BatchMetadata(NamedTuple):
    """The metadata of an appended batch that answers a retry of it."""

    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int

    @property
    def first_sequence(self) -> int:
        return increment_sequence(self.last_sequence, -self.offset_delta)

    @property
    def first_offset(self) -> int:
        return self.last_offset - self.offset_delta


class CompletedTxn(NamedTuple):
    """A transaction ended by a marker; `last_offset` is the marker's offset."""

    producer_id: int
    first_offset: int
    last_offset: int
    is_aborted: bool


class ProducerStateEntry:
    """The state of one producer. `batches`: oldest first, at most five, all of `producer_epoch`."""

    __slots__ = (
        "batches",
        "coordinator_epoch",
        "current_txn_first_offset",
        "last_timestamp",
        "producer_epoch",
        "producer_id",
    )

    def __init__(self, producer_id: int) -> None:
        self.producer_id = producer_id
        self.producer_epoch = NO_PRODUCER_EPOCH
        self.coordinator_epoch = -1
        self.last_timestamp = NO_TIMESTAMP
        self.current_txn_first_offset: int | None = None
        self.batches: list[BatchMetadata] = []

    @property
    def last_sequence(self) -> int:
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE

    @property
    def last_data_offset(self) -> int:
        """The last data batch's last offset; -1 without a batch of this epoch."""
        return self.batches[-1].last_offset if self.batches else -1

    def duplicate_of(self, header: BatchHeader) -> BatchMetadata | None:
        """The remembered batch with the same sequences, or None."""
        if header.producer_epoch == self.producer_epoch:
            last_sequence = header.last_sequence
            for batch in self.batches:
                if batch.last_sequence == last_sequence and (
                    batch.first_sequence == header.base_sequence
                ):
                    return batch
        return None

    def begin_epoch(self, producer_epoch: int) -> None:
        """Set the producer epoch; a new one discards the remembered batches."""
        if producer_epoch != self.producer_epoch:
            self.batches.clear()
            self.producer_epoch = producer_epoch


class ProducerStateManager:
    """The producers of one partition's log. Methods that touch snapshots raise OSError."""

    __slots__ = (
        "_clock",
        "_directory",
        "_last_snapshot_offset",
        "_snapshot_offsets",
        "_store",
        "map_end_offset",
        "ongoing",
        "producer_id_expiration_ms",
        "producers",
        "unreplicated",
        "verifications",
    )

    def __init__(
        self,
        store: LogStore,
        directory: str,
        clock: Clock,
        *,
        producer_id_expiration_ms: int = PRODUCER_ID_EXPIRATION_MS,
    ) -> None:
        """Start empty: `truncate_and_reload` reads snapshots."""
        self._store = store
        self._directory = directory
        self._clock = clock
        self.producer_id_expiration_ms = producer_id_expiration_ms
        self.producers: dict[int, ProducerStateEntry] = {}
        """By producer id; DescribeProducers lists them."""
        self.map_end_offset = 0
        """The state covers the log up to this offset; the log sets it."""
        self._last_snapshot_offset = 0
        self._snapshot_offsets: list[int] | None = None  # sorted; None: not listed yet
        self.ongoing: dict[int, int] = {}
        """Undecided transactions: first offset -> producer id, by ascending offset."""
        self.unreplicated: dict[int, int] = {}
        """Decided transactions that are not stable yet: first offset -> the marker's offset."""
        self.verifications: dict[int, VerificationGuard] = {}
        """Producers whose transactions are being verified, until their first batch or a marker."""

    # --- appending

    def check(
        self,
        header: BatchHeader,
        origin: AppendOrigin,
        marker: ControlMarker | None = None,
        guard: VerificationGuard | None = None,
    ) -> BatchMetadata | None:
        """Check that a batch may be appended; changes nothing. Returns the stored batch of a retry.

        `header`: of a batch with a producer id; its base offset is not used. `marker`: the content
        of a control batch (None if compaction has emptied it). `guard`: of a transactional batch
        that must be verified (KIP-890). KafkaError: OUT_OF_ORDER_SEQUENCE_NUMBER,
        INVALID_PRODUCER_EPOCH, INVALID_TXN_STATE, TRANSACTION_COORDINATOR_FENCED.
        """
        entry = self.producers.get(header.producer_id)
        is_transactional = header.attributes & TRANSACTIONAL_FLAG
        if header.attributes & CONTROL_FLAG:
            self._check_marker(entry, header, marker, origin)
            return None
        # As in Kafka duplicates are detected before any check: the producer may be further by now.
        if entry is not None and origin is AppendOrigin.CLIENT:
            duplicate = entry.duplicate_of(header)
            if duplicate is not None:
                return duplicate
        if guard is not None:
            from kwire.replication.log.verification import check_verified

            check_verified(self, header, guard, origin)
        if entry is not None:
            self._check_epoch(entry, header, origin)
        if entry is None:
            return None  # unknown or expired: any first sequence is valid (KIP-360)
        if origin is AppendOrigin.CLIENT:
            self._check_sequence(entry, header)
        if entry.current_txn_first_offset is not None and not is_transactional:
            raise KafkaError(
                ErrorCode.INVALID_TXN_STATE,
                f"Expected transactional write from producer {header.producer_id}",
            )
        return None

    def _check_marker(
        self,
        entry: ProducerStateEntry | None,
        header: BatchHeader,
        marker: ControlMarker | None,
        origin: AppendOrigin,
    ) -> None:
        if marker is not None and entry is not None:
            self._check_epoch(entry, header, origin)
            self._check_coordinator_epoch(entry, marker, origin)

    def _check_epoch(
        self, entry: ProducerStateEntry, header: BatchHeader, origin: AppendOrigin
    ) -> None:
        # Followers accept whatever the leader has accepted (Kafka only logs a warning).
        if header.producer_epoch < entry.producer_epoch and origin is not AppendOrigin.REPLICATION:
            raise KafkaError(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"Epoch of producer {header.producer_id} is {header.producer_epoch},"
                f" which is smaller than the last seen epoch {entry.producer_epoch}",
            )

    def _check_coordinator_epoch(
        self, entry: ProducerStateEntry, marker: ControlMarker, origin: AppendOrigin
    ) -> None:
        if (
            marker.coordinator_epoch < entry.coordinator_epoch
            and origin is not AppendOrigin.REPLICATION
        ):
            raise KafkaError(
                ErrorCode.TRANSACTION_COORDINATOR_FENCED,
                f"Invalid coordinator epoch for producerId {entry.producer_id}:"
                f" {marker.coordinator_epoch} (zombie), {entry.coordinator_epoch} (current)",
            )

    def _check_sequence(self, entry: ProducerStateEntry, header: BatchHeader) -> None:
        first = header.base_sequence
        if entry.producer_epoch == NO_PRODUCER_EPOCH:
            return
        if header.producer_epoch != entry.producer_epoch:
            if first != 0:
                raise KafkaError(
                    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                    f"Invalid sequence number for new epoch of producer {header.producer_id}:"
                    f" {header.producer_epoch} (request epoch), {first} (seq. number),"
                    f" {entry.producer_epoch} (current producer epoch)",
                )
            return
        last = entry.last_sequence
        if first != last + 1 and not (first == 0 and last == INT32_MAX):
            raise KafkaError(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"Out of order sequence number for producer {header.producer_id}:"
                f" {first} (incoming seq. number), {last} (current end sequence number)",
            )

    def append(
        self,
        header: BatchHeader,
        base_offset: int,
        origin: AppendOrigin,
        marker: ControlMarker | None = None,
    ) -> CompletedTxn | None:
        """Apply a batch that passed `check` and was written at `base_offset`.

        Returns the transaction that a marker completes, for `complete_txn` after its index entry."""
        if header.attributes & CONTROL_FLAG and marker is None:
            return None  # compaction has removed the whole transaction
        producer_id = header.producer_id
        entry = self.producers.get(producer_id)
        if entry is None:
            entry = self.producers[producer_id] = ProducerStateEntry(producer_id)
        entry.begin_epoch(header.producer_epoch)
        entry.last_timestamp = header.max_timestamp
        if self.verifications and header.attributes & TRANSACTIONAL_FLAG:
            guard = self.verifications.get(producer_id)
            if guard is not None and guard.is_ended_by(header):
                del self.verifications[producer_id]  # verified, or too late to be
        if marker is not None:
            return self._end_transaction(entry, marker, base_offset)
        delta = header.last_offset_delta
        batches = entry.batches
        if len(batches) == BATCHES_RETAINED:
            del batches[0]
        batches.append(
            BatchMetadata(header.last_sequence, base_offset + delta, delta, header.max_timestamp)
        )
        if header.attributes & TRANSACTIONAL_FLAG and entry.current_txn_first_offset is None:
            entry.current_txn_first_offset = base_offset
            self.ongoing[base_offset] = producer_id
        return None

    def _end_transaction(
        self, entry: ProducerStateEntry, marker: ControlMarker, offset: int
    ) -> CompletedTxn | None:
        entry.coordinator_epoch = marker.coordinator_epoch
        first_offset, entry.current_txn_first_offset = entry.current_txn_first_offset, None
        if first_offset is None:
            return None  # no data in this partition: nothing to make stable
        aborted = marker.type == CONTROL_ABORT
        return CompletedTxn(entry.producer_id, first_offset, offset, aborted)

    def last_stable_offset(self, completed: CompletedTxn) -> int:
        """The last stable offset after `completed`, for its transaction index entry."""
        for first_offset, producer_id in self.ongoing.items():
            if producer_id != completed.producer_id:
                return first_offset
        return completed.last_offset + 1

    def complete_txn(self, completed: CompletedTxn) -> None:
        """Mark a transaction as decided; it is stable once the high watermark passes the marker."""
        del self.ongoing[completed.first_offset]
        self.unreplicated[completed.first_offset] = completed.last_offset

    # --- stability and expiration

    @property
    def first_unstable_offset(self) -> int | None:
        """The first offset of a transaction that is undecided or whose marker is not replicated."""
        ongoing, unreplicated = self.ongoing, self.unreplicated
        if not unreplicated:
            return next(iter(ongoing), None)
        first = min(unreplicated)
        return min(first, next(iter(ongoing))) if ongoing else first

    def on_high_watermark_updated(self, offset: int) -> None:
        """Make decided transactions stable whose markers are below `offset`."""
        self.unreplicated = {f: m for f, m in self.unreplicated.items() if m >= offset}

    def on_log_start_offset_incremented(self, offset: int) -> None:
        """Adjust to a new log start. Producers stay although their records are gone (KIP-360)."""
        self.on_high_watermark_updated(offset)
        self.map_end_offset = max(self.map_end_offset, offset)
        latest = self.latest_snapshot_offset()
        self._last_snapshot_offset = offset if latest is None else latest

    def remove_expired_producers(self, now_ms: int | None = None) -> None:
        """Expire producers idle for producer.id.expiration.ms; `now_ms`: Unix time, or None."""
        now_ms = self._clock.wall_ms if now_ms is None else now_ms
        expired = [p for p, entry in self.producers.items() if self._is_expired(entry, now_ms)]
        for producer_id in expired:
            del self.producers[producer_id]
        oldest_ms = now_ms - self.producer_id_expiration_ms
        guards = self.verifications
        for producer_id in [p for p, guard in guards.items() if guard.started_ms <= oldest_ms]:
            del guards[producer_id]  # no append followed

    def _is_expired(self, entry: ProducerStateEntry, now_ms: int) -> bool:
        return (
            entry.current_txn_first_offset is None
            and now_ms - entry.last_timestamp >= self.producer_id_expiration_ms
        )

    # --- truncation and snapshots

    def truncate_and_reload(self, log_start: int, log_end: int, now_ms: int) -> None:
        """Adjust to a log of [log_start, log_end); reload its latest snapshot if the end differs.

        The caller then appends the batches from `map_end_offset` on. Deletes damaged snapshots.
        """
        for offset in list(self._snapshots()):
            if offset > log_end or offset <= log_start:
                self.delete_snapshot(offset)
        if log_end == self.map_end_offset:
            self.on_log_start_offset_incremented(log_start)
            return
        self._clear()
        while (latest := self.latest_snapshot_offset()) is not None:
            entries = parse_snapshot(self._store.read_file(self._snapshot_path(latest)))
            if entries is None:
                self.delete_snapshot(latest)
                continue
            self._load(entry for entry in entries if not self._is_expired(entry, now_ms))
            self.map_end_offset = self._last_snapshot_offset = latest
            return
        self.map_end_offset = self._last_snapshot_offset = log_start

    def _load(self, entries: Iterable[ProducerStateEntry]) -> None:
        ongoing = []
        for entry in entries:
            self.producers[entry.producer_id] = entry
            if entry.current_txn_first_offset is not None:
                ongoing.append((entry.current_txn_first_offset, entry.producer_id))
        self.ongoing = dict(sorted(ongoing))

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Drop all producers and snapshots, for a log that restarts empty at `offset`."""
        self._clear()
        for snapshot in list(self._snapshots()):
            self.delete_snapshot(snapshot)
        self._last_snapshot_offset = 0
        self.map_end_offset = offset

    def _clear(self) -> None:
        self.producers.clear()
        self.ongoing.clear()
        self.unreplicated.clear()

    def take_snapshot(self, *, flush: bool = True) -> int | None:
        """Write a snapshot at `map_end_offset` and return its offset; None if one exists there."""
        offset = self.map_end_offset
        if offset <= self._last_snapshot_offset:
            return None
        data = format_snapshot(self.producers.values())
        self._store.write_file(self._snapshot_path(offset), data, flush=flush)
        snapshots = self._snapshots()
        if offset not in snapshots:
            snapshots.append(offset)
            snapshots.sort()
        self._last_snapshot_offset = offset
        return offset

    def latest_snapshot_offset(self) -> int | None:
        snapshots = self._snapshots()
        return snapshots[-1] if snapshots else None

    def delete_snapshot(self, offset: int) -> None:
        """Delete the snapshot of the segment that begins at `offset`, if it exists."""
        snapshots = self._snapshots()
        if offset in snapshots:
            snapshots.remove(offset)
            self._store.delete(self._snapshot_path(offset))

    def remove_stray_snapshots(self, base_offsets: Iterable[int]) -> None:
        """Delete snapshots without a segment, except one beyond all segments (a clean shutdown's)."""
        self._snapshot_offsets = None
        bases = set(base_offsets)
        stray = [offset for offset in self._snapshots() if offset not in bases]
        if stray and (not bases or stray[-1] >= max(bases)):
            stray.pop()
        for offset in stray:
            self.delete_snapshot(offset)

    def _snapshots(self) -> list[int]:
        if self._snapshot_offsets is None:
            self._snapshot_offsets = sorted(
                int(name[:20])
                for name in self._store.list_dir(self._directory)
                if name.endswith(".snapshot") and len(name) == 29 and name[:20].isdigit()
            )
        return self._snapshot_offsets

    def _snapshot_path(self, offset: int) -> str:
        return f"{self._directory}/{offset:020d}.snapshot"


def format_snapshot(entries: Iterable[ProducerStateEntry]) -> bytes:
    """The bytes of a snapshot file (version 1)."""
    out = bytearray(_SNAPSHOT_HEADER.size)
    count = 0
    for entry in entries:
        count += 1
        last = entry.batches[-1] if entry.batches else BatchMetadata(NO_SEQUENCE, -1, 0, -1)
        txn_first = entry.current_txn_first_offset
        out += _SNAPSHOT_ENTRY.pack(
            entry.producer_id,
            entry.producer_epoch,
            last.last_sequence,
            last.last_offset,
            last.offset_delta,
            entry.last_timestamp,
            entry.coordinator_epoch,
            -1 if txn_first is None else txn_first,
        )
    _SNAPSHOT_HEADER.pack_into(out, 0, _SNAPSHOT_VERSION, 0, count)
    crc = _crc32c(memoryview(out)[_SNAPSHOT_CRC_END:])
    _SNAPSHOT_HEADER.pack_into(out, 0, _SNAPSHOT_VERSION, crc, count)
    return bytes(out)


def parse_snapshot(data: bytes) -> list[ProducerStateEntry] | None:
    """The producers in a snapshot file; None if it is damaged or of another version."""
    if len(data) < _SNAPSHOT_HEADER.size:
        return None
    version, crc, count = _SNAPSHOT_HEADER.unpack_from(data)
    entries_bytes = len(data) - _SNAPSHOT_HEADER.size
    if (
        version != _SNAPSHOT_VERSION
        or crc != _crc32c(memoryview(data)[_SNAPSHOT_CRC_END:])
        or not 0 <= count * _SNAPSHOT_ENTRY.size <= entries_bytes
    ):
        return None
    entries = []
    for index in range(count):
        (
            producer_id,
            producer_epoch,
            last_sequence,
            last_offset,
            offset_delta,
            timestamp,
            coordinator_epoch,
            txn_first,
        ) = _SNAPSHOT_ENTRY.unpack_from(data, _SNAPSHOT_HEADER.size + index * _SNAPSHOT_ENTRY.size)
        entry = ProducerStateEntry(producer_id)
        entry.producer_epoch = producer_epoch
        entry.coordinator_epoch = coordinator_epoch
        entry.last_timestamp = timestamp
        entry.current_txn_first_offset = None if txn_first < 0 else txn_first
        if last_offset >= 0:
            entry.batches.append(BatchMetadata(last_sequence, last_offset, offset_delta, timestamp))
        entries.append(entry)
    return entries
