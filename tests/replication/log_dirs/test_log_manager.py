"""All logs of a directory: whose it is, what is made, kept, deleted and written down, and when."""

from __future__ import annotations

import pytest
from event_recorder import Recorder
from log_harness import NOW_MS, TOPIC_ID, OneLog, batch, clean_to_end, marker

from kwire.protocol.errors import ErrorCode, KafkaError
from kwire.protocol.records import iter_batches
from kwire.replication.config.broker_config import BrokerConfig
from kwire.replication.core.clock import Clock, Timers
from kwire.replication.core.events import Event
from kwire.replication.core.log_config import LogConfig
from kwire.replication.core.log_store import PartitionFault
from kwire.replication.core.memory_log_store import MemoryLogStore
from kwire.replication.core.work import Steps, WorkQueue, at_once
from kwire.replication.log.checkpoints import RECOVERY_POINTS, read_meta_properties, read_offsets
from kwire.replication.log.log import AppendOrigin, Log
from kwire.replication.log_dirs.cleaner import LogCleaner
from kwire.replication.log_dirs.manager import LogManager, parse_directory


class Managed:
    def __init__(
        self, store: MemoryLogStore | None = None, work: WorkQueue | None = None, **keys: str
    ) -> None:
        self.clock = Clock(0, NOW_MS)
        self.timers = Timers()
        self.store = store or MemoryLogStore(lambda: self.clock.wall_ms)
        self.logged = Recorder()
        self.halted: list[str] = []
        self.cleaned = 0
        self.manager = LogManager(
            self.store,
            self.clock,
            self.timers,
            BrokerConfig({key.replace("_", "."): value for key, value in keys.items()}),
            cluster_id="c1",
            node_id=4,
            clean_logs=self._clean,
            log_event=self.logged,
            on_all_failed=self.halted.append,
            work=work,
        )
        self.manager.load()

    def _clean(self, manager: LogManager) -> Steps:
        assert manager is self.manager
        self.cleaned += 1
        yield 1

    def wait(self, ms: int) -> None:
        self.clock.now_ms += ms
        self.clock.wall_ms += ms
        self.timers.fire(self.clock.now_ms)


def test_a_new_directory_gets_its_identity() -> None:
    managed = Managed()
    assert read_meta_properties(managed.store) == {
        "version": "1",
        "cluster.id": "c1",
        "node.id": "4",
    }


@pytest.mark.parametrize(
    ("properties", "says"),
    [
        (b"version=1\ncluster.id=other\nnode.id=4\n", "cluster other, not to c1"),
        (b"version=1\ncluster.id=c1\nnode.id=5\n", "node 5, not to 4"),
        (b"version=0\ncluster.id=c1\nbroker.id=5\n", "node 5, not to 4"),
        (b"version=2\n", "version 2"),
    ],
)
def test_a_directory_of_another_cluster_or_node_is_refused(properties: bytes, says: str) -> None:
    store = MemoryLogStore()
    store.write_file("meta.properties", properties)
    with pytest.raises(OSError, match=says):
        Managed(store)


def test_a_directory_of_the_same_node_is_accepted_unchanged() -> None:
    store = MemoryLogStore()
    kept = b"version=0\nbroker.id=4\ncluster.id=c1\n"
    store.write_file("meta.properties", kept)
    Managed(store)
    assert store.read_file("meta.properties") == kept


def test_without_a_cluster_id_the_directorys_is_taken() -> None:
    store = MemoryLogStore()
    store.write_file("meta.properties", b"version=1\ncluster.id=theirs\nnode.id=9\n")
    manager = LogManager(store, Clock(), Timers(), BrokerConfig())
    manager.load()
    assert (manager.cluster_id, manager.node_id) == ("theirs", 9)


def test_a_log_is_created_once_with_the_files_of_kafka() -> None:
    managed = Managed()
    config = LogConfig()
    log = managed.manager.get_or_create("t", 3, TOPIC_ID, config)
    assert managed.manager.get("t", 3) is log
    assert managed.manager.get("t", 4) is None
    assert list(managed.manager.logs()) == [log]
    assert managed.store.list_dir("t-3") == ["00000000000000000000.log", "partition.metadata"]
    other = LogConfig(retention_ms=1)
    assert managed.manager.get_or_create("t", 3, TOPIC_ID, other) is log
    assert log.config is other


