"""Consumers that read all partitions of a broker in one request, in fetch sessions (KIP-227).

With small limits of size, a minimum of bytes, and a rack: then they read from the replica that the
leader names (KIP-392).
"""

from __future__ import annotations

from typing import Any, Final

from kwire.protocol.api import ApiKey
from kwire.protocol.errors import ErrorCode
from kwire.protocol.schemas.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic
from kwire.replication.core.types import TopicPartition
from kwire.sim.clients.base import Setting
from kwire.sim.clients.consumer import FETCH_VERSION, Reader

_PREFERRED_MS: Final = 1000
"""How long a consumer stays at a follower before the leader is asked again (metadata.max.age.ms)."""

_Asked = dict[TopicPartition, tuple[bytes, FetchPartition]]


class _Session:
    """A session at one broker; `epoch` 0: the next request asks for a new one."""

    __slots__ = ("busy", "epoch", "id", "known")

    def __init__(self) -> None:
        self.id = 0
        self.epoch = 0
        self.busy = False
        self.known: _Asked = {}  # what the broker knows

    def end(self) -> None:
        """Ask for a new session next time, in place of this one."""
        self.epoch = 0
        self.known = {}


class SessionConsumer(Reader):
    """Reads all partitions of a broker in one session."""

    def __init__(
        self,
        setting: Setting,
        *,
        isolation_level: int = 0,
        min_bytes: int = 1,
        max_bytes: int = 1 << 20,
        partition_max_bytes: int = 1 << 16,
        rack: str = "",
    ) -> None:
        super().__init__(setting, isolation_level=isolation_level)
        self._min_bytes = min_bytes
        self._max_bytes = max_bytes
        self._partition_max_bytes = partition_max_bytes
        self._rack = rack
        self._sessions: dict[int, _Session] = {}
        self._preferred: dict[TopicPartition, tuple[int, int]] = {}  # a replica, and until when

    def _fetch_all(self) -> None:
        wanted: dict[int, _Asked] = {node: {} for node in self._sessions}
        for key, (leader, epoch) in self.leaders.items():
            if leader >= 0 and key not in self._busy:
                node, until_ms = self._preferred.get(key, (leader, 0))
                if until_ms < self.clock.now_ms:
                    self._preferred.pop(key, None)
                    node = leader
                asked = self._partition(key, epoch, self._partition_max_bytes)
                wanted.setdefault(node, {})[key] = self._ids[key[0]], asked
        for node, partitions in wanted.items():
            session = self._sessions.setdefault(node, _Session())
            if not session.busy and (partitions or session.known):
                session.busy = True
                self._fetch(node, session, partitions)

    def _fetch(self, node: int, session: _Session, wanted: _Asked) -> None:
        news = {key: asked for key, asked in wanted.items() if session.known.get(key) != asked}
        gone = [
            (key, topic_id)
            for key, (topic_id, _) in session.known.items()
            if key not in wanted or wanted[key][0] != topic_id
        ]
        request = FetchRequest(
            max_wait_ms=100,
            min_bytes=self._min_bytes,
            max_bytes=self._max_bytes,
            isolation_level=self._isolation_level,
            session_id=session.id,
            session_epoch=session.epoch,
            topics=[
                FetchTopic(topic_id=topic_id, partitions=[asked])
                for topic_id, asked in news.values()
            ],
            forgotten_topics_data=[
                ForgottenTopic(topic_id=topic_id, partitions=[key[1]]) for key, topic_id in gone
            ],
            rack_id=self._rack,
        )
        session.known = wanted

        def answered(response: Any) -> None:
            session.busy = False
            if response is None or response.error_code:
                session.end()
                self.refresh()
                return
            session.id = response.session_id
            session.epoch = session.epoch + 1 if session.id else 0
            if not session.id:
                session.known = {}
            self._on_answer(node, wanted, response)

        self.ask(node, "session", ApiKey.FETCH, request, answered, FETCH_VERSION)

    def _on_answer(self, node: int, wanted: _Asked, response: Any) -> None:
        keys = {(topic_id, key[1]): key for key, (topic_id, _) in wanted.items()}
        for topic in response.responses:
            for data in topic.partitions:
                key = keys[topic.topic_id, data.partition_index]
                asked = wanted[key][1]
                if (self._ids.get(key[0]), self._positions.get(key)) != (
                    topic.topic_id,
                    asked.fetch_offset,
                ):
                    continue  # created again, or read at another broker meanwhile
                if data.preferred_read_replica >= 0:
                    until_ms = self.clock.now_ms + _PREFERRED_MS
                    self._preferred[key] = data.preferred_read_replica, until_ms
                elif (data.error_code or data.diverging_epoch.epoch >= 0) and self._preferred.pop(
                    key, (-1, 0)
                )[0] == node:
                    # A follower may not have what the leader has: ask the leader first.
                    if data.error_code != ErrorCode.OFFSET_OUT_OF_RANGE:
                        self.refresh()
                else:
                    self._on_data(key, topic.topic_id, asked.fetch_offset, data)
