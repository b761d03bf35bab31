"""Fetch (1): record batches for consumers and followers, with long polling and fetch sessions.

v3 a limit for the whole response, the first batch may exceed it (KIP-74) · v4 isolation level,
record batches · v5 log start offset · v7 sessions (KIP-227) · v9 leader epoch (KIP-320) · v10 zstd
· v11 rack · v12 flexible, diverging epoch (KIP-595) · v13 topic ids (KIP-516) · v15 replica state
with broker epoch (KIP-903) · v16 current leader (KIP-951) · v17 directory id · v18 the follower's
high watermark (not used).

Answers to handleFetchRequest of Kafka 3.9; sessions are in kwire.replication.replica.fetch_session,
reading in Partition and ReplicaManager. v0 to v3 get message sets, converted from what is stored.
Deliberate differences: v0 to v2 get the first batch whole, even above their limit, where Kafka
truncates it and the client fails; a fetch of an unknown partition by a follower is answered
immediately.
"""

from __future__ import annotations

from kwire.protocol.errors import ErrorCode, KafkaError
from kwire.protocol.language.primitives import ZERO_UUID
from kwire.protocol.schemas.fetch import (
    AbortedTransaction,
    EpochEndOffset,
    FetchableTopicResponse,
    FetchResponse,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
)
from kwire.replication.replica.fetch_data import (
    FUTURE_LOCAL_REPLICA_ID,
    FetchParams,
    FetchPartitionData,
)
from kwire.replication.replica.fetch_session import CachedPartition

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from kwire.apis.context import RequestContext, Services
    from kwire.apis.parts.wide_fetch import WideFetch
    from kwire.protocol.schemas.fetch import FetchRequest, FetchTopic
    from kwire.replication.core.types import TopicPartition
    from kwire.replication.core.work import Steps
    from kwire.replication.replica.fetch_data import FetchPartition
    from kwire.replication.replica.fetch_session import FetchContext, SessionKey

READ_BYTES_MAX = 16 << 20
"""What one response has at most, but for a larger batch: reads run on the loop, 55 MB (the default of
consumers and of fetch.max.bytes) take 90 ms of it from the page cache, 140 ms from an SSD."""
_HINTED = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)


def handle_fetch(ctx: RequestContext, request: FetchRequest, wide: WideFetch | None = None) -> None:
    """Reply when min_bytes can be read or max_wait_ms has passed (long polling), or let `wide` do so."""
    version, services, state = ctx.api_version, ctx.services, request.replica_state
    is_follower = (replica_id := state.replica_id if version >= 15 else request.replica_id) >= 0
    try:
        context = services.fetch_sessions.begin(
            request.session_id,
            request.session_epoch,
            wide.asked if wide else _requested_partitions(services, request.topics, version),
            _forgotten_partitions(request, version) if request.forgotten_topics_data else (),
            uses_topic_ids=version >= 13,
            is_follower=is_follower,
        )
    except KafkaError as error:
        ctx.reply(FetchResponse(error_code=error.code))
        return
    max_bytes = max(min(request.max_bytes, services.config.fetch_max_bytes, READ_BYTES_MAX), 0)
    if services.quotas is not None and not is_follower:
        max_bytes = services.quotas.most_fetched(ctx, max_bytes)
    params = FetchParams(
        replica_id=replica_id,
        replica_epoch=state.replica_epoch,
        max_wait_ms=request.max_wait_ms,
        min_bytes=min(request.min_bytes, max_bytes),
        max_bytes=max_bytes,
        isolation_level=request.isolation_level,
        # Consumers read from followers from v11 on (KIP-392).
        fetch_only_leader=is_follower or (version < 11 and replica_id != FUTURE_LOCAL_REPLICA_ID),
        rack_id=request.rack_id,
    )
    if wide is not None:
        wide.begin(params, context)
        return
    answer = _PendingFetch(ctx, context, is_follower)
    if answer.failed and is_follower:
        # The follower learned of a new topic before this broker did: do not delay its retry.
        params.max_wait_ms = 0
    operation = services.replica_manager.fetch_records(params, answer.readable, answer.complete)
    if operation is not None:
        ctx.on_disconnect = operation.cancel


