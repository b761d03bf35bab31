"""A log that grows: how far each partition's whole batches go, and the ranges between two such states."""

from __future__ import annotations

from kwire.pipeline.batches import Index, next_offset
from kwire.pipeline.planning import of_partition, partitions

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from kwire.pipeline.layout import Segment
    from kwire.pipeline.options import Options
    from kwire.pipeline.planning import Range


class Ends:
    """The end of each partition's log, by its folder: the offset behind its last whole batch, or its high watermark.

    An end never goes back: what a stream has read cannot be taken back when a follower truncates its log. Only the new
    part of a segment is looked at."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._ends: dict[str, int] = {}
        self._seen: dict[str, tuple[str, int, int]] = {}
        """By folder: the segment looked at last, and a position in it with its offset."""

    def latest(self) -> dict[str, int]:
        for parts, limit in partitions(self._options, is_stream=True):
            folder = str(parts[0].path.parent)
            end = min(self._end(folder, parts), limit)
            self._ends[folder] = max(end, self._ends.get(folder, 0))
        return dict(self._ends)

    def _end(self, folder: str, parts: list[Segment]) -> int:
        segment = parts[-1]
        path = str(segment.path)
        seen_path, position, offset = self._seen.get(folder, ("", 0, 0))
        if seen_path != path or position > segment.size:
            position, offset = 0, segment.base_offset
            entries = Index(segment.index_path("index"), segment.base_offset).entries
            if len(entries):
                offset, position = (int(value) for value in entries[-1])
        try:
            with open(path, "rb") as opened:
                position, offset = next_offset(opened.fileno(), position, segment.size, offset)
        except OSError:  # deleted meanwhile
            return offset
        self._seen[folder] = path, position, offset
        return offset


def between(options: Options, start: Mapping[str, int], end: Mapping[str, int]) -> Iterator[Range]:
    """The ranges from one state to a later one. A partition that `start` does not have begins as the options say."""
    for parts, _ in partitions(options, is_stream=True):
        folder = str(parts[0].path.parent)
        if folder in end:
            first = start.get(folder, options.starting_offset)
            yield from of_partition(parts, options._replace(starting_offset=first), end[folder])
