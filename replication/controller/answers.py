"""Answers to requests that are refused as a whole: the wrong controller, no controller, too late.

What a request names is listed with the error where its API has no error for all of it, as Kafka's getErrorResponse
of each request does. Used by the controller itself and by brokers that could not reach it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kwire.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from typing import Any

    from kwire.protocol.language.schema import Message


def refusal(request: Message, version: int, code: ErrorCode, message: str | None = None) -> Message:
    """The answer that carries `code` for everything in a request that a controller takes. KeyError for others."""
    name = type(request).__name__
    builder = _LISTING.get(name)
    if builder is not None:
        return builder(request, int(code), message)
    if name == "ElectLeadersRequest":
        return _elect_leaders(request, version, int(code), message)
    from importlib import import_module

    if name == "ControlledShutdownRequest" and code is ErrorCode.NOT_CONTROLLER:
        code = ErrorCode.STALE_CONTROLLER_EPOCH  # KafkaController.controlledShutdown says it so
    module = import_module(f"kwire.protocol.schemas.{_PLAIN[name]}")
    response: Any = getattr(module, name.replace("Request", "Response"))()
    response.error_code = int(code)
    if hasattr(response, "error_message"):
        response.error_message = message
    return response  # type: ignore[no-any-return]


# Any: each builder knows its own request.
def _create_topics(request: Any, code: int, message: str | None) -> Message:
    from kwire.protocol.schemas.topics import CreatableTopicResult, CreateTopicsResponse

    names = dict.fromkeys(topic.name for topic in request.topics)
    return CreateTopicsResponse(
        topics=[
            CreatableTopicResult(name=name, error_code=code, error_message=message)
            for name in names
        ]
    )


def _delete_topics(request: Any, code: int, message: str | None) -> Message:
    from kwire.protocol.schemas.topics import DeletableTopicResult, DeleteTopicsResponse

    results = [
        DeletableTopicResult(name=name, error_code=code, error_message=message)
        for name in request.topic_names
    ]
    results += [
        DeletableTopicResult(
            name=topic.name, topic_id=topic.topic_id, error_code=code, error_message=message
        )
        for topic in request.topics
    ]
    return DeleteTopicsResponse(responses=results)


def _create_partitions(request: Any, code: int, message: str | None) -> Message:
    from kwire.protocol.schemas.topics import CreatePartitionsResponse, CreatePartitionsTopicResult

    return CreatePartitionsResponse(
        results=[
            CreatePartitionsTopicResult(name=topic.name, error_code=code, error_message=message)
            for topic in request.topics
        ]
    )


def _alter_configs(request: Any, code: int, message: str | None) -> Message:
    from kwire.protocol.schemas.configs import AlterConfigsResourceResponse, AlterConfigsResponse

    return AlterConfigsResponse(
        responses=[
            AlterConfigsResourceResponse(
                error_code=code,
                error_message=message,
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
            )
            for resource in request.resources
        ]
    )


def _incremental_alter_configs(request: Any, code: int, message: str | None) -> Message:
    from kwire.protocol.schemas.configs import (
        IncrementalAlterConfigsResourceResponse,
        IncrementalAlterConfigsResponse,
    )

    return IncrementalAlterConfigsResponse(
        responses=[
            IncrementalAlterConfigsResourceResponse(
                error_code=code,
                error_message=message,
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
            )
            for resource in request.resources
        ]
    )


def _elect_leaders(request: Any, version: int, code: int, message: str | None) -> Message:
    """Both: every partition that was named, and from v1 on all of it."""
    from kwire.protocol.schemas.topics import (
        ElectLeadersResponse,
        PartitionResult,
        ReplicaElectionResult,
    )

    return ElectLeadersResponse(
        error_code=code if version >= 1 else 0,
        replica_election_results=[
            ReplicaElectionResult(
                topic=topic.topic,
                partition_result=[
                    PartitionResult(partition_id=index, error_code=code, error_message=message)
                    for index in topic.partitions
                ],
            )
            for topic in request.topic_partitions or ()
        ],
    )


def _alter_partition_reassignments(request: Any, code: int, message: str | None) -> Message:
    """Both: every partition that was named, and all of it."""
    from kwire.protocol.schemas.topics import (
        AlterPartitionReassignmentsResponse,
        ReassignablePartitionResponse,
        ReassignableTopicResponse,
    )

    return AlterPartitionReassignmentsResponse(
        error_code=code,
        error_message=message,
        responses=[
            ReassignableTopicResponse(
                name=topic.name,
                partitions=[
                    ReassignablePartitionResponse(
                        partition_index=partition.partition_index,
                        error_code=code,
                        error_message=message,
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ],
    )


def _describe_topic_partitions(request: Any, code: int, message: str | None) -> Message:
    from kwire.protocol.schemas.metadata import DescribeTopicPartitionsResponse

    return DescribeTopicPartitionsResponse()  # what the controller could have added, nobody adds


_LISTING = {
    "DescribeTopicPartitionsRequest": _describe_topic_partitions,
    "CreateTopicsRequest": _create_topics,
    "DeleteTopicsRequest": _delete_topics,
    "CreatePartitionsRequest": _create_partitions,
    "AlterConfigsRequest": _alter_configs,
    "AlterPartitionReassignmentsRequest": _alter_partition_reassignments,
    "IncrementalAlterConfigsRequest": _incremental_alter_configs,
}
# Requests whose answer has one error for all, and the module of both.
_PLAIN = {
    "AllocateProducerIdsRequest": "control_plane",
    "AlterPartitionRequest": "control_plane",
    "BrokerHeartbeatRequest": "nodes",
    "BrokerRegistrationRequest": "nodes",
    "ControlledShutdownRequest": "control_plane",
    "ListPartitionReassignmentsRequest": "topics",
    "UnregisterBrokerRequest": "nodes",
}
