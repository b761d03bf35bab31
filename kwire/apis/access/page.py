"""Generates docs/authorization.md from the table of what each API needs (`python -m kwire.apis.access.page`)."""

from __future__ import annotations

import sys

from kwire.apis.access.table import AMONG_NODES, TABLE
from kwire.replication.core.acls import OPERATION_NAMES, RESOURCE_NAMES

_HEAD = """# What each API needs

With `--acl`, or `authorizer.class.name`, a client may do what the access rules (ACLs) allow, as with Kafka's
StandardAuthorizer ([security](security.md)). The operations and resources are Kafka's. "Refused" is the error of the
resource: TOPIC_AUTHORIZATION_FAILED, GROUP_…, CLUSTER_…, TRANSACTIONAL_ID_AUTHORIZATION_FAILED. APIs that are not here
need nothing (ApiVersions, SaslHandshake). Made by `python -m kwire.apis.access.page`.

A dedicated controller asks for the same of those that it serves: of clients that connect to it, and of those whose
requests brokers forward. What nodes ask of each other is at the end.

| API | operation | resource | without it |
|---|---|---|---|
"""


def page() -> str:
    """The page's text."""
    rows = []
    for row in (*TABLE, *AMONG_NODES.values()):
        for number, need in enumerate(row.needs):
            name = "" if number else f"{row.key.api_name} ({int(row.key)})"
            operation = OPERATION_NAMES[need.operation]
            resource = RESOURCE_NAMES[need.resource_type]
            rows.append(f"| {name} | {operation} | {resource} | {need.without} |\n")
    return _HEAD + "".join(rows)


if __name__ == "__main__":
    sys.stdout.write(page())
