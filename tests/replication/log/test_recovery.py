"""What a log is after its broker stopped, died or lost power. S8, S10, S11: scenarios of the replication fact sheet."""

from __future__ import annotations

import random

import pytest
from log_harness import NOW_MS, OneLog, batch, check_invariants, marker, stamped

from kwire.protocol.records import iter_batches
from kwire.replication.core.events import Event
from kwire.replication.core.memory_log_store import MemoryLogStore
from kwire.replication.core.work import at_once
from kwire.replication.log.checkpoints import HIGH_WATERMARKS, RECOVERY_POINTS, format_offsets
from kwire.replication.log.indexes import AbortedTxn
from kwire.replication.log.log import AppendOrigin
from kwire.replication.log.segment import LogSegment

SMALL = {"segment_bytes": 1000, "index_interval_bytes": 100}


def some_records(one: OneLog, count: int = 60, **kw: object) -> None:
    for n in range(count):
        one.append(b"%40d" % n, epoch=one.log.log_end_offset // 25, timestamp=NOW_MS + n, **kw)  # type: ignore[arg-type]


def snapshot_of(one: OneLog) -> tuple[object, ...]:
    log = one.log
    return (
        one.read_all(),
        log.log_start_offset,
        log.log_end_offset,
        log.leader_epochs.entries[:],
        [segment.base_offset for segment in log.segments],
        [segment.max_timestamp for segment in log.segments],
    )


@pytest.mark.parametrize("config", [{}, SMALL])
@pytest.mark.parametrize("how", ["restart", "kill"])
def test_no_write_is_lost_when_the_process_ends(how: str, config: dict[str, object]) -> None:
    one = OneLog(**config)
    some_records(one)
    one.commit_all()
    before = snapshot_of(one)
    getattr(one, how)()
    assert snapshot_of(one) == before
    check_invariants(one.log)
    assert one.log.topic_id == bytes(range(16))
    assert one.append(b"more", epoch=2).first_offset == 60
    getattr(one, how)()
    assert one.values()[-1] == (60, b"more")


def test_indexes_are_the_same_after_recovery_as_before() -> None:
    one = OneLog(**SMALL)
    some_records(one)
    one.restart()
    names = [name for name in one.files() if "index" in name]
    before = {name: one.store.read_file(f"t-0/{name}") for name in names}
    assert any(before.values())
    one.kill()
    one.restart()
    assert {name: one.store.read_file(f"t-0/{name}") for name in names} == before


@pytest.mark.parametrize("compression", ["none", "gzip"])
def test_a_torn_last_batch_is_truncated_wherever_it_was_torn(compression: str) -> None:
    one = OneLog()
    one.append(b"first", b"second")
    last = batch(b"third" * 5, compression=compression)
    whole = stamped(batch(b"first", b"second"), 0, 0)
    for length in range(len(last)):
        store = MemoryLogStore()
        again = OneLog(store)
        again.append(b"first", b"second")
        store.open("t-0/00000000000000000000.log").append([stamped(last, 2, 0)[:length]])
        again.kill()
        assert again.read_all() == whole, length
        assert again.log.log_end_offset == 2
        assert again.logged.events == [Event.RECOVERY_TRUNCATED] * bool(length)
        assert again.append(b"next").first_offset == 2
        assert store.size("t-0/00000000000000000000.log") > len(whole)
    cut = again.logged.last.fields
    assert (cut["log"], cut["log_end_offset"], cut["size_bytes"]) == ("t-0", 2, length)
    assert "cut" in again.logged.last.text and "offset 2" in again.logged.last.text


def test_a_flipped_bit_anywhere_in_a_batch_truncates_there() -> None:
    data = b"".join(stamped(batch(b"%d" % n), n, 0) for n in range(4))
    size = len(data) // 4
    for at in range(2 * size, 3 * size):
        if at - 2 * size in (*range(8), *range(12, 16)):
            continue  # base offset and leader epoch: no checksum covers them
        one = OneLog()
        one.log.append_as_follower(data)
        damaged = bytearray(data)
        damaged[at] ^= 0x10
        one.store.write_file("t-0/00000000000000000000.log", bytes(damaged))
        one.kill()
        end = one.log.log_end_offset
        assert one.read_all() == data[: 2 * size], at
        assert end == 2
        check_invariants(one.log)


def test_S10_dirty_restart() -> None:
    store = MemoryLogStore()
    one = OneLog(store)
    for n, epoch in enumerate([0] * 6 + [1] * 2 + [2] * 2):
        if n in (5, 9):
            one.log.roll()
        one.append(b"%d" % n, epoch=epoch)
    one.commit_all()
    store.write_file(RECOVERY_POINTS, format_offsets([(("t", 0), 5)]))
    one.manager.checkpoint_high_watermarks()
    assert one.log.leader_epochs.entries == [(0, 0), (1, 6), (2, 8)]
    path = "t-0/00000000000000000005.log"
    data = bytearray(store.read_file(path))
    positions = [h.position for h in iter_batches(data)]
    data[positions[2] + 65] ^= 1  # the batch at offset 7
    store.write_file(path, bytes(data))
    one.kill()
    assert one.log.log_end_offset == 7
    assert [segment.base_offset for segment in one.log.segments] == [0, 5]
    assert [int(name[:20]) for name in one.files() if name.endswith(".log")] == [0, 5]
    assert one.log.leader_epochs.entries == [(0, 0), (1, 6)]
    assert one.log.high_watermark <= 7
    assert one.values() == [(n, b"%d" % n) for n in range(7)]
    (cut,) = one.logged.of(Event.RECOVERY_TRUNCATED)
    assert "checksum" in str(cut["detail"]) and cut["log_end_offset"] == 7
    (deleted,) = one.logged.of(Event.RECOVERY_DELETED_SEGMENTS)
    assert (deleted["segments"], deleted["offset"], deleted["segment"]) == (1, 9, 5)
    refetched = b"".join(stamped(batch(b"again"), n, 3) for n in (7, 8, 9))
    one.log.append_as_follower(refetched)
    one.commit_all()
    check_invariants(one.log)
    assert one.log.leader_epochs.entries == [(0, 0), (1, 6), (3, 7)]


def test_S11_a_tail_lost_below_the_log_start_empties_the_log() -> None:
    one = OneLog()
    for n in range(5):
        one.append(b"%d" % n)
    one.log.flush()
    for n in range(5, 10):
        one.append(b"%d" % n)
    one.commit_all()
    one.log.maybe_increment_log_start_offset(8)
    one.manager.checkpoint_log_starts(flush=True)
    one.crash()
    log = one.log
    assert (log.log_start_offset, log.high_watermark, log.log_end_offset) == (8, 8, 8)
    assert log.leader_epochs.entries == []
    assert one.append(b"x").first_offset == 8
    one.restart()
    assert one.values() == [(8, b"x")]


@pytest.mark.parametrize(("checkpoint", "expected"), [(4, 4), (9, 6), (None, 0), (-1, 0)])
def test_S08_the_checkpoint_restores_the_high_watermark(
    checkpoint: int | None, expected: int
) -> None:
    one = OneLog()
    for _ in range(6):
        one.append(b"x")
    one.manager.close()
    entries = [] if checkpoint is None else [(("t", 0), checkpoint)]
    one.store.write_file(HIGH_WATERMARKS, format_offsets(entries))
    one.load_again()
    assert one.log.high_watermark == expected


def test_S08_a_malformed_checkpoint_is_a_start_error() -> None:
    one = OneLog()
    one.manager.close()
    one.store.write_file(HIGH_WATERMARKS, b"0\n3\nt 0 1\nt 1 2\n")
    with pytest.raises(OSError, match="3 entries announced, 2 found"):
        one.load_again()


def test_a_power_cut_loses_only_unflushed_records() -> None:
    one = OneLog(**SMALL)
    some_records(one, 40)
    one.log.flush()
    some_records(one, 20)
    one.crash()
    assert 40 <= one.log.log_end_offset <= 60
    values = one.values()
    assert [offset for offset, _ in values] == list(range(one.log.log_end_offset))
    check_invariants(one.log)


def test_rolled_segments_are_flushed_in_the_background() -> None:
    one = OneLog(**SMALL)
    some_records(one)
    one.store.end_flushes()
    assert one.log.recovery_point == 0
    assert one.log.advance_recovery_point() == one.log.active.base_offset > 0
    end = one.log.active.base_offset
    one.manager.checkpoint_recovery_points()
    one.crash()
    assert one.log.log_end_offset == end


def test_recovery_begins_at_the_recovery_point() -> None:
    one = OneLog(**SMALL)
    some_records(one)
    one.log.flush()
    one.manager.checkpoint_recovery_points(flush=True)
    first = bytearray(one.store.read_file("t-0/00000000000000000000.log"))
    first[80] ^= 1
    one.store.write_file("t-0/00000000000000000000.log", bytes(first))
    one.kill()
    assert one.log.log_end_offset == 60  # what was flushed is believed
    one.store.delete("recovery-point-offset-checkpoint")
    one.kill()
    assert one.log.log_end_offset == 0


def test_a_missing_or_damaged_index_is_rebuilt_even_after_a_clean_shutdown() -> None:
    for damage in ("delete", "odd size", "zeros", "kafka's preallocated space"):
        one = OneLog(**SMALL)
        some_records(one)
        one.restart()
        one.manager.close()
        for suffix in ("index", "timeindex"):
            path = f"t-0/00000000000000000000.{suffix}"
            data = one.store.read_file(path)
            assert data
            if damage == "delete":
                one.store.delete(path)
            elif damage == "odd size":
                one.store.write_file(path, data[:-1])
            elif damage == "zeros":
                one.store.write_file(path, bytes(len(data)))
            else:
                one.store.write_file(path, data + bytes(120 * 8 * 12))
        one.load_again()
        check_invariants(one.log)
        one.commit_all()
        assert one.log.read(7, 1, 60).first_offset == 7
        found = at_once(one.log.offset_by_timestamp(NOW_MS + 9, 60))
        assert found is not None and found.offset == 9
        assert one.logged.last.event is Event.INDEXES_REBUILT
        assert one.logged.last.fields["file"] == "00000000000000000000.log"


def test_leftovers_of_a_crash_are_removed() -> None:
    one = OneLog()
    one.append(b"x")
    one.manager.close()
    for name in (
        "00000000000000000007.index",
        "00000000000000000007.timeindex",
        "00000000000000000000.log.deleted",
        "00000000000000000000.index.deleted",
        "00000000000000000000.log.cleaned",
        "00000000000000000000.timeindex.cleaned",
        "leader-epoch-checkpoint.tmp",
        "00000000000000000009.snapshot.tmp",
    ):
        one.store.write_file(f"t-0/{name}", b"junk")
    one.load_again()
    assert one.values() == [(0, b"x")]
    assert one.files() == [
        "00000000000000000000.index",
        "00000000000000000000.log",
        "00000000000000000000.timeindex",
        "00000000000000000001.snapshot",
        "leader-epoch-checkpoint",
        "partition.metadata",
    ]


def test_a_finished_replacement_is_completed_an_unfinished_one_undone() -> None:
    one = OneLog()
    for _ in range(2):
        for _ in range(3):
            one.append(b"x")
        one.log.roll()
    one.append(b"end")
    one.manager.close()
    one.store.write_file("t-0/00000000000000000000.log.swap", stamped(batch(b"kept"), 5, 0))
    one.load_again()
    assert one.values() == [(5, b"kept"), (6, b"end")]
    assert [segment.base_offset for segment in one.log.segments] == [0, 6]
    assert not any("swap" in name or name.startswith("0" * 19 + "3.log") for name in one.files())

    one.manager.close()
    one.store.write_file("t-0/00000000000000000006.log.swap", stamped(batch(b"no"), 6, 0))
    one.store.write_file("t-0/00000000000000000006.log.cleaned", b"")
    one.load_again()
    assert one.values() == [(5, b"kept"), (6, b"end")]


def test_a_replaced_segment_is_read_immediately_and_after_a_restart() -> None:
    from kwire.replication.log.segment import LogSegment

    one = OneLog(**SMALL)
    some_records(one)
    one.commit_all()
    old = one.log.segments[:2]
    end = one.log.segments[2].base_offset
    new = LogSegment.create(one.store, "t-0", 0, NOW_MS, ".cleaned")
    kept = stamped(batch(b"only"), 3, 0)
    new.append([kept], len(kept), 3, NOW_MS, 100)
    one.log.replace_segments(old, new)
    for _ in range(2):
        assert one.values()[0] == (3, b"only")
        assert one.values()[1][0] == end
        one.restart()
    assert not any(name.endswith((".cleaned", ".swap")) for name in one.files())


@pytest.mark.parametrize("how", ["restart", "kill", "crash"])
def test_a_replacement_is_there_with_its_index_however_the_broker_ends(how: str) -> None:
    # given a log of one transaction that was aborted, and records after it
    one = OneLog(**SMALL)
    some_records(one)
    one.commit_all()
    one.log.flush()
    one.manager.checkpoint_recovery_points(flush=True)
    # when the first two segments are replaced by one with a record and that transaction
    new = LogSegment.create(one.store, "t-0", 0, NOW_MS, ".cleaned")
    kept = stamped(batch(b"only"), 3, 0)
    new.append([kept], len(kept), 3, NOW_MS, 100)
    aborted = AbortedTxn(7, 0, 3, 4)
    new.txn_index.append(aborted)
    one.log.replace_segments(one.log.segments[:2], new)
    assert one.log.aborted_transactions(0, 60) == [aborted]
    getattr(one, how)()
    # then the record is there, and the index if nothing had to be rebuilt
    assert one.values()[0] == (3, b"only") and len(one.values()) > 1
    assert one.log.aborted_transactions(0, 60) == [aborted]
    assert not any(name.endswith((".cleaned", ".swap")) for name in one.files())


def test_batches_whose_offsets_go_back_end_a_log() -> None:
    one = OneLog()
    one.append(b"a")
    one.append(b"b")
    path = "t-0/00000000000000000000.log"
    one.store.open(path).append([stamped(batch(b"again"), 1, 0)])
    one.kill()
    assert one.values() == [(0, b"a"), (1, b"b")]
    (cut,) = one.logged.of(Event.RECOVERY_TRUNCATED)
    assert cut["detail"] == "offset 1 is not above 1"


def test_a_recovery_point_is_never_above_the_log_end() -> None:
    one = OneLog()
    for n in range(4):
        one.append(b"%d" % n)
    one.log.flush()
    one.manager.checkpoint_recovery_points(flush=True)
    file = one.store.open("t-0/00000000000000000000.log")
    file.truncate(file.size - 1)
    one.kill()
    assert one.log.recovery_point == one.log.log_end_offset == 3


def test_after_a_clean_stop_everything_counts_as_flushed() -> None:
    one = OneLog()
    one.append(b"a")
    one.manager.close()
    one.store.delete(RECOVERY_POINTS)
    one.load_again()
    assert one.log.recovery_point == 1


def test_a_snapshot_without_a_segment_is_deleted_at_the_start() -> None:
    one = OneLog()
    for n in range(4):
        one.append(b"x", producer=(7, 0, n))
    one.restart()
    assert "00000000000000000004.snapshot" in one.files()
    data = one.store.read_file("t-0/00000000000000000004.snapshot")
    one.store.write_file("t-0/00000000000000000002.snapshot", data)
    one.restart()
    assert [name for name in one.files() if name.endswith(".snapshot")] == [
        "00000000000000000004.snapshot"
    ]


def test_an_empty_topic_id_file_is_ignored() -> None:
    one = OneLog()
    one.append(b"x")
    one.log.flush()
    one.manager.checkpoint_recovery_points()
    one.store.write_file("t-0/partition.metadata", b"")
    one.load_again()
    assert one.log.topic_id == bytes(16)
    assert one.values() == [(0, b"x")]
    (ignored,) = one.logged.of(Event.TOPIC_ID_IGNORED)
    assert "partition.metadata" in str(ignored["detail"])
    assert "partition.metadata" not in one.files()


def test_data_that_was_never_flushed_goes_with_its_topic_id() -> None:
    """Nobody can say whose it is: perhaps that of a deleted topic of the same name."""
    one = OneLog(**SMALL)
    some_records(one)
    before = one.log.size_bytes
    one.store.crash(keep=lambda unflushed: unflushed if unflushed > 50 else 0)
    assert one.store.read_file("t-0/partition.metadata") == b"", "no flush of it has ended"
    one.load_again()
    assert one.log.topic_id == bytes(16)
    assert (one.log.log_start_offset, one.log.log_end_offset, one.values()) == (0, 0, [])
    (removed,) = one.logged.of(Event.RECOVERY_TRUNCATED)
    assert removed["size_bytes"] == before
    assert "partition.metadata" in str(removed["detail"])
    assert one.append(b"again").first_offset == 0
    one.load_again()
    assert one.values() == [(0, b"again")]


def test_a_flush_of_data_flushes_the_topic_id_first() -> None:
    one = OneLog()
    one.append(b"x")
    one.log.flush()
    one.store.crash()
    one.load_again()
    assert one.log.topic_id != bytes(16)
    assert one.values() == [(0, b"x")]


def test_epochs_whose_file_was_not_flushed_come_from_the_records() -> None:
    one = OneLog(**SMALL)
    one.log.append_as_leader(bytearray(batch(b"x" * 90)), leader_epoch=1)
    one.log.flush()
    one.manager.checkpoint_recovery_points(flush=True)
    for epoch in (2, 3):
        for _ in range(3):  # the segment of an epoch's beginning is flushed after its roll
            one.log.append_as_leader(bytearray(batch(b"x" * 90)), leader_epoch=epoch)
    assert one.log.advance_recovery_point() == 1, "it waits for the file"
    entries = list(one.log.leader_epochs.entries)
    one.store.crash(keep=lambda unflushed: unflushed if unflushed > 100 else 0)
    assert b"3 4" not in one.store.read_file("t-0/leader-epoch-checkpoint")
    one.load_again()
    assert one.log.leader_epochs.entries == entries == [(1, 0), (2, 1), (3, 4)]


def test_the_recovery_point_waits_for_the_topic_id() -> None:
    """It means that the data is on the disk together with the name of its topic."""
    one = OneLog(**SMALL)
    some_records(one)
    assert one.log.advance_recovery_point() == 0
    one.store.end_flushes()
    assert one.log.advance_recovery_point() == one.log.active.base_offset > 0


def test_a_directory_without_segments_is_an_empty_log() -> None:
    one = OneLog()
    one.manager.close()
    for name in one.files():
        one.store.delete(f"t-0/{name}")
    one.load_again()
    assert (one.log.log_start_offset, one.log.log_end_offset) == (0, 0)
    assert one.append(b"x").first_offset == 0


def test_a_clean_stop_keeps_producers_that_no_roll_has_saved() -> None:
    one = OneLog()
    one.append(b"x", producer=(7, 0, 0))
    one.restart()
    assert one.append(b"x", producer=(7, 0, 0)).duplicate


def test_open_transactions_of_a_snapshot_are_known_in_the_order_of_their_offsets() -> None:
    one = OneLog()
    one.append(b"x", producer=(1, 0, 0))
    one.append(b"t", producer=(2, 0, 0), transactional=True)
    one.append(b"t", producer=(1, 0, 1), transactional=True)
    one.commit_all()
    one.restart()
    one.commit_all()
    assert one.log.last_stable_offset == 1


def test_a_power_cut_after_a_clean_stop_loses_nothing() -> None:
    one = OneLog()
    one.append(b"x", epoch=3, producer=(7, 0, 0))
    one.manager.close()
    one.crash()
    assert one.values() == [(0, b"x")] and one.log.topic_id == bytes(range(16))
    assert one.log.leader_epochs.entries == [(3, 0)]
    assert one.append(b"x", epoch=3, producer=(7, 0, 0)).duplicate


def slow_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """A flush that is only started does not end."""
    file = "kwire.replication.core.memory_log_store._MemoryFile"
    monkeypatch.setattr(f"{file}.start_flush", lambda self, on_flushed=None: None)


def test_a_flush_covers_rolled_segments_that_are_not_on_the_disk_yet(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    slow_disk(monkeypatch)
    one = OneLog(**SMALL)
    some_records(one)
    one.log.flush()
    one.manager.checkpoint_recovery_points(flush=True)
    assert one.log.recovery_point == 60 and len(one.log.segments) > 2
    before = one.values()
    active = (
        f"{one.log.active.base_offset:020d}"  # recovery looks at it again, and rebuilds its indexes
    )
    names = [name for name in one.files() if name.endswith("index") and not name.startswith(active)]
    indexes = {name: one.store.read_file(f"t-0/{name}") for name in names}
    one.crash()
    assert one.values() == before
    assert {name: one.store.read_file(f"t-0/{name}") for name in indexes} == indexes


def test_the_recovery_point_waits_for_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    slow_disk(monkeypatch)
    one = OneLog()
    one.append(b"a")
    one.log.flush()
    one.append(b"b")
    one.log.roll()
    one.append(b"c")
    assert one.log.advance_recovery_point() == 1
    one.log.segments[0].flush()
    assert one.log.advance_recovery_point() == 2


def test_a_truncation_is_flushed_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a power cut might bring back what was cut off."""
    one = OneLog()
    for _ in range(3):
        one.append(b"x")
    one.log.flush()
    one.log.truncate_to(1)
    flushed: list[LogSegment] = []
    monkeypatch.setattr(LogSegment, "flush", lambda self: flushed.append(self))
    one.log.flush()
    assert flushed == [one.log.active]


@pytest.mark.parametrize("how", ["restart", "kill"])
def test_producers_are_known_after_a_restart(how: str) -> None:
    one = OneLog(**SMALL)
    for n in range(30):
        one.append(b"x" * 60, producer=(7, 0, n))
    one.append(b"t", producer=(8, 0, 0), transactional=True)
    one.commit_all()
    one.manager.checkpoint_high_watermarks()
    getattr(one, how)()
    assert one.append(b"x" * 60, producer=(7, 0, 29)).duplicate
    assert one.append(b"x", producer=(7, 0, 30)).first_offset == 31
    assert one.log.last_stable_offset == 30


@pytest.mark.parametrize("how", ["restart", "kill"])
@pytest.mark.parametrize("lose_snapshots", [False, True])
def test_aborted_transactions_are_known_after_a_restart(how: str, lose_snapshots: bool) -> None:
    one = OneLog(**SMALL)
    for n in range(12):
        one.append(b"x" * 60, producer=(n, 0, 0), transactional=True)
        one.append(b"x" * 60, producer=(n, 0, 1), transactional=True)
        end = marker(n, 0, commit=n % 2 == 0)
        one.log.append_as_leader(end, 0, origin=AppendOrigin.COORDINATOR)
    one.commit_all()
    before = one.log.aborted_transactions(0, one.log.log_end_offset)
    assert [txn.producer_id for txn in before] == [1, 3, 5, 7, 9, 11]
    if how == "restart":
        one.manager.close()
    if lose_snapshots:
        for name in one.files():
            if name.endswith(".snapshot"):
                one.store.delete(f"t-0/{name}")
    one.load_again()
    one.commit_all()
    assert one.log.last_stable_offset == one.log.log_end_offset
    assert one.log.aborted_transactions(0, one.log.log_end_offset) == before


@pytest.mark.parametrize("seed", [27, 1092701221, 3315503895, None])
def test_random_power_cuts_never_lose_flushed_records_nor_invent_any(seed: int | None) -> None:
    if seed is None:
        seed = random.randrange(1 << 32)
    print("seed", seed)  # shown when the test fails: put it into the list above
    chance = random.Random(seed)
    one = OneLog(segment_bytes=600, index_interval_bytes=50)
    model: list[tuple[int, bytes | None]] = []
    flushed = 0
    epoch = 0
    for _ in range(400):
        step = chance.random()
        if step < 0.75:
            values = [b"%d" % chance.randrange(10**6) for _ in range(chance.randint(1, 4))]
            info = one.append(*values, epoch=epoch, timestamp=NOW_MS + chance.randrange(1000))
            model += [(info.first_offset + n, value) for n, value in enumerate(values)]
        elif step < 0.80:
            end = chance.randint(max(flushed, 0), one.log.log_end_offset)
            boundaries = {0} | {h.base_offset for h in one.headers()} | {one.log.log_end_offset}
            end = max(offset for offset in boundaries if offset <= end)
            recovery_point = one.log.recovery_point
            one.log.truncate_to(end)
            if one.log.recovery_point < recovery_point:  # as who cuts a log does
                one.manager.checkpoint_recovery_points(flush=True)
            model = [entry for entry in model if entry[0] < end]
            flushed = min(flushed, end)
            epoch += 1  # a log is cut for another leader: an epoch never begins again further down
        elif step < 0.84:
            one.log.roll()
        elif step < 0.88:
            one.log.flush()
            flushed = one.log.log_end_offset
        elif step < 0.91:
            one.restart()
            flushed = one.log.log_end_offset
        elif step < 0.94:
            one.kill()
        elif step < 0.97:
            one.manager.checkpoint_recovery_points(flush=chance.random() < 0.5)
            one.manager.checkpoint_high_watermarks()
        else:
            one.crash(keep=lambda unflushed: chance.randint(0, unflushed))
            assert one.log.log_end_offset >= flushed, seed
            model = [entry for entry in model if entry[0] < one.log.log_end_offset]
            epoch += 1
        assert one.values() == model, seed
        assert one.log.log_end_offset == (model[-1][0] + 1 if model else one.log.log_end_offset)
        one.log.update_high_watermark(chance.randint(0, one.log.log_end_offset))
        check_invariants(one.log)


@pytest.mark.parametrize("lost", ["nothing", "the epoch file", "what the epoch file said last"])
def test_epochs_are_right_after_a_power_cut_whatever_the_state_of_their_file(lost: str) -> None:
    one = OneLog(**SMALL)
    some_records(one)
    one.commit_all()
    one.log.maybe_increment_log_start_offset(30)
    one.manager.checkpoint_log_starts(flush=True)
    one.log.flush()
    one.manager.checkpoint_recovery_points(flush=True)
    expected = [(1, 30), (2, 50)]
    assert one.log.leader_epochs.entries == expected
    if lost == "the epoch file":
        one.store.delete("t-0/leader-epoch-checkpoint")
    elif lost == "what the epoch file said last":
        one.store.write_file("t-0/leader-epoch-checkpoint", b"0\n1\n0 0\n")
    one.crash()
    assert one.log.log_start_offset == 30
    assert one.log.leader_epochs.entries == expected
    check_invariants(one.log)


def test_a_batch_larger_than_a_recovery_read_is_checked_as_a_whole() -> None:
    one = OneLog(max_message_bytes=4 << 20)
    one.append(b"small")
    one.append(b"x" * (3 << 20))
    one.append(b"after")
    one.kill()
    assert one.log.log_end_offset == 3
    data = bytearray(one.store.read_file("t-0/00000000000000000000.log"))
    data[2 << 20] ^= 1
    one.store.write_file("t-0/00000000000000000000.log", bytes(data))
    one.kill()
    assert one.values() == [(0, b"small")]


def test_a_high_watermark_beyond_a_lost_tail_does_not_come_back() -> None:
    one = OneLog()
    for value in (b"a", b"b", b"c", b"d"):
        one.append(value)
    one.commit_all()
    one.manager.checkpoint_high_watermarks(flush=True)
    one.crash()
    assert (one.log.log_end_offset, one.log.high_watermark) == (0, 0)
    one.append(b"not committed")
    one.kill()
    assert (one.log.log_end_offset, one.log.high_watermark) == (1, 0)


def test_epochs_from_before_a_full_truncation_do_not_come_back_after_a_power_cut() -> None:
    one = OneLog()
    one.append(b"a", b"b", epoch=3)
    one.log.flush()
    one.store.flush_file("t-0/leader-epoch-checkpoint")
    one.log.truncate_fully_and_start_at(5)
    one.crash()
    assert (one.log.log_start_offset, one.log.log_end_offset) == (5, 5)
    assert one.log.leader_epochs.entries == []


def test_a_truncated_epoch_does_not_come_back_among_batches_of_an_earlier_one() -> None:
    one = OneLog()
    one.append(b"a", b"b", epoch=3)
    one.log.leader_epochs.assign(6, 2)  # it has led, and written nothing
    one.log.truncate_to(2)  # follows one that is still in epoch 3
    one.append(b"c", epoch=3)
    one.log.flush()
    one.store.write_file("t-0/leader-epoch-checkpoint", b"0\n2\n3 0\n6 2\n")  # as it was before
    one.crash()
    assert one.log.log_end_offset == 3
    assert one.log.leader_epochs.entries == [(3, 0)]


def test_no_segment_stays_after_one_truncated_by_an_index_rebuild() -> None:
    one = OneLog()
    one.append(b"a")
    one.log.flush()
    one.manager.checkpoint_recovery_points(flush=True)
    one.append(b"b" * 50)
    one.log.roll()
    log_file = "t-0/00000000000000000000.log"
    torn = one.store.read_file(log_file)[:-5]
    one.store.write_file(log_file, torn)
    one.store.write_file("t-0/00000000000000000000.timeindex", b"damaged")
    one.kill()
    assert [segment.base_offset for segment in one.log.segments] == [0]
    assert one.log.log_end_offset == 1


@pytest.mark.parametrize("how", ["kill", "stop"])
def test_an_index_rebuild_cuts_no_flushed_segment_at_a_damaged_batch(how: str) -> None:
    """Readers find the batch by its checksum; what is behind it is there."""
    one = OneLog(**SMALL)
    some_records(one)
    one.log.flush()
    one.manager.checkpoint_recovery_points(flush=True)
    before, first = one.log.log_end_offset, one.log.segments[0]
    assert len(one.log.segments) > 2
    offsets = [batch.base_offset for batch in first.batches(0)]
    second = list(first.batches(0))[1]
    one.store.flip(f"t-0/{first.base_offset:020d}.log", second.position + second.size - 1)
    if how == "stop":
        one.manager.close()
    one.store.write_file(f"t-0/{first.base_offset:020d}.index", b"damaged")
    one.kill()
    assert one.log.log_end_offset == before
    assert [batch.base_offset for batch in one.log.segments[0].batches(0)] == offsets
