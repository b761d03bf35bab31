"""Access rules: CreateAcls and DeleteAcls, and what the brokers are to know of them.

Answers to org.apache.kafka.controller.AclControlManager and kafka.server.AclApis. The rules of one resource pattern are
one record, `acl/<type>/<pattern>/<name>`; brokers get them like a dynamic configuration, whose keys are the entries.
Deliberate difference: codes that Kafka's parser refuses (UNKNOWN) are INVALID_REQUEST; Kafka closes the connection.
"""

from __future__ import annotations

from kwire.protocol.errors import ErrorCode
from kwire.replication.config.authorization import is_authorizing
from kwire.replication.controller.refusals import Refusals
from kwire.replication.core.acls import (
    ALLOW,
    ANY,
    CLUSTER,
    CLUSTER_NAME,
    DENY,
    LITERAL,
    OPERATION_NAMES,
    PATTERN_NAMES,
    PERMISSION_NAMES,
    PREFIXED,
    RESOURCE_NAMES,
    UNKNOWN,
    Entry,
    Filter,
    Pattern,
    filter_problem,
)
from kwire.replication.core.metadata import ACL_RESOURCE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from kwire.protocol.schemas.acls import (
        AclCreation,
        CreateAclsRequest,
        CreateAclsResponse,
        DeleteAclsFilterResult,
        DeleteAclsMatchingAcl,
        DeleteAclsRequest,
        DeleteAclsResponse,
    )
    from kwire.replication.controller.batch import Orders
    from kwire.replication.controller.changes import ChangeLog
    from kwire.replication.controller.context import ControllerContext

    Rules = dict[Pattern, dict[Entry, None]]

MOST = 10_000
"""Rules that one request may delete (QuorumController.MAX_RECORDS_PER_USER_OP)."""
_DISABLED = "No Authorizer is configured."
_ONLY_CLUSTER = f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}"


class AclControl:
    """Handles CreateAcls and DeleteAcls."""

    def __init__(self, context: ControllerContext, changelog: ChangeLog, orders: Orders) -> None:
        self._context = context
        self._changelog = changelog
        self._orders = orders

    def start(self) -> None:
        """Let the brokers know all rules."""
        for pattern in self._patterns():
            self._send(pattern)

    def create(self, request: CreateAclsRequest, version: int) -> CreateAclsResponse:
        """Handle CreateAcls v0-3: all rules that are allowed, in one journal write."""
        from kwire.protocol.schemas.acls import AclCreationResult, CreateAclsResponse

        if not is_authorizing(self._context.config):
            return Refusals.create_acls(request, version, ErrorCode.SECURITY_DISABLED, _DISABLED)
        changed: Rules = {}
        results = []
        for creation in request.creations:
            problem = _problem(creation)
            if problem is None:
                pattern, entry = _rule(creation)
                rules = changed.get(pattern) or self._entries(pattern)
                if entry not in rules:
                    changed[pattern] = {**rules, entry: None}
                results.append(AclCreationResult(error_message=None))
            else:
                code = int(ErrorCode.INVALID_REQUEST)
                results.append(AclCreationResult(error_code=code, error_message=problem))
        self._commit(changed)
        return CreateAclsResponse(results=results)

    def delete(self, request: DeleteAclsRequest, version: int) -> DeleteAclsResponse:
        """Handle DeleteAcls v0-3: what some filter matches, in one journal write."""
        from kwire.protocol.schemas.acls import DeleteAclsFilterResult, DeleteAclsResponse

        if not is_authorizing(self._context.config):
            return Refusals.delete_acls(request, version, ErrorCode.SECURITY_DISABLED, _DISABLED)
        changed: Rules = {}
        results: list[DeleteAclsFilterResult] = []
        count = 0
        known = {pattern: self._entries(pattern) for pattern in self._patterns()}
        for fields in request.filters:
            result = DeleteAclsFilterResult(error_message=None)
            results.append(result)
            problem = filter_problem(fields)
            if problem is not None:
                result.error_code, result.error_message = problem
                continue
            wanted = Filter(fields)
            for pattern, entries in known.items():
                if not wanted.matches_pattern(pattern):
                    continue
                matching = [entry for entry in entries if wanted.matches_entry(entry)]
                if not matching:
                    continue
                left = changed.setdefault(pattern, dict(entries))
                for entry in matching:
                    count += left.pop(entry, entry) is None
                    result.matching_acls.append(_matching(pattern, entry))
                if count > MOST:
                    text = f"Cannot remove more than {MOST} acls in a single delete operation."
                    code = ErrorCode.UNKNOWN_SERVER_ERROR
                    return Refusals.delete_acls(request, version, code, text)
        self._commit(changed)
        return DeleteAclsResponse(filter_results=results)

    def _patterns(self) -> list[Pattern]:
        keys = (key for key in self._context.state.security if key.startswith("acl/"))
        return [Pattern.from_text(key.partition("/")[2]) for key in keys]

    def _entries(self, pattern: Pattern) -> dict[Entry, None]:
        value = self._context.state.security.get(_key(pattern)) or ()
        return {Entry(*each): None for each in value}

    def _commit(self, changed: Rules) -> None:
        if changed:
            self._changelog.commit(
                [(_key(pattern), [*map(list, rules)] or None) for pattern, rules in changed.items()]
            )
            for pattern in changed:
                self._send(pattern)

    def _send(self, pattern: Pattern) -> None:
        texts = {entry.to_text(): "" for entry in self._entries(pattern)}
        self._orders.config_changed(ACL_RESOURCE, pattern.to_text(), texts)


def _key(pattern: Pattern) -> str:
    return f"acl/{pattern.to_text()}"


def _rule(creation: AclCreation) -> tuple[Pattern, Entry]:
    pattern = Pattern(
        creation.resource_type, creation.resource_pattern_type, creation.resource_name
    )
    return pattern, Entry(
        creation.principal, creation.host, creation.operation, creation.permission_type
    )


def _problem(creation: AclCreation) -> str | None:
    """Why Kafka refuses a rule (AclApis, AclControlManager.validateNewAcl); None: it does not."""
    kind, pattern_type = creation.resource_type, creation.resource_pattern_type
    if kind == CLUSTER and creation.resource_name != CLUSTER_NAME:
        return _ONLY_CLUSTER
    if not creation.resource_name:
        return "Invalid empty resource name"
    if kind in (UNKNOWN, ANY) or kind not in RESOURCE_NAMES:
        return f"Invalid resourceType {_named(RESOURCE_NAMES, kind)}"
    if pattern_type not in (LITERAL, PREFIXED):
        return f"Invalid patternType {_named(PATTERN_NAMES, pattern_type)}"
    if creation.operation in (UNKNOWN, ANY) or creation.operation not in OPERATION_NAMES:
        return f"Invalid operation {_named(OPERATION_NAMES, creation.operation)}"
    if creation.permission_type not in (DENY, ALLOW):
        return f"Invalid permissionType {_named(PERMISSION_NAMES, creation.permission_type)}"
    return None


def _named(names: dict[int, str], code: int) -> str:
    return names.get(code, "UNKNOWN")


def _matching(pattern: Pattern, entry: Entry) -> DeleteAclsMatchingAcl:
    from kwire.protocol.schemas.acls import DeleteAclsMatchingAcl

    return DeleteAclsMatchingAcl(
        error_message=None,
        resource_type=pattern.resource_type,
        resource_name=pattern.name,
        pattern_type=pattern.pattern_type,
        principal=entry.principal,
        host=entry.host,
        operation=entry.operation,
        permission_type=entry.permission,
    )
