"""Notes the requests that arrive at brokers and controllers: the trace of a run.

Two runs are the same when their traces are: virtual time, sender, receiver, request, size and checksum.
"""

from __future__ import annotations

import zlib
from typing import NamedTuple

from kwire.protocol.api import ApiKey

TYPE_CHECKING = False
if TYPE_CHECKING:
    from kwire.virtual.loop import VirtualLoop

KEPT = 200_000
_HEADER_BYTES = 14  # size, key, version, correlation id, length of the client id


class Line(NamedTuple):
    """One request that arrived."""

    at: float
    """Virtual seconds since the start of the world."""
    source: str
    target: str
    key: int
    version: int
    size: int
    checksum: int
    """CRC-32 of the segment in which it began."""

    @property
    def api(self) -> str:
        """The API's name, as in Kafka: "Produce"."""
        try:
            return ApiKey(self.key).name.title().replace("_", "")
        except ValueError:
            return f"API {self.key}"

    def __str__(self) -> str:
        return (
            f"{self.at:14.6f}  {self.source} → {self.target}  {self.api} v{self.version},"
            f" {self.size} bytes, {self.checksum:08x}"
        )


class Requests:
    """The requests of one world, the first `KEPT` of them; the digest is of all."""

    def __init__(self, loop: VirtualLoop, start: float) -> None:
        self._loop, self._start = loop, start
        self.lines: list[Line] = []
        self.count = 0
        self.digest = 0

    def add(self, source: str, target: str, head: bytes, data: bytes) -> None:
        size = int.from_bytes(head[:4], "big")
        key, version = int.from_bytes(head[4:6], "big"), int.from_bytes(head[6:8], "big")
        at = round(self._loop.now - self._start, 9)
        line = Line(at, source, target, key, version, size, zlib.crc32(data))
        self.count += 1
        self.digest = zlib.crc32(repr(tuple(line)).encode(), self.digest)
        if self.count <= KEPT:
            self.lines.append(line)


class Tap:
    """Splits what arrives over one connection into requests."""

    __slots__ = ("_head", "_left", "_requests", "_source", "_target")

    def __init__(self, requests: Requests, source: str, target: str) -> None:
        self._requests, self._source, self._target = requests, source, target
        self._left = 0  # bytes of the present request still to come
        self._head = b""

    def feed(self, data: bytes) -> None:
        position = 0
        while position < len(data):
            if self._left:
                taken = min(self._left, len(data) - position)
                self._left -= taken
                position += taken
                continue
            taken = min(_HEADER_BYTES - len(self._head), len(data) - position)
            self._head += data[position : position + taken]
            position += taken
            if len(self._head) == _HEADER_BYTES:
                head, self._head = self._head, b""
                self._left = max(int.from_bytes(head[:4], "big") + 4 - _HEADER_BYTES, 0)
                self._requests.add(self._source, self._target, head, data)
