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

from collections.abc import Mapping

from kwire.protocol.errors import ErrorCode, KafkaError
from kwire.protocol.language.primitives import ZERO_UUID
from kwire.replication.controller.context import duplicates
from kwire.replication.controller.state import config_record
from kwire.replication.core.events import Event
from kwire.replication.core.metadata import LEADER_DURING_DELETE, TOPIC_RESOURCE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from kwire.protocol.schemas.control_plane import StopReplicaRequest, StopReplicaResponse
    from kwire.protocol.schemas.topics import (
        DeletableTopicResult,
        DeleteTopicsRequest,
        DeleteTopicsResponse,
    )
    from kwire.replication.controller.batch import Orders
    from kwire.replication.controller.changes import ChangeLog
    from kwire.replication.controller.context import ControllerContext
    from kwire.replication.controller.state import Record, TopicState
    from kwire.replication.core.events import LogEvent

_NameAndId = tuple["str | None", bytes]
_UNKNOWN_ID = "This server does not host this topic ID."


class Deletion:
    """Handles DeleteTopics."""

    __slots__ = ("_changelog", "_context", "_log_event", "_orders")

    def __init__(
        self,
        context: ControllerContext,
        changelog: ChangeLog,
        orders: Orders,
        log_event: LogEvent,
    ) -> None:
        self._context = context
        self._changelog = changelog
        self._orders = orders
        self._log_event = log_event

    def handle(self, request: DeleteTopicsRequest, version: int) -> DeleteTopicsResponse:
        """Handle DeleteTopics v0-6."""
        from kwire.protocol.schemas.topics import DeleteTopicsResponse

        if version >= 6:
            wanted = [(topic.name, topic.topic_id) for topic in request.topics]
        else:
            wanted = [(name, ZERO_UUID) for name in request.topic_names]
        if not self._context.config.delete_topic_enable:
            code = ErrorCode.INVALID_REQUEST if version < 3 else ErrorCode.TOPIC_DELETION_DISABLED
            message = "Topic deletion is disabled."
            return DeleteTopicsResponse(
                responses=[_result(name, i, KafkaError(code, message)) for name, i in wanted]
            )
        # Duplicates are refused, with one result each.
        distinct = dict.fromkeys(wanted)
        repeated = duplicates(wanted)
        deleted: list[TopicState] = []
        configured = {name for kind, name in self._context.state.configs if kind == TOPIC_RESOURCE}
        responses = [
            self._delete_one(name, topic_id, distinct, repeated, deleted)
            for name, topic_id in distinct
            if not self._is_also_named(name, topic_id, distinct)
        ]
        announce(self._orders, deleted, configured, self._log_event)
        return DeleteTopicsResponse(responses=responses)

    def _is_also_named(
        self, name: str | None, topic_id: bytes, wanted: Mapping[_NameAndId, None]
    ) -> bool:
        """Whether the request lists the topic of this id by its name, too."""
        known = self._context.state.names_by_id.get(topic_id) if name is None else None
        return known is not None and (known, ZERO_UUID) in wanted

    def _delete_one(
        self,
        name: str | None,
        topic_id: bytes,
        wanted: Mapping[_NameAndId, None],
        repeated: set[_NameAndId],
        deleted: list[TopicState],
    ) -> DeletableTopicResult:
        try:
            if name is None and topic_id == ZERO_UUID:
                message = "Neither topic name nor id were specified."
                raise KafkaError(ErrorCode.INVALID_REQUEST, message)
            if name is not None and topic_id != ZERO_UUID:
                message = "You may not specify both topic name and topic id."
                raise KafkaError(ErrorCode.INVALID_REQUEST, message)
            if (name, topic_id) in repeated:
                word = "name" if name is not None else "id"
                raise KafkaError(ErrorCode.INVALID_REQUEST, f"Duplicate topic {word}.")
            if name is None:
                found = self._context.state.names_by_id.get(topic_id)
                if found is None:
                    raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID, _UNKNOWN_ID)
                name = found
            topic = self._context.topic(name)
            if (None, topic.topic_id) in wanted and topic_id == ZERO_UUID:
                topic_id = topic.topic_id
                message = "The provided topic name maps to an ID that was already supplied."
                raise KafkaError(ErrorCode.INVALID_REQUEST, message)
            self._context.charge(len(topic.partitions))
            delete_topic(self._context, self._changelog, topic)
            deleted.append(topic)
        except KafkaError as error:
            return _result(name, topic_id, error)
        return _result(name, topic.topic_id, None)


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


def _result(name: str | None, topic_id: bytes, error: KafkaError | None) -> DeletableTopicResult:
    """The answer about one topic of a DeleteTopics."""
    from kwire.protocol.schemas.topics import (
        DeletableTopicResult,
    )

    if error is None:
        return DeletableTopicResult(name=name, topic_id=topic_id)
    return DeletableTopicResult(
        name=name, topic_id=topic_id, error_code=int(error.code), error_message=error.message
    )
