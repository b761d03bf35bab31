"""Requests that only the controller can answer: called locally or forwarded to its node (KIP-590).

Answers to kafka.server.ForwardingManager. A broker that hosts the controller calls it directly; any
other wraps the request into an Envelope (`replication/member/controller_link.py`). If the response
is late or cannot be read, the client gets the API's own error response
(`replication/controller/refusals.py`).
"""

from __future__ import annotations

from kwire.protocol.errors import ErrorCode
from kwire.replication.controller.table import refusal
from kwire.replication.core.types import INTERNAL_LISTENER

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from kwire.apis.context import RequestContext
    from kwire.protocol.language.schema import Message


def handle_forwarded(ctx: RequestContext, request: Message) -> None:
    """Forward the request unchanged: CreateTopics, ElectLeaders, ..."""
    ask_controller(ctx, request)


def ask_controller(
    ctx: RequestContext,
    request: Message,
    finish: Callable[[Any], Message] | None = None,
) -> None:
    """Reply with the controller's response, passed through `finish` if given.

    `request` is of the context's API and version."""
    services = ctx.services
    member = services.member
    if member is None:
        controller = services.controller
        assert controller is not None

        def applied(response: Message) -> None:
            answer = response if finish is None else finish(response)
            controller.when_durable(lambda: ctx.reply(answer))

        controller.submit(request, ctx.api_version, applied, client=ctx.client)
        return

    def answered(answer: Message | ErrorCode) -> None:
        if isinstance(answer, ErrorCode):
            response = refusal(request, ctx.api_version, answer)
        else:
            response = answer
        ctx.reply(response if finish is None else finish(response))

    member.link.forward(
        ctx.api_key,
        ctx.api_version,
        request,
        answered,
        client_id=ctx.client_id,
        client_host=ctx.session.peer_host,
        principal=sender_of(ctx),
    )


def sender_of(ctx: RequestContext) -> str:
    """Whose request it is, for the controller; "": this broker's, of clients that no access rule is about."""
    session = ctx.session
    return "" if session.listener_name == INTERNAL_LISTENER else session.principal
