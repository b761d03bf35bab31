"""Requests of the controller to a broker: LeaderAndIsr (4), StopReplica (5), UpdateMetadata (6),
Envelope (58).

Answers to KafkaApis.handleLeaderAndIsrRequest, handleStopReplicaRequest,
handleUpdateMetadataRequest of Kafka 3.9 in ZooKeeper mode. LeaderAndIsr 0-7: v1 isNew, v2 broker
epochs, v5 topic ids, v7 KRaft controllers. StopReplica 0-4: v3 leader epochs. UpdateMetadata 0-8:
v5 broker epochs, v7 topic ids. `replication/replica/control.py` checks and applies them.

They must come from a controller: to a broker of a cluster, on its inter-broker listener, with an
epoch that a controller gave this broker and that clients cannot know
(`replication/core/broker_epochs.py`). Others are closed, as KRaft brokers close them, which do not
serve these APIs (SocketServer.parseRequestHeader). A foreign controller, in a Kafka cluster in
ZooKeeper mode, names the epoch of the registration. `kwire.any.connection.may.control=true` opens
them to all, as in ZooKeeper mode; tests give orders so.

Envelope 0 is kwire's way to send a broker its dynamic configurations, where Kafka's brokers read
them from ZooKeeper or the metadata log. It holds an AlterConfigs request with all overrides of the
named resources, and the epochs of controller and broker as principal; the first one after a
registration lists all resources with overrides. Old versions of UpdateMetadata are converted to the
newest form.
"""

from __future__ import annotations

from kwire.protocol import api
from kwire.protocol.errors import ErrorCode, KafkaError, MalformedMessage
from kwire.protocol.schemas.configs import (
    AlterConfigsRequest,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)
from kwire.protocol.schemas.control_plane import (
    EnvelopeRequest,
    EnvelopeResponse,
    LeaderAndIsrRequest,
    StopReplicaRequest,
    UpdateMetadataEndpoint,
    UpdateMetadataRequest,
    UpdateMetadataTopicState,
)
from kwire.replication.config.broker_config import ANY_CONTROLLER_KEY, ConfigError
from kwire.replication.controller.channels import read_principal
from kwire.replication.core.types import SECURITY_PROTOCOLS
from kwire.replication.replica.local_listener import LocalListener

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from kwire.apis.context import RequestContext
    from kwire.protocol.language.schema import Message


_NO_BROKERS_EPOCH = -2  # below every broker's, and not -1, which is not compared
_Order = LeaderAndIsrRequest | StopReplicaRequest | UpdateMetadataRequest


def _obey(
    ctx: RequestContext, broker_epoch: int, carry_out: Callable[[ErrorCode], Message]
) -> None:
    """Apply an order of a controller, once this broker knows its epoch: the order may be for an
    earlier incarnation. `carry_out` gets NONE, or the error to refuse it with.

    The connection is closed where no controller may be the sender."""
    services = ctx.services
    member = services.member
    if services.config.own_flag(ANY_CONTROLLER_KEY):
        if member is None or broker_epoch == -1 or member.is_registered:
            ctx.reply(carry_out(ErrorCode.NONE))
        else:
            member.hold(lambda: ctx.reply(carry_out(ErrorCode.NONE)))
        return
    if member is None or not member.is_from_peer(ctx.session.listener_name) or broker_epoch < 0:
        name = api.ApiKey(ctx.api_key).api_name
        ctx.close(f"{name} is served to the controller only")
        return
    is_own = member.is_own_epoch(broker_epoch)

    def answer() -> None:
        ctx.reply(carry_out(ErrorCode.NONE if is_own else ErrorCode.STALE_BROKER_EPOCH))

    if member.is_registered:
        answer()
    else:
        member.hold(answer)


def _fenced(request: _Order, refusal: ErrorCode) -> None:
    """Let the order fail with STALE_BROKER_EPOCH, in the shape of its response, if it is refused."""
    if refusal is not ErrorCode.NONE:
        request.broker_epoch = _NO_BROKERS_EPOCH


def handle_leader_and_isr(ctx: RequestContext, request: LeaderAndIsrRequest) -> None:
    """LeaderAndIsr v0-7."""
    manager, version = ctx.services.replica_manager, ctx.api_version

    def carry_out(refusal: ErrorCode) -> Message:
        _fenced(request, refusal)
        return manager.become_leader_or_follower(request, version)

    _obey(ctx, request.broker_epoch, carry_out)


