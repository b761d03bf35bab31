"""The rules of transactions, as tables: state × request → answer, records and the state after them.

Held against Kafka's TransactionCoordinator: EndTxn of clients before 4.0 (TV_0), of 4.x (TV_2), and the
answers of InitProducerId, AddPartitionsToTxn and its verification.
"""

from __future__ import annotations

from typing import Any

import pytest
from txn_kit import EPOCH, ID, PID, T0, T1, WALL_MS, TxnKit

from kwire.protocol.errors import ErrorCode
from kwire.transactions.metadata import TV_0, TV_2
from kwire.transactions.records import decode_record, values_of

NONE = ErrorCode.NONE
FENCED = ErrorCode.PRODUCER_FENCED
MAPPING = ErrorCode.INVALID_PRODUCER_ID_MAPPING
BUSY = ErrorCode.CONCURRENT_TRANSACTIONS
INVALID = ErrorCode.INVALID_TXN_STATE
LAST = 32766  # the last epoch that a client may have

NOBODY = (NONE, -1, -1)
COMMITTED = ["PrepareCommit", "CompleteCommit"]
ABORTED = ["PrepareAbort", "CompleteAbort"]

# --- EndTxn

# Kafka's endTransactionWithTV1. state, pending state, commit?, epoch of the request: answer, records.
END_TV_0: list[tuple[str, str | None, bool, int, Any, list[str]]] = [
    ("Empty", None, True, EPOCH, INVALID, []),
    ("Empty", None, False, EPOCH, INVALID, []),
    ("Ongoing", None, True, EPOCH, NOBODY, COMMITTED),
    ("Ongoing", None, False, EPOCH, NOBODY, ABORTED),
    ("Ongoing", "Ongoing", True, EPOCH, BUSY, []),
    ("Ongoing", "PrepareCommit", True, EPOCH, BUSY, []),
    ("PrepareCommit", None, True, EPOCH, BUSY, []),
    ("PrepareCommit", None, False, EPOCH, INVALID, []),
    ("PrepareCommit", "CompleteCommit", True, EPOCH, BUSY, []),
    ("PrepareCommit", "CompleteCommit", False, EPOCH, BUSY, []),
    ("PrepareAbort", None, True, EPOCH, INVALID, []),
    ("PrepareAbort", None, False, EPOCH, BUSY, []),
    ("CompleteCommit", None, True, EPOCH, NOBODY, []),
    ("CompleteCommit", None, False, EPOCH, INVALID, []),
    ("CompleteAbort", None, True, EPOCH, INVALID, []),
    ("CompleteAbort", None, False, EPOCH, NOBODY, []),
    ("CompleteCommit", "Ongoing", True, EPOCH, BUSY, []),
    *(
        (state, pending, commit, epoch, FENCED, [])
        for state in ("Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit")
        for pending in (None, "Ongoing")
        for commit in (True, False)
        for epoch in (EPOCH - 1, EPOCH + 1)
    ),
]

NEXT = (NONE, PID, EPOCH + 1)
SAME = (NONE, PID, EPOCH)
# Kafka's endTransaction with its own table in a comment: "Retry" is the epoch before the current one.
END_TV_2: list[tuple[str, str | None, bool, int, Any, list[str]]] = [
    ("Empty", None, False, EPOCH - 1, FENCED, []),
    ("Empty", None, False, EPOCH, NEXT, ABORTED),
    ("Empty", None, True, EPOCH - 1, FENCED, []),
    ("Empty", None, True, EPOCH, INVALID, []),
    ("CompleteAbort", None, False, EPOCH - 1, SAME, []),
    ("CompleteAbort", None, False, EPOCH, NEXT, ABORTED),
    ("CompleteAbort", None, True, EPOCH - 1, INVALID, []),
    ("CompleteAbort", None, True, EPOCH, INVALID, []),
    ("CompleteCommit", None, False, EPOCH - 1, INVALID, []),
    ("CompleteCommit", None, False, EPOCH, NEXT, ABORTED),
    ("CompleteCommit", None, True, EPOCH - 1, SAME, []),
    ("CompleteCommit", None, True, EPOCH, INVALID, []),
    ("Ongoing", None, True, EPOCH, NEXT, COMMITTED),
    ("Ongoing", None, False, EPOCH, NEXT, ABORTED),
    ("Ongoing", None, True, EPOCH - 1, FENCED, []),
    ("Ongoing", "Ongoing", True, EPOCH, BUSY, []),
    ("PrepareCommit", None, True, EPOCH - 1, BUSY, []),
    ("PrepareCommit", "CompleteCommit", True, EPOCH - 1, BUSY, []),
    ("PrepareCommit", None, False, EPOCH - 1, INVALID, []),
    ("PrepareCommit", None, True, EPOCH, FENCED, []),
    ("PrepareAbort", None, False, EPOCH - 1, BUSY, []),
    ("PrepareAbort", None, True, EPOCH - 1, INVALID, []),
    ("PrepareAbort", None, False, EPOCH, FENCED, []),
    *(
        (state, None, True, EPOCH + 1, FENCED, [])
        for state in ("Empty", "Ongoing", "CompleteCommit")
    ),
    *((state, None, True, EPOCH - 2, FENCED, []) for state in ("Ongoing", "PrepareCommit")),
]


