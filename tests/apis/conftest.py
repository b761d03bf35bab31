"""A broker without sockets: real components on a MemoryLogStore, and requests as objects."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

from kwire.apis.context import Services
from kwire.protocol.record_builder import build_batch
from kwire.protocol.records import Record
from kwire.protocol.schemas.control_plane import (
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrTopicState,
    StopReplicaPartitionState,
    StopReplicaRequest,
    StopReplicaTopicState,
    UpdateMetadataBroker,
    UpdateMetadataEndpoint,
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataTopicState,
)
from kwire.protocol.schemas.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kwire.replication.config.broker_config import BrokerConfig
from kwire.replication.controller.producer_ids import ProducerIdBlocks, ProducerIds
from kwire.replication.core.clock import Clock, Timers
from kwire.replication.core.memory_log_store import MemoryLogStore
from kwire.replication.core.metadata import TOPIC_RESOURCE, MetadataCache
from kwire.replication.core.work import WorkQueue
from kwire.replication.log_dirs.manager import LogManager
from kwire.replication.replica.fetch_session import FetchSessionCache
from kwire.replication.replica.manager import ReplicaManager

sys.path.insert(0, str(Path(__file__).parent))  # for the helpers of this folder

from recorded import NO_RESPONSE, PARKED, RecordedContext


def topic_id(name: str) -> bytes:
    return name.encode().ljust(16, b"\x01")


def batch(*values: bytes, **options: Any) -> bytes:
    """One v2 batch of unkeyed records; timestamps 1000, 1001, …"""
    records = [Record(-1, 1000 + i, None, value) for i, value in enumerate(values)]
    return build_batch(records, **options)


class Node:
    """Broker 1 of a cluster. Brokers in `alive` are in the metadata; others do not exist."""

    def __init__(self, settings: dict[str, str] | None = None, alive: Iterable[int] = (1, 2)):
        self.clock = Clock(now_ms=10_000_000, wall_ms=1_700_000_000_000)
        self.timers = Timers()
        self.store = MemoryLogStore()
        self.config = BrokerConfig({"node.id": "1", **(settings or {})})
        self.metadata = MetadataCache()
        self.log_manager = LogManager(self.store, self.clock, self.timers, self.config)
        self.log_manager.load()
        self.manager = ReplicaManager(
            node_id=1,
            clock=self.clock,
            timers=self.timers,
            config=self.config,
            log_manager=self.log_manager,
            metadata=self.metadata,
        )
        self.alive = list(alive)
        self.services = Services(
            node_id=1,
            cluster_id="test",
            clock=self.clock,
            timers=self.timers,
            work=WorkQueue(self.clock),
            random=Random(1),
            config=self.config,
            metadata=self.metadata,
            replica_manager=self.manager,
            log_manager=self.log_manager,
            controller=SimpleNamespace(),  # type: ignore[arg-type]
            group_coordinator=SimpleNamespace(),  # type: ignore[arg-type]
            producer_ids=ProducerIds(ProducerIdBlocks(self.store)),
            fetch_sessions=FetchSessionCache(self.clock, Random(2), 10),
            log_dir="/data",
        )
        self.session = SimpleNamespace(
            connection=1, listener_name="PLAINTEXT", peer_host="test", principal="User:ANONYMOUS"
        )
        self.replies: list[Any] = []
        self.closed: list[str] = []
        self.update_metadata()

    # The controller's orders

    def update_metadata(
        self, topic: str | None = None, leaders: dict[int, int] | None = None, **fields: Any
    ) -> int:
        states = []
        if topic is not None:
            states.append(
                UpdateMetadataTopicState(
                    topic_name=topic,
                    topic_id=topic_id(topic),
                    partition_states=[
                        UpdateMetadataPartitionState(
                            partition_index=index, leader=leader, leader_epoch=0, replicas=[1, 2]
                        )
                        for index, leader in (leaders or {0: 1}).items()
                    ],
                )
            )
        brokers = [
            UpdateMetadataBroker(
                id=i,
                endpoints=[
                    UpdateMetadataEndpoint(
                        port=9090 + i, host=f"host{i}", listener="PLAINTEXT", security_protocol=0
                    )
                ],
                rack=None,
            )
            for i in self.alive
        ]
        request = UpdateMetadataRequest(topic_states=states, live_brokers=brokers, **fields)
        return self.manager.update_metadata(request).error_code

    def order(
        self,
        topic: str = "t",
        index: int = 0,
        *,
        leader: int = 1,
        leader_epoch: int = 0,
        partition_epoch: int = 0,
        replicas: Iterable[int] = (1,),
        isr: Iterable[int] | None = None,
        id_: bytes | None = None,
        version: int = 7,
        **fields: Any,
    ) -> int:
        """LeaderAndIsr for one partition; the partition's error, or the whole answer's."""
        state = LeaderAndIsrPartitionState(
            partition_index=index,
            leader=leader,
            leader_epoch=leader_epoch,
            partition_epoch=partition_epoch,
            replicas=list(replicas),
            isr=list(replicas if isr is None else isr),
        )
        named = LeaderAndIsrTopicState(
            topic_name=topic,
            topic_id=topic_id(topic) if id_ is None else id_,
            partition_states=[state],
        )
        response = self.manager.become_leader_or_follower(
            LeaderAndIsrRequest(topic_states=[named], **fields), version
        )
        if response.error_code:
            return response.error_code
        errors = response.topics[0].partition_errors if version >= 5 else response.partition_errors
        return errors[0].error_code

    def create(
        self,
        topic: str = "t",
        partitions: int = 1,
        config: dict[str, str] | None = None,
        **order: Any,
    ) -> None:
        """A topic that this node leads."""
        if config:
            self.metadata.set_config(TOPIC_RESOURCE, topic, config)
        self.update_metadata(topic, dict.fromkeys(range(partitions), 1))
        for index in range(partitions):
            assert self.order(topic, index, **order) == 0

    def stop(
        self,
        topic: str = "t",
        index: int = 0,
        *,
        leader_epoch: int = -2,
        delete: bool = True,
        **fields: Any,
    ) -> int:
        request = StopReplicaRequest(
            topic_states=[
                StopReplicaTopicState(
                    topic_name=topic,
                    partition_states=[
                        StopReplicaPartitionState(
                            partition_index=index,
                            leader_epoch=leader_epoch,
                            delete_partition=delete,
                        )
                    ],
                )
            ],
            **fields,
        )
        response = self.manager.stop_replicas(request)
        return response.error_code or response.partition_errors[0].error_code

    # Requests

    def context(self, version: int, client_id: str = "client") -> RecordedContext:
        """A request's context; what is replied later goes to `replies`."""
        return RecordedContext(
            version,
            self.session,
            self.services,
            client_id=client_id,
            later=self.replies,
            closed=self.closed,
        )

    def produce(
        self,
        records: bytes | None,
        topic: str = "t",
        index: int = 0,
        *,
        acks: int = -1,
        version: int = 11,
        client_id: str = "client",
    ) -> Any:
        """The partition's answer; PARKED or NO_RESPONSE as they are."""
        from kwire.apis.produce import handle_produce

        request = ProduceRequest(
            acks=acks,
            timeout_ms=1000,
            topic_data=[
                TopicProduceData(
                    name=topic if version < 13 else "",
                    topic_id=topic_id(topic) if version >= 13 else bytes(16),
                    partition_data=[PartitionProduceData(index=index, records=records)],
                )
            ],
        )
        context = self.context(version, client_id)
        response = context.handled_by(handle_produce, self.wire(request, version))
        if response in (PARKED, NO_RESPONSE):
            return response
        return self.wire(response, version).responses[0].partition_responses[0]

    def call(self, handler: Any, request: Any, version: int) -> Any:
        """A request through its bytes, and its answer through its bytes."""
        response = self.context(version).handled_by(handler, self.wire(request, version))
        return response if response is PARKED else self.wire(response, version)

    def wire(self, message: Any, version: int) -> Any:
        """What the other side sees of a message."""
        return type(message).decode(message.encode(version), version)

    def advance(self, ms: int) -> None:
        self.clock.now_ms += ms
        self.clock.wall_ms += ms
        self.timers.fire(self.clock.now_ms)

    def log(self, topic: str = "t", index: int = 0) -> Any:
        return self.manager.partition(topic, index).log

    def waiting(self) -> int:
        m = self.manager
        return len(m.fetch_purgatory) + len(m.produce_purgatory) + len(m.delete_records_purgatory)


@pytest.fixture
def node() -> Node:
    return Node()


@pytest.fixture
def make_node() -> type[Node]:
    return Node


@pytest.fixture
def make_batch() -> Any:
    return batch


@pytest.fixture
def id_of() -> Any:
    return topic_id
