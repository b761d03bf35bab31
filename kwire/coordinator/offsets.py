"""Committed offsets by group, topic and partition: commit, fetch, delete, expire.

Answers to org.apache.kafka.coordinator.group.OffsetMetadataManager, OffsetAndMetadata and
OffsetExpirationConditionImpl (KIP-211 expiry, KIP-447 stable offsets).

Offsets of open transactions are kept in `_pending`, by producer id, until the transaction's marker
is replayed.
"""

from __future__ import annotations

from kwire.coordinator.group_records import offset_commit_record, offset_commit_tombstone
from kwire.coordinator.offset_store import OffsetAndMetadata, OffsetStore, TopicOffsets
from kwire.protocol.errors import ErrorCode, KafkaError
from kwire.protocol.varint import INT64_MAX
from kwire.shards.result import Result

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from kwire.coordinator.classic_group import ClassicGroup
    from kwire.coordinator.config import GroupConfig
    from kwire.coordinator.group_records import CoordinatorRecord
    from kwire.protocol.schemas.offsets import (
        OffsetCommitRequest,
        OffsetCommitRequestPartition,
        OffsetCommitResponse,
        OffsetDeleteRequest,
        OffsetDeleteResponse,
    )
    from kwire.protocol.schemas.records_group import OffsetCommitKey, OffsetCommitValue
    from kwire.protocol.schemas.transactions import TxnOffsetCommitRequestPartition
    from kwire.replication.core.clock import Clock

FetchedTopic = tuple[str, list[tuple[int, ErrorCode, OffsetAndMetadata | None]]]
"""Topic, [(partition, error, offset or None)]."""


