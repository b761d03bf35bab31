"""Producer ids and transactions: InitProducerId (22), AddPartitionsToTxn (24), AddOffsetsToTxn (25),
EndTxn (26), DescribeTransactions (65), ListTransactions (66).

InitProducerId: v2 flexible · v3 id and epoch of a recovering producer (KIP-360) · v4 PRODUCER_FENCED.
AddPartitionsToTxn: v2 PRODUCER_FENCED · v3 flexible · v4 batches of brokers, which may only verify
(KIP-890) · v5 TRANSACTION_ABORTABLE. EndTxn: v5 the producer's next epoch (KIP-890). ListTransactions:
v1 duration · v2 pattern.

Answers to the transactional part of kafka.server.KafkaApis; the rules are in kwire.transactions.
Fencing is PRODUCER_FENCED, which clients before KIP-588 know as INVALID_PRODUCER_EPOCH.
"""

from __future__ import annotations

from typing import Final

from kwire.apis.context import BUMPS_EPOCH, transaction_version
from kwire.protocol.errors import ErrorCode, KafkaError
from kwire.protocol.schemas.transactions import (
    AddOffsetsToTxnResponse,
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
    DescribeTransactionsResponse,
    EndTxnResponse,
    InitProducerIdResponse,
    ListTransactionsResponse,
    ListTransactionsResponseTransactionState,
    TopicData,
    TransactionState,
)
from kwire.replication.core.metadata import GROUP_METADATA_TOPIC, INTERNAL_TOPICS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from kwire.apis.context import RequestContext, Services
    from kwire.protocol.schemas.transactions import (
        AddOffsetsToTxnRequest,
        AddPartitionsToTxnRequest,
        DescribeTransactionsRequest,
        EndTxnRequest,
        InitProducerIdRequest,
        ListTransactionsRequest,
    )
    from kwire.replication.core.types import TopicPartition
    from kwire.replication.core.work import Steps
    from kwire.transactions.coordinator import TransactionCoordinator
    from kwire.transactions.metadata import TransactionMetadata

FROM_BROKERS: Final = 4
"""Version of AddPartitionsToTxn from which it has several transactions."""
# Versions from which clients know PRODUCER_FENCED.
_INIT_KNOWS_FENCED: Final = 4
_OTHERS_KNOW_FENCED: Final = 2


def _known(error: ErrorCode, is_known: bool) -> ErrorCode:
    """The error for a client that may not know PRODUCER_FENCED."""
    if error is ErrorCode.PRODUCER_FENCED and not is_known:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return error


def make_coordinator(services: Services) -> TransactionCoordinator:
    """The transaction coordinator of a broker; it sends its markers to all brokers."""
    from kwire.apis.txn_participants import marker_sender
    from kwire.transactions.coordinator import TransactionCoordinator

    return TransactionCoordinator(
        services.config,
        services.clock,
        services.timers,
        services.metadata,
        services.replica_manager,
        services.work,
        marker_sender(services),
        services.producer_ids.generate,
        transaction_version(services.api_ranges),
    )


# --- InitProducerId


def handle_init_producer_id(ctx: RequestContext, request: InitProducerIdRequest) -> None:
    """Allocate a new producer id with epoch 0; with a transactional id its own id and next epoch."""
    services = ctx.services

    def reply(answer: tuple[ErrorCode, int, int]) -> None:
        error, producer_id, producer_epoch = answer
        error = _known(error, ctx.api_version >= _INIT_KNOWS_FENCED)
        response = InitProducerIdResponse(
            error_code=error, producer_id=producer_id, producer_epoch=producer_epoch
        )
        if error is ErrorCode.NONE:
            services.producer_ids.when_durable(lambda: ctx.reply(response))
        else:
            ctx.reply(response)

    transactional_id = request.transactional_id
    expected = request.producer_id, request.producer_epoch
    if (request.producer_id == -1) != (request.producer_epoch == -1):
        reply((ErrorCode.INVALID_REQUEST, -1, -1))
    elif transactional_id is None:
        # As in Kafka a producer that has an id gets a new one, too.
        try:
            reply((ErrorCode.NONE, services.producer_ids.generate(), 0))
        except KafkaError as refusal:
            reply((refusal.code, -1, -1))
    else:
        services.transactions.init_producer_id(
            transactional_id,
            request.transaction_timeout_ms,
            None if request.producer_id == -1 else expected,
            reply,
        )


