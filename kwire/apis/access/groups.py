"""Checks of the requests about groups and their offsets."""

from __future__ import annotations

from kwire.apis.access.checks import ERRORS, add_to, let, of_one, refuse, refused_parts, split
from kwire.apis.parts.results import refused_result
from kwire.apis.parts.shapes import shape_of
from kwire.protocol.errors import ErrorCode
from kwire.replication.core.acls import GROUP

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from kwire.apis import Handler
    from kwire.apis.access.authority import Authority
    from kwire.apis.access.table import Row
    from kwire.apis.context import RequestContext
    from kwire.protocol.language.schema import Message

_NO_TOPIC = ErrorCode.TOPIC_AUTHORIZATION_FAILED
_NO_GROUP = ErrorCode.GROUP_AUTHORIZATION_FAILED
_PROTOCOL_NAMED = 5
_BY_ID, _BATCHED, _TOP_LEVEL_ERROR, _SHARE, _MANY_KEYS = 10, 8, 2, 6, 4
_KINDS = 3
"""Types of keys of FindCoordinator: groups, transactional ids, share groups."""


_of_member = of_one("group_id")


def sync_group(
    authority: Authority, ctx: RequestContext, request: Any, handler: Handler, row: Row
) -> None:
    """A member's request, of which Kafka first looks whether the protocol is named (KIP-559)."""
    if ctx.api_version >= _PROTOCOL_NAMED and None in (
        request.protocol_type,
        request.protocol_name,
    ):
        handler(ctx, request)  # which refuses it
    else:
        _of_member(authority, ctx, request, handler, row)


def topic_name_of(ctx: RequestContext, *, by_id: bool) -> Callable[[Any], str | None]:
    """The name of a request's topic. None: its id is not known."""
    if not by_id:
        return lambda topic: topic.name
    metadata = ctx.services.metadata
    return lambda topic: metadata.topic_name(topic.topic_id)


def offset_commit(
    authority: Authority, ctx: RequestContext, request: Any, handler: Handler, row: Row
) -> None:
    group, topic = row.needs
    if not authority.may(ctx, group, request.group_id):
        refuse(ctx, request, group)
        return
    name_of = topic_name_of(ctx, by_id=ctx.api_version >= _BY_ID)
    request.topics, others = split(authority, ctx, topic, request.topics, name_of)
    let(ctx, request, handler, add_to("topics", refused_parts(ctx, others, _NO_TOPIC)))


def offset_fetch(
    authority: Authority, ctx: RequestContext, request: Any, handler: Handler, row: Row
) -> None:
    if ctx.api_version < _BATCHED:
        _fetch_one_group(authority, ctx, request, handler, row)
        return
    group, topic = row.needs
    asked = [(each, authority.may(ctx, group, each.group_id)) for each in request.groups]
    request.groups = [each for each, is_allowed in asked if is_allowed]
    name_of = topic_name_of(ctx, by_id=ctx.api_version >= _BY_ID)
    hidden: list[list[Any]] = []  # of each group that is left: a group may be named twice
    for each in request.groups:
        others: list[Any] = []
        if each.topics is not None:
            each.topics, others = split(authority, ctx, topic, each.topics, name_of)
        hidden.append(others)

    def amend(response: Any) -> Message:
        from kwire.protocol.schemas.offsets import OffsetFetchResponseGroup

        for answer, others in zip(response.groups, hidden, strict=True):
            if not answer.error_code:
                answer.topics, _ = split(authority, ctx, topic, answer.topics, name_of)
                answer.topics += _refused_topics(ctx, others)
        answers = iter(response.groups)
        response.groups = [
            next(answers)
            if is_allowed
            else OffsetFetchResponseGroup(group_id=each.group_id, error_code=_NO_GROUP)
            for each, is_allowed in asked
        ]
        return response  # type: ignore[no-any-return]

    let(ctx, request, handler, amend)


