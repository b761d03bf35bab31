"""Applies a controller's LeaderAndIsr, StopReplica and UpdateMetadata to a broker's replicas.

Answers to becomeLeaderOrFollower, stopReplicas and maybeUpdateMetadataCache of
kafka.server.ReplicaManager (3.9). The functions change the ReplicaManager given, which has thin
methods for them. Fetchers change in Kafka's order: led partitions are removed first, followed ones
of a new epoch added, idle fetchers closed last.

Deliberate differences: no partition object is left when this broker is not a replica (Kafka leaks
one). A partition's parked requests are rechecked in the step that changes its role, epoch or
existence.
"""

from __future__ import annotations

from typing import Final

from kwire.protocol.errors import ErrorCode, KafkaError
from kwire.protocol.language.primitives import ZERO_UUID
from kwire.protocol.schemas.control_plane import (
    LeaderAndIsrPartitionError,
    LeaderAndIsrResponse,
    LeaderAndIsrTopicError,
    StopReplicaPartitionError,
    StopReplicaResponse,
    UpdateMetadataResponse,
)
from kwire.replication.core.events import Event
from kwire.replication.core.metadata import FULL
from kwire.replication.replica.partition import Partition

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from kwire.protocol.schemas.control_plane import (
        LeaderAndIsrPartitionState,
        LeaderAndIsrRequest,
        StopReplicaRequest,
        UpdateMetadataRequest,
    )
    from kwire.replication.core.types import TopicPartition
    from kwire.replication.replica.manager import ReplicaManager

UNKNOWN_EPOCH: Final = -1
EPOCH_DURING_DELETE: Final = -2


class _Order:
    """One partition of a LeaderAndIsr request and its outcome."""

    __slots__ = ("accepted", "error", "key", "partition", "state", "topic", "topic_id")

    def __init__(self, topic: str, topic_id: bytes, state: LeaderAndIsrPartitionState) -> None:
        self.topic = topic
        self.topic_id = topic_id
        self.state = state
        self.key = (topic, state.partition_index)
        self.accepted = False  # to be carried out
        self.partition: Partition | None = None  # None: not hosted yet
        self.error = ErrorCode.NONE


def become_leader_or_follower(
    manager: ReplicaManager, request: LeaderAndIsrRequest, version: int
) -> LeaderAndIsrResponse:
    """Apply a LeaderAndIsr: all leaders, then all followers, then notify the role listeners."""
    orders = list(_orders(request))
    error = manager.check_epochs(request.controller_epoch, request.broker_epoch)
    if error is not ErrorCode.NONE:
        for order in orders:
            order.error = error
        return _leader_and_isr_response(orders, error, version)
    if request.type == FULL:
        _drop_strays(manager, orders)
    for order in orders:
        try:
            _accept(manager, order, request.is_kraft_controller)
        except KafkaError as refusal:
            order.error = refusal.code
    fetchers = manager.fetchers
    if fetchers is not None:
        fetchers.remove(order.key for order in orders if _leads_from_now_on(manager, order))
    changed: list[tuple[Partition, bool]] = []
    begun: list[_Order] = []
    for leads in (True, False):
        for order in orders:
            is_due = order.accepted and (order.state.leader == manager.node_id) is leads
            if is_due and _carry_out(manager, order, leads, changed):
                begun.append(order)
    _log_roles(manager, begun, request.controller_epoch)
    if fetchers is not None:
        fetchers.close_idle()
    for partition, leads in changed:
        for listener in manager.role_listeners:
            listener(partition, leads)
    return _leader_and_isr_response(orders, ErrorCode.NONE, version)


def _leads_from_now_on(manager: ReplicaManager, order: _Order) -> bool:
    """Whether the order makes a leader of a partition that is hosted already."""
    return (
        order.accepted
        and order.partition is not None
        and order.state.leader == manager.node_id
        and order.state.partition_epoch >= order.partition.partition_epoch
    )


def _orders(request: LeaderAndIsrRequest) -> Iterator[_Order]:
    for state in request.ungrouped_partition_states:
        yield _Order(state.topic_name, ZERO_UUID, state)
    for topic in request.topic_states:
        for state in topic.partition_states:
            yield _Order(topic.topic_name, topic.topic_id, state)


def _accept(manager: ReplicaManager, order: _Order, is_kraft_controller: bool) -> None:
    """Decide whether to accept an order (`accepted`), ignore it, or refuse it (KafkaError)."""
    if order.key in manager.offline:
        raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR)
    epoch = order.state.leader_epoch
    known_epoch, known_partition_epoch = -1, 0
    partition = order.partition = manager.by_key.get(order.key)
    if partition is not None:
        known_epoch, known_partition_epoch = partition.leader_epoch, partition.partition_epoch
        if order.topic_id not in (ZERO_UUID, partition.topic_id):
            if partition.topic_id != ZERO_UUID:
                raise KafkaError(ErrorCode.INCONSISTENT_TOPIC_ID)
            if epoch == known_epoch:
                # A topic from before topic ids: only its id is new, and is stored with the log.
                partition.assign_topic_id(order.topic_id, False)
                if not is_kraft_controller:
                    return
        if (
            epoch == known_epoch
            and not is_kraft_controller
            and order.topic_id == ZERO_UUID != partition.topic_id
            and order.state.leader != manager.node_id
        ):
            return  # the controller was downgraded to before topic ids; the id stays
    if epoch < known_epoch or (epoch == known_epoch and not is_kraft_controller):
        raise KafkaError(ErrorCode.STALE_CONTROLLER_EPOCH)
    if manager.node_id not in order.state.replicas:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    if epoch == known_epoch and order.state.partition_epoch <= known_partition_epoch:
        return  # known: it must not undo an ISR committed since
    order.accepted = True


