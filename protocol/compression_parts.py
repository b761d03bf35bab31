"""Compress and decompress in parts: generators of the cost of what they have done, in units.

For data whose size a client decides, on a thread that serves others (see `replication.core.work`).
Formats, limits and errors are those of `compression.py`. gzip, which is slow, and snappy are worked
on in parts; lz4 is compressed in parts. The library decompresses lz4 and zstd only as a whole, at
0.5 to 1 GB/s.
"""

from __future__ import annotations

from collections.abc import Generator

from kwire.protocol import compression
from kwire.protocol.compression import DECOMPRESSED_BYTES_MAX, Buffer

_IN_BYTES = 64 << 10
_OUT_BYTES = 256 << 10
_UNITS_GUNZIPPED = 4  # a KiB of output
_UNITS_GZIPPED = 25  # a KiB of input
_UNITS_FAST = 2  # a KiB of snappy or lz4
_GZIP_MAGIC = b"\x1f\x8b"


def decompress_in_parts(
    codec: str, data: Buffer, *, limit: int = DECOMPRESSED_BYTES_MAX, magic: int = 2
) -> Generator[int, None, bytes | bytearray]:
    """Decompress `data` as `compression.decompress` does, with the same errors."""
    if codec == "gzip":
        return (yield from _gunzip(memoryview(data), limit))
    out = compression.decompress(codec, data, limit=limit, magic=magic)
    yield len(out) * _UNITS_FAST >> 10
    return out


def _gunzip(data: memoryview, limit: int) -> Generator[int, None, bytearray]:
    import zlib

    out = bytearray()
    decompressor = zlib.decompressobj(31)
    position = 0
    rest: Buffer = b""
    try:
        while True:
            if not rest:
                rest = data[position : position + _IN_BYTES]
                position += len(rest)
            if decompressor.eof:
                # Several members; other bytes after the last one are ignored, as in Java.
                if len(rest) == 1 and position < len(data):
                    rest = bytes(rest) + bytes(data[position : position + _IN_BYTES])
                    position += len(rest) - 1
                if rest[:2] != _GZIP_MAGIC:
                    return out
                decompressor = zlib.decompressobj(31)
            elif not rest:
                raise compression.corrupt("gzip", "the stream ends early")
            # One byte more than allowed tells "exactly the limit" from "more".
            size = len(out)
            out += decompressor.decompress(rest, min(_OUT_BYTES, limit + 1 - size))
            if len(out) > limit:
                raise compression.corrupt("gzip", f"more than {limit} bytes")
            rest = decompressor.unused_data if decompressor.eof else decompressor.unconsumed_tail
            yield 20 + ((len(out) - size) * _UNITS_GUNZIPPED >> 10)
    except zlib.error as error:
        raise compression.corrupt("gzip", str(error)) from None


def compress_in_parts(codec: str, data: Buffer, *, magic: int = 2) -> Generator[int, None, bytes]:
    """Compress `data` for any Kafka client, with the codec's default level."""
    if codec == "gzip":
        import zlib

        compressor = zlib.compressobj(-1, zlib.DEFLATED, 31)
        view = memoryview(data)
        pieces = []
        for start in range(0, len(view), _IN_BYTES):
            chunk = view[start : start + _IN_BYTES]
            pieces.append(compressor.compress(chunk))
            yield len(chunk) * _UNITS_GZIPPED >> 10
        pieces.append(compressor.flush())
        return b"".join(pieces)
    out = compression.compress(codec, data, magic=magic)
    yield len(data) * _UNITS_FAST >> 10
    return out
