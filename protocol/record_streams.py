"""Decompress the records of a batch as far as Kafka's streams do, a piece at a time.

Answers to GzipCompression, SnappyCompression, Lz4Compression and ZstdCompression of kafka-clients
3.9 and the streams below them. Kafka reads a producer's records while it decompresses, so what a
stream yields before it fails counts: records that are wrong there are refused for what they are.
Readers of a log use `compression.decompress`, which is stricter about what follows the data, or
`records_in_parts` where others wait meanwhile.

Where Kafka's streams and the libraries used here differ: bytes after an LZ4 frame or a gzip member
are ignored; a content checksum of LZ4 is not compared; LZ4 blocks that depend on the one before are
refused; fewer than four bytes after a snappy block are ignored.
"""

from __future__ import annotations

import zlib
from collections.abc import Generator, Iterator

from kwire.protocol.compression import (
    _LZ4_MAGIC,
    _XERIAL_MAGIC,
    DECOMPRESSED_BYTES_MAX,
    LARGE_BYTES,
    Buffer,
    _decompress_snappy_block,
    _xxh32_short,
    most_bytes,
    room,
    trimmed,
)
from kwire.protocol.compression_parts import Elsewhere, decompress_in_parts
from kwire.protocol.errors import ErrorCode, KafkaError
from kwire.protocol.records import (
    COMPRESSION_MASK,
    HEADER_SIZE,
    BatchHeader,
    Record,
    iter_records,
)

PIECE_BYTES = 256 << 10
"""About what is decompressed between two yields: half a millisecond."""
_PIECE_UNITS = 500
_SMALLEST_BOMB_BYTES = 128
"""Fewer bytes of zstd do not become `LARGE_BYTES`."""
_GZIP_INPUT_BYTES = 8 << 10  # as Kafka's GZIPInputStream reads
_GZIP_OUTPUT_BYTES = 16 << 10
_GZIP_OVERHEAD = 18  # header and trailer

Stream = tuple[Buffer, bool]
"""The bytes that can be read, and whether the stream ends with them (else it fails there)."""


class _BrokenStreamError(Exception):
    """A stream that fails; what came before stays."""


def records_in_parts(buffer: Buffer, header: BatchHeader) -> Generator[int, None, Iterator[Record]]:
    """The records of a batch as `iter_records` gives them, of which only decompression is in parts:
    whoever takes them yields, too."""
    codec = header.compression
    if codec == "none" or header.count <= 0:
        return iter_records(buffer, header)
    body = memoryview(buffer)[header.position + HEADER_SIZE : header.end]
    section = yield from decompress_in_parts(codec, body)
    if isinstance(section, bytearray):
        section = bytes(section)  # as fields of records are
    plain = header._replace(
        position=-HEADER_SIZE,  # of a batch whose records begin at 0
        size=HEADER_SIZE + len(section),
        attributes=header.attributes & ~COMPRESSION_MASK,
    )
    return iter_records(section, plain)


def stream(
    codec: str, data: memoryview, limit: int = DECOMPRESSED_BYTES_MAX
) -> Generator[int, None, Stream]:
    """Decompress in steps (their costs in units, replication/core/work.py).

    zstd is one step, as is a block of snappy: if it is large, one that may run elsewhere.
    KafkaError(MESSAGE_TOO_LARGE): more than `limit` bytes; Kafka has no such limit.
    """
    if codec == "zstd" or (codec == "snappy" and data[:8] != _XERIAL_MAGIC):
        in_one = _zstd if codec == "zstd" else _raw_snappy
        if len(data) > _SMALLEST_BOMB_BYTES:
            most = min(limit, most_bytes(codec, data))
            if most > LARGE_BYTES:
                work = Elsewhere(most >> 10, lambda: in_one(data, limit))
                yield work
                return work.result()
        yield len(data) // 1000
        return in_one(data, limit)
    whole = _whole(codec, data)
    if whole is not None:
        return whole, True
    pieces = {"gzip": _gzip, "snappy": _snappy, "lz4": _lz4}[codec](data, limit)
    out = bytearray()
    paid = 0
    try:
        for piece in pieces:
            out += piece
            if len(out) > limit:
                raise too_large(limit)
            if len(out) - paid >= PIECE_BYTES:
                yield (len(out) - paid) * _PIECE_UNITS // PIECE_BYTES
                paid = len(out)
    except (_BrokenStreamError, IndexError):
        return out, False
    return out, True


