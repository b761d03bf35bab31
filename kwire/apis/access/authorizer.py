"""Whether a principal may do something: the rules of Kafka's StandardAuthorizer, as a function of the ACLs. No I/O.

Answers to org.apache.kafka.metadata.authorizer.StandardAuthorizerData, and to Authorizer.authorizeByResourceType. A
denial wins over a permission; WRITE, say, includes DESCRIBE where it is permitted, not where it is denied; what no rule
is about is for super users only, unless `allow.everyone.if.no.acl.found`.

Literal patterns are found by their names, prefixed ones by those beginnings of a name whose lengths occur.
"""

from __future__ import annotations

from kwire.replication.core.acls import (
    ALL,
    ALLOW,
    ALTER,
    ALTER_CONFIGS,
    DELETE,
    DENY,
    DESCRIBE,
    DESCRIBE_CONFIGS,
    LITERAL,
    PREFIXED,
    READ,
    WILDCARD,
    WILDCARD_PRINCIPAL,
    WRITE,
    Entry,
    Pattern,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_IMPLIED_BY = {
    DESCRIBE: frozenset((ALL, DESCRIBE, READ, WRITE, DELETE, ALTER)),
    DESCRIBE_CONFIGS: frozenset((ALL, DESCRIBE_CONFIGS, ALTER_CONFIGS)),
}


class Authorizer:
    """The rules of a cluster. Patterns are unique: setting one again replaces its entries."""

    def __init__(
        self, super_users: Iterable[str] = (), *, allow_if_no_acl_found: bool = False
    ) -> None:
        """`super_users`: principals that may do everything, "User:alice"."""
        self.super_users = frozenset(super_users)
        self.allow_if_no_acl_found = allow_if_no_acl_found
        self._literal: dict[tuple[int, str], list[Entry]] = {}
        self._prefixed: dict[tuple[int, str], list[Entry]] = {}
        self._lengths: dict[int, dict[int, int]] = {}  # by type: length of a prefix, and how many

    def set_entries(self, pattern: Pattern, entries: Iterable[Entry]) -> None:
        """Replace the entries of a pattern; none: there is no rule for it any more."""
        kind, name = pattern.resource_type, pattern.name
        rules = self._literal if pattern.pattern_type == LITERAL else self._prefixed
        before = rules.pop((kind, name), None)
        found = list(entries)
        if found:
            rules[kind, name] = found
        if rules is self._prefixed and (before is None) != (not found):
            lengths = self._lengths.setdefault(kind, {})
            count = lengths.get(len(name), 0) + (1 if found else -1)
            if count:
                lengths[len(name)] = count
            else:
                del lengths[len(name)]

    def allows(
        self, principal: str, host: str, operation: int, resource_type: int, name: str
    ) -> bool:
        """Whether `principal`, at the IP address `host`, may do an operation to a resource."""
        if principal in self.super_users:
            return True
        is_found = is_allowed = False
        for entries in self._about(resource_type, name):
            is_found = True
            for entry in entries:
                if not _concerns(entry, principal, host):
                    continue
                if entry.permission == DENY:
                    if entry.operation in (ALL, operation):
                        return False
                elif _permits(entry, operation):
                    is_allowed = True
        return is_allowed or (not is_found and self.allow_if_no_acl_found)

    def allows_some(self, principal: str, host: str, operation: int, resource_type: int) -> bool:
        """Whether there is a resource of the type that the principal may do the operation to.

        As in Kafka by the patterns alone: whether such a resource exists does not matter."""
        if self.allows(principal, host, operation, resource_type, "hardcode"):
            return True
        denied: set[Pattern] = set()
        allowed: set[Pattern] = set()
        for pattern, entry in self._of_type(resource_type):
            if entry.operation in (ALL, operation) and _concerns(entry, principal, host):
                (denied if entry.permission == DENY else allowed).add(pattern)
        if Pattern(resource_type, LITERAL, WILDCARD) in denied:
            return False
        return any(
            (pattern.name == WILDCARD and pattern.pattern_type == LITERAL)
            or not _is_dominated(pattern, denied)
            for pattern in allowed
        )

    def _about(self, resource_type: int, name: str) -> Iterator[list[Entry]]:
        """The entries of each pattern that a resource falls under."""
        literal, prefixed = self._literal, self._prefixed
        for key in ((resource_type, name), (resource_type, WILDCARD)):
            if key in literal:
                yield literal[key]
            if name == WILDCARD:
                break
        for length in self._lengths.get(resource_type, ()):
            if length <= len(name):
                entries = prefixed.get((resource_type, name[:length]))
                if entries is not None:
                    yield entries

    def _of_type(self, resource_type: int) -> Iterator[tuple[Pattern, Entry]]:
        for pattern_type, rules in ((LITERAL, self._literal), (PREFIXED, self._prefixed)):
            for (kind, name), entries in rules.items():
                if kind == resource_type:
                    for entry in entries:
                        yield Pattern(kind, pattern_type, name), entry


def _concerns(entry: Entry, principal: str, host: str) -> bool:
    return entry.principal in (principal, WILDCARD_PRINCIPAL) and entry.host in (host, WILDCARD)


def _permits(entry: Entry, operation: int) -> bool:
    if entry.permission != ALLOW:
        return False
    implied_by = _IMPLIED_BY.get(operation)
    if implied_by is not None:
        return entry.operation in implied_by
    return entry.operation in (ALL, operation)


def _is_dominated(pattern: Pattern, denied: set[Pattern]) -> bool:
    """Whether a denial covers all of an allowed pattern."""
    kind, _, name = pattern
    if pattern.pattern_type == LITERAL and pattern in denied:
        return True
    return any(Pattern(kind, PREFIXED, name[:end]) in denied for end in range(1, len(name) + 1))
