"""What lies where in brokers' log directories: partitions' segments, found by names alone."""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from glob import glob, has_magic
from pathlib import Path
from typing import Final, NamedTuple

from kwire.errors import ConfigurationError
from kwire.replication.log.checkpoints import (
    HIGH_WATERMARKS,
    META_PROPERTIES,
    CorruptCheckpoint,
    read_meta_properties,
    read_offsets,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_PARTITION = re.compile(r"(?P<topic>[A-Za-z0-9._-]+)-(?P<partition>[0-9]+)\Z")
_MARKED = re.compile(r"(?P<name>.+)\.[0-9a-f]{32}-(?P<kind>delete|future|stray)\Z")
_SEGMENT = re.compile(r"(?P<base>[0-9]{20})\.log(?:\.(?P<kind>deleted|swap|cleaned))?\Z")
_KIND_OF_FOLDER = {"delete": "deleted", "future": "future", "stray": "stray"}
KINDS: Final = ("deleted", "swap", "cleaned", "future", "stray")
"""What `include` can name beside the live log: files that are to be deleted or were replaced by compaction, and
partitions that are deleted, moved to another directory or belong to nobody."""
_DEPTH = 3
"""How deep below a given path log directories are looked for: data/broker-1/disk-2."""


class Segment(NamedTuple):
    broker: int
    """-1 if no meta.properties says it."""
    log_dir: Path
    topic: str
    partition: int
    path: Path
    base_offset: int
    size: int

    def index_path(self, kind: str) -> str:
        """The path of the segment's "index" or "timeindex"."""
        stem, _, suffix = str(self.path).rpartition(".log")
        return f"{stem}.{kind}{suffix}"


class Files:
    """A folder's files, for the readers of checkpoints."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def exists(self, path: str) -> bool:
        return (self._folder / path).exists()

    def read_file(self, path: str) -> bytes:
        return (self._folder / path).read_bytes()


def log_dirs(paths: Iterable[str]) -> list[Path]:
    """The log directories at or below the paths, which may be patterns; the same one only once.

    ConfigurationError for a path at which none is."""
    found: dict[Path, None] = {}
    for text in paths:
        path = str(Path(text).expanduser())
        found_paths = [path]
        if has_magic(path):
            found_paths = sorted(glob(path))  # noqa: PTH207 - Path.glob refuses absolute patterns
        matches = [Path(each) for each in found_paths]
        existing = [match for match in matches if match.exists()]
        if not existing:
            raise ConfigurationError(f"kwire-log: nothing is at {text}")
        below = [folder for match in existing for folder in _below(match, _DEPTH)]
        if not below:
            raise ConfigurationError(
                f"kwire-log: no log directory (partitions in folders like orders-0) is at {text}"
            )
        found.update(dict.fromkeys(folder.resolve() for folder in below))
    return list(found)


def _below(folder: Path, depth: int) -> Iterator[Path]:
    folders = [each for each in _entries(folder) if each.is_dir()]
    if (folder / META_PROPERTIES).exists() or any(_is_partition(each) for each in folders):
        yield folder
    elif depth:
        for each in folders:
            yield from _below(each, depth - 1)


def _is_partition(folder: Path) -> bool:
    if not (_PARTITION.match(folder.name) or _MARKED.match(folder.name)):
        return False
    return any(_SEGMENT.match(entry.name) for entry in _entries(folder))


def _entries(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except OSError:  # deleted meanwhile, or a file
        return []


def broker_of(log_dir: Path) -> int:
    """The broker whose log directory this is, by its meta.properties; -1 if it is not said."""
    properties = read_meta_properties(Files(log_dir))
    text = properties.get("node.id", properties.get("broker.id", ""))
    return int(text) if text.isdigit() else -1


def high_watermarks(log_dir: Path) -> dict[tuple[str, int], int] | None:
    """High watermarks by topic and partition, as the broker wrote them last; None if it has not.

    ConfigurationError if the file is malformed."""
    files = Files(log_dir)
    if not files.exists(HIGH_WATERMARKS):
        return None
    try:
        return read_offsets(files, HIGH_WATERMARKS)
    except CorruptCheckpoint as error:
        raise ConfigurationError(f"kwire-log: {log_dir}: {error.strerror}") from None


def segments(
    log_dir: Path,
    topics: tuple[str, ...] = (),
    partitions: frozenset[int] = frozenset(),
    include: frozenset[str] = frozenset(),
) -> list[Segment]:
    """The segments in a log directory, by topic, partition and base offset.

    `topics`: names or patterns ("orders*"); none: all but internal ones. `partitions`: none: all. `include`: of KINDS.
    """
    broker = broker_of(log_dir)
    found = []
    for folder in _entries(log_dir):
        marked = _MARKED.match(folder.name)
        if marked and _KIND_OF_FOLDER[marked["kind"]] not in include:
            continue
        match = _PARTITION.match(marked["name"] if marked else folder.name)
        if match is None:
            continue
        topic, partition = match["topic"], int(match["partition"])
        is_named = any(fnmatchcase(topic, pattern) for pattern in topics)
        if not (is_named if topics else not topic.startswith("__")):
            continue
        if partitions and partition not in partitions:
            continue
        for path in _entries(folder):
            segment = _SEGMENT.match(path.name)
            if segment is None or (segment["kind"] and segment["kind"] not in include):
                continue
            try:
                size = path.stat().st_size
            except OSError:  # deleted meanwhile
                continue
            base_offset = int(segment["base"])
            found.append(Segment(broker, log_dir, topic, partition, path, base_offset, size))
    found.sort(key=lambda each: (each.topic, each.partition, each.base_offset, each.path))
    return found
