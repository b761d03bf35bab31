"""A leader whose followers and controller are played by the test, on the brokers of `follower_rig`."""

from __future__ import annotations

from typing import Any

from follower_rig import Node, Rig, topic_id

from kwire.protocol import api
from kwire.protocol.schemas.control_plane import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    AlterPartitionResponsePartitionData,
    AlterPartitionResponseTopicData,
)
from kwire.replication.replica.alter_partition import AlterPartitionManager
from kwire.replication.replica.fetch_data import FetchParams, FetchPartition, FetchPartitionData

CONTROLLER = 1000


class ControllerPeers:
    """Peers of which the only one is a controller; requests and answers go through their bytes."""

    def __init__(self) -> None:
        self.asked: list[tuple[int, str, AlterPartitionRequest]] = []
        self._answers: list[Any] = []

    def send(
        self, node: int, channel: str, key: int, version: int, request: Any, on_response: Any
    ) -> int:
        assert (key, channel) == (api.ApiKey.ALTER_PARTITION, "controller")
        body = request.encode(version)
        self.asked.append((node, version, type(request).decode(body, version)))
        self._answers.append((version, on_response))
        return len(self.asked)

    @property
    def in_flight(self) -> int:
        return len(self._answers)

    def answer(self, response: AlterPartitionResponse | None) -> None:
        """The oldest request's answer; None: its connection was lost."""
        version, on_response = self._answers.pop(0)
        if response is not None:
            response = AlterPartitionResponse.decode(response.encode(version), version)
        on_response(response)


class Leader:
    """Broker 1 of three. The others live, but fetch only when the test says so."""

    def __init__(self, settings: dict[str, str] | None = None) -> None:
        self.rig = Rig(3, settings=settings)
        self.node: Node = self.rig[1]
        self.manager = self.node.manager
        self.peers = ControllerPeers()
        self.controller: int | None = CONTROLLER
        self.unavailable: list[int] = []  # controllers that did not answer as such
        self.proposals = AlterPartitionManager(
            self.manager,
            self.peers,  # type: ignore[arg-type]
            lambda: self.controller,
            self.rig.clock,
            self.node.timers,
            on_unavailable=self.unavailable.append,
        )
        self.manager.isr_proposer = self.proposals.submit
        self.logged = self.node.logged
        self.answers: list[FetchPartitionData] = []

    def lead(self, epoch: int = 1, **order: Any) -> None:
        """LeaderAndIsr to broker 1 alone: replicas 1, 2, 3, all in sync unless told."""
        order.setdefault("replicas", [1, 2, 3])
        self.rig.lead(order.pop("leader", 1), epoch, to=[1], **order)

    def partition(self, index: int = 0) -> Any:
        return self.manager.by_key["t", index]

    def append(self, count: int = 1, index: int = 0) -> None:
        self.node.produce(count, index=index)

    def produce(self, count: int = 1, timeout_ms: int = 1000) -> list[Any]:
        """With acks=all; the list gets the result when it is answered."""
        done: list[Any] = []
        result = self.manager.append_to_leader("t", 0, self.rig.batch(count), -1)
        if result.required_offset < 0:
            return [result]
        self.manager.await_replication(
            [(("t", 0), result)], timeout_ms, lambda: done.append(result)
        )
        self.manager.complete_waiting(("t", 0))
        return done

    def fetch(
        self, follower: int, offset: int, *, index: int = 0, wait_ms: int = 0, **fields: Any
    ) -> FetchPartitionData | None:
        """One partition's answer; None: it waits, and will be in `answers`."""
        epoch = fields.pop("replica_epoch", -1)
        rack = fields.pop("rack", "")
        fields.setdefault("log_start_offset", 0)
        params = FetchParams(
            replica_id=follower,
            replica_epoch=epoch,
            max_wait_ms=wait_ms,
            min_bytes=1,
            fetch_only_leader=follower >= 0,
            rack_id=rack,
        )
        before = len(self.answers)
        answered = fields.pop("answered_high_watermark", -1)
        asked = FetchPartition(offset, 1 << 20, **fields)
        asked.answered_high_watermark = answered
        self.manager.fetch_records(
            params, [(("t", index), asked)], lambda results: self.answers.extend(results)
        )
        return self.answers.pop() if len(self.answers) > before else None

    def wait(self, ms: int) -> None:
        """Broker 1's time; the others' stands still."""
        end_ms = self.rig.clock.now_ms + ms
        while (due := self.node.timers.next_deadline_ms()) is not None and due <= end_ms:
            self.rig._set_time(max(due, self.rig.clock.now_ms))
            self.node.timers.fire(self.rig.clock.now_ms)
        self.rig._set_time(end_ms)

    def ends(self) -> tuple[int, int]:
        """(high watermark, log end)."""
        log = self.node.log()
        return log.high_watermark, log.log_end_offset

    # The controller's side

    def asked(self, number: int = -1) -> dict[tuple[str, int], tuple[int, int, dict[int, int]]]:
        """A request: partition → (leader epoch, partition epoch, {member: broker epoch})."""
        _, version, request = self.peers.asked[number]
        found = {}
        for topic in request.topics:
            name = topic.topic_name if version < 2 else topic.topic_id.rstrip(b"\1").decode()
            for p in topic.partitions:
                members = (
                    {m.broker_id: m.broker_epoch for m in p.new_isr_with_epochs}
                    if version >= 3
                    else dict.fromkeys(p.new_isr, -1)
                )
                found[name, p.partition_index] = (p.leader_epoch, p.partition_epoch, members)
        return found

    def agree(self, **fields: Any) -> None:
        """The controller answers the oldest request with success, or what `fields` say of partition 0."""
        _, _, request = self.peers.asked[-self.peers.in_flight]
        topics = []
        for topic in request.topics:
            answers = []
            for p in topic.partitions:
                members = [m.broker_id for m in p.new_isr_with_epochs] or list(p.new_isr)
                values: dict[str, Any] = {
                    "leader_id": 1,
                    "leader_epoch": p.leader_epoch,
                    "isr": members,
                    "partition_epoch": p.partition_epoch + 1,
                    **fields,
                }
                answers.append(
                    AlterPartitionResponsePartitionData(partition_index=p.partition_index, **values)
                )
            topics.append(
                AlterPartitionResponseTopicData(
                    topic_name=topic.topic_name, topic_id=topic.topic_id, partitions=answers
                )
            )
        self.peers.answer(AlterPartitionResponse(topics=topics))

    def refuse(self, error: int) -> None:
        """The controller answers every partition of the oldest request with this error."""
        self.agree(error_code=error, leader_epoch=0, isr=[], partition_epoch=0)


__all__ = ["CONTROLLER", "AlterPartitionResponse", "Leader", "topic_id"]
