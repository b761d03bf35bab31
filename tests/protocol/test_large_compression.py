"""Compressed data that is large: how long it becomes is known before, and one long call may run elsewhere."""

from __future__ import annotations

import mmap
import random
from collections.abc import Callable

import cramjam
import pytest

from kwire.protocol import compression
from kwire.protocol.compression import NAMES, Buffer, compress, decompress, decompressed, most_bytes
from kwire.protocol.compression_parts import Elsewhere, decompress_in_parts, units_to_compress
from kwire.protocol.conversion import downconvert
from kwire.protocol.errors import ErrorCode, KafkaError
from kwire.protocol.record_builder import assemble, build_batch
from kwire.protocol.record_streams import stream
from kwire.protocol.records import HEADER_SIZE, Record, iter_records, parse_header

LARGE = bytes(range(256)) * (24 << 10)  # 6 MB
CODECS = [name for name in NAMES if name != "none"]


def raw_snappy(data: bytes) -> bytes:
    return bytes(cramjam.snappy.compress_raw(data))


def streamed_zstd(data: bytes) -> bytes:
    """Without the size in the header, as Kafka's Java client writes it; two frames."""
    half = len(data) // 2
    frames = []
    for part in (data[:half], data[half:]):
        compressor = cramjam.zstd.Compressor(3)
        compressor.compress(part)
        frames.append(bytes(compressor.finish()))
    return b"".join(frames)


FORMS: dict[str, tuple[str, Callable[[bytes], bytes]]] = {
    **{name: (name, lambda data, name=name: compress(name, data)) for name in CODECS},  # type: ignore[misc]
    "raw snappy": ("snappy", raw_snappy),
    "streamed zstd": ("zstd", streamed_zstd),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("data", [b"", b"x", bytes(300_000), LARGE])
def test_data_never_becomes_longer_than_its_structure_says(form: str, data: bytes) -> None:
    codec, packed = FORMS[form]
    most = most_bytes(codec, memoryview(packed(data)))
    assert most >= len(data)
    if codec in ("snappy", "lz4", "zstd") and len(data) > 1000:
        assert most < 2 * len(data)


@pytest.mark.parametrize("form", FORMS)
def test_damaged_data_never_becomes_longer_either(form: str) -> None:
    codec, packed = FORMS[form]
    source = random.Random(form)
    good = packed(bytes(200_000) + source.randbytes(5000))
    for _ in range(200):
        bad = bytearray(good)
        for _ in range(source.randrange(1, 4)):
            bad[source.randrange(len(bad))] ^= 1 << source.randrange(8)
        most = most_bytes(codec, memoryview(bad))
        try:
            assert len(decompress(codec, bytes(bad))) <= most
        except KafkaError as error:
            assert error.code is ErrorCode.CORRUPT_MESSAGE


@pytest.mark.parametrize("form", FORMS)
def test_what_is_large_is_decompressed_all_the_same(form: str) -> None:
    codec, packed = FORMS[form]
    data = packed(LARGE)
    assert decompress(codec, data) == LARGE
    assert bytes(decompressed(codec, data)) == LARGE
    assert taken(decompress_in_parts(codec, data))[0] == LARGE
    for limit in (len(LARGE) - 1, 1000):
        with pytest.raises(KafkaError, match="CORRUPT_MESSAGE"):
            decompress(codec, data, limit=limit)


def taken(steps: object) -> tuple[bytes, list[int]]:
    """All steps taken here: the result, and their costs."""
    costs: list[int] = []
    try:
        while True:
            costs.append(next(steps))  # type: ignore[call-overload]
    except StopIteration as done:
        result = done.value[0] if isinstance(done.value, tuple) else done.value
        return bytes(result), costs


@pytest.mark.parametrize("form", ["zstd", "streamed zstd", "raw snappy"])
def test_a_producers_large_batch_may_be_decompressed_elsewhere(form: str) -> None:
    codec, packed = FORMS[form]
    data, costs = taken(stream(codec, memoryview(packed(LARGE))))
    assert data == LARGE
    assert [type(cost) for cost in costs] == [Elsewhere] and costs[0] >= len(LARGE) >> 10
    small, costs = taken(stream(codec, memoryview(packed(LARGE[:100_000]))))
    assert small == LARGE[:100_000] and [type(cost) for cost in costs] == [int]


def test_a_stream_that_is_too_long_is_refused_before_and_after_its_claim() -> None:
    for packed in (compress("zstd", LARGE), streamed_zstd(LARGE)):
        with pytest.raises(KafkaError, match="MESSAGE_TOO_LARGE"):
            taken(stream("zstd", memoryview(packed), 5 << 20))


def test_a_broken_large_stream_ends_where_it_breaks() -> None:
    data = bytearray(streamed_zstd(random.Random(5).randbytes(5 << 20)))
    (work,) = steps = list(stream("zstd", memoryview(data)))
    assert isinstance(work, Elsewhere) and len(steps) == 1
    data[:4] = b"\0\0\0\0"
    steps = stream("zstd", memoryview(data))
    next(steps)
    with pytest.raises(StopIteration) as done:
        next(steps)
    assert done.value.value == (b"", False)


@pytest.mark.parametrize("codec", ["lz4", "snappy"])
def test_a_batch_for_an_old_client_may_be_converted_elsewhere(codec: str) -> None:
    batch = build_batch([Record(0, 1, None, LARGE)], compression=codec)
    kinds = [type(cost) for cost in downconvert(batch, 1, 0)]
    assert kinds.count(Elsewhere) == 2  # once to decompress, once to compress


def test_records_of_a_large_batch_are_bytes() -> None:
    plain = build_batch([Record(0, 1, b"k", LARGE)])
    header = parse_header(plain)._replace(attributes=4)
    batch = assemble(header, compress("zstd", plain[HEADER_SIZE:]))
    (record,) = iter_records(batch, parse_header(batch))
    assert record.value == LARGE and type(record.value) is bytes


def test_lz4_of_several_pieces_is_one_frame() -> None:
    data = LARGE * 2
    frame = compress("lz4", data)
    assert compression.decompress("lz4", frame) == data
    assert frame[4] & 0x20  # independent blocks


def test_memory_without_a_system_call_to_shrink_it(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[mmap.mmap] = []

    class Mapped(mmap.mmap):
        def resize(self, size: int) -> None:
            made.append(self)
            raise SystemError("mmap: resizing not available--no mremap()")

    monkeypatch.setattr(mmap, "mmap", Mapped)
    memory: Buffer = compression.room(5 << 20)
    memory[:5] = b"hello"  # type: ignore[index]
    assert bytes(compression.trimmed(memory, 5)) == b"hello" and made  # type: ignore[arg-type]


def test_costs_follow_the_codec() -> None:
    sizes = {codec: units_to_compress(codec, 1 << 20) for codec in NAMES}
    assert sizes["gzip"] > sizes["zstd"] > sizes["lz4"] == sizes["snappy"] == 1024