# --- AddPartitionsToTxn and AddOffsetsToTxn


def handle_add_partitions_to_txn(ctx: RequestContext, request: AddPartitionsToTxnRequest) -> None:
    """Add partitions to transactions, or verify them; answered when all transactions are."""
    version = ctx.api_version
    if version >= FROM_BROKERS:
        transactions = request.transactions
    else:
        transactions = [
            AddPartitionsToTxnTransaction(
                transactional_id=request.v3_and_below_transactional_id,
                producer_id=request.v3_and_below_producer_id,
                producer_epoch=request.v3_and_below_producer_epoch,
                topics=request.v3_and_below_topics,
            )
        ]
    results: list[AddPartitionsToTxnResult] = []

    def add(transactional_id: str, errors: dict[TopicPartition, ErrorCode]) -> None:
        topics = _by_topic(errors, version)
        results.append(
            AddPartitionsToTxnResult(transactional_id=transactional_id, topic_results=topics)
        )
        if len(results) < len(transactions):
            return
        if version >= FROM_BROKERS:
            ctx.reply(AddPartitionsToTxnResponse(results_by_transaction=results))
        else:
            ctx.reply(AddPartitionsToTxnResponse(results_by_topic_v3_and_below=topics))

    if not transactions:
        ctx.reply(AddPartitionsToTxnResponse())
    for transaction in transactions:
        _add_partitions(ctx, transaction, add)


def _by_topic(
    errors: dict[TopicPartition, ErrorCode], version: int
) -> list[AddPartitionsToTxnTopicResult]:
    by_topic: dict[str, list[AddPartitionsToTxnPartitionResult]] = {}
    for (topic, index), error in errors.items():
        code = _known(error, version >= _OTHERS_KNOW_FENCED)
        by_topic.setdefault(topic, []).append(
            AddPartitionsToTxnPartitionResult(partition_index=index, partition_error_code=code)
        )
    return [
        AddPartitionsToTxnTopicResult(name=name, results_by_partition=partitions)
        for name, partitions in by_topic.items()
    ]


def _add_partitions(
    ctx: RequestContext,
    transaction: AddPartitionsToTxnTransaction,
    add: Callable[[str, dict[TopicPartition, ErrorCode]], None],
) -> None:
    coordinator, transactional_id = ctx.services.transactions, transaction.transactional_id
    partitions = [(topic.name, index) for topic in transaction.topics for index in topic.partitions]
    refused = _refused(ctx, partitions)
    if refused:
        # As in Kafka one refused partition keeps all of the transaction's from being added.
        not_attempted = ErrorCode.OPERATION_NOT_ATTEMPTED
        add(transactional_id, {each: refused.get(each, not_attempted) for each in partitions})
    elif transaction.verify_only:
        errors = coordinator.verify_partitions(
            transactional_id, transaction.producer_id, transaction.producer_epoch, partitions
        )
        add(transactional_id, errors)
    else:
        coordinator.add_partitions(
            transactional_id,
            transaction.producer_id,
            transaction.producer_epoch,
            partitions,
            2 if ctx.api_version >= FROM_BROKERS else 0,
            lambda error: add(transactional_id, dict.fromkeys(partitions, error)),
        )


def _refused(
    ctx: RequestContext, partitions: list[TopicPartition]
) -> dict[TopicPartition, ErrorCode]:
    """The partitions that do not exist, or that a client may not write to."""
    metadata = ctx.services.metadata
    refused = {}
    for partition in partitions:
        if ctx.api_version < FROM_BROKERS and partition[0] in INTERNAL_TOPICS:
            refused[partition] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        elif metadata.partition(*partition) is None:
            refused[partition] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return refused


def handle_add_offsets_to_txn(ctx: RequestContext, request: AddOffsetsToTxnRequest) -> None:
    """Add the partition of `__consumer_offsets` that keeps the group's offsets."""
    index = ctx.services.group_coordinator.partition_for(request.group_id)

    def reply(error: ErrorCode) -> None:
        code = _known(error, ctx.api_version >= _OTHERS_KNOW_FENCED)
        ctx.reply(AddOffsetsToTxnResponse(error_code=code))

    ctx.services.transactions.add_partitions(
        request.transactional_id,
        request.producer_id,
        request.producer_epoch,
        [(GROUP_METADATA_TOPIC, index)],
        0,
        reply,
    )


