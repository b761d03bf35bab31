"""Frames three ways: whole, byte by byte, with what follows."""

import random

import pytest

from kwire.protocol.errors import MalformedMessage
from kwire.protocol.frame import BUSY_BYTES, INITIAL_BYTES, KEPT_BYTES, FrameReader


def framed(*bodies: bytes) -> bytes:
    return b"".join(len(body).to_bytes(4, "big") + body for body in bodies)


def all_frames(reader: FrameReader) -> list[bytes]:
    frames = []
    while (frame := reader.next_frame()) is not None:
        frames.append(bytes(frame))
    return frames


BODIES = [b"", b"a", b"b" * 300, b"c" * INITIAL_BYTES, b"d" * (INITIAL_BYTES * 3 + 1), b"e"]


def test_frames_come_out_whole_and_in_order() -> None:
    reader = FrameReader()
    reader.feed(framed(*BODIES))
    assert all_frames(reader) == BODIES
    assert reader.buffered_bytes == 0


def test_frames_come_out_byte_by_byte() -> None:
    reader = FrameReader()
    got = []
    for byte in framed(b"", b"a", b"b" * 300):
        reader.feed(bytes([byte]))
        got += all_frames(reader)
    assert got == [b"", b"a", b"b" * 300]


def test_a_trailing_part_waits_for_its_rest() -> None:
    reader = FrameReader()
    data = framed(b"first", b"second")
    reader.feed(data[:-1])
    assert all_frames(reader) == [b"first"]
    assert reader.buffered_bytes == len(framed(b"second")) - 1
    reader.feed(data[-1:])
    assert all_frames(reader) == [b"second"]


def test_frames_come_out_of_pieces_of_any_size() -> None:
    for seed in range(20):
        rng = random.Random(seed)
        bodies = [rng.randbytes(rng.choice([0, 5, 4000, 70_000, 200_000])) for _ in range(20)]
        data, reader, got = framed(*bodies), FrameReader(), []
        while data:
            room = reader.get_buffer()
            size = min(len(room), len(data), rng.randrange(1, 100_000))
            room[:size] = data[:size]
            reader.advance(size)
            data = data[size:]
            got += all_frames(reader)
        assert got == bodies, f"seed {seed}"


def test_frames_that_are_not_taken_are_kept() -> None:
    reader = FrameReader()
    bodies = [b"x" * 1000] * 500
    reader.feed(framed(*bodies))
    assert all_frames(reader) == bodies


def test_a_frame_is_a_writable_view() -> None:
    reader = FrameReader()
    reader.feed(framed(b"abc"))
    frame = reader.next_frame()
    assert isinstance(frame, memoryview)
    frame[0:1] = b"x"
    assert bytes(frame) == b"xbc"


@pytest.mark.parametrize("size", [-1, -(1 << 31), 101, (1 << 31) - 1])
def test_a_length_that_cannot_be_is_refused_for_good(size: int) -> None:
    reader = FrameReader(max_frame_bytes=100)
    reader.feed(framed(b"fine") + size.to_bytes(4, "big", signed=True))
    assert bytes(reader.next_frame() or b"") == b"fine"
    for _ in range(2):
        with pytest.raises(MalformedMessage, match="100 are allowed"):
            reader.next_frame()
        assert len(reader.get_buffer()) > 0


def test_the_largest_frame_is_allowed() -> None:
    reader = FrameReader(max_frame_bytes=100)
    reader.feed(framed(b"x" * 100))
    assert all_frames(reader) == [b"x" * 100]


def test_a_length_prefix_alone_allocates_no_memory() -> None:
    reader = FrameReader()
    reader.feed((90 * 1024 * 1024).to_bytes(4, "big"))
    assert reader.next_frame() is None
    assert len(reader.get_buffer()) <= 2 * INITIAL_BYTES


def test_the_buffer_of_a_giant_is_let_go() -> None:
    reader = FrameReader()
    reader.feed(framed(b"x" * (KEPT_BYTES * 2)))
    assert len(all_frames(reader)) == 1
    assert len(reader.get_buffer()) == INITIAL_BYTES


def test_a_silent_connections_large_buffer_can_be_let_go() -> None:
    reader = FrameReader()
    reader.feed(framed(b"x" * (BUSY_BYTES * 2)) + b"\0")
    assert reader.next_frame() is not None
    reader.release()  # something is in it
    reader.feed(b"\0\0\1y")
    assert bytes(reader.next_frame() or b"") == b"y"
    reader.release()
    assert len(reader.get_buffer()) == INITIAL_BYTES


def test_reads_that_fill_the_buffer_make_it_larger_up_to_a_limit() -> None:
    reader = FrameReader()
    sizes = []
    for _ in range(12):
        room = reader.get_buffer()
        sizes.append(len(room))
        room[:] = framed(b"x" * (len(room) - 4))
        reader.advance(len(room))
        assert reader.next_frame() is not None
    assert sizes[0] == INITIAL_BYTES
    assert sizes == sorted(sizes)
    assert sizes[-1] == BUSY_BYTES


def test_a_frame_that_the_reader_has_left_stays_valid() -> None:
    reader = FrameReader()
    reader.feed(b"\0\0\0\3abc\0\0\0\3d")
    frame = reader.next_frame()
    assert frame == b"abc"
    reader.leave_frames()
    reader.feed(b"ef" + 3000 * b"\0\0\0\1x")
    assert reader.next_frame() == b"def"
    assert frame == b"abc"
