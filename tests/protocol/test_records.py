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
from hypothesis import given
from hypothesis import strategies as st

from kwire.protocol import record_builder, record_validation, records
from kwire.protocol.errors import ErrorCode, InvalidRecordsError, KafkaError
from kwire.protocol.record_builder import build_batch
from kwire.protocol.records import (
    HEADER_SIZE,
    BatchHeader,
    Record,
    check_crc,
    iter_batches,
    iter_records,
    parse_header,
)
from kwire.protocol.varint import read_varint, read_varlong

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
    [n for n in V2 if "v2-none-" in n and "random" not in n and "append-time" not in n],
)
def test_an_uncompressed_golden_batch_is_rebuilt_byte_for_byte(name: str) -> None:
    data = golden_case(name)
    header = parse_header(data)
    assert rebuilt(data, header, "none") == data


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
@pytest.mark.parametrize("case", ["basic", "nulls", "headers", "varints", "large", "transactional"])
def test_compressed_batches_are_read_back(codec: str, case: str) -> None:
    plain = golden_case(f"v2-none-{case}")
    header = parse_header(plain)
    compressed = rebuilt(plain, header, codec)
    compressed_header = parse_header(compressed)
    assert compressed_header.compression == codec
    assert check_crc(compressed, compressed_header)
    assert list(iter_records(compressed, compressed_header)) == list(iter_records(plain, header))


# ---- building, stamping


def test_the_empty_batch_that_compaction_leaves_has_kafkas_bytes() -> None:
    expected = golden_case("v2-empty-after-compaction")
    header = parse_header(expected)
    full = build_batch(
        [Record(20, 1, b"k", b"v"), Record(29, header.max_timestamp, None, None)],
        base_offset=20,
        producer_id=4001,
        producer_epoch=7,
        base_sequence=3,
        partition_leader_epoch=6,
        is_transactional=True,
    )
    assert record_builder.empty_batch(parse_header(full)) == expected


@pytest.mark.parametrize("kind", ["commit", "abort"])
def test_transaction_markers_have_kafkas_bytes(kind: str) -> None:
    expected = golden_case(f"v2-control-{kind}")
    header = parse_header(expected)
    marker = records.parse_control_record(next(iter_records(expected, header)))
    built = record_builder.end_transaction_marker(
        marker.type,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        coordinator_epoch=marker.coordinator_epoch,
        timestamp=header.max_timestamp,
        base_offset=header.base_offset,
        partition_leader_epoch=header.partition_leader_epoch,
    )
    assert built == expected


def test_stamping_touches_base_offset_and_leader_epoch_only() -> None:
    original = golden_case("v2-gzip-headers")
    for make in (bytearray, lambda data: memoryview(bytearray(data))):
        buffer = make(b"before" + original)
        records.stamp(buffer, 6, 1 << 40, 77)
        header = parse_header(buffer, 6)
        assert (header.base_offset, header.partition_leader_epoch) == (1 << 40, 77)
        assert check_crc(buffer, header)
        assert bytes(buffer[:6]) == b"before"
        assert bytes(buffer[6 + 8 : 6 + 12]) == original[8:12]
        assert bytes(buffer[6 + 16 :]) == original[16:]


def test_log_append_time_changes_every_timestamp_and_the_checksum() -> None:
    buffer = bytearray(golden_case("v2-zstd-basic"))
    before = parse_header(buffer)
    records.restamp(buffer, 0, 12345)
    header = parse_header(buffer)
    assert header.timestamp_type == records.LOG_APPEND_TIME
    assert check_crc(buffer, header)
    assert header.crc != before.crc
    assert {record.timestamp for record in iter_records(buffer, header)} == {12345}
    again = bytes(buffer)
    records.restamp(buffer, 0, 12345)
    assert bytes(buffer) == again
    records.restamp(buffer, 0, before.max_timestamp, records.CREATE_TIME)
    assert bytes(buffer) == golden_case("v2-zstd-basic")


