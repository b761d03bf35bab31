"""Files of event logs: where they are, how far their whole lines go, and their lines as Arrow tables."""

from __future__ import annotations

import os
from glob import glob, has_magic
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa

from kwire.errors import ConfigurationError
from kwire.pipeline import event_lines
from kwire.pipeline.event_lines import LINE_BYTES_MAX
from kwire.pipeline.options import words
from kwire.pipeline.schema import EVENTS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import BinaryIO

    Place = tuple[int, int]
    """Behind so many bytes and so many lines. From a checkpoint, as JSON has it, a list."""

_ROWS = 5000


class Span(NamedTuple):
    path: str
    start: int
    end: int | None
    """None: up to the end, a last line without its end included."""
    lines: int
    """How many lines are before `start`."""


def parse(given: Mapping[str, str]) -> tuple[str, ...]:
    """The paths among options as Spark gives them. ConfigurationError for any other option, or without a path."""
    for name in given:
        if name.lower() != "path":
            raise ConfigurationError(f"kwire-events: there is no option {name}; there is path")
    paths = words("path", next(iter(given.values()), ""), "kwire-events")
    if not paths:
        raise ConfigurationError(
            "kwire-events: option path is missing: files of --log-json, or patterns of them, separated by commas"
        )
    return paths


def files(paths: tuple[str, ...]) -> list[str]:
    """The files of the paths, which may be patterns; the same one only once.

    ConfigurationError for a path at which no file is that can be read."""
    found: dict[str, None] = {}
    for text in paths:
        path = os.path.expanduser(text)  # noqa: PTH111 - as text, for glob
        matches = sorted(glob(path)) if has_magic(path) else [path]  # noqa: PTH207 - absolute patterns
        if not matches or not Path(matches[0]).exists():
            raise ConfigurationError(f"kwire-events: nothing is at {text}")
        for match in matches:
            if not Path(match).is_file():
                raise ConfigurationError(f"kwire-events: {match} is not a file")
            if not os.access(match, os.R_OK):
                raise ConfigurationError(f"kwire-events: {match} cannot be read")
            found[str(Path(match).resolve())] = None
    return list(found)


def whole(path: str) -> Span:
    return Span(path, 0, None, 0)


def end_of(path: str, place: Place) -> Place:
    """The place behind the last whole line; `place` is an earlier one. A file that is cut off keeps its place."""
    position, lines = place
    try:
        with open(path, "rb") as file:
            file.seek(position)
            for _, size, is_whole in _lines(file):
                if is_whole:
                    position, lines = position + size, lines + 1
    except OSError:  # moved away meanwhile
        pass
    return position, lines


def between(start: Mapping[str, Place], end: Mapping[str, Place]) -> Iterator[Span]:
    """What stands between two states of the files."""
    for path, (position, _) in end.items():
        begin, lines = start.get(path, (0, 0))
        if position > begin:
            yield Span(path, begin, position, lines)


def tables(span: Span, names: tuple[str, ...]) -> Iterator[pa.RecordBatch]:
    """The lines of a span, a row each; blank lines only count. None of a file that was moved away meanwhile."""
    try:
        file = open(span.path, "rb")  # noqa: SIM115 - closed below
    except FileNotFoundError:
        return
    with file:
        file.seek(span.start)
        rows = _rows(file, span)
        while some := list(islice(rows, _ROWS)):
            columns = dict(zip(EVENTS, zip(*some, strict=True), strict=True))
            yield pa.RecordBatch.from_arrays(
                [pa.array(columns[name], EVENTS[name][0]) for name in names], names=list(names)
            )


def _rows(file: BinaryIO, span: Span) -> Iterator[tuple[object, ...]]:
    position, number = span.start, span.lines
    for line, size, _ in _lines(file):
        position, number = position + size, number + 1
        if span.end is not None and position > span.end:
            return
        if line.strip():
            yield (span.path, number, *event_lines.parse(line))


def _lines(file: BinaryIO) -> Iterator[tuple[bytes, int, bool]]:
    """Each line, cut if it is too long; its size with its end; whether it has one."""
    while line := file.readline(LINE_BYTES_MAX + 2):
        size, last = len(line), line
        while not last.endswith(b"\n") and (last := file.readline(LINE_BYTES_MAX)):
            size += len(last)
        yield line.removesuffix(b"\n"), size, (last or line).endswith(b"\n")