@pytest.mark.parametrize(("state", "pending", "commit", "epoch", "answer", "records"), END_TV_0)
def test_end_of_a_client_before_4_0(
    state: str, pending: str | None, commit: bool, epoch: int, answer: Any, records: list[str]
) -> None:
    kit = TxnKit()
    kit.put(state, pending)
    assert kit.end(commit, epoch=epoch, version=TV_0) == answer
    assert kit.written == records
    if records:
        assert (kit.values.producer_id, kit.values.producer_epoch) == (PID, EPOCH)
        assert kit.sent == [(PID, EPOCH, records[0], [T0], TV_0)]


@pytest.mark.parametrize(("state", "pending", "commit", "epoch", "answer", "records"), END_TV_2)
def test_end_of_a_client_since_4_0(
    state: str, pending: str | None, commit: bool, epoch: int, answer: Any, records: list[str]
) -> None:
    kit = TxnKit()
    kit.put(state, pending)
    assert kit.end(commit, epoch=epoch, version=TV_2) == answer
    assert kit.written == records
    if records:
        assert (kit.values.producer_epoch, kit.values.last_producer_epoch) == (EPOCH + 1, EPOCH)
        assert kit.values.start_ms == WALL_MS
        partitions = [T0] if state == "Ongoing" else []
        assert kit.sent == [(PID, EPOCH + 1, records[0], partitions, TV_2)]


@pytest.mark.parametrize("version", [TV_0, TV_2])
def test_another_producer_or_an_unknown_id_ends_nothing(version: int) -> None:
    kit = TxnKit()
    assert kit.end(version=version) is MAPPING
    kit.put("Ongoing")
    assert kit.end(producer_id=PID + 1, version=version) is MAPPING
    assert kit.written == []


def test_the_last_epoch_ends_with_the_next_producer_id_and_its_retry_is_known() -> None:
    kit = TxnKit()
    kit.put("Ongoing", producer_epoch=LAST)
    kit.markers_wait = True
    assert kit.end(epoch=LAST, version=TV_2) == (NONE, 100, 0)
    assert (kit.values.producer_id, kit.values.producer_epoch) == (PID, LAST + 1)
    assert (
        kit.add(producer_id=100, epoch=0, version=TV_2) is BUSY
    )  # the markers are not written yet
    kit.write_markers()
    values = kit.values
    assert (values.producer_id, values.producer_epoch, values.previous_producer_id) == (100, 0, PID)
    assert kit.end(epoch=LAST, version=TV_2) == (NONE, 100, 0)
    assert kit.end(False, epoch=LAST, version=TV_2) is INVALID
    assert kit.end(epoch=LAST - 1, version=TV_2) is MAPPING
    assert kit.written == COMMITTED


def test_without_a_producer_id_the_last_epoch_does_not_end() -> None:
    kit = TxnKit()
    kit.put("Ongoing", producer_epoch=LAST)
    kit.no_producer_id = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert kit.end(epoch=LAST, version=TV_2) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    kit.no_producer_id = None
    assert kit.end(epoch=LAST, version=TV_2) == (NONE, 100, 0)


