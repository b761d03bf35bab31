"""The columns of records: as Kafka reads its own golden batches, and as the row-wise decoder reads random ones."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import random
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from kwire.protocol.record_builder import build_batch
from kwire.protocol.records import Record, increment_sequence, iter_batches, iter_records

from .log_kit import rows, write_segment

GOLDEN = Path(__file__).parents[1] / "data" / "golden-batches.jsonl.gz"


def golden() -> list[dict[str, Any]]:
    with gzip.open(GOLDEN, "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def as_golden(value: bytes | None) -> Any:
    if value is None:
        return None
    if len(value) > 600:
        return {"len": len(value), "sha256": hashlib.sha256(value).hexdigest()}
    return base64.b64encode(value).decode()


def milliseconds(moment: datetime) -> int:
    return (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)


GOLDEN_CASES = [case for case in golden() if all(batch["crc_ok"] for batch in case["batches"])]


@pytest.mark.parametrize("case", GOLDEN_CASES, ids=lambda case: case["case"])
def test_rows_are_what_kafka_reads(case: dict[str, Any], tmp_path: Path) -> None:
    write_segment(tmp_path, [bytes.fromhex(case["hex"])])
    expected = [(batch, record) for batch in case["batches"] for record in batch["records"]]
    found = rows(tmp_path)
    assert [(row["offset"], row["batch_base"]) for row in found if row["magic"] == 2] == [
        (record["offset"], batch["base_offset"])
        for batch, record in expected
        if batch["magic"] == 2
    ]
    assert len(found) == len(expected)
    types = {"NoTimestampType": -1, "CreateTime": 0, "LogAppendTime": 1}
    for row, (batch, record) in zip(found, expected, strict=True):
        assert row["offset"] == record["offset"]
        assert (as_golden(row["key"]), as_golden(row["value"])) == (record["key"], record["value"])
        assert row["codec"] == batch["compression"]
        assert row["timestamp_type"] == types[batch["timestamp_type"]]
        assert milliseconds(row["timestamp"]) == record.get("timestamp", -1)
        headers = [
            [h["key"], None if h["value"] is None else as_golden(h["value"])]
            for h in row["headers"] or ()
        ]
        assert headers == record.get("headers", [])
        assert row["sequence"] == record.get("sequence", -1)
        assert row["producer_id"] == batch.get("producer_id", -1)
        assert row["producer_epoch"] == batch.get("producer_epoch", -1)
        assert row["leader_epoch"] == batch.get("partition_leader_epoch", -1)
        assert row["is_transactional"] == batch.get("transactional", False)
        assert row["is_control"] == batch.get("control", False)
        names = {"ABORT": "abort", "COMMIT": "commit", "LEADER_CHANGE": "2"}
        assert row["control_type"] == names.get(record.get("control_type", ""))


def random_batch(rng: random.Random, base_offset: int, codec: str) -> tuple[bytes, int]:
    """A batch with anything a producer or compaction may leave, and the offset behind it."""

    def blob() -> bytes | None:
        size = rng.choice([0, 1, 5, 63, 64, 200, 9000])
        return None if rng.random() < 0.2 else rng.randbytes(size)

    offset, records = base_offset, []
    for _ in range(rng.choice([1, 2, 7, 60, 300])):
        headers = tuple(
            (f"h{i}" * rng.randrange(40), blob()) for i in range(rng.choice([0, 0, 0, 1, 3]))
        )
        timestamp = rng.choice([1_700_000_000_000, 0, -5, 1 << 40]) + rng.randrange(100_000)
        records.append(Record(offset, timestamp, blob(), blob(), headers))
        offset += 1 if rng.random() < 0.95 else rng.randrange(1, 400)
    last = offset + rng.choice([-1, -1, 3]) if rng.random() < 0.3 else records[-1].offset
    last = max(last, records[-1].offset)
    idempotent = rng.random() < 0.5
    batch = build_batch(
        records,
        base_offset=base_offset,
        compression=codec,
        last_offset=last,
        timestamp_type=rng.choice(["CreateTime", "LogAppendTime"]),
        log_append_time_ms=1_700_000_123_456,
        producer_id=rng.randrange(1 << 40) if idempotent else -1,
        producer_epoch=rng.randrange(1 << 15) if idempotent else -1,
        base_sequence=rng.choice([0, 17, (1 << 31) - 2]) if idempotent else -1,
        partition_leader_epoch=rng.randrange(100),
        is_transactional=idempotent and rng.random() < 0.5,
    )
    return batch, last + 1


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("mixed", [False, True], ids=["one codec", "mixed codecs"])
def test_rows_are_what_the_row_wise_decoder_reads(seed: int, mixed: bool, tmp_path: Path) -> None:
    rng = random.Random(seed)
    codecs = ["none", "gzip", "snappy", "lz4", "zstd"]
    codec = rng.choice(codecs)
    parts, offset = [], rng.choice([0, 5_000_000_000])
    for _ in range(rng.choice([1, 20, 120])):
        part, offset = random_batch(rng, offset, rng.choice(codecs) if mixed else codec)
        parts.append(part)
    path = write_segment(tmp_path, parts)
    data = path.read_bytes()
    expected = []
    for header in iter_batches(data):
        for record in iter_records(data, header):
            sequence = -1
            if header.base_sequence >= 0:
                sequence = increment_sequence(
                    header.base_sequence, record.offset - header.base_offset
                )
            headers = [{"key": key, "value": value} for key, value in record.headers] or None
            expected.append(
                {
                    "broker": -1,
                    "topic": "orders",
                    "partition": 0,
                    "offset": record.offset,
                    "leader_epoch": header.partition_leader_epoch,
                    "timestamp": datetime(1970, 1, 1, tzinfo=UTC)
                    + timedelta(milliseconds=record.timestamp),
                    "timestamp_type": int(header.timestamp_type == "LogAppendTime"),
                    "key": record.key,
                    "value": record.value,
                    "headers": headers,
                    "producer_id": header.producer_id,
                    "producer_epoch": header.producer_epoch,
                    "sequence": sequence,
                    "is_transactional": header.is_transactional,
                    "is_control": False,
                    "control_type": None,
                    "batch_base": header.base_offset,
                    "batch_position": header.position,
                    "codec": header.compression,
                    "magic": 2,
                    "crc_ok": True,
                    "segment": path.name,
                }
            )
    found = rows(tmp_path, verify="crc")
    assert len(found) == len(expected)
    for row, wanted in zip(found, expected, strict=True):
        assert row == wanted


@pytest.mark.parametrize(
    "names", [("offset",), ("partition", "sequence"), ("codec", "segment", "offset")]
)
def test_columns_that_headers_know_need_no_record(
    names: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    records = [Record(i, 7, None, b"x") for i in range(5)]
    write_segment(
        tmp_path,
        [
            build_batch(
                records, compression="gzip", producer_id=3, producer_epoch=0, base_sequence=9
            )
        ],
    )
    whole = [{name: row[name] for name in names} for row in rows(tmp_path)]

    def refuse(*_: object, **__: object) -> bytes:
        raise AssertionError("a batch was decompressed")

    monkeypatch.setattr("kwire.protocol.compression.decompress", refuse)
    assert rows(tmp_path, *names) == whole
    assert len(whole) == 5


def test_offsets_after_compaction_are_those_of_the_records(tmp_path: Path) -> None:
    write_segment(
        tmp_path, [build_batch([Record(3, 1, b"a", b""), Record(9, 1, b"b", b"")], last_offset=12)]
    )
    assert [row["offset"] for row in rows(tmp_path, "offset")] == [3, 9]


def test_a_batch_larger_than_a_piece_is_one_batch(tmp_path: Path) -> None:
    large = build_batch([Record(0, 1, None, bytes(20 << 20))])
    write_segment(
        tmp_path,
        [build_batch([Record(0, 1, None, b"a")]), large, build_batch([Record(2, 1, None, b"c")])],
    )
    assert [len(row["value"]) for row in rows(tmp_path, "value")] == [1, 20 << 20, 1]


def sizes_of(shape: str, count: int) -> list[int]:
    rng = random.Random(shape)
    return {
        "one length": [170] * count,
        "a length that changes": [170 + i // 300 for i in range(count)],
        "two lengths in turn": [20, 200] * (count // 2),
        "any length": [rng.randrange(300) for _ in range(count)],
        "runs and none": [50 if i % 500 < 250 else rng.randrange(300) for i in range(count)],
        "lengths of three bytes": [9000] * count,
    }[shape]


SHAPES = (
    *("one length", "a length that changes", "two lengths in turn", "any length"),
    *("runs and none", "lengths of three bytes"),
)


@pytest.mark.parametrize("shape", SHAPES)
def test_records_of_large_batches_are_found(shape: str, tmp_path: Path) -> None:
    """Batches of so many records that these are followed one by one, or by runs of equal lengths."""
    sizes = sizes_of(shape, 1500)
    parts, expected = [], []
    for base in (0, 1500):
        records = [
            Record(base + i, 1000 + i, None, bytes([i & 255]) * size)
            for i, size in enumerate(sizes)
        ]
        parts.append(build_batch(records, base_offset=base))
        expected += [
            {"offset": each.offset, "value": each.value, "key": each.key} for each in records
        ]
    write_segment(tmp_path, parts)
    assert rows(tmp_path, "offset", "value", "key") == expected


def record_starts(batch: bytes) -> list[int]:
    found, at = [], 61
    while at < len(batch):
        found.append(at)
        length = shift = 0
        while True:
            byte, at = batch[at], at + 1
            length |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                break
        at += length >> 1
    return found


@pytest.mark.parametrize("shape", SHAPES)
def test_a_length_that_lies_in_a_large_batch_is_damage(shape: str, tmp_path: Path) -> None:
    records = [Record(i, 1000, None, bytes(size)) for i, size in enumerate(sizes_of(shape, 1500))]
    good, after = build_batch(records), build_batch([Record(1500, 1, None, b"z")], base_offset=1500)
    starts = record_starts(good)
    assert len(starts) == 1500
    rng = random.Random(shape)
    for number, at in enumerate([starts[0], starts[-1], *rng.choices(starts, k=10)]):
        bad = bytearray(good)
        bad[at] ^= rng.choice([1, 2, 0x80, 0xFF])
        write_segment(tmp_path / str(number), [bytes(bad), after])
        found = rows(tmp_path / str(number), "offset", "value")
        assert found == [{"offset": 1500, "value": b"z"}]
