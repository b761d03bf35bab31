"""Replicas that differ, written by hand: every case is a partition, and one comparison has to tell them apart."""

from pathlib import Path
from typing import Any, NamedTuple

import pytest

from kwire.protocol.record_builder import build_batch
from kwire.protocol.records import Record

pytestmark = [pytest.mark.kwire_only, pytest.mark.timeout(400)]

FIRST_MS = 1_700_000_000_000


def batch(
    base: int, count: int, epoch: int = 0, word: str = "v", skip: int = 0, **more: Any
) -> bytes:
    """Records with the keys k0, k1, … from `base` on; `skip`: of them those are left out, as by compaction."""
    records = [
        Record(base + i, FIRST_MS + base + i, b"k%d" % i, f"{word} {base + i}".encode(), ())
        for i in range(skip, count)
    ]
    return build_batch(records, base_offset=base, partition_leader_epoch=epoch, **more)


class Written(NamedTuple):
    root: Path

    def replica(
        self,
        broker: int,
        topic: str,
        parts: list[bytes],
        epochs: str,
        high_watermark: int,
        cleaned: int | None = None,
    ) -> None:
        log_dir = self.root / f"broker-{broker}"
        folder = log_dir / f"{topic}-0"
        folder.mkdir(parents=True)
        (log_dir / "meta.properties").write_text(f"version=1\nnode.id={broker}\n")
        (folder / f"{0:020d}.log").write_bytes(b"".join(parts))
        entries = epochs.split(",")
        (folder / "leader-epoch-checkpoint").write_text(
            "\n".join(["0", str(len(entries)), *entries, ""])
        )
        for name, offset in (("replication-offset", high_watermark), ("cleaner-offset", cleaned)):
            if offset is not None:
                path = log_dir / f"{name}-checkpoint"
                known = path.read_text().splitlines()[2:] if path.exists() else []
                lines = [*known, f"{topic} 0 {offset}"]
                path.write_text("\n".join(["0", str(len(lines)), *lines, ""]))


@pytest.fixture(scope="module")
def compared(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Any]]:
    if spark.version.startswith("3."):
        pytest.skip("the audit needs PySpark 4")
    from kwire.audit import replicas

    root = tmp_path_factory.mktemp("replicas")
    write = Written(root).replica
    for broker in (1, 2, 3):
        write(broker, "same", [batch(0, 5), batch(5, 5), batch(10, 5, 2)], "0 0,2 10", 15)
    write(1, "diverged", [batch(0, 5), batch(5, 5, word="x")], "0 0", 10)
    write(2, "diverged", [batch(0, 5), batch(5, 7, 1)], "0 0,1 5", 12)
    write(1, "uncommitted", [batch(0, 5), batch(5, 5, word="x")], "0 0", 5)
    write(2, "uncommitted", [batch(0, 5), batch(5, 7, 1)], "0 0,1 5", 12)
    write(1, "short", [batch(0, 5)], "0 0", 10)
    write(2, "short", [batch(0, 5), batch(5, 7)], "0 0", 12)
    write(1, "compacted", [batch(0, 5), batch(5, 5)], "0 0", 10)
    write(2, "compacted", [batch(5, 5)], "0 0", 10, cleaned=10)
    write(1, "overcompacted", [batch(0, 5), batch(5, 5)], "0 0", 10)
    write(2, "overcompacted", [batch(5, 5, skip=1)], "0 0", 10, cleaned=10)
    wrong = bytearray(batch(5, 5))
    wrong[-3] ^= 1
    write(1, "damaged", [batch(0, 5), bytes(wrong), batch(10, 5)], "0 0", 15)
    write(2, "damaged", [batch(0, 5), batch(5, 5), batch(10, 5)], "0 0", 15)
    write(1, "epochs", [batch(0, 5), batch(5, 5, 1)], "0 0,1 5", 10)
    write(2, "epochs", [batch(0, 5), batch(5, 5)], "0 0", 10)
    write(1, "checkpoint", [batch(0, 5), batch(5, 5, 1)], "0 0,1 7", 10)
    found = replicas.compared(spark, [str(root)])
    return {name: frame.collect() for name, frame in found._asdict().items()}


EXPECTED = {
    (
        "replica_differs",
        "diverged",
        1,
        5,
    ): "broker 1 has other records than broker 2: 5 records (offsets 5 to 9), of epoch 0",
    ("replica_differs", "short", 1, 5): "broker 1: its log ends at 5, below its high watermark 10",
    (
        "replica_differs",
        "overcompacted",
        2,
        5,
    ): "broker 2 lacks 1 record (offset 5) that broker 1 has",
    (
        "replica_differs",
        "damaged",
        1,
        9,
    ): "broker 1 has other records than broker 2: 1 record (offset 9)",
    ("damaged", "damaged", 1, 5): "broker 1, 00000000000000000000.log at 121, 121 bytes: wrong CRC",
    (
        "replica_differs",
        "epochs",
        2,
        5,
    ): "broker 2 has other records than broker 1: 5 records (offsets 5 to 9), of epoch 0",
    (
        "replica_differs",
        "checkpoint",
        1,
        5,
    ): "broker 1: offset 5 is of epoch 1, not as leader-epoch-checkpoint has it",
}


def test_each_difference_is_named_and_nothing_else(compared: dict[str, list[Any]]) -> None:
    found = {
        (row.kind, row.topic, row.broker, row.offset): row.detail for row in compared["findings"]
    }
    assert set(found) == set(EXPECTED)
    for key, words in EXPECTED.items():
        assert found[key].startswith(words)


def test_each_replica_is_a_row(compared: dict[str, list[Any]]) -> None:
    rows = {(row.topic, row.broker): row for row in compared["replicas"]}
    row = rows["diverged", 2]
    assert (row.log_start, row.log_end, row.high_watermark, row.records) == (0, 12, 12, 12)
    assert (row.epochs, row.first_difference) == ("0@0 1@5", None)
    differing = {key for key, row in rows.items() if row.first_difference is not None}
    assert differing == {
        (topic, broker) for kind, topic, broker, _ in EXPECTED if kind != "damaged"
    }


def test_epochs_have_begins_and_times(compared: dict[str, list[Any]]) -> None:
    found = [
        tuple(row)[3:5] for row in compared["epochs"] if (row.topic, row.broker) == ("same", 2)
    ]
    assert sorted(found) == [(0, 0), (2, 10)]
    (begin,) = {row.time for row in compared["epochs"] if (row.topic, row.epoch) == ("same", 2)}
    assert begin.timestamp() == (FIRST_MS + 10) / 1000
