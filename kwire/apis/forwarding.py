"""What only the controller can answer: asked in the same process, or forwarded to the node that it is (KIP-590).

Answers to kafka.server.ForwardingManager. A broker that hosts the controller calls it directly; any other wraps the
request into an Envelope (`replication/controller_link.py`) and parks it. No answer in time, or none that can be read,
is answered with the API's own error response.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kwire.apis.context import PARKED
from kwire.protocol import api
from kwire.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from kwire.apis.context import Parked, RequestContext
    from kwire.protocol.schema import Message


def ask_controller(
    ctx: RequestContext,
    request: Message,
    finish: Callable[[Any], Message] | None = None,
) -> Message | Parked:
    """The controller's response to `request` (of the context's API and version), `finish`ed: now, or PARKED."""
    services = ctx.services
    member = services.member
    if member is None:
        assert services.controller is not None
        response = services.controller.handle(request, ctx.api_version)
        return response if finish is None else finish(response)

    def answered(answer: Message | ErrorCode) -> None:
        response = error_response(request, answer) if isinstance(answer, ErrorCode) else answer
        ctx.reply(response if finish is None else finish(response))

    member.link.forward(
        ctx.api_key,
        ctx.api_version,
        request,
        answered,
        client_id=ctx.client_id,
        client_host=ctx.session.peer_host,
    )
    return PARKED


def error_response(request: Message, error: ErrorCode) -> Message:
    """The response of the request's API that says `error` of everything that was asked."""
    kind = type(request).__name__
    build = _BUILDERS.get(kind)
    if build is not None:
        return build(request, int(error))
    key = next(key for key in api.ApiKey if key.api_name + "Request" == kind)
    response = api.response_class(key)()
    response.error_code = int(error)  # type: ignore[attr-defined]  # all but those above have one
    return response


def _create_topics(request: Any, code: int) -> Message:
    from kwire.protocol.schemas.topics import CreatableTopicResult, CreateTopicsResponse

    return CreateTopicsResponse(
        topics=[
            CreatableTopicResult(name=topic.name, error_code=code, error_message=None)
            for topic in request.topics
        ]
    )


def _delete_topics(request: Any, code: int) -> Message:
    from kwire.protocol.schemas.topics import DeletableTopicResult, DeleteTopicsResponse

    by_id = [DeletableTopicResult(name=t.name, topic_id=t.topic_id) for t in request.topics]
    by_name = [DeletableTopicResult(name=name) for name in request.topic_names]
    for result in by_id + by_name:
        result.error_code = code
    return DeleteTopicsResponse(responses=by_id + by_name)


def _create_partitions(request: Any, code: int) -> Message:
    from kwire.protocol.schemas.topics import CreatePartitionsResponse, CreatePartitionsTopicResult

    return CreatePartitionsResponse(
        results=[
            CreatePartitionsTopicResult(name=topic.name, error_code=code)
            for topic in request.topics
        ]
    )


def _alter_configs(request: Any, code: int) -> Message:
    from kwire.protocol.schemas.configs import AlterConfigsResourceResponse, AlterConfigsResponse

    return AlterConfigsResponse(
        responses=[
            AlterConfigsResourceResponse(
                error_code=code,
                error_message=None,
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
            )
            for resource in request.resources
        ]
    )


def _incremental_alter_configs(request: Any, code: int) -> Message:
    from kwire.protocol.schemas.configs import (
        IncrementalAlterConfigsResourceResponse,
        IncrementalAlterConfigsResponse,
    )

    return IncrementalAlterConfigsResponse(
        responses=[
            IncrementalAlterConfigsResourceResponse(
                error_code=code,
                error_message=None,
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
            )
            for resource in request.resources
        ]
    )


_BUILDERS: dict[str, Callable[[Any, int], Message]] = {
    "CreateTopicsRequest": _create_topics,
    "DeleteTopicsRequest": _delete_topics,
    "CreatePartitionsRequest": _create_partitions,
    "AlterConfigsRequest": _alter_configs,
    "IncrementalAlterConfigsRequest": _incremental_alter_configs,
}
