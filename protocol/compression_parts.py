"""Compress and decompress in parts: generators of the cost of what they have done, in units.

For data whose size a client decides, on a thread that serves others (see `replication.core.work`).
Formats, limits and errors are those of `compression.py`. gzip, which is slow, is worked on in parts.
The other libraries work on the whole, at 0.5 to 2 GB/s: such a step is an `Elsewhere`.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Generic, TypeVar

from kwire.protocol import compression
from kwire.protocol.compression import DECOMPRESSED_BYTES_MAX, Buffer

_IN_BYTES = 64 << 10
_OUT_BYTES = 256 << 10
_UNITS_GUNZIPPED = 4  # a KiB of output
_UNITS_GZIPPED = 25  # a KiB of input
_UNITS_COMPRESSED = {"zstd": 3, "gzip": _UNITS_GZIPPED}
_UNITS_FAST = 1  # a KiB of snappy or lz4, also of zstd to decompress
_GZIP_MAGIC = b"\x1f\x8b"

_Output = TypeVar("_Output")


class Elsewhere(int, Generic[_Output]):
    """The cost of a step to come, in units, whose function may run on another thread meanwhile.

    The function is pure, and nothing changes the bytes that it reads. Yield the object, then take
    `result()`: what the function has returned or raised, elsewhere or, if nobody has run it, now."""

    def __new__(cls, units: int, function: Callable[[], _Output]) -> Elsewhere[_Output]:
        self = super().__new__(cls, units)
        self._function = function
        return self

    _function: Callable[[], _Output]
    _outcome: tuple[_Output] | BaseException | None = None

    def run(self) -> None:
        """Run the function, and keep what it returns or raises."""
        try:
            self._outcome = (self._function(),)
        except BaseException as error:
            self._outcome = error

    def result(self) -> _Output:
        if self._outcome is None:
            return self._function()
        if isinstance(self._outcome, tuple):
            return self._outcome[0]
        raise self._outcome


def decompress_in_parts(
    codec: str, data: Buffer, *, limit: int = DECOMPRESSED_BYTES_MAX, magic: int = 2
) -> Generator[int, None, bytes | bytearray]:
    """Decompress `data` as `compression.decompress` does, with the same errors."""
    if codec == "gzip":
        return (yield from _gunzip(memoryview(data), limit))
    most = min(limit, compression.most_bytes(codec, memoryview(data)))
    work = Elsewhere(
        most * _UNITS_FAST >> 10,
        lambda: compression.decompressed(codec, data, limit=limit, magic=magic),
    )
    yield work
    return work.result()


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
    work = Elsewhere(
        units_to_compress(codec, len(data)),
        lambda: compression.compress(codec, data, magic=magic),
    )
    yield work
    return work.result()


def units_to_compress(codec: str, size: int) -> int:
    """What it costs to compress so many bytes."""
    return size * _UNITS_COMPRESSED.get(codec, _UNITS_FAST) >> 10
