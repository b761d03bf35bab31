"""The controller: who leads what, and telling the brokers.

Answers to kafka.controller.KafkaController and, for what clients ask, to KRaft's ReplicationControlManager and
ConfigurationControlManager (`controller_topics.py`, `controller_configs.py`). Pure: changes are records in a journal
(`controller_state.py`), consequences are LeaderAndIsr, UpdateMetadata and StopReplica requests to a
`ControllerListener`; one node applies them directly (`controller_local.py`), many will get them over sockets.

Left out until brokers are many: AlterPartition, ElectLeaders, ControlledShutdown, reassignment, per-broker queues.
Invariants: a record is journaled before anybody hears of it; per step a broker gets LeaderAndIsr, then UpdateMetadata,
then StopReplica, but a newly registered one gets UpdateMetadata first (it refuses leaders it does not know as alive).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from kwire.protocol.errors import ErrorCode, KafkaError
from kwire.replication.controller_configs import ConfigControl
from kwire.replication.controller_state import (
    ControllerState,
    PartitionState,
    Record,
    TopicState,
    partition_record,
)
from kwire.replication.controller_topics import TopicControl
from kwire.replication.metadata import LEADER_DURING_DELETE, NO_LEADER, Endpoint

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random
    from typing import Any, Protocol

    from kwire.protocol.schema import Message
    from kwire.protocol.schemas.control_plane import UpdateMetadataTopicState
    from kwire.replication.clock import Clock, Timers
    from kwire.replication.config import BrokerConfig
    from kwire.replication.controller_state import Journal

    class ControllerListener(Protocol):
        """Who hears of the controller's decisions."""

        def send(self, broker_id: int, request: Message) -> None:
            """A LeaderAndIsr, UpdateMetadata or StopReplica request to a live broker."""
            ...

        def config_changed(
            self, resource_type: int, name: str, overrides: Mapping[str, str]
        ) -> None:
            """All overrides a resource has now. Before the LeaderAndIsr of a new topic."""
            ...


_REWRITE_ABOVE = 1000  # records
_FULL = 2  # LeaderAndIsr's type: what is not listed does not belong to the broker


class LiveBroker:
    """A registered broker."""

    __slots__ = ("endpoints", "epoch", "id", "rack")

    def __init__(
        self, broker_id: int, epoch: int, rack: str | None, endpoints: list[Endpoint]
    ) -> None:
        self.id = broker_id
        self.epoch = epoch
        self.rack = rack
        self.endpoints = endpoints


