"""What a hit does to a request, between its decoding and its handler, or between handler and answer.

Each act is called in place of an API's handler, with the handler of what comes after it: another rule, the access
rules, the API's own. Nothing here knows which rule it is of, beyond its values.
"""

from __future__ import annotations

from copy import copy

from kwire.apis.access.checks import Amended, refused
from kwire.apis.parts.results import fail_results, is_empty, merge, names_all, take_out
from kwire.apis.parts.shapes import OFFSET_FETCH_GROUPS, Part, shape_of
from kwire.faults.codes import AFTERWARDS
from kwire.protocol.api import ApiKey, response_class
from kwire.protocol.errors import ErrorCode, MalformedMessage

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from kwire.apis import Handler
    from kwire.apis.context import RequestContext
    from kwire.faults.rules import Rule
    from kwire.protocol.language.schema import Message
    from kwire.session import Session

    NameOf = Callable[[bytes], str | None]
    Act = Callable[["Stroke", RequestContext, Any, Handler], None]

MESSAGE = "a test has set this fault"
"""The text beside the error, where an answer has one."""
_LENGTH_POSITION, _MAGIC_POSITION, _OLD_CRC_POSITION, _CRC_POSITION = 8, 16, 12, 17
_HEADER_BYTES = 12


class Stroke:
    """A rule that is about a request: the names of topics there, and what notes the hit."""

    __slots__ = ("name_of", "note", "rule")

    def __init__(self, rule: Rule, name_of: NameOf, note: Callable[[str], None]) -> None:
        self.rule = rule
        self.name_of = name_of
        self.note = note

    def is_hit(self, part: Part) -> bool:
        return self.rule.allows(part)


def wants_answer(ctx: RequestContext, request: Any) -> bool:
    """Whether a request is answered: no Produce with acks=0."""
    return not (ctx.api_key == ApiKey.PRODUCE and request.acks == 0)


# --- errors


def fail(stroke: Stroke, ctx: RequestContext, request: Any, handler: Handler) -> None:
    """Answer with an error what the rule is about, and handle the rest."""
    rule, key, version = stroke.rule, ApiKey(ctx.api_key), ctx.api_version
    stroke.note(rule.text)
    if not wants_answer(ctx, request):  # as Kafka does with an error that it cannot say
        ctx.close(f"a Produce request with acks=0 failed: {rule.code.name}: {MESSAGE}")
        return
    code, shape = int(rule.code), shape_of(key, version)
    if key is ApiKey.OFFSET_FETCH and not rule.is_of_parts and version >= 8:
        shape = OFFSET_FETCH_GROUPS
    elif not rule.is_of_parts or shape is None or not shape.answered:
        ctx.reply(refused(ctx, request, rule.code, MESSAGE))
        return
    if key is ApiKey.FETCH:
        _fail_fetch(stroke, ctx, request, handler)
        return
    is_hit, name_of = stroke.is_hit, stroke.name_of
    is_late = shape.later or (key, rule.code.name) in AFTERWARDS
    if is_late or names_all(key, version, request):
        by_topic = copy(request)

        def amend(response: Any) -> Message:
            found: Message = fail_results(shape, response, by_topic, is_hit, name_of, code, MESSAGE)
            return found

        handler(Amended(ctx, amend), request)
        return
    results = take_out(shape, request, is_hit, name_of, code, MESSAGE)
    if key is ApiKey.ADD_PARTITIONS_TO_TXN and version < 4:
        # As in Kafka one refused partition keeps all of them from being added.
        others = int(ErrorCode.OPERATION_NOT_ATTEMPTED)
        results += take_out(shape, request, lambda _: True, name_of, others)
    if is_empty(shape, request):
        ctx.reply(merge(shape, response_class(key)(), results))
    else:
        handler(Amended(ctx, lambda response: merge(shape, response, results)), request)


class _Reader:
    """Stands in place of a broker's Authority, as far as Fetch needs it: refuses what a rule is about."""

    def __init__(self, stroke: Stroke, authority: Any) -> None:
        self._stroke = stroke
        self._authority = authority

    def reader(self, ctx: RequestContext, *, is_follower: bool) -> Callable[[str, int], ErrorCode]:
        stroke, others = self._stroke, None
        if self._authority is not None:
            others = self._authority.reader(ctx, is_follower=is_follower)

        def refusal(topic: str, index: int) -> ErrorCode:
            if stroke.is_hit(Part(topic, index)):
                return stroke.rule.code
            return ErrorCode.NONE if others is None else others(topic, index)

        return refusal


def _fail_fetch(stroke: Stroke, ctx: RequestContext, request: Any, handler: Handler) -> None:
    """Let Fetch itself refuse partitions: its session must know what it has answered."""
    ctx.services = copy(ctx.services)
    ctx.services.authority = _Reader(stroke, ctx.services.authority)  # type: ignore[assignment]  # has what Fetch needs
    request.max_wait_ms = 0  # the error is there, nothing is to be waited for
    handler(ctx, request)


