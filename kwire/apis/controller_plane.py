"""Handlers of a dedicated controller node, for requests of brokers and of admin clients.

Answers to kafka.server.ControllerApis. Requests of the controller's table
(`replication/controller/table.py`) go to `Controller.submit`, which replies once the change has
reached the brokers: requests of brokers, and of clients, sent directly or forwarded by a broker in
an Envelope (0). DescribeCluster 0-2 returns the cluster id and, by endpoint type (KIP-919), the
brokers or the controller. Requests that only a broker can answer are not served.
"""

from __future__ import annotations

from kwire.apis import BY_KEY as BROKER_APIS
from kwire.apis import Api
from kwire.protocol import api
from kwire.protocol.api import ApiKey
from kwire.protocol.errors import ErrorCode, KafkaError, MalformedMessage
from kwire.protocol.schemas.control_plane import EnvelopeRequest, EnvelopeResponse
from kwire.replication.controller.table import BY_KEY as CONTROLLER_APIS
from kwire.replication.controller.table import AskedBy
from kwire.replication.core.metadata import ACL_RESOURCE, TOKEN_RESOURCE
from kwire.replication.core.types import ANONYMOUS, AUTHORIZER_KEY, INTERNAL_LISTENER

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from kwire.apis import Handler
    from kwire.apis.access.controllers import ControllerAuthority
    from kwire.apis.context import Gate, RequestContext
    from kwire.protocol.language.schema import Message
    from kwire.protocol.schemas.cluster import DescribeClusterRequest
    from kwire.protocol.schemas.nodes import BrokerHeartbeatRequest, BrokerRegistrationRequest
    from kwire.protocol.schemas.tokens import CreateDelegationTokenRequest
    from kwire.replication.config.broker_config import BrokerConfig
    from kwire.replication.controller.channels import ControllerChannels
    from kwire.replication.controller.controller import Controller
    from kwire.replication.controller.table import ControllerApi
    from kwire.replication.core.clock import Clock, Timers
    from kwire.replication.core.events import LogEvent
    from kwire.replication.core.metadata import Endpoint
    from kwire.replication.core.outbox import Buffer
    from kwire.replication.core.work import WorkQueue

_BROKERS, _CONTROLLERS = 1, 2


class ControllerServices:
    """The components of a ControllerNode for its handlers, in place of a broker's `Services`."""

    __slots__ = (
        "active_id",
        "api_ranges",
        "authority",
        "channels",
        "clock",
        "cluster_id",
        "controller",
        "endpoint",
        "gate",
        "metadata",
        "node_id",
        "registered",
        "timers",
        "work",
    )

    def __init__(self, node_id: int, work: WorkQueue, clock: Clock, timers: Timers) -> None:
        self.node_id = node_id
        self.work = work
        self.clock, self.timers = clock, timers
        self.gate: Gate | None = None  # where other nodes log in, if they have to
        self.active_id = node_id  # the active controller, as far as this node knows
        self.controller: Controller
        self.channels: ControllerChannels
        self.authority: ControllerAuthority | None = None  # what others may do, if that is limited
        self.metadata = ControllerMetadata(self)
        self.cluster_id = ""
        self.endpoint: Endpoint | None = None
        self.api_ranges = {key: (e.min_version, e.max_version) for key, e in BY_KEY.items()}
        # Connection → (broker id, broker epoch) of the broker that sends its heartbeats over it.
        self.registered: dict[int, tuple[int, int]] = {}

    def obey_authorizer(self, log_event: LogEvent) -> None:
        """Let brokers and clients do what access rules allow, if `authorizer.class.name` says so: those of a new
        `controller` and its `channels`. ConfigError."""
        if self.config.static.get(AUTHORIZER_KEY, "").strip():
            from kwire.apis.access.controllers import ControllerAuthority

            self.metadata.changed_acls.clear()
            self.channels.on_acl_changed = self.metadata.acl_changed
            self.authority = ControllerAuthority(self, log_event)

    @property
    def config(self) -> BrokerConfig:
        return self.controller.config


