"""Consumers: all partitions from the start, one a request. `sessions.py` has those with sessions."""

from __future__ import annotations

from typing import Any, Final

from kwire.protocol.api import ApiKey
from kwire.protocol.errors import ErrorCode
from kwire.protocol.records import check_crc, iter_batches
from kwire.protocol.schemas.fetch import FetchPartition, FetchRequest, FetchTopic
from kwire.protocol.schemas.offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from kwire.replication.core.types import TopicPartition
from kwire.sim.clients.base import Client, Setting

FETCH_VERSION: Final = 13
_REWINDS: Final = 0.02
"""How often a reader goes back to the start of a partition, so that old segments are read, too."""


def _whole(records: bytes) -> bytes:
    """The batches before the first that is damaged (check.crcs)."""
    for header in iter_batches(records):
        if not check_crc(records, header):
            return records[: header.position]
    return records


class Reader(Client):
    """What consumers have in common: positions, epochs, the reset on OFFSET_OUT_OF_RANGE."""

    def __init__(self, setting: Setting, *, isolation_level: int) -> None:
        super().__init__(setting)
        self._isolation_level = isolation_level
        self._pause_ms = 2 * setting.plan.work_pause_ms
        self._answers = setting.answers
        self._positions: dict[TopicPartition, int] = {}
        self._epochs: dict[TopicPartition, int] = {}  # of the last batch read
        self._ids: dict[str, bytes] = {}
        self._busy: set[TopicPartition] = set()
        self.later("work", 2, self._work)

    def on_topic(self, topic: str, topic_id: bytes) -> None:
        if self._ids.get(topic) != topic_id:
            self._ids[topic] = topic_id
            for key in [key for key in self._positions if key[0] == topic]:
                del self._positions[key]
                self._epochs.pop(key, None)

    def _work(self) -> None:
        if self.stopping:
            return
        self.later("work", 1 + int(self._pause_ms * 2 * self.random.random()), self._work)
        if not self.leaders or self.random.random() < 0.05:
            self.refresh()
        if self._positions and self.random.random() < _REWINDS:
            key = self.random.choice(list(self._positions))
            if key not in self._busy:
                self._positions[key] = 0
                self._epochs.pop(key, None)
        self._fetch_all()

    def _fetch_all(self) -> None:
        """Send the fetches that are due."""
        raise NotImplementedError

    def _partition(self, key: TopicPartition, epoch: int, max_bytes: int) -> FetchPartition:
        return FetchPartition(
            partition=key[1],
            current_leader_epoch=epoch,
            fetch_offset=self._positions.setdefault(key, 0),
            last_fetched_epoch=self._epochs.get(key, -1),
            partition_max_bytes=max_bytes,
        )

    def _on_data(self, key: TopicPartition, topic_id: bytes, position: int, data: Any) -> None:
        """Take the answer for one partition, asked for at `position`."""
        if data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            self._find_position(key, topic_id)
        elif data.error_code:
            self.refresh()
        elif data.diverging_epoch.epoch >= 0:
            self._answers.check_reset(topic_id, key)
            self._positions[key] = min(position, data.diverging_epoch.end_offset)
            self._epochs[key] = data.diverging_epoch.epoch
        elif data.records:
            records = _whole(bytes(data.records))
            self._answers.check_delivered(topic_id, key, position, records)
            for header in iter_batches(records):
                self._positions[key] = header.next_offset
                self._epochs[key] = header.partition_leader_epoch

    def _find_position(self, key: TopicPartition, topic_id: bytes) -> None:
        leader, epoch = self.leaders.get(key, (-1, -1))
        if leader < 0:
            return
        asked = ListOffsetsPartition(
            partition_index=key[1], current_leader_epoch=epoch, timestamp=-2
        )
        topic = ListOffsetsTopic(name=key[0], partitions=[asked])
        request = ListOffsetsRequest(replica_id=-1, topics=[topic])

        def answered(response: Any) -> None:
            self._busy.discard(key)
            if response is None or self._ids.get(key[0]) != topic_id:
                return
            data = response.topics[0].partitions[0]
            if not data.error_code:
                self._answers.check_reset(topic_id, key)
                self._positions[key] = data.offset
                self._epochs.pop(key, None)

        self._busy.add(key)
        channel = f"f{key[0]}-{key[1]}"
        self.ask(leader, channel, ApiKey.LIST_OFFSETS, request, answered, 7)


class Consumer(Reader):
    """Reads each partition with requests of its own."""

    def _fetch_all(self) -> None:
        for key, (leader, epoch) in self.leaders.items():
            if leader >= 0 and key not in self._busy:
                self._busy.add(key)
                self._fetch(key, leader, epoch)

    def _fetch(self, key: TopicPartition, leader: int, epoch: int) -> None:
        topic_id = self._ids[key[0]]
        asked = self._partition(key, epoch, 1 << 16)
        position = asked.fetch_offset
        request = FetchRequest(
            max_wait_ms=100,
            min_bytes=1,
            max_bytes=1 << 20,
            isolation_level=self._isolation_level,
            topics=[FetchTopic(topic_id=topic_id, partitions=[asked])],
        )

        def answered(response: Any) -> None:
            self._busy.discard(key)
            known = response is not None and self._ids.get(key[0]) == topic_id
            if not known or not response.responses:
                self.refresh()
            else:
                self._on_data(key, topic_id, position, response.responses[0].partitions[0])

        channel = f"f{key[0]}-{key[1]}"
        self.ask(leader, channel, ApiKey.FETCH, request, answered, FETCH_VERSION)
