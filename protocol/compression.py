"""Compression codecs of record batches and message sets, compatible with Kafka's clients.

Answers to org.apache.kafka.common.compress of 3.9. Differences from the defaults of the codec
libraries:

* LZ4 is written with independent blocks and without content checksum; kafka-clients refuses dependent blocks. Both
  kinds are read, since other clients write them.
* LZ4 in magic 0 carries a header checksum over the frame magic too (KAFKA-3160): written so for
  old clients, and either form is read, as in Kafka.
* Snappy is written in the blocks of the xerial Java stream; raw snappy, which some clients send, is read as well.
* gzip may consist of several members; other bytes after the last one are ignored, as in Java.

Decompression is bounded: it returns at most `limit` bytes, whatever the input claims, and never
allocates a buffer by an unchecked length in the data. Any invalid data is
KafkaError(CORRUPT_MESSAGE). Kafka streams and has no such limit; the default is the size of the
largest request (socket.request.max.bytes).
"""

from __future__ import annotations

from kwire.protocol.errors import ErrorCode, KafkaError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

Buffer = bytes | bytearray | memoryview

NAMES = ("none", "gzip", "snappy", "lz4", "zstd")
"""Codec names by id (attribute bits 0 to 2)."""
LAST_CODEC_ID = len(NAMES) - 1

DECOMPRESSED_BYTES_MAX = 100 << 20
LARGE_BYTES = 4 << 20
"""From here on memory comes from the system directly, and is cleared page by page as it is written.
A bytearray of 100 MB is cleared with the interpreter locked: 40 ms in which no thread runs."""
_ZSTD_BLOCK_BYTES = 128 << 10

_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER = _XERIAL_MAGIC + b"\x00\x00\x00\x01\x00\x00\x00\x01"
_XERIAL_BLOCK_BYTES = 32 << 10
_LZ4_MAGIC = b"\x04\x22\x4d\x18"
_LZ4_DEFAULT_LEVEL = (
    9  # compression.lz4.level's default, which in Kafka selects the fast compressor
)


def codec_name(codec_id: int) -> str:
    """The name of a codec id; KafkaError(UNSUPPORTED_COMPRESSION_TYPE) if it is unknown."""
    if 0 <= codec_id < len(NAMES):
        return NAMES[codec_id]
    raise KafkaError(
        ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"unknown compression type id: {codec_id}"
    )


def codec_id(name: str) -> int:
    """The id of a codec name; KafkaError(UNSUPPORTED_COMPRESSION_TYPE) if it is unknown."""
    if name in NAMES:
        return NAMES.index(name)
    raise KafkaError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"unknown compression name: {name}")


def compress(codec: str, data: Buffer, *, level: int | None = None, magic: int = 2) -> bytes:
    """Compress `data` for any Kafka client. `level`: as in Kafka; None: the default."""
    if codec == "none":
        return bytes(data)
    if codec == "gzip":
        import zlib

        compressor = zlib.compressobj(-1 if level is None else level, zlib.DEFLATED, 31)
        return compressor.compress(data) + compressor.flush()
    if codec == "snappy":
        return _compress_snappy(data)
    if codec == "lz4":
        return _compress_lz4(data, level, magic)
    if codec == "zstd":
        import cramjam

        return bytes(cramjam.zstd.compress(data, level=3 if level is None else level))
    raise KafkaError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"unknown compression name: {codec}")


def decompress(
    codec: str, data: Buffer, *, limit: int = DECOMPRESSED_BYTES_MAX, magic: int = 2
) -> bytes:
    """Decompress `data`; KafkaError(CORRUPT_MESSAGE) if it is invalid or above `limit` bytes."""
    return bytes(decompressed(codec, data, limit=limit, magic=magic))


def decompressed(
    codec: str, data: Buffer, *, limit: int = DECOMPRESSED_BYTES_MAX, magic: int = 2
) -> bytes:
    """As `decompress`; but what is large is a mmap.mmap, which saves a copy: its slices are bytes."""
    if codec == "none":
        return bytes(data)
    if codec == "gzip":
        return _decompress_gzip(data, limit)
    if codec == "snappy":
        return _decompress_snappy(data, limit)
    if codec == "lz4":
        import cramjam

        if magic == 0:
            data = _with_lz4_header_checksum(bytes(data), over_magic=False)
        return _decompress_bounded(codec, cramjam.lz4.decompress_into, data, limit)
    if codec == "zstd":
        import cramjam

        return _decompress_bounded(codec, cramjam.zstd.decompress_into, data, limit)
    raise KafkaError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"unknown compression name: {codec}")


def room(size: int) -> bytearray:
    """Memory to decompress into; pass it to `trimmed` afterwards."""
    if size <= LARGE_BYTES:
        return bytearray(size)
    import mmap

    return mmap.mmap(-1, size)  # type: ignore[return-value]  # as good as one: indexed, sliced, written to


