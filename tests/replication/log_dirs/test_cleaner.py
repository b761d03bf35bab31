"""Compaction of logs in memory: what stays, what goes, when, and what a crash leaves."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from types import SimpleNamespace

import pytest
from event_recorder import Recorder
from hypothesis import given, settings
from hypothesis import strategies as st
from log_harness import clean_to_end

from kwire.protocol.record_builder import build_batch, end_transaction_marker
from kwire.protocol.records import (
    CONTROL_ABORT,
    CONTROL_COMMIT,
    BatchHeader,
    Record,
    iter_batches,
    iter_records,
)
from kwire.replication.core.clock import Clock, Timers
from kwire.replication.core.events import Event
from kwire.replication.core.log_config import LogConfig
from kwire.replication.core.memory_log_store import MemoryLogStore
from kwire.replication.core.work import WorkQueue, at_once
from kwire.replication.log.loader import LogContext, create_log, load_log
from kwire.replication.log.log import Log
from kwire.replication.log.types import AppendOrigin
from kwire.replication.log_dirs.cleanable import find_cleanable
from kwire.replication.log_dirs.cleaner import LogCleaner
from kwire.replication.log_dirs.cleaning import STEP_BYTES, OffsetMap, clean

DAY_MS = 24 * 3600 * 1000
T0 = 1_700_000_000_000
COMPACT = LogConfig(
    cleanup_policy=frozenset({"compact"}), delete_retention_ms=DAY_MS, segment_bytes=1 << 20
)


class Logs:
    """What the cleaner needs of a LogManager, around one store."""

    def __init__(self) -> None:
        self.clock = Clock(wall_ms=T0)
        self.timers = Timers()
        self.store = MemoryLogStore(lambda: self.clock.wall_ms)
        self.log_event = Recorder()
        self._logs: dict[tuple[str, int], Log] = {}
        self.moving: set[tuple[str, int]] = set()
        self.removed: set[tuple[str, int]] = set()
        self.cleaner = LogCleaner()
        self.work: WorkQueue | None = None

    @property
    def _context(self) -> LogContext:
        return LogContext(self.store, self.clock, self.timers)

    def create(self, topic: str = "t", config: LogConfig = COMPACT) -> Log:
        log = create_log(self._context, topic, 0, b"i" * 16, config)
        self._logs[topic, 0] = log
        return log

    def reload(self, log: Log) -> Log:
        self.store.end_flushes()  # of the topic id: compaction begins long after that
        self.store.crash()
        loaded = load_log(self._context, log.directory, log.topic, 0, log.config, clean=False)
        loaded.update_high_watermark(loaded.log_end_offset)
        self._logs[log.topic, 0] = loaded
        return loaded

    def logs(self) -> Iterator[Log]:
        return iter(self._logs.values())

    def get(self, topic: str, partition: int) -> Log | None:
        return self._logs.get((topic, partition))

    def future(self, topic: str, partition: int) -> Log | None:
        return self._logs[topic, partition] if (topic, partition) in self.moving else None

    def online(self) -> list[SimpleNamespace]:
        return [SimpleNamespace(path="", store=self.store, logs=self._logs)]

    def clean(self) -> None:
        clean_to_end(self.cleaner, self)


@pytest.fixture
def logs() -> Logs:
    return Logs()


Pair = tuple[str | None, str | None]


def append(
    log: Log, *pairs: Pair, codec: str = "none", timestamp: int = T0, **producer: int
) -> None:
    records = [
        Record(-1, timestamp, k.encode() if k else None, v.encode() if v is not None else None)
        for k, v in pairs
    ]
    options: dict[str, int] = dict(producer)
    transactional = bool(options.pop("transactional", 0))
    batch = build_batch(records, compression=codec, is_transactional=transactional, **options)
    origin = AppendOrigin.COORDINATOR if any(k is None for k, _ in pairs) else AppendOrigin.CLIENT
    log.append_as_leader(batch, 3, origin=origin)


def end_transaction(log: Log, kind: int, producer: int) -> None:
    marker = end_transaction_marker(
        kind, producer_id=producer, producer_epoch=0, coordinator_epoch=1, timestamp=T0
    )
    log.append_as_leader(marker, 3, origin=AppendOrigin.COORDINATOR)


def roll(log: Log) -> None:
    """Everything so far may be cleaned."""
    log.update_high_watermark(log.log_end_offset)
    log.roll()


def batches(log: Log) -> list[tuple[BatchHeader, list[Record]]]:
    found = []
    for segment in log.segments:
        data = segment.file.read(0, segment.size)
        found += [(header, list(iter_records(data, header))) for header in iter_batches(data)]
    return found


def content(log: Log) -> list[tuple[int, str, str | None]]:
    return [
        (r.offset, (r.key or b"").decode(), None if r.value is None else r.value.decode())
        for header, records in batches(log)
        if not header.is_control
        for r in records
    ]


# ---- which records stay


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_the_latest_record_of_each_key_stays_at_its_offset(logs: Logs, codec: str) -> None:
    log = logs.create()
    append(log, ("a", "1"), ("b", "1"), ("a", "2"), codec=codec)
    append(log, ("c", "1"), ("a", "3"), codec=codec)
    roll(log)
    logs.clean()
    assert content(log) == [(1, "b", "1"), (3, "c", "1"), (4, "a", "3")]
    assert [h.compression for h, _ in batches(log)] == [codec, codec]
    assert (log.log_start_offset, log.log_end_offset) == (0, 5)


def test_a_batch_that_loses_records_keeps_offsets_epoch_and_headers(logs: Logs) -> None:
    log = logs.create()
    batch = build_batch(
        [
            Record(-1, T0, b"a", b"1"),
            Record(-1, T0 + 1, b"b", b"1", [("h", b"x")]),
            Record(-1, T0 + 2, b"a", b"2"),
        ]
    )
    log.append_as_leader(batch, 3)
    append(log, ("a", "3"))
    roll(log)
    logs.clean()
    (header, (record,)), _ = batches(log)
    assert (header.base_offset, header.last_offset, header.count) == (0, 2, 1)
    assert (header.partition_leader_epoch, header.max_timestamp) == (3, T0 + 1)
    assert record == Record(1, T0 + 1, b"b", b"1", [("h", b"x")])


def test_a_batch_that_loses_no_record_is_copied_unchanged(logs: Logs) -> None:
    log = logs.create()
    append(log, ("a", "1"), ("b", "1"), codec="gzip")
    before = log.read(0, 1 << 20, 2).records
    append(log, ("c", "1"))
    roll(log)
    logs.clean()
    assert bytes(log.read(0, len(before), 2).records) == before


def test_a_record_without_key_is_removed(logs: Logs) -> None:
    log = logs.create()
    append(log, (None, "1"), ("a", "1"))
    roll(log)
    logs.clean()
    assert content(log) == [(1, "a", "1")]


def test_the_active_segment_is_not_touched(logs: Logs) -> None:
    log = logs.create()
    append(log, ("a", "1"))
    roll(log)
    append(log, ("a", "2"), ("a", "3"))
    log.update_high_watermark(3)
    logs.clean()
    assert content(log) == [(0, "a", "1"), (1, "a", "2"), (2, "a", "3")]


def test_unreplicated_records_are_not_cleaned(logs: Logs) -> None:
    log = logs.create()
    append(log, ("a", "1"))
    append(log, ("a", "2"))
    log.roll()
    append(log, ("a", "3"))
    log.roll()
    log.update_high_watermark(2)
    logs.clean()
    assert content(log) == [(1, "a", "2"), (2, "a", "3")]


def test_a_segment_that_is_replicated_in_part_is_not_cleaned(logs: Logs) -> None:
    log = logs.create()
    append(log, ("a", "1"))
    append(log, ("a", "2"))
    log.roll()
    append(log, ("b", "1"))
    log.update_high_watermark(1)
    logs.clean()
    assert content(log) == [(0, "a", "1"), (1, "a", "2"), (2, "b", "1")]


def test_records_younger_than_the_lag_stay(logs: Logs) -> None:
    log = logs.create(config=COMPACT.but(min_compaction_lag_ms=1000))
    append(log, ("a", "1"), ("a", "2"), timestamp=T0 - 2000)
    roll(log)
    append(log, ("a", "3"), ("a", "4"), timestamp=T0 - 500)
    roll(log)
    logs.clean()
    assert content(log) == [(1, "a", "2"), (2, "a", "3"), (3, "a", "4")]


# ---- when


def test_a_log_is_cleaned_when_enough_of_it_is_dirty(logs: Logs) -> None:
    log = logs.create()
    append(log, *[(f"k{i}", "x" * 100) for i in range(20)])
    roll(log)
    logs.clean()
    assert logs.cleaner.first_dirty_offset(logs, log) == 20  # type: ignore[arg-type]
    append(log, ("k0", "new"))
    roll(log)
    work = find_cleanable(log, 20, T0)
    assert 0 < work.ratio < 0.5
    assert not work.is_due
    logs.clean()
    assert len(content(log)) == 21
    log.config = COMPACT.but(min_cleanable_dirty_ratio=0.01)
    logs.clean()
    assert len(content(log)) == 20


def test_a_log_is_cleaned_when_its_dirty_records_are_too_old(logs: Logs) -> None:
    log = logs.create(config=COMPACT.but(min_cleanable_dirty_ratio=1.0, max_compaction_lag_ms=1000))
    append(log, ("a", "1"), ("a", "2"), timestamp=T0)
    roll(log)
    logs.clean()
    assert len(content(log)) == 2
    logs.clock.wall_ms = T0 + 1001
    logs.clean()
    assert content(log) == [(1, "a", "2")]


def test_the_dirtiest_log_comes_first_and_others_follow(logs: Logs) -> None:
    clean, dirty = logs.create("clean"), logs.create("dirty")
    for log in (clean, dirty):
        append(log, ("a", "x" * 500))
        roll(log)
        logs.clean()
    append(clean, ("a", "y" * 1000))
    append(dirty, ("a", "y" * 5000))
    for log in (clean, dirty):
        roll(log)
    at_once(logs.cleaner.clean_logs(logs))  # type: ignore[arg-type]
    assert logs.cleaner._cleaning is not None
    assert logs.cleaner._cleaning.log is dirty
    logs.clean()
    assert (len(content(clean)), len(content(dirty))) == (1, 1)


def test_a_log_that_is_not_compacted_is_left_alone(logs: Logs) -> None:
    log = logs.create(config=LogConfig())
    append(log, ("a", "1"), ("a", "2"))
    roll(log)
    logs.clean()
    assert len(content(log)) == 2
    assert not logs.store.exists("cleaner-offset-checkpoint")


def test_the_cleaner_checkpoint_is_written_to_disk(logs: Logs) -> None:
    log = logs.create()
    append(log, ("a", "1"))
    roll(log)
    logs.clean()
    assert logs.store.read_file("cleaner-offset-checkpoint") == b"0\n1\nt 0 1\n"
    logs.cleaner = LogCleaner()
    assert logs.cleaner.first_dirty_offset(logs, log) == 1  # type: ignore[arg-type]
    logs.cleaner.log_truncated(logs, log, 0)  # type: ignore[arg-type]
    assert logs.store.read_file("cleaner-offset-checkpoint") == b"0\n1\nt 0 0\n"


@pytest.mark.parametrize("checkpoint", [-1, 0, 2, 6])
def test_a_checkpoint_outside_the_log_makes_all_of_it_dirty(logs: Logs, checkpoint: int) -> None:
    log = logs.create()
    append(log, *[("a", str(i)) for i in range(5)])
    roll(log)
    log.maybe_increment_log_start_offset(1)
    assert find_cleanable(log, checkpoint, T0).first_dirty_offset == (2 if checkpoint == 2 else 1)


# ---- tombstones


def test_a_tombstone_is_removed_after_delete_retention(logs: Logs) -> None:
    log = logs.create()
    append(log, ("a", "1"), ("b", "1"))
    append(log, ("a", None), ("c", "1"))
    roll(log)
    logs.clean()
    assert content(log) == [(1, "b", "1"), (2, "a", None), (3, "c", "1")]
    horizons = [header.delete_horizon_ms for header, _ in batches(log)]
    assert horizons == [None, T0 + DAY_MS]
    assert {r.timestamp for _, records in batches(log) for r in records} == {T0}

    def clean_again(at_ms: int) -> None:
        logs.clock.wall_ms = at_ms
        log.config = COMPACT.but(min_cleanable_dirty_ratio=0.0)
        append(log, ("d", str(at_ms)))
        roll(log)
        logs.clean()

    clean_again(T0 + DAY_MS - 1)
    assert (2, "a", None) in content(log)
    assert batches(log)[1][0].delete_horizon_ms == T0 + DAY_MS
    clean_again(T0 + DAY_MS)
    assert [entry[:2] for entry in content(log)] == [(1, "b"), (3, "c"), (5, "d")]


# ---- producers and transactions


def test_the_last_batch_of_a_live_producer_stays_even_empty(logs: Logs) -> None:
    log = logs.create(config=COMPACT.but(min_cleanable_dirty_ratio=0.0))
    append(log, ("a", "1"), producer_id=7, producer_epoch=0, base_sequence=0)
    append(log, ("a", "2"), producer_id=7, producer_epoch=0, base_sequence=1)
    append(log, ("a", "3"))
    roll(log)
    logs.clean()
    kept = [(h.base_offset, h.count, h.producer_id, h.base_sequence) for h, _ in batches(log)]
    assert kept == [(1, 0, 7, 1), (2, 1, -1, -1)]
    again = logs.reload(log)
    assert again.producer_state.producers[7].last_sequence == 1
    append(again, ("a", "4"), producer_id=7, producer_epoch=0, base_sequence=2)
    again.producer_state.producers.clear()
    roll(again)
    logs.clean()
    assert [h.base_offset for h, _ in batches(again)] == [3]


def test_records_of_an_aborted_transaction_are_removed_and_its_marker_later(logs: Logs) -> None:
    log = logs.create(config=COMPACT.but(min_cleanable_dirty_ratio=0.0))
    append(log, ("a", "kept"), ("b", "kept"))
    append(log, ("a", "no"), producer_id=7, producer_epoch=0, base_sequence=0, transactional=1)
    end_transaction(log, CONTROL_ABORT, 7)
    log.producer_state.producers.clear()
    roll(log)
    logs.clean()
    assert content(log) == [(0, "a", "kept"), (1, "b", "kept")]
    assert [(h.base_offset, h.delete_horizon_ms) for h, _ in batches(log) if h.is_control] == [
        (3, None)
    ]
    assert [txn.first_offset for txn in log.aborted_transactions(0, 4)] == [2]

    def clean_again(at_ms: int) -> list[int | None]:
        logs.clock.wall_ms = at_ms
        append(log, ("c", str(at_ms)))
        roll(log)
        logs.clean()
        return [h.delete_horizon_ms for h, _ in batches(log) if h.is_control]

    assert clean_again(T0 + 1) == [T0 + 1 + DAY_MS]  # no data left: the horizon begins
    assert log.aborted_transactions(0, 4) == []
    assert clean_again(T0 + DAY_MS) == [T0 + 1 + DAY_MS]
    assert clean_again(T0 + 1 + DAY_MS) == []


def test_a_commit_marker_stays_as_long_as_data_of_its_transaction(logs: Logs) -> None:
    log = logs.create(config=COMPACT.but(min_cleanable_dirty_ratio=0.0))
    append(log, ("a", "1"), producer_id=7, producer_epoch=0, base_sequence=0, transactional=1)
    end_transaction(log, CONTROL_COMMIT, 7)
    log.producer_state.producers.clear()
    roll(log)

    def markers(at_ms: int, key: str) -> list[int | None]:
        logs.clock.wall_ms = at_ms
        append(log, (key, str(at_ms)))
        roll(log)
        logs.clean()
        return [h.delete_horizon_ms for h, _ in batches(log) if h.is_control]

    assert markers(T0, "b") == [None]
    assert (0, "a", "1") in content(log)
    assert markers(T0 + 1, "a") == [None]  # its record goes in this cleaning
    assert markers(T0 + 2, "b") == [T0 + 2 + DAY_MS]
    assert markers(T0 + 2 + DAY_MS, "b") == []


def test_the_marker_of_a_live_producer_stays(logs: Logs) -> None:
    log = logs.create(config=COMPACT.but(min_cleanable_dirty_ratio=0.0))
    end_transaction(log, CONTROL_ABORT, 7)
    roll(log)
    for step in range(3):
        logs.clock.wall_ms = T0 + step * 2 * DAY_MS
        append(log, ("a", str(step)))
        roll(log)
        logs.clean()
    header = batches(log)[0][0]
    assert (header.is_control, header.producer_id, header.base_offset) == (True, 7, 0)


def test_an_open_transaction_stops_the_cleaning(logs: Logs) -> None:
    log = logs.create()
    append(log, ("a", "1"), ("a", "2"))
    roll(log)
    append(log, ("a", "3"), producer_id=7, producer_epoch=0, base_sequence=0, transactional=1)
    append(log, ("a", "4"))
    roll(log)
    logs.clean()
    assert [entry[0] for entry in content(log)] == [1, 2, 3]


# ---- segments


def test_small_segments_are_joined_and_their_snapshots_deleted(logs: Logs) -> None:
    log = logs.create()
    for i in range(6):
        append(log, (f"k{i}", "v"), producer_id=7, producer_epoch=0, base_sequence=i)
        roll(log)
    logs.clean()
    assert [segment.base_offset for segment in log.segments] == [0, 6]
    snapshots = [n for n in logs.store.list_dir("t-0") if n.endswith(".snapshot")]
    assert [int(name[:20]) for name in snapshots] == [6]
    assert content(log) == [(i, f"k{i}", "v") for i in range(6)]
    assert [log.read(i, 1, 6).first_offset for i in range(6)] == list(range(6))


def test_segments_are_not_joined_beyond_their_size(logs: Logs) -> None:
    log = logs.create(config=COMPACT.but(segment_bytes=1000))
    for i in range(6):
        append(log, (f"k{i}", "v" * 300))
    roll(log)
    logs.clean()
    assert all(segment.size <= 1000 for segment in log.segments)
    assert len(content(log)) == 6


def test_indexes_of_a_cleaned_segment_find_its_batches(logs: Logs) -> None:
    log = logs.create(config=COMPACT.but(index_interval_bytes=100))
    for i in range(60):
        append(log, (f"k{i % 20}", str(i)), timestamp=T0 + i)
    roll(log)
    logs.clean()
    assert [offset for offset, _, _ in content(log)] == list(range(40, 60))
    assert log.segments[0].offset_index.count > 5
    for offset in range(60):
        assert log.read(offset, 1, 60).first_offset == max(offset, 40)
        found = at_once(log.offset_by_timestamp(T0 + offset, 60))
        assert found is not None
        assert found.offset == max(offset, 40)


def test_a_full_offset_map_cleans_up_to_its_last_key(logs: Logs) -> None:
    log = logs.create(config=COMPACT.but(min_cleanable_dirty_ratio=0.0))
    logs.cleaner = LogCleaner(dedupe_buffer_bytes=3 * 150)
    for i in range(12):
        append(log, (f"k{i % 6}", str(i)))
    roll(log)
    logs.clean()
    assert [entry[2] for entry in content(log)] == [str(i) for i in range(6, 12)]
    assert logs.cleaner.first_dirty_offset(logs, log) == 12  # type: ignore[arg-type]


def test_records_beyond_a_full_offset_map_stay_as_they_are(logs: Logs) -> None:
    # given a batch in whose middle the map is full
    log = logs.create()
    append(log, ("a", "1"))
    append(log, ("a", "2"), ("a", "3"), ("b", "1"), ("c", "1"))
    roll(log)
    work = find_cleanable(log, None, T0)
    # when one cleaning has room for two keys
    cleaning = clean(work, T0, entries_max=2)
    while True:
        try:
            next(cleaning)
        except StopIteration as done:
            end = done.value
            break
    # then what the next one will map again is still there, also an older record of a mapped key
    assert end == 1
    assert content(log)[-4:] == [(1, "a", "2"), (2, "a", "3"), (3, "b", "1"), (4, "c", "1")]


def test_long_keys_take_no_more_room_than_their_hash() -> None:
    offset_map = OffsetMap(10)
    offset_map.put(b"x" * 100_000, 5)
    offset_map.put(b"x" * 32, 6)
    assert offset_map.get(b"x" * 100_000) == 5
    assert offset_map.get(b"x" * 32) == 6
    assert offset_map.get(b"x" * 100_001) == -1
    assert max(map(len, offset_map._offsets)) == 33


def test_a_batch_larger_than_a_read_is_cleaned_too(logs: Logs) -> None:
    log = logs.create(config=COMPACT.but(max_message_bytes=1 << 20))
    append(log, ("a", "x" * 700_000), ("b", "1"))
    append(log, ("a", "2"))
    roll(log)
    logs.clean()
    assert content(log) == [(1, "b", "1"), (2, "a", "2")]


# ---- beside other work, and after accidents


def filled(logs: Logs) -> Log:
    log = logs.create()
    for i in range(40):
        append(log, (f"k{i % 3}", "x" * (STEP_BYTES // 10) + str(i)))
        if i % 10 == 9:
            roll(log)
    return log


def test_a_batch_of_many_records_is_cleaned_in_steps(logs: Logs) -> None:
    """Keys are mapped, records counted, and those that stay written: each in steps."""
    log = logs.create()
    append(log, *((f"k{i % 5000}", None if i == 9999 else "v") for i in range(10_000)))
    roll(log)
    work = find_cleanable(log, None, logs.clock.wall_ms)
    steps = sum(1 for _ in clean(work, logs.clock.wall_ms, 1 << 20))
    a_reading = 10_000 * 100 // STEP_BYTES
    assert steps >= (1 + 1 + 2) * a_reading
    assert [offset for offset, _, _ in content(log)] == list(range(5000, 10_000))
    ((header, _),) = [each for each in batches(log) if each[0].count]
    assert (header.last_offset, header.partition_leader_epoch) == (9999, 3)


def test_a_batch_that_loses_records_has_the_largest_timestamp_of_the_others(logs: Logs) -> None:
    log = logs.create()
    times = [T0 + 9, T0 + 7, *[T0 + 1] * 400]
    records = [Record(-1, t, f"k{i}".encode(), b"v") for i, t in enumerate(times)]
    log.append_as_leader(build_batch(records), 3)
    append(log, ("k0", "2"))
    roll(log)
    logs.clean()
    first, second = (header for header, _ in batches(log))
    assert (first.max_timestamp, first.base_timestamp, first.count) == (T0 + 7, T0 + 7, 401)
    assert second.max_timestamp == T0


def test_a_large_batch_is_decompressed_and_compressed_on_a_thread(logs: Logs) -> None:
    log = logs.create()
    large = "x" * (6 << 20)
    append(log, ("a", "1"), ("b", large), ("a", "2"), codec="zstd")
    roll(log)
    away: list[Callable[[], None]] = []

    def elsewhere(task: Callable[[], None], ended: Callable[[], None]) -> None:
        task()
        away.append(ended)

    logs.work = WorkQueue(logs.clock)
    logs.work.elsewhere = elsewhere
    at_once(logs.cleaner.clean_logs(logs))  # type: ignore[arg-type]
    sent = 0
    while logs.cleaner._work is not None:
        step(logs)
        if away:
            assert logs.timers.next_deadline_ms() is None  # the next step is when that has ended
            sent += len(away)
            away.pop()()
    assert sent == 4  # decompressed for the map, to count, and to write; compressed
    assert content(log) == [(1, "b", large), (2, "a", "2")]


@pytest.mark.parametrize("when", ["before", "while keys are noted", "while it is copied"])
def test_a_log_that_moves_to_another_directory_is_not_cleaned(logs: Logs, when: str) -> None:
    log = filled(logs)
    if when != "before":
        at_once(logs.cleaner.clean_logs(logs))  # type: ignore[arg-type]
        step(logs)
    while when == "while it is copied" and not any(
        ".cleaned" in name for name in logs.store.list_dir("t-0")
    ):
        step(logs)
    # when the move begins
    logs.moving.add(("t", 0))
    logs.clean()
    assert logs.cleaner._work is None and len(content(log)) == 40 and logs.log_event.events == []
    assert logs.cleaner.first_dirty_offset(logs, log) is None  # type: ignore[arg-type]
    assert not any(".cleaned" in name for name in logs.store.list_dir("t-0"))
    # then it is cleaned when the move has ended
    logs.moving.clear()
    logs.clean()
    assert len(content(log)) == 3


def test_a_log_that_moves_does_not_hold_up_the_others(logs: Logs) -> None:
    moving, other = logs.create("moving"), logs.create("other")
    for log, values in ((moving, 20), (other, 2)):
        append(log, *[("a", str(i)) for i in range(values)])
        roll(log)
    append(other, ("b", "1"))
    roll(other)
    logs.moving.add(("moving", 0))
    logs.clean()
    assert (len(content(moving)), len(content(other))) == (20, 2)


def test_retention_of_compacted_logs_runs_in_the_same_round(logs: Logs) -> None:
    both = COMPACT.but(cleanup_policy=frozenset({"compact", "delete"}), retention_ms=DAY_MS)
    log, deleted_by_age = logs.create("kept"), logs.create("aged", both)
    plain = logs.create("plain", LogConfig(retention_ms=DAY_MS))
    for each in (log, deleted_by_age, plain):
        for i in range(3):
            append(each, (f"k{i}", "v"), timestamp=T0 - 2 * DAY_MS if i < 2 else T0)
            roll(each)
    logs.clean()
    assert [each.log_start_offset for each in (log, deleted_by_age, plain)] == [0, 2, 0]


def test_a_log_in_work_keeps_its_old_segments_until_it_is_cleaned(logs: Logs) -> None:
    log = filled(logs)
    both = frozenset({"compact", "delete"})
    at_once(logs.cleaner.clean_logs(logs))  # type: ignore[arg-type]
    log.config = COMPACT.but(cleanup_policy=both, retention_ms=0)
    logs.clock.wall_ms += 1
    at_once(logs.cleaner.clean_logs(logs))  # type: ignore[arg-type]
    assert log.log_start_offset == 0
    while logs.cleaner._work is not None:
        step(logs)
    at_once(logs.cleaner.clean_logs(logs))  # type: ignore[arg-type]
    assert log.log_start_offset == 40


def test_a_cleaning_yields_after_every_piece(logs: Logs) -> None:
    log = filled(logs)
    at_once(logs.cleaner.clean_logs(logs))  # type: ignore[arg-type]
    steps = 0
    while (deadline := logs.timers.next_deadline_ms()) is not None and len(content(log)) > 3:
        logs.clock.now_ms = deadline
        logs.timers.fire(deadline)
        steps += 1
        assert steps < 100
    assert steps >= 8
    assert [entry[0] for entry in content(log)] == [37, 38, 39]


def step(logs: Logs) -> None:
    logs.clock.now_ms += 1
    logs.timers.fire(logs.clock.now_ms)


@pytest.mark.parametrize("steps", range(12))
@pytest.mark.parametrize("accident", ["truncate", "close", "policy", "restart", "delete"])
def test_a_log_that_changes_during_cleaning_is_left_alone(
    logs: Logs, accident: str, steps: int
) -> None:
    log = filled(logs)
    at_once(logs.cleaner.clean_logs(logs))  # type: ignore[arg-type]
    for _ in range(steps):
        step(logs)
    cleaned_already = len(content(log)) < 40
    if accident == "truncate":
        log.truncate_to(25)
    elif accident == "close":
        log.close()
    elif accident == "policy":
        log.config = LogConfig()
    elif accident == "delete":
        log.abandon()
        logs.store.rename("t-0", "t-0.x-delete")
        logs.store.delete_dir("t-0.x-delete")
    else:
        log.truncate_fully_and_start_at(100)
    before = content(log) if accident != "delete" else []
    for _ in range(30):
        step(logs)
    assert logs.log_event.events == []
    if not cleaned_already and accident != "delete":
        assert content(log) == before
        assert not any(".cleaned" in name for name in logs.store.list_dir("t-0"))


def test_a_log_truncated_beyond_the_copied_segments_is_left_alone(logs: Logs) -> None:
    # given a cleaning of several groups of segments that copies the first
    log = filled(logs)
    log.config = LogConfig(cleanup_policy=frozenset({"compact"}), segment_bytes=STEP_BYTES)
    at_once(logs.cleaner.clean_logs(logs))  # type: ignore[arg-type]
    while not any(".cleaned" in name for name in logs.store.list_dir("t-0")):
        step(logs)
    # when those of a later group go
    log.truncate_to(20)
    before = content(log)
    for _ in range(30):
        step(logs)
    # then it is dropped: what the map says is newer may be what was cut
    assert content(log) == before
    assert logs.log_event.events == []


@pytest.mark.parametrize("position", [70, -2], ids=["a length", "a byte of a value"])
def test_a_damaged_batch_stops_the_cleaning_of_that_log_only(logs: Logs, position: int) -> None:
    damaged, other = logs.create("damaged"), logs.create("other")
    for log in (damaged, other):
        append(log, ("a", "1"), ("a", "2"))
        roll(log)
    damaged.segments[0].file.data[position] ^= 0x7F
    before = damaged.segments[0].file.read(0, 1000)
    logs.clean()
    assert content(other) == [(1, "a", "2")]
    assert damaged.segments[0].file.read(0, 1000) == before
    (failure,) = logs.log_event.logged
    assert failure.event is Event.CLEANING_FAILED and failure.fields["topic"] == "damaged"
    assert "damaged-0" in failure.text


@pytest.mark.parametrize("operation", ["append", "flush", "write_file"])
def test_a_disk_error_leaves_the_log_intact(logs: Logs, operation: str) -> None:
    log = logs.create()
    append(log, ("a", "1"), ("a", "2"))
    roll(log)
    logs.store.fail_next(operation, OSError(28, "no space left"))
    logs.clean()
    (failure,) = logs.log_event.logged
    assert "no space left" in str(failure.fields["detail"])
    assert content(log)[-1] == (1, "a", "2")
    assert [entry[0] for entry in content(logs.reload(log))][-1] == 1


class PowerCut(Exception):
    pass


@pytest.mark.parametrize("survived", range(16))
def test_a_crash_at_any_rename_loses_no_latest_record(logs: Logs, survived: int) -> None:
    log = logs.create()
    for i in range(9):
        append(log, (f"k{i % 4}", str(i)))
        if i % 3 == 2:
            roll(log)
    store, renames = logs.store, count()
    rename = store.rename

    def failing_rename(old: str, new: str) -> None:
        if next(renames) == survived:
            raise PowerCut
        rename(old, new)

    store.rename = failing_rename  # type: ignore[method-assign]
    try:
        logs.clean()
        crashed = False
    except PowerCut:
        crashed = True
    store.rename = rename  # type: ignore[method-assign]
    assert crashed or survived >= next(renames) - 1
    again = logs.reload(log)
    entries = content(again)
    assert [entry[0] for entry in entries] == sorted({entry[0] for entry in entries})
    assert {key: value for _, key, value in entries} == {"k0": "8", "k1": "5", "k2": "6", "k3": "7"}
    assert again.log_end_offset == 9
    leftovers = (".cleaned", ".swap", ".deleted")
    assert not any(name.endswith(leftovers) for name in store.list_dir("t-0"))


keys = st.sampled_from(["a", "b", "c", "d"])
values = st.one_of(st.none(), st.sampled_from(["1", "2"]))
appends = st.lists(st.lists(st.tuples(keys, values), min_size=1, max_size=4), max_size=12)


@settings(max_examples=60, deadline=None)
@given(appends, st.sampled_from(["none", "lz4"]), st.sets(st.integers(0, 11)), st.integers(1, 40))
def test_compaction_never_changes_what_a_reader_of_the_table_sees(
    drawn: list[list[Pair]], codec: str, rolls: set[int], map_entries: int
) -> None:
    logs = Logs()
    logs.cleaner = LogCleaner(dedupe_buffer_bytes=map_entries * 150)
    log = logs.create(config=COMPACT.but(min_cleanable_dirty_ratio=0.0))
    table: dict[str, str | None] = {}
    for number, pairs in enumerate(drawn):
        append(log, *pairs, codec=codec)
        table.update((k, v) for k, v in pairs if k is not None)
        if number in rolls:
            roll(log)
            logs.clean()
            assert {key: value for _, key, value in content(log)} == table
    roll(log)
    logs.clean()
    entries = content(log)
    assert {key: value for _, key, value in entries} == table
    assert [entry[0] for entry in entries] == sorted(entry[0] for entry in entries)
    if map_entries > 4:
        assert len(entries) == len(table)