def _fetch_one_group(
    authority: Authority, ctx: RequestContext, request: Any, handler: Handler, row: Row
) -> None:
    """OffsetFetch before version 8."""
    group, topic = row.needs
    if not authority.may(ctx, group, request.group_id):
        from kwire.protocol.schemas.offsets import OffsetFetchResponse

        response = OffsetFetchResponse(error_code=_NO_GROUP)
        if ctx.api_version < _TOP_LEVEL_ERROR:
            response.topics = refused_parts(ctx, request.topics or (), _NO_GROUP)
        ctx.reply(response)
        return
    if request.topics is None:

        def hide(response: Any) -> Message:
            response.topics, _ = split(authority, ctx, topic, response.topics)
            return response  # type: ignore[no-any-return]

        let(ctx, request, handler, hide)
        return
    request.topics, others = split(authority, ctx, topic, request.topics)
    refused = refused_parts(ctx, others, _NO_TOPIC)

    def add(response: Any) -> Message:
        if not response.error_code:
            response.topics += refused
        return response  # type: ignore[no-any-return]

    let(ctx, request, handler, add)


def _refused_topics(ctx: RequestContext, topics: list[Any]) -> list[Any]:
    """The results of topics in a group of OffsetFetch, from version 8 on."""
    shape = shape_of(ctx.api_key, ctx.api_version)
    assert shape is not None
    return [refused_result(shape, each, int(_NO_TOPIC), level=1) for each in topics]


def find_coordinator(
    authority: Authority, ctx: RequestContext, request: Any, handler: Handler, row: Row
) -> None:
    from kwire.protocol.schemas.groups import FindCoordinatorResponse

    kind, version = request.key_type, ctx.api_version
    is_share = kind == _KINDS - 1
    if not 0 <= kind < _KINDS or (is_share and version < _SHARE):
        handler(ctx, request)  # which refuses it
        return
    need = row.needs[kind]
    code = ERRORS[need.resource_type]
    keys = [request.key] if version < _MANY_KEYS else request.coordinator_keys
    allowed = [k for k in keys if authority.may(ctx, need, *([] if is_share else [k]))]

    def amend(response: Any) -> Message:
        found = {each.key: each for each in response.coordinators}
        response.coordinators = [
            found.get(key) or refused_parts(ctx, [key], code)[0] for key in keys
        ]
        return response  # type: ignore[no-any-return]

    if len(allowed) == len(keys):
        handler(ctx, request)
    elif version < _MANY_KEYS:
        text = _text(code)
        ctx.reply(FindCoordinatorResponse(error_code=code, error_message=text, node_id=-1, port=-1))
    elif allowed:
        request.coordinator_keys = allowed
        let(ctx, request, handler, amend)
    else:  # nor is the coordinators' topic created for it
        ctx.reply(amend(FindCoordinatorResponse()))


def _text(code: ErrorCode) -> str:
    from kwire.apis.access.checks import MESSAGES

    return next(MESSAGES[kind] for kind, error in ERRORS.items() if error is code)


def describe_groups(
    authority: Authority, ctx: RequestContext, request: Any, handler: Handler, row: Row
) -> None:
    asked = request.groups
    request.groups, _ = split(authority, ctx, row.needs[0], asked, lambda group_id: group_id)

    def amend(response: Any) -> Message:
        found = {group.group_id: group for group in response.groups}
        if request.include_authorized_operations:
            for group in response.groups:
                if not group.error_code:
                    operations = authority.operations(ctx, GROUP, group.group_id)
                    group.authorized_operations = operations
        response.groups = [
            found.get(group_id) or refused_parts(ctx, [group_id], _NO_GROUP)[0]
            for group_id in asked
        ]
        return response  # type: ignore[no-any-return]

    let(ctx, request, handler, amend)


def list_groups(
    authority: Authority, ctx: RequestContext, request: Any, handler: Handler, row: Row
) -> None:
    cluster, group = row.needs
    if authority.may(ctx, cluster):
        handler(ctx, request)
        return

    def amend(response: Any) -> Message:
        response.groups, _ = split(
            authority, ctx, group, response.groups, lambda each: each.group_id
        )
        return response  # type: ignore[no-any-return]

    let(ctx, request, handler, amend)


def offset_delete(
    authority: Authority, ctx: RequestContext, request: Any, handler: Handler, row: Row
) -> None:
    group, topic = row.needs
    if not authority.may(ctx, group, request.group_id):
        refuse(ctx, request, group)
        return
    request.topics, others = split(authority, ctx, topic, request.topics)
    refused = refused_parts(ctx, others, _NO_TOPIC)

    def amend(response: Any) -> Message:
        if not response.error_code:
            response.topics += refused
        return response  # type: ignore[no-any-return]

    let(ctx, request, handler, amend)
