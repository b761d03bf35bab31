"""Requests of a broker with client quotas: counted, answered with throttle times, their connections muted (KIP-219).

Answers to kafka.server.RequestHandlerHelper and the throttling in KafkaApis. A response is sent at once and says how
long its connection is throttled; for that time the request stays in flight, so that the connection's next one waits
and the driver stops reading. A broker that never had a quota does not import this.

What differs from Kafka: the response to a Fetch is counted without its tags; of a request that is
worked on in parts, or waits, the time of its first part counts; connections are read ahead for up to 64 KB.
"""

from __future__ import annotations

from kwire.protocol.api import ApiKey
from kwire.quotas.clients import ClientQuotas
from kwire.session import Request

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from kwire.apis.context import RequestContext, Services
    from kwire.protocol.api import RequestHeader
    from kwire.protocol.language.schema import Message
    from kwire.replication.replica.fetch_data import FetchPartitionData
    from kwire.session import Session, Sessions, _Route

_EXEMPT = frozenset(
    (
        *(ApiKey.LEADER_AND_ISR, ApiKey.STOP_REPLICA, ApiKey.UPDATE_METADATA, ApiKey.ENVELOPE),
        *(ApiKey.WRITE_TXN_MARKERS, ApiKey.CONTROLLED_SHUTDOWN),
    )
)
"""Requests of brokers and controllers; a follower's Fetch is exempt, too."""
_RESPONSE_BYTES, _TOPIC_BYTES, _PARTITION_BYTES = 22, 18, 50
"""What a response to a Fetch, a topic and a partition in it have beside names and records, about."""


class Throttling:
    """`Sessions.quotas` and `Services.quotas` of a broker that has, or had, a quota."""

    def __init__(self, services: Services) -> None:
        self.services = services
        self.clock = services.clock
        self.quotas = ClientQuotas(services.config)

    def changed(self, name: str, values: Mapping[str, str]) -> None:
        """Apply all values of an entity of quotas."""
        self.quotas.changed(name, values)

    def handle(
        self, session: Session, frame: memoryview | bytes, header: RequestHeader, route: _Route
    ) -> None:
        """Handle a request, as `Sessions` does without quotas. MalformedMessage."""
        is_large = len(frame) > route.large_bytes
        kind = ThrottledLargeRequest if is_large else ThrottledRequest
        request = session.in_flight = kind(header, session, self, len(frame))
        if is_large:
            request.run_in_parts(session.sessions._decode_and_handle(request, frame, header, route))
        else:
            message, _ = route.decoders[header.api_version](frame, header.body_position)
            route.handler(request, message)
        if request.nanoseconds < 0:
            request.nanoseconds = self.clock.nanoseconds() - request.began

    def most_fetched(self, ctx: RequestContext, max_bytes: int) -> int:
        """`max_bytes`, or less: what an idle consumer gets without being throttled."""
        most = self.quotas.fetch.most_at_once(user_of(ctx), ctx.client_id or "")
        return max_bytes if most is None else min(max_bytes, int(most))

    def throttles_fetch(
        self, ctx: RequestContext, partitions: list[tuple[Any, FetchPartitionData]]
    ) -> bool:
        """Record a consumer's response before it is made; whether it is to be empty, as it is throttled."""
        if not isinstance(ctx, ThrottledRequest):
            return False  # it came before the first quota
        size = _RESPONSE_BYTES
        topic = None
        for partition, data in partitions:
            size += _PARTITION_BYTES + len(data.records)
            if partition.topic != topic:
                topic = partition.topic
                size += _TOPIC_BYTES + (len(topic or "") if ctx.api_version < 13 else 0)
        user, client_id, now_ms = user_of(ctx), ctx.client_id or "", self.clock.now_ms
        request_ms = self.request_ms(ctx)
        bytes_ms = self.quotas.fetch_ms(user, client_id, size, now_ms)
        ctx.throttle_ms = max(request_ms, bytes_ms)
        if ctx.throttle_ms > 0:
            self.quotas.take_back_fetch(user, client_id, size, now_ms)
        return ctx.throttle_ms > 0

    def request_ms(self, request: ThrottledRequest) -> int:
        """Record the time that a request has taken."""
        if request.nanoseconds < 0:
            request.nanoseconds = self.clock.nanoseconds() - request.began
        return self.quotas.request_ms(
            user_of(request), request.client_id or "", request.nanoseconds, self.clock.now_ms
        )

    def throttle_ms(self, request: ThrottledRequest, response: Message | None) -> int:
        """Record a request that is answered (None: without a response), and return the throttle time."""
        key = request.api_key
        if key in _EXEMPT or (key == ApiKey.FETCH and request.throttle_ms == _NOT_COUNTED):
            return 0
        if key == ApiKey.FETCH:
            return request.throttle_ms
        throttle_ms = 0 if response is None else self.request_ms(request)
        if key == ApiKey.PRODUCE:
            user, client_id = user_of(request), request.client_id or ""
            now_ms = self.clock.now_ms
            bytes_ms = self.quotas.produce_ms(user, client_id, request.size, now_ms)
            throttle_ms = max(throttle_ms, bytes_ms)
        if response is not None and hasattr(response, "throttle_time_ms"):
            throttle_ms = max(throttle_ms, response.throttle_time_ms)
        return throttle_ms

    def mute(self, request: ThrottledRequest) -> None:
        """Keep an answered request in flight for its throttle time."""
        session = request.session
        if session.closed or request.throttle_ms <= 0:
            return
        session.in_flight = request
        timers = self.services.timers
        key = "muted", session.connection
        timers.schedule_real(
            key, self.clock.now_ms + request.throttle_ms, lambda: self._unmute(session)
        )
        request.on_disconnect = lambda: timers.cancel(key)

    def _unmute(self, session: Session) -> None:
        sessions: Sessions = session.sessions
        session.in_flight = None
        if session.waiting:
            sessions.runnable.append(session)
        sessions.outbox.ready(session.connection)


_NOT_COUNTED = -1


class ThrottledRequest(Request):
    """A request that is counted. `size`: bytes of its frame; `throttle_ms`: -1 until it is known."""

    __slots__ = ("_throttling", "began", "nanoseconds", "size", "throttle_ms")

    def __init__(
        self, header: RequestHeader, session: Session, throttling: Throttling, size: int
    ) -> None:
        super().__init__(header, session, throttling.services)
        self._throttling = throttling
        self.size = size
        self.began = throttling.clock.nanoseconds()
        self.nanoseconds = -1  # what was spent on it, once known
        self.throttle_ms = _NOT_COUNTED

    def reply(self, response: Message) -> None:
        self._count(response)
        super().reply(response)
        self._throttling.mute(self)

    def reply_in_parts(self, response: Message, *garbage: list[Any] | None) -> None:
        self._count(response)
        super().reply_in_parts(response, *garbage)

    def end_without_response(self) -> None:
        self._count(None)
        super().end_without_response()

    def _end(self, response: Message | None) -> None:
        super()._end(response)
        self._throttling.mute(self)

    def _count(self, response: Message | None) -> None:
        throttle_ms = self.throttle_ms = self._throttling.throttle_ms(self, response)
        if throttle_ms > 0 and response is not None and hasattr(response, "throttle_time_ms"):
            response.throttle_time_ms = throttle_ms


class ThrottledLargeRequest(ThrottledRequest):
    """A counted request that came in a large frame: what answers it may be large, too."""

    __slots__ = ()

    def reply(self, response: Message) -> None:
        self.reply_in_parts(response)


def user_of(ctx: RequestContext) -> str:
    """The name of the user, without its type."""
    return ctx.session.principal.partition(":")[2]
