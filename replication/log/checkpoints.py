"""Checkpoint files, meta.properties, partition.metadata and the clean shutdown file.

Answers to CheckpointFile, OffsetCheckpointFile, PartitionMetadataFile, MetaProperties and
CleanShutdownFileHandler of Kafka 3.9. Each write replaces the whole file (the store's write_file).
An empty offset checkpoint has no entries; a malformed one is an error.
"""

from __future__ import annotations

from errno import EIO

from kwire.replication.core.log_store import LogStore
from kwire.replication.core.types import TopicPartition

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Protocol

    class Files(Protocol):
        """What reading takes of a store."""

        def exists(self, path: str, /) -> bool: ...

        def read_file(self, path: str, /) -> bytes: ...


RECOVERY_POINTS = "recovery-point-offset-checkpoint"
LOG_START_OFFSETS = "log-start-offset-checkpoint"
HIGH_WATERMARKS = "replication-offset-checkpoint"
CLEANER_OFFSETS = "cleaner-offset-checkpoint"
META_PROPERTIES = "meta.properties"
CLEAN_SHUTDOWN = ".kafka_cleanshutdown"
PARTITION_METADATA = "partition.metadata"


class CorruptCheckpoint(OSError):
    """A checkpoint file is malformed: the log directory cannot be used."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(EIO, f"malformed {path}: {reason}")


def read_offsets(store: Files, path: str) -> dict[TopicPartition, int]:
    """The offsets in a checkpoint file; an absent or empty file has none."""
    if not store.exists(path):
        return {}
    try:
        lines = store.read_file(path).decode().splitlines()
    except UnicodeDecodeError:
        raise CorruptCheckpoint(path, "it is not text") from None
    if not lines:
        return {}
    if lines[0].strip() != "0":
        raise CorruptCheckpoint(path, f"unknown version {lines[0]!r}")
    if len(lines) < 2 or not lines[1].strip().isdigit():
        raise CorruptCheckpoint(path, "the second line is not a number of entries")
    offsets: dict[TopicPartition, int] = {}
    for line in lines[2:]:
        words = line.split()
        try:
            topic, partition, offset = words[0], int(words[1]), int(words[2])
        except (IndexError, ValueError):
            raise CorruptCheckpoint(path, f"malformed line {line!r}") from None
        if len(words) != 3:
            raise CorruptCheckpoint(path, f"malformed line {line!r}")
        offsets[topic, partition] = offset
    if len(lines) - 2 != int(lines[1]):
        raise CorruptCheckpoint(path, f"{lines[1]} entries announced, {len(lines) - 2} found")
    return offsets


def format_offsets(offsets: Iterable[tuple[TopicPartition, int]]) -> bytes:
    """The content of a checkpoint file."""
    lines = [f"{topic} {partition} {offset}\n" for (topic, partition), offset in offsets]
    return f"0\n{len(lines)}\n{''.join(lines)}".encode()


def read_topic_id(store: LogStore, directory: str) -> bytes | None:
    """The topic id in `partition.metadata`, None without the file. CorruptCheckpoint."""
    path = f"{directory}/{PARTITION_METADATA}"
    try:
        text = store.read_file(path)
    except FileNotFoundError:
        return None
    values = dict(line.split(b": ", 1) for line in text.splitlines() if b": " in line)
    encoded = values.get(b"topic_id", b"")
    if values.get(b"version") != b"0" or len(encoded) != 22:
        raise CorruptCheckpoint(path, "not a version 0 file with a topic id")
    from binascii import Error, a2b_base64

    try:
        return a2b_base64(encoded.translate(_FROM_URL_SAFE) + b"==", strict_mode=True)
    except Error:
        raise CorruptCheckpoint(path, "the topic id is not base64") from None


def format_partition_metadata(topic_id: bytes) -> bytes:
    """The content of `partition.metadata`; no newline at the end, as in Kafka."""
    return b"version: 0\ntopic_id: " + encode_uuid(topic_id)


def encode_uuid(value: bytes) -> bytes:
    """Kafka's text form of a uuid: 22 characters of URL-safe base64."""
    from binascii import b2a_base64

    return b2a_base64(value, newline=False)[:22].translate(_TO_URL_SAFE)


def decode_uuid(text: str) -> bytes | None:
    """The uuid that `encode_uuid` gave this text; None for a malformed text."""
    from binascii import Error, a2b_base64

    if len(text) != 22 or not text.isascii():
        return None
    try:
        return a2b_base64(text.encode().translate(_FROM_URL_SAFE) + b"==", strict_mode=True)
    except Error:
        return None


_TO_URL_SAFE = bytes.maketrans(b"+/", b"-_")
_FROM_URL_SAFE = bytes.maketrans(b"-_", b"+/")


def read_meta_properties(store: Files) -> dict[str, str]:
    """The keys and values of `meta.properties`; empty for a new directory."""
    if not store.exists(META_PROPERTIES):
        return {}
    properties: dict[str, str] = {}
    for line in store.read_file(META_PROPERTIES).decode("utf-8", "replace").splitlines():
        text = line.strip()
        if text and text[0] not in "#!":
            key, _, value = text.partition("=")
            properties[key.strip()] = value.strip()
    return properties


def write_meta_properties(store: LogStore, properties: Mapping[str, str]) -> None:
    lines = [f"{key}={value}\n" for key, value in sorted(properties.items())]
    store.write_file(META_PROPERTIES, f"#\n{''.join(lines)}".encode())


def write_clean_shutdown(store: LogStore, broker_epoch: int) -> None:
    """Mark a clean shutdown: the next start trusts the files and skips recovery."""
    store.write_file(CLEAN_SHUTDOWN, format_clean_shutdown(broker_epoch))


def format_clean_shutdown(broker_epoch: int) -> bytes:
    """The content of the clean shutdown file."""
    return f'{{"version":0,"brokerEpoch":{broker_epoch}}}'.encode()


def pop_clean_shutdown(store: LogStore) -> int | None:
    """Delete the clean shutdown file and return its broker epoch (-1: unknown).

    None after an unclean shutdown.
    """
    if not store.exists(CLEAN_SHUTDOWN):
        return None
    from json import loads

    try:
        epoch = loads(store.read_file(CLEAN_SHUTDOWN)).get("brokerEpoch", -1)
    except (ValueError, AttributeError):
        epoch = -1
    store.delete(CLEAN_SHUTDOWN)
    return epoch if isinstance(epoch, int) else -1
