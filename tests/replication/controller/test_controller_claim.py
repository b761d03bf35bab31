"""Several controllers on one store: whose commits count, whatever the order of things."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kwire.protocol.errors import ErrorCode, KafkaError
from kwire.replication.controller.claim import (
    LEASE_FILE,
    ClaimedJournal,
    Lease,
    generation_file,
    generations,
    read_lease,
)
from kwire.replication.controller.journal import JOURNAL_FILE, StoreJournal
from kwire.replication.controller.state import DeposedError
from kwire.replication.core.memory_log_store import MemoryLogStore
from kwire.server.file_log_store import FileLogStore


def claimed(store: Any) -> ClaimedJournal:
    journal = ClaimedJournal(store)
    journal.claim()
    return journal


def commit(journal: ClaimedJournal, *keys: str) -> None:
    journal.append([(key, None) for key in keys])
    journal.flush()


def keys(journal: ClaimedJournal) -> list[str]:
    return [key for key, _ in journal.replay()]


def test_a_generation_begins_with_what_the_last_one_had() -> None:
    store = MemoryLogStore()
    for number, known in enumerate(([], ["a"], ["a", "b"]), 1):
        journal = claimed(store)
        assert journal.generation == number and keys(journal) == known
        journal.delete_older()
        commit(journal, "abc"[number - 1])
    assert generations(store) == [3]


def test_a_journal_from_before_there_were_generations_is_taken_over() -> None:
    store = MemoryLogStore()
    StoreJournal(store).append([("old", None)])
    journal = claimed(store)
    assert keys(journal) == ["old"]
    journal.delete_older()
    assert not store.exists(JOURNAL_FILE)
    assert keys(claimed(store)) == ["old"]


def test_who_was_deposed_writes_nothing_any_more() -> None:
    store = MemoryLogStore()
    old = claimed(store)
    commit(old, "a")
    new = claimed(store)
    assert keys(new) == ["a"]
    size = store.size(generation_file(1))
    with pytest.raises(DeposedError):
        old.append([("late", None)])
    assert store.size(generation_file(1)) == size
    commit(new, "b")
    new.delete_older()
    with pytest.raises(DeposedError):
        old.append([("later", None)])
    assert keys(claimed(store)) == ["a", "b"]


def test_who_stood_still_between_the_writing_and_the_look_does_not_count_on_it() -> None:
    store = MemoryLogStore()
    old = claimed(store)
    old.append([("a", None)])
    new = claimed(store)
    with pytest.raises(DeposedError):
        old.flush()
    assert keys(new) == ["a"]  # it may be there all the same, as after a lost answer


def test_a_claimant_that_died_before_it_had_written_anything_is_passed_over() -> None:
    store = MemoryLogStore()
    commit(claimed(store), "a")
    assert store.claim_file(generation_file(2))
    third = claimed(store)
    assert third.generation == 3 and keys(third) == ["a"]


def test_a_claimant_that_stood_still_before_it_had_written_anything_has_lost() -> None:
    class Interrupted(MemoryLogStore):
        before_write: Callable[[], None] | None = None

        def write_file(self, path: str, data: bytes, *, flush: bool = True) -> None:
            meanwhile, self.before_write = self.before_write, None
            if meanwhile is not None:
                meanwhile()
            super().write_file(path, data, flush=flush)

    store = Interrupted()
    commit(claimed(store), "a")
    others: list[ClaimedJournal] = []

    def meanwhile() -> None:
        others.append(claimed(store))
        commit(others[0], "b")
        others[0].delete_older()

    store.before_write = meanwhile
    slow = claimed(store)
    with pytest.raises(DeposedError):
        slow.append([("c", None)])
    commit(others[0], "d")
    assert keys(claimed(store)) == ["a", "b", "d"]


class Raced(MemoryLogStore):
    """Lets something happen just before a file is claimed."""

    before_claim: Callable[[], None] | None = None

    def claim_file(self, path: str) -> bool:
        meanwhile, self.before_claim = self.before_claim, None
        if meanwhile is not None:
            meanwhile()
        return super().claim_file(path)


def test_of_two_that_claim_at_once_one_succeeds() -> None:
    store = Raced()
    commit(claimed(store), "a")
    faster: list[ClaimedJournal] = []
    store.before_claim = lambda: faster.append(claimed(store))
    with pytest.raises(DeposedError):
        claimed(store)
    commit(faster[0], "b")


def test_a_deposed_controller_deletes_no_later_generation() -> None:
    store = MemoryLogStore()
    old = claimed(store)
    new = claimed(store)
    commit(new, "a")
    old.delete_older()
    assert generations(store) == [1, 2] and keys(claimed(store)) == ["a"]


def test_a_first_generation_that_has_come_and_gone_is_claimed_in_vain() -> None:
    store = Raced()
    faster: list[ClaimedJournal] = []

    def two() -> None:
        claimed(store)
        faster.append(claimed(store))
        faster[0].delete_older()

    store.before_claim = two
    with pytest.raises(DeposedError):
        claimed(store)
    commit(faster[0], "a")


def test_a_generation_that_has_come_and_gone_is_claimed_in_vain() -> None:
    store = Raced()
    commit(claimed(store), "a")
    faster: list[ClaimedJournal] = []

    def two_more() -> None:
        commit(claimed(store), "b")
        faster.append(claimed(store))
        commit(faster[0], "c")
        faster[0].delete_older()

    store.before_claim = two_more
    with pytest.raises(DeposedError):
        claimed(store)  # generation 2, after the third has cleaned up
    commit(faster[0], "d")
    last = claimed(store)
    assert last.generation == 4 and keys(last) == ["a", "b", "c", "d"]


def test_a_journal_that_is_gone_is_an_error_of_the_disk() -> None:
    store = MemoryLogStore()
    journal = claimed(store)
    store.delete(generation_file(1))
    with pytest.raises(KafkaError) as caught:
        journal.append([("a", None)])
    assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR


def test_other_files_are_no_generations() -> None:
    store = MemoryLogStore()
    for name in (LEASE_FILE, JOURNAL_FILE, "kwire-controller-12.journal", "kwire-controller-x.tmp"):
        store.write_file(name, b"x")
    assert generations(store) == []


def test_a_lease_is_read_as_it_was_written() -> None:
    store = MemoryLogStore()
    assert read_lease(store) is None
    Lease(3, 1000, 17).write(store)
    lease = read_lease(store)
    assert lease is not None and lease.liveness == (3, 1000, 17) and not lease.released
    Lease(3, 1000, 18, released=True).write(store)
    lease = read_lease(store)
    assert lease is not None and lease.released
    store.write_file(LEASE_FILE, b"\xff no lease")
    assert read_lease(store) is None


def test_two_processes_share_a_directory_if_both_say_so(tmp_path: Path) -> None:
    first = FileLogStore(str(tmp_path), shared=True)
    second = FileLogStore(str(tmp_path), shared=True)
    assert first.is_alone and not second.is_alone
    with pytest.raises(OSError, match="is in use"):
        FileLogStore(str(tmp_path))
    old = claimed(first)
    commit(old, "a")
    new = claimed(second)
    assert keys(new) == ["a"]
    with pytest.raises(DeposedError):
        commit(old, "b")
    new.delete_older()
    with pytest.raises(DeposedError):
        commit(old, "b")
    commit(new, "c")
    first.close()
    second.close()
    alone = FileLogStore(str(tmp_path))
    with pytest.raises(OSError, match="is in use"):
        FileLogStore(str(tmp_path), shared=True)
    assert keys(claimed(alone)) == ["a", "c"]
    alone.close()


def test_a_file_is_claimed_once(tmp_path: Path) -> None:
    first, second = (FileLogStore(str(tmp_path), shared=True) for _ in range(2))
    assert first.claim_file("x") and not second.claim_file("x") and not first.claim_file("x")
    assert first.size("x") == 0
    first.close()
    second.close()
