"""A whole broker without sockets, whose time passes at once or step by step."""

from __future__ import annotations

from random import Random
from typing import Any

from kwire.advance.advance import Advance
from kwire.broker import Broker
from kwire.protocol import api
from kwire.protocol.record_builder import build_batch
from kwire.protocol.records import Record
from kwire.protocol.schemas.groups import (
    FindCoordinatorRequest,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
)
from kwire.protocol.schemas.offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kwire.protocol.schemas.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kwire.protocol.schemas.topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from kwire.protocol.schemas.transactions import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    InitProducerIdRequest,
)
from kwire.replication.config.broker_config import BrokerConfig
from kwire.replication.core.clock import Clock
from kwire.replication.core.memory_log_store import MemoryLogStore
from kwire.replication.core.metadata import Endpoint
from kwire.replication.core.outbox import Log, Outbox, Reply

HOUR_MS = 3_600_000
SETTINGS = {
    "node.id": "1",
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "2",
    "transaction.state.log.num.partitions": "2",
    "offsets.retention.minutes": "600",
    "transactional.id.expiration.ms": str(14 * HOUR_MS),
    "producer.id.expiration.ms": str(20 * HOUR_MS),
}


class Rig:
    """A whole broker without sockets. Its events: name and Unix ms."""

    def __init__(self, **settings: str) -> None:
        """`settings`: Kafka's keys, "_" for "."."""
        self.clock = Clock(1_000_000, 1_795_000_000_000)
        self.outbox = Outbox(self.clock)
        self.store = store = MemoryLogStore(lambda: self.clock.wall_ms)
        more = {name.replace("_", "."): value for name, value in settings.items()}
        config = BrokerConfig({**SETTINGS, **more})
        self.broker = Broker(config, store, self.clock, self.outbox, Random(1))
        self.broker.start([Endpoint("PLAINTEXT", "localhost", 9092)])
        self.broker.connection_opened(1, "PLAINTEXT", "127.0.0.1")
        self.events: list[tuple[str, int]] = []
        self.replies: list[Reply] = []
        """Those that came in an advance."""

    def drain(self) -> list[Reply]:
        found = self.outbox.drain()
        self.events += [(str(each.event), each.time_ms) for each in found if isinstance(each, Log)]
        return [each for each in found if isinstance(each, Reply)]

    def send(self, version: int, request: Any) -> None:
        """Ask without waiting for the answer."""
        key = api.key_of(request)
        parts = api.encode_request(key, version, 1, "client", request)
        self.broker.receive_frame(1, b"".join(bytes(part) for part in parts)[4:])

    def ask(self, version: int, request: Any) -> Any:
        key = api.key_of(request)
        self.send(version, request)
        for _ in range(1000):
            for reply in self.drain():
                data = b"".join(bytes(part) for part in reply.parts)
                return api.parse_response(key, version, data[4:])[1]
            self.step(self.broker.next_deadline_ms() or 0)
        raise AssertionError(f"no answer to {request}")

    def step(self, due_ms: int) -> None:
        delay_ms = max(0, due_ms - self.clock.now_ms)
        self.clock.now_ms += delay_ms
        self.clock.wall_ms += delay_ms
        self.broker.tick()

    def pass_step_by_step(self, delay_ms: int) -> None:
        end_ms = self.clock.now_ms + delay_ms
        while (due_ms := self.broker.next_deadline_ms()) is not None and due_ms <= end_ms:
            self.step(due_ms)
            self.drain()
        self.step(end_ms)
        self.drain()

    def advance(self, delay_ms: int) -> int:
        """As the driver does, from event to event; how many there were."""
        advance, rounds = Advance(self.broker), 0
        while delay_ms:
            next_ms = advance.next_ms()
            part_ms = delay_ms if next_ms is None else min(delay_ms, max(1, next_ms))
            advance.run(part_ms)
            self.replies += self.drain()
            delay_ms -= part_ms
            rounds += 1
        return rounds

    def busy(self) -> Rig:
        """A record, a member of a group with an offset, an open transaction, an idempotent producer."""
        topic = CreatableTopic(
            name="old",
            num_partitions=1,
            replication_factor=1,
            configs=[CreatableTopicConfig(name="retention.ms", value=str(17 * HOUR_MS))],
        )
        self.ask(5, CreateTopicsRequest(topics=[topic], timeout_ms=1000))
        for kind in (0, 1):
            self.ask(3, FindCoordinatorRequest(key="x", key_type=kind))
        plain = self.ask(4, InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1))
        self.produce(plain.producer_id, plain.producer_epoch, None)
        request = InitProducerIdRequest(transactional_id="x", transaction_timeout_ms=60_000)
        answer = self.ask(4, request)
        added = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id="x",
            v3_and_below_producer_id=answer.producer_id,
            v3_and_below_producer_epoch=answer.producer_epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic(name="old", partitions=[0])],
        )
        self.ask(3, added)
        self.produce(answer.producer_id, answer.producer_epoch, "x")
        self.join()
        return self

    def produce(self, producer_id: int, epoch: int, transactional_id: str | None) -> None:
        batch = build_batch(
            [Record(-1, self.clock.wall_ms, None, b"value")],
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=0,
            is_transactional=transactional_id is not None,
        )
        partition = PartitionProduceData(index=0, records=batch)
        topic = TopicProduceData(name="old", partition_data=[partition])
        request = ProduceRequest(
            transactional_id=transactional_id, acks=-1, timeout_ms=1000, topic_data=[topic]
        )
        answer = self.ask(9, request)
        assert answer.responses[0].partition_responses[0].error_code == 0

    def join(self) -> None:
        join = JoinGroupRequest(
            group_id="x",
            session_timeout_ms=45_000,
            rebalance_timeout_ms=60_000,
            member_id="",
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
        )
        member = self.ask(3, join)
        sync = SyncGroupRequest(
            group_id="x",
            generation_id=member.generation_id,
            member_id=member.member_id,
            assignments=[SyncGroupRequestAssignment(member_id=member.member_id, assignment=b"")],
        )
        assert self.ask(2, sync).error_code == 0
        partition = OffsetCommitRequestPartition(
            partition_index=0, committed_offset=1, committed_metadata=""
        )
        commit = OffsetCommitRequest(
            group_id="x",
            generation_id_or_member_epoch=member.generation_id,
            member_id=member.member_id,
            topics=[OffsetCommitRequestTopic(name="old", partitions=[partition])],
        )
        assert self.ask(6, commit).topics[0].partitions[0].error_code == 0

    def state(self) -> dict[str, Any]:
        services = self.broker.services
        logs = sorted(services.log_manager.logs(), key=lambda log: (log.topic, log.partition))
        groups = services.group_coordinator.runtime.contexts.values()
        transactions = services.transactions.runtime.contexts.values()  # type: ignore[union-attr]
        return {
            "now": (self.clock.now_ms, self.clock.wall_ms),
            "logs": [(x.topic, x.partition, x.log_start_offset, x.log_end_offset) for x in logs],
            "written": [(x.topic, x.active.max_timestamp) for x in logs],
            "producers": [(x.topic, sorted(x.producer_state.producers)) for x in logs],
            "groups": [sorted(each.shard.classic.groups) for each in groups],
            "transactions": [sorted(each.shard.transactions) for each in transactions],
        }
