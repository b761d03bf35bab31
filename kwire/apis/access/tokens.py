"""The check of CreateDelegationToken."""

from __future__ import annotations

from kwire.apis.parts.tokens import may_ask, owner_of, refused_creation
from kwire.protocol.errors import ErrorCode

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from kwire.apis import Handler
    from kwire.apis.access.authority import Authority
    from kwire.apis.access.table import Row
    from kwire.apis.context import RequestContext


def create(
    authority: Authority, ctx: RequestContext, request: Any, handler: Handler, row: Row
) -> None:
    owner = owner_of(ctx, request)
    is_own = owner == ctx.session.principal
    if is_own or not may_ask(ctx) or authority.may(ctx, row.needs[0], owner):
        handler(ctx, request)
    else:
        code = ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED
        ctx.reply(refused_creation(ctx, request, code))
