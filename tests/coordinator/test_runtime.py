"""The runtime between shards and log: waiting for the high watermark, failures, loading,
unloading."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest
from event_recorder import Recorder
from fastcrc.crc32 import iscsi as crc32c

from kwire.coordinator.config import GroupConfig
from kwire.coordinator.group_coordinator import GroupCoordinator, GroupShards
from kwire.coordinator.group_records import offset_commit_record, offset_commit_tombstone
from kwire.coordinator.offset_store import OffsetAndMetadata
from kwire.protocol.errors import ErrorCode, KafkaError
from kwire.protocol.record_builder import build_batch, end_transaction_marker
from kwire.protocol.records import CONTROL_ABORT, CONTROL_COMMIT, Record, iter_batches, stamp
from kwire.replication.core.clock import Clock, Timers
from kwire.replication.core.events import Event
from kwire.replication.core.work import FIRST_UNITS, WorkQueue
from kwire.shards.context import BATCH_BYTES_MAX, ShardState, response_error
from kwire.shards.result import Result, nothing
from kwire.shards.runtime import CoordinatorRuntime

KEY = ("__consumer_offsets", 2)


class FakeLog:
    """Batches in memory; the high watermark moves when a test says so."""

    def __init__(self) -> None:
        self.data = bytearray()
        self.log_start_offset = 0
        self.log_end_offset = 0
        self.high_watermark = 0

    def append(self, batch: bytes) -> None:
        buffer = bytearray(batch)
        stamp(buffer, 0, self.log_end_offset, 0)
        [header] = iter_batches(buffer)
        self.data += buffer
        self.log_end_offset = header.next_offset

    def read(self, offset: int, max_bytes: int, end_offset: int) -> Any:
        """One batch at a time: the hardest case for a reader."""
        for header in iter_batches(self.data):
            if header.last_offset >= offset:
                return SimpleNamespace(records=bytes(self.data[header.position : header.end]))
        return SimpleNamespace(records=b"")


class FakeReplicaManager:
    """One partition. `error` refuses appends; with `wait` they complete when `finish` is called."""

    def __init__(self) -> None:
        self.log = FakeLog()
        self.settled = -1
        self.partition = self.new_partition()
        self.error: ErrorCode | None = None
        self.wait = False
        self.waiting: list[Callable[[Any], None]] = []
        self.appends = 0
        self.timeouts: list[int] = []

    def new_partition(self) -> Any:
        return SimpleNamespace(
            topic=KEY[0],
            index=KEY[1],
            key=KEY,
            log=self.log,
            settled_offset=lambda: max(self.settled, self.log.high_watermark),
        )

    def append_records(
        self, *, timeout_ms: int, required_acks: int, entries: Any, origin: Any, on_complete: Any
    ) -> None:
        assert required_acks == -1 and origin.name == "COORDINATOR"
        self.timeouts.append(timeout_ms)
        if self.error is not None:
            on_complete({KEY: SimpleNamespace(error=self.error)})
            return
        self.appends += 1
        self.log.append(entries[KEY])
        if self.wait:
            self.waiting.append(on_complete)
            return
        self.log.high_watermark = self.log.log_end_offset
        on_complete({KEY: SimpleNamespace(error=ErrorCode.NONE)})

    def finish(self, error: ErrorCode = ErrorCode.NONE, high_watermark: int | None = None) -> None:
        """Completes the oldest append."""
        if error is ErrorCode.NONE:
            end = self.log.log_end_offset if high_watermark is None else high_watermark
            self.log.high_watermark = end
        self.waiting.pop(0)({KEY: SimpleNamespace(error=error)})


class Kit:
    def __init__(self) -> None:
        self.clock = Clock(now_ms=1_000, wall_ms=1_700_000_000_000)
        self.timers = Timers()
        self.replicas = FakeReplicaManager()
        self.logged = Recorder()
        self.runtime = CoordinatorRuntime(
            GroupShards(GroupConfig(), self.clock, Random(1)),
            self.clock,
            self.timers,
            self.replicas,  # type: ignore[arg-type]
            WorkQueue(self.clock),
            self.logged,
        )
        self.answers: list[Any] = []

    def lead(self) -> None:
        self.runtime.role_changed(self.replicas.partition, True)

    def partition_for(self, group_id: str) -> int:
        return KEY[1]

    def commit(self, offset: int, partition: int = 0) -> None:
        record = offset_commit_record("g", "t", partition, OffsetAndMetadata(offset))
        self.runtime.write(
            KEY[1], lambda _: Result([record], offset), self.answers.append, self.answers.append
        )

    def fetch(self, partition: int = 0) -> int:
        [(_, [(_, _, value)])] = self.runtime.read(
            KEY[1], lambda shard: shard.fetch_offsets("g", [("t", [partition])], False)
        )
        return -1 if value is None else value.committed_offset

    def written(self, *records: Any, **options: Any) -> None:
        """Puts records into the log as an earlier coordinator would have."""
        pairs = [record.encode() for record in records]
        batch = build_batch([Record(-1, 1, key, value) for key, value in pairs], **options)
        self.replicas.log.append(batch)
        self.replicas.log.high_watermark = self.replicas.log.log_end_offset


@pytest.fixture
def kit() -> Kit:
    kit = Kit()
    kit.lead()
    return kit


def offset_record(offset: int, partition: int = 0) -> Any:
    return offset_commit_record("g", "t", partition, OffsetAndMetadata(offset))


def test_a_response_waits_for_the_high_watermark_and_reads_see_nothing_before(kit: Kit) -> None:
    kit.replicas.wait = True
    kit.commit(5)
    assert kit.answers == [] and kit.fetch() == -1
    kit.replicas.finish()
    assert kit.answers == [5] and kit.fetch() == 5


def test_an_append_waits_as_long_as_its_result_says_or_its_coordinator(kit: Kit) -> None:
    kit.lead()
    for timeout_ms in (None, 70_000):
        record = offset_commit_tombstone("g", "t", 0)
        result = Result([record], None, timeout_ms=timeout_ms)
        kit.runtime.write(KEY[1], lambda _, result=result: result, kit.answers.append, _fail)
    assert kit.replicas.timeouts == [5_000, 70_000]


def _fail(error: ErrorCode) -> None:
    raise AssertionError(error)


def test_a_stable_read_waits_for_what_it_has_read(kit: Kit) -> None:
    def fetch_stable() -> None:
        GroupCoordinator.fetch_offsets(
            kit,  # type: ignore[arg-type]
            "g",
            [("t", [0])],
            True,
            lambda topics: kit.answers.append(topics[0][1][0]),
            kit.answers.append,
        )

    kit.commit(1)
    kit.answers.clear()
    in_transaction = Result([offset_record(5)], "written", producer=(7, 0))
    kit.runtime.write(KEY[1], lambda _: in_transaction, kit.answers.append, kit.answers.append)
    kit.replicas.wait = True
    kit.commit(1, partition=1)
    fetch_stable()  # waits for that commit
    marker = end_transaction_marker(
        CONTROL_COMMIT, coordinator_epoch=0, producer_id=7, producer_epoch=0, timestamp=1
    )
    kit.runtime.complete_transaction(KEY[1], 7, True, marker, kit.answers.append)
    fetch_stable()  # waits for the marker
    kit.replicas.finish(high_watermark=3)
    assert kit.answers == ["written", 1, (0, ErrorCode.UNSTABLE_OFFSET_COMMIT, None)]
    kit.replicas.finish()
    index, error, value = kit.answers[-1]
    assert (index, error, value.committed_offset) == (0, ErrorCode.NONE, 5)


def test_a_write_without_records_waits_for_the_writes_before_it(kit: Kit) -> None:
    kit.replicas.wait = True
    kit.commit(5)
    kit.runtime.write(KEY[1], lambda _: nothing(), kit.answers.append, kit.answers.append)
    assert kit.answers == []
    kit.replicas.finish()
    assert kit.answers == [5, None]
    kit.runtime.write(KEY[1], lambda _: nothing(), kit.answers.append, kit.answers.append)
    assert kit.answers == [5, None, None]


@pytest.mark.parametrize(
    ("error", "answer"),
    [
        (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.UNKNOWN_SERVER_ERROR),
        (ErrorCode.INVALID_TIMESTAMP, ErrorCode.INVALID_TIMESTAMP),
    ],
)
def test_a_failed_append_changes_nothing_and_returns_a_coordinator_error(
    kit: Kit, error: ErrorCode, answer: ErrorCode
) -> None:
    kit.replicas.error = error
    kit.commit(5)
    assert kit.answers == [answer]
    kit.replicas.error = None
    assert kit.fetch() == -1
    assert response_error(ErrorCode.REQUEST_TIMED_OUT) is ErrorCode.COORDINATOR_NOT_AVAILABLE


def test_a_refused_commit_does_not_appear_with_the_next_one(kit: Kit) -> None:
    kit.replicas.error = ErrorCode.NOT_ENOUGH_REPLICAS
    kit.commit(5, partition=0)
    kit.replicas.error = None
    kit.commit(6, partition=1)
    assert (kit.fetch(0), kit.fetch(1)) == (-1, 6)


@pytest.mark.parametrize(
    ("error", "answer"),
    [
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
def test_whoever_waits_behind_a_failed_append_gets_a_coordinator_error_too(
    kit: Kit, error: ErrorCode, answer: ErrorCode
) -> None:
    kit.replicas.wait = True
    kit.commit(5)
    kit.runtime.write(KEY[1], lambda _: nothing(), kit.answers.append, kit.answers.append)
    kit.replicas.finish(error)
    assert kit.answers == [answer, answer]


def test_a_write_that_timed_out_counts_when_it_is_committed_after_all(kit: Kit) -> None:
    kit.replicas.wait = True
    kit.commit(5)
    kit.replicas.finish(ErrorCode.REQUEST_TIMED_OUT)
    assert kit.answers == [ErrorCode.COORDINATOR_NOT_AVAILABLE]
    assert kit.fetch() == -1
    kit.replicas.log.high_watermark = 1
    assert kit.fetch() == 5


def test_answers_leave_after_the_operation_that_gave_them(kit: Kit) -> None:
    order: list[str] = []

    def operation(_: Any) -> Result[None]:
        deferred = kit.runtime.deferred(order.append)
        deferred.complete("answer")
        order.append("operation")
        return nothing()

    kit.runtime.write(KEY[1], operation, lambda _: order.append("response"), kit.answers.append)
    assert order == ["operation", "answer", "response"]


def test_an_append_that_ends_during_an_operation_answers_after_it(kit: Kit) -> None:
    kit.replicas.wait = True
    kit.commit(5)

    def operation(_: Any) -> Result[None]:
        kit.replicas.finish()
        kit.answers.append("operation")
        return nothing()

    kit.runtime.write(KEY[1], operation, kit.answers.append, kit.answers.append)
    assert kit.answers == ["operation", 5, None]


def test_an_answer_may_ask_again(kit: Kit) -> None:
    def again(value: Any) -> None:
        kit.answers.append(value)
        if value < 3:
            kit.runtime.write(
                KEY[1], lambda _: Result([offset_record(9)], value + 1), again, kit.answers.append
            )

    kit.runtime.write(KEY[1], lambda _: Result((), 0), again, kit.answers.append)
    assert kit.answers == [0, 1, 2, 3]


def test_a_shard_that_raises_a_kafka_error_answers_with_it(kit: Kit) -> None:
    def refuse(_: Any) -> Result[None]:
        raise KafkaError(ErrorCode.NON_EMPTY_GROUP)

    kit.runtime.write(KEY[1], refuse, kit.answers.append, kit.answers.append)
    assert kit.answers == [ErrorCode.NON_EMPTY_GROUP]


def test_partitions_that_are_not_led_have_no_coordinator() -> None:
    kit = Kit()
    kit.commit(5)
    assert kit.answers == [ErrorCode.NOT_COORDINATOR]
    with pytest.raises(KafkaError) as refusal:
        kit.fetch()
    assert refusal.value.code is ErrorCode.NOT_COORDINATOR


def test_loss_of_leadership_sends_waiters_away_and_silences_timers(kit: Kit) -> None:
    assert len(kit.timers) == 1  # the expiry of offsets
    kit.replicas.wait = True
    kit.commit(5)
    kit.runtime.role_changed(kit.replicas.partition, False)
    assert kit.answers == [ErrorCode.NOT_COORDINATOR]
    assert len(kit.timers) == 0
    kit.replicas.finish()
    assert len(kit.answers) == 1, "the late end of the append is nobody's any more"


def test_a_new_epoch_of_the_same_leader_keeps_the_shard(kit: Kit) -> None:
    context = kit.runtime.contexts[KEY[1]]
    kit.lead()
    assert kit.runtime.contexts[KEY[1]] is context


def test_a_new_partition_of_the_same_index_starts_from_its_own_log(kit: Kit) -> None:
    kit.commit(5)
    kit.replicas.log = FakeLog()
    kit.replicas.partition = kit.replicas.new_partition()
    kit.lead()
    assert kit.fetch() == -1


def test_a_loaded_shard_equals_the_written_one() -> None:
    kit = Kit()
    for offset in range(3):
        kit.written(offset_record(offset), offset_record(offset + 10, partition=1))
    kit.written(offset_commit_tombstone("g", "t", 1), compression="gzip")
    kit.lead()
    assert (kit.fetch(), kit.fetch(1)) == (2, -1)


def test_records_above_the_high_watermark_are_loaded_but_not_yet_seen() -> None:
    kit = Kit()
    kit.written(offset_record(1))
    kit.written(offset_record(2))
    kit.replicas.log.high_watermark = 1
    kit.lead()
    assert kit.fetch() == 1
    kit.replicas.log.high_watermark = 2
    assert kit.fetch() == 2


def test_what_no_election_can_lose_is_seen_although_the_high_watermark_was_lost() -> None:
    """A power cut, then an ISR under min.insync.replicas: the high watermark stays at 0 (seed 6009354)."""
    kit = Kit()
    kit.written(offset_record(1))
    kit.written(offset_record(2))
    kit.replicas.log.high_watermark, kit.replicas.settled = 0, 1
    kit.lead()
    assert kit.fetch() == 1
    kit.replicas.settled = 2
    assert kit.fetch() == 2


@pytest.mark.parametrize(("marker", "offset"), [(CONTROL_COMMIT, 7), (CONTROL_ABORT, 1)])
def test_transactions_in_the_log_are_loaded(marker: int, offset: int) -> None:
    kit = Kit()
    kit.written(offset_record(1))
    options = {"producer_id": 4, "producer_epoch": 0, "base_sequence": 0}
    kit.written(offset_record(7), is_transactional=True, **options)
    kit.replicas.log.append(
        end_transaction_marker(
            marker, producer_id=4, producer_epoch=0, coordinator_epoch=0, timestamp=1
        )
    )
    kit.replicas.log.high_watermark = kit.replicas.log.log_end_offset
    kit.lead()
    assert kit.fetch() == offset


def end(kit: Kit, commit: bool = True, index: int = KEY[1]) -> None:
    marker = end_transaction_marker(
        CONTROL_COMMIT if commit else CONTROL_ABORT,
        producer_id=4,
        producer_epoch=0,
        coordinator_epoch=0,
        timestamp=1,
    )
    kit.runtime.complete_transaction(index, 4, commit, marker, kit.answers.append)


def commit_in_transaction(kit: Kit, offset: int) -> None:
    kit.runtime.write(
        KEY[1],
        lambda _: Result([offset_record(offset)], offset, producer=(4, 0)),
        kit.answers.append,
        kit.answers.append,
    )


@pytest.mark.parametrize(("commit", "offset"), [(True, 7), (False, 1)])
def test_a_marker_decides_the_offsets_of_its_transaction_once_it_is_committed(
    commit: bool, offset: int
) -> None:
    kit = Kit()
    kit.lead()
    kit.commit(1)
    commit_in_transaction(kit, 7)
    [*_, header] = iter_batches(kit.replicas.log.data)
    assert header.is_transactional and (header.producer_id, header.base_sequence) == (4, 0)
    kit.replicas.wait = True
    end(kit, commit)
    assert kit.answers == [1, 7] and kit.fetch() == 1
    kit.replicas.finish()
    assert kit.answers == [1, 7, ErrorCode.NONE] and kit.fetch() == offset
    kit.runtime.role_changed(kit.replicas.partition, False)
    kit.lead()
    assert kit.fetch() == offset  # the log says the same


def test_a_marker_that_is_not_appended_ends_nothing(kit: Kit) -> None:
    commit_in_transaction(kit, 7)
    kit.replicas.error = ErrorCode.NOT_ENOUGH_REPLICAS
    end(kit)
    assert kit.answers == [7, ErrorCode.NOT_ENOUGH_REPLICAS] and kit.fetch() == -1
    kit.replicas.error = None
    end(kit)
    assert kit.fetch() == 7


def test_markers_need_the_loaded_shard(kit: Kit) -> None:
    end(kit, index=3)
    kit.runtime.contexts[KEY[1]].state = ShardState.LOADING
    end(kit)
    assert kit.answers == [ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS]


def test_broken_records_are_passed_over_and_reported() -> None:
    kit = Kit()
    kit.written(offset_record(1))
    for key in (b"\x00", b"\x00\x01\x00\x09", None):
        kit.replicas.log.append(build_batch([Record(-1, 1, key, b"x")]))
    kit.written(offset_record(2))
    kit.lead()
    assert kit.fetch() == 2
    (event,) = kit.logged.of(Event.GROUPS_UNREADABLE)
    assert (event["topic"], event["partition"], event["offset"]) == (*KEY, 1)


def test_a_batch_in_an_unknown_compression_does_not_stop_a_load() -> None:
    kit = Kit()
    kit.written(offset_record(1))
    data = bytearray(build_batch([Record(-1, 1, b"k", b"x")], compression="gzip"))
    data[22] |= 7  # the low bits of the attributes
    data[17:21] = crc32c(bytes(data[21:])).to_bytes(4, "big")
    kit.replicas.log.append(bytes(data))
    kit.written(offset_record(2))
    kit.lead()
    assert kit.fetch() == 2
    (event,) = kit.logged.of(Event.GROUPS_UNREADABLE)
    assert event["offset"] == 1


def test_a_log_whose_last_batches_compaction_has_removed_is_loaded() -> None:
    kit = Kit()
    kit.written(offset_record(1))
    kit.replicas.log.log_end_offset = kit.replicas.log.high_watermark = 9
    kit.lead()
    assert kit.fetch() == 1


def test_a_flipped_bit_in_the_offsets_is_reported_and_not_believed() -> None:
    kit = Kit()
    kit.written(offset_record(1))
    kit.written(offset_record(2))
    kit.replicas.log.data[-3] ^= 1
    kit.lead()
    assert kit.fetch() == 1
    (event,) = kit.logged.of(Event.GROUPS_UNREADABLE)
    assert "checksum" in str(event["detail"])


def test_many_records_that_need_not_stay_together_are_cut_into_batches(kit: Kit) -> None:
    metadata = "x" * 1000
    records = [
        offset_commit_record("g", "t", index, OffsetAndMetadata(index, metadata=metadata))
        for index in range(1_200)
    ]
    kit.runtime.write(
        KEY[1],
        lambda _: Result(records, "done", atomic=False),
        kit.answers.append,
        kit.answers.append,
    )
    sizes = [header.size for header in iter_batches(kit.replicas.log.data)]
    assert kit.answers == ["done"]
    assert len(sizes) == 3 and max(sizes) <= BATCH_BYTES_MAX + 61
    assert kit.fetch(1_199) == 1_199
    kit.lead()
    again = Kit()
    again.replicas = kit.replicas
    again.runtime.replica_manager = kit.replicas  # type: ignore[assignment]
    again.lead()
    work_off(again)
    assert again.fetch(1_199) == 1_199


def test_records_of_one_change_stay_in_one_batch_however_large(kit: Kit) -> None:
    metadata = "x" * 1000
    records = [
        offset_commit_record("g", "t", index, OffsetAndMetadata(index, metadata=metadata))
        for index in range(600)
    ]
    kit.runtime.write(
        KEY[1], lambda _: Result(records, "done"), kit.answers.append, kit.answers.append
    )
    assert kit.answers == ["done"] and kit.replicas.appends == 1
    assert len(kit.replicas.log.data) > BATCH_BYTES_MAX


def test_an_operation_of_all_shards_reaches_each(kit: Kit) -> None:
    kit.commit(5)
    kit.runtime.write_all(lambda shard: shard.on_partitions_deleted([("t", 0)]))
    assert kit.fetch() == -1


def test_a_timer_writes_like_a_request(kit: Kit) -> None:
    kit.commit(5)
    appends = kit.replicas.appends
    kit.clock.now_ms += 8 * 24 * 3600 * 1000
    kit.clock.wall_ms += 8 * 24 * 3600 * 1000
    deadline = kit.timers.next_deadline_ms()
    assert deadline is not None
    kit.timers.fire(deadline)
    assert kit.fetch() == -1 and kit.replicas.appends == appends + 1
    assert len(kit.timers) == 1, "the next expiry is scheduled"


# --- loading in parts


def _ignored(_: Any) -> None:
    """The outcome of a write."""


def full(commits: int) -> Kit:
    """A kit whose log has this many commits, and that does not lead yet."""
    kit = Kit()
    kit.lead()
    records = [
        offset_commit_record("g", "t", partition, OffsetAndMetadata(partition))
        for partition in range(commits)
    ]
    for start in range(0, commits, 10):
        some = records[start : start + 10]
        kit.runtime.write(KEY[1], lambda _, some=some: Result(some, None), _ignored, _ignored)
    kit.runtime.role_changed(kit.replicas.partition, False)
    kit.answers.clear()
    return kit


def work_off(kit: Kit) -> int:
    """Do all the work that waits; returns the number of turns."""
    turns = 0
    while kit.runtime.work.jobs:
        kit.clock.now_ms += 1
        kit.runtime.work.turn()
        turns += 1
    return turns


def test_a_large_log_is_loaded_in_parts_and_refuses_requests_meanwhile() -> None:
    kit = full(1500)
    kit.clock.now_ms += 1
    kit.lead()
    with pytest.raises(KafkaError) as refused:
        kit.fetch()
    assert refused.value.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    kit.commit(7)
    assert kit.answers == [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS]
    assert work_off(kit) >= 1500 * 20 // 8000
    assert [kit.fetch(partition) for partition in (0, 750, 1499)] == [0, 750, 1499]


def test_a_small_log_is_loaded_in_the_step_that_makes_this_broker_the_leader() -> None:
    kit = full(FIRST_UNITS // 20 - 30)
    kit.clock.now_ms += 1
    kit.lead()
    assert kit.fetch(3) == 3


def test_a_broker_that_loses_the_partition_meanwhile_stops_loading() -> None:
    kit = full(500)
    kit.clock.now_ms += 1
    kit.lead()
    assert kit.runtime.work.jobs
    kit.runtime.role_changed(kit.replicas.partition, False)
    work_off(kit)
    with pytest.raises(KafkaError) as refused:
        kit.fetch()
    assert refused.value.code is ErrorCode.NOT_COORDINATOR
    kit.clock.now_ms += 1
    kit.lead()
    work_off(kit)
    assert kit.fetch(499) == 499


def test_topics_that_are_deleted_meanwhile_lose_their_offsets_afterwards() -> None:
    kit = full(500)
    kit.clock.now_ms += 1
    kit.lead()
    kit.runtime.write_all(lambda shard: shard.on_partitions_deleted([("t", 3)]))
    work_off(kit)
    assert (kit.fetch(3), kit.fetch(4)) == (-1, 4)


def test_a_log_that_cannot_be_read_leaves_no_coordinator(monkeypatch: pytest.MonkeyPatch) -> None:
    kit = full(500)
    kit.clock.now_ms += 1
    kit.lead()

    def broken(*arguments: Any) -> Any:
        raise OSError("broken")

    monkeypatch.setattr(kit.replicas.log, "read", broken)
    monkeypatch.setattr("kwire.coordinator.group_records.decode_record", broken)
    with pytest.raises(OSError, match="broken"):
        work_off(kit)
    with pytest.raises(KafkaError) as refused:
        kit.fetch()
    assert refused.value.code is ErrorCode.NOT_COORDINATOR