# --- time


def delay(stroke: Stroke, ctx: RequestContext, request: Any, handler: Handler) -> None:
    """Handle the request later, as if it had been on its way for so long."""
    stroke.note(stroke.rule.text)
    services, connection = ctx.services, ctx.session.connection
    ctx.session.keeps_frame = True  # records are views of it
    key = "fault", connection

    def go_on() -> None:
        ctx.on_disconnect = None
        try:
            handler(ctx, request)
        except MalformedMessage as error:
            ctx.close(f"malformed request: {error}")

    services.timers.schedule_real(key, services.clock.now_ms + stroke.rule.value, go_on)
    ctx.on_disconnect = lambda: services.timers.cancel(key)


class _Throttled(Amended):
    """A request whose answer says that its connection is throttled, and whose connection is."""

    __slots__ = ("_ms",)

    def __init__(self, whole: RequestContext, throttle_ms: int) -> None:
        super().__init__(whole, lambda response: response)
        self._ms = throttle_ms

    def reply(self, response: Any) -> None:
        if hasattr(response, "throttle_time_ms"):
            response.throttle_time_ms = max(response.throttle_time_ms, self._ms)
        session: Session = self.session  # type: ignore[assignment]  # the protocol of handlers
        request = session.in_flight
        super().reply(response)
        # With a quota the throttle time has muted it already.
        if not session.closed and session.in_flight is None and request is not None:
            self._mute(session, request)

    def reply_in_parts(self, response: Message, *garbage: list[Any] | None) -> None:
        self.reply(response)

    def _mute(self, session: Session, request: Any) -> None:
        """Keep the answered request in flight for its throttle time (KIP-219), as `quotas/requests.py` does."""
        services = self.services
        key = "muted", session.connection

        def unmute() -> None:
            sessions = session.sessions
            session.in_flight = None
            if session.waiting:
                sessions.runnable.append(session)
            sessions.outbox.ready(session.connection)

        session.in_flight = request
        services.timers.schedule_real(key, services.clock.now_ms + self._ms, unmute)
        request.on_disconnect = lambda: services.timers.cancel(key)


def throttle(stroke: Stroke, ctx: RequestContext, request: Any, handler: Handler) -> None:
    """Answer at once with a throttle time, for which the connection is mute."""
    stroke.note(stroke.rule.text)
    handler(_Throttled(ctx, stroke.rule.value), request)


# --- answers that do not come


class _Dropped(Amended):
    """A request whose answer never comes: its connection stays mute until the client gives it up."""

    __slots__ = ()

    def reply(self, response: Message) -> None:
        self._answered()

    def reply_in_parts(self, response: Message, *garbage: list[Any] | None) -> None:
        self._answered()


def drop(stroke: Stroke, ctx: RequestContext, request: Any, handler: Handler) -> None:
    """Handle the request and never answer, or not even that."""
    stroke.note(stroke.rule.text)
    if stroke.rule.value == "after":
        handler(_Dropped(ctx, lambda response: response), request)
    elif not wants_answer(ctx, request):
        ctx.end_without_response()


def close(stroke: Stroke, ctx: RequestContext, request: Any, handler: Handler) -> None:
    """Close the connection instead."""
    stroke.note(stroke.rule.text)
    ctx.close(f"a fault: {MESSAGE}")


# --- records


def corrupt(stroke: Stroke, ctx: RequestContext, request: Any, handler: Handler) -> None:
    """Answer a Fetch with wrong checksums in all batches; one without records is not hit."""
    rule = stroke.rule

    def amend(response: Any) -> Message:
        some = [
            partition
            for topic in response.responses
            for partition in topic.partitions
            if partition.records is not None
            and len(partition.records)
            and stroke.is_hit(
                Part(topic.topic or stroke.name_of(topic.topic_id), partition.partition_index)
            )
        ]
        if some and rule.happens():
            stroke.note(rule.text)
            for partition in some:
                partition.records = corrupted(partition.records)
        return response  # type: ignore[no-any-return]

    handler(Amended(ctx, amend), request)


def corrupted(records: Any) -> bytes:
    """A copy of batches, or of older message sets, with a bit of each checksum changed."""
    found = bytearray(records)
    position = 0
    while position + _CRC_POSITION < len(found):
        is_old = found[position + _MAGIC_POSITION] < 2
        found[position + (_OLD_CRC_POSITION if is_old else _CRC_POSITION)] ^= 1
        start = position + _LENGTH_POSITION
        position += _HEADER_BYTES + int.from_bytes(found[start : start + 4], "big")
    return bytes(found)


BY_NAME: dict[str, Act] = {
    "error": fail,
    "delay": delay,
    "drop": drop,
    "throttle": throttle,
    "corrupt": corrupt,
    "close": close,
}
"""By the names of `rules.ACTS`."""
