"""Produce (0): validation of requests and appends to leaders.

Produce: v3 record batches (KIP-98), earlier message sets, converted to one batch · v5 log start
offset · v7 zstd (KIP-110) · v8 record errors (KIP-467) · v9 flexible · v10 current leader (KIP-951)
· v12 transactions without AddPartitionsToTxn (KIP-890) · v13 topic ids (KIP-516).

Answers to handleProduceRequest and ProduceRequest.validateRecords of Kafka. Produce creates no topics
(Metadata does). Transactional batches are verified first (`kwire/transactions/guards.py`).

Deliberate differences: null records are INVALID_RECORD, where Kafka fails and never replies; one
partition's corrupt bytes, or transactional batch without an id, do not fail the others; a duplicate
partition is appended to twice.
"""

from __future__ import annotations

from kwire.apis.context import ADMIN_CLIENT_ID
from kwire.protocol.compression import codec_id, most_bytes
from kwire.protocol.errors import ErrorCode, KafkaError
from kwire.protocol.records import (
    ATTRIBUTES_POSITION,
    COMPRESSION_MASK,
    HEADER_SIZE,
    MAGIC_POSITION,
    TRANSACTIONAL_FLAG,
)
from kwire.protocol.schemas.produce import (
    BatchIndexAndErrorMessage,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceResponse,
)
from kwire.replication.core.metadata import INTERNAL_TOPICS
from kwire.replication.log.log import CheckedBatch, LogAppendInfo
from kwire.replication.replica.manager import RefusedAppend

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Generator, Mapping

    from kwire.apis.context import RequestContext
    from kwire.protocol.schemas.produce import PartitionProduceData, ProduceRequest
    from kwire.replication.core.outbox import Buffer
    from kwire.replication.core.types import TopicPartition
    from kwire.replication.core.work import Steps
    from kwire.transactions.guards import Guard

_NONE = ErrorCode.NONE
_ZSTD = codec_id("zstd")
_LOW_ATTRIBUTES_POSITION = ATTRIBUTES_POSITION + 1
"""Position of the attributes' second byte, which has all bits in use."""
_KNOWS_ABORTABLE_VERSION, _ADDS_PARTITIONS_VERSION = 11, 12
_NO_GUARDS: Mapping[TopicPartition, Guard] = {}
_MUCH_BYTES = 64 << 10
"""Uncompressed records up to this are checked in one go: about 2 ms, 8 for the smallest records."""
_PARTITION_BYTES = 1024
"""A partition takes as long as so many bytes of records, in the first append to it longer."""


def handle_produce(ctx: RequestContext, request: ProduceRequest) -> None:
    """Append the records. With acks=0 nothing is replied, but an error closes the connection."""
    if request.transactional_id is not None:
        _verify_and_append(ctx, request)
    elif ctx.api_version < 3 or _is_much(request):
        ctx.run_in_parts(_append_in_parts(ctx, request))
    else:
        _append_all(ctx, request, {})


def _is_much(request: ProduceRequest) -> bool:
    """Whether the records may take long to check; compressed ones can be a hundred times as many."""
    size = 0
    for topic in request.topic_data:
        for data in topic.partition_data:
            records = data.records
            size += _PARTITION_BYTES
            if records is not None and len(records) > _LOW_ATTRIBUTES_POSITION:
                codec = records[_LOW_ATTRIBUTES_POSITION] & COMPRESSION_MASK
                size += len(records) << 4 if codec else len(records)
                if codec == _ZSTD and 256 < len(records) < _MUCH_BYTES >> 4:  # may become 100 MB
                    size += most_bytes("zstd", memoryview(records)[HEADER_SIZE:]) >> 6
    return size > _MUCH_BYTES


