"""Lines of a file descriptor, as many at a time as there are: records for `kwire produce` and the image."""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_READ_BYTES = 1 << 16


def line_chunks(
    source: int, before_read: Callable[[], object] | None = None
) -> Iterator[list[bytes]]:
    """Lists of lines without their ends, "\\n" or "\\r\\n": as many as one read returned.

    `before_read`: called before each read, to show a prompt."""
    rest = b""
    while True:
        if before_read is not None:
            before_read()
        data = os.read(source, _READ_BYTES)
        *lines, rest = (rest + data).split(b"\n")
        if not data and rest:
            lines = [rest]
        if lines:
            yield [line.removesuffix(b"\r") for line in lines]
        if not data:
            return
