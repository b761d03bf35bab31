"""What brokers are to be told after one step of the controller, collected and sent in Kafka's order.

Answers to kafka.controller.AbstractControllerBrokerRequestBatch. A broker gets LeaderAndIsr, then UpdateMetadata, then
StopReplica without and then with deletion. LeaderAndIsr and StopReplica go to brokers that are alive or shutting down;
leaders are told before followers, so that a follower's first fetch finds its leader in office more often than not.

Deliberate differences: of several changes of a partition in one step only the last is told (their epochs count all the
same); no unchanged state is repeated after a failure.
"""

from __future__ import annotations

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
from kwire.replication.core.metadata import BROKER_RESOURCE, LEADER_DURING_DELETE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from typing import Any, Protocol

    from kwire.protocol.language.schema import Message
    from kwire.replication.controller.context import ControllerContext
    from kwire.replication.controller.state import PartitionState, TopicState

    class ControllerListener(Protocol):
        """Who hears of the controller's decisions."""

        on_response: Callable[[int, Message, Any], None] | None
        """The controller's `response`: called with what a broker answered to a request of `send`."""

        def open(self, broker_id: int) -> None:
            """A broker has registered (anew): it gets all configurations first, then what is sent from now on."""
            ...

        def close(self, broker_id: int) -> None:
            """A broker is gone: what it was to be told is dropped."""
            ...

        def send(self, broker_id: int, request: Message) -> None:
            """A LeaderAndIsr, UpdateMetadata or StopReplica request, after all that was sent to the broker before."""
            ...

        def config_changed(
            self, resource_type: int, name: str, overrides: Mapping[str, str]
        ) -> None:
            """All overrides a resource has now, to all brokers. Before the LeaderAndIsr of a new topic."""
            ...

        def when_acknowledged(self, timeout_ms: int, callback: Callable[[], None]) -> None:
            """Calls back once every broker has answered all it was sent so far, or after the time."""
            ...


# The type of LeaderAndIsr and UpdateMetadata. FULL: what is not listed does not belong to the broker, or is not there.
UNKNOWN, INCREMENTAL, FULL = 0, 1, 2

_Orders = dict[str, LeaderAndIsrTopicState]


class Orders:
    """What the controller orders brokers to do, as long as it is the active one. `given` counts it."""

    __slots__ = ("_context", "_listener", "given")

    def __init__(self, context: ControllerContext, listener: ControllerListener) -> None:
        self._context = context
        self._listener = listener
        self.given = 0

    def batch(self, *, but: int | None = None) -> RequestBatch:
        """A batch of orders. `but`: a broker that knows all of it already."""
        return RequestBatch(self._context, self, but=but)

    def send(self, broker_id: int, request: Message) -> None:
        """One order to one broker."""
        if self._context.active:
            self.given += 1
            self._listener.send(broker_id, request)

    def config_changed(self, resource_type: int, name: str, overrides: Mapping[str, str]) -> None:
        """All overrides that a resource has now, to all brokers; the cluster's own also hold for this controller."""
        context = self._context
        if not context.is_standalone and resource_type == BROKER_RESOURCE and not name:
            context.config.set_dynamic(overrides, {})
        self.given += 1
        self._listener.config_changed(resource_type, name, overrides)


