"""The parts of a transaction beside its coordinator: WriteTxnMarkers (27), TxnOffsetCommit (28).

WriteTxnMarkers: v1 flexible · v2 transaction version (KIP-890). `kafka-transactions.sh abort` sends it
to end a transaction whose coordinator has forgotten it (KIP-664). As in Kafka without an authorizer,
any client may. TxnOffsetCommit: v2 leader epochs · v3 member and generation (KIP-447), flexible · v4
TRANSACTION_ABORTABLE · v5 adds the group to the transaction (KIP-890).

Answers to the handlers of the same names in kafka.server.KafkaApis.
"""

from __future__ import annotations

from typing import Final

from kwire.coordinator.transactional_offsets import TransactionalOffsets
from kwire.protocol.errors import ErrorCode
from kwire.transactions.marker_writer import MarkerWriter

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from kwire.apis.context import RequestContext, Services
    from kwire.protocol.schemas.transactions import (
        TxnOffsetCommitRequest,
        TxnOffsetCommitRequestTopic,
        TxnOffsetCommitResponse,
        WriteTxnMarkersRequest,
    )
    from kwire.replication.core.types import TopicPartition
    from kwire.transactions.markers import MarkerSender
    from kwire.transactions.verification import Verifier

KAFKA_39_VERSION: Final = 1  # of WriteTxnMarkers, in a cluster with brokers of Kafka
# Versions of TxnOffsetCommit.
KNOWS_LOADING_VERSION: Final = 2
KNOWS_ABORTABLE_VERSION: Final = 4
ADDS_GROUP_VERSION: Final = 5


def marker_writer(services: Services) -> MarkerWriter:
    """The writer of markers into the partitions that this broker leads."""
    return MarkerWriter(
        services.replica_manager,
        TransactionalOffsets(services.group_coordinator),
        services.clock,
        services.config.request_timeout_ms,
    )


def marker_sender(services: Services) -> MarkerSender:
    """The sender of the markers that this broker's transaction coordinator decides on."""
    from kwire.transactions.markers import NEWEST_VERSION, MarkerSender

    member = services.member
    is_foreign = member is not None and member.link.is_foreign
    return MarkerSender(
        services.node_id,
        services.metadata,
        services.clock,
        services.timers,
        None if member is None else member.peers,
        marker_writer(services).write,
        timeout_ms=services.config.request_timeout_ms,
        version=KAFKA_39_VERSION if is_foreign else NEWEST_VERSION,
    )


def make_verifier(services: Services) -> Verifier:
    """The verifier of the transactions that write into this broker's partitions."""
    from kwire.transactions.verification import Verifier

    member, config = services.member, services.config
    return Verifier(
        services.node_id,
        services.metadata,
        services.clock,
        services.timers,
        None if member is None else member.peers,
        services.transactions,
        timeout_ms=config.request_timeout_ms,
        retry_ms=config.add_partitions_to_txn_retry_backoff_ms,
        retry_timeout_ms=config.add_partitions_to_txn_retry_backoff_max_ms,
        speaks_to_kafka_39=member is not None and member.link.is_foreign,
    )


def handle_write_txn_markers(ctx: RequestContext, request: WriteTxnMarkersRequest) -> None:
    """Append the markers; the response has an error per producer id and partition."""
    marker_writer(ctx.services).write(request, ctx.reply)


def handle_txn_offset_commit(ctx: RequestContext, request: TxnOffsetCommitRequest) -> None:
    """Commit offsets within a transaction; partitions that do not exist get an error each."""
    from kwire.transactions.guards import Guards

    services, version, topics = ctx.services, ctx.api_version, request.topics
    errors: dict[TopicPartition, int] = {}
    request.topics = _existing(services, topics, errors)

    def failed(error: ErrorCode) -> None:
        if error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS and version < KNOWS_LOADING_VERSION:
            error = (
                ErrorCode.COORDINATOR_NOT_AVAILABLE
            )  # on the other they could crash (KAFKA-7296)
        for topic in request.topics:
            for partition in topic.partitions:
                errors[topic.name, partition.partition_index] = int(error)
        ctx.reply(_txn_commit_response(topics, errors))

    def committed(response: TxnOffsetCommitResponse) -> None:
        for topic in response.topics:
            for partition in topic.partitions:
                errors[topic.name, partition.partition_index] = partition.error_code
        ctx.reply(_txn_commit_response(topics, errors))

    if not request.topics:
        ctx.reply(_txn_commit_response(topics, errors))
        return
    get_guards = None
    if services.config.transaction_partition_verification_enable:
        get_guards = Guards(
            services.verifier,
            services.replica_manager,
            request.transactional_id,
            adds=version >= ADDS_GROUP_VERSION,
            knows_abortable=version >= KNOWS_ABORTABLE_VERSION,
        ).get
    groups = TransactionalOffsets(services.group_coordinator)
    groups.commit(request, get_guards, committed, failed)


def _existing(
    services: Services,
    topics: Iterable[TxnOffsetCommitRequestTopic],
    errors: dict[TopicPartition, int],
) -> list[TxnOffsetCommitRequestTopic]:
    """The existing partitions of `topics`; sets `errors` of all."""
    existing = []
    for topic in topics:
        known = []
        for partition in topic.partitions:
            index = partition.partition_index
            errors[topic.name, index] = int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            if services.metadata.partition(topic.name, index) is not None:
                known.append(partition)
        if known:
            existing.append(type(topic)(name=topic.name, partitions=known))
    return existing


def _txn_commit_response(
    topics: Iterable[TxnOffsetCommitRequestTopic], errors: dict[TopicPartition, int]
) -> TxnOffsetCommitResponse:
    """The response for the partitions of a request, each with its error.

    A topic that the request names twice comes twice, but, as in Kafka, once if a partition is unknown."""
    from kwire.apis.group_offsets import with_errors
    from kwire.protocol.schemas.transactions import (
        TxnOffsetCommitResponse,
        TxnOffsetCommitResponsePartition,
        TxnOffsetCommitResponseTopic,
    )

    answered: list[TxnOffsetCommitResponseTopic] = with_errors(
        topics, errors, TxnOffsetCommitResponseTopic, TxnOffsetCommitResponsePartition
    )
    if int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION) in errors.values():
        by_name: dict[str, TxnOffsetCommitResponseTopic] = {}
        for topic in answered:
            if by_name.setdefault(topic.name, topic) is not topic:
                by_name[topic.name].partitions += topic.partitions
        answered = list(by_name.values())
    return TxnOffsetCommitResponse(topics=answered)
