"""Which parts of which segments are to be read, one task each, from names, sizes and indexes.

Of the data itself only headers are read: one for each place at which a segment is cut, because an index may lie.
"""

from __future__ import annotations

import os
from itertools import groupby, pairwise
from typing import NamedTuple

import numpy as np

from kwire.errors import ConfigurationError
from kwire.pipeline.batches import Index, is_batch
from kwire.pipeline.columns import Where
from kwire.pipeline.layout import Segment, high_watermarks, log_dirs, segments

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from kwire.pipeline.options import Options

    Entries = NDArray[np.int64]


class Range(NamedTuple):
    """A part of a segment from batch to batch, and which of its offsets are wanted."""

    where: Where
    path: str
    index_path: str
    base_offset: int
    start: int
    end: int
    first_offset: int
    end_offset: int
    """Exclusive."""
    first_timestamp: int | None = None
    """In ms: rows before the first record that is at least as young are left out."""


def plan(options: Options) -> list[Range]:
    """The ranges of all partitions, in their order. ConfigurationError if a path has no log directory."""
    ranges: list[Range] = []
    for parts, end in partitions(options):
        ranges += of_partition(parts, options, end)
    return ranges


def partitions(options: Options, *, is_stream: bool = False) -> Iterator[tuple[list[Segment], int]]:
    """Each partition's segments, of one folder, and the offset up to which it is wanted, exclusive.

    ConfigurationError if there is no high watermark to read up to; a stream waits for it instead."""
    for log_dir in log_dirs(options.paths):
        ends = high_watermarks(log_dir) if options.up_to_high_watermark else None
        if options.up_to_high_watermark and ends is None:
            if not is_stream:
                raise ConfigurationError(
                    f"kwire-log: {log_dir} has no replication-offset-checkpoint: its broker has not written a high"
                    " watermark yet (it does so every replica.high.watermark.checkpoint.interval.ms, 5 s)"
                )
            ends = {}
        found = segments(log_dir, options.topics, options.partitions, options.include)
        for _, of_folder in groupby(found, lambda each: each.path.parent):
            parts = list(of_folder)
            end = options.ending_offset
            if ends is not None:
                end = min(end, ends.get((parts[0].topic, parts[0].partition), 0))
            yield parts, end


def nothing() -> Range:
    """A range without a record."""
    return Range(Where(-1, "", -1, ""), os.devnull, "", 0, 0, 0, 0, 0)


def of_partition(parts: list[Segment], options: Options, end: int) -> Iterator[Range]:
    """The ranges of a partition's segments from the options' begin up to the offset `end`, exclusive."""
    first, timestamp = options.starting_offset, options.starting_timestamp
    if timestamp is not None:
        # Of segments whose last entry says so every record is older. The last entry has the largest timestamp.
        while parts and _largest_timestamp(parts[0]) < timestamp:
            if len(parts) == 1 or parts[0].size == 0:
                break
            parts = parts[1:]
    for i, segment in enumerate(parts):
        bases = [
            later.base_offset for later in parts[i + 1 :] if later.base_offset > segment.base_offset
        ]
        next_base = bases[0] if bases else None
        if segment.base_offset >= end or (next_base is not None and next_base <= first):
            continue
        yield from _of_segment(
            segment, options.split_bytes, first, end, timestamp if i == 0 else None
        )


def _of_segment(
    segment: Segment, split: int, first: int, end: int, timestamp: int | None
) -> Iterator[Range]:
    where = Where(segment.broker, segment.topic, segment.partition, segment.path.name)
    index = Index(segment.index_path("index"), segment.base_offset)
    start, stop = 0, segment.size
    entries = index.entries
    if timestamp is not None:
        first = max(first, _offset_before(segment, timestamp))
    try:
        with open(segment.path, "rb") as opened:
            file = opened.fileno()
            # The last batch that ends before the first wanted offset, and the first one behind the last wanted.
            before = int(np.searchsorted(entries[:, 0], first, "left")) - 1
            if before >= 0 and is_batch(file, *_place(entries[before])):
                start = int(entries[before, 1])
            behind = int(np.searchsorted(entries[:, 0], end, "left")) + 1
            if behind < len(entries) and is_batch(file, *_place(entries[behind])):
                stop = min(stop, int(entries[behind, 1]))
            # Where the first young record is, is found by reading, by one task.
            cuts = [start] if timestamp is not None else _cuts(file, entries, start, stop, split)
    except FileNotFoundError:  # deleted meanwhile
        return
    path, index_path = str(segment.path), segment.index_path("index")
    for begin, finish in pairwise([*cuts, stop]):
        if finish > begin:
            yield Range(
                where, path, index_path, segment.base_offset, begin, finish, first, end, timestamp
            )


def _cuts(file: int, entries: Entries, start: int, stop: int, split: int) -> list[int]:
    """`start`, and places of batches from there to `stop` that are about `split` bytes apart."""
    cuts = [start]
    for want in range(start + split, stop, split):
        i = int(np.searchsorted(entries[:, 1], want))
        if (
            i < len(entries)
            and cuts[-1] < entries[i, 1] < stop
            and is_batch(file, *_place(entries[i]))
        ):
            cuts.append(int(entries[i, 1]))
    return cuts


def _place(entry: Entries) -> tuple[int, int]:
    offset, position = entry.tolist()
    return position, offset


def _time_entries(segment: Segment) -> Entries:
    """Rows of timestamp (ms) and offset, as far as they rise; none if there is no index."""
    try:
        with open(segment.index_path("timeindex"), "rb") as file:
            stored = file.read()
    except OSError:
        stored = b""
    kind = np.dtype([("timestamp", ">i8"), ("offset", ">i4")])
    entries = np.frombuffer(stored[: len(stored) // 12 * 12], kind)
    rows = np.stack(
        (entries["timestamp"].astype(np.int64), entries["offset"].astype(np.int64)), axis=1
    )
    if len(rows):
        rising = np.concatenate(([True], (np.diff(rows[:, 0]) >= 0) & (np.diff(rows[:, 1]) > 0)))
        rows = rows[: len(rows) if rising.all() else int(np.argmin(rising))]
    rows[:, 1] += segment.base_offset
    return rows


def _largest_timestamp(segment: Segment) -> int:
    rows = _time_entries(segment)
    return int(rows[-1, 0]) if len(rows) else (1 << 63) - 1  # unknown: it may have young records


def _offset_before(segment: Segment, timestamp: int) -> int:
    """An offset of the segment before which all records are older."""
    rows = _time_entries(segment)
    i = int(np.searchsorted(rows[:, 0], timestamp, "left")) - 1
    return int(rows[i, 1]) + 1 if i >= 0 else segment.base_offset