# --- EndTxn


def handle_end_txn(ctx: RequestContext, request: EndTxnRequest) -> None:
    """Commit or abort; answered when the decision is in the log, before the markers are written."""

    def reply(answer: tuple[ErrorCode, int, int]) -> None:
        error, producer_id, producer_epoch = answer
        response = EndTxnResponse(
            error_code=_known(error, ctx.api_version >= _OTHERS_KNOW_FENCED),
            producer_id=producer_id,
            producer_epoch=producer_epoch,
        )
        if error is ErrorCode.NONE:
            ctx.services.producer_ids.when_durable(lambda: ctx.reply(response))
        else:
            ctx.reply(response)

    ctx.services.transactions.end_transaction(
        request.transactional_id,
        request.producer_id,
        request.producer_epoch,
        request.committed,
        2 if ctx.api_version >= BUMPS_EPOCH else 0,
        reply,
    )


# --- DescribeTransactions and ListTransactions


def handle_describe_transactions(ctx: RequestContext, request: DescribeTransactionsRequest) -> None:
    states = [_described(ctx, each) for each in request.transactional_ids]
    ctx.reply(DescribeTransactionsResponse(transaction_states=states))


def _described(ctx: RequestContext, transactional_id: str) -> TransactionState:
    described = TransactionState(transactional_id=transactional_id)
    try:
        metadata = ctx.services.transactions.describe(transactional_id)
    except KafkaError as error:
        described.error_code = error.code
        return described
    values = metadata.values
    topics: dict[str, list[int]] = {}
    for topic, index in metadata.held_partitions:
        topics.setdefault(topic, []).append(index)
    described.transaction_state = values.state.name
    described.transaction_timeout_ms = values.timeout_ms
    described.transaction_start_time_ms = values.start_ms
    described.producer_id = values.producer_id
    described.producer_epoch = values.producer_epoch
    described.topics = [TopicData(topic=name, partitions=ids) for name, ids in topics.items()]
    return described


def handle_list_transactions(ctx: RequestContext, request: ListTransactionsRequest) -> None:
    """List the transactional ids that this broker coordinates: clients query every broker."""
    ctx.run_in_parts(_list_transactions(ctx, request))


def _list_transactions(ctx: RequestContext, request: ListTransactionsRequest) -> Steps:
    from kwire.transactions import metadata

    known = {state.name for state in metadata.TransactionState}
    unknown = [name for name in request.state_filters if name not in known]
    listed: list[ListTransactionsResponseTransactionState] = []
    try:
        wanted = _filter(ctx, request)
        for some in ctx.services.transactions.all_transactions():
            listed += [
                ListTransactionsResponseTransactionState(
                    transactional_id=each.transactional_id,
                    producer_id=each.values.producer_id,
                    transaction_state=each.state.name,
                )
                for each in some
                if wanted(each)
            ]
            yield 5 + 3 * len(some)
    except KafkaError as error:
        ctx.reply(ListTransactionsResponse(error_code=error.code))
        return
    response = ListTransactionsResponse(unknown_state_filters=unknown, transaction_states=listed)
    ctx.reply_in_parts(response, listed)


def _filter(
    ctx: RequestContext, request: ListTransactionsRequest
) -> Callable[[TransactionMetadata], bool]:
    """The transactions that are asked for. KafkaError(INVALID_REGULAR_EXPRESSION)."""
    states, producer_ids = set(request.state_filters), set(request.producer_id_filters)
    duration_ms, now_ms = request.duration_filter, ctx.services.clock.wall_ms
    pattern = None
    if request.transactional_id_pattern:
        from kwire.apis.parts.patterns import compile_pattern

        pattern = compile_pattern(request.transactional_id_pattern)

    def is_wanted(transaction: TransactionMetadata) -> bool:
        values = transaction.values
        return (
            (not producer_ids or values.producer_id in producer_ids)
            and (not states or values.state.name in states)
            and (duration_ms < 0 or now_ms - values.start_ms > duration_ms)
            and (pattern is None or pattern.fullmatch(transaction.transactional_id) is not None)
        )

    return is_wanted