class RequestBatch:
    """Collects; `send` sends. The states are read when they are added: after the commit, that is."""

    __slots__ = (
        "_but",
        "_context",
        "_deletions",
        "_leading",
        "_metadata",
        "_orders",
        "_roles",
        "_stops",
    )

    def __init__(
        self, context: ControllerContext, orders: Orders, *, but: int | None = None
    ) -> None:
        self._context = context
        self._orders = orders
        self._but = but
        self._roles: dict[int, _Orders] = {}
        self._leading: set[int] = set()
        self._metadata: dict[str, UpdateMetadataTopicState] = {}
        self._stops: dict[int, dict[str, StopReplicaTopicState]] = {}
        self._deletions: dict[int, dict[str, StopReplicaTopicState]] = {}

    def partition(
        self,
        topic: TopicState,
        index: int,
        *,
        is_new: bool = False,
        but: int | None = None,
    ) -> None:
        """A partition's state: its role to its replicas (`but` one), the news to all. Once a batch for each."""
        state = topic.partitions[index]
        orders: dict[bool, LeaderAndIsrPartitionState] = {}
        brokers = self._context.brokers
        for broker_id in state.replicas:
            if broker_id not in brokers or broker_id in (but, self._but):
                continue
            new = is_new or (broker_id in state.adding and broker_id not in state.isr)
            order = orders.get(new)
            if order is None:
                order = orders[new] = self._order(topic.name, index, state, new)
            topics = self._roles.setdefault(broker_id, {})
            of_topic = topics.get(topic.name)
            if of_topic is None:
                of_topic = topics[topic.name] = LeaderAndIsrTopicState(
                    topic_name=topic.name, topic_id=topic.topic_id
                )
            of_topic.partition_states.append(order)
        if state.leader in self._roles:
            self._leading.add(state.leader)
        self.news(topic, index)

    def news(self, topic: TopicState, index: int, *, deleted: bool = False) -> None:
        """A partition's state to all brokers' metadata caches."""
        of_topic = self._metadata.get(topic.name)
        if of_topic is None:
            of_topic = self._metadata[topic.name] = UpdateMetadataTopicState(
                topic_name=topic.name, topic_id=topic.topic_id
            )
        of_topic.partition_states.append(self._news(topic, index, deleted))

    def stop(
        self, broker_id: int, topic: str, index: int, leader_epoch: int, *, delete: bool = False
    ) -> None:
        """A replica stops to follow; with `delete` it is deleted after that."""
        if broker_id not in self._context.brokers:
            return
        for kind in (self._stops, self._deletions) if delete else (self._stops,):
            of_topic = kind.setdefault(broker_id, {}).setdefault(
                topic, StopReplicaTopicState(topic_name=topic)
            )
            of_topic.partition_states.append(
                StopReplicaPartitionState(
                    partition_index=index,
                    leader_epoch=leader_epoch,
                    delete_partition=kind is self._deletions,
                )
            )

    def send(self, *, broker_list: bool = False) -> None:
        """Sends all of it. `broker_list`: the metadata goes out even if it is nothing but who is alive."""
        context = self._context
        order = [b for b in self._roles if b in self._leading]
        order += [b for b in self._roles if b not in self._leading]
        for broker_id in order:
            self._send_roles(broker_id, list(self._roles[broker_id].values()), INCREMENTAL)
        if self._metadata or broker_list:
            others = [b for b in context.brokers if b != self._but]
            self._send_metadata(others, list(self._metadata.values()))
        for kind in (self._stops, self._deletions):
            for broker_id, topics in kind.items():
                request = StopReplicaRequest(
                    controller_id=context.node_id,
                    controller_epoch=context.epoch,
                    broker_epoch=context.brokers[broker_id].epoch,
                    topic_states=list(topics.values()),
                )
                self._orders.send(broker_id, request)

    # --- a broker's start: everything, in another order

    def send_broker_list(self, brokers: Iterable[int]) -> None:
        """Who is alive, and nothing else."""
        self._send_metadata(brokers, [])

    def send_everything(self, broker_id: int) -> None:
        """To a new broker: all metadata first (it refuses leaders it does not know as alive), then all its roles."""
        state = self._context.state
        metadata = [
            UpdateMetadataTopicState(
                topic_name=topic.name,
                topic_id=topic.topic_id,
                partition_states=[
                    self._news(topic, index, False) for index in range(len(topic.partitions))
                ],
            )
            for topic in state.topics.values()
        ]
        self._send_metadata([broker_id], metadata, FULL)
        self.send_roles(broker_id)

    def send_roles(self, broker_id: int) -> None:
        """All roles that a broker has; logs that it has besides belong to nothing."""
        topics = []
        for topic in self._context.state.topics.values():
            orders = [
                self._order(topic.name, index, p, broker_id in p.adding and broker_id not in p.isr)
                for index, p in enumerate(topic.partitions)
                if broker_id in p.replicas
            ]
            if orders:
                topics.append(
                    LeaderAndIsrTopicState(
                        topic_name=topic.name, topic_id=topic.topic_id, partition_states=orders
                    )
                )
        self._send_roles(broker_id, topics, FULL)

    # --- parts

    def _send_roles(self, broker_id: int, topics: list[LeaderAndIsrTopicState], kind: int) -> None:
        context = self._context
        request = LeaderAndIsrRequest(
            controller_id=context.node_id,
            controller_epoch=context.epoch,
            broker_epoch=context.brokers[broker_id].epoch,
            # Of KRaft's controllers brokers take a changed ISR without a new leader epoch.
            is_kraft_controller=not context.config.leader_epoch_bump_on_isr_shrink,
            type=kind,
            topic_states=topics,
        )
        self._orders.send(broker_id, request)

    def _send_metadata(
        self, brokers: Iterable[int], topics: list[UpdateMetadataTopicState], kind: int = UNKNOWN
    ) -> None:
        context = self._context
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
            for broker in context.brokers.values()
        ]
        for broker_id in brokers:
            request = UpdateMetadataRequest(
                controller_id=context.node_id,
                controller_epoch=context.epoch,
                broker_epoch=context.brokers[broker_id].epoch,
                type=kind,
                topic_states=topics,
                live_brokers=live_brokers,
            )
            self._orders.send(broker_id, request)

    def _order(
        self, topic: str, index: int, state: PartitionState, is_new: bool
    ) -> LeaderAndIsrPartitionState:
        return LeaderAndIsrPartitionState(
            topic_name=topic,
            partition_index=index,
            controller_epoch=self._context.epoch,
            leader=state.leader,
            leader_epoch=state.leader_epoch,
            isr=state.isr,
            partition_epoch=state.partition_epoch,
            replicas=state.replicas,
            adding_replicas=state.adding,
            removing_replicas=state.removing,
            is_new=is_new,
            leader_recovery_state=int(state.recovering),
        )

    def _news(self, topic: TopicState, index: int, deleted: bool) -> UpdateMetadataPartitionState:
        context = self._context
        state = topic.partitions[index]
        return UpdateMetadataPartitionState(
            topic_name=topic.name,
            partition_index=index,
            controller_epoch=context.epoch,
            leader=LEADER_DURING_DELETE if deleted else state.leader,
            leader_epoch=state.leader_epoch,
            isr=state.isr,
            zk_version=state.partition_epoch,
            replicas=state.replicas,
            offline_replicas=[
                broker
                for broker in state.replicas
                if not context.is_online(broker, topic.name, index, shutting_down=True)
            ],
        )
