"""Records of `__share_group_state` (KIP-932).

Before the key stands its record type, before the value its version, each an int16."""

from __future__ import annotations

from kwire.protocol.language.schema import (
    INT8,
    INT16,
    INT32,
    INT64,
    STRING,
    UUID,
    Message,
    Struct,
    array,
    field,
)


class ShareSnapshotKey(Message, versions="0", record_type=0):
    """Key of a full state of a shared partition."""

    group_id: str = field(STRING)
    topic_id: bytes = field(UUID)
    partition: int = field(INT32)


class StateBatch(Struct):
    first_offset: int = field(INT64)
    last_offset: int = field(INT64)
    delivery_state: int = field(INT8)
    delivery_count: int = field(INT16)


class ShareSnapshotValue(Message, versions="0", flexible="0+", record_type=0):
    """The full state of a shared partition."""

    snapshot_epoch: int = field(INT32)
    state_epoch: int = field(INT32)
    leader_epoch: int = field(INT32)
    start_offset: int = field(INT64)
    delivery_complete_count: int = field(INT32, default=-1, tag=0)
    create_timestamp: int = field(INT64)
    write_timestamp: int = field(INT64)
    state_batches: list[StateBatch] = field(array(StateBatch))


class ShareUpdateKey(Message, versions="0", record_type=1):
    """Key of a change to a shared partition's state."""

    group_id: str = field(STRING)
    topic_id: bytes = field(UUID)
    partition: int = field(INT32)


class ShareUpdateValue(Message, versions="0", flexible="0+", record_type=1):
    """A change to a shared partition's state."""

    snapshot_epoch: int = field(INT32)
    leader_epoch: int = field(INT32)
    start_offset: int = field(INT64)
    delivery_complete_count: int = field(INT32, default=-1, tag=0)
    state_batches: list[StateBatch] = field(array(StateBatch))
