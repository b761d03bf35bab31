"""Topic creation and deletion, and additional partitions.

Answers to KRaft's ReplicationControlManager (3.9: its checks, their order and their texts), with
the replica placement of `placement.py`. Topics of a request succeed and fail
independently.

Left out: create.topic.policy.class.name. The request's time-out is not used here:
`Controller.submit` waits for the brokers. As in Kafka what is only validated is charged to the client, too.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping

from kwire.protocol.errors import ErrorCode, KafkaError
from kwire.replication.controller.context import duplicates
from kwire.replication.controller.state import (
    PartitionState,
    Record,
    TopicState,
    config_record,
    partition_record,
    topic_record,
)
from kwire.replication.core.events import Event
from kwire.replication.core.metadata import TOPIC_RESOURCE
from kwire.replication.core.work import at_once

TYPE_CHECKING = False
if TYPE_CHECKING:
    from random import Random

    from kwire.protocol.schemas.topics import (
        CreatableTopic,
        CreatableTopicConfigs,
        CreatableTopicResult,
        CreatePartitionsAssignment,
        CreatePartitionsRequest,
        CreatePartitionsResponse,
        CreatePartitionsTopic,
        CreateTopicsRequest,
        CreateTopicsResponse,
        DeleteTopicsRequest,
        DeleteTopicsResponse,
    )
    from kwire.replication.controller.batch import Orders
    from kwire.replication.controller.changes import ChangeLog
    from kwire.replication.controller.configs import ConfigControl
    from kwire.replication.controller.context import ControllerContext
    from kwire.replication.core.events import LogEvent
    from kwire.replication.core.work import Steps

_CLUSTER_METADATA = "__cluster_metadata"  # the metadata log of KRaft, reserved
_MAX_PARTITIONS_PER_BATCH = 10_000  # KRaft's limit per controller operation

_ANNOUNCED = 100  # partitions, between two yields
_UNITS_PLANNED, _UNITS_ANNOUNCED = 2, 10


class TopicControl:
    """Handles CreateTopics, DeleteTopics and CreatePartitions."""

    def __init__(
        self,
        context: ControllerContext,
        changelog: ChangeLog,
        orders: Orders,
        configs: ConfigControl,
        random: Random,
        *,
        log_event: LogEvent,
    ) -> None:
        self._context = context
        self._changelog = changelog
        self._orders = orders
        self._configs = configs
        self._random = random
        self._log_event = log_event
        self._default_configs: tuple[object, list[CreatableTopicConfigs]] | None = None

    # --- create

    def create_topics(
        self, request: CreateTopicsRequest, version: int
    ) -> Generator[int, None, CreateTopicsResponse]:
        """Handle CreateTopics v0-7."""
        from kwire.protocol.schemas.topics import CreatableTopicResult, CreateTopicsResponse

        repeated = duplicates(topic.name for topic in request.topics)
        refused: set[str] = set()
        results: list[CreatableTopicResult] = []
        created: list[TopicState] = []
        for topic in request.topics:
            if topic.name in refused:
                continue
            try:
                if topic.name in repeated:
                    refused.add(topic.name)
                    raise KafkaError(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
                if topic.name == _CLUSTER_METADATA:
                    raise KafkaError(
                        ErrorCode.INVALID_REQUEST,
                        f"Creation of internal topic {_CLUSTER_METADATA} is prohibited.",
                    )
                state, overrides = self._plan(topic)
                yield len(state.partitions) * _UNITS_PLANNED
                if not request.validate_only:
                    self._commit_topic(state, overrides)
                    created.append(state)
            except KafkaError as error:
                code, message = int(error.code), error.message
                results.append(
                    CreatableTopicResult(name=topic.name, error_code=code, error_message=message)
                )
            else:
                results.append(
                    CreatableTopicResult(
                        name=topic.name,
                        topic_id=state.topic_id,
                        error_message=None,
                        num_partitions=len(state.partitions),
                        replication_factor=len(state.partitions[0].replicas),
                        configs=self._result_configs(overrides) if version >= 5 else [],
                    )
                )
        yield from self._announce_partitions(created)
        return CreateTopicsResponse(topics=results)

    def create_auto(self, name: str) -> TopicState:
        """Return the topic; create it first if missing (internal topics: with their own settings).

        KafkaError when the creation is refused."""
        from kwire.protocol.schemas.topics import CreatableTopic
        from kwire.replication.config.auto_topics import auto_topic_settings

        existing = self._context.state.topics.get(name)
        if existing is not None:
            return existing
        partitions, replication_factor, overrides = auto_topic_settings(self._context.config, name)
        topic = CreatableTopic(
            name=name, num_partitions=partitions, replication_factor=replication_factor
        )
        state, _ = self._plan(topic)
        self._commit_topic(state, overrides)
        at_once(self._announce_partitions([state]))
        return state

    def _announce_partitions(self, topics: list[TopicState], first_partition: int = 0) -> Steps:
        """Send new partitions (from `first_partition` on): roles to replicas, metadata to all."""
        if not topics:
            return
        batch = self._orders.batch()
        for topic in topics:
            count = len(topic.partitions)
            for start in range(first_partition, count, _ANNOUNCED):
                end = min(start + _ANNOUNCED, count)
                for index in range(start, end):
                    batch.add_partition(topic, index, is_new=True)
                yield (end - start) * _UNITS_ANNOUNCED
        batch.send()

    def _plan(self, topic: CreatableTopic) -> tuple[TopicState, dict[str, str]]:
        """Validate a new topic, place its replicas and return (topic, overrides)."""
        from kwire.replication.core.topic_names import topic_name_problem

        context = self._context
        name = topic.name
        problem = topic_name_problem(name)
        if problem is not None:
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, problem)
        if name in context.state.topics:
            raise KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
        shape = name.replace(".", "_")
        other = context.state.collision_names.get(shape)
        if other is not None:
            message = f"Topic '{name}' collides with existing topic: {other}"
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, message)
        overrides = self._configs.check_topic_config(
            {config.name: config.value for config in topic.configs}
        )
        if topic.assignments:
            partitions = self._manual_partitions(topic)
        else:
            partitions = self._placed_partitions(topic)
        context.charge(len(partitions))
        return TopicState(name, self._new_topic_id(), partitions), overrides

    def _manual_partitions(self, topic: CreatableTopic) -> list[PartitionState]:
        from kwire.replication.controller.placement import check_manual_assignment

        prefix = "A manual partition assignment was specified, but"
        if topic.replication_factor != -1:
            message = f"{prefix} replication factor was not set to -1."
            raise KafkaError(ErrorCode.INVALID_REQUEST, message)
        if topic.num_partitions != -1:
            message = f"{prefix} numPartitions was not set to -1."
            raise KafkaError(ErrorCode.INVALID_REQUEST, message)
        registered = sorted(self._context.state.broker_epochs)  # alive or not
        replicas_of: dict[int, list[int]] = {}
        replication_factor = None
        for assignment in topic.assignments:
            index = assignment.partition_index
            if index in replicas_of:
                message = f"Found multiple manual partition assignments for partition {index}"
                raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)
            check_manual_assignment(assignment.broker_ids, registered, replication_factor)
            replication_factor = len(assignment.broker_ids)
            replicas_of[index] = assignment.broker_ids
        if sorted(replicas_of) != list(range(len(replicas_of))):
            message = "partitions should be a consecutive 0-based integer sequence"
            raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)
        return [
            self._context.new_partition(replicas_of[index]) for index in range(len(replicas_of))
        ]

    def _placed_partitions(self, topic: CreatableTopic) -> list[PartitionState]:
        from kwire.replication.controller.placement import assign_replicas

        context = self._context
        count, factor = topic.num_partitions, topic.replication_factor
        if factor < -1 or factor == 0:
            raise KafkaError(
                ErrorCode.INVALID_REPLICATION_FACTOR,
                "Replication factor must be larger than 0, or -1 to use the default value.",
            )
        if count < -1 or count == 0:
            raise KafkaError(
                ErrorCode.INVALID_PARTITIONS,
                "Number of partitions was set to an invalid non-positive value.",
            )
        count = context.config.num_partitions if count == -1 else count
        factor = context.config.default_replication_factor if factor == -1 else factor
        _check_batch_size(count)
        replicas = assign_replicas(context.racks(), count, factor, self._random, down=self._down())
        return [context.new_partition(r) for r in replicas]

    def _new_topic_id(self) -> bytes:
        """Return a random UUID as in Kafka: not reserved, not starting with "-" in base64url."""
        while True:
            number = self._random.getrandbits(128)
            topic_id = bytearray(number.to_bytes(16, "big"))
            topic_id[6] = topic_id[6] & 0x0F | 0x40
            topic_id[8] = topic_id[8] & 0x3F | 0x80
            if topic_id[0] >> 2 != 62:  # the sextet that base64url writes as "-"
                return bytes(topic_id)

    def _commit_topic(self, topic: TopicState, overrides: Mapping[str, str]) -> None:
        records: list[Record] = [topic_record(topic.name, topic.topic_id, topic.partitions)]
        if overrides:
            records.append(config_record(TOPIC_RESOURCE, topic.name, overrides))
        self._changelog.commit(records)
        self._log_event(
            Event.TOPIC_CREATED,
            topic=topic.name,
            topic_id=topic.topic_id,
            partitions=len(topic.partitions),
            replication_factor=len(topic.partitions[0].replicas),
        )
        if overrides:
            self._orders.config_changed(TOPIC_RESOURCE, topic.name, overrides)

    def _result_configs(self, overrides: Mapping[str, str]) -> list[CreatableTopicConfigs]:
        """Return the new topic's configuration (KIP-525); the list without overrides is cached."""
        default = self._context.config.log_config()  # a new object after each dynamic change
        if not overrides and self._default_configs and self._default_configs[0] is default:
            return self._default_configs[1]
        from kwire.protocol.schemas.topics import CreatableTopicConfigs
        from kwire.replication.config.entries import effective_topic_config

        result = [
            CreatableTopicConfigs(name=name, value=value, config_source=source)
            for name, value, source in effective_topic_config(overrides, self._context.config)
        ]
        if not overrides:
            self._default_configs = default, result
        return result

    # --- delete

    def delete_topics(self, request: DeleteTopicsRequest, version: int) -> DeleteTopicsResponse:
        """Handle DeleteTopics v0-6."""
        from kwire.replication.controller.deletion import Deletion

        deletion = Deletion(self._context, self._changelog, self._orders, self._log_event)
        return deletion.handle(request, version)

    # --- more partitions

    def create_partitions(
        self, request: CreatePartitionsRequest, version: int
    ) -> Generator[int, None, CreatePartitionsResponse]:
        """Handle CreatePartitions v0-3."""
        from kwire.protocol.schemas.topics import (
            CreatePartitionsResponse,
            CreatePartitionsTopicResult,
        )

        repeated = duplicates(topic.name for topic in request.topics)
        refused: set[str] = set()
        results: list[CreatePartitionsTopicResult] = []
        for topic in request.topics:
            if topic.name in refused:
                continue
            result = CreatePartitionsTopicResult(name=topic.name)
            try:
                if topic.name in repeated:
                    refused.add(topic.name)
                    raise KafkaError(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
                yield from self._add_partitions(topic, request.validate_only)
            except KafkaError as error:
                result.error_code, result.error_message = int(error.code), error.message
            results.append(result)
        return CreatePartitionsResponse(results=results)

    def _add_partitions(self, request: CreatePartitionsTopic, validate_only: bool) -> Steps:
        from kwire.replication.controller.placement import assign_replicas

        context = self._context
        topic = context.state.topics.get(request.name)
        if topic is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)  # without a message, as in Kafka
        current = len(topic.partitions)
        _check_count(topic.name, current, request.count)
        added = request.count - current
        factor = len(topic.partitions[0].original)
        _check_assigned(request, added)
        context.charge(added)
        if request.assignments is not None:
            replicas = self._manual_additions(request.assignments, factor)
        else:
            _check_batch_size(added)
            replicas = assign_replicas(
                context.racks(),
                added,
                factor,
                self._random,
                first_partition=current,
                start_index=self._start_index(topic),
                down=self._down(),
            )
        if validate_only:
            return
        self._changelog.commit(
            [
                partition_record(topic, index, context.new_partition(r))
                for index, r in enumerate(replicas, current)
            ]
        )
        yield from self._announce_partitions([topic], current)

    def _manual_additions(
        self, assignments: list[CreatePartitionsAssignment], factor: int
    ) -> list[list[int]]:
        from kwire.replication.controller.placement import check_manual_assignment

        registered = sorted(self._context.state.broker_epochs)
        for assignment in assignments:
            check_manual_assignment(assignment.broker_ids, registered, factor)
        return [assignment.broker_ids for assignment in assignments]

    def _down(self) -> list[int]:
        """Return registered brokers that are not live, or are shutting down."""
        context = self._context
        return sorted(context.state.broker_epochs.keys() - context.eligible)

    def _start_index(self, topic: TopicState) -> int:
        """Return the index of the first live broker from partition 0's first on (AdminUtils)."""
        first = topic.partitions[0].replicas[0]
        ids = sorted(broker_id for broker_id, _ in self._context.racks())
        return next((index for index, broker_id in enumerate(ids) if broker_id >= first), 0)


def _check_count(topic: str, current: int, count: int) -> None:
    if count == current:
        message = f"Topic already has {current} partition(s)."
        raise KafkaError(ErrorCode.INVALID_PARTITIONS, message)
    if count < current:
        message = (
            f"The topic {topic} currently has {current} partition(s); "
            f"{count} would not be an increase."
        )
        raise KafkaError(ErrorCode.INVALID_PARTITIONS, message)


def _check_assigned(request: CreatePartitionsTopic, added: int) -> None:
    if request.assignments is not None and len(request.assignments) != added:
        message = (
            f"Attempted to add {added} additional partition(s), but only "
            f"{len(request.assignments)} assignment(s) were specified."
        )
        raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)


def _check_batch_size(partitions: int) -> None:
    if partitions > _MAX_PARTITIONS_PER_BATCH:
        message = (
            "Excessively large number of partitions per request. "
            f"At most {_MAX_PARTITIONS_PER_BATCH} can be created at once."
        )
        raise KafkaError(ErrorCode.POLICY_VIOLATION, message)