def _carry_out(
    manager: ReplicaManager,
    order: _Order,
    leads: bool,
    changed: list[tuple[Partition, bool]],
) -> bool:
    """Take the role, and add the partition to `changed` if it is another. True: a leader epoch begins."""
    key, partition, is_new = order.key, order.partition, order.state.is_new
    if key in manager.offline:  # an earlier order has found its directory broken
        order.error = ErrorCode.KAFKA_STORAGE_ERROR
        return False
    epoch = -1 if partition is None else partition.leader_epoch
    try:
        # Before the role: without a log of this very topic there must be no partition.
        if partition is None:
            log = manager.open_log(*key, order.topic_id, is_new)
            partition = Partition(*key, order.topic_id, manager, log)
        partition.assign_topic_id(order.topic_id, is_new)
        stored = partition.log.topic_id
        if stored != order.topic_id and ZERO_UUID not in (stored, order.topic_id):
            raise KafkaError(ErrorCode.INCONSISTENT_TOPIC_ID)
        take_role = partition.make_leader if leads else partition.make_follower
        role_changed = take_role(order.state, order.topic_id)
    except KafkaError as error:
        order.error = error.code
        if error.code is ErrorCode.KAFKA_STORAGE_ERROR:
            if partition is not None:  # it may be in a directory that has failed in this step
                manager.by_key.setdefault(key, partition)
            reason = error.message or "its log cannot be opened"
            manager.mark_offline(key, reason, ordered=True)
        return False
    _take_up(manager, partition)
    if manager.log_manager.has_future_logs:
        manager.moves.resume(key)
    if role_changed:
        changed.append((partition, leads))
        if not leads and manager.fetchers is not None:
            manager.fetchers.add_follower(partition)
    manager.complete_waiting(key)
    return partition.leader_epoch > epoch


def _take_up(manager: ReplicaManager, partition: Partition) -> None:
    if partition.key not in manager.by_key:
        manager.by_key[partition.key] = partition
        partition.traffic = manager.traffic.begin(partition.topic)


def _log_roles(manager: ReplicaManager, begun: list[_Order], controller_epoch: int) -> None:
    """Log the roles taken: one event, whatever the number of partitions."""
    if not begun:
        return
    from kwire.replication.replica.events import ReplicaEvent, first_names

    leads: list[str] = []
    follows: list[str] = []
    for order in begun:
        state, name = order.state, f"{order.topic}-{order.state.partition_index}"
        if state.leader == manager.node_id:
            leads.append(f"{name} (epoch {state.leader_epoch})")
        else:
            follows.append(f"{name} (broker {state.leader}, epoch {state.leader_epoch})")
    are_new = all(order.state.is_new for order in begun)
    manager.log_event(
        ReplicaEvent.ROLES_ASSIGNED if are_new else ReplicaEvent.ROLES_CHANGED,
        leads=first_names(leads),
        follows=first_names(follows),
        led=leads,
        followed=follows,
        controller_epoch=controller_epoch,
    )


def _drop_strays(manager: ReplicaManager, orders: list[_Order]) -> None:
    """Set aside logs that a full request does not list: of deleted topics, or of another broker.

    They must not block a topic of the same name, created while this broker was away; but no order
    deletes them, so they are kept. Source: LogManager.findStrayReplicas.
    """
    listed = {(order.topic, order.state.partition_index): order.topic_id for order in orders}
    for log in list(manager.log_manager.logs()):
        key = (log.topic, log.partition)
        topic_id = listed.get(key)
        if topic_id is None or (
            topic_id != log.topic_id and ZERO_UUID not in (topic_id, log.topic_id)
        ):
            partition = manager.by_key.pop(key, None)
            if manager.fetchers is not None:
                manager.fetchers.remove([key])
            if partition is not None:  # deleted while this broker was cut off
                for listener in manager.role_listeners:
                    listener(partition, False)
            try:
                manager.log_manager.set_aside(*key)
            except KafkaError as error:
                detail = error.message or f"{key[0]}-{key[1]} cannot be set aside"
                manager.log_event(
                    Event.STRAY_REPLICA_FAILED, topic=key[0], partition=key[1], detail=detail
                )
                manager.offline.add(key)  # as in _stop
            manager.complete_waiting(key)
            if partition is not None:
                manager.traffic.end(key[0])