def test_another_topic_of_the_same_name_is_refused() -> None:
    managed = Managed()
    managed.manager.get_or_create("t", 0, TOPIC_ID, LogConfig())
    with pytest.raises(KafkaError) as caught:
        managed.manager.get_or_create("t", 0, bytes(15) + b"x", LogConfig())
    assert caught.value.code == ErrorCode.INCONSISTENT_TOPIC_ID
    managed.manager.get_or_create("t", 0, bytes(16), LogConfig())


def test_a_log_without_an_id_gets_the_topics() -> None:
    managed = Managed()
    log = managed.manager.get_or_create("t", 0, bytes(16), LogConfig())
    assert not managed.store.exists("t-0/partition.metadata")
    managed.manager.get_or_create("t", 0, TOPIC_ID, LogConfig())
    assert log.topic_id == TOPIC_ID
    managed.manager.close()
    again = Managed(managed.store).manager.get("t", 0)
    assert again is not None and again.topic_id == TOPIC_ID


def test_a_failing_disk_is_a_storage_error() -> None:
    managed = Managed()
    managed.store.fail_next("write_file", OSError(28, "disk full"))
    with pytest.raises(KafkaError) as caught:
        managed.manager.get_or_create("t", 0, TOPIC_ID, LogConfig())
    assert caught.value.code == ErrorCode.KAFKA_STORAGE_ERROR
    # and the directory is not used again, new partition or not
    with pytest.raises(KafkaError) as caught:
        managed.manager.get_or_create("u", 0, TOPIC_ID, LogConfig())
    assert caught.value.code == ErrorCode.KAFKA_STORAGE_ERROR
    assert managed.halted == [
        "the only log directory has failed: cannot make the log of t-0: [Errno 28] disk full"
    ]


def test_an_injected_error_is_no_failure_of_the_directory() -> None:
    managed = Managed()
    managed.store.fail_next("write_file", PartitionFault(5, "I/O error"))
    with pytest.raises(KafkaError):
        managed.manager.get_or_create("t", 0, TOPIC_ID, LogConfig())
    managed.manager.get_or_create("u", 0, TOPIC_ID, LogConfig())
    assert managed.halted == []


def test_a_log_with_an_aborted_transaction_is_deleted_with_a_storage_error_on_a_failed_disk() -> (
    None
):
    managed = Managed()
    log = managed.manager.get_or_create("t", 0, TOPIC_ID, LogConfig())
    log.append_as_leader(
        batch(b"x", producer=(1, 0, 0), transactional=True), 0, origin=AppendOrigin.COORDINATOR
    )
    log.append_as_leader(marker(1, 0, commit=False), 0, origin=AppendOrigin.COORDINATOR)
    managed.store.break_dir("t-0", 5, "I/O error")
    with pytest.raises(KafkaError) as caught:
        managed.manager.delete("t", 0)
    assert caught.value.code == ErrorCode.KAFKA_STORAGE_ERROR
    assert log.closed


def test_a_deleted_log_is_removed_immediately_and_its_files_later() -> None:
    managed = Managed()
    log = managed.manager.get_or_create("t", 0, TOPIC_ID, LogConfig())
    log.append_as_leader(batch(b"x"), 0)
    managed.manager.delete("t", 0)
    managed.manager.delete("t", 0)
    assert managed.manager.get("t", 0) is None
    (name,) = [name for name in managed.store.list_dir() if name.startswith("t-")]
    assert name.startswith("t-0.") and name.endswith("-delete")
    assert len(name) == len("t-0.") + 32 + len("-delete")
    new = managed.manager.get_or_create("t", 0, bytes(16), LogConfig())
    assert new.log_end_offset == 0
    new.append_as_leader(batch(b"y"), 0)
    managed.wait(60_000)
    assert not managed.store.exists(name)
    assert new.read(0, 100, 1).next_offset == 1


