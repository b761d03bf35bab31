"""The index files: their bytes, what they find, and that looking something up does not read all of them."""

from __future__ import annotations

from bisect import bisect_right
from struct import pack

import pytest

from kwire.replication.core.memory_log_store import MemoryLogStore
from kwire.replication.log.indexes import AbortedTxn, OffsetIndex, TimeIndex, TransactionIndex


def offset_index(entries: list[tuple[int, int]], stored: int) -> OffsetIndex:
    """An index whose first `stored` entries are in the file."""
    store = MemoryLogStore()
    index = OffsetIndex(store, "x.index")
    for number, entry in enumerate(entries):
        if number == stored:
            index.write_out()
        index.append(*entry)
    return index


@pytest.mark.parametrize("count", [0, 1, 2, 63, 64, 65, 511, 512, 513, 1500])
@pytest.mark.parametrize("reopened", [False, True])
def test_floor_finds_the_last_entry_not_above_the_target(count: int, reopened: bool) -> None:
    entries = [(10 + 3 * n, 1000 + 50 * n) for n in range(count)]
    index = offset_index(entries, count // 2)
    if reopened:
        index.write_out()
        index = OffsetIndex(index._store, "x.index")
    assert index.count == count
    for field, step in ((0, 1), (1, 17)):
        keys = [entry[field] for entry in entries]
        for target in range(0, (keys[-1] if keys else 10) + 20, step):
            position = bisect_right(keys, target)
            assert index.floor(target, field) == (entries[position - 1] if position else None)
    assert index.last() == (entries[-1] if entries else None)


def test_a_page_that_was_read_before_a_truncation_is_forgotten() -> None:
    index = offset_index([(n, 100 * n) for n in range(200)], 0)
    index.write_out()
    assert index.floor(150) == (150, 15_000)
    index.truncate_to(100, 0)
    assert index.floor(150) == (99, 9_900)


def test_index_entries_have_kafkas_bytes() -> None:
    store = MemoryLogStore()
    offsets, times = OffsetIndex(store, "o"), TimeIndex(store, "t")
    offsets.append(7, 4096)
    offsets.append(19, 9000)
    times.maybe_append(1000, 7)
    times.maybe_append(1000, 9)  # not larger
    times.maybe_append(1001, 19)
    offsets.write_out()
    times.write_out()
    assert store.read_file("o") == pack(">iiii", 7, 4096, 19, 9000)
    assert store.read_file("t") == pack(">qiqi", 1000, 7, 1001, 19)


def test_index_entries_are_written_in_batches_and_memory_stays_small() -> None:
    store = MemoryLogStore()
    index = OffsetIndex(store, "x")
    assert not store.exists("x")
    for n in range(10_000):
        index.append(n, n * 4096)
    assert store.size("x") > 79_000
    assert len(index._pending) < 1000
    assert index.floor(5000) == (5000, 5000 * 4096)
    assert len(index._page) <= 4096


@pytest.mark.parametrize("stored", [0, 10, 60, 100])
@pytest.mark.parametrize("keep", [0, 1, 9, 10, 11, 59, 60, 99, 100])
def test_truncate_entries_keeps_the_first(stored: int, keep: int) -> None:
    entries = [(n, n * 10) for n in range(100)]
    index = offset_index(entries, stored)
    index.truncate_to(keep, 0)
    assert index.count == keep
    assert index.last() == (entries[keep - 1] if keep else None)
    assert index.floor(1000) == index.last()
    index.append(500, 5000)
    assert index.floor(500) == (500, 5000)
    index.write_out()
    assert index._store.size("x.index") == 8 * (keep + 1)


def test_an_index_that_cannot_be_written_keeps_its_entries() -> None:
    store = MemoryLogStore()
    index = OffsetIndex(store, "x")
    store.fail_next("append", OSError(28, "disk full"))
    for n in range(200):
        index.append(n, n)
    assert index.count == 200
    assert [index.entry(n) for n in (0, 63, 64, 199)] == [(0, 0), (63, 63), (64, 64), (199, 199)]
    index.write_out()
    assert store.size("x") == 1600


@pytest.mark.parametrize(
    ("data", "sane"),
    [(b"", True), (pack(">ii", 3, 90), True), (pack(">ii", 3, 90)[:7], False), (bytes(80), False)],
)
def test_sanity_of_an_offset_index(data: bytes, sane: bool) -> None:
    store = MemoryLogStore()
    store.write_file("x", data)
    assert OffsetIndex(store, "x").is_sane() is sane
    assert not OffsetIndex(store, "absent").is_sane()


def test_aborted_transactions() -> None:
    store = MemoryLogStore()
    index = TransactionIndex(store, "x.txnindex")
    assert not index.exists and index.entries() == []
    first = AbortedTxn(1, 0, 10, 5)
    second = AbortedTxn(2, 5, 20, 21)
    third = AbortedTxn(3, 22, 30, 31)
    for txn in (first, second, third):
        index.append(txn)
    assert store.read_file("x.txnindex")[:34] == pack(">hqqqq", 0, 1, 0, 10, 5)
    assert index.entries() == [first, second, third]
    assert index.collect(0, 5) == ([first], True)
    assert index.collect(10, 11) == ([first, second], True)
    assert index.collect(11, 22) == ([second], True)
    assert index.collect(11, 23) == ([second, third], True)
    assert index.collect(31, 100) == ([], False)
    assert index.is_sane(10) and not index.is_sane(11)
    index.truncate_to(20)
    assert index.entries() == [first]
    store.open("x.txnindex").append([b"torn"])
    assert index.entries() == [first]
    assert not index.is_sane(0)
