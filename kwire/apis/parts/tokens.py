"""Delegation tokens: CreateDelegationToken (38), RenewDelegationToken (39), ExpireDelegationToken (40),
DescribeDelegationToken (41).

Answers to kafka.server.KafkaApis.{allowTokenRequests,handleCreateTokenRequest,…}. The controller creates and changes
them (`replication/controller/security/tokens.py`), if the client may ask; a broker describes those that it knows.
"""

from __future__ import annotations

from kwire.apis.forwarding import ask_controller
from kwire.protocol.api import response_class
from kwire.protocol.errors import ErrorCode
from kwire.protocol.schemas.tokens import (
    CreateDelegationTokenResponse,
    DescribedDelegationToken,
    DescribedDelegationTokenRenewer,
    DescribeDelegationTokenResponse,
)
from kwire.replication.config.tokens import token_secret
from kwire.replication.core.delegation_tokens import Token, hmac_of
from kwire.replication.core.metadata import TOKEN_RESOURCE
from kwire.replication.core.principals import USER_TYPE, principal_of
from kwire.replication.core.types import ANONYMOUS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from kwire.apis.context import RequestContext
    from kwire.protocol.language.schema import Message
    from kwire.protocol.schemas.tokens import (
        CreateDelegationTokenRequest,
        DescribeDelegationTokenRequest,
    )

_NOT_ALLOWED = ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED


def may_ask(ctx: RequestContext) -> bool:
    """Whether a client may ask about tokens: one that has shown who it is, and not by a token."""
    gate, session = ctx.services.gate, ctx.session
    if gate is not None and session.listener_name in gate.listeners:
        return not gate.is_by_token(session.connection)
    # At a plaintext listener, and by TLS without a certificate, everybody is anonymous.
    return session.principal != ANONYMOUS


def owner_of(ctx: RequestContext, request: CreateDelegationTokenRequest) -> str:
    """The principal that a token is to be for."""
    kind, name = request.owner_principal_type, request.owner_principal_name
    return principal_of(kind, name, ctx.session.principal)


def refused_creation(
    ctx: RequestContext, request: CreateDelegationTokenRequest, code: ErrorCode
) -> CreateDelegationTokenResponse:
    """The answer to a client that may not create a token."""
    kind, _, name = owner_of(ctx, request).partition(":")
    own_kind, own_name = _requester(ctx, ctx.session.principal)
    return CreateDelegationTokenResponse(
        error_code=int(code),
        principal_type=kind,
        principal_name=name,
        token_requester_principal_type=own_kind,
        token_requester_principal_name=own_name,
        issue_timestamp_ms=-1,
        expiry_timestamp_ms=-1,
        max_timestamp_ms=-1,
    )


def _requester(ctx: RequestContext, principal: str) -> tuple[str, str]:
    """Type and name of who has asked for a token, where the response has room for them."""
    kind, _, name = principal.partition(":")
    return (kind, name) if ctx.api_version >= 3 else ("", "")


def creation_problem(
    ctx: RequestContext, request: CreateDelegationTokenRequest
) -> ErrorCode | None:
    """Why the request is not for the controller; None: it is."""
    if not may_ask(ctx):
        return _NOT_ALLOWED
    if any(each.principal_type != USER_TYPE for each in request.renewers):
        return ErrorCode.INVALID_PRINCIPAL_TYPE
    return None


def handle_create(ctx: RequestContext, request: CreateDelegationTokenRequest) -> None:
    """CreateDelegationToken v0-3: v3 an owner who is somebody else (KIP-373)."""
    problem = creation_problem(ctx, request)
    if problem is None:
        ask_controller(ctx, request)
    else:
        ctx.reply(refused_creation(ctx, request, problem))


def handle_change(ctx: RequestContext, request: Message) -> None:
    """RenewDelegationToken v0-2, ExpireDelegationToken v0-2."""
    if may_ask(ctx):
        ask_controller(ctx, request)
    else:
        refuse_change(ctx)


def refuse_change(ctx: RequestContext) -> None:
    """Answer a client that may not renew or expire a token."""
    response: Any = response_class(ctx.api_key)()
    response.error_code, response.expiry_timestamp_ms = int(_NOT_ALLOWED), -1
    ctx.reply(response)


def handle_describe(ctx: RequestContext, request: DescribeDelegationTokenRequest) -> None:
    """DescribeDelegationToken v0-3: v3 who has created them. Tokens that the client may see, of these owners."""
    secret = token_secret(ctx.services.config)
    if not may_ask(ctx):
        ctx.reply(DescribeDelegationTokenResponse(error_code=int(_NOT_ALLOWED)))
    elif secret is None:
        code = int(ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED)
        ctx.reply(DescribeDelegationTokenResponse(error_code=code))
    else:
        owners: Any = request.owners
        if owners is not None:
            owners = {f"{each.principal_type}:{each.principal_name}" for each in owners}
        authority = ctx.services.authority
        found = [
            _described(ctx, token, secret)
            for token in _tokens(ctx)
            if _is_of(token, owners) and (authority is None or authority.may_see(ctx, token))
        ]
        ctx.reply(DescribeDelegationTokenResponse(tokens=found))


def _tokens(ctx: RequestContext) -> list[Token]:
    """All tokens that this broker knows, the oldest first."""
    metadata = ctx.services.metadata
    names = metadata.config_names(TOKEN_RESOURCE)
    found = (Token.from_texts(name, metadata.config(TOKEN_RESOURCE, name)) for name in names)
    return sorted(filter(None, found), key=lambda token: token.issued_ms)


def _is_of(token: Token, owners: set[str] | None) -> bool:
    """Whether it concerns one of them. None: all are asked for."""
    return owners is None or any(token.concerns(each) for each in owners)


def _described(ctx: RequestContext, token: Token, secret: bytes) -> DescribedDelegationToken:
    kind, _, name = token.owner.partition(":")
    requester_kind, requester = _requester(ctx, token.requester)
    renewers = (each.partition(":") for each in token.renewers)
    return DescribedDelegationToken(
        principal_type=kind,
        principal_name=name,
        token_requester_principal_type=requester_kind,
        token_requester_principal_name=requester,
        issue_timestamp=token.issued_ms,
        expiry_timestamp=token.expires_ms,
        max_timestamp=token.max_ms,
        token_id=token.token_id,
        hmac=hmac_of(secret, token.token_id),
        renewers=[
            DescribedDelegationTokenRenewer(principal_type=kind, principal_name=name)
            for kind, _, name in renewers
        ],
    )
