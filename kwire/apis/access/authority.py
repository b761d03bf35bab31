"""Asks the authorizer on behalf of requests, and keeps its answers until a rule changes.

A node has one if `authorizer.class.name` is set; else nothing of this room is imported. It stands before the
handlers (`guard`), which know nothing of it; what each API needs is in `table.py`. Connections of KWIRE_INTERNAL,
brokers and kwire itself, are not subject to it.
"""

from __future__ import annotations

from kwire.apis.access.authorizer import Authorizer
from kwire.apis.access.table import AMONG_NODES, ROWS
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
from kwire.replication.core.events import Event
from kwire.replication.core.metadata import ACL_RESOURCE
from kwire.replication.core.types import INTERNAL_LISTENER

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any, Protocol

    from kwire.apis import Handler
    from kwire.apis.access.table import Need, Row
    from kwire.apis.context import RequestContext, Services
    from kwire.replication.config.broker_config import BrokerConfig
    from kwire.replication.core.delegation_tokens import Token
    from kwire.replication.core.events import LogEvent

    class Rules(Protocol):
        """Where the rules are, as texts; a broker's is its MetadataCache."""

        changed_acls: set[str]

        def config(self, resource_type: int, name: str) -> Mapping[str, str]: ...


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
    """The authorizer of one node; `BrokerAuthority` and `ControllerAuthority` stand before its handlers."""

    __slots__ = ("_answers", "_authorizer", "_log_event", "_logged", "_rules")

    def __init__(self, config: BrokerConfig, rules: Rules, log_event: LogEvent) -> None:
        """ConfigError."""
        self._rules = rules
        self._log_event = log_event
        self._logged: set[str] = set()  # principals that were refused what nodes do
        self._authorizer = Authorizer(
            super_users(config), allow_if_no_acl_found=allows_if_no_acl_found(config)
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
        rules, answers = self._rules, self._answers
        if rules.changed_acls:
            changed, rules.changed_acls = rules.changed_acls, set()
            for name in changed:
                texts = rules.config(ACL_RESOURCE, name)
                self._authorizer.set_entries(Pattern.from_text(name), map(Entry.from_text, texts))
            answers.clear()
        elif len(answers) > _KEPT:
            answers.clear()
        return answers

    # --- requests

    def guard(self, api_key: int, handler: Handler) -> Handler:
        """The handler of an API, behind what the API needs."""
        raise NotImplementedError

    def check_node(self, ctx: RequestContext, request: Any, handler: Handler, row: Row) -> None:
        """Let the handler answer what nodes ask of each other, or refuse it, with one line in the log for each who."""
        principal = ctx.session.principal
        if principal not in self._logged and not self.may(ctx, row.needs[0]):
            if len(self._logged) >= _KEPT:
                self._logged.clear()
            self._logged.add(principal)
            self._log_event(Event.NODE_UNAUTHORIZED, principal=principal, api=row.key.api_name)
        row.check(self, ctx, request, handler, row)


class BrokerAuthority(Authority):
    """The authorizer of a broker."""

    __slots__ = ("_services",)

    def __init__(self, services: Services) -> None:
        """ConfigError."""
        super().__init__(services.config, services.metadata, services.log_event)
        self._services = services

    def guard(self, api_key: int, handler: Handler) -> Handler:
        order = AMONG_NODES.get(api_key)
        if order is not None:
            return self._guard_order(order, handler)
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

    def _guard_order(self, row: Row, handler: Handler) -> Handler:
        """The handler of an order of the controller. The first orders bring the rules: until then, as with Kafka, it
        has to be a super user."""

        def guarded(ctx: RequestContext, request: Any) -> None:
            if ctx.session.listener_name == INTERNAL_LISTENER:
                handler(ctx, request)
            else:
                self.check_node(ctx, request, handler, row)

        return guarded

    def reader(
        self, ctx: RequestContext, *, is_follower: bool
    ) -> Callable[[str, int], ErrorCode] | None:
        """What keeps the client of a Fetch from reading a partition; None: it may read all."""
        if ctx.session.listener_name == INTERNAL_LISTENER:
            return None
        follow, read = ROWS[ctx.api_key].needs
        if is_follower:
            is_allowed = self.may(ctx, follow)
            return None if is_allowed else lambda *_: ErrorCode.TOPIC_AUTHORIZATION_FAILED
        member = self._services.member
        is_ready = member is None or member.has_metadata
        # A client that starts with the broker comes again; it would give up if it was not allowed to.
        refusal = (
            ErrorCode.TOPIC_AUTHORIZATION_FAILED
            if is_ready
            else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        )
        return lambda topic, _: ErrorCode.NONE if self.may(ctx, read, topic) else refusal

    def may_see(self, ctx: RequestContext, token: Token) -> bool:
        """Whether a delegation token may be described to the client (DelegationTokenManager.filterToken)."""
        of_token, of_owner = ROWS[ctx.api_key].needs
        return (
            token.concerns(ctx.session.principal)
            or self.may(ctx, of_token, token.token_id)
            or self.may(ctx, of_owner, token.owner)
        )


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
