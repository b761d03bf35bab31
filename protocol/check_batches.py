"""Compare golden record batches and message sets with kwire's, read and rewritten.

A part of `kwire.protocol.check`. Rewritten uncompressed batches must have the same bytes;
compressed ones, whose bytes depend on the compressor, must read the same. Batches of LogAppendTime
have lost the producer's timestamps, so they are only read.
"""

from __future__ import annotations

from base64 import b64encode
from typing import Any

from kwire.protocol import record_builder, records
from kwire.protocol.errors import KafkaError
from kwire.protocol.message_set import (
    Message,
    build_message_set,
    check_message_crc,
    iter_entries,
    message_records,
    valid_bytes,
)
from kwire.protocol.records import BatchHeader, Record

_CONTROL_TYPES = {0: "ABORT", 1: "COMMIT", 2: "LEADER_CHANGE"}
_LONGEST_SHOWN = 600
"""Golden files replace longer keys and values by length and hash."""


def check_batches(line: dict[str, Any]) -> str | None:
    """Check a line of golden batches: the problem, or None."""
    data = bytes.fromhex(line["hex"])
    try:
        entries = list(iter_entries(data))
        found = [_describe(data, entry) for entry in entries]
        if found != line["batches"]:
            return f"read as {found}"
        if valid_bytes(data) != line["valid_bytes"]:
            return f"{valid_bytes(data)} bytes are taken for whole batches"
        if not all(batch["crc_ok"] for batch in line["batches"]):
            return None
        for entry in entries:
            if isinstance(entry, BatchHeader) and (problem := _check_rebuilt(data, entry)):
                return problem
        return _check_rebuilt_set(data, entries)
    except KafkaError as error:
        return f"cannot be read: {error}"


def _describe(data: bytes, entry: BatchHeader | Message) -> dict[str, Any]:
    return (
        _describe_batch(data, entry)
        if isinstance(entry, BatchHeader)
        else _describe_message(data, entry)
    )


def _describe_batch(data: bytes, header: BatchHeader) -> dict[str, Any]:
    batch: dict[str, Any] = {
        "magic": header.magic,
        "crc_ok": records.check_crc(data, header),
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
        batch["records"] = [
            _describe_record(header, record) for record in records.iter_records(data, header)
        ]
    return batch


def _describe_record(header: BatchHeader, record: Record) -> dict[str, Any]:
    sequence = -1
    if header.base_sequence >= 0:
        delta = record.offset - header.base_offset
        sequence = records.increment_sequence(header.base_sequence, delta)
    described: dict[str, Any] = {
        "offset": record.offset,
        "timestamp": record.timestamp,
        "sequence": sequence,
        "key": _content(record.key),
        "value": _content(record.value),
        "headers": [
            [key, None if value is None else b64encode(value).decode()]
            for key, value in record.headers
        ],
    }
    if header.is_control:
        marker = records.parse_control_record(record)
        described["control_type"] = _CONTROL_TYPES.get(marker.type, marker.type)
        if marker.type in (records.CONTROL_ABORT, records.CONTROL_COMMIT):
            described["coordinator_epoch"] = marker.coordinator_epoch
    return described


def _describe_message(data: bytes, message: Message) -> dict[str, Any]:
    inner = message_records(data, message)
    return {
        "magic": message.magic,
        "crc_ok": check_message_crc(data, message),
        "crc": message.crc,
        "size": message.size,
        "compression": message.compression,
        "timestamp_type": message.timestamp_type,
        "base_offset": inner[0].offset,
        "last_offset": message.last_offset,
        "max_timestamp": message.timestamp,
        "records": [
            {
                "offset": record.offset,
                **({"timestamp": record.timestamp} if message.magic else {}),
                "key": _content(record.key),
                "value": _content(record.value),
            }
            for record in inner
        ],
    }


def _content(value: bytes | None) -> Any:
    if value is None:
        return None
    if len(value) > _LONGEST_SHOWN:
        from hashlib import sha256

        return {"len": len(value), "sha256": sha256(value).hexdigest()}
    return b64encode(value).decode()


def _check_rebuilt(data: bytes, header: BatchHeader) -> str | None:
    if header.timestamp_type == records.LOG_APPEND_TIME:
        return None
    if header.count == 0:  # what compaction leaves of a batch
        same = record_builder.empty_batch(header) == data[header.position : header.end]
        return None if same else f"written as {record_builder.empty_batch(header).hex()}"
    content = list(records.iter_records(data, header))
    built = record_builder.build_batch(
        content,
        base_offset=header.base_offset,
        compression=header.compression,
        timestamp_type=header.timestamp_type,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
        partition_leader_epoch=header.partition_leader_epoch,
        is_transactional=header.is_transactional,
        is_control=header.is_control,
        delete_horizon_ms=header.delete_horizon_ms,
        last_offset=header.last_offset,
    )
    if header.compression == "none":
        same = built == data[header.position : header.end]
        return None if same else f"written as {built.hex()}"
    again = records.parse_header(built)
    if list(records.iter_records(built, again)) != content or not records.check_crc(built, again):
        return f"with {header.compression} written as {built.hex()}"
    kept = ("base_offset", "attributes", "last_offset", "base_timestamp", "max_timestamp", "count")
    changed = [name for name in kept if getattr(again, name) != getattr(header, name)]
    return f"written with another {', '.join(changed)}" if changed else None


def _check_rebuilt_set(data: bytes, entries: list[BatchHeader | Message]) -> str | None:
    plain = [
        entry
        for entry in entries
        if isinstance(entry, Message)
        and entry.compression == "none"
        and entry.timestamp_type != records.LOG_APPEND_TIME
    ]
    for message in plain:
        built = build_message_set(message_records(data, message), message.magic)
        if built != data[message.position : message.position + message.size]:
            return f"written as {built.hex()}"
    return None
