"""What checks of requests have in common: requests without some of their parts, answers with the refused parts added.

A check is called in place of an API's handler, with the handler: it lets it answer what the client may do, and adds
what it may not. A refused topic is found nowhere in the handler, so that its existence cannot be seen from an answer.
"""

from __future__ import annotations

from kwire.apis.context import RequestContext
from kwire.apis.parts.results import refused_result
from kwire.apis.parts.shapes import shape_of
from kwire.protocol import api
from kwire.protocol.errors import ErrorCode
from kwire.replication.core.acls import CLUSTER, GROUP, TOPIC, TRANSACTIONAL_ID

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any, TypeVar

    from kwire.apis import Handler
    from kwire.apis.access.authority import Authority
    from kwire.apis.access.table import Need, Row
    from kwire.protocol.language.schema import Message

    # Any: each check knows the message of its API.
    Check = Callable[[Authority, RequestContext, Any, Handler, Row], None]
    Item = TypeVar("Item")

ERRORS = {
    TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    TRANSACTIONAL_ID: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}
MESSAGES = {
    TOPIC: "Topic authorization failed.",
    GROUP: "Group authorization failed.",
    CLUSTER: "Cluster authorization failed.",
    TRANSACTIONAL_ID: "Transactional Id authorization failed.",
}


class Amended(RequestContext):
    """The context of a part of a request: `amend` changes its response into that of the whole."""

    __slots__ = ("_amend", "_whole")

    def __init__(self, whole: RequestContext, amend: Callable[[Any], Message]) -> None:
        super().__init__(whole, whole.session, whole.services)  # type: ignore[arg-type]  # it has all that a header has
        self._whole = whole
        self._amend = amend
        whole.on_disconnect = self.disconnected

    def reply(self, response: Message) -> None:
        self._answered()
        self._whole.reply(self._amend(response))

    def reply_in_parts(self, response: Message, *garbage: list[Any] | None) -> None:
        self._answered()
        self._whole.reply_in_parts(self._amend(response), *garbage)

    def _answered(self) -> None:
        assert not self.answered, "a request is answered once"
        self.answered = True
        self.on_disconnect = None

    def end_without_response(self) -> None:
        self._answered()
        self._whole.end_without_response()

    def close(self, reason: str) -> None:
        self._whole.close(reason)


def passed(_: Authority, ctx: RequestContext, request: Any, handler: Handler, __: Row) -> None:
    """The handler checks by itself."""
    handler(ctx, request)


def whole(
    authority: Authority, ctx: RequestContext, request: Any, handler: Handler, row: Row
) -> None:
    """The request needs an operation on the cluster."""
    need = row.needs[0]
    if authority.may(ctx, need):
        handler(ctx, request)
    else:
        refuse(ctx, request, need)


def of_one(attribute: str) -> Check:
    """A check of requests that are about one resource, and need an operation on it. `attribute`: its name."""

    def check(
        authority: Authority, ctx: RequestContext, request: Any, handler: Handler, row: Row
    ) -> None:
        need = row.needs[0]
        if authority.may(ctx, need, getattr(request, attribute)):
            handler(ctx, request)
        else:
            refuse(ctx, request, need)

    return check


def of_each(
    asked: str,
    answers: str,
    name_of: Callable[[Any], str | None] = lambda item: item.name,
    *,
    are_once: bool = False,
    message: str | None = None,
) -> Check:
    """A check of requests that need an operation on each resource in a list: what is refused has an answer, the rest
    is done. `asked`, `answers`: the lists of request and response. `name_of`: of an element, None: the handler refuses
    it. `are_once`: it does so with names that come twice. `message`: of the refusals."""

    def check(
        authority: Authority, ctx: RequestContext, request: Any, handler: Handler, row: Row
    ) -> None:
        need, items, name = row.needs[0], getattr(request, asked), name_of
        if are_once:
            name = once(items, name_of)
        allowed, others = split(authority, ctx, need, items, name)
        setattr(request, asked, allowed)
        refusals = refused_parts(ctx, others, ERRORS[need.resource_type], message)
        let(ctx, request, handler, add_to(answers, refusals))

    return check


def once(
    items: Iterable[Any], name_of: Callable[[Any], str | None] = lambda item: item.name
) -> Callable[[Any], str | None]:
    """`name_of` for `split`: names that come twice are the controller's to refuse, all of them."""
    from collections import Counter

    counts = Counter(map(name_of, items))

    def name(item: Any) -> str | None:
        found = name_of(item)
        return found if counts[found] == 1 else None

    return name


def refuse(ctx: RequestContext, request: Any, need: Need) -> None:
    """Refuse a request as a whole."""
    code, message = ERRORS[need.resource_type], MESSAGES[need.resource_type]
    ctx.reply(refused(ctx, request, code, message))


def refused(ctx: RequestContext, request: Message, code: ErrorCode, message: str) -> Message:
    """The response that refuses a request as a whole (getErrorResponse of each request)."""
    from kwire.apis.access.refusals import REFUSALS
    from kwire.replication.controller.table import BY_KEY, refusal

    key = api.ApiKey(ctx.api_key)
    if key in REFUSALS:
        return REFUSALS[key](request, ctx.api_version, int(code), message)
    if key in BY_KEY:
        return refusal(request, ctx.api_version, code, message)
    response: Any = api.response_class(key)()
    response.error_code = int(code)
    if "error_message" in type(response).fields:
        response.error_message = message
    return response  # type: ignore[no-any-return]


def refused_parts(
    ctx: RequestContext, items: Iterable[Any], code: ErrorCode, message: str | None = None
) -> list[Any]:
    """The results of elements of a request's list that are refused."""
    shape = shape_of(ctx.api_key, ctx.api_version)
    assert shape is not None
    return [refused_result(shape, item, int(code), message) for item in items]


def split(
    authority: Authority,
    ctx: RequestContext,
    need: Need,
    items: Iterable[Item],
    name_of: Callable[[Any], str | None] = lambda item: item.name,
) -> tuple[list[Item], list[Item]]:
    """What the client may do it to, and what it may not. What has no name (None) is the handler's to refuse."""
    allowed: list[Item] = []
    others: list[Item] = []
    for item in items:
        name = name_of(item)
        is_allowed = name is None or authority.may(ctx, need, name)
        (allowed if is_allowed else others).append(item)
    return allowed, others


def let(
    ctx: RequestContext, request: Any, handler: Handler, amend: Callable[[Any], Message]
) -> None:
    """Let the handler answer a request, whose response is changed."""
    handler(Amended(ctx, amend), request)


def add_to(answers: str, refusals: list[Any]) -> Callable[[Any], Message]:
    """A change of a response: the refused elements come last."""

    def amend(response: Any) -> Message:
        getattr(response, answers).extend(refusals)
        return response  # type: ignore[no-any-return]

    return amend