def _verify_and_append(ctx: RequestContext, request: ProduceRequest) -> None:
    """Verify that the partitions belong to the producer's transaction, then append (KIP-890)."""
    services, version = ctx.services, ctx.api_version
    if not services.config.transaction_partition_verification_enable:
        ctx.run_in_parts(_append_in_parts(ctx, request))
        return
    from kwire.transactions.guards import Guards

    batches: list[tuple[TopicPartition, Buffer]] = []
    for topic in request.topic_data:
        name = topic.name if version < 13 else services.metadata.topic_name(topic.topic_id)
        for data in topic.partition_data:
            if name is not None and services.metadata.partition(name, data.index) is not None:
                batches.append(((name, data.index), data.records or b""))
    guards = Guards(
        services.verifier,
        services.replica_manager,
        request.transactional_id or "",
        adds=version >= _ADDS_PARTITIONS_VERSION,
        knows_abortable=version >= _KNOWS_ABORTABLE_VERSION,
    )
    guards.of_batches(batches, lambda f: ctx.run_in_parts(_append_in_parts(ctx, request, f)))
    if not ctx.answered:
        ctx.session.keeps_frame = True


def _append_in_parts(
    ctx: RequestContext,
    request: ProduceRequest,
    guards: Mapping[TopicPartition, Guard] = _NO_GUARDS,
) -> Steps:
    """Some partitions at a time, if there are many; their batches in parts, if those are large."""
    from kwire.apis.parts.chunks import handle_in_parts, is_cut

    def handle(part: RequestContext, some: ProduceRequest) -> None:
        if some.transactional_id is None:
            handle_produce(part, some)
        else:
            part.run_in_parts(_check_and_append(part, some, guards))

    if is_cut(ctx, request):
        yield from handle_in_parts(ctx, request, handle)
    elif ctx.api_version < 3:
        yield from _convert_and_append(ctx, request)
    else:
        yield from _check_and_append(ctx, request, guards)


def _check_and_append(
    ctx: RequestContext,
    request: ProduceRequest,
    guards: Mapping[TopicPartition, Guard] = _NO_GUARDS,
) -> Steps:
    """Check all batches in parts, then append those that may be. `guards`: of verified ones."""
    from kwire.replication.log.validation import check_in_steps

    checked: dict[int, CheckedBatch] = {}
    metadata = ctx.services.metadata
    for topic in request.topic_data:
        name = topic.name if ctx.api_version < 13 else metadata.topic_name(topic.topic_id)
        for data in topic.partition_data:
            key = (name or "", data.index)
            partition = ctx.services.replica_manager.hosted(key)
            guard = guards.get(key) if _is_transactional(data.records or b"") else None
            if isinstance(guard, KafkaError):
                checked[id(data)] = _Unverified(memoryview(b""), error=guard)
            elif data.records and partition is not None and partition.is_leader:
                batch = yield from check_in_steps(partition.log, data.records)
                batch.guard = guard
                checked[id(data)] = batch
    _append_all(ctx, request, checked)


def _append_all(
    ctx: RequestContext, request: ProduceRequest, checked: dict[int, CheckedBatch]
) -> None:
    """Append and answer. `checked`: by the id of a partition's data; others are checked now."""
    version, acks = ctx.api_version, request.acks
    services = ctx.services
    response = ProduceResponse()
    pending: list[tuple[TopicPartition, LogAppendInfo, PartitionProduceResponse]] = []
    appended: list[TopicPartition] = []
    for topic in request.topic_data:
        name = topic.name if version < 13 else services.metadata.topic_name(topic.topic_id)
        answered = TopicProduceResponse(name=topic.name, topic_id=topic.topic_id)
        answers = answered.partition_responses
        for data in topic.partition_data:
            info = _append(ctx, request, name, data, checked.get(id(data)))
            answer = PartitionProduceResponse(
                index=data.index,
                error_code=info.error,
                base_offset=info.first_offset,
                log_append_time_ms=info.log_append_time_ms,
                log_start_offset=info.log_start_offset,
            )
            answers.append(answer)
            if info.error is not _NONE or name is None:
                _add_error_details(ctx, response, answer, name, info)
                continue
            appended.append((name, data.index))
            if info.required_offset >= 0:
                pending.append(((name, data.index), info, answer))
        if answers:
            response.responses.append(answered)
    if pending:
        _await_followers(ctx, request.timeout_ms, response, pending)
    for key in appended:
        # Only now: fetches of followers that wake up here may complete the wait for replication.
        services.replica_manager.complete_waiting(key)
    if acks == 0:
        _end_without_response(ctx, response)
    elif not pending:
        ctx.reply(response)


