"""Sequences, transactions and snapshots of producers, case by case as Kafka's ProducerStateManager decides them."""

from __future__ import annotations

from struct import pack

import pytest

from kwire.protocol.errors import ErrorCode, KafkaError
from kwire.protocol.record_builder import build_batch, end_transaction_marker
from kwire.protocol.records import (
    CONTROL_ABORT,
    CONTROL_COMMIT,
    BatchHeader,
    ControlMarker,
    Record,
    iter_records,
    parse_control_record,
    parse_header,
)
from kwire.replication.core.clock import Clock
from kwire.replication.core.memory_log_store import MemoryLogStore
from kwire.replication.log.producer_state import (
    BatchMetadata,
    CompletedTxn,
    ProducerStateManager,
    format_snapshot,
    parse_snapshot,
)
from kwire.replication.log.types import AppendOrigin
from kwire.replication.log.verification import (
    NOT_VERIFIED,
    VerificationGuard,
    start_verification,
)

CLIENT, COORDINATOR, REPLICATION = (
    AppendOrigin.CLIENT,
    AppendOrigin.COORDINATOR,
    AppendOrigin.REPLICATION,
)
PRODUCER = 4000
INT32_MAX = 2**31 - 1
HOUR_MS = 3600 * 1000


def data(
    sequence: int,
    count: int = 1,
    *,
    epoch: int = 0,
    producer: int = PRODUCER,
    transactional: bool = False,
    timestamp: int = 1000,
) -> BatchHeader:
    records = [Record(-1, timestamp, None, b"v")] * count
    return parse_header(
        build_batch(
            records,
            producer_id=producer,
            producer_epoch=epoch,
            base_sequence=sequence,
            is_transactional=transactional,
        )
    )


def marker(
    kind: int, *, coordinator_epoch: int = 0, epoch: int = 0, producer: int = PRODUCER
) -> tuple[BatchHeader, ControlMarker]:
    batch = end_transaction_marker(
        kind,
        producer_id=producer,
        producer_epoch=epoch,
        coordinator_epoch=coordinator_epoch,
        timestamp=2000,
    )
    header = parse_header(batch)
    return header, parse_control_record(next(iter_records(batch, header)))


class FakeLog:
    """Appends as Log does, from offset 0, without a file."""

    def __init__(self, store: MemoryLogStore | None = None, **options: bool) -> None:
        self.store = MemoryLogStore() if store is None else store
        self.clock = Clock(wall_ms=1000)
        self.store.make_dir("t-0")
        self.state = ProducerStateManager(self.store, "t-0", self.clock, **options)
        self.end = 0

    def append(
        self,
        header: BatchHeader,
        control: ControlMarker | None = None,
        *,
        origin: AppendOrigin = CLIENT,
        guard: VerificationGuard | None = None,
    ) -> BatchMetadata | CompletedTxn | None:
        duplicate = self.state.check(header, origin, control, guard)
        if duplicate is not None:
            return duplicate
        completed = self.state.append(header, self.end, origin, control)
        if completed is not None:
            self.state.complete_txn(completed)
        self.end += header.last_offset_delta + 1
        self.state.map_end_offset = self.end
        return completed

    def end_transaction(self, kind: int, **options: int) -> CompletedTxn | None:
        completed = self.append(*marker(kind, **options), origin=COORDINATOR)
        assert not isinstance(completed, BatchMetadata)
        return completed

    def refuses(
        self,
        header: BatchHeader,
        control: ControlMarker | None = None,
        *,
        origin: AppendOrigin = CLIENT,
        guard: VerificationGuard | None = None,
    ) -> ErrorCode:
        with pytest.raises(KafkaError) as refused:
            self.append(header, control, origin=origin, guard=guard)
        return refused.value.code


