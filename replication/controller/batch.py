"""Requests to brokers after one step of the controller, batched and sent in Kafka's order.

Answers to kafka.controller.AbstractControllerBrokerRequestBatch. A broker gets LeaderAndIsr, then
UpdateMetadata, then StopReplica without and then with deletion. LeaderAndIsr and StopReplica go to
brokers that are live or shutting down; leaders get theirs before followers, so that a follower's
first fetch usually finds its leader leading.

Deliberate differences: of several changes of a partition in one step only the last is sent (each
has raised its epochs); unchanged state is not sent again after a failure.
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
from kwire.replication.config.broker_config import EPOCH_BUMP_KEY
from kwire.replication.core.metadata import BROKER_RESOURCE, LEADER_DURING_DELETE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from typing import Any, Protocol

    from kwire.protocol.language.schema import Message
    from kwire.replication.controller.context import ControllerContext
    from kwire.replication.controller.state import PartitionState, TopicState
    from kwire.replication.core.work import Steps

    class ControllerListener(Protocol):
        """The sender of the controller's requests to brokers."""

        on_response: Callable[[int, Message, Any], None] | None
        """`Controller.handle_response`: (broker id, request, response) for each request of
        `send`."""

        def open(self, broker_id: int, broker_epoch: int) -> None:
            """Open a registered broker's channel; send all dynamic configurations first."""
            ...

        def close(self, broker_id: int) -> None:
            """Close a fenced broker's channel; drop requests not sent yet."""
            ...

        def send(self, broker_id: int, request: Message) -> None:
            """Send a LeaderAndIsr, UpdateMetadata or StopReplica request, in order for each
            broker."""
            ...

        def config_changed(
            self, resource_type: int, name: str, overrides: Mapping[str, str]
        ) -> None:
            """Send all current overrides of a resource to all brokers, in order with `send`."""
            ...

        def when_acknowledged(self, timeout_ms: int, callback: Callable[[], None]) -> None:
            """Call back once, when all requests sent so far are answered, or after `timeout_ms`."""
            ...


# The type of LeaderAndIsr and UpdateMetadata (KRaft's field). FULL: partitions that are not listed
# do not belong to the broker, or do not exist.
UNKNOWN, INCREMENTAL, FULL = 0, 1, 2

_MADE_AT_ONCE = 100  # states of partitions, between two yields
_UNITS_MADE = 5

_Orders = dict[str, LeaderAndIsrTopicState]


class Orders:
    """The active controller's requests to brokers; a controller that has resigned sends none.

    `sent_count`: how many requests and configuration changes were sent."""

    __slots__ = ("_context", "_listener", "sent_count")

    def __init__(self, context: ControllerContext, listener: ControllerListener) -> None:
        self._context = context
        self._listener = listener
        self.sent_count = 0

    def batch(self, *, exclude: int | None = None) -> RequestBatch:
        """Return an empty batch. `exclude`: a broker that gets nothing of it."""
        return RequestBatch(self._context, self, exclude=exclude)

    def send(self, broker_id: int, request: Message) -> None:
        """Send one request to one broker, if this controller is the active one."""
        if self._context.active:
            self.sent_count += 1
            self._listener.send(broker_id, request)

    def config_changed(self, resource_type: int, name: str, overrides: Mapping[str, str]) -> None:
        """Send all current overrides of a resource to all brokers.

        A controller node applies cluster-wide broker defaults to its own configuration, too."""
        context = self._context
        if not context.is_standalone and resource_type == BROKER_RESOURCE and not name:
            context.config.set_dynamic(overrides, {})
        self.sent_count += 1
        self._listener.config_changed(resource_type, name, overrides)


