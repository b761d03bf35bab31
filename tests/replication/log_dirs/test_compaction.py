"""Compaction on request, and active segments that the cleaner rolls by itself."""

from __future__ import annotations

import pytest
from test_cleaner import COMPACT, T0, Logs, append, batches, content, logs, roll

from kwire.replication.core.events import Event
from kwire.replication.core.types import TopicPartition
from kwire.replication.core.work import at_once
from kwire.replication.log.log import Log
from kwire.replication.log_dirs.cleaner import LogCleaner

__all__ = ["logs"]  # a fixture


def request(logs: Logs, log: Log) -> None:
    logs.cleaner.request(logs, log)  # type: ignore[arg-type]  # a stand-in


def advance(logs: Logs, ms: int = 20) -> None:
    """Let `ms` milliseconds pass, each with its timers."""
    for _ in range(ms):
        logs.clock.now_ms += 1
        logs.timers.fire(logs.clock.now_ms)


def is_done(logs: Logs) -> bool:
    requests = logs.cleaner.requests
    return requests.is_empty and not (
        requests.cleaning("t") or requests.waiting("t") or requests.failed("t")
    )


def commit(log: Log) -> None:
    log.update_high_watermark(log.log_end_offset)


def test_the_active_segment_is_rolled_and_cleaned(logs: Logs) -> None:
    log = logs.create()
    append(log, ("a", "1"), ("b", "1"), ("a", "2"))
    commit(log)
    request(logs, log)
    assert logs.cleaner.requests.cleaning("t") == [0]
    advance(logs)
    assert is_done(logs) and content(log) == [(1, "b", "1"), (2, "a", "2")]
    assert logs.store.read_file("cleaner-offset-checkpoint") == b"0\n1\nt 0 3\n"


def test_an_empty_log_is_done_at_once(logs: Logs) -> None:
    log = logs.create()
    request(logs, log)
    advance(logs)
    assert is_done(logs) and len(log.segments) == 1


def test_what_is_clean_is_cleaned_once_more_for_its_tombstones(logs: Logs) -> None:
    log = logs.create(config=COMPACT.but(delete_retention_ms=10))
    append(log, ("a", "1"), ("a", None))
    commit(log)
    request(logs, log)
    advance(logs)
    assert content(log) == [(1, "a", None)]
    logs.clock.wall_ms += 10
    request(logs, log)
    advance(logs)
    assert is_done(logs) and content(log) == []
    assert (log.log_start_offset, log.log_end_offset) == (0, 2)


def test_the_last_batch_stays_for_those_who_read_up_to_the_end(logs: Logs) -> None:
    log = logs.create(config=COMPACT.but(delete_retention_ms=0))
    append(log, ("a", "1"))
    append(log, ("a", None))
    commit(log)
    for _ in range(2):
        request(logs, log)
        advance(logs)
    ((header, records),) = batches(log)
    assert (header.base_offset, header.last_offset, records) == (1, 1, [])
    assert log.read(0, 1 << 20, 2).records
    append(log, ("b", "1"))
    commit(log)
    request(logs, log)
    advance(logs)
    assert [header.last_offset for header, _ in batches(log)] == [2]


def test_it_waits_for_the_high_watermark(logs: Logs) -> None:
    log = logs.create()
    append(log, ("a", "1"))
    commit(log)
    append(log, ("a", "2"))
    request(logs, log)
    advance(logs)
    waiting = logs.cleaner.requests.waiting("t")
    assert waiting == {0: "the last stable offset is 1 of 2"}
    append(log, ("a", "3"))  # after the request: not what it waits for
    assert len(content(log)) == 3
    log.update_high_watermark(2)
    assert logs.cleaner.requests.cleaning("t") == [0]
    advance(logs)
    assert is_done(logs) and content(log) == [(1, "a", "2"), (2, "a", "3")]


def test_it_waits_for_an_open_transaction(logs: Logs) -> None:
    log = logs.create()
    append(log, ("a", "1"), transactional=1, producer_id=7, producer_epoch=0, base_sequence=0)
    commit(log)
    request(logs, log)
    advance(logs)
    assert logs.cleaner.requests.waiting("t") == {0: "the last stable offset is 0 of 1"}


def test_a_truncated_log_does_not_wait_for_what_it_has_lost(logs: Logs) -> None:
    log = logs.create()
    append(log, ("a", "1"), ("a", "2"))
    append(log, ("a", "3"))
    log.update_high_watermark(2)
    request(logs, log)
    log.truncate_to(2)
    advance(logs)
    assert is_done(logs)


def test_records_younger_than_the_lag_stay(logs: Logs) -> None:
    log = logs.create(config=COMPACT.but(min_compaction_lag_ms=1000))
    append(log, ("a", "1"), ("a", "2"), timestamp=T0 - 2000)
    roll(log)
    append(log, ("a", "3"), ("a", "4"), timestamp=T0 - 500)
    commit(log)
    request(logs, log)
    advance(logs)
    assert is_done(logs)
    assert content(log) == [(1, "a", "2"), (2, "a", "3"), (3, "a", "4")]


