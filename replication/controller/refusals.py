"""Error responses to requests refused as a whole: not the controller, no controller, too late.

Where an API has no top-level error, each topic or resource of the request gets the error, as in
Kafka's getErrorResponse of each request. Used by the controller and by brokers that cannot reach
it; `table.py` assigns refusals to APIs.
"""

from __future__ import annotations

from kwire.protocol import api
from kwire.protocol.errors import ErrorCode

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from kwire.protocol.language.schema import Message
    from kwire.protocol.schemas.acls import (
        CreateAclsRequest,
        CreateAclsResponse,
        DeleteAclsRequest,
        DeleteAclsResponse,
    )
    from kwire.protocol.schemas.configs import (
        AlterConfigsRequest,
        AlterConfigsResponse,
        IncrementalAlterConfigsRequest,
        IncrementalAlterConfigsResponse,
    )
    from kwire.protocol.schemas.control_plane import ControlledShutdownRequest
    from kwire.protocol.schemas.metadata import (
        DescribeTopicPartitionsRequest,
        DescribeTopicPartitionsResponse,
    )
    from kwire.protocol.schemas.quotas import AlterClientQuotasRequest, AlterClientQuotasResponse
    from kwire.protocol.schemas.sasl import (
        AlterUserScramCredentialsRequest,
        AlterUserScramCredentialsResponse,
    )
    from kwire.protocol.schemas.tokens import (
        CreateDelegationTokenRequest,
        CreateDelegationTokenResponse,
    )
    from kwire.protocol.schemas.topics import (
        AlterPartitionReassignmentsRequest,
        AlterPartitionReassignmentsResponse,
        CreatePartitionsRequest,
        CreatePartitionsResponse,
        CreateTopicsRequest,
        CreateTopicsResponse,
        DeleteTopicsRequest,
        DeleteTopicsResponse,
        ElectLeadersRequest,
        ElectLeadersResponse,
    )