# --- AddPartitionsToTxn

ADD: list[tuple[str, str | None, int, int, Any, list[str]]] = [
    ("Empty", None, PID, EPOCH, None, ["Ongoing"]),
    ("CompleteCommit", None, PID, EPOCH, None, ["Ongoing"]),
    ("CompleteAbort", None, PID, EPOCH, None, ["Ongoing"]),
    ("Ongoing", None, PID, EPOCH, None, ["Ongoing"]),
    ("PrepareCommit", None, PID, EPOCH, BUSY, []),
    ("PrepareAbort", None, PID, EPOCH, BUSY, []),
    ("Empty", "Ongoing", PID, EPOCH, BUSY, []),
    ("Ongoing", "PrepareCommit", PID, EPOCH, BUSY, []),
    ("Ongoing", None, PID, EPOCH - 1, FENCED, []),
    ("Ongoing", None, PID, EPOCH + 1, FENCED, []),
    ("Ongoing", None, PID + 1, EPOCH, MAPPING, []),
    ("PrepareCommit", None, PID, EPOCH - 1, FENCED, []),
]


@pytest.mark.parametrize("cluster", [TV_0, TV_2])
@pytest.mark.parametrize(("state", "pending", "producer_id", "epoch", "answer", "records"), ADD)
def test_add_partitions(
    state: str,
    pending: str | None,
    producer_id: int,
    epoch: int,
    answer: Any,
    records: list[str],
    cluster: int,
) -> None:
    kit = TxnKit(cluster)
    kit.put(state, pending)
    assert kit.add(T1, producer_id=producer_id, epoch=epoch, version=TV_2) == answer
    assert kit.written == records
    if records:
        assert list(kit.values.partitions) == ([T0, T1] if state == "Ongoing" else [T1])
        assert kit.values.client_version == TV_2 and kit.values.producer_epoch == EPOCH


def test_partitions_that_are_there_already_need_no_record() -> None:
    kit = TxnKit()
    kit.put("Ongoing", partitions={T0: None, T1: None})
    assert kit.add(T1) is None and kit.add(T1, T0) is None
    assert kit.written == []
    assert kit.add(T1, ("u", 0)) is None
    assert kit.written == ["Ongoing"]


def test_whether_a_change_is_pending_is_looked_at_first_in_4_x_and_last_in_3_9() -> None:
    for cluster, answer in ((TV_2, BUSY), (TV_0, FENCED)):
        kit = TxnKit(cluster)
        kit.put("PrepareCommit", "CompleteCommit")
        assert kit.add(epoch=EPOCH + 1) is answer


def test_the_time_of_a_transaction_begins_with_its_first_partition() -> None:
    kit = TxnKit()
    kit.put("CompleteCommit", start_ms=1)
    kit.advance(50)
    kit.add(T0)
    assert kit.values.start_ms == WALL_MS + 50
    kit.advance(50)
    kit.add(T1)
    assert (kit.values.start_ms, kit.values.last_update_ms) == (WALL_MS + 50, WALL_MS + 100)


VERIFY: list[tuple[str, str | None, int, int, Any]] = [
    ("Ongoing", None, PID, EPOCH, {T0: NONE, T1: ErrorCode.TRANSACTION_ABORTABLE}),
    # Not refused while a change is pending: the append has the last word.
    ("Ongoing", "PrepareCommit", PID, EPOCH, {T0: NONE, T1: ErrorCode.TRANSACTION_ABORTABLE}),
    ("Empty", None, PID, EPOCH, dict.fromkeys((T0, T1), ErrorCode.TRANSACTION_ABORTABLE)),
    ("CompleteAbort", None, PID, EPOCH, dict.fromkeys((T0, T1), ErrorCode.TRANSACTION_ABORTABLE)),
    ("PrepareCommit", None, PID, EPOCH, BUSY),
    ("PrepareAbort", None, PID, EPOCH, BUSY),
    ("Ongoing", None, PID, EPOCH - 1, FENCED),
    ("Ongoing", None, PID, EPOCH + 1, FENCED),
    ("Ongoing", None, PID + 1, EPOCH, MAPPING),
]


