"""A shard of transactional ids over time: commits that wait or fail, markers, time-outs, expiry, replay."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from txn_kit import EPOCH, ID, PID, T0, T1, WALL_MS, TxnKit

from kwire.protocol.errors import ErrorCode, MalformedMessage
from kwire.replication.core.clock import Clock
from kwire.transactions.coordinator import TransactionShards
from kwire.transactions.events import TransactionEvent
from kwire.transactions.metadata import TV_0, TV_2
from kwire.transactions.records import decode_record, values_of

NONE = ErrorCode.NONE
FENCED = ErrorCode.PRODUCER_FENCED
BUSY = ErrorCode.CONCURRENT_TRANSACTIONS
ABORTED = ["PrepareAbort", "CompleteAbort"]
LAST = 32766  # the last epoch that a client may have


def test_a_change_takes_effect_when_its_record_is_committed() -> None:
    kit = TxnKit()
    kit.put("Empty")
    kit.hold = True
    assert kit.add(T0) is None
    assert kit.values.state.name == "Empty" and kit.add(T1) is BUSY
    assert kit.init() is BUSY and kit.end() is BUSY
    kit.commit()
    assert kit.values.state.name == "Ongoing" and kit.add(T1) is None


def test_a_change_that_cannot_be_written_is_given_up() -> None:
    kit = TxnKit()
    kit.put("Ongoing")
    kit.fail_with = ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert kit.end() is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert kit.sent == [] and kit.values.state.name == "Ongoing"
    kit.fail_with = None
    assert kit.end() == (NONE, -1, -1)
    assert kit.written == ["PrepareCommit", "CompleteCommit"]


def test_a_record_may_take_as_long_to_be_written_as_its_transaction() -> None:
    kit = TxnKit()
    kit.shard.on_loaded()
    _, producer_id, epoch = kit.init(timeout_ms=7_000)
    kit.add(producer_id=producer_id, epoch=epoch)
    kit.advance(kit.abort_interval_ms)  # it has timed out
    assert kit.written == ["Empty", "Ongoing", *ABORTED]
    kit.init(timeout_ms=8_000)
    kit.advance(kit.expiration_ms + kit.expire_interval_ms)
    assert kit.timeouts == [7_000] * 4 + [8_000, None]  # a tombstone has no transaction


def test_no_marker_is_sent_before_the_decision_is_committed() -> None:
    kit = TxnKit()
    kit.put("Ongoing")
    kit.hold = True
    kit.end()
    assert kit.sent == []
    kit.commit()
    assert kit.sent == [(PID, EPOCH, "PrepareCommit", [T0], TV_0)]


def test_the_client_is_answered_before_the_markers_are_written() -> None:
    kit = TxnKit()
    kit.put("Ongoing")
    kit.markers_wait = True
    assert kit.end() == (NONE, -1, -1)
    assert kit.end() is BUSY and kit.add() is BUSY and kit.init() is BUSY
    assert kit.written == ["PrepareCommit"]
    kit.write_markers()
    assert kit.written == ["PrepareCommit", "CompleteCommit"]
    assert kit.values.partitions == {} and kit.end() == (NONE, -1, -1)


def test_the_end_of_a_transaction_is_written_again_until_it_is_there() -> None:
    kit = TxnKit()
    kit.put("Ongoing")
    kit.markers_wait = True
    kit.end()
    kit.fail_with = ErrorCode.COORDINATOR_NOT_AVAILABLE
    kit.write_markers()
    kit.advance(1_000)
    assert kit.written == ["PrepareCommit"] and kit.add() is BUSY
    kit.fail_with = None
    kit.advance(1_000)
    assert kit.written == ["PrepareCommit", "CompleteCommit"] and len(kit.sent) == 1


def test_markers_that_are_refused_for_good_leave_the_transaction_prepared() -> None:
    kit = TxnKit()
    kit.put("Ongoing")
    kit.markers_wait = True
    kit.end()
    kit.write_markers(ErrorCode.TRANSACTION_COORDINATOR_FENCED)
    assert kit.add() is BUSY and kit.written == ["PrepareCommit"]
    assert kit.recorder.events == [TransactionEvent.TRANSACTION_GIVEN_UP]


@pytest.mark.parametrize("cluster", [TV_0, TV_2])
def test_a_fence_that_cannot_be_written_uses_no_second_epoch(cluster: int) -> None:
    kit = TxnKit(cluster)
    kit.put("Ongoing")
    kit.fail_with = ErrorCode.COORDINATOR_NOT_AVAILABLE
    for _ in range(3):
        assert kit.init() is ErrorCode.COORDINATOR_NOT_AVAILABLE
    kit.fail_with = None
    assert kit.init() == (BUSY, -1, -1)
    assert kit.values.producer_epoch == EPOCH + 1 and not kit.metadata.has_failed_epoch_fence


# --- time-outs


@pytest.mark.parametrize("cluster", [TV_0, TV_2])
def test_a_transaction_beyond_its_time_out_is_aborted_and_its_producer_fenced(cluster: int) -> None:
    kit = TxnKit(cluster)
    kit.put("Empty", timeout_ms=15_000)
    kit.add(T0)
    kit.advance(10_000)  # looked at, and young enough
    assert kit.written == ["Ongoing"]
    kit.advance(10_000)
    assert kit.written == ["Ongoing", *ABORTED]
    assert kit.sent == [(PID, EPOCH + 1, "PrepareAbort", [T0], cluster)]
    assert kit.end() is FENCED
    [event] = kit.recorder.of(TransactionEvent.TRANSACTION_TIMED_OUT)
    assert (event["timeout_ms"], event["producer_epoch"]) == (15_000, EPOCH)


def test_a_partition_that_is_added_later_gives_no_more_time() -> None:
    kit = TxnKit()
    kit.put("Empty", timeout_ms=15_000)
    kit.add(T0)
    kit.advance(14_000)
    kit.add(T1)
    kit.advance(6_000)
    assert kit.written == ["Ongoing", "Ongoing", *ABORTED]


def test_nothing_is_looked_for_while_no_transaction_is_open() -> None:
    kit = TxnKit()
    kit.put("Empty")
    assert kit.timers.next_deadline_ms() is None
    kit.add(T0)
    kit.end()
    kit.advance(10_000)
    assert kit.timers.next_deadline_ms() is None and kit.written[-1] == "CompleteCommit"


def test_a_pending_change_saves_a_transaction_from_its_time_out() -> None:
    kit = TxnKit()
    kit.put("Empty", timeout_ms=1)
    kit.add(T0)
    kit.hold = True
    kit.end()
    kit.advance(20_000)
    kit.commit()
    assert kit.written == ["Ongoing", "PrepareCommit", "CompleteCommit"]


def test_the_longest_time_out_never_ends() -> None:
    kit = TxnKit()
    kit.put("Empty", timeout_ms=2**31 - 1)
    kit.add(T0)
    kit.clock.wall_ms += 2**33
    kit.advance(10_000)
    assert kit.written == ["Ongoing"]


def test_many_transactions_time_out_in_several_steps() -> None:
    kit = TxnKit()
    for number in range(250):
        kit.init(transactional_id=f"{number}", timeout_ms=1)
        kit.add(transactional_id=f"{number}", producer_id=100 + number, epoch=0)
    kit.advance(9_999)
    aborted = []
    for _ in range(3):
        kit.advance(1)
        aborted.append(kit.written.count("CompleteAbort"))
    assert aborted == [100, 200, 250]


# --- expiry


@pytest.mark.parametrize("state", ["Empty", "CompleteCommit", "CompleteAbort"])
def test_an_idle_id_expires(state: str) -> None:
    kit = TxnKit().restart()
    kit.put(state)
    kit.advance(kit.expiration_ms - 1)
    assert kit.written == []
    kit.advance(kit.expire_interval_ms)
    assert kit.written == ["-"] and kit.shard.transactions == {}
    assert kit.end() is ErrorCode.INVALID_PRODUCER_ID_MAPPING


def test_what_is_open_or_changing_does_not_expire() -> None:
    kit = TxnKit().restart()
    kit.put("Ongoing", timeout_ms=2**31 - 1)
    kit.advance(2 * kit.expiration_ms)
    assert kit.written == []
    kit.put("Empty", "Empty")
    kit.advance(2 * kit.expiration_ms)
    assert kit.written == []


def test_an_expiry_that_cannot_be_written_is_given_up_and_comes_again() -> None:
    kit = TxnKit().restart()
    kit.put("Empty")
    kit.fail_with = ErrorCode.COORDINATOR_NOT_AVAILABLE
    kit.advance(kit.expiration_ms + kit.expire_interval_ms)
    assert kit.written == [] and not kit.metadata.is_pending
    kit.fail_with = None
    kit.advance(kit.expire_interval_ms)
    assert kit.written == ["-"]


def test_an_id_that_expires_can_begin_nothing() -> None:
    kit = TxnKit().restart()
    kit.put("Empty")
    kit.hold = True
    kit.advance(kit.expiration_ms + kit.expire_interval_ms)
    assert kit.add() is BUSY and kit.init() is BUSY
    kit.commit()
    assert kit.init() == (NONE, 100, 0)


def test_the_tombstones_of_many_long_ids_are_several_batches() -> None:
    kit = TxnKit().restart()
    for number in range(20):
        kit.init(transactional_id="x" * 30_000 + str(number))
    batches: list[int] = []
    run = kit.run
    kit.run = lambda result, answers=None: (batches.append(len(result.records)), run(result))[1]  # type: ignore[method-assign]
    kit.advance(kit.expiration_ms + kit.expire_interval_ms)
    assert [size for size in batches if size] == [9, 9, 2] and kit.shard.transactions == {}


@pytest.mark.parametrize(("state", "commit"), [("PrepareCommit", True), ("PrepareAbort", False)])
def test_markers_have_the_decision_and_the_epoch_of_the_coordinator(
    state: str, commit: bool
) -> None:
    sent: list[Any] = []
    markers = SimpleNamespace(send=lambda *args: sent.append(args) or {T0: None})
    replicas = SimpleNamespace(log_event=None)
    config, clock = SimpleNamespace(), Clock()
    kind = TransactionShards(config, clock, replicas, markers, lambda: 1, TV_2)  # type: ignore[arg-type]
    partition = SimpleNamespace(leader_epoch=9)
    kind.runtime = SimpleNamespace(contexts={3: SimpleNamespace(partition=partition)})  # type: ignore[assignment]
    metadata = TxnKit().put(state, client_version=TV_2)

    def done(error: ErrorCode) -> None:
        raise AssertionError(error)

    kind.send_markers(3, metadata, done)
    assert sent == [(3, 9, PID, EPOCH, commit, {T0: None}, done, TV_2)]


# --- replay


@pytest.mark.parametrize("cluster", [TV_0, TV_2])
def test_the_next_coordinator_has_the_same_transactions(cluster: int) -> None:
    kit = TxnKit(cluster)
    for name in ("a", "b", "c"):
        kit.init(transactional_id=name)
    kit.add(T0, T1, transactional_id="a", producer_id=100, epoch=0, version=cluster)
    kit.add(T0, transactional_id="b", producer_id=101, epoch=0, version=cluster)
    kit.end(transactional_id="b", producer_id=101, epoch=0, version=cluster)
    other = kit.restart()
    assert list(other.shard.transactions) == ["a", "b", "c"] and list(other.shard.open) == ["a"]
    for name, metadata in kit.shard.transactions.items():
        values, loaded = metadata.values, other.shard.transactions[name].values
        for field in ("producer_id", "producer_epoch", "state", "partitions", "start_ms"):
            assert getattr(loaded, field) == getattr(values, field), (name, field)


def test_the_next_coordinator_writes_the_markers_of_what_is_decided() -> None:
    kit = TxnKit()
    kit.init()
    kit.add(T0, T1, producer_id=100, epoch=0, version=TV_2)
    kit.markers_wait = True
    kit.end(producer_id=100, epoch=0, version=TV_2)
    assert kit.written[-1] == "PrepareCommit"
    other = kit.restart()
    assert other.sent == [(100, 1, "PrepareCommit", [T0, T1], TV_2)]
    assert other.written[-1] == "CompleteCommit"
    assert other.end(producer_id=100, epoch=0, version=TV_2) == (NONE, 100, 1)


def test_the_next_coordinator_aborts_what_has_timed_out() -> None:
    kit = TxnKit()
    kit.init(timeout_ms=5_000)
    kit.add(T0, producer_id=100, epoch=0)
    other = kit.restart()
    other.advance(10_000)
    assert other.written[-2:] == ABORTED


def test_an_id_that_has_expired_is_not_loaded() -> None:
    kit = TxnKit().restart()
    kit.put("Empty")
    kit.log.append(kit.shard._record(kit.metadata, kit.values))
    kit.advance(kit.expiration_ms + kit.expire_interval_ms)
    assert kit.written == ["Empty", "-"] and kit.restart().shard.transactions == {}


def test_a_shard_that_is_unloaded_sends_and_writes_no_more() -> None:
    kit = TxnKit()
    kit.put("Ongoing")
    kit.markers_wait = True
    kit.end()
    [(_, done)] = kit.markers
    kit.shard.on_unloaded()
    assert kit.cancelled == 1
    done(NONE)
    assert kit.written == ["PrepareCommit"]


def test_what_waited_for_other_brokers_is_answered_before_the_work_on_markers() -> None:
    kit = TxnKit(TV_2)
    kit.replicated = True
    kit.put("Ongoing", client_version=TV_2)
    assert kit.end(version=TV_2) == (NONE, PID, EPOCH + 1)
    assert kit.sent == [] and kit.written == ["PrepareCommit"]
    # As while the markers are on their way: all of its partitions are held, others have to wait.
    assert list(kit.metadata.held_partitions) == [T0]
    assert kit.add(epoch=EPOCH + 1, version=TV_2) is BUSY and kit.init() is BUSY
    kit.advance(0)
    assert len(kit.sent) == 1 and kit.written == ["PrepareCommit", "CompleteCommit"]


def test_a_producer_whose_epochs_are_used_up_waits_before_the_markers_are_sent_too() -> None:
    kit = TxnKit(TV_2)
    kit.replicated = True
    kit.put("Ongoing", producer_epoch=LAST, client_version=TV_2)
    answer = kit.end(epoch=LAST, version=TV_2)
    assert answer == (NONE, 100, 0)
    assert kit.add(producer_id=100, epoch=0, version=TV_2) is BUSY
    kit.advance(0)
    assert kit.add(producer_id=100, epoch=0, version=TV_2) is None


def test_the_partitions_of_an_earlier_transaction_are_not_taken_for_those_of_the_next() -> None:
    kit = TxnKit(TV_2)
    kit.replicated = True
    kit.put("Ongoing", client_version=TV_2)
    kit.metadata.unmarked = ()
    kit.end(version=TV_2)
    assert list(kit.metadata.held_partitions) == [T0]


def test_records_to_come_are_passed_over_and_broken_ones_are_errors() -> None:
    assert decode_record(b"\0\1\0\2id", b"") is None
    assert decode_record(b"\0\0\0\2id", b"\0\2") is None
    for key, value in ((b"\0", None), (b"\0\0\0\2id", b"\0"), (b"\0\0\0\2id", b"\0\0\1")):
        with pytest.raises(MalformedMessage):
            decode_record(key, value)
    kit = TxnKit(TV_0)
    kit.put("Empty")
    record = kit.shard._record(kit.metadata, kit.values)
    assert record.value is not None and record.transactional_id == ID
    record.value.transaction_status = 9
    with pytest.raises(MalformedMessage):
        values_of(record.value)
    assert kit.clock.wall_ms == WALL_MS
