"""Topic deletion: immediate at the controller, then by requests to the brokers.

Answers to KRaft's ReplicationControlManager.deleteTopic, with the requests of ZooKeeper mode
(kafka.controller.TopicDeletionManager): UpdateMetadata with leader -2 to all live brokers, then
StopReplica with deletion to the live replicas. Nothing waits for dead replicas: the name is free,
and a replica that a broker brings back later is a stray, because the full LeaderAndIsr and
UpdateMetadata of its registration (and of a new controller) do not list its topic id. The broker
renames the log of a stray (`replica/control.py`).

Invariant: a broker gets the requests about the old topic before those about a new topic of its
name; it never hosts both. Deliberate difference: TopicDeletionManager keeps the name until the
last dead replica has returned.
"""

from __future__ import annotations

from kwire.protocol.errors import ErrorCode
from kwire.replication.controller.state import config_record
from kwire.replication.core.events import Event
from kwire.replication.core.metadata import LEADER_DURING_DELETE, TOPIC_RESOURCE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from kwire.protocol.errors import KafkaError
    from kwire.protocol.schemas.control_plane import StopReplicaRequest, StopReplicaResponse
    from kwire.protocol.schemas.topics import DeletableTopicResult
    from kwire.replication.controller.batch import Orders
    from kwire.replication.controller.changes import ChangeLog
    from kwire.replication.controller.context import ControllerContext
    from kwire.replication.controller.state import Record, TopicState
    from kwire.replication.core.events import LogEvent


def delete_topic(context: ControllerContext, changelog: ChangeLog, topic: TopicState) -> None:
    """Delete the topic and its configuration from the state; `announce` sends it to the brokers.

    KafkaError from the journal: nothing has changed."""
    state, name = context.state, topic.name
    records: list[Record] = [(f"topic/{name}", None)]
    if (TOPIC_RESOURCE, name) in state.configs:
        records.append(config_record(TOPIC_RESOURCE, name, {}))
    # The partitions' own records, too, so that compaction drops them.
    for index in sorted(state.changed_partitions.get(name, ())):
        records.append((f"partition/{name}/{index}", None))
    changelog.commit(records)
    context.clear_offline_replicas(name)


def announce(
    orders: Orders,
    topics: list[TopicState],
    configured: set[str],
    log_event: LogEvent,
) -> None:
    """Send the deletion of topics to the live brokers.

    `configured`: names of topics that had overrides."""
    batch = orders.batch()
    for topic in topics:
        for index, partition in enumerate(topic.partitions):
            batch.add_metadata(topic, index, deleted=True)
            for broker_id in partition.replicas:
                batch.add_stop_replica(
                    broker_id, topic.name, index, LEADER_DURING_DELETE, delete=True
                )
    batch.send()
    for topic in topics:
        if topic.name in configured:
            orders.config_changed(TOPIC_RESOURCE, topic.name, {})
        log_event(Event.TOPIC_DELETED, topic=topic.name, topic_id=topic.topic_id)


def handle_stop_replica_response(
    broker_id: int,
    request: StopReplicaRequest,
    response: StopReplicaResponse,
    log_event: LogEvent,
) -> None:
    """Log replicas that a broker could not delete: they are strays when the broker starts again."""
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


def result_of(name: str | None, topic_id: bytes, error: KafkaError | None) -> DeletableTopicResult:
    """The answer about one topic of a DeleteTopics."""
    from kwire.protocol.schemas.topics import DeletableTopicResult

    if error is None:
        return DeletableTopicResult(name=name, topic_id=topic_id)
    return DeletableTopicResult(
        name=name, topic_id=topic_id, error_code=int(error.code), error_message=error.message
    )