@pytest.mark.parametrize(("state", "pending", "producer_id", "epoch", "answer"), VERIFY)
def test_verify_partitions(
    state: str, pending: str | None, producer_id: int, epoch: int, answer: Any
) -> None:
    kit = TxnKit()
    assert kit.verify() is MAPPING  # an unknown id
    kit.put(state, pending)
    assert kit.verify(T0, T1, producer_id=producer_id, epoch=epoch) == answer


# --- InitProducerId

# state, pending state, its values, expected id and epoch: answer, records, last epoch.
INIT: list[tuple[str, str | None, dict[str, int], tuple[int, int] | None, Any, list[str], int]] = [
    *(
        (state, None, {}, None, (NONE, PID, EPOCH + 1), ["Empty"], -1)
        for state in ("Empty", "CompleteCommit", "CompleteAbort")
    ),
    ("CompleteCommit", None, {}, (PID, EPOCH), (NONE, PID, EPOCH + 1), ["Empty"], EPOCH),
    # The retry of a request whose response was lost.
    (
        *("Empty", None, {"last_producer_epoch": EPOCH - 1}, (PID, EPOCH - 1)),
        *((NONE, PID, EPOCH), ["Empty"], EPOCH - 1),
    ),
    ("Empty", None, {}, (PID, EPOCH - 1), FENCED, [], -1),
    ("Empty", None, {}, (PID, EPOCH + 1), FENCED, [], -1),
    ("Empty", None, {}, (PID + 1, EPOCH), FENCED, [], -1),
    ("Empty", "Empty", {}, None, BUSY, [], -1),
    ("Empty", "Empty", {}, (PID + 1, EPOCH), BUSY, [], -1),
    ("PrepareCommit", None, {}, None, BUSY, [], -1),
    ("PrepareAbort", None, {}, None, BUSY, [], -1),
    ("PrepareAbort", None, {}, (PID + 1, EPOCH), FENCED, [], -1),
    # The epochs are used up: a new id.
    ("CompleteAbort", None, {"producer_epoch": LAST}, None, (NONE, 100, 0), ["Empty"], -1),
    (
        *("CompleteAbort", None, {"producer_epoch": LAST}, (PID, LAST)),
        *((NONE, 100, 0), ["Empty"], LAST),
    ),
    # … whose response was lost: the producer still has the old id and the last epoch.
    (
        "Empty",
        None,
        {"producer_epoch": 0, "last_producer_epoch": LAST, "previous_producer_id": 6},
        (6, LAST),
        (NONE, PID, 0),
        ["Empty"],
        LAST,
    ),
    ("Empty", None, {"producer_epoch": 0, "previous_producer_id": 6}, (6, 3), FENCED, [], -1),
    ("Empty", None, {"previous_producer_id": 6}, (6, EPOCH), FENCED, [], -1),
]


@pytest.mark.parametrize(
    ("state", "pending", "values", "expected", "answer", "records", "last"), INIT
)
def test_init_producer_id(
    state: str,
    pending: str | None,
    values: dict[str, int],
    expected: tuple[int, int] | None,
    answer: Any,
    records: list[str],
    last: int,
) -> None:
    kit = TxnKit()
    kit.put(state, pending, **values)
    assert kit.init(expected, timeout_ms=99) == answer
    assert kit.written == records
    if records:
        assert (kit.values.timeout_ms, kit.values.last_producer_epoch) == (99, last)
        assert (kit.values.start_ms, kit.values.partitions) == (-1, {})


def test_a_new_id_gets_a_producer_id_and_epoch_0() -> None:
    kit = TxnKit()
    assert kit.init() == (NONE, 100, 0)
    assert kit.init() == (NONE, 100, 1)
    assert kit.init(transactional_id="other") == (NONE, 101, 0)
    assert kit.written == ["Empty"] * 3


def test_a_producer_that_recovers_after_its_id_has_expired_gets_a_new_one() -> None:
    kit = TxnKit()
    assert kit.init((55, 3)) == (NONE, 100, 0)