def trimmed(memory: bytearray, length: int) -> bytearray:
    """`memory` cut to that length, without a copy where the system allows it."""
    if isinstance(memory, bytearray):
        del memory[length:]
    elif length != len(memory):
        try:
            memory.resize(max(length, 1))
        except SystemError:  # not on macOS
            return bytearray(memoryview(memory)[:length])
        if not length:
            return bytearray()
    return memory


def most_bytes(codec: str, data: memoryview) -> int:
    """How many bytes the data decompresses to at most, by its structure and not by what it claims."""
    most = {"zstd": _most_of_zstd, "lz4": _most_of_lz4, "snappy": _most_of_snappy}.get(codec)
    return len(data) * 1032 if most is None else most(data)


def _most_of_snappy(data: memoryview) -> int:
    """The sum of what blocks claim, as far as that can be."""
    import cramjam

    blocks = [data]
    if data[:8] == _XERIAL_MAGIC:
        blocks, position = [], 16
        while position + 4 <= len(data):
            length = int.from_bytes(data[position : position + 4], "big")
            if data[position : position + 8] == _XERIAL_MAGIC:
                position += 16
                continue
            blocks.append(data[position + 4 : position + 4 + length])
            position += 4 + length
    most = 0
    for block in blocks:
        try:
            most += min(cramjam.snappy.decompress_raw_len(block), 22 * len(block) + 64)
        except cramjam.DecompressionError:
            break
    return most


def _most_of_lz4(data: memoryview) -> int:
    """The sum of the blocks of a frame, each of which has a limit."""
    if len(data) < 7 or data[:4] != _LZ4_MAGIC:
        return 0
    flags, block_max = data[4], (64 << 10) << 2 * max((data[5] >> 4 & 7) - 4, 0)
    position, most = 7 + (flags & 8) + 4 * (flags & 1), 0
    while position + 4 <= len(data):
        size = int.from_bytes(data[position : position + 4], "little")
        is_raw, size = size >> 31, size & 0x7FFFFFFF
        if not size:
            position += flags & 4  # another frame may follow
            return most + (255 * (len(data) - position - 4) if len(data) > position + 11 else 0)
        most += size if is_raw else min(block_max, 255 * size)
        position += 4 + size + (flags >> 2 & 4)
    return most


def _most_of_zstd(data: memoryview) -> int:
    """The sum of all blocks, each of which has a limit (RFC 8878, 3.1.1)."""
    position = most = 0
    end = len(data)
    while end - position >= 8:
        magic = int.from_bytes(data[position : position + 4], "little")
        if magic & 0xFFFFFFF0 == 0x184D2A50:  # skipped
            position += 8 + int.from_bytes(data[position + 4 : position + 8], "little")
            continue
        if magic != 0xFD2FB528:  # an old form, or none
            return DECOMPRESSED_BYTES_MAX + 1
        flags = data[position + 4]
        is_single_segment = flags >> 5 & 1
        position += 6 - is_single_segment + (0, 1, 2, 4)[flags & 3]
        position += (is_single_segment, 2, 4, 8)[flags >> 6]
        is_last = False
        while not is_last and position + 3 <= end:
            block = int.from_bytes(data[position : position + 3], "little")
            is_last, kind, size = block & 1 == 1, block >> 1 & 3, block >> 3
            position += 3 + (1 if kind == 1 else size)
            most += size if kind < 2 else _ZSTD_BLOCK_BYTES
        if flags & 4:
            position += 4
    return most


def corrupt(codec: str, why: str) -> KafkaError:
    """The error for data that cannot be decompressed."""
    return KafkaError(ErrorCode.CORRUPT_MESSAGE, f"cannot decompress {codec} records: {why}")


def _decompress_bounded(
    codec: str, decompress_into: Callable[[Buffer, bytearray], int], data: Buffer, limit: int
) -> bytes:
    """Decompress into growing buffers: the library limits output only by the buffer's size."""
    import cramjam

    size = min(limit, max(4096, 8 * len(data)))
    while True:
        out = room(size)
        try:
            length = decompress_into(data, out)
        except cramjam.DecompressionError as error:
            if "whole buffer" not in str(error):
                raise corrupt(codec, str(error)) from None
            if size >= limit:
                raise corrupt(codec, f"more than {limit} bytes") from None
            size = min(limit, size * 8)
            continue
        if length <= LARGE_BYTES:
            return bytes(memoryview(out)[:length])
        return trimmed(out, length)  # type: ignore[return-value]  # see `decompressed`