@pytest.mark.parametrize("how", ["delete", "set_aside"])
def test_a_new_topic_does_not_start_from_the_offsets_of_a_deleted_one(how: str) -> None:
    managed = Managed()
    log = managed.manager.get_or_create("t", 0, TOPIC_ID, LogConfig())
    for _ in range(9):
        log.append_as_leader(batch(b"x"), 0)
    log.maybe_increment_high_watermark(9)
    log.maybe_increment_log_start_offset(8)
    managed.manager.checkpoint_log_starts()
    managed.manager.checkpoint_recovery_points()
    managed.manager.checkpoint_high_watermarks()
    getattr(managed.manager, how)("t", 0)
    managed.wait(1)
    new = managed.manager.get_or_create("t", 0, bytes(16), LogConfig())
    new.append_as_leader(batch(b"y"), 0)
    found = Managed(managed.store).manager.get("t", 0)  # the process was killed
    assert found is not None
    assert (found.log_start_offset, found.high_watermark, found.log_end_offset) == (0, 0, 1)


def test_the_longest_topic_name_can_be_deleted() -> None:
    managed = Managed()
    managed.manager.get_or_create("t" * 249, 0, TOPIC_ID, LogConfig())
    managed.manager.delete("t" * 249, 0)
    (name,) = [name for name in managed.store.list_dir() if name.endswith("-delete")]
    assert len(name) == 255


def test_a_deletion_is_finished_after_a_restart() -> None:
    managed = Managed()
    managed.manager.get_or_create("t", 0, TOPIC_ID, LogConfig())
    managed.manager.delete("t", 0)
    again = Managed(managed.store)
    assert list(again.manager.logs()) == []
    again.wait(60_000)
    assert not any(name.endswith("-delete") for name in managed.store.list_dir())


def test_only_partition_directories_are_logs() -> None:
    store = MemoryLogStore()
    for name in (
        "a-0",
        "b-c-12",
        "x",
        "-1",
        "t-0-stray",
        "t-1.abc-future",
        "__cluster_metadata-0",
        "t-٣",
    ):
        store.make_dir(name)
    managed = Managed(store)
    assert sorted((log.topic, log.partition) for log in managed.manager.logs()) == [
        ("a", 0),
        ("b-c", 12),
    ]
    assert parse_directory("t-1" + "0" * 11) is None


def test_checkpoints_are_written_at_their_intervals() -> None:
    managed = Managed()
    managed.manager.start()
    log = managed.manager.get_or_create("t", 0, TOPIC_ID, LogConfig())
    for _ in range(6):
        log.append_as_leader(batch(b"x"), 0)
    log.maybe_increment_high_watermark(5)
    log.maybe_increment_log_start_offset(2)
    log.flush()
    managed.wait(4999)
    assert not managed.store.exists("replication-offset-checkpoint")
    managed.wait(1)
    assert read_offsets(managed.store, "replication-offset-checkpoint") == {("t", 0): 5}
    managed.wait(25_000)
    assert read_offsets(managed.store, "recovery-point-offset-checkpoint") == {("t", 0): 6}
    assert read_offsets(managed.store, "log-start-offset-checkpoint") == {("t", 0): 2}
    log.maybe_increment_high_watermark(6)
    managed.wait(5000)
    assert read_offsets(managed.store, "replication-offset-checkpoint") == {("t", 0): 6}


def test_retention_and_compaction_run_at_their_intervals() -> None:
    managed = Managed(
        **{"log.retention.check.interval.ms": "1000", "log.cleaner.backoff.ms": "10000"}
    )
    managed.manager.start()
    log = managed.manager.get_or_create("t", 0, TOPIC_ID, LogConfig(retention_ms=1))
    both = frozenset({"compact", "delete"})
    compacted = managed.manager.get_or_create(
        "c", 0, TOPIC_ID, LogConfig(retention_ms=1, cleanup_policy=both)
    )
    for each in (log, compacted):
        each.append_as_leader(batch(b"x", timestamp=0, key=b"k"), 0)
        each.maybe_increment_high_watermark(1)
    managed.wait(29_999)
    assert (log.log_start_offset, managed.cleaned) == (0, 0)
    managed.wait(1)
    assert (log.log_start_offset, managed.cleaned) == (1, 1)
    assert compacted.log_start_offset == 0  # that is the cleaner's
    managed.wait(10_000)
    assert managed.cleaned == 2
    (deleted,) = managed.logged.of(Event.SEGMENTS_DELETED)
    assert (deleted["topic"], deleted["log_start_offset"]) == ("t", 1)
    assert deleted["reason"] == "retention_ms" and "retention.ms=1" in str(deleted["detail"])


