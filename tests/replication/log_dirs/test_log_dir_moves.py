"""Replicas move between the log directories of a broker (KIP-113): what is copied, when they change places, errors."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from follower_rig import topic_id
from log_harness import batch, check_invariants, marker, stamped
from test_scenarios_log_dirs import EIO, A, B, TwoDisks, order

from kwire.apis.cluster import handle_alter_replica_log_dirs, handle_describe_log_dirs
from kwire.protocol.errors import ErrorCode
from kwire.protocol.records import iter_batches
from kwire.protocol.schemas.cluster import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
    DescribeLogDirsRequest,
)
from kwire.replication.core.log_config import LogConfig
from kwire.replication.core.log_store import PartitionFault
from kwire.replication.core.memory_log_store import MemoryLogStore
from kwire.replication.log.checkpoints import HIGH_WATERMARKS, RECOVERY_POINTS, read_offsets
from kwire.replication.log.log import AppendOrigin, Log
from kwire.replication.log_dirs.manager import InconsistentLogDirs


@pytest.fixture
def two() -> TwoDisks:
    """t-0 in A, t-1 in B."""
    disks = TwoDisks()
    disks.create()
    return disks


def context(two: TwoDisks) -> Any:
    services = SimpleNamespace(
        log_manager=two.node.log_manager,
        replica_manager=two.node.manager,
        log_dir="",
        disk_space=lambda path: (1000, len(path)),
    )
    replies: list[Any] = []
    return SimpleNamespace(services=services, reply=replies.append, replies=replies)


def answer(two: TwoDisks, handler: Any, request: Any) -> Any:
    """The response that a handler gives at once."""
    ctx = context(two)
    handler(ctx, request)
    (response,) = ctx.replies
    return response


def alter(two: TwoDisks, path: str, index: int = 0, topic: str = "t") -> int:
    request = AlterReplicaLogDirsRequest(
        dirs=[
            AlterReplicaLogDir(
                path=path, topics=[AlterReplicaLogDirTopic(name=topic, partitions=[index])]
            )
        ]
    )
    response = answer(two, handle_alter_replica_log_dirs, request)
    ((partition,),) = [result.partitions for result in response.results]
    return int(partition.error_code)


def describe(two: TwoDisks) -> dict[str, Any]:
    """Directory → its error, or topic-partition → (size, lag, whether it is a future one)."""
    response = answer(two, handle_describe_log_dirs, DescribeLogDirsRequest(topics=None))
    return {
        result.log_dir: result.error_code
        or {
            f"{topic.name}-{p.partition_index}": (p.partition_size, p.offset_lag, p.is_future_key)
            for topic in result.topics
            for p in topic.partitions
        }
        for result in response.results
    }


def step(two: TwoDisks, ms: int = 1) -> None:
    two.rig.clock.now_ms += ms
    two.tick()


def content(log: Log) -> list[bytes]:
    """The bytes of every batch, in order; not of those before the log start, which do not move."""
    found = []
    for segment in log.segments:
        data = segment.file.read(0, segment.size)
        found += [
            bytes(data[h.position : h.position + h.size])
            for h in iter_batches(data)
            if h.last_offset >= log.log_start_offset
        ]
    return found


def state(log: Log) -> tuple[Any, ...]:
    return (
        content(log),
        log.log_start_offset,
        log.high_watermark,
        log.last_stable_offset,
        log.log_end_offset,
        log.leader_epochs.entries,
        {p: (e.producer_epoch, e.last_sequence) for p, e in log.producer_state.producers.items()},
        log.topic_id,
    )


def checkpointed(two: TwoDisks, path: str) -> dict[Any, int]:
    return read_offsets(two.stores[path], HIGH_WATERMARKS)


def moved(two: TwoDisks, before: tuple[Any, ...], index: int = 0) -> Log:
    """What is now in B, and that it is what was in A."""
    log = two.node.manager.by_key["t", index].log
    assert two.where(index) == B and two.node.log_manager.get("t", index) is log
    assert two.node.log_manager.future("t", index) is None
    assert state(log) == before
    check_invariants(log)
    return log


def test_a_replica_moves_with_all_its_state(two: TwoDisks) -> None:
    # given records of two epochs, an open transaction and an aborted one, several segments, records deleted
    log = two.node.log()
    for number in range(5):
        two.produce()
        log.append_as_leader(batch(b"x", producer=(7, 0, number)), 1)
    log.append_as_leader(batch(b"a", producer=(8, 0, 0), transactional=True), 1)
    log.append_as_leader(marker(8, 0, commit=False), 1, origin=AppendOrigin.COORDINATOR)
    log.roll()
    assert order(two, 0, 3) == 0
    log.append_as_leader(batch(b"y", producer=(9, 0, 0), transactional=True), 3)
    assert order(two, 0, 4) == 0  # an epoch without records
    log.update_high_watermark(log.log_end_offset)
    log.maybe_increment_log_start_offset(2)
    before, aborted = state(log), log.aborted_transactions(0, 20)
    assert aborted and log.last_stable_offset < log.log_end_offset
    # when it is ordered to the other directory
    assert alter(two, B) == 0
    assert two.where(0) == A
    step(two)
    # then it is there a step later, the same in everything
    after = moved(two, before)
    # and what was only copied is not taken for flushed
    assert after.recovery_point == 0
    # and the checkpoints say so: a power cut finds it where it is
    assert checkpointed(two, B)["t", 0] == after.high_watermark
    assert ("t", 0) not in checkpointed(two, A)
    assert after.aborted_transactions(0, 20) == aborted
    # and the old one is deleted after a minute
    (old,) = [name for name in two.stores[A].list_dir() if name.startswith("t-0")]
    assert old.endswith("-delete")
    step(two, 60_000)
    assert not [name for name in two.stores[A].list_dir() if name.startswith("t-0")]
    # and it goes on there, also after a restart
    assert two.produce() == 0
    assert two.where(0) == B
    two.node.log_manager.close()
    two.start()
    assert two.where(0) == B and order(two, 0, 5) == 0
    assert two.node.log().log_end_offset == before[4] + 1


def test_a_transaction_whose_marker_is_not_replicated_yet_stays_undecided_after_a_move(
    two: TwoDisks,
) -> None:
    # given a transaction that has ended, with its marker above the high watermark
    log = two.node.log()
    log.append_as_leader(batch(b"x"), 1)
    log.append_as_leader(batch(b"a", producer=(8, 0, 0), transactional=True), 1)
    log.append_as_leader(batch(b"y"), 1)
    log.update_high_watermark(log.log_end_offset)
    log.append_as_leader(marker(8, 0, commit=False), 1, origin=AppendOrigin.COORDINATOR)
    before, stable = state(log), log.last_stable_offset
    assert stable < log.high_watermark < log.log_end_offset
    # when the replica moves
    assert alter(two, B) == 0
    step(two)
    # then read_committed ends where it did, until the marker is replicated
    after = moved(two, before)
    assert after.last_stable_offset == stable
    after.update_high_watermark(after.log_end_offset)
    assert after.last_stable_offset == after.log_end_offset


def test_a_transaction_of_which_retention_has_left_nothing_ends_with_a_move_for_who_waits(
    two: TwoDisks, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = two.node.log()
    log.append_as_leader(batch(b"a", producer=(8, 0, 0), transactional=True), 1)
    log.append_as_leader(batch(b"x"), 1)
    log.append_as_leader(batch(b"y"), 1)
    log.update_high_watermark(log.log_end_offset)
    log.maybe_increment_log_start_offset(1)
    assert log.last_stable_offset == 1
    stable: list[int] = []
    monkeypatch.setattr(
        type(two.node.manager),
        "complete_waiting",
        lambda manager, key: stable.append(manager.by_key[key].log.last_stable_offset),
    )
    assert alter(two, B) == 0
    step(two)
    assert two.where(0) == B and stable == [3]


def test_a_large_log_moves_in_pieces_while_producers_write(
    two: TwoDisks, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kwire.replication.replica.moves.STEP_BYTES", 200)
    for _ in range(20):
        two.produce()
    alter(two, B)
    steps = 0
    while two.where(0) == A:
        if steps < 5:
            two.produce()
        future = two.node.log_manager.future("t", 0)
        assert future is not None
        size, lag, is_future = describe(two)[B]["t-0"]
        assert is_future and size == future.size_bytes
        assert lag == two.node.log().log_end_offset - future.log_end_offset > 0
        step(two)
        steps += 1
    assert steps > 5
    assert two.node.log().log_end_offset == 25
    assert describe(two)[B]["t-0"][1:] == (0, False)
    assert "t-0" not in describe(two)[A]


def test_truncations_and_deletions_of_the_current_log_apply_to_the_future_log(
    two: TwoDisks, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kwire.replication.replica.moves.STEP_BYTES", 400)
    log = two.node.log()
    for epoch in (1, 1, 1, 1, 1, 2, 2, 2, 2, 2):
        log.append_as_leader(batch(b"old"), epoch)
    alter(two, B)
    step(two)
    future = two.node.log_manager.future("t", 0)
    assert future is not None and future.log_end_offset > 5
    future.flush()
    two.node.log_manager.checkpoint_recovery_points(flush=True)
    # when the current log is cut within the first epoch and goes on otherwise
    log.truncate_to(3)
    for _ in range(9):
        log.append_as_leader(batch(b"new"), 5)
    before = state(log)
    step(two)
    # then a recovery will look at all that is new there
    assert read_offsets(two.stores[B], RECOVERY_POINTS)["t", 0] <= 3 < future.log_end_offset
    while two.where(0) == A:
        step(two)
    moved(two, before)


def test_a_log_that_restarts_during_a_move_is_copied_again(
    two: TwoDisks, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kwire.replication.replica.moves.STEP_BYTES", 150)
    log = two.node.log()
    for _ in range(5):
        log.append_as_leader(batch(b"old"), 1)
    alter(two, B)
    step(two)
    log.truncate_fully_and_start_at(100)
    log.append_as_leader(batch(b"new"), 2)
    before = state(log)
    while two.where(0) == A:
        step(two)
    moved(two, before)


def test_a_gap_that_compaction_left_at_the_log_end_moves_too(two: TwoDisks) -> None:
    log = two.node.log()
    log.append_as_leader(batch(b"a"), 1)
    log.append_as_follower(stamped(batch(b"b"), 10, 1))
    log.truncate_to(10)
    assert log.log_end_offset == 10
    alter(two, B)
    step(two)
    assert two.where(0) == B and two.node.log().log_end_offset == 10
    assert two.produce() == 0


def test_a_future_log_has_the_configuration_of_its_topic(
    two: TwoDisks, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kwire.replication.replica.moves.STEP_BYTES", 100)
    for _ in range(5):
        two.produce()
    alter(two, B)
    log, future = two.node.log(), two.node.log_manager.future("t", 0)
    log.config = LogConfig(segment_bytes=4321)
    step(two)
    assert two.where(0) == A and future is not None and future.config is log.config


def test_no_move_begins_while_any_directory_is_offline() -> None:
    """That one might hold the partition's future log already."""
    two = TwoDisks()
    two.stores = {path: MemoryLogStore() for path in (A, B, "/disk/c")}
    two.start()
    two.create(1)
    third = two.node.log_manager.directory("/disk/c")
    assert third is not None and two.where(0) == A
    two.node.log_manager.fail(third, "broken")
    assert alter(two, B) == ErrorCode.KAFKA_STORAGE_ERROR
    assert two.node.log_manager.future("t", 0) is None


