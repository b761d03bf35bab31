"""Reading, rolling, retention and truncation of one log. S7, S9, S18: scenarios of the replication fact sheet."""

from __future__ import annotations

import pytest
from log_harness import NOW_MS, OneLog, batch, check_invariants, marker, stamped

from kwire.protocol.errors import ErrorCode, KafkaError
from kwire.protocol.records import BatchHeader, iter_batches, parse_header
from kwire.replication.core.work import at_once
from kwire.replication.log.log import AppendOrigin

BATCH_BYTES = len(batch(b"x" * 100))


def filled(count: int = 100, **config: object) -> OneLog:
    """`count` batches of two records; every record's timestamp is NOW_MS + its offset. All committed."""
    one = OneLog(**config)
    for n in range(count):
        times = [NOW_MS + 2 * n, NOW_MS + 2 * n + 1]
        one.append(b"%6d" % (2 * n), b"%6d" % (2 * n + 1), timestamps=times)
    one.commit_all()
    return one


SMALL = {"segment_bytes": 1000, "index_interval_bytes": 100}


# ---- reading


@pytest.mark.parametrize("max_bytes", [1, 100, 500, 1 << 20])
@pytest.mark.parametrize("config", [{}, SMALL])
def test_a_sequential_reader_gets_everything_once_in_order(
    max_bytes: int, config: dict[str, object]
) -> None:
    one = filled(**config)
    data = one.read_all(max_bytes=max_bytes)
    assert len(data) == one.log.size_bytes
    assert [offset for offset, _ in one.values()] == list(range(200))


@pytest.mark.parametrize("config", [{}, SMALL, {"index_interval_bytes": 0}])
def test_every_offset_is_found_from_anywhere(config: dict[str, object]) -> None:
    one = filled(**config)
    for offset in [*range(0, 200, 7), *range(199, 0, -3)]:
        fetched = one.log.read(offset, 1, 200)
        header = parse_header(fetched.records)
        assert header.base_offset == fetched.first_offset == offset - offset % 2
        assert fetched.next_offset == header.next_offset
        assert len(fetched.records) == header.size


def test_only_whole_batches_up_to_the_limit_are_returned() -> None:
    one = filled(10)
    size = one.log.size_bytes // 10
    for limit, batches in ((size, 1), (2 * size - 1, 1), (2 * size, 2), (100 * size, 10)):
        fetched = one.log.read(0, limit, 20)
        assert len(fetched.records) == batches * size
        assert fetched.next_offset == 2 * batches


def test_the_first_batch_is_returned_whatever_its_size_when_asked_for() -> None:
    one = OneLog()
    one.append(b"x" * 10_000)
    one.append(b"y")
    whole = one.log.read(0, 100, 2)
    assert whole.next_offset == 1 and len(whole.records) > 10_000
    assert one.log.read(0, 0, 2).next_offset == 1
    for limit in (0, 11, 100):
        none = one.log.read(0, limit, 2, min_one_batch=False)
        assert (len(none.records), none.next_offset, none.first_batch_too_large) == (0, 0, True)


def test_large_reads_end_at_a_batch_whatever_the_batch_sizes() -> None:
    one = OneLog(index_interval_bytes=4096)
    sizes = [10, 50_000, 3, 100, 7000, 90_000, 1, 20, 300] * 12
    for n, size in enumerate(sizes):
        one.append(b"x" * size, timestamp=NOW_MS + n)
    end = one.log.log_end_offset
    for limit in (66_000, 70_000, 100_000, 200_001, 1 << 20):
        offset, seen = 0, 0
        while offset < end:
            fetched = one.log.read(offset, limit, end)
            last = _headers(fetched.records)[-1]
            assert last.next_offset == fetched.next_offset
            assert len(fetched.records) <= limit or fetched.next_offset == offset + 1
            seen += len(fetched.records)
            offset = fetched.next_offset
        assert seen == one.log.size_bytes


def _headers(data: bytes | memoryview) -> list[BatchHeader]:
    headers = list(iter_batches(data))
    assert sum(header.size for header in headers) == len(data)
    return headers


