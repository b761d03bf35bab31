"""Fetch requests of hundreds of partitions, in steps (replication/core/work.py); the rules are those of fetch.py.

Between two steps everything may change, so a wide fetch that has to wait looks at all of its
partitions once more when it is parked. That, and the look at those that have changed when it is
answered, are one step: some microseconds for each partition that exists.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from kwire.apis.fetch import _fill, _PendingFetch, _requested_partitions, handle_fetch
from kwire.protocol.errors import KafkaError
from kwire.protocol.schemas.fetch import FetchResponse

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from kwire.apis.context import RequestContext
    from kwire.protocol.schemas.fetch import FetchRequest, FetchTopic
    from kwire.replication.core.types import TopicPartition
    from kwire.replication.core.work import Steps
    from kwire.replication.replica.fetch_data import (
        FetchParams,
        FetchPartition,
        FetchPartitionData,
    )
    from kwire.replication.replica.fetch_session import CachedPartition, FetchContext, SessionKey

_MOST: Final = 200
"""Partitions of a step."""
_UNITS: Final = 5


class _Asked(NamedTuple):
    """Some partitions of a context."""

    asked: dict[SessionKey, CachedPartition]


class WideFetch:
    """What `handle_fetch` is given of a wide fetch, and what it gives back."""

    __slots__ = ("asked", "begun")

    def __init__(self) -> None:
        self.asked: dict[SessionKey, CachedPartition] = {}
        self.begun: tuple[FetchParams, FetchContext] | None = None

    def begin(self, params: FetchParams, context: FetchContext) -> None:
        self.begun = params, context


def handle_wide_fetch(ctx: RequestContext, request: FetchRequest) -> Steps:
    """As `handle_fetch`."""
    wide, services = WideFetch(), ctx.services
    for topics in _some_partitions(request.topics):
        wide.asked |= _requested_partitions(services, topics, ctx.api_version)
        yield _MOST * _UNITS
    handle_fetch(ctx, request, wide)
    if wide.begun is None:
        return
    params, context = wide.begun
    answer = _WidePendingFetch(ctx, context, params.replica_id >= 0)
    yield from answer.sort()
    if answer.failed and params.replica_id >= 0:
        params.max_wait_ms = 0
    results = yield from _read(ctx, params, answer.readable)
    operation = services.replica_manager.fetch_records(
        params, answer.readable, answer.complete, results
    )
    if operation is not None:
        ctx.on_disconnect = operation.cancel


def _some_partitions(topics: list[FetchTopic]) -> Iterator[list[FetchTopic]]:
    """The topics, some partitions at a time."""
    some: list[FetchTopic] = []
    size = 0
    for topic in topics:
        for start in range(0, len(topic.partitions), _MOST):
            part = topic.partitions[start : start + _MOST]
            some.append(type(topic)(topic=topic.topic, topic_id=topic.topic_id, partitions=part))
            size += len(part)
            if size >= _MOST:
                yield some
                some, size = [], 0
    if some:
        yield some


def _read(
    ctx: RequestContext,
    params: FetchParams,
    partitions: list[tuple[TopicPartition, FetchPartition]],
) -> Generator[int, None, list[FetchPartitionData]]:
    """Read all partitions in order, up to `max_bytes` in all."""
    manager = ctx.services.replica_manager
    results: list[FetchPartitionData] = []
    read_bytes = 0
    for start in range(0, len(partitions), _MOST):
        found = manager.read_from_log(params, partitions[start : start + _MOST], read_bytes)
        size_bytes = sum(len(data.records) for data in found)
        read_bytes += size_bytes
        results += found
        yield _MOST * _UNITS + (size_bytes >> 12)
    return results


class _WidePendingFetch(_PendingFetch):
    """A fetch whose partitions are looked at, and whose response is made, in steps."""

    __slots__ = ("_all",)

    def __init__(self, ctx: RequestContext, context: FetchContext, is_follower: bool) -> None:
        nothing: Any = _Asked({})
        super().__init__(ctx, nothing, is_follower)
        self._context = context
        self._all = list(context.asked.items())

    def sort(self) -> Steps:
        """Fill `readable` and `failed`."""
        for start in range(0, len(self._all), _MOST):
            asked: Any = _Asked(dict(self._all[start : start + _MOST]))
            part = _PendingFetch(self._ctx, asked, self._is_follower)
            self._partitions += part._partitions
            self.readable += part.readable
            self.failed += part.failed
            yield _MOST * _UNITS

    def complete(self, results: list[FetchPartitionData], is_converted: bool = False) -> None:
        if self._ctx.api_version < 10 and not is_converted:
            self._ctx.run_in_parts(self._convert(results))
        else:
            self._ctx.run_in_parts(self._answer(results))

    def _answer(self, results: list[FetchPartitionData]) -> Steps:
        pairs = [*zip(self._partitions, results, strict=True), *self.failed]
        yield len(pairs) // 10
        if self.is_throttled(pairs):
            return
        try:
            session_id, answered = self._context.finish(pairs)
        except KafkaError as error:
            self._ctx.reply(FetchResponse(error_code=error.code))
            return
        yield len(pairs) // 2
        response = FetchResponse(session_id=session_id)
        for start in range(0, len(answered), _MOST):
            _fill(self._ctx, response, answered[start : start + _MOST], self._is_follower)
            yield _MOST * _UNITS
        garbage: list[list[Any]] = [pairs, self._all, self._partitions]
        self._ctx.reply_in_parts(response, *garbage)