def _requested_partitions(
    services: Services, topics: list[FetchTopic], version: int
) -> dict[SessionKey, CachedPartition]:
    asked: dict[SessionKey, CachedPartition] = {}
    for topic in topics:
        name: str | None
        if version >= 13:
            topic_id = topic.topic_id
            name = services.metadata.topic_name(topic_id)
        else:
            topic_id, name = ZERO_UUID, topic.topic
        for p in topic.partitions:
            partition = CachedPartition(
                name,
                topic_id,
                p.partition,
                p.fetch_offset,
                p.partition_max_bytes,
                p.log_start_offset,
                p.current_leader_epoch,
                p.last_fetched_epoch,
            )
            asked[partition.session_key] = partition
    return asked


def _forgotten_partitions(request: FetchRequest, version: int) -> list[SessionKey]:
    if version >= 13:
        return [(t.topic_id, p) for t in request.forgotten_topics_data for p in t.partitions]
    return [(t.topic, p) for t in request.forgotten_topics_data for p in t.partitions]


class _PendingFetch:
    """A fetch in progress: readable partitions and failed ones; `complete` replies."""

    __slots__ = (
        "_context",
        "_ctx",
        "_is_follower",
        "_partitions",
        "failed",
        "readable",
    )

    def __init__(self, ctx: RequestContext, context: FetchContext, is_follower: bool) -> None:
        self._ctx = ctx
        self._is_follower = is_follower
        self._context = context
        self._partitions: list[CachedPartition] = []
        self.failed: list[tuple[CachedPartition, FetchPartitionData]] = []
        self.readable: list[tuple[TopicPartition, FetchPartition]] = []
        hosted = ctx.services.replica_manager.by_key
        metadata, authority = ctx.services.metadata, ctx.services.authority
        refusal = None if authority is None else authority.reader(ctx, is_follower=is_follower)
        for partition in context.asked.values():
            if refusal is not None and self._is_refused(partition, refusal):
                continue
            if partition.key not in hosted or partition.topic is None:
                # As in Kafka an unknown partition is not read and does not end the long poll.
                if partition.topic is None:
                    name = metadata.topic_name(partition.topic_id)
                    if name is None:
                        self.failed.append((partition, _error_data(ErrorCode.UNKNOWN_TOPIC_ID)))
                        continue
                    partition.resolve(name)
                if metadata.partition(*partition.key) is None and partition.key not in hosted:
                    error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                    self.failed.append((partition, _error_data(error)))
                    continue
            self._partitions.append(partition)
            self.readable.append((partition.key, partition))

    def _is_refused(
        self, partition: CachedPartition, refusal: Callable[[str, int], ErrorCode]
    ) -> bool:
        """Whether the client may not read the partition: then it has failed. An unknown id has no topic."""
        name = partition.topic
        if name is None:
            name = self._ctx.services.metadata.topic_name(partition.topic_id)
        error = ErrorCode.NONE if name is None else refusal(name, partition.partition)
        if error is ErrorCode.NONE:
            return False
        self.failed.append((partition, _error_data(error)))
        return True

    def complete(self, results: list[FetchPartitionData], is_converted: bool = False) -> None:
        """Reply; called once by ReplicaManager.fetch_records, before it returns or later.

        Records for a client before v10 are converted first."""
        ctx, partitions = self._ctx, self._partitions
        if ctx.api_version < 10 and not is_converted:
            ctx.run_in_parts(self._convert(results))
            return
        pairs = [*zip(partitions, results, strict=True), *self.failed]
        if ctx.services.quotas is not None and self.is_throttled(pairs):
            return
        try:
            session_id, answered = self._context.finish(pairs)
        except KafkaError as error:
            response = FetchResponse(error_code=error.code)
        else:
            response = FetchResponse(session_id=session_id)
            _fill(ctx, response, answered, self._is_follower)
        ctx.reply(response)

    def is_throttled(self, pairs: list[tuple[CachedPartition, FetchPartitionData]]) -> bool:
        """Answer a consumer that is throttled with no partitions; its session stays as it is."""
        quotas = self._ctx.services.quotas
        if quotas is None or self._is_follower or not quotas.throttles_fetch(self._ctx, pairs):
            return False
        try:
            response = FetchResponse(session_id=self._context.session_id())
        except KafkaError as error:
            response = FetchResponse(error_code=error.code)
        self._ctx.reply(response)
        return True

    def _convert(self, results: list[FetchPartitionData]) -> Steps:
        converted = []
        for partition, data in zip(self._partitions, results, strict=True):
            data = yield from _convert(self._ctx, partition, data, self._is_follower)
            converted.append(data)
        self.complete(converted, is_converted=True)


