"""DescribeAcls (29): the access rules that a filter matches, as this broker knows them.

Answers to kafka.server.AclApis.handleDescribeAcls. Versions 0-3: v1 pattern types (KIP-290).
Rules are made and deleted by the controller (replication/controller/security/acls.py)."""

from __future__ import annotations

from kwire.protocol.errors import ErrorCode
from kwire.protocol.schemas.acls import (
    AclDescription,
    DescribeAclsRequest,
    DescribeAclsResource,
    DescribeAclsResponse,
)
from kwire.replication.core.acls import Entry, Filter, Pattern, filter_problem
from kwire.replication.core.metadata import ACL_RESOURCE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from kwire.apis.context import RequestContext

_DISABLED = "No Authorizer is configured on the broker"


def handle_describe_acls(ctx: RequestContext, request: DescribeAclsRequest) -> None:
    """DescribeAcls v0-3."""
    if ctx.services.authority is None:
        _refuse(ctx, int(ErrorCode.SECURITY_DISABLED), _DISABLED)
        return
    problem = filter_problem(request)
    if problem is not None:
        _refuse(ctx, *problem)
        return
    wanted, metadata = Filter(request), ctx.services.metadata
    resources = []
    for name in metadata.config_names(ACL_RESOURCE):
        pattern = Pattern.from_text(name)
        if not wanted.matches_pattern(pattern):
            continue
        entries = map(Entry.from_text, metadata.config(ACL_RESOURCE, name))
        matching = [entry for entry in entries if wanted.matches_entry(entry)]
        if matching:
            resources.append(
                DescribeAclsResource(
                    resource_type=pattern.resource_type,
                    resource_name=pattern.name,
                    pattern_type=pattern.pattern_type,
                    acls=[
                        AclDescription(
                            principal=entry.principal,
                            host=entry.host,
                            operation=entry.operation,
                            permission_type=entry.permission,
                        )
                        for entry in matching
                    ],
                )
            )
    ctx.reply(DescribeAclsResponse(error_message=None, resources=resources))


def _refuse(ctx: RequestContext, code: int, message: str) -> None:
    ctx.reply(DescribeAclsResponse(error_code=code, error_message=message))
