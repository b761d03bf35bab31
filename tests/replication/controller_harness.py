"""A controller with brokers that record what they are told and answer as brokers do; time is virtual."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from random import Random
from typing import Any

from event_recorder import Recorder

from kwire.protocol.errors import ErrorCode, KafkaError
from kwire.protocol.schemas.control_plane import (
    AlterPartitionRequest,
    BrokerState,
    ControlledShutdownRequest,
    LeaderAndIsrPartitionError,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    LeaderAndIsrTopicError,
    PartitionData,
    StopReplicaPartitionError,
    StopReplicaRequest,
    StopReplicaResponse,
    TopicData,
    UpdateMetadataRequest,
    UpdateMetadataResponse,
)
from kwire.protocol.schemas.nodes import (
    BrokerHeartbeatRequest,
    BrokerRegistrationRequest,
    Listener,
)
from kwire.protocol.schemas.topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    DeleteTopicState,
)
from kwire.replication.config.broker_config import BrokerConfig
from kwire.replication.controller.controller import Controller
from kwire.replication.controller.state import DeposedError, PartitionState
from kwire.replication.core.clock import Clock, Timers


class ListJournal:
    """Records in memory; `fail` makes the next append fail. Several may share one list: the last to write wins."""

    def __init__(self, records: list[Any] | None = None) -> None:
        self.records: list[Any] = [] if records is None else records
        self.fail = False
        self.fail_flush = False
        self.flushed = 0
        self._seen = len(self.records)

    def append(self, records: list[Any]) -> None:
        if self.fail:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "no space")
        if len(self.records) != self._seen:
            raise DeposedError
        self.records += records
        self._seen = len(self.records)

    def replay(self) -> Iterator[Any]:
        self._seen = len(self.records)
        return iter(list(self.records))

    def flush(self) -> None:
        if self.fail_flush:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "no disk")
        self.flushed = len(self.records)

    def when_flushed(self, callback: Callable[[], None]) -> None:
        callback()

    def rewrite(self, records: list[Any]) -> None:
        self.records[:] = records
        self._seen = len(records)


class Brokers:
    """A ControllerListener. Brokers answer at once, unless they are in `silent`; `answer` lets those catch up."""

    def __init__(self) -> None:
        self.said: list[tuple[int, Any]] = []
        self.connected: set[int] = set()
        self.silent: set[int] = set()
        self.waiting: list[tuple[int, Any]] = []
        self.bad_disks: set[tuple[int, str]] = set()  # (broker, topic): error 56
        self.on_response: Any = None
        self.timeouts_ms: list[int] = []  # of those who wait for acknowledgements, whoever they are
        self._callbacks: list[Callable[[], None]] = []

    def open(self, broker_id: int, broker_epoch: int) -> None:
        self.connected.add(broker_id)

    def close(self, broker_id: int) -> None:
        self.connected.discard(broker_id)
        self.waiting = [each for each in self.waiting if each[0] != broker_id]
        self._wake()

    def send(self, broker_id: int, request: Any) -> None:
        self.said.append((broker_id, request))
        if broker_id in self.silent:
            self.waiting.append((broker_id, request))
        else:
            self._respond(broker_id, request)

    def config_changed(self, resource_type: int, name: str, overrides: Mapping[str, str]) -> None:
        self.said.append((resource_type, (name, dict(overrides))))

    def when_acknowledged(self, timeout_ms: int, callback: Callable[[], None]) -> None:
        self.timeouts_ms.append(timeout_ms)
        self._callbacks.append(callback)
        self._wake()

    def _wake(self) -> None:
        if not self.waiting:
            callbacks, self._callbacks = self._callbacks, []
            for callback in callbacks:
                callback()

    def answer(self, broker_id: int) -> None:
        """A silent broker answers what it owes, and goes on answering."""
        self.silent.discard(broker_id)
        owed = [request for broker, request in self.waiting if broker == broker_id]
        self.waiting = [each for each in self.waiting if each[0] != broker_id]
        for request in owed:
            self._respond(broker_id, request)
        self._wake()

    def _respond(self, broker_id: int, request: Any) -> None:
        self.on_response(broker_id, request, self._response(broker_id, request))

    def _response(self, broker_id: int, request: Any) -> Any:
        def error(topic: str) -> int:
            return 56 if (broker_id, topic) in self.bad_disks else 0

        if isinstance(request, LeaderAndIsrRequest):
            return LeaderAndIsrResponse(
                topics=[
                    LeaderAndIsrTopicError(
                        topic_id=topic.topic_id,
                        partition_errors=[
                            LeaderAndIsrPartitionError(
                                partition_index=state.partition_index,
                                error_code=error(topic.topic_name),
                            )
                            for state in topic.partition_states
                        ],
                    )
                    for topic in request.topic_states
                ]
            )
        if isinstance(request, StopReplicaRequest):
            return StopReplicaResponse(
                partition_errors=[
                    StopReplicaPartitionError(
                        topic_name=topic.topic_name,
                        partition_index=state.partition_index,
                        error_code=error(topic.topic_name),
                    )
                    for topic in request.topic_states
                    for state in topic.partition_states
                ]
            )
        return UpdateMetadataResponse()

    def take(self) -> list[tuple[int, Any]]:
        said, self.said = self.said, []
        return said

    def words(self, broker: int | None = None) -> list[str]:
        """What was said since the last time, in short; of one broker or of all ("1 leads t-0 …")."""
        return [
            line if broker is not None else f"{to} {line}"
            for to, request in self.take()
            if not isinstance(request, tuple) and broker in (None, to)
            for line in in_words(to, request)
        ]


def in_words(to: int, request: Any) -> list[str]:
    """A request as lines: leads/follows/metadata/stop/delete, epochs included."""
    lines = []
    if isinstance(request, LeaderAndIsrRequest):
        for topic in request.topic_states:
            for p in topic.partition_states:
                role = "leads" if p.leader == to else f"follows {p.leader}"
                new = " new" if p.is_new else ""
                lines.append(
                    f"{role} {topic.topic_name}-{p.partition_index} "
                    f"LE {p.leader_epoch} PE {p.partition_epoch} ISR {p.isr} of {p.replicas}{new}"
                )
    elif isinstance(request, UpdateMetadataRequest):
        alive = ",".join(str(broker.id) for broker in request.live_brokers)
        lines = [
            f"metadata {topic.topic_name}-{p.partition_index} leader {p.leader}"
            for topic in request.topic_states
            for p in topic.partition_states
        ] or [f"brokers {alive}"]
    else:
        assert isinstance(request, StopReplicaRequest)
        for states in request.topic_states:
            for stop in states.partition_states:
                word = "delete" if stop.delete_partition else "stop"
                lines.append(
                    f"{word} {states.topic_name}-{stop.partition_index} LE {stop.leader_epoch}"
                )
    return lines


class Simulated:
    """Controller 100 and its brokers, which register, beat and die as processes do."""

    def __init__(
        self,
        *brokers: int,
        journal: ListJournal | None = None,
        racks: Mapping[int, str] | None = None,
        clock: Clock | None = None,
        **settings: str,
    ) -> None:
        self.journal = journal or ListJournal()
        self.brokers = Brokers()
        self.clock = clock or Clock()
        self.timers = Timers()
        self.logged = Recorder()
        self.racks = racks or {}
        self.epochs: dict[int, int] = {}
        self._incarnation = 0
        config = BrokerConfig({k.replace("_", "."): v for k, v in settings.items()})
        self.controller = Controller(
            100,
            config,
            self.journal,
            self.brokers,
            Random(1 + len(self.journal.records)),
            clock=self.clock,
            timers=self.timers,
            log_event=self.logged,
        )
        self.controller.start()
        for broker in brokers:
            self.start(broker)
        if brokers:
            self.brokers.take()

    def ask(self, request: Any, version: int) -> Any:
        """The answer, or None while it is held back."""
        answers: list[Any] = []
        self.controller.submit(request, version, answers.append)
        assert len(answers) <= 1
        return answers[0] if answers else None

    # brokers

    def start(self, broker: int, *, clean: bool = False) -> Any:
        """A new process of the broker registers. `clean`: its last one stopped in order."""
        self._incarnation += 1
        request = BrokerRegistrationRequest(
            broker_id=broker,
            incarnation_id=self._incarnation.to_bytes(16, "big"),
            listeners=[Listener(name="L", host=f"h{broker}", port=broker)],
            rack=self.racks.get(broker),
            previous_broker_epoch=self.epochs[broker] if clean else -1,
        )
        response = self.ask(request, 4)
        if not response.error_code:
            self.epochs[broker] = response.broker_epoch
        return response

    def kill(self, broker: int) -> None:
        """kill -9: the connection ends, and 30 ms later the broker is dead."""
        self.controller.connection_lost(broker, self.epochs[broker])
        self.advance(30)

    def heartbeat(self, broker: int, **fields: Any) -> Any:
        request = BrokerHeartbeatRequest(
            broker_id=broker, broker_epoch=self.epochs[broker], **fields
        )
        return self.ask(request, 1)

    def stop(self, broker: int) -> Any:
        """ControlledShutdown: what the broker still leads, or the error code."""
        request = ControlledShutdownRequest(broker_id=broker, broker_epoch=self.epochs[broker])
        response = self.ask(request, 3)
        if response.error_code:
            return response.error_code
        return [f"{p.topic_name}-{p.partition_index}" for p in response.remaining_partitions]

    def advance(self, ms: int) -> None:
        """Time passes; what is due happens in its order."""
        end = self.clock.now_ms + ms
        while (deadline := self.timers.next_deadline_ms()) is not None and deadline <= end:
            self.clock.now_ms = max(self.clock.now_ms, deadline)
            self.timers.fire(self.clock.now_ms)
        self.clock.now_ms = end

    # topics

    def create(self, name: str, *replicas: list[int], **configs: str) -> Any:
        topic = CreatableTopic(
            name=name,
            num_partitions=-1,
            replication_factor=-1,
            assignments=[
                CreatableReplicaAssignment(partition_index=i, broker_ids=r)
                for i, r in enumerate(replicas)
            ],
            configs=[
                CreatableTopicConfig(name=k.replace("_", "."), value=v) for k, v in configs.items()
            ],
        )
        response = self.ask(CreateTopicsRequest(topics=[topic]), 7)
        return response and response.topics[0]

    def delete(self, name: str) -> Any:
        response = self.ask(DeleteTopicsRequest(topics=[DeleteTopicState(name=name)]), 6)
        return response and response.responses[0].error_code

    def partition(self, topic: str = "t", index: int = 0) -> Any:
        return self.controller.state.topics[topic].partitions[index]

    def state(self, topic: str = "t", index: int = 0) -> str:
        """A partition in words: "leader 2 ISR [2, 3] LE 1 PE 1"."""
        p = self.partition(topic, index)
        return (
            f"leader {p.leader} ISR {p.isr} LE {p.leader_epoch} PE {p.partition_epoch}"
            + (" recovering" if p.recovering else "")
            + (f" of {p.replicas} +{p.adding} -{p.removing}" if p.reassigning else "")
        )

    def alter(
        self,
        sender: int,
        isr: list[int],
        topic: str = "t",
        *,
        version: int = 3,
        leader_epoch: int | None = None,
        partition_epoch: int | None = None,
        recovering: bool = False,
        broker_epoch: int | None = None,
        member_epochs: Mapping[int, int] | None = None,
        topic_id: bytes | None = None,
    ) -> Any:
        """AlterPartition for partition 0, with the epochs of now unless others are given: the partition's answer."""
        known = self.controller.state.topics.get(topic)
        p = known.partitions[0] if known else PartitionState([], [], -1)
        epochs = {**self.epochs, **(member_epochs or {})}
        data = PartitionData(
            partition_index=0,
            leader_epoch=p.leader_epoch if leader_epoch is None else leader_epoch,
            new_isr=isr if version < 3 else [],
            new_isr_with_epochs=[
                BrokerState(broker_id=b, broker_epoch=epochs.get(b, -1)) for b in isr
            ]
            if version >= 3
            else [],
            leader_recovery_state=int(recovering),
            partition_epoch=p.partition_epoch if partition_epoch is None else partition_epoch,
        )
        topic_data = TopicData(
            topic_name=topic,
            topic_id=topic_id or (known.topic_id if known else b"?" * 16),
            partitions=[data],
        )
        request = AlterPartitionRequest(
            broker_id=sender,
            broker_epoch=self.epochs[sender] if broker_epoch is None else broker_epoch,
            topics=[topic_data],
        )
        response = self.ask(request, version)
        return response if response.error_code else response.topics[0].partitions[0]