def _error_data(error: ErrorCode) -> FetchPartitionData:
    """An error found before reading: as in Kafka aborted transactions are empty then, not null."""
    data = FetchPartitionData(error)
    data.aborted_transactions = []
    return data


def _convert(
    ctx: RequestContext, partition: CachedPartition, data: FetchPartitionData, is_follower: bool
) -> Generator[int, None, FetchPartitionData]:
    """Convert data for a client before v10, or return the error (maybeConvertFetchedData)."""
    version = ctx.api_version
    if data.error == ErrorCode.KAFKA_STORAGE_ERROR and version <= 5:
        # As in Kafka: clients before v6 may not know that error; on this one they refresh metadata.
        data.error = ErrorCode.NOT_LEADER_OR_FOLLOWER
    hosted = ctx.services.replica_manager.hosted(partition.key)
    if data.error or hosted is None:
        return data
    if hosted.log.config.compression_type == "zstd":
        return _error_data(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
    if version >= 4:
        return data
    if not is_follower and not hosted.log.config.message_downconversion_enable:
        return _error_data(ErrorCode.UNSUPPORTED_VERSION)
    if len(data.records):
        from kwire.protocol.conversion import downconvert

        magic = 0 if version < 2 else 1
        try:
            data.records = yield from downconvert(data.records, magic, partition.fetch_offset)
        except KafkaError as error:
            return _error_data(error.code)
    return data


def _fill(
    ctx: RequestContext,
    response: FetchResponse,
    answered: list[tuple[CachedPartition, FetchPartitionData]],
    is_follower: bool,
) -> None:
    """Fill the response in the order of reading; adjacent partitions of a topic share an entry."""
    previous = response.responses[-1] if response.responses else None
    traffic = ctx.services.replica_manager.traffic.by_topic
    for partition, data in answered:
        topic = partition.topic or ""
        if data.records and topic in traffic:
            if is_follower:
                traffic[topic].replication_bytes_out += len(data.records)
            else:
                traffic[topic].bytes_out += len(data.records)
        if previous is None or previous.topic_id != partition.topic_id or previous.topic != topic:
            previous = FetchableTopicResponse(topic=topic, topic_id=partition.topic_id)
            response.responses.append(previous)
        entry = PartitionData(
            partition_index=partition.partition,
            error_code=data.error,
            high_watermark=data.high_watermark,
            last_stable_offset=data.last_stable_offset,
            log_start_offset=data.log_start_offset,
            records=data.records,
            aborted_transactions=None,
        )
        if data.aborted_transactions is not None:
            entry.aborted_transactions = [
                AbortedTransaction(producer_id=a.producer_id, first_offset=a.first_offset)
                for a in data.aborted_transactions
            ]
        if data.error or data.diverging_epoch is not None or data.preferred_read_replica >= 0:
            _redirect(ctx, response, entry, topic, data)
        previous.partitions.append(entry)


def _redirect(
    ctx: RequestContext,
    response: FetchResponse,
    entry: PartitionData,
    topic: str,
    data: FetchPartitionData,
) -> None:
    """Say where to read instead: from an earlier offset (KIP-595), another replica (KIP-392), the
    leader (KIP-951)."""
    if data.diverging_epoch is not None:
        epoch, end_offset = data.diverging_epoch
        entry.diverging_epoch = EpochEndOffset(epoch=epoch, end_offset=end_offset)
    if data.preferred_read_replica >= 0 and ctx.api_version >= 11:
        entry.preferred_read_replica = data.preferred_read_replica
    if data.error in _HINTED and ctx.api_version >= 16:
        _hint_leader(ctx, response, entry, topic)


def _hint_leader(
    ctx: RequestContext, response: FetchResponse, entry: PartitionData, topic: str
) -> None:
    """Add the current leader, so that the client needs no Metadata request (KIP-951)."""
    services = ctx.services
    leader_id, leader_epoch = services.replica_manager.current_leader(topic, entry.partition_index)
    entry.current_leader = LeaderIdAndEpoch(leader_id=leader_id, leader_epoch=leader_epoch)
    endpoint = services.metadata.endpoint(leader_id, ctx.session.listener_name)
    if endpoint is not None and all(n.node_id != leader_id for n in response.node_endpoints):
        rack = services.metadata.brokers[leader_id].rack
        response.node_endpoints.append(
            NodeEndpoint(node_id=leader_id, host=endpoint.host, port=endpoint.port, rack=rack)
        )