class Refusals:
    """One function per response shape: (request, version, error code, text) -> response."""

    @staticmethod
    def plain(request: Message, version: int, code: int, message: str | None) -> Message:
        """Return a response with a top-level error."""
        response: Any = api.response_class(api.key_of(request))()
        response.error_code = code
        if hasattr(response, "error_message"):
            response.error_message = message
        return response  # type: ignore[no-any-return]

    @staticmethod
    def controlled_shutdown(
        request: ControlledShutdownRequest, version: int, code: int, message: str | None
    ) -> Message:
        """Return a top-level error: as in KafkaController.controlledShutdown,
        STALE_CONTROLLER_EPOCH in place of NOT_CONTROLLER."""
        if code == ErrorCode.NOT_CONTROLLER:
            code = int(ErrorCode.STALE_CONTROLLER_EPOCH)
        return Refusals.plain(request, version, code, message)

    @staticmethod
    def create_topics(
        request: CreateTopicsRequest, version: int, code: int, message: str | None
    ) -> CreateTopicsResponse:
        from kwire.protocol.schemas.topics import CreatableTopicResult, CreateTopicsResponse

        names = dict.fromkeys(topic.name for topic in request.topics)
        return CreateTopicsResponse(
            topics=[
                CreatableTopicResult(name=name, error_code=code, error_message=message)
                for name in names
            ]
        )

    @staticmethod
    def delete_topics(
        request: DeleteTopicsRequest, version: int, code: int, message: str | None
    ) -> DeleteTopicsResponse:
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

    @staticmethod
    def create_partitions(
        request: CreatePartitionsRequest, version: int, code: int, message: str | None
    ) -> CreatePartitionsResponse:
        from kwire.protocol.schemas.topics import (
            CreatePartitionsResponse,
            CreatePartitionsTopicResult,
        )

        return CreatePartitionsResponse(
            results=[
                CreatePartitionsTopicResult(name=topic.name, error_code=code, error_message=message)
                for topic in request.topics
            ]
        )

    @staticmethod
    def alter_configs(
        request: AlterConfigsRequest, version: int, code: int, message: str | None
    ) -> AlterConfigsResponse:
        from kwire.protocol.schemas.configs import (
            AlterConfigsResourceResponse,
            AlterConfigsResponse,
        )

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

    @staticmethod
    def incremental_alter_configs(
        request: IncrementalAlterConfigsRequest, version: int, code: int, message: str | None
    ) -> IncrementalAlterConfigsResponse:
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

    @staticmethod
    def elect_leaders(
        request: ElectLeadersRequest, version: int, code: int, message: str | None
    ) -> ElectLeadersResponse:
        """Return an error for each partition of the request, and from v1 on a top-level one."""
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

    @staticmethod
    def alter_partition_reassignments(
        request: AlterPartitionReassignmentsRequest, version: int, code: int, message: str | None
    ) -> AlterPartitionReassignmentsResponse:
        """Return an error for each partition of the request, and a top-level one."""
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

    @staticmethod
    def describe_topic_partitions(
        request: DescribeTopicPartitionsRequest, version: int, code: int, message: str | None
    ) -> DescribeTopicPartitionsResponse:
        from kwire.protocol.schemas.metadata import DescribeTopicPartitionsResponse

        return DescribeTopicPartitionsResponse()  # without the data that only the controller has

    @staticmethod
    def alter_user_scram_credentials(
        request: AlterUserScramCredentialsRequest, version: int, code: int, message: str | None
    ) -> AlterUserScramCredentialsResponse:
        from kwire.protocol.schemas.sasl import (
            AlterUserScramCredentialsResponse,
            AlterUserScramCredentialsResult,
        )

        names = [each.name for each in request.deletions] + [
            each.name for each in request.upsertions
        ]
        return AlterUserScramCredentialsResponse(
            results=[
                AlterUserScramCredentialsResult(user=name, error_code=code, error_message=message)
                for name in dict.fromkeys(names)
            ]
        )

    @staticmethod
    def create_delegation_token(
        request: CreateDelegationTokenRequest, version: int, code: int, message: str | None
    ) -> CreateDelegationTokenResponse:
        from kwire.protocol.schemas.tokens import CreateDelegationTokenResponse

        return CreateDelegationTokenResponse(
            error_code=code,
            principal_type="User",
            principal_name="ANONYMOUS",
            token_requester_principal_type="User" if version >= 3 else "",
            token_requester_principal_name="ANONYMOUS" if version >= 3 else "",
            issue_timestamp_ms=-1,
            expiry_timestamp_ms=-1,
            max_timestamp_ms=-1,
        )

    @staticmethod
    def alter_client_quotas(
        request: AlterClientQuotasRequest, version: int, code: int, message: str | None
    ) -> AlterClientQuotasResponse:
        from kwire.protocol.schemas.quotas import (
            AlterClientQuotasResponse,
            AlterClientQuotasResponseEntryData,
        )

        return AlterClientQuotasResponse(
            entries=[
                AlterClientQuotasResponseEntryData(
                    error_code=code, error_message=message, entity=entry.entity
                )
                for entry in request.entries
            ]
        )

    @staticmethod
    def create_acls(
        request: CreateAclsRequest, version: int, code: int, message: str | None
    ) -> CreateAclsResponse:
        from kwire.protocol.schemas.acls import AclCreationResult, CreateAclsResponse

        return CreateAclsResponse(
            results=[
                AclCreationResult(error_code=code, error_message=message) for _ in request.creations
            ]
        )

    @staticmethod
    def delete_acls(
        request: DeleteAclsRequest, version: int, code: int, message: str | None
    ) -> DeleteAclsResponse:
        from kwire.protocol.schemas.acls import DeleteAclsFilterResult, DeleteAclsResponse

        return DeleteAclsResponse(
            filter_results=[
                DeleteAclsFilterResult(error_code=code, error_message=message)
                for _ in request.filters
            ]
        )
