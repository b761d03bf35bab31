"""Checks of the requests about producer ids and transactions."""

from __future__ import annotations

from kwire.apis.access.checks import add_to, let, refuse, refused_parts, split
from kwire.apis.transactions import FROM_BROKERS
from kwire.protocol.errors import ErrorCode
from kwire.replication.core.acls import CLUSTER_NAME
from kwire.replication.core.metadata import INTERNAL_TOPICS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from kwire.apis import Handler
    from kwire.apis.access.authority import Authority
    from kwire.apis.access.table import Row
    from kwire.apis.context import RequestContext
    from kwire.protocol.language.schema import Message


def init_producer_id(
    authority: Authority, ctx: RequestContext, request: Any, handler: Handler, row: Row
) -> None:
    transaction, idempotent, some_topic = row.needs
    if request.transactional_id is not None:
        need, is_allowed = transaction, authority.may(ctx, transaction, request.transactional_id)
    else:
        need = idempotent
        is_allowed = authority.may(ctx, idempotent) or authority.may_some(ctx, some_topic)
    if is_allowed:
        handler(ctx, request)
    else:
        refuse(ctx, request, need)


def add_partitions(
    authority: Authority, ctx: RequestContext, request: Any, handler: Handler, row: Row
) -> None:
    cluster, transaction, topic = row.needs
    if ctx.api_version >= FROM_BROKERS:
        if authority.may(ctx, cluster):
            handler(ctx, request)
        else:
            refuse(ctx, request, cluster)
        return
    if not authority.may(ctx, transaction, request.v3_and_below_transactional_id):
        refuse(ctx, request, transaction)
        return
    _, others = split(authority, ctx, topic, request.v3_and_below_topics)
    if others:
        _refuse_topics(ctx, request, {each.name for each in others})
    else:
        handler(ctx, request)


def _refuse_topics(ctx: RequestContext, request: Any, refused: set[str]) -> None:
    """As in Kafka one refused partition keeps all of them from being added."""
    from kwire.protocol.schemas.transactions import (
        AddPartitionsToTxnPartitionResult,
        AddPartitionsToTxnResponse,
        AddPartitionsToTxnTopicResult,
    )

    known = ctx.services.metadata

    def code(name: str, index: int) -> int:
        if name in refused or name in INTERNAL_TOPICS:
            return int(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        if known.partition(name, index) is None:
            return int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return int(ErrorCode.OPERATION_NOT_ATTEMPTED)

    ctx.reply(
        AddPartitionsToTxnResponse(
            results_by_topic_v3_and_below=[
                AddPartitionsToTxnTopicResult(
                    name=topic.name,
                    results_by_partition=[
                        AddPartitionsToTxnPartitionResult(
                            partition_index=index, partition_error_code=code(topic.name, index)
                        )
                        for index in topic.partitions
                    ],
                )
                for topic in request.v3_and_below_topics
            ]
        )
    )


def add_offsets(
    authority: Authority, ctx: RequestContext, request: Any, handler: Handler, row: Row
) -> None:
    transaction, group = row.needs
    if not authority.may(ctx, transaction, request.transactional_id):
        refuse(ctx, request, transaction)
    elif not authority.may(ctx, group, request.group_id):
        refuse(ctx, request, group)
    else:
        handler(ctx, request)


def write_markers(
    authority: Authority, ctx: RequestContext, request: Any, handler: Handler, row: Row
) -> None:
    if any(authority.may(ctx, need, CLUSTER_NAME) for need in row.needs):
        handler(ctx, request)
    else:
        refuse(ctx, request, row.needs[1])


def txn_offset_commit(
    authority: Authority, ctx: RequestContext, request: Any, handler: Handler, row: Row
) -> None:
    transaction, group, topic = row.needs
    if not authority.may(ctx, transaction, request.transactional_id):
        refuse(ctx, request, transaction)
        return
    if not authority.may(ctx, group, request.group_id):
        refuse(ctx, request, group)
        return
    request.topics, others = split(authority, ctx, topic, request.topics)
    refusals = refused_parts(ctx, others, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    let(ctx, request, handler, add_to("topics", refusals))


def describe_transactions(
    authority: Authority, ctx: RequestContext, request: Any, handler: Handler, row: Row
) -> None:
    transaction, topic = row.needs
    request.transactional_ids, others = split(
        authority, ctx, transaction, request.transactional_ids, lambda each: each
    )
    code = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED

    def amend(response: Any) -> Message:
        for state in response.transaction_states:
            state.topics, _ = split(authority, ctx, topic, state.topics, lambda each: each.topic)
        response.transaction_states += refused_parts(ctx, others, code)
        return response  # type: ignore[no-any-return]

    let(ctx, request, handler, amend)


def list_transactions(
    authority: Authority, ctx: RequestContext, request: Any, handler: Handler, row: Row
) -> None:
    def amend(response: Any) -> Message:
        response.transaction_states, _ = split(
            authority,
            ctx,
            row.needs[0],
            response.transaction_states,
            lambda each: each.transactional_id,
        )
        return response  # type: ignore[no-any-return]

    let(ctx, request, handler, amend)
