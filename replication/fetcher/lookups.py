"""A fetcher's look-ups at its leader: log start, log end, and the end offset of an epoch.

Answers to fetchOffset and fetchEpochEndOffsets of kafka.server.RemoteLeaderEndPoint: ListOffsets v9
(special timestamps only, as a replica) and OffsetForLeaderEpoch v4. Requests are built from fetch
states; responses are flattened.
"""

from __future__ import annotations

from typing import Final

from kwire.protocol.api import ApiKey
from kwire.protocol.schemas.offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from kwire.protocol.schemas.offsets import ListOffsetsResponse, OffsetForLeaderEpochResponse
    from kwire.replication.fetcher.state import PartitionFetchState

Lookup = tuple[tuple[str, int], int, int, int]
"""(partition, error, epoch, offset)"""

LIST_OFFSETS: Final = ApiKey.LIST_OFFSETS
LIST_OFFSETS_VERSION: Final = 9
OFFSET_FOR_LEADER_EPOCH: Final = ApiKey.OFFSET_FOR_LEADER_EPOCH
OFFSET_FOR_LEADER_EPOCH_VERSION: Final = 4


def list_offsets_request(
    node_id: int, states: Iterable[PartitionFetchState], timestamp: int
) -> ListOffsetsRequest:
    """Build a ListOffsets request. `timestamp`: -1: the leader's log end, -2: its log start."""
    topics: dict[str, ListOffsetsTopic] = {}
    for state in states:
        name, index = state.partition.key
        if name not in topics:
            topics[name] = ListOffsetsTopic(name=name)
        topics[name].partitions.append(
            ListOffsetsPartition(
                partition_index=index,
                current_leader_epoch=state.current_leader_epoch,
                timestamp=timestamp,
            )
        )
    return ListOffsetsRequest(replica_id=node_id, topics=list(topics.values()))


def list_offsets_answers(response: ListOffsetsResponse) -> Iterator[Lookup]:
    """Flatten a ListOffsets response; a missing offset counts as error -1."""
    for topic in response.topics:
        for data in topic.partitions:
            error = data.error_code or (-1 if data.offset < 0 else 0)
            yield (topic.name, data.partition_index), error, data.leader_epoch, data.offset


def epochs_request(
    node_id: int, states: Iterable[PartitionFetchState]
) -> OffsetForLeaderEpochRequest:
    """Build a request for the end offset of each follower's latest epoch."""
    topics: dict[str, OffsetForLeaderTopic] = {}
    for state in states:
        name, index = state.partition.key
        if name not in topics:
            topics[name] = OffsetForLeaderTopic(topic=name)
        topics[name].partitions.append(
            OffsetForLeaderPartition(
                partition=index,
                current_leader_epoch=state.current_leader_epoch,
                leader_epoch=state.partition.log.leader_epochs.latest_epoch,
            )
        )
    return OffsetForLeaderEpochRequest(replica_id=node_id, topics=list(topics.values()))


def epochs_answers(response: OffsetForLeaderEpochResponse) -> Iterator[Lookup]:
    """Flatten the response. End offset -1 is no error: the leader has no epoch up to that one."""
    for topic in response.topics:
        for data in topic.partitions:
            yield (topic.topic, data.partition), data.error_code, data.leader_epoch, data.end_offset