def test_the_log_start_inside_a_batch_moves_too(two: TwoDisks) -> None:
    log = two.node.log()
    log.append_as_leader(batch(b"a", b"b", b"c", b"d"), 1)
    log.update_high_watermark(4)
    log.maybe_increment_log_start_offset(2)
    before = state(log)
    alter(two, B)
    step(two)
    moved(two, before)


def test_a_follower_moves_while_it_follows(two: TwoDisks) -> None:
    two.rig.lead(2, 2, partitions=[0])
    for _ in range(3):
        two.rig[2].produce()
    two.rig.run()
    assert alter(two, B) == 0
    two.rig.wait(5)
    assert two.where(0) == B
    two.rig[2].produce()
    two.rig.wait(600)
    assert two.node.manager.by_key["t", 0].log.log_end_offset == 4
    assert content(two.node.log()) == content(two.rig[2].log())


def test_a_move_continues_after_a_restart(two: TwoDisks, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kwire.replication.replica.moves.STEP_BYTES", 200)
    for _ in range(9):
        two.produce()
    alter(two, B)
    step(two)
    two.node.log_manager.close()
    two.start()
    future = two.node.log_manager.future("t", 0)
    assert future is not None and 0 < future.log_end_offset < 9
    assert order(two, 0, 2) == 0
    before = state(two.node.log())
    while two.where(0) == A:
        step(two)
    moved(two, before)


def test_a_move_continues_after_a_power_cut_that_took_the_topics_id(two: TwoDisks) -> None:
    two.produce()
    two.node.log_manager.checkpoint_recovery_points(flush=True)
    two.node.log().flush()
    alter(two, B)
    for store in two.stores.values():
        store.crash()
    two.start()
    future = two.node.log_manager.future("t", 0)
    assert future is not None and future.topic_id == bytes(16)
    assert order(two, 0, 2) == 0
    before = state(two.node.log())
    step(two)
    assert moved(two, before).topic_id == topic_id("t")
    for store in two.stores.values():  # now it is on the disk
        store.crash()
    log = two.start().log_manager.get("t", 0)
    assert log is not None and log.topic_id == topic_id("t")


def test_the_topics_id_of_a_moved_log_is_flushed_before_its_data(two: TwoDisks) -> None:
    two.produce()
    alter(two, B)
    two.stores[B].end_flushes = lambda: None  # that of the future log takes its time
    step(two)
    log = two.node.manager.by_key["t", 0].log
    assert two.where(0) == B and not log.is_topic_id_flushed
    log.flush()
    path = f"{log.directory}/partition.metadata"
    assert two.stores[B].flushed_size(path) == len(two.stores[B].content(path))


@pytest.mark.parametrize("is_over", [True, False])
def test_what_a_failed_move_has_left_does_not_end_a_later_one(
    two: TwoDisks, monkeypatch: pytest.MonkeyPatch, is_over: bool
) -> None:
    two.produce()
    fault = PartitionFault(5, "Input/output error", "t-0")
    two.stores[B].fail_next("write_file", fault)
    assert alter(two, B) == ErrorCode.KAFKA_STORAGE_ERROR
    left = [name for name in two.stores[B].list_dir() if name.endswith("-future")]
    two.rig.clock.wall_ms += 1
    alter(two, B)
    if is_over:
        step(two)
    else:  # killed in the middle
        monkeypatch.setattr("kwire.replication.replica.moves.STEP_BYTES", 0)
        step(two)
        monkeypatch.undo()
    before = state(two.node.log())
    two.start()
    assert order(two, 0, 2) == 0
    for _ in range(3):
        step(two)
    log = two.node.manager.by_key["t", 0].log
    assert two.where(0) == B and content(log) == before[0] and two.failed == []
    step(two, 60_000)
    assert left[0] not in two.stores[B].list_dir()


def test_a_move_back_cancels_a_move(two: TwoDisks) -> None:
    two.produce()
    alter(two, B)
    assert alter(two, A) == 0
    assert two.node.log_manager.future("t", 0) is None
    step(two)
    assert two.where(0) == A and two.produce() == 0
    assert [name for name in two.stores[B].list_dir() if name.startswith("t-0.")]
    step(two, 60_000)
    assert not [name for name in two.stores[B].list_dir() if name.startswith("t-0.")]


def test_deleting_a_partition_cancels_its_move(two: TwoDisks) -> None:
    two.produce()
    alter(two, B)
    two.node.stop()
    step(two)
    assert two.node.log_manager.future("t", 0) is None and two.where(0) is None
    step(two, 60_000)
    for store in two.stores.values():
        assert not [name for name in store.list_dir() if name.startswith("t-0")]


def test_the_directory_of_a_future_replica_can_be_chosen(two: TwoDisks) -> None:
    assert alter(two, B, index=5) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    two.rig.metadata(2, 1, "t", [6], [2], topic_id("t"))
    assert alter(two, B, index=6) == ErrorCode.REPLICA_NOT_AVAILABLE
    for index in (5, 6):
        assert order(two, index, 1, is_new=True) == 0
        assert two.where(index) == B
    assert two.node.log_manager.preferred == {}


def test_invalid_moves_are_refused(two: TwoDisks) -> None:
    assert alter(two, "/disk/c") == ErrorCode.LOG_DIR_NOT_FOUND
    assert alter(two, A) == 0  # it is there
    assert alter(two, f"{A}/") == 0
    assert alter(two, B, topic="t" * 230) == ErrorCode.INVALID_TOPIC_EXCEPTION
    two.breaks(B)
    two.produce(1)
    assert alter(two, B) == ErrorCode.KAFKA_STORAGE_ERROR
    assert alter(two, A, index=1) == ErrorCode.KAFKA_STORAGE_ERROR
    assert two.node.log_manager.future("t", 0) is None
    assert describe(two)[B] == ErrorCode.KAFKA_STORAGE_ERROR


def test_a_target_directory_that_fails_during_a_move_loses_nothing(two: TwoDisks) -> None:
    two.produce()
    alter(two, B)
    two.breaks(B)
    step(two)
    assert two.failed == [B]
    step(two)
    assert two.where(0) == A and two.produce() == 0
    assert ("t", 0) not in two.node.manager.offline


def test_a_source_directory_that_fails_at_the_end_of_a_move_loses_nothing(two: TwoDisks) -> None:
    """The new log is in its place when the old one cannot be renamed."""
    two.produce()
    before = state(two.node.log())
    alter(two, B)

    def fail(*_: Any) -> None:
        raise EIO

    two.stores[A].rename = fail
    step(two)
    moved(two, before)
    assert two.failed == [A] and two.produce() == 0
    # Both logs are there when A works again. Kafka refuses them, too, and with the same advice.
    del two.stores[A].rename
    with pytest.raises(InconsistentLogDirs, match="delete one of the two, most likely that in the"):
        two.start()
    two.stores[A].delete_dir("t-0")
    two.start()
    assert two.where(0) == B and two.where(1) == B


def test_the_directories_are_described_with_their_space(two: TwoDisks) -> None:
    two.produce()
    response = answer(two, handle_describe_log_dirs, DescribeLogDirsRequest(topics=None))
    assert [(r.log_dir, r.total_bytes, r.usable_bytes) for r in response.results] == [
        (A, 1000, 7),
        (B, 1000, 7),
    ]
    size = two.node.log().size_bytes
    assert describe(two) == {A: {"t-0": (size, 0, False)}, B: {"t-1": (0, 0, False)}}


# --- the throttle

THROTTLE = "replica.alter.log.dirs.io.max.bytes.per.second"
MEBIBYTE = 1 << 20


def throttle(two: TwoDisks, rate: int | None) -> None:
    two.node.log_manager.config.set_dynamic({}, {} if rate is None else {THROTTLE: str(rate)})


def fill(two: TwoDisks, mebibytes: int, index: int = 0) -> None:
    log = two.node.log(index=index)
    for _ in range(mebibytes):
        log.append_as_leader(batch(bytes(MEBIBYTE - 200)), 1)


def seconds_until_moved(two: TwoDisks, *indexes: int) -> list[float]:
    """When each is in B, in its order."""
    begin_ms, ends = two.rig.clock.now_ms, {}
    while len(ends) < len(indexes):
        step(two, 10)
        for index in indexes:
            if two.where(index) == B and index not in ends:
                ends[index] = (two.rig.clock.now_ms - begin_ms) / 1000
        assert two.rig.clock.now_ms - begin_ms < 100_000
    return list(ends.values())


@pytest.mark.parametrize(("rate", "seconds"), [(MEBIBYTE, 19), (4 * MEBIBYTE, 4.75)])
def test_a_throttled_move_has_its_rate(two: TwoDisks, rate: int, seconds: float) -> None:
    fill(two, 20)
    throttle(two, rate)
    assert alter(two, B) == 0
    (took,) = seconds_until_moved(two, 0)
    assert took == pytest.approx(seconds, rel=0.1)  # what is copied last is not waited for
    check_invariants(two.node.log())


def test_moves_share_the_throttle(two: TwoDisks) -> None:
    two.rig.lead(1, 1, partitions=[2], is_new=True)
    assert [two.where(index) for index in (0, 2)] == [A, A]
    for index in (0, 2):
        fill(two, 5, index)
        assert alter(two, B, index) == 0
    throttle(two, MEBIBYTE)
    first, second = seconds_until_moved(two, 0, 2)
    assert second == pytest.approx(9, rel=0.15) and first < second


def test_a_throttle_can_be_changed_and_removed(two: TwoDisks) -> None:
    fill(two, 20)
    throttle(two, 1)
    assert alter(two, B) == 0
    for _ in range(500):
        step(two, 10)
    assert two.where(0) == A
    throttle(two, None)
    (took,) = seconds_until_moved(two, 0)
    assert took < 1.1
    assert two.node.manager.moves._rate is None  # what was copied without one does not count later


def test_a_throttle_of_nothing_stops_moves(two: TwoDisks) -> None:
    fill(two, 1)
    throttle(two, 0)
    assert alter(two, B) == 0
    for _ in range(500):
        step(two, 10)
    assert two.where(0) == A
    throttle(two, MEBIBYTE)
    assert seconds_until_moved(two, 0)[0] < 1.1


def test_what_is_appended_meanwhile_is_moved_too(two: TwoDisks) -> None:
    fill(two, 3)
    throttle(two, MEBIBYTE)
    assert alter(two, B) == 0
    for _ in range(100):
        step(two, 10)
    assert two.where(0) == A and two.produce() == 0
    seconds_until_moved(two, 0)
    check_invariants(two.node.log())


def test_without_a_throttle_nothing_is_counted(two: TwoDisks) -> None:
    assert alter(two, B) == 0
    step(two)
    assert two.where(0) == B and two.node.manager.moves._rate is None