class RequestBatch:
    """A batch of partition states, sent by `send`.

    Add partitions after the commit: states are read then."""

    __slots__ = (
        "_context",
        "_deletions",
        "_exclude",
        "_leading",
        "_metadata",
        "_orders",
        "_roles",
        "_stops",
    )

    def __init__(
        self, context: ControllerContext, orders: Orders, *, exclude: int | None = None
    ) -> None:
        self._context = context
        self._orders = orders
        self._exclude = exclude
        self._roles: dict[int, _Orders] = {}
        self._leading: set[int] = set()
        self._metadata: dict[str, UpdateMetadataTopicState] = {}
        self._stops: dict[int, dict[str, StopReplicaTopicState]] = {}
        self._deletions: dict[int, dict[str, StopReplicaTopicState]] = {}

    def add_partition(
        self,
        topic: TopicState,
        index: int,
        *,
        is_new: bool = False,
        exclude: int | None = None,
    ) -> None:
        """Add LeaderAndIsr for its replicas (except `exclude`) and UpdateMetadata for all brokers.

        At most once per batch and partition."""
        state = topic.partitions[index]
        orders: dict[bool, LeaderAndIsrPartitionState] = {}
        brokers = self._context.brokers
        for broker_id in state.replicas:
            if broker_id not in brokers or broker_id in (exclude, self._exclude):
                continue
            new = is_new or (broker_id in state.adding and broker_id not in state.isr)
            order = orders.get(new)
            if order is None:
                order = orders[new] = self._role_state(topic.name, index, state, new)
            topics = self._roles.setdefault(broker_id, {})
            of_topic = topics.get(topic.name)
            if of_topic is None:
                of_topic = topics[topic.name] = LeaderAndIsrTopicState(
                    topic_name=topic.name, topic_id=topic.topic_id
                )
            of_topic.partition_states.append(order)
        if state.leader in self._roles:
            self._leading.add(state.leader)
        self.add_metadata(topic, index)

    def add_metadata(self, topic: TopicState, index: int, *, deleted: bool = False) -> None:
        """Add a partition's UpdateMetadata for all brokers."""
        of_topic = self._metadata.get(topic.name)
        if of_topic is None:
            of_topic = self._metadata[topic.name] = UpdateMetadataTopicState(
                topic_name=topic.name, topic_id=topic.topic_id
            )
        of_topic.partition_states.append(self._metadata_state(topic, index, deleted))

    def add_stop_replica(
        self, broker_id: int, topic: str, index: int, leader_epoch: int, *, delete: bool = False
    ) -> None:
        """Add StopReplica for one broker; with `delete` a second one, which deletes the replica."""
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
        """Send the batch. `broker_list`: send UpdateMetadata even if only the live brokers have
        changed."""
        context = self._context
        order = [b for b in self._roles if b in self._leading]
        order += [b for b in self._roles if b not in self._leading]
        for broker_id in order:
            self._send_roles(broker_id, list(self._roles[broker_id].values()), INCREMENTAL)
        if self._metadata or broker_list:
            others = [b for b in context.brokers if b != self._exclude]
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

    # --- full state, for a registered broker

    def send_broker_list(self, brokers: Iterable[int]) -> None:
        """Send UpdateMetadata with the live brokers and no partitions."""
        self._send_metadata(brokers, [])

    def send_everything(self, broker_id: int) -> Steps:
        """Send a registered broker all metadata, then all its roles.

        Metadata comes first: the broker refuses leaders that it does not know to be alive."""
        metadata = []
        for topic in self._context.state.topics.values():
            states: list[UpdateMetadataPartitionState] = []
            count = len(topic.partitions)
            for start in range(0, count, _MADE_AT_ONCE):
                some = range(start, min(start + _MADE_AT_ONCE, count))
                states += [self._metadata_state(topic, index, False) for index in some]
                yield len(some) * _UNITS_MADE
            metadata.append(
                UpdateMetadataTopicState(
                    topic_name=topic.name, topic_id=topic.topic_id, partition_states=states
                )
            )
        self._send_metadata([broker_id], metadata, FULL)
        yield from self.send_roles(broker_id)

    def send_roles(self, broker_id: int) -> Steps:
        """Send a FULL LeaderAndIsr with all roles of a broker; its other logs are strays."""
        topics = []
        for topic in self._context.state.topics.values():
            orders = []
            for index, p in enumerate(topic.partitions):
                if broker_id in p.replicas:
                    is_new = broker_id in p.adding and broker_id not in p.isr
                    orders.append(self._role_state(topic.name, index, p, is_new))
                if not (index + 1) % _MADE_AT_ONCE:
                    yield _MADE_AT_ONCE * _UNITS_MADE
            if orders:
                topics.append(
                    LeaderAndIsrTopicState(
                        topic_name=topic.name, topic_id=topic.topic_id, partition_states=orders
                    )
                )
            yield len(topic.partitions) % _MADE_AT_ONCE * _UNITS_MADE
        self._send_roles(broker_id, topics, FULL)

    # --- parts

    def _send_roles(self, broker_id: int, topics: list[LeaderAndIsrTopicState], kind: int) -> None:
        context = self._context
        request = LeaderAndIsrRequest(
            controller_id=context.node_id,
            controller_epoch=context.epoch,
            broker_epoch=context.brokers[broker_id].epoch,
            # From KRaft controllers, brokers accept a changed ISR without a new leader epoch.
            is_kraft_controller=not context.config.own_flag(EPOCH_BUMP_KEY),
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

    def _role_state(
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

    def _metadata_state(
        self, topic: TopicState, index: int, deleted: bool
    ) -> UpdateMetadataPartitionState:
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
