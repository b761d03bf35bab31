"""Metadata (3): brokers, topics and partition leaders.

Answers to KafkaApis.handleTopicMetadataRequest and MetadataCache.getTopicMetadata. Versions: v0 an
empty list means all topics; v1 rack, controller, internal topics; v2 cluster id; v4 the client may
forbid creation; v5 offline replicas; v6 LISTENER_NOT_FOUND; v7 leader epochs; v8-10 authorized
operations; v10 topic ids in answers; v12 in requests (KIP-516); v13 top-level error.

The listener of the connection decides hosts and ports. The response has the leader of an
auto-created topic immediately, where Kafka returns UNKNOWN_TOPIC_OR_PARTITION until metadata has
propagated; with `kwire.topic.creation.waits=false` the first response does, too. Without an
authorizer "authorized operations" are all operations of the resource.
"""

from __future__ import annotations

from kwire.protocol.errors import ErrorCode, KafkaError
from kwire.protocol.language.primitives import ZERO_UUID
from kwire.protocol.schemas.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from kwire.replication.config.broker_config import CREATION_WAITS_KEY
from kwire.replication.core.metadata import INTERNAL_TOPICS
from kwire.replication.core.topic_names import topic_name_problem
from kwire.replication.core.types import NO_LEADER

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from kwire.apis.context import RequestContext
    from kwire.protocol.schemas.control_plane import UpdateMetadataPartitionState
    from kwire.replication.core.metadata import MetadataCache, TopicMetadata
    from kwire.replication.core.work import Steps

# Bits of org.apache.kafka.common.acl.AclOperation that a topic and a cluster have.
TOPIC_OPERATIONS = 3576
CLUSTER_OPERATIONS = 8096

_TOPICS_A_STEP = 100
_ENCODED_AT_ONCE = 500
_SETS = 256
_UNITS_A_TOPIC = 5
_UNITS_A_STEP = 500
_UNITS_CREATED = 800
"""Of a topic that was created: its directory and its log."""


def handle_metadata(ctx: RequestContext, request: MetadataRequest) -> None:
    """Metadata v0-13.

    Parked while the controller, on another node, creates requested topics; on a starting broker
    until the first UpdateMetadata; and briefly after the connection to a leader has ended."""
    ctx.session.client_id = ctx.client_id
    member = ctx.services.member
    if member is not None and not member.has_metadata:
        member.when_metadata_known(lambda: _reply_with_topics(ctx, request))
    elif member is not None and member.leader_doubts:
        member.leader_doubts.when_settled(lambda: _reply_with_topics(ctx, request))
    else:
        _reply_with_topics(ctx, request)


def _reply_with_topics(ctx: RequestContext, request: MetadataRequest) -> None:
    """Reply once the topics to auto-create exist."""
    ctx.run_in_parts(_steps(ctx, request))


def _steps(ctx: RequestContext, request: MetadataRequest) -> Steps:
    member = ctx.services.member
    if member is not None and (missing := (yield from _topics_to_create(ctx, request))):
        from kwire.apis.forwarding import sender_of

        create = member.topic_creation.create
        sender = ctx.client_id, ctx.session.peer_host, sender_of(ctx)
        if ctx.services.config.own_flag(CREATION_WAITS_KEY):
            create(missing, lambda: ctx.run_in_parts(_metadata(ctx, request)), *sender)
        else:
            yield from _metadata(ctx, request)
            create(missing, _nothing, *sender)
    else:
        yield from _metadata(ctx, request)


def _nothing() -> None:
    """Nothing waits for the topics."""


def _topics_to_create(
    ctx: RequestContext, request: MetadataRequest
) -> Generator[int, None, list[str]]:
    """The topics, requested by name, to auto-create."""
    missing: list[str] = []
    if not _may_create(ctx, request):
        return missing
    known = ctx.services.metadata.topics
    for count, topic in enumerate(request.topics or (), 1):
        name = topic.name
        if (
            name is not None
            and name not in known
            and topic.topic_id == ZERO_UUID
            and topic_name_problem(name) is None
        ):
            missing.append(name)
        if not count % _TOPICS_A_STEP:
            yield _TOPICS_A_STEP
    return missing


