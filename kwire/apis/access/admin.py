"""Checks of the requests about configurations and the cluster."""

from __future__ import annotations

from kwire.apis.access.checks import ERRORS, MESSAGES, add_to, let
from kwire.protocol.api import ApiKey
from kwire.replication.core.acls import CLUSTER
from kwire.replication.core.metadata import (
    BROKER_LOGGER_RESOURCE,
    BROKER_RESOURCE,
    CLIENT_METRICS_RESOURCE,
    GROUP_RESOURCE,
    TOPIC_RESOURCE,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from kwire.apis import Handler
    from kwire.apis.access.authority import Authority
    from kwire.apis.access.table import Need, Row
    from kwire.apis.context import RequestContext
    from kwire.protocol.language.schema import Message

_OF_CLUSTER = (BROKER_RESOURCE, BROKER_LOGGER_RESOURCE, CLIENT_METRICS_RESOURCE)


def _split(
    authority: Authority, ctx: RequestContext, request: Any, row: Row
) -> list[tuple[Any, Need]]:
    """Take the resources out of a request that the client may not see or change; returns them, with what they need."""
    topic, group, cluster = row.needs
    allowed: list[Any] = []
    others: list[tuple[Any, Need]] = []
    for resource in request.resources:
        kind, name = resource.resource_type, resource.resource_name
        if kind == TOPIC_RESOURCE:
            need, is_allowed = topic, authority.may(ctx, topic, name)
        elif kind == GROUP_RESOURCE:
            need, is_allowed = group, authority.may(ctx, group, name)
        else:  # of an unknown type: it is the handler's to refuse
            need, is_allowed = cluster, kind not in _OF_CLUSTER or authority.may(ctx, cluster)
        if is_allowed:
            allowed.append(resource)
        else:
            others.append((resource, need))
    request.resources = allowed
    return others


def _refusals(kind: Callable[..., Any], others: list[tuple[Any, Need]]) -> list[Any]:
    """The results, of an API's `kind`, of resources that the client may not use."""
    return [
        kind(
            error_code=int(ERRORS[need.resource_type]),
            error_message=MESSAGES[need.resource_type],
            resource_type=resource.resource_type,
            resource_name=resource.resource_name,
        )
        for resource, need in others
    ]


def describe_configs(
    authority: Authority, ctx: RequestContext, request: Any, handler: Handler, row: Row
) -> None:
    from kwire.protocol.schemas.configs import DescribeConfigsResult

    refusals = _refusals(DescribeConfigsResult, _split(authority, ctx, request, row))
    let(ctx, request, handler, add_to("results", refusals))


def alter_configs(
    authority: Authority, ctx: RequestContext, request: Any, handler: Handler, row: Row
) -> None:
    """AlterConfigs and IncrementalAlterConfigs."""
    from kwire.protocol.schemas import configs

    kind: Any = configs.AlterConfigsResourceResponse
    if ctx.api_key == ApiKey.INCREMENTAL_ALTER_CONFIGS:
        kind = configs.IncrementalAlterConfigsResourceResponse
    refusals = _refusals(kind, _split(authority, ctx, request, row))
    let(ctx, request, handler, add_to("responses", refusals))


def describe_cluster(
    authority: Authority, ctx: RequestContext, request: Any, handler: Handler, row: Row
) -> None:
    def amend(response: Any) -> Message:
        if request.include_cluster_authorized_operations and not response.error_code:
            known = authority.may(ctx, row.needs[0])
            operations = authority.operations(ctx, CLUSTER) if known else 0
            response.cluster_authorized_operations = operations
        return response  # type: ignore[no-any-return]

    let(ctx, request, handler, amend)
