"""The five codecs: what clients send is read, what is hostile is refused without taking the memory it asks for."""

from __future__ import annotations

import gzip
import tracemalloc
import zlib

import cramjam
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kwire.protocol.compression import NAMES, codec_id, codec_name, compress, decompress
from kwire.protocol.errors import ErrorCode, KafkaError

CODECS = NAMES[1:]
TEXT = b"partition leader epoch offset " * 5000


@pytest.mark.parametrize("codec", NAMES)
@pytest.mark.parametrize("data", [b"", b"x", TEXT, bytes(range(256)) * 300])
def test_every_codec_reads_what_it_writes(codec: str, data: bytes) -> None:
    assert decompress(codec, compress(codec, data)) == data
    assert decompress(codec, compress(codec, bytearray(data))) == data
    assert decompress(codec, memoryview(compress(codec, memoryview(data)))) == data


@given(st.binary(max_size=3000), st.sampled_from(NAMES))
def test_any_bytes_survive(data: bytes, codec: str) -> None:
    assert decompress(codec, compress(codec, data)) == data


@pytest.mark.parametrize(
    ("codec", "levels"), [("gzip", [-1, 1, 9]), ("lz4", [1, 9, 12, 17]), ("zstd", [-5, 1, 3, 22])]
)
def test_every_level_kafka_allows_is_accepted(codec: str, levels: list[int]) -> None:
    for level in levels:
        assert decompress(codec, compress(codec, TEXT[:5000], level=level)) == TEXT[:5000]


def test_snappy_is_written_in_xerial_blocks_and_read_in_either_form() -> None:
    written = compress("snappy", TEXT)
    assert written[:16] == b"\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01"
    assert decompress("snappy", bytes(cramjam.snappy.compress_raw(TEXT))) == TEXT
    assert decompress("snappy", written + written) == TEXT * 2


@pytest.mark.parametrize("linked", [False, True])
def test_lz4_is_read_with_blocks_that_depend_on_each_other_or_not(linked: bool) -> None:
    compressor = cramjam.lz4.Compressor(level=0, content_checksum=linked, block_linked=linked)
    compressor.compress(TEXT)
    frame = bytes(compressor.finish())
    assert bool(frame[4] & 0x20) is not linked
    assert decompress("lz4", frame) == TEXT


def test_lz4_is_written_as_java_can_read_it() -> None:
    frame = compress("lz4", TEXT)
    assert frame[:4] == b"\x04\x22\x4d\x18"
    assert frame[4] & 0x20  # independent blocks
    assert not frame[4] & 0x04  # no content checksum


@pytest.mark.parametrize("magic_written", [0, 1])
def test_magic_0_reads_lz4_with_either_header_checksum(magic_written: int) -> None:
    frame = compress("lz4", TEXT, magic=magic_written)
    assert decompress("lz4", frame, magic=0) == TEXT


def test_the_wrong_header_checksum_is_only_forgiven_in_magic_0() -> None:
    with pytest.raises(KafkaError):
        decompress("lz4", compress("lz4", TEXT, magic=0), magic=1)


def test_gzip_may_have_several_members_and_rubbish_behind() -> None:
    assert decompress("gzip", gzip.compress(b"one ") + gzip.compress(b"two")) == b"one two"
    assert decompress("gzip", gzip.compress(b"one") + b"\0\0\0\0") == b"one"


def test_zstd_is_read_without_content_size() -> None:
    # The frame header descriptor of a stream: no single segment, no content size.
    raw_block = bytes.fromhex("28b52ffd0058") + (len(b"hello") << 3 | 1).to_bytes(3, "little")
    assert decompress("zstd", raw_block + b"hello") == b"hello"


def test_names_and_ids() -> None:
    assert [codec_name(codec_id(name)) for name in NAMES] == list(NAMES)
    for call in (lambda: codec_name(5), lambda: codec_name(-1), lambda: codec_id("brotli")):
        with pytest.raises(KafkaError) as refused:
            call()
        assert refused.value.code is ErrorCode.UNSUPPORTED_COMPRESSION_TYPE


# ---- hostile


def corrupt(codec: str, data: bytes, **options: int) -> None:
    with pytest.raises(KafkaError) as refused:
        decompress(codec, data, **options)
    assert refused.value.code is ErrorCode.CORRUPT_MESSAGE


@pytest.mark.parametrize("codec", CODECS)
def test_more_than_the_limit_is_refused_and_exactly_the_limit_is_not(codec: str) -> None:
    data = compress(codec, b"a" * 100_000)
    assert len(decompress(codec, data, limit=100_000)) == 100_000
    corrupt(codec, data, limit=99_999)


@pytest.mark.parametrize("codec", ["gzip", "lz4", "zstd"])
def test_a_bomb_takes_no_more_memory_than_the_limit_allows(codec: str) -> None:
    bomb = compress(codec, bytes(64 << 20))
    tracemalloc.start()
    try:
        corrupt(codec, bomb, limit=1 << 20)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 8 << 20


def test_a_gzip_bomb_of_many_members_is_bounded() -> None:
    corrupt("gzip", gzip.compress(bytes(1 << 20)) * 200, limit=10 << 20)


def test_the_length_in_a_snappy_block_is_not_believed() -> None:
    promise = b"\xff\xff\xff\xff\x07" + b"\0" * 20  # 2 GiB
    corrupt("snappy", promise)
    block = b"\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01"
    corrupt("snappy", block + len(promise).to_bytes(4, "big") + promise)
    corrupt("snappy", block + b"\x7f\xff\xff\xff" + b"x")
    corrupt("snappy", block + b"\x00")


@pytest.mark.parametrize("codec", CODECS)
def test_truncated_data_is_refused(codec: str) -> None:
    data = compress(codec, TEXT)
    for length in (0, 1, 5, 17, len(data) // 2, len(data) - 1):
        if codec == "snappy" and length == 16:
            continue
        corrupt(codec, data[:length])


@given(st.sampled_from(CODECS), st.binary(max_size=200), st.integers(0, 1))
def test_random_bytes_give_the_one_error_or_data(codec: str, data: bytes, magic: int) -> None:
    prefix = {"gzip": b"\x1f\x8b\x08\0", "lz4": b"\x04\x22\x4d\x18", "zstd": b"\x28\xb5\x2f\xfd"}
    for candidate in (data, prefix.get(codec, b"\x82SNAPPY\x00") + data):
        try:
            decompress(codec, candidate, limit=1 << 16, magic=magic)
        except KafkaError as error:
            assert error.code is ErrorCode.CORRUPT_MESSAGE


@given(st.sampled_from(CODECS), st.integers(0, 10_000), st.integers(0, 7))
def test_flipped_bits_give_the_one_error_or_data(codec: str, position: int, bit: int) -> None:
    data = bytearray(compress(codec, TEXT[:2000]))
    data[position % len(data)] ^= 1 << bit
    try:
        decompress(codec, bytes(data), limit=1 << 16)
    except KafkaError as error:
        assert error.code is ErrorCode.CORRUPT_MESSAGE


def test_a_wrong_gzip_checksum_is_noticed() -> None:
    data = bytearray(compress("gzip", TEXT))
    data[-6] ^= 1
    corrupt("gzip", bytes(data))
    assert zlib.crc32(TEXT) == int.from_bytes(compress("gzip", TEXT)[-8:-4], "little")
