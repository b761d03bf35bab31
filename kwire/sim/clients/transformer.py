"""Consume, transform, produce: transactions with the offsets of what they have read (KIP-447).

What is read is only counted: a transaction goes on where the committed offset is, says in the metadata of
its own which stretch it has read, and writes records that name the transaction. So in the end the stretches
of all committed transactions must follow each other without a gap or an overlap (I46).

`grouped`: members of a group, whose generation fences those before; else one with the transactional id.
"""

from __future__ import annotations

from typing import Any, Final

from kwire.protocol.api import ApiKey
from kwire.protocol.errors import ErrorCode
from kwire.protocol.schemas.offsets import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from kwire.protocol.schemas.transactions import (
    AddOffsetsToTxnRequest,
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from kwire.replication.core.types import TopicPartition
from kwire.sim.clients.base import Setting
from kwire.sim.clients.membership import Membership
from kwire.sim.clients.transactional import TransactionalProducer
from kwire.sim.compaction import PREFIX
from kwire.sim.transactions.offsets import stretch

_OTHER_COORDINATOR: Final = (
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
)
_ABORTED: Final = (
    ErrorCode.ILLEGAL_GENERATION,
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.REBALANCE_IN_PROGRESS,
    ErrorCode.TRANSACTION_ABORTABLE,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
)


class Transformer(TransactionalProducer):
    """One transaction at a time, each with the stretch of one partition that it has read."""

    def __init__(
        self,
        setting: Setting,
        *,
        group: str,
        grouped: int = 0,
        session_ms: int = 1000,
        **options: Any,
    ) -> None:
        super().__init__(setting, **options)
        self._grouped = bool(grouped)
        self._membership = Membership(self, group, session_ms, self._on_assigned)
        self._positions: dict[TopicPartition, int] = {}
        self._input: TopicPartition = ("", -1)
        self._until = 0
        setting.answers.offsets.groups.add(group)

    def _begin_again(self, pause_ms: int = 0) -> None:
        super()._begin_again(pause_ms)
        self._positions.clear()

    def _on_assigned(self) -> None:
        self._positions.clear()

    def _begin(self) -> None:
        """Read some records at the committed offset of a partition."""
        membership = self._membership
        if self._grouped:
            if membership.step():
                return
            if self.random.random() < 0.02:
                membership.leave()
                return
            inputs = membership.assigned
        else:
            if membership.busy:
                return
            if membership.coordinator < 0:
                membership.find()
                return
            inputs = sorted(self.leaders)[:1]
        if not inputs:
            return
        self._input = self.random.choice(inputs)
        if self._input not in self._positions or self.random.random() < 0.1:
            self._fetch_offset(self._input, require_stable=self.random.random() < 0.9)
            return
        self._until = self._positions[self._input] + self.random.randint(1, 3)
        keys = [key for key in self.leaders if not key[0].startswith(PREFIX)]
        self._start(self.random.sample(keys, self.random.randint(0, min(len(keys), 2))))

    def _fetch_offset(self, key: TopicPartition, *, require_stable: bool) -> None:
        """Get the position from the group; one that may still change is only looked at."""
        wanted = OffsetFetchRequestTopics(name=key[0], partition_indexes=[key[1]])
        group = OffsetFetchRequestGroup(group_id=self._membership.group, topics=[wanted])
        request = OffsetFetchRequest(groups=[group], require_stable=require_stable)
        life = self._life

        def fetched(response: Any) -> None:
            if self._membership.is_refused(response.groups[0].error_code):
                return
            data = response.groups[0].topics[0].partitions[0]
            if not data.error_code and require_stable and life == self._life:
                self._positions[key] = max(data.committed_offset, 0)

        self._membership.send(ApiKey.OFFSET_FETCH, 8, request, fetched)

    # --- offsets in the transaction

    def _all_written(self) -> None:
        self._next = self._commit_offsets if self._bumping else self._add_offsets

    def _add_offsets(self) -> None:
        request = AddOffsetsToTxnRequest(
            transactional_id=self._id,
            producer_id=self._producer[0],
            producer_epoch=self._producer[1],
            group_id=self._membership.group,
        )

        def error_of(response: Any) -> int:
            if not response.error_code:
                self._tries = 0
                self._next = self._commit_offsets
            return int(response.error_code)

        self._to_coordinator(ApiKey.ADD_OFFSETS_TO_TXN, 3, request, error_of)

    def _commit_offsets(self) -> None:
        membership, key = self._membership, self._input
        if membership.busy:
            return
        if membership.coordinator < 0:
            membership.find()
            return
        place, start = (membership.group, *key), self._positions[key]
        committed = TxnOffsetCommitRequestPartition(
            partition_index=key[1],
            committed_offset=self._until,
            committed_metadata=stretch(self.name, self.transaction, place, start, self._until),
        )
        topic = TxnOffsetCommitRequestTopic(name=key[0], partitions=[committed])
        request = TxnOffsetCommitRequest(
            transactional_id=self._id,
            group_id=membership.group,
            producer_id=self._producer[0],
            producer_epoch=self._producer[1],
            generation_id_or_member_epoch=membership.generation,
            member_id=membership.member_id,
            topics=[topic],
        )

        def answered(response: Any) -> None:
            if response is not None:
                self._offsets_answered(response.topics[0].partitions[0].error_code)
                return
            membership.coordinator = -1
            if self._bumping:
                self._retry()
            else:
                # A late one would count in the next transaction, which has the same epoch.
                self._begin_again()

        version = 5 if self._bumping else 3
        self._send(
            membership.coordinator, "group", ApiKey.TXN_OFFSET_COMMIT, version, request, answered
        )

    def _offsets_answered(self, error: int) -> None:
        if not error:
            self._tries = 0
            super()._all_written()
        elif error in _OTHER_COORDINATOR:
            self._membership.coordinator = -1
            self._retry()
        elif error in _ABORTED:
            self._membership.is_refused(error)
            self._abort()
        else:
            self._fail(error)

    def _ended(self, commit: bool) -> None:
        if commit and self._input in self._positions:
            self._positions[self._input] = self._until
