"""A client that looks up offsets: the earliest, the latest, by time; several partitions a request."""

from __future__ import annotations

from typing import Any

from kwire.protocol.api import ApiKey
from kwire.protocol.schemas.offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from kwire.replication.core.types import TopicPartition
from kwire.replication.replica.lookup import (
    EARLIEST_TIMESTAMP,
    LATEST_TIMESTAMP,
    MAX_TIMESTAMP,
)
from kwire.sim.clients.base import Client, Setting


class Lookups(Client):
    """Sends ListOffsets again and again; `answers/lookups.py` checks what comes back."""

    def __init__(self, setting: Setting) -> None:
        super().__init__(setting)
        self._pause_ms = 2 * setting.plan.work_pause_ms
        self._began_ms = self.clock.wall_ms
        self.later("work", 3, self._work)

    def _work(self) -> None:
        if self.stopping:
            return
        self.later("work", 1 + int(self._pause_ms * 2 * self.random.random()), self._work)
        if not self.leaders or self.random.random() < 0.1:
            self.refresh()
        by_leader: dict[int, list[tuple[TopicPartition, int]]] = {}
        for key, (leader, epoch) in self.leaders.items():
            if leader >= 0 and self.random.random() < 0.5:
                by_leader.setdefault(leader, []).append((key, epoch))
        for leader, partitions in by_leader.items():
            self._ask(leader, partitions)

    def _ask(self, leader: int, partitions: list[tuple[TopicPartition, int]]) -> None:
        topics: dict[str, ListOffsetsTopic] = {}
        for (name, index), epoch in partitions:
            if name not in topics:
                topics[name] = ListOffsetsTopic(name=name, partitions=[])
            topics[name].partitions.append(
                ListOffsetsPartition(
                    partition_index=index, current_leader_epoch=epoch, timestamp=self._timestamp()
                )
            )
        request = ListOffsetsRequest(
            replica_id=-1,
            isolation_level=int(self.random.random() < 0.5),
            topics=list(topics.values()),
        )

        def answered(response: Any) -> None:
            if response is None:
                self.refresh()

        self.ask(leader, "lookups", ApiKey.LIST_OFFSETS, request, answered, 7)

    def _timestamp(self) -> int:
        special = (EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, MAX_TIMESTAMP)
        if self.random.random() < 0.5:
            return special[int(self.random.random() * 3)]
        passed_ms = self.clock.wall_ms - self._began_ms
        return self._began_ms + int(passed_ms * 1.1 * self.random.random())