def _may_create(ctx: RequestContext, request: MetadataRequest) -> bool:
    """Whether both the client's flag and auto.create.topics.enable allow it."""
    allowed = request.allow_auto_topic_creation or ctx.api_version < 4
    return allowed and ctx.services.config.auto_create_topics_enable


def _metadata(ctx: RequestContext, request: MetadataRequest) -> Steps:
    """Reply. Many topics are created, looked up and encoded in parts."""
    services = ctx.services
    version = ctx.api_version
    metadata = services.metadata
    topics: list[MetadataResponseTopic] = []
    elements = 0
    try:
        yield from _check_topics(request, version)
        known = len(metadata.topics)
        units = 0
        for topic in _topics(ctx, request):
            topics.append(topic)
            elements += 1 + len(topic.partitions)
            units += _UNITS_A_TOPIC + 2 * len(topic.partitions)
            if len(metadata.topics) != known:
                known = len(metadata.topics)
                units += _UNITS_CREATED
            if units > _UNITS_A_STEP:
                yield units
                units = 0
    except KafkaError as error:
        topics = [
            MetadataResponseTopic(error_code=int(error.code), name=topic.name or "")
            for topic in request.topics or []
        ]
        response = MetadataResponse(topics=topics, error_code=int(error.code))
    else:
        response = MetadataResponse(
            brokers=_brokers(metadata, ctx.session.listener_name),
            cluster_id=services.cluster_id,
            controller_id=live_controller(metadata),
            topics=topics,
        )
        if request.include_cluster_authorized_operations and 8 <= version <= 10:
            response.cluster_authorized_operations = CLUSTER_OPERATIONS
    if max(elements, len(topics)) > _ENCODED_AT_ONCE:
        ctx.reply_in_parts(response, topics, request.topics)
    else:
        ctx.reply(response)


def _check_topics(request: MetadataRequest, version: int) -> Steps:
    """Check that the version has what the request has. KafkaError(INVALID_REQUEST)."""
    for count, topic in enumerate((request.topics or ()) if version < 12 else (), 1):
        if topic.name is None:
            message = f"Topic name can not be null for version {version}"
            raise KafkaError(ErrorCode.INVALID_REQUEST, message)
        if topic.topic_id != ZERO_UUID:
            message = f"Topic IDs are not supported in requests for version {version}"
            raise KafkaError(ErrorCode.INVALID_REQUEST, message)
        if not count % _TOPICS_A_STEP:
            yield _TOPICS_A_STEP


def _brokers(metadata: MetadataCache, listener: str) -> list[MetadataResponseBroker]:
    brokers = []
    for broker in metadata.brokers.values():
        endpoint = broker.endpoints.get(listener)
        if endpoint is not None:
            brokers.append(
                MetadataResponseBroker(
                    node_id=broker.id, host=endpoint.host, port=endpoint.port, rack=broker.rack
                )
            )
    return brokers


def live_controller(metadata: MetadataCache) -> int:
    """The broker for admin requests: the controller, or any live broker, which forwards them."""
    if metadata.controller_id in metadata.brokers:
        return metadata.controller_id
    return next(iter(metadata.brokers), -1)


def _topics(ctx: RequestContext, request: MetadataRequest) -> Iterator[MetadataResponseTopic]:
    metadata = ctx.services.metadata
    version = ctx.api_version
    asked = request.topics
    if asked is None or (version == 0 and not asked):
        for known in list(metadata.topics.values()):
            yield _topic(ctx, request, known)
        return
    seen: list[set[object]] = [set() for _ in range(min(len(asked), _SETS))]
    for topic in asked:
        name, topic_id = topic.name, topic.topic_id
        key: object = name if topic_id == ZERO_UUID else (name, topic_id)
        # Many small sets: one of a million takes 0.1 s when it grows and when it is freed.
        near = seen[hash(key) % len(seen)]
        if key in near:
            continue
        near.add(key)
        if topic_id != ZERO_UUID:
            name = metadata.topic_name(topic_id)
            if name is None:
                code = int(ErrorCode.UNKNOWN_TOPIC_ID)
                yield MetadataResponseTopic(error_code=code, name=None, topic_id=topic_id)
                continue
        if name is None:
            message = "Neither topic name nor id were specified."
            raise KafkaError(ErrorCode.INVALID_REQUEST, message)
        found = metadata.topics.get(name)
        if found is None:
            error = _auto_create(ctx, request, name)
            found = metadata.topics.get(name)
            if found is None or not ctx.services.config.own_flag(CREATION_WAITS_KEY):
                yield MetadataResponseTopic(
                    error_code=int(error), name=name, is_internal=name in INTERNAL_TOPICS
                )
                continue
        yield _topic(ctx, request, found)


