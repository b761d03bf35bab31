"""Leaders and offsets of many partitions: one Metadata request, then one ListOffsets per leader."""

from __future__ import annotations

from kwire.client.admin import CONSUMER
from kwire.client.connection import check
from kwire.names import did_you_mean
from kwire.protocol.errors import ErrorCode, KafkaError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Any

    from kwire.client.admin import Admin, Steps
    from kwire.client.connection import Address

    Key = tuple[str, int]
    """Topic and partition."""


def leaders(admin: Admin, topics: Iterable[str]) -> Steps[dict[Key, Address | None]]:
    """The leader of each partition of the topics that exist; None: no leader."""
    metadata = yield from admin.metadata(topics)
    brokers = admin.brokers_in(metadata)
    return {
        (topic.name, each.partition_index): brokers.get(each.leader_id)
        for topic in metadata.topics
        for each in topic.partitions
    }


def partitions(admin: Admin, topic: str, partition: int | None = None) -> Steps[dict[Key, Address]]:
    """The leaders of a topic, or of one partition. KafkaError: no such partition, no leader."""
    found = yield from leaders(admin, [topic])
    wanted = {key: at for key, at in found.items() if partition in (None, key[1])}
    if not wanted:
        raise (yield from unknown(admin, topic, partition))
    led: dict[Key, Address] = {}
    for key, address in sorted(wanted.items()):
        if address is None:
            raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, f"{key[0]}-{key[1]} has no leader")
        led[key] = address
    return led


def unknown(admin: Admin, topic: str, partition: int | None = None) -> Steps[KafkaError]:
    """The error about a topic or partition that does not exist, with what may have been meant."""
    counts = {str(t.name): len(t.partitions) for t in (yield from admin.metadata(None)).topics}
    count = counts.get(topic)
    if count is None:
        text = f"there is no topic {topic[:100]}{did_you_mean(topic, counts, 0.7)}"
    else:
        has = "1 partition, 0" if count == 1 else f"{count} partitions, 0 to {count - 1}"
        text = f"there is no partition {topic}-{partition}; {topic} has {has}"
    return KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, text)


def offsets(
    admin: Admin,
    leaders_of: Mapping[Key, Address],
    timestamp: int,
    *,
    read_committed: bool = False,
    replica_id: int = CONSUMER,
) -> Steps[dict[Key, int]]:
    """The offset of each partition at its leader. `timestamp`: as `Admin.offset`.

    `read_committed`: the latest is the last stable offset, not the high watermark. With DEBUGGING_CONSUMER as
    `replica_id` a follower answers, too, and the latest is the log end."""
    found: dict[Key, int] = {}
    for address in dict.fromkeys(leaders_of.values()):
        keys = [key for key, at in leaders_of.items() if at == address]
        request = _request(keys, timestamp, replica_id, int(read_committed))
        response = yield from admin.ask_at(address, request)
        for topic in response.topics:
            for each in topic.partitions:
                check(each.error_code, f"the offset of {topic.name}-{each.partition_index}")
                found[topic.name, each.partition_index] = each.offset
    return found


def _request(keys: list[Key], timestamp: int, replica_id: int, isolation_level: int) -> Any:
    from kwire.protocol.schemas.offsets import (
        ListOffsetsPartition,
        ListOffsetsRequest,
        ListOffsetsTopic,
    )

    of_topic: dict[str, list[ListOffsetsPartition]] = {}
    for topic, index in keys:
        asked = ListOffsetsPartition(partition_index=index, timestamp=timestamp)
        of_topic.setdefault(topic, []).append(asked)
    return ListOffsetsRequest(
        replica_id=replica_id,
        isolation_level=isolation_level,
        topics=[ListOffsetsTopic(name=name, partitions=asked) for name, asked in of_topic.items()],
    )