def test_S18_bounds() -> None:
    one = OneLog()
    for _ in range(4):
        one.append(b"x")
    one.append(b"t", producer=(1, 0, 0), transactional=True)  # offset 4: last stable offset
    for _ in range(3):
        one.append(b"x")
    log = one.log
    log.maybe_increment_high_watermark(5)
    log.maybe_increment_log_start_offset(2)
    assert (log.log_start_offset, log.last_stable_offset, log.high_watermark) == (2, 4, 5)
    for offset in (5, 7, 8):
        fetched = log.read(offset, 1000, log.high_watermark)
        assert (fetched.records, fetched.next_offset) == (b"", offset)
    for offset in (1, 9):
        with pytest.raises(KafkaError) as caught:
            log.read(offset, 1000, log.high_watermark)
        assert caught.value.code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert log.read(4, 1000, log.last_stable_offset).records == b""
    assert log.read(2, 1000, log.last_stable_offset).next_offset == 4
    assert log.read(2, 1000, log.high_watermark).next_offset == 5
    replica = log.read(5, 1000, log.log_end_offset)
    assert (replica.first_offset, replica.next_offset) == (5, 8)


def test_a_bound_inside_a_segment_that_is_not_the_last_holds() -> None:
    one = filled(**SMALL)
    for bound in range(2, 200, 6):
        fetched_end = 0
        while fetched_end < bound:
            fetched = one.log.read(fetched_end, 1 << 20, bound)
            assert fetched.next_offset <= bound
            fetched_end = fetched.next_offset
        assert one.log.read(bound, 1 << 20, bound).records == b""


def test_gaps_are_skipped() -> None:
    one = OneLog()
    one.log.append_as_follower(stamped(batch(b"a"), 5, 0) + stamped(batch(b"b"), 9, 0))
    one.log.roll()
    one.log.append_as_follower(stamped(batch(b"c"), 20, 0))
    for offset, first in ((0, 5), (5, 5), (6, 9), (9, 9), (10, 20), (20, 20)):
        assert one.log.read(offset, 1, 21).first_offset == first
    assert one.log.read(12, 1, 15).records == b""


def test_a_sequential_reader_costs_one_read_a_fetch(monkeypatch: pytest.MonkeyPatch) -> None:
    one = OneLog()
    for _ in range(200):
        one.append(b"x" * 500)
    file_class = type(one.log.active.file)
    read = file_class.read
    reads: list[int] = []

    def counted(file: object, position: int, length: int) -> bytes:
        reads.append(length)
        return read(file, position, length)  # type: ignore[arg-type]

    monkeypatch.setattr(file_class, "read", counted)
    offset, fetches = 0, 0
    while offset < 200:
        offset = one.log.read(offset, 3000, 200).next_offset
        fetches += 1
    assert fetches == 40
    assert len(reads) == fetches
    one.append(b"new")
    reads.clear()
    assert len(one.log.read(200, 1 << 20, 201).records)
    assert len(reads) == 1


