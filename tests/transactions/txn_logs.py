"""Logs as data: batches of partitions, records of `__transaction_state` and `__consumer_offsets`.

Values of coordinators' records are decoded so that ids and times can be masked; that the decoded value encodes to the
same bytes is asserted, so equal data means equal bytes."""

from __future__ import annotations

from typing import Any

from kwire.protocol.records import BatchHeader, Record, iter_batches, iter_records
from kwire.protocol.schemas.records_group import OffsetCommitKey, OffsetCommitValue
from kwire.protocol.schemas.records_transaction import TransactionLogKey, TransactionLogValue


def batches_of(data: bytes) -> list[dict[str, Any]]:
    """Every field of every batch but checksums and times."""
    return [
        header_of(header) | {"records": [bytes_of(record) for record in iter_records(data, header)]}
        for header in iter_batches(data)
    ]


def state_records(data: bytes, tid: str) -> list[dict[str, Any]]:
    """The records of one transactional id."""
    found = []
    for header in iter_batches(data):
        for record in iter_records(data, header):
            key = TransactionLogKey.decode(record.key[2:], 0)
            if key.transactional_id == tid:
                row = {"key": record.key, "value": decoded(TransactionLogValue, record.value)}
                found.append(row | header_of(header, with_place=False))
    return found


def group_records(data: bytes, group: str) -> list[dict[str, Any]]:
    """The committed offsets of a group, and the markers of their transactions."""
    found = []
    producer_ids = set()
    for header in iter_batches(data):
        if header.is_control and header.producer_id in producer_ids:
            rows: list[Any] = [bytes_of(record) for record in iter_records(data, header)]
        else:
            rows = [
                {"key": record.key, "value": decoded(OffsetCommitValue, record.value)}
                for record in iter_records(data, header)
                if is_offset_of(group, record, header)
            ]
        if rows:
            producer_ids.add(header.producer_id)
            found.append(header_of(header, with_place=False) | {"rows": rows})
    return found


def is_offset_of(group: str, record: Record, header: BatchHeader) -> bool:
    key = bytes(record.key or b"")
    return (
        not header.is_control
        and key[:2] in (b"\0\0", b"\0\1")
        and OffsetCommitKey.decode(key[2:], 0).group == group
    )


def header_of(header: BatchHeader, with_place: bool = True) -> dict[str, Any]:
    place = {
        "base_offset": header.base_offset,
        "last_offset_delta": header.last_offset_delta,
        "count": header.count,
        "leader_epoch": header.partition_leader_epoch,
    }
    return (place if with_place else {}) | {
        "magic": header.magic,
        "attributes": header.attributes,
        "producer_id": header.producer_id,
        "producer_epoch": header.producer_epoch,
        "base_sequence": header.base_sequence,
    }


def bytes_of(record: Record) -> list[Any]:
    return [record.key, record.value, *map(list, record.headers)]


def decoded(message: Any, value: bytes | None) -> Any:
    if value is None:
        return None
    value = bytes(value)
    version = int.from_bytes(value[:2], "big")
    data = message.decode(value[2:], version)
    assert bytes(data.encode(version)) == value[2:], value.hex()
    return {"version": version, "data": data}
