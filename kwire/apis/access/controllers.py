"""The authorizer of a dedicated controller: clients that connect to it, brokers, and whose requests brokers forward.

Answers to what kafka.server.ControllerApis and EnvelopeUtils check. Whoever sends an Envelope needs CLUSTER_ACTION;
the request in it is checked again for the client that the Envelope names, as this controller's rules may be newer
than the broker's. A standby has no rules yet, and its answer is NOT_CONTROLLER to everybody. Connections of
KWIRE_INTERNAL, all nodes on this machine, are not subject to it.
"""

from __future__ import annotations

from kwire.apis.access.authority import Authority
from kwire.apis.access.table import AMONG_NODES, ROWS
from kwire.apis.context import RequestContext
from kwire.replication.core.types import INTERNAL_LISTENER

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from kwire.apis import Handler
    from kwire.apis.controller_plane import ControllerServices
    from kwire.protocol.api import RequestHeader
    from kwire.protocol.language.schema import Message
    from kwire.replication.core.events import LogEvent


class ControllerAuthority(Authority):
    """The authorizer of a controller node, for one epoch of it: another one reads the rules from its journal again."""

    __slots__ = ("_services",)

    def __init__(self, services: ControllerServices, log_event: LogEvent) -> None:
        """ConfigError."""
        super().__init__(services.config, services.metadata, log_event)
        self._services = services

    def guard(self, api_key: int, handler: Handler) -> Handler:
        among_nodes = AMONG_NODES.get(api_key)
        row = among_nodes or ROWS.get(api_key)
        if row is None:
            return handler

        def guarded(ctx: RequestContext, request: Any) -> None:
            is_trusted = ctx.session.listener_name == INTERNAL_LISTENER
            if is_trusted or not self._services.controller.active:
                handler(ctx, request)
            elif among_nodes is not None:
                self.check_node(ctx, request, handler, among_nodes)
            else:
                row.check(self, ctx, request, handler, row)

        return guarded

    def check_forwarded(
        self,
        client: ForwardedRequest,
        request: Message,
        submit: Callable[[Message, Callable[[Message], None]], None],
    ) -> None:
        """Submit a client's request, with what is to become of its response, or refuse it."""
        row = ROWS.get(client.api_key)
        if row is None:
            submit(request, client.reply)
            return
        row.check(self, client, request, lambda ctx, it: submit(it, ctx.reply), row)


class ForwardedRequest(RequestContext):
    """A client's request that a broker has forwarded, by an Envelope; `on_reply` gets its response."""

    __slots__ = ("_on_reply",)

    def __init__(
        self,
        envelope: RequestContext,
        header: RequestHeader,
        client: tuple[str, str],
        on_reply: Callable[[Message], None],
    ) -> None:
        """`client`: its principal and host."""
        session: Any = _Client(*client)
        super().__init__(header, session, envelope.services)
        self._on_reply = on_reply

    def reply(self, response: Message) -> None:
        assert not self.answered, "a request is answered once"
        self.answered = True
        self._on_reply(response)


class _Client:
    """What a request's session has that access rules are about."""

    __slots__ = ("connection", "listener_name", "peer_host", "principal")

    def __init__(self, principal: str, peer_host: str) -> None:
        self.connection, self.listener_name = -1, ""  # of the broker's, which are not known here
        self.principal = principal
        self.peer_host = peer_host
