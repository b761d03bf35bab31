"""Record batches against Kafka's own bytes, and built and read back."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from kwire.protocol import records
from kwire.protocol.records import (
    BatchHeader,
    Record,
    build_batch,
    check_crc,
    iter_batches,
    iter_records,
    parse_header,
)

GOLDEN = Path(__file__).parents[1] / "data" / "golden-batches.jsonl.gz"


@cache
def golden() -> list[dict[str, Any]]:
    with gzip.open(GOLDEN, "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def golden_case(name: str) -> bytes:
    return next(bytes.fromhex(case["hex"]) for case in golden() if case["case"] == name)


def as_golden(value: bytes | None) -> Any:
    if value is None:
        return None
    if len(value) > 600:
        return {"len": len(value), "sha256": hashlib.sha256(value).hexdigest()}
    return base64.b64encode(value).decode()


def described(data: bytes, header: BatchHeader) -> dict[str, Any]:
    """A batch in the words of golden-batches.jsonl."""
    batch: dict[str, Any] = {
        "magic": header.magic,
        "crc_ok": check_crc(data, header),
        "crc": header.crc,
        "size": header.size,
        "compression": header.compression,
        "timestamp_type": header.timestamp_type,
        "base_offset": header.base_offset,
        "last_offset": header.last_offset,
        "max_timestamp": header.max_timestamp,
        "base_timestamp": header.base_timestamp,
        "partition_leader_epoch": header.partition_leader_epoch,
        "producer_id": header.producer_id,
        "producer_epoch": header.producer_epoch,
        "base_sequence": header.base_sequence,
        "last_sequence": header.last_sequence,
        "transactional": header.is_transactional,
        "control": header.is_control,
        "count": header.count,
    }
    if header.delete_horizon_ms is not None:
        batch["delete_horizon_ms"] = header.delete_horizon_ms
    if batch["crc_ok"]:
        batch["records"] = [described_record(header, r) for r in iter_records(data, header)]
    return batch


def described_record(header: BatchHeader, record: Record) -> dict[str, Any]:
    sequence = -1
    if header.base_sequence >= 0:
        delta = record.offset - header.base_offset
        sequence = records.increment_sequence(header.base_sequence, delta)
    described: dict[str, Any] = {
        "offset": record.offset,
        "timestamp": record.timestamp,
        "sequence": sequence,
        "key": as_golden(record.key),
        "value": as_golden(record.value),
        "headers": [
            [key, None if value is None else base64.b64encode(value).decode()]
            for key, value in record.headers
        ],
    }
    if header.is_control:
        marker = records.parse_control_record(record)
        described["control_type"] = {0: "ABORT", 1: "COMMIT", 2: "LEADER_CHANGE"}[marker.type]
        if marker.type < 2:
            described["coordinator_epoch"] = marker.coordinator_epoch
    return described


V2 = [case["case"] for case in golden() if all(b["magic"] == 2 for b in case["batches"])]


@pytest.mark.parametrize("view", [bytes, memoryview, bytearray])
@pytest.mark.parametrize("name", V2)
def test_golden_batches_are_read_as_kafka_reads_them(name: str, view: type) -> None:
    case = next(case for case in golden() if case["case"] == name)
    data = view(bytes.fromhex(case["hex"]))
    headers = list(iter_batches(data))
    assert [described(data, header) for header in headers] == case["batches"]
    assert (headers[-1].end if headers else 0) == case["valid_bytes"]


def rebuilt(data: bytes, header: BatchHeader, compression: str) -> bytes:
    return build_batch(
        iter_records(data, header),
        base_offset=header.base_offset,
        compression=compression,
        timestamp_type=header.timestamp_type,
        log_append_time_ms=header.max_timestamp,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
        partition_leader_epoch=header.partition_leader_epoch,
        is_transactional=header.is_transactional,
        is_control=header.is_control,
        delete_horizon_ms=header.delete_horizon_ms,
    )


@pytest.mark.parametrize(
    "name",
    [n for n in V2 if ("-none-" in n or "control" in n) and "random" not in n],
)
def test_an_uncompressed_golden_batch_is_rebuilt_byte_for_byte(name: str) -> None:
    data = golden_case(name)
    header = parse_header(data)
    if header.timestamp_type == records.LOG_APPEND_TIME:
        pytest.skip("the producer's own times are not in such a batch's records")
    assert rebuilt(data, header, "none") == data


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
@pytest.mark.parametrize("case", ["basic", "nulls", "headers", "varints", "large", "transactional"])
def test_what_is_written_compressed_is_read_back(codec: str, case: str) -> None:
    plain = golden_case(f"v2-none-{case}")
    header = parse_header(plain)
    compressed = rebuilt(plain, header, codec)
    compressed_header = parse_header(compressed)
    assert compressed_header.compression == codec
    assert check_crc(compressed, compressed_header)
    assert list(iter_records(compressed, compressed_header)) == list(iter_records(plain, header))