class ControllerMetadata:
    """Who may log in at a controller, access rules and topics, in place of a broker's metadata cache."""

    __slots__ = ("_services", "changed_acls")

    def __init__(self, services: ControllerServices) -> None:
        self._services = services
        self.changed_acls: set[str] = set()

    def acl_changed(self, name: str) -> None:
        self.changed_acls.add(name)

    def config(self, kind: int, name: str) -> Mapping[str, str]:
        """The access rules of a pattern, the SCRAM credentials of a user, or a delegation token."""
        if kind == ACL_RESOURCE:
            return self._services.channels.config(kind, name)
        security = self._services.controller.security
        return (security.tokens if kind == TOKEN_RESOURCE else security.scram).texts_of(name)

    def contains(self, topic: str) -> bool:
        """Whether there is such a topic."""
        return topic in self._services.controller.state.topics

    def topic_name(self, topic_id: bytes) -> str | None:
        """The name of a topic; None: no topic has this id."""
        return self._services.controller.state.names_by_id.get(topic_id)


def _services(ctx: RequestContext) -> ControllerServices:
    return ctx.services  # type: ignore[return-value]  # the services of a ControllerNode's sessions


def handle_submit(ctx: RequestContext, request: Message) -> None:
    """Submit a request to the controller and reply with its response."""
    controller = _services(ctx).controller
    controller.submit(request, ctx.api_version, ctx.reply, client=ctx.client)


def handle_token_creation(ctx: RequestContext, request: CreateDelegationTokenRequest) -> None:
    """CreateDelegationToken v0-3 of a client of the controller's listener, if it may ask."""
    from kwire.apis.parts.tokens import may_ask, refused_creation

    if may_ask(ctx):
        handle_submit(ctx, request)
    else:
        code = ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
        ctx.reply(refused_creation(ctx, request, code))


def handle_token_change(ctx: RequestContext, request: Message) -> None:
    """RenewDelegationToken v0-2, ExpireDelegationToken v0-2."""
    from kwire.apis.parts.tokens import may_ask, refuse_change

    if may_ask(ctx):
        handle_submit(ctx, request)
    else:
        refuse_change(ctx)


def handle_registration(ctx: RequestContext, request: BrokerRegistrationRequest) -> None:
    """BrokerRegistration v0-4. The broker is alive as long as this connection, or its session."""

    def registered(response: Any) -> None:
        if not response.error_code:
            _register_connection(ctx, request.broker_id, response.broker_epoch)
        ctx.reply(response)

    _services(ctx).controller.submit(request, ctx.api_version, registered)


def handle_heartbeat(ctx: RequestContext, request: BrokerHeartbeatRequest) -> None:
    """BrokerHeartbeat v0-1. It may use another connection than the previous one."""

    def renewed(response: Any) -> None:
        if not response.error_code:
            _register_connection(ctx, request.broker_id, request.broker_epoch)
        ctx.reply(response)

    _services(ctx).controller.submit(request, ctx.api_version, renewed)


def _register_connection(ctx: RequestContext, broker_id: int, broker_epoch: int) -> None:
    """Map the connection to the broker, in place of an earlier connection of the same broker."""
    registered = _services(ctx).registered
    for connection, (other_id, _) in list(registered.items()):
        if other_id == broker_id:
            del registered[connection]
    registered[ctx.session.connection] = (broker_id, broker_epoch)


def handle_envelope(ctx: RequestContext, request: EnvelopeRequest) -> None:
    """Envelope v0: a forwarded client request; the response holds the bytes for the client."""
    from kwire.replication.core.principals import host_in, principal_in

    controller, authority = _services(ctx).controller, _services(ctx).authority
    try:
        header, inner = _open_envelope(request.request_data)
        principal = principal_in(request.request_principal)
        client = principal, host_in(request.client_host_address)
        if not controller.active:
            raise KafkaError(ErrorCode.NOT_CONTROLLER)  # the broker tries another controller
    except KafkaError as error:
        ctx.reply(EnvelopeResponse(error_code=error.code))
        return
    user = (principal or ANONYMOUS).partition(":")[2]

    def completed(response: Message) -> None:
        parts = api.encode_response(
            header.api_key, header.api_version, header.correlation_id, response
        )
        ctx.reply(EnvelopeResponse(response_data=b"".join(parts)[4:]))

    def undecided() -> None:
        ctx.reply(EnvelopeResponse(error_code=ErrorCode.NOT_CONTROLLER))

    def submit(request: Message, on_complete: Callable[[Message], None]) -> None:
        who = user, header.client_id or ""
        controller.submit(request, header.api_version, on_complete, undecided, who)

    is_own = not principal or ctx.session.listener_name == INTERNAL_LISTENER
    row = CONTROLLER_APIS[header.api_key]
    if authority is None or is_own or row.asked_by is AskedBy.BROKERS_FOR_CLIENTS:
        submit(inner, completed)
        return
    from kwire.apis.access.controllers import ForwardedRequest

    authority.check_forwarded(ForwardedRequest(ctx, header, client, completed), inner, submit)


