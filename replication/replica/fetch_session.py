"""Fetch sessions, leader side: requests and responses list only changed partitions (KIP-227).

Answers to kafka.server.FetchSession / FetchManager. One cache per broker; if it is full of more
valuable sessions no new one is created, and the reader goes on with full requests.

Protocol: epoch -1 ends a session and gets a response without one; epoch 0 is a full request for a
new session (its id in the response, 0: none created); epochs 1, 2, … are incremental, and wrap from
2^31-1 to 1. An incremental response lists only partitions with records, an error, a diverging
epoch, a preferred replica, or a changed high watermark or log start. A partition with records moves
to the end of the session's order, so that a response limit starves no partition.
"""

from __future__ import annotations

from typing import Final

from kwire.protocol.errors import ErrorCode, KafkaError
from kwire.protocol.language.primitives import ZERO_UUID
from kwire.protocol.varint import INT32_MAX
from kwire.replication.replica.fetch_data import FetchPartition

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from random import Random

    from kwire.replication.core.clock import Clock
    from kwire.replication.replica.fetch_data import FetchPartitionData

NO_SESSION: Final = 0
INITIAL_EPOCH: Final = 0
FINAL_EPOCH: Final = -1
MIN_EVICTION_MS: Final = 120_000

SessionKey = tuple[str | bytes, int]
"""(topic id where ids are used, else topic name; partition)."""


class CachedPartition(FetchPartition):
    """One partition of a fetch, with the offsets of the session's last response for it."""

    __slots__ = (
        "answered_log_start_offset",
        "key",
        "partition",
        "session_key",
        "topic",
    )

    def __init__(
        self,
        topic: str | None,
        topic_id: bytes,
        partition: int,
        fetch_offset: int,
        max_bytes: int,
        log_start_offset: int,
        current_leader_epoch: int,
        last_fetched_epoch: int,
    ) -> None:
        """`topic` None: the topic id is unknown so far."""
        self.topic = topic
        self.topic_id = topic_id
        self.partition = partition
        self.fetch_offset = fetch_offset
        self.max_bytes = max_bytes
        self.log_start_offset = log_start_offset
        self.current_leader_epoch = current_leader_epoch
        self.last_fetched_epoch = last_fetched_epoch
        self.key = (topic or "", partition)
        self.session_key: SessionKey = (
            (topic or "", partition) if topic_id == ZERO_UUID else (topic_id, partition)
        )
        self.answered_high_watermark = -1
        self.answered_log_start_offset = -1

    def resolve(self, topic: str) -> None:
        """Set the name of a topic whose id was unknown before."""
        self.topic = topic
        self.key = (topic, self.partition)

    def update_request(self, asked: CachedPartition) -> None:
        self.fetch_offset = asked.fetch_offset
        self.max_bytes = asked.max_bytes
        self.log_start_offset = asked.log_start_offset
        self.current_leader_epoch = asked.current_leader_epoch
        self.last_fetched_epoch = asked.last_fetched_epoch

    def update_answered(self, data: FetchPartitionData) -> bool:
        """Record a response's offsets; True if an incremental response must list the partition."""
        must_respond = len(data.records) > 0
        if data.high_watermark != self.answered_high_watermark:
            self.answered_high_watermark = data.high_watermark
            must_respond = True
        if data.log_start_offset != self.answered_log_start_offset:
            self.answered_log_start_offset = data.log_start_offset
            must_respond = True
        if data.preferred_read_replica >= 0 or data.diverging_epoch is not None:
            must_respond = True
        if data.error:
            # So that the first response without the error lists the partition.
            self.answered_high_watermark = -1
            must_respond = True
        return must_respond


class FetchSession:
    """One reader's partitions, in the order they are served."""

    __slots__ = (
        "created_ms",
        "epoch",
        "id",
        "last_used_ms",
        "partitions",
        "privileged",
        "uses_topic_ids",
    )

    def __init__(
        self,
        session_id: int,
        privileged: bool,
        uses_topic_ids: bool,
        partitions: dict[SessionKey, CachedPartition],
        now_ms: int,
    ) -> None:
        self.id = session_id
        self.privileged = privileged
        self.uses_topic_ids = uses_topic_ids
        self.partitions = partitions
        self.epoch = 1  # of the next request
        self.created_ms = now_ms
        self.last_used_ms = now_ms

    def value(self) -> tuple[bool, int, int]:
        """Sort key for eviction: consumers' sessions before followers', small before large."""
        return self.privileged, len(self.partitions), self.id


