"""Faults of a disk: which operations of a store they hit, and that a store without any is the plain one again."""

from __future__ import annotations

import errno
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kwire.server.disks.faulty import FaultyFile, FaultyStore, install
from kwire.server.disks.rules import OPERATIONS, DiskRule, checked, text_of
from kwire.server.file_log_store import FileLogStore
from kwire.server.log_file import FileLogFile

LOG = "orders-0/00000000000000000000.log"


@pytest.fixture(params=[True, False], ids=["flushed", "temporary"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[FileLogStore]:
    store = FileLogStore(str(tmp_path / "disk" / "broker-1"), fsync=request.param)
    store.make_dir("orders-0")
    store.open(LOG, create=True).append([b"abc"])
    yield store
    store.__class__ = FileLogStore
    store.close()


def set_fault(store: FileLogStore, **given: Any) -> DiskRule:
    rule = DiskRule("disk-1", {"act": "fail", **given})
    install(store, [rule], lambda *_: None)
    return rule


USES: dict[str, Callable[[FileLogStore], object]] = {
    "append": lambda store: store.open(LOG).append([b"d"]),
    "read": lambda store: store.open(LOG).read(0, 3),
    "fsync": lambda store: store.open(LOG).flush(),
    "write": lambda store: store.write_file("orders-0/partition.metadata", b"", flush=False),
    "create": lambda store: store.open("orders-0/1.log", create=True),
    "truncate": lambda store: store.open(LOG).truncate(1),
    "delete": lambda store: store.delete("orders-0/1.log"),
}
MORE: list[tuple[str, Callable[[FileLogStore], object]]] = [
    ("read", lambda store: store.read_file(LOG)),
    ("fsync", lambda store: store.flush_file("orders-0/x")),
    ("fsync", lambda store: store.write_file("orders-0/x", b"")),
    ("write", lambda store: store.rename("orders-0", "orders-0.1-delete")),
    ("write", lambda store: store.start_write_file("x", b"", lambda: None)),
    ("create", lambda store: store.make_dir("orders-1")),
    ("create", lambda store: store.claim_file("orders-0/claim")),
    ("delete", lambda store: store.delete_dir("orders-0")),
    ("delete", lambda store: store.start_delete([LOG])),
    ("delete", lambda store: store.start_delete_dir("orders-0")),
]


@pytest.mark.parametrize(
    ("operation", "use"), [*USES.items(), *MORE], ids=[*USES, *(f"{name}-more" for name, _ in MORE)]
)
def test_an_operation_fails_and_no_other(
    store: FileLogStore, operation: str, use: Callable[[FileLogStore], object]
) -> None:
    rule = set_fault(store, operation=operation, times=1)
    for name, other in USES.items():
        if name not in (operation, "delete", "truncate"):
            other(store)
    assert rule.hits == 0
    set_fault(store, operation=operation)
    with pytest.raises(OSError, match="a test has set this fault") as raised:
        use(store)
    assert raised.value.errno == errno.EIO and str(raised.value.filename).startswith(store.root)


def test_all_operations_have_a_test() -> None:
    assert tuple(USES) == OPERATIONS


def test_the_first_ones_only_and_what_failed_has_changed_nothing(store: FileLogStore) -> None:
    rule = set_fault(store, operation="append", times=2, error="ENOSPC")
    file = store.open(LOG)
    for _ in range(2):
        with pytest.raises(OSError) as raised:
            file.append([b"x"])
        assert raised.value.errno == errno.ENOSPC
    file.append([b"d"])
    assert (rule.hits, file.read(0, 9)) == (2, b"abcd")


def test_only_files_of_a_partition_or_a_directory(store: FileLogStore) -> None:
    append = USES["append"]
    for given in (
        {"topic": "order"},
        {"topic": "orders", "partition": 1},
        {"directory": "disk-2"},
        {"directory": f"{store.root}-2"},
    ):
        assert set_fault(store, operation="append", **given).hits == 0
        append(store)
    for given in (
        {"topic": "orders"},
        {"topic": "orders", "partition": 0},
        {"directory": "broker-1"},
        {"directory": "disk"},
        {"directory": store.root},
        {"directory": str(Path(store.root).parent)},
    ):
        set_fault(store, operation="append", **given)
        with pytest.raises(OSError):
            append(store)


def test_a_replica_that_moves_is_of_its_topic(store: FileLogStore) -> None:
    name = f"orders-0.{'0' * 32}-future"
    store.make_dir(name)
    file = store.open(f"{name}/0.log", create=True)
    set_fault(store, operation="append", topic="orders", partition=0)
    with pytest.raises(OSError):
        file.append([b"x"])


def test_a_full_disk_can_be_read(store: FileLogStore) -> None:
    install(store, [DiskRule("disk-1", {"act": "full"})], lambda *_: None)
    assert store.open(LOG).read(0, 3) == b"abc"
    for name in ("append", "write", "create"):
        with pytest.raises(OSError) as raised:
            USES[name](store)
        assert raised.value.errno == errno.ENOSPC


def test_a_flush_that_was_started_fails_in_a_later_step(store: FileLogStore) -> None:
    failed: list[OSError] = []
    store.on_failure = failed.append
    set_fault(store, operation="fsync", times=1)
    flushed: list[bool] = []
    store.open(LOG).start_flush(lambda: flushed.append(True))
    assert not failed
    store.background.wait()
    assert len(failed) == 1 and not flushed
    with pytest.raises(OSError):  # the system reports it once; what comes later is not believed
        store.check()


def test_a_slow_flush_waits_on_a_thread(store: FileLogStore) -> None:
    rule = DiskRule("disk-1", {"act": "slow", "milliseconds": 40, "operation": "fsync"})
    install(store, [rule], lambda *_: None)
    flushed: list[float] = []
    start = time.monotonic()
    store.open(LOG).start_flush(lambda: flushed.append(time.monotonic()))
    assert not flushed and time.monotonic() - start < 0.04
    store.background.wait()
    assert rule.hits == 1 and flushed[0] - start >= 0.04


def test_hits_are_noted(store: FileLogStore) -> None:
    noted: list[tuple[str, str]] = []
    rule = DiskRule("disk-1", {"act": "fail", "operation": "append"})
    install(store, [rule], lambda _, operation, path: noted.append((operation, path)))
    with pytest.raises(OSError):
        USES["append"](store)
    assert noted == [("append", store.full_path(LOG))]


def test_without_faults_it_is_the_plain_store_again(store: FileLogStore) -> None:
    """Nothing is on the way of an operation then, not even a question whether there is a fault."""
    file = store.open(LOG)
    assert (type(store), type(file)) == (FileLogStore, FileLogFile)
    set_fault(store, operation="append")
    assert (type(store), type(file)) == (FaultyStore, FaultyFile)
    install(store, [], lambda *_: None)
    assert (type(store), type(file)) == (FileLogStore, FileLogFile)
    assert "disk_rules" not in vars(store)
    file.append([b"d"])
    assert type(store.open("orders-0/2.log", create=True)) is FileLogFile


BAD: list[tuple[dict[str, Any], str]] = [
    ({}, "operation: which one fails"),
    ({"operation": "apend"}, "did you mean append"),
    ({"act": "explode"}, "act: expected one of fail, full, slow"),
    ({"operation": "append", "times": 0}, "times: expected 1 or more"),
    ({"operation": "append", "times": True}, "times: expected 1 or more"),
    ({"operation": "append", "error": "EMFILE"}, "error: expected one of EIO"),
    ({"operation": "append", "partition": 1}, "partition: of which topic"),
    ({"operation": "append", "topic": "t", "partition": -1}, "partition: expected a number"),
    ({"operation": "append", "topic": 3}, "topic: expected a text"),
    ({"operation": "append", "milliseconds": 3}, "milliseconds: a disk that is to fail has none"),
    ({"act": "full", "operation": "append"}, "operation: a disk that is to be full has none"),
    ({"act": "slow"}, "milliseconds: expected a number"),
    ({"act": "slow", "milliseconds": 0}, "milliseconds: expected a number"),
    ({"act": "slow", "milliseconds": "5"}, "milliseconds: expected a number"),
    (
        {"act": "slow", "milliseconds": 5, "operation": "delete"},
        "operation: expected one of append",
    ),
    ({"operation": "append", "tpic": "t"}, "did you mean topic"),
]


@pytest.mark.parametrize(("given", "message"), BAD)
def test_what_could_never_hit_is_refused_in_one_line(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message) as raised:
        checked({"act": "fail", **given})
    assert "\n" not in str(raised.value)


def test_faults_in_words() -> None:
    fault = {"act": "fail", "operation": "append", "topic": "t", "partition": 0, "times": 1}
    assert text_of(fault) == "append fails with EIO, topic=t partition=0, 1 time"
    assert text_of({"act": "full", "directory": "b"}) == "full (ENOSPC), directory=b"
    assert text_of({"act": "slow", "milliseconds": 5}) == "append, read, fsync late by 5 ms"
