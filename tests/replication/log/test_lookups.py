"""Look-ups by time are made in steps, between which the log goes on."""

from __future__ import annotations

import pytest
from log_harness import NOW_MS, OneLog

from kwire.protocol.errors import ErrorCode, KafkaError
from kwire.protocol.record_builder import build_batch
from kwire.protocol.records import Record
from kwire.replication.core.work import at_once

SMALL = {"segment_bytes": 2000}


def with_records(*times: int) -> OneLog:
    """A log with one batch."""
    one = OneLog()
    records = [Record(-1, NOW_MS + time, None, b"v") for time in times]
    one.log.append_as_leader(build_batch(records), 0)
    one.commit_all()
    return one


def with_batches(times: list[int], **config: object) -> OneLog:
    one = OneLog(**config)
    for time in times:
        one.append(b"v", timestamp=NOW_MS + time)
    one.commit_all()
    return one


def test_records_of_a_large_batch_are_read_in_steps() -> None:
    log = with_records(*range(5_000)).log
    costs = list(log.offset_by_timestamp(NOW_MS + 4_999, 5_000))
    assert max(costs) <= 500 and sum(costs) >= 4_000
    costs = list(log.max_timestamp_offset(5_000))
    assert max(costs) <= 500 and sum(costs) >= 4_000
    found = at_once(log.offset_by_timestamp(NOW_MS + 4_998, 5_000))
    assert found is not None and found.offset == 4_998


def test_batches_without_an_index_entry_are_read_in_steps() -> None:
    log = with_batches([10, *[5] * 1_000, 20]).log
    costs = list(log.offset_by_timestamp(NOW_MS + 15, 2_000))
    assert max(costs) <= 500 and sum(costs) >= 1_000
    found = at_once(log.offset_by_timestamp(NOW_MS + 15, 2_000))
    assert found is not None and found.offset == 1_001


def test_segments_are_looked_at_in_steps() -> None:
    log = with_batches(list(range(400)), **SMALL).log
    assert len(log.segments) > 10
    costs = list(log.offset_by_timestamp(NOW_MS + 399, 400))
    assert len(costs) >= len(log.segments) - 1


def test_a_search_goes_on_though_the_segments_before_it_are_deleted() -> None:
    log = with_batches(list(range(400)), **SMALL).log
    search = log.offset_by_timestamp(NOW_MS + 399, 400)
    next(search)
    log.maybe_increment_log_start_offset(300)
    log.delete_old_segments()
    found = at_once(search)
    assert found is not None and found.offset == 399


def test_a_search_goes_on_in_the_segment_that_replaces_its_own() -> None:
    """Compaction writes segments again while they are searched: what is left is found."""
    one = with_batches([10, *[5] * 300, 20, *[6] * 10])
    one.log.roll()
    one.append(b"v", timestamp=NOW_MS + 30)
    one.commit_all()
    log = one.log
    search = log.offset_by_timestamp(NOW_MS + 15, 1_000)
    next(search)
    (old, *_) = log.segments
    copy = type(old).create(old.store, old.directory, old.base_offset, old.created_ms, ".cleaned")
    for batch in list(old.batches(0)):
        data = old.read_batch(batch)
        copy.append([data], len(data), batch.last_offset, batch.max_timestamp, 4096)
    log.replace_segments([old], copy)
    found = at_once(search)
    assert found is not None and found.offset == 301


def test_a_search_in_a_log_that_is_closed_ends() -> None:
    log = with_batches([10, *[5] * 1_000, 20]).log
    search = log.offset_by_timestamp(NOW_MS + 15, 2_000)
    next(search)
    log.close()
    with pytest.raises(KafkaError) as raised:
        next(search)
    assert raised.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
