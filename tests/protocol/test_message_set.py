"""Message sets of magic 0 and 1 against Kafka's own bytes; conversion up and down."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
from collections.abc import Generator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kwire.protocol import compression, conversion, message_set
from kwire.protocol.errors import ErrorCode, KafkaError
from kwire.protocol.message_set import (
    Message,
    build_message_set,
    check_message_crc,
    iter_entries,
    message_records,
    valid_bytes,
)
from kwire.protocol.record_builder import build_batch
from kwire.protocol.records import Record, check_crc, iter_records, parse_header


def in_one_go(parts: Generator[int, None, Any]) -> bytes:
    """What a conversion returns; each of its parts is small."""
    try:
        while True:
            assert 0 <= next(parts) <= 6500
    except StopIteration as done:
        return bytes(done.value)


def upconvert(data: bytes, **options: Any) -> bytes:
    return in_one_go(conversion.upconvert(data, **options))


def downconvert(data: bytes, to_magic: int, first_offset: int) -> bytes:
    return in_one_go(conversion.downconvert(data, to_magic, first_offset))


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


def described(data: bytes, message: Message) -> dict[str, Any]:
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
                "key": as_golden(record.key),
                "value": as_golden(record.value),
            }
            for record in inner
        ],
    }


OLD = [case["case"] for case in golden() if all(b["magic"] < 2 for b in case["batches"])]


@pytest.mark.parametrize("view", [bytes, memoryview])
@pytest.mark.parametrize("name", [*OLD, "mixed-magic"])
def test_golden_message_sets_are_read_as_kafka_reads_them(name: str, view: type) -> None:
    case = next(case for case in golden() if case["case"] == name)
    data = view(bytes.fromhex(case["hex"]))
    messages = [entry for entry in iter_entries(data) if isinstance(entry, Message)]
    expected = [batch for batch in case["batches"] if batch["magic"] < 2]
    assert [described(data, message) for message in messages] == expected
    assert valid_bytes(data) == case["valid_bytes"]


def all_records(data: bytes) -> list[Record]:
    found: list[Record] = []
    for entry in iter_entries(data):
        found += (
            message_records(data, entry)
            if isinstance(entry, Message)
            else iter_records(data, entry)
        )
    return found


@pytest.mark.parametrize("name", [n for n in OLD if "-none-" in n and "append" not in n])
def test_uncompressed_golden_message_sets_are_rebuilt_byte_for_byte(name: str) -> None:
    data = golden_case(name)
    assert build_message_set(all_records(data), data[16]) == data


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4"])
@pytest.mark.parametrize("case", ["basic", "base-offset", "nulls", "large"])
def test_wrappers_are_written_as_kafka_writes_them(codec: str, magic: int, case: str) -> None:
    data = golden_case(f"v{magic}-{codec}-{case}")
    expected = all_records(data)
    built = build_message_set(expected, magic, compression=codec)
    (theirs,) = iter_entries(data)
    (ours,) = iter_entries(built)
    assert isinstance(ours, Message)
    assert isinstance(theirs, Message)
    assert all_records(built) == expected
    assert check_message_crc(built, ours)
    assert (ours.offset, ours.timestamp, ours.attributes, ours.key) == (
        theirs.offset,
        theirs.timestamp,
        theirs.attributes,
        theirs.key,
    )


def test_lz4_in_magic_0_has_the_checksum_old_clients_expect() -> None:
    def frame(magic: int) -> bytes:
        data = build_message_set([Record(0, 0, b"k", b"v")], magic, compression="lz4")
        (message,) = iter_entries(data)
        assert isinstance(message, Message)
        assert message.value is not None
        return bytes(message.value)

    old, new = frame(0), frame(1)
    # 0x04 22 4d 18 | flags, block size | checksum: xxh32 of flags and size, in magic 0 of the frame's magic too.
    assert new[:7] == bytes.fromhex("04224d187040ad")
    assert old[:6] == new[:6]
    theirs = golden_case("v0-lz4-basic")
    start = theirs.index(b"\x04\x22\x4d\x18")
    their_frame = theirs[start:]
    mended = compression._with_lz4_header_checksum(their_frame, over_magic=False)
    assert mended != their_frame
    assert compression._with_lz4_header_checksum(mended, over_magic=True) == their_frame
    assert compression._with_lz4_header_checksum(new, over_magic=True)[:7] == old[:7]


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4"])
def test_a_message_set_is_converted_to_one_batch_from_offset_0(codec: str, magic: int) -> None:
    data = golden_case(f"v{magic}-{codec}-base-offset")
    batch = upconvert(data)
    header = parse_header(batch)
    assert check_crc(batch, header)
    assert (header.size, header.base_offset, header.count) == (len(batch), 0, 3)
    assert header.compression == codec
    originals = all_records(data)
    expected = [r._replace(offset=i, timestamp=r.timestamp) for i, r in enumerate(originals)]
    assert list(iter_records(batch, header)) == expected
    assert header.max_timestamp == max(r.timestamp for r in originals)


def flipped(data: bytes, position: int) -> bytes:
    changed = bytearray(data)
    changed[position] ^= 1
    return bytes(changed)


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"", ErrorCode.INVALID_RECORD),
        (golden_case("v1-none-basic")[:20], ErrorCode.INVALID_RECORD),
        (flipped(golden_case("v1-none-basic"), 30), ErrorCode.CORRUPT_MESSAGE),
        (flipped(golden_case("v0-gzip-basic"), -1), ErrorCode.CORRUPT_MESSAGE),
        (golden_case("mixed-magic"), ErrorCode.INVALID_RECORD),
        (golden_case("v2-none-basic"), ErrorCode.INVALID_RECORD),
        (golden_case("v1-gzip-basic") * 2, ErrorCode.INVALID_RECORD),
        (golden_case("v1-gzip-basic") + golden_case("v1-none-basic"), ErrorCode.INVALID_RECORD),
        (golden_case("v1-none-log-append-time"), ErrorCode.INVALID_TIMESTAMP),
        (b"\0" * 40, ErrorCode.CORRUPT_MESSAGE),
    ],
)
def test_a_message_set_that_kafka_refuses_is_refused(data: bytes, code: ErrorCode) -> None:
    with pytest.raises(KafkaError) as refused:
        upconvert(data)
    assert refused.value.code is code


def wrapper(inner: bytes, *, magic: int = 1, offset: int = 9, attributes: int = 1) -> bytes:
    value = compression.compress(compression.NAMES[attributes & 7], inner)
    out = bytearray()
    message_set._append_message(out, offset, magic, attributes, 5, None, value)
    return bytes(out)


def test_relative_offsets_count_back_from_the_wrappers() -> None:
    inner = build_message_set([Record(0, 1, None, b"a"), Record(3, 1, None, b"b")], 1)
    assert [r.offset for r in all_records(wrapper(inner, offset=103))] == [100, 103]
    assert [r.offset for r in all_records(wrapper(inner, offset=0))] == [0, 3]


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (wrapper(b""), ErrorCode.INVALID_RECORD),
        (wrapper(golden_case("v0-none-basic")), ErrorCode.INVALID_RECORD),
        (wrapper(golden_case("v1-gzip-basic")), ErrorCode.INVALID_RECORD),
        (wrapper(golden_case("v1-none-basic"), attributes=4), ErrorCode.INVALID_RECORD),
        (wrapper(golden_case("v1-none-base-offset"), offset=5), ErrorCode.INVALID_RECORD),
        (wrapper(flipped(golden_case("v1-none-basic"), 30)), ErrorCode.CORRUPT_MESSAGE),
        (wrapper(b"\0" * 12), ErrorCode.CORRUPT_MESSAGE),
    ],
)
def test_an_invalid_wrapper_is_refused(data: bytes, code: ErrorCode) -> None:
    with pytest.raises(KafkaError) as refused:
        upconvert(data)
    assert refused.value.code is code


texts = st.one_of(st.none(), st.binary(max_size=40))
simple_records = st.lists(
    st.builds(Record, st.just(-1), st.integers(0, 2**41), texts, texts, st.just(())),
    min_size=1,
    max_size=8,
)


@given(simple_records, st.sampled_from(["none", "gzip", "snappy", "lz4"]), st.integers(0, 1 << 40))
def test_down_and_up_again_gives_the_same_records(
    given_records: list[Record], codec: str, base_offset: int
) -> None:
    batch = build_batch(given_records, base_offset=base_offset, compression=codec)
    originals = list(iter_records(batch, parse_header(batch)))
    down = downconvert(batch, 1, base_offset)
    assert all_records(down) == originals
    up = upconvert(down)
    assert [r[1:] for r in iter_records(up, parse_header(up))] == [r[1:] for r in originals]
    down_0 = downconvert(batch, 0, base_offset)
    assert [(r.offset, r.key, r.value) for r in all_records(down_0)] == [
        (r.offset, r.key, r.value) for r in originals
    ]


@pytest.mark.parametrize("codec", ["none", "gzip"])
def test_log_append_time_survives_the_way_down_to_magic_1(codec: str) -> None:
    batch = golden_case(f"v2-{codec}-log-append-time")
    down = downconvert(batch, 1, 0)
    assert {r.timestamp for r in all_records(down)} == {parse_header(batch).max_timestamp}
    entry = next(iter_entries(down))
    assert entry.timestamp_type == "LogAppendTime"


def test_going_down_drops_headers_and_control_batches_and_a_torn_end() -> None:
    log = golden_case("v2-none-headers") + golden_case("v2-control-commit")
    down = downconvert(log + golden_case("v2-none-basic")[:-1], 1, 0)
    assert [(r.key, r.value) for r in all_records(down)] == [
        (b"k", b"v"),
        (None, b"v"),
        (b"k", None),
    ]


def test_down_conversion_of_uncompressed_batches_starts_at_the_requested_offset() -> None:
    assert [r.offset for r in all_records(downconvert(golden_case("v2-none-basic"), 1, 2))] == [2]
    assert len(all_records(downconvert(golden_case("v2-gzip-basic"), 1, 2))) == 3
    assert downconvert(golden_case("v2-none-basic"), 1, 3) == b""


def test_messages_old_enough_go_down_untouched() -> None:
    old = golden_case("v0-none-basic")
    assert downconvert(old + golden_case("v1-gzip-basic"), 1, 0) == old + golden_case(
        "v1-gzip-basic"
    )
    down = downconvert(golden_case("v1-gzip-basic"), 0, 0)
    assert [r.value for r in all_records(down)] == [
        r.value for r in all_records(golden_case("v1-gzip-basic"))
    ]


def test_zstd_cannot_go_down() -> None:
    with pytest.raises(KafkaError) as refused:
        downconvert(golden_case("v2-zstd-basic"), 1, 0)
    assert refused.value.code is ErrorCode.UNSUPPORTED_COMPRESSION_TYPE


@given(st.data())
def test_flipped_bits_give_an_error_code_or_records_but_nothing_else(data: st.DataObject) -> None:
    name = data.draw(
        st.sampled_from(["v0-gzip-basic", "v1-lz4-nulls", "v0-lz4-basic", "v1-none-basic"])
    )
    original = golden_case(name)
    broken = flipped(original, data.draw(st.integers(0, len(original) - 1)))
    broken = broken[: data.draw(st.integers(0, len(original)))]
    try:
        list(all_records(broken))
    except KafkaError as error:
        assert error.code in (
            ErrorCode.CORRUPT_MESSAGE,
            ErrorCode.INVALID_RECORD,
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
        )


# --- in parts, and what is too large

MANY = [Record(i, 5, None, b"%d" % i) for i in range(20_000)]


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4"])
@pytest.mark.parametrize("magic", [0, 1])
def test_large_sets_are_converted_in_small_parts(codec: str, magic: int) -> None:
    data = build_message_set(MANY, magic, compression=codec)
    parts = list(conversion.upconvert(data))
    assert sum(parts) >= 10 * len(MANY) and max(parts) <= 6500
    batch = upconvert(data)
    header = parse_header(batch)
    assert [r.value for r in iter_records(batch, header)] == [r.value for r in MANY]
    parts = list(conversion.downconvert(batch, magic, 0))
    assert sum(parts) >= 10 * len(MANY) and max(parts) <= 6500
    assert [r[:4] for r in all_records(downconvert(batch, magic, 0))] == [
        (r.offset, r.timestamp if magic else -1, r.key, r.value) for r in MANY
    ]


def too_large(data: bytes, max_bytes: int, **options: Any) -> int:
    """The units that pass before a set is refused as too large."""
    units = 0
    with pytest.raises(KafkaError) as refused:
        for cost in conversion.upconvert(data, max_bytes=max_bytes, **options):
            units += cost
    assert refused.value.code is ErrorCode.MESSAGE_TOO_LARGE
    return units


def test_a_wrapper_that_is_too_large_is_refused_before_anything_is_read() -> None:
    data = build_message_set(MANY, 1, compression="gzip")
    assert too_large(data, len(data) - 1) == 0
    assert too_large(flipped(data, 60), len(data) - 1) == 0  # size before checksum, as in Kafka
    assert upconvert(data, max_bytes=len(data))


def test_a_set_whose_batch_must_be_too_large_is_refused_before_it_is_converted() -> None:
    data = build_message_set(MANY, 1)
    size = len(upconvert(data))
    assert too_large(data, size // 20) <= 4 * len(MANY) // 10
    # Not by the size of the set: a record in a batch is shorter than a message.
    assert size < len(data) / 2.9
    assert len(upconvert(data, max_bytes=size)) == size
    # A topic that compresses may make any set small enough.
    assert len(upconvert(data, max_bytes=size // 20, may_shrink=True)) == size


def test_a_plain_message_that_is_too_large_comes_before_a_damaged_one() -> None:
    data = build_message_set([Record(0, 5, None, b"a" * 500), Record(1, 5, None, b"b")], 1)
    too_large(flipped(data, len(data) - 1), 300)


def test_down_conversion_ends_when_it_is_as_long_as_what_was_read() -> None:
    """As in Kafka: a megabyte of compressed records must not become a hundred."""
    batch = build_batch([Record(-1, 5, None, b"a")] * 1000, compression="gzip")
    log = b"".join(
        build_batch([Record(-1, 5, None, b"a")] * 1000, base_offset=1000 * n, compression="none")
        for n in range(20)
    )
    down = downconvert(log, 1, 0)
    assert len(log) <= len(down) < 2 * len(log)
    assert [r.offset for r in all_records(down)] == list(range(len(all_records(down))))
    assert len(all_records(downconvert(batch, 1, 0))) == 1000  # one batch, whatever becomes of it


@pytest.mark.parametrize("rest", [b"", b"junk", b"\x1f", gzip.compress(b"more")])
def test_gzip_in_parts_is_gzip(rest: bytes) -> None:
    from kwire.protocol.compression_parts import decompress_in_parts

    plain = b"".join(b"%d" % i for i in range(200_000))
    data = gzip.compress(plain) + rest
    assert in_one_go(decompress_in_parts("gzip", data)) == compression.decompress("gzip", data)
    for limit in (len(plain) - 1, 5):
        with pytest.raises(KafkaError):
            in_one_go(decompress_in_parts("gzip", data, limit=limit))
    with pytest.raises(KafkaError):
        in_one_go(decompress_in_parts("gzip", data[: len(data) // 2]))
