"""Topics that are deleted: gone from the controller at once, from their brokers as these hear of it.

Answers to KRaft's ReplicationControlManager.deleteTopic, with what the brokers of ZooKeeper mode are told of it
(kafka.controller.TopicDeletionManager): all of them first that the topic is gone (leader -2), then those that live to
stop and to delete its replicas. Nobody waits for the others: the name is free, and what a broker brings back that was
away is a stray, because the full LeaderAndIsr and UpdateMetadata of its registration (and of a new controller's first
words) do not list it under that topic id. The broker sets it aside (`replica/control.py`).

Invariant: a broker gets the orders about the old topic before those about a new one of its name; it never hosts both.
Deliberate difference: TopicDeletionManager keeps the name until the last dead replica has returned.
"""

from __future__ import annotations

from kwire.protocol.errors import ErrorCode
from kwire.replication.controller.state import config_record
from kwire.replication.core.events import Event
from kwire.replication.core.metadata import LEADER_DURING_DELETE, TOPIC_RESOURCE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from kwire.protocol.schemas.control_plane import StopReplicaRequest, StopReplicaResponse
    from kwire.replication.controller.batch import Orders
    from kwire.replication.controller.changes import ChangeLog
    from kwire.replication.controller.context import ControllerContext
    from kwire.replication.controller.state import Record, TopicState
    from kwire.replication.core.events import LogEvent


def forget(context: ControllerContext, changelog: ChangeLog, topic: TopicState) -> None:
    """The topic and its configuration leave the journal. KafkaError when that refuses: nothing has changed then.

    `announce` tells the brokers."""
    state, name = context.state, topic.name
    records: list[Record] = [(f"topic/{name}", None)]
    if (TOPIC_RESOURCE, name) in state.configs:
        records.append(config_record(TOPIC_RESOURCE, name, {}))
    # The records of single partitions, so that compaction can forget them.
    for index in sorted(state.changed_partitions.get(name, ())):
        records.append((f"partition/{name}/{index}", None))
    changelog.commit(records)
    context.forget_disks_of(name)


def announce(
    orders: Orders,
    topics: list[TopicState],
    configured: set[str],
    log_event: LogEvent,
) -> None:
    """What follows from `forget` for the brokers that live. `configured`: topics that had a configuration."""
    batch = orders.batch()
    for topic in topics:
        for index, partition in enumerate(topic.partitions):
            batch.news(topic, index, deleted=True)
            for broker_id in partition.replicas:
                batch.stop(broker_id, topic.name, index, LEADER_DURING_DELETE, delete=True)
    batch.send()
    for topic in topics:
        if topic.name in configured:
            orders.config_changed(TOPIC_RESOURCE, topic.name, {})
        log_event(Event.TOPIC_DELETED, topic=topic.name, topic_id=topic.topic_id)


def stop_answered(
    broker_id: int,
    request: StopReplicaRequest,
    response: StopReplicaResponse,
    log_event: LogEvent,
) -> None:
    """What a broker could not delete is said, no more: it is a stray there when the broker starts again."""
    errors = {
        (error.topic_name, error.partition_index): error.error_code
        for error in response.partition_errors
    }
    for of_topic in request.topic_states:
        for stopped in of_topic.partition_states:
            code = errors.get((of_topic.topic_name, stopped.partition_index), 0)
            if code and stopped.delete_partition:
                log_event(
                    Event.REPLICA_DELETION_FAILED,
                    topic=of_topic.topic_name,
                    partition=stopped.partition_index,
                    broker_id=broker_id,
                    error=ErrorCode(code).name,
                )