def _append(
    ctx: RequestContext,
    request: ProduceRequest,
    topic: str | None,
    data: PartitionProduceData,
    checked: CheckedBatch | None,
) -> LogAppendInfo:
    """Append to one partition. Batches of current clients only pass a few comparisons."""
    if topic is None:
        return RefusedAppend(KafkaError(ErrorCode.UNKNOWN_TOPIC_ID))
    records, acks = data.records, request.acks
    if (
        ctx.api_version < 7
        or records is None
        or len(records) <= _LOW_ATTRIBUTES_POSITION
        or records[MAGIC_POSITION] != 2
        or records[_LOW_ATTRIBUTES_POSITION] & TRANSACTIONAL_FLAG
        or topic in INTERNAL_TOPICS
        or not -1 <= acks <= 1
    ):
        try:
            records = _check(ctx, request, topic, data)
        except KafkaError as error:
            return RefusedAppend(error)
        if isinstance(checked, _Unverified) and checked.error is not None:
            return RefusedAppend(checked.error)
        if not len(records):
            # An empty message set of an old client: as in Kafka no error.
            return LogAppendInfo(-1, -1, -1, -1, False, 0)
    replicas = ctx.services.replica_manager
    return replicas.append_to_leader(topic, data.index, checked or records, acks)


def _check(
    ctx: RequestContext, request: ProduceRequest, topic: str, data: PartitionProduceData
) -> Buffer:
    """The records as one batch or b""; checks topic, acks and version in Kafka's order."""
    known = ctx.services.metadata.partition(topic, data.index) is not None
    try:
        records = _check_version(data.records, ctx.api_version)
    except KafkaError as error:
        # Kafka detects corrupt bytes before it looks up the topic, other errors after that.
        if known or error.code is ErrorCode.CORRUPT_MESSAGE:
            raise
    if not known or records is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    if topic in INTERNAL_TOPICS and ctx.client_id != ADMIN_CLIENT_ID:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION)
    if not -1 <= request.acks <= 1:
        raise KafkaError(ErrorCode.INVALID_REQUIRED_ACKS)
    if request.transactional_id is None and _is_transactional(records):
        raise KafkaError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    return records


def _is_transactional(records: Buffer) -> bool:
    is_batch = len(records) > _LOW_ATTRIBUTES_POSITION and records[MAGIC_POSITION] == 2
    return is_batch and records[_LOW_ATTRIBUTES_POSITION] & TRANSACTIONAL_FLAG != 0


def _check_version(records: Buffer | None, version: int) -> Buffer:
    """The records as one batch or b"", if the version allows them
    (ProduceRequest.validateRecords). Those before v3 are converted already."""
    if version < 3:
        if isinstance(records, _Refused):
            raise records.error
        return records or b""
    from kwire.replication.log.validation import single_batch

    single_batch(memoryview(records or b""))
    assert records is not None
    attributes = records[_LOW_ATTRIBUTES_POSITION] if len(records) > _LOW_ATTRIBUTES_POSITION else 0
    if attributes & COMPRESSION_MASK == _ZSTD and version < 7:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
            f"Produce requests with version {version} are not allowed to use ZStandard compression",
        )
    return records


class _Unverified(CheckedBatch):
    """In place of a batch that is not verified."""


class _Refused(bytes):
    """In place of a message set that could not be converted."""

    error: KafkaError