@pytest.mark.parametrize("target", ["none", "gzip", "snappy", "lz4", "zstd"])
@pytest.mark.parametrize("source", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_recompressing_changes_the_codec_and_nothing_else(source: str, target: str) -> None:
    data = golden_case(f"v2-{source}-transactional")
    header = parse_header(data)
    changed = record_builder.recompress(memoryview(data), header, target, level=None)
    changed_header = parse_header(changed)
    assert changed_header.compression == target
    assert check_crc(changed, changed_header)
    assert list(iter_records(changed, changed_header)) == list(iter_records(data, header))
    same = {"size": 0, "crc": 0, "attributes": 0}
    assert changed_header._replace(**same) == header._replace(**same)


def test_records_without_offset_are_numbered_on() -> None:
    batch = build_batch(
        [Record(-1, 5, b"a", None), Record(-1, 6, None, b"b"), Record(107, 4, b"c", b"")],
        base_offset=100,
    )
    header = parse_header(batch)
    assert [r.offset for r in iter_records(batch, header)] == [100, 101, 107]
    assert (header.count, header.last_offset, header.max_timestamp) == (3, 107, 6)


names = st.text(max_size=8)
nullable = st.one_of(st.none(), st.binary(max_size=30), st.binary(min_size=120, max_size=140))
some_records = st.lists(
    st.tuples(
        st.integers(0, 100_000),
        st.integers(-1, 2**62),
        nullable,
        nullable,
        st.lists(st.tuples(names, nullable), max_size=3),
    ),
    max_size=6,
)


@given(some_records, st.sampled_from(["none", "gzip", "snappy", "lz4", "zstd"]), st.data())
def test_built_batches_are_read_back(
    drawn: list[tuple[int, int, bytes | None, bytes | None, list[tuple[str, bytes | None]]]],
    codec: str,
    data: st.DataObject,
) -> None:
    base_offset = data.draw(st.integers(0, 2**60))
    offset, wanted = base_offset, []
    for gap, timestamp, key, value, headers in drawn:
        wanted.append(Record(offset + gap, timestamp, key, value, headers or ()))
        offset += gap + 1
    batch = build_batch(wanted, base_offset=base_offset, compression=codec)
    header = parse_header(batch)
    assert (header.size, header.count, header.base_offset) == (len(batch), len(wanted), base_offset)
    assert check_crc(batch, header)
    assert list(iter_records(batch, header)) == wanted


def test_header_keys_that_are_no_utf_8_come_back_as_they_were() -> None:
    batch = bytearray(build_batch([Record(0, 0, None, None, [("abc", b"x")])]))
    batch[batch.index(b"abc") : batch.index(b"abc") + 3] = b"\xff\xfe\x80"
    (record,) = iter_records(bytes(batch), parse_header(batch))
    rebuilt_batch = build_batch([record])
    assert rebuilt_batch[61:] == bytes(batch[61:])


# ---- hostile


def code_of(action: Any) -> ErrorCode:
    with pytest.raises(KafkaError) as refused:
        action()
    return refused.value.code


@pytest.mark.parametrize("length", [*range(0, 61, 7), 60])
def test_less_than_a_header_is_corrupt(length: int) -> None:
    data = golden_case("v2-none-basic")[:length]
    assert code_of(lambda: parse_header(data)) is ErrorCode.CORRUPT_MESSAGE
    assert list(iter_batches(data)) == []


def with_field(data: bytes, position: int, field: bytes) -> bytes:
    return data[:position] + field + data[position + len(field) :]


@pytest.mark.parametrize("length", [-(2**31), -1, 0, 48])
def test_a_length_no_batch_can_have_is_corrupt(length: int) -> None:
    field = length.to_bytes(4, "big", signed=True)
    data = with_field(golden_case("v2-none-basic"), 8, field)
    assert code_of(lambda: parse_header(data)) is ErrorCode.CORRUPT_MESSAGE
    assert code_of(lambda: list(iter_batches(data))) is ErrorCode.CORRUPT_MESSAGE


@pytest.mark.parametrize(
    ("magic", "code"),
    [
        (0, ErrorCode.INVALID_RECORD),
        (1, ErrorCode.INVALID_RECORD),
        (3, ErrorCode.CORRUPT_MESSAGE),
        (255, ErrorCode.CORRUPT_MESSAGE),
    ],
)
def test_another_magic_is_no_batch(magic: int, code: ErrorCode) -> None:
    data = with_field(golden_case("v2-none-basic"), 16, bytes([magic]))
    assert code_of(lambda: parse_header(data)) is code
    assert code_of(lambda: list(iter_batches(data[:40]))) is code


def test_a_batch_longer_than_the_buffer_is_partial_and_its_crc_not_right() -> None:
    data = golden_case("v2-none-basic")
    lie = with_field(data, 8, (2**31 - 1).to_bytes(4, "big"))
    assert list(iter_batches(lie)) == []
    assert not check_crc(lie, parse_header(lie))
    assert code_of(lambda: list(iter_records(lie, parse_header(lie)))) is ErrorCode.CORRUPT_MESSAGE


@pytest.mark.parametrize("count", [-1, 1, 2, 4, 2**31 - 1])
@pytest.mark.parametrize("codec", ["none", "lz4"])
def test_a_count_that_lies_is_noticed(codec: str, count: int) -> None:
    data = with_field(golden_case(f"v2-{codec}-basic"), 57, count.to_bytes(4, "big", signed=True))
    header = parse_header(data)
    assert code_of(lambda: list(iter_records(data, header))) is ErrorCode.INVALID_RECORD
    assert code_of(lambda: validated(data)) is ErrorCode.INVALID_RECORD


def test_an_unknown_codec_is_unsupported() -> None:
    data = with_field(golden_case("v2-gzip-basic"), 21, b"\x00\x07")
    code = code_of(lambda: list(iter_records(data, parse_header(data))))
    assert code is ErrorCode.UNSUPPORTED_COMPRESSION_TYPE


def test_a_bomb_of_records_stops_at_the_limit() -> None:
    bomb = build_batch([Record(0, 0, None, bytes(4 << 20))], compression="zstd")
    assert len(bomb) < 2000
    header = parse_header(bomb)
    code = code_of(lambda: list(iter_records(bomb, header, limit=1 << 20)))
    assert code is ErrorCode.CORRUPT_MESSAGE
    (record,) = iter_records(bomb, header)
    assert record.value == bytes(4 << 20)


def varint(value: int) -> bytes:
    out = bytearray()
    record_builder.append_varint(out, value)
    return bytes(out)


NULL_VALUE_NO_HEADERS = b"\x01\x00"


@pytest.mark.parametrize(
    "body",
    [
        b"\0\0\0" + varint(1000) + NULL_VALUE_NO_HEADERS,  # the key is longer than the batch
        b"\0\0\0\x01" + varint(2**31 - 1) + b"\0",  # so is the value
        b"\0\0\0\x01\x01" + varint(-1),  # a negative number of headers
        b"\0\0\0\x01\x01" + varint(2**31 - 1),  # too many headers
        b"\0\0\0\x01\x01" + varint(1) + varint(-1) + b"\x01",  # a header without key
        b"\0\0\0\x01\x01" + varint(1) + varint(1) + b"k" + varint(5),  # its value is cut off
        b"\0\0\0\x01\x01\0\0",  # a byte too many
        b"\0" + b"\xff" * 11,  # a number that does not end
        b"\0\0" + b"\xff" * 6,
        b"",
    ],
)
def test_a_malformed_record_is_invalid(body: bytes) -> None:
    section = varint(len(body)) + body
    template = parse_header(build_batch([Record(0, 0, None, None)]))
    data = record_builder.assemble(template, section)
    assert code_of(lambda: list(iter_records(data, parse_header(data)))) is ErrorCode.INVALID_RECORD
    assert code_of(lambda: validated(data)) is ErrorCode.INVALID_RECORD


@given(st.sampled_from(V2), st.data())
def test_flipped_bits_give_an_error_code_or_records_but_nothing_else(
    name: str, data: st.DataObject
) -> None:
    original = bytearray(golden_case(name)[:3000])
    for _ in range(data.draw(st.integers(1, 3))):
        original[data.draw(st.integers(0, len(original) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    broken = bytes(original)
    try:
        for header in iter_batches(broken):
            check_crc(broken, header)
            for record in iter_records(broken, header, limit=1 << 20):
                if header.is_control:
                    records.parse_control_record(record)
    except KafkaError as error:
        assert error.code in (
            ErrorCode.CORRUPT_MESSAGE,
            ErrorCode.INVALID_RECORD,
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
        )


@pytest.mark.parametrize(
    "record",
    [
        Record(0, 0, None, b"\0" * 6),
        Record(0, 0, b"\0\0\0", b"\0" * 6),
        Record(0, 0, b"\xff\xff\0\0", b"\0" * 6),
        Record(0, 0, b"\0\0\0\0", b"\0" * 5),
        Record(0, 0, b"\0\0\0\x01", None),
        Record(0, 0, b"\0\0\0\x01", b"\xff\xff\0\0\0\0"),
    ],
)
def test_a_malformed_marker_is_invalid(record: Record) -> None:
    assert code_of(lambda: records.parse_control_record(record)) is ErrorCode.INVALID_RECORD


# ---- what a broker checks


def validated(data: bytes, **options: Any) -> record_validation.RecordsSummary:
    rules = record_validation.RecordRules(**{"now_ms": 1700000000000, **options})
    steps = record_validation.check_records(memoryview(data), parse_header(data), rules)
    while True:
        try:
            next(steps)
        except StopIteration as done:
            summary: record_validation.RecordsSummary = done.value
            return summary


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
@pytest.mark.parametrize("case", ["basic", "nulls", "headers", "large", "idempotent"])
def test_batches_of_kafka_are_valid(codec: str, case: str) -> None:
    data = golden_case(f"v2-{codec}-{case}")
    header = parse_header(data)
    # Validation is of what clients send: their batches begin at 0.
    record_validation.validate_header(header)
    assert validated(data)[:2] == (header.max_timestamp, True)


def test_gaps_between_offsets_are_noticed() -> None:
    data = golden_case("v2-lz4-varints")
    assert not validated(data, is_kept=False).is_plain
    assert code_of(lambda: validated(data)) is ErrorCode.UNKNOWN_SERVER_ERROR


def test_a_compacted_topic_wants_keys() -> None:
    data = golden_case("v2-none-nulls")
    with pytest.raises(record_validation.InvalidRecordsError) as refused:
        validated(data, keys_required=True)
    assert refused.value.code is ErrorCode.INVALID_RECORD
    assert [index for index, _ in refused.value.record_errors] == [0, 2]


def test_timestamps_must_be_within_bounds() -> None:
    data = build_batch([Record(-1, t, b"k", b"v") for t in (900, 1000, 1100, 1101, 899, -1)])
    bounds = {"now_ms": 1000, "timestamp_before_max_ms": 100, "timestamp_after_max_ms": 100}
    with pytest.raises(record_validation.InvalidRecordsError) as refused:
        validated(data, **bounds)
    assert refused.value.code is ErrorCode.INVALID_TIMESTAMP
    assert [index for index, _ in refused.value.record_errors] == [3, 4]
    assert validated(data, **bounds, timestamp_type="LogAppendTime").max_timestamp == 1101


def test_a_client_may_not_claim_log_append_time() -> None:
    data = golden_case("v2-none-log-append-time")
    with pytest.raises(record_validation.InvalidRecordsError) as refused:
        validated(data, timestamp_type="LogAppendTime")
    assert refused.value.code is ErrorCode.INVALID_TIMESTAMP


def test_reported_record_errors_are_bounded() -> None:
    data = build_batch([Record(-1, 0, None, b"")] * 3000)
    with pytest.raises(record_validation.InvalidRecordsError) as refused:
        validated(data, keys_required=True)
    assert len(refused.value.record_errors) == record_validation.RECORD_ERRORS_MAX


@pytest.mark.parametrize(
    "change",
    [
        {"last_offset_delta": -1},
        {"count": 0},
        {"count": -5},
        {"count": 2},
        {"last_offset_delta": 3},
        {"attributes": 0x20},
        {"producer_id": 5, "base_sequence": -1},
    ],
)
def test_a_header_no_client_may_send_is_invalid(change: dict[str, int]) -> None:
    header = parse_header(golden_case("v2-none-basic"))
    record_validation.validate_header(header)
    changed = header._replace(**change)
    code = code_of(lambda: record_validation.validate_header(changed))
    assert code is ErrorCode.INVALID_RECORD


@pytest.mark.parametrize(
    "value", [0, -1, 1, 63, -64, 64, -65, 8191, 8192, 2**31 - 1, -(2**31), 2**63 - 1, -(2**63)]
)
def test_varints_are_read_as_written(value: int) -> None:
    data = varint(value)
    assert read_varlong(data, 0) == (value, len(data))
    if -(2**31) <= value < 2**31:
        assert read_varint(b"x" + data, 1) == (value, 1 + len(data))


def batch_of(*records: bytes, timestamp: int = 1_700_000_000_000) -> bytes:
    """A batch with these records as bytes, each without its size."""
    empty = build_batch([Record(-1, timestamp, b"k", b"v")] * len(records))
    sized = b"".join(
        bytes([len(record) << 1 & 0x7F | 0x80, len(record) >> 6]) + record for record in records
    )
    return empty[:8] + (49 + len(sized)).to_bytes(4, "big") + empty[12:HEADER_SIZE] + sized


def test_the_header_of_a_batch_counts_its_records() -> None:
    header = parse_header(build_batch([Record(-1, 1, b"k", b"v")]))
    for change, says in (
        ({"last_offset_delta": -1}, "invalid offset range"),
        ({"count": 0}, "Invalid reported count for record batch: 0"),
        ({"count": 2}, "Inconsistent batch offset range"),
    ):
        with pytest.raises(KafkaError, match=says):
            record_validation.validate_header(header._replace(**change))
    record_validation.validate_header(header)


def test_the_largest_timestamp_of_records_before_the_base_is_theirs() -> None:
    data = bytearray(build_batch([Record(-1, 1_700_000_000_000, b"k", b"v")]))
    data[HEADER_SIZE + 2] = 9  # the timestamp delta -5
    assert validated(bytes(data)).max_timestamp == 1_700_000_000_000 - 5


def test_errors_of_records_are_told_up_to_a_thousand() -> None:
    data = build_batch([Record(-1, 1_700_000_000_000, None, b"v")] * 1500)
    with pytest.raises(InvalidRecordsError) as caught:
        validated(data, keys_required=True)
    assert len(caught.value.record_errors) == record_validation.RECORD_ERRORS_MAX


def test_a_record_of_a_negative_size_ends_too_early() -> None:
    data = bytearray(build_batch([Record(-1, 1_700_000_000_000, b"k", b"v")]))
    data[HEADER_SIZE] = 1
    with pytest.raises(KafkaError, match="premature EOF"):
        validated(bytes(data))


@pytest.mark.parametrize("delta", [39, 21])
def test_a_timestamp_before_1970_cannot_be_written_differently(delta: int) -> None:
    data = bytearray(
        build_batch([Record(-1, 3, b"k", b"a"), Record(-1, 3, b"k", b"b")], compression="none")
    )
    data[data.index(b"\x02k\x02b") - 2] = delta  # -20 and -11 beside a base of 3
    with pytest.raises(KafkaError, match="negative timestamp"):
        validated(bytes(data), is_kept=False)


def test_a_header_without_a_key_is_refused() -> None:
    record = bytes([0, 0, 0, 2]) + b"k" + bytes([2]) + b"v" + bytes([2, 1])
    with pytest.raises(KafkaError, match="Invalid negative header key size -1"):
        validated(batch_of(record))


def test_records_that_all_claim_a_header_that_is_not_there_are_refused() -> None:
    data = bytearray(build_batch([Record(-1, 1_700_000_000_000, b"k", b"v")] * 40))
    position = HEADER_SIZE
    while position < len(data):
        position += 1 + (data[position] >> 1)
        data[position - 1] = 2  # the number of headers
    with pytest.raises(KafkaError):
        validated(bytes(data))


def test_a_long_negative_length_of_a_key_is_no_key() -> None:
    # given a record whose key is "-65 bytes long", and 65 bytes before its end what would be its value
    second = bytes([0, 0, 2, 0x81, 0x01, 0x01, 0x00])
    value = bytearray(62)
    value[5:7] = 0x80, 0x01
    first = bytes([0, 0, 0, 2]) + b"k" + bytes([len(value) << 1]) + bytes(value) + bytes([0])
    data = batch_of(first, second)
    assert validated(data).max_timestamp == 1_700_000_000_000
    with pytest.raises(InvalidRecordsError, match="without key"):
        validated(data, keys_required=True)
