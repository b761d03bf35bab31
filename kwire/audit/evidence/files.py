"""Which replicas lie in log directories, and what their checkpoints and files' ends say of them. No Spark is needed.

Checkpoints are read before the sizes of files, so that a log that grows meanwhile ends above its high watermark.
"""

from __future__ import annotations

from itertools import groupby
from pathlib import Path
from typing import NamedTuple

from kwire.errors import ConfigurationError
from kwire.pipeline.batches import Index, next_offset
from kwire.pipeline.layout import Files, log_dirs, segments
from kwire.replication.log.checkpoints import (
    CLEANER_OFFSETS,
    HIGH_WATERMARKS,
    LOG_START_OFFSETS,
    CorruptCheckpoint,
    read_offsets,
)
from kwire.replication.log.leader_epochs import FILE_NAME, parse_checkpoint

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from kwire.pipeline.layout import Segment
    from kwire.replication.core.types import TopicPartition


class Replica(NamedTuple):
    """A replica as its files have it. Offsets are as in Kafka: ends are exclusive."""

    topic: str
    partition: int
    broker: int
    """-1 if no meta.properties says it."""
    log_start: int
    log_end: int
    high_watermark: int | None
    """As the broker wrote it last, every 5 s and when it stops; None: not yet."""
    cleaned: int | None
    """Compaction has come so far; None: never, or the topic is not compacted."""
    epochs: tuple[tuple[int, int], ...]
    """Leader epochs and their first offsets, rising, as leader-epoch-checkpoint has them."""

    def lineage(self) -> str:
        """The epochs for people: "0@0 2@1500"."""
        return " ".join(f"{epoch}@{start}" for epoch, start in self.epochs)


def replicas(
    paths: Iterable[str], topics: tuple[str, ...] = (), partitions: frozenset[int] = frozenset()
) -> list[Replica]:
    """The replicas below the paths, by topic, partition and broker. `topics`: names or patterns; none: all but internal
    ones.

    ConfigurationError for a path without a log directory, a malformed checkpoint, and for two copies of one replica."""
    found: dict[tuple[str, int, int], tuple[Replica, Path]] = {}
    for log_dir in log_dirs(paths):
        starts, ends, cleaned = (
            _offsets(log_dir, name)
            for name in (LOG_START_OFFSETS, HIGH_WATERMARKS, CLEANER_OFFSETS)
        )
        of_dir = segments(log_dir, topics, partitions)
        for folder, parts in groupby(of_dir, lambda each: each.path.parent):
            replica = _replica(folder, list(parts), starts, ends, cleaned)
            key = replica[:3]
            if key in found:
                broker = f"broker {replica.broker}" if replica.broker >= 0 else "an unnamed broker"
                raise ConfigurationError(
                    f"audit: {found[key][1]} and {folder} are both {replica.topic}-{replica.partition} of {broker}:"
                    " whose they are is said by meta.properties"
                )
            found[key] = replica, folder
    return [found[key][0] for key in sorted(found)]


def _replica(
    folder: Path,
    parts: list[Segment],
    starts: dict[TopicPartition, int],
    ends: dict[TopicPartition, int],
    cleaned: dict[TopicPartition, int],
) -> Replica:
    first = parts[0]
    place = first.topic, first.partition
    epochs = _epochs(folder)
    log_start = max(first.base_offset, starts.get(place, 0))
    return Replica(
        *place,
        first.broker,
        log_start,
        max(log_start, _log_end(parts[-1])),
        ends.get(place),
        cleaned.get(place),
        epochs,
    )


def _offsets(log_dir: Path, name: str) -> dict[TopicPartition, int]:
    try:
        return read_offsets(Files(log_dir), name)
    except CorruptCheckpoint as error:
        raise ConfigurationError(f"audit: {log_dir}: {error.strerror}") from None
    except FileNotFoundError:  # being replaced
        return {}


def _epochs(folder: Path) -> tuple[tuple[int, int], ...]:
    try:
        return tuple(parse_checkpoint((folder / FILE_NAME).read_bytes()))
    except FileNotFoundError:
        return ()
    except OSError as error:
        raise ConfigurationError(f"audit: {folder}: {error}") from None


def _log_end(segment: Segment) -> int:
    """The offset behind the last whole batch of a log's last segment."""
    position, offset = 0, segment.base_offset
    entries = Index(segment.index_path("index"), segment.base_offset).entries
    if len(entries):
        # The entry is the last offset of the batch at its position.
        offset, position = (int(value) for value in entries[-1])
    try:
        with open(segment.path, "rb") as file:
            return next_offset(file.fileno(), position, segment.size, offset)[1]
    except FileNotFoundError:  # deleted meanwhile
        return offset