def test_sequences_must_continue() -> None:
    log = FakeLog()
    log.append(data(0, 3))
    log.append(data(3))
    assert log.refuses(data(5)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    log.append(data(4))
    assert log.state.producers[PRODUCER].last_sequence == 4


def test_an_unknown_producer_may_begin_anywhere() -> None:
    log = FakeLog()
    log.append(data(17))
    assert log.refuses(data(19)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_retry_returns_the_stored_offsets() -> None:
    log = FakeLog()
    for sequence in range(0, 18, 3):
        log.append(data(sequence, 3))
    duplicate = log.append(data(6, 3))
    assert isinstance(duplicate, BatchMetadata)
    assert (duplicate.first_offset, duplicate.last_offset, duplicate.timestamp) == (6, 8, 1000)
    assert log.end == 18


def test_only_the_last_five_batches_are_remembered() -> None:
    log = FakeLog()
    for sequence in range(6):
        log.append(data(sequence))
    assert isinstance(log.append(data(1)), BatchMetadata)
    assert log.refuses(data(0)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_retry_of_another_length_is_out_of_order() -> None:
    log = FakeLog()
    log.append(data(0, 3))
    assert log.refuses(data(0, 2)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert log.refuses(data(1, 2)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER  # the same last one


def test_sequences_wrap_around() -> None:
    log = FakeLog()
    log.append(data(INT32_MAX - 1, 2))
    log.append(data(0))
    log.append(data(1, 2))
    across = FakeLog()
    across.append(data(INT32_MAX - 1, 3))
    duplicate = across.append(data(INT32_MAX - 1, 3))
    assert isinstance(duplicate, BatchMetadata)
    assert (duplicate.first_sequence, duplicate.last_sequence) == (INT32_MAX - 1, 0)
    across.append(data(1))


def test_a_new_epoch_begins_at_zero() -> None:
    log = FakeLog()
    log.append(data(0, 5))
    assert log.refuses(data(5, epoch=1)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    log.append(data(0, epoch=1))
    assert log.refuses(data(5)) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert len(log.state.producers[PRODUCER].batches) == 1


def test_a_follower_accepts_all_that_its_leader_accepted() -> None:
    log = FakeLog()
    log.append(data(0, epoch=3), origin=REPLICATION)
    log.append(data(9, epoch=2), origin=REPLICATION)
    log.append(data(9, epoch=2), origin=REPLICATION)
    assert log.end == 3


def test_a_coordinator_writes_without_sequences_but_not_with_an_old_epoch() -> None:
    log = FakeLog()
    log.append(data(-1, epoch=1, transactional=True), origin=COORDINATOR)
    log.append(data(-1, epoch=1, transactional=True), origin=COORDINATOR)
    old = data(-1, epoch=0, transactional=True)
    assert log.refuses(old, origin=COORDINATOR) is ErrorCode.INVALID_PRODUCER_EPOCH


def test_a_refused_batch_changes_nothing() -> None:
    log = FakeLog()
    log.append(data(0))
    before = format_snapshot(log.state.producers.values())
    log.refuses(data(7))
    log.refuses(data(3, epoch=1))
    assert format_snapshot(log.state.producers.values()) == before


# ---- transactions


def first_undecided_offset(log: FakeLog) -> int | None:
    """Where the first open transaction begins."""
    return min(log.state.ongoing, default=None)


def test_an_open_transaction_makes_its_offsets_unstable() -> None:
    log = FakeLog()
    log.append(data(0, 2, producer=1))
    log.append(data(0, transactional=True))
    log.append(data(1, transactional=True))
    assert log.state.first_unstable_offset == first_undecided_offset(log) == 2


@pytest.mark.parametrize("kind", [CONTROL_COMMIT, CONTROL_ABORT])
def test_a_transaction_is_stable_when_its_marker_is_replicated(kind: int) -> None:
    log = FakeLog()
    log.append(data(0, 3, transactional=True))
    completed = log.end_transaction(kind)
    assert completed == CompletedTxn(PRODUCER, 0, 3, kind == CONTROL_ABORT)
    assert first_undecided_offset(log) is None
    assert log.state.first_unstable_offset == 0
    log.state.on_high_watermark_updated(3)
    assert log.state.first_unstable_offset == 0
    log.state.on_high_watermark_updated(4)
    assert log.state.first_unstable_offset is None


def test_the_first_unstable_offset_is_the_smallest_of_all_transactions() -> None:
    log = FakeLog()
    log.append(data(0, producer=1, transactional=True))
    log.append(data(0, producer=2, transactional=True))
    completed = log.end_transaction(CONTROL_ABORT, producer=2)
    assert completed is not None
    assert log.state.first_unstable_offset == 0
    log.end_transaction(CONTROL_COMMIT, producer=1)
    log.append(data(0, producer=3, transactional=True))
    assert log.state.first_unstable_offset == 0
    log.state.on_high_watermark_updated(3)  # the marker at 2 is below it, the one at 3 is not
    assert log.state.first_unstable_offset == 0
    log.state.on_high_watermark_updated(4)
    assert log.state.first_unstable_offset == 4


def test_the_stable_offset_of_an_index_entry_is_the_next_open_transaction() -> None:
    log = FakeLog()
    log.append(data(0, transactional=True))
    log.append(data(0, producer=2, transactional=True))
    header, control = marker(CONTROL_ABORT)
    completed = log.state.append(header, 2, COORDINATOR, control)
    assert completed is not None
    assert log.state.last_stable_offset(completed) == 1
    log.state.complete_txn(completed)
    second, second_control = marker(CONTROL_ABORT, producer=2)
    last = log.state.append(second, 3, COORDINATOR, second_control)
    assert last is not None
    assert log.state.last_stable_offset(last) == 4


def test_a_marker_without_data_completes_nothing_but_fences() -> None:
    log = FakeLog()
    assert log.end_transaction(CONTROL_ABORT, epoch=5, coordinator_epoch=3) is None
    assert log.refuses(data(0, epoch=4, transactional=True)) is ErrorCode.INVALID_PRODUCER_EPOCH
    log.append(data(0, epoch=5, transactional=True))
    old = marker(CONTROL_COMMIT, epoch=5, coordinator_epoch=2)
    assert log.refuses(*old, origin=COORDINATOR) is ErrorCode.TRANSACTION_COORDINATOR_FENCED
    log.append(*old, origin=REPLICATION)


def test_after_a_marker_of_a_new_epoch_sequences_begin_at_zero() -> None:
    log = FakeLog()
    log.append(data(0, 4, transactional=True))
    log.end_transaction(CONTROL_ABORT, epoch=1)
    assert log.refuses(data(4, epoch=1, transactional=True)) is (
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    )
    log.append(data(0, epoch=1, transactional=True))


def test_after_a_marker_of_the_same_epoch_sequences_continue() -> None:
    log = FakeLog()
    log.append(data(0, 4, transactional=True))
    log.end_transaction(CONTROL_COMMIT)
    log.append(data(4, transactional=True))
    assert log.state.producers[PRODUCER].last_data_offset == 5


def test_a_plain_write_inside_a_transaction_is_refused() -> None:
    log = FakeLog()
    log.append(data(0, transactional=True))
    assert log.refuses(data(1)) is ErrorCode.INVALID_TXN_STATE


def test_a_marker_emptied_by_compaction_is_ignored() -> None:
    log = FakeLog()
    log.append(data(0, transactional=True))
    header, _ = marker(CONTROL_ABORT)
    log.append(header, None, origin=REPLICATION)
    assert first_undecided_offset(log) == 0


# ---- verification (KIP-890)


def verification(
    log: FakeLog, sequence: int = 0, epoch: int = 0, *, bumps: bool = False
) -> VerificationGuard:
    guard = start_verification(log.state, PRODUCER, epoch, sequence, log.clock.wall_ms, bumps)
    assert guard is not None
    return guard


def test_only_a_verified_batch_begins_a_transaction() -> None:
    log = FakeLog()
    first = data(0, transactional=True)
    assert log.refuses(first, guard=NOT_VERIFIED) is ErrorCode.INVALID_TXN_STATE
    log.append(first, guard=verification(log))
    log.append(data(1, transactional=True), guard=NOT_VERIFIED)  # the transaction is open here


def test_a_guard_is_valid_for_one_transaction() -> None:
    log = FakeLog()
    guard = verification(log)
    log.append(data(0, transactional=True), guard=guard)
    log.end_transaction(CONTROL_COMMIT)
    assert log.refuses(data(1, transactional=True), guard=guard) is ErrorCode.INVALID_TXN_STATE


def test_a_marker_makes_a_guard_invalid() -> None:
    """The transaction ended while the leader waited for the coordinator's answer."""
    log = FakeLog()
    log.append(data(0))
    guard = verification(log, 1)
    log.end_transaction(CONTROL_ABORT)
    assert log.refuses(data(1, transactional=True), guard=guard) is ErrorCode.INVALID_TXN_STATE


@pytest.mark.parametrize(
    ("epoch", "bumps", "outlives"), [(1, True, True), (0, True, False), (1, False, False)]
)
def test_with_version_2_a_guard_outlives_the_marker_of_the_transaction_before(
    epoch: int, bumps: bool, outlives: bool
) -> None:
    """The producer goes on with the epoch that the marker has, before the marker is written."""
    log = FakeLog()
    log.append(data(0, transactional=True), guard=verification(log, bumps=True))
    next_one = data(0, epoch=1, transactional=True)
    state, now_ms = log.state, log.clock.wall_ms
    guard = VerificationGuard(epoch, 0, now_ms, bumps)
    state.verifications[PRODUCER] = guard
    log.end_transaction(CONTROL_COMMIT, epoch=1)
    if outlives:
        log.append(next_one, guard=guard)
        assert not state.verifications
    else:
        assert log.refuses(next_one, guard=guard) is ErrorCode.INVALID_TXN_STATE


def test_an_open_transaction_needs_no_verification_in_its_epoch() -> None:
    log = FakeLog()
    log.append(data(0, transactional=True), guard=verification(log))
    assert start_verification(log.state, PRODUCER, 0, 1, 1000, False) is None
    assert start_verification(log.state, PRODUCER, 1, 0, 1000, False) is not None
    fenced = log.refuses(data(0, epoch=1, transactional=True), guard=NOT_VERIFIED)
    assert fenced is ErrorCode.INVALID_TXN_STATE


def test_a_fenced_producer_is_refused_before_it_is_verified() -> None:
    log = FakeLog()
    log.append(data(0, epoch=1, transactional=True), guard=verification(log, epoch=1))
    with pytest.raises(KafkaError) as refused:
        start_verification(log.state, PRODUCER, 0, 1, 1000, False)
    assert refused.value.code is ErrorCode.INVALID_PRODUCER_EPOCH


def test_requests_that_wait_for_one_verification_share_its_guard() -> None:
    log = FakeLog()
    guard = verification(log, 0)
    assert verification(log, 1) is guard
    assert log.refuses(data(1, transactional=True), guard=guard) is (
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER  # the first one's turn has not come
    )
    log.append(data(0, transactional=True), guard=guard)
    log.append(data(1, transactional=True), guard=guard)


def test_the_lowest_sequence_of_the_newest_epoch_begins_the_transaction() -> None:
    log = FakeLog()
    guard = verification(log, 4, epoch=1)
    assert verification(log, 3, epoch=1) is guard and verification(log, 0, epoch=0) is guard
    error = log.refuses(data(4, epoch=1, transactional=True), guard=guard)
    assert error is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    verification(log, 7, epoch=2)
    log.append(data(7, epoch=2, transactional=True), guard=guard)


def test_with_an_epoch_for_each_transaction_the_first_sequence_is_0() -> None:
    log = FakeLog()
    guard = verification(log, 2, epoch=1, bumps=True)
    error = log.refuses(data(2, epoch=1, transactional=True), guard=guard)
    assert error is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    older = FakeLog()
    guard = verification(older, 2, epoch=1)
    older.append(data(2, epoch=1, transactional=True), guard=guard)


def test_an_old_epoch_is_refused_as_such() -> None:
    """Its successor has written while the leader waited for the coordinator's answer."""
    log = FakeLog()
    guard = verification(log, 1, epoch=2)
    log.append(data(0, epoch=3))
    error = log.refuses(data(1, epoch=2, transactional=True), guard=guard)
    assert error is ErrorCode.INVALID_PRODUCER_EPOCH


def test_the_coordinators_records_are_verified_without_sequences() -> None:
    log = FakeLog()
    guard = verification(log, 0)
    error = log.refuses(data(5, transactional=True), origin=COORDINATOR, guard=NOT_VERIFIED)
    assert error is ErrorCode.INVALID_TXN_STATE
    log.append(data(5, transactional=True), origin=COORDINATOR, guard=guard)


def test_a_retry_is_recognised_before_its_verification() -> None:
    log = FakeLog()
    log.append(data(0, transactional=True), guard=verification(log))
    log.end_transaction(CONTROL_COMMIT)
    duplicate = log.append(data(0, transactional=True), guard=NOT_VERIFIED)
    assert isinstance(duplicate, BatchMetadata) and duplicate.last_offset == 0


def test_a_verification_without_an_append_expires_with_producers() -> None:
    log = FakeLog()
    guard = verification(log)
    log.state.remove_expired_producers(999 + 24 * HOUR_MS)
    assert verification(log) is guard
    log.state.remove_expired_producers(1000 + 24 * HOUR_MS)
    error = log.refuses(data(0, transactional=True), guard=guard)
    assert error is ErrorCode.INVALID_TXN_STATE


# ---- expiry, truncation, snapshots


def test_idle_producers_expire_unless_a_transaction_is_open() -> None:
    log = FakeLog()
    log.append(data(0, producer=1, timestamp=1000))
    log.append(data(0, producer=2, timestamp=1001))
    log.append(data(0, producer=3, timestamp=0, transactional=True))
    log.state.remove_expired_producers(1000 + 24 * HOUR_MS)
    assert sorted(log.state.producers) == [2, 3]
    log.append(data(40, producer=1))


def test_a_snapshot_has_kafkas_bytes() -> None:
    log = FakeLog()
    log.append(data(7, 3, epoch=2, transactional=True))
    assert log.state.take_snapshot() == 3
    snapshot = log.store.read_file("t-0/00000000000000000003.snapshot")
    body = pack(">iqhiqiqiq", 1, PRODUCER, 2, 9, 2, 2, 1000, -1, 0)
    assert snapshot[:2] + snapshot[6:] == pack(">h", 1) + body
    from fastcrc.crc32 import iscsi

    assert snapshot[2:6] == pack(">I", iscsi(body))


def test_a_reloaded_state_continues_from_the_snapshot() -> None:
    log = FakeLog()
    log.append(data(0, 3))
    log.append(data(0, producer=2, transactional=True))
    log.end_transaction(CONTROL_ABORT, producer=3, coordinator_epoch=4, epoch=1)
    log.state.take_snapshot()
    log.append(data(3, 2))
    again = FakeLog(log.store)
    again.state.truncate_and_reload(0, 7, 1000)
    assert again.state.map_end_offset == 5
    assert again.state.first_unstable_offset == 3
    assert again.state.producers[3].coordinator_epoch == 4
    again.end = again.state.map_end_offset
    assert isinstance(again.append(data(0, 3)), BatchMetadata)
    again.append(data(3, 2))
    assert format_snapshot(again.state.producers.values()) == format_snapshot(
        log.state.producers.values()
    )


def test_the_oldest_open_transaction_of_a_snapshot_is_the_first_unstable_offset() -> None:
    # given a producer that was there first and began its transaction last
    log = FakeLog()
    log.append(data(0, producer=2))
    log.append(data(0, producer=3, transactional=True))
    log.append(data(1, producer=2, transactional=True))
    log.state.take_snapshot()
    again = FakeLog(log.store)
    again.state.truncate_and_reload(0, 3, 1000)
    assert again.state.first_unstable_offset == log.state.first_unstable_offset == 1


def test_no_second_snapshot_at_the_same_offset() -> None:
    log = FakeLog()
    assert log.state.take_snapshot() is None
    log.append(data(0))
    assert log.state.take_snapshot() == 1
    assert log.state.take_snapshot() is None
    assert log.state.latest_snapshot_offset() == 1


def test_truncation_reloads_a_snapshot_inside_the_log() -> None:
    log = FakeLog()
    for sequence in range(4):
        log.append(data(sequence))
        log.state.take_snapshot()
    log.state.truncate_and_reload(1, 3, 1000)
    assert log.state.map_end_offset == 3
    assert log.state.producers[PRODUCER].last_sequence == 2
    assert [name[:20].lstrip("0") for name in log.store.list_dir("t-0")] == ["2", "3"]


def test_truncation_below_every_snapshot_starts_empty() -> None:
    log = FakeLog()
    log.append(data(0, 5))
    log.state.take_snapshot()
    log.append(data(5, transactional=True))
    log.state.truncate_and_reload(2, 4, 1000)
    assert (log.state.map_end_offset, log.state.producers) == (2, {})
    assert log.state.first_unstable_offset is None


def test_truncation_to_the_map_end_keeps_everything() -> None:
    log = FakeLog()
    log.append(data(0, 5))
    log.state.truncate_and_reload(0, 5, 1000)
    assert log.state.producers[PRODUCER].last_sequence == 4


def test_a_damaged_snapshot_is_deleted_and_an_older_one_loaded() -> None:
    log = FakeLog()
    for sequence in range(3):
        log.append(data(sequence))
        log.state.take_snapshot()
    path = "t-0/00000000000000000003.snapshot"
    broken = bytearray(log.store.read_file(path))
    broken[-1] ^= 1
    log.store.write_file(path, bytes(broken))
    again = FakeLog(log.store)
    again.state.truncate_and_reload(0, 3, 1000)
    assert again.state.map_end_offset == 2
    assert not log.store.exists(path)


def test_producers_expired_by_the_time_of_a_restart_are_not_loaded() -> None:
    log = FakeLog()
    log.append(data(0))
    log.state.take_snapshot()
    again = FakeLog(log.store)
    again.state.truncate_and_reload(0, 1, 1000 + 24 * HOUR_MS)
    assert (again.state.map_end_offset, again.state.producers) == (1, {})


def test_stray_snapshots_are_deleted_except_that_of_a_clean_shutdown() -> None:
    log = FakeLog()
    for sequence in range(6):
        log.append(data(sequence))
        log.state.take_snapshot()
    log.state.remove_stray_snapshots([0, 2, 4])
    assert [int(name[:20]) for name in log.store.list_dir("t-0")] == [2, 4, 6]
    log.state.remove_stray_snapshots([0, 8])
    assert log.store.list_dir("t-0") == []


def test_truncate_fully_drops_producers_and_snapshots() -> None:
    log = FakeLog()
    log.append(data(0, 3, transactional=True))
    log.state.take_snapshot()
    log.state.truncate_fully_and_start_at(50)
    assert (log.state.map_end_offset, log.state.producers) == (50, {})
    assert log.state.first_unstable_offset is None
    assert log.store.list_dir("t-0") == []


def test_a_log_start_beyond_a_marker_makes_it_stable_and_keeps_the_producer() -> None:
    log = FakeLog()
    log.append(data(0, 3, transactional=True))
    log.end_transaction(CONTROL_COMMIT)
    log.state.on_log_start_offset_incremented(4)
    assert log.state.first_unstable_offset is None
    assert log.state.producers[PRODUCER].last_sequence == 2


@pytest.mark.parametrize("length", [0, 5, 9])
def test_a_snapshot_too_short_is_damaged(length: int) -> None:
    assert parse_snapshot(format_snapshot([])[:length]) is None


def test_a_snapshot_that_promises_more_entries_than_it_has_is_damaged() -> None:
    from fastcrc.crc32 import iscsi

    body = pack(">i", 2**31 - 1)
    assert parse_snapshot(pack(">hI", 1, iscsi(body)) + body) is None
    assert parse_snapshot(format_snapshot([])) == []
