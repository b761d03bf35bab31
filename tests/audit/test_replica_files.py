"""Which replicas lie in log directories, and which are compared with which."""

from __future__ import annotations

from pathlib import Path

import pytest

from kwire.audit.evidence.compare import Pair, pairs
from kwire.audit.evidence.files import Replica, replicas
from kwire.errors import ConfigurationError
from kwire.protocol.record_builder import build_batch
from kwire.protocol.records import Record


def batch(base: int, count: int) -> bytes:
    records = [Record(base + i, 1000, b"k", b"v", ()) for i in range(count)]
    return build_batch(records, base_offset=base)


def write(root: Path, broker: int | None, *parts: bytes, base: int = 0, **files: str) -> Path:
    """A log directory with one partition, orders-0; files of checkpoints by their first word."""
    log_dir = root / f"broker-{broker}"
    folder = log_dir / "orders-0"
    folder.mkdir(parents=True)
    (folder / f"{base:020d}.log").write_bytes(b"".join(parts))
    if broker is not None:
        (log_dir / "meta.properties").write_text(f"version=1\nnode.id={broker}\n")
    for name, entry in files.items():
        in_folder = name == "leader_epoch"
        path = (folder if in_folder else log_dir) / f"{NAMES[name]}-checkpoint"
        lines = entry.splitlines()
        path.write_text("\n".join(["0", str(len(lines)), *lines, ""]))
    return log_dir


NAMES = {
    "leader_epoch": "leader-epoch",
    "high_watermark": "replication-offset",
    "log_start": "log-start-offset",
    "cleaner": "cleaner-offset",
}


def test_a_replica_is_what_its_files_say(tmp_path: Path) -> None:
    write(
        *(tmp_path, 2, batch(10, 5), batch(15, 2), batch(17, 3)[:-4]),
        base=10,
        leader_epoch="0 10\n4 15",
        high_watermark="orders 0 16",
        log_start="orders 0 12",
        cleaner="orders 0 14",
    )
    (found,) = replicas([str(tmp_path)])
    assert found == Replica("orders", 0, 2, 12, 17, 16, 14, ((0, 10), (4, 15)))
    assert found.lineage() == "0@10 4@15"


def test_what_is_not_written_yet_is_unknown(tmp_path: Path) -> None:
    write(tmp_path, 1, base=7)
    assert replicas([str(tmp_path)]) == [Replica("orders", 0, 1, 7, 7, None, None, ())]


def test_two_copies_of_one_replica_are_refused_in_one_line(tmp_path: Path) -> None:
    write(tmp_path / "a", None, batch(0, 1))
    write(tmp_path / "b", None, batch(0, 1))
    with pytest.raises(
        ConfigurationError, match="are both orders-0 of an unnamed broker"
    ) as caught:
        replicas([str(tmp_path)])
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["leader_epoch", "high_watermark"])
def test_a_malformed_checkpoint_is_refused_in_one_line(tmp_path: Path, name: str) -> None:
    write(tmp_path, 1, batch(0, 1), **{name: "what is this"})
    with pytest.raises(ConfigurationError) as caught:
        replicas([str(tmp_path)])
    assert str(caught.value).startswith("audit: ") and "\n" not in str(caught.value)


def replica(broker: int, log_end: int, high_watermark: int | None, epoch: int = 0) -> Replica:
    return Replica("t", 0, broker, 0, log_end, high_watermark, None, ((epoch, 0),))


def test_all_are_compared_with_the_one_in_the_latest_epoch() -> None:
    found = [replica(1, 20, 12, 4), replica(2, 15, 15, 5), replica(3, 10, 9, 5)]
    assert pairs(found) == [Pair("t", 0, 1, 2, 0, 12, 12), Pair("t", 0, 3, 2, 0, 9, 9)]


def test_a_damaged_replica_is_not_what_others_are_compared_with() -> None:
    found = [replica(1, 10, 10), replica(2, 10, 10)]
    assert pairs(found, {("t", 0, 1)}) == [Pair("t", 0, 1, 2, 0, 10, 10)]
    assert pairs(found, {("t", 0, 1), ("t", 0, 2)}) == [Pair("t", 0, 2, 1, 0, 10, 10)]


def test_nothing_is_compared_below_an_unknown_high_watermark() -> None:
    assert pairs([replica(1, 10, None), replica(2, 10, 10)]) == [Pair("t", 0, 2, 1, 0, 0, None)]


def test_a_replica_that_begins_behind_the_others_end_shares_nothing() -> None:
    late = Replica("t", 0, 1, 30, 40, 40, None, ((0, 0),))
    assert pairs([late, replica(2, 10, 10)]) == [Pair("t", 0, 2, 1, 30, 30, 10)]