def too_large(limit: int) -> KafkaError:
    """The refusal of records that take more than `limit` bytes."""
    return KafkaError(
        ErrorCode.MESSAGE_TOO_LARGE,
        f"The records of the batch take more than {limit} bytes when they are decompressed",
    )


def _whole(codec: str, data: memoryview) -> bytes | None:
    """The usual case in one call of a library: small, and without any oddity; None otherwise."""
    if codec != "gzip":
        return None
    decompressor = zlib.decompressobj(31)
    try:
        out = decompressor.decompress(data, PIECE_BYTES)
    except zlib.error:
        return None
    return out if decompressor.eof and not decompressor.unused_data else None


# --- gzip


def _gzip(data: memoryview, limit: int) -> Generator[bytes, None, None]:
    """The members of a gzip stream. What follows one and is no header is ignored."""
    position = _gzip_header(data, 0)
    while True:
        inflater = zlib.decompressobj(-15)
        crc = size = 0
        while not inflater.eof:
            taken = data[position : position + _GZIP_INPUT_BYTES]
            if not len(taken):
                raise _BrokenStreamError
            position += len(taken)
            piece: Buffer = taken
            is_full = True
            while is_full and not inflater.eof:
                try:
                    piece = inflater.decompress(piece, _GZIP_OUTPUT_BYTES)
                except zlib.error:
                    raise _BrokenStreamError from None
                crc, size = zlib.crc32(piece, crc), size + len(piece)
                yield piece
                is_full = len(piece) == _GZIP_OUTPUT_BYTES
                piece = inflater.unconsumed_tail
        position -= len(inflater.unused_data)
        trailer = bytes(data[position : position + 8])
        if trailer != crc.to_bytes(4, "little") + (size & 0xFFFFFFFF).to_bytes(4, "little"):
            raise _BrokenStreamError
        position += 8
        if len(data) - position <= _GZIP_OVERHEAD:
            return
        try:
            position = _gzip_header(data, position)
        except (_BrokenStreamError, IndexError):
            return


def _gzip_header(data: memoryview, position: int) -> int:
    """The position after a member's header (GZIPInputStream.readHeader)."""
    start = position
    if bytes(data[position : position + 3]) != b"\x1f\x8b\x08":
        raise _BrokenStreamError
    flags = data[position + 3]
    position += 10
    if flags & 0x04:
        position += 2 + data[position] + (data[position + 1] << 8)
    for flag in (0x08, 0x10):  # a name, a comment
        if flags & flag:
            while data[position]:
                position += 1
            position += 1
    if flags & 0x02:
        stored = data[position] | data[position + 1] << 8
        if stored != zlib.crc32(data[start:position]) & 0xFFFF:
            raise _BrokenStreamError
        position += 2
    if position > len(data):
        raise _BrokenStreamError
    return position


# --- snappy


def _raw_snappy(data: memoryview, limit: int) -> Stream:
    """One block without a header, which some clients send (SnappyInputStream)."""
    if not len(data):
        return b"", False
    try:
        return _decompress_snappy_block(data, limit), True
    except KafkaError:
        return b"", False


def _snappy(data: memoryview, limit: int) -> Generator[bytes, None, None]:
    """Blocks of the xerial stream (SnappyInputStream)."""
    if len(data) < 16:
        yield _snappy_block(data, limit)
        return
    position = 16
    while len(data) - position >= 4:
        length = int.from_bytes(data[position : position + 4], "big")
        if data[position : position + 8] == _XERIAL_MAGIC:
            position += 16  # one stream after the other
            continue
        position += 4
        if length > len(data) - position:
            raise _BrokenStreamError
        yield _snappy_block(data[position : position + length], limit)
        position += length


def _snappy_block(block: memoryview, limit: int) -> bytes:
    try:
        return _decompress_snappy_block(block, limit)
    except KafkaError:
        raise _BrokenStreamError from None