def handle_stop_replica(ctx: RequestContext, request: StopReplicaRequest) -> None:
    """StopReplica v0-4."""
    manager = ctx.services.replica_manager

    def carry_out(refusal: ErrorCode) -> Message:
        _fenced(request, refusal)
        return manager.stop_replicas(request)

    _obey(ctx, request.broker_epoch, carry_out)


def handle_update_metadata(ctx: RequestContext, request: UpdateMetadataRequest) -> None:
    """UpdateMetadata v0-8."""
    if ctx.api_version < 5:
        _group_by_topic(request)
    if ctx.api_version < 3:
        _name_listeners(request)
    manager, member = ctx.services.replica_manager, ctx.services.member

    def carry_out(refusal: ErrorCode) -> Message:
        _fenced(request, refusal)
        response = manager.update_metadata(request)
        if member is not None:
            member.metadata_updated()
        return response

    _obey(ctx, request.broker_epoch, carry_out)


def _group_by_topic(request: UpdateMetadataRequest) -> None:
    """Group partitions by topic: before v5 they are a flat list."""
    topics: dict[str, UpdateMetadataTopicState] = {}
    for state in request.ungrouped_partition_states:
        topic = topics.get(state.topic_name)
        if topic is None:
            topic = topics[state.topic_name] = UpdateMetadataTopicState(topic_name=state.topic_name)
        topic.partition_states.append(state)
    request.topic_states = list(topics.values())


def _name_listeners(request: UpdateMetadataRequest) -> None:
    """Set listener names: before v3 the security protocol, in v0 one PLAINTEXT address."""
    for broker in request.live_brokers:
        if not broker.endpoints:
            broker.endpoints = [UpdateMetadataEndpoint(port=broker.v0_port, host=broker.v0_host)]
        for endpoint in broker.endpoints:
            if 0 <= endpoint.security_protocol < len(SECURITY_PROTOCOLS):
                endpoint.listener = SECURITY_PROTOCOLS[endpoint.security_protocol]


def handle_envelope(ctx: RequestContext, request: EnvelopeRequest) -> None:
    """Envelope v0 from the controller: dynamic configurations for this broker."""
    principal = read_principal(request.request_principal)

    def carry_out(refusal: ErrorCode) -> Message:
        if refusal is not ErrorCode.NONE:
            return EnvelopeResponse(error_code=refusal)
        return _open_envelope(ctx, request)

    _obey(ctx, -1 if principal is None else principal[1], carry_out)


def _open_envelope(ctx: RequestContext, request: EnvelopeRequest) -> EnvelopeResponse:
    manager = ctx.services.replica_manager
    principal = read_principal(request.request_principal)
    if principal is None:
        return EnvelopeResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    epoch, broker_epoch, is_full = principal
    error = manager.check_epochs(epoch, broker_epoch)
    if error is not ErrorCode.NONE:
        return EnvelopeResponse(error_code=error)
    try:
        header = api.parse_request_header(request.request_data)
        if header.api_key != api.ApiKey.ALTER_CONFIGS:
            return EnvelopeResponse(error_code=ErrorCode.INVALID_REQUEST)
        inner, _ = AlterConfigsRequest.decode_from(
            request.request_data, header.body_position, header.api_version
        )
    except (MalformedMessage, KafkaError):
        return EnvelopeResponse(error_code=ErrorCode.INVALID_REQUEST)
    response = _apply(ctx, inner, is_full)
    parts = api.encode_response(header.api_key, header.api_version, header.correlation_id, response)
    return EnvelopeResponse(response_data=b"".join(parts)[4:])


def _apply(
    ctx: RequestContext, request: AlterConfigsRequest, is_full: bool
) -> AlterConfigsResponse:
    services = ctx.services
    listener = LocalListener(
        services.node_id, services.replica_manager, services.metadata, services.config
    )
    response = AlterConfigsResponse()
    if is_full:
        # Overrides may have been deleted while this broker was cut off, with their topics, too.
        listed = {(r.resource_type, r.resource_name) for r in request.resources}
        for resource_type, name in services.metadata.configured():
            if (resource_type, name) not in listed:
                listener.config_changed(resource_type, name, {})
    for resource in request.resources:
        answer = AlterConfigsResourceResponse(
            resource_type=resource.resource_type,
            resource_name=resource.resource_name,
            error_message=None,
        )
        overrides = {c.name: c.value for c in resource.configs if c.value is not None}
        try:
            listener.config_changed(resource.resource_type, resource.resource_name, overrides)
        except ConfigError as error:  # only this broker: its static configuration limits the value
            answer.error_code = ErrorCode.INVALID_CONFIG
            answer.error_message = str(error)
        response.responses.append(answer)
    return response