def _convert_and_append(ctx: RequestContext, request: ProduceRequest) -> Steps:
    """Convert the message sets (before v3) to batches in parts, then append all of them."""
    for topic in request.topic_data:
        for data in topic.partition_data:
            try:
                data.records = yield from _converted(ctx, topic.name, data.index, data.records)
            except KafkaError as error:
                data.records = _Refused()
                data.records.error = error
    yield from _check_and_append(ctx, request)


def _converted(
    ctx: RequestContext, topic: str, index: int, records: Buffer | None
) -> Generator[int, None, Buffer]:
    """A message set as one batch; as in Kafka a batch is accepted, too."""
    if records is None or len(records) == 0:
        return b""
    if len(records) > MAGIC_POSITION and records[MAGIC_POSITION] == 2:
        return records
    hosted = ctx.services.replica_manager.hosted((topic, index))
    if hosted is None:
        # It cannot be appended; but Kafka detects a set that ends nowhere before that.
        from kwire.protocol.message_set import iter_entries

        for count, _ in enumerate(iter_entries(records)):
            if not count % 100:
                yield 200
        return records
    from kwire.protocol.conversion import upconvert

    config = hosted.log.config
    is_kept = config.compression_type in ("producer", "uncompressed")
    return (
        yield from upconvert(
            records,
            max_bytes=config.max_message_bytes,
            may_shrink=not is_kept,
        )
    )


def _add_error_details(
    ctx: RequestContext,
    response: ProduceResponse,
    answer: PartitionProduceResponse,
    topic: str | None,
    info: LogAppendInfo,
) -> None:
    """Add error details: messages from v8 on, the current leader from v10 on."""
    if ctx.api_version >= 8 and isinstance(info, RefusedAppend):
        answer.error_message = info.error_message
        answer.record_errors = [
            BatchIndexAndErrorMessage(batch_index=index, batch_index_error_message=message)
            for index, message in info.record_errors
        ]
    if ctx.api_version >= 10 and topic is not None:
        _hint_leader(ctx, response, answer, topic)


def _hint_leader(
    ctx: RequestContext, response: ProduceResponse, answer: PartitionProduceResponse, topic: str
) -> None:
    """Add the current leader, so that the client needs no Metadata request (KIP-951)."""
    if answer.error_code != ErrorCode.NOT_LEADER_OR_FOLLOWER:
        return
    services = ctx.services
    leader_id, leader_epoch = services.replica_manager.current_leader(topic, answer.index)
    answer.current_leader = LeaderIdAndEpoch(leader_id=leader_id, leader_epoch=leader_epoch)
    endpoint = services.metadata.endpoint(leader_id, ctx.session.listener_name)
    if endpoint is not None and all(n.node_id != leader_id for n in response.node_endpoints):
        rack = services.metadata.brokers[leader_id].rack
        response.node_endpoints.append(
            NodeEndpoint(node_id=leader_id, host=endpoint.host, port=endpoint.port, rack=rack)
        )


def _end_without_response(ctx: RequestContext, response: ProduceResponse) -> None:
    """End a request with acks=0; as in Kafka an error closes the connection."""
    failures = ", ".join(
        f"{topic.name}-{answer.index}: {ErrorCode(answer.error_code).name}"
        for topic in response.responses
        for answer in topic.partition_responses
        if answer.error_code
    )
    if failures:
        ctx.close("a Produce request with acks=0 failed: " + failures)
    ctx.end_without_response()


def _await_followers(
    ctx: RequestContext,
    timeout_ms: int,
    response: ProduceResponse,
    pending: list[tuple[TopicPartition, LogAppendInfo, PartitionProduceResponse]],
) -> None:
    def replicated() -> None:
        for (topic, _), info, answer in pending:
            answer.error_code = info.error
            if info.error is not _NONE and ctx.api_version >= 10:
                _hint_leader(ctx, response, answer, topic)
        ctx.reply(response)

    operation = ctx.services.replica_manager.await_replication(
        [(key, info) for key, info, _ in pending], timeout_ms, replicated
    )
    if not operation.completed:
        ctx.on_disconnect = operation.cancel