# --- lz4


_LZ4_BLOCK_BYTES = {4: 64 << 10, 5: 256 << 10, 6: 1 << 20, 7: 4 << 20}


def _lz4(data: memoryview, limit: int) -> Generator[Buffer, None, None]:
    """The blocks of one frame (Lz4BlockInputStream)."""
    import cramjam

    flags, block_max, position = _lz4_header(data)
    buffer = bytearray(min(block_max, 256 * len(data)))
    while True:
        if len(data) - position < 4:
            raise _BrokenStreamError
        size = int.from_bytes(data[position : position + 4], "little")
        position += 4
        is_raw, size = size >> 31, size & 0x7FFFFFFF
        if not size:
            if flags & 0x04 and len(data) - position < 4:
                raise _BrokenStreamError  # the checksum of the content, which is not compared
            return
        if size > block_max or size > len(data) - position:
            raise _BrokenStreamError
        block = data[position : position + size]
        position += size
        if flags & 0x10:
            _check_lz4_block(data[5], data[position - size - 4 : position + 4])
            position += 4
        if is_raw:
            yield block
            continue
        try:
            length = cramjam.lz4.decompress_block_into(block, buffer)
        except cramjam.DecompressionError:
            raise _BrokenStreamError from None
        yield memoryview(buffer)[:length]


def _lz4_header(data: memoryview) -> tuple[int, int, int]:
    """(flags, largest block, position after the header) of a frame that Kafka reads."""
    if len(data) < 7 or data[:4] != _LZ4_MAGIC:
        raise _BrokenStreamError
    flags, block_max = data[4], _LZ4_BLOCK_BYTES.get(data[5] >> 4 & 7)
    # Version 1, independent blocks, nothing reserved, no dictionary.
    if flags & 0xE3 != 0x60 or data[5] & 0x8F or block_max is None:
        raise _BrokenStreamError
    position = 14 if flags & 0x08 else 6
    if data[position] != _xxh32_short(bytes(data[4:position])) >> 8 & 0xFF:
        raise _BrokenStreamError
    return flags, block_max, position + 1


def _check_lz4_block(descriptor: int, block: memoryview) -> None:
    """Compare the checksum at the end of a block (with its size) by reading it as a frame."""
    import cramjam

    header = bytes([0x70, descriptor])
    checksum = _xxh32_short(header) >> 8 & 0xFF
    frame = b"".join((_LZ4_MAGIC, header, bytes([checksum]), block, bytes(4)))
    try:
        cramjam.lz4.decompress_into(frame, bytearray(_LZ4_BLOCK_BYTES[descriptor >> 4 & 7]))
    except cramjam.DecompressionError:
        raise _BrokenStreamError from None


# --- zstd


def _zstd(data: memoryview, limit: int) -> Stream:
    import cramjam

    if not len(data):
        return b"", True
    claimed = _zstd_content_size(data)
    size = 0
    while size < limit:
        least = max(4096, 8 * len(data), 8 * size)
        # Memory is not given for a claim alone, but a claim that may be right saves a try.
        size = claimed if size < claimed <= min(limit, 8 * least) else min(limit, least)
        if size > LARGE_BYTES and claimed <= limit:
            size = min(limit, most_bytes("zstd", data))  # only what is written to takes memory
        out = room(size)
        try:
            return trimmed(out, cramjam.zstd.decompress_into(data, out)), True
        except cramjam.DecompressionError as error:
            if "whole buffer" not in str(error):
                return b"", False
        if claimed > limit:  # and begins as a frame does
            break
    raise too_large(limit)


def _zstd_content_size(data: memoryview) -> int:
    """The size that the header of a frame claims, 0: none (RFC 8878, 3.1.1.1)."""
    if len(data) < 18:
        return 0
    flags = data[4]
    is_single_segment = flags >> 5 & 1
    size_bytes = (is_single_segment, 2, 4, 8)[flags >> 6]
    position = 5 + (not is_single_segment) + (0, 1, 2, 4)[flags & 3]
    size = int.from_bytes(data[position : position + size_bytes], "little")
    return size + 256 if size_bytes == 2 else size