def _decompress_gzip(data: Buffer, limit: int) -> bytes:
    import zlib

    decompressor = zlib.decompressobj(31)
    try:
        # One byte more than allowed tells "exactly the limit" from "more".
        out = decompressor.decompress(data, limit + 1)
    except zlib.error as error:
        raise corrupt("gzip", str(error)) from None
    if len(out) > limit:
        raise corrupt("gzip", f"more than {limit} bytes")
    if not decompressor.eof:
        raise corrupt("gzip", "the stream ends early")
    if decompressor.unused_data[:2] != b"\x1f\x8b":
        return out
    # Several members. zlib would copy the rest for each, and hostile data may have thousands.
    import cramjam

    return _decompress_bounded("gzip", cramjam.gzip.decompress_into, data, limit)


def _compress_snappy(data: Buffer) -> bytes:
    import cramjam

    view = memoryview(data)
    out = bytearray(_XERIAL_HEADER)
    for start in range(0, len(view), _XERIAL_BLOCK_BYTES):
        block = cramjam.snappy.compress_raw(view[start : start + _XERIAL_BLOCK_BYTES])
        out += len(block).to_bytes(4, "big")
        out += memoryview(block)
    return bytes(out)


def _decompress_snappy(data: Buffer, limit: int) -> bytes:
    view = memoryview(data)
    if bytes(view[:8]) != _XERIAL_MAGIC:
        return _decompress_snappy_block(view, limit)
    blocks: list[bytes] = []
    position = 16
    while position < len(view):
        if bytes(view[position : position + 8]) == _XERIAL_MAGIC:
            position += 16  # one stream after the other
            continue
        length = int.from_bytes(view[position : position + 4], "big")
        position += 4
        if length > len(view) - position:
            raise corrupt("snappy", "a block is longer than the data")
        block = _decompress_snappy_block(view[position : position + length], limit)
        limit -= len(block)
        blocks.append(block)
        position += length
    return blocks[0] if len(blocks) == 1 else b"".join(blocks)


def _decompress_snappy_block(block: memoryview, limit: int) -> bytes:
    import cramjam

    try:
        length = cramjam.snappy.decompress_raw_len(block)
        # Three bytes expand to at most 64: reject larger claims before allocating.
        if length > limit or length > 22 * len(block) + 64:
            raise corrupt("snappy", f"{length} bytes out of {len(block)}")
        if length <= LARGE_BYTES:
            return bytes(cramjam.snappy.decompress_raw(block))
        out = room(length)
        cramjam.snappy.decompress_raw_into(block, out)
        return out  # type: ignore[return-value]  # see `decompressed`
    except cramjam.DecompressionError as error:
        raise corrupt("snappy", str(error)) from None


def _compress_lz4(data: Buffer, level: int | None, magic: int) -> bytes:
    import cramjam

    fast = level is None or level == _LZ4_DEFAULT_LEVEL
    compressor = cramjam.lz4.Compressor(
        level=0 if fast else level, content_checksum=False, block_linked=False
    )
    view = memoryview(data)
    for start in range(0, max(1, len(view)), LARGE_BYTES):  # it locks the interpreter meanwhile
        compressor.compress(bytes(view[start : start + LARGE_BYTES]))  # takes nothing else
    frame = bytes(compressor.finish())
    return _with_lz4_header_checksum(frame, over_magic=True) if magic == 0 else frame


def _with_lz4_header_checksum(frame: bytes, *, over_magic: bool) -> bytes:
    """Set the frame's header checksum; `over_magic`: over the frame magic too, as in magic 0."""
    if len(frame) < 7 or frame[:4] != _LZ4_MAGIC:
        return frame  # left to the decompressor to reject
    end = 6 + (
        8 if frame[4] & 0x08 else 0
    )  # flags, block size, and the content size where there is one
    if len(frame) <= end:
        return frame
    checksum = _xxh32_short(frame[0 if over_magic else 4 : end]) >> 8 & 0xFF
    return frame[:end] + bytes([checksum]) + frame[end + 1 :]


def _xxh32_short(data: bytes) -> int:
    """xxHash32 with seed 0 of fewer than 16 bytes, enough for LZ4 frame headers."""
    assert len(data) < 16
    mask = 0xFFFFFFFF
    value = 374761393 + len(data)
    position = 0
    while position + 4 <= len(data):
        word = int.from_bytes(data[position : position + 4], "little")
        value = (value + word * 3266489917) & mask
        value = ((value << 17 | value >> 15) & mask) * 668265263 & mask
        position += 4
    for byte in data[position:]:
        value = (value + byte * 374761393) & mask
        value = ((value << 11 | value >> 21) & mask) * 2654435761 & mask
    value = (value ^ value >> 15) * 2246822519 & mask
    value = (value ^ value >> 13) * 3266489917 & mask
    return value ^ value >> 16