def _open_envelope(data: Buffer) -> tuple[api.RequestHeader, Message]:
    """Decode the request in an envelope. KafkaError(INVALID_REQUEST or UNSUPPORTED_VERSION)."""
    try:
        header = api.parse_request_header(data)
        row = CONTROLLER_APIS.get(header.api_key)
        if row is None or row.asked_by is AskedBy.BROKERS:
            raise KafkaError(ErrorCode.INVALID_REQUEST)
        if not row.min_version <= header.api_version <= row.max_version:
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
        inner, _ = api.request_class(header.api_key).decode_from(
            data, header.body_position, header.api_version
        )
    except MalformedMessage:
        raise KafkaError(ErrorCode.INVALID_REQUEST) from None
    return header, inner


def handle_describe_cluster(ctx: RequestContext, request: DescribeClusterRequest) -> None:
    """DescribeCluster v0-2."""
    from kwire.protocol.schemas.cluster import DescribeClusterBroker, DescribeClusterResponse

    services = _services(ctx)
    response = DescribeClusterResponse(
        cluster_id=services.cluster_id,
        controller_id=services.active_id,
        endpoint_type=request.endpoint_type,
    )
    if request.endpoint_type == _CONTROLLERS:
        if services.endpoint is not None:
            own = services.endpoint
            response.brokers.append(
                DescribeClusterBroker(broker_id=services.node_id, host=own.host, port=own.port)
            )
    elif request.endpoint_type == _BROKERS:
        for broker in services.controller.brokers.values():
            first = broker.endpoints[0]
            response.brokers.append(
                DescribeClusterBroker(
                    broker_id=broker.id, host=first.host, port=first.port, rack=broker.rack
                )
            )
    else:
        response.error_code = ErrorCode.UNSUPPORTED_ENDPOINT_TYPE
        response.error_message = f"Unsupported endpoint type {request.endpoint_type}"
    ctx.reply(response)


_HANDLERS: dict[ApiKey, Handler] = {
    ApiKey.BROKER_REGISTRATION: handle_registration,
    ApiKey.BROKER_HEARTBEAT: handle_heartbeat,
    ApiKey.CREATE_DELEGATION_TOKEN: handle_token_creation,
    ApiKey.RENEW_DELEGATION_TOKEN: handle_token_change,
    ApiKey.EXPIRE_DELEGATION_TOKEN: handle_token_change,
}
"""Requests that show which connection a broker uses, or that not everybody may send; the others are only submitted."""


def _submitted_api(row: ControllerApi) -> Api:
    api_ = Api(row.key, "controller_plane", "handle_submit", row.min_version, row.max_version)
    return api_.with_handler(_HANDLERS.get(row.key, handle_submit))


TABLE: tuple[Api, ...] = tuple(
    sorted(
        (
            *(
                _submitted_api(row)
                for row in CONTROLLER_APIS.values()
                if row.asked_by is not AskedBy.BROKERS_FOR_CLIENTS
            ),
            BROKER_APIS[ApiKey.API_VERSIONS],
            BROKER_APIS[ApiKey.SASL_HANDSHAKE],
            BROKER_APIS[ApiKey.SASL_AUTHENTICATE],
            BROKER_APIS[ApiKey.ENVELOPE].with_handler(handle_envelope),
            BROKER_APIS[ApiKey.DESCRIBE_CLUSTER].with_handler(handle_describe_cluster),
        ),
        key=lambda entry: entry.key,
    )
)
"""The APIs of a controller node, sorted by key, in the same versions as a broker serves."""

BY_KEY: dict[int, Api] = {entry.key: entry for entry in TABLE}
