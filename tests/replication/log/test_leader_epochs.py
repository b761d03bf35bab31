"""Scenarios S1 to S6 of the replication catalogue, and the checkpoint file."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kwire.replication.core.memory_log_store import MemoryLogStore
from kwire.replication.log.leader_epochs import (
    LeaderEpochCache,
    format_checkpoint,
    parse_checkpoint,
)

UNDEFINED = (-1, -1)
PATH = "orders-0/leader-epoch-checkpoint"


def cache_with(*entries: tuple[int, int], store: MemoryLogStore | None = None) -> LeaderEpochCache:
    if store is None:
        store = MemoryLogStore()
    store.make_dir("orders-0")
    cache = LeaderEpochCache(store, "orders-0")
    for epoch, start in entries:
        cache.assign(epoch, start)
    return cache


@pytest.mark.parametrize(
    ("assigned", "expected"),
    [
        ([(2, 6), (2, 7)], [(2, 6)]),
        ([(2, 9), (3, 9)], [(3, 9)]),
        ([(2, 6), (3, 5)], [(3, 5)]),
        ([(1, 5), (2, 6), (1, 7)], [(1, 7)]),
        ([(5, 11), (6, 12), (7, 13), (7, 12)], [(5, 11), (7, 12)]),
    ],
)
def test_S01_assign_keeps_epochs_and_starts_increasing(
    assigned: list[tuple[int, int]], expected: list[tuple[int, int]]
) -> None:
    assert cache_with(*assigned).entries == expected


@pytest.mark.parametrize(
    ("epoch", "answer"),
    [
        (0, (0, 13)),
        (1, (0, 13)),
        (2, (2, 17)),
        (3, (2, 17)),
        (4, (4, 20)),
        (5, UNDEFINED),
        (-1, UNDEFINED),
    ],
)
def test_S02_an_epoch_ends_where_the_next_begins(epoch: int, answer: tuple[int, int]) -> None:
    assert cache_with((0, 10), (2, 13), (4, 17)).end_offset_for(epoch, 20) == answer


def test_S02_an_epoch_before_the_first_ends_at_the_first_start() -> None:
    cache = cache_with((5, 11), (6, 12), (7, 13))
    assert cache.end_offset_for(4, 20) == (4, 11)
    assert cache.end_offset_for(8, 20) == UNDEFINED


@pytest.mark.parametrize("epoch", [-1, 0, 1, 7])
def test_S02_an_empty_cache_knows_nothing(epoch: int) -> None:
    assert cache_with().end_offset_for(epoch, 20) == UNDEFINED


@pytest.mark.parametrize(
    ("end", "expected"),
    [
        (8, [(2, 6)]),
        (9, [(2, 6), (3, 8)]),
        (11, [(2, 6), (3, 8)]),
        (12, [(2, 6), (3, 8), (4, 11)]),
        (-1, [(2, 6), (3, 8), (4, 11)]),
    ],
)
def test_S03_truncating_the_end_drops_what_begins_there_or_later(
    end: int, expected: list[tuple[int, int]]
) -> None:
    cache = cache_with((2, 6), (3, 8), (4, 11))
    cache.truncate_from_end(end)
    assert cache.entries == expected
    assert cache.latest_epoch == expected[-1][0]


@pytest.mark.parametrize(
    ("start", "expected"),
    [
        (1, [(2, 6), (3, 8), (4, 11)]),
        (6, [(2, 6), (3, 8), (4, 11)]),
        (8, [(3, 8), (4, 11)]),
        (9, [(3, 9), (4, 11)]),
        (11, [(4, 11)]),
        (15, [(4, 15)]),
    ],
)
def test_S04_truncating_the_start_rebases_the_epoch_in_force(
    start: int, expected: list[tuple[int, int]]
) -> None:
    cache = cache_with((2, 6), (3, 8), (4, 11))
    cache.truncate_from_start(start)
    assert cache.entries == expected


def test_S05_an_epoch_is_assigned_at_the_election_before_any_record() -> None:
    store = MemoryLogStore()
    cache = cache_with((0, 0), (5, 2), store=store)
    cache.assign(8, 4)
    assert cache.entries == [(0, 0), (5, 2), (8, 4)]
    assert cache.end_offset_for(8, 4) == (8, 4)
    assert store.read_file(PATH) == b"0\n3\n0 0\n5 2\n8 4\n"


def test_S06_an_epoch_without_records_is_removed_when_a_leader_becomes_a_follower() -> None:
    cache = cache_with((19, 27))
    cache.assign(20, 29)
    assert cache.entries == [(19, 27), (20, 29)]
    cache.truncate_from_end(29)
    assert cache.entries == [(19, 27)]


@pytest.mark.parametrize(
    ("offset", "epoch"), [(0, -1), (9, -1), (10, 0), (12, 0), (13, 2), (17, 4), (99, 4)]
)
def test_the_epoch_of_an_offset_is_the_last_that_began_before_it(offset: int, epoch: int) -> None:
    assert cache_with((0, 10), (2, 13), (4, 17)).epoch_for_offset(offset) == epoch


def test_an_assignment_survives_a_power_cut_once_it_is_flushed() -> None:
    store = MemoryLogStore()
    cache = cache_with((0, 0), (3, 8), store=store)
    assert not cache.is_flushed, "that would be before the end of the step"
    store.end_flushes()
    assert cache.is_flushed
    store.crash()
    cache = LeaderEpochCache(store, "orders-0")
    cache.load()
    assert cache.entries == [(0, 0), (3, 8)]
    assert cache.latest_epoch == 3


def test_an_epoch_without_records_is_written_before_its_first_record() -> None:
    store = MemoryLogStore()
    cache = cache_with((1, 0), (2, 5), store=store)
    written = store.read_file(PATH)
    assert cache.assign(3, 9, has_records=False)
    assert not cache.assign(3, 9, has_records=False)
    assert (cache.latest_epoch, cache.entries[-1]) == (3, (3, 9))
    assert store.read_file(PATH) == written
    store.fail_next("write_file", OSError(5, "Input/output error"))
    with pytest.raises(OSError):
        cache.assign(3, 9)
    assert not cache.assign(3, 9)  # not news, but to the disk it is
    store.end_flushes()
    store.crash()
    assert parse_checkpoint(store.read_file(PATH)) == [(1, 0), (2, 5), (3, 9)]
    store.fail_next("write_file", OSError(5, "Input/output error"))
    cache.assign(3, 10)  # known and written


def test_a_truncation_does_not_make_an_epoch_without_records_durable() -> None:
    store = MemoryLogStore()
    cache = cache_with((1, 0), (2, 5), store=store)
    cache.assign(3, 9, has_records=False)
    cache.truncate_from_start(2)
    cache.assign(3, 9)
    cache.flush()
    store.crash()
    assert parse_checkpoint(store.read_file(PATH)) == [(1, 2), (2, 5), (3, 9)]


def test_a_cleared_cache_is_empty_on_disk_too() -> None:
    store = MemoryLogStore()
    cache = cache_with((0, 0), store=store)
    cache.clear()
    assert (cache.entries, cache.latest_epoch) == ([], -1)
    assert store.read_file(PATH) == b"0\n0\n"


@pytest.mark.parametrize(
    "data", [b"1\n0\n", b"0\n2\n0 0\n", b"0\n1\n0 x\n", b"0\n1\n0 0 0\n", b"0\n", b"0\n1\n-1 0\n"]
)
def test_a_damaged_checkpoint_is_an_io_error(data: bytes) -> None:
    with pytest.raises(OSError, match="leader-epoch-checkpoint"):
        parse_checkpoint(data)


def test_an_empty_checkpoint_has_no_entries() -> None:
    assert parse_checkpoint(b"") == []


offsets = st.integers(0, 30)
steps = st.one_of(
    st.tuples(st.just("assign"), st.integers(0, 12), offsets),
    st.tuples(st.just("end"), offsets, offsets),
    st.tuples(st.just("start"), offsets, offsets),
)


@given(st.lists(steps, max_size=20))
def test_entries_always_increase_and_the_file_agrees(
    history: list[tuple[str, int, int]],
) -> None:
    store = MemoryLogStore()
    cache = cache_with(store=store)
    for what, first, second in history:
        if what == "assign":
            cache.assign(first, second)
        elif what == "end":
            cache.truncate_from_end(first)
        else:
            cache.truncate_from_start(first)
        entries = cache.entries
        assert all(a[0] < b[0] and a[1] < b[1] for a, b in itertools.pairwise(entries))
        assert cache.latest_epoch == (entries[-1][0] if entries else -1)
        if entries:
            assert parse_checkpoint(store.read_file(PATH)) == entries
    assert parse_checkpoint(format_checkpoint(cache.entries)) == cache.entries


def test_the_file_follows_every_truncation() -> None:
    store = MemoryLogStore()
    cache = cache_with((1, 0), (2, 5), (3, 9), store=store)

    def stored() -> list[tuple[int, int]]:
        return parse_checkpoint(store.read_file(PATH))

    cache.truncate_from_end(9)
    assert stored() == cache.entries == [(1, 0), (2, 5)]
    cache.truncate_from_start(6)
    assert stored() == cache.entries == [(2, 6)]
    cache.clear()
    assert stored() == cache.entries == []
