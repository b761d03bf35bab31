"""Asks the authorizer on behalf of requests, and keeps its answers until a rule changes.

A broker has one if `authorizer.class.name` is set; else nothing of this room is imported. It stands before the
handlers (`guard`), which know nothing of it; what each API needs is in `table.py`. Connections of KWIRE_INTERNAL,
brokers and kwire itself, are not subject to it.
"""

from __future__ import annotations

from kwire.apis.access.authorizer import Authorizer
from kwire.apis.access.table import ROWS
from kwire.protocol.errors import ErrorCode
from kwire.replication.config.authorization import allows_if_no_acl_found, super_users
from kwire.replication.core.acls import (
    ALTER,
    ALTER_CONFIGS,
    CLUSTER,
    CLUSTER_ACTION,
    CLUSTER_NAME,
    CREATE,
    DELETE,
    DESCRIBE,
    DESCRIBE_CONFIGS,
    GROUP,
    IDEMPOTENT_WRITE,
    READ,
    TOPIC,
    WRITE,
    Entry,
    Pattern,
)
from kwire.replication.core.metadata import ACL_RESOURCE
from kwire.replication.core.types import INTERNAL_LISTENER

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from kwire.apis import Handler
    from kwire.apis.access.table import Need
    from kwire.apis.context import RequestContext, Services

_OPERATIONS = {
    TOPIC: (READ, WRITE, CREATE, DELETE, ALTER, DESCRIBE, DESCRIBE_CONFIGS, ALTER_CONFIGS),
    GROUP: (READ, DELETE, DESCRIBE),
    CLUSTER: (
        *(CREATE, ALTER, DESCRIBE, CLUSTER_ACTION),
        *(DESCRIBE_CONFIGS, ALTER_CONFIGS, IDEMPOTENT_WRITE),
    ),
}
"""Operations of "authorized operations" (AclEntry.supportedOperations)."""
_KEPT = 20_000
"""Answers that are kept at most."""


class Authority:
    """The authorizer of one broker."""

    __slots__ = ("_answers", "_authorizer", "_metadata", "_services")

    def __init__(self, services: Services) -> None:
        """ConfigError."""
        self._services = services
        self._metadata = services.metadata
        self._authorizer = Authorizer(
            super_users(services.config),
            allow_if_no_acl_found=allows_if_no_acl_found(services.config),
        )
        self._answers: dict[tuple[str, str, int, int, str | None], bool] = {}

    # --- questions

    def may(self, ctx: RequestContext, need: Need, name: str = CLUSTER_NAME) -> bool:
        """Whether the client of a request may do to the resource `name` what is needed."""
        return self.may_do(ctx, need.operation, need.resource_type, name)

    def may_do(
        self, ctx: RequestContext, operation: int, resource_type: int, name: str = CLUSTER_NAME
    ) -> bool:
        """As `may`."""
        answers = self._current()
        session = ctx.session
        key = session.principal, session.peer_host, operation, resource_type, name
        found = answers.get(key)
        if found is None:
            host = _java_host(session.peer_host)
            found = self._authorizer.allows(session.principal, host, operation, resource_type, name)
            answers[key] = found
        return found

    def may_some(self, ctx: RequestContext, need: Need) -> bool:
        """Whether there can be a resource of that type that the client may do it to."""
        answers = self._current()
        session = ctx.session
        key = session.principal, session.peer_host, need.operation, need.resource_type, None
        found = answers.get(key)
        if found is None:
            host = _java_host(session.peer_host)
            found = self._authorizer.allows_some(
                session.principal, host, need.operation, need.resource_type
            )
            answers[key] = found
        return found

    def operations(self, ctx: RequestContext, resource_type: int, name: str = CLUSTER_NAME) -> int:
        """The operations that the client may do to a resource, a bit each (KIP-430)."""
        return sum(
            1 << operation
            for operation in _OPERATIONS[resource_type]
            if self.may_do(ctx, operation, resource_type, name)
        )

    def _current(self) -> dict[tuple[str, str, int, int, str | None], bool]:
        """The answers that are still right."""
        metadata, answers = self._metadata, self._answers
        if metadata.changed_acls:
            changed, metadata.changed_acls = metadata.changed_acls, set()
            for name in changed:
                texts = metadata.config(ACL_RESOURCE, name)
                self._authorizer.set_entries(Pattern.from_text(name), map(Entry.from_text, texts))
            answers.clear()
        elif len(answers) > _KEPT:
            answers.clear()
        return answers

    # --- requests

    def guard(self, api_key: int, handler: Handler) -> Handler:
        """The handler of an API, behind what the API needs."""
        row = ROWS.get(api_key)
        if row is None:
            return handler
        check, services = row.check, self._services

        def guarded(ctx: RequestContext, request: Any) -> None:
            if ctx.session.listener_name == INTERNAL_LISTENER:
                handler(ctx, request)
                return
            member = services.member
            if member is None or member.has_metadata:
                check(self, ctx, request, handler, row)
                return
            # The rules come before the first metadata: until then nobody can be told what it may do.
            ctx.session.keeps_frame = True
            member.when_metadata_known(lambda: check(self, ctx, request, handler, row))

        return guarded

    def reader(
        self, ctx: RequestContext, *, is_follower: bool
    ) -> Callable[[str], ErrorCode] | None:
        """What keeps the client of a Fetch from reading a topic; None: it may read all."""
        if ctx.session.listener_name == INTERNAL_LISTENER:
            return None
        follow, read = ROWS[ctx.api_key].needs
        if is_follower:
            is_allowed = self.may(ctx, follow)
            return None if is_allowed else lambda _: ErrorCode.TOPIC_AUTHORIZATION_FAILED
        member = self._services.member
        is_ready = member is None or member.has_metadata
        # A client that starts with the broker comes again; it would give up if it was not allowed to.
        refusal = (
            ErrorCode.TOPIC_AUTHORIZATION_FAILED
            if is_ready
            else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        )
        return lambda topic: ErrorCode.NONE if self.may(ctx, read, topic) else refusal


def _java_host(host: str) -> str:
    """An address as Java writes it, without "::": rules name hosts so."""
    if ":" not in host:
        return host
    from ipaddress import IPv6Address

    try:
        groups = IPv6Address(host.partition("%")[0]).exploded.split(":")
    except ValueError:
        return host
    return ":".join(f"{int(group, 16):x}" for group in groups)