def test_bytes_between_counts_what_a_waiting_fetch_would_get() -> None:
    one = filled(**SMALL)
    size = one.log.size_bytes // 100
    for start, end in ((0, 200), (10, 20), (198, 200), (7, 190), (50, 50), (60, 20)):
        batches = max(0, (end - start + start % 2) // 2)
        assert one.log.bytes_between(start, end) == batches * size


# ---- timestamps


@pytest.mark.parametrize("config", [{}, SMALL, {"index_interval_bytes": 0}])
@pytest.mark.parametrize("compression", ["none", "zstd"])
def test_the_first_record_at_or_after_a_timestamp_is_found_inside_its_batch(
    config: dict[str, object], compression: str
) -> None:
    one = OneLog(**config)
    for n in range(50):
        times = [NOW_MS + 20 * n, NOW_MS + 20 * n + 10]
        one.append(b"a", b"b", timestamps=times, compression=compression)
    for time in range(-5, 20 * 50, 7):
        found = at_once(one.log.offset_by_timestamp(NOW_MS + time, 100))
        expected = max(0, -(-time // 10))
        if expected >= 100:
            assert found is None
        else:
            assert found is not None
            assert (found.offset, found.timestamp) == (expected, NOW_MS + 10 * expected)
    assert at_once(one.log.offset_by_timestamp(NOW_MS + 500, 50)) is None  # not below the bound
    assert at_once(one.log.offset_by_timestamp(0, 0)) is None


def test_timestamps_need_not_increase() -> None:
    one = OneLog(index_interval_bytes=0)
    for time in (50, 10, 70, 30, 70, 20):
        one.append(b"x", timestamp=NOW_MS + time)
    for time, offset in ((0, 0), (50, 0), (51, 2), (70, 2)):
        found = at_once(one.log.offset_by_timestamp(NOW_MS + time, 6))
        assert found is not None and found.offset == offset
    assert at_once(one.log.offset_by_timestamp(NOW_MS + 71, 6)) is None
    largest = at_once(one.log.max_timestamp_offset(6))
    assert largest is not None and (largest.offset, largest.timestamp) == (2, NOW_MS + 70)
    assert at_once(one.log.max_timestamp_offset(2)) is None


def test_timestamps_below_the_log_start_are_not_found() -> None:
    one = filled(10)
    one.log.maybe_increment_log_start_offset(5)
    found = at_once(one.log.offset_by_timestamp(0, 20))
    assert found is not None and (found.offset, found.leader_epoch) == (5, 0)


def test_the_largest_timestamp_is_also_that_of_a_deleted_record_whose_segment_is_there() -> None:
    """As in Kafka, whose look-up of it does not know the log start."""
    one = OneLog()
    for time in (90, 10, 20):
        one.append(b"x", timestamp=NOW_MS + time)
    one.commit_all()
    one.log.maybe_increment_log_start_offset(1)
    largest = at_once(one.log.max_timestamp_offset(3))
    assert largest is not None and (largest.offset, largest.timestamp) == (0, NOW_MS + 90)


def test_the_largest_timestamp_is_found_in_any_segment_and_after_a_restart() -> None:
    one = OneLog(**SMALL)
    for n in range(40):
        one.append(b"x", b"y", timestamps=[NOW_MS, NOW_MS + (900 if n == 13 else n)])
    for _ in range(2):
        found = at_once(one.log.max_timestamp_offset(80))
        assert found is not None and (found.offset, found.timestamp) == (27, NOW_MS + 900)
        one.restart()
    assert at_once(OneLog().log.max_timestamp_offset(0)) is None


# ---- rolling


def test_a_segment_is_rolled_before_it_would_grow_too_large() -> None:
    one = filled(**SMALL)
    assert len(one.log.segments) > 5
    assert all(segment.size <= 1000 for segment in one.log.segments)
    assert one.files()[:4] == [
        "00000000000000000000.index",
        "00000000000000000000.log",
        "00000000000000000000.timeindex",
        f"{one.log.segments[1].base_offset:020d}.index",
    ]
    assert f"{one.log.segments[1].base_offset:020d}.snapshot" in one.files()
    check_invariants(one.log)


def test_a_segment_is_rolled_by_record_time() -> None:
    one = OneLog(segment_ms=1000)
    one.append(b"a", timestamp=NOW_MS)
    one.append(b"b", timestamp=NOW_MS + 1000)
    assert len(one.log.segments) == 1
    one.append(b"c", timestamp=NOW_MS + 1001)
    assert [segment.base_offset for segment in one.log.segments] == [0, 2]


def test_without_record_times_a_segment_is_rolled_by_the_clock() -> None:
    one = OneLog(segment_ms=1000)
    one.append(b"a", timestamp=-1)
    one.wait(1000)
    one.append(b"b", timestamp=-1)
    one.wait(1)
    one.append(b"c", timestamp=-1)
    assert [segment.base_offset for segment in one.log.segments] == [0, 2]


def test_jitter_only_brings_a_roll_forward() -> None:
    one = OneLog(segment_ms=1000, segment_jitter_ms=1000)
    for ms in range(0, 1100, 10):
        one.append(b"a", timestamp=NOW_MS + ms)
    assert len(one.log.segments) >= 2


def test_jitter_shortens_the_age_of_a_segment() -> None:
    one = OneLog(segment_ms=1000, segment_jitter_ms=1000)
    jitter_ms = one.log.active.jitter_ms(one.log.config, "t-0")
    assert 0 < jitter_ms < 1000
    for ms, segments in ((0, 1), (1000 - jitter_ms, 1), (1001 - jitter_ms, 2)):
        one.append(b"a", timestamp=NOW_MS + ms)
        assert len(one.log.segments) == segments


def test_a_full_time_index_rolls() -> None:
    """Its entries are larger than those of the offset index."""
    one = OneLog(segment_index_bytes=120, index_interval_bytes=0)
    for n in range(40):
        one.append(b"x", timestamp=NOW_MS + n)
    assert len(one.log.segments) >= 4
    assert all(segment.time_index.count <= 10 for segment in one.log.segments)


def test_the_index_interval_counts_all_bytes_since_the_last_entry() -> None:
    one = OneLog(index_interval_bytes=2 * BATCH_BYTES)
    for _ in range(12):
        one.append(b"x" * 100)
    assert one.log.active.offset_index.count == 3


def test_a_rolled_segment_has_its_largest_timestamp_in_the_index() -> None:
    one = OneLog()
    one.append(b"a", timestamp=NOW_MS + 5)
    one.append(b"b", timestamp=NOW_MS)
    one.log.roll()
    assert one.log.segments[0].time_index.last() == (NOW_MS + 5, 0)


def test_batches_of_a_segment_end_at_the_first_that_is_not_whole() -> None:
    one = OneLog()
    one.append(b"a")
    one.append(b"b")
    segment = one.log.active
    offsets = [[h.base_offset for h in segment.batches(0, segment.size - cut)] for cut in (0, 1)]
    assert offsets == [[0, 1], [0]]


def test_a_full_index_rolls() -> None:
    one = OneLog(segment_index_bytes=120, index_interval_bytes=0)
    for _ in range(40):
        one.append(b"x")
    assert len(one.log.segments) >= 3
    for segment in one.log.segments:
        assert segment.offset_index.count <= 15 and segment.time_index.count <= 10


def test_an_offset_too_far_from_the_base_rolls() -> None:
    one = OneLog()
    one.log.append_as_follower(stamped(batch(b"a"), 0, 0))
    one.log.append_as_follower(stamped(batch(b"b"), 2**31 - 1, 0))
    assert len(one.log.segments) == 1
    one.log.append_as_follower(stamped(batch(b"c"), 2**31 + 5, 0))
    assert [segment.base_offset for segment in one.log.segments] == [0, 2**31 + 5]
    one.log.truncate_fully_and_start_at(0)
    one.log.append_as_follower(stamped(batch(b"d"), 2**31, 0))
    assert [segment.base_offset for segment in one.log.segments] == [0, 2**31]
    assert one.values() == [(2**31, b"d")]


def test_rolling_an_empty_segment_does_nothing() -> None:
    one = OneLog()
    before = one.log.active
    one.log.roll()
    assert one.log.segments == [before] and one.log.active is before
    one.append(b"a")
    one.log.roll()
    one.log.roll()
    assert [segment.base_offset for segment in one.log.segments] == [0, 1]


# ---- retention and the log start


def test_S09_retention_stops_at_the_high_watermark() -> None:
    one = OneLog(segment_bytes=5 * BATCH_BYTES, retention_ms=1000)
    for _ in range(100):
        one.append(b"x" * 100, timestamp=NOW_MS - 10_000)
    log = one.log
    log.maybe_increment_high_watermark(25)
    log.delete_old_segments()
    assert log.log_start_offset <= 25
    assert log.read(25, 1, 100).first_offset == 25
    log.maybe_increment_high_watermark(100)
    log.delete_old_segments()
    assert (log.log_start_offset, len(log.segments), log.size_bytes) == (100, 1, 0)
    assert log.segments[0].base_offset == 100
    check_invariants(log)
    with pytest.raises(KafkaError) as caught:
        log.maybe_increment_log_start_offset(101)
    assert caught.value.code == ErrorCode.OFFSET_OUT_OF_RANGE


def test_retention_by_size_keeps_at_least_retention_bytes() -> None:
    one = filled(100, segment_bytes=1000, retention_bytes=3000)
    deleted = one.log.delete_old_segments()
    assert deleted > 0
    assert 3000 <= one.log.size_bytes < 4000
    assert one.log.log_start_offset == one.log.segments[0].base_offset
    assert one.log.delete_old_segments() == 0


def test_retention_by_time_stops_at_the_first_segment_to_keep() -> None:
    one = OneLog(segment_bytes=BATCH_BYTES, retention_ms=1000)
    for time in (-2000, -2000, 0, -2000, 0):
        one.append(b"x" * 100, timestamp=NOW_MS + time)
    one.commit_all()
    assert one.log.delete_old_segments() == 2
    assert one.log.log_start_offset == 2


def test_retention_ms_is_the_longest_age_allowed() -> None:
    one = OneLog(segment_bytes=BATCH_BYTES, retention_ms=1000)
    for _ in range(2):
        one.append(b"x" * 100, timestamp=NOW_MS)
    one.commit_all()
    one.wait(1000)
    assert one.log.delete_old_segments() == 0
    one.wait(1)
    assert one.log.delete_old_segments() == 2
    one.wait(100_000)
    assert one.log.delete_old_segments() == 0  # an empty active segment is nothing to delete


def test_retention_bytes_0_keeps_nothing_that_is_committed() -> None:
    one = OneLog(segment_bytes=BATCH_BYTES, retention_bytes=0)
    for _ in range(3):
        one.append(b"x" * 100)
    one.log.maybe_increment_high_watermark(2)
    assert one.log.delete_old_segments() == 2


def test_a_record_found_by_time_is_named_with_its_epoch() -> None:
    one = OneLog()
    one.append(b"a", epoch=4, timestamp=NOW_MS)
    found = at_once(one.log.offset_by_timestamp(NOW_MS, 1))
    assert found is not None and (found.offset, found.leader_epoch) == (0, 4)


def test_records_without_timestamps_are_as_old_as_their_file() -> None:
    one = OneLog(segment_bytes=BATCH_BYTES, retention_ms=1000)
    for _ in range(3):
        one.append(b"x" * 100, timestamp=-1)
    one.commit_all()
    assert one.log.delete_old_segments() == 0
    one.wait(1001)
    assert one.log.delete_old_segments() == 3


def test_a_compacted_log_deletes_only_segments_below_its_log_start() -> None:
    one = OneLog(
        segment_bytes=5 * BATCH_BYTES, retention_ms=0, cleanup_policy=frozenset({"compact"})
    )
    for _ in range(50):
        one.append(b"x" * 100, timestamp=NOW_MS - 10_000)
    one.commit_all()
    assert one.log.delete_old_segments() == 0
    one.log.maybe_increment_log_start_offset(23)
    assert one.log.delete_old_segments() > 0
    assert one.log.log_start_offset == 23
    assert one.log.segments[0].base_offset <= 23 < one.log.segments[1].base_offset


def test_deleted_segments_are_renamed_and_removed_later() -> None:
    one = filled(**SMALL)
    one.log.maybe_increment_log_start_offset(100)
    one.log.delete_old_segments()
    assert "00000000000000000000.log.deleted" in one.files()
    assert "00000000000000000000.index.deleted" in one.files()
    one.wait(59_999)
    assert "00000000000000000000.log.deleted" in one.files()
    one.wait(1)
    assert not any("deleted" in name for name in one.files())
    snapshots = [name for name in one.files() if name.endswith(".snapshot")]
    assert len(snapshots) == len(one.log.segments)


def test_a_new_log_start_truncates_epochs_and_limits_reads() -> None:
    one = OneLog()
    for epoch in (0, 2, 5):
        for _ in range(3):
            one.append(b"x", epoch=epoch)
    one.commit_all()
    assert one.log.maybe_increment_log_start_offset(4)
    assert not one.log.maybe_increment_log_start_offset(4)
    assert one.log.leader_epochs.entries == [(2, 4), (5, 6)]
    assert one.log.read(4, 1, 9).first_offset == 4
    assert one.log.end_offset_for_epoch(2) == (2, 6)
    assert one.log.end_offset_for_epoch(5) == (5, 9)
    assert one.log.end_offset_for_epoch(6) == (-1, -1)
    check_invariants(one.log)


def test_a_deleted_segment_takes_its_index_of_aborted_transactions_along() -> None:
    one = OneLog()
    one.append(b"t", producer=(1, 0, 0), transactional=True)
    one.log.append_as_leader(marker(1, 0, commit=False), 0, origin=AppendOrigin.COORDINATOR)
    one.log.roll()
    one.append(b"x")
    one.commit_all()
    assert "00000000000000000000.txnindex" in one.files()
    one.log.maybe_increment_log_start_offset(2)
    assert one.log.delete_old_segments() == 1
    one.wait(60_000)
    assert not [name for name in one.files() if name.startswith("00000000000000000000.")]


def test_S09_a_log_start_at_the_end_leaves_the_active_segment() -> None:
    one = filled(**SMALL)
    active = one.log.active
    one.log.maybe_increment_log_start_offset(200)
    one.log.delete_old_segments()
    assert one.log.segments == [active] and active.size > 0


def test_S09_the_log_start_never_passes_the_high_watermark() -> None:
    one = OneLog()
    for _ in range(4):
        one.append(b"x")
    one.log.maybe_increment_high_watermark(2)
    for offset in (3, 4, 5):
        with pytest.raises(KafkaError) as caught:
            one.log.maybe_increment_log_start_offset(offset)
        assert caught.value.code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert one.log.log_start_offset == 0
    assert one.log.maybe_increment_log_start_offset(2)


def test_a_log_start_inside_an_open_transaction_is_the_last_stable_offset() -> None:
    one = OneLog()
    one.append(b"a", b"b", b"c", producer=(1, 0, 0), transactional=True)
    one.commit_all()
    assert one.log.last_stable_offset == 0
    one.log.maybe_increment_log_start_offset(2)
    assert one.log.last_stable_offset == 2
    check_invariants(one.log)


# ---- high watermark and truncation


def test_after_a_truncation_to_the_high_watermark_ended_transactions_are_stable() -> None:
    """Their markers are read again, and no later high watermark may come: found by the simulator."""
    one = OneLog()
    one.append(b"a", producer=(1, 0, 0), transactional=True)
    one.log.append_as_leader(marker(1, 0, commit=True), 0, origin=AppendOrigin.COORDINATOR)
    one.log.maybe_increment_high_watermark(2)
    one.append(b"lost")
    assert one.log.truncate_to(2)
    assert one.log.last_stable_offset == 2


def test_S07_truncation_lowers_the_high_watermark() -> None:
    one = OneLog()
    for _ in range(6):
        one.append(b"x")
    log = one.log
    assert log.update_high_watermark(6) == 6
    assert log.truncate_to(3)
    assert (log.log_end_offset, log.high_watermark) == (3, 3)
    log.truncate_fully_and_start_at(4)
    assert (log.log_start_offset, log.high_watermark, log.log_end_offset) == (4, 4, 4)
    assert log.leader_epochs.entries == []
    one = OneLog()
    for _ in range(3):
        one.append(b"x")
    assert one.log.update_high_watermark(5) == 3
    assert one.log.update_high_watermark(-1) == one.log.log_start_offset == 0


def test_the_high_watermark_never_passes_the_log_end() -> None:
    one = OneLog()
    one.append(b"x")
    assert one.log.maybe_increment_high_watermark(1)
    assert not one.log.maybe_increment_high_watermark(0)
    assert one.log.high_watermark == 1
    with pytest.raises(AssertionError):
        one.log.maybe_increment_high_watermark(2)


@pytest.mark.parametrize("config", [{}, SMALL])
def test_appends_continue_after_a_truncation(config: dict[str, object]) -> None:
    one = filled(**config)
    before = one.values()
    for end in (150, 148, 60, 2, 0):
        assert one.log.truncate_to(end)
        assert not one.log.truncate_to(end)
        assert one.values() == before[:end]
        check_invariants(one.log)
        found = at_once(one.log.offset_by_timestamp(NOW_MS + end - 1, end))
        assert (found.offset if found else -1) == end - 1
        info = one.append(b"new", epoch=1)
        assert info.first_offset == end
        assert one.values()[-1] == (end, b"new")
        one.log.truncate_to(end)
        one.restart()
        assert (one.log.log_end_offset, one.values()) == (end, before[:end])


def test_a_remembered_position_does_not_survive_a_truncation() -> None:
    """A reader that comes back finds the batches that are there now, not where it had stopped."""
    one = OneLog()
    for _ in range(6):
        one.append(b"old" * 20)
    assert one.read_all(max_bytes=1) and one.log.read(6, 1000, 6).records == b""
    one.log.truncate_to(1)
    for n in range(5):
        one.append(b"n" * (7 + 13 * n))
    for offset in reversed(range(6)):  # a read remembers where the next one begins
        header = parse_header(one.log.read(offset, 1, 6).records)
        assert header.base_offset == offset


def test_a_truncation_takes_the_recovery_point_along() -> None:
    one = OneLog()
    for value in (b"a", b"b", b"c"):
        one.append(value)
    one.log.flush()
    assert one.log.recovery_point == 3
    one.log.truncate_to(1)
    one.append(b"other")
    assert one.log.recovery_point == 1  # what is written now is looked at after a kill


def test_truncation_cuts_epochs_and_moves_a_log_start_that_is_above_it() -> None:
    one = OneLog()
    for epoch in (1, 1, 3, 3, 4):
        one.append(b"x", epoch=epoch)
    one.commit_all()
    one.log.maybe_increment_log_start_offset(3)
    one.log.truncate_to(2)
    log = one.log
    assert (log.log_start_offset, log.high_watermark, log.log_end_offset) == (2, 2, 2)
    assert log.leader_epochs.entries == []
    one = OneLog()
    for epoch in (1, 1, 3):
        one.append(b"x", epoch=epoch)
    one.log.truncate_to(2)
    assert one.log.leader_epochs.entries == [(1, 0)]


def test_a_log_that_restarts_empty_knows_no_producer_and_no_epoch() -> None:
    one = OneLog()
    one.append(b"a", epoch=1, producer=(7, 0, 0))
    one.log.flush()
    one.log.truncate_fully_and_start_at(0)
    assert one.log.recovery_point == 0
    one.log.truncate_fully_and_start_at(10)
    assert not one.append(b"a", epoch=1, producer=(7, 0, 0)).duplicate
    assert one.log.leader_epochs.entries == [(1, 10)]
    assert [offset for offset, _ in one.values()] == [10]


def test_a_segment_truncated_to_nothing_has_no_age() -> None:
    one = OneLog()
    one.append(b"x")
    one.log.truncate_to(0)
    assert one.log.active.first_timestamp is None and one.log.active.max_timestamp == -1


def test_truncation_inside_a_batch_removes_the_whole_batch() -> None:
    one = filled(10)
    one.log.truncate_to(7)
    assert one.log.log_end_offset == 7
    assert one.values()[-1][0] == 5
    assert one.append(b"x").first_offset == 7


def test_truncation_below_the_first_segment_restarts_the_log() -> None:
    one = filled(**SMALL)
    one.log.maybe_increment_log_start_offset(100)
    one.log.delete_old_segments()
    one.log.truncate_to(50)
    log = one.log
    assert (log.log_start_offset, log.log_end_offset, log.high_watermark) == (50, 50, 50)
    assert one.append(b"x").first_offset == 50


def test_truncation_restores_earlier_producer_state() -> None:
    one = OneLog(**SMALL)
    for n in range(40):
        one.append(b"x" * 50, producer=(7, 0, n))
    one.append(b"t", producer=(8, 0, 0), transactional=True)
    one.commit_all()
    assert one.log.last_stable_offset == 40
    one.log.truncate_to(30)
    assert one.log.last_stable_offset == 30
    with pytest.raises(KafkaError) as caught:
        one.append(b"x", producer=(7, 0, 35))
    assert caught.value.code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert one.append(b"x", producer=(7, 0, 30)).first_offset == 30
    assert one.append(b"x", producer=(7, 0, 30)).duplicate


def test_a_truncated_batch_at_a_segment_start_is_no_duplicate_on_retry() -> None:
    one = OneLog()
    one.append(b"a", producer=(7, 0, 0))
    one.log.roll()
    one.append(b"b", producer=(7, 0, 1))
    one.log.truncate_to(1)
    again = one.append(b"b", producer=(7, 0, 1))
    assert (again.first_offset, again.duplicate) == (1, False)
    assert one.log.log_end_offset == 2


def test_truncation_reopens_a_transaction_whose_producer_has_expired() -> None:
    one = OneLog()
    one.append(b"t", producer=(8, 0, 0), transactional=True)
    one.log.append_as_leader(marker(8, 0, commit=True), 0, origin=AppendOrigin.COORDINATOR)
    one.log.producer_state.remove_expired_producers(NOW_MS + (48 << 30))
    assert one.log.producer_state.producers == {} and one.log.high_watermark == 0
    one.log.truncate_to(1)
    one.append(b"x")
    one.commit_all()
    assert (one.log.high_watermark, one.log.last_stable_offset) == (2, 0)


def test_truncation_reopens_a_transaction_and_forgets_its_abort() -> None:
    one = OneLog()
    one.append(b"t", producer=(8, 0, 0), transactional=True)
    one.log.append_as_leader(marker(8, 0, commit=False), 0, origin=AppendOrigin.COORDINATOR)
    one.commit_all()
    assert one.log.last_stable_offset == 2
    one.log.truncate_to(1)
    assert one.log.aborted_transactions(0, 2) == []
    assert one.log.last_stable_offset == 0


def test_an_epoch_without_records_is_truncated_even_if_no_record_is() -> None:
    one = OneLog()
    one.append(b"x", epoch=19)
    one.log.leader_epochs.assign(20, 1)
    assert not one.log.truncate_to(5)
    assert one.log.leader_epochs.entries == [(19, 0)]
    one.append(b"y", epoch=20)
    assert one.log.leader_epochs.entries == [(19, 0), (20, 1)]
