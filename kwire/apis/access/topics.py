"""Checks of the requests about topics and their records."""

from __future__ import annotations

from kwire.apis.access.checks import (
    MESSAGES,
    Amended,
    add_to,
    let,
    of_each,
    once,
    refuse,
    refused_parts,
    split,
)
from kwire.protocol.errors import ErrorCode
from kwire.protocol.language.primitives import ZERO_UUID
from kwire.protocol.records import ATTRIBUTES_POSITION, MAGIC_POSITION, TRANSACTIONAL_FLAG
from kwire.replication.core.acls import CLUSTER, TOPIC
from kwire.replication.core.metadata import INTERNAL_TOPICS
from kwire.replication.core.topic_names import topic_name_problem

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from kwire.apis import Handler
    from kwire.apis.access.authority import Authority
    from kwire.apis.access.table import Row
    from kwire.apis.context import RequestContext
    from kwire.protocol.language.schema import Message

_UNAUTHORIZED = ErrorCode.TOPIC_AUTHORIZATION_FAILED
_REFUSED = int(_UNAUTHORIZED)
_PRODUCE_BY_ID, _METADATA_BY_ID = 13, 12


def produce(
    authority: Authority, ctx: RequestContext, request: Any, handler: Handler, row: Row
) -> None:
    transaction, topic = row.needs
    transactional_id = request.transactional_id
    if (
        transactional_id is not None
        and not authority.may(ctx, transaction, transactional_id)
        and _has_transactional(request)
    ):
        refuse(ctx, request, transaction)
        return
    metadata = ctx.services.metadata
    allowed: list[Any] = []
    refusals: list[Any] = []
    for each in request.topic_data:
        is_by_id = ctx.api_version >= _PRODUCE_BY_ID
        name = metadata.topic_name(each.topic_id) if is_by_id else each.name
        if name is None:  # here, as it may be known when the handler looks for it
            refusals += refused_parts(ctx, [each], ErrorCode.UNKNOWN_TOPIC_ID)
        elif authority.may(ctx, topic, name):
            allowed.append(each)
        else:
            refusals += refused_parts(ctx, [each], _UNAUTHORIZED)
    if not refusals:
        handler(ctx, request)
        return
    request.topic_data = allowed
    if request.acks:
        let(ctx, request, handler, add_to("responses", refusals))
        return
    handler(_Unanswered(ctx, _same), request)
    # After the handler, which may append what it has later: the requests that are at work go on.
    ctx.close("a Produce request with acks=0 failed: TOPIC_AUTHORIZATION_FAILED")


class _Unanswered(Amended):
    """Of a Produce without an answer, whose connection ends as a topic of it is refused."""

    __slots__ = ()

    def end_without_response(self) -> None:
        self._answered()

    def close(self, reason: str) -> None:
        """The connection is closed at once, in any case."""


def _same(response: Any) -> Message:
    return response  # type: ignore[no-any-return]


def _has_transactional(request: Any) -> bool:
    """RequestUtils.hasTransactionalRecords."""
    position = ATTRIBUTES_POSITION + 1
    return any(
        records is not None
        and len(records) > position
        and records[MAGIC_POSITION] == 2
        and records[position] & TRANSACTIONAL_FLAG
        for topic in request.topic_data
        for records in (data.records for data in topic.partition_data)
    )


def metadata(
    authority: Authority, ctx: RequestContext, request: Any, handler: Handler, row: Row
) -> None:
    describe, _, _, describe_cluster = row.needs
    version, asked = ctx.api_version, request.topics
    if version < _METADATA_BY_ID and any(
        topic.name is None or topic.topic_id != ZERO_UUID for topic in asked or ()
    ):
        request.allow_auto_topic_creation = False
        handler(ctx, request)  # which refuses it
        return
    is_all = asked is None or (version == 0 and not asked)
    refusals = [] if is_all else _refuse_named(authority, ctx, request, row)

    def amend(response: Any) -> Message:
        if response.error_code:
            return response  # type: ignore[no-any-return]
        if is_all:
            response.topics, _ = split(authority, ctx, describe, response.topics)
        if version >= 8 and request.include_topic_authorized_operations:
            for topic in response.topics:
                if topic.name is not None:  # none of these is shared with another answer
                    operations = authority.operations(ctx, TOPIC, topic.name)
                    topic.topic_authorized_operations = operations
        if 8 <= version <= 10 and request.include_cluster_authorized_operations:
            known = authority.may(ctx, describe_cluster)
            operations = authority.operations(ctx, CLUSTER) if known else 0
            response.cluster_authorized_operations = operations
        response.topics += refusals
        return response  # type: ignore[no-any-return]

    inner = Amended(ctx, amend)
    if not is_all and not request.topics:
        inner.api_version = max(version, 1)  # in version 0 no topics are all topics
    handler(inner, request)


