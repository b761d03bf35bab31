"""A fuzzing target: decodes any bytes as a message, a header and a stream of frames.

    python -m kwire.protocol.fuzz FILE…          replay inputs, such as a fuzzer's corpus

or, with a coverage fuzzer: `atheris.Setup(sys.argv, fuzz_one); atheris.Fuzz()`. The first two bytes
choose the message and its version, so that coverage leads a fuzzer from one to the next. Whatever
comes in, nothing but MalformedMessage may come out of a decoder, and what was decoded can be
encoded and is the same when decoded again.
"""

from __future__ import annotations

import sys

from kwire.protocol.errors import MalformedMessage

TYPE_CHECKING = False
if TYPE_CHECKING:
    from kwire.protocol.language.schema import Message

_targets: list[tuple[type[Message], int]] = []


def targets() -> list[tuple[type[Message], int]]:
    """Every (message, version)."""
    if not _targets:
        from kwire.protocol.catalog import all_messages

        for _, cls in all_messages():
            first, last = cls.versions
            _targets.extend((cls, version) for version in range(first, last + 1))
    return _targets


def fuzz_one(data: bytes) -> None:
    """Decode the bytes in all ways; an exception out of this function is a bug."""
    from kwire.protocol.api import parse_request_header
    from kwire.protocol.frame import FrameReader

    choice = int.from_bytes(data[:2], "big")
    cls, version = targets()[choice % len(targets())]
    fuzz_message(cls, version, data[2:])
    reader = FrameReader(1 << 16)
    reader.feed(data)
    try:
        while (frame := reader.next_frame()) is not None:
            parse_request_header(frame)
    except MalformedMessage:
        pass


def fuzz_message(cls: type[Message], version: int, data: bytes) -> bool:
    """Decode the bytes as one message; returns whether they are valid."""
    try:
        message, position = cls.decode_from(data, 0, version)
    except MalformedMessage:
        return False
    assert 0 <= position <= len(data)
    encoded = message.encode(version)
    again = cls.decode(encoded, version)
    assert again.encode(version) == encoded
    return True


def main(paths: list[str]) -> int:
    """Replay files."""
    for path in paths:
        with open(path, "rb") as file:
            fuzz_one(file.read())
    print(f"{len(paths)} inputs, no fault")  # noqa: T201
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
