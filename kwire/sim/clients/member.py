"""Members of a consumer group (classic protocol): join, get partitions, commit offsets, read them again.

What they commit has nothing to do with records: each commit has a number of its own as its metadata,
so that `answers/commits.py` can tell which one a coordinator answers with.
"""

from __future__ import annotations

from typing import Any, Final

from kwire.protocol.api import ApiKey
from kwire.protocol.errors import ErrorCode
from kwire.protocol.schemas.offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from kwire.sim.clients.base import Client, Setting
from kwire.sim.clients.membership import Membership

_LATE_COMMITS: Final = 0.03
_FOREIGN_COMMITS: Final = 0.02


class Member(Client):
    """One member. It has one request in flight at a time, as long as it is in the group."""

    def __init__(
        self,
        setting: Setting,
        *,
        group: str = "group",
        session_ms: int = 1000,
        stable: int = 0,
        static: int = 0,
        patience: int = 1,
    ) -> None:
        """`stable`: whether it reads offsets with require_stable (KIP-447). `static`: whether it has a
        group.instance.id. `patience`: its rebalance time-out, in sessions."""
        super().__init__(setting)
        self._stable = bool(stable)
        self._pause_ms = setting.plan.work_pause_ms
        self._membership = Membership(self, group, session_ms, self._on_assigned)
        self._membership.instance = setting.name if static else None
        self._membership.rebalance_ms = patience * session_ms
        self._must_fetch = False
        self._commits = 0
        self.later("work", 5, self._work)

    def _on_assigned(self) -> None:
        self._must_fetch = bool(self._membership.assigned)

    def _work(self) -> None:
        if self.stopping:
            return
        self.later("work", 1 + int(self._pause_ms * 2 * self.random.random()), self._work)
        if not self.leaders or self.random.random() < 0.02:
            self.refresh()
        if self.leaders and not self._membership.step():
            self._stay()

    def _stay(self) -> None:
        chance, assigned = self.random.random(), self._membership.assigned
        if self._must_fetch:
            self._fetch()
        elif chance < 0.01:
            self._membership.leave()
        elif chance < 0.02:
            self._membership.restart()
        elif assigned and chance < 0.15:
            self._fetch()
        elif assigned:
            self._commit()

    def _commit(self) -> None:
        topics: dict[str, OffsetCommitRequestTopic] = {}
        for name, index in self.random.sample(
            self._membership.assigned, min(len(self._membership.assigned), 2)
        ):
            self._commits += 1
            if name not in topics:
                topics[name] = OffsetCommitRequestTopic(name=name, partitions=[])
            topics[name].partitions.append(
                OffsetCommitRequestPartition(
                    partition_index=index,
                    committed_offset=self._commits,
                    committed_metadata=f"{self.name}/{self._commits}",
                )
            )
        late = self.random.random() < _LATE_COMMITS  # as by a thread that has slept since
        foreign = self.random.random() < _FOREIGN_COMMITS  # as by a tool, while the group is in use
        generation = self._membership.generation
        request = OffsetCommitRequest(
            group_id=self._membership.group,
            generation_id_or_member_epoch=-1 if foreign else generation - (late and generation > 0),
            member_id="" if foreign else self._membership.member_id,
            group_instance_id=None if foreign else self._membership.instance,
            topics=list(topics.values()),
        )

        def committed(response: Any) -> None:
            errors = {p.error_code for topic in response.topics for p in topic.partitions}
            for error in sorted(errors - {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}):
                if not foreign:
                    self._membership.is_refused(error)

        self._membership.send(ApiKey.OFFSET_COMMIT, 8, request, committed)

    def _fetch(self) -> None:
        topics: dict[str, OffsetFetchRequestTopics] = {}
        for name, index in self._membership.assigned:
            if name not in topics:
                topics[name] = OffsetFetchRequestTopics(name=name, partition_indexes=[])
            topics[name].partition_indexes.append(index)
        request = OffsetFetchRequest(
            groups=[
                OffsetFetchRequestGroup(
                    group_id=self._membership.group, topics=list(topics.values())
                )
            ],
            require_stable=self._stable,
        )

        def fetched(response: Any) -> None:
            if not self._membership.is_refused(response.groups[0].error_code):
                self._must_fetch = False

        self._membership.send(ApiKey.OFFSET_FETCH, 8, request, fetched)