def _refuse_named(authority: Authority, ctx: RequestContext, request: Any, row: Row) -> list[Any]:
    """Take the topics out of a Metadata request that the client may not see, or create; the answers for them."""
    from kwire.protocol.schemas.metadata import MetadataResponseTopic

    describe, create_any, create, _ = row.needs
    known = ctx.services.metadata
    creates = (
        request.allow_auto_topic_creation or ctx.api_version < 4
    ) and ctx.services.config.auto_create_topics_enable
    allowed: list[Any] = []
    refusals: dict[object, Any] = {}
    for topic in request.topics:
        by_id = topic.topic_id != ZERO_UUID
        name = known.topic_name(topic.topic_id) if by_id else topic.name
        if name is None:
            allowed.append(topic)  # it is not known
        elif not authority.may(ctx, describe, name):
            refusals[by_id, name] = MetadataResponseTopic(
                error_code=_REFUSED, name=None if by_id else name, topic_id=topic.topic_id
            )
        elif (
            creates
            and not known.contains(name)
            and not (authority.may(ctx, create_any) or authority.may(ctx, create, name))
        ):
            refusals[by_id, name] = MetadataResponseTopic(
                error_code=_REFUSED, name=name, is_internal=name in INTERNAL_TOPICS
            )
        else:
            allowed.append(topic)
    request.topics = allowed
    return list(refusals.values())


def create_topics(
    authority: Authority, ctx: RequestContext, request: Any, handler: Handler, row: Row
) -> None:
    create_any, create, describe_configs = row.needs
    refusals: list[Any] = []
    if not authority.may(ctx, create_any):
        request.topics, others = split(authority, ctx, create, request.topics, once(request.topics))
        refusals = refused_parts(ctx, others, _UNAUTHORIZED, "Authorization failed.")

    def amend(response: Any) -> Message:
        for topic in response.topics:
            if not topic.error_code and not authority.may(ctx, describe_configs, topic.name):
                topic.topic_config_error_code = _REFUSED
                topic.num_partitions = topic.replication_factor = -1
                topic.configs = []
        response.topics += refusals
        return response  # type: ignore[no-any-return]

    let(ctx, request, handler, amend)


def offset_for_leader_epoch(
    authority: Authority, ctx: RequestContext, request: Any, handler: Handler, row: Row
) -> None:
    cluster, describe = row.needs
    if authority.may(ctx, cluster):
        handler(ctx, request)
        return
    request.topics, others = split(
        authority, ctx, describe, request.topics, lambda topic: topic.topic
    )
    let(ctx, request, handler, add_to("topics", refused_parts(ctx, others, _UNAUTHORIZED)))


def _valid_name(topic: Any) -> str | None:
    return topic.name if topic_name_problem(topic.name) is None else None


describe_producers = of_each("topics", "topics", _valid_name, message=MESSAGES[TOPIC])


def describe_topic_partitions(
    authority: Authority, ctx: RequestContext, request: Any, handler: Handler, row: Row
) -> None:
    """Pages are of the topics that the client may see; the cursor may be at one that it may not see any more."""
    from kwire.protocol.schemas.metadata import (
        Cursor,
        DescribeTopicPartitionsResponse,
        DescribeTopicPartitionsResponseTopic,
        TopicRequest,
    )

    cursor, refusals = request.cursor, []
    named = sorted({topic.name for topic in request.topics})
    if named and cursor is not None and cursor.topic_name not in named:
        handler(ctx, request)  # which refuses it
        return
    asked = named or sorted(ctx.services.metadata.topics)
    if cursor is not None and cursor.partition_index >= 0:
        asked = [name for name in asked if name >= cursor.topic_name]
    allowed, others = split(authority, ctx, row.needs[0], asked, lambda name: name)
    if named:
        refusals = [
            DescribeTopicPartitionsResponseTopic(error_code=_REFUSED, name=name) for name in others
        ]

    def amend(response: Any) -> Message:
        for topic in response.topics:
            operations = authority.operations(ctx, TOPIC, topic.name)
            topic.topic_authorized_operations = operations
        response.topics += refusals
        return response  # type: ignore[no-any-return]

    if not allowed:
        ctx.reply(DescribeTopicPartitionsResponse(topics=refusals))
        return
    request.topics = [TopicRequest(name=name) for name in allowed]
    if cursor is not None and cursor.partition_index >= 0 and cursor.topic_name not in allowed:
        request.cursor = Cursor(topic_name=allowed[0], partition_index=0)
    let(ctx, request, handler, amend)
