"""Fetch sessions, follower side: incremental requests list only changed partitions (KIP-227).

Answers to org.apache.kafka.clients.FetchSessionHandler, as RemoteLeaderEndPoint uses it. The
leader's side is fetch_session.py. One object per fetcher; it mirrors the session that the leader
keeps.

Protocol: (id 0, epoch 0) is a full request for a new session; (id, epoch 0) a full request that
ends the old session first; (id, 1 …) are incremental, 2^31-1 is followed by 1. An error of the
whole response, a response that does not fit its request, and a lost connection lead to a full
request; after FETCH_SESSION_ID_NOT_FOUND without the old id.

Topics go by id if every partition has one (Fetch v13), else all of them by name in version 12. When
this changes Kafka waits for the leader's FETCH_SESSION_TOPIC_ID_ERROR and a backoff for all
partitions; here the session is reset first. Kafka compares all partitions before each request; here
the fetcher names the changed ones (`include`, `forget`), so that the cost of a request does not
depend on the number of idle partitions.
"""

from __future__ import annotations

from typing import Final

from kwire.protocol.errors import ErrorCode
from kwire.protocol.language.primitives import ZERO_UUID
from kwire.protocol.schemas.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic
from kwire.protocol.varint import INT32_MAX
from kwire.replication.core.types import TopicPartition
from kwire.replication.replica.fetch_session import INITIAL_EPOCH, NO_SESSION

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from kwire.protocol.schemas.fetch import FetchResponse, PartitionData


_VERSION_WITH_IDS: Final = 13
_VERSION_WITH_NAMES: Final = 12


class RequestedPartition:
    """One partition of the session, as last requested; `wire` goes into requests."""

    __slots__ = ("key", "topic_id", "wire")

    def __init__(self, key: TopicPartition, topic_id: bytes, wire: FetchPartition) -> None:
        self.key = key
        self.topic_id = topic_id
        self.wire = wire


