"""The check of DeleteTopics: it tells neither that a topic exists nor its name (ControllerApis.deleteTopics)."""

from __future__ import annotations

from collections import Counter

from kwire.apis.access.checks import MESSAGES, add_to, let
from kwire.protocol.errors import ErrorCode
from kwire.protocol.language.primitives import ZERO_UUID
from kwire.protocol.schemas.topics import DeletableTopicResult
from kwire.replication.core.acls import TOPIC

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from kwire.apis import Handler
    from kwire.apis.access.authority import Authority
    from kwire.apis.access.table import Row
    from kwire.apis.context import RequestContext

_FAILED = ErrorCode.TOPIC_AUTHORIZATION_FAILED
_NO_SUCH_TOPIC = "This server does not host this topic-partition."
_NO_SUCH_ID = "This server does not host this topic ID."


def delete_topics(
    authority: Authority, ctx: RequestContext, request: Any, handler: Handler, row: Row
) -> None:
    if authority.may(ctx, row.needs[0]):
        handler(ctx, request)
        return
    check = _Deletion(authority, ctx, request, row)
    request.topic_names = [name for name in request.topic_names if check.may_name(name)]
    request.topics = [topic for topic in request.topics if check.may_topic(topic)]
    let(ctx, request, handler, add_to("responses", check.refusals))


class _Deletion:
    """Which topics of a request the client may delete. What comes twice is the controller's to refuse."""

    def __init__(self, authority: Authority, ctx: RequestContext, request: Any, row: Row) -> None:
        self.refusals: list[DeletableTopicResult] = []
        _, self._delete, self._describe = row.needs
        self._authority = authority
        self._ctx = ctx
        self._known = ctx.services.metadata
        # An element with name and id is refused by itself: it does not make another one of its name come twice.
        named = [each.name for each in request.topics if each.topic_id == ZERO_UUID]
        self._names = Counter([*request.topic_names, *named])
        self._ids = Counter(each.topic_id for each in request.topics if each.name is None)

    def may_name(self, name: str) -> bool:
        may, ctx = self._authority.may, self._ctx
        if self._names[name] > 1:
            return True
        if not may(ctx, self._describe, name):
            return self._refuse(name, ZERO_UUID)
        if may(ctx, self._delete, name):
            return True
        if not self._known.contains(name):  # here, as the controller may know it already
            code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            return self._refuse(name, ZERO_UUID, code, _NO_SUCH_TOPIC)
        return self._refuse(name, ZERO_UUID)

    def may_topic(self, topic: Any) -> bool:
        may, ctx, topic_id = self._authority.may, self._ctx, topic.topic_id
        if topic.name is not None:
            return topic_id != ZERO_UUID or self.may_name(topic.name)
        if topic_id == ZERO_UUID or self._ids[topic_id] > 1:
            return True
        name = self._known.topic_name(topic_id)
        if name is None:  # here, as above
            return self._refuse(None, topic_id, ErrorCode.UNKNOWN_TOPIC_ID, _NO_SUCH_ID)
        if may(ctx, self._delete, name):
            return True
        return self._refuse(name if may(ctx, self._describe, name) else None, topic_id)

    def _refuse(
        self,
        name: str | None,
        topic_id: bytes,
        code: ErrorCode = _FAILED,
        message: str = MESSAGES[TOPIC],
    ) -> bool:
        self.refusals.append(
            DeletableTopicResult(
                name=name, topic_id=topic_id, error_code=int(code), error_message=message
            )
        )
        return False
