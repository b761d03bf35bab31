"""Large requests in parts: the handler of an API runs on some elements at a time.

Most requests are arrays of topics, partitions, resources or groups whose answers do not depend on
each other. One with thousands of them would keep every other client waiting, so it is cut into
requests of the same kind with some of the elements each; the responses are joined. Between two of
them other connections have their turn (replication/core/work.py). So it is as if the client had
sent several requests, one after the other. Elements with the same key stay together, as Kafka
refuses what a request names twice.

Left alone: Metadata and JoinGroup, which look after themselves; Fetch (wide_fetch.py); LeaderAndIsr and
UpdateMetadata with the full state, whose meaning is in what they do not list.

Deliberate difference: Kafka appends the offsets of one OffsetCommit as one batch, and refuses it
when that is larger than max.message.bytes (some 10,000 offsets). Here a commit of more than a
thousand partitions is several batches.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

from kwire.apis.context import RequestContext
from kwire.protocol.api import ApiKey
from kwire.replication.core.metadata import FULL

TYPE_CHECKING = False
if TYPE_CHECKING:
    from kwire.protocol.language.schema import Message
    from kwire.replication.core.work import Steps

    Handler = Callable[[RequestContext, Any], None]


class Cut:
    """How one API is cut.

    `items`: the request's array; `inner`: the arrays in its elements that are cut as well, "" if
    none. `answers` and `inner_answers`: the arrays of the response; `name`: the attribute by which
    answers of one topic in two responses are joined. `most`: elements, or inner elements, of a part;
    `units`: what each of them costs. `key`: elements with equal keys stay together."""

    __slots__ = ("answers", "inner", "inner_answers", "items", "key", "most", "name", "units")

    def __init__(
        self,
        items: str,
        answers: str,
        most: int,
        units: int,
        *,
        inner: str = "",
        inner_answers: str = "",
        name: str = "",
        key: Callable[[Any], object] | None = None,
    ) -> None:
        self.items = items
        self.answers = answers
        self.most = most
        self.units = units
        self.inner = inner
        self.inner_answers = inner_answers
        self.name = name
        self.key = key


def _name(topic: Any) -> object:
    return topic.name


def _resource(resource: Any) -> object:
    return resource.resource_type, resource.resource_name


def _partitions(most: int, units: int, name: str = "name", answers: str = "topics") -> Cut:
    return Cut(
        "topics",
        answers,
        most,
        units,
        inner="partitions",
        inner_answers="partitions",
        name=name,
    )


def _produce(name: str) -> Cut:
    return Cut(
        "topic_data",
        "responses",
        50,
        120,  # the first record of a partition makes its files
        inner="partition_data",
        inner_answers="partition_responses",
        name=name,
    )


_CONFIGS: Final = Cut("resources", "responses", 20, 150, key=_resource)
_CUTS: Final[dict[int, Cut]] = {
    ApiKey.CREATE_TOPICS: Cut("topics", "topics", 10, 700, key=_name),
    ApiKey.CREATE_PARTITIONS: Cut("topics", "results", 10, 700, key=_name),
    ApiKey.ALTER_CONFIGS: _CONFIGS,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: _CONFIGS,
    ApiKey.DESCRIBE_CONFIGS: Cut("resources", "results", 10, 500),
    ApiKey.DELETE_RECORDS: _partitions(200, 20),
    ApiKey.LIST_OFFSETS: _partitions(200, 20),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: _partitions(200, 15, name="topic"),
    ApiKey.OFFSET_COMMIT: _partitions(1000, 10),
    ApiKey.OFFSET_DELETE: _partitions(1000, 10),
    ApiKey.ALTER_PARTITION: _partitions(200, 30, name="topic_name"),
    ApiKey.PRODUCE: _produce("name"),
    ApiKey.DESCRIBE_GROUPS: Cut("groups", "groups", 100, 20),
    ApiKey.DELETE_GROUPS: Cut("groups_names", "results", 100, 40),
}
_PRODUCE_BY_ID: Final = _produce("topic_id")
_BY_NAME: Final = Cut("topic_names", "responses", 20, 300, key=lambda name: name)
_BY_ID: Final = Cut("topics", "responses", 20, 300, key=lambda topic: (topic.name, topic.topic_id))
_OFFSETS: Final = Cut(
    "topics",
    "topics",
    1000,
    4,
    inner="partition_indexes",
    inner_answers="partitions",
    name="name",
)
_GROUPS_OFFSETS: Final = Cut(
    "groups", "groups", 20, 200, inner="topics", inner_answers="topics", name="group_id"
)
_ROLES: Final = Cut(
    "topic_states",
    "topics",
    50,
    150,
    inner="partition_states",
    inner_answers="partition_errors",
    name="topic_id",
)
_STOPS: Final = Cut("topic_states", "partition_errors", 50, 100, inner="partition_states")
_METADATA: Final = Cut("topic_states", "", 200, 20)  # not within a topic: clients count partitions


def cut_of(key: int, version: int, request: Any) -> Cut | None:
    """How to cut a request; None: not at all."""
    if key == ApiKey.DELETE_TOPICS:
        return _BY_NAME if version < 6 else _BY_ID
    if key == ApiKey.PRODUCE and version >= 13:
        return _PRODUCE_BY_ID
    if key == ApiKey.OFFSET_FETCH:
        return _OFFSETS if version < 8 else _GROUPS_OFFSETS
    if key == ApiKey.LEADER_AND_ISR:
        return _ROLES if version >= 5 and request.type != FULL else None
    if key == ApiKey.UPDATE_METADATA:
        return _METADATA if version >= 8 and request.type != FULL else None
    if key == ApiKey.STOP_REPLICA:
        return _STOPS if version >= 3 else None
    return _CUTS.get(key)


def handle_in_parts(ctx: RequestContext, request: Message, handler: Handler) -> Steps:
    """Let `handler` answer the request, in parts if it is large. A part of a request's work."""
    if ctx.api_key == ApiKey.FETCH:
        from kwire.apis.parts.wide_fetch import handle_wide_fetch

        yield from handle_wide_fetch(ctx, request)  # type: ignore[arg-type]
        return
    cut = cut_of(ctx.api_key, ctx.api_version, request)
    items: list[Any] | None = None if cut is None else getattr(request, cut.items)
    if cut is None or items is None or _size(items, cut) <= cut.most:
        handler(ctx, request)
        return
    gathering = _Gathering(ctx, cut)
    for chunk, size in _chunks(items, cut):
        if ctx.answered:
            break
        part = _with(request, cut.items, chunk)
        gathering.begin(handler, part)
        yield size * cut.units
    gathering.all_begun()


