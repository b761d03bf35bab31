"""Responses that refuse requests as a whole, of APIs that a broker answers: getErrorResponse of each request of Kafka.

Here are those without a top-level error, or with more than one; the controller's are in its own table."""

from __future__ import annotations

from kwire.apis.parts.results import refused_result
from kwire.apis.parts.shapes import shape_of
from kwire.protocol.api import ApiKey, key_of, response_class
from kwire.protocol.schemas.cluster import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)
from kwire.protocol.schemas.groups import JoinGroupRequest, JoinGroupResponse
from kwire.protocol.schemas.nodes import UnregisterBrokerRequest, UnregisterBrokerResponse
from kwire.protocol.schemas.quotas import DescribeClientQuotasRequest, DescribeClientQuotasResponse
from kwire.protocol.schemas.sasl import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)
from kwire.protocol.schemas.topics import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)
from kwire.protocol.schemas.transactions import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from kwire.protocol.language.schema import Message


def _parts(request: Any, version: int, code: int, _: str) -> Message:
    """Each part has its own error: all of them are refused."""
    key = key_of(request)
    shape = shape_of(key, version)
    assert shape is not None
    response = response_class(key)()
    results = [
        refused_result(shape, each, code)
        for each in getattr(request, shape.asked.partition("/")[0])
    ]
    setattr(response, shape.answered.partition("/")[0], results)
    return response


def _join_group(_: JoinGroupRequest, version: int, code: int, __: str) -> JoinGroupResponse:
    return JoinGroupResponse(error_code=code, protocol_name=None if version >= 7 else "")


def _add_partitions(
    request: AddPartitionsToTxnRequest, version: int, code: int, message: str
) -> Message:
    if version >= 4:
        return AddPartitionsToTxnResponse(error_code=code)
    return _parts(request, version, code, message)


def _alter_log_dirs(
    request: AlterReplicaLogDirsRequest, _: int, code: int, __: str
) -> AlterReplicaLogDirsResponse:
    return AlterReplicaLogDirsResponse(
        results=[
            AlterReplicaLogDirTopicResult(
                topic_name=topic.name,
                partitions=[
                    AlterReplicaLogDirPartitionResult(partition_index=i, error_code=code)
                    for i in topic.partitions
                ],
            )
            for directory in request.dirs
            for topic in directory.topics
        ]
    )


def _describe_quotas(
    _: DescribeClientQuotasRequest, __: int, code: int, ___: str
) -> DescribeClientQuotasResponse:
    return DescribeClientQuotasResponse(error_code=code, error_message=None, entries=None)


def _describe_scram(
    _: DescribeUserScramCredentialsRequest, __: int, code: int, ___: str
) -> DescribeUserScramCredentialsResponse:
    result = DescribeUserScramCredentialsResult(error_code=code, error_message=None)
    return DescribeUserScramCredentialsResponse(
        error_code=code, error_message=None, results=[result]
    )


def _unregister_broker(
    _: UnregisterBrokerRequest, __: int, code: int, ___: str
) -> UnregisterBrokerResponse:
    return UnregisterBrokerResponse(error_code=code, error_message="")


def _list_reassignments(
    request: ListPartitionReassignmentsRequest, _: int, code: int, message: str
) -> ListPartitionReassignmentsResponse:
    return ListPartitionReassignmentsResponse(
        error_code=code,
        error_message=message,
        topics=[
            OngoingTopicReassignment(
                name=topic.name,
                partitions=[
                    OngoingPartitionReassignment(partition_index=i) for i in topic.partition_indexes
                ],
            )
            for topic in request.topics or ()
        ],
    )


REFUSALS: dict[ApiKey, Callable[[Any, int, int, str], Message]] = {
    ApiKey.PRODUCE: _parts,
    ApiKey.OFFSET_COMMIT: _parts,
    ApiKey.JOIN_GROUP: _join_group,
    ApiKey.ADD_PARTITIONS_TO_TXN: _add_partitions,
    ApiKey.WRITE_TXN_MARKERS: _parts,
    ApiKey.TXN_OFFSET_COMMIT: _parts,
    ApiKey.ALTER_REPLICA_LOG_DIRS: _alter_log_dirs,
    ApiKey.DESCRIBE_CLIENT_QUOTAS: _describe_quotas,
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: _describe_scram,
    ApiKey.LIST_PARTITION_REASSIGNMENTS: _list_reassignments,
    ApiKey.UNREGISTER_BROKER: _unregister_broker,
}
