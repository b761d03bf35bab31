"""Requests of the controller to a broker: LeaderAndIsr (4), StopReplica (5), UpdateMetadata (6),
Envelope (58).

Answers to KafkaApis.handleLeaderAndIsrRequest, handleStopReplicaRequest,
handleUpdateMetadataRequest of Kafka 3.9 in ZooKeeper mode. LeaderAndIsr 0-7: v1 isNew, v2 broker
epochs, v5 topic ids, v7 KRaft controllers. StopReplica 0-4: v3 leader epochs. UpdateMetadata 0-8:
v5 broker epochs, v7 topic ids. Any client with valid epochs may send them, as tests do;
`replication/replica/control.py` checks and applies them.

Envelope 0 is kwire's way to send a broker its dynamic configurations, where Kafka's brokers read
them from ZooKeeper or the metadata log. It holds an AlterConfigs request with all overrides of the
named resources, and the controller's epoch in place of a principal; the first one after a
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
from kwire.replication.config.broker_config import ConfigError
from kwire.replication.controller.channels import read_principal
from kwire.replication.core.types import SECURITY_PROTOCOLS
from kwire.replication.replica.local_listener import LocalListener

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from kwire.apis.context import RequestContext
    from kwire.protocol.language.schema import Message


def _reply_once_registered(
    ctx: RequestContext, broker_epoch: int, carry_out: Callable[[], Message]
) -> None:
    """Apply an order once this broker knows its epoch (it may be for an earlier incarnation)."""
    member = ctx.services.member
    if broker_epoch == -1 or member is None or member.is_registered:
        ctx.reply(carry_out())
    else:
        member.hold(lambda: ctx.reply(carry_out()))


def handle_leader_and_isr(ctx: RequestContext, request: LeaderAndIsrRequest) -> None:
    """LeaderAndIsr v0-7."""
    manager, version = ctx.services.replica_manager, ctx.api_version
    _reply_once_registered(
        ctx, request.broker_epoch, lambda: manager.become_leader_or_follower(request, version)
    )


def handle_stop_replica(ctx: RequestContext, request: StopReplicaRequest) -> None:
    """StopReplica v0-4."""
    manager = ctx.services.replica_manager
    _reply_once_registered(ctx, request.broker_epoch, lambda: manager.stop_replicas(request))


def handle_update_metadata(ctx: RequestContext, request: UpdateMetadataRequest) -> None:
    """UpdateMetadata v0-8."""
    if ctx.api_version < 5:
        _group_by_topic(request)
    if ctx.api_version < 3:
        _name_listeners(request)
    manager, member = ctx.services.replica_manager, ctx.services.member

    def carry_out() -> Message:
        response = manager.update_metadata(request)
        if member is not None:
            member.metadata_updated()
        return response

    _reply_once_registered(ctx, request.broker_epoch, carry_out)


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
    ctx.reply(_open_envelope(ctx, request))


def _open_envelope(ctx: RequestContext, request: EnvelopeRequest) -> EnvelopeResponse:
    manager = ctx.services.replica_manager
    principal = read_principal(request.request_principal)
    if principal is None:
        return EnvelopeResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    epoch, is_full = principal
    if epoch < manager.controller_epoch:
        return EnvelopeResponse(error_code=ErrorCode.STALE_CONTROLLER_EPOCH)
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
