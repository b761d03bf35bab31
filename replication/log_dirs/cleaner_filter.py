"""Filter the batches that compaction copies: records, tombstones, transaction markers.

Answers to Cleaner.cleanInto, CleanedTransactionMetadata (kafka.log.LogCleaner) and MemoryRecords.filterTo of Kafka 3.9.

* A record is kept if it is the latest of its key or beyond the offset map's range. Records without
  a key are removed.
* A tombstone is kept until the batch's delete horizon: the time of the first cleaning that saw it
  plus delete.retention.ms, which that cleaning writes into the batch (KIP-534).
* Records of aborted transactions are removed. A marker is removed after all data of its
  transaction, once its own delete horizon has passed.
* The batch with a live producer's last sequence is kept, if need be empty; so is the last marker of
  a producer without data, and the last batch of a log whose active segment is empty.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from heapq import heappop, heappush
from itertools import islice
from typing import Final, Protocol

from kwire.protocol.compression import codec_id
from kwire.protocol.compression_parts import compress_in_parts
from kwire.protocol.record_builder import assemble, empty_batch, encode_records
from kwire.protocol.record_streams import records_in_parts
from kwire.protocol.records import (
    CONTROL_ABORT,
    CONTROL_COMMIT,
    CONTROL_FLAG,
    DELETE_HORIZON_FLAG,
    LOG_APPEND_TIME,
    LOG_APPEND_TIME_FLAG,
    NO_TIMESTAMP,
    TRANSACTIONAL_FLAG,
    BatchHeader,
    Buffer,
    Record,
    iter_records,
    parse_control_record,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from kwire.replication.log.indexes import AbortedTxn, TransactionIndex
    from kwire.replication.log.producer_state import ProducerStateEntry


RECORDS_A_STEP: Final = 200
UNITS_A_RECORD: Final = 2
_UNITS_WRITTEN: Final = 4
"""Of a record that is read a second time, and written."""


class KeyOffsets(Protocol):
    """The part of kwire.replication.log_dirs.cleaner.OffsetMap that the filter needs."""

    @property
    def latest_offset(self) -> int: ...

    def get(self, key: bytes) -> int: ...


class CleanedTransactions:
    """The transactions open at the current batch, and whether any of their data was seen."""

    def __init__(self) -> None:
        self.cleaned_index: TransactionIndex | None = None
        """The index of the cleaned segment: aborted transactions with data left are added again."""
        self._upcoming: list[tuple[int, int, AbortedTxn]] = []  # a heap by first offset
        self._added = 0
        self._aborted: dict[int, AbortedTxn] = {}  # by producer id
        self._aborted_seen: set[int] = set()
        self._committed: set[int] = set()

    def add(self, aborted: list[AbortedTxn]) -> None:
        """Add aborted transactions that overlap the next batches; duplicates are harmless."""
        for txn in aborted:
            self._added += 1
            heappush(self._upcoming, (txn.first_offset, self._added, txn))

    def on_batch(self, header: BatchHeader) -> bool:
        """Process a data batch; return whether it belongs to an aborted transaction."""
        self._open_up_to(header.last_offset)
        if not header.is_transactional:
            return False
        if header.producer_id in self._aborted:
            self._aborted_seen.add(header.producer_id)
            return True
        self._committed.add(header.producer_id)
        return False

    def on_control_batch(self, header: BatchHeader, buffer: memoryview) -> bool:
        """Process a control batch; return whether no data is left and the marker may be removed."""
        self._open_up_to(header.last_offset)
        record = next(iter_records(buffer, header), None)
        if record is None:
            return True
        control_type = parse_control_record(record).type
        if control_type == CONTROL_ABORT:
            txn = self._aborted.pop(header.producer_id, None)
            if txn is None or header.producer_id not in self._aborted_seen:
                return True
            self._aborted_seen.discard(header.producer_id)
            if self.cleaned_index is not None:
                self.cleaned_index.append(txn)
            return False
        if control_type == CONTROL_COMMIT:
            if header.producer_id not in self._committed:
                return True
            self._committed.discard(header.producer_id)
        return False

    def _open_up_to(self, offset: int) -> None:
        while self._upcoming and self._upcoming[0][0] <= offset:
            txn = heappop(self._upcoming)[2]
            self._aborted.setdefault(txn.producer_id, txn)


class BatchFilter:
    """Filters the batches of a log in order. `now_ms`: Unix time of the cleaning."""

    def __init__(
        self,
        offset_map: KeyOffsets,
        transactions: CleanedTransactions,
        producers: Mapping[int, ProducerStateEntry],
        now_ms: int,
        delete_retention_ms: int,
        kept_offset: int = -1,
    ) -> None:
        """`kept_offset`: the batch that ends here is kept, if need be empty."""
        self._kept_offset = kept_offset
        self._offset_map = offset_map
        self._transactions = transactions
        self._now_ms = now_ms
        self._new_horizon_ms = now_ms + delete_retention_ms
        # A snapshot: appends during this cleaning must not change which batch is a producer's last.
        self._last_of_producers = {
            producer_id: (entry.last_data_offset, entry.producer_epoch)
            for producer_id, entry in producers.items()
        }

    def filter(
        self, header: BatchHeader, buffer: memoryview
    ) -> Generator[int, None, tuple[bytes | memoryview, int] | None]:
        """Steps that return the batch to keep and its largest timestamp; None if nothing is kept."""
        if header.is_control:
            marker_alone = self._transactions.on_control_batch(header, buffer)
            horizon = header.delete_horizon_ms
            discard = marker_alone and horizon is not None and horizon <= self._now_ms
        else:
            marker_alone = False
            discard = self._transactions.on_batch(header)
        if discard:
            return self._empty_batch_or_none(header)
        retained, has_tombstones = yield from self._count_retained(header, buffer)
        if not retained:
            return self._empty_batch_or_none(header)
        set_horizon = (has_tombstones or marker_alone) and not header.has_delete_horizon
        if retained == header.count and not set_horizon:
            return buffer[header.position : header.end], header.max_timestamp
        horizon = self._new_horizon_ms if set_horizon else header.delete_horizon_ms
        return (yield from self._rewritten(header, buffer, horizon))

    def _rewritten(
        self, header: BatchHeader, buffer: memoryview, horizon_ms: int | None
    ) -> Generator[int, None, tuple[bytes, int]]:
        """The batch with the records to keep, and its largest timestamp.

        They are read a second time rather than kept: a small batch can hold millions of records."""
        records = yield from records_in_parts(buffer, header)
        section = bytearray()
        count, largest, base_timestamp = 0, NO_TIMESTAMP, horizon_ms
        while some := list(islice(records, RECORDS_A_STEP)):
            kept = [record for record in some if self._should_retain(header, record)]
            if kept:
                encoded, _, _, base_timestamp, latest = encode_records(
                    kept, header.base_offset, base_timestamp
                )
                section += encoded
                count, largest = count + len(kept), max(largest, latest)
            yield len(some) * _UNITS_WRITTEN
        content: Buffer = section
        if header.compression != "none":
            content = yield from compress_in_parts(header.compression, section)
        attributes = codec_id(header.compression)
        attributes |= header.attributes & (LOG_APPEND_TIME_FLAG | TRANSACTIONAL_FLAG | CONTROL_FLAG)
        if horizon_ms is not None:
            attributes |= DELETE_HORIZON_FLAG
        if header.timestamp_type == LOG_APPEND_TIME:
            largest = header.max_timestamp
        assert base_timestamp is not None
        written = header._replace(
            attributes=attributes, base_timestamp=base_timestamp, max_timestamp=largest, count=count
        )
        return assemble(written, content), largest

    def _empty_batch_or_none(self, header: BatchHeader) -> tuple[bytes, int] | None:
        if self._is_last_of_producer(header) or header.last_offset == self._kept_offset:
            return empty_batch(header), header.max_timestamp
        return None

    def _is_last_of_producer(self, header: BatchHeader) -> bool:
        if not header.has_producer_id:
            return False
        last = self._last_of_producers.get(header.producer_id)
        if last is None:
            return False
        last_data_offset, epoch = last
        if last_data_offset >= 0:
            return header.last_offset == last_data_offset
        return header.is_control and header.producer_epoch == epoch

    def _count_retained(
        self, header: BatchHeader, buffer: memoryview
    ) -> Generator[int, None, tuple[int, bool]]:
        """(number of records to keep, whether one of them is a tombstone)."""
        retained = 0
        has_tombstones = False
        for number, record in enumerate((yield from records_in_parts(buffer, header)), 1):
            if self._should_retain(header, record):
                retained += 1
                has_tombstones = has_tombstones or record.value is None
            if not number % RECORDS_A_STEP:
                yield RECORDS_A_STEP * UNITS_A_RECORD
        return retained, has_tombstones

    def _should_retain(self, header: BatchHeader, record: Record) -> bool:
        offset_map = self._offset_map
        if header.is_control or record.offset > offset_map.latest_offset:
            return True
        if record.key is None or record.offset < offset_map.get(record.key):
            return False
        horizon = header.delete_horizon_ms
        return record.value is not None or horizon is None or self._now_ms < horizon