class Controller:
    """The active controller of a cluster. `handle` answers what clients (or brokers for them) ask it to change."""

    def __init__(
        self,
        node_id: int,
        config: BrokerConfig,
        journal: Journal,
        listener: ControllerListener,
        random: Random,
        *,
        clock: Clock | None = None,
        timers: Timers | None = None,
        report: Callable[[str], None] | None = None,
        cluster_id: str = "",
    ) -> None:
        """`node_id`: the controller's own. Call `start` before anything else."""
        self.active = True
        self.clock = clock
        self.timers = timers
        self.report = report
        self.cluster_id = cluster_id
        self.node_id = node_id
        self.config = config
        self.random = random
        self.listener = listener
        self.state = ControllerState()
        self.brokers: dict[int, LiveBroker] = {}
        self.topics = TopicControl(self)
        self.configs = ConfigControl(self)
        self._journal = journal
        self._handlers: dict[str, Callable[[Any, int], Message]] = {
            "CreateTopicsRequest": self.topics.create_topics,
            "DeleteTopicsRequest": self.topics.delete_topics,
            "CreatePartitionsRequest": self.topics.create_partitions,
            "AlterConfigsRequest": self.configs.alter_configs,
            "IncrementalAlterConfigsRequest": self.configs.incremental_alter_configs,
        }

    def start(self) -> None:
        """Replays the journal and begins a new controller epoch. JournalError when the journal cannot be read."""
        count = 0
        for record in self._journal.replay():
            self.state.replay(record)
            count += 1
        if count > _REWRITE_ABOVE:
            live = self.state.records()
            if count > 4 * len(live):  # mostly history: changed and deleted topics
                self._journal.rewrite(live)
        self.commit([("cluster", {"controller_epoch": self.state.controller_epoch + 1})])
        for (resource_type, name), overrides in self.state.configs.items():
            self.listener.config_changed(resource_type, name, overrides)

    def handle(self, request: Message, version: int) -> Message:
        """Answers CreateTopics, DeleteTopics, CreatePartitions, AlterConfigs, IncrementalAlterConfigs.

        `version` is the client's. A request that the journal cannot take raises KafkaError(KAFKA_STORAGE_ERROR)."""
        return self._handlers[type(request).__name__](request, version)

    def submit(
        self, request: Message, version: int, on_complete: Callable[[Message], None]
    ) -> None:
        """Answers by `on_complete`, exactly once, when every live broker knows what follows from the request."""
        on_complete(self.handle(request, version))

    @property
    def epoch(self) -> int:
        """The controller epoch."""
        return self.state.controller_epoch

    def connection_lost(self, broker_id: int, broker_epoch: int) -> None:
        """A registered broker's connection has ended: it fails unless it is heard of again within 30 ms."""

    def response(self, broker_id: int, request: Message, response: Any) -> None:
        """What a broker answered to an order of this controller."""

    def resign(self, why: str) -> None:
        """Another incarnation is the controller now: everything is answered with NOT_CONTROLLER."""
        self.active = False

    def metrics(self) -> dict[str, int]:
        """Counters and gauges by Kafka's names."""
        return {}

    def commit(self, records: list[Record]) -> None:
        """Journals the records, then makes them the state."""
        self._journal.append(records)
        for record in records:
            self.state.replay(record)

    # --- brokers ----------------------------------------------------------------------------------------------

    def register_broker(self, broker_id: int, rack: str | None, endpoints: list[Endpoint]) -> int:
        """A broker has started: returns its new broker epoch, after it was told everything it needs.

        One that was led to be alive (this run's or, after a restart, the journal's) fails first: its partitions lose
        their leader (leader epoch + 1) and are elected anew (+ 1), as in Kafka."""
        self.unregister_broker(broker_id)
        epoch = max(self.state.broker_epochs.values(), default=0) + 1
        self.commit([(f"broker/{broker_id}", {"epoch": epoch})])
        self.brokers[broker_id] = LiveBroker(broker_id, epoch, rack, endpoints)
        elected = self._elect_offline()
        for other in self.brokers:
            self._send_metadata(
                other, self.state.topics.values() if other == broker_id else elected
            )
        for other in self.brokers:
            if other == broker_id:
                self._send_leader_and_isr(other, self.state.topics.values(), full=True)
            else:
                self._send_leader_and_isr(other, elected)
        return epoch

    def unregister_broker(self, broker_id: int) -> None:
        """A broker is gone: its partitions get other leaders or none, and it leaves every ISR but its own last one."""
        self.brokers.pop(broker_id, None)
        records: list[Record] = []
        changed: dict[str, TopicState] = {}
        for topic in self.state.topics.values():
            for index, partition in enumerate(topic.partitions):
                state = self._without(partition, broker_id, topic.name)
                if state is not partition:
                    records.append(partition_record(topic, index, state))
                    changed[topic.name] = topic
        if records:
            self.commit(records)
        self.announce(changed.values())

    def _without(self, partition: PartitionState, broker_id: int, topic: str) -> PartitionState:
        """The partition's state once the broker is dead; the same object when nothing changes."""
        if broker_id not in partition.isr:
            return partition
        isr = [b for b in partition.isr if b != broker_id] or partition.isr
        if partition.leader != broker_id:
            if isr == partition.isr:
                return partition
            return partition.moved(
                leader=partition.leader, isr=isr, leader_epoch=partition.leader_epoch + 1
            )
        offline = partition.moved(
            leader=NO_LEADER, isr=isr, leader_epoch=partition.leader_epoch + 1
        )
        # The election would cost an epoch of its own; Kafka's controller does both in one step when it can.
        elected = self._elect(partition, topic)
        return offline if elected is None else elected

    def _elect_offline(self) -> list[TopicState]:
        """Gives leaders to partitions without one; returns their topics."""
        records: list[Record] = []
        changed: dict[str, TopicState] = {}
        for topic in self.state.topics.values():
            for index, partition in enumerate(topic.partitions):
                if partition.leader != NO_LEADER:
                    continue
                state = self._elect(partition, topic.name)
                if state is not None:
                    records.append(partition_record(topic, index, state))
                    changed[topic.name] = topic
        if records:
            self.commit(records)
        return list(changed.values())

    def elect_unclean_where_allowed(self) -> None:
        """A changed configuration may allow what was refused: looks again at partitions without a leader."""
        self.announce(self._elect_offline())

    def _elect(self, partition: PartitionState, topic: str) -> PartitionState | None:
        """Offline election (and unclean, where the topic allows it); None when nobody can lead."""
        live = self.brokers
        if (
            not partition.isr
        ):  # never had a leader: the first live replicas make it, as at its creation
            alive = [broker for broker in partition.replicas if broker in live]
            if not alive:
                return None
            return partition.moved(leader=alive[0], isr=alive, leader_epoch=partition.leader_epoch)
        epoch = partition.leader_epoch + 1
        for broker in partition.replicas:
            if broker in live and broker in partition.isr:
                isr = [member for member in partition.isr if member in live]
                return partition.moved(leader=broker, isr=isr, leader_epoch=epoch)
        if self.configs.topic_log_config(topic).unclean_leader_election_enable:
            for broker in partition.replicas:
                if broker in live:
                    return partition.moved(
                        leader=broker, isr=[broker], leader_epoch=epoch, recovering=True
                    )
        return None

    def racks(self) -> list[tuple[int, str | None]]:
        """Live brokers and their racks, for placement."""
        return [(broker.id, broker.rack) for broker in self.brokers.values()]

    def new_partition(self, replicas: list[int]) -> PartitionState:
        """The first state of a partition: leader and ISR are its live replicas."""
        alive = [broker for broker in replicas if broker in self.brokers]
        return PartitionState(replicas, alive, alive[0] if alive else NO_LEADER)

    # --- telling the brokers -----------------------------------------------------------------------------------

    def announce(
        self, topics: Iterable[TopicState], *, is_new: bool = False, first_partition: int = 0
    ) -> None:
        """Sends the topics' partitions from `first_partition` on to the brokers that host them, and to all the news."""
        topics = list(topics)
        if not topics:
            return
        for broker_id in self.brokers:
            self._send_leader_and_isr(
                broker_id, topics, is_new=is_new, first_partition=first_partition
            )
        for broker_id in self.brokers:
            self._send_metadata(broker_id, topics, first_partition=first_partition)

    def announce_deletion(self, topic: TopicState) -> None:
        """Tells all brokers that the topic is gone, and its replicas to stop and to delete."""
        from kwire.protocol.schemas.control_plane import (
            StopReplicaPartitionState,
            StopReplicaRequest,
            StopReplicaTopicState,
        )

        for broker_id in self.brokers:
            self._send_metadata(broker_id, [topic], deleted=True)
        for delete in (False, True):
            for broker in self.brokers.values():
                states = [
                    StopReplicaPartitionState(
                        partition_index=index,
                        leader_epoch=LEADER_DURING_DELETE,
                        delete_partition=delete,
                    )
                    for index, partition in enumerate(topic.partitions)
                    if broker.id in partition.replicas
                ]
                if states:
                    request = StopReplicaRequest(
                        controller_id=self.node_id,
                        controller_epoch=self.state.controller_epoch,
                        broker_epoch=broker.epoch,
                        topic_states=[
                            StopReplicaTopicState(topic_name=topic.name, partition_states=states)
                        ],
                    )
                    self.listener.send(broker.id, request)

    def _send_leader_and_isr(
        self,
        broker_id: int,
        topics: Iterable[TopicState],
        *,
        is_new: bool = False,
        full: bool = False,
        first_partition: int = 0,
    ) -> None:
        from kwire.protocol.schemas.control_plane import (
            LeaderAndIsrPartitionState,
            LeaderAndIsrRequest,
            LeaderAndIsrTopicState,
        )

        epoch = self.state.controller_epoch
        topic_states = []
        for topic in topics:
            states = [
                LeaderAndIsrPartitionState(
                    topic_name=topic.name,
                    partition_index=index,
                    controller_epoch=epoch,
                    leader=p.leader,
                    leader_epoch=p.leader_epoch,
                    isr=p.isr,
                    partition_epoch=p.partition_epoch,
                    replicas=p.replicas,
                    is_new=is_new,
                    leader_recovery_state=int(p.recovering),
                )
                for index, p in enumerate(topic.partitions[first_partition:], first_partition)
                if broker_id in p.replicas
            ]
            if states:
                topic_states.append(
                    LeaderAndIsrTopicState(
                        topic_name=topic.name, topic_id=topic.topic_id, partition_states=states
                    )
                )
        if not topic_states and not full:
            return
        request = LeaderAndIsrRequest(
            controller_id=self.node_id,
            controller_epoch=epoch,
            broker_epoch=self.brokers[broker_id].epoch,
            type=_FULL if full else 1,
            topic_states=topic_states,
        )
        self.listener.send(broker_id, request)

    def _send_metadata(
        self,
        broker_id: int,
        topics: Iterable[TopicState],
        *,
        deleted: bool = False,
        first_partition: int = 0,
    ) -> None:
        from kwire.protocol.schemas.control_plane import (
            UpdateMetadataBroker,
            UpdateMetadataEndpoint,
            UpdateMetadataRequest,
        )

        live_brokers = [
            UpdateMetadataBroker(
                id=broker.id,
                rack=broker.rack,
                endpoints=[
                    UpdateMetadataEndpoint(
                        port=e.port,
                        host=e.host,
                        listener=e.listener,
                        security_protocol=e.security_protocol,
                    )
                    for e in broker.endpoints
                ],
            )
            for broker in self.brokers.values()
        ]
        request = UpdateMetadataRequest(
            controller_id=self.node_id,
            controller_epoch=self.state.controller_epoch,
            broker_epoch=self.brokers[broker_id].epoch,
            topic_states=[self._metadata_of(t, first_partition, deleted) for t in topics],
            live_brokers=live_brokers,
        )
        self.listener.send(broker_id, request)

    def _metadata_of(
        self, topic: TopicState, first_partition: int, deleted: bool
    ) -> UpdateMetadataTopicState:
        from kwire.protocol.schemas.control_plane import (
            UpdateMetadataPartitionState,
            UpdateMetadataTopicState,
        )

        live = self.brokers
        states = [
            UpdateMetadataPartitionState(
                topic_name=topic.name,
                partition_index=index,
                controller_epoch=self.state.controller_epoch,
                leader=LEADER_DURING_DELETE if deleted else p.leader,
                leader_epoch=p.leader_epoch,
                isr=p.isr,
                zk_version=p.partition_epoch,
                replicas=p.replicas,
                offline_replicas=[broker for broker in p.replicas if broker not in live],
            )
            for index, p in enumerate(topic.partitions[first_partition:], first_partition)
        ]
        return UpdateMetadataTopicState(
            topic_name=topic.name, topic_id=topic.topic_id, partition_states=states
        )

    def create_auto(self, name: str) -> TopicState:
        """The topic, created if need be with defaults or, an internal one, with its own settings.

        For auto.create.topics.enable and the coordinators' topics. KafkaError says why it cannot be."""
        return self.topics.create_auto(name)

    def topic(self, name: str) -> TopicState:
        """The topic; KafkaError(UNKNOWN_TOPIC_OR_PARTITION) when there is none."""
        topic = self.state.topics.get(name)
        if topic is None:
            raise KafkaError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                "This server does not host this topic-partition.",
            )
        return topic
