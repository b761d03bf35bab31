"""Build, encode and decode the records of `__consumer_offsets`.

Answers to org.apache.kafka.coordinator.group.CoordinatorRecordHelpers and CoordinatorRecordSerde. A
key is an int16 type (in Kafka 3.9's words: the key's version) and the key's fields; a value is an
int16 version and the value's fields; no value is a tombstone. Written as Kafka 3.9 writes them:
OffsetCommitKey 1, OffsetCommitValue 3 (1 when the commit asked for its own retention),
GroupMetadataKey 2, GroupMetadataValue 3. Left out: the record types of the consumer (KIP-848),
share and streams protocols; loading skips them, so that it can read a log written by a real Kafka.
"""

from __future__ import annotations

from kwire.protocol.errors import MalformedMessage

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from kwire.coordinator.classic_group import ClassicGroup
    from kwire.coordinator.offset_store import OffsetAndMetadata
    from kwire.protocol.language.schema import Message
    from kwire.protocol.schemas.records_group import MemberMetadata

OFFSET_COMMIT_LEGACY = 0
OFFSET_COMMIT = 1
GROUP_METADATA = 2

KEY_VERSION = 0  # keys have one layout: Kafka 3.9's "key version" is the record type
OFFSET_COMMIT_VALUE_VERSION = 3
OFFSET_COMMIT_VALUE_WITH_EXPIRY_VERSION = 1
GROUP_METADATA_VALUE_VERSION = 3


class CoordinatorRecord:
    """One change of a coordinator's hard state. `value` None is a tombstone."""

    __slots__ = ("key", "record_type", "value", "value_version")

    def __init__(
        self, record_type: int, key: Message, value: Message | None = None, value_version: int = -1
    ) -> None:
        self.record_type = record_type
        self.key = key
        self.value = value
        self.value_version = value_version

    def encode(self) -> tuple[bytes, bytes | None]:
        """Key and value bytes for the log."""
        key = self.record_type.to_bytes(2, "big") + self.key.encode(KEY_VERSION)
        if self.value is None:
            return key, None
        return key, self.value_version.to_bytes(2, "big") + self.value.encode(self.value_version)


def decode_record(
    key: bytes | memoryview, value: bytes | memoryview | None
) -> CoordinatorRecord | None:
    """Decode a record; None for types that kwire does not have. MalformedMessage if invalid."""
    from kwire.protocol.schemas import records_group

    if len(key) < 2:
        raise MalformedMessage("a coordinator record's key is shorter than its type")
    record_type = int.from_bytes(key[:2], "big", signed=True)
    key_class: type[Message]
    value_class: type[Message]
    if record_type in (OFFSET_COMMIT_LEGACY, OFFSET_COMMIT):
        key_class, value_class = records_group.OffsetCommitKey, records_group.OffsetCommitValue
    elif record_type == GROUP_METADATA:
        key_class, value_class = records_group.GroupMetadataKey, records_group.GroupMetadataValue
    else:
        return None
    key_message = key_class.decode(key[2:], KEY_VERSION)
    if value is None:
        return CoordinatorRecord(record_type, key_message)
    if len(value) < 2:
        raise MalformedMessage("a coordinator record's value is shorter than its version")
    version = int.from_bytes(value[:2], "big", signed=True)
    minimum, maximum = value_class.versions
    if not minimum <= version <= maximum:
        raise MalformedMessage(f"{value_class.__name__} has no version {version}")
    return CoordinatorRecord(
        record_type, key_message, value_class.decode(value[2:], version), version
    )


def offset_commit_record(
    group_id: str, topic: str, partition: int, offset: OffsetAndMetadata
) -> CoordinatorRecord:
    """A record that commits an offset."""
    from kwire.protocol.schemas.records_group import OffsetCommitKey, OffsetCommitValue

    expires = offset.expire_timestamp_ms is not None
    return CoordinatorRecord(
        OFFSET_COMMIT,
        OffsetCommitKey(group=group_id, topic=topic, partition=partition),
        OffsetCommitValue(
            offset=offset.committed_offset,
            # Version 1 has no epoch; Kafka drops it there, too.
            leader_epoch=-1 if expires else offset.leader_epoch,
            metadata=offset.metadata,
            commit_timestamp=offset.commit_timestamp_ms,
            expire_timestamp=-1
            if offset.expire_timestamp_ms is None
            else offset.expire_timestamp_ms,
        ),
        OFFSET_COMMIT_VALUE_WITH_EXPIRY_VERSION if expires else OFFSET_COMMIT_VALUE_VERSION,
    )


def offset_commit_tombstone(group_id: str, topic: str, partition: int) -> CoordinatorRecord:
    """A record that deletes a committed offset."""
    from kwire.protocol.schemas.records_group import OffsetCommitKey

    return CoordinatorRecord(
        OFFSET_COMMIT, OffsetCommitKey(group=group_id, topic=topic, partition=partition)
    )


def group_metadata_record(
    group: ClassicGroup, assignment: Mapping[str, bytes]
) -> CoordinatorRecord:
    """A group's generation with its members; `assignment` has an entry for each member id."""
    from kwire.protocol.schemas import records_group

    protocol = group.protocol_name
    members = [
        records_group.MemberMetadata(
            member_id=member.member_id,
            group_instance_id=member.group_instance_id,
            client_id=member.client_id,
            client_host=member.client_host,
            rebalance_timeout=member.rebalance_timeout_ms,
            session_timeout=member.session_timeout_ms,
            subscription=member.metadata(protocol),
            assignment=assignment[member.member_id],
        )
        for member in group.members.values()
    ]
    return _group_metadata(
        group.group_id,
        protocol_type=group.protocol_type or "",
        generation=group.generation_id,
        protocol=protocol,
        leader=group.leader_id,
        timestamp_ms=group.current_state_timestamp_ms,
        members=members,
    )


def empty_group_metadata_record(group: ClassicGroup) -> CoordinatorRecord:
    """The record of a new group before its first generation."""
    return _group_metadata(
        group.group_id,
        protocol_type="",
        generation=0,
        protocol=None,
        leader=None,
        timestamp_ms=group.current_state_timestamp_ms,
        members=(),
    )


def group_metadata_tombstone(group_id: str) -> CoordinatorRecord:
    """A record that deletes a group."""
    from kwire.protocol.schemas.records_group import GroupMetadataKey

    return CoordinatorRecord(GROUP_METADATA, GroupMetadataKey(group=group_id))


def _group_metadata(
    group_id: str,
    *,
    protocol_type: str,
    generation: int,
    protocol: str | None,
    leader: str | None,
    timestamp_ms: int | None,
    members: Iterable[MemberMetadata],
) -> CoordinatorRecord:
    from kwire.protocol.schemas.records_group import GroupMetadataKey, GroupMetadataValue

    return CoordinatorRecord(
        GROUP_METADATA,
        GroupMetadataKey(group=group_id),
        GroupMetadataValue(
            protocol_type=protocol_type,
            generation=generation,
            protocol=protocol,
            leader=leader,
            current_state_timestamp=-1 if timestamp_ms is None else timestamp_ms,
            members=list(members),
        ),
        GROUP_METADATA_VALUE_VERSION,
    )