def test_flush_ms_flushes() -> None:
    managed = Managed(**{"log.flush.scheduler.interval.ms": "100"})
    managed.manager.start()
    log = managed.manager.get_or_create("t", 0, TOPIC_ID, LogConfig(flush_ms=1000))
    log.append_as_leader(batch(b"x"), 0)
    managed.wait(900)
    assert log.recovery_point == 0
    managed.wait(30_000)
    assert log.recovery_point == 1


def test_a_failing_task_takes_the_directory_offline() -> None:
    managed = Managed()
    managed.manager.start()
    log = managed.manager.get_or_create("t", 0, TOPIC_ID, LogConfig())
    managed.store.fail_next("write_file", OSError(5, "I/O error"))
    managed.wait(5000)
    assert managed.logged.events == [Event.LOG_DIR_FAILED]
    assert "high-watermarks: [Errno 5] I/O error" in managed.logged.last.text
    assert managed.halted == [
        "the only log directory has failed: high-watermarks: [Errno 5] I/O error"
    ]
    assert log.closed and list(managed.manager.logs()) == []
    managed.wait(60_000)
    assert not managed.store.exists("replication-offset-checkpoint")
    managed.manager.close()
    assert not managed.store.exists(".kafka_cleanshutdown")


def test_a_task_with_an_injected_error_runs_again() -> None:
    managed = Managed()
    managed.manager.start()
    managed.manager.get_or_create("t", 0, TOPIC_ID, LogConfig())
    managed.store.fail_next("write_file", PartitionFault(5, "I/O error"))
    managed.wait(5000)
    assert managed.logged.events == [Event.STORAGE_FAULT]
    assert managed.logged.texts == ["high-watermarks: [Errno 5] I/O error"]
    managed.wait(5000)
    assert managed.store.exists("replication-offset-checkpoint")


def test_a_clean_shutdown_flushes_and_writes_its_file() -> None:
    managed = Managed()
    log = managed.manager.get_or_create("t", 0, TOPIC_ID, LogConfig())
    log.append_as_leader(batch(b"x", producer=(1, 0, 0)), 0)
    log.maybe_increment_high_watermark(1)
    managed.manager.close(broker_epoch=33)
    managed.manager.close()
    assert managed.store.exists(".kafka_cleanshutdown")
    managed.store.crash()  # the power goes right after
    again = Managed(managed.store)
    assert again.manager.previous_broker_epoch == 33
    assert not managed.store.exists(".kafka_cleanshutdown")
    found = again.manager.get("t", 0)
    assert found is not None
    assert (found.log_end_offset, found.high_watermark, found.recovery_point) == (1, 1, 1)
    assert again.logged.events == []
    assert found.append_as_leader(batch(b"x", producer=(1, 0, 0)), 0).duplicate


def test_a_failed_clean_shutdown_writes_no_file() -> None:
    managed = Managed()
    log = managed.manager.get_or_create("t", 0, TOPIC_ID, LogConfig())
    log.append_as_leader(batch(b"x"), 0)
    managed.store.fail_next("flush", OSError(5, "I/O error"))
    with pytest.raises(KafkaError):
        managed.manager.close()
    assert not managed.store.exists(".kafka_cleanshutdown")
    assert Managed(managed.store).manager.previous_broker_epoch == -1


@pytest.mark.parametrize("restarted", [False, True])
@pytest.mark.parametrize("how", ["delete", "set_aside"])
def test_a_new_topic_is_not_taken_for_clean_up_to_where_the_deleted_one_was(
    how: str, restarted: bool
) -> None:
    # given a compacted topic that is clean up to offset 5
    managed, compact = Managed(), LogConfig(cleanup_policy=frozenset({"compact"}))
    cleaner = LogCleaner()

    def fill(topic_id: bytes) -> Log:
        log = managed.manager.get_or_create("t", 0, topic_id, compact)
        for _ in range(5):
            log.append_as_leader(batch(b"x", key=b"k"), 0)
        log.maybe_increment_high_watermark(5)
        log.roll()
        return log

    fill(TOPIC_ID)
    clean_to_end(cleaner, managed.manager)
    assert cleaner.first_dirty_offset(managed.manager, fill(TOPIC_ID)) == 5
    if restarted:
        cleaner = LogCleaner()
    # when another takes its name
    getattr(managed.manager, how)("t", 0)
    log = fill(bytes(16))
    # then all of it is cleaned
    clean_to_end(cleaner, managed.manager)
    assert [header.base_offset for header in iter_batches(log.read(0, 10_000, 5).records)] == [4]
    # and a topic that is gone is not in the checkpoint
    getattr(managed.manager, how)("t", 0)
    at_once(cleaner.clean_logs(managed.manager))
    assert read_offsets(managed.store, "cleaner-offset-checkpoint") == {}


