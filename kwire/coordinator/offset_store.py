"""Committed offsets by group, topic and partition, each with older values until it is committed.

Answers to OffsetAndMetadata, and to the snapshots of org.apache.kafka.coordinator.group
.OffsetMetadataManager: the next write sees a write immediately, a read only when its record, or its
transaction's marker, is below the high watermark. Where Kafka keeps snapshots, an entry here keeps
the previous value until then.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

NO_OFFSET = -1


class OffsetAndMetadata:
    """A committed offset. `record_offset`: of its record in the log; -1 before the append.

    `effective_offset`: the same, or that of its transaction's marker."""

    __slots__ = (
        "commit_timestamp_ms",
        "committed_offset",
        "deleted",
        "effective_offset",
        "expire_timestamp_ms",
        "leader_epoch",
        "metadata",
        "previous",
        "record_offset",
    )

    def __init__(
        self,
        committed_offset: int,
        *,
        leader_epoch: int = -1,
        metadata: str = "",
        commit_timestamp_ms: int = 0,
        expire_timestamp_ms: int | None = None,
        record_offset: int = -1,
        deleted: bool = False,
    ) -> None:
        self.committed_offset = committed_offset
        self.leader_epoch = leader_epoch
        self.metadata = metadata
        self.commit_timestamp_ms = commit_timestamp_ms
        self.expire_timestamp_ms = expire_timestamp_ms
        self.record_offset = self.effective_offset = record_offset
        self.deleted = deleted
        self.previous: OffsetAndMetadata | None = None

    def is_expired(self, base_timestamp_ms: int, now_ms: int, retention_ms: int) -> bool:
        """Whether it is past its own expiry time, or else `retention_ms` after the base."""
        if self.expire_timestamp_ms is not None:
            return now_ms >= self.expire_timestamp_ms
        return now_ms - base_timestamp_ms >= retention_ms


PartitionOffsets = dict[int, OffsetAndMetadata]
TopicOffsets = dict[str, PartitionOffsets]


class OffsetStore:
    """All offsets of a shard, each with older values until its record is committed."""

    __slots__ = ("_deletions", "committed", "groups")

    def __init__(self) -> None:
        self.groups: dict[str, TopicOffsets] = {}
        self.committed = 0  # the high watermark
        self._deletions: list[tuple[OffsetAndMetadata, str, str, int]] = []

    def newest(self, group_id: str, topic: str, partition: int) -> OffsetAndMetadata | None:
        """The newest value, committed or not; None: no offset or deleted."""
        return self.live(self.groups.get(group_id, {}).get(topic, {}).get(partition))

    def live(self, entry: OffsetAndMetadata | None) -> OffsetAndMetadata | None:
        """`entry`, committed or not; None: no offset or deleted."""
        return None if entry is None or entry.deleted else entry

    def committed_value(self, entry: OffsetAndMetadata | None) -> OffsetAndMetadata | None:
        """The newest committed value of `entry`, for reads."""
        while entry is not None and entry.effective_offset >= self.committed:
            entry = entry.previous
        return None if entry is None or entry.deleted else entry

    def put(self, group_id: str, topic: str, partition: int, value: OffsetAndMetadata) -> None:
        partitions = self.groups.setdefault(group_id, {}).setdefault(topic, {})
        value.previous = None
        if value.effective_offset >= self.committed:
            old = value.previous = partitions.get(partition)
            while old is not None and old.effective_offset >= self.committed:
                old = old.previous
            if old is not None:
                old.previous = None  # reads need nothing older than a committed value
        partitions[partition] = value

    def remove(self, group_id: str, topic: str, partition: int, record_offset: int) -> None:
        old = self.groups.get(group_id, {}).get(topic, {}).get(partition)
        if old is None:
            return
        if record_offset < self.committed:
            self._drop(group_id, topic, partition)
            return
        marker = OffsetAndMetadata(NO_OFFSET, record_offset=record_offset, deleted=True)
        self.put(group_id, topic, partition, marker)
        self._deletions.append((marker, group_id, topic, partition))

    def advance(self, committed: int) -> None:
        """Set the high watermark; drop deleted entries whose tombstones are committed."""
        self.committed = max(self.committed, committed)
        while self._deletions and self._deletions[0][0].record_offset < self.committed:
            marker, group_id, topic, partition = self._deletions.pop(0)
            if self.groups.get(group_id, {}).get(topic, {}).get(partition) is marker:
                self._drop(group_id, topic, partition)

    def _drop(self, group_id: str, topic: str, partition: int) -> None:
        topics = self.groups[group_id]
        partitions = topics[topic]
        del partitions[partition]
        if not partitions:
            del topics[topic]
        if not topics:
            del self.groups[group_id]

    def iterate(self, group_id: str) -> Iterator[tuple[str, int, OffsetAndMetadata]]:
        """Yield each (topic, partition, newest value) of a group."""
        for topic, partitions in self.groups.get(group_id, {}).items():
            for partition, entry in partitions.items():
                if not entry.deleted:
                    yield topic, partition, entry
