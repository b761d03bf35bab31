"""Scenario S87, and the rules for several log directories of a broker (KIP-112): who gets what, what fails together."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from follower_rig import Node, Rig, topic_id
from log_harness import batch, clean_to_end

from kwire.protocol.errors import ErrorCode, KafkaError
from kwire.protocol.schemas.control_plane import (
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrTopicState,
    StopReplicaPartitionState,
    StopReplicaRequest,
    StopReplicaTopicState,
)
from kwire.replication.core.events import Event
from kwire.replication.core.log_config import LogConfig
from kwire.replication.core.memory_log_store import MemoryLogStore
from kwire.replication.log.checkpoints import read_meta_properties, read_offsets
from kwire.replication.log_dirs.cleaner import LogCleaner
from kwire.replication.log_dirs.manager import InconsistentLogDirs
from kwire.replication.replica.status import describe

A, B = "/disk/a", "/disk/b"
EIO = OSError(5, "Input/output error")


class TwoDisks:
    """A rig whose broker 1 has the log directories A and B; t-0 is in A, t-1 in B."""

    def __init__(self, brokers: int = 2) -> None:
        self.rig = Rig(brokers)
        self.stores: dict[str, Any] = {A: MemoryLogStore(), B: MemoryLogStore()}
        self.failed: list[str] = []
        self.start()

    def start(self, **dirs: Any) -> Node:
        """Broker 1 starts (again), with what is on its disks."""
        self.node = node = Node(self.rig, 1, dirs={**self.stores, **dirs})
        self.rig.nodes[1] = node
        node.log_manager.failure_listeners.append(lambda d: self.failed.append(d.path))
        return node

    def create(self, partitions: int = 2) -> None:
        for index in range(partitions):
            self.rig.lead(1, 1, partitions=[index], is_new=True)

    def where(self, index: int, topic: str = "t") -> str | None:
        for directory in self.node.log_manager.directories:
            if (topic, index) in directory.logs:
                return directory.path
        return None

    def produce(self, index: int = 0) -> int:
        return int(self.node.produce(index=index).error)

    def breaks(self, path: str) -> None:
        """From now on everything that is written there fails."""

        def fail(*_: Any, **__: Any) -> None:
            raise EIO

        store = self.stores[path]
        for file in store._files.values():
            file._store = store
        store.take_fault = fail
        store.make_dir = fail

    def tick(self) -> None:
        self.node.timers.fire(self.rig.clock.now_ms)


@pytest.fixture
def two() -> TwoDisks:
    return TwoDisks()


def order(two: TwoDisks, index: int, epoch: int, *, is_new: bool = False) -> int:
    """What broker 1 answers when it is told to lead a partition."""
    state = LeaderAndIsrPartitionState(
        partition_index=index,
        leader=1,
        leader_epoch=epoch,
        partition_epoch=epoch,
        replicas=[1, 2],
        isr=[1, 2],
        is_new=is_new,
    )
    named = LeaderAndIsrTopicState(topic_name="t", topic_id=topic_id("t"), partition_states=[state])
    response = two.node.manager.become_leader_or_follower(LeaderAndIsrRequest(topic_states=[named]))
    return int(response.topics[0].partition_errors[0].error_code)


def test_S87_one_of_two_directories_fails_and_the_other_keeps_serving(two: TwoDisks) -> None:
    # given t-0 in the first directory, t-1 in the second
    two.create()
    assert (two.where(0), two.where(1)) == (A, B)
    assert (two.produce(0), two.produce(1)) == (0, 0)
    heard: list[Any] = []
    two.node.manager.role_listeners.append(lambda p, leads: heard.append((p.key, leads)))
    two.breaks(B)
    # when something is written to the second
    assert two.produce(1) == ErrorCode.KAFKA_STORAGE_ERROR
    # then it is offline as a whole, whoever asks what, and who leads is told a tick later
    assert two.failed == [B]
    assert two.produce(1) == ErrorCode.KAFKA_STORAGE_ERROR
    two.tick()
    assert heard == [(("t", 1), False)]
    assert two.where(1) is None
    status = describe(two.node.manager)
    assert (status.offline_replica_count, status.offline_log_directory_count) == (1, 1)
    (failed,) = two.node.logged.of(Event.LOG_DIR_FAILED)
    assert failed["log_dir"] == B == "/disk/b"
    (lost,) = two.node.logged.of(Event.LOG_DIR_REPLICAS_OFFLINE)
    assert lost == {"log_dir": B, "partitions": ["t-1"]}
    # and the first goes on, with no word of halting
    assert two.produce(0) == 0
    assert two.node.log().log_end_offset == 2
    assert two.node.halted == []


def test_S87_all_partitions_of_a_directory_fail_with_the_first(two: TwoDisks) -> None:
    two.create(4)
    assert [two.where(i) for i in range(4)] == [A, B, A, B]
    two.breaks(A)
    assert two.produce(2) == ErrorCode.KAFKA_STORAGE_ERROR
    assert set(two.node.manager.offline) == {("t", 0), ("t", 2)}
    assert [two.produce(i) for i in range(4)] == [56, 0, 56, 0]


def test_S87_a_log_that_may_be_on_the_failed_disk_is_not_created_again(two: TwoDisks) -> None:
    # given the second directory has failed
    two.create()
    two.breaks(B)
    two.produce(1)
    two.tick()
    # when the controller orders an old partition of which there is no log, and one that is offline
    # then both are refused; nothing empty is made in the directory that works
    assert order(two, 1, 2) == ErrorCode.KAFKA_STORAGE_ERROR
    assert order(two, 7, 1) == ErrorCode.KAFKA_STORAGE_ERROR
    assert two.stores[A].list_dir("t-7") == [] and two.stores[A].list_dir("t-1") == []
    # and a new partition is made there
    assert order(two, 8, 1, is_new=True) == 0
    assert two.where(8) == A


def test_S87_a_directory_that_fails_during_a_LeaderAndIsr_is_not_used_by_the_rest_of_it(
    two: TwoDisks,
) -> None:
    # given a broker that starts, with t-1 and t-3 on a disk that fails once, when t-1's topic id is to be written
    two.create(4)
    two.node.log_manager.close()
    two.stores[B].delete("t-1/partition.metadata")
    two.start()
    two.stores[B].fail_next("write_file", EIO)  # once is enough
    # when it is told to lead everything at once
    with pytest.raises(AssertionError):
        two.rig.lead(1, 2, partitions=[1, 3, 0, 2], to=[1])
    # then nothing on that disk is led, and nothing of it in another directory
    assert set(two.node.manager.by_key) == {("t", 0), ("t", 2)}
    assert two.node.manager.offline == {("t", 1), ("t", 3)}
    assert [two.where(i) for i in (0, 2)] == [A, A]
    assert not [name for name in two.stores[A].list_dir() if name in ("t-1", "t-3")]


def stop(two: TwoDisks, index: int) -> int:
    """What broker 1 answers when it is told to delete a partition."""
    state = StopReplicaPartitionState(partition_index=index, leader_epoch=-2, delete_partition=True)
    named = StopReplicaTopicState(topic_name="t", partition_states=[state])
    response = two.node.manager.stop_replicas(StopReplicaRequest(topic_states=[named]))
    return int(response.partition_errors[0].error_code)


def test_S87_a_log_that_cannot_be_deleted_is_not_taken_for_deleted(two: TwoDisks) -> None:
    # given t-1 in a directory of its own that fails
    two.create()
    two.stores[B].break_dir("t-1", 5, "Input/output error")
    # when its topic is deleted, again and again
    # then the controller hears that it is still there
    assert stop(two, 1) == ErrorCode.KAFKA_STORAGE_ERROR
    assert stop(two, 1) == ErrorCode.KAFKA_STORAGE_ERROR
    # and a new topic of that name gets no second log in the other directory
    two.node.log_manager.delete("t", 0)
    assert order(two, 1, 1, is_new=True) == ErrorCode.KAFKA_STORAGE_ERROR
    assert "t-1" not in two.stores[A].list_dir()
    # after the next start it is found and deleted
    two.stores[B].mend()
    two.start()
    assert two.where(1) == B
    assert stop(two, 1) == 0
    assert two.where(1) is None


def test_S87_a_stray_that_cannot_be_set_aside_is_in_the_way_of_a_new_log(two: TwoDisks) -> None:
    # given a log of which the controller knows no topic any more, on a disk that fails
    two.create()
    two.stores[B].break_dir("t-1", 5, "Input/output error")
    two.node.manager.become_leader_or_follower(LeaderAndIsrRequest(type=2))
    assert two.where(0) is None and two.where(1) is None
    # then a new topic of that name has no log here until the next start
    assert order(two, 1, 1, is_new=True) == ErrorCode.KAFKA_STORAGE_ERROR
    assert order(two, 0, 1, is_new=True) == 0


def test_S87_what_a_failed_directory_holds_takes_no_role_in_the_same_order(two: TwoDisks) -> None:
    # given two partitions in one directory
    two.create(4)
    assert [two.where(index) for index in range(4)] == [A, B, A, B]
    # when an order that raises their epochs finds at the first of them that it cannot be written
    two.stores[B].fail_next("write_file", EIO)
    with pytest.raises(AssertionError, match=r"56>, .*: 0>, .*56>"):
        two.rig.lead(1, 2, partitions=[1, 0, 3], to=[1])
    # then none of the directory leads
    assert set(two.node.manager.by_key) == {("t", 0), ("t", 2)}


def test_S87_the_last_directory_halts_the_broker(two: TwoDisks) -> None:
    two.create()
    for path, index in ((A, 0), (B, 1)):
        two.breaks(path)
        two.produce(index)
    assert two.node.halted == [
        "every log directory has failed: Failed to append to partition t-1: [Errno 5] Input/output error"
    ]


def test_S87_a_directory_fails_while_its_broker_follows(two: TwoDisks) -> None:
    # given broker 1 follows 2 in both directories
    two.create()
    two.rig.lead(2, 2, partitions=[0, 1])
    two.rig[2].produce(index=0)
    two.rig[2].produce(index=1)
    two.rig.run()
    assert [two.node.log(index=i).log_end_offset for i in (0, 1)] == [1, 1]
    # when one cannot be written any more
    two.breaks(B)
    two.rig[2].produce(index=1)
    two.rig[2].produce(index=0)
    two.rig.wait(10)
    # then only its partition is followed no more
    assert two.node.log(index=0).log_end_offset == 2
    assert two.failed == [B]
    assert set(two.node.manager.offline) == {("t", 1)}
    followed = {k for f in two.node.fetchers.fetchers.values() for k in f.states}
    assert followed == {("t", 0)}


def test_a_broker_starts_without_a_directory_that_cannot_be_opened(two: TwoDisks) -> None:
    # given a clean stop, after which the second disk is gone
    two.create()
    two.produce(0)
    two.node.log_manager.close(broker_epoch=5)
    # when it starts again
    node = two.start(**{B: None})
    # then what is in the first is there, and the rest is refused
    assert order(two, 0, 2) == 0
    assert order(two, 1, 2) == ErrorCode.KAFKA_STORAGE_ERROR
    assert two.produce(0) == 0
    # and the stop does not count as a clean one of all
    assert node.log_manager.previous_broker_epoch == -1


def test_a_directory_that_cannot_be_read_at_the_start_is_offline(two: TwoDisks) -> None:
    two.create()
    two.node.log_manager.close(broker_epoch=5)
    two.stores[B].write_file("replication-offset-checkpoint", b"rubbish")
    node = two.start()
    assert [d.is_online for d in node.log_manager.directories] == [True, False]
    assert (order(two, 0, 2), order(two, 1, 2)) == (0, ErrorCode.KAFKA_STORAGE_ERROR)


def test_a_clean_shutdown_needs_all_directories(two: TwoDisks) -> None:
    two.create()
    two.produce(1)
    two.node.log_manager.close(broker_epoch=5)
    assert all(store.exists(".kafka_cleanshutdown") for store in two.stores.values())
    node = two.start()
    assert node.log_manager.previous_broker_epoch == 5
    assert node.log(index=1).recovery_point == 1


def test_every_directory_has_its_own_checkpoints(two: TwoDisks) -> None:
    two.create(3)
    for index in range(3):
        two.produce(index)
        log = two.node.log(index=index)
        log.update_high_watermark(1)
        log.maybe_increment_log_start_offset(1)
    two.node.log_manager.close()
    for name in (
        "replication-offset-checkpoint",
        "recovery-point-offset-checkpoint",
        "log-start-offset-checkpoint",
    ):
        assert read_offsets(two.stores[A], name) == {("t", 0): 1, ("t", 2): 1}
        assert read_offsets(two.stores[B], name) == {("t", 1): 1}


def test_every_directory_has_an_id_that_stays(two: TwoDisks) -> None:
    ids = [read_meta_properties(two.stores[path])["directory.id"] for path in (A, B)]
    assert len(set(ids)) == 2 and all(len(each) == 22 for each in ids)
    two.start()
    assert ids == [read_meta_properties(two.stores[path])["directory.id"] for path in (A, B)]


def test_a_formerly_only_directory_gets_an_id_and_keeps_its_properties(two: TwoDisks) -> None:
    two.stores[A] = MemoryLogStore()
    two.stores[A].write_file("meta.properties", b"version=1\ncluster.id=c\nnode.id=1\n")
    two.start()
    found = read_meta_properties(two.stores[A])
    assert found.pop("directory.id")
    assert found.pop("kwire.log.dirs") == f"{A},{B}"
    assert found == {"version": "1", "cluster.id": "c", "node.id": "1"}


def test_a_copy_of_a_directory_beside_it_is_refused(two: TwoDisks) -> None:
    two.stores[B].write_file("meta.properties", two.stores[A].read_file("meta.properties"))
    with pytest.raises(InconsistentLogDirs, match=r"same directory\.id"):
        two.start()


def test_directories_of_two_clusters_are_refused(two: TwoDisks) -> None:
    two.stores[B].write_file("meta.properties", b"version=1\ncluster.id=x\nnode.id=1\n")
    with pytest.raises(InconsistentLogDirs, match="/disk/b belongs to cluster x, not to c"):
        two.start()


def test_a_partition_in_two_directories_is_refused(two: TwoDisks) -> None:
    two.create()
    two.stores[A].make_dir("t-1")
    with pytest.raises(InconsistentLogDirs, match="t-1 is in two log directories, /disk/a and"):
        two.start()


def test_a_new_log_goes_into_the_directory_with_the_fewest_logs(two: TwoDisks) -> None:
    two.create(3)
    two.node.log_manager.delete("t", 1)
    two.create(0)
    for index in (5, 6, 7):
        assert order(two, index, 1, is_new=True) == 0
    assert [two.where(i) for i in (0, 2, 5, 6, 7)] == [A, A, B, B, A]


def test_a_directory_that_cannot_create_logs_is_skipped(two: TwoDisks) -> None:
    two.breaks(A)
    assert order(two, 0, 1, is_new=True) == 0
    assert two.where(0) == B and two.failed == [A]


def test_a_deleted_log_is_deleted_in_its_directory(two: TwoDisks) -> None:
    two.create()
    two.node.log_manager.delete("t", 1)
    assert [name for name in two.stores[B].list_dir() if name.endswith("-delete")]
    assert not [name for name in two.stores[A].list_dir() if name.endswith("-delete")]
    two.node.timers.fire(two.rig.clock.now_ms + 60_000)
    two.rig.clock.now_ms += 60_000
    two.tick()
    assert not [name for name in two.stores[B].list_dir() if name.endswith("-delete")]


def test_a_clean_stop_with_a_failed_directory_marks_the_other(two: TwoDisks) -> None:
    two.create()
    two.breaks(B)
    two.produce(1)
    two.tick()
    two.node.log_manager.close()
    assert two.stores[A].exists(".kafka_cleanshutdown")
    assert not two.stores[B].exists(".kafka_cleanshutdown")


def test_a_stop_in_which_one_directory_fails_marks_the_other(two: TwoDisks) -> None:
    two.create()
    two.produce(1)
    two.breaks(B)
    with pytest.raises((OSError, KafkaError)):
        two.node.log_manager.close()
    assert two.stores[A].exists(".kafka_cleanshutdown")
    assert not two.stores[B].exists(".kafka_cleanshutdown")
    assert two.node.halted == []


def test_a_directory_knows_which_of_its_own_logs_are_clean(two: TwoDisks) -> None:
    two.create()
    manager, compact = two.node.log_manager, LogConfig(cleanup_policy=frozenset({"compact"}))
    for index in (0, 1):
        log = manager.get_or_create("t", index, bytes(16), compact)
        for _ in range(3):
            log.append_as_leader(batch(b"x"), 1)
        log.roll()
        log.update_high_watermark(log.log_end_offset)
    # what a directory says of a replica that has moved away counts no more
    two.stores[A].write_file("cleaner-offset-checkpoint", b"0\n1\nt 1 3\n")
    two.stores[B].write_file("cleaner-offset-checkpoint", b"0\n1\nt 0 3\n")
    cleaner = LogCleaner()
    for index in (0, 1):
        assert cleaner.first_dirty_offset(manager, manager.get("t", index)) is None
    clean_to_end(cleaner, manager)
    for path, index in ((A, 0), (B, 1)):
        assert read_offsets(two.stores[path], "cleaner-offset-checkpoint") == {("t", index): 3}


def test_an_index_of_aborted_transactions_that_cannot_be_read_is_a_failed_disk(
    two: TwoDisks,
) -> None:
    two.create()

    def fail(*_: Any) -> None:
        raise EIO

    two.node.log(index=1).active.txn_index = SimpleNamespace(collect=fail)
    with pytest.raises(KafkaError) as caught:
        two.node.log(index=1).aborted_transactions(0, 1)
    assert caught.value.code == ErrorCode.KAFKA_STORAGE_ERROR
    assert two.failed == [B]