def _auto_create(ctx: RequestContext, request: MetadataRequest, name: str) -> ErrorCode:
    """Auto-create a topic if allowed; returns the error to answer if it does not exist."""
    if topic_name_problem(name) is not None:
        return ErrorCode.INVALID_TOPIC_EXCEPTION
    controller = ctx.services.controller
    if controller is not None and _may_create(ctx, request):
        try:
            controller.create_auto(name, ctx.client)
        except KafkaError:
            # A colliding name or too few brokers: as in Kafka the client does not learn why.
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def _topic(
    ctx: RequestContext, request: MetadataRequest, topic: TopicMetadata
) -> MetadataResponseTopic:
    """A topic of the response, cached until the topic or the brokers change."""
    version = ctx.api_version
    metadata = ctx.services.metadata
    listener = ctx.session.listener_name
    # v0 shows no dead replicas; LISTENER_NOT_FOUND is known from v6 on.
    era = 0 if version == 0 else 1 if version < 6 else 2
    cached = topic.answers.get((listener, era))
    if cached is not None and cached[0] == metadata.brokers_version:
        answer: MetadataResponseTopic = cached[1]
    else:
        answer = MetadataResponseTopic(
            name=topic.name,
            topic_id=topic.topic_id,
            is_internal=topic.is_internal,
            partitions=[
                partition_answer(metadata, listener, era, index, state)
                for index, state in topic.partitions.items()
            ],
        )
        topic.answers[listener, era] = metadata.brokers_version, answer
    if request.include_topic_authorized_operations and version >= 8:
        return MetadataResponseTopic(
            name=topic.name,
            topic_id=topic.topic_id,
            is_internal=topic.is_internal,
            partitions=answer.partitions,
            topic_authorized_operations=TOPIC_OPERATIONS,
        )
    return answer


def partition_answer(
    metadata: MetadataCache,
    listener: str,
    era: int,
    index: int,
    state: UpdateMetadataPartitionState,
) -> MetadataResponsePartition:
    """A partition in Metadata: `era` 0 is version 0, 1 those before 6, 2 the later ones."""
    leader, error = _leader(metadata, listener, state)
    if error is ErrorCode.LISTENER_NOT_FOUND and era < 2:
        error = ErrorCode.LEADER_NOT_AVAILABLE
    reachable = [b for b in state.replicas if metadata.endpoint(b, listener) is not None]
    replicas, isr = state.replicas, state.isr
    if era == 0:
        replicas, isr = reachable, [b for b in isr if b in reachable]
        if error is ErrorCode.NONE and len(isr) < len(state.isr):
            error = ErrorCode.REPLICA_NOT_AVAILABLE
    return MetadataResponsePartition(
        error_code=int(error),
        partition_index=index,
        leader_id=leader,
        leader_epoch=state.leader_epoch,
        replica_nodes=replicas,
        isr_nodes=isr,
        # A live broker may have lost the log directory; the controller reports that.
        offline_replicas=[
            b for b in state.replicas if b not in reachable or b in state.offline_replicas
        ],
    )


def _leader(
    metadata: MetadataCache, listener: str, state: UpdateMetadataPartitionState
) -> tuple[int, ErrorCode]:
    if metadata.endpoint(state.leader, listener) is not None:
        return state.leader, ErrorCode.NONE
    if metadata.is_alive(state.leader):
        return NO_LEADER, ErrorCode.LISTENER_NOT_FOUND
    return NO_LEADER, ErrorCode.LEADER_NOT_AVAILABLE
