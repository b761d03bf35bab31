"""Access rules (ACL bindings): their codes, their texts, and the filters that DescribeAcls and DeleteAcls have.

Answers to org.apache.kafka.common.acl and org.apache.kafka.common.resource. The rules of one resource pattern are kept
together: one record of the controller's journal, one resource on the way to the brokers, named
"<type>/<pattern>/<name>", whose entries are texts.
"""

from __future__ import annotations

import json
from typing import Final, NamedTuple

from kwire.protocol.errors import ErrorCode

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

UNKNOWN: Final = 0
ANY: Final = 1

# ResourceType
TOPIC, GROUP, CLUSTER, TRANSACTIONAL_ID, DELEGATION_TOKEN, USER = 2, 3, 4, 5, 6, 7
RESOURCE_NAMES: Final = {
    UNKNOWN: "UNKNOWN",
    ANY: "ANY",
    TOPIC: "TOPIC",
    GROUP: "GROUP",
    CLUSTER: "CLUSTER",
    TRANSACTIONAL_ID: "TRANSACTIONAL_ID",
    DELEGATION_TOKEN: "DELEGATION_TOKEN",
    USER: "USER",
}
CLUSTER_NAME: Final = "kafka-cluster"

# PatternType
MATCH, LITERAL, PREFIXED = 2, 3, 4
PATTERN_NAMES: Final = {
    UNKNOWN: "UNKNOWN",
    ANY: "ANY",
    MATCH: "MATCH",
    LITERAL: "LITERAL",
    PREFIXED: "PREFIXED",
}

# AclOperation
ALL, READ, WRITE, CREATE, DELETE, ALTER, DESCRIBE = 2, 3, 4, 5, 6, 7, 8
CLUSTER_ACTION, DESCRIBE_CONFIGS, ALTER_CONFIGS, IDEMPOTENT_WRITE = 9, 10, 11, 12
CREATE_TOKENS, DESCRIBE_TOKENS = 13, 14
OPERATION_NAMES: Final = {
    UNKNOWN: "UNKNOWN",
    ANY: "ANY",
    ALL: "ALL",
    READ: "READ",
    WRITE: "WRITE",
    CREATE: "CREATE",
    DELETE: "DELETE",
    ALTER: "ALTER",
    DESCRIBE: "DESCRIBE",
    CLUSTER_ACTION: "CLUSTER_ACTION",
    DESCRIBE_CONFIGS: "DESCRIBE_CONFIGS",
    ALTER_CONFIGS: "ALTER_CONFIGS",
    IDEMPOTENT_WRITE: "IDEMPOTENT_WRITE",
    CREATE_TOKENS: "CREATE_TOKENS",
    DESCRIBE_TOKENS: "DESCRIBE_TOKENS",
}

# AclPermissionType
DENY, ALLOW = 2, 3
PERMISSION_NAMES: Final = {UNKNOWN: "UNKNOWN", ANY: "ANY", DENY: "DENY", ALLOW: "ALLOW"}

WILDCARD: Final = "*"
WILDCARD_PRINCIPAL: Final = "User:*"


class Pattern(NamedTuple):
    """A resource pattern: what rules are about."""

    resource_type: int
    pattern_type: int
    name: str

    def to_text(self) -> str:
        return f"{self.resource_type}/{self.pattern_type}/{self.name}"

    @classmethod
    def from_text(cls, text: str) -> Pattern:
        """ValueError for any other text."""
        resource_type, pattern_type, name = text.split("/", 2)
        return cls(int(resource_type), int(pattern_type), name)


class Entry(NamedTuple):
    """What a principal may, or may not, do from a host."""

    principal: str
    host: str
    operation: int
    permission: int

    def to_text(self) -> str:
        return json.dumps(self)

    @classmethod
    def from_text(cls, text: str) -> Entry:
        """ValueError or TypeError for any other text."""
        return cls(*json.loads(text))


class Filter:
    """An AclBindingFilter: what it leaves out matches everything."""

    __slots__ = (
        "host",
        "name",
        "operation",
        "pattern_type",
        "permission",
        "principal",
        "resource_type",
    )

    def __init__(self, fields: Any) -> None:
        """`fields`: a DescribeAclsRequest, or an element of a DeleteAclsRequest."""
        self.resource_type: int = fields.resource_type_filter
        self.name: str | None = fields.resource_name_filter
        self.pattern_type: int = fields.pattern_type_filter
        self.principal: str | None = fields.principal_filter
        self.host: str | None = fields.host_filter
        self.operation: int = fields.operation
        self.permission: int = fields.permission_type

    def matches_pattern(self, pattern: Pattern) -> bool:
        """ResourcePatternFilter.matches: MATCH is for all patterns that a resource of that name falls under."""
        if self.resource_type not in (ANY, pattern.resource_type):
            return False
        if self.pattern_type not in (ANY, MATCH, pattern.pattern_type):
            return False
        if self.name is None or self.name == pattern.name:
            return True
        if self.pattern_type != MATCH:
            return False
        if pattern.pattern_type == LITERAL:
            return pattern.name == WILDCARD
        return self.name.startswith(pattern.name)

    def matches_entry(self, entry: Entry) -> bool:
        """AccessControlEntryFilter.matches: a name is that name, also "*"."""
        return (
            self.principal in (None, entry.principal)
            and self.host in (None, entry.host)
            and self.operation in (ANY, entry.operation)
            and self.permission in (ANY, entry.permission)
        )


def filter_problem(fields: Any) -> tuple[int, str] | None:
    """Error code and text for a filter that Kafka refuses; None: it does not. `fields`: as of Filter."""
    for code, names in (
        (fields.resource_type_filter, RESOURCE_NAMES),
        (fields.pattern_type_filter, PATTERN_NAMES),
    ):
        if code not in names or code == UNKNOWN:
            return int(ErrorCode.INVALID_REQUEST), "Unknown patternFilter."
    for code, names in (
        (fields.operation, OPERATION_NAMES),
        (fields.permission_type, PERMISSION_NAMES),
    ):
        if code not in names or code == UNKNOWN:
            return int(ErrorCode.INVALID_REQUEST), "Unknown entryFilter."
    return None