class FetchSessionHandler:
    """See the module. `partitions`: the session's partitions, as of the last request."""

    __slots__ = (
        "_changed",
        "_forgotten",
        "_topic_names",
        "_uses_ids",
        "_without_id",
        "epoch",
        "id",
        "partitions",
    )

    def __init__(self, session_id: int = NO_SESSION) -> None:
        """`session_id`: of an abandoned session, which the first request ends."""
        self.id = session_id
        self.epoch = INITIAL_EPOCH
        self.partitions: dict[TopicPartition, RequestedPartition] = {}
        self._changed: dict[TopicPartition, None] = {}
        self._forgotten: list[tuple[TopicPartition, bytes]] = []
        self._topic_names: dict[bytes, str] = {}
        self._uses_ids = False
        self._without_id = 0

    # --- partitions of the session

    def include(
        self,
        key: TopicPartition,
        topic_id: bytes,
        fetch_offset: int,
        log_start_offset: int,
        max_bytes: int,
        current_leader_epoch: int,
        last_fetched_epoch: int,
    ) -> None:
        """Set the next request's fields of a partition; unchanged ones add nothing to it."""
        asked = self.partitions.get(key)
        if asked is not None and asked.topic_id != topic_id:
            self.forget(key)
            asked = None
        if asked is None:
            wire = FetchPartition(partition=key[1])
            asked = self.partitions[key] = RequestedPartition(key, topic_id, wire)
            self._topic_names[topic_id] = key[0]
            self._without_id += topic_id == ZERO_UUID
        else:
            wire = asked.wire
            if (
                wire.fetch_offset == fetch_offset
                and wire.log_start_offset == log_start_offset
                and wire.current_leader_epoch == current_leader_epoch
                and wire.last_fetched_epoch == last_fetched_epoch
                and wire.partition_max_bytes == max_bytes
            ):
                return
            # To the end: a partition that has just given records is served last in a full request.
            self.partitions[key] = self.partitions.pop(key)
        wire.fetch_offset = fetch_offset
        wire.log_start_offset = log_start_offset
        wire.partition_max_bytes = max_bytes
        wire.current_leader_epoch = current_leader_epoch
        wire.last_fetched_epoch = last_fetched_epoch
        self._changed[key] = None

    def forget(self, key: TopicPartition) -> None:
        """Remove a partition from the session; no error if it is not in it."""
        asked = self.partitions.pop(key, None)
        if asked is not None:
            self._changed.pop(key, None)
            self._forgotten.append((key, asked.topic_id))
            self._without_id -= asked.topic_id == ZERO_UUID

    # --- requests

    def next_request(self, version: int) -> tuple[FetchRequest, int]:
        """Return the next Fetch request, with its session fields and topics, and its version.

        `version` is the highest allowed."""
        if self._without_id:
            version = min(version, _VERSION_WITH_NAMES)
        uses_ids = version >= _VERSION_WITH_IDS
        if uses_ids is not self._uses_ids:
            self.epoch = INITIAL_EPOCH
        if self.epoch == INITIAL_EPOCH:
            self._uses_ids = uses_ids
            self._topic_names = {a.topic_id: key[0] for key, a in self.partitions.items()}
            topics = _topics(self.partitions.values())
            forgotten: list[ForgottenTopic] = []
        else:
            topics = _topics(self.partitions[key] for key in self._changed)
            forgotten = self._forgotten_topics() if self._forgotten else []
        self._changed.clear()
        self._forgotten.clear()
        request = FetchRequest(
            session_id=self.id,
            session_epoch=self.epoch,
            topics=topics,
            forgotten_topics_data=forgotten,
        )
        return request, version

    def _forgotten_topics(self) -> list[ForgottenTopic]:
        """Leave out partitions included again under the same id: they count as changed."""
        topics: list[ForgottenTopic] = []
        for key, topic_id in self._forgotten:
            asked = self.partitions.get(key)
            if asked is not None and asked.topic_id == topic_id:
                continue
            last = topics[-1] if topics else None
            if last is None or last.topic != key[0] or last.topic_id != topic_id:
                last = ForgottenTopic(topic=key[0], topic_id=topic_id)
                topics.append(last)
            last.partitions.append(key[1])
        return topics

    # --- responses

    def handle_response(
        self, response: FetchResponse, version: int
    ) -> list[tuple[RequestedPartition, PartitionData]] | None:
        """Return the response's partitions, each with its request; None if it must be discarded.

        It must be if `response.error_code` is set or if it does not fit the request. The next
        request is then a full one.
        """
        if response.error_code:
            if response.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND:
                self.id = NO_SESSION
            self.epoch = INITIAL_EPOCH
            return None
        answered: list[tuple[RequestedPartition, PartitionData]] = []
        partitions, names = self.partitions, self._topic_names
        for topic in response.responses:
            name = names.get(topic.topic_id) if version >= _VERSION_WITH_IDS else topic.topic
            for data in topic.partitions:
                asked = partitions.get((name or "", data.partition_index))
                if asked is None or (
                    version >= _VERSION_WITH_IDS and asked.topic_id != topic.topic_id
                ):
                    self.reset()
                    return None
                answered.append((asked, data))
        if self.epoch == INITIAL_EPOCH and len(answered) != len(partitions):
            self.reset()
            return None
        self.id = response.session_id
        if self.id == NO_SESSION:
            self.epoch = INITIAL_EPOCH
        else:
            self.epoch = self.epoch + 1 if self.epoch < INT32_MAX else 1
        return answered

    def reset(self) -> None:
        """Make the next request a full one, which ends the current session."""
        self.epoch = INITIAL_EPOCH


def _topics(partitions: Iterable[RequestedPartition]) -> list[FetchTopic]:
    """Group adjacent partitions of one topic; the order stays."""
    topics: list[FetchTopic] = []
    last: FetchTopic | None = None
    for asked in partitions:
        name = asked.key[0]
        if last is None or last.topic != name or last.topic_id != asked.topic_id:
            last = FetchTopic(topic=name, topic_id=asked.topic_id)
            topics.append(last)
        last.partitions.append(asked.wire)
    return topics
