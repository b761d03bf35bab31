"""What consumers of the classic protocol tell each other through JoinGroup and SyncGroup.

An int16 version stands before each of them."""

from __future__ import annotations

from kwire.protocol.language.schema import (
    BYTES,
    INT32,
    STRING,
    Message,
    Struct,
    array,
    field,
)


class TopicPartition(Struct):
    topic: str = field(STRING)
    partitions: list[int] = field(array(INT32))


class ConsumerProtocolSubscription(Message, versions="0-3"):
    """What a consumer wants and owns; `user_data` is its assignor's."""

    topics: list[str] = field(array(STRING))
    user_data: bytes | None = field(BYTES, nullable="0+", default=None)
    owned_partitions: list[TopicPartition] = field(array(TopicPartition), "1+", ignorable=True)
    generation_id: int = field(INT32, "2+", default=-1, ignorable=True)
    rack_id: str | None = field(STRING, "3+", nullable="0+", default=None, ignorable=True)


class ConsumerProtocolAssignment(Message, versions="0-3"):
    """What the leader gives to a consumer."""

    assigned_partitions: list[TopicPartition] = field(array(TopicPartition))
    user_data: bytes | None = field(BYTES, nullable="0+", default=None)