class FetchContext:
    """One Fetch request and its session: `asked` lists the partitions to read."""

    __slots__ = ("_cache", "_epoch", "_full", "_privileged", "_session", "_uses_topic_ids", "asked")

    def __init__(
        self,
        cache: FetchSessionCache,
        asked: dict[SessionKey, CachedPartition],
        session: FetchSession | None,
        *,
        full: bool,
        privileged: bool = False,
        uses_topic_ids: bool = False,
    ) -> None:
        self.asked = asked
        self._cache = cache
        self._session = session
        self._epoch = 0 if session is None else session.epoch
        self._full = full
        self._privileged = privileged
        self._uses_topic_ids = uses_topic_ids

    def session_id(self) -> int:
        """The session's id, or NO_SESSION. INVALID_FETCH_SESSION_EPOCH: a later request came."""
        session = self._session
        if session is not None and session.epoch != self._epoch:
            raise KafkaError(ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        return NO_SESSION if session is None else session.id

    def finish(
        self, results: list[tuple[CachedPartition, FetchPartitionData]]
    ) -> tuple[int, list[tuple[CachedPartition, FetchPartitionData]]]:
        """Return (session id, results). INVALID_FETCH_SESSION_EPOCH: a later request came."""
        session = self._session
        if session is not None:
            if session.epoch != self._epoch:
                raise KafkaError(ErrorCode.INVALID_FETCH_SESSION_EPOCH)
            partitions = session.partitions
            answered = []
            for result in results:
                partition, data = result
                if partition.update_answered(data):
                    answered.append(result)
                    if len(data.records) and len(partitions) > 1:
                        del partitions[partition.session_key]
                        partitions[partition.session_key] = partition
            return session.id, answered
        if self._full:
            for partition, data in results:
                partition.update_answered(data)
            session_id = self._cache.create(self._privileged, self._uses_topic_ids, self.asked)
            return session_id, results
        return NO_SESSION, results


class FetchSessionCache:
    """All sessions of a broker, least recently used first."""

    __slots__ = ("_clock", "_max_sessions", "_random", "_sessions")

    def __init__(self, clock: Clock, random: Random, max_sessions: int = 1000) -> None:
        """`max_sessions`: max.incremental.fetch.session.cache.slots."""
        self._clock = clock
        self._random = random
        self._max_sessions = max_sessions
        self._sessions: dict[int, FetchSession] = {}

    def partitions_of(self, session_id: int) -> list[CachedPartition]:
        """The partitions of a session; none if it is not known (any more)."""
        session = self._sessions.get(session_id)
        return [] if session is None else list(session.partitions.values())

    def __len__(self) -> int:
        return len(self._sessions)

    def begin(
        self,
        session_id: int,
        epoch: int,
        asked: dict[SessionKey, CachedPartition],
        forgotten: Iterable[SessionKey],
        *,
        uses_topic_ids: bool,
        is_follower: bool,
    ) -> FetchContext:
        """Open a request's context. Errors of the whole response: FETCH_SESSION_ID_NOT_FOUND,
        INVALID_FETCH_SESSION_EPOCH, FETCH_SESSION_TOPIC_ID_ERROR."""
        if epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            if session_id != NO_SESSION:
                self._sessions.pop(session_id, None)
            return FetchContext(
                self,
                asked,
                None,
                full=epoch == INITIAL_EPOCH,
                privileged=is_follower,
                uses_topic_ids=uses_topic_ids,
            )
        return self._resume(session_id, epoch, asked, forgotten, uses_topic_ids)

    def _resume(
        self,
        session_id: int,
        epoch: int,
        asked: dict[SessionKey, CachedPartition],
        forgotten: Iterable[SessionKey],
        uses_topic_ids: bool,
    ) -> FetchContext:
        """Apply an incremental request to its session (IncrementalFetchContext)."""
        session = self._sessions.get(session_id)
        if session is None:
            raise KafkaError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if session.epoch != epoch:
            raise KafkaError(ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        if session.uses_topic_ids != uses_topic_ids:
            raise KafkaError(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
        partitions = session.partitions
        for key, partition in asked.items():
            known = partitions.get(key)
            if known is None:
                partitions[key] = partition
            else:
                known.update_request(partition)
        for key in forgotten:
            partitions.pop(key, None)
        if not partitions:
            del self._sessions[session_id]
            return FetchContext(self, partitions, None, full=False)
        session.epoch = epoch + 1 if epoch < INT32_MAX else 1
        self._touch(session)
        return FetchContext(self, partitions, session, full=False)

    def create(
        self,
        privileged: bool,
        uses_topic_ids: bool,
        partitions: dict[SessionKey, CachedPartition],
    ) -> int:
        """Create a session and return its id; 0 if there is no room for it."""
        if len(self._sessions) >= self._max_sessions and not self._evict(
            (privileged, len(partitions), 0)
        ):
            return NO_SESSION
        session_id = self._random.randrange(1, INT32_MAX)
        while session_id in self._sessions:
            session_id = self._random.randrange(1, INT32_MAX)
        self._sessions[session_id] = FetchSession(
            session_id, privileged, uses_topic_ids, partitions, self._clock.now_ms
        )
        return session_id

    def _touch(self, session: FetchSession) -> None:
        session.last_used_ms = self._clock.now_ms
        if len(self._sessions) > 1:
            del self._sessions[session.id]
            self._sessions[session.id] = session

    def _evict(self, value: tuple[bool, int, int]) -> bool:
        """Evict a stale session, or else the least valuable one that is worth no more than `value`.

        A follower may evict any consumer's session; a consumer only sessions older than two
        minutes.
        """
        now_ms = self._clock.now_ms
        eldest = next(iter(self._sessions.values()), None)
        if eldest is None:
            return False
        if now_ms - eldest.last_used_ms > MIN_EVICTION_MS:
            del self._sessions[eldest.id]
            return True
        candidates = [
            session.value()
            for session in self._sessions.values()
            if now_ms - session.created_ms > MIN_EVICTION_MS
            or (value[0] and not session.privileged)
        ]
        if not candidates or value < min(candidates):
            return False
        del self._sessions[min(candidates)[2]]
        return True