def is_cut(ctx: RequestContext, request: Message) -> bool:
    """Whether `handle_in_parts` would cut the request, which is no part of another one."""
    if isinstance(ctx, _Part):
        return False
    cut = cut_of(ctx.api_key, ctx.api_version, request)
    return cut is not None and _size(getattr(request, cut.items) or [], cut) > cut.most


def _size(items: list[Any], cut: Cut) -> int:
    if not cut.inner:
        return len(items)
    return sum(len(getattr(item, cut.inner) or ()) for item in items) + len(items)


def _with(struct: Any, name: str, value: list[Any]) -> Any:
    """A copy of a structure with another list in it."""
    kind = type(struct)
    values = {field: getattr(struct, field) for field in kind.fields}
    return kind(**{**values, name: value})


def _chunks(items: list[Any], cut: Cut) -> Iterator[tuple[list[Any], int]]:
    """The elements in chunks, with the size of each."""
    chunk: list[Any] = []
    size = 0
    for group in _together(items, cut):
        for item, count in group:
            chunk.append(item)
            size += count
            if size >= cut.most and item is group[-1][0]:
                yield chunk, size
                chunk, size = [], 0
    if chunk:
        yield chunk, size


def _together(items: list[Any], cut: Cut) -> Iterator[list[tuple[Any, int]]]:
    """(element, size) of the elements that must stay in one part, in their order."""
    if cut.key is not None:
        groups: dict[object, list[Any]] = {}
        for item in items:
            groups.setdefault(cut.key(item), []).append(item)
        for group in groups.values():
            yield [(item, 1) for item in group]
        return
    for item in items:
        inner = getattr(item, cut.inner) if cut.inner else None
        if inner is None or len(inner) <= cut.most:
            yield [(item, 1 if inner is None else len(inner) + 1)]
            continue
        for start in range(0, len(inner), cut.most):
            some = inner[start : start + cut.most]
            yield [(_with(item, cut.inner, some), len(some))]


class _Part(RequestContext):
    """A part of a request: its response is joined with those of the others."""

    __slots__ = ("_gathering", "response")

    def __init__(self, whole: RequestContext, gathering: _Gathering) -> None:
        super().__init__(whole, whole.session, whole.services)  # type: ignore[arg-type]  # it has all that a header has
        self._gathering = gathering
        self.response: Any = None

    def reply(self, response: Message) -> None:
        assert not self.answered, "a request is answered once"
        self.answered = True
        self.on_disconnect = None
        self.response = response
        self._gathering.reply_if_complete()

    def reply_in_parts(self, response: Message, *garbage: list[Any] | None) -> None:
        self.reply(response)

    def end_without_response(self) -> None:
        self.answered = True
        self._gathering.reply_if_complete()

    def close(self, reason: str) -> None:
        self._gathering.whole.close(reason)


class _Gathering:
    """The parts of one request."""

    def __init__(self, whole: RequestContext, cut: Cut) -> None:
        self.whole = whole
        self._cut = cut
        self._parts: list[_Part] = []
        self._is_complete = False

    def begin(self, handler: Handler, request: Any) -> None:
        part = _Part(self.whole, self)
        self._parts.append(part)
        handler(part, request)

    def all_begun(self) -> None:
        self._is_complete = True
        if not self.whole.answered:
            self.whole.on_disconnect = self._disconnected
            self.reply_if_complete()

    def _disconnected(self) -> None:
        for part in self._parts:
            part.disconnected()

    def reply_if_complete(self) -> None:
        if self._is_complete and all(part.answered for part in self._parts):
            if self._parts[0].response is None:  # none of them has one
                self.whole.end_without_response()
            else:
                self.whole.reply_in_parts(self._joined())

    def _joined(self) -> Message:
        cut = self._cut
        first: Message = self._parts[0].response
        for part in self._parts[1:]:
            _join(first, part.response, cut.answers, cut.inner_answers, cut.name)
        return first


def _join(first: Any, other: Any, answers: str, inner: str, name: str) -> None:
    """Append the answers of another response; an error of the whole response stays."""
    if getattr(other, "error_code", 0) and not first.error_code:
        first.error_code = other.error_code
    if "node_endpoints" in type(other).fields:
        nodes = {node.node_id for node in first.node_endpoints}
        first.node_endpoints += [node for node in other.node_endpoints if node.node_id not in nodes]
    if not answers:
        return
    known, more = getattr(first, answers), getattr(other, answers)
    if name and known and more and getattr(known[-1], name) == getattr(more[0], name):
        getattr(known[-1], inner).extend(getattr(more[0], inner))
        more = more[1:]
    known.extend(more)