def test_checkpoints_without_a_deleted_log_survive_a_power_cut() -> None:
    """Else a new log of that name would take what was never flushed for flushed."""
    managed = Managed()
    log = managed.manager.get_or_create("t", 0, TOPIC_ID, LogConfig())
    log.append_as_leader(batch(b"x"), 0)
    log.flush()
    managed.manager.checkpoint_recovery_points(flush=True)
    assert read_offsets(managed.store, RECOVERY_POINTS) == {("t", 0): 1}
    managed.manager.delete("t", 0)
    managed.timers.fire(managed.clock.now_ms)
    managed.store.end_flushes()
    managed.store.crash()
    assert read_offsets(managed.store, RECOVERY_POINTS) == {}


def test_a_start_after_a_kill_drops_deleted_logs_from_the_checkpoints() -> None:
    managed = Managed()
    managed.store.write_file(RECOVERY_POINTS, b"0\n1\nt 0 5\n", flush=True)
    again = Managed(managed.store)
    again.timers.fire(again.clock.now_ms)
    managed.store.end_flushes()
    managed.store.crash()
    assert read_offsets(managed.store, RECOVERY_POINTS) == {}


def test_a_topic_that_is_deleted_after_a_restart_leaves_the_checkpoint() -> None:
    managed, compact = Managed(), LogConfig(cleanup_policy=frozenset({"compact"}))
    managed.store.write_file("cleaner-offset-checkpoint", b"0\n1\nt 0 5\n")
    log = managed.manager.get_or_create("t", 0, TOPIC_ID, compact)
    cleaner = LogCleaner()
    assert cleaner.first_dirty_offset(managed.manager, log) == 5
    managed.manager.delete("t", 0)
    clean_to_end(cleaner, managed.manager)
    assert read_offsets(managed.store, "cleaner-offset-checkpoint") == {}


def test_a_new_topic_is_cleaned_though_the_log_of_the_deleted_one_could_not_be() -> None:
    managed, compact = Managed(), LogConfig(cleanup_policy=frozenset({"compact"}))
    cleaner = LogCleaner()
    for damaged in (True, False):
        log = managed.manager.get_or_create("t", 0, bytes([damaged] * 16), compact)
        for _ in range(2):
            log.append_as_leader(batch(b"x", key=b"k"), 0)
        log.maybe_increment_high_watermark(2)
        log.roll()
        if damaged:
            log.segments[0].file.data[-2] ^= 0xFF  # type: ignore[attr-defined]
        clean_to_end(cleaner, managed.manager)
        left = [header.base_offset for header in iter_batches(log.read(0, 10_000, 2).records)]
        assert left == ([0, 1] if damaged else [1])
        managed.manager.delete("t", 0)


def killed(managed: Managed) -> Managed:
    """The process died: what it had written is there, nothing was closed."""
    return Managed(managed.store)


def test_a_log_start_inside_a_segment_is_there_after_a_restart() -> None:
    managed = Managed()
    log = managed.manager.get_or_create("t", 0, TOPIC_ID, LogConfig())
    for _ in range(4):
        log.append_as_leader(batch(b"x"), 0)
    log.maybe_increment_high_watermark(4)
    log.maybe_increment_log_start_offset(3)
    managed.manager.checkpoint_log_starts()
    found = killed(managed).manager.get("t", 0)
    assert found is not None and found.log_start_offset == 3


def test_log_starts_are_kept_when_a_log_has_lost_its_segments_to_its_disk() -> None:
    managed = Managed()
    for partition in (0, 1):
        log = managed.manager.get_or_create("t", partition, TOPIC_ID, LogConfig())
        for _ in range(4):
            log.append_as_leader(batch(b"x"), 0)
        log.maybe_increment_high_watermark(4)
        log.maybe_increment_log_start_offset(3)
    managed.store.break_dir("t-1", 5, "Input/output error")
    with pytest.raises(KafkaError):
        log.truncate_fully_and_start_at(9)
    assert log.segments == []
    managed.store.mend()
    managed.manager.checkpoint_log_starts()
    logs = killed(managed).manager.logs()
    assert [log.log_start_offset for log in logs] == [3, 3]