class OffsetManager:
    """The offsets of a group shard. `find_group` returns a classic group or None."""

    __slots__ = ("_clock", "_config", "_open_transactions", "_pending", "find_group", "store")

    def __init__(
        self,
        config: GroupConfig,
        clock: Clock,
        find_group: Callable[[str], ClassicGroup | None],
    ) -> None:
        self._config = config
        self._clock = clock
        self.find_group = find_group
        self.store = OffsetStore()
        self._pending: dict[int, dict[str, TopicOffsets]] = {}  # producer id → group → offsets
        self._open_transactions: dict[str, dict[int, None]] = {}  # group → producer ids

    # --- requests

    def commit(self, request: OffsetCommitRequest) -> Result[OffsetCommitResponse]:
        """Commit one record per partition. The caller has validated member and generation."""
        from kwire.protocol.schemas.offsets import (
            OffsetCommitResponse,
            OffsetCommitResponsePartition,
            OffsetCommitResponseTopic,
        )

        now_ms = self._clock.wall_ms
        retention_ms = request.retention_time_ms
        # Bounded; in Kafka the sum would overflow into the past.
        expire_ms = None if retention_ms == -1 else min(now_ms + retention_ms, INT64_MAX)
        records: list[CoordinatorRecord] = []
        topics = []
        for topic in request.topics:
            partitions = []
            for partition in topic.partitions:
                error = ErrorCode.NONE
                if self.is_too_large(partition.committed_metadata):
                    error = ErrorCode.OFFSET_METADATA_TOO_LARGE
                else:
                    sent_ms = partition.commit_timestamp  # version 1 only
                    value = from_request(partition, now_ms, expire_ms, sent_ms)
                    records.append(
                        offset_commit_record(
                            request.group_id, topic.name, partition.partition_index, value
                        )
                    )
                partitions.append(
                    OffsetCommitResponsePartition(
                        partition_index=partition.partition_index, error_code=int(error)
                    )
                )
            topics.append(OffsetCommitResponseTopic(name=topic.name, partitions=partitions))
        return Result(records, OffsetCommitResponse(topics=topics))

    def is_too_large(self, metadata: str | None) -> bool:
        """Whether the metadata of an offset is larger than offset.metadata.max.bytes."""
        limit = self._config.offset_metadata_max_bytes
        if metadata is None or len(metadata) * 2 <= limit:
            return False
        # Kafka compares the length of a Java string, in UTF-16 units, with the limit in "bytes".
        return len(metadata.encode("utf-16-be", "surrogatepass")) // 2 > limit

    def fetch(
        self,
        group_id: str,
        topics: Iterable[tuple[str, Iterable[int]]] | None,
        require_stable: bool,
    ) -> list[FetchedTopic]:
        """The committed offsets of `topics`; None: all of the group's.

        `require_stable`: the newest ones, which the answer must wait for (KIP-447)."""
        group = self.find_group(group_id)
        # As in Kafka: a dead group is answered like an unknown one, without offsets.
        stored = (
            {} if group is None or group.state == "Dead" else self.store.groups.get(group_id, {})
        )
        answer: list[FetchedTopic] = []
        skip_absent = topics is None
        if topics is None:
            topics = [(topic, list(partitions)) for topic, partitions in stored.items()]
        for topic, indexes in topics:
            partitions: list[tuple[int, ErrorCode, OffsetAndMetadata | None]] = []
            entries = stored.get(topic, {})
            for index in indexes:
                entry = entries.get(index)
                value = (
                    self.store.live(entry) if require_stable else self.store.committed_value(entry)
                )
                if require_stable and self._has_pending(group_id, topic, index):
                    partitions.append((index, ErrorCode.UNSTABLE_OFFSET_COMMIT, None))
                elif value is not None or not skip_absent:
                    partitions.append((index, ErrorCode.NONE, value))
            if partitions or not skip_absent:
                answer.append((topic, partitions))
        return answer

    def delete(
        self, group: ClassicGroup, request: OffsetDeleteRequest
    ) -> Result[OffsetDeleteResponse]:
        """Delete offsets (KIP-496). Partitions without an offset count as deleted."""
        from kwire.protocol.schemas.offsets import (
            OffsetDeleteResponse,
            OffsetDeleteResponsePartition,
            OffsetDeleteResponseTopic,
        )

        records: list[CoordinatorRecord] = []
        topics = []
        for topic in request.topics:
            subscribed = group.is_subscribed_to_topic(topic.name)
            error = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if subscribed else ErrorCode.NONE
            partitions = []
            for partition in topic.partitions:
                index = partition.partition_index
                partitions.append(
                    OffsetDeleteResponsePartition(partition_index=index, error_code=int(error))
                )
                if not subscribed and self._has_any(group.group_id, topic.name, index):
                    records.append(offset_commit_tombstone(group.group_id, topic.name, index))
            topics.append(OffsetDeleteResponseTopic(name=topic.name, partitions=partitions))
        return Result(records, OffsetDeleteResponse(topics=topics))

    def delete_all(self, group_id: str) -> list[CoordinatorRecord]:
        """Tombstones for every offset of a group, those in open transactions included."""
        keys = {(topic, index): None for topic, index, _ in self.store.iterate(group_id)}
        for producer_id in self._open_transactions.get(group_id, ()):
            for topic, partitions in self._pending[producer_id].get(group_id, {}).items():
                keys.update(((topic, index), None) for index in partitions)
        return [offset_commit_tombstone(group_id, topic, index) for topic, index in keys]

    def on_partitions_deleted(self, deleted: Iterable[tuple[str, int]]) -> list[CoordinatorRecord]:
        """Tombstones for every offset of deleted partitions."""
        gone = set(deleted)
        stores = [self.store.groups, *self._pending.values()]
        keys: dict[tuple[str, str, int], None] = {}
        for groups in stores:
            for group_id, topics in groups.items():
                for topic, partitions in topics.items():
                    keys.update(
                        ((group_id, topic, index), None)
                        for index, entry in partitions.items()
                        if (topic, index) in gone and not entry.deleted
                    )
        return [offset_commit_tombstone(*key) for key in keys]

    def in_transaction(self, group_id: str) -> bool:
        """Whether offsets of the group wait for the end of a transaction."""
        return group_id in self._open_transactions

    def cleanup_expired(self, group: ClassicGroup, records: list[CoordinatorRecord]) -> bool:
        """Append tombstones of expired offsets to `records`; True if no offsets are left."""
        group_id = group.group_id
        now_ms = self._clock.wall_ms
        all_expired = True
        for topic, index, value in self.store.iterate(group_id):
            base_ms = group.expiry_base_timestamp_ms(value)
            if (
                base_ms is None
                or group.is_subscribed_to_topic(topic)
                or self._has_pending(group_id, topic, index)
                or not value.is_expired(base_ms, now_ms, self._config.offsets_retention_ms)
            ):
                all_expired = False
            else:
                records.append(offset_commit_tombstone(group_id, topic, index))
        return all_expired and group_id not in self._open_transactions

    # --- hard state

    def replay(
        self,
        record_offset: int,
        producer_id: int,
        key: OffsetCommitKey,
        value: OffsetCommitValue | None,
    ) -> None:
        """Apply a record, loaded or just appended. `producer_id` -1: not part of a transaction."""
        if value is None:
            self.store.remove(key.group, key.topic, key.partition, record_offset)
            for open_id in self._open_transactions.get(key.group, ()):
                pending = self._pending[open_id].get(key.group, {}).get(key.topic, {})
                pending.pop(key.partition, None)
            return
        expire_ms = value.expire_timestamp
        offset = OffsetAndMetadata(
            value.offset,
            leader_epoch=value.leader_epoch,
            metadata=value.metadata,
            commit_timestamp_ms=value.commit_timestamp,
            expire_timestamp_ms=None if expire_ms == -1 else expire_ms,
            record_offset=record_offset,
        )
        if producer_id == -1:
            self.store.put(key.group, key.topic, key.partition, offset)
            return
        topics = self._pending.setdefault(producer_id, {}).setdefault(key.group, {})
        topics.setdefault(key.topic, {})[key.partition] = offset
        self._open_transactions.setdefault(key.group, {})[producer_id] = None

    def replay_end_transaction(self, offset: int, producer_id: int, committed: bool) -> None:
        """Apply a marker at `offset`: the pending offsets take effect with it, or are dropped."""
        for group_id, topics in self._pending.pop(producer_id, {}).items():
            open_ids = self._open_transactions.get(group_id, {})
            open_ids.pop(producer_id, None)
            if not open_ids:
                self._open_transactions.pop(group_id, None)
            if not committed:
                continue
            for topic, partitions in topics.items():
                for index, value in partitions.items():
                    existing = self.store.newest(group_id, topic, index)
                    # A plain commit may have come after this one: the later record wins, not the later marker.
                    if existing is None or value.record_offset > existing.record_offset:
                        value.effective_offset = offset
                        self.store.put(group_id, topic, index, value)

    def _has_any(self, group_id: str, topic: str, index: int) -> bool:
        if self.store.newest(group_id, topic, index) is not None:
            return True
        return self._has_pending(group_id, topic, index)

    def _has_pending(self, group_id: str, topic: str, index: int) -> bool:
        return any(
            index in self._pending[producer_id].get(group_id, {}).get(topic, {})
            for producer_id in self._open_transactions.get(group_id, ())
        )


def from_request(
    partition: OffsetCommitRequestPartition | TxnOffsetCommitRequestPartition,
    now_ms: int,
    expire_ms: int | None,
    timestamp_ms: int = -1,
) -> OffsetAndMetadata:
    """The offset of a commit at `now_ms`. `timestamp_ms`: given by the client, -1 if not."""
    return OffsetAndMetadata(
        partition.committed_offset,
        leader_epoch=partition.committed_leader_epoch,
        metadata=partition.committed_metadata or "",
        commit_timestamp_ms=now_ms if timestamp_ms == -1 else timestamp_ms,
        expire_timestamp_ms=expire_ms,
    )


def require_group(group: ClassicGroup | None, group_id: str) -> ClassicGroup:
    """Return the group or raise GROUP_ID_NOT_FOUND."""
    if group is None:
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, not_found(group_id))
    return group


def not_found(group_id: str) -> str:
    """Kafka's message for an unknown group; a very long id is shortened to fit a string."""
    return f"Group {group_id[:249]} not found."