def test_a_producer_with_a_wrong_epoch_when_epochs_are_used_up_gets_an_error() -> None:
    kit = TxnKit()
    kit.put("Empty", producer_epoch=LAST)
    assert kit.init((PID, 3)) is ErrorCode.UNKNOWN_SERVER_ERROR


@pytest.mark.parametrize(("cluster", "last"), [(TV_0, -1), (TV_2, EPOCH)])
def test_an_open_transaction_is_aborted_with_a_new_epoch_first(cluster: int, last: int) -> None:
    kit = TxnKit(cluster)
    kit.put("Ongoing")
    assert kit.init() == (BUSY, -1, -1)
    assert kit.written == ABORTED
    assert kit.sent == [(PID, EPOCH + 1, "PrepareAbort", [T0], cluster)]
    assert kit.values.last_producer_epoch == last
    assert kit.end(epoch=EPOCH) is FENCED
    assert kit.add(epoch=EPOCH) is FENCED
    assert kit.init() == (NONE, PID, EPOCH + 2)
    assert kit.recorder.last.fields["transactional_id"] == ID


def test_the_fence_of_the_last_epoch_gives_a_new_id_in_4_x_and_the_very_last_epoch_in_3_9() -> None:
    kit = TxnKit(TV_2)
    kit.put("Ongoing", producer_epoch=LAST)
    assert kit.init() == (BUSY, -1, -1)
    assert kit.sent == [(PID, LAST + 1, "PrepareAbort", [T0], TV_2)]
    assert (kit.values.producer_id, kit.values.producer_epoch) == (100, 0)
    assert kit.end(False, epoch=LAST, version=TV_2) == (NONE, 100, 0)  # what its producer gets late
    kit = TxnKit(TV_0)
    kit.put("Ongoing", producer_epoch=LAST)
    assert kit.init() == (BUSY, -1, -1)
    assert (kit.values.producer_id, kit.values.producer_epoch) == (PID, LAST + 1)
    assert kit.init() == (NONE, 100, 0)


# --- records

STATES = ["Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort"]


@pytest.mark.parametrize("cluster", [TV_0, TV_2])
@pytest.mark.parametrize("state", STATES)
def test_a_record_says_all_that_the_log_keeps(state: str, cluster: int) -> None:
    kit = TxnKit(cluster)
    metadata = kit.put(
        state, previous_producer_id=3, next_producer_id=9, next_producer_epoch=2, client_version=2
    )
    record = kit.shard._record(metadata, metadata.values)
    key, value = record.encode()
    assert value is not None and value[:2] == (b"\0\1" if cluster == TV_2 else b"\0\0")
    assert key == b"\0\0\0\2id"
    decoded = decode_record(key, value)
    assert decoded is not None and decoded.value is not None
    values = values_of(decoded.value)
    for name in ("producer_id", "producer_epoch", "timeout_ms", "state", "start_ms", "partitions"):
        assert getattr(values, name) == getattr(metadata.values, name), name
    newer = (values.previous_producer_id, values.next_producer_id, values.client_version)
    assert newer == ((3, 9, 2) if cluster == TV_2 else (-1, -1, 0))
    assert values.next_producer_epoch == (2 if cluster == TV_2 else -1)


def test_the_bytes_of_a_record_of_3_9() -> None:
    """As TransactionLog.valueToBytes writes it, field by field."""
    kit = TxnKit(TV_0)
    metadata = kit.put("Ongoing", partitions={T0: None, ("u", 4): None, T1: None})
    _, value = kit.shard._record(metadata, metadata.values).encode()
    wall = WALL_MS.to_bytes(8, "big")
    assert value == (
        b"\0\0"
        + PID.to_bytes(8, "big")
        + EPOCH.to_bytes(2, "big")
        + (60_000).to_bytes(4, "big")
        + b"\1"
        + b"\0\0\0\2"
        + (b"\0\1t" + b"\0\0\0\2" + b"\0\0\0\0" + b"\0\0\0\1")
        + (b"\0\1u" + b"\0\0\0\1" + b"\0\0\0\4")
        + wall
        + wall
    )
    metadata = kit.put("Empty")
    _, value = kit.shard._record(metadata, metadata.values).encode()
    assert value is not None and value[16:21] == b"\0\xff\xff\xff\xff"  # no partitions: null