def test_the_recovery_point_is_there_after_a_kill() -> None:
    managed = Managed()
    log = managed.manager.get_or_create("t", 0, TOPIC_ID, LogConfig())
    log.append_as_leader(batch(b"x"), 0)
    log.flush()
    managed.manager.checkpoint_recovery_points()
    log.append_as_leader(batch(b"y"), 0)
    found = killed(managed).manager.get("t", 0)
    assert found is not None and (found.recovery_point, found.log_end_offset) == (1, 2)


def test_without_a_clean_stop_a_damaged_batch_is_cut_at_the_start() -> None:
    # given a clean stop, and later a kill
    managed = Managed()
    managed.manager.get_or_create("t", 0, TOPIC_ID, LogConfig())
    managed.manager.close()
    managed = Managed(managed.store)
    log = managed.manager.get("t", 0)
    assert log is not None
    for value in (b"x", b"y"):
        log.append_as_leader(batch(value), 0)
    log.segments[0].file.data[-2] ^= 0xFF  # type: ignore[attr-defined]
    # then the old marker says nothing about it
    again = killed(managed)
    found = again.manager.get("t", 0)
    assert found is not None and found.log_end_offset == 1
    assert Event.RECOVERY_TRUNCATED in again.logged.events


def test_a_lost_tail_is_not_committed_when_others_take_its_offsets() -> None:
    # given a high watermark on the disk, and records that a power cut takes
    managed = Managed()
    log = managed.manager.get_or_create("t", 0, TOPIC_ID, LogConfig())
    for _ in range(3):
        log.append_as_leader(batch(b"x"), 0)
    log.maybe_increment_high_watermark(3)
    managed.manager.checkpoint_high_watermarks(flush=True)
    managed.store.crash()
    # when the broker comes back, writes other records and is killed before the next checkpoint
    again = Managed(managed.store)
    found = again.manager.get("t", 0)
    assert found is not None and found.log_end_offset == 0
    found.append_as_leader(batch(b"y"), 1)
    # then nobody has committed them
    found = killed(again).manager.get("t", 0)
    assert found is not None and (found.high_watermark, found.log_end_offset) == (0, 1)


def test_a_file_system_that_ignores_case_does_not_get_two_names_for_one_directory() -> None:
    managed = Managed()
    managed.store.ignores_case = True
    managed.manager.get_or_create("orders", 0, TOPIC_ID, LogConfig())
    with pytest.raises(KafkaError, match="does not tell Orders-0 from orders-0") as caught:
        managed.manager.get_or_create("Orders", 0, bytes(16), LogConfig())
    assert caught.value.code == ErrorCode.KAFKA_STORAGE_ERROR
    managed.manager.get_or_create("Orders", 1, bytes(16), LogConfig())


def test_a_failed_directory_is_not_touched_for_an_old_deletion() -> None:
    managed = Managed()
    managed.manager.get_or_create("t", 0, TOPIC_ID, LogConfig())
    managed.manager.delete("t", 0)
    managed.manager.fail(managed.manager.directories[0], "Input/output error")
    managed.wait(60_000)
    assert [name for name in managed.store.list_dir() if name.endswith("-delete")]


def test_a_periodic_task_runs_again_after_an_error() -> None:
    managed = Managed(**{"log.cleaner.backoff.ms": "10000"})
    rounds = []

    def fail(manager: LogManager) -> None:
        rounds.append(managed.clock.now_ms)
        raise OSError(5, "I/O error")

    managed.manager.clean_logs = fail
    managed.manager.start()
    managed.wait(30_000)
    managed.wait(10_000)
    assert rounds == [30_000, 40_000]
    assert managed.logged.events == [Event.STORAGE_TASK_FAILED] * 2
    assert managed.logged.texts[0] == "periodic task cleaner failed: [Errno 5] I/O error"


def test_idle_producers_expire() -> None:
    managed = Managed()
    managed.manager.start()
    log = managed.manager.get_or_create("t", 0, TOPIC_ID, LogConfig())
    log.append_as_leader(batch(b"x", producer=(1, 0, 0)), 0)
    managed.wait(600_000)
    assert list(log.producer_state.producers) == [1]
    managed.wait(86_400_000)
    assert list(log.producer_state.producers) == []