def test_an_offset_map_without_room_takes_several_cleanings(logs: Logs) -> None:
    logs.cleaner = LogCleaner(dedupe_buffer_bytes=3 * 150)
    log = logs.create()
    for value in ("old", "new"):
        for key in "abcde":
            append(log, (key, value))
            roll(log)
    request(logs, log)
    advance(logs, 100)
    assert is_done(logs)
    assert content(log) == [(5 + i, key, "new") for i, key in enumerate("abcde")]


def test_a_batch_that_never_fits_ends_the_request(logs: Logs) -> None:
    logs.cleaner = LogCleaner(dedupe_buffer_bytes=3 * 150)
    log = logs.create()
    append(log, *[(key, "1") for key in "abcde"])
    commit(log)
    request(logs, log)
    advance(logs)
    assert "dedupe.buffer" in logs.cleaner.requests.failed("t")[0]
    assert logs.cleaner.requests.is_empty


def test_a_damaged_batch_ends_the_request_and_the_next(logs: Logs) -> None:
    log = logs.create()
    append(log, ("a", "1"), ("a", "2"))
    commit(log)
    log.segments[0].file.data[70] = 0xFF  # type: ignore[attr-defined]
    request(logs, log)
    advance(logs)
    assert logs.log_event.of(Event.CLEANING_FAILED)
    assert 0 in logs.cleaner.requests.failed("t")
    request(logs, log)
    assert "has failed" in logs.cleaner.requests.failed("t")[0]


@pytest.mark.parametrize("why", ["closed", "deleted", "not compacted"])
def test_a_log_that_goes_ends_the_request(logs: Logs, why: str) -> None:
    log = logs.create()
    append(log, ("a", "1"))
    request(logs, log)
    if why == "closed":
        log.close()
    elif why == "deleted":
        del logs._logs["t", 0]
    else:
        log.config = COMPACT.but(cleanup_policy=frozenset({"delete"}))
    advance(logs)
    assert is_done(logs) and len(logs.timers) == 0


def test_a_log_that_moves_waits(logs: Logs) -> None:
    log = logs.create()
    append(log, ("a", "1"), ("a", "2"))
    commit(log)
    key: TopicPartition = ("t", 0)
    logs.moving.add(key)
    request(logs, log)
    advance(logs)
    assert not is_done(logs) and len(content(log)) == 2
    logs.moving.clear()
    advance(logs)
    assert is_done(logs) and len(content(log)) == 1


def test_a_log_that_begins_to_move_meanwhile_is_cleaned_afterwards(logs: Logs) -> None:
    log = logs.create()
    append(log, ("a", "1"), ("a", "2"))
    commit(log)
    request(logs, log)
    logs.moving.add(("t", 0))
    advance(logs)
    assert len(content(log)) == 2
    logs.moving.clear()
    advance(logs)
    assert is_done(logs) and len(content(log)) == 1


def test_a_routine_cleaning_does_not_answer_the_request(logs: Logs) -> None:
    log = logs.create()
    append(log, ("a", "1"), ("a", "2"))
    roll(log)
    at_once(logs.cleaner.clean_logs(logs))  # type: ignore[arg-type]  # begins with what is rolled
    append(log, ("a", "3"))
    commit(log)
    request(logs, log)
    advance(logs)
    assert is_done(logs) and content(log) == [(2, "a", "3")]


# ---- `kwire.log.cleaner.roll.active`


def test_a_cleaner_that_rolls_leaves_nothing_in_the_active_segment(logs: Logs) -> None:
    logs.cleaner = LogCleaner(rolls_active=True)
    log = logs.create(config=COMPACT.but(min_cleanable_dirty_ratio=0.0))
    append(log, ("a", "1"), ("a", "2"))
    commit(log)
    logs.clean()
    assert content(log) == [(1, "a", "2")]
    segments = len(log.segments)
    logs.clean()
    assert len(log.segments) == segments, "rolled though nothing was appended"


def test_it_rolls_neither_young_records_nor_other_topics(logs: Logs) -> None:
    logs.cleaner = LogCleaner(rolls_active=True)
    young = logs.create(config=COMPACT.but(min_compaction_lag_ms=1000))
    internal = logs.create("__consumer_offsets")
    deleted = logs.create("d", COMPACT.but(cleanup_policy=frozenset({"delete"})))
    for log in (young, internal, deleted):
        append(log, ("a", "1"))
        commit(log)
    logs.clean()
    assert [len(log.segments) for log in (young, internal, deleted)] == [1, 1, 1]
    logs.clock.wall_ms += 1000
    logs.clean()
    assert [len(log.segments) for log in (young, internal, deleted)] == [2, 1, 1]
