"""Split a byte stream into length-prefixed frames.

Answers to org.apache.kafka.common.network.NetworkReceive. The driver reads from its socket straight
into `get_buffer()` and calls `advance` with the number of bytes; `next_frame` returns whole frames
as writable views of the buffer, valid until the next `get_buffer`, or
for good after `leave_frames`. A length alone allocates
nothing: the buffer doubles as the bytes of a long frame arrive.

Invariants: each frame is returned once, in order, without its length; after a length below 0 or
above the limit every call raises MalformedMessage.
"""

from __future__ import annotations

from struct import Struct

from kwire.protocol.errors import MalformedMessage

INITIAL_BYTES = 8 * 1024
BUSY_BYTES = 256 * 1024
"""If reads fill the buffer it doubles up to this size, for fewer and larger reads."""
KEPT_BYTES = 16 * 1024 * 1024
"""A buffer above this size is freed with the frame that needed it; others by `release`."""
_HEAD_BYTES = 8
_ROOM_BYTES = 2048
"""With less room than this the remaining bytes move to the front, to avoid tiny reads."""

_length = Struct(">i").unpack_from


class FrameReader:
    """The frames of one connection. Has no buffer before the first `get_buffer`."""

    __slots__ = ("_buffer", "_capacity", "_end", "_start", "max_frame_bytes")

    def __init__(self, max_frame_bytes: int = 100 * 1024 * 1024) -> None:
        self.max_frame_bytes = max_frame_bytes
        self._buffer = memoryview(b"")
        self._capacity = 0
        self._start = 0  # of the first byte not returned yet
        self._end = 0  # of the received bytes

    @property
    def buffered_bytes(self) -> int:
        """Number of bytes received and not returned yet."""
        return self._end - self._start

    def get_buffer(self) -> memoryview:
        """Return room to read into, never empty. Invalidates frames returned earlier."""
        start, end = self._start, self._end
        if start == end:
            self._start = self._end = 0
            if not 0 < self._capacity <= KEPT_BYTES:
                self._resize(INITIAL_BYTES)
            elif end == self._capacity < BUSY_BYTES:
                self._resize(2 * self._capacity)
            end = 0
        elif self._capacity - end < _ROOM_BYTES or self._needed() > self._capacity - start:
            self._make_room()
            end = self._end
        return self._buffer[end:]

    def leave_frames(self) -> None:
        """Let go of the buffer, so that frames returned earlier stay valid; those bytes that were
        not returned yet move to another one."""
        self._resize(max(INITIAL_BYTES, self.buffered_bytes))

    def release(self) -> None:
        """Free an empty large buffer, of an idle connection."""
        if self._start == self._end and self._capacity > BUSY_BYTES:
            self._buffer = memoryview(b"")
            self._capacity = self._start = self._end = 0

    def advance(self, size: int) -> None:
        """Note that `size` bytes were read into the room of the last `get_buffer`."""
        assert 0 <= size <= self._capacity - self._end, "more than there was room for"
        self._end += size

    def feed(self, data: bytes) -> None:
        """Copy bytes into the buffer: `get_buffer` and `advance` in one."""
        while data:
            room = self.get_buffer()
            part = data[: len(room)]
            room[: len(part)] = part
            self._end += len(part)
            data = data[len(part) :]

    def next_frame(self) -> memoryview | None:
        """Return the next frame, None if incomplete. MalformedMessage for an invalid length."""
        start = self._start
        if self._end - start < 4:
            return None
        size: int = _length(self._buffer, start)[0]
        if not 0 <= size <= self.max_frame_bytes:
            raise MalformedMessage(
                f"a frame of {size} bytes; 0 to {self.max_frame_bytes} are allowed"
            )
        end = start + 4 + size
        if end > self._end:
            return None
        self._start = end
        return self._buffer[start + 4 : end]

    def head(self) -> bytes:
        """Copy the first bytes that were not returned yet, eight at most: they show another protocol."""
        return bytes(self._buffer[self._start : min(self._end, self._start + _HEAD_BYTES)])

    def _needed(self) -> int:
        """Size of the first frame with its length prefix, as far as known."""
        if self._end - self._start < 4:
            return 4
        size: int = _length(self._buffer, self._start)[0]
        return size + 4 if 0 <= size <= self.max_frame_bytes else 4

    def _make_room(self) -> None:
        size = self._end - self._start
        needed = self._needed()
        if needed > self._capacity:
            # At most twice the received bytes: a false length costs its sender as much as us.
            self._resize(min(needed, max(2 * self._capacity, INITIAL_BYTES)))
        elif size > self._capacity - _ROOM_BYTES and needed <= size:
            self._resize(
                2 * self._capacity
            )  # full of frames that nobody takes; the driver bounds it
        else:
            self._buffer[:size] = self._buffer[self._start : self._end]
            self._start, self._end = 0, size

    def _resize(self, capacity: int) -> None:
        old, start, size = self._buffer, self._start, self._end - self._start
        self._buffer = memoryview(bytearray(capacity))
        self._buffer[:size] = old[start : start + size]
        self._capacity = capacity
        self._start, self._end = 0, size