def test_the_expiry_of_producers_changes_while_the_broker_runs() -> None:
    managed = Managed()
    managed.manager.start()
    old = managed.manager.get_or_create("t", 0, TOPIC_ID, LogConfig())
    old.append_as_leader(batch(b"x", producer=(1, 0, 0)), 0)
    managed.manager.config.set_dynamic({"producer.id.expiration.ms": "1000"}, {})
    new = managed.manager.get_or_create("t", 1, TOPIC_ID, LogConfig())
    new.append_as_leader(batch(b"x", producer=(2, 0, 0)), 0)
    assert new.producer_state.producer_id_expiration_ms == 1_000
    managed.wait(600_000)
    assert not old.producer_state.producers and not new.producer_state.producers


def test_many_empty_logs_restart_without_new_files() -> None:
    one = OneLog()
    for partition in range(1, 20):
        one.manager.get_or_create("t", partition, TOPIC_ID, one.config)
    one.restart()
    before = {name: one.store.list_dir(name) for name in one.store.list_dir()}
    one.restart()
    assert {name: one.store.list_dir(name) for name in one.store.list_dir()} == before


def test_a_periodic_task_is_done_in_parts_and_comes_again_after_its_end() -> None:
    work = WorkQueue(Clock())
    managed = Managed(work=work, log_retention_check_interval_ms="1000")
    logs = []
    for number in range(300):
        config = LogConfig(segment_bytes=200, retention_ms=0, file_delete_delay_ms=0)
        log = managed.manager.get_or_create("t", number, TOPIC_ID, config)
        for _ in range(6):
            log.append_as_leader(batch(b"x" * 100), 0)
        log.maybe_increment_high_watermark(6)
        logs.append(log)
    managed.manager.start()
    work.first_units = work.turn_units = 1000
    managed.wait(30_000)
    turns = 0
    managed.manager.delete("t", 299)
    while work.jobs:
        counts = [len(log.segments) for log in logs]
        work.turn()
        assert sum(counts) - sum(len(log.segments) for log in logs) <= 60
        turns += 1
    assert turns >= 10
    assert {log.log_start_offset for log in logs[:-1]} == {6}
    logs[0].append_as_leader(batch(b"x" * 100), 0)
    logs[0].maybe_increment_high_watermark(7)
    managed.wait(999)
    assert logs[0].log_start_offset == 6
    managed.wait(1)
    while work.jobs:
        work.turn()
    assert logs[0].log_start_offset == 7


def test_a_log_of_many_segments_loses_some_at_a_time() -> None:
    managed = Managed()
    config = LogConfig(segment_bytes=200, retention_ms=0)
    log = managed.manager.get_or_create("t", 0, TOPIC_ID, config)
    for _ in range(50):
        log.append_as_leader(batch(b"x" * 100), 0)
    log.maybe_increment_high_watermark(50)
    managed.wait(1)
    steps = log.apply_retention()
    starts = []
    for _ in steps:
        starts.append(log.log_start_offset)
    assert starts == [20, 40, 50]
    assert log.delete_old_segments(1) == 0


def test_retention_ends_with_its_log() -> None:
    managed = Managed()
    config = LogConfig(segment_bytes=200, retention_ms=0)
    log = managed.manager.get_or_create("t", 0, TOPIC_ID, config)
    for _ in range(50):
        log.append_as_leader(batch(b"x" * 100), 0)
    log.maybe_increment_high_watermark(50)
    managed.wait(1)
    steps = log.apply_retention()
    next(steps)
    managed.manager.delete("t", 0)
    assert list(steps) == []
    assert len(log.segments) == 30


def test_recovery_points_advance_by_themselves() -> None:
    managed = Managed()
    log = managed.manager.get_or_create("t", 0, TOPIC_ID, LogConfig(segment_bytes=200))
    for _ in range(3):
        log.append_as_leader(batch(b"x" * 100), 0)
    assert log.recovery_point == 0
    managed.manager.start()
    managed.wait(90_000)
    found = read_offsets(managed.store, "recovery-point-offset-checkpoint")
    assert found == {("t", 0): log.active.base_offset} and log.active.base_offset > 0