def _leader_and_isr_response(
    orders: list[_Order], error: ErrorCode, version: int
) -> LeaderAndIsrResponse:
    response = LeaderAndIsrResponse(error_code=error)
    if version < 5:
        response.partition_errors = [
            LeaderAndIsrPartitionError(
                topic_name=order.topic,
                partition_index=order.state.partition_index,
                error_code=order.error,
            )
            for order in orders
        ]
        return response
    by_topic: dict[bytes, list[LeaderAndIsrPartitionError]] = {}
    for order in orders:
        by_topic.setdefault(order.topic_id, []).append(
            LeaderAndIsrPartitionError(
                partition_index=order.state.partition_index, error_code=order.error
            )
        )
    response.topics = [
        LeaderAndIsrTopicError(topic_id=topic_id, partition_errors=errors)
        for topic_id, errors in by_topic.items()
    ]
    return response


def stop_replicas(manager: ReplicaManager, request: StopReplicaRequest) -> StopReplicaResponse:
    """Apply a StopReplica. Without deletion a leader stays leader; deletion ends parked requests."""
    error = manager.check_epochs(request.controller_epoch, request.broker_epoch)
    if error is not ErrorCode.NONE:
        return StopReplicaResponse(error_code=error)
    errors = []
    for topic, index, leader_epoch, delete in _stops(request):
        try:
            _stop(manager, (topic, index), leader_epoch, delete)
            code = ErrorCode.NONE
        except KafkaError as refusal:
            code = refusal.code
        errors.append(
            StopReplicaPartitionError(topic_name=topic, partition_index=index, error_code=code)
        )
    if manager.fetchers is not None:
        manager.fetchers.close_idle()
    return StopReplicaResponse(partition_errors=errors)


def _stops(request: StopReplicaRequest) -> Iterator[tuple[str, int, int, bool]]:
    """Yield (topic, partition, leader epoch, delete) from any version's fields."""
    delete = request.delete_partitions
    for flat in request.ungrouped_partitions:
        yield flat.topic_name, flat.partition_index, UNKNOWN_EPOCH, delete
    for topic in request.topics:
        for index in topic.partition_indexes:
            yield topic.name, index, UNKNOWN_EPOCH, delete
    for states in request.topic_states:
        for state in states.partition_states:
            yield (
                states.topic_name,
                state.partition_index,
                state.leader_epoch,
                state.delete_partition,
            )


def _stop(manager: ReplicaManager, key: TopicPartition, leader_epoch: int, delete: bool) -> None:
    if key in manager.offline:
        raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR)
    partition = manager.by_key.get(key)
    if (
        partition is not None
        and leader_epoch not in (UNKNOWN_EPOCH, EPOCH_DURING_DELETE)
        and leader_epoch < partition.leader_epoch
    ):
        raise KafkaError(ErrorCode.FENCED_LEADER_EPOCH)
    if manager.fetchers is not None:
        manager.fetchers.remove([key])
    if not delete:
        return
    if partition is not None:
        del manager.by_key[key]
        for listener in manager.role_listeners:
            listener(partition, False)
        manager.traffic.end(key[0])
    try:
        if manager.log_manager.get(*key) is not None:
            manager.log_manager.delete(*key)
    except KafkaError:
        # The log still exists. Counted as deleted, a topic recreated under that name would get a
        # log in another directory, and the broker could not start with both.
        manager.offline.add(key)
        raise
    finally:
        manager.complete_waiting(key)


def _unlisted_topics(manager: ReplicaManager, request: UpdateMetadataRequest) -> list[str]:
    """Topics of which this broker has partitions, by LeaderAndIsr, that the metadata cache gets only
    now: a change of their configuration in between has not reached them."""
    by_key, metadata = manager.by_key, manager.metadata
    return [
        topic.topic_name
        for topic in request.topic_states
        if any(
            (topic.topic_name, state.partition_index) in by_key
            and metadata.partition(topic.topic_name, state.partition_index) is None
            for state in topic.partition_states
        )
    ]


def update_metadata(
    manager: ReplicaManager, request: UpdateMetadataRequest
) -> UpdateMetadataResponse:
    """Update the metadata cache. A dead broker is not waited for any more: high watermarks may
    move, and the low watermarks of DeleteRecords."""
    error = manager.check_epochs(request.controller_epoch, request.broker_epoch)
    if error is not ErrorCode.NONE:
        return UpdateMetadataResponse(error_code=error)
    brokers_before = manager.metadata.brokers_version
    unlisted = _unlisted_topics(manager, request)
    deleted = manager.metadata.apply(request)
    for topic in unlisted:
        manager.topic_config_changed(topic)
    if deleted:
        for listener in manager.deletion_listeners:
            listener(deleted)
    if manager.metadata.brokers_version != brokers_before:
        deletions = manager.delete_records_purgatory.watchers
        for key, partition in list(manager.by_key.items()):
            if (
                partition.is_leader
                and partition.remote_replicas
                and (partition.maybe_increment_high_watermark() or key in deletions)
            ):
                manager.complete_waiting(key)
    return UpdateMetadataResponse()
